//! Records, lines and files of the bag against each other.

use super::*;

#[test]
fn every_byte_of_authority_and_ledger_counts() {
    let sample = sample::run();
    let path = "bag/data/authority.jsonl";
    let all = bytes(&sample.tree, path);
    let count = all.iter().filter(|byte| **byte == b'\n').count();
    for number in 0..count {
        let without = edit_lines(&sample, path, |lines| drop(lines.remove(number)));
        let codes = ["authority.chain", "authority.state", "authority.nonce"];
        rejects(
            &without,
            &format!("authority without line {number}"),
            &codes,
        );
        let mut other = sample.clone();
        other.ledger = edited(&sample.ledger, number, |entry| entry["at_ns"] = json!(6));
        let codes = ["ledger.previous", "ledger.authority"];
        rejects(
            &other,
            &format!("the ledger with another line {number}"),
            &codes,
        );
        let twice = edit_lines(&sample, path, |lines| {
            lines.insert(number, lines[number].clone())
        });
        rejects(&twice, "a line twice", &["authority.chain"]);
    }
    let mut cut = sample.clone();
    let lines = sample.ledger.split_inclusive(|byte| *byte == b'\n');
    cut.ledger = lines.take(count).collect::<Vec<_>>().concat();
    rejects(&cut, "a ledger from before the end", &["ledger.sealed"]);
}

#[test]
fn records_that_contradict_each_other_are_found() {
    let sample = sample::run();
    let other = json!(sha256("other"));
    let run: [(&str, Value, &str); 15] = [
        ("/packet", other.clone(), "packet.digest"),
        ("/nonce", other.clone(), "authority.nonce"),
        ("/status", json!("stopped"), "run.status"),
        ("/stage", json!("leg"), "run.status"),
        ("/ended/steady_ns", json!(1), "run.clock"),
        ("/clock/forward_ns", json!(4), "run.clock"),
        ("/legs/1/device", json!("cuda:0"), "run.legs"),
        ("/legs/1/status", json!("broken"), "run.status"),
        ("/boot", json!("another"), "run.clock"),
        ("/started/wall_ns", json!(1_u64 << 63), "record.type"),
        ("/removed", json!(["/etc/passwd"]), "record.type"),
        ("/removed", json!(["../x"]), "record.type"),
        ("/removed", json!([""]), "record.type"),
        (
            "/removed",
            json!(["marker.json", "marker.json"]),
            "record.type",
        ),
        ("/removed", json!(["marker.json"]), "run.status"),
    ];
    for (pointer, value, code) in run {
        let tampered = edit(&sample, RUN, |run| {
            *run.pointer_mut(pointer).expect("because it is there") = value;
        });
        rejects(&tampered, pointer, &[code]);
    }
    let leg: [(&str, Value, &str); 10] = [
        ("/number", json!(7), "leg.number"),
        ("/kind", json!("timing"), "leg.number"),
        ("/status", json!("failed"), "run.legs"),
        ("/ended/steady_ns", json!(9_000_000), "run.clock"),
        ("/programs/0/treatment", json!("control"), "leg.program"),
        ("/programs/0/exit", json!("code 1"), "leg.end"),
        ("/programs/0/elapsed_ns", json!(u64::MAX), "run.clock"),
        ("/programs/0/pid", json!(0), "record.type"),
        ("/started", Value::Null, "record.type"),
        ("/programs/0/objects/0/sha256", other.clone(), "identity"),
    ];
    for (pointer, value, code) in leg {
        let tampered = edit(&sample, LEG, |leg| {
            *leg.pointer_mut(pointer).expect("because it is there") = value;
        });
        rejects(&tampered, pointer, &[code]);
    }
    for (pointer, code) in [
        ("/packet", "marker.packet"),
        ("/nonce", "marker.nonce"),
        ("/ledger", "marker.ledger"),
        ("/lab", "marker.ledger"),
        ("/salt", "fixture.drawn"),
    ] {
        let tampered = edit(&sample, "bag/data/marker.json", |marker| {
            *marker.pointer_mut(pointer).expect("because it is there") = other.clone();
        });
        rejects(&tampered, pointer, &[code]);
        rejects(&tampered, pointer, &["authority.nonce"]);
    }
}

/// A marker in memory is gone after a reboot, and the packet could be run again.
#[test]
fn a_marker_is_on_a_file_system_that_keeps_it() {
    let sample = sample::run();
    for (file_system, is_durable) in [("xfs", true), ("overlayfs", true), ("tmpfs", false)] {
        let tampered = edit(&sample, "bag/data/marker.json", |marker| {
            marker["file_system"] = json!(file_system);
        });
        let report = check(&tampered.tree, Some(&tampered.ledger), None);
        assert_eq!(!report.has("record.type"), is_durable, "{file_system}");
    }
}

/// What programs made is not written anew: it was removed, or it is there.
#[test]
fn what_a_killed_run_removed_of_its_programs_is_not_there() {
    let sample = sample::run();
    for (path, is_honest) in [
        ("marker.json", true),
        ("legs/07/exchange.jsonl", true),
        ("legs/01/exchange.jsonl", false),
    ] {
        let tampered = edit(&sample, RUN, |run| {
            run["status"] = json!("aborted");
            run["stage"] = json!("leg");
            run["reason"] = json!("killed");
            run["removed"] = json!([path]);
        });
        let report = check(&tampered.tree, Some(&tampered.ledger), None);
        assert_eq!(!report.has("run.status"), is_honest, "{path}");
    }
}

/// Of five blocks no number of wins says anything, and of a thousand and one nobody takes figures.
#[test]
fn a_timing_gate_has_blocks_that_figures_are_made_of() {
    let sample = sample::run();
    let path = "bag/data/prereg.toml";
    let text = String::from_utf8(bytes(&sample.tree, path)).expect("because it is text");
    let fewer = text.replace("wins = 6", "wins = 5");
    for (blocks, text) in [("5", &fewer), ("1001", &text)] {
        let other = text.replace("blocks = 6", &format!("blocks = {blocks}"));
        let mut tampered = sample.clone();
        put(&mut tampered.tree, path, other.as_bytes());
        rejects(&tampered, blocks, &["record.type"]);
    }
}

/// A rehearsal that could not tell what the gate asks for from none, whichever it was.
#[test]
fn a_run_is_not_armed_by_a_gate_within_the_noise_of_a_rehearsal() {
    let sample = sample::run();
    for (ns, is_within) in [(25, false), (26, true)] {
        let loud = edit_lines(&sample, "bag/data/authority.jsonl", |lines| {
            let entry = lines.iter_mut().find(|line| line["kind"] == "rehearsed");
            let body = &mut entry.expect("because it was rehearsed")["body"];
            body["detectable_ns"] = json!({"cpu": ns, "other": 1});
        });
        let report = check(&loud.tree, Some(&loud.ledger), None);
        assert_eq!(report.has("authority.state"), is_within, "{ns}");
    }
}

#[test]
fn files_that_are_missing_added_or_others_are_found() {
    let sample = sample::run();
    let fixture = format!("bag/data/fixtures/{FIXTURE}");
    let drawn = format!("bag/data/drawn/{FIXTURE}-1");
    let output = sample
        .tree
        .keys()
        .find(|path| path.starts_with("bag/data/outputs/"));
    let output = output.expect("because there are outputs").clone();
    let changed = bytes(&sample.tree, "bag/data/prereg.toml");
    let changed = String::from_utf8(changed).expect("because it is text");
    let looser = changed.replace("minimum_wins = 6", "minimum_wins = 5");
    let cases: [(&str, Option<&[u8]>, &str); 16] = [
        ("bag/data/lane.toml", None, "record.missing"),
        ("bag/data/prereg.toml", None, "record.missing"),
        ("bag/data/packet.json", None, "record.missing"),
        ("bag/data/run.json", None, "record.missing"),
        ("bag/data/authority.jsonl", None, "record.missing"),
        ("bag/data/marker.json", None, "marker.missing"),
        (LEG, None, "record.missing"),
        (CANDIDATE, None, "rows.missing"),
        (
            "bag/data/prereg.toml",
            Some(looser.as_bytes()),
            "packet.prereg",
        ),
        ("bag/data/lane.toml", Some(b"x = 1\n"), "packet.lane"),
        ("bag/data/notes.txt", Some(b"x"), "record.unexpected"),
        ("bag/data/legs/01/candidate.stderr", Some(b"x"), "leg.end"),
        (&output, Some(b"other bytes"), "output.digest"),
        (&output, None, "output.missing"),
        ("analysis-1/analysis.json", None, "analysis.missing"),
        ("seal-1.json", None, "seal.missing"),
    ];
    for (path, with, code) in cases {
        rejects(&replace(&sample, path, with), path, &[code]);
    }
    let unused = format!("bag/data/outputs/{}", sha256("x"));
    rejects(
        &replace(&sample, &unused, Some(b"x")),
        "an output",
        &["output.unused"],
    );
    for (folder, code) in [(&fixture, "fixture.missing"), (&drawn, "fixture.missing")] {
        let mut copy = sample.clone();
        copy.tree
            .retain(|path, _| !path.starts_with(&format!("{folder}/")));
        close(&mut copy.tree);
        rejects(&copy, folder, &[code]);
    }
    let mut copy = sample.clone();
    for (name, bytes) in sample::fixture(5, 5) {
        put(&mut copy.tree, format!("{fixture}/{name}"), &bytes);
        put(
            &mut copy.tree,
            format!("bag/data/drawn/{FIXTURE}-9/{name}"),
            &bytes,
        );
    }
    close(&mut copy.tree);
    rejects(&copy, "another fixture", &["packet.fixture"]);
    rejects(&copy, "another fixture", &["fixture.unused"]);
    let bytes = Some(&b"other"[..]);
    let tampered = replace(&sample, &format!("{drawn}/data/in-1"), bytes);
    rejects(&tampered, "a drawn tensor", &["fixture.digest"]);
}

#[test]
fn a_rejection_cannot_be_left_out_of_the_lines_that_gave_the_right() {
    let sample = sample::run();
    // Somebody approves a second time, in the ledger alone: the bag's lines were chosen.
    let mut chosen = sample.clone();
    let lines = sample.ledger.split_inclusive(|byte| *byte == b'\n');
    let mut entries: Vec<Value> = lines.map(parse).collect();
    let mut word = entries[4].clone();
    word["body"]["reviewer"] = json!("another");
    entries.insert(5, word);
    entries[6]["body"]["reviews"] = json!([4]);
    chosen.ledger = Vec::new();
    for entry in &entries {
        let kind = entry["kind"].as_str().expect("because it has one");
        sample::enter(&mut chosen.ledger, kind, entry["body"].clone());
    }
    let lines = chosen.ledger.split_inclusive(|byte| *byte == b'\n').take(9);
    let kept = lines
        .enumerate()
        .filter(|(index, _)| *index != 5)
        .map(|(_, line)| line);
    let kept = kept.collect::<Vec<_>>().concat();
    put(&mut chosen.tree, "bag/data/authority.jsonl", kept);
    close(&mut chosen.tree);
    let report = check(&chosen.tree, Some(&chosen.ledger), None);
    let mut words = report
        .findings
        .iter()
        .filter(|one| one.code == "ledger.authority");
    assert!(
        words.any(|one| one.words == "entry 5 of the ledger was left out"),
        "{report:#?}"
    );
}

#[test]
fn a_leg_after_one_that_failed_is_against_the_stop_rule() {
    let sample = sample::run();
    let run = edit(&sample, RUN, |run| {
        run["legs"][0]["status"] = json!("failed")
    });
    let path = "bag/data/legs/00/leg.json";
    let both = edit(&run, path, |leg| leg["status"] = json!("failed"));
    rejects(&both, "two more legs", &["run.status"]);
}

/// Whoever may arm on last year's rehearsal, by another build, has rehearsed nothing.
#[test]
fn a_run_stands_on_a_fresh_rehearsal_of_its_own_program() {
    let sample = sample::run();
    let path = "bag/data/authority.jsonl";
    type Edit = fn(&mut Value);
    let edits: [(&str, Edit); 5] = [
        ("another boot", |entry| entry["boot"] = json!("another")),
        ("another program", |entry| {
            entry["body"]["analyzer"] = json!(sha256("another"));
        }),
        ("of the future", |entry| entry["at_ns"] = json!(6)),
        ("too old", |entry| {
            entry["at_ns"] = json!(4 - (86_400 + 600) * 1_000_000_000_i64);
        }),
        ("red", |entry| {
            entry["body"]["green"] = json!(false);
            entry["body"]["stage"] = json!("leg");
            entry["body"]["reason"] = json!("r");
        }),
    ];
    for (what, change) in edits {
        let tampered = edit_lines(&sample, path, |lines| {
            let entry = lines.iter_mut().find(|line| line["kind"] == "rehearsed");
            change(entry.expect("because it was rehearsed"));
        });
        let report = check(&tampered.tree, Some(&tampered.ledger), None);
        let all = report.findings.iter().chain(&report.failures);
        let stale = all.filter(|finding| finding.words.contains("no fresh rehearsal"));
        let of: Vec<&str> = stale.map(|finding| finding.code).collect();
        assert!(of.contains(&"authority.state"), "{what}: {report:#?}");
    }
    let old_enough = edit_lines(&sample, path, |lines| {
        let entry = lines.iter_mut().find(|line| line["kind"] == "rehearsed");
        let at_ns = 5 - (86_400 + 600) * 1_000_000_000_i64;
        entry.expect("because it was rehearsed")["at_ns"] = json!(at_ns);
    });
    let report = check(&old_enough.tree, Some(&old_enough.ledger), None);
    assert!(!report.has("authority.state"), "{:#?}", report.findings);
}
