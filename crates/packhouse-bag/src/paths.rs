//! The rule of paths in a bag: nothing needs an escape, none leads out, no two fall together where
//! case does not count.

/// Says whether a text is a path of format 1: components of `is_name` with `/` between, at most 8
/// of them and at most 255 bytes.
pub fn is_path(text: &str) -> bool {
    text.len() <= PATH_BYTES_MAX
        && text.split('/').count() <= COMPONENTS_MAX
        && text.split('/').all(is_name)
}

/// Says whether a text is one component: `[a-z0-9]` and up to 127 of `[a-z0-9_.-]`.
pub fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    bytes.len() <= NAME_BYTES_MAX
        && bytes.first().is_some_and(|byte| is_first(*byte))
        && bytes
            .iter()
            .all(|byte| is_first(*byte) || b"_.-".contains(byte))
}

/// The folder and the name of a path; the folder of a bare name is the empty text.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// The longest path within a bag, in bytes.
pub(crate) const PATH_BYTES_MAX: usize = 255;
/// The deepest path within a bag, in components.
pub(crate) const COMPONENTS_MAX: usize = 8;
const NAME_BYTES_MAX: usize = 128;
