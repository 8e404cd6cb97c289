//! What a filter is compiled to: a straight line of instructions over columns of values.
//!
//! Registers hold one value for each row of a batch. There are three files of them: numbers, texts and
//! truths. An instruction never writes a register that it reads.

use super::parse::Compare;
use memchr::memmem::Finder;
use regex::bytes::Regex;

/// A truth: the order makes `and` a minimum, `or` a maximum and `not` a difference.
pub(super) const FALSE: u8 = 0;
/// Neither true nor false, because a value is missing.
pub(super) const UNKNOWN: u8 = 1;
/// True.
pub(super) const TRUE: u8 = 2;

/// Where numbers come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Number {
    /// Schema index.
    Column(usize),
    Constant(f64),
    Register(usize),
}

/// Where texts come from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Text {
    /// Schema index.
    Column(usize),
    /// Index in [`Program::constants`].
    Constant(usize),
    Register(usize),
}

/// A function of one number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Negate,
    Abs,
    Sqrt,
    Floor,
    Ceil,
    Log,
    Log10,
    Exp,
}

impl Unary {
    /// `log`, `log10` and `exp` are computed in software, so that every machine says the same.
    pub(super) fn of(self, x: f64) -> f64 {
        match self {
            Unary::Negate => -x,
            Unary::Abs => x.abs(),
            Unary::Sqrt => x.sqrt(),
            Unary::Floor => x.floor(),
            Unary::Ceil => x.ceil(),
            Unary::Log => libm::log(x),
            Unary::Log10 => libm::log10(x),
            Unary::Exp => libm::exp(x),
        }
    }
}

/// A function of two numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
    Min,
    Max,
}

impl Binary {
    #[inline(always)]
    pub(super) fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Binary::Add => a + b,
            Binary::Subtract => a - b,
            Binary::Multiply => a * b,
            Binary::Divide => a / b,
            Binary::Remainder => a % b,
            // A NaN on either side wins, unlike in `f64::min`.
            Binary::Min if a.is_nan() || b.is_nan() => f64::NAN,
            Binary::Max if a.is_nan() || b.is_nan() => f64::NAN,
            // Of 0 and -0 the left one, on every machine.
            Binary::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Binary::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

impl Compare {
    #[inline(always)]
    pub(super) fn of_numbers(self, a: f64, b: f64) -> bool {
        match self {
            Compare::Eq => a == b,
            Compare::Ne => a != b,
            Compare::Lt => a < b,
            Compare::Le => a <= b,
            Compare::Gt => a > b,
            Compare::Ge => a >= b,
        }
    }

    #[inline(always)]
    pub(super) fn of_texts(self, a: &[u8], b: &[u8]) -> bool {
        match self {
            Compare::Eq => a == b,
            Compare::Ne => a != b,
            Compare::Lt => a < b,
            Compare::Le => a <= b,
            Compare::Gt => a > b,
            Compare::Ge => a >= b,
        }
    }
}

/// Where one text is looked for in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Find {
    Starts,
    Ends,
    Contains,
}

/// One step; `to` is the register it fills.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Unary {
        f: Unary,
        a: Number,
        to: usize,
    },
    Binary {
        f: Binary,
        a: Number,
        b: Number,
        to: usize,
    },
    Len {
        a: Text,
        to: usize,
    },
    Lower {
        a: Text,
        to: usize,
    },
    CompareNumbers {
        f: Compare,
        a: Number,
        b: Number,
        to: usize,
    },
    CompareTexts {
        f: Compare,
        a: Text,
        b: Text,
        to: usize,
    },
    /// The list is ascending.
    InNumbers {
        a: Number,
        list: Vec<f64>,
        to: usize,
    },
    /// The list is ascending.
    InTexts {
        a: Text,
        list: Vec<Vec<u8>>,
        to: usize,
    },
    MissingNumber {
        a: Number,
        to: usize,
    },
    MissingText {
        a: Text,
        to: usize,
    },
    Match {
        a: Text,
        regex: Regex,
        to: usize,
    },
    Find {
        how: Find,
        a: Text,
        b: Text,
        to: usize,
    },
    FindConstant {
        a: Text,
        finder: Box<Finder<'static>>,
        to: usize,
    },
    Not {
        a: usize,
        to: usize,
    },
    And {
        a: usize,
        b: usize,
        to: usize,
    },
    Or {
        a: usize,
        b: usize,
        to: usize,
    },
}

/// A compiled filter.
#[derive(Debug, Clone, Default)]
pub(super) struct Program {
    pub(super) ops: Vec<Op>,
    pub(super) constants: Vec<Vec<u8>>,
    /// How many registers of each kind are used.
    pub(super) numbers: usize,
    pub(super) texts: usize,
    pub(super) truths: usize,
    /// The truth register that holds the answer.
    pub(super) answer: usize,
}
