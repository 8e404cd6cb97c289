//! What one rank has of a file that all have open: for the first session, and again for one of quite another size, all ranks
//! make what they read it by ([`Joint`]).

use super::far::Far;
use super::opening::{Agreed, Begin, READERS, TAGS, agree, announce, malformed};
use super::owners::{Owners, Part};
use super::service::{self, Room, Service};
use super::sharing::{self, Found};
use crate::engine::{Counts, Lanes, Shared};
use crate::opened::Opened;
use crate::options::{ASKED, Decision, Options, There};
use crate::process::inherited;
use crate::registry;
use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use stead_core::{Error, Result, limits, units};
use stead_fabric::Fabric;
use stead_store::{IoOptions, Source};

/// Threads that fetch from the ranks of one other node unless told otherwise: so many requests of a rank are under way
/// there. A node whose disk hangs keeps no more of them.
const FETCHERS: usize = 4;
/// Nodes for which there are such threads at a time.
const NODES: usize = 8;
/// Sets of what is read by, at most: there are so many bits for those that are used.
const MOST: usize = 64;

/// A file that all ranks have open.
pub(crate) struct Group {
    fabric: Arc<dyn Fabric>,
    agreed: Arc<Agreed>,
    options: Options,
    /// The file, if this rank can open it.
    opened: Option<Opened>,
    /// How many sessions have begun; they do one after the other.
    beginning: Mutex<u64>,
    /// What they read by: the same on all ranks, in the order in which it was made.
    joints: Mutex<Joints>,
    /// The process that has opened it. One that was forked may have inherited a lock that is taken for good.
    process: u32,
}

#[derive(Default)]
struct Joints {
    all: Vec<Arc<Joint>>,
    /// How many were ever made.
    made: u64,
    /// What was done by those that there are no more.
    past: Counts,
}

impl Joints {
    fn now(&self) -> (Vec<Arc<Joint>>, u64) {
        (self.all.clone(), self.made)
    }

    fn add(&mut self, joint: &Arc<Joint>) {
        self.made += 1;
        self.all.push(joint.clone());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.is_inherited() {
            return;
        }
        // What ranks have said that have begun a session without this one.
        self.fabric.forget(self.agreed.tag..self.agreed.tag.saturating_add(TAGS - 1));
    }
}

/// The place of a file on a rank that does not have it, before any session.
#[derive(Debug)]
struct Elsewhere {
    path: PathBuf,
    len: u64,
}

impl Source for Elsewhere {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, _buf: &mut [u8]) -> Result<()> {
        let error = Error::usage("this rank does not have the file");
        let error = error.at_path(&self.path).at_offset(offset);
        Err(error.with_hint("begin a session, and read from that"))
    }
}

impl Group {
    pub(super) fn new(
        fabric: Arc<dyn Fabric>,
        agreed: Agreed,
        opened: Option<Opened>,
        options: &Options,
    ) -> Group {
        Group {
            fabric,
            agreed: Arc::new(agreed),
            options: options.clone(),
            opened,
            beginning: Mutex::new(0),
            joints: Mutex::default(),
            process: std::process::id(),
        }
    }

    /// True in a child that was forked. Ranks are the processes that have opened the file.
    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// The file as this rank sees it.
    pub(crate) fn source(&self) -> Arc<dyn Source> {
        match &self.opened {
            Some(opened) => opened.source().clone(),
            None => Arc::new(Elsewhere { path: self.agreed.path.clone(), len: self.agreed.len }),
        }
    }

    /// Fills a buffer: from the file, or from others who have it.
    pub(crate) fn read_alone(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let last = match self.opened {
            None if !self.is_inherited() => lock(&self.joints).all.last().cloned(),
            _ => None,
        };
        match last {
            Some(joint) => joint.far.source().read_at(offset, buffer),
            None => self.source().read_at(offset, buffer),
        }
    }

    /// For [`crate::File::counts`].
    pub(crate) fn counts(&self) -> Counts {
        if self.is_inherited() {
            return Counts::default();
        }
        let joints = lock(&self.joints);
        joints.all.iter().fold(joints.past, |sum, joint| sum.and(&joint.counts()))
    }

    #[cfg(test)]
    pub(crate) fn sets(&self) -> Vec<Arc<Shared>> {
        lock(&self.joints).all.iter().map(|joint| joint.main().clone()).collect()
    }

    /// Agrees on a session, and on what it reads by.
    pub(crate) fn begin(&self, range: Result<Range<u64>>) -> Result<(Arc<Joint>, Range<u64>)> {
        if self.is_inherited() {
            return Err(inherited(&self.agreed.path));
        }
        let mut number = lock(&self.beginning);
        *number += 1;
        let (before, made) = lock(&self.joints).now();
        // Here, in the list, and in sessions, which hold it until they end.
        let busy = |(i, joint): (usize, &Arc<Joint>)| {
            if Arc::strong_count(joint) > 2 { 1 << i } else { 0 }
        };
        let (start, end) = range.as_ref().map_or((u64::MAX, 0), |r| (r.start, r.end));
        let mine = Begin {
            start,
            end,
            number: *number,
            made,
            busy: before.iter().enumerate().map(busy).sum(),
            block: self.block(end.saturating_sub(start), 2 * before.len()),
        };
        let all = mine.say(&*self.fabric, self.agreed.tag)?;
        let range = range?;
        mine.with_all(&all, &self.agreed.path)?;
        let blocks = 1..=limits::MAX_READ_BLOCK as u64;
        let wanted = all.get(self.agreed.first).map(|a| a.block).filter(|b| blocks.contains(b));
        let wanted = wanted.ok_or_else(malformed)?;
        let busy = all.iter().fold(0, |busy, a| busy | a.busy);
        let is_busy = |i: usize| busy & (1 << i) != 0;
        let bytes = end - start;
        let serve = |(i, joint): (usize, &Arc<Joint>)| {
            let (block, covers) = (joint.map.block, joint.map.covers(&range));
            let there = There { block, busy: is_busy(i), covers };
            there.serve(wanted, bytes).or(self.agreed.alone.then_some((true, true, block)))
        };
        let best = before.iter().enumerate().filter_map(|j| Some((serve(j)?, j.1)));
        let joint = match best.max_by_key(|(how, _)| *how) {
            Some((_, joint)) => joint.clone(),
            None if before.len() >= MOST => {
                return Err(Error::limit("too many sessions of different sizes are open"));
            }
            None => {
                let new = Arc::new(self.make(wanted, bytes)?);
                lock(&self.joints).add(&new);
                new
            }
        };
        self.let_go(&before, joint.map.block, is_busy);
        drop(before);
        joint.map.cover(&range, &self.agreed.readers_for(bytes, joint.map.block));
        Ok((joint, range))
    }

    /// The block that this rank would choose for a session, with so many sets of buffers of its own.
    fn block(&self, bytes: u64, own: usize) -> u64 {
        let Some(opened) = &self.opened else { return 0 };
        // The memory of a node is shared among its ranks, and blocks fit in what is the share of a rank where most are.
        let agreed = &self.agreed;
        let most = (0..agreed.nodes.len()).map(|r| agreed.neighbours(r)).max().unwrap_or(1);
        let least = Options { memory: self.options.memory / most / 2, ..self.options.clone() };
        opened.choose_for(&least, bytes, own, agreed.alone).choice.block
    }

    /// Forgets those of some that no rank uses, where there are larger blocks.
    fn let_go(&self, of: &[Arc<Joint>], block: u64, is_busy: impl Fn(usize) -> bool) {
        let largest = of.iter().map(|joint| joint.map.block).max().unwrap_or(0).max(block);
        let mut joints = lock(&self.joints);
        for (i, joint) in of.iter().enumerate() {
            if joint.map.block < largest && joint.map.block != block && !is_busy(i) {
                let counts = joint.counts();
                joints.past = joints.past.and(&Counts { held: 0, ..counts });
                joints.all.retain(|j| !Arc::ptr_eq(j, joint));
            }
        }
    }

    /// Makes what is read by, with blocks of so many bytes, which were chosen for so many. Collective.
    fn make(&self, block: u64, bytes: u64) -> Result<Joint> {
        let (fabric, agreed) = (&self.fabric, &self.agreed);
        let rank = fabric.rank();
        let neighbours = agreed.neighbours(rank);
        let share = self.options.memory / neighbours;
        let options = Options {
            block: Some(usize::try_from(block).map_err(|_| malformed())?),
            memory: share / 2,
            ..self.options.clone()
        };
        let reads = agreed.readers.contains(&rank);
        let maps = self.opened.as_ref().is_some_and(Opened::maps);
        let (mut near_options, mut far_memory, mut segment) = (options.clone(), None, None);
        if !maps && neighbours > 1 {
            // Neighbours look at blocks in memory where they lie.
            let reading = agreed.readers.iter().filter(|r| agreed.here[**r]).count() as u64;
            let one_node = neighbours == agreed.nodes.len() as u64;
            let (near, far) = sharing::budgets(self.options.memory, neighbours, reading, one_node);
            near_options.memory = near;
            far_memory = Some(far.max(block.saturating_mul(4)));
            segment = sharing::segment(block, near, reads);
        }
        let near = self.opened.as_ref().map(|opened| {
            let mut chosen = opened.choose_for(&near_options, bytes, 0, agreed.alone);
            chosen.because("block", self.why(bytes));
            let new = opened.buffers(&near_options, chosen);
            registry::open_new(new.in_segment(segment.clone()))
        });
        let shares = near.as_ref().is_some_and(|n| n.maps());
        let map = Arc::new(Map { owners: RwLock::default(), agreed: agreed.clone(), block });
        let joint = |far, service| Joint {
            fabric: fabric.clone(),
            map: map.clone(),
            near: near.clone(),
            shares,
            far,
            service,
            requests: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
        };
        if let Some(near) = near.as_ref().filter(|_| agreed.alone) {
            return Ok(joint(near.clone(), None));
        }
        let close = || near.iter().for_each(registry::close);
        let announced = announce(&**fabric, agreed.tag, segment.as_deref());
        let (tag, announced) = announced.inspect_err(|_| close())?;
        let found = Found::new(segment, &agreed.here, announced.into_iter());
        // Where the page cache has the near blocks, all memory is for those of others.
        let far_memory = far_memory.unwrap_or(if shares { share } else { share / 2 });
        let options = Options { memory: far_memory, ..options };
        let served = near.clone().map(|near| (near, reads));
        let room = Room { block, memory: share / 4 };
        let started = Service::start(fabric.clone(), tag, served, options.deadline, room, found);
        let started = started.inspect_err(|_| {
            close();
            service::say_done(&**fabric, tag);
        });
        let made = started.and_then(|service| {
            let far = self.far(&map, &service, shares, &options, bytes);
            let far = far.inspect_err(|_| service.give_up())?;
            service.asked_by(&far, map.clone());
            Ok(joint(far, Some(service)))
        });
        let all = agree(&**fabric, agreed.tag, &agreed.path, made.as_ref().map(|_| ()));
        let made = made?;
        all.map(|()| made)
    }

    /// The engine for the bytes of others.
    fn far(
        &self,
        map: &Arc<Map>,
        service: &Arc<Service>,
        shares: bool,
        options: &Options,
        bytes: u64,
    ) -> Result<Arc<Shared>> {
        let agreed = &self.agreed;
        let far = Far {
            map: map.clone(),
            service: service.clone(),
            here: self.opened.as_ref().filter(|_| shares).map(|opened| opened.source().clone()),
            path: agreed.path.clone(),
            len: agreed.len,
        };
        let most = options.readers.unwrap_or(FETCHERS).max(1);
        let nodes: BTreeSet<usize> = agreed.readers.iter().map(|r| agreed.nodes[*r]).collect();
        let ranks = options.readers.map_or_else(
            || format!("{FETCHERS} for each other node that reads"),
            |_| ASKED.to_owned(),
        );
        let options = Options {
            readers: Some(most.saturating_mul(nodes.len().clamp(1, NODES))),
            depth: Some(1),
            ahead: false,
            io: IoOptions::default(),
            ..options.clone()
        };
        let opened = Opened::look(Arc::new(far), &options)?;
        let mut chosen = opened.choose(&options, bytes, 0);
        chosen.because("block", self.why(bytes));
        chosen.because("readers", ranks);
        chosen.because("queue depth", "one request of each".to_owned());
        let engine = registry::open_new(opened.buffers(&options, chosen));
        let map = map.clone();
        engine.set_lanes(Lanes { of: Box::new(move |offset| map.node(offset)), most });
        Ok(engine)
    }

    /// Why blocks are as they are.
    fn why(&self, bytes: u64) -> String {
        if self.options.block.is_some() {
            return ASKED.to_owned();
        }
        let (first, bytes) = (self.agreed.first, units::format_size(bytes));
        format!("as rank {first} chose for all, for a session over {bytes}")
    }
}

/// Who reads which bytes, and who is where.
pub(crate) struct Map {
    owners: RwLock<Owners>,
    agreed: Arc<Agreed>,
    pub(crate) block: u64,
}

impl Map {
    /// The parts of a range.
    pub(crate) fn parts(&self, range: Range<u64>) -> Vec<Part> {
        self.owners.read().unwrap_or_else(PoisonError::into_inner).parts(range).collect()
    }

    /// True if a rank is on this node.
    pub(crate) fn is_here(&self, rank: usize) -> bool {
        self.agreed.here.get(rank).copied().unwrap_or(false)
    }

    /// The rank that reads the block at an offset.
    pub(crate) fn reader(&self, offset: u64) -> Option<usize> {
        self.parts(offset..offset.saturating_add(1)).first().map(|p| p.reader)
    }

    /// The node that the block at an offset comes from.
    fn node(&self, offset: u64) -> usize {
        let node = self.reader(offset).and_then(|reader| self.agreed.nodes.get(reader));
        node.copied().unwrap_or(usize::MAX)
    }

    /// True if some sessions have covered all of a range.
    fn covers(&self, range: &Range<u64>) -> bool {
        let bytes: u64 =
            self.parts(range.clone()).iter().map(|p| p.bytes.end - p.bytes.start).sum();
        bytes == range.end - range.start
    }

    /// Shares out among ranks what a session covers, whole blocks of it.
    fn cover(&self, range: &Range<u64>, readers: &[usize]) {
        let (block, len) = (self.block, self.agreed.len);
        let start = range.start / block * block;
        let end = range.end.checked_next_multiple_of(block).unwrap_or(len).min(len);
        if start < end {
            let mut owners = self.owners.write().unwrap_or_else(PoisonError::into_inner);
            owners.assign(start..end, readers, block);
        }
    }
}

/// What a rank reads by, together with the others.
pub(crate) struct Joint {
    fabric: Arc<dyn Fabric>,
    map: Arc<Map>,
    /// Reads the file itself, if this rank can.
    near: Option<Arc<Shared>>,
    /// True if the near engine may answer for what other ranks of this node read: it shares the page cache with them.
    shares: bool,
    far: Arc<Shared>,
    service: Option<Arc<Service>>,
    /// Requests of this rank. Those of the near engine are also of others.
    requests: AtomicU64,
    at_once: AtomicU64,
}

impl Drop for Joint {
    fn drop(&mut self) {
        if self.far.is_inherited() {
            return;
        }
        registry::close(&self.far);
        // Without a service both engines are one. Else it closes the near one, when it has answered the last of the others.
        if let Some(service) = &self.service {
            service.leave(&self.far);
        }
    }
}

impl Joint {
    /// The engine whose choices stand for the whole.
    pub(crate) fn main(&self) -> &Arc<Shared> {
        self.near.as_ref().unwrap_or(&self.far)
    }

    /// Of a session, what this rank is to read ahead.
    pub(crate) fn own_parts(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let rank = self.fabric.rank();
        let parts = self.map.parts(range).into_iter().filter(|p| p.reader == rank);
        parts.map(|p| p.bytes).collect()
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

    fn counts(&self) -> Counts {
        let main = self.main().counts();
        let (requests, at_once) =
            (self.requests.load(Ordering::Relaxed), self.at_once.load(Ordering::Relaxed));
        // What a rank reads is what its near engine reads. The far one has what others have read.
        let (blocks, bytes) = self.near.as_ref().map_or((0, 0), |_| (main.blocks, main.bytes));
        Counts { requests, at_once, blocks, bytes, held: main.held }
    }

    /// For [`crate::Session::plan`], of a session over a range.
    pub(crate) fn plan(&self, range: &Range<u64>) -> Vec<Decision> {
        let agreed = &self.map.agreed;
        let nodes: BTreeSet<usize> = agreed.nodes.iter().copied().collect();
        let parts = self.map.parts(range.clone());
        let readers: BTreeSet<usize> = parts.iter().map(|p| p.reader).collect();
        let reading: BTreeSet<usize> = readers.iter().map(|r| agreed.nodes[*r]).collect();
        let fetched = self.service.as_ref().map_or(0, |s| s.fetched());
        let decision =
            |name, value: String, reason: &str| Decision { name, value, reason: reason.to_owned() };
        let why = if readers.len() < agreed.readers.len() {
            let bytes = units::format_size(range.end - range.start);
            let count = reading.len();
            format!(
                "a range of {bytes} is shared out in runs of 8 blocks or 16 MiB, on {count} node(s)"
            )
        } else {
            format!("of each node with the file {READERS} at most; each reads its own run")
        };
        vec![
            decision(
                "ranks",
                agreed.nodes.len().to_string(),
                &format!("on {} node(s)", nodes.len()),
            ),
            decision("ranks that read", readers.len().to_string(), &why),
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

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::Kind;
    use stead_fabric::Local;
    use stead_store::MemorySource;

    #[test]
    fn what_a_fork_inherited_is_refused_and_waits_for_nobody() {
        const TAG: u32 = 0x6000_0001;
        let fabric = Arc::new(Local::single());
        let agreed = Agreed {
            path: "m".into(),
            len: 100,
            first: 0,
            readers: vec![0],
            nodes: vec![0],
            here: vec![true],
            alone: false,
            tag: TAG,
        };
        let options = Options::default();
        let source = Arc::new(MemorySource::new("m", vec![7; 100]));
        let opened = Opened::look(source, &options).unwrap();
        let mut group = Group::new(fabric.clone(), agreed, Some(opened), &options);
        let (joint, _) = group.begin(Ok(0..10)).unwrap();
        group.process ^= 1;
        // As if threads of the other process had the locks.
        let locks = (lock(&group.beginning), lock(&group.joints));
        let error = group.begin(Ok(0..10)).err().unwrap();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains("before a fork"), "{error}");
        assert_eq!(group.counts(), Counts::default());
        drop(locks);
        fabric.send(0, TAG, vec![1]).unwrap();
        drop(group);
        // Nothing was forgotten, for which there is a lock, too.
        assert_eq!(fabric.lying(), 1);
        drop(joint);
    }
}
