//! Tests against the stock engine.
