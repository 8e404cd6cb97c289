//! What is asked for.

use std::path::PathBuf;
use stead_core::{Cancel, limits};
use stead_kernel::Own;
use stead_model::Wish;
use stead_store::IoOptions;

/// A run: which kernels, over which rows, with which means.
///
/// ```
/// let request = stead_run::Request {
///     kernels: vec!["mean:arr_delay".into()],
///     filter: Some("dep_delay > 0".into()),
///     by: vec!["carrier".into()],
///     ..Default::default()
/// };
/// assert_eq!(request.threads, 0);
/// ```
#[derive(Debug, Clone)]
pub struct Request {
    /// Kernel specifications, such as `mean:bytes`. Each is a key of the results.
    pub kernels: Vec<String>,
    /// Kernels of the caller's own. Their results come after those of `kernels`, under their names.
    pub own: Vec<Own>,
    /// Only rows for which this holds.
    pub filter: Option<String>,
    /// Answers per value of these columns.
    pub by: Vec<String>,
    /// Worker threads; 0 for one a processor, which ranks of a node share. Never changes an answer.
    pub threads: usize,
    /// Bytes of memory that buffers and states may take, of all ranks of a node together.
    pub memory: u64,
    /// Bytes of one extent. Never changes an answer.
    pub chunk: usize,
    /// Files that the caller is going to write when the run is done: refused, like those of kernels, where
    /// they would replace the data or each other or cannot be made.
    pub outputs: Vec<PathBuf>,
    /// How bytes are read.
    pub io: IoOptions,
    /// Count and skip records that cannot be read, where the default is to fail.
    pub lenient: bool,
    /// Where to compute, for data that some ranks have and others ask for
    /// ([`open_apart`](crate::spread::open_apart)). Never changes an answer.
    pub place: Wish,
    /// Stops the run from outside.
    pub cancel: Cancel,
}

impl Default for Request {
    fn default() -> Self {
        Request {
            kernels: Vec::new(),
            own: Vec::new(),
            filter: None,
            by: Vec::new(),
            threads: 0,
            memory: limits::DEFAULT_MEMORY,
            chunk: limits::DEFAULT_CHUNK,
            outputs: Vec::new(),
            io: IoOptions::default(),
            lenient: false,
            place: Wish::Auto,
            cancel: Cancel::new(),
        }
    }
}
