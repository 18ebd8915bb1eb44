//! What a packet freezes, and that nothing of it changes without being named.

use crate::desk::{Desk, LANE_FILE, PREREG_FILE, RECIPES};
use crate::documents::{LANE, PREREG};
use packhouse_base::Blame;
use packhouse_base::digest::Digest;
use packhouse_lab::freeze::{self, FreezeError};
use packhouse_lab::packet::Packet;
use packhouse_lab::world::Commit;
use packhouse_sys::stat::FsKind;

fn frozen(desk: &Desk) -> Result<Packet, String> {
    desk.with(|lab| {
        let documents = freeze::documents(lab, "one").map_err(|error| error.to_string())?;
        freeze::freeze(lab, &documents, &RECIPES).map_err(|error| error.to_string())
    })
}

/// What differs from a packet now, each thing as it is told.
fn changed(desk: &Desk, packet: &Packet) -> Vec<String> {
    desk.with(|lab| match freeze::unchanged(lab, packet, &RECIPES) {
        Ok(_) => Vec::new(),
        Err(FreezeError::Changed { differences }) => {
            differences.iter().map(ToString::to_string).collect()
        }
        Err(other) => vec![other.to_string()],
    })
}

#[test]
fn a_packet_holds_all_that_an_experiment_hangs_on_and_no_time_or_place() {
    let desk = Desk::new();
    let packet = frozen(&desk).expect("because all is there");
    let digest = |text: &str| Digest::of(text.as_bytes());
    let files: Vec<(&str, Digest)> = packet
        .frozen
        .iter()
        .map(|file| (file.path.as_str(), file.sha256))
        .collect();
    let expected = [
        ("models/m.bin", digest("m")),
        ("modules/a.py", digest("a")),
        ("modules/deep/b.py", digest("b")),
    ];
    assert_eq!(files, expected);
    assert_eq!(packet.prereg, digest(PREREG));
    assert_eq!(packet.lane.sha256, digest(LANE));
    assert_eq!(
        packet.programs.candidate.program.sha256,
        digest("candidate")
    );
    assert!(
        packet.programs.null.is_none(),
        "the control is the null candidate"
    );
    assert_eq!(packet.fixtures.len(), 2);
    let text = String::from_utf8(packet.render()).expect("because it is text");
    for absent in ["\"/", "home", "boot-1", "at_ns"] {
        assert!(!text.contains(absent), "{absent} in {text}");
    }
    // Another time, another boot, another folder of state: the same packet.
    let mut later = Desk::new();
    later.clock.advance_ns(1_000_000_000_000);
    later.host.boot = "boot-2".to_owned();
    later.sim.set_kind(FsKind::Btrfs);
    assert_eq!(
        frozen(&later).map(|packet| packet.digest()),
        Ok(packet.digest())
    );
    assert_eq!(changed(&later, &packet), Vec::<String>::new());
}

#[test]
fn without_a_control_our_own_kernels_are_the_null_candidate() {
    let desk = Desk::new();
    let text = PREREG.replace("[program.control]", "[program.candidate.unused]");
    let start = text
        .find("[program.candidate.unused]")
        .expect("because it is there");
    let end = text
        .find("[program.candidate]")
        .expect("because it is there");
    let text = format!("{}{}", &text[..start], &text[end..]);
    let text = text.replace("[[leg]]\nkind = \"exact\"\ntreatment = \"control\"\n", "");
    let text = text.replace("[[leg]]\nkind = \"timing\"\n", "");
    let timing = text.find("[timing]").expect("because it is there");
    let rest = text.find("[[rejection]]").expect("because it is there");
    let text = format!("{}{}", &text[..timing], &text[rest..]);
    desk.sim.replace(PREREG_FILE, text.as_bytes(), 0o644);
    let packet = frozen(&desk).expect("because all is there");
    let null = packet
        .programs
        .null
        .as_ref()
        .expect("because there is no control");
    assert_eq!(null.program.name, "packhouse");
    assert_eq!(null.arguments, ["fixture", "serve"]);
    assert_eq!(packet.programs.rehearsed(), null);
}

#[test]
fn everything_that_changes_is_named_with_what_it_was_and_is() {
    let packet = frozen(&Desk::new()).expect("because all is there");
    for (what, how, change) in CHANGES {
        let mut desk = Desk::new();
        change(&mut desk);
        let said = changed(&desk, &packet);
        let found = said
            .iter()
            .any(|said| said.starts_with(what) && said.contains(how));
        assert!(found, "{what} {how}: {said:?}");
    }
}

/// A kernel was a script that an interpreter was told of: edited after arming, it ran as what had
/// been frozen.
#[test]
fn a_file_of_the_lab_that_a_program_is_told_of_is_frozen_or_refused() {
    const DATA: &str = "--data=${lab}/modules/a.py";
    for (word, said) in UNFROZEN {
        let desk = Desk::new();
        desk.sim.replace("/home/user/lab/loose.py", b"l", 0o644);
        desk.sim.symlink("/home/user/lab/link", "models", 1000);
        // Git ignores it, or filters what it compares of it.
        desk.sim
            .replace("/home/user/lab/source/ignored.py", b"i", 0o644);
        desk.edit(DATA, word);
        let error = frozen(&desk).expect_err("because it is not frozen");
        let named = "experiments/one/prereg.toml: ";
        assert_eq!(error, format!("{named}{said}"), "{word}");
    }
    for word in [
        DATA,
        "modules/deep/b.py",
        "./modules//a.py",
        "${lab}/modules/not-there-yet",
        "${lab}/modules:${lab}/./models/m.bin",
        "${lab}/bin/candidate",
        "loose.txt",
        "1..4",
        "--loose.py",
        "models-of-loose.pyc",
        "@modules/a.py",
    ] {
        let desk = Desk::new();
        desk.edit(DATA, word);
        frozen(&desk).expect(word);
    }
    let desk = Desk::new();
    desk.edit(
        "MODULES = \"${lab}/modules\"",
        "MODULES = \"${lab}/models\"",
    );
    let error = frozen(&desk).expect_err("because one file of it is frozen");
    assert!(
        error.ends_with("models: variable MODULES of the candidate names it, and it is not frozen"),
        "{error}"
    );
    // What comes to be after registration is found when it is measured again.
    let desk = Desk::new();
    desk.edit(DATA, "loose.py");
    let packet = frozen(&desk).expect("because there is no such file");
    desk.sim.replace("/home/user/lab/loose.py", b"l", 0o644);
    let said = changed(&desk, &packet);
    assert!(
        said[0].contains("loose.py: argument 1 of the candidate"),
        "{said:?}"
    );
}

/// An empty entry of a search path is the folder that a program works in: the lab's.
#[test]
fn no_search_path_has_an_empty_entry() {
    const MODULES: &str = "MODULES = \"${lab}/modules\"";
    for (variable, is_right) in [
        (
            "MODULES_PATH = \"${lab}/modules:${lab}/modules/deep\"",
            true,
        ),
        ("MODULES = \":\"", true),
        ("PYTHONPATH = \":\"", false),
        ("PATH = \"\"", false),
        ("LD_LIBRARY_PATH = \"${lab}/modules:\"", false),
        (
            "PYTHONPATH = \"${lab}/modules::${lab}/modules/deep\"",
            false,
        ),
    ] {
        let desk = Desk::new();
        desk.edit(MODULES, variable);
        let name = variable.split(' ').next().unwrap_or_default();
        let said = format!("an empty entry: variable {name} of the candidate names it, and ");
        match frozen(&desk) {
            Ok(_) => assert!(is_right, "{variable}"),
            Err(error) => assert!(!is_right && error.contains(&said), "{variable}: {error}"),
        }
    }
}

/// A frozen module was another one while it was imported, and the frozen one at both measures.
#[test]
fn a_frozen_file_that_was_touched_and_put_back_is_named() {
    const FILE: &str = "/home/user/lab/modules/deep/b.py";
    const KERNEL: &str = "/home/user/lab/kernel";
    let touched = |touch: fn(&Desk)| {
        let desk = Desk::new();
        desk.edit("\"bin/candidate\"", "\"./kernel\"");
        desk.sim.replace(KERNEL, b"candidate", 0o755);
        let path = "/home/user/lab/./kernel".into();
        let mut programs = desk
            .host
            .programs
            .lock()
            .expect("because no test panics in it");
        programs.insert(path, "candidate".to_owned());
        drop(programs);
        let packet = frozen(&desk).expect("because all is there");
        desk.with(|lab| {
            let prereg = freeze::documents(lab, "one")
                .expect("because they are")
                .prereg;
            let held = || freeze::held(lab, &packet, &prereg).expect("because all is there");
            let before = held();
            desk.clock.advance_ns(1_000_000_000);
            touch(&desk);
            assert_eq!(changed(&desk, &packet), Vec::<String>::new());
            let touched = before.touched(&held()).into_iter();
            touched.map(|one| one.what).collect::<Vec<String>>()
        })
    };
    let said = |path: &str| format!("{path}, touched since it was measured");
    assert_eq!(touched(|_| ()), Vec::<String>::new());
    let again = touched(|desk| {
        desk.sim.replace(FILE, b"other", 0o600);
        desk.sim.replace(FILE, b"b", 0o600);
    });
    assert!(again.contains(&said("modules/deep/b.py")), "{again:?}");
    // A file that came and went may have been found in the place of a frozen one.
    let shadow = touched(|desk| {
        let folder = desk.dir("/home/user/lab/modules/deep");
        let made = folder.create_new("b.so", 0o600).map(|_| ());
        let gone = made.and_then(|()| folder.unlink("b.so"));
        gone.expect("because the folder is ours");
    });
    assert_eq!(shadow, [said("modules/deep")]);
    let program = touched(|desk| {
        desk.sim.replace(KERNEL, b"other", 0o755);
        desk.sim.replace(KERNEL, b"candidate", 0o755);
    });
    assert_eq!(program, [said("kernel")]);
}

/// A word, and what is told of it.
const UNFROZEN: &[(&str, &str)] = &[
    (
        "loose.py",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "--kernel=./loose.py",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "exec(open('loose.py').read())",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "${lab}/modules:${lab}/loose.py",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "${lab}/modules:loose.py",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "link/m.bin",
        "link/m.bin: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "${lab}/absent.py",
        "absent.py: argument 1 of the candidate names it, and it is neither there nor below a \
         frozen folder",
    ),
    (
        "${lab}",
        "${lab}: argument 1 of the candidate names it, and the lab as a whole, and what is around \
         it, can't be frozen",
    ),
    (
        "modules/../loose.py",
        "modules/../loose.py: argument 1 of the candidate names it, and the lab as a whole, and \
         what is around it, can't be frozen",
    ),
    (
        "@loose.py",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "<loose.py",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "(loose.py)",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "loose.py#1",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "-Wloose.py",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "-X -Iloose.py",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "loose.py?",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "a\\\\loose.py`",
        "loose.py: argument 1 of the candidate names it, and it is not frozen",
    ),
    (
        "@../loose.py",
        "../loose.py: argument 1 of the candidate names it, and the lab as a whole, and what is \
         around it, can't be frozen",
    ),
    (
        "${lab}/source/ignored.py",
        "source/ignored.py: argument 1 of the candidate names it, and only a commit has it, which \
         holds nothing of what Git ignores or filters: freeze it",
    ),
    (
        "source/ignored.py",
        "source/ignored.py: argument 1 of the candidate names it, and only a commit has it, which \
         holds nothing of what Git ignores or filters: freeze it",
    ),
];

/// A change of the lab.
type Change = fn(&mut Desk);

/// What is told, how, and what to do for it.
const CHANGES: &[(&str, &str, Change)] = &[
    ("frozen file models/m.bin", "now ", |desk| {
        desk.sim.replace("/home/user/lab/models/m.bin", b"n", 0o644);
    }),
    ("frozen file modules/new.py", "frozen not there", |desk| {
        desk.sim
            .replace("/home/user/lab/modules/new.py", b"n", 0o644);
    }),
    ("frozen file modules/deep/b.py", "now not there", |desk| {
        desk.sim.remove("/home/user/lab/modules/deep/b.py");
    }),
    ("program candidate: file bin/candidate", "now ", |desk| {
        let mut programs = desk.host.programs.lock().expect("because nobody holds it");
        programs.insert("/home/user/lab/bin/candidate".into(), "other".to_owned());
    }),
    ("program control: file packhouse", "now ", |desk| {
        let mut programs = desk.host.programs.lock().expect("because nobody holds it");
        programs.insert("/usr/bin/packhouse".into(), "other".to_owned());
    }),
    ("program control: library libc.so.6", "now ", |desk| {
        desk.host.objects.lock().expect("because nobody holds it")[0].1 = "other".to_owned();
    }),
    (
        "program control: library libm.so.6",
        "frozen not there",
        |desk| {
            let library = ("libm.so.6".to_owned(), "libm".to_owned());
            desk.host
                .objects
                .lock()
                .expect("because nobody holds it")
                .push(library);
        },
    ),
    (
        "program control: library libc.so.6",
        "now not there",
        |desk| {
            desk.host
                .objects
                .lock()
                .expect("because nobody holds it")
                .clear();
        },
    ),
    ("commit of source", "now ffff", |desk| {
        *desk.host.commit.lock().expect("because nobody holds it") = Ok(Commit {
            commit: "f".repeat(40),
            changed: Vec::new(),
        });
    }),
    ("the program that runs and analyses", "now ", |desk| {
        desk.host.analyzer = Digest::of(b"another build");
    }),
    (
        "the second implementation",
        "frozen checker 1, now checker 2",
        |desk| {
            desk.host.checker = "checker 2".to_owned();
        },
    ),
    ("experiments/one/prereg.toml", "now ", |desk| {
        desk.edit("question = \"q\"", "# none")
    }),
    ("experiments/one/prereg.toml", "now ", |desk| {
        desk.edit("reviewers = 2", "reviewers = 1")
    }),
    ("lanes/fast.toml", "now ", |desk| {
        desk.sim.replace(
            LANE_FILE,
            LANE.replace("bit-equal", "near").as_bytes(),
            0o644,
        );
    }),
    ("source: differs from commit", "__pycache__/x.pyc", |desk| {
        *desk.host.commit.lock().expect("because nobody holds it") = Ok(Commit {
            commit: "f".repeat(40),
            changed: vec!["__pycache__/x.pyc".to_owned()],
        });
    }),
];

#[test]
fn what_can_not_be_frozen_is_refused_by_its_name() {
    for (said, change) in REFUSED {
        let desk = Desk::new();
        change(&desk);
        let error = frozen(&desk).expect_err(said);
        assert!(error.starts_with(said), "{error}\nexpected {said}");
    }
}

/// An edit of what is not frozen yet.
type Edit = fn(&Desk);

/// What is said, and what to do for it.
const REFUSED: &[(&str, Edit)] = &[
    ("experiments/one/prereg.toml: not there", |desk| {
        desk.sim.remove(PREREG_FILE)
    }),
    ("lanes/fast.toml: not there", |desk| {
        desk.sim.remove(LANE_FILE)
    }),
    ("lanes/fast.toml: its id is slow", |desk| {
        desk.sim.replace(
            LANE_FILE,
            LANE.replace("\"fast\"", "\"slow\"").as_bytes(),
            0o644,
        );
    }),
    ("experiments/one/prereg.toml: its id is two", |desk| {
        desk.edit("id = \"one\"", "id = \"two\"");
    }),
    ("experiments/one/prereg.toml: question: absent", |desk| {
        desk.edit("question = \"q\"", "");
    }),
    ("experiments/one/prereg.toml: is a symlink", |desk| {
        desk.sim.remove(PREREG_FILE);
        desk.sim.symlink(PREREG_FILE, "/home/user/other.toml", 1000);
    }),
    ("models/m.bin: not there", |desk| {
        desk.sim.remove("/home/user/lab/models/m.bin")
    }),
    ("models/m.bin: is a symlink", |desk| {
        desk.sim.remove("/home/user/lab/models/m.bin");
        desk.sim.symlink("/home/user/lab/models/m.bin", "a", 1000);
    }),
    ("modules/link: is a symlink", |desk| {
        desk.sim
            .symlink("/home/user/lab/modules/link", "a.py", 1000);
    }),
    ("modules: it holds the name \"a\\\\b\"", |desk| {
        desk.sim.replace("/home/user/lab/modules/a\\b", b"x", 0o644);
    }),
    ("models/m.bin/x: is below what is no folder", |desk| {
        desk.edit("models/m.bin", "models/m.bin/x");
    }),
    ("bin/candidate: is a symlink", |desk| {
        desk.sim
            .symlink("/home/user/lab/bin/candidate", "/usr/bin/true", 1000);
    }),
    ("bin/candidate: is below a symlink", |desk| {
        desk.sim.remove("/home/user/lab/bin");
        desk.sim.symlink("/home/user/lab/bin", "models", 1000);
    }),
    ("bin: the folder is empty", |desk| {
        desk.edit("models/m.bin", "bin")
    }),
    ("no program bin/candidate: not found", |desk| {
        desk.host
            .programs
            .lock()
            .expect("because nobody holds it")
            .remove(std::path::Path::new("/home/user/lab/bin/candidate"));
    }),
    (
        "/home/user/lab/source: git failed: no such command",
        |desk| {
            *desk.host.commit.lock().expect("because nobody holds it") =
                Err("no such command".to_owned());
        },
    ),
    ("source: differs from commit 0123", |desk| {
        let mut commit = desk.host.commit.lock().expect("because nobody holds it");
        let changed = vec!["a".to_owned(); 10];
        *commit = Ok(Commit {
            commit: "0123".repeat(10),
            changed,
        });
    }),
    ("nothing: not there", |desk| {
        desk.edit("path = \"source\"", "path = \"nothing\"")
    }),
    (
        "fixture mrow-none-v1: no such fixture in this program",
        |desk| {
            desk.edit("\"mrow-q4_0-joint-n-v1-v1\"", "\"mrow-none-v1\"");
        },
    ),
    (
        "fixture mrow-identity-v1-v1: width 5, arm plain of the matrix: no such case; it has 1 p",
        |desk| desk.edit("widths = [4, 1]", "widths = [4, 1, 5]"),
    ),
    (
        "fixture mmvq-q4_0-q8_1-v1: has no case of any width and arm of the matrix; it has 1 p",
        |desk| {
            desk.edit("\"mrow-q4_0-joint-n-v1-v1\"", "\"mmvq-q4_0-q8_1-v1\"");
            desk.edit("[4, 1]", "[3, 5]");
            desk.edit("width = 4\nepochs", "width = 5\nepochs");
            desk.edit("width = 3", "width = 4");
            desk.edit("\"mrow-identity-v1-v1\", ", "");
            desk.edit(
                "\"mrow-identity-v1-v1\"\narm = \"plain\"\nwidth = 5",
                "\"mmvq-q4_0-q8_1-v1\"\narm = \"plain\"\nwidth = 5",
            );
        },
    ),
    (
        "fixture mrow-identity-v1-v1: width 3, arm plain of the matrix: no such case",
        |desk| {
            desk.edit("[4, 1]", "[4, 3]");
            desk.edit("width = 4\nepochs", "width = 3\nepochs");
            desk.edit("width = 3\nreason", "width = 5\nreason");
        },
    ),
];

#[test]
fn near_is_promised_only_where_there_is_a_bound_for_it() {
    let desk = Desk::new();
    desk.edit(
        "promise = \"bit-equal\"\n\n[[leg]]\nkind = \"exact\"\ntreatment = \"control\"",
        "promise = \"near\"\n\n[[leg]]\nkind = \"exact\"\ntreatment = \"control\"",
    );
    let bounds: Vec<bool> = ["mrow-identity-v1-v1", "mrow-q4_0-joint-n-v1-v1"]
        .map(|id| RECIPES.published(id).expect("because it is ours"))
        .map(|made| made.fixture.cases.iter().all(|case| !case.near.is_empty()))
        .to_vec();
    match (frozen(&desk), bounds.iter().all(|has| *has)) {
        (Ok(_), true) => {}
        (Err(said), false) => assert!(said.contains("has no bound for near"), "{said}"),
        (other, _) => panic!("{other:?} with {bounds:?}"),
    }
    let without = RECIPES
        .published("contextkv-bf16-v1")
        .expect("because it is ours");
    assert!(
        without
            .fixture
            .cases
            .iter()
            .all(|case| case.near.is_empty())
    );
    desk.edit(
        "[\"mrow-identity-v1-v1\", \"mrow-q4_0-joint-n-v1-v1\"]",
        "[\"contextkv-bf16-v1\", \"mrow-identity-v1-v1\"]",
    );
    desk.edit(
        "arms = [\"plain\"]",
        &format!("arms = [\"plain\", \"{}\"]", without.fixture.cases[0].arm),
    );
    desk.edit("widths = [4, 1]", "widths = [4, 1, 2]");
    let said = frozen(&desk).expect_err("because it has none");
    assert!(
        said.starts_with("fixture contextkv-bf16-v1: width "),
        "{said}"
    );
    assert!(said.ends_with(": has no bound for near"), "{said}");
}

#[test]
fn a_launch_has_the_lab_in_the_place_of_its_word_and_nothing_else_of_the_host() {
    let desk = Desk::new();
    desk.with(|lab| {
        let documents = freeze::documents(lab, "one").expect("because they are good");
        let launch = freeze::launch(lab, &documents.prereg.candidate).expect("because it is there");
        assert_eq!(
            launch.program,
            std::path::Path::new("/home/user/lab/bin/candidate")
        );
        assert_eq!(
            launch.arguments,
            ["--data=/home/user/lab/modules/a.py", "http://[::1]:80/"]
        );
        let environment: Vec<String> = launch
            .environment
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let expected = [
            "LC_ALL=C.UTF-8",
            "MODULES=/home/user/lab/modules",
            "PATH=/usr/local/bin:/usr/bin:/bin",
            "TZ=UTC",
        ];
        assert_eq!(environment, expected);
        assert_eq!(launch.folder, std::path::Path::new("/home/user/lab"));
    });
}

#[test]
fn blame_is_theirs_for_documents_and_the_hosts_for_git() {
    let desk = Desk::new();
    *desk.host.commit.lock().expect("because nobody holds it") = Err("no".to_owned());
    desk.with(|lab| {
        let documents = freeze::documents(lab, "one").expect("because they are good");
        let error = freeze::freeze(lab, &documents, &RECIPES).expect_err("because git fails");
        assert_eq!(error.blame(), Blame::Host);
        let error = freeze::documents(lab, "two").expect_err("because it is not there");
        assert_eq!(error.blame(), Blame::Source);
    });
}
