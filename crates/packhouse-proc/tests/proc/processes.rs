//! What is read of real processes, and who gets a signal: ended, hidden, changed and reused ones.

use crate::started::{Started, again_under, process, procfs, role, wait_for, wait_for_program};
use packhouse_proc::cores::CpuSet;
use packhouse_proc::group::{Doubt, Ownership, members};
use packhouse_proc::identity::{ProcessKey, RUN_ID_VARIABLE, RunId};
use packhouse_proc::pidfd::{Delivery, PidFd, PidFdError, Signal};
use packhouse_proc::procfs::{Presence, Procfs, ProcfsError, Unreadable};
use std::ffi::OsStr;
use std::io::{BufRead as _, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn this_process_is_what_the_kernel_says_it_is() {
    let procfs = procfs();
    let own = process(std::process::id());
    assert_eq!(procfs.own_key(), Ok(own.key));
    assert_eq!(procfs.presence(&own.key), Ok(Presence::Alive));
    assert!(own.key.start_ticks <= procfs.now_ticks().expect("because it can be read"));
    assert_eq!(own.uid, rustix::process::geteuid().as_raw());
    let parent = rustix::process::getppid().expect("because tests are started by one");
    assert_eq!(own.parent, parent.as_raw_pid().unsigned_abs());
    let program = own.executable().expect("because it is ours");
    let there = std::env::current_exe().expect("because tests have one");
    assert_eq!(program.path, there);
    let command = own.command().expect("because it is ours");
    assert!(command.iter().eq(&std::env::args_os().collect::<Vec<_>>()));
    let mapped = own.mapped_files().expect("because it is ours");
    assert!(mapped.iter().any(|file| file.path == there));
    assert!(own.cgroup().is_ok());
}

#[test]
fn a_child_is_no_older_than_the_clock_before_its_start() {
    let before = procfs().now_ticks().expect("because it can be read");
    let child = Started::waiting();
    assert!(child.key().start_ticks >= before);
    assert!(child.key().start_ticks <= procfs().now_ticks().expect("because it can be read"));
}

#[test]
fn a_process_that_ended_is_gone_before_and_after_it_is_waited_for() {
    let mut child = Started::new(Command::new("cat").stdin(Stdio::piped()));
    let key = child.key();
    let held = PidFd::open(&procfs(), &key).expect("because it runs");
    assert_eq!(held.has_ended(), Ok(false));
    drop(child.0.stdin.take());
    wait_for(&Ok(true), || held.has_ended());
    // A zombie: the kernel would still take a signal for it.
    assert_eq!(procfs().has_its_pid(&key), Ok(true));
    assert_eq!(procfs().key_of(key.pid), Ok(None));
    assert_eq!(procfs().presence(&key), Ok(Presence::Gone));
    assert_eq!(held.send(Signal::Kill), Ok(Delivery::Gone));
    let opened = PidFd::open(&procfs(), &key).map(|held| held.key());
    assert_eq!(opened, Err(PidFdError::Gone { key }));
    child.0.wait().expect("because it is our child");
    assert_eq!(procfs().has_its_pid(&key), Ok(false));
    assert_eq!(procfs().presence(&key), Ok(Presence::Gone));
    assert_eq!(held.has_ended(), Ok(true));
    assert_eq!(held.send(Signal::Kill), Ok(Delivery::Gone));
    let opened = PidFd::open(&procfs(), &key).map(|held| held.key());
    assert_eq!(opened, Err(PidFdError::Gone { key }));
}

#[test]
fn a_signal_reaches_whom_the_key_names_and_nobody_else() {
    for (signal, number) in [
        (Signal::Interrupt, 2),
        (Signal::Terminate, 15),
        (Signal::Kill, 9),
    ] {
        let mut child = Started::obeying();
        wait_for_program(child.0.id(), "sleep");
        let key = child.key();
        // Another process had this pid, as far as its key can tell.
        for other in [
            ProcessKey {
                start_ticks: key.start_ticks - 1,
                ..key
            },
            ProcessKey {
                start_ticks: key.start_ticks + 1,
                ..key
            },
        ] {
            let opened = PidFd::open(&procfs(), &other).map(|held| held.key());
            let reused = PidFdError::Reused {
                key: other,
                found: key,
            };
            assert_eq!(opened, Err(reused));
        }
        let elsewhere = ProcessKey {
            pid_namespace: 1,
            ..key
        };
        let opened = PidFd::open(&procfs(), &elsewhere).map(|held| held.key());
        assert_eq!(opened, Err(PidFdError::OtherNamespace { key: elsewhere }));
        assert_eq!(child.0.try_wait().expect("because it is our child"), None);
        let held = PidFd::open(&procfs(), &key).expect("because it runs");
        assert_eq!(held.send(signal), Ok(Delivery::Sent));
        let status = child.0.wait().expect("because it is our child");
        let ended_by = std::os::unix::process::ExitStatusExt::signal(&status);
        assert_eq!(ended_by, Some(number), "{signal}");
    }
}

#[test]
fn a_name_of_parentheses_and_newlines_hides_nothing() {
    let folder = tempfile::tempdir().expect("because a folder can be made");
    let program = folder.path().join("a) Z 1 1\n((b");
    std::fs::copy("/bin/sleep", &program).expect("because it is there");
    let child = Started::new(Command::new(&program).arg("60"));
    wait_for_program(child.0.id(), "a) Z 1 1\n((b");
    let found = child.process();
    assert_eq!(found.parent, std::process::id());
    assert!(matches!(found.state, 'S' | 'R' | 'D'), "{}", found.state);
    assert_eq!(found.executable().map(|program| program.path), Ok(program));
}

#[test]
fn an_environment_and_a_command_come_back_byte_by_byte() {
    let odd = OsStr::from_bytes(b"\xff=\n\x01 ");
    let long = "x".repeat(100_000);
    let child = Started::new(
        Command::new("sleep")
            .args(["60", "0", "0"])
            .arg0_of("odd name")
            .env_clear()
            .env("ODD", odd)
            .env("LONG", &long)
            .env("EMPTY", ""),
    );
    wait_for_program(child.0.id(), "sleep");
    let found = child.process();
    let mut environment = found.environment().expect("because it is ours");
    environment.sort();
    let expected = [
        ("EMPTY".into(), "".into()),
        ("LONG".into(), long.into()),
        ("ODD".into(), odd.to_owned()),
    ];
    assert_eq!(environment, expected);
    let command = found.command().expect("because it is ours");
    assert_eq!(command, ["odd name", "60", "0", "0"]);
}

/// `arg0` in a chain of calls.
trait Arg0 {
    fn arg0_of(&mut self, name: &str) -> &mut Self;
}

impl Arg0 for Command {
    fn arg0_of(&mut self, name: &str) -> &mut Self {
        std::os::unix::process::CommandExt::arg0(self, name)
    }
}

#[test]
fn no_environment_is_ever_empty_while_programs_are_replaced() {
    // A program that becomes itself again, and counts that, for as long as the test looks.
    let again = "exec sh -c \"$0\" \"$0\" $(($1 + 1))";
    let child = Started::new(
        Command::new("sh")
            .args(["-c", again, again, "0"])
            .env(RUN_ID_VARIABLE, "x"),
    );
    let found = child.process();
    let count = || {
        let command = found.command().ok()?;
        command.last()?.to_str()?.parse::<u32>().ok()
    };
    let mut looks = 0;
    while looks < 400 || count().is_none_or(|count| count < 400) {
        match found.environment() {
            Ok(environment) => {
                // Before its first exec it is a copy of this test, without the variable.
                let named = environment.iter().any(|(name, _)| name == RUN_ID_VARIABLE);
                assert!(
                    named || looks == 0,
                    "an environment without it: {environment:?}"
                );
                looks += u32::from(named);
            }
            Err(error) => assert_eq!(error, Unreadable::NoProgram),
        }
    }
}

#[test]
fn a_program_that_was_deleted_is_read_from_the_process() {
    let folder = tempfile::tempdir().expect("because a folder can be made");
    let program = folder.path().join("server");
    std::fs::copy("/bin/sleep", &program).expect("because it is there");
    let child = Started::new(Command::new(&program).arg("60"));
    wait_for_program(child.0.id(), "server");
    let found = child.process();
    let mapped = found.mapped_files().expect("because it is ours");
    let mapped = mapped.iter().find(|file| file.path == program);
    let mapped = mapped.expect("because it maps its program");
    assert!(found.open_mapped(mapped).is_ok());
    // Another file lies at its path by now.
    std::fs::remove_file(&program).expect("because the folder is ours");
    std::fs::write(&program, "something else").expect("because the folder is ours");
    let there = found.executable().expect("because it is ours");
    assert_eq!(
        (there.path.as_path(), there.deleted),
        (program.as_path(), true)
    );
    let mut bytes = Vec::new();
    let mut file = found.open_executable().expect("because it is ours");
    file.read_to_end(&mut bytes).expect("because it is a file");
    assert_eq!(
        bytes,
        std::fs::read("/bin/sleep").expect("because it is there")
    );
    match found.open_mapped(mapped) {
        // The administrator is given it through the mapping.
        Ok(mut file) => {
            let mut mapped_bytes = Vec::new();
            file.read_to_end(&mut mapped_bytes)
                .expect("because it is a file");
            assert_eq!(mapped_bytes, bytes);
        }
        Err(error) => assert_eq!(error, Unreadable::Replaced { path: program }),
    }
}

#[test]
fn cores_are_those_of_the_thread_that_started_it() {
    let online = CpuSet::online(Path::new("/sys")).expect("because every Linux has it");
    let allowed = process(std::process::id()).affinity;
    assert!(allowed.is_subset(&online));
    let one = CpuSet::of(allowed.iter().last()).expect("because it is a core");
    let bound = one.clone();
    let child = std::thread::spawn(move || {
        bound.bind_this_thread().expect("because it is allowed");
        Started::waiting()
    });
    let child = child.join().expect("because it does not panic");
    assert_eq!(child.process().affinity, one);
    assert_eq!(process(std::process::id()).affinity, allowed);
    let absent = CpuSet::parse("1023").expect("because it is a core");
    let error = absent
        .bind_this_thread()
        .expect_err("because no host here has it");
    assert_eq!(
        error.to_string(),
        "cores 1023: Invalid argument (os error 22)"
    );
    let beyond = CpuSet::parse("1024").expect("because it is a core");
    let error = beyond
        .bind_this_thread()
        .expect_err("because the mask ends there");
    assert_eq!(
        error.to_string(),
        "core 1024 does not fit the kernel's mask of 1024 cores"
    );
}

#[test]
fn private_memory_is_what_a_process_filled() {
    let filled = python("import sys\nblock = bytearray(b'x') * (64 << 20)\nprint(1, flush=True)");
    let bare = python("print(1, flush=True)");
    let bytes = |child: &Started| {
        let bytes = child.process().private_bytes();
        bytes.expect("because it is ours")
    };
    let more = bytes(&filled) - bytes(&bare);
    assert!((60 << 20..80 << 20).contains(&more), "{more}");
}

#[test]
fn a_process_whose_first_thread_ended_still_lives() {
    let script = "
import ctypes, os, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print(1, flush=True)
exit_of_thread = {'x86_64': 60, 'aarch64': 93}[os.uname().machine]
ctypes.CDLL(None).syscall(exit_of_thread, 0)";
    let child = python(script);
    let key = child.key();
    wait_for(&'Z', || child.process().state);
    assert_eq!(procfs().presence(&key), Ok(Presence::Alive));
    let found = child.process();
    // Its own files are empty by now; those of its other thread are not.
    let environment = found.environment().expect("because it is ours");
    assert!(
        environment
            .iter()
            .any(|(name, value)| name == "MARK" && value == "7")
    );
    assert!(found.executable().is_ok());
    assert!(found.open_files().is_ok_and(|files| !files.is_empty()));
    assert!(found.mapped_files().is_ok());
    let held = PidFd::open(&procfs(), &key).expect("because it runs");
    assert_eq!(held.has_ended(), Ok(false));
    assert_eq!(held.send(Signal::Kill), Ok(Delivery::Sent));
    wait_for(&Ok(true), || held.has_ended());
    assert_eq!(procfs().presence(&key), Ok(Presence::Gone));
}

/// Starts a script with `MARK` in its environment and waits for its first line; it goes on for a
/// minute.
fn python(script: &str) -> Started {
    let script = format!("{script}\nimport time\ntime.sleep(60)");
    let mut child = Started::new(
        Command::new("python3")
            .args(["-c", &script])
            .env("MARK", "7")
            .stdin(Stdio::null())
            .stdout(Stdio::piped()),
    );
    let stdout = child.0.stdout.take().expect("because it is piped");
    let mut line = String::new();
    std::io::BufReader::new(stdout)
        .read_line(&mut line)
        .expect("because a pipe can be read");
    assert_eq!(line, "1\n");
    child
}

/// In a pid namespace of its own a test chooses the next pid, so that a stranger gets that of a
/// worker which ended.
#[test]
fn a_stranger_with_the_pid_of_a_worker_is_neither_taken_nor_signalled() {
    const NAME: &str =
        "processes::a_stranger_with_the_pid_of_a_worker_is_neither_taken_nor_signalled";
    if role().is_some() {
        return be_the_stranger();
    }
    let mut under = vec!["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"];
    if !rustix::process::geteuid().is_root() {
        under.extend(["--user", "--map-root-user"]);
    }
    if let Some(seen) = again_under(NAME, "reuse", &under) {
        assert_eq!(seen, "a stranger lives");
    }
}

fn be_the_stranger() {
    let procfs = procfs();
    let worker = Started::waiting();
    let key = worker.key();
    worker.end();
    // Within one tick of the clock the two would have one start time.
    let later = || procfs.now_ticks().expect("because it can be read") > key.start_ticks;
    wait_for(&true, later);
    let last = (key.pid - 1).to_string();
    std::fs::write("/proc/sys/kernel/ns_last_pid", last).expect("because we are root here");
    let mut stranger = Started::new(Command::new("setsid").args(["sleep", "60"]));
    assert_eq!(stranger.0.id(), key.pid, "the pid is given again");
    let session = i32::try_from(key.pid).expect("because pids are small");
    wait_for(&session, || stranger.process().session);
    let found = stranger.key();
    assert_eq!(procfs.presence(&key), Ok(Presence::Reused { found }));
    assert_eq!(procfs.has_its_pid(&key), Ok(false));
    let opened = PidFd::open(&procfs, &key).map(|held| held.key());
    assert_eq!(opened, Err(PidFdError::Reused { key, found }));
    let ownership = Ownership {
        boot: procfs.boot_id(),
        pid_namespace: procfs.pid_namespace(),
        main: Some(key),
        keeper: None,
        run: RunId::new([9; 16]),
        session: Some(session),
        cgroup: None,
        started_after_ticks: key.start_ticks,
    };
    let found = members(&procfs, &ownership).expect("because it can be read");
    assert_eq!(found.ours, []);
    let doubts: Vec<(u32, Doubt)> = (found.unproven.iter())
        .map(|one| (one.key.pid, one.why))
        .collect();
    assert_eq!(doubts, [(key.pid, Doubt::MainPid)]);
    assert_eq!(
        stranger.0.try_wait().expect("because it is our child"),
        None
    );
    println!("SEEN: a stranger lives");
}

/// A mount of the outer namespace numbers processes otherwise than our system calls do.
#[test]
fn process_files_of_another_pid_namespace_are_refused() {
    const NAME: &str = "processes::process_files_of_another_pid_namespace_are_refused";
    if role().is_some() {
        let error = Procfs::new(Path::new("/proc")).expect_err("because it is the outer one");
        assert!(
            matches!(error, ProcfsError::OtherMount { own: 1, .. }),
            "{error}"
        );
        println!("SEEN: {error}");
        return;
    }
    let mut under = vec!["unshare", "--pid", "--fork", "--kill-child"];
    if !rustix::process::geteuid().is_root() {
        under.extend(["--user", "--map-root-user"]);
    }
    if let Some(seen) = again_under(NAME, "outer", &under) {
        let begins = "/proc: of another pid namespace: we are pid 1, there ";
        assert!(seen.starts_with(begins), "{seen}");
    }
}

/// On hosts that hide other users' processes, absent from `/proc` is not gone.
#[test]
fn a_hidden_process_is_not_gone() {
    const NAME: &str = "processes::a_hidden_process_is_not_gone";
    if let Some(pid) = role() {
        let pid: u32 = pid.parse().expect("because it is a pid");
        let hidden = ProcfsError::Hidden { pid };
        assert_eq!(procfs().key_of(pid), Err(hidden.clone()));
        assert_eq!(procfs().process(pid), Err(hidden.clone()));
        let own = procfs().own_key().expect("because our own is shown");
        let key = ProcessKey { pid, ..own };
        assert_eq!(procfs().presence(&key), Err(hidden));
        assert_eq!(procfs().key_of(4_194_303), Ok(None));
        println!("SEEN: hidden");
        return;
    }
    for mode in ["1", "2"] {
        let mount = format!("mount -t proc -o hidepid={mode} proc /proc && exec \"$@\"");
        let child = Started::waiting();
        let pid = child.0.id().to_string();
        let under = [
            "unshare",
            "--mount",
            "sh",
            "-c",
            &mount,
            "sh",
            "setpriv",
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
        ];
        if let Some(seen) = again_under(NAME, &pid, &under) {
            assert_eq!(seen, "hidden");
        }
    }
}

/// Most of another user's process can't be read, and none of it is empty for that.
#[test]
fn what_may_not_be_read_of_another_user_is_no_empty_answer() {
    const NAME: &str = "processes::what_may_not_be_read_of_another_user_is_no_empty_answer";
    if let Some(pid) = role() {
        let pid: u32 = pid.parse().expect("because it is a pid");
        let found = process(pid);
        assert_eq!(found.environment(), Err(Unreadable::Permission));
        assert_eq!(found.executable(), Err(Unreadable::Permission));
        assert_eq!(found.open_files(), Err(Unreadable::Permission));
        assert_eq!(found.mapped_files(), Err(Unreadable::Permission));
        assert_eq!(found.private_bytes(), Err(Unreadable::Permission));
        assert!(found.command().is_ok_and(|command| command[0] == "sleep"));
        let held = PidFd::open(&procfs(), &found.key).expect("because anyone may hold it");
        let key = found.key;
        assert_eq!(held.send(Signal::Kill), Err(PidFdError::Permission { key }));
        println!("SEEN: refused");
        return;
    }
    let mut child = Started::waiting();
    wait_for_program(child.0.id(), "sleep");
    let pid = child.0.id().to_string();
    let under = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    if let Some(seen) = again_under(NAME, &pid, &under) {
        assert_eq!(seen, "refused");
    }
    assert_eq!(child.0.try_wait().expect("because it is our child"), None);
}
