//! A sandbox with a model and a folder of images, and what the judge packs of the model's head.

use crate::model;
use crate::sandbox::Sandbox;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::dequant;
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes, pack_tile};
use serde_json::Value;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Values of a row in these models: a block of every type.
pub(crate) const WIDTH: u64 = 256;
/// Rows of a head: two full tiles of `T`, and a ragged one.
pub(crate) const ROWS: u64 = 250;
/// Columns in a tile.
pub(crate) const T: u64 = 100;
/// Bytes of an image in the geometry of `WORDS`: header, codes, scales.
pub(crate) const IMAGE_BYTES: u64 = 4096 + 320 * 128 + 4 * 128;

/// A prepare of `model.gguf` with room below and beside the head's values.
pub(crate) const WORDS: [&str; 11] = [
    "image",
    "prepare",
    "model.gguf",
    "--kd",
    "320",
    "--nd",
    "128",
    "--t",
    "100",
    "--min-free",
    "0",
];

/// The bytes of a head's tensor of this type, the first of its model.
pub(crate) fn head_bytes(ty: &str, seed: u64) -> Vec<u8> {
    let ty = GgmlType::from_name(ty).expect("because tests name known types");
    let bytes = ty.tensor_bytes(&[WIDTH, ROWS]);
    let bytes = usize::try_from(bytes.expect("because it is a block wide")).unwrap();
    model::seeded(ty, bytes, seed)
}

/// Writes `model.gguf` with an untied head of this type.
pub(crate) fn write_model(sandbox: &Sandbox, ty: &str, seed: u64) {
    let tensors: [(&str, &str, &[u64]); 2] = [
        ("output.weight", ty, &[WIDTH, ROWS]),
        ("token_embd.weight", "F32", &[WIDTH, 3]),
    ];
    model::write_seeded(&sandbox.path("model.gguf"), &tensors, seed);
}

/// Payloads of all tiles, codes and then scales, as the judge packs them of the tensor's bytes.
pub(crate) fn judged(ty: &str, bytes: &[u8], order: TileOrder, sizes: TileSizes) -> Vec<Vec<u8>> {
    let ty = GgmlType::from_name(ty).expect("because tests name known types");
    let geometry = TileGeometry::new(order, sizes).expect("because the sizes fit");
    let depth = usize::try_from(sizes.kpad).unwrap();
    let width = usize::try_from(WIDTH).unwrap();
    let row_bytes = bytes.len() / usize::try_from(ROWS).unwrap();
    let tiles = 0..geometry.tile_count(ROWS);
    let payload = |tile| {
        let mut values = Vec::new();
        for row in geometry.tile_columns(ROWS, tile) {
            let row = usize::try_from(row).unwrap();
            let mut column = vec![0.0; depth];
            dequant::dequantise(
                ty,
                &bytes[row * row_bytes..][..row_bytes],
                &mut column[..width],
            )
            .expect("because the type has values");
            values.extend(column);
        }
        let mut codes = vec![9; usize::try_from(geometry.code_bytes()).unwrap()];
        let mut scales = vec![9.0; usize::try_from(geometry.nd()).unwrap()];
        pack_tile(&geometry, &values, &mut codes, &mut scales);
        let codes = codes.iter().map(|code| code.cast_unsigned());
        let scales = scales.iter().flat_map(|scale| scale.to_le_bytes());
        codes.chain(scales).collect()
    };
    tiles.map(payload).collect()
}

/// Exit code and both streams.
pub(crate) fn run(command: &mut Command) -> (i32, String, String) {
    let output = command.output().expect("because it can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.code().expect("because nothing kills it"),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// The document of a command that succeeds.
pub(crate) fn done(sandbox: &Sandbox, words: &[&str]) -> Value {
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    let (exit, said, errors) = run(&mut sandbox.command(&words));
    assert_eq!(exit, 0, "{words:?}: {errors}");
    serde_json::from_str(&said).expect("because --json says one document")
}

/// What a command that fails says, which must begin and end so.
pub(crate) fn fails(sandbox: &Sandbox, words: &[&str], exit: i32) -> String {
    let (actual, said, errors) = run(&mut sandbox.command(words));
    assert_eq!(actual, exit, "{words:?}: {said}{errors}");
    errors
}

/// The folder of images when nobody says another.
pub(crate) fn folder(sandbox: &Sandbox) -> PathBuf {
    sandbox.path("home/.cache/packhouse/images")
}

/// The images, by key and tile.
pub(crate) fn images(sandbox: &Sandbox) -> Vec<PathBuf> {
    let names = names(&folder(sandbox).join("v1"));
    let names = names.into_iter();
    names
        .filter(|path| path.extension().is_some_and(|end| end == "phti"))
        .collect()
}

/// Fails on a temporary file.
pub(crate) fn must_be_tidy(folder: &Path) {
    for folder in [folder.join("v1"), folder.join("v1/owners")] {
        for path in names(&folder) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            assert!(!name.ends_with(".tmp"), "{name} is left over");
        }
    }
}

/// Sorted entries of a folder, none where there is none.
pub(crate) fn names(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Changes a file that its mode protects.
pub(crate) fn edit(path: &Path, edit: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    edit(&mut bytes);
    chmod(path, 0o600);
    std::fs::write(path, bytes).unwrap();
    chmod(path, 0o400);
}

pub(crate) fn chmod(path: &Path, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).unwrap();
}
