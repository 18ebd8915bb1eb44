//! The masks that workers get: they show each of their devices and nothing else, to the runtimes
//! that the oracle stands for, under every order.

use super::oracle::{Amd, Cuda, Intel, Runtime, permutations};
use super::{cards, environment, uuids};
use crate::cards::{card, cores, part};
use packhouse_proc::devices::{Device, Vendor};
use packhouse_proc::masks::own::{own, with_users};
use packhouse_proc::masks::{Covers, Runtimes, View, covers};
use proptest::prelude::*;
use std::collections::BTreeMap;

type Masks = BTreeMap<String, String>;

fn host() -> Vec<Device> {
    let all = [
        vec![cores("0-1")],
        cards(Vendor::Nvidia, 3),
        cards(Vendor::Intel, 3),
        cards(Vendor::Amd, 3),
    ];
    all.concat()
}

fn answers(masks: &Masks, device: &Device, all: &[Device]) -> Covers {
    let set: Vec<(&str, Option<&str>)> = masks
        .iter()
        .map(|(name, value)| (name.as_str(), Some(value.as_str())))
        .collect();
    let runtimes = Runtimes {
        sycl: true,
        vulkan: true,
    };
    let view = View {
        environment: &environment(&set),
        runtimes: Some(runtimes),
        elsewhere: false,
    };
    covers(&view, device, all)
}

fn users(set: &[(&str, &str)]) -> Masks {
    set.iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// What runtimes other than `covers` say of the masks.
fn shown(masks: &Masks, vendor: Vendor) -> Vec<Vec<usize>> {
    let value = |name: &str| masks.get(name).cloned();
    let is_fixed = match vendor {
        Vendor::Nvidia => value("CUDA_DEVICE_ORDER").as_deref() == Some("PCI_BUS_ID"),
        Vendor::Intel => value("ZE_ENABLE_PCI_ID_DEVICE_ORDER").as_deref() == Some("1"),
        Vendor::Amd | Vendor::Other | Vendor::Cpu => false,
    };
    let runtime: Box<dyn Runtime> = match vendor {
        Vendor::Nvidia => Box::new(Cuda {
            uuids: uuids(vendor),
            mask: value("CUDA_VISIBLE_DEVICES"),
        }),
        Vendor::Amd => Box::new(Amd {
            uuids: uuids(vendor),
            rocr: value("ROCR_VISIBLE_DEVICES"),
            hip: value("HIP_VISIBLE_DEVICES"),
            cuda: value("CUDA_VISIBLE_DEVICES"),
        }),
        Vendor::Intel => Box::new(Intel {
            mask: value("ZE_AFFINITY_MASK"),
            selector: value("ONEAPI_DEVICE_SELECTOR"),
        }),
        Vendor::Cpu | Vendor::Other => panic!("no runtime stands for {vendor:?}"),
    };
    permutations(3, is_fixed)
        .iter()
        .map(|order| {
            let mut shown = runtime.shows(order);
            shown.sort_unstable();
            shown
        })
        .collect()
}

proptest! {
    #[test]
    fn a_worker_is_shown_its_devices_and_nothing_else(
        chosen in proptest::collection::vec(any::<bool>(), 10)
    ) {
        let all = host();
        let devices: Vec<Device> = all
            .iter()
            .zip(&chosen)
            .filter(|(_, is_chosen)| **is_chosen)
            .map(|(device, _)| device.clone())
            .collect();
        let masks = own(&devices, &all).expect("because each card has what its mask needs");
        for (device, is_chosen) in all.iter().zip(&chosen) {
            let expected = if *is_chosen && device.vendor != Vendor::Cpu {
                Covers::Yes
            } else {
                Covers::No
            };
            prop_assert_eq!(answers(&masks, device, &all), expected, "{} {:?}", device.id, masks);
        }
        for vendor in [Vendor::Nvidia, Vendor::Intel, Vendor::Amd] {
            let expected: Vec<usize> = devices
                .iter()
                .filter(|device| device.vendor == vendor)
                .filter_map(|device| usize::try_from(device.ordinal_in_pci_order?).ok())
                .collect();
            for shown in shown(&masks, vendor) {
                prop_assert_eq!(&shown, &expected, "{:?}: {:?}", vendor, masks);
            }
        }
        // What was made agrees with itself, however a user repeats it.
        let joined = with_users(&masks, &masks, &devices, &all).expect("because it is the same");
        prop_assert_eq!(joined, masks);
    }
}

#[test]
fn masks_are_these_words() {
    let all = host();
    let uuids = uuids(Vendor::Nvidia);
    let nvidia = own(&[all[2].clone(), all[1].clone()], &all).expect("because UUIDs are known");
    assert_eq!(
        nvidia["CUDA_VISIBLE_DEVICES"],
        format!("{},{}", uuids[1], uuids[0])
    );
    assert_eq!(nvidia["CUDA_DEVICE_ORDER"], "PCI_BUS_ID");
    let intel = own(&[all[5].clone()], &all).expect("because places are known");
    assert_eq!(intel["ZE_AFFINITY_MASK"], "1");
    assert_eq!(intel["ZE_ENABLE_PCI_ID_DEVICE_ORDER"], "1");
    assert_eq!(intel["ZE_FLAT_DEVICE_HIERARCHY"], "COMPOSITE");
    assert_eq!(intel["ONEAPI_DEVICE_SELECTOR"], "level_zero:*");
    let none = own(&[all[0].clone()], &all).expect("because cores need no mask");
    let expected = users(&[
        ("CUDA_VISIBLE_DEVICES", ""),
        ("ROCR_VISIBLE_DEVICES", ""),
        ("HIP_VISIBLE_DEVICES", "-1"),
        ("ONEAPI_DEVICE_SELECTOR", "*:cpu"),
        ("GGML_VK_VISIBLE_DEVICES", ""),
    ]);
    assert_eq!(none, expected);
}

#[test]
fn a_card_that_no_mask_can_name_is_refused() {
    let mut nvidia = cards(Vendor::Nvidia, 2);
    nvidia[1].uuid = None;
    let error = own(&nvidia[1..], &nvidia).expect_err("because it has no UUID");
    assert_eq!(
        error.to_string(),
        format!(
            "CUDA_VISIBLE_DEVICES can't name {}: its UUID is not known, and ordinals change",
            nvidia[1].id
        )
    );
    let mut amd = cards(Vendor::Amd, 2);
    amd[0].uuid = None;
    let error = own(&amd[..1], &amd).expect_err("because it is one of two");
    assert_eq!(
        error.to_string(),
        "ROCR_VISIBLE_DEVICES can't name pci:0000:80:00.0: its UUID is not known, and no variable \
         fixes the order of several cards"
    );
    let only = own(&amd[..1], &amd[..1]).expect("because it is the only one");
    assert_eq!(only["ROCR_VISIBLE_DEVICES"], "0");
    let mut intel = cards(Vendor::Intel, 1);
    intel[0].ordinal_in_pci_order = None;
    let error = own(&intel, &intel).expect_err("because it has no place");
    assert_eq!(
        error.to_string(),
        "ZE_AFFINITY_MASK can't name pci:0000:40:00.0: its place in PCI order is not known"
    );
    let others = [card(Vendor::Other, 0, None), card(Vendor::Other, 1, None)];
    let error = own(&others[..1], &others).expect_err("because the other would be seen");
    assert_eq!(
        error.to_string(),
        "no mask is known that shows pci:0000:c0:00.0 alone; pci:0000:c1:00.0 would be seen too"
    );
    own(&others[..1], &others[..1]).expect("because there is no other");
}

#[test]
fn what_a_user_sets_against_the_devices_is_named() {
    let all = host();
    let device = all[4].clone();
    let masks = own(std::slice::from_ref(&device), &all).expect("because it has a place");
    let refused = |set: &[(&str, &str)]| {
        with_users(&masks, &users(set), std::slice::from_ref(&device), &all)
            .expect_err("because it contradicts")
            .to_string()
    };
    assert_eq!(
        refused(&[("ZE_AFFINITY_MASK", "1")]),
        "environment.ZE_AFFINITY_MASK = \"1\" contradicts the worker's devices: pci:0000:40:00.0 \
         would be hidden"
    );
    assert_eq!(
        refused(&[("ZE_AFFINITY_MASK", "0,2")]),
        "environment.ZE_AFFINITY_MASK = \"0,2\" contradicts the worker's devices: \
         pci:0000:42:00.0 would be seen too"
    );
    assert_eq!(
        refused(&[("ZE_ENABLE_PCI_ID_DEVICE_ORDER", "0")]),
        "environment.ZE_ENABLE_PCI_ID_DEVICE_ORDER = \"0\" contradicts the worker's devices: \
         pci:0000:40:00.0 may be hidden: its mask counts cards in an order that no variable fixes"
    );
    assert_eq!(
        refused(&[("CUDA_VISIBLE_DEVICES", "0")]),
        format!(
            "environment.CUDA_VISIBLE_DEVICES = \"0\" contradicts the worker's devices: {} may be \
             seen too: its mask counts cards in an order that no variable fixes",
            all[1].id
        )
    );
    assert_eq!(
        refused(&[
            ("ROCR_VISIBLE_DEVICES", "GPU-ac641bfad00df00d"),
            ("HIP_VISIBLE_DEVICES", "0")
        ]),
        "environment.HIP_VISIBLE_DEVICES = \"0\" contradicts the worker's devices: \
         pci:0000:82:00.0 would be seen too"
    );
}

#[test]
fn what_a_user_sets_in_other_words_is_taken() {
    let all = host();
    let devices = [all[4].clone(), all[5].clone()];
    let masks = own(&devices, &all).expect("because they have places");
    let set = users(&[
        ("ZE_AFFINITY_MASK", "1,0.0"),
        ("ONEAPI_DEVICE_SELECTOR", "level_zero:gpu"),
        ("GGML_VK_VISIBLE_DEVICES", "0"),
        ("OMP_NUM_THREADS", "4"),
    ]);
    let joined = with_users(&masks, &set, &devices, &all).expect("because it says the same");
    assert_eq!(joined["ZE_AFFINITY_MASK"], "1,0.0");
    assert_eq!(joined["ONEAPI_DEVICE_SELECTOR"], "level_zero:gpu");
    assert_eq!(joined["GGML_VK_VISIBLE_DEVICES"], "0");
    assert!(!joined.contains_key("OMP_NUM_THREADS"), "it is no mask");
}

#[test]
fn a_part_is_shown_by_its_own_name() {
    let whole = cards(Vendor::Nvidia, 1);
    let mig = "MIG-11111111-0000-0000-0000-000000000000";
    let all = [whole.clone(), vec![part(&whole[0], mig)]].concat();
    let masks = own(&all[1..], &all).expect("because it has a UUID");
    assert_eq!(masks["CUDA_VISIBLE_DEVICES"], mig);
    with_users(&masks, &masks, &all[1..], &all).expect("because the card is seen through it");
}
