//! Analysing a sealed bag again: same bag, same thresholds, another analyzer.
//!
//! Invariants:
//! - the bag is the one that the ledger closed, and the preregistration is the one in it: no other
//!   threshold can take part;
//! - no program is started, no marker and no nonce is taken;
//! - what earlier analyses found stays where it is, and the first verdict stays the packet's;
//! - done again after a kill, it goes on.

use super::finish::{bag, is_closed, statement};
use super::frozen::standing;
use super::{Campaign, CampaignError, EVIDENCE};
use crate::analysis::{Analysis, Verdict, analyse};
use packhouse_bag::seal::{ANALYSIS_FILE, analysis_dir, envelope_name, seal_name};
use packhouse_bag::write_new::open_or_make_dir;
use packhouse_bag::{dsse, write_new};
use packhouse_base::digest::Digest;
use packhouse_ledger::act::Analysed;
use packhouse_ledger::{Ledger, Writer};
use packhouse_sys::fs::Dir;

/// What analysing again comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Again {
    /// Its number.
    pub number: u64,
    /// What this program makes of the bag.
    pub analysis: Analysis,
    /// The first verdict, which stays the packet's.
    pub first: Verdict,
    /// The verdict of the newest analysis so far.
    pub newest: Verdict,
    /// The number of the analysis that this very program made before, to the same bytes: then there
    /// is nothing to do.
    pub made_before: Option<u64>,
}

/// Says what analysing again would come to. Writes nothing.
///
/// # Errors
/// When the packet is not sealed, its bag is not the one that was closed, or an earlier analysis is
/// not the one that the ledger cites.
pub fn would_be(
    campaign: &Campaign<'_>,
    ledger: &Ledger,
    packet: Digest,
) -> Result<Again, CampaignError> {
    let state = standing(ledger, packet)?;
    let (Some(first), Some(newest)) = (state.analyses.first(), state.analyses.last()) else {
        return Err(CampaignError::Standing {
            packet,
            expected: "sealed",
            actual: state.standing.as_str(),
        });
    };
    let home = campaign
        .lab
        .root
        .open_dir(EVIDENCE)?
        .open_dir(packet.to_string())?;
    let contents = bag(&home)?;
    let digest = contents.digest().unwrap_or(Digest::from_bytes([0; 32]));
    is_closed(ledger, packet, digest, &home)?;
    let analyzer = campaign.lab.host.analyzer()?;
    let analysis = analyse(&contents, analyzer, campaign.recipes);
    let mut made_before = None;
    for cited in &state.analyses {
        let stored = stored(&home, cited.number, cited.analysis)?;
        if stored.analyzer != analyzer {
            continue;
        }
        if stored != analysis {
            return Err(CampaignError::OtherAnalysis {
                path: home
                    .path()
                    .join(analysis_dir(cited.number))
                    .join(ANALYSIS_FILE),
                why: "this very program makes another one of the same bag".to_owned(),
            });
        }
        made_before = Some(cited.number);
    }
    Ok(Again {
        number: newest.number + 1,
        analysis,
        first: first.verdict,
        newest: newest.verdict,
        made_before,
    })
}

/// Analyses again, seals it and enters it. Where this very program made the same before, nothing is
/// written.
///
/// # Errors
/// As [`would_be`], and when something can't be written; it may be called again then.
pub fn reanalyse(
    campaign: &Campaign<'_>,
    writer: &mut Writer,
    packet: Digest,
    why: &str,
) -> Result<Again, CampaignError> {
    let again = would_be(campaign, writer.ledger(), packet)?;
    if again.made_before.is_some() {
        return Ok(again);
    }
    let (number, analysis) = (again.number, &again.analysis);
    let home = campaign.home(EVIDENCE, packet)?;
    let bytes = analysis.render();
    let folder = open_or_make_dir(&home, &analysis_dir(number))?;
    write_new(&folder, ANALYSIS_FILE, &bytes)?;
    let seal = statement(writer.ledger(), &home, packet, analysis, number)?.render();
    write_new(&home, &seal_name(number), &seal)?;
    if let Some(key) = campaign.key {
        write_new(&home, &envelope_name(number), &dsse::sign(&seal, key))?;
    }
    let act = Analysed {
        packet,
        number,
        verdict: analysis.verdict,
        bag: analysis.bag,
        analysis: Digest::of(&bytes),
        seal: Digest::of(&seal),
        analyzer: analysis.analyzer,
        why: why.to_owned(),
    };
    campaign.append(writer, act)?;
    Ok(again)
}

/// An earlier analysis, if it is the one that the ledger cites.
fn stored(home: &Dir, number: u64, cited: Digest) -> Result<Analysis, CampaignError> {
    let folder = home.open_dir(analysis_dir(number))?;
    let bytes = folder.read_small(ANALYSIS_FILE, ANALYSIS_BYTES_MAX)?;
    let other = |why: String| CampaignError::OtherAnalysis {
        path: folder.path().join(ANALYSIS_FILE),
        why,
    };
    let actual = Digest::of(&bytes);
    if actual != cited {
        return Err(other(format!("SHA-256 {actual}, the ledger cites {cited}")));
    }
    Analysis::parse(&bytes).map_err(|error| other(error.to_string()))
}

const ANALYSIS_BYTES_MAX: u64 = packhouse_base::canonical::RECORD_BYTES_MAX as u64;
