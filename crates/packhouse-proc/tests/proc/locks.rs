//! Locks on devices between real processes: they exclude, name who holds, and go at death.
//!
//! Two users are two state folders here: what keeps them apart is the lock on the sysfs file alone.

use crate::cards::{card, cores, part, with_sysfs};
use crate::started::{Started, procfs, role, wait_for};
use packhouse_proc::devices::{Device, Vendor};
use packhouse_proc::locks::{DeviceLocks, LockError, LockScope, LockSite};
use packhouse_sys::clock::RealClock;
use packhouse_sys::real::RealFs;
use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

const SECOND_NS: u64 = 1_000_000_000;

/// A folder with the states of two users and a sysfs.
struct Host {
    folder: TempDir,
}

impl Host {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("because a folder can be made");
        for core in 0..4 {
            let cpu = folder
                .path()
                .join(format!("sys/devices/system/cpu/cpu{core}"));
            std::fs::create_dir_all(&cpu).expect("because the folder is the test's");
            std::fs::write(cpu.join("uevent"), "DRIVER=processor\n")
                .expect("because the folder is the test's");
        }
        Self { folder }
    }

    fn state(&self, user: &str) -> PathBuf {
        self.folder.path().join(user)
    }

    fn sys(&self) -> PathBuf {
        self.folder.path().join("sys")
    }

    fn card(&self, ordinal: u32) -> Device {
        let uuid = format!("GPU-{ordinal}");
        with_sysfs(card(Vendor::Nvidia, ordinal, Some(&uuid)), &self.sys())
    }

    fn take(
        &self,
        user: &str,
        devices: &[Device],
        timeout_ns: u64,
    ) -> Result<DeviceLocks, LockError> {
        take(&self.state(user), &self.sys(), devices, timeout_ns)
    }
}

fn take(
    state: &Path,
    sys: &Path,
    devices: &[Device],
    timeout_ns: u64,
) -> Result<DeviceLocks, LockError> {
    let site = LockSite {
        fs: &RealFs,
        clock: &RealClock,
        procfs: &procfs(),
        state,
        sys,
    };
    DeviceLocks::take(&site, devices, None, timeout_ns)
}

fn refused(found: Result<DeviceLocks, LockError>) -> LockError {
    match found {
        Ok(_) => panic!("the lock was had"),
        Err(error) => error,
    }
}

/// Runs a test of this binary once more as a process of its own, with a role.
fn again(test: &str, role: &str) -> Started {
    let own = std::env::current_exe().expect("because this test runs");
    Started::new(
        Command::new(own)
            .args([test, "--exact", "--nocapture"])
            .env("PACKHOUSE_TEST_ROLE", role)
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    )
}

/// Waits for a line that a child prints.
fn wait_for_line(child: &mut Started, wanted: &str) {
    let stdout = child.0.stdout.take().expect("because it is piped");
    let mut lines = BufReader::new(stdout).lines();
    let found = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(wanted)));
    assert!(found.is_some(), "the child never said {wanted}");
}

/// Three processes take the same devices, named in other orders, and write that they are in: no two
/// are in at once, and all come to an end. Once as one user without a sysfs file, so that the state
/// folder's lock alone keeps them apart; once as three users, so that sysfs alone does.
#[test]
fn processes_that_race_for_devices_are_never_in_together() {
    const NAME: &str = "locks::processes_that_race_for_devices_are_never_in_together";
    const ROUNDS: u32 = 40;
    if let Some(role) = role() {
        let words: Vec<&str> = role.split(' ').collect();
        let (folder, user, kind, order) = (Path::new(words[0]), words[1], words[2], words[3]);
        let mut devices: Vec<Device> = (0..2)
            .map(|ordinal| {
                let device = card(Vendor::Nvidia, ordinal, Some(&format!("GPU-{ordinal}")));
                match kind {
                    "user" => device,
                    "machine" => with_sysfs(device, &folder.join("sys")),
                    other => panic!("{other} is no kind"),
                }
            })
            .collect();
        if order == "reversed" {
            devices.reverse();
        }
        let inside = folder.join("inside");
        for _ in 0..ROUNDS {
            let (state, sys) = (folder.join(user), folder.join("sys"));
            let locks =
                take(&state, &sys, &devices, 60 * SECOND_NS).expect("because each is brief");
            File::create_new(&inside).expect("because nobody else is in");
            std::thread::yield_now();
            std::fs::remove_file(&inside).expect("because it is ours");
            drop(locks);
        }
        println!("SEEN: all rounds");
        return;
    }
    for (kind, users) in [("user", ["a", "a", "a"]), ("machine", ["a", "b", "c"])] {
        let host = Host::new();
        let folder = host.folder.path().display();
        let orders = ["plain", "reversed", "plain"];
        let mut children: Vec<Started> = users
            .iter()
            .zip(orders)
            .map(|(user, order)| again(NAME, &format!("{folder} {user} {kind} {order}")))
            .collect();
        for child in &mut children {
            let mut said = String::new();
            let mut stdout = child.0.stdout.take().expect("because it is piped");
            stdout
                .read_to_string(&mut said)
                .expect("because a pipe can be read");
            let status = child.0.wait().expect("because it is our child");
            assert!(status.success(), "{kind}: {said}");
            assert!(said.contains("SEEN: all rounds"), "{kind}: {said}");
        }
    }
}

/// What an error says, without the age of whom it names and how long was waited: on a busy machine
/// both are longer.
fn ageless(error: &LockError) -> String {
    let said = error.to_string();
    let (said, waited) = said.split_once("; waited ").expect("because it tells");
    let waited = waited.strip_suffix(" s").expect("because it is in seconds");
    assert!(waited.parse::<u64>().is_ok(), "{said}; {waited}");
    let Some((before, after)) = said.split_once(" (started ") else {
        return said.to_owned();
    };
    let (age, after) = after.split_once(" s ago)").expect("because it is an age");
    assert!(age.parse::<u64>().is_ok(), "{said}");
    format!("{before}{after}")
}

/// The error names the process that has the lock, by the lock's own note for a user and by the
/// kernel's list for all users. Killed, it holds nothing, and its note is not believed.
#[test]
fn the_holder_is_named_and_holds_nothing_once_it_is_killed() {
    const NAME: &str = "locks::the_holder_is_named_and_holds_nothing_once_it_is_killed";
    if let Some(folder) = role() {
        let folder = Path::new(&folder);
        let device = with_sysfs(card(Vendor::Nvidia, 0, Some("GPU-0")), &folder.join("sys"));
        let _locks = take(&folder.join("a"), &folder.join("sys"), &[device], SECOND_NS)
            .expect("because nobody has them");
        println!("SEEN: held");
        std::thread::park();
        return;
    }
    let host = Host::new();
    let device = host.card(0);
    let mut child = again(NAME, &host.folder.path().display().to_string());
    wait_for_line(&mut child, "SEEN: held");
    let key = child.key();
    let name = child.process().name;
    for (user, scope, words) in [
        ("a", LockScope::User, "for this user"),
        ("b", LockScope::Machine, "for all users"),
    ] {
        let error = refused(host.take(user, std::slice::from_ref(&device), SECOND_NS / 50));
        assert_eq!(
            ageless(&error),
            format!("nvidia:GPU-0 is locked {words} by {name}, pid {}", key.pid)
        );
        let LockError::Held { scope: found, .. } = error else {
            panic!("{error:?}");
        };
        assert_eq!(found, scope);
    }
    child.end();
    // Its note stays behind; who has the lock now is somebody else.
    let mut files = std::fs::read_dir(host.state("a").join("locks")).expect("because it was made");
    let file = files.next().expect("because one device was locked");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(file.expect("because it is listed").path())
        .expect("because it is ours");
    rustix::fs::fcntl_lock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .expect("because the kernel gave the lock back");
    let error = refused(host.take("a", std::slice::from_ref(&device), 0));
    assert_eq!(
        ageless(&error),
        "nvidia:GPU-0 is locked for this user by a process that can't be named (the last that \
         noted itself has ended)"
    );
    drop(file);
    for user in ["a", "b"] {
        host.take(user, std::slice::from_ref(&device), 0)
            .expect("because the kernel gave the locks back");
    }
}

/// A program that knows the page only, and shares no code: Python, by fcntl and flock.
#[test]
fn programs_that_follow_the_page_are_kept_out_and_keep_out() {
    let script = "\
import fcntl, hashlib, struct, sys
kind, folder, device = sys.argv[1:]
if kind == 'user':
    file = open(folder + '/locks/' + hashlib.sha256(device.encode()).hexdigest(), 'r+')
    fcntl.fcntl(file, 37, struct.pack('hhxxxxqqixxxx', fcntl.F_WRLCK, 0, 0, 1, 0))
else:
    file = open(folder + '/uevent')
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print('held', flush=True)
sys.stdin.read()
";
    let host = Host::new();
    let device = host.card(0);
    // Once, so that the lock's file is there.
    drop(
        host.take("a", std::slice::from_ref(&device), 0)
            .expect("because nobody has it"),
    );
    let sysfs = device.sysfs.clone().expect("because the card has a folder");
    for (kind, folder) in [("user", host.state("a")), ("machine", sysfs)] {
        let python = |stdout: Stdio| {
            Started::new(
                Command::new("python3")
                    .args(["-c", script, kind])
                    .arg(&folder)
                    .arg(device.id.as_str())
                    .stdin(Stdio::piped())
                    .stdout(stdout)
                    .stderr(Stdio::null()),
            )
        };
        let mut child = python(Stdio::piped());
        wait_for_line(&mut child, "held");
        let error = refused(host.take("a", std::slice::from_ref(&device), SECOND_NS / 50));
        let pid = child.0.id();
        let expected = match kind {
            "user" => "nvidia:GPU-0 is locked for this user by a process that can't be named (it \
                       left no note)"
                .to_owned(),
            _ => format!(
                "nvidia:GPU-0 is locked for all users by {}, pid {pid}",
                crate::started::process(pid).name,
            ),
        };
        assert_eq!(ageless(&error), expected);
        child.end();
        let locks = host.take("a", std::slice::from_ref(&device), SECOND_NS);
        let locks = locks.expect("because the kernel gave it back");
        let mut late = python(Stdio::null());
        let status = late.0.wait().expect("because it is our child");
        assert!(!status.success(), "{kind}: a second holder was let in");
        drop(locks);
    }
}

#[test]
fn sets_of_cores_exclude_each_other_where_they_overlap() {
    let host = Host::new();
    let held = host
        .take("a", &[cores("0-1")], 0)
        .expect("because nobody has them");
    assert_eq!(held.user_only(), []);
    for user in ["a", "b"] {
        for overlapping in ["1", "1-2", "0-3", "0"] {
            let error = refused(host.take(user, &[cores(overlapping)], 0));
            assert!(error.to_string().starts_with("cpu:"), "{error}");
        }
        drop(
            host.take(user, &[cores("2-3")], 0)
                .expect("because others have none of these"),
        );
    }
    drop(held);
    // What was taken before a refusal is given back with it.
    let third = host
        .take("a", &[cores("2")], 0)
        .expect("because nobody has it");
    let error = refused(host.take("b", &[cores("0-2")], 0));
    assert!(
        error
            .to_string()
            .starts_with("cpu:2 is locked for all users by "),
        "{error}"
    );
    drop(
        host.take("b", &[cores("0-1")], 0)
            .expect("because the refusal gave them back"),
    );
    drop(third);
}

#[test]
fn a_part_of_a_card_is_locked_with_its_card() {
    let host = Host::new();
    let whole = host.card(0);
    let parts = [part(&whole, "MIG-1"), part(&whole, "MIG-2")];
    let held = host
        .take("a", &parts[..1], 0)
        .expect("because nobody has it");
    for other in [&whole, &parts[0], &parts[1]] {
        for user in ["a", "b"] {
            let error = refused(host.take(user, std::slice::from_ref(other), 0));
            assert!(
                error.to_string().starts_with("nvidia:GPU-0 is locked "),
                "{error}"
            );
        }
    }
    drop(held);
    drop(
        host.take("b", &[parts[1].clone(), whole, parts[0].clone()], 0)
            .expect("because all are ours"),
    );
}

#[test]
fn a_lock_is_waited_for_no_longer_than_told_and_had_when_it_is_given_back() {
    let host = Host::new();
    let devices = [host.card(0)];
    let held = host.take("a", &devices, 0).expect("because nobody has it");
    for user in ["a", "b"] {
        let begun = std::time::Instant::now();
        refused(host.take(user, &devices, SECOND_NS / 5));
        let waited = begun.elapsed().as_secs_f64();
        assert!((0.2..60.0).contains(&waited), "{waited}");
    }
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| host.take("b", &devices, 60 * SECOND_NS));
        // It waits for sysfs once its own user's lock has its note.
        wait_for(&true, || {
            let locks = std::fs::read_dir(host.state("b").join("locks"));
            locks.is_ok_and(|mut files| {
                files.any(|file| file.is_ok_and(|file| file.metadata().is_ok_and(|m| m.len() > 0)))
            })
        });
        drop(held);
        let had = waiting.join().expect("because it does not panic");
        had.expect("because the lock was given back");
    });
}

#[test]
fn a_device_without_a_file_in_sysfs_is_locked_for_its_user_and_says_so() {
    let host = Host::new();
    let plain = card(Vendor::Nvidia, 0, Some("GPU-0"));
    let mut gone = host.card(1);
    gone.sysfs = Some(host.sys().join("absent"));
    let held = host
        .take("a", &[plain.clone(), gone.clone()], 0)
        .expect("because nobody has them");
    let told: Vec<(String, String)> = held
        .user_only()
        .iter()
        .map(|one| (one.device.to_string(), one.why.clone()))
        .collect();
    let path = host.sys().join("absent/uevent");
    assert_eq!(
        told,
        [
            (
                "nvidia:GPU-0".to_owned(),
                "it has no file in sysfs".to_owned()
            ),
            (
                "nvidia:GPU-1".to_owned(),
                format!(
                    "open {}: No such file or directory (os error 2)",
                    path.display()
                )
            ),
        ]
    );
    refused(host.take("a", &[plain], 0));
    drop(held);
}

#[test]
fn a_folder_of_locks_that_others_can_enter_is_refused_by_its_mode() {
    let host = Host::new();
    let devices = [host.card(0)];
    drop(host.take("a", &devices, 0).expect("because nobody has it"));
    let folder = host.state("a").join("locks");
    let mode = |mode| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode));
    mode(0o755).expect("because the folder is ours");
    assert_eq!(
        refused(host.take("a", &devices, 0)).to_string(),
        format!("{} has mode 0755, expected 0700", folder.display())
    );
    mode(0o700).expect("because the folder is ours");
    drop(
        host.take("a", &devices, 0)
            .expect("because the folder is private again"),
    );
    std::fs::remove_dir_all(&folder).expect("because the folder is ours");
    let elsewhere = host.folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).expect("because the folder is ours");
    std::os::unix::fs::symlink(&elsewhere, &folder).expect("because the folder is ours");
    let error = refused(host.take("a", &devices, 0));
    assert!(
        error.to_string().contains(&folder.display().to_string()),
        "{error}"
    );
    let error = refused(take(Path::new("state"), &host.sys(), &devices, 0));
    assert!(error.to_string().contains("state"), "{error}");
}

/// The files that these locks are on: a kernel without them would leave the machine's lock out.
#[test]
fn the_files_of_cores_can_be_locked_on_this_kernel() {
    let path = "/sys/devices/system/cpu/cpu0/uevent";
    let Ok(first) = File::open(path) else {
        println!("NOT EXERCISED: this host has no {path}");
        return;
    };
    // Shared, so that no test that starts a worker on this core is disturbed for longer than this.
    let had = rustix::fs::flock(&first, rustix::fs::FlockOperation::NonBlockingLockShared);
    // Such a test may have it at this moment.
    assert!(
        matches!(had, Ok(()) | Err(rustix::io::Errno::WOULDBLOCK)),
        "{had:?}"
    );
}
