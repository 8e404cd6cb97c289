//! The clock, for deadlines and for when steps were complete. The only place of this crate that looks at it.

use std::time::{Duration, Instant, SystemTime};

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

/// Nanoseconds since 1970.
#[allow(clippy::disallowed_methods)]
pub(crate) fn since_1970() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits for what other processes do, who do not say when.
pub(crate) fn pause(time: Duration) {
    std::thread::sleep(time);
}
