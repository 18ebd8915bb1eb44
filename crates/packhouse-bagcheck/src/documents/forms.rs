//! Forms of texts: `docs/format/lab.md`, section 1, and names of `docs/format/component.md`.

/// Returns whether a text has something that is no blank, and is no longer than texts may be.
pub(crate) fn is_text(text: &str) -> bool {
    text.len() <= 4096 && !text.trim().is_empty()
}

fn is_low(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Returns whether a text is an id.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() <= 64 && is_name(text)
}

/// Returns whether a text is the id of an experiment, which no digest's beginning may look like.
pub(crate) fn is_experiment(text: &str) -> bool {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    is_id(text) && !(text.len() >= 8 && text.bytes().all(is_hex))
}

/// Returns whether a text is a name.
pub(crate) fn is_name(text: &str) -> bool {
    text.len() <= 128
        && text.bytes().next().is_some_and(is_low)
        && text
            .bytes()
            .all(|byte| is_low(byte) || b"._-".contains(&byte))
}

/// Returns whether a text is the name of a device in a message.
pub(crate) fn is_device_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphanumeric();
    text.len() <= 128
        && text.bytes().next().is_some_and(is_first)
        && text
            .bytes()
            .all(|byte| is_first(byte) || b"._-:".contains(&byte))
}

/// Returns whether a text is a device that stays the same device.
pub(crate) fn is_device(text: &str) -> bool {
    if text == "cpu" {
        return true;
    }
    let Some((kind, uuid)) = text.split_once(':') else {
        return false;
    };
    let is_kind = (1..=16).contains(&kind.len()) && kind.bytes().all(|b| b.is_ascii_lowercase());
    let parts: Vec<&str> = uuid.split('-').collect();
    let widths = [8, 4, 4, 4, 12];
    let has_word = parts.len() == widths.len() + 1;
    let (word, digits) = parts.split_at(usize::from(has_word));
    let is_word = |text: &&str| {
        (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    let is_hex = |(text, width): (&&str, usize)| {
        text.len() == width && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    is_kind
        && word.iter().all(is_word)
        && digits.len() == widths.len()
        && digits.iter().zip(widths).all(is_hex)
}

/// Returns whether a text is a path below the lab's folder.
pub(crate) fn is_path(text: &str) -> bool {
    let is_component = |part: &str| !part.is_empty() && part != "." && part != "..";
    text.len() <= 1024
        && text.split('/').all(is_component)
        && !text.chars().any(|c| c.is_control() || c == '\\')
}

/// Returns whether a text names a program.
pub(crate) fn is_program(text: &str) -> bool {
    is_path(text.strip_prefix("./").unwrap_or(text))
}

/// Returns whether a text is a word without an absolute path.
pub(crate) fn is_word(text: &str) -> bool {
    let is_relative = |at: usize| {
        let before: Vec<char> = text[..at].chars().rev().take(2).collect();
        match before.first() {
            None => false,
            Some(':') => {
                text[at..].starts_with("//") && before.get(1).is_some_and(char::is_ascii_lowercase)
            }
            Some(c) => !"=,\"' ".contains(*c),
        }
    };
    text.len() <= 1024
        && !text.chars().any(char::is_control)
        && text.match_indices('/').all(|(at, _)| is_relative(at))
}

/// Returns whether a text names a variable of the environment.
pub(crate) fn is_variable(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(is_first)
        && text
            .bytes()
            .all(|byte| is_first(byte) || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_no_ordinal() {
        for device in [
            "cpu",
            "cuda:GPU-01234567-89ab-cdef-0123-456789ABCDEF",
            "xpu:01234567-89ab-cdef-0123-456789abcdef",
        ] {
            assert!(is_device(device), "{device}");
        }
        for device in [
            "0",
            "cuda:0",
            "gpu1",
            "",
            "CPU",
            "cuda:",
            "cuda:GPU-01234567-89ab-cdef-0123-456789abcde",
            "cuda:GPU1-01234567-89ab-cdef-0123-456789abcdef",
            "Cuda:01234567-89ab-cdef-0123-456789abcdef",
            "cuda:A-B-01234567-89ab-cdef-0123-456789abcdef",
        ] {
            assert!(!is_device(device), "{device}");
        }
    }

    #[test]
    fn a_word_has_no_absolute_path() {
        for word in [
            "",
            "a/b",
            "${lab}/x",
            "http://host/x",
            "--x=a/b",
            "a b",
            "//",
        ] {
            let is_odd = word == "//";
            assert_eq!(is_word(word), !is_odd, "{word}");
        }
        for word in [
            "/a", "x=/a", "a:/b", "a,/b", "\"/a", "'/a", "a /b", "A://b", "://b", "a\n", "PATH:/a",
        ] {
            assert!(!is_word(word), "{word}");
        }
    }

    #[test]
    fn an_experiment_is_no_digest_and_a_path_leads_nowhere_else() {
        assert!(is_experiment("deadbee") && is_experiment("deadbeef-1"));
        assert!(!is_experiment("deadbeef") && !is_experiment("-a") && !is_experiment("A"));
        assert!(is_path("a/b.c") && is_program("./a") && is_program("packhouse"));
        for path in [
            "", "/a", "a//b", "a/../b", "./a", "a/.", "a\\b", "a\n", "a/",
        ] {
            assert!(!is_path(path), "{path}");
        }
    }
}
