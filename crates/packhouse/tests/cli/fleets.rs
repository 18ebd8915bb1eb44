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
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "worker w0: nothing blocks it\n"
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
