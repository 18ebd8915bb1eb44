//! Evidence bags: folders of BagIt 1.0 (RFC 8493) that are written piece by piece, closed by one
//! rename, read whole, and sealed by a statement that may be signed.
//!
//! Specified in `docs/format/bag.md`.
//!
//! - `open`: `OpenBag`, the one writer; `write_new`: analyses and seals beside a bag;
//! - `contents`: `Contents`, a folder's files in memory, read once; `faults`: what a bag can be
//!   found guilty of; `judge`: `check` and `closed`;
//! - `seal`: the statement; `dsse`: its signature; `key`: Ed25519 keys.
//!
//! Invariants:
//! - one content has one encoding, so equal evidence has an equal digest;
//! - a bag is closed or it is not: no crash makes a third thing;
//! - what is judged is what was read, once, into memory;
//! - modes, owners and times of files are no part of any judgement.
//!
//! Never: follows a link, replaces a closed bag or a seal, believes a list.

#![forbid(unsafe_code)]

mod base64;
pub mod contents;
pub mod dsse;
pub mod faults;
mod fields;
pub mod info;
pub mod judge;
pub mod key;
mod lists;
pub mod open;
mod paths;
pub mod seal;
pub mod write_new;

pub use contents::{Contents, ReadError};
pub use faults::{BagFault, Bound, FormFault};
pub use info::{BagInfo, Oxum};
pub use judge::{check, closed};
pub use open::{Found, OpenBag, Resumed, WriteError, discard, look};
pub use paths::{is_name, is_path};
pub use write_new::{Outcome, WriteNewError, open_or_make_dir, write_new};

/// The folder of a closed bag, beside its analyses and seals.
pub const BAG_DIR: &str = "bag";
/// The folder of a bag that is being written.
pub const OPEN_DIR: &str = "bag.open";
/// The folder of payload files within a bag.
pub const DATA_DIR: &str = "data";
/// The file that says what a bag is.
pub const DECLARATION_FILE: &str = "bagit.txt";
/// The file that says whose evidence a bag is.
pub const INFO_FILE: &str = "bag-info.txt";
/// The list of payload files.
pub const MANIFEST_FILE: &str = "manifest-sha256.txt";
/// The list of the three other files beside the payload. Its SHA-256 is the bag's digest.
pub const TAG_MANIFEST_FILE: &str = "tagmanifest-sha256.txt";

/// What `bagit.txt` holds.
pub(crate) const DECLARATION: &[u8] = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";
