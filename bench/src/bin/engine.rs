//! `engine --model GGUF [--rounds N] [--modes stock,no-repack,hit,fill] [--decode N] [--prompt N]
//! [--cold] [--out DIR]`: the interleaved run, its evidence file and its table.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program: it reads its arguments, writes its evidence and prints its table"
)]

use engine_tests::{Sandbox, places};
use packhouse_bench::engine::{self, Mode, Plan};
use packhouse_bench::host;
use serde_json::{Value, json};
use std::error::Error;
use std::fs;
use std::path::PathBuf;

struct Arguments {
    plan: Plan,
    rounds: usize,
    modes: Vec<Mode>,
    out: PathBuf,
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments {
        plan,
        rounds,
        modes,
        out,
    } = parse(std::env::args().skip(1))?;
    let mut evidence = json!({
        "schema": "packhouse/bench/engine/1",
        "host": host::identity(),
        "model": host::file_identity(&plan.model)?,
        "engine_cpu_library": host::file_identity(&places::engine_bin().join("libggml-cpu.so"))?,
        "plan": {
            "decode_tokens": plan.decode_tokens, "prompt_words": plan.prompt_words,
            "cold": plan.cold, "threads": 2,
        },
    });
    let filled = Sandbox::new();
    if modes.contains(&Mode::Hit) {
        evidence["plugin"] = host::file_identity(&places::plugin())?;
        evidence["first_fill"] = engine::fill_store(&filled, &plan)?;
    }
    let mut all = Vec::new();
    for round in 0..rounds {
        all.push(run_round(&filled, &modes, &plan, round)?);
        evidence["rounds"] = json!(all);
        write(&out, &plan, &evidence)?;
    }
    println!("{}", engine::render(&evidence));
    Ok(())
}

/// Every round begins with another mode, so no mode always follows the same one.
fn run_round(
    filled: &Sandbox,
    modes: &[Mode],
    plan: &Plan,
    round: usize,
) -> Result<Vec<Value>, Box<dyn Error>> {
    let mut legs = Vec::new();
    let mut tokens: Option<Vec<i64>> = None;
    for index in 0..modes.len() {
        let mode = modes[(round + index) % modes.len()];
        let own = Sandbox::new();
        let sandbox = if mode == Mode::Hit { filled } else { &own };
        let leg = engine::run_leg(sandbox, mode, plan)?;
        eprintln!("round {round} {}: {}", mode.name(), leg.figures);
        // Without repacking other kernels compute, so its tokens may differ; all others may not.
        if mode != Mode::NoRepack {
            match &tokens {
                Some(tokens) if *tokens != leg.tokens => {
                    return Err(format!("{}: other tokens than stock", mode.name()).into());
                }
                Some(_) => {}
                None => tokens = Some(leg.tokens.clone()),
            }
        }
        legs.push(leg.figures);
    }
    Ok(legs)
}

fn write(out: &PathBuf, plan: &Plan, evidence: &Value) -> Result<(), Box<dyn Error>> {
    fs::create_dir_all(out)?;
    let name = if plan.cold { "engine-cold" } else { "engine" };
    let text = serde_json::to_string_pretty(evidence)?;
    fs::write(out.join(format!("{name}.json")), text + "\n")?;
    fs::write(out.join(format!("{name}.md")), engine::render(evidence))?;
    Ok(())
}

fn parse(mut words: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    let mut arguments = Arguments {
        plan: Plan {
            model: PathBuf::new(),
            decode_tokens: 17,
            prompt_words: 64,
            cold: false,
        },
        rounds: 9,
        modes: Mode::ALL.to_vec(),
        out: places::target().join("bench"),
    };
    while let Some(flag) = words.next() {
        if flag == "--cold" {
            arguments.plan.cold = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("no value for {flag}"))?;
        match flag.as_str() {
            "--model" => arguments.plan.model = value.into(),
            "--rounds" => arguments.rounds = value.parse()?,
            "--decode" => arguments.plan.decode_tokens = value.parse()?,
            "--prompt" => arguments.plan.prompt_words = value.parse()?,
            "--out" => arguments.out = value.into(),
            "--modes" => arguments.modes = value.split(',').map(mode).collect::<Result<_, _>>()?,
            other => return Err(format!("unknown option: {other}").into()),
        }
    }
    if arguments.plan.model.as_os_str().is_empty() {
        return Err("no model: give --model GGUF".into());
    }
    Ok(arguments)
}

fn mode(name: &str) -> Result<Mode, String> {
    let found = Mode::ALL.into_iter().find(|mode| mode.name() == name);
    found.ok_or_else(|| format!("unknown mode: {name}"))
}
