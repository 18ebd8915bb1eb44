//! The format's page says what the code does.

use super::build::rich;
use packhouse_container::TensorDirectory;
use packhouse_container::gguf::limits;

const PAGE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../docs/format/gguf.md"
));

#[test]
fn the_limits_in_the_page_are_those_of_the_code() {
    let source = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/gguf/limits.rs"));
    let rows = [
        ("DIRECTORY_BYTES_MAX", limits::DIRECTORY_BYTES_MAX),
        ("METADATA_KEYS_MAX", limits::METADATA_KEYS_MAX),
        ("TENSORS_MAX", limits::TENSORS_MAX),
        ("KEY_BYTES_MAX", limits::KEY_BYTES_MAX),
        ("TENSOR_NAME_BYTES_MAX", limits::TENSOR_NAME_BYTES_MAX),
        ("STRING_BYTES_MAX", limits::STRING_BYTES_MAX),
        ("ARRAY_ELEMENTS_MAX", limits::ARRAY_ELEMENTS_MAX),
        ("DIMENSIONS_MAX", limits::DIMENSIONS_MAX.into()),
        ("ALIGNMENT_MAX", limits::ALIGNMENT_MAX),
        ("SHARDS_MAX", limits::SHARDS_MAX.into()),
    ];
    assert_eq!(
        source.matches("pub const").count(),
        rows.len(),
        "a limit has no row"
    );
    for (name, value) in rows {
        let row = format!("| `{name}` | {value} |");
        assert!(PAGE.contains(&row), "{row}");
    }
}

#[test]
fn the_test_vector_in_the_page_is_that_of_the_code() {
    let directory = TensorDirectory::parse(&rich().as_slice()).expect("because it is legal");
    assert!(PAGE.contains(&format!("`{}`", directory.digest())));
    let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/gguf/5.gguf");
    assert_eq!(std::fs::read(seed).ok(), Some(rich()));
}
