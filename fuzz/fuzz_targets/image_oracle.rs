//! Headers and owner records of head-tile images, judged a second time, from the byte tables of
//! `docs/format/head-image.md` alone: offsets are written out, and nothing of the parsers is used.
//!
//! An input's first byte says what the rest is:
//! - `H`, a header; `h`, one whose hash is made right, so that the other fields are reached;
//! - `R` and `r`, an owner record, likewise;
//! - `N`, the name of an image's file.

use packhouse_image::{Header, ImageName, OwnerRecord};

/// A judge that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Takes headers whose reserved bytes are not zero.
    Reserved,
}

/// Gives an input to the parsers. Errors, in words, when they and the judge disagree, or what was
/// read is not written again as it was.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Result<(), String> {
    let Some((kind, rest)) = input.split_first() else {
        return Ok(());
    };
    match kind {
        b'H' => header(rest, mutant),
        b'h' => header(&hashed(rest, Some(4096)), mutant),
        b'R' => record(rest),
        b'r' => record(&hashed(rest, None)),
        b'N' => name(rest),
        _ => Ok(()),
    }
}

/// The bytes with the hash of what is before them as their last 32. A length cuts or pads them.
fn hashed(bytes: &[u8], length: Option<usize>) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes.resize(length.unwrap_or(bytes.len()).max(32), 0);
    let content = bytes.len() - 32;
    let hash = blake3::hash(&bytes[..content]);
    bytes[content..].copy_from_slice(hash.as_bytes());
    bytes
}

fn header(bytes: &[u8], mutant: Option<Mutant>) -> Result<(), String> {
    let parsed = Header::parse(bytes);
    if parsed.is_ok() != is_header(bytes, mutant) {
        return Err(format!("a header: {parsed:?}"));
    }
    let Ok(parsed) = parsed else {
        return Ok(());
    };
    match parsed.encode() == bytes {
        true => Ok(()),
        false => Err(format!("written otherwise: {parsed:?}")),
    }
}

fn record(bytes: &[u8]) -> Result<(), String> {
    let parsed = OwnerRecord::parse(bytes);
    if parsed.is_ok() != is_record(bytes) {
        return Err(format!("a record: {parsed:?}"));
    }
    let Ok(parsed) = parsed else {
        return Ok(());
    };
    match parsed.encode() == bytes {
        true => Ok(()),
        false => Err(format!("written otherwise: {parsed:?}")),
    }
}

fn name(bytes: &[u8]) -> Result<(), String> {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Ok(());
    };
    let (key, rest) = text.split_at_checked(32).unwrap_or_default();
    let is_hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    let tile = rest.strip_prefix("-t");
    let tile = tile.and_then(|tile| tile.strip_suffix(".phti"));
    let is_tile = |tile: &str| tile.len() == 5 && tile.bytes().all(|c| c.is_ascii_digit());
    let is_name = !key.is_empty() && key.chars().all(is_hex) && tile.is_some_and(is_tile);
    let parsed = ImageName::parse(text);
    if parsed.is_some() != is_name {
        return Err(format!("a name: {parsed:?} of {text:?}"));
    }
    match parsed.is_none_or(|parsed| parsed.to_string() == text) {
        true => Ok(()),
        false => Err(format!("written otherwise: {text:?}")),
    }
}

fn is_header(bytes: &[u8], mutant: Option<Mutant>) -> bool {
    if bytes.len() != 4096 || !bytes.starts_with(b"PHTI\x01\0\0\0") || !ends_with_hash(bytes) {
        return false;
    }
    let Some([kd, nd, kpad, t]) = geometry(&bytes[8..72]) else {
        return false;
    };
    let [tile, tiles, vocabulary, columns, width, tied] =
        std::array::from_fn(|at| integer(bytes, 72 + 8 * at));
    let dtype_bytes = bytes[120..136].iter().take_while(|byte| **byte != 0);
    let dtype_bytes = dtype_bytes.count();
    let is_dtype = bytes[120..120 + dtype_bytes]
        .iter()
        .all(|byte| (b'!'..=b'~').contains(byte));
    let start = u128::from(tile) * u128::from(t);
    width >= 1
        && width <= kpad
        && vocabulary >= 1
        && vocabulary.div_ceil(t) == tiles
        && tiles <= 100_000
        && tile < tiles
        && u128::from(columns) == u128::from(t).min(u128::from(vocabulary) - start)
        && tied <= 1
        && dtype_bytes >= 1
        && is_dtype
        && is_zero(&bytes[120 + dtype_bytes..136])
        && integer(bytes, 232) == kd * nd + 4 * nd
        && (mutant == Some(Mutant::Reserved) || is_zero(&bytes[272..4064]))
}

fn is_record(bytes: &[u8]) -> bool {
    if bytes.len() < 193 || !bytes.starts_with(b"PHOW\x01\0\0\0") || !ends_with_hash(bytes) {
        return false;
    }
    let Some([_, _, _, t]) = geometry(&bytes[16..80]) else {
        return false;
    };
    let owner = &bytes[160..bytes.len() - 32];
    let (vocabulary, tiles) = (integer(bytes, 80), integer(bytes, 88));
    let (key, leaving) = (&bytes[96..128], &bytes[128..160]);
    integer(bytes, 8) == owner.len() as u64
        && owner.len() <= 1024
        && std::str::from_utf8(owner).is_ok()
        && vocabulary.div_ceil(t) == tiles
        && (is_zero(leaving) || leaving != key)
}

/// Layout id and four sizes, if they make a tile.
fn geometry(bytes: &[u8]) -> Option<[u64; 4]> {
    let is_id = |id: &[u8]| bytes.starts_with(id) && is_zero(&bytes[id.len()..32]);
    let is_blocked = is_id(b"int8-tile-b8-v1");
    if !is_blocked && !is_id(b"int8-tile-rm-v1") {
        return None;
    }
    let sizes @ [kd, nd, kpad, t] = std::array::from_fn(|at| integer(bytes, 32 + 8 * at));
    let fits = sizes.iter().all(|size| (1..=1 << 24).contains(size))
        && kpad <= kd
        && t <= nd
        && kd * nd <= 1 << 36
        && (!is_blocked || (kd % 64 == 0 && nd % 128 == 0));
    fits.then_some(sizes)
}

fn ends_with_hash(bytes: &[u8]) -> bool {
    let (content, hash) = bytes.split_at(bytes.len() - 32);
    blake3::hash(content).as_bytes() == hash
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

fn integer(bytes: &[u8], offset: usize) -> u64 {
    let field = bytes[offset..offset + 8].try_into();
    u64::from_le_bytes(field.expect("because the range is as long"))
}
