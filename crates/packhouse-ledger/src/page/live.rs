//! What was observed on a host when a page was drawn: never part of a page that is kept.

use super::next::Tone;
use super::sections::{cell, state};
use super::words::{plain, utc};
use maud::{Markup, html};

/// Observations of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// When the page was drawn, nanoseconds since 1970.
    pub at_ns: i64,
    /// What was observed.
    pub observations: Vec<Observation>,
}

/// One thing that was observed, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What it is about.
    pub topic: Topic,
    /// The thing: a process, an address, a device, a folder.
    pub subject: String,
    /// What was seen of it.
    pub seen: String,
    /// How: the file that was read or the tool that was asked.
    pub how: String,
    /// When, nanoseconds since 1970.
    pub at_ns: i64,
    /// Whether it could be observed at all.
    pub known: bool,
}

/// What observations are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Preregistrations that no packet was made of.
    Drafts,
    /// What packets froze that are not sealed.
    Frozen,
    /// Processes of the lab's programs.
    Processes,
    /// Ports that they listen on.
    Ports,
    /// Devices of this host.
    Devices,
    /// The lab's repository.
    Git,
}

impl Live {
    /// What is about one thing.
    pub(super) fn of_topic(&self, topic: Topic) -> Vec<&Observation> {
        let of_topic = self.observations.iter().filter(|one| one.topic == topic);
        of_topic.collect()
    }
}

impl Topic {
    /// All of them, in the page's order.
    pub const ALL: [Self; 6] = [
        Self::Drafts,
        Self::Frozen,
        Self::Processes,
        Self::Ports,
        Self::Devices,
        Self::Git,
    ];

    /// Its word, for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::Drafts => "drafts",
            Self::Frozen => "frozen",
            Self::Processes => "processes",
            Self::Ports => "ports",
            Self::Devices => "devices",
            Self::Git => "git",
        }
    }

    /// Its heading.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Drafts => "Drafted experiments",
            Self::Frozen => "What packets froze",
            Self::Processes => "Processes of the lab's programs",
            Self::Ports => "Ports that they listen on",
            Self::Devices => "Devices",
            Self::Git => "Repository",
        }
    }
}

/// What was observed, apart from what the ledger says.
pub(super) fn html(live: &Live) -> Markup {
    html! {
        section #live {
            h2 { "Observed on this host" }
            p.soft {
                "Drawn " (utc(live.at_ns)) ". Only what was seen then is here: no document, unit "
                "or recipe counts as running."
            }
            @for topic in Topic::ALL {
                @let of_topic = live.of_topic(topic);
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
            thead {
                tr { @for word in ["what", "seen", "how", "when"] { th scope="col" { (word) } } }
            }
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
