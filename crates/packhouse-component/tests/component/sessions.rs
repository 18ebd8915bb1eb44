//! Sessions: this crate's own serving side in memory, and real processes that do not keep to the
//! protocol. What programs can lie about in their answers is in the CLI's tests.

use crate::samples::{INPUT, boundaries, elements};
use packhouse_base::digest::Digest;
use packhouse_component::check::check;
use packhouse_component::drive::{Ask, DriveError, Limits, Outcome, Program, Untapped};
use packhouse_component::exchange::Exchange;
use packhouse_component::frame::{Frames, encode};
use packhouse_component::message::{
    Capture, CaseOrder, Greeting, InputFile, Offer, PROTOCOL, Reply, Request, Wanted, Witness,
};
use packhouse_component::serve::{Card, Component, Ran, ServeError, serve};
use packhouse_component::{Dtype, Fault};
use packhouse_sys::child::Order;
use packhouse_sys::fs::{Dir, Fs as _};
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Gives the samples' elements, or declines odd repeats, or makes a boundary too short.
struct Sample {
    cut: usize,
    /// How often it was run.
    runs: u64,
}

impl Component for Sample {
    fn card(&self) -> Card {
        Card {
            name: "sample".to_owned(),
            version: "1".to_owned(),
            kernels: vec![Offer {
                fixture: "sample-v1".to_owned(),
                arms: vec!["plain".to_owned()],
                widths: vec![3],
            }],
            devices: vec!["cpu".to_owned()],
            says_capture: false,
            denies: vec!["network".to_owned()],
        }
    }

    fn run(
        &mut self,
        order: &CaseOrder,
        inputs: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Ran, String> {
        assert_eq!(inputs["weights"], INPUT);
        self.runs += 1;
        if order.repeat % 2 == 1 {
            return Err(format!("repeat {} is odd", order.repeat));
        }
        let output = |wanted: &Wanted| {
            let mut bytes = elements(&wanted.name, wanted.form.bytes);
            bytes.truncate(bytes.len() - self.cut);
            (wanted.name.clone(), bytes)
        };
        Ok(Ran {
            outputs: order.boundaries.iter().map(output).collect(),
            witnesses: vec![Witness {
                path: "sample".to_owned(),
                counters: BTreeMap::from([("runs".to_owned(), self.runs)]),
            }],
            capture: Capture::Unknown,
            warnings: Vec::new(),
        })
    }
}

fn exchange(folder: &Path) -> Exchange {
    let path = folder.canonicalize().expect("because it is there");
    let open = |dir: Dir, name: &std::ffi::OsStr| dir.open_dir(name).expect("because it is there");
    let root = RealFs.root().expect("because / is there");
    let dir = path.iter().skip(1).fold(root, open);
    Exchange::make(&RealFs, dir).expect("because there is room")
}

fn case(exchange: &mut Exchange, repeat: u64) -> CaseOrder {
    let (file, sha256) = exchange.put(INPUT).expect("because there is room");
    let wanted = boundaries().into_iter().map(|boundary| Wanted {
        file: format!("case-{repeat}-{}.bin", boundary.name),
        form: boundary.form(3).expect("because it is small"),
        name: boundary.name,
        storage: boundary.storage,
    });
    let input = InputFile {
        file,
        dtype: Dtype::U8,
        shape: vec![12],
        bytes: 12,
        sha256,
    };
    CaseOrder {
        index: repeat,
        fixture: "sample-v1".to_owned(),
        layout: None,
        device: "cpu".to_owned(),
        arm: "plain".to_owned(),
        width: 3,
        repeat,
        parameters: BTreeMap::new(),
        inputs: BTreeMap::from([("weights".to_owned(), input)]),
        boundaries: wanted.collect(),
        poison: None,
        cycles: None,
    }
}

fn greeting(exchange: &Exchange) -> Request {
    let path = |path: Option<&str>| path.expect("because it is UTF-8").to_owned();
    Request::Hello(Greeting {
        protocol: PROTOCOL.to_owned(),
        challenge: Digest::of(b"challenge"),
        inputs: path(exchange.inputs_path()),
        outputs: path(exchange.outputs_path()),
    })
}

/// What the serving side says to these requests.
fn served(requests: &[Request], cut: usize) -> (Result<(), ServeError>, Vec<Reply>) {
    let frame = |request: &Request| encode(&request.render()).expect("because it is short");
    let input: Vec<u8> = requests.iter().flat_map(frame).collect();
    let mut output = Vec::new();
    let result = serve(
        &RealFs,
        &mut &input[..],
        &mut output,
        &mut Sample { cut, runs: 0 },
    );
    let mut frames = Frames::default();
    frames.push(&output);
    let mut replies = Vec::new();
    while let Some(message) = frames.next_message().expect("because it is one of ours") {
        replies.push(Reply::parse(&message).expect("because it is one of ours"));
    }
    (result, replies)
}

#[test]
fn the_serving_side_lays_outputs_in_their_storage_and_its_answers_have_no_fault() {
    let folder = tempfile::tempdir().expect("because there is room");
    let mut exchange = exchange(folder.path());
    let orders = [case(&mut exchange, 0), case(&mut exchange, 1)];
    let requests = [
        greeting(&exchange),
        Request::Case(orders[0].clone()),
        Request::Case(orders[1].clone()),
        Request::Bye,
    ];
    let (result, replies) = served(&requests, 0);
    assert!(result.is_ok(), "{result:?}");
    let [
        Reply::Hello(hello),
        Reply::Answer(answer),
        Reply::Declined(declined),
    ] = &replies[..]
    else {
        panic!("{replies:?}");
    };
    assert_eq!(hello.challenge, Digest::of(b"challenge"));
    assert_eq!(
        (declined.index, declined.reason.as_str()),
        (1, "repeat 1 is odd")
    );
    let seen = exchange.take(&orders[0]).expect("because it is ours");
    let checked = check(&orders[0], hello, answer.clone(), seen).expect("because it is good");
    assert_eq!(checked.verified()[3].bytes(), elements("output", 60));
    assert!(exchange.outputs().expect("because it is ours").is_empty());
    // What is in use stays when another begins; everything goes with it.
    let other = self::exchange(folder.path());
    assert!(exchange.outputs().is_ok() && other.outputs().is_ok());
    drop(other);
    drop(exchange);
    assert_eq!(
        std::fs::read_dir(folder.path())
            .expect("because it is there")
            .count(),
        0
    );
}

/// Each cycle is a run, the storages are poisoned before the first, and the time is of the runs.
#[test]
fn the_serving_side_poisons_times_and_denies() {
    let folder = tempfile::tempdir().expect("because there is room");
    let mut exchange = exchange(folder.path());
    let order = CaseOrder {
        poison: Some(90),
        cycles: Some(5),
        ..case(&mut exchange, 0)
    };
    let requests = [
        greeting(&exchange),
        Request::Case(order.clone()),
        Request::Bye,
    ];
    let (result, replies) = served(&requests, 0);
    assert!(result.is_ok(), "{result:?}");
    let [Reply::Hello(hello), Reply::Answer(answer)] = &replies[..] else {
        panic!("{replies:?}");
    };
    assert!(hello.times && hello.poisons);
    assert_eq!(hello.denies, ["network"]);
    let timed = answer.timed.expect("because it was asked for");
    assert_eq!(timed.cycles, 5);
    assert_eq!(answer.witnesses[0].counters["runs"], 5);
    let counted = answer
        .witnesses
        .iter()
        .find(|witness| witness.path == "poison");
    let counted = counted.expect("because it was poisoned").counters["bytes"];
    assert_eq!(counted, order.storage_bytes());
    let mut seen = exchange.take(&order).expect("because it is ours");
    seen.span_ns = timed.elapsed_ns;
    check(&order, hello, answer.clone(), seen).expect("because it is good");
}

#[test]
fn the_serving_side_refuses_what_is_no_session() {
    let folder = tempfile::tempdir().expect("because there is room");
    let mut exchange = exchange(folder.path());
    let order = case(&mut exchange, 0);
    let refused = |requests: &[Request], cut| {
        served(requests, cut)
            .0
            .expect_err("because it is no session")
            .to_string()
    };
    let (hello, ask) = (greeting(&exchange), Request::Case(order.clone()));
    assert_eq!(refused(&[], 0), "the driver went away without bye");
    assert_eq!(
        refused(std::slice::from_ref(&hello), 0),
        "the driver went away without bye"
    );
    let order_of = |found: &str, expected: &str| {
        format!("the driver's messages are out of order: {found}, expected {expected}")
    };
    assert_eq!(
        refused(std::slice::from_ref(&ask), 0),
        order_of("case", "hello")
    );
    assert_eq!(refused(&[Request::Bye], 0), order_of("bye", "hello"));
    let twice = refused(&[hello.clone(), hello.clone()], 0);
    assert_eq!(twice, order_of("hello", "case or bye"));
    let short = refused(&[hello.clone(), ask], 1);
    assert_eq!(short, "boundary k: made 47 bytes, the case asks for 48");
    let mut lied = order;
    let input = lied.inputs.get_mut("weights").expect("because it is there");
    input.sha256 = Digest::of(b"x");
    let error = refused(&[hello, Request::Case(lied)], 0);
    assert!(error.starts_with("input weights: SHA-256 "), "{error}");
    let Request::Hello(mut other) = greeting(&exchange) else {
        panic!("because it is a hello");
    };
    other.protocol = "packhouse/component/2".to_owned();
    let error = refused(&[Request::Hello(other)], 0);
    assert_eq!(
        error,
        "the driver speaks \"packhouse/component/2\", expected \"packhouse/component/1\""
    );
}

const SECOND_NS: u64 = 1_000_000_000;

/// What a shell script is refused for at hello.
fn script(script: &str, hello_ns: u64) -> (String, String) {
    let folder = tempfile::tempdir().expect("because there is room");
    let arguments = ["-c", script].map(OsString::from);
    let order = Order {
        program: Path::new("/bin/sh"),
        arguments: &arguments,
        environment: &[],
        folder: folder.path(),
        timeout_ns: u64::MAX,
    };
    let limits = Limits {
        hello_ns,
        case_ns: 60 * SECOND_NS,
        bye_ns: 60 * SECOND_NS,
    };
    let started = Program::start(
        &order,
        exchange(folder.path()),
        Digest::of(b"x"),
        limits,
        Box::new(Untapped),
    );
    let error = started.err().expect("because it says no hello");
    assert_eq!(
        std::fs::read_dir(folder.path())
            .expect("because it is there")
            .count(),
        0
    );
    match error {
        DriveError::Broke { ref log, pid, .. } => {
            assert!(pid > 0);
            (error.to_string(), String::from_utf8_lossy(log).into_owned())
        }
        _ => panic!("{error}"),
    }
}

/// Says hello in Python, and waits for its end.
const HELLO: &str = r#"
import json, struct, sys
hear = lambda: json.loads(sys.stdin.buffer.read(struct.unpack("<I", sys.stdin.buffer.read(4))[0]))
hello = hear()
said = {"name": "x", "version": "1", "kernels": [], "devices": ["cpu"], "says_capture": False}
body = json.dumps(dict(said, **{k: hello[k] for k in ("type", "protocol", "challenge")})).encode()
sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
sys.stdout.flush()
hear()
"#;

#[test]
fn a_file_that_is_there_before_its_case_is_a_fault_and_the_case_is_not_asked() {
    let folder = tempfile::tempdir().expect("because there is room");
    let arguments = ["-c", "exec python3 -c \"$0\"", HELLO].map(OsString::from);
    let environment = [("PATH", std::env::var_os("PATH").unwrap_or_default())];
    let environment = environment.map(|(name, value)| (OsString::from(name), value));
    let order = Order {
        program: Path::new("/bin/sh"),
        arguments: &arguments,
        environment: &environment,
        folder: folder.path(),
        timeout_ns: u64::MAX,
    };
    let limits = Limits {
        hello_ns: 60 * SECOND_NS,
        case_ns: 60 * SECOND_NS,
        bye_ns: 60 * SECOND_NS,
    };
    let exchange = exchange(folder.path());
    let outputs = exchange
        .outputs_path()
        .expect("because it is UTF-8")
        .to_owned();
    let program = Program::start(
        &order,
        exchange,
        Digest::of(b"x"),
        limits,
        Box::new(Untapped),
    );
    let program = program.expect("because it says hello");
    std::fs::write(format!("{outputs}/case-0-output.bin"), "early").expect("because it is ours");
    let (program, outcome) = program
        .ask(&Ask {
            fixture: "sample-v1",
            layout: None,
            device: "cpu",
            arm: "plain",
            width: 3,
            repeat: 0,
            parameters: &BTreeMap::new(),
            inputs: BTreeMap::new(),
            boundaries: &boundaries(),
            cycles: None,
        })
        .expect("because nothing is asked");
    let file = "case-0-output.bin".to_owned();
    assert_eq!(outcome, Outcome::Faulty(vec![Fault::FileEarly { file }]));
    // The next message that the program reads is bye.
    program.bye().expect("because it ends with code 0");
    assert_eq!(
        std::fs::read_dir(folder.path())
            .expect("because it is there")
            .count(),
        0
    );
}

#[test]
fn a_program_that_keeps_to_no_protocol_is_ended_and_says_why() {
    let minute = 60 * SECOND_NS;
    let said = script("echo no such library >&2; exit 3", minute);
    let expected = "at hello: the program ended with code 3";
    assert_eq!(said, (expected.to_owned(), "no such library\n".to_owned()));
    let killed = script("kill -SEGV $$", minute).0;
    assert_eq!(killed, "at hello: the program ended by signal 11");
    let garbage = script("read x; echo Loading model...; exec sleep 300", minute).0;
    assert!(
        garbage.ends_with("as text its length is \"Load\""),
        "{garbage}"
    );
    let no_json = script(
        "read x; printf '\\005\\000\\000\\000hello'; exec sleep 300",
        minute,
    )
    .0;
    assert_eq!(
        no_json,
        "at hello: not JSON of this protocol: expected value at line 1 column 1"
    );
    let closed = script("exec >&-; exec sleep 300", minute).0;
    assert_eq!(closed, "at hello: the program closed its stdout");
    // On a busy machine its time may be over before it has begun.
    let hung = [SECOND_NS / 4, SECOND_NS, 5 * SECOND_NS, minute]
        .into_iter()
        .map(|hello_ns| script("echo busy >&2; exec sleep 300", hello_ns))
        .inspect(|(error, _)| assert_eq!(error, "at hello: no answer in time"))
        .find(|(_, log)| !log.is_empty());
    let log = hung.map(|(_, log)| log);
    assert_eq!(log.as_deref(), Some("busy\n"));
}
