//! Devices made up for tests of masks and holders.

use packhouse_proc::cores::CpuSet;
use packhouse_proc::devices::{
    Device, DeviceId, DeviceNode, Inventory, Observation, PciAddress, Vendor,
};
use std::path::{Path, PathBuf};

/// A card at a place among its vendor's.
pub(crate) fn card(vendor: Vendor, ordinal: u32, uuid: Option<&str>) -> Device {
    let bus = match vendor {
        Vendor::Cpu => panic!("cores are no card"),
        Vendor::Nvidia => 0x10,
        Vendor::Intel => 0x40,
        Vendor::Amd => 0x80,
        Vendor::Other => 0xc0,
    };
    let pci = PciAddress {
        domain: 0,
        bus: bus + u8::try_from(ordinal).expect("because there are few"),
        slot: 0,
        function: 0,
    };
    let id = match (vendor, uuid) {
        (Vendor::Nvidia, Some(uuid)) => DeviceId::of_nvidia(uuid),
        (_, _) => DeviceId::of_pci(pci),
    };
    Device {
        id,
        vendor,
        name: format!("{} {ordinal}", vendor.word()),
        uuid: uuid.map(str::to_owned),
        pci: Some(pci),
        nodes: Vec::new(),
        drm: None,
        cores: None,
        numa: None,
        ordinal_in_pci_order: Some(ordinal),
        driver: None,
        sysfs: None,
        memory: Observation::Absent,
        processes: Observation::Known(Vec::new()),
        parent: None,
    }
}

/// A part of a card.
pub(crate) fn part(card: &Device, uuid: &str) -> Device {
    Device {
        id: DeviceId::of_nvidia(uuid),
        uuid: Some(uuid.to_owned()),
        parent: Some(card.id.clone()),
        ordinal_in_pci_order: None,
        ..card.clone()
    }
}

/// A device of cores.
pub(crate) fn cores(text: &str) -> Device {
    let cores = CpuSet::parse(text).expect("because it is a set");
    Device {
        id: DeviceId::of_cores(&cores),
        vendor: Vendor::Cpu,
        name: "cores".to_owned(),
        pci: None,
        cores: Some(cores),
        ordinal_in_pci_order: None,
        processes: Observation::Absent,
        ..card(Vendor::Other, 0, None)
    }
}

/// The device with a node that has this device number.
pub(crate) fn with_node(mut device: Device, path: &str, rdev: u64) -> Device {
    device.nodes.push(DeviceNode {
        path: PathBuf::from(path),
        rdev: Some(rdev),
    });
    device
}

/// The device with a folder in a made up sysfs, whose `uevent` is there.
pub(crate) fn with_sysfs(mut device: Device, sys: &Path) -> Device {
    let folder = sys.join(device.id.as_str().replace(':', "_"));
    std::fs::create_dir_all(&folder).expect("because the folder is the test's");
    std::fs::write(folder.join("uevent"), "DRIVER=x\n").expect("because the folder is the test's");
    device.sysfs = Some(folder);
    device
}

/// An inventory of these.
pub(crate) fn inventory(devices: &[Device]) -> Inventory {
    Inventory {
        devices: devices.to_vec(),
        online: Observation::Known(CpuSet::parse("0-1").expect("because it is a set")),
        reports: Vec::new(),
    }
}
