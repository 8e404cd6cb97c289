//! Two sides work on one range at once, and end at the same time.
//!
//! The storage works from the beginning of the range, the hosts from its end, and they meet where they meet: nothing is
//! divided before. Chunks are an eighth of what is left for a side, by the rates that both have shown, so that they shrink
//! to the end, and a prediction that was wrong is forgotten after a few chunks. When nothing is left, who has nothing to do
//! does again what the other side is slow with, and who is done first counts.
//!
//! It is a state machine without threads and clocks: whoever drives it says what time it is, hands chunks to workers, and
//! asks again when it is told to wait. A side may have several workers; each asks for itself.
//!
//! ```
//! use stead_model::{Balance, BalanceOptions, Next, Side, Verdict};
//!
//! let mut balance = Balance::new(1000, BalanceOptions { least: 10, ..BalanceOptions::default() });
//! let mut now = 0.0;
//! while !balance.is_finished() {
//!     match balance.next(Side::Storage, now) {
//!         Next::Chunk(chunk) => {
//!             now += chunk.len() as f64 * 1e-3; // computes a state of its own for the chunk
//!             match balance.done(Side::Storage, chunk, now) {
//!                 Verdict::Count => {} // and merges it into the answer
//!                 Verdict::Drop => {}  // or throws it away: somebody else has done it
//!             }
//!         }
//!         Next::Wait { until } => now = until,
//!         Next::Finished => break,
//!     }
//! }
//! assert_eq!(balance.counted(Side::Storage), 1000);
//! ```

use crate::ranges::Ranges;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A chunk is one over this of what is left for its side.
const SHARE: f64 = 8.0;
/// No chunk is more than one over this of the whole, so that a side that becomes slow holds little.
const WHOLE: u64 = 64;
/// A chunk is late after so many times what it was expected to take.
const LATE: f64 = 4.0;

/// One of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    /// Who has the data. Works from the beginning.
    Storage,
    /// Who asks. Works from the end.
    Host,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::Storage, Side::Host];

    fn other(self) -> Side {
        match self {
            Side::Storage => Side::Host,
            Side::Host => Side::Storage,
        }
    }
}

/// What to begin with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BalanceOptions {
    /// Predicted share of the hosts, 0 to 1: [`crate::Estimate::asked_share`].
    pub host_share: f64,
    /// Predicted seconds for all of it.
    pub seconds: f64,
    /// Chunks begin and end at multiples of this, but for the end of the range.
    pub align: u64,
    /// Smallest chunk, but for what is left at the end.
    pub least: u64,
    /// Largest chunk.
    pub most: u64,
    /// Seconds that a side may be silent, whatever is expected of it.
    pub patience_s: f64,
}

impl Default for BalanceOptions {
    fn default() -> Self {
        BalanceOptions {
            host_share: 0.5,
            seconds: 1.0,
            align: 1,
            least: 1 << 20,
            most: 64 << 20,
            patience_s: 0.25,
        }
    }
}

/// A part of the range that one worker computes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Chunk {
    id: u64,
    /// First byte.
    pub start: u64,
    /// The byte after the last one.
    pub end: u64,
}

impl Chunk {
    /// Number of bytes; not 0.
    #[expect(clippy::len_without_is_empty, reason = "it never is")]
    pub fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Its bytes.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }
}

/// What a worker is to do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Next {
    /// Compute on this.
    Chunk(Chunk),
    /// Ask again at this time, or when any chunk is done or a side is lost.
    Wait {
        /// Later than now.
        until: f64,
    },
    /// There is nothing left to do for this side.
    Finished,
}

/// What becomes of the state that a worker has made of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It is a part of the answer.
    Count,
    /// Somebody else has done these bytes, or is at it: the state must not be merged.
    Drop,
}

/// A chunk that is under way.
#[derive(Debug, Clone)]
struct Given {
    side: Side,
    range: Range<u64>,
    since: f64,
    /// When it should be done.
    expected: f64,
    /// When it is late.
    due: f64,
}

/// What is known of a side.
#[derive(Debug, Clone)]
struct Known {
    /// Bytes that were done, and the seconds that they took, of which old ones fade. What was predicted, before anything
    /// was done.
    bytes: f64,
    seconds: f64,
    tried: bool,
    /// When something of it last ended, or began after a pause.
    last: f64,
    /// When it last asked or was done with something.
    seen: Option<f64>,
    /// Bytes and number of chunks under way.
    under_way: u64,
    chunks: usize,
    /// Most chunks that were under way at once.
    workers: usize,
    /// The next chunk is not larger.
    limit: u64,
    lost: bool,
    /// What it has done and counts.
    counted: Ranges,
}

/// The controller of a split over the bytes `0..total`.
///
/// Each byte is counted exactly once: it is free, under way or counted, and what was given again counts for who is done
/// with it first.
#[derive(Debug, Clone)]
pub struct Balance {
    total: u64,
    options: BalanceOptions,
    free: Ranges,
    given: BTreeMap<u64, Given>,
    /// Chunks that were late and are free again. They count if they are done before anybody else has begun with them.
    late: BTreeMap<u64, Given>,
    sides: [Known; 2],
    next_id: u64,
}

impl Balance {
    /// Nothing of `0..total` is done. Odd options are taken for the nearest that make sense.
    pub fn new(total: u64, options: BalanceOptions) -> Balance {
        let positive = |v: f64, or: f64| if v.is_finite() && v > 0.0 { v } else { or };
        let default = BalanceOptions::default();
        let share = options.host_share.clamp(0.0, 1.0);
        let share = if share.is_nan() { default.host_share } else { share };
        let least = options.least.max(1);
        let options = BalanceOptions {
            host_share: share,
            seconds: positive(options.seconds, default.seconds).clamp(1e-6, 1e9),
            align: options.align.max(1),
            least,
            most: options.most.max(least),
            patience_s: positive(options.patience_s, default.patience_s),
        };
        let begin = (total / (4 * WHOLE)).max(least);
        let side = |share: f64| {
            // Even a side of which nothing is expected gets a try.
            let rate = (total.max(1) as f64 * share.max(0.001)) / options.seconds;
            Known {
                bytes: begin as f64,
                seconds: begin as f64 / rate,
                tried: false,
                last: 0.0,
                seen: None,
                under_way: 0,
                chunks: 0,
                workers: 1,
                limit: begin,
                lost: false,
                counted: Ranges::default(),
            }
        };
        Balance {
            total,
            options,
            free: Ranges::all(total),
            given: BTreeMap::new(),
            late: BTreeMap::new(),
            sides: [side(1.0 - share), side(share)],
            next_id: 0,
        }
    }

    fn side(&self, side: Side) -> &Known {
        &self.sides[side as usize]
    }

    fn side_mut(&mut self, side: Side) -> &mut Known {
        &mut self.sides[side as usize]
    }

    /// Bytes that count as done by a side.
    pub fn counted(&self, side: Side) -> u64 {
        self.side(side).counted.sum()
    }

    /// All bytes are counted.
    pub fn is_finished(&self) -> bool {
        Side::BOTH.iter().map(|s| self.counted(*s)).sum::<u64>() == self.total
    }

    /// Not finished, and both sides are lost.
    pub fn is_stuck(&self) -> bool {
        !self.is_finished() && self.sides.iter().all(|s| s.lost)
    }

    /// Bytes in a second that a side has shown lately; what was predicted, before it has shown anything.
    pub fn rate(&self, side: Side) -> f64 {
        let known = self.side(side);
        known.bytes / known.seconds
    }

    /// Seconds until the end, if both go on as they do.
    pub fn left_s(&self, now: f64) -> f64 {
        let rates: f64 = Side::BOTH.iter().map(|s| self.shown(*s, now)).sum();
        let under_way: u64 = self.sides.iter().map(|s| s.under_way).sum();
        if self.is_finished() { 0.0 } else { (self.free.sum() + under_way) as f64 / rates }
    }

    /// The rate of a side, with what it should have done by now and has not; 0 if nothing can be expected of it.
    fn shown(&self, side: Side, now: f64) -> f64 {
        let known = self.side(side);
        let silent = known.seen.is_some_and(|seen| now - seen > self.options.patience_s);
        if known.lost || known.chunks == 0 && silent {
            return 0.0;
        }
        let rate = self.rate(side);
        let waited = now - known.last;
        let under_way = known.under_way as f64;
        if known.chunks > 0 && waited * rate > under_way { under_way / waited } else { rate }
    }

    /// What a worker of `side` that has nothing to do is to do.
    pub fn next(&mut self, side: Side, now: f64) -> Next {
        for s in Side::BOTH {
            let known = self.side_mut(s);
            // Who has not been heard of yet is expected from now on.
            if s == side || known.seen.is_none() {
                known.seen = Some(now);
            }
        }
        if self.is_finished() || self.side(side).lost {
            return Next::Finished;
        }
        if self.free.sum() == 0 {
            self.take_back(now);
        }
        if let Some(range) = self.cut(side, now) {
            self.free.remove(range.clone());
            return Next::Chunk(self.give(side, range, now));
        }
        let mut until = now + self.options.patience_s;
        if self.free.sum() == 0 {
            match self.again(side, now) {
                Ok(range) => return Next::Chunk(self.give(side, range, now)),
                Err(when) => until = until.min(when),
            }
        }
        // A time that is nearly now would have them ask again and again.
        Next::Wait { until: until.max(now + self.options.patience_s / 64.0) }
    }

    /// Ranges that are late, with all who are at them, are free again.
    fn take_back(&mut self, now: f64) {
        let on_time: BTreeSet<u64> =
            self.given.values().filter(|g| now < g.due).map(|g| g.range.start).collect();
        let late = |g: &Given| !on_time.contains(&g.range.start);
        let ids: Vec<u64> = self.given.iter().filter(|(_, g)| late(g)).map(|(id, _)| *id).collect();
        let mut freed = BTreeSet::new();
        for id in ids {
            if let Some(given) = self.given.remove(&id) {
                self.off(&given);
                if freed.insert(given.range.start) {
                    self.free.insert(given.range.clone());
                }
                self.late.insert(id, given);
            }
        }
    }

    /// What the other side has under way and `side`, which has nothing else to do, would probably be done with first; or
    /// when to look again. Who is done first counts, so that nothing is lost by trying.
    fn again(&self, side: Side, now: f64) -> Result<Range<u64>, f64> {
        let me = self.side(side);
        let rate = self.rate(side) / me.workers as f64;
        let mut found: Option<(f64, Range<u64>)> = None;
        let mut when = f64::INFINITY;
        for g in self.given.values() {
            let alone = || self.given.values().filter(|o| o.range == g.range).count() == 1;
            if g.side == side || !alone() {
                continue;
            }
            let mine = (g.range.end - g.range.start) as f64 / rate;
            // What is not done when it should be takes half as long again.
            let theirs = (g.expected - now).max((now - g.since) / 2.0);
            if mine < theirs {
                if found.as_ref().is_none_or(|(most, _)| theirs > *most) {
                    found = Some((theirs, g.range.clone()));
                }
            } else {
                when = when.min(g.due).min(g.since + 2.0 * mine);
            }
        }
        found.map(|(_, range)| range).ok_or(when)
    }

    /// A chunk is no longer under way.
    fn off(&mut self, given: &Given) {
        let known = self.side_mut(given.side);
        known.under_way -= given.range.end - given.range.start;
        known.chunks -= 1;
    }

    /// The next range for a side; `None` if the rest is done sooner without it.
    fn cut(&self, side: Side, now: f64) -> Option<Range<u64>> {
        let free = self.free.sum();
        let (me, other) = (self.side(side), self.side(side.other()));
        // Whoever asks is there, whatever it did until now.
        let mine = self.shown(side, now).max(self.rate(side) * 1e-3);
        let others = self.shown(side.other(), now);
        let workers = me.workers.max(me.chunks + 1) as f64;
        let share = free as f64 * mine / (mine + others) / (SHARE * workers);
        let whole = (self.total / WHOLE).max(self.options.least);
        let most = self.options.most.min(whole).min(me.limit).max(self.options.least);
        let size = (share as u64).clamp(self.options.least, most);
        // A side that nobody knows gets a try, whatever was predicted; the other one can do that again.
        if others > 0.0 && me.tried {
            let until_mine = (me.under_way + size.min(free)) as f64 / mine;
            let until_others = (other.under_way + free) as f64 / others;
            if until_mine > until_others {
                return None;
            }
        }
        let align = self.options.align;
        Some(match side {
            Side::Storage => {
                let from = self.free.first()?;
                let end = from.start.saturating_add(size).checked_next_multiple_of(align);
                from.start..end.unwrap_or(from.end).min(from.end)
            }
            Side::Host => {
                let from = self.free.last()?;
                let start = from.end.saturating_sub(size) / align * align;
                start.max(from.start)..from.end
            }
        })
    }

    fn give(&mut self, side: Side, range: Range<u64>, now: f64) -> Chunk {
        let id = self.next_id;
        self.next_id += 1;
        let patience = self.options.patience_s;
        let rate = self.rate(side);
        let known = self.side_mut(side);
        if known.chunks == 0 {
            known.last = now;
        }
        known.under_way += range.end - range.start;
        known.chunks += 1;
        known.workers = known.workers.max(known.chunks);
        let takes = known.under_way as f64 / rate;
        let (expected, due) = (now + takes, now + patience + LATE * takes);
        let chunk = Chunk { id, start: range.start, end: range.end };
        self.given.insert(id, Given { side, range, since: now, expected, due });
        chunk
    }

    /// A worker of `side` has a state for all of `chunk`, and asks whether it counts. Call it before merging the state.
    pub fn done(&mut self, side: Side, chunk: Chunk, now: f64) -> Verdict {
        let known = self.side_mut(side);
        known.seen = Some(now);
        if known.lost {
            return Verdict::Drop;
        }
        let mine = |g: &Given| g.side == side && g.range == chunk.range();
        if self.given.get(&chunk.id).is_some_and(mine)
            && let Some(given) = self.given.remove(&chunk.id)
        {
            self.learn(&given, now);
            self.off(&given);
            // Whoever else is at it comes too late.
            let twin = self.given.iter().find(|(_, g)| g.range == given.range).map(|(id, _)| *id);
            if let Some(twin) = twin.and_then(|id| self.given.remove(&id)) {
                self.off(&twin);
            }
            self.side_mut(side).counted.insert(given.range);
            return Verdict::Count;
        }
        if self.late.get(&chunk.id).is_some_and(mine)
            && let Some(given) = self.late.remove(&chunk.id)
        {
            self.learn(&given, now);
            if self.free.remove(given.range.clone()) {
                self.side_mut(side).counted.insert(given.range);
                return Verdict::Count;
            }
        }
        Verdict::Drop
    }

    /// A chunk took so long: what a side does in a second is what it ended since the last time that it ended something.
    fn learn(&mut self, given: &Given, now: f64) {
        let len = given.range.end - given.range.start;
        let known = self.side_mut(given.side);
        if !known.tried {
            (known.tried, known.bytes, known.seconds) = (true, 0.0, 0.0);
        }
        let took = (now - known.last.max(given.since)).max(0.0);
        known.last = now;
        known.limit = known.limit.max(len.saturating_mul(2));
        // Chunks of several workers end in bursts, over which the mean is taken; older ones count no more than these.
        let most = 4.0 * len as f64 * known.workers as f64;
        if known.bytes > most {
            known.seconds *= most / known.bytes;
            known.bytes = most;
        }
        known.bytes += len as f64;
        known.seconds = (known.seconds + took).max(1e-9);
    }

    /// A side is gone; what it has counted is safe with others. Its chunks are free again, and it gets no more.
    pub fn lost(&mut self, side: Side) {
        let gone = |g: &Given| g.side == side;
        let ids: Vec<u64> = self.given.iter().filter(|(_, g)| gone(g)).map(|(id, _)| *id).collect();
        for id in ids {
            if let Some(given) = self.given.remove(&id) {
                self.off(&given);
                if !self.given.values().any(|g| g.range == given.range) {
                    self.free.insert(given.range);
                }
            }
        }
        self.late.retain(|_, g| !gone(g));
        self.side_mut(side).lost = true;
    }

    /// A side is gone with all that it has computed: that is to be done again by the other one.
    pub fn lost_with_results(&mut self, side: Side) {
        self.lost(side);
        let counted = std::mem::take(&mut self.side_mut(side).counted);
        for range in counted.iter() {
            self.free.insert(range);
        }
    }
}
