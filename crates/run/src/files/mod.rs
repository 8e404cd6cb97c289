//! Files over nodes: [`put`] cuts one into stripes that lie in the dataspaces of several nodes, [`get`] brings it back.
//!
//! All ranks of a job make the same call. Each part is copied by one rank of its node, which takes its checksum meanwhile;
//! rank 0 writes the layout, or names the file, when all have done so. Before that there is nothing under any name, and what
//! was made is removed wherever something fails.

mod align;
mod copy;
mod get;
mod put;
#[cfg(test)]
mod tests;

pub use get::{get, get_on};
pub(crate) use put::id;
pub use put::{put, put_on};

use crate::clock::processors;
use crate::exchange::Crew;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::layout::{Layout, Spaces, nodes};
use stead_core::{Cancel, Error, Kind, Result};
use stead_format::OpenOptions;
use stead_store::space;

/// A file to put over nodes.
#[derive(Debug, Clone)]
pub struct Put {
    /// The file, which all ranks see.
    pub file: PathBuf,
    /// The dataspaces: `nvme@node[1-4]`; `nvme` is the one of each node that has a rank.
    pub over: String,
    /// Bytes of a stripe.
    pub stripe: u64,
    /// End stripes where records end.
    pub align: bool,
    /// How records are found, if that is not to be detected.
    pub options: OpenOptions,
    /// Number of parts; one for each dataspace unless it is said.
    pub parts: Option<usize>,
    /// What it is called in the dataspaces, and the layout with it: the name of the file unless it is said.
    pub name: Option<String>,
    /// The layout; beside the file unless it is said.
    pub layout: Option<PathBuf>,
    /// Replace a layout that is there, and remove its parts.
    pub force: bool,
    /// Folders of dataspaces of this node, `nvme=/mnt/nvme/me`, before those that are configured.
    pub dataspaces: Vec<String>,
    /// Threads that copy; 0 for as many as are of use.
    pub threads: usize,
    /// Stops it.
    pub cancel: Cancel,
}

impl Default for Put {
    fn default() -> Put {
        Put {
            file: PathBuf::new(),
            over: String::new(),
            stripe: 4 << 20,
            align: false,
            options: OpenOptions::default(),
            parts: None,
            name: None,
            layout: None,
            force: false,
            dataspaces: Vec::new(),
            threads: 0,
            cancel: Cancel::new(),
        }
    }
}

/// A file to bring back.
#[derive(Debug, Clone, Default)]
pub struct Get {
    /// The layout, which rank 0 sees.
    pub layout: PathBuf,
    /// Where to, on a file system that all ranks see. Unless it is said, the name of the file, where the layout is.
    pub output: Option<PathBuf>,
    /// Replace a file that is there.
    pub force: bool,
    /// As in [`Put`].
    pub dataspaces: Vec<String>,
    /// Threads that copy; 0 for as many as are of use.
    pub threads: usize,
    /// Stops it.
    pub cancel: Cancel,
}

/// What was copied, and what it took.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Copied {
    /// The file on the shared file system.
    pub file: PathBuf,
    /// Its layout.
    pub layout: PathBuf,
    /// Bytes.
    pub bytes: u64,
    /// Number of parts.
    pub parts: usize,
    /// Number of nodes that have them.
    pub nodes: usize,
    /// Number of ranks.
    pub ranks: usize,
    /// Wall time, with that for the devices to have all of it.
    pub seconds: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
}

impl Copied {
    fn of(layout: &Layout, paths: (PathBuf, PathBuf), ranks: usize, seconds: f64) -> Copied {
        let bytes = layout.length();
        let (file, layout_path) = paths;
        Copied {
            file,
            layout: layout_path,
            bytes,
            parts: layout.parts().len(),
            nodes: layout.nodes().len(),
            ranks,
            seconds,
            bytes_per_second: bytes as f64 / seconds.max(1e-9),
        }
    }
}

/// The algorithm of the checksums that are taken.
pub(crate) const CRC32C: &str = "crc32c";

static COPIES: AtomicU64 = AtomicU64::new(0);

/// What ranks tell each other first.
#[derive(Debug, Serialize, Deserialize)]
struct Word {
    /// The same on all ranks.
    asked: String,
    /// Length and time of the last change of the file.
    file: Option<(u64, (i64, i64))>,
    host: String,
    /// Somebody looks how far all are.
    watched: bool,
    /// Tells copies of rank 0's process apart.
    number: u64,
}

impl Word {
    fn new(crew: &Crew<'_>, asked: String, watched: bool) -> Word {
        // Runs count from 0.
        let number = 1 << 63 | COPIES.fetch_add(1, Ordering::Relaxed);
        Word { asked, file: None, host: crew.host.clone(), watched, number }
    }
}

pub(crate) fn malformed() -> Error {
    Error::format("a message from another rank is malformed")
}

pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|e| Error::internal(format!("cannot encode a message: {e}")))
}

pub(crate) fn decode<'b, T: Deserialize<'b>>(bytes: &'b [u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|_| malformed())
}

/// Meets the other ranks: the words of all of them, if all mean the same.
fn meet(crew: &mut Crew<'_>, mine: Result<Word>) -> Result<Vec<Word>> {
    let mine = mine.and_then(|word| Ok(vec![encode(&word)?]));
    let mut join = |mut a: Vec<Vec<u8>>, b| {
        a.extend(b);
        Ok(a)
    };
    let words = crew.words(concat!("stead ", env!("CARGO_PKG_VERSION")), mine, &mut join)?;
    let words: Vec<Word> = words.iter().map(|w| decode(w)).collect::<Result<_>>()?;
    if words.len() != crew.size() {
        return Err(malformed());
    }
    // All ranks have the same words, so that all come to the same.
    for (rank, word) in words.iter().enumerate() {
        if word.asked != words[0].asked {
            return Err(Error::usage(format!(
                "rank {rank} was asked for something else than rank 0"
            ))
            .with_hint("all ranks run the same command"));
        }
        if word.file != words[0].file {
            let message = format!(
                "rank {rank} sees another file than rank 0, or another length or time of change"
            );
            return Err(Error::new(Kind::Changed, message).with_hint(
                "the file must be on a file system that all ranks see, and nobody may write to it",
            ));
        }
    }
    crew.hosts = words.iter().map(|w| w.host.clone()).collect();
    Ok(words)
}

/// The dataspaces of this node, those that are given before those that are configured.
pub(crate) fn spaces(given: &[String]) -> Result<Spaces> {
    let mut spaces = space::of_user()?;
    given.iter().try_for_each(|g| spaces.give(g, &space::variable))?;
    Ok(spaces)
}

/// The rank that copies each part: one of its node, where those of a node have as many parts as each other; `None` where the
/// node has no rank.
fn carriers(layout: &Layout, hosts: &[String]) -> Vec<Option<usize>> {
    let mut on_node: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut has = vec![0u64; hosts.len()];
    let parts = layout.parts().iter().map(|part| {
        let ranks = on_node.entry(&part.node).or_insert_with(|| {
            (0..hosts.len()).filter(|r| nodes::is_host(&part.node, &hosts[*r])).collect()
        });
        let rank = ranks.iter().copied().min_by_key(|r| (has[*r], *r));
        if let Some(rank) = rank {
            has[rank] += 1;
        }
        rank
    });
    parts.collect()
}

/// The error for a node that has parts and no rank.
fn no_rank(node: &str, hosts: &[String]) -> Error {
    let mut distinct: Vec<&str> = Vec::new();
    for host in hosts {
        if !distinct.contains(&host.as_str()) {
            distinct.push(host);
        }
    }
    let ranks = nodes::fold(&distinct);
    let e = Error::usage(format!("node '{node}' has no rank: they run on {ranks}"));
    e.with_hint("start one on each node, such as with mpirun --host node1,node2 stead ..., or srun --mpi=pmix -N 2 stead ...")
}

/// Threads of one rank, `sharers` of which are on its node.
fn threads(asked: usize, sharers: usize) -> usize {
    /// A device is busy with these, and the page cache is copied by one or two.
    const USEFUL: usize = 4;
    match asked {
        0 => (processors() / sharers.max(1)).clamp(1, USEFUL),
        n => n.min(stead_core::limits::MAX_THREADS),
    }
}

/// How many ranks are on the node of this one.
fn sharers(crew: &Crew<'_>) -> usize {
    use stead_fabric::Fabric;
    let fabric = &crew.fabric;
    let mine = fabric.node_of(fabric.rank());
    (0..fabric.size()).filter(|r| fabric.node_of(*r) == mine).count()
}
