//! Whether a packet's newest rehearsal still says something about this host, now.
//!
//! Specified in `docs/format/lab.md`, section 6.

use crate::world::Lab;
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_ledger::{Act, Ledger, Stage};

/// What a rehearsal is compared with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Now {
    /// Digest of the program that would run.
    pub analyzer: Digest,
    /// The boot that it would run in.
    pub boot: String,
    /// Now by the wall clock, nanoseconds since 1970.
    pub wall_ns: i64,
}

/// Why no rehearsal counts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stale {
    /// The ledger does not know the packet.
    #[error("packet {packet} is not registered here")]
    Unknown {
        /// The packet.
        packet: Digest,
    },
    /// There was none.
    #[error("it was never rehearsed")]
    None,
    /// The newest is not green.
    #[error(
        "its newest rehearsal (entry {entry}) is not green: {}: {reason}",
        stage.map_or("no stage", Stage::as_str)
    )]
    NotGreen {
        /// Its entry.
        entry: u64,
        /// Where it went wrong.
        stage: Option<Stage>,
        /// Why.
        reason: String,
    },
    /// Another program rehearsed it.
    #[error("its rehearsal (entry {entry}) was by program {rehearsed}, and this one is {now}")]
    Analyzer {
        /// Its entry.
        entry: u64,
        /// Digest of the program then.
        rehearsed: Digest,
        /// Digest of the program now.
        now: Digest,
    },
    /// The host was restarted, or it is another one.
    #[error("its rehearsal (entry {entry}) was in boot {rehearsed}, and this one is {now}")]
    Boot {
        /// Its entry.
        entry: u64,
        /// The boot then.
        rehearsed: String,
        /// The boot now.
        now: String,
    },
    /// Too long ago.
    #[error("its rehearsal (entry {entry}) is {age_s} s old, at most {max_s} s are fresh")]
    Old {
        /// Its entry.
        entry: u64,
        /// Its age, in seconds.
        age_s: u64,
        /// The oldest that is fresh, in seconds.
        max_s: u64,
    },
    /// In the future by the wall clock, which was set back.
    #[error("its rehearsal (entry {entry}) is {ahead_s} s ahead of the clock, which went back")]
    Ahead {
        /// Its entry.
        entry: u64,
        /// How far, in seconds.
        ahead_s: u64,
    },
}

impl Now {
    /// What is so on this host.
    ///
    /// # Errors
    /// When the host can't say it.
    pub fn of(lab: &Lab<'_>) -> Result<Self, crate::world::HostError> {
        Ok(Self {
            analyzer: lab.host.analyzer()?,
            boot: lab.host.boot_id()?,
            wall_ns: lab.clock.wall_ns(),
        })
    }
}

impl Stale {
    /// Says whose side it is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Unknown { .. } | Self::None | Self::NotGreen { .. } | Self::Old { .. } => {
                Blame::Caller
            }
            Self::Analyzer { .. } | Self::Boot { .. } | Self::Ahead { .. } => Blame::Host,
        }
    }
}

/// The index of a packet's newest rehearsal.
///
/// # Errors
/// When it is not green, of another program or boot, older than `max_age_s`, or of the future.
pub fn fresh(ledger: &Ledger, packet: Digest, now: &Now, max_age_s: u64) -> Result<u64, Stale> {
    let state = ledger.state().packets().get(&packet);
    let state = state.ok_or(Stale::Unknown { packet })?;
    let newest = state.rehearsals.last().copied().ok_or(Stale::None)?;
    let found = usize::try_from(newest).ok();
    let found = found.and_then(|index| ledger.entries().get(index));
    let (entry, rehearsed) = match found.map(|entry| (entry, &entry.act)) {
        Some((entry, Act::Rehearsed(rehearsed))) => (entry, rehearsed),
        Some(_) | None => return Err(Stale::None),
    };
    if !rehearsed.green {
        return Err(Stale::NotGreen {
            entry: newest,
            stage: rehearsed.stage,
            reason: rehearsed.reason.clone(),
        });
    }
    if rehearsed.analyzer != now.analyzer {
        return Err(Stale::Analyzer {
            entry: newest,
            rehearsed: rehearsed.analyzer,
            now: now.analyzer,
        });
    }
    if entry.boot != now.boot {
        return Err(Stale::Boot {
            entry: newest,
            rehearsed: entry.boot.clone(),
            now: now.boot.clone(),
        });
    }
    let age_ns = i128::from(now.wall_ns) - i128::from(entry.at_ns);
    if age_ns < 0 {
        let ahead_s = whole_seconds(-age_ns);
        return Err(Stale::Ahead {
            entry: newest,
            ahead_s,
        });
    }
    if age_ns > i128::from(max_age_s) * SECOND_NS {
        return Err(Stale::Old {
            entry: newest,
            age_s: whole_seconds(age_ns),
            max_s: max_age_s,
        });
    }
    Ok(newest)
}

/// Seconds, a started one counted.
fn whole_seconds(duration_ns: i128) -> u64 {
    u64::try_from((duration_ns + SECOND_NS - 1) / SECOND_NS).unwrap_or(u64::MAX)
}

const SECOND_NS: i128 = 1_000_000_000;
