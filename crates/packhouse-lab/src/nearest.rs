//! Which of the known words a misspelt one was meant to be.

/// The known word that is nearest, of those that few keystrokes lead to: of a short word one, of
/// others two. The first of several.
pub fn nearest<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    let most = if word.len() < 6 { 1 } else { 2 };
    let known = known.into_iter().filter(|one| *one != word);
    let near = known.map(|one| (keystrokes(word.as_bytes(), one.as_bytes()), one));
    let near = near.filter(|(strokes, _)| *strokes <= most);
    near.min_by_key(|(strokes, _)| *strokes).map(|(_, one)| one)
}

/// Letters that are added, left out, replaced, or exchanged with the next, at the fewest (optimal
/// string alignment).
fn keystrokes(one: &[u8], other: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (row, letter) in one.iter().enumerate() {
        let mut line = vec![row + 1];
        for (column, expected) in other.iter().enumerate() {
            let replaced = last[column] + usize::from(letter != expected);
            let mut least = replaced.min(last[column + 1] + 1).min(line[column] + 1);
            let is_exchanged =
                row > 0 && column > 0 && one[row - 1] == *expected && *letter == other[column - 1];
            if is_exchanged {
                least = least.min(before[column - 1] + 1);
            }
            line.push(least);
        }
        before = std::mem::replace(&mut last, line);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_word_is_told_from_another_one() {
        let known = ["question", "title", "widths", "control", "id", "arms"];
        for (word, meant) in [
            ("questoin", Some("question")),
            ("titel", Some("title")),
            ("width", Some("widths")),
            ("contrl", Some("control")),
            ("arm", Some("arms")),
            ("ids", Some("id")),
            ("plane", None),
            ("", None),
            ("title", None),
        ] {
            assert_eq!(nearest(word, known), meant, "{word}");
        }
    }
}
