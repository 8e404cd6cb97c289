//! Vectors of 128 bits of 64-bit ARM, several of them at a time.

use crate::{Bytes, GROUP, Lanes, MOST, Masks, Two, Vector, Work};
use std::arch::aarch64::*;

/// NEON. A value of it exists only where the processor has it.
#[derive(Debug, Clone, Copy)]
pub struct Neon(());

impl Neon {
    /// The token, if the processor has it.
    #[inline]
    pub fn get() -> Option<Neon> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Neon(()))
    }

    /// Does `work`, compiled for these instructions.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Out {
        #[target_feature(enable = "neon")]
        fn run<W: Work>(work: W, vector: Neon) -> W::Out {
            work.run(vector)
        }
        // SAFETY: `self` exists, so the processor has the feature.
        unsafe { run(work, self) }
    }
}

/// Four doubles.
type Doubles = (float64x2_t, float64x2_t);
/// Eight floats.
type Floats = (float32x4_t, float32x4_t);

/// One intrinsic that looks at nothing but its operands.
macro_rules! with {
    ($self:ident, $e:expr) => {{
        let Neon(()) = $self;
        // SAFETY: `self` exists, so the processor has NEON.
        unsafe { $e }
    }};
}

/// Operations on both halves alike.
macro_rules! halves {
    ($v:ty: $($name:ident($($a:ident),*) $f:expr;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($a: $v),*) -> $v {
                with!(self, ($f($($a.0),*), $f($($a.1),*)))
            }
        )*
    };
}

/// `a * b + c`, with the operands in the usual order.
#[inline(always)]
unsafe fn fma(a: float64x2_t, b: float64x2_t, c: float64x2_t) -> float64x2_t {
    // SAFETY: as the caller promises.
    unsafe { vfmaq_f64(c, a, b) }
}

/// As [`fma`], of floats.
#[inline(always)]
unsafe fn fma8(a: float32x4_t, b: float32x4_t, c: float32x4_t) -> float32x4_t {
    // SAFETY: as the caller promises.
    unsafe { vfmaq_f32(c, a, b) }
}

/// `a` where it is less, else `b`: other than the instruction for minima, which has its own mind about NaN and zeros.
#[inline(always)]
unsafe fn min(a: float64x2_t, b: float64x2_t) -> float64x2_t {
    // SAFETY: as the caller promises.
    unsafe { vbslq_f64(vcltq_f64(a, b), a, b) }
}

#[inline(always)]
unsafe fn max(a: float64x2_t, b: float64x2_t) -> float64x2_t {
    // SAFETY: as the caller promises.
    unsafe { vbslq_f64(vcgtq_f64(a, b), a, b) }
}

#[inline(always)]
unsafe fn less(a: float64x2_t, b: float64x2_t) -> float64x2_t {
    // SAFETY: as the caller promises.
    unsafe { vreinterpretq_f64_u64(vcltq_f64(a, b)) }
}

#[inline(always)]
unsafe fn select(mask: float64x2_t, a: float64x2_t, b: float64x2_t) -> float64x2_t {
    // SAFETY: as the caller promises.
    unsafe { vbslq_f64(vreinterpretq_u64_f64(mask), a, b) }
}

#[inline(always)]
unsafe fn min8(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: as the caller promises.
    unsafe { vbslq_f32(vcltq_f32(a, b), a, b) }
}

#[inline(always)]
unsafe fn max8(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: as the caller promises.
    unsafe { vbslq_f32(vcgtq_f32(a, b), a, b) }
}

#[inline(always)]
unsafe fn less8(a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: as the caller promises.
    unsafe { vreinterpretq_f32_u32(vcltq_f32(a, b)) }
}

#[inline(always)]
unsafe fn select8(mask: float32x4_t, a: float32x4_t, b: float32x4_t) -> float32x4_t {
    // SAFETY: as the caller promises.
    unsafe { vbslq_f32(vreinterpretq_u32_f32(mask), a, b) }
}

impl Vector for Neon {
    type Four = Doubles;
    type Eight = Floats;
    type Lanes = Neon;
    type Pair = Two<Neon>;

    #[inline(always)]
    fn splat(self, x: f64) -> Doubles {
        with!(self, (vdupq_n_f64(x), vdupq_n_f64(x)))
    }

    #[inline(always)]
    fn load(self, from: &[f64; 4]) -> Doubles {
        let at = from.as_ptr();
        // SAFETY: `self` exists, so the processor has NEON; two doubles each are read from an array of four.
        unsafe { (vld1q_f64(at), vld1q_f64(at.add(2))) }
    }

    #[inline(always)]
    fn store(self, v: Doubles, to: &mut [f64; 4]) {
        let at = to.as_mut_ptr();
        // SAFETY: `self` exists, so the processor has NEON; two doubles each are written to an array of four.
        unsafe {
            vst1q_f64(at, v.0);
            vst1q_f64(at.add(2), v.1);
        }
    }

    halves! { Doubles:
        add(a, b) vaddq_f64;
        sub(a, b) vsubq_f64;
        mul(a, b) vmulq_f64;
        fma(a, b, c) fma;
        about(a, b, c) fma;
        min(a, b) min;
        max(a, b) max;
        less(a, b) less;
        select(mask, a, b) select;
        floor(a) vrndmq_f64;
    }

    #[inline(always)]
    fn bits(self, mask: Doubles) -> u32 {
        with!(self, {
            let (low, high) = (vreinterpretq_u32_f64(mask.0), vreinterpretq_u32_f64(mask.1));
            // The upper halves of all four, and one bit of each.
            let all = vuzp2q_u32(low, high);
            let bit: uint32x4_t = std::mem::transmute([1u32, 2, 4, 8]);
            vaddvq_u32(vandq_u32(all, bit))
        })
    }

    #[inline(always)]
    fn integers(self, a: Doubles) -> [i32; 4] {
        let mut out = [0; 4];
        // SAFETY: `self` exists, so the processor has NEON; four integers are written to an array of four.
        unsafe {
            let low = vmovn_s64(vcvtq_s64_f64(a.0));
            let all = vmovn_high_s64(low, vcvtq_s64_f64(a.1));
            vst1q_s32(out.as_mut_ptr(), all);
        }
        out
    }

    #[inline(always)]
    fn splat8(self, x: f32) -> Floats {
        with!(self, (vdupq_n_f32(x), vdupq_n_f32(x)))
    }

    #[inline(always)]
    fn load8(self, from: &[f32; 8]) -> Floats {
        let at = from.as_ptr();
        // SAFETY: `self` exists, so the processor has NEON; four floats each are read from an array of eight.
        unsafe { (vld1q_f32(at), vld1q_f32(at.add(4))) }
    }

    #[inline(always)]
    fn store8(self, v: Floats, to: &mut [f32; 8]) {
        let at = to.as_mut_ptr();
        // SAFETY: `self` exists, so the processor has NEON; four floats each are written to an array of eight.
        unsafe {
            vst1q_f32(at, v.0);
            vst1q_f32(at.add(4), v.1);
        }
    }

    #[inline(always)]
    fn integers8(self, a: Floats) -> [i32; 8] {
        let mut out = [0; 8];
        // SAFETY: `self` exists, so the processor has NEON; twice four integers are written to an array of eight.
        unsafe {
            vst1q_s32(out.as_mut_ptr(), vcvtq_s32_f32(a.0));
            vst1q_s32(out.as_mut_ptr().add(4), vcvtq_s32_f32(a.1));
        }
        out
    }

    #[inline(always)]
    fn fours(self, low: &[f32; 4], high: &[f32; 4]) -> Floats {
        // SAFETY: `self` exists, so the processor has NEON; four floats are read from arrays of four.
        unsafe { (vld1q_f32(low.as_ptr()), vld1q_f32(high.as_ptr())) }
    }

    #[inline(always)]
    fn splats(self, low: f32, high: f32) -> Floats {
        with!(self, (vdupq_n_f32(low), vdupq_n_f32(high)))
    }

    #[inline(always)]
    fn fourths(self, a: Floats) -> Floats {
        with!(self, (vdupq_laneq_f32::<3>(a.0), vdupq_laneq_f32::<3>(a.1)))
    }

    #[inline(always)]
    fn narrow(self, low: Doubles, high: Doubles) -> Floats {
        with!(self, {
            let low = vcvt_high_f32_f64(vcvt_f32_f64(low.0), low.1);
            (low, vcvt_high_f32_f64(vcvt_f32_f64(high.0), high.1))
        })
    }

    halves! { Floats:
        add8(a, b) vaddq_f32;
        mul8(a, b) vmulq_f32;
        sub8(a, b) vsubq_f32;
        about8(a, b, c) fma8;
        min8(a, b) min8;
        max8(a, b) max8;
        less8(a, b) less8;
        select8(mask, a, b) select8;
        floor8(a) vrndmq_f32;
    }

    #[inline(always)]
    fn bits8(self, mask: Floats) -> u32 {
        with!(self, {
            let low = vmovn_u32(vreinterpretq_u32_f32(mask.0));
            let all = vmovn_high_u32(low, vreinterpretq_u32_f32(mask.1));
            let bit: uint16x8_t = std::mem::transmute([1u16, 2, 4, 8, 16, 32, 64, 128]);
            u32::from(vaddvq_u16(vandq_u16(all, bit)))
        })
    }

    #[inline(always)]
    fn lanes(self) -> Neon {
        self
    }

    #[inline(always)]
    fn pair(self) -> Two<Neon> {
        Two(self)
    }

    #[inline(always)]
    fn neon(self) -> Option<Neon> {
        Some(self)
    }
}

/// All bits of both.
#[inline(always)]
unsafe fn or(a: float64x2_t, b: float64x2_t) -> float64x2_t {
    // SAFETY: as the caller promises.
    unsafe { vreinterpretq_f64_u64(vorrq_u64(vreinterpretq_u64_f64(a), vreinterpretq_u64_f64(b))) }
}

/// The larger magnitude, up to the lower half of its bits.
#[inline(always)]
unsafe fn larger(a: float64x2_t, b: float64x2_t) -> float64x2_t {
    // SAFETY: as the caller promises.
    unsafe {
        let a = vreinterpretq_u32_f64(vabsq_f64(a));
        let b = vreinterpretq_u32_f64(vabsq_f64(b));
        // Of the halves on their own, the upper ones are those of the larger magnitude.
        vreinterpretq_f64_u32(vmaxq_u32(a, b))
    }
}

impl Lanes for Neon {
    type V = Doubles;
    const N: usize = 4;

    #[inline(always)]
    fn splat(self, v: f64) -> Doubles {
        Vector::splat(self, v)
    }

    #[inline(always)]
    fn load(self, values: &[f64]) -> Doubles {
        Vector::load(self, &values.first_chunk().copied().unwrap_or([0.0; 4]))
    }

    #[inline(always)]
    fn store(self, v: Doubles) -> [f64; MOST] {
        let mut values = [0.0; MOST];
        if let Some(four) = values.first_chunk_mut() {
            Vector::store(self, v, four);
        }
        values
    }

    halves! { Doubles:
        add(a, b) vaddq_f64;
        sub(a, b) vsubq_f64;
        mul_add(a, b, c) fma;
        or(a, b) or;
        larger(a, b) larger;
    }
}

/// One bit for each byte of a group that is `byte`.
/// SAFETY: the processor must have NEON.
#[inline(always)]
unsafe fn equal(group: &[uint8x16_t; 4], byte: u8) -> u64 {
    // SAFETY: as the caller promises.
    unsafe {
        let byte = vdupq_n_u8(byte);
        let bit: uint8x16_t =
            std::mem::transmute([1u8, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);
        let [a, b, c, d] = *group;
        let a = vandq_u8(vceqq_u8(a, byte), bit);
        let b = vandq_u8(vceqq_u8(b, byte), bit);
        let c = vandq_u8(vceqq_u8(c, byte), bit);
        let d = vandq_u8(vceqq_u8(d, byte), bit);
        // Sums of neighbours, three times: every eight bytes become one with a bit for each.
        let all = vpaddq_u8(vpaddq_u8(a, b), vpaddq_u8(c, d));
        vgetq_lane_u64::<0>(vreinterpretq_u64_u8(vpaddq_u8(all, all)))
    }
}

/// A group, in four vectors.
#[inline(always)]
fn load(vector: Neon, group: &[u8; GROUP]) -> [uint8x16_t; 4] {
    let Neon(()) = vector;
    let at = group.as_ptr();
    // SAFETY: `vector` exists, so the processor has NEON; 16 bytes each are read from the quarters of an array of 64.
    unsafe { [vld1q_u8(at), vld1q_u8(at.add(16)), vld1q_u8(at.add(32)), vld1q_u8(at.add(48))] }
}

impl Bytes for Neon {
    #[inline(always)]
    fn masks(self, group: &[u8; GROUP], delimiter: u8, quote: u8) -> Masks {
        let group = load(self, group);
        with!(self, {
            let newlines = equal(&group, b'\n');
            let quote = vdupq_n_u8(quote);
            let [a, b, c, d] = group;
            let ab = vorrq_u8(vceqq_u8(a, quote), vceqq_u8(b, quote));
            let cd = vorrq_u8(vceqq_u8(c, quote), vceqq_u8(d, quote));
            Masks {
                ends: newlines | equal(&group, delimiter),
                newlines,
                quoted: vmaxvq_u8(vorrq_u8(ab, cd)) != 0,
            }
        })
    }

    #[inline(always)]
    fn equal(self, group: &[u8; GROUP], byte: u8) -> u64 {
        let group = load(self, group);
        with!(self, equal(&group, byte))
    }

    #[inline(always)]
    fn others(self, window: &[u8; 16], len: usize) -> u32 {
        let Neon(()) = self;
        // SAFETY: `self` exists, so the processor has NEON; 16 bytes are read from an array of 16.
        let others = unsafe {
            let d = vsubq_u8(vld1q_u8(window.as_ptr()), vdupq_n_u8(b'0'));
            let bit: uint8x16_t =
                std::mem::transmute([1u8, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128]);
            let bits = vandq_u8(vcgtq_u8(d, vdupq_n_u8(9)), bit);
            let (low, high) = (vaddv_u8(vget_low_u8(bits)), vaddv_u8(vget_high_u8(bits)));
            u32::from(low) | u32::from(high) << 8
        };
        others & (0xFFFF << (16 - len)) & 0xFFFF
    }

    #[inline(always)]
    fn digits(self, window: &[u8; 16], len: usize, point: usize) -> u64 {
        let Neon(()) = self;
        let from = (16 - len) as u8;
        // SAFETY: `self` exists, so the processor has NEON; 16 bytes are read from arrays of 16.
        let [high, low] = unsafe {
            let places: uint8x16_t =
                std::mem::transmute([0u8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
            let d = vsubq_u8(vld1q_u8(window.as_ptr()), vdupq_n_u8(b'0'));
            let d = vandq_u8(d, vcgeq_u8(places, vdupq_n_u8(from)));
            // The bytes before the point move up over it; look-ups outside give zero.
            let before = vcleq_u8(places, vdupq_n_u8(point as u8));
            let before = if point < 16 { before } else { vdupq_n_u8(0) };
            let d = vqtbl1q_u8(d, vaddq_u8(places, before));
            // Pairs of digits, of pairs, of fours: tens and ones, hundreds and ones, ...
            let tens: uint8x16_t =
                std::mem::transmute([10u8, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1, 10, 1]);
            let two = vpaddlq_u8(vmulq_u8(d, tens));
            let hundreds: uint16x8_t = std::mem::transmute([100u16, 1, 100, 1, 100, 1, 100, 1]);
            let four = vpaddlq_u16(vmulq_u16(two, hundreds));
            let thousands: uint32x4_t = std::mem::transmute([10_000u32, 1, 10_000, 1]);
            let eight = vpaddlq_u32(vmulq_u32(four, thousands));
            [vgetq_lane_u64::<0>(eight), vgetq_lane_u64::<1>(eight)]
        };
        high * 100_000_000 + low
    }
}
