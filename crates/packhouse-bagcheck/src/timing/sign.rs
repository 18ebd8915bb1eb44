//! The sign test, exact until it is rounded once: `docs/format/statistics.md`, section 3.1.

/// Returns the p of so many wins and losses as text.
pub(super) fn p(wins: u64, losses: u64) -> String {
    let n = wins + losses;
    let most = wins.max(losses);
    if wins == losses {
        return "1".to_owned();
    }
    // C(n, i) from i = 0 on, and the sum of those from `most` on.
    let mut binomial = Natural(vec![1]);
    let mut sum = Natural(vec![0]);
    for i in 0..=n {
        if i >= most {
            sum.add(&binomial);
        }
        binomial.multiply(n - i);
        binomial.divide(i + 1);
    }
    let halvings = i32::try_from(n).expect("because there are at most a thousand blocks") - 1;
    text(sum.over_power_of_two(halvings))
}

/// Returns the shortest digits that read back; of two that are equally near, those that end even.
fn text(value: f64) -> String {
    let shortest = format!("{value}");
    let places = shortest.split('.').nth(1).map_or(0, str::len);
    let rounded = format!("{value:.places$}");
    if rounded
        .parse::<f64>()
        .is_ok_and(|again| again.to_bits() == value.to_bits())
    {
        return rounded;
    }
    shortest
}

/// A natural number: its digits of 32 bits, least significant first.
struct Natural(Vec<u32>);

impl Natural {
    fn add(&mut self, other: &Self) {
        let mut carry = 0;
        let length = self.0.len().max(other.0.len());
        self.0.resize(length, 0);
        for (index, digit) in self.0.iter_mut().enumerate() {
            let sum = u64::from(*digit) + u64::from(*other.0.get(index).unwrap_or(&0)) + carry;
            *digit = low(sum);
            carry = sum >> 32;
        }
        if carry > 0 {
            self.0.push(low(carry));
        }
    }

    /// Multiplies by what fits 32 bits.
    fn multiply(&mut self, factor: u64) {
        let mut carry = 0;
        for digit in &mut self.0 {
            let product = u64::from(*digit) * factor + carry;
            *digit = low(product);
            carry = product >> 32;
        }
        if carry > 0 {
            self.0.push(low(carry));
        }
    }

    /// Divides by what fits 32 bits and leaves no rest.
    fn divide(&mut self, divisor: u64) {
        let mut rest = 0;
        for digit in self.0.iter_mut().rev() {
            let whole = rest << 32 | u64::from(*digit);
            *digit = low(whole / divisor);
            rest = whole % divisor;
        }
    }

    fn bit(&self, index: usize) -> bool {
        let digit = self.0.get(index / 32).copied().unwrap_or(0);
        digit >> (index % 32) & 1 == 1
    }

    /// Returns it divided by a power of two, rounded once: to nearest, halves to even.
    fn over_power_of_two(&self, halvings: i32) -> f64 {
        let length = (0..32 * self.0.len()).rev().find(|bit| self.bit(*bit));
        let Some(top) = length else {
            return 0.0;
        };
        let first = top.saturating_sub(52);
        let mut whole: u64 = 0;
        for index in (first..=top).rev() {
            whole = whole << 1 | u64::from(self.bit(index));
        }
        if first > 0 && self.bit(first - 1) {
            let is_above_half = (0..first - 1).any(|index| self.bit(index));
            whole += u64::from(is_above_half || whole % 2 == 1);
        }
        let first = i32::try_from(first).expect("because a sum has some thousand bits");
        whole as f64 * 2f64.powi(first - halvings)
    }
}

fn low(word: u64) -> u32 {
    u32::try_from(word & 0xffff_ffff).expect("because 32 bits are kept")
}

#[cfg(test)]
mod tests {
    #[test]
    fn known_values() {
        for (wins, losses, p) in [
            (0, 0, "1"),
            (5, 5, "1"),
            (1, 0, "1"),
            (5, 0, "0.0625"),
            (0, 5, "0.0625"),
            (10, 3, "0.09228515625"),
            (30, 1, "0.000000029802322387695312"),
            (0, 26, "0.000000029802322387695312"),
            (18, 5, "0.010622024536132812"),
            (5, 19, "0.006610751152038574"),
        ] {
            assert_eq!(super::p(wins, losses), p, "{wins} {losses}");
        }
        // 2 C(1000, 1000) / 2^1000, and a sum of many bits: both against exact fractions of Python.
        assert_eq!(super::p(1000, 0).parse::<f64>(), Ok(2f64.powi(-999)));
        assert_eq!(super::p(520, 480), "0.21744829320414094");
    }
}
