//! Devices of this host: cores, and cards of every vendor, by names that last.
//!
//! Sources: the kernel (`/sys`, `/proc`) for what is there, and the vendors' libraries and tools
//! for what they alone know. Design: `docs/design/devices.md`.
//!
//! Invariants:
//! - a device is named by UUID or PCI address, never by an ordinal;
//! - what a source said is kept raw, whether or not it could be parsed;
//! - a source that failed makes what it would have told `Unknown`, never idle and never absent.

mod amd;
mod ask;
mod cards;
mod cpu;
pub mod device;
pub mod fdinfo;
mod files;
pub mod host_tools;
mod intel;
pub mod nvidia;
mod nvml;
pub mod pci;
pub mod spec;
pub mod tools;
mod unlisted;
pub mod xpu_smi;

pub use device::{
    Device, DeviceId, DeviceMemory, DeviceNode, DrmNodes, Observation, Vendor, VendorProcess,
};
pub use pci::PciAddress;
pub use spec::{DeviceSpec, FindError, SpecError};
pub use tools::{NoTools, Question, RawReport, ToolAnswer, Tools};

use crate::cores::CpuSet;
use fdinfo::DrmScan;
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
    let cores = cpu::cores(roots);
    let (mut cards, report) = cards::cards(roots);
    let mut reports = vec![cores.report, report];
    nvidia::add(&mut cards, tools, roots, &mut reports);
    let needs_clients = cards
        .iter()
        .any(|card| card.device.vendor != Vendor::Nvidia);
    let scan = if needs_clients {
        DrmScan::take(roots)
    } else {
        Ok(DrmScan::default())
    };
    intel::add(&mut cards, tools, &scan, &mut reports);
    amd::add(&mut cards, roots, &scan, &mut reports);
    others(&mut cards, &scan);
    let cards = cards.into_iter().map(|card| card.device);
    Inventory {
        devices: cores.nodes.into_iter().chain(cards).collect(),
        online: cores.online,
        reports,
    }
}

/// Cards of which DRM clients are all that is known.
fn others(cards: &mut [cards::Card], scan: &Result<DrmScan, String>) {
    for card in cards {
        let is_told = card.device.vendor != Vendor::Other;
        let Some(pci) = card.device.pci.filter(|_| !is_told) else {
            continue;
        };
        if card.device.nodes.is_empty() {
            continue;
        }
        card.device.processes = match scan {
            Ok(scan) => scan.processes(pci),
            Err(why) => Observation::unknown(why.clone()),
        };
    }
}
