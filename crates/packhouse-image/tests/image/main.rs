//! Head-tile images from outside.

#![forbid(unsafe_code)]

mod disk;
mod folder;
mod owners;
mod publish_crash;
