//! What a machine that ranks are on can do: for those who choose where to compute.

use crate::clock;
use crate::meeting::may_run_on;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use stead_core::{Error, Result};

/// Seconds of processors that this process had, and for which it waited, when it was last asked.
static LAST: Mutex<(f64, f64)> = Mutex::new((0.0, 0.0));
/// Seconds of a processor that are taken for had without waiting: what little was had says little.
const LITTLE_S: f64 = 0.005;
/// Who gets less than this of what it wants shares all processors with others.
const CONTENDED: f64 = 0.9;

/// What a rank sees of its machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub host: String,
    /// What tells the machine that the host is, or is a container of, from others; nothing if that is not known.
    machine: String,
    /// Processors that the rank may run on, a bit for each.
    may_run_on: Vec<u64>,
    /// How many of them it may keep busy.
    processors: u64,
    /// Threads of others that want to run on all of the machine.
    load: f64,
    /// How much of the processor time that a thread of the rank wanted lately it got, 0 to 1.
    got: f64,
}

/// What was got since it was last asked.
fn got() -> f64 {
    let (had, waited) = clock::had_and_waited();
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    // Threads that have ended take theirs with them.
    let since = ((had - last.0).max(0.0) + LITTLE_S, (waited - last.1).max(0.0));
    *last = (had, waited);
    since.0 / (since.0 + since.1)
}

impl Machine {
    /// This one, by the name that its rank has for it.
    pub fn here(host: &str) -> Machine {
        Machine {
            host: host.to_owned(),
            machine: clock::machine(),
            may_run_on: may_run_on(),
            processors: clock::processors() as u64,
            load: clock::load(),
            got: got(),
        }
    }

    /// Machines on which there are several of these hosts: the places of the hosts. Each has told what it sees.
    pub fn shared(hosts: &[&Machine]) -> Vec<Vec<usize>> {
        let mut of: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (at, host) in hosts.iter().enumerate().filter(|(_, h)| !h.machine.is_empty()) {
            of.entry(&host.machine).or_default().push(at);
        }
        of.into_values().filter(|there| there.len() > 1).collect()
    }

    /// Cores that ranks of one machine, each of which has told what it sees, may keep busy together.
    pub fn cores(ranks: &[&Machine]) -> f64 {
        let words = ranks.iter().map(|m| m.may_run_on.len()).max().unwrap_or(0);
        let word = |i: usize| ranks.iter().fold(0, |w, m| w | m.may_run_on.get(i).unwrap_or(&0));
        let all = (0..words).map(|i| u64::from(word(i).count_ones())).sum::<u64>();
        // A container may keep fewer busy than it may run on.
        let busy: u64 = ranks.iter().map(|m| m.processors).sum();
        let cores = if all == 0 { busy } else { all.min(busy) };
        cores.clamp(1, 1 << 20) as f64
    }

    /// Threads of others for each of so many cores.
    ///
    /// Who waits for processors knows of how many others: `t` of its threads on `c` cores, with `o` of others, get `c / (t + o)` of
    /// what they want. Who does not wait knows that there are no more than that, and the system says how many wanted to run lately.
    pub fn load(ranks: &[&Machine], cores: f64) -> f64 {
        let cores = cores.max(1.0);
        let most = ranks.iter().map(|m| m.load).fold(0.0, f64::max);
        let told = if most.is_finite() { most / cores } else { 0.0 };
        let got = ranks.iter().map(|m| if m.got.is_nan() { 1.0 } else { m.got.clamp(1e-3, 1.0) });
        let got = got.sum::<f64>() / ranks.len().max(1) as f64;
        let felt = (1.0 / got.max(1e-3) - ranks.len() as f64 / cores).max(0.0);
        if got < CONTENDED { felt } else { felt.min(told) }
    }
}

/// An error if vectors were named that there are not.
pub fn vectors() -> Result<()> {
    match stead_simd::complaint() {
        Some(c) => Err(Error::usage(c).with_hint("leave the variable out to use the best vectors")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_of(processors: u64) -> Machine {
        machine(1, processors, 0.0)
    }

    fn machine(bits: u64, processors: u64, load: f64) -> Machine {
        let (host, machine) = ("a".into(), String::new());
        Machine { host, machine, may_run_on: vec![bits], processors, load, got: 1.0 }
    }

    #[test]
    fn cores_are_counted_once() {
        let all = machine(0xFF, 8, 4.0);
        assert_eq!(Machine::cores(&[&all]), 8.0);
        assert_eq!(Machine::cores(&[&all, &all]), 8.0);
        let (low, high) = (machine(0x0F, 4, 0.0), machine(0xF0, 4, 2.0));
        assert_eq!(Machine::cores(&[&low, &high]), 8.0);
        // A container that may use two of eight, and a system that does not tell.
        assert_eq!(Machine::cores(&[&machine(0xFF, 2, 0.0)]), 2.0);
        let untold = Machine { may_run_on: Vec::new(), ..machine(0, 6, 0.0) };
        assert_eq!(Machine::cores(&[&untold]), 6.0);
        assert_eq!(Machine::load(&[&low, &high], 8.0), 0.25);
        assert_eq!(Machine::load(&[&machine(1, 1, f64::NAN)], 8.0), 0.0);
    }

    #[test]
    fn hosts_of_one_machine_are_told_by_it() {
        let on = |machine: &str| Machine { machine: machine.into(), ..machine_of(1) };
        let all = [on("x"), on(""), on("y"), on("x"), on(""), on("z"), on("y"), on("x")];
        let all: Vec<&Machine> = all.iter().collect();
        assert_eq!(Machine::shared(&all), [vec![0, 3, 7], vec![2, 6]]);
        assert_eq!(Machine::here("a").machine, Machine::here("b").machine);
    }

    #[test]
    fn who_waits_for_processors_knows_how_many_others_want_them() {
        let got = |got| Machine { got, ..machine(3, 2, 0.0) };
        // One thread on two cores, beside two, four and no threads of others, whatever was told.
        assert!((Machine::load(&[&got(2.0 / 3.0)], 2.0) - 1.0).abs() < 1e-9);
        assert!((Machine::load(&[&got(2.0 / 5.0)], 2.0) - 2.0).abs() < 1e-9);
        assert_eq!(Machine::load(&[&got(1.0)], 2.0), 0.0);
        // Ranks that share the cores with each other alone.
        assert_eq!(Machine::load(&[&got(0.5), &got(0.5), &got(0.5), &got(0.5)], 2.0), 0.0);
        // What was told of the last minute cannot be, as nobody waits.
        let told = Machine { load: 7.0, ..got(1.0) };
        assert_eq!(Machine::load(&[&told], 2.0), 0.5);
        for odd in [f64::NAN, -1.0, 0.0, f64::INFINITY, 9.0] {
            let load = Machine::load(&[&got(odd)], 2.0);
            assert!(load.is_finite() && load >= 0.0, "{odd}: {load}");
        }
    }

    #[test]
    fn this_machine_has_cores() {
        let here = Machine::here("x");
        assert!(Machine::cores(&[&here]) >= 1.0 && Machine::load(&[&here], 1.0) >= 0.0);
        assert!(here.got > 0.0 && here.got <= 1.0);
    }
}
