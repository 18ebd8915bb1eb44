//! Exactness and statistics: pure functions of evidence.

#![forbid(unsafe_code)]
