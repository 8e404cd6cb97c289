//! What goes over the links between hosts: how long a small message takes, and how many bytes a second go each way.
//!
//! Pairs of hosts are measured one after the other. The first one of a pair asks, the other one answers what it is asked for,
//! with as much under way as reads over the fabric have.

use super::cores::Spinning;
use crate::clock::{Watch, cpu_seconds};
use crate::exchange::Crew;
use serde::{Deserialize, Serialize};
use stead_core::{Error, Result};
use stead_fabric::Fabric;

/// Tags of its messages: of each calibration one.
const TAGS: u32 = 0x5500_0000;
/// How many there may be before tags are used again.
const MOST_TAGS: u32 = 1 << 20;
/// Bytes of a window, and windows under way.
const WINDOW: usize = 1 << 20;
const WINDOWS: usize = crate::spread::AHEAD;
/// Small messages that are timed.
const SMALL: usize = 64;
/// Pairs that are measured: all of few hosts, else neighbours and those of the first host.
const ALL_OF: usize = 8;
const MOST_PAIRS: usize = 128;
/// Seconds for each direction of a pair.
const MOST_SECONDS: f64 = 0.5;

/// What was found of one direction, from one rank to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Found {
    pub from: usize,
    pub to: usize,
    pub bytes_per_s: f64,
    pub latency_s: f64,
    /// While all cores of both hosts compute, on average.
    pub busy_latency_s: f64,
    /// Core-seconds of a byte of who sends, and of who receives.
    pub send_s: f64,
    pub receive_s: f64,
}

/// The pairs of hosts that are measured.
fn pairs(hosts: usize) -> Vec<(usize, usize)> {
    let all = || (0..hosts).flat_map(|a| (a + 1..hosts).map(move |b| (a, b)));
    let near = |(a, b): &(usize, usize)| *a == 0 || b - a == 1;
    let chosen = all().filter(|pair| hosts <= ALL_OF || near(pair));
    chosen.take(MOST_PAIRS).collect()
}

/// The ranks that measure links, with a tag of their own: what is left of messages goes with it.
pub struct Links<'c> {
    crew: &'c Crew<'c>,
    tag: u32,
}

impl Drop for Links<'_> {
    fn drop(&mut self) {
        self.crew.fabric.forget(self.tag..self.tag + 1);
    }
}

/// Bytes in a second one way, and core-seconds of a byte at both ends.
struct Rate {
    bytes_per_s: f64,
    mine_s: f64,
    theirs_s: f64,
}

/// What a message begins with.
const GIVE: u8 = 0;
const TAKE: u8 = 1;
const DONE: u8 = 2;
const FAILED: u8 = 3;
/// What has your process taken of its cores so far?
const COST: u8 = 4;
/// Keep all of them busy, and no longer.
const SPIN: u8 = 5;
const CALM: u8 = 6;

fn malformed(rank: usize) -> Error {
    Error::format("a message from another rank is malformed").at_rank(rank)
}

impl<'c> Links<'c> {
    /// `number` is the same on all ranks, and another one each time.
    pub fn new(crew: &'c Crew<'c>, number: u32) -> Links<'c> {
        Links { crew, tag: TAGS + number % MOST_TAGS }
    }

    /// Measures between `leaders`, one rank of each host, in about so many seconds. All ranks call this and get the same.
    pub fn measure(
        &self,
        leaders: &[usize],
        seconds: f64,
        tell: &dyn Fn(&str),
    ) -> Result<Vec<Found>> {
        let pairs = pairs(leaders.len());
        let each = (seconds / (2 * pairs.len()).max(1) as f64).min(MOST_SECONDS);
        let mut found = Vec::with_capacity(2 * pairs.len());
        for (a, b) in pairs {
            let (a, b) = (leaders[a], leaders[b]);
            tell(&format!("the link of {} and {}", self.host(a), self.host(b)));
            let mine = match self.crew.rank() {
                rank if rank == a => self.ask(b, each),
                rank if rank == b => self.answer(a).map(|()| Vec::new()),
                _ => Ok(Vec::new()),
            };
            let words = self.crew.gather(mine.and_then(|found| super::encode(&found)))?;
            let word = words.get(a).map_or(&[][..], Vec::as_slice);
            found.extend(super::decode::<Vec<Found>>(word)?);
        }
        Ok(found)
    }

    fn host(&self, rank: usize) -> &str {
        self.crew.hosts.get(rank).map_or("a host", String::as_str)
    }

    /// Answers until the other one is done.
    fn answer(&self, asker: usize) -> Result<()> {
        let fabric = &self.crew.fabric;
        let answered = || -> Result<()> {
            let mut spinning = None;
            loop {
                let asked = fabric.recv(asker, self.tag)?;
                let answer = match asked.split_first() {
                    Some((&GIVE, len)) => {
                        let len: [u8; 4] = len.try_into().map_err(|_| malformed(asker))?;
                        let len = usize::try_from(u32::from_le_bytes(len)).unwrap_or(WINDOW);
                        vec![GIVE; len.clamp(1, WINDOW)]
                    }
                    Some((&TAKE, _)) => vec![TAKE],
                    Some((&COST, _)) => [&[COST][..], &cpu_seconds().to_le_bytes()].concat(),
                    Some((&SPIN, _)) => {
                        spinning = Some(Spinning::start()?);
                        vec![SPIN]
                    }
                    Some((&CALM, _)) => {
                        drop(spinning.take());
                        vec![CALM]
                    }
                    Some((&DONE, _)) => return Ok(()),
                    _ => return Err(malformed(asker)),
                };
                fabric.send(asker, self.tag, answer)?;
            }
        };
        answered().inspect_err(|_| {
            // Who asks waits for no more answers. If it is gone, nobody does.
            let _ = fabric.send(asker, self.tag, vec![FAILED]);
        })
    }

    /// Asks for all that is to be known of the link to another rank.
    fn ask(&self, to: usize, seconds: f64) -> Result<Vec<Found>> {
        let found = self.all_of(to, seconds);
        // Whatever has come of it: the other one waits for this. If it is gone, the next step says so.
        let ended = self.crew.fabric.send(to, self.tag, vec![DONE]);
        found.and_then(|found| ended.map(|()| found))
    }

    fn all_of(&self, to: usize, seconds: f64) -> Result<Vec<Found>> {
        let me = self.crew.rank();
        let latency_s = super::median(&mut self.small(to, seconds)?);
        let back = self.rate(to, GIVE, seconds)?;
        let forth = self.rate(to, TAKE, seconds)?;
        self.told(to, SPIN)?;
        let busy = {
            let _spinning = Spinning::start()?;
            self.small(to, seconds)?
        };
        self.told(to, CALM)?;
        let busy_latency_s = busy.iter().sum::<f64>() / busy.len().max(1) as f64;
        let found = |from, to, rate: &Rate, send_s, receive_s| {
            let bytes_per_s = rate.bytes_per_s;
            Found { from, to, bytes_per_s, latency_s, busy_latency_s, send_s, receive_s }
        };
        Ok(vec![
            found(me, to, &forth, forth.mine_s, forth.theirs_s),
            found(to, me, &back, back.theirs_s, back.mine_s),
        ])
    }

    /// Seconds of small messages, each half of what it takes there and back.
    fn small(&self, to: usize, seconds: f64) -> Result<Vec<f64>> {
        let (watch, mut took) = (Watch::start(), Vec::with_capacity(SMALL));
        while took.len() < SMALL && (took.is_empty() || watch.seconds() < seconds) {
            let begun = watch.seconds();
            self.send(to, GIVE, 1)?;
            self.heard(to)?;
            took.push((watch.seconds() - begun) / 2.0);
        }
        Ok(took)
    }

    /// What the other one says to one of these, behind what it says back.
    fn told(&self, to: usize, what: u8) -> Result<Vec<u8>> {
        self.crew.fabric.send(to, self.tag, vec![what])?;
        let mut said = self.crew.fabric.recv(to, self.tag)?;
        match said.first() {
            Some(first) if *first == what => Ok(said.split_off(1)),
            // It tells its own error in the next step.
            Some(&FAILED) => Err(Error::cancelled()),
            _ => Err(malformed(to)),
        }
    }

    /// Core-seconds that the other one's process has taken so far.
    fn cost(&self, of: usize) -> Result<f64> {
        let said = self.told(of, COST)?;
        let seconds = said.try_into().map(f64::from_le_bytes).map_err(|_| malformed(of))?;
        if (0.0..1e12).contains(&seconds) { Ok(seconds) } else { Err(malformed(of)) }
    }

    /// Asks for a window, or sends one.
    fn send(&self, to: usize, what: u8, len: usize) -> Result<()> {
        let message = match what {
            GIVE => [&[GIVE][..], &(len as u32).to_le_bytes()].concat(),
            _ => vec![what; len.max(1)],
        };
        self.crew.fabric.send(to, self.tag, message)
    }

    fn heard(&self, from: usize) -> Result<()> {
        match self.crew.fabric.recv(from, self.tag)?.first() {
            Some(&(GIVE | TAKE)) => Ok(()),
            // It tells its own error in the next step.
            Some(&FAILED) => Err(Error::cancelled()),
            _ => Err(malformed(from)),
        }
    }

    /// Bytes in a second one way, with [`WINDOWS`] under way.
    fn rate(&self, to: usize, what: u8, seconds: f64) -> Result<Rate> {
        let theirs = self.cost(to)?;
        let watch = Watch::start();
        let (mut sent, mut done) = (0usize, 0usize);
        while done < sent || sent == 0 {
            while sent - done < WINDOWS && (sent < WINDOWS || watch.seconds() < seconds) {
                self.send(to, what, WINDOW)?;
                sent += 1;
            }
            self.heard(to)?;
            done += 1;
        }
        let (bytes, took, mine) = ((done * WINDOW) as f64, watch.seconds(), watch.cpu_seconds());
        Ok(Rate {
            bytes_per_s: bytes / took.max(1e-9),
            mine_s: mine.max(0.0) / bytes,
            theirs_s: (self.cost(to)? - theirs).max(0.0) / bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_hosts_are_all_measured_and_of_many_some() {
        assert_eq!(pairs(1), []);
        assert_eq!(pairs(3), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(pairs(ALL_OF).len(), ALL_OF * (ALL_OF - 1) / 2);
        let many = pairs(40);
        assert!(many.len() < 80 && many.iter().all(|(a, b)| a < b && *b < 40), "{many:?}");
        // Each host is in one of them, and each is there once.
        assert!((0..40).all(|host| many.iter().any(|(a, b)| *a == host || *b == host)));
        assert!(many.windows(2).all(|w| w[0] < w[1]));
        assert!(pairs(100_000).len() == MOST_PAIRS);
    }
}
