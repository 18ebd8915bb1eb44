//! What must hold of a foreign manifest that is taken: its fields are those of the JSON, and it
//! comes back from its own text. Used by the tests and by the fuzz target.

use packhouse_prepare::foreign::xe2_m6_v2::{
    ForeignSet, GgufSummary, Revision, canon_sha256, parse_manifest,
};
use serde_json::Value;

/// A way in which the judge is wrong on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// Takes the offset of the first tensor for 7.
    MovesOffset,
}

/// Judges what the parser makes of bytes; answers whether it took them.
pub(crate) fn examine(bytes: &[u8], mutant: Option<Mutant>) -> bool {
    let Ok(set) = parse_manifest(bytes) else {
        return false;
    };
    let json: Value = serde_json::from_slice(bytes).expect("because the parser took it");
    as_written(&set, &json);
    if set.revision == Revision::Three && !set.tensors.is_empty() {
        let gguf = GgufSummary {
            version: 3,
            tensor_count: 0,
            metadata_count: 0,
            alignment: 32,
            data_offset: 0,
            file_size: 0,
        };
        let mut expected = set.clone();
        if mutant == Some(Mutant::MovesOffset) {
            expected.tensors[0].gguf_offset = 7;
        }
        let again = parse_manifest(&set.render_manifest(&gguf));
        assert!(again == Ok(expected), "round trip: another set");
    }
    true
}

fn as_written(set: &ForeignSet, json: &Value) {
    assert_eq!(json["key"], set.key().to_string());
    assert_eq!(canon_sha256(&json["identity"]), set.key());
    assert_eq!(json["payload_size_bytes"], set.payload_bytes());
    let tensors = json["tensors"]
        .as_array()
        .expect("because the parser took it");
    assert_eq!(tensors.len(), set.tensors.len());
    for (theirs, ours) in tensors.iter().zip(&set.tensors) {
        assert_eq!(canon_sha256(&theirs["identity"]), ours.key());
        assert_eq!(
            theirs["source_tensor"]["sha256"],
            ours.source_sha256.to_string()
        );
        assert_eq!(theirs["source_tensor"]["gguf_offset"], ours.gguf_offset);
        assert_eq!(theirs["payload"]["sha256"], ours.payload_sha256.to_string());
        assert_eq!(
            theirs["payload"]["path"],
            format!("tensors/{}.bin", ours.key())
        );
    }
}
