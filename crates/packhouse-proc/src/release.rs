//! Whether a device's memory came back after a worker ended.
//!
//! Invariants:
//! - a device is calm when several readings in a row are at most what was in use before the worker;
//!   one low reading proves nothing, as drivers give memory back in steps;
//! - memory that is in use beyond that counts as held only where nobody else uses the device;
//! - what could not be read is `Unknown` with its reason, never returned.
//!
//! Never: signals, waits longer than its pace says, or takes a free port for free memory.

use crate::devices::{DeviceId, Inventory, Observation, Roots, Tools, VendorProcess, inventory};
use crate::records::{ReleasedDevice, ReleasedMemory, StopDevice};
use packhouse_sys::clock::Clock;

/// One reading of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Memory in use on it. `Absent`: it has no memory of its own.
    pub used_bytes: Observation<u64>,
    /// Who uses it, by the vendor's list.
    pub processes: Observation<Vec<VendorProcess>>,
}

/// Reads devices; tests bring their own.
pub trait Readings: Sync {
    /// Reads each device once, in the order given.
    fn read(&self, ids: &[DeviceId]) -> Vec<Reading>;
}

/// Reads devices of this host.
pub struct HostReadings<'a> {
    /// How vendors' tools are asked.
    pub tools: &'a (dyn Tools + Sync),
    /// Where the kernel's file systems are.
    pub roots: &'a Roots,
}

/// What a device is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Baseline {
    /// The device.
    pub id: DeviceId,
    /// In use before the worker was started.
    pub before_start_bytes: Option<u64>,
    /// In use before the first signal, by all.
    pub before_stop_bytes: Option<u64>,
    /// In use before the first signal, by the worker.
    pub ours_bytes: Option<u64>,
}

/// How long and how often devices are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Nanoseconds between readings.
    pub interval_ns: u64,
    /// Readings in a row that must agree.
    pub calm: usize,
    /// Nanoseconds after which the last readings decide.
    pub timeout_ns: u64,
    /// Bytes that may be in use beyond the baseline: what drivers keep differs from reading to
    /// reading.
    pub slack_bytes: u64,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            interval_ns: 500_000_000,
            calm: 3,
            timeout_ns: 30_000_000_000,
            slack_bytes: 64 << 20,
        }
    }
}

impl Baseline {
    /// Joins what the order and the stop recorded of a device.
    pub fn new(
        id: &str,
        before_start_bytes: Option<u64>,
        before_stop: Option<&StopDevice>,
    ) -> Self {
        Self {
            id: DeviceId::recorded(id),
            before_start_bytes,
            before_stop_bytes: before_stop.and_then(|device| device.used_bytes),
            ours_bytes: before_stop.and_then(|device| device.ours_bytes),
        }
    }

    /// What all others used before the first signal.
    fn others_bytes(&self) -> Option<u64> {
        let all = self.before_stop_bytes?;
        Some(all.saturating_sub(self.ours_bytes?))
    }
}

impl Readings for HostReadings<'_> {
    fn read(&self, ids: &[DeviceId]) -> Vec<Reading> {
        let found = inventory(self.tools, self.roots);
        ids.iter().map(|id| reading_of(&found, id)).collect()
    }
}

fn reading_of(found: &Inventory, id: &DeviceId) -> Reading {
    if is_cores(id) {
        return Reading {
            used_bytes: Observation::Absent,
            processes: Observation::Absent,
        };
    }
    match found.devices.iter().find(|device| device.id == *id) {
        None => Reading {
            used_bytes: Observation::unknown("the device is not there any more"),
            processes: Observation::unknown("the device is not there any more"),
        },
        Some(device) => Reading {
            used_bytes: match &device.memory {
                Observation::Known(memory) => Observation::Known(memory.used_bytes),
                Observation::Absent => Observation::Absent,
                Observation::Unknown { why } => Observation::unknown(why.as_str()),
            },
            processes: device.processes.clone(),
        },
    }
}

/// Cores have no memory of their own, and a set of them need not be in an inventory.
fn is_cores(id: &DeviceId) -> bool {
    ["cpu:", "numa:"]
        .iter()
        .any(|kind| id.as_str().starts_with(kind))
}

/// Reads devices until all are calm or the time is over, and says of each what came of its memory.
/// The worker's processes are proven gone.
pub fn wait(
    readings: &dyn Readings,
    clock: &dyn Clock,
    baselines: &[Baseline],
    pace: &Pace,
) -> Vec<ReleasedDevice> {
    let ids: Vec<DeviceId> = baselines
        .iter()
        .map(|baseline| baseline.id.clone())
        .collect();
    let mut series: Vec<Vec<Reading>> = vec![Vec::new(); ids.len()];
    let deadline_ns = clock.steady_ns().saturating_add(pace.timeout_ns);
    while !ids.is_empty() {
        for (series, reading) in series.iter_mut().zip(readings.read(&ids)) {
            series.push(reading);
        }
        let mut pairs = baselines.iter().zip(&series);
        let settled = pairs.all(|(baseline, series)| is_settled(baseline, series, pace));
        if settled || clock.steady_ns() >= deadline_ns {
            break;
        }
        clock.sleep_ns(pace.interval_ns);
    }
    let pairs = baselines.iter().zip(&series);
    pairs
        .map(|(baseline, series)| ReleasedDevice {
            id: baseline.id.as_str().to_owned(),
            memory: judge(baseline, series, pace),
        })
        .collect()
}

/// Whether more readings would not change the verdict.
fn is_settled(baseline: &Baseline, series: &[Reading], pace: &Pace) -> bool {
    match judge(baseline, series, pace) {
        ReleasedMemory::Returned { .. } | ReleasedMemory::WithProcesses => true,
        ReleasedMemory::Held { .. } => false,
        ReleasedMemory::Unknown { .. } => {
            let last = last_of(series, pace);
            last.len() >= pace.calm
                && (baseline
                    .before_start_bytes
                    .or(baseline.others_bytes())
                    .is_none()
                    || last
                        .iter()
                        .all(|reading| reading.used_bytes.known().is_none()))
        }
    }
}

/// Says what came of a device's memory, by the last readings in a row.
pub fn judge(baseline: &Baseline, series: &[Reading], pace: &Pace) -> ReleasedMemory {
    let last = last_of(series, pace);
    let mut worst_bytes = 0;
    for reading in last {
        match &reading.used_bytes {
            Observation::Absent => return ReleasedMemory::WithProcesses,
            Observation::Unknown { why } => return ReleasedMemory::Unknown { why: why.clone() },
            Observation::Known(bytes) => worst_bytes = worst_bytes.max(*bytes),
        }
    }
    let first_target = baseline.before_start_bytes.or(baseline.others_bytes());
    let Some(target_bytes) = first_target else {
        let why = "what was in use before the worker is not recorded".to_owned();
        return ReleasedMemory::Unknown { why };
    };
    if last.len() < pace.calm {
        let why = format!("{} readings, {} are needed", last.len(), pace.calm);
        return ReleasedMemory::Unknown { why };
    }
    // Who came after the worker's start counts from what all others used before the first signal.
    for target_bytes in [Some(target_bytes), joined(baseline, last)]
        .into_iter()
        .flatten()
    {
        if worst_bytes <= target_bytes.saturating_add(pace.slack_bytes) {
            return ReleasedMemory::Returned {
                target_bytes,
                used_bytes: worst_bytes,
            };
        }
    }
    match others(last) {
        Others::None => ReleasedMemory::Held {
            target_bytes,
            used_bytes: worst_bytes,
        },
        Others::Some(pids) => ReleasedMemory::Unknown {
            why: format!("others use the device: pid {pids}"),
        },
        Others::Unknown(why) => ReleasedMemory::Unknown {
            why: format!("more is in use, and who uses the device can't be told: {why}"),
        },
    }
}

/// What others used before the first signal, where there are others now.
fn joined(baseline: &Baseline, last: &[Reading]) -> Option<u64> {
    match others(last) {
        Others::Some(_) => baseline.others_bytes(),
        Others::None | Others::Unknown(_) => None,
    }
}

enum Others {
    None,
    Some(String),
    Unknown(String),
}

/// Who uses the device by its last reading. The worker's own processes are gone.
fn others(last: &[Reading]) -> Others {
    match last.last().map(|reading| &reading.processes) {
        None => Others::Unknown("there is no reading".to_owned()),
        Some(Observation::Absent) => Others::None,
        Some(Observation::Known(list)) if list.is_empty() => Others::None,
        Some(Observation::Known(list)) => {
            let pids: Vec<String> = list.iter().map(|process| process.pid.to_string()).collect();
            Others::Some(pids.join(", "))
        }
        Some(Observation::Unknown { why }) => Others::Unknown(why.clone()),
    }
}

fn last_of<'a>(series: &'a [Reading], pace: &Pace) -> &'a [Reading] {
    &series[series.len().saturating_sub(pace.calm)..]
}

#[cfg(test)]
mod tests;
