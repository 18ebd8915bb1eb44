//! 32 bytes as lower-case hex digits.

use std::fmt;

/// Shows bytes as hex digits, two each.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Reads lower-case hex digits that fill the target exactly.
pub(crate) fn parse(text: &str, target: &mut [u8]) -> Option<()> {
    let digits = text.as_bytes();
    if digits.len() != 2 * target.len() {
        return None;
    }
    for (pair, byte) in digits.chunks_exact(2).zip(target) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(())
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// A type of 32 bytes that is made by hashing and shown as hex digits.
macro_rules! hash_type {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// Wraps 32 raw bytes.
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 raw bytes.
            pub const fn bytes(&self) -> &[u8; 32] {
                &self.0
            }

            /// Reads 64 lower-case hex digits; no other spelling is one.
            pub fn parse(text: &str) -> Option<Self> {
                let mut bytes = [0; 32];
                crate::hex::parse(text, &mut bytes)?;
                Some(Self(bytes))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(&crate::hex::Hex(&self.0), f)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}
pub(crate) use hash_type;
