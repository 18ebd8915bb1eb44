//! Stops, tears, reorders and fills: at every operation of a fill, a store that opens again with
//! each object, pack and small file whole or absent, and whatever was reported as published still
//! there.
//!
//! The canaries at the end leave out a sync and must be noticed.

use crate::fixture::identity;
use packhouse_base::digest::{Digest, ObjectDigest};
use packhouse_sim::{Crash, Fault, SimClock, SimFs, Skip};
use packhouse_store::object::{ObjectRefusal, ObjectTrust};
use packhouse_store::pack::PackRefusal;
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::fs::FsErrorKind;
use packhouse_sys::stat::FsKind;
use std::sync::Arc;

const ROOT: &str = "/home/user/.cache/packhouse";
const STATE: &str = "/home/user/.local/state/packhouse";
const SMALL: &[u8] = b"{\"entries\":[]}\n";

/// How a disk differs from a plain one.
#[derive(Clone, Copy, Debug)]
struct Abilities {
    kind: FsKind,
    unnamed_files: bool,
    rename_without_replace: bool,
}

/// The payloads of one fill: the first by itself, the others as a batch.
struct Fill {
    payloads: Vec<Vec<u8>>,
}

/// What a fill reported as published before it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reported {
    single: bool,
    pack: bool,
    batch: bool,
    small: bool,
}

fn small_fill() -> Fill {
    let payloads = [3000usize, 5000, 70_000]
        .iter()
        .map(|length| payload(*length))
        .collect();
    Fill { payloads }
}

/// One payload of two chunks.
fn long_fill() -> Fill {
    Fill {
        payloads: vec![payload((4 << 20) + 999), payload(10), payload(11)],
    }
}

fn payload(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 % 251) as u8).collect()
}

impl Abilities {
    const PLAIN: Self = Self {
        kind: FsKind::Ext,
        unnamed_files: true,
        rename_without_replace: true,
    };

    fn disk(self, seed: u64) -> SimFs {
        let sim = SimFs::new(seed, Arc::new(SimClock::new()));
        sim.set_kind(self.kind);
        sim.set_abilities(self.unnamed_files, self.rename_without_replace);
        sim
    }
}

impl Fill {
    fn record(&self) -> PackRecord {
        let payload = &self.payloads[0];
        PackRecord {
            identity: identity(payload),
            object: digest(payload),
            length: payload.len() as u64,
            sample: SampleGeometry {
                unit_rows: 1,
                row_bytes: payload.len() as u64,
                row_count: 1,
            },
        }
    }

    /// Opens the store and fills it; reports each step that said it was done.
    fn run(&self, sim: &SimFs, reported: &mut Reported) -> Result<(), String> {
        let store = open(sim)?;
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let total = self.payloads.iter().map(|payload| payload.len() as u64);
        let room = store.reserve(total.sum(), 0).map_err(|e| text(&e))?;
        let options = PublishOptions { drop_cache: true };
        store
            .publish(&room, &self.payloads[0], options, &|| false)
            .map_err(|e| text(&e))?;
        reported.single = true;
        store.publish_pack(&self.record()).map_err(|e| text(&e))?;
        reported.pack = true;
        let mut batch = store.batch(&room);
        for payload in &self.payloads[1..] {
            batch.add(payload, &|| false).map_err(|e| text(&e))?;
        }
        batch.finish(options, &|| false).map_err(|e| text(&e))?;
        reported.batch = true;
        let dir = store
            .make_folder(store.sets_dir(), "set")
            .map_err(|e| text(&e))?;
        store
            .publish_small(&dir, "manifest.json", SMALL)
            .map_err(|e| text(&e))?;
        reported.small = true;
        Ok(())
    }

    /// Says what is wrong with a store after a crash.
    fn inspect(&self, sim: &SimFs, reported: Reported) -> Result<(), String> {
        let store = open(sim)?;
        for (index, payload) in self.payloads.iter().enumerate() {
            let must = if index == 0 {
                reported.single
            } else {
                reported.batch
            };
            let length = payload.len() as u64;
            match store.object(&digest(payload), length, ObjectTrust::Deep) {
                Ok(_) => {}
                Err(ObjectRefusal::Missing { .. }) if !must => {}
                Err(refusal) => return Err(format!("payload {index}: {refusal}")),
            }
        }
        match store.lookup_pack(&self.record().key()) {
            Ok(record) => {
                if record != self.record() {
                    return Err("another pack record".into());
                }
                store
                    .object(&record.object, record.length, ObjectTrust::Deep)
                    .map_err(|refusal| format!("a pack without its object: {refusal}"))?;
            }
            Err(PackRefusal::Missing { .. }) if !reported.pack => {}
            Err(refusal) => return Err(refusal.to_string()),
        }
        match sim.read(format!("{ROOT}/v1/sets/set/manifest.json")) {
            Some(bytes) if bytes == SMALL => Ok(()),
            Some(bytes) => Err(format!("manifest of {} bytes", bytes.len())),
            None if reported.small => Err("the manifest was reported and is gone".into()),
            None => Ok(()),
        }
    }

    /// Fills again after a crash, and says what is wrong with the store then.
    fn heal(&self, sim: &SimFs, leftovers: Leftovers) -> Result<(), String> {
        let mut reported = Reported::default();
        self.run(sim, &mut reported)
            .map_err(|error| format!("the next fill: {error}"))?;
        self.inspect(sim, reported)?;
        for path in sim.files(ROOT) {
            let path = path.to_string_lossy().into_owned();
            let temp = path.contains("/.tmp-");
            if path.contains("/quarantine/") || (temp && leftovers == Leftovers::None) {
                return Err(format!("left behind: {path}"));
            }
        }
        Ok(())
    }

    /// Stops at every operation and crashes in each way; answers the first thing wrong.
    fn stop_everywhere(&self, abilities: Abilities, crashes: Crashes) -> Result<u64, String> {
        let count = self.operations(abilities);
        // A stopped process can't remove a temporary file that has a name.
        let leftovers = if abilities.unnamed_files {
            Leftovers::None
        } else {
            Leftovers::Temps
        };
        for at in 0..count {
            let sim = abilities.disk(1);
            sim.set_fault(Some(Fault::Stop { at }));
            let mut reported = Reported::default();
            // The last operations give the reservation back, which can't fail a fill.
            let _ = self.run(&sim, &mut reported);
            if sim.operation_count() <= at {
                return Err(format!("operation {at} of {count} was never reached"));
            }
            self.crash_each_way(&sim, reported, crashes, leftovers)
                .map_err(|error| format!("stop at {at} of {count}, {error}"))?;
        }
        Ok(count)
    }

    /// Leaves out one kind of sync on a store that is there already, and stops at each operation
    /// until something is wrong.
    fn stop_without(&self, skip: Skip) -> Result<(), String> {
        for at in 0..self.operations(Abilities::PLAIN) {
            let sim = Abilities::PLAIN.disk(1);
            open(&sim)?;
            sim.settle();
            sim.restart_count();
            sim.set_skip(Some(skip));
            sim.set_fault(Some(Fault::Stop { at }));
            let mut reported = Reported::default();
            let _ = self.run(&sim, &mut reported);
            self.crash_each_way(&sim, reported, ALL_CRASHES, Leftovers::None)?;
        }
        Ok(())
    }

    fn crash_each_way(
        &self,
        sim: &SimFs,
        reported: Reported,
        crashes: Crashes,
        leftovers: Leftovers,
    ) -> Result<(), String> {
        for (crash, seeds) in crashes {
            for seed in 0..*seeds {
                let after = sim.crash(*crash, seed);
                self.inspect(&after, reported)
                    .and_then(|()| self.heal(&after, leftovers))
                    .map_err(|error| format!("{crash:?} seed {seed}: {error}"))?;
            }
        }
        Ok(())
    }

    /// Fails every operation with an errno; answers the first thing wrong.
    fn fail_everywhere(&self, abilities: Abilities, make: fn(u64) -> Fault) -> Result<(), String> {
        for at in 0..self.operations(abilities) {
            let fault = make(at);
            let sim = abilities.disk(2);
            sim.set_fault(Some(fault));
            let mut reported = Reported::default();
            // Some operations are advice, so that a fill may succeed all the same.
            let ended = self.run(&sim, &mut reported);
            sim.set_fault(None);
            let wrong = self
                .inspect(&sim, reported)
                .and_then(|()| self.crash_each_way(&sim, reported, LOST, Leftovers::Temps))
                .and_then(|()| self.heal(&sim, Leftovers::None));
            wrong.map_err(|error| format!("{fault:?} ended with {ended:?}: {error}"))?;
        }
        Ok(())
    }

    fn operations(&self, abilities: Abilities) -> u64 {
        let sim = abilities.disk(1);
        let mut reported = Reported::default();
        assert_eq!(self.run(&sim, &mut reported), Ok(()));
        sim.operation_count()
    }
}

/// What a run may leave behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leftovers {
    None,
    Temps,
}

/// Ways to crash, with how many seeds each.
type Crashes = &'static [(Crash, u64)];

const LOST: Crashes = &[(Crash::Lost, 1)];

const ALL_CRASHES: Crashes = &[
    (Crash::Lost, 1),
    (Crash::Torn, 3),
    (Crash::Reordered, 6),
    (Crash::LostEntries, 1),
    (Crash::Kept, 1),
];

fn digest(payload: &[u8]) -> ObjectDigest {
    ObjectDigest(Digest::of(payload))
}

fn open(sim: &SimFs) -> Result<Store, String> {
    let config = StoreConfig::new(ROOT, STATE);
    Store::open(Arc::new(sim.clone()), sim.clock(), config).map_err(|error| error.to_string())
}

#[test]
fn a_stop_at_any_operation_leaves_all_or_nothing() {
    let count = small_fill()
        .stop_everywhere(Abilities::PLAIN, ALL_CRASHES)
        .expect("because publish is crash-safe");
    assert!(count > 60, "only {count} operations were counted");
}

#[test]
fn a_stop_is_as_harmless_without_unnamed_files() {
    for rename_without_replace in [true, false] {
        let abilities = Abilities {
            kind: FsKind::Nfs,
            unnamed_files: false,
            rename_without_replace,
        };
        small_fill()
            .stop_everywhere(
                abilities,
                &[(Crash::Lost, 1), (Crash::Torn, 1), (Crash::Reordered, 2)],
            )
            .expect("because publish is crash-safe");
    }
}

#[test]
fn a_stop_between_the_chunks_of_a_payload_is_as_harmless() {
    long_fill()
        .stop_everywhere(Abilities::PLAIN, &[(Crash::Lost, 1), (Crash::Reordered, 1)])
        .expect("because publish is crash-safe");
}

#[test]
fn an_error_at_any_operation_leaves_all_or_nothing_and_no_temp() {
    let faults: [fn(u64) -> Fault; 6] = [
        |at| Fault::Full { at },
        |at| error(at, FsErrorKind::NoSpace),
        |at| error(at, FsErrorKind::Quota),
        |at| error(at, FsErrorKind::Io),
        |at| error(at, FsErrorKind::ReadOnly),
        |at| error(at, FsErrorKind::Permission),
    ];
    for make in faults {
        small_fill()
            .fail_everywhere(Abilities::PLAIN, make)
            .expect("because a failed publish leaves nothing");
    }
    // Where temporary files have names, they are removed.
    let named = Abilities {
        unnamed_files: false,
        ..Abilities::PLAIN
    };
    small_fill()
        .fail_everywhere(named, faults[0])
        .expect("because a failed publish leaves nothing");
}

#[test]
fn a_publish_without_the_file_sync_is_caught() {
    let caught = small_fill().stop_without(Skip::FileSync);
    let error = caught.expect_err("because content is lost under a durable name");
    assert!(error.contains("corrupt"), "{error}");
}

#[test]
fn a_publish_without_the_folder_sync_is_caught() {
    let caught = small_fill().stop_without(Skip::DirSync);
    let error = caught.expect_err("because a reported object is lost");
    assert!(error.contains("is not in the store"), "{error}");
}

#[test]
fn a_disk_that_is_really_full_is_a_named_refusal() {
    let sim = Abilities::PLAIN.disk(3);
    let mut config = StoreConfig::new(ROOT, STATE);
    config.min_free_bytes = 0;
    config.max_bytes = Some(1 << 30);
    let store =
        Store::open(Arc::new(sim.clone()), sim.clock(), config).expect("because the disk is empty");
    let room = store
        .reserve(100_000, 0)
        .expect("because there is room yet");
    // Somebody else fills the disk between the reservation and the write.
    sim.set_total_bytes(120_000);
    sim.replace("/home/user/other", &payload(60_000), 0o644);
    let full = store
        .publish(&room, &payload(90_000), PublishOptions::default(), &|| {
            false
        })
        .expect_err("because it doesn't fit");
    assert!(full.is_full(), "{full}");
    assert_eq!(room.left_bytes(), 100_000);
    assert!(sim.files(format!("{ROOT}/v1/objects")).is_empty());
    store
        .publish(&room, &payload(9_000), PublishOptions::default(), &|| false)
        .expect("because a smaller one fits");
    assert_eq!(room.left_bytes(), 91_000);
}

fn error(at: u64, kind: FsErrorKind) -> Fault {
    Fault::Error { at, kind }
}
