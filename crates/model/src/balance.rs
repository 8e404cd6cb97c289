//! Two sides work on one range at once, and end at the same time.
//!
//! The storage works from the beginning of the range, the hosts from its end, and they meet where they meet: nothing is
//! divided before. Chunks are an eighth of what is left for a side, by the rates that both have shown, so that they shrink
//! to the end, and a prediction that was wrong is forgotten after a few chunks. When nothing is left, who has nothing to do
//! does again what the other side is slow with, and who is done first counts. A side of which next to nothing is expected gets
//! nothing, unless the other one takes longer than was predicted.
//!
//! Further passes over the range ([`Balance::again`]) are balanced anew, and each side begins at its end: with what it has in
//! memory from before. When it is done with that it takes over what the other one has, chunk by chunk, as long as it is done
//! with it sooner, and has it in memory from then on. So a side that has to fetch what it computes on gets more with each pass.
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
/// Of what is in memory a chunk is no more than this part of the whole, and larger beside what is left: it is done again
/// faster than it was got.
const WHOLE_KEPT: u64 = 16;
const SHARE_KEPT: f64 = 3.0;
/// A chunk is late after so many times what it was expected to take.
const LATE: f64 = 4.0;
/// A side of which less than this share is expected gets nothing at first.
const LITTLE: f64 = 0.03;

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
    /// Predicted seconds for all of it, in one pass.
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
    /// Who got it has it in memory.
    kept: bool,
    range: Range<u64>,
    since: f64,
    /// When it should be done.
    expected: f64,
    /// When it is late.
    due: f64,
}

/// How fast a side is with bytes of one sort: those that it has to get first, or those that it has in memory.
#[derive(Debug, Clone)]
struct Pace {
    /// Bytes that were done, and the seconds that they took, of which old ones fade. What was predicted, before anything
    /// was done.
    bytes: f64,
    seconds: f64,
    tried: bool,
    /// When something of it last ended, or began after a pause.
    last: f64,
    /// Bytes and number of chunks under way.
    under_way: u64,
    chunks: usize,
    /// The next chunk is not larger.
    limit: u64,
}

impl Pace {
    fn rate(&self) -> f64 {
        self.bytes / self.seconds
    }

    /// The rate, with what should have been done by now and was not.
    fn shown(&self, now: f64) -> f64 {
        let (rate, waited, under_way) = (self.rate(), now - self.last, self.under_way as f64);
        if self.chunks > 0 && waited * rate > under_way { under_way / waited } else { rate }
    }
}

/// What is known of a side.
#[derive(Debug, Clone)]
struct Known {
    /// With bytes that it has to get, and with those that it has in memory.
    paces: [Pace; 2],
    /// When it last asked or was done with something.
    seen: Option<f64>,
    /// Most chunks that were under way at once.
    workers: usize,
    lost: bool,
    /// Less than [`LITTLE`] is expected of it.
    little: bool,
    /// What it has done and counts.
    counted: Ranges,
    /// What each of its members has in memory.
    kept: BTreeMap<usize, Ranges>,
}

impl Known {
    fn chunks(&self) -> usize {
        self.paces.iter().map(|p| p.chunks).sum()
    }

    fn tried(&self) -> bool {
        self.paces.iter().any(|p| p.tried)
    }

    /// What any of its members has in memory of these.
    fn has(&self, free: &Ranges) -> u64 {
        self.kept
            .values()
            .map(|kept| free.common(kept).iter().map(|r| r.end - r.start).sum::<u64>())
            .sum()
    }

    /// Seconds until it is done with what it has under way.
    fn busy_s(&self, now: f64) -> f64 {
        let pace = |p: &Pace| {
            if p.under_way > 0 { p.under_way as f64 / p.shown(now).max(1e-30) } else { 0.0 }
        };
        self.paces.iter().map(pace).sum()
    }
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
    /// Where chunks of the first pass began, once there is another one: what is in memory is in these pieces.
    cuts: BTreeSet<u64>,
    first: bool,
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
            let little = share < LITTLE;
            // Nothing is expected never to be done.
            let rate = (total.max(1) as f64 * share.max(0.001)) / options.seconds;
            let pace = Pace {
                bytes: begin as f64,
                seconds: begin as f64 / rate,
                tried: false,
                last: 0.0,
                under_way: 0,
                chunks: 0,
                limit: begin,
            };
            Known {
                paces: [pace.clone(), pace],
                seen: None,
                workers: 1,
                lost: false,
                little,
                counted: Ranges::default(),
                kept: BTreeMap::new(),
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
            cuts: BTreeSet::new(),
            first: true,
        }
    }

    /// Begins another pass over all of it, at time 0: nothing is counted. What both sides have shown, and have in memory, stays.
    pub fn again(&mut self) {
        self.free = Ranges::all(self.total);
        self.first = false;
        self.given.clear();
        self.late.clear();
        for known in &mut self.sides {
            known.counted = Ranges::default();
            known.seen = None;
            let [fresh, kept] = &mut known.paces;
            if !kept.tried {
                *kept = Pace { tried: false, ..fresh.clone() };
            }
            for pace in &mut known.paces {
                (pace.last, pace.under_way, pace.chunks) = (0.0, 0, 0);
            }
        }
    }

    /// The worker that was given a chunk has it in memory: call it when it counts. Chunks of several pieces are in memory
    /// already or not at all.
    pub fn keep(&mut self, side: Side, member: usize, chunk: Chunk) {
        let kept = self.side_mut(side).kept.entry(member).or_default();
        if kept.common(&Ranges::of(chunk.range())).is_empty() {
            kept.insert(chunk.range());
        }
    }

    /// True if a chunk is one piece, which can be kept.
    pub fn is_piece(&self, chunk: Chunk) -> bool {
        self.first || self.cuts.range(chunk.start + 1..chunk.end).next().is_none()
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

    /// Bytes in a second that a side has shown lately with what it has to get; what was predicted, before it has shown
    /// anything.
    pub fn rate(&self, side: Side) -> f64 {
        self.side(side).paces[0].rate()
    }

    /// Seconds until the end, if both go on as they do.
    pub fn left_s(&self, now: f64) -> f64 {
        let rates: f64 = Side::BOTH.iter().map(|s| self.shown(*s, false, now)).sum();
        let under_way: u64 = self.sides.iter().flat_map(|s| &s.paces).map(|p| p.under_way).sum();
        if self.is_finished() { 0.0 } else { (self.free.sum() + under_way) as f64 / rates }
    }

    /// The rate of a side, with what it should have done by now and has not; 0 if nothing can be expected of it.
    fn shown(&self, side: Side, kept: bool, now: f64) -> f64 {
        let known = self.side(side);
        let silent = known.seen.is_some_and(|seen| now - seen > self.options.patience_s);
        if known.lost || known.chunks() == 0 && silent {
            return 0.0;
        }
        known.paces[usize::from(kept)].shown(now)
    }

    /// Bytes in a second of a side that does all that is free alone; 0 if nothing can be expected of it.
    fn alone(&self, side: Side, now: f64) -> f64 {
        let (free, fresh) = (self.free.sum(), self.shown(side, false, now));
        let has = self.side(side).has(&self.free).min(free);
        if fresh <= 0.0 || free == 0 {
            return fresh;
        }
        let kept = self.shown(side, true, now).max(1e-30);
        free as f64 / ((free - has) as f64 / fresh + has as f64 / kept)
    }

    /// What a worker of `side` that has nothing to do is to do, where all its workers have one memory.
    pub fn next(&mut self, side: Side, now: f64) -> Next {
        self.next_of(side, 0, now)
    }

    /// What a worker of this member of `side` that has nothing to do is to do. Each member has a memory of its own.
    pub fn next_of(&mut self, side: Side, member: usize, now: f64) -> Next {
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
        if let Some(cut) = self.cut(side, member, now) {
            self.free.remove(cut.0.clone());
            return Next::Chunk(self.give(side, cut, now));
        }
        let mut until = now + self.options.patience_s;
        if self.free.sum() == 0 {
            match self.done_sooner(side, member, now) {
                Ok(found) => return Next::Chunk(self.give(side, found, now)),
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

    /// True if a member has all of a range in memory.
    fn has(&self, side: Side, member: usize, range: &Range<u64>) -> bool {
        let has =
            self.side(side).kept.get(&member).map(|kept| kept.common(&Ranges::of(range.clone())));
        has.is_some_and(|common| common == [range.clone()])
    }

    /// What the other side has under way and `side`, which has nothing else to do, would probably be done with first; or
    /// when to look again. Who is done first counts, so that nothing is lost by trying.
    fn done_sooner(&self, side: Side, member: usize, now: f64) -> Result<(Range<u64>, bool), f64> {
        let me = self.side(side);
        let mut found: Option<(f64, Range<u64>, bool)> = None;
        let mut when = f64::INFINITY;
        for g in self.given.values() {
            let alone = || self.given.values().filter(|o| o.range == g.range).count() == 1;
            if g.side == side || !alone() {
                continue;
            }
            let kept = self.has(side, member, &g.range);
            let rate = me.paces[usize::from(kept)].rate() / me.workers as f64;
            let mine = (g.range.end - g.range.start) as f64 / rate;
            // What is not done when it should be takes half as long again.
            let theirs = (g.expected - now).max((now - g.since) / 2.0);
            if mine < theirs {
                if found.as_ref().is_none_or(|(most, ..)| theirs > *most) {
                    found = Some((theirs, g.range.clone(), kept));
                }
            } else {
                when = when.min(g.due).min(g.since + 2.0 * mine);
            }
        }
        found.map(|(_, range, kept)| (range, kept)).ok_or(when)
    }

    /// A chunk is no longer under way.
    fn off(&mut self, given: &Given) {
        let pace = &mut self.side_mut(given.side).paces[usize::from(given.kept)];
        pace.under_way -= given.range.end - given.range.start;
        pace.chunks -= 1;
    }

    /// The free stretch at its side's end that a member has in memory.
    fn kept(&self, side: Side, member: usize) -> Option<Range<u64>> {
        let common = self.free.common(self.side(side).kept.get(&member)?);
        match side {
            Side::Storage => common.first().cloned(),
            Side::Host => common.last().cloned(),
        }
    }

    /// The one that it has not.
    fn fresh(&self, side: Side, member: usize) -> Option<Range<u64>> {
        let mut rest = self.free.clone();
        let take = |rest: &mut Ranges, kept: &Ranges| {
            rest.common(kept).into_iter().for_each(|range| {
                rest.remove(range);
            });
        };
        let all = &self.side(side).kept;
        all.get(&member).into_iter().for_each(|kept| take(&mut rest, kept));
        let any = rest.clone();
        // Others of this side have the rest of what they have sooner.
        all.iter().filter(|(of, _)| **of != member).for_each(|(_, kept)| take(&mut rest, kept));
        match side {
            Side::Storage => rest.first().or_else(|| any.first()),
            Side::Host => rest.last().or_else(|| any.last()),
        }
    }

    /// The next range for a member of a side, and whether it has it in memory; `None` if the rest is done sooner without it.
    fn cut(&self, side: Side, member: usize, now: f64) -> Option<(Range<u64>, bool)> {
        let known = self.side(side);
        let kept = self.kept(side, member).map(|from| (from, true));
        // While one worker computes on what is there, another one gets what comes then.
        let ahead = known.paces[1].chunks > 0 && known.paces[0].chunks == 0;
        let fresh = || self.fresh(side, member).map(|from| (from, false));
        let first = if ahead || kept.is_none() { fresh() } else { None };
        let mut found = [first, kept].into_iter().flatten();
        let cut = |(from, kept)| self.piece(side, from, kept, now).map(|range| (range, kept));
        found.find_map(cut)
    }

    /// So much of a stretch as this side is to have now, if that is worth it.
    fn piece(&self, side: Side, from: Range<u64>, kept: bool, now: f64) -> Option<Range<u64>> {
        let free = self.free.sum();
        let (me, other) = (self.side(side), self.side(side.other()));
        let pace = &me.paces[usize::from(kept)];
        let has = me.has(&self.free).min(free);
        // Whoever asks is there, whatever it did until now.
        let mine = self.shown(side, kept, now).max(pace.rate() * 1e-3);
        let others = self.alone(side.other(), now);
        let workers = me.workers.max(me.chunks() + 1) as f64;
        let (part, whole) = if kept { (SHARE_KEPT, WHOLE_KEPT) } else { (SHARE, WHOLE) };
        let share = free as f64 * mine / (mine + others);
        let share = if kept { share.min(has as f64) } else { share };
        let whole = (self.total / whole).max(self.options.least);
        let most = self.options.most.min(whole).min(pace.limit).max(self.options.least);
        let size = ((share / (part * workers)) as u64).clamp(self.options.least, most);
        let range = self.end_of(side, from, size, kept);
        if others > 0.0 {
            // Before it has got what it has not, it is done with what it has.
            let before = if kept { 0 } else { has };
            let first = before as f64 / self.shown(side, true, now).max(pace.rate() * 1e-3);
            let until_mine = me.busy_s(now) + first + (range.end - range.start) as f64 / mine;
            let until_others = other.busy_s(now) + (free - before) as f64 / others;
            // A side that nobody knows gets a try, whatever was predicted; the other one can do that again. One of which
            // little is expected gets it when that takes longer without it.
            let patience = self.options.patience_s;
            let late = now >= patience && now + until_others > self.options.seconds + patience;
            let wanted = if me.tried() { until_mine <= until_others } else { !me.little || late };
            if !wanted {
                return None;
            }
        }
        Some(range)
    }

    /// The end of a stretch at which this side works, of about `size` bytes.
    fn end_of(&self, side: Side, from: Range<u64>, size: u64, kept: bool) -> Range<u64> {
        let align = self.options.align;
        // What is fetched in later passes is fetched piece by piece, to be kept so.
        let size = if kept || self.first { size } else { 1 };
        match side {
            Side::Storage => {
                let end = from.start.saturating_add(size);
                let end = match self.first {
                    true => end.checked_next_multiple_of(align),
                    false => self.cuts.range(end..).next().copied(),
                };
                from.start..end.unwrap_or(from.end).min(from.end)
            }
            Side::Host => {
                let start = from.end.saturating_sub(size);
                let start = match self.first {
                    true => start / align * align,
                    false => self.cuts.range(..=start).next_back().copied().unwrap_or(0),
                };
                start.max(from.start)..from.end
            }
        }
    }

    fn give(&mut self, side: Side, (range, kept): (Range<u64>, bool), now: f64) -> Chunk {
        let id = self.next_id;
        self.next_id += 1;
        let patience = self.options.patience_s;
        let known = self.side_mut(side);
        known.workers = known.workers.max(known.chunks() + 1);
        let pace = &mut known.paces[usize::from(kept)];
        if pace.chunks == 0 {
            pace.last = now;
        }
        pace.under_way += range.end - range.start;
        pace.chunks += 1;
        let takes = known.paces.iter().map(|p| p.under_way as f64 / p.rate()).sum::<f64>();
        let (expected, due) = (now + takes, now + patience + LATE * takes);
        let chunk = Chunk { id, start: range.start, end: range.end };
        self.given.insert(id, Given { side, kept, range, since: now, expected, due });
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
            self.count(side, given.range);
            return Verdict::Count;
        }
        if self.late.get(&chunk.id).is_some_and(mine)
            && let Some(given) = self.late.remove(&chunk.id)
        {
            self.learn(&given, now);
            if self.free.remove(given.range.clone()) {
                self.count(side, given.range);
                return Verdict::Count;
            }
        }
        Verdict::Drop
    }

    fn count(&mut self, side: Side, range: Range<u64>) {
        if self.first {
            self.cuts.insert(range.start);
        }
        self.side_mut(side).counted.insert(range);
    }

    /// A chunk took so long: what a side does in a second is what it ended since the last time that it ended something.
    fn learn(&mut self, given: &Given, now: f64) {
        let len = given.range.end - given.range.start;
        let known = self.side_mut(given.side);
        let workers = known.workers as f64;
        let pace = &mut known.paces[usize::from(given.kept)];
        if !pace.tried {
            (pace.tried, pace.bytes, pace.seconds) = (true, 0.0, 0.0);
        }
        let took = (now - pace.last.max(given.since)).max(0.0);
        pace.last = now;
        pace.limit = pace.limit.max(len.saturating_mul(2));
        // Chunks of several workers end in bursts, over which the mean is taken; older ones count no more than these.
        let most = 4.0 * len as f64 * workers;
        if pace.bytes > most {
            pace.seconds *= most / pace.bytes;
            pace.bytes = most;
        }
        pace.bytes += len as f64;
        pace.seconds = (pace.seconds + took).max(1e-9);
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
        self.side_mut(side).kept.clear();
        let counted = std::mem::take(&mut self.side_mut(side).counted);
        for range in counted.iter() {
            if self.first {
                // It is cut anew.
                self.cuts.retain(|cut| !range.contains(cut));
            }
            self.free.insert(range);
        }
    }
}
