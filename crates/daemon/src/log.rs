//! The log of the service.

use std::io::Write;

/// A line of it.
pub(crate) fn log(line: &str) {
    // Where nobody reads there is nobody to be told.
    let _ = writeln!(std::io::stderr(), "steadd: {line}");
}
