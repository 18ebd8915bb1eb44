//! The steps of a stop: who lives, what is due, who gets it.

use super::{Progress, Scene, StopError, Timeouts};
use crate::group::{Ownership, Unproven, later_doubt, members};
use crate::identity::ProcessKey;
use crate::pidfd::{PidFd, PidFdError, Signal};
use crate::procfs::Presence;
use crate::records::{EndedProcess, Launched, Order, RunExit, Step, Stop, StopMember};
use crate::records::{StopStep, Timestamp};
use crate::runs::Run;
use std::collections::BTreeMap;

/// The processes of a run, from the first look at them to the end of each.
pub(super) struct Group<'a> {
    scene: &'a Scene<'a>,
    order: &'a Order,
    ownership: Ownership,
    /// Whether a process of the run can live: not in another boot, nor where it was proven over.
    can_live: bool,
    known: BTreeMap<ProcessKey, Known>,
    keeper: Option<(StopMember, Hold)>,
    /// Processes that were not proven to be the run's at the last look.
    pub(super) unproven: Vec<Unproven>,
    /// Processes that ended under our eyes.
    pub(super) ended: Vec<EndedProcess>,
}

/// A process that was proven to be the run's.
struct Known {
    member: StopMember,
    hold: Hold,
    sent: Option<Step>,
    has_ended: bool,
}

/// A hold on a process, or why there is none.
enum Hold {
    Held(PidFd),
    Ended,
    Refused(PidFdError),
}

impl<'a> Group<'a> {
    /// Starts from what the records say. Errors where processes of the run may live and have no
    /// pids here.
    pub(super) fn new(
        scene: &'a Scene<'a>,
        run: &Run,
        order: &'a Order,
        launched: Option<&Launched>,
    ) -> Result<Self, StopError> {
        let is_of_this_boot = order.at.boot == scene.procfs.boot_id();
        let is_here = order.controller.pid_namespace == scene.procfs.pid_namespace();
        if is_of_this_boot && !is_here && run.is_held()? != Some(false) {
            let key = launched.map_or(order.controller, |launched| launched.worker);
            return Err(StopError::OtherNamespace { key });
        }
        Ok(Self {
            scene,
            order,
            ownership: order.ownership(launched),
            can_live: is_of_this_boot && is_here,
            known: BTreeMap::new(),
            keeper: None,
            unproven: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Takes up which processes were launched.
    pub(super) fn learn(&mut self, launched: &Launched) {
        self.ownership = self.order.ownership(Some(launched));
    }

    /// Takes up which process became the engine, where the record of the launch is damaged.
    pub(super) fn learn_worker(&mut self, worker: ProcessKey) {
        self.ownership.main = Some(worker);
        self.ownership.session = i32::try_from(worker.pid).ok();
    }

    /// The processes that are on record as the run's, live, and are not proven to be.
    pub(super) fn doubted(&self) -> Vec<Unproven> {
        let unproven = self.unproven.iter();
        unproven.filter(|one| one.is_on_record()).cloned().collect()
    }

    /// Takes up what was proven before: by an earlier stop, and by the keeper.
    pub(super) fn remember(
        &mut self,
        begun: Option<&Stop>,
        exit: Option<&RunExit>,
    ) -> Result<(), StopError> {
        let members = begun.iter().flat_map(|begun| begun.members.iter().cloned());
        let left = exit.iter().flat_map(|exit| exit.left_behind.iter());
        let left = left.filter(|left| !left.is_gone).map(|left| StopMember {
            key: left.key,
            name: left.name.clone(),
        });
        for member in members.chain(left) {
            if later_doubt(self.scene.procfs, &self.ownership, &member.key)?.is_none() {
                self.know(member);
            }
        }
        // Who ended before this stop did not end under its eyes.
        for known in self.known.values_mut() {
            known.has_ended = matches!(known.hold, Hold::Ended);
        }
        Ok(())
    }

    /// Looks who is there, and answers who lives, the keeper left out.
    pub(super) fn look(
        &mut self,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Vec<StopMember>, StopError> {
        if !self.can_live {
            return Ok(Vec::new());
        }
        let found = members(self.scene.procfs, &self.ownership)?;
        for member in found.ours {
            let (key, name) = (member.key, member.name);
            self.know(StopMember { key, name });
        }
        if let Some(keeper) = found.keeper
            && self.keeper.is_none()
        {
            let member = StopMember {
                key: keeper.key,
                name: keeper.name,
            };
            let hold = Hold::take(self.scene, &member.key);
            self.keeper = Some((member, hold));
        }
        self.unproven = found.unproven;
        let mut live = Vec::new();
        for known in self.known.values_mut().filter(|known| !known.has_ended) {
            if !known.hold.has_ended(self.scene, &known.member.key)? {
                live.push(known.member.clone());
                continue;
            }
            known.has_ended = true;
            let process = EndedProcess {
                member: known.member.clone(),
                after: known.sent,
            };
            self.ended.push(process.clone());
            progress(Progress::Ended { process });
        }
        Ok(live)
    }

    /// The main process, where there is one.
    pub(super) fn main(&self) -> Option<ProcessKey> {
        self.ownership.main
    }

    /// The keeper, while it lives.
    pub(super) fn keeper(&self) -> Result<Option<StopMember>, StopError> {
        match &self.keeper {
            Some((member, hold)) if !hold.has_ended(self.scene, &member.key)? => {
                Ok(Some(member.clone()))
            }
            Some(_) | None => Ok(None),
        }
    }

    /// Waits for the keeper, and ends it when it does not by itself.
    pub(super) fn end_keeper(&self, timeouts: &Timeouts) -> Result<(), StopError> {
        let Some((member, hold)) = &self.keeper else {
            return Ok(());
        };
        let clock = self.scene.clock;
        let gone = |wait_ns: u64| -> Result<bool, StopError> {
            let deadline_ns = clock.steady_ns().saturating_add(wait_ns);
            loop {
                if hold.has_ended(self.scene, &member.key)? {
                    return Ok(true);
                }
                if clock.steady_ns() >= deadline_ns {
                    return Ok(false);
                }
                clock.sleep_ns(PAUSE_NS);
            }
        };
        if gone(timeouts.keeper_ns)? {
            return Ok(());
        }
        if let Hold::Held(hold) = hold {
            // What came of it is seen by whether it ends.
            let _ = hold.send(Signal::Kill);
        }
        match gone(timeouts.kill_ns)? {
            true => Ok(()),
            false => Err(StopError::KeeperStays),
        }
    }

    /// Sends a step's signal to each of `live` that has not got it yet.
    fn deliver(&mut self, step: Step, live: &[StopMember], progress: &mut dyn FnMut(Progress)) {
        let main = self.ownership.main;
        for member in live {
            if step == Step::Interrupt && Some(member.key) != main {
                continue;
            }
            let Some(known) = self.known.get_mut(&member.key) else {
                continue;
            };
            if known.sent >= Some(step) {
                continue;
            }
            let Hold::Held(hold) = &known.hold else {
                continue;
            };
            known.sent = Some(step);
            match hold.send(signal_of(step)) {
                Ok(_) => progress(Progress::Signalled {
                    step,
                    member: member.clone(),
                }),
                Err(error) => known.hold = Hold::Refused(error),
            }
        }
    }

    /// Marks the main process as having got a signal from an earlier stop.
    fn mark(&mut self, step: Step) {
        if let Some(main) = self.ownership.main
            && let Some(known) = self.known.get_mut(&main)
        {
            known.sent = known.sent.max(Some(step));
        }
    }

    /// Returns when one of those that live has ended, or the time is over.
    fn pause(&self, live: &[StopMember], pause_ns: u64) -> Result<(), StopError> {
        let clock = self.scene.clock;
        let deadline_ns = clock.steady_ns().saturating_add(pause_ns);
        loop {
            for member in live {
                if let Some(known) = self.known.get(&member.key)
                    && known.hold.has_ended(self.scene, &member.key)?
                {
                    return Ok(());
                }
            }
            let left_ns = deadline_ns.saturating_sub(clock.steady_ns());
            if left_ns == 0 {
                return Ok(());
            }
            clock.sleep_ns(left_ns.min(PAUSE_NS));
        }
    }

    fn know(&mut self, member: StopMember) {
        if !self.known.contains_key(&member.key) {
            let hold = Hold::take(self.scene, &member.key);
            let known = Known {
                member: member.clone(),
                hold,
                sent: None,
                has_ended: false,
            };
            self.known.insert(member.key, known);
        }
    }

    fn refused(&self, live: &[StopMember]) -> Vec<PidFdError> {
        let known = live.iter().filter_map(|member| self.known.get(&member.key));
        known
            .filter_map(|known| match &known.hold {
                Hold::Refused(error) => Some(error.clone()),
                Hold::Held(_) | Hold::Ended => None,
            })
            .collect()
    }
}

impl Hold {
    fn take(scene: &Scene<'_>, key: &ProcessKey) -> Self {
        match PidFd::open(scene.procfs, key) {
            Ok(hold) => Self::Held(hold),
            Err(PidFdError::Gone { .. } | PidFdError::Reused { .. }) => Self::Ended,
            Err(
                error @ (PidFdError::OtherNamespace { .. }
                | PidFdError::Permission { .. }
                | PidFdError::Unsupported { .. }
                | PidFdError::Refused { .. }
                | PidFdError::Procfs { .. }),
            ) => Self::Refused(error),
        }
    }

    fn has_ended(&self, scene: &Scene<'_>, key: &ProcessKey) -> Result<bool, StopError> {
        match self {
            Self::Ended => Ok(true),
            Self::Held(hold) => match hold.has_ended() {
                Ok(ended) => Ok(ended),
                Err(_) => by_presence(scene, key),
            },
            Self::Refused(_) => by_presence(scene, key),
        }
    }
}

fn by_presence(scene: &Scene<'_>, key: &ProcessKey) -> Result<bool, StopError> {
    match scene.procfs.presence(key)? {
        Presence::Alive | Presence::OtherNamespace => Ok(false),
        Presence::Gone | Presence::Reused { .. } | Presence::EarlierBoot => Ok(true),
    }
}

/// Goes through the steps until nobody lives but the keeper. `record` is durable already.
pub(super) fn end_all(
    scene: &Scene<'_>,
    run: &Run,
    timeouts: &Timeouts,
    group: &mut Group<'_>,
    record: &mut Stop,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), StopError> {
    let boot = scene.procfs.boot_id();
    let mut last = last_step(record, scene);
    if let Some((Step::Interrupt, _)) = last {
        group.mark(Step::Interrupt);
    }
    loop {
        if group.main().is_none()
            && let Ok(Some(launched)) = run.read::<Launched>()
        {
            group.learn(&launched);
        }
        let live = group.look(progress)?;
        if live.is_empty() {
            return Ok(());
        }
        remember_new(run, record, &live)?;
        let main = group.main();
        let main_lives = live.iter().any(|member| Some(member.key) == main);
        let now_ns = scene.clock.steady_ns();
        let Some(step) = due(last, main_lives, now_ns, timeouts) else {
            let refused = group.refused(&live);
            return Err(StopError::StillAlive {
                members: live,
                refused,
            });
        };
        group.deliver(step, &live, progress);
        let since_ns = match last {
            Some((last, since_ns)) if last == step => since_ns,
            Some(_) | None => {
                record.steps.push(StopStep {
                    step,
                    at: Timestamp::now(&boot, scene.clock),
                });
                run.write(record)?;
                now_ns
            }
        };
        last = Some((step, since_ns));
        let end_ns = since_ns.saturating_add(timeouts.of_step(step));
        group.pause(&live, LOOK_NS.min(end_ns.saturating_sub(now_ns)))?;
    }
}

/// Puts processes on record that were found since, before they get a signal: their proof may go
/// with their parent.
fn remember_new(run: &Run, record: &mut Stop, live: &[StopMember]) -> Result<(), StopError> {
    let new = live
        .iter()
        .filter(|member| !record.members.contains(member));
    let new: Vec<StopMember> = new.cloned().collect();
    if new.is_empty() {
        return Ok(());
    }
    record.members.extend(new);
    Ok(run.write(record)?)
}

/// The last step of an earlier stop in this boot, and when its signals were sent.
fn last_step(record: &Stop, scene: &Scene<'_>) -> Option<(Step, u64)> {
    let last = record.steps.last()?;
    let is_now = last.at.boot == scene.procfs.boot_id();
    is_now.then_some((last.step, last.at.steady_ns))
}

/// The step that is due, after the last one that was sent; `None` when the last one's time is over.
fn due(
    last: Option<(Step, u64)>,
    main_lives: bool,
    now_ns: u64,
    timeouts: &Timeouts,
) -> Option<Step> {
    let is_over =
        |step: Step, since_ns: u64| now_ns.saturating_sub(since_ns) >= timeouts.of_step(step);
    match last {
        None if main_lives => Some(Step::Interrupt),
        None => Some(Step::Terminate),
        Some((Step::Interrupt, since_ns)) if main_lives && !is_over(Step::Interrupt, since_ns) => {
            Some(Step::Interrupt)
        }
        Some((Step::Interrupt, _)) => Some(Step::Terminate),
        Some((Step::Terminate, since_ns)) if !is_over(Step::Terminate, since_ns) => {
            Some(Step::Terminate)
        }
        Some((Step::Terminate, _)) => Some(Step::Kill),
        Some((Step::Kill, since_ns)) => (!is_over(Step::Kill, since_ns)).then_some(Step::Kill),
    }
}

fn signal_of(step: Step) -> Signal {
    match step {
        Step::Interrupt => Signal::Interrupt,
        Step::Terminate => Signal::Terminate,
        Step::Kill => Signal::Kill,
    }
}

/// How often the process table is read; an end is seen sooner.
const LOOK_NS: u64 = 500_000_000;
const PAUSE_NS: u64 = 5_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::release::Pace;
    use crate::stop::Timeouts;

    const TIMEOUTS: Timeouts = Timeouts {
        interrupt_ns: 30,
        terminate_ns: 15,
        kill_ns: 10,
        launch_ns: 0,
        keeper_ns: 0,
        release: Pace {
            interval_ns: 0,
            calm: 0,
            timeout_ns: 0,
            slack_bytes: 0,
        },
    };

    /// Every moment of a stop, whenever the main process ends.
    #[test]
    fn each_step_has_its_time_once() {
        for main_ends_ns in 0..70 {
            let mut last = None;
            let mut sent = Vec::new();
            for now_ns in 0..80 {
                let main_lives = now_ns < main_ends_ns;
                let Some(step) = due(last, main_lives, now_ns, &TIMEOUTS) else {
                    assert_eq!(last.map(|(step, _)| step), Some(Step::Kill));
                    break;
                };
                assert!(main_lives || step != Step::Interrupt);
                if last.is_none_or(|(last, _)| last != step) {
                    sent.push((step, now_ns));
                    last = Some((step, now_ns));
                }
            }
            let first_ns = main_ends_ns.min(30);
            let mut expected = vec![(Step::Terminate, first_ns), (Step::Kill, first_ns + 15)];
            if main_ends_ns > 0 {
                expected.insert(0, (Step::Interrupt, 0));
            }
            assert_eq!(sent, expected, "main ends at {main_ends_ns}");
            assert_eq!(due(last, true, first_ns + 24, &TIMEOUTS), Some(Step::Kill));
            assert_eq!(due(last, true, first_ns + 25, &TIMEOUTS), None);
        }
    }

    #[test]
    fn a_step_that_was_sent_before_is_not_sent_anew_to_the_main_process() {
        let since = |step| Some((step, 100));
        assert_eq!(
            due(since(Step::Interrupt), true, 129, &TIMEOUTS),
            Some(Step::Interrupt)
        );
        assert_eq!(
            due(since(Step::Interrupt), true, 130, &TIMEOUTS),
            Some(Step::Terminate)
        );
        assert_eq!(
            due(since(Step::Terminate), false, 114, &TIMEOUTS),
            Some(Step::Terminate)
        );
        assert_eq!(
            due(since(Step::Terminate), true, 115, &TIMEOUTS),
            Some(Step::Kill)
        );
    }
}
