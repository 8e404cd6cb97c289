//! Raw arrays of any type, shape and order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::{ByteOrder, DType, Order};
use stead_format::{FormatType, OpenOptions};
use stead_fuzz::{choices, same_on_any_split};

const TYPES: [DType; 10] = [
    DType::F32,
    DType::F64,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
];

fuzz_target!(|data: &[u8]| {
    let Some(([how, dtype, dims, a, b, c, chunk, skip], data)) = choices::<8>(data) else { return };
    let mut shape = [a, b, c].map(u64::from)[..usize::from(dims & 3)].to_vec();
    if how & 4 != 0 {
        // Lengths beyond all memory.
        shape.push(u64::from(c) << 56);
    }
    let options = OpenOptions {
        format: Some(FormatType::Raw),
        dtype: Some(TYPES[usize::from(dtype) % TYPES.len()]),
        shape: (how & 8 == 0).then_some(shape),
        order: Some(if how & 1 == 0 { Order::C } else { Order::Fortran }),
        byte_order: Some(if how & 2 == 0 { ByteOrder::Little } else { ByteOrder::Big }),
        skip: (how & 16 != 0).then_some(skip.into()),
        ..OpenOptions::default()
    };
    same_on_any_split(&[data], &options, chunk.into());
});
