//! Bytes of the system as texts in records, without loss.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;

/// Text as it is; what is not UTF-8, and what looks like it, as `hex:` and digits.
pub(super) fn lossless(word: impl AsRef<OsStr>) -> String {
    let word = word.as_ref();
    match word.to_str() {
        Some(text) if !text.starts_with(HEX) => text.to_owned(),
        Some(_) | None => word
            .as_bytes()
            .iter()
            .fold(HEX.to_owned(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}");
                text
            }),
    }
}

const HEX: &str = "hex:";

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt as _;

    /// Reads what `lossless` wrote; `None` for any other spelling.
    fn restored(text: &str) -> Option<OsString> {
        let Some(digits) = text.strip_prefix(HEX) else {
            return Some(OsString::from(text));
        };
        let pair = |pair: &[u8]| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        };
        let bytes: Option<Vec<u8>> = digits.as_bytes().chunks(2).map(pair).collect();
        let word = OsString::from_vec(bytes?);
        (lossless(&word) == text).then_some(word)
    }

    #[test]
    fn every_word_has_one_text_that_gives_it_back() {
        for (word, text) in [
            (&b"plain"[..], "plain"),
            (b"", ""),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"\xff/x", "hex:ff2f78"),
            (b"hex:00", "hex:6865783a3030"),
        ] {
            let word = OsStr::from_bytes(word);
            assert_eq!(lossless(word), text);
            assert_eq!(restored(text).as_deref(), Some(word));
        }
        for wrong in ["hex:0", "hex:zz", "hex:61", "hex:+1", "hex:FF"] {
            assert_eq!(restored(wrong), None, "{wrong}");
        }
    }
}
