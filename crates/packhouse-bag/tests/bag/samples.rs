//! A payload, a place for it in a simulated file system or a real one, and what is shared.

use packhouse_bag::{BagInfo, Contents, closed};
use packhouse_base::digest::Digest;
use packhouse_sim::{SimClock, SimFs};
use packhouse_sys::fs::{Dir, Fs};
use packhouse_sys::real::RealFs;
use std::path::Path;
use std::sync::Arc;

/// Where the evidence of one packet lies in the simulator.
pub(crate) const HOME: [&str; 2] = ["evidence", "packet"];

pub(crate) fn info() -> BagInfo {
    BagInfo {
        software: "packhouse 0.1.0".to_owned(),
        packet: Digest::of(b"packet"),
    }
}

/// A payload with folders in folders, by paths from `data/`.
pub(crate) fn payload() -> Contents {
    let mut payload = Contents::default();
    payload.insert("packet.json", *b"{}\n");
    payload.insert("legs/00/exchange.jsonl", *b"{\"at_ns\":1}\n{\"at_ns\":2}\n");
    payload.insert("legs/00/leg.json", *b"{\"number\":0}\n");
    payload.insert("outputs/00ff", (0..=255).collect::<Vec<u8>>());
    payload
}

/// The closed bag of `payload`.
pub(crate) fn bag() -> Contents {
    closed(&payload(), &info())
}

/// A disk with an empty folder of evidence on it, durable.
pub(crate) fn disk(seed: u64) -> SimFs {
    let sim = SimFs::new(seed, Arc::new(SimClock::new()));
    let mut dir = sim.root().expect("because it is there");
    for name in HOME {
        dir.make_dir(name, 0o755).expect("because it is new");
        dir = dir.open_dir(name).expect("because it was made");
    }
    sim.settle();
    sim.restart_count();
    sim
}

/// The folder of evidence on a disk.
pub(crate) fn home(sim: &SimFs) -> Dir {
    let root = sim.root().expect("because it is there");
    let dirs = HOME.iter().try_fold(root, |dir, name| dir.open_dir(name));
    dirs.expect("because it is durable")
}

/// A folder of the real file system.
pub(crate) fn real_dir(path: &Path) -> Dir {
    let mut dir = RealFs.root().expect("because there is a root");
    for name in path.iter().skip(1) {
        dir = dir.open_dir(name).expect("because it is there");
    }
    dir
}

/// A temporary folder of the real file system.
pub(crate) fn folder() -> tempfile::TempDir {
    let made = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    made.expect("because the target folder is ours")
}

/// Writes files below a folder of the real file system.
pub(crate) fn lay(folder: &Path, contents: &Contents) {
    for (path, bytes) in contents.files() {
        let path = folder.join(path);
        let above = path.parent().expect("because it is below a folder");
        std::fs::create_dir_all(above).expect("because it is ours");
        std::fs::write(path, bytes).expect("because it is ours");
    }
}

/// Code and path of each fault.
pub(crate) fn codes(faults: &[packhouse_bag::BagFault]) -> Vec<(&str, &str)> {
    faults
        .iter()
        .map(|fault| (fault.code(), fault.path()))
        .collect()
}
