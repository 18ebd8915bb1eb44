//! Words for states, and the next act that each state allows.

use super::derive::count_and_reasons;
use super::numbers::saving_text;
use super::values::{Basis, Lane, LaneState, Packet, PacketState, Page};
use super::words::short;
use crate::act::Verdict;

/// What can be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A command.
    Command(String),
    /// Something that no command of ours does.
    Words(String),
    /// Nothing: it is over.
    Nothing,
}

/// How a state is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Going,
    Pass,
    Fail,
    Abort,
    Wait,
}

impl Tone {
    /// The class of the style sheet.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Going => "going",
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Abort => "abort",
            Self::Wait => "wait",
        }
    }
}

impl Page {
    /// The next act on a packet in words, most often a command; `None` where nothing can follow.
    pub fn next_on_packet(&self, packet: &Packet) -> Option<String> {
        of_packet(self, packet).text()
    }

    /// The next act on a lane; `None` where nothing can follow.
    pub fn next_on_lane(&self, lane: &Lane) -> Option<String> {
        of_lane(self, lane).text()
    }
}

impl Next {
    fn text(self) -> Option<String> {
        match self {
            Self::Command(text) | Self::Words(text) => Some(text),
            Self::Nothing => None,
        }
    }
}

impl LaneState {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Paused => "paused",
            Self::Blocked => "blocked",
            Self::Closed => "closed",
        }
    }

    pub(super) fn tone(self) -> Tone {
        match self {
            Self::Open => Tone::Going,
            Self::Paused | Self::Blocked => Tone::Wait,
            Self::Closed => Tone::Plain,
        }
    }

    /// Whether experiments may be registered.
    pub(super) fn is_open(self) -> bool {
        match self {
            Self::Open => true,
            Self::Paused | Self::Blocked | Self::Closed => false,
        }
    }

    /// Whether it waits for a day.
    pub(super) fn waits(self) -> bool {
        match self {
            Self::Paused | Self::Blocked => true,
            Self::Open | Self::Closed => false,
        }
    }
}

impl PacketState {
    /// Its words.
    pub fn word(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::RehearsedRed => "rehearsed, red",
            Self::RehearsedGreen => "rehearsed, green",
            Self::Reviewed => "reviewed",
            Self::Rejected => "rejected by a reviewer",
            Self::Armed => "armed",
            Self::Nonce => "nonce taken",
            Self::Released => "released",
            Self::Spent => "released, spent",
            Self::Withdrawn => "withdrawn",
            Self::Consumed => "consumed",
            Self::Closed => "bag closed",
            Self::SealedPass => "sealed, pass",
            Self::SealedFail => "sealed, fail",
            Self::SealedAbort => "sealed, abort",
        }
    }

    pub(super) fn tone(self) -> Tone {
        match self {
            Self::Registered | Self::Withdrawn => Tone::Plain,
            Self::RehearsedGreen | Self::Reviewed | Self::Armed => Tone::Going,
            Self::RehearsedRed | Self::Rejected | Self::SealedFail => Tone::Fail,
            Self::Nonce | Self::Released | Self::Consumed | Self::Closed => Tone::Wait,
            Self::SealedPass => Tone::Pass,
            Self::SealedAbort | Self::Spent => Tone::Abort,
        }
    }

    /// Whether it was sealed.
    pub(super) fn is_sealed(self) -> bool {
        matches!(
            self,
            Self::SealedPass | Self::SealedFail | Self::SealedAbort
        )
    }

    /// Whether nothing can follow.
    pub(super) fn is_over(self) -> bool {
        match self {
            Self::SealedPass
            | Self::SealedFail
            | Self::SealedAbort
            | Self::Spent
            | Self::Withdrawn => true,
            Self::Registered
            | Self::RehearsedRed
            | Self::RehearsedGreen
            | Self::Reviewed
            | Self::Rejected
            | Self::Armed
            | Self::Nonce
            | Self::Released
            | Self::Consumed
            | Self::Closed => false,
        }
    }
}

/// The colour of a verdict.
pub(super) fn of_verdict(verdict: Verdict) -> Tone {
    match verdict {
        Verdict::Pass => Tone::Pass,
        Verdict::Fail => Tone::Fail,
        Verdict::Abort => Tone::Abort,
    }
}

impl Basis {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Verified => "verified",
            Self::Attested => "attested",
            Self::Mixed => "mixed",
        }
    }
}

/// The next act on a packet.
pub(super) fn of_packet(page: &Page, packet: &Packet) -> Next {
    if packet.state.is_over() {
        return Next::Nothing;
    }
    let lane = page.lanes.iter().find(|lane| lane.lane == packet.lane);
    let is_taken = matches!(
        packet.state,
        PacketState::Nonce | PacketState::Consumed | PacketState::Closed
    );
    let noise = within_noise(packet).filter(|_| !is_taken);
    // What is taken already must be finished, whatever became of the lane.
    match lane.map(|lane| (lane.state, lane)) {
        Some((LaneState::Closed, _)) if !is_taken => {
            return Next::Words("none: its lane is closed".to_owned());
        }
        Some((LaneState::Paused | LaneState::Blocked, lane)) if !is_taken && noise.is_none() => {
            return Next::Words(format!("its lane waits{}", until(lane)));
        }
        Some(_) | None => {}
    }
    if let Some(words) = noise {
        return Next::Words(words);
    }
    let act = match packet.state {
        PacketState::Registered | PacketState::RehearsedRed => "rehearse",
        PacketState::RehearsedGreen => return review(packet),
        PacketState::Reviewed => match packet.approvals_missing() {
            0 => "arm",
            _ => return review(packet),
        },
        PacketState::Armed | PacketState::Released => "run",
        PacketState::Nonce | PacketState::Consumed | PacketState::Closed => {
            let seal = format!("packhouse lab seal {}", name(packet));
            return Next::Words(format!("the run's end; where it was killed: {seal}"));
        }
        PacketState::Rejected => {
            return Next::Words("the reviewer's approval, or another experiment".to_owned());
        }
        PacketState::SealedPass
        | PacketState::SealedFail
        | PacketState::SealedAbort
        | PacketState::Spent
        | PacketState::Withdrawn => return Next::Nothing,
    };
    Next::Command(format!("packhouse lab {act} {}", name(packet)))
}

/// What is left of a packet whose timing gate asks for less than its rehearsals could tell from
/// none: neither that number nor what was measured changes any more, so no rehearsal is green.
fn within_noise(packet: &Packet) -> Option<String> {
    let asked_ns = packet.plan.here()?.timing?.minimum_median_saving_ns;
    let told = packet.rehearsals.detectable_ns.iter();
    let (device, least_ns) = told.max_by_key(|(_, ns)| *ns)?;
    (asked_ns < *least_ns).then(|| {
        format!(
            "none but to give it up: its timing gate asks for {}, which lies within the noise \
             that its rehearsals measured ({} on {device}); packhouse lab withdraw {} --reason \
             TEXT, and a new preregistration",
            saving_text(asked_ns),
            saving_text(*least_ns),
            name(packet)
        )
    })
}

/// A review, with the words that it must have. Without `--execute` it only says what it would do.
fn review(packet: &Packet) -> Next {
    let words = "--reviewer NAME --verdict approve --note TEXT";
    Next::Command(format!("packhouse lab review {} {words}", name(packet)))
}

impl Packet {
    /// How often it was released before its marker, and why, if it ever was.
    pub(super) fn told_released(&self) -> Option<String> {
        count_and_reasons(&self.released)
    }

    /// Approvals that arming still needs, as far as is known.
    pub(super) fn approvals_missing(&self) -> u64 {
        let needed = self.plan.here().map_or(0, |plan| plan.reviewers);
        let given = self.reviews.iter().filter(|one| one.approves).count();
        needed.saturating_sub(u64::try_from(given).unwrap_or(u64::MAX))
    }
}

/// The next act on a lane.
pub(super) fn of_lane(page: &Page, lane: &Lane) -> Next {
    match lane.state {
        LaneState::Closed => return Next::Nothing,
        LaneState::Paused | LaneState::Blocked => {
            return Next::Words(format!("waits{}", until(lane)));
        }
        LaneState::Open => {}
    }
    let of_lane = |packet: &&Packet| packet.lane == lane.lane && !packet.state.is_over();
    match page.packets.iter().rev().find(of_lane) {
        Some(packet) => of_packet(page, packet),
        None => Next::Words("register an experiment".to_owned()),
    }
}

fn until(lane: &Lane) -> String {
    match &lane.until {
        Some(day) => format!(" until {day}"),
        None => String::new(),
    }
}

/// A packet as commands take it: by its experiment, or by its digest where a shell would do
/// something else with that name.
fn name(packet: &Packet) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    let name = &packet.experiment;
    match name.bytes().all(is_plain) && !name.is_empty() && !name.starts_with('-') {
        true => name.clone(),
        false => short(&packet.packet),
    }
}
