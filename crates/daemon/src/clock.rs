//! Time: the only place of this crate that asks for it, or lets it pass.

use std::time::{Duration, Instant, SystemTime};

/// A moment, which does not jump when somebody sets the clock.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Seconds since 1970. It is the clock of the C library, which tests set.
#[allow(clippy::disallowed_methods)]
pub(crate) fn unix() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Seconds since the machine was started, those in which it slept among them.
pub(crate) fn up() -> f64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    t.tv_sec as f64 + t.tv_nsec as f64 * 1e-9
}

/// Lets time pass where nothing tells when it is over.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
