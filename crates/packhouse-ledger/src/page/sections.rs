//! The parts of both pages, as HTML.

use super::html::next;
use super::next::{Tone, of_lane, of_packet};
use super::plots;
use super::values::{Lane, Packet, PacketState, Page, Record};
use super::words::{day, href, plain, short, utc};
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
            @if glance.withdrawn > 0 {
                (tile(glance.withdrawn, "withdrawn packet", "withdrawn packets", "#packets", false))
            }
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
    pub(super) withdrawn: usize,
}

impl Glance {
    pub(super) fn of(page: &Page) -> Self {
        let packets = |is: fn(PacketState) -> bool| {
            let states = page.packets.iter().map(|one| one.state);
            states.filter(|state| is(*state)).count()
        };
        Self {
            open: page
                .lanes
                .iter()
                .filter(|lane| lane.state.is_open())
                .count(),
            waits: page.lanes.iter().filter(|lane| lane.state.waits()).count(),
            records: page.current_records().count(),
            going: packets(|state| !state.is_over()),
            sealed: packets(PacketState::is_sealed),
            withdrawn: packets(|state| state == PacketState::Withdrawn),
        }
    }
}

impl Page {
    /// Records that no other has taken the place of.
    pub fn current_records(&self) -> impl Iterator<Item = &Record> {
        self.records
            .iter()
            .filter(|record| record.superseded_by.is_none())
    }

    /// The current record of a lane's key.
    pub fn record_of(&self, lane: &Lane) -> Option<&Record> {
        let key = &lane.text.as_ref()?.record_key;
        self.current_records().find(|record| record.key == *key)
    }

    /// Whether a wait is over; a page that is kept knows no today, and says it of none.
    pub(super) fn is_over(&self, lane: &Lane) -> bool {
        let today = self.live.as_ref().map(|live| day(live.at_ns));
        match (&lane.until, today) {
            (Some(until), Some(today)) => lane.state.waits() && *until < today,
            (Some(_) | None, _) => false,
        }
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
                    @if page.is_over(lane) { " " (state("over", Tone::Fail)) }
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
                    @if let Some(entry) = record.disputed_by {
                        p.fail { "disputed: the analysis of entry " (entry) " does not pass" }
                    }
                    @for text in &record.corrections {
                        p.abort { "corrected: " (plain(text)) }
                    }
                }))
                (cell("widths", &html! { (widths(record)) }))
                (cell("evidence", &html! {
                    a href=(seal_link(prefix, &record.packet, record.seal_number)) {
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
                    @let link = href(prefix, &["experiments", &packet.experiment, "prereg.toml"]);
                    a.name href=(link) { (plain(&packet.experiment)) }
                    " " code title=(plain(&packet.packet)) { (short(&packet.packet)) }
                    @if let Some(plan) = packet.plan.here() { p { (plain(&plan.question)) } }
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
    let rehearsals = &packet.rehearsals;
    html! {
        (state(packet.state.word(), packet.state.tone()))
        @if !packet.reason.is_empty() { p { (plain(&packet.reason)) } }
        @if !packet.state.is_over() && rehearsals.count > 0 {
            p.soft { (plain(&rehearsals.summary())) }
        }
        p.soft { "since " (utc(packet.since_ns)) }
    }
}

/// The newest notes.
pub(super) fn notes(page: &Page) -> Markup {
    html! {
        @if !page.notes.is_empty() {
            section #notes {
                h2 { "Newest notes" }
                ul.sheet.notes {
                    @for note in &page.notes {
                        li {
                            (plain(&note.text)) " "
                            span.soft {
                                "entry " (note.entry)
                                @if let Some(lane) = &note.lane { " on " (plain(lane)) }
                                ", " (utc(note.at_ns))
                            }
                        }
                    }
                }
            }
        }
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
pub(super) fn cell(label: &str, content: &Markup) -> Markup {
    html! { td data-label=(label) { div { (content) } } }
}

/// A word in its colour.
pub(super) fn state(word: &str, tone: Tone) -> Markup {
    html! { span class={ "state " (tone.class()) } { (word) } }
}

/// Where a seal lies.
pub(super) fn seal_link(prefix: &str, packet: &str, number: u64) -> String {
    href(
        prefix,
        &["evidence", packet, &format!("seal-{number}.json")],
    )
}
