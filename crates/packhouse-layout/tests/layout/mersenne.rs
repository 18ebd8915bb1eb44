//! The generator of the reference packer's own test: MT19937 as CPython seeds it by an integer.
//!
//! Source: Matsumoto and Nishimura, "Mersenne Twister", 1998, and their `init_by_array`.

const WORDS: usize = 624;
const SHIFT: usize = 397;

pub(crate) struct Mersenne {
    state: [u32; WORDS],
    next: usize,
}

impl Mersenne {
    /// Seeds by one 32-bit word.
    pub(crate) fn new(seed: u32) -> Self {
        let mut state = [19_650_218_u32; WORDS];
        for index in 1..WORDS {
            let before = state[index - 1];
            state[index] = (before ^ before >> 30)
                .wrapping_mul(1_812_433_253)
                .wrapping_add(word(index));
        }
        let mut index = 1;
        for turn in 0..2 * WORDS - 1 {
            let before = state[index - 1];
            let mixed = before ^ before >> 30;
            // The key has one word, so its place is always 0.
            state[index] = if turn < WORDS {
                (state[index] ^ mixed.wrapping_mul(1_664_525)).wrapping_add(seed)
            } else {
                (state[index] ^ mixed.wrapping_mul(1_566_083_941)).wrapping_sub(word(index))
            };
            index += 1;
            if index == WORDS {
                state[0] = state[WORDS - 1];
                index = 1;
            }
        }
        state[0] = 0x8000_0000;
        Self { state, next: WORDS }
    }

    /// The next 32 bits.
    pub(crate) fn word(&mut self) -> u32 {
        if self.next == WORDS {
            self.twist();
        }
        let mut y = self.state[self.next];
        self.next += 1;
        y ^= y >> 11;
        y ^= y << 7 & 0x9d2c_5680;
        y ^= y << 15 & 0xefc6_0000;
        y ^ y >> 18
    }

    /// The next uniform byte: nine bits, drawn again until they are below 256.
    pub(crate) fn byte(&mut self) -> u8 {
        loop {
            if let Ok(byte) = u8::try_from(self.word() >> 23) {
                return byte;
            }
        }
    }

    fn twist(&mut self) {
        for index in 0..WORDS {
            let upper = self.state[index] & 0x8000_0000;
            let y = upper | self.state[(index + 1) % WORDS] & 0x7fff_ffff;
            let odd = if y & 1 == 1 { 0x9908_b0df } else { 0 };
            self.state[index] = self.state[(index + SHIFT) % WORDS] ^ y >> 1 ^ odd;
        }
        self.next = 0;
    }
}

fn word(index: usize) -> u32 {
    u32::try_from(index).expect("because the state is short")
}

#[test]
fn the_generator_draws_what_cpython_draws() {
    let mut mersenne = Mersenne::new(2928);
    let words = std::array::from_fn(|_| mersenne.word());
    assert_eq!(
        words,
        [
            3_986_176_198_u32,
            1_492_395_162,
            2_434_118_541,
            2_646_914_842
        ]
    );
    let mut mersenne = Mersenne::new(2928);
    let bytes = std::array::from_fn(|_| mersenne.byte());
    assert_eq!(bytes, [177_u8, 77, 18, 145, 18, 178, 158, 195]);
    let mut mersenne = Mersenne::new(270_036);
    let words = std::array::from_fn(|_| mersenne.word());
    assert_eq!(
        words,
        [2_293_309_112_u32, 875_910_113, 3_675_403_520, 3_216_920_359]
    );
}
