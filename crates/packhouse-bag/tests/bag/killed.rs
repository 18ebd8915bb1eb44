//! Writers that are killed, as processes, on the real file system.

use crate::samples::{folder, info, real_dir};
use packhouse_bag::{Contents, Found, OpenBag, check, closed, look};
use packhouse_sys::fs::Dir;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const VICTIM: &str = "PACKHOUSE_BAG_VICTIM";
const STEPS: usize = 40;

/// A child that is killed when it goes out of scope.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn whole(step: usize) -> Vec<u8> {
    vec![(step % 251) as u8; 3000 + step]
}

/// Writes a bag, says each step when it is done, and closes it once nobody holds its input open.
fn write(home: &Dir) {
    let mut said = std::io::stdout();
    let mut bag = OpenBag::create(home).expect("because nothing is there");
    for step in 0..STEPS {
        let path = format!("legs/{:02}/output-{step}", step / 10);
        bag.put(&path, &whole(step)).expect("because it is free");
        bag.append("exchange.jsonl", b"{}\n")
            .expect("because nothing failed");
        bag.sync().expect("because nothing failed");
        writeln!(said, "step {step}").expect("because somebody listens");
    }
    let told = std::io::stdin().read_to_end(&mut Vec::new());
    told.expect("because it is a pipe");
    bag.close(&info()).expect("because nothing failed");
    writeln!(said, "closed").expect("because somebody listens");
}

/// Starts this test again as a writer, and kills it once it said that many steps. It goes on
/// meanwhile, and closes its bag only where it was to come that far: who kills may be late.
fn killed_after(steps: usize, home: &Path) -> Found {
    let this = std::env::current_exe().expect("because this process has a binary");
    let mut command = Command::new(this);
    let name = "killed::a_killed_writer_leaves_every_step_that_it_said_and_nothing_torn";
    command
        .args(["--exact", name, "--nocapture"])
        .env(VICTIM, home);
    let command = command.stdin(Stdio::piped()).stderr(Stdio::null());
    let child = command.stdout(Stdio::piped()).spawn();
    let mut writer = Writer(child.expect("because it is this binary"));
    if steps >= STEPS {
        drop(writer.0.stdin.take());
    }
    let stdout = writer.0.stdout.take().expect("because it is piped");
    let lines = BufReader::new(stdout).lines().map_while(Result::ok);
    let said = lines.filter(|line| line.contains("step ") || line.contains("closed"));
    assert_eq!(said.take(steps).count(), steps, "it ended by itself");
    drop(writer);
    look(&real_dir(home)).expect("because it is one or none")
}

#[test]
fn a_killed_writer_leaves_every_step_that_it_said_and_nothing_torn() {
    if let Some(home) = std::env::var_os(VICTIM) {
        write(&real_dir(Path::new(OsStr::new(&home))));
        return;
    }
    for steps in [1, 2, 9, 10, 11, 25, STEPS - 1, STEPS, STEPS + 1] {
        let folder = folder();
        let home = real_dir(folder.path());
        let found = killed_after(steps, folder.path());
        assert!(steps >= STEPS || found == Found::Open, "{steps}: {found:?}");
        if found == Found::Open {
            let resumed = OpenBag::resume(&home).expect("because it was killed");
            let exchange = resumed
                .read("exchange.jsonl")
                .expect("because it was synced");
            assert!(exchange.len() >= 3 * steps, "{steps}: {exchange:?}");
            for step in 0..steps.min(STEPS) {
                let path = format!("legs/{:02}/output-{step}", step / 10);
                assert!(
                    resumed.paths().any(|other| other == path),
                    "{steps}: no {path}"
                );
            }
            let bag = resumed.into_bag();
            bag.close(&info()).expect("because nothing is in the way");
        }
        let bag = home.open_dir("bag").expect("because it is closed now");
        let contents = Contents::read(&bag).expect("because it is closed now");
        assert_eq!(check(&contents), Ok(()), "{steps}");
        for (path, bytes) in contents.payload().files() {
            if let Some((_, step)) = path.split_once("output-") {
                let step = step.parse().expect("because it is a number");
                assert_eq!(bytes.as_ref(), whole(step), "{steps}: {path}");
            }
        }
        assert_eq!(closed(&contents.payload(), &info()), contents, "{steps}");
    }
}
