//! Evidence as a whole: bag, analyses, seals and the ledger, judged by our own analyzer. The second
//! judge is `packhouse-bagcheck`, which shares nothing with this but the reason codes.
//!
//! - Nothing here trusts a list, a seal or an analysis: each is compared with what lies there.
//! - Every fault is told.
//!
//! Specified in `docs/format/evidence.md`, section 11.

mod analyses;
mod cited;

use crate::evidence::Reading;
use crate::recipes::Recipes;
use packhouse_bag::{BAG_DIR, Contents, check};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

/// The evidence of a packet in memory: its folder, and the ledger beside it.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    /// The files of `evidence/<packet>` or `rehearsals/<packet>`.
    pub files: Contents,
    /// Paths that are no regular files.
    pub links: BTreeSet<String>,
    /// The ledger, where there is one.
    pub ledger: Option<Arc<[u8]>>,
}

/// A bag that was read once.
pub(crate) struct Read {
    pub(crate) bag: Contents,
    pub(crate) reading: Reading,
}

/// One thing that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The reason code.
    pub code: &'static str,
    /// The path that it is about, below the evidence's folder.
    pub path: String,
    /// What.
    pub words: String,
}

impl Finding {
    pub(crate) fn new(
        code: &'static str,
        path: impl Into<String>,
        words: impl fmt::Display,
    ) -> Self {
        Self {
            code,
            path: path.into(),
            words: words.to_string(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.code, self.path, self.words)
    }
}

/// Everything that does not hold. Empty for evidence that is as it must be, whatever its verdict.
pub fn findings(evidence: &Evidence, recipes: &Recipes) -> Vec<Finding> {
    let mut findings = Vec::new();
    for path in &evidence.links {
        findings.push(Finding::new("bag.link", path, "no regular file"));
    }
    let bag = evidence.files.below(BAG_DIR);
    if let Err(faults) = check(&bag) {
        let faults = faults.into_iter();
        findings.extend(faults.map(|fault| {
            let path = format!("{BAG_DIR}/{}", fault.path());
            Finding::new(fault.code(), path, fault)
        }));
    }
    let numbers = analyses::numbers(evidence, &mut findings);
    let read = Read {
        reading: Reading::of(&bag),
        bag,
    };
    let judged = analyses::judge(evidence, &read, &numbers, recipes, &mut findings);
    cited::seals(evidence, &read, &judged, &mut findings);
    cited::ledger(evidence, &read, &judged, &mut findings);
    findings
}
