//! `doctor`: where things are, what the store is like, what this host allows, what would help.

use crate::answer::{Answer, Column, table};
use crate::failure::Failure;
use crate::glance;
use crate::held::Held;
use crate::model_look::CopiesAtAGlance;
use crate::places::{Lookup, Places};
use crate::run;
use crate::staged::Listed;
use crate::worker_devices;
use packhouse_base::units;
use packhouse_store::doctor::{Ability, DoctorReport};
use packhouse_store::root::Store;
use packhouse_sys::stat::FsTrust;
use serde_json::{Value, json};

/// Examines store and host; without a store, says where it will be.
pub(crate) fn examine(store: Option<&Store>, lookup: Lookup<'_>) -> Result<Answer, Failure> {
    let places = Places::find(lookup)?;
    let plugin = run::plugin(lookup);
    let staged = Listed::of(lookup);
    let copies = CopiesAtAGlance::of(lookup);
    let held = Held::of(lookup);
    let shown = match &plugin {
        Ok(path) => path.display().to_string(),
        Err(failure) => first_line(&failure.to_string()),
    };
    let mut rows = vec![
        row("plug-in", &shown),
        row("store", &places.store.display().to_string()),
        row("private state", &places.state.display().to_string()),
        row("stages", &staged.summary()),
        row("model copies", &copies.summary()),
        row(
            "devices",
            &worker_devices::summary(&worker_devices::look(lookup)),
        ),
    ];
    rows.extend(held.summaries().map(|(name, value)| row(name, &value)));
    let Some(store) = store else {
        rows.push(row("sets", "no store yet"));
        let json = json!({
            "plugin": plugin.ok().map(|path| path.display().to_string()),
            "root": places.store.display().to_string(),
            "state": places.state.display().to_string(),
            "stage": staged.path(),
            "stages": staged.document(),
            "stage_problem": staged.problem(),
            "model_copies": copies.document(),
            "held": held.document(),
            "store": Value::Null,
        });
        return Ok(Answer::done(table(&COLUMNS, &rows) + &held.lines(), json));
    };
    let report = store.examine().map_err(|error| {
        let root = store.config().root.display();
        Failure::new("cannot examine the store", &root)
            .because(&error)
            .hint(format!("ls -la {root}"))
    })?;
    rows.extend(store_rows(&report));
    let mut text = table(&COLUMNS, &rows) + &held.lines();
    for pin in &report.damaged_pins {
        text += &format!("damaged pin {pin}\n");
    }
    if let Some(problem) = &report.state_problem {
        text += &format!("no private state: {problem}\n");
    }
    for advice in &report.advice {
        text += &format!("advice: {}\n", advice.words());
    }
    let json = json!({
        "plugin": plugin.ok().map(|path| path.display().to_string()),
        "root": report.root.display().to_string(),
        "state": places.state.display().to_string(),
        "stage": staged.path(),
        "stages": staged.document(),
        "stage_problem": staged.problem(),
        "model_copies": copies.document(),
        "held": held.document(),
        "store": document(&report),
    });
    Ok(Answer::done(text, json))
}

fn store_rows(report: &DoctorReport) -> Vec<Vec<String>> {
    let host = &report.host;
    let survey = &report.survey;
    let unknown = || "unknown".to_owned();
    let disk = format!(
        "{} of {} free",
        units::bytes(host.file_system.free_bytes),
        units::bytes(host.file_system.total_bytes)
    );
    let trust = match host.trust {
        FsTrust::Local => "local: packs are mapped",
        FsTrust::Remote => "remote or unknown: packs are read and hashed at each use",
    };
    vec![
        row("store id", &report.store_id.to_string()),
        row("sets", &survey.sets.len().to_string()),
        row(
            "objects",
            &format!(
                "{} ({})",
                survey.object_count,
                units::bytes(survey.object_bytes)
            ),
        ),
        row("in quarantine", &survey.quarantine_count.to_string()),
        row(
            "file system",
            &format!("{}, {trust}", host.file_system.kind),
        ),
        row("disk", &disk),
        row("files without a name", host.unnamed_files.name()),
        row("fs-verity", host.fs_verity.name()),
        row(
            "huge pages",
            &host.transparent_huge_pages.clone().unwrap_or_else(unknown),
        ),
        row(
            "huge pages for shared memory",
            &host.shmem_huge_pages.clone().unwrap_or_else(unknown),
        ),
        row(
            "huge pages set aside",
            &host
                .reserved_huge_pages
                .map_or_else(unknown, |count| count.to_string()),
        ),
        row(
            "kernel",
            &host.kernel_release.clone().unwrap_or_else(unknown),
        ),
    ]
}

fn document(report: &DoctorReport) -> Value {
    let host = &report.host;
    json!({
        "id": report.store_id.to_string(),
        "survey": glance::document(&report.survey),
        "damaged_pins": report.damaged_pins,
        "state_problem": report.state_problem.as_ref().map(ToString::to_string),
        "file_system": host.file_system.kind.to_string(),
        "total_bytes": host.file_system.total_bytes,
        "free_bytes": host.file_system.free_bytes,
        "is_local": host.trust == FsTrust::Local,
        "unnamed_files": ability(&host.unnamed_files),
        "fs_verity": ability(&host.fs_verity),
        "transparent_huge_pages": host.transparent_huge_pages,
        "shmem_huge_pages": host.shmem_huge_pages,
        "reserved_huge_pages": host.reserved_huge_pages,
        "kernel_release": host.kernel_release,
        "advice": report.advice.iter().map(|advice| advice.words()).collect::<Vec<_>>(),
    })
}

fn ability(ability: &Ability) -> Value {
    match ability {
        Ability::Present => json!({"present": true}),
        Ability::Absent => json!({"present": false}),
        Ability::Unknown { reason } => json!({"present": null, "reason": reason}),
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

fn row(name: &str, value: &str) -> Vec<String> {
    vec![name.to_owned(), value.to_owned()]
}

const COLUMNS: [Column; 2] = [Column::Left, Column::Left];
