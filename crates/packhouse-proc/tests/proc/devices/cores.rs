//! Cores and NUMA nodes.

use super::{Host, found, not_found, outcome, why};
use packhouse_proc::devices::host_tools::HostTools;
use packhouse_proc::devices::{NoTools, Observation, Roots, Vendor, fdinfo::DrmScan, inventory};

const TWO_NODES: &str = include_str!("../../data/intel/tree.txt");

#[test]
fn nodes_are_devices_and_a_node_of_memory_alone_is_none() {
    let inventory = Host::of(TWO_NODES).look(&NoTools);
    let node = found(&inventory, "numa:1");
    assert_eq!(node.vendor, Vendor::Cpu);
    assert_eq!(
        node.cores.map(|cores| cores.to_string()).as_deref(),
        Some("16-31")
    );
    assert_eq!(node.memory, Observation::Absent);
    assert!(not_found(&inventory, "numa:2").contains("it has numa:0, numa:1"));
}

#[test]
fn cores_are_a_device_and_known_by_their_numbers() {
    let inventory = Host::of(TWO_NODES).look(&NoTools);
    let cores = found(&inventory, "cpu:17,3");
    assert_eq!(cores.id.as_str(), "cpu:3,17");
    assert_eq!(cores.numa, None, "they are of two nodes");
    assert_eq!(found(&inventory, "cpu:16-17").numa, Some(1));
}

#[test]
fn cores_that_are_not_online_are_named() {
    let inventory = Host::of(TWO_NODES).look(&NoTools);
    let words = not_found(&inventory, "cpu:30-33");
    assert_eq!(
        words,
        "cpu:30-33 names cores that are not online: 32-33; online are 0-31"
    );
}

#[test]
fn a_kernel_without_nodes_is_one_node() {
    let inventory = Host::of("== sys/devices/system/cpu/online\n0-1\n").look(&NoTools);
    let node = found(&inventory, "numa:0");
    assert_eq!(
        node.cores.map(|cores| cores.to_string()).as_deref(),
        Some("0-1")
    );
    assert_eq!(
        outcome(&inventory, "pci"),
        Observation::Absent,
        "no bus, no cards"
    );
}

#[test]
fn a_list_of_cores_that_is_not_understood_is_unknown() {
    for list in ["0-", "all", ""] {
        let tree = format!("== sys/devices/system/cpu/online\n{list}\n");
        let inventory = Host::of(&tree).look(&NoTools);
        why(&inventory.online);
        assert!(not_found(&inventory, "cpu:0").contains("can't tell"));
        assert!(not_found(&inventory, "numa:0").contains("can't tell"));
    }
}

#[test]
fn this_host_has_the_cores_that_run_this_test() {
    let inventory = inventory(&HostTools::new([], 1), &Roots::default());
    let online = inventory.online.known().expect("because the kernel tells");
    let cores = std::thread::available_parallelism().expect("because Linux tells");
    assert!(online.count() >= cores.get());
    assert!(
        inventory
            .devices
            .iter()
            .any(|device| device.vendor == Vendor::Cpu)
    );
    DrmScan::take(&Roots::default()).expect("because this host has processes");
}
