//! From a file into the caller's codes: the bytes that are hashed are the bytes that are used.
//!
//! Invariants:
//! - each piece is read into private memory, hashed there, and copied from there: codes are written
//!   and never read, as they may be a device's memory;
//! - all codes are written, unless a read fails; scales stay private, as they are summed.

use crate::header::PayloadHash;
use crate::sample::Sample;
use crate::tree::{PieceHash, Tree};
use packhouse_sys::fs::{File, FsError, FsErrorKind, Operation};
use std::num::NonZeroUsize;
use std::ops::Range;

/// A payload whose codes lie where the caller wanted them.
pub(crate) struct Loaded {
    hash: PayloadHash,
    sampled: Vec<i8>,
    scales: Vec<f32>,
}

impl Loaded {
    /// What the bytes hash to.
    pub(crate) const fn hash(&self) -> &PayloadHash {
        &self.hash
    }

    /// The codes of the sampled columns, one column after the other.
    pub(crate) fn sampled(&self) -> &[i8] {
        &self.sampled
    }

    /// The scales, as they were read.
    pub(crate) fn scales(&self) -> &[f32] {
        &self.scales
    }
}

/// Reads a payload that begins at `offset`, its codes into `codes`, and keeps the scales and the
/// sampled codes.
///
/// Errors when the file ends early or can't be read; the codes are of no value then.
pub(crate) fn load(
    file: &File,
    offset: u64,
    sample: &Sample,
    codes: &mut [i8],
    scale_count: u64,
    threads: NonZeroUsize,
) -> Result<Loaded, FsError> {
    let scale_bytes = usize::try_from(4 * scale_count);
    let mut scale_bytes = vec![0; scale_bytes.expect("because the scales fit the memory")];
    let tree = Tree::new((codes.len() + scale_bytes.len()) as u64);
    let targets = cut(tree, codes, &mut scale_bytes);
    type Target<'a> = (&'a mut [i8], &'a mut [u8]);
    let work = |piece: &Range<u64>, target: Target<'_>, buffer: &mut Vec<u8>| {
        let hash = read_piece(file, offset, tree, piece, buffer)?;
        let (code_part, scale_part) = buffer.split_at(target.0.len());
        for (code, byte) in target.0.iter_mut().zip(code_part) {
            *code = byte.cast_signed();
        }
        target.1.copy_from_slice(scale_part);
        Ok((hash, sample.codes_in(piece, buffer)))
    };
    let (hash, parts) = tree.hash(targets, threads, work)?;
    let mut sampled = vec![0; sample.code_count()];
    for (place, code) in parts.into_iter().flatten() {
        sampled[place] = code;
    }
    let scales = scale_bytes.as_chunks().0.iter();
    Ok(Loaded {
        hash: PayloadHash::from_bytes(hash),
        sampled,
        scales: scales.map(|bytes| f32::from_le_bytes(*bytes)).collect(),
    })
}

/// Hashes a payload that begins at `offset`.
///
/// Errors when the file ends early or can't be read.
pub(crate) fn hash_payload(
    file: &File,
    offset: u64,
    payload_bytes: u64,
    threads: NonZeroUsize,
) -> Result<PayloadHash, FsError> {
    let tree = Tree::new(payload_bytes);
    let targets = tree.pieces().map(|_| ()).collect();
    let work = |piece: &Range<u64>, (): (), buffer: &mut Vec<u8>| {
        Ok((read_piece(file, offset, tree, piece, buffer)?, ()))
    };
    let (hash, _) = tree.hash(targets, threads, work)?;
    Ok(PayloadHash::from_bytes(hash))
}

/// Hashes a tile in memory as the payload that it will be.
pub(crate) fn hash_tile(codes: &[i8], scales: &[f32], threads: NonZeroUsize) -> PayloadHash {
    let scale_bytes: Vec<u8> = scales
        .iter()
        .flat_map(|scale| scale.to_le_bytes())
        .collect();
    let tree = Tree::new((codes.len() + scale_bytes.len()) as u64);
    let mut parts = (codes, scale_bytes.as_slice());
    let targets = tree.pieces().map(|piece| {
        let (code_count, scale_count) = split(&piece, parts.0.len());
        let (code_part, codes) = parts.0.split_at(code_count);
        let (scale_part, scale_bytes) = parts.1.split_at(scale_count);
        parts = (codes, scale_bytes);
        (code_part, scale_part)
    });
    let targets: Vec<(&[i8], &[u8])> = targets.collect();
    let work = |piece: &Range<u64>, target: (&[i8], &[u8]), buffer: &mut Vec<u8>| {
        buffer.clear();
        buffer.extend(target.0.iter().map(|code| code.cast_unsigned()));
        buffer.extend_from_slice(target.1);
        Ok::<_, std::convert::Infallible>((tree.hash_piece(piece, buffer), ()))
    };
    match tree.hash(targets, threads, work) {
        Ok((hash, _)) => PayloadHash::from_bytes(hash),
        Err(never) => match never {},
    }
}

fn read_piece(
    file: &File,
    offset: u64,
    tree: Tree,
    piece: &Range<u64>,
    buffer: &mut Vec<u8>,
) -> Result<PieceHash, FsError> {
    let length = usize::try_from(piece.end - piece.start).expect("because a piece is short");
    buffer.resize(length, 0);
    if file.read_full_at(offset + piece.start, buffer)? < length {
        return Err(FsError {
            operation: Operation::Read,
            path: file.path().to_owned(),
            kind: FsErrorKind::EndsEarly,
        });
    }
    Ok(tree.hash_piece(piece, buffer))
}

/// Cuts codes and scales into the parts that lie in each piece.
fn cut<'a>(
    tree: Tree,
    codes: &'a mut [i8],
    scale_bytes: &'a mut [u8],
) -> Vec<(&'a mut [i8], &'a mut [u8])> {
    let mut parts = (codes, scale_bytes);
    let pieces = tree.pieces().map(|piece| {
        let (code_count, scale_count) = split(&piece, parts.0.len());
        let (code_part, codes) = std::mem::take(&mut parts.0).split_at_mut(code_count);
        let (scale_part, scale_bytes) = std::mem::take(&mut parts.1).split_at_mut(scale_count);
        parts = (codes, scale_bytes);
        (code_part, scale_part)
    });
    pieces.collect()
}

/// How many bytes of a piece are codes, when so many are left, and how many are scales.
fn split(piece: &Range<u64>, code_count: usize) -> (usize, usize) {
    let length = usize::try_from(piece.end - piece.start).expect("because a piece is short");
    let codes = length.min(code_count);
    (codes, length - codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tile_in_memory_hashes_as_its_payload_wherever_pieces_are_cut() {
        let threads = NonZeroUsize::new(2).expect("because 2 is not 0");
        // The second has a piece that ends within a scale; the third one that ends with the codes.
        for (code_count, scale_count) in [(35, 5), ((1 << 20) - 6, 300_000), (1 << 20, 7)] {
            let codes: Vec<i8> = (0..code_count).map(|i| (i * 7 % 251) as u8 as i8).collect();
            let scales: Vec<f32> = (0..scale_count).map(|i| i as f32 / 3.0).collect();
            let mut payload: Vec<u8> = codes.iter().map(|code| *code as u8).collect();
            payload.extend(scales.iter().flat_map(|scale| scale.to_le_bytes()));
            let hash = hash_tile(&codes, &scales, threads);
            assert_eq!(hash.bytes(), blake3::hash(&payload).as_bytes());
        }
    }

    #[test]
    fn the_parts_of_all_pieces_are_all_of_codes_and_scales() {
        let (mut codes, mut scales) = (vec![0i8; (3 << 20) + 5], vec![0u8; 2 << 20]);
        let tree = Tree::new((codes.len() + scales.len()) as u64);
        let parts = cut(tree, &mut codes, &mut scales);
        let lengths = parts
            .iter()
            .map(|(codes, scales)| codes.len() + scales.len());
        let pieces = tree
            .pieces()
            .map(|piece| (piece.end - piece.start) as usize);
        assert!(lengths.eq(pieces));
        assert_eq!(
            parts.iter().map(|part| part.0.len()).sum::<usize>(),
            (3 << 20) + 5
        );
    }
}
