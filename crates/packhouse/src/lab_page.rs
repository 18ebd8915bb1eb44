//! What `lab state` and `lab report` share: a lab as it is read, and a page as it is written.

use crate::answer::Answer;
use crate::failure::{Failure, quoted};
use crate::lab::Place;
use crate::lab_campaign::for_people;
use crate::lab_open::Opened;
use crate::{folders, hints};
use packhouse_base::digest::Digest;
use packhouse_lab::analysis::{Basis as OfGate, Ratio};
use packhouse_lab::{Analysis, Lane, Packet, Prereg};
use packhouse_ledger::page::{
    Basis, Documents, Evidence, Found, Gate, LaneText, Page, Plan, Row, Saving, Timing, TimingRule,
};
use packhouse_ledger::{Ledger, State};
use packhouse_sys::fs::{Dir, FsError, FsErrorKind};
use packhouse_sys::real::RealFs;
use serde_json::json;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// A lab that was read.
pub(crate) struct Read<'a> {
    /// The lab, open.
    pub(crate) opened: Opened<'a>,
    /// Its ledger.
    pub(crate) ledger: Ledger,
    /// Its page.
    pub(crate) page: Page,
}

impl<'a> Read<'a> {
    /// Reads the ledger, and the documents and analyses that it names.
    pub(crate) fn lab(place: &'a Place) -> Result<Self, Failure> {
        let opened = Opened::of(place)?;
        let ledger = opened.ledger()?;
        let page = Page::of(&ledger, &documents(&opened.root, ledger.state()));
        Ok(Self {
            opened,
            ledger,
            page,
        })
    }

    /// The packets of experiments, where `packet.json` is the one that the ledger names.
    pub(crate) fn packets(&self) -> Vec<(String, Found<Packet>)> {
        let named = self
            .ledger
            .state()
            .packets()
            .iter()
            .map(|(digest, packet)| {
                let experiment = packet.experiment.as_str();
                let steps = ["experiments", experiment, "packet.json"];
                let parse = |bytes: &[u8]| Packet::parse(bytes).map_err(|error| error.to_string());
                (
                    experiment.to_owned(),
                    found(&self.opened.root, &steps, *digest, parse),
                )
            });
        named.collect()
    }
}

fn documents(root: &Dir, state: &State) -> Documents {
    let mut documents = Documents::default();
    for (name, lane) in state.lanes() {
        let file = format!("{}.toml", name.as_str());
        let read = found(root, &["lanes", &file], lane.document, lane_text);
        documents.lanes.insert(name.as_str().to_owned(), read);
    }
    for (digest, packet) in state.packets() {
        let name = packet.experiment.as_str();
        let read = found(
            root,
            &["experiments", name, "prereg.toml"],
            packet.prereg,
            plan,
        );
        documents.plans.insert(name.to_owned(), read);
        let folder = digest.to_string();
        for one in &packet.analyses {
            let analysis = format!("analysis-{}", one.number);
            let steps = ["evidence", &folder, &analysis, "analysis.json"];
            let read = found(root, &steps, one.analysis, evidence);
            documents.analyses.insert((*digest, one.number), read);
        }
    }
    documents
}

/// A file that the ledger names by its digest, below the lab's folder.
pub(crate) fn found<T>(
    root: &Dir,
    steps: &[&str],
    digest: Digest,
    parse: impl Fn(&[u8]) -> Result<T, String>,
) -> Found<T> {
    let path = steps.join("/");
    let bytes = match read(root, steps) {
        Ok(bytes) => bytes,
        Err(error) if error.kind == FsErrorKind::NotFound => return Found::Absent,
        Err(error) => return Found::Refused(format!("{path}: {}", error.kind)),
    };
    let actual = Digest::of(&bytes);
    if actual != digest {
        return Found::Refused(format!(
            "{path} has digest {actual}, and the ledger names {digest}"
        ));
    }
    match parse(&bytes) {
        Ok(value) => Found::Here(value),
        Err(why) => Found::Refused(format!("{path}: {why}")),
    }
}

fn read(root: &Dir, steps: &[&str]) -> Result<Vec<u8>, FsError> {
    let mut folder = root.clone();
    let Some((file, folders)) = steps.split_last() else {
        unreachable!("because every document has a name")
    };
    for name in folders {
        folder = folder.open_dir(name)?;
    }
    folder.read_small(file, FILE_BYTES_MAX)
}

/// Analyses are the longest of what is read: a row is some 300 bytes.
const FILE_BYTES_MAX: u64 = 64 << 20;

fn lane_text(bytes: &[u8]) -> Result<LaneText, String> {
    let lane = Lane::parse(bytes).map_err(|error| error.to_string())?;
    Ok(LaneText {
        title: lane.title,
        model: lane.model,
        quantisation: lane.quantisation,
        runtime: lane.runtime,
        hardware: lane.hardware,
        promise: lane.promise,
        teacher: lane.teacher,
        record_key: lane.record_key,
    })
}

fn plan(bytes: &[u8]) -> Result<Plan, String> {
    let prereg = Prereg::parse(bytes).map_err(|error| error.to_string())?;
    Ok(Plan {
        reviewers: prereg.reviewers,
        question: prereg.question,
        authorises: prereg.authorises,
        does_not_authorise: prereg.does_not_authorise,
        exclusions: prereg.exclusions,
        timing: prereg.timing.map(|timing| TimingRule {
            minimum_wins: timing.minimum_wins,
            minimum_median_saving_ns: timing.minimum_median_saving_ns,
        }),
    })
}

fn evidence(bytes: &[u8]) -> Result<Evidence, String> {
    let analysis = Analysis::parse(bytes).map_err(|error| error.to_string())?;
    let gates = analysis.gates.into_iter().map(|gate| Gate {
        threshold: for_people(&gate.gate, &gate.threshold),
        measured: for_people(&gate.gate, &gate.measured),
        gate: gate.gate,
        basis: match gate.basis {
            OfGate::Verified => Basis::Verified,
            OfGate::Attested => Basis::Attested,
            OfGate::Mixed => Basis::Mixed,
        },
        passed: gate.passed,
        decides: gate.decides,
        failures: gate.failures,
        failure_count: gate.failure_count,
    });
    let rows = analysis.rows.into_iter().map(|row| Row {
        leg: row.leg,
        device: row.device,
        treatment: row.treatment,
        index: row.index,
        fixture: row.fixture,
        arm: row.arm,
        width: row.width,
        repeat: row.repeat,
        boundary: row.boundary,
        equal: row.equal,
    });
    Ok(Evidence {
        gates: gates.collect(),
        rows: rows.collect(),
        timing: analysis
            .timing
            .iter()
            .map(timing)
            .collect::<Result<_, _>>()?,
        says: analysis.says,
    })
}

fn timing(timing: &packhouse_lab::analysis::Timing) -> Result<Timing, String> {
    let savings = timing.savings.iter().map(saving);
    Ok(Timing {
        leg: timing.leg,
        device: timing.device.clone(),
        savings: savings.collect::<Result<_, _>>()?,
        wins: timing.wins,
        median: saving(&timing.median)?,
        hodges_lehmann: saving(&timing.hodges_lehmann)?,
        sign_test_p: timing.sign_test_p.clone(),
        bootstrap_lower_95: saving(&timing.bootstrap_lower_95)?,
    })
}

fn saving(ratio: &Ratio) -> Result<Saving, String> {
    let numerator = ratio.numerator.parse();
    Ok(Saving {
        numerator: numerator.map_err(|_| {
            format!(
                "a saving that no run of this universe has: {}",
                ratio.numerator
            )
        })?,
        denominator: ratio.denominator,
    })
}

/// Where a page goes.
pub(crate) enum Target<'a> {
    /// To stdout.
    Stdout,
    /// To a file that must not be there.
    New(&'a Path),
}

impl<'a> Target<'a> {
    /// Reads a word of the command line.
    pub(crate) fn of(path: &'a Path) -> Self {
        match path.as_os_str() == "-" {
            true => Self::Stdout,
            false => Self::New(path),
        }
    }

    /// What links on the page begin with, so that they lead to the lab from where the page is.
    pub(crate) fn prefix(&self, place: &Place) -> Result<String, Failure> {
        let Self::New(path) = self else {
            return Ok(String::new());
        };
        let (folder, _) = split(path)?;
        let resolved = |path: &Path| {
            folders::resolve(path).map_err(|error| {
                Failure::new("no folder to write a page to", path.display())
                    .because(&error)
                    .hint(hints::of(&error, path))
            })
        };
        Ok(way(&resolved(&folder)?, &resolved(&place.root)?))
    }

    /// Writes the page, whole and durably, or gives it as the answer.
    pub(crate) fn give(&self, page: String) -> Result<Answer, Failure> {
        let Self::New(path) = self else {
            let document = json!({ "page": page });
            return Ok(Answer::done(page, document));
        };
        let (folder, name) = split(path)?;
        write_new(&folder, &name, &page).map_err(|error| {
            let failure = Failure::new("cannot write the page", path.display()).because(&error);
            failure.hint(hints::of(&error, path))
        })?;
        let (shown, bytes) = (path.display().to_string(), page.len());
        let document = json!({ "written": [{ "path": shown, "bytes": bytes }] });
        Ok(Answer::done(
            format!("written: {}\n", quoted(path)),
            document,
        ))
    }
}

fn split(path: &Path) -> Result<(PathBuf, String), Failure> {
    folders::split(path).map_err(|error| {
        Failure::usage("no name for a page", path.display())
            .because(&error)
            .hint("packhouse lab state --html state.html")
    })
}

fn write_new(folder: &Path, name: &str, page: &str) -> std::io::Result<()> {
    let folder = folders::open(&RealFs, folder)?;
    let write = || {
        let file = folder.create_new(name, 0o644)?;
        let written = file.write_all_at(0, page.as_bytes());
        let written = written.and_then(|()| file.sync());
        if written.is_err() {
            // Half a page is worse than none.
            let _ = folder.unlink(name);
        }
        written.and_then(|()| folder.sync())
    };
    write().map_err(std::io::Error::other)
}

/// Puts a page in the place of the one before, so that a reader has the one or the other.
pub(crate) fn replace(root: &Dir, name: &str, page: &str) -> Result<(), FsError> {
    let fresh = format!(".{name}.new");
    match root.unlink(&fresh) {
        Err(error) if error.kind != FsErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let file = root.create_new(&fresh, 0o644)?;
    let written = file.write_all_at(0, page.as_bytes());
    let written = written.and_then(|()| file.sync());
    if let Err(error) = written.and_then(|()| root.rename_over(&fresh, name)) {
        let _ = root.unlink(&fresh);
        return Err(error);
    }
    root.sync()
}

/// The relative way from one folder to another, both without links, as a link begins.
fn way(from: &Path, to: &Path) -> String {
    let (from, to): (Vec<_>, Vec<_>) = (from.components().collect(), to.components().collect());
    let shared = from
        .iter()
        .zip(&to)
        .take_while(|(one, other)| one == other)
        .count();
    let mut way = "../".repeat(from.len() - shared);
    for component in &to[shared..] {
        if let Component::Normal(name) = component {
            for byte in name.as_bytes() {
                match byte.is_ascii_alphanumeric() || b"-_.".contains(byte) {
                    true => way.push(char::from(*byte)),
                    false => {
                        let _ = write!(way, "%{byte:02X}");
                    }
                }
            }
            way.push('/');
        }
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_lead_from_where_the_page_is_to_the_lab() {
        for (from, to, said) in [
            ("/a/lab", "/a/lab", ""),
            ("/a/lab/pages", "/a/lab", "../"),
            ("/a", "/a/lab", "lab/"),
            ("/tmp/x", "/home/u/my lab", "../../home/u/my%20lab/"),
            ("/", "/lab", "lab/"),
        ] {
            assert_eq!(way(Path::new(from), Path::new(to)), said, "{from} to {to}");
        }
    }
}
