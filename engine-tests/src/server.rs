//! A running `llama-server`: started, asked, stopped, and never left behind.

use crate::http;
use crate::report::{self, Load};
use crate::sandbox::{Mode, Sandbox};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How long a start, an answer or a fill may take on a busy machine before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// One server process. Dropping it kills it.
#[derive(Debug)]
pub struct Server {
    child: Child,
    port: u16,
    log: PathBuf,
    reports: PathBuf,
}

/// What a greedy completion answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The text.
    pub text: String,
    /// The token ids.
    pub tokens: Vec<i64>,
}

impl Server {
    /// Starts one on `model` and waits until it is ready.
    pub fn start(sandbox: &Sandbox, mode: Mode, model: &Path, options: &[&str]) -> Self {
        let (command, reports) = sandbox.engine("llama-server", mode);
        let server = Self::spawn(sandbox, command, reports, model, options);
        server.wait_ready();
        server
    }

    /// Starts `command`, which is or becomes `llama-server`, and does not wait.
    pub fn spawn(
        sandbox: &Sandbox,
        mut command: Command,
        reports: PathBuf,
        model: &Path,
        options: &[&str],
    ) -> Self {
        let port = http::free_port();
        let log = sandbox.path().join("logs").join(format!("{port}.log"));
        let file = File::create(&log).expect("the sandbox is writable");
        command
            .arg("-m")
            .arg(model)
            .args(["--host", "127.0.0.1", "--port", &port.to_string()])
            .args(["-c", "512", "-np", "1", "-t", "2"])
            .args(options)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file can be shared"))
            .stderr(file);
        let child = command.spawn().expect("the engine can be started");
        Self {
            child,
            port,
            log,
            reports,
        }
    }

    /// Waits for `/health` to say ok.
    pub fn wait_ready(&self) {
        let start = Instant::now();
        loop {
            let answer = http::request(self.port, "GET", "/health", "", PATIENCE);
            if answer.is_ok_and(|answer| answer.status == 200) {
                return;
            }
            assert!(
                self.alive(),
                "the engine ended before it was ready:\n{}",
                self.log()
            );
            assert!(
                start.elapsed() < PATIENCE,
                "the engine never got ready:\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The greedy continuation of `prompt`.
    pub fn complete(&self, prompt: &str, tokens: usize) -> Completion {
        let body = json!({
            "prompt": prompt, "n_predict": tokens, "temperature": 0, "cache_prompt": false,
            "return_tokens": true, "ignore_eos": true,
        });
        let answer = http::request(
            self.port,
            "POST",
            "/completion",
            &body.to_string(),
            PATIENCE,
        )
        .unwrap_or_else(|error| panic!("no answer: {error}:\n{}", self.log()));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let answer: Value = serde_json::from_str(&answer.body).expect("the engine answers JSON");
        let tokens = answer["tokens"]
            .as_array()
            .expect("return_tokens was asked for");
        Completion {
            text: answer["content"]
                .as_str()
                .expect("an answer has content")
                .to_owned(),
            tokens: tokens.iter().filter_map(Value::as_i64).collect(),
        }
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the child was not reaped yet");
    }

    /// Everything it wrote to stdout and stderr so far.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The plug-in's lines so far.
    pub fn lines(&self) -> Vec<String> {
        report::lines(&self.log())
    }

    /// What the plug-in says about this process's last load; fails if it said nothing.
    pub fn load(&self) -> Load {
        let start = Instant::now();
        loop {
            if let Some(load) = report::last(&self.reports) {
                return load;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "no `packhouse:` report: the plug-in was not loaded, or did not announce its \
                 load; its lines: {:?}\n{}",
                self.lines(),
                self.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until this process's fill has ended, and says what was loaded.
    pub fn wait_filled(&self) -> Load {
        self.wait_filled_within(PATIENCE)
    }

    /// The same for a fill that may take longer, e.g. that of a large model.
    pub fn wait_filled_within(&self, limit: Duration) -> Load {
        let start = Instant::now();
        loop {
            let load = self.load();
            if load.fill != "running" {
                return load;
            }
            assert!(
                start.elapsed() < limit,
                "the fill never ended:\n{:#?}",
                self.lines()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Ends it by SIGTERM, as a supervisor does; returns its whole log.
    pub fn stop(mut self) -> String {
        self.signal(Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().expect("the child is ours") {
                let log = self.log();
                // The engine answers before it listens to SIGTERM, which may then end it as it is.
                let by_sigterm = status.signal() == Some(Signal::TERM.as_raw());
                assert!(
                    status.success() || by_sigterm,
                    "the engine ended with {status}:\n{log}"
                );
                return log;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("the engine did not end on SIGTERM:\n{}", self.log());
    }

    /// Ends it by SIGKILL, as an out-of-memory killer does.
    pub fn kill(mut self) {
        self.child.kill().expect("the child was not reaped yet");
        self.child.wait().expect("the child is ours");
    }

    fn alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id()));
        stat.is_ok_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
