//! DRM clients as the kernel prints them in `/proc/PID/fdinfo/FD`
//! (Documentation/gpu/drm-usage-stats.rst of the kernel).
//!
//! Invariants:
//! - one client is counted once, whoever holds how many descriptors of it: descriptors are
//!   duplicated and inherited;
//! - a number that is not understood is unknown, not 0;
//! - a process whose descriptors can't be looked at is counted: who was not seen is not idle.

use crate::devices::Roots;
use crate::devices::device::{Observation, VendorProcess};
use crate::devices::files::{self, KernelFileError};
use crate::devices::pci::PciAddress;
use std::collections::{BTreeMap, BTreeSet};

/// One opening of a DRM device, and what was charged to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DrmClient {
    /// The kernel driver: `xe`, `i915`, `amdgpu`, ...
    pub driver: String,
    /// The card.
    pub pdev: Option<PciAddress>,
    /// Unique per opening of this card.
    pub client_id: Option<u64>,
    /// Memory on the card that the client has resident. `Absent`: the driver tells of none on the
    /// card, as those of GPUs that use the host's memory.
    pub memory_bytes: Observation<u64>,
    /// Busy time per engine, in the driver's unit: ns, or cycles for xe.
    pub engines: BTreeMap<String, u64>,
}

/// Parses the fdinfo texts of one process; each client comes once. Texts of files that are no DRM
/// device are passed over.
pub fn drm_clients<'a>(texts: impl IntoIterator<Item = &'a str>) -> Vec<DrmClient> {
    let mut seen = BTreeSet::new();
    texts
        .into_iter()
        .filter_map(client)
        .filter(|client| match client.client_id {
            Some(id) => seen.insert((client.driver.clone(), client.pdev, id)),
            None => true,
        })
        .collect()
}

/// All clients of all cards, as far as this user may look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DrmScan {
    /// Who has which client. A client that several processes hold comes once for each.
    pub clients: Vec<(u32, DrmClient)>,
    /// Processes whose descriptors could not be looked at.
    pub unseen: u32,
}

impl DrmScan {
    /// Looks at the descriptors of every process. Errors when there is no list of processes.
    pub fn take(roots: &Roots) -> Result<Self, String> {
        let names = files::names(&roots.proc)
            .map_err(|error| error.to_string())?
            .ok_or_else(|| format!("there is no {}", roots.proc.display()))?;
        let mut scan = Self::default();
        for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
            match process(roots, pid) {
                Ok(texts) => {
                    let clients = drm_clients(texts.iter().map(String::as_str));
                    scan.clients
                        .extend(clients.into_iter().map(|client| (pid, client)));
                }
                Err(_) => scan.unseen += 1,
            }
        }
        Ok(scan)
    }

    /// The processes that have a card open, with their memory on it, where every process could be
    /// looked at.
    pub fn processes(&self, card: PciAddress) -> Observation<Vec<VendorProcess>> {
        if self.unseen > 0 {
            return self.unseen_words();
        }
        Observation::Known(self.seen(card))
    }

    /// The processes that were seen to have a card open: a lower bound.
    pub fn seen(&self, card: PciAddress) -> Vec<VendorProcess> {
        let mut processes: BTreeMap<u32, Option<u64>> = BTreeMap::new();
        for (pid, client) in self.of(card) {
            let sum = processes.entry(*pid).or_insert(Some(0));
            *sum = match (*sum, &client.memory_bytes) {
                (Some(sum), Observation::Known(bytes)) => Some(sum.saturating_add(*bytes)),
                (Some(sum), Observation::Absent) => Some(sum),
                (None, _) | (Some(_), Observation::Unknown { .. }) => None,
            };
        }
        processes
            .into_iter()
            .map(|(pid, used_bytes)| VendorProcess { pid, used_bytes })
            .collect()
    }

    /// The memory that all clients of a card use. `Absent` where the card's clients have none on
    /// it; a card without clients uses nothing.
    pub fn used_bytes(&self, card: PciAddress) -> Observation<u64> {
        if self.unseen > 0 {
            return self.unseen_words();
        }
        let mut sum = 0u64;
        let mut counted = BTreeSet::new();
        let (mut is_used, mut has_memory) = (false, false);
        for (_, client) in self.of(card) {
            is_used = true;
            if client.client_id.is_some_and(|id| !counted.insert(id)) {
                continue;
            }
            match &client.memory_bytes {
                Observation::Known(bytes) => {
                    has_memory = true;
                    sum = sum.saturating_add(*bytes);
                }
                Observation::Absent => {}
                Observation::Unknown { why } => return Observation::unknown(why.clone()),
            }
        }
        if is_used && !has_memory {
            return Observation::Absent;
        }
        Observation::Known(sum)
    }

    fn of(&self, card: PciAddress) -> impl Iterator<Item = &(u32, DrmClient)> {
        self.clients
            .iter()
            .filter(move |(_, client)| client.pdev == Some(card))
    }

    fn unseen_words<T>(&self) -> Observation<T> {
        Observation::unknown(format!(
            "{} processes of others could not be looked at",
            self.unseen
        ))
    }
}

/// The fdinfo texts of a process's DRM descriptors.
fn process(roots: &Roots, pid: u32) -> Result<Vec<String>, KernelFileError> {
    let folder = roots.proc.join(pid.to_string());
    let mut texts = Vec::new();
    for name in files::names(&folder.join("fd"))?.unwrap_or_default() {
        let Some(target) = files::link(&folder.join("fd").join(&name))? else {
            continue;
        };
        if !target.starts_with("/dev/dri") && !target.starts_with("/dev/accel") {
            continue;
        }
        if let Some(text) = files::text(&folder.join("fdinfo").join(&name))? {
            texts.push(text);
        }
    }
    Ok(texts)
}

fn client(text: &str) -> Option<DrmClient> {
    let mut lines: BTreeMap<&str, &str> = BTreeMap::new();
    for line in text.lines() {
        if let Some((key, value)) = line.split_once(':')
            && let Some(key) = key.strip_prefix("drm-")
        {
            lines.insert(key, value.trim());
        }
    }
    let driver = (*lines.get("driver")?).to_owned();
    Some(DrmClient {
        driver,
        pdev: lines.get("pdev").and_then(|text| text.parse().ok()),
        client_id: lines.get("client-id").and_then(|text| text.parse().ok()),
        memory_bytes: memory(&lines),
        engines: engines(&lines),
    })
}

/// The memory of all regions on the card. A region is told by up to three keys: what is resident
/// now is meant; older kernels have `drm-memory-` for it, and a driver may tell only the total.
fn memory(lines: &BTreeMap<&str, &str>) -> Observation<u64> {
    let mut regions: BTreeMap<&str, [Option<&str>; 3]> = BTreeMap::new();
    for (key, value) in lines {
        for (rank, prefix) in ["resident-", "memory-", "total-"].into_iter().enumerate() {
            if let Some(region) = key.strip_prefix(prefix)
                && is_on_card(region)
                && let Some(slot) = regions.entry(region).or_default().get_mut(rank)
            {
                *slot = Some(value);
            }
        }
    }
    if regions.is_empty() {
        return Observation::Absent;
    }
    let mut sum = 0u64;
    for (region, told) in regions {
        let Some(text) = told.into_iter().flatten().next() else {
            continue;
        };
        match bytes(text) {
            Some(bytes) => sum = sum.saturating_add(bytes),
            None => return Observation::unknown(format!("fdinfo says {region} is {text:?}")),
        }
    }
    Observation::Known(sum)
}

/// `vram0` of xe, `vram` of amdgpu, `local0` and `stolen-local0` of i915; not `cycles-rcs`.
fn is_on_card(region: &str) -> bool {
    ["vram", "local", "stolen-local"].iter().any(|prefix| {
        region
            .strip_prefix(prefix)
            .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
    })
}

/// Parses a size: bytes, or with the unit KiB or MiB.
fn bytes(text: &str) -> Option<u64> {
    let (digits, unit) = text.split_once(' ').unwrap_or((text, ""));
    let shift = match unit.trim() {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

/// Busy time by engine: `drm-engine-render: 123 ns`, or `drm-cycles-rcs: 123` of xe.
fn engines(lines: &BTreeMap<&str, &str>) -> BTreeMap<String, u64> {
    lines
        .iter()
        .filter_map(|(key, value)| {
            let engine = key
                .strip_prefix("engine-")
                .filter(|name| !name.starts_with("capacity-"))
                .or_else(|| key.strip_prefix("cycles-"))?;
            let digits = value.strip_suffix(" ns").unwrap_or(value);
            Some((engine.to_owned(), digits.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const XE: &str = include_str!("../../tests/data/intel/fdinfo-xe.txt");
    const I915: &str = include_str!("../../tests/data/intel/fdinfo-i915.txt");
    const AMDGPU: &str = include_str!("../../tests/data/amd/fdinfo-amdgpu.txt");
    const AMDGPU_OLD: &str = include_str!("../../tests/data/amd/fdinfo-amdgpu-5.19.txt");
    const MIB: u64 = 1 << 20;

    fn only(text: &str) -> DrmClient {
        let mut clients = drm_clients([text]);
        assert_eq!(clients.len(), 1, "{text}");
        clients.remove(0)
    }

    #[test]
    fn each_drivers_client_has_its_memory_on_the_card() {
        for (text, driver, card, id, bytes) in [
            (XE, "xe", "0000:23:00.0", 3, 23992 << 10),
            (I915, "i915", "0000:00:02.0", 42, 384 * MIB),
            (AMDGPU, "amdgpu", "0000:84:00.0", 185, 60060 << 10),
            (AMDGPU_OLD, "amdgpu", "0000:84:00.0", 7568, 512 * MIB),
        ] {
            let client = only(text);
            assert_eq!(client.driver, driver);
            assert_eq!(
                client.pdev.map(|card| card.to_string()).as_deref(),
                Some(card)
            );
            assert_eq!(client.client_id, Some(id), "{driver}");
            assert_eq!(client.memory_bytes, Observation::Known(bytes), "{driver}");
        }
    }

    #[test]
    fn engines_are_told_in_ns_or_cycles_and_capacity_is_no_engine() {
        let engines = only(XE).engines;
        assert_eq!(engines.get("rcs"), Some(&28_257_900));
        assert_eq!(engines.len(), 5, "{engines:?}");
        let engines = only(I915).engines;
        assert_eq!(engines.get("render"), Some(&9_876_543));
        assert_eq!(engines.len(), 2, "{engines:?}");
    }

    #[test]
    fn a_client_of_many_descriptors_is_one_client() {
        assert_eq!(drm_clients([XE, XE, I915, XE]).len(), 2);
        let other = XE.replace("drm-client-id:  3", "drm-client-id:  4");
        assert_eq!(drm_clients([XE, &other]).len(), 2);
        // Without an id nothing says that two are one.
        let nameless = XE.replace("drm-client-id:  3\n", "");
        assert_eq!(drm_clients([&*nameless, &*nameless]).len(), 2);
    }

    #[test]
    fn files_that_are_no_card_are_no_clients() {
        assert_eq!(
            drm_clients(["", "pos:\t0\nflags:\t02\n", "eventfd-id: 2\n"]),
            []
        );
    }

    #[test]
    fn memory_of_the_host_is_not_the_cards() {
        let shared = "drm-driver: i915\ndrm-pdev: 0000:00:02.0\ndrm-total-system0: 64 MiB\n";
        assert_eq!(only(shared).memory_bytes, Observation::Absent);
    }

    #[test]
    fn a_size_that_is_not_understood_is_unknown() {
        for wrong in ["4 pages", "-1", "", "KiB", "99999999999999999999 KiB"] {
            let text = XE.replace(
                "drm-resident-vram0:     23992 KiB",
                &format!("drm-resident-vram0: {wrong}"),
            );
            assert_ne!(text, XE);
            let memory = only(&text).memory_bytes;
            let why = memory.why_unknown().expect("because it is no size");
            assert!(why.contains("vram0") && why.contains(wrong), "{why}");
        }
    }

    #[test]
    fn a_card_is_summed_over_clients_once_and_over_processes_apart() {
        let mut scan = DrmScan::default();
        let other = XE.replace("drm-client-id:  3", "drm-client-id:  4");
        // A child inherits its parent's descriptor; another process has its own.
        for (pid, text) in [(10, XE), (11, XE), (12, other.as_str()), (12, I915)] {
            scan.clients.push((pid, only(text)));
        }
        let card = "0000:23:00.0".parse().expect("because it is an address");
        assert_eq!(scan.used_bytes(card), Observation::Known(2 * (23992 << 10)));
        let seen: Vec<u32> = scan.seen(card).iter().map(|process| process.pid).collect();
        assert_eq!(seen, [10, 11, 12]);
        let shared = "drm-driver: i915\ndrm-pdev: 0000:00:02.0\ndrm-total-system0: 64 MiB\n";
        let mut integrated = DrmScan::default();
        integrated.clients.push((10, only(shared)));
        let place = "0000:00:02.0".parse().expect("because it is an address");
        assert_eq!(integrated.used_bytes(place), Observation::Absent);
        assert_eq!(
            integrated.used_bytes(card),
            Observation::Known(0),
            "nobody uses it"
        );
        scan.unseen = 3;
        assert!(
            scan.used_bytes(card)
                .why_unknown()
                .expect("because 3 are hidden")
                .contains('3')
        );
        assert!(scan.processes(card).why_unknown().is_some());
        assert_eq!(scan.seen(card).len(), 3);
    }

    proptest! {
        #[test]
        fn no_text_panics_and_none_loses_a_unit(
            key in "(resident|total|memory)-(vram|local)[0-9]?",
            number in 0u64..1 << 40,
            unit in "( KiB| MiB|)",
            noise in "[ -~\n]{0,200}",
        ) {
            let text = format!("drm-driver: xe\ndrm-{key}: {number}{unit}\n");
            let shift = match unit.trim() { "KiB" => 10, "MiB" => 20, _ => 0 };
            prop_assert_eq!(only(&text).memory_bytes, Observation::Known(number << shift));
            drm_clients([noise.as_str(), text.as_str()]);
        }
    }
}
