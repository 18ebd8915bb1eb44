//! Traits Fs, Clock, Map and their real versions

pub mod map;
pub mod source_map;
pub mod thread;
