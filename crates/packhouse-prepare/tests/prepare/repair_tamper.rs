//! The tamper matrix: each edit of a set is seen by verify under its own reason, healed by repair,
//! and nothing else is read or written.

use crate::prepare_world::{MODEL, ROOT, STATE, World, model_bytes};
use packhouse_base::digest::ObjectDigest;
use packhouse_pack::Packers;
use packhouse_prepare::model::Model;
use packhouse_prepare::prepare::{Order, Prepared, Quiet, SourceHash};
use packhouse_prepare::repair::{RepairError, Repaired, UnhealedReason, examine, heal};
use packhouse_sim::SimFs;
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::verify::SetVerification;
use std::num::NonZeroUsize;
use std::path::PathBuf;

/// A prepared set, and where its files are.
struct Scene {
    world: World,
    prepared: Prepared,
    manifest: SetManifest,
}

impl Scene {
    fn new() -> Self {
        let mut world = World::new();
        world.options.source_hash = SourceHash::Skip;
        let prepared = world.prepare().expect("because nothing is in the way");
        let manifest = world
            .store()
            .read_set(prepared.set)
            .expect("because it is there");
        Self {
            world,
            prepared,
            manifest,
        }
    }

    fn sim(&self) -> &SimFs {
        &self.world.sim
    }

    fn entry(&self, slot: u64) -> &ManifestEntry {
        let entry = self
            .manifest
            .entries()
            .iter()
            .find(|entry| entry.slot == slot);
        entry.expect("because it is a slot")
    }

    fn object(&self, slot: u64) -> PathBuf {
        let name = self.entry(slot).object.to_string();
        PathBuf::from(format!("{ROOT}/v1/objects/{}/{name}", &name[..2]))
    }

    fn pack(&self, slot: u64) -> PathBuf {
        let name = self.entry(slot).pack.to_string();
        PathBuf::from(format!("{ROOT}/v1/packs/{}/{name}", &name[..2]))
    }

    fn file(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("{ROOT}/v1/sets/{}/{name}", self.prepared.set))
    }

    fn container(&self) -> PathBuf {
        let files = self.sim().files(self.file("containers"));
        files.first().expect("because there is a record").clone()
    }

    fn found(&self) -> SetVerification {
        let diagnosis = examine(
            &self.world.store(),
            self.prepared.set,
            &Packers::detect(),
            NonZeroUsize::MIN,
            &Quiet,
        );
        diagnosis.found().clone()
    }

    fn repair(&self) -> Result<Repaired, RepairError> {
        let model = self
            .world
            .open_model(&[MODEL])
            .expect("because it is sound");
        let order = self.world.order(&model);
        self.repair_with(Some((&model, &order)))
    }

    fn repair_with(&self, source: Option<(&Model, &Order)>) -> Result<Repaired, RepairError> {
        let store = self.world.store();
        let set = self.prepared.set;
        let diagnosis = examine(&store, set, &Packers::detect(), NonZeroUsize::MIN, &Quiet);
        let options = &self.world.options;
        heal(&store, &diagnosis, source, options, &Quiet, &|| false)
    }

    /// Everything as it was: verify is content, the set's bytes are equal.
    fn must_be_whole(&self, context: &str) {
        let found = self.world.verify(&self.prepared);
        assert!(found.is_good(), "{context}: {found:?}");
        let store = self.world.store();
        assert_eq!(
            store.read_set(self.prepared.set),
            Ok(self.manifest.clone()),
            "{context}"
        );
        let again = self.world.prepare().expect("because all is there");
        assert_eq!(again.cost.source_bytes, 0, "{context}");
    }
}

/// All that verify says, in words.
fn said(found: &SetVerification) -> String {
    let files = found.problems.iter().map(ToString::to_string);
    let tensors = found
        .bad_tensors()
        .filter_map(|bad| bad.problem.as_ref())
        .map(|problem| format!("{}: {problem}", problem.reason()));
    files.chain(tensors).collect::<Vec<_>>().join("\n")
}

fn replace_text(sim: &SimFs, path: &PathBuf, from: &str, to: &str) {
    sim.edit(path, |bytes| {
        let text = String::from_utf8(bytes.clone()).expect("because it is text");
        assert!(text.contains(from), "{text}");
        *bytes = text.replace(from, to).into_bytes();
    });
}

type Tamper = fn(&Scene);

/// What is done, which words verify has for it, and how many things repair heals.
const MATRIX: [(&str, Tamper, &str, usize); 22] = [
    (
        "a flipped byte with the times restored",
        |scene| scene.sim().rot(scene.object(2), |bytes| bytes[7] ^= 1),
        "corrupt: ",
        1,
    ),
    (
        "a flipped byte",
        |scene| scene.sim().edit(scene.object(2), |bytes| bytes[7] ^= 1),
        "corrupt: ",
        1,
    ),
    (
        "an object replaced by rename",
        |scene| scene.sim().replace(scene.object(2), &[1; 720], 0o444),
        "corrupt: ",
        1,
    ),
    (
        "a truncated object",
        |scene| scene.sim().edit(scene.object(2), |bytes| bytes.truncate(9)),
        "length: ",
        1,
    ),
    (
        "a symlink in an object's place",
        |scene| {
            scene.sim().remove(scene.object(2));
            scene.sim().symlink(scene.object(2), "/etc/passwd", 1000);
        },
        "not_regular: ",
        1,
    ),
    (
        "an object that others can write to",
        |scene| scene.sim().set_mode(scene.object(2), 0o666),
        "writable: ",
        1,
    ),
    (
        "an object of a stranger",
        |scene| scene.sim().set_owner(scene.object(2), 4242),
        "owner: ",
        1,
    ),
    (
        "an object that is gone",
        |scene| scene.sim().remove(scene.object(2)),
        "missing: ",
        1,
    ),
    (
        "two objects swapped",
        |scene| scene.sim().swap(scene.object(1), scene.object(4)),
        "corrupt: ",
        // Slots 4 and 6 differ; 1 and 6 have one content.
        3,
    ),
    (
        "an edited record",
        |scene| {
            replace_text(
                scene.sim(),
                &scene.pack(2),
                "\"length\":720",
                "\"length\":721",
            )
        },
        "disagrees: ",
        1,
    ),
    (
        "a torn record",
        |scene| scene.sim().edit(scene.pack(2), |bytes| bytes.truncate(30)),
        "corrupt: ",
        1,
    ),
    (
        "a record that is gone",
        |scene| scene.sim().remove(scene.pack(2)),
        "missing: ",
        1,
    ),
    (
        "a record of another object",
        |scene| {
            let (own, other) = (scene.entry(1).object, scene.entry(4).object);
            replace_text(
                scene.sim(),
                &scene.pack(1),
                &own.to_string(),
                &other.to_string(),
            );
        },
        "disagrees: ",
        2,
    ),
    (
        "a manifest of another object",
        |scene| {
            let (own, other) = (scene.entry(2).object, ObjectDigest(scene.entry(2).pack.0));
            let path = scene.file("manifest.json");
            replace_text(scene.sim(), &path, &own.to_string(), &other.to_string());
        },
        "disagrees: ",
        2,
    ),
    (
        "a manifest that is no JSON",
        |scene| {
            let path = scene.file("manifest.json");
            scene.sim().edit(path, |bytes| bytes.truncate(50));
        },
        "manifest: ",
        1,
    ),
    (
        "a manifest of another plan",
        |scene| {
            let path = scene.file("manifest.json");
            replace_text(scene.sim(), &path, "\"turned\"", "\"burned\"");
        },
        "its content has key",
        1,
    ),
    (
        "a manifest that others can write to",
        |scene| scene.sim().set_mode(scene.file("manifest.json"), 0o666),
        "others than its owner can change it",
        1,
    ),
    (
        "an edited index",
        |scene| {
            replace_text(
                scene.sim(),
                &scene.file("runtime-index.tsv"),
                "\t720",
                "\t721",
            )
        },
        "line 3",
        1,
    ),
    (
        "an index that is gone",
        |scene| scene.sim().remove(scene.file("runtime-index.tsv")),
        "is not there",
        1,
    ),
    (
        "an index that is a symlink",
        |scene| {
            scene.sim().remove(scene.file("runtime-index.tsv"));
            let path = scene.file("runtime-index.tsv");
            scene.sim().symlink(path, "/etc/passwd", 1000);
        },
        "is a symlink",
        1,
    ),
    (
        "an edited container record",
        |scene| replace_text(scene.sim(), &scene.container(), "skipped", "hashed1"),
        "container record ",
        1,
    ),
    (
        "no container record",
        |scene| scene.sim().remove(scene.container()),
        "no container record",
        1,
    ),
];

#[test]
fn every_tamper_is_seen_for_its_own_reason_and_healed() {
    for (what, tamper, reason, count) in MATRIX {
        let scene = Scene::new();
        tamper(&scene);
        let seen = scene.found();
        assert!(!seen.is_good(), "{what} was not seen");
        assert!(said(&seen).contains(reason), "{what}: {}", said(&seen));
        let repaired = scene
            .repair()
            .unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(repaired.is_good(), "{what}: {repaired:?}");
        assert_eq!(repaired.done.len(), count, "{what}: {:?}", repaired.done);
        scene.must_be_whole(what);
        let nothing = scene.repair().expect("because nothing is wrong");
        assert!(nothing.is_good() && nothing.done.is_empty(), "{what}");
    }
}

/// The private logs of prepare and repair have the fields of `docs/format/state.md`, no others.
#[test]
fn run_logs_are_as_documented() {
    let scene = Scene::new();
    scene.sim().edit(scene.object(2), |bytes| bytes[7] ^= 1);
    assert!(
        scene
            .repair()
            .expect("because the model is there")
            .is_good()
    );
    let document = include_str!("../../../../docs/format/state.md");
    let table = document
        .split("## 6. Run log")
        .nth(1)
        .expect("because it is a section");
    let logs = scene.sim().files(STATE).into_iter().filter(|path| {
        let folder = path.parent().and_then(|folder| folder.file_name());
        folder.is_some_and(|name| name == "runs")
    });
    let mut commands = Vec::new();
    for path in logs {
        let bytes = scene.sim().read(path).expect("because it is there");
        let log: serde_json::Value = serde_json::from_slice(&bytes).expect("because it is JSON");
        let fields = log.as_object().expect("because it has fields");
        for (field, value) in fields {
            assert!(table.contains(&format!("`{field}`")), "{field}");
            assert!(value.is_u64() || value.is_string(), "{field}: {value}");
        }
        commands.push(fields["command"].to_string());
    }
    assert_eq!(commands, ["\"prepare\"", "\"repair\""]);
}

#[test]
fn many_tampers_at_once_are_healed_at_once() {
    let scene = Scene::new();
    for (what, tamper, ..) in [MATRIX[1], MATRIX[12], MATRIX[17], MATRIX[20]] {
        assert!(!what.is_empty());
        tamper(&scene);
    }
    let repaired = scene.repair().expect("because the model is there");
    assert!(repaired.is_good(), "{repaired:?}");
    scene.must_be_whole("all at once");
}

#[test]
fn a_hard_link_into_the_store_is_hashed_at_each_use_and_no_damage() {
    let scene = Scene::new();
    scene.sim().hard_link(scene.object(2), "/home/user/stolen");
    assert!(scene.found().is_good());
    let again = scene.world.prepare().expect("because its bytes are right");
    assert_eq!(again.cost.reverified_count, 1);
}

#[test]
fn files_of_the_set_are_healed_without_its_model() {
    let scene = Scene::new();
    replace_text(
        scene.sim(),
        &scene.file("runtime-index.tsv"),
        "\t720",
        "\t721",
    );
    let repaired = scene
        .repair_with(None)
        .expect("because the manifest is good");
    assert!(repaired.is_good(), "{repaired:?}");
    scene.must_be_whole("index");
}

#[test]
fn without_its_model_a_damaged_pack_is_told_and_nothing_is_done() {
    let scene = Scene::new();
    scene.sim().edit(scene.object(2), |bytes| bytes[7] ^= 1);
    let error = scene
        .repair_with(None)
        .expect_err("because the model is needed");
    let text = format!(
        "set {} can be repaired from its model only",
        scene.prepared.set
    );
    assert_eq!(error.to_string(), text);
}

#[test]
fn another_model_heals_nothing_and_enters_no_set() {
    let scene = Scene::new();
    scene.sim().edit(scene.object(2), |bytes| bytes[7] ^= 1);
    scene.sim().replace(MODEL, &model_bytes(40), 0o644);
    let repaired = scene.repair().expect("because it was tried");
    assert!(!repaired.is_good());
    let [unhealed] = repaired.unhealed.as_slice() else {
        panic!("{repaired:?}");
    };
    assert_eq!(
        (unhealed.slot, unhealed.tensor.as_str()),
        (2, "blk.0.down.weight")
    );
    assert!(
        matches!(unhealed.why, UnhealedReason::OtherPack { expected, .. }
            if expected == scene.entry(2).pack),
        "{unhealed:?}"
    );
    let store = scene.world.store();
    assert_eq!(
        store.read_set(scene.prepared.set),
        Ok(scene.manifest.clone())
    );
    // The right model heals it.
    scene.sim().replace(MODEL, &model_bytes(0), 0o644);
    assert!(scene.repair().expect("because it is the model").is_good());
    assert!(scene.world.verify(&scene.prepared).is_good());
}

#[test]
fn a_plan_without_the_slot_heals_nothing_else_wrongly() {
    let scene = Scene::new();
    scene.sim().edit(scene.object(2), |bytes| bytes[7] ^= 1);
    let model = scene
        .world
        .open_model(&[MODEL])
        .expect("because it is sound");
    let mut order = scene.world.order(&model);
    order.items.retain(|item| item.slot != 2);
    let repaired = scene
        .repair_with(Some((&model, &order)))
        .expect("because it was tried");
    assert_eq!(repaired.unhealed[0].why, UnhealedReason::NotChosen);
    assert!(!repaired.is_good());
}

#[test]
fn a_damaged_manifest_takes_no_other_set() {
    let scene = Scene::new();
    scene
        .sim()
        .edit(scene.file("manifest.json"), |bytes| bytes.truncate(50));
    scene.sim().replace(MODEL, &model_bytes(40), 0o644);
    let error = scene
        .repair()
        .expect_err("because the model makes another set");
    assert!(
        matches!(error, RepairError::OtherSet { expected, .. } if expected == scene.prepared.set),
        "{error}"
    );
    // Neither the other set nor the loss of this one: the right model still finds and heals it.
    assert_eq!(
        scene.world.store().list_sets(),
        Ok(vec![scene.prepared.set])
    );
    scene.sim().replace(MODEL, &model_bytes(0), 0o644);
    assert!(scene.repair().expect("because it is the model").is_good());
    assert!(scene.world.verify(&scene.prepared).is_good());
}
