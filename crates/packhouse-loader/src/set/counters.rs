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

#[cfg(test)]
mod tests {
    use super::*;

    /// An engine that asks again and again must not look like many tensors.
    #[test]
    fn a_tensor_counts_once_per_reason_and_what_is_no_tensor_each_time() {
        let mut tally = Tally::default();
        for _ in 0..3 {
            tally.refuse(Code::ObjectCorrupt, Some((4, 100)));
            tally.refuse(Code::ObjectCorrupt, Some((5, 10)));
            tally.refuse(Code::NotSampled, Some((4, 100)));
            tally.refuse(Code::NoTensor, None);
            tally.hold((6, 7), |counters| {
                [&mut counters.mapped, &mut counters.receipt]
            });
            tally.sample((6, 7), 5);
        }
        let counters = tally.counters();
        let refused = counters.refused.iter();
        let refused: Vec<_> = refused
            .map(|refused| (refused.code, refused.count.tensors, refused.count.bytes))
            .collect();
        let expected = [
            (Code::NoTensor, 3, 0),
            (Code::ObjectCorrupt, 2, 110),
            (Code::NotSampled, 1, 100),
        ];
        assert_eq!(refused, expected);
        let once = Count {
            tensors: 1,
            bytes: 7,
        };
        assert_eq!(
            [counters.mapped, counters.receipt, counters.sampled],
            [once; 3]
        );
        assert_eq!(
            (counters.copied, counters.sampled_groups),
            (Count::default(), 15)
        );
    }
}
