//! A rehearsal: all of a run on a null program, and every tampered copy of what it left.
//!
//! Invariants:
//! - it takes no marker and no nonce of the ledger: it may be done as often as wanted;
//! - it is green only when the null program's own gates pass, each tampered copy is rejected for
//!   its own reason by both judges, and no timing gate passes or could not have been seen.

use super::finish::bag;
use super::run::{close, execute, open};
use super::{Campaign, CampaignError, Fault, Frozen, REHEARSALS, checks};
use crate::analysis::{Analysis, Kind, Verdict, analyse};
use crate::prereg::Prereg;
use packhouse_bag::seal::{ANALYSIS_FILE, analysis_dir};
use packhouse_bag::write_new::open_or_make_dir;
use packhouse_bag::{Contents, write_new};
use packhouse_ledger::act::Rehearsed;
use packhouse_ledger::{Stage, Writer};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::stat::FileKind;
use std::collections::BTreeMap;

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

/// Who tampers with copies of evidence and has them judged.
pub trait Tamperer {
    /// Tampers in every known way. `evidence` is a packet's folder with bag and analyses, `ledger`
    /// the lines that there are.
    fn tamper(&self, evidence: &Contents, ledger: &[u8]) -> Tampered;
}

/// What became of tampered copies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tampered {
    /// How many there were.
    pub tampers: u64,
    /// How many both judges rejected for the expected reason.
    pub rejected: u64,
    /// The others, in words.
    pub missed: Vec<String>,
}

/// Rehearses a packet, and enters what came of it.
///
/// # Errors
/// When the ledger does not admit a rehearsal of it, or can't be written.
pub fn rehearse(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    frozen: &Frozen,
    tamperer: &dyn Tamperer,
) -> Result<Rehearsal, CampaignError> {
    let started_ns = campaign.lab.clock.steady_ns();
    let analyzer = campaign.lab.host.analyzer()?;
    let mut rehearsal = Rehearsal {
        fault: None,
        analysis: None,
        tampers: 0,
        rejected: 0,
        detectable_ns: None,
        elapsed_ns: 0,
    };
    let all = all(campaign, writer, frozen, tamperer, &mut rehearsal);
    rehearsal.fault = all.err();
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

fn all(
    campaign: &Campaign<'_>,
    writer: &Writer,
    frozen: &Frozen,
    tamperer: &dyn Tamperer,
    rehearsal: &mut Rehearsal,
) -> Result<(), Fault> {
    checks::unchanged(campaign, frozen)?;
    checks::markers(campaign)?;
    let stored = |error: FsError| Fault::new(Stage::FileSystem, error);
    let home = campaign.home(REHEARSALS, frozen.digest).map_err(stored)?;
    empty(&home).map_err(stored)?;
    let told = |error: CampaignError| Fault::new(Stage::Closing, error);
    let nonce = campaign.nonce().map_err(told)?;
    let lines = super::authority(writer.ledger(), frozen.digest);
    let opened = open(campaign, frozen, &home, nonce, Kind::Rehearsal)?;
    let files: [(&str, &[u8]); 1] = [("authority.jsonl", &lines)];
    let ran = execute(campaign, frozen, nonce, Kind::Rehearsal, opened, &files);
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
    rehearsal.analysis = Some(analysis);
    if let Some(fault) = broke {
        return Err(fault);
    }
    bag_is_good?;
    tampered(&home, writer, tamperer, rehearsal)
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

fn tampered(
    home: &Dir,
    writer: &Writer,
    tamperer: &dyn Tamperer,
    rehearsal: &mut Rehearsal,
) -> Result<(), Fault> {
    let evidence = Contents::read(home);
    let evidence = evidence.map_err(|error| Fault::new(Stage::Analysis, error))?;
    let tampered = tamperer.tamper(&evidence, writer.ledger().bytes());
    (rehearsal.tampers, rehearsal.rejected) = (tampered.tampers, tampered.rejected);
    let missed = tampered.missed.len();
    match tampered.missed.first() {
        None if tampered.rejected == tampered.tampers => Ok(()),
        first => {
            let first = first.map_or("no word of which", String::as_str);
            let reason =
                format!("{missed} tampered copies were not rejected as they must be: {first}");
            Err(Fault::new(Stage::Analysis, reason))
        }
    }
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
