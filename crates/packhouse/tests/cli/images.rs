//! Images of heads, from the model's bytes to the file and back.

use crate::image_world::{
    IMAGE_BYTES, ROWS, T, WIDTH, WORDS, done, edit, fails, folder, head_bytes, images, judged,
    must_be_tidy, names, run, write_model,
};
use crate::model;
use crate::sandbox::Sandbox;
use packhouse_image::{HEADER_BYTES, Header, PayloadHash};
use packhouse_layout::int8_tile::{TileOrder, TileSizes};
use serde_json::{Value, json};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

const SIZES: TileSizes = TileSizes {
    kd: 320,
    nd: 128,
    kpad: 320,
    t: T,
};

#[test]
fn every_type_of_head_is_stored_as_the_judge_packs_it_and_found_again() {
    let sandbox = Sandbox::new();
    let types = ["F32", "F16", "Q4_0", "Q8_0", "Q6_K"];
    for (seed, ty) in (10u64..).step_by(10).zip(types) {
        // Each type as a head of its own, and as an embedding that serves as one.
        let tied = seed % 20 == 0;
        let bytes = head_bytes(ty, seed);
        if tied {
            let tensors: [(&str, &str, &[u64]); 1] = [("token_embd.weight", ty, &[WIDTH, ROWS])];
            model::write_seeded(&sandbox.path("model.gguf"), &tensors, seed);
        } else {
            write_model(&sandbox, ty, seed);
        }
        for (order, layout) in [
            (TileOrder::RowMajor, "int8-tile-rm-v1"),
            (TileOrder::Blocked, "int8-tile-b8-v1"),
        ] {
            let words = [WORDS.as_slice(), &["--layout", layout, "--owner", ty]].concat();
            let first = done(&sandbox, &words);
            assert_eq!(first["written_count"], 3, "{first}");
            assert_eq!(first["gathered_columns"], ROWS);
            assert_eq!(first["sampled_columns"], 0);
            assert_eq!(first["written_bytes"], 3 * IMAGE_BYTES);
            assert_eq!(first["tied"], tied);
            assert_eq!(
                (&first["dtype"], &first["layout"]),
                (&json!(ty), &json!(layout))
            );
            let second = done(&sandbox, &words);
            assert_eq!(second["hit_count"], 3, "{second}");
            assert_eq!(second["gathered_columns"], 0, "only samples are gathered");
            assert_eq!(second["sampled_columns"], 8 * 3);
            assert_eq!(second["image"], first["image"]);
            must_hold(&sandbox, &first, &judged(ty, &bytes, order, SIZES));
        }
    }
    assert_eq!(images(&sandbox).len(), 5 * 2 * 3);
    must_be_tidy(&folder(&sandbox));
}

/// Compares the files of an image with payloads, and with their own headers.
fn must_hold(sandbox: &Sandbox, prepared: &Value, payloads: &[Vec<u8>]) {
    let key = prepared["image"].as_str().expect("because it is a key");
    for (tile, payload) in payloads.iter().enumerate() {
        let path = folder(sandbox).join(format!("v1/{}-t{tile:05}.phti", &key[..32]));
        let bytes = std::fs::read(&path).unwrap();
        let (header, rest) = bytes.split_at(HEADER_BYTES);
        assert!(rest == payload, "tile {tile} of {prepared}");
        let header = Header::parse(header).expect("because it was written");
        assert_eq!(header.key().to_string(), key);
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o400);
    }
}

#[test]
fn sizes_that_are_left_out_are_those_of_the_tile() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let words = [
        "image",
        "prepare",
        "model.gguf",
        "--kd",
        "256",
        "--t",
        "250",
    ];
    let made = done(&sandbox, &words);
    assert_eq!(made["kpad"], 256);
    assert_eq!(made["nd"], 250);
    assert_eq!(made["layout"], "int8-tile-rm-v1");
    assert_eq!(made["tile_bytes"], 4096 + 256 * 250 + 4 * 250);
    assert_eq!(made["tensor"], "output.weight");
    let model = sandbox.path("model.gguf").display().to_string();
    assert_eq!(made["owner"], model.as_str(), "an absolute path");
    // Another tensor is another head.
    let named = [words.as_slice(), &["--tensor", "token_embd.weight"]].concat();
    let other = done(&sandbox, &named);
    assert_eq!(
        (&other["vocabulary"], &other["tied"]),
        (&json!(3), &json!(true))
    );
    assert_ne!(other["image"], made["image"]);
}

#[test]
fn a_model_on_stdin_is_owned_by_its_own_path() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let words = [
        "image",
        "prepare",
        "/dev/stdin",
        "--kd",
        "256",
        "--t",
        "250",
        "--json",
    ];
    let (exit, said, errors) = run(&mut sandbox.shell("\"$0\" \"$@\" < model.gguf", &words));
    assert_eq!(exit, 0, "{errors}");
    let made: Value = serde_json::from_str(&said).expect("because it is JSON");
    let model = sandbox.path("model.gguf").canonicalize().unwrap();
    assert_eq!(made["owner"], model.display().to_string());
}

#[test]
fn what_is_said_names_the_image_and_what_it_took() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "Q8_0", 1);
    let (exit, said, errors) = run(&mut sandbox.command(&WORDS));
    assert_eq!(exit, 0, "{errors}");
    for line in [
        "head     output.weight, Q8_0, 250 rows of 256 values\n",
        "layout   int8-tile-rm-v1, kd 320, nd 128, kpad 320, t 100\n",
        "tiles    3 of 3 stored (44.5 KiB each): 0 found, 3 written, 0 replaced\n",
        "columns  250 packed, 0 compared (seed ",
        "bytes    0 B read, 133.5 KiB written, 0 B removed\n",
    ] {
        assert!(said.contains(line), "{line:?} is not in {said}");
    }
    // The line that engines print, once per serve.
    assert_eq!(errors.lines().count(), 1, "{errors}");
    let line = "packhouse: head image: 3 tiles: 0 from images, 3 packed, 3 written; ";
    assert!(errors.starts_with(line), "{errors}");
}

#[test]
fn another_head_of_an_owner_takes_the_place_of_the_first_in_its_geometry_only() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let first = done(&sandbox, &WORDS);
    let wide = [
        "image",
        "prepare",
        "model.gguf",
        "--kd",
        "256",
        "--t",
        "250",
    ];
    let kept = done(&sandbox, &wide);
    write_model(&sandbox, "F16", 2);
    let second = done(&sandbox, &WORDS);
    assert_ne!(second["image"], first["image"], "it is another head");
    assert_eq!(second["hit_count"], 0);
    let removed = second["removed"].as_array().expect("because it is a list");
    assert_eq!(removed.len(), 3, "{second}");
    for removed in removed {
        assert_eq!(removed["reason"], "superseded");
        assert_eq!(removed["bytes"], IMAGE_BYTES);
    }
    let listed = done(&sandbox, &["image", "ls"]);
    let keys: Vec<&Value> = listed["images"].as_array().unwrap().iter().collect();
    let keys: Vec<&Value> = keys.iter().map(|image| &image["image"]).collect();
    assert!(keys.contains(&&kept["image"]) && keys.contains(&&second["image"]));
    assert_eq!(keys.len(), 2);
    // What another owner names stays.
    let other = [WORDS.as_slice(), &["--owner", "another"]].concat();
    assert_eq!(done(&sandbox, &other)["hit_count"], 3);
    write_model(&sandbox, "F16", 3);
    assert_eq!(done(&sandbox, &WORDS)["removed"], json!([]));
    assert_eq!(
        done(&sandbox, &["image", "ls"])["images"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
}

/// What is done to a file, its reason, the words that name it, and whether `ls` sees it.
type Damage = (fn(&mut Vec<u8>), &'static str, &'static str, bool);

const DAMAGES: [Damage; 6] = [
    (
        |bytes| bytes[HEADER_BYTES + 777] ^= 1,
        "payload_hash",
        "the payload hashes to ",
        false,
    ),
    (
        |bytes| bytes[HEADER_BYTES + 320 * 128 + 9] ^= 0x40,
        "payload_hash",
        "the payload hashes to ",
        false,
    ),
    (
        |bytes| bytes.truncate(HEADER_BYTES + 99),
        "length",
        "it has 4195 bytes, expected 45568",
        true,
    ),
    (
        |bytes| bytes.push(0),
        "length",
        "it has 45569 bytes, expected 45568",
        true,
    ),
    (
        |bytes| bytes[200] ^= 1,
        "header_hash",
        "the header hashes to ",
        true,
    ),
    (
        |bytes| bytes[0] = b'X',
        "magic",
        "the magic is \"XHTI\", expected \"PHTI\"",
        true,
    ),
];

#[test]
fn a_damaged_tile_is_named_by_verify_and_ls_and_replaced_by_prepare() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "Q4_0", 1);
    let made = done(&sandbox, &WORDS);
    let file = images(&sandbox).remove(1);
    let name = file.file_name().unwrap().to_str().unwrap();
    assert_eq!(done(&sandbox, &["image", "verify"])["good"], true);
    for (damage, code, words, is_seen_by_ls) in DAMAGES {
        edit(&file, damage);
        let (exit, said, errors) = run(&mut sandbox.command(&["image", "verify"]));
        assert_eq!(exit, 1, "{code}: {said}{errors}");
        assert!(
            said.starts_with("bad: image ") && said.contains(name),
            "{code}: {said}"
        );
        assert!(said.contains(words), "{code}: {said}");
        assert!(said.contains("2 tiles good, 1 bad"), "{code}: {said}");
        let listed = done(&sandbox, &["image", "ls"]);
        let damaged = listed["images"][0]["damaged"].as_array().unwrap().len();
        assert_eq!(damaged, usize::from(is_seen_by_ls), "{code}: {listed}");
        let again = done(&sandbox, &WORDS);
        let counts = (&again["hit_count"], &again["written_count"]);
        assert_eq!(counts, (&json!(2), &json!(1)));
        let refused = &again["refused"][0];
        assert_eq!(refused["reason"], code, "{again}");
        assert!(refused["text"].as_str().unwrap().contains(name), "{again}");
        assert_eq!(
            again["gathered_columns"], T,
            "the damaged tile alone is packed"
        );
        assert_eq!(done(&sandbox, &["image", "verify"])["good"], true);
        assert_eq!(again["image"], made["image"]);
    }
    let bytes = head_bytes("Q4_0", 1);
    must_hold(
        &sandbox,
        &made,
        &judged("Q4_0", &bytes, TileOrder::RowMajor, SIZES),
    );
}

#[test]
fn what_no_serve_can_use_is_collected() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "Q4_0", 1);
    done(&sandbox, &WORDS);
    let file = images(&sandbox).remove(1);
    edit(&file, |bytes| bytes[0] = b'X');
    let gone = done(&sandbox, &["image", "gc"]);
    assert_eq!(gone["removed"].as_array().unwrap().len(), 1, "{gone}");
    assert_eq!(gone["removed"][0]["reason"], "damaged");
    assert!(!file.exists());
    assert_eq!(done(&sandbox, &WORDS)["hit_count"], 2);
}

/// An intact file that says it is of this head and holds the payload of another.
#[test]
fn an_intact_image_of_other_weights_is_found_by_the_model_alone() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F32", 2);
    let other = done(
        &sandbox,
        &[WORDS.as_slice(), &["--owner", "other"]].concat(),
    );
    let other_files = images(&sandbox);
    write_model(&sandbox, "F32", 1);
    let made = done(&sandbox, &WORDS);
    let key = made["image"].as_str().unwrap();
    let own = folder(&sandbox).join(format!("v1/{}-t00000.phti", &key[..32]));
    let foreign = std::fs::read(&other_files[0]).unwrap();
    let foreign_header = Header::parse(&foreign[..HEADER_BYTES]).expect("because it is whole");
    assert_ne!(made["image"], other["image"]);
    edit(&own, |bytes| {
        let header = Header::parse(&bytes[..HEADER_BYTES]).expect("because it is whole");
        let forged = Header::new(
            *header.geometry(),
            header.head().clone(),
            *header.fingerprint(),
            0,
            *header.owner(),
            *foreign_header.payload_hash(),
        );
        let forged = forged.expect("because the head has a first tile").encode();
        *bytes = [forged.as_slice(), &foreign[HEADER_BYTES..]].concat();
    });
    assert_eq!(
        done(&sandbox, &["image", "verify"])["good"],
        true,
        "every hash holds"
    );
    let with_model = ["image", "verify", "--model", "model.gguf"];
    let (exit, said, _) = run(&mut sandbox.command(&with_model));
    assert_eq!(exit, 1, "{said}");
    let name = own.file_name().unwrap().to_str().unwrap();
    assert!(
        said.starts_with("bad: image ") && said.contains(name),
        "{said}"
    );
    assert!(said.contains("the scale of column 0 is "), "{said}");
    assert!(
        said.contains("other head weights, or by another packer"),
        "{said}"
    );
    assert!(said.contains("2 tiles good, 1 bad"), "{said}");
    assert!(said.contains(" is of another head\n"), "{said}");
    // A sample finds it too, and the next run has it right.
    let healed = done(&sandbox, &WORDS);
    assert_eq!(healed["refused"][0]["reason"], "sample_scale", "{healed}");
    let verified = done(&sandbox, &with_model);
    assert_eq!(
        (&verified["good"], &verified["images"][0]["good_count"]),
        (&json!(true), &json!(3))
    );
}

/// Flips a bit of a payload and makes the header say its hash, which `verify` tells.
fn edit_and_seal(sandbox: &Sandbox, path: &Path, at: usize) {
    edit(path, |bytes| bytes[at] ^= 1);
    let (_, said, _) = run(&mut sandbox.command(&["image", "verify"]));
    let told = said.split_once("hashes to ");
    let (_, hash) = told.expect("because it is damaged");
    let hash = PayloadHash::parse(&hash[..64]).expect("because it is a hash");
    edit(path, |bytes| {
        let header = Header::parse(&bytes[..HEADER_BYTES]).expect("because it is whole");
        let forged = Header::new(
            *header.geometry(),
            header.head().clone(),
            *header.fingerprint(),
            header.tile(),
            *header.owner(),
            hash,
        );
        let forged = forged.expect("because the head has the tile").encode();
        bytes[..HEADER_BYTES].copy_from_slice(&forged);
    });
}

#[test]
fn verify_with_a_model_compares_every_column_and_names_what_it_can_not_compare() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "Q6_K", 1);
    let made = done(&sandbox, &WORDS);
    let key = made["image"].as_str().unwrap();
    let path = images(&sandbox).pop().expect("because there are three");
    let full = [WORDS.as_slice(), &["--full"]].concat();
    // A sample of these fifty columns takes every eighth between the ends: not both of these.
    for column in [1, 2] {
        edit_and_seal(&sandbox, &path, HEADER_BYTES + 3 * 128 + column);
        assert_eq!(done(&sandbox, &["image", "verify", key])["good"], true);
        let words = ["image", "verify", "--model", "model.gguf", &key[..8]];
        let (exit, said, _) = run(&mut sandbox.command(&words));
        assert_eq!(exit, 1, "{said}");
        let found = format!("the code of column {}, depth row 3, is ", 200 + column);
        assert!(said.contains(&found), "{said}");
        // All columns are compared by a full prepare too, which then replaces the tile.
        let healed = done(&sandbox, &full);
        assert_eq!(healed["refused"][0]["reason"], "sample_code", "{healed}");
        assert_eq!(healed["sampled_columns"], ROWS);
    }
    assert_eq!(done(&sandbox, &full)["hit_count"], 3);
    // A tile that is gone is no damage.
    std::fs::remove_file(&path).unwrap();
    let found = done(&sandbox, &["image", "verify", "--model", "model.gguf"]);
    assert_eq!(found["images"][0]["absent_count"], 1, "{found}");
    let (_, said, _) = run(&mut sandbox.command(&["image", "verify"]));
    assert!(
        said.contains("2 tiles good, 0 bad, 1 not stored; "),
        "{said}"
    );
    // Another model's head has no image here.
    write_model(&sandbox, "Q6_K", 2);
    let errors = fails(&sandbox, &["image", "verify", "--model", "model.gguf"], 3);
    assert!(
        errors.starts_with("error: no image of this head: model.gguf\n"),
        "{errors}"
    );
}

#[test]
fn images_are_listed_collected_and_removed() {
    let sandbox = Sandbox::new();
    sandbox.session(
        "image-none",
        &[
            &["image", "ls"],
            &["image", "verify"],
            &["image", "gc"],
            &["image", "rm", "--all"],
            &["image", "rm", "0123456789abcdef"],
        ],
    );
    write_model(&sandbox, "F16", 1);
    done(&sandbox, &WORDS);
    done(
        &sandbox,
        &[
            "image",
            "prepare",
            "model.gguf",
            "--kd",
            "256",
            "--t",
            "250",
        ],
    );
    let files = images(&sandbox);
    let day = Duration::from_secs(86_400);
    let date = |path: &Path, days: u32| {
        let then = SystemTime::now() - day * days;
        let file = std::fs::File::open(path).unwrap();
        file.set_modified(then).unwrap();
    };
    // One image was used an hour ago at most, the other forty days ago.
    let old: Vec<_> = files
        .iter()
        .filter(|path| std::fs::metadata(path).unwrap().len() == IMAGE_BYTES)
        .collect();
    assert_eq!(old.len(), 3);
    let records = names(&folder(&sandbox).join("v1/owners"));
    assert_eq!(records.len(), 2);
    old.iter().for_each(|path| date(path, 40));
    let temp = folder(&sandbox).join("v1/.x");
    std::fs::write(&temp, "not ours").unwrap();
    let listed = done(&sandbox, &["image", "ls"]);
    assert_eq!(listed["not_ours"], json!(["v1/.x"]), "{listed}");
    std::fs::remove_file(&temp).unwrap();
    records.iter().for_each(|path| date(path, 40));
    let dry = ["image", "gc", "--max-age", "30d", "--dry-run"];
    let would = done(&sandbox, &dry);
    assert_eq!(would["dry_run"], true);
    assert_eq!(images(&sandbox).len(), 4, "a dry run removes nothing");
    let went = done(&sandbox, &["image", "gc", "--max-age", "30d"]);
    let gone: Vec<&Value> = went["removed"].as_array().unwrap().iter().collect();
    assert_eq!(would["removed"].as_array().unwrap().len(), gone.len());
    let images_gone = gone.iter().filter(|gone| gone["bytes"] == IMAGE_BYTES);
    assert_eq!(images_gone.count(), 3, "{went}");
    assert_eq!(images(&sandbox).len(), 1);
    // A cap that holds removes nothing, one that does not removes the rest.
    assert_eq!(
        done(&sandbox, &["image", "gc", "--max-bytes", "1GiB"])["removed"],
        json!([])
    );
    let capped = done(&sandbox, &["image", "gc", "--max-bytes", "1000"]);
    assert_eq!(capped["removed"][0]["reason"], "room", "{capped}");
    assert!(images(&sandbox).is_empty());
}

#[test]
fn images_are_removed_by_their_keys() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    let first = done(&sandbox, &WORDS);
    let words = [
        "image",
        "prepare",
        "model.gguf",
        "--kd",
        "256",
        "--t",
        "250",
    ];
    let second = done(&sandbox, &words);
    let key = |made: &Value| made["image"].as_str().unwrap().to_owned();
    let (first, second) = (key(&first), key(&second));
    let inodes = |sandbox: &Sandbox| -> Vec<u64> {
        let files = images(sandbox);
        files
            .iter()
            .map(|path| std::fs::metadata(path).unwrap().ino())
            .collect()
    };
    let before = inodes(&sandbox);
    // A key that is none is judged before another goes.
    let errors = fails(&sandbox, &["image", "rm", &first, "00000000"], 3);
    assert!(
        errors.starts_with("error: no such image: 00000000\n"),
        "{errors}"
    );
    let errors = fails(&sandbox, &["image", "rm", &first[..7]], 2);
    assert!(errors.starts_with("error: not an image key: "), "{errors}");
    assert_eq!(inodes(&sandbox), before);
    // Twice the same is once.
    let gone = done(&sandbox, &["image", "rm", &first[..12], &first]);
    let reasons = gone["removed"].as_array().unwrap().iter();
    assert!(
        reasons.clone().all(|gone| gone["reason"] == "asked"),
        "{gone}"
    );
    assert_eq!(images(&sandbox).len(), 1);
    assert_eq!(done(&sandbox, &["image", "verify", &second])["good"], true);
    let (exit, said, _) = run(&mut sandbox.command(&["image", "rm", "--all"]));
    assert_eq!(exit, 0);
    assert!(
        said.contains("removed 2 files, "),
        "an image and its owner's record: {said}"
    );
    assert!(images(&sandbox).is_empty());
    must_be_tidy(&folder(&sandbox));
}

#[test]
fn the_table_of_images_says_what_they_are() {
    let sandbox = Sandbox::new();
    write_model(&sandbox, "F16", 1);
    done(&sandbox, &WORDS);
    let blocked = ["--layout", "int8-tile-b8-v1", "--owner", "npu server"];
    done(&sandbox, &[WORDS.as_slice(), &blocked].concat());
    std::fs::remove_file(images(&sandbox).pop().unwrap()).unwrap();
    sandbox.session("image-ls", &[&["image", "ls"]]);
}
