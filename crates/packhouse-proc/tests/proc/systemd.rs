//! Units: linted by systemd's own reader, started by a real user manager where there can be one,
//! and tools that are missing, fail, or print something else.

use packhouse_proc::systemd::{
    KeeperCommand, Manager, ManagerState, SystemdError, Unit, UnitName, UnitState,
};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

const RUN: &str = "00112233445566778899aabbccddeeff";

fn unit(program: &str, folder: &str) -> Unit {
    let keeper = KeeperCommand {
        program: Path::new(program),
        folder: Path::new(folder),
    };
    Unit::new("home", "w0", &RUN, &keeper, 55).expect("because both are text")
}

/// What systemd would do to words that it expands or splits.
const NASTY: &str = "/srv/a \"b\" %n ${HOME} $PATH \\x41 'c' ; # \u{e9}/w0";

#[test]
fn the_unit_is_named_by_its_run_and_says_how_it_is_stopped() {
    let unit = unit(
        "/usr/bin/packhouse",
        "/srv/state/fleets/home/w0/runs/000001",
    );
    assert_eq!(
        unit.name().as_str(),
        "packhouse-home-w0-00112233445566778899aabbccddeeff.service"
    );
    assert_eq!(
        unit.text(),
        "[Unit]\n\
         Description=packhouse worker w0 of fleet home\n\
         \n\
         [Service]\n\
         ExecStart=\"/usr/bin/packhouse\" \"keep\" \"/srv/state/fleets/home/w0/runs/000001\"\n\
         Type=exec\n\
         Slice=packhouse.slice\n\
         KillMode=mixed\n\
         KillSignal=SIGTERM\n\
         TimeoutStopSec=55s\n\
         Restart=no\n\
         OOMPolicy=continue\n\
         Delegate=no\n\
         StandardInput=null\n"
    );
}

#[test]
fn every_line_of_the_unit_is_a_word_of_its_start() {
    let unit = unit("/usr/bin/packhouse", NASTY);
    let words = unit.start_words();
    let text = unit.text();
    let properties = text.lines().filter_map(|line| line.split_once('='));
    let properties = properties.filter(|(key, _)| !["ExecStart", "Description"].contains(key));
    let mut count = 0;
    for (key, value) in properties {
        let word = format!("--property={key}={value}");
        assert!(
            words.iter().any(|known| *known == *word),
            "{word}: {words:?}"
        );
        count += 1;
    }
    assert_eq!(
        count,
        words
            .iter()
            .filter(|word| starts(word, "--property="))
            .count()
    );
    let end = words.len();
    assert_eq!(
        words[end - 4..end - 1],
        ["--", "/usr/bin/packhouse", "keep"]
    );
    assert_eq!(words[end - 1], *NASTY.replace('$', "$$"));
}

fn starts(word: &OsStr, start: &str) -> bool {
    word.as_bytes().starts_with(start.as_bytes())
}

#[test]
fn a_path_that_is_no_text_is_named() {
    let folder = Path::new(OsStr::from_bytes(b"/srv/\xff"));
    let keeper = KeeperCommand {
        program: Path::new("/usr/bin/packhouse"),
        folder,
    };
    let error = Unit::new("home", "w0", &RUN, &keeper, 55).expect_err("because of the byte");
    assert!(matches!(&error, SystemdError::NotText { path } if path == folder));
    assert_eq!(
        error.to_string(),
        "a path that systemd cannot take, as it is no UTF-8: /srv/\u{fffd}"
    );
}

/// What `systemd-analyze verify` says of a unit, or nothing where that program is missing.
fn lint(text: &str) -> Option<String> {
    let folder = tempfile::tempdir().expect("because tests have a temporary folder");
    let path = folder.path().join("packhouse-test.service");
    std::fs::write(&path, text).expect("because it is writable");
    let output = Command::new("systemd-analyze")
        .args(["--user", "--man=no", "verify"])
        .arg(&path)
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("LC_ALL", "C")
        .output()
        .ok()?;
    // It says what it ignores and succeeds all the same.
    Some(String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn systemd_reads_the_unit_without_a_complaint() {
    let Some(said) = lint(&unit("/bin/sh", NASTY).text()) else {
        println!("NOT EXERCISED: no systemd-analyze to read units with");
        return;
    };
    assert_eq!(said, "");
    let mutants = [
        ("KillMode=mixed", "KillMode=sideways"),
        ("Restart=no", "Restrat=no"),
        ("ExecStart=\"", "ExecStart="),
        ("/bin/sh", "/bin/no-such-program"),
    ];
    for (line, mutant) in mutants {
        let text = unit("/bin/sh", NASTY).text();
        assert!(text.contains(line), "{line}");
        let said = lint(&text.replace(line, mutant)).expect("because it is there");
        assert_ne!(said, "", "{mutant} went unnoticed");
    }
}

/// Tools that are scripts: what `systemctl` and `systemd-run` do.
fn scripted(systemctl: &str, systemd_run: &str) -> (tempfile::TempDir, Manager) {
    let folder = tempfile::tempdir().expect("because tests have a temporary folder");
    let write = |name: &str, body: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{body}\n")).expect("because it is writable");
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&path, mode).expect("because it is ours");
        path
    };
    let manager = Manager::new(&write("systemctl", systemctl), &write("run", systemd_run));
    (folder, manager)
}

#[test]
fn a_manager_is_there_only_if_it_says_its_version() {
    let (_folder, manager) = scripted("echo Version=252.38-1", "exit 9");
    let version = "252.38-1".to_owned();
    assert_eq!(manager.state(), ManagerState::Answers { version });
    let why = |manager: &Manager| match manager.state() {
        ManagerState::Silent { why } => why,
        ManagerState::Answers { version } => panic!("{version} answered"),
    };
    let (_folder, manager) = scripted("echo 'Failed to connect to bus: No medium' >&2; exit 1", "");
    let said = why(&manager);
    assert!(
        said.ends_with("exit status: 1: Failed to connect to bus: No medium"),
        "{said}"
    );
    for nothing in ["echo Version=", "echo Verzion=252", "true"] {
        let (_folder, manager) = scripted(nothing, "");
        let said = why(&manager);
        assert!(
            said.contains("printed what is not understood"),
            "{nothing}: {said}"
        );
    }
    let missing = Path::new("/no/such/systemctl");
    let said = why(&Manager::new(missing, missing));
    assert!(
        said.starts_with("cannot run /no/such/systemctl: No such file"),
        "{said}"
    );
}

#[test]
fn what_a_manager_says_of_a_unit_is_read_whole_or_not_at_all() {
    let name = UnitName::new("home", "w0", &RUN);
    let shown = "LoadState=loaded\nActiveState=active\nSubState=running\nResult=success\n\
                 MainPID=4711\nControlGroup=/user.slice/packhouse.slice/x.service\n\
                 InvocationID=8c9c0e1569124eaaac995db36c470293";
    let show = |text: &str| {
        let (_folder, manager) = scripted(&format!("printf '{text}\\n'"), "");
        manager.show(&name)
    };
    let running = UnitState {
        active: "active".to_owned(),
        sub: "running".to_owned(),
        result: "success".to_owned(),
        main_pid: Some(4711),
        cgroup: Some("/user.slice/packhouse.slice/x.service".into()),
        invocation: Some("8c9c0e1569124eaaac995db36c470293".to_owned()),
    };
    let whole = show(shown).expect("because it is whole");
    assert_eq!(whole, Some(running));
    let ended = shown
        .replace("4711", "0")
        .replace("/user.slice/packhouse.slice/x.service", "");
    let ended = show(&ended)
        .expect("because it is whole")
        .expect("because it is loaded");
    assert_eq!((ended.main_pid, ended.cgroup), (None, None));
    let unknown = shown.replace("LoadState=loaded", "LoadState=not-found");
    assert_eq!(show(&unknown).expect("because it is whole"), None);
    for key in ["LoadState", "ActiveState", "SubState", "Result", "MainPID"] {
        let error = show(&shown.replace(key, "Else")).expect_err("because a line is missing");
        let said = error.to_string();
        assert!(
            said.contains("printed what is not understood"),
            "{key}: {said}"
        );
    }
    assert!(show(&shown.replace("4711", "many")).is_err());
}

#[test]
fn a_refused_start_says_what_the_manager_said() {
    let said = "echo 'Failed to start transient service unit: Unit x already exists.' >&2; exit 1";
    let (_folder, manager) = scripted("", said);
    let error = manager
        .start(&unit("/bin/sh", "/srv"))
        .expect_err("because it was refused");
    let said = error.to_string();
    assert!(said.ends_with("already exists."), "{said}");
}

/// Starts UNIT with the words given, and then FILE, a unit in FOLDER. Both run FOLDER/keeper, which
/// says in keeper.said how it was called; that is moved to keeper.run and keeper.file. Prints what
/// the manager says of UNIT while it runs, and after it was stopped.
const STEPS: &str = r#"
folder=$1 unit=$2 file=$3
shift 3
wait_for_keeper() {
  for _ in $(seq 3000); do
    [ -f "$folder/keeper.said" ] && break
    sleep 0.02
  done
  mv "$folder/keeper.said" "$folder/$1"
}
systemd-run "$@" || exit 1
wait_for_keeper keeper.run
systemctl --user show --property=ActiveState,SubState -- "$unit"
systemctl --user stop -- "$unit"
echo stopped
systemctl --user show --property=LoadState -- "$unit"
systemctl --user --quiet link --runtime -- "$folder/$file" || exit 1
systemctl --user start -- "$file" || exit 1
wait_for_keeper keeper.file
systemctl --user stop -- "$file"
"#;

const FILE_UNIT: &str = "packhouse-file.service";

/// In a mount namespace of its own a user manager can be had wherever root runs the tests and
/// systemd is installed. Its control groups lie below one that the script makes and removes.
#[test]
fn a_real_manager_runs_the_keeper_with_the_words_it_was_given() {
    let folder = tempfile::tempdir().expect("because tests have a temporary folder");
    let keeper = folder.path().join("keeper");
    let body = "#!/bin/sh\n\
                { printf '%s\\n' \"$#\" \"$@\"; cat /proc/self/cgroup; } >\"$0.said.tmp\"\n\
                mv \"$0.said.tmp\" \"$0.said\"\n\
                exec sleep 600\n";
    std::fs::write(&keeper, body).expect("because it is writable");
    std::fs::set_permissions(&keeper, std::fs::Permissions::from_mode(0o755))
        .expect("because it is ours");
    let unit = unit(keeper.to_str().expect("because it is text"), NASTY);
    // The rendered text is started too, as a file.
    std::fs::write(folder.path().join(FILE_UNIT), unit.text()).expect("because it is writable");
    let output = Command::new("unshare")
        .args(["--mount", "bash"])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/proc/user_manager.sh"))
        .arg(folder.path())
        .args(["bash", "-c", STEPS, "steps"])
        .arg(folder.path())
        .args([unit.name().as_str(), FILE_UNIT])
        .args(unit.start_words())
        .output();
    // Mount namespaces are for root, and not for every root.
    let tried = Command::new("unshare").args(["--mount", "true"]).output();
    let may_mount = tried.is_ok_and(|tried| tried.status.success());
    let said = match &output {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout),
        Ok(output) if may_mount && output.status.code() != Some(77) => panic!("{output:?}"),
        Ok(_) | Err(_) => {
            println!("NOT EXERCISED: no user manager of systemd can be started here");
            return;
        }
    };
    for (run, name) in [
        ("keeper.run", unit.name().as_str()),
        ("keeper.file", FILE_UNIT),
    ] {
        let seen = std::fs::read_to_string(folder.path().join(run));
        let seen = seen.expect("because the keeper ran");
        assert!(
            seen.starts_with(&format!("2\nkeep\n{NASTY}\n")),
            "{run}: {seen}"
        );
        let group = format!("/packhouse.slice/{name}");
        assert!(seen.contains(&group), "{run}: {seen}");
    }
    // Running as the manager says, and known to nobody once it is stopped.
    assert!(
        said.contains("ActiveState=active\nSubState=running\n"),
        "{said}"
    );
    assert!(said.contains("stopped\nLoadState=not-found\n"), "{said}");
}
