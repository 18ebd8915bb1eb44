//! Masks, against the runtimes that the tests of `packhouse-proc` write again.

use crate::cards::card;
use crate::oracle::{Amd, Cuda, Intel, Runtime, permutations};
use packhouse_proc::devices::{Device, Vendor};
use packhouse_proc::masks::{Covers, Runtimes, View, at_most, covers, parse};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;

/// Up to three values of variables.
type Values<'v> = [Option<&'v OsStr>; 3];
/// A runtime with the vendor of its cards and the variables that it reads.
type Chosen<'v> = (
    Vendor,
    Box<dyn Runtime>,
    [(&'static str, Option<&'v OsStr>); 3],
);

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
    let values: Values<'_> = std::array::from_fn(|_| {
        let (_, value) = lines.next()?.split_first()?;
        Some(OsStr::from_bytes(value))
    });
    for value in values {
        let _ = parse::ggml_vulkan(value);
        for parse in [parse::cuda, parse::rocr, parse::hip, parse::level_zero] {
            // The same value is the same mask.
            if parse(value) != parse(value) {
                return Err(format!("{value:?} is two masks"));
            }
        }
    }
    let uuids = uuids(choice >> 3 & 1 != 0);
    let is_pci = choice & 4 != 0;
    let Some((vendor, runtime, set)) = chosen(choice >> 4 & 3, is_pci, values, &uuids) else {
        return Ok(());
    };
    let count = usize::from(choice & 3) + 1;
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

/// `None` where a value is none that the judge knows.
fn chosen<'v>(
    choice: u8,
    is_pci: bool,
    values: Values<'v>,
    uuids: &[String; 4],
) -> Option<Chosen<'v>> {
    let text = |value: Option<&OsStr>| match value {
        None => Some(None),
        Some(value) => Some(Some(value.to_str()?.to_owned())),
    };
    let (first, second, third) = (text(values[0])?, text(values[1])?, text(values[2])?);
    let when_pci = |value: &'static str| is_pci.then_some(OsStr::new(value));
    let uuids = uuids.clone();
    match choice {
        0 => {
            let set = [
                ("CUDA_VISIBLE_DEVICES", values[0]),
                ("CUDA_DEVICE_ORDER", when_pci("PCI_BUS_ID")),
                ("X", None),
            ];
            Some((Vendor::Nvidia, Box::new(Cuda { uuids, mask: first }), set))
        }
        1 => {
            let set = [
                ("ROCR_VISIBLE_DEVICES", values[0]),
                ("HIP_VISIBLE_DEVICES", values[1]),
                ("CUDA_VISIBLE_DEVICES", values[2]),
            ];
            let runtime = Amd {
                uuids,
                rocr: first,
                hip: second,
                cuda: third,
            };
            Some((Vendor::Amd, Box::new(runtime), set))
        }
        _ => {
            // Of selectors it knows those without blanks, of whole terms.
            let is_known = |text: &String| {
                let is_whole = text.split(';').all(|term| term.contains(':'));
                (text.is_empty() || is_whole) && !text.contains(char::is_whitespace)
            };
            second.as_ref().is_none_or(is_known).then_some(())?;
            let set = [
                ("ZE_AFFINITY_MASK", values[0]),
                ("ONEAPI_DEVICE_SELECTOR", values[1]),
                ("ZE_ENABLE_PCI_ID_DEVICE_ORDER", when_pci("1")),
            ];
            let runtime = Intel {
                mask: first,
                selector: second,
            };
            Some((Vendor::Intel, Box::new(runtime), set))
        }
    }
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
