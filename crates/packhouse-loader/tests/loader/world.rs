//! A temporary folder with a store, GGUF files mapped as an engine maps them, and loads over them.

use crate::fake::{FakeEngine, Packer, StillClock};
use packhouse_base::ggml_type::GgmlType;
use packhouse_container::gguf::{Draft, DraftTensor, Entry};
use packhouse_container::{FileSource, Tensor, TensorDirectory, Value as Meta};
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::{Geometry, ggml_cpu_repack};
use packhouse_loader::{Level, Load, Loader, Request, Served, Settings, Trust};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::clock::Clock;
use packhouse_sys::map::{Region, Reservation};
use packhouse_sys::real::RealFs;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use serde_json::Value;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Name, type and dims of a tensor.
pub(crate) type Spec = (&'static str, &'static str, &'static [u64]);

/// Four tensors that are packed, two of them alike, with others between. 11424 bytes, 14 units.
pub(crate) const SMALL: &[Spec] = &[
    ("token_embd.weight", "Q4_0", &[64, 40]),
    ("blk.0.norm.weight", "F32", &[64]),
    ("blk.0.ffn_up.weight", "Q8_0", &[64, 48]),
    ("blk.0.ffn_exps.weight", "Q4_K", &[256, 8, 3]),
    ("blk.1.norm.weight", "F32", &[64]),
    ("blk.1.ffn_up.weight", "Q8_0", &[64, 48]),
];

/// One tensor of 1000 units and 2.2 MiB: packed in parallel, sampled in 8 of its units.
pub(crate) const WIDE: &[Spec] = &[
    ("output_norm.weight", "F32", &[64]),
    ("output.weight", "Q4_0", &[256, 16_000]),
];

/// A folder with a store, its state and models.
pub(crate) struct World {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) clock: Arc<StillClock>,
    pub(crate) settings: Settings,
}

/// A GGUF file, open and mapped.
pub(crate) struct Model {
    pub(crate) path: PathBuf,
    pub(crate) file: File,
    pub(crate) tensors: Vec<Tensor>,
    map: Map,
}

/// A mapping of a whole file.
pub(crate) struct Map {
    start: *mut u8,
    bytes: usize,
}

/// A loader over a fake engine.
pub(crate) struct Session {
    pub(crate) loader: Loader,
    pub(crate) engine: Arc<FakeEngine>,
}

/// A load that is going on.
pub(crate) struct Run<'a> {
    pub(crate) load: Load,
    pub(crate) number: u64,
    pub(crate) regions: Vec<Arc<Region>>,
    session: &'a Session,
}

/// What came of a load.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) report: Value,
    /// The line of the load.
    pub(crate) line: String,
    /// All lines until the fill ended, in order.
    pub(crate) lines: Vec<(Level, String)>,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("because a temporary folder is there");
        Self::at(dir)
    }

    fn at(dir: tempfile::TempDir) -> Self {
        let settings = Settings {
            root: Some(dir.path().join("store")),
            state: Some(dir.path().join("state")),
            read_only: false,
            trust: Trust::Receipt,
            bytes_max: Some(1 << 30),
            stage: Some(dir.path().join("stage")),
        };
        Self {
            dir,
            clock: StillClock::new(),
            settings,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.path("store")
    }

    /// Writes and maps a model.
    pub(crate) fn model(&self, name: &str, specs: &[Spec], seed: u64) -> Model {
        self.shard(name, specs, seed, &[])
    }

    /// Writes and maps a file with metadata.
    pub(crate) fn shard(&self, name: &str, specs: &[Spec], seed: u64, meta: &[Entry]) -> Model {
        let path = self.path(name);
        write_model(&path, specs, seed, meta);
        Model::open(&path)
    }

    /// A loader of a new process, as far as the loader can tell.
    pub(crate) fn session(&self, packer: Packer) -> Session {
        self.session_with(packer, self.settings.clone())
    }

    pub(crate) fn session_with(&self, packer: Packer, settings: Settings) -> Session {
        let engine = FakeEngine::new(packer);
        let clock: Arc<dyn Clock> = self.clock.clone();
        Session {
            loader: Loader::with_clock(engine.clone(), settings, clock),
            engine,
        }
    }

    /// Loads models by a new session, and waits for the fill.
    pub(crate) fn load(&self, packer: Packer, models: &[&Model]) -> Outcome {
        self.session(packer).load(0, models)
    }

    /// Loads until everything is stored, and asserts that a further load maps all.
    pub(crate) fn fill(&self, packer: Packer, models: &[&Model]) {
        self.load(packer, models).assert_fill("done");
        self.load(packer, models).assert_all_mapped(models);
    }

    pub(crate) fn store(&self) -> Store {
        let config = StoreConfig::new(self.root(), self.path("state"));
        Store::open(Arc::new(RealFs), self.clock.clone(), config).expect("because it is sound")
    }
}

/// Writes a GGUF file with random weights.
pub(crate) fn write_model(path: &Path, specs: &[Spec], seed: u64, meta: &[Entry]) {
    let tensors = specs.iter().map(|(name, ty, dims)| DraftTensor {
        name: (*name).to_owned(),
        ggml_type: GgmlType::from_name(ty).expect("because specs name types"),
        dims: dims.to_vec(),
    });
    let draft = Draft {
        metadata: meta.to_vec(),
        tensors: tensors.collect(),
    };
    let file = File::create(path).expect("because the folder is writable");
    let mut writer = draft.begin(&file).expect("because specs are sound");
    let mut stream = SplitMix64::new(seed);
    for tensor in &draft.tensors {
        let bytes = tensor
            .ggml_type
            .tensor_bytes(&tensor.dims)
            .expect("because it is sound");
        let mut bytes = vec![0; usize::try_from(bytes).expect("because tests are small")];
        stream.fill(&mut bytes);
        writer.put(&bytes).expect("because the disk has room");
    }
    writer.finish().expect("because all bytes were given");
}

/// The metadata of one shard.
pub(crate) fn split(no: u16, count: u16, tensors: i32) -> Vec<Entry> {
    let entry = |key: &str, value| Entry {
        key: key.to_owned(),
        value,
    };
    vec![
        entry("split.no", Meta::U16(no)),
        entry("split.count", Meta::U16(count)),
        entry("split.tensors.count", Meta::I32(tensors)),
    ]
}

impl Model {
    /// Opens and maps a file read-only and shared, as engines do.
    pub(crate) fn open(path: &Path) -> Self {
        Self::open_as(path, ProtFlags::READ, MapFlags::SHARED)
    }

    pub(crate) fn open_as(path: &Path, protection: ProtFlags, flags: MapFlags) -> Self {
        let file = File::open(path).expect("because it was written");
        let source = FileSource::new(&file).expect("because it is a file");
        let directory = TensorDirectory::parse(&source).expect("because it is a GGUF");
        let packed = directory.tensors().iter();
        let packed = packed.filter(|t| ggml_cpu_repack::admit(t.ggml_type, &t.dims).is_ok());
        Self {
            path: path.to_owned(),
            tensors: packed.cloned().collect(),
            map: Map::new(&file, protection, flags),
            file,
        }
    }

    pub(crate) fn geometry(&self, index: usize) -> Geometry {
        let tensor = &self.tensors[index];
        ggml_cpu_repack::admit(tensor.ggml_type, &tensor.dims).expect("because it was admitted")
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.bytes).sum()
    }

    /// Where a tensor's bytes lie in memory.
    pub(crate) fn source(&self, index: usize) -> &[u8] {
        let tensor = &self.tensors[index];
        let narrow = |value: u64| usize::try_from(value).expect("because tests are small");
        let (offset, bytes) = (narrow(tensor.offset), narrow(tensor.bytes));
        assert!(offset + bytes <= self.map.bytes, "the file was cut");
        // SAFETY: the range lies in the mapping, which lives as long as `self`. Tests that edit the
        // file do so while nothing compares the bytes.
        unsafe { std::slice::from_raw_parts(self.map.start.wrapping_add(offset), bytes) }
    }

    /// A tensor's bytes, read from the file and not through the mapping.
    pub(crate) fn read(&self, index: usize) -> Vec<u8> {
        let tensor = &self.tensors[index];
        let mut bytes = vec![0; usize::try_from(tensor.bytes).expect("because it is small")];
        let read = self.file.read_exact_at(&mut bytes, tensor.offset);
        read.expect("because the file is that long");
        bytes
    }

    /// Makes every page of the mapping unreadable but those that hold the given ranges of a tensor.
    pub(crate) fn guard(&self, index: usize, ranges: &[(u64, u64)]) {
        self.map.protect(0, self.map.bytes, MprotectFlags::empty());
        for (start, bytes) in ranges {
            let start = self.tensors[index].offset + start;
            let page = packhouse_sys::map::page_bytes();
            let first = usize::try_from(start).expect("because it is small") / page * page;
            let end = usize::try_from(start + bytes).expect("because it is small");
            let end = end
                .next_multiple_of(page)
                .min(self.map.bytes.next_multiple_of(page));
            self.map.protect(first, end - first, MprotectFlags::READ);
        }
    }

    /// Changes one byte of the mapping, which must be a writable one.
    pub(crate) fn poke(&self, index: usize, at: usize) {
        let address = self.source(index).as_ptr().cast_mut().wrapping_add(at);
        // SAFETY: the address lies in the mapping, which the caller made writable, and no slice of
        // it is in use.
        unsafe { *address ^= 0xff };
    }

    /// Takes the right to write from the mapping; a private one keeps what was written.
    pub(crate) fn seal(&self) {
        self.map.protect(0, self.map.bytes, MprotectFlags::READ);
    }

    /// Maps another file of the same length where this one is mapped.
    pub(crate) fn cover_with(&self, other: &Self) {
        assert_eq!(self.map.bytes, other.map.bytes);
        let (start, bytes) = (self.map.start.cast(), self.map.bytes);
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is this model's own mapping, of which no slice is in use.
        unsafe { rustix::mm::mmap(start, bytes, ProtFlags::READ, flags, &other.file, 0) }
            .expect("because the file can be mapped");
    }

    /// Edits the file in place, and waits until its ctime shows it.
    pub(crate) fn edit(&self, edit: impl Fn(&File)) {
        edit_file(&self.path, edit);
    }

    /// Flips one byte of a tensor in the file.
    pub(crate) fn flip(&self, index: usize, at: u64) {
        let offset = self.tensors[index].offset + at;
        let mut byte = [0];
        self.file
            .read_exact_at(&mut byte, offset)
            .expect("because it is inside");
        self.edit(|file| {
            file.write_all_at(&[byte[0] ^ 0xff], offset)
                .expect("because it is writable");
        });
    }
}

// SAFETY: the pointer is an address range that this value owns; `Model` hands out shared slices of
// it.
unsafe impl Send for Map {}
// SAFETY: as for Send; only `poke` writes, on a mapping that one thread has.
unsafe impl Sync for Map {}

impl Map {
    fn new(file: &File, protection: ProtFlags, flags: MapFlags) -> Self {
        let bytes = file.metadata().expect("because it is open").len();
        let bytes = usize::try_from(bytes).expect("because tests are small");
        // SAFETY: a fresh mapping at an address of the kernel's choice touches nothing else.
        let start =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, protection, flags, file, 0) };
        let start = start.expect("because the file can be mapped").cast();
        Self { start, bytes }
    }

    fn protect(&self, offset: usize, bytes: usize, flags: MprotectFlags) {
        let start = self.start.wrapping_add(offset).cast();
        // SAFETY: the range lies in this mapping, page by page; who reads it now finds out.
        unsafe { rustix::mm::mprotect(start, bytes, flags) }.expect("because it is mapped");
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and slices of it borrow the model that owns it.
        unsafe { rustix::mm::munmap(self.start.cast(), self.bytes) }.expect("because it is mapped");
    }
}

/// Edits a file in place, again until its ctime shows it: file clocks are coarse.
pub(crate) fn edit_file(path: &Path, edit: impl Fn(&File)) {
    use std::os::unix::fs::MetadataExt as _;
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .expect("because it is there");
    let ctime = || {
        let metadata = file.metadata().expect("because it is open");
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let before = ctime();
    until("the ctime shows the edit", || {
        edit(&file);
        ctime() != before
    });
}

/// Gives a file the times it had before.
pub(crate) fn restore_mtime(file: &File, before: std::time::SystemTime) {
    file.set_modified(before).expect("because the file is ours");
}

/// Waits for a condition with a deadline.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Session {
    /// Begins the load of this number with all its tensors announced.
    pub(crate) fn begin(&self, number: u64, models: &[&Model]) -> Run<'_> {
        let load = self.loader.begin();
        for _ in models.iter().flat_map(|model| &model.tensors) {
            load.expect();
        }
        Run {
            load,
            number,
            regions: Vec::new(),
            session: self,
        }
    }

    /// Loads models, asserts the regions' bytes, and waits for the fill.
    pub(crate) fn load(&self, number: u64, models: &[&Model]) -> Outcome {
        let mut run = self.begin(number, models);
        run.serve_all(models);
        let outcome = run.outcome();
        run.load.close();
        outcome
    }
}

impl Run<'_> {
    pub(crate) fn serve_all(&mut self, models: &[&Model]) {
        for model in models {
            for index in 0..model.tensors.len() {
                self.serve(model, index);
            }
        }
    }

    /// Serves one tensor and asserts that its region holds what the packer makes of the file's
    /// bytes.
    pub(crate) fn serve(&mut self, model: &Model, index: usize) {
        self.serve_from(model, index, model.source(index));
        self.assert_right(model, index, &model.read(index));
    }

    /// Serves one tensor from bytes anywhere.
    pub(crate) fn serve_from(&mut self, model: &Model, index: usize, source: &[u8]) {
        let served = self.offer(model, index, source);
        assert_eq!(served, Served::Filled, "{}", model.tensors[index].name);
    }

    /// Offers one tensor, which the loader may leave to the engine.
    pub(crate) fn offer(&mut self, model: &Model, index: usize, source: &[u8]) -> Served {
        let tensor = &model.tensors[index];
        let reservation = Reservation::new(source.len()).expect("because space is there");
        let region = Region::new(Arc::new(reservation), 0, source.len());
        let region = Arc::new(region.expect("because it fits"));
        self.regions.push(region.clone());
        self.load.serve(Request {
            name: &tensor.name,
            ty: tensor.ggml_type,
            dims: &tensor.dims,
            geometry: model.geometry(index),
            source,
            region: &region,
        })
    }

    /// Asserts that the last region holds the pack of these bytes.
    pub(crate) fn assert_right(&self, model: &Model, index: usize, source: &[u8]) {
        let ty = model.tensors[index].ggml_type;
        let expected = self
            .session
            .engine
            .expected(ty, &model.geometry(index), source);
        let region = self.regions.last().expect("because a tensor was served");
        let held = region.read().expect("because the region is backed");
        if *held != expected[..] {
            let at = held.iter().zip(&expected).position(|(a, b)| a != b);
            panic!("{}: wrong bytes from {at:?} on", model.tensors[index].name);
        }
    }

    /// Waits for the end of the fill.
    pub(crate) fn outcome(&self) -> Outcome {
        let report = self.session.engine.last_report(self.number);
        let lines = self.session.engine.heard().lines;
        let of_load = lines
            .iter()
            .filter(|(_, line)| line.contains(" tensors mapped"));
        let number = usize::try_from(self.number).expect("because it is small");
        let line = of_load.map(|(_, line)| line.clone()).nth(number);
        Outcome {
            report,
            line: line.expect("because each load says its line"),
            lines,
        }
    }
}

impl Outcome {
    /// Tensors mapped, copied, packed and refused.
    pub(crate) fn counts(&self) -> [u64; 4] {
        let tally = &self.report["tally"];
        let of = |key: &str| {
            tally[key]["tensors"]
                .as_u64()
                .expect("because it is counted")
        };
        let refused = tally["refused"].as_object().expect("because it is counted");
        let refused = refused
            .values()
            .filter_map(|count| count["tensors"].as_u64());
        [of("mapped"), of("copied"), of("packed"), refused.sum()]
    }

    /// Tensors counted under a key of one of the tally's maps; 0 when the key is not there.
    pub(crate) fn reason(&self, map: &str, key: &str) -> u64 {
        self.report["tally"][map][key]["tensors"]
            .as_u64()
            .unwrap_or(0)
    }

    pub(crate) fn number(&self, key: &str) -> u64 {
        self.report["tally"][key]
            .as_u64()
            .expect("because it is counted")
    }

    #[track_caller]
    pub(crate) fn assert_fill(&self, state: &str) {
        assert_eq!(self.report["fill"]["state"], state, "{:#?}", self);
    }

    /// Asserts that all tensors were mapped, none refused, and the fill had nothing to do.
    #[track_caller]
    pub(crate) fn assert_all_mapped(&self, models: &[&Model]) {
        let tensors: usize = models.iter().map(|model| model.tensors.len()).sum();
        assert_eq!(self.counts(), [tensors as u64, 0, 0, 0], "{:#?}", self);
        self.assert_fill("done");
    }

    /// The lines that are warnings or errors.
    pub(crate) fn warnings(&self) -> Vec<&str> {
        let worse = self.lines.iter().filter(|(level, _)| *level <= Level::Warn);
        worse.map(|(_, line)| line.as_str()).collect()
    }
}
