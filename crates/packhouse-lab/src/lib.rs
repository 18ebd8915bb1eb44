//! Campaigns: lanes, preregistrations, packets, markers, legs, analysis.
//!
//! - `lane`, `prereg`, `packet`: the documents, parsed strictly; `name`: what they may name;
//! - `schedule`, `recipes`: what a run asks, shared by who runs and who judges;
//! - `evidence`, `analysis`: a bag as records, and what is made of it; `unequal`: where a tensor is
//!   another one; `contrast`: what control and candidate differ in;
//! - `campaign`: rehearsals and runs; `recovery`: what a killed run left; `sessions`: programs;
//! - `world`: what is asked of the host, as traits.
//!
//! Never: prints, reads the environment. Specified in `docs/format/lab.md`, `evidence.md`.

#![forbid(unsafe_code)]

pub mod analysis;
pub mod campaign;
pub mod contrast;
mod document;
pub mod evidence;
pub mod freeze;
pub mod gates;
pub mod lane;
pub mod marker;
pub mod name;
pub mod nearest;
pub mod noise;
pub mod packet;
pub mod prereg;
pub mod recipes;
mod record;
pub mod recovery;
pub mod register;
pub mod rehearsal;
pub mod review;
pub mod schedule;
pub mod sessions;
pub mod tamper;
pub mod unequal;
pub mod verify;
pub mod withdraw;
pub mod world;

pub use analysis::Analysis;
pub use document::{DOCUMENT_BYTES_MAX, DocumentError, Stranger};
pub use lane::Lane;
pub use packet::Packet;
pub use prereg::Prereg;
