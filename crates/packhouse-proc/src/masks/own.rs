//! The masks that a worker is started with, and whether what its user set agrees with them.
//!
//! Invariants:
//! - a card that the worker was not given is masked in every runtime that could show it;
//! - ordinals are set only together with the variable that fixes their order; where none does, a
//!   card without a UUID is refused.
//!
//! Never: drops what the user set; a contradiction is an error that names it.

use super::{
    CUDA_MASK, CUDA_ORDER, Covers, HIP_MASK, ONEAPI_MASK, ROCR_MASK, Runtimes, VARIABLES,
    VULKAN_MASK, View, ZE_HIERARCHY, ZE_MASK, ZE_ORDER, covers,
};
use crate::devices::{Device, DeviceId, Vendor};
use packhouse_base::Blame;
use std::collections::BTreeMap;
use std::ffi::OsString;

/// Why no masks can be made for a worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MaskError {
    /// The vendor's mask can't name the card.
    #[error("{variable} can't name {device}: {why}")]
    Unnameable {
        /// The card.
        device: DeviceId,
        /// The mask.
        variable: &'static str,
        /// What it would need.
        why: String,
    },
    /// Cards of a vendor whose runtimes have no mask, beside others that would be seen too.
    #[error("no mask is known that shows {device} alone; {others} would be seen too")]
    NoMask {
        /// The card.
        device: DeviceId,
        /// What else the worker would see.
        others: String,
    },
    /// What the user set hides a card of the worker, or shows it another one.
    #[error("environment.{variable} = {value:?} contradicts the worker's devices: {device} {what}")]
    Contradiction {
        /// The variable.
        variable: String,
        /// What the user set.
        value: String,
        /// The card.
        device: DeviceId,
        /// What the setting does to it.
        what: String,
    },
}

impl MaskError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unnameable { .. } | Self::NoMask { .. } => Blame::Host,
            Self::Contradiction { .. } => Blame::Caller,
        }
    }
}

/// Makes the variables that show a worker its devices and no others. `all` are the devices of this
/// host. A worker of cores is shown no card at all.
pub fn own(devices: &[Device], all: &[Device]) -> Result<BTreeMap<String, String>, MaskError> {
    let mut masks = BTreeMap::new();
    let of = |vendor: Vendor| -> Vec<&Device> {
        let own = devices.iter().filter(|device| device.vendor == vendor);
        own.collect()
    };
    nvidia(&of(Vendor::Nvidia), &mut masks)?;
    amd(&of(Vendor::Amd), all, &mut masks)?;
    intel(&of(Vendor::Intel), &mut masks)?;
    masks.insert(VULKAN_MASK.to_owned(), String::new());
    if let Some(device) = of(Vendor::Other).first() {
        // Vulkan is how such a card is reached, and it has no mask by name.
        let others: Vec<&str> = all
            .iter()
            .filter(|other| other.vendor != Vendor::Cpu && other.id != device.id)
            .map(|other| other.id.as_str())
            .collect();
        if !others.is_empty() {
            return Err(MaskError::NoMask {
                device: device.id.clone(),
                others: others.join(", "),
            });
        }
        masks.remove(VULKAN_MASK);
    }
    Ok(masks)
}

/// Joins the masks with what the user set for the worker, which wins where it agrees: each device
/// of the worker stays seen for certain, and no other card can be seen. `GGML_VK_VISIBLE_DEVICES`
/// is the user's word, as Vulkan's order can't be known here.
pub fn with_users(
    masks: &BTreeMap<String, String>,
    users: &BTreeMap<String, String>,
    devices: &[Device],
    all: &[Device],
) -> Result<BTreeMap<String, String>, MaskError> {
    let mut joined = masks.clone();
    let mut set = Vec::new();
    for (name, value) in users {
        if VARIABLES.contains(&name.as_str()) {
            joined.insert(name.clone(), value.clone());
            if name != VULKAN_MASK && masks.get(name) != Some(value) {
                set.push(name.as_str());
            }
        }
    }
    for name in set {
        // Each setting is judged by itself, so that the error names the one that is wrong.
        let mut alone = masks.clone();
        alone.insert(name.to_owned(), users[name].clone());
        let tried = [&alone, &joined];
        for environment in tried {
            if let Some((device, what)) = disagreement(environment, devices, all) {
                return Err(MaskError::Contradiction {
                    variable: name.to_owned(),
                    value: users[name].clone(),
                    device,
                    what,
                });
            }
        }
    }
    Ok(joined)
}

fn nvidia(own: &[&Device], masks: &mut BTreeMap<String, String>) -> Result<(), MaskError> {
    let mut names = Vec::new();
    for device in own {
        let uuid = device.uuid.as_ref().ok_or_else(|| MaskError::Unnameable {
            device: device.id.clone(),
            variable: CUDA_MASK,
            why: "its UUID is not known, and ordinals change".to_owned(),
        })?;
        names.push(uuid.as_str());
    }
    if !own.is_empty() {
        masks.insert(CUDA_ORDER.to_owned(), "PCI_BUS_ID".to_owned());
    }
    masks.insert(CUDA_MASK.to_owned(), names.join(","));
    Ok(())
}

fn amd(
    own: &[&Device],
    all: &[Device],
    masks: &mut BTreeMap<String, String>,
) -> Result<(), MaskError> {
    let cards = all.iter().filter(|device| device.vendor == Vendor::Amd);
    let is_only = cards.count() == 1;
    let mut names = Vec::new();
    for device in own {
        match &device.uuid {
            Some(uuid) => names.push(uuid.clone()),
            None if is_only => names.push("0".to_owned()),
            None => {
                return Err(MaskError::Unnameable {
                    device: device.id.clone(),
                    variable: ROCR_MASK,
                    why: "its UUID is not known, and no variable fixes the order of several cards"
                        .to_owned(),
                });
            }
        }
    }
    masks.insert(ROCR_MASK.to_owned(), names.join(","));
    // HIP would take CUDA's variable, which says something else here, where its own is unset.
    let places: Vec<String> = (0..own.len()).map(|place| place.to_string()).collect();
    let places = if places.is_empty() {
        "-1".to_owned()
    } else {
        places.join(",")
    };
    masks.insert(HIP_MASK.to_owned(), places);
    Ok(())
}

fn intel(own: &[&Device], masks: &mut BTreeMap<String, String>) -> Result<(), MaskError> {
    if own.is_empty() {
        // Level Zero has no way to say none, so the layer above it is told.
        masks.insert(ONEAPI_MASK.to_owned(), "*:cpu".to_owned());
        return Ok(());
    }
    let mut ordinals = Vec::new();
    for device in own {
        let ordinal = device
            .ordinal_in_pci_order
            .ok_or_else(|| MaskError::Unnameable {
                device: device.id.clone(),
                variable: ZE_MASK,
                why: "its place in PCI order is not known".to_owned(),
            })?;
        ordinals.push(ordinal.to_string());
    }
    // A number means a whole card, not one of its tiles.
    masks.insert(ZE_HIERARCHY.to_owned(), "COMPOSITE".to_owned());
    masks.insert(ZE_ORDER.to_owned(), "1".to_owned());
    masks.insert(ZE_MASK.to_owned(), ordinals.join(","));
    masks.insert(ONEAPI_MASK.to_owned(), "level_zero:*".to_owned());
    Ok(())
}

/// The first card that an environment shows or hides wrongly, as SYCL programs see it.
fn disagreement(
    environment: &BTreeMap<String, String>,
    devices: &[Device],
    all: &[Device],
) -> Option<(DeviceId, String)> {
    let environment: Vec<(OsString, OsString)> = environment
        .iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let runtimes = Runtimes {
        sycl: true,
        vulkan: false,
    };
    let view = View {
        environment: &environment,
        runtimes: Some(runtimes),
        elsewhere: false,
    };
    let is_own = |device: &Device| devices.iter().any(|own| own.id == device.id);
    let cards = all.iter().filter(|device| device.vendor != Vendor::Cpu);
    for device in cards {
        let overlaps = devices.iter().any(|own| {
            own.parent.as_ref() == Some(&device.id) || device.parent.as_ref() == Some(&own.id)
        });
        let what = match (is_own(device), covers(&view, device, all)) {
            (true, Covers::Yes) | (false, Covers::No) => continue,
            // A card and its parts are seen through each other.
            (false, _) if overlaps => continue,
            // What no mask limits is not this setting's doing.
            (_, _) if device.vendor == Vendor::Other => continue,
            (true, Covers::No) => "would be hidden".to_owned(),
            (true, Covers::Maybe { why }) => format!("may be hidden: {why}"),
            (false, Covers::Yes) => "would be seen too".to_owned(),
            (false, Covers::Maybe { why }) => format!("may be seen too: {why}"),
        };
        return Some((device.id.clone(), what));
    }
    None
}
