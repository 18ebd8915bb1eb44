//! Taking a bundle into a store, from any stream.
//!
//! Invariants:
//! - all records are read and must hold together before the first object is stored;
//! - room for what the store lacks is reserved before, and each object is published by its own
//!   digest, hashed on the way in;
//! - a payload that this machine can unpack is published under its pack only if it is what its
//!   source packs to;
//! - packs and the set come last, after the stream ended as it must; before that nothing but whole
//!   objects can be left behind.
//!
//! Never: believes a digest, a length or a path of the bundle. What only another packer can judge
//! is counted.

use super::contents::{Contents, Member, Role};
use super::error::BundleError;
use super::member::Kind;
use super::reader::Reader;
use crate::proof::{self, Proof, Proofs};
use packhouse_base::digest::{Digest, Hasher, ObjectDigest, PackKey, SetKey};
use packhouse_pack::Packers;
use packhouse_store::container_record::ContainerRecord;
use packhouse_store::manifest::SetManifest;
use packhouse_store::object::{ObjectTrust, PendingReceipt};
use packhouse_store::publish::{PublishOptions, SmallOutcome, StreamError};
use packhouse_store::record::PackRecord;
use packhouse_store::reserve::Reservation;
use packhouse_store::root::{Store, TAG};
use packhouse_store::set::SetOutcome;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::num::NonZeroUsize;

/// What an import brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The set.
    pub set: SetKey,
    /// How it came to be there.
    pub outcome: SetOutcome,
    /// Tensors of the set.
    pub tensor_count: u64,
    /// Objects that the store lacked.
    pub new_object_count: u64,
    /// Their bytes.
    pub new_bytes: u64,
    /// Objects that it had.
    pub reused_object_count: u64,
    /// Their bytes.
    pub reused_bytes: u64,
    /// Pack records that the store lacked.
    pub new_pack_count: u64,
    /// Receipts recorded for this user.
    pub receipt_count: u64,
    /// What proving its packs came to.
    pub proofs: Proofs,
}

/// The records of a bundle, parsed, agreeing with each other.
#[derive(Debug)]
pub struct Records {
    /// The set's manifest.
    pub manifest: SetManifest,
    /// Its packs.
    pub packs: BTreeMap<PackKey, PackRecord>,
    /// Its container records, at least one.
    pub containers: Vec<ContainerRecord>,
}

/// Where the objects of a bundle go.
pub trait ObjectSink {
    /// Is told the table of contents once all records hold together, before the first object.
    fn begin(&mut self, contents: &Contents) -> Result<(), BundleError>;
    /// Takes one object; `fill` fills each buffer it is given, in order, `length` bytes in all.
    fn object(
        &mut self,
        object: ObjectDigest,
        length: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), BundleError>,
    ) -> Result<(), BundleError>;
}

/// Takes a bundle into a store; `progress` is told the objects' bytes so far and in all.
pub fn import(
    store: &Store,
    packers: &Packers,
    source: &mut dyn Read,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Imported, BundleError> {
    let mut sink = StoreSink {
        store,
        room: None,
        present: BTreeSet::new(),
        pending: Vec::new(),
        new: (0, 0),
        reused: (0, 0),
        done_bytes: 0,
        total_bytes: 0,
        progress,
    };
    let records = read(source, &mut sink)?;
    let (pending, new, reused) = (sink.pending, sink.new, sink.reused);
    drop(sink.room);
    let proofs = prove_packs(store, packers, &records)?;
    publish_records(store, packers, &records).map(|(new_pack_count, outcome)| {
        let set = records.manifest.key();
        if let Ok(log) = store.use_log() {
            // A set that was there long ago is in use again; without the note gc goes by its age.
            let _ = log.note_set(set, None, store.clock().wall_ns());
        }
        Imported {
            set,
            outcome,
            tensor_count: records.manifest.entries().len() as u64,
            new_object_count: new.0,
            new_bytes: new.1,
            reused_object_count: reused.0,
            reused_bytes: reused.1,
            new_pack_count,
            receipt_count: store.settle(&pending).recorded_count,
            proofs,
        }
    })
}

/// Reads a whole bundle, hands its objects to a sink and answers its records. Errors on any byte
/// that `BundleDraft::write` would not have written, but leaves it to the sink to hash objects.
pub fn read(source: &mut dyn Read, sink: &mut dyn ObjectSink) -> Result<Records, BundleError> {
    let mut reader = Reader::new(source);
    let contents = reader.contents()?;
    let members = contents.members();
    let objects_at = members
        .iter()
        .position(|member| matches!(member.role, Role::Object(_)))
        .unwrap_or(members.len());
    let (small, objects) = members.split_at(objects_at);
    let records = read_records(&mut reader, &contents, small)?;
    sink.begin(&contents)?;
    for member in objects {
        reader.header(member)?;
        let (Role::Object(object), Kind::File(length)) = (member.role, member.kind) else {
            continue;
        };
        let fill = &mut |target: &mut [u8]| reader.part(&member.path, target);
        sink.object(object, length, fill)?;
        reader.padding(&member.path, length)?;
    }
    reader.end()?;
    Ok(records)
}

/// Reads the records at the head of a bundle, and no object. Errors as `read`.
pub fn read_head(source: &mut dyn Read) -> Result<Records, BundleError> {
    let mut reader = Reader::new(source);
    let contents = reader.contents()?;
    let members = contents.members();
    let is_small = |member: &&Member| !matches!(member.role, Role::Object(_));
    let small: Vec<Member> = members.iter().take_while(is_small).cloned().collect();
    read_records(&mut reader, &contents, &small)
}

fn read_records(
    reader: &mut Reader<'_>,
    contents: &Contents,
    members: &[Member],
) -> Result<Records, BundleError> {
    let mut packs = BTreeMap::new();
    let mut containers = Vec::new();
    let (mut manifest, mut index) = (Vec::new(), Vec::new());
    for member in members {
        reader.header(member)?;
        let Kind::File(length) = member.kind else {
            continue;
        };
        let bytes = reader.content(&member.path, length)?;
        match member.role {
            Role::Tag => fixed(&member.path, &bytes, TAG)?,
            Role::Id => fixed(&member.path, &bytes, contents.id_text().as_bytes())?,
            Role::Pack(key) => {
                packs.insert(key, PackRecord::parse(key, &bytes)?);
            }
            Role::Container(name) => containers.push(ContainerRecord::parse(name, &bytes)?),
            Role::Manifest => manifest = bytes,
            Role::Index => index = bytes,
            Role::Folder | Role::Object(_) => {}
        }
    }
    let manifest = SetManifest::parse(contents.set, &manifest)?;
    manifest.verify_index(&index)?;
    agree(contents, &manifest, &packs)?;
    Ok(Records {
        manifest,
        packs,
        containers,
    })
}

fn fixed(path: &str, actual: &[u8], expected: &[u8]) -> Result<(), BundleError> {
    if actual == expected {
        return Ok(());
    }
    Err(BundleError::Fixed {
        path: path.to_owned(),
    })
}

/// The manifest's packs are the bundle's, and the packs' objects are.
fn agree(
    contents: &Contents,
    manifest: &SetManifest,
    packs: &BTreeMap<PackKey, PackRecord>,
) -> Result<(), BundleError> {
    let mut strays = packs.clone();
    let mut objects: BTreeMap<ObjectDigest, u64> = BTreeMap::new();
    for entry in manifest.entries() {
        let agrees = packs
            .get(&entry.pack)
            .is_some_and(|pack| (pack.object, pack.length) == (entry.object, entry.length));
        if !agrees {
            return Err(BundleError::Lacks {
                slot: entry.slot,
                tensor: entry.tensor.clone(),
                pack: entry.pack,
            });
        }
        strays.remove(&entry.pack);
        if *objects.entry(entry.object).or_insert(entry.length) != entry.length {
            return Err(BundleError::Objects {
                object: entry.object,
            });
        }
    }
    if let Some(pack) = strays.into_keys().next() {
        return Err(BundleError::StrayPack { pack });
    }
    let listed: BTreeMap<ObjectDigest, u64> = contents.objects.iter().copied().collect();
    let differs = |(object, length): (&ObjectDigest, &u64)| {
        (listed.get(object) != Some(length)).then_some(*object)
    };
    let unlisted = objects.iter().find_map(differs);
    let stray = listed.keys().find(|object| !objects.contains_key(object));
    match unlisted.or(stray.copied()) {
        Some(object) => Err(BundleError::Objects { object }),
        None => Ok(()),
    }
}

/// The store, with what it had and has room for.
struct StoreSink<'s, 'p> {
    store: &'s Store,
    room: Option<Reservation>,
    present: BTreeSet<ObjectDigest>,
    pending: Vec<PendingReceipt>,
    new: (u64, u64),
    reused: (u64, u64),
    done_bytes: u64,
    total_bytes: u64,
    progress: &'p mut dyn FnMut(u64, u64),
}

impl ObjectSink for StoreSink<'_, '_> {
    fn begin(&mut self, contents: &Contents) -> Result<(), BundleError> {
        self.total_bytes = contents.object_bytes();
        let mut wanted_bytes = 0;
        for (object, length) in &contents.objects {
            // A damaged one is moved away here, and so is new.
            match self.store.object(object, *length, ObjectTrust::Receipt) {
                Ok(found) => {
                    self.pending.extend(found.pending_receipt());
                    self.present.insert(*object);
                }
                Err(_) => wanted_bytes += length,
            }
        }
        let room = self.store.reserve(wanted_bytes, ROOM_WAIT_NS);
        self.room = Some(room.map_err(|source| BundleError::Room {
            wanted_bytes,
            source: Box::new(source),
        })?);
        (self.progress)(0, self.total_bytes);
        Ok(())
    }

    fn object(
        &mut self,
        object: ObjectDigest,
        length: u64,
        fill: &mut dyn FnMut(&mut [u8]) -> Result<(), BundleError>,
    ) -> Result<(), BundleError> {
        let (done_bytes, total_bytes) = (&mut self.done_bytes, self.total_bytes);
        let progress = &mut self.progress;
        let mut told = |target: &mut [u8]| {
            fill(target)?;
            *done_bytes += target.len() as u64;
            progress(*done_bytes, total_bytes);
            Ok(())
        };
        if self.present.contains(&object) {
            self.reused = (self.reused.0 + 1, self.reused.1 + length);
            return hash_through(object, length, &mut told);
        }
        let room = self.room.as_ref().expect("because `begin` came first");
        let options = PublishOptions { drop_cache: false };
        let published = self
            .store
            .publish_stream(room, (object, length), options, &mut told)
            .map_err(|error| match error {
                StreamError::Source(error) => error,
                StreamError::Digest { expected, actual } => {
                    BundleError::Object { expected, actual }
                }
                StreamError::Publish(error) => error.into(),
            })?;
        self.pending.extend(published.pending_receipt());
        self.new = (self.new.0 + 1, self.new.1 + length);
        Ok(())
    }
}

/// Reads an object that is not needed, so that a damaged bundle is not called good.
fn hash_through(
    expected: ObjectDigest,
    length: u64,
    fill: &mut dyn FnMut(&mut [u8]) -> Result<(), BundleError>,
) -> Result<(), BundleError> {
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; usize::try_from(length.min(CHUNK_BYTES)).unwrap_or(1)];
    let mut left = length;
    while left > 0 {
        let filled = usize::try_from(left.min(CHUNK_BYTES)).unwrap_or(1);
        fill(&mut buffer[..filled])?;
        hasher.update(&buffer[..filled]);
        left -= filled as u64;
    }
    let actual: Digest = hasher.finish();
    if actual != expected.0 {
        return Err(BundleError::Object { expected, actual });
    }
    Ok(())
}

/// Proves every pack whose inverse is here. Its object was hashed on the way in.
fn prove_packs(store: &Store, packers: &Packers, records: &Records) -> Result<Proofs, BundleError> {
    let mut proofs = Proofs::default();
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    for (key, record) in &records.packs {
        let proof: Proof = proof::prove_stored(store, record, packers, threads)
            .map_err(|refusal| BundleError::Unread(Box::new(refusal)))?;
        let Some(wrong) = proofs.count(proof) else {
            continue;
        };
        let mut entries = records.manifest.entries().iter();
        let entry = entries.find(|entry| entry.pack == *key);
        let entry = entry.expect("because a pack that no slot names was refused before");
        return Err(BundleError::Wrong {
            slot: entry.slot,
            tensor: entry.tensor.clone(),
            pack: *key,
            wrong,
        });
    }
    Ok(proofs)
}

/// Publishes packs, then the set; answers how many packs were new.
fn publish_records(
    store: &Store,
    packers: &Packers,
    records: &Records,
) -> Result<(u64, SetOutcome), BundleError> {
    let mut new_pack_count = 0;
    for record in records.packs.values() {
        match proof::publish_pack(store, record, packers).map_err(Box::new)? {
            SmallOutcome::Created => new_pack_count += 1,
            SmallOutcome::Equal => {}
        }
    }
    let set = records.manifest.key();
    let (first, rest) = records
        .containers
        .split_first()
        .expect("because a table of contents lists at least one");
    let outcome = store
        .publish_set(&records.manifest, first)
        .map_err(Box::new)?;
    for record in rest {
        store.add_container_record(set, record).map_err(Box::new)?;
    }
    Ok((new_pack_count, outcome))
}

const CHUNK_BYTES: u64 = 1 << 20;
const ROOM_WAIT_NS: u64 = 10_000_000_000;
