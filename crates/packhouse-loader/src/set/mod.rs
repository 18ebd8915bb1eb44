//! Sets for engines of any kind: open one, look a tensor's pack up under a contract, map its
//! payload, compare samples of it with live weights.
//!
//! - `open`: from options to a set, the stage first, then the store; `reader`: the open set;
//!   `entry`: one tensor of it and its payload in memory;
//! - `contract`: what an engine expects of a pack; `refusal`: each reason against using one;
//!   `code`: their stable numbers; `counters`: every one of them counted;
//! - `sample`: groups packed again; `packing`: the packers behind it, for engines to fall back on.
//!
//! Invariants:
//! - manifest and runtime index are read and proved once, when the set is opened: the set's key is
//!   the SHA-256 that roots both, and each record and payload in them;
//! - a payload is mapped only after its pack's record agreed with the contract, and its bytes were
//!   proved on the very descriptor that is mapped;
//! - one tensor's refusal leaves the others usable, unless the set was opened strict: then the
//!   first one fails the whole set, so that no engine mixes packs with what it packed itself;
//! - all methods may be called by any number of threads at once.
//!
//! Never: writes below the store's root, prints, reads the environment, or keeps global state.

mod code;
mod contract;
mod counters;
mod entry;
mod open;
mod packing;
mod reader;
mod refusal;
mod sample;

pub use code::Code;
pub use contract::{Contract, ContractMismatch};
pub use counters::{Counters, RefusalCount};
pub use entry::{Entry, Held, Mapper, Mapping};
pub use open::{OpenOptions, SetName};
pub use packing::Packing;
pub use reader::SetReader;
pub use refusal::{Refusal, SlotName};
pub use sample::{Difference, SampleChoice, SampleReport};
