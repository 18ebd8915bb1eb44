//! The process' own words: environment variables and the engine's command line.
//!
//! Only this module of the plug-in reads the environment. Everything in it is a pure function of an
//! `Environment`, so that tests give their own.

use packhouse_loader::{Level, Settings, Trust};
use packhouse_sys::fs::Fs as _;
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What the process was started with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    /// Environment variables.
    pub variables: BTreeMap<OsString, OsString>,
    /// The command line, program first.
    pub arguments: Vec<OsString>,
}

/// What the plug-in makes of it.
#[derive(Clone, Debug)]
pub(crate) struct Configuration {
    /// Settings of the loader.
    pub settings: Settings,
    /// Whether the engine keeps weights out of GPU host buffers.
    pub no_host: bool,
    /// The least important lines that are printed.
    pub level: Level,
    /// Where reports go.
    pub report_folder: Option<PathBuf>,
    /// Values that were not understood, as whole lines.
    pub complaints: Vec<String>,
}

/// Why the plug-in stays out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Off {
    /// The user said so.
    #[error("PACKHOUSE=0")]
    Variable,
    /// The engine was told not to repack.
    #[error("the engine runs without repacking: {word}")]
    NoRepack {
        /// The word that says so.
        word: String,
    },
}

impl Environment {
    /// Reads the process' own.
    #[expect(
        clippy::disallowed_methods,
        reason = "the plug-in's edge to the process"
    )]
    pub(crate) fn of_this_process() -> Self {
        let variables = std::env::vars_os().collect();
        // std's arguments are empty in a library loaded by a C program under some libcs; /proc
        // never is.
        let line = std::fs::read("/proc/self/cmdline").unwrap_or_default();
        let words = line.split(|byte| *byte == 0).map(to_os_string);
        Self {
            variables,
            arguments: words.collect(),
        }
    }

    /// Works out the configuration. Errors with the reason when the plug-in stays out.
    pub(crate) fn configure(&self) -> Result<Configuration, Off> {
        if self.text("PACKHOUSE").as_deref() == Some("0") {
            return Err(Off::Variable);
        }
        if let Some(word) = self.no_repack() {
            return Err(Off::NoRepack { word });
        }
        let mut complaints = Vec::new();
        let settings = Settings {
            root: self.store_root(),
            state: self.state_root(),
            read_only: self.flag("PACKHOUSE_READONLY"),
            trust: self.trust(&mut complaints),
            bytes_max: self.bytes_max(&mut complaints),
            stage: self.stage_root(&mut complaints),
        };
        Ok(Configuration {
            settings,
            no_host: self.no_host(),
            level: self.level(&mut complaints),
            report_folder: self.path("PACKHOUSE_REPORT"),
            complaints,
        })
    }

    fn trust(&self, complaints: &mut Vec<String>) -> Trust {
        match self.text("PACKHOUSE_TRUST").as_deref() {
            None | Some("receipt") => Trust::Receipt,
            Some("sample") => Trust::Sample,
            Some("deep") => Trust::Deep,
            Some(other) => {
                complaints.push(format!(
                    "PACKHOUSE_TRUST is {other:?}, not sample, receipt or deep; deep is used"
                ));
                Trust::Deep
            }
        }
    }

    fn bytes_max(&self, complaints: &mut Vec<String>) -> Option<u64> {
        let text = self.text("PACKHOUSE_MAX_BYTES")?;
        text.parse().map_or_else(
            |_| {
                complaints.push(format!(
                    "PACKHOUSE_MAX_BYTES is {text:?}, not a count of bytes; nothing is stored"
                ));
                Some(0)
            },
            Some,
        )
    }

    fn level(&self, complaints: &mut Vec<String>) -> Level {
        match self.text("PACKHOUSE_LOG").as_deref() {
            None | Some("info") => Level::Info,
            Some("error") => Level::Error,
            Some("warn") => Level::Warn,
            Some("debug") => Level::Debug,
            Some(other) => {
                complaints.push(format!(
                    "PACKHOUSE_LOG is {other:?}, not error, warn, info or debug; info is used"
                ));
                Level::Info
            }
        }
    }

    fn store_root(&self) -> Option<PathBuf> {
        let cache = || Some(self.path("XDG_CACHE_HOME")?.join("packhouse"));
        let home = || Some(self.path("HOME")?.join(".cache/packhouse"));
        self.path("PACKHOUSE_STORE").or_else(cache).or_else(home)
    }

    fn state_root(&self) -> Option<PathBuf> {
        let state = || Some(self.path("XDG_STATE_HOME")?.join("packhouse"));
        let home = || Some(self.path("HOME")?.join(".local/state/packhouse"));
        state().or_else(home)
    }

    /// The folder of stages; the empty word looks for none.
    fn stage_root(&self, complaints: &mut Vec<String>) -> Option<PathBuf> {
        let Some(value) = self.variables.get(OsStr::new("PACKHOUSE_STAGE")) else {
            return Some(packhouse_loader::default_stage_root(RealFs.effective_uid()));
        };
        let path = self.path("PACKHOUSE_STAGE");
        if path.is_none() && !value.is_empty() {
            complaints.push(format!(
                "PACKHOUSE_STAGE is {:?}, not an absolute path; no stage is looked for",
                value.to_string_lossy()
            ));
        }
        path
    }

    /// The word that turned repacking off, if one did. The command line wins over the environment,
    /// and of its words the last wins; llama-bench gives `--repack` a list of 0 and 1, of which any
    /// 0 counts.
    fn no_repack(&self) -> Option<String> {
        let mut off = self.no_repack_variable();
        for (index, word) in self.arguments.iter().enumerate() {
            let next = self.arguments.get(index + 1).and_then(|next| next.to_str());
            match word.to_str() {
                Some(word @ ("--no-repack" | "-nr")) => off = Some(word.to_owned()),
                Some("--repack") => {
                    let list = next.filter(|next| next.split(',').any(|item| item == "0"));
                    off = list.map(|list| format!("--repack {list}"));
                }
                Some(_) | None => {}
            }
        }
        off
    }

    /// Source of the variables and their false words: `common/arg.cpp` of b11434.
    fn no_repack_variable(&self) -> Option<String> {
        if self
            .variables
            .contains_key(OsStr::new("LLAMA_ARG_NO_REPACK"))
        {
            return Some("LLAMA_ARG_NO_REPACK".to_owned());
        }
        let value = self.text("LLAMA_ARG_REPACK")?;
        let is_false = matches!(value.as_str(), "off" | "disabled" | "false" | "0");
        is_false.then(|| format!("LLAMA_ARG_REPACK={value}"))
    }

    fn no_host(&self) -> bool {
        let mut words = self
            .arguments
            .iter()
            .zip(self.arguments.iter().skip(1).map(Some).chain([None]));
        let said = words.any(|(word, next)| {
            word == "--no-host" && next.is_none_or(|next| next.to_str() != Some("0"))
        });
        said || self.variables.contains_key(OsStr::new("LLAMA_ARG_NO_HOST"))
    }

    fn flag(&self, name: &str) -> bool {
        self.text(name)
            .is_some_and(|value| !matches!(value.as_str(), "" | "0"))
    }

    /// The file whose appearance tells `packhouse run` that the plug-in is loaded, working or not.
    pub(crate) fn announcement(&self) -> Option<PathBuf> {
        self.path("PACKHOUSE_ANNOUNCE")
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        let value = self.variables.get(OsStr::new(name))?;
        Some(PathBuf::from(value)).filter(|path| path.is_absolute())
    }

    fn text(&self, name: &str) -> Option<String> {
        Some(
            self.variables
                .get(OsStr::new(name))?
                .to_string_lossy()
                .into_owned(),
        )
    }
}

fn to_os_string(bytes: &[u8]) -> OsString {
    use std::os::unix::ffi::OsStrExt as _;
    OsStr::from_bytes(bytes).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(variables: &[(&str, &str)], arguments: &[&str]) -> Environment {
        Environment {
            variables: variables
                .iter()
                .map(|(k, v)| (k.into(), v.into()))
                .collect(),
            arguments: arguments.iter().map(OsString::from).collect(),
        }
    }

    #[test]
    fn the_plug_in_stays_out_when_the_engine_does_not_repack() {
        let off = |variables: &[(&str, &str)], arguments: &[&str]| {
            environment(variables, arguments)
                .configure()
                .err()
                .map(|off| off.to_string())
        };
        assert_eq!(off(&[], &["llama-server", "-m", "x"]), None);
        assert_eq!(
            off(&[("PACKHOUSE", "0")], &[]).as_deref(),
            Some("PACKHOUSE=0")
        );
        assert_eq!(off(&[("PACKHOUSE", "1")], &[]), None);
        for word in ["--no-repack", "-nr"] {
            assert!(off(&[], &["s", word]).is_some_and(|why| why.ends_with(word)));
            assert_eq!(
                off(&[], &["s", word, "--repack"]),
                None,
                "the last word wins"
            );
        }
        assert!(off(&[], &["llama-bench", "--repack", "0,1"]).is_some());
        assert_eq!(off(&[], &["llama-bench", "--repack", "1"]), None);
        assert!(off(&[("LLAMA_ARG_REPACK", "off")], &["s"]).is_some());
        assert_eq!(off(&[("LLAMA_ARG_REPACK", "1")], &["s"]), None);
        assert!(off(&[("LLAMA_ARG_NO_REPACK", "")], &["s"]).is_some());
        assert_eq!(
            off(&[("LLAMA_ARG_NO_REPACK", "1")], &["s", "--repack"]),
            None
        );
    }

    #[test]
    fn no_host_is_seen_in_both_tools_spellings() {
        let no_host = |variables: &[(&str, &str)], arguments: &[&str]| {
            let configuration = environment(variables, arguments).configure();
            configuration.expect("because nothing turns it off").no_host
        };
        assert!(!no_host(&[], &["s"]));
        assert!(no_host(&[], &["s", "--no-host"]));
        assert!(no_host(&[], &["s", "--no-host", "1"]));
        assert!(!no_host(&[], &["s", "--no-host", "0"]));
        assert!(no_host(&[("LLAMA_ARG_NO_HOST", "1")], &["s"]));
    }

    #[test]
    fn places_follow_the_documented_order_and_no_home_is_none() {
        let settings = |variables: &[(&str, &str)]| {
            environment(variables, &[])
                .configure()
                .expect("because nothing turns it off")
                .settings
        };
        let home = settings(&[("HOME", "/h")]);
        assert_eq!(home.root, Some("/h/.cache/packhouse".into()));
        assert_eq!(home.state, Some("/h/.local/state/packhouse".into()));
        let xdg = settings(&[
            ("HOME", "/h"),
            ("XDG_CACHE_HOME", "/c"),
            ("XDG_STATE_HOME", "/s"),
        ]);
        assert_eq!(
            (xdg.root, xdg.state),
            (Some("/c/packhouse".into()), Some("/s/packhouse".into()))
        );
        let own = settings(&[
            ("HOME", "/h"),
            ("PACKHOUSE_STORE", "/p"),
            ("XDG_CACHE_HOME", "/c"),
        ]);
        assert_eq!(own.root, Some("/p".into()));
        let user = RealFs.effective_uid();
        assert_eq!(own.stage, Some(format!("/dev/shm/packhouse-{user}").into()));
        let stage = settings(&[("PACKHOUSE_STAGE", "/r")]).stage;
        assert_eq!(stage, Some("/r".into()));
        assert_eq!(settings(&[("PACKHOUSE_STAGE", "")]).stage, None);
        let none = settings(&[("HOME", "")]);
        assert_eq!((none.root, none.state), (None, None));
    }

    #[test]
    fn a_value_that_is_not_understood_is_named_and_errs_to_the_safe_side() {
        let variables = [
            ("PACKHOUSE_TRUST", "most"),
            ("PACKHOUSE_MAX_BYTES", "5G"),
            ("PACKHOUSE_STAGE", "beside"),
            ("PACKHOUSE_LOG", "loud"),
        ];
        let configuration = environment(&variables, &[]).configure();
        let configuration = configuration.expect("because nothing turns it off");
        assert_eq!(configuration.settings.trust, Trust::Deep);
        assert_eq!(configuration.settings.bytes_max, Some(0));
        assert_eq!(configuration.settings.stage, None);
        assert_eq!(configuration.complaints.len(), 4);
        assert!(
            configuration
                .complaints
                .iter()
                .zip(variables)
                .all(|(c, (_, v))| c.contains(v))
        );
    }
}
