//! The seal: a statement (in-toto Statement v1) that binds a packet, its closed bag and one
//! analysis of it to a verdict and to a place in the ledger.
//!
//! Specified in `docs/format/bag.md`, section 4. One statement has one spelling.

pub use crate::fields::RecordFault;
use crate::fields::{Fields, cut, parse};
use packhouse_base::Blame;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use serde_json::{Value, json};
use std::fmt;

/// What a seal says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement {
    /// SHA-256 of the packet's bytes.
    pub packet: Digest,
    /// Digest of the closed bag.
    pub bag: Digest,
    /// SHA-256 of `analysis-<number>/analysis.json`.
    pub analysis: Digest,
    /// Which analysis of the bag, from 1; so also which seal.
    pub number: u64,
    /// The analysis's verdict.
    pub verdict: Verdict,
    /// Head of the ledger before the entry that cites this seal.
    pub ledger_head: Digest,
    /// Digest of the program that made the analysis.
    pub analyzer: Digest,
    /// The lab's id: 32 random bytes in the shape of a digest.
    pub lab: Digest,
}

/// How evidence was judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every gate passed.
    Pass,
    /// A gate did not.
    Fail,
    /// The run did not end as it should have.
    Abort,
}

/// Why bytes are no seal.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Not a record of this form.
    #[error("seal: {0}")]
    Record(#[from] RecordFault),
    /// Another type of statement or predicate.
    #[error("seal: {field} is {}, not {expected}", Shown(actual))]
    Type {
        /// Which field.
        field: &'static str,
        /// What it must be.
        expected: &'static str,
        /// What it is.
        actual: String,
    },
    /// Not the three subjects of a seal.
    #[error("seal: subject {index} is {}, not {expected}", Shown(actual))]
    Subject {
        /// Which one, from 0.
        index: usize,
        /// What it must be.
        expected: String,
        /// What it is.
        actual: String,
    },
    /// No verdict.
    #[error("seal: verdict {}, not pass, fail or abort", Shown(actual))]
    Verdict {
        /// What stands there.
        actual: String,
    },
}

impl SealError {
    /// The reason code, as in `docs/format/bag.md`.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Record(fault) => fault.code(),
            Self::Type { .. } => "seal.type",
            Self::Subject { .. } => "seal.subject",
            Self::Verdict { .. } => "seal.verdict",
        }
    }

    /// Says whose side the fault is on: always that of the bytes that were kept.
    pub fn blame(&self) -> Blame {
        Blame::Store
    }
}

impl Statement {
    /// The bytes of `seal-<number>.json`.
    pub fn render(&self) -> Vec<u8> {
        let digests = [self.packet, self.bag, self.analysis];
        let subjects = subject_names(self.number).into_iter().zip(digests);
        let subjects: Vec<Value> = subjects
            .map(|(name, digest)| json!({"digest": {"sha256": digest.to_string()}, "name": name}))
            .collect();
        canonical::render(&json!({
            "_type": STATEMENT_TYPE,
            "predicate": {
                "analyzer": self.analyzer.to_string(),
                "lab": self.lab.to_string(),
                "ledger_head": self.ledger_head.to_string(),
                "number": self.number,
                "packet": self.packet.to_string(),
                "verdict": self.verdict.word(),
            },
            "predicateType": PREDICATE_TYPE,
            "subject": subjects,
        }))
    }

    /// Parses a seal. Errors on anything that `render` would not have written.
    pub fn parse(bytes: &[u8]) -> Result<Self, SealError> {
        let value = parse(bytes, SEAL_BYTES_MAX)?;
        let names = ["_type", "predicate", "predicateType", "subject"];
        let record = Fields::new(&value, "", &names)?;
        let types = [("_type", STATEMENT_TYPE), ("predicateType", PREDICATE_TYPE)];
        for (field, expected) in types {
            let actual = record.text(field)?;
            if actual != expected {
                return Err(SealError::Type {
                    field,
                    expected,
                    actual: cut(actual),
                });
            }
        }
        let predicate = Fields::new(record.value("predicate"), "predicate", &PREDICATE_FIELDS)?;
        let number = predicate.count("number")?;
        let [packet, bag, analysis] = subjects(&record, number)?;
        let named = predicate.digest("packet")?;
        if packet != named {
            return Err(SealError::Subject {
                index: 0,
                expected: named.to_string(),
                actual: packet.to_string(),
            });
        }
        Ok(Self {
            packet,
            bag,
            analysis,
            number,
            verdict: Verdict::parse(predicate.text("verdict")?)?,
            ledger_head: predicate.digest("ledger_head")?,
            analyzer: predicate.digest("analyzer")?,
            lab: predicate.digest("lab")?,
        })
    }

    /// SHA-256 of the seal's bytes: what a ledger entry cites.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.render())
    }
}

impl Verdict {
    /// The word in records.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Abort => "abort",
        }
    }

    /// Reads the word. Errors on any other.
    pub fn parse(word: &str) -> Result<Self, SealError> {
        let all = [Self::Pass, Self::Fail, Self::Abort];
        let verdict = all.into_iter().find(|verdict| verdict.word() == word);
        verdict.ok_or_else(|| SealError::Verdict { actual: cut(word) })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Name of the n-th seal.
pub fn seal_name(number: u64) -> String {
    format!("seal-{number}.json")
}

/// Name of the n-th seal's signature.
pub fn envelope_name(number: u64) -> String {
    format!("seal-{number}.dsse.json")
}

/// Name of the n-th analysis's folder.
pub fn analysis_dir(number: u64) -> String {
    format!("analysis-{number}")
}

fn subject_names(number: u64) -> [String; 3] {
    [
        "packet.json".to_owned(),
        format!("{}/{}", crate::BAG_DIR, crate::TAG_MANIFEST_FILE),
        format!("{}/{ANALYSIS_FILE}", analysis_dir(number)),
    ]
}

fn subjects(record: &Fields, number: u64) -> Result<[Digest; 3], SealError> {
    let list = record.list("subject")?;
    let names = subject_names(number);
    let mut digests = [Digest::from_bytes([0; 32]); 3];
    for (index, expected) in names.into_iter().enumerate() {
        let absent = || SealError::Subject {
            index,
            expected: expected.clone(),
            actual: "not there".to_owned(),
        };
        let place = format!("subject[{index}]");
        let value = list.get(index).ok_or_else(absent)?;
        let subject = Fields::new(value, &place, &["digest", "name"])?;
        let actual = subject.text("name")?;
        let place = subject.at("digest");
        let digest = Fields::new(subject.value("digest"), &place, &["sha256"])?;
        digests[index] = digest.digest("sha256")?;
        if actual != expected {
            return Err(SealError::Subject {
                index,
                expected,
                actual: cut(actual),
            });
        }
    }
    if list.len() > digests.len() {
        return Err(SealError::Subject {
            index: digests.len(),
            expected: "the end".to_owned(),
            actual: "another subject".to_owned(),
        });
    }
    Ok(digests)
}

/// The one file in an analysis's folder.
pub const ANALYSIS_FILE: &str = "analysis.json";
/// The longest seal that is read, in bytes.
pub const SEAL_BYTES_MAX: usize = 65_536;

const STATEMENT_TYPE: &str = "https://in-toto.io/Statement/v1";
const PREDICATE_TYPE: &str = "urn:packhouse:seal:v1";
const PREDICATE_FIELDS: [&str; 6] = [
    "analyzer",
    "lab",
    "ledger_head",
    "number",
    "packet",
    "verdict",
];
