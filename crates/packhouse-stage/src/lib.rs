//! Stages: verified copies of sets in RAM, searched before the store.

#![forbid(unsafe_code)]
