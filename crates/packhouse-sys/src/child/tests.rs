use super::*;
use crate::clock::{Clock as _, RealClock};
use std::ffi::OsStr;

const SECOND_NS: u64 = 1_000_000_000;
const MEMORY: Keep = Keep::Memory { max_bytes: 1 << 20 };

fn shell(script: &str, timeout_ns: u64, stdout: Keep, stderr: Keep) -> Result<Ended, StartError> {
    let arguments = ["-c", script].map(OsString::from);
    run(&order(&arguments, timeout_ns), stdout, stderr)
}

fn order(arguments: &[OsString], timeout_ns: u64) -> Order<'_> {
    Order {
        program: Path::new("/bin/sh"),
        arguments,
        environment: &[],
        folder: Path::new("/"),
        timeout_ns,
    }
}

#[test]
fn output_and_code_come_back_and_nothing_is_inherited() {
    let script = "echo out; echo err >&2; pwd; /usr/bin/env | grep -v '^_=\\|^PWD=\\|^SHLVL='; \
                  ls /proc/self/fd | wc -l; exit 7";
    let ended = shell(script, 10 * SECOND_NS, MEMORY, MEMORY).expect("because sh runs");
    assert_eq!(ended.exit, Exit::Exited(7));
    // Three streams and the folder that ls lists.
    let stdout = String::from_utf8_lossy(&ended.stdout).replace(' ', "");
    assert_eq!(stdout, "out\n/\n4\n");
    assert_eq!(ended.stderr, b"err\n");
    assert!(!ended.was_cut);
}

#[test]
fn the_whole_group_is_killed_when_time_is_over_and_when_the_leader_ends() {
    let script = "sleep 300 & echo $!; exec sleep 300";
    let ended = shell(script, SECOND_NS / 5, MEMORY, Keep::Nothing).expect("because sh runs");
    assert_eq!(ended.exit, Exit::TimedOut);
    assert_gone(&ended.stdout);
    // The straggler holds the pipe, and is not waited for.
    let ended = shell("sleep 300 & echo $!", 60 * SECOND_NS, MEMORY, MEMORY).expect("as above");
    assert_eq!(ended.exit, Exit::Exited(0));
    assert!(ended.elapsed_ns < 30 * SECOND_NS);
    assert_gone(&ended.stdout);
}

/// Waits until the process whose number was printed is dead.
fn assert_gone(printed: &[u8]) {
    let pid = String::from_utf8_lossy(printed).trim().to_owned();
    let end_ns = RealClock.steady_ns() + 10 * SECOND_NS;
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        if stat.is_empty() || stat.contains(") Z ") {
            return;
        }
        assert!(RealClock.steady_ns() < end_ns, "{pid} lives: {stat}");
        std::thread::yield_now();
    }
}

#[test]
fn a_process_that_left_the_group_is_not_waited_for() {
    let script = "setsid sleep 20 & echo $!; exit 3";
    let ended = shell(script, 15 * SECOND_NS, MEMORY, MEMORY).expect("because sh runs");
    assert_eq!(ended.exit, Exit::Exited(3));
    assert!(ended.elapsed_ns < 10 * SECOND_NS);
    let pid = String::from_utf8_lossy(&ended.stdout).trim().parse().ok();
    let pid = pid.and_then(rustix::process::Pid::from_raw);
    let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
}

/// A kernel that was unfrozen ran as a daemon: in a session of its own, and no child of anybody.
#[test]
fn a_daemon_stays_a_child_of_the_program_that_started_it() {
    let script = "(setsid sleep 300 </dev/null >/dev/null & echo $!); read x";
    let arguments = ["-c", script].map(OsString::from);
    let order = order(&arguments, 60 * SECOND_NS);
    let mut talk = Talk::start(&order, Keep::Nothing).expect("because sh runs");
    let end_ns = RealClock.steady_ns() + 20 * SECOND_NS;
    let mut said = Vec::new();
    while !said.ends_with(b"\n") {
        let mut piece = [0; 64];
        let length = talk.read(&mut piece, end_ns).expect("because it says it");
        assert!(length > 0, "it ended");
        said.extend_from_slice(&piece[..length]);
    }
    let daemon = String::from_utf8_lossy(&said).trim().to_owned();
    let parent = format!(") S {} ", talk.pid());
    let is_child = || {
        let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat"));
        stat.is_ok_and(|stat| stat.contains(&parent))
    };
    while !is_child() && RealClock.steady_ns() < end_ns {
        std::thread::yield_now();
    }
    let is_child = is_child();
    let pid = daemon.parse().ok().and_then(rustix::process::Pid::from_raw);
    let _ = pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
    assert!(is_child, "{daemon}");
    assert!(own_children().contains(&talk.pid()));
    let pid = talk.pid();
    drop(talk);
    assert!(!own_children().contains(&pid));
}

#[test]
fn signals_are_told_from_codes_and_from_our_own_kill() {
    let ended = shell("kill -TERM $$", 10 * SECOND_NS, MEMORY, MEMORY).expect("because sh runs");
    assert_eq!(ended.exit, Exit::Signalled(15));
    let ended = shell("kill -KILL $$", 10 * SECOND_NS, MEMORY, MEMORY).expect("because sh runs");
    assert_eq!(ended.exit, Exit::Signalled(9));
}

#[test]
fn output_is_bounded_in_memory_and_in_files_and_the_child_never_waits() {
    let script = "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2; echo done >&2";
    let folder = tempfile::tempdir().expect("because there is room");
    let path = folder.path().join("log");
    let file = OwnedFd::from(std::fs::File::create(&path).expect("because the folder is ours"));
    let max_bytes = 1_000_001;
    let (memory, kept) = (Keep::Memory { max_bytes }, Keep::File { file, max_bytes });
    let ended = shell(script, 30 * SECOND_NS, memory, kept).expect("because sh runs");
    assert_eq!(ended.exit, Exit::Exited(0));
    assert_eq!(ended.stdout, vec![0; 1_000_001]);
    assert_eq!(ended.stderr, b"");
    assert!(ended.was_cut);
    assert_eq!(
        std::fs::read(path).expect("because it was written"),
        ended.stdout
    );
    let exact = Keep::Memory { max_bytes: 3 };
    let ended = shell("echo ab", 30 * SECOND_NS, exact, MEMORY).expect("because sh runs");
    assert_eq!(
        (ended.stdout.as_slice(), ended.was_cut),
        (&b"ab\n"[..], false)
    );
}

#[test]
fn a_log_that_cannot_be_written_is_an_error_and_the_child_is_killed() {
    let file = OwnedFd::from(
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap(),
    );
    let kept = Keep::File { file, max_bytes: 9 };
    let error = shell("echo x; sleep 300", 60 * SECOND_NS, kept, MEMORY).expect_err("no room");
    assert_eq!(
        error.to_string(),
        "output of /bin/sh could not be kept: errno 28"
    );
}

#[test]
fn what_cannot_start_says_which_part_is_wrong() {
    let start = |program: &str, folder: &str| {
        let order = Order {
            program: Path::new(program),
            folder: Path::new(folder),
            ..order(&[], SECOND_NS)
        };
        run(&order, MEMORY, MEMORY)
            .expect_err("because it can't start")
            .to_string()
    };
    assert_eq!(start("sh", "/"), "sh: not an absolute path");
    assert_eq!(start("/bin/sh", "/none"), "working folder /none: errno 2");
    let missing = start("/none/sh", "/");
    assert!(missing.starts_with("/none/sh: No such file"), "{missing}");
    let refused = start("/etc/passwd", "/");
    assert!(
        refused.starts_with("/etc/passwd: Permission denied"),
        "{refused}"
    );
}

#[test]
fn a_program_is_found_as_a_shell_finds_it() {
    let find =
        |name: &str, search: &str| find(OsStr::new(name), OsStr::new(search), Path::new("/bin"));
    assert_eq!(find("sh", "/none:bin::/bin"), Ok(PathBuf::from("/bin/sh")));
    assert_eq!(find("./sh", ""), Ok(PathBuf::from("/bin/./sh")));
    let missing = find("sh", "/none:bin").expect_err("because relative folders don't count");
    assert_eq!(
        missing.to_string(),
        "sh: no such program in the search path"
    );
    let folder = find("/etc", "")
        .expect_err("because it is a folder")
        .to_string();
    assert_eq!(folder, "/etc: not a file that may be executed");
    assert!(find("", "/bin").is_err());
    assert!(find("etc", "/").is_err());
}

#[test]
fn a_talk_goes_both_ways_and_its_reads_have_deadlines() {
    let arguments = ["-c", "echo log >&2; cat; echo left; exit 5"].map(OsString::from);
    let mut talk =
        Talk::start(&order(&arguments, 60 * SECOND_NS), MEMORY).expect("because sh runs");
    let soon = || RealClock.steady_ns() + 20 * SECOND_NS;
    talk.write_all(b"hello", soon()).expect("because cat reads");
    let mut target = [0; 64];
    assert_eq!(talk.read(&mut target, soon()), Ok(5));
    assert_eq!(&target[..5], b"hello");
    let now = RealClock.steady_ns();
    assert_eq!(talk.read(&mut target, now), Err(TalkError::TimedOut));
    let ended = talk.end(20 * SECOND_NS).expect("because it is followed");
    assert_eq!(ended.exit, Exit::Exited(5));
    assert_eq!(
        (ended.stdout, ended.stderr),
        (b"left\n".to_vec(), b"log\n".to_vec())
    );
}

#[test]
fn a_dead_or_deaf_program_is_no_reason_to_wait() {
    let soon = || RealClock.steady_ns() + 20 * SECOND_NS;
    let start = |script: &str, timeout_ns| {
        let arguments = ["-c", script].map(OsString::from);
        Talk::start(&order(&arguments, timeout_ns), Keep::Nothing).expect("because sh runs")
    };
    // Its descendant holds both pipes.
    let mut talk = start("sleep 300 <&0 & echo x", 60 * SECOND_NS);
    let mut target = [0; 8];
    assert_eq!(talk.read(&mut target, soon()), Ok(2));
    assert_eq!(talk.read(&mut target, soon()), Ok(0));
    assert_eq!(
        talk.write_all(&[0; 1 << 20], soon()),
        Err(TalkError::Closed)
    );
    // It never reads: the pipe fills, and its own time is over first.
    let mut talk = start("exec sleep 300", SECOND_NS / 5);
    assert_eq!(
        talk.write_all(&[0; 1 << 20], soon()),
        Err(TalkError::TimedOut)
    );
    assert_eq!(
        talk.end(SECOND_NS / 5).expect("because it is killed").exit,
        Exit::TimedOut
    );
    // It closed its stdin and lives.
    let mut talk = start("exec <&-; echo x; exec sleep 300", 60 * SECOND_NS);
    assert_eq!(talk.read(&mut target, soon()), Ok(2));
    assert_eq!(talk.write_all(b"x", soon()), Err(TalkError::Closed));
}
