//! How people name a device in a fleet file: a lasting name, never an ordinal.

use crate::cores::CpuSet;
use crate::devices::Inventory;
use crate::devices::device::{Device, DeviceId, Observation, Vendor};
use crate::devices::pci::PciAddress;
use packhouse_base::Blame;
use std::fmt;
use thiserror::Error;

/// A device as a fleet file names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceSpec {
    /// `cpu:0-3,8`: these cores.
    Cores(CpuSet),
    /// `numa:0`: the cores of a NUMA node.
    Numa(u32),
    /// `nvidia:GPU-...` or `nvidia:MIG-...`: by NVIDIA's UUID.
    Nvidia(String),
    /// `pci:0000:03:00.0`: by its place.
    Pci(PciAddress),
    /// `uuid:...`: by the UUID that its vendor's tool shows.
    Uuid(String),
    /// `drm:renderD128`: by its DRM node. Those are numbered as drivers load, so this is an alias
    /// that is resolved to the place, and shown so.
    Drm(String),
}

impl DeviceSpec {
    /// Parses a device's name. Errors name the text and say which forms there are.
    pub fn parse(text: &str) -> Result<Self, SpecError> {
        let is_ordinal = |digits: &str| {
            !digits.is_empty()
                && digits
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || byte == b',')
        };
        if is_ordinal(text) {
            return Err(SpecError::Ordinal {
                text: text.to_owned(),
            });
        }
        let Some((kind, value)) = text.split_once(':') else {
            return Err(SpecError::Form {
                text: text.to_owned(),
            });
        };
        let wrong = |cause: String| SpecError::Value {
            text: text.to_owned(),
            cause,
        };
        match kind {
            "cpu" => {
                let cores = CpuSet::parse(value).map_err(|error| wrong(error.to_string()))?;
                if cores.is_empty() {
                    return Err(wrong("it names no core".to_owned()));
                }
                Ok(Self::Cores(cores))
            }
            "numa" => number(value)
                .map(Self::Numa)
                .ok_or_else(|| wrong("a NUMA node is a number".to_owned())),
            "nvidia" if is_ordinal(value) => Err(SpecError::Ordinal {
                text: text.to_owned(),
            }),
            "nvidia" => nvidia_uuid(value).map(Self::Nvidia).ok_or_else(|| {
                wrong("NVIDIA's ids are GPU- or MIG- and a UUID, as nvidia-smi -L shows".to_owned())
            }),
            "pci" => value
                .parse()
                .map(Self::Pci)
                .map_err(|error: crate::devices::pci::PciAddressError| wrong(error.to_string())),
            "uuid" if is_word(value) => Ok(Self::Uuid(value.to_owned())),
            "uuid" => Err(wrong("no UUID".to_owned())),
            "drm" if is_drm_node(value) => Ok(Self::Drm(value.to_owned())),
            "drm" => Err(wrong("a DRM node is cardN or renderDN".to_owned())),
            "gpu" | "cuda" | "sycl" | "level_zero" | "hip" | "rocm" | "vulkan" | "intel"
            | "amd" | "xpu" => Err(SpecError::Ordinal {
                text: text.to_owned(),
            }),
            _ => Err(SpecError::Form {
                text: text.to_owned(),
            }),
        }
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cores(cores) => write!(target, "cpu:{cores}"),
            Self::Numa(node) => write!(target, "numa:{node}"),
            Self::Nvidia(uuid) => write!(target, "nvidia:{uuid}"),
            Self::Pci(address) => write!(target, "pci:{address}"),
            Self::Uuid(uuid) => write!(target, "uuid:{uuid}"),
            Self::Drm(node) => write!(target, "drm:{node}"),
        }
    }
}

/// Why a text names no device.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SpecError {
    /// An ordinal: it means another card under another mask or after another boot.
    #[error(
        "a device is named by what it is, not by an ordinal, which masks and plugged cards \
         change: {text:?}"
    )]
    Ordinal {
        /// What was given.
        text: String,
    },
    /// None of the forms.
    #[error(
        "a device is cpu:CORES, numa:NODE, nvidia:GPU-UUID, pci:ADDRESS, uuid:UUID or drm:NODE, \
         not {text:?}"
    )]
    Form {
        /// What was given.
        text: String,
    },
    /// A form that is known, with a value that is not.
    #[error("{text:?} names no device: {cause}")]
    Value {
        /// What was given.
        text: String,
        /// What is wrong with it.
        cause: String,
    },
}

impl SpecError {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        Blame::Caller
    }
}

/// Why a named device is not found on this host.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FindError {
    /// The host has no such device.
    #[error("no device {spec} on this host; it has {}", list(known))]
    Absent {
        /// What was asked for.
        spec: DeviceSpec,
        /// What there is.
        known: Vec<DeviceId>,
    },
    /// It may be there: a source that would know did not answer.
    #[error("can't tell whether this host has {spec}: {why}")]
    Unknown {
        /// What was asked for.
        spec: DeviceSpec,
        /// Which source did not answer, and why.
        why: String,
    },
    /// Cores that are not there or not online.
    #[error("{spec} names cores that are not online: {missing}; online are {online}")]
    Cores {
        /// What was asked for.
        spec: DeviceSpec,
        /// Which of them are missing.
        missing: CpuSet,
        /// Which there are.
        online: CpuSet,
    },
    /// More than one device has this name.
    #[error("{spec} names {} devices: {}", found.len(), list(found))]
    Several {
        /// What was asked for.
        spec: DeviceSpec,
        /// Which they are.
        found: Vec<DeviceId>,
    },
}

impl FindError {
    /// Who has to act.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Absent { .. } | Self::Cores { .. } | Self::Several { .. } => Blame::Caller,
            Self::Unknown { .. } => Blame::Host,
        }
    }
}

impl Inventory {
    /// The ids of all devices, for people who must choose one.
    pub fn ids(&self) -> Vec<DeviceId> {
        self.devices
            .iter()
            .map(|device| device.id.clone())
            .collect()
    }

    /// Finds a named device. Cores are made a device of just these. Errors when there is none, when
    /// the source that would know did not answer, or when several have the name.
    pub fn find(&self, spec: &DeviceSpec) -> Result<Device, FindError> {
        if let DeviceSpec::Cores(cores) = spec {
            return self.cores_device(spec, cores);
        }
        let found: Vec<&Device> = self
            .devices
            .iter()
            .filter(|device| is_named(device, spec))
            .collect();
        match found.as_slice() {
            [only] => Ok((*only).clone()),
            [] => Err(self.missing(spec)),
            several => Err(FindError::Several {
                spec: spec.clone(),
                found: several.iter().map(|device| device.id.clone()).collect(),
            }),
        }
    }

    fn cores_device(&self, spec: &DeviceSpec, cores: &CpuSet) -> Result<Device, FindError> {
        let online = match &self.online {
            Observation::Known(online) => online,
            Observation::Absent => {
                return Err(FindError::Unknown {
                    spec: spec.clone(),
                    why: "the kernel lists no online core".to_owned(),
                });
            }
            Observation::Unknown { why } => {
                return Err(FindError::Unknown {
                    spec: spec.clone(),
                    why: why.clone(),
                });
            }
        };
        if !cores.is_subset(online) {
            return Err(FindError::Cores {
                spec: spec.clone(),
                missing: cores.difference(online),
                online: online.clone(),
            });
        }
        let mut homes = self.devices.iter().filter(|device| {
            device.vendor == Vendor::Cpu
                && device
                    .cores
                    .as_ref()
                    .is_some_and(|node| cores.is_subset(node))
        });
        let home = homes.next();
        Ok(Device {
            id: DeviceId::of_cores(cores),
            vendor: Vendor::Cpu,
            name: home.map_or_else(|| "cores".to_owned(), |node| node.name.clone()),
            uuid: None,
            pci: None,
            nodes: Vec::new(),
            drm: None,
            cores: Some(cores.clone()),
            numa: home.and_then(|node| node.numa),
            ordinal_in_pci_order: None,
            driver: None,
            sysfs: None,
            memory: Observation::Absent,
            processes: Observation::Absent,
            parent: None,
        })
    }

    /// Why nothing has a name: only where every source that gives such names answered, there is no
    /// such device.
    fn missing(&self, spec: &DeviceSpec) -> FindError {
        let prefixes: &[&str] = match spec {
            DeviceSpec::Nvidia(_) => &["nvml", "nvidia-smi", "pci"],
            DeviceSpec::Uuid(_) => &["xpu-smi discovery", "nvml", "pci"],
            DeviceSpec::Pci(_) | DeviceSpec::Drm(_) => &["pci"],
            DeviceSpec::Cores(_) | DeviceSpec::Numa(_) => &["numa"],
        };
        let silent = self.reports.iter().find_map(|report| {
            let why = report.outcome.why_unknown()?;
            prefixes
                .iter()
                .any(|prefix| report.source.starts_with(prefix))
                .then(|| format!("{}: {why}", report.source))
        });
        match silent {
            Some(why) => FindError::Unknown {
                spec: spec.clone(),
                why,
            },
            None => FindError::Absent {
                spec: spec.clone(),
                known: self.ids(),
            },
        }
    }
}

fn is_named(device: &Device, spec: &DeviceSpec) -> bool {
    match spec {
        DeviceSpec::Cores(_) => false,
        DeviceSpec::Numa(node) => device.vendor == Vendor::Cpu && device.numa == Some(*node),
        DeviceSpec::Nvidia(uuid) => {
            device.vendor == Vendor::Nvidia && device.uuid.as_ref() == Some(uuid)
        }
        DeviceSpec::Pci(address) => device.parent.is_none() && device.pci == Some(*address),
        DeviceSpec::Uuid(uuid) => device
            .uuid
            .as_ref()
            .is_some_and(|own| own.eq_ignore_ascii_case(uuid)),
        DeviceSpec::Drm(node) => {
            device.parent.is_none()
                && device.drm.as_ref().is_some_and(|nodes| {
                    [&nodes.card, &nodes.render].contains(&&Some(node.clone()))
                })
        }
    }
}

fn list(ids: &[DeviceId]) -> String {
    if ids.is_empty() {
        return "none".to_owned();
    }
    let words: Vec<&str> = ids.iter().map(DeviceId::as_str).collect();
    words.join(", ")
}

/// Parses decimal digits and nothing else.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

/// NVIDIA's ids as its driver writes them: the prefix in capitals, the UUID in small letters. The
/// old form of a MIG id, `MIG-GPU-UUID/INSTANCE/PART`, is taken too.
fn nvidia_uuid(text: &str) -> Option<String> {
    let (prefix, rest) = text.split_at_checked(4)?;
    let prefix = prefix.to_ascii_uppercase();
    let uuid = match prefix.as_str() {
        "GPU-" => rest,
        "MIG-" => match rest.split_once('/') {
            Some((card, parts)) => {
                let (instance, part) = parts.split_once('/')?;
                number(instance)?;
                number(part)?;
                let card = card.strip_prefix("GPU-")?;
                return is_uuid(card)
                    .then(|| format!("MIG-GPU-{}/{parts}", card.to_ascii_lowercase()));
            }
            None => rest,
        },
        _ => return None,
    };
    is_uuid(uuid).then(|| format!("{prefix}{}", uuid.to_ascii_lowercase()))
}

/// Whether a text is 8-4-4-4-12 hex digits.
fn is_uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
        && groups
            .iter()
            .all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Whether a text is something that a vendor could call unique.
fn is_word(text: &str) -> bool {
    text.len() >= 8
        && text.len() <= 64
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn is_drm_node(text: &str) -> bool {
    ["renderD", "card"]
        .iter()
        .any(|prefix| text.strip_prefix(prefix).and_then(number).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CARD: &str = "GPU-d37d23fd-04b3-66dc-dc9c-ef7f2a39b24c";

    #[test]
    fn each_form_is_parsed_and_shown_in_one_way() {
        let card = CARD.to_lowercase();
        let part = "nvidia:mig-D37D23FD-04b3-66dc-dc9c-ef7f2a39b24c";
        let old = format!("nvidia:MIG-{CARD}/7/0");
        for (text, shown) in [
            ("cpu:8,0-3", "cpu:0-3,8"),
            ("numa:1", "numa:1"),
            (&*format!("nvidia:{card}"), &*format!("nvidia:{CARD}")),
            (part, "nvidia:MIG-d37d23fd-04b3-66dc-dc9c-ef7f2a39b24c"),
            (&*old, &*old),
            ("pci:03:00.0", "pci:0000:03:00.0"),
            (
                "uuid:00000000-0000-0023-0000-0000e2238086",
                "uuid:00000000-0000-0023-0000-0000e2238086",
            ),
            ("drm:renderD128", "drm:renderD128"),
        ] {
            let spec = DeviceSpec::parse(text).expect("because it names a device");
            assert_eq!(spec.to_string(), shown);
            assert_eq!(DeviceSpec::parse(shown), Ok(spec));
        }
    }

    #[test]
    fn an_ordinal_is_refused_as_one() {
        for text in [
            "0",
            "0,1",
            "gpu:0",
            "cuda:1",
            "nvidia:0",
            "sycl:2",
            "level_zero:0",
        ] {
            let error = DeviceSpec::parse(text).expect_err("because it is an ordinal");
            assert!(
                matches!(error, SpecError::Ordinal { .. }),
                "{text}: {error}"
            );
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }

    #[test]
    fn what_names_nothing_is_refused_with_its_text_and_reason() {
        for (text, reason) in [
            ("", "cpu:CORES"),
            ("renderD128", "cpu:CORES"),
            ("cpus:0", "cpu:CORES"),
            ("cpu:", "no core"),
            ("cpu:3-1", "3-1"),
            ("cpu:x", "x"),
            ("numa:", "number"),
            ("numa:+1", "number"),
            ("nvidia:", "nvidia-smi -L"),
            ("nvidia:GPU-d37d23fd", "nvidia-smi -L"),
            (
                "nvidia:MIG-GPU-d37d23fd-04b3-66dc-dc9c-ef7f2a39b24c/7",
                "nvidia-smi -L",
            ),
            ("pci:03:00", "0000:03:00.0"),
            ("uuid:../..", "UUID"),
            ("drm:renderD", "renderDN"),
            ("drm:../card0", "renderDN"),
        ] {
            let error = DeviceSpec::parse(text).expect_err("because it names nothing");
            let words = error.to_string();
            assert!(
                words.contains(reason) && words.contains(&format!("{text:?}")),
                "{words}"
            );
            assert_eq!(error.blame(), Blame::Caller);
        }
    }

    proptest! {
        #[test]
        fn what_is_parsed_is_shown_so_that_it_parses_again(text in "[a-zA-Z0-9:,._/-]{0,50}") {
            if let Ok(spec) = DeviceSpec::parse(&text) {
                prop_assert_eq!(DeviceSpec::parse(&spec.to_string()), Ok(spec));
            }
        }
    }
}
