//! `fixture run` with our own kernels.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fixture::sound;
use crate::fixture_report::{Judged, Trial, answer};
use crate::fixture_words::FixtureRunArgs;
use packhouse_fixture::families::Family;
use packhouse_fixture::{Case, Fixture, Kernel, Promise, kernels, run_case};

/// Feeds fixtures to our own kernels and judges every row.
pub(crate) fn run(args: &FixtureRunArgs, families: &[&Family]) -> Result<Answer, Failure> {
    let promise = args.promise.into();
    let mut trials = Vec::new();
    for family in families {
        let fixture = sound(family)?;
        let cases = args.cases(&fixture);
        let kernels = chosen(args, &fixture);
        // What was named must not be passed over because something else was run.
        let is_named = args.ids.iter().any(|id| id == family.id);
        if is_named && (cases.is_empty() || kernels.is_empty()) {
            return Err(args.nothing_of(family.id));
        }
        for kernel in kernels {
            for case in &cases {
                trials.push(trial(&fixture, case, kernel, promise));
            }
        }
    }
    if trials.is_empty() {
        return Err(args.nothing());
    }
    Ok(answer(&trials))
}

/// The kernels of a fixture: all, or those of the layouts that were asked for.
fn chosen(args: &FixtureRunArgs, fixture: &Fixture) -> Vec<&'static dyn Kernel> {
    let runs_it = |kernel: &&'static dyn Kernel| {
        let layout = kernel.packs().or(fixture.layout.as_deref());
        let is_asked = |layout: &str| args.layout.iter().any(|asked| asked == layout);
        let is_named = args.layout.is_empty() || layout.is_some_and(is_asked);
        is_named && kernel.fixtures().contains(&fixture.id.as_str())
    };
    kernels::all().filter(runs_it).collect()
}

fn trial(fixture: &Fixture, case: &Case, kernel: &dyn Kernel, promise: Promise) -> Trial {
    let outcome = run_case(fixture, case, kernel).and_then(|outputs| {
        let verdicts = packhouse_fixture::judge_case(fixture, case, promise, &outputs)?;
        Ok(Judged::all(fixture, case, promise, verdicts))
    });
    Trial {
        fixture: fixture.id.clone(),
        kernel: kernel.id().to_owned(),
        width: case.width,
        arm: case.arm.clone(),
        asked: None,
        outcome: outcome.map_err(|error| vec![error.to_string()]),
    }
}
