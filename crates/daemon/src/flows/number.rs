//! The numbers of flows: each is given once, also by a daemon that was started again.

use crate::log::log;
use std::fs;
use std::path::{Path, PathBuf};
use stead_core::Result;
use stead_store::AtomicFile;

/// Digits of the largest one, and the end of its line.
const MOST: u64 = 20;

/// The last number that was given, which a file has.
#[derive(Debug)]
pub(super) struct Last {
    path: PathBuf,
    number: i64,
}

impl Last {
    /// As the file in this folder says. What cannot be read is as if there were none.
    pub(super) fn open(state: &Path) -> Last {
        let path = state.join("flow");
        let small = fs::metadata(&path).is_ok_and(|meta| meta.len() <= MOST);
        let text = if small { fs::read_to_string(&path).ok() } else { None };
        let number = text.and_then(|text| text.trim().parse().ok());
        Last { path, number: number.filter(|n| (0..i64::MAX).contains(n)).unwrap_or(0) }
    }

    /// The next one.
    pub(super) fn next(&mut self) -> i64 {
        self.number = self.number.saturating_add(1);
        if let Err(e) = self.write() {
            // A flow can run without; only who asks for this number after the next start may be told of another one.
            log(&format!("cannot write down the number of a flow: {e}"));
        }
        self.number
    }

    fn write(&self) -> Result<()> {
        let mut file = AtomicFile::create(&self.path)?;
        file.write_all(format!("{}\n", self.number).as_bytes())?;
        file.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_on_where_they_were() {
        let dir = tempfile::tempdir().unwrap();
        let mut last = Last::open(dir.path());
        assert_eq!((last.next(), last.next()), (1, 2));
        assert_eq!(Last::open(dir.path()).next(), 3);
        for odd in ["", "x", "-7", "9223372036854775807", "999999999999999999999999"] {
            fs::write(dir.path().join("flow"), odd).unwrap();
            assert_eq!(Last::open(dir.path()).next(), 1, "{odd}");
        }
        // Where it cannot be written they go on as well.
        let mut last = Last::open(&dir.path().join("none"));
        assert_eq!((last.next(), last.next()), (1, 2));
    }
}
