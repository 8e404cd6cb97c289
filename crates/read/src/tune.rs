//! How many blocks are best in flight, found while reading. A pure state machine: the time is told.
//!
//! A device is tried with some blocks in flight, then with twice as many, as long as that brings a tenth more; then it
//! stays with the best. Only times in which blocks came one after the other count: not those in which readers had
//! nothing to do.

use std::time::Duration;

/// Blocks that are looked at before the rate is believed.
const LOOK: u64 = 24;
/// More in flight must bring so much more.
const WORTH: f64 = 1.10;

#[derive(Debug, Clone)]
pub(crate) struct Tuner {
    flying: usize,
    most: usize,
    /// Blocks and bytes that came since it was looked, and how long that took.
    blocks: u64,
    bytes: u64,
    time: Duration,
    /// When the last block came, if readers have been busy since.
    last: Option<Duration>,
    best: Option<(usize, f64)>,
    settled: bool,
}

impl Tuner {
    /// Begins with so many in flight, of so many at most; a pinned one stays there.
    pub(crate) fn new(flying: usize, most: usize, pinned: bool) -> Tuner {
        let most = most.max(1);
        Tuner {
            flying: flying.clamp(1, most),
            most,
            blocks: 0,
            bytes: 0,
            time: Duration::ZERO,
            last: None,
            best: None,
            settled: pinned,
        }
    }

    /// Blocks that should be in flight.
    pub(crate) fn flying(&self) -> usize {
        self.flying
    }

    /// Readers have nothing to do.
    pub(crate) fn pause(&mut self) {
        self.last = None;
    }

    /// A block came from the device at `now`, a time since some beginning.
    pub(crate) fn landed(&mut self, bytes: u64, now: Duration) {
        if let Some(last) = self.last.replace(now) {
            self.blocks += 1;
            self.bytes += bytes;
            self.time += now.saturating_sub(last);
        }
        if self.blocks < LOOK.max(2 * self.flying as u64) || self.time.is_zero() {
            return;
        }
        let rate = self.bytes as f64 / self.time.as_secs_f64();
        (self.blocks, self.bytes, self.time) = (0, 0, Duration::ZERO);
        match self.best {
            Some((flying, best)) if flying != self.flying && rate < best * WORTH => {
                self.flying = flying;
                self.settled = true;
            }
            // It has settled here; the newest rate is the best known.
            _ => self.best = Some((self.flying, rate)),
        }
        if !self.settled {
            let twice = self.flying.saturating_mul(2);
            self.settled = twice > self.most;
            self.flying = if self.settled { self.flying } else { twice };
        }
    }

    /// The best number in flight and its rate in bytes per second, if anything was measured.
    pub(crate) fn best(&self) -> Option<(usize, f64)> {
        self.best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A device that gives `rate(flying)` blocks in a second.
    fn run(tuner: &mut Tuner, blocks: usize, rate: impl Fn(usize) -> f64) {
        let mut now = Duration::ZERO;
        for _ in 0..blocks {
            now += Duration::from_secs_f64(1.0 / rate(tuner.flying()));
            tuner.landed(1000, now);
        }
    }

    #[test]
    fn it_finds_where_more_brings_nothing() {
        for (knee, found) in [(1.0, 4), (8.0, 8), (30.0, 32), (1e9, 64)] {
            let mut tuner = Tuner::new(4, 64, false);
            run(&mut tuner, 2000, |n| (n as f64).min(knee));
            assert_eq!(tuner.flying(), found, "{knee}");
            let (flying, rate) = tuner.best().unwrap();
            assert_eq!(flying, found);
            assert!((rate / 1000.0 - (found as f64).min(knee)).abs() < 0.01, "{rate}");
        }
    }

    #[test]
    fn a_pinned_one_stays_and_measures() {
        let mut tuner = Tuner::new(5, 64, true);
        run(&mut tuner, 500, |n| n as f64);
        assert_eq!((tuner.flying(), tuner.best().map(|b| b.0)), (5, Some(5)));
        assert_eq!(Tuner::new(0, 0, false).flying(), 1);
    }

    #[test]
    fn pauses_do_not_count() {
        let mut tuner = Tuner::new(4, 4, false);
        let mut now = Duration::ZERO;
        for i in 0..200 {
            if i % 10 == 0 {
                tuner.pause();
                now += Duration::from_secs(3600);
            }
            now += Duration::from_millis(1);
            tuner.landed(1000, now);
        }
        let (_, rate) = tuner.best().unwrap();
        assert!((rate - 1e6).abs() < 1e4, "{rate}");
    }
}
