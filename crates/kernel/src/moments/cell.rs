//! The sums of one column for one group: small, for as long as that will do.

use super::{Order, Sums};
use crate::exact::narrow::Narrow;
use num_bigint::{BigInt, BigUint};
use stead_core::{Value, is_missing};

/// As [`Sums`], in 40 bytes as a rule.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    /// Values that are not missing.
    count: u64,
    /// Their sum.
    sum: Narrow,
    /// Count and sums, if they do not fit here; nothing else counts then.
    wide: Option<Box<Sums>>,
}

impl Cell {
    /// Adds a value, which may be missing. By how many bytes beside itself it has grown.
    #[inline]
    pub fn add(&mut self, value: f64, order: Order) -> usize {
        if self.wide.is_none() {
            if is_missing(value) {
                return 0;
            }
            let small = match order {
                Order::Count => true,
                Order::Sum => value.is_finite() && self.sum.add(value),
                // Squares have too many bits.
                Order::Squares => false,
            };
            if small {
                self.count += 1;
                return 0;
            }
        }
        self.add_all(&[value], order)
    }

    /// As [`Cell::add`], many values.
    pub fn add_all(&mut self, values: &[f64], order: Order) -> usize {
        let before = self.beside();
        self.widen().add(values, order);
        self.beside().saturating_sub(before)
    }

    /// Adds the sums of other values. By how many bytes beside itself it has grown.
    pub fn merge(&mut self, other: Cell) -> usize {
        if self.wide.is_none() && other.wide.is_none() && self.sum.merge(&other.sum) {
            self.count = self.count.saturating_add(other.count);
            return 0;
        }
        let before = self.beside();
        self.widen().merge(&other.sums());
        self.beside().saturating_sub(before)
    }

    /// Something of it.
    #[inline]
    pub fn glance(&self) -> u64 {
        self.count
    }

    /// The sums that this stands for.
    pub fn sums(&self) -> Sums {
        match &self.wide {
            Some(sums) => (**sums).clone(),
            None => Sums { count: self.count, sum: self.sum.widen(), squares: Default::default() },
        }
    }

    /// Bytes that it takes beside itself.
    pub fn beside(&self) -> usize {
        self.wide.as_ref().map_or(0, |s| s.bytes())
    }

    /// How many values are not missing.
    pub fn count(&self) -> Value {
        Value::Int(self.wide.as_ref().map_or(self.count, |s| s.count))
    }

    /// Their sum, rounded once.
    pub fn sum(&self) -> Value {
        let small = if self.wide.is_none() { self.sum.to_f64() } else { None };
        Value::Float(small.unwrap_or_else(|| self.look(|s| s.sum.to_f64())))
    }

    /// Their mean, rounded once; null for no values.
    pub fn mean(&self) -> Value {
        match &self.wide {
            None if self.count == 0 => Value::Null,
            None => match self.sum.over(self.count) {
                Some(mean) => Value::Float(mean),
                None => self.look(Sums::mean),
            },
            Some(sums) => sums.mean(),
        }
    }

    /// Their variance, or what is made of it by a function of [`ratio`](crate::exact::ratio); null for too few values.
    pub fn spread(&self, ddof: u64, round: fn(&BigInt, &BigUint, i64) -> f64) -> Value {
        self.look(|s| s.spread(ddof, round))
    }

    fn look<T>(&self, f: impl FnOnce(&Sums) -> T) -> T {
        match &self.wide {
            Some(sums) => f(sums),
            None => f(&self.sums()),
        }
    }

    fn widen(&mut self) -> &mut Sums {
        let (count, sum) = (self.count, &self.sum);
        self.wide.get_or_insert_with(|| {
            Box::new(Sums { count, sum: sum.widen(), squares: Default::default() })
        })
    }
}

impl From<Sums> for Cell {
    fn from(sums: Sums) -> Cell {
        Cell { wide: Some(Box::new(sums)), ..Cell::default() }
    }
}
