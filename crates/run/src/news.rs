//! What ranks tell each other while they scan: how far they are, and that the rest need not go on.
//!
//! None of it changes an answer: a message that does not come, or comes too late, costs time or a picture of the progress.

use crate::clock::Watch;
use crate::pass::{Observer, Snapshot};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind};
use stead_fabric::Fabric;

const TAG: u32 = 0x5200_0002;

/// In place of a pass: of a rank that takes part in none, and waits for those that do.
pub const ANY: u64 = 0;

/// How far a rank is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Far {
    pub bytes: u64,
    pub total: u64,
    pub rows: u64,
    /// It has come to the end of its share, or has given up.
    pub done: bool,
}

/// The news of one pass.
pub struct News<'a> {
    fabric: &'a dyn Fabric,
    /// Which run and which pass: what is left of others is not meant.
    run: u64,
    pass: u64,
    /// Rank 0 wants to know how far others are.
    watched: bool,
    /// Shares are in the order of ranks.
    ordered: bool,
    /// Who scans, if not all do.
    scan: Option<Arc<[usize]>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    /// How far other ranks are.
    others: BTreeMap<usize, Far>,
    /// Where others have failed: what comes after it need not be done.
    stopped: Option<At>,
    /// The pass that the others are at, where any is meant.
    pass: u64,
}

/// A place in the data, or before all of them.
pub type At = (Option<u32>, Option<u64>);

const FAR: u8 = 0;
const STOP: u8 = 1;
const LEFT: u8 = 2;
/// As [`STOP`], for what comes after a place: a source and an offset in it.
const STOP_AFTER: u8 = 3;

impl<'a> News<'a> {
    pub fn new(fabric: &'a dyn Fabric, run: u64, pass: u64, watched: bool) -> News<'a> {
        let watched = watched && fabric.size() > 1;
        News { fabric, run, pass, watched, ordered: true, scan: None, inner: Mutex::default() }
    }

    /// For shares that lie between each other, and not in the order of ranks.
    pub fn in_no_order(self) -> News<'a> {
        News { ordered: false, ..self }
    }

    /// For passes of these ranks alone.
    pub fn of(self, scan: Arc<[usize]>) -> News<'a> {
        News { scan: Some(scan), ..self }
    }

    fn say(&self, to: usize, kind: u8, far: Far) {
        let mut out = vec![kind];
        for n in [self.run, self.pass, far.bytes, far.total, far.rows, u64::from(far.done)] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        // Who is gone is found out where it matters.
        let _ = self.fabric.send(to, TAG, out);
    }

    /// True on rank 0, if it wants to know how far others are.
    pub fn is_watched_here(&self) -> bool {
        self.watched && self.fabric.rank() == 0
    }

    /// Tells rank 0 how far this one is.
    pub fn far(&self, far: Far) {
        if self.watched && self.fabric.rank() != 0 {
            self.say(0, FAR, far);
        }
    }

    /// This rank has failed: those whose errors could not come before go no further. Where shares are in the order of ranks,
    /// these are the later ones; else all others go on up to the place.
    pub fn failed(&self, e: &Error) {
        if self.watched && self.fabric.rank() != 0 {
            // Rank 0 goes on, perhaps, but waits for no news from here: a rank that fails before its scan has told none.
            self.say(0, LEFT, Far::default());
        }
        let stopped = self.inner.lock().unwrap_or_else(PoisonError::into_inner).stopped;
        let (source, offset) = e.order();
        // An error that is nowhere in the files comes before all others, and so does one whose file is not known where the
        // order of shares does not say it.
        let everyone = e.kind() == Kind::Cancelled
            || (source, offset) == (None, None)
            || (source.is_none() && !self.ordered);
        let rank = self.fabric.rank();
        if let (false, false, Some(source)) = (everyone, self.ordered, source) {
            // One of a file as a whole comes before those in it.
            let place = (source, offset.unwrap_or(0));
            if stopped.is_none_or(|at| (Some(place.0), Some(place.1)) < at) {
                let at = Far { bytes: u64::from(place.0), total: place.1, ..Far::default() };
                let others = (0..self.fabric.size()).filter(|r| *r != rank);
                others.for_each(|other| self.say(other, STOP_AFTER, at));
            }
            return;
        }
        if stopped == Some((None, None)) {
            // It was told to, and so were the others.
            return;
        }
        for other in (0..self.fabric.size()).filter(|r| *r > rank || (everyone && *r != rank)) {
            self.say(other, STOP, Far::default());
        }
    }

    /// Takes what has come, and waits for the first of it. True if there is no need to go on, or not after [`News::stopped`].
    pub fn hear(&self, within: Duration) -> bool {
        if self.fabric.size() == 1 {
            return false;
        }
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let mut within = within;
        while let Ok(Some((from, said))) = self.fabric.recv_any(TAG, within) {
            within = Duration::ZERO;
            let number = |i: usize| {
                let bytes = said.get(1 + 8 * i..9 + 8 * i).and_then(|b| b.try_into().ok());
                bytes.map_or(0, u64::from_le_bytes)
            };
            let (run, pass) = (number(0), number(1));
            if run != self.run || (pass != self.pass && pass != ANY && self.pass != ANY) {
                continue;
            }
            if said.first() == Some(&FAR) && self.pass == ANY {
                if pass < inner.pass {
                    continue;
                }
                if pass > inner.pass {
                    (inner.pass, inner.others) = (pass, BTreeMap::new());
                }
            }
            match said.first() {
                Some(&STOP) => inner.stopped = Some((None, None)),
                Some(&STOP_AFTER) => {
                    // A source that there is not is after all there are.
                    let source = u32::try_from(number(2)).unwrap_or(u32::MAX);
                    let at = (Some(source), Some(number(3)));
                    inner.stopped = Some(inner.stopped.map_or(at, |s| s.min(at)));
                }
                Some(&FAR) => {
                    let far = Far {
                        // Whoever looks subtracts it.
                        bytes: number(2).min(number(3)),
                        total: number(3),
                        rows: number(4),
                        done: number(5) > 0,
                    };
                    inner.others.insert(from, far);
                }
                // How far it has come stays.
                Some(&LEFT) => inner.others.entry(from).or_default().done = true,
                _ => {}
            }
        }
        inner.stopped.is_some()
    }

    /// Where others have failed: what comes after it need not be done.
    pub fn stopped(&self) -> Option<At> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).stopped
    }

    /// How far all other ranks are together; done if all are, as far as they are there.
    pub fn others(&self) -> Far {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let done = |rank: &usize| {
            inner.others.get(rank).is_some_and(|f| f.done) || self.fabric.alive(*rank).is_err()
        };
        let all_done = match &self.scan {
            None => (1..self.fabric.size()).all(|r| done(&r)),
            Some(scan) => scan.iter().filter(|r| **r != 0).all(done),
        };
        let done = inner.stopped == Some((None, None)) || all_done;
        let mut all = Far { done, ..Far::default() };
        for far in inner.others.values() {
            all.bytes = all.bytes.saturating_add(far.bytes);
            all.total = all.total.saturating_add(far.total);
            all.rows = all.rows.saturating_add(far.rows);
        }
        all
    }
}

/// Shows how far the ranks are that scan, where the one that is watched waits for them.
pub struct Follow<'a> {
    news: Arc<News<'a>>,
    since: Watch,
    last: Option<Snapshot>,
}

impl<'a> Follow<'a> {
    /// News of any pass.
    pub fn new(news: Arc<News<'a>>) -> Follow<'a> {
        Follow { news, since: Watch::start(), last: None }
    }

    /// Shows what has come, if anything has.
    pub fn look(&mut self, observer: &dyn Observer) {
        self.news.hear(Duration::ZERO);
        let pass = self.news.inner.lock().unwrap_or_else(PoisonError::into_inner).pass;
        if pass == ANY {
            return;
        }
        if let Some(last) = self.last.filter(|last| last.pass != pass) {
            observer.progress(&Snapshot { bytes: last.total_bytes, ..last });
            self.since = Watch::start();
        }
        let far = self.news.others();
        let seconds = self.since.seconds();
        let (bytes, total_bytes, rows) = (far.bytes, far.total, far.rows);
        let now = Snapshot { pass, bytes, total_bytes, rows, seconds };
        observer.progress(&now);
        self.last = Some(now);
    }

    /// All have come to the end.
    pub fn end(mut self, observer: &dyn Observer) {
        self.look(observer);
        if let Some(last) = self.last.filter(|last| last.bytes < last.total_bytes) {
            observer.progress(&Snapshot { bytes: last.total_bytes, ..last });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_fabric::Local;

    #[test]
    fn who_waits_hears_of_any_pass_and_is_heard_in_any() {
        let group = Local::group(3);
        let of = |rank: usize, pass| {
            News::new(&group[rank], 7, pass, true).in_no_order().of([1, 2].into())
        };
        let waits = of(0, ANY);
        let far = Far { bytes: 3, total: 9, rows: 1, done: true };
        of(1, 1).far(far);
        of(2, 1).far(far);
        assert!(!waits.hear(Duration::ZERO));
        assert_eq!(waits.others(), Far { bytes: 6, total: 18, rows: 2, done: true });
        // One is at the second pass, and the news of the other one is of the first.
        of(1, 2).far(Far { done: false, ..far });
        of(2, 1).far(far);
        assert!(!waits.hear(Duration::ZERO));
        assert_eq!(waits.others(), Far { done: false, ..far });
        waits.failed(&Error::cancelled());
        for pass in [1, 5] {
            let news = of(pass.min(2), pass as u64);
            assert!(news.hear(Duration::ZERO) && news.stopped() == Some((None, None)));
        }
    }

    #[test]
    fn nobody_is_further_than_the_end() {
        let group = Local::group(2);
        let news: Vec<_> = group.iter().map(|f| News::new(f, 7, 1, true)).collect();
        news[1].far(Far { bytes: 9, total: 3, rows: 1, done: false });
        assert!(!news[0].hear(Duration::ZERO));
        assert_eq!((news[0].others().bytes, news[0].others().total), (3, 3));
    }

    #[test]
    fn rank_0_knows_of_a_rank_that_has_failed_and_how_far_it_was() {
        let group = Local::group(3);
        let news: Vec<_> = group.iter().map(|f| News::new(f, 7, 1, true)).collect();
        let far = Far { bytes: 3, total: 9, rows: 1, done: false };
        news[1].far(far);
        news[2].far(Far { done: true, ..far });
        // In the middle of a file: an error of rank 0 could come before it.
        news[1].failed(&Error::data("bad").at_source(0).at_offset(5));
        assert!(!news[0].others().done);
        assert!(!news[0].hear(Duration::ZERO) && news[2].hear(Duration::ZERO));
        assert_eq!(news[0].others(), Far { bytes: 6, total: 18, rows: 2, done: true });
    }

    #[test]
    fn of_shares_in_no_order_only_what_comes_after_a_failure_stops() {
        let group = Local::group(3);
        let news: Vec<_> = group.iter().map(|f| News::new(f, 7, 1, false).in_no_order()).collect();
        let heard = |rank: usize| news[rank].hear(Duration::ZERO).then(|| news[rank].stopped());
        let failed = |rank: usize, source, offset| {
            news[rank].failed(&Error::data("bad").at_source(source).at_offset(offset));
        };
        failed(2, 1, 5);
        for rank in [0, 1] {
            assert_eq!(heard(rank), Some(Some((Some(1), Some(5)))));
        }
        // One that comes later is no news.
        failed(1, 1, 6);
        assert_eq!(heard(0), Some(Some((Some(1), Some(5)))));
        failed(0, 0, 9);
        assert_eq!(heard(1), Some(Some((Some(0), Some(9)))));
        // One of a file as a whole comes before all in it, whoever has which stripes, and after the files before it.
        news[2].failed(&Error::data("bad").at_source(0));
        for rank in [0, 1] {
            assert_eq!(heard(rank), Some(Some((Some(0), Some(0)))));
        }
        news[1].failed(&Error::cancelled());
        assert_eq!(heard(2), Some(Some((None, None))));
    }

    #[test]
    fn of_shares_in_no_order_a_failure_without_a_file_stops_all() {
        let group = Local::group(3);
        let news: Vec<_> = group.iter().map(|f| News::new(f, 7, 1, false).in_no_order()).collect();
        news[2].failed(&Error::data("bad").at_offset(5));
        for news in &news[..2] {
            assert!(news.hear(Duration::ZERO));
            assert_eq!(news.stopped(), Some((None, None)));
        }
    }
}
