//! Tests of the crate from outside.

#![forbid(unsafe_code)]

mod aborts;
mod analyses;
mod campaigns;
mod copied;
mod crash;
mod desk;
mod desk_ledger;
mod documents;
mod families;
mod finishing;
mod freezing;
mod judges;
mod killed;
mod known_before;
mod losses;
mod lost_packets;
mod maker;
mod markers;
mod names;
mod one_shot;
mod played;
mod reviewing;
mod tampers;
mod touched;
mod unequal;
mod withdrawing;
