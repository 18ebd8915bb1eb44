//! `ls` and `du`: the sets of a store, what they are worth and what they hold.

use crate::answer::{Answer, Column, table};
use crate::failure::{Failure, quoted};
use crate::held::Held;
use crate::places::Lookup;
use crate::staged::Listed;
use crate::stores::{admission_line, short};
use packhouse_base::units;
use packhouse_store::container_record::Admission;
use packhouse_store::root::Store;
use packhouse_store::survey::{SetSurvey, StoreSurvey};
use serde_json::{Value, json};

/// Lists the sets; without a store there are none.
pub(crate) fn list(store: Option<&Store>, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let survey = survey(store)?;
    let staged = Listed::of(lookup);
    let now_ns = store.map_or(0, |store| store.clock().wall_ns());
    let head = [
        "set", "model", "plan", "tensors", "bytes", "trust", "staged", "last use", "pins",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(survey.sets.iter().map(|set| {
        vec![
            short(&set.set),
            model(set),
            set.plan.clone().unwrap_or_else(|| "-".to_owned()),
            set.tensor_count.to_string(),
            units::bytes(set.own_bytes.saturating_add(set.shared_bytes)),
            set.trust().name().to_owned(),
            staged.word(set.set).to_owned(),
            set.last_use_ns
                .map_or_else(|| "-".to_owned(), |then| age(then, now_ns)),
            set.pins.join(" "),
        ]
    }));
    let columns = [
        Column::Left,
        Column::Left,
        Column::Left,
        Column::Right,
        Column::Right,
        Column::Left,
        Column::Left,
        Column::Left,
        Column::Left,
    ];
    let mut text = if survey.sets.is_empty() {
        "no sets\n".to_owned()
    } else {
        table(&columns, &rows)
    };
    for set in &survey.sets {
        if let Some(problem) = &set.problem {
            text += &format!("broken: {problem}\n");
        }
        text += &admission_line(set.set, set.admission);
    }
    text += &staged.lines(&|set| survey.sets.iter().any(|known| known.set == set));
    Ok(Answer::done(
        text,
        json!({
            "sets": survey.sets.iter().map(set_document).collect::<Vec<_>>(),
            "stages": staged.document(),
            "stage_problem": staged.problem(),
        }),
    ))
}

/// Shows what the sets hold of the disk.
pub(crate) fn usage(store: Option<&Store>, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let survey = survey(store)?;
    let staged = Listed::of(lookup);
    let mut rows = vec![
        ["set", "model", "own", "shared"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(survey.sets.iter().map(|set| {
        let (own, shared) = (units::bytes(set.own_bytes), units::bytes(set.shared_bytes));
        vec![short(&set.set), model(set), own, shared]
    }));
    let mut text = if survey.sets.is_empty() {
        String::new()
    } else {
        let columns = [Column::Left, Column::Left, Column::Right, Column::Right];
        table(&columns, &rows) + "\n"
    };
    let mut totals = vec![
        total("objects", survey.object_count, survey.object_bytes),
        total("of no set", survey.loose_count, survey.loose_bytes),
        total(
            "in quarantine",
            survey.quarantine_count,
            survey.quarantine_bytes,
        ),
    ];
    let stage_count = u64::try_from(staged.stages.len()).unwrap_or(u64::MAX);
    totals.push(total("staged in memory", stage_count, staged.bytes()));
    let held = Held::of(lookup);
    let groups = held.groups().into_iter();
    totals.extend(groups.map(|(name, held)| total(name, held.count, held.bytes)));
    if let Some(room) = &survey.room {
        let line = |name: &str, bytes| vec![name.to_owned(), String::new(), units::bytes(bytes)];
        totals.push(line("cap", room.cap_bytes));
        totals.push(line("free on the disk", room.free_bytes));
        totals.push(line("kept free", room.min_free_bytes));
    }
    text += &table(&[Column::Left, Column::Right, Column::Right], &totals);
    if let Some(problem) = staged.problem() {
        text += &format!("stages: {problem}\n");
    }
    text += &held.lines();
    let mut document = document(&survey);
    document["held"] = held.document();
    document["stages"] = staged.document();
    document["stage_bytes"] = staged.bytes().into();
    document["stage_problem"] = staged.problem().into();
    Ok(Answer::done(text, document))
}

/// The whole survey as a document; `doctor` shows it too.
pub(crate) fn document(survey: &StoreSurvey) -> Value {
    json!({
        "sets": survey.sets.iter().map(set_document).collect::<Vec<_>>(),
        "object_count": survey.object_count,
        "object_bytes": survey.object_bytes,
        "allocated_bytes": survey.allocated_bytes,
        "loose_count": survey.loose_count,
        "loose_bytes": survey.loose_bytes,
        "shared_bytes": survey.shared_bytes,
        "pack_count": survey.pack_count,
        "quarantine_count": survey.quarantine_count,
        "quarantine_bytes": survey.quarantine_bytes,
        "cap_bytes": survey.room.map(|room| room.cap_bytes),
        "free_bytes": survey.room.map(|room| room.free_bytes),
        "min_free_bytes": survey.room.map(|room| room.min_free_bytes),
    })
}

fn survey(store: Option<&Store>) -> Result<StoreSurvey, Failure> {
    let Some(store) = store else {
        return Ok(StoreSurvey::default());
    };
    store.survey().map_err(|error| {
        let root = &store.config().root;
        Failure::new("cannot list the store", root.display())
            .because(&error)
            .hint(format!("ls -la {}", quoted(root)))
    })
}

fn set_document(set: &SetSurvey) -> Value {
    let paths = set
        .container_paths
        .iter()
        .map(|path| path.display().to_string());
    json!({
        "set": set.set.to_string(),
        "plan": set.plan,
        "container_files": set.container_files,
        "admission": set.admission.map(Admission::name),
        "container_paths": paths.collect::<Vec<_>>(),
        "tensor_count": set.tensor_count,
        "object_count": set.object_count,
        "own_bytes": set.own_bytes,
        "shared_bytes": set.shared_bytes,
        "receipt_count": set.receipt_count,
        "missing_count": set.missing_count,
        "trust": set.trust().name(),
        "published_ns": set.published_ns,
        "last_use_ns": set.last_use_ns,
        "pins": set.pins,
        "problem": set.problem.as_ref().map(ToString::to_string),
    })
}

fn total(name: &str, count: u64, bytes: u64) -> Vec<String> {
    vec![name.to_owned(), count.to_string(), units::bytes(bytes)]
}

/// The first file of the container, and how many more there are.
fn model(set: &SetSurvey) -> String {
    match set.container_files.as_slice() {
        [] => "-".to_owned(),
        [only] => only.clone(),
        [first, rest @ ..] => format!("{first} +{}", rest.len()),
    }
}

fn age(then_ns: i64, now_ns: i64) -> String {
    match now_ns.saturating_sub(then_ns) / DAY_NS {
        ..=0 => "today".to_owned(),
        1 => "1 day ago".to_owned(),
        days => format!("{days} days ago"),
    }
}

const DAY_NS: i64 = 24 * 60 * 60 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_whole_days_and_never_ahead() {
        assert_eq!(age(0, DAY_NS - 1), "today");
        assert_eq!(age(DAY_NS, 0), "today");
        assert_eq!(age(0, DAY_NS), "1 day ago");
        assert_eq!(age(0, 15 * DAY_NS), "15 days ago");
    }
}
