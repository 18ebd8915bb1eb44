//! Gives the shared library the name by which programs ask for it: the one of its interface's
//! version, so that a program finds no library of another interface in its place.

use std::io::{self, Write as _};

const VERSION_SOURCE: &str = include_str!("src/version.rs");

fn main() -> io::Result<()> {
    let (_, rest) = VERSION_SOURCE
        .split_once("PACKHOUSE_ABI_VERSION: u32 = ")
        .expect("because the constant is there");
    let (abi, _) = rest.split_once(';').expect("because a constant ends");
    let argument = format!("-Wl,-soname,libpackhouse.so.{abi}");
    let mut orders = io::stdout().lock();
    writeln!(orders, "cargo::rerun-if-changed=src/version.rs")?;
    writeln!(orders, "cargo::rustc-cdylib-link-arg={argument}")
}
