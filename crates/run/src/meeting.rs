//! What ranks tell each other before a run: whether they mean the same, and what each of them has.

use crate::Request;
use crate::clock::processors;
use crate::exchange::Crew;
use crate::extent::Extent;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::{Error, Kind, Result};
use stead_fabric::Fabric;
use stead_format::{Dataset, Share};
use stead_kernel::AnyKernel;

/// What the first words between ranks begin with: builds of other sources say other things.
pub const NAME: &str =
    concat!("stead ", env!("CARGO_PKG_VERSION"), " (build ", env!("STEAD_BUILD"), ")");

static RUNS: AtomicU64 = AtomicU64::new(0);

static PROCESS: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(std::process::id()));

/// Bytes that are seen of a file, those that it has, and the time of its last change.
type File = (u64, u64, Option<(i64, u32)>);

/// What a rank is asked for and what it sees, as pairs of a name and a value: equal on all ranks. Files come last.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Meant {
    asked: Vec<(String, String)>,
    files: Vec<File>,
}

/// What a rank has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub host: String,
    /// A number that no other process has: hosts may have one name, and processes of containers one number.
    process: u64,
    /// How many runs its process had begun before. That of rank 0 tells runs apart.
    pub run: u64,
    /// The data are in memory of the process.
    in_memory: bool,
    /// Processors that the rank may run on, a bit for each.
    may_run_on: Vec<u64>,
    /// How many of them it may keep busy.
    processors: u64,
    /// As they were asked for.
    pub threads: u64,
    pub memory: u64,
    pub chunk: u64,
    pub depth: u64,
    /// Somebody watches the run there.
    pub watched: bool,
    /// The bytes that it has, and those that it gets from others where those who ask compute.
    pub has: Extent,
    pub pulled: Extent,
}

impl Member {
    pub fn new(
        crew: &Crew<'_>,
        dataset: &Dataset,
        request: &Request,
        share: &Share,
        watched: bool,
    ) -> Member {
        let apart = dataset.holding().and_then(|h| h.apart.as_ref());
        Member {
            host: crew.host.clone(),
            process: *PROCESS,
            run: RUNS.fetch_add(1, Ordering::Relaxed),
            in_memory: dataset.holding().is_none()
                && dataset.sources().iter().any(|s| s.bytes().is_some()),
            may_run_on: may_run_on(),
            processors: processors() as u64,
            threads: request.threads as u64,
            memory: request.memory,
            chunk: request.chunk as u64,
            depth: request.io.depth as u64,
            watched,
            has: Extent::of(share, dataset),
            pulled: apart.map_or_else(Extent::default, |a| Extent::of(&a.pulled, dataset)),
        }
    }

    /// What is lost with it, where those who ask get the bytes and compute (`pulls`) or those who have them do.
    pub fn share(&self, pulls: bool) -> &Extent {
        if pulls && !self.pulled.is_none() { &self.pulled } else { &self.has }
    }

    /// True if both are of one process.
    pub fn same_process(&self, other: &Member) -> bool {
        self.process == other.process
    }

    /// Threads for this one of `node`, all ranks of its node, if all are to keep its processors busy: each processor counts
    /// as many ranks as may run on it.
    pub fn fair_threads(&self, node: &[&Member]) -> usize {
        if self.threads > 0 {
            return usize::try_from(self.threads).unwrap_or(usize::MAX);
        }
        let has = |m: &Member, p: usize| {
            m.may_run_on.get(p / 64).is_some_and(|word| word >> (p % 64) & 1 == 1)
        };
        let mine: Vec<usize> = (0..64 * self.may_run_on.len()).filter(|p| has(self, *p)).collect();
        let sharers = |p: usize| node.iter().filter(|m| has(m, p)).count().max(1);
        let part: f64 = mine.iter().map(|p| 1.0 / sharers(*p) as f64).sum();
        // Fewer may be kept busy than may be run on, where a container says so.
        let busy = self.processors as f64 / mine.len().max(1) as f64;
        let part = if mine.is_empty() {
            self.processors as f64 / node.len().max(1) as f64
        } else {
            part * busy.min(1.0)
        };
        (part.round() as usize).max(1)
    }
}

/// The processors that this thread may run on, a bit for each; none where the system does not tell.
pub fn may_run_on() -> Vec<u64> {
    let Ok(set) = rustix::thread::sched_getaffinity(None) else { return Vec::new() };
    let mut words = Vec::new();
    for p in (0..rustix::thread::CpuSet::MAX_CPU).filter(|p| set.is_set(*p)) {
        words.resize((p / 64 + 1).max(words.len()), 0u64);
        words[p / 64] |= 1 << (p % 64);
    }
    words
}

/// What a rank means.
pub fn meant(
    dataset: &Dataset,
    request: &Request,
    kernels: &[std::sync::Arc<dyn AnyKernel>],
) -> Result<Vec<u8>> {
    let schema = dataset.schema();
    let mut asked: Vec<(String, String)> = Vec::new();
    let mut say = |name: &str, value: String| asked.push((name.to_owned(), value));
    request.kernels.iter().for_each(|k| say("a kernel", k.clone()));
    request.own.iter().for_each(|k| say("a kernel", k.name().to_owned()));
    for output in kernels.iter().filter_map(|k| k.output()) {
        say("an output", output.display().to_string());
    }
    say("the filter", request.filter.clone().unwrap_or_default());
    request.by.iter().for_each(|c| say("a column of groups", c.clone()));
    say("lenient", request.lenient.to_string());
    say("the place", format!("{:?}", request.place));
    if let Some(apart) = dataset.holding().and_then(|h| h.apart.as_ref()) {
        say("the storage ranks", format!("{:?}", apart.storage));
    }
    say("the format", dataset.format_name().to_owned());
    for (name, value) in dataset.format().details() {
        say(&name, format!("{value:?}"));
    }
    say("the records", format!("{:?}", schema.records));
    say("the shape", schema.shape.as_ref().map(|s| format!("{:?}", s.dims())).unwrap_or_default());
    for column in &schema.columns {
        say("a column", format!("{} ({:?})", column.name, column.kind));
    }
    say("the files", format!("{} file(s)", dataset.files()));
    let file = |s: &std::sync::Arc<dyn stead_store::Source>| {
        let seen = s.len();
        let mut s = s;
        while let Some(origin) = s.origin() {
            s = origin;
        }
        let changed = s.file().map(|f| {
            let stat =
                rustix::fs::fstat(f).map_err(|e| Error::io("look at", s.path(), e.into()))?;
            // Of another width elsewhere.
            #[allow(clippy::unnecessary_cast, clippy::useless_conversion)]
            Ok((stat.st_mtime as i64, u32::try_from(stat.st_mtime_nsec).unwrap_or(0)))
        });
        Ok((seen, s.len(), changed.transpose()?))
    };
    let files = dataset.sources().iter().map(file).collect::<Result<_>>()?;
    postcard::to_stdvec(&Meant { asked, files })
        .map_err(|e| Error::internal(format!("cannot encode a request: {e}")))
}

/// The values of each name, in their order.
fn by_name(asked: &[(String, String)]) -> HashMap<&str, Vec<&str>> {
    let mut values = HashMap::<&str, Vec<&str>>::new();
    for (name, value) in asked {
        values.entry(name).or_default().push(value);
    }
    values
}

/// The error for ranks of which one means something else than this one.
fn differs(dataset: &Dataset, mine: &[u8], theirs: &[u8], rank: usize, other: usize) -> Error {
    let bad = || Error::format("what another rank means is malformed");
    let (Ok(mine), Ok(theirs)) =
        (postcard::from_bytes::<Meant>(mine), postcard::from_bytes::<Meant>(theirs))
    else {
        return bad();
    };
    let (ours, others) = (by_name(&mine.asked), by_name(&theirs.asked));
    let none = Vec::new();
    for (name, _) in mine.asked.iter().chain(&theirs.asked) {
        let name = name.as_str();
        let (a, b) = (ours.get(name).unwrap_or(&none), others.get(name).unwrap_or(&none));
        let Some(i) = (0..a.len().max(b.len())).find(|i| a.get(*i) != b.get(*i)) else { continue };
        let said = |values: &Vec<&str>| match values.get(i) {
            None | Some(&"") => "nothing".to_owned(),
            Some(value) => format!("'{value}'"),
        };
        let message = format!(
            "ranks differ in {name}: {} on rank {rank}, {} on rank {other}",
            said(a),
            said(b)
        );
        return Error::usage(message)
            .with_hint("all ranks run the same request over the same data");
    }
    for (i, (a, b)) in mine.files.iter().zip(&theirs.files).enumerate() {
        let message = match (a, b) {
            (a, b) if a == b => continue,
            ((_, a, _), (_, b, _)) if a != b => {
                format!("the file has {a} bytes on rank {rank} and {b} on rank {other}")
            }
            ((a, ..), (b, ..)) if a != b => {
                format!("{a} bytes of the file are seen on rank {rank} and {b} on rank {other}")
            }
            _ => {
                format!("the file was changed at another time on rank {rank} than on rank {other}")
            }
        };
        let e = Error::new(Kind::Changed, message).with_hint(
            "ranks share the files of a file system that all of them see; if somebody writes to it, wait",
        );
        return match dataset.sources().get(i) {
            Some(source) => e.at_path(source.path()),
            None => e,
        };
    }
    bad()
}

/// Meets the other ranks: what each of them has, if all mean the same. `mine` is what this one means, and what it has.
pub fn meet(
    crew: &mut Crew<'_>,
    dataset: Option<&Dataset>,
    mine: Result<(Vec<u8>, Member)>,
) -> Result<Vec<Member>> {
    let rank = crew.rank();
    let mine = mine.and_then(|(meant, member)| {
        let member = postcard::to_stdvec(&member)
            .map_err(|e| Error::internal(format!("cannot encode what a rank has: {e}")))?;
        Ok(vec![meant, member])
    });
    let mut join = |mut a: Vec<Vec<u8>>, b: Vec<Vec<u8>>| {
        let mut b = b.into_iter();
        let (Some(ours), Some(theirs), Some(dataset)) = (a.first(), b.next(), dataset) else {
            return Err(Error::format("a message from another rank is malformed"));
        };
        if *ours != theirs {
            return Err(differs(dataset, ours, &theirs, rank, rank + a.len() - 1));
        }
        a.extend(b);
        Ok(a)
    };
    let words = crew.words(NAME, mine, &mut join)?;
    let members = words.iter().skip(1).map(|w| postcard::from_bytes::<Member>(w));
    let members: Vec<Member> = members
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| Error::format("a message from another rank is malformed"))?;
    if members.len() != crew.size() {
        return Err(Error::format("a message from another rank is malformed"));
    }
    crew.hosts = members.iter().map(|m| m.host.clone()).collect();
    if let Some(dataset) = dataset {
        crew.shares = members.iter().map(|m| m.has.says(dataset)).collect();
    }
    let alone = |m: &Member| m.in_memory && members.iter().any(|other| !other.same_process(m));
    if members.iter().any(alone) {
        return Err(Error::usage(
            "data in memory are those of one process, and cannot be shared out among ranks",
        )
        .with_hint("write them to a file that all ranks see"));
    }
    Ok(members)
}

/// Refuses a kernel that wants the data in their order where ranks that compute do not have them in that of ranks.
pub fn in_order(members: &[Member], pulls: bool, kernel: &str) -> Result<()> {
    if Extent::in_order(members.iter().map(|m| if pulls { &m.pulled } else { &m.has })) {
        return Ok(());
    }
    let message = format!(
        "kernel '{kernel}' wants the data in their order, and ranks have parts that lie between those of others"
    );
    Err(Error::usage(message)
        .with_hint("run it where one rank has the data, or all of them see the same file"))
}

/// Of each rank, the ranks of its node.
pub fn nodes(fabric: &dyn Fabric) -> Vec<Vec<usize>> {
    let mut by_node = std::collections::BTreeMap::<usize, Vec<usize>>::new();
    for rank in 0..fabric.size() {
        by_node.entry(fabric.node_of(rank)).or_default().push(rank);
    }
    by_node.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(may_run_on: &[u64], processors: u64) -> Member {
        Member {
            host: String::new(),
            process: 0,
            run: 0,
            in_memory: false,
            may_run_on: may_run_on.to_vec(),
            processors,
            threads: 0,
            memory: 0,
            chunk: 0,
            depth: 0,
            watched: false,
            has: Extent::default(),
            pulled: Extent::default(),
        }
    }

    #[test]
    fn views_of_files_that_differ_are_not_the_same_data() {
        use std::sync::Arc;
        use stead_core::View;
        use stead_store::{FileSource, Source, Viewed};
        let dir = tempfile::tempdir().unwrap();
        let of = |name: &str, length: usize, seconds: u64, seen: u64| {
            let path = dir.path().join(name);
            std::fs::write(&path, "1\n".repeat(length)).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            file.set_modified(time).unwrap();
            let file: Arc<dyn Source> = Arc::new(FileSource::open(&path).unwrap());
            let viewed = Viewed::new(file, View::stretch(2, seen).unwrap()).unwrap();
            let options = stead_format::OpenOptions {
                format: Some(stead_format::FormatType::Lines),
                ..Default::default()
            };
            let dataset = Dataset::from_sources(vec![Arc::new(viewed)], &options).unwrap();
            meant(&dataset, &Request::default(), &[]).unwrap()
        };
        let first = of("a", 5, 1000, 4);
        assert_eq!(first, of("b", 5, 1000, 4));
        assert_ne!(first, of("c", 5, 1001, 4));
        assert_ne!(first, of("d", 6, 1000, 4));
        assert_ne!(first, of("e", 5, 1000, 6));
    }

    #[test]
    fn processors_are_shared_by_the_ranks_that_may_run_on_them() {
        let all = member(&[0xFF], 8);
        let threads =
            |node: &[&Member]| node.iter().map(|m| m.fair_threads(node)).collect::<Vec<_>>();
        assert_eq!(threads(&[&all]), [8]);
        assert_eq!(threads(&[&all; 3]), [3; 3]);
        assert_eq!(threads(&[&all; 20]), [1; 20]);
        // Bound to processors of their own by the launcher, and two of them to one socket.
        let (low, high) = (member(&[0x0F], 4), member(&[0xF0], 4));
        assert_eq!(threads(&[&low, &high]), [4, 4]);
        assert_eq!(threads(&[&low, &low, &high]), [2, 2, 4]);
        // A container may use four of eight; a system does not tell.
        let quota = member(&[0xFF], 4);
        assert_eq!(threads(&[&quota; 2]), [2; 2]);
        assert_eq!(threads(&[&member(&[], 6); 3]), [2; 3]);
        let asked = Member { threads: 5, ..all.clone() };
        assert_eq!(threads(&[&asked, &all]), [5, 4]);
        assert!(!may_run_on().is_empty());
    }
}
