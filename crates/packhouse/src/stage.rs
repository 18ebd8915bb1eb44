//! `stage`, `stage-validate` and `unstage`: verified copies of sets in RAM.

use crate::answer::{Answer, Column, table};
use crate::bar::Bar;
use crate::cli::{StageArgs, StageValidateArgs, UnstageArgs};
use crate::failure::{Exit, Failure, quoted};
use crate::model_look::CopiesAtAGlance;
use crate::places::Lookup;
use crate::stores::{self, Purpose, short};
use packhouse_base::Blame;
use packhouse_base::digest::SetKey;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_stage::{
    Condemned, CopyError, Depth, MIN_FREE_BYTES, StageError, StageEvent, StageMiss, StageOptions,
    StageOutcome, StageRoot, StageRootError, StageValidation, Staged, StagedRefusal, UnstageError,
    Watcher,
};
use packhouse_store::container_record::{Admission, ContainerRecord};
use packhouse_store::root::{Owners, Store};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Fs as _, FsError};
use packhouse_sys::real::RealFs;
use packhouse_sys::signal;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Makes sure that a verified copy of a set is in RAM.
pub(crate) fn stage(args: &StageArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let began_ns = RealClock.steady_ns();
    let store = open_store(lookup)?;
    let set = stores::find_set(&store, args.set.as_deref())?;
    let path = root_path(args.root.as_deref(), lookup)?;
    not_in_store(&path, &store.config().root, "packhouse stage --root DIR")?;
    let root = open_root(&path, true).map_err(|error| unusable(&path, &error))?;
    let mut options = StageOptions {
        min_free_bytes: args.min_free.unwrap_or(MIN_FREE_BYTES),
        wait_ns: args.lock_timeout.saturating_mul(1_000_000_000),
        ..StageOptions::default()
    };
    if let Some(threads) = args.threads {
        options.threads = threads;
    }
    // Without it a signal ends the process at once, and the next stager clears up.
    let _ = signal::catch_once();
    let bar = Bar::new();
    let tell = |event: StageEvent| match event {
        StageEvent::Waits => bar.note("another process stages it; waiting"),
        StageEvent::Begin { bytes } => bar.start("copy", bytes),
        StageEvent::Copied { bytes } => bar.done(bytes),
        StageEvent::Settle { .. } => bar.note("all are hashed; waiting until their times tell"),
    };
    let watcher = Watcher {
        tell: &tell,
        cancel: &signal::was_caught,
    };
    let staged = packhouse_stage::stage(&store, &root, set, &options, watcher);
    drop(bar);
    let staged = staged.map_err(|error| not_staged(set, &path, &error))?;
    let duration_ns = RealClock.steady_ns().saturating_sub(began_ns);
    let admission = admission(&store, set);
    let mut text = staged_text(&staged, duration_ns);
    let mut document = staged_document(&staged, duration_ns);
    text += admission_line(admission);
    document["admission"] = admission.map(Admission::name).into();
    document["own_store"] = (staged.store == store.id()).into();
    if staged.store != store.id() {
        let other = staged.store;
        text += &format!("made from another store ({other}), whose gc removes it with its set\n");
    }
    Ok(Answer::done(text, document))
}

/// How well the source of a set was hashed, by the best of its container records.
fn admission(store: &Store, set: SetKey) -> Option<Admission> {
    let found = store.read_container_records(set).ok()?;
    let records = found.records.iter();
    records.map(ContainerRecord::admission).max()
}

/// A line where there is something to say: equal tensors, but of a file that nobody vouches for.
fn admission_line(admission: Option<Admission>) -> &'static str {
    match admission {
        Some(Admission::Skipped) => "source not hashed as a whole, each tensor was\n",
        Some(Admission::Hashed) | None => "",
    }
}

/// Refuses a folder of stages that lies in the store, before anything is made there.
pub(crate) fn not_in_store(path: &Path, store: &Path, hint: &str) -> Result<(), Failure> {
    if !real(path).starts_with(real(store)) {
        return Ok(());
    }
    Err(
        Failure::usage("the folder of stages is in the store", path.display())
            .cause("what is in a store is the store's alone")
            .hint(hint),
    )
}

/// Compares a stage with its receipts, or hashes all of it. The answer is negative when anything is
/// wrong with it.
pub(crate) fn validate(args: &StageValidateArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = root_path(args.root.as_deref(), lookup)?;
    let root = open_root(&path, false).map_err(|error| unusable(&path, &error))?;
    let set = find_staged(&root, args.set.as_deref())?;
    let depth = match (args.deep, args.threads) {
        (false, None) => Depth::Shallow,
        (false, Some(threads)) => {
            return Err(Failure::usage("threads without --deep", threads)
                .cause("only hashing uses threads")
                .hint(format!(
                    "packhouse stage-validate {} --deep --threads {threads}",
                    short(&set)
                )));
        }
        (true, threads) => Depth::Deep {
            threads: threads.unwrap_or_else(|| {
                std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
            }),
        },
    };
    let bar = Bar::new();
    if args.deep
        && let Ok(staged) = packhouse_stage::open(&root, set)
    {
        bar.start("verify", staged.copied_bytes());
    }
    let found = packhouse_stage::validate(&root, set, depth, &|bytes| bar.done(bytes));
    drop(bar);
    if !found.is_good() && blames(&found).all(|blame| blame == Blame::Host) {
        return Err(unreadable(&found, &path));
    }
    let exit = if found.is_good() {
        Exit::Done
    } else {
        Exit::Negative
    };
    // The stage needs no store; where there is none, nothing is known of the source.
    let store = stores::open(Purpose::Look, lookup).ok();
    let admission = store.and_then(|store| admission(&store, set));
    let mut json = found_document(&found, args.deep);
    json["admission"] = admission.map(Admission::name).into();
    Ok(Answer {
        text: found_text(&found, args.deep) + admission_line(admission),
        json,
        exit,
    })
}

/// Removes stages of one set, or of all.
pub(crate) fn unstage(args: &UnstageArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let path = root_path(args.root.as_deref(), lookup)?;
    if let (Some(set), true) = (&args.set, args.all) {
        return Err(Failure::usage("a set and --all", set)
            .cause("--all removes the stages of every set")
            .hint("packhouse unstage --all"));
    }
    let root = match open_root(&path, false) {
        Err(error) if args.all && error.is_missing() => return Ok(unstaged(&[], 0, &[], "")),
        other => other.map_err(|error| unusable(&path, &error))?,
    };
    let sets = if args.all {
        staged_sets(&root)?
    } else {
        vec![find_staged(&root, args.set.as_deref())?]
    };
    let mut bytes = 0;
    for set in &sets {
        match packhouse_stage::unstage(&root, *set) {
            Ok(gone) => bytes += gone.bytes,
            // Another process was faster.
            Err(UnstageError::Absent { .. }) => {}
            Err(error) => {
                return Err(Failure::new("cannot remove the stage", short(set))
                    .because(&error)
                    .hint(format!("ls -la {}", path.display())));
            }
        }
    }
    let strangers = if args.all {
        packhouse_stage::strangers(&root).map_err(|error| unlisted(&root, &error))?
    } else {
        Vec::new()
    };
    // They are no sets, and stay: whoever wants all of the memory back is told.
    let copies = match args.all && args.root.is_none() {
        true => CopiesAtAGlance::of(lookup).line(),
        false => String::new(),
    };
    Ok(unstaged(&sets, bytes, &strangers, &copies))
}

/// Lines for the names that are no stage's.
pub(crate) fn stranger_lines(names: &[String]) -> String {
    let lines = names.iter().map(|name| {
        let name = Shown(name);
        format!("no stage by its name, stays: {name}\n")
    });
    lines.collect()
}

/// A path with the symlinks of what is there of it resolved.
#[expect(
    clippy::disallowed_methods,
    reason = "only compares where two folders lie; what is opened is walked by descriptor"
)]
pub(crate) fn real(path: &Path) -> PathBuf {
    let found = path.ancestors().find_map(|ancestor| {
        let rest = path.strip_prefix(ancestor).ok()?;
        Some(ancestor.canonicalize().ok()?.join(rest))
    });
    found.unwrap_or_else(|| path.to_owned())
}

/// The folder of stages: as given, else of the environment, else the user's own in RAM.
pub(crate) fn root_path(given: Option<&Path>, lookup: Lookup<'_>) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return std::path::absolute(given).map_err(|error| {
            Failure::usage("not a folder for stages", given.display()).because(&error)
        });
    }
    let Some(path) = lookup("PACKHOUSE_STAGE").map(PathBuf::from) else {
        return Ok(packhouse_stage::default_root(RealFs.effective_uid()));
    };
    if path.is_relative() {
        return Err(
            Failure::usage("the stage's folder is a relative path", path.display())
                .cause("PACKHOUSE_STAGE must be absolute: engines change their working folder")
                .hint("unset PACKHOUSE_STAGE"),
        );
    }
    Ok(path)
}

/// Opens the folder of stages.
pub(crate) fn open_root(path: &Path, make: bool) -> Result<StageRoot, StageRootError> {
    let owners = Owners::new(RealFs.effective_uid(), &[]);
    let (fs, clock) = (Arc::new(RealFs), Arc::new(RealClock));
    if make {
        StageRoot::make(fs, clock, path, &owners)
    } else {
        StageRoot::open(fs, clock, path, &owners)
    }
}

/// Why a folder of stages is of no use, with what helps.
pub(crate) fn unusable(path: &Path, error: &StageRootError) -> Failure {
    if error.is_missing() {
        return Failure::new("nothing is staged here", path.display()).hint("packhouse stage");
    }
    let hint = match error {
        StageRootError::Mode { path, .. } => format!("chmod 700 {}", quoted(path)),
        StageRootError::Path(_) | StageRootError::Owner { .. } | StageRootError::Remote { .. } => {
            format!("ls -ld {}", quoted(path))
        }
    };
    Failure::new("cannot use the folder of stages", path.display())
        .because(error)
        .hint(hint)
}

/// Opens the store for reading, and for moving damaged objects away where it can be written.
fn open_store(lookup: Lookup<'_>) -> Result<Store, Failure> {
    stores::open(Purpose::Change, lookup).or_else(|_| stores::open(Purpose::Look, lookup))
}

fn staged_sets(root: &StageRoot) -> Result<Vec<SetKey>, Failure> {
    packhouse_stage::list_sets(root).map_err(|error| unlisted(root, &error))
}

fn unlisted(root: &StageRoot, error: &FsError) -> Failure {
    Failure::new("cannot list the stages", root.path().display())
        .because(error)
        .hint(format!("ls -la {}", root.path().display()))
}

fn find_staged(root: &StageRoot, digits: Option<&str>) -> Result<SetKey, Failure> {
    let none =
        || Failure::new("nothing is staged here", root.path().display()).hint("packhouse stage");
    stores::choose(staged_sets(root)?, digits, "stage root", none)
}

fn not_staged(set: SetKey, root: &Path, error: &StageError) -> Failure {
    let key = short(&set);
    match error {
        StageError::Set(_) => Failure::new("cannot stage the set", &key)
            .because(error)
            .hint(format!("packhouse verify {key}")),
        StageError::Room { source, .. } => Failure::new("no room to stage the set", &key)
            .because(source)
            .hint("packhouse unstage --all"),
        StageError::Copy(CopyError::Cancelled) => {
            Failure::new("stopped while staging the set", &key)
                .cause("what was copied is removed")
                .hint(format!("packhouse stage {key}"))
        }
        StageError::Copy(CopyError::Source(_)) => Failure::new("cannot stage the set", &key)
            .because(error)
            .hint(format!("packhouse repair {key}")),
        StageError::Busy { .. } => Failure::new("another process stages the set", &key)
            .because(error)
            .hint(format!("packhouse stage {key} --lock-timeout 3600")),
        StageError::Copy(CopyError::Unstable { .. } | CopyError::Fs(_))
        | StageError::Changed { .. }
        | StageError::Clock { .. }
        | StageError::Fs(_) => Failure::new("cannot stage the set", &key)
            .because(error)
            .hint(format!("ls -la {}", root.display())),
    }
}

fn staged_text(staged: &Staged, duration_ns: u64) -> String {
    let set = short(&staged.set);
    let (tensors, bytes) = (staged.tensor_count, units::bytes(staged.bytes));
    let path = staged.path.display();
    let took = units::duration_ns(duration_ns);
    let what = format!("set {set}: {tensors} tensors ({bytes})");
    match &staged.outcome {
        StageOutcome::Reused => format!("{what} staged already in {path}\n"),
        StageOutcome::Copied { .. } => format!("{what} copied and hashed in {took} to {path}\n"),
        StageOutcome::Replaced { why, .. } => {
            format!("{what} copied anew and hashed in {took} to {path}\nthe one before: {why}\n")
        }
    }
}

fn staged_document(staged: &Staged, duration_ns: u64) -> Value {
    let (outcome, copied_bytes, why) = match &staged.outcome {
        StageOutcome::Reused => ("reused", 0, None),
        StageOutcome::Copied { bytes } => ("copied", *bytes, None),
        StageOutcome::Replaced { bytes, why } => ("replaced", *bytes, Some(why.to_string())),
    };
    json!({
        "set": staged.set.to_string(),
        "generation": staged.generation,
        "path": staged.path.display().to_string(),
        "outcome": outcome,
        "why": why,
        "tensor_count": staged.tensor_count,
        "object_count": staged.object_count,
        "bytes": staged.bytes,
        "copied_bytes": copied_bytes,
        "store": staged.store.to_string(),
        "duration_ns": duration_ns,
    })
}

fn blames(found: &StageValidation) -> impl Iterator<Item = Blame> {
    let tensors = found.bad_tensors().filter_map(|bad| bad.problem.as_ref());
    let whole = found.miss.iter().map(StageMiss::blame);
    whole.chain(tensors.map(StagedRefusal::blame))
}

/// Nothing is known to be wrong with the bytes, but they could not be looked at.
fn unreadable(found: &StageValidation, root: &Path) -> Failure {
    let tensors = found.bad_tensors().filter_map(|bad| bad.problem.as_ref());
    let miss = found.miss.iter().map(ToString::to_string);
    let first = miss.chain(tensors.map(ToString::to_string)).next();
    Failure::new("cannot read all of the stage", short(&found.set))
        .cause(first.unwrap_or_default())
        .hint(format!("ls -la {}", root.display()))
}

fn found_text(found: &StageValidation, deep: bool) -> String {
    let set = short(&found.set);
    if let Some(miss) = &found.miss {
        return format!("stage: {miss}\nset {set}: the stage is of no use as a whole\n");
    }
    let rows: Vec<Vec<String>> = found
        .bad_tensors()
        .filter_map(|bad| {
            let problem = bad.problem.as_ref()?;
            let slot = bad.entry.slot.to_string();
            Some(vec![slot, bad.entry.tensor.clone(), problem.to_string()])
        })
        .collect();
    let depth = if deep {
        let bytes = units::bytes(found.hashed_bytes);
        format!("{} copies hashed ({bytes})", found.hashed_count)
    } else {
        "no copy hashed (--deep does)".to_owned()
    };
    let (bad, total) = (rows.len(), found.tensors.len());
    let good = total - bad;
    let condemned = match &found.condemned {
        Condemned::No => String::new(),
        Condemned::Yes => format!("stage of set {set} is out of service\n"),
        Condemned::Failed(error) => format!(
            "stage of set {set} could not be taken out of service: {error}\n\
             remove it with: packhouse unstage {set}\n"
        ),
    };
    table(&[Column::Right, Column::Left, Column::Left], &rows)
        + &condemned
        + &format!("staged set {set}: {good} of {total} tensors good, {bad} bad; {depth}\n")
}

fn found_document(found: &StageValidation, deep: bool) -> Value {
    let tensors: Vec<Value> = found
        .bad_tensors()
        .filter_map(|bad| {
            let problem = bad.problem.as_ref()?;
            Some(json!({
                "slot": bad.entry.slot,
                "tensor": bad.entry.tensor,
                "pack": bad.entry.pack.to_string(),
                "object": bad.entry.object.to_string(),
                "reason": problem.reason(),
                "text": problem.to_string(),
            }))
        })
        .collect();
    json!({
        "set": found.set.to_string(),
        "generation": found.generation,
        "good": found.is_good(),
        "deep": deep,
        "problem": found.miss.as_ref().map(ToString::to_string),
        "reason": found.miss.as_ref().map(StageMiss::reason),
        "tensor_count": found.tensors.len(),
        "bad_count": tensors.len(),
        "hashed_count": found.hashed_count,
        "hashed_bytes": found.hashed_bytes,
        "condemned": found.condemned == Condemned::Yes,
        "bad_tensors": tensors,
    })
}

fn unstaged(sets: &[SetKey], bytes: u64, strangers: &[String], copies: &str) -> Answer {
    let keys: Vec<String> = sets.iter().map(SetKey::to_string).collect();
    let what = match sets.len() {
        1 => "1 set".to_owned(),
        count => format!("{count} sets"),
    };
    let bytes_text = units::bytes(bytes);
    let text = format!(
        "unstaged {what} ({bytes_text}); what is mapped stays until its users end\n{}{copies}",
        stranger_lines(strangers)
    );
    Answer::done(
        text,
        json!({ "sets": keys, "bytes": bytes, "strangers": strangers }),
    )
}
