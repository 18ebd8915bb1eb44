//! Who holds a device, or may.
//!
//! Invariants:
//! - a process is left out by its key, never by its name or pid alone;
//! - what can't be read makes a holder uncertain, never absent: a server whose environment is
//!   unreadable may hold every card;
//! - a pid on a vendor's list counts whether or not it is seen here;
//! - what was not told at all is in `unknown`, so that an empty list is not read as idle.
//!
//! Never: signals or traces anything. Design: `docs/design/holders.md`.

mod card;
mod engines;
mod seen;

use crate::cores::CpuSet;
use crate::devices::{Device, DeviceId, Inventory, Observation, Vendor};
use crate::identity::ProcessKey;
use crate::procfs::{Presence, Procfs, ProcfsError};
use card::Card;
use packhouse_base::units;
use seen::Seen;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

/// A worker of any fleet of this user that was not proven gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManagedWorker {
    /// Its fleet.
    pub fleet: String,
    /// Its name.
    pub worker: String,
    /// Its processes, keeper among them.
    pub keys: Vec<ProcessKey>,
    /// Where it listens, or will.
    pub address: SocketAddr,
    /// Its devices.
    pub devices: Vec<DeviceId>,
    /// Its cores, where it was given any.
    pub cores: Option<CpuSet>,
}

/// A process that has a device, or may have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its pid, as listed by whoever told of it.
    pub pid: u32,
    /// Its key; `None`: it is not seen here.
    pub key: Option<ProcessKey>,
    /// Its name, for people.
    pub name: String,
    /// Its user, where that is known.
    pub uid: Option<u32>,
    /// What shows that it holds the device.
    pub how: Vec<How>,
    /// Whether it holds it for certain.
    pub certain: bool,
}

/// What shows that a process holds a device.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    /// A worker of ours has the device by its record.
    Managed {
        /// Its fleet.
        fleet: String,
        /// Its name.
        worker: String,
    },
    /// The vendor lists it.
    VendorList {
        /// Its memory on the device.
        used_bytes: Option<u64>,
    },
    /// It has a device node open.
    OpenNode {
        /// Which.
        path: String,
    },
    /// It is a client of the DRM device.
    DrmClient {
        /// Its memory on the device.
        memory_bytes: Option<u64>,
    },
    /// A server whose masks show it the device, or may.
    Mask {
        /// Why it is not told for certain; empty where it is.
        why: String,
    },
    /// A server that is bound to some of the cores.
    Cores {
        /// Those that both have.
        shared: CpuSet,
    },
    /// A server that may run on any core.
    Unbound,
}

/// All that holds a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holders {
    /// Processes that hold it.
    pub holding: Vec<Holder>,
    /// Processes that may hold it.
    pub may_hold: Vec<Holder>,
    /// Processes worth knowing of that stop nobody.
    pub notes: Vec<Holder>,
    /// How many processes could not be looked at in full.
    pub unreadable_count: usize,
    /// What was not told, by whom and why.
    pub unknown: Vec<String>,
}

/// What processes are judged against.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The devices of this host.
    pub inventory: &'a Inventory,
    /// The workers of all fleets of this user, the one to start left out.
    pub managed: &'a [ManagedWorker],
    /// This process, the tools that it started, and what else is known to be no holder.
    pub exclude: &'a BTreeSet<ProcessKey>,
}

/// All processes at one time, looked at once for all devices.
#[derive(Clone, Debug)]
pub struct Processes {
    seen: Vec<Seen>,
    /// Processes that are not shown to us at all.
    hidden_count: usize,
    /// The cores of who is bound to none: those of the first process, whose cores all others
    /// inherit, or else all that any process has.
    unbound: CpuSet,
    procfs: Procfs,
}

/// Finds who holds a device. Errors when there is no list of processes.
pub fn holders(
    procfs: &Procfs,
    device: &Device,
    context: &Context<'_>,
) -> Result<Holders, ProcfsError> {
    Processes::look(procfs)?.holders(device, context)
}

impl Processes {
    /// Looks at all processes. Errors when there is no list of them.
    pub fn look(procfs: &Procfs) -> Result<Self, ProcfsError> {
        let (mut seen, mut hidden_count) = (Vec::new(), 0);
        let (mut first, mut cores) = (None, BTreeSet::new());
        for pid in procfs.pids()? {
            match procfs.process(pid) {
                Ok(Some(process)) if process.is_kernel_thread => {}
                Ok(Some(process)) => {
                    cores.extend(process.affinity.iter());
                    if pid == FIRST_PID {
                        first = Some(process.affinity.clone());
                    }
                    seen.extend(Seen::look(&process));
                }
                Ok(None) => {}
                Err(
                    ProcfsError::Hidden { .. }
                    | ProcfsError::Malformed { .. }
                    | ProcfsError::Read { .. },
                ) => hidden_count += 1,
                Err(
                    error @ (ProcfsError::OtherMount { .. } | ProcfsError::OtherNamespace { .. }),
                ) => return Err(error),
            }
        }
        let all = CpuSet::of(cores).expect("because they are cores of sets");
        Ok(Self {
            seen,
            hidden_count,
            unbound: first.unwrap_or(all),
            procfs: procfs.clone(),
        })
    }

    /// Says who holds a device. Errors when a worker's processes can't be looked up.
    pub fn holders(&self, device: &Device, context: &Context<'_>) -> Result<Holders, ProcfsError> {
        let mut found = Found::default();
        self.managed(device, context, &mut found)?;
        match device.vendor {
            Vendor::Cpu => self.of_cores(device, context, &mut found),
            Vendor::Nvidia | Vendor::Intel | Vendor::Amd | Vendor::Other => {
                self.listed(device, context, &mut found);
                self.of_card(device, context, &mut found);
            }
        }
        let partly = self.seen.iter().filter(|seen| seen.is_partly_unreadable());
        found.holders.unreadable_count = self.hidden_count + partly.count();
        Ok(found.sorted())
    }

    /// Workers that have the device by their records.
    fn managed(
        &self,
        device: &Device,
        context: &Context<'_>,
        found: &mut Found,
    ) -> Result<(), ProcfsError> {
        let devices = &context.inventory.devices;
        for worker in context.managed {
            if !has(worker, device, devices) {
                continue;
            }
            let how = || How::Managed {
                fleet: worker.fleet.clone(),
                worker: worker.worker.clone(),
            };
            if worker.keys.is_empty() {
                // It lives by its records, and which processes it has can't be told.
                let name = "its processes can't be told";
                found.stranger(0, name, how(), Weight::Holds);
            }
            for key in &worker.keys {
                if context.exclude.contains(key) {
                    continue;
                }
                if let Some(seen) = self.seen.iter().find(|seen| seen.key == *key) {
                    found.add(seen, how(), Weight::Holds);
                    continue;
                }
                match self.procfs.presence(key) {
                    Ok(Presence::Gone | Presence::Reused { .. } | Presence::EarlierBoot) => {}
                    Ok(Presence::Alive) => found.unseen(key, how(), Weight::Holds),
                    Ok(Presence::OtherNamespace) | Err(ProcfsError::Hidden { .. }) => {
                        found.unseen(key, how(), Weight::MayHold);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Processes on the vendor's list, and on that of the card that a part is of.
    fn listed(&self, device: &Device, context: &Context<'_>, found: &mut Found) {
        let card = device.parent.as_ref().and_then(|parent| {
            let mut devices = context.inventory.devices.iter();
            devices.find(|other| other.id == *parent)
        });
        // A card's list has the processes of all its parts, so it proves nothing of one.
        let whole = card.map(|card| (card, Weight::MayHold));
        let own_tells = matches!(device.processes, Observation::Known(_));
        let sources = [Some((device, Weight::Holds)), whole.filter(|_| !own_tells)];
        for (source, weight) in sources.into_iter().flatten() {
            match &source.processes {
                Observation::Known(list) => {
                    for process in list {
                        self.one_listed(process.pid, process.used_bytes, weight, context, found);
                    }
                }
                Observation::Absent => {}
                Observation::Unknown { why } => {
                    let why = format!("the list of processes on {}: {why}", source.id);
                    found.holders.unknown.push(why);
                }
            }
        }
    }

    fn one_listed(
        &self,
        pid: u32,
        used_bytes: Option<u64>,
        weight: Weight,
        context: &Context<'_>,
        found: &mut Found,
    ) {
        let how = How::VendorList { used_bytes };
        match self.seen.iter().find(|seen| seen.key.pid == pid) {
            Some(seen) if context.exclude.contains(&seen.key) => {}
            Some(seen) => found.add(seen, how, weight),
            // A tool that listed itself and has ended since.
            None if context.exclude.iter().any(|key| key.pid == pid) => {}
            None => found.stranger(pid, NOT_SEEN, how, weight),
        }
    }

    fn of_card(&self, device: &Device, context: &Context<'_>, found: &mut Found) {
        let own: BTreeSet<&ProcessKey> = context
            .managed
            .iter()
            .flat_map(|worker| worker.keys.iter())
            .collect();
        let card = Card {
            device,
            all: &context.inventory.devices,
            listed: self.listed_pids(device),
        };
        for seen in &self.seen {
            if context.exclude.contains(&seen.key) {
                continue;
            }
            let is_open = card.opened(seen, found);
            // A worker of ours is bound to its own devices, by masks that were read back.
            if is_open || own.contains(&seen.key) || !card.is_suspect(seen) {
                continue;
            }
            if let Some(why) = card.may_reach(seen) {
                found.add(seen, How::Mask { why }, Weight::MayHold);
            }
        }
    }

    /// The pids of a vendor's list that is whole and has our pids: in a container, vendors list
    /// pids of the host.
    fn listed_pids(&self, device: &Device) -> Option<BTreeSet<u32>> {
        let list = device.processes.known()?;
        let is_host = self.procfs.pid_namespace() == FIRST_NAMESPACE;
        is_host.then(|| list.iter().map(|listed| listed.pid).collect())
    }

    fn of_cores(&self, device: &Device, context: &Context<'_>, found: &mut Found) {
        let Some(cores) = &device.cores else {
            return;
        };
        let own: BTreeSet<&ProcessKey> = context
            .managed
            .iter()
            .flat_map(|worker| worker.keys.iter())
            .collect();
        for seen in &self.seen {
            let is_known = context.exclude.contains(&seen.key) || own.contains(&seen.key);
            if is_known || !seen.computes_on_cores() {
                continue;
            }
            let shared = seen.affinity.intersection(cores);
            let is_bound = !self.unbound.is_subset(&seen.affinity);
            if shared.is_empty() {
                continue;
            }
            if is_bound {
                found.add(seen, How::Cores { shared }, Weight::Holds);
            } else {
                found.add(seen, How::Unbound, Weight::Note);
            }
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (pid {}", self.name, self.pid)?;
        if let Some(uid) = self.uid {
            write!(f, ", uid {uid}")?;
        }
        f.write_str(")")?;
        for (index, how) in self.how.iter().enumerate() {
            write!(f, "{}{how}", if index == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

impl fmt::Display for How {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Managed { fleet, worker } => write!(f, "worker {worker} of fleet {fleet}"),
            Self::VendorList { used_bytes: None } => f.write_str("the vendor's list has it"),
            Self::VendorList {
                used_bytes: Some(bytes),
            } => write!(f, "the vendor's list has it with {}", units::bytes(*bytes)),
            Self::OpenNode { path } => write!(f, "has {path} open"),
            Self::DrmClient { memory_bytes: None } => f.write_str("is a client of its driver"),
            Self::DrmClient {
                memory_bytes: Some(bytes),
            } => write!(f, "is a client of its driver with {}", units::bytes(*bytes)),
            Self::Mask { why } if why.is_empty() => f.write_str("its masks show it this card"),
            Self::Mask { why } => f.write_str(why),
            Self::Cores { shared } => write!(f, "is bound to cores {shared}"),
            Self::Unbound => f.write_str("may run on any core"),
        }
    }
}

/// What is said of a listed pid that nobody has here.
const NOT_SEEN: &str = "a process that is not seen here, in a container or ended just now";

/// The inode of the first pid namespace of every kernel: PROC_PID_INIT_INO.
const FIRST_NAMESPACE: u64 = 0xEFFF_FFFC;

/// The first process of a pid namespace.
const FIRST_PID: u32 = 1;

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Weight {
    Note,
    MayHold,
    Holds,
}

/// Holders by pid while they are found, with the heaviest finding of each.
#[derive(Default)]
struct Found {
    by_pid: BTreeMap<u32, (Weight, Holder)>,
    holders: Holders,
}

impl Found {
    fn add(&mut self, seen: &Seen, how: How, weight: Weight) {
        let holder = Holder {
            pid: seen.key.pid,
            key: Some(seen.key),
            name: seen.name.clone(),
            uid: Some(seen.uid),
            how: Vec::new(),
            certain: false,
        };
        self.join(holder, how, weight);
    }

    fn unseen(&mut self, key: &ProcessKey, how: How, weight: Weight) {
        let holder = Holder {
            pid: key.pid,
            key: Some(*key),
            name: "a process that is not shown here".to_owned(),
            uid: None,
            how: Vec::new(),
            certain: false,
        };
        self.join(holder, how, weight);
    }

    fn stranger(&mut self, pid: u32, name: &str, how: How, weight: Weight) {
        let holder = Holder {
            pid,
            key: None,
            name: name.to_owned(),
            uid: None,
            how: Vec::new(),
            certain: false,
        };
        self.join(holder, how, weight);
    }

    fn join(&mut self, holder: Holder, how: How, weight: Weight) {
        let entry = self.by_pid.entry(holder.pid).or_insert((weight, holder));
        entry.0 = entry.0.max(weight);
        entry.1.how.push(how);
    }

    fn sorted(mut self) -> Holders {
        for (weight, mut holder) in self.by_pid.into_values() {
            holder.how.sort();
            holder.how.dedup();
            holder.certain = weight == Weight::Holds;
            match weight {
                Weight::Holds => self.holders.holding.push(holder),
                Weight::MayHold => self.holders.may_hold.push(holder),
                Weight::Note => self.holders.notes.push(holder),
            }
        }
        self.holders
    }
}

/// Whether a worker has a device, a part of it, or what it is a part of.
fn has(worker: &ManagedWorker, device: &Device, all: &[Device]) -> bool {
    match (device.vendor, &device.cores) {
        (Vendor::Cpu, Some(cores)) => worker
            .cores
            .as_ref()
            .is_some_and(|own| own.intersects(cores)),
        (Vendor::Cpu, None) => false,
        (Vendor::Nvidia | Vendor::Intel | Vendor::Amd | Vendor::Other, _) => {
            worker.devices.iter().any(|own| {
                let is_part =
                    |other: &Device| other.id == *own && other.parent.as_ref() == Some(&device.id);
                *own == device.id || Some(own) == device.parent.as_ref() || all.iter().any(is_part)
            })
        }
    }
}
