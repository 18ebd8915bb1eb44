//! The packet: `docs/format/lab.md`, section 4.

use super::forms;
use super::prereg::{LIST_MAX, Prereg};
use crate::json::Map;
use crate::report::Report;
use crate::shape::{Record, is_digest, record};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};

/// The frozen right to one run.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    /// The experiment.
    pub(crate) experiment: String,
    /// Id and digest of the lane's document.
    pub(crate) lane: (String, String),
    /// Digest of the preregistration.
    pub(crate) prereg: String,
    /// Digest of the program that gives the first verdict.
    pub(crate) analyzer: String,
    /// Programs by role: `control`, `candidate`, `null`.
    pub(crate) programs: BTreeMap<String, Program>,
    /// Digests of frozen files.
    pub(crate) frozen: Vec<(String, String)>,
    /// Paths of commits.
    pub(crate) commits: Vec<String>,
    /// Digests of fixtures by id.
    pub(crate) fixtures: BTreeMap<String, String>,
}

/// One program of a packet.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// Its name.
    pub(crate) name: String,
    /// Digest of its file.
    pub(crate) sha256: String,
    /// Digests of what its loader would load.
    pub(crate) objects: Vec<String>,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
}

const FIELDS: [&str; 11] = [
    "schema",
    "experiment",
    "kind",
    "lane",
    "prereg",
    "programs",
    "frozen",
    "commits",
    "fixtures",
    "analyzer",
    "checker",
];

/// Reads a packet, and holds it against the preregistration that it froze.
pub(crate) fn packet(
    report: &mut Report,
    tree: &Tree,
    path: &str,
    prereg: Option<&Prereg>,
) -> Option<Packet> {
    let value = record(report, tree, path)?;
    let mut record = Record::new(report, path);
    let map = record.fields(&value, "", &FIELDS, &[])?;
    record.schema(map, "packhouse/packet/1")?;
    record.word(map, "kind", &["component"])?;
    let analyzer = record.digest(map, "analyzer")?;
    record.formed(map, "checker", "a text", forms::is_text)?;
    let lane = record.fields(map.get("lane")?, "lane", &["id", "sha256"], &[])?;
    let packet = Packet {
        experiment: record.formed(map, "experiment", "an id", forms::is_experiment)?,
        lane: (
            record.formed(lane, "id", "an id", forms::is_id)?,
            record.digest(lane, "sha256")?,
        ),
        prereg: record.digest(map, "prereg")?,
        analyzer,
        programs: programs(&mut record, map)?,
        frozen: pairs(&mut record, map, "frozen", "path", forms::is_path)?,
        commits: commits(&mut record, map)?,
        fixtures: pairs(&mut record, map, "fixtures", "id", forms::is_name)?
            .into_iter()
            .collect(),
    };
    if let Some(prereg) = prereg {
        against(&mut record, &packet, prereg);
    }
    Some(packet)
}

fn programs(record: &mut Record<'_>, map: &Map) -> Option<BTreeMap<String, Program>> {
    let map = map.get("programs")?;
    let map = record.fields(map, "programs", &["candidate"], &["control", "null"])?;
    if map.len() != 2 {
        let code = match map.len() {
            1 => "record.missing-field",
            _ => "record.type",
        };
        let words = "`programs` has not exactly one of control and null";
        record.find(code, words);
        return None;
    }
    let mut programs = BTreeMap::new();
    for (role, value) in map {
        let fields = ["program", "objects", "arguments", "environment"];
        let map = record.fields(value, role, &fields, &[])?;
        let own = record.fields(map.get("program")?, "program", &["name", "sha256"], &[])?;
        let arguments = record.texts(map, "arguments")?;
        if !arguments.iter().all(|word| forms::is_word(word)) {
            record.find(
                "record.type",
                format!("the arguments of {role} are not words"),
            );
            return None;
        }
        let program = Program {
            name: record.formed(own, "name", "a program", forms::is_path)?,
            sha256: record.digest(own, "sha256")?,
            objects: objects(record, map)?,
            arguments,
            environment: environment(record, map)?,
        };
        programs.insert(role.clone(), program);
    }
    Some(programs)
}

/// Reads the field `environment`.
pub(super) fn environment(record: &mut Record<'_>, map: &Map) -> Option<BTreeMap<String, String>> {
    let map = record.object(map, "environment")?;
    let mut environment = BTreeMap::new();
    for name in map.keys() {
        let value = record.formed(map, name, "a word", forms::is_word)?;
        if !forms::is_variable(name) || map.len() > LIST_MAX {
            record.find("record.type", format!("{name:?} is no name of a variable"));
            return None;
        }
        environment.insert(name.clone(), value);
    }
    Some(environment)
}

/// Reads the field `objects` of a program: by ascending name, then digest, none twice.
pub(crate) fn objects(record: &mut Record<'_>, map: &Map) -> Option<Vec<String>> {
    let mut last = None;
    let mut digests = Vec::new();
    for item in record.list(map, "objects")? {
        let map = record.fields(item, "objects", &["name", "sha256"], &[])?;
        let is_good = |name: &str| forms::is_text(name) && forms::is_path(name);
        let name = record.formed(map, "name", "the name of a file", is_good)?;
        let digest = record.digest(map, "sha256")?;
        if name.contains('/') {
            record.find(
                "record.type",
                format!("the object {name:?} is no last component"),
            );
            return None;
        }
        let this = Some((name, digest.clone()));
        if last >= this {
            record.find(
                "record.type",
                "`objects` are out of order, or one is there twice",
            );
            return None;
        }
        last = this;
        digests.push(digest);
    }
    Some(digests)
}

/// Reads a list of `{name, sha256}` by ascending name, none twice.
fn pairs(
    record: &mut Record<'_>,
    map: &Map,
    list: &str,
    name: &str,
    is: fn(&str) -> bool,
) -> Option<Vec<(String, String)>> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for item in record.list(map, list)? {
        let map = record.fields(item, list, &[name, "sha256"], &[])?;
        let key = record.formed(map, name, "of its form", is)?;
        let digest = record.digest(map, "sha256")?;
        if pairs.last().is_some_and(|(last, _)| *last >= key) {
            record.find(
                "record.type",
                format!("`{list}` is out of order at {key:?}"),
            );
            return None;
        }
        pairs.push((key, digest));
    }
    Some(pairs)
}

fn commits(record: &mut Record<'_>, map: &Map) -> Option<Vec<String>> {
    let mut paths = Vec::new();
    for item in record.list(map, "commits")? {
        let map = record.fields(item, "commits", &["commit", "path"], &[])?;
        let is_commit = |text: &str| {
            is_digest(text) || (text.len() == 40 && is_digest(&format!("{text}{}", "0".repeat(24))))
        };
        record.formed(map, "commit", "a commit", is_commit)?;
        paths.push(record.formed(map, "path", "a path", forms::is_path)?);
    }
    Some(paths)
}

/// Holds a packet against its preregistration.
fn against(record: &mut Record<'_>, packet: &Packet, prereg: &Prereg) {
    let mut differ = |what: &str| {
        let words = format!("the packet's {what} is not that of the preregistration");
        record.find("packet.prereg", words);
    };
    if packet.experiment != prereg.id {
        differ("experiment");
    }
    if packet.commits != prereg.commits {
        differ("list of commits");
    }
    let is_below =
        |path: &str, root: &String| path == root || path.starts_with(&format!("{root}/"));
    let frozen = &packet.frozen;
    let is_asked = |path: &str| prereg.frozen.iter().any(|root| is_below(path, root));
    let has_any = |root: &String| frozen.iter().any(|(path, _)| is_below(path, root));
    if !frozen.iter().all(|(path, _)| is_asked(path)) || !prereg.frozen.iter().all(has_any) {
        differ("list of frozen files");
    }
    for (role, (name, arguments, environment)) in &prereg.programs {
        let name = name.strip_prefix("./").unwrap_or(name);
        let is_so = packet.programs.get(role).is_some_and(|program| {
            program.name == name
                && program.arguments == *arguments
                && program.environment == *environment
        });
        if !is_so {
            differ(&format!("program {role}"));
        }
    }
    if let Some(null) = packet.programs.get("null") {
        let is_own = null.name == "packhouse"
            && null.arguments == ["fixture", "serve"]
            && null.environment.is_empty();
        if prereg.programs.contains_key("control") || !is_own {
            differ("program null");
        }
    }
    let rejected = prereg.rejections.iter().map(|case| &case.fixture);
    let asked: BTreeSet<&String> = prereg.fixtures.iter().chain(rejected).collect();
    if !asked.into_iter().eq(packet.fixtures.keys()) {
        let words = "the packet's fixtures are not those of the preregistration";
        record.find("packet.fixture", words);
    }
}
