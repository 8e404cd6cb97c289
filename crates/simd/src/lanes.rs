//! Vectors of doubles of any width, for loops whose results do not depend on it.

/// A way to compute with several doubles at once, as many as are good at a time. What is exact is the same for any number
/// of lanes.
pub trait Lanes: Copy {
    /// Some doubles.
    type V: Copy;
    /// How many; at most [`MOST`].
    const N: usize;

    /// `v` in all lanes.
    fn splat(self, v: f64) -> Self::V;

    /// The first `N` values, of which there must be so many: zeros if not.
    fn load(self, values: &[f64]) -> Self::V;

    /// The values, and zeros behind them.
    fn store(self, v: Self::V) -> [f64; MOST];

    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a * b + c`, where product and sum are exact: rounded once or twice.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// All bits of both.
    fn or(self, a: Self::V, b: Self::V) -> Self::V;

    /// The larger magnitude, up to the lower half of its bits.
    fn larger(self, a: Self::V, b: Self::V) -> Self::V;
}

/// Most lanes.
pub const MOST: usize = 8;

/// Twice as many lanes.
#[derive(Debug, Clone, Copy)]
pub struct Two<L>(pub L);

impl<L: Lanes> Lanes for Two<L> {
    type V = (L::V, L::V);
    const N: usize = {
        assert!(2 * L::N <= MOST);
        2 * L::N
    };

    #[inline(always)]
    fn splat(self, v: f64) -> Self::V {
        (self.0.splat(v), self.0.splat(v))
    }

    #[inline(always)]
    fn load(self, values: &[f64]) -> Self::V {
        (self.0.load(values), self.0.load(values.get(L::N..).unwrap_or(&[])))
    }

    #[inline(always)]
    fn store(self, v: Self::V) -> [f64; MOST] {
        let (mut all, high) = (self.0.store(v.0), self.0.store(v.1));
        all[L::N..2 * L::N].copy_from_slice(&high[..L::N]);
        all
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        (self.0.add(a.0, b.0), self.0.add(a.1, b.1))
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        (self.0.sub(a.0, b.0), self.0.sub(a.1, b.1))
    }

    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        (self.0.mul_add(a.0, b.0, c.0), self.0.mul_add(a.1, b.1, c.1))
    }

    #[inline(always)]
    fn or(self, a: Self::V, b: Self::V) -> Self::V {
        (self.0.or(a.0, b.0), self.0.or(a.1, b.1))
    }

    #[inline(always)]
    fn larger(self, a: Self::V, b: Self::V) -> Self::V {
        (self.0.larger(a.0, b.0), self.0.larger(a.1, b.1))
    }
}
