//! Objects, packs, sets, publish, verify, receipts, source ledger, gc
