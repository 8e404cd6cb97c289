//! What a machine that ranks are on can do: for those who choose where to compute.

use crate::clock;
use crate::meeting::may_run_on;
use serde::{Deserialize, Serialize};
use stead_core::{Error, Result};

/// What a rank sees of its machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    pub host: String,
    /// Processors that the rank may run on, a bit for each.
    may_run_on: Vec<u64>,
    /// How many of them it may keep busy.
    processors: u64,
    /// Threads that want to run on all of the machine.
    load: f64,
}

impl Machine {
    /// This one, by the name that its rank has for it.
    pub fn here(host: &str) -> Machine {
        Machine {
            host: host.to_owned(),
            may_run_on: may_run_on(),
            processors: clock::processors() as u64,
            load: clock::load(),
        }
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
    pub fn load(ranks: &[&Machine], cores: f64) -> f64 {
        let most = ranks.iter().map(|m| m.load).fold(0.0, f64::max);
        if most.is_finite() { (most / cores.max(1.0)).min(1e6) } else { 0.0 }
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

    fn machine(bits: u64, processors: u64, load: f64) -> Machine {
        Machine { host: "a".into(), may_run_on: vec![bits], processors, load }
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
    fn this_machine_has_cores() {
        let here = Machine::here("x");
        assert!(Machine::cores(&[&here]) >= 1.0 && Machine::load(&[&here], 1.0) >= 0.0);
    }
}
