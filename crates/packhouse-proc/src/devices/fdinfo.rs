//! DRM clients as the kernel prints them in `/proc/PID/fdinfo/FD`
//! (Documentation/gpu/drm-usage-stats.rst of the kernel).
//!
//! Invariants:
//! - one client is counted once, whoever holds how many descriptors of it: descriptors are
//!   duplicated and inherited;
//! - a line that is not understood makes its client's numbers unknown, not smaller.

use crate::devices::device::Observation;
use crate::devices::pci::PciAddress;
use std::collections::BTreeMap;

/// One opening of a DRM device, and what was charged to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrmClient {
    /// The kernel driver: `xe`, `i915`, `amdgpu`, ...
    pub driver: String,
    /// The card.
    pub pdev: Option<PciAddress>,
    /// Unique per opening of this card.
    pub client_id: Option<u64>,
    /// Memory on the card that the client has resident.
    pub memory_bytes: Observation<u64>,
    /// Busy time per engine, in the driver's unit: ns, or cycles for xe.
    pub engines: BTreeMap<String, u64>,
}
