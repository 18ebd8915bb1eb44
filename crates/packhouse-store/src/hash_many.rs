//! Hashing many files on one core, side by side: the hash of one file waits for itself, so up to
//! sixteen at once are read in turns and hashed together.
//!
//! Never: maps a file. What is hashed was read, so an outside truncation is a short file and no
//! signal.

use packhouse_base::digest::{Digest, Hasher};
use packhouse_sys::fs::{File, FsError};

/// Most files that one core hashes at once: the lanes that SHA-256 has.
pub const LANES_MAX: usize = 16;

/// A file to hash, with what belongs to it.
pub trait Hashable {
    /// The file.
    fn file(&self) -> &File;
    /// Bytes to hash; a file that ends early hashes to what it has.
    fn length(&self) -> u64;
    /// Is handed each piece, from the buffer that is hashed next. An error ends this file.
    fn take(&self, offset: u64, piece: &[u8]) -> Result<(), FsError> {
        let _ = (offset, piece);
        Ok(())
    }
}

/// Hashes what `next` gives until it gives no more, up to `lanes` files at once, and hands each
/// over with its digest. `progress` is told the bytes as they are hashed.
pub fn hash_many<T: Hashable>(
    lanes: usize,
    mut next: impl FnMut() -> Option<T>,
    mut done: impl FnMut(T, Result<Digest, FsError>),
    progress: &dyn Fn(u64),
) {
    let lanes = lanes.clamp(1, LANES_MAX);
    let mut buffer = vec![0; lanes * PIECE_BYTES];
    let mut active: Vec<Lane<T>> = Vec::with_capacity(lanes);
    loop {
        active.extend(
            std::iter::from_fn(&mut next)
                .take(lanes - active.len())
                .map(Lane::new),
        );
        if active.is_empty() {
            break;
        }
        let mut parts = Vec::with_capacity(active.len());
        for (lane, piece) in active.iter_mut().zip(buffer.chunks_mut(PIECE_BYTES)) {
            let filled = lane.read(piece);
            progress(filled as u64);
            parts.push((&mut lane.hasher, &piece[..filled]));
        }
        Hasher::update_many(&mut parts);
        let mut index = 0;
        while index < active.len() {
            if active[index].is_done {
                let lane = active.swap_remove(index);
                let digest = lane.error.map_or_else(|| Ok(lane.hasher.finish()), Err);
                done(lane.item, digest);
            } else {
                index += 1;
            }
        }
    }
}

/// One file on its way.
struct Lane<T> {
    item: T,
    hasher: Hasher,
    offset: u64,
    is_done: bool,
    error: Option<FsError>,
}

impl<T: Hashable> Lane<T> {
    fn new(item: T) -> Self {
        Self {
            is_done: item.length() == 0,
            item,
            hasher: Hasher::default(),
            offset: 0,
            error: None,
        }
    }

    /// Reads the next piece and returns its bytes.
    fn read(&mut self, piece: &mut [u8]) -> usize {
        let left = usize::try_from(self.item.length() - self.offset).unwrap_or(usize::MAX);
        let wanted = piece.len().min(left);
        match self
            .item
            .file()
            .read_full_at(self.offset, &mut piece[..wanted])
        {
            Ok(filled) => {
                if let Err(error) = self.item.take(self.offset, &piece[..filled]) {
                    (self.error, self.is_done) = (Some(error), true);
                }
                self.offset += filled as u64;
                self.is_done |= filled < wanted || filled == left;
                filled
            }
            Err(error) => {
                (self.error, self.is_done) = (Some(error), true);
                0
            }
        }
    }
}

/// Bytes read from one file at a time: sixteen pieces stay in the second-level cache between being
/// read and being hashed.
const PIECE_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_sys::fs::Fs as _;
    use packhouse_sys::real::RealFs;
    use std::collections::BTreeMap;

    struct Item(usize, File, u64, std::cell::RefCell<Vec<u8>>);

    impl Hashable for Item {
        fn file(&self) -> &File {
            &self.1
        }

        fn length(&self) -> u64 {
            self.2
        }

        fn take(&self, offset: u64, piece: &[u8]) -> Result<(), FsError> {
            let mut taken = self.3.borrow_mut();
            assert_eq!(taken.len() as u64, offset);
            taken.extend_from_slice(piece);
            Ok(())
        }
    }

    #[test]
    fn every_file_gets_its_own_digest_whatever_runs_beside_it() {
        let folder = tempfile::tempdir().expect("because a folder can be made");
        let mut dir = RealFs.root().expect("because there is a root");
        let real = folder
            .path()
            .canonicalize()
            .expect("because it was just made");
        for part in real.iter().skip(1) {
            dir = dir
                .open_dir_for(part, packhouse_sys::fs::DirAccess::Lookup)
                .expect("because it is there");
        }
        let lengths = [
            0, 1, 63, 64, 65, 65_535, 65_536, 65_537, 131_072, 200_000, 300_001,
        ];
        let contents: Vec<Vec<u8>> = (0..40usize)
            .map(|index| {
                let length = lengths[index % lengths.len()];
                (0..length)
                    .map(|at| (at * 31 + index * 7 + at / 251) as u8)
                    .collect()
            })
            .collect();
        for (index, content) in contents.iter().enumerate() {
            let file = dir
                .create_new(format!("{index}"), 0o600)
                .expect("because it is new");
            file.write_all_at(0, content)
                .expect("because there is room");
        }
        for lanes in [1, 2, 9, 16, 99] {
            let mut order = 0..contents.len();
            let mut digests = BTreeMap::new();
            let told = std::cell::Cell::new(0);
            hash_many(
                lanes,
                || {
                    let index = order.next()?;
                    let file = dir
                        .open_file(format!("{index}"))
                        .expect("because it was made");
                    // Of every seventh file more is asked than it has: what it has is hashed.
                    let extra = u64::from(index % 7 == 6) * 5;
                    let length = contents[index].len() as u64 + extra;
                    Some(Item(index, file, length, Vec::new().into()))
                },
                |item, digest| {
                    let digest = digest.expect("because files can be read");
                    assert_eq!(*item.3.borrow(), contents[item.0]);
                    assert_eq!(digests.insert(item.0, digest), None);
                },
                &|bytes| told.set(told.get() + bytes),
            );
            let expected: BTreeMap<_, _> = contents
                .iter()
                .map(|content| Digest::of(content))
                .enumerate()
                .collect();
            assert_eq!(digests, expected, "{lanes} lanes");
            assert_eq!(
                told.get(),
                contents
                    .iter()
                    .map(|content| content.len() as u64)
                    .sum::<u64>()
            );
        }
    }
}
