//! What a device is: a card, a part of one, a NUMA node or a set of cores, by names that last.
//!
//! Invariants:
//! - an id is never an ordinal: masks and plugged cards renumber those;
//! - a number that could not be had is `Unknown` with its reason, never 0.

use crate::cores::CpuSet;
use crate::devices::pci::PciAddress;
use std::fmt;
use std::path::PathBuf;

/// A device of this host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its lasting name.
    pub id: DeviceId,
    /// Who makes it, as far as masks and tools differ by that.
    pub vendor: Vendor,
    /// For people.
    pub name: String,
    /// The vendor's unique id, as the vendor's masks and tools write it.
    pub uuid: Option<String>,
    /// Where it is plugged in.
    pub pci: Option<PciAddress>,
    /// Its own device nodes. Who has one open may hold the card. Nodes that all cards of a vendor
    /// share are not among them.
    pub nodes: Vec<DeviceNode>,
    /// Its DRM nodes, by name.
    pub drm: Option<DrmNodes>,
    /// The cores that it is, or that are near it.
    pub cores: Option<CpuSet>,
    /// The NUMA node that it is, or that it is near.
    pub numa: Option<u32>,
    /// Its place in PCI order among the GPUs that its vendor's driver has: what a mask without
    /// names can say. `None`: no runtime counts it.
    pub ordinal_in_pci_order: Option<u32>,
    /// The kernel driver that has it.
    pub driver: Option<String>,
    /// Its folder under `/sys`, for locks that hold across users.
    pub sysfs: Option<PathBuf>,
    /// Its own memory. `Absent`: it has none of its own, as cores have not.
    pub memory: Observation<DeviceMemory>,
    /// Who uses it, by the vendor's list.
    pub processes: Observation<Vec<VendorProcess>>,
    /// The card that this is a part of (MIG).
    pub parent: Option<DeviceId>,
}

/// The lasting name of a device: `cpu:0-3`, `numa:0`, `nvidia:GPU-...`, `nvidia:MIG-...`,
/// `pci:0000:03:00.0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceId(String);

impl DeviceId {
    /// Names a set of cores.
    pub fn of_cores(cores: &CpuSet) -> Self {
        Self(format!("cpu:{cores}"))
    }

    /// Names a NUMA node.
    pub fn of_numa(node: u32) -> Self {
        Self(format!("numa:{node}"))
    }

    /// Names an NVIDIA card or a part of one by its UUID.
    pub fn of_nvidia(uuid: &str) -> Self {
        Self(format!("nvidia:{uuid}"))
    }

    /// Names a card by its place.
    pub fn of_pci(address: PciAddress) -> Self {
        Self(format!("pci:{address}"))
    }

    /// Takes an id that this code wrote before, as from a record. It is only ever compared.
    pub fn recorded(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        target.write_str(&self.0)
    }
}

/// Whose masks, nodes and tools a device goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Vendor {
    /// Cores of this host.
    Cpu,
    /// NVIDIA.
    Nvidia,
    /// Intel.
    Intel,
    /// AMD.
    Amd,
    /// Any other, and neural accelerators: known by the kernel's means alone.
    Other,
}

impl Vendor {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Nvidia => "nvidia",
            Self::Intel => "intel",
            Self::Amd => "amd",
            Self::Other => "other",
        }
    }
}

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceNode {
    /// Its path.
    pub path: PathBuf,
    /// Its device number, as stat's `st_rdev` has it.
    pub rdev: Option<u64>,
}

/// A card's DRM nodes, by name: `card0`, `renderD128`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrmNodes {
    /// The node for display and everything else.
    pub card: Option<String>,
    /// The node for rendering and computing.
    pub render: Option<String>,
}

/// A device's own memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// How much it has, where that is told.
    pub total_bytes: Option<u64>,
    /// How much of it processes use; what firmware and driver keep for themselves is left out
    /// where the source tells it apart.
    pub used_bytes: u64,
}

/// One process on a vendor's list. The pid may be of another pid namespace: that it is not found
/// here proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VendorProcess {
    /// The pid as listed.
    pub pid: u32,
    /// Its memory on the device, where told.
    pub used_bytes: Option<u64>,
}

/// Something that was looked for. What can't be read is `Unknown`, never idle, zero or absent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation<T> {
    /// It is this.
    Known(T),
    /// It is proven that there is none.
    Absent,
    /// It could not be had.
    Unknown {
        /// Why, for people.
        why: String,
    },
}

impl<T> Observation<T> {
    /// Something that could not be had.
    pub fn unknown(why: impl Into<String>) -> Self {
        Self::Unknown { why: why.into() }
    }

    /// The value, where there is one.
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Absent | Self::Unknown { .. } => None,
        }
    }

    /// Why there is no value, where that is not known.
    pub fn why_unknown(&self) -> Option<&str> {
        match self {
            Self::Unknown { why } => Some(why),
            Self::Known(_) | Self::Absent => None,
        }
    }
}
