//! Records of runs: each has one spelling, and every edit of one is refused by its field.

use packhouse_base::canonical;
use packhouse_base::digest::Digest;
use packhouse_proc::cores::CpuSet;
use packhouse_proc::identity::{BootId, ProcessKey, RunId};
use packhouse_proc::records::{
    Backend, Identity, Launched, LeftBehind, LoadedContent, LoadedFile, Order, OrderDevice,
    OrderModel, Outcome, ReadyListener, Record, RunExit, StopTimeouts, Timestamp,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Debug;

pub(crate) fn boot() -> BootId {
    BootId::new([0xb0; 16])
}

pub(crate) fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        boot: boot(),
        pid_namespace: 4_026_531_836,
        pid,
        start_ticks: u64::from(pid) * 7,
    }
}

fn at() -> Timestamp {
    Timestamp {
        boot: boot(),
        steady_ns: 12,
        wall_ns: -3,
    }
}

fn model() -> OrderModel {
    OrderModel {
        source: "/models/a.gguf".into(),
        path: "/dev/shm/a.gguf".into(),
        ram_copy: true,
        sha256: Some(Digest::of(b"a model")),
        bytes: 7,
    }
}

pub(crate) fn order() -> Order {
    Order {
        run: RunId::new([0x1d; 16]),
        fleet: "home".into(),
        worker: "w0".into(),
        role: "baseline".into(),
        at: at(),
        at_ticks: 99,
        machine: Some("0123456789abcdef".repeat(2)),
        controller: key(10),
        version: "0.1.0".into(),
        backend: Backend::Systemd,
        command: vec!["/opt/engine".into(), "--port".into(), "8081".into()],
        environment: BTreeMap::from([("A".into(), "1".into())]),
        inherit: vec!["PATH".into()],
        working_folder: Some("/srv".into()),
        cores: Some(CpuSet::parse("0-3,8").expect("because it is a set")),
        devices: vec![OrderDevice {
            id: "nvidia:GPU-1".into(),
            name: "a card".into(),
            used_bytes: Some(4096),
        }],
        host: [127, 0, 0, 1].into(),
        port: 8081,
        health_path: "/health".into(),
        ready_timeout_s: 300,
        stop_timeouts: StopTimeouts::default(),
        log_max_bytes: 64 << 20,
        model: Some(model()),
        available_bytes: Some(1 << 30),
    }
}

fn bare_order() -> Order {
    Order {
        machine: None,
        backend: Backend::Plain,
        working_folder: None,
        cores: None,
        devices: Vec::new(),
        environment: BTreeMap::new(),
        model: None,
        available_bytes: None,
        ..order()
    }
}

pub(crate) fn launched() -> Launched {
    Launched {
        run: order().run,
        keeper: key(11),
        worker: key(12),
        session: 12,
        cgroup: Some("/user.slice/packhouse.slice".into()),
        at: at(),
    }
}

fn identity() -> Identity {
    Identity {
        run: order().run,
        worker: key(12),
        command: order().command,
        inherit: order().inherit,
        executable: LoadedFile {
            path: "/opt/engine".into(),
            content: LoadedContent::Hashed {
                sha256: Digest::of(b"an engine"),
                bytes: 9,
            },
        },
        libraries: vec![LoadedFile {
            path: "/lib/libx.so".into(),
            content: LoadedContent::Unknown {
                why: "permission denied".into(),
            },
        }],
        model: Some(model()),
        listener: ReadyListener {
            address: "127.0.0.1:8081".into(),
            inode: 5,
        },
        ready_after_ns: Some(8),
        at: at(),
    }
}

pub(crate) fn exit(outcome: Outcome) -> RunExit {
    RunExit {
        run: order().run,
        outcome,
        at: at(),
        left_behind: vec![LeftBehind {
            key: key(13),
            name: "a (strange) name\n".into(),
            is_gone: true,
        }],
        log_freed_bytes: 4096,
    }
}

#[test]
fn each_record_is_read_back_as_it_was_written() {
    reads_back(&order());
    reads_back(&bare_order());
    reads_back(&launched());
    reads_back(&Launched {
        cgroup: None,
        ..launched()
    });
    reads_back(&identity());
    reads_back(&Identity {
        model: None,
        ready_after_ns: None,
        ..identity()
    });
    for outcome in [
        Outcome::Code(-1),
        Outcome::Signal(9),
        Outcome::NotStarted {
            why: "no such file".into(),
        },
        Outcome::Unseen,
    ] {
        reads_back(&exit(outcome));
    }
}

#[test]
fn each_edit_of_a_record_is_refused_by_its_field() {
    let edits = edits_refused::<Order>(&order())
        + edits_refused::<Launched>(&launched())
        + edits_refused::<Identity>(&identity())
        + edits_refused::<RunExit>(&exit(Outcome::Code(0)))
        + edits_refused::<RunExit>(&exit(Outcome::Unseen));
    assert!(edits > 200, "only {edits} edits were tried");
}

#[test]
fn values_that_no_start_writes_are_refused_with_the_value() {
    let with = |field: &str, value: Value| {
        let mut record = order().to_value();
        record[field] = value;
        let error = Order::parse(&canonical::render(&record));
        error.expect_err("because no start writes it").to_string()
    };
    assert_eq!(
        with("backend", json!("cron")),
        "backend: expected plain or systemd, found \"cron\""
    );
    assert_eq!(
        with("port", json!(65_536)),
        "port: expected a port, found 65536"
    );
    assert_eq!(
        with("command", json!([])),
        "command: expected at least one word, found []"
    );
    assert_eq!(
        with("host", json!("localhost")),
        "host: expected an IP address, found \"localhost\""
    );
    assert_eq!(
        with("cores", json!("3-1")),
        "cores: expected a set of cores, found \"3-1\""
    );
    // Another spelling of what a start does write.
    assert_eq!(
        with("cores", json!("8,0-3")),
        "cores: expected a set of cores, found \"8,0-3\""
    );
    assert_eq!(
        with("host", json!("::0001")),
        "host: expected an IP address, found \"::0001\""
    );
    assert_eq!(
        with("machine", json!("0123")),
        "machine: expected a machine id of 32 hex digits, found \"0123\""
    );
    let mut zero = order().to_value();
    zero["controller"]["pid"] = json!(0);
    let error = Order::parse(&canonical::render(&zero)).expect_err("because it is nobody");
    assert_eq!(error.to_string(), "controller.pid: expected a pid, found 0");
}

#[test]
fn a_run_is_over_when_all_that_it_left_is_gone() {
    let mut exit = exit(Outcome::Unseen);
    assert!(exit.is_final());
    exit.left_behind[0].is_gone = false;
    assert!(!exit.is_final());
}

fn reads_back<R: Record + PartialEq + Debug>(record: &R) {
    let bytes = record.render();
    assert_eq!(R::parse(&bytes).as_ref(), Ok(record));
    assert_eq!(record.to_value()["schema"], R::SCHEMA);
}

/// Removes, adds and retypes every field of a record, at any depth. Counts the edits.
fn edits_refused<R: Record + Debug>(record: &R) -> usize {
    let whole = record.to_value();
    let mut paths = Vec::new();
    walk(&whole, &mut Vec::new(), &mut paths);
    let mut edits = 0;
    for path in &paths {
        let (last, parents) = path.split_last().expect("because no path is empty");
        let shown = shown(path);
        // Environments have any names.
        let is_free = path.first().is_some_and(|first| first == "environment") && path.len() > 1;
        let edit = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
            let mut edited = whole.clone();
            let parent =
                parents
                    .iter()
                    .fold(&mut edited, |value, step| match step.parse::<usize>() {
                        Ok(index) => &mut value[index],
                        Err(_) => &mut value[step.as_str()],
                    });
            if let Value::Object(fields) = parent {
                change(fields);
            }
            R::parse(&canonical::render(&edited)).map_err(|error| error.to_string())
        };
        if last.parse::<usize>().is_ok() {
            continue;
        }
        if !is_free {
            let error = edit(&|fields| drop(fields.remove(last)));
            let error = error.expect_err("because a field is absent");
            assert!(error.contains("absent"), "{shown}: {error}");
            edits += 1;
        }
        let error = edit(&|fields| drop(fields.insert(last.clone(), json!([[7]]))));
        let error = error.expect_err("because no field is a list of lists");
        assert!(error.contains(&shown), "{shown}: {error}");
        if parents.first().is_none_or(|first| first != "environment") {
            let error = edit(&|fields| drop(fields.insert("zz".into(), json!(1))));
            let error = error.expect_err("because nobody knows the field");
            assert!(error.contains("zz"), "{shown}: {error}");
            edits += 1;
        }
        edits += 1;
    }
    edits
}

fn walk(value: &Value, path: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    let mut visit = |step: String, inner: &Value| {
        path.push(step);
        paths.push(path.clone());
        walk(inner, path, paths);
        path.pop();
    };
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                visit(name.clone(), inner);
            }
        }
        Value::Array(items) => {
            for (index, inner) in items.iter().enumerate() {
                visit(index.to_string(), inner);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// A path as errors name it.
fn shown(path: &[String]) -> String {
    let mut shown = String::new();
    for step in path {
        if step.parse::<usize>().is_ok() {
            shown += &format!("[{step}]");
        } else {
            if !shown.is_empty() {
                shown.push('.');
            }
            shown += step;
        }
    }
    shown
}
