//! AMD's cards: the driver tells everything in `/sys`.
//!
//! Memory is `mem_info_vram_*` of the card. Compute processes are under `/sys/class/kfd/kfd/proc`,
//! for all users, by the pid of the first pid namespace; drawing processes are DRM clients.

use crate::devices::Roots;
use crate::devices::SourceReport;
use crate::devices::ask;
use crate::devices::cards::Card;
use crate::devices::device::{Device, DeviceMemory, Observation, Vendor, VendorProcess};
use crate::devices::fdinfo::DrmScan;
use crate::devices::files::{self, KernelFileError};
use crate::devices::pci::PciAddress;
use std::collections::BTreeMap;
use std::path::Path;

/// Adds to the kernel's cards what AMD's driver tells of them.
pub(crate) fn add(
    cards: &mut [Card],
    roots: &Roots,
    scan: &Result<DrmScan, String>,
    reports: &mut Vec<SourceReport>,
) {
    if !cards.iter().any(|card| card.device.vendor == Vendor::Amd) {
        return;
    }
    let mut raw = String::new();
    let compute = Compute::read(&roots.sys.join("class/kfd/kfd"), &mut raw);
    let outcome = match &compute {
        Ok(Some(compute)) => Observation::Known(compute.gpus.len()),
        Ok(None) => Observation::Absent,
        Err(error) => Observation::unknown(error.to_string()),
    };
    let mut report = ask::kernel_report("amd kfd", raw);
    report.outcome = outcome;
    reports.push(report);
    for card in cards {
        if card.device.vendor == Vendor::Amd && card.is_gpu {
            describe(&mut card.device, &compute, scan);
        }
    }
}

fn describe(
    device: &mut Device,
    compute: &Result<Option<Compute>, KernelFileError>,
    scan: &Result<DrmScan, String>,
) {
    let (Some(sysfs), Some(pci)) = (device.sysfs.clone(), device.pci) else {
        return;
    };
    let read = |name: &str| files::text(&sysfs.join(name));
    if let Ok(Some(name)) = read("product_name")
        && !name.is_empty()
    {
        device.name = name;
    }
    // ROCm's own form of the driver's 16 hex digits.
    if let Ok(Some(unique)) = read("unique_id")
        && unique.len() == 16
    {
        device.uuid = Some(format!("GPU-{unique}"));
    }
    device.memory = match (read("mem_info_vram_used"), read("mem_info_vram_total")) {
        (Ok(Some(used)), Ok(total)) => match used.parse() {
            Ok(used_bytes) => Observation::Known(DeviceMemory {
                total_bytes: total.and_then(|text| text.parse().ok()),
                used_bytes,
            }),
            Err(_) => Observation::unknown(format!("mem_info_vram_used is {used:?}")),
        },
        (Ok(None), _) => Observation::unknown("the driver has no mem_info_vram_used"),
        (Err(error), _) | (Ok(Some(_)), Err(error)) => Observation::unknown(error.to_string()),
    };
    device.processes = processes(pci, compute, scan);
}

/// Both kinds of processes. The list is whole where the kernel's own list of compute processes
/// could be read and every process could be looked at for drawing.
fn processes(
    pci: PciAddress,
    compute: &Result<Option<Compute>, KernelFileError>,
    scan: &Result<DrmScan, String>,
) -> Observation<Vec<VendorProcess>> {
    let scan = match scan {
        Ok(scan) => scan,
        Err(why) => return Observation::unknown(why.clone()),
    };
    let mut all: BTreeMap<u32, Option<u64>> = match scan.processes(pci) {
        Observation::Known(list) => list
            .into_iter()
            .map(|process| (process.pid, process.used_bytes))
            .collect(),
        Observation::Absent => BTreeMap::new(),
        Observation::Unknown { why } => return Observation::Unknown { why },
    };
    match compute {
        Ok(Some(compute)) => {
            for (pid, used) in compute.users_of(pci) {
                all.insert(pid, used);
            }
        }
        Ok(None) => {}
        Err(error) => return Observation::unknown(error.to_string()),
    }
    Observation::Known(
        all.into_iter()
            .map(|(pid, used_bytes)| VendorProcess { pid, used_bytes })
            .collect(),
    )
}

/// What the compute driver says: which GPU is which card, and who uses how much of it.
struct Compute {
    /// The driver's number of each GPU.
    gpus: BTreeMap<PciAddress, String>,
    /// Process, GPU, bytes.
    users: Vec<(u32, String, Option<u64>)>,
}

impl Compute {
    fn read(folder: &Path, raw: &mut String) -> Result<Option<Self>, KernelFileError> {
        let nodes = folder.join("topology/nodes");
        let Some(names) = files::names(&nodes)? else {
            return Ok(None);
        };
        let mut compute = Self {
            gpus: BTreeMap::new(),
            users: Vec::new(),
        };
        for name in names {
            let id = files::text(&nodes.join(&name).join("gpu_id"))?;
            let properties = files::text(&nodes.join(&name).join("properties"))?;
            // A node that is a processor has the number 0.
            if let (Some(id), Some(properties)) = (id, properties)
                && id != "0"
                && let Some(pci) = address(&properties)
            {
                *raw += &format!("node {name}: gpu_id={id} pci={pci}\n");
                compute.gpus.insert(pci, id);
            }
        }
        let processes = folder.join("proc");
        for name in files::names(&processes)?.unwrap_or_default() {
            let Ok(pid) = name.parse() else { continue };
            for file in files::names(&processes.join(&name))?.unwrap_or_default() {
                if let Some(gpu) = file.strip_prefix("vram_")
                    && let Some(text) = files::text(&processes.join(&name).join(&file))?
                {
                    *raw += &format!("process {pid}: {file}={text}\n");
                    compute.users.push((pid, gpu.to_owned(), text.parse().ok()));
                }
            }
        }
        Ok(Some(compute))
    }

    /// Who has memory of a card. A compute process is told of every GPU; one that has nothing of a
    /// card is no user of it.
    fn users_of(&self, pci: PciAddress) -> impl Iterator<Item = (u32, Option<u64>)> {
        let gpu = self.gpus.get(&pci);
        self.users
            .iter()
            .filter(move |(_, on, used)| Some(on) == gpu && *used != Some(0))
            .map(|(pid, _, used)| (*pid, *used))
    }
}

/// The card's address from a node's properties: `location_id` has bus, slot and function.
fn address(properties: &str) -> Option<PciAddress> {
    let number = |key: &str| -> Option<u32> {
        properties.lines().find_map(|line| {
            let (name, value) = line.split_once(' ')?;
            (name == key).then(|| value.trim().parse().ok())?
        })
    };
    let [_, _, bus, place] = number("location_id")?.to_be_bytes();
    Some(PciAddress {
        domain: number("domain").unwrap_or(0),
        bus,
        slot: place >> 3,
        function: place & 7,
    })
}
