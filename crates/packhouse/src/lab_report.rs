//! `lab report`: one packet, and all that became of it.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_page::{Read, Target};
use crate::lab_words::LabReportArgs;
use std::path::Path;

/// Shows one packet.
pub(crate) fn execute(args: &LabReportArgs, place: &Place) -> Result<Answer, Failure> {
    let lab = Read::lab(place)?;
    let packet = named(&lab, &args.packet, place)?;
    let stdout = Path::new("-");
    let md = args.md.as_deref();
    let target = Target::of(args.html.as_deref().or(md).unwrap_or(stdout));
    let prefix = target.prefix(place)?;
    let page = match args.html {
        Some(_) => lab.page.report_html(&packet, &prefix),
        None => lab.page.report_markdown(&packet, &prefix),
    };
    target.give(page.unwrap_or_default())
}

/// The packet that a word means.
fn named(lab: &Read, word: &str, place: &Place) -> Result<String, Failure> {
    let state = lab.ledger.state();
    match state.packets_named(word).as_slice() {
        [packet] => Ok(packet.to_string()),
        [] => Err(Failure::new("no such packet in the ledger", word)
            .cause("a packet is named by its experiment's id, or by 8 or more hex digits")
            .hint(place.hint("state"))),
        several => {
            let mut failure = Failure::new("several packets begin so", word);
            for packet in several {
                failure = failure.cause(packet.to_string());
            }
            Err(failure.hint(place.hint("state")))
        }
    }
}
