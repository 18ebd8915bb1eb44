//! One leg: its programs are started, asked every planned case in order, and ended.
//!
//! Invariants:
//! - what is asked is the schedule's, one case after the other, never twice;
//! - a wrong answer fails its leg and goes on; a session that breaks off ends the run;
//! - a program's mapped files are looked at after each of its answers, and after its last case,
//!   while it lives;
//! - nothing that a program started outlives its leg: it is ended, and told in the program's log;
//!   what can't be ended ends the run.

use super::able::{is_able, last_words};
use super::error::cut;
use super::recorder::Recorder;
use super::{Campaign, Fault, Frozen, REASON_BYTES_MAX, Step, before, devices, instants};
use crate::evidence::{
    HostDeviceRecord, LegKind, LegRecord, LegStatus, ObjectRecord, ProgramRecord,
};
use crate::prereg::{GateRule, Leg, Treatment};
use crate::recipes::{Made, challenge};
use crate::schedule::{LegPlan, PlannedCase, case_of, rejected_case};
use crate::sessions::{Broken, Ending, Family, Gone, Session, Terms};
use packhouse_bag::WriteError;
use packhouse_base::digest::Digest;
use packhouse_component::check::Fault as AnswerFault;
use packhouse_component::drive::{Ask, Input, Outcome};
use packhouse_fixture::{Output, judge_case};
use packhouse_ledger::Stage;
use std::collections::BTreeSet;

/// A leg whose programs said hello.
pub(super) struct LiveLeg {
    plan: LegPlan,
    started: crate::evidence::Instants,
    programs: Vec<Live>,
    /// Who holds the leg's device, where it is not the host's own cores.
    device: Option<HostDeviceRecord>,
    /// Whether it was looked who holds it afterwards.
    is_looked_after: bool,
    /// Goes after the programs: it ends what they left behind.
    family: Box<dyn Family>,
}

struct Live {
    treatment: Treatment,
    pid: u32,
    session: Option<Box<dyn Session>>,
    objects: BTreeSet<ObjectRecord>,
    gone: Option<Gone>,
    /// Whether what it left behind was looked for.
    is_cleared: bool,
}

/// How a leg ended.
pub(super) struct LegEnd {
    pub(super) status: LegStatus,
    /// Why the run ends with it.
    pub(super) ends_run: Option<RunEnd>,
}

/// Why a run ends before its last leg.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// By a rule of the preregistration.
    Stopped(Fault),
    /// It broke off.
    Aborted(Fault),
}

impl RunEnd {
    pub(super) fn is_abort(&self) -> bool {
        matches!(self, Self::Aborted(_))
    }
}

/// What a run of cases knows.
pub(super) struct Running<'a> {
    pub(super) campaign: &'a Campaign<'a>,
    pub(super) frozen: &'a Frozen,
    pub(super) recorder: &'a Recorder,
    pub(super) nonce: Digest,
    /// What inputs are drawn from.
    pub(super) source: Digest,
    pub(super) is_rehearsal: bool,
    /// When the time budget is over, by the steady clock.
    pub(super) deadline_ns: u64,
    /// How many legs there are.
    pub(super) legs: usize,
}

impl Running<'_> {
    /// Starts the programs of a leg, and demands that they can do what will be asked.
    pub(super) fn begin(&self, plan: &LegPlan) -> Result<LiveLeg, Fault> {
        let started = instants(self.campaign.lab.clock);
        self.recorder.begin_leg(plan.number, started.steady_ns);
        let mut live = LiveLeg {
            plan: plan.clone(),
            started,
            programs: Vec::new(),
            device: devices::before(self.campaign.lab, &plan.device),
            is_looked_after: false,
            family: self.campaign.sessions.family(),
        };
        if let Err(fault) = devices::alone(plan, live.device.as_ref()) {
            self.write(&mut live, LegStatus::Broken)?;
            return Err(fault);
        }
        for treatment in plan.treatments() {
            if let Err(mut fault) = self.start(&mut live, *treatment) {
                self.break_off(&mut live, &mut fault);
                self.write(&mut live, LegStatus::Broken)?;
                return Err(fault);
            }
        }
        Ok(live)
    }

    /// Whether the programs of a leg, which said hello, have nothing mapped that is not frozen.
    pub(super) fn are_frozen(&self, live: &LiveLeg) -> Result<(), Fault> {
        for program in &live.programs {
            let played = (program.treatment, self.is_rehearsal);
            before::mapped(self.campaign, self.frozen, played, program.pid)?;
        }
        Ok(())
    }

    /// Asks every case, and ends the programs.
    pub(super) fn run(&self, mut live: LiveLeg) -> Result<LegEnd, Fault> {
        let mut is_right = true;
        let asks = live.plan.asks.clone();
        for (index, case) in asks.iter().enumerate() {
            (self.campaign.progress)(Step::Case {
                leg: usize::try_from(live.plan.number)
                    .unwrap_or(usize::MAX)
                    .saturating_add(1),
                legs: self.legs,
                case: index + 1,
                cases: asks.len(),
            });
            match self.case(&mut live, case) {
                Ok(right) => is_right &= right,
                Err(end) => return self.cut(live, end),
            }
        }
        let looked = self.look(&mut live, &[Treatment::Control, Treatment::Candidate]);
        let over = looked.and_then(|()| self.bye(&mut live));
        if let Err(fault) = over.and_then(|()| self.is_alone(&mut live)) {
            return self.cut(live, RunEnd::Aborted(fault));
        }
        let status = match is_right {
            true => LegStatus::Complete,
            false => LegStatus::Failed,
        };
        self.write(&mut live, status)?;
        Ok(LegEnd {
            status,
            ends_run: None,
        })
    }

    fn start(&self, live: &mut LiveLeg, treatment: Treatment) -> Result<(), Fault> {
        let launch = self
            .frozen
            .launch(self.campaign, treatment, self.is_rehearsal)?;
        let terms = Terms {
            challenge: challenge(self.nonce, live.plan.number),
            case_ns: self
                .frozen
                .prereg()
                .case_timeout_s
                .saturating_mul(SECOND_NS),
        };
        let tap = self.recorder.tap(treatment.word());
        let started = self.campaign.sessions.start(&launch, terms, tap);
        let named =
            |reason: String| Fault::new(Stage::Hello, format!("{}: {reason}", treatment.word()));
        match started {
            Ok(session) => {
                let gates = self.gates_of(treatment);
                let able = is_able(&live.plan, (treatment, gates), session.introduction());
                live.programs.push(Live {
                    treatment,
                    pid: session.pid(),
                    session: Some(session),
                    objects: BTreeSet::new(),
                    gone: None,
                    is_cleared: false,
                });
                able.map_err(|reason| {
                    Fault::new(Stage::Discovery, format!("{}: {reason}", treatment.word()))
                })
            }
            Err(broken) => {
                let told = last_words(&broken);
                let Broken { reason, gone } = broken;
                if let Some(gone) = gone {
                    self.recorder.end(treatment.word(), self.now_ns(), &reason);
                    live.programs.push(Live {
                        treatment,
                        pid: gone.pid,
                        session: None,
                        objects: BTreeSet::new(),
                        gone: Some(gone),
                        is_cleared: false,
                    });
                }
                Err(named(told))
            }
        }
    }

    /// The gates that a program's hello must not contradict: a null program is not judged by them.
    fn gates_of(&self, treatment: Treatment) -> &[GateRule] {
        match (treatment, self.is_rehearsal) {
            (Treatment::Candidate, false) => &self.frozen.prereg().gates,
            (Treatment::Candidate, true) | (Treatment::Control, _) => &[],
        }
    }

    /// Asks one case; whether its answer is right.
    fn case(&self, live: &mut LiveLeg, case: &PlannedCase) -> Result<bool, RunEnd> {
        let aborted = |fault| RunEnd::Aborted(fault);
        if self.recorder.is_interrupted() {
            return Err(aborted(Fault::new(Stage::Leg, INTERRUPTED)));
        }
        if self.now_ns() > self.deadline_ns {
            let budget = self.frozen.prereg().time_budget_s;
            let reason = format!("the time budget of {budget} s is over");
            return Err(RunEnd::Stopped(Fault::new(Stage::Leg, reason)));
        }
        let made = self.inputs(case).map_err(aborted)?;
        self.hold(case, &made);
        let fixture = &made.fixture;
        let source = match case.rejection {
            None => case_of(fixture, &case.arm, case.width),
            Some(_) => rejected_case(fixture, &case.arm, case.width),
        };
        let source = source.ok_or_else(|| {
            let what = format!(
                "{} has no case of arm {} and width {}",
                case.fixture, case.arm, case.width
            );
            aborted(Fault::new(Stage::Leg, what))
        })?;
        let tensor = |(role, name): (&String, &String)| {
            let tensor = &fixture.tensors[name];
            let input = Input {
                dtype: tensor.dtype,
                shape: &tensor.shape,
                bytes: &tensor.bytes,
            };
            (role.clone(), input)
        };
        let ask = Ask {
            fixture: &fixture.id,
            layout: fixture.layout.as_deref(),
            device: &live.plan.device.clone(),
            arm: &case.arm,
            width: case.width,
            repeat: case.repeat,
            parameters: &fixture.told_parameters(),
            inputs: source.inputs.iter().map(tensor).collect(),
            boundaries: &fixture.boundaries,
            cycles: case.cycles,
        };
        let outcome = self.ask(live, case, &ask).map_err(aborted)?;
        self.recorder.good().map_err(aborted)?;
        // What it had for this case alone is gone at the leg's end.
        self.look(live, &[case.treatment]).map_err(aborted)?;
        Ok(self.is_right(case, &made, &outcome))
    }

    fn ask(&self, live: &mut LiveLeg, case: &PlannedCase, ask: &Ask<'_>) -> Result<Outcome, Fault> {
        let mut programs = live.programs.iter_mut();
        let program = programs.find(|program| program.treatment == case.treatment);
        let program = program.ok_or_else(|| Fault::new(Stage::Leg, "a program is not there"))?;
        let session = program.session.as_mut();
        let session = session.ok_or_else(|| Fault::new(Stage::Leg, "a session is over"))?;
        match session.ask(ask) {
            Ok(Outcome::Faulty(faults)) if is_early(&faults) => {
                let reason = format!("{}: {}", case.treatment.word(), faults[0]);
                Err(Fault::new(Stage::Leg, reason))
            }
            Ok(outcome) => Ok(outcome),
            Err(broken) => {
                let told = last_words(&broken);
                let Broken { reason, gone } = broken;
                // What could not be written before is why the session was told to end.
                let written = self.recorder.good();
                self.recorder
                    .end(case.treatment.word(), self.now_ns(), &reason);
                program.session = None;
                program.gone = Some(gone.unwrap_or_default());
                written?;
                let reason = format!("{}: {told}", case.treatment.word());
                Err(Fault::new(Stage::Leg, reason))
            }
        }
    }

    /// The fixture of a case. A drawn one is in no file yet: a program could read its answers.
    fn inputs(&self, case: &PlannedCase) -> Result<std::sync::Arc<Made>, Fault> {
        let recipes = &self.campaign.recipes;
        let made = recipes.repeat(&case.fixture, case.repeat, self.source);
        made.ok_or_else(|| {
            Fault::new(
                Stage::Leg,
                format!("no fixture {} in this program", case.fixture),
            )
        })
    }

    /// Keeps a case's fixture for the bag, which gets it when every program is gone.
    fn hold(&self, case: &PlannedCase, made: &std::sync::Arc<Made>) {
        let folder = super::fixture_folder(&case.fixture, case.repeat);
        self.recorder.hold(folder, made.clone());
    }

    fn is_right(&self, case: &PlannedCase, made: &Made, outcome: &Outcome) -> bool {
        let prereg = self.frozen.prereg();
        let rejection = case
            .rejection
            .and_then(|index| prereg.rejections.get(index));
        match (outcome, rejection) {
            // What a null program makes of rejections decides nothing.
            (Outcome::Declined(_) | Outcome::Answered(_), Some(_)) if self.is_rehearsal => true,
            (Outcome::Declined(reason), Some(rejection)) => *reason == rejection.reason,
            (Outcome::Answered(checked), None) => {
                let outputs = checked.verified().iter().map(|verified| Output {
                    boundary: verified.boundary().to_owned(),
                    bytes: verified.bytes().to_vec(),
                });
                let outputs: Vec<Output> = outputs.collect();
                let promise = prereg.matrix.promise.into();
                let fixture = &made.fixture;
                let judged = case_of(fixture, &case.arm, case.width)
                    .map(|source| judge_case(fixture, source, promise, &outputs));
                judged.is_some_and(|judged| {
                    judged.is_ok_and(|verdicts| verdicts.iter().all(|verdict| verdict.passed()))
                })
            }
            (Outcome::Declined(_), None)
            | (Outcome::Answered(_), Some(_))
            | (Outcome::Faulty(_), _) => false,
        }
    }

    /// Notes what programs have mapped now.
    fn look(&self, live: &mut LiveLeg, whose: &[Treatment]) -> Result<(), Fault> {
        let programs = live.programs.iter_mut();
        for program in programs.filter(|program| whose.contains(&program.treatment)) {
            let mapped = self.campaign.lab.host.mapped_objects(program.pid);
            let mapped = mapped.map_err(|error| {
                Fault::new(Stage::Leg, format!("{}: {error}", program.treatment.word()))
            })?;
            let objects = mapped.into_iter().map(|mapped| ObjectRecord {
                name: mapped.object.name,
                sha256: mapped.object.sha256,
            });
            program.objects.extend(objects);
        }
        Ok(())
    }

    fn bye(&self, live: &mut LiveLeg) -> Result<(), Fault> {
        for index in 0..live.programs.len() {
            let program = &mut live.programs[index];
            let Some(session) = program.session.take() else {
                continue;
            };
            match session.bye() {
                Ok(gone) => {
                    program.gone = Some(gone);
                    self.recorder
                        .end(program.treatment.word(), self.now_ns(), BYE);
                    clear(live)?;
                }
                Err(broken) => {
                    let told = last_words(&broken);
                    let Broken { reason, gone } = broken;
                    program.gone = Some(gone.unwrap_or_default());
                    self.recorder
                        .end(program.treatment.word(), self.now_ns(), &reason);
                    let reason = format!("{}: {told}", program.treatment.word());
                    return Err(Fault::new(Stage::Leg, reason));
                }
            }
        }
        self.recorder.good()
    }

    /// Whether nobody came to the device meanwhile, where that makes the times another's too.
    fn is_alone(&self, live: &mut LiveLeg) -> Result<(), Fault> {
        self.look_after(live);
        devices::alone(&live.plan, live.device.as_ref())
    }

    /// Looks, once, who holds the device when the programs are gone.
    fn look_after(&self, live: &mut LiveLeg) {
        if !live.is_looked_after {
            live.is_looked_after = true;
            devices::after(self.campaign.lab, &live.plan.device, live.device.as_mut());
        }
    }

    /// Ends a leg before its end.
    fn cut(&self, mut live: LiveLeg, mut end: RunEnd) -> Result<LegEnd, Fault> {
        let (RunEnd::Stopped(fault) | RunEnd::Aborted(fault)) = &mut end;
        let is_cleared = self.break_off(&mut live, fault);
        if let (false, RunEnd::Stopped(fault)) = (is_cleared, &end) {
            end = RunEnd::Aborted(fault.clone());
        }
        match self.write(&mut live, LegStatus::Broken) {
            // Why it broke off comes before why that can't be written.
            Err(fault) if !end.is_abort() => return Err(fault),
            Ok(()) | Err(_) => {}
        }
        Ok(LegEnd {
            status: LegStatus::Broken,
            ends_run: Some(end),
        })
    }

    /// Ends every session that lives, and what all of them left behind. Where that can't be ended
    /// it answers with false, and the fault says so.
    fn break_off(&self, live: &mut LiveLeg, fault: &mut Fault) -> bool {
        for program in &mut live.programs {
            if let Some(session) = program.session.take() {
                program.gone = Some(Gone {
                    exit: Ending::Killed,
                    ..session.stop()
                });
                self.recorder
                    .end(program.treatment.word(), self.now_ns(), &fault.reason);
            }
        }
        let Err(left) = clear(live) else {
            return true;
        };
        let is_told = fault.reason.ends_with(&left.reason);
        if !is_told {
            cut(&mut fault.reason, REASON_BYTES_BEFORE);
            fault.reason = format!("{}; {}", fault.reason, left.reason);
            cut(&mut fault.reason, REASON_BYTES_MAX);
        }
        false
    }

    /// Writes logs and the leg's record.
    fn write(&self, live: &mut LiveLeg, status: LegStatus) -> Result<(), Fault> {
        self.look_after(live);
        let written = self.write_all(live, status);
        written.map_err(|error| Fault::new(Stage::Leg, &error))
    }

    fn write_all(&self, live: &LiveLeg, status: LegStatus) -> Result<(), WriteError> {
        let mut programs = Vec::new();
        for program in &live.programs {
            let gone = program.gone.clone().unwrap_or_default();
            self.recorder.log(program.treatment.word(), &gone)?;
            programs.push(ProgramRecord {
                treatment: program.treatment,
                pid: u64::from(program.pid),
                objects: program.objects.iter().cloned().collect(),
                exit: gone.exit.to_string(),
                stderr_bytes: gone.log.len() as u64,
                elapsed_ns: gone.elapsed_ns,
            });
        }
        self.recorder.leg_record(&LegRecord {
            number: live.plan.number,
            leg: live.plan.leg,
            kind: match live.plan.kind {
                Leg::Exact { .. } => LegKind::Exact,
                Leg::Timing => LegKind::Timing,
            },
            device: live.plan.device.clone(),
            status,
            started: live.started,
            ended: instants(self.campaign.lab.clock),
            programs,
            host_device: live.device.clone(),
        })
    }

    fn now_ns(&self) -> u64 {
        self.campaign.lab.clock.steady_ns()
    }
}

/// Ends what the programs that are over left behind. The logs of those that were not asked before
/// say whom: no record has a place for it.
fn clear(live: &mut LiveLeg) -> Result<(), Fault> {
    let ended = live.family.end();
    let lived = ended.map_err(|left| Fault::new(Stage::Leg, left))?;
    let over = live.programs.iter_mut();
    let over = over.filter(|program| program.session.is_none() && !program.is_cleared);
    for program in over {
        program.is_cleared = true;
        if let Some(gone) = program.gone.as_mut().filter(|_| !lived.is_empty()) {
            gone.outlived(&lived);
        }
    }
    Ok(())
}

/// Whether something lay in the outputs' folder before the case was asked.
fn is_early(faults: &[AnswerFault]) -> bool {
    let is_early = |fault: &AnswerFault| matches!(fault, AnswerFault::FileEarly { .. });
    faults.iter().any(is_early)
}

/// A reason that is told before who could not be ended.
const REASON_BYTES_BEFORE: usize = 600;
/// How a session ended that ended as it should.
const BYE: &str = "bye";
/// What is said of a run that a signal ended.
pub(super) const INTERRUPTED: &str = "this process was told to end";
pub(super) const SECOND_NS: u64 = 1_000_000_000;
