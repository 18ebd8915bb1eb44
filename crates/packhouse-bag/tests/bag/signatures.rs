//! Signatures: those of others are verified, those of ours by others, and nothing that is forged.

use crate::samples::folder;
use crate::seals::statement;
use packhouse_bag::dsse::{ENVELOPE_BYTES_MAX, Envelope, EnvelopeError, sign};
use packhouse_bag::key::{KeyError, PrivateKey, PublicKey};
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::OnceLock;

/// The first key of RFC 8032, section 7.1, as OpenSSL writes it.
const PRIVATE: &str = "-----BEGIN PRIVATE KEY-----\n\
MC4CAQAwBQYDK2VwBCIEIJ1hsZ3v/VpguoRK9JLsLMREScVpezJpGXA7rAMcrn9g\n\
-----END PRIVATE KEY-----\n";
pub(crate) const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
-----END PUBLIC KEY-----\n";
/// Its 32 public bytes.
const RAW_PUBLIC: [u8; 32] = [
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
    0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
];

fn private() -> PrivateKey {
    PrivateKey::parse(PRIVATE).expect("because it is a key")
}

fn public() -> PublicKey {
    PublicKey::parse(PUBLIC).expect("because it is a key")
}

fn seal() -> Vec<u8> {
    statement().render()
}

fn parsed(bytes: &[u8]) -> Envelope {
    Envelope::parse(bytes).expect("because it is an envelope")
}

#[test]
fn the_key_of_rfc_8032_is_read_and_signs_what_its_public_half_verifies() {
    assert_eq!(private().public(), public());
    assert_eq!(public().render(), PUBLIC);
    assert_eq!(public().id(), Digest::of(&RAW_PUBLIC));
    let words = format!("{:?}", private());
    assert_eq!(words, format!("PrivateKey(of {})", public().id()));
    let envelope = parsed(&sign(&seal(), &private()));
    assert_eq!(envelope.payload(), seal());
    assert_eq!(envelope.key_id(), public().id());
    assert_eq!(envelope.verify(&seal(), Some(&public())), Ok(()));
    assert_eq!(envelope.verify(&seal(), None), Ok(()));
    // Ed25519 draws nothing: the same bytes and key give the same envelope.
    assert_eq!(sign(&seal(), &private()), sign(&seal(), &private()));
}

fn openssl(arguments: &[&str], folder: &Path) -> Option<Output> {
    let command = Command::new("openssl")
        .args(arguments)
        .current_dir(folder)
        .output();
    let Ok(output) = command else {
        println!("NOT EXERCISED: openssl is not installed");
        return None;
    };
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    Some(output)
}

fn signed_bytes() -> Vec<u8> {
    let seal = seal();
    let head = format!("DSSEv1 28 application/vnd.in-toto+json {} ", seal.len());
    [head.as_bytes(), &seal].concat()
}

fn base64_of(value: &Value, folder: &Path) -> Option<Vec<u8>> {
    let text = value.as_str().expect("because it is a text");
    std::fs::write(folder.join("text"), text).expect("because it is ours");
    let output = openssl(&["base64", "-d", "-A", "-in", "text"], folder)?;
    Some(output.stdout)
}

#[test]
fn openssl_verifies_our_signature_over_the_bytes_of_the_format() {
    let folder = folder();
    let value: Value = serde_json::from_slice(&sign(&seal(), &private())).expect("because it is");
    let Some(payload) = base64_of(&value["payload"], folder.path()) else {
        return;
    };
    assert_eq!(payload, seal());
    let signature = base64_of(&value["signatures"][0]["sig"], folder.path());
    std::fs::write(
        folder.path().join("sig"),
        signature.expect("because openssl is there"),
    )
    .expect("because it is ours");
    std::fs::write(folder.path().join("message"), signed_bytes()).expect("because it is ours");
    std::fs::write(folder.path().join("public"), PUBLIC).expect("because it is ours");
    let arguments = [
        "pkeyutl", "-verify", "-pubin", "-inkey", "public", "-rawin", "-in", "message", "-sigfile",
        "sig",
    ];
    openssl(&arguments, folder.path()).expect("because openssl is there");
}

#[test]
fn a_key_of_openssl_is_read_and_its_signature_verified() {
    let folder = folder();
    let make = ["genpkey", "-algorithm", "ed25519", "-out", "private"];
    if openssl(&make, folder.path()).is_none() {
        return;
    }
    let halve = ["pkey", "-in", "private", "-pubout", "-out", "public"];
    openssl(&halve, folder.path()).expect("because openssl is there");
    let read = |name: &str| {
        let text = std::fs::read_to_string(folder.path().join(name));
        text.expect("because openssl wrote it")
    };
    let private = PrivateKey::parse(&read("private")).expect("because it is a key");
    let public = PublicKey::parse(&read("public")).expect("because it is a key");
    assert_eq!(private.public(), public);
    std::fs::write(folder.path().join("message"), signed_bytes()).expect("because it is ours");
    let arguments = [
        "pkeyutl", "-sign", "-inkey", "private", "-rawin", "-in", "message",
    ];
    let theirs = openssl(&arguments, folder.path()).expect("because openssl is there");
    std::fs::write(folder.path().join("sig"), &theirs.stdout).expect("because it is ours");
    let encode = ["base64", "-A", "-in", "sig"];
    let encoded = openssl(&encode, folder.path()).expect("because openssl is there");
    let encoded = String::from_utf8(encoded.stdout).expect("because it is base64");
    // The same 64 bytes as ours: the scheme draws nothing.
    let ours = sign(&seal(), &private);
    let value: Value = serde_json::from_slice(&ours).expect("because it is JSON");
    assert_eq!(value["signatures"][0]["sig"], json!(encoded));
    assert_eq!(parsed(&ours).verify(&seal(), Some(&public)), Ok(()));
    // And no other kind of key is taken for one.
    let make = ["genpkey", "-algorithm", "x25519", "-out", "other"];
    openssl(&make, folder.path()).expect("because openssl is there");
    let halve = ["pkey", "-in", "other", "-pubout", "-out", "other-public"];
    openssl(&halve, folder.path()).expect("because openssl is there");
    assert_eq!(
        PrivateKey::parse(&read("other")).err(),
        Some(KeyError::Private)
    );
    assert_eq!(
        PublicKey::parse(&read("other-public")).err(),
        Some(KeyError::Public)
    );
}

#[test]
fn what_is_no_key_is_refused_and_said_to_be_none() {
    for text in [
        "",
        "x",
        PUBLIC,
        &PRIVATE.replace("MC4C", "MC4D"),
        &PRIVATE[..60],
    ] {
        assert_eq!(
            PrivateKey::parse(text).err(),
            Some(KeyError::Private),
            "{text}"
        );
    }
    for text in ["", "x", PRIVATE, &PUBLIC[..60]] {
        assert_eq!(
            PublicKey::parse(text).err(),
            Some(KeyError::Public),
            "{text}"
        );
    }
    let words = KeyError::Private.to_string();
    assert!(words.contains("BEGIN PRIVATE KEY"), "{words}");
}

/// Bytes 0 and 1 are the point of order 1; with it a signature of zeros verifies anything.
#[test]
fn a_public_key_of_small_order_is_refused() {
    let pem = "-----BEGIN PUBLIC KEY-----\n\
               MCowBQYDK2VwAyEAAQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\
               -----END PUBLIC KEY-----\n";
    assert_eq!(PublicKey::parse(pem).err(), Some(KeyError::Weak));
}

/// The envelope with one change.
pub(crate) fn envelope(change: impl FnOnce(&mut Value)) -> Vec<u8> {
    static SIGNED: OnceLock<Vec<u8>> = OnceLock::new();
    let signed = SIGNED.get_or_init(|| sign(&seal(), &private()));
    let mut value = serde_json::from_slice(signed).expect("because it is JSON");
    change(&mut value);
    canonical::render(&value)
}

fn changed(change: impl FnOnce(&mut Value)) -> Result<Envelope, EnvelopeError> {
    Envelope::parse(&envelope(change))
}

#[test]
fn an_envelope_of_another_form_is_refused_by_what_is_wrong() {
    for (words, change) in other_forms() {
        let error = changed(change).expect_err(words);
        assert_eq!(error.to_string(), words);
        assert_eq!(error.code(), "seal.signature");
    }
    let mut bytes = sign(&seal(), &private());
    bytes.pop();
    let error = Envelope::parse(&bytes).expect_err("because it is not canonical");
    assert_eq!(error.code(), "seal.signature");
    let error = Envelope::parse(&vec![b' '; ENVELOPE_BYTES_MAX + 1]);
    let words = error.expect_err("because it is too long").to_string();
    assert_eq!(words, "signature: 131073 bytes, at most 131072 are read");
}

pub(crate) type Change = fn(&mut Value);

/// Changes of an envelope, and what is said of each.
pub(crate) fn other_forms() -> [(&'static str, Change); 14] {
    [
        ("signature: missing field payload", |value| {
            value
                .as_object_mut()
                .expect("because it is one")
                .remove("payload");
        }),
        ("signature: unknown field zz", |value| {
            value["zz"] = json!(1)
        }),
        ("signature: field payload: not a text", |value| {
            value["payload"] = json!(1)
        }),
        ("signature: payload is not base64 of it", |value| {
            value["payload"] = json!("a b=")
        }),
        (
            "signature: payloadType is text/plain, not application/vnd.in-toto+json",
            |value| value["payloadType"] = json!("text/plain"),
        ),
        ("signature: 0 signatures, not 1", |value| {
            value["signatures"] = json!([])
        }),
        ("signature: 2 signatures, not 1", |value| {
            let one = value["signatures"][0].clone();
            value["signatures"] = json!([one, one]);
        }),
        ("signature: field signatures: not a list", |value| {
            value["signatures"] = json!({})
        }),
        ("signature: field signatures[0]: not an object", |value| {
            value["signatures"][0] = json!(1);
        }),
        ("signature: unknown field signatures[0].zz", |value| {
            value["signatures"][0]["zz"] = json!(1);
        }),
        ("signature: missing field signatures[0].sig", |value| {
            value["signatures"][0]
                .as_object_mut()
                .expect("because it is one")
                .remove("sig");
        }),
        (
            "signature: field signatures[0].keyid: not 64 lower-case hex digits",
            |value| {
                value["signatures"][0]["keyid"] = json!("");
            },
        ),
        ("signature: sig is not base64 of it", |value| {
            value["signatures"][0]["sig"] = json!("AAAA");
        }),
        ("signature: sig is not base64 of it", |value| {
            let sig = value["signatures"][0]["sig"]
                .as_str()
                .expect("because it is one");
            let sig = sig.trim_end_matches('=').to_owned();
            value["signatures"][0]["sig"] = json!(sig);
        }),
    ]
}

#[test]
fn nothing_that_the_key_did_not_sign_verifies() {
    let key = public();
    let envelope = sign(&seal(), &private());
    let mut other = statement();
    other.number = 2;
    let error = parsed(&envelope).verify(&other.render(), None);
    let error = error.expect_err("because it is of another seal");
    let expected = (Digest::of(&other.render()), Digest::of(&seal()));
    assert_eq!(
        error.to_string(),
        format!(
            "signature: of {}, but the seal is {}",
            expected.1, expected.0
        )
    );
    let value: Value = serde_json::from_slice(&envelope).expect("because it is JSON");
    let text = value["signatures"][0]["sig"]
        .as_str()
        .expect("because it is a text")
        .to_owned();
    // Characters of the signature changed: another spelling, or not of this key.
    for index in (0..text.len()).step_by(9) {
        for digit in ["A", "g"] {
            let mut forged = text.clone();
            forged.replace_range(index..=index, digit);
            if forged == text {
                continue;
            }
            let error = changed(|value| value["signatures"][0]["sig"] = json!(forged))
                .and_then(|envelope| envelope.verify(&seal(), Some(&key)));
            let error = error.expect_err("because nobody signed it");
            let is_forged = matches!(error, EnvelopeError::Forged { .. });
            let is_spelling = matches!(error, EnvelopeError::Base64 { field: "sig" });
            assert!(is_forged || is_spelling, "{index} {digit}: {error}");
        }
    }
    // Under a key id that is not the key's.
    let zero = "0".repeat(64);
    let envelope = changed(|value| value["signatures"][0]["keyid"] = json!(zero));
    let envelope = envelope.expect("because it is of the form");
    let error = envelope
        .verify(&seal(), Some(&key))
        .expect_err("because it is another's");
    assert_eq!(
        error.to_string(),
        format!("signature: of key {zero}, not of {}", key.id())
    );
    assert_eq!(
        envelope.verify(&seal(), None),
        Ok(()),
        "without a key only form and payload"
    );
}

/// A signature is 64 bytes, R and S; adding the group's order L to S gives another text that a lax
/// verifier takes for the same signature.
#[test]
fn the_second_spelling_of_a_signature_is_refused() {
    const ORDER: [u8; 32] = [
        0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde,
        0x14, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x10,
    ];
    let folder = folder();
    let value: Value = serde_json::from_slice(&sign(&seal(), &private())).expect("because it is");
    let Some(mut signature) = base64_of(&value["signatures"][0]["sig"], folder.path()) else {
        return;
    };
    let mut carry = 0u16;
    for (byte, order) in signature[32..].iter_mut().zip(ORDER) {
        let sum = u16::from(*byte) + u16::from(order) + carry;
        *byte = (sum & 255) as u8;
        carry = sum >> 8;
    }
    std::fs::write(folder.path().join("sig"), &signature).expect("because it is ours");
    let encoded = openssl(&["base64", "-A", "-in", "sig"], folder.path());
    let encoded = encoded.expect("because openssl is there").stdout;
    let encoded = String::from_utf8(encoded).expect("because it is base64");
    let envelope = changed(|value| value["signatures"][0]["sig"] = json!(encoded));
    let envelope = envelope.expect("because it is of the form");
    let error = envelope.verify(&seal(), Some(&public()));
    assert!(
        matches!(error, Err(EnvelopeError::Forged { .. })),
        "{error:?}"
    );
}
