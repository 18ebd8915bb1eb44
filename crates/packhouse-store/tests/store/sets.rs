//! Sets: published whole, listed, verified slot by slot, removed; every tampering has its own
//! reason.

use crate::fixture::{Fixture, container, manifest};
use packhouse_base::digest::{Digest, ObjectDigest, SetKey};
use packhouse_store::manifest::SetManifest;
use packhouse_store::pins::PinError;
use packhouse_store::publish::SmallOutcome;
use packhouse_store::rm::RemoveError;
use packhouse_store::set::{SetError, SetMiss, SetOutcome};
use packhouse_store::verify::{Depth, SetVerification};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const DEEP: Depth = Depth::Deep {
    threads: NonZeroUsize::MIN.saturating_add(1),
};

fn verify(fixture: &Fixture, set: SetKey, depth: Depth) -> SetVerification {
    fixture.store.verify_set(set, depth, &|_| ())
}

/// All problems of a verification, one line each.
fn problems(found: &SetVerification) -> Vec<String> {
    let set = found.problems.iter().map(ToString::to_string);
    let tensors = found.bad_tensors().map(|tensor| {
        let problem = tensor.problem.as_ref().expect("because it is bad");
        format!("{}: {}: {problem}", tensor.entry.slot, problem.reason())
    });
    set.chain(tensors).collect()
}

/// Makes a file of the store writable and replaces its content.
fn overwrite(path: &Path, bytes: &[u8]) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).expect("ours");
    std::fs::write(path, bytes).expect("because it is ours");
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).expect("because it was published");
    let edited = text.replacen(from, to, 1);
    assert_ne!(text, edited, "{from}");
    overwrite(path, edited.as_bytes());
}

fn object_path(fixture: &Fixture, object: ObjectDigest) -> PathBuf {
    let name = object.to_string();
    fixture.v1("objects").join(&name[..2]).join(name)
}

fn set_path(fixture: &Fixture, set: SetKey, file: &str) -> PathBuf {
    fixture.v1("sets").join(set.to_string()).join(file)
}

#[test]
fn a_published_set_is_read_listed_and_good() {
    let fixture = Fixture::new();
    let set = fixture.set("identity", &[b"one", b"two", b"one"]);
    assert_eq!(fixture.store.read_set(set.key()), Ok(set.clone()));
    assert_eq!(fixture.store.list_sets(), Ok(vec![set.key()]));
    let index = fixture
        .store
        .read_index(set.key())
        .expect("because it is there");
    assert_eq!(set.verify_index(&index), Ok(()));
    let records = fixture.store.read_container_records(set.key());
    let records = records.expect("because they are there");
    assert_eq!(records.records, [container("model.gguf")]);
    assert_eq!(
        problems(&verify(&fixture, set.key(), Depth::Shallow)),
        [""; 0]
    );
    let deep = verify(&fixture, set.key(), DEEP);
    assert!(deep.is_good());
    assert_eq!((deep.hashed_count, deep.hashed_bytes), (2, 6));
    let again = fixture.store.publish_set(&set, &container("model.gguf"));
    assert_eq!(again, Ok(SetOutcome::Equal));
    let other = fixture
        .store
        .add_container_record(set.key(), &container("b.gguf"));
    assert_eq!(other, Ok(SetOutcome::Created));
    let records = fixture.store.read_container_records(set.key());
    assert_eq!(records.expect("because they are there").records.len(), 2);
}

#[test]
fn many_publishers_of_one_set_make_it_once() {
    let fixture = Fixture::new();
    let entries = vec![
        fixture.tensor(0, "a", b"one"),
        fixture.tensor(1, "b", b"two"),
    ];
    let set = manifest("identity", entries);
    let outcomes: Vec<_> = std::thread::scope(|scope| {
        let publish = || fixture.reopen().publish_set(&set, &container("m.gguf"));
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(publish)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join();
        threads.into_iter().map(join).collect()
    });
    let outcomes: Vec<_> = outcomes
        .into_iter()
        .map(|o| o.expect("because none panics"))
        .collect();
    assert_eq!(
        outcomes
            .iter()
            .filter(|o| **o == Ok(SetOutcome::Created))
            .count(),
        1
    );
    assert_eq!(
        outcomes
            .iter()
            .filter(|o| **o == Ok(SetOutcome::Equal))
            .count(),
        7
    );
    assert!(verify(&fixture, set.key(), DEEP).is_good());
}

#[test]
fn a_set_is_not_published_over_a_pack_that_is_absent_or_disagrees() {
    let fixture = Fixture::new();
    let mut entry = fixture.tensor(0, "a", b"one");
    entry.length += 1;
    let wrong = manifest("p", vec![entry.clone()]);
    let error = fixture.store.publish_set(&wrong, &container("m.gguf"));
    assert!(
        matches!(error, Err(SetError::Disagrees { slot: 0, .. })),
        "{error:?}"
    );
    entry.pack.0 = Digest::of(b"no such pack");
    let wrong = manifest("p", vec![entry]);
    let error = fixture.store.publish_set(&wrong, &container("m.gguf"));
    assert!(
        matches!(error, Err(SetError::Pack { slot: 0, .. })),
        "{error:?}"
    );
    assert_eq!(fixture.store.list_sets(), Ok(vec![]));
}

#[test]
fn each_tampered_file_of_a_set_is_refused_for_its_own_reason_and_healed_by_publishing() {
    let cases: [(&str, &str, &str, &str); 6] = [
        ("manifest.json", "\"slot\":1", "\"slot\":7", "has key"),
        ("manifest.json", "\"plan\"", "\"plam\"", "plan: absent"),
        ("manifest.json", "\n", "", "not canonical"),
        (
            "runtime-index.tsv",
            "\t3\n",
            "\t4\n",
            "index: line 2: expected",
        ),
        (
            "runtime-index.tsv",
            "index-1",
            "index-2",
            "expected the head line",
        ),
        (
            "runtime-index.tsv",
            "\t3\n",
            "\t3",
            "index: line 2: expected 5 fields, found 9",
        ),
    ];
    for (file, from, to, reason) in cases {
        let fixture = Fixture::new();
        let set = fixture.set("identity", &[b"one", b"two"]);
        edit(&set_path(&fixture, set.key(), file), from, to);
        let found = problems(&verify(&fixture, set.key(), Depth::Shallow));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(reason), "{found:?}");
        assert!(!found[0].contains("no set"), "{found:?}");
        let healed = fixture.store.publish_set(&set, &container("model.gguf"));
        assert_eq!(healed, Ok(SetOutcome::Repaired));
        assert!(verify(&fixture, set.key(), DEEP).is_good());
    }
}

#[test]
fn a_container_record_is_believed_under_its_own_name_only() {
    let fixture = Fixture::new();
    let set = fixture.key_of("identity", &[b"one"]);
    let folder = set_path(&fixture, set, "containers");
    let record = folder.join(format!("{}.json", container("model.gguf").name()));
    edit(&record, "model.gguf", "other.gguf");
    let found = problems(&verify(&fixture, set, Depth::Shallow));
    assert!(found[0].contains("its content hashes to"), "{found:?}");
    std::fs::rename(&record, folder.join("note.json")).expect("because it is ours");
    let found = problems(&verify(&fixture, set, Depth::Shallow));
    assert!(found[0].contains("not named by a digest"), "{found:?}");
    std::fs::remove_file(folder.join("note.json")).expect("because it is ours");
    let found = problems(&verify(&fixture, set, Depth::Shallow));
    assert!(found[0].contains("no container record"), "{found:?}");
}

#[test]
fn files_of_a_set_that_others_can_change_are_refused() {
    for file in ["manifest.json", "runtime-index.tsv"] {
        let fixture = Fixture::new();
        let set = fixture.key_of("identity", &[b"one"]);
        let path = set_path(&fixture, set, file);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o664)).expect("ours");
        let found = problems(&verify(&fixture, set, Depth::Shallow));
        assert!(found[0].contains("mode 0664"), "{found:?}");
        std::fs::remove_file(&path).expect("because it is ours");
        std::os::unix::fs::symlink("/etc/passwd", &path).expect("because the name is free");
        let found = problems(&verify(&fixture, set, Depth::Shallow));
        assert!(found[0].contains("is a symlink"), "{found:?}");
    }
}

#[test]
fn each_bad_slot_has_its_own_reason_and_damage_is_never_missing() {
    let fixture = Fixture::new();
    let set = fixture.set("identity", &[b"one", b"two", b"three", b"four", b"five!"]);
    let entries = set.entries();
    // Slot 1: a flipped byte, which only a deep look finds. Slot 2: a cut object.
    overwrite(&object_path(&fixture, entries[1].object), b"twO");
    overwrite(&object_path(&fixture, entries[2].object), b"thre");
    // Slot 3: an edited record. Slot 4: an object that is really gone.
    let pack = entries[3].pack.to_string();
    let pack = fixture.v1("packs").join(&pack[..2]).join(&pack);
    edit(&pack, "\"length\":4", "\"length\":5");
    std::fs::remove_file(object_path(&fixture, entries[4].object)).expect("because it is ours");

    let shallow = problems(&verify(&fixture, set.key(), Depth::Shallow));
    let reasons: Vec<_> = shallow
        .iter()
        .map(|line| &line[..line.len().min(12)])
        .collect();
    assert_eq!(
        reasons,
        ["2: length: o", "3: disagrees", "4: missing: "],
        "{shallow:?}"
    );
    let deep = problems(&verify(&fixture, set.key(), DEEP));
    assert!(deep[0].starts_with("1: corrupt:"), "{deep:?}");
    // Both damaged objects are in quarantine now, and are said to be.
    assert!(deep[1].starts_with("2: quarantined:"), "{deep:?}");
    let later = problems(&verify(&fixture, set.key(), DEEP));
    assert!(later[0].starts_with("1: quarantined:"), "{later:?}");
    // Publishing again heals what publishing can.
    for payload in [&b"two"[..], b"three", b"four", b"five!"] {
        fixture.tensor(9, "again", payload);
    }
    assert_eq!(problems(&verify(&fixture, set.key(), DEEP)), [""; 0]);
}

#[test]
fn swapped_objects_of_equal_length_are_caught_by_hashing_both() {
    let fixture = Fixture::new();
    let set = fixture.set("identity", &[b"one", b"two"]);
    let [a, b] = [0, 1].map(|slot: usize| object_path(&fixture, set.entries()[slot].object));
    let aside = fixture.path().join("aside");
    for (source, target) in [(&a, &aside), (&b, &a), (&aside, &b)] {
        std::fs::rename(source, target).expect("because they are ours");
    }
    let found = problems(&verify(&fixture, set.key(), DEEP));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found.iter().all(|line| line.contains(": corrupt:")),
        "{found:?}"
    );
}

#[test]
fn an_unfinished_set_is_no_set() {
    let fixture = Fixture::new();
    let set = fixture.key_of("identity", &[b"one"]);
    std::fs::remove_file(set_path(&fixture, set, "manifest.json")).expect("because it is ours");
    assert_eq!(fixture.store.list_sets(), Ok(vec![]));
    assert_eq!(fixture.store.read_set(set), Err(SetMiss::Absent { set }));
}

#[test]
fn a_pinned_set_is_not_removed_and_an_unpinned_one_is() {
    let fixture = Fixture::new();
    let [kept, gone] = [b"one", b"two"].map(|payload| fixture.key_of("identity", &[payload]));
    assert_eq!(fixture.store.pin("prod", kept), Ok(SmallOutcome::Created));
    assert_eq!(fixture.store.pin("prod", kept), Ok(SmallOutcome::Equal));
    let taken = fixture.store.pin("prod", gone);
    assert!(matches!(taken, Err(PinError::Taken { actual, .. }) if actual == kept));
    for name in ["", ".hidden", "a/b", "..", "sp ace"] {
        let error = fixture.store.pin(name, kept);
        assert!(matches!(error, Err(PinError::Name { .. })), "{name}");
    }
    let error = fixture
        .store
        .remove_set(kept)
        .expect_err("because it is pinned");
    assert!(matches!(error, RemoveError::Pinned { pin, .. } if pin == "prod"));
    assert_eq!(fixture.store.remove_set(gone), Ok(()));
    assert_eq!(
        fixture.store.remove_set(gone),
        Err(RemoveError::Absent { set: gone })
    );
    assert_eq!(fixture.store.list_sets(), Ok(vec![kept]));
    assert_eq!(fixture.store.unpin("prod"), Ok(()));
    let absent = PinError::Absent {
        name: "prod".into(),
    };
    assert_eq!(fixture.store.unpin("prod"), Err(absent));
    assert_eq!(fixture.store.remove_set(kept), Ok(()));
    assert!(!fixture.v1("sets").join(kept.to_string()).exists());
}

#[test]
fn a_damaged_pin_is_named_and_keeps_sets_from_being_removed() {
    let fixture = Fixture::new();
    let [a, b] = [b"one", b"two"].map(|payload| fixture.key_of("identity", &[payload]));
    fixture
        .store
        .pin("prod", a)
        .expect("because the set is there");
    edit(&fixture.v1("pins/prod"), "\"set\"", "\"sot\"");
    let pins = fixture.store.pins().expect("because they can be listed");
    assert!(pins.refused["prod"].to_string().contains("set: absent"));
    let error = fixture
        .store
        .remove_set(b)
        .expect_err("because the pin may be its own");
    assert!(matches!(error, RemoveError::PinRefused { .. }));
    assert_eq!(fixture.store.unpin("prod"), Ok(()));
    assert_eq!(fixture.store.remove_set(b), Ok(()));
}

#[test]
fn a_read_only_store_is_read_and_not_changed() {
    let fixture = Fixture::new();
    let set = fixture.set("identity", &[b"one"]);
    let store = fixture.reopen_read_only();
    assert!(store.verify_set(set.key(), DEEP, &|_| ()).is_good());
    assert!(store.publish_set(&set, &container("new.gguf")).is_err());
    assert!(store.pin("p", set.key()).is_err());
    assert!(store.unpin("p").is_err());
    assert!(matches!(
        store.remove_set(set.key()),
        Err(RemoveError::ReadOnly { .. })
    ));
}

#[test]
fn scrub_hashes_oldest_first_within_its_budget_and_reports_rot() {
    let fixture = Fixture::new();
    let set = fixture.set("identity", &[b"one", b"two", b"six"]);
    fixture.clock.add_ns(10_000_000_000);
    let first = fixture
        .store
        .scrub(6, &|_| ())
        .expect("because it can be listed");
    assert_eq!((first.hashed_count, first.hashed_bytes), (2, 6));
    assert_eq!(
        (first.left_count, first.left_bytes, first.oldest_left_ns),
        (1, 3, None)
    );
    let second = fixture
        .store
        .scrub(3, &|_| ())
        .expect("because it can be listed");
    assert_eq!((second.hashed_count, second.left_count), (1, 2));
    assert!(
        second.oldest_left_ns.is_some(),
        "the third object was never hashed"
    );
    // Bit rot: other bytes, the same times, so that no stat shows it.
    let path = object_path(&fixture, set.entries()[1].object);
    overwrite(&path, b"twO");
    let all = fixture
        .store
        .scrub(u64::MAX, &|_| ())
        .expect("because it can be listed");
    assert_eq!(
        (all.object_count, all.hashed_count, all.refused.len()),
        (3, 3, 1)
    );
    assert_eq!(all.refused[0].reason(), "corrupt");
    assert!(!path.exists(), "it stays under its name");
    let none = fixture
        .store
        .scrub(0, &|_| ())
        .expect("because it can be listed");
    assert_eq!(none.hashed_count, 1, "a small budget never ends");
}

#[test]
fn a_survey_counts_own_and_shared_bytes_once() {
    let fixture = Fixture::new();
    let a = fixture.key_of("a", &[b"only a", b"shared"]);
    // Now: the publisher of another set may find an object that is 100 ms old, and proves it.
    let survey = fixture.store.survey().expect("because it can be listed");
    assert_eq!(survey.sets[0].trust().name(), "none");
    let b = fixture.key_of("b", &[b"shared", b"bb"]);
    fixture.tensor(0, "loose", b"loose bytes");
    fixture.store.pin("keep", a).expect("because it is there");
    let uses = fixture.store.use_log().expect("because state is there");
    uses.note_set(b, Some(Path::new("/m/b.gguf")), 5)
        .expect("ours");
    let survey = fixture.store.survey().expect("because it can be listed");
    let of = |key: SetKey| {
        let found = survey.sets.iter().find(|set| set.set == key);
        found.expect("because it was published")
    };
    assert_eq!((of(a).own_bytes, of(a).shared_bytes), (6, 6));
    assert_eq!((of(b).own_bytes, of(b).shared_bytes), (2, 6));
    assert_eq!(of(a).pins, ["keep"]);
    assert_eq!(
        (of(b).last_use_ns, of(b).container_files.len()),
        (Some(5), 1)
    );
    assert_eq!((survey.object_count, survey.object_bytes), (4, 25));
    assert_eq!((survey.loose_bytes, survey.shared_bytes), (11, 6));
    fixture.clock.add_ns(10_000_000_000);
    fixture
        .store
        .scrub(u64::MAX, &|_| ())
        .expect("because it can be listed");
    let survey = fixture.store.survey().expect("because it can be listed");
    assert!(
        survey
            .sets
            .iter()
            .all(|set| set.trust().name() == "receipt")
    );
}

#[test]
fn doctor_says_what_the_host_can_and_what_is_wrong() {
    let fixture = Fixture::new();
    let set = fixture.key_of("a", &[b"one"]);
    fixture.store.pin("p", set).expect("because it is there");
    edit(&fixture.v1("pins/p"), "\"set\"", "\"sot\"");
    let report = fixture.store.examine().expect("because it can be listed");
    assert_eq!(report.survey.sets.len(), 1);
    assert_eq!(report.damaged_pins.len(), 1);
    assert!(
        report
            .advice
            .contains(&packhouse_store::doctor::Advice::RemoveDamagedPin)
    );
    assert!(report.state_problem.is_none());
    assert!(report.host.kernel_release.is_some());
    assert!(report.host.file_system.total_bytes > 0);
}

#[test]
fn the_manifest_of_a_set_holds_no_date_and_no_path() {
    let [one, other] = [Fixture::new(), Fixture::new()];
    other.clock.add_ns(crate::fixture::DAY_NS);
    let sets = [&one, &other].map(|fixture| fixture.set("identity", &[b"one", b"two"]));
    assert_eq!(sets[0], sets[1]);
    for file in ["manifest.json", "runtime-index.tsv"] {
        let [a, b] = [&one, &other].map(|fixture| {
            std::fs::read(set_path(fixture, sets[0].key(), file)).expect("because it is there")
        });
        assert_eq!(a, b);
    }
    assert!(SetManifest::parse(sets[0].key(), &sets[0].render()).is_ok());
}
