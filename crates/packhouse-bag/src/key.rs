//! Ed25519 keys in PEM files: PKCS#8 (RFC 8410) the private one, SubjectPublicKeyInfo the public.
//!
//! Never: prints a private key. Its bytes are wiped when it is dropped.

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePublicKey};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use std::fmt;

/// A key that signs.
pub struct PrivateKey(SigningKey);

/// A key that verifies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublicKey(VerifyingKey);

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Not a private key of Ed25519 in PEM.
    #[error("not an Ed25519 private key in PEM (PKCS#8, `BEGIN PRIVATE KEY`)")]
    Private,
    /// Not a public key of Ed25519 in PEM.
    #[error("not an Ed25519 public key in PEM (`BEGIN PUBLIC KEY`)")]
    Public,
    /// A point of small order: it would verify signatures that nobody made.
    #[error("an Ed25519 public key of small order, which verifies what nobody signed")]
    Weak,
}

impl KeyError {
    /// Says whose side the failure is on: the user's own file.
    pub fn blame(self) -> Blame {
        Blame::Source
    }
}

impl PrivateKey {
    /// Reads a PEM file's text. Errors on any other kind of key.
    pub fn parse(pem: &str) -> Result<Self, KeyError> {
        let key = SigningKey::from_pkcs8_pem(pem).map_err(|_| KeyError::Private)?;
        Ok(Self(key))
    }

    /// The key that verifies what this one signs.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key())
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.0.sign(message).to_bytes()
    }
}

impl PublicKey {
    /// Reads a PEM file's text. Errors on any other kind of key, and on one of small order.
    pub fn parse(pem: &str) -> Result<Self, KeyError> {
        let key = VerifyingKey::from_public_key_pem(pem).map_err(|_| KeyError::Public)?;
        if key.is_weak() {
            return Err(KeyError::Weak);
        }
        Ok(Self(key))
    }

    /// The PEM file's text.
    pub fn render(&self) -> String {
        let pem = self.0.to_public_key_pem(LineEnding::LF);
        pem.expect("because 32 bytes always fit in a PEM file")
    }

    /// The key's id: SHA-256 of its 32 bytes.
    pub fn id(&self) -> Digest {
        Digest::of(self.0.as_bytes())
    }

    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8; 64]) -> bool {
        let signature = Signature::from_bytes(signature);
        self.0.verify_strict(message, &signature).is_ok()
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey(of {})", self.public().id())
    }
}
