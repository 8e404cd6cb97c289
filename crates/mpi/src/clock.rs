//! The clock, for how long nobody was heard. The only place of this crate that looks at it.

use std::time::{Duration, Instant};

/// Now.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// In so long; a year hence if that cannot be told.
pub(crate) fn after(time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let now = now();
    now.checked_add(time).unwrap_or(now + YEAR)
}

/// Waits for what other processes do, who do not say when.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
