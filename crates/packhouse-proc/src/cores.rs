//! Sets of CPU cores, as the kernel writes them: `0-3,8`.
//!
//! Invariants:
//! - a set has one text, its `Display`: sorted, with neighbours as ranges;
//! - a core that this kernel could not have is refused, so a set's size is bounded.

use crate::procfs::read;
use packhouse_base::Blame;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A set of core numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CpuSet(BTreeSet<u32>);

/// Why a text is no set of cores.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CpuSetError {
    /// No core is named.
    #[error("no core is named")]
    Empty,
    /// A part that is neither a number nor a range.
    #[error("{part:?} is no core number and no range of them")]
    NotANumber {
        /// The part.
        part: String,
    },
    /// A range whose end is before its start.
    #[error("{part:?} ends before it starts")]
    Reversed {
        /// The range.
        part: String,
    },
    /// A core number beyond the kernel's limit.
    #[error("core {core} is beyond {CORE_MAX}, the last that a kernel has")]
    TooHigh {
        /// The number.
        core: u64,
    },
}

/// Why the cores of this host are not known, or can't be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CoresError {
    /// The kernel's list could not be read.
    #[error("{}: {source}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: Errno,
    },
    /// The kernel's list is in no known form.
    #[error("{}: {source}", path.display())]
    Malformed {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        source: CpuSetError,
    },
    /// A core whose number does not fit the mask that is handed to the kernel.
    #[error(
        "core {core} does not fit the kernel's mask of {} cores",
        rustix::thread::CpuSet::MAX_CPU
    )]
    BeyondMask {
        /// The number.
        core: u32,
    },
    /// The kernel refused the set.
    #[error("cores {cores}: {source}")]
    Refused {
        /// The set.
        cores: CpuSet,
        /// Why.
        source: Errno,
    },
}

impl CpuSetError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        Blame::Caller
    }
}

impl CoresError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        Blame::Host
    }
}

impl CpuSet {
    /// Makes a set of core numbers. Errors on a number beyond the kernel's limit.
    pub fn of(cores: impl IntoIterator<Item = u32>) -> Result<Self, CpuSetError> {
        let cores: BTreeSet<u32> = cores.into_iter().collect();
        match cores.last() {
            Some(last) if *last > CORE_MAX => Err(CpuSetError::TooHigh {
                core: u64::from(*last),
            }),
            Some(_) | None => Ok(Self(cores)),
        }
    }

    /// Parses what a user wrote; the order is free. Errors on an empty text.
    pub fn parse(text: &str) -> Result<Self, CpuSetError> {
        if text.is_empty() {
            return Err(CpuSetError::Empty);
        }
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (core_of(first, part)?, core_of(last, part)?);
            if last < first {
                return Err(CpuSetError::Reversed { part: part.into() });
            }
            ranges.push((first, last));
        }
        // Each core is put in once, however many ranges have it.
        ranges.sort_unstable();
        let (mut cores, mut next) = (BTreeSet::new(), 0);
        for (first, last) in ranges {
            cores.extend(first.max(next)..=last);
            next = next.max(last + 1);
        }
        Ok(Self(cores))
    }

    /// Parses a list that the kernel wrote: it ends in a newline, and a NUMA node may have no core.
    pub fn parse_kernel_list(text: &str) -> Result<Self, CpuSetError> {
        match text.strip_suffix('\n').unwrap_or(text) {
            "" => Ok(Self::default()),
            line => Self::parse(line),
        }
    }

    /// The cores that are online, by the kernel's folder of devices (`/sys`).
    pub fn online(sys: &Path) -> Result<Self, CoresError> {
        let path = sys.join("devices/system/cpu/online");
        let bytes = read::path(&path).map_err(|source| CoresError::Read {
            path: path.clone(),
            source,
        })?;
        Self::parse_kernel_list(&String::from_utf8_lossy(&bytes))
            .map_err(|source| CoresError::Malformed { path, source })
    }

    /// Binds the calling thread, and what it starts from now on, to these cores.
    pub fn bind_this_thread(&self) -> Result<(), CoresError> {
        let mut mask = rustix::thread::CpuSet::new();
        for core in self.iter() {
            let bit = usize::try_from(core).expect("because usize has 32 bits and more");
            if bit >= rustix::thread::CpuSet::MAX_CPU {
                return Err(CoresError::BeyondMask { core });
            }
            mask.set(bit);
        }
        rustix::thread::sched_setaffinity(None, &mask).map_err(|source| CoresError::Refused {
            cores: self.clone(),
            source,
        })
    }

    /// Whether no core is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many cores it has.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether a core is in it.
    pub fn contains(&self, core: u32) -> bool {
        self.0.contains(&core)
    }

    /// The cores in rising order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// Whether both have a core.
    pub fn intersects(&self, other: &Self) -> bool {
        !self.0.is_disjoint(&other.0)
    }

    /// The cores that both have.
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// The cores that only this one has.
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Whether the other has each of its cores.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromStr for CpuSet {
    type Err = CpuSetError;

    fn from_str(text: &str) -> Result<Self, CpuSetError> {
        Self::parse(text)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cores = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = cores.next() {
            let mut last = first;
            while let Some(next) = cores.next_if(|core| *core == last + 1) {
                last = next;
            }
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

fn core_of(digits: &str, part: &str) -> Result<u32, CpuSetError> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuSetError::NotANumber { part: part.into() });
    }
    // Digits that do not fit 64 bits are as much too high as those that do not fit 32.
    let core = digits.parse::<u64>().unwrap_or(u64::MAX);
    u32::try_from(core)
        .ok()
        .filter(|core| *core <= CORE_MAX)
        .ok_or(CpuSetError::TooHigh { core })
}

/// One less than the largest NR_CPUS that a kernel of our platforms can be built with.
pub const CORE_MAX: u32 = 8191;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(text: &str) -> CpuSet {
        CpuSet::parse(text).expect("because this is a set")
    }

    #[test]
    fn a_text_in_any_order_becomes_the_sorted_one() {
        for (text, shown) in [
            ("0", "0"),
            ("0-0", "0"),
            ("0-3,8", "0-3,8"),
            ("8,3,2,1,0", "0-3,8"),
            ("0-3,2-5", "0-5"),
            ("8191", "8191"),
            ("007", "7"),
            ("4-6,0-9,2,11,10-12", "0-12"),
        ] {
            assert_eq!(set(text).to_string(), shown);
        }
    }

    /// Core by core these would be 800 million cores, and minutes.
    #[test]
    fn a_list_of_many_whole_ranges_is_read_at_once() {
        let text = "0-8191,".repeat(100_000) + "5";
        assert_eq!(set(&text).to_string(), "0-8191");
    }

    #[test]
    fn each_ill_formed_text_is_refused_with_its_part() {
        for (text, message) in [
            ("", "no core is named"),
            ("0,", r#""" is no core number and no range of them"#),
            ("a", r#""a" is no core number and no range of them"#),
            ("0-", r#""0-" is no core number and no range of them"#),
            ("-1", r#""-1" is no core number and no range of them"#),
            ("1-2-3", r#""1-2-3" is no core number and no range of them"#),
            ("+1", r#""+1" is no core number and no range of them"#),
            (" 1", r#"" 1" is no core number and no range of them"#),
            (
                "0-7:1/2",
                r#""0-7:1/2" is no core number and no range of them"#,
            ),
            ("3-1", r#""3-1" ends before it starts"#),
            (
                "8192",
                "core 8192 is beyond 8191, the last that a kernel has",
            ),
            (
                "0-99999999999999999999999",
                "core 18446744073709551615 is beyond 8191, the last that a kernel has",
            ),
        ] {
            let error = CpuSet::parse(text).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
        assert_eq!(
            CpuSet::of([1, 9000]),
            Err(CpuSetError::TooHigh { core: 9000 })
        );
    }

    #[test]
    fn a_node_without_cores_is_an_empty_set_and_not_an_error() {
        assert_eq!(CpuSet::parse_kernel_list("\n"), Ok(CpuSet::default()));
        assert_eq!(CpuSet::parse_kernel_list("0-1\n"), Ok(set("0-1")));
        assert!(CpuSet::parse_kernel_list("0-1\n\n").is_err());
        assert_eq!(CpuSet::default().to_string(), "");
    }

    proptest! {
        #[test]
        fn a_set_comes_back_from_its_text(cores in prop::collection::btree_set(0u32..200, 1..60)) {
            let set = CpuSet::of(cores).expect("because all are small");
            prop_assert_eq!(CpuSet::parse(&set.to_string()), Ok(set));
        }

        #[test]
        fn sets_meet_as_bit_masks_do(a in any::<u64>(), b in any::<u64>()) {
            let of = |bits: u64| CpuSet::of((0..64).filter(|bit| bits >> bit & 1 == 1))
                .expect("because all are small");
            prop_assert_eq!(of(a).intersects(&of(b)), a & b != 0);
            prop_assert_eq!(of(a).is_subset(&of(b)), a & !b == 0);
            prop_assert_eq!(of(a).intersection(&of(b)), of(a & b));
            prop_assert_eq!(of(a).difference(&of(b)), of(a & !b));
            prop_assert_eq!(of(a).is_empty(), a == 0);
            prop_assert_eq!(of(a).count(), a.count_ones() as usize);
        }
    }
}
