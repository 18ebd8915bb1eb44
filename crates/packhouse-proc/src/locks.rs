//! The right to look at devices and start something on them: one lock per device.
//!
//! Invariants:
//! - a device is locked for this user in the state folder, and for the whole machine on its own
//!   sysfs file, where it has one; both go with their descriptors, at death too;
//! - locks are taken in one order by everybody, so that nobody waits in a circle;
//! - sets of cores are locked core by core, as they overlap, and a part of a card with its card.
//!
//! Never: waits without a bound. Design: `docs/design/holders.md`.
