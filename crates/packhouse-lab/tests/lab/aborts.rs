//! Runs that broke off, honestly told: both judges find the evidence as good as its own analysis.

use crate::played::{Manner, PREREG, Played, RECIPES};
use packhouse_bag::Contents;
use packhouse_bagcheck::{Entry, Tree, check};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{Campaign, CampaignError, Finished, Frozen, Ran, Step, run};
use packhouse_lab::evidence::{LegRecord, LegStatus};
use packhouse_lab::marker::Marker;
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_lab::world::HostDevice;
use packhouse_ledger::Stage;
use packhouse_sim::{Crash, Fault as SimFault, SimFs};
use std::sync::Arc;

/// Runs an armed packet; what is done at each step is told.
fn ran(played: &Played, packet: Digest, at: &(dyn Fn(Step) + Sync)) -> Result<Ran, CampaignError> {
    played.act(|campaign, writer| {
        let campaign = Campaign {
            progress: at,
            ..*campaign
        };
        let frozen = Frozen::load(&campaign, writer.ledger(), packet)?;
        run(&campaign, writer, &frozen)
    })
}

fn sealed(played: &Played, packet: Digest, at: &(dyn Fn(Step) + Sync)) -> Finished {
    match ran(played, packet, at) {
        Ok(Ran::Sealed(finished)) => *finished,
        other => panic!("not sealed: {other:?}"),
    }
}

fn recovered(played: &Played, packet: Digest) -> Finished {
    match played.act(|campaign, writer| recover(campaign, writer, packet)) {
        Ok(Recovered::Sealed(finished)) => *finished,
        other => panic!("not sealed: {other:?}"),
    }
}

/// That it is an abort of which no record is refused, and that both judges find nothing more.
fn is_good_abort(played: &Played, packet: Digest, finished: &Finished) {
    let analysis = &finished.analysis;
    assert_eq!(analysis.verdict, Verdict::Abort, "{finished:?}");
    let mut failures = analysis.gates.iter().flat_map(|gate| &gate.failures);
    let refused = failures.find(|failure| failure.starts_with("record."));
    assert_eq!(refused, None);
    assert_eq!(played.findings(packet), []);
    let home = format!("/home/user/lab/evidence/{packet}");
    let files = Contents::read(&played.dir(&home)).expect("because it is sealed");
    let entry =
        |(path, bytes): (&String, &Arc<[u8]>)| (path.clone(), Entry::file(Arc::clone(bytes)));
    let tree: Tree = files.files().iter().map(entry).collect();
    let ledger = played.sim.read("/home/user/lab/ledger.jsonl");
    assert_eq!(check(&tree, ledger.as_deref(), None).findings, []);
}

fn leg(played: &Played, packet: Digest, number: u64) -> LegRecord {
    let path = format!("/home/user/lab/evidence/{packet}/bag/data/legs/{number:02}/leg.json");
    let bytes = played.sim.read(path).expect("because it was begun");
    LegRecord::parse(&bytes).expect("because it is one")
}

/// What a machine finds that stopped at the first operation that leaves an open bag like this.
fn stopped(played: &Played, packet: Digest, is_it: &dyn Fn(&SimFs, &str) -> bool) -> Played {
    let count = {
        let whole = Played::on(played.sim.crash(Crash::Kept, 0), played.programs.again());
        whole.sim.restart_count();
        sealed(&whole, packet, &|_| ());
        whole.sim.operation_count()
    };
    let data = format!("/home/user/lab/evidence/{packet}/bag.open/data");
    for at in (0..count).step_by(3) {
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(SimFault::Stop { at }));
        let programs = played.programs.again();
        let _ = ran(&Played::on(sim.clone(), programs.clone()), packet, &|_| ());
        let left = sim.crash(Crash::Kept, at);
        if is_it(&left, &data) {
            return Played::on(left, programs);
        }
    }
    panic!("never stopped like this");
}

/// Its times are of one boot and its end is of another, whose clock begins anew: the second judge
/// called the evidence broken, of power loss of all things.
#[test]
fn a_run_that_is_found_after_another_boot_is_a_good_abort() {
    let legs = "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
    let (played, packet) = Played::armed_as(91, &PREREG.replace(legs, &legs.repeat(2)));
    let mut left = stopped(&played, packet, &|sim, data| {
        sim.read(format!("{data}/legs/01/exchange.jsonl")).is_some()
    });
    left.host.boot = "boot-2".to_owned();
    left.clock.advance_ns(-3_600_000_000_000);
    let finished = recovered(&left, packet);
    is_good_abort(&left, packet, &finished);
    assert!(leg(&left, packet, 0).ended.steady_ns > 0);
}

/// The marker was taken for the first leg; the second one's card is held when its turn comes.
#[test]
fn a_card_that_is_held_when_a_later_timing_leg_begins_is_a_good_abort() {
    let document = PREREG
        .replace("[\"cpu\"]", &format!("[\"{CARD}\"]"))
        .replace("[[rejection]]", TIMING)
        .replace("[matrix]", &control("candidate"));
    let (played, packet) = Played::armed_as(92, &document);
    played.programs.manner.set(Manner::Elsewhere);
    let devices = &played.host.devices;
    let plug = |holders: &[&str]| {
        let device = HostDevice {
            model: "a card".to_owned(),
            driver: Some("driver".to_owned()),
            holders: holders.iter().map(|holder| (*holder).to_owned()).collect(),
            unknown: Vec::new(),
        };
        let mut devices = devices.lock().expect("because none panics");
        devices.insert(CARD.to_owned(), device);
    };
    plug(&[]);
    let at = |step: Step| {
        if let Step::Case {
            leg: 1, case: 2, ..
        } = step
        {
            plug(&["train (pid 7)"]);
        }
    };
    let finished = sealed(&played, packet, &at);
    let fault = finished.fault.as_ref().expect("because it is an abort");
    assert_eq!(
        fault.to_string(),
        format!("leg: device {CARD} is held by train (pid 7)")
    );
    is_good_abort(&played, packet, &finished);
    let leg = leg(&played, packet, 1);
    assert_eq!((leg.status, leg.programs), (LegStatus::Broken, Vec::new()));
    // It was looked at afterwards too: it says nothing else that nobody saw.
    let device = leg.host_device.expect("because a card is looked at");
    assert_eq!(device.before.holders, ["train (pid 7)"]);
    assert_eq!(device.after, device.before);
}

/// It was a process, whatever it said.
#[test]
fn a_program_that_says_no_hello_in_a_later_leg_has_its_process_in_the_record() {
    let own = "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
    let both = format!("{}{own}", own.replace("candidate", "control"));
    let document = PREREG
        .replace(own, &both)
        .replace("[matrix]", &control("packhouse"));
    let (played, packet) = Played::armed_as(93, &document);
    played.programs.manner.set(Manner::Silent);
    let finished = sealed(&played, packet, &|_| ());
    let stage = finished.fault.as_ref().map(|fault| fault.stage);
    assert_eq!(stage, Some(Stage::Hello));
    is_good_abort(&played, packet, &finished);
    assert!(leg(&played, packet, 1).programs[0].pid > 0);
}

/// The bag of the run has its marker whole: what was drawn is drawn from its salt.
#[test]
fn a_damaged_marker_does_not_hide_the_one_in_the_bag() {
    let (played, packet) = Played::armed(94);
    let left = stopped(&played, packet, &|sim, data| {
        let asked = sim.read(format!("{data}/legs/00/exchange.jsonl"));
        let asked = String::from_utf8(asked.unwrap_or_default());
        asked.is_ok_and(|asked| asked.contains("\"repeat\":1"))
    });
    let markers = left.sim.files("/home/user/state");
    let marker = markers
        .iter()
        .find(|path| path.ends_with(format!("lab/markers/{packet}.json")));
    let marker = marker.expect("because it was taken");
    left.sim.replace(marker, b"{", 0o444);
    let finished = recovered(&left, packet);
    is_good_abort(&left, packet, &finished);
    let data = format!("/home/user/lab/evidence/{packet}/bag/data");
    let marker = left.sim.read(format!("{data}/marker.json"));
    let marker = Marker::parse(&marker.expect("because the bag has it"));
    let salt = marker.expect("because it is whole").salt;
    let tags = format!("{FIXTURE}-1/tagmanifest-sha256.txt");
    let drawn = left.sim.read(format!("{data}/drawn/{tags}"));
    let made = RECIPES.repeat(FIXTURE, 1, salt.expect("because markers have one"));
    let made = made.expect("because it is ours");
    assert_eq!(
        drawn.as_deref(),
        Some(&*made.bag.files()["tagmanifest-sha256.txt"])
    );
}

fn control(program: &str) -> String {
    format!(
        "[program.control]\nprogram = \"{program}\"\narguments = []\nenvironment = {{}}\n[matrix]"
    )
}

const TIMING: &str = r#"[[leg]]
kind = "timing"
[timing]
fixture = "mul-mxfp4-ggml-cpu-repack-v1"
arm = "plain"
width = 1
epochs = 1
blocks = 6
cycles = 1
minimum_wins = 6
minimum_median_saving_ns = 10
[[rejection]]"#;
const FIXTURE: &str = "mul-mxfp4-ggml-cpu-repack-v1";
const CARD: &str = "cuda:GPU-5f1e0c2a-0000-1111-2222-333344445555";
