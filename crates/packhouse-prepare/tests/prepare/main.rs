//! The integration tests of packhouse-prepare: one binary, one module per subject.

#![forbid(unsafe_code)]

mod bundle_crash;
mod bundle_oracle;
mod bundle_readers;
mod bundles;
mod foreign_crash;
mod foreign_dirs;
mod foreign_manifests;
mod foreign_source;
mod foreign_tamper;
mod foreign_world;
mod heads;
mod plan_contradictions;
mod plan_documented;
mod plan_grammar;
mod plan_oracle;
mod plan_properties;
mod plan_qwen27;
mod plan_select;
mod plan_world;
mod prepare_crash;
mod prepare_faults;
mod prepare_runs;
mod prepare_world;
mod proofs;
mod registry_crash;
mod registry_payload;
mod registry_tamper;
mod registry_world;
mod repair_tamper;
mod store_fixture;
mod xe2_m6_v2_vectors;
mod xe2_oracle;
