//! The registry: packs that others made, bound to the model, packer, layout and kernels that they
//! are of, where they lie.
//!
//! - `look` and `survey` see what an artifact is: a file, or a folder with all that is in it;
//! - `artifact` names it by content, `links` judges its symlinks;
//! - `binding` is what it is bound to, and the key; `record` is both on disk;
//! - `folder` keeps the records; `compare` tells what is no longer as it was registered;
//! - `payload` takes one registered payload into a store, once its inverse proved it.
//!
//! Invariants:
//! - the key is made of content alone: the same artifact elsewhere has the same key;
//! - every file is hashed by descriptor, with its stat identity before and after;
//! - a record is replaced whole, and believed only under the key that its fields make.
//!
//! Never: copies, moves or changes an artifact; follows a symlink in one; opens a path that only a
//! list of entries names. Format: `docs/format/registry.md`.

mod artifact;
mod binding;
mod compare;
mod folder;
mod links;
mod look;
mod payload;
mod record;
mod survey;

pub use artifact::{Artifact, ArtifactRefusal, Entry, FileEntry, What};
pub use binding::{Binding, BindingError, REGISTRY_TAG, RegistryKey};
pub use compare::{Difference, Finding, Glance, Verification, glance, verify};
pub use folder::{Outcome, PublishError, ReadError, Registry, RegistryError};
pub use links::LinkFault;
pub use look::{ArtifactKind, Look, LookError};
pub use payload::{PayloadImport, PayloadImportError, PayloadOf, REGISTERED_PLAN, import_payload};
pub use record::{REGISTRY_SCHEMA, Record, RecordError};
pub use survey::{Seen, SeenFile, Survey};
