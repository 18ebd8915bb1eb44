//! Messages of the component protocol: `docs/format/component.md`.

use crate::documents::forms::{is_device, is_device_name, is_name};
use crate::json::{Json, Map};
use crate::shape::{Record, short};
use std::collections::{BTreeMap, BTreeSet};

/// A message that is one of the protocol's.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// From the controller: its challenge.
    Greeting(String),
    /// From the program.
    Hello(Hello),
    /// From the controller.
    Case(Case),
    /// From the program.
    Answer(Answer),
    /// From the program: index and reason.
    Declined(u64, String),
    /// From the controller.
    Bye,
}

/// What a program says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Hello {
    /// The challenge that it got.
    pub(crate) challenge: String,
    /// Whether it knows about capture.
    pub(crate) says_capture: bool,
    /// What it can't do.
    pub(crate) denies: Vec<String>,
    /// Whether it takes `cycles`.
    pub(crate) times: bool,
    /// Whether it takes `poison`.
    pub(crate) poisons: bool,
    /// Where it can run.
    pub(crate) devices: Vec<String>,
    /// What it can run.
    pub(crate) kernels: Kernels,
}

/// Fixture to its arms and widths.
pub(crate) type Kernels = BTreeMap<String, (Vec<String>, Vec<u64>)>;

/// What was asked: its key, and all fields as they were sent.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Fixture, arm, width, repeat, and whether cycles were asked.
    pub(crate) key: Key,
    /// Every field.
    pub(crate) fields: Map,
    /// Its number.
    pub(crate) index: u64,
    /// Value that storages are filled with.
    pub(crate) poison: Option<u64>,
    /// Runs in one timed case.
    pub(crate) cycles: Option<u64>,
    /// Where it runs.
    pub(crate) device: String,
    /// What to write.
    pub(crate) boundaries: Vec<Form>,
    /// Role to what is read.
    pub(crate) inputs: BTreeMap<String, Input>,
}

/// What makes two cases of one program the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    /// Fixture.
    pub(crate) fixture: String,
    /// Arm.
    pub(crate) arm: String,
    /// Width.
    pub(crate) width: u64,
    /// Repeat.
    pub(crate) repeat: u64,
    /// Whether it is timed.
    pub(crate) is_timed: bool,
}

/// An input of a case.
#[derive(Clone, Debug)]
pub(crate) struct Input {
    /// Its file.
    pub(crate) file: String,
    /// Its length.
    pub(crate) bytes: u64,
    /// Its digest.
    pub(crate) sha256: String,
}

/// The form of a boundary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Form {
    /// Its name.
    pub(crate) name: String,
    /// The storage that it lies in; empty in an answer, which doesn't say it.
    pub(crate) storage: String,
    /// Its file.
    pub(crate) file: String,
    /// Its element type.
    pub(crate) dtype: String,
    /// Its shape.
    pub(crate) shape: Vec<u64>,
    /// Its stride in elements.
    pub(crate) stride: Vec<u64>,
    /// Its offset in its storage, in elements.
    pub(crate) offset: u64,
    /// Its length.
    pub(crate) bytes: u64,
}

/// What a program answered.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The case's number.
    pub(crate) index: u64,
    /// Its boundaries: form, device, start, end, digest.
    pub(crate) boundaries: Vec<Written>,
    /// Role to start, end and digest.
    pub(crate) inputs: BTreeMap<String, (u64, u64, String)>,
    /// Paths with their counters.
    pub(crate) witnesses: Vec<(String, BTreeMap<String, u64>)>,
    /// `idle`, `capturing` or `unknown`.
    pub(crate) capture: String,
    /// Warnings.
    pub(crate) warnings: Vec<String>,
    /// Cycles and nanoseconds.
    pub(crate) timed: Option<(u64, u64)>,
}

/// One boundary of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Written {
    /// Its form, as the program says.
    pub(crate) form: Form,
    /// Where it lies.
    pub(crate) device: String,
    /// Address of its first byte.
    pub(crate) start: u64,
    /// Address behind its last byte.
    pub(crate) end: u64,
    /// Digest of its bytes.
    pub(crate) sha256: String,
}

const PROTOCOL: &str = "packhouse/component/1";
/// Most kernels of a program; devices of it, and arms and widths of a kernel.
const KERNELS_MAX: usize = 256;
const OFFERS_MAX: usize = 64;
/// Most bytes of a message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;
const DTYPES: [&str; 6] = ["u8", "i8", "i32", "f16", "bf16", "f32"];

/// Returns the bytes of an element.
pub(crate) fn element_bytes(dtype: &str) -> u64 {
    match dtype {
        "i32" | "f32" => 4,
        "f16" | "bf16" => 2,
        _ => 1,
    }
}

/// Reads a message that the controller or the program sent.
pub(crate) fn message(record: &mut Record<'_>, value: &Json, is_ours: bool) -> Option<Message> {
    let Json::Object(map) = value else {
        record.find("record.type", format!("the message is {}", value.kind()));
        return None;
    };
    let kind = record.text(map, "type")?;
    match (kind.as_str(), is_ours) {
        ("hello", true) => {
            let fields = ["type", "protocol", "challenge", "inputs", "outputs"];
            record.fields(value, "hello", &fields, &[])?;
            record.word(map, "protocol", &[PROTOCOL])?;
            record.word(map, "inputs", &["inputs"])?;
            record.word(map, "outputs", &["outputs"])?;
            Some(Message::Greeting(record.digest(map, "challenge")?))
        }
        ("bye", true) => {
            record.fields(value, "bye", &["type"], &[])?;
            Some(Message::Bye)
        }
        ("case", true) => case(record, value).map(Message::Case),
        ("hello", false) => hello(record, value).map(Message::Hello),
        ("answer", false) => answer(record, value).map(Message::Answer),
        ("declined", false) => {
            record.fields(value, "declined", &["type", "index", "reason"], &[])?;
            let index = record.integer(map, "index")?;
            Some(Message::Declined(index, record.text(map, "reason")?))
        }
        _ => {
            record.find("record.type", format!("no message of its side: {kind:?}"));
            None
        }
    }
}

fn hello(record: &mut Record<'_>, value: &Json) -> Option<Hello> {
    let fields = [
        "type",
        "protocol",
        "challenge",
        "name",
        "version",
        "kernels",
        "devices",
        "says_capture",
    ];
    let map = record.fields(value, "hello", &fields, &["denies", "times", "poisons"])?;
    record.word(map, "protocol", &[PROTOCOL])?;
    for name in ["name", "version"] {
        let is = |text: &str| (1..=128).contains(&text.chars().count());
        record.formed(map, name, "1 to 128 characters", is)?;
    }
    let kernels = kernels(record, map)?;
    let devices = record.texts(map, "devices")?;
    record.distinct("devices", &devices, is_device)?;
    at_most(record, "devices", devices.len(), OFFERS_MAX)?;
    let mut flag = |name: &str| match map.get(name) {
        None => Some(false),
        Some(Json::Bool(true)) => Some(true),
        Some(_) => {
            record.find("record.type", format!("`{name}` is there and not true"));
            None
        }
    };
    let (times, poisons) = (flag("times")?, flag("poisons")?);
    let denies = match map.contains_key("denies") {
        true => record.names(map, "denies", is_name)?,
        false => Vec::new(),
    };
    Some(Hello {
        challenge: record.digest(map, "challenge")?,
        says_capture: record.boolean(map, "says_capture")?,
        denies,
        times,
        poisons,
        devices,
        kernels,
    })
}

/// What a program can run.
fn kernels(record: &mut Record<'_>, map: &Map) -> Option<Kernels> {
    let list = record.list(map, "kernels")?;
    at_most(record, "kernels", list.len(), KERNELS_MAX)?;
    let mut kernels = BTreeMap::new();
    for kernel in list {
        let kernel = record.fields(kernel, "kernels", &["fixture", "arms", "widths"], &[])?;
        let fixture = record.formed(kernel, "fixture", "a name", is_name)?;
        let arms = record.texts(kernel, "arms")?;
        record.distinct("arms", &arms, is_name)?;
        at_most(record, "arms", arms.len(), OFFERS_MAX)?;
        let widths = record.integers(kernel, "widths")?;
        at_most(record, "widths", widths.len(), OFFERS_MAX)?;
        let distinct: BTreeSet<&u64> = widths.iter().collect();
        if distinct.len() != widths.len() || distinct.contains(&0) {
            record.find("record.type", "`widths` has 0, or a width twice");
            return None;
        }
        if kernels.insert(fixture, (arms, widths)).is_some() {
            record.find("record.type", "`kernels` has a fixture twice");
            return None;
        }
    }
    Some(kernels)
}

/// Refuses a list that is longer than a message may have it.
fn at_most(record: &mut Record<'_>, name: &str, count: usize, most: usize) -> Option<()> {
    if count <= most {
        return Some(());
    }
    let words = format!("`{name}` has {count} entries, at most {most}");
    record.find("record.type", words);
    None
}

/// Refuses names that are of no form: of parameters, roles, counters.
fn named(record: &mut Record<'_>, name: &str, map: &Map) -> Option<()> {
    let Some(other) = map.keys().find(|name| !is_name(name)) else {
        return Some(());
    };
    let words = format!("`{name}` has {}, which is no name", short(other));
    record.find("record.type", words);
    None
}

const CASE: [&str; 11] = [
    "type",
    "index",
    "fixture",
    "layout",
    "device",
    "arm",
    "width",
    "repeat",
    "parameters",
    "inputs",
    "boundaries",
];

fn case(record: &mut Record<'_>, value: &Json) -> Option<Case> {
    let map = record.fields(value, "case", &CASE, &["poison", "cycles"])?;
    let mut maybe = |name: &str, least: u64, most: u64| match map.contains_key(name) {
        true => record.within(map, name, least, most).map(Some),
        false => Some(None),
    };
    let poison = maybe("poison", 0, 255)?;
    let cycles = maybe("cycles", 1, u64::MAX)?;
    if !matches!(map.get("layout"), Some(Json::Null)) {
        record.formed(map, "layout", "a name or null", is_name)?;
    }
    let parameters = record.object(map, "parameters")?;
    named(record, "parameters", parameters)?;
    for name in parameters.keys() {
        record.integer(parameters, name)?;
    }
    let key = Key {
        fixture: record.formed(map, "fixture", "a name", is_name)?,
        arm: record.formed(map, "arm", "a name", is_name)?,
        width: record.integer(map, "width")?,
        repeat: record.integer(map, "repeat")?,
        is_timed: cycles.is_some(),
    };
    let mut inputs = BTreeMap::new();
    let by_role = record.object(map, "inputs")?;
    named(record, "inputs", by_role)?;
    for (role, input) in by_role {
        let fields = ["file", "dtype", "shape", "bytes", "sha256"];
        let input = record.fields(input, "inputs", &fields, &[])?;
        record.word(input, "dtype", &DTYPES)?;
        record.integers(input, "shape")?;
        let input = Input {
            file: record.formed(input, "file", "a name", is_name)?,
            bytes: record.integer(input, "bytes")?,
            sha256: record.digest(input, "sha256")?,
        };
        inputs.insert(role.clone(), input);
    }
    let mut boundaries = Vec::new();
    for item in record.list(map, "boundaries")? {
        let own = record.fields(item, "boundaries", &CASE_BOUNDARY, &[])?;
        let storage = record.formed(own, "storage", "a name", is_name)?;
        boundaries.push(form(record, own, storage)?);
    }
    Some(Case {
        key,
        fields: map.clone(),
        index: record.integer(map, "index")?,
        poison,
        cycles,
        device: record.formed(map, "device", "a device", is_device_name)?,
        boundaries,
        inputs,
    })
}

const CASE_BOUNDARY: [&str; 8] = [
    "name",
    "storage",
    "file",
    "dtype",
    "shape",
    "stride",
    "storage_offset",
    "bytes",
];

fn form(record: &mut Record<'_>, map: &Map, storage: String) -> Option<Form> {
    Some(Form {
        name: record.formed(map, "name", "a name", is_name)?,
        storage,
        file: record.formed(map, "file", "a name", is_name)?,
        dtype: record.word(map, "dtype", &DTYPES)?,
        shape: record.integers(map, "shape")?,
        stride: record.integers(map, "stride")?,
        offset: record.integer(map, "storage_offset")?,
        bytes: record.integer(map, "bytes")?,
    })
}

const ANSWER: [&str; 7] = [
    "type",
    "index",
    "boundaries",
    "inputs",
    "witnesses",
    "capture",
    "warnings",
];
const ANSWER_BOUNDARY: [&str; 11] = [
    "name",
    "dtype",
    "shape",
    "stride",
    "storage_offset",
    "bytes",
    "file",
    "device",
    "start",
    "end",
    "sha256",
];

fn answer(record: &mut Record<'_>, value: &Json) -> Option<Answer> {
    let map = record.fields(value, "answer", &ANSWER, &["timed"])?;
    let mut boundaries = Vec::new();
    for item in record.list(map, "boundaries")? {
        let own = record.fields(item, "boundaries", &ANSWER_BOUNDARY, &[])?;
        boundaries.push(Written {
            form: form(record, own, String::new())?,
            device: record.formed(own, "device", "a device", is_device_name)?,
            start: record.integer(own, "start")?,
            end: record.integer(own, "end")?,
            sha256: record.digest(own, "sha256")?,
        });
    }
    let mut inputs = BTreeMap::new();
    let by_role = record.object(map, "inputs")?;
    named(record, "inputs", by_role)?;
    for (role, input) in by_role {
        let input = record.fields(input, "inputs", &["start", "end", "sha256"], &[])?;
        let start = record.integer(input, "start")?;
        let end = record.integer(input, "end")?;
        inputs.insert(role.clone(), (start, end, record.digest(input, "sha256")?));
    }
    let mut witnesses = Vec::new();
    for item in record.list(map, "witnesses")? {
        let own = record.fields(item, "witnesses", &["path", "counters"], &[])?;
        let path = record.formed(own, "path", "a name", is_name)?;
        let counters = record.object(own, "counters")?;
        named(record, "counters", counters)?;
        let mut counts = BTreeMap::new();
        for name in counters.keys() {
            counts.insert(name.clone(), record.integer(counters, name)?);
        }
        witnesses.push((path, counts));
    }
    let timed = match map.get("timed") {
        Some(value) => {
            let own = record.fields(value, "timed", &["cycles", "elapsed_ns"], &[])?;
            let cycles = record.integer(own, "cycles")?;
            Some((cycles, record.integer(own, "elapsed_ns")?))
        }
        None => None,
    };
    Some(Answer {
        index: record.integer(map, "index")?,
        boundaries,
        inputs,
        witnesses,
        capture: record.word(map, "capture", &["idle", "capturing", "unknown"])?,
        warnings: record.texts(map, "warnings")?,
        timed,
    })
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            fixture,
            arm,
            width,
            repeat,
            is_timed,
        } = self;
        write!(f, "{fixture}, arm {arm}, width {width}, repeat {repeat}")?;
        f.write_str(if *is_timed { ", timed" } else { "" })
    }
}
