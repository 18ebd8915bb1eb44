//! Campaigns: lanes, preregistrations, packets, markers, legs, analysis.

#![forbid(unsafe_code)]
