//! `docs/format/layouts.md` names every layout with its version, order and parameters, and quotes
//! the fingerprints of `vectors/layouts.json`.

use crate::admit;
use crate::vectors::VECTORS;
use packhouse_layout::Layout;
use packhouse_layout::ggml_cpu_repack::twin::Twin;
use packhouse_layout::int8_tile::{CODE_BYTES_MAX, SIZE_MAX, TileGeometry, TileOrder, TileSizes};
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

/// Row by row: each fingerprint stands with its own layout, type, parameters and golden weight, and
/// the page has no row beside them.
#[test]
fn the_page_quotes_the_fingerprints_of_the_vectors() {
    let vectors: Value = serde_json::from_str(VECTORS).expect("because it is JSON");
    let fingerprints = vectors["fingerprints"].as_array().expect("because a list");
    let rows = fingerprints
        .iter()
        .filter(|kind| kind["layout"] != "ggml-cpu-repack");
    let mut rows: Vec<String> = rows.map(fingerprint_row).collect();
    let mut quoted: Vec<String> = PAGE
        .lines()
        .filter(is_fingerprint)
        .map(str::to_owned)
        .collect();
    rows.sort();
    quoted.sort();
    assert_eq!(quoted, rows);
}

fn is_fingerprint(line: &&str) -> bool {
    line.starts_with("| `") && line.ends_with("` |") && line.len() > 64
}

fn fingerprint_row(kind: &Value) -> String {
    let text = |name: &str| kind[name].as_str().expect("because text").to_owned();
    let parameters = kind["parameters"].as_object().expect("because a map");
    let parameters: Vec<String> = parameters
        .iter()
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    let parameters = if parameters.is_empty() {
        "-".to_owned()
    } else {
        parameters.join(", ")
    };
    let dims = &kind["golden_dims"];
    format!(
        "| `{}` | {} | {parameters} | {} x {} | `{}` |",
        text("layout"),
        text("type"),
        dims[0],
        dims[1],
        text("fingerprint")
    )
}

/// The page's vector is the beginning of a golden weight that the code makes.
#[test]
fn the_page_has_the_first_blocks_of_a_golden_weight() {
    let golden = admit(Layout::Q4_0Reordered, "Q4_0", &[32, 1], &[]).golden();
    for (index, block) in golden.source.chunks(18).take(6).enumerate() {
        let hex: String = block.iter().map(|byte| format!("{byte:02x}")).collect();
        let row = format!("| {index} | `{hex}` | ");
        assert!(PAGE.contains(&row), "{row}");
    }
}

/// The places of the blocked order that the page shows, and the limits of sizes.
#[test]
fn the_page_has_the_places_and_limits_of_tiles() {
    let sizes = TileSizes {
        kd: 128,
        nd: 256,
        kpad: 128,
        t: 256,
    };
    let geometry = TileGeometry::new(TileOrder::Blocked, sizes).expect("because the sizes fit");
    let rows = PAGE
        .lines()
        .filter(|line| line.starts_with("| 128, 256 | ("));
    let mut shown = 0;
    for row in rows {
        let words = row.split(|c: char| !c.is_ascii_digit());
        let numbers: Vec<u64> = words.filter_map(|word| word.parse().ok()).collect();
        let [128, 256, i, j, byte] = numbers[..] else {
            panic!("five numbers: {row}");
        };
        assert_eq!(geometry.position(i, j), byte, "{row}");
        shown += 1;
    }
    assert_eq!(shown, 7);
    let of_size = format!("a size of 0 or above {SIZE_MAX};");
    let of_codes = format!("more than {CODE_BYTES_MAX} codes in a tile");
    assert!(PAGE.contains(&of_size) && PAGE.contains(&of_codes));
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
