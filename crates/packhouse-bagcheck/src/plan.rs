//! What is asked, as it follows from preregistration, fixtures and nonce:
//! `docs/format/evidence.md`, section 2.

use crate::documents::Prereg;
use crate::fixture::{Case, Fixture};
use crate::json::{Json, Map};
use crate::messages::Key;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One leg that the preregistration demands.
#[derive(Clone, Debug)]
pub(crate) struct Leg {
    /// Its number.
    pub(crate) number: u64,
    /// Its index in the preregistration.
    pub(crate) leg: u64,
    /// Its device.
    pub(crate) device: String,
    /// Whether it is a timing leg.
    pub(crate) is_timing: bool,
    /// Treatments, control first.
    pub(crate) treatments: Vec<&'static str>,
    /// Whose case each is and which one, in the order of asking.
    pub(crate) cases: Arc<[(&'static str, Planned)]>,
}

/// One case that is asked.
#[derive(Clone, Debug)]
pub(crate) struct Planned {
    /// Which one.
    pub(crate) key: Key,
    /// Runs in a timed case.
    pub(crate) cycles: Option<u64>,
    /// Index of the rejection that it is.
    pub(crate) rejection: Option<usize>,
}

/// Fixtures of a bag: published ones by id, drawn ones by id and repeat.
#[derive(Debug, Default)]
pub(crate) struct Fixtures {
    /// By id.
    pub(crate) published: BTreeMap<String, Fixture>,
    /// By id and repeat.
    pub(crate) drawn: BTreeMap<(String, u64), Fixture>,
    /// Ids of which anything was drawn.
    pub(crate) drawing: BTreeSet<String>,
}

/// First repeat of timed cases: blocks are counted from it.
const BLOCK_REPEAT: u64 = 1_000_000;

impl Fixtures {
    /// Returns the fixture whose inputs a repeat has. Where nothing was drawn of a fixture, each
    /// repeat has the published ones.
    pub(crate) fn of(&self, id: &str, repeat: u64) -> Option<&Fixture> {
        match repeat > 0 && self.drawing.contains(id) {
            true => self.drawn.get(&(id.to_owned(), repeat)),
            false => self.published.get(id),
        }
    }
}

/// Returns every leg, in order. Cells are those that a published fixture has a case for.
pub(crate) fn legs(prereg: &Prereg, fixtures: &Fixtures) -> Vec<Leg> {
    let mut legs: Vec<Leg> = Vec::new();
    for (leg, treatment) in (0..).zip(&prereg.legs) {
        let treatments = match treatment.as_deref() {
            None => vec!["control", "candidate"],
            Some("control") => vec!["control"],
            Some(_) => vec!["candidate"],
        };
        // One list for all devices: a preregistration may have many of both.
        let cases: Arc<[_]> = match treatment {
            None => timed_cases(prereg),
            Some(_) => exact_cases(prereg, fixtures, treatments[0]),
        }
        .into();
        for device in &prereg.devices {
            legs.push(Leg {
                number: legs.len() as u64,
                leg,
                device: device.clone(),
                is_timing: treatment.is_none(),
                treatments: treatments.clone(),
                cases: Arc::clone(&cases),
            });
        }
    }
    legs
}

fn exact_cases(
    prereg: &Prereg,
    fixtures: &Fixtures,
    treatment: &'static str,
) -> Vec<(&'static str, Planned)> {
    let mut cases = Vec::new();
    for fixture in &prereg.fixtures {
        let published = fixtures.published.get(fixture);
        for arm in &prereg.arms {
            for width in &prereg.widths {
                let case = published.and_then(|published| published.case(*width, arm));
                for repeat in 0..case.map_or(0, |_| prereg.repeats) {
                    let planned = planned(fixture, arm, *width, repeat, None, None);
                    cases.push((treatment, planned));
                }
            }
        }
    }
    if treatment == "candidate" {
        for (index, case) in prereg.rejections.iter().enumerate() {
            let planned = planned(&case.fixture, &case.arm, case.width, 0, None, Some(index));
            cases.push((treatment, planned));
        }
    }
    cases
}

fn timed_cases(prereg: &Prereg) -> Vec<(&'static str, Planned)> {
    let Some(timing) = &prereg.timing else {
        return Vec::new();
    };
    let cell = |repeat: u64, cycles: Option<u64>| {
        planned(
            &timing.fixture,
            &timing.arm,
            timing.width,
            repeat,
            cycles,
            None,
        )
    };
    let epochs = || {
        let all = 0..timing.epochs;
        all.flat_map(|repeat| ["control", "candidate"].map(|who| (who, cell(repeat, None))))
    };
    let blocks = (0..timing.blocks).flat_map(|block| {
        let order = ["control", "candidate", "candidate", "control"];
        order.map(|who| (who, cell(BLOCK_REPEAT + block, Some(timing.cycles))))
    });
    epochs().chain(blocks).chain(epochs()).collect()
}

fn planned(
    fixture: &str,
    arm: &str,
    width: u64,
    repeat: u64,
    cycles: Option<u64>,
    rejection: Option<usize>,
) -> Planned {
    Planned {
        key: Key {
            fixture: fixture.to_owned(),
            arm: arm.to_owned(),
            width,
            repeat,
            is_timed: cycles.is_some(),
        },
        cycles,
        rejection,
    }
}

/// Returns the challenge of a leg.
pub(crate) fn challenge(nonce: &[u8; 32], number: u64) -> String {
    let mut hash = Sha256::new();
    hash.update(nonce);
    hash.update(number.to_le_bytes());
    crate::shape::hex(&hash.finalize())
}

/// Returns the seed of a drawn fixture.
pub(crate) fn seed(source: &[u8; 32], fixture: &str, repeat: u64) -> u64 {
    let mut hash = Sha256::new();
    hash.update(source);
    hash.update(fixture);
    hash.update(repeat.to_le_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize()[..8]);
    u64::from_le_bytes(first)
}

/// Returns the case whose inputs a planned one has.
pub(crate) fn case_of<'f>(fixture: &'f Fixture, planned: &Planned) -> Option<&'f Case> {
    let own = fixture.case(planned.key.width, &planned.key.arm);
    match planned.rejection {
        Some(_) => own.or_else(|| fixture.cases.first()),
        None => own,
    }
}

/// Returns every field of the case's message that section 2 gives.
pub(crate) fn fields(
    planned: &Planned,
    fixture: &Fixture,
    device: &str,
    index: u64,
    poisons: bool,
) -> Option<Map> {
    let integer = |value: u64| Json::Integer(i128::from(value));
    let list = |values: &[u64]| Json::List(values.iter().map(|value| integer(*value)).collect());
    let case = case_of(fixture, planned)?;
    let mut inputs = Map::new();
    for (role, name) in &case.inputs {
        let tensor = fixture.tensor(name)?;
        let input = Json::object([
            ("file", Json::text(format!("{}.bin", tensor.sha256))),
            ("dtype", Json::text(&tensor.dtype)),
            ("shape", list(&tensor.shape)),
            ("bytes", integer(tensor.bytes.len() as u64)),
            ("sha256", Json::text(&tensor.sha256)),
        ]);
        inputs.insert(role.clone(), input);
    }
    let mut boundaries = Vec::new();
    for boundary in &fixture.boundaries {
        let (shape, stride, offset, bytes) = boundary.at(planned.key.width)?;
        boundaries.push(Json::object([
            ("name", Json::text(&boundary.name)),
            ("storage", Json::text(&boundary.storage)),
            (
                "file",
                Json::text(format!("case-{index}-{}.bin", boundary.name)),
            ),
            ("dtype", Json::text(&boundary.dtype)),
            ("shape", list(&shape)),
            ("stride", list(&stride)),
            ("storage_offset", integer(offset)),
            ("bytes", integer(bytes)),
        ]));
    }
    let mut map = Map::new();
    map.insert("index".to_owned(), integer(index));
    map.insert("layout".to_owned(), fixture.layout.clone());
    map.insert("device".to_owned(), Json::text(device));
    map.insert(
        "parameters".to_owned(),
        Json::Object(fixture.parameters.clone()),
    );
    map.insert("inputs".to_owned(), Json::Object(inputs));
    map.insert("boundaries".to_owned(), Json::List(boundaries));
    if poisons {
        let value = if index.is_multiple_of(2) { 165 } else { 90 };
        map.insert("poison".to_owned(), integer(value));
    }
    if let Some(cycles) = planned.cycles {
        map.insert("cycles".to_owned(), integer(cycles));
    }
    Some(map)
}
