//! Messages to bytes: canonical JSON, one spelling for each.

use super::{
    Answer, CaseOrder, Greeting, InputFile, InputRecord, Introduction, Offer, Reply, Request,
    TensorRecord, Wanted, Witness,
};
use packhouse_base::canonical::render;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

impl Request {
    /// Writes the message.
    pub fn render(&self) -> Vec<u8> {
        render(&match self {
            Self::Hello(greeting) => hello(greeting),
            Self::Case(order) => case(order),
            Self::Bye => json!({ "type": "bye" }),
        })
    }
}

impl Reply {
    /// Writes the message.
    pub fn render(&self) -> Vec<u8> {
        render(&match self {
            Self::Hello(introduction) => introduced(introduction),
            Self::Answer(answer) => answered(answer),
            Self::Declined(declined) => json!({
                "type": "declined",
                "index": declined.index,
                "reason": declined.reason,
            }),
        })
    }
}

fn hello(greeting: &Greeting) -> Value {
    json!({
        "type": "hello",
        "protocol": greeting.protocol,
        "challenge": greeting.challenge.to_string(),
        "inputs": greeting.inputs,
        "outputs": greeting.outputs,
    })
}

fn introduced(introduction: &Introduction) -> Value {
    let mut value = json!({
        "type": "hello",
        "protocol": introduction.protocol,
        "challenge": introduction.challenge.to_string(),
        "name": introduction.name,
        "version": introduction.version,
        "kernels": introduction.kernels.iter().map(offer).collect::<Vec<_>>(),
        "devices": introduction.devices,
        "says_capture": introduction.says_capture,
    });
    if !introduction.denies.is_empty() {
        value["denies"] = json!(introduction.denies);
    }
    for (field, is_so) in [
        ("times", introduction.times),
        ("poisons", introduction.poisons),
    ] {
        if is_so {
            value[field] = json!(true);
        }
    }
    value
}

fn offer(offer: &Offer) -> Value {
    json!({ "fixture": offer.fixture, "arms": offer.arms, "widths": offer.widths })
}

fn case(order: &CaseOrder) -> Value {
    let mut value = json!({
        "type": "case",
        "index": order.index,
        "fixture": order.fixture,
        "layout": order.layout,
        "device": order.device,
        "arm": order.arm,
        "width": order.width,
        "repeat": order.repeat,
        "parameters": order.parameters,
        "inputs": object(&order.inputs, input_file),
        "boundaries": order.boundaries.iter().map(wanted).collect::<Vec<_>>(),
    });
    if let Some(poison) = order.poison {
        value["poison"] = json!(poison);
    }
    if let Some(cycles) = order.cycles {
        value["cycles"] = json!(cycles);
    }
    value
}

fn input_file(input: &InputFile) -> Value {
    json!({
        "file": input.file,
        "dtype": input.dtype.id(),
        "shape": input.shape,
        "bytes": input.bytes,
        "sha256": input.sha256.to_string(),
    })
}

fn wanted(wanted: &Wanted) -> Value {
    json!({
        "name": wanted.name,
        "storage": wanted.storage,
        "file": wanted.file,
        "dtype": wanted.form.dtype.id(),
        "shape": wanted.form.shape,
        "stride": wanted.form.stride,
        "storage_offset": wanted.form.storage_offset,
        "bytes": wanted.form.bytes,
    })
}

fn answered(answer: &Answer) -> Value {
    let mut value = json!({
        "type": "answer",
        "index": answer.index,
        "boundaries": answer.boundaries.iter().map(tensor_record).collect::<Vec<_>>(),
        "inputs": object(&answer.inputs, input_record),
        "witnesses": answer.witnesses.iter().map(witness).collect::<Vec<_>>(),
        "capture": answer.capture.id(),
        "warnings": answer.warnings,
    });
    if let Some(timed) = answer.timed {
        value["timed"] = json!({ "cycles": timed.cycles, "elapsed_ns": timed.elapsed_ns });
    }
    value
}

fn tensor_record(record: &TensorRecord) -> Value {
    json!({
        "name": record.name,
        "dtype": record.dtype.id(),
        "shape": record.shape,
        "stride": record.stride,
        "storage_offset": record.storage_offset,
        "bytes": record.bytes,
        "device": record.device,
        "start": record.start,
        "end": record.end,
        "file": record.file,
        "sha256": record.sha256.to_string(),
    })
}

fn input_record(record: &InputRecord) -> Value {
    json!({
        "start": record.start,
        "end": record.end,
        "sha256": record.sha256.to_string(),
    })
}

fn witness(witness: &Witness) -> Value {
    json!({ "path": witness.path, "counters": witness.counters })
}

fn object<T>(map: &BTreeMap<String, T>, render: impl Fn(&T) -> Value) -> Value {
    let fields = map.iter().map(|(name, item)| (name.clone(), render(item)));
    Value::Object(fields.collect::<Map<String, Value>>())
}
