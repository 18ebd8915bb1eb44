//! Reading the set's records, which others wrote.
//!
//! Invariants:
//! - every field that identifies bytes is derived again or compared with what it must be;
//! - a path is never taken from a record: it must be the one that follows from the key;
//! - fields that nothing here depends on (dates, durations, counters, tool, evidence class) may be
//!   anything or absent, and so may fields that nobody documented.
//!
//! Never: one of two fields of one name, a default for a field that is read.

use super::index::INDEX_FORMAT;
use super::json::{canon, canon_sha256};
use super::keys::{TensorIdentity, payload_path, slot_of};
use super::records::{
    ForeignSet, ForeignTensor, INDEX_NAME, Revision, SET_FORMAT, SourceModel, TENSOR_FORMAT,
    layout_json,
};
use super::strict::{self, StrictError};
use super::{ARCHITECTURE, LAYOUT_VERSION, TENSOR_TYPE};
use packhouse_base::Blame;
use packhouse_base::digest::{Digest, DigestError};
use packhouse_base::ggml_type::GgmlType;
use serde_json::{Map, Value};

/// Why a record is not believed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ForeignRecordError {
    /// Not JSON.
    #[error("{file}: not JSON: {reason}")]
    NotJson {
        /// The file.
        file: String,
        /// What the parser said.
        reason: String,
    },
    /// An object with one key twice: readers differ in which one they take.
    #[error("{file}: {key:?} is there twice in an object")]
    Doubled {
        /// The file.
        file: String,
        /// The key, cut.
        key: String,
    },
    /// A field is absent.
    #[error("{field}: absent")]
    Absent {
        /// File and path of the field.
        field: String,
    },
    /// A field of the wrong type.
    #[error("{field}: expected {expected}, found {actual}")]
    WrongType {
        /// File and path of the field.
        field: String,
        /// The type wanted.
        expected: &'static str,
        /// The value present, cut.
        actual: String,
    },
    /// A text that should be a digest.
    #[error("{field}: {source}")]
    Digest {
        /// File and path of the field.
        field: String,
        /// What is wrong with it.
        source: DigestError,
    },
    /// A field with another value than the one that it must have.
    #[error("{field}: expected {expected}, found {actual}")]
    Differs {
        /// File and path of the field.
        field: String,
        /// The value that it must have.
        expected: String,
        /// The value present, cut.
        actual: String,
    },
    /// A tensor that the format has no slot for.
    #[error("{field}: {name:?} is no feed-forward matrix of the format")]
    NoSlot {
        /// File and path of the field.
        field: String,
        /// The name, cut.
        name: String,
    },
    /// Tensors out of order, or one twice.
    #[error("{field}: {name:?} does not follow {previous:?} in order of {order}")]
    Order {
        /// File and path of the field.
        field: String,
        /// What they are ordered by.
        order: &'static str,
        /// The tensor before.
        previous: String,
        /// The tensor that does not follow.
        name: String,
    },
    /// A shape that no Q4_0 matrix has.
    #[error("{field}: no Q4_0 matrix has shape {shape:?}")]
    Shape {
        /// File and path of the field.
        field: String,
        /// The shape.
        shape: [u64; 2],
    },
}

/// Parses a set's manifest: everything in it agrees with itself, and its keys derive again.
pub fn parse_manifest(bytes: &[u8]) -> Result<ForeignSet, ForeignRecordError> {
    let value = parse_json("manifest.json", bytes)?;
    let root = Node::root("manifest.json", &value)?;
    root.fixed("format", &SET_FORMAT.into())?;
    root.fixed("schema_version", &1.into())?;
    root.fixed("status", &"ready".into())?;
    root.fixed("layout", &layout_json())?;
    let source = root.object("source_model")?;
    let model = SourceModel {
        path: source.text("path")?.to_owned(),
        sha256: source.digest("sha256")?,
        size_bytes: source.integer("size_bytes")?,
        hash_validated: source.boolean("hash_validated")?,
    };
    let tensors = root
        .objects("tensors")?
        .iter()
        .map(|node| read_tensor(node, model.sha256))
        .collect::<Result<Vec<_>, _>>()?;
    let revision = match root.fields.get("runtime_index") {
        Some(_) => Revision::Three,
        None => Revision::Two,
    };
    let set = ForeignSet {
        revision,
        model,
        tensors,
    };
    ordered(&set)?;
    root.fixed("tensor_count", &set.tensors.len().into())?;
    root.fixed("payload_size_bytes", &set.payload_bytes().into())?;
    read_identity(&root, &set)?;
    if revision == Revision::Three {
        let index = set.index();
        let node = root.object("runtime_index")?;
        node.fixed("format", &INDEX_FORMAT.into())?;
        node.fixed("path", &INDEX_NAME.into())?;
        node.fixed("size_bytes", &index.len().into())?;
        node.fixed("sha256", &Digest::of(&index).to_string().into())?;
    }
    Ok(set)
}

/// Parses a tensor's own manifest, which must say what the set's manifest says of it.
pub fn parse_tensor(expected: &ForeignTensor, bytes: &[u8]) -> Result<(), ForeignRecordError> {
    let file = format!("tensors/{}.json", expected.key());
    let value = parse_json(&file, bytes)?;
    let root = Node::root(&file, &value)?;
    let tensor = read_tensor(&root, expected.identity.target_model_sha256)?;
    let differs = |field: &str, ours: String, theirs: String| {
        if ours == theirs {
            return Ok(());
        }
        Err(ForeignRecordError::Differs {
            field: format!("{file}: {field}"),
            expected: ours,
            actual: theirs,
        })
    };
    let text = |digest: Digest| digest.to_string();
    differs("key", text(expected.key()), text(tensor.key()))?;
    differs(
        "source_tensor.gguf_offset",
        expected.gguf_offset.to_string(),
        tensor.gguf_offset.to_string(),
    )?;
    differs(
        "source_tensor.sha256",
        text(expected.source_sha256),
        text(tensor.source_sha256),
    )?;
    // Both lengths follow from the shape, which the key has.
    differs(
        "payload.sha256",
        text(expected.payload_sha256),
        text(tensor.payload_sha256),
    )
}

fn parse_json(file: &str, bytes: &[u8]) -> Result<Value, ForeignRecordError> {
    strict::parse(bytes).map_err(|error| {
        let file = file.to_owned();
        match error {
            StrictError::NotJson(reason) => ForeignRecordError::NotJson { file, reason },
            StrictError::Doubled(key) => ForeignRecordError::Doubled {
                file,
                key: cut(&key),
            },
        }
    })
}

fn read_tensor(node: &Node<'_>, model_sha256: Digest) -> Result<ForeignTensor, ForeignRecordError> {
    node.fixed("format", &TENSOR_FORMAT.into())?;
    node.fixed("schema_version", &1.into())?;
    node.fixed("status", &"ready".into())?;
    let identity = node.object("identity")?;
    let name = identity.text("tensor_name")?;
    let shape = read_shape(&identity)?;
    identity.fixed("tensor_type", &TENSOR_TYPE.into())?;
    identity.fixed("pack_layout_version", &LAYOUT_VERSION.into())?;
    identity.fixed("target_architecture", &ARCHITECTURE.into())?;
    identity.fixed("target_model_sha256", &model_sha256.to_string().into())?;
    if slot_of(name).is_none() {
        return Err(ForeignRecordError::NoSlot {
            field: identity.path_of("tensor_name"),
            name: cut(name),
        });
    }
    let identity_value = &identity;
    let identity = TensorIdentity {
        target_model_sha256: model_sha256,
        tensor_name: name.to_owned(),
        tensor_shape: shape,
    };
    identity_value.nothing_else(&identity.to_json())?;
    let q4_0 = GgmlType::from_name("Q4_0").expect("because the type table has it");
    let bytes = q4_0
        .tensor_bytes(&shape)
        .filter(|bytes| *bytes > 0)
        .ok_or_else(|| ForeignRecordError::Shape {
            field: identity_value.path_of("tensor_shape"),
            shape,
        })?;
    let (source, payload) = (node.object("source_tensor")?, node.object("payload")?);
    source.fixed("size_bytes", &bytes.into())?;
    payload.fixed("size_bytes", &bytes.into())?;
    let tensor = ForeignTensor {
        identity,
        gguf_offset: source.integer("gguf_offset")?,
        source_bytes: bytes,
        source_sha256: source.digest("sha256")?,
        payload_bytes: bytes,
        payload_sha256: payload.digest("sha256")?,
    };
    let key = tensor.key();
    node.fixed("key", &key.to_string().into())?;
    payload.fixed("path", &payload_path(key).into())?;
    Ok(tensor)
}

fn read_shape(identity: &Node<'_>) -> Result<[u64; 2], ForeignRecordError> {
    let value = identity.value("tensor_shape")?;
    let dims: Option<Vec<u64>> = value
        .as_array()
        .map(|dims| dims.iter().map(Value::as_u64).collect())
        .unwrap_or_default();
    dims.and_then(|dims| dims.try_into().ok())
        .ok_or_else(|| identity.wrong_type("tensor_shape", "a list of two integers", value))
}

/// The identity of the set, byte for byte, and the key derived from it.
fn read_identity(root: &Node<'_>, set: &ForeignSet) -> Result<(), ForeignRecordError> {
    let identity = root.object("identity")?;
    identity.fixed("target_architecture", &ARCHITECTURE.into())?;
    identity.fixed("pack_layout_version", &LAYOUT_VERSION.into())?;
    let sha256 = set.model.sha256.to_string();
    identity.fixed("target_model_sha256", &sha256.into())?;
    let expected = set.identity();
    let keys = expected["tensor_keys"].as_array();
    let actual = identity.value("tensor_keys")?;
    let count = keys.map_or(0, Vec::len);
    for (index, key) in keys.into_iter().flatten().enumerate() {
        let found = actual.get(index).unwrap_or(&Value::Null);
        same(
            identity.path_of(&format!("tensor_keys[{index}]")),
            key,
            found,
        )?;
    }
    let found = actual.as_array().map_or(0, Vec::len);
    same(
        identity.path_of("tensor_keys"),
        &count.into(),
        &found.into(),
    )?;
    identity.nothing_else(&expected)?;
    root.fixed("key", &canon_sha256(&expected).to_string().into())
}

fn ordered(set: &ForeignSet) -> Result<(), ForeignRecordError> {
    for (index, pair) in set.tensors.windows(2).enumerate() {
        let [previous, name] = [0, 1].map(|at| &pair[at].identity.tensor_name);
        let (rises, order) = match set.revision {
            Revision::Two => (previous < name, "name"),
            Revision::Three => (slot_of(previous) < slot_of(name), "slot"),
        };
        if !rises {
            return Err(ForeignRecordError::Order {
                field: format!("manifest.json: tensors[{}]", index + 1),
                order,
                previous: previous.clone(),
                name: name.clone(),
            });
        }
    }
    Ok(())
}

/// An object of a record, with its path for errors.
struct Node<'v> {
    path: String,
    fields: &'v Map<String, Value>,
}

impl<'v> Node<'v> {
    fn root(file: &str, value: &'v Value) -> Result<Self, ForeignRecordError> {
        Self::of(format!("{file}: "), value)
    }

    fn of(path: String, value: &'v Value) -> Result<Self, ForeignRecordError> {
        match value.as_object() {
            Some(fields) => Ok(Self { path, fields }),
            None => Err(ForeignRecordError::WrongType {
                field: path.trim_end_matches([':', ' ', '.']).to_owned(),
                expected: "an object",
                actual: cut(&value.to_string()),
            }),
        }
    }

    fn path_of(&self, field: &str) -> String {
        format!("{}{field}", self.path)
    }

    fn value(&self, field: &str) -> Result<&'v Value, ForeignRecordError> {
        let value = self.fields.get(field);
        value.ok_or_else(|| ForeignRecordError::Absent {
            field: self.path_of(field),
        })
    }

    fn text(&self, field: &str) -> Result<&'v str, ForeignRecordError> {
        let value = self.value(field)?;
        let text = value.as_str();
        text.ok_or_else(|| self.wrong_type(field, "text", value))
    }

    fn integer(&self, field: &str) -> Result<u64, ForeignRecordError> {
        let value = self.value(field)?;
        let integer = value.as_u64();
        integer.ok_or_else(|| self.wrong_type(field, "a non-negative integer", value))
    }

    fn boolean(&self, field: &str) -> Result<bool, ForeignRecordError> {
        let value = self.value(field)?;
        let boolean = value.as_bool();
        boolean.ok_or_else(|| self.wrong_type(field, "true or false", value))
    }

    fn digest(&self, field: &str) -> Result<Digest, ForeignRecordError> {
        Digest::parse(self.text(field)?).map_err(|source| ForeignRecordError::Digest {
            field: self.path_of(field),
            source,
        })
    }

    fn object(&self, field: &str) -> Result<Node<'v>, ForeignRecordError> {
        Node::of(format!("{}.", self.path_of(field)), self.value(field)?)
    }

    fn objects(&self, field: &str) -> Result<Vec<Node<'v>>, ForeignRecordError> {
        let value = self.value(field)?;
        let items = value
            .as_array()
            .ok_or_else(|| self.wrong_type(field, "a list", value))?;
        let path = self.path_of(field);
        items
            .iter()
            .enumerate()
            .map(|(index, item)| Node::of(format!("{path}[{index}]."), item))
            .collect()
    }

    /// A field that must have this value.
    fn fixed(&self, field: &str, expected: &Value) -> Result<(), ForeignRecordError> {
        same(self.path_of(field), expected, self.value(field)?)
    }

    /// The object has the fields of `expected` and no other, since its hash covers them all.
    fn nothing_else(&self, expected: &Value) -> Result<(), ForeignRecordError> {
        for (field, value) in self.fields {
            if expected.get(field).is_none() {
                return Err(ForeignRecordError::Differs {
                    field: self.path_of(field),
                    expected: "no such field".to_owned(),
                    actual: cut(&value.to_string()),
                });
            }
        }
        Ok(())
    }

    fn wrong_type(
        &self,
        field: &str,
        expected: &'static str,
        actual: &Value,
    ) -> ForeignRecordError {
        ForeignRecordError::WrongType {
            field: self.path_of(field),
            expected,
            actual: cut(&actual.to_string()),
        }
    }
}

impl ForeignRecordError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::NotJson { .. }
            | Self::Doubled { .. }
            | Self::Absent { .. }
            | Self::WrongType { .. }
            | Self::Digest { .. }
            | Self::Differs { .. }
            | Self::NoSlot { .. }
            | Self::Order { .. }
            | Self::Shape { .. } => Blame::Source,
        }
    }
}

fn same(field: String, expected: &Value, actual: &Value) -> Result<(), ForeignRecordError> {
    let (expected, actual) = (canon(expected), canon(actual));
    if expected == actual {
        return Ok(());
    }
    let text = |bytes: Vec<u8>| cut(&String::from_utf8_lossy(&bytes));
    Err(ForeignRecordError::Differs {
        field,
        expected: text(expected),
        actual: text(actual),
    })
}

fn cut(text: &str) -> String {
    if text.chars().count() <= SHOWN_CHARS {
        return text.to_owned();
    }
    text.chars().take(SHOWN_CHARS).collect::<String>() + "..."
}

const SHOWN_CHARS: usize = 80;
