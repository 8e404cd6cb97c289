//! Datasets: the files that a user names, and what they are.

use crate::api::{Format, Holding, Scan, ScanOptions, Share};
use crate::arrays::ArrayFormat;
use crate::decode::{Codec, Decoder};
use crate::delimited;
use crate::delimited::fields;
use crate::detect::{self, Sample};
use crate::lines::Lines;
use crate::options::{FormatType, OpenOptions};
use crate::records::RecordFormat;
use crate::table::{Table, TableColumn};
use crate::textscan::quotes::{self, Quotes};
use crate::textscan::{Layout, head};
use crate::tipsy::{Header, TipsyFormat};
use serde::{Serialize, Serializer};
use std::path::Path;
use std::sync::Arc;
use stead_core::{
    Block, ByteOrder, ColumnInfo, DType, Error, Kind, Needs, Order, RecordKind, Result, Schema,
    Value, is_missing, limits,
};
use stead_store::{FileSource, Source};

/// Files of one format.
///
/// ```
/// use std::sync::Arc;
/// use stead_format::{Dataset, OpenOptions};
/// use stead_store::MemorySource;
///
/// let text = MemorySource::new("pets.csv", b"name,legs\ncat,4\nfish,0\n");
/// let pets = Dataset::from_sources(vec![Arc::new(text)], &OpenOptions::default())?;
/// assert_eq!(pets.schema().column("legs")?, 1);
/// assert_eq!(pets.describe(1)?.rows, [["cat", "4"]]);
/// # Ok::<(), stead_core::Error>(())
/// ```
pub struct Dataset {
    /// In file order.
    sources: Vec<Arc<dyn Source>>,
    format: Arc<dyn Format>,
    /// Set if the format is text.
    layout: Option<Layout>,
    total_bytes: u64,
    /// Set if the bytes lie with several ranks.
    holding: Option<Holding>,
}

/// One file of a [`Description`].
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FileInfo {
    /// Its name.
    pub path: String,
    /// Its length as it lies there.
    pub bytes: u64,
    /// `none`, `gzip` or `zstd`.
    pub compression: String,
}

/// What `stead describe` shows.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Description {
    /// `csv`, `tsv`, `lines`, `records`, `npy`, `raw`, `tipsy`, `table`, `recorded`.
    pub format: String,
    /// What was detected or chosen.
    #[serde(serialize_with = "as_map")]
    pub details: Vec<(String, Value)>,
    /// How the bytes fall into records.
    pub records: RecordKind,
    /// The columns.
    pub columns: Vec<ColumnInfo>,
    /// Shape, for arrays.
    pub shape: Option<Vec<u64>>,
    /// The files.
    pub files: Vec<FileInfo>,
    /// Length of all files.
    pub bytes: u64,
    /// Extents of the default size that a scan would have.
    pub extents: u64,
    /// `none`, `gzip`, `zstd`, or `mixed`.
    pub compression: String,
    /// The first records, as text.
    pub rows: Vec<Vec<String>>,
}

fn as_map<S: Serializer>(pairs: &[(String, Value)], s: S) -> std::result::Result<S::Ok, S::Error> {
    s.collect_map(pairs.iter().map(|(k, v)| (k, v)))
}

impl Dataset {
    /// Opens a file, a glob, a directory, or several of these as one dataset. The format is that of the
    /// first file that is not empty.
    ///
    /// # Errors
    /// `NotFound`, `Permission`, `Io`; `Usage` for options that contradict each other or the data;
    /// `Format` for files that are empty, of no known format, or unlike the first one.
    pub fn open(inputs: &[String], options: &OpenOptions) -> Result<Dataset> {
        options.check()?;
        let paths = stead_store::expand(inputs)?;
        let mut sources: Vec<Arc<dyn Source>> = Vec::with_capacity(paths.len());
        for p in paths {
            sources.push(Arc::new(FileSource::open(p)?));
        }
        Self::from_sources(sources, options)
    }

    /// A dataset of these sources, in this order.
    pub fn from_sources(sources: Vec<Arc<dyn Source>>, options: &OpenOptions) -> Result<Dataset> {
        options.check()?;
        if sources.is_empty() {
            return Err(Error::usage("no dataset was named"));
        }
        if sources.len() > limits::MAX_SOURCES {
            return Err(Error::limit(format!("more than {} files", limits::MAX_SOURCES)));
        }
        let mut first = &sources[0];
        for s in &sources {
            if !is_hollow(s, options)? {
                first = s;
                break;
            }
        }
        let (format, layout) = choose(first, options)
            .map_err(|e| if e.place().path.is_none() { e.at_path(first.path()) } else { e })?;
        if let Some(layout) = &layout {
            for s in sources.iter().filter(|s| !s.is_empty()) {
                layout.check_header(s, first.path())?;
            }
        }
        // What was said must make sense for what was found, too.
        OpenOptions { format: format.name().parse().ok(), ..options.clone() }
            .check()
            .map_err(|e| e.at_path(first.path()))?;
        let total_bytes = sources.iter().fold(0u64, |n, s| n.saturating_add(s.len()));
        Ok(Dataset { sources, format, layout, total_bytes, holding: None })
    }

    /// A table in memory. Its columns are lent by their owners, not copied.
    ///
    /// # Errors
    /// As [`Table::new`].
    pub fn table(columns: Vec<TableColumn>) -> Result<Dataset> {
        let (table, sources) = Table::new(columns)?;
        let total_bytes = sources.iter().fold(0u64, |n, s| n.saturating_add(s.len()));
        Ok(Dataset { sources, format: Arc::new(table), layout: None, total_bytes, holding: None })
    }

    /// Columns of one length whose elements are read, in this machine's byte order, of what a format of this name has.
    ///
    /// # Errors
    /// As [`Table::new`].
    pub fn columns(
        format: &'static str,
        columns: Vec<(String, DType, Arc<dyn Source>)>,
        details: Vec<(String, Value)>,
    ) -> Result<Dataset> {
        let (table, sources) = Table::of(format, columns, details)?;
        let total_bytes = sources.iter().fold(0u64, |n, s| n.saturating_add(s.len()));
        Ok(Dataset { sources, format: Arc::new(table), layout: None, total_bytes, holding: None })
    }

    /// The same, of which this is what a rank has: it can be run over by these ranks together alone.
    pub fn held_so(self, holding: Holding) -> Dataset {
        Dataset { holding: Some(holding), ..self }
    }

    /// What this rank has, if the bytes lie with several ranks.
    pub fn holding(&self) -> Option<&Holding> {
        self.holding.as_ref()
    }

    /// The part of `rank` of `size` that run over it together.
    ///
    /// # Errors
    /// `Usage` if it was opened by other ranks.
    pub fn share(&self, rank: usize, size: usize) -> Result<Share> {
        match &self.holding {
            None => Ok(Share::Even { rank, size }),
            Some(h) if (h.rank, h.size) == (rank, size) => Ok(h.share.clone()),
            Some(h) => Err(Error::usage(format!(
                "this dataset was opened by {} ranks together, and {size} would run over it",
                h.size
            ))
            .with_hint("run over it with the ranks that have opened it")),
        }
    }

    /// Columns and record structure.
    pub fn schema(&self) -> &Schema {
        self.format.schema()
    }

    /// The format.
    pub fn format(&self) -> &Arc<dyn Format> {
        &self.format
    }

    /// `csv`, `tsv`, `lines`, `records`, `npy`, `raw`, `tipsy`, `table`, `recorded`.
    pub fn format_name(&self) -> &'static str {
        self.format.name()
    }

    /// True if some of the bytes are compressed: of how many they become nothing is known then.
    ///
    /// # Errors
    /// Those of reading the first bytes of files.
    pub fn is_compressed(&self) -> Result<bool> {
        let Some(layout) = &self.layout else { return Ok(false) };
        for source in &self.sources {
            if layout.codec(source)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The files, in order; blocks name them by their index.
    pub fn sources(&self) -> &[Arc<dyn Source>] {
        &self.sources
    }

    /// Number of files.
    pub fn files(&self) -> usize {
        self.sources.len()
    }

    /// The first file.
    pub fn path(&self) -> &Path {
        self.sources[0].path()
    }

    /// Length of all files, as they lie there.
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Plans a scan.
    pub fn scan(&self, options: &ScanOptions) -> Result<Box<dyn Scan>> {
        self.format.scan(&self.sources, options)
    }

    /// True if a scan with these options has to know where quotes are open.
    pub fn is_chained(&self, options: &ScanOptions) -> bool {
        self.layout.as_ref().is_some_and(|l| !l.cutting(options).is_simple())
    }

    /// What the share of a scan does to quotes, and how many bytes were read for it: all of the share, with so many threads.
    ///
    /// # Errors
    /// As a scan; `Internal` where there are no quotes ([`Dataset::is_chained`]).
    pub fn quotes(&self, options: &ScanOptions, threads: usize) -> Result<(Quotes, u64)> {
        let layout = self.layout.clone();
        let layout = layout.ok_or_else(|| Error::internal("there are no quotes"))?;
        quotes::look(layout, &self.sources, options, threads)
    }

    /// What the dataset is, with its first `rows` records.
    pub fn describe(&self, rows: usize) -> Result<Description> {
        let mut files = Vec::with_capacity(self.sources.len());
        for s in &self.sources {
            let codec = match &self.layout {
                Some(l) => l.codec(s)?,
                None => None,
            };
            files.push(FileInfo {
                path: s.path().display().to_string(),
                bytes: s.len(),
                compression: codec.map_or("none", Codec::name).to_string(),
            });
        }
        let compression = match files.iter().map(|f| f.compression.as_str()).min() {
            Some(c) if files.iter().all(|f| f.compression == c) => c.to_string(),
            _ => "mixed".to_string(),
        };
        let chunk = limits::DEFAULT_CHUNK as u64;
        let schema = self.schema();
        Ok(Description {
            format: self.format_name().to_string(),
            details: self.format.details(),
            records: schema.records.clone(),
            columns: schema.columns.clone(),
            shape: schema.shape.as_ref().map(|s| s.dims().to_vec()),
            bytes: self.total_bytes,
            extents: self.sources.iter().map(|s| s.len().div_ceil(chunk)).sum(),
            compression,
            files,
            rows: self.rows(rows).map_err(|e| self.locate(e))?,
        })
    }

    /// The first records as text.
    fn rows(&self, most: usize) -> Result<Vec<Vec<String>>> {
        /// Values of one row that are shown; arrays may have many.
        const MOST_VALUES: usize = 1000;
        /// Bytes of one value that are shown.
        const SHOWN: usize = 200;
        /// Bytes of a record that is looked into.
        const SHOWN_RECORD: usize = 16 << 20;
        let mut needs = Needs { records: true, ..Needs::default() };
        let schema = self.schema();
        if matches!(schema.records, RecordKind::Items | RecordKind::Fields) {
            needs.numbers = schema.numbers().into_iter().take(MOST_VALUES).collect();
            let text = |c: &usize| !schema.columns[*c].kind.is_number();
            needs.texts = (0..schema.columns.len()).take(MOST_VALUES).filter(text).collect();
        }
        let mut options = ScanOptions::new(needs);
        options.chunk = 64 << 10;
        options.io.depth = 1;
        options.max_record = SHOWN_RECORD;
        let size = stead_core::units::format_size(SHOWN_RECORD as u64);
        let huge = vec![format!("(a record of more than {size})")];
        let scan = match self.scan(&options) {
            // The length of fixed records is known before one is read.
            Err(e) if e.kind() == Kind::Limit => return Ok(vec![huge]),
            scan => scan?,
        };
        let mut worker = scan.worker()?;
        let mut rows = Vec::new();
        while rows.len() < most {
            let block = match worker.next() {
                Ok(Some(block)) => block,
                Ok(None) => break,
                Err(e) if e.kind() == Kind::Limit => {
                    rows.push(huge);
                    break;
                }
                Err(e) => return Err(e),
            };
            for i in 0..block.rows.min(most - rows.len()) {
                rows.push(match &self.layout {
                    Some(Layout::Delimited(d)) => fields::split(&d.syntax, block.record(i))
                        .iter()
                        .map(|f| delimited::shorten_to(f, SHOWN))
                        .collect(),
                    Some(Layout::Lines(_)) => {
                        vec![delimited::shorten_to(line(block.record(i)), SHOWN)]
                    }
                    None if options.needs.numbers.is_empty() => {
                        vec![delimited::shorten_to(block.record(i), SHOWN)]
                    }
                    None => values(&block, i, schema.columns.len().min(MOST_VALUES)),
                });
            }
        }
        Ok(rows)
    }

    /// Puts the file's name in place of its index and, for text, adds the line. Reads the file up to the
    /// place, so it is for the one error that is shown. Who has bytes of it that are elsewhere counts them there, but for a
    /// compressed one.
    pub fn locate(&self, e: Error) -> Error {
        let Some(source) = e.place().source.and_then(|i| self.sources.get(i as usize)) else {
            return e;
        };
        let e = if e.place().path.is_none() { e.at_path(source.path()) } else { e };
        // Offsets of other kinds are those of the file as it lies there.
        let about_text = matches!(e.kind(), Kind::Data | Kind::Limit);
        match (&self.layout, e.place().offset, e.place().line) {
            (Some(layout), Some(offset), None) if about_text => {
                match layout.codec(source).and_then(|c| newlines(source, c, offset)) {
                    Ok(n) => e.at_line(n + 1),
                    Err(_) => e,
                }
            }
            _ => e,
        }
    }
}

/// The first columns of a row, of those that the block has.
fn values(block: &Block<'_>, row: usize, columns: usize) -> Vec<String> {
    let value = |c: usize| match block.texts(c) {
        Some(texts) => texts.get(row).map(delimited::shorten),
        // As short as reads back to the same bits: 1e-300, not three hundred zeros.
        None => block.numbers(c).get(row).map(|v| match is_missing(*v) {
            true => "NA".to_string(),
            false => format!("{v:?}"),
        }),
    };
    (0..columns).filter_map(value).collect()
}

/// A line without its end.
fn line(record: &[u8]) -> &[u8] {
    let record = record.strip_suffix(b"\n").unwrap_or(record);
    record.strip_suffix(b"\r").unwrap_or(record)
}

/// Newlines in the first `n` bytes of the (decompressed) file.
fn newlines(source: &Arc<dyn Source>, codec: Option<Codec>, n: u64) -> Result<u64> {
    if codec.is_none()
        && let Some(counted) = source.newlines(0..n)
    {
        return counted;
    }
    let mut decoder = codec.map(|c| Decoder::new(source.clone(), c)).transpose()?;
    let mut buf = vec![0; 1 << 20];
    let (mut at, mut lines) = (0, 0);
    while at < n {
        let want = (n - at).min(buf.len() as u64) as usize;
        let got = match &mut decoder {
            Some(d) => d.read(&mut buf[..want])?,
            None => {
                source.read_at(at, &mut buf[..want])?;
                want
            }
        };
        if got == 0 {
            break;
        }
        lines += memchr::memchr_iter(b'\n', &buf[..got]).count() as u64;
        at += got as u64;
    }
    Ok(lines)
}

/// What the name of a file says, and whether the name says that it is compressed.
fn by_name(path: &Path) -> Option<FormatType> {
    let name = path.file_name()?.to_string_lossy().to_ascii_lowercase();
    let name = [".gz", ".gzip", ".zst", ".zstd"]
        .iter()
        .find_map(|s| name.strip_suffix(s))
        .unwrap_or(&name);
    match name.rsplit_once('.')?.1 {
        "csv" => Some(FormatType::Csv),
        "tsv" | "tab" => Some(FormatType::Tsv),
        "log" => Some(FormatType::Lines),
        "npy" => Some(FormatType::Npy),
        "bin" | "raw" => Some(FormatType::Raw),
        "tipsy" | "std" => Some(FormatType::Tipsy),
        _ => None,
    }
}

/// What an array of NumPy begins with.
const NUMPY: &[u8] = b"\x93NUMPY";
/// Bytes in which headers of binary formats say what they are.
const START_BYTES: usize = 64;

type Chosen = (Arc<dyn Format>, Option<Layout>);

/// Decides what the first file is.
fn choose(source: &Arc<dyn Source>, options: &OpenOptions) -> Result<Chosen> {
    let codec = Codec::chosen(source.as_ref(), options.compression)?;
    let name = by_name(source.path());
    let hinted = if options.format.is_some() {
        options.format
    } else if options.is_raw_hinted() {
        Some(FormatType::Raw)
    } else if options.record_length.is_some() {
        Some(FormatType::Records)
    } else if options.species.is_some() {
        Some(FormatType::Tipsy)
    } else if options.is_delimited_hinted() {
        // The name may still say which kind.
        Some(if name == Some(FormatType::Tsv) && options.delimiter.is_none() {
            FormatType::Tsv
        } else {
            FormatType::Csv
        })
    } else {
        None
    };
    if source.is_empty() {
        return match hinted.or(name) {
            Some(FormatType::Lines) | None => Ok(lines(options)),
            // Who names the shape says that there are no elements.
            Some(FormatType::Raw) if options.shape.is_some() => {
                binary(source, FormatType::Raw, codec, options)
            }
            Some(_) => Err(empty()),
        };
    }
    if let Some(f) = hinted.filter(|f| !f.is_text()) {
        return binary(source, f, codec, options);
    }
    if let (None, None) = (hinted, codec) {
        // No sample is read where the first bytes or the name say it: of data on other nodes each rank would get one.
        let start = head::first_bytes(source, None, START_BYTES)?;
        let binary = |format| binary(source, format, None, options);
        if start.starts_with(NUMPY) || name == Some(FormatType::Npy) {
            return binary(FormatType::Npy);
        }
        // Names say little of snapshots, their headers all: these are counts that fit the length of the file.
        if Header::detect(&start, source.len()) {
            return binary(FormatType::Tipsy);
        }
        if name == Some(FormatType::Raw) {
            return binary(FormatType::Raw);
        }
    }
    let bytes = head::first_bytes(source, codec, limits::DETECT_BYTES)?;
    if bytes.is_empty() && hinted.or(name).is_some_and(|f| f != FormatType::Lines) {
        return Err(empty());
    }
    let text = &bytes[head::bom(&bytes)..];
    let sample = Sample { text, eof: bytes.len() < limits::DETECT_BYTES };
    if hinted.is_none() {
        if text.starts_with(NUMPY) || name == Some(FormatType::Npy) {
            return binary(source, FormatType::Npy, codec, options);
        }
        if name == Some(FormatType::Tipsy) && sample.is_binary() {
            return binary(source, FormatType::Tipsy, codec, options);
        }
        // An extension of text with binary content is most likely wrong.
        if sample.is_binary() && !name.is_some_and(FormatType::is_text) {
            return binary(source, FormatType::Raw, codec, options);
        }
    }
    let asked = hinted.or(name.filter(|f| f.is_text()));
    if asked == Some(FormatType::Lines) {
        return Ok(lines(options));
    }
    match detect::delimited(&sample, options, asked)? {
        Some(d) => {
            let d = Arc::new(d);
            Ok(chosen(Layout::Delimited(d)))
        }
        None => Ok(lines(options)),
    }
}

/// True if there is nothing in a file, or nothing once it is decompressed.
fn is_hollow(source: &Arc<dyn Source>, options: &OpenOptions) -> Result<bool> {
    if source.is_empty() {
        return Ok(true);
    }
    let codec = Codec::chosen(source.as_ref(), options.compression)?;
    Ok(codec.is_some() && head::first_bytes(source, codec, 1)?.is_empty())
}

fn empty() -> Error {
    Error::format("empty file").with_hint("there is nothing to tell the format or the columns by")
}

fn lines(options: &OpenOptions) -> Chosen {
    chosen(Layout::Lines(Lines::new(options.compression)))
}

fn chosen(layout: Layout) -> Chosen {
    (Arc::new(layout.clone()), Some(layout))
}

fn binary(
    source: &Arc<dyn Source>,
    format: FormatType,
    codec: Option<Codec>,
    options: &OpenOptions,
) -> Result<Chosen> {
    // Only who asks for the bytes as they lie (--type, --compression none) gets compressed ones.
    if let Some(codec) = codec
        && (options.compression.is_some() || format == FormatType::Npy || options.format.is_none())
    {
        return Err(Error::format(format!(
            "a {} file around format '{}' cannot be read",
            codec.name(),
            format.name()
        ))
        .with_hint(
            "only text is read compressed: decompress the file first, say --type lines if it is text, or \
             --compression none to read it as it lies",
        ));
    }
    let skip = options.skip.unwrap_or(0);
    let named = |array: ArrayFormat| match &options.names {
        Some(names) => array.named(names),
        None => Ok(array),
    };
    let format: Arc<dyn Format> = match format {
        FormatType::Npy => Arc::new(named(ArrayFormat::npy(source.as_ref())?)?),
        FormatType::Records => {
            let length = options.record_length.ok_or_else(|| {
                Error::usage("format 'records' needs the length of a record")
                    .with_hint("say --record-length BYTES")
            })?;
            Arc::new(RecordFormat::new(length, skip)?)
        }
        FormatType::Tipsy => Arc::new(TipsyFormat::new(source.as_ref(), options.species)?),
        _ => Arc::new(named(ArrayFormat::raw(
            source.as_ref(),
            options.dtype.unwrap_or(DType::U8),
            options.shape.clone(),
            options.order.unwrap_or(Order::C),
            options.byte_order.unwrap_or(ByteOrder::Little),
            skip,
        )?)?),
    };
    Ok((format, None))
}

impl Layout {
    /// An error that names both files if this one's header is not the dataset's.
    fn check_header(&self, source: &Arc<dyn Source>, first: &Path) -> Result<()> {
        let Layout::Delimited(d) = self else { return Ok(()) };
        if !d.header || source.path() == first {
            return Ok(());
        }
        let codec = self.codec(source)?;
        let found = self.head(source, codec, limits::DETECT_BYTES)?.header;
        if found.is_empty() || found == d.header_fields {
            return Ok(());
        }
        let what = if found.len() == d.header_fields.len() {
            let differs = found.iter().zip(&d.header_fields).find(|(a, b)| a != b);
            let (a, b) = differs.map_or(("", ""), |(a, b)| (a.as_str(), b.as_str()));
            format!(
                "its header has '{}' where that of '{}' has '{}'",
                delimited::shorten(a.as_bytes()),
                first.display(),
                delimited::shorten(b.as_bytes())
            )
        } else {
            format!(
                "its header has {} columns, that of '{}' has {}",
                found.len(),
                first.display(),
                d.header_fields.len()
            )
        };
        Err(Error::format(what).at_path(source.path()).at_line(1).with_hint(
            "all files of a dataset have the same columns; name only files that belong together",
        ))
    }
}
