//! What control and candidate differ in, computed of what a packet froze: the author's sentence of
//! the treatment stands beside it and is not believed for it.
//!
//! Where an experiment has no control, the null candidate of rehearsals stands in its place.

use crate::packet::{FrozenProgram, Packet};
use packhouse_base::digest::Digest;
use std::collections::BTreeSet;

/// Each thing that differs, in a line: the program, its arguments, each variable of its
/// environment, and what its loader loads where nothing else tells. Empty: nothing does.
pub fn contrast(packet: &Packet) -> Vec<String> {
    let programs = &packet.programs;
    let (control, candidate) = (programs.rehearsed(), &programs.candidate);
    let mut lines = Vec::new();
    let (one, other) = (&control.program, &candidate.program);
    if one != other {
        lines.push(match one.name == other.name {
            true => format!("program {}: {} -> {}", one.name, one.sha256, other.sha256),
            false => format!("program: {} -> {}", shown(control), shown(candidate)),
        });
    }
    if control.arguments != candidate.arguments {
        lines.push(format!(
            "arguments: {:?} -> {:?}",
            control.arguments, candidate.arguments
        ));
    }
    lines.extend(variables(control, candidate));
    if one == other && control.objects != candidate.objects {
        let names = |one: &FrozenProgram, other: &FrozenProgram| -> Vec<String> {
            let strange = one.objects.iter().filter(|it| !other.objects.contains(it));
            let named = strange.map(|it| format!("{} {}", it.name, start(&it.sha256)));
            named.collect()
        };
        let (before, now) = (names(control, candidate), names(candidate, control));
        lines.push(format!("libraries: {before:?} -> {now:?}"));
    }
    lines
}

fn variables(control: &FrozenProgram, candidate: &FrozenProgram) -> Vec<String> {
    let names = control
        .environment
        .keys()
        .chain(candidate.environment.keys());
    let names: BTreeSet<&String> = names.collect();
    let value = |program: &FrozenProgram, name: &String| {
        let value = program
            .environment
            .get(name)
            .map(|value| format!("{value:?}"));
        value.unwrap_or_else(|| "not set".to_owned())
    };
    let lines = names.into_iter().filter_map(|name| {
        let (one, other) = (value(control, name), value(candidate, name));
        (one != other).then(|| format!("variable {name}: {one} -> {other}"))
    });
    lines.collect()
}

fn shown(program: &FrozenProgram) -> String {
    format!(
        "{} {}",
        program.program.name,
        start(&program.program.sha256)
    )
}

fn start(digest: &Digest) -> String {
    digest.to_string().chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::{LaneRef, Object, Programs};
    use crate::prereg::Kind;
    use std::collections::BTreeMap;

    fn program(name: &str, words: &[&str], variables: &[(&str, &str)]) -> FrozenProgram {
        let variables = variables.iter();
        let variables = variables.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        FrozenProgram {
            program: Object {
                name: name.to_owned(),
                sha256: Digest::of(name.as_bytes()),
            },
            objects: Vec::new(),
            arguments: words.iter().map(|word| (*word).to_owned()).collect(),
            environment: variables.collect::<BTreeMap<_, _>>(),
        }
    }

    fn packet(control: FrozenProgram, candidate: FrozenProgram) -> Packet {
        Packet {
            experiment: "one".to_owned(),
            kind: Kind::Component,
            lane: LaneRef {
                id: "cpu".to_owned(),
                sha256: Digest::of(b"lane"),
            },
            prereg: Digest::of(b"prereg"),
            programs: Programs {
                control: Some(control),
                candidate,
                null: None,
            },
            frozen: Vec::new(),
            commits: Vec::new(),
            fixtures: Vec::new(),
            analyzer: Digest::of(b"analyzer"),
            checker: "second 1".to_owned(),
        }
    }

    #[test]
    fn a_sentence_that_says_no_difference_stands_beside_the_three_that_are_there() {
        let ours = program("packhouse", &["fixture", "serve"], &[("A", "1")]);
        let theirs = program("kernels/k.py", &[], &[("A", "2"), ("B", "")]);
        let lines = contrast(&packet(ours.clone(), theirs));
        let expected = [
            "arguments: [\"fixture\", \"serve\"] -> []",
            "variable A: \"1\" -> \"2\"",
            "variable B: not set -> \"\"",
        ];
        assert_eq!(lines[1..], expected);
        assert!(lines[0].starts_with("program: packhouse ") && lines[0].contains("kernels/k.py"));
        assert_eq!(contrast(&packet(ours.clone(), ours.clone())), [""; 0]);
        let mut loaded = ours.clone();
        loaded.objects.push(Object {
            name: "libm.so".to_owned(),
            sha256: Digest::of(b"libm"),
        });
        let lines = contrast(&packet(ours, loaded));
        assert!(
            lines[0].starts_with("libraries: [] -> [\"libm.so "),
            "{lines:?}"
        );
    }
}
