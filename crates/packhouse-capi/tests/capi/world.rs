//! A store with one set of tensors in every layout that matters here, made through the store's own
//! interface, and the C programs that open it.

use packhouse_base::digest::{Digest, Fingerprint, ObjectDigest, TensorDigest};
use packhouse_base::identity::PackIdentity;
use packhouse_layout::golden::SplitMix64;
use packhouse_loader::set::{Contract, Packing};
use packhouse_stage::{StageOptions, StageRoot, Watcher};
use packhouse_store::container_record::{Admission, ContainerFile, ContainerRecord};
use packhouse_store::manifest::{ManifestEntry, SetManifest};
use packhouse_store::publish::PublishOptions;
use packhouse_store::record::{PackRecord, SampleGeometry};
use packhouse_store::root::{Store, StoreConfig};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::memory::MemoryRoom;
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroUsize;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

/// A folder with a store, its state and the source tensors.
pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) store: Store,
    pub(crate) manifest: SetManifest,
}

/// One tensor of the set.
pub(crate) struct Spec {
    pub(crate) slot: u64,
    pub(crate) name: &'static str,
    pub(crate) layout: &'static str,
    pub(crate) version: u64,
    pub(crate) type_id: u32,
    pub(crate) dims: &'static [u64],
}

const fn spec(
    slot: u64,
    name: &'static str,
    (layout, version): (&'static str, u64),
    type_id: u32,
    dims: &'static [u64],
) -> Spec {
    Spec {
        slot,
        name,
        layout,
        version,
        type_id,
        dims,
    }
}

pub(crate) const XE2: (&str, u64) = ("q4_0-xe2-dpas-v2", 2);
pub(crate) const JOINT_N: (&str, u64) = ("q4_0-joint-n-v1", 1);
pub(crate) const IDENTITY: (&str, u64) = ("identity-v1", 1);
pub(crate) const REPACK: (&str, u64) = ("ggml-cpu-repack", 1);
pub(crate) const FUTURE: (&str, u64) = ("future-layout", 7);

/// The set: `twice` fills two slots; `repack` is of a type that no packer of ours makes; `future`
/// has a layout that nobody knows; `stranger` was packed by another packer.
pub(crate) const SPECS: [Spec; 8] = [
    spec(0, "gate", XE2, 2, &[256, 128]),
    spec(1, "joint", JOINT_N, 2, &[64, 24]),
    spec(4, "plain", IDENTITY, 0, &[32, 40]),
    spec(5, "twice", IDENTITY, 1, &[64, 4]),
    spec(6, "twice", IDENTITY, 1, &[64, 4]),
    spec(9, "repack", REPACK, 8, &[64, 32]),
    spec(12, "future", FUTURE, 24, &[2, 2, 2, 2, 2, 2, 2, 2, 2]),
    spec(13, "stranger", IDENTITY, 0, &[16, 4]),
];

impl World {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new()
            .prefix("capi-")
            .tempdir_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("because the build folder is writable");
        let store = open(folder.path());
        let mut entries = Vec::new();
        for spec in &SPECS {
            let source = source_of(spec);
            std::fs::write(folder.path().join(spec.name), &source).expect("because it is ours");
            entries.push(publish(&store, spec, &source));
        }
        let manifest = publish_set(&store, "test-plan", entries);
        Self {
            folder,
            store,
            manifest,
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn key(&self) -> String {
        self.manifest.key().to_string()
    }

    /// The manifest's entry of a slot.
    pub(crate) fn entry(&self, slot: u64) -> &ManifestEntry {
        let entries = self.manifest.entries().iter();
        let found = entries.into_iter().find(|entry| entry.slot == slot);
        found.expect("because the slot is filled")
    }

    /// The file of a slot's object.
    pub(crate) fn object(&self, slot: u64) -> PathBuf {
        object_path(&self.path("store"), &self.entry(slot).object)
    }

    /// The file of a slot's pack record.
    pub(crate) fn pack(&self, slot: u64) -> PathBuf {
        let key = self.entry(slot).pack.to_string();
        self.path("store/v1/packs").join(&key[..2]).join(key)
    }

    /// A file of the set.
    pub(crate) fn set_file(&self, name: &str) -> PathBuf {
        self.path("store/v1/sets").join(self.key()).join(name)
    }

    /// Runs the probe on this store's set, with trust and flags, and returns its lines.
    pub(crate) fn probe(&self, (trust, flags): (u32, u32), words: &[&str]) -> Vec<String> {
        self.probe_set(&self.key(), (trust, flags), words)
    }

    /// The same with another text for the set.
    pub(crate) fn probe_set(
        &self,
        set: &str,
        (trust, flags): (u32, u32),
        words: &[&str],
    ) -> Vec<String> {
        let stage = self.path("stage");
        let stage = if stage.exists() { stage } else { "-".into() };
        let places = [self.path("store"), self.path("state"), stage];
        probe_at(&places, set, (trust, flags), words)
    }

    /// The words of the probe that set the contract of a slot's tensor, parameters left out.
    pub(crate) fn contract(&self, slot: u64) -> Vec<String> {
        let spec = SPECS.iter().find(|spec| spec.slot == slot);
        let spec = spec.expect("because the slot is filled");
        let dims: Vec<String> = spec.dims.iter().map(u64::to_string).collect();
        let fingerprint = if spec.layout == REPACK.0 {
            strange_fingerprint().to_string()
        } else {
            "-".to_owned()
        };
        vec![
            "contract".to_owned(),
            spec.layout.to_owned(),
            spec.version.to_string(),
            spec.type_id.to_string(),
            dims.join(","),
            "-".to_owned(),
            "-".to_owned(),
            fingerprint,
        ]
    }
}

/// Words for the probe: some owned ones, then others.
pub(crate) fn words<'a>(parts: &[&'a [String]], last: &'a [&'a str]) -> Vec<&'a str> {
    let first = parts
        .iter()
        .flat_map(|part| part.iter().map(String::as_str));
    first.chain(last.iter().copied()).collect()
}

/// Runs the probe at a store, a state folder and a stage.
pub(crate) fn probe_at(
    places: &[PathBuf; 3],
    set: &str,
    (trust, flags): (u32, u32),
    words: &[&str],
) -> Vec<String> {
    let mut command = Command::new(program("probe", &["probe.c", "misuse.c"]));
    command.args(places).arg(set);
    command
        .args([trust.to_string(), flags.to_string()])
        .args(words);
    let output = run(&mut command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {said}");
    let lines = String::from_utf8(output.stdout).expect("because the probe prints UTF-8");
    lines.lines().map(str::to_owned).collect()
}

pub(crate) fn object_path(store: &Path, object: &ObjectDigest) -> PathBuf {
    let name = object.to_string();
    store.join("v1/objects").join(&name[..2]).join(name)
}

pub(crate) fn open(folder: &Path) -> Store {
    open_at(folder, Arc::new(RealClock))
}

/// Opens the store with another clock.
pub(crate) fn open_at(folder: &Path, clock: Arc<dyn Clock>) -> Store {
    let mut config = StoreConfig::new(folder.join("store"), folder.join("state"));
    config.min_free_bytes = 0;
    Store::open(Arc::new(RealFs), clock, config).expect("because the folder is this user's")
}

/// A tensor's bytes: random, with scales of Q4_0 blocks that are finite numbers.
pub(crate) fn source_of(spec: &Spec) -> Vec<u8> {
    let ty = packhouse_base::ggml_type::GgmlType::from_id(spec.type_id)
        .expect("because the table has current types");
    let bytes = ty
        .tensor_bytes(spec.dims)
        .expect("because the dims are whole blocks");
    let mut source = vec![0; usize::try_from(bytes).expect("because tests are small")];
    SplitMix64::new(u64::from(spec.name.as_bytes()[0]) << 8).fill(&mut source);
    if spec.type_id == 2 {
        for (index, block) in source.chunks_exact_mut(18).enumerate() {
            let half = 0x2c00 + u16::try_from(index % 997).expect("because it is below 997");
            block[..2].copy_from_slice(&half.to_le_bytes());
        }
    }
    source
}

/// The fingerprint of a packer that is not here.
pub(crate) fn strange_fingerprint() -> Fingerprint {
    Fingerprint(Digest::of(b"a packer that is not here"))
}

fn publish(store: &Store, spec: &Spec, source: &[u8]) -> ManifestEntry {
    publish_with(store, spec, source, None)
}

/// Publishes a pack with other parameters than the layout's defaults.
pub(crate) fn publish_with(
    store: &Store,
    spec: &Spec,
    source: &[u8],
    parameters: Option<BTreeMap<String, u64>>,
) -> ManifestEntry {
    let contract = Contract {
        layout: spec.layout.to_owned(),
        layout_version: spec.version,
        type_id: spec.type_id,
        dims: spec.dims.to_vec(),
        parameters,
        source: None,
        fingerprint: None,
    };
    let (identity, payload, sample) = match Packing::of_contract(&contract) {
        Ok(packing) => {
            let admitted = packing.admitted();
            let length = usize::try_from(admitted.payload_bytes()).expect("because it is small");
            let mut payload = vec![0; length];
            let packed = packing.pack(source, &mut payload, NonZeroUsize::MIN);
            packed.expect("because the contract leaves the source open");
            let geometry = admitted.geometry();
            let fingerprint = match spec.name {
                "stranger" => strange_fingerprint(),
                _ => packing.fingerprint().expect("because it packs"),
            };
            let source = TensorDigest(Digest::of(source));
            let sample = SampleGeometry {
                unit_rows: geometry.unit_rows,
                row_bytes: geometry.row_bytes,
                row_count: geometry.row_count,
            };
            (admitted.identity(fingerprint, source), payload, sample)
        }
        Err(_) => by_engine(spec, source),
    };
    let object = publish_object(store, &payload);
    let record = PackRecord {
        identity,
        object,
        length: payload.len() as u64,
        sample,
    };
    publish_record(store, spec.slot, spec.name, &record)
}

/// A pack as an engine's own packer makes it; what it makes means nothing here.
fn by_engine(spec: &Spec, source: &[u8]) -> (PackIdentity, Vec<u8>, SampleGeometry) {
    let parameters: BTreeMap<String, u64> = match spec.layout == REPACK.0 {
        true => [("unit_rows".to_owned(), 16)].into(),
        false => [("alpha".to_owned(), 3), ("beta".to_owned(), 4)].into(),
    };
    let identity = PackIdentity {
        layout: spec.layout.to_owned(),
        layout_version: spec.version,
        parameters,
        fingerprint: strange_fingerprint(),
        type_id: spec.type_id,
        dims: spec.dims.to_vec(),
        source: TensorDigest(Digest::of(source)),
    };
    let sample = SampleGeometry {
        unit_rows: 1,
        row_bytes: source.len() as u64,
        row_count: 1,
    };
    (identity, source.iter().rev().copied().collect(), sample)
}

pub(crate) fn publish_object(store: &Store, payload: &[u8]) -> ObjectDigest {
    let room = store
        .reserve(payload.len() as u64, 0)
        .expect("because there is room");
    let object = store.publish(&room, payload, PublishOptions::default(), &|| false);
    object.expect("because nothing is in the way").digest()
}

pub(crate) fn publish_record(
    store: &Store,
    slot: u64,
    tensor: &str,
    record: &PackRecord,
) -> ManifestEntry {
    store
        .publish_pack(record)
        .expect("because its object is there");
    ManifestEntry {
        slot,
        tensor: tensor.to_owned(),
        pack: record.key(),
        object: record.object,
        length: record.length,
    }
}

pub(crate) fn publish_set(store: &Store, plan: &str, entries: Vec<ManifestEntry>) -> SetManifest {
    let manifest = SetManifest::new(plan.to_owned(), Digest::of(plan.as_bytes()), entries)
        .expect("because the slots differ");
    let file = ContainerFile {
        name: "model.gguf".to_owned(),
        size: 10,
        digest: None,
    };
    let container = ContainerRecord::new(vec![file], Admission::Skipped);
    let container = container.expect("because the file is plain");
    store
        .publish_set(&manifest, &container)
        .expect("because its packs are there");
    manifest
}

/// Changes a file that was published, in place, and leaves its mode as it was.
pub(crate) fn edit(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).expect("because it is there");
    change(&mut bytes);
    let mode = std::fs::metadata(path)
        .expect("because it is there")
        .permissions();
    set_mode(path, 0o600);
    std::fs::write(path, bytes).expect("because it is writable now");
    std::fs::set_permissions(path, mode).expect("because it is ours");
}

pub(crate) fn set_mode(path: &Path, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("because it is ours");
}

/// A clock ten seconds later, when what was written now is old enough for a receipt.
pub(crate) struct Later;

impl Clock for Later {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns() + 10_000_000_000
    }

    fn steady_ns(&self) -> u64 {
        RealClock.steady_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        panic!("nothing is young, and {duration_ns} ns were waited for");
    }
}

/// Stages the set of a world under its folder `stage`.
pub(crate) fn stage(world: &World) -> PathBuf {
    let path = world.path("stage");
    std::fs::create_dir(&path).expect("because the folder is ours");
    set_mode(&path, 0o700);
    let clock: Arc<dyn Clock> = Arc::new(Later);
    let root = StageRoot::open(Arc::new(RealFs), clock, &path, world.store.owners());
    let options = StageOptions {
        min_free_bytes: 0,
        threads: NonZeroUsize::MIN,
        wait_ns: 0,
        memory: MemoryRoom::default,
    };
    let watcher = Watcher {
        tell: &|_| {},
        cancel: &|| false,
    };
    let root = root.expect("because it is this user's alone");
    let key = world.manifest.key();
    let store = open_at(world.folder.path(), Arc::new(Later));
    packhouse_stage::stage(&store, &root, key, &options, watcher)
        .expect("because there is room")
        .path
}

/// Runs a C program to its end, with what a sanitizer needs.
pub(crate) fn run(command: &mut Command) -> Output {
    let output = command
        .env("LD_LIBRARY_PATH", named_library_folder())
        .stdin(Stdio::null())
        .output();
    output.expect("because it was compiled")
}

/// The folder of the library under test: the one beside this test, or the one that
/// `PACKHOUSE_TEST_LIBRARY` names.
pub(crate) fn library_folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("PACKHOUSE_TEST_LIBRARY") {
        return folder.into();
    }
    let own = std::env::current_exe().expect("because Linux knows it");
    own.parent().expect("because it is in a folder").to_owned()
}

/// A folder in which the library under test is found by the name that it bears.
fn named_library_folder() -> PathBuf {
    let library = library_folder().join("libpackhouse.so");
    let mut hasher = DefaultHasher::new();
    library.hash(&mut hasher);
    let name = format!("library-{:016x}", hasher.finish());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).expect("because the build folder is writable");
    let link = folder.join("libpackhouse.so.1");
    match std::os::unix::fs::symlink(&library, &link) {
        Ok(()) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::AlreadyExists, "{error}"),
    }
    folder
}

/// Compiles a C program of `tests/c` or `examples` against the header and the library under test.
pub(crate) fn program(name: &str, sources: &[&str]) -> PathBuf {
    let extra = std::env::var("PACKHOUSE_TEST_CFLAGS").unwrap_or_default();
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let is_example = ["dot", "head"].contains(&name);
    let folder = crate_folder.join(if is_example { "examples" } else { "tests/c" });
    let header = crate_folder.join("include/packhouse.h");
    let mut hasher = DefaultHasher::new();
    (name, &extra, "libpackhouse.so.1").hash(&mut hasher);
    let read = |path| std::fs::read(path).expect("because it is in the repository");
    let headers = ["misuse.h", "image_misuse.h", "tiles.h"];
    let headers = headers.map(|name| crate_folder.join("tests/c").join(name));
    let files = sources.iter().map(|source| folder.join(source));
    files
        .chain(headers)
        .chain([header])
        .for_each(|path| read(path).hash(&mut hasher));
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR")).join("programs");
    std::fs::create_dir_all(&parent).expect("because the build folder is writable");
    let target = parent.join(format!("{name}-{:016x}", hasher.finish()));
    if target.exists() {
        return target;
    }
    let own = tempfile::tempdir_in(&parent).expect("because the build folder is writable");
    let new = own.path().join(name);
    let output = Command::new("gcc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-g",
            "-O1",
        ])
        .args(extra.split_whitespace())
        .args(sources)
        .arg("-I")
        .arg(crate_folder.join("include"))
        .arg("-L")
        .arg(library_folder())
        .arg("-o")
        .arg(&new)
        .args(["-lpackhouse", "-lpthread", "-lm"])
        .current_dir(folder)
        .output()
        .expect("because a C compiler is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    std::fs::rename(&new, &target).expect("because both are in one folder");
    target
}
