//! The parts of both pages, as HTML.

use super::html::next;
use super::live::{Live, Observation, Topic};
use super::next::{Tone, of_lane, of_packet};
use super::plots;
use super::values::{
    Evidence, Gate, Lane, Packet, Page, Reading, Record, Sealed, TimingRule, Verdict,
};
use super::words::{href, plain, short, utc};
use maud::{Markup, html};

/// The figures at a glance, each a link to its part.
pub(super) fn tiles(page: &Page) -> Markup {
    let glance = Glance::of(page);
    let tile = |count: usize, one: &str, more: &str, to: &str, alarm: bool| {
        html! {
            li.alarm[alarm] {
                a href=(to) { b { (count) } span { (if count == 1 { one } else { more }) } }
            }
        }
    };
    html! {
        ul.tiles {
            (tile(glance.open, "open lane", "open lanes", "#lanes", false))
            (tile(glance.waits, "wait", "waits", "#waits", false))
            (tile(glance.records, "current record", "current records", "#records", false))
            (tile(glance.going, "packet under way", "packets under way", "#packets", false))
            (tile(glance.sealed, "sealed packet", "sealed packets", "#evidence", false))
            (tile(page.doubts.len(), "doubt", "doubts", "#doubts", !page.doubts.is_empty()))
        }
    }
}

/// How many there are of each.
pub(super) struct Glance {
    pub(super) open: usize,
    pub(super) waits: usize,
    pub(super) records: usize,
    pub(super) going: usize,
    pub(super) sealed: usize,
}

impl Glance {
    pub(super) fn of(page: &Page) -> Self {
        let over = page
            .packets
            .iter()
            .filter(|one| one.state.is_over())
            .count();
        Self {
            open: page
                .lanes
                .iter()
                .filter(|lane| lane.state.is_open())
                .count(),
            waits: page.lanes.iter().filter(|lane| lane.state.waits()).count(),
            records: page.current_records().count(),
            going: page.packets.len() - over,
            sealed: over,
        }
    }
}

impl Page {
    /// Records that no other has taken the place of.
    pub(super) fn current_records(&self) -> impl Iterator<Item = &Record> {
        self.records
            .iter()
            .filter(|record| record.superseded_by.is_none())
    }

    /// The current record of a lane's key.
    pub(super) fn record_of(&self, lane: &Lane) -> Option<&Record> {
        let key = &lane.text.as_ref()?.record_key;
        self.current_records().find(|record| record.key == *key)
    }

    /// The experiment of a packet; its short digest where there is none.
    pub(super) fn experiment_of(&self, packet: &str) -> String {
        let found = self.packets.iter().find(|one| one.packet == packet);
        found.map_or_else(|| short(packet), |one| plain(&one.experiment))
    }
}

/// What to know first.
pub(super) fn doubts(page: &Page) -> Markup {
    html! {
        section #doubts {
            @if page.doubts.is_empty() {
                p.soft { "No doubts: no contradiction, correction, clock step or missing file." }
            } @else {
                div.sheet.doubts {
                    h3 { "Know first" }
                    ul {
                        @for doubt in &page.doubts {
                            li { span.name { (plain(&doubt.what)) } ": " (plain(&doubt.text)) }
                        }
                    }
                }
            }
        }
    }
}

/// Lanes with their state, record and next act.
pub(super) fn lanes(page: &Page, prefix: &str) -> Markup {
    let rows = html! {
        @for lane in &page.lanes {
            tr {
                (cell("lane", &html! {
                    a.name href=(href(prefix, &["lanes", &format!("{}.toml", lane.lane)])) {
                        (plain(&lane.lane))
                    }
                    @if let Some(text) = &lane.text {
                        p { (plain(&text.title)) }
                        p.soft { (plain(&text.model)) ", " (plain(&text.hardware)) }
                        p.soft { "promise: " (plain(&text.promise)) }
                    }
                }))
                (cell("state", &html! {
                    (state(lane.state.word(), lane.state.tone()))
                    @if let Some(day) = &lane.until { p { "until " (plain(day)) } }
                    @if !lane.reason.is_empty() { p.soft { (plain(&lane.reason)) } }
                    p.soft { "since " (utc(lane.since_ns)) }
                }))
                (cell("record", &html! {
                    @match page.record_of(lane) {
                        Some(record) => { a href="#records" { (plain(&record.claim)) } }
                        None => { span.soft { "none" } }
                    }
                }))
                (cell("next act", &next(&of_lane(page, lane))))
            }
        }
    };
    let head = ["lane", "state", "current record", "next act"];
    section(
        "lanes",
        "Lanes",
        &head,
        page.lanes.is_empty(),
        "No lane was opened.",
        &rows,
    )
}

/// Lanes that wait, the nearest day first.
pub(super) fn waits(page: &Page) -> Markup {
    let mut waiting: Vec<&Lane> = page
        .lanes
        .iter()
        .filter(|lane| lane.state.waits())
        .collect();
    waiting.sort_by_key(|lane| &lane.until);
    let rows = html! {
        @for lane in &waiting {
            tr {
                (cell("until", &html! {
                    span.name { (plain(lane.until.as_deref().unwrap_or("no day"))) }
                }))
                (cell("lane", &html! { (plain(&lane.lane)) }))
                (cell("state", &state(lane.state.word(), lane.state.tone())))
                (cell("for", &html! { (plain(&lane.reason)) }))
            }
        }
    };
    let head = ["until", "lane", "state", "for"];
    section(
        "waits",
        "Waits",
        &head,
        waiting.is_empty(),
        "Nothing waits.",
        &rows,
    )
}

/// Current records, and those that they took the place of.
pub(super) fn records(page: &Page, prefix: &str) -> Markup {
    let current: Vec<&Record> = page.current_records().collect();
    let rows = html! {
        @for record in &current {
            tr {
                (cell("key", &html! { span.name { (plain(&record.key)) } }))
                (cell("claim", &html! {
                    (plain(&record.claim))
                    @for text in &record.corrections {
                        p.abort { "corrected: " (plain(text)) }
                    }
                }))
                (cell("widths", &html! { (widths(record)) }))
                (cell("evidence", &html! {
                    a href=(seal_link(prefix, &record.packet, 1)) {
                        (page.experiment_of(&record.packet))
                    }
                    p.soft { (utc(record.at_ns)) }
                }))
            }
        }
    };
    let old = page.records.len() - current.len();
    let head = ["key", "claim", "widths", "evidence"];
    let (id, empty) = ("records", "No record was entered.");
    html! {
        (section(id, "Current records", &head, current.is_empty(), empty, &rows))
        @if old > 0 {
            p.soft { (old) " earlier, superseded: they are in the ledger." }
        }
    }
}

pub(super) fn widths(record: &Record) -> String {
    let words: Vec<String> = record.widths.iter().map(ToString::to_string).collect();
    words.join(", ")
}

/// Packets with state and next act; those under way first.
pub(super) fn packets(page: &Page, prefix: &str) -> Markup {
    let rows = html! {
        @for packet in in_order(page) {
            tr {
                (cell("packet", &html! {
                    a.name href=(href(prefix, &["experiments", &packet.experiment, "prereg.toml"])) {
                        (plain(&packet.experiment))
                    }
                    " " code title=(plain(&packet.packet)) { (short(&packet.packet)) }
                    @if let Some(plan) = &packet.plan { p { (plain(&plan.question)) } }
                    p.soft { "treatment: " (plain(&packet.treatment)) }
                }))
                (cell("lane", &html! { (plain(&packet.lane)) }))
                (cell("state", &packet_state(packet)))
                (cell("next act", &next(&of_packet(page, packet))))
            }
        }
    };
    let head = ["packet", "lane", "state", "next act"];
    let empty = "No experiment was registered.";
    section(
        "packets",
        "Packets",
        &head,
        page.packets.is_empty(),
        empty,
        &rows,
    )
}

/// Those under way first, then the newest.
pub(super) fn in_order(page: &Page) -> Vec<&Packet> {
    let mut packets: Vec<&Packet> = page.packets.iter().rev().collect();
    packets.sort_by_key(|packet| packet.state.is_over());
    packets
}

fn packet_state(packet: &Packet) -> Markup {
    let rehearsals = packet.rehearsals;
    html! {
        (state(packet.state.word(), packet.state.tone()))
        @if !packet.reason.is_empty() { p { (plain(&packet.reason)) } }
        @if !packet.state.is_over() && rehearsals.count > 0 {
            p.soft { (rehearsals.green_count) " of " (rehearsals.count) " rehearsals green" }
        }
        p.soft { "since " (utc(packet.since_ns)) }
    }
}

/// Sealed packets with gates and plots; those of current records are open.
pub(super) fn evidence(page: &Page, prefix: &str) -> Markup {
    let sealed: Vec<&Packet> = in_order(page)
        .into_iter()
        .filter(|one| !one.seals.is_empty())
        .collect();
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
            Reading::Found(found) => {
                @let rule = packet.plan.as_ref().and_then(|plan| plan.timing);
                (analysis(found, rule))
            }
            Reading::Absent => p.abort { "The analysis is not here: nothing of it is shown." }
            Reading::Refused(why) => {
                p.fail { "The analysis is refused, and nothing of it is shown: " (plain(why)) }
            }
        }
    }
}

fn analysis(found: &Evidence, rule: Option<TimingRule>) -> Markup {
    html! {
        p { (plain(&found.summary())) "." }
        (gates(&found.gates))
        div.panels {
            @for timing in &found.timing { (plots::timing(timing, rule)) }
            (plots::matrix(found))
        }
        @if !found.says.is_empty() {
            p.soft { "Not proven by the bag alone:" }
            ul.soft { @for text in &found.says { li { (plain(text)) } } }
        }
    }
}

fn gates(gates: &[Gate]) -> Markup {
    html! {
        table {
            thead {
                tr { @for word in ["gate", "passed", "threshold", "measured", "basis"] {
                    th scope="col" { (word) }
                } }
            }
            tbody {
                @for gate in gates {
                    tr {
                        (cell("gate", &html! { span.name { (plain(&gate.gate)) } }))
                        (cell("passed", &passed(gate.passed)))
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
        None => state("not reached", Tone::Abort),
    }
}

/// The whole ledger as a plot.
pub(super) fn timeline(page: &Page) -> Markup {
    html! {
        section #timeline {
            h2 { "Timeline" }
            div.sheet { (plots::timeline(page)) }
        }
    }
}

/// What was observed, apart from what the ledger says.
pub(super) fn live(live: &Live) -> Markup {
    html! {
        section #live {
            h2 { "Observed on this host" }
            p.soft {
                "Drawn " (utc(live.at_ns)) ". Only what was seen then is here: no document, unit "
                "or recipe counts as running."
            }
            @for topic in Topic::ALL {
                @let of_topic: Vec<_> = live.observations.iter().filter(|one| one.topic == topic).collect();
                div.sheet.evidence {
                    h3 { (topic.heading()) }
                    @if of_topic.is_empty() { p.abort { "not observed" } }
                    @else { (observations(&of_topic)) }
                }
            }
        }
    }
}

fn observations(observations: &[&Observation]) -> Markup {
    html! {
        table {
            thead { tr { @for word in ["what", "seen", "how", "when"] { th scope="col" { (word) } } } }
            tbody {
                @for one in observations {
                    tr {
                        (cell("what", &html! { span.name { (plain(&one.subject)) } }))
                        (cell("seen", &html! {
                            @if !one.known { (state("unknown", Tone::Abort)) " " }
                            (plain(&one.seen))
                        }))
                        (cell("how", &html! { span.soft { (plain(&one.how)) } }))
                        (cell("when", &html! { span.soft { (utc(one.at_ns)) } }))
                    }
                }
            }
        }
    }
}

/// A table under its heading, or a sentence where there is nothing.
fn section(
    id: &str,
    title: &str,
    head: &[&str],
    is_empty: bool,
    empty: &str,
    rows: &Markup,
) -> Markup {
    html! {
        section id=(id) {
            h2 { (title) }
            div.sheet {
                @if is_empty { p.empty { (empty) } }
                @else {
                    table {
                        thead { tr { @for word in head { th scope="col" { (word) } } } }
                        tbody { (rows) }
                    }
                }
            }
        }
    }
}

/// A cell that names its column where columns don't fit.
fn cell(label: &str, content: &Markup) -> Markup {
    html! { td data-label=(label) { div { (content) } } }
}

/// A word in its colour.
pub(super) fn state(word: &str, tone: Tone) -> Markup {
    html! { span class={ "state " (tone.class()) } { (word) } }
}

pub(super) fn verdict(verdict: Verdict) -> Markup {
    state(verdict.word(), verdict.tone())
}

/// Where a seal lies.
pub(super) fn seal_link(prefix: &str, packet: &str, number: u64) -> String {
    href(
        prefix,
        &["evidence", packet, &format!("seal-{number}.json")],
    )
}
