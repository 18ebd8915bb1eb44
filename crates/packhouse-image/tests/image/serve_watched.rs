//! A file system that a test watches and disturbs: files that change or fail while they are read,
//! and what is opened at all.

use crate::serve_world::{
    PACKERS, ROOT, Start, Weights, buffers, geometries, geometry_of, image_path, new_disk, owner,
    settings, start, start_as, weights,
};
use packhouse_image::{Images, Mode, RefusalCode, Settings};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder};
use packhouse_pack::int8_tile::Gather;
use packhouse_sim::SimFs;
use packhouse_sys::fs::{
    Dir, DirAccess, DirBackend, File, FileBackend, Fs, FsError, FsErrorKind, LockKind,
};
use packhouse_sys::stat::{FsStat, Stat, StatIdentity};
use std::any::Any;
use std::ffi::{OsStr, OsString};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// What a test does before a read of an image at this offset; an error takes the read's place.
type OnRead = Box<dyn FnMut(u64) -> Result<(), FsErrorKind> + Send>;

/// What a test does at a use of the disk, which this word names.
type OnUse = Box<dyn FnMut(&str) + Send>;

/// The simulated disk, with someone who sees each use of it.
#[derive(Clone)]
pub(crate) struct Watched {
    sim: SimFs,
    on_read: Arc<Mutex<OnRead>>,
    on_use: Arc<Mutex<OnUse>>,
    uses: Arc<Mutex<Vec<String>>>,
}

struct WatchedDir {
    dir: Dir,
    watched: Watched,
}

struct WatchedFile {
    file: File,
    watched: Watched,
}

impl Watched {
    fn new(sim: &SimFs, on_read: OnRead) -> Self {
        Self {
            sim: sim.clone(),
            on_read: Arc::new(Mutex::new(on_read)),
            on_use: Arc::new(Mutex::new(Box::new(|_| {}))),
            uses: Arc::default(),
        }
    }

    /// Does something before the disk is asked for its room, a file is made, or one is measured.
    pub(crate) fn on_use(sim: &SimFs, on_use: OnUse) -> Self {
        let watched = undisturbed(sim);
        *watched
            .on_use
            .lock()
            .expect("because no test panics with it") = on_use;
        watched
    }

    fn tell(&self, word: &str) {
        let mut on_use = self.on_use.lock().expect("because no test panics with it");
        (*on_use)(word);
    }

    pub(crate) fn images(&self, settings: Settings) -> Images {
        let fs = Arc::new(self.clone());
        Images::open(fs, self.sim.clock(), Some(Path::new(ROOT)), settings)
    }

    fn start(&self, weights: &Weights, geometry: &TileGeometry) -> Start {
        start_as(&self.images(settings()), weights.head(), weights, geometry)
    }

    fn note(&self, word: &str, name: &Path) {
        let mut uses = self.uses.lock().expect("because no test panics with it");
        uses.push(format!("{word} {}", name.display()));
    }

    fn take_uses(&self) -> Vec<String> {
        std::mem::take(&mut *self.uses.lock().expect("because no test panics with it"))
    }

    fn dir(&self, dir: Result<Dir, FsError>) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        let dir = dir.map_err(|error| error.kind)?;
        let watched = self.clone();
        Ok(Arc::new(WatchedDir { dir, watched }))
    }

    fn file(&self, file: Result<File, FsError>) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        let file = file.map_err(|error| error.kind)?;
        let watched = self.clone();
        Ok(Box::new(WatchedFile { file, watched }))
    }
}

impl Fs for Watched {
    fn root(&self) -> Result<Dir, FsError> {
        let dir = self.sim.root()?;
        let path = PathBuf::from("/");
        let watched = self.clone();
        Ok(Dir::new(Arc::new(WatchedDir { dir, watched }), path))
    }

    fn random(&self, target: &mut [u8]) -> Result<(), FsError> {
        self.sim.random(target)
    }

    fn effective_uid(&self) -> u32 {
        self.sim.effective_uid()
    }
}

fn kind<T>(result: Result<T, FsError>) -> Result<T, FsErrorKind> {
    result.map_err(|error| error.kind)
}

impl WatchedDir {
    fn note(&self, word: &str, name: &OsStr) {
        self.watched.note(word, &self.dir.path().join(name));
    }
}

impl DirBackend for WatchedDir {
    fn open_dir(
        &self,
        name: &OsStr,
        access: DirAccess,
    ) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        self.note("open_dir", name);
        self.watched.dir(self.dir.open_dir_for(name, access))
    }

    fn reopen(&self) -> Result<Arc<dyn DirBackend>, FsErrorKind> {
        self.watched.dir(self.dir.reopen())
    }

    fn make_dir(&self, name: &OsStr, mode: u32) -> Result<(), FsErrorKind> {
        self.note("make_dir", name);
        kind(self.dir.make_dir(name, mode))
    }

    fn open_file(&self, name: &OsStr, writable: bool) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        self.note("open", name);
        self.watched.file(match writable {
            true => self.dir.open_file_writable(name),
            false => self.dir.open_file(name),
        })
    }

    fn create_new(&self, name: &OsStr, mode: u32) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        self.note("create", name);
        self.watched.tell("create");
        self.watched.file(self.dir.create_new(name, mode))
    }

    fn create_unnamed(&self, _: u32) -> Result<Box<dyn FileBackend>, FsErrorKind> {
        Err(FsErrorKind::Unsupported)
    }

    fn link(&self, _: &dyn FileBackend, _: &OsStr) -> Result<(), FsErrorKind> {
        Err(FsErrorKind::Unsupported)
    }

    fn rename_new(&self, _: &OsStr, _: &dyn DirBackend, _: &OsStr) -> Result<(), FsErrorKind> {
        Err(FsErrorKind::Unsupported)
    }

    fn rename_over(&self, source: &OsStr, target: &OsStr) -> Result<(), FsErrorKind> {
        self.note("rename", target);
        kind(self.dir.rename_over(source, target))
    }

    fn unlink(&self, name: &OsStr) -> Result<(), FsErrorKind> {
        self.note("unlink", name);
        kind(self.dir.unlink(name))
    }

    fn remove_dir(&self, name: &OsStr) -> Result<(), FsErrorKind> {
        self.note("remove_dir", name);
        kind(self.dir.remove_dir(name))
    }

    fn read_link(&self, name: &OsStr) -> Result<PathBuf, FsErrorKind> {
        kind(self.dir.read_link(name))
    }

    fn stat_entry(&self, name: &OsStr) -> Result<Stat, FsErrorKind> {
        kind(self.dir.stat_entry(name))
    }

    fn list(&self) -> Result<Vec<OsString>, FsErrorKind> {
        kind(self.dir.list())
    }

    fn stat(&self) -> Result<Stat, FsErrorKind> {
        kind(self.dir.stat())
    }

    fn fs_stat(&self) -> Result<FsStat, FsErrorKind> {
        self.watched.tell("fs_stat");
        kind(self.dir.fs_stat())
    }

    fn sync(&self) -> Result<(), FsErrorKind> {
        kind(self.dir.sync())
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

impl FileBackend for WatchedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, FsErrorKind> {
        kind(self.file.write_all_at(offset, bytes)).map(|()| bytes.len())
    }

    fn read_at(&self, offset: u64, target: &mut [u8]) -> Result<usize, FsErrorKind> {
        if self
            .file
            .path()
            .extension()
            .is_some_and(|extension| extension == "phti")
        {
            let mut on_read = self
                .watched
                .on_read
                .lock()
                .expect("because no test panics with it");
            (*on_read)(offset)?;
        }
        kind(self.file.read_full_at(offset, target))
    }

    fn write_out(&self, offset: u64, length: u64, wait: bool) -> Result<(), FsErrorKind> {
        kind(self.file.write_out(offset, length, wait))
    }

    fn sync(&self, content_only: bool) -> Result<(), FsErrorKind> {
        kind(match content_only {
            true => self.file.sync_content(),
            false => self.file.sync(),
        })
    }

    fn stat(&self) -> Result<Stat, FsErrorKind> {
        self.watched.tell("stat");
        kind(self.file.stat())
    }

    fn identity(&self) -> Result<StatIdentity, FsErrorKind> {
        kind(self.file.identity())
    }

    fn fs_stat(&self) -> Result<FsStat, FsErrorKind> {
        kind(self.file.fs_stat())
    }

    fn set_length(&self, length: u64) -> Result<(), FsErrorKind> {
        kind(self.file.set_length(length))
    }

    fn set_mode(&self, mode: u32) -> Result<(), FsErrorKind> {
        kind(self.file.set_mode(mode))
    }

    fn drop_cache(&self) -> Result<(), FsErrorKind> {
        kind(self.file.drop_cache())
    }

    fn try_lock(&self, lock: LockKind, offset: u64, length: u64) -> Result<bool, FsErrorKind> {
        kind(self.file.try_lock(lock, offset, length))
    }

    fn unlock(&self, offset: u64, length: u64) -> Result<(), FsErrorKind> {
        kind(self.file.unlock(offset, length))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// One tile of one head, with its image on the disk.
fn one_tile() -> (SimFs, Weights, TileGeometry, String) {
    let geometry = geometry_of(TileOrder::RowMajor, [1024, 2048, 64, 20]);
    let weights = Weights::new(20, 60, 6);
    let sim = new_disk();
    start(&sim, settings(), &weights, &geometry).assert_all_missed();
    let path = image_path(&weights, &geometry, 0);
    (sim, weights, geometry, path)
}

/// Starts while `on_read` disturbs: refused by this code, replaced, and hit by the next start.
fn assert_disturbed(code: RefusalCode, text: &str, disturb: fn(&SimFs, &str, u64)) {
    let (sim, weights, geometry, path) = one_tile();
    let (disk, image) = (sim.clone(), path.clone());
    let on_read = Box::new(move |offset| {
        disturb(&disk, &image, offset);
        Ok(())
    });
    let start = Watched::new(&sim, on_read).start(&weights, &geometry);
    let refusal = start.refusal(0);
    assert_eq!(refusal.code(), code, "{refusal}");
    let expected = format!("image {path} not used: {text}");
    assert!(refusal.to_string().starts_with(&expected), "{refusal}");
    start.assert_right(&weights, &geometry);
    crate::serve_world::start(&sim, settings(), &weights, &geometry).assert_all_hit();
}

/// A writer who edits the file in place, after its header was read, or between two pieces.
#[test]
fn a_file_whose_bytes_change_while_it_is_read_is_refused_by_the_hash() {
    let code = RefusalCode::PayloadHash;
    assert_disturbed(code, "the payload hashes to ", |sim, path, offset| {
        if offset == 4096 {
            sim.rot(path, |bytes| bytes[5000] = bytes[5000].wrapping_add(1));
        }
    });
    assert_disturbed(code, "the payload hashes to ", |sim, path, offset| {
        if offset == 4096 + (1 << 20) {
            sim.rot(path, |bytes| bytes[(2 << 20) + 5000] ^= 3);
        }
    });
}

#[test]
fn a_file_whose_length_changes_while_it_is_read_is_refused_with_both() {
    let code = RefusalCode::Changed;
    let text = "it had 2109440 bytes before it was read, and 2109439 afterwards";
    assert_disturbed(code, text, |sim, path, offset| {
        if offset == 4096 {
            sim.rot(path, |bytes| bytes.truncate(2_109_439));
        }
    });
    let text = "it had 2109440 bytes before it was read, and 2109441 afterwards";
    assert_disturbed(code, text, |sim, path, offset| {
        if offset == 4096 {
            sim.rot(path, |bytes| bytes.push(0));
        }
    });
}

/// A disk that can't read the header, the first piece, or a later one.
#[test]
fn a_file_that_cannot_be_read_is_refused_and_replaced() {
    for bad in [0, 4096, 4096 + (1 << 20), 4096 + (2 << 20)] {
        let (sim, weights, geometry, path) = one_tile();
        let on_read = Box::new(move |offset| match offset == bad {
            true => Err(FsErrorKind::Io),
            false => Ok(()),
        });
        let start = Watched::new(&sim, on_read).start(&weights, &geometry);
        let refusal = start.refusal(0);
        assert_eq!(refusal.code(), RefusalCode::Unreadable, "{bad}");
        let text = refusal.to_string();
        assert!(
            text.starts_with(&format!("image {path} not used: read {path}: ")),
            "{text}"
        );
        start.assert_right(&weights, &geometry);
        crate::serve_world::start(&sim, settings(), &weights, &geometry).assert_all_hit();
    }
}

fn undisturbed(sim: &SimFs) -> Watched {
    Watched::new(sim, Box::new(|_| Ok(())))
}

#[test]
fn a_refused_request_opens_no_file() {
    for geometry in geometries() {
        let sim = new_disk();
        start(&sim, settings(), &weights(), &geometry);
        let watched = undisturbed(&sim);
        let images = watched.images(settings());
        let serve = images.serve(PACKERS.clone(), weights().head(), geometry, owner());
        let mut serve = serve.expect("because the head fits");
        watched.take_uses();
        let (mut codes, mut scales) = buffers(&geometry);
        let gather = |_: u64, _: &mut [f32]| -> Result<(), ()> { panic!("nobody is asked") };
        for (tile, k) in [(0, geometry.kpad() + 1), (3, geometry.kpad())] {
            let gather = Gather::Parallel(&gather);
            assert!(
                serve
                    .tile(tile, k, gather, &mut codes, &mut scales)
                    .is_err()
            );
            let gather = Gather::Parallel(&gather_never);
            let short = &mut codes[1..];
            assert!(
                serve
                    .tile(0, geometry.kpad(), gather, short, &mut scales)
                    .is_err()
            );
        }
        assert_eq!(watched.take_uses(), Vec::<String>::new());
    }
}

fn gather_never(_: u64, _: &mut [f32]) -> Result<(), ()> {
    panic!("nobody is asked")
}

/// A hit opens its image and, once, its owner's record; read-only opens images alone.
#[test]
fn what_a_start_opens_is_what_it_needs() {
    let [geometry, _] = geometries();
    let sim = new_disk();
    start(&sim, settings(), &weights(), &geometry);
    let opened: Vec<_> = (0..3)
        .map(|tile| format!("open {}", image_path(&weights(), &geometry, tile)))
        .collect();
    for mode in [Mode::ReadWrite, Mode::ReadOnly] {
        let watched = undisturbed(&sim);
        let images = watched.images(Settings { mode, ..settings() });
        watched.take_uses();
        start_as(&images, weights().head(), &weights(), &geometry).assert_all_hit();
        let uses = watched.take_uses();
        let (records, others): (Vec<_>, Vec<_>) =
            uses.into_iter().partition(|used| used.contains("/owners/"));
        assert_eq!(others, opened);
        let expected = usize::from(mode == Mode::ReadWrite);
        assert_eq!(records.len(), expected, "{records:?}");
    }
}
