//! Elements: numbers of the types that arrays have.

use crate::value::Run;
use stead_core::{DType, Error, Result};

/// A number in an array.
pub trait Element: Copy + Send + Sync + PartialOrd + 'static {
    /// Its type.
    const DTYPE: DType;

    /// Of as many bytes as it has.
    fn read(bytes: &[u8]) -> Option<Self>;

    /// Into as many bytes as it has.
    fn write(self, to: &mut [u8]);

    /// As a double: the nearest one.
    fn to_f64(self) -> f64;

    /// The nearest number of this type, without a fraction if it has none; 0 of what is none.
    fn of_f64(x: f64) -> Self;

    /// Of a whole number: the nearest that there is.
    fn of_i128(x: i128) -> Self;

    /// As a whole number, if its type has no others.
    fn whole(self) -> Option<i128>;

    /// A number that is smaller if this one is: of doubles, -0.0 is smaller than 0.0. None of what is no number.
    fn key(self) -> Option<i128>;

    /// What a key is of.
    fn of_key(key: i128) -> Self;

    /// Calls a function with each element of a run.
    fn each(run: &Run<'_>, each: &mut impl FnMut(Self)) -> Result<()>;

    /// Calls a function with all elements of a run as doubles, [`MANY`] of them at a time.
    fn doubles(run: &Run<'_>, each: &mut impl FnMut(&[f64])) -> Result<()>;
}

/// Doubles that stay in the first-level cache of any processor.
const MANY: usize = 2048;

fn astray() -> Error {
    Error::internal("a run of elements is shorter than it says")
}

macro_rules! element {
    ($t:ty, $dtype:ident, $n:literal, $whole:expr, $key:expr, $of_key:expr, $of_whole:expr) => {
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;

            #[inline]
            fn read(bytes: &[u8]) -> Option<Self> {
                bytes.first_chunk().map(|bytes| <$t>::from_ne_bytes(*bytes))
            }

            #[inline]
            fn write(self, to: &mut [u8]) {
                if let Some(to) = to.first_chunk_mut() {
                    *to = self.to_ne_bytes();
                }
            }

            #[inline]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline]
            fn of_f64(x: f64) -> Self {
                x as $t
            }

            #[inline]
            fn of_i128(x: i128) -> Self {
                ($of_whole)(x)
            }

            #[inline]
            fn whole(self) -> Option<i128> {
                ($whole)(self)
            }

            #[inline]
            fn key(self) -> Option<i128> {
                ($key)(self)
            }

            #[inline]
            fn of_key(key: i128) -> Self {
                ($of_key)(key)
            }

            #[inline]
            fn each(run: &Run<'_>, each: &mut impl FnMut(Self)) -> Result<()> {
                if run.stride == $n {
                    let bytes = run.bytes.get(..run.len * $n).ok_or_else(astray)?;
                    for bytes in bytes.as_chunks::<$n>().0 {
                        each(<$t>::from_ne_bytes(*bytes));
                    }
                    return Ok(());
                }
                for i in 0..run.len {
                    let here = run.bytes.get(i * run.stride..);
                    each(here.and_then(Self::read).ok_or_else(astray)?);
                }
                Ok(())
            }

            fn doubles(run: &Run<'_>, each: &mut impl FnMut(&[f64])) -> Result<()> {
                let mut some = [0.0; MANY];
                if run.stride == $n {
                    let bytes = run.bytes.get(..run.len * $n).ok_or_else(astray)?;
                    for bytes in bytes.as_chunks::<$n>().0.chunks(MANY) {
                        for (to, bytes) in some.iter_mut().zip(bytes) {
                            *to = <$t>::from_ne_bytes(*bytes) as f64;
                        }
                        each(some.get(..bytes.len()).unwrap_or(&[]));
                    }
                    return Ok(());
                }
                let mut len = 0;
                Self::each(run, &mut |x| {
                    some[len] = x as f64;
                    len += 1;
                    if len == MANY {
                        each(&some);
                        len = 0;
                    }
                })?;
                each(some.get(..len).unwrap_or(&[]));
                Ok(())
            }
        }
    };
}

macro_rules! whole {
    ($($t:ident $dtype:ident $n:literal),*) => {
        $(element!($t, $dtype, $n, |x: $t| Some(i128::from(x)), |x: $t| Some(i128::from(x)), |k: i128| k as $t,
            |x: i128| x.clamp(i128::from(<$t>::MIN), i128::from(<$t>::MAX)) as $t);)*
    };
}

whole!(i8 I8 1, i16 I16 2, i32 I32 4, i64 I64 8, u8 U8 1, u16 U16 2, u32 U32 4, u64 U64 8);

/// Bits that are ordered as doubles are, of doubles.
fn order(x: f64) -> Option<i128> {
    let bits = x.to_bits().cast_signed();
    (!x.is_nan()).then(|| i128::from(bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()))
}

fn of_order(key: i128) -> f64 {
    let bits = key as i64;
    f64::from_bits((bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()).cast_unsigned())
}

element!(f64, F64, 8, |_| None, order, of_order, |x: i128| x as f64);
element!(f32, F32, 4, |_| None, |x: f32| order(f64::from(x)), |k| of_order(k) as f32, |x: i128| x
    as f32);

/// Does the same with the type that a [`DType`] stands for.
macro_rules! with_type {
    ($dtype:expr, $t:ident => $body:expr) => {
        match $dtype {
            stead_core::DType::F32 => {
                type $t = f32;
                $body
            }
            stead_core::DType::F64 => {
                type $t = f64;
                $body
            }
            stead_core::DType::I8 => {
                type $t = i8;
                $body
            }
            stead_core::DType::I16 => {
                type $t = i16;
                $body
            }
            stead_core::DType::I32 => {
                type $t = i32;
                $body
            }
            stead_core::DType::I64 => {
                type $t = i64;
                $body
            }
            stead_core::DType::U8 => {
                type $t = u8;
                $body
            }
            stead_core::DType::U16 => {
                type $t = u16;
                $body
            }
            stead_core::DType::U32 => {
                type $t = u32;
                $body
            }
            stead_core::DType::U64 => {
                type $t = u64;
                $body
            }
        }
    };
}

pub(crate) use with_type;

/// True of floating-point numbers.
pub fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_as_numbers_are() {
        let all = [f64::NEG_INFINITY, -1e300, -1.0, -0.0, 0.0, 5e-324, 1.0, f64::INFINITY];
        let keys: Vec<i128> = all.iter().map(|x| x.key().unwrap()).collect();
        assert!(keys.is_sorted() && keys.windows(2).all(|two| two[0] < two[1]));
        for (x, key) in all.iter().zip(keys) {
            assert_eq!(f64::of_key(key).to_bits(), x.to_bits());
        }
        assert_eq!(f64::NAN.key(), None);
        assert_eq!(u64::of_key(u64::MAX.key().unwrap()), u64::MAX);
        assert_eq!(f32::of_key((-0.1f32).key().unwrap()), -0.1f32);
    }
}
