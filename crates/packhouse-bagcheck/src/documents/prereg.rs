//! The preregistration: `docs/format/lab.md`, section 3.

use super::{forms, parse_toml};
use crate::json::{Json, Map};
use crate::report::Report;
use crate::shape::Record;
use std::collections::{BTreeMap, BTreeSet};

/// Name, arguments and environment by treatment.
type Programs = BTreeMap<String, (String, Vec<String>, BTreeMap<String, String>)>;

/// What a preregistration says, as far as evidence is judged by it.
#[derive(Clone, Debug)]
pub(crate) struct Prereg {
    /// The experiment.
    pub(crate) id: String,
    /// Its lane.
    pub(crate) lane: String,
    /// Approvals that it takes to arm.
    pub(crate) reviewers: u64,
    /// Longest run, in seconds.
    pub(crate) time_budget_s: u64,
    /// Longest case, in seconds.
    pub(crate) case_timeout_s: u64,
    /// Oldest rehearsal that counts, in seconds.
    pub(crate) rehearsal_max_age_s: u64,
    /// Whether the run ends at the first leg that failed.
    pub(crate) stops: bool,
    /// Programs by treatment: name, arguments, environment.
    pub(crate) programs: Programs,
    /// Paths of `[[commit]]`.
    pub(crate) commits: Vec<String>,
    /// Paths of `[[frozen]]`.
    pub(crate) frozen: Vec<String>,
    /// Fixtures, in the order of the cells.
    pub(crate) fixtures: Vec<String>,
    /// Devices.
    pub(crate) devices: Vec<String>,
    /// Arms.
    pub(crate) arms: Vec<String>,
    /// Widths.
    pub(crate) widths: Vec<u64>,
    /// Repeats of each cell.
    pub(crate) repeats: u64,
    /// Whether boundaries with an exact result are judged by that.
    pub(crate) is_near: bool,
    /// Legs: the treatment of an exact one, none for a timing one.
    pub(crate) legs: Vec<Option<String>>,
    /// What timing legs ask.
    pub(crate) timing: Option<Timing>,
    /// Cases that must be declined.
    pub(crate) rejections: Vec<Rejection>,
    /// Gates beside those that are always there.
    pub(crate) gates: Vec<Gate>,
}

/// What timing legs ask, and what they must reach.
#[derive(Clone, Debug)]
pub(crate) struct Timing {
    /// Fixture of all its cases.
    pub(crate) fixture: String,
    /// Arm.
    pub(crate) arm: String,
    /// Width.
    pub(crate) width: u64,
    /// Exact cases before and after.
    pub(crate) epochs: u64,
    /// Blocks of four.
    pub(crate) blocks: u64,
    /// Runs of the kernel in one timed case.
    pub(crate) cycles: u64,
    /// Least wins.
    pub(crate) minimum_wins: u64,
    /// Least median saving for each cycle, in nanoseconds.
    pub(crate) minimum_saving_ns: u64,
    /// Smallest median saving as percent of the control's median cycle, where that is asked.
    pub(crate) minimum_saving_percent: Option<u64>,
}

/// A case that must be declined.
#[derive(Clone, Debug)]
pub(crate) struct Rejection {
    /// Fixture whose inputs it has.
    pub(crate) fixture: String,
    /// Arm that is asked.
    pub(crate) arm: String,
    /// Width that is asked.
    pub(crate) width: u64,
    /// The exact reason.
    pub(crate) reason: String,
}

/// A gate that a preregistration adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// No two cases with the same inputs.
    FreshInputs,
    /// The same addresses at every repeat.
    StablePointers,
    /// Every storage was filled before the run.
    Poisoned,
    /// No warning.
    NoWarnings,
    /// No stream was being captured.
    CaptureIdle,
    /// A path ran, so often at least.
    Witness {
        /// The path.
        path: String,
        /// The counter.
        counter: String,
        /// The least count.
        minimum: u64,
    },
    /// The program says what it can't do.
    Denial(Vec<String>),
}

const FIELDS: [&str; 17] = [
    "schema",
    "id",
    "lane",
    "kind",
    "question",
    "authorises",
    "does_not_authorise",
    "exclusions",
    "reviewers",
    "time_budget_s",
    "case_timeout_s",
    "rehearsal_max_age_s",
    "stop",
    "treatment",
    "program",
    "matrix",
    "leg",
];
const MAYBE: [&str; 5] = ["frozen", "commit", "timing", "rejection", "gate"];
const MATRIX: [&str; 6] = [
    "fixtures", "devices", "arms", "widths", "repeats", "promise",
];

/// Reads a preregistration.
pub(crate) fn prereg(report: &mut Report, path: &str, bytes: &[u8]) -> Option<Prereg> {
    let value = parse_toml(report, path, bytes)?;
    let mut record = Record::new(report, path);
    let map = record.fields(&value, "", &FIELDS, &MAYBE)?;
    record.schema(map, "packhouse/prereg/1")?;
    record.word(map, "kind", &["component"])?;
    for name in ["question", "authorises", "does_not_authorise"] {
        record.formed(map, name, "a text", forms::is_text)?;
    }
    let exclusions = record.texts(map, "exclusions")?;
    record.distinct("exclusions", &exclusions, forms::is_text)?;
    let treatment = record.fields(map.get("treatment")?, "treatment", &["difference"], &[])?;
    record.formed(treatment, "difference", "a text", forms::is_text)?;
    let matrix = record.fields(map.get("matrix")?, "matrix", &MATRIX, &[])?;
    let time_budget_s = record.within(map, "time_budget_s", 1, 604_800)?;
    let prereg = Prereg {
        id: record.formed(map, "id", "an experiment's id", forms::is_experiment)?,
        lane: record.formed(map, "lane", "an id", forms::is_id)?,
        reviewers: record.within(map, "reviewers", 1, 16)?,
        time_budget_s,
        case_timeout_s: record.within(map, "case_timeout_s", 1, time_budget_s)?,
        rehearsal_max_age_s: record.within(map, "rehearsal_max_age_s", 1, 2_592_000)?,
        stops: record.word(map, "stop", &["first-failed-leg", "never"])? == "first-failed-leg",
        programs: programs(&mut record, map)?,
        commits: paths(&mut record, map, "commit")?,
        frozen: paths(&mut record, map, "frozen")?,
        fixtures: record.names(matrix, "fixtures", forms::is_name)?,
        devices: record.names(matrix, "devices", forms::is_device)?,
        arms: record.names(matrix, "arms", forms::is_name)?,
        widths: widths(&mut record, matrix)?,
        repeats: record.within(matrix, "repeats", 1, 1000)?,
        is_near: record.word(matrix, "promise", &["bit-equal", "near"])? == "near",
        legs: legs(&mut record, map)?,
        timing: timing(&mut record, map)?,
        rejections: rejections(&mut record, map)?,
        gates: gates(&mut record, map)?,
    };
    together(&mut record, &prereg).then_some(prereg)
}

/// Judges what several fields say together.
fn together(record: &mut Record<'_>, prereg: &Prereg) -> bool {
    let has = |treatment: Option<&str>| {
        let mut legs = prereg.legs.iter().map(Option::as_deref);
        legs.any(|leg| leg == treatment)
    };
    let cells = [
        prereg.fixtures.len() as u64,
        prereg.arms.len() as u64,
        prereg.widths.len() as u64,
        prereg.repeats,
    ];
    let cells = cells
        .iter()
        .fold(1u64, |all, count| all.saturating_mul(*count));
    let in_matrix = |fixture: &String, arm: &String, width: u64| {
        prereg.fixtures.contains(fixture)
            && prereg.arms.contains(arm)
            && prereg.widths.contains(&width)
    };
    let timed = prereg.timing.as_ref();
    let is_timed_cell = timed.is_none_or(|t| in_matrix(&t.fixture, &t.arm, t.width));
    let rejected = &prereg.rejections;
    let is_cell = |case: &Rejection| in_matrix(&case.fixture, &case.arm, case.width);
    let cases: BTreeSet<_> = rejected
        .iter()
        .map(|case| (&case.fixture, &case.arm, case.width))
        .collect();
    let timing_legs = prereg.legs.iter().filter(|leg| leg.is_none()).count();
    let needs_control = has(None) || has(Some("control"));
    let rules = [
        (cells > 100_000, "more than 100,000 cells"),
        (!has(Some("candidate")), "no exact leg of the candidate"),
        (timing_legs > 1, "more than one timing leg"),
        (
            prereg.legs.len() * prereg.devices.len() > 100,
            "more than 100 legs",
        ),
        (
            needs_control && !prereg.programs.contains_key("control"),
            "a leg needs `program.control`",
        ),
        (
            timed.is_some() != has(None),
            "`timing` is there exactly with a timing leg",
        ),
        (
            !is_timed_cell,
            "`timing` asks what the matrix does not have",
        ),
        (cases.len() != rejected.len(), "a rejection is there twice"),
        (
            rejected.iter().any(is_cell),
            "a rejection is a cell of the matrix",
        ),
    ];
    let mut is_good = true;
    for (is_broken, words) in rules {
        if is_broken {
            record.find("record.type", words);
            is_good = false;
        }
    }
    is_good
}

fn programs(record: &mut Record<'_>, map: &Map) -> Option<Programs> {
    let programs = record.fields(map.get("program")?, "program", &["candidate"], &["control"])?;
    let mut read = Programs::new();
    for (treatment, program) in programs {
        let at = format!("program.{treatment}");
        let fields = ["program", "arguments", "environment"];
        let program = record.fields(program, &at, &fields, &[])?;
        let name = record.formed(program, "program", "a program", forms::is_program)?;
        let arguments = record.texts(program, "arguments")?;
        if !arguments.iter().all(|word| forms::is_word(word)) || arguments.len() > LIST_MAX {
            record.find("record.type", format!("`{at}.arguments` are not words"));
            return None;
        }
        let environment = super::packet::environment(record, program)?;
        read.insert(treatment.clone(), (name, arguments, environment));
    }
    Some(read)
}

/// Longest list.
pub(super) const LIST_MAX: usize = 1024;

fn tables<'a>(record: &mut Record<'_>, map: &'a Map, name: &str) -> Option<&'a [Json]> {
    if !map.contains_key(name) {
        return Some(&[]);
    }
    let items = record.list(map, name)?;
    if items.len() > LIST_MAX {
        record.find(
            "record.type",
            format!("`{name}` has {} entries", items.len()),
        );
        return None;
    }
    Some(items)
}

/// Names at the top of a lab that nobody can freeze.
const OWN: [&str; 7] = [
    "ledger.jsonl",
    "ledger.lock",
    "experiments",
    "evidence",
    "rehearsals",
    "state.md",
    "state.html",
];

fn paths(record: &mut Record<'_>, map: &Map, name: &str) -> Option<Vec<String>> {
    let mut paths: Vec<String> = Vec::new();
    for item in tables(record, map, name)? {
        let fields = record.fields(item, name, &["path"], &[])?;
        let path = record.formed(fields, "path", "a path", forms::is_path)?;
        let is_below = |a: &str, b: &str| a == b || a.starts_with(&format!("{b}/"));
        let clashes = |other: &String| match name {
            "frozen" => is_below(&path, other) || is_below(other, &path),
            _ => path == *other,
        };
        let parts: Vec<&str> = path.split('/').collect();
        let is_own = OWN.contains(&parts[0]);
        let is_experiments = parts[0] == "experiments" && parts.len() > 2;
        let is_refused = match is_experiments {
            true => parts.len() == 3 && parts[2] == "packet.json",
            false => is_own,
        };
        if paths.iter().any(clashes) || is_refused {
            let words = format!("`{name}` {path:?} is there twice, or can't be frozen");
            record.find("record.type", words);
            return None;
        }
        paths.push(path);
    }
    Some(paths)
}

fn widths(record: &mut Record<'_>, matrix: &Map) -> Option<Vec<u64>> {
    let widths = record.integers(matrix, "widths")?;
    let distinct: BTreeSet<&u64> = widths.iter().collect();
    let is_width = |width: &u64| (1..=WIDTH_MAX).contains(width);
    let is_list = (1..=LIST_MAX).contains(&widths.len()) && distinct.len() == widths.len();
    if !is_list || !widths.iter().all(is_width) {
        record.find("record.type", "`widths` are not widths, each once");
        return None;
    }
    Some(widths)
}

const WIDTH_MAX: u64 = 1_048_576;

fn legs(record: &mut Record<'_>, map: &Map) -> Option<Vec<Option<String>>> {
    let mut legs = Vec::new();
    for item in tables(record, map, "leg")? {
        let fields = record.fields(item, "leg", &["kind"], &["treatment"])?;
        let kind = record.word(fields, "kind", &["exact", "timing"])?;
        if kind == "exact" {
            let fields = record.fields(item, "leg", &["kind", "treatment"], &[])?;
            let treatment = record.word(fields, "treatment", &["control", "candidate"])?;
            legs.push(Some(treatment));
        } else {
            record.fields(item, "leg", &["kind"], &[])?;
            legs.push(None);
        }
    }
    Some(legs)
}

const TIMING: [&str; 8] = [
    "fixture",
    "arm",
    "width",
    "epochs",
    "blocks",
    "cycles",
    "minimum_wins",
    "minimum_median_saving_ns",
];

const PERCENT: &str = "minimum_median_saving_percent";

fn timing(record: &mut Record<'_>, map: &Map) -> Option<Option<Timing>> {
    let Some(value) = map.get("timing") else {
        return Some(None);
    };
    let map = record.fields(value, "timing", &TIMING, &[PERCENT])?;
    let percent = match map.contains_key(PERCENT) {
        true => Some(record.within(map, PERCENT, 1, 99)?),
        false => None,
    };
    let blocks = record.within(map, "blocks", 6, 1000)?;
    Some(Some(Timing {
        fixture: record.formed(map, "fixture", "a name", forms::is_name)?,
        arm: record.formed(map, "arm", "a name", forms::is_name)?,
        width: record.within(map, "width", 1, WIDTH_MAX)?,
        epochs: record.within(map, "epochs", 1, 1000)?,
        blocks,
        cycles: record.within(map, "cycles", 1, 1_000_000_000)?,
        minimum_wins: record.within(map, "minimum_wins", 1, blocks)?,
        minimum_saving_ns: record.within(map, TIMING[7], 1, 3_600_000_000_000)?,
        minimum_saving_percent: percent,
    }))
}

fn rejections(record: &mut Record<'_>, map: &Map) -> Option<Vec<Rejection>> {
    let mut rejections = Vec::new();
    let mut names = BTreeSet::new();
    for item in tables(record, map, "rejection")? {
        let fields = ["name", "fixture", "arm", "width", "reason"];
        let map = record.fields(item, "rejection", &fields, &[])?;
        let name = record.formed(map, "name", "a name", forms::is_name)?;
        if !names.insert(name.clone()) {
            record.find(
                "record.type",
                format!("the rejection {name:?} is there twice"),
            );
            return None;
        }
        rejections.push(Rejection {
            fixture: record.formed(map, "fixture", "a name", forms::is_name)?,
            arm: record.formed(map, "arm", "a name", forms::is_name)?,
            width: record.within(map, "width", 1, WIDTH_MAX)?,
            reason: record.formed(map, "reason", "a text", forms::is_text)?,
        });
    }
    Some(rejections)
}

const GATES: [&str; 7] = [
    "fresh-inputs",
    "stable-pointers",
    "poisoned",
    "no-warnings",
    "capture-idle",
    "witness",
    "denial",
];

fn gates(record: &mut Record<'_>, map: &Map) -> Option<Vec<Gate>> {
    let mut gates: Vec<Gate> = Vec::new();
    for item in tables(record, map, "gate")? {
        let every = ["path", "counter", "minimum", "denies"];
        let map = record.fields(item, "gate", &["kind"], &every)?;
        let kind = record.word(map, "kind", &GATES)?;
        let own: &[&str] = match kind.as_str() {
            "witness" => &["kind", "path", "counter", "minimum"],
            "denial" => &["kind", "denies"],
            _ => &["kind"],
        };
        record.fields(item, "gate", own, &[])?;
        let gate = match kind.as_str() {
            "fresh-inputs" => Gate::FreshInputs,
            "stable-pointers" => Gate::StablePointers,
            "poisoned" => Gate::Poisoned,
            "no-warnings" => Gate::NoWarnings,
            "capture-idle" => Gate::CaptureIdle,
            "witness" => Gate::Witness {
                path: record.formed(map, "path", "a name", forms::is_name)?,
                counter: record.formed(map, "counter", "a name", forms::is_name)?,
                minimum: record.within(map, "minimum", 1, i64::MAX as u64)?,
            },
            _ => Gate::Denial(record.names(map, "denies", forms::is_name)?),
        };
        if gates.iter().any(|other| is_same(other, &gate)) {
            record.find("record.type", format!("the gate {kind} is there twice"));
            return None;
        }
        gates.push(gate);
    }
    Some(gates)
}

/// Returns whether a second gate asks what the first one asks.
fn is_same(one: &Gate, other: &Gate) -> bool {
    match (one, other) {
        (
            Gate::Witness { path, counter, .. },
            Gate::Witness {
                path: path_2,
                counter: counter_2,
                ..
            },
        ) => path == path_2 && counter == counter_2,
        (Gate::Denial(_), Gate::Denial(_)) => true,
        (one, other) => one == other,
    }
}
