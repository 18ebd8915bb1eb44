//! Counters of a draft: what contradicts what, and the alarm.

use packhouse_gate::recorded::{NoFigure, rise};
use packhouse_gate::speculation::{
    Contradiction, Counters, Speculation, StaleVerifier, Undelivered, by_position, excess,
};

fn counters() -> Counters {
    Counters {
        requests: 3,
        cycles: 100,
        depth: 4,
        drafted: 400,
        accepted: 150,
        positions: vec![70, 45, 25, 10],
    }
}

fn refused(change: impl FnOnce(&mut Counters), prompts: u64, delivered: u64) -> String {
    let mut counters = counters();
    change(&mut counters);
    let refused = Speculation::of(counters, prompts, delivered);
    refused
        .expect_err("because they contradict each other")
        .to_string()
}

#[test]
fn counters_must_agree_with_each_other_and_with_what_was_delivered() {
    let emitted = 150 + 100 + 3;
    for delivered in [emitted, emitted - 12] {
        let fine = Speculation::of(counters(), 3, delivered);
        let fine = fine.expect("because nothing contradicts");
        assert_eq!(fine.overrun(), emitted - delivered);
        assert_eq!(fine.counters(), &counters());
    }
    assert_eq!(
        refused(|it| it.drafted = 399, 3, 253),
        "399 tokens were drafted, 100 cycles of depth 4 draft 400"
    );
    assert_eq!(
        refused(|it| it.positions.push(0), 3, 253),
        "5 positions are counted, the depth is 4"
    );
    assert_eq!(
        refused(|it| it.positions.swap(1, 2), 3, 253),
        "position 2 was accepted 45 times, the one before it 25"
    );
    assert_eq!(
        refused(|it| it.positions[0] = 101, 3, 253),
        "position 0 was accepted 101 times, the one before it 100"
    );
    assert_eq!(
        refused(|it| it.accepted = 149, 3, 252),
        "149 tokens were accepted, by position 150"
    );
    assert_eq!(
        refused(|_| (), 4, 253),
        "3 requests were decoded for 4 prompts"
    );
    assert_eq!(
        refused(|_| (), 3, 254),
        "254 tokens were delivered, 253 were emitted"
    );
    assert_eq!(
        refused(|_| (), 3, 240),
        "13 emitted tokens were not delivered, at most 12 can be"
    );
    assert_eq!(
        refused(|it| it.cycles = 0, 3, 253),
        "0 cycles of depth 4 draft nothing"
    );
    assert_eq!(
        refused(|it| it.depth = 0, 3, 253),
        "100 cycles of depth 0 draft nothing"
    );
    let huge = u64::MAX;
    assert_eq!(
        refused(|it| it.cycles = huge, 3, 253),
        format!("cycles is {huge}, which is no count of tokens")
    );
    assert_eq!(
        refused(|it| it.positions[3] = huge, 3, 253),
        format!("positions is {huge}, which is no count of tokens")
    );
}

#[test]
fn a_position_after_one_that_never_survived_has_no_condition() {
    let mut counters = counters();
    counters.positions = vec![70, 80 - 70, 0, 0];
    counters.accepted = 80;
    let draft = Speculation::of(counters, 3, 183).expect("because they agree");
    let conditional = draft.conditional();
    assert_eq!(conditional[2..], [Some(0.0), None]);
    let size = Contradiction::Size {
        counter: "cycles",
        value: 1,
    };
    assert_eq!(size.blame(), packhouse_base::Blame::Caller);
}

/// A verifier that read stale data accepted 847 to 818 tokens over its positions, ran twice as
/// fast, and no row was exact.
#[test]
fn flat_survival_trips_the_alarm_of_a_stale_verifier() {
    let alarm = StaleVerifier::USUAL;
    let stale = [847, 842, 838, 833, 829, 824, 818];
    let record = [1171, 847, 631, 497, 397, 328, 248, 204, 172, 140, 112];
    let matched = [234, 187, 142, 121, 104, 86, 79];
    assert!(alarm.trips(&stale, None));
    assert!(alarm.trips(&stale, Some(1.95)));
    assert!(alarm.trips(&stale, Some(f64::NAN)));
    assert!(!alarm.trips(&stale, Some(1.01)));
    for healthy in [&record[..], &matched[..]] {
        assert!(!alarm.trips(healthy, None));
        assert!(!alarm.trips(healthy, Some(3.0)));
    }
    assert!(alarm.trips(&[10, 9], None));
    assert!(!alarm.trips(&[100, 89], None));
    assert!(!alarm.trips(&[10], None));
    assert!(!alarm.trips(&[], None));
    assert!(!alarm.trips(&[0, 0], None));
}

#[test]
fn a_counter_rises_by_whole_numbers_or_not_at_all() {
    assert_eq!(rise(10.0, 1619.0), Ok(1609));
    assert_eq!(rise(0.1, 3.1000005), Ok(3));
    assert_eq!(rise(5.0, 5.0), Ok(0));
    assert_eq!(rise(0.0, 3.00001), Err(NoFigure::Broken { rise: 3.00001 }));
    let (before, after) = (3.0, 2.0);
    assert_eq!(rise(before, after), Err(NoFigure::Fell { before, after }));
    for after in [f64::NAN, f64::INFINITY, 1e16] {
        assert!(rise(0.0, after).is_err(), "{after}");
    }
}

#[test]
fn positions_are_counted_from_0_without_a_gap() {
    let said = |counted: &[(u64, u64)]| by_position(&counted.iter().copied().collect());
    assert_eq!(said(&[(1, 45), (0, 70), (2, 25)]), Ok(vec![70, 45, 25]));
    assert_eq!(said(&[]), Ok(vec![]));
    let gap = said(&[(0, 70), (2, 25)]).expect_err("because 1 is missing");
    assert_eq!(
        gap.to_string(),
        "position 2 is counted where 1 was expected"
    );
    assert!(said(&[(1, 70)]).is_err());
}

/// Public output is a beginning of what the verifier emitted, and only its last event may be cut.
#[test]
fn what_was_not_delivered_is_the_end_of_the_last_event() {
    let events = [vec![5, 6], vec![7], vec![8, 9, 10, 11]];
    let of = |delivered: &[u32]| excess(delivered, &events, 3);
    assert_eq!(of(&[4, 5, 6, 7, 8, 9, 10, 11]), Ok(&[][..]));
    assert_eq!(of(&[4, 5, 6, 7, 8]), Ok(&[9, 10, 11][..]));
    let said = |delivered: &[u32]| {
        of(delivered)
            .expect_err("because it is another")
            .to_string()
    };
    assert_eq!(
        said(&[4, 5, 6, 7]),
        "4 emitted tokens were not delivered, at most 3 can be"
    );
    assert_eq!(
        said(&[4, 5, 6]),
        "event 2 follows one that was not delivered to its end"
    );
    assert_eq!(
        said(&[4, 5]),
        "event 1 follows one that was not delivered to its end"
    );
    assert_eq!(
        said(&[4, 5, 6, 7, 8, 1]),
        "token 5 is not what event 2 emitted"
    );
    assert_eq!(
        said(&[4, 5, 6, 7, 8, 9, 10, 11, 12, 13]),
        "2 tokens were delivered that no event emitted"
    );
    assert_eq!(of(&[]), Err(Undelivered::Nothing));
    assert_eq!(excess(&[4], &[], 3), Ok(&[][..]));
    assert_eq!(Undelivered::Nothing.blame(), packhouse_base::Blame::Caller);
}
