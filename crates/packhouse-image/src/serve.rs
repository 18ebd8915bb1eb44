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
//! - codes and scales are written and never read: they may be a device's memory, slow to read and
//!   open to others. What is hashed, compared, summed and written is private;
//! - an image that can't be written costs a later start its time, nothing else;
//! - the owner is noted before the first image of its head is written, so that somebody names it;
//! - what the owner left is removed only once an image of this head was hit or published: a write
//!   that fails leaves the owner's earlier head where it is.
//!
//! Never: an error because of a file. The only errors are the caller's own.

use crate::counters::{Counters, Line};
use crate::folder::Folder;
use crate::head::{Head, HeadDigest};
use crate::header::{HEADER_BYTES, Header, file_bytes};
use crate::images::{Off, Shared};
use crate::key::{ImageKey, ImageName};
use crate::owner::Owner;
use crate::owners::{Claim, ClaimProblem, Claimant, announce, claim};
use crate::private::{Memory, Private, allocate};
use crate::read::{Loaded, hash_tile, load};
use crate::refusal::{Refusal, RefusalWhy};
use crate::room::{NoRoom, Wanted, make_room};
use crate::sample::{Sample, compare_all, sample_columns};
use crate::served::{NotWritten, Outcome, RequestRefusal, Served, TileError, Written};
use crate::settings::{Check, Mode};
use packhouse_base::digest::Fingerprint;
use packhouse_layout::int8_tile::TileGeometry;
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
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
    /// Why there is no room for the head's images; asked once.
    no_room: Option<NoRoom>,
    /// Where tiles are packed whose image will be written.
    private: Private,
    memory: Memory,
    counters: Counters,
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
    Hit { scale_sum: f64 },
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
        if shared.folder.is_ok() && head.digest == HeadDigest::NONE {
            return Err(RequestRefusal::Digest);
        }
        let mut counters = Counters::default();
        let identity = shared.folder.is_ok().then(|| {
            let (order, start_ns) = (geometry.order(), shared.clock.steady_ns());
            let is_taken = packers.has_tile_fingerprint(order);
            let fingerprint = packers.tile_fingerprint(order);
            if !is_taken {
                counters.fingerprint_ns = shared.clock.steady_ns().saturating_sub(start_ns);
            }
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
            no_room: None,
            private: Private::default(),
            memory: allocate,
            counters,
        })
    }

    /// Fills one tile. Codes and scales are written and never read, as they may be a device's. `k`
    /// is the packed depth that the caller's kernel takes. A column is asked for by its vocabulary
    /// row, into a target that is `k` long and zero.
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
            Found::Hit { scale_sum } => {
                self.counters.tiles_hit += 1;
                self.note_owner(&mut claimed);
                (Outcome::Hit, scale_sum)
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

    /// Gives back the memory that tiles are packed in whose images are written: a tile's codes and
    /// scales. It is kept from tile to tile, until this or the end of the serve; the next tile that
    /// is written takes it again.
    pub fn release_memory(&mut self) {
        self.private = Private::default();
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
            seed: self.shared.seed,
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
        let shared = self.shared.clone();
        let check = shared.settings.check;
        let sampled = match check {
            Check::Sample => sample_columns(columns.end - columns.start, shared.seed, tile),
            Check::Full => Vec::new(),
        };
        let sample = Sample::new(&self.geometry, sampled);
        // What every byte of is compared is kept, as the target can't be asked.
        let mut kept = match check {
            Check::Sample => Vec::new(),
            Check::Full => vec![0; target.codes.len()],
        };
        let start_ns = self.now_ns();
        let read = match check {
            Check::Sample => self.read(folder, tile, &sample, target.codes),
            Check::Full => self.read(folder, tile, &sample, &mut kept),
        };
        self.counters.read_ns += self.now_ns().saturating_sub(start_ns);
        let why = match read {
            Ok(None) => return Ok(Found::Absent),
            Err(why) => why,
            Ok(Some(loaded)) => {
                let start_ns = self.now_ns();
                let why = match check {
                    Check::Sample => self.compare(columns, gather, &sample, &loaded),
                    Check::Full => self.compare_all(columns, gather, &kept, &loaded),
                };
                self.counters.sample_ns += self.now_ns().saturating_sub(start_ns);
                let Some(why) = why? else {
                    if check == Check::Full {
                        target.codes.copy_from_slice(&kept);
                    }
                    target.scales.copy_from_slice(loaded.scales());
                    let scales = loaded.scales().iter();
                    let scale_sum = scales.map(|scale| f64::from(*scale)).sum();
                    return Ok(Found::Hit { scale_sum });
                };
                why
            }
        };
        *self.counters.refused.entry(why.code()).or_default() += 1;
        let file = folder.images().path();
        let file = file.join(self.image_name(tile).to_string());
        Ok(Found::Refused(Refusal { file, why }))
    }

    /// Reads a tile's image, its codes into `codes`, judged by everything that is not the weights.
    /// `None`: there is no file.
    fn read(
        &mut self,
        folder: &Folder,
        tile: u64,
        sample: &Sample,
        codes: &mut [i8],
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
        let scale_count = self.geometry.nd();
        let loaded = load(
            file,
            HEADER_BYTES as u64,
            sample,
            codes,
            scale_count,
            threads,
        );
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

    /// Compares the sampled columns with the weights held now. `None`: they agree.
    fn compare<E: Send>(
        &mut self,
        columns: Range<u64>,
        gather: &mut Gather<'_, E>,
        sample: &Sample,
        loaded: &Loaded,
    ) -> Result<Option<RefusalWhy>, E> {
        let sampled = &mut self.counters.columns_sampled;
        sample.compare(&self.packers, columns.start, gather, loaded, sampled)
    }

    /// Packs the whole tile again and compares it with what was read. `None`: it agrees.
    fn compare_all<E: Send>(
        &mut self,
        columns: Range<u64>,
        gather: &mut Gather<'_, E>,
        codes: &[i8],
        loaded: &Loaded,
    ) -> Result<Option<RefusalWhy>, E> {
        let first = columns.start;
        let (mut packed, mut scales) = (vec![0; codes.len()], vec![0.0; loaded.scales().len()]);
        let (sum, asked) = self.pack(columns, gather, &mut packed, &mut scales);
        self.counters.columns_sampled += asked;
        sum?;
        let image = (codes, loaded.scales());
        Ok(compare_all(
            &self.geometry,
            first,
            image,
            (&packed, &scales),
        ))
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
        let mut private = std::mem::take(&mut self.private);
        let scale_sum = self.pack_tile(tile, &mut gather, target, &mut private);
        let outcome = scale_sum.map(|(scale_sum, allowed)| {
            let written = allowed.and_then(|()| {
                let start_ns = self.now_ns();
                let written = self.write(tile, &private, claimed);
                self.counters.write_ns += self.now_ns().saturating_sub(start_ns);
                written
            });
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
            (Outcome::Packed { refused, written }, scale_sum)
        });
        self.private = private;
        outcome
    }

    /// Packs a tile: into private memory and from there into the target where its image may be
    /// written, else straight into the target. Answers the sum of its scales, and why no image is
    /// to be written.
    fn pack_tile<E: Send>(
        &mut self,
        tile: u64,
        gather: &mut Gather<'_, E>,
        target: &mut Target<'_>,
        private: &mut Private,
    ) -> Result<(f64, Result<(), NotWritten>), TileError<E>> {
        let start_ns = self.now_ns();
        let allowed = self.may_write().and_then(|()| {
            let taken = private.take_codes(&self.geometry, self.memory);
            taken.map_err(|bytes| NotWritten::NoMemory { bytes })
        });
        private.take_scales(&self.geometry);
        let codes = match allowed {
            Ok(()) => &mut private.codes,
            Err(_) => &mut *target.codes,
        };
        let (sum, asked) = self.pack(self.columns(tile), gather, codes, &mut private.scales);
        self.counters.columns_gathered += asked;
        if sum.is_ok() {
            if allowed.is_ok() {
                target.codes.copy_from_slice(&private.codes);
            }
            target.scales.copy_from_slice(&private.scales);
            self.counters.tiles_packed += 1;
        }
        self.counters.pack_ns += self.now_ns().saturating_sub(start_ns);
        Ok((sum.map_err(TileError::Gather)?, allowed))
    }

    /// Packs columns, and answers how many were asked for.
    fn pack<E: Send>(
        &self,
        columns: Range<u64>,
        gather: &mut Gather<'_, E>,
        codes: &mut [i8],
        scales: &mut [f32],
    ) -> (Result<f64, E>, u64) {
        let asked = AtomicU64::new(0);
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

    /// Whether a packed tile's image will be written, as far as is known.
    fn may_write(&self) -> Result<(), NotWritten> {
        if self.off().is_some() {
            return Err(NotWritten::Off);
        }
        match (self.shared.settings.mode, &self.no_room) {
            (Mode::Off, _) => Err(NotWritten::Off),
            (Mode::ReadOnly, _) => Err(NotWritten::ReadOnly),
            (Mode::ReadWrite, Some(no_room)) => Err(NotWritten::NoRoom(no_room.clone())),
            (Mode::ReadWrite, None) => Ok(()),
        }
    }

    /// Writes the image of a tile that was packed into private memory, and answers its bytes.
    fn write(
        &mut self,
        tile: u64,
        private: &Private,
        claimed: &mut Claim,
    ) -> Result<u64, NotWritten> {
        let shared = self.shared.clone();
        let (Ok(folder), Some(identity)) = (&shared.folder, self.identity) else {
            return Err(NotWritten::Off);
        };
        let (fs, clock, settings) = (&*shared.fs, &*shared.clock, &shared.settings);
        let image_bytes = file_bytes(&self.geometry);
        let wanted = Wanted {
            set_bytes: image_bytes.saturating_mul(self.tile_count()),
            image_bytes,
        };
        let room = make_room(folder, clock, settings, &identity.key, wanted);
        claimed.removed.extend(room.removed);
        if let Some(refused) = room.refused {
            self.no_room = Some(refused.clone());
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
        let (codes, scales) = (&private.codes, &private.scales);
        let header = Header::new(
            self.geometry,
            self.head.clone(),
            identity.fingerprint,
            tile,
            self.owner.id(),
            hash_tile(codes, scales, settings.threads),
        );
        let header = header.expect("because the request was judged").encode();
        let name = self.image_name(tile);
        folder
            .publish(fs, &name, &header, codes, scales)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::Dtype;
    use crate::images::Images;
    use crate::served::NotWrittenCode;
    use crate::settings::Settings;
    use packhouse_base::Blame;
    use packhouse_layout::int8_tile::{TileOrder, TileSizes};
    use packhouse_sim::{SimClock, SimFs};
    use std::num::NonZeroUsize;
    use std::path::Path;

    /// Of two tiles of 64 by 8, whose image would be written.
    fn begun() -> (SimFs, Serve) {
        let clock = Arc::new(SimClock::new());
        let sim = SimFs::new(3, clock.clone());
        let settings = Settings {
            min_free_bytes: 0,
            ..Settings::new()
        };
        let root = Some(Path::new("/images"));
        let images = Images::open(Arc::new(sim.clone()), clock, root, settings);
        let dtype = Dtype::new("F32").expect("because it is printable");
        let head = Head {
            vocabulary: 12,
            width: 64,
            tied: false,
            dtype,
            digest: HeadDigest::of(12, 64, false, &dtype, &[b"made up"], NonZeroUsize::MIN),
        };
        let sizes = TileSizes {
            kd: 64,
            nd: 8,
            kpad: 64,
            t: 8,
        };
        let geometry = TileGeometry::new(TileOrder::RowMajor, sizes);
        let geometry = geometry.expect("because the sizes fit");
        let owner = Owner::new("a test").expect("because it is short");
        let serve = images.serve(Arc::new(Packers::detect()), head, geometry, owner);
        (sim, serve.expect("because the head fits"))
    }

    fn tile(serve: &mut Serve, tile: u64) -> (Outcome, Vec<i8>, Vec<f32>) {
        let (mut codes, mut scales) = (vec![-128; 64 * 8], vec![f32::NAN; 8]);
        let fill = |column: u64, target: &mut [f32]| {
            target.fill(1.0 + column as f32);
            Ok::<(), ()>(())
        };
        let gather = Gather::Parallel(&fill);
        let served = serve.tile(tile, 64, gather, &mut codes, &mut scales);
        let served = served.expect("because no column fails");
        (served.outcome, codes, scales)
    }

    #[test]
    fn without_private_memory_a_tile_is_packed_and_no_image_is_written() {
        let (sim, mut serve) = begun();
        serve.memory = |_| None;
        let (outcome, codes, scales) = tile(&mut serve, 0);
        let Outcome::Packed {
            refused: None,
            written: Written::No(why),
        } = outcome
        else {
            panic!("{outcome:?}");
        };
        let text = "there is no memory of 512 bytes to pack it in";
        assert_eq!(
            (why.to_string(), why.code(), why.blame()),
            (text.to_owned(), NotWrittenCode::NoMemory, Blame::Host)
        );
        let files = sim.files("/images/v1");
        assert!(!files.iter().any(|path| path.extension().is_some()));
        assert!(serve.line().contains("; not written: 1 no_memory; "));
        serve.memory = allocate;
        let (outcome, later_codes, later_scales) = tile(&mut serve, 0);
        assert!(matches!(
            outcome,
            Outcome::Packed {
                written: Written::Yes { .. },
                ..
            }
        ));
        assert_eq!((codes, scales), (later_codes, later_scales));
    }

    #[test]
    fn private_memory_is_taken_once_and_given_back() {
        let (_sim, mut serve) = begun();
        tile(&mut serve, 0);
        assert_eq!(serve.private.codes.len(), 64 * 8);
        serve.memory = |_| None;
        tile(&mut serve, 1);
        assert_eq!(serve.counters().tiles_written, 2);
        serve.release_memory();
        assert_eq!(serve.private.codes.capacity(), 0);
        assert_eq!(serve.private.scales.capacity(), 0);
        assert_eq!(tile(&mut serve, 1).0, Outcome::Hit);
    }
}
