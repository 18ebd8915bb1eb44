//! `packhouse model` from outside: copied once, admitted, without its source, tampered, dropped.

use crate::sandbox::Sandbox;
use packhouse_base::digest::Digest;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

const BYTES: &[u8] = b"the bytes of a model, which nobody has to understand";

fn run(sandbox: &Sandbox, words: &[&str]) -> (i32, String, String) {
    let output = sandbox.command(words).output().unwrap();
    let exit = output.status.code().expect("because nothing kills it");
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (exit, text(output.stdout), text(output.stderr))
}

/// Prepares, as a machine of any size can.
fn prepare(sandbox: &Sandbox, words: &[&str]) -> Value {
    let words = [&["model", "prepare", "--min-free", "0", "--json"], words].concat();
    let (exit, said, complained) = run(sandbox, &words);
    assert_eq!(exit, 0, "{complained}");
    serde_json::from_str(&said).unwrap()
}

fn with_model() -> Sandbox {
    let sandbox = Sandbox::new();
    std::fs::write(sandbox.path("model.gguf"), BYTES).unwrap();
    sandbox
}

fn copy(sandbox: &Sandbox, generation: u64) -> PathBuf {
    let key = Digest::of(BYTES);
    sandbox.path(&format!("stage/models/{key}.{generation}/files/model.gguf"))
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_model_is_copied_shown_and_dropped() {
    let sandbox = with_model();
    sandbox.session(
        "model-none",
        &[
            &["model", "status"],
            &["model", "path", "model.gguf"],
            &["model", "verify"],
            &["model", "verify", "model.gguf"],
            &["model", "drop", "model.gguf"],
            &["model", "drop", "--all", "--execute"],
            &["model", "prepare", "absent.gguf"],
            &["model", "prepare", "model.gguf", "--sha256", "abc"],
            &["model", "prepare", "a", "b", "--sha256", "abc"],
            &["model", "path"],
            &["model", "drop"],
        ],
    );
    let copied = &prepare(&sandbox, &["model.gguf"])["models"][0];
    assert_eq!(copied["outcome"], "copied");
    assert_eq!(copied["path"].as_str(), copy(&sandbox, 1).to_str());
    assert_eq!(std::fs::read(copy(&sandbox, 1)).unwrap(), BYTES);
    let key = Digest::of(BYTES).to_string();
    sandbox.session(
        "model-life",
        &[
            &["model", "prepare", "model.gguf"],
            &["model", "status"],
            &["model", "status", &key[..8], "--json"],
            &["model", "path", "model.gguf"],
            &["model", "path", &key[..12], "--json"],
            &["model", "path", "other.gguf", "--sha256", &key],
            &["model", "path", "other.gguf"],
            &["model", "path", "deadbeef"],
            &["model", "verify", "model.gguf"],
            &["model", "verify", "--json"],
            &["unstage", "--all"],
            &["model", "drop", "model.gguf"],
            &["model", "drop", &key[..8], "--json"],
            &["model", "status"],
            &["model", "drop", &key[..8], "--execute"],
            &["model", "status"],
        ],
    );
    assert!(!copy(&sandbox, 1).exists());
}

#[test]
fn a_copy_outlives_its_source_and_its_source_s_change_does_not_pass_unseen() {
    let sandbox = with_model();
    prepare(&sandbox, &["model.gguf"]);
    let path = || run(&sandbox, &["model", "path", "model.gguf"]);
    std::fs::rename(sandbox.path("model.gguf"), sandbox.path("away")).unwrap();
    let (exit, said, _) = path();
    assert_eq!(exit, 0);
    assert_eq!(Path::new(said.trim_end()), copy(&sandbox, 1));
    let (exit, said, _) = run(&sandbox, &["model", "status"]);
    assert_eq!(exit, 0, "{said}");
    assert!(said.contains("yes       gone"), "{said}");
    // Another file in its place.
    std::fs::write(sandbox.path("model.gguf"), b"other bytes").unwrap();
    let (exit, said, complained) = path();
    assert_eq!((exit, said.as_str()), (1, ""));
    assert!(
        complained.contains("changed since it was copied: its inode differs"),
        "{complained}"
    );
    let (exit, said, _) = run(&sandbox, &["model", "status"]);
    assert_eq!(exit, 1);
    assert!(said.contains("no        changed"), "{said}");
    // By its digest the copy is what was asked for.
    let digest = Digest::of(BYTES).to_string();
    let words = ["model", "path", "model.gguf", "--sha256", &digest];
    assert_eq!(run(&sandbox, &words).0, 0);
    // The next copy is of the new bytes, and says that the one before stays.
    let words = ["model", "prepare", "model.gguf", "--min-free", "0"];
    let (exit, said, _) = run(&sandbox, &words);
    assert_eq!(exit, 0, "{said}");
    let stays = format!("packhouse model drop {}", &digest[..12]);
    assert!(said.contains(&stays), "{said}");
}

#[test]
fn what_took_a_source_s_place_is_no_unplugged_disk() {
    let sandbox = Sandbox::new();
    let (folder, model) = (sandbox.path("disk"), sandbox.path("disk/model.gguf"));
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(&model, BYTES).unwrap();
    prepare(&sandbox, &["disk/model.gguf"]);
    let path = || run(&sandbox, &["model", "path", "disk/model.gguf"]);
    let refused = |what: &str| {
        let (exit, said, complained) = path();
        assert_eq!((exit, said.as_str()), (1, ""), "{what}: {complained}");
        let expected = "changed since it was copied: its kind differs";
        assert!(complained.contains(expected), "{what}: {complained}");
    };
    std::fs::remove_file(&model).unwrap();
    assert_eq!(path().0, 0, "it is gone, and its copy good");
    std::fs::create_dir(&model).unwrap();
    refused("a folder");
    std::fs::remove_dir(&model).unwrap();
    std::os::unix::fs::symlink("model.gguf", &model).unwrap();
    refused("a symlink to itself");
    std::fs::remove_file(&model).unwrap();
    let socket = std::os::unix::net::UnixListener::bind(&model).unwrap();
    refused("a socket");
    drop(socket);
    std::fs::remove_file(&model).unwrap();
    std::fs::remove_dir(&folder).unwrap();
    std::fs::write(&folder, b"").unwrap();
    refused("a file in its folder's place");
    std::fs::remove_file(&folder).unwrap();
    assert_eq!(path().0, 0, "its disk is gone, and its copy good");
}

/// Maps a file, says so, changes a byte when told, and keeps the mapping until its input ends.
const WRITER: &str = "\
import mmap, os, sys
file = os.open(sys.argv[1], os.O_RDWR)
pages = mmap.mmap(file, 0)
os.close(file)
pages[3] ^= 1
print(flush=True)
sys.stdin.read()
";

#[test]
fn a_write_through_a_mapping_is_refused_while_it_lasts_and_found_by_verify_for_good() {
    let sandbox = with_model();
    let memory = tempfile::tempdir_in("/dev/shm").expect("because hosts have memory");
    let run = |words: &[&str]| {
        let mut command = sandbox.command(words);
        let output = command.env("PACKHOUSE_STAGE", memory.path().join("stage"));
        let output = output.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let exit = output.status.code().expect("because nothing kills it");
        (exit, text(output.stdout), text(output.stderr))
    };
    let prepare = ["model", "prepare", "model.gguf", "--min-free", "0"];
    let path = ["model", "path", "model.gguf"];
    let (exit, _, complained) = run(&prepare);
    assert_eq!(exit, 0, "{complained}");
    let copy = PathBuf::from(run(&path).1.trim_end());
    if std::fs::File::options().write(true).open(&copy).is_err() {
        println!("NOT EXERCISED: only root can open a file of mode 0444 for writing");
        return;
    }
    let mut writer = std::process::Command::new("python3")
        .args(["-c", WRITER])
        .arg(&copy)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("because the tests need python3");
    let mut said = [0];
    let stdout = writer.stdout.as_mut().expect("because it is piped");
    let mapped = std::io::Read::read_exact(stdout, &mut said);
    let while_it_lasts = run(&path);
    drop(writer.stdin.take());
    writer.wait().unwrap();
    mapped.expect("because it maps the file");
    let (exit, said, complained) = while_it_lasts;
    assert_eq!((exit, said.as_str()), (1, ""));
    let expected = "is open for writing by some process";
    assert!(complained.contains(expected), "{complained}");
    // Nothing shows it once the writer left, but a hash.
    let (exit, said, _) = run(&["model", "verify"]);
    assert_eq!(exit, 1);
    assert!(said.contains("the copy is out of service"), "{said}");
    assert!(
        said.contains("heal with: packhouse model prepare MODEL"),
        "{said}"
    );
    let (exit, said, complained) = run(&path);
    assert_eq!((exit, said.as_str()), (1, ""));
    assert!(complained.contains("is out of service"), "{complained}");
    let (exit, said, complained) = run(&prepare);
    assert_eq!(exit, 0, "{complained}");
    assert!(said.contains("copied anew"), "{said}");
    let copy = PathBuf::from(run(&path).1.trim_end());
    assert_eq!(std::fs::read(copy).unwrap(), BYTES);
    assert_eq!(run(&["model", "verify"]).0, 0);
}

#[test]
fn a_copy_that_was_made_writable_is_hashed_and_one_with_other_bytes_copied_anew() {
    let sandbox = with_model();
    prepare(&sandbox, &["model.gguf"]);
    chmod(&copy(&sandbox, 1), 0o644);
    let (exit, said, complained) = run(&sandbox, &["model", "path", "model.gguf"]);
    assert_eq!((exit, said.as_str()), (1, ""));
    assert!(
        complained.contains("has mode 0644, expected 0444"),
        "{complained}"
    );
    assert_eq!(run(&sandbox, &["model", "verify"]).0, 1);
    assert_eq!(run(&sandbox, &["model", "warm"]).0, 1);
    let healed = &prepare(&sandbox, &["model.gguf"])["models"][0];
    assert_eq!(healed["outcome"], "rehashed");
    assert_eq!(healed["hashed_bytes"], BYTES.len());
    assert_eq!(healed["copied_bytes"], 0);
    let bad = copy(&sandbox, 2);
    chmod(&bad, 0o644);
    std::fs::write(&bad, vec![b'x'; BYTES.len()]).unwrap();
    chmod(&bad, 0o444);
    let healed = &prepare(&sandbox, &["model.gguf"])["models"][0];
    assert_eq!(healed["outcome"], "replaced");
    assert_eq!(std::fs::read(copy(&sandbox, 3)).unwrap(), BYTES);
    assert_eq!(run(&sandbox, &["model", "verify"]).0, 0);
    assert_eq!(run(&sandbox, &["model", "warm", "model.gguf"]).0, 0);
}

#[test]
fn shards_are_one_model_and_a_missing_one_is_named() {
    let sandbox = Sandbox::new();
    let name = |number| format!("m-0000{number}-of-00002.gguf");
    std::fs::write(sandbox.path(&name(1)), b"first").unwrap();
    let words = ["model", "prepare", &name(1)];
    let (exit, _, complained) = run(&sandbox, &words);
    assert_eq!(exit, 3);
    assert!(complained.contains("m-00002-of-00002.gguf"), "{complained}");
    std::fs::write(sandbox.path(&name(2)), b"second").unwrap();
    let copied = &prepare(&sandbox, &[&name(2)])["models"][0];
    assert_eq!(copied["files"].as_array().map(Vec::len), Some(2));
    let path = PathBuf::from(copied["path"].as_str().unwrap());
    assert!(path.ends_with(name(1)), "{}", path.display());
    assert_eq!(
        std::fs::read(path.with_file_name(name(2))).unwrap(),
        b"second"
    );
    assert_eq!(
        prepare(&sandbox, &[&name(1)])["models"][0]["outcome"],
        "reused"
    );
    let digests = [Digest::of(b"first"), Digest::of(b"second")].map(|digest| digest.to_string());
    let right = ["--sha256", &digests[0], "--sha256", &digests[1], &name(1)];
    assert_eq!(prepare(&sandbox, &right)["models"][0]["outcome"], "reused");
    let words = ["model", "prepare", &name(1), "--sha256", &digests[0]];
    let (exit, _, complained) = run(&sandbox, &words);
    assert_eq!(exit, 2);
    assert!(
        complained.contains("1 digests given for 2 files"),
        "{complained}"
    );
}

#[test]
fn a_folder_of_stages_in_the_store_is_refused_before_it_is_made() {
    let sandbox = with_model();
    let root = sandbox.path("home/.cache/packhouse/stages");
    let words = [
        "model",
        "prepare",
        "model.gguf",
        "--root",
        root.to_str().unwrap(),
    ];
    let (exit, _, complained) = run(&sandbox, &words);
    assert_eq!(exit, 2);
    assert!(
        complained.contains("the folder of stages is in the store"),
        "{complained}"
    );
    assert!(!root.exists());
}

#[test]
fn gc_and_doctor_know_the_copies() {
    let sandbox = with_model();
    crate::store::set(
        &crate::store::open(&sandbox),
        "first.gguf",
        &crate::store::FIRST,
    );
    prepare(&sandbox, &["model.gguf"]);
    let (_, said, _) = run(&sandbox, &["doctor"]);
    assert!(
        said.contains("model copies") && said.contains("(52 B)"),
        "{said}"
    );
    let stranger = sandbox.path("stage/models/notes");
    std::fs::write(&stranger, b"").unwrap();
    std::fs::create_dir(sandbox.path("stage/models/.tmp-00")).unwrap();
    let (exit, said, complained) = run(&sandbox, &["gc", "--json"]);
    assert_eq!(exit, 0, "{complained}");
    let report: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(report["older_model_copies_count"], 0);
    assert_eq!(report["unfinished_stages_count"], 1);
    assert!(stranger.exists() && copy(&sandbox, 1).exists());
    let (_, said, _) = run(&sandbox, &["gc"]);
    assert!(
        said.contains("no copy of a model by its name, stays: notes"),
        "{said}"
    );
    chmod(&copy(&sandbox, 1), 0o666);
    let (_, said, _) = run(&sandbox, &["doctor"]);
    assert!(said.contains("1 broken: packhouse model status"), "{said}");
}

/// What `stat` calls the file system of a folder.
pub(crate) fn file_system(folder: &Path) -> String {
    let mut command = std::process::Command::new("stat");
    let output = command.args(["-f", "-c", "%T"]).arg(folder).output();
    let output = output.expect("because hosts have stat");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn a_folder_on_a_disk_is_never_called_ram() {
    let sandbox = with_model();
    let disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    if file_system(disk.path()) == "tmpfs" {
        println!("NOT EXERCISED: the build folder is in RAM");
        return;
    }
    let memory = tempfile::tempdir_in("/dev/shm").expect("because hosts have memory");
    for (folder, is_ram) in [(disk.path(), false), (memory.path(), true)] {
        let run = |words: &[&str]| {
            let mut command = sandbox.command(words);
            let output = command.env("PACKHOUSE_STAGE", folder.join("stage"));
            let output = output.output().unwrap();
            let text = |bytes| String::from_utf8(bytes).unwrap();
            (text(output.stdout), text(output.stderr))
        };
        let note = format!("note: copies in {}/stage are not in RAM", folder.display());
        let prepare = ["model", "prepare", "model.gguf", "--min-free", "0"];
        for words in [&prepare[..], &["model", "status"]] {
            let (said, complained) = run(words);
            assert_eq!(
                said.contains(&note),
                !is_ram,
                "{words:?}: {said}{complained}"
            );
        }
        let (said, complained) = run(&["model", "path", "model.gguf"]);
        assert_eq!(said.lines().count(), 1, "{said}");
        assert_eq!(complained.contains(&note), !is_ram, "{complained}");
        for words in [&["model", "warm"][..], &["doctor"]] {
            let (said, _) = run(words);
            assert_eq!(said.contains("in memory"), is_ram, "{words:?}: {said}");
            assert_eq!(said.contains(", not in RAM"), !is_ram, "{words:?}: {said}");
        }
        for words in ["prepare", "status", "path", "warm"] {
            let model = if words == "warm" {
                &[][..]
            } else {
                &["model.gguf"]
            };
            let (said, _) = run(&[&["model", words, "--json"], model].concat());
            let document: Value = serde_json::from_str(&said).unwrap();
            assert_eq!(document["in_ram"], is_ram, "{words}: {said}");
        }
        let document: Value = serde_json::from_str(&run(&["doctor", "--json"]).0).unwrap();
        assert_eq!(document["model_copies"]["in_ram"], is_ram);
    }
}

/// Maps a file for reading until its input ends.
const READER: &str = "
import mmap, sys
with open(sys.argv[1], 'rb') as file:
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
sys.stdout.write('!')
sys.stdout.flush()
sys.stdin.read()
";

/// A process that is ended with its test.
struct Reader(std::process::Child);

impl Reader {
    fn of(path: &Path) -> Self {
        let child = std::process::Command::new("python3")
            .args(["-c", READER])
            .arg(path)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn();
        let mut reader = Self(child.expect("because the tests need python3"));
        let stdout = reader.0.stdout.as_mut().expect("because it is piped");
        let mapped = std::io::Read::read_exact(stdout, &mut [0]);
        mapped.expect("because it maps the file");
        reader
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

#[test]
fn the_only_copy_is_not_dropped_while_a_process_uses_it() {
    let sandbox = with_model();
    prepare(&sandbox, &["model.gguf"]);
    let drop_it = ["model", "drop", "--all"];
    let (exit, said, _) = run(&sandbox, &drop_it);
    assert_eq!(exit, 0);
    assert!(!said.contains("in use"), "{said}");
    assert!(!said.contains("only copy"), "{said}");
    let reader = Reader::of(&copy(&sandbox, 1));
    let user = format!("in use by pid {} (python3", reader.0.id());
    // With its source there, it can be made again.
    let (exit, said, _) = run(&sandbox, &drop_it);
    assert_eq!(exit, 0, "{said}");
    assert!(
        said.contains("would drop") && said.contains(&user),
        "{said}"
    );
    std::fs::rename(sandbox.path("model.gguf"), sandbox.path("away.gguf")).unwrap();
    for words in [&drop_it[..], &["model", "drop", "--all", "--execute"]] {
        let (exit, said, _) = run(&sandbox, words);
        assert_eq!(exit, 3, "{said}");
        assert!(
            said.contains("refused to drop") && said.contains(&user),
            "{said}"
        );
        assert!(said.contains("this is the only copy known"), "{said}");
        assert!(copy(&sandbox, 1).exists());
    }
    let (_, said, _) = run(&sandbox, &["model", "drop", "--all", "--json"]);
    let document: Value = serde_json::from_str(&said).unwrap();
    let found = &document["copies"][0];
    assert_eq!(
        (&found["only_copy"], &found["refused"]),
        (&true.into(), &true.into())
    );
    assert_eq!(document["bytes"], 0);
    let even = ["model", "drop", "--all", "--execute", "--even-if-used"];
    let (exit, said, _) = run(&sandbox, &even);
    assert_eq!(exit, 0, "{said}");
    assert!(said.contains("free once what maps them ends"), "{said}");
    assert!(!copy(&sandbox, 1).exists());
}

#[test]
fn nobody_s_use_keeps_the_only_copy_from_being_dropped() {
    let sandbox = with_model();
    prepare(&sandbox, &["model.gguf"]);
    std::fs::remove_file(sandbox.path("model.gguf")).unwrap();
    let (exit, said, _) = run(&sandbox, &["model", "drop", "--all", "--execute"]);
    assert_eq!(exit, 0, "{said}");
    assert!(said.contains("this is the only copy known"), "{said}");
    assert!(said.contains("52 B are free\n"), "{said}");
    assert!(!copy(&sandbox, 1).exists());
}

#[test]
fn what_a_killed_preparation_left_is_shown_and_counted_by_gc() {
    let sandbox = with_model();
    let store = crate::store::open(&sandbox);
    crate::store::set(&store, "first.gguf", &crate::store::FIRST);
    prepare(&sandbox, &["model.gguf"]);
    let left = sandbox.path("stage/models/.tmp-00/files");
    std::fs::create_dir_all(&left).unwrap();
    std::fs::write(left.join("model.gguf"), [7; 1000]).unwrap();
    let (exit, said, _) = run(&sandbox, &["model", "status"]);
    assert_eq!(exit, 0);
    let line = "unfinished, of processes that ended: 1000 B; packhouse gc removes it";
    assert!(said.contains(line), "{said}");
    for words in [&["gc", "--dry-run"][..], &["gc"]] {
        let (_, said, _) = run(&sandbox, words);
        assert!(said.contains("frees 1000 B now"), "{said}");
    }
    assert!(!left.exists());
    let (_, said, _) = run(&sandbox, &["model", "status"]);
    assert!(!said.contains("unfinished"), "{said}");
}

#[test]
fn one_bad_copy_of_two_paths_is_told_once() {
    let sandbox = with_model();
    std::fs::write(sandbox.path("again.gguf"), BYTES).unwrap();
    prepare(&sandbox, &["model.gguf", "again.gguf"]);
    chmod(&copy(&sandbox, 1), 0o666);
    let (exit, said, _) = run(&sandbox, &["model", "status"]);
    assert_eq!(exit, 1);
    let told = said
        .lines()
        .filter(|line| line.starts_with("not admitted: "));
    assert_eq!(told.count(), 1, "{said}");
}
