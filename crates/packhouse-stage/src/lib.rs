//! Stages: verified copies of sets in RAM, searched before the store.
//!
//! - `root` opens the folder of stages and judges it; `name` is how its entries are called;
//! - `receipts` is the pure value that a stage's copies are believed by;
//! - `staged` reads: one stage, or all of them; `validate` says what is wrong with one, tensor by
//!   tensor;
//! - `stage` copies a set and publishes the copy; `copy` and `room` are its parts;
//! - `condemn` takes out of service what a hash found wrong;
//! - `collect` removes stages;
//! - `models` keeps copies of whole model files beside them, in a folder of its own.
//!
//! Invariants:
//! - a stage is visible when it is whole: one rename of its folder is the last step;
//! - every copied byte was hashed as it was written, and the digest is the object's name;
//! - a copy is handed out only for a descriptor whose stat identity is the receipt's, or after a
//!   hash;
//! - nothing in a published stage is ever edited, but that receipts which a hash refuted get
//!   another name: a stage that fails is replaced by a new generation.
//!
//! Never: writes to the store, but for moving a damaged object to quarantine; follows a symlink;
//! believes a folder that others can reach. Format: `docs/format/stage.md`.

#![forbid(unsafe_code)]

mod collect;
mod condemn;
mod copy;
pub mod models;
mod name;
mod receipts;
mod room;
mod root;
mod settle;
mod stage;
mod staged;
mod turn;
mod validate;

pub use collect::{
    Collected, StageListing, UnstageError, Unstaged, collect, list, list_sets, strangers,
    unfinished, unstage,
};
pub use condemn::Condemned;
pub use copy::CopyError;
pub use receipts::{CopyReceipt, ReceiptsError, STAGE_SCHEMA, StageReceipts};
pub use room::{Bound, RoomError, StageRoom};
pub use root::{StageRoot, StageRootError, default_root};
pub use stage::{
    MIN_FREE_BYTES, StageError, StageEvent, StageOptions, StageOutcome, StageProblem, Staged,
    Watcher, stage,
};
pub use staged::{StageMiss, StagedRefusal, StagedSet, find, open};
pub use validate::{Depth, StageValidation, StagedTensor, validate};
