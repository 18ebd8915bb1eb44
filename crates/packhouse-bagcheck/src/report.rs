//! What a verification found.

use crate::json::Json;
use std::collections::BTreeMap;
use std::fmt;

/// One thing that isn't as it must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Reason code of `docs/format/evidence.md`, such as `bag.digest`.
    pub code: &'static str,
    /// File that it is about, from the root of the tree; with a line or row where that says more.
    pub path: String,
    /// What was expected and what is there.
    pub words: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, words) = (shown(&self.path), shown(&self.words));
        write!(f, "{}: {path}: {words}", self.code)
    }
}

/// Shows what a text holds: each character that a terminal would obey instead of drawing it stands
/// there as `\u{1b}`. Names of files and words of programs are anybody's.
pub fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for letter in text.chars() {
        match is_hidden(letter) {
            true => shown.extend(letter.escape_unicode()),
            false => shown.push(letter),
        }
    }
    shown
}

/// Returns whether a character is a control, or a mark of direction or of no width.
fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
        )
}

/// The outcome of a run, recomputed from its raw files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Every gate passed.
    Pass,
    /// A gate did not pass.
    Fail,
    /// The run did not get to its end.
    Abort,
}

impl Verdict {
    /// Returns the word of the formats.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Abort => "abort",
        }
    }
}

/// Everything that a verification says.
///
/// The evidence is valid when there are no `findings`. `failures` are not about the evidence but
/// about the candidate: an honest bag of a failed run has them, and its analysis says so too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What is wrong with the evidence, in the order of the checks.
    pub findings: Vec<Finding>,
    /// Why gates did not pass, as recomputed.
    pub failures: Vec<Finding>,
    /// How many things of each kind were looked at: files, cases, rows, entries.
    pub checked: BTreeMap<&'static str, u64>,
    /// The outcome as recomputed; none where the bag can't be judged.
    pub verdict: Option<Verdict>,
    /// Whether it is a rehearsal, whose verdict says nothing of the candidate.
    pub is_rehearsal: bool,
    /// What this verification could not know.
    pub notes: Vec<String>,
}

impl Report {
    /// Returns whether nothing is wrong with the evidence, whatever its verdict.
    pub fn is_valid(&self) -> bool {
        self.findings.is_empty()
    }

    /// Returns whether the bag itself does not hold: its bytes are not those that were sealed, so
    /// its failures say nothing of the candidate.
    pub fn is_damaged(&self) -> bool {
        let mut findings = self.findings.iter();
        findings.any(|finding| finding.code.starts_with("bag."))
    }

    /// Returns whether a finding or a failure has this code.
    pub fn has(&self, code: &str) -> bool {
        let mut all = self.findings.iter().chain(&self.failures);
        all.any(|finding| finding.code == code)
    }

    /// Renders the report as one canonical JSON document, without a final newline: `checked`,
    /// `failures`, `findings`, `notes`, `rehearsal`, `valid`, `verdict`. Of a damaged bag there are
    /// no failures: nothing is said of the candidate.
    pub fn to_json(&self) -> String {
        let list = |findings: &[Finding]| {
            let items = findings.iter().map(|finding| {
                Json::object([
                    ("code", Json::text(finding.code)),
                    ("path", Json::text(&finding.path)),
                    ("words", Json::text(&finding.words)),
                ])
            });
            Json::List(items.collect())
        };
        let failures = match self.is_damaged() {
            true => &[][..],
            false => &self.failures,
        };
        let counts = self.checked.iter();
        let counts =
            counts.map(|(what, count)| ((*what).to_owned(), Json::Integer(i128::from(*count))));
        let verdict = self.verdict.map(|verdict| Json::text(verdict.name()));
        Json::object([
            ("findings", list(&self.findings)),
            ("failures", list(failures)),
            ("checked", Json::Object(counts.collect())),
            ("verdict", verdict.unwrap_or(Json::Null)),
            (
                "notes",
                Json::List(self.notes.iter().map(Json::text).collect()),
            ),
            ("rehearsal", Json::Bool(self.is_rehearsal)),
            ("valid", Json::Bool(self.is_valid())),
        ])
        .render()
    }

    /// Adds a finding.
    pub(crate) fn find(&mut self, code: &'static str, path: &str, words: impl Into<String>) {
        self.findings.push(Finding {
            code,
            path: path.to_owned(),
            words: words.into(),
        });
    }

    /// Counts things that were looked at.
    pub(crate) fn count(&mut self, what: &'static str, count: u64) {
        *self.checked.entry(what).or_insert(0) += count;
    }
}
