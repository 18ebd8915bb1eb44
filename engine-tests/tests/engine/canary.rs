//! A comparison that never failed proves nothing: an engine with a wrong packer must be noticed.

use engine_tests::mutant::engine_with_wrong_packer;
use engine_tests::{Mode, Model, Sandbox, logits};

#[test]
fn a_wrong_packer_changes_the_logits() {
    let sandbox = Sandbox::new();
    let model = Model::SmolLm2.path();
    let mutant = engine_with_wrong_packer(sandbox.path()).join("logits");
    let program = mutant.to_str().expect("the build folder's name is UTF-8");
    let stock = logits::run(&sandbox, Mode::Stock, &model, &[]);
    let wrong = logits::run_program(&sandbox, program, Mode::Stock, &model, &[]);
    assert_ne!(stock.steps[0], wrong.steps[0]);
}
