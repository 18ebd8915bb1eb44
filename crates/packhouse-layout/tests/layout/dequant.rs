//! Values of every type: `vectors/dequant.json` is current, blocks do not depend on each other, and
//! no bytes are in the way. That the vectors are ggml's values is for the tests on the engine.

use crate::ty;
use packhouse_base::digest::Digest;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::dequant::{NoValues, dequantise, has_values};
use packhouse_layout::golden::{BYTE_EDGES, F16_EDGES};
use serde_json::{Value, json};

const VECTORS: &str = include_str!("../../../../vectors/dequant.json");
const PAGE: &str = include_str!("../../../../docs/format/values.md");

const ABOUT: &str = "Test vectors of docs/format/values.md. source: blocks in hex. values: theirs, \
each as the 8 hex digits of an f32's bits. many: blocks of SplitMix64's bytes of that seed, and \
the SHA-256 of their values as little-endian f32. A NaN counts as 7fc00000 everywhere.";

/// Values of `many`.
const MANY: u64 = 1 << 19;

fn typed() -> impl Iterator<Item = GgmlType> {
    let all = GgmlType::all().iter().copied();
    all.filter(|ty| has_values(*ty))
}

fn length(number: u64) -> usize {
    usize::try_from(number).expect("because tests are small")
}

/// Bits of the values of whole blocks; `poison` is what lay there before.
fn bits_over(ty: GgmlType, source: &[u8], poison: u32) -> Vec<u32> {
    let count = source.len() as u64 / ty.block_bytes() * ty.block_elements();
    let mut values = vec![f32::from_bits(poison); length(count)];
    dequantise(ty, source, &mut values).expect("because the type has values");
    let bits = |value: &f32| match value.is_nan() {
        true => 0x7fc0_0000,
        false => value.to_bits(),
    };
    values.iter().map(bits).collect()
}

fn bits(ty: GgmlType, source: &[u8]) -> Vec<u32> {
    bits_over(ty, source, 0x3f80_0000)
}

fn random(ty: GgmlType, block_count: u64, seed: u64) -> Vec<u8> {
    crate::random(block_count * ty.block_bytes(), seed)
}

/// Enough blocks for 32 values, most of them numbers, so that the vector shows something.
fn shown(ty: GgmlType) -> Vec<u8> {
    let block_count = 32u64.div_ceil(ty.block_elements());
    let sources = (0..).map(|seed| random(ty, block_count, seed));
    let mut shown = sources.filter(|source| {
        let bits = bits(ty, source);
        let finite = bits
            .iter()
            .filter(|bits| f32::from_bits(**bits).is_finite());
        finite.count() * 2 > bits.len()
    });
    shown.next().expect("because most numbers are finite")
}

fn vector(ty: GgmlType) -> Value {
    let source = shown(ty);
    let hex: String = source.iter().map(|byte| format!("{byte:02x}")).collect();
    let values = bits(ty, &source);
    let values: Vec<_> = values.iter().map(|bits| format!("{bits:08x}")).collect();
    let (block_count, seed) = (MANY / ty.block_elements(), u64::from(ty.id()));
    let many = bits(ty, &random(ty, block_count, seed));
    let many: Vec<u8> = many.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    json!({
        "type": ty.name(),
        "source": hex,
        "values": values.join(" "),
        "many": {
            "seed": seed,
            "blocks": block_count,
            "values_sha256": Digest::of(&many).to_string(),
        },
    })
}

#[test]
fn the_checked_in_values_are_current() {
    let types: Vec<_> = typed().map(vector).collect();
    let vectors = json!({ "about": ABOUT, "types": types });
    let current = serde_json::to_string_pretty(&vectors).expect("because it is a Value") + "\n";
    if current != VECTORS {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/dequant.json");
        std::fs::write(path, &current).expect("because target/ is writable");
        panic!("vectors/dequant.json is not current; what it should be is in {path}");
    }
}

#[test]
fn integers_and_q8_1_have_no_values() {
    for ty in GgmlType::all() {
        let has_none = ["I8", "I16", "I32", "I64", "Q8_1"].contains(&ty.name());
        assert_eq!(has_values(*ty), !has_none, "{}", ty.name());
        if has_none {
            let error = dequantise(*ty, &[], &mut []);
            assert_eq!(error, Err(NoValues { name: ty.name() }));
            let said = error.map_err(|error| error.to_string());
            assert_eq!(said, Err(format!("type {} has no float values", ty.name())));
        }
    }
}

/// Any bytes: no panic, every value written, and a block alone has the values it has among others.
#[test]
fn any_bytes_have_values_and_blocks_do_not_depend_on_each_other() {
    for ty in typed() {
        let (block, elements) = (length(ty.block_bytes()), length(ty.block_elements()));
        let mut source: Vec<u8> = (0..=255u8).flat_map(|byte| vec![byte; block]).collect();
        source.extend(random(ty, 64, 5));
        for (place, edge) in F16_EDGES.iter().cycle().take(block / 2 * 16).enumerate() {
            // Each place of the block is an f16 in some type.
            let mut edged = random(ty, 1, place as u64);
            edged[place / 16 * 2..][..2].copy_from_slice(&edge.to_le_bytes());
            source.extend(edged);
        }
        let whole = bits(ty, &source);
        assert_eq!(bits_over(ty, &source, 0), whole, "{}", ty.name());
        for (index, block) in source.chunks_exact(block).enumerate() {
            let alone = bits(ty, block);
            assert_eq!(
                alone,
                whole[index * elements..][..elements],
                "{} {index}",
                ty.name()
            );
        }
    }
}

#[test]
fn no_blocks_have_no_values() {
    for ty in typed() {
        assert_eq!(dequantise(ty, &[], &mut []), Ok(()), "{}", ty.name());
    }
}

/// Blocks whose values can be said without any vector: a scale of zero leaves zeros, a scale of one
/// the codes.
#[test]
fn blocks_of_one_byte_have_the_values_that_the_page_says() {
    for ty in typed() {
        let values = bits(ty, &vec![0; length(ty.block_bytes())]);
        assert!(
            values.iter().all(|bits| bits & 0x7fff_ffff == 0),
            "{}: a scale of zero leaves nothing",
            ty.name()
        );
    }
    for edge in BYTE_EDGES {
        let value = f32::from(edge.cast_signed());
        let block = [&[0x00, 0x3c], [edge; 32].as_slice()].concat();
        assert_eq!(bits(ty("Q8_0"), &block), [value.to_bits(); 32]);
        let (low, high) = (f32::from(edge & 15) - 8.0, f32::from(edge >> 4) - 8.0);
        let block = [&[0x00, 0x3c], [edge; 16].as_slice()].concat();
        let expected = [[low.to_bits(); 16], [high.to_bits(); 16]].concat();
        assert_eq!(bits(ty("Q4_0"), &block), expected);
    }
}

/// Types that copy bits copy those of a NaN too.
#[test]
fn bits_that_are_copied_stay_as_they_are() {
    for bits in [
        0x7f80_0001u32,
        0xffc0_0000,
        0x0000_0001,
        0x8000_0000,
        0x7fff_0000,
    ] {
        let mut value = [0.0];
        dequantise(ty("F32"), &bits.to_le_bytes(), &mut value).expect("because F32 has values");
        assert_eq!(value[0].to_bits(), bits);
        let upper = &bits.to_le_bytes()[2..];
        dequantise(ty("BF16"), upper, &mut value).expect("because BF16 has values");
        assert_eq!(value[0].to_bits(), bits & 0xffff_0000);
    }
}

#[test]
fn doubles_are_rounded_to_the_even_neighbour() {
    let cases = [
        (1.0 + 2f64.powi(-24), 1.0),
        (1.0 + 3.0 * 2f64.powi(-24), 1.0 + 2f32.powi(-22)),
        (1.0 + 2f64.powi(-24) + 2f64.powi(-50), 1.0 + 2f32.powi(-23)),
        (2f64.powi(-150), 0.0),
        (-(2f64.powi(-149)), -f32::from_bits(1)),
        (f64::from(f32::MAX) * 1.000_000_1, f32::INFINITY),
        (f64::NEG_INFINITY, f32::NEG_INFINITY),
    ];
    for (double, single) in cases {
        let found = bits(ty("F64"), &f64::to_le_bytes(double));
        assert_eq!(found, [f32::to_bits(single)], "{double:e}");
    }
}

#[test]
#[should_panic(expected = "source bytes")]
fn a_piece_of_a_block_is_a_bug_of_the_caller() {
    let _ = dequantise(ty("Q4_0"), &[0; 19], &mut [0.0; 32]);
}

#[test]
#[should_panic(expected = "target values")]
fn a_target_of_another_length_is_a_bug_of_the_caller() {
    let _ = dequantise(ty("Q4_0"), &[0; 36], &mut [0.0; 63]);
}

#[test]
fn the_page_has_a_row_for_every_type() {
    for ty in GgmlType::all() {
        let (elements, bytes) = (ty.block_elements(), ty.block_bytes());
        let row = format!("| {} | {elements} | {bytes} |", ty.name());
        assert_eq!(PAGE.contains(&row), has_values(*ty), "{row}");
    }
}
