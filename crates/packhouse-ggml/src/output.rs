//! Where the plug-in speaks: lines on standard error, reports and the announcement as files.

use crate::environment::Configuration;
use packhouse_loader::Level;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The plug-in's voice.
pub(crate) struct Output {
    level: Level,
    report_folder: Option<PathBuf>,
}

impl Output {
    /// A voice as configured.
    pub(crate) fn new(configuration: &Configuration) -> Self {
        let report_folder = configuration.report_folder.clone();
        Self {
            level: configuration.level,
            report_folder,
        }
    }

    /// A voice before there is a configuration.
    pub(crate) fn plain() -> Self {
        Self {
            level: Level::Info,
            report_folder: None,
        }
    }

    /// Writes one line to standard error, in one write so that lines of threads do not mix.
    pub(crate) fn say(&self, level: Level, line: &str) {
        if level <= self.level {
            let line = format!("packhouse: {line}\n");
            // Nobody is left to tell when standard error is closed.
            let _ = std::io::stderr().write_all(line.as_bytes());
        }
    }

    /// Writes a report as `<pid>-<load>.json`, whole or not at all: a reader polls for it.
    pub(crate) fn report(&self, report: &serde_json::Value) {
        let Some(folder) = &self.report_folder else {
            return;
        };
        let load = report["load"].as_u64().unwrap_or(0);
        let name = format!("{}-{load}.json", std::process::id());
        let mut bytes = serde_json::to_vec_pretty(report).unwrap_or_default();
        bytes.push(b'\n');
        let target = folder.join(&name);
        let temporary = folder.join(format!(".{name}.new"));
        if let Err(error) = write_over(&temporary, &target, &bytes) {
            self.say(
                Level::Warn,
                &format!("report {} not written: {error}", target.display()),
            );
        }
    }

    /// Creates the file that `packhouse run` waits for. Its folder is gone when nobody waits any
    /// more, and somebody else's file under that name is left alone.
    pub(crate) fn announce(&self, path: &Path) {
        #[expect(
            clippy::disallowed_methods,
            reason = "an empty file in a folder of the launcher's"
        )]
        let result = std::fs::File::create_new(path);
        if let Err(error) = result {
            self.say(
                Level::Debug,
                &format!("announcement {}: {error}", path.display()),
            );
        }
    }
}

/// Reports are the user's own files, in a folder of theirs, replaced as the fill goes on.
#[expect(
    clippy::disallowed_methods,
    reason = "a report is no stored byte; it is replaced, not sealed"
)]
fn write_over(temporary: &Path, target: &Path, bytes: &[u8]) -> std::io::Result<()> {
    std::fs::write(temporary, bytes)?;
    std::fs::rename(temporary, target)
}
