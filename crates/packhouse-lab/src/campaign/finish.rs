//! From a closed bag to a sealed packet: `closed`, analysis, seal, signature, `sealed`.
//!
//! Invariants:
//! - each step may be done again after a kill and finds what it made before;
//! - no program is started, and the bag is the one that the ledger closed.

use super::frozen::{Frozen, authority, standing};
use super::{Campaign, CampaignError, EVIDENCE, Fault};
use crate::analysis::{Analysis, analyse};
use crate::evidence::RunRecord;
use crate::packet::Packet;
use packhouse_bag::seal::{
    ANALYSIS_FILE, SEAL_BYTES_MAX, Statement, analysis_dir, envelope_name, seal_name,
};
use packhouse_bag::write_new::open_or_make_dir;
use packhouse_bag::{BAG_DIR, Contents, DATA_DIR, OPEN_DIR, check, dsse, write_new};
use packhouse_base::digest::Digest;
use packhouse_ledger::act::{Closed, Sealed};
use packhouse_ledger::state::Standing;
use packhouse_ledger::{Act, Ledger, Stage, Verdict, Writer};
use packhouse_sys::fs::{Dir, FsErrorKind};

/// A sealed packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The first analysis.
    pub analysis: Analysis,
    /// SHA-256 of the seal.
    pub seal: Digest,
    /// Where the run broke off, if it did.
    pub fault: Option<Fault>,
}

/// Analyses and seals a closed bag.
///
/// # Errors
/// When this is not the program that the packet froze, when the bag is not valid or not the one
/// that was closed, or something can't be written; it may be called again then.
pub fn finish(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    packet: Digest,
) -> Result<Finished, CampaignError> {
    writer.wake(campaign.lab.clock)?;
    let analyzer = own_analyzer(campaign, writer.ledger(), packet)?;
    let home = campaign.home(EVIDENCE, packet)?;
    let contents = bag(&home)?;
    let bag = contents.digest().unwrap_or(Digest::from_bytes([0; 32]));
    if standing(writer.ledger(), packet)?.standing == Standing::Consumed {
        is_of_this_run(writer.ledger(), packet, &contents, &home)?;
        campaign.append(writer, Closed { packet, bag })?;
    }
    is_closed(writer.ledger(), packet, bag, &home)?;
    let analysis = analyse(&contents, analyzer, campaign.recipes);
    let bytes = analysis.render();
    let folder = open_or_make_dir(&home, &analysis_dir(1))?;
    write_new(&folder, ANALYSIS_FILE, &bytes)?;
    let statement = statement(writer.ledger(), &home, packet, &analysis, 1)?;
    let seal = statement.render();
    write_new(&home, &seal_name(1), &seal)?;
    if let Some(key) = campaign.key {
        write_new(&home, &envelope_name(1), &dsse::sign(&seal, key))?;
    }
    let fault = fault(&contents, &analysis);
    if standing(writer.ledger(), packet)?.standing == Standing::Closed {
        campaign.append(
            writer,
            Sealed {
                packet,
                verdict: verdict(&analysis),
                bag,
                analysis: Digest::of(&bytes),
                seal: Digest::of(&seal),
                number: 1,
                stage: fault.as_ref().map(|fault| fault.stage),
                reason: fault
                    .as_ref()
                    .map_or_else(String::new, |fault| fault.reason.clone()),
            },
        )?;
    }
    super::forget(campaign, packet);
    Ok(Finished {
        analysis,
        seal: Digest::of(&seal),
        fault,
    })
}

/// This program's digest, if it is the one that the packet froze: no other may give the first
/// verdict, or whoever doesn't like it tries builds until one says something else.
pub(crate) fn own_analyzer(
    campaign: &Campaign<'_>,
    ledger: &Ledger,
    packet: Digest,
) -> Result<Digest, CampaignError> {
    let expected = match packet_in_bag(campaign, packet) {
        Some(document) => document.analyzer,
        None => Frozen::load(campaign, ledger, packet)?.packet.analyzer,
    };
    let actual = campaign.lab.host.analyzer()?;
    if actual == expected {
        return Ok(actual);
    }
    Err(CampaignError::OtherAnalyzer {
        packet,
        expected,
        actual,
    })
}

/// The packet in its bag, open or closed, if it is there and the packet.
fn packet_in_bag(campaign: &Campaign<'_>, packet: Digest) -> Option<Packet> {
    let evidence = campaign.lab.root.open_dir(EVIDENCE).ok()?;
    let home = evidence.open_dir(packet.to_string()).ok()?;
    let bag = home.open_dir(BAG_DIR).or_else(|_| home.open_dir(OPEN_DIR));
    let data = bag.and_then(|bag| bag.open_dir(DATA_DIR)).ok()?;
    let bytes = data
        .read_small("packet.json", crate::DOCUMENT_BYTES_MAX as u64)
        .ok()?;
    let document = Packet::parse(&bytes).ok()?;
    (Digest::of(&bytes) == packet).then_some(document)
}

/// Whether a closed bag is the one that the ledger consumed the packet for: nonce, marker and lines
/// of the ledger. Another run's, of another copy of the lab, is as good a bag.
fn is_of_this_run(
    ledger: &Ledger,
    packet: Digest,
    contents: &Contents,
    home: &Dir,
) -> Result<(), CampaignError> {
    let run = contents.get("data/run.json").map(RunRecord::parse);
    let run = run.and_then(Result::ok);
    let run = run.is_some_and(|run| {
        let nonce = ledger
            .state()
            .packets()
            .get(&packet)
            .and_then(|state| state.nonce);
        run.packet == packet && Some(run.nonce) == nonce
    });
    let consumed = ledger.entries().iter().find_map(|entry| match &entry.act {
        Act::Consumed(consumed) if consumed.packet == packet => Some(consumed.marker),
        _ => None,
    });
    // Without one it is an abort of a run whose marker is elsewhere.
    let marker = contents.get("data/marker.json");
    let lines = contents.get("data/authority.jsonl").unwrap_or_default();
    let parts = [
        ("run.json", run),
        (
            "marker.json",
            marker.is_none_or(|bytes| consumed == Some(Digest::of(bytes))),
        ),
        ("authority.jsonl", lines == authority(ledger, packet)),
    ];
    match parts.iter().find(|(_, is_ours)| !is_ours) {
        None => Ok(()),
        Some((name, _)) => Err(CampaignError::BrokenBag {
            path: home.path().join(BAG_DIR),
            why: format!("the bag of another run: its {name} is not this ledger's"),
        }),
    }
}

/// A closed bag, if it is valid.
pub(crate) fn bag(home: &Dir) -> Result<Contents, CampaignError> {
    let folder = home.open_dir(BAG_DIR)?;
    // Whoever closed it may have been killed before its name was durable.
    home.sync()?;
    let contents = Contents::read(&folder)?;
    match check(&contents) {
        Ok(()) => Ok(contents),
        Err(faults) => Err(CampaignError::BrokenBag {
            path: folder.path().to_owned(),
            why: faults.first().map_or_else(String::new, ToString::to_string),
        }),
    }
}

/// Where an aborted run broke off, for the ledger.
fn fault(contents: &Contents, analysis: &Analysis) -> Option<Fault> {
    if analysis.verdict != crate::analysis::Verdict::Abort {
        return None;
    }
    let record = contents.get("data/run.json").map(RunRecord::parse);
    let told = record
        .and_then(Result::ok)
        .and_then(|run| run.stage.zip(run.reason));
    let told = told.map(|(stage, reason)| Fault::new(stage, reason));
    Some(told.unwrap_or_else(|| Fault::new(Stage::Closing, "the bag has no readable run.json")))
}

pub(super) fn is_closed(
    ledger: &Ledger,
    packet: Digest,
    actual: Digest,
    home: &Dir,
) -> Result<(), CampaignError> {
    match standing(ledger, packet)?.bag {
        Some(expected) if expected != actual => Err(CampaignError::OtherBag {
            path: home.path().join(BAG_DIR),
            expected,
            actual,
        }),
        Some(_) | None => Ok(()),
    }
}

/// The seal's statement: the one that is there already, if it is of this bag and analysis and cites
/// a head of this ledger.
pub(super) fn statement(
    ledger: &Ledger,
    home: &Dir,
    packet: Digest,
    analysis: &Analysis,
    number: u64,
) -> Result<Statement, CampaignError> {
    let new = Statement {
        packet,
        bag: analysis.bag,
        analysis: analysis.digest(),
        number,
        verdict: seal_verdict(analysis),
        ledger_head: ledger.head(),
        analyzer: analysis.analyzer,
        lab: ledger.state().id(),
    };
    let path = home.path().join(seal_name(number));
    let other = |why: String| CampaignError::OtherSeal {
        path: path.clone(),
        why,
    };
    let bytes = match home.read_small(seal_name(number), SEAL_BYTES_MAX as u64) {
        Err(error) if error.kind == FsErrorKind::NotFound => return Ok(new),
        read => read?,
    };
    let there = Statement::parse(&bytes).map_err(|error| other(error.to_string()))?;
    let head = there.ledger_head;
    let is_known = ledger.entries().iter().any(|entry| entry.digest == head);
    let same = Statement {
        ledger_head: head,
        ..new
    };
    match (same == there, is_known) {
        (true, true) => Ok(there),
        (true, false) => Err(other(format!(
            "its ledger head {head} is not in this ledger"
        ))),
        (false, _) => Err(other(
            "bag, analysis, verdict or analyzer differ".to_owned(),
        )),
    }
}

fn verdict(analysis: &Analysis) -> Verdict {
    match analysis.verdict {
        crate::analysis::Verdict::Pass => Verdict::Pass,
        crate::analysis::Verdict::Fail => Verdict::Fail,
        crate::analysis::Verdict::Abort => Verdict::Abort,
    }
}

fn seal_verdict(analysis: &Analysis) -> packhouse_bag::seal::Verdict {
    use packhouse_bag::seal::Verdict;
    match analysis.verdict {
        crate::analysis::Verdict::Pass => Verdict::Pass,
        crate::analysis::Verdict::Fail => Verdict::Fail,
        crate::analysis::Verdict::Abort => Verdict::Abort,
    }
}
