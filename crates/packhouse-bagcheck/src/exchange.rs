//! The lines of a leg: `docs/format/evidence.md`, section 5.

use crate::json::{Json, parse};
use crate::messages::{Answer, Case, Hello, MESSAGE_BYTES_MAX, Message, message};
use crate::report::Report;
use crate::shape::Record;
use std::collections::BTreeMap;

/// What one program was asked and said, in order.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The controller's challenge, with its line.
    pub(crate) greeting: Option<(u64, String)>,
    /// The program's hello, with its line.
    pub(crate) hello: Option<(u64, Hello)>,
    /// Its cases.
    pub(crate) asked: Vec<Asked>,
    /// Whether the controller said bye.
    pub(crate) is_dismissed: bool,
    /// How it ended, with its line.
    pub(crate) end: Option<(u64, String)>,
}

/// One case with all that came of it.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Its line, from 1.
    pub(crate) line: u64,
    /// When it was asked.
    pub(crate) at_ns: u64,
    /// What was asked.
    pub(crate) case: Case,
    /// The answer: line, time, and what it was.
    pub(crate) reply: Option<(u64, u64, Reply)>,
    /// What the controller then saw, with its line.
    pub(crate) seen: Option<(u64, Seen)>,
}

/// What a program made of a case.
#[derive(Debug)]
pub(crate) enum Reply {
    /// An answer.
    Answer(Answer),
    /// Index and reason.
    Declined(u64, String),
}

/// What lay in the two folders.
#[derive(Debug)]
pub(crate) struct Seen {
    /// The case's number.
    pub(crate) index: u64,
    /// Each entry of the outputs' folder: length and digest, or why it was refused.
    pub(crate) outputs: BTreeMap<String, Result<(u64, String), String>>,
    /// Each input's digest; none where it couldn't be read.
    pub(crate) inputs: BTreeMap<String, Option<String>>,
    /// Names that nobody put there.
    pub(crate) extra: Vec<String>,
}

/// A leg's sessions by treatment, and the treatments in the order of their cases.
#[derive(Debug, Default)]
pub(crate) struct Exchange {
    /// Sessions by treatment.
    pub(crate) sessions: BTreeMap<String, Session>,
    /// Whose case each one was, in order.
    pub(crate) turns: Vec<String>,
    /// The latest time of any line, since the leg's start.
    pub(crate) last_ns: u64,
}

/// Reads the lines of a leg. Where the run was aborted, bytes behind the last newline are none.
pub(crate) fn read(report: &mut Report, path: &str, bytes: &[u8], is_aborted: bool) -> Exchange {
    let mut exchange = Exchange::default();
    let mut last_ns = 0;
    for (number, line) in (1..).zip(bytes.split_inclusive(|byte| *byte == b'\n')) {
        if is_aborted && !line.ends_with(b"\n") {
            break;
        }
        let mut record = Record::new(report, format!("{path}:{number}"));
        let value = match parse(line) {
            Ok(value) => value,
            Err(words) => {
                record.find("record.not-canonical", words);
                continue;
            }
        };
        // What is sent may be longer than its one spelling, and never shorter.
        let is_short = line.len() <= MESSAGE_BYTES_MAX;
        let Some((at_ns, treatment, event)) = event(&mut record, &value, is_short) else {
            continue;
        };
        if at_ns < last_ns {
            record.find("leg.order", format!("{at_ns} ns, after {last_ns} ns"));
        }
        last_ns = at_ns.max(last_ns);
        if matches!(event, Event::Message(Message::Case(_))) {
            exchange.turns.push(treatment.clone());
        }
        let session = exchange.sessions.entry(treatment).or_default();
        if let Err(words) = session.take(number, at_ns, event) {
            record.find("leg.order", words);
        }
    }
    exchange.last_ns = last_ns;
    exchange
}

enum Event {
    Message(Message),
    Seen(Seen),
    End(String),
}

fn event(record: &mut Record<'_>, value: &Json, is_short: bool) -> Option<(u64, String, Event)> {
    let fields = ["at_ns", "treatment", "from"];
    let kinds = ["message", "seen", "end"];
    let map = record.fields(value, "", &fields, &kinds)?;
    let at_ns = record.integer(map, "at_ns")?;
    let treatment = record.word(map, "treatment", &["control", "candidate"])?;
    let from = record.word(map, "from", &["controller", "component"])?;
    let is_ours = from == "controller";
    let mut present = kinds.iter().filter(|kind| map.contains_key(**kind));
    let (Some(kind), None) = (present.next(), present.next()) else {
        record.find(
            "record.missing-field",
            "not exactly one of message, seen, end",
        );
        return None;
    };
    let value = map.get(*kind)?;
    let event = match *kind {
        "message" if !is_short && value.render().len() > MESSAGE_BYTES_MAX => {
            let words = format!("a message of more than {MESSAGE_BYTES_MAX} bytes");
            record.find("leg.message", words);
            return None;
        }
        "message" => match message(record, value, is_ours) {
            Some(message) => Event::Message(message),
            None => {
                record.find("leg.message", "a message that is none of the protocol");
                return None;
            }
        },
        "seen" if is_ours => Event::Seen(seen(record, value)?),
        "end" if is_ours => Event::End(record.some_text(map, "end")?),
        _ => {
            record.find("record.type", format!("`{kind}` is from the controller"));
            return None;
        }
    };
    Some((at_ns, treatment, event))
}

fn seen(record: &mut Record<'_>, value: &Json) -> Option<Seen> {
    let fields = ["index", "outputs", "inputs", "inputs_extra"];
    let map = record.fields(value, "seen", &fields, &[])?;
    let mut outputs = BTreeMap::new();
    for (file, value) in record.object(map, "outputs")? {
        let own = record.fields(value, "outputs", &[], &["bytes", "sha256", "refused"])?;
        let found = if own.contains_key("refused") {
            record.fields(value, "outputs", &["refused"], &[])?;
            Err(record.some_text(own, "refused")?)
        } else {
            record.fields(value, "outputs", &["bytes", "sha256"], &[])?;
            Ok((record.integer(own, "bytes")?, record.digest(own, "sha256")?))
        };
        outputs.insert(file.clone(), found);
    }
    let mut inputs = BTreeMap::new();
    let by_file = record.object(map, "inputs")?;
    for (file, value) in by_file {
        let digest = match value {
            Json::Null => None,
            _ => Some(record.digest(by_file, file)?),
        };
        inputs.insert(file.clone(), digest);
    }
    Some(Seen {
        index: record.integer(map, "index")?,
        outputs,
        inputs,
        extra: record.texts(map, "inputs_extra")?,
    })
}

impl Session {
    /// Takes the next event, or says why it can't come here.
    fn take(&mut self, line: u64, at_ns: u64, event: Event) -> Result<(), &'static str> {
        if self.end.is_some() {
            return Err("something after the end of the session");
        }
        let is_greeted = self.hello.is_some() && !self.is_dismissed;
        let last = self.asked.last_mut();
        let is_free = last.as_ref().is_none_or(|asked| asked.seen.is_some());
        match event {
            Event::End(text) => {
                let is_bye = text == "bye";
                self.end = Some((line, text));
                if is_bye && !self.is_dismissed {
                    return Err("ended by `bye`, which was never said");
                }
            }
            Event::Message(Message::Greeting(challenge)) if self.greeting.is_none() => {
                self.greeting = Some((line, challenge));
            }
            Event::Message(Message::Hello(hello))
                if self.greeting.is_some() && self.hello.is_none() =>
            {
                self.hello = Some((line, hello));
            }
            Event::Message(Message::Case(case)) if is_greeted && is_free => {
                self.asked.push(Asked {
                    line,
                    at_ns,
                    case,
                    reply: None,
                    seen: None,
                });
            }
            Event::Message(Message::Bye) if is_greeted && is_free => self.is_dismissed = true,
            Event::Message(message @ (Message::Answer(_) | Message::Declined(..))) => {
                let reply = match message {
                    Message::Answer(answer) => Reply::Answer(answer),
                    Message::Declined(index, reason) => Reply::Declined(index, reason),
                    Message::Greeting(_) | Message::Hello(_) | Message::Case(_) | Message::Bye => {
                        return Ok(());
                    }
                };
                match last {
                    Some(asked) if asked.reply.is_none() => {
                        asked.reply = Some((line, at_ns, reply));
                    }
                    _ => return Err("an answer that nobody asked for"),
                }
            }
            Event::Seen(seen) => match last {
                Some(asked) if asked.reply.is_some() && asked.seen.is_none() => {
                    asked.seen = Some((line, seen));
                }
                _ => return Err("`seen` without an answer before it"),
            },
            Event::Message(
                Message::Greeting(_) | Message::Hello(_) | Message::Case(_) | Message::Bye,
            ) => return Err("not where section 5 has it"),
        }
        Ok(())
    }
}
