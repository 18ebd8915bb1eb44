//! The lines of a leg as sessions: who was asked what, and what came of it.

use crate::evidence::{Event, Failure, Line, SeenRecord};
use crate::prereg::Treatment;
use packhouse_component::message::{
    Answer, CaseOrder, Declined, Greeting, Introduction, PROTOCOL, Reply, Request,
};

/// One program's part of a leg.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    /// The controller's hello, and the number of its line.
    pub(crate) greeting: Option<(u64, Greeting)>,
    /// The program's hello, and the number of its line.
    pub(crate) introduction: Option<(u64, Introduction)>,
    /// The cases that were asked.
    pub(crate) turns: Vec<Turn>,
    /// How it ended.
    pub(crate) end: Option<String>,
    expects: Expects,
}

/// One case that was asked.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    /// The number of its line.
    pub(crate) line: u64,
    /// When it was asked, steady nanoseconds since the leg's start.
    pub(crate) asked_ns: u64,
    /// What was asked.
    pub(crate) order: CaseOrder,
    /// What came back.
    pub(crate) reply: Option<TurnReply>,
    /// What was seen then.
    pub(crate) seen: Option<SeenRecord>,
}

/// What came back to a case.
#[derive(Clone, Debug)]
pub(crate) struct TurnReply {
    /// The number of its line.
    pub(crate) line: u64,
    /// When it came.
    pub(crate) at_ns: u64,
    /// What it says.
    pub(crate) said: Said,
}

/// An answer, or that there is none.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Answer(Box<Answer>),
    Declined(Declined),
}

/// What the next line of a session can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expects {
    #[default]
    Greeting,
    Introduction,
    CaseOrBye,
    Reply,
    Seen,
    End,
    Nothing,
}

impl Session {
    /// The program's hello.
    pub(crate) fn introduced(&self) -> Option<&Introduction> {
        self.introduction
            .as_ref()
            .map(|(_, introduction)| introduction)
    }

    /// Whether a line is of it.
    pub(crate) fn has_begun(&self) -> bool {
        self.greeting.is_some() || self.end.is_some()
    }

    /// Whether it ended as it should.
    pub(crate) fn said_bye(&self) -> bool {
        self.end.as_deref() == Some(BYE)
    }

    /// Takes the next line in; says what it can't be.
    fn take(&mut self, number: u64, line: Line) -> Result<(), &'static str> {
        let at_ns = line.at_ns;
        if self.expects != Expects::Nothing
            && let Event::End(text) = line.event
        {
            self.end = Some(text);
            self.expects = Expects::Nothing;
            return Ok(());
        }
        match (self.expects, line.event) {
            (Expects::Greeting, Event::Asked(request)) => {
                let Request::Hello(greeting) = *request else {
                    return Err("a session begins with hello");
                };
                self.greeting = Some((number, greeting));
                self.expects = Expects::Introduction;
                Ok(())
            }
            (Expects::Introduction, Event::Said(reply)) => {
                let Reply::Hello(introduction) = *reply else {
                    return Err("the first answer is hello");
                };
                self.introduction = Some((number, introduction));
                self.expects = Expects::CaseOrBye;
                Ok(())
            }
            (Expects::CaseOrBye, Event::Asked(request)) => self.ask(number, at_ns, *request),
            (Expects::Reply, Event::Said(reply)) => self.reply(number, at_ns, *reply),
            (Expects::Seen, Event::Seen(seen)) => {
                if let Some(turn) = self.turns.last_mut() {
                    turn.seen = Some(seen);
                }
                self.expects = Expects::CaseOrBye;
                Ok(())
            }
            (Expects::Nothing, _) => Err("the session has ended"),
            (Expects::Greeting, _) => Err("a session begins with hello"),
            (Expects::Introduction, _) => Err("the program's hello comes next"),
            (Expects::CaseOrBye, _) => Err("a case, bye or the end comes next"),
            (Expects::Reply, _) => Err("an answer comes next"),
            (Expects::Seen, _) => Err("what was seen comes next"),
            (Expects::End, _) => Err("after bye only the end comes"),
        }
    }

    fn ask(&mut self, line: u64, asked_ns: u64, request: Request) -> Result<(), &'static str> {
        match request {
            Request::Case(order) => {
                self.turns.push(Turn {
                    line,
                    asked_ns,
                    order,
                    reply: None,
                    seen: None,
                });
                self.expects = Expects::Reply;
                Ok(())
            }
            Request::Bye => {
                self.expects = Expects::End;
                Ok(())
            }
            Request::Hello(_) => Err("a session has one hello"),
        }
    }

    fn reply(&mut self, line: u64, at_ns: u64, reply: Reply) -> Result<(), &'static str> {
        let said = match reply {
            Reply::Answer(answer) => Said::Answer(Box::new(answer)),
            Reply::Declined(declined) => Said::Declined(declined),
            Reply::Hello(_) => return Err("a session has one hello"),
        };
        if let Some(turn) = self.turns.last_mut() {
            turn.reply = Some(TurnReply { line, at_ns, said });
        }
        self.expects = Expects::Seen;
        Ok(())
    }
}

/// The sessions of a leg, `control` first. Lines that can't be where they are make a failure each,
/// and are passed over.
pub(crate) fn sessions(
    path: &str,
    lines: &[(u64, Line)],
    failures: &mut Vec<Failure>,
) -> [(Treatment, Session); 2] {
    let mut sessions =
        [Treatment::Control, Treatment::Candidate].map(|treatment| (treatment, Session::default()));
    let mut latest_ns = 0;
    for (number, line) in lines {
        let mut fail = |words: String| {
            failures.push(Failure::new("leg.order", format!("{path}:{number}"), words));
        };
        if line.at_ns < latest_ns {
            fail(format!(
                "at {} ns, behind a line at {latest_ns} ns",
                line.at_ns
            ));
        }
        latest_ns = latest_ns.max(line.at_ns);
        for (treatment, session) in &mut sessions {
            if *treatment == line.treatment
                && let Err(words) = session.take(*number, line.clone())
            {
                fail(words.to_owned());
            }
        }
    }
    for (_, session) in &sessions {
        protocol(path, session, failures);
    }
    sessions
}

/// Both sides speak this protocol.
fn protocol(path: &str, session: &Session, failures: &mut Vec<Failure>) {
    let greeting = session.greeting.iter();
    let greeting = greeting.map(|(line, greeting)| (line, &greeting.protocol));
    let introduction = session.introduction.iter();
    let introduction = introduction.map(|(line, hello)| (line, &hello.protocol));
    for (line, protocol) in greeting.chain(introduction) {
        if protocol != PROTOCOL {
            let words = format!("protocol {protocol:?}, expected {PROTOCOL:?}");
            failures.push(Failure::new("leg.message", format!("{path}:{line}"), words));
        }
    }
}

/// How a session ends as it should.
pub(crate) const BYE: &str = "bye";
