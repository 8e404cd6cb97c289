//! What one rank knows of a file that all have open.

use super::far::{Far, nowhere};
use super::owners::{Owners, Part};
use super::service::Service;
use crate::engine::{New, Shared};
use crate::options::{Decision, Options};
use crate::registry;
use crate::session::File;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use stead_core::{Error, Kind, Result, units};
use stead_fabric::kinds::{kind, number};
use stead_fabric::{Fabric, FabricExt};
use stead_store::{FileSource, IoOptions, Source};

/// Readers of one node at most: more would only disturb each other.
const READERS: usize = 4;
/// Threads that fetch from other ranks unless told otherwise: so many requests of a rank are under way.
const FETCHERS: usize = 4;

/// Tags of opening and of sessions.
const OPEN: u32 = 0x5EAD_0000;
const READY: u32 = 0x5EAD_0002;
const SESSION: u32 = 0x5EAD_0004;
/// Tags of files begin here; each file has one.
const FILES: u32 = 0x5EAE_0000;

/// A rank has the file in its page cache; errors are numbered from the next number.
const MAPS: u8 = 1;

/// Who reads which bytes, and who is where.
pub(crate) struct Map {
    owners: RwLock<Owners>,
    /// Ranks that read, by node.
    readers: Vec<usize>,
    /// For each rank, whether it is on the node of this one.
    here: Vec<bool>,
    len: u64,
    block: u64,
}

impl Map {
    /// The parts of a range.
    pub(crate) fn parts(&self, range: Range<u64>) -> Vec<Part> {
        self.owners.read().unwrap_or_else(PoisonError::into_inner).parts(range).collect()
    }

    /// True if a rank is on this node.
    pub(crate) fn is_here(&self, rank: usize) -> bool {
        self.here.get(rank).copied().unwrap_or(false)
    }

    /// Shares out what a session covers, whole blocks of it.
    fn cover(&self, range: &Range<u64>) {
        let start = range.start / self.block * self.block;
        let end = range.end.checked_next_multiple_of(self.block).unwrap_or(self.len).min(self.len);
        if start < end {
            let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
            owners.assign(start..end, &self.readers, self.block);
        }
    }
}

/// A file that all ranks have open.
pub(crate) struct Group {
    fabric: Arc<dyn Fabric>,
    map: Arc<Map>,
    /// Reads the file itself, if this rank can.
    near: Option<Arc<Shared>>,
    /// True if the near engine may answer for what other ranks of this node read: it shares the page cache with them.
    shares: bool,
    far: Arc<Shared>,
    service: Option<Arc<Service>>,
    /// Sessions begin one after the other.
    beginning: Mutex<()>,
}

impl Drop for Group {
    fn drop(&mut self) {
        match &self.service {
            // It closes the near engine, when it has answered the last of the others.
            Some(service) => {
                registry::close(&self.far);
                service.leave();
            }
            // Both are one.
            None => registry::close(&self.far),
        }
    }
}

/// What each rank says when a file is opened.
struct Hello {
    /// Length, or kind and text of the error.
    opened: std::result::Result<u64, (Kind, String)>,
    /// The tag that rank 0 has chosen.
    tag: u32,
    /// The block that this rank would choose.
    block: u64,
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.tag.to_le_bytes());
        out.extend_from_slice(&self.block.to_le_bytes());
        match &self.opened {
            Ok(len) => {
                out.push(u8::MAX);
                out.extend_from_slice(&len.to_le_bytes());
            }
            Err((kind, text)) => {
                out.push(number(*kind));
                out.extend_from_slice(text.as_bytes());
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Hello> {
        let (tag, rest) = bytes.split_first_chunk()?;
        let (block, rest) = rest.split_first_chunk()?;
        let (sort, rest) = rest.split_first()?;
        let opened = match sort {
            &u8::MAX => Ok(u64::from_le_bytes(rest.try_into().ok()?)),
            n => Err((kind(*n), String::from_utf8_lossy(rest).into_owned())),
        };
        Some(Hello { opened, tag: u32::from_le_bytes(*tag), block: u64::from_le_bytes(*block) })
    }
}

/// Opens a file on all ranks: each gives the same path and options. Ranks that cannot open it get its bytes from those
/// that can. The sessions of the file are collective; its memory is a budget of the node, shared among its ranks.
///
/// A rank may drop the file before others have: a thread goes on to answer them.
///
/// # Errors
/// As [`crate::open`] if no rank can open it; `Changed` if ranks see files of different lengths; `Peer` if a
/// rank is gone.
pub fn open(fabric: Arc<dyn Fabric>, path: impl AsRef<Path>, options: &Options) -> Result<File> {
    let path = path.as_ref();
    let source = FileSource::open(path).map(|s| Arc::new(s) as Arc<dyn Source>);
    open_source(fabric, path, source, options)
}

/// As [`open`], for any source of bytes, or the error that this rank got when it looked for one.
///
/// # Errors
/// As [`open`].
pub fn open_source(
    fabric: Arc<dyn Fabric>,
    path: impl AsRef<Path>,
    source: Result<Arc<dyn Source>>,
    options: &Options,
) -> Result<File> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let path = path.as_ref();
    let (rank, size) = (fabric.rank(), fabric.size());
    let chosen = source.and_then(|s| {
        let new = New::prepare(s.clone(), options)?;
        Ok((s, new.block()))
    });
    let mine = Hello {
        opened: match &chosen {
            Ok((source, _)) => Ok(source.len()),
            Err(e) => Err((e.kind(), e.message().to_owned())),
        },
        tag: FILES.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed) & 0x00FF_FFFF),
        block: chosen.as_ref().map_or(0, |(_, block)| *block),
    };
    let malformed = || Error::format("a message from another rank is malformed");
    let all: Vec<Hello> = fabric
        .all_gather(OPEN, mine.encode())?
        .iter()
        .map(|bytes| Hello::decode(bytes).ok_or_else(malformed))
        .collect::<Result<_>>()?;
    let first = |all: &[Hello]| all.iter().position(|h| h.opened.is_ok());
    let (Some(reader), true) = (first(&all), all.len() == size) else {
        return Err(chosen.err().unwrap_or_else(|| nowhere(path)));
    };
    let len = *all[reader].opened.as_ref().map_err(|_| malformed())?;
    for (r, hello) in all.iter().enumerate() {
        if let Ok(other) = hello.opened
            && other != len
        {
            let message = format!("the file has {other} bytes here and {len} on rank {reader}");
            return Err(Error::new(Kind::Changed, message)
                .at_path(path)
                .at_rank(r)
                .with_hint("give all ranks the same file"));
        }
    }
    let block = all[reader].block.max(1);
    let here: Vec<bool> = (0..size).map(|r| fabric.node_of(r) == fabric.node_of(rank)).collect();
    let neighbours = here.iter().filter(|h| **h).count().max(1) as u64;
    let options = Options {
        block: Some(usize::try_from(block).map_err(|_| malformed())?),
        memory: (options.memory / neighbours).max(block.saturating_mul(8)),
        ..options.clone()
    };
    let source = chosen.ok().map(|(source, _)| source);
    let near = source.clone().map(|s| registry::open_source(s, &options)).transpose();
    // A rank that fails must not leave the others alone, and all must know whether messages are needed.
    let ready = fabric.all_gather(READY, ready(&near))?;
    let near = near?;
    for (r, said) in ready.iter().enumerate() {
        if let Some((number, text)) = said.split_first().filter(|(n, _)| **n > MAPS) {
            let text = String::from_utf8_lossy(text).into_owned();
            return Err(Error::new(kind(number - MAPS - 1), text).at_path(path).at_rank(r));
        }
    }
    let readers = readers(&*fabric, &all);
    let reads = readers.contains(&rank);
    // Ranks of one node that all share a page cache need no messages.
    let alone = here.iter().all(|h| *h) && ready.iter().all(|said| said == &[MAPS]);
    let shares = near.as_ref().is_some_and(|n| n.maps());
    let map = Arc::new(Map { owners: RwLock::default(), readers, here, len, block });
    let (service, far) = match &near {
        Some(near) if alone => (None, near.clone()),
        _ => {
            let near = near.clone().map(|near| (near, reads));
            let service = Service::start(fabric.clone(), all[0].tag, near, options.deadline)?;
            let far = Far {
                map: map.clone(),
                service: service.clone(),
                here: source.filter(|_| shares),
                path: path.to_owned(),
                len,
            };
            let fetchers = options.readers.unwrap_or(FETCHERS);
            let options = Options {
                readers: Some(fetchers),
                depth: Some(1),
                ahead: false,
                io: IoOptions::default(),
                ..options
            };
            (Some(service), registry::open_source(Arc::new(far), &options)?)
        }
    };
    let beginning = Mutex::new(());
    let group = Group { fabric, map, near, shares, far, service, beginning };
    Ok(File::of_ranks(group, path.to_owned()))
}

/// What a rank says when it is ready: whether it has the page cache, or kind and text of an error.
fn ready(near: &Result<Option<Arc<Shared>>>) -> Vec<u8> {
    match near {
        Ok(Some(near)) if near.maps() => vec![MAPS],
        Ok(_) => vec![0],
        Err(e) => {
            let mut said = vec![number(e.kind()) + MAPS + 1];
            said.extend_from_slice(e.message().as_bytes());
            said
        }
    }
}

/// Of each node, some ranks that could open the file, in the order of nodes.
fn readers(fabric: &dyn Fabric, all: &[Hello]) -> Vec<usize> {
    let mut nodes: Vec<(usize, Vec<usize>)> = Vec::new();
    for rank in (0..all.len()).filter(|r| all[*r].opened.is_ok()) {
        let node = fabric.node_of(rank);
        match nodes.iter_mut().find(|(n, _)| *n == node) {
            Some((_, ranks)) if ranks.len() < READERS => ranks.push(rank),
            Some(_) => {}
            None => nodes.push((node, vec![rank])),
        }
    }
    nodes.into_iter().flat_map(|(_, ranks)| ranks).collect()
}

impl Group {
    /// The engine whose file, counts and choices stand for the whole.
    pub(crate) fn main(&self) -> &Arc<Shared> {
        self.near.as_ref().unwrap_or(&self.far)
    }

    /// Agrees on a session. Returns the bytes that this rank is to read ahead.
    pub(crate) fn begin(&self, range: Result<Range<u64>>) -> Result<(Range<u64>, Vec<Range<u64>>)> {
        let _one = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, end) = range.as_ref().map_or((u64::MAX, 0), |r| (r.start, r.end));
        let mut mine = start.to_le_bytes().to_vec();
        mine.extend_from_slice(&end.to_le_bytes());
        let all = self.fabric.all_gather(SESSION, mine.clone())?;
        let range = range?;
        if let Some(other) = all.iter().position(|theirs| *theirs != mine) {
            let message = format!("ranks begin different sessions: bytes {start} to {end} here");
            return Err(Error::usage(message)
                .at_path(self.main().source().path())
                .at_rank(other)
                .with_hint("all ranks must begin the same session"));
        }
        self.map.cover(&range);
        let rank = self.fabric.rank();
        let parts = self.map.parts(range.clone()).into_iter().filter(|p| p.reader == rank);
        Ok((range, parts.map(|p| p.bytes).collect()))
    }

    /// The engine that answers for a range.
    pub(crate) fn engine(&self, range: Range<u64>) -> &Arc<Shared> {
        let Some(near) = &self.near else { return &self.far };
        let rank = self.fabric.rank();
        let mine = |part: &Part| match self.shares {
            true => self.map.is_here(part.reader),
            false => part.reader == rank,
        };
        if self.service.is_none() || self.map.parts(range).iter().all(mine) {
            near
        } else {
            &self.far
        }
    }

    /// For [`crate::Session::plan`].
    pub(crate) fn plan(&self) -> Vec<Decision> {
        let nodes: BTreeSet<usize> =
            (0..self.fabric.size()).map(|r| self.fabric.node_of(r)).collect();
        let fetched = self.service.as_ref().map_or(0, |s| s.fetched());
        let decision =
            |name, value: String, reason: &str| Decision { name, value, reason: reason.to_owned() };
        vec![
            decision(
                "ranks",
                self.fabric.size().to_string(),
                &format!("on {} node(s)", nodes.len()),
            ),
            decision(
                "ranks that read",
                self.map.readers.len().to_string(),
                &format!("of each node with the file {READERS} at most; each reads its own run"),
            ),
            decision(
                "fetched",
                units::format_size(fetched),
                "so far, from ranks of other nodes, as messages",
            ),
        ]
    }
}
