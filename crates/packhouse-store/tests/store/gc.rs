//! gc: the plan by properties, the run by its effects.

use crate::fixture::{DAY_NS, Fixture};
use packhouse_base::digest::{Digest, ObjectDigest, PackKey, SetKey};
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::gc::{GcError, GcOptions, GcReport};
use packhouse_store::gc_plan::{Census, GcPlan, GcPolicy, ObjectCensus, PackCensus, SetCensus};
use packhouse_store::gc_plan::{SetGone, plan};
use packhouse_store::ledger::SourceLedger;
use packhouse_store::verify::Depth;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd as _;
use std::os::unix::fs::PermissionsExt as _;

const DAY_S: u64 = 24 * 60 * 60;

fn object(index: u8) -> ObjectDigest {
    ObjectDigest(Digest::of(&[b'o', index]))
}

fn pack(index: u8) -> PackKey {
    PackKey(Digest::of(&[b'p', index]))
}

fn set(index: u8) -> SetKey {
    SetKey(Digest::of(&[b's', index]))
}

/// Ages on both sides of each grace.
fn age_s() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(DAY_S), Just(14 * DAY_S), 0..30 * DAY_S]
}

fn set_census() -> impl Strategy<Value = SetCensus> {
    (
        proptest::collection::btree_set(0u8..12, 0..6),
        proptest::bool::weighted(0.2),
        age_s(),
        proptest::option::of(age_s()),
        proptest::collection::btree_set("[ab]", 0..2),
        proptest::bool::ANY,
    )
        .prop_map(
            |(content, pinned, age_s, last_use_age_s, containers, exists)| SetCensus {
                content: content
                    .into_iter()
                    .map(|i| (pack(i), object(i / 2)))
                    .collect(),
                pinned,
                age_s,
                last_use_age_s,
                container_exists: exists && !containers.is_empty(),
                containers,
            },
        )
}

fn census() -> impl Strategy<Value = Census> {
    (
        proptest::collection::vec(set_census(), 0..6),
        proptest::collection::vec((proptest::bool::weighted(0.9), age_s()), 12),
        proptest::collection::vec((1u64..100, age_s()), 8),
    )
        .prop_map(|(sets, packs, objects)| Census {
            sets: (0..)
                .zip(sets)
                .map(|(i, census)| (set(i), census))
                .collect(),
            packs: (0..)
                .zip(packs)
                .map(|(i, (readable, age_s))| {
                    let object = readable.then_some(object(i / 2));
                    (pack(i), PackCensus { object, age_s })
                })
                .collect(),
            objects: (0..)
                .zip(objects)
                .map(|(i, (length, age_s))| (object(i), ObjectCensus { length, age_s }))
                .collect(),
        })
}

fn policy() -> impl Strategy<Value = GcPolicy> {
    proptest::option::of(0u64..500).prop_map(|max_bytes| GcPolicy {
        max_bytes,
        ..GcPolicy::default()
    })
}

fn kept_sets<'a>(census: &'a Census, plan: &'a GcPlan) -> impl Iterator<Item = &'a SetCensus> {
    let kept = census
        .sets
        .iter()
        .filter(|(key, _)| !plan.sets.contains_key(key));
    kept.map(|(_, set)| set)
}

fn bytes(census: &Census, objects: &BTreeSet<ObjectDigest>) -> u64 {
    objects
        .iter()
        .map(|digest| census.objects[digest].length)
        .sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn nothing_that_a_kept_name_names_is_removed(census in census(), policy in policy()) {
        let plan = plan(&census, &policy);
        for set in kept_sets(&census, &plan) {
            for (pack, object) in &set.content {
                prop_assert!(!plan.packs.contains(pack));
                prop_assert!(!plan.objects.contains(object));
            }
        }
        for (key, pack) in &census.packs {
            if !plan.packs.contains(key) && let Some(object) = pack.object {
                prop_assert!(!plan.objects.contains(&object));
            }
        }
    }

    #[test]
    fn pins_and_the_young_stay_whatever_the_cap(census in census(), policy in policy()) {
        let plan = plan(&census, &policy);
        for (key, set) in &census.sets {
            prop_assert!(!(set.pinned && plan.sets.contains_key(key)));
        }
        for key in &plan.packs {
            prop_assert!(census.packs[key].age_s >= policy.loose_grace_s);
        }
        for digest in &plan.objects {
            prop_assert!(census.objects[digest].age_s >= policy.loose_grace_s);
        }
    }

    #[test]
    fn a_root_goes_only_over_the_cap(census in census(), policy in policy()) {
        let plan = plan(&census, &policy);
        for (key, gone) in &plan.sets {
            let set = &census.sets[key];
            let used = set.last_use_age_s.is_some_and(|age_s| age_s < policy.set_grace_s);
            let root = set.age_s < policy.set_grace_s || used || set.container_exists;
            match gone {
                SetGone::Unrooted => prop_assert!(!root && !set.pinned),
                SetGone::OverCap => prop_assert!(root && policy.max_bytes.is_some()),
            }
        }
    }

    #[test]
    fn the_cap_is_reached_when_that_is_possible(census in census(), policy in policy()) {
        let plan = plan(&census, &policy);
        let all: BTreeSet<_> = census.objects.keys().copied().collect();
        let kept: BTreeSet<_> = all.difference(&plan.objects).copied().collect();
        prop_assert_eq!(plan.kept_bytes, bytes(&census, &kept));
        prop_assert_eq!(plan.removed_bytes, bytes(&census, &plan.objects));
        let Some(max_bytes) = policy.max_bytes else {
            return Ok(());
        };
        prop_assert_eq!(plan.above_cap_bytes, plan.kept_bytes.saturating_sub(max_bytes));
        if plan.above_cap_bytes > 0 {
            // Above the cap, only pins and the young are left: the same census with every other set
            // gone keeps no byte less.
            let mut least = census.clone();
            least.sets.retain(|_, set| set.pinned);
            let least = plan_bytes(&least, &policy);
            prop_assert_eq!(plan.kept_bytes, least);
        }
    }

    #[test]
    fn no_set_is_evicted_for_nothing(census in census(), policy in policy()) {
        let plan = plan(&census, &policy);
        for (key, gone) in &plan.sets {
            if *gone == SetGone::OverCap {
                let frees = census.sets[key].content.iter().any(|(pack, object)| {
                    let other = census.packs.get(pack).and_then(|pack| pack.object);
                    plan.objects.contains(object)
                        || other.is_some_and(|other| plan.objects.contains(&other))
                });
                prop_assert!(frees);
            }
        }
    }

    #[test]
    fn a_second_gc_finds_nothing(census in census(), policy in policy()) {
        let first = plan(&census, &policy);
        let mut rest = census;
        rest.sets.retain(|key, _| !first.sets.contains_key(key));
        rest.packs.retain(|key, _| !first.packs.contains(key));
        rest.objects.retain(|digest, _| !first.objects.contains(digest));
        let second = plan(&rest, &policy);
        prop_assert_eq!(second.sets, BTreeMap::new());
        prop_assert_eq!(second.packs, BTreeSet::new());
        prop_assert_eq!(second.objects, BTreeSet::new());
    }
}

fn plan_bytes(census: &Census, policy: &GcPolicy) -> u64 {
    plan(census, policy).kept_bytes
}

#[test]
fn sets_of_one_container_never_evict_each_other_before_an_older_container() {
    let census_of = |content: u8, containers: &str, last_use_age_s: u64| SetCensus {
        content: vec![(pack(content * 2), object(content))],
        pinned: false,
        age_s: 20 * DAY_S,
        last_use_age_s: Some(last_use_age_s),
        containers: BTreeSet::from([containers.to_owned()]),
        container_exists: true,
    };
    let census = Census {
        // Two sets of one container, one of them long unused, and one of a container unused for a
        // day.
        sets: BTreeMap::from([
            (set(0), census_of(0, "a", 10)),
            (set(1), census_of(1, "a", 10 * DAY_S)),
            (set(2), census_of(2, "b", DAY_S)),
        ]),
        packs: BTreeMap::new(),
        objects: (0..3)
            .map(|i| {
                (
                    object(i),
                    ObjectCensus {
                        length: 10,
                        age_s: 20 * DAY_S,
                    },
                )
            })
            .collect(),
    };
    let policy = GcPolicy {
        max_bytes: Some(20),
        ..GcPolicy::default()
    };
    let plan = plan(&census, &policy);
    assert_eq!(plan.sets, BTreeMap::from([(set(2), SetGone::OverCap)]));
}

fn gc(fixture: &Fixture, options: GcOptions) -> GcReport {
    let report = fixture
        .store
        .gc(&options)
        .expect("because the store is private");
    assert_eq!(report.failures, [""; 0]);
    report
}

fn run(fixture: &Fixture) -> GcReport {
    gc(fixture, GcOptions::default())
}

fn objects_on_disk(fixture: &Fixture) -> usize {
    let folders = std::fs::read_dir(fixture.v1("objects")).expect("because it is there");
    let count = |folder: std::io::Result<std::fs::DirEntry>| {
        let path = folder.expect("because it can be read").path();
        std::fs::read_dir(path)
            .expect("because it is a folder")
            .count()
    };
    folders.map(count).sum()
}

#[test]
fn a_young_store_loses_nothing_and_a_dry_run_changes_nothing() {
    let fixture = Fixture::new();
    fixture.set("a", &[b"one", b"two"]);
    fixture.tensor(0, "loose", b"loose");
    let report = run(&fixture);
    assert_eq!((report.plan.sets.len(), report.plan.objects.len()), (0, 0));
    fixture.clock.add_ns(15 * DAY_NS);
    let dry = gc(
        &fixture,
        GcOptions {
            dry_run: true,
            ..GcOptions::default()
        },
    );
    assert_eq!(
        (
            dry.plan.sets.len(),
            dry.plan.packs.len(),
            dry.plan.objects.len()
        ),
        (1, 3, 3)
    );
    assert_eq!(objects_on_disk(&fixture), 3);
    assert!(
        fixture
            .store
            .list_sets()
            .expect("because it can be listed")
            .len()
            == 1
    );
    let real = run(&fixture);
    let same = GcReport {
        dry_run: false,
        freed: real.freed,
        ..dry
    };
    assert_eq!(real, same);
    assert_eq!(objects_on_disk(&fixture), 0);
    assert_eq!(fixture.store.list_sets(), Ok(vec![]));
    let again = run(&fixture);
    assert_eq!((again.plan, again.quarantine.count), (GcPlan::default(), 0));
}

#[test]
fn a_pin_a_use_and_an_existing_container_each_keep_a_set() {
    let fixture = Fixture::new();
    let payloads: [&[u8]; 4] = [b"pinned", b"used", b"exists", b"gone"];
    let [pinned, used, exists, gone] = payloads.map(|p| fixture.key_of("p", &[p]));
    fixture.clock.add_ns(15 * DAY_NS);
    let now_ns = packhouse_sys::clock::Clock::wall_ns(&*fixture.clock);
    let uses = fixture.store.use_log().expect("because state is there");
    let container = fixture.path().join("model.gguf");
    std::fs::write(&container, b"GGUF").expect("because it is ours");
    let absent = fixture.path().join("gone.gguf");
    fixture.store.pin("p", pinned).expect("because it is there");
    uses.note_set(used, Some(&absent), now_ns - DAY_NS)
        .expect("ours");
    uses.note_set(exists, Some(&container), now_ns - 15 * DAY_NS)
        .expect("ours");
    uses.note_set(gone, Some(&absent), now_ns - 15 * DAY_NS)
        .expect("ours");
    let report = run(&fixture);
    assert_eq!(
        report.plan.sets,
        BTreeMap::from([(gone, SetGone::Unrooted)])
    );
    assert_eq!(report.plan.removed_bytes, 4);
    assert!(report.freed.now_bytes > 0);
    for set in [pinned, used, exists] {
        let deep = Depth::Deep {
            threads: std::num::NonZeroUsize::MIN,
        };
        assert!(fixture.store.verify_set(set, deep, &|_| ()).is_good());
    }
    std::fs::remove_file(&container).expect("because it is ours");
    assert_eq!(
        run(&fixture).plan.sets.keys().collect::<Vec<_>>(),
        [&exists]
    );
}

#[test]
fn a_cap_evicts_the_least_recently_used_set_and_spares_what_is_shared() {
    let fixture = Fixture::new();
    let old = fixture.key_of("old", &[b"shared", b"old only"]);
    let new = fixture.key_of("new", &[b"shared", b"new only"]);
    fixture.clock.add_ns(2 * DAY_NS);
    let now_ns = packhouse_sys::clock::Clock::wall_ns(&*fixture.clock);
    let uses = fixture.store.use_log().expect("because state is there");
    uses.note_set(new, None, now_ns)
        .expect("because it is ours");
    let policy = GcPolicy {
        max_bytes: Some(14),
        ..GcPolicy::default()
    };
    let report = gc(
        &fixture,
        GcOptions {
            policy,
            ..GcOptions::default()
        },
    );
    assert_eq!(report.plan.sets, BTreeMap::from([(old, SetGone::OverCap)]));
    assert_eq!(
        (report.plan.kept_bytes, report.plan.above_cap_bytes),
        (14, 0)
    );
    assert!(
        fixture
            .store
            .verify_set(new, Depth::Shallow, &|_| ())
            .is_good()
    );
}

#[test]
fn temps_quarantine_and_private_records_of_what_is_gone_are_removed_when_old() {
    let fixture = Fixture::new();
    let set = fixture.set("a", &[b"one"]);
    let uses = fixture.store.use_log().expect("because state is there");
    uses.keep_run(5, 7, b"{}\n").expect("because it is ours");
    fixture.clock.add_ns(10_000_000_000);
    fixture
        .store
        .scrub(u64::MAX, &|_| ())
        .expect("because it can be listed");
    std::fs::write(fixture.v1("objects/.tmp-00"), b"half").expect("because it is ours");
    std::fs::write(fixture.state("runs/.tmp-01"), b"half").expect("because it is ours");
    std::fs::write(fixture.v1("objects/note"), b"not ours").expect("because it is ours");
    std::fs::write(fixture.v1("quarantine/x.y"), b"bad").expect("because it is ours");
    let unfinished = fixture.v1("sets").join(Digest::of(b"u").to_string());
    std::fs::create_dir(&unfinished).expect("because it is ours");
    let young = run(&fixture);
    assert_eq!((young.temps.count, young.quarantine.count), (0, 0));
    assert_eq!(young.foreign, [fixture.v1("objects/note")]);
    fixture.clock.add_ns(15 * DAY_NS);
    let old = run(&fixture);
    assert_eq!(old.plan.sets.keys().collect::<Vec<_>>(), [&set.key()]);
    assert_eq!((old.temps.count, old.temps.bytes), (2, 8));
    assert_eq!((old.quarantine.count, old.quarantine.bytes), (1, 3));
    assert_eq!((old.unfinished_sets.count, old.receipts.count), (1, 1));
    assert!(!unfinished.exists() && fixture.v1("objects/note").exists());
    let receipts = fixture.store.receipts().expect("because state is there");
    assert_eq!(receipts.objects(), Ok(vec![]));
}

#[test]
fn damage_blocks_nothing_but_a_damaged_pin_keeps_every_set() {
    let fixture = Fixture::new();
    let [bad, gone] = [b"bad", b"old"].map(|payload| fixture.key_of("p", &[payload]));
    let manifest = fixture
        .v1("sets")
        .join(bad.to_string())
        .join("manifest.json");
    let loosen = |path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).expect("ours");
    };
    loosen(&manifest);
    std::fs::write(&manifest, b"{}\n").expect("because it is ours");
    fixture.store.pin("p", gone).expect("because it is there");
    let pin = fixture.v1("pins/p");
    loosen(&pin);
    std::fs::write(&pin, b"{}\n").expect("because it is ours");
    fixture.clock.add_ns(15 * DAY_NS);
    let report = run(&fixture);
    assert_eq!((report.damaged.len(), report.plan.sets.len()), (2, 0));
    fixture.store.unpin("p").expect("because it is there");
    let report = run(&fixture);
    assert_eq!((report.damaged.len(), report.plan.sets.len()), (1, 2));
}

#[test]
fn the_ledger_of_a_living_container_stays_however_old_it_is() {
    let fixture = Fixture::new();
    let set = fixture.key_of("a", &[b"one"]);
    let record = ["shard1.gguf", "shard2.gguf"].map(|name| ContainerFile {
        name: name.into(),
        size: 4,
        digest: None,
    });
    let paths = record.clone().map(|file| fixture.path().join(file.name));
    let record = ContainerRecord::new(record.to_vec(), Admission::Skipped);
    let record = record.expect("because the files are plain");
    fixture
        .store
        .add_container_record(set, &record)
        .expect("because the set is there");
    let sources = fixture.store.sources().expect("because state is there");
    let stats = paths.clone().map(|path| {
        std::fs::write(&path, b"GGUF").expect("because it is ours");
        let file = std::fs::File::open(&path).expect("because it was written");
        packhouse_sys::real::identity_of_fd(file.as_fd()).expect("because it is open")
    });
    fixture.clock.add_ns(10_000_000_000);
    let now_ns = packhouse_sys::clock::Clock::wall_ns(&*fixture.clock);
    for stat in stats {
        let ledger = SourceLedger::new(stat, Digest::of(b"d"), BTreeMap::new());
        sources.extend(&ledger, now_ns).expect("because it is ours");
    }
    // Only the first shard's path is in the use log.
    let uses = fixture.store.use_log().expect("because state is there");
    uses.note_set(set, Some(&paths[0]), now_ns).expect("ours");
    fixture.clock.add_ns(20 * DAY_NS);
    assert_eq!(run(&fixture).sources.count, 0);
    assert!(stats.iter().all(|stat| sources.lookup(stat).is_ok()));
    std::fs::remove_file(&paths[1]).expect("because it is ours");
    assert_eq!(run(&fixture).sources.count, 1);
    assert!(sources.lookup(&stats[0]).is_ok() && sources.lookup(&stats[1]).is_err());
}

#[test]
fn a_dry_run_moves_no_damaged_record_away() {
    let fixture = Fixture::new();
    let key = fixture.tensor(0, "a", b"one").pack.to_string();
    let path = fixture.v1("packs").join(&key[..2]).join(&key);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("ours");
    std::fs::write(&path, b"{}\n").expect("because it is ours");
    fixture.clock.add_ns(2 * DAY_NS);
    let options = GcOptions {
        dry_run: true,
        ..GcOptions::default()
    };
    let dry = gc(&fixture, options);
    assert_eq!((dry.damaged.len(), dry.plan.packs.len()), (1, 1));
    assert!(path.exists());
    assert_eq!(run(&fixture).plan, dry.plan);
    assert!(!path.exists());
}

#[test]
fn a_store_that_others_reach_needs_the_owners_word() {
    let fixture = Fixture::new();
    let open = |path: &std::path::Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("ours");
    };
    open(&fixture.path().join("root"));
    // The folder above lets nobody in, not even where the root would.
    gc(&fixture, GcOptions::default());
    open(fixture.path());
    let error = fixture
        .store
        .gc(&GcOptions::default())
        .expect_err("because others reach it");
    assert!(matches!(error, GcError::Shared { .. }), "{error}");
    gc(
        &fixture,
        GcOptions {
            shared: true,
            ..GcOptions::default()
        },
    );
    let error = fixture.reopen_read_only().gc(&GcOptions::default());
    assert!(matches!(error, Err(GcError::ReadOnly { .. })));
}

#[test]
fn an_object_with_another_name_is_not_called_freed() {
    let fixture = Fixture::new();
    let entry = fixture.tensor(0, "a", &[7; 8192]);
    let name = entry.object.to_string();
    let path = fixture.v1("objects").join(&name[..2]).join(&name);
    std::fs::hard_link(&path, fixture.path().join("other")).expect("because it is ours");
    fixture.clock.add_ns(2 * DAY_NS);
    let report = run(&fixture);
    assert_eq!(report.plan.objects.len(), 1);
    assert_eq!((report.freed.now_bytes, report.freed.later_bytes), (0, 0));
    assert!(report.freed.linked_bytes >= 8192);
}

#[test]
fn a_gc_beside_fillers_leaves_no_pack_without_its_object() {
    let fixture = Fixture::new();
    let payloads: Vec<Vec<u8>> = (0u8..40).map(|index| vec![index; 100]).collect();
    // Old loose objects: what a gc removes, and what a filler finds in place, at the same time.
    for payload in &payloads {
        fixture.tensor(0, "old", payload);
    }
    fixture.clock.add_ns(2 * DAY_NS);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut report_count = 0;
            while report_count < 5 {
                // Fillers that sync for long keep a gc off, which says so and removes nothing.
                match fixture.reopen().gc(&GcOptions::default()) {
                    Ok(_) => report_count += 1,
                    Err(GcError::Busy { .. }) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        });
        scope.spawn(|| {
            for payload in &payloads {
                // A filler that is told its object is gone packs again: at the next start, in use.
                let _ = fixture.try_tensor(0, "new", payload);
            }
        });
    });
    for payload in &payloads {
        let key = crate::fixture::identity(payload).key();
        if let Ok(record) = fixture.store.lookup_pack(&key) {
            let object = fixture
                .store
                .object_for_sample(&record.object, record.length);
            assert!(object.is_ok(), "{object:?}");
        }
    }
}
