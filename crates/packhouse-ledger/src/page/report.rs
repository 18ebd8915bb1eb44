//! One packet's report: what was asked, what became of it, what was found.

use super::html::{document, footer, next, origin};
use super::next::of_packet;
use super::proofs::seal;
use super::ran::{self, Ran};
use super::sections::state;
use super::values::{Found, Mark, Packet, PacketState, Page, Plan};
use super::words::{href, plain, utc};
use maud::{Markup, html};

/// The report as one document.
pub(super) fn html(page: &Page, packet: &Packet, prefix: &str) -> String {
    let title = format!("Report of {}", plain(&packet.experiment));
    let body = html! {
        h1 { (title) }
        (origin(page, prefix))
        p { (state(packet.state.word(), packet.state.tone())) " " (plain(&packet.reason)) }
        (facts(page, packet, prefix))
        @if let Some(ran) = &packet.ran { (ran::html(ran, heading(packet))) }
        h2 { "Sealed evidence" }
        @if packet.seals.is_empty() { p.sheet.empty { "Nothing was sealed." } }
        @for sealed in &packet.seals { div.sheet.evidence { (seal(packet, sealed, prefix)) } }
        (reviews(packet))
        (history(page, packet))
        (footer("packhouse lab report"))
    };
    document(&title, &body)
}

/// What ran is told as that once something was sealed.
pub(super) fn heading(packet: &Packet) -> &'static str {
    let is_withdrawn = packet.state == PacketState::Withdrawn;
    match packet.seals.is_empty() {
        true if is_withdrawn => "What was to run",
        true => "What is to run",
        false => "What ran",
    }
}

fn facts(page: &Page, packet: &Packet, prefix: &str) -> Markup {
    let experiment = |file: &str| href(prefix, &["experiments", &packet.experiment, file]);
    let lane = href(prefix, &["lanes", &format!("{}.toml", packet.lane)]);
    html! {
        dl.sheet.evidence {
            @match &packet.plan {
                Found::Here(plan) => (promised(plan)),
                Found::Absent => {
                    dt { "question" } dd.abort { "the preregistration is not here" }
                }
                Found::Refused(why) => {
                    dt { "question" }
                    dd.abort { "the preregistration is refused: " (plain(why)) }
                }
            }
            dt { "treatment" } dd { (plain(&packet.treatment)) }
            @if let Some(computed) = packet.ran.as_ref().and_then(Ran::contrast) {
                dt { "differs, as computed" } dd { (plain(&computed)) }
            }
            dt { "lane" } dd { a href=(lane) { (plain(&packet.lane)) } }
            dt { "packet" } dd { code { (plain(&packet.packet)) } }
            dt { "documents" }
            dd {
                a href=(experiment("prereg.toml")) { "preregistration" } ", "
                a href=(experiment("packet.json")) { "packet" }
            }
            dt { "rehearsals" }
            dd { (plain(&packet.rehearsals.summary())) }
            @if let Some(released) = packet.told_released() {
                dt { "released" } dd { (plain(&released)) }
            }
            dt { "next act" } dd { (next(&of_packet(page, packet))) }
        }
    }
}

fn promised(plan: &Plan) -> Markup {
    html! {
        dt { "question" } dd { (plain(&plan.question)) }
        dt { "a pass authorises" } dd { (plain(&plan.authorises)) }
        dt { "and does not" } dd { (plain(&plan.does_not_authorise)) }
        @if !plan.exclusions.is_empty() {
            dt { "left out" }
            dd {
                @for (place, text) in plan.exclusions.iter().enumerate() {
                    @if place > 0 { br; }
                    (plain(text))
                }
            }
        }
    }
}

fn reviews(packet: &Packet) -> Markup {
    html! {
        @if !packet.reviews.is_empty() {
            h2 { "Reviews" }
            ul {
                @for review in &packet.reviews {
                    li {
                        span.name { (plain(&review.reviewer)) }
                        (if review.approves { " approves: " } else { " rejects: " })
                        (plain(&review.note))
                    }
                }
            }
        }
    }
}

fn history(page: &Page, packet: &Packet) -> Markup {
    html! {
        h2 { "In the ledger" }
        ol.sheet.history {
            @for mark in of_packet_marks(page, packet) {
                li value=(mark.index) {
                    (plain(&mark.words)) " "
                    span.soft { (utc(mark.at_ns)) }
                    @if mark.went_back { " " span.abort { "the clock went back" } }
                }
            }
        }
    }
}

/// The entries of a packet.
pub(super) fn of_packet_marks<'a>(
    page: &'a Page,
    packet: &'a Packet,
) -> impl Iterator<Item = &'a Mark> {
    let is_its = |mark: &&Mark| mark.experiment.as_ref() == Some(&packet.experiment);
    page.marks.iter().filter(is_its)
}
