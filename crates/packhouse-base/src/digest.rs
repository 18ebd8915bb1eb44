//! SHA-256 digests and the distinct id types made of them.
//!
//! A *key* names an identity that goes in, a *digest* names content that came out; the types do not
//! mix. Text form: 64 lower-case hex digits, no other spelling is read.

use packhouse_hash::{Sha256, digest_many};
use std::fmt;

/// A SHA-256 value of 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Why a text is no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not 64 lower-case hex digits: {text:?}")]
pub struct DigestError {
    /// The offending text, cut to 80 characters.
    pub text: String,
}

/// An incremental SHA-256.
#[derive(Clone, Default)]
pub struct Hasher(Sha256);

impl Digest {
    /// Wraps 32 raw bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Hashes bytes held in memory.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::default();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Hashes several byte strings held in memory, many at a time on this one core: twice as fast
    /// as one after another where ten or more are of about one length.
    pub fn of_many(inputs: &[&[u8]]) -> Vec<Self> {
        digest_many(inputs).into_iter().map(Self).collect()
    }

    /// Hashes two byte strings held in memory, in turns on this one core.
    pub fn of_pair(one: &[u8], other: &[u8]) -> (Self, Self) {
        let (mut first, mut second) = (Hasher::default(), Hasher::default());
        Hasher::update_many(&mut [(&mut first, one), (&mut second, other)]);
        (first.finish(), second.finish())
    }

    /// Parses 64 lower-case hex digits. Errors on any other text.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let refuse = || DigestError {
            text: text.chars().take(80).collect(),
        };
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(refuse());
        }
        let mut bytes = [0u8; 32];
        let mut wrong = 0;
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let (high, low) = (NIBBLES[usize::from(pair[0])], NIBBLES[usize::from(pair[1])]);
            wrong |= high | low;
            *byte = high << 4 | low;
        }
        if wrong & NO_NIBBLE != 0 {
            return Err(refuse());
        }
        Ok(Self(bytes))
    }

    /// Returns the 32 raw bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand: names of files are made of digests, hundreds in a command of milliseconds.
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(self.0) {
            pair[0] = DIGITS[usize::from(byte >> 4)];
            pair[1] = DIGITS[usize::from(byte & 15)];
        }
        f.write_str(std::str::from_utf8(&digits).expect("because digits are ASCII"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Adds to each hasher its own bytes, many at a time on this one core. The digests are those of
    /// `update` in turn; the more hashers of one length, up to sixteen, the faster.
    pub fn update_many(parts: &mut [(&mut Self, &[u8])]) {
        let mut inner: Vec<_> = parts
            .iter_mut()
            .map(|(hasher, bytes)| (&mut hasher.0, *bytes))
            .collect();
        Sha256::update_many(&mut inner);
    }

    /// Ends the hash.
    pub fn finish(self) -> Digest {
        Digest(self.0.finish())
    }
}

macro_rules! digest_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub Digest);

        impl $name {
            /// Parses 64 lower-case hex digits. Errors on any other text.
            pub fn parse(text: &str) -> Result<Self, DigestError> {
                Digest::parse(text).map(Self)
            }

            /// Returns the 32 raw bytes.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                self.0.as_bytes()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }
    };
}

digest_type!(
    /// SHA-256 of a payload: the name of an object.
    ObjectDigest
);
digest_type!(
    /// SHA-256 of a source tensor's bytes.
    TensorDigest
);
digest_type!(
    /// Hash of what a packer makes of the golden weight of its layout.
    Fingerprint
);
digest_type!(
    /// Identity of one pack.
    PackKey
);
digest_type!(
    /// Identity of one set.
    SetKey
);

const DIGITS: [u8; 16] = *b"0123456789abcdef";

/// What a byte is as a hexadecimal digit.
const NIBBLES: [u8; 256] = {
    let mut nibbles = [NO_NIBBLE; 256];
    let mut value = 0;
    while value < DIGITS.len() {
        nibbles[DIGITS[value] as usize] = value as u8;
        value += 1;
    }
    nibbles
};
const NO_NIBBLE: u8 = 0xf0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_matches_the_published_vector_and_round_trips() {
        let digest = Digest::of(b"abc");
        let text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(digest.to_string(), text);
        assert_eq!(Digest::parse(text), Ok(digest));
    }

    #[test]
    fn several_at_once_hash_to_the_same() {
        let inputs: Vec<Vec<u8>> = (0..20u8).map(|i| vec![i; usize::from(i) * 33]).collect();
        let slices: Vec<&[u8]> = inputs.iter().map(Vec::as_slice).collect();
        let one_by_one: Vec<Digest> = slices.iter().map(|bytes| Digest::of(bytes)).collect();
        assert_eq!(Digest::of_many(&slices), one_by_one);
        let pair = Digest::of_pair(slices[3], slices[7]);
        assert_eq!(pair, (one_by_one[3], one_by_one[7]));
    }

    #[test]
    fn only_one_spelling_is_a_digest() {
        let text = Digest::of(b"").to_string();
        for wrong in [
            text.to_uppercase(),
            text[1..].to_owned(),
            format!("{text}0"),
            String::new(),
        ] {
            assert!(Digest::parse(&wrong).is_err(), "{wrong}");
        }
    }
}
