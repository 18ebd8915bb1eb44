//! A binary64 as text, as records and pages have it.

/// The fewest decimal digits that read back to a number, of these the nearest ones, and of two that
/// are equally near the one whose last digit is even; without exponent, a zero before the point,
/// and no point where it is whole.
///
/// The language's own text takes the upper of two that are equally near, and others, CPython among
/// them, the even one.
pub fn shortest(value: f64) -> String {
    let upper = value.to_string();
    let places = upper.split_once('.').map_or(0, |(_, digits)| digits.len());
    // With a number of places it is rounded exactly, halves to even.
    let even = format!("{value:.places$}");
    match places > 0 && even.parse() == Ok(value) {
        true => even,
        false => upper,
    }
}

#[cfg(test)]
mod tests {
    use super::shortest;

    #[test]
    fn of_two_texts_that_are_equally_near_the_even_one_is_taken() {
        for (value, text) in [
            (2_f64.powi(-25), "0.000000029802322387695312"),
            (-(2_f64.powi(-25)), "-0.000000029802322387695312"),
            (89104.0 / 8_388_608.0, "0.010622024536132812"),
            (f64::from_bits(0x4317_dda2_da30_717d), "1679403994848351.2"),
            (0.3, "0.3"),
            (0.0, "0"),
            (31.0, "31"),
            (5e-324, &format!("0.{}5", "0".repeat(323))),
            (1e22, "10000000000000000000000"),
            (9_007_199_254_740_993.0, "9007199254740992"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(shortest(value), text);
        }
    }
}
