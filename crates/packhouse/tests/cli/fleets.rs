//! `worker validate` and `worker render`: what is said of fleet files, and the exit codes.

use crate::sandbox::Sandbox;
use std::fs;

/// A right file: its words do not depend on the host, as long as it has a core 0.
const RIGHT: &str = r#"schema = "packhouse/fleet/1"
name = "home"

[engine]
command = ["<tmp>/server", "--host", "{host}", "--port", "{port}"]

[common]
inherit = ["HOME"]
args = ["--threads", "{threads}", "it's"]

[[worker]]
name = "w0"
device = "cpu:0"
port = 8081

[[worker]]
name = "w1"
device = "cpu:0"
port = 80811
"#;

fn world() -> Sandbox {
    let sandbox = Sandbox::new();
    let own = sandbox.path("");
    let own = own.to_str().unwrap().trim_end_matches('/');
    let put = |name: &str, text: &str| {
        fs::write(sandbox.path(name), text.replace("<tmp>", own)).unwrap();
    };
    put("fleet.toml", RIGHT);
    put(
        "one.toml",
        RIGHT.split("\n[[worker]]\nname = \"w1\"").next().unwrap(),
    );
    put(
        "nameless.toml",
        &RIGHT.replace("name = \"home\"", "nam = \"home\""),
    );
    put("empty.toml", "");
    let one = RIGHT.split("\n[[worker]]\nname = \"w1\"").next().unwrap();
    let packs = one.replace("[common]", "packs = true\n\n[common]");
    put(
        "packs.toml",
        &packs.replace(
            "inherit =",
            "environment = { PACKHOUSE_PLUGIN = \"<tmp>/none.so\" }\ninherit =",
        ),
    );
    put("store.toml", &packs.replace("\"HOME\"", "\"LANG\""));
    put(
        "model.toml",
        &one.replace(
            "args = [",
            "model = \"<tmp>/model.gguf\"\nargs = [\"{model}\", ",
        ),
    );
    put("server", "#!/bin/sh\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(sandbox.path("server"), mode).unwrap();
    sandbox
}

#[test]
fn fleet_files_are_compared_with_their_format_and_the_host() {
    world().session(
        "worker-validate",
        &[
            &["worker", "validate", "--config", "one.toml"],
            &["worker", "validate", "--config", "fleet.toml"],
            &[
                "worker",
                "validate",
                "--config",
                "fleet.toml",
                "--worker",
                "w0",
            ],
            &["worker", "validate", "--config", "fleet.toml", "--json"],
            &["worker", "validate", "--config", "nameless.toml"],
            &["worker", "validate", "--config", "empty.toml"],
            &["worker", "validate", "--config", "packs.toml"],
            &["worker", "validate", "--config", "store.toml"],
            &["worker", "validate", "--config", "model.toml"],
            &[
                "worker",
                "validate",
                "--config",
                "fleet.toml",
                "--worker",
                "w2",
            ],
            &["worker", "validate", "--config", "none.toml"],
            &["worker", "validate", "--config", "."],
            &["worker", "validate"],
            &["worker", "validate", "fleet.toml"],
            &["worker", "valdate"],
        ],
    );
}

#[test]
fn workers_are_rendered_one_by_one() {
    world().session(
        "worker-render",
        &[
            &["worker", "render", "--config", "one.toml"],
            &["worker", "render", "--config", "one.toml", "--json"],
            &["worker", "render", "--config", "fleet.toml"],
            &[
                "worker",
                "render",
                "--config",
                "fleet.toml",
                "--worker",
                "w0",
            ],
            &["worker", "render", "--config", "empty.toml"],
            &["worker", "render", "--config", "one.toml", "--worker", "W0"],
        ],
    );
}

/// The user's own file is found without `--config`.
#[test]
fn the_fleet_file_of_the_user_is_the_default() {
    let sandbox = world();
    let folder = sandbox.path("config/packhouse");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(sandbox.path("one.toml"), folder.join("fleet.toml")).unwrap();
    let mut command = sandbox.command(&["worker", "validate"]);
    let output = command
        .env("XDG_CONFIG_HOME", sandbox.path("config"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    let file = folder.join("fleet.toml");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        format!(
            "worker w0: nothing blocks it\n\
             not looked at: taken ports, holders of devices, the model's SHA-256\n\
             ports and holders are told by: packhouse worker start --config {}\n",
            file.display()
        )
    );
}

/// A command that is rendered runs as it stands there.
#[test]
fn a_shell_executes_what_is_rendered() {
    let sandbox = world();
    fs::write(
        sandbox.path("server"),
        "#!/bin/sh\nprintf '%s\\n' \"$HOME\" \"$@\" \"$T\"\n",
    )
    .unwrap();
    let line = "eval \"$(\"$0\" worker render --config one.toml)\"";
    let output = sandbox
        .shell(line, &[])
        .env("T", "not inherited")
        .output()
        .unwrap();
    let home = sandbox.path("home");
    let expected = format!(
        "{}\n--host\n127.0.0.1\n--port\n8081\n--threads\n1\nit's\n\n",
        home.display()
    );
    assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
}

/// A worker's model is its verified copy in RAM, also when its own file is gone, unless the file of
/// the fleet wants none.
#[test]
fn a_copy_of_the_model_in_memory_is_preferred() {
    let sandbox = world();
    let source = sandbox.path("model.gguf");
    let run = |words: &[&str]| {
        let output = sandbox.command(words).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), text, said)
    };
    let render = || {
        let (exit, text, said) = run(&["worker", "render", "--config", "model.toml", "--json"]);
        assert_eq!(exit, Some(0), "{said}");
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        let worker = &document["workers"][0];
        assert_eq!(
            worker["model"], worker["command"][5],
            "it is what the engine is told"
        );
        std::path::PathBuf::from(worker["model"].as_str().unwrap())
    };
    fs::write(&source, b"weights of a model").unwrap();
    assert_eq!(render(), source);
    let (exit, _, said) = run(&["model", "prepare", "model.gguf"]);
    assert_eq!(exit, Some(0), "{said}");
    let copy = render();
    assert!(copy.starts_with(sandbox.path("stage")), "{copy:?}");
    assert_eq!(fs::read(&copy).unwrap(), b"weights of a model");
    let (_, text, _) = run(&["worker", "render", "--config", "model.toml"]);
    assert!(
        text.starts_with("# worker w0, its model a copy in RAM\n"),
        "{text}"
    );
    fs::remove_file(&source).unwrap();
    assert_eq!(render(), copy);
    assert_eq!(
        run(&["worker", "validate", "--config", "model.toml"]).0,
        Some(0)
    );
    let text = fs::read_to_string(sandbox.path("model.toml")).unwrap();
    let text = text.replace("[common]", "[common]\nprefer_ram_copy = false");
    fs::write(sandbox.path("model.toml"), text).unwrap();
    let (exit, text, _) = run(&["worker", "validate", "--config", "model.toml"]);
    assert_eq!(exit, Some(1));
    assert!(text.contains("model.gguf: No such file"), "{text}");
}
