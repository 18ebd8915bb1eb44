//! `lab report`: one packet, and all that became of it.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::lab::Place;
use crate::lab_page::{Read, Target};
use crate::lab_words::LabReportArgs;
use crate::{lab_ran, lab_state, lab_unequal};
use packhouse_lab::unequal::Unequal;
use packhouse_ledger::page::{
    Evidence, Gate, Packet, Page, Plan, Program, Ran, Row, Saving, Sealed, Timing,
};
use serde_json::{Value, json};
use std::path::Path;

/// Shows one packet.
pub(crate) fn execute(args: &LabReportArgs, place: &Place) -> Result<Answer, Failure> {
    let mut lab = Read::lab(place)?;
    let digest = lab.opened.packet(&lab.ledger, &args.packet)?;
    let state = lab.opened.standing(&lab.ledger, digest)?;
    let (ran, unequal) = lab_ran::of(&lab, digest, state);
    let packet = digest.to_string();
    for one in lab
        .page
        .packets
        .iter_mut()
        .filter(|one| one.packet == packet)
    {
        one.ran = Some(ran.clone());
    }
    let stdout = Path::new("-");
    let md = args.md.as_deref();
    let target = Target::of(args.html.as_deref().or(md).unwrap_or(stdout));
    let prefix = target.prefix(place)?;
    let page = match args.html {
        Some(_) => lab.page.report_html(&packet, &prefix),
        None => lab.page.report_markdown(&packet, &prefix),
    };
    let mut answer = target.give(page.unwrap_or_default())?;
    let found = lab.page.packets.iter().find(|one| one.packet == packet);
    if let (Some(packet), Value::Object(fields)) = (found, &mut answer.json) {
        let report = document(&lab.page, packet, &ran, &unequal);
        fields.insert("report".to_owned(), report);
    }
    Ok(answer)
}

/// The report for programs: the page's figures as data.
fn document(page: &Page, packet: &Packet, ran: &Ran, unequal: &[Unequal]) -> Value {
    let mut document = lab_state::packet_json(page, packet);
    document["plan"] = packet.plan.here().map_or(Value::Null, plan);
    document["plan_refused"] = json!(packet.plan.why_not());
    document["differs"] = json!(ran.differences);
    document["programs"] = ran.programs.iter().map(program).collect();
    let facts = ran
        .facts
        .iter()
        .map(|(name, text)| json!({ "what": name, "text": text }));
    document["ran"] = facts.collect();
    document["unequal"] = lab_unequal::document(unequal);
    let reviews = packet.reviews.iter().map(|review| {
        json!({
            "reviewer": review.reviewer,
            "approves": review.approves,
            "note": review.note,
        })
    });
    document["reviews"] = reviews.collect();
    document["analyses"] = packet.seals.iter().map(analysis).collect();
    document
}

fn plan(plan: &Plan) -> Value {
    json!({
        "question": plan.question,
        "authorises": plan.authorises,
        "does_not_authorise": plan.does_not_authorise,
        "exclusions": plan.exclusions,
        "reviewers": plan.reviewers,
        "timing": plan.timing.map(|rule| json!({
            "minimum_wins": rule.minimum_wins,
            "minimum_median_saving_ns": rule.minimum_median_saving_ns,
        })),
    })
}

fn program(program: &Program) -> Value {
    json!({
        "role": program.role,
        "name": program.name,
        "sha256": program.sha256,
        "objects": program.objects,
        "arguments": program.arguments,
        "variables": program.variables,
    })
}

/// One analysis: what is refused or not here has no gates, and says why.
fn analysis(sealed: &Sealed) -> Value {
    let none = Evidence::default();
    let found = sealed.reading.here().unwrap_or(&none);
    json!({
        "number": sealed.number,
        "verdict": sealed.verdict.as_str(),
        "entry": sealed.entry,
        "refused": sealed.reading.why_not(),
        "gates": found.gates.iter().map(gate).collect::<Vec<_>>(),
        "rows": found.rows.iter().map(row).collect::<Vec<_>>(),
        "timing": found.timing.iter().map(timing).collect::<Vec<_>>(),
        "says": found.says,
    })
}

fn gate(gate: &Gate) -> Value {
    json!({
        "gate": gate.gate,
        "passed": gate.passed,
        "decides": gate.decides,
        "basis": gate.basis.word(),
        "threshold": gate.threshold,
        "measured": gate.measured,
        "failures": gate.failures,
        "failure_count": gate.failure_count,
    })
}

fn row(row: &Row) -> Value {
    json!({
        "leg": row.leg,
        "device": row.device,
        "treatment": row.treatment,
        "index": row.index,
        "fixture": row.fixture,
        "arm": row.arm,
        "width": row.width,
        "repeat": row.repeat,
        "boundary": row.boundary,
        "equal": row.equal,
    })
}

fn timing(timing: &Timing) -> Value {
    json!({
        "leg": timing.leg,
        "device": timing.device,
        "wins": timing.wins,
        "savings_ns": timing.savings.iter().map(saving).collect::<Vec<_>>(),
        "median_ns": saving(&timing.median),
        "hodges_lehmann_ns": saving(&timing.hodges_lehmann),
        "bootstrap_lower_95_ns": saving(&timing.bootstrap_lower_95),
        "sign_test_p": timing.sign_test_p,
    })
}

/// An exact fraction; above the line in decimal, since JSON's readers round long numbers.
fn saving(saving: &Saving) -> Value {
    json!({
        "numerator": saving.numerator.to_string(),
        "denominator": saving.denominator,
    })
}
