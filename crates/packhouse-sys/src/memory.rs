//! How much memory the host could give.

#![expect(
    clippy::disallowed_methods,
    reason = "/proc is asked by path; it is no stored byte"
)]

/// Bytes that could be used without pushing others out, by the kernel's estimate (`MemAvailable`);
/// `None` where it gives none.
pub fn available_bytes() -> Option<u64> {
    parse(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(listing: &str) -> Option<u64> {
    let rest = listing
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = rest.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_is_found_or_absent() {
        let listing = "MemTotal:       24684032 kB\nMemAvailable:   24043020 kB\n";
        assert_eq!(parse(listing), Some(24_043_020 * 1024));
        assert_eq!(parse("MemTotal: 1 kB\n"), None);
        assert_eq!(parse("MemAvailable: many kB\n"), None);
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
