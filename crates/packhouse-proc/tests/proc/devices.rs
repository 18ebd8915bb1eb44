//! Devices by what real hosts' kernels, libraries and tools said, and by what they might say.
//!
//! `tests/data/README.md` says where each text is from.

mod amd;
mod cores;
mod host;
mod intel;
mod nvidia;
mod tools;

use host::{Host, Recorded};
use packhouse_proc::devices::{Device, DeviceSpec, Inventory, Observation};

/// The device of a name. Panics where there is none.
fn found(inventory: &Inventory, name: &str) -> Device {
    let spec = DeviceSpec::parse(name).expect("because the test names a device");
    inventory
        .find(&spec)
        .unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Why a name is not found.
fn not_found(inventory: &Inventory, name: &str) -> String {
    let spec = DeviceSpec::parse(name).expect("because the test names a device");
    match inventory.find(&spec) {
        Ok(device) => panic!("{name} is {}", device.id),
        Err(error) => error.to_string(),
    }
}

/// The pids that use a device. Panics where they are not known.
fn pids(device: &Device) -> Vec<u32> {
    match &device.processes {
        Observation::Known(list) => list.iter().map(|process| process.pid).collect(),
        Observation::Absent | Observation::Unknown { .. } => {
            panic!("{}: {:?}", device.id, device.processes)
        }
    }
}

/// Why something is unknown. Panics where it is not.
fn why<T: std::fmt::Debug>(observation: &Observation<T>) -> String {
    match observation {
        Observation::Unknown { why } => why.clone(),
        Observation::Known(_) | Observation::Absent => panic!("{observation:?} is not unknown"),
    }
}

/// What a source's outcome was, by the source's name.
fn outcome(inventory: &Inventory, source: &str) -> Observation<usize> {
    let report = inventory
        .reports
        .iter()
        .find(|report| report.source == source)
        .unwrap_or_else(|| panic!("{source} was not asked"));
    report.outcome.clone()
}
