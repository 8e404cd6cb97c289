//! The clock, for deadlines. The only place of this crate that looks at it.

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

/// True if a time in seconds since 1970 is not safely past: time stamps of files are coarse.
#[allow(clippy::disallowed_methods)]
pub(crate) fn just_changed(seconds: i64) -> bool {
    const COARSE: Duration = Duration::from_secs(2);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(seconds).is_ok_and(|s| Duration::from_secs(s) + COARSE >= since)
}
