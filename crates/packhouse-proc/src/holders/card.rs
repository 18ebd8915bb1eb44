//! What a process has to do with one card: what it has open, and what its masks let it reach.
//!
//! Invariants:
//! - an open node alone is not always a hold: tools that watch a card open it, and CUDA opens every
//!   card for a moment before it masks them; what makes the difference is read, not guessed;
//! - where that can't be read, an open node holds the card.

use super::engines::{self, Kind};
use super::seen::{Nodes, Seen};
use super::{Found, How, Weight};
use crate::devices::{Device, Observation, Vendor};
use crate::masks::{Covers, View, at_most, covers};
use std::collections::BTreeSet;

/// A card, and what processes on it are judged by.
pub(super) struct Card<'a> {
    pub(super) device: &'a Device,
    pub(super) all: &'a [Device],
    /// The pids of the vendor's list, where it is whole and has our pids.
    pub(super) listed: Option<BTreeSet<u32>>,
}

impl Card<'_> {
    /// Adds what a process has open of the card; answers whether that is anything.
    pub(super) fn opened(&self, seen: &Seen, found: &mut Found) -> bool {
        let Ok(nodes) = &seen.nodes else {
            return false;
        };
        let clients = nodes
            .clients
            .iter()
            .filter(|client| client.pdev.is_some() && client.pdev == self.device.pci);
        let mut is_open = false;
        let mut is_at_work = None;
        for client in clients {
            is_open = true;
            let memory_bytes = client.memory_bytes.known().copied();
            let is_idle = client.engines.values().all(|busy| *busy == 0)
                && !matches!(client.memory_bytes, Observation::Unknown { .. })
                && memory_bytes.unwrap_or(0) == 0;
            is_at_work = Some(is_at_work.unwrap_or(false) || !is_idle);
            let weight = self.weight(seen, nodes, Some(!is_idle));
            found.add(seen, How::DrmClient { memory_bytes }, weight);
        }
        for (rdev, path) in &nodes.open {
            if has_node(self.device, *rdev) {
                is_open = true;
                let path = path.display().to_string();
                let weight = self.weight(seen, nodes, is_at_work);
                found.add(seen, How::OpenNode { path }, weight);
            }
        }
        is_open
    }

    /// Whether a process is an engine that may compute on cards like this one.
    pub(super) fn is_suspect(&self, seen: &Seen) -> bool {
        match (seen.kind, &seen.nodes) {
            (Kind::Other | Kind::ByCoreLibrary, _) => false,
            (Kind::ByName, _) | (Kind::ByCardLibrary, Err(_)) => true,
            // NVML loads CUDA's library too, and who only loaded a runtime has no card.
            (Kind::ByCardLibrary, Ok(nodes)) => computes(seen, nodes, self.device.vendor),
        }
    }

    /// Why an engine may reach the card without having it open; `None`: it can't.
    pub(super) fn may_reach(&self, seen: &Seen) -> Option<String> {
        let environment = match &seen.environment {
            Ok(environment) => environment,
            Err(why) => {
                return Some(format!(
                    "its environment, and so its masks, can't be read: {why}"
                ));
            }
        };
        let view = view(seen, environment);
        let why = match covers(&view, self.device, self.all) {
            Covers::No => return None,
            Covers::Yes => String::new(),
            Covers::Maybe { why } => why,
        };
        // A mask that shows so many cards shows no further one, once as many others are open.
        let others = self
            .all
            .iter()
            .filter(|other| other.vendor == self.device.vendor && other.parent.is_none())
            .filter(|other| other.id != self.device.id && has_open(seen, other))
            .count();
        let is_vulkan = seen.runtimes.as_ref().is_ok_and(|runtimes| runtimes.vulkan);
        match at_most(&view, self.device.vendor) {
            Some(count) if others == count && count > 0 && !is_vulkan => None,
            Some(_) | None => Some(why),
        }
    }

    /// What an open node of the card weighs. `is_at_work`: what its driver says of the process,
    /// where it says anything.
    fn weight(&self, seen: &Seen, nodes: &Nodes, is_at_work: Option<bool>) -> Weight {
        if self.is_only_open(seen, nodes, is_at_work) {
            return Weight::Note;
        }
        if self.device.parent.is_some() {
            // The parts of a card share its node.
            return Weight::MayHold;
        }
        Weight::Holds
    }

    /// Whether a process has the card open and is proven to have nothing on it.
    fn is_only_open(&self, seen: &Seen, nodes: &Nodes, is_at_work: Option<bool>) -> bool {
        let is_watcher = engines::is_watcher(&seen.name);
        match (self.device.vendor, &self.listed) {
            (Vendor::Nvidia, Some(listed)) => {
                !listed.contains(&seen.key.pid)
                    && (!computes(seen, nodes, Vendor::Nvidia) || self.is_masked(seen))
            }
            (Vendor::Nvidia, None) => is_watcher && !computes(seen, nodes, Vendor::Nvidia),
            (Vendor::Intel | Vendor::Amd | Vendor::Other | Vendor::Cpu, _) => {
                let is_bystander = !seen.kind.is_for_cards() || is_watcher || self.is_masked(seen);
                is_at_work == Some(false) && is_bystander
            }
        }
    }

    /// Whether a process' masks are known to hide the card.
    fn is_masked(&self, seen: &Seen) -> bool {
        let environment = seen.environment.as_ref().ok();
        seen.kind.is_engine()
            && environment.is_some_and(|environment| {
                covers(&view(seen, environment), self.device, self.all) == Covers::No
            })
    }
}

fn view<'a>(
    seen: &'a Seen,
    environment: &'a [(std::ffi::OsString, std::ffi::OsString)],
) -> View<'a> {
    View {
        environment,
        runtimes: seen.runtimes.as_ref().ok().copied(),
        elsewhere: seen.is_below,
    }
}

/// Whether a process has open what computing on any card of a vendor takes.
fn computes(seen: &Seen, nodes: &Nodes, vendor: Vendor) -> bool {
    let wanted: &[&str] = match vendor {
        Vendor::Cpu => &[],
        Vendor::Nvidia => &["/dev/nvidia-uvm"],
        Vendor::Amd => &["/dev/kfd"],
        Vendor::Intel | Vendor::Other => &["/dev/dri", "/dev/accel"],
    };
    if vendor == Vendor::Nvidia && seen.asks_only && seen.kind != Kind::ByName {
        return false;
    }
    nodes
        .devices
        .iter()
        .any(|path| wanted.iter().any(|wanted| path.starts_with(wanted)))
}

fn has_open(seen: &Seen, device: &Device) -> bool {
    let nodes = seen.nodes.as_ref().ok();
    nodes.is_some_and(|nodes| nodes.open.iter().any(|(rdev, _)| has_node(device, *rdev)))
}

fn has_node(device: &Device, rdev: u64) -> bool {
    device.nodes.iter().any(|node| node.rdev == Some(rdev))
}
