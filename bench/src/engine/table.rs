//! Rates and ratios, made from the evidence and never stored.

use crate::intervals::{self, Median};
use serde_json::Value;
use std::fmt::Write as _;

/// One row: what it is called, and one leg's figure as a number to compare.
struct Row {
    name: &'static str,
    figure: fn(&Value) -> Option<f64>,
    show: fn(f64) -> String,
}

const ROWS: [Row; 7] = [
    Row {
        name: "load phase",
        figure: |leg| number(leg, "load_ns"),
        show: seconds,
    },
    Row {
        name: "ready",
        figure: |leg| number(leg, "ready_ns"),
        show: seconds,
    },
    Row {
        name: "first token",
        figure: |leg| number(leg, "first_token_ns"),
        show: seconds,
    },
    Row {
        name: "decode",
        figure: |leg| rate(leg, "decode_gaps", "decode_ns"),
        show: |rate| format!("{rate:.2} tokens/s"),
    },
    Row {
        name: "prompt",
        figure: |leg| rate(leg, "prompt_tokens", "prompt_ns"),
        show: |rate| format!("{rate:.2} tokens/s"),
    },
    Row {
        name: "private dirty",
        figure: |leg| number(leg, "private_dirty_bytes"),
        show: mebibytes,
    },
    Row {
        name: "resident",
        figure: |leg| number(leg, "rss_bytes"),
        show: mebibytes,
    },
];

/// A Markdown table: per figure and mode the median, and the median of the paired ratios to stock
/// with its interval.
pub fn render(evidence: &Value) -> String {
    let empty = Vec::new();
    let rounds = evidence["rounds"].as_array().unwrap_or(&empty);
    let modes = modes_of(rounds);
    let mut text =
        String::from("| figure | mode | median | ratio to stock | interval | coverage |\n");
    text.push_str("|---|---|---|---|---|---|\n");
    for row in &ROWS {
        for mode in &modes {
            let values: Vec<f64> = column(rounds, mode, row).into_iter().flatten().collect();
            let Some(median) = intervals::median(&values) else {
                continue;
            };
            let ratio = ratio_to_stock(rounds, mode, row);
            let ratio = ratio.map_or_else(|| "| |".to_owned(), |ratio| ratio_cells(&ratio));
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "| {} | {mode} | {} | {ratio} |",
                row.name,
                (row.show)(median.value)
            );
        }
    }
    let _ = write!(
        text,
        "\n{} rounds, interleaved. A ratio is paired within its round; the interval is that of two \
         order statistics around the median (exact, its coverage beside it).\n",
        rounds.len()
    );
    text
}

fn ratio_cells(ratio: &Median) -> String {
    let Median {
        value,
        low,
        high,
        coverage,
    } = ratio;
    format!(
        "{value:.3} | {low:.3} .. {high:.3} | {:.1} %",
        coverage * 100.0
    )
}

fn ratio_to_stock(rounds: &[Value], mode: &str, row: &Row) -> Option<Median> {
    if mode == "stock" {
        return None;
    }
    let stock = column(rounds, "stock", row);
    let ratios: Vec<f64> = column(rounds, mode, row)
        .into_iter()
        .zip(stock)
        .filter_map(|(mode, stock)| Some(mode? / stock?))
        .collect();
    intervals::median(&ratios)
}

fn column(rounds: &[Value], mode: &str, row: &Row) -> Vec<Option<f64>> {
    rounds
        .iter()
        .map(|round| (row.figure)(leg(round, mode)?))
        .collect()
}

fn leg<'a>(round: &'a Value, mode: &str) -> Option<&'a Value> {
    round.as_array()?.iter().find(|leg| leg["mode"] == mode)
}

fn modes_of(rounds: &[Value]) -> Vec<String> {
    let all = super::Mode::ALL.map(super::Mode::name);
    let used = |mode: &&str| rounds.iter().any(|round| leg(round, mode).is_some());
    all.into_iter().filter(used).map(str::to_owned).collect()
}

fn number(leg: &Value, name: &str) -> Option<f64> {
    leg[name].as_u64().map(|value| value as f64)
}

fn rate(leg: &Value, count: &str, ns: &str) -> Option<f64> {
    Some(number(leg, count)? / number(leg, ns)? * 1e9)
}

fn seconds(ns: f64) -> String {
    format!("{:.3} s", ns / 1e9)
}

fn mebibytes(bytes: f64) -> String {
    format!("{:.0} MiB", bytes / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn ratios_are_paired_within_their_round() {
        // The machine was half as fast in the second round; the ratio does not see it.
        let evidence = json!({ "rounds": [
            [
                {"mode": "stock", "ready_ns": 4_000_000_000_u64},
                {"mode": "hit", "ready_ns": 1_000_000_000_u64},
            ],
            [
                {"mode": "hit", "ready_ns": 2_000_000_000_u64},
                {"mode": "stock", "ready_ns": 8_000_000_000_u64},
            ],
        ]});
        let table = render(&evidence);
        assert!(
            table.contains("| ready | hit | 1.500 s | 0.250 | 0.250 .. 0.250 | 50.0 % |"),
            "{table}"
        );
        assert!(
            table.contains("| ready | stock | 6.000 s | | | |"),
            "{table}"
        );
    }

    #[test]
    fn a_rate_counts_gaps() {
        let leg = json!({"decode_gaps": 9, "decode_ns": 3_000_000_000_u64});
        assert_eq!(rate(&leg, "decode_gaps", "decode_ns"), Some(3.0));
        assert_eq!(rate(&leg, "prompt_tokens", "prompt_ns"), None);
    }
}
