//! Bags, seals and signatures, judged a second time: bags by the verifier that was written apart,
//! seals and envelopes by whether what is found in them makes the same bytes again.
//!
//! An input's first byte says what the rest is:
//! - `T`, a tree: paths and contents by turns, `FF` between; the byte behind the `T` says whether
//!   lists (bit 0) and the size of the payload (bit 1) are made to fit first;
//! - `S`, a seal;
//! - `E`, an envelope.

use packhouse_bag::dsse::Envelope;
use packhouse_bag::seal::{Statement, Verdict};
use packhouse_bag::{Contents, check};
use packhouse_bagcheck::{Entry, Tree, check_bag};
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A judge that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Takes a payload of any size for the one that the info has.
    Size,
}

type Judged = Result<(), String>;

/// Gives an input to both judges. Errors, in words, when they disagree.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Judged {
    match input {
        [b'T', fit, rest @ ..] => tree(rest, *fit, mutant),
        [b'S', rest @ ..] => {
            let read = Statement::parse(rest).is_ok();
            agree("seal", read, statement(rest).is_some())
        }
        [b'E', rest @ ..] => envelope(rest),
        _ => Ok(()),
    }
}

fn agree(what: &str, ours: bool, theirs: bool) -> Judged {
    if ours == theirs {
        return Ok(());
    }
    Err(format!("{what}: {ours} and {theirs}"))
}

fn tree(input: &[u8], fit: u8, mutant: Option<Mutant>) -> Judged {
    let mut contents = Contents::default();
    let mut parts = input.split(|byte| *byte == 0xff);
    while let (Some(path), Some(bytes)) = (parts.next(), parts.next()) {
        if let Ok(path) = std::str::from_utf8(path) {
            contents.insert(path, bytes);
        }
    }
    if fit & 2 != 0 {
        fit_size(&mut contents);
    }
    if fit & 1 != 0 {
        fit_list(&mut contents, "manifest-sha256.txt");
        fit_list(&mut contents, "tagmanifest-sha256.txt");
    }
    let ours: BTreeSet<&str> = match check(&contents) {
        Ok(()) => BTreeSet::new(),
        Err(faults) => faults.iter().map(|fault| fault.code()).collect(),
    };
    let files = contents.files().iter();
    let files = files.map(|(path, bytes)| (path.clone(), Entry::file(bytes.clone())));
    let report = check_bag(&files.collect::<Tree>());
    let theirs = report.findings.iter().map(|finding| finding.code);
    let theirs: BTreeSet<&str> = theirs
        .filter(|code| code.starts_with("bag."))
        .filter(|code| mutant != Some(Mutant::Size) || *code != "bag.oxum")
        .collect();
    if ours.is_empty() != theirs.is_empty() || (ours.len() == 1 && !theirs.is_superset(&ours)) {
        return Err(format!("bag: {ours:?} and {theirs:?}"));
    }
    Ok(())
}

/// Puts the digest that a file has where a list has 64 bytes and two blanks before its path.
fn fit_list(contents: &mut Contents, name: &str) {
    let Some(list) = contents.get(name).map(<[u8]>::to_vec) else {
        return;
    };
    let mut fitted = Vec::new();
    for line in list.split_inclusive(|byte| *byte == b'\n') {
        let path = line
            .get(66..)
            .and_then(|path| std::str::from_utf8(path).ok());
        let path = path.map(|path| path.trim_end_matches('\n'));
        match path.and_then(|path| contents.get(path)) {
            Some(bytes) => {
                fitted.extend(Digest::of(bytes).to_string().as_bytes());
                fitted.extend(&line[64..]);
            }
            None => fitted.extend(line),
        }
    }
    contents.insert(name, fitted);
}

/// Puts the payload's size where the info has it.
fn fit_size(contents: &mut Contents) {
    let payload = contents.payload();
    let bytes: usize = payload.files().values().map(|bytes| bytes.len()).sum();
    let size = format!("{bytes}.{}\n", payload.files().len());
    let label = b"Payload-Oxum: ";
    let Some(info) = contents.get("bag-info.txt") else {
        return;
    };
    let found = info.windows(label.len()).position(|window| window == label);
    if let Some(at) = found {
        let fitted = [&info[..at + label.len()], size.as_bytes()].concat();
        contents.insert("bag-info.txt", fitted);
    }
}

/// The statement that a seal is of, if its rendering is these bytes.
fn statement(bytes: &[u8]) -> Option<Statement> {
    if bytes.len() > packhouse_bag::seal::SEAL_BYTES_MAX {
        return None;
    }
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let digest = |place: &str| Digest::parse(value.pointer(place)?.as_str()?).ok();
    let verdicts = [Verdict::Pass, Verdict::Fail, Verdict::Abort];
    let word = value.pointer("/predicate/verdict")?.as_str()?;
    let statement = Statement {
        packet: digest("/predicate/packet")?,
        bag: digest("/subject/1/digest/sha256")?,
        analysis: digest("/subject/2/digest/sha256")?,
        number: value
            .pointer("/predicate/number")?
            .as_u64()
            .filter(|number| (1..1 << 63).contains(number))?,
        verdict: verdicts
            .into_iter()
            .find(|verdict| verdict.to_string() == word)?,
        ledger_head: digest("/predicate/ledger_head")?,
        analyzer: digest("/predicate/analyzer")?,
        lab: digest("/predicate/lab")?,
    };
    (statement.render() == bytes).then_some(statement)
}

fn envelope(bytes: &[u8]) -> Judged {
    let read = Envelope::parse(bytes);
    let again = written_again(bytes);
    agree("envelope", read.is_ok(), again.is_some())?;
    let (Ok(read), Some(payload)) = (read, again) else {
        return Ok(());
    };
    if read.payload() != payload || read.verify(&payload, None).is_err() {
        return Err("envelope: another payload".to_owned());
    }
    Ok(())
}

/// The payload of an envelope, if what is found in it makes these bytes again.
fn written_again(bytes: &[u8]) -> Option<Vec<u8>> {
    if bytes.len() > packhouse_bag::dsse::ENVELOPE_BYTES_MAX {
        return None;
    }
    let value: Value = serde_json::from_slice(bytes).ok()?;
    let text = |place: &str| value.pointer(place)?.as_str();
    let (payload, signature) = (text("/payload")?, text("/signatures/0/sig")?);
    let again = canonical::render(&json!({
        "payload": payload,
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{
            "keyid": Digest::parse(text("/signatures/0/keyid")?).ok()?.to_string(),
            "sig": signature,
        }],
    }));
    if again != bytes || base64(signature)?.len() != 64 {
        return None;
    }
    base64(payload)
}

/// Base64 four characters at a time, by what RFC 4648 says of each group.
fn base64(text: &str) -> Option<Vec<u8>> {
    let value = |byte: u8| match byte {
        b'A'..=b'Z' => Some(u32::from(byte - b'A')),
        b'a'..=b'z' => Some(u32::from(byte - b'a') + 26),
        b'0'..=b'9' => Some(u32::from(byte - b'0') + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let groups = text.as_bytes().chunks(4);
    let last = groups.len().saturating_sub(1);
    let mut bytes = Vec::new();
    for (index, group) in groups.enumerate() {
        let [a, b, c, d] = *<&[u8; 4]>::try_from(group).ok()?;
        let (a, b) = (value(a)?, value(b)?);
        match (c, d) {
            (b'=', b'=') if index == last && b & 15 == 0 => bytes.push((a << 2 | b >> 4) as u8),
            (c, b'=') if index == last => {
                let c = value(c).filter(|c| c & 3 == 0)?;
                bytes.extend([(a << 2 | b >> 4) as u8, (b << 4 | c >> 2) as u8]);
            }
            (c, d) => {
                let (c, d) = (value(c)?, value(d)?);
                bytes.extend([
                    (a << 2 | b >> 4) as u8,
                    (b << 4 | c >> 2) as u8,
                    (c << 6 | d) as u8,
                ]);
            }
        }
    }
    Some(bytes)
}
