//! What a node knows of who will get what from whom of a stream: what readers have got of their last steps from the writers of the node,
//! against the blocks that these have put into the last one.
//!
//! Nothing is known of a reader's boxes before it gets them. What is gone by are those that it has noted (`noted.rs`); for one that has
//! had no step yet, the rows of each variable that are its rank's part. Writers of other nodes have boards of their own: who wants to know
//! of all puts together what their nodes say (`explain.rs`), which is said as it is here.

use crate::board::{self, Agreed, Board, Elsewhere, Members, Rule, Standing, State};
use crate::explain::{Basis, Giver, Pull, Taker};
use crate::finder::Finder;
use crate::head;
use crate::home::Found;
use crate::index::{BlockEntry, Definition, Definitions, Place};
use crate::merge::{Merged, merge_step};
use crate::noted::{self, Noted, Page};
use crate::words::Words;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use stead_core::{Bounds, Error, Result};
use stead_store::arena::Neighbours;

/// Runs of bytes that are shorter than this are small, and so many of them are many.
const SMALL: u64 = 256;
const MANY: u64 = 4096;
/// A group of so many ranks at most is assumed.
const MOST: u64 = 1 << 16;
/// Pairs of a reader and a writer that are told.
const PAIRS: usize = 1 << 22;
/// Variables that somebody gets in many small pieces, of which it is told.
const PIECES: usize = 8;

/// See the module's documentation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Share {
    /// What its writers on all nodes know each other by, and how many they are.
    pub(crate) run: u64,
    pub(crate) all: u64,
    pub(crate) is_live: bool,
    /// In nanoseconds since 1970.
    pub(crate) created: u64,
    pub(crate) keep: u64,
    pub(crate) queue: u64,
    /// Bytes that arrays may take on the node.
    pub(crate) memory: u64,
    /// The last step that all writers of the node have ended.
    pub(crate) step: Option<u64>,
    pub(crate) writers: Vec<Giver>,
    pub(crate) readers: Vec<Taker>,
    pub(crate) pulls: Vec<Pull>,
    /// What is copied in many small pieces, the most of them first.
    pub(crate) pieces: Vec<Pieces>,
    pub(crate) lags: Vec<Lag>,
    /// Of groups that are there.
    pub(crate) stays: Vec<Stays>,
}

/// What a reader gets of a variable is copied in many small pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pieces {
    pub(crate) group: String,
    pub(crate) rank: u64,
    pub(crate) variable: String,
    /// How many these are, and their bytes.
    pub(crate) runs: u64,
    pub(crate) bytes: u64,
}

/// How many steps stay for a group of readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stays {
    pub(crate) group: String,
    /// Those that it has had, and those that it may be behind, by its own numbers or the stream's.
    pub(crate) keep: u64,
    pub(crate) queue: u64,
}

/// How a group of readers comes along.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lag {
    pub(crate) group: String,
    /// The rank that has missed the most steps, and how many.
    pub(crate) dropped: Option<(u64, u64)>,
    /// The rank that writers wait for, as it is so many steps behind.
    pub(crate) behind: Option<(u64, u64)>,
}

impl Share {
    /// True if all of the stream is on this node, and goes on: it is no other one of the name that is meant.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_live && self.writers.len() as u64 == self.all
    }

    /// Bytes of the step that its writers have put.
    pub(crate) fn bytes(&self) -> u64 {
        self.writers.iter().map(|giver| giver.bytes).fold(0, u64::saturating_add)
    }
}

/// What a writer says, in bytes.
struct Raw {
    rank: u64,
    hash: u64,
    blocks: Vec<u8>,
}

/// What is read under the lock, and looked at without it.
pub(crate) struct Seen {
    agreed: Agreed,
    /// What stands for the stream where its writers are on one node.
    token: u64,
    is_live: bool,
    created: u64,
    complete: u64,
    step: Option<u64>,
    raw: Vec<Raw>,
    definitions: HashMap<u64, Vec<u8>>,
    writers: Vec<u64>,
    readers: Vec<board::Seat>,
    members: Vec<Members>,
}

/// Reads what there is. The board is locked.
pub(crate) fn see<W: Words>(found: &Found, board: &Board<W>) -> Result<Seen> {
    let step = board.steps().last().copied();
    let neighbours = Neighbours::new(&found.folder);
    let (mut raw, mut definitions) = (Vec::new(), HashMap::new());
    let odd = || {
        Error::format("what writers say of a step is damaged")
            .with_hint("all that take part in a stream must be of the same version of stead")
    };
    for writer in (0..board.writers()).filter(|_| step.is_some()) {
        let entry = board.entry(step.unwrap_or(0), writer).ok_or_else(odd)?;
        let place = Place { segment: entry.segment, offset: entry.offset, len: entry.len };
        let said = neighbours.look(&head::said(writer), &place)?;
        let (place, hash, blocks) = head::decode(&said).ok_or_else(odd)?;
        if let std::collections::hash_map::Entry::Vacant(free) = definitions.entry(hash) {
            free.insert(neighbours.look(&head::said(writer), &place)?.to_vec());
        }
        raw.push(Raw { rank: board.rank_of(writer), hash, blocks: blocks.to_vec() });
    }
    Ok(Seen {
        agreed: board.agreed(),
        token: board.token(),
        is_live: board.state() == State::Live,
        created: board.created(),
        complete: board.complete(),
        step,
        raw,
        definitions,
        writers: (0..board.writers()).map(|writer| board.rank_of(writer)).collect(),
        readers: board.readers(),
        members: board.members(),
    })
}

/// A variable, and where its blocks are.
struct Laid {
    name: String,
    element: u64,
    whole: Bounds,
    /// The places of their writers, and their boxes.
    blocks: Vec<(usize, Bounds)>,
    finder: Finder,
}

/// The variables of a step.
struct Layout {
    list: Vec<Laid>,
    /// By what stands for their names.
    names: HashMap<u64, usize>,
    writers: Vec<Giver>,
}

/// What writers say of a step, in the order of their numbers, and what it is together.
struct Said<'s> {
    /// Their places.
    order: Vec<(usize, &'s Raw)>,
    /// Of each of them.
    blocks: Vec<Vec<BlockEntry>>,
    merged: Merged,
}

fn unknown() -> Error {
    Error::format("a block of a variable that nobody has defined")
}

impl Seen {
    fn said(&self) -> Result<Said<'_>> {
        let mut known = HashMap::new();
        for (hash, bytes) in &self.definitions {
            if Definitions::hash_of(bytes) != *hash {
                return Err(Error::format("what a writer says of its variables is damaged"));
            }
            known.insert(*hash, Arc::new(Definitions::decode(bytes)?));
        }
        let mut order: Vec<(usize, &Raw)> = self.raw.iter().enumerate().collect();
        order.sort_by_key(|(_, raw)| raw.rank);
        let mut said = Vec::with_capacity(order.len());
        for (_, raw) in &order {
            let rank = u32::try_from(raw.rank).unwrap_or(u32::MAX);
            said.push((rank, known.get(&raw.hash).cloned().ok_or_else(unknown)?));
        }
        let blocks: Vec<Vec<BlockEntry>> = order
            .iter()
            .zip(&said)
            .map(|((_, raw), (_, definitions))| definitions.decode_blocks(&raw.blocks))
            .collect::<Result<_>>()?;
        let of: Vec<&[BlockEntry]> = blocks.iter().map(Vec::as_slice).collect();
        let (merged, _) = merge_step(&said, &of)?;
        Ok(Said { order, blocks, merged })
    }

    /// The variables of the step; none if none is there.
    pub(crate) fn variables(&self) -> Result<Vec<Definition>> {
        Ok(self.said()?.merged.definitions.iter().cloned().collect())
    }
}

impl Layout {
    fn new(seen: &Seen) -> Result<Layout> {
        let Said { order, blocks, merged } = seen.said()?;
        let mut writers: Vec<Giver> = seen
            .writers
            .iter()
            .map(|rank| Giver { rank: *rank, node: None, blocks: 0, bytes: 0, given: 0 })
            .collect();
        let mut each: Vec<Vec<(usize, Bounds)>> = vec![Vec::new(); merged.definitions.len()];
        for (at, ((writer, _), blocks)) in order.iter().zip(blocks).enumerate() {
            for BlockEntry { variable, bounds, place } in blocks {
                let number = merged.number(at, variable).ok_or_else(unknown)?;
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                let of = each.get_mut(number).ok_or_else(unknown)?;
                of.push((*writer, bounds));
                if let Some(giver) = writers.get_mut(*writer) {
                    giver.blocks += 1;
                    giver.bytes = giver.bytes.saturating_add(place.len);
                }
            }
        }
        let (mut list, mut names) = (Vec::with_capacity(each.len()), HashMap::new());
        for (definition, blocks) in merged.definitions.iter().zip(each) {
            let shape = &definition.shape;
            names.insert(noted::hash(&definition.name), list.len());
            list.push(Laid {
                name: definition.name.clone(),
                element: definition.dtype.size() as u64,
                whole: Bounds::new(vec![0; shape.len()], shape)?,
                finder: Finder::new(shape.len(), blocks.iter().map(|(_, bounds)| bounds)),
                blocks,
            });
        }
        Ok(Layout { list, names, writers })
    }
}

/// What one reader gets from one writer.
#[derive(Debug, Clone, Copy, Default)]
struct Sum {
    copied: u64,
    looked: u64,
    runs: u64,
    /// Bytes of short runs, and how many those are.
    small: u64,
    short: u64,
}

impl Laid {
    /// What a box is made of; with `copies` none of it is looked at where it lies.
    fn pull(&self, wanted: &Bounds, copies: bool, sums: &mut BTreeMap<usize, Sum>) {
        let found: Vec<&(usize, Bounds)> =
            self.finder.find(wanted).into_iter().filter_map(|i| self.blocks.get(i)).collect();
        let bytes = |bounds: &Bounds| bounds.elements().saturating_mul(self.element);
        if !copies && let Some((writer, _)) = found.iter().find(|(_, block)| block.contains(wanted))
        {
            let sum = sums.entry(*writer).or_default();
            sum.looked = sum.looked.saturating_add(bytes(wanted));
            return;
        }
        for (writer, block) in found {
            let Some(both) = block.intersection(wanted) else { continue };
            let (sum, run) =
                (sums.entry(*writer).or_default(), run(&both, block, wanted, self.element));
            let runs = bytes(&both) / run.max(1);
            sum.copied = sum.copied.saturating_add(bytes(&both));
            sum.runs = sum.runs.saturating_add(runs);
            if run < SMALL && both.ndim() > 0 {
                sum.small = sum.small.saturating_add(bytes(&both));
                sum.short = sum.short.saturating_add(runs);
            }
        }
    }
}

/// Bytes that lie together in a block and in the box that they are copied to.
fn run(both: &Bounds, block: &Bounds, wanted: &Bounds, element: u64) -> u64 {
    let mut run = element;
    let sides = both.count().iter().zip(block.count()).zip(wanted.count()).rev();
    for ((both, block), wanted) in sides {
        run = run.saturating_mul(*both);
        if both != block || both != wanted {
            break;
        }
    }
    run
}

/// A reader, and what it will want.
struct Wants {
    taker: Taker,
    boxes: Boxes,
}

/// Which boxes a reader will want.
enum Boxes {
    Noted(Vec<Noted>),
    /// The rows of a rank of so many. There may be many ranks, and variables: only those of one are in memory at a time.
    Rows(u64, u64),
}

impl Boxes {
    fn all(self, layout: &Layout) -> Vec<Noted> {
        match self {
            Boxes::Noted(all) => all,
            Boxes::Rows(rank, ranks) => rows(layout, rank, ranks),
        }
    }
}

/// The rows of all variables that are those of a rank.
fn rows(layout: &Layout, rank: u64, ranks: u64) -> Vec<Noted> {
    let part = |laid: &Laid| {
        let (mut start, mut count) = (laid.whole.start().to_vec(), laid.whole.count().to_vec());
        if let (Some(start), Some(count)) = (start.first_mut(), count.first_mut()) {
            let at = |rank: u64| {
                u64::try_from(u128::from(*count) * u128::from(rank) / u128::from(ranks.max(1)))
            };
            let (from, to) = (at(rank).ok()?, at(rank + 1).ok()?);
            (*start, *count) = (from, to - from);
        }
        let bounds = Bounds::new(start, count).ok().filter(|bounds| !bounds.is_empty())?;
        Some(Noted { name: noted::hash(&laid.name), bounds, is_fixed: false })
    };
    layout.list.iter().filter_map(part).collect()
}

/// The boxes of a reader's last step that it is done with, or of the one that it is at if there is no other.
fn last(seat: &board::Seat, mut pages: Vec<Page>) -> Option<Page> {
    let done = pages.iter().rposition(|page| page.step < seat.step);
    let at = done.or(pages.len().checked_sub(1))?;
    (at < pages.len()).then(|| pages.swap_remove(at))
}

impl Seen {
    fn wants(&self, found: &Found, more: u64) -> Vec<Wants> {
        let mut all = Vec::new();
        let size =
            |group: &str| self.members.iter().find(|m| m.name == group).map_or(1, |m| m.size);
        for seat in self.readers.iter().filter(|seat| seat.standing == Standing::Here) {
            let group = seat.group.clone().unwrap_or_default();
            let page = last(seat, noted::read(&found.folder, seat.place, seat.number));
            // One that is given a step is done with it when it asks for another one.
            let is_done = seat.had > 1 || (seat.had == 1 && seat.step >= self.complete);
            let (basis, boxes, unknown) = match page {
                Some(page) => (Basis::Step(page.step), Boxes::Noted(page.boxes), page.more),
                None if is_done => (Basis::Nothing, Boxes::Noted(Vec::new()), 0),
                None => (Basis::Rows, Boxes::Rows(seat.rank, size(&group)), 0),
            };
            let process = match seat.elsewhere {
                Some(Elsewhere { process, .. }) => process,
                None => seat.who.number,
            };
            let node = seat.elsewhere.and_then(|elsewhere| elsewhere.node);
            let is_elsewhere = seat.elsewhere.is_some();
            let taker = taker(group, seat.rank, basis, unknown);
            all.push(Wants {
                taker: Taker { process: Some(process), is_elsewhere, node, ..taker },
                boxes,
            });
        }
        for members in &self.members {
            for rank in &members.awaited {
                let taker = taker(members.name.clone(), *rank, Basis::Rows, 0);
                all.push(Wants { taker, boxes: Boxes::Rows(*rank, members.size) });
            }
        }
        for rank in 0..more.min(MOST) {
            let taker = taker("assumed".to_owned(), rank, Basis::Rows, 0);
            all.push(Wants { taker, boxes: Boxes::Rows(rank, more) });
        }
        all.sort_by(|a, b| (&a.taker.group, a.taker.rank).cmp(&(&b.taker.group, b.taker.rank)));
        all
    }

    /// Says who will get what from whom; `more` readers are assumed that have not come.
    ///
    /// # Errors
    /// `Format` if what writers say is damaged, `Usage` if they do not agree; `Limit` if there are too many who get something.
    pub(crate) fn share(&self, found: &Found, more: u64) -> Result<Share> {
        let layout = Layout::new(self)?;
        let mut writers = layout.writers.clone();
        let (mut readers, mut pulls, mut pieces) = (Vec::new(), Vec::new(), Vec::new());
        for Wants { mut taker, boxes } in self.wants(found, more) {
            let (mut sums, is_sent) = (BTreeMap::<usize, Sum>::new(), taker.is_elsewhere);
            let mut small: BTreeMap<usize, Sum> = BTreeMap::new();
            for Noted { name, bounds, is_fixed } in boxes.all(&layout) {
                let place = layout.names.get(&name).copied();
                let Some((at, laid)) = place.and_then(|at| Some((at, layout.list.get(at)?))) else {
                    continue;
                };
                // It may have been another array then.
                let same = laid.whole.ndim() == bounds.ndim();
                let Some(wanted) = same.then(|| laid.whole.intersection(&bounds)).flatten() else {
                    continue;
                };
                taker.boxes += 1;
                let mut of = BTreeMap::new();
                laid.pull(&wanted, is_fixed || is_sent, &mut of);
                for (writer, Sum { copied, looked, runs, small: bytes, short }) in of {
                    let sum = sums.entry(writer).or_default();
                    sum.copied = sum.copied.saturating_add(copied);
                    sum.looked = sum.looked.saturating_add(looked);
                    sum.runs = sum.runs.saturating_add(runs);
                    let sum = small.entry(at).or_default();
                    sum.small = sum.small.saturating_add(bytes);
                    sum.short = sum.short.saturating_add(short);
                }
            }
            for (at, Sum { small: bytes, short: runs, .. }) in small {
                if runs >= MANY
                    && let Some(laid) = layout.list.get(at)
                {
                    let (group, variable) = (taker.group.clone(), laid.name.clone());
                    pieces.push(Pieces { group, rank: taker.rank, variable, runs, bytes });
                }
            }
            for (writer, Sum { copied, looked, runs, .. }) in sums {
                let Some(giver) = writers.get_mut(writer) else { continue };
                giver.given = giver.given.saturating_add(copied).saturating_add(looked);
                taker.copied = taker.copied.saturating_add(copied);
                taker.looked = taker.looked.saturating_add(looked);
                if pulls.len() >= PAIRS {
                    let message = format!(
                        "more than {PAIRS} pairs of a reader and a writer are too many to be told of"
                    );
                    return Err(Error::limit(message).with_hint("assume fewer readers"));
                }
                let (group, rank) = (taker.group.clone(), taker.rank);
                pulls.push(Pull { group, rank, writer: giver.rank, copied, looked, runs, is_sent });
            }
            readers.push(taker);
        }
        writers.sort_by_key(|giver| giver.rank);
        pieces.sort_by_key(|pieces| std::cmp::Reverse(pieces.runs));
        pieces.truncate(PIECES);
        let Agreed { keep, queue, memory, all, run, .. } = self.agreed;
        Ok(Share {
            run: if run == 0 { self.token } else { run },
            all,
            is_live: self.is_live,
            created: self.created,
            keep,
            queue,
            memory,
            step: self.step,
            writers,
            readers,
            pulls,
            pieces,
            lags: self.lags(),
            stays: self.stays(),
        })
    }

    fn stays(&self) -> Vec<Stays> {
        let of = |Members { name, policy, .. }: &Members| Stays {
            group: name.clone(),
            keep: policy.keep,
            queue: policy.queue.unwrap_or(self.agreed.queue),
        };
        // Nobody waits for those that may miss steps.
        let waits = |members: &&Members| members.policy.rule != Rule::Drop;
        self.members.iter().filter(waits).map(of).collect()
    }

    /// Groups that are behind, and those that steps went from.
    fn lags(&self) -> Vec<Lag> {
        let mut lags = Vec::new();
        for Members { name, policy, .. } in &self.members {
            let of = |seat: &&board::Seat| {
                seat.standing == Standing::Here && seat.group.as_ref() == Some(name)
            };
            let dropped = self.readers.iter().filter(of).max_by_key(|seat| seat.dropped);
            let dropped = dropped.filter(|seat| seat.dropped > 0);
            let behind = self.readers.iter().filter(of).min_by_key(|seat| seat.step);
            let behind = behind.map(|seat| (seat.rank, self.complete.saturating_sub(seat.step)));
            let queue = policy.queue.unwrap_or(self.agreed.queue);
            let waits = policy.rule == Rule::Block && queue > 1;
            let lag = Lag {
                group: name.clone(),
                dropped: dropped.map(|seat| (seat.rank, seat.dropped)),
                behind: behind.filter(|(_, steps)| waits && *steps >= queue),
            };
            if lag.dropped.is_some() || lag.behind.is_some() {
                lags.push(lag);
            }
        }
        lags
    }
}

fn taker(group: String, rank: u64, basis: Basis, unknown: u64) -> Taker {
    let (process, node, is_elsewhere) = (None, None, false);
    Taker {
        group,
        rank,
        process,
        is_elsewhere,
        node,
        basis,
        boxes: 0,
        copied: 0,
        looked: 0,
        unknown,
    }
}
