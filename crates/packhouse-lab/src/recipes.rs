//! Fixtures made from their recipes, each once: published ones by id, drawn ones by id and seed.
//!
//! Never: takes a fixture from a disk.

use packhouse_base::digest::{Digest, Hasher};
use packhouse_fixture::{Bag, Fixture, families};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Fixtures that were made, kept for who asks again.
#[derive(Debug, Default)]
pub struct Recipes {
    made: Mutex<BTreeMap<Recipe, Option<Arc<Made>>>>,
}

/// An id, and the seed of what is drawn.
type Recipe = (String, Option<u64>);

/// A fixture and its files.
#[derive(Debug)]
pub struct Made {
    /// The fixture.
    pub fixture: Fixture,
    /// Its files.
    pub bag: Bag,
    /// Tensor to SHA-256 of its bytes.
    pub digests: BTreeMap<String, Digest>,
}

impl Recipes {
    /// The published fixture of an id; none where there is no such family.
    pub fn published(&self, id: &str) -> Option<Arc<Made>> {
        self.made(id, None)
    }

    /// The fixture of a repeat: the published one at 0, and where the family draws none; else
    /// drawn from a source: a marker's salt, or the nonce where there is none.
    pub fn repeat(&self, id: &str, repeat: u64, source: Digest) -> Option<Arc<Made>> {
        match repeat {
            0 => self.published(id),
            repeat if draws(id) => self.made(id, Some(seed(source, id, repeat))),
            _ => self.published(id),
        }
    }

    fn made(&self, id: &str, seed: Option<u64>) -> Option<Arc<Made>> {
        let key = (id.to_owned(), seed);
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = made.entry(key).or_insert_with(|| {
            let family = families::find(id)?;
            let fixture = match seed {
                None => (family.generate)(),
                Some(seed) => family.drawn?(seed),
            };
            let bag = Bag::of(&fixture);
            let digests = digests(&fixture);
            Some(Arc::new(Made {
                fixture,
                bag,
                digests,
            }))
        });
        entry.clone()
    }
}

fn digests(fixture: &Fixture) -> BTreeMap<String, Digest> {
    let tensors: Vec<&[u8]> = fixture
        .tensors
        .values()
        .map(|it| it.bytes.as_slice())
        .collect();
    let digests = Digest::of_many(&tensors);
    fixture.tensors.keys().cloned().zip(digests).collect()
}

/// Whether a family of this id makes drawn fixtures.
pub fn draws(id: &str) -> bool {
    families::find(id).is_some_and(|family| family.drawn.is_some())
}

/// The seed of a drawn fixture: nobody knows it before its source is drawn.
pub fn seed(source: Digest, fixture: &str, repeat: u64) -> u64 {
    let mut hasher = Hasher::default();
    hasher.update(source.as_bytes());
    hasher.update(fixture.as_bytes());
    hasher.update(&repeat.to_le_bytes());
    let first = hasher.finish().as_bytes().first_chunk().copied();
    u64::from_le_bytes(first.expect("because a digest has 32 bytes"))
}

/// The challenge of a leg.
pub fn challenge(nonce: Digest, leg_number: u64) -> Digest {
    let mut hasher = Hasher::default();
    hasher.update(nonce.as_bytes());
    hasher.update(&leg_number.to_le_bytes());
    hasher.finish()
}
