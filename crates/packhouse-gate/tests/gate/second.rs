//! Every figure again by a second implementation, which lists outcomes instead of counting them.

use packhouse_gate::blocks::{Noise, Paired, Spans};
use packhouse_gate::bootstrap::{Statistic, hierarchical_lower_95};
use packhouse_gate::permutation::{Start, permutation};
use packhouse_gate::random::Xoshiro;
use packhouse_gate::rational::Rational;
use packhouse_gate::sequential::{Look, Plan};
use packhouse_gate::sign::sign_test;
use packhouse_gate::suite::{Summary, percentile};
use packhouse_gate::text::shortest;
use packhouse_gate::wilcoxon::{equivalence, signed_rank};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Cases, one a line, and what the first implementation says of them.
#[derive(Default)]
struct Cases {
    asked: String,
    said: Vec<String>,
}

impl Cases {
    fn add(&mut self, name: &str, asked: &[i128], said: &[i128]) {
        let joined = |parts: &[i128]| {
            let mut line = name.to_owned();
            for part in parts {
                write!(line, " {part}").expect("because a string takes all");
            }
            line
        };
        self.asked += &joined(asked);
        self.asked.push('\n');
        self.said.push(joined(said));
    }

    /// Lets the second implementation answer the same, line by line.
    fn agree(self) {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/gate/second.py");
        let mut command = Command::new("python3");
        let piped = command.arg(&script).stdin(Stdio::piped());
        let piped = piped.stdout(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut child) = piped.spawn() else {
            println!("SKIP: no python3 to compute statistics with");
            return;
        };
        let mut stdin = child.stdin.take().expect("because it is piped");
        let asked = self.asked.clone();
        let writer = std::thread::spawn(move || stdin.write_all(asked.as_bytes()));
        let output = child.wait_with_output().expect("because it was started");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let written = writer.join().expect("because writing does not panic");
        written.expect("because it reads all cases");
        let text = String::from_utf8(output.stdout).expect("because it prints ASCII");
        let lines: Vec<&str> = text.lines().collect();
        for ((asked, said), second) in self.asked.lines().zip(&self.said).zip(&lines) {
            assert_eq!(said, second, "asked: {asked}");
        }
        assert_eq!(lines.len(), self.said.len());
        assert!(!lines.is_empty());
    }
}

fn bits(value: f64) -> i128 {
    i128::from(value.to_bits())
}

/// The digits of a number's text, and how many of them are behind the point.
fn text(value: f64) -> [i128; 2] {
    let shown = shortest(value);
    let (whole, places) = shown.split_once('.').unwrap_or((&shown, ""));
    let digits = format!("{whole}{places}").parse();
    [
        digits.expect("because they are digits"),
        places.len() as i128,
    ]
}

fn fraction(value: Rational) -> [i128; 2] {
    [value.numerator(), value.denominator()]
}

fn below(random: &mut Xoshiro, count: u64) -> i128 {
    i128::from(random.below(count))
}

/// A rate as servers have them, with all its bits.
fn rate(random: &mut Xoshiro) -> f64 {
    (1 + random.below(1 << 53)) as f64 / 2_f64.powi(44)
}

#[test]
fn fractions_round_and_compare_as_fractions_do() {
    let mut random = Xoshiro::seeded(1);
    let mut cases = Cases::default();
    let mut parts = Vec::new();
    for index in 0..400_u32 {
        let (left, right) = (1 + index % 125, 1 + index / 3 % 125);
        let mut wide = |bits: u32| {
            let high = i128::from(random.word() >> 1) << 64;
            ((high | i128::from(random.word())) >> (127 - bits)).max(1)
        };
        let (above, below) = (wide(left), wide(right));
        let above = if index % 5 == 0 { -above } else { above };
        parts.push((above, below));
    }
    // Halfway between two numbers, and one unit to either side of it.
    for distance in [-1, 0, 1] {
        parts.push((((1 << 53) + 1) * (1 << 60) + distance, 1 << 60));
        parts.push((((1 << 53) + 3) * (1 << 60) + distance, 3 << 60));
        parts.push(((1 << 100) + distance, (1 << 100) + 1));
    }
    for (above, below) in &parts {
        let value = Rational::new(*above, *below).expect("because the denominator is above zero");
        let [numerator, denominator] = fraction(value);
        let said = [bits(value.to_binary64()), numerator, denominator];
        cases.add("ratio", &[*above, *below], &said);
    }
    for pair in parts.windows(2) {
        let [left, right] = [pair[0], pair[1]];
        let value = |parts: (i128, i128)| Rational::new(parts.0, parts.1);
        let order = value(left).cmp(&value(right)) as i128;
        cases.add("compare", &[left.0, left.1, right.0, right.1], &[order]);
        cases.add("compare", &[left.0, left.1, left.0, left.1], &[0]);
    }
    for _ in 0..100 {
        let value =
            rate(&mut random) * 2_f64.powi(i32::try_from(random.below(120)).expect("small") - 60);
        let exact = Rational::of_binary64(value).expect("because it is small enough");
        cases.add("binary", &[bits(value)], &fraction(exact));
    }
    cases.agree();
}

#[test]
fn draws_are_those_of_the_page() {
    let mut cases = Cases::default();
    let counts = [1, 2, 3, 31, 1 << 63, (1 << 63) + 1, u64::MAX];
    for (seed, count) in [0, 1, u64::MAX, 42, 1 << 40, 7, 0x7061_636b_686f_7573]
        .into_iter()
        .zip(counts)
    {
        let mut random = Xoshiro::seeded(seed);
        let mut said: Vec<i128> = (0..8).map(|_| i128::from(random.word())).collect();
        said.extend((0..8).map(|_| below(&mut random, count)));
        cases.add("draws", &[i128::from(seed), i128::from(count)], &said);
    }
    cases.agree();
}

#[test]
fn signs_are_counted_as_all_outcomes_are() {
    let mut cases = Cases::default();
    let small = (0..=14).flat_map(|pairs| (0..=pairs).map(move |wins| (wins, pairs - wins)));
    let large = [
        (31, 0),
        (28, 3),
        (500, 500),
        (501, 499),
        (1000, 0),
        (0, 1000),
        (63, 1),
        (97, 31),
        (26, 0),
        (18, 5),
        (5, 19),
    ];
    for (wins, losses) in small.chain(large) {
        let test = sign_test(wins, losses).expect("because the pairs are not too many");
        let asked = [i128::from(wins), i128::from(losses)];
        let [digits, places] = text(test.two_sided);
        let said = [bits(test.one_sided), bits(test.two_sided), digits, places];
        cases.add("sign", &asked, &said);
    }
    cases.agree();
}

fn blocks(random: &mut Xoshiro, count: usize, gain: u64) -> Vec<Spans> {
    let mut span = |base: u64| base + random.below(900);
    let mut block = || Spans {
        control_ns: [span(5_000 + gain), span(5_000 + gain)],
        candidate_ns: [span(5_000), span(5_000)],
    };
    (0..count).map(|_| block()).collect()
}

fn asked_of(cycles: u64, blocks: &[Spans]) -> Vec<i128> {
    let spans = blocks.iter().flat_map(|block| {
        let ([a1, a2], [b1, b2]) = (block.control_ns, block.candidate_ns);
        [a1, b1, b2, a2].map(i128::from)
    });
    std::iter::once(i128::from(cycles)).chain(spans).collect()
}

#[test]
fn blocks_and_their_noise_are_what_the_page_says() {
    let mut random = Xoshiro::seeded(2);
    let mut cases = Cases::default();
    for (count, cycles, gain) in [(1, 1, 0), (4, 64, 0), (5, 7, 300), (6, 3, 80)] {
        let mut blocks = blocks(&mut random, count, gain);
        if count == 6 {
            blocks[2].candidate_ns = blocks[2].control_ns;
            blocks[4] = blocks[1];
        }
        let asked = asked_of(cycles, &blocks);
        let paired = Paired::of(cycles, &blocks).expect("because the spans are small");
        let exact = [
            paired.median,
            paired.hodges_lehmann,
            paired.bootstrap_lower_95,
        ];
        let mut said = vec![i128::from(paired.wins), i128::from(paired.losses)];
        said.extend(exact.into_iter().flat_map(fraction));
        said.extend([bits(paired.sign.one_sided), bits(paired.sign.two_sided)]);
        said.extend(text(paired.sign.two_sided));
        cases.add("paired", &asked, &said);
        let noise = Noise::of(cycles, &blocks).expect("because the spans are small");
        let mut said: Vec<i128> = [noise.floor, noise.detectable].map(fraction).concat();
        said.push(i128::from(noise.detectable_ns()));
        cases.add("noise", &asked, &said);
    }
    cases.agree();
}

#[test]
fn starts_are_drawn_before_their_rows() {
    let mut random = Xoshiro::seeded(3);
    let mut cases = Cases::default();
    for (count, rows) in [(1, 1), (2, 3), (3, 2)] {
        let mut start = || (0..rows).map(|_| rate(&mut random) - 256.0).collect();
        let starts: Vec<Vec<f64>> = (0..count).map(|_| start()).collect();
        for (kind, statistic) in [(0, Statistic::Mean), (1, Statistic::Median)] {
            let lower = hierarchical_lower_95(&starts, statistic);
            let mut asked = vec![kind, rows];
            asked.extend(starts.iter().flatten().map(|value| bits(*value)));
            let lower = lower.expect("because there are rows");
            cases.add("hierarchical", &asked, &[bits(lower)]);
        }
    }
    cases.agree();
}

#[test]
fn summaries_are_of_exact_sums() {
    let mut random = Xoshiro::seeded(4);
    let mut cases = Cases::default();
    for count in 1..=40 {
        let mut value = |index: usize| match (count % 4, index) {
            (0, 0) => 0.0,
            (1, _) => -rate(&mut random) * 1e-9,
            (2, 1) => rate(&mut random) * 1e25,
            (3, _) => 33.25,
            _ => rate(&mut random),
        };
        let values: Vec<f64> = (0..count).map(&mut value).collect();
        let summary = Summary::of(&values).expect("because the sizes are usual");
        let at = |share| percentile(&values, share).expect("because the share is one");
        let Summary {
            p10,
            median,
            mean,
            min,
            max,
            stdev,
            ..
        } = summary;
        let shown = [p10, median, mean, min, max, stdev, at(0.9), at(1.0)];
        let mut said = vec![i128::from(summary.count)];
        said.extend(shown.map(bits));
        let asked: Vec<i128> = values.iter().map(|value| bits(*value)).collect();
        cases.add("summary", &asked, &said);
    }
    cases.agree();
}

fn quarters(parts: &[i128]) -> Vec<Rational> {
    let quarter = |part: &i128| Rational::new(*part, 4).expect("because 4 is above zero");
    parts.iter().map(quarter).collect()
}

#[test]
fn signed_ranks_are_counted_as_all_signs_are() {
    let mut random = Xoshiro::seeded(5);
    let mut cases = Cases::default();
    for count in 0..=9 {
        for spread in [3, 9, 1000] {
            let parts = (0..count).map(|_| below(&mut random, spread) - i128::from(spread) / 3);
            let parts: Vec<i128> = parts.collect();
            let test = signed_rank(&quarters(&parts)).expect("because they are few");
            let said = [
                i128::from(test.pairs),
                i128::from(test.doubled_rank_sum),
                bits(test.one_sided),
                bits(test.two_sided),
            ];
            cases.add("signed_rank", &parts, &said);
            let margin = 2 + i128::from(spread) / 4;
            let exact = Rational::new(margin, 4).expect("because 4 is above zero");
            let test = equivalence(&quarters(&parts), exact).expect("because they are few");
            let mut asked = vec![margin];
            asked.extend(parts);
            let said = [bits(test.above_lower), bits(test.below_upper)];
            cases.add("equivalence", &asked, &said);
        }
    }
    cases.agree();
}

#[test]
fn starts_are_permuted_in_every_way() {
    let mut random = Xoshiro::seeded(6);
    let mut cases = Cases::default();
    for (controls, candidates) in [(1, 1), (2, 2), (3, 3), (4, 4), (2, 5), (6, 1), (5, 5)] {
        for is_tied in [false, true] {
            let mut value = || match is_tied {
                true => 30.0 + random.below(3) as f64,
                false => rate(&mut random),
            };
            let values: Vec<f64> = (0..controls + candidates).map(|_| value()).collect();
            let start = |value: &f64| Start::of_rows(&[*value]).expect("because it is one row");
            let starts: Vec<Start> = values.iter().map(start).collect();
            let (control, candidate) = starts.split_at(controls);
            let test = permutation(control, candidate).expect("because they are few");
            let mut asked = vec![controls as i128];
            asked.extend(values.iter().map(|value| bits(*value)));
            let choices = test.least_attainable.denominator();
            let said = [bits(test.one_sided), bits(test.two_sided), choices];
            cases.add("permutation", &asked, &said);
        }
    }
    cases.agree();
}

#[test]
fn looks_pass_as_often_as_all_outcomes_do() {
    let mut cases = Cases::default();
    let plans: [&[(u64, u64, Option<u64>)]; 6] = [
        &[(13, 10, Some(10))],
        &[(6, 3, None), (13, 10, Some(10))],
        &[(4, 0, Some(4)), (8, 0, Some(7)), (12, 9, Some(9))],
        &[(1, 0, Some(1)), (2, 0, Some(2)), (3, 2, Some(2))],
        &[(5, 2, Some(5)), (10, 8, Some(8))],
        &[(2, 0, Some(0))],
    ];
    for plan in plans {
        let look = |(pairs, fails_below, passes_at): &(u64, u64, Option<u64>)| Look {
            pairs: *pairs,
            fails_below: *fails_below,
            passes_at: *passes_at,
        };
        let looks: Vec<Look> = plan.iter().map(look).collect();
        let asked = looks.iter().flat_map(|look| {
            [look.pairs, look.fails_below, look.passes_at.unwrap_or(999)].map(i128::from)
        });
        let asked: Vec<i128> = asked.collect();
        let is_open = looks.last().is_some_and(|look| look.passes_at == Some(0));
        let plan = Plan::of(&looks).expect("because the last look decides");
        cases.add("plan", &asked, &fraction(plan.false_pass()));
        assert!(is_open || plan.false_pass() < Rational::whole(1));
    }
    cases.agree();
}
