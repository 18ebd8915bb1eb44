//! One answer against its case and against what was seen: `docs/format/component.md`.

use crate::exchange::{Reply, Seen};
use crate::messages::{Answer, Case, Form, Hello, Written, element_bytes};
use crate::report::Report;
use std::collections::{BTreeMap, BTreeSet};

/// What one answer is judged by.
pub(crate) struct Asked<'a> {
    /// Line of the answer.
    pub(crate) path: &'a str,
    /// What was asked.
    pub(crate) case: &'a Case,
    /// What the program is able to.
    pub(crate) hello: &'a Hello,
    /// What was seen afterwards.
    pub(crate) seen: Option<&'a Seen>,
    /// Whether the bytes of all outputs that were seen are in the bag.
    pub(crate) is_kept: bool,
    /// The controller's own span from asking to the answer.
    pub(crate) span_ns: u64,
}

/// Judges what a program made of a case; every fault is a finding. Before it was looked what was
/// made there is nothing to judge, and of an answer whose outputs were lost the digests alone.
pub(crate) fn judge(report: &mut Report, asked: &Asked<'_>, reply: &Reply) {
    let mut judge = Judge { report, asked };
    if asked.seen.is_none() {
        return;
    }
    judge.strays();
    match reply {
        Reply::Answer(answer) if !asked.is_kept => return judge.digests(answer),
        Reply::Declined(index, _) => judge.index(*index),
        Reply::Answer(answer) => {
            judge.index(answer.index);
            judge.whole(answer);
            judge.boundaries(answer);
            judge.inputs(answer);
            judge.addresses(answer);
        }
    }
    judge.seen(match reply {
        Reply::Answer(answer) => Some(answer),
        Reply::Declined(..) => None,
    });
}

struct Judge<'a, 'r> {
    report: &'r mut Report,
    asked: &'a Asked<'a>,
}

impl Judge<'_, '_> {
    fn find(&mut self, code: &'static str, words: impl Into<String>) {
        self.report.find(code, self.asked.path, words);
    }

    fn index(&mut self, index: u64) {
        if index != self.asked.case.index {
            let words = format!("of case {index}, asked was {}", self.asked.case.index);
            self.find("answer.index", words);
        }
    }

    fn whole(&mut self, answer: &Answer) {
        let case = self.asked.case;
        let says = self.asked.hello.says_capture;
        if says && answer.capture == "unknown" {
            self.find(
                "answer.capture-not-said",
                "`unknown`, though it says what it knows",
            );
        }
        if !says && answer.capture != "unknown" {
            self.find(
                "answer.capture-not-offered",
                "a state, though it can't know one",
            );
        }
        if answer.witnesses.iter().all(|(path, _)| path == "poison") {
            self.find("answer.no-witness", "no path says that it ran");
        }
        if case.poison.is_some() {
            let mut witnesses = answer.witnesses.iter();
            let of_poison = witnesses.find(|(path, _)| path == "poison");
            let filled = of_poison.and_then(|(_, counters)| counters.get("bytes"));
            let needed = storage_bytes(&case.boundaries);
            if filled.is_none_or(|filled| *filled < needed) {
                let words = format!("{filled:?} bytes filled of {needed}");
                self.find("answer.poison", words);
            }
        }
        match (case.cycles, answer.timed) {
            (None, None) => {}
            (None, Some(_)) => self.find("answer.timed-unasked", "`timed`, not asked for"),
            (Some(_), None) => self.find("answer.not-timed", "no `timed`, asked for"),
            (Some(cycles), Some((said, elapsed))) => {
                let span = self.asked.span_ns;
                if said != cycles {
                    self.find(
                        "answer.cycles",
                        format!("{said} cycles, asked were {cycles}"),
                    );
                } else if elapsed > span {
                    let words = format!("{elapsed} ns, the answer took {span} ns");
                    self.find("answer.timed-longer", words);
                }
            }
        }
    }

    fn boundaries(&mut self, answer: &Answer) {
        let case = self.asked.case;
        let mut named = BTreeSet::new();
        for written in &answer.boundaries {
            let name = &written.form.name;
            if !named.insert(name.as_str()) {
                self.find("answer.twice", format!("boundary {name} is there twice"));
                continue;
            }
            let Some(form) = case.boundaries.iter().find(|form| form.name == *name) else {
                self.find(
                    "answer.invented",
                    format!("boundary {name} is not in the case"),
                );
                continue;
            };
            self.form(form, written);
        }
        for form in &case.boundaries {
            if !named.contains(form.name.as_str()) {
                self.find(
                    "answer.missing",
                    format!("boundary {} is missing", form.name),
                );
            }
        }
    }

    fn form(&mut self, form: &Form, written: &Written) {
        let (is, name) = (&written.form, &form.name);
        let device = &self.asked.case.device;
        for (code, is_other) in [
            ("answer.dtype", is.dtype != form.dtype),
            ("answer.shape", is.shape != form.shape),
            ("answer.stride", is.stride != form.stride),
            ("answer.offset", is.offset != form.offset),
            ("answer.bytes", is.bytes != form.bytes),
            ("answer.file-name", is.file != form.file),
            ("answer.device", written.device != *device),
        ] {
            if is_other {
                self.find(code, format!("boundary {name} is not as the case has it"));
            }
        }
        self.digest(form, written);
    }

    /// Judges the digest of each boundary that is named once or first.
    fn digests(&mut self, answer: &Answer) {
        for form in &self.asked.case.boundaries {
            let mut written = answer.boundaries.iter();
            if let Some(written) = written.find(|written| written.form.name == form.name) {
                self.digest(form, written);
            }
        }
    }

    fn digest(&mut self, form: &Form, written: &Written) {
        let name = &form.name;
        let outputs = self.asked.seen.map(|seen| &seen.outputs);
        // Of a file that is not as long as its boundary, the length is told and nothing more.
        if let Some(Ok((bytes, sha256))) = outputs.and_then(|outputs| outputs.get(&form.file))
            && *bytes == form.bytes
            && *sha256 != written.sha256
        {
            let words = format!("boundary {name}: said {}, is {sha256}", written.sha256);
            self.find("answer.digest", words);
        }
    }

    fn inputs(&mut self, answer: &Answer) {
        for (role, input) in &self.asked.case.inputs {
            match answer.inputs.get(role) {
                None => self.find("answer.input-missing", format!("input {role}")),
                Some((_, _, sha256)) if *sha256 != input.sha256 => {
                    let words = format!("input {role}: {sha256}, given was {}", input.sha256);
                    self.find("answer.input-digest", words);
                }
                Some(_) => {}
            }
        }
        for role in answer.inputs.keys() {
            if !self.asked.case.inputs.contains_key(role) {
                self.find("answer.input-invented", format!("input {role}"));
            }
        }
    }

    /// Judges where tensors say that they lay.
    fn addresses(&mut self, answer: &Answer) {
        let case = self.asked.case;
        // Intervals by what must be apart: a storage, or an input.
        let mut intervals: Vec<(String, u64, u64)> = Vec::new();
        let mut bases: BTreeMap<&str, i128> = BTreeMap::new();
        let mut named = BTreeSet::new();
        for written in &answer.boundaries {
            let forms = case.boundaries.iter();
            let mut forms = forms.filter(|form| form.name == written.form.name);
            let Some(form) = forms.next().filter(|form| named.insert(&form.name)) else {
                continue;
            };
            if !is_interval(written.start, written.end, form.bytes) {
                self.find("answer.interval", format!("boundary {}", form.name));
                continue;
            }
            let before = i128::from(form.offset) * i128::from(element_bytes(&form.dtype));
            let base = i128::from(written.start) - before;
            if *bases.entry(&form.storage).or_insert(base) != base || base < 0 {
                let words = format!("boundary {} has another base than its storage", form.name);
                self.find("answer.base", words);
            }
            intervals.push((
                format!("storage {}", form.storage),
                written.start,
                written.end,
            ));
        }
        for (role, (start, end, _)) in &answer.inputs {
            let Some(input) = case.inputs.get(role) else {
                continue;
            };
            if is_interval(*start, *end, input.bytes) {
                intervals.push((format!("input {role}"), *start, *end));
            } else {
                self.find("answer.interval", format!("input {role}"));
            }
        }
        for (index, (name, start, end)) in intervals.iter().enumerate() {
            for (other, start_2, end_2) in &intervals[..index] {
                if name != other && start < end_2 && start_2 < end {
                    let words = format!("{name} and {other} have bytes in common");
                    self.find("answer.overlap", words);
                }
            }
        }
    }

    /// Finds what was seen of another case.
    fn strays(&mut self) {
        let Some(seen) = self.asked.seen else {
            return;
        };
        let case = self.asked.case;
        if seen.index != case.index {
            self.find("leg.order", format!("`seen` is of case {}", seen.index));
        }
        let is_its = |name: &String| case.inputs.values().any(|input| input.file == *name);
        for name in seen.inputs.keys().filter(|name| !is_its(name)) {
            self.find(
                "leg.order",
                format!("`seen` has an input {name} of no case"),
            );
        }
    }

    /// Judges what lay in the folders. A file of no boundary that was answered is one too many.
    fn seen(&mut self, answer: Option<&Answer>) {
        let Some(seen) = self.asked.seen else {
            return;
        };
        let case = self.asked.case;
        let named: BTreeSet<&String> = answer
            .iter()
            .flat_map(|answer| &answer.boundaries)
            .map(|written| &written.form.name)
            .collect();
        let forms = case.boundaries.iter();
        let forms: Vec<&Form> = forms.filter(|form| named.contains(&form.name)).collect();
        for form in &forms {
            let file = &form.file;
            match seen.outputs.get(file) {
                None => self.find("answer.file-absent", file.as_str()),
                Some(Ok((0, _))) => self.find("answer.file-empty", file.as_str()),
                Some(Ok((bytes, _))) if *bytes != form.bytes => {
                    let words = format!("{file} has {bytes} bytes, not {}", form.bytes);
                    self.find("answer.file-length", words);
                }
                Some(Ok(_)) => {}
                Some(Err(words)) if words == "no file" => {
                    self.find("answer.file-absent", file.as_str());
                }
                Some(Err(words)) if words.ends_with(" bytes") => {
                    self.find("answer.file-length", format!("{file} has {words}"));
                }
                Some(Err(words)) => self.find("answer.file-kind", format!("{file} is {words}")),
            }
        }
        for file in seen.outputs.keys() {
            if !forms.iter().any(|form| form.file == *file) {
                self.find("answer.file-extra", format!("{file} was not asked for"));
            }
        }
        let files: BTreeMap<&String, &String> = case
            .inputs
            .values()
            .map(|input| (&input.file, &input.sha256))
            .collect();
        for (file, sha256) in &files {
            if seen.inputs.get(*file).and_then(Option::as_ref) != Some(*sha256) {
                self.find(
                    "answer.input-changed",
                    format!("{file} is not what was given"),
                );
            }
        }
        for name in &seen.extra {
            self.find(
                "answer.input-extra",
                format!("{name:?} was put beside the inputs"),
            );
        }
    }
}

/// Returns whether an interval is one of so many bytes, not at address 0.
fn is_interval(start: u64, end: u64, bytes: u64) -> bool {
    start > 0 && end.checked_sub(start) == Some(bytes)
}

/// Returns the bytes of all storages: each up to the end of its last boundary.
pub(crate) fn storage_bytes(forms: &[Form]) -> u64 {
    let mut ends: BTreeMap<&str, u64> = BTreeMap::new();
    for form in forms {
        let before = form.offset.saturating_mul(element_bytes(&form.dtype));
        let end = before.saturating_add(form.bytes);
        let last = ends.entry(&form.storage).or_insert(0);
        *last = end.max(*last);
    }
    ends.values().fold(0, |all, end| all.saturating_add(*end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_storage_ends_where_its_last_boundary_does() {
        let form = |name: &str, storage: &str, offset: u64, bytes: u64| Form {
            name: name.to_owned(),
            storage: storage.to_owned(),
            file: String::new(),
            dtype: "bf16".to_owned(),
            shape: Vec::new(),
            stride: Vec::new(),
            offset,
            bytes,
        };
        let forms = [
            form("k", "kv", 0, 8),
            form("v", "kv", 4, 8),
            form("o", "o", 0, 3),
        ];
        assert_eq!(storage_bytes(&forms), 16 + 3);
    }

    #[test]
    fn an_interval_has_the_tensors_length_and_no_zero() {
        assert!(is_interval(8, 12, 4));
        for (start, end) in [(0, 4), (8, 13), (12, 8)] {
            assert!(!is_interval(start, end, 4), "{start} {end}");
        }
    }
}
