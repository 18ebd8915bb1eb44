//! What the fields of a preregistration must not contradict in each other.

use super::{GateRule, Leg, Prereg, Timing, Treatment};
use crate::document::{DocumentError, distinct, rule};

/// Refuses a preregistration that can't be executed as it is written, by the field that says so.
pub(super) fn hold(prereg: &Prereg) -> Result<(), DocumentError> {
    axes(prereg)?;
    legs(prereg)?;
    if let Some(timing) = &prereg.timing {
        of_timing(prereg, timing)?;
    }
    rejections(prereg)?;
    gates(&prereg.gates)?;
    nested(prereg)?;
    if prereg.case_timeout_s > prereg.time_budget_s {
        let (timeout, budget) = (prereg.case_timeout_s, prereg.time_budget_s);
        let why = format!("{timeout} s are more than the time budget of {budget} s");
        return Err(rule("case_timeout_s", why));
    }
    Ok(())
}

fn axes(prereg: &Prereg) -> Result<(), DocumentError> {
    let matrix = &prereg.matrix;
    let empty = [
        ("matrix.fixtures", matrix.fixtures.is_empty()),
        ("matrix.devices", matrix.devices.is_empty()),
        ("matrix.arms", matrix.arms.is_empty()),
        ("matrix.widths", matrix.widths.is_empty()),
    ];
    if let Some((field, _)) = empty.into_iter().find(|(_, is_empty)| *is_empty) {
        return Err(rule(field, "there must be one at least"));
    }
    let axes = [
        matrix.fixtures.len() as u64,
        matrix.arms.len() as u64,
        matrix.widths.len() as u64,
        matrix.repeats,
    ];
    let cells = axes.into_iter().fold(1, u64::saturating_mul);
    if cells > CELLS_MAX {
        let why = format!("{cells} cells on each device, at most {CELLS_MAX} are asked");
        return Err(rule("matrix", why));
    }
    Ok(())
}

fn legs(prereg: &Prereg) -> Result<(), DocumentError> {
    let (mut is_judged, mut timings) = (false, 0);
    for (index, leg) in prereg.legs.iter().enumerate() {
        let needs_control = match leg {
            Leg::Exact { treatment } => {
                is_judged |= *treatment == Treatment::Candidate;
                *treatment == Treatment::Control
            }
            Leg::Timing => {
                timings += 1;
                true
            }
        };
        if needs_control && prereg.control.is_none() {
            return Err(rule(format!("leg[{index}]"), "there is no program.control"));
        }
    }
    let devices = prereg.matrix.devices.len();
    let all = prereg.legs.len().saturating_mul(devices);
    match (is_judged, timings, prereg.timing.is_some()) {
        (false, _, _) => Err(rule("leg", "there must be an exact leg of the candidate")),
        (true, 2.., _) => Err(rule("leg", "there can be one timing leg only")),
        (true, 1, false) => Err(rule("timing", "absent, and there is a timing leg")),
        (true, 0, true) => Err(rule("timing", "there is no timing leg")),
        (true, ..) if all > LEGS_MAX => Err(rule(
            "leg",
            format!("{all} legs on all devices, at most {LEGS_MAX} are run"),
        )),
        (true, ..) => Ok(()),
    }
}

fn of_timing(prereg: &Prereg, timing: &Timing) -> Result<(), DocumentError> {
    let matrix = &prereg.matrix;
    let absent = [
        ("timing.fixture", matrix.fixtures.contains(&timing.fixture)),
        ("timing.arm", matrix.arms.contains(&timing.arm)),
        ("timing.width", matrix.widths.contains(&timing.width)),
    ];
    if let Some((field, _)) = absent.into_iter().find(|(_, is_there)| !is_there) {
        return Err(rule(field, "is none of the matrix"));
    }
    if timing.minimum_wins > timing.blocks {
        let (wins, blocks) = (timing.minimum_wins, timing.blocks);
        let why = format!("{wins} wins of {blocks} blocks can't be");
        return Err(rule("timing.minimum_wins", why));
    }
    Ok(())
}

fn rejections(prereg: &Prereg) -> Result<(), DocumentError> {
    let names = prereg.rejections.iter().map(|rejection| &rejection.name);
    distinct("rejection", names)?;
    let matrix = &prereg.matrix;
    let is_cell = |fixture: &String, arm: &String, width: &u64| {
        matrix.fixtures.contains(fixture)
            && matrix.arms.contains(arm)
            && matrix.widths.contains(width)
    };
    for (index, rejection) in prereg.rejections.iter().enumerate() {
        if is_cell(&rejection.fixture, &rejection.arm, &rejection.width) {
            let why = "is a cell of the matrix, which must be answered";
            return Err(rule(format!("rejection[{index}]"), why));
        }
    }
    let cases = prereg.rejections.iter();
    let cases = cases.map(|rejection| {
        let (fixture, arm) = (&rejection.fixture, &rejection.arm);
        format!("{fixture} {arm} {}", rejection.width)
    });
    distinct("rejection", cases)
}

fn gates(gates: &[GateRule]) -> Result<(), DocumentError> {
    distinct("gate", gates.iter().map(GateRule::identity))?;
    for (index, gate) in gates.iter().enumerate() {
        match gate {
            GateRule::Denial { denies } if denies.is_empty() => {
                let field = format!("gate[{index}].denies");
                return Err(rule(field, "there must be one at least"));
            }
            GateRule::Denial { .. }
            | GateRule::FreshInputs
            | GateRule::StablePointers
            | GateRule::Poisoned
            | GateRule::NoWarnings
            | GateRule::CaptureIdle
            | GateRule::Witness { .. } => {}
        }
    }
    Ok(())
}

/// A file that is frozen twice would have two lines in the packet; what the lab itself writes can't
/// stay as it is.
fn nested(prereg: &Prereg) -> Result<(), DocumentError> {
    let is_below = |one: &str, other: &str| {
        one.strip_prefix(other)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    for (index, one) in prereg.frozen.iter().enumerate() {
        let mut others = prereg
            .frozen
            .iter()
            .enumerate()
            .filter(|(at, _)| *at != index);
        if let Some((_, other)) = others.find(|(_, other)| is_below(one, other)) {
            let field = format!("frozen[{index}].path");
            return Err(rule(field, format!("{one} is in {other}, which is frozen")));
        }
    }
    for (field, paths) in [("frozen", &prereg.frozen), ("commit", &prereg.commits)] {
        for (index, path) in paths.iter().enumerate() {
            // Below an experiment's own folder is room for what is its own.
            let parts: Vec<&str> = path.split('/').collect();
            let is_own = match parts[..] {
                ["experiments", _, file] => file != "packet.json",
                ["experiments", _, _, ..] => true,
                _ => false,
            };
            let written = WRITTEN.iter().find(|own| is_below(path, own) && !is_own);
            if let Some(own) = written {
                let field = format!("{field}[{index}].path");
                return Err(rule(field, format!("the lab itself writes {own}")));
            }
        }
    }
    Ok(())
}

const CELLS_MAX: u64 = 100_000;
const LEGS_MAX: usize = 100;
/// What changes while a packet goes its way.
const WRITTEN: [&str; 7] = [
    "ledger.jsonl",
    "ledger.lock",
    "experiments",
    "evidence",
    "rehearsals",
    "state.md",
    "state.html",
];
