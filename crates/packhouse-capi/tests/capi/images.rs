//! Images of head tiles through C: cold, warm and off starts, callbacks, threads, release, and the
//! example that stands in for an engine.

use crate::world::{edit, program, run};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

/// A folder for images, not made yet.
pub(crate) struct Images {
    folder: tempfile::TempDir,
}

/// What `tests/c/tiles.c` makes up: three tiles, the last of them ragged.
pub(crate) const FIRST: &[&str] = &["open", "digest", "begin"];
pub(crate) const ALL_TILES: &[&str] = &["tile", "0", "tile", "1", "tile", "2"];
/// The same head in blocked tiles; the first of them has every column.
pub(crate) const BLOCKED: &[&str] = &[
    "order",
    "2",
    "kd",
    "64",
    "nd",
    "128",
    "t",
    "60",
    "vocabulary",
    "65",
];

impl Images {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("images-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"));
        Self {
            folder: folder.expect("because the build folder is writable"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("images")
    }

    /// Runs the program with words and returns its lines.
    pub(crate) fn run(&self, parts: &[&[&str]]) -> Vec<String> {
        let sources = ["images.c", "image_misuse.c", "tiles.c"];
        let mut command = Command::new(program("images", &sources));
        command.arg(self.root()).args(parts.concat());
        let output = run(&mut command);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{parts:?}: {said}");
        let lines = String::from_utf8(output.stdout).expect("because the program prints UTF-8");
        lines.lines().map(str::to_owned).collect()
    }

    /// The images there are, by name, with their bytes.
    pub(crate) fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let Ok(entries) = std::fs::read_dir(self.root().join("v1")) else {
            return BTreeMap::new();
        };
        let paths = entries.map(|entry| entry.expect("because the folder is ours").path());
        let images = paths.filter(|path| path.extension().is_some_and(|one| one == "phti"));
        images
            .map(|path| {
                let bytes = std::fs::read(&path).expect("because it is readable");
                (path, bytes)
            })
            .collect()
    }

    /// The image of a tile, when there is one head's only.
    pub(crate) fn file(&self, tile: u64) -> PathBuf {
        let end = format!("-t{tile:05}.phti");
        let mut found = self.files().into_keys();
        found
            .find(|path| path.to_string_lossy().ends_with(&end))
            .expect("because it was written")
    }
}

/// The lines that begin with a word.
pub(crate) fn of<'a>(lines: &'a [String], word: &str) -> Vec<&'a str> {
    let wanted = format!("{word} ");
    let found = lines.iter().filter(|line| line.starts_with(&wanted));
    found.map(String::as_str).collect()
}

fn has(lines: &[String], part: &str) {
    assert!(
        lines.iter().any(|line| line.contains(part)),
        "{part:?} is in none of {lines:#?}"
    );
}

/// Every tile was filled right, between whole guards, with this outcome.
pub(crate) fn filled(lines: &[String], outcome: u32, tiles: usize) {
    let reports = of(lines, "report");
    assert_eq!(reports.len(), tiles, "{lines:#?}");
    for report in reports {
        assert!(report.contains(&format!(" outcome={outcome} ")), "{report}");
        assert!(
            report.contains(" guards=1 bytes=equal sum=1 time=1"),
            "{report}"
        );
    }
    for tile in of(lines, "tile") {
        assert_eq!(tile, "tile PACKHOUSE_OK ");
    }
    for refused in of(lines, "refused") {
        assert_eq!(refused, "refused PACKHOUSE_OK ", "{lines:#?}");
    }
}

pub(crate) const HIT: u32 = 1;
pub(crate) const PACKED: u32 = 2;

#[test]
fn cold_warm_and_off_starts_fill_the_same_bytes_in_both_orders() {
    let [rm, b8]: [&[&str]; 2] = [&[], BLOCKED];
    for (sizes, tiles, columns, image) in [(rm, 3, 70, 5760), (b8, 2, 65, 12_800)] {
        let images = Images::new();
        let all = &ALL_TILES[..2 * tiles];
        let end: &[&str] = &["counters", "line"];
        let cold = images.run(&[sizes, &["seed", "5"], FIRST, all, end]);
        filled(&cold, PACKED, tiles);
        has(&cold, &format!(" written={image} "));
        let wrote = format!(
            "hit=0 packed={tiles} written={tiles} unwritten=0 refused=0 gathered={columns} \
             sampled=0 read=0 wrote={} removed=0/0 problems=0 seed=5",
            image * tiles
        );
        has(&cold, &wrote);
        let files = images.files();
        assert_eq!(files.len(), tiles);
        for bytes in files.values() {
            assert_eq!(bytes.len(), image);
        }
        let warm = images.run(&[sizes, FIRST, all, end]);
        filled(&warm, HIT, tiles);
        has(
            &warm,
            &format!("hit={tiles} packed=0 written=0 unwritten=0 refused=0 gathered=0 sampled="),
        );
        for report in of(&warm, "report") {
            assert!(
                report.contains("calls=8 ") || report.contains("calls=5 "),
                "{report}"
            );
        }
        let full = images.run(&[sizes, &["full"], FIRST, all]);
        filled(&full, HIT, tiles);
        let off = images.run(&[sizes, &["mode", "1"], FIRST, all, end]);
        filled(&off, PACKED, tiles);
        has(
            &off,
            &format!("hit=0 packed={tiles} written=0 unwritten={tiles} refused=0 "),
        );
        has(&off, " read=0 wrote=0 ");
        assert_eq!(images.files(), files, "an off start touches nothing");
        for lines in [&cold, &warm, &off] {
            assert_eq!(of(lines, "line"), ["line PACKHOUSE_OK "]);
            assert_eq!(of(lines, "says").len(), 1, "{lines:#?}");
        }
        let told = [&cold, &warm, &off].map(|lines| of(lines, "says")[0].to_owned());
        assert!(told[0] != told[1] && told[1] != told[2], "{told:?}");
    }
}

/// What every later serve of the same images would take as long for.
#[test]
fn the_fingerprint_is_taken_by_the_first_serve_of_images_and_told() {
    let images = Images::new();
    let again: &[&str] = &["tile", "0", "counters", "line", "begin"];
    let lines = images.run(&[FIRST, again, again, &["open", "begin"], again]);
    let expected = [true, false, true];
    let told = of(&lines, "times");
    let is_told = told.iter().map(|line| line.contains(" fingerprint=1 "));
    assert!(is_told.eq(expected), "{lines:#?}");
    let says = of(&lines, "says");
    let is_said = says.iter().map(|line| line.contains(" fingerprint "));
    assert!(is_said.eq(expected), "{says:?}");
    let other = &[
        "counters", "line", "order", "2", "kd", "64", "nd", "128", "begin", "counters",
    ];
    let lines = images.run(&[FIRST, other]);
    for line in of(&lines, "times") {
        assert!(
            line.contains(" fingerprint=1 "),
            "each order has one: {line}"
        );
    }
    let lines = images.run(&[&["mode", "1"], FIRST, again]);
    assert!(
        of(&lines, "times")[0].contains(" fingerprint=0 "),
        "{lines:#?}"
    );
    let line = of(&lines, "says")[0];
    let parts = [" fingerprint ", " write ", " sample ", " 0 us"];
    assert!(!parts.iter().any(|part| line.contains(part)), "{line}");
}

#[test]
fn the_sizes_and_positions_are_those_of_the_published_formulas() {
    let images = Images::new();
    let lines = images.run(&[
        &["measure"],
        BLOCKED,
        &["kd", "128", "nd", "256", "measure"],
    ]);
    has(&lines, "codes=1536 scales=128 image=5760 tiles=3");
    has(&lines, "codes=32768 scales=1024 image=37888 tiles=2");
    let positions = lines.iter().filter(|line| line.starts_with("positions"));
    assert!(positions.eq(["positions that differ: 0"; 2]));
    assert!(!images.root().exists(), "measuring makes no folder");
}

#[test]
fn the_digest_is_of_scalars_and_every_tensor() {
    let images = Images::new();
    let digest = |words: &[&str]| {
        let lines = images.run(&[words, &["digest"]]);
        of(&lines, "digest")[1].to_owned()
    };
    let first = digest(&[]);
    assert_eq!(first, digest(&[]));
    for words in [["weights", "2"], ["vocabulary", "71"], ["width", "39"]] {
        assert_ne!(first, digest(&words), "{words:?}");
    }
}

#[test]
fn other_weights_of_an_owner_replace_its_images_and_leave_those_of_others() {
    let images = Images::new();
    images.run(&[FIRST, ALL_TILES]);
    let other = ["owner", "another model", "weights", "9"];
    images.run(&[&other, FIRST, ALL_TILES]);
    assert_eq!(images.files().len(), 6);
    let lines = images.run(&[&["weights", "2"], FIRST, ALL_TILES, &["counters"]]);
    filled(&lines, PACKED, 3);
    has(&lines, &format!(" removed=3/{} ", 3 * 5760));
    let notes = of(&lines, "notes");
    assert!(notes[0].starts_with("notes 3 removed "), "{notes:?}");
    assert!(
        notes[0].contains(".phti, 5760 bytes: its owner moved"),
        "{notes:?}"
    );
    assert_eq!(notes[1..], ["notes 0 "; 2]);
    assert_eq!(images.files().len(), 6);
    filled(&images.run(&[&other, FIRST, ALL_TILES]), HIT, 3);
}

#[test]
fn a_read_only_start_reads_and_writes_nothing() {
    let images = Images::new();
    let read_only = &["mode", "2"];
    let lines = images.run(&[read_only, FIRST, ALL_TILES]);
    filled(&lines, PACKED, 3);
    assert!(!images.root().exists(), "a reader makes no folder");
    images.run(&[FIRST, ALL_TILES]);
    filled(&images.run(&[read_only, FIRST, ALL_TILES]), HIT, 3);
    edit(&images.file(1), |bytes| bytes[5000] ^= 1);
    let files = images.files();
    let lines = images.run(&[read_only, FIRST, ALL_TILES]);
    has(&lines, "refused PACKHOUSE_IMAGE_PAYLOAD_HASH image ");
    assert_eq!(of(&lines, "report").len(), 3);
    for report in of(&lines, "report") {
        assert!(report.contains("written=0 "), "{report}");
        assert!(report.contains(" guards=1 bytes=equal "), "{report}");
    }
    assert_eq!(images.files(), files);
}

#[test]
fn a_callbacks_error_ends_the_tile_and_comes_back_with_its_number() {
    let images = Images::new();
    let fail = &["fail", "33", "-7"];
    let lines = images.run(&[fail, FIRST, ALL_TILES, &["counters"]]);
    let tiles = of(&lines, "tile");
    assert_eq!(tiles[0], "tile PACKHOUSE_OK ");
    assert!(
        tiles[1].starts_with("tile PACKHOUSE_TILE_COLUMN "),
        "{tiles:?}"
    );
    assert!(
        tiles[1].contains("column 33") && tiles[1].contains("-7"),
        "{tiles:?}"
    );
    // The serve goes on.
    assert_eq!(tiles[2], "tile PACKHOUSE_OK ");
    let report = of(&lines, "report")[1];
    assert!(
        report.contains("outcome=0 written=0 failed=33/-7 "),
        "{report}"
    );
    assert!(report.contains(" guards=1 "), "{report}");
    assert_eq!(images.files().len(), 2, "no image of the tile that failed");
    // The same while a warm start samples: column 30 is always looked at.
    images.run(&[FIRST, ALL_TILES]);
    let files = images.files();
    let lines = images.run(&[&["fail", "30", "5"], FIRST, ALL_TILES]);
    let tiles = of(&lines, "tile");
    assert!(
        tiles[1].starts_with("tile PACKHOUSE_TILE_COLUMN "),
        "{tiles:?}"
    );
    assert!(
        of(&lines, "report")[1].contains("failed=30/5 "),
        "{lines:#?}"
    );
    assert_eq!(
        images.files(),
        files,
        "a callback's error is no fault of the image"
    );
}

#[test]
fn the_callback_is_called_by_others_only_when_the_tile_allows_it() {
    let images = Images::new();
    let lines = images.run(&[&["mode", "1"], FIRST, ALL_TILES]);
    for report in of(&lines, "report") {
        assert!(report.contains(" others=0 "), "{report}");
    }
    let every = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    if every < 2 {
        println!("NOT EXERCISED: one CPU");
        return;
    }
    // Each call waits until two threads are in one. Small tiles are not worth a second thread.
    let wide = &["nd", "512", "t", "500", "vocabulary", "1000", "parallel"][..];
    let lines = images.run(&[wide, &["meet", "mode", "1"], FIRST, &["tile", "0"]]);
    filled(&lines, PACKED, 1);
    let report = of(&lines, "report")[0];
    assert!(report.contains(" calls=500 others=1 "), "{report}");
    let lines = images.run(&[wide, &["fail", "3", "9"], FIRST, &ALL_TILES[..4]]);
    has(&lines, "tile PACKHOUSE_TILE_COLUMN ");
    has(&lines, "failed=3/9 ");
    has(&lines, "report 1 outcome=2 written=30720 ");
    // By one thread at a time, while others write.
    let lines = images.run(&[&wide[..6], FIRST, &ALL_TILES[..4]]);
    for report in of(&lines, "report") {
        assert!(
            report.contains(" others=0 guards=1 bytes=equal "),
            "{report}"
        );
    }
}

#[test]
fn two_threads_share_images_each_with_a_serve_of_its_own() {
    let images = Images::new();
    for _ in 0..2 {
        let lines = images.run(&[&["open", "digest", "share"]]);
        has(&lines, "shared right");
        assert_eq!(images.files().len(), 3);
    }
    filled(&images.run(&[FIRST, ALL_TILES]), HIT, 3);
}

#[test]
fn a_serve_outlives_its_images_and_refuses_a_second_call_while_one_runs() {
    let images = Images::new();
    let lines = images.run(&[FIRST, &["ask-within", "release-order"], ALL_TILES]);
    let within = of(&lines, "within");
    assert!(
        within[0].starts_with("within PACKHOUSE_SERVE_BUSY "),
        "{within:?}"
    );
    assert_eq!(of(&lines, "asked"), ["asked PACKHOUSE_OK "]);
    has(&lines, "released");
    assert_eq!(of(&lines, "tile"), ["tile PACKHOUSE_OK "; 3]);
}

/// Runs the example; returns its exit code and both streams.
fn head(images: &Images, words: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let mut command = Command::new(program("head", &["head.c"]));
    command.arg(images.root()).args(words);
    command
        .env_remove("PACKHOUSE")
        .env_remove("PACKHOUSE_READONLY");
    command.envs(environment.iter().copied());
    let output = run(&mut command);
    let [out, err] = [output.stdout, output.stderr];
    let [out, err] = [out, err].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output.status.code().unwrap_or(-1), out, err)
}

#[test]
fn the_example_has_the_same_logits_cold_warm_damaged_and_off() {
    for order in [
        &["rm", "70", "40", "48", "32", "44", "30"][..],
        &["b8", "300", "100", "128", "128", "104", "120"],
    ] {
        let images = Images::new();
        let (code, cold, said) = head(&images, order, &[]);
        assert_eq!((code, said.as_str()), (0, ""), "{cold}");
        let logits = |out: &str| {
            let last = out.lines().last().expect("because it says what it did");
            assert!(last.ends_with(": equal"), "{out}");
            last.to_owned()
        };
        let expected = logits(&cold);
        let files = images.files();
        assert_eq!(files.len(), 3);
        let (code, warm, said) = head(&images, order, &[]);
        assert_eq!((code, said.as_str()), (0, ""));
        assert_eq!(logits(&warm), expected);
        assert_ne!(
            warm.lines().next(),
            cold.lines().next(),
            "the line says where tiles came from"
        );
        edit(&images.file(2), |bytes| bytes[4096] ^= 0x40);
        let (code, damaged, said) = head(&images, order, &[("PACKHOUSE_READONLY", "1")]);
        assert_eq!((code, logits(&damaged)), (0, expected.clone()));
        assert!(
            said.contains("tile 2: image not used: PACKHOUSE_IMAGE_PAYLOAD_HASH: ")
                && said.contains("-t00002.phti"),
            "{said}"
        );
        assert!(said.contains("tile 2: image not written: "), "{said}");
        assert_ne!(images.files(), files, "still damaged");
        let (code, off, _) = head(&images, order, &[("PACKHOUSE", "0")]);
        assert_eq!((code, logits(&off)), (0, expected.clone()));
        assert_ne!(images.files(), files, "still damaged");
        let (code, repaired, _) = head(&images, order, &[]);
        assert_eq!((code, logits(&repaired)), (0, expected.clone()));
        assert_eq!(images.files(), files);
    }
}

#[test]
fn the_example_takes_a_head_from_a_file_and_says_how_it_is_used() {
    let images = Images::new();
    let path = images.path("head.bf16");
    let value = |at: u16| (0x3c00 + at % 700).to_le_bytes();
    let bytes: Vec<u8> = (0..70 * 40).flat_map(value).collect();
    std::fs::write(&path, &bytes).expect("because it is ours");
    let path = path.display().to_string();
    let words = ["rm", "70", "40", "48", "32", "44", "30", path.as_str()];
    let (code, first, said) = head(&images, &words, &[]);
    assert_eq!((code, said.as_str()), (0, ""), "{first}");
    let (_, made_up, _) = head(&images, &words[..7], &[]);
    assert_ne!(first.lines().last(), made_up.lines().last());
    std::fs::write(&path, &bytes[..5000]).expect("because it is ours");
    let (code, _, said) = head(&images, &words, &[]);
    assert_eq!(code, 3);
    assert!(said.contains("5000 of 5600 bytes"), "{said}");
    let (code, _, said) = head(&images, &["b8", "1", "1", "65", "128", "1", "1"], &[]);
    assert_eq!(code, 3);
    assert!(
        said.contains("the tiles refused: PACKHOUSE_TILE_GEOMETRY: kd is 65"),
        "{said}"
    );
    assert_eq!(head(&images, &["xx"], &[]).0, 2);
}

/// Calls that break the rules of ownership, as `canary.c` has them for sets.
#[test]
fn the_sanitizer_reports_images_and_buffers_that_are_gone() {
    let images = Images::new();
    let broken = program("image_canary", &["image_canary.c", "tiles.c"]);
    let run_as = |what: &str| run(Command::new(&broken).arg(images.root()).arg(what));
    let output = run_as("nothing");
    assert!(output.status.success(), "{output:?}");
    if std::env::var_os("PACKHOUSE_TEST_ASAN").is_none() {
        return;
    }
    let freed = "AddressSanitizer: heap-use-after-free";
    let beyond = "AddressSanitizer: heap-buffer-overflow";
    for (what, parts) in [
        ("images-after-release", [freed, "packhouse_serve_begin"]),
        ("serve-after-release", [freed, "packhouse_serve_line"]),
        ("buffer-after-free", [freed, "packhouse_serve_tile"]),
        ("buffer-too-short", [beyond, "packhouse_serve_tile"]),
        ("column-too-long", [beyond, "too_long"]),
        (
            "leak",
            [
                "LeakSanitizer: detected memory leaks",
                "packhouse_serve_begin",
            ],
        ),
    ] {
        let output = run_as(what);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{what} went unnoticed: {said}");
        for part in parts {
            assert!(said.contains(part), "{what}: {part}: {said}");
        }
    }
}
