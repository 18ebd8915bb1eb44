//! The simulator answers as the real file system does: the same random operations on both, the same
//! answers and the same tree.

use packhouse_sim::{SimClock, SimFs};
use packhouse_sys::fs::{Dir, DirAccess, Fs, FsError, FsErrorKind, LockKind};
use packhouse_sys::real::RealFs;
use std::ffi::OsString;
use std::path::Path;
use std::sync::Arc;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// SplitMix64.
struct Random(u64);

/// What an operation answers, without what two file systems may differ in.
type Answer = Result<String, FsErrorKind>;

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % bound
    }

    fn name(&mut self) -> &'static str {
        NAMES[usize::try_from(self.below(4)).expect("because it is below 4")]
    }
}

/// One random operation in one of two folders.
fn step(top: &Dir, random: &mut Random) -> Answer {
    let (inner, other_inner) = (random.below(3) == 0, random.below(3) == 0);
    let (name, other) = (random.name(), random.name());
    let (operation, offset, length) = (random.below(14), random.below(9), random.below(20));
    let pick = |inner: bool| match inner {
        true => top.open_dir("inner"),
        false => Ok(top.clone()),
    };
    let dir = pick(inner).map_err(kind)?;
    let other_dir = pick(other_inner).map_err(kind)?;
    let done = |_| "done".to_owned();
    let bytes = vec![b'x'; usize::try_from(length).expect("because it is small")];
    match operation {
        0 => dir.make_dir(name, 0o700).map(done),
        1 => dir.create_new(name, 0o600).map(|_| "made".to_owned()),
        2 => dir
            .open_file_writable(name)
            .and_then(|file| file.write_all_at(offset, &bytes))
            .map(done),
        3 => dir
            .open_file_writable(name)
            .and_then(|file| file.set_length(length))
            .map(done),
        4 | 5 => dir
            .create_unnamed(0o400)
            .and_then(|file| {
                file.write_all_at(0, &bytes)?;
                file.sync()?;
                dir.link(&file, name)
            })
            .map(done),
        6 => dir.rename_new(name, &other_dir, other).map(done),
        7 => dir.rename_over(name, other).map(done),
        8 => dir.unlink(name).map(done),
        9 => dir.remove_dir(name).map(done),
        10 => dir.read_small(name, 1000).map(|bytes| format!("{bytes:?}")),
        11 => dir
            .open_dir_for(name, DirAccess::Lookup)
            .map(|_| "open".to_owned()),
        12 => dir
            .stat_entry(name)
            .map(|stat| format!("{} {:o}", stat.kind, stat.mode)),
        _ => locks(&dir, name),
    }
    .map_err(kind)
}

/// Two descriptors of one file and their locks.
fn locks(dir: &Dir, name: &str) -> Result<String, FsError> {
    let (one, other) = (dir.open_file_writable(name)?, dir.open_file_writable(name)?);
    let mut answers = vec![
        one.try_lock(LockKind::Shared, 5, 2)?,
        other.try_lock(LockKind::Shared, 6, 1)?,
        other.try_lock(LockKind::Exclusive, 6, 1)?,
        other.try_lock(LockKind::Exclusive, 7, 1)?,
        one.try_lock(LockKind::Exclusive, 7, 1)?,
    ];
    other.unlock(7, 1)?;
    answers.push(one.try_lock(LockKind::Exclusive, 7, 1)?);
    drop(one);
    answers.push(other.try_lock(LockKind::Exclusive, 0, 100)?);
    Ok(format!("{answers:?}"))
}

/// Every name below a folder, with what it is and holds.
fn tree(dir: &Dir) -> Result<String, FsError> {
    let mut text = String::new();
    for name in dir.list()? {
        let stat = dir.stat_entry(&name)?;
        text += &format!("{name:?} {} {:o}", stat.kind, stat.mode);
        match dir.open_dir(&name) {
            Ok(inner) => text += &format!(" {{{}}}", tree(&inner)?),
            Err(_) => text += &format!(" {} {:?}", stat.link_count, content(dir, &name)),
        }
        text.push('\n');
    }
    Ok(text)
}

fn content(dir: &Dir, name: &OsString) -> Result<Vec<u8>, FsErrorKind> {
    dir.read_small(name, 1000).map_err(kind)
}

fn kind(error: FsError) -> FsErrorKind {
    error.kind
}

fn open(fs: &dyn Fs, path: &Path) -> Dir {
    let mut dir = fs.root().expect("because / is there");
    for component in path.components().skip(1) {
        dir = dir
            .open_dir_for(component.as_os_str(), DirAccess::Lookup)
            .expect("because the path is there");
    }
    dir.reopen().expect("because it is ours")
}

#[test]
fn random_operations_have_the_same_answers_as_on_the_real_file_system() {
    let mut refused = std::collections::BTreeMap::new();
    for seed in 0..30 {
        let folder = tempfile::tempdir().expect("because a temporary folder can be made");
        let sim = SimFs::new(seed, Arc::new(SimClock::new()));
        let dirs = [
            open(&RealFs, folder.path()),
            open(&sim, Path::new("/home/user")),
        ];
        for dir in &dirs {
            dir.make_dir("inner", 0o700).expect("because it is new");
        }
        let mut random = Random(seed);
        for number in 0..200 {
            let [real, simulated] = [0, 1].map(|which| {
                let mut random = Random(random.0);
                step(&dirs[which], &mut random)
            });
            assert_eq!(real, simulated, "seed {seed}, operation {number}");
            if let Err(kind) = real {
                *refused.entry(kind.to_string()).or_insert(0) += 1;
            }
            random.below(1);
        }
        assert_eq!(tree(&dirs[0]), tree(&dirs[1]), "seed {seed}");
    }
    assert!(refused.len() >= 5, "few kinds of refusals: {refused:?}");
}
