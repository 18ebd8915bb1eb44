//! Forms of what an entry says: names, dates, and the closed sets of words.

use super::fields::FieldValue;
use serde_json::Value;
use std::fmt;

/// The name of a lane or experiment, fit for a file name: `[a-z0-9]`, then up to 63 of
/// `[a-z0-9._-]`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

/// Whether a text may be a reviewer's: `[a-z0-9]`, then up to 63 of `[a-z0-9@._+-]`. No two that
/// differ look alike, and none is another one in another spelling.
pub fn is_reviewer(text: &str) -> bool {
    let mut letters = text.bytes();
    let first = letters.next().is_some_and(is_plain);
    first && text.len() <= 64 && letters.all(|l| is_plain(l) || b"@._+-".contains(&l))
}

/// Why a text is no name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a name of up to 64 characters of a-z 0-9 . _ -, first a letter or digit: {text:?}")]
pub struct NameError {
    /// The text, cut to 80 characters.
    pub text: String,
}

/// A day of the Gregorian calendar, `YYYY-MM-DD`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(String);

/// Why a text is no date.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a day as YYYY-MM-DD: {text:?}")]
pub struct DateError {
    /// The text, cut to 80 characters.
    pub text: String,
}

impl Name {
    /// Parses a name. Errors on any other text.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let mut letters = text.bytes();
        let first = letters.next().is_some_and(is_plain);
        if first && text.len() <= 64 && letters.all(|l| is_plain(l) || b"._-".contains(&l)) {
            return Ok(Self(text.to_owned()));
        }
        Err(NameError {
            text: text.chars().take(80).collect(),
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Date {
    /// Parses a day. Errors on any other text, and on days that no calendar has.
    pub fn parse(text: &str) -> Result<Self, DateError> {
        if is_day(text.as_bytes()) {
            return Ok(Self(text.to_owned()));
        }
        Err(DateError {
            text: text.chars().take(80).collect(),
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn is_plain(letter: u8) -> bool {
    letter.is_ascii_lowercase() || letter.is_ascii_digit()
}

fn is_day(text: &[u8]) -> bool {
    let shape = |(at, byte): (usize, &u8)| match at {
        4 | 7 => *byte == b'-',
        _ => byte.is_ascii_digit(),
    };
    if text.len() != 10 || !text.iter().enumerate().all(shape) {
        return false;
    }
    let number = |digits: &[u8]| {
        digits
            .iter()
            .fold(0u32, |n, d| n * 10 + u32::from(d - b'0'))
    };
    let (year, month, day) = (number(&text[..4]), number(&text[5..7]), number(&text[8..]));
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + u32::from(is_leap),
        _ => return false,
    };
    year >= 1 && (1..=days).contains(&day)
}

macro_rules! text_form {
    ($type:ident, $expected:literal) => {
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FieldValue for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: &Value) -> Option<Self> {
                Self::parse(value.as_str()?).ok()
            }

            fn write(&self) -> Value {
                Value::String(self.0.clone())
            }
        }
    };
}

text_form!(Name, "a name of a-z 0-9 . _ -");
text_form!(Date, "a day as YYYY-MM-DD");

macro_rules! closed {
    ($(#[$doc:meta])* $type:ident, $expected:literal, {
        $($(#[$vdoc:meta])* $name:ident = $text:literal),+ $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $type {
            $($(#[$vdoc])* $name),+
        }

        impl $type {
            /// Every value, in the order of the format.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The word in the ledger.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text),+
                }
            }

            /// Parses the word; `None` for any other text.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == text)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FieldValue for $type {
            const EXPECTED: &'static str = $expected;

            fn read(value: &Value) -> Option<Self> {
                Self::parse(value.as_str()?)
            }

            fn write(&self) -> Value {
                Value::from(self.as_str())
            }
        }
    };
}

closed!(
    /// What is done with a lane.
    LaneAction, "one of open, pause, resume, block, close", {
        /// Makes it; a lane is opened once.
        Open = "open",
        /// Paused until a date, by choice.
        Pause = "pause",
        /// Goes on.
        Resume = "resume",
        /// Waits for something else until a date.
        Block = "block",
        /// The end of it.
        Close = "close",
    }
);

closed!(
    /// Where in a rehearsal or run something went wrong.
    Stage, "a stage", {
        /// Finding devices.
        Discovery = "discovery",
        /// Measuring the frozen identities again.
        Identities = "identities",
        /// Judging the marker's file system.
        FileSystem = "file-system",
        /// The rehearsal's age and sameness, or the rehearsal as a whole.
        Rehearsal = "rehearsal",
        /// Starting programs and greeting them.
        Hello = "hello",
        /// Taking the marker.
        Marker = "marker",
        /// A leg.
        Leg = "leg",
        /// Closing the bag.
        Closing = "closing",
        /// The analysis.
        Analysis = "analysis",
        /// The seal.
        Seal = "seal",
    }
);

closed!(
    /// What an analysis says of a bag.
    Verdict, "one of pass, fail, abort", {
        /// Every gate passed.
        Pass = "pass",
        /// A gate did not.
        Fail = "fail",
        /// The run did not come to its end.
        Abort = "abort",
    }
);

closed!(
    /// A reviewer's word.
    Review, "approve or reject", {
        /// May be armed.
        Approve = "approve",
        /// May not.
        Reject = "reject",
    }
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_fit_for_a_file_name() {
        let longest = "a".repeat(64);
        for name in ["a", "0", "q4-0.n16_x", longest.as_str()] {
            assert_eq!(
                Name::parse(name).map(|n| n.to_string()),
                Ok(name.to_owned())
            );
        }
        let too_long = "a".repeat(65);
        for text in [
            "", ".", "..", "-a", "_a", "A", "a/b", "a b", "a\n", "\u{e4}", &too_long,
        ] {
            let error = Name::parse(text).expect_err("because it is no name");
            assert_eq!(error.text, text);
        }
    }

    #[test]
    fn a_date_is_a_day_that_a_calendar_has() {
        for day in [
            "2026-11-30",
            "2024-02-29",
            "2000-02-29",
            "0001-01-01",
            "9999-12-31",
        ] {
            assert_eq!(Date::parse(day).map(|d| d.to_string()), Ok(day.to_owned()));
        }
        for text in [
            "",
            "2026-11-31",
            "2026-02-29",
            "1900-02-29",
            "0000-01-01",
            "2026-00-10",
            "2026-13-10",
            "2026-10-00",
            "2026-10-32",
            "2026-1-10",
            "26-10-10",
            "2026/10/10",
            "2026-10-10 ",
            "+026-10-10",
            "20261-0-10",
        ] {
            assert!(Date::parse(text).is_err(), "{text}");
        }
    }
}
