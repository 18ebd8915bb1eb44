//! `lab run`.

use crate::answer::Answer;
use crate::failure::{Exit, Failure};
use crate::lab::Place;
use crate::lab_campaign::{Prepared, gates, step_failed};
use crate::lab_open::{Opened, Told, stands};
use crate::lab_words::LabRunArgs;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_lab::analysis::Verdict;
use packhouse_lab::campaign::{CampaignError, Fault, Finished, Frozen, Ran, Would, run, would};
use packhouse_lab::recovery::{Recovered, recover};
use packhouse_ledger::WriterError;
use packhouse_ledger::state::Standing;
use serde_json::json;
use std::fmt::Write as _;

/// Runs a packet once. What an earlier run left that was killed is finished, and not run again.
pub(crate) fn execute(args: &LabRunArgs, place: &Place) -> Result<Answer, Failure> {
    let opened = Opened::of(place)?;
    let ledger = opened.ledger()?;
    let packet = opened.packet(&ledger, &args.packet)?;
    let prepared = Prepared::new(&opened, args.key.as_deref())?;
    let failed = |error: &CampaignError| step_failed(place, error);
    if !args.execute {
        let standing = opened.standing(&ledger, packet)?.standing;
        let would = would(&prepared.campaign(), &ledger, packet);
        let would = would.map_err(|error| failed(&error))?;
        return Ok(plan(args, place, (packet, standing), &would));
    }
    prepared.listen()?;
    prepared.sweep();
    let mut writer = opened.writer()?;
    let campaign = prepared.campaign();
    let left = recover(&campaign, &mut writer, packet).map_err(|error| failed(&error))?;
    let answer = match left {
        Recovered::Sealed(finished) => sealed(packet, &finished, true),
        Recovered::Released(fault) => released(args, place, packet, &fault),
        Recovered::Nothing(_) => {
            let frozen = Frozen::load(&campaign, writer.ledger(), packet);
            let frozen = frozen.map_err(|error| failed(&error))?;
            let ran = run(&campaign, &mut writer, &frozen);
            match ran.map_err(|error| unfinished(args, place, &error))? {
                Ran::Sealed(finished) => sealed(packet, &finished, false),
                Ran::Released(fault) => released(args, place, packet, &fault),
            }
        }
    };
    Ok(prepared.remembered(&writer, answer))
}

/// What `run` would do.
fn plan(
    args: &LabRunArgs,
    place: &Place,
    (packet, standing): (Digest, Standing),
    would: &Would,
) -> Answer {
    let command = place.hint(&format!("run {} --execute", args.packet));
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
pub(crate) fn sealed(packet: Digest, finished: &Finished, was_killed: bool) -> Answer {
    let analysis = &finished.analysis;
    let mut text = gates(analysis);
    if was_killed {
        text.push_str("an earlier run was killed; its evidence is finished, and nothing was run\n");
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
    });
    let exit = match verdict {
        Verdict::Pass => Exit::Done,
        Verdict::Fail | Verdict::Abort => Exit::Negative,
    };
    Answer { text, json, exit }
}

/// The answer of a packet that was released: nothing irreversible was done.
pub(crate) fn released(args: &LabRunArgs, place: &Place, packet: Digest, fault: &Fault) -> Answer {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {}", fault.stage, Shown(&fault.reason));
    let _ = writeln!(
        text,
        "packet {packet}: released before its marker, and armed as before"
    );
    let _ = writeln!(
        text,
        "next: {}",
        place.hint(&format!("run {} --execute", args.packet))
    );
    Answer {
        text,
        json: json!({
            "packet": packet.to_string(),
            "outcome": "released",
            "stage": fault.stage.as_str(),
            "reason": fault.reason,
        }),
        exit: Exit::NotExecuted,
    }
}

/// What could not be written after a run began is finished later.
pub(crate) fn unfinished(args: &LabRunArgs, place: &Place, error: &CampaignError) -> Failure {
    let failure = step_failed(place, error);
    match error {
        CampaignError::Refused(_)
        | CampaignError::Standing { .. }
        | CampaignError::Unknown { .. }
        | CampaignError::OtherAnalyzer { .. }
        | CampaignError::Ledger(WriterError::PacketBusy { .. })
        | CampaignError::Consumed { .. } => failure,
        _ => failure
            .cause("what was done is on the disk; nothing will be run again")
            .hint(place.hint(&format!("seal {} --execute", args.packet))),
    }
}
