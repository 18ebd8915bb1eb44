//! Workers against a host: what is found, and what is missing.

use crate::cards::{card, cores, part};
use crate::fleet_world::{CARD, ENGINE, WORKER, World};
use packhouse_proc::devices::{Device, Observation, SourceReport, Vendor};
use packhouse_proc::fleet::host::look;
use packhouse_proc::fleet::{FleetCommand, host_problems};
use std::fs;

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
}

#[test]
fn ports_and_addresses_that_can_not_be_had_are_named() {
    let world = World::new(&[]);
    let start = "[blocks start of w]";
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
    // Relative folders are passed over, even one that leads to a program, as are those where a file
    // of the name is no program.
    let up = std::env::current_dir().unwrap().components().count() - 1;
    let relative = format!("{}<tmp>/lure", vec![".."; up].join("/"));
    fs::create_dir(world.path("lure")).unwrap();
    fs::copy(world.path("bin/server"), world.path("lure/server")).unwrap();
    let lure = path(&relative);
    assert!(fs::exists(format!("{lure}/server")).unwrap(), "{lure}");
    let starts = path(&format!("{relative}::<tmp>/other:<tmp>/bin"));
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
fn devices_that_two_workers_have_under_two_names_are_named() {
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
    let world = World::new(&devices);
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
}

#[test]
fn devices_that_are_not_there_are_named_and_unknown_is_not_absent() {
    let mut world = World::new(&[]);
    let problems = |world: &World, device: &str| {
        let worker = WORKER.replace("cpu:0", device);
        world.problems(&world.fleet(ENGINE, "", &worker))
    };
    let both = "[blocks render and start of w]";
    for (device, part) in [
        ("cpu:1-2", "cpu:1-2 names cores that are not online: 2"),
        ("numa:7", "no device numa:7 on this host"),
    ] {
        let said = problems(&world, device);
        let [said] = said.as_slice() else {
            panic!("{device}: {said:?}");
        };
        assert!(said.starts_with(part) && said.ends_with(both), "{said}");
    }
    let card = "nvidia:GPU-00000000-1111-2222-3333-444444444444";
    assert!(problems(&world, card)[0].starts_with(&format!("no device {card} on this host")));
    world.inventory.reports.push(SourceReport {
        source: "nvml",
        raw: None,
        outcome: Observation::unknown("it said no"),
    });
    let said = format!("can't tell whether this host has {card}: nvml: it said no {both}");
    assert_eq!(problems(&world, card), [said]);
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
