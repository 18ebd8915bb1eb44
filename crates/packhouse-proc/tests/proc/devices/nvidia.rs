//! One real H200, as its library, tool and driver told of it, and damage to what they told.

use super::{Host, Recorded, found, not_found, outcome, pids, why};
use packhouse_proc::devices::{
    Device, DeviceMemory, Inventory, NoTools, Observation, Question, Vendor, VendorProcess,
};
use proptest::prelude::*;
use serde_json::{Value, json};

const TREE: &str = include_str!("../../data/h200/tree.txt");
const HELD: &str = include_str!("../../data/h200/nvml-held.json");
const IDLE: &str = include_str!("../../data/h200/nvml-idle.json");
const TWO: &str = include_str!("../../data/h200/nvml-two-cards.json");
const SMI: &str = include_str!("../../data/h200/nvidia-smi.xml");
const CARD: &str = "nvidia:GPU-d37d23fd-04b3-66dc-dc9c-ef7f2a39b24c";

fn look(document: &str) -> Inventory {
    Host::of(TREE).look(&Recorded::default().said(Question::Nvml, document))
}

fn card(document: &str) -> Device {
    found(&look(document), CARD)
}

/// The held document with one card's answer replaced.
fn with(call: &str, answer: Value) -> String {
    let mut document: Value = serde_json::from_str(HELD).expect("because it was recorded");
    document["devices"][0][call] = answer;
    document.to_string()
}

#[test]
fn the_card_is_known_by_what_lasts() {
    let inventory = look(HELD);
    let card = found(&inventory, CARD);
    assert_eq!(card.id.as_str(), CARD);
    assert_eq!(card.vendor, Vendor::Nvidia);
    assert_eq!(card.name, "NVIDIA H200");
    assert_eq!(
        card.pci.map(|pci| pci.to_string()).as_deref(),
        Some("0000:00:06.0")
    );
    assert_eq!(card.driver.as_deref(), Some("nvidia"));
    assert_eq!(card.numa, None, "the kernel says -1");
    assert_eq!(card.ordinal_in_pci_order, Some(0));
    let [node] = card.nodes.as_slice() else {
        panic!("{:?}", card.nodes);
    };
    assert!(node.path.ends_with("dev/nvidia0"));
    assert_eq!(node.rdev, Some(rustix::fs::makedev(195, 0)));
    let uuid = CARD.replace("nvidia:", "uuid:");
    for name in ["pci:0000:00:06.0", &uuid] {
        assert_eq!(found(&inventory, name), card);
    }
}

#[test]
fn who_holds_the_card_and_how_much_is_the_librarys_word() {
    let held = card(HELD);
    assert_eq!(
        held.memory,
        Observation::Known(DeviceMemory {
            total_bytes: Some(150_754_820_096),
            used_bytes: 3_773_628_416,
        })
    );
    assert_eq!(
        held.processes,
        Observation::Known(vec![VendorProcess {
            pid: 435,
            used_bytes: Some(3_764_387_840),
        }])
    );
    let idle = card(IDLE);
    // The first version of the call counts 644,939,776 reserved bytes as used.
    assert_eq!(idle.memory.known().map(|memory| memory.used_bytes), Some(0));
    assert_eq!(pids(&idle), [0u32; 0]);
}

#[test]
fn every_source_is_kept_as_it_spoke() {
    let inventory = look(HELD);
    let nvml = inventory
        .reports
        .iter()
        .find(|report| report.source == "nvml");
    let raw = nvml.and_then(|report| report.raw.as_ref());
    assert_eq!(raw.map(|raw| raw.text.as_str()), Some(HELD));
    // What could not be parsed is kept too.
    let inventory = look("Unable to determine the device handle");
    assert!(why(&outcome(&inventory, "nvml")).contains("not JSON"));
    let nvml = inventory
        .reports
        .iter()
        .find(|report| report.source == "nvml");
    let raw = nvml.and_then(|report| report.raw.as_ref());
    assert_eq!(
        raw.map(|raw| raw.text.as_str()),
        Some("Unable to determine the device handle")
    );
}

#[test]
fn without_the_library_the_tool_tells_the_same() {
    let tools = Recorded::default().said(Question::NvidiaSmi, SMI);
    let host = Host::of(TREE);
    let card = found(&host.look(&tools), CARD);
    assert_eq!(
        card.memory,
        Observation::Known(DeviceMemory {
            total_bytes: Some(143_771 << 20),
            used_bytes: 3599 << 20,
        })
    );
    assert_eq!(
        card.processes,
        Observation::Known(vec![VendorProcess {
            pid: 435,
            used_bytes: Some(3590 << 20),
        }])
    );
    let broken = tools.failed(Question::Nvml, "NVML did not start: driver mismatch");
    assert_eq!(found(&host.look(&broken), CARD), card);
}

#[test]
fn without_library_and_tool_the_card_is_there_and_not_idle() {
    let inventory = Host::of(TREE).look(&NoTools);
    let card = found(&inventory, CARD);
    assert_eq!(card.name, "NVIDIA H200");
    assert!(why(&card.processes).contains("nvml is not there"));
    assert!(why(&card.memory).contains("nvidia-smi -q -x is not there"));
    let tools = Recorded::default().failed(Question::Nvml, "no answer within 20 s");
    let inventory = Host::of(TREE).look(&tools);
    assert!(why(&found(&inventory, CARD).processes).contains("no answer within 20 s"));
    // Another card may be one that the silent library knows.
    let other = "nvidia:GPU-00000000-04b3-66dc-dc9c-ef7f2a39b24c";
    assert!(not_found(&inventory, other).contains("no answer within 20 s"));
    assert!(
        not_found(&look(HELD), other).contains(CARD),
        "the cards there are"
    );
}

#[test]
fn without_the_drivers_files_the_card_has_its_node_all_the_same() {
    let host = Host::of(TREE);
    host.remove("proc/driver");
    let card = found(
        &host.look(&Recorded::default().said(Question::Nvml, HELD)),
        CARD,
    );
    assert_eq!(card.nodes.len(), 1, "{:?}", card.nodes);
    // Nobody but the library knows the UUID then.
    let card = found(&host.look(&NoTools), "pci:0000:00:06.0");
    assert_eq!(card.id.as_str(), "pci:0000:00:06.0");
    assert_eq!(card.uuid, None);
}

/// The document as our own asker wrote it: its form and its parser's are one.
#[test]
fn one_of_two_cards_is_held_and_the_other_is_not() {
    let second = TREE.replace("0000:00:06.0", "0000:00:07.0");
    let host = Host::of(&format!("{TREE}{second}"));
    host.remove("proc/driver");
    let inventory = host.look(&Recorded::default().said(Question::Nvml, TWO));
    let held = found(
        &inventory,
        "nvidia:GPU-7664cc8f-2c5f-ee73-62c6-ceac6b5df0bc",
    );
    assert_eq!(held.ordinal_in_pci_order, Some(0));
    assert_eq!(pids(&held), [603]);
    let free = found(&inventory, "pci:00:07.0");
    assert_eq!(
        free.id.as_str(),
        "nvidia:GPU-90f9dcd8-28b9-a2e6-e252-973f5cc750b3"
    );
    assert_eq!(free.ordinal_in_pci_order, Some(1));
    assert!(free.nodes.iter().all(|node| node.path.ends_with("nvidia1")));
    // A driver at work for the other card keeps 3 MiB on this one, and that is nobody.
    assert_eq!(
        free.memory.known().map(|memory| memory.used_bytes),
        Some(3_407_872)
    );
    assert_eq!(pids(&free), [0u32; 0]);
}

/// Some virtual machines pass a card through another way than a PCI bus.
#[test]
fn a_card_that_the_bus_does_not_show_is_the_librarys_word() {
    let host = Host::of("== sys/devices/system/cpu/online\n0-1\n");
    let inventory = host.look(&Recorded::default().said(Question::Nvml, HELD));
    let card = found(&inventory, CARD);
    assert_eq!(card.ordinal_in_pci_order, Some(0));
    assert_eq!(card.nodes.len(), 1);
    assert_eq!(pids(&card), [435]);
}

/// A card that another driver has, as one that is passed to a virtual machine.
#[test]
fn a_card_of_another_driver_is_there_unknown_and_not_counted() {
    let passed = TREE
        .replace("0000:00:06.0", "0000:00:04.0")
        .replace("drivers/nvidia", "drivers/vfio-pci");
    let host = Host::of(&format!("{TREE}{passed}"));
    host.remove("proc/driver/nvidia/gpus/0000:00:04.0");
    let inventory = host.look(&Recorded::default().said(Question::Nvml, HELD));
    let card = found(&inventory, "pci:00:04.0");
    assert_eq!(card.id.as_str(), "pci:0000:00:04.0");
    assert_eq!(card.ordinal_in_pci_order, None);
    why(&card.memory);
    why(&card.processes);
    let held = found(&inventory, CARD);
    assert_eq!(held.ordinal_in_pci_order, Some(0), "CUDA counts its own");
    assert_eq!(pids(&held), [435]);
}

#[test]
fn memory_in_use_and_an_empty_list_is_no_idle_card() {
    let empty = with(
        "nvmlDeviceGetComputeRunningProcesses_v3",
        json!({"rc": 0, "list": []}),
    );
    let card = card(&empty);
    assert!(why(&card.processes).contains("3773628416 bytes are in use"));
}

#[test]
fn a_call_that_failed_makes_its_number_unknown() {
    let failed = json!({"rc": 3, "error": "not available on the target device"});
    for list in [
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
    ] {
        let card = card(&with(list, failed.clone()));
        assert!(why(&card.processes).contains("not available"), "{list}");
        assert!(card.memory.known().is_some());
    }
    // The older call's number is another one: an idle card would seem to be in use.
    let card = card(&with("memory_v2", json!({"rc": 13})));
    assert_eq!(why(&card.memory), "memory_v2: code 13");
}

#[test]
fn numbers_that_the_library_does_not_have_are_none() {
    let list = json!({"rc": 0, "list": [
        {"pid": 435, "used": u64::MAX, "gi": u32::MAX, "ci": u32::MAX},
        {"pid": 436, "used": null},
    ]});
    let card = card(&with("nvmlDeviceGetComputeRunningProcesses_v3", list));
    let used: Vec<Option<u64>> = card
        .processes
        .known()
        .expect("because the list is whole")
        .iter()
        .map(|process| process.used_bytes)
        .collect();
    assert_eq!(used, [None, None]);
}

#[test]
fn a_process_that_computes_and_draws_is_one_process() {
    let list = json!({"rc": 0, "list": [{"pid": 435, "used": 1}, {"pid": 9, "used": 2}]});
    let card = card(&with("nvmlDeviceGetGraphicsRunningProcesses_v3", list));
    assert_eq!(pids(&card), [9, 435]);
    let used = card
        .processes
        .known()
        .and_then(|list| list.last()?.used_bytes);
    assert_eq!(used, Some(3_764_387_840));
}

#[test]
fn a_list_that_is_shorter_than_its_count_is_refused() {
    let document = HELD.replace(
        "\"count\": {\n  \"rc\": 0,\n  \"value\": 1",
        "\"count\": {\n  \"rc\": 0,\n  \"value\": 2",
    );
    assert_ne!(document, HELD);
    let inventory = look(&document);
    assert!(why(&outcome(&inventory, "nvml")).contains("counts 2 cards, 1 are described"));
    assert!(why(&found(&inventory, CARD).processes).contains("counts 2 cards"));
}

#[test]
fn a_part_of_a_card_is_a_device_and_names_its_card() {
    let mut document: Value = serde_json::from_str(HELD).expect("because it was recorded");
    document["devices"][0]["parts"] = json!([{
        "rc": 0,
        "index": 0,
        "name": {"rc": 0, "value": "NVIDIA H200 MIG 1g.18gb"},
        "uuid": {"rc": 0, "value": "MIG-11111111-04b3-66dc-dc9c-ef7f2a39b24c"},
        "memory_v2": {"rc": 0, "total": 17_179_869_184u64, "used": 0},
        "nvmlDeviceGetComputeRunningProcesses_v3": {"rc": 0, "list": []},
        "nvmlDeviceGetGraphicsRunningProcesses_v3": {"rc": 0, "list": []},
    }]);
    let inventory = look(&document.to_string());
    let part = found(
        &inventory,
        "nvidia:MIG-11111111-04b3-66dc-dc9c-ef7f2a39b24c",
    );
    assert_eq!(part.parent.as_ref().map(|id| id.as_str()), Some(CARD));
    assert_eq!(
        part.nodes,
        [],
        "its card's node is open for users of any part"
    );
    assert_eq!(pids(&part), [0u32; 0]);
    // The place is the whole card's name.
    assert_eq!(found(&inventory, "pci:00:06.0").id.as_str(), CARD);
}

#[test]
fn a_report_that_is_cut_off_anywhere_is_no_report() {
    let host = Host::of(TREE);
    let whole = SMI.trim_end();
    for length in (0..whole.len()).step_by(13).chain([whole.len() - 1]) {
        let text = whole.get(..length).expect("because it is ASCII");
        let inventory = host.look(&Recorded::default().said(Question::NvidiaSmi, text));
        why(&outcome(&inventory, "nvidia-smi -q -x"));
        why(&found(&inventory, CARD).processes);
    }
}

#[test]
fn a_report_that_tells_no_processes_is_not_idle() {
    for (text, reason) in [
        (SMI.replace("<processes>", "<processes>N/A"), "N/A"),
        (SMI.replace("processes>", "procs>"), "no <processes>"),
        (SMI.replace("<pid>435</pid>", ""), "no <pid>"),
    ] {
        assert_ne!(text, SMI);
        let tools = Recorded::default().said(Question::NvidiaSmi, &text);
        let card = found(&Host::of(TREE).look(&tools), CARD);
        assert!(
            why(&card.processes).contains(reason),
            "{:?}",
            card.processes
        );
    }
    let text = SMI.replace("<used>3599 MiB</used>", "<used>N/A</used>");
    let tools = Recorded::default().said(Question::NvidiaSmi, &text);
    why(&found(&Host::of(TREE).look(&tools), CARD).memory);
}

/// One byte of the record changed: the card is there, and its holder is seen or unknown.
#[test]
fn no_damage_makes_a_held_card_idle() {
    let host = Host::of(TREE);
    let config = ProptestConfig::with_cases(512);
    proptest!(config, |(at in 0..HELD.len(), byte in 0x20u8..0x7f)| {
        let mut bytes = HELD.as_bytes().to_vec();
        bytes[at] = byte;
        let text = String::from_utf8(bytes).expect("because it is ASCII");
        let inventory = host.look(&Recorded::default().said(Question::Nvml, &text));
        let card = inventory.devices.iter().find(|device| device.pci.is_some());
        let card = card.expect("because the kernel has it");
        if let Observation::Known(list) = &card.processes {
            prop_assert!(!list.is_empty(), "{text}");
        }
    });
}
