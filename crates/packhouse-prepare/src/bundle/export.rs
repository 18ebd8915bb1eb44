//! Writing a set as a bundle, to any stream.
//!
//! Invariants:
//! - the bytes depend on the set alone;
//! - every object is hashed as it is written; at the first that proves wrong the stream is broken
//!   off before its end, so that no reader takes it.

use super::contents::{CONTENTS_PATH, Contents, Member, Role};
use super::error::ExportError;
use super::member::{BLOCK_BYTES, Kind, header, padding};
use packhouse_base::digest::{Digest, Hasher, ObjectDigest, PackKey, SetKey};
use packhouse_store::object::{ObjectRefusal, ObjectTrust};
use packhouse_store::root::{Store, TAG};
use std::collections::BTreeMap;
use std::io::Write;

/// A bundle that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// What it holds.
    pub contents: Contents,
    /// Its length.
    pub bundle_bytes: u64,
}

/// A set's records, as a bundle has them.
pub struct BundleDraft<'s> {
    store: &'s Store,
    contents: Contents,
    packs: BTreeMap<PackKey, Vec<u8>>,
    containers: BTreeMap<Digest, Vec<u8>>,
    manifest: Vec<u8>,
    index: Vec<u8>,
}

impl<'s> BundleDraft<'s> {
    /// Reads all records of a set, and knows the bundle's length then.
    pub fn new(store: &'s Store, set: SetKey) -> Result<Self, ExportError> {
        let manifest = store.read_set(set)?;
        let mut packs = BTreeMap::new();
        let mut objects = BTreeMap::new();
        for entry in manifest.entries() {
            let record = store
                .lookup_pack(&entry.pack)
                .map_err(|source| ExportError::Pack {
                    slot: entry.slot,
                    tensor: entry.tensor.clone(),
                    source: Box::new(source),
                })?;
            objects.insert(record.object, record.length);
            packs.insert(entry.pack, record.render());
        }
        let records = store.read_container_records(set)?.records;
        let containers: BTreeMap<Digest, Vec<u8>> = records
            .iter()
            .map(|record| (record.name(), record.render()))
            .collect();
        if containers.is_empty() {
            return Err(ExportError::NoContainer { set });
        }
        let index = manifest.render_index();
        let manifest = manifest.render();
        let contents = Contents {
            set,
            manifest_bytes: manifest.len() as u64,
            index_bytes: index.len() as u64,
            containers: lengths(&containers),
            packs: lengths(&packs),
            objects: objects.into_iter().collect(),
        };
        // What no reader would take is not written.
        Contents::parse(&contents.render())
            .map_err(|source| ExportError::Contents { set, source })?;
        Ok(Self {
            store,
            contents,
            packs,
            containers,
            manifest,
            index,
        })
    }

    /// What the bundle will hold.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// The bundle's length.
    pub fn bundle_bytes(&self) -> u64 {
        let table = self.contents.render().len() as u64;
        let members = self.contents.members();
        let kinds = members.iter().map(|member| member.kind);
        kinds
            .chain([Kind::File(table)])
            .map(|kind| match kind {
                Kind::Folder => BLOCK_BYTES as u64,
                Kind::File(length) => BLOCK_BYTES as u64 + length + padding(length) as u64,
            })
            .sum::<u64>()
            + END_BYTES
    }

    /// Writes the bundle; `progress` is told the bytes written so far.
    pub fn write(
        &self,
        target: &mut dyn Write,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Exported, ExportError> {
        let mut writer = Writer { target, offset: 0 };
        let table = self.contents.render();
        writer.header(CONTENTS_PATH, Kind::File(table.len() as u64))?;
        writer.content(&table)?;
        for member in self.contents.members() {
            writer.header(&member.path, member.kind)?;
            self.write_content(&member, &mut writer, progress)?;
            progress(writer.offset);
        }
        writer.put(&[0; 2 * BLOCK_BYTES])?;
        writer.flush()?;
        Ok(Exported {
            contents: self.contents.clone(),
            bundle_bytes: writer.offset,
        })
    }

    fn write_content(
        &self,
        member: &Member,
        writer: &mut Writer<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ExportError> {
        let Kind::File(length) = member.kind else {
            return Ok(());
        };
        match member.role {
            Role::Folder => Ok(()),
            Role::Tag => writer.content(TAG),
            Role::Id => writer.content(self.contents.id_text().as_bytes()),
            Role::Pack(key) => writer.content(&self.packs[&key]),
            Role::Container(name) => writer.content(&self.containers[&name]),
            Role::Manifest => writer.content(&self.manifest),
            Role::Index => writer.content(&self.index),
            Role::Object(digest) => self.write_object(digest, length, writer, progress),
        }
    }

    fn write_object(
        &self,
        digest: ObjectDigest,
        length: u64,
        writer: &mut Writer<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), ExportError> {
        let refuse = |refusal: ObjectRefusal| ExportError::Object(Box::new(refusal));
        let object = self.store.object_for_sample(&digest, length);
        let object = object.map_err(refuse)?;
        let mut hasher = Hasher::default();
        let buffer_bytes = usize::try_from(length).unwrap_or(usize::MAX);
        let mut buffer = vec![0; buffer_bytes.min(CHUNK_BYTES)];
        let mut offset = 0;
        while offset < length {
            let filled = object
                .file()
                .read_full_at(offset, &mut buffer)
                .map_err(|error| refuse(ObjectRefusal::Fs { digest, error }))?;
            let filled = filled.min(usize::try_from(length - offset).unwrap_or(usize::MAX));
            if filled == 0 {
                break;
            }
            hasher.update(&buffer[..filled]);
            writer.put(&buffer[..filled])?;
            offset += filled as u64;
            progress(writer.offset);
        }
        if hasher.finish() != digest.0 {
            // Hashed again on its own, so that it is refused as damaged and moved away.
            let refusal = self.store.object(&digest, length, ObjectTrust::Deep);
            return Err(refuse(refusal.err().unwrap_or_else(|| {
                ObjectRefusal::Changed {
                    digest,
                    path: object.file().path().to_owned(),
                    field: "content",
                }
            })));
        }
        writer.put(&[0; BLOCK_BYTES][..padding(length)])
    }
}

struct Writer<'t> {
    target: &'t mut dyn Write,
    offset: u64,
}

impl Writer<'_> {
    fn header(&mut self, path: &str, kind: Kind) -> Result<(), ExportError> {
        self.put(&header(path, kind))
    }

    fn content(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        self.put(bytes)?;
        self.put(&[0; BLOCK_BYTES][..padding(bytes.len() as u64)])
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), ExportError> {
        let offset = self.offset;
        self.target
            .write_all(bytes)
            .map_err(|source| ExportError::Write { offset, source })?;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        let offset = self.offset;
        self.target
            .flush()
            .map_err(|source| ExportError::Write { offset, source })
    }
}

const CHUNK_BYTES: usize = 1 << 20;
const END_BYTES: u64 = 2 * BLOCK_BYTES as u64;

fn lengths<K: Copy>(records: &BTreeMap<K, Vec<u8>>) -> Vec<(K, u64)> {
    records
        .iter()
        .map(|(key, bytes)| (*key, bytes.len() as u64))
        .collect()
}
