//! Words as bash gives them back.

use packhouse_base::shown::Shown;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

/// A word as bash takes it: bare, in quotes, or in `$'...'` where it is no UTF-8 or a terminal
/// would do something else with a character than to draw it.
pub fn quoted(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_@%+:,./-".contains(byte);
    let bytes = word.as_bytes();
    match word.to_str() {
        Some(text) if !bytes.is_empty() && bytes.iter().all(is_plain) => text.to_owned(),
        Some(text) if Shown(text).to_string() == text => {
            format!("'{}'", text.replace('\'', "'\\''"))
        }
        Some(_) | None => {
            let mut escaped = String::new();
            for byte in bytes {
                match byte {
                    b'\'' | b'\\' => escaped.extend(['\\', char::from(*byte)]),
                    b' '..=b'~' => escaped.push(char::from(*byte)),
                    // Always three digits: bash takes no more of an octal number.
                    byte => {
                        let _ = write!(escaped, "\\{byte:03o}");
                    }
                }
            }
            format!("$'{escaped}'")
        }
    }
}
