//! What became of a set's tensors, per reason, in tensors and bytes.

use crate::set::code::Code;
use crate::tally::Count;
use std::collections::{BTreeMap, BTreeSet};

/// Counters of one open set. A tensor counts once in each, however often it is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Tensors mapped from files.
    pub mapped: Count,
    /// Tensors read into private memory, from a file system that is not mapped.
    pub copied: Count,
    /// Of those two: proved by a hash because `deep` was asked for.
    pub deep: Count,
    /// Proved by a receipt.
    pub receipt: Count,
    /// Proved by a hash because no receipt matched.
    pub reverified: Count,
    /// Proved by samples alone.
    pub sample: Count,
    /// Tensors whose samples equalled the live weights.
    pub sampled: Count,
    /// Groups packed again and compared.
    pub sampled_groups: u64,
    /// Tensors refused, by code.
    pub refused: Vec<RefusalCount>,
}

/// How many tensors one reason refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalCount {
    /// The reason.
    pub code: Code,
    /// Tensors and their payloads' bytes; what names no tensor of the set counts 0 bytes.
    pub count: Count,
}

/// Counters while a set is open, and which tensors they count already.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    counters: Counters,
    refused: BTreeMap<Code, Count>,
    counted: BTreeSet<(usize, Counted)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Counted {
    Held,
    Sampled,
    Refused(Code),
}

impl Tally {
    /// The counters as they are now.
    pub(crate) fn counters(&self) -> Counters {
        let refused = self.refused.iter();
        Counters {
            refused: refused
                .map(|(code, count)| RefusalCount {
                    code: *code,
                    count: *count,
                })
                .collect(),
            ..self.counters.clone()
        }
    }

    /// Counts a refusal, of the tensor at `index` of the manifest where one is named.
    pub(crate) fn refuse(&mut self, code: Code, tensor: Option<(usize, u64)>) {
        let bytes = match tensor {
            Some((index, bytes)) if self.counted.insert((index, Counted::Refused(code))) => bytes,
            Some(_) => return,
            None => 0,
        };
        self.refused.entry(code).or_default().add(bytes);
    }

    /// Counts a tensor that was mapped or read, in the counters that `of` chooses.
    pub(crate) fn hold(
        &mut self,
        (index, bytes): (usize, u64),
        of: impl FnOnce(&mut Counters) -> [&mut Count; 2],
    ) {
        if self.counted.insert((index, Counted::Held)) {
            of(&mut self.counters)
                .into_iter()
                .for_each(|count| count.add(bytes));
        }
    }

    /// Counts a tensor whose samples were equal.
    pub(crate) fn sample(&mut self, (index, bytes): (usize, u64), group_count: u64) {
        self.counters.sampled_groups += group_count;
        if self.counted.insert((index, Counted::Sampled)) {
            self.counters.sampled.add(bytes);
        }
    }
}
