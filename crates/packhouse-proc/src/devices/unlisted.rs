//! Memory in use and nobody who uses it: a list that is not whole.

use crate::devices::device::{DeviceMemory, Observation, VendorProcess};

/// An empty list beside memory in use is no list.
pub(crate) fn with_unlisted(
    memory: &Observation<DeviceMemory>,
    processes: Observation<Vec<VendorProcess>>,
) -> Observation<Vec<VendorProcess>> {
    match (memory, processes) {
        (Observation::Known(memory), Observation::Known(list))
            if list.is_empty() && memory.used_bytes >= UNLISTED_BYTES_MIN =>
        {
            Observation::unknown(format!(
                "no process is listed, and {} bytes are in use: a process that this user or \
                 container can't see has them",
                memory.used_bytes
            ))
        }
        (Observation::Known(_) | Observation::Absent | Observation::Unknown { .. }, list) => list,
    }
}

/// More than drivers keep on an idle card, and less than a process with a context takes.
const UNLISTED_BYTES_MIN: u64 = 96 << 20;
