//! Runs of several legs that are stopped, or find no room, at any moment: what is sealed then is
//! honest, and both judges find nothing in it, whatever its programs had answered before.

use crate::played::{Manner, PREREG, Played, Programs};
use packhouse_bag::Contents;
use packhouse_bagcheck::{Entry, Tree, check};
use packhouse_base::digest::Digest;
use packhouse_lab::campaign::{CampaignError, Frozen, run};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_ledger::state::Standing;
use packhouse_sim::{Crash, Fault, SimFs};
use std::collections::BTreeMap;

/// What `lab run` does: what an earlier run left is finished, else the packet is run.
fn ran(played: &Played, packet: Digest) -> Result<Standing, CampaignError> {
    played.act(|campaign, writer| {
        if recover(campaign, writer, packet)? == Recovered::Nothing(Standing::Armed) {
            let frozen = Frozen::load(campaign, writer.ledger(), packet)?;
            run(campaign, writer, &frozen)?;
        }
        Ok(writer.ledger().state().packets()[&packet].standing)
    })
}

/// What both judges find in what is sealed.
fn found(sim: &SimFs, packet: Digest) -> Vec<String> {
    let played = Played::on(sim.clone(), Programs::default());
    let home = format!("/home/user/lab/evidence/{packet}");
    let files = Contents::read(&played.dir(&home)).expect("because it is sealed");
    let entries = files.files().iter();
    let tree: Tree = entries
        .map(|(path, bytes)| (path.clone(), Entry::File(bytes.clone())))
        .collect();
    let ledger = played.sim.read("/home/user/lab/ledger.jsonl");
    let second = check(&tree, ledger.as_deref(), None).findings;
    let own = played.findings(packet).into_iter();
    own.map(|finding| format!("own {finding:?}"))
        .chain(second.iter().map(|finding| format!("second {finding:?}")))
        .collect()
}

/// Runs it on a copy with a fault, and seals what is left.
fn sealed(
    played: &Played,
    packet: Digest,
    (fault, crash, at): (Fault, Option<Crash>, u64),
) -> (SimFs, Standing) {
    let programs = played.programs.again();
    let mut sim = played.sim.crash(Crash::Kept, at);
    sim.restart_count();
    sim.set_fault(Some(fault));
    let _ = ran(&Played::on(sim.clone(), programs.clone()), packet);
    sim.set_fault(None);
    if let Some(crash) = crash {
        sim = sim.crash(crash, at);
    }
    for _ in 0..3 {
        let ended = ran(&Played::on(sim.clone(), programs.clone()), packet);
        let ended = ended.unwrap_or_else(|error| panic!("{fault:?} {crash:?}: {error}"));
        if ended != Standing::Armed {
            return (sim, ended);
        }
    }
    panic!("{fault:?} {crash:?}: released over and over");
}

/// Stops a run, or fills its disk, at some of its operations, and demands that both judges find
/// nothing. Returns how often what was sealed.
fn stopped(document: &str, manner: Manner, step: usize) -> BTreeMap<String, u32> {
    let (played, packet) = Played::armed_as(105, document);
    played.programs.manner.set(manner);
    let whole = played.sim.crash(Crash::Kept, 0);
    whole.restart_count();
    ran(&Played::on(whole.clone(), played.programs.again()), packet).expect("because it is armed");
    let count = whole.operation_count();
    assert_eq!(found(&whole, packet), Vec::<String>::new(), "{manner:?}");
    let crashes = [
        Crash::Lost,
        Crash::Torn,
        Crash::Reordered,
        Crash::LostEntries,
        Crash::Kept,
    ];
    let mut ends = BTreeMap::new();
    for (turn, at) in (0..count).step_by(step).enumerate() {
        let crash = crashes[turn % crashes.len()];
        for (fault, crash) in [
            (Fault::Stop { at }, Some(crash)),
            (Fault::Full { at }, None),
        ] {
            let (sim, ended) = sealed(&played, packet, (fault, crash, at));
            let label = format!("{manner:?}, {fault:?} of {count}, {crash:?}: {ended:?}");
            assert_eq!(found(&sim, packet), Vec::<String>::new(), "{label}");
            *ends.entry(format!("{ended:?}")).or_default() += 1;
        }
    }
    ends
}

/// The control's outputs are lost with a run that is stopped in a later leg, and so may be some of
/// the last answer's: the judges differed in what they made of such an answer.
#[test]
fn a_run_of_two_legs_that_is_stopped_anywhere_holds_for_both_judges() {
    for (manner, document) in [
        (Manner::Honest, two()),
        (Manner::WrongBit, two()),
        (Manner::Faulty, two()),
        (
            Manner::Faulty,
            two().replace("\"never\"", "\"first-failed-leg\""),
        ),
    ] {
        let ends = stopped(&document, manner, 14);
        let aborts = ends.get("SealedAbort").copied().unwrap_or_default();
        assert!(aborts > 5 && ends.len() == 2, "{manner:?}: {ends:?}");
    }
}

/// A timing leg of which some answers are there, and none without a fault.
#[test]
fn a_timing_leg_that_is_stopped_anywhere_holds_for_both_judges() {
    let document = two().replace("[[rejection]]", TIMING);
    for manner in [Manner::Honest, Manner::Modest] {
        let ends = stopped(&document, manner, 101);
        assert!(ends.contains_key("SealedAbort"), "{manner:?}: {ends:?}");
    }
}

/// Of a leg that was begun and asked nothing one judge missed each case, and the other all at once:
/// an honest run whose time was over between two legs was refused.
#[test]
fn a_run_whose_time_is_over_between_two_legs_holds_for_both_judges() {
    let (played, packet) = Played::armed_as(106, &two());
    played.programs.manner.set(Manner::Slow);
    let ended = ran(&played, packet).expect("because it is sealed");
    assert_eq!(ended, Standing::SealedFail);
    let bag = format!("/home/user/lab/evidence/{packet}/bag/data");
    let asked = played.sim.read(format!("{bag}/legs/01/exchange.jsonl"));
    let asked = String::from_utf8(asked.expect("because it was begun"));
    assert!(!asked.expect("because it is text").contains("\"case\""));
    assert_eq!(found(&played.sim, packet), Vec::<String>::new());
}

/// A leg's own word is held against its answers, and by both.
#[test]
fn a_leg_that_says_it_ended_otherwise_is_found_by_both() {
    for (manner, is, says) in [
        (Manner::WrongBit, "failed", "complete"),
        (Manner::Faulty, "failed", "complete"),
        (Manner::Honest, "complete", "failed"),
    ] {
        let (played, packet) = Played::armed_as(107, &two());
        played.programs.manner.set(manner);
        ran(&played, packet).expect("because it is armed");
        let bag = format!("/home/user/lab/evidence/{packet}/bag/data");
        for path in ["run.json", "legs/00/leg.json", "legs/01/leg.json"] {
            let text = played.sim.read(format!("{bag}/{path}"));
            let text = String::from_utf8(text.expect("because it is sealed"));
            let text = text.expect("because it is text");
            let legs = ["\"status\":\"", is, "\""].concat();
            assert!(text.contains(&legs), "{text}");
            // The run's own status is the last of its file, behind its legs.
            let (own, run) = text.split_at(text.rfind("\"status\"").unwrap_or_default());
            let other = ["\"status\":\"", says, "\""].concat();
            let text = match path {
                "run.json" => [&own.replace(&legs, &other), run].concat(),
                _ => text.replace(&legs, &other),
            };
            played.close_with(packet, path, text.as_bytes());
        }
        let found = found(&played.sim, packet);
        for judge in ["own", "second"] {
            let is_it = |one: &&String| one.starts_with(judge) && one.contains("\"run.legs\"");
            assert!(found.iter().any(|one| is_it(&one)), "{judge}: {found:#?}");
        }
    }
}

/// A leg of the control and one of the candidate, which are the same program.
pub(crate) fn two() -> String {
    let leg = "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
    let both = [&leg.replace("candidate", "control"), leg].concat();
    let control =
        "[program.control]\nprogram = \"candidate\"\narguments = []\nenvironment = {}\n[matrix]";
    PREREG.replace(leg, &both).replace("[matrix]", control)
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
