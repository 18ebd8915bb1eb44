//! The devices of a matrix: whether this host has them, and who else holds them.

use super::{Campaign, Fault, Frozen};
use crate::evidence::{HoldersRecord, HostDeviceRecord};
use crate::prereg::{Leg, Prereg};
use crate::schedule::LegPlan;
use crate::world::{HostDevice, HostError, Lab};
use packhouse_component::name::CPU;
use packhouse_ledger::Stage;

/// The devices of a matrix as the host has them, in its order.
///
/// # Errors
/// When one is not here, or can't be looked for.
pub(crate) fn here(lab: &Lab<'_>, prereg: &Prereg) -> Result<Vec<(String, HostDevice)>, HostError> {
    let names = prereg.matrix.devices.iter();
    names
        .map(|name| Ok((name.clone(), lab.host.device(name)?)))
        .collect()
}

/// Whether the host has each device of the matrix, and nobody holds any.
pub(super) fn free(campaign: &Campaign<'_>, frozen: &Frozen) -> Result<(), Fault> {
    let all = here(campaign.lab, frozen.prereg());
    let all = all.map_err(|error| Fault::new(Stage::Discovery, error))?;
    let held = all.iter();
    let mut held = held.filter_map(|(name, device)| stranger(name, &device.holders));
    held.next()
        .map_or(Ok(()), |reason| Err(Fault::new(Stage::Discovery, reason)))
}

/// A leg's device before its programs are started. Cores are everybody's.
pub(super) fn before(lab: &Lab<'_>, name: &str) -> Option<HostDeviceRecord> {
    if name == CPU {
        return None;
    }
    let (device, before) = look(lab, name);
    Some(HostDeviceRecord {
        model: device.model,
        driver: device.driver.unwrap_or_default(),
        before,
        after: HoldersRecord::default(),
    })
}

/// Notes who holds a leg's device when its programs are gone.
pub(super) fn after(lab: &Lab<'_>, name: &str, record: Option<&mut HostDeviceRecord>) {
    if let Some(record) = record {
        record.after = look(lab, name).1;
    }
}

/// Whether nobody else held the device of a leg that is timed.
pub(super) fn alone(plan: &LegPlan, record: Option<&HostDeviceRecord>) -> Result<(), Fault> {
    let Some(record) = record.filter(|_| plan.kind == Leg::Timing) else {
        return Ok(());
    };
    let mut both = [&record.before, &record.after].into_iter();
    let held = both.find_map(|seen| stranger(&plan.device, &seen.holders));
    held.map_or(Ok(()), |reason| Err(Fault::new(Stage::Leg, reason)))
}

/// Who else holds a device, where anybody does.
fn stranger(name: &str, holders: &[String]) -> Option<String> {
    let all = holders.join("; ");
    (!holders.is_empty()).then(|| format!("device {name} is held by {all}"))
}

fn look(lab: &Lab<'_>, name: &str) -> (HostDevice, HoldersRecord) {
    let device = lab.host.device(name).unwrap_or_else(|error| HostDevice {
        unknown: vec![error.to_string()],
        ..HostDevice::default()
    });
    let seen = HoldersRecord {
        holders: device.holders.clone(),
        unknown: device.unknown.clone(),
    };
    (device, seen)
}
