//! Proof where a layout has no inverse: the model's bytes are packed again and compared.
//!
//! Invariants:
//! - only the weights and the packer of a pack's key judge it; of any others nothing is said;
//! - equal means every byte, padding too.
//!
//! Never: writes, and never reads a tensor of a pack that an inverse proves.

use crate::model::{Model, ModelError};
use crate::prepare::Item;
use crate::proof::Wrong;
use packhouse_base::digest::{Digest, TensorDigest};
use packhouse_layout::Layout;
use packhouse_store::manifest::ManifestEntry;
use packhouse_store::object::ObjectRefusal;
use packhouse_store::root::Store;
use packhouse_store::verify::TensorProblem;

/// What packing again says of a payload.
pub(crate) enum Again {
    /// It is what the source packs to.
    Equal,
    /// It is not, or can't be read.
    Differs(TensorProblem),
    /// The model has other weights, or its packer another fingerprint.
    Other,
}

/// Tells whether a pack is of a layout that rounds.
pub(crate) fn is_rounded(store: &Store, entry: &ManifestEntry) -> bool {
    let record = store.lookup_pack(&entry.pack).ok();
    let layout = record.and_then(|record| Layout::from_id(&record.identity.layout));
    layout.is_some_and(|layout| !layout.is_invertible())
}

/// Packs what a slot's pack was made of and compares. Errors when the model can't be read.
pub(crate) fn compare(
    store: &Store,
    entry: &ManifestEntry,
    model: &Model,
    item: &Item,
) -> Result<Again, ModelError> {
    let length = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let mut source = vec![0; length(item.range.length)];
    model.files()[item.shard].read_exact_at(item.range.offset, &mut source)?;
    let identity = item.recipe.identity(TensorDigest(Digest::of(&source)));
    if identity.key() != entry.pack {
        return Ok(Again::Other);
    }
    let mut packed = vec![0; length(item.recipe.payload_bytes())];
    item.recipe.pack(&source, &mut packed);
    drop(source);
    let stored = match stored(store, entry) {
        Ok(stored) => stored,
        Err(refusal) => return Ok(Again::Differs(TensorProblem::Object(refusal))),
    };
    let wrong = if packed.len() == stored.len() {
        let differs = packed.iter().zip(&stored).position(|(a, b)| a != b);
        differs.map(|at| Wrong::Packed { at: at as u64 })
    } else {
        Some(Wrong::Length {
            expected: packed.len() as u64,
            actual: stored.len() as u64,
        })
    };
    Ok(wrong.map_or(Again::Equal, |wrong| {
        Again::Differs(TensorProblem::Unlike {
            key: entry.pack,
            why: wrong.to_string(),
        })
    }))
}

fn stored(store: &Store, entry: &ManifestEntry) -> Result<Vec<u8>, ObjectRefusal> {
    let object = store.object_for_sample(&entry.object, entry.length)?;
    let mut payload = vec![0; usize::try_from(entry.length).unwrap_or(usize::MAX)];
    let read = object.file().read_full_at(0, &mut payload);
    let filled = read.map_err(|error| ObjectRefusal::Fs {
        digest: entry.object,
        error,
    })?;
    payload.truncate(filled);
    Ok(payload)
}
