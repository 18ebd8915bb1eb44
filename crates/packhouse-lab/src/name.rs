//! The names that documents of a lab may hold: ids, devices, paths and words for programs.
//!
//! Specified in `docs/format/lab.md`, section 1.

pub use packhouse_component::name::is_lasting_device as is_device;

/// Whether a text is an id of a lane: `[a-z0-9]`, then up to 63 of `[a-z0-9._-]`.
pub fn is_id(text: &str) -> bool {
    text.len() <= ID_BYTES_MAX && packhouse_component::name::is_name(text)
}

/// Whether a text is an id of an experiment: as of a lane, and no abbreviation of a packet's
/// digest.
pub fn is_experiment_id(text: &str) -> bool {
    is_id(text) && !is_abbreviation(text)
}

/// Whether a text may stand for a packet: 8 to 64 lower-case hex digits.
pub fn is_abbreviation(text: &str) -> bool {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    (8..=64).contains(&text.len()) && text.bytes().all(is_digit)
}

/// Whether a text is a portable path below the lab's folder: components joined by one `/`, none
/// of them `.` or `..`, no control characters, not absolute.
pub fn is_relative_path(text: &str) -> bool {
    let is_component = |part: &str| !matches!(part, "" | "." | "..");
    text.len() <= PATH_BYTES_MAX
        && !text.chars().any(char::is_control)
        && !text.contains('\\')
        && text.split('/').all(is_component)
}

/// Whether a text may be a program's argument or the value of a variable: no control characters,
/// and no absolute path in it, which would be another file on another host. A path may begin with
/// `${lab}`; a URL is no path.
pub fn is_portable_word(text: &str) -> bool {
    let ends_word = |letter: char| ":=, \"'".contains(letter);
    let starts: Vec<usize> = std::iter::once(0)
        .chain(text.match_indices(ends_word).map(|(at, _)| at + 1))
        .collect();
    let is_absolute = |start: &usize| {
        let before = &text[..*start];
        let is_url = before.ends_with(':')
            && text[*start..].starts_with("//")
            && before
                .trim_end_matches(':')
                .ends_with(|letter: char| letter.is_ascii_lowercase());
        text[*start..].starts_with('/') && !is_url
    };
    text.len() <= PATH_BYTES_MAX
        && !text.chars().any(char::is_control)
        && !starts.iter().any(is_absolute)
}

/// Whether a text is the name of a variable: a letter or `_`, then letters, digits and `_`.
pub fn is_variable(text: &str) -> bool {
    let is_first = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
    let is_other = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.len() <= ID_BYTES_MAX * 2
        && text.as_bytes().first().is_some_and(is_first)
        && text.bytes().all(is_other)
}

/// Whether a text names a program: a bare name, or a path below the lab's folder, with a `/`.
pub fn is_program(text: &str) -> bool {
    is_relative_path(text) || text.strip_prefix("./").is_some_and(is_relative_path)
}

const ID_BYTES_MAX: usize = 64;
const PATH_BYTES_MAX: usize = 1024;
