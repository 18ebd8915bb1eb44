//! A model that a process has mapped for writing: it may change a page that is dirty already, and
//! no time of the file shows it. So what was read meanwhile must not be believed later.

use crate::model;
use crate::sandbox::Sandbox;
use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};

#[test]
fn what_is_read_beside_a_writer_is_not_believed_later() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("model.gguf");
    model::write(&path, &[("blk.0.ffn_up.weight", "Q4_0", &[256, 64])], &[]);
    let mut writer = Writer::start(&path);
    let first = prepare(&sandbox);
    let complaint = first["complaints"][0].as_str().unwrap_or_default();
    assert!(
        complaint.contains("model.gguf: a process has it open for writing"),
        "{first}"
    );
    // The page is dirty: this write moves no time.
    let times = |path| {
        std::fs::metadata(path)
            .map(|m| (m.modified().ok(), m.len()))
            .unwrap()
    };
    let before = times(&path);
    writer.write();
    assert_eq!(times(&path), before);
    writer.end();
    let second = prepare(&sandbox);
    assert_eq!(second["complaints"], serde_json::json!([]), "{second}");
    assert_ne!(second["source_bytes"], 0);
    assert_ne!(second["set"], first["set"], "the model changed");
    let third = prepare(&sandbox);
    assert_eq!(third["source_bytes"], 0);
    assert_eq!(third["set"], second["set"]);
}

fn prepare(sandbox: &Sandbox) -> Value {
    let words = ["prepare", "model.gguf", "--plan", "xe2-q4_0", "--json"];
    let output = sandbox
        .command(&words)
        .output()
        .expect("because it can be run");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    serde_json::from_slice(&output.stdout).expect("because --json says one document")
}

/// A process that maps the model, dirties its last page, and changes it again when told.
struct Writer(Child);

impl Writer {
    fn start(path: &std::path::Path) -> Self {
        let script = "import mmap, sys\n\
            with open(sys.argv[1], 'r+b') as file: pages = mmap.mmap(file.fileno(), 0)\n\
            for value in (1, 2):\n    \
                pages[len(pages) - 5] ^= value\n    \
                print('written', flush=True)\n    \
                sys.stdin.readline()\n";
        let mut child = Command::new("python3")
            .args(["-c", script])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("because the tests need python3");
        wait(&mut child);
        Self(child)
    }

    fn write(&mut self) {
        self.tell();
        wait(&mut self.0);
    }

    fn end(mut self) {
        self.tell();
        self.0.wait().expect("because it is our child");
    }

    fn tell(&mut self) {
        let input = self.0.stdin.as_mut().expect("because it is piped");
        input.write_all(b"\n").expect("because it reads");
    }
}

/// Waits for the line that says that it has written.
fn wait(child: &mut Child) {
    let output = child.stdout.as_mut().expect("because it is piped");
    let mut line = String::new();
    // One line at a time: the process writes none before it is asked.
    BufReader::with_capacity(1, output)
        .read_line(&mut line)
        .expect("because it is piped");
    assert_eq!(line, "written\n");
}

/// A limit of file sizes is a full disk: said, and survived by what is there already.
#[test]
fn the_limit_of_file_sizes_is_an_error_and_no_death() {
    let sandbox = Sandbox::new();
    let path = sandbox.path("model.gguf");
    model::write(&path, &[("blk.0.ffn_up.weight", "Q4_0", &[4096, 64])], &[]);
    let words = ["prepare", "model.gguf", "--plan", "xe2-q4_0"];
    let prepare = sandbox.command(&words);
    let mut limited = Command::new("sh");
    limited
        .args(["-c", "ulimit -f 16; exec \"$@\"", "sh"])
        .arg(prepare.get_program())
        .args(prepare.get_args())
        .current_dir(
            prepare
                .get_current_dir()
                .expect("because it is the sandbox"),
        );
    for (name, value) in prepare.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    let output = limited.output().expect("because there is a shell");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("longer than a file may be here"), "{said}");
    prepare_quietly(&sandbox);
}

fn prepare_quietly(sandbox: &Sandbox) {
    assert_eq!(prepare(sandbox)["complaints"], serde_json::json!([]));
}
