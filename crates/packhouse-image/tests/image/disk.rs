//! Images by hand on a simulated disk: what the disk's tests need, without packers and weights.

use packhouse_base::digest::{Digest, Fingerprint};
use packhouse_image::{
    Claim, Claimant, Dtype, Folder, Head, HeadDigest, Header, ImageFault, ImageKey, ImageName,
    Limits, Owner, PayloadHash, PublishError, VerifiedImage, announce, claim, collect,
    verify_image,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_sim::{SimClock, SimFs};
use packhouse_sys::fs::{Dir, File, Fs, LockKind};
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

pub(crate) const ROOT: &str = "/home/user/images";
pub(crate) const V1: &str = "/home/user/images/v1";
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;

/// One image with its payload.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) header: Header,
    pub(crate) codes: Vec<i8>,
    pub(crate) scales: Vec<f32>,
}

/// A head of two tiles.
pub(crate) const VOCABULARY: u64 = 9;

pub(crate) fn geometry(nd: u64) -> TileGeometry {
    let sizes = TileSizes {
        kd: 4,
        nd,
        kpad: 4,
        t: 5,
    };
    TileGeometry::new(TileOrder::RowMajor, sizes).expect("because the sizes fit")
}

pub(crate) fn owner(name: &str) -> Owner {
    Owner::new(name).expect("because the text is short")
}

impl Image {
    /// A tile of the head that `head` numbers, in the usual geometry.
    pub(crate) fn new(head: u8, tile: u64) -> Self {
        Self::of(head, tile, geometry(6), 1)
    }

    /// A tile whose payload depends on `content`, which no identity does.
    pub(crate) fn of(head: u8, tile: u64, geometry: TileGeometry, content: u32) -> Self {
        let size = usize::try_from(geometry.code_bytes()).expect("because it is small");
        let code = |at: usize| ((at as u32).wrapping_mul(2_654_435_761) >> content) as i8;
        let codes: Vec<i8> = (0..size).map(code).collect();
        let scales: Vec<f32> = (0..geometry.nd())
            .map(|at| content as f32 + at as f32)
            .collect();
        let mut payload: Vec<u8> = codes.iter().map(|code| code.cast_unsigned()).collect();
        payload.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
        let head = Head {
            vocabulary: VOCABULARY,
            width: 4,
            tied: false,
            dtype: Dtype::new("F32").expect("because it is short"),
            digest: HeadDigest::from_bytes([head; 32]),
        };
        let header = Header::new(
            geometry,
            head,
            Fingerprint(Digest::from_bytes([7; 32])),
            tile,
            owner("somebody").id(),
            PayloadHash::from_bytes(blake3::hash(&payload).into()),
        );
        Self {
            header: header.expect("because the head has this tile"),
            codes,
            scales,
        }
    }

    pub(crate) fn key(&self) -> ImageKey {
        self.header.key()
    }

    pub(crate) fn name(&self) -> ImageName {
        ImageName::new(&self.key(), self.header.tile()).expect("because tiles are few")
    }

    pub(crate) fn path(&self) -> String {
        format!("{V1}/{}", self.name())
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.encode().to_vec();
        bytes.extend(self.codes.iter().map(|code| code.cast_unsigned()));
        bytes.extend(self.scales.iter().flat_map(|scale| scale.to_le_bytes()));
        bytes
    }

    pub(crate) fn publish(&self, folder: &Folder, fs: &dyn Fs) -> Result<u64, PublishError> {
        let header = self.header.encode();
        folder.publish(fs, &self.name(), &header, &self.codes, &self.scales)
    }

    pub(crate) fn verify(&self, folder: &Folder) -> Result<Option<VerifiedImage>, ImageFault> {
        verify_image(folder, &self.name(), NonZeroUsize::MIN)
    }

    pub(crate) fn claim(&self, folder: &Folder, sim: &SimFs, who: &str) -> Claim {
        self.note(who, |claimant| claim(folder, sim, &*sim.clock(), claimant))
    }

    pub(crate) fn announce(&self, folder: &Folder, sim: &SimFs, who: &str) -> Claim {
        let note = |claimant: Claimant<'_>| announce(folder, sim, &*sim.clock(), claimant);
        self.note(who, note)
    }

    fn note(&self, who: &str, note: impl FnOnce(Claimant<'_>) -> Claim) -> Claim {
        let (owner, key) = (owner(who), self.key());
        note(Claimant {
            owner: &owner,
            geometry: self.header.geometry(),
            key: &key,
            vocabulary: VOCABULARY,
        })
    }
}

pub(crate) fn new_sim() -> SimFs {
    SimFs::new(11, Arc::new(SimClock::new()))
}

pub(crate) fn open(sim: &SimFs) -> Folder {
    let folder = Folder::open(sim, Path::new(ROOT), true).expect("because nobody is in the way");
    folder.expect("because it is made")
}

/// A disk with a folder and these images, all durable.
pub(crate) fn disk_with(images: &[Image]) -> (SimFs, Folder) {
    let sim = new_sim();
    let folder = open(&sim);
    for image in images {
        image
            .publish(&folder, &sim)
            .expect("because nothing is in the way");
    }
    sim.settle();
    (sim, folder)
}

pub(crate) fn open_dir(fs: &dyn Fs, path: &str) -> Dir {
    let mut dir = fs.root().expect("because the disk is there");
    for name in Path::new(path).iter().skip(1) {
        dir = dir.open_dir(name).expect("because it is there");
    }
    dir
}

/// A temporary file of an image that a living process has locked.
pub(crate) fn locked_temp(sim: &SimFs, image: &Image, bytes: usize) -> File {
    let name = format!(".{}.9-0123456789abcdef.tmp", image.name());
    sim.replace(format!("{V1}/{name}"), &vec![0; bytes], 0o600);
    let file = open_dir(sim, V1).open_file_writable(name);
    let file = file.expect("because it was made");
    assert_eq!(file.try_lock(LockKind::Exclusive, 0, 1), Ok(true));
    file
}

/// The files below the root, without it.
pub(crate) fn names(sim: &SimFs) -> Vec<String> {
    let files = sim.files(ROOT).into_iter();
    let name = |path: std::path::PathBuf| {
        let path = path.strip_prefix(ROOT).expect("because it is below");
        path.to_str().expect("because names are ASCII").to_owned()
    };
    files.map(name).collect()
}

/// The temporary files below the root.
pub(crate) fn temps(sim: &SimFs) -> Vec<String> {
    let names = names(sim).into_iter();
    names.filter(|name| name.ends_with(".tmp")).collect()
}

/// The images below the root.
pub(crate) fn images(sim: &SimFs) -> Vec<String> {
    let names = names(sim).into_iter();
    names.filter(|name| name.ends_with(".phti")).collect()
}

/// Two hours later, a collection without limits: what is left of dead writers goes.
pub(crate) fn collect_later(sim: &SimFs, folder: &Folder) {
    sim.clock().advance_ns(2 * HOUR_NS);
    let collected = collect(folder, &*sim.clock(), Limits::default(), false);
    let collected = collected.expect("because the lock is free");
    assert_eq!(collected.removal.failures, []);
}
