//! Time and use of the machine: the only place of this crate that asks for them.

use std::time::Instant;

/// A running stop watch for wall and processor time.
pub struct Watch {
    start: Instant,
    cpu_start: f64,
}

impl Watch {
    #[allow(clippy::disallowed_methods)]
    pub fn start() -> Watch {
        Watch { start: Instant::now(), cpu_start: cpu_seconds() }
    }

    /// Wall seconds so far.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Seconds of all of this process's cores so far.
    pub fn cpu_seconds(&self) -> f64 {
        cpu_seconds() - self.cpu_start
    }
}

/// Seconds since 1970, as the times of files count them.
pub fn unix_seconds() -> i64 {
    rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec
}

/// Seconds of cores that this process has taken so far.
pub fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Seconds of a core that this thread has taken so far.
pub fn thread_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Threads of others that want to run on this machine, in the last minute on average and at the moment: the fewer of both; 0
/// where the system does not tell.
pub fn load() -> f64 {
    loaded(&std::fs::read_to_string("/proc/loadavg").unwrap_or_default())
}

fn loaded(said: &str) -> f64 {
    let mut words = said.split_whitespace();
    let lately = words.next().and_then(|w| w.parse().ok()).unwrap_or(0.0f64);
    // `running/all`, of which one is who asks.
    let now = words.nth(2).and_then(|w| w.split('/').next()).and_then(|w| w.parse().ok());
    lately.min(now.map_or(lately, |n: f64| n - 1.0)).max(0.0)
}

/// Seconds of processors that the threads of this process have had so far, and seconds for which they wanted to run and had
/// none, be it that others had them or that the process has had its part; zeros where the system does not tell.
pub fn had_and_waited() -> (f64, f64) {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |said: String| {
        let mut words = said.split_whitespace().map(|w| w.parse::<f64>().unwrap_or(0.0) * 1e-9);
        (words.next().unwrap_or(0.0), words.next().unwrap_or(0.0))
    };
    // A thread may have ended.
    let said = threads.filter_map(|t| std::fs::read_to_string(t.path().join("schedstat")).ok());
    said.map(of).fold((0.0, 0.0), |(a, b), (had, waited)| (a + had, b + waited))
}

/// Largest resident memory of the process so far; 0 where the system does not tell.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status
        .lines()
        .find_map(|l| l.strip_prefix("VmHWM:"))
        .and_then(|v| v.trim().trim_end_matches("kB").trim().parse::<u64>().ok())
        .map_or(0, |kib| kib * 1024)
}

/// What tells this machine, as it runs now, from others, whatever its containers call themselves; nothing where the system does
/// not tell.
pub fn machine() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// Processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_that_of_others_and_not_of_yesterday() {
        for (said, wanted) in [
            ("3.70 3.32 2.73 7/164 8614", 3.7),
            ("3.70 3.32 2.73 2/164 8614", 1.0),
            ("3.70 3.32 2.73 1/164 8614", 0.0),
            ("0.25 3.32 2.73 0/164 8614", 0.0),
            ("2.5", 2.5),
            ("nan 1 1 3/5 1", 2.0),
            ("-1 1 1 3/5 1", 0.0),
            ("", 0.0),
        ] {
            assert_eq!(loaded(said), wanted, "{said}");
        }
    }

    #[test]
    fn who_computes_has_processors() {
        let more = |_| {
            let (before, _) = had_and_waited();
            let begun = thread_seconds();
            while before > 0.0 && thread_seconds() - begun < 0.02 {
                std::hint::spin_loop();
            }
            let (after, waited) = had_and_waited();
            assert!(after >= 0.0 && waited >= 0.0);
            before == 0.0 || after > before
        };
        // A thread of another test that ends meanwhile takes with it what it has had.
        assert!((0..500).any(more));
    }
}
