//! `prepare`: makes a model's set under a plan, or finds it.

use crate::answer::Answer;
use crate::bar::Bar;
use crate::cli::PrepareArgs;
use crate::failure::{Failure, quoted};
use crate::files::{open_regular, own_path};
use crate::inspect;
use crate::places::Lookup;
use crate::plans;
use crate::stores::{self, short};
use packhouse_base::digest::Digest;
use packhouse_base::units;
use packhouse_container::{FileSource, TensorDirectory, shard_name};
use packhouse_pack::Packers;
use packhouse_prepare::model::{Model, ModelError};
use packhouse_prepare::plan::Plan;
use packhouse_prepare::prepare::{
    How, Options, Order, PrepareError, Prepared, SourceHash, prepare as make,
};
use packhouse_store::container_record::Admission;
use packhouse_store::reserve::RoomError;
use packhouse_store::set::SetOutcome;
use packhouse_sys::fs::File;
use packhouse_sys::memory::MemoryRoom;
use packhouse_sys::real::file_of_fd;
use packhouse_sys::signal;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Prepares a model. A signal ends it cleanly: what is published stays.
pub(crate) fn prepare(args: &PrepareArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let expected = digests(&args.sha256, &args.model)?;
    let plan = plans::find(&args.plan, lookup)?.plan;
    let model = open_model(&args.model)?;
    let order = order(&args.model, &model, &plan)?;
    let mut options = options(args.threads, args.lock_timeout);
    options.expected = expected;
    if args.skip_source_hash {
        options.source_hash = SourceHash::Skip;
    }
    let store = stores::make(lookup)?;
    // Without it a signal ends the process at once, which a store bears too.
    let _ = signal::catch_once();
    let bar = Bar::new();
    let made = make(&store, &model, &order, &options, &bar, &signal::was_caught);
    drop(bar);
    let again = format!(
        "packhouse prepare {} --plan {}",
        quoted(&args.model),
        quoted(&args.plan)
    );
    let prepared = made.map_err(|error| failure(&args.model, &error, again))?;
    Ok(Answer::done(
        text(&prepared, &args.model, &plan),
        document(&prepared, &args.model, &plan),
    ))
}

/// What both `prepare` and `repair` do unless told otherwise.
pub(crate) fn options(threads: Option<NonZeroUsize>, lock_timeout_s: u64) -> Options {
    let every = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let room = MemoryRoom::now();
    let available_bytes = room
        .available_bytes
        .into_iter()
        .chain(room.group_bytes)
        .min();
    Options {
        threads: threads.unwrap_or(every),
        source_hash: SourceHash::Whole,
        expected: Vec::new(),
        lock_timeout_ns: lock_timeout_s.saturating_mul(1_000_000_000),
        memory_bytes: (available_bytes.unwrap_or(0) / MEMORY_DIVISOR).max(MEMORY_BYTES_MIN),
        memory_max_bytes: available_bytes.unwrap_or(u64::MAX),
        process_id: std::process::id(),
    }
}

/// Opens a model with all its shards.
pub(crate) fn open_model(path: &Path) -> Result<Model, Failure> {
    let first = open_regular(path).map_err(|error| inspect::unreadable(path, &error))?;
    let source = FileSource::new(&first).map_err(|error| inspect::unreadable(path, &error))?;
    let split = TensorDirectory::parse(&source).ok().and_then(|d| d.split());
    let files = match split {
        Some(split) if split.count > 1 => {
            let paths = shard_name::sibling_paths(path).map_err(|error| {
                Failure::new("cannot find the other shards of", path.display())
                    .because(&error)
                    .hint(format!(
                        "ls {}",
                        quoted(path.parent().unwrap_or(Path::new(".")))
                    ))
            })?;
            paths
                .iter()
                .map(|path| open_file(path))
                .collect::<Result<_, _>>()?
        }
        Some(_) | None => vec![file_of(first, path)?],
    };
    Model::open(files).map_err(|error| unusable(path, &error))
}

/// What a plan orders of a model.
pub(crate) fn order(path: &Path, model: &Model, plan: &Plan) -> Result<Order, Failure> {
    let packers = Packers::detect();
    let container = model.container();
    let selection = plan
        .select(container, &plans::context(&packers))
        .map_err(|error| plans::unfit(path, container, &error))?;
    Order::new(plan, &selection, &packers).map_err(|error| {
        Failure::new("no packer here for the model", path.display())
            .because(&error)
            .hint(format!("packhouse inspect {} --tensors", quoted(path)))
    })
}

/// Says why a set could not be made.
pub(crate) fn failure(path: &Path, error: &PrepareError, again: String) -> Failure {
    let (model, word) = (path.display(), quoted(path));
    match error {
        PrepareError::Model(error) => unusable(path, error),
        PrepareError::Cancelled { .. } => Failure::new("stopped", &model)
            .because(error)
            .cause("what is published stays; the next run makes the rest")
            .hint(again),
        PrepareError::SourceDigest { path, .. } => {
            Failure::new("not the model that was demanded", path.display())
                .because(error)
                .hint(format!("sha256sum {}", quoted(path)))
        }
        PrepareError::DigestCount { .. } => Failure::usage("wrong number of --sha256", &model)
            .because(error)
            .hint(format!("packhouse inspect {word}")),
        PrepareError::ReadOnly { .. } => Failure::new("cannot prepare", &model)
            .because(error)
            .hint("unset PACKHOUSE_READONLY"),
        PrepareError::Room { source, .. } => Failure::new("cannot prepare", &model)
            .because(error)
            .hint(match source {
                RoomError::Cap { room, .. } if room.held_bytes > 0 => "packhouse gc",
                // Nothing to collect, or the disk is full of something else: the figures.
                RoomError::Cap { .. }
                | RoomError::Free { .. }
                | RoomError::Spent { .. }
                | RoomError::Busy { .. }
                | RoomError::Lock(_)
                | RoomError::Folder(_)
                | RoomError::Fs(_) => "packhouse du",
            }),
        PrepareError::LockTimeout { .. } => Failure::new("cannot prepare", &model)
            .because(error)
            .hint(format!("{again} --lock-timeout 3600")),
        PrepareError::NothingChosen { .. } => Failure::new("cannot prepare", &model)
            .because(error)
            .hint(format!("packhouse inspect {word} --tensors")),
        PrepareError::Threads { .. } => Failure::new("cannot prepare", &model)
            .because(error)
            .hint("ulimit -u"),
        PrepareError::Manifest(_)
        | PrepareError::Container(_)
        | PrepareError::Memory { .. }
        | PrepareError::Lock(_)
        | PrepareError::NotDeterministic { .. }
        | PrepareError::Object { .. }
        | PrepareError::Record { .. }
        | PrepareError::Stuck { .. }
        | PrepareError::Unfinished { .. }
        | PrepareError::Publish(_)
        | PrepareError::Pack(_)
        | PrepareError::Set(_) => Failure::new("cannot prepare", &model)
            .because(error)
            .hint("packhouse doctor"),
    }
}

/// Says why a model can't be read.
pub(crate) fn unusable(path: &Path, error: &ModelError) -> Failure {
    let what = match error {
        ModelError::Kind { .. } | ModelError::Fs(_) => "cannot read the model",
        ModelError::Directory { .. } => "not a GGUF file that can be read",
        ModelError::Shards { .. } => "not the shards of one model",
        ModelError::Changed { .. } | ModelError::EndsEarly { .. } => {
            "the model changed while it was read"
        }
    };
    Failure::new(what, path.display())
        .because(error)
        .hint(format!("ls -l {}", quoted(path)))
}

fn digests(texts: &[String], model: &Path) -> Result<Vec<Digest>, Failure> {
    let parse = |text: &String| {
        Digest::parse(text).map_err(|error| {
            Failure::usage("not a SHA-256", text)
                .because(&error)
                .hint(format!("sha256sum {}", quoted(model)))
        })
    };
    texts.iter().map(parse).collect()
}

fn open_file(path: &Path) -> Result<File, Failure> {
    let file = open_regular(path).map_err(|error| inspect::unreadable(path, &error))?;
    file_of(file, path)
}

/// The path is made absolute: it goes into the use log. What names a descriptor, as /dev/stdin
/// does, means another file at each time: the file's own path is taken.
fn file_of(file: std::fs::File, path: &Path) -> Result<File, Failure> {
    let mut absolute =
        std::path::absolute(path).map_err(|error| inspect::unreadable(path, &error))?;
    if DESCRIPTORS
        .iter()
        .any(|folder| absolute.starts_with(folder))
    {
        absolute = own_path(&file).ok_or_else(|| {
            Failure::new("the model has no path any more", path.display())
                .cause("a set's record names the file that it was made of")
                .hint("packhouse prepare model.gguf --plan ggml-cpu")
        })?;
    }
    Ok(file_of_fd(OwnedFd::from(file), absolute))
}

fn text(prepared: &Prepared, model: &Path, plan: &Plan) -> String {
    let (reused, packed, healed) = counts(prepared);
    let cost = &prepared.cost;
    let mut text = String::new();
    for tensor in &prepared.tensors {
        if let How::Healed { was } = &tensor.how {
            text += &format!("healed {}: {was}\n", tensor.tensor);
        }
    }
    let outcome = match prepared.outcome {
        SetOutcome::Created => "made",
        SetOutcome::Equal => "was there",
        SetOutcome::Repaired => "repaired",
    };
    let bytes: u64 = prepared
        .tensors
        .iter()
        .map(|tensor| tensor.payload_bytes)
        .sum();
    text += &format!(
        "set {} {outcome}: {} tensors ({}), {packed} packed, {reused} reused, {healed} healed\n",
        short(&prepared.set),
        prepared.tensors.len(),
        units::bytes(bytes),
    );
    text += &format!(
        "read {}, wrote {} in {}",
        units::bytes(cost.source_bytes),
        units::bytes(cost.written_bytes),
        units::duration_ns(cost.duration_ns),
    );
    if cost.written_bytes > 0 {
        let made_ns = cost.duration_ns.saturating_sub(cost.settle_ns).max(1);
        let rate = u128::from(cost.source_bytes) * 1_000_000_000 / u128::from(made_ns);
        let rate = units::bytes(u64::try_from(rate).unwrap_or(u64::MAX));
        text += &format!(" ({rate}/s)");
    }
    if cost.reverified_count > 0 {
        let (count, bytes) = (cost.reverified_count, units::bytes(cost.reverified_bytes));
        text += &format!(", hashed {count} objects without receipt again ({bytes})");
    }
    text += match prepared.admission {
        Admission::Hashed => "; source hashed as a whole\n",
        Admission::Skipped => "; source not hashed as a whole, each tensor was\n",
    };
    for complaint in &prepared.complaints {
        text += &format!("could not be noted: {complaint}\n");
    }
    text + &format!("next: {}\n", next(prepared, model, plan))
}

/// The command that most users want after it.
fn next(prepared: &Prepared, model: &Path, plan: &Plan) -> String {
    match plan.name() {
        "ggml-cpu" => format!("packhouse run -- llama-server -m {}", quoted(model)),
        _ => format!("packhouse stage {}", short(&prepared.set)),
    }
}

/// Tensors reused, packed, healed.
fn counts(prepared: &Prepared) -> (usize, usize, usize) {
    let count = |wanted: fn(&How) -> bool| {
        let tensors = prepared.tensors.iter();
        tensors.filter(|tensor| wanted(&tensor.how)).count()
    };
    (
        count(|how| matches!(how, How::Reused)),
        count(|how| matches!(how, How::Packed)),
        count(|how| matches!(how, How::Healed { .. })),
    )
}

fn document(prepared: &Prepared, model: &Path, plan: &Plan) -> Value {
    let (reused, packed, healed) = counts(prepared);
    let cost = &prepared.cost;
    let tensors: Vec<Value> = prepared
        .tensors
        .iter()
        .map(|tensor| {
            let (how, was) = match &tensor.how {
                How::Reused => ("reused", None),
                How::Packed => ("packed", None),
                How::Healed { was } => ("healed", Some(was)),
            };
            json!({
                "slot": tensor.slot,
                "tensor": tensor.tensor,
                "payload_bytes": tensor.payload_bytes,
                "how": how,
                "was": was,
            })
        })
        .collect();
    json!({
        "set": prepared.set.to_string(),
        "plan": plan.name(),
        "model": model.display().to_string(),
        "outcome": match prepared.outcome {
            SetOutcome::Created => "created",
            SetOutcome::Equal => "equal",
            SetOutcome::Repaired => "repaired",
        },
        "admission": match prepared.admission {
            Admission::Hashed => "hashed",
            Admission::Skipped => "skipped",
        },
        "tensor_count": prepared.tensors.len(),
        "reused_count": reused,
        "packed_count": packed,
        "healed_count": healed,
        "source_bytes": cost.source_bytes,
        "written_bytes": cost.written_bytes,
        "reverified_count": cost.reverified_count,
        "reverified_bytes": cost.reverified_bytes,
        "duration_ns": cost.duration_ns,
        "settle_ns": cost.settle_ns,
        "complaints": prepared.complaints,
        "tensors": tensors,
    })
}

/// Where paths are names of descriptors.
const DESCRIPTORS: [&str; 2] = ["/dev", "/proc"];
/// The share of the available memory that sources and payloads may take.
const MEMORY_DIVISOR: u64 = 4;
const MEMORY_BYTES_MIN: u64 = 64 << 20;
