//! What a proof says of payloads: of each layout the true one, each edited, and another packer's.

use packhouse_base::digest::{Digest, Fingerprint, ObjectDigest, TensorDigest};
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::{Admitted, Layout};
use packhouse_pack::Packers;
use packhouse_prepare::proof::{NoInverse, Proof, Wrong, prove};
use packhouse_store::record::{PackRecord, SampleGeometry};
use std::collections::BTreeMap;

/// A layout applied to a small tensor; the joint one has rows that pad its last tile.
fn admitted(layout: Layout) -> Admitted {
    let rows = match layout {
        Layout::Q4_0JointN => 44,
        Layout::GgmlCpuRepack
        | Layout::Identity
        | Layout::Int8TileB8
        | Layout::Int8TileRm
        | Layout::Q4_0Reordered
        | Layout::Q4_0Xe2DpasV2 => 48,
    };
    let parameters = match layout {
        Layout::GgmlCpuRepack => BTreeMap::from([("unit_rows".to_owned(), 16)]),
        Layout::Identity
        | Layout::Int8TileB8
        | Layout::Int8TileRm
        | Layout::Q4_0JointN
        | Layout::Q4_0Reordered
        | Layout::Q4_0Xe2DpasV2 => BTreeMap::new(),
    };
    let ty = GgmlType::from_name("Q4_0").expect("because it is a type");
    layout
        .admit(ty, &[64, rows], &parameters)
        .expect("because the layout takes it")
}

/// A source of that tensor packed here, and its record.
fn packed(layout: Layout, packers: &Packers) -> (Vec<u8>, PackRecord) {
    let admitted = admitted(layout);
    let source: Vec<u8> = (0..admitted.source_bytes())
        .map(|at| u8::try_from(at * 37 % 251).expect("because it is below 251"))
        .collect();
    let length = usize::try_from(admitted.payload_bytes()).expect("because it is small");
    let mut payload = vec![0; length];
    let kernel = packers.kernel(&admitted);
    let kernel = kernel.expect("because a packer is here");
    kernel.pack(&source, &mut payload);
    let fingerprint = packers.fingerprint(&admitted);
    let record = PackRecord {
        identity: admitted.identity(
            fingerprint.expect("because a packer is here"),
            TensorDigest(Digest::of(&source)),
        ),
        object: ObjectDigest(Digest::of(&payload)),
        length: payload.len() as u64,
        sample: SampleGeometry {
            unit_rows: admitted.geometry().unit_rows,
            row_bytes: admitted.geometry().row_bytes,
            row_count: admitted.geometry().row_count,
        },
    };
    (payload, record)
}

type Prove = fn(&[u8], &PackRecord, &Packers) -> Proof;

fn judge(prove: Prove) {
    let packers = Packers::detect();
    let layouts = Layout::ALL.into_iter();
    for layout in layouts.filter(|layout| layout.is_invertible()) {
        let name = layout.id();
        let (payload, record) = packed(layout, &packers);
        assert_eq!(prove(&payload, &record, &packers), Proof::Proven, "{name}");
        for at in 0..payload.len() {
            let mut edited = payload.clone();
            edited[at] ^= 1 << (at % 8);
            let proof = prove(&edited, &record, &packers);
            assert!(
                matches!(proof, Proof::Wrong(_)),
                "{name}: byte {at}: {proof:?}"
            );
        }
        let cut = prove(&payload[1..], &record, &packers);
        assert!(
            matches!(cut, Proof::Wrong(Wrong::Length { .. })),
            "{name}: {cut:?}"
        );
        // Another packer's bytes are its own affair, be they like ours or not.
        let mut foreign = record.clone();
        foreign.identity.fingerprint = Fingerprint(Digest::of(b"another packer"));
        let mut edited = payload.clone();
        edited[0] ^= 1;
        for bytes in [&payload, &edited] {
            let proof = prove(bytes, &foreign, &packers);
            let is_foreign = matches!(proof, Proof::NoInverse(NoInverse::Fingerprint { .. }));
            assert!(is_foreign, "{name}: {proof:?}");
        }
    }
}

#[test]
fn true_payloads_are_proven_each_edit_is_wrong_and_foreign_ones_are_not_judged() {
    judge(prove);
}

/// Nobody unpacks what was rounded, so it is never proven. What no source packs to is wrong all the
/// same.
#[test]
fn a_payload_that_was_rounded_is_wrong_or_not_judged() {
    let packers = Packers::detect();
    let layouts = Layout::ALL.into_iter();
    let layouts: Vec<_> = layouts.filter(|layout| !layout.is_invertible()).collect();
    assert_eq!(layouts, [Layout::Int8TileB8, Layout::Int8TileRm]);
    for layout in layouts {
        let (payload, record) = packed(layout, &packers);
        let Proof::NoInverse(why) = prove(&payload, &record, &packers) else {
            panic!("{} was judged", layout.id());
        };
        let said = format!("{}, which rounds what it packs", layout.id());
        assert_eq!(why.to_string(), said);
        let cut = prove(&payload[1..], &record, &packers);
        assert!(matches!(cut, Proof::Wrong(Wrong::Length { .. })), "{cut:?}");
        // Not even that is said of another packer's.
        let mut foreign = record.clone();
        foreign.identity.fingerprint = Fingerprint(Digest::of(b"another packer"));
        let mut edited = payload.clone();
        edited[0] = 0x80;
        for bytes in [&payload, &edited] {
            let proof = prove(bytes, &foreign, &packers);
            let is_foreign = matches!(proof, Proof::NoInverse(NoInverse::Fingerprint { .. }));
            assert!(is_foreign, "{layout:?}: {proof:?}");
        }
        let Proof::Wrong(wrong) = prove(&edited, &record, &packers) else {
            panic!("{} has a code -128", layout.id());
        };
        assert_eq!(wrong, Wrong::Impossible { at: 0 });
        let said = "payload is what no source packs to: byte 0";
        assert_eq!(wrong.to_string(), said);
    }
}

/// As if the packers here were the record's.
fn ignores_fingerprint(payload: &[u8], record: &PackRecord, packers: &Packers) -> Proof {
    let mut ours = record.clone();
    let layout = Layout::from_id(&record.identity.layout).expect("because tests name layouts");
    let fingerprint = packers.fingerprint(&admitted(layout));
    ours.identity.fingerprint = fingerprint.expect("because a packer is here");
    prove(payload, &ours, packers)
}

/// As if the source's digest were not looked at.
fn compares_nothing(payload: &[u8], record: &PackRecord, packers: &Packers) -> Proof {
    match prove(payload, record, packers) {
        Proof::Wrong(Wrong::Source { .. }) => Proof::Proven,
        other @ (Proof::Proven | Proof::Wrong(_) | Proof::NoInverse(_)) => other,
    }
}

/// As if what holds nothing of the source did not count.
fn ignores_padding(payload: &[u8], record: &PackRecord, packers: &Packers) -> Proof {
    match prove(payload, record, packers) {
        Proof::Wrong(Wrong::Padding { .. }) => Proof::Proven,
        other @ (Proof::Proven | Proof::Wrong(_) | Proof::NoInverse(_)) => other,
    }
}

#[test]
#[should_panic(expected = "ggml-cpu-repack: Proven")]
fn a_proof_that_ignores_the_fingerprint_is_caught() {
    judge(ignores_fingerprint);
}

#[test]
#[should_panic(expected = ": byte 0: Proven")]
fn a_proof_that_compares_nothing_is_caught() {
    judge(compares_nothing);
}

#[test]
#[should_panic(expected = "q4_0-joint-n-v1: byte 728: Proven")]
fn a_proof_that_ignores_padding_is_caught() {
    judge(ignores_padding);
}

#[test]
fn what_this_build_does_not_know_is_not_judged() {
    let packers = Packers::detect();
    let (payload, record) = packed(Layout::Q4_0Reordered, &packers);
    let said = |change: fn(&mut PackRecord)| {
        let mut changed = record.clone();
        change(&mut changed);
        match prove(&payload, &changed, &packers) {
            Proof::NoInverse(why) => why.to_string(),
            other @ (Proof::Proven | Proof::Wrong(_)) => format!("{other:?}"),
        }
    };
    let layout = said(|record| record.identity.layout = "x".into());
    assert_eq!(layout, "x version 1: not a layout of this build");
    let version = said(|record| record.identity.layout_version = 9);
    assert!(
        version.ends_with("version 9: not a layout of this build"),
        "{version}"
    );
    let ty = said(|record| record.identity.type_id = 4);
    assert_eq!(ty, "type 4: not a type of this build");
    let dims = said(|record| record.identity.dims = vec![33, 2]);
    assert!(dims.contains("33"), "{dims}");
}
