//! Campaigns on a played lab: rehearsed, run, released, aborted.

use crate::played::{Manner, Played};
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{Frozen, Ran, run};
use packhouse_ledger::Stage;
use packhouse_ledger::state::Standing;

#[test]
fn an_armed_packet_is_run_once_and_sealed() {
    let (played, packet) = Played::armed(1);
    let ran = played.act(|campaign, writer| {
        let frozen = Frozen::load(campaign, writer.ledger(), packet).expect("because it is");
        let ran = run(campaign, writer, &frozen).expect("because nothing stands against it");
        let again = run(campaign, writer, &frozen).expect_err("because it was run");
        assert!(again.to_string().contains("has to be armed"), "{again}");
        ran
    });
    let Ran::Sealed(finished) = ran else {
        panic!("released: {ran:?}");
    };
    assert_eq!(finished.analysis.verdict, Verdict::Pass, "{finished:?}");
    assert_eq!(played.programs.asked.borrow().len(), 3);
}
