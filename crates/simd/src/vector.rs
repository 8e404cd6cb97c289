//! What vectors do with numbers, and work for them.

use crate::{Bytes, Lanes};

/// A way to compute with four doubles or eight floats at a time, and to look at bytes.
pub trait Vector: Bytes {
    /// Four doubles, or four masks.
    type Four: Copy;

    /// All four are `x`.
    fn splat(self, x: f64) -> Self::Four;
    /// From memory.
    fn load(self, from: &[f64; 4]) -> Self::Four;
    /// To memory.
    fn store(self, v: Self::Four, to: &mut [f64; 4]);
    /// `a + b`
    fn add(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a - b`
    fn sub(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a * b`
    fn mul(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Four, b: Self::Four, c: Self::Four) -> Self::Four;
    /// `a * b + c`, rounded once or twice, whichever is fast: for estimates.
    fn about(self, a: Self::Four, b: Self::Four, c: Self::Four) -> Self::Four;
    /// `a` where it is less than `b`, else `b`.
    fn min(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a` where it is greater than `b`, else `b`.
    fn max(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// A mask of where `a` is less than `b`.
    fn less(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a` where the mask is set, else `b`.
    fn select(self, mask: Self::Four, a: Self::Four, b: Self::Four) -> Self::Four;
    /// Bit `i` for place `i` of a mask.
    fn bits(self, mask: Self::Four) -> u32;
    /// The largest integers that are not greater; all lie within those of 32 bits.
    fn floor(self, a: Self::Four) -> Self::Four;
    /// Integers within those of 32 bits.
    fn integers(self, a: Self::Four) -> [i32; 4];

    /// Eight floats, or eight masks. What is done with them is as with doubles.
    type Eight: Copy;

    /// All eight are `x`.
    fn splat8(self, x: f32) -> Self::Eight;
    /// From memory.
    fn load8(self, from: &[f32; 8]) -> Self::Eight;
    /// To memory.
    fn store8(self, v: Self::Eight, to: &mut [f32; 8]);
    /// Eight doubles, rounded.
    fn narrow(self, low: Self::Four, high: Self::Four) -> Self::Eight;
    /// `a + b`
    fn add8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a * b`
    fn mul8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a - b`
    fn sub8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a * b + c`, rounded once or twice, whichever is fast: for estimates.
    fn about8(self, a: Self::Eight, b: Self::Eight, c: Self::Eight) -> Self::Eight;
    /// `a` where it is less than `b`, else `b`.
    fn min8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a` where it is greater than `b`, else `b`.
    fn max8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// A mask of where `a` is less than `b`.
    fn less8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a` where the mask is set, else `b`.
    fn select8(self, mask: Self::Eight, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Bit `i` for place `i` of a mask.
    fn bits8(self, mask: Self::Eight) -> u32;
    /// The largest integers that are not greater.
    fn floor8(self, a: Self::Eight) -> Self::Eight;
    /// Integers within those of 32 bits.
    fn integers8(self, a: Self::Eight) -> [i32; 8];
    /// Four floats from memory and four from elsewhere.
    fn fours(self, low: &[f32; 4], high: &[f32; 4]) -> Self::Eight;
    /// Four times `low` and four times `high`.
    fn splats(self, low: f32, high: f32) -> Self::Eight;
    /// Four times the fourth and four times the eighth.
    fn fourths(self, a: Self::Eight) -> Self::Eight;

    /// As many doubles as are good at a time, where the number does not matter.
    type Lanes: Lanes;

    /// A way to compute with those.
    fn lanes(self) -> Self::Lanes;

    /// As those, for loops of few operations, in which more should be under way at once.
    type Pair: Lanes;

    /// A way to compute with those.
    fn pair(self) -> Self::Pair;

    /// The token, where these vectors are AVX2 or have it too: for what only its instructions can do.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn avx2(self) -> Option<crate::Avx2> {
        None
    }

    /// The token, where these vectors are AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn avx512(self) -> Option<crate::Avx512> {
        None
    }

    /// The token, where these vectors are NEON.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    fn neon(self) -> Option<crate::Neon> {
        None
    }
}

/// Something to be done with a [`Vector`]. Implement with `#[inline(always)]`, so that it is compiled for the
/// processor's instructions.
pub trait Work {
    /// What comes out.
    type Out;

    /// Does it.
    fn run<V: Vector>(self, v: V) -> Self::Out;
}
