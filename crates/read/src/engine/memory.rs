//! Memory where blocks are in memory: how many blocks there may be, and what answers take that nobody has taken.
//!
//! Two things take memory: blocks, and answers that are copies until they are taken. Together they stay within the
//! file's share of the budget: as many bytes as are claimed for answers, at most half of all, so many fewer blocks
//! there are. A read of bytes of several blocks claims the memory of its answer before any of its blocks is asked
//! for; while there is none, it is *late*. Answers that are views are copied out of their blocks if that frees much
//! more than it takes ([`Shared::relieve`]). Blocks that other ranks hold (`Holders`) cannot be taken back: what is said here
//! of the share goes for what they leave of it, or for a quarter, if it became so small that they leave less.
//!
//! Beyond the budget come only the answers that somebody waits for, so that nobody waits for ever: for each thread
//! that waits one, and for tasks and functions, one for each that was taken of those before, or that nobody took for
//! half a second. A reader has one block more while it copies answers out of it, or reads bytes for one request alone.

use super::{Inner, Kept, Shared};
use crate::clock;
use crate::reader::LINGER;
use crate::request::{Deliver, Finish};
use crate::sync::fence;
use crate::window::{Next, Ticket, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Instant;
use stead_store::Buffer;

/// Memory of an answer, counted while this lives. It must not be dropped under a lock of this room.
pub(crate) struct Claim {
    bytes: u64,
    of: Weak<Shared>,
}

impl Claim {
    /// A part of it.
    fn split(&mut self, bytes: u64) -> Claim {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Claim { bytes, of: self.of.clone() }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(shared) = self.of.upgrade() {
            shared.own.fetch_sub(self.bytes, Ordering::SeqCst);
            shared.let_go();
        }
    }
}

/// Places that blocks come from: only so many reads of each are under way at a time, so that one that hangs does not
/// keep all readers.
pub(crate) struct Lanes {
    /// The place of the block that begins at an offset.
    pub(crate) of: Box<dyn Fn(u64) -> usize + Send + Sync>,
    /// Reads of one place at a time.
    pub(crate) most: usize,
}

impl Lanes {
    /// Says of a block, of so many bytes, whether one more of its place may be read now.
    fn free<'a>(&'a self, window: &Window<Kept>, size: u64) -> impl Fn(u64) -> bool + use<'a> {
        let lane = move |block: u64| (self.of)(block.saturating_mul(size));
        let mut busy: BTreeMap<usize, usize> = BTreeMap::new();
        window.reading().for_each(|b| *busy.entry(lane(b)).or_default() += 1);
        move |block| busy.get(&lane(block)).is_none_or(|reads| *reads < self.most)
    }
}

/// Answers that nobody has taken, and requests that wait.
#[derive(Default)]
pub(crate) struct Untaken {
    requests: BTreeMap<Ticket, Answer>,
    /// The answers that hold each block, and their bytes.
    pinned: BTreeMap<u64, (u64, BTreeSet<Ticket>)>,
    /// As `pinned`, in the order of bytes.
    cheap: BTreeSet<(u64, u64)>,
    /// Requests that have no memory for their answer yet, so that none of their blocks is asked for.
    late: BTreeSet<Ticket>,
    /// Those that somebody waits for, in the order in which that was said; last those for which a thread stands still.
    urged: BTreeSet<(u64, Ticket)>,
    /// Those that have an answer beyond the budget that nobody has taken, or are to have one, and when it came.
    beyond: BTreeMap<Ticket, u64>,
    /// As `beyond`, in the order of time.
    times: BTreeSet<(u64, Ticket)>,
    /// When the last one of these came.
    came: Option<Instant>,
    clock: u64,
}

struct Answer {
    request: Weak<dyn Deliver>,
    pins: Option<(u64, u64)>,
}

/// A request that was late and has memory now: blocks that it waits for, and those that are there.
pub(crate) struct Admitted {
    ticket: Ticket,
    request: Arc<dyn Deliver>,
    claim: Claim,
    missing: usize,
    there: Vec<(u64, Arc<Buffer>)>,
}

/// Times that are none: of a thread that stands still, and of an answer that is still to come.
const STANDS: u64 = u64::MAX;
const UNANSWERED: u64 = u64::MAX - 1;

/// How somebody waits for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Urge {
    /// A thread does nothing else.
    Stands,
    /// It will be told.
    IsTold,
    /// It looks now and then.
    Looks,
}

/// Late requests that are looked at for one that fits.
const LOOKED_AT: usize = 16;

/// Of so many blocks, those that others may hold.
pub(crate) fn lendable(blocks: usize) -> usize {
    blocks - blocks.div_ceil(4)
}

impl Untaken {
    pub(super) fn insert(&mut self, ticket: Ticket, request: Weak<dyn Deliver>) {
        self.requests.insert(ticket, Answer { request, pins: None });
    }

    /// The answer of a request holds a block.
    pub(super) fn pin(&mut self, ticket: Ticket, block: u64, bytes: u64) {
        let Some(answer) = self.requests.get_mut(&ticket) else { return };
        if answer.pins.replace((block, bytes)).is_none() {
            let (sum, tickets) = self.pinned.entry(block).or_default();
            self.cheap.remove(&(*sum, block));
            *sum += bytes;
            tickets.insert(ticket);
            self.cheap.insert((*sum, block));
        }
    }

    fn unpin(&mut self, ticket: Ticket, (block, bytes): (u64, u64)) {
        let Some((sum, tickets)) = self.pinned.get_mut(&block) else { return };
        if !tickets.remove(&ticket) {
            return;
        }
        self.cheap.remove(&(*sum, block));
        *sum -= bytes;
        if tickets.is_empty() {
            self.pinned.remove(&block);
        } else {
            self.cheap.insert((*sum, block));
        }
    }

    /// Its answer was taken, or nobody wants it.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        if let Some(when) = self.beyond.remove(&ticket) {
            self.times.remove(&(when, ticket));
        }
        if let Some(Answer { pins: Some(pins), .. }) = self.requests.remove(&ticket) {
            self.unpin(ticket, pins);
        }
    }

    /// A request no longer waits.
    pub(super) fn waits_no_more(&mut self, ticket: Ticket, urged: Option<u64>) {
        self.late.remove(&ticket);
        if let Some(when) = urged {
            self.urged.remove(&(when, ticket));
        }
        if self.beyond.contains_key(&ticket) {
            let now = self.tick();
            self.go_beyond(ticket, now);
            self.came = Some(clock::now());
        }
    }

    /// It is to have an answer beyond the budget, or has one since then.
    fn go_beyond(&mut self, ticket: Ticket, when: u64) {
        if let Some(before) = self.beyond.insert(ticket, when) {
            self.times.remove(&(before, ticket));
        }
        self.times.insert((when, ticket));
    }

    /// It has to wait for memory.
    pub(super) fn be_late(&mut self, ticket: Ticket) {
        self.late.insert(ticket);
    }

    /// True if some have to wait for memory.
    pub(crate) fn is_late(&self) -> bool {
        !self.late.is_empty()
    }

    /// Answers and requests that wait.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// Those that may have an answer beyond the budget: whose threads stand still, and those that said that they wait
    /// after the last such answer had come, if nobody has taken that. After a while it bars nobody: whoever was to take it may
    /// wait for another one first.
    fn eligible(&self) -> impl Iterator<Item = Ticket> {
        let last = self.times.last().map(|(when, _)| *when);
        let stale = |came: Instant| clock::now().saturating_duration_since(came) >= LINGER;
        let after = last.filter(|when| *when == UNANSWERED || !self.came.is_some_and(stale));
        let since = after.map_or(Bound::Unbounded, |a| Bound::Excluded((a, Ticket::MAX)));
        self.urged.range((since, Bound::Unbounded)).map(|(_, ticket)| *ticket)
    }

    /// Those that are to have an answer beyond the budget.
    fn going_on(&self) -> impl Iterator<Item = Ticket> {
        self.times.range((UNANSWERED, 0)..).map(|(_, ticket)| *ticket)
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl Shared {
    /// Says where blocks come from, before anybody asks for one.
    pub(crate) fn set_lanes(&self, lanes: Lanes) {
        let _ = self.lanes.set(lanes);
    }

    /// Bytes of answers that nobody has taken.
    fn own(&self) -> u64 {
        self.own.load(Ordering::SeqCst)
    }

    /// Blocks that others hold.
    fn lent(&self) -> usize {
        self.holders.get().map_or(0, |(_, blocks)| blocks.load(Ordering::SeqCst))
    }

    /// Bytes of the share that others leave, of which they hold so many blocks.
    fn free(&self, inner: &Inner, lent: usize) -> u64 {
        let theirs = (lent as u64).saturating_mul(self.choice.block);
        inner.share.saturating_sub(theirs).max(inner.share / 4)
    }

    /// Blocks that may be in memory beside so many bytes of answers.
    fn most(&self, inner: &Inner, own: u64) -> usize {
        let lent = self.lent();
        let free = self.free(inner, lent);
        let left = free - own.min(free / 2);
        let mine = usize::try_from(left / self.choice.block).unwrap_or(usize::MAX).max(1);
        mine.saturating_add(lent)
    }

    /// Asks others for what they only keep.
    fn press(&self) {
        if let Some(holders) = self.holders.get().and_then(|(holders, _)| holders.upgrade()) {
            holders.press();
        }
    }

    /// So many bytes from now on, or at least one block.
    pub(crate) fn set_share(&self, bytes: u64) {
        // Others keep to the same, and to so many blocks together.
        let processes = self.commons().map_or(1, |commons| {
            commons.set_limit((bytes.min(self.memory) / self.choice.block).max(1));
            commons.processes().max(1)
        });
        let bytes = bytes / processes;
        let mut inner = self.lock();
        inner.share = bytes.min(self.memory);
        let most = self.most(&inner, self.own());
        let gone = inner.window.set_most(most);
        let share = usize::try_from(inner.share / self.choice.block).unwrap_or(usize::MAX);
        drop(inner);
        drop(gone);
        self.work.notify_all();
        if self.lent() > lendable(share) {
            self.press();
        }
    }

    /// Drops the blocks that nobody has a view of.
    pub(crate) fn clear(&self) {
        let gone = self.lock().window.clear();
        drop(gone);
        if let Some(commons) = self.commons() {
            // A view may keep all of it, of which nobody would take account.
            commons.set_limit(0);
        }
    }

    /// Drops some of the blocks that nobody has a view of, whose offsets are as `which` says.
    pub(crate) fn give_up(&self, most: usize, which: impl Fn(u64) -> bool) {
        let size = self.choice.block;
        let gone = self.lock().window.give_up(most, |block| which(block.saturating_mul(size)));
        drop(gone);
    }

    /// Memory for an answer, whether there is some or not.
    pub(crate) fn claim_beyond(self: &Arc<Self>, bytes: u64) -> Claim {
        self.own.fetch_add(bytes, Ordering::SeqCst);
        Claim { bytes, of: Arc::downgrade(self) }
    }

    /// Memory for an answer, if there is some once `freed` blocks more are gone. Blocks may have to go for it.
    fn claim(
        self: &Arc<Self>,
        inner: &mut Inner,
        bytes: u64,
        freed: usize,
        gone: &mut Vec<Kept>,
    ) -> Option<Claim> {
        let own = self.own();
        let half = self.free(inner, self.lent()) / 2;
        let after = own.checked_add(bytes).filter(|n| *n <= half)?;
        let most = self.most(inner, after);
        if !inner.window.may_shrink_to(most + freed) {
            return None;
        }
        gone.extend(inner.window.set_most(most));
        Some(self.claim_beyond(bytes))
    }

    /// Memory for a new request, before its blocks are asked for. `Err` if it has to wait for some.
    pub(super) fn claim_for<T>(
        self: &Arc<Self>,
        inner: &mut Inner,
        finish: &mut impl Finish<T>,
        (blocks, bytes): (u64, usize),
        gone: &mut Vec<Kept>,
    ) -> Result<(), ()> {
        if self.maps() || blocks < 2 || !finish.claims() {
            return Ok(());
        }
        // Those who came before have the first turn.
        let claim =
            if inner.untaken.is_late() { None } else { self.claim(inner, bytes as u64, 0, gone) };
        // A new request has none yet that it would give back.
        claim.map(|claim| drop(finish.admit(claim))).ok_or(())
    }

    /// Late requests for which there is memory now, or whose turn it is to have some beyond the budget.
    pub(crate) fn admit(
        self: &Arc<Self>,
        inner: &mut Inner,
        gone: &mut Vec<Kept>,
    ) -> Vec<Admitted> {
        let mut admitted = Vec::new();
        while inner.untaken.is_late() {
            let first: Vec<Ticket> = inner.untaken.late.iter().take(LOOKED_AT).copied().collect();
            let fits = first.into_iter().find_map(|ticket| {
                let request = inner.waiting.get(&ticket)?.request.clone();
                let claim = self.claim(inner, request.range().1 as u64, 0, gone)?;
                Some((ticket, request, claim))
            });
            let next = fits.or_else(|| {
                let late = &inner.untaken.late;
                let ticket = inner.untaken.eligible().find(|ticket| late.contains(ticket))?;
                let request = inner.waiting.get(&ticket)?.request.clone();
                inner.untaken.go_beyond(ticket, UNANSWERED);
                let claim = self.claim_beyond(request.range().1 as u64);
                Some((ticket, request, claim))
            });
            let Some((ticket, request, claim)) = next else { break };
            inner.untaken.late.remove(&ticket);
            let (offset, len) = request.range();
            let (mut there, mut missing) = (Vec::new(), 0);
            for block in self.blocks(offset, len) {
                let part = self.overlap(block, offset, len);
                match inner.window.ask(ticket, block, part.end - part.start) {
                    Some(Kept::Block(bytes)) => there.push((block, bytes.clone())),
                    Some(Kept::Cached(_)) => {}
                    None => missing += 1,
                }
            }
            admitted.push(Admitted { ticket, request, claim, missing, there });
        }
        admitted
    }

    /// Gives late requests their memory, and the blocks that are there.
    pub(crate) fn admitted(self: &Arc<Self>, admitted: Vec<Admitted>) {
        for Admitted { ticket, request, claim, missing, there } in admitted {
            let mut answered = request.admit(self, claim, missing + there.len());
            for (block, bytes) in there {
                answered |= self.give(&*request, block, &Kept::Block(bytes));
                self.let_go();
            }
            if answered {
                self.answered(ticket, &*request);
            }
        }
    }

    /// Copies answers that nobody has taken out of blocks of which they hold less than half, so that these can be used
    /// for others: tasks may ask for all they will ever want before they take the first answer.
    pub(crate) fn relieve(self: &Arc<Self>) {
        self.press();
        let mut inner = self.lock();
        let mut gone = Vec::new();
        // Somebody has a view of these, too.
        let mut kept = 0;
        while inner.window.counted() + self.depth() > self.most(&inner, self.own()) {
            let Some((bytes, block)) = inner.untaken.cheap.iter().nth(kept).copied() else { break };
            if bytes > self.choice.block / 2 {
                break;
            }
            let Some((_, tickets)) = inner.untaken.pinned.get(&block) else { break };
            let tickets: Vec<Ticket> = tickets.iter().copied().collect();
            let alone = match inner.window.ready(block) {
                Some(Kept::Block(held)) => Arc::strong_count(held) <= 1 + tickets.len(),
                _ => false,
            };
            if !alone {
                kept += 1;
                continue;
            }
            // The block itself is gone when this is over.
            let Some(mut all) = self.claim(&mut inner, bytes, 1, &mut gone) else { break };
            let mut requests = Vec::new();
            for ticket in tickets {
                let Some(answer) = inner.untaken.requests.get_mut(&ticket) else { continue };
                let pins = answer.pins.take();
                requests.extend(answer.request.upgrade());
                if let Some(pins) = pins {
                    inner.untaken.unpin(ticket, pins);
                }
            }
            drop(inner);
            for request in requests {
                let (_, len) = request.range();
                request.let_go(all.split(len as u64));
            }
            drop((all, std::mem::take(&mut gone)));
            inner = self.lock();
            gone.extend(inner.window.drop_free(block));
            if self.segment.is_some() {
                // Its memory is gone before another block is read: no lock but that of the slots is taken for it.
                gone.clear();
            }
        }
        drop(inner);
    }

    /// Somebody waits for a request.
    pub(crate) fn urge(&self, ticket: Ticket, how: Urge) {
        if self.maps() {
            return;
        }
        let mut guard = self.lock();
        let inner = &mut *guard;
        if let Some(waiting) = inner.waiting.get_mut(&ticket) {
            let now = inner.untaken.tick();
            let when = match how {
                Urge::Stands => STANDS,
                Urge::IsTold => now,
                // Whoever looks at one after the other, and takes what is there, comes by there first.
                Urge::Looks => waiting.looked.replace(now).unwrap_or(0),
            };
            let when = match waiting.urged {
                Some(before) if before != STANDS => before.max(when),
                _ => when,
            };
            if let Some(before) = waiting.urged.replace(when) {
                inner.untaken.urged.remove(&(before, ticket));
            }
            inner.untaken.urged.insert((when, ticket));
        }
        drop(guard);
        self.let_go();
    }

    /// What a reader should do next.
    pub(crate) fn take(&self, inner: &mut Inner) -> Next<Kept> {
        if !self.maps() {
            let most = self.most(inner, self.own());
            inner.window.limit(most);
        }
        let Some(lanes) = self.lanes.get() else { return inner.window.take() };
        let free = lanes.free(&inner.window, self.choice.block);
        inner.window.take_of(free)
    }

    /// True if there is a block that somebody waits for, that nobody reads, and that may be read now.
    pub(super) fn may_begin(&self, inner: &Inner) -> bool {
        let queued = inner.window.queued() > 0;
        queued
            && self.lanes.get().is_none_or(|lanes| {
                inner.window.demands(lanes.free(&inner.window, self.choice.block))
            })
    }

    /// With all room taken by answers that nobody takes: a request that somebody waits for, a block of which it is to get
    /// its bytes alone, and whether others want much of that block as well. `late` if there has been no room for long.
    pub(crate) fn alone(
        &self,
        inner: &mut Inner,
        late: bool,
    ) -> Option<(Ticket, Arc<dyn Deliver>, u64, bool)> {
        let answers = inner.untaken.len() > inner.waiting.len() || self.own() > 0;
        // What is being read may be for it, or leave room, unless it takes long.
        if !answers || (inner.window.is_reading() && !late) {
            return None;
        }
        let next = inner.untaken.going_on().chain(inner.untaken.eligible());
        let (ticket, block) = { next }.find_map(|ticket| {
            let (offset, len) = inner.waiting.get(&ticket)?.request.range();
            let mut blocks = self.blocks(offset, len);
            Some((ticket, blocks.find(|block| inner.window.is_queued_for(ticket, *block))?))
        })?;
        let request = inner.waiting.get(&ticket)?.request.clone();
        let much = inner.window.asked(block) >= self.choice.block / 2;
        inner.window.cancel(ticket, block);
        inner.untaken.go_beyond(ticket, UNANSWERED);
        Some((ticket, request, block, much))
    }

    /// A reader no longer waits for room.
    pub(crate) fn fed(&self, inner: &mut Inner) {
        inner.starving -= 1;
        if inner.starving == 0 {
            self.starved.store(false, Ordering::SeqCst);
        }
    }

    /// A view was dropped, or a block is no longer held for the moment of handing it on.
    pub(crate) fn let_go(&self) {
        // A reader that found all blocks lent has said so before it looked for the last time.
        fence(Ordering::SeqCst);
        if self.starved.load(Ordering::SeqCst) {
            drop(self.lock());
            self.work.notify_all();
        }
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
