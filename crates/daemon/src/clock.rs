//! Time: the only place of this crate that asks for it, or lets it pass.

use std::time::{Duration, Instant};

/// A moment, which does not jump when somebody sets the clock.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Lets time pass where nothing tells when it is over.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
