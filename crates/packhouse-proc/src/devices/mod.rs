//! Devices of this host: cores, and cards of every vendor, by names that last.
//!
//! Sources: the kernel (`/sys`, `/proc`) for what is there, and the vendors' libraries and tools
//! for what they alone know. Design: `docs/design/devices.md`.
//!
//! Invariants:
//! - a device is named by UUID or PCI address, never by an ordinal;
//! - what a source said is kept raw, whether or not it could be parsed;
//! - a source that failed makes what it would have told `Unknown`, never idle and never absent.

pub mod device;
pub mod fdinfo;
pub mod pci;
pub mod spec;
pub mod tools;

pub use device::{
    Device, DeviceId, DeviceMemory, DeviceNode, DrmNodes, Observation, Vendor, VendorProcess,
};
pub use pci::PciAddress;
pub use spec::{DeviceSpec, FindError, SpecError};
pub use tools::{NoTools, Question, RawReport, ToolAnswer, Tools};

use crate::cores::CpuSet;
use std::path::PathBuf;

/// Where the kernel's file systems are; a test has its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/dev`.
    pub dev: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self {
            proc: PathBuf::from("/proc"),
            sys: PathBuf::from("/sys"),
            dev: PathBuf::from("/dev"),
        }
    }
}

/// All that was found, and what each source said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inventory {
    /// The devices: NUMA nodes first, then cards in PCI order, parts after their card.
    pub devices: Vec<Device>,
    /// The cores that are online.
    pub online: Observation<CpuSet>,
    /// What each source said.
    pub reports: Vec<SourceReport>,
}

/// What one source said, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReport {
    /// Who was asked.
    pub source: &'static str,
    /// What it printed, where it printed anything.
    pub raw: Option<RawReport>,
    /// How many devices or processes it told of. `Absent`: the host has no such source.
    pub outcome: Observation<usize>,
}

/// Looks at this host. Never fails: what a source did not tell is `Unknown` and says why.
pub fn inventory(tools: &dyn Tools, roots: &Roots) -> Inventory {
    let _ = (tools, roots);
    Inventory {
        devices: Vec::new(),
        online: Observation::unknown("no source was asked"),
        reports: Vec::new(),
    }
}
