//! `packhouse worker` with real engines: two on a core each beside a server that is nobody's
//! worker, started with packs, asked, killed, refused, stopped.

use crate::staged::packhouse;
use engine_tests::server::PATIENCE;
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server, http, places};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// Two workers in a sandbox. Dropping it ends what still runs of them.
struct Fleet<'a> {
    sandbox: &'a Sandbox,
    ports: [u16; 2],
}

const NAMES: [&str; 2] = ["w0", "w1"];

impl<'a> Fleet<'a> {
    fn new(sandbox: &'a Sandbox) -> Self {
        let fleet = Self {
            sandbox,
            ports: [http::free_port(), http::free_port()],
        };
        let engine = places::engine_bin().join("llama-server");
        let mut text = format!(
            "schema = \"packhouse/fleet/1\"\nname = \"tests\"\nbackend = \"plain\"\n\
             [engine]\n\
             command = [{engine:?}, \"-m\", \"{{model}}\", \"--host\", \"{{host}}\", \"--port\", \
             \"{{port}}\", \"-c\", \"512\", \"-np\", \"1\", \"-t\", \"{{threads}}\"]\n\
             packs = true\n\
             [common]\nmodel = {:?}\n\
             inherit = [\"PATH\", \"HOME\", \"XDG_CACHE_HOME\", \"XDG_STATE_HOME\", \
             \"PACKHOUSE_STORE\", \"PACKHOUSE_STAGE\"]\n\
             environment = {{ OMP_WAIT_POLICY = \"passive\", PACKHOUSE_PLUGIN = {:?} }}\n",
            Model::SmolLm2.path(),
            places::plugin(),
        );
        for (at, name) in NAMES.iter().enumerate() {
            text += &format!(
                "[[worker]]\nname = {name:?}\nrole = \"test\"\ndevice = \"cpu:{at}\"\nport = {}\n",
                fleet.ports[at]
            );
        }
        fs::write(fleet.file(), text).expect("the sandbox is writable");
        fleet
    }

    fn file(&self) -> PathBuf {
        self.sandbox.path().join("fleet.toml")
    }

    /// Runs `packhouse worker` with words and the fleet file.
    fn worker(&self, words: &[&str]) -> Output {
        let (mut command, _) = self.sandbox.command(&places::packhouse(), Mode::Stock);
        command
            .arg("worker")
            .args(words)
            .arg("--config")
            .arg(self.file())
            .output()
            .expect("packhouse can be started")
    }

    /// The same, which must say yes.
    fn done(&self, words: &[&str]) -> String {
        let output = self.worker(words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{words:?}: {said}{errors}");
        said
    }

    /// State of each worker, by `status --json`.
    fn states(&self) -> Vec<(String, Value)> {
        let output = self.worker(&["status", "--json"]);
        let all: Value = serde_json::from_slice(&output.stdout).expect("--json says one document");
        let workers = all["workers"].as_array().expect("it lists workers").clone();
        let state = |worker: Value| (worker["state"].as_str().unwrap_or_default().into(), worker);
        workers.into_iter().map(state).collect()
    }

    fn run_folder(&self, worker: &str, run: u32) -> PathBuf {
        let fleet = self.sandbox.path().join("state/packhouse/fleets/tests");
        fleet.join(worker).join("runs").join(format!("{run:06}"))
    }

    fn record(&self, worker: &str, run: u32, name: &str) -> Value {
        let path = self.run_folder(worker, run).join(name);
        let text = fs::read_to_string(&path);
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        serde_json::from_str(&text).expect("records are JSON")
    }

    fn pid(&self, worker: &str, run: u32) -> u32 {
        let pid = &self.record(worker, run, "launched.json")["worker"]["pid"];
        pid.as_u64()
            .and_then(|pid| pid.try_into().ok())
            .expect("it has a pid")
    }

    fn ask(&self, worker: usize) -> Vec<i64> {
        let body = json!({
            "prompt": PROMPTS[0], "n_predict": super::FEW_TOKENS, "temperature": 0,
            "cache_prompt": false, "return_tokens": true, "ignore_eos": true,
        });
        let body = body.to_string();
        let answer = http::request(self.ports[worker], "POST", "/completion", &body, PATIENCE);
        let answer = answer.expect("a ready worker answers");
        let answer: Value = serde_json::from_str(&answer.body).expect("the engine answers JSON");
        let tokens = answer["tokens"]
            .as_array()
            .expect("return_tokens was asked for");
        tokens.iter().filter_map(Value::as_i64).collect()
    }
}

impl Drop for Fleet<'_> {
    fn drop(&mut self) {
        // By the very records that are tested; a pid that was reused is not of this sandbox.
        for worker in NAMES {
            for run in 1..9 {
                for record in ["keeper", "worker"] {
                    let path = self.run_folder(worker, run).join("launched.json");
                    let Ok(text) = fs::read_to_string(path) else {
                        continue;
                    };
                    let launched: Value = serde_json::from_str(&text).unwrap_or_default();
                    let pid = launched[record]["pid"].as_i64().unwrap_or_default();
                    let root = self.sandbox.path().as_os_str().as_encoded_bytes();
                    let mentions = |file: &str| {
                        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                        bytes.windows(root.len()).any(|window| window == root)
                    };
                    let is_ours = mentions("environ") || mentions("cmdline");
                    if let Some(pid) =
                        Pid::from_raw(pid.try_into().unwrap_or(0)).filter(|_| is_ours)
                    {
                        // It may be gone by now.
                        let _ = kill_process(pid, Signal::KILL);
                    }
                }
            }
        }
    }
}

/// The cores that a process may use, as the kernel lists them.
fn cores(pid: u32) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    line.expect("the kernel writes every field")
        .trim()
        .to_owned()
}

fn lives(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn sha256(path: &std::path::Path) -> String {
    let output = Command::new("sha256sum").arg(path).output();
    let output = output.expect("coreutils are everywhere");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split(' ')
        .next()
        .expect("it begins with the digest")
        .to_owned()
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "never came: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What is recorded of a ready worker is what runs: compared with other programs' findings.
fn must_be_identified(fleet: &Fleet<'_>, at: usize, run: u32) {
    let (name, core) = (NAMES[at], at.to_string());
    let pid = fleet.pid(name, run);
    assert_eq!(cores(pid), core, "{name} is pinned");
    let identity = fleet.record(name, run, "identity.json");
    let engine = places::engine_bin().join("llama-server");
    assert_eq!(
        identity["executable"]["sha256"],
        sha256(&engine),
        "{identity}"
    );
    assert_eq!(
        identity["model"]["sha256"],
        sha256(&Model::SmolLm2.path()),
        "{identity}"
    );
    let libraries = identity["libraries"]
        .as_array()
        .expect("an engine has libraries");
    for wanted in [places::plugin(), places::engine_bin().join("libllama.so")] {
        let wanted = fs::canonicalize(&wanted).expect("it exists");
        let library = libraries
            .iter()
            .find(|library| library["path"].as_str() == wanted.to_str());
        let library =
            library.unwrap_or_else(|| panic!("{} is not in {identity}", wanted.display()));
        assert_eq!(library["sha256"], sha256(&wanted), "{library}");
    }
}

#[test]
fn two_workers_serve_on_a_core_each_beside_a_strangers_server() {
    if available_parallelism().map_or(1, usize::from) < 2 {
        println!("NOT EXERCISED: two workers need two cores");
        return;
    }
    let sandbox = Sandbox::new();
    let stranger = Server::start(&sandbox, Mode::Stock, &Model::SmolLm2.path(), &[]);
    let stock = stranger.complete(PROMPTS[0], super::FEW_TOKENS);
    let fleet = Fleet::new(&sandbox);
    fleet.done(&["validate"]);
    // Nothing happens without the word.
    fleet.done(&["start"]);
    assert!(fleet.states().iter().all(|(state, _)| state == "absent"));

    fleet.done(&["start", "--execute"]);
    let states = fleet.states();
    assert!(
        states.iter().all(|(state, _)| state == "ready"),
        "{states:?}"
    );
    for at in [0, 1] {
        must_be_identified(&fleet, at, 1);
        assert_eq!(fleet.ask(at), stock.tokens, "{}", NAMES[at]);
        let log = fleet.done(&["logs", "--worker", NAMES[at]]);
        assert!(
            log.contains("packhouse: "),
            "the plug-in is not in it: {log}"
        );
    }
    // They run, so another start is refused, and nothing changes.
    let pids = NAMES.map(|name| fleet.pid(name, 1));
    assert_eq!(fleet.worker(&["start", "--execute"]).status.code(), Some(3));
    assert_eq!(NAMES.map(|name| fleet.pid(name, 1)), pids);

    // One is killed as by the out-of-memory killer; the other serves on, and it starts again.
    let raw = i32::try_from(pids[0]).expect("pids fit");
    kill_process(Pid::from_raw(raw).expect("it has a pid"), Signal::KILL).expect("it lives");
    wait_until("the record of its end", || {
        fleet.run_folder("w0", 1).join("exit.json").exists()
    });
    wait_until("the word exited", || fleet.states()[0].0 == "exited");
    assert_eq!(fleet.states()[1].0, "ready");
    fleet.done(&["start", "--execute", "--worker", "w0"]);
    assert_eq!(fleet.ask(0), stock.tokens);
    must_be_identified(&fleet, 0, 2);
    let first = fleet.done(&["logs", "--worker", "w0", "--run", "1"]);
    assert!(
        first.contains("packhouse: "),
        "a restart lost a log: {first}"
    );

    // A stop needs neither fleet file nor model.
    fs::remove_file(fleet.file()).expect("it was written");
    let words = ["worker", "stop", "--execute", "--fleet", "tests"];
    packhouse(&sandbox, &words);
    let all = [pids[0], fleet.pid("w0", 2), pids[1]];
    assert!(!all.iter().any(|pid| lives(*pid)), "{all:?}");
    for (worker, run) in [("w0", 2), ("w1", 1)] {
        fleet.record(worker, run, "released.json");
    }
    // The stranger was nobody's to stop.
    assert_eq!(stranger.complete(PROMPTS[0], super::FEW_TOKENS), stock);
    stranger.stop();
}

/// A server that somebody pinned to the worker's core holds it.
#[test]
fn a_server_pinned_to_a_workers_core_stops_that_worker_alone() {
    if available_parallelism().map_or(1, usize::from) < 2 {
        println!("NOT EXERCISED: two workers need two cores");
        return;
    }
    let sandbox = Sandbox::new();
    let (engine, reports) = sandbox.engine("llama-server", Mode::Stock);
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", "1"]).arg(engine.get_program());
    for (name, value) in engine.get_envs() {
        match value {
            Some(value) => pinned.env(name, value),
            None => pinned.env_remove(name),
        };
    }
    let stranger = Server::spawn(&sandbox, pinned, reports, &Model::SmolLm2.path(), &[]);
    stranger.wait_ready();
    let fleet = Fleet::new(&sandbox);
    let output = fleet.worker(&["start", "--execute"]);
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    let pid = stranger.pid().as_raw_pid().to_string();
    assert!(said.contains(&pid) && said.contains("w1"), "{said}");
    let states: Vec<String> = fleet.states().into_iter().map(|(state, _)| state).collect();
    assert_eq!(states, ["ready", "absent"], "{said}");
    stranger.stop();
    // With the core free again the refused one starts, and the other is left alone.
    let first = fleet.pid("w0", 1);
    fleet.done(&["start", "--execute", "--worker", "w1"]);
    assert_eq!(fleet.pid("w0", 1), first);
    fleet.done(&["stop", "--execute"]);
    assert!(!lives(first));
}
