//! Whose folder and whose files are used, and whose are refused by name.

use crate::disk::{Image, ROOT, V1, disk_with, new_sim, open};
use packhouse_image::{Folder, ImageFault, RefusalCode};
use packhouse_sys::fs::{Fs, FsErrorKind};
use std::path::Path;

fn refused(sim: &packhouse_sim::SimFs, make: bool) -> String {
    let opened = Folder::open(sim, Path::new(ROOT), make);
    opened.expect_err("because it is not trusted").to_string()
}

#[test]
fn what_is_made_is_this_users_alone_and_tagged() {
    let sim = new_sim();
    let folder = open(&sim);
    assert_eq!(folder.path(), Path::new(ROOT));
    let mut dir = sim.root().expect("because the disk is there");
    for name in ["home", "user", "images", "v1", "owners"] {
        dir = dir.open_dir(name).expect("because it was made");
        let stat = dir.stat().expect("because it is there");
        if !matches!(name, "home" | "user") {
            assert_eq!((stat.mode, stat.uid), (0o700, 1000), "{name}");
        }
    }
    let tag = sim.read(format!("{ROOT}/CACHEDIR.TAG"));
    assert_eq!(tag.as_deref(), Some(packhouse_store::root::TAG));
}

#[test]
fn nothing_is_made_of_a_folder_that_is_only_opened() {
    let sim = new_sim();
    sim.restart_count();
    for path in [ROOT, "/home/user"] {
        let opened = Folder::open(&sim, Path::new(path), false);
        assert!(
            opened.expect("because nobody is in the way").is_none(),
            "{path}"
        );
    }
    assert_eq!(sim.operation_count(), 0);
    let relative = Folder::open(&sim, Path::new("images"), false);
    let text = relative.expect_err("because it is relative").to_string();
    assert_eq!(text, "folder of images: images is not an absolute path");
}

#[test]
fn a_folder_that_is_there_serves_on_a_read_only_disk() {
    let (sim, _) = disk_with(&[Image::new(1, 0)]);
    sim.remove(format!("{ROOT}/CACHEDIR.TAG"));
    sim.set_read_only(true);
    let folder = open(&sim);
    assert!(matches!(Image::new(1, 0).verify(&folder), Ok(Some(_))));
    let published = Image::new(1, 1).publish(&folder, &sim);
    let text = published
        .expect_err("because the disk is read-only")
        .to_string();
    assert!(text.ends_with(": read-only file system"), "{text}");
}

#[test]
fn a_folder_of_somebody_else_or_that_others_can_change_is_refused_by_name() {
    let (sim, _) = disk_with(&[]);
    for (name, label) in [
        (ROOT, "root"),
        (V1, "v1"),
        (&*format!("{V1}/owners"), "owners"),
    ] {
        for make in [false, true] {
            sim.set_owner(name, 0);
            let text = format!("folder of images: {name} belongs to uid 0, expected 1000");
            assert_eq!(refused(&sim, make), text, "{label}");
            sim.set_owner(name, 77);
            let text = format!("folder of images: {name} belongs to uid 77; trusted are [0, 1000]");
            assert_eq!(refused(&sim, make), text, "{label}");
            sim.set_owner(name, 1000);
            sim.set_mode(name, 0o777);
            let text = format!(
                "folder of images: {name} has mode 0777: others than its owner can change it"
            );
            assert_eq!(refused(&sim, make), text, "{label}");
            sim.set_mode(name, 0o700);
            open(&sim);
        }
    }
    sim.set_mode("/home/user", 0o757);
    let text = "folder of images: /home/user has mode 0757: others than its owner can change it";
    assert_eq!(refused(&sim, true), text);
}

#[test]
fn a_symlink_in_the_path_is_followed_when_a_trusted_owner_made_it() {
    let (sim, _) = disk_with(&[Image::new(1, 0)]);
    let path = Path::new("/home/user/link/images");
    for (owner, is_trusted) in [(1000, true), (0, true), (77, false)] {
        sim.symlink("/home/user/link", "/home/user", owner);
        let opened = Folder::open(&sim, path, false);
        if is_trusted {
            let folder = opened.expect("because its maker is trusted");
            let folder = folder.expect("because it is there");
            assert!(matches!(Image::new(1, 0).verify(&folder), Ok(Some(_))));
            continue;
        }
        let text = opened.expect_err("because a stranger made it").to_string();
        let expected = "folder of images: /home/user/link belongs to uid 77; trusted are [0, 1000]";
        assert_eq!(text, expected);
    }
}

#[test]
fn a_file_in_a_folders_place_is_refused_and_nothing_is_made() {
    let sim = new_sim();
    sim.replace(ROOT, b"no folder", 0o600);
    let text = "folder of images: /home/user/images is a regular file where a folder is expected";
    assert_eq!(refused(&sim, true), text);
    assert_eq!(sim.read(ROOT).as_deref(), Some(b"no folder".as_slice()));
}

#[test]
fn an_image_is_this_users_regular_file_that_nobody_else_can_change() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(std::slice::from_ref(&image));
    let path = image.path();
    let expect = |code: RefusalCode, text: &str| {
        let refusal = folder
            .open_image(&image.name())
            .expect_err("because it is not trusted");
        assert_eq!(refusal.code(), code);
        assert_eq!(
            refusal.to_string(),
            format!("image {path} not used: {text}")
        );
        let fault = image
            .verify(&folder)
            .expect_err("because it is not trusted");
        assert_eq!(fault, ImageFault::Refused(refusal));
    };
    sim.set_owner(&path, 77);
    expect(RefusalCode::Owner, "it belongs to uid 77, expected 1000");
    sim.set_owner(&path, 0);
    expect(RefusalCode::Owner, "it belongs to uid 0, expected 1000");
    sim.set_owner(&path, 1000);
    sim.set_mode(&path, 0o420);
    let text = "it has mode 0420: others than its owner can change it";
    expect(RefusalCode::Writable, text);
    sim.set_mode(&path, 0o400);
    // A second name changes nothing.
    sim.hard_link(&path, "/home/user/second");
    assert!(matches!(image.verify(&folder), Ok(Some(_))));
    sim.remove(&path);
    sim.symlink(&path, "/home/user/second", 1000);
    expect(
        RefusalCode::NotRegular,
        "it is a symlink, expected a regular file",
    );
    sim.remove(&path);
    sim.make_dirs(&path, 1000, 0o700);
    expect(
        RefusalCode::NotRegular,
        "it is a folder, expected a regular file",
    );
    sim.remove(&path);
    assert_eq!(image.verify(&folder), Ok(None));
    assert!(
        folder
            .open_image(&image.name())
            .expect("because absence is no refusal")
            .is_none()
    );
}

#[test]
fn an_image_that_is_published_is_its_bytes_with_mode_0400_and_one_name() {
    let image = Image::new(1, 0);
    let (_, folder) = disk_with(std::slice::from_ref(&image));
    let opened = folder
        .open_image(&image.name())
        .expect("because it is ours");
    let opened = opened.expect("because it is there");
    let stat = opened.file.stat().expect("because it is open");
    assert_eq!((stat.mode, stat.link_count, stat.uid), (0o400, 1, 1000));
    assert_eq!(opened.bytes, 4096 + 24 + 24);
    let written = opened.file.write_all_at(0, &[0]);
    let kind = written.expect_err("because it is open for reading").kind;
    assert_eq!(kind, FsErrorKind::Permission);
}

#[test]
fn each_way_to_damage_a_file_has_its_own_reason() {
    let image = Image::new(1, 0);
    let (sim, folder) = disk_with(&[image.clone(), Image::new(2, 0), Image::new(1, 1)]);
    let good = image.bytes();
    let reason = |bytes: &[u8]| {
        sim.replace(image.path(), bytes, 0o400);
        image
            .verify(&folder)
            .expect_err("because it is damaged")
            .to_string()
    };
    let names = |text: String, end: &str| {
        let expected = format!("image {} not used: {end}", image.path());
        assert_eq!(text, expected);
    };
    names(reason(&good[..4095]), "it has 4095 bytes, expected 4096");
    names(reason(&[]), "it has 0 bytes, expected 4096");
    names(reason(&good[..4143]), "it has 4143 bytes, expected 4144");
    let mut longer = good.clone();
    longer.push(0);
    names(reason(&longer), "it has 4145 bytes, expected 4144");
    for at in 4096..4144 {
        let mut flipped = good.clone();
        flipped[at] ^= 1 << (at % 8);
        let text = reason(&flipped);
        let begins = format!("image {} not used: the payload hashes to ", image.path());
        assert!(text.starts_with(&begins), "byte {at}: {text}");
        let ends = format!(", and the header says {}", image.header.payload_hash());
        assert!(text.ends_with(&ends), "byte {at}: {text}");
    }
    for at in 0..4096 {
        let mut flipped = good.clone();
        flipped[at] ^= 1 << (at % 8);
        let text = reason(&flipped);
        assert!(text.contains("not used: the "), "byte {at}: {text}");
    }
    // Intact, but another one.
    for other in [Image::new(2, 0), Image::new(1, 1)] {
        let text = reason(&other.bytes());
        let expected = format!("image {} is {} by its header", image.path(), other.name());
        assert_eq!(text, expected);
    }
    sim.replace(image.path(), &good, 0o400);
    let verified = image.verify(&folder).expect("because it is good again");
    let verified = verified.expect("because it is there");
    assert_eq!((verified.bytes, &verified.header), (4144, &image.header));
}
