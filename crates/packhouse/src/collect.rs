//! `gc`: what was removed, or would be, and why.

use crate::answer::{Answer, Column, table};
use crate::failure::{Exit, Failure, quoted};
use crate::held::SweptFixtures;
use crate::places::Lookup;
use crate::staged::Swept;
use crate::stores::short;
use packhouse_base::digest::SetKey;
use packhouse_base::units;
use packhouse_store::gc::{GcError, GcOptions, GcReport, Removed};
use packhouse_store::gc_plan::GcPolicy;
use packhouse_store::root::Store;
use serde_json::{Value, json};

/// Collects what nothing needs. Entries that could not be removed make it "not executed".
pub(crate) fn collect(
    store: &Store,
    dry_run: bool,
    shared: bool,
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let room = store.room(ROOM_WAIT_NS).ok();
    let max_bytes = store.config().max_bytes.or(room.map(|room| room.cap_bytes));
    let policy = GcPolicy {
        max_bytes,
        ..GcPolicy::default()
    };
    let report = store
        .gc(&GcOptions {
            policy,
            dry_run,
            shared,
        })
        .map_err(|error| refused(store, &error))?;
    let swept = sweep_stages(store, &report, lookup)?;
    let fixtures = SweptFixtures::of(dry_run, lookup);
    let is_done = swept.is_done() && fixtures.failure.is_none();
    let exit = if report.failures.is_empty() && is_done {
        Exit::Done
    } else {
        Exit::NotExecuted
    };
    Ok(Answer {
        text: text(&report, &swept, &fixtures),
        json: document(&report, &swept, &fixtures),
        exit,
    })
}

/// Removes the stages of sets that are gone, or would be.
fn sweep_stages(store: &Store, report: &GcReport, lookup: Lookup<'_>) -> Result<Swept, Failure> {
    let sets = store.list_sets().map_err(|error| {
        Failure::new("cannot list the sets", store.config().root.display())
            .because(&error)
            .hint("packhouse doctor")
    })?;
    let keep = |set: SetKey| sets.contains(&set) && !report.plan.sets.contains_key(&set);
    Ok(Swept::of(store, &keep, report.dry_run, lookup))
}

fn refused(store: &Store, error: &GcError) -> Failure {
    let failure = Failure::new("gc did not run", store.config().root.display()).because(error);
    match error {
        GcError::Shared { .. } => failure.hint("packhouse gc --shared --dry-run"),
        GcError::NotOwner { path, .. } => failure.hint(format!("ls -ld {}", quoted(path))),
        GcError::ReadOnly { .. } => failure.hint("unset PACKHOUSE_READONLY"),
        GcError::Busy { .. } => failure.hint("packhouse gc"),
        GcError::NoState(_) | GcError::Folder(_) | GcError::State(_) => {
            failure.hint("packhouse doctor")
        }
    }
}

/// Names of the groups, in the order in which they are shown.
fn groups(report: &GcReport) -> [(&'static str, Removed); 8] {
    let plan = &report.plan;
    let objects = plan.objects.difference(&report.rescued).count() as u64;
    let only = |count: usize| Removed {
        count: count as u64,
        bytes: 0,
    };
    [
        ("sets", only(plan.sets.len())),
        ("packs", only(plan.packs.len())),
        (
            "objects",
            Removed {
                count: objects,
                bytes: plan.removed_bytes,
            },
        ),
        (
            "temporary files",
            sum(&[report.temps, report.unfinished_sets]),
        ),
        ("quarantine", report.quarantine),
        ("receipts", report.receipts),
        ("source ledgers", report.sources),
        ("uses", report.uses),
    ]
}

fn sum(parts: &[Removed]) -> Removed {
    Removed {
        count: parts.iter().map(|part| part.count).sum(),
        bytes: parts.iter().map(|part| part.bytes).sum(),
    }
}

fn text(report: &GcReport, swept: &Swept, fixtures: &SweptFixtures) -> String {
    let mut text = String::new();
    for (set, gone) in &report.plan.sets {
        text += &format!("set {}: {}\n", short(set), gone.reason());
    }
    let verb = if report.dry_run {
        "would remove"
    } else {
        "removed"
    };
    let mut rows = vec![vec![
        verb.to_owned(),
        "count".to_owned(),
        "bytes".to_owned(),
    ]];
    rows.extend(groups(report).iter().map(|(name, removed)| {
        vec![
            (*name).to_owned(),
            removed.count.to_string(),
            units::bytes(removed.bytes),
        ]
    }));
    let more = swept.groups().into_iter().chain(fixtures.groups());
    rows.extend(
        more.map(|(name, count, bytes)| {
            vec![name.to_owned(), count.to_string(), units::bytes(bytes)]
        }),
    );
    text += &table(&[Column::Left, Column::Right, Column::Right], &rows);
    let freed = report.freed;
    let (unfinished_bytes, copies_bytes) = swept.freed();
    let fixture_bytes = fixtures.bytes();
    text += &format!(
        "frees {} now, {} when current users end; {} stay\n",
        units::bytes(freed.now_bytes + unfinished_bytes + fixture_bytes),
        units::bytes(freed.later_bytes),
        units::bytes(report.plan.kept_bytes),
    );
    if copies_bytes > 0 {
        let bytes = units::bytes(copies_bytes);
        text += &format!("{bytes} of older copies are free once nobody maps them\n");
    }
    if freed.linked_bytes > 0 {
        let bytes = units::bytes(freed.linked_bytes);
        text += &format!("{bytes} have another name outside the store and are not freed\n");
    }
    if report.plan.above_cap_bytes > 0 {
        let bytes = units::bytes(report.plan.above_cap_bytes);
        text += &format!("{bytes} above the cap are pinned or young\n");
    }
    for path in &report.foreign {
        text += &format!("not ours, stays: {}\n", path.display());
    }
    for line in &report.damaged {
        text += &format!("damaged: {line}\n");
    }
    for line in &report.failures {
        text += &format!("not removed: {line}\n");
    }
    if let Some(failure) = &fixtures.failure {
        text += &format!("not removed: {failure}\n");
    }
    text + &swept.lines()
}

fn document(report: &GcReport, swept: &Swept, fixtures: &SweptFixtures) -> Value {
    let sets: Vec<Value> = report
        .plan
        .sets
        .iter()
        .map(|(set, gone)| json!({"set": set.to_string(), "reason": gone.reason()}))
        .collect();
    let mut document = json!({
        "dry_run": report.dry_run,
        "removed_sets": sets,
        "kept_bytes": report.plan.kept_bytes,
        "above_cap_bytes": report.plan.above_cap_bytes,
        "freed_now_bytes": report.freed.now_bytes + swept.freed().0 + fixtures.bytes(),
        "freed_later_bytes": report.freed.later_bytes,
        "linked_bytes": report.freed.linked_bytes,
        "every_process_seen": report.freed.every_process_seen,
        "foreign": report.foreign.iter().map(|path| path.display().to_string()).collect::<Vec<_>>(),
        "damaged": report.damaged,
        "failures": report.failures,
    });
    document["freed_copies_bytes"] = swept.freed().1.into();
    document["stage_failures"] = swept.collected.failures.clone().into();
    document["stage_strangers"] = swept.collected.strangers.clone().into();
    document["fixtures_failure"] = fixtures.failure.clone().into();
    document["stage_problem"] = swept.problem().into();
    let removed = groups(report).map(|(name, removed)| (name, removed.count, removed.bytes));
    let more = swept.groups().into_iter().chain(fixtures.groups());
    for (name, count, bytes) in removed.into_iter().chain(more) {
        let name = name.replace(' ', "_");
        document[format!("{name}_count")] = count.into();
        document[format!("{name}_bytes")] = bytes.into();
    }
    document
}

const ROOM_WAIT_NS: u64 = 1_000_000_000;
