//! Stock, miss, hit and hit after corruption give the same tokens and the same logits, bit by bit.

use engine_tests::logits::{self, assert_equal};
use engine_tests::server::Completion;
use engine_tests::{Load, Mode, Model, PROMPTS, Sandbox, Server, TOKENS, report, store_files};
use std::path::Path;

#[test]
fn smollm2_answers_the_same_bits() {
    answers_the_same_bits(Model::SmolLm2);
}

#[test]
fn gemma3_answers_the_same_bits() {
    answers_the_same_bits(Model::Gemma3);
}

fn answers_the_same_bits(model: Model) {
    let (sandbox, other) = (Sandbox::new(), Sandbox::new());
    let path = model.path();
    let stock = logits::run(&sandbox, Mode::Stock, &path, &[]);
    assert_eq!(stock.load, None, "a stock engine has no plug-in");
    let stock_texts = texts(&sandbox, Mode::Stock, &path).0;
    assert!(
        stock_texts
            .iter()
            .all(|answer| answer.tokens.len() == TOKENS)
    );

    let miss = logits::run(&other, Mode::Packs, &path, &[]);
    miss.load().assert_miss();
    assert_equal("miss", &stock, &miss);
    let (miss_texts, filled) = texts(&sandbox, Mode::Packs, &path);
    assert_eq!(miss_texts, stock_texts, "miss");
    assert_eq!(filled.packed, miss.load().packed);

    let hit = logits::run(&sandbox, Mode::Packs, &path, &[]);
    hit.load().assert_hit();
    assert!(hit.load().samples > 0, "a hit is sampled: {:?}", hit.load());
    assert_eq!(
        hit.load().mapped,
        filled.packed,
        "what was packed is what is mapped"
    );
    assert_equal("hit", &stock, &hit);
    let (hit_texts, load) = texts(&sandbox, Mode::Packs, &path);
    load.assert_hit();
    assert_eq!(hit_texts, stock_texts, "hit");

    let objects = store_files::objects(&sandbox.store());
    store_files::flip_byte(&objects[0]);
    store_files::flip_byte(&objects[objects.len() / 2]);
    let corrupt = logits::run(&sandbox, Mode::Packs, &path, &[]);
    assert_eq!(corrupt.load().refused_tensors(), 2, "{:?}", corrupt.load());
    assert_eq!(corrupt.load().packed.tensors, 2, "{:?}", corrupt.load());
    assert_eq!(report::load_lines(&corrupt.log).len(), 1, "{}", corrupt.log);
    assert_equal("hit after corruption", &stock, &corrupt);

    super::serve(&sandbox, &path, &[]);
    let healed = logits::run(&sandbox, Mode::Packs, &path, &[]);
    healed.load().assert_hit();
    assert_equal("healed", &stock, &healed);
}

/// What the server answers to every prompt, and its load after its fill.
fn texts(sandbox: &Sandbox, mode: Mode, model: &Path) -> ([Completion; 3], Load) {
    let server = Server::start(sandbox, mode, model, &[]);
    let texts = PROMPTS.map(|prompt| server.complete(prompt, TOKENS));
    let load = if mode == Mode::Packs {
        server.wait_filled()
    } else {
        Load::default()
    };
    server.stop();
    (texts, load)
}
