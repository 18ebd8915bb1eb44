//! What is staged, for the commands that look at a store as a whole: `ls`, `du` and `gc`.

use crate::places::Lookup;
use crate::ram;
use crate::stage::{open_root, root_path, stranger_lines, unusable};
use crate::stores::short;
use packhouse_base::digest::SetKey;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_stage::models::{self, CollectedModels};
use packhouse_stage::{Collected, StageListing};
use packhouse_store::root::Store;
use packhouse_sys::stat::FsKind;
use serde_json::{Value, json};
use std::path::PathBuf;

/// The stages of the environment's folder. One that can't be used is said to be so and stops
/// nothing.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    path: Option<PathBuf>,
    pub(crate) stages: Vec<StageListing>,
    kind: Option<FsKind>,
    problem: Option<String>,
}

/// What `gc` did with stages.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    pub(crate) collected: Collected,
    models: CollectedModels,
    problem: Option<String>,
}

impl Listed {
    pub(crate) fn of(lookup: Lookup<'_>) -> Self {
        let mut listed = Self::default();
        let path = match root_path(None, lookup) {
            Ok(path) => path,
            Err(failure) => {
                listed.problem = Some(failure.reason());
                return listed;
            }
        };
        match open_root(&path, false) {
            Ok(root) => {
                listed.kind = Some(root.file_system());
                match packhouse_stage::list(&root) {
                    Ok(stages) => listed.stages = stages,
                    Err(error) => listed.problem = Some(error.to_string()),
                }
            }
            Err(error) if error.is_missing() => {}
            Err(error) => listed.problem = Some(unusable(&path, &error).reason()),
        }
        listed.path = Some(path);
        listed
    }

    /// The folder of stages, where one is known.
    pub(crate) fn path(&self) -> Option<String> {
        Some(self.path.as_ref()?.display().to_string())
    }

    /// Where stages are and what there is, in one line.
    pub(crate) fn summary(&self) -> String {
        let path = self.path().unwrap_or_default();
        match &self.problem {
            Some(problem) => format!("{path} is not used: {problem}"),
            None => {
                let bytes = units::bytes(self.bytes());
                let place = ram::place(self.kind);
                match self.stages.len() {
                    1 => format!("{path}: 1 set {place} ({bytes})"),
                    count => format!("{path}: {count} sets {place} ({bytes})"),
                }
            }
        }
    }

    /// One word for a set: is it staged?
    pub(crate) fn word(&self, set: SetKey) -> &'static str {
        let newest = self.stages.iter().rfind(|stage| stage.set == set);
        match newest {
            None => "-",
            Some(stage) if stage.miss.is_none() => "yes",
            Some(_) => "broken",
        }
    }

    /// Lines for what the table of sets has no place for.
    pub(crate) fn lines(&self, is_known: &dyn Fn(SetKey) -> bool) -> String {
        let mut text = String::new();
        for stage in self.stages.iter().filter(|stage| !is_known(stage.set)) {
            let bytes = units::bytes(stage.bytes);
            text += &format!("staged only: {} ({bytes})\n", short(&stage.set));
        }
        for miss in self.stages.iter().filter_map(|stage| stage.miss.as_ref()) {
            text += &format!("broken: {miss}\n");
        }
        if let Some(problem) = &self.problem {
            text += &format!("stages: {problem}\n");
        }
        text
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.stages.iter().map(|stage| stage.bytes).sum()
    }

    /// Every stage, for `--json`.
    pub(crate) fn document(&self) -> Value {
        let stages = self.stages.iter().map(|stage| {
            json!({
                "set": stage.set.to_string(),
                "generation": stage.generation,
                "bytes": stage.bytes,
                "superseded": stage.superseded,
                "problem": stage.miss.as_ref().map(ToString::to_string),
            })
        });
        stages.collect()
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}

impl Swept {
    /// Bytes of what nobody finishes and nobody maps, and of copies that somebody may still map.
    pub(crate) fn freed(&self) -> (u64, u64) {
        let Collected {
            orphans,
            superseded,
            temps,
            ..
        } = &self.collected;
        let copies = orphans.bytes + superseded.bytes + self.models.superseded.bytes;
        (temps.bytes, copies)
    }

    /// Removes the store's stages of sets that `keep` does not know, and what nobody finishes.
    pub(crate) fn of(
        store: &Store,
        keep: &dyn Fn(SetKey) -> bool,
        dry_run: bool,
        lookup: Lookup<'_>,
    ) -> Self {
        let failed = |problem: String| Self {
            problem: Some(problem),
            ..Self::default()
        };
        let path = match root_path(None, lookup) {
            Ok(path) => path,
            Err(failure) => return failed(failure.reason()),
        };
        let root = match open_root(&path, false) {
            Ok(root) => root,
            Err(error) if error.is_missing() => return Self::default(),
            Err(error) => return failed(error.to_string()),
        };
        let mut swept = match packhouse_stage::collect(&root, store.id(), keep, dry_run) {
            Ok(collected) => Self {
                collected,
                ..Self::default()
            },
            Err(error) => return failed(error.to_string()),
        };
        match models::collect(&root, dry_run) {
            Ok(collected) => swept.models = collected,
            Err(error) => swept.problem = Some(error.to_string()),
        }
        swept
    }

    /// Whether everything that should go went.
    pub(crate) fn is_done(&self) -> bool {
        self.collected.failures.is_empty() && self.models.failures.is_empty()
    }

    /// Lines for what the table of groups has no place for.
    pub(crate) fn lines(&self) -> String {
        let mut text = String::new();
        if let Some(problem) = &self.problem {
            text += &format!("stages: {problem}\n");
        }
        let failures = self.collected.failures.iter();
        for failure in failures.chain(&self.models.failures) {
            text += &format!("not removed: {failure}\n");
        }
        text += &stranger_lines(&self.collected.strangers);
        for name in &self.models.strangers {
            let name = Shown(name);
            text += &format!("no copy of a model by its name, stays: {name}\n");
        }
        text
    }

    /// Rows of the table and fields of the document: name, count, bytes.
    pub(crate) fn groups(&self) -> [(&'static str, u64, u64); 5] {
        let Collected {
            orphans,
            superseded,
            temps,
            ..
        } = &self.collected;
        [
            ("stages", orphans.count, orphans.bytes),
            ("older stages", superseded.count, superseded.bytes),
            ("unfinished stages", temps.count, temps.bytes),
            (
                "older model copies",
                self.models.superseded.count,
                self.models.superseded.bytes,
            ),
            ("model paths", self.models.record_count, 0),
        ]
    }

    pub(crate) fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }
}
