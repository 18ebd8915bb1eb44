//! Head-tile images from outside.

#![forbid(unsafe_code)]

mod collect;
mod disk;
mod folder;
mod header_bytes;
mod owners;
mod publish_crash;
mod room;
mod serve_life;
mod serve_modes;
mod serve_refusals;
mod serve_world;
mod serve_writes;
mod upkeep_crash;
