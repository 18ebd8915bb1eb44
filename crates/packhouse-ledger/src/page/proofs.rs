//! Sealed evidence as HTML: seals, gates, plots.

use super::next::{Tone, of_verdict};
use super::plots;
use super::sections::{cell, in_order, seal_link, state};
use super::values::{Evidence, Found, Gate, Packet, Page, Sealed, TimingRule};
use super::words::{href, plain, short, utc};
use crate::act::Verdict;
use maud::{Markup, html};

/// Sealed packets with gates and plots; those of current records are open.
pub(super) fn evidence(page: &Page, prefix: &str) -> Markup {
    let mut sealed = in_order(page);
    sealed.retain(|packet| !packet.seals.is_empty());
    let cited = |packet: &Packet| {
        page.current_records()
            .any(|one| one.packet == packet.packet)
    };
    html! {
        section #evidence {
            h2 { "Sealed evidence" }
            @if sealed.is_empty() { p.sheet.empty { "Nothing was sealed." } }
            @for (place, packet) in sealed.iter().enumerate() {
                @let is_open = place == 0 || cited(packet);
                details.sheet.evidence open[is_open] {
                    summary {
                        (state(packet.state.word(), packet.state.tone()))
                        span.name { (plain(&packet.experiment)) }
                        " " code { (short(&packet.packet)) }
                    }
                    @for sealed in &packet.seals { (seal(packet, sealed, prefix)) }
                }
            }
        }
    }
}

/// One seal: its links, gates and plots.
pub(super) fn seal(packet: &Packet, sealed: &Sealed, prefix: &str) -> Markup {
    let number = sealed.number;
    let folder = |steps: &[&str]| {
        let all: Vec<&str> = ["evidence", &packet.packet]
            .iter()
            .chain(steps)
            .copied()
            .collect();
        href(prefix, &all)
    };
    html! {
        p {
            @if number > 1 { "Analysis " (number) ", " } @else { "Sealed " }
            (utc(sealed.at_ns)) ": " (verdict(sealed.verdict)) ". "
            a href=(seal_link(prefix, &packet.packet, number)) { "seal" } ", "
            a href=(folder(&[&format!("analysis-{number}"), "analysis.json"])) { "analysis" } ", "
            a href=(folder(&["bag", "tagmanifest-sha256.txt"])) { "bag" }
            " (" code { "packhouse lab verify " (short(&packet.packet)) } ")"
        }
        @if !sealed.why.is_empty() { p.soft { "analysed again: " (plain(&sealed.why)) } }
        @match &sealed.reading {
            Found::Here(found) => {
                @let rule = packet.plan.here().and_then(|plan| plan.timing);
                (analysis(found, rule))
            }
            Found::Absent => p.abort { "The analysis is not here: nothing of it is shown." }
            Found::Refused(why) => {
                p.fail { "The analysis is refused, and nothing of it is shown: " (plain(why)) }
            }
        }
    }
}

fn analysis(found: &Evidence, rule: Option<TimingRule>) -> Markup {
    html! {
        p { (plain(&found.summary())) "." }
        (gates(&found.gates))
        @if !found.timing.is_empty() {
            div.panels { @for timing in &found.timing { (plots::timing(timing, rule)) } }
        }
        @if !found.rows.is_empty() { div.panels { (plots::matrix(found)) } }
        @if !found.says.is_empty() {
            p.soft { "Not proven by the bag alone:" }
            ul.soft { @for text in &found.says { li { (plain(text)) } } }
        }
    }
}

fn gates(gates: &[Gate]) -> Markup {
    html! {
        table.gates {
            thead {
                tr { @for word in ["gate", "passed", "threshold", "measured", "basis"] {
                    th scope="col" { (word) }
                } }
            }
            tbody {
                @for gate in gates {
                    tr {
                        (cell("gate", &html! { span.name { (plain(&gate.gate)) } }))
                        (cell("passed", &html! {
                            (passed(gate.passed))
                            @if !gate.decides { p.soft { "decides nothing" } }
                        }))
                        (cell("threshold", &html! { (plain(&gate.threshold)) }))
                        (cell("measured", &html! {
                            (plain(&gate.measured))
                            @for text in &gate.failures { p.fail { (plain(text)) } }
                            @let shown = u64::try_from(gate.failures.len()).unwrap_or(u64::MAX);
                            @if gate.failure_count > shown {
                                p.fail { "and " (gate.failure_count - shown) " more" }
                            }
                        }))
                        (cell("basis", &html! { (gate.basis.word()) }))
                    }
                }
            }
        }
    }
}

fn passed(passed: Option<bool>) -> Markup {
    match passed {
        Some(true) => state("passed", Tone::Pass),
        Some(false) => state("failed", Tone::Fail),
        None => state("not judged", Tone::Abort),
    }
}

fn verdict(verdict: Verdict) -> Markup {
    state(verdict.as_str(), of_verdict(verdict))
}
