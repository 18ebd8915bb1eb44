//! Workers against a host: what is found, what is missing, and what is rendered, which bash gives
//! back byte for byte.

use crate::cards::{card, cores, inventory, part};
use packhouse_proc::devices::{Device, Inventory, Observation, SourceReport, Vendor};
use packhouse_proc::fleet::host::{Host, Models, look};
use packhouse_proc::fleet::{self, Fleet, FleetCommand, Worker, host_problems};
use packhouse_proc::render::{RenderError, Rendered, quoted};
use proptest::prelude::*;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const CARD: &str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";

/// Models where the fleet file says they are.
struct Own;

impl Models for Own {
    fn file(&self, worker: &Worker) -> Option<PathBuf> {
        Some(worker.model.as_ref()?.path.clone())
    }
}

/// A host with some devices, and programs and models in a folder.
struct World {
    folder: tempfile::TempDir,
    inventory: Inventory,
    environment: Vec<(OsString, OsString)>,
    first_free_port: u16,
}

impl World {
    fn new(devices: &[Device]) -> Self {
        let world = Self {
            folder: tempfile::tempdir().unwrap(),
            inventory: inventory(devices),
            environment: Vec::new(),
            first_free_port: 1024,
        };
        fs::create_dir(world.path("bin")).unwrap();
        fs::write(world.path("bin/server"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(world.path("bin/server"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(world.path("bin/notes"), "words").unwrap();
        fs::write(world.path("model"), "weights").unwrap();
        fs::write(world.path("empty"), "").unwrap();
        world
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn host(&self) -> Host<'_> {
        Host {
            inventory: &self.inventory,
            environment: &self.environment,
            packhouse: Path::new("/opt/packhouse"),
            first_free_port: self.first_free_port,
            models: &Own,
        }
    }

    /// A right file with `<tmp>` for the folder: the engine's lines, the common ones, the workers.
    fn fleet(&self, engine: &str, common: &str, workers: &str) -> Fleet {
        let text = format!(
            "schema = \"packhouse/fleet/1\"\nname = \"t\"\n[engine]\n{engine}\n[common]\n{common}\n\
             {workers}\n"
        );
        let own = self.folder.path().to_str().unwrap();
        fleet::parse(&text.replace("<tmp>", own)).unwrap_or_else(|mistakes| {
            let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
            panic!("{}", said.join("\n"))
        })
    }

    /// All problems, with `<tmp>` for the folder.
    fn problems(&self, fleet: &Fleet) -> Vec<String> {
        let problems = host_problems(fleet, &self.host());
        let own = self.folder.path().to_str().unwrap();
        let said = problems.iter().map(|p| p.to_string().replace(own, "<tmp>"));
        said.collect()
    }

    fn render(&self, worker: &Worker) -> Result<Rendered, RenderError> {
        let (found, problems) = look(worker, &self.host());
        found
            .unwrap_or_else(|| panic!("not found: {problems:?}"))
            .render(worker, &self.host())
    }
}

const ENGINE: &str = "command = [\"<tmp>/bin/server\", \"{host}\", \"{port}\"]";
const WORKER: &str = "[[worker]]\nname = \"w\"\ndevice = \"cpu:0\"\nport = 8081\n";

#[test]
fn what_is_there_is_no_problem() {
    let world = World::new(&[]);
    let fleet = world.fleet(ENGINE, "", WORKER);
    assert_eq!(world.problems(&fleet), [""; 0]);
    let (found, _) = look(&fleet.workers[0], &world.host());
    let found = found.expect("because nothing is missing");
    assert_eq!(found.program, world.path("bin/server"));
    assert_eq!(
        found.devices,
        [cores("0")].map(|device| found_as(&device, &found.devices[0]))
    );
    assert_eq!(found.model, None);
}

/// The device with the words for people of another, which do not matter here.
fn found_as(device: &Device, other: &Device) -> Device {
    Device {
        name: other.name.clone(),
        numa: other.numa,
        ..device.clone()
    }
}

#[test]
fn each_thing_that_is_missing_is_named_with_what_it_blocks() {
    let world = World::new(&[]);
    let none = "No such file or directory (os error 2)";
    let start = "[blocks start of w]";
    let both = "[blocks render and start of w]";
    let with = |command: &str| format!("command = [\"{command}\", \"{{host}}{{port}}\"]");
    for (engine, expected) in [
        (
            with("<tmp>/bin/none"),
            format!("program <tmp>/bin/none: {none} {start}"),
        ),
        (
            with("<tmp>/bin"),
            format!("program <tmp>/bin: no regular file {start}"),
        ),
        (
            with("<tmp>/bin/notes"),
            format!("program <tmp>/bin/notes: Permission denied (os error 13) {start}"),
        ),
        (
            with("server"),
            format!("program \"server\" is in no folder of PATH (\"\") {both}"),
        ),
        (
            format!("{ENGINE}\nworking_folder = \"<tmp>/model\""),
            format!("working folder <tmp>/model: Not a directory (os error 20) {start}"),
        ),
        (
            format!("{ENGINE}\npacks = true"),
            format!(
                "packs need a store: the worker inherits and sets none of PACKHOUSE_STORE, \
                 XDG_CACHE_HOME and HOME {start}"
            ),
        ),
    ] {
        let fleet = world.fleet(&engine, "", WORKER);
        assert_eq!(world.problems(&fleet), [expected], "{engine}");
    }
    for (model, expected) in [
        ("none", Some(none)),
        ("empty", Some("empty")),
        ("bin", Some("no regular file")),
        ("model", None),
    ] {
        let common = format!("model = \"<tmp>/{model}\"\nargs = [\"{{model}}\"]");
        let fleet = world.fleet(ENGINE, &common, WORKER);
        let expected = expected.map(|why| format!("model <tmp>/{model}: {why} {start}"));
        assert_eq!(world.problems(&fleet), Vec::from_iter(expected));
    }
    for (change, expected) in [
        (
            "port = 80",
            format!("port 80 is below 1024, the first that needs no privileges {start}"),
        ),
        (
            "port = 1023",
            format!("port 1023 is below 1024, the first that needs no privileges {start}"),
        ),
        ("port = 1024", String::new()),
        (
            "port = 8081\nhost = \"192.0.2.1\"",
            format!(
                "can't listen on 192.0.2.1: Cannot assign requested address (os error 99) {start}"
            ),
        ),
    ] {
        let fleet = world.fleet(ENGINE, "", &WORKER.replace("port = 8081", change));
        let expected = Some(expected).filter(|expected| !expected.is_empty());
        assert_eq!(world.problems(&fleet), Vec::from_iter(expected), "{change}");
    }
}

#[test]
fn a_program_is_found_on_the_workers_own_path_first() {
    let mut world = World::new(&[]);
    fs::create_dir(world.path("other")).unwrap();
    let engine = "command = [\"server\", \"{host}\", \"{port}\"]";
    let path = |folders: &str| folders.replace("<tmp>", world.folder.path().to_str().unwrap());
    // Relative folders are passed over, as are those where a file of the name is no program.
    let starts = path("bin::<tmp>/other:<tmp>/bin");
    let notes = path("<tmp>/bin");
    world.environment = vec![("PATH".into(), starts.into())];
    let fleet = world.fleet(engine, "", WORKER);
    assert_eq!(world.problems(&fleet), [""; 0]);
    let (found, _) = look(&fleet.workers[0], &world.host());
    assert_eq!(
        found.expect("because it is there").program,
        world.path("bin/server")
    );
    let fleet = world.fleet(engine, "environment = { PATH = \"<tmp>/other\" }", WORKER);
    let said = "program \"server\" is in no folder of PATH (\"<tmp>/other\") [blocks render and \
                start of w]";
    assert_eq!(world.problems(&fleet), [said]);
    let fleet = world.fleet(&engine.replace("server", "notes"), "", WORKER);
    assert!(
        world.problems(&fleet)[0].starts_with("program \"notes\" is in no folder"),
        "{notes}"
    );
}

#[test]
fn devices_that_are_not_there_or_are_shared_are_named() {
    let whole = card(Vendor::Nvidia, 0, Some(CARD));
    let mig = "MIG-00000000-1111-2222-3333-444444444444";
    let devices = [
        whole.clone(),
        part(&whole, mig),
        Device {
            numa: Some(0),
            ..cores("0-1")
        },
    ];
    let mut world = World::new(&devices);
    let worker = |name: &str, device: &str, port: u16| {
        format!("[[worker]]\nname = \"{name}\"\ndevice = \"{device}\"\nport = {port}\n")
    };
    let problems = |world: &World, workers: &[String]| {
        world.problems(&world.fleet(ENGINE, "", &workers.concat()))
    };
    let both = "[blocks start of a, b]";
    let pair = |first: &str, second: &str| [worker("a", first, 8081), worker("b", second, 8082)];
    let card = format!("nvidia:{CARD}");
    let pci = "pci:0000:10:00.0";
    for (first, second, expected) in [
        (
            card.as_str(),
            pci,
            format!("device {card} is also a device of worker a ({card}) {both}"),
        ),
        (
            pci,
            &format!("nvidia:{mig}"),
            format!("device nvidia:{mig} is also a device of worker a ({card}) {both}"),
        ),
        (
            &format!("nvidia:{mig}"),
            pci,
            format!("device {card} is also a device of worker a (nvidia:{mig}) {both}"),
        ),
        (
            "numa:0",
            "cpu:1",
            format!("device cpu:1 is also a device of worker a (cpu:0-1) {both}"),
        ),
        ("cpu:0", pci, String::new()),
    ] {
        let expected = Some(expected).filter(|expected| !expected.is_empty());
        let said = problems(&world, &pair(first, second));
        assert_eq!(said, Vec::from_iter(expected), "{first} {second}");
    }
    let said = problems(&world, &pair("cpu:1-2", "numa:7"));
    assert!(
        said[0].contains("cpu:1-2 names cores that are not online: 2"),
        "{said:?}"
    );
    assert!(
        said[0].ends_with("[blocks render and start of a]"),
        "{said:?}"
    );
    assert!(
        said[1].starts_with("no device numa:7 on this host"),
        "{said:?}"
    );
    // A source that did not answer makes a device unknown, not absent.
    world.inventory.reports.push(SourceReport {
        source: "nvml",
        raw: None,
        outcome: Observation::unknown("it said no"),
    });
    let other = "nvidia:GPU-00000000-1111-2222-3333-444444444444";
    let said = problems(&world, &[worker("a", other, 8081)]);
    let expected = format!("can't tell whether this host has {other}: nvml: it said no");
    assert_eq!(said, [format!("{expected} [blocks render and start of a]")]);
}

#[test]
fn what_several_workers_lack_is_told_once() {
    let world = World::new(&[]);
    let engine = "command = [\"nowhere\", \"{host}{port}\"]";
    let second = WORKER
        .replace("\"w\"", "\"v\"")
        .replace(":0", ":1")
        .replace("8081", "8082");
    let fleet = world.fleet(engine, "", &format!("{WORKER}{second}"));
    let said =
        "program \"nowhere\" is in no folder of PATH (\"\") [blocks render and start of v, w]";
    assert_eq!(world.problems(&fleet), [said]);
    let problems = host_problems(&fleet, &world.host());
    assert!(problems[0].blocks(FleetCommand::Render, "v"));
    assert!(!problems[0].blocks(FleetCommand::Render, "x"));
}

#[test]
fn a_worker_gets_its_masks_its_list_and_nothing_else() {
    let other = card(
        Vendor::Nvidia,
        1,
        Some("GPU-00000000-1111-2222-3333-444444444444"),
    );
    let mut world = World::new(&[card(Vendor::Nvidia, 0, Some(CARD)), other]);
    let set = |pairs: &[(&str, &str)]| -> Vec<(OsString, OsString)> {
        pairs
            .iter()
            .map(|(name, value)| (name.into(), value.into()))
            .collect()
    };
    world.environment = set(&[
        ("HOME", "/h"),
        ("LANG", ""),
        ("LANG", "second"),
        ("SECRET", "s"),
        ("CUDA_VISIBLE_DEVICES", "1"),
    ]);
    let common = "inherit = [\"HOME\", \"LANG\", \"UNSET\"]\nthreads = 6\n\
        environment = { HOME = \"/{name}\", T = \"{threads} {device} {cores}\", P = \"{{{port}}}\" }";
    let workers = format!(
        "[[worker]]\nname = \"w\"\ndevice = [\"nvidia:{CARD}\", \"cpu:1\", \
        \"cpu:0\"]\nport = 8081\n"
    );
    let engine = format!("{ENGINE}\npacks = true\nworking_folder = \"<tmp>\"");
    let fleet = world.fleet(&engine, common, &workers);
    let rendered = world.render(&fleet.workers[0]).unwrap();
    let server = world.path("bin/server");
    let words = [
        "/opt/packhouse",
        "run",
        "--",
        server.to_str().unwrap(),
        "127.0.0.1",
        "8081",
    ];
    assert_eq!(rendered.command, words.map(OsString::from));
    assert_eq!(
        rendered.cores.as_ref().map(ToString::to_string).as_deref(),
        Some("0-1")
    );
    assert_eq!(rendered.working_folder, world.folder.path());
    let environment: Vec<String> = rendered
        .environment
        .iter()
        .map(|(name, value)| format!("{}={}", name.display(), value.display()))
        .collect();
    let cuda = format!("CUDA_VISIBLE_DEVICES={CARD}");
    let t = format!("T=6 nvidia:{CARD},cpu:1,cpu:0 0-1");
    assert_eq!(
        environment,
        [
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            cuda.as_str(),
            "GGML_VK_VISIBLE_DEVICES=",
            "HIP_VISIBLE_DEVICES=-1",
            "HOME=/w",
            "LANG=",
            "ONEAPI_DEVICE_SELECTOR=*:cpu",
            "P={8081}",
            "ROCR_VISIBLE_DEVICES=",
            t.as_str(),
        ]
    );
}

/// A mask that only the host can judge is judged there.
#[test]
fn a_mask_that_shows_another_card_is_refused_when_rendered() {
    let own = card(Vendor::Nvidia, 0, Some(CARD));
    let other = card(
        Vendor::Nvidia,
        1,
        Some("GPU-00000000-1111-2222-3333-444444444444"),
    );
    let world = World::new(&[own, other]);
    let problem = |mask: &str| {
        let worker = format!(
            "[[worker]]\nname = \"w\"\ndevice = \"pci:0000:10:00.0\"\nport = 8081\n\
             environment = {{ CUDA_VISIBLE_DEVICES = \"{mask}\" }}\n"
        );
        world.problems(&world.fleet(ENGINE, "", &worker))
    };
    assert_eq!(problem(CARD), [""; 0]);
    assert_eq!(
        problem("0"),
        [""; 0],
        "the order is fixed, so this is the card"
    );
    for wrong in [
        "1",
        "0,1",
        "",
        "GPU-00000000-1111-2222-3333-444444444444",
        "{port}",
    ] {
        let said = problem(wrong);
        let [said] = said.as_slice() else {
            panic!("{wrong}: {said:?}");
        };
        assert!(
            said.starts_with("environment.CUDA_VISIBLE_DEVICES = "),
            "{said}"
        );
        assert!(said.contains("contradicts the worker's devices"), "{said}");
        assert!(said.ends_with("[blocks render and start of w]"), "{said}");
    }
}

/// Bash executes the text: `cat` prints its own command line and environment, and taskset's work
/// shows in its status.
#[test]
fn bash_gives_back_what_was_rendered() {
    let online = packhouse_proc::cores::CpuSet::online(Path::new("/sys")).unwrap();
    let first = online.iter().next().expect("because a core is online");
    let mut world = World::new(&[]);
    world.inventory.online = Observation::Known(online);
    let nasty = [
        "a b",
        "it's",
        "$(x) `y`",
        "back\\slash",
        "\"q\"",
        "new\nline",
        "tab\t1",
        "\u{1b}[31m7",
        "",
        "*",
        "~",
        "-n",
        "!x",
        "#no",
        "gr\u{fc}n \u{202e}x",
    ];
    let literal = |text: &str| {
        let escaped = text.chars().map(|letter| match letter {
            '"' | '\\' => format!("\\{letter}"),
            letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
            letter => letter.to_string(),
        });
        format!("\"{}\"", escaped.collect::<String>())
    };
    let args: Vec<String> = nasty.iter().map(|text| literal(text)).collect();
    let set = nasty.iter().enumerate();
    let set: Vec<String> = set
        .map(|(at, text)| format!("V{at} = {}", literal(text)))
        .collect();
    let proc = "\"/proc/self/cmdline\", \"/proc/self/environ\", \"/proc/self/status\"";
    let engine = format!("command = [\"/bin/cat\", {proc}, \"--\", \"{{host}}{{port}}\"]");
    let common = format!(
        "args = [{}]\nenvironment = {{ {} }}\ninherit = [\"RAW\"]",
        args.join(", "),
        set.join(", ")
    );
    world.environment = vec![(
        "RAW".into(),
        OsString::from_vec(b"\xff'\x01\x80\n1".to_vec()),
    )];
    let worker = WORKER.replace("cpu:0", &format!("cpu:{first}"));
    let fleet = world.fleet(&engine, &common, &worker);
    let rendered = world.render(&fleet.workers[0]).unwrap();
    let text = rendered.to_string();
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{202e}'),
        "a terminal is safe"
    );
    let output = Command::new("bash")
        .arg("-c")
        .arg(&text)
        .env("NOT_INHERITED", "x")
        .output()
        .unwrap();
    let (mut expected, zero) = (Vec::new(), b"\0".as_slice());
    for word in &rendered.command {
        expected.extend([word.as_bytes(), zero].concat());
    }
    for (name, value) in &rendered.environment {
        expected.extend([name.as_bytes(), b"=", value.as_bytes(), zero].concat());
    }
    let (said, status) = output
        .stdout
        .split_at(expected.len().min(output.stdout.len()));
    assert_eq!(OsStr::from_bytes(said), OsStr::from_bytes(&expected));
    let status = String::from_utf8_lossy(status);
    assert!(status.starts_with("Name:\tcat\n"), "{status}");
    assert!(
        status.contains(&format!("Cpus_allowed_list:\t{first}\n")),
        "{status}"
    );
}

#[test]
fn words_are_quoted_only_where_they_must_be() {
    for (word, expected) in [
        (b"/opt/llama-server".as_slice(), "/opt/llama-server"),
        (b"--port=8081", "'--port=8081'"),
        (b"", "''"),
        (b"a b", "'a b'"),
        (b"it's", "'it'\\''s'"),
        (b"a\n1", "$'a\\0121'"),
        (b"\xff\\'", "$'\\377\\\\\\''"),
    ] {
        assert_eq!(quoted(OsStr::from_bytes(word)), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Bash prints the very bytes of any words.
    #[test]
    fn bash_reads_any_words(words in prop::collection::vec(
        prop::collection::vec(1_u8.., 0..24), 1..8,
    )) {
        let quoted: Vec<String> = words.iter().map(|word| quoted(OsStr::from_bytes(word))).collect();
        let line = format!("printf '%s\\0' {}", quoted.join(" "));
        let output = Command::new("bash").arg("-c").arg(line).output().unwrap();
        let mut expected = Vec::new();
        for word in &words {
            expected.extend_from_slice(word);
            expected.push(0);
        }
        prop_assert_eq!(output.stdout, expected);
    }
}
