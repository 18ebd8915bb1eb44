//! `lab run`.

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::lab::Place;
use crate::lab_campaign::{Prepared, gates, gates_document, step_failed};
use crate::lab_open::{Opened, Told, stands, with_key};
use crate::lab_refused::freezing;
use crate::lab_unequal;
use crate::lab_withdraw::not_withdrawn;
use crate::lab_words::LabRunArgs;
use packhouse_bag::{BAG_DIR, DATA_DIR};
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{
    Campaign, CampaignError, EVIDENCE, Fault, Finished, Frozen, Ran, Would, is_consumed, run, would,
};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_ledger::act::is_spent;
use packhouse_ledger::page::told_releases;
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Ledger, WriterError};
use packhouse_sys::fs::Dir;
use serde_json::json;
use std::fmt::Write as _;

/// Runs a packet once. What an earlier run left that was killed is finished, and not run again.
pub(crate) fn execute(args: &LabRunArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let packet = opened.packet(&ledger, &args.packet)?;
    not_withdrawn(&opened, &ledger, packet)?;
    let prepared = Prepared::new(&opened, args.key.as_deref())?;
    let failed = |error: &CampaignError| step_failed(place, &args.packet, error);
    if !args.execute {
        let standing = opened.standing(&ledger, packet)?.standing;
        let would = would(&prepared.campaign(), &ledger, packet);
        let would = would.map_err(|error| failed(&error))?;
        let plan = plan(("run", args), place, (packet, standing), &would);
        return Ok(releases(plan, &ledger, packet));
    }
    prepared.listen()?;
    prepared.sweep();
    let mut writer = opened.writer()?;
    let campaign = prepared.campaign();
    let left = recover(&campaign, &mut writer, packet).map_err(|error| failed(&error))?;
    let answer = match left {
        Recovered::Sealed(finished) => sealed(args, &opened, (packet, &finished), true),
        Recovered::Released(fault) => released(args, place, packet, &fault),
        Recovered::Nothing(_) => {
            let frozen = Frozen::load(&campaign, writer.ledger(), packet);
            let frozen = frozen.map_err(|error| failed(&error))?;
            let ran = run(&campaign, &mut writer, &frozen);
            match ran.map_err(|error| unfinished(args, place, (&campaign, packet), &error))? {
                Ran::Sealed(finished) => sealed(args, &opened, (packet, &finished), false),
                Ran::Released(fault) => released(args, place, packet, &fault),
            }
        }
    };
    let answer = releases(answer, writer.ledger(), packet);
    Ok(prepared.remembered(&writer, answer))
}

/// An answer with how often the packet was released, and why: a run that was given up again and
/// again says something of its verdict.
fn releases(mut answer: Answer, ledger: &Ledger, packet: Digest) -> Answer {
    let told = told_releases(ledger, packet);
    if let Some(told) = &told {
        let _ = writeln!(answer.text, "released so far: {}", Shown(told));
    }
    answer.json["released_so_far"] = json!(told);
    answer
}

/// What `run` or `seal`, as it is called, would do.
pub(crate) fn plan(
    (name, args): (&str, &LabRunArgs),
    place: &Place,
    (packet, standing): (Digest, Standing),
    would: &Would,
) -> Answer {
    let key = with_key(args.key.as_deref());
    let command = place.hint(&format!("{name} {}{key} --execute", args.packet));
    let (word, steps, irreversible) = match would {
        Would::Run => (
            "run",
            vec![
                "measure again all that it froze".to_owned(),
                "take its marker, run every leg of its preregistration, once".to_owned(),
                format!("seal what comes of it in evidence/{packet}"),
            ],
            "the marker: from the first case on the packet is consumed, whatever happens",
        ),
        Would::Release(reason) => (
            "release",
            vec![format!("release it, and run nothing: {reason}")],
            "the ledger's entry; no program was asked anything",
        ),
        Would::Abort => (
            "abort",
            vec!["close its bag from what is there, seal an abort, and run nothing".to_owned()],
            "a seal: its verdict stays",
        ),
        Would::Lost(reason) => (
            "abort",
            vec![format!("seal an abort, and run nothing: {reason}")],
            "a seal: its verdict stays",
        ),
        Would::Finish => (
            "finish",
            vec!["analyse and seal its closed bag, and run nothing".to_owned()],
            "a seal: its verdict stays",
        ),
    };
    let mut lines = vec![format!("packet {packet} is {}", stands(standing))];
    lines.extend(steps);
    let told = Told {
        lines,
        irreversible,
        json: json!({
            "packet": packet.to_string(),
            "standing": stands(standing),
            "outcome": word,
        }),
    };
    told.planned(&command)
}

/// The answer of a packet that is sealed.
pub(crate) fn sealed(
    args: &LabRunArgs,
    opened: &Opened<'_>,
    (packet, finished): (Digest, &Finished),
    was_killed: bool,
) -> Answer {
    let analysis = &finished.analysis;
    let mut text = gates(analysis);
    let bag = [EVIDENCE, &packet.to_string(), BAG_DIR];
    let unequal = lab_unequal::of_folder(&opened.root, &bag, analysis);
    text.push_str(&lab_unequal::lines(&unequal));
    if was_killed {
        text.push_str(LEFT);
    }
    if let Some(fault) = &finished.fault {
        let _ = writeln!(text, "{}: {}", fault.stage, Shown(&fault.reason));
    }
    let verdict = analysis.verdict;
    let _ = writeln!(text, "packet {packet}: sealed, {}", verdict.as_str());
    let _ = writeln!(
        text,
        "evidence/{packet}: bag {}, seal {}",
        analysis.bag, finished.seal
    );
    let (exit, logs) = match verdict {
        Verdict::Pass => (Exit::Done, Vec::new()),
        Verdict::Fail | Verdict::Abort => (Exit::Negative, logs(&opened.root, packet)),
    };
    for log in &logs {
        let _ = writeln!(text, "what its program wrote to stderr: {}", Shown(log));
    }
    let report = opened.place.hint(&format!("report {}", args.packet));
    if exit == Exit::Negative {
        text.push_str("it can't be run again: another attempt is another experiment\n");
    }
    let _ = writeln!(text, "next: {report}");
    let fault = finished.fault.as_ref();
    let json = json!({
        "packet": packet.to_string(),
        "outcome": "sealed",
        "verdict": verdict.as_str(),
        "bag": analysis.bag.to_string(),
        "analysis": analysis.digest().to_string(),
        "seal": finished.seal.to_string(),
        "stage": fault.map(|fault| fault.stage.as_str()),
        "reason": fault.map(|fault| &fault.reason),
        "killed": was_killed,
        "evidence": format!("{EVIDENCE}/{packet}"),
        "gates": gates_document(analysis),
        "unequal": lab_unequal::document(&unequal),
        "logs": logs,
    });
    Answer { text, json, exit }
}

const LEFT: &str = "an earlier run did not come to its seal; its evidence is finished, and \
                    nothing was run\n";

/// Paths of what the programs of the last leg wrote to stderr, where they wrote anything.
fn logs(root: &Dir, packet: Digest) -> Vec<String> {
    let path = format!("{EVIDENCE}/{packet}/{BAG_DIR}/{DATA_DIR}/legs");
    let legs = path
        .split('/')
        .try_fold(root.clone(), |dir, name| dir.open_dir(name));
    let last = legs.and_then(|legs| {
        let leg = legs.list()?.into_iter().max().unwrap_or_default();
        Ok((legs.open_dir(&leg)?.list()?, leg))
    });
    let (names, leg) = last.unwrap_or_default();
    let names = names.iter().filter_map(|name| name.to_str());
    let mut logs: Vec<String> = names
        .filter(|name| name.ends_with(".stderr"))
        .map(|name| format!("{path}/{}/{name}", leg.display()))
        .collect();
    logs.sort();
    logs
}

/// The answer of a packet that was released: nothing irreversible was done.
pub(crate) fn released(args: &LabRunArgs, place: &Place, packet: Digest, fault: &Fault) -> Answer {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {}", fault.stage, Shown(&fault.reason));
    text.push_str(&freezing(place, &fault.unfrozen));
    let is_spent = is_spent(fault.stage, &fault.reason);
    if is_spent {
        let _ = writeln!(
            text,
            "packet {packet}: released, and spent: it can't be run again"
        );
        text.push_str("next: none here: the run that has its marker seals it\n");
    } else {
        let key = with_key(args.key.as_deref());
        let again = place.hint(&format!("run {}{key} --execute", args.packet));
        let _ = writeln!(
            text,
            "packet {packet}: released before its marker, and armed as before\nnext: {again}"
        );
    }
    Answer {
        text,
        json: json!({
            "packet": packet.to_string(),
            "outcome": "released",
            "spent": is_spent,
            "stage": fault.stage.as_str(),
            "reason": fault.reason,
        }),
        exit: Exit::NotExecuted,
    }
}

/// What could not be written of a packet that is consumed.
pub(crate) fn to_be_sealed(args: &LabRunArgs, place: &Place, error: &CampaignError) -> Failure {
    step_failed(place, &args.packet, error)
        .cause("what was done is on the disk; nothing will be run again")
        .hint(place.hint(&format!(
            "seal {}{} --execute",
            args.packet,
            with_key(args.key.as_deref())
        )))
}

/// What could not be written after the marker is finished later; before it nothing was done that
/// can't be done again.
fn unfinished(
    args: &LabRunArgs,
    place: &Place,
    (campaign, packet): (&Campaign<'_>, Digest),
    error: &CampaignError,
) -> Failure {
    let failure = step_failed(place, &args.packet, error);
    match error {
        CampaignError::Refused(_)
        | CampaignError::Standing { .. }
        | CampaignError::Unknown { .. }
        | CampaignError::OtherAnalyzer { .. }
        | CampaignError::Ledger(WriterError::PacketBusy { .. })
        | CampaignError::Consumed { .. } => failure,
        _ => match is_consumed(campaign, packet) {
            Ok(true) => to_be_sealed(args, place, error),
            Ok(false) => failure
                .cause("no case was asked, and the packet is not consumed: it may be run")
                .hint(place.hint(&format!(
                    "run {}{} --execute",
                    args.packet,
                    with_key(args.key.as_deref())
                ))),
            Err(unknown) => failure
                .cause(format!("whether it is consumed can't be told: {unknown}"))
                .hint(place.hint(&format!("run {}", args.packet))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a nonce that may have been used elsewhere, nobody can say that it was run, or release it.
    #[test]
    fn seal_plans_what_it_would_do_and_run_says_the_same() {
        let state = |_: &str| Some("/home/user".into());
        let place = Place::at("/home/user/lab".into(), &state).expect("because it has a home");
        let args = LabRunArgs {
            packet: "one".to_owned(),
            key: None,
            execute: false,
        };
        let packet = (Digest::of(b"packet"), Standing::Nonce);
        let told = |name, would: Would| plan((name, &args), &place, packet, &would).text;
        for (would, step, last) in [
            (
                Would::Lost("nobody saw it".to_owned()),
                "would: seal an abort, and run nothing: nobody saw it\n",
                "irreversible: a seal: its verdict stays\n",
            ),
            (
                Would::Release("it ended".to_owned()),
                "would: release it, and run nothing: it ended\n",
                "irreversible: the ledger's entry; no program was asked anything\n",
            ),
        ] {
            for name in ["seal", "run"] {
                let text = told(name, would.clone());
                let again = format!("packhouse lab {name} one --execute --lab /home/user/lab\n");
                assert!(text.contains(&format!("{step}{last}")), "{text}");
                assert!(text.ends_with(&again), "{text}");
            }
        }
    }
}
