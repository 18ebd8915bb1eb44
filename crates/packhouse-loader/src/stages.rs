//! The staged sets that a load maps from, searched before the store.
//!
//! Invariants: a stage root or a stage that is not used is counted and named once per load, and the
//! store serves in its place; a host that stages nothing says nothing.

use crate::hit::{Candidate, NoHit, Object};
use crate::load::Request;
use crate::settings::Trust;
use crate::tally::Tally;
use packhouse_base::digest::PackKey;
use packhouse_stage::{StageMiss, StageRoot, StageRootError, StagedSet};
use packhouse_store::root::Owners;
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Fs, FsError};
use std::path::Path;
use std::sync::Arc;

/// All stages of a root, as they were when the load began.
#[derive(Default)]
pub(crate) struct Stages {
    sets: Vec<StagedSet>,
}

impl Stages {
    /// Lists the stages of a root and opens them.
    pub(crate) fn find(
        fs: Arc<dyn Fs>,
        clock: Arc<dyn Clock>,
        path: &Path,
        tally: &mut Tally,
    ) -> Self {
        let owners = Owners::new(fs.effective_uid(), &[]);
        let root = match StageRoot::open(fs, clock, path, &owners) {
            Ok(root) => root,
            Err(error) if error.is_missing() => return Self::default(),
            Err(error) => return Self::refused(tally, reason_of_root(&error), error.to_string()),
        };
        let found = match packhouse_stage::find(&root) {
            Ok(found) => found,
            Err(error) => return Self::refused(tally, "host", words_of_fs(&error)),
        };
        let mut sets = Vec::new();
        for staged in found {
            match staged {
                Ok(staged) => sets.push(staged),
                // Removed since it was listed.
                Err(StageMiss::Absent { .. }) => {}
                Err(miss) => tally.refuse_stage(miss.reason(), miss.to_string()),
            }
        }
        Self { sets }
    }

    /// Whether no set is staged.
    pub(crate) fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// Whether some stage has the pack; its copy may be refused still.
    pub(crate) fn has(&self, key: &PackKey) -> bool {
        self.sets.iter().any(|set| set.find_pack(key).is_some())
    }

    /// Looks a pack up and proves its copy. What is refused is counted, and the next stage asked.
    pub(crate) fn look_up(
        &self,
        trust: Trust,
        key: &PackKey,
        request: &Request<'_>,
        tally: &mut Tally,
    ) -> Option<Candidate> {
        for set in &self.sets {
            let Some(entry) = set.find_pack(key) else {
                continue;
            };
            if entry.length != request.geometry.payload_bytes() {
                let (expected, actual) = (request.geometry.payload_bytes(), entry.length);
                let words = format!(
                    "{}: staged pack {key} has {actual} bytes, {expected} are wanted",
                    request.name
                );
                tally.refuse_stage("length", words);
                continue;
            }
            let object = match trust {
                Trust::Deep => set.object_hashed(entry),
                // A receipt that holds costs no hash, so there is nothing to save by samples alone.
                Trust::Receipt | Trust::Sample => set.object(entry),
            };
            match object {
                Ok(object) => {
                    return Some(Candidate {
                        digest: entry.object,
                        length: entry.length,
                        object: Object::Proven(object),
                        staged: true,
                    });
                }
                Err(refusal) => {
                    let words = format!("{}: {refusal}", request.name);
                    tally.refuse_stage(refusal.reason(), words);
                }
            }
        }
        None
    }

    fn refused(tally: &mut Tally, reason: &'static str, words: String) -> Self {
        tally.refuse_stage(reason, words);
        Self::default()
    }
}

/// Counts a staged copy that was proven and then did not serve, and says whether the region was
/// written over.
pub(crate) fn refuse_candidate(tally: &mut Tally, no_hit: NoHit) -> Option<String> {
    match no_hit {
        NoHit::Miss(reason) => {
            tally.refuse_stage(reason, String::new());
            None
        }
        NoHit::Refused(reason, words) => {
            tally.refuse_stage(reason, words);
            None
        }
        NoHit::Spoiled(reason, words) => {
            tally.refuse_stage(reason, words.clone());
            Some(words)
        }
    }
}

fn reason_of_root(error: &StageRootError) -> &'static str {
    match error {
        StageRootError::Path(_) => "root",
        StageRootError::Owner { .. } => "root_owner",
        StageRootError::Mode { .. } => "root_mode",
        StageRootError::Remote { .. } => "root_remote",
    }
}

fn words_of_fs(error: &FsError) -> String {
    format!("stage root: {error}")
}
