//! Holders in a `/proc` that was made up: DRM clients, containers, parts of cards, watchers.

use super::tree::{Fake, OBSERVER_PID, Tree};
use super::{World, said};
use crate::cards::{card, cores, part, with_node};
use packhouse_proc::devices::{Device, Observation, Vendor, VendorProcess};
use packhouse_proc::holders::{Holders, How};
use packhouse_proc::procfs::Procfs;
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;

fn holders(tree: &Tree, world: &World, device: &Device) -> Holders {
    let procfs = Procfs::new(tree.root()).expect("because the tree is whole");
    world.holders_in(&procfs, device)
}

/// The number of a node that every Linux has, to stand for a card's.
fn number(path: &str) -> u64 {
    let node = File::open(path).and_then(|node| node.metadata());
    node.expect("because every Linux has it").rdev()
}

fn xe(device: &Device, resident: &str, cycles: u64) -> String {
    let pdev = device.pci.expect("because it is a card");
    format!(
        "pos:\t0\nflags:\t02100002\ndrm-driver:\txe\ndrm-client-id:\t9\ndrm-pdev:\t{pdev}\n\
         drm-resident-vram0:\t{resident}\ndrm-cycles-ccs:\t{cycles}\n\
         drm-total-cycles-ccs:\t99999999\n"
    )
}

#[test]
fn a_drm_client_at_work_holds_its_card_and_an_idle_one_is_noted() {
    let tree = Tree::new();
    let cards = [card(Vendor::Intel, 0, None), card(Vendor::Intel, 1, None)];
    let world = World::of(&cards);
    let client = |pid: u32, text: String| Fake {
        files: vec![(5, "/dev/dri/renderD128".to_owned())],
        fdinfo: vec![(5, text)],
        ..Fake::new(pid, 900)
    };
    tree.put(&client(41, xe(&cards[0], "3 GiB", 0)));
    tree.put(&client(42, xe(&cards[0], "0", 0)));
    tree.put(&client(43, xe(&cards[0], "0", 7)));
    tree.put(&client(44, xe(&cards[0], "many", 0)));
    let found = holders(&tree, &world, &cards[0]);
    let drm = |memory_bytes| vec![How::DrmClient { memory_bytes }];
    assert_eq!(said(&found, 41), Some(("holds", drm(Some(3 << 30)))));
    assert_eq!(said(&found, 42), Some(("note", drm(Some(0)))));
    assert_eq!(said(&found, 43), Some(("holds", drm(Some(0)))));
    assert_eq!(
        said(&found, 44),
        Some(("holds", drm(None))),
        "unknown is not idle"
    );
    let found = holders(&tree, &world, &cards[1]);
    for pid in [41, 42, 43, 44] {
        assert_eq!(said(&found, pid), None, "it is a client of another card");
    }
}

#[test]
fn an_idle_client_that_is_an_engine_holds_its_card_unless_its_mask_hides_it() {
    let tree = Tree::new();
    let device = card(Vendor::Intel, 0, None);
    let engine = |pid: u32, mask: &str| Fake {
        program: Some("llama-server"),
        environment: format!("ZE_AFFINITY_MASK={mask}\0").into_bytes(),
        files: vec![(5, "/dev/dri/renderD128".to_owned())],
        fdinfo: vec![(5, xe(&device, "0", 0))],
        ..Fake::new(pid, 900)
    };
    tree.put(&engine(41, "0"));
    tree.put(&engine(42, "7"));
    let world = World::of(std::slice::from_ref(&device));
    let found = holders(&tree, &world, &device);
    assert_eq!(said(&found, 41).map(|(word, _)| word), Some("holds"));
    assert_eq!(said(&found, 42).map(|(word, _)| word), Some("note"));
}

const UVM: &str = "/dev/nvidia-uvm";

#[test]
fn watchers_are_noted_until_the_vendor_lists_them() {
    let tree = Tree::new();
    let full = number("/dev/full");
    let mut device = with_node(card(Vendor::Nvidia, 0, Some("GPU-1")), "/dev/nvidia0", full);
    let map = |file: &str| format!("00400000-00401000 r-xp 00000000 fd:01 77 {file}\n");
    let open = |pid: u32, name: &[u8], others: &[&str], mapped: &[&str]| Fake {
        name: name.to_vec(),
        files: (3..)
            .zip(["/dev/full"].iter().chain(others).map(ToString::to_string))
            .collect(),
        maps: mapped.iter().map(|file| map(file)).collect(),
        ..Fake::new(pid, 900)
    };
    // As recorded: NVML loads CUDA's library and opens its memory; CUDA maps that.
    let nvml = [
        "/lib/libnvidia-ml.so.580.1",
        "/lib/libcuda.so.580.1",
        "/dev/nvidiactl",
    ];
    let cuda = ["/lib/libcuda.so.580.1", UVM, "/dev/nvidia0"];
    let both = [nvml.as_slice(), cuda.as_slice()].concat();
    // The kernel cuts names to 15 bytes.
    tree.put(&open(41, b"nvidia-persiste", &[], &["/bin/x"]));
    tree.put(&open(42, b"nvtop", &[UVM], &nvml));
    tree.put(&open(43, b"packhouse", &[UVM], &nvml));
    tree.put(&open(44, b"python3", &[UVM], &cuda));
    tree.put(&open(45, b"nvtop", &[UVM], &both));
    tree.put(&open(46, b"llama-server", &[UVM], &nvml));
    let words = |device: &Device| {
        let found = holders(&tree, &World::of(std::slice::from_ref(device)), device);
        [41, 42, 43, 44, 45, 46].map(|pid| said(&found, pid).map(|(word, _)| word))
    };
    let (note, holds) = (Some("note"), Some("holds"));
    // Who is not on a list that is whole, and has no memory of a card, only looks.
    assert_eq!(words(&device), [note, note, note, holds, holds, holds]);
    let used_bytes = Some(5);
    let listed = |pid| VendorProcess { pid, used_bytes };
    device.processes = Observation::Known(vec![listed(42), listed(43)]);
    assert_eq!(words(&device), [note, holds, holds, holds, holds, holds]);
    // Without the list a known name is needed too.
    device.processes = Observation::unknown("not told");
    assert_eq!(words(&device), [note, note, holds, holds, holds, holds]);
}

#[test]
fn a_list_with_pids_of_the_host_clears_nobody_in_a_container() {
    let tree = Tree::new();
    let device = with_node(
        card(Vendor::Nvidia, 0, Some("GPU-1")),
        "/dev/nvidia0",
        number("/dev/full"),
    );
    tree.put(&Fake {
        files: vec![(3, "/dev/full".to_owned())],
        ..Fake::new(41, 900)
    });
    let world = World::of(std::slice::from_ref(&device));
    let word = |tree: &Tree| said(&holders(tree, &world, &device), 41).map(|(word, _)| word);
    assert_eq!(word(&tree), Some("note"));
    let link = tree.root().join(format!("{OBSERVER_PID}/ns/pid"));
    std::fs::remove_file(&link).expect("because the tree is ours");
    std::os::unix::fs::symlink("pid:[4026532000]", link).expect("because the tree is ours");
    assert_eq!(word(&tree), Some("holds"));
}

/// Recorded on two H200: while CUDA sets up, a process has every card open, and then those that its
/// mask shows.
#[test]
fn a_masked_engine_that_has_a_card_open_for_a_moment_is_noted() {
    let tree = Tree::new();
    let full = number("/dev/full");
    let mut device = with_node(card(Vendor::Nvidia, 0, Some("GPU-1")), "/dev/nvidia0", full);
    let engine = |pid: u32, mask: &str| Fake {
        program: Some("llama-server"),
        environment: format!("CUDA_VISIBLE_DEVICES={mask}\0").into_bytes(),
        files: vec![(3, "/dev/full".to_owned()), (4, UVM.to_owned())],
        ..Fake::new(pid, 900)
    };
    tree.put(&engine(41, "GPU-2"));
    tree.put(&engine(42, "GPU-1"));
    let words = |device: &Device| {
        let found = holders(&tree, &World::of(std::slice::from_ref(device)), device);
        [41, 42].map(|pid| said(&found, pid).map(|(word, _)| word))
    };
    assert_eq!(words(&device), [Some("note"), Some("holds")]);
    let used_bytes = None;
    device.processes = Observation::Known(vec![VendorProcess {
        pid: 41,
        used_bytes,
    }]);
    assert_eq!(
        words(&device),
        [Some("holds"), Some("holds")],
        "it is at work there"
    );
    device.processes = Observation::unknown("not told");
    assert_eq!(
        words(&device),
        [Some("holds"), Some("holds")],
        "nothing clears it"
    );
}

#[test]
fn a_runtime_makes_an_engine_of_whoever_has_set_it_up() {
    let tree = Tree::new();
    let cards = [
        card(Vendor::Nvidia, 0, Some("GPU-1")),
        card(Vendor::Amd, 0, Some("GPU-2")),
        card(Vendor::Intel, 0, None),
    ];
    let world = World::of(&cards);
    let python = |pid: u32, library: &str, file: &str| Fake {
        name: b"python3".to_vec(),
        program: Some("python3"),
        maps: format!("00400000-00401000 r-xp 00000000 fd:01 77 /lib/{library}\n"),
        files: vec![(3, file.to_owned())],
        ..Fake::new(pid, 900)
    };
    tree.put(&python(41, "libcuda.so.1", UVM));
    tree.put(&python(42, "libamdhip64.so.6", "/dev/kfd"));
    tree.put(&python(43, "libze_loader.so.1", "/dev/dri/renderD130"));
    tree.put(&python(44, "libcuda.so.1", "/dev/null"));
    tree.put(&python(45, "libvulkan.so.1", "/dev/dri/renderD130"));
    tree.put(&python(46, "libcudart.so.12", UVM));
    let nvml = "00400000-00401000 r-xp 00000000 fd:01 77 /lib/libnvidia-ml.so.1\n";
    let asking = python(47, "libcuda.so.1", UVM);
    tree.put(&Fake {
        maps: format!("{}{nvml}", asking.maps),
        ..asking
    });
    let words = |device: &Device| {
        let found = holders(&tree, &world, device);
        [41, 42, 43, 44, 45, 46, 47].map(|pid| said(&found, pid).map(|(word, _)| word))
    };
    let may = Some("may hold");
    // Each may reach the cards of the vendor whose device files it has open.
    assert_eq!(words(&cards[0]), [may, None, None, None, None, None, None]);
    assert_eq!(words(&cards[1]), [None, may, None, None, None, None, None]);
    assert_eq!(words(&cards[2]), [None, None, may, None, None, None, None]);
    // All of these may run on the core, and those that compute are worth knowing of.
    let note = Some("note");
    assert_eq!(
        words(&cores("0")),
        [note, note, note, note, None, None, None]
    );
}

#[test]
fn parts_of_a_card_share_its_node_and_its_list() {
    let tree = Tree::new();
    let full = number("/dev/full");
    let mut whole = with_node(card(Vendor::Nvidia, 0, Some("GPU-1")), "/dev/nvidia0", full);
    let mut one = part(&whole, "MIG-1");
    let used_bytes = None;
    whole.processes = Observation::Known(vec![VendorProcess {
        pid: 42,
        used_bytes,
    }]);
    one.processes = Observation::unknown("not told of parts");
    tree.put(&Fake {
        files: vec![(3, "/dev/full".to_owned()), (4, UVM.to_owned())],
        ..Fake::new(41, 900)
    });
    tree.put(&Fake::new(42, 900));
    let mut world = World::of(&[whole.clone(), one.clone()]);
    let found = holders(&tree, &world, &one);
    let list = vec![How::VendorList { used_bytes }];
    assert_eq!(said(&found, 41).map(|(word, _)| word), Some("may hold"));
    assert_eq!(said(&found, 42), Some(("may hold", list.clone())));
    let found = holders(&tree, &world, &whole);
    assert_eq!(said(&found, 41).map(|(word, _)| word), Some("holds"));
    assert_eq!(said(&found, 42), Some(("holds", list)));
    // A list of its own is exact.
    one.processes = Observation::Known(Vec::new());
    let found = holders(&tree, &world, &one);
    assert_eq!(said(&found, 42), None);

    // A worker on a part stands in the way of one on the card, and the reverse.
    let procfs = Procfs::new(tree.root()).expect("because the tree is whole");
    let key = procfs.key_of(42).expect("because the tree is whole");
    let worker = |device: &Device| packhouse_proc::holders::ManagedWorker {
        fleet: "home".to_owned(),
        worker: "w0".to_owned(),
        keys: key.into_iter().collect(),
        address: ([127, 0, 0, 1], 8081).into(),
        devices: vec![device.id.clone()],
        cores: None,
    };
    for (held, wanted) in [(&one, &whole), (&whole, &one), (&one, &one)] {
        world.managed = vec![worker(held)];
        let mut wanted = wanted.clone();
        wanted.processes = Observation::Absent;
        let found = holders(&tree, &world, &wanted);
        assert_eq!(
            said(&found, 42).map(|(word, _)| word),
            Some("holds"),
            "{}",
            wanted.id
        );
    }
    let other = part(&whole, "MIG-2");
    world.managed = vec![worker(&other)];
    let found = holders(&tree, &world, &one);
    assert_eq!(said(&found, 42), None, "parts are apart");
}

#[test]
fn a_mask_whose_cards_are_all_open_shows_no_other_card() {
    let tree = Tree::new();
    let (full, zero) = (number("/dev/full"), number("/dev/zero"));
    let cards = [
        with_node(card(Vendor::Intel, 0, None), "/dev/dri/renderD128", full),
        with_node(card(Vendor::Intel, 1, None), "/dev/dri/renderD129", zero),
        card(Vendor::Intel, 2, None),
    ];
    let world = World::of(&cards);
    let server = |pid: u32, mask: &str, files: &[&str]| Fake {
        program: Some("llama-server"),
        environment: format!("ZE_AFFINITY_MASK={mask}\0").into_bytes(),
        files: (3..)
            .zip(files.iter().map(|file| (*file).to_owned()))
            .collect(),
        ..Fake::new(pid, 900)
    };
    // No variable fixes the order, so the ordinal may be any card; the open node tells which.
    tree.put(&server(41, "1", &[]));
    tree.put(&server(42, "1", &["/dev/full"]));
    tree.put(&server(43, "1,2", &["/dev/full"]));
    tree.put(&server(44, "1,2", &["/dev/full", "/dev/zero"]));
    let words = |device: &Device| {
        let found = holders(&tree, &world, device);
        [41, 42, 43, 44].map(|pid| said(&found, pid).map(|(word, _)| word))
    };
    let (holds, may) = (Some("holds"), Some("may hold"));
    assert_eq!(words(&cards[0]), [may, holds, holds, holds]);
    assert_eq!(words(&cards[1]), [may, None, may, holds]);
    assert_eq!(words(&cards[2]), [may, None, may, None]);
}

#[test]
fn a_server_in_a_container_counts_other_cards() {
    let tree = Tree::new();
    let cards = [
        card(Vendor::Nvidia, 0, Some("GPU-1")),
        card(Vendor::Nvidia, 1, Some("GPU-2")),
    ];
    let world = World::of(&cards);
    let server = |pid: u32, below: &'static str, mask: &str| Fake {
        program: Some("llama-server"),
        pids_below: below,
        environment: format!("CUDA_DEVICE_ORDER=PCI_BUS_ID\0CUDA_VISIBLE_DEVICES={mask}\0").into(),
        ..Fake::new(pid, 900)
    };
    tree.put(&server(41, "", "0"));
    tree.put(&server(42, "7", "0"));
    tree.put(&server(43, "7", "GPU-1"));
    let found = holders(&tree, &world, &cards[1]);
    assert_eq!(said(&found, 41), None);
    assert_eq!(said(&found, 42).map(|(word, _)| word), Some("may hold"));
    assert_eq!(said(&found, 43), None);
}

#[test]
fn what_could_not_be_looked_at_is_counted_and_what_ended_is_not() {
    let tree = Tree::new();
    let device = card(Vendor::Nvidia, 0, Some("GPU-1"));
    let world = World::of(std::slice::from_ref(&device));
    assert_eq!(holders(&tree, &world, &device).unreadable_count, 0);
    tree.put(&Fake {
        maps: "in no form that is known\n".into(),
        ..Fake::new(41, 900)
    });
    tree.put(&Fake {
        state: 'Z',
        ..Fake::new(42, 900)
    });
    let found = holders(&tree, &world, &device);
    assert_eq!(found.unreadable_count, 1);
    // A server is known by name even where its maps are not.
    tree.put(&Fake {
        maps: "in no form that is known\n".into(),
        program: Some("ollama"),
        ..Fake::new(41, 900)
    });
    let found = holders(&tree, &world, &device);
    assert_eq!(said(&found, 41).map(|(word, _)| word), Some("may hold"));
}
