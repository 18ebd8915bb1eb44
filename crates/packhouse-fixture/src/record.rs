//! `fixture.json`: all of a fixture but its bytes, as one canonical record.
//!
//! Specified in `docs/format/fixture.md`, section 3. Written only: a published one is compared with
//! what its recipe gives, never believed.

use crate::{Case, Expected, Fixture, Tolerance};
use packhouse_base::canonical::render;
use packhouse_base::digest::Digest;
use packhouse_component::{Boundary, Dim};
use serde_json::{Map, Value, json};

/// The record's schema.
pub const SCHEMA: &str = "packhouse/fixture/1";

/// Renders a fixture's record.
pub fn record(fixture: &Fixture) -> Vec<u8> {
    render(&value(fixture))
}

fn value(fixture: &Fixture) -> Value {
    let names: Vec<&String> = fixture.tensors.keys().collect();
    let contents: Vec<&[u8]> = fixture
        .tensors
        .values()
        .map(|t| t.bytes.as_slice())
        .collect();
    let digests = Digest::of_many(&contents);
    let mut tensors = Map::new();
    for ((name, tensor), digest) in names.into_iter().zip(fixture.tensors.values()).zip(digests) {
        let tensor = json!({
            "dtype": tensor.dtype.id(),
            "shape": tensor.shape,
            "bytes": tensor.bytes.len(),
            "sha256": digest.to_string(),
        });
        tensors.insert(name.clone(), tensor);
    }
    json!({
        "schema": SCHEMA,
        "id": fixture.id,
        "summary": fixture.summary,
        "layout": fixture.layout,
        "contract": fixture.contract,
        "parameters": fixture.parameters,
        "tensors": tensors,
        "boundaries": fixture.boundaries.iter().map(boundary).collect::<Vec<_>>(),
        "cases": fixture.cases.iter().map(case).collect::<Vec<_>>(),
    })
}

fn boundary(boundary: &Boundary) -> Value {
    let dims = |dims: &[Dim]| dims.iter().map(dim).collect::<Vec<_>>();
    json!({
        "name": boundary.name,
        "storage": boundary.storage,
        "dtype": boundary.dtype.id(),
        "shape": dims(&boundary.shape),
        "offset": dims(&boundary.offset),
    })
}

fn dim(dim: &Dim) -> Value {
    match dim {
        Dim::Fixed(extent) => json!({ "fixed": extent }),
        Dim::Widths(times) => json!({ "widths": times }),
    }
}

fn case(case: &Case) -> Value {
    let edge_rows = case
        .edge_rows
        .iter()
        .map(|edge| json!({ "of": edge.of, "row": edge.row, "label": edge.label }));
    json!({
        "width": case.width,
        "arm": case.arm,
        "inputs": case.inputs,
        "expected": case.expected.iter().map(expected).collect::<Vec<_>>(),
        "near": case.near.iter().map(expected).collect::<Vec<_>>(),
        "edge_rows": edge_rows.collect::<Vec<_>>(),
    })
}

fn expected(expected: &Expected) -> Value {
    json!({
        "boundary": expected.boundary,
        "tensor": expected.tensor,
        "tolerance": tolerance(&expected.tolerance),
        "why": expected.why,
    })
}

fn tolerance(tolerance: &Tolerance) -> Value {
    match tolerance {
        Tolerance::BitEqual => json!({ "kind": "bit-equal" }),
        Tolerance::Ulp { max } => json!({ "kind": "ulp", "max": max }),
        Tolerance::Within { tensor } => json!({ "kind": "within", "tensor": tensor }),
    }
}
