//! Damaged objects, records and folders: right tokens, a line that says so, and the next start
//! hits.

use super::{assert_converged, assert_says, filled, serve};
use engine_tests::{Model, store_files};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::{Path, PathBuf};

/// Damages a filled store, starts on it, and starts again.
fn heals(damage: impl FnOnce(&Path, &[PathBuf]), tensors: u64, words: &[&str]) {
    let (sandbox, stock) = filled();
    let model = Model::SmolLm2.path();
    damage(&sandbox.store(), &store_files::objects(&sandbox.store()));
    let served = serve(&sandbox, &model, &[]);
    assert_eq!(served.answer, stock);
    assert_eq!(served.load.packed.tensors, tensors, "{:?}", served.load);
    assert_says(&served.log, words);
    assert_converged(&sandbox, &model, &stock);
    assert_eq!(store_files::strays(&sandbox.store()), Vec::<PathBuf>::new());
}

#[test]
fn an_object_with_a_flipped_byte_is_refused_and_replaced() {
    heals(
        |_, objects| store_files::flip_byte(&objects[0]),
        1,
        &["refused"],
    );
}

#[test]
fn a_truncated_object_is_refused_and_replaced() {
    heals(
        |_, objects| store_files::truncate(&objects[0]),
        1,
        &["refused"],
    );
}

#[test]
fn swapped_objects_are_refused_and_replaced() {
    let swap = |_: &Path, objects: &[PathBuf]| store_files::swap(&objects[0], &objects[1]);
    heals(swap, 2, &["refused"]);
}

#[test]
fn a_missing_object_is_packed_again() {
    let remove = |_: &Path, objects: &[PathBuf]| {
        fs::remove_file(&objects[0]).expect("the vandal may unlink");
    };
    heals(remove, 1, &["1 packed"]);
}

#[test]
fn a_symlink_in_an_objects_place_is_refused_and_replaced() {
    let link = |store: &Path, objects: &[PathBuf]| {
        let aside = store.parent().expect("the sandbox").join("aside");
        fs::rename(&objects[0], &aside).expect("the vandal may rename");
        symlink(&aside, &objects[0]).expect("the vandal may link");
    };
    heals(link, 1, &["refused"]);
}

#[test]
fn a_group_writable_object_is_refused_and_replaced() {
    heals(
        |_, objects| store_files::chmod(&objects[0], 0o664),
        1,
        &["refused"],
    );
}

#[test]
fn a_foreign_owned_object_is_refused_and_replaced() {
    let (sandbox, stock) = filled();
    let model = Model::SmolLm2.path();
    let objects = store_files::objects(&sandbox.store());
    if chown(&objects[0], Some(12_345), None).is_err() {
        // Only root can give a file away; what anyone can do to it is covered by the other tests.
        assert_converged(&sandbox, &model, &stock);
        return;
    }
    let served = serve(&sandbox, &model, &[]);
    assert_eq!(served.answer, stock);
    assert_eq!(served.load.refused_tensors(), 1, "{:?}", served.load);
    assert_converged(&sandbox, &model, &stock);
}

#[test]
fn a_damaged_pack_record_is_refused_and_replaced() {
    let garble = |store: &Path, _: &[PathBuf]| {
        let record = store_files::packs(store).swap_remove(0);
        store_files::chmod(&record, 0o644);
        fs::write(&record, b"{\"not\":\"a pack\"}\n").expect("the vandal may write");
    };
    heals(garble, 1, &["refused"]);
}

#[test]
fn an_empty_pack_record_is_refused_and_replaced() {
    let empty = |store: &Path, _: &[PathBuf]| {
        let record = store_files::packs(store).swap_remove(0);
        store_files::chmod(&record, 0o644);
        fs::write(&record, b"").expect("the vandal may write");
    };
    heals(empty, 1, &["refused"]);
}

#[test]
fn a_touched_object_is_verified_again_and_used() {
    let (sandbox, stock) = filled();
    let model = Model::SmolLm2.path();
    let objects = store_files::objects(&sandbox.store());
    // Same bytes, other change time: the receipt no longer matches, the digest does.
    store_files::chmod(&objects[0], 0o644);
    store_files::chmod(&objects[0], 0o444);
    assert_converged(&sandbox, &model, &stock);
}

#[test]
fn a_store_whose_private_state_was_lost_is_verified_again_and_used() {
    let (sandbox, stock) = filled();
    fs::remove_dir_all(sandbox.path().join("state")).expect("the vandal may remove");
    assert_converged(&sandbox, &Model::SmolLm2.path(), &stock);
}

#[test]
fn a_group_writable_store_is_not_used_until_it_is_closed() {
    let (sandbox, stock) = filled();
    let model = Model::SmolLm2.path();
    store_files::chmod(&sandbox.store(), 0o775);
    let served = serve(&sandbox, &model, &[]);
    assert_eq!(served.answer, stock);
    assert_eq!(served.load.mapped.tensors, 0, "{:?}", served.load);
    assert_says(&served.log, &["writable", "owner", "trust"]);
    store_files::chmod(&sandbox.store(), 0o755);
    assert_converged(&sandbox, &model, &stock);
}
