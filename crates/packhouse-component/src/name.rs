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

/// Whether a text names a device for good: `cpu`, or `kind:UUID`, the UUID in hex with dashes,
/// perhaps after a word as vendors have it (`cuda:GPU-5f1e...`). Ordinals change with masks and
/// reboots, and are none.
pub fn is_lasting_device(text: &str) -> bool {
    if text == CPU {
        return true;
    }
    let Some((kind, id)) = text.split_once(':') else {
        return false;
    };
    let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_word = |word: &str| {
        !word.is_empty() && word.len() <= 16 && word.bytes().all(|byte| byte.is_ascii_alphabetic())
    };
    let uuid = match id.split_once('-') {
        Some((word, rest)) if is_word(word) && !is_uuid(id) => rest,
        Some(_) | None => id,
    };
    is_kind && kind.len() <= 16 && is_uuid(uuid)
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    lengths == [8, 4, 4, 4, 12] && parts.iter().all(is_hex)
}

/// The device that every host has.
pub const CPU: &str = "cpu";
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
