//! Head-tile images on real heads, and on one of the size that users of such engines have.
//!
//! Each tile is served four times and more: packed with images off, packed and written, read back,
//! and packed again after damage. All are compared byte by byte, with buffers poisoned before.

use engine_tests::{Model, places};
use packhouse_base::ggml_type::GgmlType;
use packhouse_image::{
    Dtype, GGML_VALUES, HEADER_BYTES, Head, HeadDigest, Images, Mode, Outcome, Owner, RefusalCode,
    Serve, Settings, Written,
};
use packhouse_layout::dequant;
use packhouse_layout::golden::SplitMix64;
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes, quantise_column};
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
use packhouse_prepare::head::{HeadBytes, ModelHead, ReadWatcher};
use packhouse_prepare::prepare::Quiet;
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::{RealFs, file_of_fd};
use std::convert::Infallible;
use std::num::NonZeroUsize;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

type Fill<'a> = &'a (dyn Fn(u64, &mut [f32]) -> Result<(), Infallible> + Sync);

/// A head, and who fills its columns.
struct Case<'a> {
    head: Head,
    fill: Fill<'a>,
    geometry: TileGeometry,
    root: &'a Path,
}

/// One tile's bytes.
struct Tile {
    codes: Vec<i8>,
    scales: Vec<f32>,
}

impl Tile {
    fn new(geometry: &TileGeometry) -> Self {
        let length = |count: u64| usize::try_from(count).expect("tiles lie in memory");
        Self {
            codes: vec![0; length(geometry.code_bytes())],
            scales: vec![0.0; length(geometry.nd())],
        }
    }

    /// What no packer writes: the code is out of range, and the scale no number.
    fn poison(&mut self) {
        self.codes.fill(-128);
        self.scales.fill(f32::NAN);
    }

    fn must_equal(&self, other: &Self, what: &str) {
        assert!(self.codes == other.codes, "{what}: codes differ");
        let bits = |tile: &Self| -> Vec<u32> {
            let scales = tile.scales.iter();
            scales.map(|scale| scale.to_bits()).collect()
        };
        assert!(bits(self) == bits(other), "{what}: scales differ");
    }
}

impl Case<'_> {
    fn serve(&self, mode: Mode, seed: u64) -> Serve {
        let settings = Settings {
            mode,
            max_bytes: Some(u64::MAX),
            min_free_bytes: 0,
            threads: NonZeroUsize::new(2).expect("two are some"),
            seed: Some(seed),
            ..Settings::new()
        };
        let (fs, clock) = (Arc::new(RealFs), Arc::new(RealClock));
        let images = Images::open(fs, clock, Some(self.root), settings);
        assert_eq!(images.why_off().is_some(), mode == Mode::Off);
        let owner = Owner::new("the tests").expect("it has a length");
        let packers = Arc::new(Packers::detect());
        images
            .serve(packers, self.head.clone(), self.geometry, owner)
            .expect("the head has tiles in this geometry")
    }

    fn fill(&self, serve: &mut Serve, tile: u64, target: &mut Tile) -> Outcome {
        target.poison();
        let (kpad, gather) = (self.geometry.kpad(), Gather::Parallel(self.fill));
        let served = serve.tile(tile, kpad, gather, &mut target.codes, &mut target.scales);
        served.expect("the request is right").outcome
    }

    /// Damages one byte of a tile's file, another one at each tile.
    fn damage(&self, serve: &Serve, tile: u64) {
        let key = serve.key().expect("images are on").to_string();
        let path = self.root.join(format!("v1/{}-t{tile:05}.phti", &key[..32]));
        let mode = |mode| {
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(&path, mode).expect("it is ours");
        };
        mode(0o600);
        let file = std::fs::File::options().read(true).write(true).open(&path);
        let file = file.expect("it was written");
        let at = HEADER_BYTES as u64 + (tile * 7_919 + 12_345) % self.geometry.payload_bytes();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).expect("it is that long");
        file.write_all_at(&[byte[0] ^ 1], at).expect("it is ours");
        mode(0o400);
    }

    /// Packed with images off, written, read back, read after damage: the same bytes each time.
    fn must_be_equal_in_every_way(&self) {
        let [mut off, mut cold, mut warm, mut hurt, mut last] = [
            (Mode::Off, 0),
            (Mode::ReadWrite, 1),
            (Mode::ReadOnly, 2),
            (Mode::ReadWrite, 3),
            (Mode::ReadWrite, 4),
        ]
        .map(|(mode, seed)| self.serve(mode, seed));
        let (mut packed, mut other) = (Tile::new(&self.geometry), Tile::new(&self.geometry));
        let image_bytes = HEADER_BYTES as u64 + self.geometry.payload_bytes();
        let tiles = off.tile_count();
        for tile in 0..tiles {
            self.fill(&mut off, tile, &mut packed);
            self.must_be_the_judges(tile, &packed);
            let outcome = self.fill(&mut cold, tile, &mut other);
            let written = Written::Yes { bytes: image_bytes };
            assert_eq!(
                outcome,
                Outcome::Packed {
                    refused: None,
                    written: written.clone()
                }
            );
            other.must_equal(&packed, "written");
            assert_eq!(self.fill(&mut warm, tile, &mut other), Outcome::Hit);
            other.must_equal(&packed, "read back");
            self.damage(&cold, tile);
            let outcome = self.fill(&mut hurt, tile, &mut other);
            let Outcome::Packed {
                refused: Some(refused),
                written: again,
            } = outcome
            else {
                panic!("a damaged file was used: {outcome:?}");
            };
            assert_eq!(refused.code(), RefusalCode::PayloadHash, "{refused}");
            assert_eq!(again, written);
            other.must_equal(&packed, "packed again after damage");
            assert_eq!(self.fill(&mut last, tile, &mut other), Outcome::Hit);
            other.must_equal(&packed, "read after damage");
        }
        let columns = self.head.vocabulary;
        let of_tile = |tile| self.geometry.tile_columns(columns, tile);
        // Eight of each tile, or all of a ragged one.
        let sampled = (0..tiles).map(|tile| (of_tile(tile).end - of_tile(tile).start).min(8));
        let sampled: u64 = sampled.sum();
        assert_eq!(off.counters().columns_gathered, columns);
        assert_eq!(cold.counters().columns_gathered, columns);
        for found in [warm.counters(), last.counters()] {
            assert_eq!((found.tiles_hit, found.tiles_packed), (tiles, 0));
            assert_eq!(found.columns_gathered, 0, "a hit gathers its sample only");
            assert_eq!(found.columns_sampled, sampled);
            assert_eq!(found.bytes_read, tiles * image_bytes);
        }
        assert_eq!(disk_bytes(self.root), tiles * image_bytes, "to the byte");
        println!("{}", last.line());
    }

    /// Some columns of a tile against the judge: both ends and some between, and the padding.
    fn must_be_the_judges(&self, tile: u64, packed: &Tile) {
        let geometry = &self.geometry;
        let columns = geometry.tile_columns(self.head.vocabulary, tile);
        let count = columns.end - columns.start;
        let depth = usize::try_from(geometry.kpad()).expect("tiles lie in memory");
        let at = |index: u64| usize::try_from(index).expect("tiles lie in memory");
        let mut codes = vec![0; depth];
        for j in (0..16)
            .map(|step| step * (count - 1) / 15)
            .chain(count..geometry.nd())
        {
            let mut values = vec![0.0; depth];
            if j < count {
                let filled = (self.fill)(columns.start + j, &mut values);
                filled.expect("it can't fail");
            }
            let scale = quantise_column(&values, &mut codes);
            assert_eq!(
                packed.scales[at(j)].to_bits(),
                scale.to_bits(),
                "tile {tile}, column {j}"
            );
            for (i, code) in (0..).zip(&codes) {
                let place = at(geometry.position(i, j));
                assert_eq!(
                    packed.codes[place], *code,
                    "tile {tile}, column {j}, row {i}"
                );
            }
            for i in geometry.kpad()..geometry.kd() {
                assert_eq!(packed.codes[at(geometry.position(i, j))], 0);
            }
        }
    }
}

/// Bytes of all images below a root.
fn disk_bytes(root: &Path) -> u64 {
    let entries = std::fs::read_dir(root.join("v1")).expect("it was made");
    let images = entries.map(|entry| entry.expect("it can be listed").path());
    let images = images.filter(|path| path.extension().is_some_and(|end| end == "phti"));
    images
        .map(|path| path.metadata().expect("it is there").len())
        .sum()
}

fn geometry(order: TileOrder, sizes: [u64; 4]) -> TileGeometry {
    let [kd, nd, kpad, t] = sizes;
    TileGeometry::new(order, TileSizes { kd, nd, kpad, t }).expect("the sizes fit")
}

/// Reads the head of a model, or a tensor as one.
fn read_head(path: &Path, tensor: Option<&str>) -> (Head, HeadBytes) {
    let file = std::fs::File::open(path).expect("the model is there");
    let file = file_of_fd(file.into(), path.to_owned());
    let model = packhouse_prepare::model::Model::open(vec![file]).expect("it is a model");
    let found = ModelHead::find(model.container(), tensor).expect("it has a head");
    let watcher = ReadWatcher {
        progress: &Quiet,
        cancel: &|| false,
    };
    let bytes = found.read(&model, u64::MAX, watcher);
    let bytes = bytes.expect("nobody changes it");
    let dtype = Dtype::new(found.ggml_type().name()).expect("it is short");
    let (vocabulary, width, tied) = (found.vocabulary(), found.width(), found.is_tied());
    let tensors = [bytes.bytes(), GGML_VALUES];
    let threads = NonZeroUsize::MIN;
    let digest = HeadDigest::of(vocabulary, width, tied, &dtype, &tensors, threads);
    let head = Head {
        vocabulary,
        width,
        tied,
        dtype,
        digest,
    };
    (head, bytes)
}

/// A head of a model in two geometries.
fn must_be_equal(path: &Path, tensor: Option<&str>, geometries: [TileGeometry; 2]) {
    let (head, bytes) = read_head(path, tensor);
    for geometry in geometries {
        let ragged = head.vocabulary % geometry.t();
        assert_ne!(ragged, 0, "the last tile is to be ragged");
        let folder = tempfile::tempdir().expect("tests have a temporary folder");
        let fill = |column, target: &mut [f32]| {
            bytes.fill(column, target);
            Ok(())
        };
        let case = Case {
            head: head.clone(),
            fill: &fill,
            geometry,
            root: &folder.path().join("images"),
        };
        case.must_be_equal_in_every_way();
    }
}

fn smollm2_q4_1() -> PathBuf {
    let path = Model::SmolLm2.path();
    path.with_file_name("SmolLM2-135M-Instruct.Q4_1.gguf")
}

#[test]
fn gemma3s_tied_head_is_served_the_same_in_every_way() {
    let geometries = [
        geometry(TileOrder::RowMajor, [640, 60_000, 640, 60_000]),
        geometry(TileOrder::Blocked, [704, 50_048, 660, 50_000]),
    ];
    must_be_equal(&Model::Gemma3.path(), None, geometries);
}

#[test]
fn smollm2s_heads_are_served_the_same_in_every_way() {
    for path in [Model::SmolLm2.path(), smollm2_q4_1()] {
        let geometries = [
            geometry(TileOrder::RowMajor, [600, 20_001, 576, 20_000]),
            geometry(TileOrder::Blocked, [640, 12_800, 576, 12_750]),
        ];
        must_be_equal(&path, None, geometries);
    }
}

/// Real weights of other types, as heads by their names.
#[test]
fn tensors_of_other_types_are_served_the_same_in_every_way() {
    let geometries = |width: u64| {
        [
            geometry(TileOrder::RowMajor, [width, 100, width, 100]),
            geometry(TileOrder::Blocked, [width + 64, 128, width + 1, 91]),
        ]
    };
    let blocks = "blk.0.attn_output.weight";
    must_be_equal(&Model::SmolLm2.path(), Some(blocks), geometries(576));
    must_be_equal(&smollm2_q4_1(), Some(blocks), geometries(576));
    must_be_equal(&Model::Gemma3.path(), Some(blocks), geometries(1024));
}

/// The size that is in use: 32,000 rows of 4,096 values in tiles of 28,672 columns.
#[test]
fn a_head_of_two_tiles_of_117_mb_is_served_the_same_in_every_way() {
    const WIDTH: usize = 4096;
    const ROWS: u64 = 32_000;
    let q8_0 = GgmlType::from_name("Q8_0").expect("it is a type");
    let fill = |column: u64, target: &mut [f32]| {
        let mut row = vec![0; WIDTH / 32 * 34];
        SplitMix64::new(column ^ 0x5eed).fill(&mut row);
        for block in row.chunks_exact_mut(34) {
            // A scale near one hundredth, of either sign.
            block[1] = block[1] & 0x83 | 0x20;
        }
        let done = dequant::dequantise(q8_0, &row, &mut target[..WIDTH]);
        done.expect("the type has values");
        Ok(())
    };
    let dtype = Dtype::new("Q8_0").expect("it is short");
    // Whoever makes weights up names them as he likes.
    let name: [&[u8]; 1] = [b"seeded"];
    let digest = HeadDigest::of(ROWS, WIDTH as u64, false, &dtype, &name, NonZeroUsize::MIN);
    for order in [TileOrder::RowMajor, TileOrder::Blocked] {
        let folder = tempfile::tempdir().expect("tests have a temporary folder");
        let case = Case {
            head: Head {
                vocabulary: ROWS,
                width: WIDTH as u64,
                tied: false,
                dtype,
                digest,
            },
            fill: &fill,
            geometry: geometry(order, [4096, 28_672, 4096, 28_672]),
            root: &folder.path().join("images"),
        };
        case.must_be_equal_in_every_way();
        assert_eq!(disk_bytes(case.root), 2 * (4096 + 117_440_512 + 114_688));
    }
    let peak = peak_kib();
    assert!(peak < 1_500_000, "{peak} KiB of memory at the most");
}

/// The most memory that this process had, by the kernel's own account.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("there is a /proc");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let digits = line.and_then(|line| line.trim().strip_suffix(" kB"));
    digits
        .and_then(|digits| digits.parse().ok())
        .expect("the kernel counts it")
}

/// What the command made of a model is what an engine with that model's head finds.
#[test]
fn an_engine_finds_what_the_command_prepared() {
    let folder = tempfile::tempdir().expect("tests have a temporary folder");
    let root = folder.path().join("images");
    let model = Model::SmolLm2.path();
    let mut command = Command::new(places::packhouse());
    command
        .args([
            "image", "prepare", "--kd", "640", "--nd", "12800", "--t", "12750",
        ])
        .args([
            "--kpad",
            "576",
            "--layout",
            "int8-tile-b8-v1",
            "--min-free",
            "0",
            "--images",
        ])
        .arg(&root)
        .arg(&model)
        .env_clear()
        .env("HOME", folder.path());
    let output = command.output().expect("the command was built");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let (head, bytes) = read_head(&model, None);
    let fill = |column, target: &mut [f32]| {
        bytes.fill(column, target);
        Ok(())
    };
    let case = Case {
        head,
        fill: &fill,
        geometry: geometry(TileOrder::Blocked, [640, 12_800, 576, 12_750]),
        root: &root,
    };
    let (mut found, mut off) = (case.serve(Mode::ReadOnly, 9), case.serve(Mode::Off, 0));
    let (mut tile, mut packed) = (Tile::new(&case.geometry), Tile::new(&case.geometry));
    for index in 0..found.tile_count() {
        assert_eq!(case.fill(&mut found, index, &mut tile), Outcome::Hit);
        case.fill(&mut off, index, &mut packed);
        tile.must_equal(&packed, "prepared");
    }
}
