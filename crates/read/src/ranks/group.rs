//! What one rank knows of a file that all have open.

use super::far::{Far, nowhere};
use super::owners::{Owners, Part};
use super::service::{self, Room, Service};
use super::sharing::{self, Found};
use crate::engine::{Counts, Lanes, New, Shared};
use crate::options::{Decision, Options};
use crate::registry;
use crate::session::File;
use std::collections::BTreeSet;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use stead_core::{Error, Kind, Result, limits, units};
use stead_fabric::kinds::{kind, number};
use stead_fabric::{Fabric, FabricExt};
use stead_store::{Announcement, FileSource, IoOptions, Segment, Source};

/// Readers of one node at most: more would only disturb each other.
const READERS: usize = 4;
/// Threads that fetch from the ranks of one other node unless told otherwise: so many requests of a rank are under way
/// there. A node whose disk hangs keeps no more of them.
const FETCHERS: usize = 4;
/// Nodes for which there are such threads at a time.
const NODES: usize = 8;

/// Tags of opening, two of them.
pub(super) const OPEN: u32 = 0x5EAD_0000;
/// Tags of files begin here, so many for each: that of the service, and two of what all ranks do together.
pub(super) const FILES: u32 = 0x6000_0000;
pub(super) const TAGS: u32 = 4;
/// Of so many bits. A process that has opened half a thousand million files begins anew.
const FILES_MASK: u32 = 0x7FFF_FFFC;

/// A rank has the file in its page cache; errors are numbered from the next number.
const MAPS: u8 = 1;
/// Added to the number of an error that concerns all ranks.
const ALL: u8 = 0x80;

/// Who reads which bytes, and who is where.
pub(crate) struct Map {
    owners: RwLock<Owners>,
    /// Ranks that read, by node.
    readers: Vec<usize>,
    /// For each rank, the number of its node, and whether that is this one.
    nodes: Vec<usize>,
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

    /// The rank that reads the block at an offset.
    pub(crate) fn reader(&self, offset: u64) -> Option<usize> {
        self.parts(offset..offset.saturating_add(1)).first().map(|p| p.reader)
    }

    /// The node that the block at an offset comes from.
    fn node(&self, offset: u64) -> usize {
        self.reader(offset).and_then(|reader| self.nodes.get(reader)).copied().unwrap_or(usize::MAX)
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
    /// Tags for what all ranks do together.
    together: u32,
    /// How many sessions have begun; they do one after the other.
    beginning: Mutex<u64>,
    /// Requests of this rank. Those of the near engine are also of others.
    requests: AtomicU64,
    at_once: AtomicU64,
}

impl Drop for Group {
    fn drop(&mut self) {
        match &self.service {
            // It closes the near engine, when it has answered the last of the others.
            Some(service) => {
                registry::close(&self.far);
                service.leave(&self.far);
            }
            // Both are one.
            None => registry::close(&self.far),
        }
        // What ranks have said that have begun a session without this one.
        self.fabric.forget(self.together..self.together.saturating_add(TAGS - 1));
    }
}

/// What each rank says when a file is opened.
struct Hello {
    /// Length, or kind and text of the error.
    opened: std::result::Result<u64, (Kind, String)>,
    /// That error is one for all ranks.
    refused: bool,
    /// The tag that rank 0 has chosen.
    tag: u32,
    /// The block that this rank would choose.
    block: u64,
    /// The file that this rank means.
    path: Vec<u8>,
}

impl Hello {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&self.tag.to_le_bytes());
        out.extend_from_slice(&self.block.to_le_bytes());
        out.extend_from_slice(&(self.path.len() as u64).to_le_bytes());
        out.extend_from_slice(&self.path);
        match &self.opened {
            Ok(len) => {
                out.push(u8::MAX);
                out.extend_from_slice(&len.to_le_bytes());
            }
            Err((kind, text)) => {
                out.push(number(*kind) + if self.refused { ALL } else { 0 });
                out.extend_from_slice(text.as_bytes());
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Hello> {
        let (tag, rest) = bytes.split_first_chunk()?;
        let (block, rest) = rest.split_first_chunk()?;
        let (path, rest) = rest.split_first_chunk()?;
        let path = usize::try_from(u64::from_le_bytes(*path)).ok()?;
        let (path, rest) = rest.split_at_checked(path)?;
        let (sort, rest) = rest.split_first()?;
        let opened = match sort {
            &u8::MAX => Ok(u64::from_le_bytes(rest.try_into().ok()?)),
            n => Err((kind(*n & !ALL), String::from_utf8_lossy(rest).into_owned())),
        };
        let refused = opened.is_err() && *sort & ALL != 0;
        let (tag, block) = (u32::from_le_bytes(*tag), u64::from_le_bytes(*block));
        Some(Hello { opened, refused, tag, block, path: path.to_owned() })
    }
}

/// Opens a file on all ranks: each gives the same path and options. Ranks that cannot open it get its bytes from those
/// that can. The sessions of the file are collective; its memory is a budget of the node, shared among its ranks.
///
/// A rank may drop the file before others have: a thread goes on to answer them.
///
/// # Errors
/// As [`crate::open`] if no rank can open it; `Usage` on all if they give different paths; `Changed` if ranks see files of
/// different lengths; `Peer` if a rank is gone.
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
    let path = path.as_ref();
    let (rank, size) = (fabric.rank(), fabric.size());
    let node_memory = options.memory;
    let nodes: Vec<usize> = (0..size).map(|r| fabric.node_of(r)).collect();
    // The memory of a node is shared among its ranks, and blocks fit in what is the share of a rank where most are.
    let ranks_of = |node: usize| nodes.iter().filter(|n| **n == node).count().max(1) as u64;
    let most = nodes.iter().map(|n| ranks_of(*n)).max().unwrap_or(1);
    let least = Options { memory: options.memory / most / 2, ..options.clone() };
    let chosen = source.and_then(|s| {
        let new = New::prepare(s.clone(), &least)?;
        Ok((s, new.block(), new.maps()))
    });
    let opened = chosen.as_ref().map(|(source, block, _)| (source.len(), *block));
    let all = hello(&*fabric, path, opened, false)?;
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
    let here: Vec<bool> = nodes.iter().map(|n| *n == nodes[rank]).collect();
    let share = options.memory / ranks_of(nodes[rank]);
    let options = Options {
        block: Some(usize::try_from(block).map_err(|_| malformed())?),
        memory: share / 2,
        ..options.clone()
    };
    let readers = readers(&*fabric, &all);
    let reads = readers.contains(&rank);
    let maps = chosen.as_ref().is_ok_and(|(.., maps)| *maps);
    let neighbours = ranks_of(nodes[rank]);
    let (mut near_options, mut far_memory, mut segment) = (options.clone(), None, None);
    if !maps && neighbours > 1 {
        // Neighbours look at blocks in memory where they lie.
        let reading = readers.iter().filter(|r| here[**r]).count() as u64;
        let (near, far) =
            sharing::budgets(node_memory, neighbours, reading, neighbours == size as u64);
        near_options.memory = near;
        far_memory = Some(far.max(block.saturating_mul(4)));
        segment = sharing::segment(block, near, reads);
    }
    let source = chosen.ok().map(|(source, ..)| source);
    let near = source.clone().map(|s| {
        let new = New::prepare(s, &near_options)?.in_segment(segment.clone());
        Ok(registry::open_new(new))
    });
    let near = near.transpose();
    // A rank that fails must not leave the others alone, and all must know whether messages are needed.
    let ready = fabric.all_gather(all[0].tag.wrapping_add(1), ready(&near, segment.as_deref()));
    let near = near?;
    let close = || near.iter().for_each(registry::close);
    let ready = ready.and_then(|said| agree(&said, path).map(|()| said));
    let ready = ready.inspect_err(|_| close())?;
    let found = Found::new(segment, &here, ready.iter().map(|said| announced(said)));
    // Ranks of one node that all share a page cache need no messages.
    let alone = here.iter().all(|h| *h) && ready.iter().all(|said| said == &[MAPS]);
    let shares = near.as_ref().is_some_and(|n| n.maps());
    let map = Arc::new(Map { owners: RwLock::default(), readers, nodes, here, len, block });
    let tag = all[0].tag;
    let together = tag.wrapping_add(1);
    let beginning = Mutex::new(0);
    if let Some(near) = near.clone().filter(|_| alone) {
        let far = near.clone();
        let (near, service) = (Some(near), None);
        let group = Group {
            fabric,
            map,
            near,
            shares,
            far,
            service,
            together,
            beginning,
            requests: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
        };
        return Ok(File::of_ranks(group, path.to_owned()));
    }
    // Where the page cache has the near blocks, all memory is for those of others.
    let far_memory = far_memory.unwrap_or(if shares { share } else { share / 2 });
    let options = Options { memory: far_memory, ..options };
    let served = near.clone().map(|near| (near, reads));
    let room = Room { block, memory: share / 4 };
    let started = Service::start(fabric.clone(), tag, served, options.deadline, room, found);
    let started = started.inspect_err(|_| {
        close();
        service::say_done(&*fabric, tag);
    });
    let started = started.and_then(|service| {
        let far = Far {
            map: map.clone(),
            service: service.clone(),
            here: source.filter(|_| shares),
            path: path.to_owned(),
            len,
        };
        let far = far_engine(far, &options).inspect_err(|_| service.give_up())?;
        service.asked_by(&far, map.clone());
        Ok((service, far))
    });
    let group = started.map(|(service, far)| {
        let (fabric, service) = (fabric.clone(), Some(service));
        Group {
            fabric,
            map,
            near: near.clone(),
            shares,
            far,
            service,
            together,
            beginning,
            requests: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
        }
    });
    // Nobody asks one who cannot answer.
    let said = group.as_ref().map_or_else(said, |_| vec![MAPS]);
    let all = fabric.all_gather(together, said);
    let group = group?;
    agree(&all?, path)?;
    Ok(File::of_ranks(group, path.to_owned()))
}

/// Takes part in [`open`] with an error that concerns all ranks, as arguments that make no sense: all get it, and none
/// waits for this one. Returns it.
///
/// Collective: the other ranks call this, [`open`] or [`open_source`].
pub fn refuse(fabric: &dyn Fabric, error: Error) -> Error {
    // That others refuse too, or are gone, is no matter here.
    let _ = hello(fabric, Path::new(""), Err(&error), true);
    error
}

/// Hears what all ranks say when a file is opened.
fn hello(
    fabric: &dyn Fabric,
    path: &Path,
    opened: std::result::Result<(u64, u64), &Error>,
    refused: bool,
) -> Result<Vec<Hello>> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mine = Hello {
        opened: opened.map(|(len, _)| len).map_err(|e| (e.kind(), e.message().to_owned())),
        refused,
        tag: FILES.wrapping_add(NEXT.fetch_add(TAGS, Ordering::Relaxed) & FILES_MASK),
        block: opened.map_or(0, |(_, block)| block),
        path: path.as_os_str().as_bytes().to_owned(),
    };
    let all: Vec<Hello> = fabric
        .all_gather(OPEN, mine.encode())?
        .iter()
        .map(|bytes| Hello::decode(bytes).ok_or_else(malformed))
        .collect::<Result<_>>()?;
    for (r, hello) in all.iter().enumerate().filter(|(_, hello)| hello.refused) {
        if let Err((kind, text)) = &hello.opened {
            return Err(Error::new(*kind, text.clone()).at_path(path).at_rank(r));
        }
    }
    // Threads that open several files at once may do so in another order on another rank: nobody gets bytes of another
    // file than the one it named.
    if let Some((r, other)) = all.iter().enumerate().find(|(_, hello)| hello.path != mine.path) {
        let other = String::from_utf8_lossy(&other.path);
        return Err(Error::usage(format!("ranks open different files: that rank '{other}'"))
            .at_path(path)
            .at_rank(r)
            .with_hint("all ranks must open the same files by the same names in the same order"));
    }
    let blocks = 1..=limits::MAX_READ_BLOCK as u64;
    if all.iter().any(|hello| hello.opened.is_ok() && !blocks.contains(&hello.block)) {
        return Err(malformed());
    }
    // Rank 0 has chosen it.
    if all.first().is_none_or(|first| first.tag < FILES || (first.tag - FILES) & !FILES_MASK != 0) {
        return Err(malformed());
    }
    Ok(all)
}

fn malformed() -> Error {
    Error::format("a message from another rank is malformed")
}

/// The engine for the bytes of others.
fn far_engine(far: Far, options: &Options) -> Result<Arc<Shared>> {
    let map = far.map.clone();
    let most = options.readers.unwrap_or(FETCHERS).max(1);
    let nodes: BTreeSet<usize> = map.readers.iter().map(|r| map.nodes[*r]).collect();
    let options = Options {
        readers: Some(most.saturating_mul(nodes.len().clamp(1, NODES))),
        depth: Some(1),
        ahead: false,
        io: IoOptions::default(),
        ..options.clone()
    };
    let engine = registry::open_source(Arc::new(far), &options)?;
    engine.set_lanes(Lanes { of: Box::new(move |offset| map.node(offset)), most });
    Ok(engine)
}

/// An error for the others: its kind and text.
fn said(error: &Error) -> Vec<u8> {
    let mut said = vec![number(error.kind()) + MAPS + 1];
    said.extend_from_slice(error.message().as_bytes());
    said
}

/// The first error among what ranks have said.
fn agree(all: &[Vec<u8>], path: &Path) -> Result<()> {
    for (r, said) in all.iter().enumerate() {
        if let Some((number, text)) = said.split_first().filter(|(n, _)| **n > MAPS) {
            let text = String::from_utf8_lossy(text).into_owned();
            return Err(Error::new(kind(number - MAPS - 1), text).at_path(path).at_rank(r));
        }
    }
    Ok(())
}

/// What a rank says when it is ready: whether it has the page cache, else what memory it shares, or kind and text of an error.
fn ready(near: &Result<Option<Arc<Shared>>>, segment: Option<&Segment>) -> Vec<u8> {
    match near {
        Ok(Some(near)) if near.maps() => vec![MAPS],
        Ok(_) => {
            let mut said = vec![0];
            said.extend(segment.into_iter().flat_map(|s| s.announcement().encode()));
            said
        }
        Err(e) => said(e),
    }
}

/// The memory that a rank shares, if it said so.
fn announced(said: &[u8]) -> Option<Announcement> {
    match said.split_first() {
        Some((0, said)) => Announcement::decode(said),
        _ => None,
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
        let mut begun = self.beginning.lock().unwrap_or_else(PoisonError::into_inner);
        *begun += 1;
        let (start, end) = range.as_ref().map_or((u64::MAX, 0), |r| (r.start, r.end));
        let mine: Vec<u8> = [start, end, *begun].iter().flat_map(|n| n.to_le_bytes()).collect();
        let all = self.fabric.all_gather(self.together, mine.clone())?;
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

    /// A request was made, and answered at once or not.
    pub(crate) fn asked(&self, at_once: bool) {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.at_once.fetch_add(u64::from(at_once), Ordering::Relaxed);
    }

    /// For [`crate::File::counts`], of which the main engine knows its own part.
    pub(crate) fn counts(&self, main: Counts) -> Counts {
        let (requests, at_once) =
            (self.requests.load(Ordering::Relaxed), self.at_once.load(Ordering::Relaxed));
        // What a rank reads is what its near engine reads. The far one has what others have read.
        let (blocks, bytes) = self.near.as_ref().map_or((0, 0), |_| (main.blocks, main.bytes));
        Counts { requests, at_once, blocks, bytes, held: main.held }
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
            self.shared_memory(),
            decision(
                "fetched",
                units::format_size(fetched),
                "so far, from other ranks, as messages",
            ),
        ]
    }

    /// How this rank gets what others of its node have read.
    fn shared_memory(&self) -> Decision {
        let sharing = self.service.as_ref().and_then(|s| s.sharing());
        let (value, reason) = match sharing {
            Some(sharing) => (
                format!("shared by {} ranks", sharing.ranks()),
                format!("{} of them were looked at so far", units::format_size(sharing.borrowed())),
            ),
            None if self.shares => ("page cache".to_owned(), "all of the node have it".to_owned()),
            None => {
                let reason = "a rank alone on its node, or none that can look at its memory";
                ("not shared".to_owned(), reason.to_owned())
            }
        };
        Decision { name: "blocks of the node", value, reason }
    }
}
