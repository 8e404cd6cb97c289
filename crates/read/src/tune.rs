//! How many readers and blocks in flight are best, found while reading. A pure state machine: the time is told.
//!
//! What is in force is measured first: how long some blocks take that come one after the other while all readers are at
//! work, five times. Then others are tried: more blocks in flight, more readers, fewer readers. Whatever is tried is given
//! up after three of five times that are not a tenth better than the median of the former. If three are, the former is
//! measured again, then the other one again, and only who is better by a tenth, or a quarter for fewer readers, three times in
//! a row takes its place; so that noise, and a device that becomes faster meanwhile, change nothing. Each is tried once, so that there is an end: then what was found
//! stays, and its rate is measured on and on. Where something was found before, on this tier, nothing is tried unless it is
//! slower by more than a tenth than it was then: another load or another device may lie behind it.

use crate::options::{ASKED, Choice, Decision};
use std::time::Duration;
use stead_core::units::format_size;

/// Times that are measured of each.
const LOOKS: usize = 5;
/// Of these, so many decide.
const MOST_LOOKS: usize = LOOKS / 2 + 1;
/// Blocks of one look, at least.
const LOOK: usize = 6;
/// What is tried must bring so much more.
const WORTH: f64 = 1.10;
/// Fewer readers must bring more, as others suffer more from what was a mistake.
const WORTH_FEWER: f64 = 1.25;
/// So often.
const WINS: usize = 3;
/// What is tried is given up after so many looks' blocks that could not be measured.
const PATIENCE: usize = 8;

/// How a device is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) readers: usize,
    /// Blocks in flight for each.
    pub(crate) depth: usize,
}

impl Setting {
    /// Blocks in flight, all readers together.
    pub(crate) fn flying(self) -> usize {
        self.readers.saturating_mul(self.depth)
    }

    /// Blocks of a look.
    fn look(self) -> usize {
        self.flying().max(LOOK)
    }
}

/// What is tried next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Deeper,
    More,
    Fewer,
    Done,
}

/// What is measured now.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// What is best so far.
    Best,
    /// Another one, against this rate.
    Other(f64),
}

/// What was found so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Found {
    pub(crate) setting: Setting,
    /// Bytes in a second, the best median: the last one may be of a device that had slowed down by then.
    pub(crate) rate: f64,
    /// There is nothing left to be tried.
    pub(crate) settled: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Tuner {
    choice: Choice,
    best: Setting,
    /// The last median of it, and the best one.
    rate: Option<f64>,
    top: f64,
    /// In force.
    now: Setting,
    phase: Phase,
    step: Step,
    /// How often what is compared with the best was better.
    won: usize,
    /// What was tried and was no better.
    lost: Vec<Setting>,
    /// Rates of looks at what is in force.
    looks: Vec<f64>,
    /// Blocks and bytes of this look, and how long they took.
    blocks: usize,
    bytes: u64,
    time: Duration,
    /// When the last block came, if readers have been busy since.
    last: Option<Duration>,
    /// Blocks that were begun when something else was in force.
    old: usize,
    /// Blocks of what is tried that could not be measured.
    missed: usize,
}

impl Tuner {
    /// Begins as was chosen; what is pinned stays there.
    pub(crate) fn new(choice: Choice) -> Tuner {
        let best = Setting { readers: choice.readers.max(1), depth: choice.depth.max(1) };
        Tuner {
            choice,
            best,
            rate: None,
            top: 0.0,
            now: best,
            phase: Phase::Best,
            step: Step::Deeper,
            won: 0,
            lost: Vec::new(),
            looks: Vec::with_capacity(LOOKS),
            blocks: 0,
            bytes: 0,
            time: Duration::ZERO,
            last: None,
            old: 0,
            missed: 0,
        }
    }

    /// How to read from now on.
    pub(crate) fn now(&self) -> Setting {
        self.now
    }

    /// The best so far, if anything was measured.
    pub(crate) fn found(&self) -> Option<Found> {
        let settled = self.step == Step::Done;
        self.rate.map(|_| Found { setting: self.best, rate: self.top, settled })
    }

    /// A reader has nothing to do.
    pub(crate) fn pause(&mut self) {
        self.last = None;
    }

    /// A block came from the device at `now`, a time since some beginning, while so many readers were at work.
    pub(crate) fn landed(&mut self, bytes: u64, now: Duration, busy: usize) {
        let last = self.last.replace(now);
        if self.old > 0 {
            self.old -= 1;
            return;
        }
        let Some(last) = last.filter(|_| busy == self.now.readers) else {
            self.miss();
            return;
        };
        self.blocks += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.time += now.saturating_sub(last);
        if self.blocks < self.now.look() || self.time.is_zero() {
            return;
        }
        self.looks.push(self.bytes as f64 / self.time.as_secs_f64());
        (self.blocks, self.bytes, self.time) = (0, 0, Duration::ZERO);
        self.judge();
    }

    /// A block that could not be measured.
    fn miss(&mut self) {
        if let Phase::Other(_) = self.phase {
            self.missed += 1;
            if self.missed >= PATIENCE * self.now.look() {
                // There is too little to read for it.
                self.lose();
            }
        }
    }

    fn judge(&mut self) {
        match self.phase {
            Phase::Best if self.looks.len() >= LOOKS => {
                let rate = median(&mut self.looks);
                let first = self.rate.replace(rate).is_none();
                self.top = self.top.max(rate);
                let before = self.choice.measured.map(|before| before as f64).filter(|_| first);
                if before.is_some_and(|before| rate >= before / WORTH) {
                    self.step = Step::Done;
                }
                self.challenge();
            }
            Phase::Best => {}
            Phase::Other(best) => {
                let worth = if self.step == Step::Fewer { WORTH_FEWER } else { WORTH };
                let better = self.looks.iter().filter(|rate| **rate > best * worth).count();
                if self.looks.len() - better >= MOST_LOOKS {
                    self.lose();
                } else if better >= MOST_LOOKS {
                    self.win();
                }
            }
        }
    }

    /// What is tried is better, this time.
    fn win(&mut self) {
        self.won += 1;
        if self.won < WINS {
            return self.set(self.best, Phase::Best);
        }
        (self.best, self.won) = (self.now, 0);
        self.top = median(&mut self.looks);
        self.rate = Some(self.top);
        self.challenge();
    }

    /// What is tried is no better.
    fn lose(&mut self) {
        self.lost.push(self.now);
        self.won = 0;
        self.step = match self.step {
            Step::Deeper => Step::More,
            // Whoever has come to more readers has left fewer behind.
            Step::More if self.best.readers == self.choice.readers => Step::Fewer,
            Step::More | Step::Fewer | Step::Done => Step::Done,
        };
        self.challenge();
    }

    /// Tries what comes next, if there is anything.
    fn challenge(&mut self) {
        while self.step != Step::Done {
            if let (Some(other), Some(rate)) = (self.other(), self.rate) {
                return self.set(other, Phase::Other(rate));
            }
            self.step = match self.step {
                Step::Deeper => Step::More,
                Step::More if self.best.readers == self.choice.readers => Step::Fewer,
                Step::More | Step::Fewer | Step::Done => Step::Done,
            };
        }
        self.set(self.best, Phase::Best);
    }

    /// What is to be compared with the best.
    fn other(&self) -> Option<Setting> {
        let Setting { readers, depth } = self.best;
        let c = &self.choice;
        let other = match self.step {
            Step::Deeper => Setting { readers, depth: depth.saturating_mul(2) },
            Step::More => {
                let readers = readers.saturating_mul(2).min(c.readers_at_most);
                Setting { readers, depth: depth.div_ceil(2).max(c.least_depth) }
            }
            Step::Fewer => {
                let readers = (readers / 2).max(c.readers_at_least);
                Setting { readers, depth: depth.saturating_mul(2).min(c.most_depth) }
            }
            Step::Done => return None,
        };
        let most = c.most_depth.saturating_mul(c.readers).max(self.best.flying());
        // One reader that waits for each block has more of them in flight by being more.
        let most = if c.whole { usize::MAX } else { most.max(c.blocks / 2) };
        let new = match self.step {
            Step::Deeper => other.depth <= c.most_depth,
            _ => other.readers != self.best.readers,
        };
        (new && other.flying() <= most).then_some(other)
    }

    fn set(&mut self, now: Setting, phase: Phase) {
        if now != self.now {
            self.old = now.flying().max(self.now.flying());
        }
        (self.now, self.phase) = (now, phase);
        self.looks.clear();
        (self.blocks, self.bytes, self.time, self.missed) = (0, 0, Duration::ZERO, 0);
    }

    /// Says in what was chosen for a session over so many blocks what was found since.
    pub(crate) fn tell(&self, decisions: &mut [Decision], blocks: u64) {
        let Some(Found { setting, rate, .. }) = self.found() else { return };
        let rate = format_size(rate as u64);
        let tried = |of: fn(&Setting) -> usize, is: usize| {
            let mut all: Vec<usize> = self.lost.iter().map(of).filter(|n| *n != is).collect();
            all.dedup();
            let all: Vec<String> = all.iter().map(usize::to_string).collect();
            all.join(" and ")
        };
        let found = |d: &mut Decision, is: usize, was: usize, tried: String| {
            d.value = is.to_string();
            if is != was {
                d.reason = format!("found while reading: clearly faster than {was}");
            }
            if !tried.is_empty() {
                d.reason = format!("{}; {tried} tried while reading, no faster", d.reason);
            }
        };
        for d in decisions {
            match d.name {
                "readers" if d.reason != ASKED => {
                    let was = self.choice.readers;
                    if blocks >= setting.readers.min(was) as u64 {
                        found(d, setting.readers, was, tried(|s| s.readers, setting.readers));
                        d.value = (setting.readers as u64).min(blocks).to_string();
                    }
                }
                "queue depth" => {
                    // With other readers each has others; that is no finding.
                    let same = setting.readers == self.choice.readers;
                    if same && d.reason != ASKED {
                        let all = self.lost.iter().filter(|s| s.readers == setting.readers);
                        let tried = all.map(|s| s.depth.to_string()).collect::<Vec<_>>();
                        found(d, setting.depth, self.choice.depth, tried.join(" and "));
                    }
                    d.value = setting.depth.to_string();
                    d.reason = format!("{}; read so with {rate}/s", d.reason);
                }
                _ => {}
            }
        }
    }
}

/// The one in the middle; takes the order of them away.
fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
#[path = "tune_tests.rs"]
mod tests;
