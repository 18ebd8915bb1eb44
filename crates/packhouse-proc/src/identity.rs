//! What names a process for good: boot, pid namespace, pid and start time; and what names a start.
//!
//! Invariants:
//! - two processes never have the same key: a pid is given again only after its process is reaped,
//!   and then with a later start time;
//! - a key says nothing by itself: `procfs` tells whether its process is there.
//!
//! Never: a comparison of pids alone. The fields' form in records is in `docs/format/workers.md`.

use packhouse_base::{Blame, units};
use packhouse_store::fields::{FieldError, Fields};
use serde_json::{Value, json};
use std::fmt;
use std::str::FromStr;

/// The environment variable that each process of a start inherits: it holds the start's `RunId`.
pub const RUN_ID_VARIABLE: &str = "PACKHOUSE_WORKER_RUN";

/// The environment variable that each keeper has: it holds the folder of its run. What has it keeps
/// that run, also where it was ordered from inside another worker, whose keeper is then its parent.
pub const KEEPER_VARIABLE: &str = "PACKHOUSE_WORKER_KEEPER";

/// One process of one boot, and of the pid namespace whose number its pid is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessKey {
    /// The boot in which it runs.
    pub boot: BootId,
    /// The inode of the pid namespace in which it has this pid.
    pub pid_namespace: u64,
    /// Its pid.
    pub pid: u32,
    /// Clock ticks from boot to its start: field 22 of proc_pid_stat(5).
    pub start_ticks: u64,
}

/// The kernel's random name of a boot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootId([u8; 16]);

/// The random name of one start of a worker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunId([u8; 16]);

/// Why a text is no id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found {actual:?}")]
pub struct IdError {
    /// The form wanted.
    pub expected: &'static str,
    /// The text present, cut to 80 characters.
    pub actual: String,
}

impl IdError {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        Blame::Store
    }
}

impl ProcessKey {
    /// The key as a record holds it.
    pub fn to_value(&self) -> Value {
        json!({
            "boot": self.boot.to_string(),
            "pid": self.pid,
            "pid_namespace": self.pid_namespace,
            "start_ticks": self.start_ticks,
        })
    }

    /// Takes a key out of a record's object. Errors on an absent, unknown or ill-formed field, and
    /// on a pid of 0 or beyond what the kernel gives.
    pub fn of_fields(mut fields: Fields) -> Result<Self, FieldError> {
        let boot = fields.text("boot")?;
        let boot = boot
            .parse()
            .map_err(|_| wrong(&fields, "boot", BOOT_ID_FORM, &Value::from(boot)))?;
        let pid = fields.integer32("pid")?;
        if pid == 0 || pid > PID_MAX {
            return Err(wrong(&fields, "pid", PID_FORM, &Value::from(pid)));
        }
        let key = Self {
            boot,
            pid_namespace: fields.integer("pid_namespace")?,
            pid,
            start_ticks: fields.integer("start_ticks")?,
        };
        fields.finish()?;
        Ok(key)
    }
}

/// A key for people, by the age of its process where the time is known: `pid 7 (started 12 min 3 s
/// ago)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgedKey {
    /// The key.
    pub key: ProcessKey,
    /// Clock ticks from the key's boot to now.
    pub now_ticks: Option<u64>,
}

impl fmt::Display for AgedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(now_ticks) = self.now_ticks else {
            return self.key.fmt(f);
        };
        let age_s = now_ticks.saturating_sub(self.key.start_ticks) / TICKS_PER_SECOND;
        write!(
            f,
            "pid {} (started {} ago)",
            self.key.pid,
            units::age(age_s)
        )
    }
}

impl fmt::Display for ProcessKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (pid, ticks) = (self.pid, self.start_ticks);
        write!(f, "pid {pid} (started {} after boot)", seconds(ticks))
    }
}

impl BootId {
    /// Makes an id of its bytes, in the order in which they are written.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl FromStr for BootId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let wrong = || IdError {
            expected: BOOT_ID_FORM,
            actual: cut(text),
        };
        let groups: Vec<&str> = text.split('-').collect();
        let lengths: Vec<usize> = groups.iter().map(|group| group.len()).collect();
        if lengths != UUID_GROUPS {
            return Err(wrong());
        }
        bytes_of(&groups.concat()).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = hex(&self.0);
        let mut first = 0;
        for (index, length) in UUID_GROUPS.into_iter().enumerate() {
            let dash = if index == 0 { "" } else { "-" };
            write!(f, "{dash}{}", &digits[first..first + length])?;
            first += length;
        }
        Ok(())
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BootId({self})")
    }
}

impl RunId {
    /// Makes an id of 16 bytes, which the caller draws at random.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl FromStr for RunId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        bytes_of(text).map(Self).ok_or_else(|| IdError {
            expected: RUN_ID_FORM,
            actual: cut(text),
        })
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RunId({self})")
    }
}

/// Clock ticks as seconds with two digits behind the point.
fn seconds(ticks: u64) -> String {
    let (whole, rest) = (ticks / TICKS_PER_SECOND, ticks % TICKS_PER_SECOND);
    format!("{whole}.{:02} s", rest * 100 / TICKS_PER_SECOND)
}

/// Whether a text is the id of a machine, as machine-id(5) has it.
pub fn is_machine_id(text: &str) -> bool {
    let mut digits = text.bytes();
    text.len() == 32 && digits.all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Reads 32 lower-case hex digits.
fn bytes_of(digits: &str) -> Option<[u8; 16]> {
    let plain = |letter: u8| matches!(letter, b'0'..=b'9' | b'a'..=b'f');
    if digits.len() != 32 || !digits.bytes().all(plain) {
        return None;
    }
    let mut bytes = [0; 16];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

fn wrong(fields: &Fields, field: &str, expected: &'static str, actual: &Value) -> FieldError {
    FieldError::WrongType {
        field: fields.path_of(field),
        expected,
        actual: cut(&actual.to_string()),
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= ERROR_TEXT_CHARS {
        return text.to_owned();
    }
    text.chars().take(ERROR_TEXT_CHARS).collect::<String>() + "..."
}

/// USER_HZ: what the kernel counts for programs, on every architecture that is built for.
const TICKS_PER_SECOND: u64 = 100;
const ERROR_TEXT_CHARS: usize = 80;
/// PID_MAX_LIMIT of 64-bit kernels: no pid is as large.
const PID_MAX: u32 = 4 << 20;
const UUID_GROUPS: [usize; 5] = [8, 4, 4, 4, 12];
const BOOT_ID_FORM: &str = "a boot id of 32 lower-case hex digits in five groups";
const RUN_ID_FORM: &str = "a run id of 32 lower-case hex digits";
const PID_FORM: &str = "a pid from 1 to 4194304";

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_base::canonical;

    const KEY: &str = concat!(
        r#"{"key":{"boot":"0f0e0d0c-0b0a-0908-0706-050403020100","pid":7,"#,
        r#""pid_namespace":4026531836,"start_ticks":18446744073709551615},"schema":"test/1"}"#
    );

    fn parse(text: &str) -> Result<ProcessKey, FieldError> {
        let mut fields = Fields::parse(format!("{text}\n").as_bytes(), "test/1")?;
        ProcessKey::of_fields(fields.object("key")?)
    }

    #[test]
    fn a_key_comes_back_from_its_record_unchanged() {
        let key = parse(KEY).expect("because this is a key");
        assert_eq!(key.pid, 7);
        assert_eq!(key.start_ticks, u64::MAX);
        let again = canonical::render(&json!({"key": key.to_value(), "schema": "test/1"}));
        assert_eq!(String::from_utf8_lossy(&again), format!("{KEY}\n"));
        assert_eq!(
            key.to_string(),
            "pid 7 (started 184467440737095516.15 s after boot)"
        );
    }

    #[test]
    fn a_key_is_shown_by_its_age_where_the_time_is_known() {
        let mut key = parse(KEY).expect("because this is a key");
        key.start_ticks = 3_846_431;
        let aged = |now_ticks| AgedKey { key, now_ticks }.to_string();
        assert_eq!(aged(Some(3_918_799)), "pid 7 (started 12 min 3 s ago)");
        assert_eq!(aged(Some(3_846_430)), "pid 7 (started 0 s ago)");
        assert_eq!(aged(None), "pid 7 (started 38464.31 s after boot)");
    }

    #[test]
    fn each_ill_formed_key_is_refused_by_field_and_value() {
        let cases = [
            (
                r#""pid":7"#,
                r#""pid":0"#,
                "key.pid: expected a pid from 1 to 4194304, found 0",
            ),
            (
                r#""pid":7"#,
                r#""pid":4194305"#,
                "key.pid: expected a pid from 1 to 4194304, found 4194305",
            ),
            (
                r#""pid":7"#,
                r#""pid":-7"#,
                "key.pid: expected a 32-bit integer, found -7",
            ),
            (
                "0f0e0d0c-0b0a",
                "0F0e0d0c-0b0a",
                concat!(
                    "key.boot: expected a boot id of 32 lower-case hex digits in five groups, ",
                    r#"found "0F0e0d0c-0b0a-0908-0706-050403020100""#
                ),
            ),
            (
                "0f0e0d0c-0b0a",
                "0f0e0d0c0b0a",
                concat!(
                    "key.boot: expected a boot id of 32 lower-case hex digits in five groups, ",
                    r#"found "0f0e0d0c0b0a-0908-0706-050403020100""#
                ),
            ),
            (
                r#","start_ticks":18446744073709551615"#,
                "",
                "key.start_ticks: absent",
            ),
            (
                r#""pid":7"#,
                r#""name":"x","pid":7"#,
                r#"key.name: unknown field, value "x""#,
            ),
        ];
        for (from, to, message) in cases {
            let error = parse(&KEY.replace(from, to)).expect_err(message);
            assert_eq!(error.to_string(), message);
        }
    }

    #[test]
    fn an_id_has_one_spelling() {
        let run: RunId = "00112233445566778899aabbccddeeff"
            .parse()
            .expect("because these are 32 digits");
        assert_eq!(run.to_string(), "00112233445566778899aabbccddeeff");
        for text in [
            "",
            "0",
            "00112233445566778899AABBCCDDEEFF",
            "+0112233445566778899aabbccddeeff",
        ] {
            let error = text.parse::<RunId>().expect_err("because it is no id");
            assert_eq!(error.actual, text);
        }
        let long = "\u{e9}".repeat(100);
        let error = long.parse::<BootId>().expect_err("because it is no id");
        assert_eq!(error.actual, "\u{e9}".repeat(80) + "...");
    }
}
