//! Objects, packs, sets, publish, verify, receipts, source ledger, gc

pub mod container_record;
pub mod fields;
pub mod gc_plan;
pub mod ledger;
pub mod manifest;
pub mod percent;
pub mod receipt;
pub mod record;
pub mod state;
pub mod use_log;
