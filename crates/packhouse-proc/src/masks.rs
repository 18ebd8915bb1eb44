//! Which cards a process can reach by its environment: mask variables read as sets.
//!
//! Invariants:
//! - `No` is said only where no enumeration that a runtime may have used shows the card;
//! - `Yes` is said only where each of them does; what lies between is `Maybe`, with its reason;
//! - masks compose: HIP counts in what ROCr left, a SYCL selector in what Level Zero left.
//!
//! Never: trusts an order that no variable fixed. An environment is what the process was started
//! with: that it set another later can't be seen. Design: `docs/design/holders.md`.

pub mod own;
pub mod parse;

use crate::devices::{Device, DeviceId, Vendor};
use parse::{Mask, OneApi, Selector, Term, TermDevice};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};

/// What is known of a process that bears on which cards its runtimes show it.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The environment that it was started with.
    pub environment: &'a [(OsString, OsString)],
    /// The runtimes that it has loaded. `None`: they can't be seen, so each may be.
    pub runtimes: Option<Runtimes>,
    /// Whether it may see another set of devices than we do, being in another container: then its
    /// ordinals count other cards.
    pub elsewhere: bool,
}

/// Runtimes that a process has mapped, as far as masks differ by them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Runtimes {
    /// SYCL: `ONEAPI_DEVICE_SELECTOR` limits it, and it alone.
    pub sycl: bool,
    /// Vulkan: no vendor's mask limits it.
    pub vulkan: bool,
}

/// Whether a process may use a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Covers {
    /// Its runtimes show it this card.
    Yes,
    /// They show it others only.
    No,
    /// They may show it.
    Maybe {
        /// Why that can't be told.
        why: String,
    },
}

/// The variables by which runtimes choose devices.
pub const VARIABLES: [&str; 9] = [
    CUDA_MASK,
    CUDA_ORDER,
    ROCR_MASK,
    HIP_MASK,
    ZE_MASK,
    ZE_ORDER,
    ZE_HIERARCHY,
    ONEAPI_MASK,
    VULKAN_MASK,
];

/// Says whether a process sees a card. `all` are the devices of this host. Cores have no mask:
/// they are never covered.
pub fn covers(view: &View<'_>, device: &Device, all: &[Device]) -> Covers {
    let by_vendor = match device.vendor {
        Vendor::Cpu => return Covers::No,
        Vendor::Nvidia | Vendor::Amd | Vendor::Intel
            if device.parent.is_none() && !is_counted(device) =>
        {
            Covers::No
        }
        Vendor::Nvidia => nvidia(view, device, all),
        Vendor::Amd => amd(view, device, all),
        Vendor::Intel => intel(view, device, all),
        Vendor::Other => maybe("no mask is known for cards of this vendor"),
    };
    either(by_vendor, vulkan(view))
}

/// How many cards of a vendor a process can see at most; `None`: its masks set no bound.
pub fn at_most(view: &View<'_>, vendor: Vendor) -> Option<usize> {
    let value = |name| variable(view.environment, name);
    let masks = match vendor {
        Vendor::Nvidia => vec![parse::cuda(value(CUDA_MASK))],
        Vendor::Amd => vec![parse::rocr(value(ROCR_MASK)), parse::hip(value(HIP_MASK))],
        Vendor::Intel => vec![parse::level_zero(value(ZE_MASK))],
        Vendor::Cpu | Vendor::Other => Vec::new(),
    };
    let count = |mask: &Mask| match mask {
        Mask::All | Mask::NotUnderstood(_) => None,
        Mask::Nothing => Some(0),
        Mask::Some(selectors) => Some(selectors.len()),
    };
    masks.iter().filter_map(count).min()
}

pub(crate) const CUDA_MASK: &str = "CUDA_VISIBLE_DEVICES";
pub(crate) const CUDA_ORDER: &str = "CUDA_DEVICE_ORDER";
pub(crate) const ROCR_MASK: &str = "ROCR_VISIBLE_DEVICES";
pub(crate) const HIP_MASK: &str = "HIP_VISIBLE_DEVICES";
pub(crate) const ZE_MASK: &str = "ZE_AFFINITY_MASK";
pub(crate) const ZE_ORDER: &str = "ZE_ENABLE_PCI_ID_DEVICE_ORDER";
pub(crate) const ZE_HIERARCHY: &str = "ZE_FLAT_DEVICE_HIERARCHY";
pub(crate) const ONEAPI_MASK: &str = "ONEAPI_DEVICE_SELECTOR";
pub(crate) const VULKAN_MASK: &str = "GGML_VK_VISIBLE_DEVICES";

/// The value that a program's `getenv` finds: the first.
pub(crate) fn variable<'a>(
    environment: &'a [(OsString, OsString)],
    name: &str,
) -> Option<&'a OsStr> {
    environment
        .iter()
        .find(|(key, _)| key == name)
        .map(|(_, value)| value.as_os_str())
}

fn nvidia(view: &View<'_>, device: &Device, all: &[Device]) -> Covers {
    let mask = parse::cuda(variable(view.environment, CUDA_MASK));
    let by_place = variable(view.environment, CUDA_ORDER).is_some_and(|v| v == "PCI_BUS_ID");
    if let Some(answer) = parts(&mask, device, all) {
        return answer;
    }
    let cards = Cards::of(Vendor::Nvidia, all, by_place, view.elsewhere);
    cards.all_seen().mask(&mask, CUDA_MASK).covers(device)
}

fn amd(view: &View<'_>, device: &Device, all: &[Device]) -> Covers {
    let rocr = parse::rocr(variable(view.environment, ROCR_MASK));
    let set = |name| variable(view.environment, name).filter(|value| !value.is_empty());
    // HIP takes CUDA's variable where its own says nothing.
    let name = [HIP_MASK, CUDA_MASK]
        .into_iter()
        .find(|name| set(name).is_some());
    // The driver numbers cards as it found them, which no variable fixes.
    let cards = Cards::of(Vendor::Amd, all, false, view.elsewhere);
    let seen = cards.all_seen().mask(&rocr, ROCR_MASK);
    let hip = name.map_or(Mask::All, |name| parse::hip(set(name)));
    seen.mask(&hip, name.unwrap_or(HIP_MASK)).covers(device)
}

fn intel(view: &View<'_>, device: &Device, all: &[Device]) -> Covers {
    let mask = parse::level_zero(variable(view.environment, ZE_MASK));
    let by_place = variable(view.environment, ZE_ORDER).is_some_and(|value| value == "1");
    let cards = Cards::of(Vendor::Intel, all, by_place, view.elsewhere);
    let seen = cards.all_seen().mask(&mask, ZE_MASK);
    let drivers = seen.clone().covers(device);
    let sycl = match parse::oneapi(variable(view.environment, ONEAPI_MASK)) {
        OneApi::All => return drivers,
        OneApi::NotUnderstood(why) => maybe(format!("{ONEAPI_MASK}: {why}")),
        OneApi::Terms { accept, discard } => selected(&seen, &accept, &discard, device),
    };
    match view.runtimes {
        // Level Zero used without SYCL does not know the selector.
        Some(Runtimes { sycl: false, .. }) => drivers,
        Some(Runtimes { sycl: true, .. }) => both(drivers, sycl),
        None if sycl == Covers::Yes || drivers == Covers::No => drivers,
        None => maybe("whether it uses SYCL, whose selector it has, can't be seen"),
    }
}

/// Vulkan shows every card to who loaded it; ggml alone has a mask, by an order of its own.
fn vulkan(view: &View<'_>) -> Covers {
    let is_loaded = view.runtimes.is_some_and(|runtimes| runtimes.vulkan);
    if !is_loaded {
        return Covers::No;
    }
    match parse::ggml_vulkan(variable(view.environment, VULKAN_MASK)) {
        Mask::Nothing => Covers::No,
        Mask::All => maybe(format!(
            "it has Vulkan loaded, which no vendor's mask limits, and {VULKAN_MASK} is unset"
        )),
        Mask::Some(_) => maybe(format!(
            "it has Vulkan loaded, and {VULKAN_MASK} counts in Vulkan's own order"
        )),
        Mask::NotUnderstood(why) => maybe(format!("{VULKAN_MASK}: {why}")),
    }
}

/// Answers for parts of cards (MIG) and for masks that name such; `None`: whole cards only.
fn parts(mask: &Mask, device: &Device, all: &[Device]) -> Option<Covers> {
    let selectors = match mask {
        Mask::Some(selectors) => selectors.as_slice(),
        Mask::Nothing => return Some(Covers::No),
        Mask::All | Mask::NotUnderstood(_) => &[],
    };
    let migs: Vec<&str> = selectors
        .iter()
        .filter_map(|selector| match selector {
            Selector::Uuid(uuid) if uuid.starts_with("MIG-") => Some(uuid.as_str()),
            Selector::Uuid(_) | Selector::Ordinal(_) => None,
        })
        .collect();
    if migs.is_empty() {
        let part = device.parent.as_ref()?;
        return Some(part_of_whole(mask, part, device, all));
    }
    if migs.len() != selectors.len() {
        return Some(maybe(format!("{CUDA_MASK} mixes cards and parts of cards")));
    }
    let mut answer = Covers::No;
    for mig in migs {
        let owners: Vec<&Device> = all
            .iter()
            .filter(|other| other.parent.is_some() && names(other, mig))
            .collect();
        let one = match owners.as_slice() {
            [] => maybe(format!("{CUDA_MASK} names {mig}, which is not found here")),
            [owner] if owner.id == device.id || owner.parent.as_ref() == Some(&device.id) => {
                Covers::Yes
            }
            [_] => Covers::No,
            [..] => maybe(format!("{CUDA_MASK}: {mig} is several parts")),
        };
        answer = either(answer, one);
    }
    Some(answer)
}

/// A mask that names whole cards shows one part of each at most, and which one is not told.
fn part_of_whole(mask: &Mask, card: &DeviceId, device: &Device, all: &[Device]) -> Covers {
    let whole = all.iter().find(|other| other.id == *card);
    let selectors = match (mask, whole) {
        (Mask::Some(selectors), Some(_)) => selectors.as_slice(),
        (Mask::Some(_) | Mask::All | Mask::Nothing | Mask::NotUnderstood(_), _) => &[],
    };
    let is_other = |selector: &Selector| match selector {
        Selector::Uuid(_) => !whole.is_some_and(|whole| is_named(whole, selector)),
        Selector::Ordinal(_) => false,
    };
    if !selectors.is_empty() && selectors.iter().all(is_other) {
        return Covers::No;
    }
    maybe(format!(
        "{CUDA_MASK} names no part of a card, so it may be {}",
        device.id
    ))
}

/// What a SYCL selector leaves of the cards that Level Zero shows.
fn selected(seen: &Seen<'_>, accept: &[Term], discard: &[Term], device: &Device) -> Covers {
    let accepted = if accept.is_empty() {
        Covers::Yes
    } else {
        accept.iter().fold(Covers::No, |answer, term| {
            either(answer, term_covers(seen, term, device))
        })
    };
    let discarded = discard.iter().fold(Covers::No, |answer, term| {
        either(answer, term_discards(seen, term, device))
    });
    match (accepted, discarded) {
        (_, Covers::Yes) => Covers::No,
        (accepted, Covers::No) => accepted,
        (Covers::No, Covers::Maybe { .. }) => Covers::No,
        (Covers::Yes | Covers::Maybe { .. }, Covers::Maybe { why }) => Covers::Maybe { why },
    }
}

fn term_covers(seen: &Seen<'_>, term: &Term, device: &Device) -> Covers {
    let counts = match term.backend.as_str() {
        "level_zero" => true,
        "*" | "opencl" => false,
        "cuda" | "hip" | "native_cpu" | "esimd_emulator" => return Covers::No,
        other => return maybe(format!("{ONEAPI_MASK}: back end {other} is not known")),
    };
    term.devices.iter().fold(Covers::No, |answer, entry| {
        let one = match entry {
            TermDevice::All | TermDevice::Gpu | TermDevice::AllParts => seen.clone().covers(device),
            TermDevice::NoGpu => Covers::No,
            TermDevice::Ordinal(n) | TermDevice::PartOf(n) if counts => seen
                .clone()
                .mask(&Mask::Some(vec![Selector::Ordinal(*n)]), ONEAPI_MASK)
                .covers(device),
            TermDevice::Ordinal(_) | TermDevice::PartOf(_) => maybe(format!(
                "{ONEAPI_MASK} counts in an order of {} that is not told",
                term.backend
            )),
        };
        either(answer, one)
    })
}

/// Whether a discarding term takes a card away for good: only from all back ends at once does it,
/// as another back end may show the card again.
fn term_discards(seen: &Seen<'_>, term: &Term, device: &Device) -> Covers {
    let is_whole = term.devices.iter().any(|entry| match entry {
        TermDevice::All | TermDevice::Gpu => true,
        TermDevice::NoGpu
        | TermDevice::Ordinal(_)
        | TermDevice::PartOf(_)
        | TermDevice::AllParts => false,
    });
    if term.backend == "*" && is_whole {
        return Covers::Yes;
    }
    match term_covers(seen, term, device) {
        Covers::No => Covers::No,
        Covers::Yes | Covers::Maybe { .. } => maybe(format!(
            "{ONEAPI_MASK} discards it from {} only",
            term.backend
        )),
    }
}

/// The cards of one vendor, and whether their order is known.
#[derive(Clone)]
struct Cards<'a> {
    /// In PCI order.
    cards: Vec<&'a Device>,
    /// Whether a runtime counts them so.
    in_order: bool,
    /// Whether it may have other cards than these.
    elsewhere: bool,
}

/// What a runtime shows: places that a later mask counts.
#[derive(Clone)]
struct Seen<'a> {
    all: Cards<'a>,
    places: Vec<Place>,
    /// Why only some of the places may be shown, where that can't be told.
    doubt: Option<String>,
}

/// One place of an enumeration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// This card, by index in PCI order.
    Card(usize),
    /// The n-th of an order that is not known.
    Nth(u32),
}

/// What a selector means.
enum Meant {
    /// This place.
    Place(Place),
    /// No device of this host, and why.
    None(String),
    /// It can't be told, and why.
    Unclear(String),
}

impl<'a> Cards<'a> {
    fn of(vendor: Vendor, all: &'a [Device], is_pci_order: bool, elsewhere: bool) -> Self {
        let mut cards: Vec<&Device> = all
            .iter()
            .filter(|device| device.vendor == vendor && is_counted(device))
            .collect();
        cards.sort_by_key(|device| (device.ordinal_in_pci_order, device.pci));
        let are_counted = cards
            .iter()
            .enumerate()
            .all(|(index, card)| card.ordinal_in_pci_order == u32::try_from(index).ok());
        Self {
            cards,
            in_order: is_pci_order && are_counted && !elsewhere,
            elsewhere,
        }
    }

    fn all_seen(self) -> Seen<'a> {
        let places = (0..self.cards.len())
            .map(|index| {
                if self.in_order {
                    Place::Card(index)
                } else {
                    Place::Nth(u32::try_from(index).unwrap_or(u32::MAX))
                }
            })
            .collect();
        Seen {
            all: self,
            places,
            doubt: None,
        }
    }
}

impl Seen<'_> {
    /// What a mask leaves.
    fn mask(mut self, mask: &Mask, name: &str) -> Self {
        let selectors = match mask {
            Mask::All => return self,
            Mask::Nothing => {
                self.places.clear();
                self.doubt = None;
                return self;
            }
            Mask::NotUnderstood(why) => {
                self.doubt = self.doubt.or_else(|| Some(format!("{name}: {why}")));
                return self;
            }
            Mask::Some(selectors) => selectors,
        };
        // Doubtful places are not counted: any of them may be meant.
        if self.doubt.is_some() || self.places.is_empty() {
            return self;
        }
        let before = std::mem::take(&mut self.places);
        let (mut is_cut, mut unclear) = (None, None);
        for selector in selectors {
            match self.meant(selector, &before) {
                Meant::Place(place) => {
                    self.places.push(place);
                    self.doubt = self.doubt.take().or_else(|| is_cut.clone());
                }
                // Some runtimes stop here, and some go on.
                Meant::None(why) => is_cut = is_cut.or(Some(format!("{name}: {why}"))),
                Meant::Unclear(why) => unclear = unclear.or(Some(format!("{name}: {why}"))),
            }
        }
        if unclear.is_some() {
            self.doubt = unclear;
            self.places = before;
            return self;
        }
        let distinct: BTreeSet<Place> = self.places.iter().copied().collect();
        let is_mixed = distinct.iter().any(|place| matches!(place, Place::Nth(_)))
            && distinct.iter().any(|place| matches!(place, Place::Card(_)));
        if distinct.len() != self.places.len() || is_mixed {
            let why = format!("{name} may name a card twice, and what is not seen then differs");
            self.doubt = self.doubt.or(Some(why));
        }
        self
    }

    /// What one selector means among the places seen before.
    fn meant(&self, selector: &Selector, before: &[Place]) -> Meant {
        match selector {
            Selector::Ordinal(n) => {
                let place = usize::try_from(*n).ok().and_then(|n| before.get(n));
                match place {
                    Some(place) => Meant::Place(*place),
                    None if self.all.elsewhere => {
                        Meant::Unclear(format!("{n} is counted in another container"))
                    }
                    None => Meant::None(format!("{n} is beyond the devices found here")),
                }
            }
            Selector::Uuid(uuid) => self.named(uuid, before),
        }
    }

    fn named(&self, uuid: &str, before: &[Place]) -> Meant {
        let cards = &self.all.cards;
        let found: Vec<usize> = (0..cards.len())
            .filter(|index| names(cards[*index], uuid))
            .collect();
        let is_exact = before.iter().all(|place| matches!(place, Place::Card(_)));
        match found.as_slice() {
            [only] if before.len() == cards.len() || before.contains(&Place::Card(*only)) => {
                Meant::Place(Place::Card(*only))
            }
            [_] if is_exact => Meant::None(format!("{uuid} is masked already")),
            [_] => Meant::Unclear(format!("{uuid} may be masked already")),
            [] if cards.iter().all(|card| card.uuid.is_some()) => {
                Meant::None(format!("{uuid} is none of the devices found here"))
            }
            [] => Meant::Unclear(format!("{uuid} may be a device whose UUID is not known")),
            [..] => Meant::Unclear(format!("{uuid} is the start of several UUIDs")),
        }
    }

    fn covers(self, device: &Device) -> Covers {
        let Some(index) = self.all.cards.iter().position(|card| card.id == device.id) else {
            return maybe("the card is not among the devices found");
        };
        let unknown = self
            .places
            .iter()
            .filter(|place| matches!(place, Place::Nth(_)))
            .count();
        let is_shown = self.places.contains(&Place::Card(index));
        match self.doubt {
            _ if !is_shown && unknown == 0 => Covers::No,
            Some(why) => Covers::Maybe { why },
            None if is_shown => Covers::Yes,
            None if self.all.elsewhere => {
                maybe("it is in another container, which may count other cards")
            }
            None if unknown == self.all.cards.len() => Covers::Yes,
            None => maybe("its mask counts cards in an order that no variable fixes"),
        }
    }
}

/// Whether runtimes count a card: not a part, nor a card that another driver has.
fn is_counted(device: &Device) -> bool {
    device.parent.is_none() && device.ordinal_in_pci_order.is_some()
}

/// Whether a UUID, or its beginning, is this device's.
fn is_named(device: &Device, selector: &Selector) -> bool {
    match selector {
        Selector::Uuid(text) => names(device, text),
        Selector::Ordinal(_) => false,
    }
}

fn names(device: &Device, text: &str) -> bool {
    device.uuid.as_ref().is_some_and(|uuid| {
        uuid.get(..text.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(text))
    })
}

/// Reached by one way or by the other.
fn either(one: Covers, other: Covers) -> Covers {
    match (one, other) {
        (Covers::Yes, _) | (_, Covers::Yes) => Covers::Yes,
        (Covers::Maybe { why }, _) | (_, Covers::Maybe { why }) => Covers::Maybe { why },
        (Covers::No, Covers::No) => Covers::No,
    }
}

/// Reached only where both let it.
fn both(one: Covers, other: Covers) -> Covers {
    match (one, other) {
        (Covers::No, _) | (_, Covers::No) => Covers::No,
        (Covers::Maybe { why }, _) | (_, Covers::Maybe { why }) => Covers::Maybe { why },
        (Covers::Yes, Covers::Yes) => Covers::Yes,
    }
}

fn maybe(why: impl Into<String>) -> Covers {
    Covers::Maybe { why: why.into() }
}
