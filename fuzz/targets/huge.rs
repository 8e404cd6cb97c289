//! Arrays and records of any length up to 2^64 bytes: planned, described and begun to be read. The bytes are
//! made up as they are asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::path::Path;
use std::sync::Arc;
use stead_core::{ByteOrder, DType, Needs, Order, Result};
use stead_format::{Dataset, FormatType, OpenOptions, ScanOptions, Share};
use stead_fuzz::choices;
use stead_store::Source;

/// A head, and then any bytes.
#[derive(Debug)]
struct Endless {
    head: Vec<u8>,
    len: u64,
}

impl Source for Endless {
    fn path(&self) -> &Path {
        Path::new("endless")
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset.checked_add(buf.len() as u64).expect("no read wraps around");
        assert!(end <= self.len, "a read past the end");
        // Made fast: a record may have hundreds of megabytes.
        buf.fill(offset as u8);
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (b, h) in buf.iter_mut().zip(self.head.get(from..).unwrap_or_default()) {
            *b = *h;
        }
        Ok(())
    }
}

/// A length of any size: few bits, moved far.
fn length(a: u8, b: u8) -> u64 {
    match a {
        0..=199 => u64::from(a) << (b & 63),
        200..=227 => u64::MAX >> (b & 63),
        _ => (1u64 << (b & 63)).wrapping_add(u64::from(a)).wrapping_sub(240),
    }
}

fn npy(descr: &str, fortran: bool, shape: &[u64]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let dims: String = shape.iter().map(|d| format!("{d}, ")).collect();
    let text = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': ({dims})}}\n");
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out
}

fuzz_target!(|data: &[u8]| {
    let Some(([how, kind, dims, chunk, needs, blocks], data)) = choices::<6>(data) else { return };
    let Some((pairs, data)) = choices::<10>(data) else { return };
    let lengths: Vec<u64> = pairs.chunks_exact(2).map(|p| length(p[0], p[1])).collect();
    let shape = lengths[..usize::from(dims % 5)].to_vec();
    let fortran = how & 1 != 0;
    let types = [DType::F32, DType::F64, DType::I8, DType::I64, DType::U16];
    let dtype = types[usize::from(how >> 1) % types.len()];
    let bytes = shape.iter().try_fold(dtype.size() as u64, |n, d| n.checked_mul(*d));
    let fits = |head: usize| bytes.and_then(|n| n.checked_add(head as u64));
    let (head, len, options) = match kind % 3 {
        0 => {
            let head = npy(
                ["<f4", ">f8", "|i1", "<i8", ">u2"][usize::from(how >> 1) % 5],
                fortran,
                &shape,
            );
            let len = fits(head.len()).unwrap_or(lengths[4]);
            (head, len, OpenOptions { format: Some(FormatType::Npy), ..OpenOptions::default() })
        }
        1 => {
            let options = OpenOptions {
                format: Some(FormatType::Raw),
                dtype: Some(types[usize::from(how >> 1) % 5]),
                shape: (how & 16 == 0).then(|| shape.clone()),
                order: Some(if fortran { Order::Fortran } else { Order::C }),
                byte_order: Some(ByteOrder::Big),
                skip: Some(u64::from(needs >> 5)),
                ..OpenOptions::default()
            };
            let len = fits(usize::from(needs >> 5)).unwrap_or(lengths[4]);
            (data.to_vec(), len, options)
        }
        _ => {
            let length = lengths[0].max(1);
            let skip = if how & 32 == 0 { u64::from(how) } else { lengths[1] };
            let len = length.checked_mul(lengths[2]).and_then(|n| n.checked_add(skip));
            let options = OpenOptions {
                format: Some(FormatType::Records),
                record_length: Some(length),
                skip: Some(skip),
                ..OpenOptions::default()
            };
            (data.to_vec(), len.unwrap_or(lengths[4]), options)
        }
    };
    let source: Arc<dyn Source> = Arc::new(Endless { head, len });
    let several = vec![source; 1 + usize::from(how >> 6)];
    let Ok(dataset) = Dataset::from_sources(several, &options) else { return };
    // Records of some megabytes are read whole, which says nothing new each time.
    if kind & 0x80 != 0 {
        let _ = dataset.describe(2);
    }
    let columns = dataset.schema().columns.len();
    let wanted = Needs {
        bytes: needs & 1 != 0,
        rows: needs & 16 != 0,
        records: needs & 2 != 0,
        numbers: if needs & 4 == 0 { Vec::new() } else { (0..columns.min(3)).collect() },
        texts: Vec::new(),
        brick: (needs & 8 != 0).then_some(2),
        matrix: needs & 64 != 0,
        order: false,
    };
    let mut scan = ScanOptions::new(wanted);
    scan.chunk = usize::from(chunk) * 97 + 1;
    scan.max_record = 1 << 20;
    scan.share = Share::Even { rank: usize::from(blocks >> 4), size: 16 };
    let Ok(scan) = dataset.scan(&scan) else { return };
    let (_, _) = (scan.plan(), scan.total_bytes());
    let Ok(mut worker) = scan.worker() else { return };
    for _ in 0..blocks & 3 {
        match worker.next() {
            Ok(Some(block)) => {
                assert!(block.text.len() <= 2 << 20, "a block of {} bytes", block.text.len());
                assert!(block.records.is_empty() || block.records.len() == block.rows);
                block.runs().for_each(|r| assert!(!r.is_empty()));
            }
            Ok(None) | Err(_) => break,
        }
    }
});
