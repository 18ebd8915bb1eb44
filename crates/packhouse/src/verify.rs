//! `verify` and `scrub`: are the stored bytes what they say they are?

use crate::answer::{Answer, Column, table};
use crate::bar::Bar;
use crate::failure::{Exit, Failure};
use crate::stores::{self, short};
use packhouse_base::{Blame, units};
use packhouse_pack::Packers;
use packhouse_prepare::prepare::{Event, Phase, Progress as _};
use packhouse_prepare::proof::{Proofs, prove_set};
use packhouse_store::container_record::Admission;
use packhouse_store::root::Store;
use packhouse_store::verify::{Depth, SetProblem, SetVerification, TensorProblem};
use serde_json::{Value, json};
use std::num::NonZeroUsize;

/// How much is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Shallow,
    Deep,
    /// Deep, and the payloads' sources too.
    Prove,
}

impl Asked {
    pub(crate) const fn new(deep: bool, prove: bool) -> Self {
        match (deep, prove) {
            (_, true) => Self::Prove,
            (true, false) => Self::Deep,
            (false, false) => Self::Shallow,
        }
    }
}

/// Verifies one set. The answer is negative when anything is wrong with it.
pub(crate) fn verify(
    store: &Store,
    digits: Option<&str>,
    asked: Asked,
    threads: Option<NonZeroUsize>,
) -> Result<Answer, Failure> {
    let set = stores::find_set(store, digits)?;
    let deep = asked != Asked::Shallow;
    let every = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let depth = match (deep, threads) {
        (false, None) => Depth::Shallow,
        (false, Some(threads)) => {
            return Err(Failure::usage("threads without --deep", threads)
                .cause("only hashing uses threads")
                .hint(format!(
                    "packhouse verify {} --deep --threads {threads}",
                    short(&set)
                )));
        }
        (true, threads) => Depth::Deep {
            threads: threads.unwrap_or(every),
        },
    };
    let bar = Bar::new();
    if deep && let Ok(manifest) = store.read_set(set) {
        let lengths = manifest.entries().iter().map(|entry| entry.length);
        let passes = if asked == Asked::Prove { 2 } else { 1 };
        bar.begin(Phase::Verify, lengths.sum::<u64>() * passes);
    }
    let hear = |bytes| bar.hear(Event::Done { bytes });
    let mut found = store.verify_set(set, depth, &hear);
    let proofs = (asked == Asked::Prove).then(|| {
        let (packers, threads) = (Packers::detect(), threads.unwrap_or(every));
        prove_set(store, &mut found, &packers, threads, &hear)
    });
    drop(bar);
    let admission = stores::admission(store, set);
    if !found.is_good() && blames(&found).all(|blame| blame == Blame::Host) {
        return Err(unreadable(&found));
    }
    Ok(Answer {
        text: text(&found, deep, proofs.as_ref()) + &stores::admission_line(set, admission),
        json: with_admission(document(&found, deep, proofs.as_ref()), admission),
        exit: if found.is_good() {
            Exit::Done
        } else {
            Exit::Negative
        },
    })
}

/// Hashes objects again, oldest hash first. The answer is negative when one was damaged.
pub(crate) fn scrub(store: &Store, budget: Option<u64>) -> Result<Answer, Failure> {
    let report = store
        .scrub(budget.unwrap_or(u64::MAX), &|_| {})
        .map_err(|error| {
            Failure::new("cannot list the objects", store.config().root.display())
                .because(&error)
                .hint("packhouse doctor")
        })?;
    let mut text = format!(
        "{} of {} objects hashed ({}), {} damaged, {} left ({})\n",
        report.hashed_count,
        report.object_count,
        units::bytes(report.hashed_bytes),
        report.refused.len(),
        report.left_count,
        units::bytes(report.left_bytes),
    );
    for refusal in &report.refused {
        text += &format!("damaged: {refusal}\n");
    }
    if !report.remembered {
        text += "no private state: the next scrub begins anew\n";
    }
    let refused: Vec<Value> = report
        .refused
        .iter()
        .map(|refusal| json!({"reason": refusal.reason(), "text": refusal.to_string()}))
        .collect();
    let json = json!({
        "object_count": report.object_count,
        "hashed_count": report.hashed_count,
        "hashed_bytes": report.hashed_bytes,
        "left_count": report.left_count,
        "left_bytes": report.left_bytes,
        "oldest_left_ns": report.oldest_left_ns,
        "remembered": report.remembered,
        "refused": refused,
    });
    let exit = if report.refused.is_empty() {
        Exit::Done
    } else {
        Exit::Negative
    };
    Ok(Answer { text, json, exit })
}

/// Nothing is known to be wrong with the bytes, but they could not be looked at.
fn unreadable(found: &SetVerification) -> Failure {
    let problems = found.problems.iter().map(SetProblem::to_string);
    let tensors = found.bad_tensors().filter_map(|bad| bad.problem.as_ref());
    let first = problems.chain(tensors.map(TensorProblem::to_string)).next();
    Failure::new("cannot read all of the set", short(&found.set))
        .cause(first.unwrap_or_default())
        .hint("packhouse doctor")
}

fn blames(found: &SetVerification) -> impl Iterator<Item = Blame> {
    let tensors = found.bad_tensors().filter_map(|bad| bad.problem.as_ref());
    found
        .problems
        .iter()
        .map(SetProblem::blame)
        .chain(tensors.map(TensorProblem::blame))
}

fn text(found: &SetVerification, deep: bool, proofs: Option<&Proofs>) -> String {
    let bad = found.bad_tensors().count();
    let mut text = String::new();
    for problem in &found.problems {
        text += &format!("set: {problem}\n");
    }
    let rows: Vec<Vec<String>> = found
        .bad_tensors()
        .filter_map(|bad| {
            let problem = bad.problem.as_ref()?;
            let slot = bad.entry.slot.to_string();
            Some(vec![slot, bad.entry.tensor.clone(), problem.to_string()])
        })
        .collect();
    text += &table(&[Column::Right, Column::Left, Column::Left], &rows);
    let total = found.tensors.len();
    let depth = if deep {
        let bytes = units::bytes(found.hashed_bytes);
        format!("{} objects hashed ({bytes})", found.hashed_count)
    } else {
        "no object hashed (--deep does)".to_owned()
    };
    let set = short(&found.set);
    let proven = proofs.map_or_else(String::new, |proofs| {
        format!(", {} packs proven", proofs.proven_count)
    });
    text + &format!(
        "set {set}: {} of {total} tensors good, {bad} bad; {depth}{proven}\n",
        total - bad
    ) + &proofs.map_or_else(String::new, unproven_text)
}

fn with_admission(mut document: Value, admission: Option<Admission>) -> Value {
    document["admission"] = admission.map(Admission::name).into();
    document
}

fn document(found: &SetVerification, deep: bool, proofs: Option<&Proofs>) -> Value {
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
        "plan": found.plan,
        "good": found.is_good(),
        "deep": deep,
        "tensor_count": found.tensors.len(),
        "bad_count": tensors.len(),
        "hashed_count": found.hashed_count,
        "hashed_bytes": found.hashed_bytes,
        "set_problems": found.problems.iter().map(SetProblem::to_string).collect::<Vec<_>>(),
        "bad_tensors": tensors,
        "proofs": proofs.map(proofs_document),
    })
}

/// What could not be proven and why; nothing where everything was.
pub(crate) fn unproven_text(proofs: &Proofs) -> String {
    if proofs.unproven_count == 0 {
        return String::new();
    }
    let total = proofs.proven_count + proofs.unproven_count;
    let mut text = format!(
        "{} of {total} packs not proven here:\n",
        proofs.unproven_count
    );
    for why in &proofs.unproven_why {
        text += &format!("  no inverse for {why}\n");
    }
    text
}

pub(crate) fn proofs_document(proofs: &Proofs) -> Value {
    let why: Vec<String> = proofs
        .unproven_why
        .iter()
        .map(ToString::to_string)
        .collect();
    json!({
        "proven_count": proofs.proven_count,
        "unproven_count": proofs.unproven_count,
        "unproven_why": why,
    })
}
