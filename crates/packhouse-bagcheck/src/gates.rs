//! Gates: `docs/format/evidence.md`, section 8.

use crate::content::Content;
use crate::documents::{Gate as Asked, Prereg};
use crate::exchange::Session;
use crate::json::Json;
use crate::legs::{Judged, Leg};
use crate::report::{Report, Verdict};
use crate::timing::{self, Figures};
use std::collections::{BTreeMap, BTreeSet};

/// One gate as it was found.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    /// Its name.
    pub(crate) name: &'static str,
    /// Who knows it.
    pub(crate) basis: &'static str,
    /// Whether the verdict hangs on it.
    pub(crate) decides: bool,
    /// Whether it passed; none where there was nothing to judge.
    pub(crate) passed: Option<bool>,
    /// What must be.
    pub(crate) threshold: String,
    /// What is.
    pub(crate) measured: String,
    /// Code and path of each failure.
    pub(crate) failures: Vec<(&'static str, String)>,
}

/// Everything that an analysis of the bag must say.
#[derive(Debug)]
pub(crate) struct Judgement {
    /// The gates in order.
    pub(crate) gates: Vec<Gate>,
    /// Figures of each timing leg.
    pub(crate) timing: Vec<Figures>,
    /// The rows as `analysis.json` has them.
    pub(crate) rows: Vec<Json>,
    /// The outcome.
    pub(crate) verdict: Verdict,
}

/// Judges the gates of a payload that was read; failures that only gates find go into its report.
pub(crate) fn judge(content: &mut Content) -> Judgement {
    let mut report = std::mem::take(&mut content.report);
    run_budget(&mut report, content);
    let prereg = content.prereg.clone();
    let listed: Vec<Asked> = prereg
        .as_ref()
        .map_or_else(Vec::new, |prereg| prereg.gates.clone());
    let mut witnessed = Vec::new();
    for gate in &listed {
        witnessed.push(ask(&mut report, content, gate));
    }
    let mut figures = Vec::new();
    if let Some(timing) = prereg.as_ref().and_then(|prereg| prereg.timing.as_ref()) {
        for leg in content.legs.iter().filter(|leg| leg.plan.is_timing) {
            let has_sound = leg.answers.iter().any(|judged| judged.is_sound);
            if leg.has_lines && !content.is_aborted() || has_sound {
                figures.extend(timing::judge(&mut report, leg, timing));
            }
        }
    }
    content.report = report;
    let mut gates: Vec<Gate> = ALWAYS
        .iter()
        .map(|(name, basis)| content.always(name, basis, prereg.as_ref()))
        .collect();
    for (gate, witness) in listed.iter().zip(witnessed) {
        gates.push(content.listed(gate, witness));
    }
    if prereg
        .as_ref()
        .is_some_and(|prereg| prereg.legs.contains(&None))
    {
        gates.push(content.timing(prereg.as_ref(), &figures));
    }
    let is_passed = |gate: &Gate| !gate.decides || gate.passed == Some(true);
    let verdict = match content.is_aborted() {
        true => Verdict::Abort,
        false if gates.iter().all(is_passed) => Verdict::Pass,
        false => Verdict::Fail,
    };
    Judgement {
        rows: rows(&content.legs),
        gates,
        timing: figures,
        verdict,
    }
}

const ALWAYS: [(&str, &str); 9] = [
    ("records", "verified"),
    ("complete", "verified"),
    ("answers", "mixed"),
    ("equality", "verified"),
    ("identities", "verified"),
    ("unchanged", "mixed"),
    ("disjoint", "attested"),
    ("rejections", "mixed"),
    ("budget", "verified"),
];

/// Returns the gate that a failure is of, by its code.
fn gate_of(code: &str) -> &'static str {
    match code {
        "answer.input-digest" | "answer.input-changed" | "answer.input-extra" => "unchanged",
        "answer.interval" | "answer.base" | "answer.overlap" => "disjoint",
        "equality" => "equality",
        "identity" => "identities",
        "rejection" => "rejections",
        "budget" => "budget",
        "inputs.stale" => "fresh-inputs",
        "pointers.moved" => "stable-pointers",
        "poison" => "poisoned",
        "warning" => "no-warnings",
        "capture" => "capture-idle",
        "witness" => "witness",
        "denial" => "denial",
        _ => match code.split('.').next() {
            Some("rows" | "case") => "complete",
            Some("answer") => "answers",
            Some("timing") => "timing",
            _ => "records",
        },
    }
}

impl Content {
    fn failures(&self, gate: &str) -> Vec<(&'static str, String)> {
        let all = self.report.findings.iter();
        all.filter(|finding| gate_of(finding.code) == gate)
            .map(|finding| (finding.code, finding.path.clone()))
            .collect()
    }

    fn passed(&self, failures: usize, has_asked: bool) -> Option<bool> {
        match failures {
            0 if self.is_aborted() || !has_asked => None,
            0 => Some(true),
            _ => Some(false),
        }
    }

    fn replies(&self) -> usize {
        let sessions = self
            .legs
            .iter()
            .flat_map(|leg| leg.exchange.sessions.values());
        sessions
            .flat_map(|session| &session.asked)
            .filter(|asked| asked.reply.is_some())
            .count()
    }

    fn always(&self, name: &'static str, basis: &'static str, prereg: Option<&Prereg>) -> Gate {
        let failures = self.failures(name);
        let count = failures.len();
        let answers: Vec<&Judged> = self.legs.iter().flat_map(|leg| &leg.answers).collect();
        let counted = |what: &str| (format!("{what} = 0"), format!("{what} = {count}"));
        let (threshold, measured) = match name {
            "complete" => {
                let planned: usize = self.legs.iter().map(|leg| leg.plan.cases.len()).sum();
                (
                    format!("cases = {planned}"),
                    format!("cases = {}", self.replies()),
                )
            }
            "equality" => {
                let rows: usize = answers.iter().map(|answer| answer.rows.len()).sum();
                let measured = format!("unequal rows = {count} of {rows}");
                ("unequal rows = 0".to_owned(), measured)
            }
            "identities" => counted("strangers"),
            "unchanged" => counted("changed"),
            "disjoint" => counted("collisions"),
            "rejections" => counted("wrong"),
            "budget" => self.budget(prereg),
            _ => counted("faults"),
        };
        let asks_answers = ["answers", "equality", "unchanged", "disjoint"].contains(&name);
        Gate {
            name,
            basis,
            decides: name != "rejections" || !self.is_rehearsal(),
            passed: self.passed(count, !asks_answers || !answers.is_empty()),
            threshold,
            measured,
            failures,
        }
    }

    fn budget(&self, prereg: Option<&Prereg>) -> (String, String) {
        let ns = |seconds: u64| u128::from(seconds) * 1_000_000_000;
        let threshold = prereg.map_or_else(String::new, |prereg| {
            let (run, case) = (ns(prereg.time_budget_s), ns(prereg.case_timeout_s));
            format!("run <= {run} ns, case <= {case} ns")
        });
        let run = self.run.as_ref().and_then(run_ns).unwrap_or(0);
        let sessions = self
            .legs
            .iter()
            .flat_map(|leg| leg.exchange.sessions.values());
        let spans = sessions
            .flat_map(|session| &session.asked)
            .filter_map(|asked| {
                let (_, at_ns, _) = asked.reply.as_ref()?;
                at_ns.checked_sub(asked.at_ns)
            });
        let case = spans.max().unwrap_or(0);
        (threshold, format!("run = {run} ns, case = {case} ns"))
    }

    /// Returns the sessions of the candidate with their leg.
    fn candidates(&self) -> impl Iterator<Item = (&Leg, &Session)> {
        self.legs.iter().filter_map(|leg| {
            let session = leg.exchange.sessions.get("candidate")?;
            Some((leg, session))
        })
    }

    fn listed(&self, gate: &Asked, witness: Option<(Vec<(&'static str, String)>, u64)>) -> Gate {
        let mut answers = self.legs.iter().flat_map(|leg| &leg.answers);
        let has_answer = self.legs.iter().any(|leg| !leg.answers.is_empty());
        let has_sound = answers.any(|own| own.treatment == "candidate" && own.is_sound);
        let has_hello = self
            .candidates()
            .any(|(_, session)| session.hello.is_some());
        let (name, basis, what, has_asked) = match gate {
            Asked::FreshInputs => ("fresh-inputs", "verified", "stale", has_answer),
            Asked::StablePointers => ("stable-pointers", "attested", "moved", has_sound),
            Asked::Poisoned => ("poisoned", "attested", "unpoisoned", has_hello),
            Asked::NoWarnings => ("no-warnings", "attested", "warnings", has_sound),
            Asked::CaptureIdle => ("capture-idle", "attested", "not idle", has_sound),
            Asked::Witness { .. } => ("witness", "attested", "", has_sound),
            Asked::Denial(_) => ("denial", "attested", "", has_hello),
        };
        let mut failures = self.failures(name);
        let count = failures.len();
        let (threshold, measured) = match gate {
            Asked::Witness {
                path,
                counter,
                minimum,
            } => {
                let (own, least) = witness.unwrap_or_default();
                failures = own;
                let name = format!("{path}.{counter}");
                (format!("{name} >= {minimum}"), format!("{name} = {least}"))
            }
            Asked::Denial(names) => {
                let is_denied = |name: &&String| {
                    let mut hellos = self
                        .candidates()
                        .filter_map(|(_, session)| session.hello.as_ref());
                    has_hello && hellos.all(|(_, hello)| hello.denies.contains(name))
                };
                let denied: Vec<&String> = names.iter().filter(is_denied).collect();
                (denial(&names.iter().collect::<Vec<_>>()), denial(&denied))
            }
            Asked::FreshInputs
            | Asked::StablePointers
            | Asked::Poisoned
            | Asked::NoWarnings
            | Asked::CaptureIdle => (format!("{what} = 0"), format!("{what} = {count}")),
        };
        Gate {
            name,
            basis,
            decides: name == "fresh-inputs" || !self.is_rehearsal(),
            passed: self.passed(failures.len(), has_asked),
            threshold,
            measured,
            failures,
        }
    }

    fn timing(&self, prereg: Option<&Prereg>, figures: &[Figures]) -> Gate {
        let failures = self.failures("timing");
        let threshold = prereg
            .and_then(|prereg| prereg.timing.as_ref())
            .map(|timing| {
                let (wins, blocks) = (timing.minimum_wins, timing.blocks);
                let least = timing.minimum_saving_ns;
                let percent = timing.minimum_saving_percent;
                let percent = percent.map_or(String::new(), |it| format!(" and >= {it} %"));
                format!("wins >= {wins} of {blocks}, median >= {least} ns{percent} on every device")
            });
        let measured: Vec<String> = figures.iter().map(Figures::measured).collect();
        Gate {
            name: "timing",
            basis: "mixed",
            decides: !self.is_rehearsal(),
            passed: self.passed(failures.len(), !figures.is_empty()),
            threshold: threshold.unwrap_or_default(),
            measured: match measured.is_empty() {
                true => "nothing".to_owned(),
                false => measured.join("; "),
            },
            failures,
        }
    }
}

fn denial(names: &[&String]) -> String {
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    match names.is_empty() {
        true => "denies nothing".to_owned(),
        false => format!("denies {}", names.join(", ")),
    }
}

fn run_ns(run: &crate::run::Run) -> Option<u64> {
    run.ended.steady_ns.checked_sub(run.started?.steady_ns)
}

fn run_budget(report: &mut Report, content: &Content) {
    let (Some(run), Some(prereg)) = (&content.run, &content.prereg) else {
        return;
    };
    let most = prereg.time_budget_s.saturating_mul(1_000_000_000);
    if let Some(ns) = run_ns(run).filter(|ns| *ns > most) {
        report.find("budget", "run.json", format!("{ns} ns, at most {most}"));
    }
}

/// Asks what a listed gate asks. Returns the failures and least count of a witness.
fn ask(
    report: &mut Report,
    content: &Content,
    gate: &Asked,
) -> Option<(Vec<(&'static str, String)>, u64)> {
    let sound: Vec<(&Leg, &Judged)> = content
        .legs
        .iter()
        .flat_map(|leg| leg.answers.iter().map(move |judged| (leg, judged)))
        .filter(|(_, judged)| judged.treatment == "candidate" && judged.is_sound)
        .collect();
    match gate {
        Asked::FreshInputs => fresh(report, content),
        Asked::StablePointers => stable(report, &sound),
        Asked::Poisoned => {
            for (path, hello) in hellos(content) {
                if !hello.poisons {
                    report.find("poison", &path, "the program does not poison");
                }
            }
        }
        Asked::NoWarnings => {
            for (_, judged) in &sound {
                for warning in &judged.answer.warnings {
                    report.find("warning", &judged.path, crate::shape::short(warning));
                }
            }
        }
        Asked::CaptureIdle => {
            for (_, judged) in &sound {
                if judged.answer.capture != "idle" {
                    report.find("capture", &judged.path, judged.answer.capture.clone());
                }
            }
        }
        Asked::Witness {
            path,
            counter,
            minimum,
        } => {
            let mut failures = Vec::new();
            let mut least = None;
            for (_, judged) in &sound {
                let own = judged
                    .answer
                    .witnesses
                    .iter()
                    .filter(|(name, _)| name == path);
                let count = own.filter_map(|(_, counters)| counters.get(counter)).max();
                let count = count.copied().unwrap_or(0);
                least = Some(least.map_or(count, |least: u64| least.min(count)));
                if count < *minimum {
                    let words = format!("{path}.{counter} = {count}, at least {minimum}");
                    report.find("witness", &judged.path, words);
                    failures.push(("witness", judged.path.clone()));
                }
            }
            return Some((failures, least.unwrap_or(0)));
        }
        Asked::Denial(names) => {
            for (path, hello) in hellos(content) {
                for name in names.iter().filter(|name| !hello.denies.contains(name)) {
                    report.find("denial", &path, format!("does not deny {name}"));
                }
            }
        }
    }
    None
}

/// Returns each hello of the candidate with its line.
fn hellos(content: &Content) -> Vec<(String, crate::messages::Hello)> {
    let all = content.candidates().filter_map(|(leg, session)| {
        let (line, hello) = session.hello.as_ref()?;
        let path = format!("legs/{:02}/exchange.jsonl:{line}", leg.plan.number);
        Some((path, hello.clone()))
    });
    all.collect()
}

/// Finds cases that have the inputs of an earlier one: of another width, or of another repeat.
fn fresh(report: &mut Report, content: &Content) {
    for leg in &content.legs {
        let rejected: BTreeSet<_> = leg
            .plan
            .cases
            .iter()
            .filter(|(_, planned)| planned.rejection.is_some())
            .map(|(_, planned)| &planned.key)
            .collect();
        for session in leg.exchange.sessions.values() {
            let asked: Vec<_> = session
                .asked
                .iter()
                .filter(|asked| !rejected.contains(&asked.case.key))
                .map(|asked| {
                    let inputs = asked.case.inputs.iter();
                    let inputs: Vec<_> = inputs.map(|(role, own)| (role, &own.sha256)).collect();
                    (asked, inputs)
                })
                .collect();
            let mut earlier: BTreeMap<_, Vec<_>> = BTreeMap::new();
            for (asked, inputs) in asked {
                let key = &asked.case.key;
                let others = earlier.entry((&key.fixture, inputs)).or_default();
                let is_stale = others.iter().any(|other: &&crate::messages::Key| {
                    other.width != key.width || (other.arm == key.arm && other.repeat != key.repeat)
                });
                if is_stale {
                    let path = format!("legs/{:02}/exchange.jsonl:{}", leg.plan.number, asked.line);
                    report.find("inputs.stale", &path, format!("{key} has inputs of before"));
                }
                others.push(key);
            }
        }
    }
}

/// Finds boundaries that lay elsewhere than at the first case of their cell.
fn stable(report: &mut Report, sound: &[(&Leg, &Judged)]) {
    let mut first: BTreeMap<_, (String, u64, u64)> = BTreeMap::new();
    for (leg, judged) in sound {
        let key = &judged.key;
        for written in &judged.answer.boundaries {
            let name = &written.form.name;
            let cell = (leg.plan.number, &key.fixture, &key.arm, key.width, name);
            let place = (written.device.clone(), written.start, written.end);
            let was = first.entry(cell).or_insert_with(|| place.clone());
            if *was != place {
                let words = format!("{name} lay at {} first, now at {}", was.1, place.1);
                report.find("pointers.moved", &judged.path, words);
            }
        }
    }
}

/// Returns the rows as `analysis.json` has them.
fn rows(legs: &[Leg]) -> Vec<Json> {
    let integer = |value: u64| Json::Integer(i128::from(value));
    let mut rows = Vec::new();
    for leg in legs {
        for judged in &leg.answers {
            for (boundary, sha256, is_equal) in &judged.rows {
                rows.push(Json::object([
                    ("leg", integer(leg.plan.number)),
                    ("device", Json::text(&leg.plan.device)),
                    ("treatment", Json::text(judged.treatment)),
                    ("fixture", Json::text(&judged.key.fixture)),
                    ("arm", Json::text(&judged.key.arm)),
                    ("index", integer(judged.index)),
                    ("width", integer(judged.key.width)),
                    ("repeat", integer(judged.key.repeat)),
                    ("boundary", Json::text(boundary)),
                    ("sha256", Json::text(sha256)),
                    ("equal", Json::Bool(*is_equal)),
                ]));
            }
        }
    }
    rows
}
