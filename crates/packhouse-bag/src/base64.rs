//! Base64 (RFC 4648, section 4): with padding, in its one spelling.

/// Encodes bytes.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = 0u32;
        for index in 0..3 {
            bits = bits << 8 | u32::from(group.get(index).copied().unwrap_or(0));
        }
        for index in 0..4 {
            let digit = (bits >> (18 - 6 * index) & 63) as usize;
            let is_padding = index > group.len();
            text.push(if is_padding {
                '='
            } else {
                char::from(DIGITS[digit])
            });
        }
    }
    text
}

/// Decodes a text; `None` where `encode` would not have written it.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut bit_count) = (0u32, 0);
    for digit in digits.bytes() {
        let value = DIGITS.iter().position(|other| *other == digit)?;
        bits = (bits << 6 | u32::try_from(value).ok()?) & 0xfff;
        bit_count += 6;
        if bit_count >= 8 {
            bit_count -= 8;
            bytes.push((bits >> bit_count & 255) as u8);
        }
    }
    // One spelling: padding, length and the bits that are left over are as `encode` makes them.
    (encode(&bytes) == text).then_some(bytes)
}

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_rfc_4648() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, text) in vectors {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()), "{text}");
        }
    }

    #[test]
    fn another_spelling_is_refused() {
        let wrong = [
            "Zg", "Zg=", "Zh==", "Zm9", "Zm9=", "Zg===", "Z", "Zm9v ", "=", "Zm-v", "Z=g=",
        ];
        for text in wrong {
            assert_eq!(decode(text), None, "{text}");
        }
    }
}
