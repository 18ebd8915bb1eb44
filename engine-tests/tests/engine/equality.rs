//! Stock, miss, hit and hit after corruption give the same tokens and the same logits, bit by bit.

use super::serve;
use engine_tests::logits::{self, assert_equal};
use engine_tests::{Mode, Model, PROMPTS, Sandbox, Server, TOKENS, report, store_files};

#[test]
fn logits_of_smollm2_are_equal() {
    logits_are_equal(Model::SmolLm2);
}

#[test]
fn logits_of_gemma3_are_equal() {
    logits_are_equal(Model::Gemma3);
}

fn logits_are_equal(model: Model) {
    let sandbox = Sandbox::new();
    let path = model.path();
    let stock = logits::run(&sandbox, Mode::Stock, &path, &[]);
    assert_eq!(stock.load, None, "a stock engine has no plug-in");

    let miss = logits::run(&sandbox, Mode::Packs, &path, &[]);
    miss.load().assert_miss();
    assert_equal("miss", &stock, &miss);

    serve(&sandbox, &path, &[]);
    let hit = logits::run(&sandbox, Mode::Packs, &path, &[]);
    hit.load().assert_hit();
    assert!(hit.load().samples > 0, "a hit is sampled: {:?}", hit.load());
    assert_eq!(
        hit.load().mapped,
        miss.load().packed,
        "what was packed is what is mapped"
    );
    assert_equal("hit", &stock, &hit);

    let objects = store_files::objects(&sandbox.store());
    store_files::flip_byte(&objects[0]);
    store_files::flip_byte(&objects[objects.len() / 2]);
    let corrupt = logits::run(&sandbox, Mode::Packs, &path, &[]);
    assert_eq!(corrupt.load().refused_tensors(), 2, "{:?}", corrupt.load());
    assert_eq!(corrupt.load().packed.tensors, 2, "{:?}", corrupt.load());
    assert_eq!(report::load_lines(&corrupt.log).len(), 1, "{}", corrupt.log);
    assert_equal("hit after corruption", &stock, &corrupt);

    serve(&sandbox, &path, &[]);
    let healed = logits::run(&sandbox, Mode::Packs, &path, &[]);
    healed.load().assert_hit();
    assert_equal("healed", &stock, &healed);
}

#[test]
fn texts_of_the_server_are_equal() {
    for model in [Model::SmolLm2, Model::Gemma3] {
        let sandbox = Sandbox::new();
        let answers = |mode| {
            let server = Server::start(&sandbox, mode, &model.path(), &[]);
            let answers = PROMPTS.map(|prompt| server.complete(prompt, TOKENS));
            if mode == Mode::Packs {
                server.wait_filled();
            }
            server.stop();
            answers
        };
        let stock = answers(Mode::Stock);
        assert!(stock.iter().all(|answer| answer.tokens.len() == TOKENS));
        assert_eq!(answers(Mode::Packs), stock, "miss of {model:?}");
        assert_eq!(answers(Mode::Packs), stock, "hit of {model:?}");
        serve(&sandbox, &model.path(), &[]).load.assert_hit();
    }
}
