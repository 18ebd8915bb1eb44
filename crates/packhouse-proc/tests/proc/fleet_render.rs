//! What is rendered of workers, which bash gives back byte for byte.

use crate::cards::card;
use crate::fleet_world::{CARD, ENGINE, WORKER, World};
use packhouse_proc::cores::CpuSet;
use packhouse_proc::devices::{Observation, Vendor};
use packhouse_proc::render::{Rendered, quoted};
use proptest::prelude::*;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::Command;

#[test]
fn a_worker_gets_its_masks_its_list_and_nothing_else() {
    let other = card(
        Vendor::Nvidia,
        1,
        Some("GPU-00000000-1111-2222-3333-444444444444"),
    );
    let mut world = World::new(&[card(Vendor::Nvidia, 0, Some(CARD)), other]);
    let pairs = [
        ("HOME", "/h"),
        ("LANG", ""),
        ("LANG", "second"),
        ("SECRET", "s"),
        ("CUDA_VISIBLE_DEVICES", "1"),
    ];
    world.environment = pairs
        .map(|(name, value)| (name.into(), value.into()))
        .to_vec();
    let common = "inherit = [\"HOME\", \"LANG\", \"UNSET\"]\nthreads = 6\n\
        environment = { HOME = \"/{name}\", T = \"{threads} {device} {cores}\", \
        P = \"{{{port}}}\" }";
    let workers = format!(
        "[[worker]]\nname = \"w\"\ndevice = [\"nvidia:{CARD}\", \"cpu:1\", \
        \"cpu:0\"]\nport = 8081\n"
    );
    let engine = format!("{ENGINE}\npacks = true\nworking_folder = \"<tmp>\"");
    let fleet = world.fleet(&engine, common, &workers);
    let rendered = world.render(&fleet.workers[0]).unwrap();
    let server = world.path("bin/server");
    let words = [
        "/opt/packhouse",
        "run",
        "--",
        server.to_str().unwrap(),
        "127.0.0.1",
        "8081",
    ];
    assert_eq!(rendered.command, words.map(OsString::from));
    assert_eq!(
        rendered.cores.as_ref().map(ToString::to_string).as_deref(),
        Some("0-1")
    );
    assert_eq!(rendered.working_folder, world.folder.path());
    let environment: Vec<String> = rendered
        .environment
        .iter()
        .map(|(name, value)| format!("{}={}", name.display(), value.display()))
        .collect();
    let cuda = format!("CUDA_VISIBLE_DEVICES={CARD}");
    let t = format!("T=6 nvidia:{CARD},cpu:1,cpu:0 0-1");
    assert_eq!(
        environment,
        [
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            cuda.as_str(),
            "GGML_VK_VISIBLE_DEVICES=",
            "HIP_VISIBLE_DEVICES=-1",
            "HOME=/w",
            "LANG=",
            "ONEAPI_DEVICE_SELECTOR=*:cpu",
            "P={8081}",
            "ROCR_VISIBLE_DEVICES=",
            t.as_str(),
        ]
    );
}

/// A mask that only the host can judge is judged there.
#[test]
fn a_mask_that_shows_another_card_is_refused_when_rendered() {
    let own = card(Vendor::Nvidia, 0, Some(CARD));
    let other = card(
        Vendor::Nvidia,
        1,
        Some("GPU-00000000-1111-2222-3333-444444444444"),
    );
    let world = World::new(&[own, other]);
    let problem = |mask: &str| {
        let worker = format!(
            "[[worker]]\nname = \"w\"\ndevice = \"pci:0000:10:00.0\"\nport = 8081\n\
             environment = {{ CUDA_VISIBLE_DEVICES = \"{mask}\" }}\n"
        );
        world.problems(&world.fleet(ENGINE, "", &worker))
    };
    assert_eq!(problem(CARD), [""; 0]);
    assert_eq!(
        problem("0"),
        [""; 0],
        "the order is fixed, so this is the card"
    );
    for wrong in [
        "1",
        "0,1",
        "",
        "GPU-00000000-1111-2222-3333-444444444444",
        "{port}",
    ] {
        let said = problem(wrong);
        let [said] = said.as_slice() else {
            panic!("{wrong}: {said:?}");
        };
        assert!(
            said.starts_with("environment.CUDA_VISIBLE_DEVICES = "),
            "{said}"
        );
        assert!(said.contains("contradicts the worker's devices"), "{said}");
        assert!(said.ends_with("[blocks render and start of w]"), "{said}");
    }
}

/// Bash executes the text: `cat` prints its own command line and environment, and taskset's work
/// shows in its status.
#[test]
fn bash_gives_back_what_was_rendered() {
    let allowed = allowed_cores();
    let first = allowed.iter().next().expect("because a core runs this");
    let mut world = World::new(&[]);
    world.inventory.online = Observation::Known(allowed);
    let nasty = [
        "a b",
        "it's",
        "$(x) `y`",
        "back\\slash",
        "\"q\"",
        "new\nline",
        "tab\t1",
        "\u{1b}[31m7",
        "",
        "*",
        "~",
        "-n",
        "!x",
        "#no",
        "gr\u{fc}n \u{202e}x",
    ];
    let args: Vec<String> = nasty.iter().map(|text| literal(text)).collect();
    let set = nasty.iter().enumerate();
    let set: Vec<String> = set
        .map(|(at, text)| format!("V{at} = {}", literal(text)))
        .collect();
    let proc = "\"/proc/self/cmdline\", \"/proc/self/environ\", \"/proc/self/status\"";
    let engine = format!("command = [\"/bin/cat\", {proc}, \"--\", \"{{host}}{{port}}\"]");
    let common = format!(
        "args = [{}]\nenvironment = {{ {} }}\ninherit = [\"RAW\"]",
        args.join(", "),
        set.join(", ")
    );
    world.environment = vec![(
        "RAW".into(),
        OsString::from_vec(b"\xff'\x01\x80\n1".to_vec()),
    )];
    let worker = WORKER.replace("cpu:0", &format!("cpu:{first}"));
    let fleet = world.fleet(&engine, &common, &worker);
    let rendered = world.render(&fleet.workers[0]).unwrap();
    let text = rendered.to_string();
    assert!(
        !text.contains('\u{1b}') && !text.contains('\u{202e}'),
        "a terminal is safe"
    );
    let output = Command::new("bash")
        .arg("-c")
        .arg(&text)
        .env("NOT_INHERITED", "x")
        .output()
        .unwrap();
    let expected = framed(&rendered);
    let (said, status) = output
        .stdout
        .split_at(expected.len().min(output.stdout.len()));
    assert_eq!(OsStr::from_bytes(said), OsStr::from_bytes(&expected));
    let status = String::from_utf8_lossy(status);
    assert!(status.starts_with("Name:\tcat\n"), "{status}");
    assert!(
        status.contains(&format!("Cpus_allowed_list:\t{first}\n")),
        "{status}"
    );
}

/// The cores that this very process may run on.
fn allowed_cores() -> CpuSet {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    CpuSet::parse(list.unwrap().trim()).unwrap()
}

/// A text in TOML.
fn literal(text: &str) -> String {
    let escaped = text.chars().map(|letter| match letter {
        '"' | '\\' => format!("\\{letter}"),
        letter if letter.is_control() => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    });
    format!("\"{}\"", escaped.collect::<String>())
}

/// Command line and environment as the kernel shows them.
fn framed(rendered: &Rendered) -> Vec<u8> {
    let (mut bytes, zero) = (Vec::new(), b"\0".as_slice());
    for word in &rendered.command {
        bytes.extend([word.as_bytes(), zero].concat());
    }
    for (name, value) in &rendered.environment {
        bytes.extend([name.as_bytes(), b"=", value.as_bytes(), zero].concat());
    }
    bytes
}

#[test]
fn words_are_quoted_only_where_they_must_be() {
    for (word, expected) in [
        (b"/opt/llama-server".as_slice(), "/opt/llama-server"),
        (b"--port=8081", "'--port=8081'"),
        (b"", "''"),
        (b"a b", "'a b'"),
        (b"it's", "'it'\\''s'"),
        (b"a\n1", "$'a\\0121'"),
        (b"\xff\\'", "$'\\377\\\\\\''"),
    ] {
        assert_eq!(quoted(OsStr::from_bytes(word)), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// Bash prints the very bytes of any words.
    #[test]
    fn bash_reads_any_words(words in prop::collection::vec(
        prop::collection::vec(1_u8.., 0..24), 1..8,
    )) {
        let quoted: Vec<String> = words
            .iter()
            .map(|word| quoted(OsStr::from_bytes(word)))
            .collect();
        let line = format!("printf '%s\\0' {}", quoted.join(" "));
        let output = Command::new("bash").arg("-c").arg(line).output().unwrap();
        let mut expected = Vec::new();
        for word in &words {
            expected.extend_from_slice(word);
            expected.push(0);
        }
        prop_assert_eq!(output.stdout, expected);
    }
}
