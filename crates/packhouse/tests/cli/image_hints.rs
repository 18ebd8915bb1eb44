//! What is shown of names that others gave, and hints that are commands which help.

use crate::image_refused::mounted;
use crate::image_world::{
    ROWS, WIDTH, WORDS, done, edit, fails, folder, images, names, run, write_model,
};
use crate::model;
use crate::sandbox::Sandbox;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A name that colours the terminal and begins a line of its own.
const FOREIGN: &str = "b\x1b[31m\nd";
const SHOWN: &str = "b\\u{1b}[31m\\u{a}d";

/// Words on another folder.
fn on<'a>(words: &[&'a str], folder: &'a str) -> Vec<&'a str> {
    [words, &["--images", folder]].concat()
}

/// The hint, which a shell takes as it is.
fn hint(errors: &str) -> &str {
    let hint = errors.lines().find_map(|line| line.strip_prefix("hint: "));
    hint.unwrap_or_else(|| panic!("no hint: {errors}"))
}

/// Runs a hint as a shell does.
fn follow(sandbox: &Sandbox, errors: &str) -> (i32, String, String) {
    let words = hint(errors).strip_prefix("packhouse ");
    let words = words.expect("because it is a command of ours");
    run(&mut sandbox.shell(&format!("\"$0\" {words}"), &[]))
}

#[test]
fn names_of_others_are_spelled_out_wherever_they_are_shown() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let shows = |words: &[&str], exit: i32, texts: &[&str]| {
        let words = on(words, FOREIGN);
        let (actual, said, errors) = run(&mut sandbox.command(&words));
        let all = said + &errors;
        assert_eq!(actual, exit, "{words:?}: {all}");
        assert!(!all.contains('\x1b'), "{words:?}: {all:?}");
        let is_forged = |line: &str| line.starts_with('d') && !line.starts_with("damaged: ");
        assert!(!all.lines().any(is_forged), "{words:?}: {all}");
        for text in texts {
            assert!(all.contains(text), "{words:?}: {text:?} is not in {all}");
        }
    };
    shows(&["image", "ls"], 0, &["no images in ", SHOWN]);
    shows(&["image", "verify"], 3, &[SHOWN]);
    done(&sandbox, &on(&WORDS, FOREIGN));
    let root = sandbox.path(FOREIGN);
    std::fs::write(root.join("v1").join(FOREIGN), "not ours").unwrap();
    let tiles = || -> Vec<_> {
        let all = names(&root.join("v1")).into_iter();
        all.filter(|path| path.extension().is_some_and(|end| end == "phti"))
            .collect()
    };
    let damage = |tile: usize, at: usize| edit(&tiles()[tile], |bytes| bytes[at] ^= 1);
    damage(0, 5000);
    damage(1, 50);
    let stray = format!("not ours: v1/{SHOWN} (");
    let end = format!("{SHOWN}, ");
    shows(&["image", "ls"], 0, &["damaged: image ", &stray, &end]);
    shows(&["image", "verify"], 1, &["bad: image ", SHOWN]);
    let with = ["image", "verify", "--model", "model.gguf"];
    shows(&with, 1, &["bad: image ", SHOWN]);
    shows(&WORDS, 0, &["refused: image ", SHOWN]);
    damage(1, 50);
    let stays = format!("not ours, stays: v1/{SHOWN} (");
    shows(&["image", "gc"], 0, &[&stays]);
    shows(&["image", "rm", "0123456789"], 3, &[SHOWN]);
    shows(&["image", "rm", "--all"], 0, &[]);
}

#[test]
fn hints_are_about_the_folder_that_was_named() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let other = "an other";
    let errors = fails(&sandbox, &on(&["image", "verify"], other), 3);
    let make = "packhouse image prepare MODEL --kd N --t N --images 'an other'";
    assert_eq!(hint(&errors), make);
    done(&sandbox, &on(&WORDS, other));
    for words in [
        ["image", "rm", "0123456789"],
        ["image", "rm", "0123456"],
        ["image", "verify", "0123456789"],
        ["image", "verify", "0123456"],
    ] {
        let (_, _, errors) = run(&mut sandbox.command(&on(&words, other)));
        assert_eq!(hint(&errors), "packhouse image ls --images 'an other'");
        let (exit, said, _) = follow(&sandbox, &errors);
        assert_eq!(exit, 0);
        assert!(said.contains("1 image in "), "{words:?}: {said}");
    }
    write_model(&sandbox, "F16", 2);
    let with = ["image", "verify", "--model", "model.gguf"];
    let errors = fails(&sandbox, &on(&with, other), 3);
    assert_eq!(hint(&errors), "packhouse image ls --images 'an other'");
}

#[test]
fn a_cap_that_is_too_small_has_a_hint_with_one_that_suffices() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    // What another owner used just now stays beside it.
    let another = ["--layout", "int8-tile-b8-v1", "--owner", "another"];
    done(&sandbox, &[WORDS.as_slice(), &another].concat());
    let capped = [WORDS.as_slice(), &["--max-bytes", "150KiB"]].concat();
    let errors = fails(&sandbox, &capped, 3);
    assert!(errors.contains("and the cap of 153600 bytes "), "{errors}");
    let (exit, said, errors) = follow(&sandbox, &errors);
    assert_eq!(exit, 0, "{errors}");
    assert!(said.contains("3 of 3 stored"), "{said}");
    assert_eq!(images(&sandbox).len(), 6, "and the other one stayed");
}

#[test]
fn what_has_a_tiles_name_is_shown_by_the_hint() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    done(&sandbox, &WORDS);
    let tile = images(&sandbox).remove(1);
    std::fs::remove_file(&tile).unwrap();
    std::fs::create_dir(&tile).unwrap();
    let errors = fails(&sandbox, &WORDS, 3);
    let cause = "cause: stopped at tile 1 of 0 to 2: 1 stored before it, those after it not \
                 looked at\n";
    assert!(errors.contains(cause), "tile 2 is there, too: {errors}");
    assert_eq!(hint(&errors), format!("ls -ld {}", tile.display()));
}

#[test]
fn a_disk_mounted_read_only_is_the_reason_before_any_cap() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let mount = "umask 077; mount -t tmpfs -o mode=0700 tmpfs mnt && mkdir -p mnt/images/v1 \
                 && mount -o remount,ro mnt";
    for bound in ["--max-bytes", "--min-free"] {
        let value = if bound == "--max-bytes" {
            "1"
        } else {
            "8388608TiB"
        };
        let words = [
            WORDS[..9].as_ref(),
            &["--images", "mnt/images", bound, value],
        ]
        .concat();
        let Some((exit, _, errors)) = mounted(&sandbox, mount, &words) else {
            println!("NOT EXERCISED: no mount in a namespace of its own");
            return;
        };
        assert_eq!(exit, 3, "{errors}");
        assert!(
            errors.contains("tile 0 was packed and not stored: "),
            "{errors}"
        );
        assert!(
            errors.contains("read-only file system"),
            "{bound}: {errors}"
        );
        assert!(!errors.contains("the cap of"), "{errors}");
    }
}

#[test]
fn a_tensor_that_is_named_does_not_remove_the_models_own_head() {
    let sandbox = Sandbox::new();
    let tensors: [(&str, &str, &[u64]); 2] = [
        ("output.weight", "F16", &[WIDTH, ROWS]),
        ("token_embd.weight", "F16", &[WIDTH, ROWS]),
    ];
    model::write_seeded(&sandbox.path("model.gguf"), &tensors, 1);
    let own = done(&sandbox, &WORDS);
    let named = [WORDS.as_slice(), &["--tensor", "token_embd.weight"]].concat();
    let other = done(&sandbox, &named);
    let expected = format!("{}#token_embd.weight", own["owner"].as_str().unwrap());
    assert_eq!(other["owner"], expected.as_str());
    assert_ne!(other["image"], own["image"]);
    assert_eq!(other["removed"].as_array().unwrap().len(), 0, "{other}");
    assert_eq!(images(&sandbox).len(), 6);
    for words in [&WORDS, named.as_slice()] {
        assert_eq!(done(&sandbox, words)["hit_count"], 3, "{words:?}");
    }
}

#[test]
fn the_table_says_what_it_does_not_know_and_has_room_for_long_owners() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let long = format!("/{}/end of the path", "folder/".repeat(100));
    let words = [
        "image",
        "prepare",
        "model.gguf",
        "--kd",
        "256",
        "--t",
        "250",
    ];
    let words = [words.as_slice(), &["--min-free", "0", "--owner", &long]].concat();
    done(&sandbox, &words);
    let (_, said, _) = run(&mut sandbox.command(&["image", "verify"]));
    assert!(said.contains(": 1 tile good, 0 bad; "), "{said}");
    let tile = images(&sandbox).remove(0);
    let name = tile.file_name().unwrap().to_string_lossy().into_owned();
    let temp = tile.with_file_name(format!(".{name}.1-0123456789abcdef.tmp"));
    std::fs::write(&temp, "part").unwrap();
    let far = SystemTime::now() + Duration::from_secs(400 * 86_400);
    let date = |path: &Path| {
        let file = std::fs::File::open(path).unwrap();
        file.set_modified(far).unwrap();
    };
    date(&tile);
    names(&folder(&sandbox).join("v1/owners"))
        .iter()
        .for_each(|path| date(path));
    let (exit, said, _) = run(&mut sandbox.command(&["image", "ls"]));
    assert_eq!(exit, 0);
    let row = said.lines().nth(1).expect("because there is an image");
    assert!(row.contains("  unknown  ...older/folder/"), "{row}");
    assert!(row.ends_with("/folder//end of the path"), "{row}");
    assert!(row.len() < 200, "{row}");
    // Nobody writes it, but a writer would have had no time yet to lock it.
    assert!(
        said.contains(".tmp (4 B), being written, or too young to tell\n"),
        "{said}"
    );
}
