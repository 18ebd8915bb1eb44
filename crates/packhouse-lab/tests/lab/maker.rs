//! Evidence that was never run: real fixtures, answers that are right, records as the page has
//! them. Its writing is apart from the engine's, so that a mistake there is not one here too.

use packhouse_bag::seal::{Statement, Verdict as SealVerdict};
use packhouse_bag::{BagInfo, Contents, closed};
use packhouse_base::digest::Digest;
use packhouse_component::message::{
    Answer, Capture, CaseOrder, Declined, Greeting, InputFile, InputRecord, Introduction, Offer,
    PROTOCOL, Reply, Request, TensorRecord, Timed, Wanted, Witness,
};
use packhouse_fixture::Fixture;
use packhouse_lab::analysis::{Analysis, Kind, Status, Verdict, analyse};
use packhouse_lab::evidence::{
    ClockRecord, Event, HoldersRecord, HostDeviceRecord, HostRecord, Instants, LegKind, LegRecord,
    LegStatus, Line, ObjectRecord, ProgramRecord, RunLeg, RunRecord, SeenOutput, SeenRecord,
};
use packhouse_lab::marker::Marker;
use packhouse_lab::packet::{FixtureRef, FrozenProgram, LaneRef, Object, Packet, Programs};
use packhouse_lab::prereg::{Leg, Prereg, Treatment};
use packhouse_lab::recipes::{Recipes, challenge};
use packhouse_lab::schedule::{LegPlan, PlannedCase, case_of, rejected_case, schedule};
use packhouse_lab::verify::Evidence;
use packhouse_ledger::act::{
    Armed, Closed, Consumed, Genesis, Lane, LaneAction, Name, Nonce, Registered, Rehearsed, Review,
    Reviewed, Sealed,
};
use packhouse_ledger::{Act, Entry};
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

/// Fixtures of all tests of a process.
pub(crate) static RECIPES: LazyLock<Recipes> = LazyLock::new(Recipes::default);

/// What is otherwise in some evidence.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// The preregistration.
    pub(crate) prereg: String,
    /// A run or a rehearsal.
    pub(crate) kind: Kind,
    /// How long a timed case of the control takes, and of the candidate.
    pub(crate) timed_ns: [u64; 2],
    /// How much longer such an answer takes by the controller's clock than any other line.
    pub(crate) spent_ns: [u64; 2],
    /// Changes an answer of the candidate before it is recorded.
    pub(crate) answer: fn(&PlannedCase, &mut Answer, &mut BTreeMap<String, Vec<u8>>),
    /// Whether the programs say that they poison.
    pub(crate) poisons: bool,
    /// What its rehearsal could tell from none.
    pub(crate) detectable_ns: Option<u64>,
}

/// The analyzer of all evidence here.
pub(crate) fn analyzer() -> Digest {
    Digest::of(b"the analyzer")
}

/// A run of one small fixture with a timing leg, a rejection and every gate; it passes.
pub(crate) fn timed() -> Script {
    Script {
        prereg: prereg("mrow-identity-v1-v1", TIMING),
        kind: Kind::Run,
        timed_ns: [9_000, 5_000],
        spent_ns: [9_000, 5_000],
        answer: |_, _, _| {},
        poisons: true,
        detectable_ns: None,
    }
}

/// A run of a fixture whose boundaries share storages.
pub(crate) fn shared() -> Script {
    Script {
        prereg: prereg("contextkv-bf16-v1", ""),
        ..timed()
    }
}

fn prereg(fixture: &str, more: &str) -> String {
    format!(
        r#"schema = "packhouse/prereg/1"
id = "made"
lane = "lane"
kind = "component"
question = "Is it right?"
authorises = "a next step"
does_not_authorise = "a claim of speed"
exclusions = ["other widths"]
reviewers = 1
time_budget_s = 600
case_timeout_s = 60
rehearsal_max_age_s = 86400
stop = "first-failed-leg"
[treatment]
difference = "another kernel"
[program.control]
program = "packhouse"
arguments = ["fixture", "serve"]
environment = {{}}
[program.candidate]
program = "./kernel"
arguments = []
environment = {{ MODE = "fast" }}
[matrix]
fixtures = ["{fixture}"]
devices = ["cpu"]
arms = ["plain"]
widths = [1]
repeats = 2
promise = "bit-equal"
[[leg]]
kind = "exact"
treatment = "candidate"
[[rejection]]
name = "too-wide"
fixture = "{fixture}"
arm = "plain"
width = 7
reason = "width 7 is not offered"
[[gate]]
kind = "fresh-inputs"
[[gate]]
kind = "stable-pointers"
[[gate]]
kind = "poisoned"
[[gate]]
kind = "no-warnings"
[[gate]]
kind = "capture-idle"
[[gate]]
kind = "witness"
path = "kernel"
counter = "calls"
minimum = 1
[[gate]]
kind = "denial"
denies = ["generation"]
{more}"#
    )
}

const TIMING: &str = r#"[[leg]]
kind = "timing"
[timing]
fixture = "mrow-identity-v1-v1"
arm = "plain"
width = 1
epochs = 1
blocks = 6
cycles = 4
minimum_wins = 5
minimum_median_saving_ns = 500
"#;

const LANE: &str = r#"schema = "packhouse/lane/1"
id = "lane"
title = "A lane"
model = "none"
quantisation = "none"
runtime = "none"
hardware = "a CPU"
promise = "bit-equal"
teacher = "none"
record_key = "a key"
"#;

/// The lines of a ledger.
#[derive(Clone, Default)]
pub(crate) struct Chain {
    /// Its bytes.
    pub(crate) bytes: Vec<u8>,
    next: u64,
    head: Option<Digest>,
}

impl Chain {
    /// Appends an act; its entry's digest.
    pub(crate) fn push(&mut self, act: impl Into<Act>) -> Digest {
        let previous = self.head();
        let line = Entry::render(&act.into(), self.next, previous, 5 + self.at(), "boot");
        let digest = Digest::of(line.strip_suffix(b"\n").expect("because a line ends"));
        self.bytes.extend(line);
        self.next += 1;
        self.head = Some(digest);
        digest
    }

    /// The last entry's digest.
    pub(crate) fn head(&self) -> Digest {
        self.head.unwrap_or(Digest::from_bytes([0; 32]))
    }

    fn at(&self) -> i64 {
        i64::try_from(self.next).expect("because it is small")
    }
}

/// Evidence of a script: bag, analysis, seal, ledger.
pub(crate) fn evidence(script: &Script) -> Evidence {
    let prereg = Prereg::parse(script.prereg.as_bytes()).expect("because it is one");
    let packet = packet(script, &prereg);
    let digest = packet.digest();
    let mut chain = registered(&packet, digest);
    let mut payload = Contents::default();
    let nonce = Digest::of(b"a nonce");
    payload.insert("lane.toml", LANE.as_bytes());
    payload.insert("prereg.toml", script.prereg.as_bytes());
    payload.insert("packet.json", packet.render());
    if script.kind == Kind::Run {
        rehearsed(&mut chain, digest, script.detectable_ns);
        let ledger = chain.push(Nonce {
            packet: digest,
            nonce,
            markers: Some(Digest::of(b"markers")),
        });
        let marker = Marker {
            packet: digest,
            nonce,
            ledger,
            lab: lab(),
            file_system: "ext4".to_owned(),
            salt: Some(salt()),
        };
        chain.push(Consumed {
            packet: digest,
            nonce,
            marker: Digest::of(&marker.render()),
        });
        payload.insert("marker.json", marker.render());
    }
    payload.insert("authority.jsonl", chain.bytes.clone());
    let legs = legs(script, &prereg, &packet, nonce, &mut payload);
    payload.insert("run.json", run(script, digest, nonce, legs).render());
    for fixture in &packet.fixtures {
        let made = RECIPES
            .published(&fixture.id)
            .expect("because it is one of ours");
        for (name, bytes) in made.bag.files() {
            payload.insert(format!("fixtures/{}/{name}", fixture.id), bytes.as_slice());
        }
    }
    sealed(&payload, digest, chain, script.kind)
}

/// Closes a payload, analyses it, and seals a run.
pub(crate) fn sealed(payload: &Contents, packet: Digest, mut chain: Chain, kind: Kind) -> Evidence {
    let info = BagInfo {
        software: "maker 1".to_owned(),
        packet,
    };
    let bag = closed(payload, &info);
    let digest = bag.digest().expect("because it is closed");
    let analysis = analyse(&bag, analyzer(), &RECIPES);
    let mut files = Contents::default();
    for (path, bytes) in bag.files() {
        files.insert(format!("bag/{path}"), Arc::clone(bytes));
    }
    files.insert("analysis-1/analysis.json", analysis.render());
    if kind == Kind::Run {
        chain.push(Closed {
            packet,
            bag: digest,
        });
        let seal = statement(&analysis, digest, 1, chain.head()).render();
        chain.push(Sealed {
            packet,
            verdict: analysis.verdict,
            bag: digest,
            analysis: analysis.digest(),
            seal: Digest::of(&seal),
            number: 1,
            stage: (analysis.verdict == Verdict::Abort).then_some(packhouse_ledger::Stage::Leg),
            reason: match analysis.verdict {
                Verdict::Abort => "as it was".to_owned(),
                Verdict::Pass | Verdict::Fail => String::new(),
            },
        });
        files.insert("seal-1.json", seal);
    }
    Evidence {
        files,
        ledger: Some(chain.bytes.into()),
        ..Evidence::default()
    }
}

/// What a seal of an analysis says.
pub(crate) fn statement(analysis: &Analysis, bag: Digest, number: u64, head: Digest) -> Statement {
    Statement {
        packet: analysis.packet,
        bag,
        analysis: analysis.digest(),
        number,
        verdict: match analysis.verdict {
            Verdict::Pass => SealVerdict::Pass,
            Verdict::Fail => SealVerdict::Fail,
            Verdict::Abort => SealVerdict::Abort,
        },
        ledger_head: head,
        analyzer: analysis.analyzer,
        lab: lab(),
    }
}

/// The lab's id.
pub(crate) fn lab() -> Digest {
    Digest::of(b"a lab")
}

fn packet(script: &Script, prereg: &Prereg) -> Packet {
    let frozen = |program: &packhouse_lab::prereg::Program, name: &str| FrozenProgram {
        program: object(name),
        objects: vec![object("libc.so.6")],
        arguments: program.arguments.clone(),
        environment: program.environment.clone(),
    };
    let fixture = |id: &str| FixtureRef {
        id: id.to_owned(),
        sha256: RECIPES
            .published(id)
            .expect("because it is one of ours")
            .bag
            .digest(),
    };
    Packet {
        experiment: prereg.id.clone(),
        kind: prereg.kind,
        lane: LaneRef {
            id: prereg.lane.clone(),
            sha256: Digest::of(LANE.as_bytes()),
        },
        prereg: Digest::of(script.prereg.as_bytes()),
        programs: Programs {
            control: prereg
                .control
                .as_ref()
                .map(|program| frozen(program, "packhouse")),
            candidate: frozen(&prereg.candidate, "kernel"),
            null: None,
        },
        frozen: Vec::new(),
        commits: Vec::new(),
        fixtures: prereg.fixtures().into_iter().map(fixture).collect(),
        analyzer: analyzer(),
        checker: "bagcheck 0".to_owned(),
    }
}

fn object(name: &str) -> Object {
    Object {
        name: name.to_owned(),
        sha256: Digest::of(name.as_bytes()),
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("because it is one")
}

fn registered(packet: &Packet, digest: Digest) -> Chain {
    let mut chain = Chain::default();
    chain.push(Genesis {
        lab: "a lab".to_owned(),
        id: lab(),
    });
    chain.push(Lane {
        lane: name("lane"),
        action: LaneAction::Open,
        reason: "to begin".to_owned(),
        document: Some(packet.lane.sha256),
        until: None,
    });
    chain.push(Registered {
        packet: digest,
        experiment: name(&packet.experiment),
        lane: name("lane"),
        prereg: packet.prereg,
        treatment: "another kernel".to_owned(),
    });
    chain
}

fn rehearsed(chain: &mut Chain, packet: Digest, detectable_ns: Option<u64>) {
    let by_device = |ns| BTreeMap::from([("cpu".to_owned(), ns)]);
    chain.push(Rehearsed {
        packet,
        green: true,
        stage: None,
        reason: String::new(),
        bag: Some(Digest::of(b"a bag")),
        analysis: Some(Digest::of(b"an analysis")),
        analyzer: analyzer(),
        tampers: 40,
        rejected: 40,
        elapsed_ns: 7,
        detectable_ns: detectable_ns.map(by_device),
    });
    chain.push(Reviewed {
        packet,
        reviewer: "somebody".to_owned(),
        verdict: Review::Approve,
        note: "read".to_owned(),
        rehearsal: 3,
    });
    chain.push(Armed {
        packet,
        rehearsal: 3,
        reviews: vec![4],
    });
}

fn run(script: &Script, packet: Digest, nonce: Digest, legs: Vec<RunLeg>) -> RunRecord {
    RunRecord {
        kind: script.kind,
        packet,
        nonce,
        status: Status::Complete,
        stage: None,
        reason: None,
        boot: "boot".to_owned(),
        host: HostRecord {
            kernel: "6.12".to_owned(),
            cpu: "a CPU".to_owned(),
            file_system: "ext4".to_owned(),
        },
        started: Some(at(0)),
        ended: Instants {
            wall_ns: at(900_000_000).wall_ns + 5,
            ..at(900_000_000)
        },
        clock: ClockRecord {
            forward_ns: 5,
            back_ns: 0,
        },
        legs,
        removed: Vec::new(),
    }
}

fn at(ns: u64) -> Instants {
    Instants {
        wall_ns: 1_800_000_000_000_000_000 + i64::try_from(ns).expect("because it is small"),
        steady_ns: 1_000 + ns,
    }
}

fn salt() -> Digest {
    Digest::of(b"a salt")
}

fn legs(
    script: &Script,
    prereg: &Prereg,
    packet: &Packet,
    nonce: Digest,
    payload: &mut Contents,
) -> Vec<RunLeg> {
    let mut legs = Vec::new();
    for plan in schedule(prereg, &RECIPES) {
        let mut teller = Teller {
            script,
            prereg,
            plan: &plan,
            nonce,
            source: match script.kind {
                Kind::Run => salt(),
                Kind::Rehearsal => nonce,
            },
            payload,
            lines: Vec::new(),
            now_ns: 0,
        };
        teller.tell();
        let lines: Vec<u8> = teller.lines.iter().flat_map(Line::render).collect();
        let folder = format!("legs/{:02}", plan.number);
        let program = |treatment: &Treatment| ProgramRecord {
            treatment: *treatment,
            pid: 77,
            objects: mapped(packet, *treatment, script.kind),
            exit: "code 0".to_owned(),
            stderr_bytes: 4,
            elapsed_ns: 5,
        };
        let record = LegRecord {
            number: plan.number,
            leg: plan.leg,
            kind: match plan.kind {
                Leg::Exact { .. } => LegKind::Exact,
                Leg::Timing => LegKind::Timing,
            },
            device: plan.device.clone(),
            status: LegStatus::Complete,
            started: at(10 * (plan.number + 1)),
            ended: at(800_000_000),
            programs: plan.treatments().iter().map(program).collect(),
            host_device: (plan.device != "cpu").then(|| HostDeviceRecord {
                model: "a card".to_owned(),
                driver: String::new(),
                before: HoldersRecord::default(),
                after: HoldersRecord {
                    holders: vec!["somebody".to_owned()],
                    unknown: vec!["nothing was told".to_owned()],
                },
            }),
        };
        for treatment in plan.treatments() {
            let path = format!("{folder}/{}.stderr", treatment.word());
            payload.insert(path, b"log\n".as_slice());
        }
        payload.insert(format!("{folder}/exchange.jsonl"), lines);
        payload.insert(format!("{folder}/leg.json"), record.render());
        legs.push(RunLeg {
            number: plan.number,
            leg: plan.leg,
            device: plan.device.clone(),
            status: LegStatus::Complete,
        });
    }
    legs
}

fn mapped(packet: &Packet, treatment: Treatment, kind: Kind) -> Vec<ObjectRecord> {
    let program = match (treatment, kind) {
        (Treatment::Control, _) => packet.programs.control.as_ref().expect("because there is"),
        (Treatment::Candidate, Kind::Run) => &packet.programs.candidate,
        (Treatment::Candidate, Kind::Rehearsal) => packet.programs.rehearsed(),
    };
    let objects = program.objects.iter().chain([&program.program]);
    let mut objects: Vec<ObjectRecord> = objects
        .map(|object| ObjectRecord {
            name: object.name.clone(),
            sha256: object.sha256,
        })
        .collect();
    objects.sort();
    objects
}

/// Who tells a leg line by line.
struct Teller<'a> {
    script: &'a Script,
    prereg: &'a Prereg,
    plan: &'a LegPlan,
    nonce: Digest,
    /// What inputs are drawn from.
    source: Digest,
    payload: &'a mut Contents,
    lines: Vec<Line>,
    now_ns: u64,
}

impl Teller<'_> {
    fn tell(&mut self) {
        for treatment in self.plan.treatments() {
            let hello = Request::Hello(Greeting {
                protocol: PROTOCOL.to_owned(),
                challenge: challenge(self.nonce, self.plan.number),
                inputs: "/inputs".to_owned(),
                outputs: "/outputs".to_owned(),
            });
            self.line(*treatment, Event::Asked(Box::new(hello)));
            let hello = Reply::Hello(self.introduction());
            self.line(*treatment, Event::Said(Box::new(hello)));
        }
        for ask in &self.plan.asks {
            self.case(ask);
        }
        for treatment in self.plan.treatments() {
            self.line(*treatment, Event::Asked(Box::new(Request::Bye)));
            self.line(*treatment, Event::End("bye".to_owned()));
        }
    }

    fn line(&mut self, treatment: Treatment, event: Event) {
        self.now_ns += 10_000;
        self.lines.push(Line {
            at_ns: self.now_ns,
            treatment,
            event,
        });
    }

    /// Just what it will be asked for, without what it must decline.
    fn offers(&self) -> Vec<Offer> {
        let mut offers: Vec<Offer> = Vec::new();
        let asks = self.plan.asks.iter();
        for ask in asks.filter(|ask| ask.rejection.is_none()) {
            let known = offers.iter_mut().find(|own| own.fixture == ask.fixture);
            match known {
                Some(own) => {
                    let (is_arm, is_width) =
                        (own.arms.contains(&ask.arm), own.widths.contains(&ask.width));
                    own.arms.extend((!is_arm).then(|| ask.arm.clone()));
                    own.widths.extend((!is_width).then_some(ask.width));
                }
                None => offers.push(Offer {
                    fixture: ask.fixture.clone(),
                    arms: vec![ask.arm.clone()],
                    widths: vec![ask.width],
                }),
            }
        }
        offers
    }

    fn introduction(&self) -> Introduction {
        Introduction {
            protocol: PROTOCOL.to_owned(),
            challenge: challenge(self.nonce, self.plan.number),
            name: "kernel".to_owned(),
            version: "1".to_owned(),
            kernels: self.offers(),
            devices: vec![self.plan.device.clone()],
            says_capture: true,
            denies: vec!["generation".to_owned()],
            times: true,
            poisons: self.script.poisons,
        }
    }

    fn case(&mut self, ask: &PlannedCase) {
        let made = RECIPES.repeat(&ask.fixture, ask.repeat, self.source);
        let made = made.expect("because it is one of ours");
        if ask.repeat > 0 {
            for (name, bytes) in made.bag.files() {
                let path = format!("drawn/{}-{}/{name}", ask.fixture, ask.repeat);
                self.payload.insert(path, bytes.as_slice());
            }
        }
        let order = order(&made.fixture, ask, &self.plan.device, self.script.poisons);
        self.line(
            ask.treatment,
            Event::Asked(Box::new(Request::Case(order.clone()))),
        );
        let (reply, outputs) = match ask.rejection {
            Some(index) => {
                let reason = self.prereg.rejections[index].reason.clone();
                let index = order.index;
                (Reply::Declined(Declined { index, reason }), BTreeMap::new())
            }
            None => self.answer(&made.fixture, ask, &order),
        };
        if let Reply::Answer(Answer { timed: Some(_), .. }) = &reply {
            let [control_ns, candidate_ns] = self.script.spent_ns;
            self.now_ns += match ask.treatment {
                Treatment::Control => control_ns,
                Treatment::Candidate => candidate_ns,
            };
        }
        self.line(ask.treatment, Event::Said(Box::new(reply)));
        let mut seen = SeenRecord {
            index: order.index,
            ..SeenRecord::default()
        };
        for (file, bytes) in outputs {
            let sha256 = Digest::of(&bytes);
            let length = bytes.len() as u64;
            if length > 0 {
                self.payload.insert(format!("outputs/{sha256}"), bytes);
            }
            let output = SeenOutput::File {
                bytes: length,
                sha256,
            };
            seen.outputs.insert(file, output);
        }
        for input in order.inputs.values() {
            seen.inputs.insert(input.file.clone(), Some(input.sha256));
        }
        self.line(ask.treatment, Event::Seen(seen));
    }

    fn answer(
        &self,
        fixture: &Fixture,
        ask: &PlannedCase,
        order: &CaseOrder,
    ) -> (Reply, BTreeMap<String, Vec<u8>>) {
        let case = case_of(fixture, &ask.arm, ask.width).expect("because it is planned");
        let mut outputs = BTreeMap::new();
        let mut boundaries = Vec::new();
        let mut bases: BTreeMap<&str, u64> = BTreeMap::new();
        for (wanted, expected) in order.boundaries.iter().zip(&case.expected) {
            let bytes = fixture.tensors[&expected.tensor].bytes.clone();
            let room = 0x100_0000 * (bases.len() as u64 + 1);
            let base = *bases.entry(&wanted.storage).or_insert(room);
            let form = &wanted.form;
            let start = base + form.storage_offset * form.dtype.bytes();
            boundaries.push(TensorRecord {
                name: wanted.name.clone(),
                dtype: form.dtype,
                shape: form.shape.clone(),
                stride: form.stride.clone(),
                storage_offset: form.storage_offset,
                bytes: form.bytes,
                device: order.device.clone(),
                start,
                end: start + form.bytes,
                file: wanted.file.clone(),
                sha256: Digest::of(&bytes),
            });
            outputs.insert(wanted.file.clone(), bytes);
        }
        let inputs = order.inputs.iter().zip(1..);
        let inputs = inputs.map(|((role, input), number)| {
            let start = 0x4000_0000 * number;
            let record = InputRecord {
                start,
                end: start + input.bytes,
                sha256: input.sha256,
            };
            (role.clone(), record)
        });
        let mut witnesses = vec![witness("kernel", "calls", 1)];
        if order.poison.is_some() {
            witnesses.push(witness("poison", "bytes", order.storage_bytes()));
        }
        let [control_ns, candidate_ns] = self.script.timed_ns;
        let mut answer = Answer {
            index: order.index,
            boundaries,
            inputs: inputs.collect(),
            witnesses,
            capture: Capture::Idle,
            warnings: Vec::new(),
            timed: order.cycles.map(|cycles| Timed {
                cycles,
                elapsed_ns: match ask.treatment {
                    Treatment::Control => control_ns,
                    Treatment::Candidate => candidate_ns,
                },
            }),
        };
        if ask.treatment == Treatment::Candidate {
            (self.script.answer)(ask, &mut answer, &mut outputs);
        }
        (Reply::Answer(answer), outputs)
    }
}

fn witness(path: &str, counter: &str, count: u64) -> Witness {
    Witness {
        path: path.to_owned(),
        counters: BTreeMap::from([(counter.to_owned(), count)]),
    }
}

fn order(fixture: &Fixture, ask: &PlannedCase, device: &str, poisons: bool) -> CaseOrder {
    let case = match ask.rejection {
        Some(_) => rejected_case(fixture, &ask.arm, ask.width),
        None => case_of(fixture, &ask.arm, ask.width),
    };
    let case = case.expect("because it is planned");
    let input = |(role, name): (&String, &String)| {
        let tensor = &fixture.tensors[name];
        let sha256 = Digest::of(&tensor.bytes);
        let file = InputFile {
            file: format!("{sha256}.bin"),
            dtype: tensor.dtype,
            shape: tensor.shape.clone(),
            bytes: tensor.bytes.len() as u64,
            sha256,
        };
        (role.clone(), file)
    };
    let wanted = |boundary: &packhouse_component::Boundary| Wanted {
        name: boundary.name.clone(),
        storage: boundary.storage.clone(),
        file: format!("case-{}-{}.bin", ask.index, boundary.name),
        form: boundary.form(ask.width).expect("because it is small"),
    };
    CaseOrder {
        index: ask.index,
        fixture: ask.fixture.clone(),
        layout: fixture.layout.clone(),
        device: device.to_owned(),
        arm: ask.arm.clone(),
        width: ask.width,
        repeat: ask.repeat,
        parameters: fixture.told_parameters(),
        inputs: case.inputs.iter().map(input).collect(),
        boundaries: fixture.boundaries.iter().map(wanted).collect(),
        poison: poisons.then_some(if ask.index.is_multiple_of(2) { 165 } else { 90 }),
        cycles: ask.cycles,
    }
}
