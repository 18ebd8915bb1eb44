//! `vectors/layouts.json` is current: the judges make what it says.

use crate::admission::REFUSED;
use crate::reference::self_test_source;
use crate::{admit, length, pack, random};
use packhouse_base::digest::Digest;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::{Admitted, Layout, judge};
use serde_json::{Value, json};
use std::collections::BTreeSet;

pub(crate) const VECTORS: &str = include_str!("../../../../vectors/layouts.json");

const ABOUT: &str = "Test vectors of docs/format/layouts.md. payloads: small tensors, in hex. \
fingerprints: what the judges make of the golden weights, per layout, type and parameters. \
groups: sample groups as byte ranges. refused: what is not admitted, and what is said.";

/// Each layout with each type and parameters that have a fingerprint worth freezing.
fn kinds() -> Vec<Admitted> {
    let mut kinds = vec![
        admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[32, 16], &[]),
        admit(Layout::Q4_0Reordered, "Q4_0", &[32, 16], &[]),
    ];
    for n_tile in [1, 4, 8, 16, 17] {
        let tile = [("n_tile", n_tile)];
        kinds.push(admit(Layout::Q4_0JointN, "Q4_0", &[32, 16], &tile));
    }
    for name in ["F32", "F16", "BF16", "Q4_0", "Q6_K"] {
        kinds.push(admit(Layout::Identity, name, &[256, 2], &[]));
    }
    for layout in [Layout::Int8TileB8, Layout::Int8TileRm] {
        for name in ["F32", "F16", "BF16", "Q8_0", "Q4_K", "Q6_K"] {
            kinds.push(admit(layout, name, &[256, 2], &[]));
        }
    }
    for ty in GgmlType::all() {
        for rows in [16, 8] {
            let dims = [ty.block_elements(), rows];
            let admitted = Layout::GgmlCpuRepack.admit(*ty, &dims, &Default::default());
            kinds.extend(admitted.into_iter().filter(|kind| judge(kind).is_ok()));
        }
    }
    kinds
}

fn small_tensors() -> Vec<(Admitted, Vec<u8>)> {
    let mut all = vec![(
        admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[32, 16], &[]),
        self_test_source(),
    )];
    for admitted in [
        admit(Layout::Q4_0Xe2DpasV2, "Q4_0", &[64, 32], &[]),
        admit(Layout::Q4_0JointN, "Q4_0", &[64, 5], &[("n_tile", 4)]),
        admit(Layout::Q4_0JointN, "Q4_0", &[32, 9], &[]),
        admit(Layout::Q4_0Reordered, "Q4_0", &[64, 3], &[]),
        admit(Layout::Identity, "Q8_0", &[32, 2], &[]),
        admit(
            Layout::Int8TileRm,
            "F32",
            &[5, 7],
            &[("kd", 8), ("nd", 4), ("kpad", 6), ("t", 3)],
        ),
        admit(Layout::Int8TileRm, "Q4_0", &[32, 2], &[]),
        admit(Layout::Int8TileB8, "BF16", &[9, 3], &[]),
    ] {
        let source = random(admitted.source_bytes(), 20);
        all.push((admitted, source));
    }
    all
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn named(admitted: &Admitted, dims: bool) -> Value {
    let mut value = json!({
        "layout": admitted.layout().id(),
        "version": admitted.layout().version(),
        "type": admitted.ty().name(),
        "parameters": admitted.parameters(),
    });
    if dims {
        value["dims"] = json!(admitted.dims());
    }
    value
}

fn payload(admitted: &Admitted, source: &[u8]) -> Value {
    let mut value = named(admitted, true);
    value["source"] = json!(hex(source));
    value["payload"] = json!(hex(&pack(admitted, source)));
    value
}

fn fingerprint(kind: &Admitted) -> Value {
    let golden = kind.golden();
    let packed = pack(&golden.admitted, &golden.source);
    // Of tiles the golden weight's parameters are its own.
    let mut value = named(&golden.admitted, false);
    value["golden_dims"] = json!(golden.admitted.dims());
    value["golden_source_sha256"] = json!(Digest::of(&golden.source).to_string());
    value["golden_payload_sha256"] = json!(Digest::of(&packed).to_string());
    value["fingerprint"] = json!(kind.fingerprint(&packed).0.to_string());
    value
}

fn groups(admitted: &Admitted) -> Value {
    let geometry = admitted.geometry();
    let group = |index: u64| {
        let source = admitted.group_source(index);
        let pieces = admitted.group_payload(index);
        let pieces: Vec<_> = pieces.map(|piece| [piece.start, piece.end]).collect();
        json!({"source": [source.start, source.end], "payload": pieces})
    };
    let mut value = named(admitted, true);
    value["payload_bytes"] = json!(admitted.payload_bytes());
    value["unit_rows"] = json!(geometry.unit_rows);
    value["row_bytes"] = json!(geometry.row_bytes);
    value["row_count"] = json!(geometry.row_count);
    let all: Vec<_> = (0..admitted.group_count()).map(group).collect();
    value["groups"] = json!(all);
    value
}

fn vectors() -> Value {
    let small = small_tensors();
    let refused = REFUSED.iter().map(|(layout, name, dims, pairs, said)| {
        let pairs: Vec<_> = pairs
            .iter()
            .map(|(name, value)| json!([name, value]))
            .collect();
        json!({
            "layout": layout.id(), "type": name, "dims": dims, "parameters": pairs, "said": said,
        })
    });
    json!({
        "about": ABOUT,
        "payloads": small.iter().map(|(admitted, source)| payload(admitted, source))
            .collect::<Vec<_>>(),
        "fingerprints": kinds().iter().map(fingerprint).collect::<Vec<_>>(),
        "groups": small.iter().skip(1).map(|(admitted, _)| groups(admitted)).collect::<Vec<_>>(),
        "refused": refused.collect::<Vec<_>>(),
    })
}

#[test]
fn the_checked_in_vectors_are_current() {
    let current = serde_json::to_string_pretty(&vectors()).expect("because it is a Value") + "\n";
    if current != VECTORS {
        let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/layouts.json");
        std::fs::write(path, &current).expect("because target/ is writable");
        panic!("vectors/layouts.json is not current; what it should be is in {path}");
    }
}

#[test]
fn no_two_kinds_share_a_fingerprint() {
    let kinds = kinds();
    let fingerprints: BTreeSet<_> = kinds
        .iter()
        .map(|kind| {
            let golden = kind.golden();
            kind.fingerprint(&pack(&golden.admitted, &golden.source))
        })
        .collect();
    assert_eq!(fingerprints.len(), kinds.len());
}

#[test]
fn golden_weights_hit_every_edge_of_scales_and_quants() {
    for kind in kinds().iter().filter(|kind| kind.ty().name() == "Q4_0") {
        if kind.layout() == Layout::Identity {
            continue;
        }
        let golden = kind.golden();
        let blocks = || golden.source.chunks_exact(18);
        for edge in packhouse_layout::golden::F16_EDGES {
            let has = blocks().any(|block| block[..2] == edge.to_le_bytes());
            assert!(has, "{edge:#06x} in {kind:?}");
        }
        for edge in packhouse_layout::golden::BYTE_EDGES {
            let has = blocks().any(|block| block.iter().all(|byte| *byte == edge));
            assert!(has, "{edge:#04x} in {kind:?}");
        }
        // Each nibble at each place, so that a wrong place or sign shows.
        for place in 2..18 {
            let bytes: BTreeSet<_> = blocks().map(|block| block[place]).collect();
            assert!(bytes.len() > 16, "byte {place} of {kind:?}");
        }
        let rows = golden.admitted.geometry();
        let is_ragged = rows.row_count % rows.unit_rows != 0;
        let wants_ragged = kind
            .parameters()
            .get("n_tile")
            .is_some_and(|tile| *tile > 1);
        assert_eq!(is_ragged, wants_ragged, "{kind:?}");
        assert_eq!(length(golden.admitted.source_bytes()), golden.source.len());
    }
}
