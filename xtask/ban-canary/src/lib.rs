//! Breaks each kind of ban once.

/// Does what no library crate may.
pub fn breaks() -> std::collections::HashMap<[u8; size_of::<usize>()], std::time::Instant> {
    println!("{:?} {:?}", std::fs::read("a"), std::env::var("A"));
    if std::env::var("B").is_ok() {
        std::process::exit(1);
    }
    [(1usize.to_le_bytes(), std::time::Instant::now())].into()
}
