//! The packhouse command: words, environment, exit codes.
//!
//! Each command answers with an `Answer` (text and JSON) or a `Failure`; only this file and
//! `answer` print. Exit codes: 0 done or yes, 1 a negative answer, 2 usage, 3 not executed.

#![forbid(unsafe_code)]

mod answer;
mod bar;
mod cli;
mod collect;
mod doctor;
mod equivalence;
mod export;
mod failure;
mod files;
mod fingerprint;
mod fingerprint_explain;
mod fingerprint_words;
mod fixture;
mod fixture_prepare;
mod fixture_program;
mod fixture_report;
mod fixture_run;
mod fixture_serve;
mod fixture_session;
mod fixture_verify;
mod fixture_words;
mod fleets;
mod focused;
mod focused_component;
mod focused_fixtures;
mod focused_words;
mod folders;
mod gate;
mod glance;
mod held;
mod hints;
mod image;
mod image_look;
mod image_prepare;
mod image_remove;
mod image_source;
mod image_verify;
mod image_words;
mod import;
mod index;
mod inspect;
mod keep;
mod lab;
mod lab_analyse;
mod lab_arm;
mod lab_campaign;
mod lab_devices;
mod lab_enter;
mod lab_experiment;
mod lab_frozen;
mod lab_host;
mod lab_init;
mod lab_judges;
mod lab_lane;
mod lab_lane_new;
mod lab_ledger;
mod lab_ledger_verify;
mod lab_live;
mod lab_mapped;
mod lab_open;
mod lab_page;
mod lab_ran;
mod lab_record;
mod lab_refused;
mod lab_register;
mod lab_rehearse;
mod lab_report;
mod lab_review;
mod lab_run;
mod lab_seal;
mod lab_state;
mod lab_tampers;
mod lab_templates;
mod lab_unequal;
mod lab_verify;
mod lab_withdraw;
mod lab_words;
mod layouts;
mod model;
mod model_drop;
mod model_look;
mod model_prepare;
mod model_source;
mod model_users;
mod model_words;
mod names;
mod places;
mod plans;
mod prepare;
mod ram;
mod registry;
mod registry_import;
mod registry_look;
mod registry_words;
mod repair;
mod run;
mod selection;
mod stage;
mod staged;
mod stores;
mod usage;
mod verify;
mod watch;
mod worker;
mod worker_devices;
mod worker_edits;
mod worker_holders;
mod worker_launch;
mod worker_logs;
mod worker_order;
mod worker_render;
mod worker_scope;
mod worker_start;
mod worker_status;
mod worker_stop;
mod worker_validate;
mod worker_wait;
mod worker_words;

use answer::Answer;
use clap::Parser as _;
use cli::{Cli, Command};
use failure::{Exit, Failure};
use fixture_words::FixtureCommand;
use packhouse_sys::thread::survive_file_size_limit;
use std::process::ExitCode;
use stores::Purpose::{Change, Look};

fn main() -> ExitCode {
    // It fails on no kernel; without it no child of ours could be followed.
    let _ = packhouse_sys::signal::keep_ended_children();
    let exit = match Cli::try_parse() {
        Ok(cli) => match answer(cli) {
            Ok(exit) => exit,
            Err(failure) => {
                answer::say(&failure);
                failure.exit()
            }
        },
        Err(error) => usage::explain(&error),
    };
    ExitCode::from(exit as u8)
}

fn answer(cli: Cli) -> Result<Exit, Failure> {
    // An engine that `run` becomes would inherit it.
    if !matches!(cli.command, Command::Run(_)) {
        // Without it a write past RLIMIT_FSIZE ends the process without a word, and nothing worse.
        let _ = survive_file_size_limit();
    }
    if let Command::Equivalence(args) = &cli.command
        && !args.here
    {
        return equivalence::host(args, cli.json, &places::environment);
    }
    if let Command::Export(args) = &cli.command
        && cli.json
        && args.to_stdout()
    {
        return Err(
            Failure::usage("two things on stdout", "--json and --bundle -")
                .hint("packhouse export --bundle FILE --json"),
        );
    }
    if let Command::Fixture(FixtureCommand::Serve(_)) = &cli.command
        && cli.json
    {
        return Err(Failure::usage("two things on stdout", "--json and serve")
            .hint("packhouse fixture run --json -- packhouse fixture serve"));
    }
    let answer = execute(cli.command)?;
    answer
        .print(cli.json)
        .map_err(|error| answer::unwritten(&error))
}

fn execute(command: Command) -> Result<Answer, Failure> {
    let lookup = &places::environment;
    match command {
        Command::Run(args) => run::run(args, lookup),
        Command::Env(args) => run::env(&args, lookup),
        Command::Inspect {
            model,
            tensors,
            plan,
        } => match plan {
            Some(plan) => selection::inspect(&model, &plan, tensors, lookup),
            None => inspect::inspect(&model, tensors),
        },
        Command::Plans { plan } => plans::plans(plan.as_deref(), lookup),
        Command::Layouts => Ok(layouts::layouts()),
        Command::Watch(args) => {
            if let Some(line) = watch::watch(&args) {
                answer::say(format_args!("{line}\n"));
            }
            Ok(Answer::done(String::new(), serde_json::Value::Null))
        }
        Command::Prepare(args) => prepare::prepare(&args, lookup),
        Command::Index { set, output } => {
            let stores = stores::open(Look, lookup)?;
            index::index(&stores, set.as_deref(), output.as_deref())
        }
        Command::Equivalence(args) => equivalence::compare(&args, lookup),
        Command::Repair(args) => repair::repair(&args, lookup),
        Command::Verify {
            set,
            deep,
            prove,
            threads,
        } => verify::verify(
            &stores::open(Change, lookup)?,
            set.as_deref(),
            verify::Asked::new(deep, prove),
            threads,
        ),
        Command::Scrub { budget } => verify::scrub(&stores::open(Change, lookup)?, budget),
        Command::Gc { dry_run, shared } => {
            collect::collect(&stores::open(Change, lookup)?, dry_run, shared, lookup)
        }
        Command::Rm { set } => names::remove(&stores::open(Change, lookup)?, &set),
        Command::Pin { set, name } => {
            let stores = stores::open(Change, lookup)?;
            names::pin(&stores, set.as_deref(), name.as_deref())
        }
        Command::Unpin { pin } => names::unpin(&stores::open(Change, lookup)?, &pin),
        Command::Export(args) => export::export(&args, lookup),
        Command::Import(args) => import::import(&args, lookup),
        Command::Stage(args) => stage::stage(&args, lookup),
        Command::StageValidate(args) => stage::validate(&args, lookup),
        Command::Unstage(args) => stage::unstage(&args, lookup),
        Command::Ls => glance::list(stores::open_if_there(Look, lookup)?.as_ref(), lookup),
        Command::Du => glance::usage(stores::open_if_there(Look, lookup)?.as_ref(), lookup),
        Command::Image(command) => image::execute(command, lookup),
        Command::Model(command) => model::execute(command, lookup),
        Command::Worker(command) => worker::execute(command, lookup),
        Command::Registry(command) => registry::execute(command, lookup),
        Command::Fixture(command) => fixture::execute(command, lookup),
        Command::Fingerprint(args) => fingerprint::execute(&args, lookup),
        Command::Focused(args) => focused::execute(&args, lookup),
        Command::Lab(args) => lab::execute(args, lookup),
        Command::Keep(args) => keep::keep(&args),
        Command::Gate(args) => gate::gate(args),
        Command::Doctor => doctor::examine(stores::open_if_there(Change, lookup)?.as_ref(), lookup),
    }
}
