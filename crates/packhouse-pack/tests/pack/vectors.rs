//! Every level reproduces `vectors/layouts.json`, and the reference's places on its real shapes.

use crate::{admit, length, levels};
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::{IsaLevel, Packers};
use serde_json::Value;

const VECTORS: &str = include_str!("../../../../vectors/layouts.json");

fn list(name: &str) -> Vec<Value> {
    let vectors: Value = serde_json::from_str(VECTORS).expect("because it is JSON");
    let list = vectors[name].as_array().expect("because it is a list");
    assert!(!list.is_empty(), "{name}");
    list.clone()
}

fn admitted(vector: &Value, dims: &str) -> Admitted {
    let text = |name: &str| vector[name].as_str().expect("because it is text");
    let layout = Layout::from_id(text("layout")).expect("because the layout is current");
    let dims = vector[dims].as_array().expect("because it is a list");
    let dims: Vec<_> = dims.iter().filter_map(Value::as_u64).collect();
    let parameters = vector["parameters"].as_object();
    let parameters: Vec<_> = parameters
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.as_str(), value.as_u64().unwrap_or(0)))
        .collect();
    admit(layout, text("type"), &dims, &parameters)
}

fn bytes(hex: &Value) -> Vec<u8> {
    let digits = hex.as_str().expect("because it is text").as_bytes();
    let pairs = digits.chunks_exact(2);
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap_or(""), 16);
    pairs
        .map(|pair| byte(pair).expect("because it is hex"))
        .collect()
}

#[test]
fn every_level_makes_the_payloads_of_the_vectors() {
    for vector in list("payloads") {
        let admitted = admitted(&vector, "dims");
        let (source, payload) = (bytes(&vector["source"]), bytes(&vector["payload"]));
        for packers in levels() {
            let kernel = packers.kernel(&admitted).expect("because it has a judge");
            let mut target = vec![0; payload.len()];
            kernel.pack(&source, &mut target);
            assert_eq!(target, payload, "{admitted:?}");
            let inverse = kernel.inverse();
            assert_eq!(inverse.is_ok(), admitted.layout().is_invertible());
            if let Ok(inverse) = inverse {
                let mut back = vec![0; source.len()];
                inverse.unpack(&payload, &mut back);
                assert_eq!(back, source, "{admitted:?}");
            }
        }
    }
}

#[test]
fn every_level_has_the_fingerprints_of_the_vectors() {
    for vector in list("fingerprints") {
        let admitted = admitted(&vector, "golden_dims");
        for packers in levels() {
            for _ in 0..2 {
                let fingerprint = packers.fingerprint(&admitted);
                let fingerprint = fingerprint.expect("because it has a judge");
                assert_eq!(vector["fingerprint"], fingerprint.0.to_string());
            }
        }
    }
}

/// (columns, rows, row, column, byte, whether the high half).
const NIBBLES: [(u64, u64, u64, u64, usize, bool); 10] = [
    (5120, 17408, 0, 0, 0, false),
    (5120, 17408, 0, 1, 0, true),
    (5120, 17408, 0, 8, 64, false),
    (5120, 17408, 1, 0, 4, false),
    (5120, 17408, 15, 31, 255, true),
    (5120, 17408, 16, 0, 256, false),
    (5120, 17408, 0, 32, 278_528, false),
    (5120, 17408, 1234, 777, 6_704_456, true),
    (17408, 5120, 0, 32, 81_920, false),
    (17408, 5120, 1234, 777, 1_985_864, true),
];

/// (columns, rows, row, block, byte).
const SCALES: [(u64, u64, u64, u64, usize); 5] = [
    (5120, 17408, 0, 0, 44_564_480),
    (5120, 17408, 1, 0, 44_564_482),
    (5120, 17408, 0, 1, 44_599_296),
    (5120, 17408, 17407, 159, 50_135_038),
    (17408, 5120, 0, 1, 44_574_720),
];

/// All source nibbles are 8, which stands for 0 and is stored as 0; only the nibble or scale at
/// hand is not, so the one byte that is not 0 is where it went.
#[test]
fn every_fast_level_puts_single_values_where_the_reference_says() {
    for packers in levels() {
        if packers.level() == IsaLevel::Scalar {
            continue;
        }
        for dims in [[5120, 17408], [17408, 5120]] {
            places(&packers, dims);
        }
    }
}

fn places(packers: &Packers, dims: [u64; 2]) {
    let admitted = admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &dims, &[]);
    let kernel = packers.kernel(&admitted).expect("because it has a kernel");
    let block_count = dims[0] / 32;
    let block_at = |row: u64, block: u64| length((row * block_count + block) * 18);
    let mut source = vec![0x88; length(admitted.source_bytes())];
    for block in source.chunks_exact_mut(18) {
        block[..2].fill(0);
    }
    let mut expected = Vec::new();
    for (columns, rows, row, column, byte, is_high) in NIBBLES {
        if [columns, rows] != dims {
            continue;
        }
        let (block, in_block) = (column / 32, column % 32);
        let quant = &mut source[block_at(row, block) + 2 + length(in_block % 16)];
        let source_shift = 4 * (in_block / 16);
        *quant ^= 5 << source_shift;
        // Two of the vectors share a byte.
        let stored = if is_high { 5 << 4 } else { 5 };
        match expected.iter_mut().find(|(place, _)| *place == byte) {
            Some((_, value)) => *value |= stored,
            None => expected.push((byte, stored)),
        }
    }
    for (columns, rows, row, block, byte) in SCALES {
        if [columns, rows] == dims {
            // A signalling NaN, which a conversion would quiet.
            source[block_at(row, block)..][..2].copy_from_slice(&[0x01, 0x7d]);
            expected.extend([(byte, 0x01), (byte + 1, 0x7d)]);
        }
    }
    let mut payload = vec![0xee; source.len()];
    kernel.pack(&source, &mut payload);
    let found = payload.iter().enumerate().filter(|(_, byte)| **byte != 0);
    let found: Vec<_> = found.map(|(place, byte)| (place, *byte)).collect();
    expected.sort_unstable();
    assert_eq!(found, expected, "{dims:?} {}", packers.level().name());
}
