//! A table: columns of one length, each in a buffer of its own, as data frames hold them, or in a source of its own that is read.
//!
//! Nothing is copied but what a worker has in hand: it widens a run of rows of the columns asked for.
//! There are no bytes of records, so kernels of bytes do not run on a table; the place of a record is its number.

use crate::api::{Format, Progress, Scan, ScanOptions, Share, Worker};
use crate::convert;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::{
    Block, ByteOrder, ColumnInfo, ColumnKind, Columns, DType, Error, RecordKind, Result, Schema,
    Span, Value, limits,
};
use stead_store::{MemorySource, Source};

/// One column of a table: elements in this machine's byte order, one after the other.
#[derive(Clone)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Type of the elements.
    pub dtype: DType,
    /// What lends the bytes, the same every time it is asked.
    pub data: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

/// Lends what a column lends.
struct Lender(Arc<dyn AsRef<[u8]> + Send + Sync>);

impl AsRef<[u8]> for Lender {
    fn as_ref(&self) -> &[u8] {
        (*self.0).as_ref()
    }
}

/// The format of tables.
pub struct Table {
    name: &'static str,
    details: Vec<(String, Value)>,
    schema: Schema,
    dtypes: Vec<DType>,
    rows: u64,
}

impl Table {
    /// The format, and one source for each column.
    ///
    /// # Errors
    /// `Usage` if there is no column, two have one name, or their lengths differ.
    pub fn new(columns: Vec<TableColumn>) -> Result<(Table, Vec<Arc<dyn Source>>)> {
        let source = |c: TableColumn| -> (String, DType, Arc<dyn Source>) {
            (c.name.clone(), c.dtype, Arc::new(MemorySource::new(c.name, Lender(c.data))))
        };
        Table::of("table", columns.into_iter().map(source).collect(), Vec::new())
    }

    /// The same of columns that lie in sources, in this machine's byte order, with a name for the format and what else is to be said of it.
    ///
    /// # Errors
    /// As [`Table::new`].
    pub fn of(
        name: &'static str,
        columns: Vec<(String, DType, Arc<dyn Source>)>,
        details: Vec<(String, Value)>,
    ) -> Result<(Table, Vec<Arc<dyn Source>>)> {
        if columns.is_empty() || columns.len() > limits::MAX_COLUMNS {
            return Err(Error::usage(format!(
                "a table has 1 to {} columns, this one has {}",
                limits::MAX_COLUMNS,
                columns.len()
            )));
        }
        let mut known: Option<(u64, &str)> = None;
        let mut names = HashSet::new();
        for (name, dtype, source) in &columns {
            let (bytes, size) = (source.len(), dtype.size() as u64);
            if bytes % size != 0 {
                return Err(Error::usage(format!(
                    "column '{name}' has {bytes} bytes, no whole number of {dtype} elements"
                )));
            }
            let n = bytes / size;
            let (rows, first) = *known.get_or_insert((n, name));
            if rows != n {
                return Err(Error::usage(format!(
                    "column '{name}' has {n} rows, '{first}' has {rows}"
                )));
            }
            if !names.insert(name.as_str()) {
                return Err(Error::usage(format!("two columns are called '{name}'")));
            }
        }
        let rows = known.map_or(0, |(rows, _)| rows);
        let info = |(name, dtype, _): &(String, DType, _)| ColumnInfo {
            name: name.clone(),
            kind: ColumnKind::Binary(*dtype),
        };
        let schema = Schema {
            records: RecordKind::Items,
            columns: columns.iter().map(info).collect(),
            shape: None,
        };
        let details = [("rows".to_owned(), Value::Int(rows))].into_iter().chain(details).collect();
        let (dtypes, sources) =
            columns.into_iter().map(|(_, dtype, source)| (dtype, source)).unzip();
        Ok((Table { name, details, schema, dtypes, rows }, sources))
    }
}

impl Format for Table {
    fn name(&self) -> &'static str {
        self.name
    }

    fn schema(&self) -> &Schema {
        &self.schema
    }

    fn details(&self) -> Vec<(String, Value)> {
        self.details.clone()
    }

    fn scan(&self, sources: &[Arc<dyn Source>], options: &ScanOptions) -> Result<Box<dyn Scan>> {
        let needs = &options.needs;
        if needs.bytes || needs.brick.is_some() || !needs.texts.is_empty() {
            return Err(Error::usage("a table has numbers only, no bytes of records")
                .with_hint("kernels of bytes run on files, and on text or an array opened alone"));
        }
        let mut columns = Vec::with_capacity(needs.numbers.len());
        for id in &needs.numbers {
            let (Some(dtype), Some(source)) = (self.dtypes.get(*id), sources.get(*id)) else {
                return Err(Error::internal("a column that the table does not have is asked for"));
            };
            columns.push((*dtype, source.clone()));
        }
        let wide: usize = columns.iter().map(|(d, _)| d.size()).sum();
        // Never more rows than a block can number.
        let most = (options.chunk / wide.max(1)).clamp(1, 1 << 24) as u64;
        let rows = match &options.share {
            Share::Even { rank, size } => Share::of(self.rows, *rank, *size),
            Share::Held(_) => {
                return Err(Error::internal("the columns of a table lie on one node"));
            }
        };
        Ok(Box::new(TableScan {
            columns,
            options: options.clone(),
            next: AtomicU64::new(rows.start),
            rows,
            row_bytes: wide as u64,
            step: most,
            progress: Progress::default(),
        }))
    }
}

struct TableScan {
    columns: Vec<(DType, Arc<dyn Source>)>,
    options: ScanOptions,
    /// The next row to be taken.
    next: AtomicU64,
    /// This rank's rows.
    rows: Range<u64>,
    row_bytes: u64,
    step: u64,
    progress: Progress,
}

impl Scan for TableScan {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(TableWorker {
            scan: self,
            numbers: Vec::new(),
            places: Vec::new(),
            read: Vec::new(),
        }))
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn total_bytes(&self) -> u64 {
        (self.rows.end - self.rows.start) * self.row_bytes
    }

    fn plan(&self) -> Vec<(String, Value)> {
        let extents = (self.rows.end - self.rows.start).div_ceil(self.step);
        let name = |s: &Arc<dyn Source>| Value::Text(s.path().display().to_string());
        let lies = self.columns.iter().all(|(_, s)| s.bytes().is_some());
        let engine = if lies { "memory" } else { "read" };
        vec![
            ("extents".into(), Value::Int(extents)),
            ("engine".into(), Value::Text(engine.into())),
            (
                "columns_parsed".into(),
                Value::List(self.columns.iter().map(|(_, s)| name(s)).collect()),
            ),
        ]
    }
}

struct TableWorker<'s> {
    scan: &'s TableScan,
    /// Column by column.
    numbers: Vec<f64>,
    /// The numbers of rows within a block, as places, if they are asked for.
    places: Vec<Span>,
    /// Elements of a column that does not lie in memory.
    read: Vec<u8>,
}

impl Worker for TableWorker<'_> {
    fn next(&mut self) -> Result<Option<Block<'_>>> {
        let scan = self.scan;
        scan.options.cancel.check()?;
        let first = scan.next.fetch_add(scan.step, Ordering::Relaxed);
        if first >= scan.rows.end {
            return Ok(None);
        }
        let rows = scan.step.min(scan.rows.end - first) as usize;
        self.numbers.resize(rows * scan.columns.len(), 0.0);
        let mut rounded = 0;
        for (i, (dtype, source)) in scan.columns.iter().enumerate() {
            let (start, len) = (first * dtype.size() as u64, rows * dtype.size());
            let bytes = match source.bytes() {
                Some(all) => {
                    usize::try_from(start).ok().and_then(|at| all.get(at..at.checked_add(len)?))
                }
                None => {
                    self.read.resize(len, 0);
                    source.read_at(start, &mut self.read)?;
                    Some(&*self.read)
                }
            };
            let bytes = bytes.ok_or_else(|| {
                Error::new(stead_core::Kind::Changed, "the column became shorter during the scan")
                    .at_path(source.path())
            })?;
            let out = &mut self.numbers[i * rows..][..rows];
            rounded += convert::to_f64(*dtype, ByteOrder::NATIVE, bytes, out);
        }
        if scan.options.needs.records {
            // Fewer than 2^32.
            let known = self.places.len() as u32;
            self.places.extend((known..rows as u32).map(|start| Span { start, len: 0 }));
        }
        let places = &self.places[..rows.min(self.places.len())];
        Progress::add(&scan.progress.bytes, rows as u64 * scan.row_bytes);
        Progress::add(&scan.progress.rows, rows as u64);
        Progress::add(&scan.progress.rounded, rounded);
        Ok(Some(Block {
            seq: (first - scan.rows.start) / scan.step,
            offset: first,
            records: places,
            last: first + rows as u64 == scan.rows.end,
            rows,
            columns: Columns {
                number_ids: &scan.options.needs.numbers,
                numbers: &self.numbers,
                stride: rows,
                ..Columns::default()
            },
            ..Block::empty()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dataset;
    use stead_core::Needs;

    fn column(name: &str, dtype: DType, bytes: Vec<u8>) -> TableColumn {
        TableColumn { name: name.into(), dtype, data: Arc::new(bytes) }
    }

    fn numbers<const N: usize>(values: impl Iterator<Item = [u8; N]>) -> Vec<u8> {
        values.flatten().collect()
    }

    #[test]
    fn rows_come_once_whatever_the_extents() {
        let x = column("x", DType::F64, numbers((0..1000).map(|i| f64::from(i).to_ne_bytes())));
        let n = column("n", DType::I16, numbers((0..1000i16).map(|i| (-i).to_ne_bytes())));
        let table = Dataset::table(vec![x, n]).expect("table");
        for chunk in [1, 17, 4096, 1 << 20] {
            let mut options = ScanOptions::new(Needs { numbers: vec![0, 1], ..Needs::default() });
            options.chunk = chunk;
            let scan = table.scan(&options).expect("scan");
            let mut worker = scan.worker().expect("worker");
            let mut at = 0.0;
            while let Some(b) = worker.next().expect("block") {
                for (x, n) in b.numbers(0).iter().zip(b.numbers(1)) {
                    assert_eq!((*x, *n), (at, -at));
                    at += 1.0;
                }
            }
            assert_eq!(at, 1000.0);
            assert_eq!(scan.progress().bytes.load(Ordering::Relaxed), 10_000);
        }
        assert_eq!(table.describe(2).expect("described").rows[1], ["1.0", "-1.0"]);
    }

    #[test]
    fn a_record_lies_at_its_number() {
        let table = Dataset::table(vec![column("x", DType::U8, vec![7; 1000])]).expect("table");
        for chunk in [3, 1 << 20] {
            let needs = Needs { records: true, numbers: vec![0], ..Needs::default() };
            let scan = table.scan(&ScanOptions { chunk, ..ScanOptions::new(needs) }).expect("scan");
            let mut worker = scan.worker().expect("worker");
            let mut at = 0;
            while let Some(b) = worker.next().expect("block") {
                assert_eq!(b.records.len(), b.rows);
                for r in b.records {
                    assert_eq!((b.offset + u64::from(r.start), r.len), (at, 0));
                    at += 1;
                }
            }
            assert_eq!(at, 1000);
        }
    }

    #[test]
    fn tables_that_make_no_sense_are_refused() {
        let x = || column("x", DType::F64, vec![0; 16]);
        let bad = [
            vec![],
            vec![x(), x()],
            vec![x(), column("y", DType::F64, vec![0; 8])],
            vec![column("y", DType::F64, vec![0; 9])],
        ];
        for columns in bad {
            assert_eq!(
                Dataset::table(columns).err().map(|e| e.kind()),
                Some(stead_core::Kind::Usage)
            );
        }
        let table = Dataset::table(vec![x()]).expect("table");
        let bytes = ScanOptions::new(Needs { bytes: true, ..Needs::default() });
        assert!(table.scan(&bytes).is_err());
    }
}
