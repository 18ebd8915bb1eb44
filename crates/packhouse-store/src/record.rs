//! The pack record: what binds a pack's identity to the object that holds its payload.
//!
//! Invariants:
//! - the same key has the same bytes: no date, path, host or counter is in a record;
//! - a record is only handed out after its key was derived again from its identity and equals the
//!   key it is filed under.
//!
//! Never: a record without its object's length, a default for a field. Format:
//! `docs/format/store.md` (the file) and `docs/format/keys.md` (the key and canonical JSON).

use crate::fields::{FieldError, Fields};
use crate::scan::Scan;
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::{Fingerprint, ObjectDigest, PackKey, TensorDigest};
use packhouse_base::ggml_type::{GgmlType, TypeError};
use packhouse_base::identity::{PackIdentity, canonical_dims};
use serde_json::{Value, json};

/// The schema of a pack record; also the domain tag of a pack key.
pub const PACK_SCHEMA: &str = "packhouse/pack/1";

/// A pack: an identity, the object that holds its payload, and how to sample it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackRecord {
    /// What determines the payload's bytes.
    pub identity: PackIdentity,
    /// The object that holds the payload.
    pub object: ObjectDigest,
    /// The payload's length in bytes.
    pub length: u64,
    /// How the payload divides into groups that can be packed alone.
    pub sample: SampleGeometry,
}

/// How a payload divides into sample groups: `row_count` rows of `row_bytes` source bytes, of which
/// `unit_rows` consecutive ones are the smallest group that can be packed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleGeometry {
    /// Rows in the smallest group.
    pub unit_rows: u64,
    /// Bytes of one row of the source.
    pub row_bytes: u64,
    /// Rows of the whole tensor.
    pub row_count: u64,
}

/// Why bytes are not the pack record wanted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Not a record of this schema.
    #[error("pack {key}: {source}")]
    Form {
        /// The key the record is filed under.
        key: PackKey,
        /// What is wrong with the bytes.
        source: FieldError,
    },
    /// The identity hashes to another key.
    #[error("pack {key}: the identity in the record has key {actual}")]
    Key {
        /// The key the record is filed under.
        key: PackKey,
        /// The key derived from the record's identity.
        actual: PackKey,
    },
    /// The dims are not in canonical form.
    #[error("pack {key}: dims {actual:?} are not canonical, expected {expected:?}")]
    Dims {
        /// The key the record is filed under.
        key: PackKey,
        /// The canonical form of these dims.
        expected: Vec<u64>,
        /// The dims in the record.
        actual: Vec<u64>,
    },
    /// The type id is unknown or was removed.
    #[error("pack {key}: {source}")]
    Type {
        /// The key the record is filed under.
        key: PackKey,
        /// Which id, and why not.
        source: TypeError,
    },
    /// The sample geometry can't be that of any payload.
    #[error(
        "pack {key}: no sample geometry: {} rows of {} bytes in groups of {}",
        sample.row_count, sample.row_bytes, sample.unit_rows
    )]
    Sample {
        /// The key the record is filed under.
        key: PackKey,
        /// The geometry in the record.
        sample: SampleGeometry,
    },
}

impl PackRecord {
    /// The key under which the record is filed.
    pub fn key(&self) -> PackKey {
        self.identity.key()
    }

    /// Renders the record as canonical JSON.
    pub fn render(&self) -> Vec<u8> {
        let identity = &self.identity;
        let parameters: serde_json::Map<String, Value> = identity
            .parameters
            .iter()
            .map(|(name, value)| (name.clone(), json!(value)))
            .collect();
        canonical::render(&json!({
            "schema": PACK_SCHEMA,
            "layout": identity.layout,
            "layout_version": identity.layout_version,
            "parameters": parameters,
            "fingerprint": identity.fingerprint.to_string(),
            "type_id": identity.type_id,
            "dims": identity.dims,
            "source": identity.source.to_string(),
            "object": self.object.to_string(),
            "length": self.length,
            "sample": {
                "unit_rows": self.sample.unit_rows,
                "row_bytes": self.sample.row_bytes,
                "row_count": self.sample.row_count,
            },
        }))
    }

    /// Parses the record filed under `key`. Errors on any byte that `render` would not have written
    /// for that key: another schema, unknown or absent fields, wrong types, dims that are not
    /// canonical, an unknown type id, an impossible geometry, an identity with another key.
    pub fn parse(key: PackKey, bytes: &[u8]) -> Result<Self, RecordError> {
        let record = match scan(bytes) {
            Some(record) => record,
            None => read_fields(bytes).map_err(|source| RecordError::Form { key, source })?,
        };
        let expected = canonical_dims(&record.identity.dims);
        if record.identity.dims != expected {
            return Err(RecordError::Dims {
                key,
                expected,
                actual: record.identity.dims,
            });
        }
        GgmlType::from_id(record.identity.type_id)
            .map_err(|source| RecordError::Type { key, source })?;
        if !record.sample.is_possible() {
            return Err(RecordError::Sample {
                key,
                sample: record.sample,
            });
        }
        let actual = record.key();
        if actual != key {
            return Err(RecordError::Key { key, actual });
        }
        Ok(record)
    }
}

impl SampleGeometry {
    fn is_possible(&self) -> bool {
        let total = self.row_bytes.checked_mul(self.row_count);
        self.unit_rows >= 1 && self.unit_rows <= self.row_count.max(1) && total.is_some()
    }
}

impl RecordError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Form { .. }
            | Self::Key { .. }
            | Self::Dims { .. }
            | Self::Type { .. }
            | Self::Sample { .. } => Blame::Store,
        }
    }
}

/// Reads a plain record; `None` on anything that the strict reader should judge.
fn scan(bytes: &[u8]) -> Option<PackRecord> {
    let mut scan = Scan::new(bytes)?;
    scan.literal("{\"dims\":[")?;
    let dims = scan.list("]", Scan::integer)?;
    scan.literal(",\"fingerprint\":\"")?;
    let fingerprint = Fingerprint(scan.digest()?);
    scan.literal(",\"layout\":\"")?;
    let layout = scan.text()?.to_owned();
    scan.literal(",\"layout_version\":")?;
    let layout_version = scan.integer()?;
    scan.literal(",\"length\":")?;
    let length = scan.integer()?;
    scan.literal(",\"object\":\"")?;
    let object = ObjectDigest(scan.digest()?);
    scan.literal(",\"parameters\":{")?;
    let parameters = scan.list("}", |scan| {
        scan.literal("\"")?;
        let name = scan.text()?.to_owned();
        scan.literal(":")?;
        Some((name, scan.integer()?))
    })?;
    scan.literal(",\"sample\":{\"row_bytes\":")?;
    let row_bytes = scan.integer()?;
    scan.literal(",\"row_count\":")?;
    let row_count = scan.integer()?;
    scan.literal(",\"unit_rows\":")?;
    let unit_rows = scan.integer()?;
    scan.literal("},\"schema\":\"packhouse/pack/1\",\"source\":\"")?;
    let source = TensorDigest(scan.digest()?);
    scan.literal(",\"type_id\":")?;
    let type_id = u32::try_from(scan.integer()?).ok()?;
    scan.literal("}")?;
    scan.end()?;
    let is_sorted = parameters.windows(2).all(|pair| pair[0].0 < pair[1].0);
    is_sorted.then(|| PackRecord {
        identity: PackIdentity {
            layout,
            layout_version,
            parameters: parameters.into_iter().collect(),
            fingerprint,
            type_id,
            dims,
            source,
        },
        object,
        length,
        sample: SampleGeometry {
            unit_rows,
            row_bytes,
            row_count,
        },
    })
}

fn read_fields(bytes: &[u8]) -> Result<PackRecord, FieldError> {
    let mut fields = Fields::parse(bytes, PACK_SCHEMA)?;
    let identity = PackIdentity {
        layout: fields.text("layout")?,
        layout_version: fields.integer("layout_version")?,
        parameters: fields
            .object("parameters")?
            .rest_as_integers()?
            .into_iter()
            .collect(),
        fingerprint: Fingerprint(fields.digest("fingerprint")?),
        type_id: fields.integer32("type_id")?,
        dims: fields.integers("dims")?,
        source: TensorDigest(fields.digest("source")?),
    };
    let object = ObjectDigest(fields.digest("object")?);
    let length = fields.integer("length")?;
    let mut inner = fields.object("sample")?;
    let sample = SampleGeometry {
        unit_rows: inner.integer("unit_rows")?,
        row_bytes: inner.integer("row_bytes")?,
        row_count: inner.integer("row_count")?,
    };
    inner.finish()?;
    fields.finish()?;
    Ok(PackRecord {
        identity,
        object,
        length,
        sample,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_base::digest::Digest;
    use std::collections::BTreeMap;

    fn record() -> PackRecord {
        PackRecord {
            identity: PackIdentity {
                layout: "ggml-cpu-repack".into(),
                layout_version: 1,
                parameters: BTreeMap::from([("k".into(), 8)]),
                fingerprint: Fingerprint(Digest::of(b"f")),
                type_id: 2,
                dims: vec![64, 8],
                source: TensorDigest(Digest::of(b"s")),
            },
            object: ObjectDigest(Digest::of(b"payload")),
            length: 288,
            sample: SampleGeometry {
                unit_rows: 8,
                row_bytes: 36,
                row_count: 8,
            },
        }
    }

    /// Parses the rendered record after one textual edit, which must change something.
    fn parse_edited(from: &str, to: &str) -> Result<PackRecord, RecordError> {
        let text = String::from_utf8(record().render()).expect("because JSON is UTF-8");
        let edited = text.replacen(from, to, 1);
        assert_ne!(text, edited, "{from}");
        PackRecord::parse(record().key(), edited.as_bytes())
    }

    #[test]
    fn a_record_round_trips_and_its_bytes_are_fixed() {
        let record = record();
        let bytes = record.render();
        assert_eq!(PackRecord::parse(record.key(), &bytes), Ok(record.clone()));
        assert_eq!(record.render(), bytes);
        assert!(bytes.starts_with(br#"{"dims":[64,8],"fingerprint":""#));
    }

    /// Whatever one edit of the bytes makes of a record, the scan reads it as the strict reader
    /// does or leaves it to that.
    #[test]
    fn a_scan_never_reads_what_the_strict_reader_does_not() {
        let mut record = record();
        record.identity.parameters.insert("n tile".into(), 16);
        let bytes = record.render();
        assert_eq!(scan(&bytes), Some(record.clone()));
        let mut edited_count = 0;
        let mut scanned_count = 0;
        let mut agrees = |edited: &[u8]| {
            edited_count += 1;
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
        assert!(scanned_count > 100 && scanned_count < edited_count / 2);
        // Names that the encoding sorts otherwise, and twice the same.
        let text = String::from_utf8(bytes).expect("because JSON is UTF-8");
        for other in ["\"n tile\":16,\"k\":8", "\"k\":8,\"k\":8"] {
            let edited = text.replace("\"k\":8,\"n tile\":16", other);
            assert_ne!(edited, text);
            assert_eq!(scan(edited.as_bytes()), None);
        }
    }

    #[test]
    fn each_edit_is_refused_for_its_own_reason() {
        let wrong = [
            ("\"dims\":[64,8]", "\"dims\":[64,8,1]", "not canonical"),
            ("\"type_id\":2", "\"type_id\":4", "was removed"),
            ("\"type_id\":2", "\"type_id\":99", "is unknown"),
            ("\"type_id\":2", "\"type_id\":8", "has key"),
            (
                "\"type_id\":2",
                "\"type_id\":4294967298",
                "type_id: expected a 32-bit",
            ),
            ("\"unit_rows\":8", "\"unit_rows\":0", "no sample geometry"),
            ("\"unit_rows\":8", "\"unit_rows\":9", "no sample geometry"),
            ("\"length\":288", "\"length\":\"288\"", "length: expected"),
            ("\"length\":288", "\"length\":288.0", "not canonical: byte"),
            ("\"length\":288", "\"length\": 288", "not canonical: byte"),
            (
                "\"length\":288",
                "\"length\":288,\"lent\":1",
                "lent: unknown field, value 1",
            ),
            ("\"length\":288,", "", "length: absent"),
            ("pack/1", "pack/2", "schema: expected"),
            ("\"k\":8", "\"k\":9", "has key"),
            ("\"k\":8", "\"k\":-8", "parameters.k: expected"),
        ];
        for (from, to, reason) in wrong {
            let error = parse_edited(from, to).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}");
            assert_eq!(error.blame(), Blame::Store);
        }
    }
}
