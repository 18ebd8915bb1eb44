//! The HTML document, and the state page's order.

use super::next::Next;
use super::sections;
use super::values::Page;
use super::words::{plain, short, utc};
use super::{live, proofs};
use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The state page.
pub(super) fn state(page: &Page, prefix: &str) -> String {
    let title = format!("State of {}", plain(&page.lab));
    let body = html! {
        h1 { (title) }
        (origin(page, prefix))
        (sections::tiles(page))
        (sections::doubts(page))
        (sections::lanes(page, prefix))
        (sections::waits(page))
        (sections::records(page, prefix))
        (sections::packets(page, prefix))
        (proofs::evidence(page, prefix))
        (sections::notes(page))
        (sections::timeline(page))
        @if let Some(seen) = &page.live { (live::html(seen)) }
        (footer("packhouse lab state"))
    };
    document(&title, &body)
}

/// One document around a body: nothing in it loads or runs anything.
pub(super) fn document(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="generator" content="packhouse lab";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body { main { (body) } }
        }
    };
    let mut text = page.into_string();
    text.push('\n');
    text
}

/// Where the page comes from.
pub(super) fn origin(page: &Page, prefix: &str) -> Markup {
    html! {
        p.soft {
            a href={ (prefix) "ledger.jsonl" } { "Ledger" } " of " (page.entry_count)
            " entries up to " (utc(page.last_at_ns)) ", head "
            code title=(plain(&page.head)) { (short(&page.head)) } ", lab "
            code title=(plain(&page.lab_id)) { (short(&page.lab_id)) } "."
        }
    }
}

/// The last lines, with the command that made the page.
pub(super) fn footer(command: &str) -> Markup {
    html! {
        footer {
            p {
                "Made by " code { (command) } " from the ledger and from the sealed "
                "analyses that it names; an edit here changes nothing, and is found by "
                code { "packhouse lab state --check" } ". Times are each entry's own; the order "
                "is the ledger's."
            }
        }
    }
}

/// The next act, as a command or in words.
pub(super) fn next(next: &Next) -> Markup {
    html! {
        @match next {
            Next::Command(command) => { code { (plain(command)) } }
            Next::Words(words) => { (plain(words)) }
            Next::Nothing => { span.soft { "none" } }
        }
    }
}

const STYLE: &str = include_str!("style.css");
/// Were a script or a link to elsewhere in the page after all, the browser would refuse it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";
