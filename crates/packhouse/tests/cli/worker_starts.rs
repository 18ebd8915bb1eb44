//! Starts of workers from outside: what runs, what is recorded, what is refused, and what is said
//! of an engine that does not become ready.

use crate::worker_world::{PATIENCE, Part, World, kill, lives, reserve_port, worker_words};
use packhouse_base::digest::Digest;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// What a command said, for assertions and messages.
struct Said {
    code: Option<i32>,
    out: String,
    errors: String,
}

impl Said {
    fn of(output: &Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

fn start(world: &World) -> Said {
    Said::of(&world.worker(&["start", "--execute"]))
}

/// Starts and must become ready; answers the engine's pid.
fn ready(world: &World) -> u32 {
    let said = start(world);
    assert_eq!(
        said.code,
        Some(0),
        "{}{}{}",
        said.out,
        said.errors,
        world.files()
    );
    assert!(said.out.starts_with("w0: ready after "), "{}", said.out);
    let [pid] = world.servers()[..] else {
        panic!("{:?}\n{}", world.running(), world.files());
    };
    assert!(said.out.contains(&format!(": pid {pid}, ")), "{}", said.out);
    pid
}

/// Replaces one text of the fleet file, which must be there.
fn edit_fleet(world: &World, old: &str, new: &str) {
    let path = world.path("fleet.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(old), "{old} in {text}");
    fs::write(path, text.replace(old, new)).unwrap();
}

fn proc_file(pid: u32, name: &str) -> String {
    let bytes = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[test]
fn a_start_records_exactly_what_runs() {
    let world = World::new(0, &[]);
    let pid = ready(&world);
    let order = world.record("order.json").expect("because it was ordered");
    let launched = world.record("launched.json").expect("because it began");
    let identity = world.record("identity.json").expect("because it is ready");
    assert_eq!(launched["worker"]["pid"], pid);
    assert_eq!(launched["worker"], identity["worker"]);
    assert_eq!(launched["session"], pid);
    let stat = proc_file(pid, "stat");
    let session = stat.rsplit(')').next().unwrap().split(' ').nth(4);
    assert_eq!(session, Some(pid.to_string().as_str()), "{stat}");
    assert_eq!(identity["command"], order["command"]);

    let program = fs::read(format!("/proc/{pid}/exe")).unwrap();
    let digest = |bytes: &[u8]| Digest::of(bytes).to_string();
    assert_eq!(identity["executable"]["sha256"], digest(&program));
    let libraries = identity["libraries"].as_array().unwrap();
    let mapped = proc_file(pid, "maps");
    assert!(!libraries.is_empty(), "{identity}");
    for library in libraries {
        let path = library["path"].as_str().unwrap();
        assert!(mapped.contains(path), "{path} in {mapped}");
        assert_eq!(
            library["sha256"],
            digest(&fs::read(path).unwrap()),
            "{path}"
        );
    }
    let has_libc = libraries
        .iter()
        .any(|library| library["path"].as_str().unwrap().contains("libc.so"));
    assert!(has_libc, "{identity}");

    // The engine has its own session, its cores, its environment and nothing of whoever started it.
    let environment = proc_file(pid, "environ");
    let run = order["run"].as_str().unwrap();
    assert!(
        environment.contains(&format!("PACKHOUSE_WORKER_RUN={run}\0")),
        "{environment}"
    );
    assert!(!environment.contains("HOME="), "{environment}");
    assert!(proc_file(pid, "status").contains("Cpus_allowed_list:\t0\n"));
    let stdin = fs::read_link(format!("/proc/{pid}/fd/0")).unwrap();
    assert_eq!(stdin, Path::new("/dev/null"));
    for fd in ["1", "2"] {
        let log = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
        assert!(log.ends_with("000001/server.log"), "{log:?}");
    }
    let sockets = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let sockets = sockets.filter_map(|fd| fs::read_link(fd.path()).ok());
    let sockets = sockets.filter(|target| target.to_string_lossy().starts_with("socket:"));
    assert_eq!(sockets.count(), 1, "only the one that it listens on");
    world.done(&["stop", "--execute"], "the end");
    world.must_be_over("after a stop");
}

#[test]
fn a_dry_run_leaves_nothing() {
    let world = World::new(0, &[]);
    let said = world.done(&["start"], "a dry run");
    assert!(said.starts_with("w0: would start on cpu:0\n"), "{said}");
    assert!(said.contains("worker_server.py"), "{said}");
    assert!(
        said.ends_with("Nothing was started: add --execute\n"),
        "{said}"
    );
    assert!(!world.path("home/.local").exists());
    world.must_be_over("a dry run starts nothing");
}

#[test]
fn a_worker_that_runs_is_not_started_again() {
    let world = World::new(0, &[]);
    let pid = ready(&world);
    for words in [&["start", "--execute"][..], &["start"][..]] {
        let said = Said::of(&world.worker(words));
        assert_eq!(said.code, Some(3), "{}", said.out);
        let refusal = format!("w0: refused: it runs already: pid {pid} ");
        assert!(said.out.starts_with(&refusal), "{}", said.out);
        let next = "`packhouse worker status` says how it is";
        assert!(said.out.contains(next), "{}", said.out);
    }
    assert_eq!(world.servers(), [pid]);
    assert_eq!(world.starts(), 1);
}

#[test]
fn many_starts_at_once_start_one_engine() {
    let world = World::new(0, &["--ready-after", "0.3"]);
    let spawn = || {
        let mut command = world
            .sandbox()
            .command(&worker_words(&["start", "--execute"]));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("because it was built")
    };
    let children: Vec<_> = (0..6).map(|_| spawn()).collect();
    let mut codes = Vec::new();
    for child in children {
        let said = Said::of(&child.wait_with_output().unwrap());
        let is_known = said.code == Some(0) || said.out.contains("it runs already");
        assert!(is_known, "{:?} {}{}", said.code, said.out, said.errors);
        codes.push(said.code);
    }
    // Those that came while it was waited for waited with the first.
    assert!(codes.contains(&Some(0)), "{codes:?}");
    assert_eq!(world.starts(), 1, "{}", world.files());
    assert_eq!(world.servers().len(), 1);
}

#[test]
fn a_start_that_waits_keeps_no_stop_out() {
    let world = World::new(0, &["--ready-after", "600"]);
    let spawn = || {
        let mut command = world
            .sandbox()
            .command(&worker_words(&["start", "--execute"]));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("because it was built")
    };
    let first = spawn();
    let is_waiting = || world.status("a start waits")["reason"] == "loading";
    world.wait_for("the wait", is_waiting);
    // Another start waits with it.
    let second = spawn();
    let lock = fs::File::open(world.path("home/.local/state/packhouse/fleets/home/w0/lock"));
    let inode = std::os::unix::fs::MetadataExt::ino(&lock.unwrap().metadata().unwrap());
    world.wait_for("both signs", || {
        let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
        let needle = format!(":{inode} ");
        locks.lines().filter(|line| line.contains(&needle)).count() == 2
    });
    world.wait_for_starts(1);
    world.done(
        &["stop", "--execute", "--lock-timeout", "1"],
        "while it is waited for",
    );
    for child in [first, second] {
        let said = Said::of(&child.wait_with_output().unwrap());
        let out = "w0: not ready: it was stopped while it was waited for\n  it wrote nothing\n";
        assert!(said.out.starts_with(out), "{}{}", said.out, said.errors);
        assert_eq!(said.code, Some(1));
    }
    assert_eq!(world.starts(), 1);
    assert!(world.record("identity.json").is_none());
    world.must_be_over("it was stopped");
}

#[test]
fn an_engine_that_leaves_the_foreground_is_told_to_stay() {
    let world = World::new(0, &[]);
    let child = world.path("child");
    world.write_fleet(
        0,
        &["--child", child.to_str().unwrap(), "--die", "0"],
        "plain",
    );
    let said = start(&world);
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.errors);
    let begin = "w0: not ready: it ended before it was ready: exit code 0; it left pid ";
    let end = ") behind, which its keeper ends: an engine must stay in the foreground\n";
    assert!(
        said.out.starts_with(begin) && said.out.contains(end),
        "{}",
        said.out
    );
    world.wait_for("the end of all", || world.running().is_empty());
}

#[test]
fn an_early_end_shows_its_last_lines() {
    let world = World::new(
        0,
        &["--say", "first", "--say", "no such model", "--die", "7"],
    );
    let said = start(&world);
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.errors);
    assert_eq!(
        said.out,
        "w0: not ready: it ended before it was ready: exit code 7\n  | first\n  | no such model\n"
    );
    let exit = world.record("exit.json").expect("because it ended");
    assert_eq!(exit["outcome"]["code"], 7);
    assert!(world.record("identity.json").is_none());
    // Restarted, it has a log of its own, and the first stays.
    edit_fleet(&world, "\"no such model\"", "\"another\\u001b[2J\"");
    edit_fleet(&world, "\"--die\",\"7\"", "\"--kill-self\",\"KILL\"");
    let said = start(&world);
    let end =
        "w0: not ready: it ended before it was ready: signal 9\n  | first\n  | another\\u{1b}[2J\n";
    assert_eq!((said.code, said.out.as_str()), (Some(1), end));
    let old = world.done(&["logs", "--run", "1"], "the first log");
    assert_eq!(old, "first\nno such model\n");
    let last = world.done(&["logs", "--lines", "1"], "the newest log");
    assert_eq!(last, "another\\u{1b}[2J\n");
    let said = Said::of(&world.worker(&["logs", "--run", "9"]));
    assert_eq!(said.code, Some(2));
    assert!(
        said.errors.contains("kept are runs 1, 2"),
        "{}",
        said.errors
    );
    // A start does not wait for the keeper, which has nothing more to do.
    world.wait_for("the keeper's end", || world.running().is_empty());
    world.must_be_over("it ended by itself");
}

#[test]
fn an_engine_that_cannot_be_executed_says_why() {
    let world = World::new(0, &[]);
    let script = world.path("engine");
    fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&script, mode).unwrap();
    let text = fs::read_to_string(world.path("fleet.toml")).unwrap();
    let command = text
        .lines()
        .find(|line| line.starts_with("command = "))
        .unwrap();
    let script = script.to_str().unwrap();
    let own = format!("command = [{script:?}, \"{{host}}\", \"{{port}}\"]");
    edit_fleet(&world, command, &own);
    let said = start(&world);
    assert!(matches!(said.code, Some(1 | 3)), "{}", said.out);
    assert!(
        said.out.contains("the engine never ran") || said.out.contains("never ran: "),
        "{}",
        said.out
    );
    assert!(said.out.contains("cannot execute"), "{}", said.out);
    assert!(said.out.contains("No such file"), "{}", said.out);
    let exit = world.record("exit.json").expect("because it is recorded");
    let why = exit["outcome"]["not_started"].as_str().unwrap_or_default();
    assert!(why.contains("No such file"), "{exit}");
    world.wait_for("the keeper's end", || world.running().is_empty());
    world.must_be_over("nothing was executed");
}

#[test]
fn a_taken_port_is_refused_on_any_interface_and_its_owner_named() {
    let world = World::new(0, &[]);
    let stranger = TcpListener::bind((Ipv4Addr::UNSPECIFIED, world.port())).unwrap();
    let said = start(&world);
    assert_eq!(said.code, Some(3), "{}", said.out);
    let (port, own) = (world.port(), std::process::id());
    let refusal = format!("w0: refused: port {port} is taken: pid {own} (");
    assert!(said.out.starts_with(&refusal), "{}", said.out);
    assert!(
        said.out.contains(&format!("listens on 0.0.0.0:{port}")),
        "{}",
        said.out
    );
    assert!(world.record("order.json").is_none());
    drop(stranger);
    ready(&world);
}

#[test]
fn an_answer_of_a_stranger_is_no_readiness() {
    let world = World::new(0, &["--listen-after", "600"]);
    let mut command = world
        .sandbox()
        .command(&worker_words(&["start", "--execute"]));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("because it was built");
    world.wait_for_starts(1);
    // A worker's port is free until it listens, and here somebody else is faster.
    let stranger = TcpListener::bind((Ipv4Addr::LOCALHOST, world.port())).unwrap();
    std::thread::spawn(move || {
        for connection in stranger.incoming().flatten() {
            let mut connection = connection;
            let _ = connection.read(&mut [0; 1024]);
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}";
            let _ = connection.write_all(answer);
        }
    });
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(1), "{}", said.out);
    let own = std::process::id();
    let foreign = format!("is held by pid {own}, which is not this worker's");
    assert!(said.out.contains(&foreign), "{}", said.out);
    assert!(world.record("identity.json").is_none());
    assert_eq!(world.servers().len(), 1, "it is left as it is");
}

#[test]
fn a_worker_that_is_not_ready_in_time_is_left_and_waited_for_again() {
    let world = World::new(0, &["--ready-when", "go"]);
    edit_fleet(&world, "ready_timeout_s = 30", "ready_timeout_s = 1");
    let go = world.path("go");
    edit_fleet(&world, "\"go\"", &format!("{go:?}"));
    let too_late = "w0: not ready: it was not ready within 1 s and is left running: ";
    let mut said = start(&world);
    let begun = Instant::now();
    // It may need more than a second until it listens.
    while said
        .out
        .contains("left running: nobody listens on its port")
    {
        assert!(begun.elapsed() < PATIENCE, "{}", said.out);
        assert!(said.out.starts_with(too_late), "{}", said.out);
        assert_eq!(said.code, Some(1), "{}", said.out);
        said = start(&world);
    }
    assert_eq!(said.code, Some(1), "{}", said.out);
    let asked = format!("{too_late}GET http://127.0.0.1:");
    assert!(said.out.starts_with(&asked), "{}", said.out);
    let next = "/health: loads (health 503); `packhouse worker start --execute` waits on, \
                `packhouse worker stop --execute` ends it\n";
    assert!(said.out.contains(next), "{}", said.out);
    assert!(said.out.contains("it wrote nothing"), "{}", said.out);
    let pid = world.servers();
    assert_eq!(world.status("while it loads")["state"], "starting");
    fs::write(go, "").unwrap();
    // The bound is of the run's own order, so each further start waits a second.
    let begun = Instant::now();
    said = start(&world);
    while said.code != Some(0) {
        assert!(begun.elapsed() < PATIENCE, "{}", said.out);
        said = start(&world);
    }
    assert!(
        said.out.contains("note: run 1 was launched before"),
        "{}",
        said.out
    );
    assert_eq!(world.servers(), pid);
    assert_eq!(world.starts(), 1);
    assert_eq!(world.status("at last")["state"], "ready");
}

#[test]
fn an_interrupted_start_says_what_goes_on() {
    let world = World::new(0, &["--ready-after", "600"]);
    let mut command = world
        .sandbox()
        .command(&worker_words(&["start", "--execute"]));
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("because it was built");
    let is_waited_for = || world.status("a start waits")["reason"] == "loading";
    world.wait_for("the wait", is_waited_for);
    let url = format!("w0: GET http://127.0.0.1:{}/health: loads", world.port());
    world.wait_for("the engine's answer", || {
        world.done(&["status"], "a start waits").contains(&url)
    });
    // The wait takes signals some moments after the launch.
    let caught = || {
        let status = proc_file(child.id(), "status");
        let line = status.lines().find(|line| line.starts_with("SigCgt:"));
        let mask = line.and_then(|line| u64::from_str_radix(line[7..].trim(), 16).ok());
        mask.is_some_and(|mask| mask & 0b10 != 0)
    };
    world.wait_for("a handler", caught);
    kill(child.id(), "-INT");
    let said = Said::of(&child.wait_with_output().unwrap());
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.errors);
    let pid = world.servers()[0];
    let begin = format!(
        "w0: not ready: the wait was ended, and it goes on loading: pid {pid}; `packhouse worker \
         status` says how far it is, `packhouse worker stop --execute` ends it\n"
    );
    assert!(said.out.starts_with(&begin), "{}", said.out);
    let said = world.done(&["status"], "nobody waits");
    let next = "w0: to wait for it: packhouse worker start --execute\n";
    assert!(said.contains(next) && said.contains(&url), "{said}");
}

#[test]
fn an_engine_on_another_port_is_found_there() {
    let world = World::new(0, &["--say", "{port}"]);
    let (_reservation, other) = reserve_port();
    let own = format!("\"--port\",\"{other}\"");
    edit_fleet(&world, "\"--port\",\"{port}\"", &own);
    edit_fleet(&world, "ready_timeout_s = 30", "ready_timeout_s = 1");
    let said = start(&world);
    assert_eq!(said.code, Some(1), "{}{}", said.out, said.errors);
    let found = format!("w0: it listens on 127.0.0.1:{other}, which is not where its order");
    world.wait_for("the other port", || {
        world.done(&["status"], "it is lost").contains(&found)
    });
    let status = world.status("it is lost");
    assert_eq!(status["listens_elsewhere"][0], format!("127.0.0.1:{other}"));
}

#[test]
fn a_killed_controller_is_followed_by_the_next_start() {
    let world = World::new(0, &["--ready-when", "go"]);
    let go = world.path("go");
    edit_fleet(&world, "\"go\"", &format!("{go:?}"));
    let mut command = world
        .sandbox()
        .command(&worker_words(&["start", "--execute"]));
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().expect("because it was built");
    world.wait_for("a launch", || world.record("launched.json").is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(world.record("identity.json").is_none());
    fs::write(go, "").unwrap();
    let said = start(&world);
    assert_eq!(said.code, Some(0), "{}", said.out);
    assert!(said.out.contains("run 1\n"), "{}", said.out);
    assert_eq!(world.starts(), 1);
    assert!(world.record("identity.json").is_some());
}

#[test]
fn an_engine_outlives_its_keeper_and_its_end_is_unseen() {
    let world = World::new(0, &[]);
    let pid = ready(&world);
    let keeper = |world: &World| {
        let running = world.running().into_iter();
        let mut keepers = running.filter(|running| running.part == Part::Keeper);
        keepers.next().map(|running| running.pid)
    };
    kill(keeper(&world).expect("because it keeps"), "-KILL");
    world.wait_for("the keeper's end", || keeper(&world).is_none());
    assert!(lives(pid));
    assert_eq!(world.status("without a keeper")["state"], "ready");
    let gone =
        "w0: its keeper is gone: its log is not bounded, and how it ends will not be known\n";
    let said = world.done(&["status"], "without a keeper");
    assert!(said.contains(gone), "{said}");
    assert!(said.lines().all(|line| line.len() <= 100), "{said}");
    kill(pid, "-KILL");
    world.wait_for("the engine's end", || !lives(pid));
    let second = ready(&world);
    assert_ne!(second, pid);
    let first = world.path("home/.local/state/packhouse/fleets/home/w0/runs/000001/exit.json");
    let exit: Value = serde_json::from_str(&fs::read_to_string(first).unwrap()).unwrap();
    assert_eq!(exit["outcome"]["unseen"], true);
}

#[test]
fn what_an_engine_leaves_behind_is_ended_and_named() {
    for leaves in ["--child", "--bare-child"] {
        let world = World::new(0, &[]);
        let child = world.path("child");
        let path = child.to_str().unwrap();
        world.write_fleet(0, &[leaves, path], "plain");
        let pid = ready(&world);
        world.wait_for("a child", || {
            fs::read_to_string(&child).is_ok_and(|text| text.ends_with('\n'))
        });
        let left: u32 = fs::read_to_string(&child).unwrap().trim().parse().unwrap();
        assert!(lives(left), "{leaves}");
        kill(pid, "-INT");
        world.wait_for("the keeper's end", || {
            world.record("exit.json").is_some() && world.running().is_empty()
        });
        let exit = world.record("exit.json").unwrap();
        assert_eq!(exit["outcome"]["code"], 0, "{leaves}");
        assert_eq!(
            exit["left_behind"][0]["key"]["pid"], left,
            "{leaves}: {exit}"
        );
        assert_eq!(exit["left_behind"][0]["is_gone"], true, "{leaves}: {exit}");
        world.must_be_over(leaves);
    }
}

#[test]
fn what_nobody_ended_is_in_the_way_of_a_start_and_is_stopped() {
    let world = World::new(0, &[]);
    let child = world.path("child");
    world.write_fleet(0, &["--child", child.to_str().unwrap()], "plain");
    let pid = ready(&world);
    let text = || fs::read_to_string(&child).unwrap_or_default();
    world.wait_for("a child", || text().ends_with('\n'));
    let left: u32 = text().trim().parse().unwrap();
    let running = world.running();
    let keeper = running.iter().find(|running| running.part == Part::Keeper);
    let keeper = keeper.expect("because it keeps").pid;
    kill(keeper, "-KILL");
    world.wait_for("the keeper's end", || !lives(keeper));
    kill(pid, "-KILL");
    world.wait_for("the engine's end", || !lives(pid));
    for words in [&["start"][..], &["start", "--execute"][..]] {
        let said = Said::of(&world.worker(words));
        assert_eq!(said.code, Some(3), "{}", said.out);
        let refusal = format!("run 1 left processes behind: pid {left} (");
        assert!(said.out.contains(&refusal), "{}", said.out);
    }
    assert!(lives(left));
    world.done(&["stop", "--execute"], "what was left");
    assert!(!lives(left));
    let second = ready(&world);
    assert_ne!(second, pid);
}

#[test]
fn a_run_is_never_launched_twice() {
    let world = World::new(0, &[]);
    ready(&world);
    let run = world.path("home/.local/state/packhouse/fleets/home/w0/runs/000001");
    let run = run.to_str().unwrap();
    world.done(&["stop", "--execute"], "the first");
    let said = Said::of(&world.sandbox().command(&["keep", run]).output().unwrap());
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.errors);
    assert!(
        said.errors
            .contains("this run was launched or given up before"),
        "{}",
        said.errors
    );
    // Nor is one that was ordered before the host was started again.
    for record in ["launched.json", "exit.json", "identity.json"] {
        fs::remove_file(Path::new(run).join(record)).unwrap();
    }
    // Nor is one that was stopped, by what is left of its records.
    for record in ["released.json", "stop.json"] {
        let said = Said::of(&world.sandbox().command(&["keep", run]).output().unwrap());
        assert_eq!(said.code, Some(3), "{}{}", said.out, said.errors);
        let why = "this run was launched or given up before";
        assert!(said.errors.contains(why), "{}", said.errors);
        fs::remove_file(Path::new(run).join(record)).unwrap();
    }
    let order = Path::new(run).join("order.json");
    let text = fs::read_to_string(&order).unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let other = "00000000-0000-4000-8000-000000000000";
    fs::write(&order, text.replace(boot.trim(), other)).unwrap();
    let said = Said::of(&world.sandbox().command(&["keep", run]).output().unwrap());
    assert_eq!(said.code, Some(3), "{}{}", said.out, said.errors);
    assert!(
        said.errors.contains("ordered in an earlier boot"),
        "{}",
        said.errors
    );
    assert_eq!(world.starts(), 1);
    world.must_be_over("nothing was launched");
}

#[test]
fn a_keeper_that_is_asked_to_end_ends_its_engine() {
    let world = World::new(0, &["--ignore", "INT"]);
    edit_fleet(&world, "interrupt = 60", "interrupt = 1");
    ready(&world);
    let running = world.running();
    let keeper = running.iter().find(|running| running.part == Part::Keeper);
    kill(keeper.expect("because it keeps").pid, "-TERM");
    world.wait_for("the end of both", || world.running().is_empty());
    let exit = world
        .record("exit.json")
        .expect("because the keeper saw it");
    assert_eq!(exit["outcome"]["signal"], 15, "{exit}");
}

#[test]
fn no_gate_becomes_an_engine_without_leave() {
    let world = World::new(0, &[]);
    let mark = world.path("mark");
    let words = ["gate", "--", "touch", mark.to_str().unwrap()];
    // An input that ends, as a keeper's does that is killed, and one that says something else.
    for word in ["", "x"] {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        let mut command = world.sandbox().command(&words);
        command.stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().expect("because it was built");
        drop(command);
        let mut stands = [0];
        ours.read_exact(&mut stands).unwrap();
        assert_eq!(&stands, b"R");
        ours.write_all(word.as_bytes()).unwrap();
        ours.shutdown(Shutdown::Write).unwrap();
        let said = Said::of(&child.wait_with_output().unwrap());
        assert_eq!(said.code, Some(3), "{word:?}: {}", said.errors);
        let why = "the keeper ended before the engine was on record";
        assert!(said.errors.contains(why), "{word:?}: {}", said.errors);
        let mut told = String::new();
        ours.read_to_string(&mut told).unwrap();
        assert_eq!(told, why);
        assert!(!mark.exists(), "{word:?}");
    }
    // Nor where nobody keeps it.
    let said = Said::of(&world.sandbox().command(&words).output().unwrap());
    assert_eq!(said.code, Some(3), "{}", said.errors);
    assert!(!mark.exists());
}

#[test]
fn signals_that_a_start_ignores_are_not_ignored_by_the_engine() {
    let world = World::new(0, &[]);
    let words = worker_words(&["start", "--execute"]);
    let mut shell = world
        .sandbox()
        .shell("trap '' INT TERM HUP XFSZ; exec \"$0\" \"$@\"", &words);
    let said = Said::of(&shell.output().unwrap());
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.errors);
    let [pid] = world.servers()[..] else {
        panic!("{:?}", world.running());
    };
    let status = proc_file(pid, "status");
    let ignored = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:\t"));
    let ignored = u64::from_str_radix(ignored.unwrap(), 16).unwrap();
    // Python itself ignores SIGXFSZ.
    let trapped = [1, 2, 15]
        .into_iter()
        .fold(0, |bits, signal| bits | 1 << (signal - 1));
    assert_eq!(ignored & trapped, 0, "{ignored:x}");
    // Those that glibc keeps for itself, which it ignores in what it spawns.
    assert_eq!(ignored & (0b11 << 31), 0, "{ignored:x}");
}

#[test]
fn a_log_is_bounded_and_says_so() {
    let world = World::new(0, &["--say-bytes", "400000"]);
    let text = fs::read_to_string(world.path("fleet.toml")).unwrap();
    fs::write(
        world.path("fleet.toml"),
        text.replace("[engine]", "log_max_bytes = 65536\n[engine]"),
    )
    .unwrap();
    let pid = ready(&world);
    let log = || world.done(&["logs"], "a bounded log");
    // It may be bounded while the engine writes, and then once more.
    world.wait_for("the bound", || log().len() < 70_000);
    let kept = log();
    assert!(kept.starts_with("[the first "), "{} bytes", kept.len());
    assert!(kept.len() < 70_000, "{} bytes are kept", kept.len());
    let last = format!("line {:058}\n", 400_000 / 64 - 1);
    assert!(kept.ends_with(&last), "the newest line stays");
    kill(pid, "-INT");
    world.wait_for("the end", || world.record("exit.json").is_some());
    let exit = world.record("exit.json").unwrap();
    assert!(
        exit["log_freed_bytes"].as_u64().unwrap() > 330_000,
        "{exit}"
    );
}

#[test]
fn only_the_newest_runs_are_kept() {
    let world = World::new(0, &["--say", "x", "--die", "1"]);
    let text = fs::read_to_string(world.path("fleet.toml")).unwrap();
    let text = text.replace("[engine]", "keep_runs = 2\n[engine]");
    fs::write(world.path("fleet.toml"), text).unwrap();
    for _ in 0..4 {
        assert_eq!(start(&world).code, Some(1));
    }
    let said = Said::of(&world.worker(&["logs", "--run", "1"]));
    assert!(
        said.errors.contains("kept are runs 3, 4"),
        "{}",
        said.errors
    );
}

#[test]
fn a_worker_is_ready_on_any_address() {
    for (host, address) in [("::1", "[::1]"), ("0.0.0.0", "0.0.0.0"), ("::", "[::]")] {
        let world = World::new(0, &[]);
        edit_fleet(
            &world,
            "[common]\n",
            &format!("[common]\nhost = \"{host}\"\n"),
        );
        ready(&world);
        let identity = world.record("identity.json").unwrap();
        let expected = format!("{address}:{}", world.port());
        assert_eq!(identity["listener"]["address"], expected);
    }
}

#[test]
fn a_run_of_an_earlier_boot_is_over() {
    let world = World::new(0, &[]);
    let pid = ready(&world);
    world.done(&["stop", "--execute"], "the first");
    let run = world.path("home/.local/state/packhouse/fleets/home/w0/runs/000001");
    for record in ["exit.json", "stop.json", "released.json"] {
        fs::remove_file(run.join(record)).unwrap();
    }
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let other = "00000000-0000-4000-8000-000000000000";
    for record in ["order.json", "launched.json", "identity.json"] {
        let text = fs::read_to_string(run.join(record)).unwrap();
        fs::write(run.join(record), text.replace(boot.trim(), other)).unwrap();
    }
    assert_eq!(world.status("after a power cut")["state"], "stale");
    assert_ne!(ready(&world), pid);
    let exit = fs::read_to_string(run.join("exit.json")).unwrap();
    assert!(exit.contains("\"unseen\":true"), "{exit}");
}

/// A world whose worker has a model, which is no model.
fn with_model(content: &str) -> World {
    let world = World::new(0, &["--model", "{model}"]);
    let model = world.path("a.gguf");
    fs::write(&model, content).unwrap();
    let setting = format!("[common]\nmodel = {:?}\n", model.to_str().unwrap());
    edit_fleet(&world, "[common]\n", &setting);
    world
}

#[test]
fn a_copy_in_ram_is_preferred_and_needs_no_source() {
    let world = with_model("a model");
    let source = world.path("a.gguf");
    let digest = Digest::of(b"a model").to_string();
    ready(&world);
    let model = world.record("identity.json").unwrap()["model"].clone();
    let from_source = serde_json::json!({
        "bytes": 7, "path": source, "ram_copy": false, "sha256": digest, "source": source,
    });
    assert_eq!(model, from_source);
    world.done(&["stop", "--execute"], "without a copy");

    let words = ["model", "prepare", "a.gguf"];
    let said = Said::of(&world.sandbox().command(&words).output().unwrap());
    assert_eq!(said.code, Some(0), "{}", said.errors);
    fs::remove_file(&source).unwrap();
    let pid = ready(&world);
    let model = world.record("identity.json").unwrap()["model"].clone();
    assert_eq!(model["ram_copy"], true, "{model}");
    assert_eq!(model["sha256"], digest);
    assert_eq!(model["source"], source.to_str().unwrap());
    let path = model["path"].as_str().unwrap();
    assert!(Path::new(path).starts_with(world.path("stage")), "{model}");
    assert!(
        proc_file(pid, "cmdline").contains(&format!("\0{path}\0")),
        "{path}"
    );
    world.done(&["stop", "--execute"], "with a copy");

    edit_fleet(&world, "[common]\n", "[common]\nprefer_ram_copy = false\n");
    let said = start(&world);
    assert_eq!(said.code, Some(3), "{}", said.out);
    assert!(said.out.contains("a.gguf: No such file"), "{}", said.out);
}

#[test]
fn another_model_than_the_fleet_file_says_is_refused_with_both_digests() {
    let world = with_model("another model");
    let (wanted, found) = (Digest::of(b"a model"), Digest::of(b"another model"));
    let setting = format!("[common]\nmodel_sha256 = \"{wanted}\"\n");
    edit_fleet(&world, "[common]\n", &setting);
    let said = start(&world);
    assert_eq!(said.code, Some(3), "{}", said.out);
    let refusal = format!("a.gguf has SHA-256 {found}, and model_sha256 is {wanted}");
    assert!(said.out.contains(&refusal), "{}", said.out);
    assert!(world.record("order.json").is_none());
}

#[test]
fn a_worker_with_packs_starts_under_run_and_is_one_process() {
    let world = World::new(0, &[]);
    edit_fleet(&world, "packs = false", "packs = true");
    edit_fleet(
        &world,
        "[common]\n",
        "[common]\ninherit = [\"HOME\", \"PACKHOUSE_PLUGIN\"]\n",
    );
    let pid = ready(&world);
    let environment = proc_file(pid, "environ");
    let plugin = world.path("libggml-packhouse.so");
    let variable = format!("GGML_BACKEND_PATH={}\0", plugin.display());
    assert!(environment.contains(&variable), "{environment}");
    let launched = world.record("launched.json").unwrap();
    assert_eq!(
        launched["worker"]["pid"], pid,
        "the engine is what was launched"
    );
    world.done(&["stop", "--execute"], "with packs");
    world.must_be_over("with packs, its watcher too");
}

#[test]
fn two_fleets_do_not_share_a_core() {
    let world = World::new(0, &[]);
    ready(&world);
    let (_reservation, port) = reserve_port();
    edit_fleet(&world, "name = \"home\"", "name = \"other\"");
    edit_fleet(
        &world,
        &format!("port = {}", world.port()),
        &format!("port = {port}"),
    );
    let said = start(&world);
    assert_eq!(said.code, Some(3), "{}", said.out);
    assert!(said.out.contains("cpu:0 is held by "), "{}", said.out);
    assert!(said.out.contains("worker w0 of fleet home"), "{}", said.out);
    assert_eq!(world.starts(), 1);
}

/// As a launched engine that loads before it listens.
#[test]
fn two_fleets_do_not_share_a_port() {
    if std::thread::available_parallelism().is_ok_and(|cores| cores.get() < 2) {
        eprintln!("NOT EXERCISED: one core, which is in the way before the port is");
        return;
    }
    let world = World::new(0, &["--listen-after", "600"]);
    let mut command = world
        .sandbox()
        .command(&worker_words(&["start", "--execute"]));
    let command = command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut first = command.spawn().expect("because it was built");
    world.wait_for_starts(1);
    edit_fleet(&world, "name = \"home\"", "name = \"other\"");
    edit_fleet(&world, "device = \"cpu:0\"", "device = \"cpu:1\"");
    let said = start(&world);
    let port = world.port();
    let refusal = format!(
        "w0: refused: port {port} is taken: worker w0 of fleet home was started for \
         127.0.0.1:{port}\n"
    );
    assert!(
        said.out.starts_with(&refusal),
        "{}{}",
        said.out,
        said.errors
    );
    assert_eq!(said.code, Some(3));
    assert_eq!(world.starts(), 1);
    first.kill().unwrap();
    first.wait().unwrap();
}

#[test]
fn an_unknown_worker_and_a_missing_file_are_named() {
    let world = World::new(0, &[]);
    let said = Said::of(&world.worker(&["start", "--execute", "--worker", "w7"]));
    assert_eq!(said.code, Some(2), "{}", said.errors);
    assert!(
        said.errors.starts_with("error: no such worker: w7\n"),
        "{}",
        said.errors
    );
    assert!(said.errors.contains("w0"), "{}", said.errors);
    let mut command: Command =
        world
            .sandbox()
            .command(&["worker", "start", "--config", "none.toml"]);
    let said = Said::of(&command.output().unwrap());
    assert_eq!(said.code, Some(3), "{}", said.errors);
    assert!(said.errors.contains("none.toml"), "{}", said.errors);
}
