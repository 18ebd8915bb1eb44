//! Fills that are stopped, killed, or run by two servers at once.

use super::{assert_converged, finish, serve, stock_answer};
use engine_tests::report;
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server, store_files};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// It has 210 tensors to pack, so its fill is long enough to be met in its middle.
const MODEL: Model = Model::SmolLm2;

fn spawn(sandbox: &Sandbox, model: &Path) -> Server {
    let (command, reports) = sandbox.engine("llama-server", Mode::Packs);
    Server::spawn(sandbox, command, reports, model, &[])
}

/// Starts a server on an empty store and stops it by SIGSTOP when some packs, but not all, exist.
fn stopped_in_its_fill() -> (Sandbox, Server) {
    for _ in 0..5 {
        let sandbox = Sandbox::new();
        let server = spawn(&sandbox, &MODEL.path());
        let start = Instant::now();
        while store_files::objects(&sandbox.store()).len() < 3 {
            let patience = Duration::from_secs(60);
            assert!(
                start.elapsed() < patience,
                "no fill began: {:?}",
                server.lines()
            );
            thread::sleep(Duration::from_millis(1));
        }
        server.signal(Signal::STOP);
        let stored = report::lines(&server.log())
            .iter()
            .any(|line| line.contains(" stored "));
        if !stored {
            return (sandbox, server);
        }
    }
    panic!("five fills ended before they could be stopped");
}

#[test]
fn two_servers_fill_one_store_while_one_of_them_is_stopped() {
    let (sandbox, first) = stopped_in_its_fill();
    let model = MODEL.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    let begin = Instant::now();
    let second = finish(spawn_ready(&sandbox, &model));
    assert_eq!(second.answer, stock, "a stopped process delays nobody");
    assert!(second.load.tensors() > 0, "{:?}", second.load);
    assert!(begin.elapsed() < Duration::from_secs(60));
    first.signal(Signal::CONT);
    first.wait_ready();
    assert_eq!(finish(first).answer, stock);
    assert_converged(&sandbox, &model, &stock);
    assert_eq!(store_files::strays(&sandbox.store()), Vec::<PathBuf>::new());
}

fn spawn_ready(sandbox: &Sandbox, model: &Path) -> Server {
    let server = spawn(sandbox, model);
    server.wait_ready();
    server
}

#[test]
fn two_servers_that_start_at_once_on_an_empty_store_agree() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    let (one, other) = (spawn(&sandbox, &model), spawn(&sandbox, &model));
    one.wait_ready();
    other.wait_ready();
    assert_eq!(finish(one).answer, stock);
    assert_eq!(finish(other).answer, stock);
    assert_converged(&sandbox, &model, &stock);
    assert_eq!(store_files::strays(&sandbox.store()), Vec::<PathBuf>::new());
}

#[test]
fn a_fill_that_was_killed_is_taken_up_by_the_next_start() {
    let (sandbox, server) = stopped_in_its_fill();
    server.kill();
    let model = MODEL.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    let next = serve(&sandbox, &model, &[]);
    assert_eq!(next.answer, stock);
    assert!(
        next.load.packed.tensors > 0,
        "the fill was met in its middle: {:?}",
        next.load
    );
    assert_eq!(
        next.load.refused_tensors(),
        0,
        "a killed fill leaves no wreck: {:?}",
        next.load
    );
    assert_converged(&sandbox, &model, &stock);
    assert_eq!(store_files::strays(&sandbox.store()), Vec::<PathBuf>::new());
}

#[test]
fn kills_at_many_points_never_leave_a_wreck() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    for step in 0..10 {
        let server = spawn(&sandbox, &model);
        thread::sleep(Duration::from_millis(60 + step * 90));
        server.kill();
    }
    let next = serve(&sandbox, &model, &[]);
    assert_eq!(next.answer, stock);
    assert_eq!(next.load.refused_tensors(), 0, "{:?}", next.load);
    assert_converged(&sandbox, &model, &stock);
    assert_eq!(store_files::strays(&sandbox.store()), Vec::<PathBuf>::new());
}

#[test]
fn a_server_ended_in_its_fill_ends_at_once() {
    let sandbox = Sandbox::new();
    let model = MODEL.path();
    let server = spawn_ready(&sandbox, &model);
    server.complete(PROMPTS[0], 1);
    let begin = Instant::now();
    let log = server.stop();
    assert!(
        begin.elapsed() < Duration::from_secs(10),
        "unloading waited for the fill: {log}"
    );
    let stock = stock_answer(&sandbox, &model, &[]);
    assert_eq!(serve(&sandbox, &model, &[]).answer, stock);
    assert_converged(&sandbox, &model, &stock);
}
