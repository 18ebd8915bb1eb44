//! What packets froze that are still to be run, measured again, so that a pin that broke is told
//! before somebody needs it. Nothing is run and nothing is written.

use crate::lab_open::Opened;
use packhouse_lab::freeze::{self, FreezeError};
use packhouse_lab::recipes::Recipes;
use packhouse_ledger::Ledger;
use packhouse_ledger::state::{LanePhase, PacketState, Standing};

/// What became of what a packet froze.
pub(crate) struct Measured {
    /// The packet's experiment.
    pub(crate) experiment: String,
    /// What differs, a line each.
    pub(crate) differences: Vec<String>,
    /// False: it can't be told, and the line says why.
    pub(crate) known: bool,
}

/// Measures every packet that is registered, rehearsed, reviewed or armed, in a lane that is not
/// closed: nothing follows in one that is. In the order of their digests.
pub(crate) fn measure(opened: &Opened<'_>, ledger: &Ledger) -> Vec<Measured> {
    let recipes = Recipes::default();
    let lab = opened.lab();
    let is_open = |state: &PacketState| {
        let lane = ledger.state().lanes().get(&state.lane);
        lane.is_some_and(|lane| lane.phase != LanePhase::Closed)
    };
    let packets = ledger.state().packets().iter();
    let waiting = packets.filter(|(_, state)| match state.standing {
        Standing::Registered | Standing::Rehearsed | Standing::Reviewed | Standing::Armed => {
            is_open(state)
        }
        Standing::Withdrawn
        | Standing::Nonce
        | Standing::Consumed
        | Standing::Closed
        | Standing::SealedPass
        | Standing::SealedFail
        | Standing::SealedAbort => false,
    });
    let measured = waiting.map(|(digest, state)| {
        let experiment = state.experiment.as_str();
        let packet = freeze::registered(&lab, experiment, *digest);
        let same = packet.and_then(|packet| freeze::unchanged(&lab, &packet, &recipes));
        let (differences, known) = match same {
            Ok(_) => (Vec::new(), true),
            Err(FreezeError::Changed { differences }) => {
                (differences.iter().map(ToString::to_string).collect(), true)
            }
            Err(error @ (FreezeError::Host(_) | FreezeError::Fs(_))) => {
                (vec![error.to_string()], false)
            }
            Err(error) => (vec![error.to_string()], true),
        };
        Measured {
            experiment: experiment.to_owned(),
            differences,
            known,
        }
    });
    measured.collect()
}
