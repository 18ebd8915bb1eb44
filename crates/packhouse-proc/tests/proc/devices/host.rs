//! Hosts made of files, and tools that say what was recorded.

use packhouse_proc::devices::{
    Inventory, Question, RawReport, Roots, ToolAnswer, Tools, inventory,
};
use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A host: its kernel's files in a folder.
pub(super) struct Host {
    folder: TempDir,
}

impl Host {
    /// Makes a host of a tree: `== PATH` begins a file's content, `-> PATH TARGET` is a link.
    pub(super) fn of(tree: &str) -> Self {
        let host = Self {
            folder: TempDir::new().unwrap(),
        };
        for folder in ["proc", "sys", "dev"] {
            std::fs::create_dir(host.folder.path().join(folder)).unwrap();
        }
        let mut file: Option<(&str, String)> = None;
        for line in tree.lines().chain(["== "]) {
            let start = line.strip_prefix("== ");
            let link = line.strip_prefix("-> ");
            if (start.is_some() || link.is_some())
                && let Some((path, content)) = file.take()
            {
                host.write(path, &content);
            }
            match (start, link, &mut file) {
                (Some(path), _, _) => file = Some((path, String::new())),
                (None, Some(link), _) => {
                    let (path, target) = link.split_once(' ').unwrap();
                    host.link(path, Path::new(target));
                }
                (None, None, Some((_, content))) => {
                    content.push_str(line);
                    content.push('\n');
                }
                (None, None, None) => panic!("no file for {line:?}"),
            }
        }
        host
    }

    /// Puts a file into the tree, over an older one.
    pub(super) fn write(&self, path: &str, content: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Puts a link into the tree.
    pub(super) fn link(&self, path: &str, target: &Path) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// Takes a file or folder out of the tree.
    pub(super) fn remove(&self, path: &str) {
        let path = self.folder.path().join(path);
        if path.is_dir() {
            std::fs::remove_dir_all(path).unwrap();
        } else {
            std::fs::remove_file(path).unwrap();
        }
    }

    /// Gives a process a descriptor of a DRM device.
    pub(super) fn client(&self, pid: u32, descriptor: u32, node: &str, fdinfo: &str) {
        self.link(&format!("proc/{pid}/fd/{descriptor}"), Path::new(node));
        self.write(&format!("proc/{pid}/fdinfo/{descriptor}"), fdinfo);
    }

    /// Adds a process whose descriptors can't be looked at: even root gets an error from a file
    /// where a folder should be readable, so a loop of links stands in.
    pub(super) fn hidden_process(&self, pid: u32) {
        self.link(&format!("proc/{pid}/fd"), Path::new("fd"));
    }

    pub(super) fn roots(&self) -> Roots {
        let root = |name: &str| -> PathBuf { self.folder.path().join(name) };
        Roots {
            proc: root("proc"),
            sys: root("sys"),
            dev: root("dev"),
        }
    }

    pub(super) fn look(&self, tools: &dyn Tools) -> Inventory {
        inventory(tools, &self.roots())
    }
}

/// Tools that say what was recorded. What was not recorded is not installed.
#[derive(Clone, Default)]
pub(super) struct Recorded {
    answers: BTreeMap<Question, ToolAnswer>,
}

impl Recorded {
    pub(super) fn said(self, question: Question, text: &str) -> Self {
        self.said_by(None, question, text)
    }

    /// Notes an answer and the process that gave it.
    pub(super) fn said_by(mut self, observer: Option<u32>, question: Question, text: &str) -> Self {
        let raw = RawReport {
            source: question.source(),
            version: None,
            text: text.to_owned(),
            observer,
        };
        self.answers.insert(question, ToolAnswer::Said(raw));
        self
    }

    pub(super) fn failed(mut self, question: Question, why: &str) -> Self {
        let answer = ToolAnswer::Failed {
            why: why.to_owned(),
            raw: None,
        };
        self.answers.insert(question, answer);
        self
    }
}

impl Tools for Recorded {
    fn ask(&self, question: &Question) -> ToolAnswer {
        self.answers
            .get(question)
            .cloned()
            .unwrap_or(ToolAnswer::Absent)
    }
}
