//! NVIDIA's cards: what NVML says, or `nvidia-smi` where the library can't be loaded, or the
//! driver's own files in `/proc`, which tell who a card is but not who uses it.
//!
//! Invariants:
//! - memory counts without what the driver keeps for itself, so that an idle card has 0;
//! - a card with memory in use and an empty list of processes has an unknown list: NVML does not
//!   show processes of other containers.

mod document;
mod report;
mod tree;

pub use document::cards as cards_of_nvml;
pub use report::cards as cards_of_report;

use crate::devices::cards::{self, Card};
use crate::devices::device::{
    Device, DeviceId, DeviceMemory, DeviceNode, Observation, Vendor, VendorProcess,
};
use crate::devices::files;
use crate::devices::pci::PciAddress;
use crate::devices::tools::{Question, ToolAnswer, Tools};
use crate::devices::unlisted::with_unlisted;
use crate::devices::{Roots, SourceReport, ask};
use std::collections::BTreeMap;

/// What one source says of one card, or of a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaCard {
    /// The card's address; a part has its card's.
    pub pci: PciAddress,
    /// `GPU-...`, or `MIG-...` for a part.
    pub uuid: String,
    /// For people.
    pub name: String,
    /// The N of `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// Its memory.
    pub memory: Observation<DeviceMemory>,
    /// Who uses it.
    pub processes: Observation<Vec<VendorProcess>>,
    /// Whether it is a part of a card.
    pub is_part: bool,
}

/// Adds to the kernel's cards what NVIDIA's sources know, and parts after their cards.
pub(crate) fn add(
    cards: &mut Vec<Card>,
    tools: &dyn Tools,
    roots: &Roots,
    reports: &mut Vec<SourceReport>,
) {
    let has_card = cards
        .iter()
        .any(|card| card.device.vendor == Vendor::Nvidia);
    let mut why = Vec::new();
    let sources: [(Question, Parser); 2] = [
        (Question::Nvml, document::cards),
        (Question::NvidiaSmi, report::cards),
    ];
    for (question, parse) in sources {
        let answer = tools.ask(&question);
        if answer == ToolAnswer::Absent {
            why.push(format!("{} is not there", question.source()));
        }
        match ask::parsed(&question, answer, reports, parse) {
            Some(told) => {
                driver_files(cards, roots, reports);
                for card in told {
                    merge(cards, roots, card);
                }
                cards::number(cards);
                return;
            }
            None => why.extend(reports.last().and_then(|report| {
                Some(format!(
                    "{}: {}",
                    report.source,
                    report.outcome.why_unknown()?
                ))
            })),
        }
        if !has_card {
            return;
        }
    }
    driver_files(cards, roots, reports);
    let why = why.join("; ");
    for card in cards {
        if card.device.vendor == Vendor::Nvidia {
            card.device.memory = Observation::unknown(why.clone());
            card.device.processes = Observation::unknown(why.clone());
        }
    }
}

type Parser = fn(&str) -> Result<Vec<NvidiaCard>, String>;

/// Puts what a source says of a card into the card of that address. A card that the kernel's bus
/// does not show, as in some virtual machines, is added.
fn merge(cards: &mut Vec<Card>, roots: &Roots, told: NvidiaCard) {
    let place = cards.iter().rposition(|card| {
        card.device.pci == Some(told.pci) && card.device.vendor == Vendor::Nvidia
    });
    let processes = with_unlisted(&told.memory, told.processes, IDLE_BYTES_MAX);
    if !told.is_part
        && let Some(card) = place.and_then(|place| cards.get_mut(place))
    {
        card.device.id = DeviceId::of_nvidia(&told.uuid);
        card.device.uuid = Some(told.uuid);
        card.device.name = told.name;
        card.device.memory = told.memory;
        card.device.processes = processes;
        // Containers often hide the driver's own files.
        if let Some(minor) = told.minor {
            add_node(&mut card.device, own_node(roots, minor));
        }
        return;
    }
    let parent = place
        .and_then(|place| cards.get(place))
        .map(|card| &card.device);
    let device = Device {
        id: DeviceId::of_nvidia(&told.uuid),
        vendor: Vendor::Nvidia,
        name: told.name,
        uuid: Some(told.uuid),
        pci: Some(told.pci),
        nodes: match told.minor {
            Some(minor) if !told.is_part => vec![own_node(roots, minor)],
            Some(_) | None => Vec::new(),
        },
        drm: None,
        cores: parent.and_then(|parent| parent.cores.clone()),
        numa: parent.and_then(|parent| parent.numa),
        ordinal_in_pci_order: None,
        driver: parent.and_then(|parent| parent.driver.clone()),
        sysfs: parent.and_then(|parent| parent.sysfs.clone()),
        memory: told.memory,
        processes,
        parent: parent.map(|parent| parent.parent.clone().unwrap_or_else(|| parent.id.clone())),
    };
    let card = Card {
        device,
        is_gpu: !told.is_part,
    };
    match place {
        Some(place) => cards.insert(place + 1, card),
        None => cards.push(card),
    }
}

/// What the driver keeps on a card that nobody uses, beside what it reserves: 3.4 MB were seen when
/// the neighbour computed. A process with a context takes more than this.
const IDLE_BYTES_MAX: u64 = 96 << 20;

/// Reads the driver's own files: UUID, name and node of each card.
fn driver_files(cards: &mut [Card], roots: &Roots, reports: &mut Vec<SourceReport>) {
    for card in cards.iter_mut() {
        if card.device.vendor != Vendor::Nvidia {
            continue;
        }
        let Some(pci) = card.device.pci else {
            continue;
        };
        let path = roots
            .proc
            .join(format!("driver/nvidia/gpus/{pci}/information"));
        let text = match files::text(&path) {
            Ok(Some(text)) => text,
            Ok(None) => continue,
            Err(error) => {
                reports.push(SourceReport {
                    source: DRIVER_SOURCE,
                    raw: None,
                    outcome: Observation::unknown(error.to_string()),
                });
                continue;
            }
        };
        let lines: BTreeMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.split_once(':'))
            .map(|(key, value)| (key.trim(), value.trim()))
            .collect();
        if let Some(name) = lines.get("Model") {
            card.device.name = (*name).to_owned();
        }
        // A driver that has not started the card writes question marks.
        if let Some(uuid) = lines.get("GPU UUID").filter(|uuid| !uuid.contains('?')) {
            card.device.id = DeviceId::of_nvidia(uuid);
            card.device.uuid = Some((*uuid).to_owned());
        }
        if let Some(minor) = lines.get("Device Minor").and_then(|text| text.parse().ok()) {
            add_node(&mut card.device, own_node(roots, minor));
        }
        reports.push(ask::kernel_report(DRIVER_SOURCE, text));
    }
}

/// The driver's report's name.
const DRIVER_SOURCE: &str = "pci: nvidia driver";

fn add_node(device: &mut Device, node: DeviceNode) {
    if !device.nodes.contains(&node) {
        device.nodes.insert(0, node);
    }
}

fn own_node(roots: &Roots, minor: u32) -> DeviceNode {
    let path = roots.dev.join(format!("nvidia{minor}"));
    let rdev =
        files::device_number(&path).unwrap_or_else(|| rustix::fs::makedev(NVIDIA_MAJOR, minor));
    DeviceNode {
        path,
        rdev: Some(rdev),
    }
}

/// The major number that the kernel's list of devices reserves for NVIDIA's cards.
const NVIDIA_MAJOR: u32 = 195;
