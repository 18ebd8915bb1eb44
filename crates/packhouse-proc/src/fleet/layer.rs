//! Settings that the file may give to all workers, to those of a profile, or to one.
//!
//! Later layers win: common, then the profile, then the worker. Arguments and inherited variables
//! add up; variables and stop timeouts win one by one; all others as a whole. A model and its
//! SHA-256 are one setting.

use super::mistake::{FormFault, Owner, Wrong};
use super::name::refuse_other;
use super::table::{Located, Notes, Table};
use super::template::Template;
use super::{Model, StopTimeouts};
use crate::masks::VARIABLES;
use packhouse_base::digest::Digest;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use toml::de::DeValue;

/// One layer, or several on each other.
#[derive(Clone, Debug, Default)]
pub(super) struct Layer {
    /// Keys that are there, right or wrong: what seems to be missing because of a mistake is none.
    pub(super) wrong: BTreeSet<&'static str>,
    pub(super) host: Option<Located<IpAddr>>,
    pub(super) model: Option<Located<Model>>,
    pub(super) prefer_ram_copy: Option<bool>,
    pub(super) threads: Option<u32>,
    pub(super) args: Vec<Located<Template>>,
    pub(super) environment: BTreeMap<String, Located<Template>>,
    pub(super) inherit: BTreeMap<String, usize>,
    pub(super) health_path: Option<String>,
    pub(super) ready_timeout_s: Option<u64>,
    pub(super) interrupt_s: Option<u64>,
    pub(super) terminate_s: Option<u64>,
    pub(super) kill_s: Option<u64>,
}

impl Layer {
    /// Reads a table's settings.
    pub(super) fn read(table: &Table<'_>, notes: &mut Notes) -> Self {
        let number = |value: Option<Located<u64>>| value.map(|value| value.value);
        let threads = table.number(notes, "threads", 1, THREADS_MAX);
        let args = table.list(notes, "args", Template::parse);
        let health_path = table.parsed(notes, "health_path", health_path);
        let ready = table.number(notes, "ready_timeout_s", 1, READY_TIMEOUT_S_MAX);
        let mut layer = Self {
            wrong: BTreeSet::new(),
            host: table.parsed(notes, "host", address),
            model: model(table, notes),
            prefer_ram_copy: table.flag(notes, "prefer_ram_copy"),
            threads: threads.and_then(|threads| u32::try_from(threads.value).ok()),
            args: args.map(|args| args.value).unwrap_or_default(),
            environment: environment(table, notes),
            inherit: inherit(table, notes),
            health_path: health_path.map(|path| path.value),
            ready_timeout_s: number(ready),
            interrupt_s: None,
            terminate_s: None,
            kill_s: None,
        };
        if let Some(steps) = table.inner(notes, "stop_timeouts_s") {
            steps.refuse_others(notes, &["interrupt", "terminate", "kill"]);
            let mut seconds = |key| number(steps.number(notes, key, 0, STOP_TIMEOUT_S_MAX));
            layer.interrupt_s = seconds("interrupt");
            layer.terminate_s = seconds("terminate");
            layer.kill_s = seconds("kill");
        }
        layer.wrong = layer.lost(table);
        layer
    }

    /// Keys whose values could not be read whole, of those on which rules look.
    fn lost(&self, table: &Table<'_>) -> BTreeSet<&'static str> {
        let is_whole = |key: &str, count: usize| match table.value(key).map(|v| v.get_ref()) {
            None => true,
            Some(DeValue::Array(items)) => items.len() == count,
            Some(DeValue::Table(items)) => items.len() == count,
            Some(_) => false,
        };
        let is_read = |key: &str, is_there: bool| is_there || table.value(key).is_none();
        let keys = [
            ("args", is_whole("args", self.args.len())),
            (
                "environment",
                is_whole("environment", self.environment.len()),
            ),
            ("model", is_read("model", self.model.is_some())),
            ("threads", is_read("threads", self.threads.is_some())),
        ];
        let lost = keys.into_iter().filter(|(_, is_right)| !is_right);
        lost.map(|(key, _)| key).collect()
    }

    /// Lays another one on top.
    pub(super) fn under(mut self, top: &Self) -> Self {
        self.args.extend(top.args.iter().cloned());
        self.wrong.extend(&top.wrong);
        let added = top.environment.iter();
        self.environment
            .extend(added.map(|(name, value)| (name.clone(), value.clone())));
        let added = top.inherit.iter().map(|(name, at)| (name.clone(), *at));
        self.inherit.extend(added);
        Self {
            host: top.host.clone().or(self.host),
            model: top.model.clone().or(self.model),
            prefer_ram_copy: top.prefer_ram_copy.or(self.prefer_ram_copy),
            threads: top.threads.or(self.threads),
            health_path: top.health_path.clone().or(self.health_path),
            ready_timeout_s: top.ready_timeout_s.or(self.ready_timeout_s),
            interrupt_s: top.interrupt_s.or(self.interrupt_s),
            terminate_s: top.terminate_s.or(self.terminate_s),
            kill_s: top.kill_s.or(self.kill_s),
            wrong: self.wrong,
            args: self.args,
            environment: self.environment,
            inherit: self.inherit,
        }
    }

    /// The stop timeouts, with the defaults where nothing is said.
    pub(super) fn stop_timeouts(&self) -> StopTimeouts {
        let default = StopTimeouts::default();
        StopTimeouts {
            interrupt_s: self.interrupt_s.unwrap_or(default.interrupt_s),
            terminate_s: self.terminate_s.unwrap_or(default.terminate_s),
            kill_s: self.kill_s.unwrap_or(default.kill_s),
        }
    }
}

/// The keys of a layer. A worker has these and its own.
pub(super) const LAYER_KEYS: &[&str] = &[
    "host",
    "model",
    "model_sha256",
    "prefer_ram_copy",
    "threads",
    "args",
    "environment",
    "inherit",
    "health_path",
    "ready_timeout_s",
    "stop_timeouts_s",
];

fn model(table: &Table<'_>, notes: &mut Notes) -> Option<Located<Model>> {
    let sha256 = table.parsed(notes, "model_sha256", |text| {
        Digest::parse(text).map_err(|_| Wrong::Form {
            found: text.to_owned(),
            why: FormFault::Digest,
        })
    });
    let path = table.parsed(notes, "model", absolute);
    if table.value("model").is_none()
        && let Some(sha256) = &sha256
    {
        table.note(notes, sha256.at, "model_sha256", Wrong::DigestWithoutModel);
    }
    let Located { at, value: path } = path?;
    let sha256 = sha256.map(|sha256| sha256.value);
    Some(Located {
        at,
        value: Model { path, sha256 },
    })
}

fn environment(table: &Table<'_>, notes: &mut Notes) -> BTreeMap<String, Located<Template>> {
    let mut environment = BTreeMap::new();
    let Some(inner) = table.inner(notes, "environment") else {
        return environment;
    };
    for (name, at, value) in inner.entries() {
        if let Err(what) = variable(name) {
            inner.note(notes, at, name, what);
            continue;
        }
        let Some(text) = inner.text_of(notes, name, value) else {
            continue;
        };
        match Template::parse(text.value) {
            Ok(value) => {
                let at = text.at;
                environment.insert(name.to_owned(), Located { at, value });
            }
            Err(error) => inner.note(notes, text.at, name, error.into()),
        }
    }
    environment
}

fn inherit(table: &Table<'_>, notes: &mut Notes) -> BTreeMap<String, usize> {
    let names = table.list(notes, "inherit", |name| {
        variable(name)?;
        if VARIABLES.contains(&name) {
            return Err(Wrong::Reserved(Owner::Device));
        }
        Ok(name.to_owned())
    });
    let names = names.map(|names| names.value).unwrap_or_default();
    names
        .into_iter()
        .map(|name| (name.value, name.at))
        .collect()
}

/// Errors unless a text is the name of a variable that a fleet file may have.
fn variable(name: &str) -> Result<(), Wrong> {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_name = name.bytes().next().is_some_and(is_letter)
        && name
            .bytes()
            .all(|byte| is_letter(byte) || byte.is_ascii_digit());
    if !is_name {
        return Err(Wrong::Form {
            found: name.to_owned(),
            why: FormFault::Variable,
        });
    }
    if name.starts_with(RESERVED_PREFIX) {
        return Err(Wrong::Reserved(Owner::Start));
    }
    Ok(())
}

fn address(text: &str) -> Result<IpAddr, Wrong> {
    text.parse().map_err(|_| Wrong::Form {
        found: text.to_owned(),
        why: FormFault::Address,
    })
}

/// Parses an absolute path.
pub(super) fn absolute(text: &str) -> Result<PathBuf, Wrong> {
    if Path::new(text).is_absolute() {
        Ok(PathBuf::from(text))
    } else {
        Err(Wrong::Form {
            found: text.to_owned(),
            why: FormFault::RelativePath,
        })
    }
}

fn health_path(text: &str) -> Result<String, Wrong> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
    if text.starts_with('/') && text.bytes().all(is_plain) {
        Ok(text.to_owned())
    } else {
        Err(Wrong::Form {
            found: text.to_owned(),
            why: FormFault::HealthPath,
        })
    }
}

/// Parses a name that becomes no folder.
pub(super) fn plain_name(text: &str) -> Result<String, Wrong> {
    refuse_other(text)?;
    Ok(text.to_owned())
}

/// Variables of a start: what proves descent is among them.
const RESERVED_PREFIX: &str = "PACKHOUSE_WORKER_";
const THREADS_MAX: u64 = 4096;
const READY_TIMEOUT_S_MAX: u64 = 86_400;
const STOP_TIMEOUT_S_MAX: u64 = 3_600;
