//! Rates from arrivals: what is counted, between which ends.

use packhouse_gate::rate::{Arrivals, Burst, Intervals, Nanos, NoRate, Rate, Tokens, Window};
use std::cmp::Ordering;
use std::ops::{Div, Mul};

fn burst(at_ns: u64, tokens: u64) -> Burst {
    Burst { at_ns, tokens }
}

fn arrivals(bursts: &[Burst]) -> Arrivals {
    Arrivals::of(100, 1_000_000, bursts).expect("because the bursts are in order")
}

fn rate(arrivals: &Arrivals, window: Window) -> Rate {
    arrivals
        .rate(window)
        .expect("because there are enough bursts")
}

/// Does not compile once `Left` can be divided by, or multiplied with, `Right`: the two traits
/// would then both have the function.
macro_rules! has_no_operator {
    ($($left:ty, $right:ty;)*) => {$({
        trait Ambiguous<Marker> {
            fn call() {}
        }
        struct Divides;
        struct Multiplies;
        impl<T: ?Sized> Ambiguous<()> for T {}
        impl<T: Div<$right>> Ambiguous<Divides> for T {}
        impl<T: Mul<$right>> Ambiguous<Multiplies> for T {}
        <$left as Ambiguous<_>>::call();
    })*};
}

#[test]
fn no_operator_makes_a_rate_of_counts_and_times() {
    has_no_operator! {
        Tokens, Nanos;
        Tokens, std::time::Duration;
        Tokens, f64;
        Tokens, u64;
        Intervals, Nanos;
        Intervals, std::time::Duration;
        Intervals, f64;
        Nanos, Tokens;
        Nanos, Intervals;
        Rate, Rate;
    }
}

#[test]
fn each_window_keeps_its_count_and_both_its_ends() {
    let arrivals = arrivals(&[
        burst(1_100, 3),
        burst(2_100, 2),
        burst(4_100, 1),
        burst(6_100, 4),
    ]);
    let seen = |window| {
        let rate = rate(&arrivals, window);
        assert_eq!(rate.window(), window);
        assert_eq!(rate.arrived(), Tokens::of(10));
        (rate.counted(), rate.ends_ns(), rate.span().count())
    };
    assert_eq!(
        seen(Window::InterToken { k_first: 3 }),
        (7, (1_100, 6_100), 5_000)
    );
    assert_eq!(seen(Window::Steady), (5, (2_100, 6_100), 4_000));
    assert_eq!(seen(Window::EventsOverSpan), (10, (1_100, 6_100), 5_000));
    assert_eq!(seen(Window::Wall), (10, (100, 1_000_000), 999_900));
    let first = arrivals.to_first().expect("because there is a burst");
    assert_eq!(first.count(), 1_000);
    assert_eq!(arrivals.first_burst(), Some(Tokens::of(3)));
    let rate = rate(&arrivals, Window::InterToken { k_first: 3 });
    assert_eq!(rate.exact().to_string(), "1400000");
    assert_eq!(rate.per_second(), 1.4e6);
}

/// N single tokens have N - 1 intervals; the form with N is 1/(N - 1) higher, whatever the times.
#[test]
fn n_tokens_have_one_interval_less() {
    for tokens in [2, 3, 100, 512] {
        let at_ns: Vec<u64> = (0..tokens).map(|index| 1_000 + 7 * index).collect();
        let arrivals = Arrivals::of_tokens(0, 10_000, &at_ns).expect("because they rise");
        let intervals = rate(&arrivals, Window::InterToken { k_first: 1 });
        let events = rate(&arrivals, Window::EventsOverSpan);
        assert_eq!(intervals.counted(), tokens - 1);
        assert_eq!(events.counted(), tokens);
        assert_eq!(intervals.span(), events.span());
        assert_eq!(intervals.compare(&events), None);
    }
}

#[test]
fn tokens_of_one_time_are_one_burst_however_they_are_listed() {
    let split = arrivals(&[burst(500, 1), burst(500, 2), burst(900, 1), burst(900, 1)]);
    let whole = arrivals(&[burst(500, 3), burst(900, 2)]);
    assert_eq!(split, whole);
    assert_eq!(split.first_burst(), Some(Tokens::of(3)));
    let declared = split.rate(Window::InterToken { k_first: 1 });
    assert_eq!(
        declared,
        Err(NoRate::First {
            declared: 1,
            actual: 3
        })
    );
}

/// A window of 100 tokens whose border falls into a burst takes the whole burst, or none of it.
#[test]
fn a_window_never_cuts_a_burst() {
    let bursts: Vec<Burst> = (1..=40).map(|index| burst(1_000 * index, 8)).collect();
    let all = arrivals(&bursts);
    let up_to = |token| all.up_to_token(token).expect("because so many came");
    let window = up_to(100);
    assert_eq!(window.tokens(), Tokens::of(104));
    let rate = rate(&window, Window::InterToken { k_first: 8 });
    assert_eq!((rate.counted(), rate.ends_ns()), (96, (1_000, 13_000)));
    assert_eq!(up_to(104), window);
    assert_eq!(up_to(105).tokens(), Tokens::of(112));
    assert_eq!(up_to(0).tokens(), Tokens::of(0));
    assert_eq!(up_to(320), all);
}

/// The first hundred tokens had the whole response's end, and so a wall rate of a fifth of its own;
/// and where fewer had come than were asked for, there was a rate all the same.
#[test]
fn the_first_tokens_of_a_response_have_no_wall_rate_and_fewer_than_asked_no_rate_at_all() {
    let at_ns: Vec<u64> = (0..512).map(|index| 1_000 + 10 * index).collect();
    let whole = Arrivals::of_tokens(0, 25_000, &at_ns).expect("because they rise");
    assert_eq!(rate(&whole, Window::Wall).per_second(), 20_480_000.0);
    let first = whole.up_to_token(100).expect("because so many came");
    assert_eq!(first.rate(Window::Wall), Err(NoRate::Cut));
    assert_eq!(rate(&first, Window::EventsOverSpan).counted(), 100);
    let said = NoRate::Cut.to_string();
    assert_eq!(said, "wall is of a whole response, not of its first tokens");
    let last = whole.up_to_token(512).expect("because so many came");
    assert_eq!(rate(&last, Window::Wall).counted(), 512);
    let eight = arrivals(&[burst(147, 5), burst(157, 3)]);
    let fewer = eight.up_to_token(9).expect_err("because eight came");
    assert_eq!(fewer.to_string(), "8 tokens came, fewer than 9");
    assert!(eight.up_to_token(8).is_ok());
}

#[test]
fn rates_of_two_windows_are_never_compared() {
    let fast = arrivals(&[burst(1_000, 1), burst(2_000, 1), burst(3_000, 1)]);
    let slow = arrivals(&[burst(1_000, 2), burst(2_500, 1), burst(5_000, 1)]);
    let windows = |of: &Arrivals| {
        let k_first = of.first_burst().expect("because there is one").count();
        [
            Window::InterToken { k_first },
            Window::Steady,
            Window::EventsOverSpan,
            Window::Wall,
        ]
        .map(|window| rate(of, window))
    };
    let server = Rate::server_reported(Tokens::of(3), Nanos::of(2_000));
    let server = server.expect("because the span is not empty");
    for (index, left) in windows(&fast).into_iter().enumerate() {
        for (other, right) in windows(&slow).into_iter().enumerate() {
            assert_eq!(
                left.compare(&right).is_some(),
                index == other,
                "{left:?} {right:?}"
            );
        }
        assert_eq!(left.compare(&server), None);
    }
    let [left, ..] = windows(&fast);
    let [right, ..] = windows(&slow);
    assert_eq!(left.compare(&right), Some(Ordering::Greater));
}

#[test]
fn what_is_no_rate_says_why() {
    let said = |result: Result<Rate, NoRate>| result.expect_err("because it is none").to_string();
    let two = arrivals(&[burst(500, 1), burst(900, 1)]);
    let one = arrivals(&[burst(500, 5)]);
    let none = arrivals(&[]);
    let inter = Window::InterToken { k_first: 1 };
    assert_eq!(
        said(two.rate(Window::Steady)),
        "steady needs 3 bursts at different times, there are 2"
    );
    assert_eq!(
        said(one.rate(Window::EventsOverSpan)),
        "events-over-span needs 2 bursts at different times, there are 1"
    );
    assert_eq!(
        said(none.rate(inter)),
        "inter-token needs 2 bursts at different times, there are 0"
    );
    assert_eq!(
        said(two.rate(Window::InterToken { k_first: 2 })),
        "the first burst has 1 tokens, the window says 2"
    );
    assert_eq!(
        said(two.rate(Window::ServerReported)),
        "server-reported is not made from arrivals"
    );
    // A response without a token had a wall rate, of 0.
    assert_eq!(said(none.rate(Window::Wall)), "wall counts no token");
    let nothing = Rate::server_reported(Tokens::of(0), Nanos::of(5));
    assert_eq!(said(nothing), "server-reported counts no token");
    let instant = Rate::server_reported(Tokens::of(1), Nanos::of(0));
    assert_eq!(said(instant), "a span of 0 ns has no rate");
    let bad = |started, ended, bursts: &[Burst]| {
        let bad = Arrivals::of(started, ended, bursts);
        bad.expect_err("because it is out of order").to_string()
    };
    assert_eq!(
        bad(100, 900, &[burst(500, 1), burst(499, 1)]),
        "burst 1 is at 499 ns, expected 500 to 900"
    );
    assert_eq!(
        bad(100, 900, &[burst(99, 1)]),
        "burst 0 is at 99 ns, expected 100 to 900"
    );
    assert_eq!(
        bad(100, 900, &[burst(901, 1)]),
        "burst 0 is at 901 ns, expected 100 to 900"
    );
    assert_eq!(bad(100, 900, &[burst(500, 0)]), "burst 0 has no token");
    let many = [burst(500, u64::MAX), burst(600, 1)];
    assert_eq!(bad(100, 900, &many), "there are more tokens than 2^64");
    assert_eq!(Nanos::between(5, 4), None);
}
