//! Bytes to an analysis.

use super::{Analysis, Basis, Gate, Kind, Ratio, Row, SCHEMA, Status, Timing, Verdict};
use crate::record::{Fields, RecordError};

impl Analysis {
    /// Reads `analysis.json`.
    ///
    /// # Errors
    /// On anything but canonical JSON with every field of the page and no other.
    pub fn parse(bytes: &[u8]) -> Result<Self, RecordError> {
        Fields::whole(bytes, |fields| {
            fields.exactly("schema", SCHEMA)?;
            Ok(Self {
                bag: fields.digest("bag")?,
                packet: fields.digest("packet")?,
                analyzer: fields.digest("analyzer")?,
                kind: fields.one_of("kind", "run or rehearsal", Kind::from_id)?,
                status: fields.one_of("status", STATUS, Status::from_id)?,
                verdict: fields.one_of("verdict", "pass, fail or abort", Verdict::parse)?,
                gates: fields.objects("gates", gate)?,
                rows: fields.objects("rows", row)?,
                timing: fields.objects("timing", timing)?,
                says: fields.texts("says")?,
            })
        })
    }
}

fn gate(fields: &mut Fields) -> Result<Gate, RecordError> {
    Ok(Gate {
        gate: fields.text("gate")?,
        basis: fields.one_of("basis", "verified, attested or mixed", Basis::from_id)?,
        decides: fields.boolean("decides")?,
        passed: fields.optional_boolean("passed")?,
        threshold: fields.text("threshold")?,
        measured: fields.text("measured")?,
        failures: fields.texts("failures")?,
        failure_count: fields.count("failure_count")?,
    })
}

fn row(fields: &mut Fields) -> Result<Row, RecordError> {
    Ok(Row {
        leg: fields.count("leg")?,
        device: fields.text("device")?,
        treatment: fields.text("treatment")?,
        index: fields.count("index")?,
        fixture: fields.text("fixture")?,
        arm: fields.text("arm")?,
        width: fields.count("width")?,
        repeat: fields.count("repeat")?,
        boundary: fields.text("boundary")?,
        sha256: fields.digest("sha256")?,
        equal: fields.boolean("equal")?,
    })
}

fn timing(fields: &mut Fields) -> Result<Timing, RecordError> {
    Ok(Timing {
        leg: fields.count("leg")?,
        device: fields.text("device")?,
        blocks: fields.count("blocks")?,
        wins: fields.count("wins")?,
        savings: fields.objects("savings", ratio)?,
        median: fields.object("median", ratio)?,
        sign_test_p: fields.text("sign_test_p")?,
        hodges_lehmann: fields.object("hodges_lehmann", ratio)?,
        bootstrap_lower_95: fields.object("bootstrap_lower_95", ratio)?,
    })
}

fn ratio(fields: &mut Fields) -> Result<Ratio, RecordError> {
    Ok(Ratio {
        numerator: fields.text("numerator")?,
        denominator: fields.count("denominator")?,
    })
}

const STATUS: &str = "complete, stopped or aborted";
