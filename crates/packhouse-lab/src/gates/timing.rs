//! A-B-B-A blocks of each timing leg: what each saved per cycle, and whether that is enough.

use super::declared::{Judged, Measure};
use crate::analysis::{Basis, Ratio, Timing};
use crate::evidence::Failure;
use crate::prereg::{self, Treatment};
use crate::schedule::{LegPlan, TIMED_REPEAT};
use packhouse_gate::blocks::median_percent;
use packhouse_gate::text::shortest;
use packhouse_gate::{Paired, Rational, Spans, Unpaired};
use std::collections::BTreeMap;

/// A timing leg with its two sessions.
pub(crate) struct TimedLeg<'a> {
    /// The leg.
    pub(crate) plan: &'a LegPlan,
    /// Path of its exchange.
    pub(crate) path: &'a str,
    /// Its sessions.
    pub(crate) sessions: Vec<&'a Judged<'a>>,
}

/// Judges every timing leg by itself.
pub(crate) fn measure(rule: &prereg::Timing, legs: &[TimedLeg<'_>]) -> (Measure, Vec<Timing>) {
    let (mut timings, mut failures, mut told) = (Vec::new(), Vec::new(), Vec::new());
    for leg in legs {
        let Some(blocks) = leg.blocks(rule) else {
            let words = "not every timed case has an answer without a fault";
            failures.push(Failure::new("timing.missing", leg.path, words));
            continue;
        };
        let (paired, percent) = match figures(rule, &blocks) {
            Ok(figures) => figures,
            Err(error) => {
                failures.push(Failure::new("timing.span", leg.path, error));
                continue;
            }
        };
        let device = &leg.plan.device;
        told.push(format!(
            "{device}: wins = {} of {}, median = {} ns{}",
            paired.wins,
            blocks.len(),
            paired.median,
            percent.map_or(String::new(), |it| format!(", {} %", it)),
        ));
        failures.extend(missed(rule, leg, &paired));
        failures.extend(missed_percent(rule, leg, percent));
        failures.extend(leg.unconfirmed());
        timings.push(timing(leg.plan, &paired));
    }
    let (wins, blocks, saving) = (
        rule.minimum_wins,
        rule.blocks,
        rule.minimum_median_saving_ns,
    );
    let measure = Measure {
        gate: "timing",
        basis: Basis::Mixed,
        is_of_candidate: true,
        was_asked: !timings.is_empty(),
        threshold: format!(
            "wins >= {wins} of {blocks}, median >= {saving} ns{} on every device",
            rule.minimum_median_saving_percent
                .map_or(String::new(), |least| format!(" and >= {least} %"))
        ),
        measured: match told.is_empty() {
            true => "nothing".to_owned(),
            false => told.join("; "),
        },
        failures,
    };
    (measure, timings)
}

impl TimedLeg<'_> {
    /// The spans of all blocks; none where one is not there.
    fn blocks(&self, rule: &prereg::Timing) -> Option<Vec<Spans>> {
        let control = self.spans(Treatment::Control);
        let candidate = self.spans(Treatment::Candidate);
        let block = |block| {
            let [control_ns, candidate_ns] = [&control, &candidate].map(|spans| {
                let spans = spans.get(&(TIMED_REPEAT + block))?;
                <[u64; 2]>::try_from(spans.as_slice()).ok()
            });
            Some(Spans {
                control_ns: control_ns?,
                candidate_ns: candidate_ns?,
            })
        };
        (0..rule.blocks).map(block).collect()
    }

    /// Repeat to the nanoseconds of its timed cases, in their order.
    fn spans(&self, treatment: Treatment) -> BTreeMap<u64, Vec<u64>> {
        let mut spans: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        let sessions = self
            .sessions
            .iter()
            .filter(|one| one.treatment == treatment);
        for good in sessions.flat_map(|one| &one.good) {
            if let Some(timed) = good.checked.attested().timed {
                spans
                    .entry(good.case.planned.repeat)
                    .or_default()
                    .push(timed.elapsed_ns);
            }
        }
        spans
    }
}

impl TimedLeg<'_> {
    /// What the programs' words save over all blocks, if the controller's own spans do not bear out
    /// half of it: a program that tells too little time still can't answer sooner.
    fn unconfirmed(&self) -> Option<Failure> {
        let (mut claimed_ns, mut spent_ns) = (0_i128, 0_i128);
        for session in &self.sessions {
            let sign = match session.treatment {
                Treatment::Control => 1,
                Treatment::Candidate => -1,
            };
            for good in &session.good {
                let turn = good.case.turn;
                if let (Some(timed), Some(reply)) = (good.checked.attested().timed, &turn.reply) {
                    let span_ns = reply.at_ns.saturating_sub(turn.asked_ns);
                    claimed_ns += sign * i128::from(timed.elapsed_ns);
                    spent_ns += sign * i128::from(span_ns);
                }
            }
        }
        let is_borne_out = claimed_ns <= 0 || 2 * spent_ns >= claimed_ns;
        let device = &self.plan.device;
        let words = format!(
            "{device}: {claimed_ns} ns saved by what was told, {spent_ns} ns by the controller"
        );
        (!is_borne_out).then(|| Failure::new("timing.unconfirmed", self.path, words))
    }
}

/// The figures of a leg, and the median as percent of the control's where that is asked for.
fn figures(
    rule: &prereg::Timing,
    blocks: &[Spans],
) -> Result<(Paired, Option<Rational>), Unpaired> {
    let paired = Paired::of(rule.cycles, blocks)?;
    let is_asked = rule.minimum_median_saving_percent.is_some();
    let percent = is_asked.then(|| median_percent(blocks));
    Ok((paired, percent.transpose()?))
}

/// The threshold in percent, where a leg misses it.
fn missed_percent(
    rule: &prereg::Timing,
    leg: &TimedLeg<'_>,
    percent: Option<Rational>,
) -> Option<Failure> {
    let (least, percent) = (rule.minimum_median_saving_percent?, percent?);
    let is_met = percent >= Rational::new(i128::from(least), 1)?;
    let device = &leg.plan.device;
    let words = format!("{device}: median {percent} % of the control's, expected {least} or more");
    (!is_met).then(|| Failure::new("timing.percent", leg.path, words))
}

/// The thresholds that a leg misses.
fn missed(rule: &prereg::Timing, leg: &TimedLeg<'_>, paired: &Paired) -> Vec<Failure> {
    let mut failures = Vec::new();
    let device = &leg.plan.device;
    let (wins, minimum_wins) = (paired.wins, rule.minimum_wins);
    if wins < minimum_wins {
        let words = format!("{device}: {wins} wins, expected {minimum_wins} or more");
        failures.push(Failure::new("timing.wins", leg.path, words));
    }
    let minimum = rule.minimum_median_saving_ns;
    if !paired.meets(0, minimum) {
        let median = paired.median;
        let words = format!("{device}: median {median} ns per cycle, expected {minimum} or more");
        failures.push(Failure::new("timing.median", leg.path, words));
    }
    failures
}

fn timing(plan: &LegPlan, paired: &Paired) -> Timing {
    Timing {
        leg: plan.number,
        device: plan.device.clone(),
        blocks: paired.savings.len() as u64,
        wins: paired.wins,
        savings: paired.savings.iter().copied().map(ratio).collect(),
        median: ratio(paired.median),
        sign_test_p: shortest(paired.sign.two_sided),
        hodges_lehmann: ratio(paired.hodges_lehmann),
        bootstrap_lower_95: ratio(paired.bootstrap_lower_95),
    }
}

fn ratio(rational: Rational) -> Ratio {
    let denominator = u64::try_from(rational.denominator());
    Ratio {
        numerator: rational.numerator().to_string(),
        denominator: denominator.expect("because cycles are bounded"),
    }
}
