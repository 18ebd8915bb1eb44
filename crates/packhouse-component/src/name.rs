//! The names that cross the protocol.

/// Whether a text is a name of a boundary, role, arm, counter or file: `[a-z0-9]` and up
/// to 127 of `[a-z0-9_.-]`.
pub fn is_name(text: &str) -> bool {
    let is_first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_other = |byte: u8| is_first(byte) || b"_.-".contains(&byte);
    let bytes = text.as_bytes();
    bytes.len() <= NAME_BYTES_MAX
        && bytes.first().is_some_and(|first| is_first(*first))
        && bytes.iter().all(|byte| is_other(*byte))
}

/// Whether a text names a device: as a name, with upper case and colons, `cuda:GPU-5f1e`.
pub fn is_device(text: &str) -> bool {
    is_name(&text.to_ascii_lowercase().replace(':', "-"))
}

/// The longest name.
pub const NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for name in ["a", "0", "weights.q4_0-xe2.bin", &"a".repeat(128)] {
            assert!(is_name(name) && is_device(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "-a",
            "_",
            "a/b",
            "a b",
            "\u{e4}",
            "a\n",
            &"a".repeat(129),
        ] {
            assert!(!is_name(name) && !is_device(name), "{name}");
        }
        assert!(is_device("cuda:GPU-5F") && !is_name("cuda:GPU-5F") && !is_device(":a"));
    }
}
