use super::*;
use crate::api::{Format, Held, Share};
use crate::arrays::ArrayFormat;
use crate::npy;
use crate::records::RecordFormat;
use proptest::prelude::*;
use std::sync::Mutex;
use stead_core::{Kind, Needs};
use stead_store::faulty::{Faults, FaultySource};
use stead_store::{Engine, FileSource, IoOptions, MemorySource};

/// What was handed out, block by block, in the order of block numbers.
#[derive(Default)]
struct Seen {
    text: Vec<u8>,
    records: Vec<Vec<u8>>,
    columns: Vec<Vec<f64>>,
    rows: u64,
    /// First plane, planes, voxels with halo.
    bricks: Vec<(u64, usize, Vec<f32>)>,
    rounded: u64,
    bytes: u64,
    total_bytes: u64,
    blocks: usize,
    lasts: usize,
}

/// Scans with `workers` threads on each of `ranks` ranks.
fn scan(
    format: &dyn Format,
    sources: &[Arc<dyn Source>],
    options: &ScanOptions,
    workers: usize,
    ranks: usize,
) -> Seen {
    scan_shares(format, sources, options, workers, &even(ranks))
}

fn even(ranks: usize) -> Vec<Share> {
    (0..ranks).map(|rank| Share::Even { rank, size: ranks }).collect()
}

/// What ranks hold of sources in stripes of so many bytes.
fn held(sources: &[Arc<dyn Source>], ranks: usize, stripe: u64) -> Vec<Share> {
    let share = |rank: u64| {
        let of = |(i, s): (usize, &Arc<dyn Source>)| {
            let len = s.len();
            let mine =
                (0..len.div_ceil(stripe)).filter(move |n| (n + i as u64) % ranks as u64 == rank);
            mine.map(move |n| Held {
                source: i as u32,
                bytes: n * stripe..((n + 1) * stripe).min(len),
            })
        };
        Share::held(sources.iter().enumerate().flat_map(of)).unwrap()
    };
    (0..ranks as u64).map(share).collect()
}

fn scan_shares(
    format: &dyn Format,
    sources: &[Arc<dyn Source>],
    options: &ScanOptions,
    workers: usize,
    shares: &[Share],
) -> Seen {
    type Piece = (u64, Vec<u8>, Vec<Vec<u8>>, Vec<Vec<f64>>, Option<(u64, usize, Vec<f32>)>);
    let pieces: Mutex<Vec<Piece>> = Mutex::default();
    let mut seen =
        Seen { columns: vec![Vec::new(); options.needs.numbers.len()], ..Seen::default() };
    for share in shares {
        let options = ScanOptions { share: share.clone(), ..options.clone() };
        let scan = format.scan(sources, &options).unwrap();
        std::thread::scope(|s| {
            for _ in 0..workers {
                s.spawn(|| {
                    let mut worker = scan.worker().unwrap();
                    while let Some(b) = worker.next().unwrap() {
                        let numbers = &options.needs.numbers;
                        pieces.lock().unwrap().push((
                            b.seq << 1 | u64::from(b.last),
                            b.text.to_vec(),
                            (0..b.records.len()).map(|i| b.record(i).to_vec()).collect(),
                            numbers.iter().map(|c| b.numbers(*c).to_vec()).collect(),
                            b.brick.map(|k| (k.first, k.planes, k.voxels.to_vec())),
                        ));
                    }
                });
            }
        });
        let load = |c: &AtomicU64| c.load(Ordering::Relaxed);
        seen.rows += load(&scan.progress().rows);
        seen.rounded += load(&scan.progress().rounded);
        seen.bytes += load(&scan.progress().bytes);
        seen.total_bytes += scan.total_bytes();
    }
    let mut pieces = pieces.into_inner().unwrap();
    pieces.sort_by_key(|p| p.0);
    let (dense, mut before) = (matches!(shares[0], Share::Even { .. }), None);
    for (i, (seq, text, records, columns, brick)) in pieces.into_iter().enumerate() {
        // What ranks hold has numbers with gaps.
        let next = i as u64;
        assert!(
            seq >> 1 == next || !dense && before.is_none_or(|b| b < seq >> 1),
            "every block once"
        );
        before = Some(seq >> 1);
        seen.lasts += (seq & 1) as usize;
        seen.blocks += 1;
        seen.text.extend(text);
        seen.records.extend(records);
        for (all, part) in seen.columns.iter_mut().zip(columns) {
            all.extend(part);
        }
        seen.bricks.extend(brick);
    }
    assert_eq!(seen.bytes, seen.total_bytes);
    seen
}

/// Element `i` of a test array: small numbers, and where they fit the ends of the type.
fn element(dtype: DType, i: u64) -> i128 {
    let x = (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as i128;
    match dtype {
        DType::I8 => i128::from(x as i8),
        DType::I16 => i128::from(x as i16),
        DType::U8 => i128::from(x as u8),
        DType::U16 => i128::from(x as u16),
        DType::I64 if i.is_multiple_of(5) => i128::from(i64::MAX) - x,
        DType::I64 if i % 5 == 1 => i128::from(i64::MIN) + x,
        DType::U64 if i.is_multiple_of(3) => i128::from(u64::MAX) - x,
        DType::I32 | DType::F32 | DType::F64 | DType::I64 => x - 5000,
        DType::U32 | DType::U64 => x,
    }
}

fn encode(dtype: DType, order: ByteOrder, x: i128, out: &mut Vec<u8>) {
    let mut bytes = match dtype {
        DType::F32 => (x as f32).to_le_bytes().to_vec(),
        DType::F64 => (x as f64).to_le_bytes().to_vec(),
        _ => x.to_le_bytes()[..dtype.size()].to_vec(),
    };
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    out.extend(bytes);
}

/// The file of an array, element by element in the order of the file.
fn raw_file(dtype: DType, byte_order: ByteOrder, skip: usize, n: u64) -> Vec<u8> {
    let mut out = vec![b'h'; skip];
    (0..n).for_each(|i| encode(dtype, byte_order, element(dtype, i), &mut out));
    out
}

fn memory(data: &[u8]) -> Arc<dyn Source> {
    Arc::new(MemorySource::new("f", data.to_vec()))
}

/// Column `c` of a 2-d array, or all elements of another, in row order.
fn expected(dtype: DType, shape: &[u64], order: Order, c: u64) -> Vec<f64> {
    let at = |i: u64| element(dtype, i) as f64;
    match shape {
        [n, d] if order == Order::C => (0..*n).map(|r| at(r * d + c)).collect(),
        [n, _] => (0..*n).map(|r| at(c * n + r)).collect(),
        _ => (0..shape.iter().product()).map(at).collect(),
    }
}

fn stripes() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![1 => Just(None), 2 => (1u64..300).prop_map(Some)]
}

fn any_shape() -> impl Strategy<Value = Vec<u64>> {
    prop_oneof![
        Just(vec![]),
        prop::collection::vec(0u64..200, 1),
        prop::collection::vec(0u64..14, 2),
        prop::collection::vec(0u64..9, 3),
        prop::collection::vec(0u64..4, 4),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn any_array_in_any_split(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        big: bool,
        fortran: bool,
        shape in any_shape(),
        skip in 0usize..40,
        chunk in 1usize..600,
        workers in 1usize..5,
        ranks in 1usize..4,
        bytes: bool,
        records: bool,
        pick in any::<u64>(),
        depth in 1usize..5,
        stripe in stripes(),
    ) {
        let order = if fortran { Order::Fortran } else { Order::C };
        let byte_order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let n: u64 = shape.iter().product();
        let data = raw_file(dtype, byte_order, skip, n);
        let source = memory(&data);
        let format =
            ArrayFormat::raw(source.as_ref(), dtype, Some(shape.clone()), order, byte_order, skip as u64)
                .unwrap();
        let width = format.schema().columns.len();
        let numbers: Vec<usize> = (0..width).filter(|c| pick >> (c % 64) & 1 == 1).collect();
        let apart = fortran && shape.len() == 2 && shape[0] > 1 && shape[1] > 1;
        let brick = (shape.len() == 3 && pick % 3 == 0).then_some(pick / 3 % 4);
        let needs =
            Needs { bytes, rows: true, records: records && !apart, numbers: numbers.clone(), texts: vec![], brick, matrix: false, order: false };
        let io = IoOptions { depth, ..IoOptions::default() };
        let options = ScanOptions { chunk, io, ..ScanOptions::new(needs.clone()) };
        let sources = [source];
        let shares = stripe.map_or_else(|| even(ranks), |s| held(&sources, ranks, s));
        let seen = scan_shares(&format, &sources, &options, workers, &shares);
        let rows = match shape[..] { [n, d] if d > 0 => n, [_, _] => 0, _ => n };
        // Nobody holds a row of a file that has none.
        prop_assert_eq!(seen.lasts, usize::from(stripe.is_none() || rows > 0));
        prop_assert_eq!(seen.rows, rows);
        for (c, column) in numbers.iter().zip(&seen.columns) {
            let want = if rows == 0 { vec![] } else { expected(dtype, &shape, order, *c as u64) };
            prop_assert_eq!(column, &want);
        }
        if needs.bytes {
            prop_assert!(seen.text == data);
        } else if needs.records {
            prop_assert!(seen.text == data[skip..]);
        } else {
            prop_assert!(seen.text.is_empty());
        }
        if needs.records && rows > 0 {
            let row = (data.len() - skip) / rows as usize;
            let want: Vec<_> = data[skip..].chunks_exact(row).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(seen.records, want);
        }
        let inexact = |i: &u64| (element(dtype, *i) as f64) as i128 != element(dtype, *i);
        if !matches!(dtype, DType::F32 | DType::F64) && numbers.len() == width {
            prop_assert_eq!(seen.rounded, (0..n).filter(inexact).count() as u64);
        }
        if let Some(halo) = brick.filter(|_| n > 0) {
            let s = if fortran { [shape[2], shape[1], shape[0]] } else { [shape[0], shape[1], shape[2]] };
            let (cell, plane) = (brick_planes(s), (s[1] * s[2]) as usize);
            let all: Vec<f32> = (0..n).map(|i| element(dtype, i) as f32).collect();
            prop_assert_eq!(seen.bricks.len() as u64, s[0].div_ceil(cell));
            for (i, (first, planes, voxels)) in seen.bricks.iter().enumerate() {
                prop_assert_eq!(*first, i as u64 * cell);
                prop_assert_eq!(*planes as u64, cell.min(s[0] - first));
                let begin = *first as usize * plane;
                let end = (begin + (planes + halo as usize) * plane).min(all.len());
                prop_assert!(voxels[..] == all[begin..end]);
            }
        }
        if !bytes && !records && numbers.is_empty() && brick.is_none() {
            prop_assert_eq!(seen.bytes, 0, "nothing is read to count rows");
        }
    }

    #[test]
    fn rows_come_in_whole_stretches(
        dtype in prop::sample::select(DType::ALL.to_vec()),
        big: bool,
        fortran: bool,
        rows in 0u64..20_000,
        width in 1u64..4,
        chunk in 1usize..200_000,
        depth in 1usize..5,
        stripe in stripes(),
        filtered: bool,
    ) {
        let order = if fortran { Order::Fortran } else { Order::C };
        let byte_order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let data = raw_file(dtype, byte_order, 8, rows * width);
        let source = memory(&data);
        let shape = vec![rows, width];
        let format =
            ArrayFormat::raw(source.as_ref(), dtype, Some(shape.clone()), order, byte_order, 8).unwrap();
        // A filter asks for columns as well.
        let numbers = if filtered { vec![0] } else { vec![] };
        let needs = Needs { matrix: true, numbers, ..Needs::default() };
        let io = IoOptions { depth, ..IoOptions::default() };
        let options = ScanOptions { chunk, io, ..ScanOptions::new(needs) };
        let sources = [source];
        let shares = stripe.map_or_else(|| even(1), |s| held(&sources, 3, 40 * s));
        let mut seen: Vec<(u64, Vec<f64>)> = Vec::new();
        let mut rounded = 0;
        for share in shares {
        let options = ScanOptions { share, ..options.clone() };
        let scan = format.scan(&sources, &options).unwrap();
        let (mut a, mut b) = (scan.worker().unwrap(), scan.worker().unwrap());
        let whole = stretch_rows(width as usize);
        let mut done = 0;
        for i in 0.. {
            let Some(block) = (if i % 3 == 0 { &mut b } else { &mut a }).next().unwrap() else {
                done += 1;
                if done > 4 { break } else { continue }
            };
            let m = block.matrix.unwrap();
            prop_assert_eq!((m.width as u64, m.values.len() as u64), (width, block.rows as u64 * width));
            prop_assert_eq!(m.ends.last().map_or(0, |e| *e as usize), block.rows);
            let last = block.last;
            prop_assert!(last || u64::from(*m.ends.last().unwrap()) % whole == 0);
            let starts = [0].into_iter().chain(m.ends.iter().copied());
            prop_assert!(starts.zip(m.ends).all(|(s, e)| u64::from(e - s) == whole || last));
            if filtered {
                let first: Vec<f64> = m.values.iter().step_by(width as usize).copied().collect();
                prop_assert_eq!(block.numbers(0), &first);
            }
            seen.push((block.seq, m.values.to_vec()));
        }
        rounded += scan.progress().rounded.load(Ordering::Relaxed);
        }
        seen.sort_by_key(|(seq, _)| *seq);
        let got: Vec<f64> = seen.into_iter().flat_map(|(_, v)| v).collect();
        let columns: Vec<Vec<f64>> = (0..width).map(|c| expected(dtype, &shape, order, c)).collect();
        let want: Vec<f64> =
            (0..rows as usize).flat_map(|r| columns.iter().map(move |c| c[r])).collect();
        prop_assert_eq!(got, want);
        // Of all columns, each once.
        if !matches!(dtype, DType::F32 | DType::F64) {
            let inexact = |i: &u64| (element(dtype, *i) as f64) as i128 != element(dtype, *i);
            prop_assert_eq!(rounded, (0..rows * width).filter(inexact).count() as u64);
        }
    }

    #[test]
    fn any_records_in_any_split(
        len in 1u64..50, n in 0u64..60, skip in 0u64..100, chunk in 1usize..300, workers in 1usize..4,
        bytes: bool, stripe in stripes(),
    ) {
        let data = raw_file(DType::U8, ByteOrder::Little, 0, skip + len * n);
        let needs = Needs { bytes, records: true, ..Needs::default() };
        let options = ScanOptions { chunk, ..ScanOptions::new(needs) };
        let format = RecordFormat::new(len, skip).unwrap();
        let sources = [memory(&data), memory(&data)];
        let shares = stripe.map_or_else(|| even(2), |s| held(&sources, 3, s));
        let seen = scan_shares(&format, &sources, &options, workers, &shares);
        prop_assert_eq!(seen.lasts, if stripe.is_none() || n > 0 { 2 } else { 0 });
        prop_assert_eq!(seen.rows, 2 * n);
        let text = if bytes { &data[..] } else { &data[skip as usize..] };
        prop_assert!(seen.text == [text, text].concat());
        let one = data[skip as usize..].chunks_exact(len as usize).map(<[u8]>::to_vec);
        prop_assert!(seen.records == one.clone().chain(one).collect::<Vec<_>>());
    }
}

#[test]
fn files_of_every_engine_give_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.npy");
    let shape = [3000, 7];
    for fortran in [false, true] {
        let mut data = npy::header(&shape, fortran);
        data.extend(raw_file(DType::F64, ByteOrder::Little, 0, 21_000));
        std::fs::write(&path, &data).unwrap();
        let source: Arc<dyn Source> = Arc::new(FileSource::open(&path).unwrap());
        let format = ArrayFormat::npy(source.as_ref()).unwrap();
        let order = if fortran { Order::Fortran } else { Order::C };
        for engine in [Engine::Auto, Engine::Pread] {
            for chunk in [100, 10_000, 1 << 20] {
                let needs = Needs { bytes: true, numbers: vec![0, 3, 6], ..Needs::default() };
                let io = IoOptions { engine, ..IoOptions::default() };
                let options = ScanOptions { chunk, io, ..ScanOptions::new(needs) };
                let seen = scan(&format, std::slice::from_ref(&source), &options, 2, 1);
                assert!(seen.text == data);
                for (i, c) in [0, 3, 6].into_iter().enumerate() {
                    assert!(seen.columns[i] == expected(DType::F64, &shape, order, c));
                }
            }
        }
    }
}

#[test]
fn nan_and_odd_floats_keep_their_bits() {
    let odd =
        [f64::NAN, -f64::NAN, 5e-324, -0.0, f64::INFINITY, f64::from_bits(0x7FF0_0000_0000_0001)];
    for big in [false, true] {
        let mut data = vec![0; 3];
        odd.iter().for_each(|x| data.extend(if big { x.to_be_bytes() } else { x.to_le_bytes() }));
        let order = if big { ByteOrder::Big } else { ByteOrder::Little };
        let source = memory(&data);
        let format =
            ArrayFormat::raw(source.as_ref(), DType::F64, None, Order::C, order, 3).unwrap();
        let needs = Needs { numbers: vec![0], ..Needs::default() };
        let seen = scan(&format, &[source], &ScanOptions::new(needs), 1, 1);
        let bits = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&seen.columns[0]), bits(&odd));
    }
}

#[test]
fn columns_of_arrays_can_be_named() {
    let array = || {
        let shape = Some(vec![2, 3]);
        ArrayFormat::raw(memory(&[0; 6]).as_ref(), DType::U8, shape, Order::C, ByteOrder::NATIVE, 0)
            .unwrap()
    };
    let named = |names: &[&str]| {
        array()
            .named(&names.iter().map(|n| n.to_string()).collect::<Vec<_>>())
            .map_err(|e| e.kind())
    };
    assert_eq!(named(&["x", "y", "z"]).unwrap().schema().column("z").unwrap(), 2);
    for bad in [&["x", "y"][..], &["x", "y", "x"]] {
        assert_eq!(named(bad).err(), Some(Kind::Usage));
    }
}

#[test]
fn wrong_sizes_say_what_would_fit() {
    let raw = |n: usize, shape: Option<Vec<u64>>, skip| {
        ArrayFormat::raw(
            memory(&vec![0; n]).as_ref(),
            DType::F32,
            shape,
            Order::C,
            ByteOrder::Big,
            skip,
        )
        .map(|f| f.schema().shape.clone())
        .map_err(|e| {
            assert_eq!(e.kind(), Kind::Usage);
            format!("{e} | {}", e.hint().unwrap_or(""))
        })
    };
    assert_eq!(raw(40, None, 0).unwrap().unwrap().dims(), [10]);
    let e = raw(48, Some(vec![5, 2]), 0).unwrap_err();
    assert!(e.contains("takes 40 bytes, and the file has 48"), "{e}");
    assert!(e.contains("shape 6,2 would fit") && e.contains("skip 8 bytes"), "{e}");
    assert!(raw(42, None, 0).unwrap_err().contains("2 are left over"));
    assert!(raw(10, None, 20).unwrap_err().contains("20 bytes to skip"));
    assert!(raw(40, Some(vec![3, 7]), 0).unwrap_err().contains("holds 10 elements"));
    assert!(raw(40, Some(vec![u64::MAX]), 0).unwrap_err().contains("64 bits"));
    assert!(raw(44, Some(vec![10]), 4).is_ok());
    for change in [-1i64, 8] {
        let mut data = npy::header(&[4], false);
        data.resize((data.len() as i64 + 32 + change) as usize, 0);
        let e = ArrayFormat::npy(memory(&data).as_ref()).err().unwrap();
        assert_eq!(e.kind(), Kind::Format);
        assert!(e.message().contains("takes 32 bytes, found"), "{e}");
    }
    let scan = RecordFormat::new(7, 0).unwrap();
    let e = scan.scan(&[memory(&[0; 16])], &ScanOptions::new(Needs::default())).err().unwrap();
    assert!(e.message().contains("2 records of 7 bytes, and 2 bytes are left"), "{e}");
    assert_eq!(e.place().offset, Some(14));
}

#[test]
fn what_an_array_cannot_give_is_refused() {
    let data = npy::header(&[4, 2], true);
    let mut data = data;
    data.resize(data.len() + 64, 0);
    let source = memory(&data);
    let format = ArrayFormat::npy(source.as_ref()).unwrap();
    let refused = |needs: Needs| {
        format.scan(std::slice::from_ref(&source), &ScanOptions::new(needs)).err().map(|e| e.kind())
    };
    assert_eq!(refused(Needs { numbers: vec![2], ..Needs::default() }), Some(Kind::Usage));
    assert_eq!(refused(Needs { texts: vec![0], ..Needs::default() }), Some(Kind::Usage));
    assert_eq!(refused(Needs { brick: Some(2), ..Needs::default() }), Some(Kind::Usage));
    let both = Needs { records: true, bytes: true, ..Needs::default() };
    assert_eq!(refused(both), Some(Kind::Usage));
    assert_eq!(refused(Needs { records: true, ..Needs::default() }), None);
    let mut other = npy::header(&[4, 3], false);
    other.resize(other.len() + 96, 0);
    let both = [source.clone(), memory(&other)];
    let e = format.scan(&both, &ScanOptions::new(Needs::default())).err().unwrap();
    assert_eq!(e.kind(), Kind::Format);
}

#[test]
fn a_cancelled_scan_stops() {
    let source = memory(&[0; 100]);
    let format = RecordFormat::new(1, 0).unwrap();
    let options = ScanOptions { chunk: 10, ..ScanOptions::new(Needs::default()) };
    let scan = format.scan(&[source], &options).unwrap();
    let mut worker = scan.worker().unwrap();
    assert!(worker.next().unwrap().is_some());
    options.cancel.cancel();
    assert_eq!(worker.next().unwrap_err().kind(), Kind::Cancelled);
}

/// The array `shape` behind faults; scanned in small blocks by two workers until the first error.
fn scan_with(faults: Faults, order: Order) -> std::result::Result<Vec<f64>, (Kind, Option<u64>)> {
    let data = raw_file(DType::I32, ByteOrder::Little, 0, 12_000);
    let source: Arc<dyn Source> = Arc::new(FaultySource::new(memory(&data), faults));
    let format = ArrayFormat::raw(
        source.as_ref(),
        DType::I32,
        Some(vec![4000, 3]),
        order,
        ByteOrder::Little,
        0,
    )
    .unwrap();
    let needs = Needs { bytes: true, numbers: vec![1], ..Needs::default() };
    let options = ScanOptions { chunk: 1000, ..ScanOptions::new(needs) };
    let scan = format.scan(&[source], &options).unwrap();
    let mut worker = scan.worker().unwrap();
    let mut out = Vec::new();
    loop {
        match worker.next() {
            Ok(Some(block)) => out.extend_from_slice(block.numbers(1)),
            Ok(None) => return Ok(out),
            Err(e) => {
                assert!(e.place().path.is_some(), "{e}");
                return Err((e.kind(), e.place().offset));
            }
        }
    }
}

#[test]
fn faults_below_become_errors_with_their_place() {
    for order in [Order::C, Order::Fortran] {
        let want = expected(DType::I32, &[4000, 3], order, 1);
        for seed in 0..5 {
            let faults = Faults { seed, short_percent: 60, ..Faults::default() };
            assert_eq!(scan_with(faults, order).as_ref(), Ok(&want), "seed {seed}");
        }
        let bad = Faults { bad_byte: Some(20_001), ..Faults::default() };
        assert_eq!(scan_with(bad, order), Err((Kind::Io, Some(20_001))));
        let shrink = Faults { shrink: Some((3, 30_000)), ..Faults::default() };
        assert_eq!(scan_with(shrink, order).unwrap_err().0, Kind::Changed);
    }
}

#[derive(Debug)]
struct Endless(u64);

impl Source for Endless {
    fn path(&self) -> &std::path::Path {
        std::path::Path::new("endless")
    }

    fn len(&self) -> u64 {
        self.0
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(7);
        Ok(())
    }
}

#[test]
fn a_long_head_does_not_keep_from_the_first_record() {
    let file: Arc<dyn Source> = Arc::new(Endless(1 << 60));
    let format = RecordFormat::new(1 << 10, 1 << 59).unwrap();
    let options = ScanOptions::new(Needs { records: true, ..Needs::default() });
    let scan = format.scan(&[file], &options).unwrap();
    let mut worker = scan.worker().unwrap();
    let block = worker.next().unwrap().unwrap();
    assert_eq!((block.offset, block.record(0)), (1 << 59, &[7; 1 << 10][..]));
}

#[test]
fn a_scan_of_any_length_is_planned_at_once() {
    let format = RecordFormat::new(3, 1).unwrap();
    let file: Arc<dyn Source> = Arc::new(Endless(1 << 62));
    let needs = Needs { bytes: true, ..Needs::default() };
    let total = |files: &[Arc<dyn Source>], share| {
        let mut options = ScanOptions { share, ..ScanOptions::new(needs.clone()) };
        options.chunk = 5;
        format.scan(files, &options).map(|s| s.total_bytes())
    };
    let one = std::slice::from_ref(&file);
    assert_eq!(total(one, Share::ALL).unwrap(), file.len());
    let parts = (0..7).map(|rank| total(one, Share::Even { rank, size: 7 }).unwrap());
    assert_eq!(parts.sum::<u64>(), file.len());
    let many = vec![Arc::new(Endless(u64::MAX - 2)) as Arc<dyn Source>; 9];
    assert_eq!(total(&many, Share::ALL).err().map(|e| e.kind()), Some(Kind::Limit));
}
