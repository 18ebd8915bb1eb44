//! Signatures of seals: DSSE envelopes (protocol 1.0.2) with one Ed25519 signature.
//!
//! Specified in `docs/format/bag.md`, section 5. The signature covers type and exact bytes, so the
//! seal is never written again to be verified.

use crate::base64;
pub use crate::fields::RecordFault;
use crate::fields::{Fields, cut, parse};
use crate::key::{PrivateKey, PublicKey};
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use serde_json::json;

/// An envelope that was read and whose signature nobody verified yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    payload: Vec<u8>,
    key_id: Digest,
    signature: [u8; 64],
}

/// Why an envelope proves nothing. All have the reason code `seal.signature`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Not a record of this form.
    #[error("signature: {0}")]
    Record(#[from] RecordFault),
    /// Bytes of another type are signed.
    #[error("signature: payloadType is {}, not {PAYLOAD_TYPE}", Shown(actual))]
    PayloadType {
        /// What stands there.
        actual: String,
    },
    /// Not exactly one signature.
    #[error("signature: {count} signatures, not 1")]
    Count {
        /// How many there are.
        count: usize,
    },
    /// Not base64 in its one spelling, or not of the right length.
    #[error("signature: {field} is not base64 of it")]
    Base64 {
        /// Which field.
        field: &'static str,
    },
    /// The signed bytes are not those of the seal.
    #[error("signature: of {actual}, but the seal is {expected}")]
    OtherPayload {
        /// Digest of the seal.
        expected: Digest,
        /// Digest of what is signed.
        actual: Digest,
    },
    /// Signed by another key.
    #[error("signature: of key {actual}, not of {expected}")]
    OtherKey {
        /// Id of the key that was given.
        expected: Digest,
        /// Id in the envelope.
        actual: Digest,
    },
    /// The signature is not of this key and these bytes.
    #[error("signature: not of key {key_id} over these bytes")]
    Forged {
        /// Id of the key.
        key_id: Digest,
    },
}

impl EnvelopeError {
    /// The reason code, as in `docs/format/bag.md`.
    pub fn code(&self) -> &'static str {
        "seal.signature"
    }

    /// Says whose side the fault is on: always that of the bytes that were kept.
    pub fn blame(&self) -> Blame {
        Blame::Store
    }
}

/// Signs a seal's bytes; returns the bytes of `seal-<n>.dsse.json`.
pub fn sign(seal: &[u8], key: &PrivateKey) -> Vec<u8> {
    let signature = key.sign(&signed_bytes(seal));
    canonical::render(&json!({
        "payload": base64::encode(seal),
        "payloadType": PAYLOAD_TYPE,
        "signatures": [{
            "keyid": key.public().id().to_string(),
            "sig": base64::encode(&signature),
        }],
    }))
}

impl Envelope {
    /// Parses an envelope. Errors on anything that `sign` would not have written.
    pub fn parse(bytes: &[u8]) -> Result<Self, EnvelopeError> {
        let value = parse(bytes, ENVELOPE_BYTES_MAX)?;
        let record = Fields::new(&value, "", &["payload", "payloadType", "signatures"])?;
        let actual = record.text("payloadType")?;
        if actual != PAYLOAD_TYPE {
            return Err(EnvelopeError::PayloadType {
                actual: cut(actual),
            });
        }
        let payload = base64::decode(record.text("payload")?);
        let payload = payload.ok_or(EnvelopeError::Base64 { field: "payload" })?;
        let [signature] = record.list("signatures")? else {
            let count = record.list("signatures")?.len();
            return Err(EnvelopeError::Count { count });
        };
        let signature = Fields::new(signature, "signatures[0]", &["keyid", "sig"])?;
        let key_id = signature.digest("keyid")?;
        let signature = base64::decode(signature.text("sig")?);
        let signature = signature.and_then(|bytes| <[u8; 64]>::try_from(bytes).ok());
        Ok(Self {
            payload,
            key_id,
            signature: signature.ok_or(EnvelopeError::Base64 { field: "sig" })?,
        })
    }

    /// The bytes that it says were signed.
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// Id of the key that it says signed them.
    pub fn key_id(&self) -> Digest {
        self.key_id
    }

    /// Verifies that a key signed a seal's exact bytes; without a key, only that the envelope is
    /// about them.
    pub fn verify(&self, seal: &[u8], key: Option<&PublicKey>) -> Result<(), EnvelopeError> {
        if self.payload != seal {
            return Err(EnvelopeError::OtherPayload {
                expected: Digest::of(seal),
                actual: Digest::of(&self.payload),
            });
        }
        let Some(key) = key else { return Ok(()) };
        if key.id() != self.key_id {
            return Err(EnvelopeError::OtherKey {
                expected: key.id(),
                actual: self.key_id,
            });
        }
        if !key.verifies(&signed_bytes(&self.payload), &self.signature) {
            let key_id = self.key_id;
            return Err(EnvelopeError::Forged { key_id });
        }
        Ok(())
    }
}

/// The pre-authentication encoding of DSSE: type and bytes, each behind its length.
fn signed_bytes(payload: &[u8]) -> Vec<u8> {
    let (type_bytes, payload_bytes) = (PAYLOAD_TYPE.len(), payload.len());
    let head = format!("DSSEv1 {type_bytes} {PAYLOAD_TYPE} {payload_bytes} ");
    [head.as_bytes(), payload].concat()
}

/// The longest envelope that is read, in bytes.
pub const ENVELOPE_BYTES_MAX: usize = 131_072;

const PAYLOAD_TYPE: &str = "application/vnd.in-toto+json";
