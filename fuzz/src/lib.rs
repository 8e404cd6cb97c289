//! What the fuzz targets share: a scan as one value, so that scans can be compared.

use std::sync::Arc;
use stead_core::{ColumnInfo, ColumnKind, Needs, RecordKind, Result, Schema};
use stead_format::{Dataset, OpenOptions, ScanOptions};
use stead_store::{MemorySource, Source};

/// All that a scan hands out, put together over its blocks.
#[derive(Debug, Default, PartialEq)]
pub struct Seen {
    /// The bytes of all blocks.
    pub text: Vec<u8>,
    /// The bytes of each record.
    pub records: Vec<Vec<u8>>,
    /// Bits of each numeric column.
    pub numbers: Vec<Vec<u64>>,
    /// Each text column.
    pub texts: Vec<Vec<Option<Vec<u8>>>>,
    /// Number of records.
    pub rows: u64,
    /// Records skipped.
    pub skipped: u64,
}

/// Files of these contents.
pub fn sources(files: &[&[u8]]) -> Vec<Arc<dyn Source>> {
    let name = |i: usize| format!("file{i}");
    let source = |(i, f): (usize, &&[u8])| {
        Arc::new(MemorySource::new(name(i), f.to_vec())) as Arc<dyn Source>
    };
    files.iter().enumerate().map(source).collect()
}

/// Scans with extents of `chunk` bytes.
pub fn scan(dataset: &Dataset, chunk: usize, lenient: bool) -> Result<Seen> {
    let schema = dataset.schema();
    let texts = (0..schema.columns.len()).filter(|i| !schema.columns[*i].kind.is_number());
    let needs = Needs {
        bytes: true,
        rows: true,
        records: true,
        numbers: schema.numbers().into_iter().take(4).collect(),
        texts: texts.take(4).collect(),
        brick: None,
        matrix: false,
        order: false,
    };
    let mut options = ScanOptions::new(needs.clone());
    options.chunk = chunk;
    options.lenient = lenient;
    let scan = dataset.scan(&options)?;
    let mut seen = Seen {
        numbers: vec![Vec::new(); needs.numbers.len()],
        texts: vec![Vec::new(); needs.texts.len()],
        ..Seen::default()
    };
    let mut worker = scan.worker()?;
    let mut last = None;
    while let Some(block) = worker.next()? {
        assert!(last < Some(block.seq), "blocks come with ascending numbers");
        last = Some(block.seq);
        seen.rows += block.rows as u64;
        for run in block.runs() {
            seen.text.extend_from_slice(run);
        }
        assert_eq!(block.records.len(), block.rows);
        seen.records.extend((0..block.rows).map(|i| block.record(i).to_vec()));
        for (column, id) in seen.numbers.iter_mut().zip(&needs.numbers) {
            column.extend(block.numbers(*id).iter().map(|v| v.to_bits()));
        }
        for (column, id) in seen.texts.iter_mut().zip(&needs.texts) {
            let texts = block.texts(*id).expect("a column that was asked for");
            column.extend((0..block.rows).map(|i| texts.get(i).map(<[u8]>::to_vec)));
        }
    }
    seen.skipped = scan.progress().skipped.load(std::sync::atomic::Ordering::Relaxed);
    Ok(seen)
}

/// The bytes that a scan hands out to those who want nothing else.
fn bytes(dataset: &Dataset, chunk: usize) -> Result<Vec<u8>> {
    let mut options = ScanOptions::new(Needs { bytes: true, ..Needs::default() });
    options.chunk = chunk;
    let scan = dataset.scan(&options)?;
    let mut worker = scan.worker()?;
    let mut text = Vec::new();
    while let Some(block) = worker.next()? {
        block.runs().for_each(|run| text.extend_from_slice(run));
    }
    Ok(text)
}

/// Opens `files` and checks that every extent size shows the same.
pub fn same_on_any_split(files: &[&[u8]], options: &OpenOptions, chunk: usize) {
    let Ok(dataset) = Dataset::from_sources(sources(files), options) else { return };
    let _ = dataset.describe(3);
    // Thousands of extents say no more than hundreds, and take long.
    let least = files.iter().map(|f| f.len()).sum::<usize>() / 300;
    for lenient in [false, true] {
        let whole = scan(&dataset, 1 << 20, lenient);
        for chunk in [1, 2, 7, chunk.max(1)].into_iter().filter(|c| *c > least) {
            let got = scan(&dataset, chunk, lenient);
            match (&whole, &got) {
                (Ok(a), Ok(b)) => assert_eq!(a, b, "extents of {chunk} bytes, lenient {lenient}"),
                (Err(a), Err(b)) => assert_eq!(a.kind(), b.kind(), "{a} | {b}"),
                (a, b) => panic!("extents of {chunk} bytes: {a:?}, but in one piece: {b:?}"),
            }
            if lenient && let Ok(whole) = &whole {
                let text = bytes(&dataset, chunk).expect("bytes alone are less than records too");
                assert!(text == whole.text, "bytes alone, extents of {chunk} bytes");
            }
        }
    }
}

/// Cuts a few bytes of choices off the front.
pub fn choices<const N: usize>(data: &[u8]) -> Option<([u8; N], &[u8])> {
    let (head, rest) = data.split_at_checked(N)?;
    Some((head.try_into().ok()?, rest))
}

/// A schema with columns of every kind.
pub fn schema() -> Schema {
    let column = |name: &str, kind| ColumnInfo { name: name.into(), kind };
    Schema {
        records: RecordKind::Delimited,
        columns: vec![
            column("x", ColumnKind::Number),
            column("y", ColumnKind::Number),
            column("name", ColumnKind::Text),
            column("odd name", ColumnKind::Text),
        ],
        shape: None,
    }
}
