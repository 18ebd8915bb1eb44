//! All gates over one bag: what is computed again from raw files, and what that says.
//!
//! - Each failure has one reason code, and its code says whose gate it is;
//! - a gate that had nothing to ask has not passed;
//! - devices, arms and treatments are never averaged.
//!
//! Specified in `docs/format/evidence.md`, sections 8 to 12.

mod answers;
mod authority;
mod complete;
mod declared;
mod fixtures;
mod records;
mod sessions;
mod timing;

use crate::analysis::{Analysis, Basis, Gate, Kind, Row, Status, Timing, Verdict};
use crate::evidence::{Failure, Reading, leg_folder};
use crate::prereg::{Prereg, Treatment};
use crate::recipes::Recipes;
use crate::schedule::{LegPlan, schedule};
use answers::Judging;
use complete::{Matched, Matching};
use declared::{Judged, Measure};
use packhouse_bag::Contents;
use packhouse_base::digest::Digest;
use packhouse_component::name::CPU;
use sessions::{Said, Session, sessions};
use timing::TimedLeg;

/// An analysis, and every failure that it counts.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// The analysis.
    pub analysis: Analysis,
    /// All failures, also those that the analysis only counts.
    pub failures: Vec<Failure>,
}

/// The id of the lab that a bag's authority names.
pub(crate) fn lab_of(reading: &Reading) -> Option<Digest> {
    authority::lab(reading)
}

/// Judges a bag by every gate.
pub fn judge(bag: &Contents, analyzer: Digest, recipes: &Recipes) -> Judgement {
    judge_read(bag, &Reading::of(bag), analyzer, recipes)
}

/// Judges a bag that was read.
pub(crate) fn judge_read(
    bag: &Contents,
    reading: &Reading,
    analyzer: Digest,
    recipes: &Recipes,
) -> Judgement {
    let plans = match &reading.prereg {
        Some(prereg) => schedule(prereg, recipes),
        None => Vec::new(),
    };
    let mut found = Found {
        failures: reading.failures.clone(),
        ..Found::default()
    };
    let legs = legs(reading, &plans, &mut found.failures);
    found.records(bag, reading, &plans, &legs, recipes);
    let measures = found.measures(reading, &plans, &legs, recipes);
    let is_rehearsal = reading.kind() == Kind::Rehearsal;
    let is_aborted = reading.status() == Status::Aborted;
    let gates = measures
        .iter()
        .map(|measure| measure.gate(is_rehearsal, is_aborted));
    let gates: Vec<Gate> = gates.collect();
    let failures = measures
        .into_iter()
        .flat_map(|measure| measure.failures)
        .collect();
    let analysis = Analysis {
        bag: bag.digest().unwrap_or(NOTHING),
        packet: reading.packet_digest,
        analyzer,
        kind: reading.kind(),
        status: reading.status(),
        verdict: verdict(&gates, is_aborted),
        gates,
        rows: found.rows,
        timing: found.timing,
        says: says(reading, is_rehearsal, is_aborted),
    };
    Judgement { analysis, failures }
}

/// A leg with its sessions.
struct ReadLeg<'a> {
    plan: &'a LegPlan,
    path: String,
    sessions: [(Treatment, Session); 2],
}

/// The legs that have a folder and are planned.
fn legs<'a>(
    reading: &Reading,
    plans: &'a [LegPlan],
    failures: &mut Vec<Failure>,
) -> Vec<ReadLeg<'a>> {
    let with_folder = plans.iter().filter_map(|plan| {
        let leg = reading.legs.get(&plan.number)?;
        let path = format!(
            "{}/{}",
            leg_folder(plan.number),
            crate::evidence::reading::EXCHANGE
        );
        let sessions = sessions(&path, &leg.lines, failures);
        Some(ReadLeg {
            plan,
            path,
            sessions,
        })
    });
    with_folder.collect()
}

/// What was found so far.
#[derive(Default)]
struct Found {
    failures: Vec<Failure>,
    rows: Vec<Row>,
    timing: Vec<Timing>,
    answered: u64,
    cases: u64,
    longest_ns: u64,
}

impl Found {
    /// Judges the records, and all that lies beside the exchanges.
    fn records(
        &mut self,
        bag: &Contents,
        reading: &Reading,
        plans: &[LegPlan],
        legs: &[ReadLeg<'_>],
        recipes: &Recipes,
    ) {
        let failures = &mut self.failures;
        records::packet(bag, reading, failures);
        records::marker(reading, failures);
        authority::authority(reading, failures);
        records::run(reading, plans, failures);
        for leg in legs {
            let Some(read) = reading.legs.get(&leg.plan.number) else {
                continue;
            };
            records::leg(reading, read, leg.plan, &leg.sessions, failures);
            records::identities(reading, read, leg.plan.number, &leg.sessions, failures);
        }
        let all = legs
            .iter()
            .flat_map(|leg| leg.sessions.iter().map(|(_, session)| session));
        let all: Vec<&Session> = all.collect();
        fixtures::published(reading, recipes, failures);
        fixtures::drawn(reading, recipes, plans, &all, failures);
        fixtures::outputs(reading, &all, failures);
    }

    /// Judges cases, answers and tensors, and makes every gate's measure.
    fn measures(
        &mut self,
        reading: &Reading,
        plans: &[LegPlan],
        legs: &[ReadLeg<'_>],
        recipes: &Recipes,
    ) -> Vec<Measure> {
        let judged = match (&reading.prereg, &reading.run) {
            (Some(prereg), Some(run)) => {
                let source = reading.source().unwrap_or(run.nonce);
                self.judged(reading, prereg, (run.nonce, source), legs, recipes)
            }
            (Some(_) | None, Some(_) | None) => Vec::new(),
        };
        records::ends_as_answered(reading, plans, &mut self.failures);
        let demands_all = reading.status() != Status::Aborted;
        for plan in plans.iter().filter(|_| demands_all) {
            if !legs.iter().any(|leg| leg.plan.number == plan.number) {
                let path = format!("{}/exchange.jsonl", leg_folder(plan.number));
                let words = format!("{} cases were not asked", plan.asks.len());
                self.failures
                    .push(Failure::new("rows.missing", path, words));
            }
        }
        let planned = plans.iter().map(|plan| plan.asks.len() as u64).sum();
        self.budget(reading, legs);
        let mut measures = self.always(reading, planned);
        let Some(prereg) = &reading.prereg else {
            return measures;
        };
        let all: Vec<Judged<'_>> = judged.into_iter().map(|(_, judged)| judged).collect();
        measures.extend(
            prereg
                .gates
                .iter()
                .map(|rule| declared::measure(rule, &all)),
        );
        if let Some(rule) = &prereg.timing {
            let timed = legs
                .iter()
                .filter(|leg| leg.plan.kind == crate::prereg::Leg::Timing);
            let timed = timed.map(|leg| TimedLeg {
                plan: leg.plan,
                path: &leg.path,
                sessions: all
                    .iter()
                    .filter(|judged| judged.path == leg.path)
                    .collect(),
            });
            let is_asked = |leg: &TimedLeg<'_>| {
                demands_all || leg.sessions.iter().any(|one| !one.good.is_empty())
            };
            let timed: Vec<TimedLeg<'_>> = timed.filter(is_asked).collect();
            let (measure, timing) = timing::measure(rule, &timed);
            measures.push(measure);
            self.timing = timing;
        }
        measures
    }

    /// Judges every session of every leg.
    fn judged<'a>(
        &mut self,
        reading: &'a Reading,
        prereg: &'a Prereg,
        (nonce, source): (Digest, Digest),
        legs: &'a [ReadLeg<'a>],
        recipes: &'a Recipes,
    ) -> Vec<(u64, Judged<'a>)> {
        let mut all = Vec::new();
        for leg in legs {
            let matching = Matching {
                plan: leg.plan,
                path: &leg.path,
                nonce,
                source,
                recipes,
                demands_all: reading.status() != Status::Aborted,
            };
            if leg
                .sessions
                .iter()
                .all(|(_, session)| session.turns.is_empty())
            {
                matching.nothing(&mut self.failures);
                for (_, session) in &leg.sessions {
                    matching.challenges(session, &mut self.failures);
                }
                continue;
            }
            let mut in_turns: Vec<Matched<'_>> = Vec::new();
            for (treatment, session) in &leg.sessions {
                if !leg.plan.treatments().contains(treatment) {
                    continue;
                }
                let matched = matching.session(*treatment, session, &mut self.failures);
                self.count(&matched);
                let judging = Judging {
                    prereg,
                    plan: leg.plan,
                    path: &leg.path,
                    treatment: *treatment,
                    payload: &reading.payload,
                    source,
                    recipes,
                };
                let rows = &mut self.rows;
                let good = judging.session(session, &matched, rows, &mut self.failures);
                in_turns.extend(matched);
                let judged = Judged {
                    path: leg.path.clone(),
                    treatment: *treatment,
                    session,
                    good,
                };
                all.push((leg.plan.number, judged));
            }
            matching.turns(&in_turns, &mut self.failures);
        }
        all
    }

    fn count(&mut self, matched: &[Matched<'_>]) {
        for case in matched {
            let Some(reply) = &case.turn.reply else {
                continue;
            };
            self.cases += 1;
            let is_answer = matches!(reply.said, Said::Answer(_));
            self.answered += u64::from(is_answer && case.planned.rejection.is_none());
        }
    }

    /// Compares the run and each case with their limits.
    fn budget(&mut self, reading: &Reading, legs: &[ReadLeg<'_>]) {
        let Some(prereg) = &reading.prereg else {
            return;
        };
        let case_max_ns = in_ns(prereg.case_timeout_s);
        for leg in legs {
            let turns = leg.sessions.iter().flat_map(|(_, session)| &session.turns);
            for turn in turns {
                let Some(reply) = &turn.reply else {
                    continue;
                };
                let span_ns = reply.at_ns.saturating_sub(turn.asked_ns);
                self.longest_ns = self.longest_ns.max(span_ns);
                if span_ns > case_max_ns {
                    let words = format!("{span_ns} ns, at most {case_max_ns}");
                    let path = format!("{}:{}", leg.path, reply.line);
                    self.failures.push(Failure::new("budget", path, words));
                }
            }
        }
        let (run_ns, run_max_ns) = (run_ns(reading), in_ns(prereg.time_budget_s));
        if run_ns > run_max_ns {
            let words = format!("{run_ns} ns, at most {run_max_ns}");
            let path = crate::evidence::reading::RUN;
            self.failures.push(Failure::new("budget", path, words));
        }
    }

    /// The gates that are in every analysis.
    fn always(&mut self, reading: &Reading, planned: u64) -> Vec<Measure> {
        let has_answers = self.answered > 0;
        let rows = self.rows.len();
        let prereg = reading.prereg.as_ref();
        let limits = prereg.map_or((0, 0), |prereg| {
            (in_ns(prereg.time_budget_s), in_ns(prereg.case_timeout_s))
        });
        let (run_ns, longest_ns) = (run_ns(reading), self.longest_ns);
        let (answered, taken) = (self.cases, std::mem::take(&mut self.failures));
        let gate = |gate: &'static str, basis, was_asked, threshold: String| Measure {
            gate,
            basis,
            is_of_candidate: gate == "rejections",
            was_asked,
            threshold,
            measured: String::new(),
            failures: Vec::new(),
        };
        let none = |word: &str| format!("{word} = 0");
        let (run_max_ns, case_max_ns) = limits;
        let budget = format!("run <= {run_max_ns} ns, case <= {case_max_ns} ns");
        let mut measures = vec![
            gate("records", Basis::Verified, true, none("faults")),
            gate(
                "complete",
                Basis::Verified,
                true,
                format!("cases = {planned}"),
            ),
            gate("answers", Basis::Mixed, has_answers, none("faults")),
            gate(
                "equality",
                Basis::Verified,
                has_answers,
                none("unequal rows"),
            ),
            gate("identities", Basis::Verified, true, none("strangers")),
            gate("unchanged", Basis::Mixed, has_answers, none("changed")),
            gate("disjoint", Basis::Attested, has_answers, none("collisions")),
            gate("rejections", Basis::Mixed, true, none("wrong")),
            gate("budget", Basis::Verified, true, budget),
        ];
        for failure in taken {
            let gate = gate_of(failure.code);
            if let Some(measure) = measures.iter_mut().find(|measure| measure.gate == gate) {
                measure.failures.push(failure);
            }
        }
        for measure in &mut measures {
            let count = measure.failures.len();
            measure.measured = match measure.gate {
                "complete" => format!("cases = {answered}"),
                "equality" => format!("unequal rows = {count} of {rows}"),
                "budget" => format!("run = {run_ns} ns, case = {longest_ns} ns"),
                _ => {
                    let word = measure.threshold.strip_suffix(" = 0").unwrap_or_default();
                    format!("{word} = {count}")
                }
            };
        }
        measures
    }
}

/// The gate whose failures have a code.
fn gate_of(code: &str) -> &'static str {
    match code {
        "answer.input-digest" | "answer.input-changed" | "answer.input-extra" => "unchanged",
        "answer.interval" | "answer.base" | "answer.overlap" => "disjoint",
        "equality" => "equality",
        "identity" => "identities",
        "rejection" => "rejections",
        "budget" => "budget",
        code if code.starts_with("answer.") => "answers",
        code if code.starts_with("rows.") || code.starts_with("case.") => "complete",
        _ => "records",
    }
}

fn verdict(gates: &[Gate], is_aborted: bool) -> Verdict {
    let mut deciding = gates.iter().filter(|gate| gate.decides);
    match (is_aborted, deciding.all(|gate| gate.passed == Some(true))) {
        (true, _) => Verdict::Abort,
        (false, true) => Verdict::Pass,
        (false, false) => Verdict::Fail,
    }
}

/// Whether a run's marker is of the first schema: it has no salt.
fn is_first(reading: &Reading) -> bool {
    let marker = reading.marker.as_ref();
    marker.is_some_and(|marker| marker.salt.is_none())
}

/// What is said of drawn inputs: those of a marker without a salt came from the nonce.
fn drawn_says(reading: &Reading) -> &'static str {
    let salt = reading.marker.as_ref().and_then(|marker| marker.salt);
    let has_drawn = !reading.payload.below("drawn").files().is_empty();
    match (has_drawn || is_first(reading), salt) {
        (false, _) => SAYS_NONE_DRAWN,
        (true, Some(_)) => SAYS_DRAWN_SALT,
        (true, None) => SAYS_DRAWN_NONCE,
    }
}

/// What a bag alone can't prove.
fn says(reading: &Reading, is_rehearsal: bool, is_aborted: bool) -> Vec<String> {
    let mut always = SAYS.to_vec();
    always.push(drawn_says(reading));
    always.push(match is_first(reading) {
        true => SAYS_MAPPED_FIRST,
        false => SAYS_MAPPED,
    });
    let prereg = reading.prereg.as_ref().filter(|_| !is_first(reading));
    let has_cards =
        prereg.is_some_and(|prereg| prereg.matrix.devices.iter().any(|name| name != CPU));
    always.extend(has_cards.then_some(SAYS_DEVICES));
    let rehearsal = is_rehearsal.then_some(SAYS_REHEARSAL);
    let aborted = is_aborted.then_some(SAYS_ABORTED);
    let always = always.into_iter();
    always
        .chain(rehearsal)
        .chain(aborted)
        .map(str::to_owned)
        .collect()
}

fn run_ns(reading: &Reading) -> u64 {
    let run = reading.run.as_ref();
    let started = run
        .and_then(|run| run.started)
        .map(|started| started.steady_ns);
    let ended = run.map(|run| run.ended.steady_ns);
    started
        .zip(ended)
        .map_or(0, |(started, ended)| ended.saturating_sub(started))
}

fn in_ns(seconds: u64) -> u64 {
    seconds.saturating_mul(1_000_000_000)
}

const NOTHING: Digest = Digest::from_bytes([0; 32]);
const SAYS: [&str; 3] = [
    "when the preregistration was written: the ledger's chain and its copies elsewhere say that",
    "that no other run was made: the marker and the ledger's nonce say that, on the hosts that \
     share them",
    "addresses, witnesses, capture state, warnings, denials, poison and timed nanoseconds are \
     attested by the program",
];
const SAYS_MAPPED: &str = "mapped files are those of a program and of what it had started when it \
                           was looked at: what came and went between, code without a file and \
                           who computes elsewhere are not seen";
const SAYS_MAPPED_FIRST: &str = "mapped files are those of a program and of what it had started \
                                 when it was looked at: a process that came and went between is \
                                 not seen";
const SAYS_DRAWN_NONCE: &str = "drawn inputs follow from the nonce by the fixture's recipe, which \
                                a reader without the recipes can't repeat";
const SAYS_DRAWN_SALT: &str = "drawn inputs follow from the marker's salt by the fixture's recipe, \
                               which a reader without the recipes can't repeat";
const SAYS_NONE_DRAWN: &str = "no input was drawn: a program that has the published answers and \
                               computes nothing would pass";
const SAYS_DEVICES: &str = "that a case was computed on its device is attested by the program; \
                            that the host had it, and who held it, by the controller";
const SAYS_REHEARSAL: &str = "this was a rehearsal: a null program played the candidate";
const SAYS_ABORTED: &str = "the run did not end by itself: nothing after its end was judged";
