//! What is another one in the middle of a leg, and the frozen one before and after.

use crate::played::{Manner, PREREG, Played};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{Campaign, Finished, Frozen, Ran, Step, run};
use packhouse_ledger::Stage;

/// Runs an armed packet; what is done at each step is told.
fn sealed(played: &Played, packet: Digest, at: &(dyn Fn(Step) + Sync)) -> Finished {
    let ran = played.act(|campaign, writer| {
        let campaign = Campaign {
            progress: at,
            ..*campaign
        };
        let frozen = Frozen::load(&campaign, writer.ledger(), packet).expect("because it is");
        run(&campaign, writer, &frozen).expect("because nothing stands against it")
    });
    match ran {
        Ran::Sealed(finished) => *finished,
        Ran::Released(fault) => panic!("released: {fault}"),
    }
}

/// A module was swapped after the first case, imported at the second and put back before the last:
/// both measures found the frozen one, and an unfrozen kernel passed.
#[test]
fn a_frozen_file_that_is_put_back_before_the_end_of_a_leg_aborts_the_run() {
    let file = "/home/user/lab/experiments/one/prereg.toml";
    let frozen = "[[frozen]]\npath = \"experiments/one/prereg.toml\"\n[matrix]\n";
    let document = PREREG.replace("[matrix]\n", frozen);
    for is_touched in [false, true] {
        let (played, packet) = Played::armed_as(61, &document);
        let at = |step: Step| match step {
            Step::Case { case: 2, .. } if is_touched => {
                played.sim.replace(file, b"another", 0o644);
            }
            Step::Case { case: 3, .. } if is_touched => {
                played.sim.replace(file, document.as_bytes(), 0o644);
            }
            _ => {}
        };
        let finished = sealed(&played, packet, &at);
        assert_eq!(played.programs.asked.borrow().len(), 3);
        assert_eq!(played.findings(packet), []);
        if !is_touched {
            assert_eq!(finished.analysis.verdict, Verdict::Pass, "{finished:?}");
            continue;
        }
        assert_eq!(finished.analysis.verdict, Verdict::Abort);
        let fault = finished.fault.expect("because it was touched");
        assert_eq!(fault.stage, Stage::Identities);
        let said = "experiments/one/prereg.toml, touched since it was measured";
        assert!(fault.reason.contains(said), "{fault}");
    }
}

/// A library was there for one case, and gone at the leg's end.
#[test]
fn what_is_mapped_at_one_answer_alone_fails_the_run() {
    let (played, packet) = Played::armed(62);
    played.programs.manner.set(Manner::Loads);
    let finished = sealed(&played, packet, &|_| ());
    assert_eq!(finished.analysis.verdict, Verdict::Fail);
    let failed = finished
        .analysis
        .gates
        .iter()
        .filter(|gate| gate.passed == Some(false));
    let failed: Vec<&str> = failed.map(|gate| gate.gate.as_str()).collect();
    assert_eq!(failed, ["identities"]);
    assert_eq!(played.findings(packet), []);
}
