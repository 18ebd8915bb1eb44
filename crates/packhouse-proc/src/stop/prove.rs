//! What is proven once nothing of a run lives: its end on record, its port, its devices' memory.

use super::{Scene, StopError};
use crate::devices::DeviceId;
use crate::identity::ProcessKey;
use crate::records::{
    Launched, Order, Outcome, ReleasedDevice, ReleasedMemory, ReleasedPort, RunExit, Stop,
    StopDevice, StopMember, Timestamp,
};
use crate::release::{self, Baseline, Pace, Reading};
use crate::runs::Run;
use crate::state::observe::{Listening, listening_at, place_of};
use std::collections::BTreeSet;

/// Sees to it that the run has an end on record, so that it never comes to life later: a keeper
/// that comes too late finds it.
pub(super) fn complete_exit(
    scene: &Scene<'_>,
    run: &Run,
    order: &Order,
    keeper_ns: u64,
) -> Result<RunExit, StopError> {
    // The keeper has it while it lives, and others for the moment of a look.
    let claim = run.claim(scene.clock, keeper_ns)?;
    let _claim = claim.ok_or(StopError::KeeperStays)?;
    let mut exit = match run.read::<RunExit>()? {
        Some(exit) if exit.is_final() => return Ok(exit),
        Some(exit) => exit,
        None => RunExit {
            run: order.run,
            outcome: match run.read::<Launched>() {
                Err(error) if !error.is_damage() => return Err(error.into()),
                Ok(Some(_)) | Err(_) => Outcome::Unseen,
                Ok(None) => Outcome::NotStarted {
                    why: "stopped before it was launched".to_owned(),
                },
            },
            at: Timestamp::now(&scene.procfs.boot_id(), scene.clock),
            left_behind: Vec::new(),
            log_freed_bytes: 0,
        },
    };
    for left in &mut exit.left_behind {
        left.is_gone = true;
    }
    run.write(&exit)?;
    Ok(exit)
}

/// Who has the run's port now that nothing of the run lives.
pub(super) fn port(scene: &Scene<'_>, order: &Order) -> ReleasedPort {
    match listening_at(scene.procfs, &place_of(order), &BTreeSet::new()) {
        Err(error) => ReleasedPort::Unknown {
            why: error.to_string(),
        },
        Ok(found) if found.is_empty() => ReleasedPort::Free,
        Ok(found) => ReleasedPort::Taken {
            by: holders(scene, &found),
        },
    }
}

fn holders(scene: &Scene<'_>, found: &[Listening]) -> String {
    let words = found.iter().flat_map(|listening| {
        let address = listening.listener.address;
        match listening.owners.as_slice() {
            [] => vec![format!("a process that can't be seen on {address}")],
            owners => owners
                .iter()
                .map(|owner| format!("{} on {address}", named(scene, owner)))
                .collect(),
        }
    });
    let words: BTreeSet<String> = words.collect();
    words.into_iter().collect::<Vec<_>>().join(", ")
}

fn named(scene: &Scene<'_>, key: &ProcessKey) -> String {
    match scene.procfs.process(key.pid) {
        Ok(Some(process)) if process.key == *key => format!("pid {} ({})", key.pid, process.name),
        Ok(Some(_) | None) | Err(_) => format!("pid {}", key.pid),
    }
}

/// Reads the run's devices before the first signal.
pub(super) fn devices_before(
    scene: &Scene<'_>,
    order: &Order,
    members: &[StopMember],
) -> Vec<StopDevice> {
    let ids = ids_of(order);
    if ids.is_empty() {
        return Vec::new();
    }
    let readings = scene.readings.read(&ids);
    let pairs = ids.iter().zip(readings);
    pairs
        .map(|(id, reading)| StopDevice {
            id: id.as_str().to_owned(),
            used_bytes: reading.used_bytes.known().copied(),
            ours_bytes: ours(&reading, members),
        })
        .collect()
}

/// What the run uses of a device; `None` unless the list names a process of it, and how much: lists
/// may be of other pid namespaces.
fn ours(reading: &Reading, members: &[StopMember]) -> Option<u64> {
    let list = reading.processes.known()?;
    let mut total_bytes = None;
    for process in list {
        if members.iter().any(|member| member.key.pid == process.pid) {
            total_bytes = Some(total_bytes.unwrap_or(0) + process.used_bytes?);
        }
    }
    total_bytes
}

/// Private memory of processes; `None` where one can't be read.
pub(super) fn private_bytes(scene: &Scene<'_>, members: &[StopMember]) -> Option<u64> {
    let mut total_bytes = 0;
    for member in members {
        match scene.procfs.process(member.key.pid) {
            Ok(Some(process)) if process.key == member.key => {
                total_bytes += process.private_bytes().ok()?;
            }
            // It has ended meanwhile, and has none.
            Ok(Some(_) | None) => {}
            Err(_) => return None,
        }
    }
    Some(total_bytes)
}

/// What came of the memory of the run's devices.
pub(super) fn devices(
    scene: &Scene<'_>,
    order: &Order,
    begun: Option<&Stop>,
    pace: &Pace,
) -> Vec<ReleasedDevice> {
    if order.at.boot != scene.procfs.boot_id() {
        // No memory of a device outlives its boot.
        let ids = ids_of(order).into_iter();
        return ids
            .map(|id| ReleasedDevice {
                id: id.as_str().to_owned(),
                memory: ReleasedMemory::WithProcesses,
            })
            .collect();
    }
    let before = |id: &str| {
        let mut devices = begun.iter().flat_map(|begun| begun.devices.iter());
        devices.find(|device| device.id == id)
    };
    let baselines: Vec<Baseline> = order
        .devices
        .iter()
        .map(|device| Baseline::new(&device.id, device.used_bytes, before(&device.id)))
        .collect();
    release::wait(scene.readings, scene.clock, &baselines, pace)
}

fn ids_of(order: &Order) -> Vec<DeviceId> {
    let ids = order.devices.iter();
    ids.map(|device| DeviceId::recorded(&device.id)).collect()
}
