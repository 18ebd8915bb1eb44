//! What can't be tiled, read or stored: one error that names it, and nothing left behind.

use crate::image_world::{
    IMAGE_BYTES, ROWS, WIDTH, WORDS, chmod, done, fails, folder, images, must_be_tidy, names, run,
    write_model,
};
use crate::model;
use crate::sandbox::Sandbox;
use serde_json::json;
use std::path::Path;
use std::process::Command;

/// A model with one tensor.
fn write_one(sandbox: &Sandbox, file: &str, name: &str, ty: &str, dims: &[u64]) {
    model::write_seeded(&sandbox.path(file), &[(name, ty, dims)], 1);
}

#[test]
fn words_that_make_no_tile_are_usage_errors() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let sizes = |words: &[&'static str]| -> Vec<&'static str> {
        [&["image", "prepare", "model.gguf"], words].concat()
    };
    let lines = [
        sizes(&["--kd", "192", "--t", "128"]),
        sizes(&["--kd", "320", "--kpad", "255", "--t", "128"]),
        sizes(&["--kd", "256", "--kpad", "257", "--t", "128"]),
        sizes(&["--kd", "300", "--t", "128", "--layout", "int8-tile-b8-v1"]),
        sizes(&["--kd", "320", "--t", "100", "--layout", "int8-tile-b8-v1"]),
        sizes(&["--kd", "256", "--t", "129", "--nd", "128"]),
        sizes(&["--kd", "256", "--t", "128", "--layout", "int8-tile-b8-v2"]),
        sizes(&["--kd", "256", "--t", "0"]),
        sizes(&["--kd", "256", "--t", "16777217"]),
        sizes(&["--kd", "-1", "--t", "128"]),
        sizes(&["--kd", "16777216", "--t", "16777216"]),
        sizes(&["--kd", "256"]),
        sizes(&["--kd", "256", "--t", "128", "--owner", ""]),
        sizes(&["--kd", "256", "--t", "128", "--tensor", "lm_head.weight"]),
        vec!["image"],
        vec!["image", "invent"],
        vec!["image", "gc", "--max-age", "30"],
        vec!["image", "gc", "--max-bytes", "all"],
        vec!["image", "rm"],
        vec!["image", "rm", "0123456789", "--all"],
        vec!["image", "rm", "0123456"],
        vec!["image", "verify", "0123456789ABCDEF"],
        vec!["image", "verify", "--tensor", "output.weight"],
    ];
    let lines: Vec<&[&str]> = lines.iter().map(Vec::as_slice).collect();
    sandbox.session("image-usage", &lines);
    assert_eq!(names(&folder(&sandbox)), Vec::<std::path::PathBuf>::new());
}

#[test]
fn models_without_a_head_that_can_be_tiled_are_said_to_be_so() {
    let sandbox = Sandbox::new();
    write_one(
        &sandbox,
        "none.gguf",
        "blk.0.ffn_up.weight",
        "F16",
        &[256, 8],
    );
    write_one(&sandbox, "cube.gguf", "output.weight", "F16", &[256, 8, 2]);
    write_one(&sandbox, "row.gguf", "output.weight", "F16", &[256]);
    write_one(&sandbox, "codes.gguf", "output.weight", "I8", &[256, 8]);
    write_one(&sandbox, "empty.gguf", "output.weight", "F16", &[256, 0]);
    let scaled: [(&str, &str, &[u64]); 2] = [
        ("output.weight", "Q8_0", &[256, 8]),
        ("output.scale", "F32", &[1]),
    ];
    model::write_seeded(&sandbox.path("scaled.gguf"), &scaled, 1);
    std::fs::write(sandbox.path("text.gguf"), "no model at all").unwrap();
    std::fs::create_dir(sandbox.path("folder.gguf")).unwrap();
    write_model(&sandbox, "F16", 1);
    let whole = std::fs::read(sandbox.path("model.gguf")).unwrap();
    std::fs::write(sandbox.path("cut.gguf"), &whole[..whole.len() - 1000]).unwrap();
    let shard = "cut-00001-of-00002.gguf";
    let split = [
        ("split.no", packhouse_container::Value::U16(0)),
        ("split.count", packhouse_container::Value::U16(2)),
        ("split.tensors.count", packhouse_container::Value::I32(2)),
    ];
    model::write(
        &sandbox.path(shard),
        &[("output.weight", "F16", &[256, 8])],
        &split,
    );
    let models = [
        "none.gguf",
        "cube.gguf",
        "row.gguf",
        "codes.gguf",
        "empty.gguf",
        "scaled.gguf",
        "text.gguf",
        "folder.gguf",
        "cut.gguf",
        shard,
        "absent.gguf",
    ];
    let lines = models.map(|model| ["image", "prepare", model, "--kd", "256", "--t", "128"]);
    let lines: Vec<&[&str]> = lines.iter().map(<[&str; 7]>::as_slice).collect();
    sandbox.session("image-refused", &lines);
    assert_eq!(names(&folder(&sandbox)), Vec::<std::path::PathBuf>::new());
}

#[test]
fn folders_that_can_not_be_used_are_named_with_what_is_wrong() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    std::fs::write(sandbox.path("file"), "").unwrap();
    for folder in ["writable", "inner", "inner/images"] {
        std::fs::create_dir(sandbox.path(folder)).unwrap();
    }
    chmod(&sandbox.path("writable"), 0o777);
    chmod(&sandbox.path("inner/images"), 0o775);
    let prepare = |folder: &'static str| [WORDS.as_slice(), &["--images", folder]].concat();
    let lines = [
        prepare("file"),
        prepare("writable"),
        prepare("writable/images"),
        prepare("inner/images"),
        prepare("home/.cache/packhouse"),
        prepare("home/.cache/packhouse/v1/images"),
        vec!["image", "ls", "--images", "file"],
        vec!["image", "verify", "--images", "writable"],
        vec!["image", "gc", "--images", "inner/images"],
        vec!["image", "rm", "--all", "--images", "inner/images"],
    ];
    let lines: Vec<&[&str]> = lines.iter().map(Vec::as_slice).collect();
    sandbox.session("image-folders", &lines);
    sandbox.session_with("image-relative", &[&["image", "ls"]], |command| {
        command.env("PACKHOUSE_IMAGES", "images");
    });
    sandbox.session_with("image-no-home", &[&["image", "ls"]], |command| {
        command.env_remove("HOME");
    });
    assert!(names(&sandbox.path("inner/images")).is_empty());
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let theirs = sandbox.path("theirs");
    std::fs::create_dir(&theirs).unwrap();
    if std::os::unix::fs::chown(&theirs, Some(4321), None).is_err() {
        println!("NOT EXERCISED: not root");
        return;
    }
    let errors = fails(
        &sandbox,
        &[WORDS.as_slice(), &["--images", "theirs"]].concat(),
        3,
    );
    assert!(
        errors.starts_with("error: cannot use the folder of images: "),
        "{errors}"
    );
    assert!(errors.contains("belongs to uid 4321"), "{errors}");
    assert!(names(&theirs).is_empty());
}

#[test]
fn switched_off_means_that_nothing_is_read_or_written() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let with =
        |name: &str, value: &str, words: &[&str]| run(sandbox.command(words).env(name, value));
    let (exit, _, errors) = with("PACKHOUSE", "0", &WORDS);
    assert_eq!(exit, 3);
    assert!(
        errors.starts_with("error: images are off: PACKHOUSE=0\n"),
        "{errors}"
    );
    assert!(errors.ends_with("hint: unset PACKHOUSE\n"), "{errors}");
    assert!(names(&folder(&sandbox)).is_empty());
    // Read-only makes no folder, reads what is there, and says what it may not write.
    let (exit, _, errors) = with("PACKHOUSE_READONLY", "1", &WORDS);
    assert_eq!(exit, 3, "{errors}");
    assert!(
        errors.starts_with("error: the folder of images is read-only: "),
        "{errors}"
    );
    assert!(names(&folder(&sandbox)).is_empty());
    done(&sandbox, &WORDS);
    let (exit, said, errors) = with("PACKHOUSE_READONLY", "1", &WORDS);
    assert_eq!(exit, 0, "{errors}");
    assert!(
        said.contains("3 of 3 stored (44.5 KiB each): 3 found, 0 written"),
        "{said}"
    );
    let gone = images(&sandbox).remove(1);
    std::fs::remove_file(&gone).unwrap();
    let (exit, said, errors) = with("PACKHOUSE_READONLY", "1", &WORDS);
    assert_eq!((exit, said.as_str()), (3, ""), "{errors}");
    assert!(
        errors.contains("error: cannot store the head of: model.gguf\n"),
        "{errors}"
    );
    assert!(
        errors.contains("cause: tile 1 was packed and not stored: read-only\n"),
        "{errors}"
    );
    assert!(
        errors.contains("cause: stopped at tile 1 of 0 to 2: 1 stored before it, "),
        "{errors}"
    );
    assert!(
        errors.ends_with("hint: unset PACKHOUSE_READONLY\n"),
        "{errors}"
    );
    for words in [["image", "rm", "--all"].as_slice(), &["image", "gc"]] {
        let (exit, _, errors) = with("PACKHOUSE_READONLY", "1", words);
        assert_eq!(exit, 3, "{errors}");
        assert!(
            errors.starts_with("error: the folder of images is read-only: "),
            "{errors}"
        );
    }
    assert_eq!(images(&sandbox).len(), 2);
    let (exit, _, errors) = with(
        "PACKHOUSE",
        "0",
        &["image", "verify", "--model", "model.gguf"],
    );
    assert_eq!(exit, 3, "{errors}");
    assert!(
        errors.starts_with("error: images are off: PACKHOUSE=0\n"),
        "{errors}"
    );
}

#[test]
fn what_finds_no_room_is_not_stored_and_said_with_figures() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let capped = [WORDS.as_slice(), &["--max-bytes", "100KiB"]].concat();
    let errors = fails(&sandbox, &capped, 3);
    assert!(
        errors.contains("error: cannot store the head of: model.gguf\n"),
        "{errors}"
    );
    let cause = "cause: tile 0 was packed and not stored: the head needs 136704 bytes of images, \
                 and the cap of 102400 bytes ";
    assert!(errors.contains(cause), "{errors}");
    assert!(
        errors.contains("cause: stopped at tile 0 of 0 to 2: 0 stored before it, "),
        "{errors}"
    );
    assert!(images(&sandbox).is_empty());
    let floor = [
        "image",
        "prepare",
        "model.gguf",
        "--kd",
        "256",
        "--t",
        "250",
    ];
    let floor = [floor.as_slice(), &["--min-free", "8388608TiB"]].concat();
    let errors = fails(&sandbox, &floor, 3);
    assert!(
        errors.contains("tile 0 was packed and not stored: "),
        "{errors}"
    );
    assert!(errors.contains(" stay free\n"), "{errors}");
    assert!(errors.contains("hint: df -h "), "{errors}");
    assert!(images(&sandbox).is_empty());
    must_be_tidy(&folder(&sandbox));
    // With room for all it is done.
    let room = (3 * IMAGE_BYTES).to_string();
    let fits = [WORDS.as_slice(), &["--max-bytes", &room]].concat();
    assert_eq!(done(&sandbox, &fits)["stored_count"], 3);
}

#[test]
fn a_limit_of_file_sizes_is_an_error_and_leaves_nothing() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let limited = "ulimit -f 60; exec \"$0\" \"$@\"";
    let (exit, _, errors) = run(&mut sandbox.shell(limited, &WORDS));
    assert_eq!(exit, 3, "{errors}");
    assert!(
        errors.contains("cause: tile 0 was packed and not stored: "),
        "{errors}"
    );
    let figures = "would have 45568 bytes, and this process may write files of 30720 bytes";
    assert!(errors.contains(figures), "{errors}");
    assert!(images(&sandbox).is_empty());
    must_be_tidy(&folder(&sandbox));
    assert_eq!(done(&sandbox, &WORDS)["written_count"], 3);
}

/// The command after a mount that nothing outside sees; `None` where none can be made.
pub(crate) fn mounted(
    sandbox: &Sandbox,
    mount: &str,
    words: &[&str],
) -> Option<(i32, String, String)> {
    let inner = sandbox.command(words);
    let mut command = Command::new("unshare");
    let line = format!("mkdir -p mnt; {mount} || exit 99; exec \"$@\"");
    command
        .args(["-rm", "sh", "-c", &line, "sh"])
        .arg(inner.get_program())
        .args(inner.get_args())
        .current_dir(inner.get_current_dir().expect("because it is the sandbox"));
    for (name, value) in inner.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let found = command.output().ok().map(|_| run(&mut command));
    found.filter(|(exit, _, errors)| *exit != 99 && !errors.contains("unshare: "))
}

#[test]
fn a_full_disk_and_a_read_only_one_are_said() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    // Room for one tile of three, and its folders.
    let full = "mount -t tmpfs -o size=80k,mode=0700 tmpfs mnt";
    let words = [
        WORDS.as_slice(),
        &["--images", "mnt/images", "--max-bytes", "1GiB"],
    ]
    .concat();
    let Some((exit, _, errors)) = mounted(&sandbox, full, &words) else {
        println!("NOT EXERCISED: no mount in a namespace of its own");
        return;
    };
    assert_eq!(exit, 3, "{errors}");
    let cause = "cause: tile 0 was packed and not stored: 136704 bytes wanted, the disk has ";
    assert!(errors.contains(cause), "room for all or none: {errors}");
    assert!(
        errors.contains("cause: stopped at tile 0 of 0 to 2: 0 stored before it, "),
        "{errors}"
    );
    let read_only = "mount -t tmpfs -o ro,mode=0700 tmpfs mnt";
    let said = mounted(&sandbox, read_only, &words);
    let (exit, _, errors) = said.expect("because the first mount was possible");
    assert_eq!(exit, 3, "{errors}");
    assert!(
        errors.starts_with("error: cannot use the folder of images: "),
        "{errors}"
    );
    assert!(errors.contains("read-only file system"), "{errors}");
}

#[test]
fn a_model_that_somebody_writes_to_is_not_read() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let path = sandbox.path("model.gguf");
    let writer = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    let errors = fails(&sandbox, &WORDS, 3);
    assert!(
        errors.starts_with("error: the model is being written: "),
        "{errors}"
    );
    assert!(errors.contains("is open for writing: what is read may never have been whole\n"));
    drop(writer);
    assert_eq!(done(&sandbox, &WORDS)["stored_count"], 3);
}

#[test]
fn more_memory_than_there_is_is_refused_with_figures() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let words = [
        "image",
        "prepare",
        "model.gguf",
        "--kd",
        "16777216",
        "--t",
        "4096",
    ];
    let errors = fails(&sandbox, &words, 3);
    let first = "error: not enough memory for tiles of: 128.00 GiB\ncause: ";
    assert!(errors.starts_with(first), "{errors}");
    assert!(
        errors.contains(" are available\n\nhint: free -h\n"),
        "{errors}"
    );
    assert!(!Path::new(&folder(&sandbox)).exists());
}

#[test]
fn more_tiles_than_have_names_are_refused() {
    let sandbox = Sandbox::new();
    write_one(
        &sandbox,
        "model.gguf",
        "output.weight",
        "F16",
        &[8, 100_001],
    );
    let words = ["image", "prepare", "model.gguf", "--kd", "8", "--t", "1"];
    let errors = fails(&sandbox, &words, 2);
    let first = "error: no such tiles of the head: kd 8, nd 1, kpad 8, t 1\ncause: vocabulary is \
                 100001, expected 1 to 100000: ";
    assert!(errors.starts_with(first), "{errors}");
    assert!(images(&sandbox).is_empty());
}

/// Not being able to look is another answer than damage.
#[test]
fn a_tile_that_can_not_be_read_is_no_damage() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    done(&sandbox, &WORDS);
    let file = images(&sandbox).remove(1);
    chmod(&file, 0o000);
    if std::fs::File::open(&file).is_ok() {
        println!("NOT EXERCISED: root reads what nobody may");
        return;
    }
    let errors = fails(&sandbox, &["image", "verify"], 3);
    assert!(
        errors.starts_with("error: cannot read all of the images: "),
        "{errors}"
    );
    assert!(errors.contains("permission denied"), "{errors}");
    let kept = done(&sandbox, &["image", "gc"]);
    assert_eq!(kept["unread"].as_array().unwrap().len(), 1, "{kept}");
}

#[test]
fn hints_are_commands_that_a_shell_takes() {
    let sandbox = Sandbox::new();
    let tensors: [(&str, &str, &[u64]); 1] = [("output.weight", "F16", &[WIDTH, ROWS])];
    model::write_seeded(&sandbox.path("it's a model.gguf"), &tensors, 1);
    let words = [
        "image",
        "prepare",
        "it's a model.gguf",
        "--kd",
        "128",
        "--t",
        "50",
    ];
    let errors = fails(&sandbox, &words, 2);
    let hint = errors
        .lines()
        .find_map(|line| line.strip_prefix("hint: packhouse "));
    let line = format!("\"$0\" {} --json", hint.expect("because there is one"));
    let (exit, said, errors) = run(&mut sandbox.shell(&line, &[]));
    assert_eq!(exit, 0, "{line}: {errors}");
    let shown: serde_json::Value = serde_json::from_str(&said).expect("because it is JSON");
    assert_eq!(shown["tensor_count"], json!(1), "{shown}");
}
