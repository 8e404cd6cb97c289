//! Who will get what from whom: what readers have got of their last steps, against the blocks that writers have put into the last one.
//!
//! Nothing is known of a reader's boxes before it gets them. What is gone by are those that it has noted (`noted.rs`); for one that has
//! had no step yet, the rows of each variable that are its rank's part. All is of the writers of this node: those of other nodes have
//! boards of their own.

use crate::board::{self, Agreed, Board, Elsewhere, Members, Rule, Standing};
use crate::finder::Finder;
use crate::head;
use crate::home::Found;
use crate::index::{BlockEntry, Definition, Definitions, Place, shown};
use crate::merge::{Merged, merge_step};
use crate::noted::{self, Noted, Page};
use crate::words::Words;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use stead_core::units::format_size;
use stead_core::{Bounds, Error, Result};
use stead_store::arena::Neighbours;

/// Runs of bytes that are shorter than this are small, and so many of them are many.
const SMALL: u64 = 256;
const MANY: u64 = 4096;
/// Writers that are many to get all from.
const WRITERS: usize = 4;
/// A group of so many ranks at most is assumed.
const MOST: u64 = 1 << 16;

/// What is gone by for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// What it has got of this step.
    Step(u64),
    /// It has had no step yet: the rows of each variable are divided evenly among the ranks of its group. An assumption.
    Rows,
    /// It has had steps, and has got nothing of them.
    Nothing,
}

/// What a reader will get of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Taker {
    /// Its group.
    pub group: String,
    /// Which rank of it.
    pub rank: u64,
    /// Its process; `None` if it has not come.
    pub process: Option<u32>,
    /// It is on another node.
    pub is_elsewhere: bool,
    /// Which one, as its job numbers nodes; `None` where it is of none.
    pub node: Option<u64>,
    /// What this is gone by.
    pub basis: Basis,
    /// How many boxes.
    pub boxes: u64,
    /// Bytes that will be copied, and those that it looks at where they lie.
    pub copied: u64,
    /// See `copied`.
    pub looked: u64,
    /// Gets of the step that is gone by that are not in this, as they were too many to be noted.
    pub unknown: u64,
}

/// What a reader will get from a writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pull {
    /// The group of the reader.
    pub group: String,
    /// Which rank of it.
    pub rank: u64,
    /// Which of the writers.
    pub writer: u64,
    /// Bytes that will be copied.
    pub copied: u64,
    /// Bytes that are looked at where they lie.
    pub looked: u64,
    /// Runs of bytes that the copies are made of.
    pub runs: u64,
    /// They are sent to another node.
    pub is_sent: bool,
}

/// What a writer has put into the step that is gone by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Giver {
    /// Which of the writers.
    pub rank: u64,
    /// How many blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that readers will get of them.
    pub given: u64,
}

/// What may be slow, or go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// `"hot writer"`, `"gathering reader"`, `"small pieces"`, `"behind"`, `"dropped"` or `"memory"`.
    pub kind: &'static str,
    /// What, and of whom.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// Who will get what from whom of a step of a stream, as far as writers of this node are concerned.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Its name.
    pub name: String,
    /// The last complete step, whose blocks are gone by; `None` if none is there.
    pub step: Option<u64>,
    /// Bytes of its arrays.
    pub bytes: u64,
    /// Writers of other nodes, of whom nothing is said here.
    pub elsewhere: u64,
    /// Writers of this node.
    pub writers: Vec<Giver>,
    /// Readers that are there, and ranks of groups that have not come yet.
    pub readers: Vec<Taker>,
    /// Who gets what from whom, where it is anything.
    pub pulls: Vec<Pull>,
    /// Bytes of a step that will be copied by all readers, and those that are looked at where they lie.
    pub copied: u64,
    /// See `copied`.
    pub looked: u64,
    /// Bytes of the arrays that the stream may take.
    pub memory: u64,
    /// Steps that are in memory at a time, when groups are as far behind as they may be.
    pub steps: u64,
    /// What these, and the copies of all readers, are as a multiple of the bytes of a step; `None` without one.
    pub multiple: Option<f64>,
    /// What may be slow, or go wrong.
    pub warnings: Vec<Warning>,
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
            .map(|rank| Giver { rank: *rank, blocks: 0, bytes: 0, given: 0 })
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
    boxes: Vec<Noted>,
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
    fn wants(&self, found: &Found, layout: &Layout, more: u64) -> Vec<Wants> {
        let mut all = Vec::new();
        let size =
            |group: &str| self.members.iter().find(|m| m.name == group).map_or(1, |m| m.size);
        for seat in self.readers.iter().filter(|seat| seat.standing == Standing::Here) {
            let group = seat.group.clone().unwrap_or_default();
            let page = last(seat, noted::read(&found.folder, seat.place, seat.number));
            // One that is given a step is done with it when it asks for another one.
            let is_done = seat.had > 1 || (seat.had == 1 && seat.step >= self.complete);
            let (basis, boxes, unknown) = match page {
                Some(page) => (Basis::Step(page.step), page.boxes, page.more),
                None if is_done => (Basis::Nothing, Vec::new(), 0),
                None => (Basis::Rows, rows(layout, seat.rank, size(&group)), 0),
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
                all.push(Wants { taker, boxes: rows(layout, *rank, members.size) });
            }
        }
        for rank in 0..more.min(MOST) {
            let taker = taker("assumed".to_owned(), rank, Basis::Rows, 0);
            all.push(Wants { taker, boxes: rows(layout, rank, more) });
        }
        all.sort_by(|a, b| (&a.taker.group, a.taker.rank).cmp(&(&b.taker.group, b.taker.rank)));
        all
    }

    /// Says who will get what from whom; `more` readers are assumed that have not come.
    pub(crate) fn explain(&self, name: &str, found: &Found, more: u64) -> Result<Explanation> {
        let layout = Layout::new(self)?;
        let mut writers = layout.writers.clone();
        let (mut readers, mut pulls, mut short) = (Vec::new(), Vec::new(), Vec::new());
        for Wants { mut taker, boxes } in self.wants(found, &layout, more) {
            let (mut sums, is_sent) = (BTreeMap::<usize, Sum>::new(), taker.is_elsewhere);
            let mut small: BTreeMap<usize, Sum> = BTreeMap::new();
            for Noted { name, bounds, is_fixed } in boxes {
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
            for (at, Sum { small, short: runs, .. }) in small {
                if runs >= MANY
                    && let Some(laid) = layout.list.get(at)
                {
                    short.push((taker.group.clone(), taker.rank, laid.name.clone(), runs, small));
                }
            }
            for (writer, Sum { copied, looked, runs, .. }) in sums {
                let Some(giver) = writers.get_mut(writer) else { continue };
                giver.given = giver.given.saturating_add(copied).saturating_add(looked);
                taker.copied = taker.copied.saturating_add(copied);
                taker.looked = taker.looked.saturating_add(looked);
                let (group, rank) = (taker.group.clone(), taker.rank);
                pulls.push(Pull { group, rank, writer: giver.rank, copied, looked, runs, is_sent });
            }
            readers.push(taker);
        }
        writers.sort_by_key(|giver| giver.rank);
        let sum = |of: fn(&Taker) -> u64| readers.iter().map(of).fold(0, u64::saturating_add);
        let (copied, looked) = (sum(|taker| taker.copied), sum(|taker| taker.looked));
        let Agreed { keep, queue, memory, all, .. } = self.agreed;
        // The one that is being written is the last of the queue.
        let steps = queue.max(keep.saturating_add(1));
        let bytes = writers.iter().map(|giver| giver.bytes).fold(0, u64::saturating_add);
        let taken = steps as f64 * bytes as f64 + copied as f64;
        let mut told = Explanation {
            name: name.to_owned(),
            step: self.step,
            bytes,
            elsewhere: all.saturating_sub(writers.len() as u64),
            writers,
            readers,
            pulls,
            copied,
            looked,
            memory,
            steps,
            multiple: (bytes > 0).then(|| taken / bytes as f64),
            warnings: Vec::new(),
        };
        let mut warnings = Vec::from_iter(hot(&told));
        warnings.extend(gathering(&told));
        warnings.extend(pieces(short));
        warnings.extend(self.left_behind());
        warnings.extend(self.room(bytes));
        told.warnings = warnings;
        Ok(told)
    }

    /// Groups that are behind, and those that steps went from.
    fn left_behind(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for Members { name, rule, .. } in &self.members {
            let of = |seat: &&board::Seat| {
                seat.standing == Standing::Here && seat.group.as_ref() == Some(name)
            };
            let dropped = self.readers.iter().filter(of).max_by_key(|seat| seat.dropped);
            if let Some(seat) = dropped.filter(|seat| seat.dropped > 0) {
                warnings.push(Warning {
                    kind: "dropped",
                    message: format!(
                        "{} steps went before rank {} of the readers '{name}' came to them",
                        seat.dropped, seat.rank
                    ),
                    hint: "let it do less with each step, give it more ranks, or have writers wait: behind block".into(),
                });
            }
            let behind = self.readers.iter().filter(of).min_by_key(|seat| seat.step);
            let Some((seat, steps)) =
                behind.map(|seat| (seat, self.complete.saturating_sub(seat.step)))
            else {
                continue;
            };
            if *rule == Rule::Block && self.agreed.queue > 1 && steps >= self.agreed.queue {
                warnings.push(Warning {
                    kind: "behind",
                    message: format!(
                        "rank {} of the readers '{name}' is {steps} steps behind: writers wait for it",
                        seat.rank
                    ),
                    hint: "let it do less with each step, give it more ranks, or let it miss steps: behind drop".into(),
                });
            }
        }
        warnings
    }

    /// Whether the steps that are to stay find room.
    fn room(&self, bytes: u64) -> Option<Warning> {
        let Agreed { keep, queue, memory, .. } = self.agreed;
        let steps = keep.saturating_add(queue);
        if bytes == 0 || bytes.saturating_mul(steps) <= memory {
            return None;
        }
        Some(Warning {
            kind: "memory",
            message: format!(
                "{} of memory hold {} steps of {}, and {keep} are kept and {queue} queued: writers may wait for memory",
                format_size(memory),
                memory / bytes,
                format_size(bytes)
            ),
            hint: format!(
                "give the stream {} of memory, or keep or queue fewer steps",
                format_size(bytes.saturating_mul(steps))
            ),
        })
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

/// Writers that most of what several readers get comes from.
fn hot(told: &Explanation) -> Option<Warning> {
    let all = told.copied.saturating_add(told.looked);
    let giver = told.writers.iter().max_by_key(|giver| giver.given)?;
    if told.writers.len() == 1 {
        return alone(told, giver);
    }
    let from = told.pulls.iter().filter(|pull| pull.writer == giver.rank).count();
    let share = giver.given as f64 / all.max(1) as f64;
    let is_hot = from > 1 && share > 0.5 && share * told.writers.len() as f64 >= 1.5;
    is_hot.then(|| Warning {
        kind: "hot writer",
        message: format!(
            "{:.0} % of what {from} readers get is from writer {} of {}",
            100.0 * share,
            giver.rank,
            told.writers.len()
        ),
        hint: "divide the array more evenly among writers, or let readers get what lies near to each other from different writers".into(),
    })
}

/// The only writer of its node, of which several readers on other nodes get what one connection is to carry: all that they get, if it is the only
/// one of all, or else its bytes again and again. What is looked at on this node costs nothing.
fn alone(told: &Explanation, giver: &Giver) -> Option<Warning> {
    let sent = || told.pulls.iter().filter(|pull| pull.is_sent);
    let (from, bytes) =
        (sent().count(), sent().map(|pull| pull.copied).fold(0, u64::saturating_add));
    let is_only = told.elsewhere == 0;
    if from < 2 || !(is_only || bytes >= giver.bytes.saturating_mul(2)) {
        return None;
    }
    let (bytes, put) = (format_size(bytes), format_size(giver.bytes));
    let message = match is_only {
        true => format!(
            "all that {from} readers on other nodes get is from writer {} of 1: {bytes} of a step",
            giver.rank
        ),
        false => format!(
            "{from} readers on other nodes get {bytes} from writer {}, which has put {put}: the same bytes are sent several times",
            giver.rank
        ),
    };
    let hint = match is_only {
        true => {
            "let several ranks write, on more than one node, or have readers run where the writer is"
        }
        false => {
            "let each reader get less of it, or have one that gets all run where the writer is"
        }
    };
    Some(Warning { kind: "hot writer", message, hint: hint.into() })
}

/// Readers that have got everything from many writers.
fn gathering(told: &Explanation) -> Vec<Warning> {
    let gathers = |taker: &&Taker| {
        if taker.basis == Basis::Rows {
            // Nobody has said so.
            return false;
        }
        let from =
            told.pulls.iter().filter(|p| (&p.group, p.rank) == (&taker.group, taker.rank)).count();
        let bytes = taker.copied.saturating_add(taker.looked);
        from >= WRITERS
            && from == told.writers.len()
            && taker.copied > 0
            && bytes >= told.bytes
            && told.bytes > 0
    };
    let all = told.readers.iter().filter(gathers);
    all.take(8)
        .map(|taker| Warning {
            kind: "gathering reader",
            message: format!(
                "rank {} of the readers '{}' gets all of a step from {} writers",
                taker.rank,
                taker.group,
                told.writers.len()
            ),
            hint: "divide what it gets among more ranks of the group, or let it get parts that lie in one block".into(),
        })
        .collect()
}

/// Copies that are made of many small pieces.
fn pieces(mut short: Vec<(String, u64, String, u64, u64)>) -> Vec<Warning> {
    short.sort_by_key(|(.., runs, _)| std::cmp::Reverse(*runs));
    let told = short.into_iter().take(8).map(|(group, rank, name, runs, bytes)| Warning {
        kind: "small pieces",
        message: format!(
            "what rank {rank} of the readers '{group}' gets of '{}' is copied in {runs} pieces of {} bytes on average",
            shown(&name),
            bytes / runs.max(1)
        ),
        hint: "get boxes that have whole rows of the blocks that writers put, or let writers put wider ones".into(),
    });
    told.collect()
}
