//! Bundles: one set as one tar file, to carry to another machine or to unpack as a read-only store.
//!
//! Invariants:
//! - the same set gives the same bytes: no date, owner or host is in a bundle;
//! - the first member lists all others, so that a reader knows each next header byte by byte;
//! - records come before objects: a bundle that does not hold together is refused before the
//!   first object is stored.
//!
//! Never: a link, a device, a path of the bundle's own choosing. Format: `docs/format/bundle.md`.

mod contents;
mod error;
mod export;
mod import;
mod member;
mod reader;

pub use contents::{BUNDLE_FORMAT, Contents, ContentsError};
pub use error::{BundleError, ExportError};
pub use export::{BundleDraft, Exported};
pub use import::{Imported, ObjectSink, Records, import, read, read_head};
