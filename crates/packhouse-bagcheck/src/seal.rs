//! Seals and their envelopes.

use ed25519_dalek::VerifyingKey;
use ed25519_dalek::pkcs8::DecodePublicKey;
use std::fmt;

/// A public key that envelopes are verified with.
#[derive(Clone, Debug)]
pub struct PublicKey(pub(crate) VerifyingKey);

/// The PEM text is no Ed25519 public key.
#[derive(Debug)]
pub struct KeyError(String);

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not an Ed25519 public key in PEM: {}", self.0)
    }
}

impl std::error::Error for KeyError {}

impl PublicKey {
    /// Parses a SubjectPublicKeyInfo in PEM, as `openssl pkey -pubout` writes it.
    pub fn from_pem(text: &str) -> Result<Self, KeyError> {
        VerifyingKey::from_public_key_pem(text)
            .map(Self)
            .map_err(|error| KeyError(error.to_string()))
    }
}
