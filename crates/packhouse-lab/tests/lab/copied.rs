//! A candidate that computes nothing and copies: what lies on the disk while it could read it.

use crate::played::{PREREG, Played};
use packhouse_lab::campaign::{Frozen, run};
use packhouse_lab::recovery::recover;
use packhouse_ledger::state::Standing;
use packhouse_sim::{Crash, Fault as SimFault};

/// A reference's candidate took the control's answers, drawn cases included, out of the folder of
/// the run: both get the same inputs, and the control was asked first.
#[test]
fn the_controls_outputs_are_on_no_disk_while_a_candidate_could_copy_them() {
    let control = "[program.control]\nprogram = \"candidate\"\narguments = []\nenvironment = {}\n";
    let leg = "[[leg]]\nkind = \"exact\"\ntreatment = \"candidate\"\n";
    let both = format!("{}{leg}", leg.replace("candidate", "control"));
    let text = PREREG.replace("[matrix]", &format!("{control}[matrix]"));
    let (played, packet) = Played::armed_as(41, &text.replace(leg, &both));
    let ran = |other: &Played| {
        let ran = other.act(|campaign, writer| {
            let frozen = Frozen::load(campaign, writer.ledger(), packet);
            run(campaign, writer, &frozen.expect("because it is there"))
        });
        ran.is_ok()
    };
    let standing =
        |other: &Played| other.act(|_, writer| writer.ledger().state().packets()[&packet].standing);
    let home = format!("/home/user/lab/evidence/{packet}");
    let count = |sim: &packhouse_sim::SimFs, folder: &str| {
        let below = format!("{home}/{folder}/data/outputs/");
        let files = sim.files(&home);
        let outputs = files
            .iter()
            .filter(|path| path.to_string_lossy().starts_with(&below));
        outputs.count()
    };
    let operations = {
        let sim = played.sim.crash(Crash::Kept, 0);
        let other = Played::on(sim.clone(), played.programs.again());
        sim.restart_count();
        assert!(ran(&other));
        assert_eq!(standing(&other), Standing::SealedPass);
        assert!(count(&sim, "bag") > 0, "in the end they are there");
        sim.operation_count()
    };
    let mut was_control_done = 0;
    for at in (0..operations).step_by(5) {
        let sim = played.sim.crash(Crash::Kept, at);
        sim.restart_count();
        sim.set_fault(Some(SimFault::Stop { at }));
        let other = Played::on(sim.clone(), played.programs.again());
        ran(&other);
        let left = sim.crash(Crash::Kept, at);
        let read = |leg: &str| {
            let lines = left.read(format!("{home}/bag.open/data/legs/{leg}/exchange.jsonl"));
            String::from_utf8_lossy(&lines.unwrap_or_default()).into_owned()
        };
        if read("00").contains("\"seen\"") && !read("01").contains("\"message\":{\"boundaries\"") {
            assert_eq!(count(&left, "bag.open"), 0, "operation {at}");
            was_control_done += 1;
        }
        let again = Played::on(left, other.programs.again());
        again
            .act(|campaign, writer| recover(campaign, writer, packet))
            .ok();
        if standing(&again) == Standing::SealedAbort {
            assert_eq!(again.findings(packet), [], "operation {at}");
        }
    }
    assert!(was_control_done > 2, "{was_control_done}");
}
