//! What differs between a packet and what is there now, each thing by its name.

use crate::packet::{FrozenProgram, Object, Packet};
use packhouse_base::digest::Digest;
use std::collections::BTreeMap;
use std::fmt;

/// One thing that is not what was frozen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// What it is.
    pub what: String,
    /// What was frozen; `None`: it was not there.
    pub frozen: Option<String>,
    /// What it is now; `None`: it is not there.
    pub now: Option<String>,
}

/// All that differs, in the order of a packet's fields.
pub fn differences(frozen: &Packet, now: &Packet) -> Vec<Difference> {
    let mut found = Found::default();
    found.documents(frozen, now);
    found.programs(frozen, now);
    found.files(frozen, now);
    let what = "the program that runs and analyses";
    found.text(what, &frozen.analyzer, &now.analyzer);
    found.text("the second implementation", &frozen.checker, &now.checker);
    if found.0.is_empty() && frozen != now {
        // Order is part of a packet, and of nothing above.
        found.text("the packet's digest", &frozen.digest(), &now.digest());
    }
    found.0
}

impl Difference {
    /// One thing, where it differs.
    pub(super) fn of<T: PartialEq + fmt::Display>(what: &str, frozen: &T, now: &T) -> Option<Self> {
        (frozen != now).then(|| Self {
            what: what.to_owned(),
            frozen: Some(frozen.to_string()),
            now: Some(now.to_string()),
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let absent = "not there";
        let frozen = self.frozen.as_deref().unwrap_or(absent);
        let now = self.now.as_deref().unwrap_or(absent);
        write!(f, "{}: frozen {frozen}, now {now}", self.what)
    }
}

#[derive(Default)]
struct Found(Vec<Difference>);

impl Found {
    fn text<T: PartialEq + fmt::Display>(&mut self, what: &str, frozen: &T, now: &T) {
        self.0.extend(Difference::of(what, frozen, now));
    }

    fn maps<K: Ord + fmt::Display, V: PartialEq + fmt::Display>(
        &mut self,
        what: &str,
        frozen: &BTreeMap<K, V>,
        now: &BTreeMap<K, V>,
    ) {
        for (key, value) in frozen {
            let other = now.get(key);
            if other != Some(value) {
                self.0.push(Difference {
                    what: format!("{what} {key}"),
                    frozen: Some(value.to_string()),
                    now: other.map(V::to_string),
                });
            }
        }
        for (key, value) in now.iter().filter(|(key, _)| !frozen.contains_key(key)) {
            self.0.push(Difference {
                what: format!("{what} {key}"),
                frozen: None,
                now: Some(value.to_string()),
            });
        }
    }

    fn documents(&mut self, frozen: &Packet, now: &Packet) {
        self.text("the experiment's id", &frozen.experiment, &now.experiment);
        self.text(
            "the experiment's kind",
            &frozen.kind.word(),
            &now.kind.word(),
        );
        self.text("the lane's id", &frozen.lane.id, &now.lane.id);
        self.text("the lane's document", &frozen.lane.sha256, &now.lane.sha256);
        self.text("prereg.toml", &frozen.prereg, &now.prereg);
    }

    fn programs(&mut self, frozen: &Packet, now: &Packet) {
        let words = |packet: &Packet| {
            let all = packet.programs.all();
            all.map(|(word, _)| (word, "there"))
                .collect::<BTreeMap<_, _>>()
        };
        self.maps("program", &words(frozen), &words(now));
        let programs: BTreeMap<&str, &FrozenProgram> = now.programs.all().collect();
        for (word, program) in frozen.programs.all() {
            if let Some(now) = programs.get(word) {
                self.program(word, program, now);
            }
        }
    }

    fn files(&mut self, frozen: &Packet, now: &Packet) {
        fn files(packet: &Packet) -> BTreeMap<&String, &Digest> {
            let files = packet.frozen.iter();
            files.map(|file| (&file.path, &file.sha256)).collect()
        }
        fn commits(packet: &Packet) -> BTreeMap<&String, &String> {
            let commits = packet.commits.iter();
            commits.map(|one| (&one.path, &one.commit)).collect()
        }
        fn fixtures(packet: &Packet) -> BTreeMap<&String, &Digest> {
            let fixtures = packet.fixtures.iter();
            fixtures.map(|one| (&one.id, &one.sha256)).collect()
        }
        self.maps("frozen file", &files(frozen), &files(now));
        self.maps("commit of", &commits(frozen), &commits(now));
        self.maps("fixture", &fixtures(frozen), &fixtures(now));
    }

    fn program(&mut self, word: &str, frozen: &FrozenProgram, now: &FrozenProgram) {
        let what = |part: &str| format!("program {word}: {part}");
        self.text(&what("its name"), &frozen.program.name, &now.program.name);
        let name = format!("file {}", frozen.program.name);
        self.text(&what(&name), &frozen.program.sha256, &now.program.sha256);
        self.maps(
            &what("library"),
            &by_name(&frozen.objects),
            &by_name(&now.objects),
        );
        let shown = |program: &FrozenProgram| format!("{:?}", program.arguments);
        self.text(&what("its arguments"), &shown(frozen), &shown(now));
        self.maps(
            &what("variable"),
            &frozen.environment.iter().collect(),
            &now.environment.iter().collect(),
        );
    }
}

/// The digests of files by their names; several may have the same.
fn by_name(objects: &[Object]) -> BTreeMap<&str, String> {
    let mut names: BTreeMap<&str, String> = BTreeMap::new();
    for object in objects {
        let digests = names.entry(&object.name).or_default();
        if !digests.is_empty() {
            digests.push_str(" and ");
        }
        *digests += &object.sha256.to_string();
    }
    names
}
