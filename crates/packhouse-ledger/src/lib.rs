//! The append-only ledger of a lab, and the state page made of it.
//!
//! Invariants:
//! - an entry is never changed: what was wrong is corrected by a later entry that points back;
//! - state is a pure function of the entries, and nothing else says what a packet may do next;
//! - what contradicts the entries before it is refused at reading and at appending, by one judge;
//! - an append is durable before it is reported.
//!
//! Never: believes `at_ns`, which is for people; repairs a line.
//!
//! Format: `docs/format/ledger.md`.

#![forbid(unsafe_code)]

pub mod act;
pub mod chain;
pub mod continues;
pub mod entry;
pub mod heads;
pub mod page;
pub mod state;
pub mod writer;

pub use act::{Act, LaneAction, Review, Stage, Verdict};
pub use chain::{Ledger, LedgerError};
pub use entry::{Entry, EntryFault};
pub use heads::Heads;
pub use state::{Contradiction, State};
pub use writer::{PacketHold, Writer, WriterError, is_packet_held};

/// The ledger's file in a lab's folder.
pub const LEDGER_FILE: &str = "ledger.jsonl";

/// The file beside it whose lock makes one writer of many.
pub const LOCK_FILE: &str = "ledger.lock";

/// The longest ledger that is read, in bytes.
pub const LEDGER_BYTES_MAX: u64 = 64 << 20;

/// The longest line, in bytes, with its newline.
pub const LINE_BYTES_MAX: usize = 1 << 20;
