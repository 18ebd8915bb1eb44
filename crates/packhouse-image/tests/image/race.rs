//! Two writers of one image, one of them paused in the middle of its write, and the writer of the
//! reference, whose temporary name is the same for all, to show that these tests see what it does.

use crate::disk::{HOUR_NS, Image, V1, disk_with, open, temps};
use crate::shim::{Lie, Shim};
use packhouse_image::{Folder, ImageFault, Limits, PublishError, RefusalCode, collect};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_sim::SimFs;
use packhouse_sys::fs::{Dir, File, Fs, FsErrorKind};
use std::path::Path;

/// An image whose codes are most of it.
fn image(content: u32) -> Image {
    let sizes = TileSizes {
        kd: 128,
        nd: 256,
        kpad: 128,
        t: 256,
    };
    let geometry = TileGeometry::new(TileOrder::Blocked, sizes);
    Image::of(1, 0, geometry.expect("because the sizes fit"), content)
}

/// Every byte of the image's file, as a reader sees it now.
fn read(folder: &Folder, image: &Image) -> Option<Vec<u8>> {
    let opened = folder
        .open_image(&image.name())
        .expect("because it is ours")?;
    let mut bytes = vec![0; usize::try_from(opened.bytes).expect("because it is small")];
    let read = opened.file.read_full_at(0, &mut bytes);
    assert_eq!(read, Ok(bytes.len()));
    Some(bytes)
}

fn v1(sim: &SimFs) -> Dir {
    let mut dir = sim.root().expect("because the disk is there");
    for name in Path::new(V1).iter().skip(1) {
        dir = dir.open_dir(name).expect("because it is there");
    }
    dir
}

#[test]
fn a_writer_that_is_overtaken_in_the_middle_never_shows_a_mixed_file() {
    // The second writer's payload differs, so that a mix of both would show.
    let (first, second) = (image(1), image(2));
    let (sim, folder) = disk_with(&[]);
    let other = sim.clone();
    let overtaken = second.clone();
    let expected = second.bytes();
    let shim = Shim::pausing(&sim, move || {
        let folder = open(&other);
        assert_eq!(temps(&other).len(), 1, "the first one is at work");
        assert_eq!(overtaken.verify(&folder), Ok(None), "and nothing shows");
        overtaken
            .publish(&folder, &other)
            .expect("because nothing is in the way");
        assert_eq!(read(&folder, &overtaken), Some(expected));
        assert!(matches!(overtaken.verify(&folder), Ok(Some(_))));
        assert_eq!(
            temps(&other).len(),
            1,
            "the first one's file is not touched"
        );
    });
    let slow = Folder::open(&shim, Path::new(crate::disk::ROOT), true);
    let slow = slow
        .expect("because nobody is in the way")
        .expect("because it is there");
    let reader = || {
        let opened = folder
            .open_image(&second.name())
            .expect("because it is ours");
        opened.map(|opened| opened.file)
    };
    assert!(reader().is_none());
    let published = first.publish(&slow, &shim);
    assert!(shim.has_paused(), "nobody was overtaken");
    assert_eq!(
        published,
        Ok(first.bytes().len() as u64),
        "the last rename wins"
    );
    assert_eq!(read(&folder, &first), Some(first.bytes()));
    assert!(matches!(first.verify(&folder), Ok(Some(_))));
    assert_eq!(temps(&sim), [""; 0]);
}

/// The paused writer has changed its file days ago, by the clock, and still has it locked.
#[test]
fn a_writer_that_is_slow_for_days_keeps_its_temporary_file() {
    let image = image(1);
    let (sim, folder) = disk_with(&[]);
    let other = sim.clone();
    let shim = Shim::pausing(&sim, move || {
        let folder = open(&other);
        other.clock().advance_ns(72 * HOUR_NS);
        let done = collect(&folder, &*other.clock(), Limits::default(), false);
        let done = done.expect("because the lock is free");
        assert_eq!(done.removal.removed, [], "somebody writes it");
        assert_eq!(temps(&other).len(), 1);
    });
    let slow = Folder::open(&shim, Path::new(crate::disk::ROOT), true);
    let slow = slow
        .expect("because nobody is in the way")
        .expect("because it is there");
    let published = image.publish(&slow, &shim);
    assert!(shim.has_paused(), "nobody collected");
    assert_eq!(published, Ok(image.bytes().len() as u64));
    assert_eq!(read(&folder, &image), Some(image.bytes()));
}

#[test]
fn a_reader_keeps_the_bytes_that_it_opened_when_another_image_takes_the_name() {
    let (first, second) = (image(1), image(2));
    let (sim, folder) = disk_with(std::slice::from_ref(&first));
    let opened = folder
        .open_image(&first.name())
        .expect("because it is ours");
    let opened = opened.expect("because it is there");
    let half = first.bytes().len() / 2;
    let mut bytes = vec![0; first.bytes().len()];
    assert_eq!(opened.file.read_full_at(0, &mut bytes[..half]), Ok(half));
    second
        .publish(&folder, &sim)
        .expect("because nothing is in the way");
    let rest = bytes.len() - half;
    assert_eq!(
        opened.file.read_full_at(half as u64, &mut bytes[half..]),
        Ok(rest)
    );
    assert_eq!(bytes, first.bytes());
    assert_eq!(read(&folder, &second), Some(second.bytes()));
}

#[test]
fn a_file_that_is_not_as_long_as_what_was_written_is_never_shown() {
    let (sim, folder) = disk_with(std::slice::from_ref(&image(2)));
    let shim = Shim::lying(&sim, Lie::Shorter);
    let lying = Folder::open(&shim, Path::new(crate::disk::ROOT), true);
    let lying = lying
        .expect("because nobody is in the way")
        .expect("because it is there");
    let expected = image(1).bytes().len() as u64;
    let error = image(1).publish(&lying, &shim);
    let error = error.expect_err("because a byte is missing");
    let PublishError::Length {
        expected: wanted,
        actual,
        path,
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((*wanted, *actual), (expected, expected - 1));
    let text = format!(
        "{} has {actual} bytes after {expected} were written",
        path.display()
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(
        read(&folder, &image(2)),
        Some(image(2).bytes()),
        "the old one stays"
    );
    assert_eq!(temps(&sim), [""; 0]);
}

#[test]
fn a_write_that_the_disk_takes_byte_by_byte_is_whole() {
    let (sim, folder) = disk_with(&[]);
    let shim = Shim::lying(&sim, Lie::ShortWrites);
    let slow = Folder::open(&shim, Path::new(crate::disk::ROOT), true);
    let slow = slow
        .expect("because nobody is in the way")
        .expect("because it is there");
    let small = Image::new(1, 0);
    assert_eq!(small.publish(&slow, &shim), Ok(4144));
    assert_eq!(read(&folder, &small), Some(small.bytes()));
}

#[test]
fn a_file_that_gets_shorter_while_it_is_verified_is_refused_with_both_lengths() {
    let image = Image::new(1, 0);
    let (sim, _) = disk_with(std::slice::from_ref(&image));
    let shim = Shim::lying(&sim, Lie::Shrinking);
    let shrinking = Folder::open(&shim, Path::new(crate::disk::ROOT), false);
    let shrinking = shrinking
        .expect("because nobody is in the way")
        .expect("because it is there");
    let fault = image
        .verify(&shrinking)
        .expect_err("because its length changed");
    let text = "it had 4144 bytes before it was read, and 4143 afterwards";
    let text = format!("image {} not used: {text}", image.path());
    assert_eq!(fault.to_string(), text);
    assert!(matches!(image.verify(&open(&sim)), Ok(Some(_))));
}

/// The reference's writer: one temporary name for all, opened with truncation.
struct SharedTemp {
    dir: Dir,
    file: File,
    name: String,
    bytes: Vec<u8>,
}

impl SharedTemp {
    fn begin(sim: &SimFs, image: &Image) -> Self {
        let dir = v1(sim);
        let name = format!("{}.tmp", image.name());
        let file = match dir.create_new(&name, 0o600) {
            Ok(file) => file,
            Err(_) => dir.open_file_writable(&name).expect("because it is there"),
        };
        file.set_length(0).expect("because it is ours");
        Self {
            dir,
            file,
            name,
            bytes: image.bytes(),
        }
    }

    fn write(&self, part: std::ops::Range<usize>) {
        let written = self.file.write_all_at(part.start as u64, &self.bytes[part]);
        written.expect("because there is room");
    }

    fn rename(&self) -> Result<(), FsErrorKind> {
        let target = self.name.trim_end_matches(".tmp");
        self.file.sync().expect("because the disk is sound");
        self.dir
            .rename_over(&self.name, target)
            .map_err(|error| error.kind)
    }
}

/// What the readers of `a_writer_that_is_overtaken_in_the_middle_never_shows_a_mixed_file` would
/// see of a temporary name that two writers share.
#[test]
fn a_shared_temporary_name_shows_half_a_file_changes_it_under_its_readers_and_fails_a_rename() {
    let image = image(1);
    let (sim, folder) = disk_with(&[]);
    let (length, cut) = (image.bytes().len(), image.bytes().len() * 6 / 10);
    let first = SharedTemp::begin(&sim, &image);
    first.write(0..cut);
    let second = SharedTemp::begin(&sim, &image);
    first.write(cut..length);
    assert_eq!(first.rename(), Ok(()));
    // Right length, and the first 60 % are zero.
    let seen = read(&folder, &image).expect("because it is there");
    assert_eq!(seen.len(), length);
    assert!(seen[..cut].iter().all(|byte| *byte == 0));
    assert_eq!(seen[cut..], image.bytes()[cut..]);
    let fault = image
        .verify(&folder)
        .expect_err("because half of it is missing");
    let ImageFault::Refused(refusal) = fault else {
        panic!("{fault}");
    };
    assert_eq!(refusal.code(), RefusalCode::Magic);
    second.write(0..length);
    let changed = read(&folder, &image).expect("because it is there");
    assert_ne!(changed, seen, "the visible file changed");
    assert_eq!(second.rename(), Err(FsErrorKind::NotFound));
}
