//! What `lab state --live` observes on this host: drafts, what packets froze, processes, ports,
//! devices, the repository.
//!
//! Only what was seen counts: a program that a packet froze is shown as running where a process
//! has that very file as its program, and nowhere else. What can't be told is a line that says so.

use crate::answer::shortened;
use crate::lab::Place;
use crate::lab_experiment::drafts;
use crate::lab_open::counted;
use crate::lab_page::Read;
use crate::places::Lookup;
use crate::run::own_binary;
use crate::{lab_frozen, places, worker_devices};
use packhouse_base::digest::{Digest, Hasher};
use packhouse_base::units;
use packhouse_build::fingerprint::{World, work_tree};
use packhouse_lab::packet::{FrozenProgram, Object};
use packhouse_lab::prereg::OWN_PROGRAM;
use packhouse_ledger::is_packet_held;
use packhouse_ledger::page::{Found, Live, Observation, Topic};
use packhouse_proc::devices::{Device, Observation as Told, Roots};
use packhouse_proc::listeners::{Listener, listeners};
use packhouse_proc::procfs::{Process, Procfs, Unreadable};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::Fs;
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

/// Looks at this host.
pub(crate) fn observe(lab: &Read<'_>, place: &Place, lookup: Lookup<'_>) -> Live {
    let mut live = Live {
        at_ns: RealClock.wall_ns(),
        observations: Vec::new(),
    };
    drafted(lab, &mut live);
    measured(lab, &mut live);
    executing(lab, &mut live);
    processes(lab, &mut live);
    devices(lookup, &mut live);
    repository(&place.root, lookup, &mut live);
    live
}

fn note(live: &mut Live, topic: Topic, known: bool, subject: &str, seen: String, how: &str) {
    live.observations.push(Observation {
        topic,
        subject: subject.to_owned(),
        seen,
        how: how.to_owned(),
        at_ns: RealClock.wall_ns(),
        known,
    });
}

/// Preregistrations that nobody registered.
fn drafted(lab: &Read<'_>, live: &mut Live) {
    const HOW: &str = "read experiments/*/prereg.toml";
    match drafts(&lab.opened.root, lab.ledger.state()) {
        Ok(drafts) => {
            for draft in &drafts {
                note(live, Topic::Drafts, true, &draft.id, draft.words(), HOW);
            }
            if drafts.is_empty() {
                let seen = "no experiment waits to be registered".to_owned();
                note(live, Topic::Drafts, true, "none", seen, HOW);
            }
        }
        Err(error) => note(live, Topic::Drafts, false, "all", error.to_string(), HOW),
    }
}

/// Whether what waiting packets froze is still what it was.
fn measured(lab: &Read<'_>, live: &mut Live) {
    const HOW: &str = "measured again, as `lab run` would";
    let all = lab_frozen::measure(&lab.opened, &lab.ledger);
    for one in &all {
        let same = || vec!["all that it froze is as it was".to_owned()];
        let lines = match one.differences.is_empty() {
            true => same(),
            false => one.differences.clone(),
        };
        for line in lines {
            note(live, Topic::Frozen, one.known, &one.experiment, line, HOW);
        }
    }
    if all.is_empty() {
        let seen = "no packet waits to be run".to_owned();
        note(live, Topic::Frozen, true, "none", seen, HOW);
    }
}

/// Whether somebody is at the packets whose run began.
fn executing(lab: &Read<'_>, live: &mut Live) {
    const HOW: &str = "asked for the packet's lock";
    let packets = lab.ledger.state().packets().iter();
    for (packet, state) in packets.filter(|(_, state)| state.standing.has_begun()) {
        let held = is_packet_held(&lab.opened.root, *packet);
        let known = held.is_ok();
        let seen = match held {
            Ok(true) => "a process executes it".to_owned(),
            Ok(false) => "no process executes it: its run ended, and `packhouse lab seal` \
                          finishes it"
                .to_owned(),
            Err(error) => error.to_string(),
        };
        let subject = state.experiment.as_str();
        note(live, Topic::Processes, known, subject, seen, HOW);
    }
}

/// What is known of a program's file: its content, and whose it is.
#[derive(Clone, Debug)]
struct Frozen {
    digest: Digest,
    /// What is loaded with it; of a script its interpreter is among it.
    objects: Vec<Object>,
    roles: Vec<String>,
}

/// What a process runs.
enum Running {
    /// A frozen program, by its bytes.
    Frozen(String),
    /// What only looks like one.
    Other(String),
}

/// The programs of all packets, by the last component of their names.
fn frozen(lab: &Read<'_>, live: &mut Live) -> BTreeMap<String, Vec<Frozen>> {
    let mut programs: BTreeMap<String, Vec<Frozen>> = BTreeMap::new();
    for (experiment, packet) in lab.packets() {
        let why = match packet {
            Found::Here(packet) => {
                for (treatment, program) in packet.programs.all() {
                    add(
                        &mut programs,
                        program,
                        format!("{experiment} ({treatment})"),
                    );
                }
                continue;
            }
            Found::Absent => "packet.json is not here, so nothing is known of its programs",
            Found::Refused(_) => "packet.json is not the ledger's",
        };
        let how = format!("read experiments/{experiment}/packet.json");
        note(
            live,
            Topic::Processes,
            false,
            &experiment,
            why.to_owned(),
            &how,
        );
    }
    programs
}

fn add(programs: &mut BTreeMap<String, Vec<Frozen>>, program: &FrozenProgram, role: String) {
    let digest = program.program.sha256;
    let mut names = vec![last(&program.program.name).to_owned()];
    // The program that runs the lab goes by one name in documents, whatever its file is called.
    if program.program.name == OWN_PROGRAM
        && let Ok(own) = own_binary()
        && let Some(name) = own.file_name().and_then(|name| name.to_str())
        && name != OWN_PROGRAM
    {
        names.push(name.to_owned());
    }
    for name in names {
        let known = programs.entry(name).or_default();
        match known.iter_mut().find(|one| one.digest == digest) {
            Some(one) => one.roles.push(role.clone()),
            None => known.push(Frozen {
                digest,
                objects: program.objects.clone(),
                roles: vec![role.clone()],
            }),
        }
    }
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn processes(lab: &Read<'_>, live: &mut Live) {
    let programs = frozen(lab, live);
    let seen = Procfs::new(Path::new("/proc")).and_then(|procfs| {
        let own = procfs.own_key()?;
        let all = procfs.processes()?;
        Ok((procfs, own, all))
    });
    let (procfs, own, all) = match seen {
        Ok(seen) => seen,
        Err(error) => {
            for topic in [Topic::Processes, Topic::Ports] {
                note(live, topic, false, "all", error.to_string(), "read /proc");
            }
            return;
        }
    };
    let mut found = Vec::new();
    let mut unreadable_count = all.hidden_count;
    let others = all
        .shown
        .iter()
        .filter(|one| !one.is_kernel_thread && one.key != own);
    for process in others {
        match running(process, &programs) {
            Ok(Some(running)) => {
                let subject = format!("process {}, {}", process.key.pid, process.name);
                let how = format!("content of /proc/{}/exe", process.key.pid);
                let seen = match running {
                    Running::Frozen(seen) => {
                        found.push(process);
                        seen
                    }
                    Running::Other(seen) => seen,
                };
                note(live, Topic::Processes, true, &subject, seen, &how);
            }
            Ok(None) | Err(Unreadable::Gone | Unreadable::NoProgram) => {}
            Err(_) => unreadable_count += 1,
        }
    }
    let how = format!("/proc/PID/exe of {} processes", all.shown.len());
    if found.is_empty() {
        let seen = "no process seen runs a program that a packet of this lab froze".to_owned();
        note(live, Topic::Processes, true, "none", seen, &how);
    }
    if unreadable_count > 0 {
        let count = counted(unreadable_count, "process", "processes");
        let seen = format!("{count} whose program can't be read");
        note(live, Topic::Processes, false, "others", seen, &how);
    }
    ports(&procfs, &found, live);
}

/// What a process runs of what packets froze, with its command line.
fn running(
    process: &Process,
    programs: &BTreeMap<String, Vec<Frozen>>,
) -> Result<Option<Running>, Unreadable> {
    let executable = process.executable()?;
    let name = executable.path.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let words = process.command()?;
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let command = shortened(&words.join(" "), COMMAND_CHARS);
    if let Some(known) = programs.get(&*name) {
        let digest = content(process)?;
        return Ok(Some(match known.iter().find(|one| one.digest == digest) {
            Some(one) => {
                let roles = few(&one.roles);
                Running::Frozen(format!("runs the program frozen for {roles}: {command}"))
            }
            None => Running::Other(format!(
                "has a frozen program's name, and is another file: {command}"
            )),
        }));
    }
    // A script is not its process' program: its interpreter is.
    let scripts = words.iter().skip(1);
    let scripts = scripts
        .filter_map(|word| programs.get(last(word)))
        .flatten();
    for script in scripts {
        let mut named = script.objects.iter().filter(|object| object.name == name);
        if let Some(object) = named.next()
            && object.sha256 == content(process)?
        {
            let roles = few(&script.roles);
            return Ok(Some(Running::Frozen(format!(
                "runs the interpreter frozen for {roles}, with its script's name: {command}"
            ))));
        }
    }
    Ok(None)
}

/// A few packets of a program, and how many more have it.
fn few(roles: &[String]) -> String {
    let shown: Vec<&str> = roles.iter().take(ROLES_MAX).map(String::as_str).collect();
    match roles.len().saturating_sub(ROLES_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

const COMMAND_CHARS: usize = 100;
const ROLES_MAX: usize = 3;

fn content(process: &Process) -> Result<Digest, Unreadable> {
    let mut file = process.open_executable()?;
    let mut hasher = Hasher::default();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(count) => hasher.update(&buffer[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Unreadable::Malformed { file: "exe" }),
        }
    }
}

fn ports(procfs: &Procfs, found: &[&Process], live: &mut Live) {
    const HOW: &str = "/proc/net/tcp and tcp6, and the processes' open files";
    let listening = match listeners(procfs) {
        Ok(listening) => listening,
        Err(error) => return note(live, Topic::Ports, false, "all", error.to_string(), HOW),
    };
    let mut count = 0_usize;
    for process in found {
        let subject = format!("process {}, {}", process.key.pid, process.name);
        let files = match process.open_files() {
            Ok(files) => files,
            Err(Unreadable::Gone) => continue,
            Err(error) => {
                note(live, Topic::Ports, false, &subject, error.to_string(), HOW);
                continue;
            }
        };
        let has = |one: &&Listener| {
            files
                .iter()
                .any(|file| file.socket_inode == Some(one.inode))
        };
        for listener in listening.iter().filter(has) {
            count += 1;
            let address = listener.address.to_string();
            note(
                live,
                Topic::Ports,
                true,
                &address,
                format!("{subject} listens"),
                HOW,
            );
        }
    }
    if count == 0 {
        let seen = format!(
            "none of the processes above listens; ports of others that are open: {}",
            listening.len()
        );
        note(live, Topic::Ports, true, "none", seen, HOW);
    }
}

fn devices(lookup: Lookup<'_>, live: &mut Live) {
    let inventory = worker_devices::look(lookup);
    for device in &inventory.devices {
        let (known, seen) = device_words(device);
        note(
            live,
            Topic::Devices,
            known,
            device.id.as_str(),
            seen,
            "packhouse worker devices",
        );
    }
    for report in &inventory.reports {
        if let Some(why) = report.outcome.why_unknown() {
            let seen = format!("no answer: {why}");
            note(
                live,
                Topic::Devices,
                false,
                report.source,
                seen,
                "packhouse worker devices",
            );
        }
    }
}

fn device_words(device: &Device) -> (bool, String) {
    let memory = match &device.memory {
        Told::Known(memory) => {
            let total = memory.total_bytes.map(units::bytes);
            let total = total.map_or(String::new(), |total| format!(" of {total}"));
            format!("{}{total} in use", units::bytes(memory.used_bytes))
        }
        Told::Absent => "no memory of its own".to_owned(),
        Told::Unknown { why } => format!("memory unknown: {why}"),
    };
    let processes = match &device.processes {
        Told::Known(list) => counted(list.len() as u64, "process", "processes"),
        Told::Absent => "processes not listed".to_owned(),
        Told::Unknown { why } => format!("processes unknown: {why}"),
    };
    let known = device.memory.why_unknown().is_none() && device.processes.why_unknown().is_none();
    (known, format!("{}: {memory}; {processes}", device.name))
}

fn repository(root: &Path, lookup: Lookup<'_>, live: &mut Live) {
    const HOW: &str = "git status in the lab's folder";
    let (fs, clock): (Arc<dyn Fs>, Arc<dyn Clock>) = (Arc::new(RealFs), Arc::new(RealClock));
    let world = World {
        fs: &fs,
        clock: &clock,
        state: None,
        tools: &worker_devices::tools(lookup),
        roots: &Roots::default(),
        own: &places::whole_environment(),
    };
    match work_tree(root, &world) {
        Ok(tree) => {
            let seen = match tree.changed.first() {
                None => "nothing in the lab's folder differs from it".to_owned(),
                Some(first) => {
                    let count = tree.changed.len();
                    format!(
                        "{count} paths differ from it, the first: {}",
                        first.display()
                    )
                }
            };
            let commit = format!("commit {}", tree.commit);
            note(live, Topic::Git, true, &commit, seen, HOW);
        }
        Err(error) => note(live, Topic::Git, false, "commit", error.to_string(), HOW),
    }
}
