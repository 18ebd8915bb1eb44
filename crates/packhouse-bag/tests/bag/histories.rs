//! Failures of a lab whose seals were permissions and whose lists had the paths of one machine
//! (`docs/threats.md`, evidence bags): each is played here, and must be found or be harmless.

use crate::samples::{bag, codes, disk, folder, home, info, lay, payload, real_dir};
use packhouse_bag::seal::{Statement, Verdict};
use packhouse_bag::{Contents, OpenBag, check, closed, write_new};
use packhouse_base::digest::Digest;
use packhouse_sim::Crash;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

fn set_modes(folder: &Path, contents: &Contents, mode: u32) {
    for path in contents.paths() {
        let set = std::fs::set_permissions(folder.join(path), Permissions::from_mode(mode));
        set.expect("because it is ours");
    }
}

/// An analyser once wanted mode 0600 of its own sealed files of mode 0400.
#[test]
fn evidence_of_any_mode_that_can_be_read_is_the_same_evidence() {
    let folder = folder();
    lay(folder.path(), &bag());
    for mode in [0o600, 0o400, 0o444, 0o640, 0o644, 0o755, 0o777] {
        set_modes(folder.path(), &bag(), mode);
        let contents = Contents::read(&real_dir(folder.path()));
        assert_eq!(contents, Ok(bag()), "{mode:o}");
    }
    let link = folder.path().join("second");
    let made = std::fs::hard_link(folder.path().join("data/packet.json"), &link);
    made.expect("because it is ours");
    std::fs::remove_file(&link).expect("because it is ours");
    std::fs::hard_link(
        folder.path().join("bagit.txt"),
        folder.path().with_extension("other"),
    )
    .expect("because it is ours");
    let contents = Contents::read(&real_dir(folder.path()));
    std::fs::remove_file(folder.path().with_extension("other")).expect("because it is ours");
    assert_eq!(contents, Ok(bag()), "another name of a file");
}

#[test]
fn write_bits_that_are_taken_away_and_given_back_hide_no_change() {
    let folder = folder();
    lay(folder.path(), &bag());
    set_modes(folder.path(), &bag(), 0o444);
    let output = folder.path().join("data/outputs/00ff");
    std::fs::set_permissions(&output, Permissions::from_mode(0o644)).expect("because it is ours");
    let mut bytes = std::fs::read(&output).expect("because it is ours");
    bytes[17] ^= 1;
    std::fs::write(&output, &bytes).expect("because it is ours");
    std::fs::set_permissions(&output, Permissions::from_mode(0o444)).expect("because it is ours");
    let contents = Contents::read(&real_dir(folder.path())).expect("because all is regular");
    let faults = check(&contents).expect_err("because a bit was changed");
    assert_eq!(codes(&faults), [("bag.digest", "data/outputs/00ff")]);
}

/// A frozen host once left 1,397 files of a packet without a byte, and a launcher of 0 bytes that
/// ended with code 0.
#[test]
fn files_that_a_freeze_left_without_bytes_are_each_named() {
    let mut payload = payload();
    for index in 0..1397 {
        payload.insert(format!("outputs/{index:04}"), *b"\x01");
    }
    let whole = closed(&payload, &info());
    assert_eq!(check(&whole), Ok(()));
    let (mut emptied, mut zeroed) = (whole.clone(), whole.clone());
    let mut filled_in = payload.clone();
    for index in 0..1397 {
        emptied.insert(format!("data/outputs/{index:04}"), *b"");
        zeroed.insert(format!("data/outputs/{index:04}"), *b"\0");
        filled_in.insert(format!("outputs/{index:04}"), *b"");
    }
    let count = |contents: &Contents, code: &str| {
        let faults = check(contents).expect_err("because files were emptied");
        faults.iter().filter(|fault| fault.code() == code).count()
    };
    assert_eq!(count(&emptied, "bag.empty-file"), 1397);
    assert_eq!(count(&emptied, "bag.digest"), 1397);
    assert_eq!(count(&emptied, "bag.oxum"), 1);
    assert_eq!(count(&zeroed, "bag.digest"), 1397);
    // Also where somebody made every list anew over them.
    assert_eq!(count(&closed(&filled_in, &info()), "bag.empty-file"), 1397);
}

/// Failed runs once got no manifest, and most files were never synced.
#[test]
fn a_run_that_died_is_closed_and_sealed_as_an_abort_and_lost_to_no_power_cut() {
    let sim = disk(1);
    let mut open = OpenBag::create(&home(&sim)).expect("because nothing is there");
    open.put("packet.json", b"{}\n")
        .expect("because it is free");
    open.append("legs/00/exchange.jsonl", b"{\"at_ns\":1}\n{\"at")
        .expect("because it is free");
    open.sync().expect("because nothing failed");
    let sim = sim.crash(Crash::Torn, 3);
    let mut resumed = OpenBag::resume(&home(&sim)).expect("because it was left");
    resumed
        .cut("legs/00/exchange.jsonl", 12)
        .expect("because it is there");
    let mut open = resumed.into_bag();
    open.put("run.json", b"{\"status\":\"aborted\"}\n")
        .expect("because it is free");
    let bag = open.close(&info()).expect("because nothing failed");
    let seal = Statement {
        packet: Digest::of(b"{}\n"),
        bag,
        analysis: Digest::of(b"analysis"),
        number: 1,
        verdict: Verdict::Abort,
        ledger_head: Digest::of(b"head"),
        analyzer: Digest::of(b"analyzer"),
        lab: Digest::of(b"lab"),
    };
    write_new(&home(&sim), "seal-1.json", &seal.render()).expect("because nothing failed");
    let sim = sim.crash(Crash::Lost, 3);
    let evidence = Contents::read(&home(&sim)).expect("because all of it is regular");
    assert_eq!(check(&evidence.below("bag")), Ok(()));
    assert_eq!(evidence.below("bag").digest(), Some(bag));
    let read = Statement::parse(evidence.get("seal-1.json").expect("because it was synced"));
    assert_eq!(read, Ok(seal));
}

/// Manifests once had absolute paths, and were good in one place of one machine only.
#[test]
fn a_bag_that_is_copied_elsewhere_is_the_same_bag_and_names_no_place() {
    let (one, other) = (folder(), folder());
    let dir = real_dir(one.path());
    let mut open = OpenBag::create(&dir).expect("because nothing is there");
    for (path, bytes) in payload().files() {
        open.put(path, bytes).expect("because it is free");
    }
    let digest = open.close(&info()).expect("because nothing failed");
    let written = Contents::read(&dir).expect("because it was closed");
    lay(other.path(), &written);
    let copied = Contents::read(&real_dir(&other.path().join("bag")));
    let copied = copied.expect("because it was copied");
    assert_eq!(check(&copied), Ok(()));
    assert_eq!(copied.digest(), Some(digest));
    let place = one.path().to_str().expect("because it is text").as_bytes();
    for (path, bytes) in copied.files() {
        let is_told = bytes.windows(place.len()).any(|window| window == place);
        assert!(!is_told, "{path}");
    }
}
