//! Slot formulas: integer arithmetic on what a tensor's name holds, and nothing else.
//!
//! ```text
//! sum     = product, { ("+" | "-"), product } ;
//! product = atom, { "*", atom } ;
//! atom    = number | variable | "(", sum, ")" ;
//! number  = "0" | non-zero digit, { digit } ;
//! variable = "index" | capture name | "$", number ;
//! ```
//!
//! Invariants:
//! - every intermediate value fits an i64, and the result is 0 to `SLOT_MAX`; anything else is an
//!   error, never a wrapped value;
//! - evaluation takes time in proportion to the formula's bytes and a bounded stack.

use super::limits::{FORMULA_BYTES_MAX, FORMULA_DEPTH_MAX, SLOT_MAX};
use std::fmt;

/// The variable that is a tensor's place in its container's tensor directory.
pub const INDEX: &str = "index";

/// A parsed slot formula.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Formula {
    text: String,
    root: Node,
}

/// What a formula may stand on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Variable {
    /// The tensor's place in the directory of its container, shards in order, from 0.
    Index,
    /// A capture of the name pattern.
    Capture(Capture),
}

/// A capture of a name pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Capture {
    /// `(?<name>...)`, written `name`.
    Named(String),
    /// The group of this number, written `$1`.
    Numbered(usize),
}

/// Why a text is no formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormulaError {
    /// Longer than the limit.
    #[error("{bytes} bytes, at most {FORMULA_BYTES_MAX} are read")]
    TooLong {
        /// Its length.
        bytes: usize,
    },
    /// Parentheses within parentheses, deeper than the limit.
    #[error("parentheses are deeper than {FORMULA_DEPTH_MAX} at byte {offset}")]
    TooDeep {
        /// Where.
        offset: usize,
    },
    /// Something else than the grammar wants.
    #[error("at byte {offset}: expected {expected}, found {found:?}")]
    Unexpected {
        /// Where, from 0.
        offset: usize,
        /// What the grammar wants there.
        expected: &'static str,
        /// The rest of the text, cut to 20 characters; empty at the end.
        found: String,
    },
    /// A number that no i64 holds.
    #[error("at byte {offset}: the number is larger than {}", i64::MAX)]
    Number {
        /// Where, from 0.
        offset: usize,
    },
}

/// Why a formula gives no slot.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SlotError {
    /// An intermediate value leaves the range of i64.
    #[error("{left} {operator} {right} passes 64 bits")]
    Overflow {
        /// Left operand.
        left: i64,
        /// `+`, `-` or `*`.
        operator: char,
        /// Right operand.
        right: i64,
    },
    /// A variable is larger than an i64.
    #[error("{variable} is {value}, more than {}", i64::MAX)]
    Variable {
        /// The variable.
        variable: Variable,
        /// Its value.
        value: u64,
    },
    /// The result is negative.
    #[error("the result is {value}, and no slot is negative")]
    Negative {
        /// The result.
        value: i64,
    },
    /// The result is larger than any slot.
    #[error("the result is {value}, and the highest slot is {SLOT_MAX}")]
    TooLarge {
        /// The result.
        value: i64,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Number(i64),
    Variable(Variable),
    Operation(Box<Node>, Operator, Box<Node>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
}

impl Formula {
    /// Parses a formula. Errors with the byte and what was expected there.
    pub fn parse(text: &str) -> Result<Self, FormulaError> {
        if text.len() > FORMULA_BYTES_MAX {
            return Err(FormulaError::TooLong { bytes: text.len() });
        }
        let mut parser = Parser {
            text,
            offset: 0,
            depth: 0,
        };
        let root = parser.sum()?;
        if parser.peek().is_some() {
            return Err(parser.unexpected("+, -, * or the end"));
        }
        Ok(Self {
            text: text.to_owned(),
            root,
        })
    }

    /// The formula as written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The variables in it, each once.
    pub fn variables(&self) -> Vec<&Variable> {
        let mut found = Vec::new();
        self.root.visit(&mut |variable| found.push(variable));
        found.sort();
        found.dedup();
        found
    }

    /// Computes the slot. `value` gives a variable's value. Errors when a value passes 64 bits or
    /// the result is no slot.
    pub fn slot(&self, value: &dyn Fn(&Variable) -> u64) -> Result<u64, SlotError> {
        let result = self.root.evaluate(value)?;
        let slot = u64::try_from(result).map_err(|_| SlotError::Negative { value: result })?;
        if slot > SLOT_MAX {
            return Err(SlotError::TooLarge { value: result });
        }
        Ok(slot)
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index => f.write_str(INDEX),
            Self::Capture(capture) => capture.fmt(f),
        }
    }
}

impl Capture {
    /// Parses `name` or `$1`. `None` for anything else, and for `index`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(digits) = text.strip_prefix('$') {
            let number = decimal(digits)?;
            let number = usize::try_from(number).ok().filter(|number| *number > 0)?;
            return Some(Self::Numbered(number));
        }
        let mut bytes = text.bytes();
        let starts = bytes
            .next()
            .is_some_and(|byte| byte.is_ascii_lowercase() || byte == b'_');
        let goes_on = bytes.all(is_name_byte);
        (starts && goes_on && text != INDEX).then(|| Self::Named(text.to_owned()))
    }
}

impl fmt::Display for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Numbered(number) => write!(f, "${number}"),
        }
    }
}

/// Parses a decimal number in its shortest form: digits without a leading zero.
pub fn decimal(text: &str) -> Option<u64> {
    let is_short = text == "0" || !text.starts_with('0');
    let is_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if is_short && is_digits {
        text.parse().ok()
    } else {
        None
    }
}

impl Node {
    fn visit<'a>(&'a self, visitor: &mut impl FnMut(&'a Variable)) {
        match self {
            Self::Number(_) => {}
            Self::Variable(variable) => visitor(variable),
            Self::Operation(left, _, right) => {
                left.visit(visitor);
                right.visit(visitor);
            }
        }
    }

    fn evaluate(&self, value: &dyn Fn(&Variable) -> u64) -> Result<i64, SlotError> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Variable(variable) => {
                let value = value(variable);
                i64::try_from(value).map_err(|_| SlotError::Variable {
                    variable: variable.clone(),
                    value,
                })
            }
            Self::Operation(left, operator, right) => {
                let (left, right) = (left.evaluate(value)?, right.evaluate(value)?);
                operator
                    .apply(left, right)
                    .ok_or_else(|| SlotError::Overflow {
                        left,
                        operator: operator.sign(),
                        right,
                    })
            }
        }
    }
}

impl Operator {
    const fn apply(self, left: i64, right: i64) -> Option<i64> {
        match self {
            Self::Add => left.checked_add(right),
            Self::Subtract => left.checked_sub(right),
            Self::Multiply => left.checked_mul(right),
        }
    }

    const fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
        }
    }
}

/// Recursive descent; its depth is bounded by the parentheses and its trees by the text's length.
struct Parser<'a> {
    text: &'a str,
    offset: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn sum(&mut self) -> Result<Node, FormulaError> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some(b'+') => Operator::Add,
                Some(b'-') => Operator::Subtract,
                Some(_) | None => return Ok(left),
            };
            self.offset += 1;
            left = Node::Operation(Box::new(left), operator, Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Node, FormulaError> {
        let mut left = self.atom()?;
        while self.peek() == Some(b'*') {
            self.offset += 1;
            let right = Box::new(self.atom()?);
            left = Node::Operation(Box::new(left), Operator::Multiply, right);
        }
        Ok(left)
    }

    fn atom(&mut self) -> Result<Node, FormulaError> {
        match self.peek() {
            Some(b'(') => {
                if self.depth == FORMULA_DEPTH_MAX {
                    return Err(FormulaError::TooDeep {
                        offset: self.offset,
                    });
                }
                self.depth += 1;
                self.offset += 1;
                let inner = self.sum()?;
                if self.peek() != Some(b')') {
                    return Err(self.unexpected("+, -, * or )"));
                }
                self.offset += 1;
                self.depth -= 1;
                Ok(inner)
            }
            Some(byte) if byte.is_ascii_digit() => self.number(),
            Some(byte) if is_name_byte(byte) || byte == b'$' => self.variable(),
            Some(_) | None => Err(self.unexpected("a number, a capture, index or (")),
        }
    }

    fn number(&mut self) -> Result<Node, FormulaError> {
        let start = self.offset;
        let digits = self.word(|byte| byte.is_ascii_digit());
        if digits.len() > 1 && digits.starts_with('0') {
            self.offset = start;
            return Err(self.unexpected("a number without leading zeros"));
        }
        digits
            .parse()
            .map(Node::Number)
            .map_err(|_| FormulaError::Number { offset: start })
    }

    fn variable(&mut self) -> Result<Node, FormulaError> {
        let start = self.offset;
        let word = self.word(|byte| is_name_byte(byte) || byte == b'$');
        if word == INDEX {
            return Ok(Node::Variable(Variable::Index));
        }
        match Capture::parse(word) {
            Some(capture) => Ok(Node::Variable(Variable::Capture(capture))),
            None => {
                self.offset = start;
                Err(self.unexpected("a capture like layer or $1"))
            }
        }
    }

    /// Takes the bytes that belong to a word; all of them are ASCII.
    fn word(&mut self, belongs: impl Fn(u8) -> bool) -> &'a str {
        let rest = &self.text[self.offset..];
        let length = rest.bytes().take_while(|byte| belongs(*byte)).count();
        self.offset += length;
        &rest[..length]
    }

    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.offset..];
        let blanks = rest.iter().take_while(|byte| **byte == b' ').count();
        self.offset += blanks;
        rest.get(blanks).copied()
    }

    fn unexpected(&mut self, expected: &'static str) -> FormulaError {
        self.peek();
        let rest = self.text.get(self.offset..).unwrap_or_default();
        FormulaError::Unexpected {
            offset: self.offset,
            expected,
            found: rest.chars().take(20).collect(),
        }
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'
}
