//! To standard output. A reader that goes away (as `head` does) ends the command in silence.

use std::ffi::OsStr;
use std::io::{BufWriter, ErrorKind, StdoutLock, Write};
use std::os::unix::ffi::OsStrExt;
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

/// A name, or a text that has such, without what would end a line or change a terminal.
pub fn plain(name: &OsStr) -> String {
    let mut text = String::with_capacity(name.len());
    for chunk in name.as_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c.is_control() {
                true => text.extend(c.escape_default()),
                false => text.push(c),
            }
        }
        chunk.invalid().iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
    }
    text
}

/// Text that comes bit by bit, of which nobody knows how much it will be.
pub struct Stream {
    out: BufWriter<StdoutLock<'static>>,
    gone: bool,
}

impl Stream {
    pub fn new() -> Stream {
        Stream { out: BufWriter::with_capacity(1 << 16, std::io::stdout().lock()), gone: false }
    }

    /// Writes more. It is an error if whoever reads it has gone, too, so that nothing else is done for nobody.
    pub fn text(&mut self, text: &str) -> Result<()> {
        let wrote = self.out.write_all(text.as_bytes());
        self.known(wrote)
    }

    /// Writes what there is so far, for who waits for it.
    pub fn flush(&mut self) -> Result<()> {
        let wrote = self.out.flush();
        self.known(wrote)
    }

    /// Writes what is left.
    pub fn end(mut self) -> Result<()> {
        match self.flush() {
            Err(_) if self.gone => Ok(()),
            done => done,
        }
    }

    /// True once whoever read it has gone.
    pub fn is_gone(&self) -> bool {
        self.gone
    }

    fn known(&mut self, wrote: std::io::Result<()>) -> Result<()> {
        wrote.map_err(|e| {
            self.gone |= e.kind() == ErrorKind::BrokenPipe;
            Error::io("write the results", "standard output", e)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_one_line() {
        let of = |bytes: &[u8]| plain(OsStr::from_bytes(bytes));
        assert_eq!(of("straße 1/a.h5".as_bytes()), "straße 1/a.h5");
        assert_eq!(of(b"two\nlines\x1b[0m no\xfftext"), "two\\nlines\\u{1b}[0m no\\xfftext");
    }
}
