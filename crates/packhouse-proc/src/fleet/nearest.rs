//! The known word that an unknown one looks like.

/// The known word with the fewest edits to it, where these are few; the first of several.
pub(super) fn nearest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    let limit = (word.chars().count() / 3).max(1) + 1;
    let edits = known.iter().map(|known| (edits(word, known), *known));
    let (edits, found) = edits.min_by_key(|(edits, _)| *edits)?;
    (edits <= limit && edits < found.len()).then_some(found)
}

/// Letters to put in, take out or change, and neighbours to swap, to make one word the other.
fn edits(left: &str, right: &str) -> usize {
    let left: Vec<char> = left.chars().take(LETTERS_MAX).collect();
    let right: Vec<char> = right.chars().collect();
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=right.len()).collect();
    for (row, letter) in left.iter().enumerate() {
        let mut here = vec![row + 1];
        for (column, other) in right.iter().enumerate() {
            let changed = above[column] + usize::from(letter != other);
            let mut least = changed.min(above[column + 1] + 1).min(here[column] + 1);
            let is_swap =
                row > 0 && column > 0 && *letter == right[column - 1] && left[row - 1] == *other;
            if is_swap {
                least = least.min(before[column - 1] + 1);
            }
            here.push(least);
        }
        before = above;
        above = here;
    }
    above[right.len()]
}

/// A key longer than this looks like none of ours.
const LETTERS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_are_found_and_other_words_are_not() {
        let known = ["port", "profile", "device", "health_path"];
        for (word, expected) in [
            ("prot", Some("port")),
            ("ports", Some("port")),
            ("pot", Some("port")),
            ("devise", Some("device")),
            ("healthpath", Some("health_path")),
            ("profiel", Some("profile")),
            ("gpu_layers", None),
            ("", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, &known), expected, "{word}");
        }
        assert_eq!(nearest("a", &[]), None);
    }

    #[test]
    fn edits_are_counted() {
        for (left, right, count) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("", "abc", 3),
            ("abc", "", 3),
            ("abc", "acb", 1),
            ("abc", "axc", 1),
            ("abc", "xyz", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(edits(left, right), count, "{left} {right}");
        }
    }
}
