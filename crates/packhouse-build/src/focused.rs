//! Named test runs under a key.
