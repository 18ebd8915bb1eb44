//! `lab analyse`: a sealed bag, analysed again by this program.

use crate::answer::Answer;
use crate::failure::{Exit, Failure, quoted};
use crate::lab::Place;
use crate::lab_campaign::{Prepared, gates, step_failed};
use crate::lab_open::{Opened, Told, with_key};
use crate::lab_withdraw::not_withdrawn;
use crate::lab_words::LabAnalyseArgs;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{Again, CampaignError, reanalyse, would_be};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Analyses a sealed bag again.
pub(crate) fn execute(args: &LabAnalyseArgs, place: &Place) -> Result<Answer, Failure> {
    if args.why.trim().is_empty() {
        let words = format!("analyse {} --why TEXT", args.packet);
        return Err(Failure::usage("no reason", "--why")
            .cause("the ledger keeps it")
            .hint(place.hint(&words)));
    }
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let packet = opened.packet(&ledger, &args.packet)?;
    not_withdrawn(&opened, &ledger, packet)?;
    let prepared = Prepared::new(&opened, args.key.as_deref())?;
    let campaign = prepared.campaign();
    let failed = |error| failed(place, &args.packet, &error);
    let again = would_be(&campaign, &ledger, packet).map_err(failed)?;
    if let Some(number) = again.made_before {
        return Ok(made_before(&again, number));
    }
    if !args.execute {
        let number = again.number;
        let told = Told {
            lines: vec![
                format!("write evidence/{packet}/analysis-{number} and seal-{number}.json"),
                format!(
                    "enter analysis {number} in the ledger: {}",
                    verdicts(&again)
                ),
            ],
            irreversible: "the ledger's entry; the first verdict stays the packet's",
            json: json!({ "packet": packet.to_string(), "again": document(&again) }),
        };
        let words = format!(
            "analyse {} --why {}{} --execute",
            args.packet,
            quoted(&args.why),
            with_key(args.key.as_deref())
        );
        return Ok(told.planned(&place.hint(&words)));
    }
    let mut writer = opened.writer()?;
    let done = reanalyse(&campaign, &mut writer, packet, &args.why);
    let again = done.map_err(failed)?;
    let mut answer = sealed(&again);
    let report = place.hint(&format!("report {}", args.packet));
    answer.text += &format!("next: {report}\n");
    Ok(prepared.remembered(&writer, answer))
}

/// Only a sealed bag is analysed again.
fn failed(place: &Place, named: &str, error: &CampaignError) -> Failure {
    match error {
        CampaignError::Standing { packet, actual, .. } if !actual.starts_with("sealed-") => {
            Failure::new("nothing to analyse again", packet)
                .cause(format!("the packet is {actual}, and not sealed"))
                .hint(place.hint(&format!("report {named}")))
        }
        error => step_failed(place, named, error),
    }
}

fn made_before(again: &Again, number: u64) -> Answer {
    let mut text = gates(&again.analysis);
    let _ = writeln!(
        text,
        "analysis {number} is by this very program, and it makes the same bytes again; nothing \
         written"
    );
    Answer {
        text,
        json: document(again),
        exit: Exit::Done,
    }
}

fn sealed(again: &Again) -> Answer {
    let mut text = gates(&again.analysis);
    let _ = writeln!(
        text,
        "analysis {}: {}; thresholds are those of the bag, nothing of them differs",
        again.number,
        verdicts(again),
    );
    if again.analysis.verdict != again.first {
        let _ = writeln!(
            text,
            "THE VERDICT CHANGED: {} now, {} first; the first stays the packet's",
            again.analysis.verdict, again.first,
        );
    }
    Answer {
        text,
        json: document(again),
        exit: match again.analysis.verdict {
            Verdict::Pass => Exit::Done,
            Verdict::Fail | Verdict::Abort => Exit::Negative,
        },
    }
}

fn verdicts(again: &Again) -> String {
    let now = again.analysis.verdict;
    match (now == again.newest, now == again.first) {
        (true, true) => format!("{now}, as before"),
        (true, false) => format!("{now}, as the newest; the first was {}", again.first),
        (false, _) => format!(
            "{now}, BEFORE IT WAS {}; the first was {}",
            again.newest, again.first
        ),
    }
}

fn document(again: &Again) -> Value {
    json!({
        "number": again.number,
        "made_before": again.made_before,
        "verdict": again.analysis.verdict.as_str(),
        "first_verdict": again.first.as_str(),
        "newest_verdict": again.newest.as_str(),
        "changed": again.analysis.verdict != again.newest,
        "bag": again.analysis.bag.to_string(),
        "analysis": again.analysis.digest().to_string(),
        "analyzer": again.analysis.analyzer.to_string(),
        "threshold_differences": [],
    })
}
