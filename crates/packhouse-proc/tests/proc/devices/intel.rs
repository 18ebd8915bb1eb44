//! Four Intel cards: what `xpu-smi` prints in its versions, and what the kernel's clients add.

use super::{Host, Recorded, found, not_found, outcome, pids, why};
use packhouse_proc::devices::{DeviceMemory, NoTools, Observation, Question, Vendor};
use packhouse_proc::masks::own::own;
use proptest::prelude::*;

const TREE: &str = include_str!("../../data/intel/tree.txt");
const CARDS: &str = include_str!("../../data/intel/discovery.json");
const MASKED: &str = include_str!("../../data/intel/discovery-masked.json");
const ITSELF: &str = include_str!("../../data/intel/ps-itself.json");
const BUSY: &str = include_str!("../../data/intel/ps-busy.json");
const OLDER: &str = include_str!("../../data/intel/ps-older.json");
const CARD: &str = include_str!("../../data/intel/card.json");
const STATS_V1: &str = include_str!("../../data/intel/stats-v1.json");
const STATS_TILES: &str = include_str!("../../data/intel/stats-v1-tiles.json");
const STATS_V2: &str = include_str!("../../data/intel/stats-v2.json");
const ERROR: &str = include_str!("../../data/intel/error.json");
const CLIENT: &str = include_str!("../../data/intel/fdinfo-xe.txt");
const PLACES: [&str; 4] = [
    "0000:23:00.0",
    "0000:27:00.0",
    "0000:43:00.0",
    "0000:47:00.0",
];
/// The pid of the `xpu-smi` that spoke, in the records.
const ITS_PID: u32 = 4242;

fn listed(processes: &str) -> Recorded {
    Recorded::default()
        .said(Question::XpuSmiCards, CARDS)
        .said_by(Some(ITS_PID), Question::XpuSmiProcesses, processes)
}

#[test]
fn cards_are_named_by_place_and_found_by_every_lasting_name() {
    let inventory = Host::of(TREE).look(&listed(ITSELF));
    let card = found(&inventory, "pci:0000:27:00.0");
    assert_eq!(card.id.as_str(), "pci:0000:27:00.0");
    assert_eq!(card.vendor, Vendor::Intel);
    assert_eq!(card.name, "Intel(R) Arc(TM) Pro B70 Graphics");
    assert_eq!(card.numa, Some(0));
    assert_eq!(card.ordinal_in_pci_order, Some(1));
    let nodes: Vec<_> = card.nodes.iter().map(|node| node.rdev).collect();
    let numbers = [4, 132].map(|minor| Some(rustix::fs::makedev(226, minor)));
    assert_eq!(nodes, numbers);
    assert_eq!(
        found(&inventory, "uuid:00000000-0000-0027-0000-0000e2238086"),
        card
    );
    assert_eq!(found(&inventory, "drm:renderD132"), card);
    assert_eq!(found(&inventory, "drm:card4"), card);
    let words = not_found(&inventory, "pci:0000:28:00.0");
    assert!(
        words.contains("pci:0000:27:00.0") && words.contains("numa:0"),
        "{words}"
    );
}

#[test]
fn a_display_of_another_maker_is_listed_and_counts_in_no_order() {
    let inventory = Host::of(TREE).look(&listed(ITSELF));
    let card = found(&inventory, "drm:card1");
    assert_eq!(card.vendor, Vendor::Other);
    assert_eq!(card.name, "unknown GPU 1a03:2000");
    let ordinals: Vec<Option<u32>> = PLACES
        .iter()
        .map(|place| found(&inventory, &format!("pci:{place}")).ordinal_in_pci_order)
        .collect();
    assert_eq!(ordinals, [Some(0), Some(1), Some(2), Some(3)]);
}

#[test]
fn a_card_that_can_not_be_read_hides_no_other() {
    let host = Host::of(TREE);
    host.remove("sys/bus/pci/devices/0000:27:00.0/class");
    // A loop of links stands in for what even root can't read.
    host.link("sys/bus/pci/devices/0000:27:00.0/class", "class".as_ref());
    let inventory = host.look(&listed(ITSELF));
    assert!(why(&outcome(&inventory, "pci")).contains("0000:27:00.0/class"));
    for place in ["0000:23:00.0", "0000:43:00.0", "0000:47:00.0"] {
        found(&inventory, &format!("pci:{place}"));
    }
    assert!(not_found(&inventory, "pci:0000:27:00.0").contains("can't tell"));
}

/// The lab whose notes the record is from lost a measurement to this: four rows of the tool itself
/// read as four users.
#[test]
fn the_tool_that_asks_is_no_user_and_another_one_is() {
    let inventory = Host::of(TREE).look(&listed(ITSELF));
    for place in PLACES {
        assert_eq!(pids(&found(&inventory, &format!("pci:{place}"))), [0u32; 0]);
    }
    // The name says nothing: somebody else's xpu-smi is a user.
    let other = Recorded::default()
        .said(Question::XpuSmiCards, CARDS)
        .said_by(Some(ITS_PID + 1), Question::XpuSmiProcesses, ITSELF);
    let inventory = Host::of(TREE).look(&other);
    for place in PLACES {
        assert_eq!(pids(&found(&inventory, &format!("pci:{place}"))), [ITS_PID]);
    }
}

#[test]
fn both_names_of_the_list_are_read_and_a_third_is_unknown() {
    let inventory = Host::of(TREE).look(&listed(BUSY));
    assert_eq!(pids(&found(&inventory, "pci:23:00.0")), [5225, 768_707]);
    assert_eq!(pids(&found(&inventory, "pci:27:00.0")), [0u32; 0]);
    let inventory = Host::of(TREE).look(&listed(OLDER));
    let card = found(&inventory, "pci:23:00.0");
    assert_eq!(pids(&card), [768_707]);
    let used = card
        .processes
        .known()
        .and_then(|list| list.first()?.used_bytes);
    assert_eq!(used, Some(5_726_404_000));
    // Somebody is hidden from us, so the tool's list would have been needed.
    let host = Host::of(TREE);
    host.hidden_process(1);
    let third = BUSY.replace("device_util_by_proc_list", "processes");
    let inventory = host.look(&listed(&third));
    let reason = why(&outcome(&inventory, "xpu-smi ps"));
    assert!(
        reason.contains("no list named") && reason.contains("processes"),
        "{reason}"
    );
    for place in PLACES {
        why(&found(&inventory, &format!("pci:{place}")).processes);
    }
}

/// `ZE_AFFINITY_MASK` hides cards from the tool and renumbers the rest.
#[test]
fn a_masked_answer_is_believed_by_place_and_only_of_what_it_lists() {
    let host = Host::of(TREE);
    host.hidden_process(1);
    let rows = r#"{"device_util_by_proc_list": [{"device_id": 0, "process_id": 7}]}"#;
    let tools = Recorded::default()
        .said(Question::XpuSmiCards, MASKED)
        .said(Question::XpuSmiProcesses, rows);
    let inventory = host.look(&tools);
    assert_eq!(pids(&found(&inventory, "pci:27:00.0")), [7]);
    let card = found(&inventory, "pci:23:00.0");
    assert_eq!(card.uuid, None);
    assert!(why(&card.processes).contains("does not list the card"));
}

#[test]
fn a_row_of_a_card_that_is_not_listed_makes_all_unknown() {
    let host = Host::of(TREE);
    host.hidden_process(1);
    let rows = r#"{"device_util_by_proc_list": [{"device_id": 4, "process_id": 7}]}"#;
    let inventory = host.look(&listed(rows));
    for place in PLACES {
        let reason = why(&found(&inventory, &format!("pci:{place}")).processes);
        assert!(reason.contains("process 7 on its card 4"), "{reason}");
    }
}

/// Newer versions of the tool leave out processes that have memory and have not computed yet.
#[test]
fn a_client_that_the_tool_leaves_out_is_a_user() {
    let host = Host::of(TREE);
    host.client(900, 7, "/dev/dri/renderD131", CLIENT);
    host.client(900, 8, "/dev/dri/renderD131", CLIENT);
    host.client(901, 3, "/dev/null", "pos:\t0\n");
    let inventory = host.look(&listed(ITSELF));
    let card = found(&inventory, "pci:23:00.0");
    assert_eq!(pids(&card), [900]);
    assert_eq!(
        card.memory.known().map(|memory| memory.used_bytes),
        Some(23992 << 10),
        "one client with two descriptors"
    );
    let used = card
        .processes
        .known()
        .and_then(|list| list.first()?.used_bytes);
    assert_eq!(used, Some(23992 << 10));
    assert_eq!(pids(&found(&inventory, "pci:27:00.0")), [0u32; 0]);
}

#[test]
fn without_the_tool_clients_are_all_there_is_to_know() {
    let host = Host::of(TREE);
    host.client(900, 7, "/dev/dri/renderD131", CLIENT);
    let card = found(&host.look(&NoTools), "pci:23:00.0");
    assert_eq!(pids(&card), [900]);
    assert_eq!(card.name, "Intel GPU 8086:e223");
    host.hidden_process(1);
    let card = found(&host.look(&NoTools), "pci:23:00.0");
    let reason = why(&card.processes);
    assert!(reason.contains("1 processes of others"), "{reason}");
    assert!(reason.contains("there is no xpu-smi discovery"), "{reason}");
    why(&card.memory);
}

#[test]
fn memory_is_read_in_every_form() {
    let (place, other) = (PLACES[0], PLACES[1]);
    let ask = |stats: &str| {
        let pci = place.to_owned();
        let tools = listed(ITSELF)
            .said(Question::XpuSmiCard { pci: pci.clone() }, CARD)
            .said(Question::XpuSmiCounters { pci }, stats);
        let host = Host::of(TREE);
        host.hidden_process(1);
        found(&host.look(&tools), &format!("pci:{place}")).memory
    };
    let known = |used_bytes| {
        Observation::Known(DeviceMemory {
            total_bytes: Some(34_242_297_856),
            used_bytes,
        })
    };
    assert_eq!(ask(STATS_V1), known(8192 << 20));
    assert_eq!(ask(STATS_TILES), known((63 + 61) << 20));
    let own = STATS_V2.replace("0000:51:00.0", place);
    assert_eq!(ask(&own), known(31_019_604_377));
    for wrong in [
        STATS_V2.replace("0000:51:00.0", other),
        own.replace("used_mib", "used_gib"),
        STATS_V1.replace("XPUM_STATS_MEMORY_USED", "XPUM_STATS_MEMORY"),
        STATS_V1.replace("8192.0", "-1.0"),
        STATS_V1.replace("8192.0", "1e300"),
        ERROR.to_owned(),
        String::new(),
    ] {
        why(&ask(&wrong));
    }
}

#[test]
fn memory_in_use_and_nobody_listed_is_no_idle_card() {
    let (host, pci) = (Host::of(TREE), PLACES[0].to_owned());
    let ask = |mib: u32| {
        let stats = STATS_V1.replace("8192.0", &format!("{mib}.0"));
        let tools = listed(ITSELF).said(Question::XpuSmiCounters { pci: pci.clone() }, &stats);
        found(&host.look(&tools), "pci:23:00.0")
    };
    assert!(why(&ask(513).processes).contains("537919488 bytes are in use"));
    // The driver's own share counts as used.
    assert_eq!(pids(&ask(512)), [0u32; 0]);
}

#[test]
fn an_error_in_place_of_an_answer_is_told() {
    let host = Host::of(TREE);
    host.hidden_process(1);
    let inventory = host.look(&listed(ERROR));
    assert!(why(&outcome(&inventory, "xpu-smi ps")).contains("Device not found"));
    let tools = Recorded::default().failed(Question::XpuSmiCards, "signal: 11 (SIGSEGV)");
    let inventory = host.look(&tools);
    let reason = why(&found(&inventory, "pci:23:00.0").processes);
    assert!(reason.contains("SIGSEGV"), "{reason}");
    let words = not_found(&inventory, "uuid:00000000-0000-0027-0000-0000e2238086");
    assert!(
        words.contains("can't tell") && words.contains("SIGSEGV"),
        "{words}"
    );
}

#[test]
fn a_list_that_is_cut_off_anywhere_is_no_list() {
    let host = Host::of(TREE);
    host.hidden_process(1);
    let whole = BUSY.trim_end();
    for length in 0..whole.len() {
        let inventory = host.look(&listed(&whole[..length]));
        why(&found(&inventory, "pci:23:00.0").processes);
    }
}

/// Older drivers make the UUID of the card's kind alone.
#[test]
fn a_uuid_that_two_cards_have_names_neither() {
    let same = CARDS.replace("0000-0027-0000", "0000-0023-0000");
    let tools = Recorded::default().said(Question::XpuSmiCards, &same);
    let inventory = Host::of(TREE).look(&tools);
    let words = not_found(&inventory, "uuid:00000000-0000-0023-0000-0000e2238086");
    assert!(
        words.contains("names 2 devices: pci:0000:23:00.0, pci:0000:27:00.0"),
        "{words}"
    );
}

/// Level Zero counts the cards that Intel's drivers have.
#[test]
fn a_card_that_is_passed_to_a_virtual_machine_moves_the_others_places() {
    let host = Host::of(TREE);
    let driver = "sys/bus/pci/devices/0000:23:00.0/driver";
    host.remove(driver);
    host.link(driver, "../../../../bus/pci/drivers/vfio-pci".as_ref());
    let inventory = host.look(&listed(ITSELF));
    assert_eq!(found(&inventory, "pci:23:00.0").ordinal_in_pci_order, None);
    let second = found(&inventory, "pci:27:00.0");
    assert_eq!(second.ordinal_in_pci_order, Some(0));
    let masks = own(std::slice::from_ref(&second), &inventory.devices);
    let masks = masks.expect("because no mask shows the other");
    assert_eq!(masks.get("ZE_AFFINITY_MASK").map(String::as_str), Some("0"));
}

#[test]
fn a_neural_accelerator_is_a_device_and_no_gpu() {
    let host = Host::of(TREE);
    let folder = "sys/bus/pci/devices/0000:00:0b.0";
    for (file, content) in [
        ("class", "0x120000\n"),
        ("vendor", "0x8086\n"),
        ("device", "0x643e\n"),
        ("accel/accel0/dev", "261:0\n"),
    ] {
        host.write(&format!("{folder}/{file}"), content);
    }
    let client = CLIENT.replace("0000:23:00.0", "0000:00:0b.0");
    host.client(900, 7, "/dev/accel/accel0", &client);
    let inventory = host.look(&listed(ITSELF));
    let card = found(&inventory, "pci:00:0b.0");
    assert_eq!(card.name, "Intel accelerator 8086:643e");
    assert_eq!(card.vendor, Vendor::Other, "no mask of Intel's GPUs is its");
    assert_eq!(card.ordinal_in_pci_order, None);
    assert_eq!(card.nodes.len(), 1);
    assert!(
        card.nodes
            .iter()
            .all(|node| node.path.ends_with("dev/accel/accel0"))
    );
    assert_eq!(pids(&card), [900]);
    why(&card.memory);
    let first = found(&inventory, "pci:23:00.0");
    assert_eq!(
        first.ordinal_in_pci_order,
        Some(0),
        "it does not count among GPUs"
    );
}

/// One byte of the list changed: the busy card has its users, or nobody's list is known, or a row
/// moved to another card that is listed.
#[test]
fn no_damage_makes_the_busy_card_idle() {
    let host = Host::of(TREE);
    host.hidden_process(1);
    let config = ProptestConfig::with_cases(512);
    proptest!(config, |(at in 0..BUSY.len(), byte in 0x20u8..0x7f)| {
        let mut bytes = BUSY.as_bytes().to_vec();
        bytes[at] = byte;
        let text = String::from_utf8(bytes).expect("because it is ASCII");
        let inventory = host.look(&listed(&text));
        let card = found(&inventory, "pci:23:00.0");
        if let Observation::Known(list) = &card.processes {
            prop_assert!(!list.is_empty(), "{text}");
        }
    });
}
