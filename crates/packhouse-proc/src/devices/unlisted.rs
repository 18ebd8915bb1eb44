//! Memory in use and nobody who uses it: a list that is not whole.

use crate::devices::device::{DeviceMemory, Observation, VendorProcess};

/// An empty list beside memory in use is no list. `idle_bytes_max`: what the source may count as in
/// use on a card that nobody uses.
pub(crate) fn with_unlisted(
    memory: &Observation<DeviceMemory>,
    processes: Observation<Vec<VendorProcess>>,
    idle_bytes_max: u64,
) -> Observation<Vec<VendorProcess>> {
    match (memory, processes) {
        (Observation::Known(memory), Observation::Known(list))
            if list.is_empty() && memory.used_bytes > idle_bytes_max =>
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
