//! The clock, for how long nobody was heard. The only place of this crate that looks at it.

use std::time::Instant;

/// Now.
#[allow(clippy::disallowed_methods)]
pub(crate) fn now() -> Instant {
    Instant::now()
}
