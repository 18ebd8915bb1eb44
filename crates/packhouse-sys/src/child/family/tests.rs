use super::*;
use crate::child::{Keep, Order, Talk, TalkError, take_in_orphans};
use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SECOND_NS: u64 = 1_000_000_000;

/// Held by each test here: where one process runs them all, children of one are another's orphans.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    take_in_orphans().unwrap();
    alone
}

/// A program that says a number for each process that it leaves, and then waits.
fn started(program: &str, script: &str) -> (Talk, Vec<i32>) {
    let arguments = ["-c", script].map(OsString::from);
    let path = (OsString::from("PATH"), OsString::from("/usr/bin:/bin"));
    let order = Order {
        program: Path::new(program),
        arguments: &arguments,
        environment: &[path],
        folder: Path::new("/"),
        timeout_ns: u64::MAX,
    };
    let mut talk = Talk::start(&order, Keep::Nothing).expect("because it is there");
    let end_ns = RealClock.steady_ns() + 60 * SECOND_NS;
    let mut said = Vec::new();
    while !said.ends_with(b"\n") {
        let mut piece = [0; 256];
        let length = talk.read(&mut piece, end_ns);
        let length = length.unwrap_or_else(|error: TalkError| panic!("{error}: {said:?}"));
        assert!(length > 0, "it ended: {said:?}");
        said.extend_from_slice(&piece[..length]);
    }
    let said = String::from_utf8_lossy(&said);
    let pids = said.split_whitespace().map(|pid| pid.parse().unwrap());
    (talk, pids.collect())
}

fn is_there(pid: i32) -> bool {
    look(pid).is_some()
}

/// Names of those that were ended, in order.
fn names(ending: &Ending) -> Vec<&str> {
    let mut names: Vec<&str> = ending.ended.iter().map(|one| one.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// Twice forked, in a session of its own, without environment, and stopped: nothing of a program
/// is left of it but its descent.
const DAEMONS: &str = r"
import os, signal, sys, time
def leave(stops):
    r, w = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork() != 0:
            os._exit(0)
        os.write(w, b'%d ' % os.getpid())
        for fd in (0, 1, 2):
            os.close(fd)
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        os.execve('/bin/sleep', ['frozen' if stops else 'sleep', '300'], {})
    return os.read(r, 64).decode()
told = leave(False) + leave(True)
sys.stdout.write(told + '\n')
sys.stdout.flush()
time.sleep(300)
";

#[test]
fn a_daemon_and_a_stopped_one_are_ended_when_their_program_is_over() {
    let _alone = alone();
    let family = Family::begin().unwrap();
    let (program, daemons) = started("/usr/bin/python3", DAEMONS);
    assert_eq!(daemons.len(), 2);
    // While it lives they are its own.
    let ending = family.end(60 * SECOND_NS).unwrap();
    assert_eq!(ending, Ending::default());
    assert!(daemons.iter().all(|pid| is_there(*pid)), "{daemons:?}");
    drop(program);
    let ending = family.end(60 * SECOND_NS).unwrap();
    assert_eq!(ending.ended_count, 2, "{ending:?}");
    assert!(names(&ending).contains(&"python3"), "{ending:?}");
    assert_eq!((&ending.left[..], &ending.untold[..]), (&[][..], &[][..]));
    assert!(!daemons.iter().any(|pid| is_there(*pid)), "{daemons:?}");
    assert_eq!(family.end(0).unwrap(), Ending::default());
}

/// Each of them forks its next, and ends: whoever is looked at is gone when the signal comes.
fn hops(leaves: &str) -> String {
    format!(
        "import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    os.write(w, b'0\\n')
    for _ in range(60000):
        if os.fork() != 0:
            os._exit(0)
        {leaves}
os.write(1, os.read(r, 2))
time.sleep(300)
"
    )
}

#[test]
fn one_that_forks_again_and_again_is_ended_with_its_group() {
    let _alone = alone();
    let family = Family::begin().unwrap();
    let (program, _) = started("/usr/bin/python3", &hops("pass"));
    drop(program);
    let ending = family.end(60 * SECOND_NS).unwrap();
    assert_eq!((&ending.left[..], &ending.untold[..]), (&[][..], &[][..]));
    // It, and those that it had forked before it was met, and they: few, as a group dies at once.
    assert!(matches!(ending.ended_count, 1..=4), "{ending:?}");
    RealClock.sleep_ns(SECOND_NS / 20);
    assert_eq!(all_children().unwrap(), [0; 0], "{ending:?}");
}

#[test]
fn one_that_leaves_its_group_whenever_it_forks_is_ended_too() {
    let _alone = alone();
    let family = Family::begin().unwrap();
    let (program, _) = started("/usr/bin/python3", &hops("os.setsid()"));
    drop(program);
    let ending = family.end(60 * SECOND_NS).unwrap();
    assert_eq!((&ending.left[..], &ending.untold[..]), (&[][..], &[][..]));
    RealClock.sleep_ns(SECOND_NS / 20);
    assert_eq!(all_children().unwrap(), [0; 0], "{ending:?}");
}

#[test]
fn who_is_in_the_program_s_group_dies_with_it_and_outlived_nobody() {
    let _alone = alone();
    let family = Family::begin().unwrap();
    let (program, pids) = started("/bin/sh", "sleep 300 & sleep 300 & echo $!; wait");
    drop(program);
    let ending = family.end(60 * SECOND_NS).unwrap();
    assert_eq!(ending, Ending::default());
    assert!(!is_there(pids[0]));
    assert_eq!(all_children().unwrap(), [0; 0]);
}

/// One whose program undid what keeps it there: it is met alive, and would have died with it.
const SLIPS: &str = r"
import ctypes, os, time
ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)
r, w = os.pipe()
if os.fork() == 0:
    if os.fork() == 0:
        os.write(w, b'%d\n' % os.getpid())
        time.sleep(300)
    os._exit(0)
told = os.read(r, 20)
os.wait()
os.write(1, told)
time.sleep(300)
";

#[test]
fn who_is_in_a_program_s_group_and_met_alive_is_ended_and_not_told() {
    let _alone = alone();
    let family = Family::begin().unwrap();
    let (program, pids) = started("/usr/bin/python3", SLIPS);
    assert!(is_there(pids[0]));
    assert_eq!(family.end(60 * SECOND_NS).unwrap(), Ending::default());
    assert!(!is_there(pids[0]) && is_there(i32::try_from(program.pid()).unwrap()));
}

/// A child that another part of this process has, or the program that became this process.
#[test]
fn strangers_are_left_alone_and_so_is_who_may_be_theirs() {
    let _alone = alone();
    let mut stranger = std::process::Command::new("/bin/sleep");
    let mut stranger = stranger.arg("300").spawn().unwrap();
    let family = Family::begin().unwrap();
    let script = "setsid sleep 300 </dev/null >/dev/null & echo $!; read x";
    let (program, daemon) = started("/bin/sh", script);
    let is_apart = || look(daemon[0]).is_some_and(|seen| seen.session == daemon[0]);
    while !is_apart() {
        std::thread::yield_now();
    }
    drop(program);
    let ending = family.end(SECOND_NS / 20).unwrap();
    let told: Vec<u32> = ending.untold.iter().map(|one| one.pid).collect();
    assert_eq!(told, [daemon[0].unsigned_abs()], "{ending:?}");
    assert_eq!(ending.ended_count, 0);
    assert!(is_there(daemon[0]) && stranger.try_wait().unwrap().is_none());
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    // Nobody else is there any more: the next family may end it, once it is none of a stranger's.
    assert_eq!(nobody_s().end(60 * SECOND_NS).unwrap().ended_count, 1);
}

/// A family that every child belongs to which was not started as one.
fn nobody_s() -> Family {
    Family {
        strangers: BTreeSet::new(),
        is_mixed: false,
    }
}

/// A stranger that ended between two looks at it left another one.
#[test]
fn a_stranger_that_forks_again_and_again_is_met_by_every_family() {
    let _alone = alone();
    let script = "import os, time
os.setsid()
for _ in range(150):
    if os.fork() != 0:
        os._exit(0)
    time.sleep(0.001)
time.sleep(300)
";
    let mut stranger = std::process::Command::new("/usr/bin/python3");
    let mut stranger = stranger.args(["-c", script]).spawn().unwrap();
    let leader = i32::try_from(stranger.id()).unwrap();
    while look(leader).is_none_or(|seen| seen.session != leader) {
        std::thread::yield_now();
    }
    let mixed: Vec<bool> = (0..40).map(|_| Family::begin().unwrap().is_mixed).collect();
    kill_process_group(number(leader).unwrap(), Signal::KILL).unwrap();
    stranger.wait().unwrap();
    // Its dead would be met by the tests after this one, where one process runs them all.
    let ending = nobody_s().end(60 * SECOND_NS).unwrap();
    assert_eq!((&ending.left[..], &ending.untold[..]), (&[][..], &[][..]));
    assert!(mixed.iter().all(|is| *is), "{mixed:?}");
}

/// It may be a stranger's, but ends by itself.
#[test]
fn who_may_not_be_signalled_has_its_time_to_end() {
    let _alone = alone();
    let family = Family {
        strangers: BTreeSet::new(),
        is_mixed: true,
    };
    let script = "setsid sleep 0.3 </dev/null >/dev/null & echo $!; read x";
    let (program, daemon) = started("/bin/sh", script);
    while look(daemon[0]).is_none_or(|seen| seen.session != daemon[0]) {
        std::thread::yield_now();
    }
    drop(program);
    assert_eq!(family.end(60 * SECOND_NS).unwrap(), Ending::default());
    assert!(!is_there(daemon[0]));
}

/// Numbers come round: a group that has one of an old group of ours is not ours.
#[test]
fn who_began_after_a_group_of_ours_was_over_is_not_of_it() {
    let _alone = alone();
    let (program, _) = started("/bin/sh", "echo $$; read x");
    let group = i32::try_from(program.pid()).unwrap();
    let begun = look(group).unwrap().start;
    assert!(is_group_of_ours(group, u64::MAX));
    drop(program);
    assert!(is_group_of_ours(group, begun));
    RealClock.sleep_ns(SECOND_NS / 20);
    let (later, pids) = started("/bin/sh", "echo $$; read x");
    let later_start = look(pids[0]).unwrap().start;
    assert!(
        !is_group_of_ours(group, later_start),
        "{begun} {later_start}"
    );
    drop(later);
}

/// As with a command that a container's runtime begins: session and group are of outside, and have
/// the number 0 here. Where that is so already, the tests that are named here show it.
#[test]
fn who_was_begun_outside_of_its_process_namespace_ends_what_is_left_too() {
    const NAMES: [&str; 2] = [
        "a_daemon_and_a_stopped_one_are_ended_when_their_program_is_over",
        "one_that_forks_again_and_again_is_ended_with_its_group",
    ];
    if look(number_of(getpid())).unwrap().session == 0 {
        return;
    }
    let mut under = std::process::Command::new("unshare");
    under.args(["--pid", "--fork", "--mount-proc", "--kill-child"]);
    if !rustix::process::geteuid().is_root() {
        under.args(["--user", "--map-root-user"]);
    }
    // The first process of a namespace, which may be given anybody's orphans, is another one.
    under.args(["sh", "-c", "\"$0\" \"$@\"; exit $?"]);
    under.arg(std::env::current_exe().unwrap()).arg("--exact");
    under.args(NAMES.map(|name| format!("child::family::tests::{name}")));
    let output = under.output().unwrap();
    let texts = [output.stdout, output.stderr];
    let [said, errors] = texts.map(|text| String::from_utf8_lossy(&text).into_owned());
    if errors.starts_with("unshare: ") {
        println!("NOT EXERCISED: no process namespace of its own for this user");
        return;
    }
    assert!(said.contains("2 passed; 0 failed"), "{said}{errors}");
}

#[test]
fn process_files_of_another_namespace_are_believed_in_nothing() {
    let own = std::process::id();
    assert!(are_own_numbers(Path::new(&own.to_string())).is_ok());
    assert!(are_own_numbers(Path::new(&(own + 1).to_string())).is_err());
}

#[test]
fn a_name_that_a_process_gave_itself_changes_no_field() {
    let stat = b"42 (a) S 1 (b)) S 7 8 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 1234 5 6\n";
    let seen = parsed(stat).unwrap();
    let fields = (seen.parent, seen.group, seen.session, seen.start);
    assert_eq!(
        (seen.name.as_str(), fields),
        ("a) S 1 (b)", (7, 8, 9, 1234))
    );
    assert_eq!(parsed(b""), None);
    assert_eq!(parsed(b"1 )x("), None);
}
