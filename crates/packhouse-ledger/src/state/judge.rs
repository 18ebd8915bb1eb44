//! Whether an entry may follow: one function per kind, in the order of the reason codes.

use super::{Contradiction, LanePhase, PacketState, Standing, State};
use crate::act::{
    Act, Analysed, Armed, Corrected, Lane, LaneAction, Name, Note, Record, Registered, Verdict,
};
use crate::entry::Entry;
use packhouse_base::digest::Digest;

impl State {
    /// Judges the next entry. Errors with the first thing that it contradicts.
    pub(crate) fn judge(&self, entry: &Entry) -> Result<(), Contradiction> {
        let is_genesis = matches!(entry.act, Act::Genesis(_));
        if is_genesis != (entry.index == 0) {
            let kind = entry.act.kind();
            return Err(Contradiction::Genesis { kind });
        }
        match &entry.act {
            Act::Genesis(_) => Ok(()),
            Act::Lane(body) => self.judge_lane(body),
            Act::Registered(body) => self.judge_registered(body),
            Act::Record(body) => self.judge_record(body),
            Act::Corrected(body) => self.judge_corrected(body),
            Act::Note(body) => self.judge_note(body),
            Act::Rehearsed(_)
            | Act::Reviewed(_)
            | Act::Armed(_)
            | Act::Nonce(_)
            | Act::Released(_)
            | Act::Withdrawn(_)
            | Act::Consumed(_)
            | Act::Closed(_)
            | Act::Sealed(_)
            | Act::Analysed(_) => self.judge_packet(&entry.act),
        }
    }

    fn judge_lane(&self, body: &Lane) -> Result<(), Contradiction> {
        let name = || body.lane.clone();
        let lane = match (self.lanes.get(&body.lane), body.action) {
            (None, LaneAction::Open) => return Ok(()),
            (
                None,
                LaneAction::Pause | LaneAction::Resume | LaneAction::Block | LaneAction::Close,
            ) => return Err(Contradiction::LaneUnknown { lane: name() }),
            (Some(lane), _) => lane,
        };
        if body.action == LaneAction::Open {
            let (lane, opened) = (name(), lane.opened);
            return Err(Contradiction::LaneExists { lane, opened });
        }
        self.not_closed(&body.lane)?;
        match body.action {
            LaneAction::Resume if lane.phase == LanePhase::Open => {
                Err(Contradiction::LaneOpen { lane: name() })
            }
            LaneAction::Close => self.none_begun(&body.lane),
            LaneAction::Open | LaneAction::Pause | LaneAction::Resume | LaneAction::Block => Ok(()),
        }
    }

    /// No packet of a lane is being executed.
    fn none_begun(&self, lane: &Name) -> Result<(), Contradiction> {
        let mut packets = self.packets.iter();
        let begun = packets.find(|(_, state)| state.lane == *lane && state.standing.has_begun());
        match begun {
            None => Ok(()),
            Some((packet, state)) => Err(Contradiction::LaneBusy {
                lane: lane.clone(),
                packet: *packet,
                standing: state.standing,
            }),
        }
    }

    fn not_closed(&self, name: &Name) -> Result<(), Contradiction> {
        match self.lanes.get(name) {
            None => Err(Contradiction::LaneUnknown { lane: name.clone() }),
            Some(lane) if lane.phase == LanePhase::Closed => Err(Contradiction::LaneClosed {
                lane: name.clone(),
                since: lane.since,
            }),
            Some(_) => Ok(()),
        }
    }

    /// Something new may begin in a lane.
    fn not_waiting(&self, name: &Name) -> Result<(), Contradiction> {
        let Some(lane) = self.lanes.get(name) else {
            return Err(Contradiction::LaneUnknown { lane: name.clone() });
        };
        match &lane.phase {
            LanePhase::Open | LanePhase::Closed => Ok(()),
            LanePhase::Paused { until } | LanePhase::Blocked { until } => {
                Err(Contradiction::LaneWaiting {
                    lane: name.clone(),
                    phase: lane.phase.as_str(),
                    until: until.clone(),
                    reason: lane.reason.clone(),
                })
            }
        }
    }

    fn judge_registered(&self, body: &Registered) -> Result<(), Contradiction> {
        if let Some(known) = self.packets.get(&body.packet) {
            return Err(Contradiction::PacketExists {
                packet: body.packet,
                registered: known.registered,
            });
        }
        if let Some(packet) = self.experiments.get(&body.experiment) {
            return Err(Contradiction::ExperimentExists {
                experiment: body.experiment.clone(),
                packet: *packet,
            });
        }
        self.not_closed(&body.lane)?;
        self.not_waiting(&body.lane)
    }

    /// A packet that was registered, in a lane that is not closed.
    fn live(&self, packet: Digest) -> Result<&PacketState, Contradiction> {
        let state = self.packets.get(&packet);
        let state = state.ok_or(Contradiction::PacketUnknown { packet })?;
        self.not_closed(&state.lane)?;
        Ok(state)
    }

    fn judge_packet(&self, act: &Act) -> Result<(), Contradiction> {
        let packet = act.packet().expect("because these kinds have a packet");
        let state = self.live(packet)?;
        if matches!(act, Act::Armed(_) | Act::Nonce(_)) {
            self.not_waiting(&state.lane)?;
        }
        if let (Act::Nonce(_), Standing::Nonce, Some(nonce)) = (act, state.standing, state.nonce) {
            return Err(Contradiction::NonceOpen { packet, nonce });
        }
        state.not_withdrawn(packet, act.kind())?;
        let (admitting, needs) = admitting(act);
        if !admitting.contains(&state.standing) {
            return Err(Contradiction::State {
                packet,
                standing: state.standing,
                kind: act.kind(),
                needs,
            });
        }
        match act {
            Act::Reviewed(body) => state.cites(body.rehearsal),
            Act::Armed(body) => state.judge_armed(body),
            Act::Nonce(body) if self.nonces.contains(&body.nonce) => {
                Err(Contradiction::NonceReused { nonce: body.nonce })
            }
            Act::Released(body) => state.has_nonce(body.nonce),
            Act::Consumed(body) => state.has_nonce(body.nonce),
            Act::Sealed(body) => state.has_bag(body.bag),
            Act::Analysed(body) => state.judge_analysed(body),
            Act::Rehearsed(_)
            | Act::Nonce(_)
            | Act::Withdrawn(_)
            | Act::Closed(_)
            | Act::Genesis(_)
            | Act::Lane(_)
            | Act::Registered(_)
            | Act::Record(_)
            | Act::Corrected(_)
            | Act::Note(_) => Ok(()),
        }
    }

    fn judge_record(&self, body: &Record) -> Result<(), Contradiction> {
        let state = self.live(body.packet)?;
        state.not_withdrawn(body.packet, "record")?;
        if !state.standing.is_sealed() {
            return Err(Contradiction::State {
                packet: body.packet,
                standing: state.standing,
                kind: "record",
                needs: "sealed",
            });
        }
        let newest = state.newest_verdict();
        if state.standing != Standing::SealedPass || newest != Some(Verdict::Pass) {
            return Err(Contradiction::RecordVerdict {
                packet: body.packet,
                standing: state.standing,
                newest: newest.map_or("nothing", Verdict::as_str),
            });
        }
        let mut analyses = state.analyses.iter();
        if !analyses.any(|one| one.seal == body.seal && one.verdict == Verdict::Pass) {
            return Err(Contradiction::RecordSeal {
                packet: body.packet,
                seal: body.seal,
            });
        }
        let expected = self.records.get(&body.key).map(|record| record.entry);
        if expected != body.supersedes {
            return Err(Contradiction::RecordCurrent {
                key: body.key.clone(),
                expected,
                actual: body.supersedes,
            });
        }
        Ok(())
    }

    fn judge_corrected(&self, body: &Corrected) -> Result<(), Contradiction> {
        let why = if body.entry >= self.count {
            "is not there, so there is nothing to correct"
        } else if self.corrected.contains(&body.entry) {
            "is itself a correction: correct the entry that it corrects"
        } else {
            return Ok(());
        };
        let entry = body.entry;
        Err(Contradiction::Correction { entry, why })
    }

    fn judge_note(&self, body: &Note) -> Result<(), Contradiction> {
        match &body.lane {
            Some(lane) if !self.lanes.contains_key(lane) => {
                Err(Contradiction::LaneUnknown { lane: lane.clone() })
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl PacketState {
    /// It was not given up: a withdrawal is the end of a packet, as a seal is.
    fn not_withdrawn(&self, packet: Digest, kind: &'static str) -> Result<(), Contradiction> {
        match &self.withdrawn {
            None => Ok(()),
            Some(withdrawn) => Err(Contradiction::Withdrawn {
                packet,
                entry: withdrawn.entry,
                at_ns: withdrawn.at_ns,
                kind,
            }),
        }
    }

    /// The newest rehearsal is the one that an entry cites.
    fn cites(&self, actual: u64) -> Result<(), Contradiction> {
        match self.rehearsals.last() {
            Some(expected) if *expected != actual => Err(Contradiction::Rehearsal {
                expected: *expected,
                actual,
            }),
            Some(_) | None => Ok(()),
        }
    }

    fn judge_armed(&self, body: &Armed) -> Result<(), Contradiction> {
        self.cites(body.rehearsal)?;
        if let Some((reviewer, word)) = self.rejection() {
            return Err(Contradiction::Rejected {
                reviewer: reviewer.to_owned(),
                entry: word.entry,
            });
        }
        let approvals = self.approvals();
        match body.reviews.iter().find(|entry| !approvals.contains(entry)) {
            None => Ok(()),
            Some(entry) => Err(Contradiction::ReviewUnknown { entry: *entry }),
        }
    }

    fn has_nonce(&self, actual: Digest) -> Result<(), Contradiction> {
        match self.nonce {
            Some(expected) if expected != actual => {
                Err(Contradiction::NonceOther { expected, actual })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn has_bag(&self, actual: Digest) -> Result<(), Contradiction> {
        match self.bag {
            Some(expected) if expected != actual => {
                Err(Contradiction::BagOther { expected, actual })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn judge_analysed(&self, body: &Analysed) -> Result<(), Contradiction> {
        self.has_bag(body.bag)?;
        let expected = self.analyses.last().map_or(1, |one| one.number + 1);
        if body.number != expected {
            let actual = body.number;
            return Err(Contradiction::Number { expected, actual });
        }
        Ok(())
    }
}

/// The states that admit an act on a packet, and their names for a message: the table of the
/// format.
fn admitting(act: &Act) -> (&'static [Standing], &'static str) {
    use Standing::{
        Armed, Closed, Consumed, Nonce, Registered, Rehearsed, Reviewed, SealedAbort, SealedFail,
        SealedPass,
    };
    match act {
        Act::Rehearsed(_) => (
            &[Registered, Rehearsed, Reviewed, Armed],
            "registered, rehearsed, reviewed or armed",
        ),
        Act::Reviewed(_) => (
            &[Rehearsed, Reviewed, Armed],
            "rehearsed (its newest rehearsal green), reviewed or armed",
        ),
        Act::Armed(_) => (&[Rehearsed, Reviewed], "rehearsed or reviewed"),
        Act::Nonce(_) => (&[Armed], "armed"),
        Act::Withdrawn(_) => (
            &[Registered, Rehearsed, Reviewed, Armed],
            "registered, rehearsed, reviewed or armed",
        ),
        Act::Released(_) | Act::Consumed(_) => (&[Nonce], "announced by a nonce"),
        Act::Closed(_) => (&[Consumed], "consumed"),
        Act::Sealed(_) => (&[Closed], "closed"),
        Act::Analysed(_) => (&[SealedPass, SealedFail, SealedAbort], "sealed"),
        Act::Genesis(_)
        | Act::Lane(_)
        | Act::Registered(_)
        | Act::Record(_)
        | Act::Corrected(_)
        | Act::Note(_) => (&[], "nothing"),
    }
}
