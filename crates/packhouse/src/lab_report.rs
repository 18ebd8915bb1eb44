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
    let packet = lab.opened.packet(&lab.ledger, &args.packet)?.to_string();
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
