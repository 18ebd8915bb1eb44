//! A miss fills, the next load maps everything, and the report and the lines say exactly so.

use crate::fake::{FakeEngine, Fault, PLAIN, Packer};
use crate::world::{SMALL, WIDE, World};
use packhouse_loader::{Level, Served};
use serde_json::json;

#[test]
fn a_miss_fills_and_the_next_load_maps_all_with_exact_report_and_lines() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let bytes = model.bytes();
    assert_eq!(bytes, 11_424);
    let root = world.root().display().to_string();

    let miss = world.load(PLAIN, &[&model]);
    let begin = format!(
        "0 tensors mapped, 4 packed (11.1 KiB), 0 refused; writing 11.1 KiB to {root} \
         (cap 1.00 GiB, held 0 B, disk free "
    );
    assert!(miss.line.starts_with(&begin), "{}", miss.line);
    assert!(
        miss.line.ends_with(" of which 10.00 GiB stay)"),
        "{}",
        miss.line
    );
    let stored = "stored 4 packs (11.1 KiB) in 0 us; the next start maps them";
    let expected = [
        (Level::Info, miss.line.clone()),
        (Level::Info, stored.to_owned()),
    ];
    assert_eq!(miss.lines, expected);
    let none = json!({ "tensors": 0, "bytes": 0 });
    let all = json!({ "tensors": 4, "bytes": bytes });
    let set = miss.report["fill"]["set"].clone();
    assert!(set.as_str().is_some_and(|set| set.len() == 64), "{set}");
    let mut report = json!({
        "schema": "packhouse/report/1",
        "load": 0,
        "pid": std::process::id(),
        "plan": "ggml-cpu",
        "store": root,
        "load_ns": 0,
        "tally": {
            "mapped": none, "staged": none, "copied": none, "packed": all, "left_out": none,
            "misses": { "absent": all }, "refused": {}, "verified": {},
            "first_refusal": null, "stage_refused": {}, "first_stage_refusal": null,
            "samples": { "taken": 0, "skipped": 0, "duration_ns": 0 },
            "source_bytes_sampled": 0,
            "source_bytes_hashed": bytes,
            "source_bytes_read": bytes,
        },
        "fill": {
            "state": "done", "why": null, "wanted": all, "stored": all, "elsewhere": none,
            "set": set, "complaint": null, "duration_ns": 0,
        },
    });
    assert_eq!(miss.report, report);

    let hit = world.load(PLAIN, &[&model]);
    let line = "4 tensors mapped (11.1 KiB), 0 packed, 0 refused; 13 samples in 0 us";
    assert_eq!(hit.lines, [(Level::Info, line.to_owned())]);
    report["tally"] = json!({
        "mapped": all, "staged": none, "copied": none, "packed": none, "left_out": none,
        "misses": {}, "refused": {}, "verified": { "receipt": all },
        "first_refusal": null, "stage_refused": {}, "first_stage_refusal": null,
        "samples": { "taken": 13, "skipped": 0, "duration_ns": 0 },
        "source_bytes_sampled": 11_136,
        "source_bytes_hashed": 0,
        "source_bytes_read": 11_136,
    });
    report["fill"]["wanted"] = none.clone();
    report["fill"]["stored"] = none;
    assert_eq!(hit.report, report);
}

#[test]
fn a_large_tensor_is_packed_in_runs_by_several_threads_and_sampled_in_eight_units() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 2);
    let session = world.session(PLAIN);
    session.load(0, &[&model]).assert_fill("done");
    let runs = session.engine.heard().runs;
    assert!(
        runs.len() > 1 && runs.iter().sum::<usize>() == 2_304_000,
        "{runs:?}"
    );
    let hit = world.load(PLAIN, &[&model]);
    hit.assert_all_mapped(&[&model]);
    assert_eq!(hit.number("source_bytes_read"), 8 * 2304);
}

#[test]
fn several_loads_of_one_process_share_what_the_first_stored() {
    let world = World::new();
    let (model, other) = (
        world.model("a.gguf", SMALL, 1),
        world.model("b.gguf", SMALL, 9),
    );
    let session = world.session(PLAIN);
    session.load(0, &[&model]).assert_fill("done");
    session.load(1, &[&model]).assert_all_mapped(&[&model]);
    assert_eq!(session.load(2, &[&other]).counts(), [0, 0, 4, 0]);
    session.load(3, &[&other]).assert_all_mapped(&[&other]);
    session.load(4, &[&model]).assert_all_mapped(&[&model]);
}

#[test]
fn another_packer_misses_and_the_packs_of_the_first_stay() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let other = Packer { turn: 1, ..PLAIN };
    world.fill(PLAIN, &[&model]);
    let miss = world.load(other, &[&model]);
    assert_eq!(miss.counts(), [0, 0, 4, 0]);
    assert_eq!(miss.reason("misses", "absent"), 4);
    world.load(other, &[&model]).assert_all_mapped(&[&model]);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
    let sets = world
        .store()
        .list_sets()
        .expect("because the store is sound");
    assert_eq!(sets.len(), 2, "each packer has its set");
}

#[test]
fn a_packer_that_is_not_deterministic_packs_and_stores_nothing() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let packer = Packer {
        fault: Fault::GoldenDiffers,
        ..PLAIN
    };
    for _ in 0..2 {
        let outcome = world.load(packer, &[&model]);
        assert_eq!(outcome.counts(), [0, 0, 4, 4]);
        assert_eq!(outcome.reason("refused", "packer"), 4);
        let why = "token_embd.weight: the engine's packing of Q4_0 is not deterministic";
        assert!(outcome.line.ends_with(why), "{}", outcome.line);
        outcome.assert_fill("done");
        assert_eq!(outcome.report["fill"]["wanted"]["tensors"], 0);
    }
}

#[test]
fn a_packer_that_differs_on_live_weights_is_caught_by_the_sample_and_named() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    let packer = Packer {
        fault: Fault::LiveDiffers,
        ..PLAIN
    };
    let session = world.session(packer);
    let mut run = session.begin(0, &[&model]);
    run.serve_from(&model, 0, model.source(0));
    run.outcome().assert_fill("done");
    run.load.close();
    let session = world.session(packer);
    let mut run = session.begin(0, &[&model]);
    run.serve_from(&model, 0, model.source(0));
    let outcome = run.outcome();
    assert_eq!(outcome.counts(), [0, 0, 1, 1]);
    assert_eq!(outcome.reason("refused", "sample"), 1);
    let told = outcome.warnings();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(
        told[0].ends_with("the packing of Q4_0 is not deterministic"),
        "{told:?}"
    );
}

#[test]
fn a_tensor_without_a_packing_goes_back_to_the_engine() {
    let world = World::new();
    let model = world.model("a.gguf", WIDE, 1);
    let packer = Packer {
        fault: Fault::NoPacking,
        ..PLAIN
    };
    let session = world.session(packer);
    let mut run = session.begin(0, &[&model]);
    assert_eq!(run.offer(&model, 0, model.source(0)), Served::NotFilled);
    run.load.leave_out(2_304_000);
    let outcome = run.outcome();
    assert_eq!(outcome.counts(), [0, 0, 0, 1]);
    assert_eq!(outcome.report["tally"]["left_out"]["tensors"], 1);
    let why = "output.weight: the engine has no packing for Q4_0 []";
    assert!(outcome.line.ends_with(why), "{}", outcome.line);
}

#[test]
fn an_object_that_can_not_be_mapped_is_packed_for_that_reason() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    world.fill(PLAIN, &[&model]);
    let session = world.session(PLAIN);
    session.engine.fail_attach();
    let outcome = session.load(0, &[&model]);
    assert_eq!(outcome.counts(), [0, 0, 4, 4]);
    assert_eq!(outcome.reason("refused", "map"), 4);
    // Without a ledger the region was packed before, and the failed mapping wrote over it.
    let session = world.session(PLAIN);
    session.engine.fail_attach();
    let mut run = session.begin(0, &[&model]);
    for index in 0..4 {
        let copy = model.read(index);
        run.serve_from(&model, index, &copy);
        run.assert_right(&model, index, &copy);
    }
    assert_eq!(run.outcome().counts(), [0, 0, 4, 4]);
    world.load(PLAIN, &[&model]).assert_all_mapped(&[&model]);
}

#[test]
fn a_tensor_left_to_the_engine_is_counted_and_completes_the_load() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let session = world.session(PLAIN);
    let mut run = session.begin(0, &[&model]);
    for index in 0..3 {
        run.serve(&model, index);
    }
    run.load.leave_out(3264);
    let outcome = run.outcome();
    assert_eq!(
        outcome.report["tally"]["left_out"],
        json!({ "tensors": 1, "bytes": 3264 })
    );
    assert_eq!(outcome.counts(), [0, 0, 3, 0]);
}

#[test]
fn the_fake_packer_is_the_packer_that_the_tests_speak_of() {
    let world = World::new();
    let model = world.model("a.gguf", SMALL, 1);
    let (source, geometry) = (model.read(0), model.geometry(0));
    let ty = model.tensors[0].ggml_type;
    let packed = |packer| FakeEngine::new(packer).expected(ty, &geometry, &source);
    let serial = Packer {
        by_units: false,
        ..PLAIN
    };
    let turned = Packer { turn: 1, ..PLAIN };
    let all = [
        packed(PLAIN),
        packed(serial),
        packed(turned),
        source.clone(),
    ];
    for (index, one) in all.iter().enumerate() {
        assert!(all[..index].iter().all(|other| other != one), "{index}");
        let sorted = |bytes: &[u8]| {
            let mut bytes = bytes.to_vec();
            bytes.sort_unstable();
            bytes
        };
        assert_eq!(sorted(one), sorted(&source), "packing only moves bytes");
    }
}
