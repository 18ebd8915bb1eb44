//! The NumPy peer of `bench-compare`, packing one matrix in its own memory.

use packhouse_base::digest::Digest;
use packhouse_layout::Admitted;
use packhouse_pack::Packers;
use serde_json::Value;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The peer on one matrix, and what it took in each round.
pub struct Peer {
    python: PathBuf,
    admitted: Admitted,
    digest: String,
    /// Nanoseconds per round.
    pub pack_ns: Vec<u64>,
}

impl Peer {
    /// Prepares the peer for a tensor of `q4_0-xe2-dpas-v2`. `python` has NumPy. Errors when no
    /// kernel here packs the tensor.
    pub fn new(python: &Path, admitted: Admitted) -> Result<Self, Box<dyn Error>> {
        let source = source(usize::try_from(admitted.source_bytes())?);
        let mut payload = vec![0; usize::try_from(admitted.payload_bytes())?];
        let packers = Packers::detect();
        packers.kernel(&admitted)?.pack(&source, &mut payload);
        Ok(Self {
            python: python.to_owned(),
            digest: Digest::of(&payload).to_string(),
            admitted,
            pack_ns: Vec::new(),
        })
    }

    /// The tensor.
    pub fn admitted(&self) -> &Admitted {
        &self.admitted
    }

    /// Runs it once. Errors when it fails, and when its payload is not ours.
    pub fn run(&mut self) -> Result<(), Box<dyn Error>> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench-compare/peer.py");
        let dims = self.admitted.dims().iter().map(u64::to_string);
        let output = Command::new(&self.python)
            .arg(script)
            .arg("pack")
            .args(dims)
            .arg("2")
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into());
        }
        let answer: Value = serde_json::from_slice(&output.stdout)?;
        if answer["sha256"] != self.digest.as_str() {
            return Err(format!(
                "the peer packs to {}, we to {}",
                answer["sha256"], self.digest
            )
            .into());
        }
        // The first one also touches its target.
        let pack_ns = answer["pack_ns"][1].as_u64().ok_or("no pack_ns")?;
        self.pack_ns.push(pack_ns);
        Ok(())
    }
}

/// The bytes that the peer packs: the top byte of a 64-bit linear congruence of their index.
fn source(byte_count: usize) -> Vec<u8> {
    (0..byte_count as u64)
        .map(|index| {
            let state = index
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
        .collect()
}
