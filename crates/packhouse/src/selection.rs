//! `inspect --plan`: what a plan packs of a model, into which layouts and slots, and why not the
//! rest; or all that keeps the model from fitting the plan.

use crate::answer::{Answer, Column, table};
use crate::failure::{Exit, Failure};
use crate::inspect::{self, Sum, words};
use crate::places::Lookup;
use crate::plans;
use packhouse_base::units;
use packhouse_container::Container;
use packhouse_container::gguf::Tensor;
use packhouse_layout::Admitted;
use packhouse_pack::Packers;
use packhouse_prepare::plan::{Chosen, Left, Plan, Rule, Selection, SelectionError};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

/// One tensor and what the plan makes of it.
struct Row<'a> {
    shard: usize,
    tensor: &'a Tensor,
    verdict: Verdict<'a>,
}

enum Verdict<'a> {
    Chosen(&'a Chosen),
    Left(&'a Left),
}

/// Whether a built-in plan takes a model as it is: what a hint names must work.
pub(crate) fn fits(model: &Path, plan: &str) -> bool {
    let Ok(found) = plans::find(plan, &|_| None) else {
        return false;
    };
    let Ok(container) = inspect::open(model) else {
        return false;
    };
    let packers = Packers::detect();
    let selection = found.plan.select(&container, &plans::context(&packers));
    selection.is_ok()
}

/// Answers with what the plan selects, by rule or tensor by tensor. A model that does not fit is a
/// negative answer.
pub(crate) fn inspect(
    model: &Path,
    plan: &str,
    by_tensor: bool,
    lookup: Lookup<'_>,
) -> Result<Answer, Failure> {
    let plan = plans::find(plan, lookup)?.plan;
    let container = inspect::open(model)?;
    let packers = Packers::detect();
    let mut text = inspect::header(model, &container);
    text += &format!(
        "plan {} version {} ({}, {}): {}\n\n",
        plan.name(),
        plan.version(),
        plans::short_digest(&plan),
        plan.origin(),
        plan.summary(),
    );
    let selection = match plan.select(&container, &plans::context(&packers)) {
        Ok(selection) => selection,
        Err(error) => return Ok(unfit(text, model, &container, &plan, &error)),
    };
    let rows = rows(&container, &selection);
    text += &if by_tensor {
        tensor_table(&plan, &rows)
    } else {
        rule_table(&plan, &rows) + &left_table(&plan, &rows)
    };
    let packed = sum(rows.iter().filter(|row| row.is_chosen()));
    let all = sum(rows.iter());
    text += &format!(
        "\nplan {} packs {} of {} tensors ({} of {})\n",
        plan.name(),
        packed.tensors,
        all.tensors,
        units::bytes(packed.bytes),
        units::bytes(all.bytes),
    );
    let json = document(model, &container, &plan, &rows, packed, all);
    Ok(Answer::done(text, json))
}

fn unfit(
    mut text: String,
    model: &Path,
    container: &Container,
    plan: &Plan,
    error: &SelectionError,
) -> Answer {
    let (headline, lines) = error.lines();
    let fitting = plans::fitting(container);
    text += &format!("{headline}\n");
    for line in &lines {
        text += &format!("  {line}\n");
    }
    text += &format!(
        "\nbuilt-in plans that fit: {}\n",
        if fitting.is_empty() {
            "none".to_owned()
        } else {
            fitting.join(", ")
        }
    );
    let problem_count = match error {
        SelectionError::Unfit(unfit) => unfit.problem_count(),
        SelectionError::Architecture { .. } | SelectionError::Nothing { .. } => 1,
    };
    let problems = if lines.is_empty() {
        vec![headline]
    } else {
        lines
    };
    let mut json = head_document(model, container, plan);
    json["fits"] = json!(false);
    json["problem_count"] = json!(problem_count);
    json["problems"] = json!(problems);
    json["plans_that_fit"] = json!(fitting);
    Answer {
        text,
        json,
        exit: Exit::Negative,
    }
}

/// Every tensor in file order.
fn rows<'a>(container: &'a Container, selection: &'a Selection) -> Vec<Row<'a>> {
    let mut verdicts = BTreeMap::new();
    for chosen in &selection.chosen {
        verdicts.insert((chosen.shard, chosen.tensor), Verdict::Chosen(chosen));
    }
    for left in &selection.left {
        verdicts.insert((left.shard, left.tensor), Verdict::Left(left));
    }
    let rows = verdicts.into_iter();
    rows.map(|((shard, tensor), verdict)| Row {
        shard,
        tensor: &container.shards()[shard].tensors()[tensor],
        verdict,
    })
    .collect()
}

fn rule_table(plan: &Plan, rows: &[Row<'_>]) -> String {
    struct Group<'a> {
        type_name: &'a str,
        slots: (u64, u64),
        sum: Sum,
        payload_bytes: u64,
    }
    let mut groups: BTreeMap<(usize, u32, String), Group<'_>> = BTreeMap::new();
    for row in rows {
        let Verdict::Chosen(chosen) = &row.verdict else {
            continue;
        };
        let ty = row.tensor.ggml_type;
        let key = (chosen.rule, ty.id(), layout(&chosen.admitted));
        let group = groups.entry(key).or_insert(Group {
            type_name: ty.name(),
            slots: (chosen.slot, chosen.slot),
            sum: Sum::default(),
            payload_bytes: 0,
        });
        let (first, last) = group.slots;
        group.slots = (first.min(chosen.slot), last.max(chosen.slot));
        group.sum.add(row.tensor);
        group.payload_bytes += chosen.admitted.payload_bytes();
    }
    let head = [
        "rule", "type", "tensors", "bytes", "layout", "packed", "slots",
    ];
    let mut lines = vec![words(head)];
    lines.extend(groups.iter().map(|((rule, _, layout), group)| {
        words([
            plan.rules()[*rule].id(),
            group.type_name,
            &group.sum.tensors.to_string(),
            &units::bytes(group.sum.bytes),
            layout,
            &units::bytes(group.payload_bytes),
            &match group.slots {
                (first, last) if first == last => first.to_string(),
                (first, last) => format!("{first} to {last}"),
            },
        ])
    }));
    let columns = [
        Column::Left,
        Column::Left,
        Column::Right,
        Column::Right,
        Column::Left,
        Column::Right,
        Column::Left,
    ];
    table(&columns, &lines)
}

/// Reasons with the tensors left for them, those of most tensors first.
fn left_table(plan: &Plan, rows: &[Row<'_>]) -> String {
    let mut groups: BTreeMap<String, Sum> = BTreeMap::new();
    for row in rows {
        if let Verdict::Left(left) = &row.verdict {
            groups
                .entry(reason(plan, left))
                .or_default()
                .add(row.tensor);
        }
    }
    if groups.is_empty() {
        return String::new();
    }
    let mut groups: Vec<_> = groups.into_iter().collect();
    groups.sort_by_key(|(reason, sum)| (std::cmp::Reverse(sum.tensors), reason.clone()));
    let mut lines = vec![words(["tensors", "bytes", "left as they are"])];
    lines.extend(groups.iter().take(REASONS_SHOWN).map(|(reason, sum)| {
        words([
            &sum.tensors.to_string(),
            &units::bytes(sum.bytes),
            reason.as_str(),
        ])
    }));
    let columns = [Column::Right, Column::Right, Column::Left];
    let mut text = format!("\n{}", table(&columns, &lines));
    if groups.len() > REASONS_SHOWN {
        let more = groups.len() - REASONS_SHOWN;
        text += &format!("and {more} more reasons; --tensors shows each tensor's\n");
    }
    text
}

fn tensor_table(plan: &Plan, rows: &[Row<'_>]) -> String {
    let head = [
        "slot",
        "tensor",
        "type",
        "dims",
        "bytes",
        "packed into, or why not",
    ];
    let mut lines = vec![words(head)];
    lines.extend(rows.iter().map(|row| {
        let dims: Vec<String> = row.tensor.dims.iter().map(u64::to_string).collect();
        let (slot, verdict) = match &row.verdict {
            Verdict::Chosen(chosen) => (chosen.slot.to_string(), layout(&chosen.admitted)),
            Verdict::Left(left) => ("-".to_owned(), reason(plan, left)),
        };
        words([
            &slot,
            &row.tensor.name,
            row.tensor.ggml_type.name(),
            &dims.join("x"),
            &units::bytes(row.tensor.bytes),
            &verdict,
        ])
    }));
    let columns = [
        Column::Right,
        Column::Left,
        Column::Left,
        Column::Left,
        Column::Right,
        Column::Left,
    ];
    table(&columns, &lines)
}

/// The layout with the parameters that it has for the tensor.
fn layout(admitted: &Admitted) -> String {
    let mut text = admitted.layout().id().to_owned();
    for (name, value) in admitted.parameters() {
        text += &format!(" {name}={value}");
    }
    text
}

fn reason(plan: &Plan, left: &Left) -> String {
    match &left.misfit {
        None => "no rule names it".to_owned(),
        Some((rule, misfit)) if plan.rules().len() > 1 => {
            format!("rule {}: {misfit}", plan.rules()[*rule].id())
        }
        Some((_, misfit)) => misfit.to_string(),
    }
}

fn head_document(model: &Path, container: &Container, plan: &Plan) -> Value {
    json!({
        "model": model.display().to_string(),
        "architecture": container.metadata().text("general.architecture"),
        "shards": inspect::shard_documents(container),
        "plan": {
            "name": plan.name(),
            "version": plan.version(),
            "digest": plan.digest().to_string(),
            "origin": plan.origin(),
        },
    })
}

fn document(
    model: &Path,
    container: &Container,
    plan: &Plan,
    rows: &[Row<'_>],
    packed: Sum,
    all: Sum,
) -> Value {
    let mut json = head_document(model, container, plan);
    json["fits"] = json!(true);
    json["tensor_count"] = json!(all.tensors);
    json["tensor_bytes"] = json!(all.bytes);
    json["packed_count"] = json!(packed.tensors);
    json["packed_bytes"] = json!(packed.bytes);
    json["payload_bytes"] = json!(payload_bytes(rows));
    let tensors = rows.iter().map(|row| tensor_document(plan, row));
    json["tensors"] = json!(tensors.collect::<Vec<_>>());
    json
}

fn tensor_document(plan: &Plan, row: &Row<'_>) -> Value {
    let mut json = json!({
        "name": row.tensor.name,
        "type": row.tensor.ggml_type.name(),
        "dims": row.tensor.dims,
        "bytes": row.tensor.bytes,
        "offset": row.tensor.offset,
        "shard": row.shard,
        "packed": row.is_chosen(),
        "left_because": null,
    });
    match &row.verdict {
        Verdict::Chosen(chosen) => {
            let admitted = &chosen.admitted;
            json["slot"] = json!(chosen.slot);
            json["rule"] = json!(plan.rules()[chosen.rule].id());
            json["layout"] = json!(admitted.layout().id());
            json["layout_version"] = json!(admitted.layout().version());
            json["parameters"] = json!(admitted.parameters());
            json["payload_bytes"] = json!(admitted.payload_bytes());
        }
        Verdict::Left(left) => {
            let rule = left.misfit.as_ref().map(|(rule, _)| &plan.rules()[*rule]);
            json["rule"] = json!(rule.map(Rule::id));
            json["left_because"] = json!(match &left.misfit {
                None => "no rule names it".to_owned(),
                Some((_, misfit)) => misfit.to_string(),
            });
        }
    }
    json
}

impl Row<'_> {
    fn is_chosen(&self) -> bool {
        match &self.verdict {
            Verdict::Chosen(_) => true,
            Verdict::Left(_) => false,
        }
    }
}

fn payload_bytes(rows: &[Row<'_>]) -> u64 {
    let payloads = rows.iter().map(|row| match &row.verdict {
        Verdict::Chosen(chosen) => chosen.admitted.payload_bytes(),
        Verdict::Left(_) => 0,
    });
    payloads.sum()
}

fn sum<'a, 'b: 'a>(rows: impl Iterator<Item = &'a Row<'b>>) -> Sum {
    let mut sum = Sum::default();
    rows.for_each(|row| sum.add(row.tensor));
    sum
}

const REASONS_SHOWN: usize = 20;
