//! Time: the only place of this crate that asks for it.

use std::time::Instant;

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

/// Seconds since 1970, for people: never to measure with.
pub(crate) fn unix() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}
