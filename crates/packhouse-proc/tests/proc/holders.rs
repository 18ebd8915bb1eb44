//! Who holds a device: real processes, and a made up `/proc` for what no test can make real.
//!
//! Only processes of the test are looked for in answers: the host runs others.

#[path = "../../src/procfs/tree.rs"]
mod tree;

mod made_up;

use crate::cards::{card, cores, inventory, with_node};
use crate::started::{Started, again_under, procfs, role, wait_for_program};
use packhouse_proc::cores::CpuSet;
use packhouse_proc::devices::{Device, Inventory, Observation, Vendor, VendorProcess};
use packhouse_proc::holders::{Context, Holder, Holders, How, ManagedWorker, holders};
use packhouse_proc::identity::ProcessKey;
use packhouse_proc::procfs::Procfs;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A host's cards, workers and observers.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) devices: Vec<Device>,
    pub(crate) managed: Vec<ManagedWorker>,
    pub(crate) exclude: BTreeSet<ProcessKey>,
}

impl World {
    pub(crate) fn of(devices: &[Device]) -> Self {
        Self {
            devices: devices.to_vec(),
            ..Self::default()
        }
    }

    pub(crate) fn holders_in(&self, procfs: &Procfs, device: &Device) -> Holders {
        let inventory: Inventory = inventory(&self.devices);
        let context = Context {
            inventory: &inventory,
            managed: &self.managed,
            exclude: &self.exclude,
        };
        holders(procfs, device, &context).expect("because processes can be listed")
    }

    fn holders(&self, device: &Device) -> Holders {
        self.holders_in(&procfs(), device)
    }
}

/// What is said of a process: its list and why, or nothing.
pub(crate) fn said(found: &Holders, pid: u32) -> Option<(&'static str, Vec<How>)> {
    let lists = [
        ("holds", &found.holding, true),
        ("may hold", &found.may_hold, false),
        ("note", &found.notes, false),
    ];
    let mut said = None;
    for (word, list, certain) in lists {
        let of_pid = |holder: &&Holder| holder.pid == pid;
        if let Some(holder) = list.iter().find(of_pid) {
            assert_eq!(holder.certain, certain, "{holder}");
            assert_eq!(said, None, "a process is in one list");
            said = Some((word, holder.how.clone()));
        }
    }
    said
}

/// `sleep` under another name.
fn engine(folder: &Path, name: &str) -> Command {
    let program = folder.join(name);
    if !program.exists() {
        let sleep = ["/usr/bin/sleep", "/bin/sleep"];
        let found = sleep.iter().find(|path| Path::new(path).exists());
        let found = found.expect("because coreutils are everywhere");
        std::fs::copy(found, &program).expect("because the folder is the test's");
    }
    let mut command = Command::new(program);
    command.arg("60").stdin(Stdio::null()).env_clear();
    command
}

fn started(command: &mut Command, name: &str) -> Started {
    let child = Started::new(command);
    wait_for_program(child.0.id(), name);
    child
}

fn nvidia() -> [Device; 2] {
    ["aaaa", "bbbb"].map(|text| {
        let ordinal = u32::from(text == "bbbb");
        let uuid = format!("GPU-{text}{text}-0000-0000-0000-000000000000");
        card(Vendor::Nvidia, ordinal, Some(&uuid))
    })
}

#[test]
fn a_strangers_server_collides_by_every_form_of_its_mask() {
    let folder = tempfile::tempdir().expect("because a folder can be made");
    let [first, second] = nvidia();
    let intel = card(Vendor::Intel, 0, None);
    let amd = card(Vendor::Amd, 0, None);
    let world = World::of(&[first.clone(), second.clone(), intel.clone(), amd.clone()]);
    let masked = |set: &[(&str, &str)]| {
        let child = started(
            engine(folder.path(), "llama-server").envs(set.iter().copied()),
            "llama-server",
        );
        [&first, &second, &intel, &amd].map(|device| {
            let said = said(&world.holders(device), child.0.id());
            said.map(|(word, how)| {
                assert_eq!(word, "may hold");
                let [How::Mask { why }] = how.as_slice() else {
                    panic!("{how:?}");
                };
                why.clone()
            })
        })
    };
    let yes = Some(String::new());
    // Without a mask a server is a collision on every card.
    assert_eq!(masked(&[]), [&yes, &yes, &yes, &yes].map(Clone::clone));
    let hidden = [("ROCR_VISIBLE_DEVICES", ""), ("ZE_AFFINITY_MASK", "7")];
    let order = ("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
    let with = |mask| [("CUDA_VISIBLE_DEVICES", mask), order, hidden[0], hidden[1]];
    assert_eq!(masked(&with("0")), [yes.clone(), None, None, None]);
    assert_eq!(masked(&with("0,1")), [yes.clone(), yes.clone(), None, None]);
    assert_eq!(masked(&with("1")), [None, yes.clone(), None, None]);
    assert_eq!(masked(&with("GPU-bbbb")), [None, yes.clone(), None, None]);
    assert_eq!(masked(&with("")), [None, None, None, None]);
    let unclear = Some(r#"CUDA_VISIBLE_DEVICES: "a" in "a" is no device"#.to_owned());
    assert_eq!(masked(&with("a")), [unclear.clone(), unclear, None, None]);
    let tile = [
        ("CUDA_VISIBLE_DEVICES", ""),
        hidden[0],
        ("ZE_AFFINITY_MASK", "0.0"),
    ];
    assert_eq!(masked(&tile), [None, None, yes, None]);
}

#[test]
fn engines_are_known_by_program_words_and_libraries() {
    let folder = tempfile::tempdir().expect("because a folder can be made");
    let [first, _] = nvidia();
    let world = World::of(std::slice::from_ref(&first));
    let is_suspect = |child: &Started| said(&world.holders(&first), child.0.id()).is_some();
    for name in ["llama-bench", "ollama", "vllm", "koboldcpp"] {
        assert!(
            is_suspect(&started(&mut engine(folder.path(), name), name)),
            "{name}"
        );
    }
    for name in ["sleeper", "notllama"] {
        assert!(
            !is_suspect(&started(&mut engine(folder.path(), name), name)),
            "{name}"
        );
    }
    let python = |script: &str, words: &[&str]| {
        let mut command = Command::new("python3");
        command
            .args(["-c", script])
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = Started::new(&mut command);
        let mut line = String::new();
        let stdout = child.0.stdout.take().expect("because it is piped");
        std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut line)
            .expect("because a pipe can be read");
        assert_eq!(line, "ready\n");
        child
    };
    let wait = "print('ready', flush=True); import time; time.sleep(60)";
    // A word further on is no program that runs.
    assert!(!is_suspect(&python(wait, &["llama-server"])));
    // Who maps a runtime and has set nothing up has no card: NVML maps CUDA's library too.
    let library = folder.path().join("libcuda.so.580.1");
    std::fs::write(&library, "library").expect("because the folder is the test's");
    let map =
        format!("import mmap; f = open({library:?}, 'r+'); m = mmap.mmap(f.fileno(), 0); {wait}");
    let python = python(&map, &[]);
    assert!(!is_suspect(&python));
    // It computes all the same, so its cores are another matter.
    let cores = cores("0");
    let found = world.holders(&cores);
    assert!(said(&found, python.0.id()).is_some());
}

#[test]
fn an_open_node_holds_a_card_whatever_the_process_is_called() {
    let rdev = File::open("/dev/full")
        .and_then(|node| node.metadata())
        .expect("because every Linux has it")
        .rdev();
    let [mut first, second] = nvidia();
    // A list would tell that this process has nothing on the card.
    first.processes = Observation::unknown("not told");
    let first = with_node(first, "/dev/full", rdev);
    let world = World::of(&[first.clone(), second.clone()]);
    let node = File::open("/dev/full").expect("because every Linux has it");
    let mut command = Command::new("sleep");
    let child = started(command.arg("60").stdin(node), "sleep");
    let path = "/dev/full".to_owned();
    let pid = child.0.id();
    assert_eq!(
        said(&world.holders(&first), pid),
        Some(("holds", vec![How::OpenNode { path }]))
    );
    assert_eq!(said(&world.holders(&second), pid), None);
    let found = world.holders(&first);
    let holder = found.holding.iter().find(|holder| holder.pid == pid);
    let uid = procfs_uid(pid);
    assert_eq!(
        holder.map(ToString::to_string),
        Some(format!("sleep (pid {pid}, uid {uid}): has /dev/full open"))
    );
}

fn procfs_uid(pid: u32) -> u32 {
    crate::started::process(pid).uid
}

#[test]
fn the_observer_is_left_out_by_its_key_and_its_namesake_is_not() {
    let folder = tempfile::tempdir().expect("because a folder can be made");
    let [first, _] = nvidia();
    let name = "llama-server";
    let observer = started(&mut engine(folder.path(), name), name);
    let namesake = started(&mut engine(folder.path(), name), name);
    let listed = |children: &[&Started]| {
        let processes = children.iter().map(|child| VendorProcess {
            pid: child.0.id(),
            used_bytes: Some(1 << 20),
        });
        let mut device = first.clone();
        device.processes = Observation::Known(processes.collect());
        device
    };
    let device = listed(&[&observer, &namesake]);
    let mut world = World::of(std::slice::from_ref(&device));
    world.exclude.insert(observer.key());
    let found = world.holders(&device);
    assert_eq!(said(&found, observer.0.id()), None);
    let (word, _) = said(&found, namesake.0.id()).expect("because it is nobody's observer");
    assert_eq!(word, "holds");
    // A later process with the observer's pid is not the observer.
    let key = observer.key();
    world.exclude = [ProcessKey {
        start_ticks: key.start_ticks - 1,
        ..key
    }]
    .into();
    let (word, _) = said(&world.holders(&device), observer.0.id()).expect("because it is another");
    assert_eq!(word, "holds");
    // An observer that listed itself and has ended holds nothing; a pid of nobody's does.
    let pid = observer.0.id();
    observer.end();
    world.exclude.clear();
    assert_eq!(
        said(&world.holders(&device), pid).map(|(word, _)| word),
        Some("holds")
    );
    world.exclude = [key].into();
    assert_eq!(said(&world.holders(&device), pid), None);
}

#[test]
fn a_listed_pid_that_is_not_seen_here_holds_the_card() {
    let [mut device, _] = nvidia();
    // No pid is as large as that on this kernel.
    let pid = 4_194_303;
    let used_bytes = Some(3_764_387_840);
    device.processes = Observation::Known(vec![VendorProcess { pid, used_bytes }]);
    let found = World::of(std::slice::from_ref(&device)).holders(&device);
    assert_eq!(
        said(&found, pid),
        Some(("holds", vec![How::VendorList { used_bytes }]))
    );
    let holder = found.holding.iter().find(|holder| holder.pid == pid);
    assert_eq!(
        holder.map(ToString::to_string),
        Some(
            "a process that is not seen here, in a container or ended just now (pid 4194303): the \
             vendor's list has it with 3.50 GiB"
                .to_owned()
        )
    );
    device.processes = Observation::unknown("no permission");
    let found = World::of(std::slice::from_ref(&device)).holders(&device);
    let told = format!("the list of processes on {}: no permission", device.id);
    assert_eq!(found.unknown, [told]);
}

/// Of another user's server neither masks nor nodes can be read: it may hold every card.
#[test]
fn a_server_whose_environment_is_unreadable_may_hold_every_card() {
    const NAME: &str = "holders::a_server_whose_environment_is_unreadable_may_hold_every_card";
    let [first, _] = nvidia();
    let world = World::of(std::slice::from_ref(&first));
    if let Some(pid) = role() {
        let pid = pid.parse().expect("because it is a pid");
        let found = world.holders(&first);
        let (word, how) = said(&found, pid).expect("because it is a server");
        assert!(found.unreadable_count > 0);
        println!("SEEN: {word}: {}", how[0]);
        return;
    }
    let folder = tempfile::tempdir().expect("because a folder can be made");
    let name = "llama-server";
    let child = started(
        engine(folder.path(), name).env("CUDA_VISIBLE_DEVICES", ""),
        name,
    );
    // Its owner sees that it has no card.
    assert_eq!(said(&world.holders(&first), child.0.id()), None);
    let under = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    if let Some(seen) = again_under(NAME, &child.0.id().to_string(), &under) {
        assert_eq!(
            seen,
            "may hold: its environment, and so its masks, can't be read: permission denied"
        );
    }
}

#[test]
fn servers_collide_on_cores_by_what_they_are_bound_to() {
    let online = CpuSet::online(Path::new("/sys")).expect("because the kernel lists them");
    if online.count() < 2 {
        println!("NOT EXERCISED: this host has one core");
        return;
    }
    let folder = tempfile::tempdir().expect("because a folder can be made");
    let list: Vec<u32> = online.iter().collect();
    let (low, high) = (list[0].to_string(), list[1].to_string());
    let world = World::default();
    let bound = |name: &str, to: &str| {
        engine(folder.path(), name);
        let mut command = Command::new("taskset");
        command
            .args(["-c", to])
            .arg(folder.path().join(name))
            .arg("60")
            .stdin(Stdio::null());
        started(&mut command, name)
    };
    let engine_low = bound("llama-server", &low);
    let other_low = bound("sleeper", &low);
    let free = started(&mut engine(folder.path(), "llama-server"), "llama-server");
    let said_of = |child: &Started, device: &Device| said(&world.holders(device), child.0.id());
    let shared = CpuSet::parse(&low).expect("because it is a core");
    for device in [cores(&low), cores(&format!("{low},{high}"))] {
        let how = vec![How::Cores {
            shared: shared.clone(),
        }];
        assert_eq!(said_of(&engine_low, &device), Some(("holds", how)));
        assert_eq!(said_of(&other_low, &device), None, "it is no engine");
        // It may run there, as any program may, so it stops nobody.
        assert_eq!(said_of(&free, &device), Some(("note", vec![How::Unbound])));
    }
    assert_eq!(said_of(&engine_low, &cores(&high)), None);
}

#[test]
fn a_worker_of_ours_holds_what_its_record_says_while_a_process_of_it_lives() {
    let [first, second] = nvidia();
    let child = Started::waiting();
    let key = child.key();
    let worker = |keys: Vec<ProcessKey>| ManagedWorker {
        fleet: "home".to_owned(),
        worker: "w0".to_owned(),
        keys,
        address: ([127, 0, 0, 1], 8081).into(),
        devices: vec![first.id.clone()],
        cores: Some(CpuSet::parse("1-3").expect("because it is a set")),
    };
    let mut world = World::of(&[first.clone(), second.clone()]);
    world.managed = vec![worker(vec![key])];
    let how = vec![How::Managed {
        fleet: "home".to_owned(),
        worker: "w0".to_owned(),
    }];
    let holds = Some(("holds", how.clone()));
    assert_eq!(said(&world.holders(&first), key.pid), holds);
    assert_eq!(said(&world.holders(&second), key.pid), None);
    assert_eq!(said(&world.holders(&cores("0,3")), key.pid), holds);
    assert_eq!(said(&world.holders(&cores("0,4")), key.pid), None);
    world.exclude.insert(key);
    assert_eq!(
        said(&world.holders(&first), key.pid),
        None,
        "it is the one to be started"
    );
    world.exclude.clear();

    let reused = ProcessKey {
        start_ticks: key.start_ticks - 1,
        ..key
    };
    world.managed = vec![worker(vec![reused])];
    assert_eq!(
        said(&world.holders(&first), key.pid),
        None,
        "another has its pid"
    );
    let elsewhere = ProcessKey {
        pid_namespace: 1,
        ..key
    };
    world.managed = vec![worker(vec![elsewhere])];
    assert_eq!(
        said(&world.holders(&first), key.pid),
        Some(("may hold", how.clone()))
    );
    world.managed = vec![worker(Vec::new())];
    assert_eq!(
        said(&world.holders(&first), 0),
        holds,
        "its processes can't be told"
    );
    world.managed = vec![worker(vec![key])];
    child.end();
    assert_eq!(said(&world.holders(&first), key.pid), None, "it has ended");
}
