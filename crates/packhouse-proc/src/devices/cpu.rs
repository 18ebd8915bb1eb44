//! Cores and NUMA nodes, by the kernel (`/sys/devices/system`).

use crate::cores::CpuSet;
use crate::devices::device::{Device, DeviceId, Observation, Vendor};
use crate::devices::files::{self, KernelFileError};
use crate::devices::{Roots, SourceReport, tools::RawReport};

/// The cores that are online, the nodes, and what the kernel said of them.
pub(crate) struct Cores {
    pub(crate) online: Observation<CpuSet>,
    pub(crate) nodes: Vec<Device>,
    pub(crate) report: SourceReport,
}

/// Reads which cores there are, and which node each is of. Kernels without NUMA have no nodes:
/// then all cores are one node.
pub(crate) fn cores(roots: &Roots) -> Cores {
    let mut raw = String::new();
    let online = online(roots, &mut raw);
    let name = model(roots).unwrap_or_else(|| "CPU".to_owned());
    let nodes = match &online {
        Observation::Known(online) => nodes(roots, online, &name, &mut raw),
        Observation::Absent | Observation::Unknown { .. } => {
            Err("it is not known which cores are online".to_owned())
        }
    };
    let (nodes, outcome) = match nodes {
        Ok(nodes) => {
            let outcome = Observation::Known(nodes.len());
            (nodes, outcome)
        }
        Err(why) => (Vec::new(), Observation::Unknown { why }),
    };
    Cores {
        online,
        nodes,
        report: SourceReport {
            source: SOURCE,
            raw: Some(RawReport {
                source: SOURCE,
                version: None,
                text: raw,
                observer: None,
            }),
            outcome,
        },
    }
}

/// The report's name.
pub(crate) const SOURCE: &str = "numa";

fn online(roots: &Roots, raw: &mut String) -> Observation<CpuSet> {
    let path = roots.sys.join("devices/system/cpu/online");
    match files::text(&path) {
        Ok(Some(list)) => {
            *raw += &format!("devices/system/cpu/online: {list}\n");
            match CpuSet::parse(&list) {
                Ok(cores) => Observation::Known(cores),
                Err(error) => Observation::unknown(format!("{}: {error}", path.display())),
            }
        }
        Ok(None) => Observation::unknown(format!("there is no {}", path.display())),
        Err(error) => Observation::unknown(error.to_string()),
    }
}

fn nodes(
    roots: &Roots,
    online: &CpuSet,
    name: &str,
    raw: &mut String,
) -> Result<Vec<Device>, String> {
    let words = |error: KernelFileError| error.to_string();
    let folder = roots.sys.join("devices/system/node");
    let mut nodes = Vec::new();
    for entry in files::names(&folder).map_err(words)?.unwrap_or_default() {
        let Some(node) = entry
            .strip_prefix("node")
            .and_then(|text| text.parse().ok())
        else {
            continue;
        };
        let path = folder.join(&entry);
        let Some(list) = files::text(&path.join("cpulist")).map_err(words)? else {
            continue;
        };
        *raw += &format!("devices/system/node/{entry}/cpulist: {list}\n");
        let cores = CpuSet::parse_kernel_list(&list)
            .map_err(|error| format!("{}: {error}", path.display()))?;
        // A node of memory alone has no cores to work on.
        if !cores.is_empty() {
            nodes.push(device(node, cores, name));
        }
    }
    if nodes.is_empty() {
        nodes.push(device(0, online.clone(), name));
    }
    nodes.sort_by_key(|node| node.numa);
    Ok(nodes)
}

fn device(node: u32, cores: CpuSet, name: &str) -> Device {
    Device {
        id: DeviceId::of_numa(node),
        vendor: Vendor::Cpu,
        name: name.to_owned(),
        uuid: None,
        pci: None,
        nodes: Vec::new(),
        drm: None,
        cores: Some(cores),
        numa: Some(node),
        ordinal_in_pci_order: None,
        driver: None,
        sysfs: None,
        memory: Observation::Absent,
        processes: Observation::Absent,
        parent: None,
    }
}

/// The processor's name, for people.
fn model(roots: &Roots) -> Option<String> {
    let text = files::text(&roots.proc.join("cpuinfo")).ok()??;
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == "model name").then(|| value.trim().to_owned())
    })
}
