//! Masks against runtimes: one recorded, the others written again from their documentation and
//! sources as programs that enumerate, for every order of cards that a host may have.
//!
//! `covers` says yes, no or maybe without enumerating. Yes must hold under every order that fits
//! the environment, and no under every one too.

mod oracle;
mod own;

use crate::cards::{card, part};
use oracle::{Amd, Cuda, Intel, Runtime, permutations};
use packhouse_proc::devices::{Device, Vendor};
use packhouse_proc::masks::{Covers, Runtimes, View, at_most, covers};
use proptest::prelude::*;
use std::ffi::OsString;

pub(crate) type Environment = Vec<(OsString, OsString)>;

pub(crate) fn environment(set: &[(&str, Option<&str>)]) -> Environment {
    set.iter()
        .filter_map(|(name, value)| Some((OsString::from(name), OsString::from((*value)?))))
        .collect()
}

const SYCL: Runtimes = Runtimes {
    sycl: true,
    vulkan: false,
};

fn view(environment: &Environment) -> View<'_> {
    View {
        environment,
        runtimes: Some(SYCL),
        elsewhere: false,
    }
}

fn is_maybe(answer: &Covers) -> bool {
    matches!(answer, Covers::Maybe { .. })
}

/// Compares with what a runtime shows under every order that the environment leaves open.
fn agree(runtime: &dyn Runtime, set: &Environment, cards: &[Device], orders: &[Vec<usize>]) {
    let shown: Vec<Vec<usize>> = orders.iter().map(|order| runtime.shows(order)).collect();
    for (index, device) in cards.iter().enumerate() {
        let answer = covers(&view(set), device, cards);
        for (order, shown) in orders.iter().zip(&shown) {
            let is_shown = shown.contains(&index);
            match &answer {
                Covers::Yes => assert!(is_shown, "card {index}, order {order:?}: {set:?}"),
                Covers::No => assert!(!is_shown, "card {index}, order {order:?}: {set:?}"),
                Covers::Maybe { why } => assert!(!why.is_empty()),
            }
        }
        // Where a mask is plain and the order is told, it must not be left open.
        if runtime.is_plain() && orders.len() == 1 {
            assert!(!is_maybe(&answer), "card {index}: {answer:?}, {set:?}");
        }
    }
    if let Some(count) = at_most(&view(set), cards[0].vendor) {
        for shown in &shown {
            assert!(
                shown.len() <= count,
                "{shown:?} of at most {count}: {set:?}"
            );
        }
    }
}

/// UUIDs of which the first two begin alike.
fn uuids(vendor: Vendor) -> [String; 4] {
    ["8168be1d", "8168bf00", "ac641bfa", "00000000"].map(|first| match vendor {
        Vendor::Amd => format!("GPU-{first}d00df00d"),
        _ => format!("GPU-{first}-f407-f5b6-7c7f-317c92fe49e6"),
    })
}

fn cards(vendor: Vendor, count: usize) -> Vec<Device> {
    let uuids = uuids(vendor);
    (0..count)
        .map(|index| {
            let ordinal = u32::try_from(index).expect("because there are few");
            card(vendor, ordinal, Some(&uuids[index]))
        })
        .collect()
}

/// Entries of masks: mostly plain, some odd.
fn entry(vendor: Vendor) -> impl Strategy<Value = String> {
    let uuids = uuids(vendor);
    let cut = uuids.clone();
    prop_oneof![
        8 => (0u32..5).prop_map(|n| n.to_string()),
        3 => (0usize..4).prop_map(move |n| uuids[n].clone()),
        2 => (0usize..4, 3usize..14).prop_map(move |(n, length)| cut[n][..length].to_owned()),
        2 => prop_oneof![
            Just("-1"), Just(""), Just("x"), Just(" 1"), Just("1 "), Just("01"), Just("+1"),
            Just("0x1"), Just("1.0"), Just("0 1"), Just("gpu-8168BE1D"), Just("GPU-dead"),
            Just("4294967296"), Just("0.0"), Just("0.1"), Just("MIG-8168be1d"), Just("default"),
        ].prop_map(str::to_owned),
    ]
}

fn mask(vendor: Vendor) -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        1 => Just(Some(String::new())),
        8 => proptest::collection::vec(entry(vendor), 1..4).prop_map(|list| Some(list.join(","))),
    ]
}

fn terms() -> impl Strategy<Value = Option<String>> {
    let device = prop_oneof![
        Just("*"),
        Just("gpu"),
        Just("cpu"),
        Just("0"),
        Just("1"),
        Just("2"),
        Just("0.0"),
        Just("GPU"),
        Just("fpga"),
        Just("7"),
    ];
    let backend = prop_oneof![
        6 => Just("level_zero"), 1 => Just("Level_Zero"), 1 => Just("opencl"), 1 => Just("*"),
        1 => Just("cuda"),
    ];
    let term = (
        any::<bool>(),
        backend,
        proptest::collection::vec(device, 1..3),
    );
    let text = |(discards, backend, devices): (bool, &str, Vec<&str>)| {
        let mark = if discards { "!" } else { "" };
        format!("{mark}{backend}:{}", devices.join(","))
    };
    let list = proptest::collection::vec(term.prop_map(text), 1..3);
    prop_oneof![Just(None), list.prop_map(|terms| Some(terms.join(";")))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn cuda_masks_agree_with_every_order_of_cards(
        count in 1usize..5,
        mask in mask(Vendor::Nvidia),
        is_pci in any::<bool>(),
    ) {
        let cards = cards(Vendor::Nvidia, count);
        let order = is_pci.then_some("PCI_BUS_ID");
        let set = environment(&[
            ("CUDA_VISIBLE_DEVICES", mask.as_deref()),
            ("CUDA_DEVICE_ORDER", order),
        ]);
        let orders = permutations(count, is_pci);
        let runtime = Cuda { uuids: uuids(Vendor::Nvidia), mask };
        agree(&runtime, &set, &cards, &orders);
    }

    #[test]
    fn amd_masks_agree_with_every_order_of_cards(
        count in 1usize..5,
        rocr in mask(Vendor::Amd),
        hip in mask(Vendor::Amd),
        cuda in mask(Vendor::Amd),
    ) {
        let cards = cards(Vendor::Amd, count);
        let set = environment(&[
            ("ROCR_VISIBLE_DEVICES", rocr.as_deref()),
            ("HIP_VISIBLE_DEVICES", hip.as_deref()),
            ("CUDA_VISIBLE_DEVICES", cuda.as_deref()),
        ]);
        let orders = permutations(count, false);
        let runtime = Amd { uuids: uuids(Vendor::Amd), rocr, hip, cuda };
        agree(&runtime, &set, &cards, &orders);
    }

    #[test]
    fn intel_masks_agree_with_every_order_of_cards(
        count in 1usize..5,
        mask in mask(Vendor::Intel),
        selector in terms(),
        is_pci in any::<bool>(),
    ) {
        let cards = cards(Vendor::Intel, count);
        let set = environment(&[
            ("ZE_AFFINITY_MASK", mask.as_deref()),
            ("ONEAPI_DEVICE_SELECTOR", selector.as_deref()),
            ("ZE_ENABLE_PCI_ID_DEVICE_ORDER", is_pci.then_some("1")),
        ]);
        let orders = permutations(count, is_pci);
        let runtime = Intel { mask, selector };
        agree(&runtime, &set, &cards, &orders);
    }
}

/// One row of a record.
struct Recorded {
    is_pci: bool,
    mask: Option<String>,
    shown: Vec<usize>,
}

fn recorded() -> Vec<Recorded> {
    let text = include_str!("../data/masks/cuda-580.tsv");
    let letter = |letter: char| match letter {
        'A' => 0,
        'B' => 1,
        other => panic!("{other} is no card"),
    };
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    rows.map(|line| {
        let fields: Vec<&str> = line.split('\t').collect();
        let mask: Option<String> =
            serde_json::from_str(fields[1]).expect("because the record has JSON");
        let [first, _, third, _] = uuids(Vendor::Nvidia);
        // The letters of a UUID's digits are small, so these two are names.
        let named = |text: String| {
            text.replace("A,", &format!("{third},"))
                .replace("B,", &first)
        };
        let mask = mask.map(|mask| match mask.as_str() {
            "A" => third.clone(),
            "B" => first.clone(),
            "A,B,A" => format!("{third},{first},{third}"),
            "1,A" => format!("1,{third}"),
            _ => named(mask),
        });
        Recorded {
            is_pci: fields[0] == "pci",
            mask,
            shown: fields[2].chars().map(letter).collect(),
        }
    })
    .collect()
}

/// The two cards of the record: A is first in PCI order.
fn recorded_cards() -> (Vec<Device>, [String; 4]) {
    let [b, other, a, last] = uuids(Vendor::Nvidia);
    let cards = vec![
        card(Vendor::Nvidia, 0, Some(&a)),
        card(Vendor::Nvidia, 1, Some(&b)),
    ];
    (cards, [a, b, other, last])
}

#[test]
fn a_real_driver_never_shows_what_is_said_to_be_masked() {
    let (cards, uuids) = recorded_cards();
    let rows = recorded();
    assert!(rows.len() > 40);
    let mut exact = 0;
    for row in rows {
        let order = row.is_pci.then_some("PCI_BUS_ID");
        let mask = row.mask.as_deref();
        let set = environment(&[("CUDA_VISIBLE_DEVICES", mask), ("CUDA_DEVICE_ORDER", order)]);
        for (index, device) in cards.iter().enumerate() {
            let is_shown = row.shown.contains(&index);
            match covers(&view(&set), device, &cards) {
                Covers::Yes => assert!(is_shown, "{mask:?}"),
                Covers::No => assert!(!is_shown, "{mask:?}"),
                Covers::Maybe { .. } => continue,
            }
            exact += 1;
        }
        // The program that stands for this driver below shows the same, in the same order.
        let runtime = Cuda {
            uuids: uuids.clone(),
            mask: row.mask.clone(),
        };
        assert_eq!(runtime.shows(&[0, 1]), row.shown, "{mask:?}");
    }
    assert!(exact >= 35, "only {exact} answers were yes or no");
}

#[test]
fn each_mask_that_exact_comparison_misses_is_a_collision() {
    let cards = cards(Vendor::Intel, 4);
    let seen = |mask: Option<&str>| {
        let set = environment(&[
            ("ZE_AFFINITY_MASK", mask),
            ("ZE_ENABLE_PCI_ID_DEVICE_ORDER", Some("1")),
        ]);
        covers(&view(&set), &cards[0], &cards)
    };
    for mask in ["0", "0,1", "1,0", "0.0", "0.1,2", "3,0.0", "0,0", "2,0 "] {
        assert_eq!(seen(Some(mask)), Covers::Yes, "{mask}");
    }
    for mask in ["1", "1,2,3", "1.0", "3"] {
        assert_eq!(seen(Some(mask)), Covers::No, "{mask}");
    }
    assert_eq!(seen(None), Covers::Yes);
    assert_eq!(seen(Some("")), Covers::Yes);
    assert!(is_maybe(&seen(Some("gpu0"))));
}

#[test]
fn without_a_fixed_order_an_ordinal_may_be_any_card() {
    let cards = cards(Vendor::Intel, 2);
    let set = environment(&[("ZE_AFFINITY_MASK", Some("1"))]);
    for device in &cards {
        let answer = covers(&view(&set), device, &cards);
        let Covers::Maybe { why } = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(
            why,
            "its mask counts cards in an order that no variable fixes"
        );
    }
    let set = environment(&[("ZE_AFFINITY_MASK", Some("0,1"))]);
    assert_eq!(covers(&view(&set), &cards[1], &cards), Covers::Yes);
}

#[test]
fn an_ordinal_counts_other_cards_in_another_container() {
    let cards = cards(Vendor::Nvidia, 2);
    let uuid = uuids(Vendor::Nvidia)[1].clone();
    let answer = |mask: Option<&str>, index: usize| {
        let set = environment(&[
            ("CUDA_VISIBLE_DEVICES", mask),
            ("CUDA_DEVICE_ORDER", Some("PCI_BUS_ID")),
        ]);
        let view = View {
            elsewhere: true,
            ..view(&set)
        };
        covers(&view, &cards[index], &cards)
    };
    assert!(is_maybe(&answer(Some("0"), 1)));
    assert!(is_maybe(&answer(Some("0,1"), 0)));
    assert!(is_maybe(&answer(Some("6"), 0)));
    assert!(is_maybe(&answer(None, 0)));
    // A UUID is the same card everywhere.
    assert_eq!(answer(Some(&uuid), 1), Covers::Yes);
    assert_eq!(answer(Some(&uuid), 0), Covers::No);
    assert_eq!(answer(Some(""), 0), Covers::No);
}

#[test]
fn parts_and_their_card_are_seen_through_each_other() {
    let whole = cards(Vendor::Nvidia, 2);
    let mig = |n: u32| format!("MIG-1111111{n}-0000-0000-0000-000000000000");
    let parts = [part(&whole[0], &mig(1)), part(&whole[0], &mig(2))];
    let all = [whole.as_slice(), parts.as_slice()].concat();
    let answer = |mask: &str, device: &Device| {
        let set = environment(&[
            ("CUDA_VISIBLE_DEVICES", Some(mask)),
            ("CUDA_DEVICE_ORDER", Some("PCI_BUS_ID")),
        ]);
        covers(&view(&set), device, &all)
    };
    assert_eq!(answer(&mig(1), &parts[0]), Covers::Yes);
    assert_eq!(answer(&mig(1), &parts[1]), Covers::No);
    assert_eq!(answer(&mig(1), &whole[0]), Covers::Yes);
    assert_eq!(answer(&mig(1), &whole[1]), Covers::No);
    assert_eq!(answer("MIG-11111112", &parts[1]), Covers::Yes);
    // Which part a card's own name stands for is not told.
    let uuids = uuids(Vendor::Nvidia);
    assert!(is_maybe(&answer(&uuids[0], &parts[0])));
    assert!(is_maybe(&answer("0", &parts[0])));
    assert_eq!(answer(&uuids[1], &parts[0]), Covers::No);
    assert_eq!(answer("", &parts[0]), Covers::No);
    assert!(is_maybe(&answer("MIG-22222222", &whole[0])));
    assert!(is_maybe(&answer("MIG-1111111", &whole[1])));
    assert!(is_maybe(&answer(&format!("{},0", mig(1)), &whole[1])));
}

#[test]
fn a_uuid_that_is_not_known_here_leaves_cards_open_only_where_theirs_is_unknown() {
    let known = cards(Vendor::Nvidia, 2);
    let set = environment(&[("CUDA_VISIBLE_DEVICES", Some("GPU-77777777"))]);
    assert_eq!(covers(&view(&set), &known[0], &known), Covers::No);
    let mut unknown = known;
    unknown[1].uuid = None;
    assert!(is_maybe(&covers(&view(&set), &unknown[0], &unknown)));
    assert!(is_maybe(&covers(&view(&set), &unknown[1], &unknown)));
}

#[test]
fn vulkan_reaches_every_card_that_its_own_mask_does_not_hide() {
    let all = [cards(Vendor::Nvidia, 2), cards(Vendor::Intel, 1)].concat();
    let uuid = uuids(Vendor::Nvidia)[0].clone();
    let answer = |vulkan: Option<&str>, device: &Device| {
        let set = environment(&[
            ("CUDA_VISIBLE_DEVICES", Some(&uuid)),
            ("ONEAPI_DEVICE_SELECTOR", Some("*:cpu")),
            ("GGML_VK_VISIBLE_DEVICES", vulkan),
        ]);
        let runtimes = Runtimes {
            sycl: true,
            vulkan: true,
        };
        let view = View {
            runtimes: Some(runtimes),
            ..view(&set)
        };
        covers(&view, device, &all)
    };
    assert_eq!(answer(Some(""), &all[0]), Covers::Yes);
    for device in &all[1..] {
        assert_eq!(answer(Some(""), device), Covers::No);
        assert!(is_maybe(&answer(None, device)));
        assert!(is_maybe(&answer(Some("0"), device)));
        assert!(is_maybe(&answer(Some("x"), device)));
    }
}

#[test]
fn a_sycl_selector_limits_sycl_alone() {
    let cards = cards(Vendor::Intel, 1);
    let set = environment(&[("ONEAPI_DEVICE_SELECTOR", Some("opencl:cpu"))]);
    let answer = |runtimes: Option<Runtimes>| {
        let view = View {
            runtimes,
            ..view(&set)
        };
        covers(&view, &cards[0], &cards)
    };
    assert_eq!(answer(Some(SYCL)), Covers::No);
    assert_eq!(answer(Some(Runtimes::default())), Covers::Yes);
    assert!(is_maybe(&answer(None)));
}

#[test]
fn cores_are_covered_by_no_mask_and_cards_without_a_mask_may_be() {
    let set = environment(&[]);
    let cores = crate::cards::cores("0");
    assert_eq!(
        covers(&view(&set), &cores, std::slice::from_ref(&cores)),
        Covers::No
    );
    let other = card(Vendor::Other, 0, None);
    assert!(is_maybe(&covers(
        &view(&set),
        &other,
        std::slice::from_ref(&other)
    )));
}
