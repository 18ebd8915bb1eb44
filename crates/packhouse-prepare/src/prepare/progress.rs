//! What a long command tells while it runs.

/// Hears how far a prepare or a repair is. Called from many threads, never under a lock of ours.
pub trait Progress: Sync {
    /// Something happened.
    fn hear(&self, event: Event<'_>);
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A phase began, with so many bytes ahead.
    Begin {
        /// What is done.
        phase: Phase,
        /// Bytes to do.
        total_bytes: u64,
    },
    /// Bytes of the phase were done.
    Done {
        /// How many.
        bytes: u64,
    },
    /// This tensor is at hand.
    Tensor {
        /// Its name.
        name: &'a str,
    },
    /// Another process makes what is wanted; it is waited for.
    Waits {
        /// For what.
        what: &'a str,
    },
}

/// A phase of a long command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Objects are looked up, and hashed where no receipt speaks for them.
    Look,
    /// The model is read, hashed, packed and stored.
    Pack,
    /// Objects are hashed.
    Verify,
    /// Objects are copied to or from elsewhere.
    Copy,
}

/// Hears nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Progress for Quiet {
    fn hear(&self, _event: Event<'_>) {}
}
