//! An engine whose packer is wrong: the canary of every equality.
//!
//! The Q4_0 packer flips the sign bit of every nibble by xor with a constant of eight 0x88 bytes,
//! which the compiler leaves as an immediate operand. Changing its low bit makes a packer that runs
//! as before and packs other bytes.

use crate::places;
use std::fs;
use std::path::{Path, PathBuf};

/// Copies the engine's folder into `folder` and changes its packer; returns the copy.
pub fn engine_with_wrong_packer(folder: &Path) -> PathBuf {
    let copy = folder.join("mutant");
    fs::create_dir(&copy).expect("the sandbox is writable");
    for entry in fs::read_dir(places::engine_bin())
        .expect("the engine is readable")
        .flatten()
    {
        fs::copy(entry.path(), copy.join(entry.file_name())).expect("the sandbox has room");
    }
    let library = copy.join("libggml-cpu.so");
    let mut bytes = fs::read(&library).expect("it was just copied");
    let changed = change_constants(&mut bytes);
    assert!(
        changed > 0,
        "no packer constant found in {}",
        library.display()
    );
    fs::write(&library, bytes).expect("the sandbox is writable");
    copy
}

fn change_constants(bytes: &mut [u8]) -> usize {
    let mut changed = 0;
    let mut at = 0;
    while at + 8 <= bytes.len() {
        if bytes[at..at + 8].iter().all(|byte| *byte == 0x88) {
            bytes[at..at + 8].fill(0x89);
            changed += 1;
            at += 8;
        } else {
            at += 1;
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_whole_constants_only() {
        let mut bytes = [[0x88; 7].as_slice(), &[0], &[0x88; 8], &[1]].concat();
        assert_eq!(change_constants(&mut bytes), 1);
        assert_eq!(
            bytes,
            [[0x88; 7].as_slice(), &[0], &[0x89; 8], &[1]].concat()
        );
    }
}
