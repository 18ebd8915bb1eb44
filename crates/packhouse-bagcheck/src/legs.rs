//! Legs against their plan, case by case: `docs/format/evidence.md`, sections 2, 4, 5 and 8.

use crate::answers::{self, Asked};
use crate::content::{Content, folders};
use crate::documents::Prereg;
use crate::exchange::{self, Exchange, Reply, Session};
use crate::fixture::Fixture;
use crate::messages::{Answer, Hello, Key};
use crate::plan::{self, Fixtures, Planned};
use crate::report::Report;
use crate::run::{self, Run};
use crate::shape::file;
use crate::tree::Tree;
use std::collections::BTreeMap;

/// One leg of the plan with what was asked.
#[derive(Debug)]
pub(crate) struct Leg {
    /// What had to be asked.
    pub(crate) plan: plan::Leg,
    /// Whether its exchange is there.
    pub(crate) has_lines: bool,
    /// What was asked and said.
    pub(crate) exchange: Exchange,
    /// Answers by program, in order, those of rejections left out.
    pub(crate) answers: Vec<Judged>,
}

/// One answer that was judged.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    /// Whose it is.
    pub(crate) treatment: &'static str,
    /// Line of the answer.
    pub(crate) path: String,
    /// The case's number.
    pub(crate) index: u64,
    /// Which case it is.
    pub(crate) key: Key,
    /// Whether it has no fault.
    pub(crate) is_sound: bool,
    /// Boundary, digest and whether it is equal; none of a faulty answer.
    pub(crate) rows: Vec<(String, String, bool)>,
    /// What was answered.
    pub(crate) answer: Answer,
    /// From the case's line to the answer's.
    pub(crate) span_ns: u64,
}

/// Judges every leg.
pub(crate) fn judge(content: &mut Content, payload: &Tree, fixtures: &Fixtures, prereg: &Prereg) {
    let run = content.run.clone();
    let mut legs = std::mem::take(&mut content.legs);
    if let Some(run) = &run {
        listed(&mut content.report, run, &legs, payload);
        stopped(&mut content.report, run, prereg);
    }
    for leg in &mut legs {
        let mut judge = Judge {
            report: &mut content.report,
            fixtures,
            prereg,
            run: run.as_ref(),
            folder: format!("legs/{:02}", leg.plan.number),
        };
        judge.leg(leg, payload);
        let packet = content.packet.as_ref();
        if let (Some(run), Some(packet)) = (&run, packet) {
            let record = judge.record(leg, payload, run);
            if let Some(record) = record {
                let is_rehearsal = run.is_rehearsal;
                judge.identities(leg, &record, packet, is_rehearsal);
            }
        }
    }
    if let Some(run) = &run {
        ended(&mut content.report, run, &legs);
    }
    content.legs = legs;
}

/// Holds how a leg ended against its answers: it failed by a wrong one, and by nothing else. A null
/// program may take or decline a rejection as it likes, a run that broke off may have lost the
/// output, and a span of lines is not the one that the controller measured.
fn ended(report: &mut Report, run: &Run, plans: &[Leg]) {
    let mut others = Vec::new();
    for leg in &run.legs {
        let lines = format!("legs/{:02}/exchange.jsonl:", leg.number);
        let own = report.findings.iter();
        let own = own.filter(|own| own.path.starts_with(&lines));
        let (mut is_wrong, mut is_sure) = (false, false);
        for finding in own {
            let is_rejection = finding.code == "rejection";
            if is_rejection || finding.code == "equality" || finding.code.starts_with("answer.") {
                is_wrong = true;
                is_sure |=
                    finding.code != "answer.timed-longer" && !(is_rejection && run.is_rehearsal);
            }
        }
        let number = leg.number;
        let mut timing = plans.iter().filter(|own| own.plan.is_timing);
        let is_timing = timing.any(|own| own.plan.number == number);
        match leg.status.as_str() {
            "complete" if is_sure => others.push(format!("leg {number} has a wrong answer")),
            "failed" if !is_wrong && !is_timing && run.status != "aborted" => {
                others.push(format!("leg {number} failed by no answer"));
            }
            _ => {}
        }
    }
    for words in others {
        report.find("run.legs", "run.json", words);
    }
}

/// Holds the legs that a run lists against the plan and the folders.
fn listed(report: &mut Report, run: &Run, legs: &[Leg], payload: &Tree) {
    let mut refuse = |words: String| report.find("run.legs", "run.json", words);
    for (position, listed) in (0..).zip(&run.legs) {
        let planned = legs.get(position).map(|leg| &leg.plan);
        let is_so = planned.is_some_and(|plan| {
            plan.number == listed.number && plan.leg == listed.leg && plan.device == listed.device
        });
        if !is_so {
            refuse(format!(
                "leg {} is not the one that is planned",
                listed.number
            ));
        }
    }
    if run.status == "complete" && run.legs.len() != legs.len() {
        let words = format!("{} legs, {} are planned", run.legs.len(), legs.len());
        refuse(format!("complete with {words}"));
    }
    let there = folders(payload, "legs");
    let names = run.legs.iter().map(|leg| format!("{:02}", leg.number));
    if !names.eq(there.iter().cloned()) {
        refuse(format!("lists other legs than have a folder: {there:?}"));
    }
}

/// Finds a leg that was begun although the one before it failed and the run had to stop there.
fn stopped(report: &mut Report, run: &Run, prereg: &Prereg) {
    let failed = run.legs.iter().position(|leg| leg.status != "complete");
    if prereg.stops && failed.is_some_and(|failed| failed + 1 < run.legs.len()) {
        let words = "a leg was begun after one that failed";
        report.find("run.status", "run.json", words);
    }
}

struct Judge<'a> {
    report: &'a mut Report,
    fixtures: &'a Fixtures,
    prereg: &'a Prereg,
    run: Option<&'a Run>,
    folder: String,
}

impl Judge<'_> {
    fn is_aborted(&self) -> bool {
        self.run.is_none_or(|run| run.status == "aborted")
    }

    fn line(&self, line: u64) -> String {
        format!("{}/exchange.jsonl:{line}", self.folder)
    }

    fn find(&mut self, code: &'static str, words: impl Into<String>) {
        let path = format!("{}/exchange.jsonl", self.folder);
        self.report.find(code, &path, words);
    }

    /// Returns whether a leg has a folder with what it said: of an aborted run a broken leg's may
    /// be lost.
    fn was_begun(&self, leg: &Leg, payload: &Tree) -> bool {
        let legs = self.run.map_or(&[][..], |run| &run.legs);
        let listed = legs.iter().find(|listed| listed.number == leg.plan.number);
        let is_lost = |status: &str| self.is_aborted() && status == "broken";
        let folder = format!("{}/", self.folder);
        listed.is_some_and(|listed| !is_lost(&listed.status))
            && payload.keys().any(|path| path.starts_with(&folder))
    }

    fn leg(&mut self, leg: &mut Leg, payload: &Tree) {
        if !leg.has_lines {
            if !self.is_aborted() {
                self.find("rows.missing", "nothing was asked of a planned leg");
            }
            if self.was_begun(leg, payload) {
                self.find(
                    "record.missing",
                    "the lines of a leg that was begun are not there",
                );
            }
            return;
        }
        for treatment in leg.exchange.sessions.keys() {
            if !leg.plan.treatments.contains(&treatment.as_str()) {
                self.find(
                    "leg.program",
                    format!("{treatment} has no part in this leg"),
                );
            }
        }
        let mut sessions = leg.exchange.sessions.values();
        let is_bare = sessions.all(|session| session.asked.is_empty());
        if is_bare && !self.is_aborted() {
            self.find("rows.missing", "nothing was asked of a planned leg");
        }
        let mut is_whole = true;
        for treatment in leg.plan.treatments.clone() {
            let planned: Vec<&Planned> = leg
                .plan
                .cases
                .iter()
                .filter(|(who, _)| *who == treatment)
                .map(|(_, planned)| planned)
                .collect();
            let none = Session::default();
            let session = leg.exchange.sessions.get(treatment).unwrap_or(&none);
            is_whole &= is_bare || self.complete(session, &planned);
            self.greeting(session, leg.plan.number);
            let by_key: BTreeMap<&Key, &Planned> = planned
                .iter()
                .map(|planned| (&planned.key, *planned))
                .collect();
            for (index, asked) in (0..).zip(&session.asked) {
                let own = by_key.get(&asked.case.key);
                if let (Some(own), Some((_, hello))) = (own, &session.hello) {
                    let place = Place {
                        treatment,
                        device: &leg.plan.device,
                        index,
                        hello,
                    };
                    let judged = self.case(&place, own, asked, payload);
                    leg.answers.extend(judged);
                }
            }
        }
        let turns = leg.plan.cases.iter().map(|(who, _)| *who);
        if is_whole
            && !turns
                .zip(&leg.exchange.turns)
                .all(|(who, turn)| who == turn)
        {
            self.find("rows.order", "the two programs were not asked in turns");
        }
    }

    /// Judges which cases were asked. Returns whether they are a beginning of the plan.
    fn complete(&mut self, session: &Session, planned: &[&Planned]) -> bool {
        let asked: Vec<&Key> = session.asked.iter().map(|asked| &asked.case.key).collect();
        let planned: Vec<&Key> = planned.iter().map(|planned| &planned.key).collect();
        if asked == planned {
            return true;
        }
        let mut left: BTreeMap<&Key, usize> = BTreeMap::new();
        for key in &planned {
            *left.entry(key).or_insert(0) += 1;
        }
        let mut kept: Vec<&Key> = Vec::new();
        for (position, key) in asked.iter().enumerate() {
            let path = self.line(session.asked[position].line);
            match left.get_mut(key) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    kept.push(key);
                }
                Some(_) if position > 0 && asked[position - 1] == *key => {
                    self.report.find("rows.doubled", &path, format!("{key}"));
                }
                Some(_) | None => {
                    self.report.find("rows.extra", &path, format!("{key}"));
                }
            }
        }
        let missing = left.clone();
        if !self.is_aborted() {
            for (key, count) in &missing {
                for _ in 0..*count {
                    self.find("rows.missing", format!("{key} was not asked"));
                }
            }
        }
        // What is left of the plan, in its order: the last ones of a key are those that are
        // missing.
        let mut skip = missing;
        let mut expected: Vec<&Key> = Vec::new();
        for key in planned.iter().rev() {
            match skip.get_mut(key) {
                Some(count) if *count > 0 => *count -= 1,
                Some(_) | None => expected.push(key),
            }
        }
        expected.reverse();
        let is_ordered = kept == expected;
        if !is_ordered {
            self.find("rows.order", "planned cases in another order");
        }
        is_ordered && asked.len() == kept.len()
    }

    fn greeting(&mut self, session: &Session, number: u64) {
        let Some(run) = self.run else {
            return;
        };
        let expected = plan::challenge(&run.nonce, number);
        let ours = session.greeting.as_ref().map(|(line, text)| (line, text));
        let hello = session.hello.as_ref();
        let theirs = hello.map(|(line, hello)| (line, &hello.challenge));
        for (line, challenge) in ours.into_iter().chain(theirs) {
            if *challenge != expected {
                let words = "not the challenge that follows from the nonce";
                let path = self.line(*line);
                self.report.find("case.challenge", &path, words);
            }
        }
    }

    /// Judges a case that was planned, and its answer.
    fn case(
        &mut self,
        place: &Place<'_>,
        planned: &Planned,
        asked: &exchange::Asked,
        payload: &Tree,
    ) -> Option<Judged> {
        let path = self.line(asked.line);
        let key = &planned.key;
        let Some(fixture) = self.fixtures.of(&key.fixture, key.repeat) else {
            let words = format!("{key} has no fixture in the bag");
            self.report.find("fixture.missing", &path, words);
            return None;
        };
        if !self.asked(&path, place, planned, fixture, asked) {
            return None;
        }
        let (line, at_ns, reply) = asked.reply.as_ref()?;
        let path = self.line(*line);
        let span_ns = at_ns.saturating_sub(asked.at_ns);
        self.budget(&path, span_ns);
        if let Some(rejection) = planned.rejection {
            let reason = &self.prereg.rejections[rejection].reason;
            if !matches!(reply, Reply::Declined(_, said) if said == reason) {
                let words = format!("not declined with {reason:?}");
                self.report.find("rejection", &path, words);
            }
        }
        let before = self.report.findings.len();
        let seen = asked.seen.as_ref().map(|(_, seen)| seen);
        let is_kept = seen.is_some_and(|seen| is_kept(seen, payload));
        let of = Asked {
            path: &path,
            case: &asked.case,
            hello: place.hello,
            seen,
            is_kept,
            span_ns,
        };
        answers::judge(self.report, &of, reply);
        let answer = match (reply, planned.rejection) {
            (Reply::Answer(answer), None) => answer.clone(),
            (Reply::Declined(..), None) if seen.is_none() => return None,
            (Reply::Declined(_, reason), None) => {
                let words = format!("{reason:?}");
                self.report.find("answer.declined", &path, words);
                return None;
            }
            (Reply::Answer(_) | Reply::Declined(..), Some(_)) => return None,
        };
        let found = &self.report.findings[before..];
        let mut found = found.iter();
        let is_sound = is_kept && !found.any(|finding| finding.code.starts_with("answer."));
        let rows = match is_sound {
            true => self.rows(&path, planned, fixture, asked, payload),
            false => Vec::new(),
        };
        Some(Judged {
            treatment: place.treatment,
            path,
            index: asked.case.index,
            key: key.clone(),
            is_sound,
            rows,
            answer,
            span_ns,
        })
    }

    /// Judges every field of what was asked. Returns whether the fixture has such a case at all.
    fn asked(
        &mut self,
        path: &str,
        place: &Place<'_>,
        planned: &Planned,
        fixture: &Fixture,
        asked: &exchange::Asked,
    ) -> bool {
        let (device, poisons) = (place.device, place.hello.poisons);
        let expected = plan::fields(planned, fixture, device, place.index, poisons);
        let Some(expected) = expected else {
            let words = format!("{} has no case", planned.key);
            self.report.find("fixture.missing", path, words);
            return false;
        };
        // Rejections are asked for what the program does not offer.
        let is_rejection = planned.rejection.is_some();
        let is_there = place.hello.devices.iter().any(|own| own == device);
        for (name, code) in CASE_CODES {
            let is_offered = match name {
                "device" => is_rejection || is_there,
                "cycles" => !planned.key.is_timed || place.hello.times,
                _ => true,
            };
            if asked.case.fields.get(name) != expected.get(name) || !is_offered {
                let words = format!("`{name}` is not what section 2 or the hello gives");
                self.report.find(code, path, words);
            }
        }
        if !is_rejection {
            self.offered(path, place.hello, &planned.key);
        }
        true
    }

    /// Judges whether the program's hello offers the fixture, arm and width that it was asked for.
    fn offered(&mut self, path: &str, hello: &Hello, key: &Key) {
        let mut refuse = |code: &'static str, words: String| self.report.find(code, path, words);
        let Some((arms, widths)) = hello.kernels.get(&key.fixture) else {
            return refuse(
                "case.fixture",
                format!("hello does not offer {}", key.fixture),
            );
        };
        if !arms.contains(&key.arm) {
            refuse("case.arm", format!("hello does not offer arm {}", key.arm));
        }
        if !widths.contains(&key.width) {
            let words = format!("hello does not offer width {}", key.width);
            refuse("case.width", words);
        }
    }

    fn budget(&mut self, path: &str, span_ns: u64) {
        let most = self.prereg.case_timeout_s.saturating_mul(1_000_000_000);
        if span_ns > most {
            let words = format!("{span_ns} ns for one case, at most {most}");
            self.report.find("budget", path, words);
        }
    }

    /// Compares the bytes of each boundary with what the fixture expects.
    fn rows(
        &mut self,
        path: &str,
        planned: &Planned,
        fixture: &Fixture,
        asked: &exchange::Asked,
        payload: &Tree,
    ) -> Vec<(String, String, bool)> {
        let Some((_, seen)) = &asked.seen else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        for form in &asked.case.boundaries {
            let Some(Ok((_, digest))) = seen.outputs.get(&form.file) else {
                continue;
            };
            let Some(bytes) = file(payload, &format!("outputs/{digest}")) else {
                continue;
            };
            let case = plan::case_of(fixture, planned);
            let is_equal = case
                .is_some_and(|case| fixture.is_equal(case, &form.name, self.prereg.is_near, bytes));
            if !is_equal {
                let words = format!("{} of {} is another", form.name, planned.key);
                self.report.find("equality", path, words);
            }
            rows.push((form.name.clone(), digest.clone(), is_equal));
        }
        rows
    }

    /// Holds `leg.json` against run, plan, exchange and logs.
    fn record(&mut self, leg: &Leg, payload: &Tree, run: &Run) -> Option<run::Leg> {
        let path = format!("{}/leg.json", self.folder);
        let listed = run
            .legs
            .iter()
            .find(|listed| listed.number == leg.plan.number)?;
        if self.is_aborted() && listed.status == "broken" && !payload.contains_key(&path) {
            return None;
        }
        let is_aborted = self.is_aborted();
        let record = run::leg(self.report, payload, &path)?;
        let mut find = |code: &'static str, words: String| self.report.find(code, &path, words);
        let own = &record.own;
        let kind = if leg.plan.is_timing {
            "timing"
        } else {
            "exact"
        };
        if own.number != leg.plan.number || record.kind != kind {
            find("leg.number", format!("{} leg {}", record.kind, own.number));
        }
        if (own.number, own.leg, &own.device, &own.status)
            != (listed.number, listed.leg, &listed.device, &listed.status)
        {
            find("run.legs", "not as `run.json` has it".to_owned());
        }
        let treatments = record
            .programs
            .iter()
            .map(|program| program.treatment.as_str());
        // A broken leg may have been cut before all of them were started.
        let mut planned = leg.plan.treatments.iter();
        let is_part = own.status == "broken"
            && treatments
                .clone()
                .all(|one| planned.any(|planned| *planned == one));
        if !is_part && !treatments.eq(leg.plan.treatments.iter().copied()) {
            find(
                "leg.program",
                "programs that are not those of the leg".to_owned(),
            );
        }
        let (started_ns, ended_ns) = (record.started.steady_ns, record.ended.steady_ns);
        let begins_ns = run.started.map_or(0, |run| run.steady_ns);
        let is_inside = started_ns >= begins_ns && started_ns <= ended_ns;
        // Spans bound what a program tells of its time: the leg bounds the spans.
        let lasted_ns = ended_ns.saturating_sub(started_ns);
        if !is_aborted && leg.exchange.last_ns > lasted_ns {
            find("run.clock", "its exchange is longer than it".to_owned());
        }
        let mut programs = record.programs.iter();
        if !is_aborted && programs.any(|program| program.elapsed_ns > lasted_ns) {
            find("run.clock", "a program lived longer than it".to_owned());
        }
        // What was aborted may have been found after another boot, whose clock is another.
        if !is_aborted && (!is_inside || record.ended.steady_ns > run.ended.steady_ns) {
            find("run.clock", "its times are not within the run's".to_owned());
        }
        self.ends(leg, &record, payload, run);
        Some(record)
    }

    /// Holds how each program ended against its session and its log.
    fn ends(&mut self, leg: &Leg, record: &run::Leg, payload: &Tree, run: &Run) {
        let path = format!("{}/leg.json", self.folder);
        let mut find = |words: String| self.report.find("leg.end", &path, words);
        for program in &record.programs {
            let treatment = &program.treatment;
            let log = file(payload, &format!("{}/{treatment}.stderr", self.folder));
            let bytes = log.map_or(0, |bytes| bytes.len() as u64);
            if bytes != program.stderr_bytes {
                let words = format!("{treatment} has {bytes} bytes of log");
                find(format!("{words}, not {}", program.stderr_bytes));
            }
            let session = leg.exchange.sessions.get(treatment);
            let end = session.and_then(|session| session.end.as_ref());
            let end = end.map(|(_, text)| text.as_str());
            match end {
                None if run.status == "aborted" => {}
                None => find(format!("the session of {treatment} has no end")),
                Some("bye") if program.exit != "code 0" => {
                    find(format!("{treatment} ended with {}", program.exit));
                }
                Some("bye") => {}
                Some(end) if run.status == "complete" => {
                    find(format!("{treatment} broke off: {end}"));
                }
                Some(_) => {}
            }
        }
    }

    /// Judges what each program had mapped.
    fn identities(
        &mut self,
        leg: &Leg,
        record: &run::Leg,
        packet: &crate::documents::Packet,
        is_rehearsal: bool,
    ) {
        let path = format!("{}/leg.json", self.folder);
        for program in &record.programs {
            let session = leg.exchange.sessions.get(&program.treatment);
            let end = session.and_then(|session| session.end.as_ref());
            if end.is_none_or(|(_, text)| text != "bye") {
                continue;
            }
            let is_candidate = program.treatment == "candidate";
            let role = match is_rehearsal && is_candidate {
                true if packet.programs.contains_key("null") => "null",
                true => "control",
                false => program.treatment.as_str(),
            };
            let frozen = packet.programs.get(role);
            let is_known = |digest: &String| {
                frozen.is_some_and(|own| own.sha256 == *digest || own.objects.contains(digest))
                    || packet.frozen.iter().any(|(_, frozen)| frozen == digest)
            };
            if program.objects.is_empty() {
                let words = format!("{} had nothing mapped", program.treatment);
                self.report.find("identity", &path, words);
            }
            for digest in program.objects.iter().filter(|digest| !is_known(digest)) {
                let words = format!("{} had {digest} mapped, not frozen", program.treatment);
                self.report.find("identity", &path, words);
            }
        }
    }
}

/// Returns whether the bytes of all outputs that were seen are in the bag.
fn is_kept(seen: &exchange::Seen, payload: &Tree) -> bool {
    let mut outputs = seen
        .outputs
        .values()
        .filter_map(|output| output.as_ref().ok());
    outputs.all(|(bytes, digest)| *bytes == 0 || payload.contains_key(&format!("outputs/{digest}")))
}

struct Place<'a> {
    treatment: &'static str,
    device: &'a str,
    index: u64,
    hello: &'a Hello,
}

/// Fields of a case with the code of each.
const CASE_CODES: [(&str, &str); 8] = [
    ("index", "case.index"),
    ("layout", "case.layout"),
    ("device", "case.device"),
    ("parameters", "case.parameters"),
    ("inputs", "case.inputs"),
    ("boundaries", "case.boundaries"),
    ("poison", "case.poison"),
    ("cycles", "case.cycles"),
];
