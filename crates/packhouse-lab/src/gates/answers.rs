//! Answers against their cases and the raw files, and their tensors against the fixtures.

use super::complete::Matched;
use super::sessions::{Said, Session};
use crate::analysis::Row;
use crate::evidence::{Failure, SeenOutput, SeenRecord};
use crate::prereg::{Prereg, Treatment};
use crate::recipes::Recipes;
use crate::schedule::{LegPlan, case_of};
use packhouse_bag::Contents;
use packhouse_base::digest::Digest;
use packhouse_component::check::{Checked, Fault, Seen, SeenFile, check};
use packhouse_component::message::{Answer, CaseOrder};
use packhouse_fixture::{Output, judge_case};

/// A case with an answer that has no fault.
pub(crate) struct Good<'a> {
    /// The case.
    pub(crate) case: Matched<'a>,
    /// What was verified of the answer, and what it attests.
    pub(crate) checked: Checked,
}

/// What is judged of one session.
pub(crate) struct Judging<'a> {
    /// The preregistration.
    pub(crate) prereg: &'a Prereg,
    /// The leg.
    pub(crate) plan: &'a LegPlan,
    /// Path of its exchange.
    pub(crate) path: &'a str,
    /// Whose session it is.
    pub(crate) treatment: Treatment,
    /// The payload.
    pub(crate) payload: &'a Contents,
    /// What inputs were drawn from.
    pub(crate) source: Digest,
    /// Where fixtures come from.
    pub(crate) recipes: &'a Recipes,
}

impl<'a> Judging<'a> {
    /// Judges all answers of a session; rejections too.
    pub(crate) fn session(
        &self,
        session: &Session,
        matched: &[Matched<'a>],
        rows: &mut Vec<Row>,
        failures: &mut Vec<Failure>,
    ) -> Vec<Good<'a>> {
        let mut good = Vec::new();
        for case in matched {
            self.looked(case, failures);
            if let Some(rejection) = case.planned.rejection {
                self.rejection(case, rejection, failures);
                continue;
            }
            if let Some(checked) = self.answer(session, case, failures) {
                self.rows(case, &checked, rows, failures);
                good.push(Good {
                    case: *case,
                    checked,
                });
            }
        }
        good
    }

    /// What was seen is of this case; where it was declined, nothing was made or changed.
    fn looked(&self, case: &Matched<'a>, failures: &mut Vec<Failure>) {
        let (Some(reply), Some(seen)) = (&case.turn.reply, &case.turn.seen) else {
            return;
        };
        let order = &case.turn.order;
        let path = format!("{}:{}", self.path, reply.line);
        let mut fail = |code, words: String| failures.push(Failure::new(code, &path, words));
        let is_its = |file: &String| order.inputs.values().any(|input| input.file == *file);
        if seen.index != order.index || !seen.inputs.keys().all(is_its) {
            fail(
                "leg.order",
                format!("what was seen is not of case {}", order.index),
            );
        }
        let Said::Declined(declined) = &reply.said else {
            return;
        };
        if declined.index != order.index {
            fail("answer.index", format!("declines case {}", declined.index));
        }
        for file in seen.outputs.keys() {
            fail(
                "answer.file-extra",
                format!("output {file}, and the case was declined"),
            );
        }
        for (role, input) in &order.inputs {
            if seen.inputs.get(&input.file) != Some(&Some(input.sha256)) {
                fail("answer.input-changed", format!("input {role}"));
            }
        }
        for file in &seen.inputs_extra {
            fail("answer.input-extra", format!("inputs' folder: {file}"));
        }
    }

    /// An answer without a fault.
    fn answer(
        &self,
        session: &Session,
        case: &Matched<'a>,
        failures: &mut Vec<Failure>,
    ) -> Option<Checked> {
        let introduction = session.introduced()?;
        let (reply, seen) = (case.turn.reply.as_ref()?, case.turn.seen.as_ref()?);
        let path = format!("{}:{}", self.path, reply.line);
        let answer = match &reply.said {
            Said::Answer(answer) => (**answer).clone(),
            Said::Declined(declined) => {
                let words = format!("{}: {}", case.planned.words(), declined.reason);
                failures.push(Failure::new("answer.declined", path, words));
                return None;
            }
        };
        let span_ns = reply.at_ns.saturating_sub(case.turn.asked_ns);
        if !self.is_kept(seen) {
            failures.extend(lost(&case.turn.order, &answer, seen, &path));
            return None;
        }
        let seen = self.seen(seen, span_ns, &path, failures)?;
        match check(&case.turn.order, introduction, answer, seen) {
            Ok(checked) => Some(checked),
            Err(faults) => {
                let faults = faults.into_iter();
                failures.extend(faults.map(|fault| Failure::new(code(&fault), &path, fault)));
                None
            }
        }
    }

    /// Whether the bag has the bytes of all outputs that were seen. That it has not is a failure of
    /// the records, but in a run that broke off.
    fn is_kept(&self, seen: &SeenRecord) -> bool {
        seen.outputs.values().all(|output| match output {
            SeenOutput::File { bytes: 0, .. } | SeenOutput::Refused(_) => true,
            SeenOutput::File { sha256, .. } => {
                let path = format!("outputs/{sha256}");
                self.payload.get(&path).is_some()
            }
        })
    }

    /// What was seen, with the bytes of the bag; none where the bag does not have them.
    fn seen(
        &self,
        seen: &SeenRecord,
        span_ns: u64,
        path: &str,
        failures: &mut Vec<Failure>,
    ) -> Option<Seen> {
        let mut made = Seen {
            inputs: seen.inputs.clone(),
            inputs_extra: seen.inputs_extra.clone(),
            span_ns,
            ..Seen::default()
        };
        for (file, output) in &seen.outputs {
            let output = match output {
                SeenOutput::File { bytes: 0, .. } => SeenFile::Bytes(Vec::new()),
                SeenOutput::File { sha256, .. } => {
                    let bytes = self.payload.get(&format!("outputs/{sha256}"))?;
                    SeenFile::Bytes(bytes.to_vec())
                }
                SeenOutput::Refused(words) => {
                    let Some(refused) = SeenFile::refused(words) else {
                        let words = format!("output {file}: refused as {words:?}");
                        failures.push(Failure::new("record.type", path, words));
                        return None;
                    };
                    refused
                }
            };
            made.outputs.insert(file.clone(), output);
        }
        Some(made)
    }

    /// Compares each boundary with the fixture's.
    fn rows(
        &self,
        case: &Matched<'a>,
        checked: &Checked,
        rows: &mut Vec<Row>,
        failures: &mut Vec<Failure>,
    ) {
        let planned = case.planned;
        let made = self
            .recipes
            .repeat(&planned.fixture, planned.repeat, self.source);
        let Some(made) = made else {
            return;
        };
        let Some(judged) = case_of(&made.fixture, &planned.arm, planned.width) else {
            return;
        };
        let outputs: Vec<Output> = checked
            .verified()
            .iter()
            .map(|verified| Output {
                boundary: verified.boundary().to_owned(),
                bytes: verified.bytes().to_vec(),
            })
            .collect();
        let reply = case.turn.reply.as_ref();
        let line = reply.map_or(case.turn.line, |reply| reply.line);
        let path = format!("{}:{line}", self.path);
        let promise = self.prereg.matrix.promise.into();
        let verdicts = match judge_case(&made.fixture, judged, promise, &outputs) {
            Ok(verdicts) => verdicts,
            Err(error) => {
                failures.push(Failure::new("equality", path, error));
                return;
            }
        };
        for verdict in verdicts {
            let verified = checked.verified().iter();
            let mut verified = verified.filter(|one| one.boundary() == verdict.boundary);
            let Some(verified) = verified.next() else {
                continue;
            };
            let equal = verdict.passed();
            if !equal {
                let wrong = verdict.rows.iter().filter(|row| !row.passed).count();
                let words = format!(
                    "{}: boundary {}: {wrong} of {} rows are not near enough",
                    planned.words(),
                    verdict.boundary,
                    verdict.rows.len(),
                );
                failures.push(Failure::new("equality", &path, words));
            }
            rows.push(Row {
                leg: self.plan.number,
                device: self.plan.device.clone(),
                treatment: self.treatment.word().to_owned(),
                index: case.turn.order.index,
                fixture: planned.fixture.clone(),
                arm: planned.arm.clone(),
                width: planned.width,
                repeat: planned.repeat,
                boundary: verdict.boundary,
                sha256: verified.sha256(),
                equal,
            });
        }
    }

    /// A rejection is declined, with just its reason.
    fn rejection(&self, case: &Matched<'a>, rejection: usize, failures: &mut Vec<Failure>) {
        let (Some(reply), Some(listed)) = (&case.turn.reply, self.prereg.rejections.get(rejection))
        else {
            return;
        };
        let words = match &reply.said {
            Said::Declined(declined) if declined.reason == listed.reason => return,
            Said::Declined(declined) => {
                format!(
                    "declined as {:?}, expected {:?}",
                    declined.reason, listed.reason
                )
            }
            Said::Answer(_) => format!("answered, expected declined as {:?}", listed.reason),
        };
        let path = format!("{}:{}", self.path, reply.line);
        let words = format!("rejection {}: {words}", listed.name);
        failures.push(Failure::new("rejection", path, words));
    }
}

/// What is wrong with the digests of an answer whose outputs are not all in the bag: all that
/// is judged of it.
fn lost(order: &CaseOrder, answer: &Answer, seen: &SeenRecord, path: &str) -> Vec<Failure> {
    let wrong = order.boundaries.iter().filter_map(|wanted| {
        let mut said = answer.boundaries.iter();
        let said = said.find(|record| record.name == wanted.name)?;
        let SeenOutput::File { bytes, sha256 } = seen.outputs.get(&wanted.file)? else {
            return None;
        };
        let is_other = *bytes == wanted.form.bytes && *sha256 != said.sha256;
        let words = format!("boundary {}: said {}, is {sha256}", said.name, said.sha256);
        is_other.then(|| Failure::new("answer.digest", path, words))
    });
    wrong.collect()
}

/// The code of a fault.
fn code(fault: &Fault) -> &'static str {
    match fault {
        Fault::Index { .. } => "answer.index",
        Fault::NoWitness => "answer.no-witness",
        Fault::CaptureNotSaid => "answer.capture-not-said",
        Fault::CaptureNotOffered => "answer.capture-not-offered",
        Fault::NotTimed => "answer.not-timed",
        Fault::TimedUnasked => "answer.timed-unasked",
        Fault::Cycles { .. } => "answer.cycles",
        Fault::TimedLonger { .. } => "answer.timed-longer",
        Fault::Poison { .. } => "answer.poison",
        Fault::Missing { .. } => "answer.missing",
        Fault::Invented { .. } => "answer.invented",
        Fault::Twice { .. } => "answer.twice",
        Fault::Dtype { .. } => "answer.dtype",
        Fault::Shape { .. } => "answer.shape",
        Fault::Stride { .. } => "answer.stride",
        Fault::Offset { .. } => "answer.offset",
        Fault::Bytes { .. } => "answer.bytes",
        Fault::Device { .. } => "answer.device",
        Fault::FileName { .. } => "answer.file-name",
        Fault::Digest { .. } => "answer.digest",
        Fault::FileAbsent { .. } => "answer.file-absent",
        Fault::FileEmpty { .. } => "answer.file-empty",
        Fault::FileLength { .. } => "answer.file-length",
        Fault::FileKind { .. } => "answer.file-kind",
        Fault::FileExtra { .. } => "answer.file-extra",
        Fault::FileEarly { .. } => "answer.file-early",
        Fault::InputMissing { .. } => "answer.input-missing",
        Fault::InputInvented { .. } => "answer.input-invented",
        Fault::InputDigest { .. } => "answer.input-digest",
        Fault::InputChanged { .. } => "answer.input-changed",
        Fault::InputExtra { .. } => "answer.input-extra",
        Fault::Interval { .. } => "answer.interval",
        Fault::Base { .. } => "answer.base",
        Fault::Overlap { .. } => "answer.overlap",
    }
}
