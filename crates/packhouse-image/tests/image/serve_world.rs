//! A simulated disk, heads of seeded weights, and starts of an engine that serves one.

use packhouse_image::{
    Counters, Dtype, HEADER_BYTES, Head, HeadDigest, Header, ImageKey, ImageName, Images, Outcome,
    Owner, Refusal, Serve, Served, Settings, TileError, Written,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes, pack_tile};
use packhouse_pack::Packers;
use packhouse_pack::int8_tile::Gather;
use packhouse_sim::{SimClock, SimFs};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, LazyLock};

pub(crate) const ROOT: &str = "/home/user/images";
pub(crate) const V1: &str = "/home/user/images/v1";

/// The packers of this CPU, once: fingerprints are made once per start.
pub(crate) static PACKERS: LazyLock<Arc<Packers>> = LazyLock::new(|| Arc::new(Packers::detect()));

/// A head whose weights a test can edit.
#[derive(Clone)]
pub(crate) struct Weights {
    pub(crate) vocabulary: u64,
    pub(crate) width: u64,
    pub(crate) values: Vec<f32>,
}

/// What one start of an engine did.
pub(crate) struct Start {
    pub(crate) tiles: Vec<Tile>,
    pub(crate) counters: Counters,
    pub(crate) line: String,
    /// Columns that the engine was asked for.
    pub(crate) asked: u64,
}

pub(crate) struct Tile {
    pub(crate) served: Served,
    pub(crate) codes: Vec<i8>,
    pub(crate) scales: Vec<f32>,
}

impl Weights {
    pub(crate) fn new(vocabulary: u64, width: u64, seed: u64) -> Self {
        let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let values = (0..vocabulary * width).map(|_| next()).collect();
        Self {
            vocabulary,
            width,
            values,
        }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let bytes = self.values.iter().flat_map(|value| value.to_le_bytes());
        bytes.collect()
    }

    pub(crate) fn head(&self) -> Head {
        let dtype = Dtype::new("F32").expect("because it is printable");
        let (vocabulary, width) = (self.vocabulary, self.width);
        let bytes = self.bytes();
        let one = NonZeroUsize::MIN;
        Head {
            vocabulary,
            width,
            tied: false,
            dtype,
            digest: HeadDigest::of(vocabulary, width, false, &dtype, &[&bytes], one),
        }
    }

    pub(crate) fn column(&mut self, column: u64) -> &mut [f32] {
        let width = self.width as usize;
        &mut self.values[column as usize * width..][..width]
    }

    pub(crate) fn fill(&self, column: u64, target: &mut [f32]) {
        let width = self.width as usize;
        assert!(target.iter().all(|value| *value == 0.0), "a target is zero");
        target[..width].copy_from_slice(&self.values[column as usize * width..][..width]);
    }

    /// What the judge makes of a tile.
    pub(crate) fn judged(&self, geometry: &TileGeometry, tile: u64) -> (Vec<i8>, Vec<f32>) {
        let mut values = Vec::new();
        for column in geometry.tile_columns(self.vocabulary, tile) {
            let mut target = vec![0.0; geometry.kpad() as usize];
            self.fill(column, &mut target);
            values.extend(target);
        }
        let (mut codes, mut scales) = buffers(geometry);
        pack_tile(geometry, &values, &mut codes, &mut scales);
        (codes, scales)
    }
}

impl Start {
    pub(crate) fn outcomes(&self) -> Vec<&Outcome> {
        self.tiles.iter().map(|tile| &tile.served.outcome).collect()
    }

    /// The refusal of a tile.
    pub(crate) fn refusal(&self, tile: usize) -> &Refusal {
        match &self.tiles[tile].served.outcome {
            Outcome::Packed {
                refused: Some(refusal),
                ..
            } => refusal,
            other => panic!("tile {tile} was not refused: {other:?}"),
        }
    }

    /// Each tile has the judge's bytes.
    pub(crate) fn assert_right(&self, weights: &Weights, geometry: &TileGeometry) {
        for (index, tile) in (0u64..).zip(&self.tiles) {
            let (codes, scales) = weights.judged(geometry, index);
            assert_eq!(tile.codes, codes, "codes of tile {index}");
            assert_eq!(bits(&tile.scales), bits(&scales), "scales of tile {index}");
            let sum: f64 = scales.iter().map(|scale| f64::from(*scale)).sum();
            assert_eq!(tile.served.scale_sum.to_bits(), sum.to_bits(), "the sum");
        }
    }

    pub(crate) fn assert_all_hit(&self) {
        let outcomes = self.outcomes();
        let hit = |outcome: &&Outcome| matches!(outcome, Outcome::Hit);
        assert!(outcomes.iter().all(hit), "{outcomes:?}");
    }

    /// All were packed because no file was there, and written.
    pub(crate) fn assert_all_missed(&self) {
        let outcomes = self.outcomes();
        let missed = |outcome: &&Outcome| {
            let Outcome::Packed { refused, written } = outcome else {
                return false;
            };
            refused.is_none() && matches!(written, Written::Yes { .. })
        };
        assert!(outcomes.iter().all(missed), "{outcomes:?}");
    }
}

pub(crate) fn bits(scales: &[f32]) -> Vec<u32> {
    scales.iter().map(|scale| scale.to_bits()).collect()
}

/// Buffers full of what no packer leaves behind.
pub(crate) fn buffers(geometry: &TileGeometry) -> (Vec<i8>, Vec<f32>) {
    let codes = vec![-128; geometry.code_bytes() as usize];
    (codes, vec![f32::NAN; geometry.nd() as usize])
}

pub(crate) fn new_disk() -> SimFs {
    SimFs::new(7, Arc::new(SimClock::new()))
}

pub(crate) fn geometry_of(order: TileOrder, sizes: [u64; 4]) -> TileGeometry {
    let [kd, nd, kpad, t] = sizes;
    let sizes = TileSizes { kd, nd, kpad, t };
    TileGeometry::new(order, sizes).expect("because the sizes fit")
}

/// Both orders, each with padding in depth and in width.
pub(crate) fn geometries() -> [TileGeometry; 2] {
    [
        geometry_of(TileOrder::RowMajor, [70, 24, 66, 20]),
        geometry_of(TileOrder::Blocked, [128, 128, 66, 20]),
    ]
}

/// Of three tiles, whose last has seven columns, and narrower than they are deep.
pub(crate) fn weights() -> Weights {
    Weights::new(47, 64, 1)
}

pub(crate) fn settings() -> Settings {
    Settings {
        min_free_bytes: 0,
        seed: Some(0),
        ..Settings::new()
    }
}

pub(crate) fn images(sim: &SimFs, settings: Settings) -> Images {
    let fs = Arc::new(sim.clone());
    Images::open(fs, sim.clock(), Some(Path::new(ROOT)), settings)
}

pub(crate) fn owner() -> Owner {
    Owner::new("/models/one.gguf").expect("because it is short")
}

pub(crate) fn serve(images: &Images, head: Head, geometry: &TileGeometry) -> Serve {
    images
        .serve(PACKERS.clone(), head, *geometry, owner())
        .expect("because the head fits")
}

/// Starts an engine that holds these weights: all tiles in order.
pub(crate) fn start(
    sim: &SimFs,
    settings: Settings,
    weights: &Weights,
    geometry: &TileGeometry,
) -> Start {
    start_as(&images(sim, settings), weights.head(), weights, geometry)
}

/// Starts an engine that says it holds one head, and holds these weights.
pub(crate) fn start_as(
    images: &Images,
    head: Head,
    weights: &Weights,
    geometry: &TileGeometry,
) -> Start {
    let mut serve = serve(images, head, geometry);
    let (mut tiles, mut asked) = (Vec::new(), 0);
    for index in 0..serve.tile_count() {
        let (mut codes, mut scales) = buffers(geometry);
        let mut fill = |column, target: &mut [f32]| {
            asked += 1;
            weights.fill(column, target);
            Ok::<(), ()>(())
        };
        let gather = Gather::Serial(&mut fill);
        let served = serve.tile(index, geometry.kpad(), gather, &mut codes, &mut scales);
        let served = served.unwrap_or_else(|error: TileError<()>| panic!("{error:?}"));
        tiles.push(Tile {
            served,
            codes,
            scales,
        });
    }
    Start {
        tiles,
        counters: serve.counters().clone(),
        line: serve.line(),
        asked,
    }
}

pub(crate) fn key(weights: &Weights, geometry: &TileGeometry) -> ImageKey {
    let fingerprint = PACKERS.tile_fingerprint(geometry.order());
    ImageKey::new(geometry, &weights.head().digest, &fingerprint)
}

/// Where the image of a tile lies.
pub(crate) fn image_path(weights: &Weights, geometry: &TileGeometry, tile: u64) -> String {
    let name = ImageName::new(&key(weights, geometry), tile);
    format!("{V1}/{}", name.expect("because there are few tiles"))
}

/// Images on the disk, without owner records and the lock.
pub(crate) fn image_files(sim: &SimFs) -> Vec<String> {
    let files = sim.files(V1).into_iter();
    let files = files.map(|path| path.to_str().expect("because names are ASCII").to_owned());
    files.filter(|path| path.ends_with(".phti")).collect()
}

/// Nothing is there that no name of the format explains.
pub(crate) fn assert_no_litter(sim: &SimFs) {
    for path in sim.files(ROOT) {
        let text = path.to_str().expect("because names are ASCII");
        let known = text.ends_with(".phti")
            || text.starts_with(&format!("{V1}/owners/"))
            || text == format!("{V1}/locks")
            || text == format!("{ROOT}/CACHEDIR.TAG");
        assert!(known && !text.ends_with(".tmp"), "litter: {text}");
    }
}

/// Writes a file's header and its hash anew, over an edited payload.
pub(crate) fn reseal(bytes: &mut [u8], payload: impl FnOnce(&mut [u8])) {
    payload(&mut bytes[HEADER_BYTES..]);
    let hash = blake3::hash(&bytes[HEADER_BYTES..]);
    let old = Header::parse(&bytes[..HEADER_BYTES]).expect("because it was whole");
    let hash = packhouse_image::PayloadHash::from_bytes(*hash.as_bytes());
    let header = Header::new(
        *old.geometry(),
        old.head().clone(),
        *old.fingerprint(),
        old.tile(),
        *old.owner(),
        hash,
    );
    let header = header
        .expect("because only the payload is another")
        .encode();
    bytes[..HEADER_BYTES].copy_from_slice(&header);
}
