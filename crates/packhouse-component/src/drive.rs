//! A program that is started, asked one case after the other, and ended.
//!
//! Invariants:
//! - a program speaks once for each time that it is asked; anything else ends the session;
//! - every wait has an end, after which its whole group is killed;
//! - its answer counts only if it gives back the challenge of this session.

mod channel;
mod failure;

pub use channel::{Event, Side, Tap, Untapped};
pub use failure::{Doing, DriveError, What};

use crate::Dtype;
use crate::check::{Checked, Fault, check};
use crate::exchange::Exchange;
use crate::form::Boundary;
use crate::message::{
    CaseOrder, Greeting, InputFile, Introduction, PROTOCOL, Reply, Request, Wanted,
};
use channel::Channel;
use packhouse_base::digest::Digest;
use packhouse_sys::child::{Exit, Keep, Order, Talk};
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
    /// How often to run it, timing the whole, where it is to be timed.
    pub cycles: Option<u64>,
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
    channel: Channel,
    exchange: Exchange,
    introduction: Introduction,
    limits: Limits,
    next_index: u64,
}

/// A program that ended as it should, or was told to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Farewell {
    /// What it wrote to stderr, the first MiB of it.
    pub log: Vec<u8>,
    /// How it ended.
    pub exit: Exit,
    /// Nanoseconds from its start to its end.
    pub elapsed_ns: u64,
}

impl Program {
    /// Starts a program and greets it. The order's own timeout bounds the whole session. The tap is
    /// told of every message.
    ///
    /// # Errors
    /// When it can't be started, or does not introduce itself by this protocol and challenge.
    pub fn start(
        order: &Order<'_>,
        exchange: Exchange,
        challenge: Digest,
        limits: Limits,
        tap: Box<dyn Tap>,
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
        let mut channel = Channel::new(Talk::start(order, stderr)?, tap);
        let deadline_ns = RealClock.steady_ns().saturating_add(limits.hello_ns);
        let reply = channel.exchanged(&greeting, deadline_ns);
        let introduced = reply.and_then(|(reply, _)| introduced(reply, challenge));
        match introduced {
            Ok(introduction) => Ok(Self {
                channel,
                exchange,
                introduction,
                limits,
                next_index: 0,
            }),
            Err(what) => Err(channel.failed(Doing::Hello, what)),
        }
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.channel.pid()
    }

    /// Who it says it is.
    pub fn introduction(&self) -> &Introduction {
        &self.introduction
    }

    /// Asks for one case. After an error the program is dead. One that poisons storages is asked
    /// to.
    ///
    /// # Errors
    /// When it does not answer with one message of the protocol in time, or cycles are asked of a
    /// program that does not time.
    pub fn ask(mut self, ask: &Ask<'_>) -> Result<(Self, Outcome), DriveError> {
        let early = self.exchange.outputs()?;
        if !early.is_empty() {
            self.exchange.empty()?;
            let faults = early.into_iter().map(|file| Fault::FileEarly { file });
            let outcome = Outcome::Faulty(faults.collect());
            return Ok((self, outcome));
        }
        if ask.cycles.is_some() && !self.introduction.times {
            return Err(DriveError::Untimed);
        }
        let order = self.order(ask)?;
        let doing = Doing::Case(order.index);
        let request = Request::Case(order.clone());
        let deadline_ns = RealClock.steady_ns().saturating_add(self.limits.case_ns);
        let (reply, span_ns) = match self.channel.exchanged(&request, deadline_ns) {
            Ok(reply) => reply,
            Err(what) => return Err(self.channel.failed(doing, what)),
        };
        let mut seen = self.exchange.take(&order)?;
        seen.span_ns = span_ns;
        self.channel.saw(order.index, &seen);
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
            Reply::Hello(_) => return Err(self.channel.failed(doing, What::HelloAgain)),
        };
        Ok((self, outcome))
    }

    /// Says bye and waits for the end.
    ///
    /// # Errors
    /// When it says another word, or does not end with code 0 in time.
    pub fn bye(mut self) -> Result<Farewell, DriveError> {
        let deadline_ns = RealClock.steady_ns().saturating_add(self.limits.bye_ns);
        if let Err(what) = self.channel.send(&Request::Bye, deadline_ns) {
            return Err(self.channel.failed(Doing::Bye, what));
        }
        let pid = self.pid();
        let ended = self.channel.end(self.limits.bye_ns)?;
        if !ended.stdout.is_empty() {
            let bytes = ended.stdout.len() as u64;
            return Err(DriveError::ended(
                Doing::Bye,
                What::Unasked { bytes },
                (pid, &ended),
            ));
        }
        match ended.exit {
            Exit::Exited(0) => Ok(Farewell {
                log: ended.stderr,
                exit: ended.exit,
                elapsed_ns: ended.elapsed_ns,
            }),
            Exit::TimedOut => Err(DriveError::ended(Doing::Bye, What::TimedOut, (pid, &ended))),
            Exit::Exited(_) | Exit::Signalled(_) => Err(DriveError::ended(
                Doing::Bye,
                What::Ended(ended.exit),
                (pid, &ended),
            )),
        }
    }

    /// Ends it at once, without a word.
    ///
    /// # Errors
    /// When it can't be followed.
    pub fn stop(self) -> Result<Farewell, DriveError> {
        let ended = self.channel.end(0)?;
        Ok(Farewell {
            log: ended.stderr,
            exit: ended.exit,
            elapsed_ns: ended.elapsed_ns,
        })
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
            poison: self.introduction.poisons.then(|| poison(index)),
            cycles: ask.cycles,
        })
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

/// What storages are filled with before a case.
pub fn poison(index: u64) -> u8 {
    if index.is_multiple_of(2) {
        POISONS.0
    } else {
        POISONS.1
    }
}

/// Bytes kept of a program's stderr.
const LOG_BYTES_MAX: u64 = 1 << 20;
/// What storages are filled with before the case of an even index, and of an odd one.
const POISONS: (u8, u8) = (165, 90);
