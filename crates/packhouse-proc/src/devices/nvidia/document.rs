//! Parses the document of what NVML answered (`nvml` writes it, one entry per call).
//!
//! Each answer is an object with `rc`: NVML's return code, 0 for success, beside what was returned.
//! A call that the document lacks was not made; one that failed makes its number unknown.

use crate::devices::device::{DeviceMemory, Observation, VendorProcess};
use crate::devices::nvidia::NvidiaCard;
use crate::devices::pci::PciAddress;
use serde_json::Value;
use std::collections::BTreeMap;

/// The cards of a document, parts after their cards. Errors when NVML did not start or lists a card
/// that it does not describe.
pub fn cards(text: &str) -> Result<Vec<NvidiaCard>, String> {
    let document: Value =
        serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    match document.get("init").and_then(Value::as_i64) {
        Some(0) => {}
        Some(code) => return Err(format!("NVML did not start: code {code}")),
        None => return Err("it does not say whether NVML started".to_owned()),
    }
    let count = success(&document, "count")?
        .get("value")
        .and_then(Value::as_u64)
        .ok_or("it does not say how many cards there are")?;
    let devices = document
        .get("devices")
        .and_then(Value::as_array)
        .ok_or("it has no list of cards")?;
    if u64::try_from(devices.len()) != Ok(count) {
        return Err(format!(
            "NVML counts {count} cards, {} are described",
            devices.len()
        ));
    }
    let mut cards = Vec::new();
    for device in devices {
        let card = card(device, None)?;
        let pci = card.pci;
        cards.push(card);
        for part in device
            .get("parts")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            cards.push(self::card(part, Some(pci))?);
        }
    }
    Ok(cards)
}

/// One card, or a part of the card at an address.
fn card(device: &Value, parent: Option<PciAddress>) -> Result<NvidiaCard, String> {
    if device.get("rc").and_then(Value::as_i64) != Some(0) {
        return Err(format!("NVML does not open card {}", device["index"]));
    }
    let pci = match parent {
        Some(pci) => pci,
        None => success(device, "pci")?
            .get("busId")
            .and_then(Value::as_str)
            .ok_or("a card has no bus id")?
            .parse()
            .map_err(|error: crate::devices::pci::PciAddressError| error.to_string())?,
    };
    let uuid = words(device, "uuid").ok_or_else(|| format!("NVML has no UUID of {pci}"))?;
    Ok(NvidiaCard {
        pci,
        name: words(device, "name").unwrap_or_else(|| "NVIDIA GPU".to_owned()),
        uuid,
        minor: success(device, "minor")
            .ok()
            .and_then(|answer| answer.get("value")?.as_u64())
            .and_then(|minor| u32::try_from(minor).ok()),
        memory: memory(device),
        processes: processes(device),
        is_part: parent.is_some(),
    })
}

/// Version 2 of the call tells apart what is reserved; version 1 counts that as used, so it is no
/// substitute: an idle card would seem to hold hundreds of MiB.
fn memory(device: &Value) -> Observation<DeviceMemory> {
    let answer = match success(device, "memory_v2") {
        Ok(answer) => answer,
        Err(why) => return Observation::unknown(why),
    };
    let number = |key: &str| answer.get(key).and_then(Value::as_u64);
    match (number("total"), number("used")) {
        (total_bytes, Some(used_bytes)) => Observation::Known(DeviceMemory {
            total_bytes,
            used_bytes,
        }),
        (_, None) => Observation::unknown("memory_v2 has no number `used`"),
    }
}

/// Processes that compute and processes that draw; one that does both is on both lists.
fn processes(device: &Value) -> Observation<Vec<VendorProcess>> {
    let mut all: BTreeMap<u32, Option<u64>> = BTreeMap::new();
    for call in [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
    ] {
        let list = success(device, call).and_then(|answer| {
            answer
                .get("list")
                .and_then(Value::as_array)
                .ok_or_else(|| format!("{call} has no list"))
        });
        let list = match list {
            Ok(list) => list,
            Err(why) => return Observation::unknown(why),
        };
        for process in list {
            let pid = process.get("pid").and_then(Value::as_u64);
            let Some(pid) = pid.and_then(|pid| u32::try_from(pid).ok()) else {
                return Observation::unknown(format!("{call} lists no pid: {process}"));
            };
            let used = process
                .get("used")
                .and_then(Value::as_u64)
                .filter(|used| *used != NOT_AVAILABLE);
            let entry = all.entry(pid).or_insert(used);
            *entry = (*entry).max(used);
        }
    }
    Observation::Known(
        all.into_iter()
            .map(|(pid, used_bytes)| VendorProcess { pid, used_bytes })
            .collect(),
    )
}

/// What NVML writes for a number that it does not have.
const NOT_AVAILABLE: u64 = u64::MAX;

/// The answer of a call that succeeded.
fn success<'a>(device: &'a Value, call: &str) -> Result<&'a Value, String> {
    let answer = device
        .get(call)
        .ok_or_else(|| format!("{call} was not asked"))?;
    match answer.get("rc").and_then(Value::as_i64) {
        Some(0) => Ok(answer),
        Some(code) => Err(match answer.get("error").and_then(Value::as_str) {
            Some(error) => format!("{call}: {error}"),
            None => format!("{call}: code {code}"),
        }),
        None => Err(format!("{call} has no return code")),
    }
}

fn words(device: &Value, call: &str) -> Option<String> {
    Some(
        success(device, call)
            .ok()?
            .get("value")?
            .as_str()?
            .to_owned(),
    )
}
