//! One member of a bundle: its path and its header block, byte by byte.
//!
//! Invariant: a path and a length have one header; a reader renders what it expects and compares.
//! So owner, mode, date, type, link name and device of a member can't be anything else.

/// Bytes of a block; headers are one, contents are padded to whole ones.
pub(crate) const BLOCK_BYTES: usize = 512;

/// A member's type and what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A folder; its path ends in a slash.
    Folder,
    /// A regular file of this length.
    File(u64),
}

/// Renders the header of a member. The path is ASCII, at most 100 bytes or with a last slash that
/// leaves at most 100 behind and 155 before it.
pub(crate) fn header(path: &str, kind: Kind) -> [u8; BLOCK_BYTES] {
    let (mode, length, flag) = match kind {
        Kind::Folder => ("0000755", 0, b'5'),
        Kind::File(length) => ("0000444", length, b'0'),
    };
    let (prefix, name) = split(path);
    let mut block = [0; BLOCK_BYTES];
    put(&mut block, NAME, name.as_bytes());
    put(&mut block, MODE, mode.as_bytes());
    put(&mut block, UID, b"0000000");
    put(&mut block, GID, b"0000000");
    put_length(&mut block, length);
    put(&mut block, MTIME, b"00000000000");
    put(&mut block, SUM, b"        ");
    put(&mut block, FLAG, &[flag]);
    put(&mut block, MAGIC, b"ustar\x0000");
    put(&mut block, DEVICE_MAJOR, b"0000000");
    put(&mut block, DEVICE_MINOR, b"0000000");
    put(&mut block, PREFIX, prefix.as_bytes());
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut block, SUM, format!("{sum:06o}\0 ").as_bytes());
    block
}

/// What a header that is not the one expected says of itself, for an error: its path and length.
pub(crate) fn describe(block: &[u8; BLOCK_BYTES]) -> String {
    if block.iter().all(|byte| *byte == 0) {
        return "the end of the archive".to_owned();
    }
    if &block[MAGIC.0..MAGIC.0 + 5] != b"ustar" {
        return "no tar header".to_owned();
    }
    let text = |field: (usize, usize)| {
        let bytes = &block[field.0..field.0 + field.1];
        let end = bytes.iter().position(|byte| *byte == 0);
        let bytes = &bytes[..end.unwrap_or(bytes.len())];
        bytes.escape_ascii().to_string()
    };
    let (prefix, name) = (text(PREFIX), text(NAME));
    let slash = if prefix.is_empty() { "" } else { "/" };
    let flag = char::from(block[FLAG.0]).escape_default().to_string();
    format!(
        "\"{prefix}{slash}{name}\" of type {flag}, mode {}, size {}",
        text(MODE),
        text(SIZE)
    )
}

/// The length in a header's octal field; `None` where it holds anything else.
pub(crate) fn octal_length(block: &[u8; BLOCK_BYTES]) -> Option<u64> {
    let digits = &block[SIZE.0..SIZE.0 + SIZE.1 - 1];
    let text = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(text, 8).ok()
}

/// Zero bytes after a content of this length.
pub(crate) fn padding(length: u64) -> usize {
    let over = usize::try_from(length % BLOCK_BYTES as u64).expect("because it is below 512");
    (BLOCK_BYTES - over) % BLOCK_BYTES
}

fn split(path: &str) -> (&str, &str) {
    if path.len() <= NAME.1 {
        return ("", path);
    }
    path.rsplit_once('/')
        .expect("because a long path is one of ours, which has folders")
}

/// Octal up to 8 GiB, then the number itself, big-endian, as every current reader takes it.
fn put_length(block: &mut [u8; BLOCK_BYTES], length: u64) {
    if length < OCTAL_LENGTH_END {
        put(block, SIZE, format!("{length:011o}").as_bytes());
        return;
    }
    block[SIZE.0] = 0x80;
    block[SIZE.0 + 4..SIZE.0 + 12].copy_from_slice(&length.to_be_bytes());
}

fn put(block: &mut [u8; BLOCK_BYTES], (offset, width): (usize, usize), bytes: &[u8]) {
    assert!(bytes.len() <= width, "a field of {width} bytes");
    block[offset..offset + bytes.len()].copy_from_slice(bytes);
}

const OCTAL_LENGTH_END: u64 = 1 << 33;

/// Offset and width of each field.
const NAME: (usize, usize) = (0, 100);
const MODE: (usize, usize) = (NAME.0 + NAME.1, 8);
const UID: (usize, usize) = (MODE.0 + MODE.1, 8);
const GID: (usize, usize) = (UID.0 + UID.1, 8);
const SIZE: (usize, usize) = (GID.0 + GID.1, 12);
const MTIME: (usize, usize) = (SIZE.0 + SIZE.1, 12);
const SUM: (usize, usize) = (MTIME.0 + MTIME.1, 8);
const FLAG: (usize, usize) = (SUM.0 + SUM.1, 1);
const LINK: (usize, usize) = (FLAG.0 + FLAG.1, 100);
const MAGIC: (usize, usize) = (LINK.0 + LINK.1, 8);
const OWNER: (usize, usize) = (MAGIC.0 + MAGIC.1, 32);
const GROUP: (usize, usize) = (OWNER.0 + OWNER.1, 32);
const DEVICE_MAJOR: (usize, usize) = (GROUP.0 + GROUP.1, 8);
const DEVICE_MINOR: (usize, usize) = (DEVICE_MAJOR.0 + DEVICE_MAJOR.1, 8);
const PREFIX: (usize, usize) = (DEVICE_MINOR.0 + DEVICE_MINOR.1, 155);
const _: () = assert!(PREFIX.0 + PREFIX.1 + 12 == BLOCK_BYTES);

#[cfg(test)]
mod tests {
    use super::*;

    fn read_by_another(path: &str, kind: Kind) {
        let block = header(path, kind);
        let theirs = tar::Header::from_byte_slice(&block);
        assert_eq!(theirs.path_bytes().as_ref(), path.as_bytes());
        let (length, mode, ty) = match kind {
            Kind::Folder => (0, 0o755, tar::EntryType::Directory),
            Kind::File(length) => (length, 0o444, tar::EntryType::Regular),
        };
        assert_eq!(theirs.size().ok(), Some(length));
        assert_eq!(theirs.mode().ok(), Some(mode));
        assert_eq!(theirs.entry_type(), ty);
        assert_eq!(theirs.mtime().ok(), Some(0));
        let mut summed = theirs.clone();
        summed.set_cksum();
        assert_eq!(theirs.cksum().ok(), summed.cksum().ok());
        // It sums the bytes, and writes the sum with other blanks than we do.
        let mut rest = *summed.as_bytes();
        rest[SUM.0..SUM.0 + SUM.1].copy_from_slice(&block[SUM.0..SUM.0 + SUM.1]);
        assert_eq!(rest, block);
        assert!(theirs.as_ustar().is_some());
    }

    #[test]
    fn headers_are_what_another_reader_takes_them_for() {
        let long = format!(
            "v1/sets/{}/containers/{}.json",
            "a".repeat(64),
            "b".repeat(64)
        );
        read_by_another("v1/", Kind::Folder);
        read_by_another("v1/id", Kind::File(33));
        read_by_another(&long, Kind::File(0));
        for length in [OCTAL_LENGTH_END - 1, OCTAL_LENGTH_END, u64::MAX >> 1] {
            read_by_another("v1/objects/aa/x", Kind::File(length));
        }
        read_by_another(&"n".repeat(100), Kind::File(511));
    }

    #[test]
    fn padding_fills_blocks() {
        assert_eq!([0, 1, 511, 512, 513].map(padding), [0, 511, 1, 0, 511]);
    }
}
