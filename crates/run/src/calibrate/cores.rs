//! How many cores a host gives: fewer than it has where a container may use a part of them, or where others are at work, as the
//! other containers of its machine are.

use super::{Calibrate, decode, encode};
use crate::clock::{self, Watch, thread_seconds};
use crate::exchange::Crew;
use crate::machine::Machine;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stead_core::{Cancel, Error, Result};

/// Seconds that are enough, over which parts of cores are given many times.
const MOST_SECONDS: f64 = 1.0;
/// What is nearly all is all.
const ALL: f64 = 0.95;
/// Steps between looks at the time.
const STEPS: u32 = 10_000;

/// Hosts of one machine that are measured alone; others are as the last of them.
const MOST_TURNS: usize = 8;

/// How much of their cores hosts get.
pub struct Cores {
    /// While the others of their machine are idle.
    alone: Vec<f64>,
    /// While all ask for all.
    together: Vec<f64>,
    /// Hosts that are on one machine.
    pub shared: Vec<Vec<usize>>,
}

impl Cores {
    pub fn alone(&self, host: usize) -> f64 {
        self.alone.get(host).copied().unwrap_or(1.0)
    }

    pub fn together(&self, host: usize) -> f64 {
        self.together.get(host).copied().unwrap_or(1.0)
    }
}

/// Measures all hosts, whose first ranks see these, at once, and those of one machine in turn. `leads` is the host whose first
/// rank this one is. All ranks call it and get the same.
///
/// # Errors
/// `Peer`, and those of [`share`].
pub fn measure(
    crew: &Crew<'_>,
    hosts: &[&Machine],
    leads: Option<usize>,
    options: &Calibrate,
) -> Result<Cores> {
    let shared = Machine::shared(hosts);
    let turn = |host: usize| shared.iter().find_map(|there| there.iter().position(|h| *h == host));
    let turns = shared.iter().map(Vec::len).max().unwrap_or(0).min(MOST_TURNS);
    let seconds = options.seconds * super::FOR_CORES / (1 + turns.min(1)) as f64;
    let measured = |mine: bool| -> Result<Vec<f64>> {
        let got = match mine {
            true => share(clock::processors(), seconds, &options.cancel).map(|s| (leads, s)),
            false => Ok((None, 1.0)),
        };
        let words = crew.gather(got.and_then(|got| encode(&got)))?;
        let mut all = vec![f64::NAN; hosts.len()];
        for word in &words {
            let (host, share): (Option<usize>, f64) = decode(word)?;
            let known = host.and_then(|host| all.get_mut(host));
            known.into_iter().for_each(|at| *at = share.clamp(1e-3, 1.0));
        }
        Ok(all)
    };
    let together = measured(leads.is_some())?;
    let mut alone = together.clone();
    for now in 0..turns {
        let mine = leads.and_then(turn).is_some_and(|turn| turn == now);
        let found = measured(mine)?;
        let had = alone.iter_mut().zip(found).filter(|(_, share)| share.is_finite());
        had.for_each(|(alone, share)| *alone = share);
    }
    for there in shared.iter().filter(|there| there.len() > MOST_TURNS) {
        let last = alone[there[MOST_TURNS - 1]];
        there[MOST_TURNS..].iter().for_each(|host| alone[*host] = last);
    }
    Ok(Cores { alone, together, shared })
}

/// Threads that keep all processors of this process busy until this goes.
pub struct Spinning {
    stop: Arc<AtomicBool>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Spinning {
    /// # Errors
    /// `Io` where no threads can be started.
    pub fn start() -> Result<Spinning> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut spinning = Spinning { stop: stop.clone(), threads: Vec::new() };
        for _ in 0..clock::processors() {
            let stop = stop.clone();
            let spin = move || {
                let mut number = 1u64;
                while !stop.load(Ordering::Relaxed) {
                    number = steps(number);
                }
            };
            let thread = std::thread::Builder::new().name("stead-cores".into()).spawn(spin);
            let thread = thread.map_err(|e| Error::io("start a thread", "cores", e))?;
            spinning.threads.push(thread);
        }
        Ok(spinning)
    }
}

impl Drop for Spinning {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // Nothing in it panics.
            let _ = thread.join();
        }
    }
}

/// Some work that nobody can leave out.
fn steps(number: u64) -> u64 {
    std::hint::black_box((0..STEPS).fold(number, |n, i| n.rotate_left(5) ^ u64::from(i)))
}

/// How much of the time that as many threads as there are processors want for so many seconds they get, above 0 to 1.
///
/// # Errors
/// `Cancelled`, `Io` where no threads can be started.
pub fn share(threads: usize, seconds: f64, cancel: &Cancel) -> Result<f64> {
    let seconds = seconds.min(MOST_SECONDS);
    let work = || {
        let (watch, begun) = (Watch::start(), thread_seconds());
        let mut number = 1u64;
        while watch.seconds() < seconds && cancel.check().is_ok() {
            number = steps(number);
        }
        (thread_seconds() - begun) / watch.seconds().max(1e-9)
    };
    let got = std::thread::scope(|scope| -> Result<f64> {
        let others = (1..threads)
            .map(|_| {
                let thread = std::thread::Builder::new().name("stead-cores".into());
                thread
                    .spawn_scoped(scope, work)
                    .map_err(|e| Error::io("start a thread", "cores", e))
            })
            .collect::<Result<Vec<_>>>()?;
        let mine = work();
        let died = |_| Error::internal("a thread that measures cores has died");
        others.into_iter().try_fold(mine, |sum, t| Ok(sum + t.join().map_err(died)?))
    })?;
    cancel.check()?;
    let share = got / threads.max(1) as f64;
    Ok(if share >= ALL { 1.0 } else { share.max(1e-3) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_cores_is_had() {
        let share = share(2, 0.05, &Cancel::new()).expect("a share");
        assert!(share > 0.0 && share <= 1.0);
        let stopped = Cancel::new();
        stopped.cancel();
        assert!(super::share(1, 60.0, &stopped).is_err());
    }
}
