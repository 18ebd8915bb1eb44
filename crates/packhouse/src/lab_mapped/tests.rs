use super::*;
use packhouse_sys::child::{Keep, Order, Talk, find, take_in_orphans};
use packhouse_sys::clock::{Clock as _, RealClock};
use std::ffi::OsString;

const MAPS: &str = "\
55d0c0000000-55d0c0001000 r--p 00000000 fd:01 1311  /usr/bin/a b
55d0c0001000-55d0c0002000 r-xp 00001000 fd:01 1311       /usr/bin/a b
55d0c0003000-55d0c0004000 rw-p 00000000 00:00 0  [heap]
7f0000000000-7f0000001000 r-xp 00000000 fd:01 22 /lib/x.so.1
7f0000001000-7f0000002000 r-xp 00001000 fd:01 22 /lib/x.so.1
7f0000002000-7f0000003000 rwxp 00000000 00:00 0
7f0000003000-7f0000004000 r--s 00000000 fd:01 33 /models/m (deleted)
7f0000004000-7f0000005000 r-xp 00000000 1234:56789 44 /lib/new\\012line
7ffd00000000-7ffd00001000 r-xp 00000000 00:00 0  [vdso]
";

#[test]
fn files_that_are_mapped_executable_are_listed_once() {
    let files = executable(MAPS.as_bytes()).expect("because the kernel writes so");
    let file = |path: &str, device, inode| MappedFile {
        path: PathBuf::from(path),
        device,
        inode,
    };
    let expected = [
        // As makedev has it: low bits of both, then high ones.
        file("/lib/new\nline", 0x1000_5672_3489, 44),
        file("/lib/x.so.1", 0xfd01, 22),
        file("/usr/bin/a b", 0xfd01, 1311),
    ];
    assert_eq!(files, expected);
}

#[test]
fn a_process_and_all_that_it_started_are_one_family() {
    let seen = [
        stat(9, "9 (a) b) S 7 9 5", 30),
        stat(7, "7 (child) R 5 7 5", 30),
        stat(8, "8 (left alone) S 1 8 5", 30),
        stat(6, "6 (another) S 1 6 6", 30),
        stat(5, "5 (program) S 2 5 5", 20),
        stat(4, "4 (watcher of the next) S 2 4 4", 20),
        stat(3, "3 (there before) S 2 3 3", 19),
        stat(10, "10 (left) S 2 10 10", 20),
    ];
    assert_eq!(descending(5, &seen), [7, 8, 9]);
    assert_eq!(descending(6, &seen), Vec::<u32>::new());
    assert!(stat(7, "7 (gone) Z 5 7 5", 0).is_over);
    assert_eq!(parsed(7, b"7 child R 5 7 5 0"), None);
    let ours = BTreeSet::from([4, 5]);
    let strays = stray(5, 2, &seen, &ours).map(|one| one.pid);
    assert_eq!(strays.collect::<Vec<u32>>(), [10]);
}

fn stat(pid: u32, text: &str, start: u32) -> Process {
    let between = " 0".repeat(15);
    let text = format!("{text}{between} {start} 0 0");
    parsed(pid, text.as_bytes()).expect("because it is a stat")
}

/// A kernel that was not frozen ran in a mount namespace, under the frozen one's path.
#[test]
fn a_file_is_who_was_mapped_and_not_who_has_its_path() {
    let folder = tempfile::tempdir().expect("because there is room");
    let path = folder.path().join("kernel");
    std::fs::write(&path, b"frozen").expect("because the folder is ours");
    let stat = path.metadata().expect("because it is there");
    let mapped = MappedFile {
        path: path.clone(),
        device: stat.dev(),
        inode: stat.ino(),
    };
    mapped.open().expect("because it is the one");
    let other = folder.path().join("other");
    std::fs::write(&other, b"frozen").expect("because the folder is ours");
    std::fs::rename(&other, &path).expect("because both are there");
    let error = mapped.open().expect_err("because it is another one");
    assert!(
        error.ends_with("is another file than the one that is mapped"),
        "{error}"
    );
}

/// A thread as `/proc` has it, with what it sees: mounts and root.
#[test]
fn a_thread_with_mounts_or_a_root_of_its_own_is_refused() {
    let own = link(Path::new("/proc/self/ns/mnt")).expect("because it is ours");
    for (mounts, root, said) in [
        (own.as_path(), "/", ""),
        (Path::new("mnt:[1]"), "/", "it has mounts of its own"),
        (own.as_path(), "/proc", "it has a root of its own"),
    ] {
        let thread = tempfile::tempdir().expect("because there is room");
        let thread = thread.path();
        std::fs::create_dir(thread.join("ns")).expect("because the folder is ours");
        let linked = std::os::unix::fs::symlink(mounts, thread.join("ns/mnt"));
        let rooted = std::os::unix::fs::symlink(root, thread.join("root"));
        linked.and(rooted).expect("because the folder is ours");
        match sees_as_we_do(thread) {
            Ok(()) => assert_eq!(said, ""),
            Err(error) => assert!(!said.is_empty() && error.starts_with(said), "{error}"),
        }
    }
    let gone = sees_as_we_do(Path::new("/proc/self/none"));
    gone.expect_err("because it can't be told");
}

/// A daemon is looked at, and one that hides from that is refused: its parent is nobody else's.
#[test]
fn a_daemon_is_of_the_family_and_one_that_left_it_is_refused() {
    const DAEMON: &str = "\
import ctypes, os, sys
if sys.argv[1] == 'leaves':
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
ready, done = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.dup2(os.open('/dev/null', os.O_RDWR), 1)
        os.execv('/bin/sleep', ['sleep', '300'])
    os._exit(0)
os.wait()
print(flush=True)
sys.stdin.read()
";
    take_in_orphans().expect("because Linux has it");
    let stays = Started::python(&[DAEMON, "stays"]);
    let has_sleep = |file: &MappedFile| {
        let name = file.path.file_name().and_then(OsStr::to_str);
        name.is_some_and(|name| ["sleep", "busybox", "coreutils"].contains(&name))
    };
    // The daemon is one before it becomes that program.
    let found = soon(|| by_family(stays.pid()).is_ok_and(|all| all.iter().any(has_sleep)));
    let family = offspring(stays.pid());
    assert!(found, "{family:?}: {:?}", by_family(stays.pid()));
    drop(stays);
    let leaves = Started::python(&[DAEMON, "leaves"]);
    let error = by_family(leaves.pid()).expect_err("because it left");
    assert!(
        error.contains("left the program that started it"),
        "{error}"
    );
}

/// The first thread of a process ended, and the others went on: it looks like one that is over.
#[test]
fn a_process_without_its_first_thread_is_looked_at() {
    const HEADLESS: &str = "\
import ctypes, os, platform, sys, threading
def serve():
    print(flush=True)
    sys.stdin.read()
    os._exit(0)
threading.Thread(target=serve).start()
ctypes.CDLL(None).syscall(93 if platform.machine() == 'aarch64' else 60, 0)
";
    let program = Started::python(&[HEADLESS]);
    let pid = program.pid();
    assert!(soon(|| process(pid).is_some_and(|first| first.is_over)));
    assert!(!is_over(pid));
    let mapped = of(pid).expect("because a thread of it runs");
    let is_python = |file: &MappedFile| file.path.display().to_string().contains("python");
    assert!(mapped.iter().any(is_python), "{mapped:?}");
    drop(program);
    assert!(is_over(pid));
}

#[test]
fn what_can_not_be_told_is_an_error() {
    let gone = "7f00-7f01 r-xp 00000000 fd:01 44 /lib/gone.so (deleted)\n";
    for (maps, said) in [
        ("", "no program any more"),
        (
            gone,
            "/lib/gone.so (deleted) is mapped, and has no name any more",
        ),
        ("7f00-7f01\n", "unexpected line"),
        ("7f00-7f01 rx 0 0:0 0 /a\n", "unexpected line"),
        ("7f00-7f01 r-xp 0 0 0 /a\n", "unexpected line"),
        ("7f00-7f01 r-xp 0 0:0 x /a\n", "unexpected line"),
    ] {
        let error = executable(maps.as_bytes()).expect_err("because it can't be told");
        assert!(error.contains(said), "{error}");
    }
}

/// A program that said a line, with all that it started; dropped, all of it ends.
struct Started(Talk, Vec<u32>);

impl Started {
    fn python(words: &[&str]) -> Self {
        let search = OsStr::new("/usr/local/bin:/usr/bin:/bin");
        let program = find(OsStr::new("python3"), search, Path::new("/"));
        let program = program.expect("because there is Python");
        let arguments = ["-c"].iter().chain(words).map(OsString::from);
        let order = Order {
            program: &program,
            arguments: &arguments.collect::<Vec<_>>(),
            environment: &[],
            folder: Path::new("/"),
            timeout_ns: MINUTE_NS,
        };
        let talk = Talk::start(&order, Keep::Nothing).expect("because it was found");
        let mut started = Self(talk, Vec::new());
        let read = started.0.read(&mut [0], RealClock.steady_ns() + MINUTE_NS);
        let seen = entries(Path::new("/proc")).unwrap_or_default();
        let seen: Vec<Process> = seen
            .iter()
            .filter_map(|path| process(number(path)?))
            .collect();
        let ours = own_children();
        let strays = stray(started.pid(), std::process::id(), &seen, &ours);
        let strays: Vec<u32> = strays.map(|one| one.pid).collect();
        started.1 = [descending(started.pid(), &seen), strays].concat();
        assert_eq!(read, Ok(1), "it says a line");
        started
    }

    fn pid(&self) -> u32 {
        self.0.pid()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let pids = self.1.iter().map(u32::to_string);
        let mut kill = std::process::Command::new("kill");
        let _ = kill.arg("-KILL").args(pids).output();
        // Its group ends with it, when the talk is dropped.
    }
}

fn soon(holds: impl Fn() -> bool) -> bool {
    let end_ns = RealClock.steady_ns() + MINUTE_NS;
    while !holds() && RealClock.steady_ns() < end_ns {
        std::thread::yield_now();
    }
    holds()
}

const MINUTE_NS: u64 = 60_000_000_000;

/// A child that is ending has no memory any more and is no zombie yet: it runs nothing.
#[test]
fn only_what_has_no_memory_runs_no_code() {
    assert!(!has_no_memory(std::process::id()));
    // The kernel's own threads are such processes, where they can be seen.
    let name = std::fs::read_to_string("/proc/2/comm").unwrap_or_default();
    if name == "kthreadd\n" {
        assert!(has_no_memory(2));
    }
}
