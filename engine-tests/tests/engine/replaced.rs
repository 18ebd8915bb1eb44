//! A model file that became another one under its name is served as what it is now.

use super::{serve, stock_answer};
use engine_tests::server::Completion;
use engine_tests::{Model, Sandbox, store_files};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

/// Changes 8 MiB of weights in place, a low bit of each byte: finite numbers stay finite.
fn edit(model: &Path) {
    let file = File::options()
        .read(true)
        .write(true)
        .open(model)
        .expect("the copy is writable");
    let at = store_files::length(model) / 2;
    let mut bytes = vec![0; 8 << 20];
    file.read_exact_at(&mut bytes, at)
        .expect("the model is larger");
    for byte in &mut bytes {
        *byte ^= 1;
    }
    file.write_all_at(&bytes, at).expect("the copy is writable");
}

/// Serves a model twice, so that packs, receipts and ledger exist, lets `change` happen, and
/// expects the answers of what the file is now.
fn serves_what_it_is(change: impl FnOnce(&Sandbox, &Path)) {
    let sandbox = Sandbox::new();
    let model: PathBuf = sandbox.copy_of(&Model::SmolLm2.path());
    let before: Completion = stock_answer(&sandbox, &model, &[]);
    super::copy_filled_store(&sandbox);
    // The copy is another file, whose ledger is made at its first start.
    serve(&sandbox, &model, &[]);
    serve(&sandbox, &model, &[]).load.assert_hit();

    change(&sandbox, &model);
    let after = stock_answer(&sandbox, &model, &[]);
    assert_ne!(
        before, after,
        "the change must be visible, or nothing is tested"
    );
    let served = serve(&sandbox, &model, &[]);
    assert_eq!(served.answer, after);
    assert!(
        served.load.packed.tensors > 0,
        "changed tensors have no pack: {:?}",
        served.load
    );

    let again = serve(&sandbox, &model, &[]);
    assert_eq!(again.answer, after);
    again.load.assert_hit();
}

#[test]
fn a_model_edited_in_place_is_packed_again() {
    serves_what_it_is(|_, model| edit(model));
}

#[test]
fn a_model_edited_in_place_with_its_time_restored_is_packed_again() {
    serves_what_it_is(|_, model| store_files::keeping_times(model, || edit(model)));
}

#[test]
fn a_model_replaced_by_rename_is_packed_again() {
    serves_what_it_is(|sandbox, model| {
        let other = sandbox.path().join("other.gguf");
        fs::copy(model, &other).expect("the sandbox has room");
        edit(&other);
        fs::rename(&other, model).expect("the sandbox is writable");
    });
}

#[test]
fn a_downloaded_again_model_hits_by_content() {
    let sandbox = Sandbox::new();
    let model = sandbox.copy_of(&Model::SmolLm2.path());
    super::copy_filled_store(&sandbox);
    serve(&sandbox, &model, &[]);
    serve(&sandbox, &model, &[]).load.assert_hit();
    let before = store_files::bytes(&sandbox.store().join("v1/objects"));
    fs::remove_file(&model).expect("the sandbox is writable");
    let again = sandbox.path().join("downloaded.gguf");
    fs::copy(Model::SmolLm2.path(), &again).expect("the sandbox has room");
    // Its ledger is new, so the bytes are hashed; the packs are the same.
    serve(&sandbox, &again, &[]);
    serve(&sandbox, &again, &[]).load.assert_hit();
    assert_eq!(
        store_files::bytes(&sandbox.store().join("v1/objects")),
        before
    );
}
