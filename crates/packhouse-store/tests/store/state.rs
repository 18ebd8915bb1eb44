//! Receipts, source ledgers, uses and run logs: what is believed, what is refused and why.

use crate::fixture::Fixture;
use packhouse_base::digest::{Digest, ObjectDigest, SetKey, TensorDigest};
use packhouse_store::ledger::{SegmentRefusal, SourceLedger, SourceMiss, SourceRange};
use packhouse_store::receipt::{Receipt, ReceiptMiss};
use packhouse_store::state::{Recorded, STAT_SETTLE_FINE_NS, StateError};
use packhouse_store::use_log::{RUN_BYTES_MAX, RUNS_MAX, USE_STEP_NS, UseRefusal};
use packhouse_sys::stat::{FsId, StatIdentity};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

type Change = fn(&mut StatIdentity);

const NOW_NS: i64 = 1_700_000_000_000_000_000;

fn stat() -> StatIdentity {
    StatIdentity {
        file_system: FsId::Uuid([7; 16]),
        inode: 42,
        generation: Some(9),
        size: 1000,
        mtime_ns: 5,
        ctime_ns: 6,
        uid: 1000,
        mode: 0o644,
    }
}

fn object() -> ObjectDigest {
    ObjectDigest(Digest::of(b"payload"))
}

fn receipt() -> Receipt {
    Receipt {
        object: object(),
        stat: stat(),
        verified_ns: NOW_NS,
    }
}

fn ledger(ranges: &[(u64, u64, &str)]) -> SourceLedger {
    let tensors: BTreeMap<_, _> = ranges
        .iter()
        .map(|(offset, length, content)| {
            let range = SourceRange {
                offset: *offset,
                length: *length,
            };
            (range, TensorDigest(Digest::of(content.as_bytes())))
        })
        .collect();
    SourceLedger::new(stat(), Digest::of(b"directory"), tensors)
}

/// Edits a private file in place, keeping its name.
fn edit(path: &Path, from: &str, to: &str) {
    let text = std::fs::read_to_string(path).expect("because it was written");
    let edited = text.replacen(from, to, 1);
    assert_ne!(text, edited, "{from}");
    std::fs::write(path, edited).expect("because it is ours");
}

fn only_file(folder: &Path) -> PathBuf {
    let mut files = std::fs::read_dir(folder).expect("because it was made");
    let file = files.next().expect("because a file is there");
    assert!(files.next().is_none(), "more than one file");
    file.expect("because it can be read").path()
}

#[test]
fn a_receipt_holds_for_the_identity_it_names_and_no_other() {
    let fixture = Fixture::new();
    let receipts = fixture.store.receipts().expect("because state is there");
    assert_eq!(
        receipts.find(object()),
        Err(ReceiptMiss::Absent { object: object() })
    );
    assert_eq!(receipts.record(&receipt()), Ok(Recorded::Written));
    assert_eq!(receipts.find_for(object(), &stat()), Ok(receipt()));
    let changes: [(Change, &str); 8] = [
        (|s| s.file_system = FsId::Device(7), "file system"),
        (|s| s.inode = 1, "inode"),
        (|s| s.generation = None, "inode generation"),
        (|s| s.size = 1, "size"),
        (|s| s.mtime_ns = 1, "mtime"),
        (|s| s.ctime_ns = 1, "ctime"),
        (|s| s.uid = 0, "owner"),
        (|s| s.mode = 0o600, "mode"),
    ];
    for (change, name) in changes {
        let mut live = stat();
        change(&mut live);
        let miss = receipts.find_for(object(), &live).expect_err(name);
        assert!(matches!(miss, ReceiptMiss::Stale { field, .. } if field == name));
    }
    assert_eq!(receipts.objects(), Ok(vec![object()]));
    receipts.forget(object()).expect("because it is ours");
    receipts
        .forget(object())
        .expect("because an absent one is fine");
    assert_eq!(receipts.objects(), Ok(vec![]));
}

#[test]
fn an_identity_that_is_not_settled_is_not_recorded() {
    let fixture = Fixture::new();
    let receipts = fixture.store.receipts().expect("because state is there");
    let settle_ns = i64::try_from(STAT_SETTLE_FINE_NS).expect("because it is small");
    let young = Receipt {
        stat: StatIdentity {
            ctime_ns: NOW_NS - settle_ns + 1,
            ..stat()
        },
        ..receipt()
    };
    assert_eq!(receipts.record(&young), Ok(Recorded::NotYet { wait_ns: 1 }));
    assert!(receipts.find(object()).is_err());
    let sources = fixture.store.sources().expect("because state is there");
    let recorded = sources.extend(&ledger(&[(0, 10, "a")]), 6);
    assert_eq!(
        recorded,
        Ok(Recorded::NotYet {
            wait_ns: STAT_SETTLE_FINE_NS
        })
    );
    assert!(sources.lookup(&stat()).is_err());
}

#[test]
fn each_tampered_receipt_is_refused_for_its_own_reason() {
    let name = object().to_string();
    let edits: [(&str, &str, &str); 6] = [
        ("\"inode\":42", "\"inode\":43", "checksum"),
        ("\"ctime_ns\":6", "\"ctime_ns\":7", "checksum"),
        ("receipt/1", "receipt/2", "schema: expected"),
        (
            "\"mode\":",
            "\"made\":0,\"mode\":",
            "stat.made: unknown field",
        ),
        ("uuid:07", "uuid:7", "stat.file_system: expected"),
        ("\n", "", "not canonical"),
    ];
    for (from, to, reason) in edits {
        let fixture = Fixture::new();
        let receipts = fixture.store.receipts().expect("because state is there");
        receipts.record(&receipt()).expect("because it is ours");
        let path = fixture.state("receipts").join(&name[..2]).join(&name);
        edit(&path, from, to);
        let miss = receipts.find_for(object(), &stat()).expect_err(reason);
        assert!(miss.to_string().contains(reason), "{miss}");
        // It heals: the next record takes its place.
        receipts.record(&receipt()).expect("because it is ours");
        assert_eq!(receipts.find_for(object(), &stat()), Ok(receipt()));
    }
}

#[test]
fn a_receipt_of_another_object_is_refused() {
    let fixture = Fixture::new();
    let receipts = fixture.store.receipts().expect("because state is there");
    receipts.record(&receipt()).expect("because it is ours");
    let other = ObjectDigest(Digest::of(b"other"));
    let place = |object: ObjectDigest| {
        let name = object.to_string();
        fixture.state("receipts").join(&name[..2]).join(name)
    };
    let target = place(other);
    std::fs::create_dir_all(target.parent().expect("because it has one")).expect("ours");
    std::fs::copy(place(object()), target).expect("because both are ours");
    assert_eq!(
        receipts.find(other),
        Err(ReceiptMiss::OtherObject {
            object: other,
            actual: object(),
        })
    );
}

#[test]
fn a_ledger_is_the_union_of_what_its_writers_learnt() {
    let fixture = Fixture::new();
    let sources = fixture.store.sources().expect("because state is there");
    assert!(matches!(
        sources.lookup(&stat()),
        Err(SourceMiss::Absent { .. })
    ));
    let parts: Vec<_> = (0..20).map(|part| [(part * 10, 10, "x")]).collect();
    for part in &parts {
        let recorded = sources.extend(&ledger(part), NOW_NS);
        assert_eq!(recorded, Ok(Recorded::Written));
    }
    let all: Vec<_> = parts.into_iter().flatten().collect();
    let found = sources.lookup(&stat()).expect("because it was written");
    assert_eq!(found.ledger, ledger(&all));
    assert_eq!(found.refused, []);
    let exact = SourceRange {
        offset: 10,
        length: 10,
    };
    assert!(found.ledger.tensor(exact).is_some());
    assert!(
        found
            .ledger
            .tensor(SourceRange { length: 9, ..exact })
            .is_none()
    );
    let place = only_file(&fixture.state("sources"));
    let segments = std::fs::read_dir(place)
        .expect("because it was made")
        .count();
    assert!(segments <= 9, "{segments} segments were never merged");
}

#[test]
fn a_changed_file_has_no_ledger_and_its_next_one_replaces_the_old() {
    let fixture = Fixture::new();
    let sources = fixture.store.sources().expect("because state is there");
    sources
        .extend(&ledger(&[(0, 10, "a")]), NOW_NS)
        .expect("ours");
    let changed = StatIdentity {
        ctime_ns: 7,
        ..stat()
    };
    let miss = sources.lookup(&changed).expect_err("because ctime differs");
    assert!(
        matches!(miss, SourceMiss::Stale { field: "ctime", .. }),
        "{miss}"
    );
    let next = SourceLedger::new(changed, Digest::of(b"directory"), BTreeMap::new());
    sources.extend(&next, NOW_NS).expect("because it is ours");
    assert!(sources.lookup(&changed).is_ok());
    let miss = sources
        .lookup(&stat())
        .expect_err("because it was replaced");
    assert!(matches!(miss, SourceMiss::Stale { .. }), "{miss}");
}

#[test]
fn each_tampered_segment_is_refused_for_its_own_reason_and_healed_by_the_next_writer() {
    let fixture = Fixture::new();
    let sources = fixture.store.sources().expect("because state is there");
    let learnt = ledger(&[(0, 10, "a"), (10, 10, "b")]);
    sources.extend(&learnt, NOW_NS).expect("because it is ours");
    let segment = only_file(&only_file(&fixture.state("sources")));
    let good = std::fs::read_to_string(&segment).expect("because it was written");

    edit(&segment, "\"offset\":10", "\"offset\":20");
    let miss = sources.lookup(&stat()).expect_err("because it was edited");
    assert!(
        matches!(miss, SourceMiss::Refused(SegmentRefusal::Content { .. })),
        "{miss}"
    );

    // Under the name that its own bytes give, each wrong content still has its reason.
    let wrong = [
        ("\"offset\":10", "\"offset\":991", "leave a file of 1000"),
        ("\"offset\":10", "\"offset\":0", "does not rise"),
        ("source/1", "source/3", "schema: expected"),
        (
            "\"size\":1000",
            "\"size\":1000,\"t\":0",
            "stat.t: unknown field",
        ),
        ("\"directory\":\"", "\"directory\":\"x", "directory: not 64"),
    ];
    let folder = segment.parent().expect("because it has one").to_owned();
    std::fs::remove_file(&segment).expect("because it is ours");
    for (from, to, reason) in wrong {
        let edited = good.replacen(from, to, 1);
        assert_ne!(edited, good, "{from}");
        let path = folder.join(Digest::of(edited.as_bytes()).to_string());
        std::fs::write(&path, edited).expect("because it is ours");
        let miss = sources.lookup(&stat()).expect_err(reason);
        assert!(miss.to_string().contains(reason), "{miss}");
        sources.extend(&learnt, NOW_NS).expect("because it is ours");
        assert!(!path.exists(), "the damaged segment stays");
        let found = sources.lookup(&stat()).expect("because it was healed");
        assert_eq!((found.ledger, found.refused), (learnt.clone(), vec![]));
        std::fs::remove_file(only_file(&folder)).expect("because it is ours");
    }
}

#[test]
fn segments_that_contradict_each_other_are_all_refused() {
    let fixture = Fixture::new();
    let sources = fixture.store.sources().expect("because state is there");
    let learnt = ledger(&[(0, 10, "a")]);
    sources.extend(&learnt, NOW_NS).expect("because it is ours");
    let folder = only_file(&fixture.state("sources"));
    let good = std::fs::read_to_string(only_file(&folder)).expect("because it was written");
    let digest = Digest::of(b"a").to_string();
    let edited = good.replacen(&digest, &Digest::of(b"z").to_string(), 1);
    let name = Digest::of(edited.as_bytes()).to_string();
    std::fs::write(folder.join(name), edited).expect("because it is ours");
    let miss = sources.lookup(&stat()).expect_err("because they disagree");
    assert!(
        matches!(
            miss,
            SourceMiss::Refused(SegmentRefusal::Digest { offset: 0, .. })
        ),
        "{miss}"
    );
    sources.extend(&learnt, NOW_NS).expect("because it is ours");
    let found = sources
        .lookup(&stat())
        .expect("because the next writer settles it");
    assert_eq!(found.ledger, learnt);
}

#[test]
fn two_writers_at_once_lose_nothing() {
    let fixture = Fixture::new();
    let sources = fixture.store.sources().expect("because state is there");
    std::thread::scope(|scope| {
        for writer in 0..4u64 {
            let sources = sources.clone();
            scope.spawn(move || {
                for step in 0..15 {
                    let offset = (writer * 15 + step) * 10;
                    sources
                        .extend(&ledger(&[(offset, 10, "x")]), NOW_NS)
                        .expect("because it is ours");
                }
            });
        }
    });
    let found = sources.lookup(&stat()).expect("because it was written");
    assert_eq!(found.ledger.tensors().len(), 60);
    assert_eq!(found.refused, []);
}

#[test]
fn a_use_is_noted_once_an_hour_per_container_path() {
    let fixture = Fixture::new();
    let uses = fixture.store.use_log().expect("because state is there");
    let set = SetKey(Digest::of(b"set"));
    let paths = [Path::new("/m/a.gguf"), Path::new("/m/odd \t%.gguf")];
    uses.note_set(set, Some(paths[0]), NOW_NS).expect("ours");
    uses.note_set(set, Some(paths[0]), NOW_NS + 1)
        .expect("ours");
    uses.note_set(set, Some(paths[1]), NOW_NS + 2)
        .expect("ours");
    uses.note_set(set, None, NOW_NS + 3).expect("ours");
    let read = uses.read().expect("because it is ours");
    let found = &read.sets[&set];
    assert_eq!(found.last_use_ns, NOW_NS + 3);
    let expected = BTreeMap::from([(paths[0].into(), NOW_NS), (paths[1].into(), NOW_NS + 2)]);
    assert_eq!(found.containers, expected);
    uses.note_set(set, Some(paths[0]), NOW_NS + USE_STEP_NS)
        .expect("ours");
    let read = uses.read().expect("because it is ours");
    assert_eq!(read.sets[&set].last_use_ns, NOW_NS + USE_STEP_NS);
    uses.forget_set(set).expect("because it is ours");
    uses.forget_set(set).expect("because an absent one is fine");
    assert!(uses.read().expect("because it is ours").sets.is_empty());
}

#[test]
fn a_damaged_use_is_named_and_is_no_error() {
    let fixture = Fixture::new();
    let uses = fixture.store.use_log().expect("because state is there");
    let set = SetKey(Digest::of(b"set"));
    uses.note_set(set, Some(Path::new("/m/a.gguf")), NOW_NS)
        .expect("ours");
    let file = only_file(&only_file(&fixture.state("use")));
    edit(&file, "/m/a.gguf", "/m/b.gguf");
    let read = uses.read().expect("because it is ours");
    assert!(read.sets.is_empty());
    assert!(matches!(&read.refused[..], [(_, UseRefusal::Name { .. })]));
    uses.note_set(set, Some(Path::new("/m/a.gguf")), NOW_NS)
        .expect("ours");
    assert_eq!(uses.read().expect("ours").sets[&set].last_use_ns, NOW_NS);
}

#[test]
fn run_logs_are_bounded_in_number_and_bytes() {
    let fixture = Fixture::new();
    let uses = fixture.store.use_log().expect("because state is there");
    for run in 0..RUNS_MAX + 5 {
        let now_ns = NOW_NS + i64::try_from(run).expect("because it is small");
        uses.keep_run(now_ns, 7, b"{}\n")
            .expect("because it is ours");
    }
    let runs = uses.runs().expect("because it is ours");
    assert_eq!(runs.len(), RUNS_MAX);
    assert!(
        runs[0].starts_with("01700000000000000005-7-"),
        "{}",
        runs[0]
    );
    let long = vec![b' '; RUN_BYTES_MAX + 1];
    let error = uses
        .keep_run(NOW_NS, 7, &long)
        .expect_err("because it is long");
    assert!(matches!(error, StateError::RunTooLong { .. }));
}
