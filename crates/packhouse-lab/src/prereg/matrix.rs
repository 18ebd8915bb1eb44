//! What is asked of programs: the matrix, legs, timing, rejections.

use crate::document::{DocumentError, Fields};
use crate::name::is_device;
use packhouse_component::name::is_name;
use packhouse_gate::blocks::LEAST_BLOCKS;
use packhouse_gate::sign::MOST_PAIRS;

/// The cells: fixtures outermost, then arms, widths and repeats; on each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// Ids of fixtures.
    pub fixtures: Vec<String>,
    /// Devices by names that last.
    pub devices: Vec<String>,
    /// Arms.
    pub arms: Vec<String>,
    /// Widths, in rows.
    pub widths: Vec<u64>,
    /// Repeats of each cell: 0 is the published case, the others are drawn.
    pub repeats: u64,
    /// How equal rows must be.
    pub promise: Promise,
}

/// How equal rows must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// As the fixture's own tolerance has it, most often every bit.
    BitEqual,
    /// Near the exact result, where the fixture has a bound for that.
    Near,
}

/// Who a leg runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Treatment {
    /// What is compared with.
    Control,
    /// What is judged.
    Candidate,
}

/// One leg: on each device of the matrix, fresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leg {
    /// All cells by one process.
    Exact {
        /// Whose.
        treatment: Treatment,
    },
    /// Both programs in turns, timed.
    Timing,
}

/// When legs are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// After the first leg that failed no other is begun.
    FirstFailedLeg,
    /// Every leg is begun.
    Never,
}

/// How the timing leg is done, and what it must show on every device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// A fixture of the matrix.
    pub fixture: String,
    /// An arm of the matrix.
    pub arm: String,
    /// A width of the matrix, in rows.
    pub width: u64,
    /// Exact cases of each program before, and as many after.
    pub epochs: u64,
    /// A-B-B-A blocks.
    pub blocks: u64,
    /// Runs in one timed case.
    pub cycles: u64,
    /// Blocks that the candidate must win at least.
    pub minimum_wins: u64,
    /// Median saving per cycle that there must be at least, in nanoseconds.
    pub minimum_median_saving_ns: u64,
    /// Percent of the control's median cycle that it must come to at least, where that is asked.
    pub minimum_median_saving_percent: Option<u64>,
}

/// A case that the candidate must decline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Its name.
    pub name: String,
    /// Id of the fixture.
    pub fixture: String,
    /// The arm.
    pub arm: String,
    /// The width, in rows.
    pub width: u64,
    /// The text that it must be declined with.
    pub reason: String,
}

impl Matrix {
    pub(super) fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        const DEVICE: &str = "cpu, or kind:UUID (no ordinal, which changes)";
        fields.can_be(&[
            "fixtures", "devices", "arms", "widths", "repeats", "promise",
        ]);
        Ok(Self {
            fixtures: fields.distinct_words("fixtures", NAME, is_name)?,
            devices: fields.distinct_words("devices", DEVICE, is_device)?,
            arms: fields.distinct_words("arms", NAME, is_name)?,
            widths: fields.integers("widths", (1, WIDTH_MAX))?,
            repeats: fields.integer("repeats", (1, REPEATS_MAX))?,
            promise: fields.one_of("promise", "\"bit-equal\" or \"near\"", Promise::from_word)?,
        })
    }
}

impl Promise {
    /// The word in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::BitEqual => "bit-equal",
            Self::Near => "near",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::BitEqual, Self::Near]
            .into_iter()
            .find(|promise| promise.word() == word)
    }
}

impl From<Promise> for packhouse_fixture::Promise {
    fn from(promise: Promise) -> Self {
        match promise {
            Promise::BitEqual => Self::Exact,
            Promise::Near => Self::Near,
        }
    }
}

impl Treatment {
    /// The word in documents and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Candidate => "candidate",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Control, Self::Candidate]
            .into_iter()
            .find(|treatment| treatment.word() == word)
    }
}

impl Leg {
    /// The word in documents and records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Exact { .. } => EXACT,
            Self::Timing => TIMING,
        }
    }

    pub(super) fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        fields.can_be(&["kind", "treatment"]);
        let kinds = "\"exact\" or \"timing\"";
        let is_exact = fields.one_of("kind", kinds, |word| match word {
            EXACT => Some(true),
            TIMING => Some(false),
            _ => None,
        })?;
        if !is_exact {
            return Ok(Self::Timing);
        }
        let treatments = "\"control\" or \"candidate\"";
        let treatment = fields.one_of("treatment", treatments, Treatment::from_word)?;
        Ok(Self::Exact { treatment })
    }
}

impl Stop {
    /// The word in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::FirstFailedLeg => "first-failed-leg",
            Self::Never => "never",
        }
    }

    /// Reads the word.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::FirstFailedLeg, Self::Never]
            .into_iter()
            .find(|stop| stop.word() == word)
    }
}

impl Timing {
    pub(super) fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        fields.can_be(&TIMING_FIELDS);
        Ok(Self {
            fixture: fields.word("fixture", NAME, is_name)?,
            arm: fields.word("arm", NAME, is_name)?,
            width: fields.integer("width", (1, WIDTH_MAX))?,
            epochs: fields.integer("epochs", (1, REPEATS_MAX))?,
            blocks: fields.integer("blocks", (LEAST_BLOCKS, MOST_PAIRS))?,
            cycles: fields.integer("cycles", (1, CYCLES_MAX))?,
            minimum_wins: fields.integer("minimum_wins", (1, MOST_PAIRS))?,
            minimum_median_saving_ns: fields.integer("minimum_median_saving_ns", (1, HOUR_NS))?,
            minimum_median_saving_percent: fields
                .optional_integer("minimum_median_saving_percent", (1, 99))?,
        })
    }
}

impl Rejection {
    pub(super) fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        fields.can_be(&["name", "fixture", "arm", "width", "reason"]);
        Ok(Self {
            name: fields.word("name", NAME, is_name)?,
            fixture: fields.word("fixture", NAME, is_name)?,
            arm: fields.word("arm", NAME, is_name)?,
            width: fields.integer("width", (1, WIDTH_MAX))?,
            reason: fields.text("reason")?,
        })
    }
}

const EXACT: &str = "exact";
const TIMING: &str = "timing";
const TIMING_FIELDS: [&str; 9] = [
    "fixture",
    "arm",
    "width",
    "epochs",
    "blocks",
    "cycles",
    "minimum_wins",
    "minimum_median_saving_ns",
    "minimum_median_saving_percent",
];
pub(super) const NAME: &str = "a name of up to 128 of a-z, 0-9, dot, dash and underscore";
const WIDTH_MAX: u64 = 1 << 20;
const REPEATS_MAX: u64 = 1000;
const CYCLES_MAX: u64 = 1_000_000_000;
const HOUR_NS: u64 = 3_600_000_000_000;
