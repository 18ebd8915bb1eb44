//! The analysis of a bag: a pure function of the bag and of the program that makes it.
//!
//! - Same bag, same analyzer, same bytes.
//! - Nothing that a record says of itself decides: all of it is computed again from raw files.
//! - Never fails: a bag that is broken has failures, and no pass.
//!
//! Specified in `docs/format/evidence.md`, sections 7 to 12.

mod read;

use crate::gates;
use crate::recipes::Recipes;
use packhouse_bag::Contents;
use packhouse_base::canonical::render;
use packhouse_base::digest::Digest;
pub use packhouse_ledger::act::Verdict;
use serde_json::{Value, json};

/// What is made of a bag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Analysis {
    /// The bag's digest.
    pub bag: Digest,
    /// The packet's digest.
    pub packet: Digest,
    /// Digest of the program that analysed.
    pub analyzer: Digest,
    /// A run or a rehearsal.
    pub kind: Kind,
    /// How the run ended.
    pub status: Status,
    /// What all gates together say.
    pub verdict: Verdict,
    /// The gates, in the order of the page.
    pub gates: Vec<Gate>,
    /// One for each boundary of each answer without a fault.
    pub rows: Vec<Row>,
    /// One for each timing leg that could be judged.
    pub timing: Vec<Timing>,
    /// What a bag alone can't prove.
    pub says: Vec<String>,
}

/// Whether the packet's one run was made, or a rehearsal of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The one run.
    Run,
    /// A rehearsal: a null program plays the candidate.
    Rehearsal,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Every leg ran to its end.
    Complete,
    /// The stop rule or the time budget ended it.
    Stopped,
    /// It broke off.
    Aborted,
}

/// Where a gate's measure comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Computed from raw files.
    Verified,
    /// Only the program can know.
    Attested,
    /// Some of both.
    Mixed,
}

/// One gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gate {
    /// Its name.
    pub gate: String,
    /// Where its measure comes from.
    pub basis: Basis,
    /// Whether the verdict asks it.
    pub decides: bool,
    /// Whether it passed; none where nothing was judged.
    pub passed: Option<bool>,
    /// What it demands.
    pub threshold: String,
    /// What was found.
    pub measured: String,
    /// The first `FAILURES_MAX` failures.
    pub failures: Vec<String>,
    /// How many there are.
    pub failure_count: u64,
}

/// One boundary of one answer, judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The leg's number.
    pub leg: u64,
    /// Where it ran.
    pub device: String,
    /// Whose answer it is.
    pub treatment: String,
    /// The case's number in its session.
    pub index: u64,
    /// Id of the fixture.
    pub fixture: String,
    /// Which arm.
    pub arm: String,
    /// Rows of activations.
    pub width: u64,
    /// Which repeat.
    pub repeat: u64,
    /// The boundary.
    pub boundary: String,
    /// SHA-256 of its bytes.
    pub sha256: Digest,
    /// Whether all of it is near enough.
    pub equal: bool,
}

/// What the blocks of one timing leg show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The leg's number.
    pub leg: u64,
    /// Where it ran.
    pub device: String,
    /// How many blocks.
    pub blocks: u64,
    /// How many of them saved time.
    pub wins: u64,
    /// Nanoseconds per cycle that each block saved.
    pub savings: Vec<Ratio>,
    /// Their median.
    pub median: Ratio,
    /// Two-sided p of wins against losses, in decimal.
    pub sign_test_p: String,
    /// The Hodges-Lehmann shift.
    pub hodges_lehmann: Ratio,
    /// Lower bound of the median.
    pub bootstrap_lower_95: Ratio,
}

/// An exact fraction in lowest terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Above the line, in decimal.
    pub numerator: String,
    /// Below the line, above zero.
    pub denominator: u64,
}

/// Analyses a bag.
///
/// Never fails: what is broken is a failure of a gate, and no pass.
pub fn analyse(bag: &Contents, analyzer: Digest, recipes: &Recipes) -> Analysis {
    gates::judge(bag, analyzer, recipes).analysis
}

impl Analysis {
    /// The bytes of `analysis.json`.
    pub fn render(&self) -> Vec<u8> {
        render(&json!({
            "schema": SCHEMA,
            "bag": self.bag.to_string(),
            "packet": self.packet.to_string(),
            "analyzer": self.analyzer.to_string(),
            "kind": self.kind.id(),
            "status": self.status.id(),
            "verdict": self.verdict.as_str(),
            "gates": self.gates.iter().map(gate).collect::<Vec<_>>(),
            "rows": self.rows.iter().map(row).collect::<Vec<_>>(),
            "timing": self.timing.iter().map(timing).collect::<Vec<_>>(),
            "says": self.says,
        }))
    }

    /// The SHA-256 of `analysis.json`.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.render())
    }

    /// Finds a gate by its name.
    pub fn gate(&self, name: &str) -> Option<&Gate> {
        self.gates.iter().find(|gate| gate.gate == name)
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 2] = [Self::Run, Self::Rehearsal];

    /// Its name in records.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Rehearsal => "rehearsal",
        }
    }

    /// Finds a kind by its name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.id() == id)
    }
}

impl Status {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Complete, Self::Stopped, Self::Aborted];

    /// Its name in records.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Stopped => "stopped",
            Self::Aborted => "aborted",
        }
    }

    /// Finds a status by its name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.id() == id)
    }
}

impl Basis {
    /// Every basis.
    pub const ALL: [Self; 3] = [Self::Verified, Self::Attested, Self::Mixed];

    /// Its name in records.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Attested => "attested",
            Self::Mixed => "mixed",
        }
    }

    /// Finds a basis by its name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|basis| basis.id() == id)
    }
}

fn gate(gate: &Gate) -> Value {
    json!({
        "gate": gate.gate,
        "basis": gate.basis.id(),
        "decides": gate.decides,
        "passed": gate.passed,
        "threshold": gate.threshold,
        "measured": gate.measured,
        "failures": gate.failures,
        "failure_count": gate.failure_count,
    })
}

fn row(row: &Row) -> Value {
    json!({
        "leg": row.leg,
        "device": row.device,
        "treatment": row.treatment,
        "index": row.index,
        "fixture": row.fixture,
        "arm": row.arm,
        "width": row.width,
        "repeat": row.repeat,
        "boundary": row.boundary,
        "sha256": row.sha256.to_string(),
        "equal": row.equal,
    })
}

fn timing(timing: &Timing) -> Value {
    json!({
        "leg": timing.leg,
        "device": timing.device,
        "blocks": timing.blocks,
        "wins": timing.wins,
        "savings": timing.savings.iter().map(ratio).collect::<Vec<_>>(),
        "median": ratio(&timing.median),
        "sign_test_p": timing.sign_test_p,
        "hodges_lehmann": ratio(&timing.hodges_lehmann),
        "bootstrap_lower_95": ratio(&timing.bootstrap_lower_95),
    })
}

fn ratio(ratio: &Ratio) -> Value {
    json!({ "numerator": ratio.numerator, "denominator": ratio.denominator })
}

/// How many failures of a gate are told.
pub const FAILURES_MAX: usize = 20;
/// The record's schema.
pub const SCHEMA: &str = "packhouse/analysis/1";
/// The file's name in its folder.
pub const FILE: &str = "analysis.json";
