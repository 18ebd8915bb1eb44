//! One mode in one round: the load phase, then one server from its start to its end.

use crate::{cache, stream};
use engine_tests::server::PATIENCE;
use engine_tests::{Sandbox, Server, procfs};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How the engine is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// As it is.
    Stock,
    /// As it is, with `--no-repack`: the file's own bytes compute.
    NoRepack,
    /// With the plug-in and a filled store.
    Hit,
    /// With the plug-in and an empty store.
    Fill,
}

impl Mode {
    /// All of them, in the table's order.
    pub const ALL: [Mode; 4] = [Mode::Stock, Mode::NoRepack, Mode::Hit, Mode::Fill];

    /// Its name in arguments, evidence and tables.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Stock => "stock",
            Mode::NoRepack => "no-repack",
            Mode::Hit => "hit",
            Mode::Fill => "fill",
        }
    }

    fn sandbox_mode(self) -> engine_tests::Mode {
        match self {
            Mode::Stock | Mode::NoRepack => engine_tests::Mode::Stock,
            Mode::Hit | Mode::Fill => engine_tests::Mode::Packs,
        }
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Mode::NoRepack => &["--no-repack"],
            Mode::Stock | Mode::Hit | Mode::Fill => &[],
        }
    }
}

/// What every leg does.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The model.
    pub model: PathBuf,
    /// Tokens of a decode window; its gaps are one fewer.
    pub decode_tokens: usize,
    /// Words of the long prompt.
    pub prompt_words: usize,
    /// Whether files are dropped from the page cache before each start.
    pub cold: bool,
}

/// One leg's raw figures: counts, bytes and nanoseconds only.
#[derive(Debug, Clone, Default)]
pub struct Leg {
    /// As written to the evidence file.
    pub figures: Value,
    /// Token ids of the decode window: equal in every mode but `no-repack`.
    pub tokens: Vec<i64>,
}

/// Gigabytes at idle priority, each pack synced.
const FILL_LIMIT: Duration = Duration::from_secs(900);

/// Fills the store that the `hit` legs use, and leaves it written back.
///
/// # Errors
/// Whatever the server's socket says.
pub fn fill_store(sandbox: &Sandbox, plan: &Plan) -> io::Result<Value> {
    let (server, ready_ns) = start_server(sandbox, Mode::Fill, plan)?;
    let load = server.wait_filled_within(FILL_LIMIT);
    server.stop();
    rustix::fs::sync();
    let again = start_server(sandbox, Mode::Hit, plan)?.0;
    let hit = again.wait_filled();
    again.stop();
    hit.assert_hit();
    Ok(json!({
        "ready_ns": ready_ns,
        "packed_tensors": load.packed.tensors, "packed_bytes": load.packed.bytes,
        "source_bytes_read_on_hit": hit.source_bytes_read,
    }))
}

/// Runs one mode once. A `fill` leg needs a sandbox whose store is empty.
///
/// # Errors
/// Whatever the programs' sockets and the page cache say.
pub fn run_leg(sandbox: &Sandbox, mode: Mode, plan: &Plan) -> io::Result<Leg> {
    let mut figures = json!({ "mode": mode.name() });
    if mode != Mode::Fill {
        prepare_cache(sandbox, plan)?;
        figures["load_ns"] = json!(load_phase_ns(sandbox, mode, plan)?);
    }
    prepare_cache(sandbox, plan)?;
    let (server, ready_ns) = start_server(sandbox, mode, plan)?;
    figures["ready_ns"] = json!(ready_ns);
    let first = stream::complete(server.port(), "The weather today is", 4)?;
    figures["first_token_ns"] = json!(first.first_token_ns());
    if mode == Mode::Fill {
        let decode = stream::complete(server.port(), "Once upon a time", plan.decode_tokens)?;
        put_decode(&mut figures, &decode);
        // Only a decode that ended while the fill still ran measures a decode during a fill.
        figures["fill_running_after_decode"] = json!(server.load().fill == "running");
        end_fill(server);
        return Ok(Leg {
            figures,
            tokens: decode.tokens,
        });
    }
    thread::sleep(Duration::from_secs(2));
    let memory = procfs::memory(server.pid());
    figures["private_dirty_bytes"] = json!(memory.private_dirty);
    figures["rss_bytes"] = json!(memory.rss);
    if mode == Mode::Hit {
        let load = server.load();
        load.assert_hit();
        figures["mapped_bytes"] = json!(load.mapped.bytes);
        figures["source_bytes_read"] = json!(load.source_bytes_read);
    }
    let decode = stream::complete(server.port(), "Once upon a time", plan.decode_tokens)?;
    put_decode(&mut figures, &decode);
    let long = "count the words of this line again ".repeat(plan.prompt_words.div_ceil(7));
    let prompt = stream::complete(server.port(), &long, 1)?;
    figures["prompt_tokens"] = json!(prompt.prompt_tokens);
    figures["prompt_ns"] = json!(prompt.first_token_ns());
    server.stop();
    Ok(Leg {
        figures,
        tokens: decode.tokens,
    })
}

/// The fill's own end is not measured: its rest would only wear the disk.
fn end_fill(server: Server) {
    server.signal(Signal::TERM);
    server.kill();
}

fn put_decode(figures: &mut Value, decode: &stream::Stream) {
    let (gaps, ns) = decode.decode_window();
    figures["decode_gaps"] = json!(gaps);
    figures["decode_ns"] = json!(ns);
}

fn prepare_cache(sandbox: &Sandbox, plan: &Plan) -> io::Result<()> {
    let mut files = cache::files_below(&sandbox.store());
    files.push(plan.model.clone());
    if plan.cold {
        cache::drop_files(&files)
    } else {
        cache::warm_files(&files)
    }
}

/// Wall time of a process that loads the model, decodes one token without warm-up, and ends.
fn load_phase_ns(sandbox: &Sandbox, mode: Mode, plan: &Plan) -> io::Result<u64> {
    let (command, _) = sandbox.engine("llama-completion", mode.sandbox_mode());
    let mut command = as_users_start_it(command);
    command
        .arg("-m")
        .arg(&plan.model)
        .args([
            "-n",
            "1",
            "--no-warmup",
            "-c",
            "256",
            "-no-cnv",
            "-t",
            "2",
            "-p",
            "Hello",
        ])
        .args(mode.options())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status()?;
    let elapsed = start.elapsed();
    if status.success() {
        Ok(nanoseconds(elapsed))
    } else {
        Err(io::Error::other(format!(
            "llama-completion ended with {status}"
        )))
    }
}

fn start_server(sandbox: &Sandbox, mode: Mode, plan: &Plan) -> io::Result<(Server, u64)> {
    let (command, reports) = sandbox.engine("llama-server", mode.sandbox_mode());
    let command = as_users_start_it(command);
    let start = Instant::now();
    let server = Server::spawn(sandbox, command, reports, &plan.model, mode.options());
    server.wait_ready();
    let elapsed = start.elapsed();
    if elapsed > PATIENCE {
        return Err(io::Error::other("the server took too long"));
    }
    Ok((server, nanoseconds(elapsed)))
}

/// The tests ask the engine's threads to sleep while they wait; a timing must not.
fn as_users_start_it(mut command: Command) -> Command {
    command.env_remove("OMP_WAIT_POLICY");
    command
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn a_timed_engine_spins_as_its_users_engine_does() {
        let mut command = Command::new("true");
        command.env("OMP_WAIT_POLICY", "passive");
        let command = as_users_start_it(command);
        let removed = (OsString::from("OMP_WAIT_POLICY"), None);
        let environment: Vec<_> = command
            .get_envs()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        assert_eq!(environment, [removed]);
    }
}
