//! The C interface, from outside: the header, and C programs that use the library as engines do.
//! `scripts/capi.sh` runs all of it under sanitizers too.

mod calls;
mod header;
mod image_refusals;
mod images;
mod misuse;
mod prepared;
mod programs;
mod refusals;
mod render;
mod vectors;
mod world;
