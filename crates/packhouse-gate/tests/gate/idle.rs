//! Looks at devices between two legs.

use packhouse_base::Blame;
use packhouse_gate::idle::{Idle, Look, Unproved};

const SECOND: u64 = 1_000_000_000;

fn idle() -> Idle {
    Idle {
        looks: 13,
        span_ns: 60 * SECOND,
        devices: ["23", "27", "43", "47"].map(str::to_owned).into(),
        observer: "4711".to_owned(),
    }
}

fn looks() -> Vec<Look> {
    let row = |device: &str| (device.to_owned(), "4711".to_owned());
    let look = |index: u64| Look {
        at_ns: 9 + 5 * SECOND * index,
        rows: ["47", "23", "27", "43"].map(row).into(),
    };
    (0..13).map(look).collect()
}

fn said(change: impl FnOnce(&mut Vec<Look>)) -> String {
    let mut looks = looks();
    change(&mut looks);
    let refused = idle().prove(&looks);
    refused.expect_err("because it is no proof").to_string()
}

/// Thirteen looks five seconds apart span the sixty seconds that are asked for.
#[test]
fn thirteen_looks_span_sixty_seconds_and_show_nobody_else() {
    assert_eq!(idle().prove(&looks()), Ok(()));
    assert_eq!(
        said(|looks| {
            looks.pop();
        }),
        "there are 12 looks, expected 13"
    );
    assert_eq!(
        said(|looks| looks[12].at_ns -= 1),
        "the looks span 59999999999 ns, at least 60000000000 are needed"
    );
    assert_eq!(
        said(|looks| looks[4].at_ns = looks[3].at_ns),
        "look 4 is at 15000000009 ns, the one before it at 15000000009 ns"
    );
    assert_eq!(
        said(|looks| {
            looks[2].rows.pop();
        }),
        "look 2 shows 43 0 times, expected 1"
    );
    assert_eq!(
        said(|looks| {
            let again = looks[5].rows[0].clone();
            looks[5].rows.push(again);
        }),
        "look 5 shows 47 2 times, expected 1"
    );
    assert_eq!(
        said(|looks| looks[0].rows.push(("99".to_owned(), "4711".to_owned()))),
        "look 0 shows 99 1 times, expected 0"
    );
    assert_eq!(
        said(|looks| looks[7].rows[1].1 = "1".to_owned()),
        "look 7 shows 1 on 23"
    );
}

#[test]
fn looks_that_nobody_asked_for_prove_nothing() {
    for nothing in [
        Idle { looks: 0, ..idle() },
        Idle {
            span_ns: 0,
            ..idle()
        },
        Idle {
            devices: [].into(),
            ..idle()
        },
    ] {
        let refused = nothing
            .prove(&[])
            .expect_err("because nothing is asked for");
        assert!(refused.to_string().starts_with("nothing is asked for"));
        assert_eq!(refused.blame(), Blame::Caller);
    }
    let one = Unproved::Count {
        looks: 0,
        expected: 13,
    };
    assert_eq!(idle().prove(&[]), Err(one));
}
