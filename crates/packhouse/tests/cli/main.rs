//! The command from outside: exit codes, both streams, processes.
//!
//! `cargo xtask docs` writes the snapshots and `docs/cli.md` again; review the difference.

#![forbid(unsafe_code)]

mod children;
mod components;
mod docs;
mod equivalence;
mod fingerprint;
mod fixtures;
mod fleets;
mod focused;
mod heads;
mod held;
mod image_hints;
mod image_races;
mod image_refused;
mod image_world;
mod images;
mod inspect;
mod lab_documents;
mod lab_e2e;
mod lab_experiments;
mod lab_families;
mod lab_hosts;
mod lab_ledgers;
mod lab_manners;
mod lab_pages;
mod lab_runs;
mod lab_verify;
mod lab_withdraw;
mod model;
mod model_copies;
mod moving;
mod plans;
mod prepare;
mod proof;
mod registry;
mod run;
mod sandbox;
mod stage;
mod stop_at;
mod store;
mod usage;
mod worker_devices;
mod worker_edits;
mod worker_keepers;
mod worker_kills;
mod worker_starts;
mod worker_stops;
mod worker_systemd;
mod worker_tampered;
mod worker_words;
mod worker_world;
mod writers;
