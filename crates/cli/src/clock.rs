//! The clock, for what is told once in a while.

use std::time::Instant;

/// Now.
#[allow(clippy::disallowed_methods)]
pub fn now() -> Instant {
    Instant::now()
}
