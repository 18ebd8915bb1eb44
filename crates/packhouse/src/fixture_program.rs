//! `fixture run -- PROGRAM`: an external program by the component protocol.
//!
//! - Beside each published case goes one that is drawn for the session, so that nobody passes by
//!   giving back what was published.
//! - What the program does not offer, declines or never answers was not executed: neither a pass
//!   nor a failure.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::fixture::sound;
use crate::fixture_report::{Asked, Judged, Trial};
use crate::fixture_session::{Told, Unrun, answer, broke};
use crate::fixture_words::FixtureRunArgs;
use crate::folders;
use crate::places::{self, Lookup};
use packhouse_base::digest::{Digest, Hasher};
use packhouse_component::check::{Attested, Checked, Fault};
use packhouse_component::drive::{Ask, DriveError, Input, Limits, Outcome, Program, Untapped};
use packhouse_component::exchange::Exchange;
use packhouse_component::message::{Introduction, Offer};
use packhouse_fixture::families::Family;
use packhouse_fixture::{Case, Fixture, Output, Promise, judge_case};
use packhouse_sys::child::{Order, find};
use packhouse_sys::fs::Fs as _;
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Feeds fixtures to a program and judges every row.
pub(crate) fn run(
    args: &FixtureRunArgs,
    families: &[&Family],
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let challenge = challenge(args)?;
    let (path, program) = start(args, challenge, lookup)?;
    let introduction = program.introduction().clone();
    let mut told = Told {
        path,
        challenge,
        is_fresh: args.challenge.is_none(),
        introduction,
        trials: Vec::new(),
        unrun: Vec::new(),
        broken: None,
        elapsed_ns: None,
    };
    let cases = told.cases(args, families)?;
    match told.ask_all(program, &cases, args) {
        Ok(program) => match program.bye() {
            Ok(farewell) => told.elapsed_ns = Some(farewell.elapsed_ns),
            Err(error) => told.broken = Some(error),
        },
        // Without a failure before it nothing was found out.
        Err(error) if told.failed_count() == 0 => {
            return Err(broke(&told.path, &error, args.timeout));
        }
        Err(error) => told.broken = Some(error),
    }
    Ok(answer(&told))
}

/// One case of a fixture.
struct Row {
    fixture: usize,
    case: usize,
    is_drawn: bool,
}

/// The fixtures of a session and the order of their cases.
struct Cases {
    fixtures: Vec<Fixture>,
    rows: Vec<Row>,
}

impl Told {
    /// The cases to ask: of what the program offers, or of all that was named.
    fn cases(&self, args: &FixtureRunArgs, families: &[&Family]) -> Result<Cases, Failure> {
        let is_offered = |family: &&&Family| self.offer(family.id).is_some();
        let is_named = !args.ids.is_empty() || !args.layout.is_empty();
        let families = families
            .iter()
            .filter(|family| is_named || is_offered(family));
        let mut cases = Cases {
            fixtures: Vec::new(),
            rows: Vec::new(),
        };
        for family in families {
            cases.add(args, family, self.seed(family.id))?;
        }
        if cases.rows.is_empty() {
            return Err(self.nothing(args));
        }
        Ok(cases)
    }

    fn offer(&self, fixture: &str) -> Option<&Offer> {
        let mut kernels = self.introduction.kernels.iter();
        kernels.find(|offer| offer.fixture == fixture)
    }

    /// The seed of a fixture's drawn cases: nobody knows it before the session.
    fn seed(&self, fixture: &str) -> u64 {
        let mut hasher = Hasher::default();
        hasher.update(self.challenge.as_bytes());
        hasher.update(fixture.as_bytes());
        let first = hasher.finish().as_bytes().first_chunk().copied();
        u64::from_le_bytes(first.unwrap_or_default())
    }

    fn nothing(&self, args: &FixtureRunArgs) -> Failure {
        let offers = self.introduction.kernels.iter();
        let offers: Vec<&str> = offers.map(|offer| offer.fixture.as_str()).collect();
        if offers.is_empty() {
            return Failure::new("the program offers no kernel", self.path.display());
        }
        args.nothing()
            .cause(format!("the program offers {}", offers.join(", ")))
            .not_executed()
    }

    /// Asks every case on every device, as often as repeats are wanted.
    fn ask_all(
        &mut self,
        mut program: Program,
        cases: &Cases,
        args: &FixtureRunArgs,
    ) -> Result<Program, DriveError> {
        for device in self.introduction.devices.clone() {
            for row in &cases.rows {
                for repeat in 0..args.repeats {
                    let fixture = &cases.fixtures[row.fixture];
                    let asked = Asked {
                        device: device.clone(),
                        repeat,
                        is_drawn: row.is_drawn,
                        attested: Value::Null,
                    };
                    let case = &fixture.cases[row.case];
                    program = self.ask(program, fixture, case, asked, args.promise.into())?;
                }
            }
        }
        Ok(program)
    }

    fn ask(
        &mut self,
        program: Program,
        fixture: &Fixture,
        case: &Case,
        mut asked: Asked,
        promise: Promise,
    ) -> Result<Program, DriveError> {
        if let Some(reason) = self.not_offered(fixture, case) {
            self.unrun.push(Unrun::new(fixture, case, asked, reason));
            return Ok(program);
        }
        let tensor = |(role, name): (&'_ String, &'_ String)| {
            let tensor = &fixture.tensors[name];
            let input = Input {
                dtype: tensor.dtype,
                shape: &tensor.shape,
                bytes: &tensor.bytes,
            };
            (role.clone(), input)
        };
        let (program, outcome) = program.ask(&Ask {
            fixture: &fixture.id,
            layout: fixture.layout.as_deref(),
            device: &asked.device,
            arm: &case.arm,
            width: case.width,
            repeat: asked.repeat,
            parameters: &fixture.told_parameters(),
            inputs: case.inputs.iter().map(tensor).collect(),
            boundaries: &fixture.boundaries,
            cycles: None,
        })?;
        let outcome = match outcome {
            Outcome::Declined(reason) => {
                let reason = format!("declined: {reason}");
                self.unrun.push(Unrun::new(fixture, case, asked, reason));
                return Ok(program);
            }
            Outcome::Faulty(faults) => Err(in_words(&faults)),
            Outcome::Answered(checked) => {
                asked.attested = attested(checked.attested());
                judged(fixture, case, promise, &checked)
            }
        };
        self.trials.push(Trial {
            fixture: fixture.id.clone(),
            kernel: self.introduction.name.clone(),
            width: case.width,
            arm: case.arm.clone(),
            asked: Some(asked),
            outcome,
        });
        Ok(program)
    }

    fn not_offered(&self, fixture: &Fixture, case: &Case) -> Option<String> {
        let Some(offer) = self.offer(&fixture.id) else {
            return Some("the program does not offer this fixture".to_owned());
        };
        if !offer.widths.contains(&case.width) {
            return Some(format!("the program does not offer width {}", case.width));
        }
        let has_arm = offer.arms.contains(&case.arm);
        (!has_arm).then(|| format!("the program does not offer arm {}", case.arm))
    }
}

impl Cases {
    /// Adds a fixture's cases, a drawn one behind each published one.
    fn add(&mut self, args: &FixtureRunArgs, family: &Family, seed: u64) -> Result<(), Failure> {
        let published = sound(family)?;
        let drawn = family.drawn.map(|drawn| drawn(seed));
        let rows = |fixture: &Fixture, index: usize, is_drawn: bool| {
            let is_asked = |case: &Case| args.width.is_empty() || args.width.contains(&case.width);
            let cases = fixture.cases.iter().enumerate();
            let asked = cases.filter(|(_, case)| is_asked(case));
            let row = |(case, _)| Row {
                fixture: index,
                case,
                is_drawn,
            };
            asked.map(row).collect::<Vec<Row>>()
        };
        let index = self.fixtures.len();
        let mut published_rows = rows(&published, index, false).into_iter();
        self.fixtures.push(published);
        let mut drawn_rows = Vec::new().into_iter();
        if let Some(drawn) = drawn {
            let sound = drawn.sound();
            sound.map_err(|error| Failure::new("not a fixture", family.id).because(&error))?;
            drawn_rows = rows(&drawn, index + 1, true).into_iter();
            self.fixtures.push(drawn);
        }
        loop {
            let next = [published_rows.next(), drawn_rows.next()];
            if next.iter().all(Option::is_none) {
                return Ok(());
            }
            self.rows.extend(next.into_iter().flatten());
        }
    }
}

fn judged(
    fixture: &Fixture,
    case: &Case,
    promise: Promise,
    checked: &Checked,
) -> Result<Vec<Judged>, Vec<String>> {
    let outputs = checked.verified().iter().map(|verified| Output {
        boundary: verified.boundary().to_owned(),
        bytes: verified.bytes().to_vec(),
    });
    let outputs: Vec<Output> = outputs.collect();
    match judge_case(fixture, case, promise, &outputs) {
        Ok(verdicts) => Ok(Judged::all(fixture, case, promise, verdicts)),
        Err(error) => Err(vec![error.to_string()]),
    }
}

/// The first faults of an answer: a program may leave any number of files.
fn in_words(faults: &[Fault]) -> Vec<String> {
    let shown = faults.iter().take(FAULTS_SHOWN).map(ToString::to_string);
    let mut texts: Vec<String> = shown.collect();
    if faults.len() > FAULTS_SHOWN {
        texts.push(format!("{} more faults", faults.len() - FAULTS_SHOWN));
    }
    texts
}

fn attested(attested: &Attested) -> Value {
    let boundaries = attested.boundaries.iter().map(|(name, place)| {
        let place = json!({ "device": place.device, "start": place.start, "end": place.end });
        (name.clone(), place)
    });
    let inputs = attested.inputs.iter().map(|(role, record)| {
        let sha256 = record.sha256.to_string();
        let record = json!({ "start": record.start, "end": record.end, "sha256": sha256 });
        (role.clone(), record)
    });
    let witnesses = attested
        .witnesses
        .iter()
        .map(|witness| json!({ "path": witness.path, "counters": witness.counters }));
    json!({
        "boundaries": boundaries.collect::<serde_json::Map<_, _>>(),
        "inputs": inputs.collect::<serde_json::Map<_, _>>(),
        "witnesses": witnesses.collect::<Vec<_>>(),
        "capture": attested.capture.id(),
        "warnings": attested.warnings,
    })
}

/// A random challenge, or the one of an earlier session.
fn challenge(args: &FixtureRunArgs) -> Result<Digest, Failure> {
    if let Some(text) = &args.challenge {
        return Digest::parse(text).map_err(|_| {
            Failure::usage("not a challenge", text)
                .cause("a challenge is the 64 hex digits that a session told")
                .hint("packhouse fixture run --help")
        });
    }
    let mut bytes = [0; 32];
    RealFs
        .random(&mut bytes)
        .map_err(|error| Failure::new("no random bytes", "getrandom").because(&error))?;
    Ok(Digest::from_bytes(bytes))
}

/// Finds and starts the program, and hears its hello.
fn start(
    args: &FixtureRunArgs,
    challenge: Digest,
    lookup: Lookup<'_>,
) -> Result<(PathBuf, Program), Failure> {
    let (name, arguments) = args.program.split_first().unwrap_or((&EMPTY, &[]));
    let here = std::path::absolute(".")
        .map_err(|error| Failure::new("no working folder", ".").because(&error))?;
    let search = lookup("PATH").unwrap_or_default();
    let path = find(name, &search, &here).map_err(|error| {
        Failure::new("cannot start the program", Path::new(name).display())
            .because(&error)
            .hint(format!("command -v {}", quoted(name)))
    })?;
    let temporary = lookup("TMPDIR").map_or_else(|| PathBuf::from("/tmp"), PathBuf::from);
    let exchange = folders::open(&RealFs, &temporary)
        .and_then(|folder| Exchange::make(&RealFs, folder).map_err(std::io::Error::other))
        .map_err(|error| {
            Failure::new("no folder for the program's files", temporary.display())
                .because(&error)
                .hint("export TMPDIR=/var/tmp")
        })?;
    let limit_ns = args.timeout.saturating_mul(1_000_000_000);
    let order = Order {
        program: &path,
        arguments,
        environment: &places::whole_environment(),
        folder: &here,
        timeout_ns: u64::MAX,
    };
    let limits = Limits {
        hello_ns: limit_ns,
        case_ns: limit_ns,
        bye_ns: limit_ns,
    };
    let program = Program::start(&order, exchange, challenge, limits, Box::new(Untapped))
        .map_err(|error| broke(&path, &error, args.timeout))?;
    if program.introduction().devices.is_empty() {
        return Err(Failure::new("the program offers no device", path.display()));
    }
    Ok((path, program))
}

/// What the driver says of a program's introduction.
pub(crate) fn title(introduction: &Introduction) -> String {
    format!("{} {}", introduction.name, introduction.version)
}

const FAULTS_SHOWN: usize = 16;
static EMPTY: OsString = OsString::new();
