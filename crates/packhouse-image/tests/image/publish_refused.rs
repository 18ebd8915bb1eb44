//! What can't come to be is refused by name before a byte of it is written.

use crate::disk::{Image, ROOT, V1, disk_with, images, temps};
use crate::race_processes::{FOLDER, WRITER, task};
use packhouse_image::{Folder, Limits, RefusalCode, collect, inventory};
use packhouse_sim::SimFs;
use packhouse_sys::clock::RealClock;
use packhouse_sys::fs::{Dir, Fs, FsError};
use packhouse_sys::real::RealFs;
use packhouse_sys::stat::FileKind;
use std::path::Path;
use std::process::Command;

/// A process that may write files of so many bytes.
struct Limited {
    inner: SimFs,
    limit_bytes: u64,
}

impl Fs for Limited {
    fn root(&self) -> Result<Dir, FsError> {
        self.inner.root()
    }

    fn random(&self, target: &mut [u8]) -> Result<(), FsError> {
        self.inner.random(target)
    }

    fn effective_uid(&self) -> u32 {
        self.inner.effective_uid()
    }

    fn file_size_limit_bytes(&self) -> Option<u64> {
        Some(self.limit_bytes)
    }
}

#[test]
fn a_file_past_the_processs_limit_is_not_begun() {
    let image = Image::new(1, 0);
    for (limit_bytes, is_written) in [(4144, true), (4143, false), (0, false)] {
        let (sim, folder) = disk_with(&[]);
        let inner = sim.clone();
        let limited = Limited { inner, limit_bytes };
        sim.restart_count();
        let published = image.publish(&folder, &limited);
        if is_written {
            assert_eq!(published, Ok(4144));
            continue;
        }
        let text = published.expect_err("because it is too long").to_string();
        let expected = format!(
            "{} would have 4144 bytes, and this process may write files of {limit_bytes} bytes \
             (RLIMIT_FSIZE)",
            image.path()
        );
        assert_eq!(text, expected);
        assert_eq!((images(&sim).len(), temps(&sim).len()), (0, 0));
    }
}

/// Without the look at the limit the signal ends the child.
#[test]
fn a_process_with_a_limit_of_file_sizes_lives() {
    if let Some((root, _)) = task() {
        let folder = Folder::open(&RealFs, &root, true).expect("because it is this user's");
        let folder = folder.expect("because it is made");
        let refused = Image::new(1, 0).publish(&folder, &RealFs);
        println!("{}", refused.expect_err("because it is too long"));
        return;
    }
    let temp = tempfile::tempdir().expect("because there is a folder for it");
    let root = temp.path().join("images");
    let folder = Folder::open(&RealFs, &root, true).expect("because it is this user's");
    let folder = folder.expect("because it is made");
    let test = "publish_refused::a_process_with_a_limit_of_file_sizes_lives";
    let this = std::env::current_exe().expect("because this process has a binary");
    let child = Command::new("sh")
        .args(["-c", "ulimit -f 2 && exec \"$0\" \"$@\""])
        .arg(this)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(FOLDER, &root)
        .env(WRITER, "1")
        .output()
        .expect("because there is a shell");
    let (status, told) = (child.status, String::from_utf8_lossy(&child.stdout));
    assert!(status.success(), "{status}: {told}");
    assert!(told.contains("may write files of "), "{told}");
    let listed = inventory(&folder, &RealClock).expect("because it can be listed");
    assert_eq!((listed.images.len(), listed.temps.len()), (0, 0));
}

#[test]
fn a_folder_in_an_images_place_is_refused_before_a_write_and_told_by_listings() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(&[]);
    sim.make_dirs(image.path(), 1000, 0o700);
    image.claim(&folder, &sim, "/models/one");
    sim.restart_count();
    let refused = image.publish(&folder, &sim);
    let text = refused.expect_err("because a folder is there").to_string();
    let path = image.path();
    let expected = format!("{path} is a folder, and an image or record would get its name");
    assert_eq!((text, sim.operation_count()), (expected, 0));
    let stray = [(format!("v1/{}", image.name()), FileKind::Directory)];
    let listed = inventory(&folder, &*sim.clock()).expect("because it can be listed");
    let done = collect(&folder, &*sim.clock(), Limits::default(), false);
    let done = done.expect("because the lock is free");
    for strays in [listed.strays, done.strays] {
        let strays: Vec<_> = strays
            .into_iter()
            .map(|stray| (stray.name, stray.kind))
            .collect();
        assert_eq!(strays, stray);
    }
}

#[test]
fn a_symlink_below_the_root_is_no_folder_of_images() {
    for name in [V1.to_owned(), format!("{V1}/owners")] {
        for make in [false, true] {
            let (sim, folder) = disk_with(&[]);
            drop(folder);
            sim.make_dirs("/home/user/elsewhere", 1000, 0o700);
            sim.make_dirs("/home/user/elsewhere/owners", 1000, 0o700);
            sim.remove(&name);
            sim.symlink(&name, "/home/user/elsewhere", 1000);
            let opened = Folder::open(&sim, Path::new(ROOT), make);
            let text = opened.expect_err("because it is a symlink").to_string();
            let expected =
                format!("folder of images: {name} is a symlink where a folder is expected");
            assert_eq!(text, expected);
        }
    }
}

#[test]
fn what_cant_be_opened_is_refused_by_what_it_is() {
    let temp = tempfile::tempdir().expect("because there is a folder for it");
    let root = temp.path().join("images");
    let folder = Folder::open(&RealFs, &root, true).expect("because it is this user's");
    let folder = folder.expect("because it is made");
    let image = Image::new(1, 0);
    let path = root.join("v1").join(image.name().to_string());
    let socket = std::os::unix::net::UnixListener::bind(&path);
    drop(socket.expect("because the name is free"));
    let refusal = folder
        .open_image(&image.name())
        .expect_err("because it is a socket");
    assert_eq!(refusal.code(), RefusalCode::NotRegular);
    let text = refusal.to_string();
    assert!(
        text.ends_with("not used: it is a device, socket or pipe, expected a regular file"),
        "{text}"
    );
    // What is no folder has its name taken by the image.
    assert_eq!(image.publish(&folder, &RealFs), Ok(4144));
    assert!(matches!(image.verify(&folder), Ok(Some(_))));
}
