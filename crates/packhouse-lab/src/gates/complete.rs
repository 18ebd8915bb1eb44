//! Whether exactly what was planned was asked: no case missing, invented, doubled or out of order,
//! and none with another field than the plan gives.

use super::sessions::{Session, Turn};
use crate::evidence::Failure;
use crate::prereg::Treatment;
use crate::recipes::{Made, Recipes, challenge};
use crate::schedule::{LegPlan, PlannedCase, case_of, rejected_case};
use packhouse_base::digest::Digest;
use packhouse_component::message::{CaseOrder, InputFile, Introduction, Wanted};
use std::collections::BTreeMap;

/// What all sessions of a leg are matched with.
pub(crate) struct Matching<'a> {
    /// The leg.
    pub(crate) plan: &'a LegPlan,
    /// Path of its exchange.
    pub(crate) path: &'a str,
    /// The nonce.
    pub(crate) nonce: Digest,
    /// What inputs were drawn from.
    pub(crate) source: Digest,
    /// Where fixtures come from.
    pub(crate) recipes: &'a Recipes,
    /// Whether what is missing is a failure.
    pub(crate) demands_all: bool,
}

/// A case that was asked and planned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matched<'a> {
    /// What was planned.
    pub(crate) planned: &'a PlannedCase,
    /// What came of it.
    pub(crate) turn: &'a Turn,
}

impl<'a> Matching<'a> {
    /// Matches the cases of one session with the plan, in the order of asking.
    pub(crate) fn session(
        &self,
        treatment: Treatment,
        session: &'a Session,
        failures: &mut Vec<Failure>,
    ) -> Vec<Matched<'a>> {
        self.challenges(session, failures);
        let planned: Vec<&PlannedCase> = self.plan.asks_of(treatment).collect();
        let mut is_asked = vec![false; planned.len()];
        let mut matched = Vec::new();
        let mut next = 0;
        for (position, turn) in session.turns.iter().enumerate() {
            let is_it = |at: &usize| !is_asked[*at] && planned[*at].key() == key(&turn.order);
            let found = (next..planned.len()).chain(0..next).find(is_it);
            let Some(found) = found else {
                let before = position
                    .checked_sub(1)
                    .map(|before| &session.turns[before].order);
                let is_again = before.is_some_and(|before| key(before) == key(&turn.order));
                let code = if is_again {
                    "rows.doubled"
                } else {
                    "rows.extra"
                };
                failures.push(self.failure(code, turn.line, in_words(&turn.order)));
                continue;
            };
            if found < next {
                failures.push(self.failure("rows.order", turn.line, in_words(&turn.order)));
            }
            is_asked[found] = true;
            next = next.max(found + 1);
            self.fields(planned[found], turn, position, session, failures);
            matched.push(Matched {
                planned: planned[found],
                turn,
            });
        }
        if self.demands_all {
            let missing = planned
                .iter()
                .zip(&is_asked)
                .filter(|(_, is_asked)| !**is_asked);
            for (planned, _) in missing {
                let words = format!("{} was not asked for {}", planned.words(), treatment.word());
                failures.push(Failure::new("rows.missing", self.path, words));
            }
        }
        matched
    }

    /// Whether both programs of a leg were asked in turns as planned.
    pub(crate) fn turns(&self, matched: &[Matched<'a>], failures: &mut Vec<Failure>) {
        let mut in_time: Vec<&Matched<'_>> = matched.iter().collect();
        in_time.sort_by_key(|matched| matched.turn.line);
        let is_there = |ask: &&PlannedCase| {
            let mut planned = matched.iter().map(|matched| matched.planned);
            planned.any(|planned| std::ptr::eq(planned, *ask))
        };
        let planned = self.plan.asks.iter().filter(is_there);
        for (planned, matched) in planned.zip(in_time) {
            if !std::ptr::eq(planned, matched.planned) {
                let words = format!("{} was not next", matched.planned.words());
                failures.push(self.failure("rows.order", matched.turn.line, words));
                return;
            }
        }
    }

    /// A leg without a line: everything is missing at once.
    pub(crate) fn nothing(&self, failures: &mut Vec<Failure>) {
        if self.demands_all {
            let words = format!("{} cases were not asked", self.plan.asks.len());
            failures.push(Failure::new("rows.missing", self.path, words));
        }
    }

    /// Both sides of a session give the challenge that follows from the nonce.
    pub(crate) fn challenges(&self, session: &Session, failures: &mut Vec<Failure>) {
        let expected = challenge(self.nonce, self.plan.number);
        let greeting = session.greeting.iter();
        let greeting = greeting.map(|(line, greeting)| (*line, greeting.challenge));
        let introduction = session.introduction.iter();
        let introduction = introduction.map(|(line, hello)| (*line, hello.challenge));
        for (line, actual) in greeting.chain(introduction) {
            if actual != expected {
                let words = format!("{actual}, expected {expected}");
                failures.push(self.failure("case.challenge", line, words));
            }
        }
    }

    /// Compares every field of a case with the plan's.
    fn fields(
        &self,
        planned: &PlannedCase,
        turn: &Turn,
        position: usize,
        session: &Session,
        failures: &mut Vec<Failure>,
    ) {
        let hello = session.introduced();
        let poisons = hello.is_some_and(|hello| hello.poisons);
        let times = hello.is_some_and(|hello| hello.times);
        // Rejections are asked for what the program does not offer.
        let is_rejection = planned.rejection.is_some();
        let has_device = hello.is_none_or(|hello| hello.devices.contains(&self.plan.device));
        let Some(made) = self
            .recipes
            .repeat(&planned.fixture, planned.repeat, self.source)
        else {
            return;
        };
        let Some(expected) = expected(planned, position as u64, &self.plan.device, &made, poisons)
        else {
            return;
        };
        let order = &turn.order;
        let differences = [
            ("case.index", expected.index == order.index),
            ("case.layout", expected.layout == order.layout),
            (
                "case.device",
                expected.device == order.device && (is_rejection || has_device),
            ),
            ("case.parameters", expected.parameters == order.parameters),
            ("case.inputs", expected.inputs == order.inputs),
            ("case.boundaries", expected.boundaries == order.boundaries),
            ("case.poison", expected.poison == order.poison),
            (
                "case.cycles",
                expected.cycles == order.cycles && (times || order.cycles.is_none()),
            ),
        ];
        for (code, is_equal) in differences {
            if !is_equal {
                failures.push(self.failure(code, turn.line, planned.words()));
            }
        }
        if let Some(hello) = hello.filter(|_| !is_rejection) {
            self.offered(planned, turn, hello, failures);
        }
    }

    /// The program's hello offers the fixture, arm and width that it was asked for.
    fn offered(
        &self,
        planned: &PlannedCase,
        turn: &Turn,
        hello: &Introduction,
        failures: &mut Vec<Failure>,
    ) {
        let mut offers = hello.kernels.iter();
        let offer = offers.find(|offer| offer.fixture == planned.fixture);
        let offered = match offer {
            None => vec![("case.fixture", false)],
            Some(offer) => vec![
                ("case.arm", offer.arms.contains(&planned.arm)),
                ("case.width", offer.widths.contains(&planned.width)),
            ],
        };
        for (code, is_offered) in offered {
            if !is_offered {
                let words = format!("{}: not in the program's hello", planned.words());
                failures.push(self.failure(code, turn.line, words));
            }
        }
    }

    fn failure(&self, code: &'static str, line: u64, words: String) -> Failure {
        Failure::new(code, format!("{}:{line}", self.path), words)
    }
}

impl PlannedCase {
    fn key(&self) -> Key<'_> {
        (
            &self.fixture,
            &self.arm,
            self.width,
            self.repeat,
            self.cycles.is_some(),
        )
    }

    /// The case in words.
    pub(crate) fn words(&self) -> String {
        words(self.key())
    }
}

/// The case that the plan gives; none where the fixture has nothing for it.
fn expected(
    planned: &PlannedCase,
    index: u64,
    device: &str,
    made: &Made,
    poisons: bool,
) -> Option<CaseOrder> {
    let fixture = &made.fixture;
    let case = match planned.rejection {
        None => case_of(fixture, &planned.arm, planned.width)?,
        Some(_) => rejected_case(fixture, &planned.arm, planned.width)?,
    };
    let input = |(role, name): (&String, &String)| {
        let (tensor, sha256) = (fixture.tensors.get(name)?, *made.digests.get(name)?);
        let input = InputFile {
            file: format!("{sha256}.bin"),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            bytes: tensor.bytes.len() as u64,
            sha256,
        };
        Some((role.clone(), input))
    };
    let inputs: Option<BTreeMap<String, InputFile>> = case.inputs.iter().map(input).collect();
    let wanted = |boundary: &packhouse_component::Boundary| {
        let form = boundary.form(planned.width).ok()?;
        Some(Wanted {
            name: boundary.name.clone(),
            storage: boundary.storage.clone(),
            file: format!("case-{index}-{}.bin", boundary.name),
            form,
        })
    };
    let boundaries: Option<Vec<Wanted>> = fixture.boundaries.iter().map(wanted).collect();
    Some(CaseOrder {
        index,
        fixture: planned.fixture.clone(),
        layout: fixture.layout.clone(),
        device: device.to_owned(),
        arm: planned.arm.clone(),
        width: planned.width,
        repeat: planned.repeat,
        parameters: fixture.told_parameters(),
        inputs: inputs?,
        boundaries: boundaries?,
        poison: poisons.then(|| crate::schedule::poison(index)),
        cycles: planned.cycles,
    })
}

/// What a case is matched by.
type Key<'a> = (&'a str, &'a str, u64, u64, bool);

fn key(order: &CaseOrder) -> Key<'_> {
    let is_timed = order.cycles.is_some();
    (
        &order.fixture,
        &order.arm,
        order.width,
        order.repeat,
        is_timed,
    )
}

fn in_words(order: &CaseOrder) -> String {
    words(key(order))
}

fn words((fixture, arm, width, repeat, is_timed): Key<'_>) -> String {
    let timed = if is_timed { ", timed" } else { "" };
    format!("{fixture}, arm {arm}, width {width}, repeat {repeat}{timed}")
}
