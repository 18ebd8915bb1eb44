//! Objects, packs, sets, publish, verify, receipts, source ledger, gc

pub mod container_record;
pub mod fields;
pub mod manifest;
pub mod percent;
pub mod record;
