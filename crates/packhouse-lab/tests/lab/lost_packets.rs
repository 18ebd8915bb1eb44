//! Packets that a reference lab lost to its own harness, and not to the candidate: those of the
//! causes that are documents' and identities'.
//!
//! - A digest in a script was one character short, which nobody saw before the card was used.
//! - An interpreter wrote a bytecode file into the work tree after the first leg, and the tree was
//!   dirty from then on.
//! - Discovery inherited a mask that renumbers cards, so a name by number meant another card.
//! - A module path and a loader library were not there, and the configuration of a launch was no
//!   document any more: found when the packet was spent.
//! - A probe that had never existed was read as the failure of four cards, which were then reset.
//! - A gate for records became looser from one campaign to the next, and no page said so.

use crate::desk::Desk;
use crate::documents::{LANE, PREREG};
use packhouse_base::canonical;
use packhouse_lab::freeze::{self, FreezeError};
use packhouse_lab::world::Commit;
use packhouse_lab::{Packet, Prereg};

#[test]
fn a_digest_that_is_one_character_short_never_gets_as_far_as_a_device() {
    let desk = Desk::new();
    let packet = desk.with(|lab| {
        let documents = freeze::documents(lab, "one").expect("because they are good");
        freeze::freeze(lab, &documents, &crate::desk::RECIPES).expect("because all is there")
    });
    let whole = String::from_utf8(packet.render()).expect("because it is text");
    let mut cut = 0;
    for digest in whole.split('"').filter(|word| word.len() == 64) {
        for short in [&digest[..63], &digest[1..]] {
            let text = whole.replacen(digest, short, 1);
            let error = Packet::parse(text.as_bytes()).expect_err("because it is too short");
            let said = error.to_string();
            assert!(said.contains("expected 64 lower-case hex digits"), "{said}");
            assert!(said.contains(short), "{said}");
            cut += 1;
        }
    }
    assert!(cut > 20, "{cut}");
    // Nor is a digest that stands in for nothing: no document has a field for one that a person
    // types, so there is nothing to mistype.
    for text in [LANE, PREREG] {
        let hex = |word: &str| word.len() >= 40 && word.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(!text.split(|c: char| !c.is_ascii_alphanumeric()).any(hex));
    }
}

#[test]
fn a_bytecode_file_in_the_tree_is_named_before_anything_is_consumed() {
    // In a frozen folder: a file more.
    let desk = Desk::new();
    let documents = desk.with(|lab| freeze::documents(lab, "one"));
    let documents = documents.expect("because they are good");
    let frozen = desk.with(|lab| freeze::freeze(lab, &documents, &crate::desk::RECIPES));
    let frozen = frozen.expect("because all is there");
    desk.sim
        .make_dirs("/home/user/lab/modules/__pycache__", 1000, 0o755);
    desk.sim.replace(
        "/home/user/lab/modules/__pycache__/a.pyc",
        b"bytecode",
        0o644,
    );
    let error = desk.with(|lab| freeze::unchanged(lab, &frozen, &crate::desk::RECIPES));
    let error = error.expect_err("because there is a file more").to_string();
    let said = "frozen file modules/__pycache__/a.pyc: frozen not there, now ";
    assert!(error.contains(said), "{error}");
    // In a work tree: what git says of it, by name.
    let desk = Desk::new();
    *desk.host.commit.lock().expect("because nobody holds it") = Ok(Commit {
        commit: "0123456789".repeat(4),
        changed: vec!["source/__pycache__/a.pyc".to_owned()],
    });
    let error = desk.with(|lab| freeze::unchanged(lab, &frozen, &crate::desk::RECIPES));
    let error = error.expect_err("because the tree is dirty");
    assert!(matches!(error, FreezeError::Dirty { .. }), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("0123456789: source/__pycache__/a.pyc"),
        "{error}"
    );
}

#[test]
fn no_device_has_a_number_for_a_name() {
    let good = "\"cpu\", \"cuda:GPU-00000000-1111-2222-3333-44444444444f\"";
    assert_eq!(PREREG.matches(good).count(), 1);
    for ordinal in ["0", "cuda:0", "gpu0", "xpu:1", "level-zero:0.0", "card0"] {
        let text = PREREG.replace(good, &format!("\"{ordinal}\""));
        let error = Prereg::parse(text.as_bytes()).expect_err("because it changes");
        let said = format!(
            "matrix.devices[0]: expected cpu, or kind:UUID (no ordinal, which changes), found \
             \"{ordinal}\""
        );
        assert_eq!(error.to_string(), said);
    }
    let packet = canonical::render(&serde_json::json!({"schema": "packhouse/packet/1"}));
    assert!(
        Packet::parse(&packet).is_err(),
        "and a packet has no field for a device"
    );
}

/// What freezing, or measuring what was frozen, says of a desk on which something is amiss.
fn refused(amiss: impl FnOnce(&Desk)) -> FreezeError {
    let desk = Desk::new();
    let frozen = desk.with(|lab| {
        let documents = freeze::documents(lab, "one").expect("because they are good");
        freeze::freeze(lab, &documents, &crate::desk::RECIPES).expect("because all is there")
    });
    amiss(&desk);
    let measured = desk.with(|lab| freeze::unchanged(lab, &frozen, &crate::desk::RECIPES));
    measured.expect_err("because something is amiss")
}

#[test]
fn a_module_that_is_not_there_is_named_before_anything_is_consumed() {
    let said = refused(|desk| desk.sim.remove("/home/user/lab/modules/a.py")).to_string();
    assert!(said.contains("frozen file modules/a.py: frozen "), "{said}");
    assert!(said.contains("now not there"), "{said}");
}

#[test]
fn a_loader_library_that_is_not_there_is_named_before_anything_is_consumed() {
    let said = refused(|desk| {
        desk.host
            .objects
            .lock()
            .expect("because nobody holds it")
            .clear();
    });
    let said = said.to_string();
    assert!(said.contains("library libc.so.6: frozen "), "{said}");
    assert!(said.contains("now not there"), "{said}");
}

/// What is absent is said to be absent: it is no verdict on a program, and none on a card.
#[test]
fn a_probe_that_never_existed_is_not_there_and_no_failure_of_hardware() {
    let error = refused(|desk| {
        let mut programs = desk.host.programs.lock().expect("because nobody holds it");
        programs.remove(std::path::Path::new("/home/user/lab/bin/candidate"));
    });
    let said = error.to_string();
    assert!(said.contains("bin/candidate"), "{said}");
    for verdict in ["fail", "0/4", "hardware", "reset"] {
        assert!(!said.contains(verdict), "{said}");
    }
}

#[test]
fn a_launch_configuration_that_is_no_document_is_refused_where_it_is_read() {
    let desk = Desk::new();
    let packet = desk.with(|lab| {
        let documents = freeze::documents(lab, "one").expect("because they are good");
        freeze::freeze(lab, &documents, &crate::desk::RECIPES).expect("because all is there")
    });
    let whole = String::from_utf8(packet.render()).expect("because it is text");
    for mutated in [
        "<function serve at 0x7f1e>".to_owned(),
        whole.replacen('"', "'", 2),
        whole.replacen(":[", ":", 1),
        whole[..whole.len() / 2].to_owned(),
    ] {
        assert!(Packet::parse(mutated.as_bytes()).is_err(), "{mutated}");
    }
    let error = Prereg::parse(b"Namespace(widths=[1])").expect_err("because it is no TOML");
    assert!(error.to_string().contains("line 1"), "{error}");
}

/// Every number of a gate is of the preregistration, and that is frozen by its bytes.
#[test]
fn a_gate_that_was_loosened_after_registration_is_refused() {
    for (frozen, looser) in [
        ("minimum_wins = 9", "minimum_wins = 6"),
        (
            "minimum_median_saving_ns = 1000",
            "minimum_median_saving_ns = 1",
        ),
        ("promise = \"bit-equal\"", "promise = \"near\""),
    ] {
        let said = refused(|desk| desk.edit(frozen, looser)).to_string();
        assert!(said.contains("prereg"), "{said}");
    }
}
