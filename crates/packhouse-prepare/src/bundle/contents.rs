//! The table of contents of a bundle: its first member, from which all others follow.
//!
//! Invariants:
//! - one set has one table: lists are sorted, nothing is there twice;
//! - the members follow from it in one order: records first, then objects by digest;
//! - its numbers are bounded before anything is allocated by them.
//!
//! Never: a path; those are made here of keys and digests. Format: `docs/format/bundle.md`.

use super::member::Kind;
use packhouse_base::canonical::{self, CanonicalError};
use packhouse_base::digest::{Digest, ObjectDigest, PackKey, SetKey};
use packhouse_base::encode::Sequence;
use packhouse_store::pack::PACK_BYTES_MAX;
use packhouse_store::root::TAG;
use serde::Deserialize;
use serde_json::json;

/// The format's name, in every bundle's first member.
pub const BUNDLE_FORMAT: &str = "packhouse-bundle-1";

/// The path of the first member.
pub(super) const CONTENTS_PATH: &str = "packhouse-bundle.json";

/// The longest table that is read.
pub(super) const CONTENTS_BYTES_MAX: u64 = 16 << 20;

/// The most bytes of all records of a bundle together.
pub(super) const RECORD_BYTES_MAX: u64 = 64 << 20;

/// What a bundle holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The set.
    pub set: SetKey,
    /// Length of its manifest.
    pub manifest_bytes: u64,
    /// Length of its runtime index.
    pub index_bytes: u64,
    /// Its container records by name, with their lengths.
    pub containers: Vec<(Digest, u64)>,
    /// Its packs' records by key, with their lengths.
    pub packs: Vec<(PackKey, u64)>,
    /// The objects by digest, with their lengths.
    pub objects: Vec<(ObjectDigest, u64)>,
}

/// Why bytes are no table of contents.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// Not canonical JSON.
    #[error(transparent)]
    Canonical(#[from] CanonicalError),
    /// Not the fields of this format.
    #[error("{reason}")]
    Form {
        /// What the parser said, with the field.
        reason: String,
    },
    /// Another format.
    #[error("format: expected {BUNDLE_FORMAT:?}, found {actual:?}")]
    Format {
        /// The format named.
        actual: String,
    },
    /// A name that is no digest.
    #[error("{list}: not 64 lower-case hex digits: {actual:?}")]
    Name {
        /// The list.
        list: &'static str,
        /// The name.
        actual: String,
    },
    /// A list that does not rise.
    #[error("{list}: {name} does not rise")]
    Order {
        /// The list.
        list: &'static str,
        /// The first name that does not.
        name: Digest,
    },
    /// A list without entries.
    #[error("{list}: empty")]
    Empty {
        /// The list.
        list: &'static str,
    },
    /// A length that no such member has.
    #[error("{list}: {actual} bytes, at most {limit} are read")]
    TooLong {
        /// The list or field.
        list: &'static str,
        /// The most.
        limit: u64,
        /// The length.
        actual: u64,
    },
}

/// What a member is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Folder,
    Tag,
    Id,
    Pack(PackKey),
    Container(Digest),
    Manifest,
    Index,
    Object(ObjectDigest),
}

/// A member that follows from the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) path: String,
    pub(crate) role: Role,
    pub(crate) kind: Kind,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    containers: Vec<Entry>,
    format: String,
    index_bytes: u64,
    manifest_bytes: u64,
    objects: Vec<Entry>,
    packs: Vec<Entry>,
    set: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    bytes: u64,
    name: String,
}

impl Contents {
    /// Renders the table as canonical JSON.
    pub fn render(&self) -> Vec<u8> {
        let entry = |name: &Digest, bytes: u64| json!({"name": name.to_string(), "bytes": bytes});
        let containers = self
            .containers
            .iter()
            .map(|(name, bytes)| entry(name, *bytes));
        let packs = self.packs.iter().map(|(key, bytes)| entry(&key.0, *bytes));
        let objects = self
            .objects
            .iter()
            .map(|(name, bytes)| entry(&name.0, *bytes));
        canonical::render(&json!({
            "format": BUNDLE_FORMAT,
            "set": self.set.to_string(),
            "manifest_bytes": self.manifest_bytes,
            "index_bytes": self.index_bytes,
            "containers": containers.collect::<Vec<_>>(),
            "packs": packs.collect::<Vec<_>>(),
            "objects": objects.collect::<Vec<_>>(),
        }))
    }

    /// Parses a table. Errors on any byte that `render` would not have written, and on numbers
    /// that no bundle has.
    pub fn parse(bytes: &[u8]) -> Result<Self, ContentsError> {
        let value = canonical::parse(bytes)?;
        if let Some(actual) = value.get("format").and_then(|format| format.as_str())
            && actual != BUNDLE_FORMAT
        {
            return Err(ContentsError::Format {
                actual: actual.chars().take(80).collect(),
            });
        }
        let fields: Fields =
            serde_json::from_value(value).map_err(|error| ContentsError::Form {
                reason: error.to_string(),
            })?;
        if fields.format != BUNDLE_FORMAT {
            return Err(ContentsError::Format {
                actual: fields.format,
            });
        }
        let contents = Self {
            set: SetKey(digest("set", &fields.set)?),
            manifest_bytes: fields.manifest_bytes,
            index_bytes: fields.index_bytes,
            containers: list("containers", &fields.containers)?,
            packs: list("packs", &fields.packs)?
                .into_iter()
                .map(|(name, bytes)| (PackKey(name), bytes))
                .collect(),
            objects: list("objects", &fields.objects)?
                .into_iter()
                .map(|(name, bytes)| (ObjectDigest(name), bytes))
                .collect(),
        };
        contents.bound()?;
        Ok(contents)
    }

    /// Bytes of all objects together.
    pub fn object_bytes(&self) -> u64 {
        // In range: `bound` added them up.
        self.objects.iter().map(|(_, bytes)| bytes).sum()
    }

    /// The id that a store unpacked from this bundle has: it follows from the set, so that the
    /// bundle's bytes do.
    pub(crate) fn id_text(&self) -> String {
        let mut sequence = Sequence::new("packhouse/bundle-id/1");
        sequence.digest(&self.set.0);
        format!("{}\n", &sequence.finish().to_string()[..32])
    }

    /// All members after the table itself, in order.
    pub(crate) fn members(&self) -> Vec<Member> {
        let mut members = Members::default();
        members.file("CACHEDIR.TAG".into(), Role::Tag, TAG.len() as u64);
        members.folder("v1/".into());
        members.file("v1/id".into(), Role::Id, self.id_text().len() as u64);
        members.folder("v1/packs/".into());
        for (key, bytes) in &self.packs {
            members.in_prefix("v1/packs/", &key.0, Role::Pack(*key), *bytes);
        }
        for folder in ["v1/pins/", "v1/quarantine/", "v1/sets/"] {
            members.folder(folder.into());
        }
        let set = format!("v1/sets/{}/", self.set);
        members.folder(set.clone());
        members.folder(format!("{set}containers/"));
        for (name, bytes) in &self.containers {
            let path = format!("{set}containers/{name}.json");
            members.file(path, Role::Container(*name), *bytes);
        }
        members.file(
            format!("{set}manifest.json"),
            Role::Manifest,
            self.manifest_bytes,
        );
        members.file(
            format!("{set}runtime-index.tsv"),
            Role::Index,
            self.index_bytes,
        );
        members.folder("v1/objects/".into());
        for (name, bytes) in &self.objects {
            members.in_prefix("v1/objects/", &name.0, Role::Object(*name), *bytes);
        }
        members.list
    }

    fn bound(&self) -> Result<(), ContentsError> {
        let too_long = |list, limit, actual| {
            Err(ContentsError::TooLong {
                list,
                limit,
                actual,
            })
        };
        if self.containers.is_empty() {
            return Err(ContentsError::Empty { list: "containers" });
        }
        for (_, bytes) in &self.packs {
            if *bytes > PACK_BYTES_MAX {
                return too_long("packs", PACK_BYTES_MAX, *bytes);
            }
        }
        let packs = self.packs.iter().map(|(_, bytes)| *bytes);
        let containers = self.containers.iter().map(|(_, bytes)| *bytes);
        let records = packs
            .chain(containers)
            .chain([self.manifest_bytes, self.index_bytes])
            .fold(0u64, u64::saturating_add);
        if records > RECORD_BYTES_MAX {
            return too_long("records", RECORD_BYTES_MAX, records);
        }
        let objects = self.objects.iter().map(|(_, bytes)| *bytes);
        let objects = objects.fold(0u64, u64::saturating_add);
        if objects > OBJECT_BYTES_MAX {
            return too_long("objects", OBJECT_BYTES_MAX, objects);
        }
        Ok(())
    }
}

/// Members, with each two-digit folder before its first file.
#[derive(Default)]
struct Members {
    list: Vec<Member>,
}

impl Members {
    fn folder(&mut self, path: String) {
        self.list.push(Member {
            path,
            role: Role::Folder,
            kind: Kind::Folder,
        });
    }

    fn file(&mut self, path: String, role: Role, bytes: u64) {
        self.list.push(Member {
            path,
            role,
            kind: Kind::File(bytes),
        });
    }

    fn in_prefix(&mut self, base: &str, name: &Digest, role: Role, bytes: u64) {
        let name = name.to_string();
        let folder = format!("{base}{}/", &name[..2]);
        let last = self.list.last().map_or("", |member| &member.path);
        if !last.starts_with(&folder) {
            self.folder(folder.clone());
        }
        self.file(format!("{folder}{name}"), role, bytes);
    }
}

impl ContentsError {
    /// Whose side the failure is on.
    pub fn blame(&self) -> packhouse_base::Blame {
        match self {
            Self::Canonical(_)
            | Self::Form { .. }
            | Self::Format { .. }
            | Self::Name { .. }
            | Self::Order { .. }
            | Self::Empty { .. }
            | Self::TooLong { .. } => packhouse_base::Blame::Source,
        }
    }
}

/// What a file offset can be.
const OBJECT_BYTES_MAX: u64 = u64::MAX >> 1;

fn list(list: &'static str, entries: &[Entry]) -> Result<Vec<(Digest, u64)>, ContentsError> {
    let mut named: Vec<(Digest, u64)> = Vec::with_capacity(entries.len());
    for entry in entries {
        let name = digest(list, &entry.name)?;
        if named.last().is_some_and(|(last, _)| *last >= name) {
            return Err(ContentsError::Order { list, name });
        }
        named.push((name, entry.bytes));
    }
    Ok(named)
}

fn digest(list: &'static str, text: &str) -> Result<Digest, ContentsError> {
    Digest::parse(text).map_err(|error| ContentsError::Name {
        list,
        actual: error.text,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents() -> Contents {
        Contents {
            set: SetKey(Digest::of(b"set")),
            manifest_bytes: 10,
            index_bytes: 20,
            containers: vec![(Digest::of(b"c"), 30)],
            packs: vec![(PackKey(Digest::of(b"p")), 40)],
            objects: vec![(ObjectDigest(Digest::of(b"o")), 50)],
        }
    }

    #[test]
    fn a_table_round_trips() {
        assert_eq!(Contents::parse(&contents().render()), Ok(contents()));
    }

    #[test]
    fn each_wrong_table_is_refused_for_its_own_reason() {
        let text = String::from_utf8(contents().render()).expect("because JSON is UTF-8");
        let pack = format!("{{\"bytes\":40,\"name\":\"{}\"}}", Digest::of(b"p"));
        let twice = format!("{pack},{pack}");
        let container = format!("{{\"bytes\":30,\"name\":\"{}\"}}", Digest::of(b"c"));
        let set = Digest::of(b"set").to_string();
        let max = "9223372036854775808";
        let wrong = [
            ("bundle-1", "bundle-2", "found \"packhouse-bundle-2\""),
            ("\"bytes\":50", "\"bytes\":-1", "expected u64"),
            (
                "\"bytes\":50",
                "\"bytes\":50,\"link\":1",
                "unknown field `link`",
            ),
            ("\"index_bytes\":20,", "", "missing field `index_bytes`"),
            (
                "{\"containers\"",
                "{\"a\":1,\"containers\"",
                "unknown field `a`",
            ),
            ("\"bytes\":50", &format!("\"bytes\":{max}"), "objects: 922"),
            ("\"bytes\":40", "\"bytes\":65537", "packs: 65537 bytes"),
            (
                "\"index_bytes\":20",
                "\"index_bytes\":67108864",
                "records: 671",
            ),
            (&pack, &twice, "does not rise"),
            (&container, "", "containers: empty"),
            (
                &set,
                "../../etc/passwd",
                "not 64 lower-case hex digits: \"../",
            ),
            ("\"set\"", " \"set\"", "not canonical"),
        ];
        for (from, to, reason) in wrong {
            let edited = text.replacen(from, to, 1);
            assert_ne!(text, edited, "{from}");
            let error = Contents::parse(edited.as_bytes()).expect_err(reason);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn members_are_unique_and_folders_come_before_what_is_in_them() {
        let members = contents().members();
        let mut seen = std::collections::BTreeSet::new();
        for member in &members {
            let parent = member.path.trim_end_matches('/').rsplit_once('/');
            if let Some((parent, _)) = parent {
                assert!(seen.contains(&format!("{parent}/")), "{}", member.path);
            }
            assert!(seen.insert(member.path.clone()), "{}", member.path);
        }
    }
}
