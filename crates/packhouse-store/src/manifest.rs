//! The manifest of a set and the runtime index made from it: pure bytes in, values out.
//!
//! Invariants:
//! - entries are ordered by slot and no slot is filled twice;
//! - the bytes depend on the content alone: no date, path or counter;
//! - a manifest is only handed out when its set key derives again from it;
//! - the runtime index is a function of the manifest, so it is proved by rendering it again.
//!
//! Formats: `docs/format/store.md` (files) and `docs/format/keys.md` (the set key).

use crate::fields::{FieldError, Fields, cut};
use crate::percent;
use crate::scan::Scan;
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::{Digest, DigestError, ObjectDigest, PackKey, SetKey};
use packhouse_base::identity::{SetEntry, set_key};
use serde_json::{Value, json};

/// The schema of a set's manifest; also the domain tag of a set key.
pub const SET_SCHEMA: &str = "packhouse/set/1";

/// The first line of a runtime index.
pub const INDEX_HEAD: &str = "packhouse-index-1";

/// What a set is: a plan and the packs that fill its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetManifest {
    plan: String,
    plan_digest: Digest,
    entries: Vec<ManifestEntry>,
}

/// One filled slot of a set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestEntry {
    /// The plan's fixed integer for the tensor.
    pub slot: u64,
    /// Tensor name in its container.
    pub tensor: String,
    /// The pack that fills the slot.
    pub pack: PackKey,
    /// The object that holds the payload.
    pub object: ObjectDigest,
    /// The payload's length in bytes.
    pub length: u64,
}

/// Why values or bytes are no manifest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Not a manifest of this schema.
    #[error("manifest: {0}")]
    Form(#[from] FieldError),
    /// The content hashes to another set key.
    #[error("manifest: filed under set {expected}, its content has key {actual}")]
    Key {
        /// The key the manifest is filed under.
        expected: SetKey,
        /// The key derived from its content.
        actual: SetKey,
    },
    /// Two entries fill one slot, or the entries are not in rising order of slot.
    #[error("manifest: slot {slot} ({tensor:?}) does not follow slot {previous}")]
    SlotOrder {
        /// The slot before.
        previous: u64,
        /// The slot that does not follow.
        slot: u64,
        /// Its tensor.
        tensor: String,
    },
    /// A tensor without a name.
    #[error("manifest: slot {slot} has an empty tensor name")]
    EmptyName {
        /// The slot.
        slot: u64,
    },
}

/// Why bytes are no runtime index.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IndexError {
    /// The first line is not the head line.
    #[error("index: expected the head line {INDEX_HEAD:?}, found {actual:?}")]
    Head {
        /// The first line, cut to 80 characters.
        actual: String,
    },
    /// Not UTF-8.
    #[error("index: byte {offset} is not UTF-8")]
    NotUtf8 {
        /// Offset of the first byte that is not.
        offset: usize,
    },
    /// The last line has no newline: the file was cut.
    #[error("index: line {line} has no newline")]
    Cut {
        /// Number of the line, from 1.
        line: usize,
    },
    /// A line with the wrong number of fields.
    #[error("index: line {line}: expected 5 fields, found {actual}")]
    FieldCount {
        /// Number of the line, from 1.
        line: usize,
        /// Fields present.
        actual: usize,
    },
    /// A field that is no decimal integer in its shortest form.
    #[error("index: line {line}: {field}: no integer: {actual:?}")]
    Integer {
        /// Number of the line, from 1.
        line: usize,
        /// Name of the field.
        field: &'static str,
        /// The text present.
        actual: String,
    },
    /// A tensor name with an escape that is not read.
    #[error("index: line {line}: tensor: not percent-encoded: {actual:?}")]
    Name {
        /// Number of the line, from 1.
        line: usize,
        /// The text present.
        actual: String,
    },
    /// A field that is no digest.
    #[error("index: line {line}: {field}: {source}")]
    Digest {
        /// Number of the line, from 1.
        line: usize,
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it.
        source: DigestError,
    },
    /// The index of another manifest: well formed, but a line differs.
    #[error("index: line {line}: expected {expected:?}, found {actual:?}")]
    Differs {
        /// Number of the first line that differs, from 1.
        line: usize,
        /// What the manifest gives; empty past the last line.
        expected: String,
        /// What the file has; empty past the last line.
        actual: String,
    },
}

impl SetManifest {
    /// Makes a manifest; the entries may come in any order. Errors on two entries for one slot and
    /// on an empty tensor name.
    pub fn new(
        plan: String,
        plan_digest: Digest,
        mut entries: Vec<ManifestEntry>,
    ) -> Result<Self, ManifestError> {
        entries.sort_by_key(|entry| entry.slot);
        Self::of_ordered(plan, plan_digest, entries)
    }

    /// Parses the manifest filed under `key`. Errors on any byte that `render` would not have
    /// written for that key.
    pub fn parse(key: SetKey, bytes: &[u8]) -> Result<Self, ManifestError> {
        let (plan, plan_digest, entries) = match scan(bytes) {
            Some(fields) => fields,
            None => read_fields(bytes)?,
        };
        let manifest = Self::of_ordered(plan, plan_digest, entries)?;
        let actual = manifest.key();
        if actual != key {
            return Err(ManifestError::Key {
                expected: key,
                actual,
            });
        }
        Ok(manifest)
    }

    /// The plan's name.
    pub fn plan(&self) -> &str {
        &self.plan
    }

    /// SHA-256 of the plan's bytes.
    pub fn plan_digest(&self) -> Digest {
        self.plan_digest
    }

    /// The filled slots, by rising slot.
    pub fn entries(&self) -> &[ManifestEntry] {
        &self.entries
    }

    /// The key under which the set is filed.
    pub fn key(&self) -> SetKey {
        let entries: Vec<SetEntry> = self
            .entries
            .iter()
            .map(|entry| SetEntry {
                slot: entry.slot,
                tensor: entry.tensor.clone(),
                pack: entry.pack,
            })
            .collect();
        set_key(&self.plan, &self.plan_digest, &entries)
    }

    /// Renders the manifest as canonical JSON.
    pub fn render(&self) -> Vec<u8> {
        let entries: Vec<Value> = self
            .entries
            .iter()
            .map(|entry| {
                json!({
                    "slot": entry.slot,
                    "tensor": entry.tensor,
                    "pack": entry.pack.to_string(),
                    "object": entry.object.to_string(),
                    "length": entry.length,
                })
            })
            .collect();
        canonical::render(&json!({
            "schema": SET_SCHEMA,
            "plan": self.plan,
            "plan_digest": self.plan_digest.to_string(),
            "entries": entries,
        }))
    }

    /// Renders the runtime index: the head line, then per slot its number, tensor, pack key, object
    /// digest and length.
    pub fn render_index(&self) -> Vec<u8> {
        let mut text = format!("{INDEX_HEAD}\n");
        for entry in &self.entries {
            text.push_str(&index_line(entry));
            text.push('\n');
        }
        text.into_bytes()
    }

    /// Verifies that bytes are this manifest's runtime index. Errors with the form's own reason, or
    /// with the first line that differs.
    pub fn verify_index(&self, bytes: &[u8]) -> Result<(), IndexError> {
        let expected = self.render_index();
        if bytes == expected {
            return Ok(());
        }
        parse_index(bytes)?;
        let line_of = |text: &[u8], index: usize| {
            let text = String::from_utf8_lossy(text);
            cut(text.lines().nth(index).unwrap_or_default().to_owned())
        };
        let same = expected
            .split(|byte| *byte == b'\n')
            .zip(bytes.split(|byte| *byte == b'\n'))
            .take_while(|(ours, theirs)| ours == theirs)
            .count();
        Err(IndexError::Differs {
            line: same + 1,
            expected: line_of(&expected, same),
            actual: line_of(bytes, same),
        })
    }

    fn of_ordered(
        plan: String,
        plan_digest: Digest,
        entries: Vec<ManifestEntry>,
    ) -> Result<Self, ManifestError> {
        if let Some(entry) = entries.iter().find(|entry| entry.tensor.is_empty()) {
            return Err(ManifestError::EmptyName { slot: entry.slot });
        }
        if let Some(pair) = entries.windows(2).find(|pair| pair[0].slot >= pair[1].slot) {
            return Err(ManifestError::SlotOrder {
                previous: pair[0].slot,
                slot: pair[1].slot,
                tensor: pair[1].tensor.clone(),
            });
        }
        Ok(Self {
            plan,
            plan_digest,
            entries,
        })
    }
}

/// Parses a runtime index on its own. Errors with the line and the field.
pub fn parse_index(bytes: &[u8]) -> Result<Vec<ManifestEntry>, IndexError> {
    let text = std::str::from_utf8(bytes).map_err(|error| IndexError::NotUtf8 {
        offset: error.valid_up_to(),
    })?;
    let mut lines = text.split('\n');
    let head = lines.next().unwrap_or_default();
    if head != INDEX_HEAD {
        return Err(IndexError::Head {
            actual: cut(head.to_owned()),
        });
    }
    if !text.ends_with('\n') {
        return Err(IndexError::Cut {
            line: text.split('\n').count(),
        });
    }
    let body = text[INDEX_HEAD.len() + 1..].split_terminator('\n');
    body.enumerate()
        .map(|(index, line)| parse_index_line(index + 2, line))
        .collect()
}

impl ManifestError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Form(_) | Self::Key { .. } => Blame::Store,
            Self::SlotOrder { .. } | Self::EmptyName { .. } => Blame::Caller,
        }
    }
}

impl IndexError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Head { .. }
            | Self::NotUtf8 { .. }
            | Self::Cut { .. }
            | Self::FieldCount { .. }
            | Self::Integer { .. }
            | Self::Name { .. }
            | Self::Digest { .. }
            | Self::Differs { .. } => Blame::Store,
        }
    }
}

/// Reads a plain manifest; `None` on anything that the strict reader should judge.
fn scan(bytes: &[u8]) -> Option<(String, Digest, Vec<ManifestEntry>)> {
    let mut scan = Scan::new(bytes)?;
    scan.literal("{\"entries\":[")?;
    let entries = scan.list("]", |scan| {
        scan.literal("{\"length\":")?;
        let length = scan.integer()?;
        scan.literal(",\"object\":\"")?;
        let object = ObjectDigest(scan.digest()?);
        scan.literal(",\"pack\":\"")?;
        let pack = PackKey(scan.digest()?);
        scan.literal(",\"slot\":")?;
        let slot = scan.integer()?;
        scan.literal(",\"tensor\":\"")?;
        let tensor = scan.text()?.to_owned();
        scan.literal("}")?;
        Some(ManifestEntry {
            slot,
            tensor,
            pack,
            object,
            length,
        })
    })?;
    scan.literal(",\"plan\":\"")?;
    let plan = scan.text()?.to_owned();
    scan.literal(",\"plan_digest\":\"")?;
    let plan_digest = scan.digest()?;
    scan.literal(",\"schema\":\"packhouse/set/1\"}")?;
    scan.end()?;
    Some((plan, plan_digest, entries))
}

fn read_fields(bytes: &[u8]) -> Result<(String, Digest, Vec<ManifestEntry>), FieldError> {
    let mut fields = Fields::parse(bytes, SET_SCHEMA)?;
    let plan = fields.text("plan")?;
    let plan_digest = fields.digest("plan_digest")?;
    let mut entries = Vec::new();
    for mut inner in fields.objects("entries")? {
        entries.push(ManifestEntry {
            slot: inner.integer("slot")?,
            tensor: inner.text("tensor")?,
            pack: PackKey(inner.digest("pack")?),
            object: ObjectDigest(inner.digest("object")?),
            length: inner.integer("length")?,
        });
        inner.finish()?;
    }
    fields.finish()?;
    Ok((plan, plan_digest, entries))
}

fn index_line(entry: &ManifestEntry) -> String {
    format!(
        "{}\t{}\t{}\t{}\t{}",
        entry.slot,
        percent::encode(&entry.tensor),
        entry.pack,
        entry.object,
        entry.length
    )
}

fn parse_index_line(line: usize, text: &str) -> Result<ManifestEntry, IndexError> {
    let fields: Vec<&str> = text.split('\t').collect();
    let [slot, tensor, pack, object, length] = fields[..] else {
        return Err(IndexError::FieldCount {
            line,
            actual: fields.len(),
        });
    };
    let integer = |field, text: &str| match text.parse::<u64>() {
        Ok(value) if value.to_string() == text => Ok(value),
        Ok(_) | Err(_) => Err(IndexError::Integer {
            line,
            field,
            actual: cut(text.to_owned()),
        }),
    };
    let digest = |field, text: &str| {
        Digest::parse(text).map_err(|source| IndexError::Digest {
            line,
            field,
            source,
        })
    };
    Ok(ManifestEntry {
        slot: integer("slot", slot)?,
        tensor: percent::decode(tensor).ok_or_else(|| IndexError::Name {
            line,
            actual: cut(tensor.to_owned()),
        })?,
        pack: PackKey(digest("pack", pack)?),
        object: ObjectDigest(digest("object", object)?),
        length: integer("length", length)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> SetManifest {
        let entry = |slot, tensor: &str| ManifestEntry {
            slot,
            tensor: tensor.into(),
            pack: PackKey(Digest::of(tensor.as_bytes())),
            object: ObjectDigest(Digest::of(b"o")),
            length: 7,
        };
        let entries = vec![entry(9, "b\tc%"), entry(0, "a")];
        SetManifest::new("ggml-cpu".into(), Digest::of(b"plan"), entries)
            .expect("because the slots differ")
    }

    #[test]
    fn a_manifest_and_its_index_round_trip() {
        let manifest = manifest();
        assert_eq!(manifest.entries()[0].slot, 0);
        let parsed = SetManifest::parse(manifest.key(), &manifest.render());
        assert_eq!(parsed, Ok(manifest.clone()));
        let index = manifest.render_index();
        assert_eq!(parse_index(&index), Ok(manifest.entries().to_vec()));
        assert_eq!(manifest.verify_index(&index), Ok(()));
    }

    /// Whatever one edit of the bytes makes of a manifest, the scan reads it as the strict reader
    /// does or leaves it to that.
    #[test]
    fn a_scan_never_reads_what_the_strict_reader_does_not() {
        let plain = |slot, tensor: &str| ManifestEntry {
            tensor: tensor.into(),
            slot,
            ..manifest().entries()[0].clone()
        };
        let entries = vec![plain(0, "a"), plain(12, "blk.1 ~")];
        let plain = SetManifest::new("p".into(), Digest::of(b"plan"), entries);
        let plain = plain.expect("because the slots differ");
        let bytes = plain.render();
        let fields = (plain.plan, plain.plan_digest, plain.entries);
        assert_eq!(scan(&bytes), Some(fields));
        // A name with an escape is the strict reader's.
        assert_eq!(scan(&manifest().render()), None);
        let mut scanned_count = 0;
        let mut agrees = |edited: &[u8]| {
            if let Some(scanned) = scan(edited) {
                scanned_count += 1;
                assert_eq!(Ok(scanned), read_fields(edited));
            }
        };
        for at in 0..bytes.len() {
            for byte in b"\"\\{}[]:,09af \n\x00\xff" {
                let mut edited = bytes.clone();
                edited[at] = *byte;
                agrees(&edited);
                edited = bytes.clone();
                edited.insert(at, *byte);
                agrees(&edited);
            }
            agrees(&[&bytes[..at], &bytes[at + 1..]].concat());
            agrees(&bytes[..at]);
        }
        assert!(scanned_count > 100);
    }

    #[test]
    fn each_edited_manifest_is_refused_for_its_own_reason() {
        let text = String::from_utf8(manifest().render()).expect("because JSON is UTF-8");
        let wrong = [
            ("\"slot\":0", "\"slot\":1", "has key"),
            (
                "\"slot\":0",
                "\"slot\":9",
                "slot 9 (\"b\\tc%\") does not follow slot 9",
            ),
            (
                "\"slot\":0",
                "\"slot\":10",
                "slot 9 (\"b\\tc%\") does not follow slot 10",
            ),
            (
                "\"tensor\":\"a\"",
                "\"tensor\":\"\"",
                "slot 0 has an empty tensor name",
            ),
            ("\"tensor\":\"a\"", "\"tensor\":\"z\"", "has key"),
            ("ggml-cpu", "ggml-gpu", "has key"),
            (
                "\"length\":7",
                "\"length\":-7",
                "entries[0].length: expected",
            ),
            (
                "\"length\":7",
                "\"length\":7,\"n\":1",
                "entries[0].n: unknown field",
            ),
            ("set/1", "set/2", "schema: expected"),
        ];
        for (from, to, reason) in wrong {
            let edited = text.replacen(from, to, 1);
            assert_ne!(text, edited, "{from}");
            let error = SetManifest::parse(manifest().key(), edited.as_bytes()).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn each_edited_index_is_refused_for_its_own_reason() {
        let text = String::from_utf8(manifest().render_index()).expect("because it is UTF-8");
        let wrong = [
            ("index-1", "index-2", "expected the head line"),
            ("\n0\t", "\n00\t", "line 2: slot: no integer: \"00\""),
            ("\n0\t", "\n+0\t", "line 2: slot: no integer"),
            ("\t7\n", "\t7\t\n", "line 2: expected 5 fields, found 6"),
            ("%09", "%41", "line 3: tensor: not percent-encoded"),
            ("\t7\n", "\t8\n", "line 2: expected"),
            ("\n9\t", "\n8\t", "line 3: expected"),
        ];
        for (from, to, reason) in wrong {
            let edited = text.replacen(from, to, 1);
            assert_ne!(text, edited, "{from}");
            let error = manifest()
                .verify_index(edited.as_bytes())
                .expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}");
        }
        let cut_short = &text.as_bytes()[..text.len() - 1];
        let error = manifest()
            .verify_index(cut_short)
            .expect_err("because it is cut");
        assert_eq!(error, IndexError::Cut { line: 3 });
        let lines: Vec<&str> = text.lines().collect();
        let missing_line = format!("{}\n{}\n", lines[0], lines[1]);
        let error = manifest().verify_index(missing_line.as_bytes());
        assert!(
            matches!(error, Err(IndexError::Differs { line: 3, .. })),
            "{error:?}"
        );
    }
}
