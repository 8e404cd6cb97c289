//! The traits between formats and those who scan.

use crate::textscan::quotes::Before;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::{Block, Cancel, Error, Needs, Result, Schema, Stops, Value, limits};
use stead_store::{IoOptions, Source};

/// Bytes of a source whose starts are a rank's: what begins in them is its.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Index of the source in the dataset.
    pub source: u32,
    /// Bytes of it; not none.
    pub bytes: Range<u64>,
}

/// Which part of the work is this rank's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Share {
    /// A contiguous part of all, for ranks that all reach all bytes.
    Even {
        /// This rank.
        rank: usize,
        /// Number of ranks.
        size: usize,
    },
    /// What begins in these bytes, for ranks each of which has some of them: a record (a row, a stretch of rows, a cell of
    /// planes) is the rank's that holds its first byte, and a compressed file that of the rank that holds byte 0. Sorted and
    /// disjoint; with those of the other ranks each byte of the dataset once.
    Held(Arc<[Held]>),
}

impl Share {
    /// All of it.
    pub const ALL: Share = Share::Even { rank: 0, size: 1 };

    /// The contiguous part of `0..n` that belongs to `rank` of `size`.
    pub fn of(n: u64, rank: usize, size: usize) -> Range<u64> {
        let cut = |r: usize| (u128::from(n) * r as u128 / size.max(1) as u128) as u64;
        cut(rank)..cut(rank.saturating_add(1))
    }

    /// The bytes of `held` as a share; neighbours become one.
    ///
    /// # Errors
    /// `Internal` if they are not sorted or overlap.
    pub fn held(held: impl IntoIterator<Item = Held>) -> Result<Share> {
        let mut all: Vec<Held> = Vec::new();
        for h in held {
            match all.last_mut() {
                _ if h.bytes.start >= h.bytes.end => {}
                Some(last) if last.source == h.source && last.bytes.end == h.bytes.start => {
                    last.bytes.end = h.bytes.end;
                }
                Some(last) if (last.source, last.bytes.end) > (h.source, h.bytes.start) => {
                    return Err(Error::internal("what a rank holds is not in order"));
                }
                _ => all.push(h),
            }
        }
        Ok(Share::Held(all.into()))
    }
}

/// Bytes of a dataset that went between ranks: a counter for each direction, which starts again when it is taken.
#[derive(Debug, Default)]
pub struct Traffic {
    /// That this rank got from others.
    pub fetched: AtomicU64,
    /// That others got from this rank.
    pub served: AtomicU64,
}

impl Traffic {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, bytes: usize) {
        Progress::add(counter, bytes as u64);
    }

    /// Bytes fetched and served since this was asked last.
    pub fn take(&self) -> (u64, u64) {
        (self.fetched.swap(0, Ordering::Relaxed), self.served.swap(0, Ordering::Relaxed))
    }
}

/// What one of several ranks, each of which has some of the bytes, has of a dataset.
#[derive(Debug, Clone)]
pub struct Holding {
    /// The rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// What begins in these bytes is this rank's.
    pub share: Share,
    /// Where it makes files near them; `None` if it has none.
    pub near: Option<Near>,
    /// Its host, by the name that layouts have.
    pub host: String,
    /// Folders of dataspaces, before those that are configured: [`OpenOptions::dataspaces`](crate::OpenOptions::dataspaces).
    pub dataspaces: Vec<String>,
    /// What stops those who wait for bytes of other ranks.
    pub stops: Stops,
    /// What goes between the ranks.
    pub traffic: Arc<Traffic>,
    /// Set where some ranks have data and others ask for them, so that either side may compute.
    pub apart: Option<Apart>,
}

/// Ranks of two kinds: those that have data, whose parts are [`Holding::share`], and the others, who may be the ones that
/// compute.
#[derive(Debug, Clone)]
pub struct Apart {
    /// Of each rank whether it has data.
    pub storage: Arc<[bool]>,
    /// This rank's part where the others compute: what it gets from those that have the data, and nothing for these.
    pub pulled: Share,
    /// Where parts of those others begin: source and offset, in the order of the data.
    pub cuts: Arc<[(u32, u64)]>,
    /// The storage that this rank has data on, by the name of [`stead_store::Tier`].
    pub tier: Option<String>,
    /// How much of that is in the memory of its host, 0 to 1.
    pub cached: f64,
}

/// Where a rank makes files near the data that it has: in the same dataspace, or the same folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Near {
    /// The node, as layouts name it.
    pub node: String,
    /// The dataspace; `None` outside dataspaces.
    pub space: Option<String>,
    /// Its folder, or that of the data; absolute.
    pub folder: PathBuf,
}

/// How to scan.
#[derive(Debug, Clone)]
pub struct ScanOptions {
    /// What the blocks must carry.
    pub needs: Needs,
    /// Bytes of one extent. Results never depend on it.
    pub chunk: usize,
    /// How bytes are read.
    pub io: IoOptions,
    /// This rank's part.
    pub share: Share,
    /// The states of quotes in which it begins, if they are known; else what lies before an even share is looked at, and
    /// bytes that a rank holds cannot be scanned where quotes have a meaning.
    pub before: Option<Before>,
    /// Records that cannot be read: count and skip them (true), or fail (false).
    pub lenient: bool,
    /// Longest record in bytes; a longer one is an error of kind `Limit` that says where it starts.
    pub max_record: usize,
    /// Checked at least once a block.
    pub cancel: Cancel,
}

impl ScanOptions {
    /// Defaults for `needs`.
    pub fn new(needs: Needs) -> Self {
        ScanOptions {
            needs,
            chunk: limits::DEFAULT_CHUNK,
            io: IoOptions::default(),
            share: Share::ALL,
            before: None,
            lenient: false,
            max_record: 256 << 20,
            cancel: Cancel::new(),
        }
    }
}

/// What a scan has done so far. Workers add; a progress display reads.
#[derive(Debug, Default)]
pub struct Progress {
    /// Bytes read from files, as they lie there (compressed if they are compressed).
    pub bytes: AtomicU64,
    /// Records handed out.
    pub rows: AtomicU64,
    /// Records skipped because they could not be read (lenient scans only).
    pub skipped: AtomicU64,
    /// Integers beyond 2^53 that were rounded to the nearest f64.
    pub rounded: AtomicU64,
}

impl Progress {
    /// Adds to a counter.
    pub fn add(counter: &AtomicU64, n: u64) {
        if n > 0 {
            counter.fetch_add(n, Ordering::Relaxed);
        }
    }
}

/// How records lie in the bytes of a dataset's files.
pub trait Format: Send + Sync {
    /// `csv`, `lines`, `records`, `npy`, `raw`.
    fn name(&self) -> &'static str;

    /// Columns and record structure.
    fn schema(&self) -> &Schema;

    /// What was detected or chosen, for `stead describe`: delimiter, header, byte order, ...
    fn details(&self) -> Vec<(String, Value)>;

    /// Plans a scan of `sources`. Reads at most headers.
    fn scan(&self, sources: &[Arc<dyn Source>], options: &ScanOptions) -> Result<Box<dyn Scan>>;
}

/// A scan under way, shared by its workers.
pub trait Scan: Send + Sync {
    /// A worker's way through the scan. Workers take extents from one queue as they become free.
    fn worker(&self) -> Result<Box<dyn Worker + '_>>;

    /// False if records are not counted, because nobody asked and it would cost something
    /// ([`Needs::only_bytes`]). [`Progress::rows`] and [`Block::rows`] are then 0.
    fn counts_rows(&self) -> bool {
        true
    }

    /// Counters.
    fn progress(&self) -> &Progress;

    /// Bytes that this rank's share will read in all.
    fn total_bytes(&self) -> u64;

    /// What will be done, for `--explain`: extents, engine, queue depth, direct, columns parsed.
    fn plan(&self) -> Vec<(String, Value)>;
}

/// One worker of a scan.
pub trait Worker: Send {
    /// The next block; `None` when no work is left. After an error the worker must not be asked again.
    fn next(&mut self) -> Result<Option<Block<'_>>>;
}
