//! The scales and minima of Q4_K and Q5_K: eight of each, of six bits each, in 12 bytes.

/// Bytes of the code.
pub(crate) const CODE_BYTES: usize = 12;

/// Eight scales and eight minima of 6 bits each.
#[derive(Clone, Copy, Default)]
pub(crate) struct Code {
    pub(crate) scales: [u8; 8],
    pub(crate) minima: [u8; 8],
}

/// Reads the code: bytes 0..4 hold scales 0..4 in their low six bits, bytes 4..8 minima 0..4.
/// Scales and minima 4..8 have their low four bits in the halves of bytes 8..12 and their high two
/// in the top bits of the first eight.
#[inline]
pub(crate) fn decode(bytes: &[u8; CODE_BYTES]) -> Code {
    let mut code = Code::default();
    for index in 0..4 {
        let (scale, minimum, low) = (bytes[index], bytes[4 + index], bytes[8 + index]);
        code.scales[index] = scale & 0x3f;
        code.minima[index] = minimum & 0x3f;
        code.scales[4 + index] = (scale >> 6) << 4 | low & 0x0f;
        code.minima[4 + index] = (minimum >> 6) << 4 | low >> 4;
    }
    code
}
