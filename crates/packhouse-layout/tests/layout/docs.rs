//! `docs/format/layouts.md` names every layout with its version, order and parameters, and quotes
//! the fingerprints of `vectors/layouts.json`.

use crate::vectors::VECTORS;
use packhouse_layout::Layout;
use packhouse_layout::ggml_cpu_repack::twin::Twin;
use serde_json::Value;

const PAGE: &str = include_str!("../../../../docs/format/layouts.md");
const TWINS_PAGE: &str = include_str!("../../../../docs/format/ggml-cpu-repack.md");

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

#[test]
fn the_page_of_the_twins_quotes_their_fingerprints() {
    let vectors: Value = serde_json::from_str(VECTORS).expect("because it is JSON");
    let fingerprints = vectors["fingerprints"].as_array().expect("because a list");
    let twins = fingerprints
        .iter()
        .filter(|kind| kind["layout"] == "ggml-cpu-repack");
    let rows = twins.map(|kind| {
        let text = |name: &str| kind[name].as_str().expect("because text").to_owned();
        let unit_rows = &kind["parameters"]["unit_rows"];
        let (type_name, fingerprint) = (text("type"), text("fingerprint"));
        format!("| {type_name} | {unit_rows} | `{fingerprint}` |")
    });
    let rows: Vec<_> = rows.collect();
    assert_eq!(rows.len(), Twin::ALL.len() * 2, "two unit sizes each");
    for row in rows {
        assert!(TWINS_PAGE.contains(&row), "{row}");
    }
}
