//! What entries make, one after the other: `docs/format/ledger.md`, section 5.

use super::{Entry, Packets, Refusal};
use std::collections::{BTreeMap, BTreeSet};

/// How far a lane or packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stand {
    /// Frozen.
    Registered,
    /// The newest rehearsal is green.
    Rehearsed,
    /// Somebody said something since.
    Reviewed,
    /// May be run once.
    Armed,
    /// Its nonce is open.
    Nonce,
    /// Its marker was taken.
    Consumed,
    /// Its bag is closed.
    Closed,
    /// Its bag is sealed.
    Sealed,
    /// It was given up before it was run.
    Withdrawn,
}

impl Stand {
    /// Returns the word for people.
    fn word(self) -> &'static str {
        match self {
            Self::Registered => "registered",
            Self::Rehearsed => "rehearsed",
            Self::Reviewed => "reviewed",
            Self::Armed => "armed",
            Self::Nonce => "before its marker, with a nonce",
            Self::Consumed => "consumed",
            Self::Closed => "closed",
            Self::Sealed => "sealed",
            Self::Withdrawn => "withdrawn",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lane {
    Open,
    Waiting,
    Closed,
}

/// One packet.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// Its experiment.
    pub(crate) experiment: String,
    /// Its lane.
    pub(crate) lane: String,
    /// Digest of its preregistration.
    pub(crate) prereg: String,
    /// How far it is.
    pub(crate) stand: Stand,
    /// The nonce that is open or was consumed.
    pub(crate) nonce: Option<String>,
    /// Index of the entry that gave that nonce.
    pub(crate) nonce_index: Option<u64>,
    /// Digest of the marker.
    pub(crate) marker: Option<String>,
    /// Digest of the closed bag.
    pub(crate) bag: Option<String>,
    /// Approvals that `armed` cites.
    pub(crate) approvals: usize,
    /// Seals by number: seal, analysis, verdict, and the index of the entry.
    pub(crate) seals: BTreeMap<u64, Seal>,
    /// What its rehearsals left.
    pub(crate) rehearsals: Vec<Rehearsal>,
    rehearsal: Option<(u64, bool)>,
    words: BTreeMap<String, (u64, bool)>,
    current: BTreeSet<u64>,
}

/// What a rehearsal left.
#[derive(Clone, Debug)]
pub(crate) struct Rehearsal {
    /// Digest of its bag; empty where it left none.
    pub(crate) bag: String,
    /// Digest of its analysis.
    pub(crate) analysis: Option<String>,
}

/// One seal as the ledger has it.
#[derive(Clone, Debug)]
pub(crate) struct Seal {
    /// Digest of the seal.
    pub(crate) seal: String,
    /// Digest of the analysis.
    pub(crate) analysis: String,
    /// Its verdict.
    pub(crate) verdict: String,
    /// Stage and reason; none of them in an entry that has none.
    pub(crate) words: (String, String),
    /// Digest of the analyzer, where the entry has it.
    pub(crate) analyzer: String,
    /// Index of the entry.
    pub(crate) index: u64,
}

/// Everything that follows from the entries so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    /// Id of the lab.
    pub(crate) lab: Option<String>,
    /// Packets by digest.
    pub(crate) packets: Packets,
    /// Document of each lane.
    pub(crate) documents: BTreeMap<String, String>,
    lanes: BTreeMap<String, Lane>,
    nonces: BTreeSet<String>,
    records: BTreeMap<String, u64>,
    corrections: BTreeSet<u64>,
    entries: BTreeSet<u64>,
}

fn refuse<T>(code: &'static str, words: impl Into<String>) -> Result<T, Refusal> {
    Err((code, words.into()))
}

impl State {
    /// Applies one entry, or says why it contradicts.
    pub(crate) fn apply(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let is_genesis = entry.kind == "genesis";
        if is_genesis != (entry.index == 0) {
            return refuse("ledger.genesis", "index 0 is the genesis, and only that");
        }
        match entry.kind.as_str() {
            "genesis" => self.lab = Some(entry.body.text("id").to_owned()),
            "lane" => self.lane(entry)?,
            "registered" => self.registered(entry)?,
            "corrected" => self.corrected(entry)?,
            "note" => {
                let lane = entry.body.text("lane");
                if !lane.is_empty() && !self.lanes.contains_key(lane) {
                    return refuse("ledger.lane-unknown", format!("no lane {lane:?}"));
                }
            }
            "record" => self.record(entry)?,
            _ => self.packet(entry)?,
        }
        self.entries.insert(entry.index);
        Ok(())
    }

    fn lane(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let name = entry.body.text("lane").to_owned();
        let action = entry.body.text("action");
        let stand = self.lanes.get(&name).copied();
        if action == "open" {
            if stand.is_some() {
                return refuse(
                    "ledger.lane-exists",
                    format!("lane {name:?} was opened before"),
                );
            }
            let document = entry.body.text("document").to_owned();
            self.documents.insert(name.clone(), document);
            self.lanes.insert(name, Lane::Open);
            return Ok(());
        }
        let Some(stand) = stand else {
            return refuse("ledger.lane-unknown", format!("no lane {name:?}"));
        };
        let is_running = |packet: &Packet| {
            packet.lane == name && (Stand::Nonce..=Stand::Closed).contains(&packet.stand)
        };
        let next = match (action, stand) {
            (_, Lane::Closed) => {
                return refuse("ledger.lane-closed", format!("lane {name:?} is closed"));
            }
            ("close", _) if self.packets.values().any(is_running) => {
                let words = format!("a packet of lane {name:?} is being run");
                return refuse("ledger.lane-busy", words);
            }
            ("close", _) => Lane::Closed,
            ("resume", Lane::Open) => {
                return refuse("ledger.lane-state", format!("lane {name:?} is open"));
            }
            ("resume", Lane::Waiting) => Lane::Open,
            (_, Lane::Open | Lane::Waiting) => Lane::Waiting,
        };
        self.lanes.insert(name, next);
        Ok(())
    }

    fn lane_of(&self, name: &str, kind: &str) -> Result<(), Refusal> {
        match self.lanes.get(name) {
            None => refuse("ledger.lane-unknown", format!("no lane {name:?}")),
            Some(Lane::Closed) => refuse("ledger.lane-closed", format!("lane {name:?} is closed")),
            Some(Lane::Waiting) if ["registered", "armed", "nonce"].contains(&kind) => refuse(
                "ledger.lane-waiting",
                format!("lane {name:?} is paused or blocked"),
            ),
            Some(Lane::Waiting | Lane::Open) => Ok(()),
        }
    }

    fn registered(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let body = &entry.body;
        let packet = body.text("packet").to_owned();
        let experiment = body.text("experiment");
        if self.packets.contains_key(&packet) {
            return refuse(
                "ledger.packet-exists",
                format!("packet {packet} is registered"),
            );
        }
        if self
            .packets
            .values()
            .any(|other| other.experiment == experiment)
        {
            let words = format!("experiment {experiment:?} is registered");
            return refuse("ledger.experiment-exists", words);
        }
        self.lane_of(body.text("lane"), "registered")?;
        let made = Packet {
            experiment: experiment.to_owned(),
            lane: body.text("lane").to_owned(),
            prereg: body.text("prereg").to_owned(),
            stand: Stand::Registered,
            nonce: None,
            nonce_index: None,
            marker: None,
            bag: None,
            approvals: 0,
            seals: BTreeMap::new(),
            rehearsals: Vec::new(),
            rehearsal: None,
            words: BTreeMap::new(),
            current: BTreeSet::new(),
        };
        self.packets.insert(packet, made);
        Ok(())
    }

    fn corrected(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let of = entry.body.count("entry").unwrap_or(u64::MAX);
        if !self.entries.contains(&of) || self.corrections.contains(&of) {
            let words = format!("entry {of} is not there, or is itself a correction");
            return refuse("ledger.correction", words);
        }
        self.corrections.insert(entry.index);
        Ok(())
    }

    fn record(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let body = &entry.body;
        let digest = body.text("packet");
        let Some(packet) = self.packets.get(digest) else {
            return refuse("ledger.packet-unknown", format!("no packet {digest}"));
        };
        self.lane_of(&packet.lane, "record")?;
        let of = |number: Option<u64>| number.and_then(|number| packet.seals.get(&number));
        let first = of(Some(1));
        let newest = packet.seals.values().next_back();
        let is_pass = |seal: Option<&Seal>| seal.is_some_and(|seal| seal.verdict == "pass");
        if packet.stand != Stand::Sealed || first.is_none() {
            return refuse("ledger.state", format!("packet {digest} is not sealed"));
        }
        if !is_pass(first) || !is_pass(newest) {
            let words = format!("packet {digest} has another verdict than pass");
            return refuse("ledger.record-verdict", words);
        }
        let cited = |seal: &&Seal| seal.seal == body.text("seal") && seal.verdict == "pass";
        if !packet.seals.values().any(|seal| cited(&seal)) {
            let words = format!("no passed seal {} of this packet", body.text("seal"));
            return refuse("ledger.record-seal", words);
        }
        let key = body.text("key").to_owned();
        let current = self.records.get(&key).copied();
        if current != body.count("supersedes") {
            let words = match current {
                Some(current) => format!("the current record of {key:?} is entry {current}"),
                None => format!("{key:?} has no current record"),
            };
            return refuse("ledger.record-current", words);
        }
        self.records.insert(key, entry.index);
        Ok(())
    }

    fn packet(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let kind = entry.kind.as_str();
        let digest = entry.body.text("packet").to_owned();
        let Some(packet) = self.packets.get(&digest) else {
            return refuse("ledger.packet-unknown", format!("no packet {digest}"));
        };
        self.lane_of(&packet.lane, kind)?;
        if kind == "nonce" && packet.stand == Stand::Nonce {
            return refuse("ledger.nonce-open", "a second nonce while one is open");
        }
        let admitted = match kind {
            "rehearsed" => Stand::Registered..=Stand::Armed,
            "reviewed" => Stand::Rehearsed..=Stand::Armed,
            "armed" => Stand::Rehearsed..=Stand::Reviewed,
            "nonce" => Stand::Armed..=Stand::Armed,
            "withdrawn" => Stand::Registered..=Stand::Armed,
            "released" | "consumed" => Stand::Nonce..=Stand::Nonce,
            "closed" => Stand::Consumed..=Stand::Consumed,
            "sealed" => Stand::Closed..=Stand::Closed,
            _ => Stand::Sealed..=Stand::Sealed,
        };
        if !admitted.contains(&packet.stand) {
            let words = format!("{kind} of a packet that is {}", packet.stand.word());
            return refuse("ledger.state", words);
        }
        if kind == "nonce" && !self.nonces.insert(entry.body.text("nonce").to_owned()) {
            return refuse("ledger.nonce-reused", "a nonce of an earlier entry");
        }
        let packet = self.packets.get_mut(&digest);
        packet.expect("because it was found above").act(entry)
    }
}

impl Packet {
    fn act(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let body = &entry.body;
        let own = |name: &str| Some(body.text(name).to_owned());
        match entry.kind.as_str() {
            "rehearsed" => {
                let is_green = body.flag("green");
                self.rehearsal = Some((entry.index, is_green));
                let analysis = body.text("analysis");
                self.rehearsals.push(Rehearsal {
                    bag: body.text("bag").to_owned(),
                    analysis: (!analysis.is_empty()).then(|| analysis.to_owned()),
                });
                self.stand = if is_green {
                    Stand::Rehearsed
                } else {
                    Stand::Registered
                };
            }
            "reviewed" => self.review(entry)?,
            "armed" => self.arm(entry)?,
            "nonce" => {
                self.nonce = own("nonce");
                self.nonce_index = Some(entry.index);
                self.stand = Stand::Nonce;
            }
            "released" | "consumed" if self.nonce != own("nonce") => {
                return refuse("ledger.nonce", "another nonce than the open one");
            }
            "released" => {
                self.nonce = None;
                self.stand = Stand::Armed;
            }
            "withdrawn" => self.stand = Stand::Withdrawn,
            "consumed" => {
                self.marker = own("marker");
                self.stand = Stand::Consumed;
            }
            "closed" => {
                self.bag = own("bag");
                self.stand = Stand::Closed;
            }
            _ => self.seal(entry)?,
        }
        Ok(())
    }

    fn cites_newest(&self, entry: &Entry) -> Result<(), Refusal> {
        let cited = entry.body.count("rehearsal");
        match self.rehearsal {
            Some((index, true)) if cited == Some(index) => Ok(()),
            newest => {
                let index = |index: Option<u64>| match index {
                    Some(index) => format!("entry {index}"),
                    None => "none".to_owned(),
                };
                let cited = index(cited);
                let words = match newest {
                    Some((newest, false)) => format!("entry {newest}, which is not green"),
                    newest => index(newest.map(|(newest, _)| newest)),
                };
                refuse(
                    "ledger.rehearsal",
                    format!("cites {cited}, the newest rehearsal is {words}"),
                )
            }
        }
    }

    fn review(&mut self, entry: &Entry) -> Result<(), Refusal> {
        self.cites_newest(entry)?;
        let is_approval = entry.body.text("verdict") == "approve";
        let reviewer = entry.body.text("reviewer").to_owned();
        if let Some((last, _)) = self.words.insert(reviewer, (entry.index, is_approval)) {
            self.current.remove(&last);
        }
        if is_approval {
            self.current.insert(entry.index);
        }
        if !(is_approval && self.stand == Stand::Armed) {
            self.stand = Stand::Reviewed;
        }
        Ok(())
    }

    fn arm(&mut self, entry: &Entry) -> Result<(), Refusal> {
        self.cites_newest(entry)?;
        if self.words.values().any(|(_, is_approval)| !is_approval) {
            return refuse("ledger.rejected", "a rejection stands");
        }
        let reviews = entry.body.list("reviews");
        if let Some(other) = reviews.iter().find(|index| !self.current.contains(*index)) {
            let words = format!("entry {other} is no standing approval of this packet");
            return refuse("ledger.review", words);
        }
        self.approvals = reviews.len();
        self.stand = Stand::Armed;
        Ok(())
    }

    fn seal(&mut self, entry: &Entry) -> Result<(), Refusal> {
        let body = &entry.body;
        if self.bag.as_deref() != Some(body.text("bag")) {
            return refuse("ledger.bag", "another bag than the closed one");
        }
        let newest = self.seals.keys().next_back().copied().unwrap_or(0);
        let number = body.count("number").unwrap_or(0);
        if number != newest + 1 {
            let words = format!("number {number} where {} is the next", newest + 1);
            return refuse("ledger.number", words);
        }
        let seal = Seal {
            seal: body.text("seal").to_owned(),
            analysis: body.text("analysis").to_owned(),
            verdict: body.text("verdict").to_owned(),
            words: (
                body.text("stage").to_owned(),
                body.text("reason").to_owned(),
            ),
            analyzer: body.text("analyzer").to_owned(),
            index: entry.index,
        };
        self.seals.insert(number, seal);
        self.stand = Stand::Sealed;
        Ok(())
    }
}
