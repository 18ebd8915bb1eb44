//! Executing a packet: rehearsals as often as wanted, one run, and the sealing of what it left.
//!
//! - `legs`: programs are asked; `recorder`: all of it goes into the bag as it happens;
//! - `run`: the one run; `rehearse`: the same on a null program; `finish`: analysis and seal.
//!
//! Invariants:
//! - nothing is asked of a candidate before its marker, and nothing after a kill;
//! - one process executes a packet, and has the ledger's lock only to append;
//! - a failure before the marker releases the packet, one after it is sealed;
//! - a step is durable before the next begins: what a kill leaves is told by ledger, marker and bag
//!   alone.
//!
//! Never: tries again. The order of steps is in `docs/format/evidence.md`, section 6.

mod able;
mod before;
mod cause;
mod checks;
mod devices;
mod drawn;
mod error;
mod finish;
mod frozen;
mod legs;
mod reanalyse;
mod recorder;
mod rehearse;
mod run;
mod would;

pub use error::{CampaignError, Fault, REASON_BYTES_MAX};
pub use finish::{Finished, finish};
pub use frozen::Frozen;
pub use reanalyse::{Again, reanalyse, would_be};
pub use rehearse::{Rehearsal, rehearse};
pub use run::{Ran, run};
pub use would::{Would, is_consumed, would, would_rehearse};

pub(crate) use cause::{forget, noted};
pub(crate) use checks::{Taken, taken};
pub(crate) use devices::here as devices_here;
pub(crate) use drawn::{asked, put_asked};
pub(crate) use error::cut;
pub(crate) use finish::own_analyzer;
pub(crate) use frozen::{authority, standing};
pub(crate) use recorder::leg_folder;
pub(crate) use run::{ClosedRun, closed_record, release};

use crate::evidence::Instants;
use crate::recipes::{Recipes, draws};
use crate::sessions::Sessions;
use crate::world::Lab;
use packhouse_bag::key::PrivateKey;
use packhouse_base::digest::Digest;
use packhouse_ledger::{Act, Writer};
use packhouse_sys::clock::Clock;
use packhouse_sys::fs::{Dir, FsError};

/// What executing a packet needs.
pub struct Campaign<'a> {
    /// The lab and its host.
    pub lab: &'a Lab<'a>,
    /// Who starts programs.
    pub sessions: &'a dyn Sessions,
    /// Fixtures.
    pub recipes: &'a Recipes,
    /// Whether this process was asked to end.
    pub interrupted: fn() -> bool,
    /// Who hears how far it is.
    pub progress: &'a (dyn Fn(Step) + Sync),
    /// What closes bags, in words: `packhouse 0.1.0`.
    pub software: &'a str,
    /// What seals are signed with, if they are.
    pub key: Option<&'a PrivateKey>,
}

/// How far an execution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A case is asked.
    Case {
        /// The leg, from 1.
        leg: usize,
        /// All of them.
        legs: usize,
        /// The case in it, from 1.
        case: usize,
        /// All of this leg's.
        cases: usize,
    },
    /// A tampered copy was judged.
    Copy {
        /// So many were, with it.
        done: usize,
        /// All of them.
        total: usize,
    },
}

impl Campaign<'_> {
    /// Appends an act to the ledger, now and in this boot, after a rest too.
    pub(crate) fn append(
        &self,
        writer: &mut Writer,
        act: impl Into<Act>,
    ) -> Result<(), CampaignError> {
        let boot = self.lab.host.boot_id()?;
        writer.wake(self.lab.clock)?;
        writer.append(act, self.lab.clock.wall_ns(), &boot)?;
        Ok(())
    }

    /// Thirty-two random bytes.
    pub(crate) fn nonce(&self) -> Result<Digest, CampaignError> {
        Ok(Digest::from_bytes(self.lab.host.random32()?))
    }

    /// The folder of a packet's evidence, made where it is not there.
    pub(crate) fn home(&self, parent: &str, packet: Digest) -> Result<Dir, FsError> {
        let parent = packhouse_bag::write_new::open_or_make_dir(&self.lab.root, parent)?;
        packhouse_bag::write_new::open_or_make_dir(&parent, &packet.to_string())
    }
}

/// Both clocks, now.
pub(crate) fn instants(clock: &dyn Clock) -> Instants {
    Instants {
        wall_ns: clock.wall_ns(),
        steady_ns: clock.steady_ns(),
    }
}

/// The folder of a repeat's fixture in the payload.
pub(crate) fn fixture_folder(fixture: &str, repeat: u64) -> String {
    if repeat > 0 && draws(fixture) {
        return format!("drawn/{fixture}-{repeat}");
    }
    format!("fixtures/{fixture}")
}

/// The folder of sealed evidence in a lab.
pub const EVIDENCE: &str = "evidence";
/// The folder of rehearsals in a lab.
pub const REHEARSALS: &str = "rehearsals";
