//! The published values of the Xe2 M-row verifier's own 187-tensor set, computed by our code, and
//! its JSON compared with CPython's.

use packhouse_base::digest::Digest;
use packhouse_prepare::foreign::xe2_m6_v2::{
    IndexRow, PayloadRow, TensorIdentity, canon, payload_table_sha256, pretty, runtime_index,
    set_key, slot_of, tensor_key,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Stdio};

const MODEL: &str = "20c9c45d4d25b492b82117960b5f715ef9daff75e4e14c4fb878fa3793fb379a";
const SET: &str = "7fb8a0192d10819de692735c398e01037c89023fac3f9ac54e17bb6633c321c3";
const PAYLOAD_BYTES: u64 = 50_135_040;

fn digest(text: &str) -> Digest {
    Digest::parse(text).expect("because the test spells it right")
}

fn identity(name: &str, shape: [u64; 2]) -> TensorIdentity {
    TensorIdentity {
        target_model_sha256: digest(MODEL),
        tensor_name: name.into(),
        tensor_shape: shape,
    }
}

/// All tensors of the set, in slot order.
fn all() -> Vec<TensorIdentity> {
    let wide = [5120, 17408];
    let gate_up = (0..65).flat_map(|layer| {
        ["gate", "up"].map(|family| identity(&format!("blk.{layer}.ffn_{family}.weight"), wide))
    });
    let down =
        (8..65).map(|layer| identity(&format!("blk.{layer}.ffn_down.weight"), [17408, 5120]));
    gate_up.chain(down).collect()
}

#[test]
fn the_187_set_has_its_published_keys() {
    let keys: Vec<Digest> = all().iter().map(tensor_key).collect();
    let first = [
        "d0e6b93028b5c683db77749b9d0229fac944de51474ffcdf0b5e4057bd99ebf3",
        "18f8cdc8622a25e2d8f56d66a69e8dea54ea0361ccb2f7e60c7779a65946317f",
    ];
    assert_eq!(keys[..2], first.map(digest));
    assert_eq!(set_key(digest(MODEL), &keys), digest(SET));
}

#[test]
fn the_order_of_tensor_keys_takes_part_in_a_set_key() {
    let mut by_name = all();
    by_name.sort_by(|a, b| a.tensor_name.cmp(&b.tensor_name));
    let keys: Vec<Digest> = by_name.iter().map(tensor_key).collect();
    assert_ne!(set_key(digest(MODEL), &keys), digest(SET));
}

#[test]
fn the_slots_of_the_set_are_0_to_186_in_order() {
    let slots: Option<Vec<u64>> = all().iter().map(|t| slot_of(&t.tensor_name)).collect();
    assert_eq!(slots, Some((0..187).collect()));
}

#[test]
fn the_index_of_the_set_has_its_published_length() {
    let table: Vec<PayloadRow> = all()
        .iter()
        .map(|tensor| PayloadRow {
            key: tensor_key(tensor),
            size_bytes: PAYLOAD_BYTES,
            sha256: Digest::of(tensor.tensor_name.as_bytes()),
        })
        .collect();
    let rows: Vec<IndexRow> = (0..)
        .zip(all())
        .zip(&table)
        .map(|((slot, tensor), payload)| IndexRow {
            slot,
            name: tensor.tensor_name,
            shape: tensor.tensor_shape,
            key: payload.key,
            payload_bytes: payload.size_bytes,
            payload_sha256: payload.sha256,
        })
        .collect();
    let payloads = payload_table_sha256(&table);
    let index = runtime_index(digest(SET), digest(MODEL), payloads, &rows);
    assert_eq!(index.len(), 39_901);
    let text = String::from_utf8(index).expect("because names are ASCII");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "qwen27-xe2-m6-runtime-index-v1");
    assert_eq!(lines[1], format!("set_key\t{SET}"));
    assert_eq!(lines[4], "layout\tq4_0-xe2-dpas-v2\t2");
    assert_eq!(lines[5], "tensor_count\t187");
    let fields: Vec<&str> = lines[7].split('\t').collect();
    assert_eq!(fields.len(), 10);
    assert_eq!(fields[..3], ["tensor", "0", "blk.0.ffn_gate.weight"]);
    assert_eq!(fields[3..6], ["5120", "17408", "GGML_TYPE_Q4_0"]);
    assert_eq!(fields[6..8], ["2", "50135040"]);
    assert!(fields[9].starts_with("tensors/d0e6b93028b5"));
}

/// What CPython makes of the same documents: per line compact, then the indented form as a text.
fn python(documents: &[Value]) -> Option<Vec<[String; 2]>> {
    let script = "import json,sys\n\
        for line in sys.stdin:\n\
        \x20v=json.loads(line)\n\
        \x20a=json.dumps(v,sort_keys=True,separators=(',',':'))\n\
        \x20b=json.dumps(v,sort_keys=True,indent=2)\n\
        \x20print(json.dumps([a,b]))\n";
    let mut child = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    let mut stdin = child.stdin.take().expect("because it is piped");
    let lines: String = documents.iter().map(|value| format!("{value}\n")).collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = child.wait_with_output().expect("because it was started");
    writer
        .join()
        .expect("because writing does not panic")
        .expect("because python reads all");
    assert!(output.status.success(), "python3 refused a document");
    let text = String::from_utf8(output.stdout).expect("because its output is ASCII");
    let parse = |line| serde_json::from_str(line).expect("because python prints two texts");
    Some(text.lines().map(parse).collect())
}

fn assert_as_python(documents: &[Value]) {
    let Some(expected) = python(documents) else {
        println!("SKIP: no python3 to compare JSON with");
        return;
    };
    assert_eq!(expected.len(), documents.len());
    for (document, [compact, indented]) in documents.iter().zip(expected) {
        assert_eq!(String::from_utf8(canon(document)), Ok(compact));
        assert_eq!(String::from_utf8(pretty(document)), Ok(indented + "\n"));
    }
}

#[test]
fn every_character_class_is_escaped_as_cpython_escapes_it() {
    let each: Vec<char> = (0..0x250u32)
        .chain([
            0x7ff, 0x800, 0x2028, 0xd7ff, 0xe000, 0xffff, 0x10000, 0x10ffff,
        ])
        .filter_map(char::from_u32)
        .collect();
    let documents: Vec<Value> = each
        .iter()
        .map(|c| json!({ c.to_string(): format!("{c}x{c}") }))
        .collect();
    assert_as_python(&documents);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>()
            .prop_filter("JSON has finite numbers", |f| f.is_finite())
            .prop_map(Value::from),
        (0u32..40, -30i32..30).prop_map(|(m, e)| Value::from(f64::from(m) * 10f64.powi(e))),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn any_document_is_spelled_as_cpython_spells_it(
        documents in prop::collection::vec(any_json(), 1..60)
    ) {
        assert_as_python(&documents);
    }
}
