//! Plots as inline SVG: the matrix of rows, timing savings, the ledger's timeline.
//!
//! Places along the width are per cent and all else is pixels, so that a plot fills any screen and
//! its words keep their size. Colour never speaks alone: what failed has another shape too.

use super::values::{Evidence, Mark, MarkKind, Page, Row, Timing, TimingRule};
use super::words::{day, plain, utc};
use maud::{Markup, html};
use std::collections::BTreeMap;

/// The rows of an analysis: a panel for each device, a strip for each program, fixture and arm, a
/// cell for each case, which is as promised when all its boundaries are.
pub(super) fn matrix(evidence: &Evidence) -> Markup {
    let mut panels: BTreeMap<&str, BTreeMap<Strip<'_>, BTreeMap<Case, bool>>> = BTreeMap::new();
    for row in &evidence.rows {
        let strips = panels.entry(&row.device).or_default();
        let cells = strips.entry(Strip::of(row)).or_default();
        let case = Case {
            leg: row.leg,
            index: row.index,
            width: row.width,
            repeat: row.repeat,
        };
        *cells.entry(case).or_insert(true) &= row.equal;
    }
    html! {
        @for (device, strips) in &panels {
            figure.panel {
                figcaption { "Cases on " strong { (plain(device)) } }
                @for (strip, cells) in strips { (matrix_strip(strip, cells)) }
                p.legend {
                    span.key { (swatch("pass")) " as promised" }
                    span.key { (swatch("fail")) " not" }
                    " A cell is a case, in the order of asking; numbers are widths, leg by leg."
                }
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Strip<'a> {
    treatment: &'a str,
    fixture: &'a str,
    arm: &'a str,
}

impl<'a> Strip<'a> {
    fn of(row: &'a Row) -> Self {
        Self {
            treatment: &row.treatment,
            fixture: &row.fixture,
            arm: &row.arm,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Case {
    leg: u64,
    index: u64,
    width: u64,
    repeat: u64,
}

fn matrix_strip(strip: &Strip<'_>, cells: &BTreeMap<Case, bool>) -> Markup {
    let equal = cells.values().filter(|equal| **equal).count();
    let is_whole = cells.len() <= CELLS_MAX;
    let shown = cells.iter().filter(|(_, equal)| is_whole || !**equal);
    let shown: Vec<(&Case, &bool)> = shown.take(CELLS_MAX).collect();
    let lines = shown.len().div_ceil(CELLS_A_LINE).max(1);
    let cases: Vec<Case> = shown.iter().map(|(case, _)| **case).collect();
    let columns = shown.len().clamp(COLUMNS_MIN, CELLS_A_LINE);
    let said = format!("{equal} of {} cases as promised", cells.len());
    html! {
        div.strip {
            div.label {
                span {
                    (plain(strip.treatment)) ", " (plain(strip.fixture)) ", " (plain(strip.arm))
                }
                span.count { (equal) "/" (cells.len()) }
            }
            svg width="100%" height=(lines * LINE_PX) role="img" aria-label=(said) {
                title { (said) }
                @for (place, (case, equal)) in shown.iter().enumerate() {
                    (cell(place, columns, **case, **equal))
                }
                (widths(&cases, columns))
            }
            @if !is_whole {
                p.soft { "Too many to draw: at most " (CELLS_MAX) " that failed are shown." }
            }
        }
    }
}

/// The width below the first cell of each run of one width, where there is room for it.
fn widths(cases: &[Case], columns: usize) -> Markup {
    let group = |case: &Case| (case.leg, case.width);
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (place, case) in cases.iter().enumerate() {
        match runs.last_mut() {
            Some((first, last))
                if group(&cases[*first]) == group(case) && place % CELLS_A_LINE > 0 =>
            {
                *last = place;
            }
            Some(_) | None => runs.push((place, place)),
        }
    }
    html! {
        @for (first, last) in runs {
            @let said = cases[first].width.to_string();
            @let room = (last + 1 - first) * STRIP_PX_MIN / columns;
            @if said.len() * DIGIT_PX < room {
                @let (line, column) = (first / CELLS_A_LINE, first % CELLS_A_LINE);
                text x=(percent(column, columns)) y=((line + 1) * LINE_PX - 2) { (said) }
            }
        }
    }
}

fn cell(place: usize, columns: usize, case: Case, equal: bool) -> Markup {
    let (line, column) = (place / CELLS_A_LINE, place % CELLS_A_LINE);
    let (left, right) = (percent(column, columns), percent(column + 1, columns));
    // A pixel of air: the cell's own rectangle is inset by its stroke in the page's colour.
    let (top, bottom) = (line * LINE_PX + 1, line * LINE_PX + CELL_PX);
    let word = if equal {
        "as promised"
    } else {
        "not as promised"
    };
    let width = percent(1, columns);
    html! {
        g class=(if equal { "cell pass" } else { "cell fail" }) {
            title {
                "leg " (case.leg) ", case " (case.index) ", width " (case.width)
                ", repeat " (case.repeat) ": " (word)
            }
            rect x=(left) y=(top) width=(width) height=(bottom - top) {}
            @if !equal {
                line x1=(left) y1=(bottom) x2=(right) y2=(top) {}
                line x1=(left) y1=(top) x2=(right) y2=(bottom) {}
            }
        }
    }
}

/// More cells than that make a page that is too long to be looked at.
const CELLS_MAX: usize = 512;
const CELLS_A_LINE: usize = 32;
const COLUMNS_MIN: usize = 8;
const CELL_PX: usize = 15;
const LINE_PX: usize = 31;
/// The narrowest strip, on the narrowest phone.
const STRIP_PX_MIN: usize = 250;
const DIGIT_PX: usize = 8;

/// The savings of one device, block by block, with the gate's line and the median's.
pub(super) fn timing(timing: &Timing, rule: Option<TimingRule>) -> Markup {
    let gate = rule.map(|rule| rule.minimum_median_saving_ns);
    let scale = Scale::of(timing, gate);
    let said = format!(
        "Savings of {} blocks: {}",
        timing.savings.len(),
        timing.summary()
    );
    html! {
        figure.panel {
            figcaption {
                "Saving a cycle on " strong { (plain(&timing.device)) } ", leg " (timing.leg)
            }
            div.plot {
                svg.axis width="84" height=(PLOT_PX) aria-hidden="true" {
                    @for (value, y) in scale.labels() {
                        text x="78" y=(format!("{:.1}", y + 4.0)) text-anchor="end" { (value) }
                    }
                }
                svg.bars height=(PLOT_PX) role="img" aria-label=(plain(&said)) {
                    title { (plain(&said)) }
                    (bars(timing, &scale))
                    (across("zero", scale.y(0.0), "0"))
                    @if let Some(gate) = gate {
                        (across("gate", scale.y(drawn(gate)), "gate"))
                    }
                    (across("median", scale.y(timing.median.drawn_ns()), "median"))
                }
            }
            p.legend {
                span.key { (swatch("median")) " median " (timing.median.text()) }
                @match rule {
                    Some(rule) => {
                        span.key {
                            (swatch("gate")) " gate: at least "
                            (grouped(rule.minimum_median_saving_ns)) " ns and "
                            (rule.minimum_wins) " wins"
                        }
                    }
                    None => { span.key { "the gate's line: preregistration not here" } }
                }
                span.key { (timing.wins) " of " (timing.savings.len()) " blocks won" }
                @let cut = timing.savings.iter().filter(|one| scale.cuts(one.drawn_ns())).count();
                @if cut > 0 {
                    @let least = timing.savings.iter().min_by(|a, b| a.compared(**b));
                    @let most = timing.savings.iter().max_by(|a, b| a.compared(**b));
                    @if let Some((least, most)) = least.zip(most) {
                        span.key {
                            (cut) (if cut == 1 { " bar" } else { " bars" })
                            " cut: blocks save " (least.text()) " to " (most.text())
                        }
                    }
                }
            }
            p.legend {
                span.key { "Hodges-Lehmann " (timing.hodges_lehmann.text()) }
                span.key { "bootstrap, lower 95 %: " (timing.bootstrap_lower_95.text()) }
                span.key { "sign test, p " (plain(&timing.sign_test_p)) }
            }
        }
    }
}

fn bars(timing: &Timing, scale: &Scale) -> Markup {
    let count = timing.savings.len();
    let zero = scale.y(0.0);
    html! {
        @for (place, saving) in timing.savings.iter().enumerate() {
            @let y = scale.y(saving.drawn_ns());
            @let is_win = saving.numerator > 0;
            @let (left, width) = (percent(place, count), percent(1, count));
            rect class=(if is_win { "bar win" } else { "bar loss" })
                x=(left) y=(format!("{:.1}", y.min(zero)))
                width=(width) height=(format!("{:.1}", (y - zero).abs().max(1.0))) {
                title { "block " (place) ": " (saving.text()) }
            }
            @if scale.cuts(saving.drawn_ns()) {
                @let end = if y < zero { y + CUT_PX } else { y - CUT_PX };
                rect.cut x=(left) y=(format!("{:.1}", end - 1.0)) width=(width) height="2" {}
            }
        }
    }
}

/// A line over the whole width.
fn across(class: &str, y: f64, said: &str) -> Markup {
    let y = format!("{y:.1}");
    html! {
        line class=(class) x1="0" x2="100%" y1=(y) y2=(y) { title { (said) } }
    }
}

/// From nanoseconds to pixels. A few blocks that were disturbed must not flatten all others: bars
/// that go further than four times what most of them and the gate need are cut.
struct Scale {
    lowest: f64,
    highest: f64,
}

impl Scale {
    fn of(timing: &Timing, gate: Option<u64>) -> Self {
        let mut sizes: Vec<f64> = timing
            .savings
            .iter()
            .map(|saving| saving.drawn_ns().abs())
            .collect();
        sizes.sort_by(f64::total_cmp);
        let most = sizes.get(sizes.len() * 3 / 4).copied().unwrap_or(0.0);
        let lines = [gate.map_or(0.0, drawn), timing.median.drawn_ns()];
        let limit = lines.iter().fold(most, |limit, line| limit.max(line.abs())) * 4.0;
        let savings = timing.savings.iter().map(|saving| saving.drawn_ns());
        let savings = savings.map(|saving| saving.clamp(-limit, limit));
        let (mut lowest, mut highest) = (0.0_f64, 0.0_f64);
        for value in savings.chain(lines) {
            lowest = lowest.min(value);
            highest = highest.max(value);
        }
        if lowest == highest {
            highest = 1.0;
        }
        Self { lowest, highest }
    }

    /// Whether a bar ends outside of the plot.
    fn cuts(&self, value: f64) -> bool {
        value < self.lowest || value > self.highest
    }

    fn y(&self, value: f64) -> f64 {
        let room = f64::from(PLOT_PX) - 2.0 * PLOT_PAD_PX;
        let shown = value.clamp(self.lowest, self.highest);
        PLOT_PAD_PX + (self.highest - shown) / (self.highest - self.lowest) * room
    }

    /// The ends and zero, where they don't stand upon each other.
    fn labels(&self) -> Vec<(String, f64)> {
        let mut labels = vec![(rounded(self.highest), self.y(self.highest))];
        for value in [0.0, self.lowest] {
            let y = self.y(value);
            if labels
                .iter()
                .all(|(_, taken)| (taken - y).abs() >= LABEL_PX)
            {
                labels.push((rounded(value), y));
            }
        }
        labels
    }
}

const PLOT_PX: u32 = 160;
const PLOT_PAD_PX: f64 = 8.0;
const LABEL_PX: f64 = 14.0;
const CUT_PX: f64 = 6.0;

/// Nanoseconds for an axis.
fn rounded(ns: f64) -> String {
    let size = ns.abs();
    match size {
        _ if size >= 1e10 => format!("{:.1} s", ns / 1e9),
        _ if size >= 1e7 => format!("{:.1} ms", ns / 1e6),
        _ if size >= 1e4 => format!("{:.1} us", ns / 1e3),
        _ if size == 0.0 => "0".to_owned(),
        _ => format!("{ns:.1} ns"),
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a line's height needs no more than 53 bits"
)]
fn drawn(ns: u64) -> f64 {
    ns as f64
}

/// An integer with its thousands apart.
fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// The ledger from left to right, a strip for the lab and for each lane.
pub(super) fn timeline(page: &Page) -> Markup {
    let skipped = page.marks.len().saturating_sub(MARKS_MAX);
    let marks = &page.marks[skipped..];
    let Some((first, last)) = marks.first().zip(marks.last()) else {
        return html! {};
    };
    let lanes = page.lanes.iter().map(|lane| Some(lane.lane.as_str()));
    html! {
        figure.panel.wide {
            figcaption {
                @if skipped > 0 { "The newest " (marks.len()) " of " (page.marks.len()) " entries" }
                @else { "All " (marks.len()) " entries" }
                ", in the ledger's order"
            }
            @for lane in std::iter::once(None).chain(lanes) {
                @let is_its = |mark: &Mark| mark.lane.as_deref() == lane;
                @if marks.iter().any(is_its) { (timeline_strip(marks, lane)) }
            }
            div.ends { span { (day(first.at_ns)) } span { (day(last.at_ns)) } }
            p.legend {
                @for kind in MarkKind::ALL {
                    span.key {
                        svg.swatch width="14" height="14" aria-hidden="true" {
                            g transform="translate(7 7)" { (shape(kind)) }
                        }
                        " " (kind.word())
                    }
                }
            }
        }
    }
}

fn timeline_strip(marks: &[Mark], lane: Option<&str>) -> Markup {
    let own = marks
        .iter()
        .filter(|mark| mark.lane.as_deref() == lane)
        .count();
    let name = lane.map_or_else(|| "the lab".to_owned(), plain);
    let said = format!("{own} entries of {name}");
    html! {
        div.strip {
            div.label { span { (name) } span.count { (own) } }
            svg width="100%" height=(STRIP_PX) role="img" aria-label=(said) {
                title { (said) }
                line.rail x1="0" x2="100%" y1=(STRIP_PX / 2) y2=(STRIP_PX / 2) {}
                @for (place, mark) in marks.iter().enumerate() {
                    @if mark.lane.as_deref() == lane {
                        svg.mark x=(middle(place, marks.len())) y=(STRIP_PX / 2) {
                            title { (mark_words(mark)) }
                            (shape(mark.kind))
                            @if mark.went_back { line.back x1="0" x2="0" y1="-11" y2="11" {} }
                        }
                    }
                }
            }
        }
    }
}

fn mark_words(mark: &Mark) -> String {
    let back = if mark.went_back {
        " (the clock went back)"
    } else {
        ""
    };
    format!(
        "{}: {}, {}{back}",
        mark.index,
        plain(&mark.words),
        utc(mark.at_ns)
    )
}

/// A kind's shape around 0, 0.
fn shape(kind: MarkKind) -> Markup {
    match kind {
        MarkKind::Act => html! { circle.act r="3" {} },
        MarkKind::Pass => html! { circle.pass r="5" {} },
        MarkKind::Fail => html! { path.fail d="M-4 -4L4 4M-4 4L4 -4" {} },
        MarkKind::Abort => html! { path.abort d="M0 -6L6 5H-6Z" {} },
        MarkKind::Consumed => html! { rect.consumed x="-5" y="-5" width="10" height="10" {} },
        MarkKind::Record => html! { path.record d="M0 -7L6 0L0 7L-6 0Z" {} },
        MarkKind::Note => html! { circle.note r="3" {} },
    }
}

impl MarkKind {
    const ALL: [Self; 7] = [
        Self::Act,
        Self::Pass,
        Self::Fail,
        Self::Abort,
        Self::Consumed,
        Self::Record,
        Self::Note,
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Act => "act",
            Self::Pass => "green or pass",
            Self::Fail => "red or fail",
            Self::Abort => "released or abort",
            Self::Consumed => "consumed",
            Self::Record => "record",
            Self::Note => "note",
        }
    }
}

const MARKS_MAX: usize = 500;
const STRIP_PX: usize = 24;

/// A square of a legend.
fn swatch(class: &str) -> Markup {
    html! {
        svg class={ "swatch " (class) } width="14" height="14" aria-hidden="true" {
            rect x="1" y="2" width="12" height="10" {}
            @if class == "fail" { line x1="1" y1="12" x2="13" y2="2" {} }
        }
    }
}

/// The left edge of a place among `count`, in hundredths of a per cent.
fn percent(place: usize, count: usize) -> String {
    ratio(place, count.max(1))
}

/// The middle of a place among `count`.
fn middle(place: usize, count: usize) -> String {
    ratio(2 * place + 1, 2 * count.max(1))
}

fn ratio(above: usize, below: usize) -> String {
    let hundredths = above.saturating_mul(10_000) / below;
    format!("{}.{:02}%", hundredths / 100, hundredths % 100)
}
