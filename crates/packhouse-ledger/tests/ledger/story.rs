//! Ledgers for tests: acts with plain names, and a story that appends them without a writer.

use packhouse_base::digest::Digest;
use packhouse_ledger::act::{
    Act, Analysed, Armed, Closed, Consumed, Corrected, Date, Genesis, Lane, LaneAction, Name,
    Nonce, Note, Record, Registered, Rehearsed, Released, Review, Reviewed, Sealed, Stage, Verdict,
    Withdrawn,
};
use packhouse_ledger::entry::{Entry, NO_ENTRY};
use packhouse_ledger::{EntryFault, Ledger, LedgerError};

/// Lines of acts, chained, whether or not they contradict each other.
#[derive(Clone)]
pub(crate) struct Story {
    pub(crate) bytes: Vec<u8>,
    pub(crate) count: u64,
    previous: Digest,
}

impl Story {
    /// A lab with one open lane, `cpu`.
    pub(crate) fn begun() -> Self {
        let mut story = Self::unbegun();
        story.tell(genesis());
        story.tell(open("cpu"));
        story
    }

    /// Not even a genesis.
    pub(crate) fn unbegun() -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
            previous: NO_ENTRY,
        }
    }

    /// Adds a line and returns its index.
    pub(crate) fn tell(&mut self, act: impl Into<Act>) -> u64 {
        let at_ns = 1_000 + i64::try_from(self.count).expect("because tests are short");
        self.tell_at(act, at_ns)
    }

    /// Adds a line of a time.
    pub(crate) fn tell_at(&mut self, act: impl Into<Act>, at_ns: i64) -> u64 {
        let line = Entry::render(&act.into(), self.count, self.previous, at_ns, "boot-1");
        self.previous = Digest::of(&line[..line.len() - 1]);
        self.bytes.extend_from_slice(&line);
        self.count += 1;
        self.count - 1
    }

    /// Reads it.
    pub(crate) fn ledger(&self) -> Ledger {
        Ledger::parse(&self.bytes).expect("because the story holds together")
    }

    /// What speaks against telling an act next, by reader and by writer alike.
    pub(crate) fn refusal(&self, act: impl Into<Act>) -> Option<EntryFault> {
        let act = act.into();
        let asked = match self.count {
            0 => None,
            _ => Some(self.ledger().accepts(&act).err()),
        };
        let mut told = self.clone();
        let at = told.tell(act);
        let read = match Ledger::parse(&told.bytes) {
            Ok(_) => None,
            Err(LedgerError::Entry { index, fault }) if index == at => Some(fault),
            Err(error) => panic!("refused for something else: {error}"),
        };
        if let Some(asked) = asked {
            assert_eq!(asked, read, "writer and reader judge alike");
        }
        let oracle = packhouse_bagcheck::check_ledger(&told.bytes);
        let codes: Vec<_> = oracle.findings.iter().map(|one| one.code).collect();
        let expected: Vec<_> = read.iter().map(EntryFault::code).collect();
        assert_eq!(
            codes, expected,
            "bagcheck says the same: {:?}",
            oracle.findings
        );
        read
    }

    /// Takes packet 1 of experiment `one` to a state.
    pub(crate) fn to(standing: &str) -> Self {
        let mut story = Self::begun();
        if standing == "withdrawn" {
            story.advance(1, "one", "armed");
            story.tell(withdrawn(1));
            return story;
        }
        story.advance(1, "one", standing);
        story
    }

    /// Takes a packet to a state.
    pub(crate) fn advance(&mut self, n: u8, experiment: &str, standing: &str) {
        let steps: [(&str, Vec<Act>); 7] = [
            ("registered", vec![registered(n, experiment).into()]),
            ("rehearsed", vec![green(n).into()]),
            ("reviewed", Vec::new()),
            ("armed", Vec::new()),
            ("nonce", vec![nonce(n, n).into()]),
            ("consumed", vec![consumed(n, n).into()]),
            ("closed", vec![closed(n).into()]),
        ];
        for (name, acts) in steps {
            match (name, standing) {
                ("reviewed", _) => {
                    let newest = self.count - 1;
                    self.tell(reviewed(n, "ada", Review::Approve, newest));
                }
                ("armed", _) => {
                    let newest = self.count - 1;
                    self.tell(armed(n, newest - 1, vec![newest]));
                }
                ("closed", "sealed-pass" | "sealed-fail" | "sealed-abort") => {
                    let verdict = Verdict::parse(&standing[7..]).expect("because it is one");
                    self.tell(closed(n));
                    self.tell(sealed(n, verdict));
                    return;
                }
                _ => {
                    for act in acts {
                        self.tell(act);
                    }
                }
            }
            if name == standing {
                return;
            }
        }
        panic!("no state {standing}");
    }
}

pub(crate) fn digest(n: u8) -> Digest {
    Digest::from_bytes([n; 32])
}

pub(crate) fn name(text: &str) -> Name {
    Name::parse(text).expect("because tests use names")
}

pub(crate) fn genesis() -> Genesis {
    Genesis {
        lab: "a lab".to_owned(),
        id: digest(0xaa),
    }
}

pub(crate) fn lane(lane: &str, action: LaneAction) -> Lane {
    let until = Date::parse("2026-12-24").expect("because it is a day");
    Lane {
        lane: name(lane),
        action,
        reason: "because".to_owned(),
        document: (action == LaneAction::Open).then(|| digest(0xdd)),
        until: matches!(action, LaneAction::Pause | LaneAction::Block).then_some(until),
    }
}

pub(crate) fn open(name: &str) -> Lane {
    lane(name, LaneAction::Open)
}

pub(crate) fn registered(n: u8, experiment: &str) -> Registered {
    Registered {
        packet: digest(n),
        experiment: name(experiment),
        lane: name("cpu"),
        prereg: digest(0xee),
        treatment: "a faster kernel".to_owned(),
    }
}

pub(crate) fn green(n: u8) -> Rehearsed {
    Rehearsed {
        packet: digest(n),
        green: true,
        stage: None,
        reason: String::new(),
        bag: Some(digest(0xb0)),
        analysis: Some(digest(0xb1)),
        analyzer: digest(0xb2),
        tampers: 40,
        rejected: 40,
        elapsed_ns: 7_000_000_000,
        detectable_ns: Some([("cpu".to_owned(), 12_000)].into()),
    }
}

pub(crate) fn red(n: u8) -> Rehearsed {
    Rehearsed {
        green: false,
        stage: Some(Stage::Hello),
        reason: "the program did not greet".to_owned(),
        bag: None,
        analysis: None,
        rejected: 0,
        detectable_ns: None,
        ..green(n)
    }
}

pub(crate) fn reviewed(n: u8, reviewer: &str, verdict: Review, rehearsal: u64) -> Reviewed {
    Reviewed {
        packet: digest(n),
        reviewer: reviewer.to_owned(),
        verdict,
        note: String::new(),
        rehearsal,
    }
}

pub(crate) fn armed(n: u8, rehearsal: u64, reviews: Vec<u64>) -> Armed {
    Armed {
        packet: digest(n),
        rehearsal,
        reviews,
    }
}

pub(crate) fn nonce(n: u8, value: u8) -> Nonce {
    Nonce {
        packet: digest(n),
        nonce: digest(value),
        markers: Some(digest(0xa0)),
    }
}

pub(crate) fn released(n: u8, value: u8) -> Released {
    Released {
        packet: digest(n),
        nonce: digest(value),
        stage: Stage::Marker,
        reason: "it ended before its marker".to_owned(),
    }
}

pub(crate) fn withdrawn(n: u8) -> Withdrawn {
    Withdrawn {
        packet: digest(n),
        reason: "the width is another one".to_owned(),
    }
}

pub(crate) fn consumed(n: u8, value: u8) -> Consumed {
    Consumed {
        packet: digest(n),
        nonce: digest(value),
        marker: digest(0xc0),
    }
}

pub(crate) fn closed(n: u8) -> Closed {
    Closed {
        packet: digest(n),
        bag: digest(0xc1),
    }
}

pub(crate) fn sealed(n: u8, verdict: Verdict) -> Sealed {
    let stage = (verdict == Verdict::Abort).then_some(Stage::Leg);
    Sealed {
        packet: digest(n),
        verdict,
        bag: digest(0xc1),
        analysis: digest(0xc2),
        seal: digest(0xc3),
        number: 1,
        reason: stage.map_or("", |_| "the candidate died").to_owned(),
        stage,
    }
}

pub(crate) fn analysed(n: u8, number: u64, verdict: Verdict) -> Analysed {
    Analysed {
        packet: digest(n),
        number,
        verdict,
        bag: digest(0xc1),
        analysis: digest(0xc4),
        seal: digest(0xc5),
        analyzer: digest(0xc6),
        why: "the range of widths was too narrow".to_owned(),
    }
}

pub(crate) fn record(n: u8, supersedes: Option<u64>) -> Record {
    Record {
        key: "cpu/decode".to_owned(),
        packet: digest(n),
        seal: digest(0xc3),
        claim: "12 us less per cycle".to_owned(),
        widths: vec![1, 4],
        supersedes,
    }
}

pub(crate) fn corrected(entry: u64) -> Corrected {
    Corrected {
        entry,
        text: "the title has a slip".to_owned(),
    }
}

pub(crate) fn note(lane: Option<&str>) -> Note {
    Note {
        lane: lane.map(name),
        text: "a word".to_owned(),
    }
}

/// One act of each kind on packet 1, fit for no state in particular.
pub(crate) fn one_of_each() -> Vec<Act> {
    vec![
        genesis().into(),
        open("cpu").into(),
        lane("cpu", LaneAction::Block).into(),
        registered(1, "one").into(),
        green(1).into(),
        red(1).into(),
        reviewed(1, "ada", Review::Approve, 3).into(),
        armed(1, 3, vec![4]).into(),
        nonce(1, 1).into(),
        released(1, 1).into(),
        withdrawn(1).into(),
        consumed(1, 1).into(),
        closed(1).into(),
        sealed(1, Verdict::Pass).into(),
        sealed(1, Verdict::Abort).into(),
        analysed(1, 2, Verdict::Pass).into(),
        record(1, None).into(),
        corrected(1).into(),
        note(Some("cpu")).into(),
        note(None).into(),
    ]
}
