//! Figures that a program computed which was written from the pages alone: `independent.txt`.

use packhouse_gate::blocks::{Noise, Paired, Spans, hodges_lehmann, median_lower_95};
use packhouse_gate::blocks::{Unpaired, median_percent};
use packhouse_gate::bootstrap::{Statistic, hierarchical_lower_95};
use packhouse_gate::crossover::{
    Bound, Control, ControlNoise, Disposition, Leg, Misjudged, Pair, Row, SameWork, Thresholds,
    Work, judge,
};
use packhouse_gate::exact::first_difference;
use packhouse_gate::permutation::{NoStart, Start, permutation};
use packhouse_gate::rate::{Arrivals, Burst, NoRate, Rate, Window};
use packhouse_gate::rational::Rational;
use packhouse_gate::recorded::{agrees, converted, cycle_ms, response_rates, rise, window_rates};
use packhouse_gate::sequential::{Look, Plan};
use packhouse_gate::sign::{least_attainable, sign_test};
use packhouse_gate::speculation::{Counters, Speculation};
use packhouse_gate::suite::{NoSummary, Summary, class_balanced, percentile};
use packhouse_gate::text::shortest;
use packhouse_gate::wilcoxon::{equivalence, shift_lower, signed_rank};

const CASES: &str = include_str!("independent.txt");

/// What is asked, word by word.
type Words<'a> = &'a [&'a str];

fn float(word: &str) -> f64 {
    let digits = word.strip_prefix('~').expect("because it is a binary64");
    digits.parse().expect("because they are digits")
}

fn floats(words: Words<'_>) -> Vec<f64> {
    words.iter().map(|word| float(word)).collect()
}

fn count(word: &str) -> u64 {
    word.parse().expect("because it is a count")
}

fn counts(words: Words<'_>) -> Vec<u64> {
    words.iter().map(|word| count(word)).collect()
}

fn fractions(words: Words<'_>) -> Vec<Rational> {
    let one = |word: &&str| {
        let (above, below) = word.split_once('/').expect("because it has a bar");
        let [above, below] = [above, below].map(|part| part.parse().expect("because of digits"));
        Rational::new(above, below).expect("because it is above zero")
    };
    words.iter().map(one).collect()
}

/// Values with commas between them, one list each word.
fn lists(words: Words<'_>) -> Vec<Vec<f64>> {
    let list = |word: &&str| word.split(',').map(float).collect();
    words.iter().map(list).collect()
}

fn spans(words: Words<'_>) -> Vec<Spans> {
    let (blocks, _) = words.as_chunks::<4>();
    let block = |words: &[&str; 4]| {
        let [a1, b1, b2, a2] = words.map(count);
        Spans {
            control_ns: [a1, a2],
            candidate_ns: [b1, b2],
        }
    };
    blocks.iter().map(block).collect()
}

fn leg(words: Words<'_>) -> Leg {
    let positions = usize::try_from(count(words[5])).expect("because it is small");
    let (counters, rows) = words[6..].split_at(positions);
    let row = |(index, word): (usize, &&str)| Row {
        prompt: index.to_string(),
        per_second: float(word),
    };
    Leg {
        headline: float(words[0]),
        rows: rows.iter().enumerate().map(row).collect(),
        cycle_ms: float(words[1]),
        work: Some(Work {
            cycles: count(words[2]),
            drafted: count(words[3]),
            accepted: count(words[4]),
            positions: counts(counters),
        }),
        faults: vec![],
    }
}

/// Figures as words.
fn said(figures: &[f64]) -> String {
    let words: Vec<String> = figures.iter().map(|it| format!("~{it:?}")).collect();
    words.join(" ")
}

fn bar(value: Rational) -> String {
    format!("{}/{}", value.numerator(), value.denominator())
}

fn recorded(name: &str, words: Words<'_>) -> Option<String> {
    let figure = match name {
        "window" => {
            let rates = window_rates(&floats(&words[1..]), count(words[0])).ok()?;
            let both = said(&[rates.events_over_span, rates.inter_token]);
            let span = said(&[rates.span]);
            return Some(format!(
                "{both} {} {} {span}",
                rates.events, rates.intervals
            ));
        }
        "response" => {
            let rates = response_rates(count(words[0]), float(words[1]), float(words[2])).ok()?;
            let [wall, full] = [rates.wall, rates.full_after_first];
            return Some(said(&[wall, full, rates.full_inter_token]));
        }
        "rise" => return Some(rise(float(words[0]), float(words[1])).ok()?.to_string()),
        "agrees" => return Some(agrees(float(words[0]), float(words[1])).to_string()),
        "converted" => converted(float(words[0]), count(words[1])).ok()?,
        "cycle" => cycle_ms(float(words[0]), count(words[1])).ok()?,
        other => unreachable!("{other}"),
    };
    Some(said(&[figure]))
}

fn suite(name: &str, words: Words<'_>) -> Result<String, NoSummary> {
    if name == "percentile" {
        let value = percentile(&floats(&words[1..]), float(words[0]))?;
        return Ok(said(&[value]));
    }
    if name == "classes" {
        let (rows, _) = words.as_chunks::<2>();
        let all = class_balanced(rows.iter().map(|[class, value]| (*class, float(value))))?;
        let figures = said(&[all.median, all.mean, all.stdev]);
        return Ok(format!("{} {figures}", all.count));
    }
    let all = Summary::of(&floats(words))?;
    let figures = [all.p10, all.median, all.mean, all.min, all.max, all.stdev];
    Ok(format!("{} {}", all.count, said(&figures)))
}

fn speculation(words: Words<'_>) -> Option<String> {
    let numbers = counts(words);
    let counters = Counters {
        requests: numbers[0],
        cycles: numbers[1],
        depth: numbers[2],
        drafted: numbers[3],
        accepted: numbers[4],
        positions: numbers[7..].to_vec(),
    };
    let draft = Speculation::of(counters, numbers[5], numbers[6]).ok()?;
    let figures = [
        draft.acceptance(),
        draft.mean_accepted(),
        draft.emitted_by_counters(),
        draft.emitted_by_delivery(),
    ];
    let conditional = draft.conditional().into_iter();
    let conditional = conditional.map(|it| it.map_or("none".to_owned(), |it| said(&[it])));
    let mut all = vec![
        said(&figures),
        draft.overrun().to_string(),
        said(&draft.survival()),
    ];
    all.extend(conditional);
    Some(all.join(" "))
}

fn pair(words: Words<'_>) -> Option<String> {
    let length = usize::try_from(count(words[0])).expect("because it is small");
    let (control, candidate) = words[1..].split_at(length);
    let pair = Pair::of(&leg(control), &leg(candidate)).ok()?;
    let drafts = pair.work?;
    let rest = [
        pair.sign.two_sided,
        pair.median_delta,
        pair.median_percent,
        pair.cycle_saving_ms,
        pair.cycle_percent,
        drafts.acceptance_delta,
    ];
    let headline = said(&[pair.headline_percent]);
    let (wins, losses) = (pair.wins, pair.losses);
    Some(format!(
        "{headline} {wins} {losses} {} {}",
        said(&rest),
        drafts.is_same
    ))
}

fn judged(words: Words<'_>) -> String {
    let bound = |kind: &str, value: &str| match kind {
        "0" => Bound::Above(float(value)),
        _ => Bound::AtLeast(float(value)),
    };
    let thresholds = Thresholds {
        headline_ratio: bound(words[0], words[1]),
        row_wins: count(words[2]),
        median_percent: bound(words[3], words[4]),
        cycle_saving_ms: bound(words[5], words[6]),
        work: match words[7] {
            "i" => SameWork::Identical,
            most => SameWork::AcceptanceWithin(float(most)),
        },
        control_health: (words[8] != "x").then(|| float(words[8])),
        record: float(words[9]),
        floor_ratio: float(words[10]),
    };
    let quiet = ControlNoise {
        absolute: 0.0,
        percent: 0.0,
        cycle_ms: 0.0,
    };
    let detectable = thresholds.detectable(&quiet).expect("because they can be");
    let (mut legs, mut rest) = (Vec::new(), &words[11..]);
    while let Some((length, after)) = rest.split_first() {
        let length = usize::try_from(count(length)).expect("because it is small");
        let (one, after) = after.split_at(length);
        legs.push(leg(one));
        rest = after;
    }
    let [a1, b1, second @ ..] = legs.as_slice() else {
        unreachable!("because there are two legs at least")
    };
    let second = match second {
        [b2, a2] => Some([b2, a2]),
        _ => None,
    };
    let judged = match judge(&detectable, [a1, b1], second) {
        Ok(judged) => judged,
        Err(Misjudged::RunAfterStop { .. }) => return "after-stop".to_owned(),
        Err(error) => unreachable!("{error}"),
    };
    let outcomes = judged.outcomes.iter();
    let outcomes = outcomes.map(|it| format!("{}:{}", it.gate, it.passed));
    let disposition = match judged.disposition {
        Disposition::PhaseOneStop => "stop".to_owned(),
        Disposition::PhaseOnePassed => "continue".to_owned(),
        Disposition::NegativeOrInconclusive => "negative".to_owned(),
        Disposition::BelowFloor => "below".to_owned(),
        Disposition::RecordCandidate { publishable } => format!("candidate:~{publishable:?}"),
    };
    let all: Vec<String> = outcomes.chain([disposition]).collect();
    all.join(" ")
}

fn control_noise(words: Words<'_>) -> Option<String> {
    let numbers = floats(words);
    let (pairs, _) = numbers.as_chunks::<4>();
    let control = |headline, cycle_ms| Control { headline, cycle_ms };
    let pairs = pairs
        .iter()
        .map(|[a, b, c, d]| [control(*a, *b), control(*c, *d)]);
    let noise = ControlNoise::of(&pairs.collect::<Vec<_>>()).ok()??;
    Some(said(&[noise.absolute, noise.percent, noise.cycle_ms]))
}

fn blocks(name: &str, words: Words<'_>) -> Result<String, Unpaired> {
    Ok(match name {
        "paired" => {
            let paired = Paired::of(count(words[0]), &spans(&words[1..]))?;
            let exact = [
                paired.median,
                paired.hodges_lehmann,
                paired.bootstrap_lower_95,
            ];
            let exact = exact.map(bar).join(" ");
            let (wins, losses, sign) = (paired.wins, paired.losses, paired.sign);
            let one = said(&[sign.one_sided]);
            format!("{wins} {losses} {exact} {one} {}", shortest(sign.two_sided))
        }
        "noise" => {
            let noise = Noise::of(count(words[0]), &spans(&words[1..]))?;
            let both = [noise.floor, noise.detectable].map(bar).join(" ");
            format!("{both} {}", noise.detectable_ns())
        }
        "percent" => bar(median_percent(&spans(words))?),
        "hl" => {
            let values = fractions(words);
            [hodges_lehmann(&values)?, median_lower_95(&values)?]
                .map(bar)
                .join(" ")
        }
        other => unreachable!("{other}"),
    })
}

fn chance(name: &str, words: Words<'_>) -> Option<String> {
    Some(match name {
        "sign" => {
            let test = sign_test(count(words[0]), count(words[1])).ok()?;
            let both = said(&[test.one_sided, test.two_sided]);
            format!("{both} {}", shortest(test.two_sided))
        }
        "least" => bar(least_attainable(count(words[0]), count(words[1])).ok()?),
        "rank" => {
            let test = signed_rank(&fractions(words)).ok()?;
            let both = said(&[test.one_sided, test.two_sided]);
            format!("{} {} {both}", test.pairs, test.doubled_rank_sum)
        }
        "shift" => {
            let values = fractions(words);
            let bound = shift_lower(&values[1..], values[0]).ok()?;
            format!("{} {} {}", bar(bound.lower), bound.rank, bar(bound.error))
        }
        "tost" => {
            let values = fractions(words);
            let both = equivalence(&values[1..], values[0]).ok()?;
            said(&[both.above_lower, both.below_upper])
        }
        "perm" => {
            let starts = lists(&words[1..]);
            let starts: Result<Vec<Start>, NoStart> =
                starts.iter().map(|rows| Start::of_rows(rows)).collect();
            let starts = starts.ok()?;
            let controls = usize::try_from(count(words[0])).expect("because it is small");
            let (control, candidate) = starts.split_at(controls);
            let test = permutation(control, candidate).ok()?;
            let both = said(&[test.one_sided, test.two_sided]);
            format!("{both} {}", bar(test.least_attainable))
        }
        "boot" => {
            let statistic = match words[0] {
                "mean" => Statistic::Mean,
                _ => Statistic::Median,
            };
            said(&[hierarchical_lower_95(&lists(&words[1..]), statistic).ok()?])
        }
        "plan" => {
            let (looks, _) = words.as_chunks::<3>();
            let look = |[pairs, fails_below, passes_at]: &[&str; 3]| Look {
                pairs: count(pairs),
                fails_below: count(fails_below),
                passes_at: (*passes_at != "x").then(|| count(passes_at)),
            };
            let looks: Vec<Look> = looks.iter().map(look).collect();
            bar(Plan::of(&looks).ok()?.false_pass())
        }
        other => unreachable!("{other}"),
    })
}

fn rate(words: Words<'_>) -> Result<Rate, NoRate> {
    let burst = |word: &&str| {
        let (at_ns, tokens) = word.split_once(':').expect("because it is a burst");
        Burst {
            at_ns: count(at_ns),
            tokens: count(tokens),
        }
    };
    let bursts: Vec<Burst> = words[4..].iter().map(burst).collect();
    let all = Arrivals::of(count(words[0]), count(words[1]), &bursts)?;
    let arrivals = match words[2] {
        "x" => all,
        token => all.up_to_token(count(token))?,
    };
    arrivals.rate(match words[3] {
        "steady" => Window::Steady,
        "events" => Window::EventsOverSpan,
        "wall" => Window::Wall,
        k_first => Window::InterToken {
            k_first: count(k_first),
        },
    })
}

fn difference(words: Words<'_>) -> String {
    let length = usize::try_from(count(words[0])).expect("because it is small");
    let ids = words[1..]
        .iter()
        .map(|word| word.parse().expect("because it is an id"));
    let ids: Vec<u32> = ids.collect();
    let (expected, actual) = ids.split_at(length);
    let id = |id: Option<u32>| id.map_or("end".to_owned(), |id| id.to_string());
    match first_difference(expected, actual) {
        None => "same".to_owned(),
        Some(it) => format!("{} {} {}", it.index, id(it.expected), id(it.actual)),
    }
}

fn answer(name: &str, words: Words<'_>) -> Option<String> {
    match name {
        "summary" | "percentile" | "classes" => suite(name, words).ok(),
        "spec" => speculation(words),
        "pair" => pair(words),
        "judge" => Some(judged(words)),
        "noise2" => control_noise(words),
        "paired" | "noise" | "percent" | "hl" => blocks(name, words).ok(),
        "sign" | "least" | "rank" | "shift" | "tost" | "perm" | "boot" | "plan" => {
            chance(name, words)
        }
        "rate" => {
            let rate = rate(words).ok()?;
            let (exact, once) = (bar(rate.exact()), said(&[rate.per_second()]));
            Some(format!(
                "{} {exact} {once} {}",
                rate.counted(),
                rate.arrived().count()
            ))
        }
        "diff" => Some(difference(words)),
        _ => recorded(name, words),
    }
}

/// Binary64 are compared by their bits, all else by its words.
fn is_same(left: &str, right: &str) -> bool {
    let apart = |word: &str| match word.split_once('~') {
        Some((before, digits)) => {
            let value: f64 = digits.parse().expect("because they are digits");
            (before.to_owned(), value.to_bits())
        }
        None => (word.to_owned(), 0),
    };
    let words = |text: &str| -> Vec<(String, u64)> { text.split(' ').map(apart).collect() };
    words(left) == words(right)
}

#[test]
fn figures_are_those_of_a_program_that_knows_the_pages_alone() {
    let mut names = std::collections::BTreeSet::new();
    let mut cases = 0;
    for line in CASES.lines().filter(|line| !line.starts_with('#')) {
        let (asked, expected) = line.split_once(" = ").expect("because it has both");
        let words: Vec<&str> = asked.split(' ').collect();
        let said = answer(words[0], &words[1..]).unwrap_or("none".to_owned());
        assert!(is_same(&said, expected), "{line}\nis {said}");
        names.insert(words[0]);
        cases += 1;
    }
    assert!(names.len() == 27 && cases > 100, "{cases} of {names:?}");
}
