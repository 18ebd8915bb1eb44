//! The devices that preregistrations name, as this host has them, and who holds them.
//!
//! Invariants: a device that is not here, or that can't be looked for, is an error that says what
//! there is; who could not be looked at is told beside who holds it, never left out.

use packhouse_component::name::CPU;
use packhouse_lab::world::{HostDevice, HostError};
use packhouse_proc::devices::tools::Tools;
use packhouse_proc::devices::{Device, DeviceSpec, Inventory, Roots, Vendor, inventory};
use packhouse_proc::holders::{Context, Holders, holders};
use packhouse_proc::procfs::Procfs;
use std::collections::BTreeSet;

/// The device of a name: `cpu`, or `KIND:UUID`.
pub(crate) fn of(name: &str, tools: &dyn Tools, roots: &Roots) -> Result<HostDevice, HostError> {
    if name == CPU {
        return Ok(HostDevice::default());
    }
    let none = |why: String| HostError::NoDevice {
        device: name.to_owned(),
        why,
    };
    let (spec, vendor) = spec(name).map_err(none)?;
    let seen = inventory(tools, roots);
    let device = seen.find(&spec).map_err(|error| none(error.to_string()))?;
    if vendor.is_some_and(|vendor| vendor != device.vendor) {
        let actual = device.vendor.word();
        return Err(none(format!("{} is a device of {actual}", device.id)));
    }
    let (holding, unknown) = match held(&seen, &device, roots) {
        Ok(found) => told(&found),
        Err(why) => (Vec::new(), vec![why]),
    };
    Ok(HostDevice {
        model: device.name,
        driver: device.driver,
        holders: holding,
        unknown,
    })
}

/// What a name means in a fleet file, and whose device it has to be.
fn spec(name: &str) -> Result<(DeviceSpec, Option<Vendor>), String> {
    let (kind, id) = name.split_once(':').unwrap_or((name, ""));
    let known = KINDS.iter().find(|(known, _, _)| *known == kind);
    let (_, form, vendor) =
        known.ok_or_else(|| format!("{FORMS}; of others this host can't be asked"))?;
    let spec = DeviceSpec::parse(&format!("{form}:{id}")).map_err(|error| error.to_string())?;
    Ok((spec, *vendor))
}

fn held(seen: &Inventory, device: &Device, roots: &Roots) -> Result<Holders, String> {
    let found = Procfs::new(&roots.proc).and_then(|procfs| {
        let exclude = BTreeSet::from([procfs.own_key()?]);
        let context = Context {
            inventory: seen,
            managed: &[],
            exclude: &exclude,
        };
        holders(&procfs, device, &context)
    });
    found.map_err(|error| error.to_string())
}

/// Who holds a device for certain, and of whom that is not known.
fn told(found: &Holders) -> (Vec<String>, Vec<String>) {
    let may = found.may_hold.iter();
    let mut unknown: Vec<String> = may.map(|one| format!("may hold it: {one}")).collect();
    unknown.extend(found.unknown.iter().cloned());
    if found.unreadable_count > 0 {
        let count = found.unreadable_count;
        unknown.push(format!(
            "processes that can't be looked at in full: {count}"
        ));
    }
    let holding = found.holding.iter().map(ToString::to_string);
    (holding.collect(), unknown)
}

/// Kinds of a document's devices: the form that a fleet file has for them, and whose they are.
const KINDS: [(&str, &str, Option<Vendor>); 4] = [
    ("cuda", "nvidia", Some(Vendor::Nvidia)),
    ("nvidia", "nvidia", Some(Vendor::Nvidia)),
    ("uuid", "uuid", None),
    ("xpu", "uuid", Some(Vendor::Intel)),
];
const FORMS: &str = "known are cpu, cuda:GPU-UUID, nvidia:GPU-UUID, xpu:UUID and uuid:UUID";

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_proc::devices::NoTools;

    /// A host without a card.
    fn asked(name: &str) -> Result<HostDevice, HostError> {
        let folder = tempfile::tempdir().expect("because /tmp is there");
        let root = |name: &str| folder.path().join(name);
        let sys = root("sys/devices/system/cpu");
        std::fs::create_dir_all(&sys).expect("because it is ours");
        std::fs::write(sys.join("online"), "0-3\n").expect("because it is ours");
        let roots = Roots {
            proc: root("proc"),
            sys: root("sys"),
            dev: root("dev"),
        };
        of(name, &NoTools, &roots)
    }

    #[test]
    fn a_card_that_is_not_here_is_refused_with_what_is() {
        let zeros = "00000000-0000-0000-0000-000000000000";
        for (name, words) in [
            (format!("cuda:GPU-{zeros}"), "on this host"),
            (format!("nvidia:GPU-{zeros}"), "on this host"),
            (format!("xpu:{zeros}"), "on this host"),
            (format!("uuid:{zeros}"), "on this host"),
            (format!("cuda:{zeros}"), "nvidia-smi -L"),
            (format!("npu:{zeros}"), "known are cpu, cuda:GPU-UUID"),
        ] {
            let error = asked(&name).expect_err("because there is none").to_string();
            assert!(error.starts_with(&format!("device {name}: ")), "{error}");
            assert!(error.contains(words), "{error}");
        }
        assert_eq!(asked("cpu"), Ok(HostDevice::default()));
    }
}
