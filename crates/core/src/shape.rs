//! Shapes of n-d arrays: 64-bit, checked.

use crate::{Error, Result, limits};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Which index runs fastest in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Order {
    /// Last index fastest (row-major).
    C,
    /// First index fastest (column-major).
    Fortran,
}

/// Lengths of the dimensions, and the order in which the elements lie in the file. The product of lengths
/// fits `u64`.
///
/// Serialises as the list of lengths alone, for people; the order is not written.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Vec<u64>", try_from = "Vec<u64>")]
pub struct Shape {
    dims: Vec<u64>,
    order: Order,
}

impl From<Shape> for Vec<u64> {
    fn from(s: Shape) -> Self {
        s.dims
    }
}

impl TryFrom<Vec<u64>> for Shape {
    type Error = Error;

    fn try_from(dims: Vec<u64>) -> Result<Self> {
        Shape::new(dims)
    }
}

impl Shape {
    /// Checks the number of dimensions and that the number of elements fits 64 bits. The order is C.
    pub fn new(dims: Vec<u64>) -> Result<Self> {
        if dims.len() > limits::MAX_DIMS {
            return Err(Error::format(format!(
                "an array of {} dimensions; at most {} are supported",
                dims.len(),
                limits::MAX_DIMS
            )));
        }
        // Zero lengths must not hide an overflow of the others.
        let mut n: u64 = 1;
        for d in dims.iter().filter(|d| **d != 0) {
            n = n.checked_mul(*d).ok_or_else(|| {
                Error::format(format!("shape {dims:?} has more elements than 64 bits can count"))
            })?;
        }
        Ok(Shape { dims, order: Order::C })
    }

    /// The same lengths in another order.
    pub fn with_order(self, order: Order) -> Self {
        Shape { order, ..self }
    }

    /// The order of the elements in the file.
    pub fn order(&self) -> Order {
        self.order
    }

    /// Number of elements; 1 for a scalar.
    pub fn elements(&self) -> u64 {
        self.dims.iter().product()
    }

    /// Lengths of the dimensions.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// Number of dimensions.
    pub fn ndim(&self) -> usize {
        self.dims.len()
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let v: Vec<String> = self.dims.iter().map(|d| d.to_string()).collect();
        f.write_str(&if v.is_empty() { "scalar".to_string() } else { v.join(" x ") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overflow_is_found_even_beside_a_zero() {
        assert!(Shape::new(vec![0, u64::MAX, 3]).is_err());
        assert_eq!(Shape::new(vec![0, 7]).map(|s| s.elements()).ok(), Some(0));
        assert_eq!(Shape::new(vec![]).map(|s| s.elements()).ok(), Some(1));
    }
}
