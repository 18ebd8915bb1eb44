//! Head-tile images from outside.

#![forbid(unsafe_code)]
