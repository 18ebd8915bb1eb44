//! Where the build runs: kernel, processor, firmware, drivers, devices, each by its own means.
//!
//! Invariants:
//! - nothing that changes by use is a fact: no memory in use, no processes, no temperatures;
//! - what could not be had is `{"unknown": why}`, what is proven not to be there is null.

use super::World;
use super::disk;
use super::system::unknown;
use packhouse_base::digest::Digest;
use packhouse_proc::devices::{Device, Inventory, Observation, Question, Vendor, inventory};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// The facts of this host.
pub(super) fn facts(world: &World<'_>) -> Value {
    let inventory = inventory(world.tools, world.roots);
    let (proc, sys) = (&world.roots.proc, &world.roots.sys);
    json!({
        "bios": bios(sys),
        "cpu": cpu(proc),
        "devices": devices(&inventory, sys),
        "kernel": {
            "build": text(&proc.join("sys/kernel/version")),
            "release": text(&proc.join("sys/kernel/osrelease")),
        },
        "modules": modules(&inventory, sys),
        "drivers": drivers(&inventory),
    })
}

/// A kernel's file of one value.
fn text(path: &Path) -> Value {
    match disk::read_kernel(path, TEXT_BYTES_MAX) {
        Ok(Some(bytes)) => Value::from(String::from_utf8_lossy(&bytes).trim()),
        Ok(None) => unknown(format!("there is no {}", path.display())),
        Err(error) => unknown(format!("{}: {error}", path.display())),
    }
}

/// The same, where its absence is an answer.
fn text_or_null(path: &Path) -> Value {
    match disk::read_kernel(path, TEXT_BYTES_MAX) {
        Ok(None) => Value::Null,
        Ok(Some(_)) | Err(_) => text(path),
    }
}

fn cpu(proc: &Path) -> Value {
    let path = proc.join("cpuinfo");
    let words = match disk::read_kernel(&path, CPUINFO_BYTES_MAX) {
        Ok(Some(words)) => String::from_utf8_lossy(&words).into_owned(),
        Ok(None) => return unknown(format!("there is no {}", path.display())),
        Err(error) => return unknown(format!("{}: {error}", path.display())),
    };
    let values = |names: &[&str]| -> BTreeSet<&str> {
        let lines = words.lines().filter_map(|line| line.split_once(':'));
        let named = lines.filter(|(name, _)| names.contains(&name.trim()));
        named.map(|(_, value)| value.trim()).collect()
    };
    let listed = |names: &[&str]| {
        let values = values(names);
        match values.is_empty() {
            true => unknown(format!("{} has no {}", path.display(), names.join(" or "))),
            false => json!(values),
        }
    };
    let flags: Vec<&str> = values(&["flags", "Features"]).into_iter().collect();
    json!({
        "features_sha256": match flags.is_empty() {
            true => unknown(format!("{} has no flags or Features", path.display())),
            false => Value::from(Digest::of(flags.join("\n").as_bytes()).to_string()),
        },
        "microcode": listed(&["microcode", "CPU revision"]),
        "model": listed(&["model name", "CPU part"]),
    })
}

fn bios(sys: &Path) -> Value {
    let folder = sys.join("class/dmi/id");
    let fields = DMI.map(|name| (name.to_owned(), text(&folder.join(name))));
    Value::Object(fields.into_iter().collect())
}

/// Kernel modules of accelerators that are loaded, and those of all devices.
fn modules(inventory: &Inventory, sys: &Path) -> Value {
    let drivers = inventory.devices.iter();
    let drivers = drivers.filter_map(|device| device.driver.as_deref());
    let names: BTreeSet<&str> = drivers.chain(MODULES).collect();
    let mut modules = Map::new();
    for name in names {
        let folder = sys.join("module").join(name);
        if !disk::is_there(&folder) {
            continue;
        }
        let version = match text_or_null(&folder.join("version")) {
            Value::Null => text_or_null(&folder.join("srcversion")),
            version => version,
        };
        // A module of the kernel itself has neither: the kernel's build says which it is.
        modules.insert(name.to_owned(), version);
    }
    Value::Object(modules)
}

fn devices(inventory: &Inventory, sys: &Path) -> Value {
    let named = inventory.devices.iter().map(|device| {
        let facts = json!({
            "driver": device.driver,
            "firmware": firmware(device, inventory, sys),
            "name": device.name,
            "uuid": device.uuid,
        });
        (device.id.to_string(), facts)
    });
    Value::Object(named.collect())
}

/// The firmware of a card, by its vendor's means. Cores have the host's.
fn firmware(device: &Device, inventory: &Inventory, sys: &Path) -> Value {
    match device.vendor {
        Vendor::Cpu => Value::Null,
        Vendor::Nvidia => nvidia_firmware(device, inventory),
        Vendor::Amd => match (&device.sysfs, device.pci) {
            (Some(folder), _) => text(&folder.join("vbios_version")),
            (None, Some(pci)) => text(&sys.join(format!("bus/pci/devices/{pci}/vbios_version"))),
            (None, None) => unknown("the device has no place"),
        },
        Vendor::Intel => intel_firmware(device, inventory),
        Vendor::Other => unknown("no means of this vendor is known"),
    }
}

fn nvidia_firmware(device: &Device, inventory: &Inventory) -> Value {
    let uuid = device.uuid.as_deref().unwrap_or_default();
    if let Some(document) = nvml(inventory) {
        let cards = document.get("devices").and_then(Value::as_array);
        let of_uuid = |card: &&Value| answered(card.get("uuid")) == uuid;
        let card = cards.into_iter().flatten().find(of_uuid);
        return match card {
            Some(card) => answered(card.get("vbios")),
            // A part of a card has the card's.
            None if device.parent.is_some() => Value::Null,
            None => unknown("NVML does not list the card"),
        };
    }
    let said = raw(inventory, Question::NvidiaSmi.source());
    let gpus = said.iter().flat_map(|said| said.split("<gpu ").skip(1));
    let gpu = gpus
        .into_iter()
        .find(|gpu| element(gpu, "uuid") == Some(uuid));
    match gpu.and_then(|gpu| element(gpu, "vbios_version")) {
        Some(version) => Value::from(version),
        None => unknown("neither NVML nor nvidia-smi tells it"),
    }
}

fn intel_firmware(device: &Device, inventory: &Inventory) -> Value {
    let pci = device.pci.map(|pci| pci.to_string()).unwrap_or_default();
    let cards = inventory.reports.iter().filter(|report| {
        let source = Question::XpuSmiCard { pci: String::new() }.source();
        report.source == source
    });
    let documents = cards.filter_map(|report| {
        let raw = report.raw.as_ref()?;
        serde_json::from_str::<Value>(&raw.text).ok()
    });
    let is_card = |document: &Value| {
        let address = document.get("pci_bdf_address").and_then(Value::as_str);
        address.is_some_and(|address| address.eq_ignore_ascii_case(&pci))
    };
    match documents.into_iter().find(is_card) {
        Some(Value::Object(fields)) => {
            let versions = fields.into_iter();
            let versions =
                versions.filter(|(name, value)| name.ends_with("_version") && value.is_string());
            Value::Object(versions.collect())
        }
        Some(_) | None => unknown("xpu-smi does not tell it"),
    }
}

/// Versions of vendors' drivers and runtimes, as they tell them.
fn drivers(inventory: &Inventory) -> Value {
    let mut drivers = Map::new();
    for report in &inventory.reports {
        let is_told = [Question::Nvml, Question::NvidiaSmi].map(|question| question.source());
        if !is_told.contains(&report.source) {
            continue;
        }
        let facts = match &report.outcome {
            Observation::Absent => Value::Null,
            Observation::Unknown { why } => unknown(why.clone()),
            Observation::Known(_) if report.source == Question::Nvml.source() => {
                let document = nvml(inventory).unwrap_or_default();
                let names = ["driver", "nvml", "cuda"]
                    .map(|name| (name.to_owned(), answered(document.get(name))));
                Value::Object(names.into_iter().collect())
            }
            Observation::Known(_) => {
                let said = raw(inventory, report.source).unwrap_or_default();
                let names = ["driver_version", "cuda_version"];
                let names = names.map(|name| (name.to_owned(), json!(element(said, name))));
                Value::Object(names.into_iter().collect())
            }
        };
        drivers.insert(report.source.to_owned(), facts);
    }
    Value::Object(drivers)
}

fn nvml(inventory: &Inventory) -> Option<Value> {
    serde_json::from_str(raw(inventory, Question::Nvml.source())?).ok()
}

fn raw<'a>(inventory: &'a Inventory, source: &str) -> Option<&'a str> {
    let report = inventory
        .reports
        .iter()
        .find(|report| report.source == source)?;
    report.raw.as_ref().map(|raw| raw.text.as_str())
}

/// An answer of NVML: a return code beside a value or an error.
fn answered(answer: Option<&Value>) -> Value {
    let Some(answer) = answer else {
        return unknown("NVML was not asked");
    };
    match (
        answer.get("rc").and_then(Value::as_i64),
        answer.get("value"),
    ) {
        (Some(0), Some(value)) => value.clone(),
        _ => {
            let why = answer.get("error").and_then(Value::as_str);
            unknown(why.unwrap_or("NVML gave no value"))
        }
    }
}

/// The text of the first element of this name.
fn element<'a>(words: &'a str, name: &str) -> Option<&'a str> {
    let (_, after) = words.split_once(&format!("<{name}>"))?;
    let (text, _) = after.split_once(&format!("</{name}>"))?;
    Some(text.trim())
}

const TEXT_BYTES_MAX: u64 = 4096;
const CPUINFO_BYTES_MAX: u64 = 16 << 20;
/// What the firmware says of itself and of the board.
const DMI: [&str; 5] = [
    "bios_date",
    "bios_vendor",
    "bios_version",
    "board_name",
    "product_name",
];
/// Modules of accelerators whose driver is more than one module.
const MODULES: [&str; 10] = [
    "amdgpu",
    "amdkfd",
    "amdxdna",
    "i915",
    "intel_vpu",
    "nvidia",
    "nvidia_modeset",
    "nvidia_peermem",
    "nvidia_uvm",
    "xe",
];
