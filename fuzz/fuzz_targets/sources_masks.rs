//! Masks, against the runtimes that the tests of `packhouse-proc` write again.

use crate::cards::card;
use crate::oracle::{Amd, Cuda, Intel, Runtime, permutations};
use packhouse_proc::devices::{Device, Vendor};
use packhouse_proc::masks::{Covers, Runtimes, View, at_most, covers, parse};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// The first byte chooses runtime, cards and order; the rest is up to three values, a line each: an
/// empty line is an unset variable, and the first letter of another is passed over.
pub fn compare(input: &[u8]) -> Result<(), String> {
    let Some((choice, rest)) = input.split_first() else {
        return Ok(());
    };
    // No environment has a zero byte.
    if rest.contains(&0) {
        return Ok(());
    }
    let mut lines = rest.splitn(3, |byte| *byte == b'\n');
    let values: [Option<&[u8]>; 3] = std::array::from_fn(|_| Some(lines.next()?.split_first()?.1));
    for value in values {
        let value = value.map(OsStr::from_bytes);
        let _ = parse::ggml_vulkan(value);
        for parse in [parse::cuda, parse::rocr, parse::hip, parse::level_zero] {
            // The same value is the same mask.
            if parse(value) != parse(value) {
                return Err(format!("{value:?} is two masks"));
            }
        }
    }
    let count = usize::from(choice & 3) + 1;
    let is_pci = choice & 4 != 0;
    let text = |at: usize| match values[at] {
        None => Some(None),
        Some(bytes) => std::str::from_utf8(bytes)
            .ok()
            .map(|text| Some(text.to_owned())),
    };
    let (Some(first), Some(second), Some(third)) = (text(0), text(1), text(2)) else {
        return Ok(());
    };
    let raw = |at: usize| values[at].map(OsStr::from_bytes);
    let uuids = uuids(choice >> 3 & 1 != 0);
    let on = is_pci.then_some(OsStr::new("1"));
    let (vendor, runtime, set): (Vendor, Box<dyn Runtime>, [(&str, Option<&OsStr>); 3]) =
        match choice >> 4 & 3 {
            0 => {
                let order = is_pci.then_some(OsStr::new("PCI_BUS_ID"));
                let set = [
                    ("CUDA_VISIBLE_DEVICES", raw(0)),
                    ("CUDA_DEVICE_ORDER", order),
                ];
                let runtime = Cuda {
                    uuids: uuids.clone(),
                    mask: first,
                };
                (
                    Vendor::Nvidia,
                    Box::new(runtime),
                    [set[0], set[1], ("X", None)],
                )
            }
            1 => {
                let set = [
                    ("ROCR_VISIBLE_DEVICES", raw(0)),
                    ("HIP_VISIBLE_DEVICES", raw(1)),
                    ("CUDA_VISIBLE_DEVICES", raw(2)),
                ];
                let uuids = uuids.clone();
                let runtime = Amd {
                    uuids,
                    rocr: first,
                    hip: second,
                    cuda: third,
                };
                (Vendor::Amd, Box::new(runtime), set)
            }
            _ => {
                // The judge knows selectors without blanks only, and only whole ones.
                let is_known = |text: &String| {
                    text.is_empty() || text.split(';').all(|term| term.contains(':'))
                };
                let has_blanks = |text: &String| text.contains(char::is_whitespace);
                if second
                    .as_ref()
                    .is_some_and(|text| !is_known(text) || has_blanks(text))
                {
                    return Ok(());
                }
                let set = [
                    ("ZE_AFFINITY_MASK", raw(0)),
                    ("ONEAPI_DEVICE_SELECTOR", raw(1)),
                    ("ZE_ENABLE_PCI_ID_DEVICE_ORDER", on),
                ];
                (
                    Vendor::Intel,
                    Box::new(Intel {
                        mask: first,
                        selector: second,
                    }),
                    set,
                )
            }
        };
    let cards: Vec<Device> = (0..count)
        .zip(0u32..)
        .map(|(index, ordinal)| card(vendor, ordinal, Some(&uuids[index])))
        .collect();
    let set: Vec<(OsString, OsString)> = set
        .iter()
        .filter_map(|(name, value)| Some((name.into(), (*value)?.to_owned())))
        .collect();
    let is_fixed = is_pci && vendor != Vendor::Amd;
    agree(
        runtime.as_ref(),
        &set,
        &cards,
        &permutations(count, is_fixed),
    )
}

/// UUIDs of which the first two begin alike.
fn uuids(is_short: bool) -> [String; 4] {
    let rest = if is_short {
        "d00df00d"
    } else {
        "-f407-f5b6-7c7f-317c92fe49e6"
    };
    ["8168be1d", "8168bf00", "ac641bfa", "00000000"].map(|first| format!("GPU-{first}{rest}"))
}

/// Yes holds under every order that the environment leaves open, and no under every one too.
fn agree(
    runtime: &dyn Runtime,
    set: &[(OsString, OsString)],
    cards: &[Device],
    orders: &[Vec<usize>],
) -> Result<(), String> {
    let runtimes = Runtimes {
        sycl: true,
        vulkan: false,
    };
    let view = View {
        environment: set,
        runtimes: Some(runtimes),
        elsewhere: false,
    };
    let most = at_most(&view, cards[0].vendor);
    for order in orders {
        let shown = runtime.shows(order);
        if most.is_some_and(|most| shown.len() > most) {
            return Err(format!("{set:?} shows {shown:?} of at most {most:?}"));
        }
        for (index, device) in cards.iter().enumerate() {
            let is_shown = shown.contains(&index);
            let answer = covers(&view, device, cards);
            let is_wrong = match &answer {
                Covers::Yes => !is_shown,
                Covers::No => is_shown,
                Covers::Maybe { why } => why.is_empty() || runtime.is_plain() && orders.len() == 1,
            };
            if is_wrong {
                return Err(format!(
                    "card {index} of {}: {answer:?}, shown {shown:?} in order {order:?}: {set:?}",
                    cards.len()
                ));
            }
        }
    }
    Ok(())
}
