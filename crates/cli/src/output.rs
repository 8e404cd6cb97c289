//! To standard output. A reader that goes away (as `head` does) ends the command in silence.

use std::io::{ErrorKind, Write};
use stead::{Error, Result};

pub fn text(s: &str) -> Result<()> {
    bytes(s.as_bytes())
}

pub fn bytes(b: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(b).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        r => r.map_err(|e| Error::io("write the results", "standard output", e)),
    }
}

pub fn json(v: &impl serde::Serialize) -> Result<()> {
    let mut s = serde_json::to_string_pretty(v)
        .map_err(|e| Error::internal(format!("cannot write JSON: {e}")))?;
    s.push('\n');
    text(&s)
}
