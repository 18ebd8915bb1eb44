//! Cards on the PCI bus, by the kernel: the only source that needs no vendor's library or tool.
//!
//! Invariant: a card that the bus has is in the list, whatever its driver and tools say.

use crate::cores::CpuSet;
use crate::devices::device::{Device, DeviceId, DeviceNode, DrmNodes, Observation, Vendor};
use crate::devices::files::{self, KernelFileError};
use crate::devices::pci::PciAddress;
use crate::devices::tools::RawReport;
use crate::devices::{Roots, SourceReport};
use std::path::{Path, PathBuf};

/// A card, and its class of work.
pub(crate) struct Card {
    pub(crate) device: Device,
    /// Whether it counts among its vendor's GPUs: a neural accelerator has its own list.
    pub(crate) is_gpu: bool,
}

/// Reads which cards the bus has, in PCI order.
pub(crate) fn cards(roots: &Roots) -> (Vec<Card>, SourceReport) {
    let mut raw = String::new();
    let (mut cards, outcome) = list(roots, &mut raw);
    cards.sort_by_key(|card| card.device.pci);
    number(&mut cards);
    let report = SourceReport {
        source: SOURCE,
        raw: Some(RawReport {
            source: SOURCE,
            version: None,
            text: raw,
            observer: None,
        }),
        outcome,
    };
    (cards, report)
}

/// The report's name.
pub(crate) const SOURCE: &str = "pci";

/// Numbers each vendor's GPUs in PCI order. Runtimes count the cards of their own driver only: not
/// those that no driver has, or that are passed to a virtual machine.
pub(crate) fn number(cards: &mut [Card]) {
    for vendor in [Vendor::Nvidia, Vendor::Intel, Vendor::Amd, Vendor::Other] {
        let same = cards
            .iter_mut()
            .filter(|card| card.device.vendor == vendor && is_counted(card));
        for (ordinal, card) in (0..).zip(same) {
            card.device.ordinal_in_pci_order = Some(ordinal);
        }
    }
}

fn is_counted(card: &Card) -> bool {
    let driver = card.device.driver.as_deref();
    let is_own = match card.device.vendor {
        // The bus does not show a card that only the library knows.
        Vendor::Nvidia => driver == Some("nvidia") || card.device.sysfs.is_none(),
        Vendor::Intel => matches!(driver, Some("xe" | "i915")),
        Vendor::Amd => driver == Some("amdgpu"),
        Vendor::Other => true,
        Vendor::Cpu => false,
    };
    card.is_gpu && is_own
}

/// A card whose files can't all be read hides no other.
fn list(roots: &Roots, raw: &mut String) -> (Vec<Card>, Observation<usize>) {
    let folder = roots.sys.join("bus/pci/devices");
    let names = match files::names(&folder) {
        Ok(Some(names)) => names,
        Ok(None) => return (Vec::new(), Observation::Absent),
        Err(error) => return (Vec::new(), Observation::unknown(error.to_string())),
    };
    let mut cards = Vec::new();
    let mut unread = None;
    for name in names {
        let Ok(address) = name.parse::<PciAddress>() else {
            continue;
        };
        match card(roots, &folder.join(&name), address, raw) {
            Ok(card) => cards.extend(card),
            Err(error) => unread = Some(error),
        }
    }
    let outcome = match unread {
        Some(error) => Observation::unknown(error.to_string()),
        None => Observation::Known(cards.len()),
    };
    (cards, outcome)
}

fn card(
    roots: &Roots,
    folder: &Path,
    address: PciAddress,
    raw: &mut String,
) -> Result<Option<Card>, KernelFileError> {
    let Some(class) = files::text(&folder.join("class"))?.as_deref().and_then(hex) else {
        return Ok(None);
    };
    let base_class = class >> 16;
    let accelerators = files::names(&folder.join("accel"))?.unwrap_or_default();
    let is_gpu = base_class == CLASS_DISPLAY;
    if !is_gpu && base_class != CLASS_ACCELERATOR && accelerators.is_empty() {
        return Ok(None);
    }
    let vendor_id = files::text(&folder.join("vendor"))?
        .as_deref()
        .and_then(hex);
    let device_id = files::text(&folder.join("device"))?
        .as_deref()
        .and_then(hex);
    let driver = files::link(&folder.join("driver"))?
        .and_then(|link| Some(link.file_name()?.to_string_lossy().into_owned()));
    let numa = files::text(&folder.join("numa_node"))?.and_then(|text| text.parse().ok());
    let near = files::text(&folder.join("local_cpulist"))?
        .and_then(|list| CpuSet::parse_kernel_list(&list).ok())
        .filter(|cores| !cores.is_empty());
    let drm_names = files::names(&folder.join("drm"))?.unwrap_or_default();
    let drm = drm(&drm_names);
    let nodes = nodes(roots, folder, drm.as_ref(), &accelerators)?;
    let maker = vendor(vendor_id);
    *raw += &format!(
        "{address} class={class:#08x} vendor={} device={} driver={} numa_node={} nodes={}\n",
        id_words(vendor_id),
        id_words(device_id),
        driver.as_deref().unwrap_or("none"),
        numa.map_or_else(|| "none".to_owned(), |node: u32| node.to_string()),
        node_words(&nodes),
    );
    Ok(Some(Card {
        device: Device {
            id: DeviceId::of_pci(address),
            // The vendors' masks and tools are those of their GPUs.
            vendor: if is_gpu { maker } else { Vendor::Other },
            name: name(maker, is_gpu, vendor_id, device_id),
            uuid: None,
            pci: Some(address),
            nodes,
            drm,
            cores: near,
            numa,
            ordinal_in_pci_order: None,
            driver,
            sysfs: Some(folder.to_owned()),
            memory: Observation::unknown("no source that was asked tells it"),
            processes: Observation::unknown("no source that was asked tells them"),
            parent: None,
        },
        is_gpu,
    }))
}

/// The card's own nodes: of DRM, and of neural accelerators.
fn nodes(
    roots: &Roots,
    folder: &Path,
    drm: Option<&DrmNodes>,
    accelerators: &[String],
) -> Result<Vec<DeviceNode>, KernelFileError> {
    let drm_names = drm
        .into_iter()
        .flat_map(|drm| drm.card.iter().chain(&drm.render));
    let drm_nodes = drm_names.map(|name| ("drm", "dri", name));
    let others = accelerators.iter().map(|name| ("accel", "accel", name));
    drm_nodes
        .chain(others)
        .map(|(kernel, devices, name)| {
            node(
                roots.dev.join(devices).join(name),
                &folder.join(kernel).join(name),
            )
        })
        .collect()
}

/// A node with its number: of the node itself, or, where it is not there to look at, of the kernel.
fn node(path: PathBuf, sysfs: &Path) -> Result<DeviceNode, KernelFileError> {
    let rdev = match files::device_number(&path) {
        Some(rdev) => Some(rdev),
        None => files::text(&sysfs.join("dev"))?
            .as_deref()
            .and_then(number_of),
    };
    Ok(DeviceNode { path, rdev })
}

/// Parses `226:128`.
fn number_of(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(
        major.parse().ok()?,
        minor.parse().ok()?,
    ))
}

fn drm(names: &[String]) -> Option<DrmNodes> {
    let named = |prefix: &str| {
        names
            .iter()
            .find(|name| {
                name.strip_prefix(prefix).is_some_and(|digits| {
                    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
                })
            })
            .cloned()
    };
    let nodes = DrmNodes {
        card: named("card"),
        render: named("renderD"),
    };
    (nodes != DrmNodes::default()).then_some(nodes)
}

fn vendor(id: Option<u32>) -> Vendor {
    match id {
        Some(0x10de) => Vendor::Nvidia,
        Some(0x8086) => Vendor::Intel,
        Some(0x1002) => Vendor::Amd,
        Some(_) | None => Vendor::Other,
    }
}

fn name(vendor: Vendor, is_gpu: bool, vendor_id: Option<u32>, device_id: Option<u32>) -> String {
    let maker = match vendor {
        Vendor::Nvidia => "NVIDIA",
        Vendor::Intel => "Intel",
        Vendor::Amd => "AMD",
        Vendor::Cpu | Vendor::Other => "unknown",
    };
    let kind = if is_gpu { "GPU" } else { "accelerator" };
    format!(
        "{maker} {kind} {}:{}",
        id_words(vendor_id),
        id_words(device_id)
    )
}

fn id_words(id: Option<u32>) -> String {
    id.map_or_else(|| "unknown".to_owned(), |id| format!("{id:04x}"))
}

fn node_words(nodes: &[DeviceNode]) -> String {
    if nodes.is_empty() {
        return "none".to_owned();
    }
    let words: Vec<String> = nodes
        .iter()
        .map(|node| node.path.display().to_string())
        .collect();
    words.join(",")
}

/// Parses `0x10de`.
fn hex(text: &str) -> Option<u32> {
    u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

/// PCI base class of display controllers, which GPUs are, with a display or without.
const CLASS_DISPLAY: u32 = 0x03;
/// PCI base class of processing accelerators.
const CLASS_ACCELERATOR: u32 = 0x12;
