//! The identity of a build.
