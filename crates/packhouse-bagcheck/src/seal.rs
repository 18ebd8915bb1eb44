//! Seals and their envelopes: `docs/format/bag.md`, sections 4 and 5.

use crate::analysis::Stored;
use crate::json::{Json, Map};
use crate::report::Report;
use crate::shape::{Record, file, record, sha256};
use crate::tree::Tree;
use ed25519_dalek::pkcs8::DecodePublicKey;
use ed25519_dalek::{Signature, VerifyingKey};
use std::fmt;

/// A public key that envelopes are verified with.
#[derive(Clone, Debug)]
pub struct PublicKey(VerifyingKey);

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

    fn id(&self) -> String {
        sha256(self.0.as_bytes())
    }
}

/// What a seal is held against.
pub(crate) struct Sealed<'a> {
    /// Its number.
    pub(crate) number: u64,
    /// Digest of the packet.
    pub(crate) packet: &'a str,
    /// Digest of the bag.
    pub(crate) bag: &'a str,
    /// Its analysis, where that could be read.
    pub(crate) analysis: Option<&'a Stored>,
    /// The lab, where the bag says it.
    pub(crate) lab: Option<&'a str>,
}

/// What the ledger is asked about a seal.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    /// The ledger's head before the entry that cites it.
    pub(crate) head: String,
    /// The lab.
    pub(crate) lab: String,
}

const STATEMENT: [&str; 4] = ["_type", "subject", "predicateType", "predicate"];
const PREDICATE: [&str; 6] = [
    "packet",
    "number",
    "verdict",
    "ledger_head",
    "analyzer",
    "lab",
];
const SEAL_BYTES_MAX: usize = 65_536;
const ENVELOPE_BYTES_MAX: usize = 131_072;

/// Judges one seal.
pub(crate) fn judge(report: &mut Report, tree: &Tree, sealed: &Sealed<'_>) -> Option<Said> {
    let path = format!("seal-{}.json", sealed.number);
    let value = record(report, tree, &path)?;
    let mut record = Record::new(report, path.as_str());
    if file(tree, &path).is_some_and(|bytes| bytes.len() > SEAL_BYTES_MAX) {
        record.find("record.type", "more than 65,536 bytes");
    }
    let map = record.fields(&value, "", &STATEMENT, &[])?;
    for (name, is) in [
        ("_type", "https://in-toto.io/Statement/v1"),
        ("predicateType", "urn:packhouse:seal:v1"),
    ] {
        if record.text(map, name)? != is {
            record.find("seal.type", format!("`{name}` is not {is}"));
        }
    }
    let own = record.fields(map.get("predicate")?, "predicate", &PREDICATE, &[])?;
    let packet = record.digest(own, "packet")?;
    subjects(&mut record, map, tree, sealed, &packet)?;
    let mut refuse = |code: &'static str, words: String| record.report.find(code, &path, words);
    if packet != sealed.packet {
        refuse("seal.head", "is of another packet".to_owned());
        refuse("seal.subject", "is of another packet".to_owned());
    }
    let number = Record::new(report, path.as_str()).within(own, "number", 1, i64::MAX as u64)?;
    let mut record = Record::new(report, path.as_str());
    if number != sealed.number {
        record.find("seal.head", format!("is number {number}"));
        record.find("seal.subject", format!("is number {number}"));
    }
    let verdict = record.text(own, "verdict")?;
    let analysis = sealed.analysis;
    let is_verdict = ["pass", "fail", "abort"].contains(&verdict.as_str());
    if !is_verdict || analysis.is_some_and(|analysis| analysis.verdict != verdict) {
        record.find(
            "seal.verdict",
            format!("says {verdict:?}, the analysis another"),
        );
    }
    let analyzer = record.digest(own, "analyzer")?;
    if analysis.is_some_and(|analysis| analysis.analyzer != analyzer) {
        record.find("seal.head", "is of another analyzer");
    }
    let said = Said {
        head: record.digest(own, "ledger_head")?,
        lab: record.digest(own, "lab")?,
    };
    if sealed.lab.is_some_and(|lab| lab != said.lab) {
        record.find("seal.head", "is of another lab");
    }
    Some(said)
}

fn subjects(
    record: &mut Record<'_>,
    map: &Map,
    tree: &Tree,
    sealed: &Sealed<'_>,
    packet: &str,
) -> Option<()> {
    let analysis = format!("analysis-{}/analysis.json", sealed.number);
    let bytes = file(tree, &analysis).map(|bytes| sha256(bytes));
    let expected = [
        ("packet.json", Some(packet.to_owned())),
        ("bag/tagmanifest-sha256.txt", Some(sealed.bag.to_owned())),
        (analysis.as_str(), bytes),
    ];
    let subjects = record.list(map, "subject")?;
    if subjects.len() != expected.len() {
        record.find(
            "seal.subject",
            format!("{} subjects, not 3", subjects.len()),
        );
    }
    for (subject, (name, digest)) in subjects.iter().zip(expected) {
        let own = record.fields(subject, "subject", &["digest", "name"], &[])?;
        let said = record.text(own, "name")?;
        let digests = record.fields(own.get("digest")?, "digest", &["sha256"], &[])?;
        let said_digest = record.digest(digests, "sha256")?;
        if said != name {
            record.find(
                "seal.subject",
                format!("names {said:?} where {name} must be"),
            );
        } else if digest.is_none_or(|digest| digest != said_digest) {
            record.find(
                "seal.subject",
                format!("{name} has not the digest that lies there"),
            );
        }
    }
    Some(())
}

/// Judges the envelope of a seal. With a key, it must be there and signed by that key.
pub(crate) fn envelope(report: &mut Report, tree: &Tree, number: u64, key: Option<&PublicKey>) {
    let path = format!("seal-{number}.dsse.json");
    if !tree.contains_key(&path) {
        if key.is_some() {
            report.find("seal.signature", &path, "no envelope, and a key was given");
        }
        return;
    }
    let judged = signature(report, tree, &path, number, key);
    match judged {
        Some(Ok(())) if key.is_none() => {
            let note = "is in form; whose signature it is, only its public key can tell";
            report.notes.push(format!("{path} {note}"));
        }
        Some(Ok(())) => report.count("signatures", 1),
        Some(Err(words)) => report.find("seal.signature", &path, words),
        None => report.find("seal.signature", &path, "not of its form"),
    }
}

fn signature(
    report: &mut Report,
    tree: &Tree,
    path: &str,
    number: u64,
    key: Option<&PublicKey>,
) -> Option<Result<(), &'static str>> {
    let value = record(report, tree, path)?;
    let mut record = Record::new(report, path);
    let map = record.fields(&value, "", &["payload", "payloadType", "signatures"], &[])?;
    let payload = record.text(map, "payload")?;
    let kind = record.text(map, "payloadType")?;
    let [Json::Object(_)] = record.list(map, "signatures")? else {
        return Some(Err("not exactly one signature"));
    };
    let item = record.list(map, "signatures")?.first()?;
    let own = record.fields(item, "signatures", &["keyid", "sig"], &[])?;
    let keyid = record.digest(own, "keyid")?;
    let signature = record.text(own, "sig")?;
    let seal = file(tree, &format!("seal-{number}.json"));
    let seal = seal.map_or(&[][..], |bytes| bytes);
    if file(tree, path).is_some_and(|bytes| bytes.len() > ENVELOPE_BYTES_MAX) {
        return Some(Err("more than 131,072 bytes"));
    }
    if kind != "application/vnd.in-toto+json" {
        return Some(Err("another payload type"));
    }
    if from_base64(&payload).as_deref() != Some(seal) {
        return Some(Err("the payload is not the seal's bytes"));
    }
    let Some(signature) = from_base64(&signature).and_then(|sig| <[u8; 64]>::try_from(sig).ok())
    else {
        return Some(Err("no signature of 64 bytes in base64"));
    };
    let Some(key) = key else {
        return Some(Ok(()));
    };
    if keyid != key.id() {
        return Some(Err("signed by another key than the one given"));
    }
    let mut signed = format!("DSSEv1 {} {kind} {} ", kind.len(), seal.len()).into_bytes();
    signed.extend(seal);
    let verified = key
        .0
        .verify_strict(&signed, &Signature::from_bytes(&signature));
    Some(verified.map_err(|_| "the signature does not hold"))
}

/// Reads base64 with padding, in its one spelling.
fn from_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let padding = text.len() - digits.len();
    if !text.len().is_multiple_of(4) || padding > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut word, mut bits) = (0u32, 0u32);
    for digit in digits.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        word = (word << 6 | u32::from(value)) & 0xffff;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(word >> bits & 0xff).ok()?);
        }
    }
    let rest = word & ((1 << bits) - 1);
    (rest == 0).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_has_one_spelling() {
        for (text, bytes) in [
            ("", &b""[..]),
            ("Zg==", b"f"),
            ("Zm8=", b"fo"),
            ("Zm9v", b"foo"),
            ("+/8=", &[0xfb, 0xff]),
        ] {
            assert_eq!(from_base64(text).as_deref(), Some(bytes), "{text}");
        }
        for text in [
            "Zg", "Zg=", "Zh==", "Zm9=", "Zm9v\n", "-_8=", "====", "Z===", "Zg==Zg==",
        ] {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }
}
