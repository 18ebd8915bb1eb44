//! Head-tile images from outside.

#![forbid(unsafe_code)]

mod collect;
mod disk;
mod folder;
mod owners;
mod publish_crash;
mod room;
mod upkeep_crash;
