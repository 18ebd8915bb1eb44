//! What the settings of a worker, and workers beside each other, must agree in.

use super::WorkerName;
use super::layer::Layer;
use super::mistake::{Blocks, Commands, Reach, Wrong};
use super::table::{Located, Notes, Table, position};
use super::template::{Placeholder, Template};
use crate::devices::{Device, DeviceId, DeviceSpec, Observation, Vendor};
use crate::masks::parse::{self, Mask};
use crate::masks::{VARIABLES, VULKAN_MASK, own};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::IpAddr;

/// A worker as far as it could be read.
pub(super) struct Draft {
    pub(super) name: Option<Located<WorkerName>>,
    pub(super) port: Option<Located<u16>>,
    pub(super) devices: Vec<Located<DeviceSpec>>,
    /// Whether these are all that the file names.
    pub(super) has_all_devices: bool,
    pub(super) host: IpAddr,
    pub(super) reach: Reach,
    /// Where it is complete.
    pub(super) worker: Option<super::Worker>,
}

/// A worker's settings from all layers.
pub(super) struct Whole<'w, 'f> {
    pub(super) table: &'w Table<'f>,
    pub(super) layer: &'w Layer,
    pub(super) arguments: &'w [Located<Template>],
    pub(super) command_at: usize,
    /// Whether all layers that add arguments could be read.
    pub(super) is_whole: bool,
}

impl Whole<'_, '_> {
    /// Notes where the settings of one worker contradict each other.
    pub(super) fn compare(&self, draft: &Draft, notes: &mut Notes) {
        self.told(notes);
        self.valued(draft, notes);
        self.masks(draft, notes);
    }

    fn words(&self) -> impl Iterator<Item = &Located<Template>> {
        self.arguments.iter().chain(self.layer.environment.values())
    }

    fn uses(&self, placeholder: Placeholder) -> bool {
        let mut used = self.words().flat_map(|word| word.value.placeholders());
        used.any(|used| used == placeholder)
    }

    /// The engine must be told where to listen, and what to load where that is named.
    fn told(&self, notes: &mut Notes) {
        let is_lost = |key| self.layer.wrong.contains(key);
        if !self.is_whole || is_lost("args") || is_lost("environment") {
            return;
        }
        let mut must = vec![Placeholder::Host, Placeholder::Port];
        must.extend(self.layer.model.as_ref().map(|_| Placeholder::Model));
        for placeholder in must {
            if !self.uses(placeholder) {
                let what = Wrong::NotTold(placeholder);
                let blocks = Blocks {
                    commands: Commands::RenderAndStart,
                    workers: self.table.reach().clone(),
                };
                notes.add(self.command_at, "engine, command", what, blocks);
            }
        }
    }

    /// Every placeholder must have a value.
    fn valued(&self, draft: &Draft, notes: &mut Notes) {
        let has_cores = draft.devices.iter().any(|device| match device.value {
            DeviceSpec::Cores(_) | DeviceSpec::Numa(_) => true,
            DeviceSpec::Nvidia(_)
            | DeviceSpec::Pci(_)
            | DeviceSpec::Uuid(_)
            | DeviceSpec::Drm(_) => false,
        });
        let is_lost = |key| self.layer.wrong.contains(key);
        let may_have_cores = has_cores || !draft.has_all_devices;
        for placeholder in Placeholder::ALL {
            let has_value = match placeholder {
                Placeholder::Model => self.layer.model.is_some() || is_lost("model"),
                Placeholder::Cores => may_have_cores,
                Placeholder::Threads => {
                    may_have_cores || self.layer.threads.is_some() || is_lost("threads")
                }
                Placeholder::Host | Placeholder::Port | Placeholder::Name | Placeholder::Device => {
                    true
                }
            };
            if !has_value && self.uses(placeholder) {
                let what = Wrong::NoValue(placeholder);
                let key = format!("{{{}}}", placeholder.word());
                self.table.note(notes, self.table.at(), &key, what);
            }
        }
    }

    /// Masks follow from the worker's devices; one that the file sets must agree. What only the
    /// host can tell is compared when the worker is rendered.
    fn masks(&self, draft: &Draft, notes: &mut Notes) {
        let witnesses = witnesses(&draft.devices).filter(|_| draft.has_all_devices);
        let Some((devices, host)) = witnesses else {
            return;
        };
        let Ok(made) = own::own(&devices, &host) else {
            return;
        };
        for (name, value) in &self.layer.environment {
            if !VARIABLES.contains(&name.as_str()) {
                continue;
            }
            let text = value.value.to_string();
            let users = BTreeMap::from([(name.clone(), text.clone())]);
            // Vulkan's order is not known, but that a worker of cores has no card is.
            let is_stray = devices.is_empty()
                && name == VULKAN_MASK
                && parse::ggml_vulkan(Some(OsStr::new(&text))) != Mask::Nothing;
            if is_stray || own::with_users(&made, &users, &devices, &host).is_err() {
                let what = Wrong::Mask {
                    value: text,
                    expected: made.get(name).cloned(),
                };
                let key = format!("environment, {name}");
                self.table.note(notes, value.at, &key, what);
            }
        }
    }
}

/// A host that stands for any: it has the worker's cards and one of each other vendor. `None` where
/// a card's vendor is not told by its name.
fn witnesses(specs: &[Located<DeviceSpec>]) -> Option<(Vec<Device>, Vec<Device>)> {
    let mut uuids = Vec::new();
    for spec in specs {
        match &spec.value {
            DeviceSpec::Cores(_) | DeviceSpec::Numa(_) => {}
            DeviceSpec::Nvidia(uuid) if uuid.starts_with("GPU-") => uuids.push(uuid.clone()),
            // Of a part, its card is not known.
            DeviceSpec::Nvidia(_)
            | DeviceSpec::Pci(_)
            | DeviceSpec::Uuid(_)
            | DeviceSpec::Drm(_) => return None,
        }
    }
    let cards: Vec<Device> = (0..)
        .zip(&uuids)
        .map(|(place, uuid)| witness(Vendor::Nvidia, DeviceId::of_nvidia(uuid), uuid, place))
        .collect();
    let other =
        |vendor: Vendor, id: &str, uuid: &str| witness(vendor, DeviceId::recorded(id), uuid, 0);
    let mut host = cards.clone();
    if cards.is_empty() {
        let uuid = "GPU-00000000-0000-0000-0000-000000000000";
        host.push(other(Vendor::Nvidia, "nvidia", uuid));
    }
    host.push(other(Vendor::Amd, "amd", "GPU-0000000000000000"));
    host.push(other(
        Vendor::Intel,
        "intel",
        "00000000-0000-0000-0000-000000000000",
    ));
    Some((cards, host))
}

fn witness(vendor: Vendor, id: DeviceId, uuid: &str, place: u32) -> Device {
    Device {
        id,
        vendor,
        name: String::new(),
        uuid: Some(uuid.to_owned()),
        pci: None,
        nodes: Vec::new(),
        drm: None,
        cores: None,
        numa: None,
        ordinal_in_pci_order: Some(place),
        driver: None,
        sysfs: None,
        memory: Observation::Absent,
        processes: Observation::Absent,
        parent: None,
    }
}

/// Notes names, ports and devices that two workers have.
pub(super) fn across(drafts: &[Draft], text: &str, notes: &mut Notes) {
    for (index, later) in drafts.iter().enumerate() {
        doubled_inside(later, text, notes);
        for earlier in &drafts[..index] {
            let pair = Pair {
                earlier,
                later,
                text,
            };
            pair.names(notes);
            pair.ports(notes);
            pair.devices(notes);
        }
    }
}

struct Pair<'d> {
    earlier: &'d Draft,
    later: &'d Draft,
    text: &'d str,
}

impl Pair<'_> {
    fn names(&self, notes: &mut Notes) {
        if let (Some(first), Some(second)) = (&self.earlier.name, &self.later.name)
            && first.value == second.value
        {
            let value = format!("{:?}", second.value.as_str());
            self.doubled(notes, "name", "the name", (value, second.at, first.at));
        }
    }

    fn ports(&self, notes: &mut Notes) {
        if let (Some(first), Some(second)) = (&self.earlier.port, &self.later.port)
            && first.value == second.value
            && meet(self.earlier.host, self.later.host)
        {
            let value = second.value.to_string();
            self.doubled(notes, "port", "the port", (value, second.at, first.at));
        }
    }

    fn devices(&self, notes: &mut Notes) {
        for second in &self.later.devices {
            let first = self.earlier.devices.iter();
            let shared = first.filter_map(|first| Some((first, shared(first, second)?)));
            for (first, value) in shared {
                self.doubled(notes, "device", "a device", (value, second.at, first.at));
            }
        }
    }

    /// Notes what both have: it blocks both, as neither is more right than the other.
    fn doubled(
        &self,
        notes: &mut Notes,
        key: &str,
        what: &'static str,
        (value, at, first_at): (String, usize, usize),
    ) {
        let commands = match key {
            "name" => Commands::RenderAndStart,
            _ => Commands::Start,
        };
        let what = Wrong::Doubled {
            what,
            value,
            other: self.earlier.label(),
            line: position(self.text, first_at).0,
        };
        let workers = self.earlier.reach.clone().and(self.later.reach.clone());
        let blocks = Blocks { commands, workers };
        notes.add(at, format!("{}, {key}", self.later.label()), what, blocks);
    }
}

impl Draft {
    fn label(&self) -> String {
        match &self.reach {
            Reach::All => "the fleet".to_owned(),
            Reach::These(names) => {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                format!("worker {}", names.join(", "))
            }
        }
    }
}

fn doubled_inside(draft: &Draft, text: &str, notes: &mut Notes) {
    for (index, second) in draft.devices.iter().enumerate() {
        for first in &draft.devices[..index] {
            let Some(value) = shared(first, second) else {
                continue;
            };
            let what = Wrong::Doubled {
                what: "a device",
                value,
                other: "the same worker".to_owned(),
                line: position(text, first.at).0,
            };
            let blocks = Blocks {
                commands: Commands::Start,
                workers: draft.reach.clone(),
            };
            notes.add(
                second.at,
                format!("{}, device", draft.label()),
                what,
                blocks,
            );
        }
    }
}

/// What two devices share, as far as their names tell; other names may yet be the same card, which
/// only the host knows.
fn shared(first: &Located<DeviceSpec>, second: &Located<DeviceSpec>) -> Option<String> {
    if let (DeviceSpec::Cores(left), DeviceSpec::Cores(right)) = (&first.value, &second.value) {
        let both = left.intersection(right);
        return (!both.is_empty()).then(|| format!("cpu:{both}"));
    }
    (first.value == second.value).then(|| second.value.to_string())
}

/// Whether two addresses can't both be bound with one port. `::` is taken to answer for IPv4 too,
/// as it does by default.
fn meet(left: IpAddr, right: IpAddr) -> bool {
    let (left, right) = (left.to_canonical(), right.to_canonical());
    let covers = |wide: IpAddr, other: IpAddr| match (wide, other) {
        (IpAddr::V4(wide), IpAddr::V4(_)) => wide.is_unspecified(),
        (IpAddr::V6(wide), IpAddr::V6(_) | IpAddr::V4(_)) => wide.is_unspecified(),
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
    };
    left == right || covers(left, right) || covers(right, left)
}
