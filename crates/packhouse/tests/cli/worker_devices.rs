//! `worker devices` on this host: what it lists, in both forms.

use crate::sandbox::Sandbox;
use serde_json::Value;

fn answer(words: &[&str]) -> String {
    let output = Sandbox::new().command(words).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(output.stderr, b"", "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn devices_are_listed_by_names_that_a_fleet_file_takes() {
    let document: Value = serde_json::from_str(&answer(&["worker", "devices", "--json"])).unwrap();
    let devices = document["devices"].as_array().unwrap();
    assert!(!devices.is_empty(), "this host has cores");
    let text = answer(&["worker", "devices"]);
    for device in devices {
        let id = device["id"].as_str().unwrap();
        packhouse_proc::devices::DeviceSpec::parse(id).unwrap();
        assert!(text.contains(id), "{text}");
    }
    assert_eq!(document["online_cores"]["state"], "known");
    let cores = format!(
        "cpu:{}",
        document["online_cores"]["value"].as_str().unwrap()
    );
    packhouse_proc::devices::DeviceSpec::parse(&cores).unwrap();
    let line = format!("\n{cores}  the cores of this host, or any part of them\n");
    assert!(text.contains(&line), "{text}");
}

#[test]
fn every_source_is_named_with_its_words_or_its_absence() {
    let document: Value = serde_json::from_str(&answer(&["worker", "devices", "--json"])).unwrap();
    let sources = document["sources"].as_array().unwrap();
    let of = |name: &str| sources.iter().find(|source| source["source"] == name);
    let numa = of("numa").expect("because the kernel is always asked");
    let online = document["online_cores"]["value"].as_str().unwrap();
    assert!(numa["raw"].as_str().unwrap().contains(online), "{numa}");
    let nvml = of("nvml").expect("because the library is always asked for");
    match nvml["outcome"]["state"].as_str().unwrap() {
        "absent" => assert_eq!(nvml["raw"], Value::Null),
        "known" => assert!(nvml["raw"].as_str().unwrap().contains("\"devices\"")),
        state => panic!("{state}: {nvml}"),
    }
}

#[test]
fn without_any_tool_the_kernels_devices_are_listed() {
    let sandbox = Sandbox::new();
    let mut command = sandbox.command(&["worker", "devices", "--json"]);
    let output = command.env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(!document["devices"].as_array().unwrap().is_empty());
}

#[test]
fn the_doctor_counts_devices() {
    let text = answer(&["doctor"]);
    let line = text.lines().find(|line| line.starts_with("devices"));
    let line = line.expect("because the doctor names what there is");
    assert!(
        line.contains("cores on") && line.contains("cards"),
        "{line}"
    );
}
