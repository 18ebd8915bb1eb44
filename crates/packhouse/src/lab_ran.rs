//! What ran for a packet: of its frozen documents and of its bag's records, for its report.

use crate::lab_page::{Read, found};
use crate::lab_unequal;
use packhouse_bag::{BAG_DIR, DATA_DIR, MANIFEST_FILE, TAG_MANIFEST_FILE};
use packhouse_base::digest::Digest;
use packhouse_base::units;
use packhouse_lab::evidence::RunRecord;
use packhouse_lab::packet::FrozenProgram;
use packhouse_lab::prereg::Leg;
use packhouse_lab::unequal::Unequal;
use packhouse_lab::{Analysis, Packet, Prereg, contrast};
use packhouse_ledger::page::{Found, Program, Ran, utc};
use packhouse_ledger::state::PacketState;
use packhouse_sys::fs::Dir;

/// What ran, and the tensors that are not equal, each with its analysis' number.
pub(crate) fn of(lab: &Read<'_>, digest: Digest, state: &PacketState) -> (Ran, Vec<Unequal>) {
    let root = &lab.opened.root;
    let experiment = state.experiment.as_str();
    let mut ran = Ran::default();
    let parse = |bytes: &[u8]| Packet::parse(bytes).map_err(|error| error.to_string());
    let steps = ["experiments", experiment, "packet.json"];
    match found(root, &steps, digest, parse) {
        Found::Here(packet) => of_packet(&packet, &mut ran),
        Found::Absent => ran
            .facts
            .push(("packet", "packet.json is not here".to_owned())),
        Found::Refused(why) => ran.facts.push(("packet", why)),
    }
    let parse = |bytes: &[u8]| Prereg::parse(bytes).map_err(|error| error.to_string());
    let steps = ["experiments", experiment, "prereg.toml"];
    if let Found::Here(prereg) = found(root, &steps, state.prereg, parse) {
        of_prereg(&prereg, &mut ran);
    }
    let folder = digest.to_string();
    match state.bag.map(|bag| run(root, &folder, bag)) {
        Some(Some(run)) => of_run(&run, &mut ran),
        Some(None) => {
            let words = "not told: run.json is not the one that the ledger's bag lists";
            ran.facts.push(("run", words.to_owned()));
        }
        None => {}
    }
    let unequal = unequal(root, &folder, state);
    ran.unequal = unequal.iter().map(Unequal::to_string).collect();
    (ran, unequal)
}

fn of_packet(packet: &Packet, ran: &mut Ran) {
    let programs = packet.programs.all();
    ran.programs = programs
        .map(|(role, program)| of_program(role, program))
        .collect();
    ran.differences = Some(contrast::contrast(packet));
    let mut frozen = vec![format!("{} files", packet.frozen.len())];
    let commits = packet.commits.iter();
    frozen.extend(commits.map(|one| format!("{} at commit {}", one.path, one.commit)));
    ran.facts.push(("frozen", frozen.join(", ")));
    let judges = format!("analyzer {}; {}", packet.analyzer, packet.checker);
    ran.facts.push(("judges", judges));
}

fn of_program(role: &'static str, program: &FrozenProgram) -> Program {
    Program {
        role,
        name: program.program.name.clone(),
        sha256: program.program.sha256.to_string(),
        objects: program.objects.len() as u64,
        arguments: program.arguments.clone(),
        variables: program.environment.keys().cloned().collect(),
    }
}

fn of_prereg(prereg: &Prereg, ran: &mut Ran) {
    let matrix = &prereg.matrix;
    let widths: Vec<String> = matrix.widths.iter().map(u64::to_string).collect();
    let legs: Vec<String> = prereg
        .legs
        .iter()
        .map(|leg| match leg {
            Leg::Exact { treatment } => format!("{} {}", leg.word(), treatment.word()),
            Leg::Timing => leg.word().to_owned(),
        })
        .collect();
    let gates: Vec<&str> = prereg.gates.iter().map(|gate| gate.word()).collect();
    ran.facts.extend([
        ("fixtures", matrix.fixtures.join(", ")),
        ("devices", matrix.devices.join(", ")),
        ("arms", matrix.arms.join(", ")),
        ("widths", widths.join(", ")),
        ("repeats", matrix.repeats.to_string()),
        ("promise", matrix.promise.word().to_owned()),
        ("legs, on each device", legs.join(", ")),
    ]);
    if !gates.is_empty() {
        ran.facts.push(("declared gates", gates.join(", ")));
    }
    if let Some(timing) = &prereg.timing {
        let words = format!(
            "{} {} width {}: {} blocks of {} cycles, {} epochs before and after",
            timing.fixture, timing.arm, timing.width, timing.blocks, timing.cycles, timing.epochs
        );
        ran.facts.push(("timing", words));
    }
}

/// The run's own record, where its digest follows from the bag's by both lists. `lab verify` judges
/// what it says.
fn run(root: &Dir, folder: &str, bag: Digest) -> Option<RunRecord> {
    let steps = ["evidence", folder, BAG_DIR];
    let mut steps = steps.iter();
    let folder = steps.try_fold(root.clone(), |dir, name| dir.open_dir(name));
    let folder = folder.ok()?;
    let read = |dir: &Dir, name, limit, sha256| {
        let bytes = dir.read_small(name, limit).ok()?;
        (Digest::of(&bytes) == sha256).then_some(bytes)
    };
    let tags = read(&folder, TAG_MANIFEST_FILE, LIST_BYTES_MAX, bag)?;
    let sha256 = listed(&tags, MANIFEST_FILE)?;
    let payload = read(&folder, MANIFEST_FILE, LIST_BYTES_MAX, sha256)?;
    let sha256 = listed(&payload, "data/run.json")?;
    let data = folder.open_dir(DATA_DIR).ok()?;
    RunRecord::parse(&read(&data, "run.json", RUN_BYTES_MAX, sha256)?).ok()
}

/// The digest that a list has of a path.
fn listed(list: &[u8], path: &str) -> Option<Digest> {
    let list = std::str::from_utf8(list).ok()?;
    let mut lines = list.lines().filter_map(|line| line.split_once("  "));
    let (digest, _) = lines.find(|(_, listed)| *listed == path)?;
    Digest::parse(digest).ok()
}

fn of_run(run: &RunRecord, ran: &mut Ran) {
    let host = &run.host;
    let words = format!(
        "{}; {}; evidence on {}",
        host.cpu, host.kernel, host.file_system
    );
    ran.facts.push(("host", words));
    let ended = format!("{}, {}", run.status.id(), utc(run.ended.wall_ns));
    let words = match run.started {
        Some(began) => {
            let took_ns = run.ended.steady_ns.saturating_sub(began.steady_ns);
            let began = utc(began.wall_ns);
            format!("began {began}, {}, {ended}", units::seconds(took_ns))
        }
        None => ended,
    };
    ran.facts.push(("run", words));
}

/// Where tensors of the newest analysis are other ones.
fn unequal(root: &Dir, folder: &str, state: &PacketState) -> Vec<Unequal> {
    let Some(newest) = state.analyses.last() else {
        return Vec::new();
    };
    let name = format!("analysis-{}", newest.number);
    let steps = ["evidence", folder, &name, "analysis.json"];
    let parse = |bytes: &[u8]| Analysis::parse(bytes).map_err(|error| error.to_string());
    match found(root, &steps, newest.analysis, parse) {
        Found::Here(analysis) => {
            lab_unequal::of_folder(root, &["evidence", folder, BAG_DIR], &analysis)
        }
        Found::Absent | Found::Refused(_) => Vec::new(),
    }
}

const RUN_BYTES_MAX: u64 = 1 << 20;
const LIST_BYTES_MAX: u64 = 64 << 20;
