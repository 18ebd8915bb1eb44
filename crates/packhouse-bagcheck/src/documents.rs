//! Lane, preregistration and packet: `docs/format/lab.md`.
//!
//! TOML is turned into the values of a record, so that its fields are read by the same rules.

pub(crate) mod forms;
mod packet;
mod prereg;

pub(crate) use packet::{Packet, objects, packet};
pub(crate) use prereg::{Gate, Prereg, Timing, prereg};

use crate::json::{Json, Map};
use crate::report::Report;
use crate::shape::Record;

/// Parses TOML into the values of a record.
fn parse_toml(report: &mut Report, path: &str, bytes: &[u8]) -> Option<Json> {
    let parsed = match std::str::from_utf8(bytes) {
        _ if bytes.len() > DOCUMENT_BYTES_MAX => Err(format!("{} bytes", bytes.len())),
        Err(_) => Err("not UTF-8".to_owned()),
        Ok(text) => match text.parse::<toml::Table>() {
            Ok(table) => convert(&toml::Value::Table(table)),
            Err(error) => Err(format!("no TOML: {}", error.message())),
        },
    };
    match parsed {
        Ok(value) => Some(value),
        Err(words) => {
            report.find("record.not-canonical", path, words);
            None
        }
    }
}

/// Longest document.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

fn convert(value: &toml::Value) -> Result<Json, String> {
    Ok(match value {
        toml::Value::String(text) => Json::Text(text.clone()),
        toml::Value::Integer(integer) => Json::Integer(i128::from(*integer)),
        toml::Value::Boolean(flag) => Json::Bool(*flag),
        toml::Value::Float(number) => return Err(format!("{number} is no integer")),
        toml::Value::Datetime(time) => return Err(format!("{time} is no text")),
        toml::Value::Array(items) => {
            Json::List(items.iter().map(convert).collect::<Result<_, _>>()?)
        }
        toml::Value::Table(table) => {
            let fields = table
                .iter()
                .map(|(name, value)| Ok((name.clone(), convert(value)?)));
            Json::Object(fields.collect::<Result<Map, String>>()?)
        }
    })
}

const LANE: [&str; 10] = [
    "schema",
    "id",
    "title",
    "model",
    "quantisation",
    "runtime",
    "hardware",
    "promise",
    "teacher",
    "record_key",
];

/// Reads a lane and returns its id.
pub(crate) fn lane(report: &mut Report, path: &str, bytes: &[u8]) -> Option<String> {
    let value = parse_toml(report, path, bytes)?;
    let mut record = Record::new(report, path);
    let map = record.fields(&value, "", &LANE, &[])?;
    record.schema(map, "packhouse/lane/1");
    for name in LANE {
        record.formed(map, name, "a text", forms::is_text);
    }
    record.formed(map, "id", "an id", forms::is_id)
}
