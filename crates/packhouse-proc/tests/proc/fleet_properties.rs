//! Fleet files of chance: what was written is what is read, one mistake is one mistake at its
//! place, and no bytes make the reader panic.

use packhouse_proc::fleet::{self, Reach};
use proptest::prelude::*;
use std::fmt::Write as _;

/// One worker as a test writes it.
#[derive(Clone, Debug)]
struct Written {
    name: String,
    port: u16,
    core: u32,
    args: Vec<String>,
    timeout_s: Option<u64>,
}

fn workers() -> impl Strategy<Value = Vec<Written>> {
    let args = prop::collection::vec("[a-z0-9 \"'\\\\=\u{e4}-]{0,8}", 0..3);
    let one = (
        "[a-z0-9][a-z0-9._-]{0,9}",
        any::<bool>(),
        args,
        1_u64..86_400,
    );
    prop::collection::btree_map(1_u16..=u16::MAX, one, 1..6).prop_map(|workers| {
        let workers = workers.into_iter().enumerate();
        let workers =
            workers.map(
                |(index, (port, (name, has_timeout, args, timeout_s)))| Written {
                    // Names are unique by their beginning.
                    name: format!("{index}{name}"),
                    port,
                    core: u32::try_from(index).expect("because there are few"),
                    args,
                    timeout_s: has_timeout.then_some(timeout_s),
                },
            );
        workers.collect()
    })
}

/// A text in TOML.
fn literal(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The file of some workers, one key a line.
fn file(workers: &[Written]) -> String {
    let mut text = String::from(
        "schema = \"packhouse/fleet/1\"\nname = \"chance\"\n[engine]\n\
         command = [\"server\", \"{host}\", \"{port}\"]\n",
    );
    for worker in workers {
        let args: Vec<String> = worker.args.iter().map(|arg| literal(arg)).collect();
        let name = literal(&worker.name);
        writeln!(text, "[[worker]]\nname = {name}\nport = {}", worker.port).unwrap();
        writeln!(
            text,
            "device = \"cpu:{}\"\nargs = [{}]",
            worker.core,
            args.join(", ")
        )
        .unwrap();
        if let Some(timeout_s) = worker.timeout_s {
            writeln!(text, "ready_timeout_s = {timeout_s}").unwrap();
        }
    }
    text
}

proptest! {
    #[test]
    fn what_was_written_is_read(workers in workers()) {
        let fleet = fleet::parse(&file(&workers)).expect("because it is right");
        prop_assert_eq!(fleet.workers.len(), workers.len());
        for (read, written) in fleet.workers.iter().zip(&workers) {
            prop_assert_eq!(read.name.as_str(), &written.name);
            prop_assert_eq!(read.port, written.port);
            prop_assert_eq!(read.devices[0].to_string(), format!("cpu:{}", written.core));
            prop_assert_eq!(read.ready_timeout_s, written.timeout_s.unwrap_or(300));
            let args = read.arguments[2..].iter();
            let args: Vec<&str> = args.map(|arg| arg.literal().unwrap()).collect();
            prop_assert_eq!(args, written.args.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }

    /// One bad line in one worker: exactly one mistake, on that line, that blocks that worker only.
    #[test]
    fn one_mistake_is_one_mistake_at_its_line(
        workers in workers(),
        index in any::<prop::sample::Index>(),
        bad in prop::sample::select(vec![
            "thread = 3", "threads = 0", "threads = \"3\"", "role = \"a b\"",
            "model_sha256 = \"x\"",
            "environment = { A = 1 }", "environment = { CUDA_VISIBLE_DEVICES = \"0\" }",
            "inherit = [\"A B\"]", "health_path = \"x\"", "profile = \"none\"", "host = \"x\"",
            "stop_timeouts_s = { kill = 3601 }", "environment = { A = \"{x}\" }",
        ]),
    ) {
        let chosen = &workers[index.index(workers.len())];
        let header = format!("name = {}\n", literal(&chosen.name));
        let text = file(&workers);
        let at = text.find(&header).expect("because the file has it") + header.len();
        let text = format!("{}{bad}\n{}", &text[..at], &text[at..]);
        let line = text[..at].matches('\n').count() + 1;
        let mistakes = fleet::read(text.as_bytes()).mistakes;
        // A digest without a model is a second one beside its form.
        let expected = if bad.starts_with("model_sha256") { 1..=2 } else { 1..=1 };
        prop_assert!(expected.contains(&mistakes.len()), "{bad}: {mistakes:?}");
        for mistake in &mistakes {
            prop_assert_eq!(mistake.line, line);
            prop_assert_eq!(&mistake.blocks.workers, &Reach::one(&chosen.name));
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        sane(&bytes);
    }

    /// Right files and files full of mistakes with pieces cut out, doubled and overwritten.
    #[test]
    fn no_mangled_file_makes_it_panic(
        is_right in any::<bool>(),
        cuts in prop::collection::vec(
            (any::<prop::sample::Index>(), 0_usize..40, "[\\[\\]{}\"'=,.\n#a-z0-9]{0,6}"),
            1..6,
        ),
    ) {
        let mistakes = include_bytes!("../data/fleet/mistakes.toml");
        let right = include_bytes!("../../../../examples/fleet.toml");
        let mut bytes = if is_right { right.to_vec() } else { mistakes.to_vec() };
        for (index, length, put) in cuts {
            let start = index.index(bytes.len());
            let end = (start + length).min(bytes.len());
            bytes.splice(start..end, put.into_bytes());
            if bytes.is_empty() {
                bytes.push(b' ');
            }
        }
        sane(&bytes);
    }
}

/// Large files, made to be slow: each is read to its end, and no more is told than anybody reads.
#[test]
fn the_worst_files_are_read_in_bounded_time() {
    let fill = |begin: &str, piece: &str, end: &str| {
        let count = (LARGE - begin.len() - end.len()) / piece.len();
        [begin, &piece.repeat(count), end].concat()
    };
    let keys = |separator: &str| {
        let keys = (0..6_000).map(|key| format!("k{key}=1{separator}"));
        keys.collect::<String>()
    };
    for (name, text) in [
        ("workers", fill("", "[[worker]]\n", "")),
        ("doubled keys", fill("", "a=1\n", "")),
        ("no values", fill("", "a=\n", "")),
        ("no keys", fill("", "a\n", "")),
        ("commas", fill("a=[", ",", "]")),
        ("never closed", fill("a=[", "1,", "")),
        ("opened", fill("a=", "[", "")),
        ("opened tables", fill("a=", "{a=", "")),
        ("headers", fill("", "[", "")),
        ("dots", fill("a", ".a", "=1")),
        ("unknown keys", keys("\n")),
        (
            "unknown keys of a table",
            format!("common={{{}}}", keys(",")),
        ),
        ("braces", fill("common={args=[\"", "{", "\"]}")),
        ("no UTF-8", "\u{e4}".repeat(LARGE / 2)),
    ] {
        assert!(text.len() <= fleet::FLEET_BYTES_MAX, "{name}");
        let mistakes = fleet::read(text.as_bytes()).mistakes;
        assert!(
            (1..=1_001).contains(&mistakes.len()),
            "{name}: {}",
            mistakes.len()
        );
    }
}

const LARGE: usize = fleet::FLEET_BYTES_MAX / 2;

/// What holds for the reading of any bytes.
fn sane(bytes: &[u8]) {
    let reading = fleet::read(bytes);
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text.split('\n').collect();
    for mistake in &reading.mistakes {
        let line = lines.get(mistake.line - 1);
        let line = line.unwrap_or_else(|| panic!("no line {}", mistake.line));
        assert!(mistake.column <= line.chars().count() + 1, "{mistake:?}");
        assert!(!mistake.to_string().contains('\n'), "{mistake}");
    }
    let places = reading
        .mistakes
        .iter()
        .map(|mistake| (mistake.line, mistake.column));
    assert!(places.is_sorted());
    let is_right = std::str::from_utf8(bytes).is_ok_and(|text| fleet::parse(text).is_ok());
    assert_eq!(is_right, reading.mistakes.is_empty());
    if is_right {
        let fleet = reading.fleet.expect("because a right file has a name");
        assert_eq!(fleet.workers.len(), reading.declared.len());
        assert!(!fleet.workers.is_empty());
    }
}
