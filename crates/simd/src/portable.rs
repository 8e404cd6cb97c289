//! Plain Rust, which defines what all vectors compute.

use crate::{Bytes, GROUP, Lanes, MOST, Masks, Two, Vector};

/// Arrays, of which the compiler makes what vectors it can. What the others do is defined here.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

/// All bits: a mask that is set.
const SET: f64 = f64::from_bits(u64::MAX);

const SET8: f32 = f32::from_bits(u32::MAX);

#[inline(always)]
fn each8(f: impl Fn(usize) -> f32) -> [f32; 8] {
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
}

#[inline(always)]
fn each(f: impl Fn(usize) -> f64) -> [f64; 4] {
    [f(0), f(1), f(2), f(3)]
}

impl Vector for Portable {
    type Four = [f64; 4];

    #[inline(always)]
    fn splat(self, x: f64) -> [f64; 4] {
        [x; 4]
    }

    #[inline(always)]
    fn load(self, from: &[f64; 4]) -> [f64; 4] {
        *from
    }

    #[inline(always)]
    fn store(self, v: [f64; 4], to: &mut [f64; 4]) {
        *to = v;
    }

    #[inline(always)]
    fn add(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn fma(self, a: [f64; 4], b: [f64; 4], c: [f64; 4]) -> [f64; 4] {
        each(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn about(self, a: [f64; 4], b: [f64; 4], c: [f64; 4]) -> [f64; 4] {
        if cfg!(target_arch = "aarch64") {
            return self.fma(a, b, c);
        }
        each(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn min(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn less(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| if a[i] < b[i] { SET } else { 0.0 })
    }

    #[inline(always)]
    fn select(self, mask: [f64; 4], a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| if mask[i].to_bits() >> 63 != 0 { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn bits(self, mask: [f64; 4]) -> u32 {
        (0..4).fold(0, |m, i| m | ((mask[i].to_bits() >> 63) as u32) << i)
    }

    #[inline(always)]
    fn floor(self, a: [f64; 4]) -> [f64; 4] {
        each(|i| a[i].floor())
    }

    #[inline(always)]
    fn integers(self, a: [f64; 4]) -> [i32; 4] {
        [a[0] as i32, a[1] as i32, a[2] as i32, a[3] as i32]
    }

    type Eight = [f32; 8];

    #[inline(always)]
    fn splat8(self, x: f32) -> [f32; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn load8(self, from: &[f32; 8]) -> [f32; 8] {
        *from
    }

    #[inline(always)]
    fn store8(self, v: [f32; 8], to: &mut [f32; 8]) {
        *to = v;
    }

    #[inline(always)]
    fn narrow(self, low: [f64; 4], high: [f64; 4]) -> [f32; 8] {
        each8(|i| if i < 4 { low[i] as f32 } else { high[i - 4] as f32 })
    }

    #[inline(always)]
    fn add8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn mul8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn sub8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn about8(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        if cfg!(target_arch = "aarch64") {
            return each8(|i| a[i].mul_add(b[i], c[i]));
        }
        each8(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn min8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn less8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| if a[i] < b[i] { SET8 } else { 0.0 })
    }

    #[inline(always)]
    fn select8(self, mask: [f32; 8], a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| if mask[i].to_bits() >> 31 != 0 { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn bits8(self, mask: [f32; 8]) -> u32 {
        (0..8).fold(0, |m, i| m | (mask[i].to_bits() >> 31) << i)
    }

    #[inline(always)]
    fn floor8(self, a: [f32; 8]) -> [f32; 8] {
        each8(|i| a[i].floor())
    }

    #[inline(always)]
    fn integers8(self, a: [f32; 8]) -> [i32; 8] {
        let i = |i: usize| a[i] as i32;
        [i(0), i(1), i(2), i(3), i(4), i(5), i(6), i(7)]
    }

    #[inline(always)]
    fn fours(self, low: &[f32; 4], high: &[f32; 4]) -> [f32; 8] {
        each8(|i| if i < 4 { low[i] } else { high[i - 4] })
    }

    #[inline(always)]
    fn splats(self, low: f32, high: f32) -> [f32; 8] {
        each8(|i| if i < 4 { low } else { high })
    }

    #[inline(always)]
    fn fourths(self, a: [f32; 8]) -> [f32; 8] {
        self.splats(a[3], a[7])
    }

    type Lanes = Portable;

    #[inline(always)]
    fn lanes(self) -> Portable {
        self
    }

    type Pair = Two<Portable>;

    #[inline(always)]
    fn pair(self) -> Two<Portable> {
        Two(self)
    }
}

impl Lanes for Portable {
    type V = [f64; 4];
    const N: usize = 4;

    #[inline(always)]
    fn splat(self, v: f64) -> [f64; 4] {
        [v; 4]
    }

    #[inline(always)]
    fn load(self, values: &[f64]) -> [f64; 4] {
        values.first_chunk().copied().unwrap_or_default()
    }

    #[inline(always)]
    fn store(self, v: [f64; 4]) -> [f64; MOST] {
        [v[0], v[1], v[2], v[3], 0.0, 0.0, 0.0, 0.0]
    }

    #[inline(always)]
    fn add(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul_add(self, a: [f64; 4], b: [f64; 4], c: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn or(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| f64::from_bits(a[i].to_bits() | b[i].to_bits()))
    }

    #[inline(always)]
    fn larger(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        let bits = |v: f64| v.to_bits() & (u64::MAX >> 1);
        each(|i| f64::from_bits(bits(a[i]).max(bits(b[i]))))
    }
}

/// One bit for each of eight bytes that is `byte`.
#[inline(always)]
fn equal(eight: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let x = eight ^ (u64::from(byte) * 0x0101_0101_0101_0101);
    // The top bit of each byte that is zero, exactly: no carry crosses bytes.
    let zero = !(((x & LOW) + LOW) | x | LOW);
    // Gathers the top bits.
    (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Bytes for Portable {
    #[inline(always)]
    fn masks(self, group: &[u8; GROUP], delimiter: u8, quote: u8) -> Masks {
        let mut m = Masks { ends: 0, newlines: 0, quoted: false };
        for (i, eight) in group.as_chunks::<8>().0.iter().enumerate() {
            let eight = u64::from_le_bytes(*eight);
            let newlines = equal(eight, b'\n');
            m.newlines |= newlines << (8 * i);
            m.ends |= (newlines | equal(eight, delimiter)) << (8 * i);
            m.quoted |= equal(eight, quote) != 0;
        }
        m
    }

    #[inline(always)]
    fn equal(self, group: &[u8; GROUP], byte: u8) -> u64 {
        let eights = group.as_chunks::<8>().0.iter().enumerate();
        eights.fold(0, |m, (i, x)| m | equal(u64::from_le_bytes(*x), byte) << (8 * i))
    }

    #[inline(always)]
    fn others(self, window: &[u8; 16], len: usize) -> u32 {
        (16 - len..16).fold(0, |m, i| m | u32::from(!window[i].is_ascii_digit()) << i)
    }

    #[inline(always)]
    fn digits(self, window: &[u8; 16], len: usize, point: usize) -> u64 {
        (16 - len..16).filter(|i| *i != point).fold(0u64, |n, i| {
            n.wrapping_mul(10).wrapping_add(u64::from(window[i].wrapping_sub(b'0')))
        })
    }
}
