//! A played lab: a simulated disk, a host that says what a test wants, and programs in memory that
//! answer by our own kernels, or not.

use crate::desk::{Devices, device_of, devices};
use packhouse_bag::{Contents, closed};
use packhouse_base::digest::Digest;
use packhouse_component::check::{Seen, SeenFile, check};
use packhouse_component::drive::{Ask, Event, Outcome, Side, Tap, poison};
use packhouse_component::message::{
    Answer, Capture, CaseOrder, Declined, Greeting, InputFile, InputRecord, Introduction, Offer,
    PROTOCOL, Reply, Request, TensorRecord, Timed, Wanted, Witness,
};
use packhouse_fixture::{Inputs, kernels};
use packhouse_lab::campaign::Campaign;
use packhouse_lab::freeze;
use packhouse_lab::packet::Object;
use packhouse_lab::recipes::Recipes;
use packhouse_lab::sessions::{Broken, Ending, Family, Gone, Session, Sessions, Terms};
use packhouse_lab::verify::{Evidence, Finding, findings};
use packhouse_lab::world::{Commit, Host, HostDevice, HostError, Lab, Launch, Mapped};
use packhouse_ledger::act::{Armed, Genesis, LaneAction, Name, Registered, Rehearsed, Reviewed};
use packhouse_ledger::{Act, Review, Writer, act};
use packhouse_sim::{SimClock, SimFs};
use packhouse_sys::clock::Clock as _;
use packhouse_sys::fs::{Dir, Fs as _};
use packhouse_sys::stat::FsKind;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// A lab on a simulated disk.
pub(crate) struct Played {
    pub(crate) sim: SimFs,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) host: PlayedHost,
    pub(crate) programs: Programs,
}

/// A host that says what it is told.
pub(crate) struct PlayedHost {
    pub(crate) boot: String,
    pub(crate) analyzer: Digest,
    pub(crate) devices: Devices,
    marks: Arc<Marks>,
    random: Arc<AtomicU64>,
}

/// Programs in memory. Every case that is asked is noted, over all crashes.
#[derive(Clone, Default)]
pub(crate) struct Programs {
    /// Challenge and index of each case that was asked of a candidate under its real name.
    pub(crate) asked: Rc<RefCell<Vec<(Digest, u64)>>>,
    /// What the candidate does.
    pub(crate) manner: Rc<Cell<Manner>>,
    /// The clock of the machine that they run on.
    clock: Rc<RefCell<Arc<SimClock>>>,
    /// Random numbers that were given out: none is given twice.
    pub(crate) random: Arc<AtomicU64>,
    /// Starts of programs, and ends of families: what was done of it, in order.
    pub(crate) families: Rc<RefCell<Vec<&'static str>>>,
    marks: Arc<Marks>,
}

/// What the host sees of a candidate.
#[derive(Debug, Default)]
struct Marks {
    /// Its file is another one.
    is_swapped: AtomicBool,
    /// It has mapped what nobody froze.
    is_strange: AtomicBool,
}

/// What a played candidate does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It answers as it should.
    #[default]
    Honest,
    /// One bit of its second answer is wrong.
    WrongBit,
    /// Its second answer names no path that ran.
    Faulty,
    /// It is gone at its second case.
    Dies,
    /// It does not say hello.
    Silent,
    /// It has no such device.
    Elsewhere,
    /// Its second case takes longer than all legs may.
    Slow,
    /// It has a library mapped that nobody froze.
    Stranger,
    /// The same, from its second case up to the answer to it.
    Loads,
    /// At its second case its file becomes another one.
    Swaps,
    /// It says of nothing that it does it.
    Modest,
    /// It leaves a process behind.
    Leaves,
    /// It leaves one that can't be ended.
    Stays,
    /// The same, and is gone at its second case.
    DiesAndStays,
    /// The same with a great many of them.
    DiesAndManyStay,
}

impl Played {
    /// A lab with a packet that is registered.
    pub(crate) fn registered(seed: u64) -> (Self, Digest) {
        Self::registered_as(seed, PREREG)
    }

    /// The same with another preregistration.
    pub(crate) fn registered_as(seed: u64, document: &str) -> (Self, Digest) {
        let clock = Arc::new(SimClock::new());
        let sim = SimFs::new(seed, clock.clone());
        sim.set_kind(FsKind::Ext);
        sim.make_dirs("/home/user/state", 1000, 0o700);
        for folder in ["", "/lanes", "/experiments", "/experiments/one"] {
            sim.make_dirs(format!("/home/user/lab{folder}"), 1000, 0o755);
        }
        sim.replace("/home/user/lab/lanes/fast.toml", LANE.as_bytes(), 0o644);
        let prereg = "/home/user/lab/experiments/one/prereg.toml";
        sim.replace(prereg, document.as_bytes(), 0o644);
        let played = Self::on(sim, Programs::default());
        let packet = played.register();
        (played, packet)
    }

    /// What a machine finds that was started again.
    pub(crate) fn on(sim: SimFs, programs: Programs) -> Self {
        *programs.clock.borrow_mut() = sim.clock();
        Self {
            clock: sim.clock(),
            sim,
            host: PlayedHost {
                boot: "boot-1".to_owned(),
                analyzer: Digest::of(b"analyzer"),
                devices: devices(&["cpu"]),
                marks: programs.marks.clone(),
                random: programs.random.clone(),
            },
            programs,
        }
    }

    /// A lab with a packet that is armed, after a rehearsal that is only in the ledger.
    pub(crate) fn armed(seed: u64) -> (Self, Digest) {
        Self::armed_as(seed, PREREG)
    }

    /// The same with another preregistration.
    pub(crate) fn armed_as(seed: u64, document: &str) -> (Self, Digest) {
        let (played, packet) = Self::registered_as(seed, document);
        played.act(|campaign, writer| {
            let rehearsed = Rehearsed {
                packet,
                green: true,
                stage: None,
                reason: String::new(),
                bag: Some(Digest::of(b"bag")),
                analysis: Some(Digest::of(b"analysis")),
                analyzer: campaign.lab.host.analyzer().expect("because it is played"),
                tampers: 1,
                rejected: 1,
                elapsed_ns: 0,
                detectable_ns: None,
            };
            played.enter(writer, rehearsed);
        });
        played.arm(packet);
        (played, packet)
    }

    /// Reviews and arms a packet that was rehearsed.
    pub(crate) fn arm(&self, packet: Digest) {
        self.act(|_, writer| {
            let state = &writer.ledger().state().packets()[&packet];
            let rehearsal = *state.rehearsals.last().expect("because it was rehearsed");
            let review = writer.ledger().entries().len() as u64;
            let reviewed = Reviewed {
                packet,
                reviewer: "somebody".to_owned(),
                verdict: Review::Approve,
                note: String::new(),
                rehearsal,
            };
            self.enter(writer, reviewed);
            let reviews = vec![review];
            self.enter(
                writer,
                Armed {
                    packet,
                    rehearsal,
                    reviews,
                },
            );
        });
    }

    /// The candidate's file becomes another one.
    pub(crate) fn swap(&self) {
        let is_swapped = &self.programs.marks.is_swapped;
        is_swapped.store(true, Ordering::Relaxed);
    }

    /// Does something under the ledger's lock.
    pub(crate) fn act<T>(&self, act: impl FnOnce(&Campaign<'_>, &mut Writer) -> T) -> T {
        self.with(|campaign| {
            let mut writer = Writer::open(&campaign.lab.root, None, campaign.lab.clock)
                .expect("because nobody else writes");
            act(campaign, &mut writer)
        })
    }

    /// Does something with a campaign of this lab.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&Campaign<'_>) -> T) -> T {
        let clock = self.clock.clone();
        let lab = Lab {
            fs: &self.sim,
            root: self.dir("/home/user/lab"),
            state: self.dir("/home/user/state"),
            clock: clock.as_ref(),
            host: &self.host,
        };
        act(&Campaign {
            lab: &lab,
            sessions: &self.programs,
            recipes: &RECIPES,
            interrupted: || false,
            progress: &|_| (),
            software: "packhouse test",
            key: None,
        })
    }

    pub(crate) fn dir(&self, path: &str) -> Dir {
        let names = Path::new(path).components().skip(1);
        let root = self.sim.root().expect("because / is there");
        names.fold(root, |dir, name| dir.open_dir(name).expect("because it is"))
    }

    /// What our own analyzer finds in the evidence of a packet.
    pub(crate) fn findings(&self, packet: Digest) -> Vec<Finding> {
        let home = format!("/home/user/lab/evidence/{packet}");
        let files = Contents::read(&self.dir(&home)).expect("because it is sealed");
        let ledger = self.sim.read("/home/user/lab/ledger.jsonl");
        let evidence = Evidence {
            files,
            ledger: ledger.map(Into::into),
            ..Evidence::default()
        };
        findings(&evidence, &RECIPES)
    }

    /// Changes the closed bag of a packet so that it is a good bag, with another digest.
    pub(crate) fn close_again(&self, packet: Digest) {
        self.close_with(packet, "legs/00/candidate.stderr", b"another word\n");
    }

    /// The same with one file that is given.
    pub(crate) fn close_with(&self, packet: Digest, path: &str, bytes: &[u8]) {
        let home = format!("/home/user/lab/evidence/{packet}/bag");
        let bag = Contents::read(&self.dir(&home)).expect("because it is closed");
        let (info, _) = bag.info().expect("because it is a bag");
        let mut payload = bag.payload();
        payload.insert(path, bytes);
        let again = closed(&payload, &info);
        for (path, bytes) in again.files() {
            self.sim.replace(format!("{home}/{path}"), bytes, 0o444);
        }
    }

    pub(crate) fn enter(&self, writer: &mut Writer, act: impl Into<Act>) {
        let entered = writer.append(act, self.clock.wall_ns(), &self.host.boot);
        entered.expect("because nothing stands against it");
    }

    fn register(&self) -> Digest {
        self.with(|campaign| {
            let genesis = Genesis {
                lab: "A lab".to_owned(),
                id: Digest::of(b"lab"),
            };
            let (root, clock) = (&campaign.lab.root, campaign.lab.clock);
            let mut writer = Writer::init(root, clock, genesis, clock.wall_ns(), "boot-1")
                .expect("because there is room");
            let documents = freeze::documents(campaign.lab, "one").expect("because they are good");
            let packet = freeze::freeze(campaign.lab, &documents, &RECIPES);
            let packet = packet.expect("because all is there");
            let path = "/home/user/lab/experiments/one/packet.json";
            self.sim.replace(path, &packet.render(), 0o444);
            let name = |text: &str| Name::parse(text).expect("because it is one");
            self.enter(
                &mut writer,
                act::Lane {
                    lane: name("fast"),
                    action: LaneAction::Open,
                    reason: "it begins".to_owned(),
                    document: Some(packet.lane.sha256),
                    until: None,
                },
            );
            self.enter(
                &mut writer,
                Registered {
                    packet: packet.digest(),
                    experiment: name("one"),
                    lane: name("fast"),
                    prereg: packet.prereg,
                    treatment: "none".to_owned(),
                },
            );
            packet.digest()
        })
    }
}

impl Host for PlayedHost {
    fn boot_id(&self) -> Result<String, HostError> {
        Ok(self.boot.clone())
    }

    fn kernel(&self) -> Result<String, HostError> {
        Ok("played".to_owned())
    }

    fn cpu(&self) -> Result<String, HostError> {
        Ok("played".to_owned())
    }

    fn analyzer(&self) -> Result<Digest, HostError> {
        Ok(self.analyzer)
    }

    fn checker(&self) -> String {
        "played 1".to_owned()
    }

    fn random32(&self) -> Result<[u8; 32], HostError> {
        let count = self.random.fetch_add(1, Ordering::Relaxed);
        Ok(*Digest::of(format!("random {count}").as_bytes()).as_bytes())
    }

    fn resolve(&self, _: &Path, program: &str) -> Result<PathBuf, HostError> {
        Ok(PathBuf::from("/played").join(program))
    }

    fn content(&self, path: &Path) -> Result<Digest, HostError> {
        if path.ends_with(CANDIDATE) && self.marks.is_swapped.load(Ordering::Relaxed) {
            return Ok(Digest::of(b"another file"));
        }
        Ok(Digest::of(path.as_os_str().as_encoded_bytes()))
    }

    fn objects(&self, _: &Path, _: &[(OsString, OsString)]) -> Result<Vec<Object>, HostError> {
        Ok(Vec::new())
    }

    fn commit(&self, folder: &Path) -> Result<Commit, HostError> {
        Err(HostError::Git {
            folder: folder.display().to_string(),
            why: "there is none".to_owned(),
        })
    }

    fn mapped_objects(&self, pid: u32) -> Result<Vec<Mapped>, HostError> {
        let name = if pid == CANDIDATE_PID {
            CANDIDATE
        } else {
            NULL
        };
        let mapped = |name: &str, content: &str| Mapped {
            object: Object {
                name: name.to_owned(),
                sha256: Digest::of(content.as_bytes()),
            },
            path: PathBuf::from("/played").join(name),
        };
        if pid == CANDIDATE_PID && self.marks.is_strange.load(Ordering::Relaxed) {
            let own = mapped(name, &format!("/played/{name}"));
            let others = ["again.so", "stranger.so"].map(|name| mapped(name, name));
            return Ok([own].into_iter().chain(others).collect());
        }
        Ok(vec![mapped(name, &format!("/played/{name}"))])
    }

    fn device(&self, name: &str) -> Result<HostDevice, HostError> {
        device_of(&self.devices, name)
    }
}

impl Programs {
    /// Now, a microsecond after the last time that somebody asked.
    fn now_ns(&self) -> u64 {
        let clock = self.clock.borrow();
        clock.advance_ns(1000);
        clock.steady_ns()
    }

    /// The same programs before anything more is asked: each history is given the same numbers.
    pub(crate) fn again(&self) -> Self {
        let random = self.random.load(Ordering::Relaxed);
        Self {
            asked: Rc::default(),
            manner: self.manner.clone(),
            clock: self.clock.clone(),
            random: Arc::new(AtomicU64::new(random)),
            families: Rc::default(),
            marks: Arc::default(),
        }
    }
}

/// What a played candidate leaves behind.
struct Left {
    programs: Programs,
    is_over: bool,
}

impl Family for Left {
    fn end(&mut self) -> Result<Vec<String>, String> {
        self.programs.families.borrow_mut().push("end");
        let is_over = std::mem::replace(&mut self.is_over, true);
        match self.programs.manner.get() {
            Manner::Leaves if !is_over => Ok(vec!["process 77 (daemon)".to_owned()]),
            Manner::Stays | Manner::DiesAndStays => {
                Err("process 77 (daemon) can't be ended".to_owned())
            }
            Manner::DiesAndManyStay => Err("process 77 (daemon) can't be ended, ".repeat(25)),
            _ => Ok(Vec::new()),
        }
    }
}

impl Sessions for Programs {
    fn start(
        &self,
        launch: &Launch,
        terms: Terms,
        mut tap: Box<dyn Tap>,
    ) -> Result<Box<dyn Session>, Broken> {
        self.families.borrow_mut().push("start");
        let is_candidate = launch.program.ends_with(CANDIDATE);
        let manner = if is_candidate {
            self.manner.get()
        } else {
            Manner::Honest
        };
        let greeting = Request::Hello(Greeting {
            protocol: PROTOCOL.to_owned(),
            challenge: terms.challenge,
            inputs: "/inputs".to_owned(),
            outputs: "/outputs".to_owned(),
        });
        told(
            tap.as_mut(),
            self.now_ns(),
            Side::Controller,
            &greeting.render(),
        );
        if manner == Manner::Silent {
            return Err(Broken {
                reason: "at hello: no answer in time".to_owned(),
                gone: Some(Gone {
                    pid: CANDIDATE_PID,
                    ..Gone::default()
                }),
            });
        }
        let is_strange = manner == Manner::Stranger;
        self.marks.is_strange.store(is_strange, Ordering::Relaxed);
        let introduction = introduction(terms.challenge, manner);
        told(
            tap.as_mut(),
            self.now_ns(),
            Side::Component,
            &Reply::Hello(introduction.clone()).render(),
        );
        Ok(Box::new(Running {
            programs: self.clone(),
            introduction,
            is_candidate,
            manner,
            next: 0,
            tap,
        }))
    }

    fn family(&self) -> Box<dyn Family> {
        self.families.borrow_mut().push("begin");
        Box::new(Left {
            programs: self.clone(),
            is_over: false,
        })
    }
}

struct Running {
    programs: Programs,
    introduction: Introduction,
    is_candidate: bool,
    manner: Manner,
    next: u64,
    tap: Box<dyn Tap>,
}

impl Running {
    /// Says that a case is not run.
    fn decline(&mut self, order: &CaseOrder, reason: String) -> Outcome {
        let declined = Declined {
            index: order.index,
            reason: reason.clone(),
        };
        told(
            self.tap.as_mut(),
            self.programs.now_ns(),
            Side::Component,
            &Reply::Declined(declined).render(),
        );
        let seen = seen(order, &BTreeMap::new());
        self.tap.told(&Event::Saw {
            at_ns: self.programs.now_ns(),
            index: order.index,
            seen: &seen,
        });
        Outcome::Declined(reason)
    }
}

impl Session for Running {
    fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    fn pid(&self) -> u32 {
        if self.is_candidate {
            CANDIDATE_PID
        } else {
            CANDIDATE_PID + 1
        }
    }

    fn ask(&mut self, ask: &Ask<'_>) -> Result<Outcome, Broken> {
        let order = order(ask, self.next);
        self.next += 1;
        told(
            self.tap.as_mut(),
            self.programs.now_ns(),
            Side::Controller,
            &Request::Case(order.clone()).render(),
        );
        if self.is_candidate {
            let asked = (self.introduction.challenge, order.index);
            self.programs.asked.borrow_mut().push(asked);
        }
        if self.tap.is_over() {
            return Err(broken("the session was told to end"));
        }
        if self.manner == Manner::Slow && order.index == 1 {
            self.programs.clock.borrow().advance_ns(700_000_000_000);
        }
        if self.manner == Manner::Loads {
            let is_strange = &self.programs.marks.is_strange;
            is_strange.store(order.index == 1, Ordering::Relaxed);
        }
        if self.manner == Manner::Swaps && order.index == 1 {
            let is_swapped = &self.programs.marks.is_swapped;
            is_swapped.store(true, Ordering::Relaxed);
        }
        let dies = matches!(
            self.manner,
            Manner::Dies | Manner::DiesAndStays | Manner::DiesAndManyStay
        );
        if dies && order.index == 1 {
            let mut broken = broken("in case 1: the program ended by signal 9");
            let gone = broken.gone.as_mut().expect("because there was one");
            gone.log = b"first\nsecond\n\nthird\ncuda error 700: \x1b[31millegal address\n".into();
            return Err(broken);
        }
        let mut made = match run(&order, ask) {
            Ok(made) => made,
            Err(reason) => return Ok(self.decline(&order, reason)),
        };
        if self.manner == Manner::WrongBit && order.index == 1 {
            made.values_mut().for_each(|bytes| bytes[0] ^= 1);
        }
        let mut answer = answer(&order, &made);
        if self.manner == Manner::Faulty && order.index == 1 {
            answer.witnesses.retain(|witness| witness.path == "poison");
        }
        told(
            self.tap.as_mut(),
            self.programs.now_ns(),
            Side::Component,
            &Reply::Answer(answer.clone()).render(),
        );
        let seen = seen(&order, &made);
        self.tap.told(&Event::Saw {
            at_ns: self.programs.now_ns(),
            index: order.index,
            seen: &seen,
        });
        Ok(match check(&order, &self.introduction, answer, seen) {
            Ok(checked) => Outcome::Answered(checked),
            Err(faults) => Outcome::Faulty(faults),
        })
    }

    fn bye(mut self: Box<Self>) -> Result<Gone, Broken> {
        told(
            self.tap.as_mut(),
            self.programs.now_ns(),
            Side::Controller,
            &Request::Bye.render(),
        );
        Ok(Gone {
            pid: self.pid(),
            exit: Ending::Code(0),
            log: b"a word\n".to_vec(),
            elapsed_ns: 1,
        })
    }

    fn stop(self: Box<Self>) -> Gone {
        Gone::default()
    }
}

fn told(tap: &mut dyn Tap, at_ns: u64, side: Side, message: &[u8]) {
    tap.told(&Event::Said {
        at_ns,
        side,
        message,
    });
}

fn broken(reason: &str) -> Broken {
    Broken {
        reason: reason.to_owned(),
        gone: Some(Gone::default()),
    }
}

fn introduction(challenge: Digest, manner: Manner) -> Introduction {
    Introduction {
        protocol: PROTOCOL.to_owned(),
        challenge,
        name: "played".to_owned(),
        version: "1".to_owned(),
        kernels: vec![Offer {
            fixture: FIXTURE.to_owned(),
            arms: vec!["plain".to_owned()],
            widths: vec![1, 2, 4, 6, 8, 16],
        }],
        devices: vec![
            if manner == Manner::Elsewhere {
                "cuda:GPU-5f1e0c2a-0000-1111-2222-333344445555"
            } else {
                "cpu"
            }
            .to_owned(),
        ],
        says_capture: manner != Manner::Modest,
        denies: match manner {
            Manner::Modest => Vec::new(),
            _ => vec!["network".to_owned()],
        },
        times: true,
        poisons: manner != Manner::Modest,
    }
}

fn order(ask: &Ask<'_>, index: u64) -> CaseOrder {
    let input = |input: &packhouse_component::drive::Input<'_>| {
        let sha256 = Digest::of(input.bytes);
        InputFile {
            file: format!("{sha256}.bin"),
            dtype: input.dtype,
            shape: input.shape.to_vec(),
            bytes: input.bytes.len() as u64,
            sha256,
        }
    };
    let wanted = |boundary: &packhouse_component::Boundary| Wanted {
        name: boundary.name.clone(),
        storage: boundary.storage.clone(),
        file: format!("case-{index}-{}.bin", boundary.name),
        form: boundary.form(ask.width).expect("because it is small"),
    };
    let inputs = ask.inputs.iter();
    CaseOrder {
        index,
        fixture: ask.fixture.to_owned(),
        layout: ask.layout.map(str::to_owned),
        device: ask.device.to_owned(),
        arm: ask.arm.to_owned(),
        width: ask.width,
        repeat: ask.repeat,
        parameters: ask.parameters.clone(),
        inputs: inputs
            .map(|(role, one)| (role.clone(), input(one)))
            .collect(),
        boundaries: ask.boundaries.iter().map(wanted).collect(),
        poison: Some(poison(index)),
        cycles: ask.cycles,
    }
}

/// What our own kernel makes of a case.
fn run(order: &CaseOrder, ask: &Ask<'_>) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let runs_it = |kernel: &&'static dyn packhouse_fixture::Kernel| {
        let plain = matches!(kernel.packs(), None | Some("identity-v1"));
        plain && kernel.fixtures().contains(&FIXTURE)
    };
    let kernel = kernels::all().find(runs_it).expect("because there is one");
    let tensors = ask.inputs.iter();
    let outputs = kernel.run(&Inputs {
        width: order.width,
        parameters: &order.parameters,
        tensors: &tensors
            .map(|(role, input)| (role.clone(), input.bytes))
            .collect(),
    });
    let outputs = outputs.map_err(|error| error.to_string())?;
    Ok(outputs
        .into_iter()
        .map(|output| (output.boundary, output.bytes))
        .collect())
}

fn answer(order: &CaseOrder, made: &BTreeMap<String, Vec<u8>>) -> Answer {
    let mut next = 0x1000;
    let mut place = |bytes: u64| {
        let start = next;
        next += bytes + 64;
        (start, start + bytes)
    };
    let boundaries = order.boundaries.iter().map(|wanted| {
        let (start, end) = place(wanted.form.bytes);
        TensorRecord {
            name: wanted.name.clone(),
            dtype: wanted.form.dtype,
            shape: wanted.form.shape.clone(),
            stride: wanted.form.stride.clone(),
            storage_offset: wanted.form.storage_offset,
            bytes: wanted.form.bytes,
            device: order.device.clone(),
            start,
            end,
            file: wanted.file.clone(),
            sha256: Digest::of(&made[&wanted.name]),
        }
    });
    let boundaries = boundaries.collect();
    let inputs = order.inputs.iter().map(|(role, input)| {
        let (start, end) = place(input.bytes);
        let sha256 = input.sha256;
        (role.clone(), InputRecord { start, end, sha256 })
    });
    let count = |name: &str, count| BTreeMap::from([(name.to_owned(), count)]);
    Answer {
        index: order.index,
        boundaries,
        inputs: inputs.collect(),
        witnesses: vec![
            Witness {
                path: "played".to_owned(),
                counters: count("rows", order.width),
            },
            Witness {
                path: "poison".to_owned(),
                counters: count("bytes", order.storage_bytes()),
            },
        ],
        capture: Capture::Idle,
        warnings: Vec::new(),
        timed: order.cycles.map(|cycles| Timed {
            cycles,
            elapsed_ns: 1,
        }),
    }
}

fn seen(order: &CaseOrder, made: &BTreeMap<String, Vec<u8>>) -> Seen {
    let outputs = order.boundaries.iter().filter_map(|wanted| {
        let bytes = made.get(&wanted.name)?.clone();
        Some((wanted.file.clone(), SeenFile::Bytes(bytes)))
    });
    let inputs = order.inputs.values();
    Seen {
        outputs: outputs.collect(),
        inputs: inputs
            .map(|input| (input.file.clone(), Some(input.sha256)))
            .collect(),
        inputs_extra: Vec::new(),
        span_ns: 1,
    }
}

/// Made once: fixtures cost more than all else here.
pub(crate) static RECIPES: LazyLock<Recipes> = LazyLock::new(Recipes::default);

pub(crate) const FIXTURE: &str = "mul-mxfp4-ggml-cpu-repack-v1";
const CANDIDATE: &str = "candidate";
const NULL: &str = "packhouse";
const CANDIDATE_PID: u32 = 100;

pub(crate) const LANE: &str = r#"schema = "packhouse/lane/1"
id = "fast"
title = "A lane"
model = "none"
quantisation = "mxfp4"
runtime = "played"
hardware = "none"
promise = "bit-equal"
teacher = "none"
record_key = "fast"
"#;

pub(crate) const PREREG: &str = r#"schema = "packhouse/prereg/1"
id = "one"
lane = "fast"
kind = "component"
question = "Is it right?"
authorises = "nothing"
does_not_authorise = "anything"
exclusions = []
reviewers = 1
time_budget_s = 600
case_timeout_s = 60
rehearsal_max_age_s = 86400
stop = "never"
[treatment]
difference = "none"
[program.candidate]
program = "candidate"
arguments = []
environment = {}
[matrix]
fixtures = ["mul-mxfp4-ggml-cpu-repack-v1"]
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
fixture = "mul-mxfp4-ggml-cpu-repack-v1"
arm = "plain"
width = 3
reason = "input input has 1408 bytes, expected 4224"
"#;
