//! Parses `nvidia-smi -q -x`, for hosts where the tool is there and the library can't be loaded.

use crate::devices::device::{DeviceMemory, Observation, VendorProcess};
use crate::devices::nvidia::NvidiaCard;
use crate::devices::nvidia::tree::Element;
use std::collections::BTreeMap;

/// The cards of a report. Errors when it is cut off, or lists fewer cards than it counts.
pub fn cards(text: &str) -> Result<Vec<NvidiaCard>, String> {
    let root = Element::parse(text)?;
    if root.name != "nvidia_smi_log" {
        return Err(format!("the root is <{}>, not <nvidia_smi_log>", root.name));
    }
    let count: usize = root
        .text_of("attached_gpus")
        .and_then(|text| text.parse().ok())
        .ok_or("it does not say how many cards there are")?;
    let cards = root
        .children
        .iter()
        .filter(|child| child.name == "gpu")
        .map(card)
        .collect::<Result<Vec<_>, _>>()?;
    if cards.len() != count {
        return Err(format!(
            "it counts {count} cards and describes {}",
            cards.len()
        ));
    }
    Ok(cards)
}

fn card(gpu: &Element) -> Result<NvidiaCard, String> {
    let pci = gpu
        .child("pci")
        .and_then(|pci| pci.text_of("pci_bus_id"))
        .ok_or("a card has no <pci_bus_id>")?
        .parse()
        .map_err(|error: crate::devices::pci::PciAddressError| error.to_string())?;
    Ok(NvidiaCard {
        pci,
        uuid: gpu
            .text_of("uuid")
            .ok_or_else(|| format!("{pci} has no <uuid>"))?
            .to_owned(),
        name: gpu
            .text_of("product_name")
            .unwrap_or("NVIDIA GPU")
            .to_owned(),
        minor: gpu
            .text_of("minor_number")
            .and_then(|text| text.parse().ok()),
        memory: memory(gpu),
        processes: processes(gpu),
        is_part: false,
    })
}

fn memory(gpu: &Element) -> Observation<DeviceMemory> {
    let Some(memory) = gpu.child("fb_memory_usage") else {
        return Observation::unknown("the card has no <fb_memory_usage>");
    };
    match memory.text_of("used").and_then(mib) {
        Some(used_bytes) => Observation::Known(DeviceMemory {
            total_bytes: memory.text_of("total").and_then(mib),
            used_bytes,
        }),
        None => Observation::unknown("<fb_memory_usage> has no MiB in <used>"),
    }
}

fn processes(gpu: &Element) -> Observation<Vec<VendorProcess>> {
    let Some(processes) = gpu.child("processes") else {
        return Observation::unknown("the card has no <processes>");
    };
    // Where it may not tell, the tool writes N/A instead of a list.
    if !processes.text.is_empty() && processes.text != "None" {
        return Observation::unknown(format!("<processes> is {:?}", processes.text));
    }
    let mut all: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for process in &processes.children {
        let pid = process.text_of("pid").and_then(|text| text.parse().ok());
        let Some(pid) = pid else {
            return Observation::unknown(format!("<{}> has no <pid>", process.name));
        };
        let used = process.text_of("used_memory").and_then(mib);
        let entry = all.entry(pid).or_insert(used);
        *entry = (*entry).max(used);
    }
    Observation::Known(
        all.into_iter()
            .map(|(pid, used_bytes)| VendorProcess { pid, used_bytes })
            .collect(),
    )
}

/// Parses `3599 MiB`.
fn mib(text: &str) -> Option<u64> {
    text.strip_suffix(" MiB")?
        .parse::<u64>()
        .ok()?
        .checked_mul(1 << 20)
}
