//! SHA-256 digests and the distinct id types made of them.
//!
//! A *key* names an identity that goes in, a *digest* names content that came out; the types do not
//! mix. Text form: 64 lower-case hex digits, no other spelling is read.

use sha2::Digest as _;
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
pub struct Hasher(sha2::Sha256);

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
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let high = nibble(pair[0]).ok_or_else(refuse)?;
            let low = nibble(pair[1]).ok_or_else(refuse)?;
            *byte = high << 4 | low;
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
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
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

    /// Ends the hash.
    pub fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
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

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

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
