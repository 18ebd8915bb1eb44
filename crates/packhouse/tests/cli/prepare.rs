//! `prepare`, `repair` and `index` from outside: what they say, how they end, and that no kill and
//! no other process leaves anything but whole packs.

use crate::model;
use crate::sandbox::Sandbox;
use crate::store;
use packhouse_base::digest::Digest;
use packhouse_store::root::Store;
use packhouse_store::verify::Depth;
use serde_json::Value;
use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// Writes a model of matrices that the plan `xe2-q4_0` takes.
fn write_model(path: &Path, layers: u64) {
    let names: Vec<String> = (0..layers)
        .map(|layer| format!("blk.{layer}.ffn_up.weight"))
        .collect();
    let dims = [256u64, 64];
    let tensors: Vec<_> = names
        .iter()
        .map(|name| (name.as_str(), "Q4_0", dims.as_slice()))
        .collect();
    model::write(path, &tensors, &[]);
    // Each tensor its own bytes: the packs of equal ones would be one.
    let mut bytes = std::fs::read(path).unwrap();
    let start = bytes.len() - usize::try_from(layers * 256 * 64 / 32 * 18).unwrap();
    let mut state = u32::try_from(layers).unwrap();
    for byte in &mut bytes[start..] {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    std::fs::write(path, bytes).unwrap();
}

fn run(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().unwrap();
    (
        status.code().expect("because nothing kills it"),
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    )
}

/// `prepare model.gguf` with one JSON document as answer.
fn prepare(sandbox: &Sandbox) -> Value {
    let words = ["prepare", "model.gguf", "--plan", "xe2-q4_0", "--json"];
    let (exit, said, complained) = run(&mut sandbox.command(&words));
    assert_eq!((exit, complained.as_str()), (0, ""), "{said}");
    serde_json::from_str(&said).unwrap()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut todo = vec![folder.to_owned()];
    while let Some(folder) = todo.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => todo.push(path),
                Ok(_) => files.push(path),
                Err(_) => {}
            }
        }
    }
    files
}

/// Every set deeply good, one object per pack, and no temporary file in the store. A kill in the
/// middle of a private note may leave one of a few bytes, which gc takes.
fn must_be_sound(sandbox: &Sandbox, store: &Store, packs: usize) {
    let depth = Depth::Deep {
        threads: NonZeroUsize::MIN,
    };
    for set in store.list_sets().unwrap() {
        let found = store.verify_set(set, depth, &|_| {});
        assert!(found.is_good(), "{found:?}");
    }
    let root = sandbox.path("home/.cache/packhouse/v1");
    assert_eq!(files(&root.join("objects")).len(), packs);
    assert_eq!(files(&root.join("packs")).len(), packs);
    let temps = files(&root)
        .into_iter()
        .filter(|path| path.to_string_lossy().contains(".tmp-"));
    assert_eq!(temps.collect::<Vec<_>>(), Vec::<PathBuf>::new());
}

#[test]
fn a_model_is_prepared_once_and_found_then() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 3);
    let first = prepare(&sandbox);
    assert_eq!(first["outcome"], "created");
    assert_eq!(
        (&first["packed_count"], &first["reused_count"]),
        (&3.into(), &0.into())
    );
    assert_eq!(first["admission"], "hashed");
    let second = prepare(&sandbox);
    assert_eq!(second["outcome"], "equal");
    assert_eq!(second["set"], first["set"]);
    for field in [
        "source_bytes",
        "written_bytes",
        "reverified_count",
        "packed_count",
    ] {
        assert_eq!(second[field], 0, "{field}");
    }
    assert!(
        second["duration_ns"].as_u64().unwrap() < 1_500_000_000,
        "it waits for nothing"
    );
    let set = &first["set"].as_str().unwrap()[..12];
    let (exit, said, _) =
        run(&mut sandbox.command(&["prepare", "model.gguf", "--plan", "xe2-q4_0"]));
    assert_eq!(exit, 0);
    let start = format!(
        "set {set} was there: 3 tensors (27.0 KiB), 0 packed, 3 reused, 0 healed\n\
         read 0 B, wrote 0 B in "
    );
    assert!(said.starts_with(&start), "{said}");
    assert!(!said.contains("/s"), "a rate of nothing: {said}");
    let end = format!("; source hashed as a whole\nnext: packhouse stage {set}\n");
    assert!(said.ends_with(&end), "{said}");
    must_be_sound(&sandbox, &store::open(&sandbox), 3);
    // Each run left one bounded log.
    let runs = files(&sandbox.path("home/.local/state/packhouse"));
    let runs = runs
        .iter()
        .filter(|path| path.parent().is_some_and(|p| p.ends_with("runs")));
    assert_eq!(runs.count(), 3);
}

#[test]
fn the_index_is_printed_and_written_once() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 2);
    let set = prepare(&sandbox)["set"].as_str().unwrap().to_owned();
    let (exit, said, _) = run(&mut sandbox.command(&["index"]));
    let path = sandbox.path(&format!(
        "home/.cache/packhouse/v1/sets/{set}/runtime-index.tsv"
    ));
    assert_eq!((exit, said), (0, std::fs::read_to_string(path).unwrap()));
    let (exit, said, _) = run(&mut sandbox.command(&["index", &set[..8], "--json"]));
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(exit, 0);
    assert_eq!(json["entries"].as_array().unwrap().len(), 2);
    sandbox.session(
        "index",
        &[
            &["index", "--output", "index.tsv"],
            &["index", "--output", "index.tsv"],
            &["index", "00000000"],
        ],
    );
    let (_, printed, _) = run(&mut sandbox.command(&["index"]));
    assert_eq!(
        std::fs::read_to_string(sandbox.path("index.tsv")).unwrap(),
        printed
    );
}

#[test]
fn what_cant_be_prepared_is_said_and_nothing_is_made() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("model.gguf");
    write_model(&path, 2);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(sandbox.path("empty.gguf"), b"").unwrap();
    std::fs::write(sandbox.path("cut.gguf"), &whole[..whole.len() - 1]).unwrap();
    std::fs::write(sandbox.path("plan.toml"), "name = \"mine\"\n").unwrap();
    std::fs::create_dir(sandbox.path("folder.gguf")).unwrap();
    model::write(
        &sandbox.path("float.gguf"),
        &[("a.weight", "F32", &[32, 4])],
        &[],
    );
    sandbox.session(
        "prepare-refused",
        &[
            &["prepare", "model.gguf"],
            &["prepare", "model.gguf", "--plan", "no-such-plan"],
            &["prepare", "model.gguf", "--plan", "./plan.toml"],
            &["prepare", "absent.gguf", "--plan", "xe2-q4_0"],
            &["prepare", "folder.gguf", "--plan", "xe2-q4_0"],
            &["prepare", "empty.gguf", "--plan", "xe2-q4_0"],
            &["prepare", "cut.gguf", "--plan", "xe2-q4_0"],
            &["prepare", "float.gguf", "--plan", "xe2-q4_0"],
            &["prepare", "model.gguf", "--plan", "qwen27-xe2-m6"],
            &[
                "prepare",
                "model.gguf",
                "--plan",
                "xe2-q4_0",
                "--sha256",
                "12",
            ],
            &[
                "prepare",
                "model.gguf",
                "--plan",
                "xe2-q4_0",
                "--threads",
                "0",
            ],
            &["repair"],
            &["index"],
        ],
    );
    assert!(!sandbox.path("home/.cache").exists(), "nothing was made");
}

#[test]
fn another_file_than_the_one_demanded_makes_no_set() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("model.gguf");
    write_model(&path, 2);
    let whole = std::fs::read(&path).unwrap();
    let digest = Digest::of(b"another").to_string();
    let words = [
        "prepare",
        "model.gguf",
        "--plan",
        "xe2-q4_0",
        "--sha256",
        &digest,
    ];
    let (exit, said, complained) = run(&mut sandbox.command(&words));
    assert_eq!((exit, said.as_str()), (3, ""));
    let expected = format!("has SHA-256 {}, expected {digest}\n", Digest::of(&whole));
    assert!(complained.contains(&expected), "{complained}");
    assert_eq!(store::open(&sandbox).list_sets().unwrap(), Vec::new());
    let (exit, _, complained) = run(&mut sandbox.command(&["index"]));
    let hint = "\n\nhint: packhouse prepare model.gguf --plan ggml-cpu\n";
    assert!(exit == 3 && complained.ends_with(hint), "{complained}");
    // The file's own digest is what is demanded now.
    let digest = Digest::of(&whole).to_string();
    let words = [
        "prepare",
        "model.gguf",
        "--plan",
        "xe2-q4_0",
        "--sha256",
        &digest,
    ];
    assert_eq!(run(&mut sandbox.command(&words)).0, 0);
}

#[test]
fn no_room_and_a_read_only_store_are_said_with_figures() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 2);
    let words: &[&str] = &["prepare", "model.gguf", "--plan", "xe2-q4_0"];
    let (exit, _, said) = run(sandbox.command(words).env("PACKHOUSE_MAX_BYTES", "10000"));
    assert_eq!(exit, 3);
    assert!(said.contains("no room for 18.0 KiB of packs"), "{said}");
    assert!(
        said.contains("the store's cap of 9.7 KiB leaves 9.7 KiB"),
        "{said}"
    );
    // An empty store has nothing for gc.
    assert!(said.ends_with("hint: packhouse du\n"), "{said}");
    assert!(files(&sandbox.path("home/.cache/packhouse/v1/objects")).is_empty());
    let (exit, _, said) = run(sandbox.command(words).env("PACKHOUSE_READONLY", "1"));
    assert_eq!(exit, 3);
    assert!(said.contains("2 packs are to be made, and "), "{said}");
    assert!(said.ends_with("hint: unset PACKHOUSE_READONLY\n"), "{said}");
    // What is there serves a read-only store too.
    prepare(&sandbox);
    write_model(&sandbox.path("other.gguf"), 3);
    let more = ["prepare", "other.gguf", "--plan", "xe2-q4_0"];
    let (exit, _, said) = run(sandbox.command(&more).env("PACKHOUSE_MAX_BYTES", "20000"));
    assert_eq!(exit, 3);
    assert!(said.ends_with("hint: packhouse gc\n"), "{said}");
    let (exit, said, _) = run(sandbox.command(words).env("PACKHOUSE_READONLY", "1"));
    assert_eq!(exit, 0);
    assert!(said.contains("was there: 2 tensors"), "{said}");
}

#[test]
fn repair_heals_what_verify_finds_and_names_a_model_that_is_gone() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 3);
    let set = prepare(&sandbox)["set"].as_str().unwrap()[..12].to_owned();
    let (exit, said, _) = run(&mut sandbox.command(&["repair"]));
    let nothing = format!("set {set}: nothing is wrong, every object was hashed\n");
    assert_eq!((exit, said), (0, nothing));
    let objects = files(&sandbox.path("home/.cache/packhouse/v1/objects"));
    let damage = || {
        let path = &objects[0];
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let mut bytes = std::fs::read(path).unwrap();
        bytes[7] ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    damage();
    let (exit, said, _) = run(&mut sandbox.command(&["repair", &set]));
    assert_eq!(exit, 0, "{said}");
    assert!(
        said.starts_with("healed  blk.") && said.contains("is corrupt: "),
        "{said}"
    );
    let end = format!("set {set}: 1 healed, nothing is wrong any more\n");
    assert!(said.ends_with(&end), "{said}");
    must_be_sound(&sandbox, &store::open(&sandbox), 3);

    damage();
    std::fs::rename(sandbox.path("model.gguf"), sandbox.path("moved.gguf")).unwrap();
    let (exit, said, complained) = run(&mut sandbox.command(&["repair"]));
    assert_eq!((exit, said.as_str()), (3, ""));
    assert!(
        complained.starts_with("error: cannot open the model: "),
        "{complained}"
    );
    assert!(
        complained.contains("model.gguf") && complained.contains("is corrupt: "),
        "{complained}"
    );
    let (exit, said, complained) = run(&mut sandbox.command(&["repair", "--model", "moved.gguf"]));
    assert_eq!(exit, 0, "{said}{complained}");
    must_be_sound(&sandbox, &store::open(&sandbox), 3);

    // Another model heals nothing: a negative answer.
    damage();
    write_model(&sandbox.path("other.gguf"), 4);
    let (exit, said, _) = run(&mut sandbox.command(&["repair", "--model", "other.gguf", "--json"]));
    let json: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((exit, &json["good"]), (1, &false.into()), "{said}");
    assert_eq!(json["unhealed"].as_array().unwrap().len(), 1);
}

#[test]
fn a_damaged_manifest_is_made_again_under_the_plan_that_the_index_fits() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 3);
    let set = prepare(&sandbox)["set"].as_str().unwrap().to_owned();
    let folder = sandbox.path(&format!("home/.cache/packhouse/v1/sets/{set}"));
    let replace = |name: &str, bytes: &[u8]| {
        std::fs::remove_file(folder.join(name)).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    };
    let whole = std::fs::read(folder.join("manifest.json")).unwrap();
    replace("manifest.json", &whole[..99]);
    let (exit, said, complained) = run(&mut sandbox.command(&["repair"]));
    assert_eq!(exit, 0, "{said}{complained}");
    assert_eq!(std::fs::read(folder.join("manifest.json")).unwrap(), whole);
    // With the index gone too, only the user knows the plan.
    replace("manifest.json", &whole[..99]);
    replace("runtime-index.tsv", b"");
    let (exit, _, complained) = run(&mut sandbox.command(&["repair"]));
    assert_eq!(exit, 3);
    assert!(
        complained.starts_with("error: the plan of the set is not known: "),
        "{complained}"
    );
    let (exit, said, complained) = run(&mut sandbox.command(&["repair", "--plan", "identity"]));
    assert_eq!(exit, 3, "{said}");
    assert!(
        complained.contains("model and plan make set "),
        "{complained}"
    );
    let (exit, said, _) = run(&mut sandbox.command(&["repair", &set, "--plan", "xe2-q4_0"]));
    assert_eq!(exit, 0, "{said}");
    must_be_whole_again(&sandbox, &folder, &whole);
}

fn must_be_whole_again(sandbox: &Sandbox, folder: &Path, manifest: &[u8]) {
    assert_eq!(
        std::fs::read(folder.join("manifest.json")).unwrap(),
        manifest
    );
    let (exit, said, _) = run(&mut sandbox.command(&["verify", "--deep"]));
    assert_eq!(exit, 0, "{said}");
}

#[test]
fn who_makes_the_same_pack_is_named_when_the_wait_is_over() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 1);
    prepare(&sandbox);
    let store = store::open(&sandbox);
    let set = store.list_sets().unwrap()[0];
    let pack = store.read_set(set).unwrap().entries()[0].pack;
    // Damaged, it is to be made again, and another process is about to.
    let object = &files(&sandbox.path("home/.cache/packhouse/v1/objects"))[0];
    std::fs::set_permissions(object, std::fs::Permissions::from_mode(0o666)).unwrap();
    let held = store.try_lock_pack(&pack).unwrap();
    assert!(held.is_some());
    let words = [
        "prepare",
        "model.gguf",
        "--plan",
        "xe2-q4_0",
        "--lock-timeout",
        "0",
    ];
    let (exit, said, complained) = run(&mut sandbox.command(&words));
    assert_eq!((exit, said.as_str()), (3, ""));
    assert_eq!(
        complained,
        "error: cannot prepare: model.gguf\n\
         cause: another process makes the pack of blk.0.ffn_up.weight; waited 0 us\n\n\
         hint: packhouse prepare model.gguf --plan xe2-q4_0 --lock-timeout 3600\n"
    );
    drop(held);
    assert_eq!(prepare(&sandbox)["healed_count"], 1);
}

#[test]
fn threads_that_the_system_refuses_are_done_without_or_named() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 8);
    let words = [
        "prepare",
        "model.gguf",
        "--plan",
        "xe2-q4_0",
        "--threads",
        "40",
    ];
    // A stack of more than all addresses: not one thread can be had.
    let none = |command: &mut Command| run(command.env("RUST_MIN_STACK", (1u64 << 50).to_string()));
    let (exit, said, complained) = none(&mut sandbox.command(&words));
    assert_eq!((exit, said.as_str()), (3, ""), "{complained}");
    let start = "error: cannot prepare: model.gguf\ncause: the system starts no thread: ";
    assert!(complained.starts_with(start), "{complained}");
    assert!(complained.ends_with("\nhint: ulimit -u\n"), "{complained}");
    assert_eq!(store::open(&sandbox).list_sets().unwrap(), Vec::new());
    // Stacks of a fifth of what it may address: a few threads, which are enough.
    let (exit, _, complained) = run(sandbox
        .shell("ulimit -v 1500000 && exec \"$0\" \"$@\"", &words)
        .env("RUST_MIN_STACK", "300000000"));
    assert_eq!((exit, complained.as_str()), (0, ""));
    must_be_sound(&sandbox, &store::open(&sandbox), 8);
    // What is there is found by the one thread that there always is.
    let (exit, _, complained) = none(&mut sandbox.command(&words));
    assert_eq!((exit, complained.as_str()), (0, ""));
}

#[test]
fn hints_are_commands_that_a_shell_takes_as_they_are() {
    let sandbox = Sandbox::new();
    let name = "my model; it's (new).gguf";
    write_model(&sandbox.path(name), 2);
    let quoted = "'my model; it'\\''s (new).gguf'";
    let words = |digest| ["prepare", name, "--plan", "xe2-q4_0", "--sha256", digest];
    let another = Digest::of(b"another").to_string();
    // Where it was read, its path is whole.
    let folder = sandbox.path("");
    let whole = format!("'{}{}", folder.display(), &quoted[1..]);
    for (digest, exit, quoted) in [("12", 2, quoted), (another.as_str(), 3, &whole)] {
        let (found, _, said) = run(&mut sandbox.command(&words(digest)));
        let end = format!("\n\nhint: sha256sum {quoted}\n");
        assert!(found == exit && said.ends_with(&end), "{found} {said}");
    }
    // What to do next is a command too.
    let (exit, said, _) = run(&mut sandbox.command(&["prepare", name, "--plan", "ggml-cpu"]));
    let (_, next) = said.rsplit_once("next: ").unwrap();
    let expected = format!("packhouse run -- llama-server -m {quoted}\n");
    assert_eq!((exit, next), (0, expected.as_str()));
    let strange = "a\u{1b}[31m\nhint: rm.gguf";
    let (exit, _, said) = run(&mut sandbox.command(&["prepare", strange, "--plan", "identity"]));
    assert_eq!(exit, 3);
    assert_eq!(
        said,
        "error: cannot open the model: a\\u{1b}[31m\\u{a}hint: rm.gguf\n\
         cause: No such file or directory (os error 2)\n\n\
         hint: ls -l $'a\\x1b[31m\\x0ahint: rm.gguf'\n"
    );
}

#[test]
fn words_that_contradict_or_name_nothing_are_usage_errors() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 2);
    let prepare = ["prepare", "model.gguf", "--plan", "xe2-q4_0"];
    let digest = Digest::of(b"").to_string();
    let cases: [(&[&str], &str); 3] = [
        (
            &["--skip-source-hash", "--sha256", &digest],
            "error: one excludes the other: --skip-source-hash and --sha256 <HEX>\n",
        ),
        (
            &["--threads", "0"],
            "error: invalid value for --threads <N>: 0\ncause: not a whole number from 1 to 1024\n",
        ),
        (
            &["--threads", "1025"],
            "error: invalid value for --threads <N>: 1025\n\
             cause: not a whole number from 1 to 1024\n",
        ),
    ];
    for (more, start) in cases {
        let (exit, _, said) = run(&mut sandbox.command(&[&prepare, more].concat()));
        assert!(exit == 2 && said.starts_with(start), "{exit} {said}");
    }
    // A plan that there is not, also where nobody needs one.
    self::prepare(&sandbox);
    for words in [&["repair", "--plan", "nope"][..], &["plans", "nope"]] {
        let (exit, _, said) = run(&mut sandbox.command(words));
        assert!(
            exit == 2 && said.starts_with("error: no such plan: nope\n"),
            "{exit} {said}"
        );
    }
    let words = ["export", "--format", "nope", "folder"];
    let (exit, _, said) = run(&mut Sandbox::new().command(&words));
    assert!(
        exit == 2 && said.starts_with("error: no such format: nope\n"),
        "{exit} {said}"
    );
}

#[test]
fn a_model_on_stdin_is_noted_under_its_own_path() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("model.gguf");
    write_model(&path, 2);
    let words = ["prepare", "/dev/stdin", "--plan", "xe2-q4_0"];
    let stdin = |path: &Path| std::fs::File::open(path).unwrap();
    let (exit, _, said) = run(sandbox.command(&words).stdin(stdin(&path)));
    assert_eq!((exit, said.as_str()), (0, ""));
    let (_, said, _) = run(&mut sandbox.command(&["ls", "--json"]));
    let json: Value = serde_json::from_str(&said).unwrap();
    let set = &json["sets"][0];
    assert_eq!(set["container_files"], serde_json::json!(["model.gguf"]));
    let own = std::fs::canonicalize(&path).unwrap();
    assert_eq!(set["container_paths"], serde_json::json!([own]));
    // Where it has no path any more there is nothing to note.
    let gone = stdin(&path);
    std::fs::remove_file(&path).unwrap();
    let (exit, _, said) = run(sandbox.command(&words).stdin(gone));
    let start = "error: the model has no path any more: /dev/stdin\n";
    assert!(exit == 3 && said.starts_with(start), "{exit} {said}");
}

#[test]
fn a_source_that_was_not_hashed_as_a_whole_stays_told() {
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), 2);
    let words = [
        "prepare",
        "model.gguf",
        "--plan",
        "xe2-q4_0",
        "--skip-source-hash",
        "--json",
    ];
    let (_, said, _) = run(&mut sandbox.command(&words));
    let made: Value = serde_json::from_str(&said).unwrap();
    let set = made["set"].as_str().unwrap()[..12].to_owned();
    let line = format!("set {set}: source not hashed as a whole, each tensor was\n");
    let told = |command: &str| {
        let (exit, text, _) = run(&mut sandbox.command(&[command]));
        let (_, json, _) = run(&mut sandbox.command(&[command, "--json"]));
        assert_eq!(exit, 0, "{text}");
        (text, serde_json::from_str::<Value>(&json).unwrap())
    };
    let admissions = || {
        let ((list, lists), (verify, verified)) = (told("ls"), told("verify"));
        (
            [list.contains(&line), verify.contains(&line)],
            [
                lists["sets"][0]["admission"].clone(),
                verified["admission"].clone(),
            ],
        )
    };
    assert_eq!(admissions(), ([true; 2], ["skipped"; 2].map(Value::from)));
    prepare(&sandbox);
    assert_eq!(admissions(), ([false; 2], ["hashed"; 2].map(Value::from)));
}

/// Starts a prepare whose streams nobody reads.
fn start(sandbox: &Sandbox) -> Child {
    sandbox
        .command(&["prepare", "model.gguf", "--plan", "xe2-q4_0", "--json"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Waits until a process made so many more files in its home, or ended.
fn wait_for_files(sandbox: &Sandbox, child: &mut Child, more: usize) {
    let home = sandbox.path("home");
    let before = files(&home).len();
    while child.try_wait().unwrap().is_none() && files(&home).len() < before + more {
        std::thread::yield_now();
    }
}

/// Makes worlds until it is met in one; on a busy machine a prepare may be done before its test
/// looks at it.
fn until_met<T>(mut meet: impl FnMut(Sandbox) -> Option<T>) -> T {
    let met = (0..50).find_map(|_| meet(Sandbox::new()));
    met.expect("because not every prepare is done before it is met")
}

#[test]
fn kills_at_any_time_leave_whole_packs_and_the_last_run_has_them_all() {
    const LAYERS: u64 = 150;
    let sandbox = until_met(|sandbox| killed_often(&sandbox, LAYERS).then_some(sandbox));
    let store = store::open(&sandbox);
    let last = prepare(&sandbox);
    assert_eq!(last["tensor_count"], LAYERS);
    must_be_sound(&sandbox, &store, usize::try_from(LAYERS).unwrap());
    assert_eq!(prepare(&sandbox)["source_bytes"], 0);
}

/// Kills prepares of one model on their way, and says whether five of them were.
fn killed_often(sandbox: &Sandbox, layers: u64) -> bool {
    write_model(&sandbox.path("model.gguf"), layers);
    drop(store::open(sandbox));
    let mut killed = 0;
    let mut published = BTreeSet::new();
    for attempt in 0..14 {
        let mut child = start(sandbox);
        wait_for_files(sandbox, &mut child, attempt * 3);
        killed += usize::from(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
        let now = files(&sandbox.path("home/.cache/packhouse/v1/objects"));
        let now: BTreeSet<PathBuf> = now.into_iter().collect();
        assert!(
            published.is_subset(&now),
            "attempt {attempt}: an object went"
        );
        published = now;
    }
    killed >= 5
}

#[test]
fn six_processes_and_two_kills_make_one_copy_of_each_pack() {
    const LAYERS: u64 = 60;
    let sandbox = Sandbox::new();
    write_model(&sandbox.path("model.gguf"), LAYERS);
    let store = store::open(&sandbox);
    let mut children: Vec<Child> = (0..6).map(|_| start(&sandbox)).collect();
    for victim in [0, 3] {
        wait_for_files(&sandbox, &mut children[victim], 4);
        let _ = children[victim].kill();
    }
    for (index, mut child) in children.into_iter().enumerate() {
        let status = child.wait().unwrap();
        assert!(
            status.success() || [0, 3].contains(&index),
            "{index}: {status}"
        );
    }
    must_be_sound(&sandbox, &store, usize::try_from(LAYERS).unwrap());
    assert_eq!(store.list_sets().unwrap().len(), 1);
    assert_eq!(prepare(&sandbox)["packed_count"], 0);
}

#[test]
fn an_interrupt_ends_it_cleanly_and_the_next_run_makes_the_rest() {
    let (sandbox, output) = until_met(|sandbox| {
        let output = interrupted(&sandbox);
        (output.status.code() != Some(0)).then_some((sandbox, output))
    });
    let objects = sandbox.path("home/.cache/packhouse/v1/objects");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.starts_with("error: stopped: model.gguf\ncause: cancelled: "),
        "{said}"
    );
    assert!(said.contains(" of 400 tensors are ready\n"), "{said}");
    assert!(
        said.ends_with("hint: packhouse prepare model.gguf --plan xe2-q4_0\n"),
        "{said}"
    );
    let kept = files(&objects).len();
    let rest = prepare(&sandbox);
    assert_eq!(rest["packed_count"], 400 - kept);
    must_be_sound(&sandbox, &store::open(&sandbox), 400);
}

/// A prepare of 400 tensors that is interrupted once the first object is there.
fn interrupted(sandbox: &Sandbox) -> Output {
    write_model(&sandbox.path("model.gguf"), 400);
    let mut child = sandbox
        .command(&[
            "prepare",
            "model.gguf",
            "--plan",
            "xe2-q4_0",
            "--threads",
            "1",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let objects = sandbox.path("home/.cache/packhouse/v1/objects");
    while files(&objects).is_empty() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let pid = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success(), "nobody waited for it yet");
    child.wait_with_output().unwrap()
}
