//! Seeded synthetic models that a stock engine loads and runs.
