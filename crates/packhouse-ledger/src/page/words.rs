//! Texts made safe for where they stand, times, digests and links.

use packhouse_base::shown::Shown;
use std::fmt::Write as _;

/// A moment as `2026-11-30 07:10:11 UTC`, of nanoseconds since 1970. Proleptic Gregorian days by
/// Howard Hinnant's `civil_from_days` (<https://howardhinnant.github.io/date_algorithms.html>).
pub fn utc(at_ns: i64) -> String {
    let seconds = at_ns.div_euclid(1_000_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", date(day))
}

/// The day alone, as `2026-11-30`.
pub(super) fn day(at_ns: i64) -> String {
    date(at_ns.div_euclid(86_400_000_000_000))
}

fn date(day: i64) -> String {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let of_month = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{of_month:02}")
}

/// A text on one line, with what a terminal or a browser would obey spelled out.
pub(super) fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    Shown(&words.join(" ")).to_string()
}

/// A text in the middle of a line of Markdown: nothing in it is markup, a link or a cell's end.
pub(super) fn md(text: &str) -> String {
    let letters: Vec<char> = plain(text).chars().collect();
    let mut escaped = String::with_capacity(letters.len());
    for (place, letter) in letters.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|place| letters.get(place));
        let after = letters.get(place + 1);
        let in_word = |one: Option<&char>| one.is_some_and(|letter| letter.is_alphanumeric());
        let is_markup = match letter {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '~' | '&' | '!' | '#' | '$' => true,
            '_' => !(in_word(before) && in_word(after)),
            ':' => after == Some(&'/'),
            '.' => before.is_some_and(|before| before.eq_ignore_ascii_case(&'w')),
            _ => false,
        };
        if is_markup {
            escaped.push('\\');
        }
        escaped.push(*letter);
    }
    escaped
}

/// A word of ours in Markdown's code type, fit for a cell of a table.
pub(super) fn code(text: &str) -> String {
    let text = plain(text).replace('`', "'").replace('|', "\\|");
    format!("`{text}`")
}

/// The start of a digest, as commands take it.
pub(super) fn short(digest: &str) -> String {
    plain(digest).chars().take(12).collect()
}

/// A relative path as a link: each byte that is not plain in a path is percent-encoded, and no
/// step leads upwards.
pub(super) fn href(prefix: &str, steps: &[&str]) -> String {
    let mut link = prefix.to_owned();
    for (place, step) in steps.iter().enumerate() {
        if place > 0 {
            link.push('/');
        }
        // `..` would lead elsewhere; no folder of a lab is called so.
        let is_upwards = step.chars().all(|letter| letter == '.');
        for byte in step.bytes() {
            let is_plain = byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if is_plain && !is_upwards {
                link.push(char::from(byte));
            } else {
                let _ = write!(link, "%{byte:02X}");
            }
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_calendar() {
        // Each by `date -u -d @SECONDS`.
        for (seconds, said) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_164_800, "2024-02-29 00:00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
            (1_796_022_611, "2026-11-30 07:10:11 UTC"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), said);
            assert_eq!(day(seconds * 1_000_000_000), said[..10]);
        }
        assert_eq!(utc(i64::MAX), "2262-04-11 23:47:16 UTC");
        assert_eq!(utc(i64::MIN), "1677-09-21 00:12:43 UTC");
    }

    #[test]
    fn markdown_keeps_words_and_takes_markup_away() {
        for (text, said) in [
            (
                "plain_words stay-here, 3.5 x",
                "plain_words stay-here, 3.5 x",
            ),
            ("_a_ *b* `c`", "\\_a\\_ \\*b\\* \\`c\\`"),
            ("<b>&amp;", "\\<b\\>\\&amp;"),
            ("[x](y) ![z](w)", "\\[x\\](y) \\!\\[z\\](w)"),
            ("a | b\n\n# c", "a \\| b \\# c"),
            ("https://x www.y.z", "https\\://x www\\.y.z"),
            ("a\u{1b}[2J\u{202e}b", "a\\\\u{1b}\\[2J\\\\u{202e}b"),
            ("$x$ ~~y~~", "\\$x\\$ \\~\\~y\\~\\~"),
        ] {
            assert_eq!(md(text), said, "{text}");
        }
        assert_eq!(code("a`b|c\nd"), "`a'b\\|c d`");
    }

    #[test]
    fn links_stay_below_their_prefix() {
        assert_eq!(href("", &["lanes", "a-b.toml"]), "lanes/a-b.toml");
        assert_eq!(href("../", &["experiments", ".."]), "../experiments/%2E%2E");
        assert_eq!(
            href("", &["experiments", "a/../\"><script>", "x"]),
            "experiments/a%2F..%2F%22%3E%3Cscript%3E/x"
        );
        assert_eq!(href("", &["gr\u{fc}n"]), "gr%C3%BCn");
    }
}
