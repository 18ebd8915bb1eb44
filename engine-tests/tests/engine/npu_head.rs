//! The heads of real models as sets: what the plan packs is, tile by tile, what the images of the
//! same geometry hold.

use engine_tests::{Mode, Model, Sandbox, places};
use std::path::{Path, PathBuf};

/// Bytes of an image before its payload.
const HEADER_BYTES: usize = 4096;

const IN_TILES: &str = r#"name = "in-tiles"
version = 1
summary = "the tied head in several row-major tiles, the last of them ragged"

[[rule]]
id = "tied"
tensor = 'token_embd\.weight'
unless = 'output\.weight'
layout = "int8-tile-rm-v1"
parameters = { kd = 600, nd = 13000, kpad = 584, t = 12750 }
slot = "0"
otherwise = "refuse"
"#;

fn run(sandbox: &Sandbox, words: &[&str]) -> String {
    let (mut command, _) = sandbox.command(&places::packhouse(), Mode::Stock);
    let output = command.args(words).output();
    let output = output.expect("packhouse can be started");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// All files below a folder, by path.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be listed").path();
        if path.is_dir() {
            files.extend(self::files(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Prepares a model's head under a plan and as images, and compares the bytes.
fn must_agree(model: &Path, plan: &str, geometry: &[&str]) {
    let sandbox = Sandbox::new();
    let path = model.to_str().expect("the path is UTF-8");
    let said = run(&sandbox, &["prepare", "--plan", plan, path]);
    assert!(said.contains(" made: 1 tensors"), "{said}");
    run(&sandbox, &["verify", "--deep"]);
    let [object] = &files(&sandbox.store().join("v1/objects"))[..] else {
        panic!("one object");
    };
    let payload = std::fs::read(object).expect("the object is there");
    let images = sandbox.path().join("images");
    let root = images.to_str().expect("the path is UTF-8");
    let words = ["image", "prepare", "--min-free", "0", "--images", root];
    run(&sandbox, &[&words, geometry, &[path]].concat());
    let images = files(&images).into_iter();
    let images = images.filter(|path| path.extension().is_some_and(|end| end == "phti"));
    let mut tiles = 0;
    let mut rest = &payload[..];
    // Names differ in the number of the tile, so they are in its order.
    for image in images {
        let image = std::fs::read(image).expect("the image is there");
        let (tile, after) = rest.split_at(image.len() - HEADER_BYTES);
        assert!(tile == &image[HEADER_BYTES..], "tile {tiles}");
        (tiles, rest) = (tiles + 1, after);
    }
    assert!(tiles > 0 && rest.is_empty(), "{tiles} tiles");
}

#[test]
fn a_whole_head_is_the_image_of_one_tile() {
    for (model, kd, columns) in [
        (Model::SmolLm2, "576", "49152"),
        (Model::Gemma3, "640", "262144"),
    ] {
        let layout = ["--layout", "int8-tile-b8-v1", "--kpad", kd];
        let sizes = ["--kd", kd, "--nd", columns, "--t", columns];
        must_agree(&model.path(), "npu-head", &[&layout[..], &sizes].concat());
    }
}

#[test]
fn a_head_in_tiles_is_its_images_one_after_the_other() {
    let folder = tempfile::tempdir().expect("tests have a temporary folder");
    let plan = folder.path().join("in-tiles.toml");
    std::fs::write(&plan, IN_TILES).expect("the folder is writable");
    let plan = plan.to_str().expect("the path is UTF-8");
    let layout = ["--layout", "int8-tile-rm-v1", "--kpad", "584"];
    let sizes = ["--kd", "600", "--nd", "13000", "--t", "12750"];
    must_agree(
        &Model::SmolLm2.path(),
        plan,
        &[&layout[..], &sizes].concat(),
    );
}
