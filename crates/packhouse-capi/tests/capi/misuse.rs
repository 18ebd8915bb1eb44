//! Calls that break the interface's rules, and what they are told.

use crate::refusals::{RECEIPT, Seen};
use crate::world::World;

const NULL: &str = "NULL_POINTER";
const SIZE: &str = "STRUCT_SIZE";
const FIELD: &str = "UNKNOWN_FIELD";
/// What `tests/c/misuse.c` does wrong, and what it is told.
const MISUSES: &[(&str, &str, &str)] = &[
    ("null-options", NULL, "packhouse_open_options is NULL"),
    ("null-set-place", NULL, "argument set is NULL"),
    ("null-store", NULL, "options.store"),
    ("null-state", NULL, "options.state"),
    ("null-set", NULL, "argument set"),
    ("null-entry", NULL, "packhouse_entry"),
    ("null-contract", NULL, "packhouse_contract"),
    ("null-tensor", NULL, "argument tensor"),
    ("null-layout", NULL, "contract.layout"),
    ("null-parameters", NULL, "contract.parameters"),
    ("null-map-entry", NULL, "packhouse_entry"),
    ("null-mapping-place", NULL, "argument mapping"),
    ("null-mapping", NULL, "argument mapping"),
    ("null-live", NULL, "argument live"),
    ("null-last", NULL, ""),
    ("null-fingerprint", NULL, "argument fingerprint"),
    ("null-source", NULL, "argument source"),
    (
        "small-options",
        SIZE,
        "packhouse_open_options.struct_size is 8, this library knows 64",
    ),
    ("small-entry", SIZE, "packhouse_entry.struct_size is 0"),
    ("small-refusal", SIZE, ""),
    ("small-refusal-map", SIZE, ""),
    ("later-options", "OK", ""),
    ("later-field", FIELD, "at byte 64"),
    ("later-counters", "OK", ""),
    ("large-options", "OK", ""),
    (
        "huge-options",
        SIZE,
        "packhouse_open_options.struct_size is 4097, this library knows 64",
    ),
    (
        "reserved",
        FIELD,
        "packhouse_open_options has a field set at byte 12",
    ),
    (
        "flags",
        FIELD,
        "packhouse_open_options has a field set at byte 8",
    ),
    ("contract-reserved", FIELD, "packhouse_contract"),
    ("sample-reserved", FIELD, "packhouse_sample_options"),
    ("trust", "VALUE", "options.trust is 9"),
    (
        "uid-count",
        "VALUE",
        "options.trusted_uid_count is 65, expected 0 to 64",
    ),
    ("null-uids", NULL, "options.trusted_uids"),
    ("text", "TEXT", "options.set is not UTF-8 at byte 0"),
    ("tensor-text", "TEXT", "tensor is not UTF-8 at byte 1"),
    (
        "dim-count",
        "VALUE",
        "contract.dim_count is 9, expected 0 to 8",
    ),
    (
        "parameter-count",
        "VALUE",
        "contract.parameter_count is 18446744073709551615",
    ),
    (
        "parameter-twice",
        "VALUE",
        "contract.parameters is 1, expected each name once",
    ),
    (
        "entry-index",
        "INDEX",
        "index 1000 is past the end: there are 8",
    ),
    ("refused-end", "OK", ""),
    ("null-refused", NULL, "packhouse_refused"),
    (
        "layout-index",
        "INDEX",
        "index 1000 is past the end: there are 7",
    ),
    ("parameter-index", "INDEX", "index 1000"),
    (
        "short-source",
        "BUFFER",
        "source has 127 bytes, expected 128",
    ),
    (
        "long-payload",
        "BUFFER",
        "payload has 129 bytes, expected 128",
    ),
    ("overlap", "OVERLAP", "overlap"),
    ("beside", "OK", ""),
    ("unpack-overlap", "OVERLAP", "overlap"),
    ("no-refusal", "BUFFER", ""),
    (
        "no-object",
        "VALUE",
        "argument source_bytes is 9223372036854775808, expected at most 9223372036854775807",
    ),
];

/// Each call that breaks the rules has its status and changes nothing.
pub(crate) fn misuse(seen: &mut Seen) {
    let world = World::new();
    let lines = world.probe(RECEIPT, &["open", "misuse"]);
    for &(name, status, part) in MISUSES {
        seen.refused(&lines, &format!("misuse {name}"), status, &[part]);
    }
    let extra = lines.iter().filter(|line| line.starts_with("misuse "));
    assert_eq!(extra.count(), MISUSES.len() + 2, "{lines:#?}");
    for place in ["place-is-null", "places-are-null"] {
        assert!(lines.contains(&format!("misuse {place} yes")), "{lines:#?}");
    }
}
