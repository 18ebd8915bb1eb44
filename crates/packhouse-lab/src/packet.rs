//! Packets: the one-shot right to execute a frozen preregistration.
//!
//! A packet holds digests of all that an execution hangs on, and nothing of when or where it was
//! made: equal inputs give equal bytes, and its name is their SHA-256. Specified in
//! `docs/format/lab.md`.

use crate::document::{DocumentError, Fields, distinct, is_said};
use crate::lane::ID;
use crate::name::{is_experiment_id, is_id, is_portable_word, is_relative_path, is_variable};
use crate::prereg::Kind;
use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_component::name::is_name;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A packet's content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The experiment's id.
    pub experiment: String,
    /// What kind of experiment it is.
    pub kind: Kind,
    /// The lane's document.
    pub lane: LaneRef,
    /// Digest of the preregistration's bytes.
    pub prereg: Digest,
    /// What is executed.
    pub programs: Programs,
    /// Every frozen file, by ascending path.
    pub frozen: Vec<FrozenFile>,
    /// Every frozen commit, in the preregistration's order.
    pub commits: Vec<FrozenCommit>,
    /// Every fixture that is used, by ascending id.
    pub fixtures: Vec<FixtureRef>,
    /// Digest of the program that runs and analyses.
    pub analyzer: Digest,
    /// Name and version of the second implementation.
    pub checker: String,
}

/// A lane's document by content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRef {
    /// The lane's id.
    pub id: String,
    /// Digest of its document's bytes.
    pub sha256: Digest,
}

/// The programs of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Programs {
    /// What is compared with, where there is one.
    pub control: Option<FrozenProgram>,
    /// What is judged.
    pub candidate: FrozenProgram,
    /// The null candidate of rehearsals; there exactly when there is no control.
    pub null: Option<FrozenProgram>,
}

/// A program, and all that its loader would load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenProgram {
    /// Its file: by bare name, or by its path below the lab's folder.
    pub program: Object,
    /// Libraries, and an interpreter with its own, by ascending name and digest.
    pub objects: Vec<Object>,
    /// As in the preregistration.
    pub arguments: Vec<String>,
    /// As in the preregistration.
    pub environment: BTreeMap<String, String>,
}

/// A file by content.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its name.
    pub name: String,
    /// Digest of its bytes.
    pub sha256: Digest,
}

/// A frozen file of the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenFile {
    /// Path below the lab's folder.
    pub path: String,
    /// Digest of its bytes.
    pub sha256: Digest,
}

/// A frozen work tree of the lab, which is clean.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrozenCommit {
    /// Path below the lab's folder.
    pub path: String,
    /// Git's name of the commit, in hex.
    pub commit: String,
}

/// A fixture by content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixtureRef {
    /// Its id.
    pub id: String,
    /// Digest of its bag.
    pub sha256: Digest,
}

/// The schema of packets.
pub const PACKET_SCHEMA: &str = "packhouse/packet/1";

impl Packet {
    /// Renders in canonical JSON.
    pub fn render(&self) -> Vec<u8> {
        let text = |digest: &Digest| digest.to_string();
        let frozen = self.frozen.iter();
        let frozen = frozen.map(|file| json!({"path": file.path, "sha256": text(&file.sha256)}));
        let commits = self.commits.iter();
        let commits = commits.map(|one| json!({"commit": one.commit, "path": one.path}));
        let fixtures = self.fixtures.iter();
        let fixtures = fixtures.map(|one| json!({"id": one.id, "sha256": text(&one.sha256)}));
        canonical::render(&json!({
            "analyzer": text(&self.analyzer),
            "checker": self.checker,
            "commits": commits.collect::<Vec<_>>(),
            "experiment": self.experiment,
            "fixtures": fixtures.collect::<Vec<_>>(),
            "frozen": frozen.collect::<Vec<_>>(),
            "kind": self.kind.word(),
            "lane": {"id": self.lane.id, "sha256": text(&self.lane.sha256)},
            "prereg": text(&self.prereg),
            "programs": self.programs.value(),
            "schema": PACKET_SCHEMA,
        }))
    }

    /// The packet's digest: SHA-256 of its bytes.
    pub fn digest(&self) -> Digest {
        Digest::of(&self.render())
    }

    /// Parses canonical JSON.
    ///
    /// # Errors
    /// On anything that `render` would not have written.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let mut fields = Fields::parse_json(bytes, PACKET_SCHEMA)?;
        const EXPERIMENT: &str = "an id of an experiment";
        let packet = Self {
            experiment: fields.word("experiment", EXPERIMENT, is_experiment_id)?,
            kind: fields.one_of("kind", "\"component\"", Kind::from_word)?,
            lane: fields.table("lane", |fields| {
                Ok(LaneRef {
                    id: fields.word("id", ID, is_id)?,
                    sha256: fields.digest("sha256")?,
                })
            })?,
            prereg: fields.digest("prereg")?,
            programs: fields.table("programs", Programs::read)?,
            frozen: fields.all_tables("frozen", FrozenFile::read)?,
            commits: fields.all_tables("commits", FrozenCommit::read)?,
            fixtures: fields.all_tables("fixtures", FixtureRef::read)?,
            analyzer: fields.digest("analyzer")?,
            checker: fields.text("checker")?,
        };
        fields.finish()?;
        ascending("frozen", packet.frozen.iter().map(|file| &file.path))?;
        ascending("fixtures", packet.fixtures.iter().map(|one| &one.id))?;
        distinct("commits", packet.commits.iter().map(|one| &one.path))?;
        Ok(packet)
    }
}

impl Programs {
    /// The program of a rehearsal in the candidate's place.
    pub fn rehearsed(&self) -> &FrozenProgram {
        let null = self.null.as_ref().or(self.control.as_ref());
        null.unwrap_or(&self.candidate)
    }

    /// Each program with its word.
    pub fn all(&self) -> impl Iterator<Item = (&'static str, &FrozenProgram)> {
        let control = self.control.iter().map(|program| (CONTROL, program));
        let null = self.null.iter().map(|program| (NULL, program));
        control.chain([(CANDIDATE, &self.candidate)]).chain(null)
    }

    fn value(&self) -> Value {
        let all = self
            .all()
            .map(|(word, program)| (word.to_owned(), program.value()));
        Value::Object(all.collect::<Map<_, _>>())
    }

    fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        let control = fields.optional_table(CONTROL, FrozenProgram::read)?;
        let candidate = fields.table(CANDIDATE, FrozenProgram::read)?;
        let null = match control {
            Some(_) => None,
            None => Some(fields.table(NULL, FrozenProgram::read)?),
        };
        Ok(Self {
            control,
            candidate,
            null,
        })
    }
}

impl FrozenProgram {
    fn value(&self) -> Value {
        json!({
            "arguments": self.arguments,
            "environment": self.environment,
            "objects": self.objects.iter().map(Object::value).collect::<Vec<_>>(),
            "program": self.program.value(),
        })
    }

    fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        let path = fields.path_of("objects");
        let program = Self {
            program: fields.table("program", |fields| Object::read(fields, is_relative_path))?,
            objects: fields.all_tables("objects", |fields| Object::read(fields, is_file_name))?,
            arguments: fields.words("arguments", "a portable text", is_portable_word)?,
            environment: fields.word_map(
                "environment",
                ("names of variables", is_variable),
                ("a portable text", is_portable_word),
            )?,
        };
        let ordered = program.objects.iter();
        ascending(
            &path,
            ordered.map(|object| format!("{} {}", object.name, object.sha256)),
        )?;
        Ok(program)
    }
}

impl Object {
    fn value(&self) -> Value {
        json!({"name": self.name, "sha256": self.sha256.to_string()})
    }

    fn read(fields: &mut Fields, is_good: impl Fn(&str) -> bool) -> Result<Self, DocumentError> {
        Ok(Self {
            name: fields.word("name", "the name of a file", is_good)?,
            sha256: fields.digest("sha256")?,
        })
    }
}

impl FrozenFile {
    fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        Ok(Self {
            path: fields.word("path", "a path below the lab's folder", is_relative_path)?,
            sha256: fields.digest("sha256")?,
        })
    }
}

impl FrozenCommit {
    fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        Ok(Self {
            path: fields.word("path", "a path below the lab's folder", is_relative_path)?,
            commit: fields.word("commit", "40 or 64 lower-case hex digits", is_commit)?,
        })
    }
}

impl FixtureRef {
    fn read(fields: &mut Fields) -> Result<Self, DocumentError> {
        Ok(Self {
            id: fields.word("id", "a fixture's id", is_name)?,
            sha256: fields.digest("sha256")?,
        })
    }
}

/// Whether a text is Git's name of a commit.
pub fn is_commit(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    matches!(text.len(), 40 | 64) && text.bytes().all(is_digit)
}

fn is_file_name(text: &str) -> bool {
    is_said(text) && is_relative_path(text) && !text.contains('/')
}

fn ascending<T: Ord + std::fmt::Display>(
    field: &str,
    list: impl Iterator<Item = T>,
) -> Result<(), DocumentError> {
    let list: Vec<T> = list.collect();
    match list.windows(2).find(|pair| pair[0] >= pair[1]) {
        Some(pair) => {
            let why = format!("{} and {} are not in ascending order", pair[0], pair[1]);
            Err(crate::document::rule(field, why))
        }
        None => Ok(()),
    }
}

pub(crate) const CONTROL: &str = "control";
pub(crate) const CANDIDATE: &str = "candidate";
const NULL: &str = "null";
