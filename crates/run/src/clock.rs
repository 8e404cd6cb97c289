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

fn cpu_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Seconds of a core that this thread has taken so far.
pub fn thread_seconds() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Threads that wanted to run on this machine in the last minute, on average; 0 where the system does not tell.
pub fn load() -> f64 {
    let said = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    said.split_whitespace().next().and_then(|w| w.parse().ok()).filter(|l| *l >= 0.0).unwrap_or(0.0)
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

/// Processors this process may use.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}
