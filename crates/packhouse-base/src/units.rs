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

/// Renders nanoseconds in seconds, with as many digits as say something: `600 s`, `1.9 s`,
/// `0.0123 s`.
/// At most three digits stand behind the first one that is not 0, and no more than one from 1 s on;
/// what is cut off is no more than that.
pub fn seconds(ns: u64) -> String {
    let (whole, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
    let digits = format!("{rest:09}");
    let zeros = digits.len() - digits.trim_start_matches('0').len();
    let kept = if whole > 0 { 1 } else { zeros + 3 };
    let digits = digits[..kept.min(9)].trim_end_matches('0');
    match digits {
        "" => format!("{whole} s"),
        digits => format!("{whole}.{digits} s"),
    }
}

/// Renders an age as `5 s`, `12 min 3 s`, `4 h 20 min` or `3 d 7 h`.
pub fn age(seconds: u64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{minutes} min {} s", seconds % 60),
        3_600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", hours / 24, hours % 24),
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
        assert_eq!(age(0), "0 s");
        assert_eq!(age(59), "59 s");
        assert_eq!(age(723), "12 min 3 s");
        assert_eq!(age(3_599), "59 min 59 s");
        assert_eq!(age(3_600), "1 h 0 min");
        assert_eq!(age(86_399), "23 h 59 min");
        assert_eq!(age(284_400), "3 d 7 h");
    }
}
