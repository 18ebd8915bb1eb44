//! Records of stopping: what is written is read back, and nothing else is taken.

use crate::identity::{BootId, ProcessKey, RunId};
use crate::records::*;

fn key(pid: u32) -> ProcessKey {
    ProcessKey {
        boot: BootId::new([1; 16]),
        pid_namespace: 4_026_531_836,
        pid,
        start_ticks: 77,
    }
}

fn at(steady_ns: u64) -> Timestamp {
    Timestamp {
        boot: BootId::new([1; 16]),
        steady_ns,
        wall_ns: 1_780_000_000_000_000_000,
    }
}

fn member(pid: u32) -> StopMember {
    StopMember {
        key: key(pid),
        name: "llama-server".to_owned(),
    }
}

fn stop() -> Stop {
    Stop {
        run: RunId::new([2; 16]),
        begun: at(5),
        controller: key(9),
        members: vec![member(10), member(11)],
        devices: vec![StopDevice {
            id: "nvidia:GPU-1".to_owned(),
            used_bytes: Some(7),
            ours_bytes: None,
        }],
        private_bytes: Some(3),
        steps: Step::ALL.map(|step| StopStep { step, at: at(6) }).to_vec(),
    }
}

fn released(port: ReleasedPort, memory: ReleasedMemory) -> Released {
    let ended = |(pid, after)| EndedProcess {
        member: member(pid),
        after,
    };
    Released {
        run: RunId::new([2; 16]),
        at: at(9),
        controller: key(9),
        ended: vec![ended((10, None)), ended((11, Some(Step::Kill)))],
        port,
        devices: vec![ReleasedDevice {
            id: "nvidia:GPU-1".to_owned(),
            memory,
        }],
        private_bytes: None,
        available_bytes: Some(1),
    }
}

#[test]
fn what_is_written_is_read_back() {
    assert_eq!(Stop::parse(&stop().render()), Ok(stop()));
    let ports = [
        ReleasedPort::Free,
        ReleasedPort::Taken {
            by: "pid 5 (nc)".to_owned(),
        },
        ReleasedPort::Unknown {
            why: "hidden".to_owned(),
        },
    ];
    let bytes = (4, 5);
    let memories = [
        ReleasedMemory::Returned {
            target_bytes: bytes.0,
            used_bytes: bytes.1,
        },
        ReleasedMemory::Held {
            target_bytes: bytes.0,
            used_bytes: bytes.1,
        },
        ReleasedMemory::WithProcesses,
        ReleasedMemory::Unknown {
            why: "no driver".to_owned(),
        },
    ];
    for port in &ports {
        for memory in &memories {
            let record = released(port.clone(), memory.clone());
            assert_eq!(Released::parse(&record.render()), Ok(record));
        }
    }
}

#[test]
fn each_wrong_field_is_named() {
    let text = String::from_utf8(stop().render()).expect("because it is JSON");
    let wrong = [
        (
            "\"step\":\"kill\"",
            "\"step\":\"kil\"",
            "steps[2].step: expected interrupt,",
        ),
        (
            "\"private_bytes\":3",
            "\"private_bytes\":-3",
            "private_bytes: expected",
        ),
        ("\"private_bytes\":3,", "", "private_bytes: absent"),
        ("worker-stop/1", "worker-stop/2", "schema: expected"),
        (
            "\"used_bytes\":7",
            "\"used_bytes\":7,\"x\":1",
            "devices[0].x: unknown field",
        ),
    ];
    for (old, new, said) in wrong {
        assert!(text.contains(old), "{old}");
        let error = Stop::parse(text.replacen(old, new, 1).as_bytes()).expect_err(said);
        assert!(error.to_string().starts_with(said), "{error}");
    }
    let record = released(ReleasedPort::Free, ReleasedMemory::WithProcesses);
    let text = String::from_utf8(record.render()).expect("because it is JSON");
    let wrong = [
        (
            "\"state\":\"free\"",
            "\"state\":\"open\"",
            "port.state: expected free,",
        ),
        (
            "with_processes",
            "gone",
            "devices[0].memory: expected returned,",
        ),
        (
            "\"after\":\"kill\"",
            "\"after\":\"KILL\"",
            "ended[1].after: expected interrupt,",
        ),
        ("\"after\":null,", "", "ended[0].after: absent"),
    ];
    for (old, new, said) in wrong {
        assert!(text.contains(old), "{old}");
        let error = Released::parse(text.replacen(old, new, 1).as_bytes()).expect_err(said);
        assert!(error.to_string().starts_with(said), "{error}");
    }
}
