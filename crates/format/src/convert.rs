//! Binary elements as numbers.
//!
//! Every type but the 64-bit integers fits `f64` exactly. Those beyond 2^53 are rounded to the nearest
//! `f64` (ties to even), and the functions return how many were changed by it. NaN stay NaN; an `f64`
//! keeps its bits.

use stead_core::{ByteOrder, DType};

/// Rows that are gathered from together.
const TILE_ROWS: usize = 32;
/// Rows of a piece that is taken together: two lines of the cache, once they are doubles.
const LINE_ROWS: usize = 16;
/// Columns of such a piece.
const SIDE: usize = 8;
/// Elements between two looks at whether one was rounded.
const STRETCH: usize = 512;

/// One element type.
pub(crate) trait Element: Copy {
    const SIZE: usize;
    /// True if an `f64` may differ from the element.
    const ROUNDS: bool;
    fn load<const BIG: bool>(bytes: &[u8]) -> Self;
    fn f64(self) -> f64;
    fn f32(self) -> f32;
    fn is_rounded(self) -> bool;
    /// The absolute value where `ROUNDS`: below 2^53 nothing is rounded.
    fn magnitude(self) -> u64;
}

macro_rules! element {
    ($t:ty, $rounds:literal, $is_rounded:expr, $magnitude:expr) => {
        impl Element for $t {
            const SIZE: usize = size_of::<$t>();
            const ROUNDS: bool = $rounds;

            #[inline(always)]
            fn load<const BIG: bool>(bytes: &[u8]) -> Self {
                // No copy of a slice, which may become a call. There always are enough bytes.
                let raw = bytes.first_chunk().copied().unwrap_or_default();
                if BIG { <$t>::from_be_bytes(raw) } else { <$t>::from_le_bytes(raw) }
            }

            // `as` to a float rounds to nearest; it loses nothing but what `is_rounded` counts.
            #[inline(always)]
            fn f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn f32(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn is_rounded(self) -> bool {
                ($is_rounded)(self)
            }

            #[inline(always)]
            fn magnitude(self) -> u64 {
                ($magnitude)(self)
            }
        }
    };
}

element!(f32, false, |_| false, |_| 0);
element!(f64, false, |_| false, |_| 0);
element!(i8, false, |_| false, |_| 0);
element!(i16, false, |_| false, |_| 0);
element!(i32, false, |_| false, |_| 0);
element!(u8, false, |_| false, |_| 0);
element!(u16, false, |_| false, |_| 0);
element!(u32, false, |_| false, |_| 0);
// Back from the float, which is exact but where the integer is so large that the float is the first one
// beyond the range: that saturates to the largest integer.
element!(i64, true, |x: i64| (x as f64) as i64 != x || x as f64 == TWO_63, i64::unsigned_abs);
element!(u64, true, |x: u64| (x as f64) as u64 != x || x as f64 == 2.0 * TWO_63, |x| x);

const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// Converts what the iterator gives; returns how many were rounded. The common case, in which none is,
/// costs one OR an element; only a stretch with a large element is looked at again.
#[inline(always)]
fn convert<'a, T: Element, const BIG: bool>(
    elements: impl Iterator<Item = &'a [u8]> + Clone,
    out: &mut [f64],
) -> u64 {
    let mut all = 0;
    for (o, b) in out.iter_mut().zip(elements.clone()) {
        let x = T::load::<BIG>(b);
        *o = x.f64();
        if T::ROUNDS {
            all |= x.magnitude();
        }
    }
    if T::ROUNDS && all >> 53 != 0 {
        let rounded = |b: &&[u8]| T::load::<BIG>(b).is_rounded();
        return elements.take(out.len()).filter(rounded).count() as u64;
    }
    0
}

/// Calls `$f::<T, BIG>(...)` for the type that the two values mean.
macro_rules! dispatch {
    ($dtype:expr, $order:expr, $f:ident ( $($arg:expr),* )) => {{
        macro_rules! orders {
            ($t:ty) => {
                match $order {
                    ByteOrder::Little => $f::<$t, false>($($arg),*),
                    ByteOrder::Big => $f::<$t, true>($($arg),*),
                }
            };
        }
        match $dtype {
            DType::F32 => orders!(f32),
            DType::F64 => orders!(f64),
            DType::I8 => orders!(i8),
            DType::I16 => orders!(i16),
            DType::I32 => orders!(i32),
            DType::I64 => orders!(i64),
            DType::U8 => orders!(u8),
            DType::U16 => orders!(u16),
            DType::U32 => orders!(u32),
            DType::U64 => orders!(u64),
        }
    }};
}

/// Converts elements that lie one after the other, until `bytes` or `out` ends. Returns how many were
/// rounded. Cost: one pass.
pub fn to_f64(dtype: DType, order: ByteOrder, bytes: &[u8], out: &mut [f64]) -> u64 {
    fn run<T: Element, const BIG: bool>(bytes: &[u8], out: &mut [f64]) -> u64 {
        out.chunks_mut(STRETCH)
            .zip(bytes.chunks(STRETCH * T::SIZE))
            .map(|(out, bytes)| convert::<T, BIG>(bytes.chunks_exact(T::SIZE), out))
            .sum()
    }
    dispatch!(dtype, order, run(bytes, out))
}

/// Converts elements to `f32` as [`to_f64`] does to `f64`; what does not fit is rounded, uncounted.
pub fn to_f32(dtype: DType, order: ByteOrder, bytes: &[u8], out: &mut [f32]) {
    fn run<T: Element, const BIG: bool>(bytes: &[u8], out: &mut [f32]) {
        for (o, b) in out.iter_mut().zip(bytes.chunks_exact(T::SIZE)) {
            *o = T::load::<BIG>(b).f32();
        }
    }
    dispatch!(dtype, order, run(bytes, out));
}

/// Where [`gather`] puts the columns of so many rows: the distance from one to the next, at least `rows`.
///
/// Columns a multiple of a page apart fall into the same few places of the caches, and rows are written to all of
/// them at once.
pub fn column_stride(rows: usize) -> usize {
    const PAGE: usize = 4096 / size_of::<f64>();
    if rows >= PAGE && rows.is_multiple_of(PAGE / 8) { rows + PAGE / 64 } else { rows }
}

/// Takes `columns` out of rows of `row_bytes` bytes: column number `i` goes to `out[i * stride..]`, one value a row.
/// Returns how many were rounded.
///
/// `out` holds `columns.len()` columns that are `stride` apart, `stride` being at least the number of rows. Rows are
/// read from memory once however many columns there are: columns that lie side by side are taken eight at a time,
/// sixteen rows of them together, so that whole lines of the cache are read and written.
pub fn gather(
    dtype: DType,
    order: ByteOrder,
    bytes: &[u8],
    row_bytes: usize,
    columns: &[usize],
    stride: usize,
    out: &mut [f64],
) -> u64 {
    fn run<T: Element, const BIG: bool>(
        bytes: &[u8],
        row_bytes: usize,
        columns: &[usize],
        stride: usize,
        out: &mut [f64],
    ) -> u64 {
        let rows = bytes.len() / row_bytes;
        let mut rounded = 0;
        for first in (0..rows).step_by(TILE_ROWS) {
            let n = TILE_ROWS.min(rows - first);
            let tile = &bytes[first * row_bytes..][..n * row_bytes];
            let mut i = 0;
            while i < columns.len() {
                let at = columns[i] * T::SIZE;
                let out = &mut out[i * stride..];
                let eight = columns.get(i + SIDE - 1) == Some(&(columns[i] + SIDE - 1));
                if eight && n == TILE_ROWS {
                    for half in 0..2 {
                        let from = half * LINE_ROWS;
                        let rows = &tile[from * row_bytes..][..LINE_ROWS * row_bytes];
                        rounded +=
                            square::<T, BIG>(rows, row_bytes, at, stride, &mut out[first + from..]);
                    }
                    i += SIDE;
                } else {
                    let elements = tile.chunks_exact(row_bytes).map(|row| &row[at..at + T::SIZE]);
                    rounded += convert::<T, BIG>(elements, &mut out[first..first + n]);
                    i += 1;
                }
            }
        }
        rounded
    }
    if row_bytes == 0 {
        return 0;
    }
    dispatch!(dtype, order, run(bytes, row_bytes, columns, stride, out))
}

/// Eight columns side by side, of [`LINE_ROWS`] rows, from byte `at` of each on. Returns how many were rounded.
#[inline(always)]
fn square<T: Element, const BIG: bool>(
    rows: &[u8],
    row_bytes: usize,
    at: usize,
    stride: usize,
    out: &mut [f64],
) -> u64 {
    let mut lines = [[0.0; LINE_ROWS]; SIDE];
    let mut all = 0;
    for (r, row) in rows.chunks_exact(row_bytes).enumerate().take(LINE_ROWS) {
        let row = &row[at..at + SIDE * T::SIZE];
        for c in 0..SIDE {
            let x = T::load::<BIG>(&row[c * T::SIZE..(c + 1) * T::SIZE]);
            lines[c][r] = x.f64();
            if T::ROUNDS {
                all |= x.magnitude();
            }
        }
    }
    for (c, line) in lines.iter().enumerate() {
        // An assignment, which needs no call.
        if let Some(to) = out[c * stride..].first_chunk_mut() {
            *to = *line;
        }
    }
    if !T::ROUNDS || all >> 53 == 0 {
        return 0;
    }
    let elements = |row: &[u8]| {
        let some = &row[at..at + SIDE * T::SIZE];
        some.chunks_exact(T::SIZE).filter(|b| T::load::<BIG>(b).is_rounded()).count() as u64
    };
    rows.chunks_exact(row_bytes).map(elements).sum()
}

/// Rows of values from columns of `rows` values each, one column after the other.
///
/// Works in tiles that stay in the first-level cache.
pub fn interleave(columns: &[f64], rows: usize, out: &mut Vec<f64>) {
    const TILE: usize = 32;
    out.resize(columns.len(), 0.0);
    let width = columns.len() / rows.max(1);
    for from in (0..rows).step_by(TILE) {
        let to = (from + TILE).min(rows);
        for first in (0..width).step_by(TILE) {
            let some = first..(first + TILE).min(width);
            for (r, row) in out[from * width..to * width].chunks_exact_mut(width).enumerate() {
                for (c, x) in some.clone().zip(&mut row[some.clone()]) {
                    *x = columns[c * rows + from + r];
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_every_type() {
        let mut out = [0.0; 3];
        let bytes: Vec<u8> =
            [f32::MIN_POSITIVE, f32::NAN, -0.0].iter().flat_map(|x| x.to_be_bytes()).collect();
        assert_eq!(to_f64(DType::F32, ByteOrder::Big, &bytes, &mut out), 0);
        assert!(out[0] == f64::from(f32::MIN_POSITIVE) && out[1].is_nan());
        assert_eq!(out[2].to_bits(), (-0.0f64).to_bits());
        let payload = f64::from_bits(0x7FF8_0000_0000_1234);
        to_f64(DType::F64, ByteOrder::Little, &payload.to_le_bytes(), &mut out);
        assert_eq!(out[0].to_bits(), payload.to_bits());
        to_f64(DType::I8, ByteOrder::Big, &[0x80, 0x7F, 0xFF], &mut out);
        assert_eq!(out, [-128.0, 127.0, -1.0]);
        to_f64(DType::U16, ByteOrder::Big, &[1, 0, 0, 1, 0xFF, 0xFF], &mut out);
        assert_eq!(out, [256.0, 1.0, 65535.0]);
    }

    #[test]
    fn rounded_integers_are_counted_exactly() {
        let m = 1i64 << 53;
        let x = [m, m + 1, m + 2, -m - 1, i64::MAX, i64::MIN, 0, 7];
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let mut out = [0.0; 8];
        assert_eq!(to_f64(DType::I64, ByteOrder::Little, &bytes, &mut out), 3);
        assert_eq!(out[5], i64::MIN as f64);
        let bytes: Vec<u8> = [u64::MAX, 1 << 63].iter().flat_map(|x| x.to_be_bytes()).collect();
        assert_eq!(to_f64(DType::U64, ByteOrder::Big, &bytes, &mut out), 1);
        assert_eq!(gather(DType::U64, ByteOrder::Big, &bytes, 16, &[1, 0], 1, &mut out[..2]), 1);
        assert_eq!(out[..2], [2f64.powi(63), 2f64.powi(64)]);
        // Columns side by side, and some that are not.
        let (rows, width, stride) = (77, 21, 80);
        let x: Vec<i64> = (0..rows * width).map(|i| i * 1_000_003 + (i % 3) * m).collect();
        let bytes: Vec<u8> = x.iter().flat_map(|x| x.to_le_bytes()).collect();
        let columns: Vec<usize> = [0].into_iter().chain(2..12).chain(13..21).collect();
        let mut out = vec![-1.0; columns.len() * stride];
        let row = 8 * width as usize;
        let n = gather(DType::I64, ByteOrder::Little, &bytes, row, &columns, stride, &mut out);
        let mut want = 0;
        for (c, column) in columns.iter().zip(out.chunks(stride)) {
            for (r, v) in column[..rows as usize].iter().enumerate() {
                let x = x[r * width as usize + c];
                assert_eq!(*v, x as f64);
                want += u64::from(*v as i64 != x);
            }
        }
        assert!(n == want && n > 100, "{n} {want}");
    }
}
