//! Both pages as Markdown, which a terminal can show too.

use super::live::{Live, Topic};
use super::next::{Next, of_lane, of_packet};
use super::ran::{self, Ran};
use super::report::{heading, of_packet_marks};
use super::sections::{in_order, seal_link, widths};
use super::values::{Found, Gate, Lane, Packet, Page, Sealed, Timing};
use super::words::{code, href, md, short, utc};

/// The state page.
pub(super) fn state(page: &Page, prefix: &str) -> String {
    let mut text = format!("# State of {}\n\n{}", md(&page.lab), origin(page, prefix));
    doubts(&mut text, page);
    lanes(&mut text, page, prefix);
    waits(&mut text, page);
    records(&mut text, page, prefix);
    packets(&mut text, page, prefix);
    notes(&mut text, page);
    text += "\n## Sealed evidence\n\n";
    let sealed = in_order(page)
        .into_iter()
        .filter(|one| !one.seals.is_empty());
    let lines: Vec<String> = sealed.flat_map(|one| seals(one, prefix)).collect();
    text += &or_words(lines.concat(), "Nothing was sealed.\n");
    if let Some(live) = &page.live {
        observed(&mut text, live);
    }
    text + FOOTER
}

/// One packet's report.
pub(super) fn report(page: &Page, packet: &Packet, prefix: &str) -> String {
    let mut text = format!(
        "# Report of {}\n\n{}",
        md(&packet.experiment),
        origin(page, prefix)
    );
    text += &facts(page, packet, prefix);
    if let Some(ran) = &packet.ran {
        text += &ran::markdown(ran, heading(packet));
    }
    text += "\n## Sealed evidence\n\n";
    text += &or_words(seals(packet, prefix).concat(), "Nothing was sealed.\n");
    for sealed in &packet.seals {
        if let Found::Here(found) = &sealed.reading {
            text += &format!("\n### Gates of analysis {}\n\n", sealed.number);
            text += &gates(&found.gates);
            if !found.timing.is_empty() {
                text += &format!("\n### Timing of analysis {}\n\n", sealed.number);
                text += &timings(&found.timing);
            }
            if !found.says.is_empty() {
                text += "\nNot proven by the bag alone:\n\n";
            }
            for said in &found.says {
                text += &format!("- **Said**: {}\n", md(said));
            }
        }
    }
    if !packet.reviews.is_empty() {
        text += "\n## Reviews\n\n";
    }
    for review in &packet.reviews {
        let word = if review.approves {
            "approves"
        } else {
            "rejects"
        };
        text += &format!(
            "- **{}** {word}: {}\n",
            md(&review.reviewer),
            md(&review.note)
        );
    }
    text += "\n## In the ledger\n\n";
    for mark in of_packet_marks(page, packet) {
        let back = if mark.went_back {
            " (the clock went back)"
        } else {
            ""
        };
        let when = utc(mark.at_ns);
        text += &format!(
            "- **Entry {}**: {}, {when}{back}\n",
            mark.index,
            md(&mark.words)
        );
    }
    text + &FOOTER.replacen("lab state`", "lab report`", 1)
}

fn origin(page: &Page, prefix: &str) -> String {
    format!(
        "[Ledger]({prefix}ledger.jsonl) of {} entries up to {}, head {}, lab {}.\n",
        page.entry_count,
        utc(page.last_at_ns),
        code(&short(&page.head)),
        code(&short(&page.lab_id))
    )
}

fn doubts(text: &mut String, page: &Page) {
    if page.doubts.is_empty() {
        return;
    }
    *text += "\n## Know first\n\n";
    for doubt in &page.doubts {
        *text += &format!("- **{}**: {}\n", md(&doubt.what), md(&doubt.text));
    }
}

fn notes(text: &mut String, page: &Page) {
    if page.notes.is_empty() {
        return;
    }
    *text += "\n## Newest notes\n\n";
    for note in &page.notes {
        let lane = note
            .lane
            .as_ref()
            .map_or(String::new(), |lane| format!(" on {}", md(lane)));
        let (entry, day) = (note.entry, utc(note.at_ns));
        *text += &format!("- **Entry {entry}**{lane}, {day}: {}\n", md(&note.text));
    }
}

fn lanes(text: &mut String, page: &Page, prefix: &str) {
    let rows = page.lanes.iter().map(|lane| {
        let title = lane.text.as_ref().map_or("", |text| &text.title);
        let record = page.record_of(lane).map_or("none", |record| &record.claim);
        let link = href(prefix, &["lanes", &format!("{}.toml", lane.lane)]);
        vec![
            format!("[{}]({link})", md(&lane.lane)),
            md(title),
            lane_state(lane),
            md(record),
            next(&of_lane(page, lane)),
        ]
    });
    let head = ["lane", "title", "state", "current record", "next act"];
    *text += "\n## Lanes\n\n";
    *text += &table(&head, rows.collect(), "No lane was opened.\n");
}

fn lane_state(lane: &Lane) -> String {
    let mut words = lane.state.word().to_owned();
    if let Some(day) = &lane.until {
        words += &format!(" until {}", md(day));
    }
    if !lane.reason.is_empty() {
        words += &format!(": {}", md(&lane.reason));
    }
    words
}

fn waits(text: &mut String, page: &Page) {
    let mut waiting: Vec<&Lane> = page
        .lanes
        .iter()
        .filter(|lane| lane.state.waits())
        .collect();
    waiting.sort_by_key(|lane| &lane.until);
    let rows = waiting.iter().map(|lane| {
        let day = lane.until.as_deref().unwrap_or("no day");
        let over = if page.is_over(lane) { " (over)" } else { "" };
        vec![
            md(day) + over,
            md(&lane.lane),
            lane.state.word().to_owned(),
            md(&lane.reason),
        ]
    });
    *text += "\n## Waits\n\n";
    *text += &table(
        &["until", "lane", "state", "for"],
        rows.collect(),
        "Nothing waits.\n",
    );
}

fn records(text: &mut String, page: &Page, prefix: &str) {
    let rows = page.current_records().map(|record| {
        let mut claim = md(&record.claim);
        if let Some(entry) = record.disputed_by {
            claim += &format!(" (**disputed** by the analysis of entry {entry})");
        }
        for said in &record.corrections {
            claim += &format!(" (corrected: {})", md(said));
        }
        let link = seal_link(prefix, &record.packet, record.seal_number);
        let experiment = md(&page.experiment_of(&record.packet));
        let seal = format!("[{experiment}]({link})");
        vec![
            md(&record.key),
            claim,
            widths(record),
            seal,
            utc(record.at_ns),
        ]
    });
    let head = ["key", "claim", "widths", "seal", "entered"];
    *text += "\n## Current records\n\n";
    *text += &table(&head, rows.collect(), "No record was entered.\n");
}

fn packets(text: &mut String, page: &Page, prefix: &str) {
    let rows = in_order(page).into_iter().map(|packet| {
        let link = href(prefix, &["experiments", &packet.experiment, "prereg.toml"]);
        vec![
            format!("[{}]({link})", md(&packet.experiment)),
            code(&short(&packet.packet)),
            md(&packet.lane),
            packet_state(packet),
            next(&of_packet(page, packet)),
        ]
    });
    let head = ["experiment", "packet", "lane", "state", "next act"];
    *text += "\n## Packets\n\n";
    *text += &table(&head, rows.collect(), "No experiment was registered.\n");
}

fn packet_state(packet: &Packet) -> String {
    let word = packet.state.word();
    match packet.reason.is_empty() {
        true => word.to_owned(),
        false => format!("{word}: {}", md(&packet.reason)),
    }
}

fn facts(page: &Page, packet: &Packet, prefix: &str) -> String {
    let experiment = |file: &str| href(prefix, &["experiments", &packet.experiment, file]);
    let mut rows = vec![("State", packet_state(packet))];
    match &packet.plan {
        Found::Here(plan) => {
            rows.push(("Question", md(&plan.question)));
            rows.push(("A pass authorises", md(&plan.authorises)));
            rows.push(("And does not", md(&plan.does_not_authorise)));
            rows.extend(plan.exclusions.iter().map(|text| ("Left out", md(text))));
        }
        Found::Absent => rows.push(("Question", "the preregistration is not here".to_owned())),
        Found::Refused(why) => {
            rows.push((
                "Question",
                format!("the preregistration is refused: {}", md(why)),
            ));
        }
    }
    rows.push(("Treatment", md(&packet.treatment)));
    let computed = packet.ran.as_ref().and_then(Ran::contrast);
    rows.extend(computed.map(|text| ("Differs, as computed", md(&text))));
    rows.extend([
        ("Lane", md(&packet.lane)),
        ("Packet", code(&packet.packet)),
        (
            "Documents",
            format!(
                "[preregistration]({}), [packet]({})",
                experiment("prereg.toml"),
                experiment("packet.json")
            ),
        ),
        ("Rehearsals", md(&packet.rehearsals.summary())),
    ]);
    rows.extend(packet.told_released().map(|text| ("Released", md(&text))));
    rows.push(("Next act", next(&of_packet(page, packet))));
    let lines = rows
        .iter()
        .map(|(what, text)| format!("- **{what}**: {text}\n"));
    format!("\n{}", lines.collect::<String>())
}

/// A line for each seal of a packet.
fn seals(packet: &Packet, prefix: &str) -> Vec<String> {
    packet
        .seals
        .iter()
        .map(|sealed| seal(packet, sealed, prefix))
        .collect()
}

fn seal(packet: &Packet, sealed: &Sealed, prefix: &str) -> String {
    let number = sealed.number;
    let folder = format!("analysis-{number}");
    let analysis = href(
        prefix,
        &["evidence", &packet.packet, &folder, "analysis.json"],
    );
    let manifest = ["evidence", &packet.packet, "bag", "tagmanifest-sha256.txt"];
    let found = match &sealed.reading {
        Found::Here(found) => md(&found.summary()),
        Found::Absent => "the analysis is not here".to_owned(),
        Found::Refused(why) => format!("the analysis is refused: {}", md(why)),
    };
    let why = match sealed.why.is_empty() {
        true => String::new(),
        false => format!(" (analysed again: {})", md(&sealed.why)),
    };
    format!(
        "- **{}**, analysis {number}, {}: **{}**{why}; {found} \
         ([seal]({}), [analysis]({analysis}), [bag]({}))\n",
        md(&packet.experiment),
        utc(sealed.at_ns),
        sealed.verdict.as_str(),
        seal_link(prefix, &packet.packet, number),
        href(prefix, &manifest),
    )
}

fn gates(gates: &[Gate]) -> String {
    let rows = gates.iter().map(|gate| {
        let mut passed = match gate.passed {
            Some(true) => "passed",
            Some(false) => "failed",
            None => "not judged",
        }
        .to_owned();
        if !gate.decides {
            passed += " (decides nothing)";
        }
        let mut measured = md(&gate.measured);
        for failure in &gate.failures {
            measured += &format!("; {}", md(failure));
        }
        let shown = u64::try_from(gate.failures.len()).unwrap_or(u64::MAX);
        if gate.failure_count > shown {
            measured += &format!("; and {} more", gate.failure_count - shown);
        }
        let basis = gate.basis.word().to_owned();
        vec![md(&gate.gate), passed, md(&gate.threshold), measured, basis]
    });
    let head = ["gate", "passed", "threshold", "measured", "basis"];
    table(&head, rows.collect(), "No gate was reached.\n")
}

fn timings(timing: &[Timing]) -> String {
    let rows = timing.iter().map(|one| {
        vec![
            one.leg.to_string(),
            md(&one.device),
            format!("{} of {}", one.wins, one.savings.len()),
            one.median.text(),
            one.hodges_lehmann.text(),
            one.bootstrap_lower_95.text(),
            md(&one.sign_test_p),
        ]
    });
    let head = [
        "leg",
        "device",
        "wins",
        "median saving a cycle",
        "Hodges-Lehmann",
        "bootstrap, lower 95 %",
        "sign test, p",
    ];
    table(&head, rows.collect(), "No leg was timed.\n")
}

fn observed(text: &mut String, live: &Live) {
    *text += &format!(
        "\n## Observed on this host\n\nDrawn {}. Only what was seen then is here: no document, \
         unit or recipe counts as running.\n",
        utc(live.at_ns)
    );
    for topic in Topic::ALL {
        let of_topic = live.of_topic(topic);
        let rows = of_topic.iter().map(|one| {
            let unknown = if one.known { "" } else { "unknown: " };
            let seen = format!("{unknown}{}", md(&one.seen));
            vec![md(&one.subject), seen, md(&one.how), utc(one.at_ns)]
        });
        *text += &format!("\n### {}\n\n", topic.heading());
        *text += &table(
            &["what", "seen", "how", "when"],
            rows.collect(),
            "not observed\n",
        );
    }
}

fn next(next: &Next) -> String {
    match next {
        Next::Command(command) => code(command),
        Next::Words(words) => md(words),
        Next::Nothing => "none".to_owned(),
    }
}

fn or_words(text: String, empty: &str) -> String {
    if text.is_empty() {
        empty.to_owned()
    } else {
        text
    }
}

/// A table whose cells are Markdown already; a sentence where it has no rows.
fn table(head: &[&str], rows: Vec<Vec<String>>, empty: &str) -> String {
    if rows.is_empty() {
        return empty.to_owned();
    }
    let mut lines = vec![
        head.iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>(),
    ];
    lines.push(head.iter().map(|word| "-".repeat(word.len())).collect());
    lines.extend(rows);
    let mut text = String::new();
    for line in &lines {
        text += &format!("| {} |\n", line.join(" | "));
    }
    text
}

const FOOTER: &str = "\nMade by `packhouse lab state` from the ledger and from the sealed analyses \
                      that it names; an edit here changes nothing, and is found by \
                      `packhouse lab state --check`. Times are each entry's own; the order is the \
                      ledger's.\n";
