//! A ledger at hand, for rules that ask it.

use crate::desk::{Desk, RECIPES};
use crate::documents::LANE;
use packhouse_base::digest::Digest;
use packhouse_lab::register::{self, RegisterError};
use packhouse_ledger::act::{Genesis, Lane, LaneAction, Name, Rehearsed};
use packhouse_ledger::{Act, Stage, Writer};
use packhouse_sys::clock::Clock as _;

impl Desk {
    /// A lab with a ledger whose lane is open.
    pub(crate) fn open() -> (Self, Writer) {
        let desk = Self::new();
        let genesis = Genesis {
            lab: "a lab".to_owned(),
            id: Digest::of(b"lab"),
        };
        let root = desk.dir("/home/user/lab");
        let clock = desk.clock.as_ref();
        let writer = Writer::init(&root, clock, genesis, clock.wall_ns(), &desk.host.boot);
        let mut writer = writer.expect("because there is none");
        desk.enter(
            &mut writer,
            Lane {
                lane: Name::parse("fast").expect("because it is one"),
                action: LaneAction::Open,
                reason: "it begins".to_owned(),
                document: Some(Digest::of(LANE.as_bytes())),
                until: None,
            },
        );
        (desk, writer)
    }

    /// A lab whose experiment is registered.
    pub(crate) fn registered() -> (Self, Writer, Digest) {
        let (desk, mut writer) = Self::open();
        let packet = desk
            .register(&mut writer)
            .expect("because nothing stands against it");
        (desk, writer, packet)
    }

    /// Registers the experiment as the command does.
    pub(crate) fn register(&self, writer: &mut Writer) -> Result<Digest, RegisterError> {
        let plan = self.with(|lab| {
            let plan = register::plan(lab, writer.ledger(), "one", &RECIPES)?;
            register::write(lab, &plan).map(|()| plan)
        })?;
        self.enter(writer, plan.act.clone());
        Ok(plan.act.packet)
    }

    /// Enters an act now.
    pub(crate) fn enter(&self, writer: &mut Writer, act: impl Into<Act>) -> u64 {
        let entered = writer.append(act, self.clock.wall_ns(), &self.host.boot);
        entered.expect("because nothing stands against it").index
    }

    /// A rehearsal of a packet, green or not, by the program of this host.
    pub(crate) fn rehearsal(&self, packet: Digest, green: bool) -> Rehearsed {
        let some = green.then(|| Digest::of(b"evidence"));
        Rehearsed {
            packet,
            green,
            stage: (!green).then_some(Stage::Hello),
            reason: if green {
                String::new()
            } else {
                "no answer".to_owned()
            },
            bag: some,
            analysis: some,
            analyzer: self.host.analyzer,
            tampers: 2,
            rejected: 2,
            elapsed_ns: 1,
            detectable_ns: None,
        }
    }
}
