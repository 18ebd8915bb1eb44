//! `repair`: makes again exactly what is wrong with a set.

use crate::answer::{Answer, Column, table};
use crate::bar::Bar;
use crate::cli::RepairArgs;
use crate::failure::{Exit, Failure};
use crate::places::Lookup;
use crate::stores::{self, Purpose, short};
use crate::{plans, prepare, verify};
use packhouse_base::digest::SetKey;
use packhouse_pack::Packers;
use packhouse_prepare::model::Model;
use packhouse_prepare::plan::{Plan, builtin};
use packhouse_prepare::prepare::{Order, SourceHash};
use packhouse_prepare::proof::Proofs;
use packhouse_prepare::repair::{Diagnosis, RepairError, Repaired, examine, heal};
use packhouse_store::root::Store;
use packhouse_sys::signal;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Repairs a set. The answer is negative when something is still wrong.
pub(crate) fn repair(args: &RepairArgs, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let named = args.plan.as_deref().map(|plan| plans::find(plan, lookup));
    named.transpose()?;
    let store = &stores::open(Purpose::Change, lookup)?;
    let set = stores::find_set(store, args.set.as_deref())?;
    if store.config().read_only {
        return Err(Failure::new("cannot repair", short(&set))
            .cause(format!("{} is read-only", store.config().root.display()))
            .hint("unset PACKHOUSE_READONLY"));
    }
    let mut options = prepare::options(args.threads, args.lock_timeout);
    options.source_hash = SourceHash::Skip;
    // Without it a signal ends the process at once, which a store bears too.
    let _ = signal::catch_once();
    let bar = Bar::new();
    let mut diagnosis = examine(store, set, &Packers::detect(), options.threads, &bar);
    // Reading the model takes long, and is done for what is good only by who names it.
    let packs_again = args.model.is_some() && diagnosis.proofs().has_rounded();
    let source = match packs_again || diagnosis.needs_model() {
        true => Some(source(args, store, set, &diagnosis, lookup)?),
        false => None,
    };
    let unproven_count = diagnosis.proofs().unproven_count;
    if let Some((path, model, order)) = source.as_ref().filter(|_| packs_again) {
        let compared = diagnosis.pack_again(store, model, order);
        compared.map_err(|error| failure(set, Some(path), &error.into()))?;
    }
    let again_count = unproven_count.saturating_sub(diagnosis.proofs().unproven_count);
    let borrowed = source.as_ref().map(|(_, model, order)| (model, order));
    let cancel = signal::was_caught;
    let healed = heal(store, &diagnosis, borrowed, &options, &bar, &cancel);
    drop(bar);
    let model = source.map(|(path, ..)| path);
    let repaired = healed.map_err(|error| failure(set, model.as_deref(), &error))?;
    let is_good = repaired.is_good();
    Ok(Answer {
        text: text(&repaired)
            + &again_text(again_count)
            + &verify::unproven_text(diagnosis.proofs()),
        json: document(&repaired, diagnosis.proofs()),
        exit: if is_good { Exit::Done } else { Exit::Negative },
    })
}

/// The model of a set, and what its plan orders of it. Errors say what is wrong with the set and
/// what is missing to heal it.
fn source(
    args: &RepairArgs,
    store: &Store,
    set: SetKey,
    diagnosis: &Diagnosis,
    lookup: Lookup<'_>,
) -> Result<(PathBuf, Model, Order), Failure> {
    let told = |mut failure: Failure| {
        for line in lines(diagnosis) {
            failure = failure.cause(line);
        }
        failure
    };
    let path = match &args.model {
        Some(path) => path.clone(),
        None => last_model(store, set).ok_or_else(|| {
            told(
                Failure::new("nobody noted the model of the set", short(&set))
                    .hint(format!("packhouse repair {} --model MODEL", short(&set))),
            )
        })?,
    };
    let model = prepare::open_model(&path).map_err(&told)?;
    let plan = match &args.plan {
        Some(plan) => plans::find(plan, lookup)?.plan,
        None => set_plan(store, set, diagnosis, &path, &model).map_err(told)?,
    };
    if let Some((name, digest)) = diagnosis.plan()
        && plan.digest() != digest
    {
        return Err(Failure::new("not the plan of the set", plan.name())
            .cause(format!("its plan is {name} with SHA-256 {digest}"))
            .cause(format!("this one has SHA-256 {}", plan.digest()))
            .hint(format!("packhouse repair {} --plan FILE", short(&set))));
    }
    let order = prepare::order(&path, &model, &plan)?;
    Ok((path, model, order))
}

/// The built-in plan of a set: by name and digest, or where the manifest is damaged the one that
/// orders of the model what the runtime index lists.
fn set_plan(
    store: &Store,
    set: SetKey,
    diagnosis: &Diagnosis,
    path: &Path,
    model: &Model,
) -> Result<Plan, Failure> {
    let hint = format!("packhouse repair {} --plan FILE", short(&set));
    let mut plans = builtin::builtin().iter().map(builtin::BuiltinPlan::plan);
    if let Some((name, digest)) = diagnosis.plan() {
        return plans.find(|plan| plan.digest() == digest).ok_or_else(|| {
            Failure::new("the plan of the set is no built-in one", name)
                .cause(format!("its SHA-256 is {digest}"))
                .hint(hint)
        });
    }
    let index = store.read_index(set).ok();
    let entries = index.and_then(|bytes| packhouse_store::manifest::parse_index(&bytes).ok());
    let lists = |plan: &Plan| {
        let Ok(order) = prepare::order(path, model, plan) else {
            return false;
        };
        let Some(entries) = &entries else {
            return false;
        };
        let mut items: Vec<_> = order.items.iter().map(|i| (i.slot, &i.tensor)).collect();
        items.sort_unstable();
        items
            .into_iter()
            .eq(entries.iter().map(|e| (e.slot, &e.tensor)))
    };
    plans.find(lists).ok_or_else(|| {
        Failure::new("the plan of the set is not known", short(&set))
            .cause("its manifest is damaged, and no built-in plan orders what its index lists")
            .hint(hint)
    })
}

/// The model that the set was used for last.
fn last_model(store: &Store, set: SetKey) -> Option<PathBuf> {
    let uses = store.use_log().ok()?.read().ok()?;
    let containers = &uses.sets.get(&set)?.containers;
    let last = containers.iter().max_by_key(|(_, used_ns)| **used_ns)?;
    Some(last.0.clone())
}

fn failure(set: SetKey, model: Option<&Path>, error: &RepairError) -> Failure {
    let again = format!("packhouse repair {}", short(&set));
    match error {
        RepairError::Prepare(error) => {
            prepare::failure(model.unwrap_or(Path::new("the model")), error, again)
        }
        RepairError::NeedsModel { .. } => Failure::new("cannot repair", short(&set))
            .because(error)
            .hint(format!("{again} --model MODEL")),
        RepairError::OtherSet { .. } => Failure::new("not the model of the set", short(&set))
            .because(error)
            .hint(format!("{again} --model MODEL --plan PLAN")),
        RepairError::Set(_)
        | RepairError::Folder(_)
        | RepairError::Manifest(_)
        | RepairError::Container(_)
        | RepairError::Model(_) => Failure::new("cannot repair", short(&set))
            .because(error)
            .hint("packhouse doctor"),
    }
}

/// What is wrong, one line each.
fn lines(diagnosis: &Diagnosis) -> Vec<String> {
    let found = diagnosis.found();
    let files = found.problems.iter().map(ToString::to_string);
    let tensors = found.bad_tensors().filter_map(|bad| {
        let problem = bad.problem.as_ref()?;
        Some(format!("{}: {problem}", bad.entry.tensor))
    });
    files.chain(tensors).collect()
}

fn text(repaired: &Repaired) -> String {
    let mut rows = Vec::new();
    for one in &repaired.done {
        let name = one.tensor.as_ref().map_or("set", |(_, name)| name);
        rows.push(vec!["healed".to_owned(), name.to_owned(), one.was.clone()]);
    }
    for one in &repaired.unhealed {
        let (name, why) = (one.tensor.clone(), one.why.to_string());
        rows.push(vec!["not healed".to_owned(), name, why]);
    }
    for problem in &repaired.left.problems {
        let row = ["still wrong", "set", &problem.to_string()];
        rows.push(row.map(str::to_owned).to_vec());
    }
    for bad in repaired.left.bad_tensors() {
        let problem = bad.problem.as_ref().map(ToString::to_string);
        let row = [
            "still wrong",
            &bad.entry.tensor,
            &problem.unwrap_or_default(),
        ];
        rows.push(row.map(str::to_owned).to_vec());
    }
    let set = short(&repaired.set);
    let end = match (repaired.is_good(), repaired.done.len()) {
        (true, 0) => format!("set {set}: nothing is wrong, every object was hashed\n"),
        (true, count) => format!("set {set}: {count} healed, nothing is wrong any more\n"),
        (false, count) => format!("set {set}: {count} healed, not all of it is good\n"),
    };
    table(&[Column::Left, Column::Left, Column::Left], &rows) + &end
}

/// What was judged by packing it again.
fn again_text(count: u64) -> String {
    match count {
        0 => String::new(),
        1 => "1 pack that rounds was packed again from the model and compared\n".to_owned(),
        _ => format!("{count} packs that round were packed again from the model and compared\n"),
    }
}

fn document(repaired: &Repaired, proofs: &Proofs) -> Value {
    let done: Vec<Value> = repaired
        .done
        .iter()
        .map(|one| {
            json!({
                "slot": one.tensor.as_ref().map(|(slot, _)| slot),
                "tensor": one.tensor.as_ref().map(|(_, name)| name),
                "was": one.was,
            })
        })
        .collect();
    let unhealed: Vec<Value> = repaired
        .unhealed
        .iter()
        .map(|one| json!({"slot": one.slot, "tensor": one.tensor, "why": one.why.to_string()}))
        .collect();
    let left = &repaired.left;
    json!({
        "set": repaired.set.to_string(),
        "good": repaired.is_good(),
        "healed": done,
        "unhealed": unhealed,
        "set_problems": left.problems.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "bad_count": left.bad_tensors().count(),
        "proofs": verify::proofs_document(proofs),
    })
}
