//! The stock engine with and without the plug-in: equal tokens, whatever happens to the store.
//!
//! Each test starts real engines in a world of its own (`Sandbox`). Where a test compares answers,
//! the stock engine is asked in the same test, so nothing is compared with a remembered answer.

#![forbid(unsafe_code)]

mod canary;
mod choice;
mod damage;
mod equality;
mod equivalence;
mod fingerprint;
mod focused;
mod image;
mod interrupted;
mod kernels;
mod memory;
mod moved;
mod npu_head;
mod options;
mod places;
mod prepared;
mod replaced;
mod staged;
mod synthetic;
mod template;
mod twins;
mod values;
mod workers;

use engine_tests::report::{self, Load};
use engine_tests::server::Completion;
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server};
use std::path::Path;

/// Enough to notice one wrong tensor, short enough to ask in every test.
const FEW_TOKENS: usize = 24;

/// What the stock engine answers.
fn stock_answer(sandbox: &Sandbox, model: &Path, options: &[&str]) -> Completion {
    let server = Server::start(sandbox, Mode::Stock, model, options);
    let answer = server.complete(PROMPTS[0], FEW_TOKENS);
    let log = server.stop();
    assert!(
        report::lines(&log).is_empty(),
        "a stock engine has no plug-in: {log}"
    );
    answer
}

/// Starts the engine with packs, asks, waits until its fill has ended, stops.
struct Served {
    answer: Completion,
    load: Load,
    log: String,
}

fn serve(sandbox: &Sandbox, model: &Path, options: &[&str]) -> Served {
    let server = Server::start(sandbox, Mode::Packs, model, options);
    finish(server)
}

fn finish(server: Server) -> Served {
    let answer = server.complete(PROMPTS[0], FEW_TOKENS);
    let load = server.wait_filled();
    let log = server.stop();
    assert_eq!(
        report::load_lines(&log).len(),
        1,
        "one line per load: {:?}",
        report::lines(&log)
    );
    Served { answer, load, log }
}

/// A sandbox whose store holds SmolLM2's packs, and the stock engine's answer.
///
/// The store is a copy of one that a real fill made, so its receipts are stale: the first start
/// hashes every object again, which is why it happens here and not in the test.
fn filled() -> (Sandbox, Completion) {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let stock = stock_answer(&sandbox, &model, &[]);
    copy_filled_store(&sandbox);
    assert_converged(&sandbox, &model, &stock);
    (sandbox, stock)
}

/// Gives the sandbox the store and private state that a fill with this plug-in and engine left.
fn copy_filled_store(sandbox: &Sandbox) {
    let template = template::path();
    if !template.exists() {
        let first = Sandbox::new();
        serve(&first, &Model::SmolLm2.path(), &[])
            .load
            .assert_miss();
        serve(&first, &Model::SmolLm2.path(), &[]).load.assert_hit();
        template::publish(&first, &template);
    }
    template::copy_into(&template, sandbox);
}

/// The next start maps everything and answers like stock: the store has converged.
fn assert_converged(sandbox: &Sandbox, model: &Path, stock: &Completion) {
    let served = serve(sandbox, model, &[]);
    assert_eq!(&served.answer, stock);
    served.load.assert_hit();
}

/// Some line of the plug-in says one of `words`.
fn assert_says(log: &str, words: &[&str]) {
    let lines = report::lines(log);
    let said = lines.iter().any(|line| {
        let line = line.to_lowercase();
        words.iter().any(|word| line.contains(word))
    });
    assert!(said, "no line says any of {words:?}: {lines:#?}");
}
