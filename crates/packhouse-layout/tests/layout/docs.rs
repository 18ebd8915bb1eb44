//! `docs/format/layouts.md` names every layout with its version, order and parameters, and quotes
//! the fingerprints of `vectors/layouts.json`.

use crate::vectors::VECTORS;
use packhouse_layout::Layout;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/format/layouts.md");

#[test]
fn the_page_names_every_layout_and_parameter() {
    for layout in Layout::ALL {
        let row = format!("| `{}` | {} |", layout.id(), layout.version());
        assert!(PAGE.contains(&row), "{row}");
        let heading = format!("`{}`\n", layout.id());
        let is_elsewhere = layout == Layout::GgmlCpuRepack;
        assert!(is_elsewhere || PAGE.contains(&heading), "{heading}");
        for parameter in layout.parameters() {
            let default = parameter
                .default
                .map_or_else(|| "follows".to_owned(), |value| value.to_string());
            let row = format!(
                "| `{}` | `{}` | {} | {} | {default} |",
                layout.id(),
                parameter.name,
                parameter.min,
                parameter.max
            );
            assert!(PAGE.contains(&row), "{row}");
        }
    }
}

#[test]
fn the_page_quotes_the_fingerprints_of_the_vectors() {
    let vectors: Value = serde_json::from_str(VECTORS).expect("because it is JSON");
    let fingerprints = vectors["fingerprints"].as_array().expect("because a list");
    let mut quoted_count = 0;
    for kind in fingerprints {
        if kind["layout"] == "ggml-cpu-repack" {
            continue;
        }
        let fingerprint = kind["fingerprint"].as_str().expect("because text");
        assert!(PAGE.contains(fingerprint), "{kind}");
        quoted_count += 1;
    }
    assert!(quoted_count >= 8, "{quoted_count}");
}
