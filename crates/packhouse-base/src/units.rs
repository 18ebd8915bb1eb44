//! Rendering of byte counts and durations for people.

/// Renders a byte count as `12 B`, `3.4 KiB`, `5.6 MiB` or `7.89 GiB`.
pub fn bytes(count: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    let tenths = |unit: u64| format!("{}.{}", count / unit, (count % unit) * 10 / unit);
    if count >= GIB {
        let hundredths = u128::from(count % GIB) * 100 / u128::from(GIB);
        format!("{}.{hundredths:02} GiB", count / GIB)
    } else if count >= MIB {
        format!("{} MiB", tenths(MIB))
    } else if count >= KIB {
        format!("{} KiB", tenths(KIB))
    } else {
        format!("{count} B")
    }
}

/// Renders nanoseconds as `12 ms`, `3.4 s` or `567 us`.
pub fn duration_ns(ns: u64) -> String {
    match ns {
        0..1_000_000 => format!("{} us", ns / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!(
            "{}.{} s",
            ns / 1_000_000_000,
            ns % 1_000_000_000 / 100_000_000
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_read_as_people_write_them() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1536), "1.5 KiB");
        assert_eq!(bytes(98_362_432), "93.8 MiB");
        assert_eq!(bytes(3 << 30), "3.00 GiB");
        assert_eq!(bytes(u64::MAX), "17179869183.99 GiB");
        assert_eq!(duration_ns(3_000_000), "3 ms");
        assert_eq!(duration_ns(1_250_000_000), "1.2 s");
    }
}
