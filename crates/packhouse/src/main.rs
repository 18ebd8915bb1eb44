//! The packhouse command.
fn main() {}
