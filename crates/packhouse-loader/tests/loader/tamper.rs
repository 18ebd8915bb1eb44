//! Whatever is done to the store, the region gets the right bytes, one line says why, and the load
//! after that maps everything again.

use crate::fake::PLAIN;
use crate::world::{Model, SMALL, World, edit_file, restore_mtime};
use packhouse_base::digest::{ObjectDigest, PackKey};
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// What is done, and what the load after it says.
struct Case {
    name: &'static str,
    harm: fn(&Harmed),
    /// Reason of the tally and its tensors; none when the packs are only verified anew.
    refused: Option<(&'static str, u64)>,
    /// What the line has to say.
    says: &'static str,
}

/// A store with packs, and two of them that are alike but for their bytes.
struct Harmed {
    world: World,
    records: Vec<(PackKey, PathBuf)>,
    objects: Vec<(ObjectDigest, PathBuf)>,
}

impl Harmed {
    fn new() -> (Self, Model) {
        let world = World::new();
        let model = world.model("a.gguf", SMALL, 1);
        world.fill(PLAIN, &[&model]);
        let store = world.store();
        let set = store.list_sets().expect("because the store is sound")[0];
        let manifest = store.read_set(set).expect("because it was published");
        let v1 = world.root().join("v1");
        let file = |folder: &str, name: String| v1.join(folder).join(&name[..2]).join(name);
        let entries = manifest.entries();
        assert_eq!(entries.len(), 4);
        let records = entries
            .iter()
            .map(|e| (e.pack, file("packs", e.pack.to_string())));
        let objects = entries
            .iter()
            .map(|e| (e.object, file("objects", e.object.to_string())));
        let (records, objects) = (records.collect(), objects.collect());
        let harmed = Self {
            world,
            records,
            objects,
        };
        (harmed, model)
    }

    /// The object of `blk.0.ffn_up.weight`; `blk.1.ffn_up.weight` is like it.
    fn object(&self) -> &Path {
        &self.objects[1].1
    }

    fn record(&self) -> &Path {
        &self.records[1].1
    }

    fn edit_record(&self, from: &str, to: &str) {
        let text = fs::read_to_string(self.record()).expect("because it was published");
        assert!(text.contains(from), "{text}");
        let edited = text.replacen(from, to, 1);
        edit_file(self.record(), |file| {
            file.set_len(0).expect("because it is writable");
            file.write_all_at(edited.as_bytes(), 0)
                .expect("because it is writable");
        });
    }

    fn receipts(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.world.path("state")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("because it is there") {
                let path = entry.expect("because it was listed").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.components().any(|part| part.as_os_str() == "receipts") {
                    found.push(path);
                }
            }
        }
        assert_eq!(found.len(), 4);
        found
    }
}

const CASES: &[Case] = &[
    Case {
        name: "a flipped byte, its mtime restored",
        harm: |harmed| {
            let object = harmed.object();
            let mtime = fs::metadata(object)
                .and_then(|m| m.modified())
                .expect("it is there");
            edit_file(object, |file| {
                file.write_all_at(b"x", 1000)
                    .expect("because it is writable");
                restore_mtime(file, mtime);
            });
        },
        refused: Some(("corrupt", 1)),
        says: "is corrupt: ",
    },
    Case {
        name: "a cut object",
        harm: |harmed| {
            edit_file(harmed.object(), |file| {
                file.set_len(3000).expect("because it is writable");
            });
        },
        refused: Some(("length", 1)),
        says: "has 3000 bytes, expected 3264",
    },
    Case {
        name: "an object that is gone",
        harm: |harmed| fs::remove_file(harmed.object()).expect("because it is there"),
        refused: Some(("missing", 1)),
        says: "is not in the store",
    },
    Case {
        name: "two objects of one length in each other's place",
        harm: |harmed| {
            let (one, other) = (harmed.object(), &harmed.objects[3].1);
            let aside = harmed.world.path("aside");
            fs::rename(one, &aside).expect("because it is there");
            fs::rename(other, one).expect("because it is there");
            fs::rename(aside, other).expect("because it is there");
        },
        refused: Some(("corrupt", 2)),
        says: "is corrupt: ",
    },
    Case {
        name: "an object that all may write",
        harm: |harmed| {
            let mode = Permissions::from_mode(0o666);
            fs::set_permissions(harmed.object(), mode).expect("because it is ours");
        },
        refused: Some(("writable", 1)),
        says: "has mode 0666, others can write to it",
    },
    Case {
        name: "a symlink in an object's place",
        harm: |harmed| {
            let aside = harmed.world.path("aside");
            fs::rename(harmed.object(), &aside).expect("because it is there");
            std::os::unix::fs::symlink(aside, harmed.object()).expect("because it is free");
        },
        refused: Some(("not_regular", 1)),
        says: "is a symlink",
    },
    Case {
        name: "an object with a second name",
        harm: |harmed| {
            let name = harmed.world.path("second");
            fs::hard_link(harmed.object(), name).expect("because it is there");
        },
        refused: None,
        says: "; 1 verified anew (3.1 KiB)",
    },
    Case {
        name: "a record with other dims",
        harm: |harmed| harmed.edit_record("[64,48]", "[64,40]"),
        refused: Some(("corrupt", 1)),
        says: "the identity in the record has key ",
    },
    Case {
        name: "a record that is no record",
        harm: |harmed| harmed.edit_record("{", "["),
        refused: Some(("corrupt", 1)),
        says: "is corrupt: ",
    },
    Case {
        name: "a record with another length",
        harm: |harmed| harmed.edit_record("\"length\":3264", "\"length\":3260"),
        refused: Some(("length", 1)),
        says: "has 3260 bytes, 3264 are wanted",
    },
    Case {
        name: "a record with an object that nobody has",
        harm: |harmed| {
            let object = harmed.objects[1].0.to_string();
            harmed.edit_record(&object, &"0".repeat(64));
        },
        refused: Some(("missing", 1)),
        says: "is not in the store",
    },
    Case {
        name: "a record that all may write",
        harm: |harmed| {
            let mode = Permissions::from_mode(0o666);
            fs::set_permissions(harmed.record(), mode).expect("because it is ours");
        },
        refused: Some(("untrusted", 1)),
        says: "with mode 0666",
    },
    Case {
        name: "receipts that are gone",
        harm: |harmed| {
            for receipt in harmed.receipts() {
                fs::remove_file(receipt).expect("because it is there");
            }
        },
        refused: None,
        says: "; 4 verified anew (11.1 KiB)",
    },
    Case {
        name: "receipts that were edited",
        harm: |harmed| {
            for receipt in harmed.receipts() {
                let text = fs::read_to_string(&receipt).expect("because it is there");
                let edited = text.replace("\"mode\":292", "\"mode\":293");
                assert_ne!(text, edited);
                fs::write(&receipt, edited).expect("because it is ours");
            }
        },
        refused: None,
        says: "; 4 verified anew (11.1 KiB)",
    },
];

#[test]
fn what_is_done_to_a_store_is_named_costs_no_byte_and_heals() {
    for case in CASES {
        let (harmed, model) = Harmed::new();
        (case.harm)(&harmed);
        // `load` asserts the bytes of every region.
        let outcome = harmed.world.load(PLAIN, &[&model]);
        let refused = case.refused.map_or(0, |(_, tensors)| tensors);
        let counts = [4 - refused, 0, refused, refused];
        assert_eq!(outcome.counts(), counts, "{}: {outcome:#?}", case.name);
        if let Some((reason, tensors)) = case.refused {
            assert_eq!(outcome.reason("refused", reason), tensors, "{}", case.name);
        }
        assert!(
            outcome.line.contains(case.says),
            "{}: {}",
            case.name,
            outcome.line
        );
        outcome.assert_fill("done");
        assert_eq!(outcome.warnings(), [""; 0], "{}", case.name);
        let next = harmed.world.load(PLAIN, &[&model]);
        next.assert_all_mapped(&[&model]);
        assert_eq!(next.warnings(), [""; 0], "{}", case.name);
    }
}

/// Both objects are intact and the packer is deterministic, so the record is what is wrong: it goes
/// to quarantine and the next start maps everything.
#[test]
fn a_record_that_names_the_intact_object_of_another_pack_is_replaced() {
    let (harmed, model) = Harmed::new();
    let (ours, theirs) = (
        harmed.objects[1].0.to_string(),
        harmed.objects[3].0.to_string(),
    );
    harmed.edit_record(&ours, &theirs);
    let outcome = harmed.world.load(PLAIN, &[&model]);
    assert_eq!(outcome.counts(), [3, 0, 1, 1]);
    assert_eq!(outcome.reason("refused", "sample"), 1);
    let told = outcome.warnings();
    assert!(
        told[0].contains("the pack's record is wrong; moved to"),
        "{told:?}"
    );
    outcome.assert_fill("done");
    let next = harmed.world.load(PLAIN, &[&model]);
    next.assert_all_mapped(&[&model]);
    assert_eq!(next.warnings(), [""; 0]);
}

/// The same for bytes in no file, which no ledger ever knows: each start hashes them.
#[test]
fn a_wrong_record_is_replaced_for_bytes_in_no_file_too() {
    let (harmed, model) = Harmed::new();
    let (ours, theirs) = (
        harmed.objects[1].0.to_string(),
        harmed.objects[3].0.to_string(),
    );
    harmed.edit_record(&ours, &theirs);
    for refused in [1, 0] {
        let session = harmed.world.session(PLAIN);
        let mut run = session.begin(0, &[&model]);
        for index in 0..4 {
            let copy = model.read(index);
            run.serve_from(&model, index, &copy);
            run.assert_right(&model, index, &copy);
        }
        let outcome = run.outcome();
        outcome.assert_fill("done");
        assert_eq!(outcome.counts(), [4 - refused, 0, refused, refused]);
    }
}

#[test]
fn a_damaged_set_is_published_again_by_the_next_load() {
    let (harmed, model) = Harmed::new();
    let set = harmed
        .world
        .store()
        .list_sets()
        .expect("because the store is sound")[0];
    let manifest = harmed
        .world
        .root()
        .join(format!("v1/sets/{set}/manifest.json"));
    edit_file(&manifest, |file| {
        file.write_all_at(b"{{", 0).expect("because it is writable");
    });
    assert!(harmed.world.store().read_set(set).is_err());
    harmed
        .world
        .load(PLAIN, &[&model])
        .assert_all_mapped(&[&model]);
    harmed
        .world
        .store()
        .read_set(set)
        .expect("because it was repaired");
}
