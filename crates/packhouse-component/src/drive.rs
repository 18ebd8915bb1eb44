//! A program that is started, asked one case after the other, and ended.
//!
//! Invariants:
//! - a program speaks once for each time that it is asked; anything else ends the session;
//! - every wait has an end, after which its whole group is killed;
//! - its answer counts only if it gives back the challenge of this session.

mod failure;

pub use failure::{Doing, DriveError, What};

use crate::Dtype;
use crate::check::{Checked, Fault, check};
use crate::exchange::Exchange;
use crate::form::Boundary;
use crate::frame::{Frames, encode};
use crate::message::{
    CaseOrder, Greeting, InputFile, Introduction, PROTOCOL, Reply, Request, Wanted,
};
use packhouse_base::digest::Digest;
use packhouse_sys::child::{Ended, Exit, Keep, Order, Talk, TalkError};
use packhouse_sys::clock::{Clock as _, RealClock};
use std::collections::BTreeMap;

/// How long a program may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// To say hello, in nanoseconds.
    pub hello_ns: u64,
    /// To answer a case.
    pub case_ns: u64,
    /// To end.
    pub bye_ns: u64,
}

/// A case to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask<'a> {
    /// Id of the fixture.
    pub fixture: &'a str,
    /// Id of the layout of its packed weights.
    pub layout: Option<&'a str>,
    /// Where to run.
    pub device: &'a str,
    /// Which treatment.
    pub arm: &'a str,
    /// Rows of activations.
    pub width: u64,
    /// Which repeat.
    pub repeat: u64,
    /// The fixture's parameters.
    pub parameters: &'a BTreeMap<String, u64>,
    /// Role to tensor.
    pub inputs: BTreeMap<String, Input<'a>>,
    /// What is to be written.
    pub boundaries: &'a [Boundary],
}

/// An input of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Input<'a> {
    /// Element type.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: &'a [u64],
    /// Its elements.
    pub bytes: &'a [u8],
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// An answer without a fault.
    Answered(Checked),
    /// An answer with faults: nothing to judge.
    Faulty(Vec<Fault>),
    /// The program did not run it, and says why.
    Declined(String),
}

/// A running program that said hello. Dropped, it is killed.
pub struct Program {
    talk: Talk,
    frames: Frames,
    exchange: Exchange,
    introduction: Introduction,
    limits: Limits,
    next_index: u64,
}

/// A program that ended as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// What it wrote to stderr, the first MiB of it.
    pub log: Vec<u8>,
    /// Nanoseconds from its start to its end.
    pub elapsed_ns: u64,
}

impl Program {
    /// Starts a program and greets it. The order's own timeout bounds the whole session.
    ///
    /// # Errors
    /// When it can't be started, or does not introduce itself by this protocol and challenge.
    pub fn start(
        order: &Order<'_>,
        exchange: Exchange,
        challenge: Digest,
        limits: Limits,
    ) -> Result<Self, DriveError> {
        let paths = exchange.inputs_path().zip(exchange.outputs_path());
        let (inputs, outputs) = paths.ok_or(DriveError::Folder)?;
        let greeting = Request::Hello(Greeting {
            protocol: PROTOCOL.to_owned(),
            challenge,
            inputs: inputs.to_owned(),
            outputs: outputs.to_owned(),
        });
        let stderr = Keep::Memory {
            max_bytes: LOG_BYTES_MAX,
        };
        let mut talk = Talk::start(order, stderr)?;
        let mut frames = Frames::default();
        let deadline_ns = RealClock.steady_ns().saturating_add(limits.hello_ns);
        let reply = exchanged(&mut talk, &mut frames, &greeting, deadline_ns);
        let introduced = reply.and_then(|reply| introduced(reply, challenge));
        match introduced {
            Ok(introduction) => Ok(Self {
                talk,
                frames,
                exchange,
                introduction,
                limits,
                next_index: 0,
            }),
            Err(what) => Err(failed(talk, Doing::Hello, what)),
        }
    }

    /// Who it says it is.
    pub fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    /// Asks for one case. After an error the program is dead.
    ///
    /// # Errors
    /// When it does not answer with one message of the protocol in time.
    pub fn ask(mut self, ask: &Ask<'_>) -> Result<(Self, Outcome), DriveError> {
        let early = self.exchange.outputs()?;
        if !early.is_empty() {
            self.exchange.empty()?;
            let faults = early.into_iter().map(|file| Fault::FileEarly { file });
            let outcome = Outcome::Faulty(faults.collect());
            return Ok((self, outcome));
        }
        let order = self.order(ask)?;
        let doing = Doing::Case(order.index);
        let request = Request::Case(order.clone());
        let deadline_ns = RealClock.steady_ns().saturating_add(self.limits.case_ns);
        let reply = exchanged(&mut self.talk, &mut self.frames, &request, deadline_ns);
        let reply = match reply {
            Ok(reply) => reply,
            Err(what) => return Err(failed(self.talk, doing, what)),
        };
        let seen = self.exchange.take(&order)?;
        let outcome = match reply {
            Reply::Answer(answer) => match check(&order, &self.introduction, answer, seen) {
                Ok(checked) => Outcome::Answered(checked),
                Err(faults) => Outcome::Faulty(faults),
            },
            Reply::Declined(declined) if declined.index == order.index => {
                Outcome::Declined(declined.reason)
            }
            Reply::Declined(declined) => Outcome::Faulty(vec![Fault::Index {
                expected: order.index,
                actual: declined.index,
            }]),
            Reply::Hello(_) => return Err(failed(self.talk, doing, What::HelloAgain)),
        };
        Ok((self, outcome))
    }

    /// Says bye and waits for the end.
    ///
    /// # Errors
    /// When it says another word, or does not end with code 0 in time.
    pub fn bye(mut self) -> Result<Farewell, DriveError> {
        let deadline_ns = RealClock.steady_ns().saturating_add(self.limits.bye_ns);
        let sent = silent(&mut self.talk, &self.frames).and_then(|()| {
            let frame = encode(&Request::Bye.render())?;
            Ok(self.talk.write_all(&frame, deadline_ns)?)
        });
        if let Err(what) = sent {
            return Err(failed(self.talk, Doing::Bye, what));
        }
        let ended = self.talk.end(self.limits.bye_ns)?;
        if !ended.stdout.is_empty() {
            let bytes = ended.stdout.len() as u64;
            return Err(DriveError::ended(
                Doing::Bye,
                What::Unasked { bytes },
                &ended,
            ));
        }
        match ended.exit {
            Exit::Exited(0) => Ok(Farewell {
                log: ended.stderr,
                elapsed_ns: ended.elapsed_ns,
            }),
            Exit::TimedOut => Err(DriveError::ended(Doing::Bye, What::TimedOut, &ended)),
            Exit::Exited(_) | Exit::Signalled(_) => Err(DriveError::ended(
                Doing::Bye,
                What::Ended(ended.exit),
                &ended,
            )),
        }
    }

    /// Puts a case's inputs in place and gives it the next number.
    fn order(&mut self, ask: &Ask<'_>) -> Result<CaseOrder, DriveError> {
        let index = self.next_index;
        self.next_index += 1;
        let mut inputs = BTreeMap::new();
        for (role, input) in &ask.inputs {
            let (file, sha256) = self.exchange.put(input.bytes)?;
            let input = InputFile {
                file,
                dtype: input.dtype,
                shape: input.shape.to_vec(),
                bytes: input.bytes.len() as u64,
                sha256,
            };
            inputs.insert(role.clone(), input);
        }
        let mut boundaries = Vec::new();
        for boundary in ask.boundaries {
            boundaries.push(Wanted {
                name: boundary.name.clone(),
                storage: boundary.storage.clone(),
                file: format!("case-{index}-{}.bin", boundary.name),
                form: boundary.form(ask.width)?,
            });
        }
        Ok(CaseOrder {
            index,
            fixture: ask.fixture.to_owned(),
            layout: ask.layout.map(str::to_owned),
            device: ask.device.to_owned(),
            arm: ask.arm.to_owned(),
            width: ask.width,
            repeat: ask.repeat,
            parameters: ask.parameters.clone(),
            inputs,
            boundaries,
        })
    }
}

/// Asks once and reads one reply. What the program said before it was asked is refused.
fn exchanged(
    talk: &mut Talk,
    frames: &mut Frames,
    request: &Request,
    deadline_ns: u64,
) -> Result<Reply, What> {
    silent(talk, frames)?;
    talk.write_all(&encode(&request.render())?, deadline_ns)?;
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        if let Some(message) = frames.next_message()? {
            return Ok(Reply::parse(&message)?);
        }
        match talk.read(&mut piece, deadline_ns)? {
            0 => return Err(What::Closed),
            length => frames.push(&piece[..length]),
        }
    }
}

/// Errs when the program spoke before it was asked.
fn silent(talk: &mut Talk, frames: &Frames) -> Result<(), What> {
    let pending = frames.pending_bytes();
    let more = match talk.read(&mut [0; 64], 0) {
        Err(TalkError::TimedOut) => 0,
        other => other?,
    };
    match pending + more {
        0 => Ok(()),
        bytes => Err(What::Unasked {
            bytes: bytes as u64,
        }),
    }
}

fn introduced(reply: Reply, challenge: Digest) -> Result<Introduction, What> {
    let introduction = match reply {
        Reply::Hello(introduction) => introduction,
        Reply::Answer(_) | Reply::Declined(_) => return Err(What::NoHello),
    };
    if introduction.protocol != PROTOCOL {
        return Err(What::Protocol {
            actual: introduction.protocol,
        });
    }
    if introduction.challenge != challenge {
        return Err(What::Challenge);
    }
    Ok(introduction)
}

/// Ends a program that broke off, and says how it ended where it ended by itself.
fn failed(talk: Talk, doing: Doing, what: What) -> DriveError {
    let is_gone = matches!(what, What::Closed | What::Deaf);
    let ended: Ended = match talk.end(if is_gone { GRACE_NS } else { 0 }) {
        Ok(ended) => ended,
        Err(error) => return error.into(),
    };
    let what = match ended.exit {
        Exit::Exited(_) | Exit::Signalled(_) if is_gone => What::Ended(ended.exit),
        Exit::Exited(_) | Exit::Signalled(_) | Exit::TimedOut => what,
    };
    DriveError::ended(doing, what, &ended)
}

/// Bytes kept of a program's stderr.
const LOG_BYTES_MAX: u64 = 1 << 20;
const PIECE_BYTES: usize = 64 << 10;
/// How long a program that closed its pipes may take to end by itself, so that it can be said how.
const GRACE_NS: u64 = 2_000_000_000;
