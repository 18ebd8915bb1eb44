//! A fleet of one worker whose engine is a server of the tests, in a home of its own. Whatever runs
//! in it names the sandbox's folder in its arguments or environment, so all of it is found and
//! ended.

use crate::sandbox::Sandbox;
use crate::stop_at;
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long anything may take on a busy machine before the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A home with a fleet file in it. Dropping it ends everything that runs there.
pub(crate) struct World {
    sandbox: Sandbox,
    port: u16,
    /// Its lock keeps the port from other tests.
    _reservation: fs::File,
}

/// A process of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Running {
    /// Its pid, which was its at that moment.
    pub(crate) pid: u32,
    /// What it is.
    pub(crate) part: Part,
}

/// What a process of the world is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `packhouse keep`.
    Keeper,
    /// `packhouse gate`, before it becomes the engine.
    Gate,
    /// The engine.
    Server,
    /// Anything else, as what the engine left behind.
    Other,
}

impl World {
    /// A worker on a core, whose engine gets these words of `worker_server.py`.
    pub(crate) fn new(core: usize, words: &[&str]) -> Self {
        let world = Self::empty();
        world.write_fleet(core, words, "plain");
        world
    }

    /// The same with the engine of `quick_server.c`.
    pub(crate) fn quick(core: usize) -> Self {
        let world = Self::empty();
        world.write(core, &[stop_at::built("quick_server")], &[], "plain");
        world
    }

    fn empty() -> Self {
        let (reservation, port) = reserve_port();
        Self {
            sandbox: Sandbox::new(),
            port,
            _reservation: reservation,
        }
    }

    /// Writes the fleet file again, for `worker_server.py` with these words.
    pub(crate) fn write_fleet(&self, core: usize, words: &[&str], backend: &str) {
        let server = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/worker_server.py");
        let program = [python(), "-I", "-S", server].map(PathBuf::from);
        self.write(core, &program, words, backend);
    }

    fn write(&self, core: usize, program: &[PathBuf], words: &[&str], backend: &str) {
        let plain = |path: &Path| path.to_str().expect("because it is plain text").to_owned();
        let mut command: Vec<String> = program.iter().map(|word| plain(word)).collect();
        let fixed = ["--host", "{host}", "--port", "{port}", "--starts"];
        command.extend(fixed.map(str::to_owned));
        command.push(plain(&self.path("starts")));
        command.extend(words.iter().map(|word| (*word).to_owned()));
        let command = serde_json::to_string(&command).expect("because it is text");
        let core = core % std::thread::available_parallelism().map_or(1, usize::from);
        let port = self.port;
        let text = format!(
            "schema = \"packhouse/fleet/1\"\nname = \"home\"\nbackend = \"{backend}\"\n\
             [engine]\ncommand = {command}\npacks = false\n\
             [common]\nready_timeout_s = 30\n\
             stop_timeouts_s = {{ interrupt = 60, terminate = 60, kill = 60 }}\n\
             [[worker]]\nname = \"w0\"\nrole = \"test\"\ndevice = \"cpu:{core}\"\nport = {port}\n"
        );
        fs::write(self.path("fleet.toml"), text).unwrap();
    }

    /// A path inside.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.sandbox.path(name)
    }

    /// The sandbox that it is.
    pub(crate) fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// The port that the worker is for.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Runs `packhouse worker` with words and the fleet file.
    pub(crate) fn worker(&self, words: &[&str]) -> Output {
        self.sandbox
            .command(&worker_words(words))
            .output()
            .expect("because it was built")
    }

    /// The same, which must succeed.
    pub(crate) fn done(&self, words: &[&str], why: &str) -> String {
        let output = self.worker(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert_eq!(
            code,
            Some(0),
            "{why}: {words:?}\n{said}{errors}{}",
            self.files()
        );
        said
    }

    /// What `worker status --json` says of the worker. The engines of these tests all answer, on a
    /// busy machine later than a status waits: then it is asked again.
    pub(crate) fn status(&self, why: &str) -> Value {
        let begun = Instant::now();
        loop {
            let found = self.status_once(why);
            if found["reason"] != "health_silent" || begun.elapsed() > PATIENCE {
                return found;
            }
        }
    }

    fn status_once(&self, why: &str) -> Value {
        let output = self.worker(&["status", "--json"]);
        let said = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        assert!(
            matches!(code, Some(0 | 1)),
            "{why}: {code:?}\n{said}{errors}"
        );
        let all: Value = serde_json::from_str(&said).expect("because --json says one document");
        assert_eq!(
            all["workers"].as_array().map(Vec::len),
            Some(1),
            "{why}: {all}"
        );
        all["workers"][0].clone()
    }

    /// Every live process of the world, but those that this test runs itself.
    pub(crate) fn running(&self) -> Vec<Running> {
        let folder = self.sandbox.path("");
        let needle = folder.to_str().expect("because it is plain text");
        let needle = needle.strip_suffix('/').unwrap_or(needle);
        let names = fs::read_dir("/proc").expect("because this is Linux");
        let pids = names
            .flatten()
            .filter_map(|name| name.file_name().to_str()?.parse().ok());
        let own = std::process::id();
        let mut found: Vec<Running> = pids
            .filter(|pid| *pid != own)
            .filter_map(|pid| running(pid, needle))
            .collect();
        found.sort_by_key(|running| running.pid);
        found
    }

    /// The engines that run, by pid.
    pub(crate) fn servers(&self) -> Vec<u32> {
        let running = self.running().into_iter();
        running
            .filter(|running| running.part == Part::Server)
            .map(|running| running.pid)
            .collect()
    }

    /// The newest run's record of that name, if it is there.
    pub(crate) fn record(&self, name: &str) -> Option<Value> {
        let runs = self.path("home/.local/state/packhouse/fleets/home/w0/runs");
        let mut numbers: Vec<PathBuf> = fs::read_dir(runs)
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| {
                let name = path.file_name().and_then(|name| name.to_str());
                name.is_some_and(|name| name.len() == 6 && name.parse::<u32>().is_ok())
            })
            .collect();
        numbers.sort();
        let text = fs::read_to_string(numbers.pop()?.join(name)).ok()?;
        Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}: {text}")))
    }

    /// Nothing runs any more, and the port can be bound: a stop waits for all that is on record. A
    /// keeper that is on none, as where it launched nothing, ends by itself.
    pub(crate) fn must_be_over(&self, why: &str) {
        let launched = self.record("launched.json").unwrap_or_default();
        let is_known = |running: &Running| launched["keeper"]["pid"] == running.pid;
        let is_unknown = |running: &Running| running.part == Part::Keeper && !is_known(running);
        self.wait_for("the end of keepers that are on no record", || {
            !self.running().iter().any(is_unknown)
        });
        assert_eq!(self.running(), [], "{why}: {}", self.files());
        TcpListener::bind((Ipv4Addr::LOCALHOST, self.port)).unwrap_or_else(|error| {
            panic!("{why}: port {}: {error}", self.port);
        });
    }

    /// Waits until it is so, and tells what runs and what is on record where it never is.
    pub(crate) fn wait_for(&self, what: &str, is_so: impl FnMut() -> bool) {
        wait_or(what, is_so, || {
            format!("{:?}\n{}", self.running(), self.files())
        });
    }

    /// Waits until engines of that number have begun: a launch is on record before its engine runs.
    /// From then on they heed signals as they were told.
    pub(crate) fn wait_for_starts(&self, count: usize) {
        self.wait_for("the engine", || self.starts() == count);
    }

    /// How many engines have begun.
    pub(crate) fn starts(&self) -> usize {
        let starts = fs::read_to_string(self.path("starts")).unwrap_or_default();
        starts.lines().count()
    }

    /// All files of the state folder with their text, for messages.
    pub(crate) fn files(&self) -> String {
        let mut text = String::new();
        let mut folders = vec![self.path("home/.local/state/packhouse/fleets")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let content = fs::read_to_string(&path).unwrap_or_default();
                writeln!(text, "--- {}\n{content}", path.display()).unwrap();
            }
        }
        text
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A keeper that is killed may have started something meanwhile.
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            let running = self.running();
            if running.is_empty() {
                return;
            }
            for running in running {
                kill(running.pid, "-KILL");
            }
        }
    }
}

/// The words of a command on the world's fleet.
pub(crate) fn worker_words<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let mut all = vec!["worker"];
    all.extend(words);
    all.extend(["--config", "fleet.toml"]);
    all
}

/// Waits until it is so.
pub(crate) fn wait_until(what: &str, is_so: impl FnMut() -> bool) {
    wait_or(what, is_so, String::new);
}

/// Waits until it is so, and tells how things are where it never is.
pub(crate) fn wait_or(what: &str, mut is_so: impl FnMut() -> bool, tell: impl Fn() -> String) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never came: {what}: {}", tell());
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Sends a signal to a process of the test's own world.
pub(crate) fn kill(pid: u32, signal: &str) {
    // It may be gone already.
    let _ = Command::new("kill")
        .args([signal, &pid.to_string()])
        .stderr(Stdio::null())
        .status();
}

/// Whether a process lives and is no zombie.
pub(crate) fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        !stat
            .rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" Z"))
    })
}

fn running(pid: u32, needle: &str) -> Option<Running> {
    // Both are empty for a zombie, and unreadable for what is gone. Searched as text, since that is
    // fast in a test's build too, and hundreds of processes are looked at hundreds of times.
    let text = |name| {
        let bytes = fs::read(format!("/proc/{pid}/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let words = text("cmdline");
    let is_of_it = words.contains(needle) || text("environ").contains(needle);
    if !is_of_it || !lives(pid) {
        return None;
    }
    let part = match words.split('\0').nth(1).unwrap_or_default() {
        "keep" => Part::Keeper,
        "gate" => Part::Gate,
        _ if words.contains("\0--starts\0") => Part::Server,
        _ => Part::Other,
    };
    Some(Running { pid, part })
}

/// The interpreter itself, as what is found on PATH may be a script that finds it.
fn python() -> &'static str {
    static PATH: OnceLock<String> = OnceLock::new();
    PATH.get_or_init(|| {
        let output = Command::new("python3")
            .args([
                "-c",
                "import os, sys; print(os.path.realpath(sys.executable))",
            ])
            .output()
            .expect("because the tests need python3");
        let text = String::from_utf8(output.stdout).expect("because a path here is text");
        text.trim().to_owned()
    })
}

/// A port that nobody listens on, and the file whose lock keeps other tests from it, in whatever
/// process they run. It is none that the kernel gives to those who ask for any.
pub(crate) fn reserve_port() -> (fs::File, u16) {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("ports");
    fs::create_dir_all(&folder).expect("because the build folder is writable");
    loop {
        let turn = std::process::id() * 61 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + u16::try_from(turn % 12_000).expect("because it is below 12000");
        let path = folder.join(port.to_string());
        let file = fs::File::create(path).expect("because the build folder is writable");
        if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return (file, port);
        }
    }
}
