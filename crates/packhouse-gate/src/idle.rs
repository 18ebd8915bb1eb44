//! Idle proof: looks at the devices between two legs, all of which must show nobody.
//!
//! - The number of looks and the time that they span are declared.
//! - A look that lacks a device, or shows one twice, is no look; nor is one that shows another's
//!   process.

use packhouse_base::Blame;
use std::collections::BTreeSet;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Looks, exactly.
    pub looks: usize,
    /// From the first look to the last, at least.
    pub span_ns: u64,
    /// Every device.
    pub devices: BTreeSet<String>,
    /// The process of whoever looks.
    pub observer: String,
}

/// One look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The steady clock's reading, in nanoseconds.
    pub at_ns: u64,
    /// Device and owner, one for each row that was shown.
    pub rows: Vec<(String, String)>,
}

/// Why looks prove nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unproved {
    /// Nothing was asked for: no look, no time or no device.
    #[error("nothing is asked for: {looks} looks over {span_ns} ns at {devices} devices")]
    Nothing {
        /// Looks asked for.
        looks: usize,
        /// Their span.
        span_ns: u64,
        /// Devices.
        devices: usize,
    },
    /// There are more or fewer looks.
    #[error("there are {looks} looks, expected {expected}")]
    Count {
        /// Looks there are.
        looks: usize,
        /// Looks asked for.
        expected: usize,
    },
    /// A look is not later than the one before it.
    #[error("look {look} is at {at_ns} ns, the one before it at {before_ns} ns")]
    Order {
        /// The look, counted from 0.
        look: usize,
        /// Its time.
        at_ns: u64,
        /// The time of the one before it.
        before_ns: u64,
    },
    /// All looks together span too little.
    #[error("the looks span {span_ns} ns, at least {least_ns} are needed")]
    Span {
        /// Their span.
        span_ns: u64,
        /// What is needed.
        least_ns: u64,
    },
    /// A device has no row, or several, or is none of those asked for.
    #[error("look {look} shows {device} {rows} times, expected {expected}")]
    Device {
        /// The look, counted from 0.
        look: usize,
        /// The device.
        device: String,
        /// Its rows.
        rows: usize,
        /// 1, or 0 where it is not one of those asked for.
        expected: usize,
    },
    /// A device is somebody's.
    #[error("look {look} shows {owner} on {device}")]
    Owner {
        /// The look, counted from 0.
        look: usize,
        /// The device.
        device: String,
        /// Who has it.
        owner: String,
    },
}

impl Unproved {
    /// Whose side it is on: whoever ran the legs.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Nothing { .. }
            | Self::Count { .. }
            | Self::Order { .. }
            | Self::Span { .. }
            | Self::Device { .. }
            | Self::Owner { .. } => Blame::Caller,
        }
    }
}

impl Idle {
    /// Holds looks against it; the first reason against it is told.
    pub fn prove(&self, looks: &[Look]) -> Result<(), Unproved> {
        if self.looks == 0 || self.span_ns == 0 || self.devices.is_empty() {
            return Err(Unproved::Nothing {
                looks: self.looks,
                span_ns: self.span_ns,
                devices: self.devices.len(),
            });
        }
        if looks.len() != self.looks {
            let (looks, expected) = (looks.len(), self.looks);
            return Err(Unproved::Count { looks, expected });
        }
        for (look, pair) in looks.windows(2).enumerate() {
            let (before_ns, at_ns) = (pair[0].at_ns, pair[1].at_ns);
            if at_ns <= before_ns {
                let look = look + 1;
                return Err(Unproved::Order {
                    look,
                    at_ns,
                    before_ns,
                });
            }
        }
        let span_ns = looks[looks.len() - 1].at_ns - looks[0].at_ns;
        if span_ns < self.span_ns {
            let least_ns = self.span_ns;
            return Err(Unproved::Span { span_ns, least_ns });
        }
        let alone = |(look, one)| self.alone(look, one);
        looks.iter().enumerate().try_for_each(alone)
    }

    fn alone(&self, look: usize, one: &Look) -> Result<(), Unproved> {
        let shown = one.rows.iter().map(|(device, _)| device);
        let all: BTreeSet<&String> = self.devices.iter().chain(shown).collect();
        for device in all {
            let rows = one.rows.iter().filter(|row| row.0 == *device).count();
            let expected = usize::from(self.devices.contains(device));
            if rows != expected {
                let device = device.clone();
                return Err(Unproved::Device {
                    look,
                    device,
                    rows,
                    expected,
                });
            }
        }
        match one.rows.iter().find(|(_, owner)| *owner != self.observer) {
            None => Ok(()),
            Some((device, owner)) => Err(Unproved::Owner {
                look,
                device: device.clone(),
                owner: owner.clone(),
            }),
        }
    }
}
