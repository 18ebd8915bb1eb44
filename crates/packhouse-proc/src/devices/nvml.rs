//! Asks NVML, loaded at run time, and writes down what it answered as one JSON document, which
//! `nvidia::document` parses: the document is what reports keep, and what tests replay.

use crate::devices::tools::{Question, RawReport, ToolAnswer};
use nvml_wrapper::Nvml;
use nvml_wrapper::device::Device;
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessInfo;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

/// Asks everything of every card. A library that does not answer in time is left behind in its
/// thread: a call into a broken driver can't be taken back.
pub(crate) fn ask(folders: &[PathBuf], timeout: Duration) -> ToolAnswer {
    let (sender, receiver) = mpsc::channel();
    let folders = folders.to_vec();
    let thread = std::thread::Builder::new()
        .name("nvml".to_owned())
        .spawn(move || {
            // Nobody listens once the time is over.
            let _ = sender.send(ask_now(&folders));
        });
    let failed = |why: String| ToolAnswer::Failed { why, raw: None };
    match thread {
        Ok(_) => receiver
            .recv_timeout(timeout)
            .unwrap_or_else(|_| failed(format!("no answer within {} s", timeout.as_secs()))),
        Err(error) => failed(format!("no thread to ask from: {error}")),
    }
}

fn ask_now(folders: &[PathBuf]) -> ToolAnswer {
    let nvml = match load(folders) {
        Ok(nvml) => nvml,
        Err(None) => return ToolAnswer::Absent,
        Err(Some(error)) => {
            return ToolAnswer::Failed {
                why: format!("NVML did not start: {error}"),
                raw: None,
            };
        }
    };
    let driver = nvml.sys_driver_version();
    let version = driver.as_ref().ok().cloned();
    let document = document(&nvml, driver);
    ToolAnswer::Said(RawReport {
        source: Question::Nvml.source(),
        version,
        text: format!("{document:#}"),
        observer: None,
    })
}

/// Loads the library by its name, then from the folders that drivers put it into where the loader
/// does not look. `None`: it is nowhere.
fn load(folders: &[PathBuf]) -> Result<Nvml, Option<NvmlError>> {
    let named = std::iter::once(Path::new("").to_owned()).chain(folders.iter().cloned());
    for folder in named {
        let path = folder.join(LIBRARY);
        let loaded = Nvml::builder()
            .lib_path(AsRef::<OsStr>::as_ref(&path))
            .init();
        match loaded {
            Ok(nvml) => return Ok(nvml),
            Err(NvmlError::LibloadingError(_)) => {}
            Err(error) => return Err(Some(error)),
        }
    }
    Err(None)
}

/// The library's name, version of its interface included.
const LIBRARY: &str = "libnvidia-ml.so.1";

fn document(nvml: &Nvml, driver: Result<String, NvmlError>) -> Value {
    let count = nvml.device_count();
    let indices = 0..count.as_ref().copied().unwrap_or(0);
    let devices: Vec<Value> = indices
        .map(|index| match nvml.device_by_index(index) {
            Ok(device) => with_index(index, card(&device, true)),
            Err(error) => with_index(index, failure(&error)),
        })
        .collect();
    json!({
        "init": 0,
        "driver": value(driver),
        "nvml": value(nvml.sys_nvml_version()),
        "cuda": value(nvml.sys_cuda_driver_version()),
        "count": value(count),
        "devices": devices,
    })
}

fn with_index(index: u32, mut answer: Value) -> Value {
    if let Value::Object(fields) = &mut answer {
        fields.insert("index".to_owned(), json!(index));
    }
    answer
}

fn card(device: &Device<'_>, with_parts: bool) -> Value {
    let mut answer = json!({
        "rc": 0,
        "name": value(device.name()),
        "uuid": value(device.uuid()),
        "memory_v2": answer(device.memory_info(), |memory| json!({
            "total": memory.total,
            "reserved": memory.reserved,
            "free": memory.free,
            "used": memory.used,
        })),
        "nvmlDeviceGetComputeRunningProcesses_v3": processes(device.running_compute_processes()),
        "nvmlDeviceGetGraphicsRunningProcesses_v3": processes(device.running_graphics_processes()),
        "nvmlDeviceGetMPSComputeRunningProcesses_v3":
            processes(device.mps_running_compute_processes()),
    });
    // What only a whole card has.
    if with_parts && let Value::Object(fields) = &mut answer {
        fields.insert(
            "pci".to_owned(),
            self::answer(device.pci_info(), |pci| json!({"busId": pci.bus_id})),
        );
        fields.insert("minor".to_owned(), value(device.minor_number()));
        fields.insert("vbios".to_owned(), value(device.vbios_version()));
        let mode = device.mig_mode();
        let has_parts = mode.as_ref().is_ok_and(|mode| mode.current != 0);
        fields.insert(
            "mig".to_owned(),
            self::answer(
                mode,
                |mode| json!({"current": mode.current, "pending": mode.pending}),
            ),
        );
        if has_parts {
            fields.insert("parts".to_owned(), parts(device));
        }
    }
    answer
}

/// The parts that a card is divided into. Places without a part say so by an error.
fn parts(device: &Device<'_>) -> Value {
    let count = device.mig_device_count().unwrap_or(0);
    let parts = (0..count).filter_map(|index| match device.mig_device_by_index(index) {
        Ok(part) => Some(with_index(index, card(&part, false))),
        Err(NvmlError::NotFound | NvmlError::InvalidArg) => None,
        Err(error) => Some(with_index(index, failure(&error))),
    });
    Value::Array(parts.collect())
}

fn processes(list: Result<Vec<ProcessInfo>, NvmlError>) -> Value {
    answer(list, |list| {
        let list: Vec<Value> = list
            .iter()
            .map(|process| {
                json!({
                    "pid": process.pid,
                    "used": match process.used_gpu_memory {
                        UsedGpuMemory::Used(bytes) => json!(bytes),
                        UsedGpuMemory::Unavailable => Value::Null,
                    },
                    "gi": process.gpu_instance_id,
                    "ci": process.compute_instance_id,
                })
            })
            .collect();
        json!({ "list": list })
    })
}

fn value<T: Into<Value>>(result: Result<T, NvmlError>) -> Value {
    answer(result, |value| json!({ "value": value.into() }))
}

/// An answer as the document has it: what was returned beside NVML's return code.
fn answer<T>(result: Result<T, NvmlError>, fields: impl FnOnce(T) -> Value) -> Value {
    match result {
        Ok(value) => {
            let mut answer = fields(value);
            if let Value::Object(fields) = &mut answer {
                fields.insert("rc".to_owned(), json!(0));
            }
            answer
        }
        Err(error) => failure(&error),
    }
}

fn failure(error: &NvmlError) -> Value {
    json!({ "rc": UNKNOWN, "error": error.to_string() })
}

/// NVML's code for an unknown error; the words say which it was.
const UNKNOWN: i32 = 999;
