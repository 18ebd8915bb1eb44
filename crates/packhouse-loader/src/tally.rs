//! Counters of one load: where every tensor went and why.

use packhouse_base::units;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Tensors and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Tensors.
    pub tensors: u64,
    /// Their payloads' bytes.
    pub bytes: u64,
}

/// Where the tensors of one load went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Mapped from the store or a stage.
    pub(crate) mapped: Count,
    /// Of these, from a stage.
    pub(crate) staged: Count,
    /// Read from the store into private memory, from a file system that is not mapped.
    pub(crate) copied: Count,
    /// Packed by the engine, of which `misses` and `refused` give the reasons.
    pub(crate) packed: Count,
    /// Filled as the engine does without a packing.
    pub(crate) left_out: Count,
    /// Packed because there was no pack: reason and count.
    pub(crate) misses: BTreeMap<&'static str, Count>,
    /// Packed although there was a pack: reason and count.
    pub(crate) refused: BTreeMap<&'static str, Count>,
    /// How mapped and copied objects were verified.
    pub(crate) verified: BTreeMap<&'static str, Count>,
    /// The first refusal or failure in words.
    pub(crate) first_refusal: Option<String>,
    /// Stage roots, stages and staged copies that were not used: reason and how many.
    pub(crate) stage_refused: BTreeMap<&'static str, u64>,
    /// The first of them in words.
    pub(crate) first_stage_refusal: Option<String>,
    pub(crate) samples: Samples,
    /// Source bytes that were hashed because no ledger knew them.
    pub(crate) source_bytes_hashed: u64,
}

/// Units packed again and compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Samples {
    pub(crate) taken: u64,
    /// Left out because their pages were not in memory and the time for that was used up.
    pub(crate) skipped: u64,
    pub(crate) source_bytes: u64,
    pub(crate) duration_ns: u64,
}

impl Count {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.tensors += 1;
        self.bytes += bytes;
    }

    fn json(self) -> Value {
        json!({ "tensors": self.tensors, "bytes": self.bytes })
    }
}

impl Tally {
    /// Counts a stage root, a stage or a staged copy that is not used.
    pub(crate) fn refuse_stage(&mut self, reason: &'static str, words: String) {
        *self.stage_refused.entry(reason).or_default() += 1;
        self.first_stage_refusal.get_or_insert(words);
    }

    /// The line that the user sees once per load; `notes` say what else there is to know, such as
    /// what will be written.
    pub(crate) fn line(&self, notes: impl Iterator<Item = String>) -> String {
        let mut parts = vec![format!(
            "{} tensors mapped{}",
            self.mapped.tensors,
            paren(self.mapped)
        )];
        if self.staged.tensors > 0 {
            parts.push(format!("{} of them staged", self.staged.tensors));
        }
        if self.copied.tensors > 0 {
            parts.push(format!(
                "{} copied{}",
                self.copied.tensors,
                paren(self.copied)
            ));
        }
        parts.push(format!(
            "{} packed{}",
            self.packed.tensors,
            paren(self.packed)
        ));
        if self.left_out.tensors > 0 {
            parts.push(format!(
                "{} left to the engine{}",
                self.left_out.tensors,
                paren(self.left_out)
            ));
        }
        let refused: u64 = self.refused.values().map(|count| count.tensors).sum();
        let mut line = format!("{}, {refused} refused", parts.join(", "));
        if refused > 0 {
            let reasons = self
                .refused
                .iter()
                .map(|(reason, n)| format!("{reason} {}", n.tensors));
            line.push_str(&format!(" ({})", reasons.collect::<Vec<_>>().join(", ")));
        }
        if self.samples.taken > 0 {
            let duration = units::duration_ns(self.samples.duration_ns);
            line.push_str(&format!("; {} samples in {duration}", self.samples.taken));
            if self.samples.skipped > 0 {
                line.push_str(&format!(
                    " ({} left out, not in memory)",
                    self.samples.skipped
                ));
            }
        }
        if self.source_bytes_hashed > 0 && self.packed.tensors == 0 {
            let hashed = units::bytes(self.source_bytes_hashed);
            line.push_str(&format!("; {hashed} of the source hashed"));
        }
        if let Some(reverified) = self.verified.get("reverified") {
            line.push_str(&format!(
                "; {} verified anew{}",
                reverified.tensors,
                paren(*reverified)
            ));
        }
        let stage = self.first_stage_refusal.iter();
        let stage = stage.map(|words| format!("not staged: {words}"));
        let refusals = self.first_refusal.iter().cloned().chain(stage);
        for part in refusals.chain(notes) {
            line.push_str("; ");
            line.push_str(&part);
        }
        line
    }

    /// The counters as part of a report.
    pub(crate) fn json(&self) -> Value {
        let counts = |map: &BTreeMap<&'static str, Count>| -> Value {
            map.iter()
                .map(|(reason, count)| ((*reason).to_owned(), count.json()))
                .collect()
        };
        json!({
            "mapped": self.mapped.json(),
            "staged": self.staged.json(),
            "copied": self.copied.json(),
            "packed": self.packed.json(),
            "left_out": self.left_out.json(),
            "misses": counts(&self.misses),
            "refused": counts(&self.refused),
            "verified": counts(&self.verified),
            "first_refusal": self.first_refusal,
            "stage_refused": self.stage_refused,
            "first_stage_refusal": self.first_stage_refusal,
            "samples": {
                "taken": self.samples.taken,
                "skipped": self.samples.skipped,
                "duration_ns": self.samples.duration_ns,
            },
            "source_bytes_sampled": self.samples.source_bytes,
            "source_bytes_hashed": self.source_bytes_hashed,
            "source_bytes_read": self.samples.source_bytes + self.source_bytes_hashed,
        })
    }
}

fn paren(count: Count) -> String {
    if count.tensors == 0 {
        String::new()
    } else {
        format!(" ({})", units::bytes(count.bytes))
    }
}
