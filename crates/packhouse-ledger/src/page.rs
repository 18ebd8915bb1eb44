//! The state page of a lab, and the report of one packet: Markdown and HTML from values.
//!
//! Invariants:
//! - a page is a pure function of its values, so that CI can draw it again and compare bytes;
//! - every text of a document is hostile: it is escaped for where it stands and can begin no
//!   line, tag, link or attribute;
//! - HTML needs nothing but itself: no script, no network, no font or image of elsewhere;
//! - what was observed stands apart from what the ledger says, each line with when and how; a
//!   recipe, a lane or a packet is never shown as something that runs.
//!
//! Never: reads a file or a clock. What it shows: `docs/format/ledger.md`.

mod derive;
mod html;
mod live;
mod markdown;
mod marks;
mod next;
mod numbers;
mod plots;
mod proofs;
mod ran;
mod report;
mod sections;
mod values;
mod words;

pub use derive::told_releases;
pub use live::{Live, Observation, Topic};
pub use ran::{Program, Ran};
pub use values::{
    Basis, Documents, Doubt, Evidence, Found, Gate, Lane, LaneState, LaneText, Mark, MarkKind,
    Note, Packet, PacketState, Page, Plan, Record, Rehearsals, Review, Row, Saving, Sealed, Timing,
    TimingRule,
};
pub use words::utc;

impl Page {
    /// The page as Markdown, with links that begin with `prefix` (empty beside the ledger).
    pub fn markdown(&self, prefix: &str) -> String {
        markdown::state(self, prefix)
    }

    /// The page as one HTML document, with links that begin with `prefix`.
    pub fn html(&self, prefix: &str) -> String {
        html::state(self, prefix)
    }

    /// One packet's report as Markdown; `None` where the ledger has no such packet.
    pub fn report_markdown(&self, packet: &str, prefix: &str) -> Option<String> {
        let packet = self.packets.iter().find(|one| one.packet == packet)?;
        Some(markdown::report(self, packet, prefix))
    }

    /// One packet's report as one HTML document; `None` where the ledger has no such packet.
    pub fn report_html(&self, packet: &str, prefix: &str) -> Option<String> {
        let packet = self.packets.iter().find(|one| one.packet == packet)?;
        Some(report::html(self, packet, prefix))
    }
}
