//! Numbers out of records of fields, as columns.
//!
//! Fields that lie side by side are taken up to four at a time, of four records together: a load, a shuffle of bytes, a
//! widening and a transposition, of which the compiler makes vectors of those that the processor has.

use crate::convert::{self, Element};
use stead_core::{ByteOrder, DType};
use stead_simd::{Vector, Work, dispatch};

/// Rows that all columns are taken from together: they stay in the first-level cache.
const TILE_ROWS: usize = 64;
/// Rows, and at most columns, of a square.
const SIDE: usize = 4;

/// Columns that lie side by side in the records and in the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub dtype: DType,
    /// Bytes before the first one in a record.
    pub offset: usize,
    /// How many.
    pub width: usize,
    /// Number of the first one in the output.
    pub slot: usize,
}

impl Run {
    /// Adds a column to runs, to the last one if it goes on there.
    pub(crate) fn add(runs: &mut Vec<Run>, dtype: DType, offset: usize, slot: usize) {
        if let Some(last) = runs.last_mut()
            && last.dtype == dtype
            && last.width < SIDE
            && last.offset + last.width * dtype.size() == offset
            && last.slot + last.width == slot
        {
            last.width += 1;
        } else {
            runs.push(Run { dtype, offset, width: 1, slot });
        }
    }
}

/// Takes columns out of records of `record` bytes: column number `i` goes to `out[i * stride..]`, one value a record.
/// Returns how many were rounded. Columns of `out` that are in no run stay as they are.
///
/// `stride` is at least the number of records, `out` holds the columns of all runs, and these lie within the records.
pub(crate) fn gather(
    runs: &[Run],
    order: ByteOrder,
    bytes: &[u8],
    record: usize,
    stride: usize,
    out: &mut [f64],
) -> u64 {
    if record == 0 {
        return 0;
    }
    dispatch(Gather { runs, order, bytes, record, stride, out })
}

struct Gather<'a> {
    runs: &'a [Run],
    order: ByteOrder,
    bytes: &'a [u8],
    record: usize,
    stride: usize,
    out: &'a mut [f64],
}

impl Work for Gather<'_> {
    type Out = u64;

    #[inline(always)]
    fn run<V: Vector>(self, _: V) -> u64 {
        let Gather { runs, order, bytes, record, stride, out } = self;
        let mut rounded = 0;
        for (i, tile) in bytes.chunks(TILE_ROWS * record).enumerate() {
            for run in runs {
                let out = &mut out[run.slot * stride + i * TILE_ROWS..];
                let at = run.offset;
                rounded += match (run.dtype, order) {
                    (DType::F32, ByteOrder::Big) => {
                        widths::<f32, true>(tile, record, at, run.width, stride, out)
                    }
                    (DType::F32, ByteOrder::Little) => {
                        widths::<f32, false>(tile, record, at, run.width, stride, out)
                    }
                    (DType::F64, ByteOrder::Big) => {
                        widths::<f64, true>(tile, record, at, run.width, stride, out)
                    }
                    (DType::F64, ByteOrder::Little) => {
                        widths::<f64, false>(tile, record, at, run.width, stride, out)
                    }
                    (dtype, order) => {
                        let mut rounded = 0;
                        for c in 0..run.width {
                            let at = at + c * dtype.size();
                            for (r, o) in tile.chunks_exact(record).zip(&mut out[c * stride..]) {
                                let o = std::slice::from_mut(o);
                                rounded += convert::to_f64(dtype, order, &r[at..], o);
                            }
                        }
                        rounded
                    }
                };
            }
        }
        rounded
    }
}

/// Takes a run out of some records.
#[inline(always)]
fn widths<T: Element, const BIG: bool>(
    tile: &[u8],
    record: usize,
    at: usize,
    width: usize,
    stride: usize,
    out: &mut [f64],
) -> u64 {
    match width {
        1 => squares::<T, BIG, 1>(tile, record, at, stride, out),
        2 => squares::<T, BIG, 2>(tile, record, at, stride, out),
        3 => squares::<T, BIG, 3>(tile, record, at, stride, out),
        _ => squares::<T, BIG, 4>(tile, record, at, stride, out),
    }
    // Floats are not rounded.
    0
}

/// `W` columns side by side.
///
/// Loops and no closures: those may end up as functions of their own, which do not have the instructions.
#[inline(always)]
fn squares<T: Element, const BIG: bool, const W: usize>(
    tile: &[u8],
    record: usize,
    at: usize,
    stride: usize,
    out: &mut [f64],
) {
    let four = SIDE * record;
    let (fours, rest) = tile.split_at(tile.len() / four * four);
    let mut first = 0;
    for four in fours.chunks_exact(four) {
        let mut rows = [[0.0; W]; SIDE];
        for (r, row) in rows.iter_mut().enumerate() {
            *row = fields::<T, BIG, W>(&four[r * record + at..][..W * T::SIZE]);
        }
        for c in 0..W {
            let mut line = [0.0; SIDE];
            for (x, row) in line.iter_mut().zip(&rows) {
                *x = row[c];
            }
            // An assignment, which needs no call.
            if let Some(to) = out[c * stride + first..].first_chunk_mut::<SIDE>() {
                *to = line;
            }
        }
        first += SIDE;
    }
    for record in rest.chunks_exact(record) {
        let values = fields::<T, BIG, W>(&record[at..][..W * T::SIZE]);
        for (c, x) in values.iter().enumerate() {
            out[c * stride + first] = *x;
        }
        first += 1;
    }
}

#[inline(always)]
fn fields<T: Element, const BIG: bool, const W: usize>(bytes: &[u8]) -> [f64; W] {
    let mut values = [0.0; W];
    for (c, x) in values.iter_mut().enumerate() {
        *x = T::load::<BIG>(&bytes[c * T::SIZE..(c + 1) * T::SIZE]).f64();
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One number of a record, read as slowly as can be.
    fn slow(dtype: DType, order: ByteOrder, bytes: &[u8]) -> f64 {
        let mut out = [0.0];
        convert::to_f64(dtype, order, bytes, &mut out);
        out[0]
    }

    proptest! {
        #[test]
        fn every_value_is_that_of_its_place(
            fields in prop::collection::vec((0usize..4, any::<bool>()), 1..14),
            rows in 0usize..200,
            big in any::<bool>(),
            seed in any::<u64>(),
        ) {
            let types = [DType::F32, DType::F64, DType::I16, DType::F32];
            let order = if big { ByteOrder::Big } else { ByteOrder::Little };
            let (mut runs, mut wanted, mut record) = (Vec::new(), Vec::new(), 1);
            for (which, take) in &fields {
                let dtype = types[*which];
                if *take {
                    Run::add(&mut runs, dtype, record, wanted.len());
                    wanted.push((dtype, record));
                }
                record += dtype.size();
            }
            let mut state = seed | 1;
            let bytes: Vec<u8> = (0..rows * record)
                .map(|_| {
                    state = state.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31);
                    (state >> 56) as u8
                })
                .collect();
            let stride = rows + 3;
            let mut out = vec![-7.0; wanted.len() * stride];
            gather(&runs, order, &bytes, record, stride, &mut out);
            for ((dtype, at), column) in wanted.iter().zip(out.chunks(stride)) {
                for (r, x) in column[..rows].iter().enumerate() {
                    let want = slow(*dtype, order, &bytes[r * record + at..]);
                    // Which bit of a NaN says that it is quiet may be set by widening.
                    prop_assert!(x.to_bits() == want.to_bits() || x.is_nan() && want.is_nan());
                }
                prop_assert!(column[rows..].iter().all(|x| *x == -7.0));
            }
        }
    }

    #[test]
    fn neighbours_are_taken_together() {
        let mut runs = Vec::new();
        for (i, offset) in [0, 4, 8, 12, 16, 24].into_iter().enumerate() {
            Run::add(&mut runs, DType::F32, offset, i);
        }
        let of = |offset, width, slot| Run { dtype: DType::F32, offset, width, slot };
        assert_eq!(runs, [of(0, 4, 0), of(16, 1, 4), of(24, 1, 5)]);
    }
}
