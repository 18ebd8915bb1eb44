//! Random words of `docs/format/statistics.md`, section 2.

/// Resamples of a bootstrap.
pub(super) const RESAMPLES: usize = 9999;

const SEED: u64 = 0x7061_636b_686f_7573;

/// xoshiro256** whose state SplitMix64 made of the seed.
pub(super) struct Draws {
    state: [u64; 4],
}

impl Draws {
    /// Begins anew.
    pub(super) fn new() -> Self {
        let mut word = SEED;
        let state = [(); 4].map(|()| {
            word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        });
        Self { state }
    }

    fn word(&mut self) -> u64 {
        let [s0, s1, s2, s3] = &mut self.state;
        let output = s1.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let t = *s1 << 17;
        *s2 ^= *s0;
        *s3 ^= *s1;
        *s1 ^= *s2;
        *s0 ^= *s3;
        *s2 ^= t;
        *s3 = s3.rotate_left(45);
        output
    }

    /// Draws one of so many: words that would favour the first ones are left out.
    pub(super) fn below(&mut self, count: usize) -> usize {
        let count = count as u64;
        // 2^64 mod count words at the end are too many.
        let spare = (u64::MAX % count + 1) % count;
        loop {
            let word = self.word();
            if word <= u64::MAX - spare {
                return usize::try_from(word % count).expect("because it is below a length");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_draws_are_those_of_the_page() {
        let mut draws = Draws::new();
        let words = [(); 4].map(|()| draws.word());
        assert_eq!(
            words,
            [
                6544897189015271155,
                1250153736183793119,
                16715365399172884128,
                14401875542994505708
            ]
        );
        for _ in 4..8 {
            draws.word();
        }
        let drawn = [(); 8].map(|()| draws.below(31));
        assert_eq!(drawn, [8, 27, 11, 7, 4, 10, 4, 20]);
    }
}
