//! Blocks of a timing leg: `docs/format/statistics.md`, sections 1 to 3.
//!
//! All savings of a leg have one denominator, so that everything is a sum of integers until it is
//! written down.

mod draws;
mod sign;

use crate::documents::Timing;
use crate::json::Json;
use crate::legs::Leg;
use crate::report::Report;
use draws::Draws;

/// The figures of one timing leg.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// The leg's number.
    leg: u64,
    /// Its device.
    device: String,
    /// Savings in units of `1 / (2 cycles)` nanoseconds.
    savings: Vec<i128>,
    cycles: u64,
    /// Blocks whose saving is above 0.
    wins: u64,
    /// The median saving as percent of the control's median cycle, where that is asked.
    percent: Option<Fraction>,
}

/// A fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fraction {
    numerator: i128,
    denominator: i128,
}

impl Fraction {
    fn new(numerator: i128, denominator: i128) -> Self {
        let (mut a, mut b) = (numerator.abs(), denominator);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        let common = a.max(1);
        Self {
            numerator: numerator / common,
            denominator: denominator / common,
        }
    }

    fn json(self) -> Json {
        Json::object([
            ("denominator", Json::Integer(self.denominator)),
            ("numerator", Json::text(self.numerator.to_string())),
        ])
    }
}

/// Judges the timing leg: its figures where it has all timed answers.
pub(crate) fn judge(report: &mut Report, leg: &Leg, timing: &Timing) -> Option<Figures> {
    let path = format!("legs/{:02}/exchange.jsonl", leg.plan.number);
    let Some(spans) = spans(leg, timing) else {
        report.find(
            "timing.missing",
            &path,
            "not every timed answer is there without a fault",
        );
        return None;
    };
    let is_span = |span: &u64| (1..=1 << 62).contains(span);
    let is_judged = (1..=1000).contains(&timing.blocks)
        && (1..=1 << 32).contains(&timing.cycles)
        && spans.iter().flatten().all(is_span);
    if !is_judged {
        report.find(
            "timing.span",
            &path,
            "blocks that no statistics are taken of",
        );
        return None;
    }
    let wide = |span: u64| i128::from(span);
    let savings: Vec<i128> = spans
        .iter()
        .map(|[a1, b1, b2, a2]| wide(*a1) + wide(*a2) - wide(*b1) - wide(*b2))
        .collect();
    let figures = Figures {
        leg: leg.plan.number,
        device: leg.plan.device.clone(),
        wins: savings.iter().filter(|saving| **saving > 0).count() as u64,
        savings,
        cycles: timing.cycles,
        percent: timing.minimum_saving_percent.map(|_| percent(&spans)),
    };
    if figures.wins < timing.minimum_wins {
        let words = format!("{} wins, {} are needed", figures.wins, timing.minimum_wins);
        report.find("timing.wins", &path, words);
    }
    let median = figures.median();
    let least = i128::from(timing.minimum_saving_ns);
    if median.numerator < least * median.denominator {
        let words = format!("the median is {}, at least {least} ns", text(median));
        report.find("timing.median", &path, words);
    }
    if let (Some(percent), Some(least)) = (figures.percent, timing.minimum_saving_percent)
        && percent.numerator < i128::from(least) * percent.denominator
    {
        let words = format!("the median is {} %, at least {least} %", text(percent));
        report.find("timing.percent", &path, words);
    }
    unconfirmed(report, &path, leg);
    Some(figures)
}

/// Returns `100 median(d) / median(A1 + A2)`: what is saved, of what the control takes.
fn percent(spans: &[[u64; 4]]) -> Fraction {
    let both = |one: u64, other: u64| i128::from(one) + i128::from(other);
    let saved = spans
        .iter()
        .map(|[a1, b1, b2, a2]| both(*a1, *a2) - both(*b1, *b2));
    let taken = spans.iter().map(|[a1, _, _, a2]| both(*a1, *a2));
    let saved = doubled_median(&mut saved.collect::<Vec<i128>>());
    Fraction::new(
        100 * saved,
        doubled_median(&mut taken.collect::<Vec<i128>>()),
    )
}

/// Finds a claim that the controller's own spans do not bear out, by half at least.
fn unconfirmed(report: &mut Report, path: &str, leg: &Leg) {
    let saved = |span: fn(&crate::legs::Judged) -> u64| -> i128 {
        let timed = leg.answers.iter().filter(|judged| judged.key.is_timed);
        let signed = timed.map(|judged| match judged.treatment {
            "control" => i128::from(span(judged)),
            _ => -i128::from(span(judged)),
        });
        signed.sum()
    };
    let claimed = saved(|judged| judged.answer.timed.map_or(0, |(_, elapsed)| elapsed));
    let spent = saved(|judged| judged.span_ns);
    if claimed > 0 && 2 * spent < claimed {
        let words = format!("{claimed} ns were saved by its word, {spent} ns by the exchange");
        report.find("timing.unconfirmed", path, words);
    }
}

/// Returns the spans of each block in the order of asking.
fn spans(leg: &Leg, timing: &Timing) -> Option<Vec<[u64; 4]>> {
    let timed = |treatment: &str| -> Vec<&crate::legs::Judged> {
        let all = leg.answers.iter();
        all.filter(|judged| judged.treatment == treatment && judged.key.is_timed)
            .collect()
    };
    let (control, candidate) = (timed("control"), timed("candidate"));
    let wanted = 2 * usize::try_from(timing.blocks).ok()?;
    if control.len() != wanted || candidate.len() != wanted {
        return None;
    }
    let span = |judged: &crate::legs::Judged| {
        let timed = judged.answer.timed.filter(|_| judged.is_sound);
        timed.map(|(_, elapsed_ns)| elapsed_ns)
    };
    let pairs = control.chunks_exact(2).zip(candidate.chunks_exact(2));
    pairs
        .map(|(a, b)| Some([span(a[0])?, span(b[0])?, span(b[1])?, span(a[1])?]))
        .collect()
}

impl Figures {
    fn denominator(&self) -> i128 {
        2 * i128::from(self.cycles)
    }

    /// Returns the median saving.
    fn median(&self) -> Fraction {
        Fraction::new(
            doubled_median(&mut self.savings.clone()),
            2 * self.denominator(),
        )
    }

    /// Returns the median of the means of each two savings, each with itself too.
    fn hodges_lehmann(&self) -> Fraction {
        let all = &self.savings;
        let mut sums: Vec<i128> = (0..all.len())
            .flat_map(|i| (i..all.len()).map(move |j| all[i] + all[j]))
            .collect();
        Fraction::new(doubled_median(&mut sums), 4 * self.denominator())
    }

    /// Returns the lower bound of the median over resampled blocks.
    fn lower_bound(&self) -> Fraction {
        let mut draws = Draws::new();
        let count = self.savings.len();
        let mut figures: Vec<i128> = (0..draws::RESAMPLES)
            .map(|_| {
                let mut drawn: Vec<i128> = (0..count)
                    .map(|_| self.savings[draws.below(count)])
                    .collect();
                doubled_median(&mut drawn)
            })
            .collect();
        let rank = 500;
        let (_, bound, _) = figures.select_nth_unstable(rank - 1);
        Fraction::new(*bound, 2 * self.denominator())
    }

    /// Returns the object of `analysis.json`.
    pub(crate) fn json(&self) -> Json {
        let losses = self.savings.iter().filter(|saving| **saving < 0).count() as u64;
        let denominator = self.denominator();
        let savings = self.savings.iter();
        let savings = savings.map(|saving| Fraction::new(*saving, denominator).json());
        Json::object([
            ("leg", Json::Integer(i128::from(self.leg))),
            ("device", Json::text(&self.device)),
            ("blocks", Json::Integer(self.savings.len() as i128)),
            ("wins", Json::Integer(i128::from(self.wins))),
            ("savings", Json::List(savings.collect())),
            ("median", self.median().json()),
            ("sign_test_p", Json::text(sign::p(self.wins, losses))),
            ("hodges_lehmann", self.hodges_lehmann().json()),
            ("bootstrap_lower_95", self.lower_bound().json()),
        ])
    }

    /// Returns what the gate says of this leg.
    pub(crate) fn measured(&self) -> String {
        let Self {
            device,
            wins,
            savings,
            ..
        } = self;
        let median = text(self.median());
        let percent = self.percent.map(|it| format!(", {} %", text(it)));
        format!(
            "{device}: wins = {wins} of {}, median = {median} ns{}",
            savings.len(),
            percent.unwrap_or_default()
        )
    }
}

/// Returns a fraction as text.
fn text(fraction: Fraction) -> String {
    match fraction.denominator {
        1 => fraction.numerator.to_string(),
        denominator => format!("{}/{denominator}", fraction.numerator),
    }
}

/// Returns twice the median of some integers, which is one too.
fn doubled_median(values: &mut [i128]) -> i128 {
    values.sort_unstable();
    let count = values.len();
    values[(count - 1) / 2] + values[count / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fraction_is_in_lowest_terms_and_a_median_of_two_is_their_mean() {
        assert_eq!(text(Fraction::new(-6, 4)), "-3/2");
        assert_eq!(text(Fraction::new(8, 4)), "2");
        assert_eq!(text(Fraction::new(0, 4)), "0");
        assert_eq!(doubled_median(&mut [5, 1, 3]), 6);
        assert_eq!(doubled_median(&mut [5, 1, 3, 9]), 8);
    }

    #[test]
    fn figures_are_those_of_the_page() {
        let blocks: [[i128; 4]; 6] = [
            [1040, 900, 910, 1047],
            [1010, 1000, 1003, 1004],
            [1001, 980, 985, 1012],
            [1000, 1031, 999, 1000],
            [1020, 990, 970, 1007],
            [1011, 1001, 1004, 1011],
        ];
        let savings = blocks.map(|[a1, b1, b2, a2]| a1 + a2 - b1 - b2);
        let figures = Figures {
            leg: 0,
            device: "cpu".to_owned(),
            savings: savings.to_vec(),
            cycles: 7,
            wins: 5,
            percent: None,
        };
        assert_eq!(text(figures.median()), "65/28");
        assert_eq!(text(figures.hodges_lehmann()), "39/14");
        assert_eq!(text(figures.lower_bound()), "-13/28");
        assert_eq!(sign::p(5, 1), "0.21875");
        let spans = blocks.map(|block| block.map(|span| u64::try_from(span).expect("small")));
        assert_eq!(text(percent(&spans)), "1625/1009");
    }
}
