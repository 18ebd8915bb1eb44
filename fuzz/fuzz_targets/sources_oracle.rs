//! What kernels, tools and libraries print, judged a second time: who uses which card, and which
//! cores are in a list.
//!
//! An input's first byte says what the rest is:
//! - `C`, `D`, `U` and `P`: `xpu-smi`'s cards, one card, its counters and its processes;
//! - `N`, the document of what NVML answered; `X`, the report of `nvidia-smi`;
//! - `F`, texts of fdinfo with a zero byte between them; `L`, a list of cores;
//! - `M`, masks;
//! - `p`, `n`, `x` and `f`: a place of two bytes and a byte that stands there in what was recorded
//!   of a busy card; a zero byte cuts it off there.

use crate::sources_masks;
use packhouse_proc::cores::{CORE_MAX, CpuSet};
use packhouse_proc::devices::fdinfo::drm_clients;
use packhouse_proc::devices::nvidia::{NvidiaCard, cards_of_nvml, cards_of_report};
use packhouse_proc::devices::{Observation, PciAddress, xpu_smi};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A judge that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Holds that no damaged text is read.
    Damage,
}

type Verdict = Result<(), String>;

/// Gives an input to a parser. Errors, in words, when it and the judge disagree.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Verdict {
    let Some((kind, rest)) = input.split_first() else {
        return Ok(());
    };
    match kind {
        b'M' => return sources_masks::compare(rest),
        b'p' | b'n' | b'x' | b'f' => return damaged(*kind, rest, mutant),
        _ => {}
    }
    // Readers of tools and of the kernel replace what is no UTF-8.
    let text = String::from_utf8_lossy(rest);
    match kind {
        b'C' => xpu_cards(&text),
        b'D' => xpu_card(&text),
        b'U' => xpu_counters(&text),
        b'P' => xpu_processes(&text),
        b'N' => nvidia(cards_of_nvml(&text), nvml_users(&text)),
        b'X' => match report_users(&text) {
            Some(expected) => nvidia(cards_of_report(&text), expected),
            None => cards_of_report(&text).map(drop).or(Ok(())),
        },
        b'F' => fdinfo(&text),
        b'L' => cores(&text),
        _ => Ok(()),
    }
}

/// The users of each card. The outer `None`: no cards are told; the inner: its users are unknown.
type Users = Option<Vec<Option<BTreeSet<u64>>>>;

fn nvidia(cards: Result<Vec<NvidiaCard>, String>, expected: Users) -> Verdict {
    let told: Users = cards.as_ref().ok().map(|cards| {
        let users = |card: &NvidiaCard| {
            let list = card.processes.known()?;
            Some(list.iter().map(|user| u64::from(user.pid)).collect())
        };
        cards.iter().map(users).collect()
    });
    match told == expected {
        true => Ok(()),
        false => Err(format!("{cards:?}, expected {expected:?}")),
    }
}

/// What was recorded of a card that is in use.
const PS: &str = include_str!("../../crates/packhouse-proc/tests/data/intel/ps-busy.json");
const NVML: &str = include_str!("../../crates/packhouse-proc/tests/data/h200/nvml-held.json");
const REPORT: &str = include_str!("../../crates/packhouse-proc/tests/data/h200/nvidia-smi.xml");
const XE: &str = include_str!("../../crates/packhouse-proc/tests/data/intel/fdinfo-xe.txt");

/// One byte is another, or all from there on is gone: all users are still there, or are unknown.
fn damaged(kind: u8, change: &[u8], mutant: Option<Mutant>) -> Verdict {
    let whole = match kind {
        b'p' => PS,
        b'n' => NVML,
        b'x' => REPORT,
        _ => XE,
    };
    let whole = whole.trim_end();
    let [high, low, byte, ..] = *change else {
        return Ok(());
    };
    let at = usize::from(u16::from_be_bytes([high, low])) % whole.len();
    let mut bytes = whole.as_bytes().to_vec();
    match byte {
        0 => bytes.truncate(at),
        byte => bytes[at] = byte,
    }
    let text = String::from_utf8_lossy(&bytes);
    let count = |cards: Vec<NvidiaCard>| {
        let users = |card: &NvidiaCard| card.processes.known().map(Vec::len);
        cards.iter().map(users).sum::<Option<usize>>()
    };
    let users = match kind {
        b'p' => xpu_smi::processes(&text).ok().map(|rows| rows.len()),
        b'n' => cards_of_nvml(&text).ok().and_then(count),
        b'x' => cards_of_report(&text).ok().and_then(count),
        // A client that names no driver or no card can't be told from another file.
        _ => None,
    };
    let expected = if kind == b'p' { 3 } else { 1 };
    let is_told = match mutant {
        Some(Mutant::Damage) => false,
        None => users.is_some_and(|users| users >= expected),
    };
    match users.is_none() || is_told {
        true => Ok(()),
        false => Err(format!("{users:?} users in {text}")),
    }
}

/// A number, which some versions write as text.
fn number(value: Option<&Value>) -> Option<u64> {
    match value? {
        Value::Number(number) => number.as_u64(),
        Value::String(digits) => digits.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn document(text: &str) -> Option<Value> {
    let value: Value = serde_json::from_str(text).ok()?;
    (value.is_object() && value.get("error").is_none()).then_some(value)
}

fn xpu_cards(text: &str) -> Verdict {
    let expected = document(text).and_then(|document| {
        let rows = document.get("device_list")?.as_array()?;
        let row = |row: &Value| {
            let place: PciAddress = row.get("pci_bdf_address")?.as_str()?.parse().ok()?;
            Some((number(row.get("device_id"))?, place))
        };
        rows.iter().map(row).collect::<Option<Vec<_>>>()
    });
    let cards = xpu_smi::cards(text);
    let told = cards.as_ref().ok();
    let told = told.map(|cards| cards.iter().map(|card| (card.ordinal, card.pci)).collect());
    let has_empty = cards.iter().flatten().any(|card| {
        let is_nil = |uuid: &String| !uuid.contains(|c: char| c.is_ascii_hexdigit() && c != '0');
        card.uuid.as_ref().is_some_and(is_nil)
    });
    match told == expected && !has_empty {
        true => Ok(()),
        false => Err(format!("{cards:?}, expected {expected:?}")),
    }
}

fn xpu_card(text: &str) -> Verdict {
    let told = xpu_smi::total_bytes(text);
    let document = document(text);
    let exact = document
        .as_ref()
        .map(|value| number(value.get("memory_physical_size_byte")));
    match (&told, exact) {
        (Err(_), None) | (Ok(_), Some(None)) => Ok(()),
        (Ok(told), Some(exact)) if *told == exact => Ok(()),
        (told, exact) => Err(format!("{told:?}, expected {exact:?}")),
    }
}

fn xpu_counters(text: &str) -> Verdict {
    let place: PciAddress = "0000:51:00.0".parse().map_err(|_| "no place")?;
    let told = xpu_smi::used_bytes(text, place);
    let expected = document(text).and_then(|document| {
        let named = document.get("pci_bdf").and_then(Value::as_str);
        let named = named.filter(|text| !text.is_empty() && *text != "N/A");
        if named.is_some_and(|named| named.parse() != Ok(place)) {
            return None;
        }
        let level = |rows: &Value| {
            let rows = rows.as_array()?;
            let is_used = |row: &&Value| row["metrics_type"] == "XPUM_STATS_MEMORY_USED";
            rows.iter().find(is_used)?["value"].as_f64()
        };
        let tiles: Vec<f64> = if let Some(memory) = document.get("memory") {
            let tiles = memory["used_mib"].as_object()?.values();
            tiles
                .map(|tile| tile["current"].as_f64())
                .collect::<Option<_>>()?
        } else if let Some(whole) = level(&document["device_level"]) {
            vec![whole]
        } else {
            let tiles = document["tile_level"].as_array()?.iter();
            tiles
                .map(|tile| level(&tile["data_list"]))
                .collect::<Option<_>>()?
        };
        let is_size = |mib: &f64| *mib >= 0.0 && *mib <= f64::from(1u32 << 20) * f64::from(1 << 20);
        (!tiles.is_empty() && tiles.iter().all(is_size)).then_some(tiles)
    });
    // Each tile loses its part of a byte.
    let is_same = match (&told, &expected) {
        (Err(_), None) => true,
        (Ok(bytes), Some(tiles)) => {
            let sum: f64 = tiles.iter().map(|mib| (mib * 1_048_576.0).floor()).sum();
            (*bytes as f64 - sum).abs() <= sum / 1e12
        }
        // A sum beyond 64 bits.
        (Err(_), Some(tiles)) => tiles.iter().sum::<f64>() >= 17_592_186_044_415.0,
        (Ok(_), None) => false,
    };
    match is_same {
        true => Ok(()),
        false => Err(format!("{told:?}, expected MiB {expected:?}")),
    }
}

fn xpu_processes(text: &str) -> Verdict {
    let value: Option<Value> = serde_json::from_str(text).ok();
    let rows = value.as_ref().and_then(|value| match value {
        Value::Array(rows) => Some(rows),
        Value::Object(fields) if fields.contains_key("error") => None,
        Value::Object(fields) => {
            let newer = fields.get("device_util_by_proc_list");
            newer.or(fields.get("process_list"))?.as_array()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    });
    let row = |row: &Value| {
        let pid = row.get("process_id").or(row.get("pid"));
        let pid = u32::try_from(number(pid)?).ok()?;
        let bytes = number(row.get("mem_size")).and_then(|kb| kb.checked_mul(1000));
        Some((pid, number(row.get("device_id"))?, bytes))
    };
    let expected: Option<Vec<_>> = rows.and_then(|rows| rows.iter().map(row).collect());
    let told = xpu_smi::processes(text);
    let rows = told.as_ref().ok().map(|rows| {
        let rows = rows.iter();
        rows.map(|row| (row.pid, row.ordinal, row.used_bytes))
            .collect()
    });
    match rows == expected {
        true => Ok(()),
        false => Err(format!("{told:?}, expected {expected:?}")),
    }
}

/// The users of each card by NVML's document.
fn nvml_users(text: &str) -> Users {
    let document: Value = serde_json::from_str(text).ok()?;
    let good = |answer: &Value| answer["rc"].as_i64() == Some(0);
    let count = &document["count"];
    if document["init"].as_i64() != Some(0) || !good(count) {
        return None;
    }
    let cards = document["devices"].as_array()?;
    (count["value"].as_u64() == Some(cards.len() as u64)).then_some(())?;
    let mut all = Vec::new();
    for card in cards {
        let place = &card["pci"];
        let named = place["busId"]
            .as_str()
            .and_then(|id| id.parse::<PciAddress>().ok());
        (good(place) && named.is_some()).then_some(())?;
        let parts = card["parts"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        for device in std::iter::once(card).chain(parts) {
            let uuid = &device["uuid"];
            (good(device) && good(uuid) && uuid["value"].is_string()).then_some(())?;
            let mut pids = Some(BTreeSet::new());
            for kind in ["Compute", "Graphics"] {
                let answer = &device[format!("nvmlDeviceGet{kind}RunningProcesses_v3")];
                let list = answer["list"].as_array().filter(|_| good(answer));
                let own = list.and_then(|list| {
                    let pid = |row: &Value| row["pid"].as_u64().filter(|pid| *pid < 1 << 32);
                    list.iter().map(pid).collect::<Option<Vec<u64>>>()
                });
                pids = pids.zip(own).map(|(mut pids, own)| {
                    pids.extend(own);
                    pids
                });
            }
            all.push(pids);
        }
    }
    Some(all)
}

/// An element of the second reader of XML.
#[derive(Default)]
struct Node<'t> {
    name: &'t str,
    text: String,
    inner: Vec<Node<'t>>,
}

impl<'t> Node<'t> {
    fn first(&self, name: &str) -> Option<&Node<'t>> {
        self.inner.iter().find(|node| node.name == name)
    }
}

/// The users of each card by a report. The outer `None`: the text is not as plain as what the tool
/// prints, and the judge says nothing.
fn report_users(text: &str) -> Option<Users> {
    let plain = |name: &str| {
        let is_letter = |c: char| c.is_ascii_alphanumeric() || "_-.:".contains(c);
        !name.is_empty() && name.chars().all(is_letter)
    };
    let mut open = vec![Node::default()];
    let (mut is_broken, mut pieces) = (false, text.split('<'));
    let before = pieces.next()?;
    (!before.contains('>')).then_some(())?;
    for piece in pieces {
        let Some((tag, text)) = piece.split_once('>') else {
            // Cut off within a tag.
            return Some(None);
        };
        (!text.contains('>')).then_some(())?;
        if let Some(name) = tag.strip_prefix('/') {
            plain(name).then_some(())?;
            let closed = open.pop()?;
            is_broken |= closed.name != name;
            open.last_mut()?.inner.push(closed);
        } else if !tag.starts_with(['?', '!']) {
            let (tag, is_empty) = match tag.strip_suffix('/') {
                Some(tag) => (tag, true),
                None => (tag, false),
            };
            (!tag.contains('/') && !tag.starts_with(' ')).then_some(())?;
            let name = tag.split(' ').next()?;
            plain(name).then_some(())?;
            open.push(Node {
                name,
                ..Node::default()
            });
            (open.len() <= 30).then_some(())?;
            if is_empty {
                let node = open.pop()?;
                open.last_mut()?.inner.push(node);
            }
        }
        open.last_mut()?.text.push_str(text.trim());
    }
    let [root] = open.as_slice() else {
        return Some(None);
    };
    match root.inner.as_slice() {
        [log] if !is_broken => Some(log_users(log)),
        _ => Some(None),
    }
}

fn log_users(log: &Node<'_>) -> Users {
    let count: usize = log.first("attached_gpus")?.text.parse().ok()?;
    let cards: Vec<&Node<'_>> = log.inner.iter().filter(|node| node.name == "gpu").collect();
    (log.name == "nvidia_smi_log" && cards.len() == count).then_some(())?;
    let users = |card: &&Node<'_>| {
        let place = &card.first("pci")?.first("pci_bus_id")?.text;
        place.parse::<PciAddress>().ok()?;
        card.first("uuid")?;
        let list = card.first("processes");
        let list = list.filter(|list| ["", "None"].contains(&list.text.as_str()));
        Some(list.and_then(|list| {
            let pid = |row: &Node<'_>| Some(u64::from(row.first("pid")?.text.parse::<u32>().ok()?));
            list.inner.iter().map(pid).collect()
        }))
    };
    cards.iter().map(users).collect()
}

/// Clients and their memory on the card.
fn fdinfo(text: &str) -> Verdict {
    let texts: Vec<&str> = text.split('\0').collect();
    let clients = drm_clients(texts.iter().copied());
    let mut expected = Vec::new();
    let mut seen = BTreeSet::new();
    for text in texts {
        let mut told: BTreeMap<&str, &str> = BTreeMap::new();
        for line in text.lines() {
            if let Some((key, value)) = line.split_once(':') {
                told.insert(key, value.trim());
            }
        }
        let Some(driver) = told.get("drm-driver") else {
            continue;
        };
        let card: Option<PciAddress> = told.get("drm-pdev").and_then(|card| card.parse().ok());
        let id: Option<u64> = told.get("drm-client-id").and_then(|id| id.parse().ok());
        if id.is_none_or(|id| seen.insert((*driver, card, id))) {
            expected.push((card, id, memory(&told)));
        }
    }
    let told = clients.iter().map(|client| {
        let memory = match &client.memory_bytes {
            Observation::Known(bytes) => Some(Some(*bytes)),
            Observation::Unknown { .. } => Some(None),
            Observation::Absent => None,
        };
        (client.pdev, client.client_id, memory)
    });
    match told.eq(expected.iter().copied()) {
        true => Ok(()),
        false => Err(format!("{clients:?}, expected {expected:?}")),
    }
}

/// Memory on the card: `None` where none is told, `Some(None)` where a number is not understood.
fn memory(told: &BTreeMap<&str, &str>) -> Option<Option<u64>> {
    let mut regions: BTreeSet<&str> = BTreeSet::new();
    for key in told.keys() {
        let mut words = key.splitn(3, '-').skip(1);
        let (kind, region) = (words.next(), words.next());
        let is_kind = matches!(kind, Some("resident" | "memory" | "total"));
        let is_vram = |region: &&str| {
            let name = region.trim_end_matches(|c: char| c.is_ascii_digit());
            ["vram", "local", "stolen-local"].contains(&name) && key.starts_with("drm-")
        };
        regions.extend(region.filter(|region| is_kind && is_vram(region)));
    }
    if regions.is_empty() {
        return None;
    }
    let mut sum = 0u64;
    for region in regions {
        let kinds = ["resident", "memory", "total"];
        let mut values = kinds
            .iter()
            .filter_map(|kind| told.get(&*format!("drm-{kind}-{region}")));
        let value = values.next()?;
        let (digits, unit) = value.split_once(' ').unwrap_or((value, ""));
        let unit = match unit.trim() {
            "" => 1,
            "KiB" => 1u64 << 10,
            "MiB" => 1 << 20,
            "GiB" => 1 << 30,
            _ => return Some(None),
        };
        match digits
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(unit))
        {
            Some(bytes) => sum = sum.saturating_add(bytes),
            None => return Some(None),
        }
    }
    Some(Some(sum))
}

/// The cores of a list, one mark each.
fn cores(text: &str) -> Verdict {
    let parsed = CpuSet::parse(text);
    let expected = marks(text);
    let told = parsed.as_ref().ok().map(|set| {
        (0..=CORE_MAX)
            .map(|core| set.contains(core))
            .collect::<Vec<bool>>()
    });
    if told != expected {
        return Err(format!("{text:?} is {parsed:?}"));
    }
    let Ok(set) = parsed else {
        return Ok(());
    };
    let shown = set.to_string();
    let is_same = CpuSet::parse(&shown).as_ref() == Ok(&set)
        && CpuSet::parse_kernel_list(&format!("{shown}\n")).as_ref() == Ok(&set)
        && shown.len() <= 64 << 10;
    match is_same {
        true => Ok(()),
        false => Err(format!("{shown} is another set")),
    }
}

fn marks(text: &str) -> Option<Vec<bool>> {
    let mut marks = vec![false; CORE_MAX as usize + 1];
    for part in text.split(',') {
        let ends: Vec<&str> = part.split('-').collect();
        let core = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|c| c.is_ascii_digit());
            // Beyond four digits only zeros may stand in front.
            let digits = digits.trim_start_matches('0');
            let is_short = is_number && digits.len() <= 4;
            is_short.then(|| {
                digits
                    .bytes()
                    .fold(0, |n, c| 10 * n + usize::from(c - b'0'))
            })
        };
        let (first, last) = match ends.as_slice() {
            [one] => (core(one)?, core(one)?),
            [first, last] => (core(first)?, core(last)?),
            _ => return None,
        };
        if last < first {
            return None;
        }
        marks.get_mut(first..=last)?.fill(true);
    }
    Some(marks)
}
