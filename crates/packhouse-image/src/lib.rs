//! Images of packed lm-head tiles: one self-describing file per tile, for engines that quantise
//! and tile the head on the host at every start.
//!
//! A file is used only if its header, its sizes, its length and the hash of its bytes hold **and**
//! a few columns, packed again from the weights held now by the packer that would serve, agree bit
//! for bit. The hash covers every byte (damage, truncation); the sample covers provenance (other
//! weights, another packer). Anything else is packed as ever, and the file is replaced.
//!
//! - `head`, `owner`, `key`, `header`: what an image is of, and its bytes before the payload;
//! - `refusal`: why a file that is there was not used;
//! - `settings`: how images are used; `images`: a folder of them, or why there is none;
//! - `serve`: the tiles of one head, from images or packed; `counters`: what that came to;
//! - `read`, `sample`, `tree`: its parts;
//! - `folder`, `publish`: files made visible whole or not at all; `owners`, `room`: which images
//!   stay.
//!
//! Never: prints, reads the environment, or fails a serve because of a file. Specified in
//! `docs/format/head-image.md`.

#![forbid(unsafe_code)]

mod collect;
mod counters;
mod folder;
mod head;
mod header;
mod hex;
mod images;
mod inventory;
mod items;
mod key;
mod lock;
mod owner;
mod owners;
mod publish;
mod read;
mod record;
mod refusal;
mod removed;
mod room;
mod sample;
mod serve;
mod settings;
mod stem;
mod survey;
mod sweep;
mod tree;
mod verify;

pub use collect::{CollectError, Collected, Limits, Selection, collect, remove};
pub use counters::Counters;
pub use folder::{Folder, FolderError, ImageFile};
pub use head::{Dtype, DtypeError, Head, HeadDigest};
pub use header::{
    Difference, HEADER_BYTES, HeadError, Header, HeaderError, HeaderField, PayloadHash, file_bytes,
};
pub use images::{Images, Off};
pub use inventory::{ImageListing, Inventory, OwnerListing, TempListing, inventory};
pub use key::{FORMAT_VERSION, ImageKey, ImageName, TILES_MAX};
pub use owner::{OWNER_BYTES_MAX, Owner, OwnerError, OwnerId};
pub use owners::{Claim, ClaimProblem, Claimant, announce, claim};
pub use publish::PublishError;
pub use record::{OwnerRecord, RECORD_BYTES, RecordRefusal};
pub use refusal::{Refusal, RefusalCode, RefusalWhy};
pub use removed::{Removal, Removed, Why};
pub use room::{NoRoom, Room, Wanted, make_room};
pub use serve::{
    NotWritten, NotWrittenCode, Outcome, RequestRefusal, Serve, Served, TileError, Written,
};
pub use settings::{Check, MIN_FREE_BYTES, Mode, Settings};
pub use stem::KeyStem;
pub use survey::{RecordFault, Stray};
pub use verify::{ImageFault, VerifiedImage, verify_image};
