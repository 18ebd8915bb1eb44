//! Each status about head tiles, provoked through C, with what its text must name.

use crate::images::{ALL_TILES, BLOCKED, FIRST, Images, PACKED, filled, of};
use crate::refusals::Seen;
use crate::world::{edit, run, set_mode};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) fn image_refusals(seen: &mut Seen) {
    off(seen);
    misuse(seen);
    damaged_files(seen);
    other_files(seen);
    files_of_others(seen);
    a_file_that_changes(seen);
    intact_files_that_are_wrong(seen);
    unwritten(seen);
    calls(seen);
}

/// What can't be used is no failure: images are off, with a reason, and tiles are packed.
fn off(seen: &mut Seen) {
    let images = Images::new();
    let start: &[&str] = &["open", "why", "digest", "begin"];
    let blocked = images.path("file");
    std::fs::write(&blocked, b"in the way").expect("because it is ours");
    let blocked = blocked.display().to_string();
    let open_to_all = images.path("open");
    std::fs::create_dir(&open_to_all).expect("because the folder is ours");
    set_mode(&open_to_all, 0o777);
    let open_to_all = open_to_all.display().to_string();
    for (words, status, part) in [
        (&["mode", "1"][..], "OFF_ASKED", "switched off"),
        (&["no-root"], "OFF_NO_ROOT", "no folder"),
        (&["mode", "2"], "OFF_ABSENT", "images is not there"),
        (&["root", "relative"], "OFF_ROOT", "relative"),
        (&["root", &blocked], "OFF_ROOT", &blocked),
        (&["root", &open_to_all], "OFF_ROOT", "0777"),
    ] {
        let lines = images.run(&[words, start, ALL_TILES, &["line"]]);
        seen.refused(&lines, "why", &format!("IMAGES_{status}"), &[part]);
        seen.refused(&lines, "unwritten", &format!("IMAGES_{status}"), &[part]);
        filled(&lines, PACKED, 3);
    }
    assert!(!images.root().exists());
    // Off, a head needs no digest.
    let lines = images.run(&[&["mode", "1", "open", "head", "begin"], ALL_TILES]);
    filled(&lines, PACKED, 3);
    let lines = images.run(&[&["open", "why"]]);
    assert_eq!(of(&lines, "why"), ["why PACKHOUSE_OK "]);
}

/// A start with an image of tile 0 that was changed: it is refused with these words, and replaced.
fn refused(seen: &mut Seen, status: &str, parts: &[&str], change: impl FnOnce(&Path)) {
    refused_in(seen, (&[], status, parts), change);
}

fn refused_in(
    seen: &mut Seen,
    (words, status, parts): (&[&str], &str, &[&str]),
    change: impl FnOnce(&Path),
) {
    let images = Images::new();
    let all = &ALL_TILES[..4];
    images.run(&[words, FIRST, all]);
    let files = images.files();
    let file = images.file(0);
    change(&file);
    let lines = images.run(&[words, FIRST, all, &["counters"]]);
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let status = format!("IMAGE_{status}");
    seen.refused(&lines, "refused", &status, &[parts, &[&name]].concat());
    seen.refused(&lines, "reason", &status, &[" 1"]);
    let reports = of(&lines, "report");
    assert!(reports[0].starts_with("report 0 outcome=2 "), "{reports:?}");
    assert!(reports[1].starts_with("report 1 outcome=1 "), "{reports:?}");
    for report in reports {
        assert!(report.contains(" guards=1 bytes=equal "), "{report}");
    }
    let lines = images.run(&[words, FIRST, all]);
    assert!(
        of(&lines, "report")[0].contains(" outcome=1 "),
        "{lines:#?}"
    );
    assert_eq!(images.files(), files, "replaced");
}

fn damaged_files(seen: &mut Seen) {
    let flip = |at: usize| move |path: &Path| edit(path, |bytes| bytes[at] ^= 1);
    refused(seen, "MAGIC", &["\"QHTI\"", "\"PHTI\""], flip(0));
    refused(seen, "VERSION", &["version is 0, expected 1"], flip(4));
    for at in [40, 200, 4000, 4095] {
        refused(seen, "HEADER_HASH", &["the header hashes to "], flip(at));
    }
    for at in [4096, 5000, 5759] {
        let parts = ["the payload hashes to ", "the header says "];
        refused(seen, "PAYLOAD_HASH", &parts, flip(at));
    }
    for bytes in [0, 7, 4095, 4096, 5759, 5761] {
        let resize = |path: &Path| edit(path, |file| file.resize(bytes, 0));
        let parts = [&format!("it has {bytes} bytes, expected 5760")[..]];
        refused(seen, "LENGTH", &parts, resize);
    }
}

/// Changes a file and makes its hashes right again: what an intact file of something else is.
fn forge(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    edit(path, |bytes| {
        change(bytes);
        let payload = blake3::hash(&bytes[4096..]);
        bytes[240..272].copy_from_slice(payload.as_bytes());
        let header = blake3::hash(&bytes[..4064]);
        bytes[4064..4096].copy_from_slice(header.as_bytes());
    });
}

fn other_files(seen: &mut Seen) {
    let put = |at: usize, value: u64| {
        move |path: &Path| {
            forge(path, |bytes| {
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            });
        }
    };
    refused(seen, "HEADER", &["tied is 2"], put(112, 2));
    refused(seen, "HEADER", &["4000 is 1"], put(4000, 1));
    refused(seen, "GEOMETRY", &["kpad is 45, expected 44"], put(56, 45));
    refused(seen, "HEAD", &["width is 41, expected 40"], put(104, 41));
    refused(seen, "HEAD", &["head_digest is "], put(136, 1));
    refused(seen, "FINGERPRINT", &["fingerprint is "], put(168, 1));
    let parts = ["layout is int8-tile-rm-v1, expected int8-tile-b8-v1"];
    refused_in(seen, (BLOCKED, "LAYOUT", &parts), |path| {
        forge(path, |bytes| bytes[18..20].copy_from_slice(b"rm"));
    });
    refused(seen, "TILE", &["tile is 1, expected 0"], |path| {
        let name = path.display().to_string();
        let other = std::fs::read(name.replace("-t00000", "-t00001"));
        let other = other.expect("because tile 1 was written too");
        edit(path, |bytes| *bytes = other);
    });
}

fn files_of_others(seen: &mut Seen) {
    refused(seen, "WRITABLE", &["mode 0666"], |path| {
        set_mode(path, 0o666)
    });
    refused(seen, "NOT_REGULAR", &["expected a regular file"], |path| {
        let other = path.with_extension("other");
        std::fs::rename(path, &other).expect("because both are ours");
        std::os::unix::fs::symlink(&other, path).expect("because the folder is ours");
    });
    let images = Images::new();
    images.run(&[FIRST, ALL_TILES]);
    let is_given = run(Command::new("chown").arg("12345").arg(images.file(0)));
    if is_given.status.success() {
        let lines = images.run(&[FIRST, ALL_TILES]);
        let parts = ["belongs to uid 12345, expected 0"];
        seen.refused(&lines, "refused", "IMAGE_OWNER", &parts);
    } else {
        println!("NOT EXERCISED: not root");
        seen.unexercised("IMAGE_OWNER");
    }
}

/// A file that somebody lengthens and cuts all the time.
fn a_file_that_changes(seen: &mut Seen) {
    let images = Images::new();
    let sizes = &["kd", "4096", "nd", "512", "t", "70"][..];
    let one = &["tile", "0"];
    images.run(&[sizes, FIRST, one]);
    let path = images.file(0);
    set_mode(&path, 0o600);
    let is_over = AtomicBool::new(false);
    let lines = std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = std::fs::File::options().write(true).open(&path);
            let file = file.expect("because it is ours");
            let length = file.metadata().expect("because it is open").len();
            while !is_over.load(Ordering::Relaxed) {
                for bytes in [length + 1, length] {
                    file.set_len(bytes).expect("because it is open for writing");
                }
            }
        });
        let mut attempts = (0..500).map(|_| images.run(&[&["mode", "2"], sizes, FIRST, one]));
        let found = attempts.find(|lines| lines.iter().any(|l| l.contains("IMAGE_CHANGED")));
        is_over.store(true, Ordering::Relaxed);
        found
    });
    let lines = lines.expect("because its length changes all the time");
    let part = "bytes before it was read";
    seen.refused(&lines, "refused", "IMAGE_CHANGED", &[part]);
    assert!(
        of(&lines, "report")[0].contains(" guards=1 bytes=equal "),
        "{lines:#?}"
    );
}

/// Damage that no hash finds, since whoever made it made the hashes right: samples do.
fn intact_files_that_are_wrong(seen: &mut Seen) {
    // Row-major: depth row 2 of column 0, which is always sampled.
    let code = |path: &Path| forge(path, |bytes| bytes[4096 + 2 * 32] ^= 4);
    let parts = ["column 0, depth row 2, is ", "by another packer"];
    refused(seen, "SAMPLE_CODE", &parts, code);
    let scale = |path: &Path| forge(path, |bytes| bytes[4096 + 48 * 32] ^= 1);
    let parts = ["the scale of column 0 is ", "the packer makes "];
    refused(seen, "SAMPLE_SCALE", &parts, scale);
    // A column that no sample looks at this time; the full check does.
    let images = Images::new();
    images.run(&[FIRST, ALL_TILES]);
    let sampled = |path: &Path, j: usize| forge(path, |bytes| bytes[4096 + j] ^= 4);
    let file = images.file(0);
    let missed = (1..29).find(|j| {
        sampled(&file, *j);
        let lines = images.run(&[&["mode", "2", "seed", "3"], FIRST, &["tile", "0"]]);
        let is_hit = of(&lines, "report")[0].contains(" outcome=1 ");
        if !is_hit {
            sampled(&file, *j);
        }
        is_hit
    });
    let missed = missed.expect("because 8 of 30 columns are sampled");
    let lines = images.run(&[&["mode", "2", "full"], FIRST, &["tile", "0"]]);
    let part = format!("column {missed}, depth row 0, is ");
    seen.refused(&lines, "refused", "IMAGE_SAMPLE_CODE", &[&part]);
}

/// What can't be written is packed, and says why it was not kept.
fn unwritten(seen: &mut Seen) {
    let images = Images::new();
    let lines = images.run(&[&["floor", "18446744073709551614"], FIRST, ALL_TILES]);
    filled(&lines, PACKED, 3);
    seen.refused(&lines, "unwritten", "IMAGE_NO_ROOM", &["stay free"]);
    let lines = images.run(&[&["cap", "4096"], FIRST, ALL_TILES, &["counters"]]);
    filled(&lines, PACKED, 3);
    seen.refused(
        &lines,
        "unwritten",
        "IMAGE_NO_ROOM",
        &["the cap of 4096 bytes"],
    );
    seen.refused(&lines, "reason", "IMAGE_NO_ROOM", &[" 3"]);
    assert!(images.files().is_empty());
    images.run(&[FIRST, ALL_TILES]);
    std::fs::remove_file(images.file(1)).expect("because the folder is ours");
    let files = images.files();
    let lines = images.run(&[&["mode", "2"], FIRST, ALL_TILES]);
    seen.refused(&lines, "unwritten", "IMAGE_READ_ONLY", &["read-only"]);
    let lines = images.run(&[FIRST, &["no-files"], ALL_TILES]);
    let parts = ["too many open files", ".phti"];
    seen.refused(&lines, "refused", "IMAGE_UNREADABLE", &parts);
    seen.refused(&lines, "unwritten", "IMAGE_WRITE_FAILED", &parts[..1]);
    packed_only(&lines);
    assert_eq!(images.files(), files);
    let lines = images.run(&[FIRST, &["short-files"], ALL_TILES, &["counters"]]);
    let parts = ["-t00001.phti would have 5760 bytes", "(RLIMIT_FSIZE)"];
    seen.refused(&lines, "unwritten", "IMAGE_WRITE_FAILED", &parts);
    seen.refused(&lines, "reason", "IMAGE_WRITE_FAILED", &[" 1"]);
    assert_eq!(images.files(), files, "nothing half-written is left");
    // An allocator that says no can't be had from outside; `packhouse-image` has a test of its own.
    seen.unexercised("IMAGE_NO_MEMORY");
}

/// No tile came from an image or was written, and all are right.
fn packed_only(lines: &[String]) {
    for report in of(lines, "report") {
        assert!(report.contains(" outcome=2 written=0 "), "{report}");
        assert!(report.contains(" guards=1 bytes=equal "), "{report}");
    }
}

fn calls(seen: &mut Seen) {
    let images = Images::new();
    images.run(&[FIRST, ALL_TILES]);
    let files = images.files();
    let lines = images.run(&[&["k", "48"], FIRST, ALL_TILES, &["counters"]]);
    seen.refused(&lines, "tile", "TILE_DEPTH", &["k is 48, and kpad is 44"]);
    for report in of(&lines, "report") {
        assert!(
            report.contains(" outcome=0 ") && report.contains(" calls=0 "),
            "{report}"
        );
    }
    let nothing = "hit=0 packed=0 written=0 unwritten=0 refused=0 gathered=0 sampled=0 read=0 ";
    assert!(
        lines.iter().any(|line| line.starts_with(nothing)),
        "{lines:#?}"
    );
    let lines = images.run(&[&["kpad", "49", "measure"]]);
    seen.refused(
        &lines,
        "measure",
        "TILE_GEOMETRY",
        &["kpad is 49, more than kd, which is 48"],
    );
    let parts = ["the callback returned 77 for column 31"];
    let lines = images.run(&[&["mode", "1", "fail", "31", "77"], FIRST, ALL_TILES]);
    seen.refused(&lines, "tile", "TILE_COLUMN", &parts);
    let lines = images.run(&[FIRST, &["ask-within"]]);
    seen.refused(
        &lines,
        "within",
        "SERVE_BUSY",
        &["another call is using the serve"],
    );
    assert_eq!(images.files(), files);
}

const NULL: &str = "NULL_POINTER";
const SIZE: &str = "STRUCT_SIZE";
const FIELD: &str = "UNKNOWN_FIELD";

/// What `tests/c/image_misuse.c` does wrong, and what it is told.
const MISUSES: &[(&str, &str, &str)] = &[
    (
        "images-null-options",
        NULL,
        "packhouse_images_options is NULL",
    ),
    ("images-null-place", NULL, "argument images"),
    ("images-mode", "VALUE", "options.mode is 0"),
    ("images-check", "VALUE", "options.check is 3"),
    (
        "images-flags",
        FIELD,
        "packhouse_images_options has a field set at byte 12",
    ),
    (
        "images-reserved",
        FIELD,
        "packhouse_images_options has a field set at byte 60",
    ),
    ("images-seed", "VALUE", "options.seed is 7, expected 0"),
    (
        "images-small",
        SIZE,
        "packhouse_images_options.struct_size is 8",
    ),
    ("why-null-images", NULL, "argument images"),
    ("why-null-reason", NULL, "packhouse_refusal"),
    ("measure-null", NULL, "packhouse_tile_geometry"),
    ("measure-null-sizes", NULL, "packhouse_tile_sizes"),
    ("order", "VALUE", "geometry.order is 3"),
    (
        "measure-vocabulary",
        "TILE_HEAD",
        "vocabulary is 0, expected 1 to 3000000",
    ),
    (
        "measure-vocabulary-max",
        "TILE_HEAD",
        "vocabulary is 18446744073709551615, expected 1 to 3000000",
    ),
    (
        "measure-tiles",
        "TILE_HEAD",
        "vocabulary is 3000001, expected 1 to 3000000",
    ),
    ("position-null", NULL, "argument position"),
    (
        "position-depth",
        "INDEX",
        "index 48 is past the end: there are 48",
    ),
    (
        "position-column",
        "INDEX",
        "index 32 is past the end: there are 32",
    ),
    ("digest-null-head", NULL, "packhouse_head"),
    ("digest-null-tensors", NULL, "argument tensors"),
    (
        "digest-no-tensors",
        "VALUE",
        "tensor_count is 0, expected 1 to 64",
    ),
    (
        "digest-tensors",
        "VALUE",
        "tensor_count is 65, expected 1 to 64",
    ),
    ("digest-null-data", NULL, "tensors[].data"),
    (
        "digest-no-object",
        "VALUE",
        "tensors[].bytes is 9223372036854775808",
    ),
    ("digest-null-dtype", NULL, "head.dtype"),
    (
        "digest-dtype-text",
        "TEXT",
        "head.dtype is not UTF-8 at byte 0",
    ),
    ("digest-no-dtype", "TILE_DTYPE", "dtype is \"\""),
    ("digest-long-dtype", "TILE_DTYPE", "\"seventeen_letters\""),
    ("digest-tied", "VALUE", "head.is_tied is 2, expected 0 or 1"),
    ("digest-small-head", SIZE, "packhouse_head.struct_size is 8"),
    ("begin-null-images", NULL, "argument images"),
    ("begin-null-head", NULL, "packhouse_head"),
    ("begin-null-geometry", NULL, "packhouse_tile_geometry"),
    ("begin-null-owner", NULL, "argument owner"),
    ("begin-null-place", NULL, "argument serve"),
    ("begin-owner-text", "TEXT", "owner is not UTF-8 at byte 1"),
    (
        "begin-empty-owner",
        "VALUE",
        "owner's length is 0, expected 1 to 1024",
    ),
    (
        "begin-long-owner",
        "VALUE",
        "owner's length is 1025, expected 1 to 1024",
    ),
    ("begin-longest-owner", "OK", ""),
    ("begin-no-digest", "VALUE", "head.digest is 0"),
    (
        "request-width",
        "TILE_HEAD",
        "width is 45, expected 1 to kpad, which is 44",
    ),
    ("request-vocabulary", "TILE_HEAD", "vocabulary is 0"),
    ("request-blocked", "TILE_GEOMETRY", "kd is 48"),
    ("tile-null-serve", NULL, "argument serve"),
    ("tile-null", NULL, "packhouse_tile"),
    ("tile-null-column", NULL, "argument column"),
    (
        "tile-small-report",
        SIZE,
        "packhouse_tile_report.struct_size is 8",
    ),
    ("tile-null-codes", NULL, "tile.codes"),
    ("tile-null-scales", NULL, "tile.scales"),
    (
        "tile-short-codes",
        "BUFFER",
        "codes are 1535, expected kd * nd, which is 1536",
    ),
    (
        "tile-long-scales",
        "BUFFER",
        "scales are 33, expected nd, which is 32",
    ),
    (
        "tile-flags",
        FIELD,
        "packhouse_tile has a field set at byte 4",
    ),
    (
        "tile-overlap",
        "OVERLAP",
        "tile.codes and tile.scales overlap",
    ),
    ("tile-overlap-end", "OVERLAP", "overlap"),
    ("tile-index", "INDEX", "tile is 3, and the head has 3"),
    ("tile-depth", "TILE_DEPTH", "k is 48, and kpad is 44"),
    ("tile-misaligned", "VALUE", "expected a multiple of 4"),
    ("counters-null-serve", NULL, "argument serve"),
    ("counters-null", NULL, "packhouse_image_counters"),
    ("reason-null-serve", NULL, "argument serve"),
    ("reason-null", NULL, "packhouse_tile_reason"),
    ("line-null-serve", NULL, "argument serve"),
    ("line-null", NULL, "packhouse_line"),
];

/// Each call that breaks the rules has its status, calls no callback and writes nothing.
fn misuse(seen: &mut Seen) {
    let images = Images::new();
    let lines = images.run(&[&["misuse"]]);
    for &(name, status, part) in MISUSES {
        seen.refused(&lines, &format!("misuse {name}"), status, &[part]);
    }
    let made = lines.iter().filter(|line| line.starts_with("misuse "));
    assert_eq!(made.count(), MISUSES.len() + 4, "{lines:#?}");
    for whole in [
        "images-place-is-null yes",
        "serve-place-is-null yes",
        "most-tiles yes",
        "guards whole calls=0",
    ] {
        assert!(
            lines.contains(&format!("misuse {whole}")),
            "{whole}: {lines:#?}"
        );
    }
    assert!(images.files().is_empty());
}
