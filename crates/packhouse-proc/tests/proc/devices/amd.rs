//! An AMD card: its driver tells everything.

use super::{Host, found, pids, why};
use packhouse_proc::devices::{DeviceMemory, NoTools, Observation, Vendor, VendorProcess};

const TREE: &str = include_str!("../../data/amd/tree.txt");
const CLIENT: &str = include_str!("../../data/amd/fdinfo-amdgpu.txt");
const CARD: &str = "pci:0000:84:00.0";

#[test]
fn the_driver_names_the_card_as_masks_do() {
    let inventory = Host::of(TREE).look(&NoTools);
    let card = found(&inventory, CARD);
    assert_eq!(card.vendor, Vendor::Amd);
    assert_eq!(card.name, "AMD Radeon AI PRO R9700");
    assert_eq!(card.uuid.as_deref(), Some("GPU-4fd3d0e445b9207e"));
    assert_eq!(
        card.memory,
        Observation::Known(DeviceMemory {
            total_bytes: Some(34_208_743_424),
            used_bytes: 8_059_322_368,
        })
    );
    assert_eq!(found(&inventory, "uuid:GPU-4fd3d0e445b9207e"), card);
}

#[test]
fn who_computes_and_who_draws_are_users() {
    let host = Host::of(TREE);
    host.client(500, 9, "/dev/dri/renderD128", CLIENT);
    host.client(42, 9, "/dev/dri/renderD128", CLIENT);
    let card = found(&host.look(&NoTools), CARD);
    // Process 77 opened the compute driver, which tells it of every card, and has nothing of this.
    assert_eq!(
        card.processes,
        Observation::Known(vec![
            VendorProcess {
                pid: 42,
                used_bytes: Some(8_000_000_000),
            },
            VendorProcess {
                pid: 500,
                used_bytes: Some(60060 << 10),
            },
        ])
    );
}

#[test]
fn what_the_driver_does_not_tell_is_unknown() {
    let host = Host::of(TREE);
    host.remove("sys/bus/pci/devices/0000:84:00.0/mem_info_vram_used");
    host.hidden_process(1);
    let card = found(&host.look(&NoTools), CARD);
    assert!(why(&card.memory).contains("mem_info_vram_used"));
    assert!(why(&card.processes).contains("1 processes of others"));
    host.write(
        "sys/bus/pci/devices/0000:84:00.0/mem_info_vram_used",
        "lots\n",
    );
    let card = found(&host.look(&NoTools), CARD);
    assert!(why(&card.memory).contains("lots"));
}

#[test]
fn without_the_compute_driver_who_draws_is_a_user() {
    let host = Host::of(TREE);
    host.remove("sys/class/kfd");
    host.client(500, 9, "/dev/dri/renderD128", CLIENT);
    assert_eq!(pids(&found(&host.look(&NoTools), CARD)), [500]);
}
