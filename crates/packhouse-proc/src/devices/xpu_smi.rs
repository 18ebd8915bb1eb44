//! Parses what `xpu-smi -j` prints, in the forms of versions 1.0 to 2.0.
//!
//! A form that is not known is an error that says what was found: a list under another name is no
//! empty list.

use crate::devices::pci::PciAddress;
use serde_json::{Map, Value};

/// A card of `xpu-smi discovery`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XpuCard {
    /// Its number in this answer and in no other.
    pub ordinal: u64,
    /// Where it is.
    pub pci: PciAddress,
    /// For people.
    pub name: Option<String>,
    /// Made by the driver from place and kind in most versions: two cards never have the same.
    pub uuid: Option<String>,
}

/// A row of `xpu-smi ps`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XpuProcess {
    /// Which process.
    pub pid: u32,
    /// On which card of the answer of the same environment.
    pub ordinal: u64,
    /// Its memory on the card.
    pub used_bytes: Option<u64>,
}

/// Parses `discovery -j`.
pub fn cards(text: &str) -> Result<Vec<XpuCard>, String> {
    let document = document(text)?;
    list(&document, &["device_list"])?
        .iter()
        .map(|row| {
            let pci = words(row, "pci_bdf_address").ok_or("a card has no pci_bdf_address")?;
            Ok(XpuCard {
                ordinal: number(row, &["device_id"]).ok_or("a card has no device_id")?,
                pci: pci
                    .parse()
                    .map_err(|error: crate::devices::pci::PciAddressError| error.to_string())?,
                name: words(row, "device_name"),
                uuid: words(row, "uuid").filter(|uuid| uuid.bytes().any(is_digit_but_zero)),
            })
        })
        .collect()
}

/// Parses `discovery -d CARD -j`: the card's memory, where it is told.
pub fn total_bytes(text: &str) -> Result<Option<u64>, String> {
    let document = document(text)?;
    Ok(
        number(&document, &["memory_physical_size_byte"]).or_else(|| {
            let mib = words(&document, "memory_physical_size")?;
            let (number, unit) = mib.split_once(' ')?;
            let mib = (unit == "MiB").then(|| number.parse::<f64>().ok())??;
            bytes_of_mib(mib)
        }),
    )
}

/// Parses `stats -d CARD -j`: memory in use. Version 1 has MiB per card or per tile, version 2 has
/// MiB per tile under another name, and tells whose they are.
pub fn used_bytes(text: &str, card: PciAddress) -> Result<u64, String> {
    let document = document(text)?;
    if let Some(told) = words(&document, "pci_bdf")
        && told.parse() != Ok(card)
    {
        return Err(format!("it tells of {told}, and {card} was asked for"));
    }
    let tiles = if let Some(memory) = document.get("memory") {
        tiles_v2(memory)
    } else {
        tiles_v1(&document)
    };
    let tiles = tiles.ok_or_else(|| format!("no memory in use under {}", keys(&document)))?;
    tiles
        .into_iter()
        .try_fold(0u64, |sum, mib| sum.checked_add(bytes_of_mib(mib)?))
        .ok_or_else(|| "its memory in use is no number of MiB".to_owned())
}

/// Parses `ps -j`. The list has had two names, and the rows two for the pid.
pub fn processes(text: &str) -> Result<Vec<XpuProcess>, String> {
    let value: Value = parse(text)?;
    let rows = match &value {
        Value::Array(rows) => rows,
        Value::Object(document) => {
            complaint(document)?;
            list(document, &["device_util_by_proc_list", "process_list"])?
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            return Err("neither a list nor an object".to_owned());
        }
    };
    rows.iter()
        .map(|row| {
            let pid = number(row, &["process_id", "pid"])
                .and_then(|pid| u32::try_from(pid).ok())
                .ok_or_else(|| format!("a row has no process_id: {row}"))?;
            Ok(XpuProcess {
                pid,
                ordinal: number(row, &["device_id"])
                    .ok_or_else(|| format!("a row has no device_id: {row}"))?,
                used_bytes: number(row, &["mem_size"]).and_then(|kb| kb.checked_mul(BYTES_OF_KB)),
            })
        })
        .collect()
}

/// The tool divides bytes by this for its `kB`.
const BYTES_OF_KB: u64 = 1000;

fn tiles_v2(memory: &Value) -> Option<Vec<f64>> {
    let tiles = memory.get("used_mib")?.as_object()?;
    if tiles.is_empty() {
        return None;
    }
    tiles
        .values()
        .map(|tile| tile.get("current")?.as_f64())
        .collect()
}

fn tiles_v1(document: &Map<String, Value>) -> Option<Vec<f64>> {
    let of_level = |level: &Value| {
        let metric = level.as_array()?.iter().find(|metric| {
            metric.get("metrics_type").and_then(Value::as_str) == Some("XPUM_STATS_MEMORY_USED")
        })?;
        metric.get("value")?.as_f64()
    };
    if let Some(whole) = document.get("device_level").and_then(of_level) {
        return Some(vec![whole]);
    }
    let tiles = document.get("tile_level")?.as_array()?;
    if tiles.is_empty() {
        return None;
    }
    tiles
        .iter()
        .map(|tile| of_level(tile.get("data_list")?))
        .collect()
}

fn parse(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))
}

fn document(text: &str) -> Result<Map<String, Value>, String> {
    match parse(text)? {
        Value::Object(document) => {
            complaint(&document)?;
            Ok(document)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err("no object".to_owned())
        }
    }
}

/// The tool says what went wrong on its standard output, in place of an answer.
fn complaint(document: &Map<String, Value>) -> Result<(), String> {
    match document.get("error") {
        Some(Value::String(error)) => Err(format!("it says: {error}")),
        Some(error) => Err(format!("it says: {error}")),
        None => Ok(()),
    }
}

fn list<'a>(document: &'a Map<String, Value>, names: &[&str]) -> Result<&'a Vec<Value>, String> {
    names
        .iter()
        .find_map(|name| document.get(*name))
        .and_then(Value::as_array)
        .ok_or_else(|| format!("no list named {}: {}", names.join(" or "), keys(document)))
}

fn keys(document: &Map<String, Value>) -> String {
    let keys: Vec<&str> = document.keys().map(String::as_str).take(16).collect();
    format!("the names it has: {}", keys.join(", "))
}

/// Something with named fields.
trait Fields {
    fn field(&self, name: &str) -> Option<&Value>;
}

impl Fields for Value {
    fn field(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

impl Fields for Map<String, Value> {
    fn field(&self, name: &str) -> Option<&Value> {
        self.get(name)
    }
}

/// A whole number, which some versions write as text.
fn number(row: &impl Fields, names: &[&str]) -> Option<u64> {
    let value = names.iter().find_map(|name| row.field(name))?;
    value.as_u64().or_else(|| value.as_str()?.parse().ok())
}

/// A text that says something.
fn words(row: &impl Fields, name: &str) -> Option<String> {
    let text = row.field(name)?.as_str()?;
    (!text.is_empty() && text != "N/A").then(|| text.to_owned())
}

/// Whether a byte makes a UUID other than the empty one.
fn is_digit_but_zero(byte: u8) -> bool {
    byte.is_ascii_hexdigit() && byte != b'0'
}

/// Bytes of a number of MiB with a fraction. `None` where it is no size.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "bounds are looked at first, and a part of a byte is none"
)]
fn bytes_of_mib(mib: f64) -> Option<u64> {
    const MIB: f64 = 1_048_576.0;
    const MIB_MAX: f64 = 1_099_511_627_776.0;
    (0.0..=MIB_MAX).contains(&mib).then_some((mib * MIB) as u64)
}
