//! Each proof and each doubt, on trees of process files: what no test can make real is here.

use super::*;
use crate::procfs::tree::{BOOT, Fake, OBSERVER_PID, PID_NAMESPACE, Tree};
use std::path::Path;

const RUN: &str = "00112233445566778899aabbccddeeff";
const UNIT: &str = "/user.slice/packhouse.slice/w0-00112233445566778899aabbccddeeff.service";
const KEEPER: u32 = 2000;
const MAIN: u32 = 2001;
/// When the start was ordered.
const ORDERED: u64 = 9000;

fn key(pid: u32, start_ticks: u64) -> ProcessKey {
    ProcessKey {
        boot: BOOT.parse().expect("because it is an id"),
        pid_namespace: PID_NAMESPACE,
        pid,
        start_ticks,
    }
}

fn ownership() -> Ownership {
    Ownership {
        boot: BOOT.parse().expect("because it is an id"),
        pid_namespace: PID_NAMESPACE,
        main: Some(key(MAIN, 9002)),
        keeper: Some(key(KEEPER, 9001)),
        run: RUN.parse().expect("because it is an id"),
        session: Some(2001),
        cgroup: Some(UNIT.into()),
        started_after_ticks: ORDERED,
    }
}

fn keeper() -> Fake {
    Fake {
        name: b"packhouse".to_vec(),
        environment: format!("{KEEPER_VARIABLE}=/run\0").into_bytes(),
        ..Fake::new(KEEPER, 9001)
    }
}

fn main_process() -> Fake {
    Fake {
        name: b"main".to_vec(),
        parent: KEEPER,
        environment: environment(RUN),
        ..Fake::new(MAIN, 9002)
    }
}

/// A process without any proof.
fn other(pid: u32) -> Fake {
    Fake::new(pid, 9500)
}

fn look_at(tree: &Tree, ownership: &Ownership) -> Members {
    let procfs = Procfs::new(tree.root()).expect("because the tree is whole");
    members(&procfs, ownership).expect("because the tree can be read")
}

fn ours(tree: &Tree) -> Vec<(u32, Proof)> {
    let found = look_at(tree, &ownership()).ours;
    found.iter().map(|one| (one.key.pid, one.proof)).collect()
}

fn unproven(tree: &Tree) -> Vec<(u32, Doubt)> {
    let found = look_at(tree, &ownership()).unproven;
    found.iter().map(|one| (one.key.pid, one.why)).collect()
}

fn environment(run: &str) -> Vec<u8> {
    format!("A=1\0{RUN_ID_VARIABLE}={run}\0").into_bytes()
}

#[test]
fn each_proof_alone_makes_a_process_ours() {
    let tree = Tree::new();
    tree.put(&keeper());
    tree.put(&main_process());
    tree.put(&Fake {
        environment: environment(RUN),
        ..other(3000)
    });
    tree.put(&Fake {
        parent: MAIN,
        ..other(3001)
    });
    // A generation later, and with a smaller pid than its parent.
    tree.put(&Fake {
        parent: 3001,
        ..other(1500)
    });
    // Adopted by the keeper.
    tree.put(&Fake {
        parent: KEEPER,
        ..other(3002)
    });
    tree.put(&Fake {
        session: 2001,
        ..other(3003)
    });
    tree.put(&Fake {
        cgroup: "0::/user.slice/packhouse.slice/\
                 w0-00112233445566778899aabbccddeeff.service/inner\n",
        ..other(3004)
    });
    tree.put(&other(3005));
    assert_eq!(
        ours(&tree),
        [
            (1500, Proof::Descent),
            (MAIN, Proof::Recorded),
            (3000, Proof::Environment),
            (3001, Proof::Descent),
            (3002, Proof::Descent),
            (3003, Proof::Session),
            (3004, Proof::ControlGroup),
        ]
    );
    let found = look_at(&tree, &ownership());
    assert_eq!(found.keeper.map(|keeper| keeper.key.pid), Some(KEEPER));
    assert_eq!(found.unproven, []);
}

#[test]
fn what_only_looks_like_ours_is_nobodys() {
    let tree = Tree::new();
    tree.put(&keeper());
    tree.put(&main_process());
    for (pid, fake) in [
        // Another start's id, ours cut, ours with more behind it, ours under another name.
        (3000, environment("00112233445566778899aabbccddeefe")),
        (3001, environment(&RUN[..31])),
        (3002, environment(&format!("{RUN}0"))),
        (3003, format!("X{RUN_ID_VARIABLE}={RUN}\0").into_bytes()),
        (3004, format!("A={RUN_ID_VARIABLE}={RUN}\0").into_bytes()),
        (3005, environment(&RUN.to_uppercase())),
    ] {
        tree.put(&Fake {
            environment: fake,
            ..other(pid)
        });
    }
    // Another worker's keeper and worker, which this worker started.
    tree.put(&Fake {
        environment: environment("ffffffffffffffffffffffffffffffff"),
        parent: MAIN,
        session: 2001,
        ..other(3010)
    });
    tree.put(&Fake {
        environment: environment("ffffffffffffffffffffffffffffffff"),
        parent: 3010,
        ..other(3011)
    });
    // The same before it has a worker; its environment says nothing else.
    tree.put(&Fake {
        environment: format!("{KEEPER_VARIABLE}=/run\0").into_bytes(),
        parent: KEEPER,
        ..other(3012)
    });
    // The same name, command and user, and a neighbour's control group.
    tree.put(&Fake {
        cgroup: "0::/user.slice/packhouse.slice/w0-00112233445566778899aabbccddeeff.service-2\n",
        name: b"main".to_vec(),
        ..other(3006)
    });
    // Older than the order, whatever it claims.
    tree.put(&Fake {
        environment: environment(RUN),
        parent: MAIN,
        session: 2001,
        cgroup: "0::/user.slice/packhouse.slice/w0-00112233445566778899aabbccddeeff.service\n",
        ..Fake::new(3007, ORDERED - 1)
    });
    // Threads of the kernel have no environment, and whatever parent.
    tree.put(&Fake {
        flags: 0x0020_0000,
        session: 2001,
        ..other(3008)
    });
    assert_eq!(ours(&tree), [(MAIN, Proof::Recorded)]);
    assert_eq!(unproven(&tree), []);
}

#[test]
fn whoever_looks_is_never_of_the_group() {
    let tree = Tree::new();
    tree.put(&keeper());
    tree.put(&main_process());
    tree.write(&format!("{OBSERVER_PID}/environ"), environment(RUN));
    let mut ownership = ownership();
    ownership.started_after_ticks = 0;
    let pids =
        |found: Members| -> Vec<u32> { found.ours.iter().map(|member| member.key.pid).collect() };
    assert_eq!(pids(look_at(&tree, &ownership)), [MAIN]);
    // The keeper itself asks who is left.
    ownership.keeper = Some(key(OBSERVER_PID, 500));
    tree.put(&Fake {
        parent: OBSERVER_PID,
        ..other(3000)
    });
    let found = look_at(&tree, &ownership);
    assert_eq!(found.keeper, None);
    assert_eq!(pids(found), [MAIN, 3000]);
}

#[test]
fn a_session_proves_nothing_once_its_leader_is_gone() {
    let tree = Tree::new();
    let follower = Fake {
        session: 2001,
        ..other(3000)
    };
    tree.put(&keeper());
    tree.put(&follower);
    // Ended, and not waited for: the number can't have been given again.
    tree.put(&Fake {
        state: 'Z',
        ..main_process()
    });
    assert_eq!(ours(&tree), [(3000, Proof::Session)]);
    tree.end(MAIN);
    assert_eq!(ours(&tree), []);
    assert_eq!(unproven(&tree), [(3000, Doubt::SessionNumber)]);
    // With a proof of its own it is ours, and so is what it started.
    tree.put(&Fake {
        environment: environment(RUN),
        session: 2001,
        ..other(3000)
    });
    tree.put(&Fake {
        parent: 3000,
        ..other(3001)
    });
    assert_eq!(
        ours(&tree),
        [(3000, Proof::Environment), (3001, Proof::Descent)]
    );
    assert_eq!(unproven(&tree), []);
}

#[test]
fn who_has_a_recorded_pid_by_now_is_told_and_not_taken() {
    let tree = Tree::new();
    tree.put(&Fake {
        name: b"stranger".to_vec(),
        ..Fake::new(MAIN, 9900)
    });
    tree.put(&Fake::new(KEEPER, 9901));
    // The stranger's own children, in the stranger's session.
    tree.put(&Fake {
        parent: MAIN,
        session: 2001,
        ..Fake::new(3000, 9902)
    });
    tree.put(&Fake {
        parent: KEEPER,
        ..Fake::new(3001, 9903)
    });
    assert_eq!(ours(&tree), []);
    assert_eq!(
        unproven(&tree),
        [(KEEPER, Doubt::KeeperPid), (MAIN, Doubt::MainPid)]
    );
    assert_eq!(look_at(&tree, &ownership()).keeper, None);
}

#[test]
fn a_child_is_one_only_while_its_parent_is_the_one_that_was_proven() {
    let tree = Tree::new();
    tree.put(&main_process());
    let child = Fake {
        parent: MAIN,
        ..other(3000)
    };
    tree.put(&child);
    let procfs = Procfs::new(tree.root()).expect("because the tree is whole");
    let read = |pid: u32| {
        let found = procfs.process(pid).expect("because it can be read");
        found.expect("because it is there")
    };
    let (seen, parent) = (read(3000), read(MAIN));
    let run = ownership().run;
    let is_one = || is_child(&procfs, &seen, &parent, &run);
    assert_eq!(is_one(), Ok(true));
    // Each has changed since it was seen, while the pids and the parenthood hold.
    tree.put(&Fake::new(MAIN, 9600));
    assert_eq!(is_one(), Ok(false));
    tree.put(&main_process());
    tree.put(&Fake {
        parent: MAIN,
        ..Fake::new(3000, 9600)
    });
    assert_eq!(is_one(), Ok(false));
    tree.put(&other(3000));
    assert_eq!(is_one(), Ok(false));
    tree.put(&child);
    assert_eq!(is_one(), Ok(true));
    tree.end(MAIN);
    assert_eq!(is_one(), Ok(false));
}

#[test]
fn before_anything_is_recorded_the_run_id_alone_counts() {
    let tree = Tree::new();
    tree.put(&Fake {
        environment: environment(RUN),
        ..keeper()
    });
    tree.put(&Fake {
        environment: b"PATH=/bin\0".to_vec(),
        ..main_process()
    });
    tree.put(&other(3000));
    let ownership = Ownership {
        main: None,
        keeper: None,
        session: None,
        cgroup: None,
        ..ownership()
    };
    let found = look_at(&tree, &ownership);
    let proofs: Vec<Proof> = found.ours.iter().map(|member| member.proof).collect();
    assert_eq!(proofs, [Proof::Environment, Proof::Descent]);
    assert_eq!(found.unproven, []);
}

#[test]
fn a_stray_names_a_run_of_no_record_and_is_of_the_workers_folder_or_port() {
    use strays::strays;
    let tree = Tree::new();
    let folder = Path::new("/state/fleets/home/w0");
    let put = |pid: u32, run: &str, target: &str| {
        tree.put(&Fake {
            environment: environment(run),
            files: vec![(1, target.to_owned())],
            ..other(pid)
        });
    };
    let gone = "ffffffffffffffffffffffffffffffff";
    let log = "/state/fleets/home/w0/runs/000001/server.log (deleted)";
    put(3000, gone, log);
    // Known; of another worker; without a run; on the port.
    put(3001, RUN, log);
    put(3002, gone, "/state/fleets/home/w01/runs/000001/server.log");
    put(3003, "no id", log);
    put(3004, gone, "/dev/null");
    let procfs = Procfs::new(tree.root()).expect("because the tree is whole");
    let known = BTreeSet::from([ownership().run]);
    let on_port = BTreeSet::from([key(3004, 9500), key(3001, 9500)]);
    let found = strays(&procfs, folder, &known, &on_port).expect("because it can be read");
    let pids: Vec<u32> = found.iter().map(|stray| stray.key.pid).collect();
    assert_eq!(pids, [3000, 3004]);
    assert_eq!(found[0].run.to_string(), gone);
}

#[test]
fn an_earlier_boot_left_nobody_and_another_namespace_is_an_error() {
    let tree = Tree::new();
    // By pid, session and start time these are the processes of the record.
    tree.put(&keeper());
    tree.put(&main_process());
    let earlier = Ownership {
        boot: BootId::new([1; 16]),
        ..ownership()
    };
    assert_eq!(look_at(&tree, &earlier), Members::default());
    let elsewhere = Ownership {
        pid_namespace: 5,
        ..ownership()
    };
    let procfs = Procfs::new(tree.root()).expect("because the tree is whole");
    let error = members(&procfs, &elsewhere).expect_err("because pids differ there");
    assert_eq!(
        error.to_string(),
        "of pid namespace 5, and this process is of 4026531836"
    );
}

type Put = fn(Fake) -> Fake;
type Case = (&'static str, &'static [Put], Result<Proof, Doubt>);

const TITLED: Put = |fake| Fake {
    environment: b"engine: serving\0\0\0\0".to_vec(),
    ..fake
};
const ORPHAN: Put = |fake| Fake { parent: 1, ..fake };
const PLAIN: Put = |fake| Fake {
    environment: b"PATH=/bin\0".to_vec(),
    ..fake
};
const CASES: [Case; 9] = [
    ("as it was started", &[], Ok(Proof::Recorded)),
    ("its keeper is gone", &[ORPHAN], Ok(Proof::Recorded)),
    (
        "it wrote a title over it",
        &[TITLED, ORPHAN],
        Ok(Proof::Recorded),
    ),
    (
        "in the middle of an exec",
        &[ORPHAN, |fake| Fake {
            environment: Vec::new(),
            command: Vec::new(),
            ..fake
        }],
        Ok(Proof::Recorded),
    ),
    ("started through env -i", &[PLAIN], Ok(Proof::Descent)),
    ("a stranger", &[PLAIN, ORPHAN], Err(Doubt::NoRunId)),
    (
        "in the unit",
        &[PLAIN, ORPHAN, |fake| Fake {
            cgroup: "0::/user.slice/packhouse.slice/\
                         w0-00112233445566778899aabbccddeeff.service\n",
            ..fake
        }],
        Ok(Proof::ControlGroup),
    ),
    (
        "another worker",
        &[|fake| Fake {
            environment: environment("ffffffffffffffffffffffffffffffff"),
            ..fake
        }],
        Err(Doubt::AnotherRun),
    ),
    (
        "no leader, as of a shell's job",
        &[PLAIN, ORPHAN, |fake| Fake {
            session: 1500,
            ..fake
        }],
        Err(Doubt::OtherSession),
    ),
];

/// A record that was copied, put back or changed by hand names whoever has that key.
#[test]
fn a_recorded_engine_is_taken_only_where_nothing_speaks_against_it() {
    for (case, puts, expected) in CASES {
        let tree = Tree::new();
        tree.put(&keeper());
        let main = puts.iter().fold(main_process(), |fake, put| put(fake));
        tree.put(&main);
        // It is in the session of whoever has the record's key.
        tree.put(&Fake {
            session: 2001,
            ..other(3000)
        });
        match expected {
            Ok(proof) => {
                assert_eq!(
                    ours(&tree),
                    [(MAIN, proof), (3000, Proof::Session)],
                    "{case}"
                );
                assert_eq!(unproven(&tree), [], "{case}");
            }
            Err(doubt) => {
                assert_eq!(ours(&tree), [], "{case}");
                assert_eq!(unproven(&tree), [(MAIN, doubt)], "{case}");
            }
        }
    }
}

#[test]
fn a_recorded_process_from_before_the_order_is_not_of_the_run() {
    let tree = Tree::new();
    tree.put(&Fake {
        environment: environment(RUN),
        ..Fake::new(MAIN, ORDERED - 1)
    });
    tree.put(&Fake {
        environment: format!("{KEEPER_VARIABLE}=/run\0").into_bytes(),
        ..Fake::new(KEEPER, ORDERED - 1)
    });
    let ownership = Ownership {
        main: Some(key(MAIN, ORDERED - 1)),
        keeper: Some(key(KEEPER, ORDERED - 1)),
        ..ownership()
    };
    let found = look_at(&tree, &ownership);
    assert_eq!((found.keeper, found.ours), (None, Vec::new()));
    let doubts: Vec<Doubt> = found.unproven.iter().map(|one| one.why).collect();
    assert_eq!(doubts, [Doubt::Older, Doubt::Older]);
}

#[test]
fn a_recorded_keeper_that_is_none_vouches_for_nobody() {
    let tree = Tree::new();
    let shell = Fake {
        environment: b"PATH=/bin\0".to_vec(),
        ..keeper()
    };
    tree.put(&shell);
    tree.put(&Fake {
        parent: KEEPER,
        ..other(3000)
    });
    assert_eq!(ours(&tree), []);
    assert_eq!(unproven(&tree), [(KEEPER, Doubt::NotAKeeper)]);
    // A user manager gives it an environment that names nothing: then its engine speaks for it.
    tree.put(&main_process());
    assert_eq!(
        ours(&tree),
        [(MAIN, Proof::Recorded), (3000, Proof::Descent)]
    );
    assert_eq!(unproven(&tree), []);
}

/// Many processes share the control group of a login.
#[test]
fn a_recorded_control_group_counts_only_under_the_name_of_the_run() {
    let tree = Tree::new();
    tree.put(&keeper());
    tree.put(&main_process());
    tree.put(&other(3000));
    let ownership = Ownership {
        cgroup: Some("/user.slice".into()),
        ..ownership()
    };
    let found = look_at(&tree, &ownership).ours;
    let pids: Vec<u32> = found.iter().map(|member| member.key.pid).collect();
    assert_eq!(pids, [MAIN]);
}
