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
//! - `serve`: the tiles of one head, from images or packed;
//! - `served`, `counters`: what that came to;
//! - `read`, `sample`, `tree`, `private`: its parts;
//! - `folder`, `publish`: files made visible whole or not at all; `owners`, `room`: which images
//!   stay.
//!
//! An engine needs this crate alone:
//!
//! ```
//! use packhouse_image::{
//!     Dtype, GGML_VALUES, Gather, Head, HeadDigest, Images, Outcome, Owner, Packers, RealClock,
//!     RealFs, Settings, TileGeometry, TileOrder, TileSizes,
//! };
//! use std::num::NonZeroUsize;
//! use std::sync::Arc;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let root = folder.path();
//! // What the engine has: a head of 100 columns of 64 values, and a way to a column as floats.
//! let weights: Vec<f32> = (0..100 * 64).map(|i| (i % 251) as f32 - 125.0).collect();
//! let column = |column: u64, values: &mut [f32]| -> Result<(), String> {
//!     values[..64].copy_from_slice(&weights[column as usize * 64..][..64]);
//!     Ok(())
//! };
//! // What its kernels take.
//! let sizes = TileSizes { kd: 64, nd: 128, kpad: 64, t: 100 };
//! let geometry = TileGeometry::new(TileOrder::Blocked, sizes)?;
//! // Which head it is, by the bytes that are held now and what reads them.
//! let bytes: Vec<u8> = weights.iter().flat_map(|value| value.to_le_bytes()).collect();
//! let (dtype, tensors) = (Dtype::new("F32")?, [&bytes[..], GGML_VALUES]);
//! let digest = HeadDigest::of(100, 64, false, &dtype, &tensors, NonZeroUsize::MIN);
//! let head = Head { vocabulary: 100, width: 64, tied: false, dtype, digest };
//!
//! # let settings = Settings { min_free_bytes: 0, ..Settings::new() };
//! for is_first in [true, false] {
//! #   let settings = settings.clone();
//!     // At each start:
//!     let images = Images::open(Arc::new(RealFs), Arc::new(RealClock), Some(root), settings);
//!     let packers = Arc::new(Packers::detect());
//!     let owner = Owner::new("/models/one.gguf")?;
//!     let mut serve = images.serve(packers, head.clone(), geometry, owner)?;
//!     for tile in 0..serve.tile_count() {
//!         // The device's buffers.
//!         let mut codes = vec![0; geometry.code_bytes() as usize];
//!         let mut scales = vec![0.0; geometry.nd() as usize];
//!         let gather = Gather::Parallel(&column);
//!         let served = serve.tile(tile, geometry.kpad(), gather, &mut codes, &mut scales)?;
//!         assert_eq!(served.outcome != Outcome::Hit, is_first);
//!     }
//!     println!("{}", serve.line());
//! }
//! # Ok(())
//! # }
//! ```
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
mod private;
mod publish;
mod read;
mod record;
mod refusal;
mod removed;
mod room;
mod sample;
mod serve;
mod served;
mod settings;
mod stem;
mod survey;
mod sweep;
mod tree;
mod verify;

pub use collect::{CollectError, Collected, Limits, Selection, collect, remove};
pub use counters::Counters;
pub use folder::{Folder, FolderError, ImageFile};
pub use head::{Dtype, DtypeError, GGML_VALUES, Head, HeadDigest};
pub use header::{
    Difference, HEADER_BYTES, HeadError, Header, HeaderError, HeaderField, PayloadHash, file_bytes,
    fits_vocabulary,
};
pub use images::{Images, Off};
pub use inventory::{ImageListing, Inventory, OwnerListing, TempListing, inventory};
pub use key::{FORMAT_VERSION, ImageKey, ImageName, TILES_MAX};
pub use owner::{OWNER_BYTES_MAX, Owner, OwnerError, OwnerId};
pub use owners::{Claim, ClaimProblem, Claimant, announce, claim};
pub use packhouse_layout::int8_tile::{GeometryError, TileGeometry, TileOrder, TileSizes};
pub use packhouse_pack::Packers;
pub use packhouse_pack::int8_tile::Gather;
pub use packhouse_sys::clock::RealClock;
pub use packhouse_sys::real::RealFs;
pub use publish::PublishError;
pub use record::{OwnerRecord, RECORD_BYTES, RecordRefusal};
pub use refusal::{Refusal, RefusalCode, RefusalWhy};
pub use removed::{Removal, Removed, Why};
pub use room::{NoRoom, Room, Wanted, make_room};
pub use serve::Serve;
pub use served::{NotWritten, NotWrittenCode, Outcome, RequestRefusal, Served, TileError, Written};
pub use settings::{Check, MIN_FREE_BYTES, Mode, Settings};
pub use stem::KeyStem;
pub use survey::{RecordFault, Stray};
pub use verify::{ImageFault, VerifiedImage, verify_image};
