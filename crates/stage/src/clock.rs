//! Time: the only place of this crate that asks for it.

use rustix::time::ClockId;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// A running stop watch. It does not jump when somebody sets the clock.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch(Instant);

impl Watch {
    #[allow(clippy::disallowed_methods)]
    pub(crate) fn start() -> Watch {
        Watch(Instant::now())
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Seconds since this process asked first.
pub(crate) fn uptime() -> f64 {
    static BEGAN: OnceLock<Watch> = OnceLock::new();
    BEGAN.get_or_init(Watch::start).seconds()
}

/// What this thread has run.
pub(crate) fn thread() -> Duration {
    spent(ClockId::ThreadCPUTime)
}

/// Seconds that all threads of this process have run.
pub(crate) fn process() -> f64 {
    spent(ClockId::ProcessCPUTime).as_secs_f64()
}

fn spent(clock: ClockId) -> Duration {
    Duration::try_from(rustix::time::clock_gettime(clock)).unwrap_or_default()
}

/// Seconds since 1970, for people: never to measure with. It is the clock of the C library, which tests set.
#[allow(clippy::disallowed_methods)]
pub(crate) fn unix() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}
