//! The pinned source of draws: xoshiro256** seeded by SplitMix64 (Blackman and Vigna, 2018 to
//! 2021).
//!
//! The same seed gives the same draws everywhere and for ever: its vectors are in the page. It is
//! for resampling, never for secrets.

/// A generator, seeded.
#[derive(Clone, Debug)]
pub struct Xoshiro {
    state: [u64; 4],
}

impl Xoshiro {
    /// Seeds it: its four words are the first four of SplitMix64 from this seed.
    pub fn seeded(seed: u64) -> Self {
        let mut word = seed;
        let state = std::array::from_fn(|_| {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^ mixed >> 31
        });
        Self { state }
    }

    /// The next 64 bits.
    pub fn word(&mut self) -> u64 {
        let state = &mut self.state;
        let word = state[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = state[1] << 17;
        state[2] ^= state[0];
        state[3] ^= state[1];
        state[1] ^= state[2];
        state[0] ^= state[3];
        state[2] ^= shifted;
        state[3] = state[3].rotate_left(45);
        word
    }

    /// One of `0..count`, each as likely: words at and above the largest multiple of `count` are
    /// passed over, and the rest of the division by `count` is taken. `count` is above zero.
    pub fn below(&mut self, count: u64) -> u64 {
        let excess = (u64::MAX % count + 1) % count;
        loop {
            let word = self.word();
            if word <= u64::MAX - excess {
                return word % count;
            }
        }
    }
}
