//! The append-only ledger of a lab, and the state page made of it.

#![forbid(unsafe_code)]
