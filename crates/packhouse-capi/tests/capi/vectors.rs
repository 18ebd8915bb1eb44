//! The layouts' vectors, through C: every payload, every fingerprint, every refusal.

use packhouse::*;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::Layout;
use packhouse_loader::set::Code;
use serde_json::Value;
use std::ffi::{CStr, CString};
use std::ptr;

const VECTORS: &str = include_str!("../../../../vectors/layouts.json");

fn list(name: &str) -> Vec<Value> {
    let vectors: Value = serde_json::from_str(VECTORS).expect("because it is JSON");
    let list = vectors[name].as_array().expect("because it is a list");
    assert!(!list.is_empty(), "{name}");
    list.clone()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().expect("because it is text").as_bytes();
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16);
    let pairs = digits.chunks_exact(2);
    pairs
        .map(|pair| byte(pair).expect("because it is hex"))
        .collect()
}

fn layout(vector: &Value) -> Layout {
    let id = vector["layout"].as_str().expect("because it is text");
    Layout::from_id(id).expect("because the vectors are of current layouts")
}

/// A contract and what its pointers lead to.
struct Asked {
    contract: packhouse_contract,
    _layout: CString,
    _names: Vec<CString>,
    _parameters: Vec<packhouse_parameter>,
}

fn asked(vector: &Value, dims: &str) -> Asked {
    let text = |value: &str| CString::new(value).expect("because vectors have no NUL");
    let layout = text(vector["layout"].as_str().expect("because it is text"));
    let pairs: Vec<(String, u64)> = match &vector["parameters"] {
        Value::Object(map) => map
            .iter()
            .map(|(n, v)| (n.clone(), v.as_u64().unwrap_or(0)))
            .collect(),
        // Of what is refused, parameters are pairs, so that one may be given that does not exist.
        Value::Array(list) => list.iter().map(pair).collect(),
        other => panic!("no parameters: {other}"),
    };
    let names: Vec<CString> = pairs.iter().map(|(name, _)| text(name)).collect();
    let values = pairs.iter().map(|(_, value)| *value);
    let parameters: Vec<packhouse_parameter> = names
        .iter()
        .zip(values)
        .map(|(name, value)| packhouse_parameter {
            name: name.as_ptr(),
            value,
        })
        .collect();
    let given = vector[dims].as_array().expect("because it is a list");
    let mut dims = [0; PACKHOUSE_DIMS_MAX];
    for (target, dim) in dims.iter_mut().zip(given) {
        *target = dim.as_u64().expect("because it is an integer");
    }
    let ty = vector["type"].as_str().expect("because it is text");
    let version = vector["version"].as_u64();
    let known = packhouse_layout::Layout::from_id(layout.to_str().expect("because it is ASCII"));
    let contract = packhouse_contract {
        struct_size: u32::try_from(size_of::<packhouse_contract>()).expect("because it is small"),
        type_id: GgmlType::from_name(ty)
            .expect("because the type is current")
            .id(),
        layout: layout.as_ptr(),
        layout_version: version.or(known.map(|known| known.version())).unwrap_or(1),
        dims,
        dim_count: u32::try_from(given.len()).expect("because there are few"),
        reserved: 0,
        parameters: parameters.as_ptr(),
        parameter_count: parameters.len() as u64,
        source_sha256: ptr::null(),
        fingerprint: ptr::null(),
    };
    Asked {
        contract,
        _layout: layout,
        _names: names,
        _parameters: parameters,
    }
}

fn pair(value: &Value) -> (String, u64) {
    let name = value[0].as_str().expect("because a pair has a name");
    (name.to_owned(), value[1].as_u64().unwrap_or(0))
}

#[test]
fn packing_and_unpacking_through_c_make_the_vectors() {
    for vector in list("payloads") {
        let mut asked = asked(&vector, "dims");
        let mut fingerprint = [0; PACKHOUSE_DIGEST_BYTES];
        let (none, target) = (ptr::null_mut(), fingerprint.as_mut_ptr());
        // SAFETY: everything lives as long as the call.
        let status = unsafe { packhouse_fingerprint(&raw const asked.contract, target, none) };
        assert_eq!(status, OK);
        asked.contract.fingerprint = fingerprint.as_ptr();
        let contract = &raw const asked.contract;
        let (source, payload) = (bytes(&vector["source"]), bytes(&vector["payload"]));
        let (mut source_bytes, mut payload_bytes) = (0, 0);
        // SAFETY: everything lives as long as the call.
        let status = unsafe {
            packhouse_lengths(
                contract,
                &raw mut source_bytes,
                &raw mut payload_bytes,
                none,
            )
        };
        assert_eq!(status, OK);
        assert_eq!(
            (source_bytes, payload_bytes),
            (source.len() as u64, payload.len() as u64)
        );
        for poison in [0x00, 0xff] {
            let (mut target, mut back) = (vec![poison; payload.len()], vec![poison; source.len()]);
            // SAFETY: everything lives as long as the calls, and the lengths are the vectors' own.
            let statuses = unsafe {
                let (from, to) = (source.as_ptr().cast(), target.as_mut_ptr().cast());
                let packed =
                    packhouse_pack(contract, from, source_bytes, to, payload_bytes, 2, none);
                let (from, to) = (target.as_ptr().cast(), back.as_mut_ptr().cast());
                (
                    packed,
                    packhouse_unpack(contract, from, payload_bytes, to, source_bytes, none),
                )
            };
            // What has no inverse leaves the place for the source as it was.
            let (unpacked, source) = match layout(&vector).is_invertible() {
                true => (OK, source.clone()),
                false => (Code::NotInvertible.number(), vec![poison; source.len()]),
            };
            assert_eq!(statuses, (OK, unpacked));
            assert_eq!((target, back), (payload.clone(), source), "{vector}");
        }
    }
}

/// A contract's source is hashed: what is of other weights is not packed, and not handed out.
#[test]
fn other_weights_than_the_contracts_are_neither_packed_nor_unpacked() {
    let vectors = list("payloads");
    let vector = vectors
        .iter()
        .find(|vector| vector["layout"] == "q4_0-xe2-dpas-v2");
    let vector = vector.expect("because the layout has vectors");
    let mut asked = asked(vector, "dims");
    let (source, payload) = (bytes(&vector["source"]), bytes(&vector["payload"]));
    let (source_bytes, payload_bytes) = (source.len() as u64, payload.len() as u64);
    let digest = packhouse_base::digest::Digest::of(&source);
    asked.contract.source_sha256 = digest.as_bytes().as_ptr();
    let contract = &raw const asked.contract;
    let none = ptr::null_mut();
    let pack = |source: &[u8], target: &mut [u8]| {
        let (from, to) = (source.as_ptr().cast(), target.as_mut_ptr().cast());
        // SAFETY: everything lives as long as the call, and the lengths are the buffers'.
        unsafe { packhouse_pack(contract, from, source_bytes, to, payload_bytes, 1, none) }
    };
    let unpack = |payload: &[u8], target: &mut [u8]| {
        let (from, to) = (payload.as_ptr().cast(), target.as_mut_ptr().cast());
        // SAFETY: as above.
        unsafe { packhouse_unpack(contract, from, payload_bytes, to, source_bytes, none) }
    };
    let (mut packed, mut back) = (vec![7; payload.len()], vec![7; source.len()]);
    let mut other = [source.clone(), payload.clone()];
    for bytes in &mut other {
        bytes[3] ^= 1;
    }
    let [other_source, other_payload] = other;
    assert_eq!(pack(&other_source, &mut packed), 135);
    assert!(packed.iter().all(|byte| *byte == 7), "nothing is written");
    assert_eq!(unpack(&other_payload, &mut back), 135);
    assert!(back.iter().all(|byte| *byte == 0), "nothing is handed out");
    assert_eq!(
        (pack(&source, &mut packed), unpack(&payload, &mut back)),
        (OK, OK)
    );
    assert_eq!((packed, back), (payload, source));
}

#[test]
fn fingerprints_through_c_are_the_vectors() {
    for vector in list("fingerprints") {
        let asked = asked(&vector, "golden_dims");
        let mut made = [0; PACKHOUSE_DIGEST_BYTES];
        let target = made.as_mut_ptr();
        // SAFETY: everything lives as long as the call.
        let status =
            unsafe { packhouse_fingerprint(&raw const asked.contract, target, ptr::null_mut()) };
        assert_eq!(status, OK);
        assert_eq!(made.to_vec(), bytes(&vector["fingerprint"]), "{vector}");
    }
}

#[test]
fn what_layouts_refuse_is_refused_through_c_in_their_words() {
    for vector in list("refused") {
        let asked = asked(&vector, "dims");
        // SAFETY: all zeros are a value of it.
        let mut refusal: packhouse_refusal = unsafe { std::mem::zeroed() };
        refusal.struct_size = u32::try_from(size_of::<packhouse_refusal>()).expect("because");
        let none = ptr::null_mut();
        // SAFETY: everything lives as long as the call.
        let status =
            unsafe { packhouse_lengths(&raw const asked.contract, none, none, &raw mut refusal) };
        // SAFETY: the library wrote a final NUL.
        let told = unsafe { CStr::from_ptr(refusal.text.as_ptr()) }.to_string_lossy();
        let said = vector["said"].as_str().expect("because it is text");
        assert_eq!(status, 161, "{vector}: {told}");
        assert!(told.ends_with(said), "{told:?} in the end says {said:?}");
    }
}
