//! What a run asks: legs, and the cases of each in order. Shared by who runs and who judges.
//!
//! Specified in `docs/format/evidence.md`, section 2.

use crate::prereg::{Leg, Prereg, Timing, Treatment};
use crate::recipes::Recipes;
use packhouse_fixture::{Case, Fixture};

/// A leg that is to be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LegPlan {
    /// Its number, from 0.
    pub number: u64,
    /// Its index in the preregistration.
    pub leg: u64,
    /// What is asked in it.
    pub kind: Leg,
    /// Where.
    pub device: String,
    /// Every case in the order of asking, of all its programs.
    pub asks: Vec<PlannedCase>,
}

/// A case that is to be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCase {
    /// Of whom.
    pub treatment: Treatment,
    /// Its number among the cases of that program.
    pub index: u64,
    /// Id of the fixture.
    pub fixture: String,
    /// Which arm.
    pub arm: String,
    /// Rows of activations.
    pub width: u64,
    /// Which repeat: 0 is the published case.
    pub repeat: u64,
    /// How often in one answer, where it is timed.
    pub cycles: Option<u64>,
    /// The rejection's index, where it must be declined.
    pub rejection: Option<usize>,
}

impl LegPlan {
    /// Its programs, `control` first.
    pub fn treatments(&self) -> &'static [Treatment] {
        match self.kind {
            Leg::Exact {
                treatment: Treatment::Control,
            } => &[Treatment::Control],
            Leg::Exact {
                treatment: Treatment::Candidate,
            } => &[Treatment::Candidate],
            Leg::Timing => &[Treatment::Control, Treatment::Candidate],
        }
    }

    /// The cases of one program, in order.
    pub fn asks_of(&self, treatment: Treatment) -> impl Iterator<Item = &PlannedCase> {
        self.asks
            .iter()
            .filter(move |ask| ask.treatment == treatment)
    }
}

/// Every leg of a run. Fixtures that have no recipe here have no cells.
pub fn schedule(prereg: &Prereg, recipes: &Recipes) -> Vec<LegPlan> {
    let mut legs = Vec::new();
    for (leg, kind) in prereg.legs.iter().enumerate() {
        for device in &prereg.matrix.devices {
            let asks = match (kind, &prereg.timing) {
                (Leg::Exact { treatment }, _) => exact(prereg, recipes, *treatment),
                (Leg::Timing, Some(timing)) => timed(timing),
                (Leg::Timing, None) => Vec::new(),
            };
            legs.push(LegPlan {
                number: legs.len() as u64,
                leg: leg as u64,
                kind: *kind,
                device: device.clone(),
                asks: numbered(asks),
            });
        }
    }
    legs
}

/// Whether a fixture has a case of that width and arm.
pub fn case_of<'f>(fixture: &'f Fixture, arm: &str, width: u64) -> Option<&'f Case> {
    let is_it = |case: &&Case| case.arm == arm && case.width == width;
    fixture.cases.iter().find(is_it)
}

/// The case whose inputs a rejection gets: that of its arm and width, else the first.
pub fn rejected_case<'f>(fixture: &'f Fixture, arm: &str, width: u64) -> Option<&'f Case> {
    case_of(fixture, arm, width).or(fixture.cases.first())
}

fn exact(prereg: &Prereg, recipes: &Recipes, treatment: Treatment) -> Vec<PlannedCase> {
    let matrix = &prereg.matrix;
    let mut asks = Vec::new();
    for id in &matrix.fixtures {
        let Some(made) = recipes.published(id) else {
            continue;
        };
        for arm in &matrix.arms {
            let widths = matrix.widths.iter();
            let widths = widths.filter(|width| case_of(&made.fixture, arm, **width).is_some());
            for width in widths {
                let cell = |repeat| PlannedCase::new(treatment, id, arm, *width, repeat);
                asks.extend((0..matrix.repeats).map(cell));
            }
        }
    }
    if treatment == Treatment::Candidate {
        for (index, rejection) in prereg.rejections.iter().enumerate() {
            let (id, arm, width) = (&rejection.fixture, &rejection.arm, rejection.width);
            asks.push(PlannedCase {
                rejection: Some(index),
                ..PlannedCase::new(treatment, id, arm, width, 0)
            });
        }
    }
    asks
}

fn timed(timing: &Timing) -> Vec<PlannedCase> {
    let case = |treatment, repeat| {
        PlannedCase::new(
            treatment,
            &timing.fixture,
            &timing.arm,
            timing.width,
            repeat,
        )
    };
    let epochs = (0..timing.epochs).flat_map(|epoch| {
        [Treatment::Control, Treatment::Candidate].map(|treatment| case(treatment, epoch))
    });
    let epochs: Vec<PlannedCase> = epochs.collect();
    let blocks = (0..timing.blocks).flat_map(|block| {
        ABBA.map(|treatment| PlannedCase {
            cycles: Some(timing.cycles),
            ..case(treatment, TIMED_REPEAT + block)
        })
    });
    let mut asks = epochs.clone();
    asks.extend(blocks);
    asks.extend(epochs);
    asks
}

/// Gives the cases of each program their numbers.
fn numbered(mut asks: Vec<PlannedCase>) -> Vec<PlannedCase> {
    let (mut controls, mut candidates) = (0, 0);
    for ask in &mut asks {
        let next = match ask.treatment {
            Treatment::Control => &mut controls,
            Treatment::Candidate => &mut candidates,
        };
        ask.index = *next;
        *next += 1;
    }
    asks
}

impl PlannedCase {
    fn new(treatment: Treatment, fixture: &str, arm: &str, width: u64, repeat: u64) -> Self {
        Self {
            treatment,
            index: 0,
            fixture: fixture.to_owned(),
            arm: arm.to_owned(),
            width,
            repeat,
            cycles: None,
            rejection: None,
        }
    }

    /// The byte that output storages are filled with where a program poisons.
    pub fn poison(&self) -> u8 {
        poison(self.index)
    }
}

/// The byte that output storages are filled with before the case of this number.
pub fn poison(index: u64) -> u8 {
    if index.is_multiple_of(2) { 165 } else { 90 }
}

/// The repeat of the first block's timed cases; exact cases are below it.
pub const TIMED_REPEAT: u64 = 1_000_000;
const ABBA: [Treatment; 4] = [
    Treatment::Control,
    Treatment::Candidate,
    Treatment::Candidate,
    Treatment::Control,
];
