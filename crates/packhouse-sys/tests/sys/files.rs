//! Files and folders by descriptor on the real file system.

use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::fs::{Dir, DirAccess, Fs, FsErrorKind};
use packhouse_sys::real::{RealFs, fs_stat_of_fd, identity_of_fd};
use packhouse_sys::stat::{FileKind, FsId};
use std::io::Read as _;
use std::os::fd::AsFd;
use std::path::Path;

pub(crate) fn open(path: &Path) -> Dir {
    let mut dir = RealFs.root().expect("because / is there");
    for component in path.components().skip(1) {
        dir = dir
            .open_dir_for(component.as_os_str(), DirAccess::Lookup)
            .expect("because the path is there");
    }
    dir.reopen().expect("because it is ours")
}

fn temporary() -> (tempfile::TempDir, Dir) {
    let folder = tempfile::tempdir().expect("because a temporary folder can be made");
    let path = std::fs::canonicalize(folder.path()).expect("because it is there");
    let dir = open(&path);
    (folder, dir)
}

fn kind<T>(result: Result<T, packhouse_sys::fs::FsError>) -> Option<FsErrorKind> {
    result.err().map(|error| error.kind)
}

#[test]
fn a_name_is_one_component() {
    let (_folder, dir) = temporary();
    dir.make_dir("inner", 0o700).expect("because it is new");
    for name in ["", ".", "..", "inner/..", "/", "/etc", "inner/"] {
        let bad = Some(FsErrorKind::BadName);
        assert_eq!(kind(dir.open_dir(name)), bad, "{name:?}");
        assert_eq!(kind(dir.open_file(name)), bad, "{name:?}");
        assert_eq!(kind(dir.make_dir(name, 0o700)), bad, "{name:?}");
        assert_eq!(kind(dir.unlink(name)), bad, "{name:?}");
        assert_eq!(kind(dir.rename_new("inner", &dir, name)), bad, "{name:?}");
    }
}

#[test]
fn no_open_follows_a_symlink_or_waits_for_a_pipe() {
    let (folder, dir) = temporary();
    std::os::unix::fs::symlink("/etc", folder.path().join("link")).expect("because it is free");
    let link = Some(FsErrorKind::Symlink);
    assert_eq!(kind(dir.open_dir("link")), link);
    assert_eq!(kind(dir.open_dir_for("link", DirAccess::Lookup)), link);
    assert_eq!(kind(dir.open_file("link")), link);
    assert_eq!(dir.read_link("link"), Ok("/etc".into()));
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into()).expect("because it is free");
    let file = dir.open_file("pipe").expect("because it doesn't wait");
    assert_eq!(file.stat().map(|stat| stat.kind), Ok(FileKind::Special));
    assert_eq!(
        kind(file.read_small(10)),
        Some(FsErrorKind::TooLong { limit: 10 })
    );
}

#[test]
fn a_taken_name_is_never_replaced() {
    let (folder, dir) = temporary();
    let taken = dir.create_new("taken", 0o600).expect("because it is new");
    taken
        .write_all_at(0, b"first")
        .expect("because there is room");
    let unnamed = dir.create_unnamed(0o400).expect("because it is supported");
    unnamed
        .write_all_at(0, b"second")
        .expect("because there is room");
    let exists = Some(FsErrorKind::Exists);
    assert_eq!(kind(dir.link(&unnamed, "taken")), exists);
    assert_eq!(kind(dir.create_new("taken", 0o600)), exists);
    dir.link(&unnamed, "other").expect("because it is free");
    assert_eq!(kind(dir.rename_new("other", &dir, "taken")), exists);
    assert_eq!(dir.read_small("taken", 10), Ok(b"first".to_vec()));
    dir.rename_over("other", "taken").expect("because it may");
    assert_eq!(dir.read_small("taken", 10), Ok(b"second".to_vec()));
    assert_eq!(dir.list(), Ok(vec!["taken".into()]));
    drop(folder);
}

#[test]
fn a_small_read_is_bounded_before_it_allocates() {
    let (_folder, dir) = temporary();
    let file = dir.create_new("file", 0o600).expect("because it is new");
    file.set_length(1 << 40).expect("because it is sparse");
    assert_eq!(
        kind(dir.read_small("file", 1000)),
        Some(FsErrorKind::TooLong { limit: 1000 })
    );
}

#[test]
fn an_identity_is_the_descriptors_and_changes_with_the_file() {
    let (folder, dir) = temporary();
    let file = dir.create_new("file", 0o600).expect("because it is new");
    file.write_all_at(0, b"bytes")
        .expect("because there is room");
    file.sync().expect("because the disk is well");
    let before = file.identity().expect("because it is open");
    let other = std::fs::File::open(folder.path().join("file")).expect("because it is there");
    assert_eq!(identity_of_fd(other.as_fd()), Ok(before));
    assert_eq!((before.size, before.mode), (5, 0o600));
    if let FsId::Uuid(uuid) = before.file_system {
        assert_ne!(uuid, [0; 16]);
    }
    let old_ns = RealClock.wall_ns() - before.ctime_ns;
    assert!(
        (0..60_000_000_000).contains(&old_ns),
        "ctime is {old_ns} ns old"
    );
    file.set_mode(0o640).expect("because it is ours");
    let after = file.identity().expect("because it is open");
    assert!(after.difference(&before).is_some());
    assert_eq!(after.mode, 0o640);
}

#[test]
fn a_file_system_has_a_size_and_a_kind() {
    let (folder, dir) = temporary();
    let stat = dir.fs_stat().expect("because it is mounted");
    assert!(stat.total_bytes >= stat.free_bytes && stat.total_bytes > 0);
    let file = std::fs::File::open(folder.path()).expect("because it is there");
    let kind = fs_stat_of_fd(file.as_fd()).map(|stat| stat.kind);
    assert_eq!(kind, Ok(stat.kind));
}

#[test]
fn write_out_and_dropping_the_cache_change_no_byte() {
    let (_folder, dir) = temporary();
    let bytes: Vec<u8> = (0..1_000_000u32).map(|index| (index % 251) as u8).collect();
    let file = dir.create_new("file", 0o600).expect("because it is new");
    file.write_all_at(0, &bytes).expect("because there is room");
    for wait in [false, true] {
        file.write_out(0, 1_000_000, wait)
            .expect("because the disk is well");
    }
    file.sync_content().expect("because the disk is well");
    file.drop_cache().expect("because it is a plain file");
    assert_eq!(file.read_small(1_000_000), Ok(bytes));
    let mut tail = [0; 10];
    assert_eq!(file.read_full_at(999_995, &mut tail), Ok(5));
}

#[test]
fn a_descriptor_without_write_access_is_poisoned_by_a_write_and_by_nothing_else() {
    let (_folder, dir) = temporary();
    dir.create_new("file", 0o600).expect("because it is new");
    let file = dir.open_file("file").expect("because it is there");
    assert_eq!(file.read_small(10), Ok(Vec::new()));
    assert!(file.write_all_at(0, b"x").is_err());
    assert_eq!(kind(file.sync()), Some(FsErrorKind::Poisoned));
    assert_eq!(file.read_small(10), Ok(Vec::new()));
}

#[test]
fn random_bytes_differ_and_fill_the_buffer() {
    let mut buffers = [[0u8; 600]; 2];
    for buffer in &mut buffers {
        RealFs.random(buffer).expect("because the kernel has some");
    }
    assert_ne!(buffers[0], buffers[1]);
    assert!(buffers[0][590..].iter().any(|byte| *byte != 0));
}

/// A mapping outlives the descriptor that it was made with, and may write without any time of the
/// file showing it: that is what the question is for.
#[test]
fn a_writer_is_seen_by_descriptor_and_by_mapping() {
    let folder = tempfile::tempdir().expect("because a temporary folder can be made");
    let path = std::fs::canonicalize(folder.path()).expect("because it is there");
    std::fs::write(path.join("model"), [7; 8192]).expect("because the folder is ours");
    let file = open(&path).open_file("model").expect("because it is there");
    let asked = file.has_writer();
    if asked.is_none() {
        println!("NOT EXERCISED: no leases on this file system");
        return;
    }
    assert_eq!(asked, Some(false));
    let options = std::fs::OpenOptions::new().read(true).write(true).clone();
    let writer = options
        .open(path.join("model"))
        .expect("because it is ours");
    assert_eq!(file.has_writer(), Some(true));
    drop(writer);
    assert_eq!(file.has_writer(), Some(false));
    let script = "import mmap, sys\n\
        with open(sys.argv[1], 'r+b') as file: pages = mmap.mmap(file.fileno(), 0)\n\
        print('mapped', flush=True)\n\
        sys.stdin.read()\n";
    let child = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(path.join("model"))
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("SKIP: no python3 to map a file with");
        return;
    };
    let mut said = [0; 6];
    let output = child.stdout.as_mut().expect("because it is piped");
    output.read_exact(&mut said).expect("because it says so");
    assert_eq!(file.has_writer(), Some(true));
    drop(child.stdin.take());
    child.wait().expect("because it is our child");
    assert_eq!(file.has_writer(), Some(false));
}
