//! Intel's cards: the kernel's DRM clients, and `xpu-smi` for what it alone tells.
//!
//! Invariants:
//! - `xpu-smi` is believed about a card by its PCI address; its ordinals mean nothing outside one
//!   answer;
//! - its list of processes is added to the kernel's, never put in its place: newer versions leave
//!   out processes that hold memory and have not computed yet;
//! - the process that asked is left out by its pid, which was ours while it spoke.

use crate::devices::SourceReport;
use crate::devices::ask;
use crate::devices::cards::Card;
use crate::devices::device::{DeviceMemory, Observation, Vendor, VendorProcess};
use crate::devices::fdinfo::DrmScan;
use crate::devices::pci::PciAddress;
use crate::devices::tools::{Question, ToolAnswer, Tools};
use crate::devices::unlisted::with_unlisted;
use crate::devices::xpu_smi::{self, XpuCard, XpuProcess};
use std::collections::BTreeMap;

/// Adds to the kernel's cards what DRM and `xpu-smi` tell of them.
pub(crate) fn add(
    cards: &mut [Card],
    tools: &dyn Tools,
    scan: &Result<DrmScan, String>,
    reports: &mut Vec<SourceReport>,
) {
    let has_card = cards
        .iter()
        .any(|card| card.device.vendor == Vendor::Intel && card.is_gpu);
    if !has_card {
        return;
    }
    let question = Question::XpuSmiCards;
    let listed = ask::parsed(&question, tools.ask(&question), reports, xpu_smi::cards);
    let users = match &listed {
        Some(_) => users(tools, reports),
        None => Err(last_why(reports)),
    };
    for card in cards {
        if card.device.vendor != Vendor::Intel || !card.is_gpu {
            continue;
        }
        let Some(pci) = card.device.pci else {
            continue;
        };
        let told = listed.iter().flatten().find(|listed| listed.pci == pci);
        if let Some(told) = told {
            if let Some(name) = &told.name {
                card.device.name.clone_from(name);
            }
            card.device.uuid.clone_from(&told.uuid);
        }
        let users = match (told, &users) {
            (Some(told), Ok(users)) => on_card(users, listed.as_deref().unwrap_or(&[]), told),
            (None, Ok(_)) => Err("xpu-smi does not list the card".to_owned()),
            (Some(_) | None, Err(why)) => Err(why.clone()),
        };
        card.device.memory = match told {
            Some(_) => memory(pci, tools, scan, reports),
            None => by_clients(pci, scan, None),
        };
        let processes = processes(pci, scan, users);
        card.device.processes = with_unlisted(&card.device.memory, processes, IDLE_BYTES_MAX);
    }
}

/// The counters include what the driver reserves: 63 MiB for each tile on some cards, and more on
/// others.
const IDLE_BYTES_MAX: u64 = 512 << 20;

/// The processes of all cards as `xpu-smi` lists them, without itself.
fn users(tools: &dyn Tools, reports: &mut Vec<SourceReport>) -> Result<Vec<XpuProcess>, String> {
    let question = Question::XpuSmiProcesses;
    let answer = tools.ask(&question);
    let observer = match &answer {
        ToolAnswer::Said(raw) => raw.observer,
        ToolAnswer::Absent | ToolAnswer::Failed { .. } => None,
    };
    match ask::parsed(&question, answer, reports, xpu_smi::processes) {
        Some(list) => Ok(list
            .into_iter()
            .filter(|process| Some(process.pid) != observer)
            .collect()),
        None => Err(last_why(reports)),
    }
}

/// Of a list of all cards, the processes on one. A row of a card that the other answer does not
/// list may be of any card: then nobody's list is known.
fn on_card(
    users: &[XpuProcess],
    listed: &[XpuCard],
    card: &XpuCard,
) -> Result<Vec<VendorProcess>, String> {
    let stranger = users
        .iter()
        .find(|user| !listed.iter().any(|card| card.ordinal == user.ordinal));
    if let Some(user) = stranger {
        return Err(format!(
            "xpu-smi lists process {} on its card {}, and no such card",
            user.pid, user.ordinal
        ));
    }
    Ok(users
        .iter()
        .filter(|user| user.ordinal == card.ordinal)
        .map(|user| VendorProcess {
            pid: user.pid,
            used_bytes: user.used_bytes,
        })
        .collect())
}

/// The kernel's clients and `xpu-smi`'s list together. Known where either saw everybody.
fn processes(
    pci: PciAddress,
    scan: &Result<DrmScan, String>,
    users: Result<Vec<VendorProcess>, String>,
) -> Observation<Vec<VendorProcess>> {
    let is_whole = scan.as_ref().is_ok_and(|scan| scan.unseen == 0);
    let mut all: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    if let Ok(scan) = scan {
        let seen = scan.seen(pci).into_iter();
        all.extend(seen.map(|process| (process.pid, process.used_bytes)));
    }
    match (users, is_whole) {
        (Ok(users), _) => {
            for user in users {
                let used = all.entry(user.pid).or_insert(user.used_bytes);
                *used = (*used).max(user.used_bytes);
            }
        }
        (Err(_), true) => {}
        (Err(why), false) => {
            let unseen = match scan {
                Ok(scan) => format!("{} processes of others could not be looked at", scan.unseen),
                Err(why) => why.clone(),
            };
            return Observation::unknown(format!("{unseen}; {why}"));
        }
    }
    Observation::Known(
        all.into_iter()
            .map(|(pid, used_bytes)| VendorProcess { pid, used_bytes })
            .collect(),
    )
}

/// The memory by the card's counters, or by the sum of its clients.
fn memory(
    pci: PciAddress,
    tools: &dyn Tools,
    scan: &Result<DrmScan, String>,
    reports: &mut Vec<SourceReport>,
) -> Observation<DeviceMemory> {
    let question = Question::XpuSmiCard {
        pci: pci.to_string(),
    };
    let total_bytes = ask::parsed(&question, tools.ask(&question), reports, |text| {
        xpu_smi::total_bytes(text).map(|total| total.into_iter().collect())
    })
    .and_then(|totals| totals.first().copied());
    let question = Question::XpuSmiCounters {
        pci: pci.to_string(),
    };
    let used = ask::parsed(&question, tools.ask(&question), reports, |text| {
        xpu_smi::used_bytes(text, pci).map(|used| vec![used])
    });
    match used.and_then(|used| used.first().copied()) {
        Some(used_bytes) => Observation::Known(DeviceMemory {
            total_bytes,
            used_bytes,
        }),
        None => by_clients(pci, scan, total_bytes),
    }
}

fn by_clients(
    pci: PciAddress,
    scan: &Result<DrmScan, String>,
    total_bytes: Option<u64>,
) -> Observation<DeviceMemory> {
    let used = match scan {
        Ok(scan) => scan.used_bytes(pci),
        Err(why) => Observation::unknown(why.clone()),
    };
    match used {
        Observation::Known(used_bytes) => Observation::Known(DeviceMemory {
            total_bytes,
            used_bytes,
        }),
        Observation::Absent => Observation::Absent,
        Observation::Unknown { why } => Observation::Unknown { why },
    }
}

fn last_why(reports: &[SourceReport]) -> String {
    let Some(report) = reports.last() else {
        return "nobody was asked".to_owned();
    };
    match &report.outcome {
        Observation::Unknown { why } => format!("{}: {why}", report.source),
        Observation::Absent | Observation::Known(_) => format!("there is no {}", report.source),
    }
}
