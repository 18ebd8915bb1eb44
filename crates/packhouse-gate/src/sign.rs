//! The sign test: how often a fair coin would do as well. Exact: a count of outcomes over 2^n.

use crate::rational::Rational;

/// Pairs that a sign test takes at most: above, its smallest values leave binary64's normal range.
pub const MOST_PAIRS: u64 = 1000;

/// The outcome of a sign test. Its unit of analysis is whatever a pair is: say so beside it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SignTest {
    /// Pairs that differ in the direction hoped for.
    pub wins: u64,
    /// Pairs that differ in the other.
    pub losses: u64,
    /// P(at least this many wins) of a fair coin, rounded once.
    pub one_sided: f64,
    /// Twice the smaller tail, at most 1, rounded once.
    pub two_sided: f64,
}

/// Judges wins against losses; ties are in neither. `None` where they are more than `MOST_PAIRS`.
/// Without any pair both values are 1.
pub fn sign_test(wins: u64, losses: u64) -> Option<SignTest> {
    let pairs = wins
        .checked_add(losses)
        .filter(|pairs| *pairs <= MOST_PAIRS)?;
    let at_least = Outcomes::at_least(pairs, wins);
    let smaller = match wins >= losses {
        true => at_least.clone(),
        false => Outcomes::at_least(pairs, losses),
    };
    Some(SignTest {
        wins,
        losses,
        one_sided: at_least.over_power_of_two(pairs),
        two_sided: match wins == losses {
            true => 1.0,
            false => smaller.over_power_of_two(pairs - 1),
        },
    })
}

/// The least one-sided value that a test of two arms can give: one in all ways to choose which of
/// the units were the candidate's. `None` where that is more than 2^127.
pub fn least_attainable(control_units: u64, candidate_units: u64) -> Option<Rational> {
    let units = control_units.checked_add(candidate_units)?;
    let mut ways = 1_i128;
    for chosen in 0..control_units.min(candidate_units) {
        ways = ways.checked_mul(i128::from(units - chosen))? / i128::from(chosen + 1);
    }
    Rational::new(1, ways)
}

/// A whole number of any size, in digits of 32 bits, the least first.
#[derive(Clone, Debug)]
struct Outcomes(Vec<u32>);

impl Outcomes {
    /// In how many of the 2^pairs outcomes at least `wins` are won.
    fn at_least(pairs: u64, wins: u64) -> Self {
        let mut sum = Self(Vec::new());
        let mut ways = Self(vec![1]);
        // Ways to lose 0, 1, 2, ... of the pairs.
        for losses in 0..=pairs - wins {
            sum.add(&ways);
            ways.multiply(pairs - losses);
            ways.divide(losses + 1);
        }
        sum
    }

    fn add(&mut self, other: &Self) {
        let longest = self.0.len().max(other.0.len());
        self.0.resize(longest, 0);
        let mut carry = 0;
        for (index, digit) in self.0.iter_mut().enumerate() {
            let sum = u64::from(*digit) + carry + other.0.get(index).map_or(0, |it| u64::from(*it));
            *digit = low(sum);
            carry = sum >> 32;
        }
        self.push(carry);
    }

    fn multiply(&mut self, factor: u64) {
        let mut carry = 0;
        for digit in &mut self.0 {
            let product = u64::from(*digit) * factor + carry;
            *digit = low(product);
            carry = product >> 32;
        }
        self.push(carry);
    }

    fn divide(&mut self, divisor: u64) {
        let mut rest = 0;
        for digit in self.0.iter_mut().rev() {
            let part = rest << 32 | u64::from(*digit);
            *digit = low(part / divisor);
            rest = part % divisor;
        }
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }

    fn push(&mut self, carry: u64) {
        if carry != 0 {
            self.0.push(low(carry));
        }
    }

    /// It over 2^power, rounded once to the nearest binary64.
    fn over_power_of_two(&self, power: u64) -> f64 {
        let mut top = 0_u128;
        let mut taken = 0_u64;
        let mut is_more = false;
        for digit in self.0.iter().rev() {
            match taken {
                0..3 => {
                    top = top << 32 | u128::from(*digit);
                    taken += 1;
                }
                _ => is_more |= *digit != 0,
            }
        }
        let rounded = (top | u128::from(is_more)) as f64;
        let dropped = 32 * (self.0.len() as u64 - taken);
        scaled(rounded, dropped, power)
    }
}

/// `value * 2^raised / 2^lowered`, exactly: the result is in the normal range or zero.
fn scaled(value: f64, raised: u64, lowered: u64) -> f64 {
    let exponent = i32::try_from(raised).and_then(|up| Ok(up - i32::try_from(lowered)?));
    libm::ldexp(value, exponent.expect("because both are some thousands"))
}

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).expect("because it is 32 bits")
}
