//! What a run says: results, what was done, what it took.

use crate::place::Placing;
use serde::ser::{SerializeMap, Serializer};
use stead_core::Value;

/// The whole answer. As JSON: `{"results": {SPEC: value}, "plan": {...}, "metrics": {...}}`.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Report {
    /// One entry a kernel specification, in the order asked for.
    #[serde(serialize_with = "as_map")]
    pub results: Vec<(String, Value)>,
    /// What was decided before and during the run.
    pub plan: Plan,
    /// What it took.
    pub metrics: Metrics,
}

impl Report {
    /// The result of one specification.
    pub fn result(&self, spec: &str) -> Option<&Value> {
        self.results.iter().find(|(k, _)| k == spec).map(|(_, v)| v)
    }
}

/// What was decided.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Plan {
    /// The dataset's format.
    pub format: String,
    /// Number of files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Worker threads; of several ranks, those of rank 0.
    pub threads: usize,
    /// Ranks that share the work.
    pub ranks: usize,
    /// Nodes that they are on.
    pub nodes: usize,
    /// Vectors of the processor that the kernels use: `avx512`, `avx2`, `neon` or `portable`.
    pub vectors: &'static str,
    /// Bytes of one extent.
    pub chunk_bytes: usize,
    /// Memory budget.
    pub memory_bytes: u64,
    /// Where it was computed and why, where there was a choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<Placing>,
    /// The filter as it was understood.
    #[serde(rename = "where")]
    pub filter: Option<String>,
    /// Grouping columns.
    pub by: Vec<String>,
    /// The kernels that ran; several specifications may share one.
    pub kernels: Vec<PlannedKernel>,
    /// Details of the scan of the first pass: engine, queue depth, extents, columns.
    #[serde(serialize_with = "as_map")]
    pub scan: Vec<(String, Value)>,
}

/// One kernel of the plan.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct PlannedKernel {
    /// The specifications that it answers.
    pub answers: Vec<String>,
    /// Columns it reads.
    pub columns: Vec<String>,
    /// True if it looks at the bytes of the records.
    pub bytes: bool,
    /// Passes over the data that it took.
    pub passes: u64,
}

/// What a run took. Of all ranks together, but for the wall seconds, which are of rank 0.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Metrics {
    /// Wall seconds.
    pub seconds: f64,
    /// Seconds of all cores.
    pub cpu_seconds: f64,
    /// Passes over the data.
    pub passes: u64,
    /// Bytes read from files, over all passes.
    pub bytes_read: u64,
    /// Records read in the first pass; `None` if the kernels look at bytes alone and nobody counted.
    pub rows: Option<u64>,
    /// Records that passed the filter in the first pass, if they were counted.
    pub rows_kept: Option<u64>,
    /// Records left out because they could not be read (lenient runs).
    pub rows_skipped: u64,
    /// Integers beyond 2^53 rounded to the nearest 64-bit float.
    pub integers_rounded: u64,
    /// `bytes_read / seconds`.
    pub bytes_per_second: f64,
    /// Core-seconds for a gigabyte (10^9 bytes) read.
    pub core_seconds_per_gb: f64,
    /// Largest resident memory of the process; of several, the largest one.
    pub peak_memory_bytes: u64,
    /// Bytes that ranks sent each other: states, and what little they have to tell.
    pub bytes_sent: u64,
    /// Bytes of data on several nodes that ranks got from each other, since it was opened or run over before.
    pub bytes_fetched: u64,
    /// What each of several ranks took.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankMetrics>,
}

/// What one of several ranks took.
#[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RankMetrics {
    /// Name of its host.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// Worker threads.
    pub threads: usize,
    /// Bytes read from files, over all passes.
    pub bytes_read: u64,
    /// Bytes sent to other ranks.
    pub bytes_sent: u64,
    /// Bytes of data on several nodes that it got from other ranks.
    pub bytes_fetched: u64,
    /// And that others got from it.
    pub bytes_served: u64,
    /// Seconds of all cores that its process took.
    pub cpu_seconds: f64,
    /// Largest resident memory of its process.
    pub peak_memory_bytes: u64,
}

fn as_map<S: Serializer>(pairs: &[(String, Value)], s: S) -> Result<S::Ok, S::Error> {
    let mut map = s.serialize_map(Some(pairs.len()))?;
    for (k, v) in pairs {
        map.serialize_entry(k, v)?;
    }
    map.end()
}
