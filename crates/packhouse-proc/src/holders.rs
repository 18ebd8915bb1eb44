//! Who holds a device, or may.
//!
//! Invariants:
//! - a process is left out by its key, never by its name or pid alone;
//! - what can't be read makes a holder uncertain, never absent: a server whose environment is
//!   unreadable may hold every card;
//! - a pid on a vendor's list counts whether or not it is seen here.
//!
//! Never: signals or traces anything. Design: `docs/design/holders.md`.

use crate::cores::CpuSet;
use crate::devices::DeviceId;
use crate::identity::ProcessKey;

/// A worker of any fleet of this user that was not proven gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedWorker {
    /// Its fleet.
    pub fleet: String,
    /// Its name.
    pub worker: String,
    /// Its processes, keeper among them.
    pub keys: Vec<ProcessKey>,
    /// Its cards.
    pub devices: Vec<DeviceId>,
    /// Its cores, where it was given any.
    pub cores: Option<CpuSet>,
}

/// A process that has a device, or may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its pid, as listed by whoever told of it.
    pub pid: u32,
    /// Its key; `None`: it is not seen here.
    pub key: Option<ProcessKey>,
    /// Its name, for people.
    pub name: String,
    /// Its user, where that is known.
    pub uid: Option<u32>,
    /// What shows that it holds the device.
    pub how: Vec<How>,
    /// Whether it holds it for certain.
    pub certain: bool,
}

/// What shows that a process holds a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// A worker of ours has the device by its record.
    Managed {
        /// Its fleet.
        fleet: String,
        /// Its name.
        worker: String,
    },
    /// The vendor lists it.
    VendorList {
        /// Its memory on the device.
        used_bytes: Option<u64>,
    },
    /// It has a device node open.
    OpenNode {
        /// Which.
        path: String,
    },
    /// It is a client of the DRM device.
    DrmClient {
        /// Its memory on the device.
        memory_bytes: Option<u64>,
    },
    /// A server whose masks show it the device, or may.
    Mask {
        /// Why it is not told for certain; empty where it is.
        why: String,
    },
    /// A server that is bound to some of the cores.
    Cores {
        /// Those that both have.
        shared: CpuSet,
    },
    /// A server that may run on any core.
    Unbound,
}

/// All that holds a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Processes that hold it.
    pub holding: Vec<Holder>,
    /// Processes that may hold it.
    pub may_hold: Vec<Holder>,
    /// Processes worth knowing of that stop nobody.
    pub notes: Vec<Holder>,
    /// How many processes could not be looked at in full.
    pub unreadable_count: usize,
}
