//! Preregistrations: what will be done, by which numbers it is judged, and what follows from it,
//! written before it is done.
//!
//! - `matrix`: the cells that are asked, legs, timing, rejections;
//! - `gates`: the conditions that an experiment chooses.
//!
//! Invariants: what parses can be executed as it is written: axes have no duplicates, every leg has
//! its program, timing and rejections are of the matrix's fixtures. Specified in
//! `docs/format/lab.md`.

mod gates;
mod matrix;
mod rules;

pub use gates::GateRule;
pub use matrix::{Leg, Matrix, Promise, Rejection, Stop, Timing, Treatment};

use crate::document::{DocumentError, Fields};
use crate::lane::ID;
use crate::name::{
    is_experiment_id, is_id, is_portable_word, is_program, is_relative_path, is_variable,
};
use std::collections::BTreeMap;

/// A preregistration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prereg {
    /// The experiment's id, which its folder is named after.
    pub id: String,
    /// The lane's id.
    pub lane: String,
    /// What kind of experiment it is.
    pub kind: Kind,
    /// What is asked.
    pub question: String,
    /// What a pass authorises.
    pub authorises: String,
    /// What a pass does not authorise.
    pub does_not_authorise: String,
    /// What is left out on purpose.
    pub exclusions: Vec<String>,
    /// Approvals that arming needs, each of another reviewer.
    pub reviewers: u64,
    /// Seconds that all legs together may take.
    pub time_budget_s: u64,
    /// Seconds that a program may take for each answer.
    pub case_timeout_s: u64,
    /// Seconds that a green rehearsal stays fresh.
    pub rehearsal_max_age_s: u64,
    /// When legs are left out.
    pub stop: Stop,
    /// The single difference between control and candidate.
    pub difference: String,
    /// What the candidate is compared with, and the null candidate of rehearsals.
    pub control: Option<Program>,
    /// What is judged.
    pub candidate: Program,
    /// More files and folders of the lab that are frozen by content.
    pub frozen: Vec<String>,
    /// Folders of the lab whose Git commit is frozen, with a clean tree.
    pub commits: Vec<String>,
    /// The cells that are asked.
    pub matrix: Matrix,
    /// The legs, in their order.
    pub legs: Vec<Leg>,
    /// How the timing leg is done; there exactly when there is one.
    pub timing: Option<Timing>,
    /// Cases that the candidate must decline.
    pub rejections: Vec<Rejection>,
    /// Gates beside those that always hold.
    pub gates: Vec<GateRule>,
}

/// Kinds of experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A component is asked case by case (`docs/format/component.md`).
    Component,
}

/// How a program is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// [`OWN_PROGRAM`], a bare name to find on the fixed `PATH`, or a path with `/` below the lab.
    pub program: String,
    /// Its arguments; `${lab}` stands for the lab's folder.
    pub arguments: Vec<String>,
    /// Its variables beside the fixed ones; `${lab}` stands for the lab's folder.
    pub environment: BTreeMap<String, String>,
}

/// The schema of a preregistration.
pub const PREREG_SCHEMA: &str = "packhouse/prereg/1";

/// The name that stands for this very program.
pub const OWN_PROGRAM: &str = "packhouse";

/// What stands for the lab's folder in arguments and variables.
pub const LAB_WORD: &str = "${lab}";

impl Kind {
    /// The word in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Component => "component",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        (word == "component").then_some(Self::Component)
    }
}

impl Program {
    /// The null candidate where a preregistration has no control: our own kernels.
    pub fn null() -> Self {
        Self {
            program: OWN_PROGRAM.to_owned(),
            arguments: vec!["fixture".to_owned(), "serve".to_owned()],
            environment: BTreeMap::new(),
        }
    }

    fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        const PROGRAM: &str = "a program's name, or its path with / below the lab's folder";
        fields.can_be(&["program", "arguments", "environment"]);
        Ok(Self {
            program: fields.word("program", PROGRAM, is_program)?,
            arguments: fields.words("arguments", WORD, is_portable_word)?,
            environment: fields.word_map(
                "environment",
                ("names of variables", is_variable),
                (WORD, is_portable_word),
            )?,
        })
    }
}

impl Prereg {
    /// Parses a document.
    ///
    /// # Errors
    /// On what is no TOML; on any field that is absent, unknown, of another type, or out of its
    /// bounds; and on fields that contradict each other.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let mut fields = Fields::parse(bytes, PREREG_SCHEMA, &FIELDS)?;
        const EXPERIMENT: &str = "an id that is not only 8 or more hex digits, of up to 64 of \
                                  a-z, 0-9, dot, dash and underscore";
        let (control, candidate) = fields.table("program", |fields| {
            fields.can_be(&["control", "candidate"]);
            let control = fields.optional_table("control", Program::read)?;
            Ok((control, fields.table("candidate", Program::read)?))
        })?;
        let prereg = Self {
            id: fields.word("id", EXPERIMENT, is_experiment_id)?,
            lane: fields.word("lane", ID, is_id)?,
            kind: fields.one_of("kind", "\"component\"", Kind::from_word)?,
            question: fields.text("question")?,
            authorises: fields.text("authorises")?,
            does_not_authorise: fields.text("does_not_authorise")?,
            exclusions: fields.distinct_words(
                "exclusions",
                "a text that is not empty",
                crate::document::is_said,
            )?,
            reviewers: fields.integer("reviewers", (1, 16))?,
            time_budget_s: fields.integer("time_budget_s", (1, WEEK_S))?,
            case_timeout_s: fields.integer("case_timeout_s", (1, WEEK_S))?,
            rehearsal_max_age_s: fields.integer("rehearsal_max_age_s", (1, 30 * DAY_S))?,
            stop: fields.one_of("stop", "\"first-failed-leg\" or \"never\"", Stop::from_word)?,
            difference: fields.table("treatment", |fields| {
                fields.can_be(&["difference"]);
                fields.text("difference")
            })?,
            control,
            candidate,
            frozen: paths(&mut fields, "frozen")?,
            commits: paths(&mut fields, "commit")?,
            matrix: fields.table("matrix", Matrix::read)?,
            legs: fields.tables("leg", Leg::read)?,
            timing: fields.optional_table("timing", Timing::read)?,
            rejections: fields.tables("rejection", Rejection::read)?,
            gates: fields.tables("gate", GateRule::read)?,
        };
        fields.finish()?;
        rules::hold(&prereg)?;
        Ok(prereg)
    }

    /// Every fixture that is used, sorted: of the matrix and of rejections. That of timing is one
    /// of the matrix.
    pub fn fixtures(&self) -> Vec<&str> {
        let matrix = self.matrix.fixtures.iter();
        let rejected = self.rejections.iter().map(|rejection| &rejection.fixture);
        let mut fixtures: Vec<&str> = matrix.chain(rejected).map(String::as_str).collect();
        fixtures.sort_unstable();
        fixtures.dedup();
        fixtures
    }

    /// Whether a leg compares times.
    pub fn has_timing(&self) -> bool {
        self.timing.is_some()
    }
}

fn paths(fields: &mut Fields, field: &str) -> Result<Vec<String>, DocumentError> {
    const PATH: &str = "a path below the lab's folder, without . and ..";
    let read = |fields: &mut Fields| {
        fields.can_be(&["path"]);
        fields.word("path", PATH, is_relative_path)
    };
    let paths = fields.tables(field, read)?;
    crate::document::distinct(field, paths.iter())?;
    Ok(paths)
}

const WORD: &str = "a text without control characters and absolute paths (${lab} is the lab)";
const DAY_S: u64 = 86_400;
const WEEK_S: u64 = 7 * DAY_S;
/// The fields of a preregistration.
const FIELDS: [&str; 22] = [
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
    "frozen",
    "commit",
    "matrix",
    "leg",
    "timing",
    "rejection",
    "gate",
];
