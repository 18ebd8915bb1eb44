//! Text of others on a terminal or in a log: names from a model file, a plan or a caller.
//!
//! A tensor's name may hold any bytes that are UTF-8. Shown as they are, an escape sequence moves
//! the cursor, a newline forges a line of ours, and a bidirectional mark turns the rest of the line
//! around.

use std::fmt::{self, Write as _};

/// A text that shows what it holds: each control character, line separator and mark of direction or
/// of no width stands there as `\u{1b}`. All else, backslashes too, stays as it is, so that what
/// was shown once is shown again unchanged.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a>(pub &'a str);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            if is_hidden(letter) {
                write!(f, "{}", letter.escape_unicode())?;
            } else {
                f.write_char(letter)?;
            }
        }
        Ok(())
    }
}

/// Whether a terminal does something else with a character than to draw it.
pub fn is_hidden(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_spelled_out() {
        for (text, shown) in [
            ("blk.0.ffn_up.weight", "blk.0.ffn_up.weight"),
            ("a\u{1b}[31mred", "a\\u{1b}[31mred"),
            ("a\nhint: rm", "a\\u{a}hint: rm"),
            ("\r\t\0\u{7f}", "\\u{d}\\u{9}\\u{0}\\u{7f}"),
            ("\u{9b}2J", "\\u{9b}2J"),
            ("\u{202e}txt\u{2069}", "\\u{202e}txt\\u{2069}"),
            ("a\u{200b}b\u{feff}", "a\\u{200b}b\\u{feff}"),
            ("\u{2028}\u{2029}", "\\u{2028}\\u{2029}"),
            ("\u{e0041}", "\\u{e0041}"),
            (
                "gr\u{f6}\u{df}e \u{4e2d} \\u{1b}",
                "gr\u{f6}\u{df}e \u{4e2d} \\u{1b}",
            ),
        ] {
            assert_eq!(Shown(text).to_string(), shown);
            assert_eq!(Shown(shown).to_string(), shown, "shown again");
        }
    }
}
