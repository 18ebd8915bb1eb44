//! What all commands of a lab share: its folder and the user's memory open, the ledger read, a
//! packet found, an act announced and appended.

use crate::answer::{Answer, say};
use crate::failure::{Failure, quoted};
use crate::lab::{LEDGER, Place};
use crate::lab_host::ThisHost;
use crate::{folders, hints, places};
use packhouse_base::digest::Digest;
use packhouse_base::shown::Shown;
use packhouse_lab::freeze::prereg_path;
use packhouse_lab::name::is_experiment_id;
use packhouse_lab::nearest::nearest;
use packhouse_lab::world::{Host as _, Lab};
use packhouse_ledger::heads::HeadError;
use packhouse_ledger::state::{PacketState, Standing};
use packhouse_ledger::writer::{Writer, WriterError};
use packhouse_ledger::{Act, Heads, Ledger, LedgerError};
use packhouse_store::folders::{Links, MakeModes, walk};
use packhouse_store::root::{OpenError, Owners};
use packhouse_sys::clock::{Clock as _, RealClock};
use packhouse_sys::fs::{Dir, Fs as _, FsError, FsErrorKind, Operation};
use packhouse_sys::real::RealFs;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// A lab that is open.
pub(crate) struct Opened<'a> {
    /// Where it is, for messages.
    pub(crate) place: &'a Place,
    /// Its folder.
    pub(crate) root: Dir,
    /// The user's private state folder.
    pub(crate) state: Dir,
    /// What this user saw of ledgers.
    pub(crate) heads: Heads,
    /// This host.
    pub(crate) host: ThisHost,
}

impl<'a> Opened<'a> {
    /// Opens the lab's folder, and the user's state folder, which is made where it is missing.
    pub(crate) fn of(place: &'a Place) -> Result<Self, Failure> {
        let root = folders::open(&RealFs, &place.root).map_err(|error| {
            Failure::new("cannot open the lab's folder", place.root.display())
                .because(&error)
                .hint(hints::of(&error, &place.root))
        })?;
        Self::at(place, root)
    }

    /// The same, with the lab's folder open.
    pub(crate) fn at(place: &'a Place, root: Dir) -> Result<Self, Failure> {
        let modes = Some(MakeModes {
            parents: 0o700,
            last: 0o700,
        });
        let owners = Owners::new(RealFs.effective_uid(), &[]);
        let state = walk(&RealFs, &owners, &place.state, modes, Links::Follow);
        let (_, state) = state.map_err(|error| not_ours(place, &error))?;
        let heads = Heads::open(&state).map_err(|error| not_ours(place, &error))?;
        Ok(Self {
            place,
            root,
            state,
            heads,
            host: ThisHost::new(places::whole_environment()),
        })
    }

    /// The lab with this host, as the library takes it.
    pub(crate) fn lab(&self) -> Lab<'_> {
        Lab {
            fs: &RealFs,
            root: self.root.clone(),
            state: self.state.clone(),
            clock: &RealClock,
            host: &self.host,
        }
    }

    /// Reads the ledger, which must go on from what this user saw last.
    pub(crate) fn ledger(&self) -> Result<Ledger, Failure> {
        Ledger::read(&self.root, Some(&self.heads)).map_err(|error| self.refused(&error))
    }

    /// Takes the ledger's lock, to append. That a torn append was cut off is said at once, whatever
    /// becomes of the command.
    pub(crate) fn writer(&self) -> Result<Writer, Failure> {
        let writer = self.quiet_writer()?;
        let bytes = writer.cut_bytes();
        if bytes > 0 {
            let path = self.place.root.join(LEDGER);
            let path = path.display().to_string();
            // The answer may be a failure.
            say(format_args!(
                "{}: cut off {bytes} bytes of an append that was never reported\n",
                Shown(&path)
            ));
        }
        Ok(writer)
    }

    /// The same, for a caller that says itself what was cut off.
    pub(crate) fn quiet_writer(&self) -> Result<Writer, Failure> {
        Writer::open(&self.root, Some(&self.heads), &RealClock)
            .map_err(|error| self.not_appended(&error))
    }

    /// Appends an act and remembers it. What was entered is done, whatever becomes of the memory.
    pub(crate) fn append(
        &self,
        writer: &mut Writer,
        act: impl Into<Act>,
    ) -> Result<Entered, Failure> {
        let boot = self.host.boot_id().map_err(|error| {
            Failure::new("this boot has no name", self.place.root.display()).because(&error)
        })?;
        let entry = writer.append(act, RealClock.wall_ns(), &boot);
        let index = entry.map_err(|error| self.not_appended(&error))?.index;
        Ok(Entered {
            index,
            head: writer.ledger().head(),
            unnoted: unnoted(self.place, writer),
        })
    }

    /// The packet that a text names: its experiment's id, or the first digits of its digest.
    pub(crate) fn packet(&self, ledger: &Ledger, text: &str) -> Result<Digest, Failure> {
        match ledger.state().packets_named(text)[..] {
            [packet] => Ok(packet),
            [] => {
                let failure = Failure::usage("no such packet", text);
                let known: Vec<&str> = ledger
                    .state()
                    .experiments()
                    .keys()
                    .map(|id| id.as_str())
                    .collect();
                Err(self.unknown(failure, &known, text))
            }
            ref several => {
                let several: Vec<String> = several.iter().map(Digest::to_string).collect();
                Err(Failure::usage("more than one packet", text)
                    .cause(several.join(", "))
                    .hint(self.place.hint("state")))
            }
        }
    }

    /// Says what there is where there is no such packet: a draft of that name is to be registered.
    fn unknown(&self, failure: Failure, known: &[&str], text: &str) -> Failure {
        let draft = self.place.root.join(prereg_path(text));
        if is_experiment_id(text) && draft.symlink_metadata().is_ok() {
            return failure
                .not_executed()
                .cause(format!("experiment {text} is drafted, and not registered"))
                .hint(self.place.hint(&format!("register {text}")));
        }
        if known.is_empty() {
            return failure.hint(self.place.hint("experiment ls"));
        }
        let failure = failure.cause(match known {
            [only] => format!("there is {only}"),
            several => format!("there are {}", several.join(", ")),
        });
        let failure = match nearest(text, known.iter().copied()) {
            Some(meant) => failure.cause(format!("did you mean {meant}?")),
            None => failure,
        };
        failure.hint(self.place.hint("state"))
    }

    /// A packet's state. The packet comes from [`Self::packet`].
    pub(crate) fn standing<'l>(
        &self,
        ledger: &'l Ledger,
        packet: Digest,
    ) -> Result<&'l PacketState, Failure> {
        let found = ledger.state().packets().get(&packet);
        found.ok_or_else(|| Failure::usage("no such packet", packet))
    }

    /// Refuses an act that the ledger would not take, before anything is done for it.
    pub(crate) fn accepts(&self, ledger: &Ledger, act: &Act) -> Result<(), Failure> {
        ledger.accepts(act).map_err(|fault| {
            Failure::new("the ledger does not take this", said(act))
                .because(&fault)
                .cause(format!("reason code {}", fault.code()))
                .hint(self.place.hint("ledger ls"))
        })
    }

    /// Says that the ledger can't be read.
    pub(crate) fn refused(&self, error: &(dyn std::error::Error + 'static)) -> Failure {
        let path = self.place.root.join(LEDGER);
        let failure = Failure::new("the ledger is refused", path.display()).because(error);
        match error.downcast_ref() {
            // Reading it again would end in the same way.
            Some(LedgerError::Head(HeadError::Fs(error))) => {
                failure.hint(hints::of(error, &error.path))
            }
            Some(_) | None => failure.hint(self.place.hint("ledger verify")),
        }
    }

    /// Says that nothing could be appended to the ledger.
    pub(crate) fn not_appended(&self, error: &WriterError) -> Failure {
        let path = self.place.root.join(LEDGER);
        let failure = Failure::new("nothing was appended to the ledger", path.display());
        let failure = failure.because(error);
        let failure = match error.code() {
            Some(code) => failure.cause(format!("reason code {code}")),
            None => failure,
        };
        match error {
            WriterError::Fs(error) => failure.hint(hints::of(error, &path)),
            WriterError::Ledger(LedgerError::Fs(error)) => failure.hint(hints::of(error, &path)),
            WriterError::Ledger(LedgerError::Head(HeadError::Fs(error))) => {
                failure.hint(hints::of(error, &path))
            }
            WriterError::Busy { .. } => failure.hint(self.place.hint("state --live")),
            _ => failure.hint(self.place.hint("ledger verify")),
        }
    }
}

/// An act in two words: its kind, and whose it is.
fn said(act: &Act) -> String {
    let body = act.body();
    let of = ["experiment", "lane", "key", "packet", "entry"];
    let of = of.iter().find_map(|field| body.get(field));
    match of {
        Some(Value::String(of)) => format!("{} {of}", act.kind()),
        Some(Value::Number(of)) => format!("{} {of}", act.kind()),
        Some(_) | None => act.kind().to_owned(),
    }
}

/// An entry of the ledger that was made by this command.
pub(crate) struct Entered {
    /// Its number.
    index: u64,
    /// The ledger's head with it.
    head: Digest,
    /// Why this user's memory does not have it, where it has not.
    unnoted: Option<Failure>,
}

impl Entered {
    /// The answer to what was done, with its entry, the next act and why the head is not noted.
    pub(crate) fn answer(&self, mut told: Told, next: Option<&str>) -> Answer {
        told.lines.push(format!("{LEDGER}: entry {}", self.index));
        told.json["entry"] = json!(self.index);
        told.json["head"] = json!(self.head.to_string());
        let mut answer = told.done();
        if let Some(next) = next {
            answer.text += &format!("next: {next}\n");
        }
        warned(answer, self.unnoted.as_ref())
    }
}

/// Notes the ledger's head as the one that this user saw last; why it can't be noted. That undoes
/// nothing: an older head is in the ledger too.
pub(crate) fn unnoted(place: &Place, writer: &Writer) -> Option<Failure> {
    let error = writer.remember().err()?;
    let what = "the entry is in the ledger, but its head was not noted";
    let failure = Failure::new(what, place.root.display()).because(&error);
    Some(match &error {
        WriterError::Ledger(LedgerError::Head(HeadError::Fs(error))) => {
            failure.hint(hints::of(error, &error.path))
        }
        _ => failure.hint(place.hint("ledger verify")),
    })
}

/// An answer that stays what it is, with a failure that took nothing from it.
pub(crate) fn warned(mut answer: Answer, failure: Option<&Failure>) -> Answer {
    if let Some(failure) = failure {
        let words = failure.to_string().replacen("error: ", "warning: ", 1);
        answer.text += &words;
        answer.json["warning"] = json!(words.trim_end());
    }
    answer
}

/// The option that signs a seal, for a command that is to be given again.
pub(crate) fn with_key(key: Option<&Path>) -> String {
    key.map_or_else(String::new, |key| format!(" --key {}", quoted(key)))
}

/// A count with its noun.
pub(crate) fn counted(count: impl Into<u64>, one: &str, several: &str) -> String {
    match count.into() {
        1 => format!("1 {one}"),
        count => format!("{count} {several}"),
    }
}

/// The words for where a packet stands.
pub(crate) fn stands(standing: Standing) -> &'static str {
    standing.as_str()
}

/// What an act would do or did: lines for people, and what becomes irreversible.
pub(crate) struct Told {
    /// What is done, a line each.
    pub(crate) lines: Vec<String>,
    /// What can't be taken back once it is done.
    pub(crate) irreversible: &'static str,
    /// The same for programs.
    pub(crate) json: Value,
}

impl Told {
    /// The answer where nothing was done: the same words, and the command that does it.
    pub(crate) fn planned(self, command: &str) -> Answer {
        let mut text = String::new();
        for line in &self.lines {
            let _ = writeln!(text, "would: {}", Shown(line));
        }
        let _ = writeln!(text, "irreversible: {}", self.irreversible);
        let _ = writeln!(text, "nothing was written; do it: {}", Shown(command));
        Answer::done(text, self.document(false))
    }

    /// The answer where it was done.
    pub(crate) fn done(self) -> Answer {
        let mut text = String::new();
        for line in &self.lines {
            let _ = writeln!(text, "done: {}", Shown(line));
        }
        Answer::done(text, self.document(true))
    }

    fn document(&self, executed: bool) -> Value {
        let mut document = json!({
            "executed": executed,
            "irreversible": self.irreversible,
            "steps": self.lines,
        });
        if let (Value::Object(fields), Value::Object(own)) = (&mut document, &self.json) {
            fields.extend(own.clone());
        }
        document
    }
}

fn not_ours(place: &Place, error: &(dyn std::error::Error + 'static)) -> Failure {
    let what = "cannot use the folder of private state";
    let failure = Failure::new(what, place.state.display()).because(error);
    let of_file = match (error.downcast_ref(), error.downcast_ref()) {
        (Some(OpenError::Fs(error)), _) | (_, Some(HeadError::Fs(error))) => Some(error),
        (_, _) => None,
    };
    match of_file {
        Some(error) if is_shut(error) => elsewhere(failure),
        Some(error) => failure.hint(hints::of(error, &place.state)),
        None => failure.hint(hints::of(error, &place.state)),
    }
}

/// Whether nothing can be made where the folder is to be: another home is needed, no other mode.
fn is_shut(error: &FsError) -> bool {
    let is_made = error.operation == Operation::MakeDir;
    match error.kind {
        FsErrorKind::ReadOnly => true,
        FsErrorKind::Permission | FsErrorKind::NotFound => is_made,
        _ => false,
    }
}

/// Says how another folder of private state is given.
pub(crate) fn elsewhere(failure: Failure) -> Failure {
    failure
        .cause("it is below XDG_STATE_HOME, and below HOME where that is not set")
        .hint("export XDG_STATE_HOME=DIR")
}
