//! The time of each stage, and of stages that overlap.
//!
//! All times are monotone: more bytes, slower links, tiers and cores never take less. `decide` relies on that when it looks
//! for the best split, and so does whoever compares two profiles.

use crate::estimate::Parts;
use crate::sides::{Hosts, Pool, Sides, Store, Wire, Work};

/// What something takes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) seconds: f64,
    pub(crate) parts: Parts,
    /// Bytes over links.
    pub(crate) moved: f64,
}

impl Took {
    pub(crate) fn plus(&self, o: &Took) -> Took {
        Took {
            seconds: self.seconds + o.seconds,
            parts: self.parts.plus(&o.parts),
            moved: self.moved + o.moved,
        }
    }

    pub(crate) fn times(&self, n: f64) -> Took {
        Took { seconds: self.seconds * n, parts: self.parts.times(n), moved: self.moved * n }
    }

    /// Both at once, by different hosts.
    pub(crate) fn beside(&self, o: &Took) -> Took {
        Took {
            seconds: self.seconds.max(o.seconds),
            parts: self.parts.beside(&o.parts),
            moved: self.moved + o.moved,
        }
    }
}

impl Took {
    /// No sooner than cores that hosts share are done.
    pub(crate) fn shared(mut self, seconds: f64) -> Took {
        self.seconds = self.seconds.max(seconds);
        self.parts.shared = self.parts.shared.max(seconds);
        self
    }
}

/// The time of stages that go on at once: that of the slowest one, and of the others what they take for the first chunk.
fn overlapped<const N: usize>(all: [f64; N], first: [f64; N]) -> f64 {
    let most = |stages: [f64; N]| stages.into_iter().fold(0.0, f64::max);
    most(all) + (first.iter().sum::<f64>() - most(first))
}

impl Work {
    /// Core-seconds of a byte that is computed on where it lies, and of one that is sent from there.
    fn near(&self) -> f64 {
        self.take + self.parse + self.compute
    }

    fn away(&self) -> f64 {
        self.take + self.send
    }

    /// Core-seconds of a byte of the data at the stores, and at who asks.
    fn at_store(&self, way: Way) -> f64 {
        match way {
            Way::Bytes => self.away(),
            Way::Numbers => self.take + self.parse + self.vector * self.send,
            Way::Back => self.away() + self.vector * self.receive + self.compute,
        }
    }

    fn at_asks(&self, way: Way) -> f64 {
        match way {
            Way::Bytes => self.receive + self.parse + self.compute,
            Way::Numbers => self.vector * self.receive + self.compute,
            Way::Back => self.receive + self.parse + self.vector * self.send,
        }
    }

    /// Bytes that a byte of the file takes in memory between passes.
    fn kept(&self) -> f64 {
        if self.vector > 0.0 { self.vector } else { 1.0 }
    }
}

impl Hosts {
    /// Seconds for `bytes` on all hosts together, at `cost` core-seconds a byte. A chunk is the work of one core, so that
    /// few chunks leave cores idle.
    fn compute(&self, bytes: f64, cost: f64, chunk: f64) -> f64 {
        let each = bytes / self.hosts;
        each * cost / self.cores.min((each / chunk).max(1.0))
    }

    /// Of `bytes`, those that stay in memory between passes.
    fn keeps(&self, bytes: f64) -> f64 {
        bytes.min(self.memory * self.hosts / self.work.kept())
    }
}

/// Core-seconds of each store, and of each of those who ask.
#[derive(Debug)]
pub(crate) struct Busy {
    stores: Vec<f64>,
    asks: Vec<f64>,
}

/// How the bytes go.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Way {
    /// As bytes to who asks.
    Bytes,
    /// Parsed where they lie, as numbers to who asks.
    Numbers,
    /// As bytes to who asks, who parses them, and as numbers back.
    Back,
}

impl Sides {
    /// Bytes of each store.
    pub(crate) fn all(&self) -> Vec<f64> {
        self.stores.iter().map(|s| s.bytes).collect()
    }

    /// No side has to do anything.
    fn idle(&self, taken: &[f64]) -> bool {
        taken.iter().all(|b| *b == 0.0) && self.bytes() > 0.0
    }

    /// The most that a store takes for its bytes.
    fn slowest(&self, taken: &[f64], f: impl Fn(&Store, f64) -> f64) -> f64 {
        self.stores.iter().zip(taken).map(|(s, b)| f(s, *b)).fold(0.0, f64::max)
    }

    /// Bytes that leave the hosts that have them.
    fn leaving(&self, sent: &[f64]) -> f64 {
        self.stores.iter().zip(sent).map(|(s, b)| b * s.leaves).sum()
    }

    /// Seconds for reading, of the store that takes longest.
    pub(crate) fn reading(&self, taken: &[f64]) -> f64 {
        self.slowest(taken, |s, b| b * self.uncached / s.read)
    }

    /// The least seconds in which stores that compute read all their bytes: the first chunk is computed on at the end.
    pub(crate) fn reading_to_compute(&self) -> f64 {
        self.slowest(&self.all(), |s, b| {
            let first = b.min(self.chunk * s.at.hosts);
            let cost = s.at.work.near();
            b * self.uncached / s.read + s.at.compute(first, cost, self.chunk)
        })
    }

    /// Seconds on the links for bytes that leave each store, and those that go back.
    fn linked(&self, out: &[f64], back: &[f64]) -> f64 {
        let outward = self.slowest(out, |s, b| b * s.leaves / (s.at.hosts * s.out.rate));
        let inward = self.slowest(back, |s, b| b * s.leaves / (s.at.hosts * s.back.rate));
        let (out, back) = (self.leaving(out), self.leaving(back));
        let ports = out.max(back) / self.ports;
        outward.max(inward).max(ports).max((out + back) / self.switch)
    }

    /// Seconds for who asks, who share bytes by their speed. Few chunks go to the fastest cores.
    fn asking(&self, bytes: f64, cost: impl Fn(&Work) -> f64) -> f64 {
        let cost = |a: &Hosts| cost(&a.work).max(1e-30);
        let mut asks: Vec<&Hosts> = self.asks.iter().collect();
        asks.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        let mut workers = (bytes / self.chunk).max(1.0);
        let mut rate = 0.0;
        for a in asks {
            let cores = workers.min(a.hosts * a.cores);
            rate += cores / cost(a);
            workers -= cores;
        }
        bytes / rate
    }

    /// The first chunk of each host.
    fn first(&self, taken: &[f64]) -> Vec<f64> {
        self.stores.iter().zip(taken).map(|(s, b)| b.min(self.chunk * s.at.hosts)).collect()
    }

    /// Bytes of numbers that are parsed out of bytes of each store.
    fn numbers(&self, taken: &[f64]) -> Vec<f64> {
        self.stores.iter().zip(taken).map(|(s, b)| b * s.at.work.vector).collect()
    }

    /// What leaves each store, and what comes back to it.
    fn sent(&self, way: Way, taken: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let none = vec![0.0; taken.len()];
        match way {
            Way::Bytes => (taken.to_vec(), none),
            Way::Numbers => (self.numbers(taken), none),
            Way::Back => (taken.to_vec(), self.numbers(taken)),
        }
    }

    /// Seconds of cores at the stores.
    fn at_stores(&self, bytes: &[f64], cost: impl Fn(&Work) -> f64) -> f64 {
        self.slowest(bytes, |s, b| s.at.compute(b, cost(&s.at.work), self.chunk))
    }

    /// Seconds of the stages of bytes that move: reading, links, cores of the stores, cores of who asks.
    fn stages(&self, way: Way, taken: &[f64]) -> [f64; 4] {
        let bytes: f64 = taken.iter().sum();
        let storage = self.at_stores(taken, |w| w.at_store(way));
        let host = self.asking(bytes, |w| w.at_asks(way));
        let (out, back) = self.sent(way, taken);
        [self.reading(taken), self.linked(&out, &back), storage, host]
    }

    /// One pass over bytes that move, and over those that are in memory already where they are computed on.
    fn pass(&self, way: Way, taken: &[f64], in_memory: &[f64]) -> Took {
        let stages = self.stages(way, taken);
        let [read, link, mut storage, mut host] = stages;
        let kept = match way {
            Way::Back => self.at_stores(in_memory, |w| w.compute),
            _ => self.asking(in_memory.iter().sum(), |w| w.compute),
        };
        // Whoever computes begins and ends the pass, if there is one.
        let some = taken.iter().chain(in_memory).any(|b| *b > 0.0);
        let begun = match way {
            _ if !some => 0.0,
            Way::Back => self.stores.iter().map(|s| s.at.pass_s).fold(0.0, f64::max),
            _ => self.asks.iter().map(|a| a.pass_s).fold(0.0, f64::max),
        };
        let kept = kept + begun;
        *(if way == Way::Back { &mut storage } else { &mut host }) += kept;
        let (out, back) = self.sent(way, taken);
        Took {
            seconds: overlapped(stages, self.stages(way, &self.first(taken))) + kept,
            parts: Parts { read, link, storage, host, ..Parts::default() },
            moved: self.leaving(&out) + self.leaving(&back),
        }
        .shared(self.crowded(&self.work(way, taken, in_memory)))
    }

    /// Core-seconds of each store, and bytes with the cost of each at who asks, of a pass over bytes that move.
    fn work(&self, way: Way, taken: &[f64], in_memory: &[f64]) -> Busy {
        let near = self.stores.iter().zip(taken.iter().zip(in_memory)).map(|(s, (new, kept))| {
            let again = if way == Way::Back { kept * s.at.work.compute } else { 0.0 };
            new * s.at.work.at_store(way) + again
        });
        let (new, kept) = (taken.iter().sum::<f64>(), in_memory.iter().sum::<f64>());
        let far = self.asks.iter().map(|a| {
            let again = if way == Way::Back { 0.0 } else { kept * a.work.compute };
            self.part(a) * (new * a.work.at_asks(way) + again)
        });
        Busy { stores: near.collect(), asks: far.collect() }
    }

    /// How much of what is asked for one of those who ask does.
    fn part(&self, a: &Hosts) -> f64 {
        let rate = |a: &Hosts| a.hosts * a.cores / a.work.at_asks(Way::Bytes).max(1e-30);
        rate(a) / self.asks.iter().map(rate).sum::<f64>()
    }

    /// The least seconds in which cores that sites share are done.
    pub(crate) fn crowded(&self, busy: &Busy) -> f64 {
        let of = |all: &[f64], here: &[bool]| {
            all.iter().zip(here).filter(|(_, here)| **here).map(|(s, _)| s).sum::<f64>()
        };
        let seconds = |p: &Pool| (of(&busy.stores, &p.stores) + of(&busy.asks, &p.asks)) / p.cores;
        self.pools.iter().map(seconds).fold(0.0, f64::max)
    }

    /// Bytes of each store move in some way, and are computed on at the other end.
    pub(crate) fn moving(&self, way: Way, taken: &[f64]) -> Took {
        if self.idle(taken) {
            return Took::default();
        }
        let bytes: f64 = taken.iter().sum();
        let mut took = self.pass(way, taken, &vec![0.0; taken.len()]);
        if self.passes > 1.0 {
            let kept: Vec<f64> = if way == Way::Back {
                self.stores.iter().zip(taken).map(|(s, b)| s.at.keeps(*b)).collect()
            } else {
                let share = (self.room() / bytes.max(1.0)).min(1.0);
                taken.iter().map(|b| b * share).collect()
            };
            let again: Vec<f64> = taken.iter().zip(&kept).map(|(b, k)| b - k).collect();
            took = took.plus(&self.pass(way, &again, &kept).times(self.passes - 1.0));
        }
        let answer = if way == Way::Back { self.answered(taken) } else { self.gathered(bytes) };
        took.plus(&answer).plus(&self.asked(way))
    }

    /// Each store computes on bytes of its own.
    pub(crate) fn push(&self, taken: &[f64]) -> Took {
        if self.idle(taken) {
            return Took::default();
        }
        let once = |first| {
            let mut took = Took::default();
            for (i, bytes) in taken.iter().enumerate() {
                took = took.beside(&self.storing_once(i, *bytes, 0.0, first));
            }
            let stores =
                taken.iter().enumerate().map(|(i, b)| self.near(i, *b, 0.0, first)).collect();
            took.shared(self.crowded(&Busy { stores, asks: Vec::new() }))
        };
        let mut took = once(true);
        if self.passes > 1.0 {
            took = took.plus(&once(false).times(self.passes - 1.0));
        }
        took.plus(&self.answered(taken)).plus(&self.requested())
    }

    /// One store computes on bytes of its own in a pass, the first one or one of those after it, and sends others.
    pub(crate) fn storing_once(&self, i: usize, bytes: f64, sent: f64, first: bool) -> Took {
        let s = &self.stores[i];
        let work = &s.at.work;
        let kept = if first { 0.0 } else { s.at.keeps(bytes) };
        let stages = |bytes: f64, sent: f64| {
            let new = s.at.compute(bytes, work.near(), self.chunk);
            let away = s.at.compute(sent, work.away(), self.chunk);
            [bytes * self.uncached / s.read, new + away]
        };
        let [read, new] = stages(bytes - kept, sent);
        let chunk = stages((bytes - kept).min(self.chunk * s.at.hosts), 0.0);
        let begun = if bytes > 0.0 { s.at.pass_s } else { 0.0 };
        let kept = s.at.compute(kept, work.compute, self.chunk) + begun;
        Took {
            seconds: overlapped([read, new], chunk) + kept,
            parts: Parts { read, storage: new + kept, ..Parts::default() },
            moved: 0.0,
        }
    }

    /// Core-seconds of that.
    fn near(&self, i: usize, bytes: f64, sent: f64, first: bool) -> f64 {
        let at = &self.stores[i].at;
        let kept = if first { 0.0 } else { at.keeps(bytes) };
        (bytes - kept) * at.work.near() + kept * at.work.compute + sent * at.work.away()
    }

    /// The least seconds in which cores that sites share are done with a pass of a split: `own` bytes of each store are computed
    /// on where they lie, others are fetched, or in the memory of those who ask.
    pub(crate) fn crowded_by(
        &self,
        own: &[f64],
        fetched: &[f64],
        kept: &[f64],
        first: bool,
    ) -> f64 {
        if self.pools.is_empty() {
            return 0.0;
        }
        let near = (0..own.len()).map(|i| self.near(i, own[i], fetched[i], first));
        let asks = self.work(Way::Bytes, fetched, kept).asks;
        self.crowded(&Busy { stores: near.collect(), asks })
    }

    /// One pass of those who ask over bytes that they fetch, and others that they have in memory.
    pub(crate) fn fetching_once(&self, fetched: &[f64], in_memory: &[f64]) -> Took {
        self.pass(Way::Bytes, fetched, in_memory)
    }

    /// Bytes that those who ask have room for between passes.
    pub(crate) fn room(&self) -> f64 {
        self.asks.iter().map(|a| a.keeps(f64::INFINITY)).sum()
    }

    /// Merging states of so many hosts up a tree at the end of each pass, and telling all of them how the next one begins.
    fn merged(&self, hosts: f64, wire: Wire, state: f64) -> Took {
        let rounds = hosts.max(1.0).log2().ceil();
        let times = 2.0 * self.passes - 1.0;
        let result = rounds * (wire.latency + state / wire.rate) * times;
        Took {
            seconds: result,
            parts: Parts { result, ..Parts::default() },
            moved: (hosts - 1.0).max(0.0) * state * times,
        }
    }

    /// The answer of who asks, together.
    pub(crate) fn gathered(&self, bytes: f64) -> Took {
        let hosts: f64 = self.asks.iter().map(|a| a.hosts).sum();
        let most = |f: fn(&Work) -> f64| self.asks.iter().map(|a| f(&a.work)).fold(0.0, f64::max);
        let state = most(|w| w.result);
        // Lines and the like are sent once, by all but the host that gets them.
        let found = bytes * most(|w| w.result_per_byte) * (1.0 - 1.0 / hosts.max(1.0));
        self.merged(hosts, self.among_asks, state).plus(&carried(found, self.among_asks))
    }

    /// The answer of the stores: merged among them, then sent to who asks.
    pub(crate) fn answered(&self, taken: &[f64]) -> Took {
        let hosts: f64 = self.stores.iter().filter(|s| s.bytes > 0.0).map(|s| s.at.hosts).sum();
        let state = self.stores.iter().map(|s| s.at.work.result).fold(0.0, f64::max);
        let found = self.stores.iter().zip(taken).map(|(s, b)| b * s.at.work.result_per_byte);
        let found: Vec<f64> = found.collect();
        let result = self.linked(&found, &vec![0.0; found.len()]);
        let moved = self.leaving(&found);
        let lines = Took { seconds: result, parts: Parts { result, ..Parts::default() }, moved };
        let slowest = self.stores.iter().filter(|s| s.leaves > 0.0).map(|s| s.out);
        let home = slowest.reduce(Wire::worse).map_or(Took::default(), |w| carried(state, w));
        let home = home.plus(&lines);
        self.merged(hosts, self.among_stores, state).plus(&home)
    }

    /// What a request for bytes costs before the first of them is there.
    fn asked(&self, way: Way) -> Took {
        let trips = if way == Way::Back { 3.0 } else { 2.0 };
        let each = |s: &Store| trips * s.out.latency + self.first_read(s) + s.at.request_s;
        self.fixed(self.stores.iter().map(each).fold(0.0, f64::max))
    }

    /// What a request for an answer costs; the way back of the answer is a part of the result.
    pub(crate) fn requested(&self) -> Took {
        let each = |s: &Store| s.back.latency + self.first_read(s) + s.at.request_s;
        self.fixed(self.stores.iter().map(each).fold(0.0, f64::max))
    }

    /// Seconds until the first bytes are there, if they are not in memory.
    fn first_read(&self, s: &Store) -> f64 {
        s.read_latency * self.uncached
    }

    fn fixed(&self, storage: f64) -> Took {
        let fixed = storage + self.asks.iter().map(|a| a.request_s).fold(0.0, f64::max);
        Took { seconds: fixed, parts: Parts { fixed, ..Parts::default() }, moved: 0.0 }
    }
}

/// Bytes over one link, at the end of all.
fn carried(bytes: f64, wire: Wire) -> Took {
    let result = wire.latency + bytes / wire.rate;
    Took { seconds: result, parts: Parts { result, ..Parts::default() }, moved: bytes }
}
