//! SplitMix64 (Steele, Lea and Flood, 2014): a counter and a mixing function. Not for secrets.

/// A stream of numbers that its seed determines.
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// The stream of one tensor, so that no tensor's bytes depend on another's.
    pub(super) fn for_tensor(seed: u64, name: &str) -> Self {
        // FNV-1a of the name, as it is short, then one mix to part neighbouring seeds.
        let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let mut random = Self { state: seed };
        let state = random.next() ^ hash;
        Self { state }
    }

    /// The next 64 bits.
    #[inline]
    pub(super) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to 1, without 1.
    pub(super) fn unit_f32(&mut self) -> f32 {
        let mantissa = u32::try_from(self.next() >> 41).unwrap_or(0);
        f32::from_bits(0x3f80_0000 | mantissa) - 1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_is_splitmix64() {
        // The first outputs for seed 1234567 that the generator's authors' C code gives.
        let mut random = Random { state: 1_234_567 };
        let expected = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973];
        assert_eq!([random.next(), random.next()], expected);
    }

    #[test]
    fn streams_differ_by_seed_and_by_name() {
        let first = |seed, name| Random::for_tensor(seed, name).next();
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_eq!(first(1, "a"), first(1, "a"));
    }
}
