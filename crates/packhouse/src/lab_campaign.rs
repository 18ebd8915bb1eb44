//! What executing a packet needs of this process: a folder for programs' files, signals, a key; and
//! how what came of it is told.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_open::{Opened, unnoted, warned};
use crate::lab_refused::{UNASKED, bytecode, of_markers};
use crate::{bar, files, hints};
use packhouse_bag::key::PrivateKey;
use packhouse_bagcheck::{Entry, Tree};
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_component::exchange::sweep;
use packhouse_lab::analysis::Analysis;
use packhouse_lab::campaign::{Campaign, CampaignError, Fault, Step};
use packhouse_lab::recipes::Recipes;
use packhouse_lab::sessions::Components;
use packhouse_lab::tamper::Judge;
use packhouse_lab::verify::Evidence;
use packhouse_lab::world::Lab;
use packhouse_ledger::{Stage, Writer, WriterError};
use packhouse_sys::fs::{Dir, Fs as _, FsErrorKind};
use packhouse_sys::real::RealFs;
use packhouse_sys::signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

/// A campaign's surroundings.
pub(crate) struct Prepared<'a> {
    lab: Lab<'a>,
    place: &'a Place,
    sessions: Components<'static>,
    recipes: Recipes,
    key: Option<PrivateKey>,
}

impl<'a> Prepared<'a> {
    /// Opens what is needed. A key that can't be used is told before anything is done.
    pub(crate) fn new(opened: &'a Opened<'a>, key: Option<&Path>) -> Result<Self, Failure> {
        Ok(Self {
            lab: opened.lab(),
            place: opened.place,
            sessions: Components {
                fs: &RealFs,
                exchange: exchange(opened)?,
            },
            recipes: Recipes::default(),
            key: key.map(read_key).transpose()?,
        })
    }

    /// The campaign.
    pub(crate) fn campaign(&self) -> Campaign<'_> {
        Campaign {
            lab: &self.lab,
            sessions: &self.sessions,
            recipes: &self.recipes,
            interrupted: signal::was_caught,
            progress: &tell,
            software: SOFTWARE,
            key: self.key.as_ref(),
        }
    }

    /// From now on SIGINT and SIGTERM end a run in order, and SIGHUP does nothing.
    pub(crate) fn listen(&self) -> Result<(), Failure> {
        let listening = signal::catch_once().and_then(|()| signal::ignore_hangup());
        listening.map_err(|error| Failure::new("signals can't be caught", "lab").because(&error))
    }

    /// Removes what programs of killed runs left of their files.
    pub(crate) fn sweep(&self) {
        sweep(&self.sessions.exchange, RealFs.effective_uid());
    }

    /// Names the newest entry for programs, and notes the ledger's head as the one that this user
    /// saw last. What was done is told whatever becomes of that: the verdict first, then why the
    /// head is not noted.
    pub(crate) fn remembered(&self, writer: &Writer, mut answer: Answer) -> Answer {
        let ledger = writer.ledger();
        let newest = ledger.entries().last().map(|entry| entry.index);
        answer.json["entry"] = json!(newest);
        answer.json["head"] = json!(ledger.head().to_string());
        warned(answer, unnoted(self.place, writer).as_ref())
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        bar::clear();
    }
}

/// Says on a terminal how far an execution is.
fn tell(step: Step) {
    bar::tick(|| match step {
        Step::Case {
            leg,
            legs,
            case,
            cases,
        } => format!("leg {leg} of {legs}, case {case} of {cases}"),
        Step::Copy { done, total } => copies(done, total),
    });
}

/// How many tampered copies are judged.
pub(crate) fn copies(done: usize, total: usize) -> String {
    format!("tampered copies: {done} of {total} judged")
}

/// The second implementation as a judge of tampered copies.
pub(crate) struct SecondJudge;

impl Judge for SecondJudge {
    fn name(&self) -> &'static str {
        "bagcheck"
    }

    fn codes(&self, evidence: &Evidence) -> BTreeSet<String> {
        let files = evidence.files.files().iter();
        let mut tree: Tree = files
            .map(|(path, bytes)| (path.clone(), Entry::File(bytes.clone())))
            .collect();
        let links = evidence.links.iter();
        tree.extend(links.map(|path| (path.clone(), Entry::Link(String::new()))));
        let report = packhouse_bagcheck::check(&tree, evidence.ledger.as_deref(), None);
        let findings = report.findings.into_iter();
        findings.map(|finding| finding.code.to_string()).collect()
    }
}

/// Why a packet was not executed, or its evidence not finished.
pub(crate) fn step_failed(place: &Place, named: &str, error: &CampaignError) -> Failure {
    if let CampaignError::Standing { actual, .. } = error
        && let Some(verdict) = actual.strip_prefix("sealed-")
    {
        return Failure::new("the packet was run, once", named)
            .cause(format!(
                "it is sealed: {verdict}; another attempt is another experiment"
            ))
            .hint(place.hint(&format!("report {named}")));
    }
    if let CampaignError::Ledger(WriterError::PacketBusy { packet }) = error {
        return Failure::new("another process executes the packet", packet)
            .hint(place.hint("state --live"));
    }
    let failure = Failure::new("the packet was not executed", named).because(error);
    let hint = match error {
        CampaignError::Refused(Fault {
            stage: Stage::Identities,
            reason,
            ..
        }) => {
            return match bytecode(reason) {
                Some(words) => failure.cause(words).hint(place.hint("ledger verify")),
                // Too many files or processes: nothing is known of what was registered.
                None if reason.contains(UNASKED) => failure.hint("ulimit -a"),
                None => failure
                    .cause("what is registered may not change: put it back")
                    .hint(place.hint("ledger verify")),
            };
        }
        CampaignError::Refused(Fault {
            stage: Stage::FileSystem,
            reason,
            ..
        }) => return of_markers(failure, place, reason),
        CampaignError::Marker(error) => return of_markers(failure, place, &error.to_string()),
        CampaignError::OtherBag { path, .. } | CampaignError::BrokenBag { path, .. } => {
            // Beside it, it would be a file that is no part of the evidence.
            let aside = place.root.join("bag-of-another-run");
            format!("mv {} {}", quoted(path), quoted(&aside))
        }
        CampaignError::Refused(Fault {
            stage: Stage::Discovery,
            reason,
            ..
        }) if reason.starts_with("device ") => "packhouse worker devices".to_owned(),
        _ => place.hint("state"),
    };
    failure.hint(hint)
}

/// What a gate says, with the budget's nanoseconds in seconds. Failures stay exact, and so does a
/// saving per cycle.
pub(crate) fn for_people(gate: &str, text: &str) -> String {
    if gate != "budget" {
        return text.to_owned();
    }
    let mut words: Vec<String> = Vec::new();
    for word in text.split(' ') {
        let unit = word.trim_end_matches(',');
        let ns = words.last().and_then(|last| last.parse::<u64>().ok());
        match ns {
            Some(ns) if unit == "ns" => {
                words.pop();
                let tail = &word[unit.len()..];
                words.push(format!("{}{tail}", units::seconds(ns)));
            }
            _ => words.push(word.to_owned()),
        }
    }
    words.join(" ")
}

/// The gates of an analysis, a line each, failures below.
pub(crate) fn gates(analysis: &Analysis) -> String {
    let mut text = String::new();
    for gate in &analysis.gates {
        let word = match (gate.passed, gate.decides) {
            (Some(true), _) => "pass",
            (Some(false), true) => "FAIL",
            (Some(false), false) => "(fail)",
            // A gate of a run that broke off has figures of what was asked until then.
            (None, _) => "not judged",
        };
        let measured = for_people(&gate.gate, &gate.measured);
        let threshold = for_people(&gate.gate, &gate.threshold);
        let (measured, threshold) = (Shown(&measured), Shown(&threshold));
        let _ = writeln!(
            text,
            "{word:<11}  {:<16}  {measured}  [{threshold}]",
            gate.gate
        );
        for failure in &gate.failures {
            let _ = writeln!(text, "             {}", Shown(failure));
        }
    }
    text
}

/// The gates of an analysis for programs, as `analysis.json` has them.
pub(crate) fn gates_document(analysis: &Analysis) -> Value {
    let document = serde_json::from_slice(&analysis.render());
    let mut document: Value = document.expect("because it was rendered from JSON");
    document["gates"].take()
}

/// The folder that programs' files are made in: of the user's private state, where whatever a kill
/// left is found again.
fn exchange(opened: &Opened<'_>) -> Result<Dir, Failure> {
    let make = |dir: Dir, name: &&str| {
        match dir.make_dir(name, 0o700) {
            Err(error) if error.kind != FsErrorKind::Exists => return Err(error),
            Ok(()) | Err(_) => {}
        }
        dir.open_dir(name)
    };
    let made = EXCHANGE.iter().try_fold(opened.state.clone(), make);
    made.map_err(|error| {
        let path = opened.place.state.join(EXCHANGE.join("/"));
        Failure::new("no folder for the programs' files", path.display())
            .because(&error)
            .hint(hints::of(&error, &path))
    })
}

/// Below the user's private state.
const EXCHANGE: [&str; 2] = ["lab", "exchange"];

fn read_key(path: &Path) -> Result<PrivateKey, Failure> {
    let unusable = |error: &(dyn std::error::Error + 'static)| {
        Failure::usage("not a key to sign with", path.display())
            .because(error)
            .hint(format!(
                "openssl genpkey -algorithm ed25519 -out {}",
                quoted(path)
            ))
    };
    let bytes = files::read_at_most(path, KEY_BYTES_MAX).map_err(|error| unusable(&error))?;
    PrivateKey::parse(&String::from_utf8_lossy(&bytes)).map_err(|error| unusable(&error))
}

/// A key has some hundred bytes.
const KEY_BYTES_MAX: usize = 64 << 10;
const SOFTWARE: &str = concat!("packhouse ", env!("CARGO_PKG_VERSION"));

#[cfg(test)]
mod tests {
    use super::*;

    /// Too many open files were told as a change of what is registered.
    #[test]
    fn a_loader_that_could_not_be_started_is_no_change_of_what_is_registered() {
        let state = |_: &str| Some("/home/user".into());
        let place = Place::at("/home/user/lab".into(), &state).expect("because it has a home");
        let told = |reason: &str| {
            let fault = Fault::new(Stage::Identities, reason);
            step_failed(&place, "one", &CampaignError::Refused(fault)).to_string()
        };
        let unasked = told("/bin/x would not be loaded: /lib/ld.so can't be asked: too many files");
        assert!(unasked.ends_with("\n\nhint: ulimit -a\n"), "{unasked}");
        assert!(!unasked.contains("put it back"), "{unasked}");
        let changed = told("not what was frozen: control: SHA-256 is another one");
        assert!(changed.contains("put it back"), "{changed}");
        assert!(
            changed.contains("hint: packhouse lab ledger verify"),
            "{changed}"
        );
    }
}
