//! Serving the tiles of one head: from its image, or packed as ever.
//!
//! A tile's way: a request that can't be right is refused before any file is touched. Off: packed.
//! No file: a miss, packed and written. A file that is refused, for whatever reason: the reason is
//! kept, the tile is packed, and the file replaced. An intact file that agrees with the weights
//! held now: a hit, and neither gathered nor packed.
//!
//! Invariants:
//! - after a hit or a packing each byte of codes and scales was written by it, whatever a refused
//!   file put there before;
//! - an image that can't be written costs a later start its time, nothing else;
//! - the owner is noted before the first image of its head is written, so that somebody names it;
//! - what the owner left is removed only once an image of this head was hit or published: a write
//!   that fails leaves the owner's earlier head where it is.
//!
//! Never: an error because of a file. The only errors are the caller's own.

use crate::counters::{Counters, Line};
use crate::folder::Folder;
use crate::head::Head;
use crate::header::{HEADER_BYTES, HeadError, Header, file_bytes};
use crate::images::{Off, Shared};
use crate::key::{ImageKey, ImageName};
use crate::owner::Owner;
use crate::owners::{Claim, ClaimProblem, Claimant, announce, claim};
use crate::publish::PublishError;
use crate::read::{Loaded, hash_tile, load};
use crate::refusal::{Refusal, RefusalWhy};
use crate::removed::Removed;
use crate::room::{NoRoom, Wanted, make_room};
use crate::sample::{Sample, compare_all, sample_columns};
use crate::settings::{Check, Mode};
use packhouse_base::Blame;
use packhouse_base::digest::Fingerprint;
use packhouse_layout::int8_tile::TileGeometry;
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One head being served.
pub struct Serve {
    shared: Arc<Shared>,
    packers: Arc<Packers>,
    head: Head,
    geometry: TileGeometry,
    owner: Owner,
    /// Under which identity images are looked up; `None` while they are off.
    identity: Option<Identity>,
    owner_noted: bool,
    /// Announcing the owner failed; once is enough, as it may wait.
    unannounced: bool,
    counters: Counters,
}

/// What was done for one tile.
#[derive(Clone, Debug, PartialEq)]
pub struct Served {
    /// Where the tile is from.
    pub outcome: Outcome,
    /// The sum of all `nd` scales, added in f64 in the order of the columns.
    pub scale_sum: f64,
    /// Files that were removed on the way.
    pub removed: Vec<Removed>,
    /// What was in the way of noting the owner, or of removing what it left.
    pub owner_problems: Vec<ClaimProblem>,
}

/// Where a tile is from.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Its image.
    Hit,
    /// The packer.
    Packed {
        /// The file that was there and not used.
        refused: Option<Refusal>,
        /// What became of its image.
        written: Written,
    },
}

/// What became of a packed tile's image.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// It is there for the next start.
    Yes {
        /// Bytes of its file.
        bytes: u64,
    },
    /// It is not; the next start packs again.
    No(NotWritten),
}

/// Why an image was not written.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NotWritten {
    /// Images are off.
    #[error("off")]
    Off,
    /// Images are only read.
    #[error("read-only")]
    ReadOnly,
    /// Its bytes fit no bound.
    #[error(transparent)]
    NoRoom(NoRoom),
    /// It could not be written.
    #[error(transparent)]
    Publish(PublishError),
}

/// Why an image was not written, without values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NotWrittenCode {
    /// Images are off.
    Off,
    /// Images are only read.
    ReadOnly,
    /// Its bytes fit no bound.
    NoRoom,
    /// It could not be written.
    Failed,
}

/// Why a request is not served: nothing was packed, and no file was touched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestRefusal {
    /// The head has no tiles in this geometry.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// Another packed depth than the geometry's.
    #[error("k is {k}, and kpad is {kpad}")]
    Depth {
        /// The depth asked for.
        k: u64,
        /// The geometry's packed depth.
        kpad: u64,
    },
    /// A tile that the head has not.
    #[error("tile is {tile}, and the head has {count}")]
    Tile {
        /// The tile asked for.
        tile: u64,
        /// Tiles of the head.
        count: u64,
    },
    /// A buffer that is not a tile's.
    #[error("codes are {actual}, expected kd * nd, which is {expected}")]
    Codes {
        /// What the geometry takes.
        expected: u64,
        /// The buffer's length.
        actual: u64,
    },
    /// A buffer that is not a tile's.
    #[error("scales are {actual}, expected nd, which is {expected}")]
    Scales {
        /// What the geometry takes.
        expected: u64,
        /// The buffer's length.
        actual: u64,
    },
}

/// Why a tile was not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TileError<E> {
    /// The request can't be right.
    #[error(transparent)]
    Request(RequestRefusal),
    /// The caller's own error, from a column; codes and scales are of no value then.
    #[error("{0}")]
    Gather(E),
}

/// Under which identity images are looked up.
#[derive(Clone, Copy)]
struct Identity {
    key: ImageKey,
    fingerprint: Fingerprint,
}

/// The caller's buffers.
struct Target<'a> {
    codes: &'a mut [i8],
    scales: &'a mut [f32],
}

/// What looking for a tile's image came to.
enum Found {
    Hit,
    Absent,
    Refused(Refusal),
}

impl Serve {
    pub(crate) fn new(
        shared: Arc<Shared>,
        packers: Arc<Packers>,
        head: Head,
        geometry: TileGeometry,
        owner: Owner,
    ) -> Result<Self, RequestRefusal> {
        head.fits(&geometry)?;
        let identity = shared.folder.is_ok().then(|| {
            let fingerprint = packers.tile_fingerprint(geometry.order());
            Identity {
                key: ImageKey::new(&geometry, &head.digest, &fingerprint),
                fingerprint,
            }
        });
        Ok(Self {
            shared,
            packers,
            head,
            geometry,
            owner,
            identity,
            owner_noted: false,
            unannounced: false,
            counters: Counters::default(),
        })
    }

    /// Fills one tile. `k` is the packed depth that the caller's kernel takes. A column is asked
    /// for by its vocabulary row, into a target that is `k` long and zero.
    ///
    /// # Errors
    /// A request that can't be right, before anything is done; and the first error of `gather`.
    pub fn tile<E: Send>(
        &mut self,
        tile: u64,
        k: u64,
        mut gather: Gather<'_, E>,
        codes: &mut [i8],
        scales: &mut [f32],
    ) -> Result<Served, TileError<E>> {
        self.judge(tile, k, codes, scales)
            .map_err(TileError::Request)?;
        let shared = self.shared.clone();
        let mut target = Target { codes, scales };
        let found = match &shared.folder {
            Err(_) => Found::Absent,
            Ok(folder) => self
                .look_up(folder, tile, &mut gather, &mut target)
                .map_err(TileError::Gather)?,
        };
        let mut claimed = Claim::default();
        let (outcome, scale_sum) = match found {
            Found::Hit => {
                self.counters.tiles_hit += 1;
                self.note_owner(&mut claimed);
                let scales = target.scales.iter();
                (Outcome::Hit, scales.map(|scale| f64::from(*scale)).sum())
            }
            Found::Absent => self.fill(tile, None, gather, &mut target, &mut claimed)?,
            Found::Refused(refusal) => {
                let refused = Some(refusal);
                self.fill(tile, refused, gather, &mut target, &mut claimed)?
            }
        };
        self.counters.files_removed += claimed.removed.len() as u64;
        let removed_bytes = claimed.removed.iter().map(|removed| removed.bytes);
        self.counters.bytes_removed += removed_bytes.sum::<u64>();
        self.counters.owner_problems += claimed.problems.len() as u64;
        Ok(Served {
            outcome,
            scale_sum,
            removed: claimed.removed,
            owner_problems: claimed.problems,
        })
    }

    /// What was done so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Notes how long the caller hashed the head, for counters and line.
    pub fn note_head_hash_ns(&mut self, ns: u64) {
        self.counters.head_hash_ns += ns;
    }

    /// The key of this head's images; `None` while images are off.
    pub fn key(&self) -> Option<&ImageKey> {
        self.identity.as_ref().map(|identity| &identity.key)
    }

    /// Tiles of the head.
    pub fn tile_count(&self) -> u64 {
        self.geometry.tile_count(self.head.vocabulary)
    }

    /// The line that an engine prints once its head is there: on hits, misses, and with images off.
    pub fn line(&self) -> String {
        let line = Line {
            counters: &self.counters,
            off: self.off(),
            seed: self.shared.settings.seed,
            check: self.shared.settings.check,
        };
        line.to_string()
    }

    fn off(&self) -> Option<&Off> {
        self.shared.folder.as_ref().err()
    }

    fn judge(&self, tile: u64, k: u64, codes: &[i8], scales: &[f32]) -> Result<(), RequestRefusal> {
        let kpad = self.geometry.kpad();
        if k != kpad {
            return Err(RequestRefusal::Depth { k, kpad });
        }
        let count = self.tile_count();
        if tile >= count {
            return Err(RequestRefusal::Tile { tile, count });
        }
        let (expected, actual) = (self.geometry.code_bytes(), codes.len() as u64);
        if actual != expected {
            return Err(RequestRefusal::Codes { expected, actual });
        }
        let (expected, actual) = (self.geometry.nd(), scales.len() as u64);
        if actual != expected {
            return Err(RequestRefusal::Scales { expected, actual });
        }
        Ok(())
    }

    fn columns(&self, tile: u64) -> Range<u64> {
        self.geometry.tile_columns(self.head.vocabulary, tile)
    }

    fn image_name(&self, tile: u64) -> ImageName {
        let identity = self.identity.expect("because images are not off");
        ImageName::new(&identity.key, tile).expect("because a head has no more tiles than names")
    }

    fn now_ns(&self) -> u64 {
        self.shared.clock.steady_ns()
    }

    /// Looks for a tile's image, and compares it with the weights held now.
    fn look_up<E: Send>(
        &mut self,
        folder: &Folder,
        tile: u64,
        gather: &mut Gather<'_, E>,
        target: &mut Target<'_>,
    ) -> Result<Found, E> {
        let columns = self.columns(tile);
        let settings = &self.shared.settings;
        let sampled = match settings.check {
            Check::Sample => sample_columns(columns.end - columns.start, settings.seed, tile),
            Check::Full => Vec::new(),
        };
        let sample = Sample::new(&self.geometry, sampled);
        let start_ns = self.now_ns();
        let read = self.read(folder, tile, &sample, target);
        self.counters.read_ns += self.now_ns().saturating_sub(start_ns);
        let why = match read {
            Ok(None) => return Ok(Found::Absent),
            Err(why) => Some(why),
            Ok(Some(loaded)) => {
                let start_ns = self.now_ns();
                let why = self.compare(columns, gather, &sample, &loaded, target);
                self.counters.sample_ns += self.now_ns().saturating_sub(start_ns);
                why?
            }
        };
        let Some(why) = why else {
            return Ok(Found::Hit);
        };
        *self.counters.refused.entry(why.code()).or_default() += 1;
        let file = folder.images().path();
        let file = file.join(self.image_name(tile).to_string());
        Ok(Found::Refused(Refusal { file, why }))
    }

    /// Reads a tile's image into the target, judged by everything that is not the weights. `None`:
    /// there is no file.
    fn read(
        &mut self,
        folder: &Folder,
        tile: u64,
        sample: &Sample,
        target: &mut Target<'_>,
    ) -> Result<Option<Loaded>, RefusalWhy> {
        let opened = folder.open_image(&self.image_name(tile));
        let Some(image) = opened.map_err(|refusal| refusal.why)? else {
            return Ok(None);
        };
        let (file, actual) = (&image.file, image.stat.size);
        let expected = file_bytes(&self.geometry);
        let mut header = [0; HEADER_BYTES];
        let filled = file.read_full_at(0, &mut header);
        let filled = filled.map_err(RefusalWhy::Unreadable)?;
        self.counters.bytes_read += filled as u64;
        if filled < HEADER_BYTES {
            return Err(RefusalWhy::Length { expected, actual });
        }
        let header = Header::parse(&header).map_err(RefusalWhy::Header)?;
        let fingerprint = self
            .identity
            .expect("because images are not off")
            .fingerprint;
        if let Some(difference) = header.difference(&self.geometry, &self.head, &fingerprint, tile)
        {
            return Err(RefusalWhy::Differs(difference));
        }
        if actual != expected {
            return Err(RefusalWhy::Length { expected, actual });
        }
        let threads = self.shared.settings.threads;
        let (codes, scales) = (&mut *target.codes, &mut *target.scales);
        let loaded = load(file, HEADER_BYTES as u64, sample, codes, scales, threads);
        let after = file.stat().map_err(RefusalWhy::Unreadable)?.size;
        if after != actual {
            let before = actual;
            return Err(RefusalWhy::Changed { before, after });
        }
        let loaded = loaded.map_err(RefusalWhy::Unreadable)?;
        self.counters.bytes_read += header.payload_bytes();
        if loaded.hash() != header.payload_hash() {
            return Err(RefusalWhy::PayloadHash {
                expected: *header.payload_hash(),
                actual: *loaded.hash(),
            });
        }
        Ok(Some(loaded))
    }

    /// Compares what was read with the weights held now. `None`: it agrees.
    fn compare<E: Send>(
        &mut self,
        columns: Range<u64>,
        gather: &mut Gather<'_, E>,
        sample: &Sample,
        loaded: &Loaded,
        target: &Target<'_>,
    ) -> Result<Option<RefusalWhy>, E> {
        let first = columns.start;
        let sampled = &mut self.counters.columns_sampled;
        match self.shared.settings.check {
            Check::Sample => sample.compare(&self.packers, first, gather, loaded, sampled),
            Check::Full => {
                let mut codes = vec![0; target.codes.len()];
                let mut scales = vec![0.0; target.scales.len()];
                let mut packed = Target {
                    codes: &mut codes,
                    scales: &mut scales,
                };
                let (sum, asked) = self.pack(columns, gather, &mut packed);
                self.counters.columns_sampled += asked;
                sum?;
                let image = (&*target.codes, &*target.scales);
                Ok(compare_all(&self.geometry, first, image, (&codes, &scales)))
            }
        }
    }

    /// Packs a tile and writes its image, in the place of a refused one if there was one.
    fn fill<E: Send>(
        &mut self,
        tile: u64,
        refused: Option<Refusal>,
        mut gather: Gather<'_, E>,
        target: &mut Target<'_>,
        claimed: &mut Claim,
    ) -> Result<(Outcome, f64), TileError<E>> {
        let start_ns = self.now_ns();
        let (sum, asked) = self.pack(self.columns(tile), &mut gather, target);
        self.counters.columns_gathered += asked;
        self.counters.pack_ns += self.now_ns().saturating_sub(start_ns);
        let scale_sum = sum.map_err(TileError::Gather)?;
        self.counters.tiles_packed += 1;
        let start_ns = self.now_ns();
        let written = self.write(tile, target, claimed);
        self.counters.write_ns += self.now_ns().saturating_sub(start_ns);
        let written = match written {
            Ok(bytes) => {
                self.counters.tiles_written += 1;
                self.counters.bytes_written += bytes;
                self.note_owner(claimed);
                Written::Yes { bytes }
            }
            Err(why) => {
                *self.counters.not_written.entry(why.code()).or_default() += 1;
                Written::No(why)
            }
        };
        Ok((Outcome::Packed { refused, written }, scale_sum))
    }

    /// Packs columns, and answers how many were asked for.
    fn pack<E: Send>(
        &self,
        columns: Range<u64>,
        gather: &mut Gather<'_, E>,
        target: &mut Target<'_>,
    ) -> (Result<f64, E>, u64) {
        let asked = AtomicU64::new(0);
        let (codes, scales) = (&mut *target.codes, &mut *target.scales);
        let threads = self.shared.settings.threads;
        let pack = |gather: Gather<'_, E>| {
            self.packers
                .pack_tile(&self.geometry, columns, gather, codes, scales, threads)
        };
        let sum = match gather {
            Gather::Serial(fill) => pack(Gather::Serial(&mut |column, values: &mut [f32]| {
                asked.fetch_add(1, Ordering::Relaxed);
                fill(column, values)
            })),
            Gather::Parallel(fill) => pack(Gather::Parallel(&|column, values: &mut [f32]| {
                asked.fetch_add(1, Ordering::Relaxed);
                fill(column, values)
            })),
        };
        (sum, asked.into_inner())
    }

    /// Writes a packed tile's image and answers its bytes.
    fn write(
        &mut self,
        tile: u64,
        target: &Target<'_>,
        claimed: &mut Claim,
    ) -> Result<u64, NotWritten> {
        let shared = self.shared.clone();
        let (Ok(folder), Some(identity)) = (&shared.folder, self.identity) else {
            return Err(NotWritten::Off);
        };
        match shared.settings.mode {
            Mode::Off => return Err(NotWritten::Off),
            Mode::ReadOnly => return Err(NotWritten::ReadOnly),
            Mode::ReadWrite => {}
        }
        let (fs, clock, settings) = (&*shared.fs, &*shared.clock, &shared.settings);
        let image_bytes = file_bytes(&self.geometry);
        let wanted = Wanted {
            set_bytes: image_bytes.saturating_mul(self.tile_count()),
            image_bytes,
        };
        let room = make_room(folder, clock, settings, &identity.key, wanted);
        claimed.removed.extend(room.removed);
        if let Some(refused) = room.refused {
            return Err(NotWritten::NoRoom(refused));
        }
        let failures = room.failures.into_iter().map(ClaimProblem::Fs);
        claimed.problems.extend(failures);
        // At each tile: another process of this owner may have moved to another head meanwhile.
        if !self.unannounced {
            let announced = announce(folder, fs, clock, self.claimant(&identity.key));
            self.unannounced = !announced.problems.is_empty();
            claimed.removed.extend(announced.removed);
            claimed.problems.extend(announced.problems);
        }
        let header = Header::new(
            self.geometry,
            self.head.clone(),
            identity.fingerprint,
            tile,
            self.owner.id(),
            hash_tile(target.codes, target.scales, settings.threads),
        );
        let header = header.expect("because the request was judged").encode();
        let name = self.image_name(tile);
        folder
            .publish(fs, &name, &header, target.codes, target.scales)
            .map_err(NotWritten::Publish)
    }

    fn claimant<'a>(&'a self, key: &'a ImageKey) -> Claimant<'a> {
        Claimant {
            owner: &self.owner,
            geometry: &self.geometry,
            key,
            vocabulary: self.head.vocabulary,
        }
    }

    /// Notes once which head the owner serves, and removes what it left.
    fn note_owner(&mut self, claimed: &mut Claim) {
        let (Ok(folder), Some(identity)) = (&self.shared.folder, &self.identity) else {
            return;
        };
        if self.owner_noted || self.shared.settings.mode != Mode::ReadWrite {
            return;
        }
        self.owner_noted = true;
        let start_ns = self.now_ns();
        let claimant = self.claimant(&identity.key);
        let claim = claim(folder, &*self.shared.fs, &*self.shared.clock, claimant);
        claimed.removed.extend(claim.removed);
        claimed.problems.extend(claim.problems);
        self.counters.write_ns += self.now_ns().saturating_sub(start_ns);
    }
}

impl NotWritten {
    /// The reason without its values.
    pub fn code(&self) -> NotWrittenCode {
        match self {
            Self::Off => NotWrittenCode::Off,
            Self::ReadOnly => NotWrittenCode::ReadOnly,
            Self::NoRoom(_) => NotWrittenCode::NoRoom,
            Self::Publish(_) => NotWrittenCode::Failed,
        }
    }

    /// Says whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Off | Self::ReadOnly => Blame::Caller,
            Self::NoRoom(error) => error.blame(),
            Self::Publish(error) => error.blame(),
        }
    }
}

impl NotWrittenCode {
    /// The code's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::ReadOnly => "read_only",
            Self::NoRoom => "no_room",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for NotWrittenCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl RequestRefusal {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Head(error) => error.blame(),
            Self::Depth { .. } | Self::Tile { .. } | Self::Codes { .. } | Self::Scales { .. } => {
                Blame::Caller
            }
        }
    }
}

impl<E> TileError<E> {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Request(refusal) => refusal.blame(),
            Self::Gather(_) => Blame::Caller,
        }
    }
}
