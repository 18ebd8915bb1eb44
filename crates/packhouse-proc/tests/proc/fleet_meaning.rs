//! What a right fleet file means: layers, defaults, and the workers that a mistake leaves alone.

use packhouse_proc::cores::CpuSet;
use packhouse_proc::devices::DeviceSpec;
use packhouse_proc::fleet::{
    self, Backend, Fleet, FleetCommand, Program, StopTimeouts, Template, Worker,
};
use std::path::{Path, PathBuf};

const HEAD: &str = r#"schema = "packhouse/fleet/1"
name = "home"
[engine]
command = ["/opt/server", "{model}", "{host}", "{port}"]
[common]
model = "/models/a.gguf"
"#;

fn parse(text: &str) -> Fleet {
    fleet::parse(text).unwrap_or_else(|mistakes| {
        let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        panic!("{}\n{text}", said.join("\n"))
    })
}

fn words(templates: &[Template]) -> Vec<String> {
    templates.iter().map(ToString::to_string).collect()
}

fn only(text: &str) -> Worker {
    let mut workers = parse(text).workers;
    assert_eq!(workers.len(), 1);
    workers.remove(0)
}

#[test]
fn the_example_is_right() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fleet.toml");
    let fleet = parse(&std::fs::read_to_string(path).unwrap());
    assert_eq!(fleet.name.as_str(), "example");
    let [short, long] = fleet.workers.as_slice() else {
        panic!("two workers are not commented out");
    };
    assert_eq!(short.program, Program::OnPath("llama-server".to_owned()));
    assert!(short.packs);
    assert_eq!(short.role.as_deref(), Some("baseline"));
    assert_eq!(short.devices, [DeviceSpec::parse("cpu:0").unwrap()]);
    let common = "--model {model} --host {host} --port {port} --threads {threads} --ctx-size 4096";
    assert_eq!(words(&short.arguments).join(" "), common);
    let added = format!("{common} --cache-type-k q8_0 --ctx-size 65536");
    assert_eq!(words(&long.arguments).join(" "), added);
    assert_eq!(long.profile.as_deref(), Some("long"));
    assert_eq!((short.ready_timeout_s, long.ready_timeout_s), (300, 900));
}

#[test]
fn what_is_not_said_has_its_default() {
    let fleet = parse(&format!(
        "{HEAD}[[worker]]\nname = \"w\"\ndevice = \"cpu:1\"\nport = 1\n"
    ));
    assert_eq!(fleet.backend, Backend::Auto);
    assert_eq!((fleet.keep_runs, fleet.log_max_bytes), (10, 64 << 20));
    let worker = fleet.worker("w").expect("because the file has it");
    assert_eq!(worker.host.to_string(), "127.0.0.1");
    assert_eq!(worker.working_folder, PathBuf::from("/"));
    assert_eq!(worker.health_path, "/health");
    assert_eq!(worker.ready_timeout_s, 300);
    let default = StopTimeouts {
        interrupt_s: 30,
        terminate_s: 15,
        kill_s: 10,
    };
    assert_eq!(worker.stop_timeouts, default);
    assert!(worker.prefer_ram_copy && !worker.packs);
    assert!(worker.environment.is_empty() && worker.inherit.is_empty());
    assert_eq!(
        (&worker.role, &worker.profile, worker.threads),
        (&None, &None, None)
    );
    assert_eq!(worker.line, 7);
    assert!(fleet.worker("x").is_none());
}

#[test]
fn layers_add_up_or_win_as_documented() {
    let sha = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9";
    let text = format!(
        r#"{HEAD}model_sha256 = "{sha}"
host = "0.0.0.0"
args = ["-a"]
environment = {{ A = "1", B = "1", C = "1" }}
inherit = ["PATH", "HOME"]
stop_timeouts_s = {{ interrupt = 1, terminate = 2 }}
threads = 3
prefer_ram_copy = false
[profiles.p]
args = ["-b"]
environment = {{ B = "2", C = "{{{{2}}}}" }}
inherit = ["LANG", "PATH"]
stop_timeouts_s = {{ terminate = 4 }}
threads = 5
health_path = "/ready"
[profiles.other]
args = ["-x"]
threads = 9
[[worker]]
name = "w"
device = ["cpu:1-2", "nvidia:GPU-8932F937-d72c-4106-c12f-20bd9faed9f6"]
port = 65535
profile = "p"
args = ["-c", "{{name}}"]
environment = {{ C = "3" }}
stop_timeouts_s = {{ kill = 0 }}
host = "::1"
"#
    );
    let worker = only(&text);
    let arguments = "{model} {host} {port} -a -b -c {name}";
    assert_eq!(words(&worker.arguments).join(" "), arguments);
    let set = worker.environment.iter();
    let set: Vec<String> = set.map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(set, ["A=1", "B=2", "C=3"]);
    let inherit: Vec<&String> = worker.inherit.iter().collect();
    assert_eq!(inherit, ["HOME", "LANG", "PATH"]);
    let timeouts = worker.stop_timeouts;
    let seconds = (timeouts.interrupt_s, timeouts.terminate_s, timeouts.kill_s);
    assert_eq!(seconds, (1, 4, 0));
    assert_eq!((worker.threads, worker.prefer_ram_copy), (Some(5), false));
    assert_eq!(
        (worker.port, worker.host.to_string().as_str()),
        (65535, "::1")
    );
    assert_eq!(worker.health_path, "/ready");
    let cores = CpuSet::parse("1-2").unwrap();
    let card = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6".to_owned();
    assert_eq!(
        worker.devices,
        [DeviceSpec::Cores(cores), DeviceSpec::Nvidia(card)]
    );
    let model = worker.model.expect("because common has one");
    assert_eq!(model.path, PathBuf::from("/models/a.gguf"));
    assert_eq!(
        model.sha256.map(|digest| digest.to_string()).as_deref(),
        Some(sha)
    );
}

/// A digest of the common model must not be asked of the model that a worker has in its place.
#[test]
fn another_model_does_not_keep_the_digest_of_the_first() {
    let sha = "5feceb66ffc86f38d952786c6d696c79c2dbc239dd4e91b46729d73a27fb57e9";
    let worker = only(&format!(
        "{HEAD}model_sha256 = \"{sha}\"\n[[worker]]\nname = \"w\"\ndevice = \"cpu:1\"\nport = 1\n\
         model = \"/models/b.gguf\"\n"
    ));
    let model = worker.model.expect("because the worker has one");
    assert_eq!(model.path, PathBuf::from("/models/b.gguf"));
    assert_eq!(model.sha256, None);
}

#[test]
fn a_mistake_blocks_the_workers_it_touches_and_no_others() {
    let text = format!(
        "{HEAD}[profiles.bad]\nthreads = 0\n\
         [[worker]]\nname = \"a\"\ndevice = \"cpu:1\"\nport = 1\nprofile = \"bad\"\n\
         [[worker]]\nname = \"b\"\ndevice = \"cpu:1\"\nport = 2\n\
         [[worker]]\nname = \"c\"\ndevice = \"cpu:2\"\nport = 3\n\
         [[worker]]\nname = \"d\"\nport = 4\n"
    );
    let reading = fleet::read(text.as_bytes());
    let declared: Vec<&str> = reading.declared.iter().map(|name| name.as_str()).collect();
    assert_eq!(declared, ["a", "b", "c", "d"]);
    let count = |command, worker| reading.blocking(command, worker).len();
    for (worker, render, start) in [("a", 1, 2), ("b", 0, 1), ("c", 0, 0), ("d", 1, 1)] {
        assert_eq!(count(FleetCommand::Render, worker), render, "{worker}");
        assert_eq!(count(FleetCommand::Start, worker), start, "{worker}");
    }
    let fleet = reading.fleet.expect("because the name is right");
    let complete: Vec<&str> = fleet
        .workers
        .iter()
        .map(|worker| worker.name.as_str())
        .collect();
    assert_eq!(complete, ["a", "b", "c"], "d has no device");
    assert!(fleet::parse(&text).is_err());
}

#[test]
fn of_a_broken_file_names_are_still_known() {
    let text = "schema = \"packhouse/fleet/1\"\nname = \"home\"\nnonsense here\n[engine\n\
        [[worker]]\nname = \"a\"\nport = \n[[worker]]\nname = \"b\"\ndevice = [\n";
    let reading = fleet::read(text.as_bytes());
    assert_eq!(
        reading.name.map(|name| name.to_string()).as_deref(),
        Some("home")
    );
    let declared: Vec<&str> = reading.declared.iter().map(|name| name.as_str()).collect();
    assert_eq!(declared, ["a", "b"]);
    let lines: Vec<usize> = reading
        .mistakes
        .iter()
        .map(|mistake| mistake.line)
        .collect();
    assert_eq!(
        lines,
        [3, 4, 7, 10],
        "and nothing that only follows from these"
    );
}

#[test]
fn what_is_no_text_or_too_long_is_one_mistake() {
    let mut bytes = HEAD.replace("home", "h\u{e4}me").into_bytes();
    let at = bytes.iter().position(|byte| *byte == 0xc3).unwrap();
    bytes.remove(at);
    let said: Vec<String> = fleet::read(&bytes)
        .mistakes
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        said[1].starts_with("2:8: name: \"h\u{fffd}me\" is no name"),
        "{}",
        said[1]
    );
    let all = "[blocks render and start of every worker]";
    assert_eq!(said[2], format!("2:10: byte {at} is no UTF-8 {all}"));
    let long = vec![b'#'; fleet::FLEET_BYTES_MAX + 1];
    let said = fleet::read(&long).mistakes;
    let [only] = said.as_slice() else {
        panic!("{said:?}");
    };
    let expected = format!("1:1: the file has 262145 bytes, at most 262144 are read {all}");
    assert_eq!(only.to_string(), expected);
    assert!(fleet::read(&long[1..]).mistakes.len() > 1, "it is read");
}

#[test]
fn what_is_too_many_is_counted() {
    let all = "[blocks render and start of every worker]";
    let keys: String = (0..1_200).map(|key| format!("k{key} = 1\n")).collect();
    let mistakes = fleet::read(keys.as_bytes()).mistakes;
    assert_eq!(mistakes.len(), 1_001);
    // Four keys are missing beside.
    let last = mistakes.last().map(ToString::to_string);
    assert_eq!(last, Some(format!("1201:1: 204 more mistakes {all}")));
    let workers = (0..300).map(|at| {
        format!(
            "[[worker]]\nname = \"w{at}\"\ndevice = \"cpu:{at}\"\nport = {}\n",
            at + 1
        )
    });
    let reading = fleet::read(format!("{HEAD}{}", workers.collect::<String>()).as_bytes());
    let [only] = reading.mistakes.as_slice() else {
        panic!("{:?}", reading.mistakes);
    };
    let expected = format!("7:1: worker: 300 workers, at most 256 are read {all}");
    assert_eq!(only.to_string(), expected);
    assert_eq!(reading.declared.len(), 256);
}

#[test]
fn columns_count_characters() {
    let text = format!("{HEAD}inherit = [\"\u{e4}\u{4e2d}\", 7]\n");
    let mistakes = fleet::read(text.as_bytes()).mistakes;
    let places = mistakes
        .iter()
        .map(|mistake| (mistake.line, mistake.column));
    let places: Vec<(usize, usize)> = places.filter(|(line, _)| *line == 7).collect();
    assert_eq!(places, [(7, 12), (7, 18)]);
}

/// Addresses on which one port can be bound twice, and those on which it can't.
#[test]
fn ports_are_doubled_where_their_addresses_meet() {
    for (left, right, meet) in [
        ("127.0.0.1", "127.0.0.1", true),
        ("127.0.0.1", "127.0.0.2", false),
        ("127.0.0.1", "0.0.0.0", true),
        ("0.0.0.0", "10.0.0.1", true),
        ("::", "127.0.0.1", true),
        ("::", "0.0.0.0", true),
        ("::", "::1", true),
        ("::1", "127.0.0.1", false),
        ("::1", "0.0.0.0", false),
        ("::ffff:127.0.0.1", "127.0.0.1", true),
    ] {
        for (first, second) in [(left, right), (right, left)] {
            let text = format!(
                "{HEAD}[[worker]]\nname = \"a\"\ndevice = \"cpu:1\"\nport = 9\nhost = \"{first}\"\n\
                 [[worker]]\nname = \"b\"\ndevice = \"cpu:2\"\nport = 9\nhost = \"{second}\"\n"
            );
            let mistakes = fleet::read(text.as_bytes()).mistakes;
            assert_eq!(!mistakes.is_empty(), meet, "{first} {second}: {mistakes:?}");
        }
    }
}

/// What a mistake takes away is not missed once more: each file has the one that was made.
#[test]
fn nothing_is_told_that_only_follows_from_a_mistake() {
    let right = r#"schema = "packhouse/fleet/1"
name = "home"
[engine]
command = ["server", "--name", "{name}"]
[common]
model = "/a.gguf"
threads = 3
args = ["{model}", "{threads}", "{cores}"]
environment = { LISTEN = "{host}:{port}" }
[profiles.p]
args = ["x"]
[[worker]]
name = "w"
profile = "p"
device = ["nvidia:GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "cpu:1"]
port = 1
"#;
    parse(right);
    for (find, put, line) in [
        ("\"/a.gguf\"", "\"a.gguf\"", 6),
        ("threads = 3", "threads = 0", 7),
        ("\"{model}\"", "\"{modl}\"", 8),
        ("args = [\"{model}", "args = \"{model}", 8),
        ("LISTEN = \"{host}:", "LISTEN = \"{hots}:", 9),
        ("environment = {", "environment = ", 9),
        ("[profiles.p]", "[profiles.p", 10),
        ("args = [\"x\"]", "args = [3]", 11),
        ("[[worker]]", "[[worker]", 12),
        ("name = \"w\"", "name \"w\"", 13),
        ("name = \"w\"", "name = \"W\"", 13),
        ("profile = \"p\"", "profile = \"q\"", 14),
        ("\"cpu:1\"", "\"cpu:x\"", 15),
        ("\"cpu:1\"]", "\"cpu:1\"", 15),
        ("port = 1", "port = ", 16),
        ("\"server\"", "\"./server\"", 4),
        ("\"server\"", "\"{model}\"", 4),
        ("\"server\"", "\"server", 4),
        ("[engine]", "[engine", 3),
        ("[common]", "[common", 5),
    ] {
        assert!(right.contains(find), "{find}");
        let text = right.replacen(find, put, 1);
        let mistakes = fleet::read(text.as_bytes()).mistakes;
        let lines: Vec<usize> = mistakes.iter().map(|mistake| mistake.line).collect();
        let said: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert!(
            !lines.is_empty() && lines.iter().all(|at| *at == line),
            "{put}: {said:#?}"
        );
    }
}
