//! Processes that write one image at once, are killed in the middle, and move their owners about,
//! on the real file system.
//!
//! A test that needs another process starts this binary again for itself alone, with its task in
//! the environment.

use crate::disk::{Image, VOCABULARY, owner};
use packhouse_image::{
    ClaimProblem, Claimant, CollectError, Folder, ImageName, Limits, claim, collect, inventory,
    verify_image,
};
use packhouse_layout::int8_tile::{TileGeometry, TileOrder, TileSizes};
use packhouse_sys::clock::{Clock, RealClock};
use packhouse_sys::real::RealFs;
use std::io::{BufRead, BufReader, Read, Write};
use std::num::NonZeroUsize;
use std::path::Path;
use std::process::{Child, Command, Stdio};

pub(crate) const FOLDER: &str = "PACKHOUSE_TEST_FOLDER";
pub(crate) const WRITER: &str = "PACKHOUSE_TEST_WRITER";
/// Its presence ends the writers.
const STOP: &str = "stop";
const ROUNDS: u32 = 30;
const VERIFIED: u64 = 150;

/// A clock that is two hours ahead, for which no temporary file is young.
struct Later;

impl Clock for Later {
    fn wall_ns(&self) -> i64 {
        RealClock.wall_ns() + 7_200_000_000_000
    }

    fn steady_ns(&self) -> u64 {
        RealClock.steady_ns()
    }

    fn sleep_ns(&self, duration_ns: u64) {
        RealClock.sleep_ns(duration_ns);
    }
}

fn open(root: &Path) -> Folder {
    let folder = Folder::open(&RealFs, root, true).expect("because the folder is this user's");
    folder.expect("because it is made")
}

/// An image of several writes' length, whose payload tells its writer.
fn image(head: u8, tile: u64, writer: u32) -> Image {
    let sizes = TileSizes {
        kd: 256,
        nd: 1024,
        kpad: 256,
        t: 5,
    };
    let geometry = TileGeometry::new(TileOrder::Blocked, sizes);
    Image::of(head, tile, geometry.expect("because the sizes fit"), writer)
}

fn spawn(test: &str, root: &Path, writer: u32) -> Child {
    let this = std::env::current_exe().expect("because this process has a binary");
    Command::new(this)
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(FOLDER, root)
        .env(WRITER, writer.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("because this binary can be started")
}

/// The root and the writer's number, in a process that a test started.
pub(crate) fn task() -> Option<(std::path::PathBuf, u32)> {
    let root = std::env::var_os(FOLDER)?;
    let writer = std::env::var(WRITER).ok()?;
    Some((root.into(), writer.parse().expect("because a test set it")))
}

/// Ends this process, a child, with its parent, who has its input open until then.
fn end_with_parent() {
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(1);
    });
}

/// Waits until a child printed that it wrote a round.
fn wait_for_a_round(child: &mut Child) -> BufReader<&mut std::process::ChildStdout> {
    let mut lines = BufReader::new(child.stdout.as_mut().expect("because it is piped"));
    let mut line = String::new();
    while !line.contains("round") {
        line.clear();
        let read = lines
            .read_line(&mut line)
            .expect("because the pipe is open");
        assert!(read > 0, "the child wrote nothing");
    }
    lines
}

/// Verifies an image by its name: whole, or absent.
fn is_there(folder: &Folder, name: &ImageName) -> bool {
    let verified = verify_image(folder, name, NonZeroUsize::MIN);
    verified.expect("because it is whole or absent").is_some()
}

fn has_ended(child: &mut Child) -> bool {
    let ended = child.try_wait().expect("because it is ours");
    ended
        .inspect(|status| assert!(status.success(), "{status}"))
        .is_some()
}

#[test]
fn two_processes_that_write_one_tile_at_once_never_show_a_file_that_does_not_verify() {
    let name = image(1, 0, 0).name();
    if let Some((root, writer)) = task() {
        end_with_parent();
        let (folder, image) = (open(&root), image(1, 0, writer));
        while !root.join(STOP).exists() {
            image
                .publish(&folder, &RealFs)
                .expect("because a rename wins or loses whole");
        }
        return;
    }
    let temp = tempfile::tempdir().expect("because there is a folder for it");
    let root = temp.path().join("images");
    let folder = open(&root);
    let test = "race_processes::two_processes_that_write_one_tile_at_once_never_show_a_file_that_\
                does_not_verify";
    let mut children = [1, 2].map(|writer| spawn(test, &root, writer));
    let hashes = [1, 2].map(|writer| *image(1, 0, writer).header.payload_hash());
    let mut seen = [0u64; 2];
    // Until both were seen often: a rename of either comes between two looks.
    while seen.iter().sum::<u64>() < VERIFIED || seen.contains(&0) {
        assert!(
            !children.iter_mut().any(has_ended),
            "a writer ended: {seen:?}"
        );
        let verified = verify_image(&folder, &name, NonZeroUsize::MIN);
        let Some(verified) = verified.expect("because it is whole or absent") else {
            assert_eq!(seen, [0; 2], "an image that was there is gone");
            continue;
        };
        let writer = hashes
            .iter()
            .position(|hash| hash == verified.header.payload_hash());
        seen[writer.expect("because one of them wrote it")] += 1;
    }
    std::fs::write(root.join(STOP), "").expect("because the folder is ours");
    while !children.iter_mut().all(has_ended) {
        std::thread::yield_now();
    }
    println!("verified {} and {} times", seen[0], seen[1]);
    let inventory = inventory(&folder, &RealClock).expect("because it can be listed");
    assert_eq!((inventory.images.len(), inventory.temps.len()), (1, 0));
    assert!(is_there(&folder, &name));
}

#[test]
fn writers_killed_in_the_middle_leave_whole_images_and_temporary_files_that_a_collection_removes() {
    if let Some((root, writer)) = task() {
        let (folder, image) = (open(&root), image(1, 0, writer));
        for round in 0.. {
            image
                .publish(&folder, &RealFs)
                .expect("because nothing is in the way");
            println!("round {round}");
        }
    }
    let temp = tempfile::tempdir().expect("because there is a folder for it");
    let root = temp.path().join("images");
    let folder = open(&root);
    let test = "race_processes::writers_killed_in_the_middle_leave_whole_images_and_temporary_\
                files_that_a_collection_removes";
    let name = image(1, 0, 0).name();
    let mut left_temps = 0;
    for writer in 0..12 {
        let mut child = spawn(test, &root, 1 + writer % 2);
        drop(wait_for_a_round(&mut child));
        child.kill().expect("because it is ours");
        child.wait().expect("because it is ours");
        assert!(is_there(&folder, &name));
        let listed = inventory(&folder, &RealClock).expect("because it can be listed");
        left_temps = listed.temps.len();
        assert!(listed.temps.iter().all(|temp| temp.is_young));
        let now = collect(&folder, &RealClock, Limits::default(), false);
        let now = now.expect("because the lock is free");
        assert_eq!(now.removal.removed, [], "young temporary files stay");
    }
    println!("{left_temps} temporary files were left by 12 kills");
    let later = collect(&folder, &Later, Limits::default(), false);
    let later = later.expect("because the lock is free");
    assert_eq!(later.removal.removed.len(), left_temps);
    assert_eq!(later.removal.failures, []);
    let listed = inventory(&folder, &RealClock).expect("because it can be listed");
    assert_eq!(
        (listed.images.len(), listed.temps.len(), listed.strays.len()),
        (1, 0, 0)
    );
}

/// Notes what an owner serves; false where the lock was not had in time, which is no failure on a
/// host with much to do.
fn claim_of(folder: &Folder, image: &Image, who: &str) -> bool {
    let (owner, key) = (owner(who), image.key());
    let claimant = Claimant {
        owner: &owner,
        geometry: image.header.geometry(),
        key: &key,
        vocabulary: VOCABULARY,
    };
    let claim = claim(folder, &RealFs, &RealClock, claimant);
    let is_busy = |problem: &ClaimProblem| matches!(problem, ClaimProblem::Busy { .. });
    assert!(claim.problems.iter().all(is_busy), "{:?}", claim.problems);
    claim.problems.is_empty()
}

/// Serves one head for two rounds, then another, for so many rounds and until the parent has seen
/// enough.
fn move_about(root: &Path, writer: u32) {
    end_with_parent();
    let (folder, who) = (open(root), format!("/models/{writer}"));
    for round in 0.. {
        if round >= ROUNDS && root.join(STOP).exists() {
            return;
        }
        let head = u8::try_from((round / 2 + writer) % 2).expect("because it is 0 or 1");
        let image = image(head, 0, 1);
        if !is_there(&folder, &image.name()) {
            image
                .publish(&folder, &RealFs)
                .expect("because nothing is in the way");
        }
        claim_of(&folder, &image, &who);
    }
}

/// Two owners that move between two heads while somebody collects: what is there is whole, no
/// record is damaged, and in the end each owner's head is what it serves.
#[test]
fn owners_that_move_about_and_a_collector_at_once_converge() {
    if let Some((root, writer)) = task() {
        move_about(&root, writer);
        return;
    }
    let temp = tempfile::tempdir().expect("because there is a folder for it");
    let root = temp.path().join("images");
    let folder = open(&root);
    let test = "race_processes::owners_that_move_about_and_a_collector_at_once_converge";
    let mut children = [1, 2].map(|writer| spawn(test, &root, writer));
    let limits = Limits {
        max_bytes: Some(image(0, 0, 1).bytes().len() as u64),
        max_age_ns: None,
    };
    let (mut collected, mut found) = (0, 0);
    while !children.iter_mut().all(has_ended) {
        let done = collect(&folder, &RealClock, limits, false);
        match done {
            Ok(done) => {
                assert_eq!(done.removal.failures, []);
                collected += done.removal.removed.len();
            }
            Err(CollectError::Busy { .. }) => {}
            Err(error) => panic!("{error}"),
        }
        let listed = inventory(&folder, &RealClock).expect("because it can be listed");
        for image in &listed.images {
            found += usize::from(is_there(&folder, &image.name));
        }
        for owner in &listed.owners {
            assert!(owner.record.is_ok(), "{:?}", owner.record);
        }
        // Both must have been met at work, however late this process is.
        if found > 0 && listed.owners.len() == 2 && !root.join(STOP).exists() {
            std::fs::write(root.join(STOP), "").expect("because the folder is ours");
        }
    }
    println!("{collected} files were collected, {found} images verified");
    std::fs::remove_file(root.join(STOP)).expect("because it stopped the owners");
    // The last round of each owner was of this head, or of the other one.
    for writer in [1, 2] {
        let head = u8::try_from(writer % 2).expect("because it is 0 or 1");
        let image = image(head, 0, 1);
        image
            .publish(&folder, &RealFs)
            .expect("because nothing is in the way");
        let claimed = claim_of(&folder, &image, &format!("/models/{writer}"));
        assert!(claimed, "nobody else is there to hold the lock");
        assert!(is_there(&folder, &image.name()));
    }
    let listed = inventory(&folder, &RealClock).expect("because it can be listed");
    assert_eq!(
        (listed.owners.len(), listed.temps.len(), listed.strays.len()),
        (2, 0, 0)
    );
    for image in &listed.images {
        assert!(!image.owners.is_empty(), "{} belongs to nobody", image.name);
    }
}

#[test]
fn a_process_that_has_an_image_open_keeps_its_bytes_when_it_is_collected() {
    let image = image(1, 0, 1);
    if let Some((root, _)) = task() {
        let opened = open(&root)
            .open_image(&image.name())
            .expect("because it is ours");
        let opened = opened.expect("because it is there");
        println!("round 0: it is open");
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        read.expect("because the parent says that it is collected");
        let mut bytes = vec![0; image.bytes().len()];
        assert_eq!(opened.file.read_full_at(0, &mut bytes), Ok(bytes.len()));
        assert!(bytes == image.bytes(), "the bytes changed");
        return;
    }
    let temp = tempfile::tempdir().expect("because there is a folder for it");
    let root = temp.path().join("images");
    let folder = open(&root);
    image
        .publish(&folder, &RealFs)
        .expect("because nothing is in the way");
    let test = "race_processes::a_process_that_has_an_image_open_keeps_its_bytes_when_it_is_\
                collected";
    let mut child = spawn(test, &root, 1);
    let mut told = child.stdin.take().expect("because it is piped");
    let lines = wait_for_a_round(&mut child);
    let limits = Limits {
        max_bytes: Some(0),
        max_age_ns: None,
    };
    let done = collect(&folder, &RealClock, limits, false).expect("because the lock is free");
    assert_eq!(done.removal.freed_bytes(), image.bytes().len() as u64);
    assert!(!is_there(&folder, &image.name()));
    writeln!(told, "collected").expect("because the child waits");
    drop(lines);
    let status = child.wait().expect("because it is ours");
    assert!(status.success(), "{status}");
}
