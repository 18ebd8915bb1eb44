//! The tree as rules see it: the text of every file that git knows or would add, and cargo's
//! metadata.

use serde_json::Value;
use std::error::Error;
use std::path::Path;
use std::process::Command;

/// One text file.
pub(crate) struct File {
    /// Path from the repository root, with `/`.
    pub(crate) path: String,
    /// Its text; bytes that are not UTF-8 are replaced.
    pub(crate) text: String,
    /// Its length on disk.
    pub(crate) byte_count: u64,
}

/// One crate of the workspace.
pub(crate) struct Member {
    /// Package name.
    pub(crate) name: String,
    /// Folder from the repository root.
    pub(crate) folder: String,
    /// Root files of its targets, from the repository root.
    pub(crate) roots: Vec<String>,
    /// Names of its normal and build dependencies.
    pub(crate) uses: Vec<String>,
    /// Names of its dev-dependencies.
    pub(crate) dev_uses: Vec<String>,
}

/// Everything that a rule may look at.
#[derive(Default)]
pub(crate) struct Tree {
    /// Files sorted by path.
    pub(crate) files: Vec<File>,
    /// Crates of the workspace, sorted by name.
    pub(crate) members: Vec<Member>,
    /// (name, licence expression) of every package in the lock file.
    pub(crate) licences: Vec<(String, String)>,
}

impl Tree {
    /// Reads the tree around this crate. Errors when git or cargo refuse.
    pub(crate) fn load() -> Result<Self, Box<dyn Error>> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .expect("because this crate lies in a folder of the repository");
        let listing = output(
            Command::new("git")
                .args([
                    "ls-files",
                    "-z",
                    "--cached",
                    "--others",
                    "--exclude-standard",
                ])
                .current_dir(root),
        )?;
        let mut files = Vec::new();
        for path in listing.split('\0').filter(|path| !path.is_empty()) {
            // A file that was just deleted is still listed.
            if let Ok(bytes) = std::fs::read(root.join(path)) {
                files.push(File {
                    path: path.to_owned(),
                    text: String::from_utf8_lossy(&bytes).into_owned(),
                    byte_count: bytes.len() as u64,
                });
            }
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        files.dedup_by(|a, b| a.path == b.path);
        let metadata = output(
            Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
                .args(["metadata", "--format-version=1"])
                .current_dir(root),
        )?;
        let metadata: Value = serde_json::from_str(&metadata)?;
        let prefix = format!("{}/", text(&metadata["workspace_root"]));
        let packages = metadata["packages"]
            .as_array()
            .ok_or("cargo metadata has no packages")?;
        let ids: Vec<&Value> = items(&metadata["workspace_members"]).collect();
        let mut members: Vec<Member> = packages
            .iter()
            .filter(|package| ids.contains(&&package["id"]))
            .map(|package| member(package, &prefix))
            .collect();
        members.sort_by(|a, b| a.name.cmp(&b.name));
        let licences = packages
            .iter()
            .map(|package| (text(&package["name"]), text(&package["license"])))
            .collect();
        Ok(Self {
            files,
            members,
            licences,
        })
    }

    /// Finds a file by its path.
    pub(crate) fn text_of(&self, path: &str) -> Option<&str> {
        let file = self.files.iter().find(|file| file.path == path)?;
        Some(&file.text)
    }

    /// Iterates over files whose name ends in one of the endings.
    pub(crate) fn with_ending<'a>(&'a self, endings: &'a [&str]) -> impl Iterator<Item = &'a File> {
        self.files
            .iter()
            .filter(move |file| endings.iter().any(|ending| file.path.ends_with(ending)))
    }

    /// Returns whether a crate of the workspace has this name.
    pub(crate) fn is_member(&self, name: &str) -> bool {
        self.members.iter().any(|member| member.name == name)
    }
}

fn member(package: &Value, prefix: &str) -> Member {
    let relative = |value: &Value| text(value).trim_start_matches(prefix).to_owned();
    let dependencies = |dev: bool| {
        let mut names: Vec<String> = items(&package["dependencies"])
            .filter(|dependency| (dependency["kind"] == "dev") == dev)
            .map(|dependency| text(&dependency["name"]))
            .collect();
        names.sort();
        names.dedup();
        names
    };
    Member {
        name: text(&package["name"]),
        folder: relative(&package["manifest_path"])
            .trim_end_matches("/Cargo.toml")
            .to_owned(),
        roots: items(&package["targets"])
            .map(|target| relative(&target["src_path"]))
            .collect(),
        uses: dependencies(false),
        dev_uses: dependencies(true),
    }
}

fn items(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn output(command: &mut Command) -> Result<String, Box<dyn Error>> {
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?} failed: {said}").into());
    }
    Ok(String::from_utf8(output.stdout)?)
}
