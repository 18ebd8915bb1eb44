//! A rehearsal: all of a run on a null program, and every tampered copy of what it left.
//!
//! Invariants:
//! - it takes no marker and no nonce of the ledger: it may be done as often as wanted;
//! - it is green only when the null program's own gates pass, each tampered copy is rejected for
//!   its own reason by both judges, and no timing gate passes or could not have been seen.

use super::able::{is_able, last_words};
use super::finish::bag;
use super::legs::{INTERRUPTED, SECOND_NS};
use super::run::{close, execute, open};
use super::would::is_consumed;
use super::{Campaign, CampaignError, Fault, Frozen, REHEARSALS, Step, before, checks, devices};
use crate::analysis::{Analysis, Kind, Verdict, analyse};
use crate::noise;
use crate::prereg::{Prereg, Treatment};
use crate::recipes::challenge;
use crate::schedule::schedule;
use crate::sessions::{Ending, Terms};
use crate::tamper::{self, Judge, Outcome, OwnJudge};
use crate::verify::Evidence;
use crate::world::HostError;
use packhouse_bag::seal::{ANALYSIS_FILE, analysis_dir};
use packhouse_bag::write_new::open_or_make_dir;
use packhouse_bag::{Contents, write_new};
use packhouse_base::canonical::render;
use packhouse_base::digest::Digest;
use packhouse_component::drive::{Event, Tap};
use packhouse_ledger::act::Rehearsed;
use packhouse_ledger::{Act, Ledger, Stage, Writer, WriterError};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// What came of a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rehearsal {
    /// Why it is not green, if it is not.
    pub fault: Option<Fault>,
    /// What the analysis says, where it came so far.
    pub analysis: Option<Analysis>,
    /// Tampered copies.
    pub tampers: u64,
    /// Those that both judges rejected for the expected reason.
    pub rejected: u64,
    /// Device to the smallest saving that its timing leg could have told from none.
    pub detectable_ns: Option<BTreeMap<String, u64>>,
    /// How long it took.
    pub elapsed_ns: u64,
}

/// Rehearses a packet, and enters what came of it. `second` judges tampered copies beside our own
/// analyzer.
///
/// # Errors
/// When the ledger does not admit a rehearsal of it, or can't be written.
pub fn rehearse(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    frozen: &Frozen,
    second: &dyn Judge,
) -> Result<Rehearsal, CampaignError> {
    let started_ns = campaign.lab.clock.steady_ns();
    let analyzer = campaign.lab.host.analyzer()?;
    let _hold = writer.hold_packet(frozen.digest, campaign.lab.clock)?;
    admitted(writer.ledger(), frozen.digest, analyzer)?;
    if is_consumed(campaign, frozen.digest)? {
        return Err(CampaignError::Consumed {
            packet: frozen.digest,
        });
    }
    let mut rehearsal = Rehearsal {
        fault: None,
        analysis: None,
        tampers: 0,
        rejected: 0,
        detectable_ns: None,
        elapsed_ns: 0,
    };
    writer.rest();
    let all = all(campaign, writer, frozen, second, &mut rehearsal);
    rehearsal.fault = all.err();
    if is_over_while_tampered(campaign, &rehearsal) {
        return Err(CampaignError::Refused(Fault::new(
            Stage::Analysis,
            INTERRUPTED,
        )));
    }
    rehearsal.elapsed_ns = campaign.lab.clock.steady_ns().saturating_sub(started_ns);
    let fault = rehearsal.fault.as_ref();
    let act = Rehearsed {
        packet: frozen.digest,
        green: fault.is_none(),
        stage: fault.map(|fault| fault.stage),
        reason: fault.map_or_else(String::new, |fault| fault.reason.clone()),
        bag: rehearsal.analysis.as_ref().map(|analysis| analysis.bag),
        analysis: rehearsal.analysis.as_ref().map(Analysis::digest),
        analyzer,
        tampers: rehearsal.tampers,
        rejected: rehearsal.rejected,
        elapsed_ns: rehearsal.elapsed_ns,
        detectable_ns: rehearsal.detectable_ns.clone(),
    };
    campaign.append(writer, act)?;
    Ok(rehearsal)
}

/// Whether this process was told to end before all tampered copies were judged, and nothing is
/// known of the noise: what is entered of a rehearsal says something of the packet, and this would
/// not. Noise that was measured is entered: else who finds it too loud could end the rehearsal.
fn is_over_while_tampered(campaign: &Campaign<'_>, rehearsal: &Rehearsal) -> bool {
    let fault = rehearsal.fault.as_ref();
    (campaign.interrupted)()
        && rehearsal.tampers == 0
        && rehearsal.detectable_ns.is_none()
        && fault.is_some_and(|f| f.reason == INTERRUPTED)
}

/// Whether the ledger admits a rehearsal: asked before anything is run.
pub(super) fn admitted(
    ledger: &Ledger,
    packet: Digest,
    analyzer: Digest,
) -> Result<(), CampaignError> {
    let act = Rehearsed {
        packet,
        green: false,
        stage: Some(Stage::Rehearsal),
        reason: "asked before it is run".to_owned(),
        bag: None,
        analysis: None,
        analyzer,
        tampers: 0,
        rejected: 0,
        elapsed_ns: 0,
        detectable_ns: None,
    };
    let accepted = ledger.accepts(&Act::from(act));
    accepted.map_err(|fault| CampaignError::Ledger(WriterError::Refused(fault)))
}

/// What must hold of a packet before any of its programs is started.
pub(super) fn ready(
    campaign: &Campaign<'_>,
    ledger: &Ledger,
    frozen: &Frozen,
) -> Result<(), Fault> {
    checks::unchanged(campaign, frozen)?;
    devices::free(campaign, frozen)?;
    checks::markers(campaign)?;
    // A number that an earlier rehearsal has shown to be within the noise stays so.
    let above = noise::is_above(ledger, (frozen.digest, frozen.prereg()), None);
    above.map_err(|within| Fault::new(Stage::Rehearsal, within))
}

fn all(
    campaign: &Campaign<'_>,
    writer: &Writer,
    frozen: &Frozen,
    second: &dyn Judge,
    rehearsal: &mut Rehearsal,
) -> Result<(), Fault> {
    ready(campaign, writer.ledger(), frozen)?;
    let stored = |error: FsError| Fault::new(Stage::FileSystem, error);
    let home = campaign.home(REHEARSALS, frozen.digest).map_err(stored)?;
    empty(&home).map_err(stored)?;
    let told = |error: CampaignError| Fault::new(Stage::Closing, error);
    let nonce = campaign.nonce().map_err(told)?;
    let lines = super::authority(writer.ledger(), frozen.digest);
    greeted(campaign, frozen, nonce)?;
    let opened = open(campaign, frozen, &home, nonce, Kind::Rehearsal)?;
    let files: [(&str, &[u8]); 1] = [("authority.jsonl", &lines)];
    let ran = execute(
        campaign,
        frozen,
        (nonce, nonce),
        Kind::Rehearsal,
        opened,
        &files,
    );
    let (recorder, run) = ran?;
    let broke = run.fault.clone();
    close(campaign, &home, recorder, &run)?;
    let contents = bag(&home).map_err(told)?;
    let analyzer = campaign.lab.host.analyzer();
    let analyzer = analyzer.map_err(|error| Fault::new(Stage::Analysis, error))?;
    let analysis = analyse(&contents, analyzer, campaign.recipes);
    let written = open_or_make_dir(&home, &analysis_dir(1))
        .map_err(stored)
        .map(|folder| write_new(&folder, ANALYSIS_FILE, &analysis.render()))?;
    written.map_err(|error| Fault::new(Stage::Analysis, error))?;
    let bag_is_good = judged(&analysis, frozen.prereg());
    rehearsal.detectable_ns = noise::detectable_ns(&analysis.timing);
    let noise_is_less = is_above_noise(writer.ledger(), frozen, rehearsal);
    rehearsal.analysis = Some(analysis);
    if let Some(fault) = broke {
        return Err(fault);
    }
    bag_is_good?;
    noise_is_less?;
    tampered(campaign, (&home, writer), second, rehearsal)
}

/// Starts the candidate itself, to its hello and bye: no case is asked of it before its marker.
/// What it can't do, and what it has mapped that is not frozen, is better found here than in its
/// one run.
fn greeted(campaign: &Campaign<'_>, frozen: &Frozen, nonce: Digest) -> Result<(), Fault> {
    let candidate = Treatment::Candidate;
    let fault = |stage, reason: String| Fault::new(stage, format!("candidate: {reason}"));
    let launch = frozen.launch(campaign, candidate, false)?;
    let terms = Terms {
        challenge: challenge(nonce, 0),
        case_ns: frozen.prereg().case_timeout_s.saturating_mul(SECOND_NS),
    };
    let tap = Box::new(Unheard(campaign.interrupted));
    let mut family = campaign.sessions.family();
    let session = campaign.sessions.start(&launch, terms, tap);
    let session = session.map_err(|broken| fault(Stage::Hello, last_words(&broken)))?;
    let judged_by = (candidate, &frozen.prereg().gates[..]);
    for plan in schedule(frozen.prereg(), campaign.recipes) {
        if plan.treatments().contains(&candidate) {
            let able = is_able(&plan, judged_by, session.introduction());
            able.map_err(|reason| fault(Stage::Discovery, reason))?;
        }
    }
    before::mapped(campaign, frozen, (candidate, false), session.pid())?;
    let gone = session.bye();
    match gone
        .map_err(|broken| fault(Stage::Hello, last_words(&broken)))?
        .exit
    {
        // Nothing of it is there when the rehearsal's first leg begins.
        Ending::Code(0) => family
            .end()
            .map(drop)
            .map_err(|left| fault(Stage::Hello, left)),
        other => Err(fault(
            Stage::Hello,
            format!("it ended with {other} after bye"),
        )),
    }
}

/// Who keeps nothing of a session.
struct Unheard(fn() -> bool);

impl Tap for Unheard {
    fn told(&mut self, _: &Event<'_>) {}

    fn is_over(&self) -> bool {
        (self.0)()
    }
}

/// What the analysis of a null program must say.
fn judged(analysis: &Analysis, prereg: &Prereg) -> Result<(), Fault> {
    let fault = |reason: String| Err(Fault::new(Stage::Analysis, reason));
    if analysis.verdict != Verdict::Pass {
        let failed = analysis.gates.iter();
        let failed = failed.filter(|gate| gate.decides && gate.passed != Some(true));
        let words = failed.map(|gate| {
            let first = gate.failures.first().map_or("not reached", String::as_str);
            format!("gate {} ({first})", gate.gate)
        });
        let words: Vec<String> = words.collect();
        return fault(format!(
            "the null program does not pass: {}",
            words.join("; ")
        ));
    }
    // A gate that nothing passes is none, and so is one that the control itself passes.
    let timing = analysis.gate("timing").filter(|_| prereg.has_timing());
    if timing.is_some_and(|gate| gate.passed == Some(true)) {
        return fault("the timing gate passes a null program: it is within the noise".to_owned());
    }
    Ok(())
}

/// Has every tampered copy judged, and the evidence as it is.
fn tampered(
    campaign: &Campaign<'_>,
    (home, writer): (&Dir, &Writer),
    second: &dyn Judge,
    rehearsal: &mut Rehearsal,
) -> Result<(), Fault> {
    let fault = |reason: String| Err(Fault::new(Stage::Analysis, reason));
    let files = Contents::read(home);
    let evidence = Evidence {
        files: files.map_err(|error| Fault::new(Stage::Analysis, error))?,
        links: BTreeSet::new(),
        ledger: Some(with_green(campaign, writer, rehearsal)?.into()),
    };
    let own = OwnJudge(campaign.recipes);
    let judges: [&dyn Judge; 2] = [&own, second];
    for judge in judges {
        let codes: Vec<String> = judge.codes(&evidence).into_iter().collect();
        if !codes.is_empty() {
            let codes = codes.join(", ");
            return fault(format!(
                "{} rejects what is as it was written: {codes}",
                judge.name()
            ));
        }
    }
    let outcomes = tamper::run_unless(&evidence, &judges, campaign.interrupted, &|done, total| {
        (campaign.progress)(Step::Copy { done, total });
    });
    let Some(outcomes) = outcomes else {
        return fault(INTERRUPTED.to_owned());
    };
    let missed: Vec<&Outcome> = outcomes.iter().filter(|one| !one.is_rejected()).collect();
    rehearsal.tampers = outcomes.len() as u64;
    rehearsal.rejected = (outcomes.len() - missed.len()) as u64;
    match missed.first() {
        None => Ok(()),
        Some(first) => {
            let count = missed.len();
            fault(format!(
                "{count} tampered copies are not rejected as they must be: {first}"
            ))
        }
    }
}

/// The ledger as it will be if the rehearsal is green: what judges compare the evidence with.
fn with_green(
    campaign: &Campaign<'_>,
    writer: &Writer,
    rehearsal: &Rehearsal,
) -> Result<Vec<u8>, Fault> {
    let told = |error: HostError| Fault::new(Stage::Analysis, error);
    let (ledger, analysis) = (writer.ledger(), rehearsal.analysis.as_ref());
    let packet = analysis.map_or(Digest::from_bytes([0; 32]), |analysis| analysis.packet);
    let act = Act::from(Rehearsed {
        packet,
        green: true,
        stage: None,
        reason: String::new(),
        bag: analysis.map(|analysis| analysis.bag),
        analysis: analysis.map(Analysis::digest),
        analyzer: campaign.lab.host.analyzer().map_err(told)?,
        tampers: 1,
        rejected: 1,
        elapsed_ns: 0,
        detectable_ns: rehearsal.detectable_ns.clone(),
    });
    let line = render(&json!({
        "at_ns": campaign.lab.clock.wall_ns(),
        "body": act.body(),
        "boot": campaign.lab.host.boot_id().map_err(told)?,
        "index": ledger.entries().len(),
        "kind": act.kind(),
        "previous": ledger.head().to_string(),
        "schema": packhouse_ledger::entry::SCHEMA,
    }));
    Ok([ledger.bytes(), &line].concat())
}

/// Whether the timing gate asks for more than the noise of this rehearsal, and of each before it.
fn is_above_noise(ledger: &Ledger, frozen: &Frozen, rehearsal: &Rehearsal) -> Result<(), Fault> {
    let prereg = frozen.prereg();
    let newest = rehearsal.detectable_ns.as_ref();
    if prereg.has_timing() && newest.is_none() {
        let reason = "nothing is known of the noise: there are no blocks to make figures of";
        return Err(Fault::new(Stage::Rehearsal, reason));
    }
    let above = noise::is_above(ledger, (frozen.digest, prereg), newest);
    above.map_err(|within| Fault::new(Stage::Rehearsal, within))
}

/// Removes what an earlier rehearsal left.
fn empty(dir: &Dir) -> Result<(), FsError> {
    for name in dir.list()? {
        if dir.stat_entry(&name)?.kind == FileKind::Directory {
            empty(&dir.open_dir(&name)?)?;
            dir.remove_dir(&name)?;
        } else {
            match dir.unlink(&name) {
                Err(error) if error.kind != FsErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
    }
    dir.sync()
}
