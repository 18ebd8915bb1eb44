//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod cards;
mod devices;
mod families;
mod fleet;
mod fleet_host;
mod fleet_meaning;
mod fleet_properties;
mod fleet_render;
mod fleet_world;
mod holders;
mod locks;
mod logs;
mod masks;
mod processes;
mod records;
mod runs;
mod sockets;
mod started;
mod starts;
mod stops;
mod systemd;
