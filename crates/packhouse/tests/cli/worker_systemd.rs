//! Workers under a real user manager of systemd, which the tests start for themselves where they
//! may: the same records, the same stop, and a control group that ends with its keeper.

use crate::worker_world::{World, worker_words};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// Starts, kills the keeper, starts again, has the manager stop it, starts again, stops, and keeps
/// what is said on the way.
const STEPS: &str = r#"
packhouse=$1
worker() { "$packhouse" worker "$@" --config fleet.toml; }
worker start --execute || exit 1
worker status --json >ready.json || exit 1
server=$(tail -n 1 starts)
cat "/proc/$server/cgroup" >server.cgroup
keeper=$(systemctl --user show --property=MainPID --value 'packhouse-home-w0-*')
kill -KILL "$keeper"
# The manager ends the rest of a unit whose main process is gone.
for _ in $(seq 3000); do
  [ -d "/proc/$server" ] || break
  sleep 0.02
done
[ -d "/proc/$server" ] && exit 1
worker status --json >killed.json
worker start --execute || exit 1
worker status --json >again.json || exit 1
# The manager's own stop asks the keeper, which ends its engine in order and records it.
systemctl --user stop 'packhouse-home-w0-*' || exit 1
worker status --json >unit.json
worker start --execute || exit 1
worker stop --execute || exit 1
worker status --json >stopped.json
systemctl --user list-units --all --no-legend --plain 'packhouse-home-*' >units
"#;

#[test]
fn a_user_manager_keeps_the_worker_and_nothing_outlives_its_keeper() {
    let world = World::new(0, &[]);
    world.write_fleet(0, &[], "auto");
    let plain = world.sandbox().command(&worker_words(&["start"]));
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "bash"])
        .arg(
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../packhouse-proc/tests/proc/user_manager.sh"),
        )
        .arg(world.path("session"))
        .args(["bash", "-c", STEPS, "steps"])
        .arg(plain.get_program())
        .current_dir(world.path(""))
        .env_clear();
    for (name, value) in plain.get_envs() {
        command.env(name, value.expect("because the sandbox only sets"));
    }
    let output = match command.output() {
        Ok(output) if may_mount() && output.status.code() != Some(77) => output,
        Ok(_) | Err(_) => {
            println!("NOT EXERCISED: no user manager of systemd can be started here");
            return;
        }
    };
    assert!(output.status.success(), "{output:?}\n{}", world.files());
    let said = |name: &str| std::fs::read_to_string(world.path(name)).expect("because it was said");
    let state = |name: &str| {
        let all: Value = serde_json::from_str(&said(name)).expect("because it is one document");
        all["workers"][0]["state"]
            .as_str()
            .unwrap_or_default()
            .to_owned()
    };
    assert_eq!(state("ready.json"), "ready", "{}", said("ready.json"));
    assert!(
        said("server.cgroup").contains("/packhouse.slice/packhouse-home-w0-"),
        "{}",
        said("server.cgroup")
    );
    assert!(
        ["stale", "exited"].contains(&state("killed.json").as_str()),
        "{}",
        said("killed.json")
    );
    assert_eq!(state("again.json"), "ready", "{}", said("again.json"));
    assert!(
        ["exited", "absent"].contains(&state("stopped.json").as_str()),
        "{}",
        said("stopped.json")
    );
    let unit: Value = serde_json::from_str(&said("unit.json")).expect("because it is a document");
    assert_eq!(unit["workers"][0]["shown"], "exited(0)", "{unit}");
    assert_eq!(said("units"), "", "a unit is left");
    let order = world.record("order.json").expect("because it was started");
    assert_eq!(order["backend"], "systemd");
    world.must_be_over("after a stop");
}

/// Mount namespaces are for root, and not for every root.
fn may_mount() -> bool {
    let tried = Command::new("unshare").args(["--mount", "true"]).output();
    tried.is_ok_and(|tried| tried.status.success())
}
