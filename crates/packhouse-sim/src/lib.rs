//! A file system in memory that can be stopped, crashed and broken, and a clock that never waits.
//!
//! # The fault model
//!
//! The machine has one file system and one process at a time. Each operation that changes something
//! (make, write, write out, sync, link, rename, remove, set length or mode) is **counted**. A test
//! runs a piece of work once to learn its count, then once for every `k`, with a fault at the
//! `k`-th operation:
//!
//! - **Stop**: the operation and everything after it fail with `Stopped`; the process is as good as
//!   dead. `SimFs::crash` then says what the disk holds when the machine starts again.
//! - **Error**: the operation fails with an errno and the process goes on: once, or from then on
//!   for all operations that need space (a disk that became full; bytes that a file has can be
//!   replaced, as where file systems write in place). A sync that fails with EIO
//!   **loses** the unsynced writes of that file for good, though reads still show them: the kernel
//!   marks such pages clean.
//!
//! What survives a crash. A file's content is durable up to its last sync, a folder's entries up to
//! the folder's last sync, and neither implies the other: a name may be durable while the content
//! is not, which is the state that a missing file sync leaves. Owner, mode and times are durable
//! with the inode. What came after the last sync is *pending*, and a crash treats it in one of five
//! ways:
//!
//! - **Lost**: nothing pending survives.
//! - **Torn**: all pending entries survive; pending writes survive up to a random one, and of that
//!   one a random prefix.
//! - **Reordered**: each pending write and each pending entry survives or not by itself, and the
//!   writes that do are applied in random order; gaps read as zeros.
//! - **LostEntries**: all content survives, no pending entry does.
//! - **Kept**: everything survives: the process was killed and the machine ran on.
//!
//! A rename within one folder is one entry change. A rename between folders is two, which may
//! survive apart: worse than most file systems. `write_out` promises nothing. Files without a name
//! are gone after a crash, and so are all locks.
//!
//! Everything is deterministic by seed: random bytes, and what a crash keeps. Each operation takes
//! a microsecond of the `SimClock`; file times are cut to 4 ms as a kernel's coarse clock cuts
//! them.
//!
//! Tests also act as somebody else on the same disk: `edit`, `rot`, `replace`, `set_owner`,
//! `hard_link` and the others are not counted, always durable, and never refused.
//!
//! Never: used outside tests.

#![forbid(unsafe_code)]

mod clock;
mod disk;
mod handles;
mod machine;
mod random;

pub use clock::SimClock;
pub use handles::SimFs;
pub use machine::{Crash, Fault, Skip};
