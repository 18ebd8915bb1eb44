//! Draws of the Mersenne Twister as CPython's `random.Random(seed)` makes them.
//!
//! MT19937 (Matsumoto and Nishimura 1998), seeded by array with the 32-bit words of the seed, least
//! significant first. `random()` is the generator's 53-bit real.

use rand_mt::Mt;

/// A sequence of draws; the same for a seed for ever.
#[derive(Clone, Debug)]
pub struct Draws {
    generator: Mt,
}

impl Draws {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Self {
        let low = u32::try_from(seed & 0xffff_ffff).expect("because it is masked");
        let high = u32::try_from(seed >> 32).expect("because 32 bits are left");
        let key = if high == 0 {
            vec![low]
        } else {
            vec![low, high]
        };
        Self {
            generator: Mt::new_with_key(key),
        }
    }

    /// 32 random bits.
    pub fn bits(&mut self) -> u32 {
        self.generator.next_u32()
    }

    /// A real of [0, 1) with 53 random bits: `random()`.
    pub fn unit(&mut self) -> f64 {
        let (high, low) = (self.bits() >> 5, self.bits() >> 6);
        (f64::from(high) * 67_108_864.0 + f64::from(low)) / 9_007_199_254_740_992.0
    }

    /// A real between `-span` and `span`: `uniform(-span, span)`.
    pub fn within(&mut self, span: f64) -> f64 {
        -span + (span - -span) * self.unit()
    }

    /// An integer below `end`, which is at least 1: `randrange(end)`, by rejection.
    pub fn below(&mut self, end: u32) -> u32 {
        let width = 32 - end.leading_zeros();
        loop {
            let draw = self.bits() >> (32 - width);
            if draw < end {
                return draw;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_draws_come_out() {
        let mut draws = Draws::new(270_036);
        let raw: Vec<u32> = (0..4).map(|_| draws.bits()).collect();
        let published = [2_293_309_112, 875_910_113, 3_675_403_520, 3_216_920_359];
        assert_eq!(raw, published);
        let mut draws = Draws::new(270_036);
        let weights: Vec<f64> = (0..3).map(|_| draws.within(0.75)).collect();
        let published = [
            0.050_928_948_863_655_73,
            0.533_619_859_244_647_9,
            -0.384_963_918_894_906_05,
        ];
        assert_eq!(weights, published);
        let mut draws = Draws::new(0xb70);
        let bytes: Vec<u32> = (0..8).map(|_| draws.below(256)).collect();
        assert_eq!(bytes, [177, 77, 18, 145, 18, 178, 158, 195]);
    }

    #[test]
    fn a_seed_of_more_than_one_word_is_a_key_of_two() {
        // CPython 3.11: [random.Random(s).getrandbits(32) for s in (0, 2**32 + 1, 2**64 - 1)]
        let first = |seed| Draws::new(seed).bits();
        assert_eq!(first(0), FIRST_OF_0);
        assert_eq!(first((1 << 32) + 1), FIRST_OF_TWO_WORDS);
        assert_eq!(first(u64::MAX), FIRST_OF_ALL_ONES);
    }

    const FIRST_OF_0: u32 = 3_626_764_237;
    const FIRST_OF_TWO_WORDS: u32 = 991_850_117;
    const FIRST_OF_ALL_ONES: u32 = 93_740_670;
}
