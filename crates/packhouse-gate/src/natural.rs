//! Whole numbers of any size, for counts of outcomes and sums of squares that must not round.

use std::cmp::Ordering;

/// A whole number of any size, in digits of 32 bits, the least first, without zeros at its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Natural(Vec<u32>);

impl Natural {
    pub(crate) const ZERO: Self = Self(Vec::new());

    pub(crate) fn of(value: u64) -> Self {
        let mut natural = Self(vec![low(value), low(value >> 32)]);
        natural.trim();
        natural
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let longest = self.0.len().max(other.0.len());
        self.0.resize(longest, 0);
        let mut carry = 0;
        for (index, digit) in self.0.iter_mut().enumerate() {
            let sum = u64::from(*digit) + u64::from(other.digit(index)) + carry;
            *digit = low(sum);
            carry = sum >> 32;
        }
        self.push(carry);
    }

    /// Takes `other` away, which is not larger.
    pub(crate) fn subtract(&mut self, other: &Self) {
        let mut borrow = 0;
        for (index, digit) in self.0.iter_mut().enumerate() {
            let taken = u64::from(other.digit(index)) + borrow;
            let rest = (1 << 32) + u64::from(*digit) - taken;
            *digit = low(rest);
            borrow = u64::from(rest >> 32 == 0);
        }
        assert_eq!(borrow, 0, "because what is taken away is not larger");
        self.trim();
    }

    /// Multiplies by a number below 2^32.
    pub(crate) fn multiply_small(&mut self, factor: u64) {
        let mut carry = 0;
        for digit in &mut self.0 {
            let product = u64::from(*digit) * factor + carry;
            *digit = low(product);
            carry = product >> 32;
        }
        self.push(carry);
        self.trim();
    }

    /// Divides by a number below 2^32 and gives what remains.
    pub(crate) fn divide_small(&mut self, divisor: u64) -> u64 {
        let mut rest = 0;
        for digit in self.0.iter_mut().rev() {
            let part = rest << 32 | u64::from(*digit);
            *digit = low(part / divisor);
            rest = part % divisor;
        }
        self.trim();
        rest
    }

    pub(crate) fn times(&self, other: &Self) -> Self {
        let mut product = Self::ZERO;
        for (index, digit) in self.0.iter().enumerate() {
            let mut row = other.clone();
            row.multiply_small(u64::from(*digit));
            row.shift_left(32 * index as u64);
            product.add(&row);
        }
        product
    }

    pub(crate) fn shift_left(&mut self, bits: u64) {
        if self.is_zero() {
            return;
        }
        self.multiply_small(1 << (bits % 32));
        let zeros = usize::try_from(bits / 32).expect("because shifts are some thousand bits");
        self.0.splice(0..0, std::iter::repeat_n(0, zeros));
    }

    /// Bits up to the highest that is set; 0 for zero.
    pub(crate) fn bits(&self) -> u64 {
        match self.0.last() {
            Some(digit) => 32 * self.0.len() as u64 - u64::from(digit.leading_zeros()),
            None => 0,
        }
    }

    /// Whether the bit of this weight is set.
    pub(crate) fn has_bit(&self, bit: u64) -> bool {
        let index = usize::try_from(bit / 32).expect("because numbers are some thousand bits");
        self.digit(index) >> (bit % 32) & 1 == 1
    }

    pub(crate) fn compare(&self, other: &Self) -> Ordering {
        let lengths = self.0.len().cmp(&other.0.len());
        lengths.then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }

    /// Its highest bits, at most 96, how many are below them, and whether any of those is set.
    pub(crate) fn top(&self) -> (u128, u64, bool) {
        let below = self.0.len().saturating_sub(3);
        let (rest, digits) = self.0.split_at(below);
        let top = digits.iter().rev();
        let top = top.fold(0, |top, digit| top << 32 | u128::from(*digit));
        (top, 32 * below as u64, rest.iter().any(|digit| *digit != 0))
    }

    /// It times 2^exponent, rounded once to the nearest binary64. The result is in the normal
    /// range, or it is zero.
    pub(crate) fn scaled(&self, exponent: i64) -> f64 {
        let (top, below, is_more) = self.top();
        // The conversion rounds to nearest even; where bits are below, `top` has 65 or more, so its
        // last is beneath all that is kept, and only breaks ties.
        let rounded = (top | u128::from(is_more)) as f64;
        let exponent = i64::try_from(below).map(|below| below + exponent);
        let exponent = exponent.ok().and_then(|it| i32::try_from(it).ok());
        libm::ldexp(rounded, exponent.expect("because both are some thousands"))
    }

    fn digit(&self, index: usize) -> u32 {
        self.0.get(index).copied().unwrap_or(0)
    }

    fn push(&mut self, carry: u64) {
        if carry != 0 {
            self.0.push(low(carry));
        }
    }

    fn trim(&mut self) {
        while self.0.last() == Some(&0) {
            self.0.pop();
        }
    }
}

fn low(value: u64) -> u32 {
    u32::try_from(value & 0xffff_ffff).expect("because it is 32 bits")
}
