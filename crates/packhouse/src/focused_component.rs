//! A test by the component protocol: a program is fed fixtures, published and drawn, and every case
//! is one line of an account in the form of TAP.

use crate::fixture::sound;
use packhouse_base::digest::Digest;
use packhouse_build::focused::{Launch, Proof};
use packhouse_component::check::Checked;
use packhouse_component::drive::{
    Ask, DriveError, Input, Limits, Outcome, Program, Untapped, What,
};
use packhouse_component::exchange::Exchange;
use packhouse_component::message::{Introduction, Offer};
use packhouse_fixture::families::{self, Family};
use packhouse_fixture::{Case, Fixture, Output, Promise, judge_case};
use packhouse_store::folders::{Links, walk};
use packhouse_store::root::Owners;
use packhouse_sys::child::{Ended, Exit, Order, StartError};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Dir, Fs as _, FsError};
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

/// Runs the program of a test through its fixtures. The account goes to the launch's stdout, what
/// the program says of itself to its stderr.
pub(crate) fn run(launch: &Launch<'_>) -> Result<Ended, StartError> {
    let mut account = Account::default();
    let begun_ns = RealClock.steady_ns();
    let exit = match session(launch, &mut account) {
        Ok(()) if account.failed > 0 => Exit::Exited(1),
        Ok(()) => Exit::Exited(0),
        Err(Broken::TimedOut) => Exit::TimedOut,
        Err(Broken::Crashed(signal)) => Exit::Signalled(signal),
        Err(Broken::NotStarted(error)) => return Err(error),
        Err(Broken::Said(why)) => {
            account.bail(&why);
            Exit::Exited(1)
        }
    };
    account.keep(launch)?;
    Ok(Ended {
        exit,
        stdout: Vec::new(),
        stderr: Vec::new(),
        elapsed_ns: RealClock.steady_ns().saturating_sub(begun_ns),
        was_cut: false,
    })
}

/// Why a session ended early.
enum Broken {
    TimedOut,
    Crashed(i32),
    NotStarted(StartError),
    Said(String),
}

/// The lines of cases.
#[derive(Default)]
struct Account {
    text: String,
    log: Vec<u8>,
    count: u64,
    failed: u64,
    gave_up: bool,
}

impl Account {
    fn case(&mut self, name: &str, outcome: Result<(), String>) {
        self.count += 1;
        let count = self.count;
        let _ = match outcome {
            Ok(()) => writeln!(self.text, "ok {count} - {name}"),
            Err(why) => {
                self.failed += 1;
                writeln!(self.text, "not ok {count} - {name}: {}", one_line(&why))
            }
        };
    }

    fn skip(&mut self, name: &str, why: &str) {
        self.count += 1;
        let (count, why) = (self.count, one_line(why));
        let _ = writeln!(self.text, "ok {count} - {name} # SKIP {why}");
    }

    fn bail(&mut self, why: &str) {
        self.gave_up = true;
        let _ = writeln!(self.text, "Bail out! {}", one_line(why));
    }

    fn keep(mut self, launch: &Launch<'_>) -> Result<(), StartError> {
        if !self.gave_up {
            let _ = writeln!(self.text, "1..{}", self.count);
        }
        let program = launch.program;
        let failed = |_: FsError| StartError::Keep {
            program: program.to_owned(),
            errno: 0,
        };
        launch
            .stdout
            .write_all_at(0, self.text.as_bytes())
            .map_err(failed)?;
        launch.stderr.write_all_at(0, &self.log).map_err(failed)
    }
}

fn session(launch: &Launch<'_>, account: &mut Account) -> Result<(), Broken> {
    let families = chosen(&launch.test.proof)?;
    let timeout_ns = launch.test.timeout_s.saturating_mul(NS_PER_SECOND);
    let order = Order {
        program: launch.program,
        arguments: launch.test.command.get(1..).unwrap_or_default(),
        environment: launch.environment,
        folder: launch.folder,
        timeout_ns,
    };
    let limits = Limits {
        hello_ns: timeout_ns,
        case_ns: timeout_ns,
        bye_ns: timeout_ns.min(BYE_NS),
    };
    let mut random = [0; 32];
    RealFs.random(&mut random).map_err(|error| said(&error))?;
    let parent = folder_of(launch).map_err(|error| Broken::Said(error.to_string()))?;
    let exchange = Exchange::make(&RealFs, parent).map_err(|error| said(&error))?;
    let challenge = Digest::from_bytes(random);
    let program = Program::start(&order, exchange, challenge, limits, Box::new(Untapped));
    let mut program = program.map_err(|error| broken(error, account))?;
    let introduction = program.introduction().clone();
    let seed = u64::from_le_bytes(random.first_chunk().copied().unwrap_or_default());
    for family in families {
        let Some(offer) = offer(&introduction, family.id) else {
            account.skip(family.id, "the program does not offer it");
            continue;
        };
        let fixture = sound(family).map_err(|error| Broken::Said(error.headline()))?;
        let drawn = family.drawn.map(|draw| draw(seed));
        for device in &introduction.devices {
            let published = fixture
                .cases
                .iter()
                .map(|case| (&fixture, case, "published"));
            let of_drawn = drawn.iter().flat_map(|drawn| {
                let cases = drawn.cases.iter();
                cases.map(move |case| (drawn, case, "drawn"))
            });
            for (fixture, case, word) in published.chain(of_drawn) {
                let (id, width, arm) = (&fixture.id, case.width, &case.arm);
                let name = format!("{id} {arm} m={width} {word} on {device}");
                if !offer.widths.contains(&width) || !offer.arms.contains(arm) {
                    account.skip(&name, "the program does not offer it");
                    continue;
                }
                program = ask(program, (fixture, case), device, &name, account)?;
            }
        }
    }
    let farewell = program.bye().map_err(|error| broken(error, account))?;
    account.log = farewell.log;
    Ok(())
}

fn ask(
    program: Program,
    (fixture, case): (&Fixture, &Case),
    device: &str,
    name: &str,
    account: &mut Account,
) -> Result<Program, Broken> {
    let input = |(role, file): (&'_ String, &'_ String)| {
        let tensor = fixture.tensors.get(file)?;
        let input = Input {
            dtype: tensor.dtype,
            shape: &tensor.shape,
            bytes: &tensor.bytes,
        };
        Some((role.clone(), input))
    };
    let inputs: BTreeMap<_, _> = case.inputs.iter().filter_map(input).collect();
    let asked = program.ask(&Ask {
        fixture: &fixture.id,
        layout: fixture.layout.as_deref(),
        device,
        arm: &case.arm,
        width: case.width,
        repeat: 0,
        parameters: &fixture.told_parameters(),
        inputs,
        boundaries: &fixture.boundaries,
        cycles: None,
    });
    let (program, outcome) = asked.map_err(|error| broken(error, account))?;
    match outcome {
        Outcome::Answered(checked) => account.case(name, judged(fixture, case, &checked)),
        Outcome::Faulty(faults) => {
            let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
            account.case(name, Err(faults.join("; ")));
        }
        Outcome::Declined(reason) => account.skip(name, &reason),
    }
    Ok(program)
}

fn judged(fixture: &Fixture, case: &Case, checked: &Checked) -> Result<(), String> {
    let output = |verified: &packhouse_component::check::Verified| Output {
        boundary: verified.boundary().to_owned(),
        bytes: verified.bytes().to_vec(),
    };
    let outputs: Vec<Output> = checked.verified().iter().map(output).collect();
    let verdicts = judge_case(fixture, case, Promise::Exact, &outputs);
    let verdicts = verdicts.map_err(|error| error.to_string())?;
    for verdict in &verdicts {
        let failed = verdict.rows.iter().filter(|row| !row.passed);
        let rows: Vec<String> = failed.map(|row| row.row.to_string()).collect();
        if !verdict.passed() {
            let (boundary, of) = (&verdict.boundary, verdict.rows.len());
            let rows = rows.join(" ");
            return Err(format!("{boundary}: of {of} rows wrong are {rows}"));
        }
    }
    Ok(())
}

fn chosen(proof: &Proof) -> Result<Vec<&'static Family>, Broken> {
    let Proof::Component { fixtures } = proof else {
        return Err(Broken::Said("not a test of a component".to_owned()));
    };
    if fixtures.is_empty() {
        return Ok(families::all().collect());
    }
    let find = |id: &String| {
        families::find(id).ok_or_else(|| Broken::Said(format!("no such fixture: {id}")))
    };
    fixtures.iter().map(find).collect()
}

fn offer<'i>(introduction: &'i Introduction, id: &str) -> Option<&'i Offer> {
    let mut kernels = introduction.kernels.iter();
    kernels.find(|offer| offer.fixture == id)
}

/// The folder of the run's logs: private, and there already.
fn folder_of(launch: &Launch<'_>) -> Result<Dir, packhouse_store::root::OpenError> {
    let path = launch.stdout.path().parent().unwrap_or(Path::new("/"));
    let owners = Owners::new(RealFs.effective_uid(), &[]);
    Ok(walk(&RealFs, &owners, path, None, Links::Follow)?.1)
}

fn said(error: &FsError) -> Broken {
    Broken::Said(error.to_string())
}

fn broken(error: DriveError, account: &mut Account) -> Broken {
    let said = error.to_string();
    match error {
        DriveError::Broke { what, log, .. } => {
            account.log = log;
            match what {
                What::TimedOut => Broken::TimedOut,
                What::Ended(Exit::Signalled(signal)) => Broken::Crashed(signal),
                _ => Broken::Said(said),
            }
        }
        DriveError::Start(error) => Broken::NotStarted(error),
        DriveError::Exchange(_)
        | DriveError::Folder
        | DriveError::Form(_)
        | DriveError::Untimed => Broken::Said(said),
    }
}

/// One line without what a reader of TAP would take for a directive.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").replace('#', "no.")
}

const NS_PER_SECOND: u64 = 1_000_000_000;
const BYE_NS: u64 = 60_000_000_000;
