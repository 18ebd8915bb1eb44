//! `plans`, and what `--plan` means: a built-in plan, a plan file of the user's, or any plan file.

use crate::answer::{Answer, Column, table};
use crate::failure::{Failure, quoted};
use crate::files::{entries, read_at_most};
use crate::places::{self, Lookup};
use packhouse_container::Container;
use packhouse_layout::stock_x86::Features;
use packhouse_pack::Packers;
use packhouse_prepare::plan::{
    DimRule, Invariants, Plan, Range, Rule, SelectContext, SelectionError, builtin, limits,
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// A plan with its text.
pub(crate) struct Found {
    /// The plan.
    pub(crate) plan: Plan,
    text: String,
}

/// Finds the plan that `--plan` names. A text with a slash or the ending `.toml` is a file; any
/// other is a built-in plan's name, or that of a file in the user's folder of plans. Errors say
/// where it was sought, or what in a plan file is wrong.
pub(crate) fn find(text: &str, lookup: Lookup<'_>) -> Result<Found, Failure> {
    if text.contains('/') || text.ends_with(SUFFIX) {
        return read(Path::new(text), None);
    }
    if !builtin::is_name(text) {
        return Err(Failure::usage("not the name of a plan", text)
            .cause("names have a-z, 0-9, '.', '_' and '-'; a path has a slash or ends in .toml")
            .hint("packhouse plans"));
    }
    let file = places::plans(lookup).map(|folder| folder.join(format!("{text}{SUFFIX}")));
    if let Some(entry) = builtin::find(text) {
        if let Some(file) = file
            && read_at_most(&file, 0).is_ok()
        {
            return Err(shadows(text, &file));
        }
        let bytes = entry.bytes.to_vec();
        return Ok(Found {
            plan: entry.plan(),
            text: String::from_utf8(bytes).expect("because it was parsed"),
        });
    }
    let names: Vec<&str> = builtin::builtin().iter().map(|plan| plan.name).collect();
    let none = Failure::usage("no such plan", text)
        .cause(format!("built-in plans are {}", names.join(", ")))
        .hint("packhouse plans");
    let Some(file) = file else {
        return Err(none.cause("there is no folder of own plans, as HOME is unset"));
    };
    match read_at_most(&file, 0) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(none.cause(format!("{}: {error}", file.display())))
        }
        Ok(_) | Err(_) => read(&file, Some(text)),
    }
}

/// Lists the plans, or answers with the text of one.
pub(crate) fn plans(name: Option<&str>, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    if let Some(name) = name {
        let found = find(name, lookup)?;
        let mut json = document(&found.plan);
        json["toml"] = json!(found.text);
        return Ok(Answer::done(found.text, json));
    }
    let mut plans: Vec<Plan> = builtin::builtin()
        .iter()
        .map(|entry| entry.plan())
        .collect();
    let mut problems: Vec<(PathBuf, String)> = Vec::new();
    let folder = places::plans(lookup);
    for file in folder.iter().flat_map(|folder| own_files(folder)) {
        let file = file?;
        let stem = file.file_stem().and_then(|stem| stem.to_str());
        match read(&file, Some(stem.unwrap_or_default())) {
            Ok(found) => plans.push(found.plan),
            Err(failure) => problems.push((file, failure.reason())),
        }
    }
    let mut text = list(&plans);
    for (file, reason) in &problems {
        let file = file.display().to_string();
        text += &if reason.starts_with(&file) {
            format!("broken: {reason}\n")
        } else {
            format!("broken: {file}: {reason}\n")
        };
    }
    let broken = problems
        .iter()
        .map(|(file, reason)| json!({ "path": file.display().to_string(), "reason": reason }));
    let json = json!({
        "plans": plans.iter().map(document).collect::<Vec<_>>(),
        "broken": broken.collect::<Vec<_>>(),
        "folder": folder.as_ref().map(|folder| folder.display().to_string()),
    });
    Ok(Answer::done(text, json))
}

fn list(plans: &[Plan]) -> String {
    let head = ["plan", "version", "digest", "from", "rules", "packs"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(plans.iter().map(|plan| {
        vec![
            plan.name().to_owned(),
            plan.version().to_string(),
            short_digest(plan),
            from(plan).to_owned(),
            plan.rules().len().to_string(),
            plan.summary().to_owned(),
        ]
    }));
    let columns = [
        Column::Left,
        Column::Right,
        Column::Left,
        Column::Left,
        Column::Right,
        Column::Left,
    ];
    table(&columns, &rows)
}

fn from(plan: &Plan) -> &'static str {
    if plan.origin() == builtin::ORIGIN {
        builtin::ORIGIN
    } else {
        "own"
    }
}

/// What a plan that does not fit a model ends in, for commands that then can't go on: each problem,
/// and the built-in plans that would fit.
pub(crate) fn unfit(model: &Path, container: &Container, error: &SelectionError) -> Failure {
    let (headline, lines) = error.lines();
    let mut failure = Failure::new(headline, model.display());
    for line in lines {
        failure = failure.cause(line);
    }
    match fitting(container).first() {
        Some(first) => {
            let fitting = fitting(container).join(", ");
            let command = format!("packhouse inspect {} --plan {first}", quoted(model));
            failure
                .cause(format!("built-in plans that fit: {fitting}"))
                .hint(command)
        }
        None => failure.hint(format!("packhouse inspect {}", quoted(model))),
    }
}

/// Names of the built-in plans that fit a container, the most specific first.
pub(crate) fn fitting(container: &Container) -> Vec<&'static str> {
    let packers = Packers::detect();
    let context = context(&packers);
    let plans = builtin::builtin().iter();
    plans
        .filter(|entry| entry.plan().select(container, &context).is_ok())
        .map(|entry| entry.name)
        .collect()
}

/// What this host has.
pub(crate) fn context(packers: &Packers) -> SelectContext<'_> {
    SelectContext {
        features: Features::detect(),
        packers,
    }
}

/// The digits of a plan's digest that tables show.
pub(crate) fn short_digest(plan: &Plan) -> String {
    plan.digest().to_string()[..DIGITS_SHOWN].to_owned()
}

/// Reads a plan file. `name` is what the plan must call itself: a file in the user's folder is
/// found by its name.
fn read(file: &Path, name: Option<&str>) -> Result<Found, Failure> {
    let bytes = read_at_most(file, limits::PLAN_BYTES_MAX).map_err(|error| {
        Failure::new("cannot read the plan", file.display())
            .because(&error)
            .hint(format!("ls -l {}", quoted(file)))
    })?;
    let plan = Plan::parse(&bytes, &file.display().to_string()).map_err(|error| {
        Failure::new("not a plan", file.display())
            .because(&error)
            .hint(format!("packhouse plans {EXAMPLE}"))
    })?;
    if builtin::find(plan.name()).is_some() {
        return Err(shadows(plan.name(), file));
    }
    if let Some(name) = name
        && name != plan.name()
    {
        return Err(Failure::new("a plan under another name", file.display())
            .cause(format!("it calls itself {:?}", plan.name()))
            .hint(format!(
                "mv {} {}",
                quoted(file),
                file.with_file_name(format!("{}{SUFFIX}", plan.name()))
                    .display()
            )));
    }
    let text = String::from_utf8(bytes).expect("because it was parsed");
    Ok(Found { plan, text })
}

/// A plan file that takes a built-in plan's name: sets would not say which of the two made them.
fn shadows(name: &str, file: &Path) -> Failure {
    Failure::new(
        "a plan file has the name of a built-in plan",
        file.display(),
    )
    .cause(format!(
        "{name} is built in; give the plan in the file another name"
    ))
    .hint(format!("packhouse plans {EXAMPLE}"))
}

fn own_files(folder: &Path) -> Vec<Result<PathBuf, Failure>> {
    match entries(folder) {
        Ok(paths) => {
            let files = paths.into_iter();
            let files = files.filter(|path| path.extension().is_some_and(|end| end == "toml"));
            files.map(Ok).collect()
        }
        Err(error) => vec![Err(Failure::new("cannot list the plans", folder.display())
            .because(&error)
            .hint(format!("ls -la {}", quoted(folder))))],
    }
}

/// A plan for `--json`.
pub(crate) fn document(plan: &Plan) -> Value {
    let Invariants { slots, count } = plan.invariants();
    json!({
        "name": plan.name(),
        "version": plan.version(),
        "digest": plan.digest().to_string(),
        "origin": plan.origin(),
        "summary": plan.summary(),
        "architectures": plan.architectures(),
        "rules": plan.rules().iter().map(rule_document).collect::<Vec<_>>(),
        "slots": slots.map(range_document),
        "count": count,
    })
}

fn rule_document(rule: &Rule) -> Value {
    let ranges = rule.ranges().iter();
    let ranges = ranges.map(|(capture, range)| (capture.to_string(), range_document(*range)));
    json!({
        "id": rule.id(),
        "tensor": rule.pattern().text(),
        "unless": rule.unless().map(|unless| unless.text()),
        "ranges": ranges.collect::<serde_json::Map<_, _>>(),
        "types": rule.types().iter().map(|ty| ty.name()).collect::<Vec<_>>(),
        "dims": rule.dims().iter().map(dim_document).collect::<Vec<_>>(),
        "chosen_by": rule.chosen_by().map(|chooser| chooser.word()),
        "layout": rule.layout().id(),
        "layout_version": rule.layout().version(),
        "parameters": rule.parameters(),
        "slot": rule.slot().text(),
        "otherwise": rule.otherwise().word(),
        "expect": rule.template().map(|template| template.text()),
        "count": rule.count(),
    })
}

fn dim_document(dim: &DimRule) -> Value {
    match *dim {
        DimRule::Exact(exact) => json!(exact),
        DimRule::Within { min, max, multiple } => {
            let max = (max != u64::MAX).then_some(max);
            json!({ "min": min, "max": max, "multiple": multiple })
        }
    }
}

fn range_document(range: Range) -> Value {
    json!([range.first, range.last])
}

const SUFFIX: &str = ".toml";
const EXAMPLE: &str = "xe2-q4_0";
const DIGITS_SHOWN: usize = 12;
