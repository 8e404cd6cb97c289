//! Good bytes beside bad ones.
//!
//! The page cache keeps a file in pieces of up to 2 MiB, and a piece is there as a whole or not at all: one bad sector
//! takes with it all that lies in the same piece, whoever reads it and however small the read is. A read that passes by
//! the page cache gets whatever the device has, page by page. It is slower, and done only for what could not be read.

use crate::buffer::{ALIGN, Pages};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// Bytes that are asked for at once, until some of them are bad.
const AT_ONCE: usize = 64 << 10;

/// The same file, opened for reads that pass by the page cache.
pub(crate) fn open_direct(file: &File) -> rustix::io::Result<File> {
    // Through the descriptor, so that it is the same file whatever its name leads to by now.
    let name = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::DIRECT;
    rustix::fs::open(name, flags, Mode::empty()).map(File::from)
}

/// How far a read came.
#[derive(Debug)]
pub(crate) struct Stopped {
    /// Bytes before the first page that cannot be had.
    pub(crate) done: usize,
    /// `None` where the file ends there.
    pub(crate) cause: Option<Error>,
}

/// True of an error that is not one of the bytes: there are no direct reads, or blocks of the device are larger than a page.
fn says_nothing(e: &Error) -> bool {
    matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported)
}

/// Looks whether bytes that the page cache could not give can be had, and gives the first of [`AT_ONCE`] of which one cannot.
/// `None` where the file system has no direct reads.
pub(crate) fn look(file: &File, offset: u64, len: usize) -> Option<Result<(), (u64, Error)>> {
    let direct = open_direct(file).ok()?;
    let mut pages = Pages::default();
    pages.grow(AT_ONCE);
    let mut at = offset - offset % ALIGN as u64;
    let end = offset.saturating_add(len as u64);
    while at < end {
        let left = usize::try_from(end - at).unwrap_or(AT_ONCE);
        let span = left.min(AT_ONCE).next_multiple_of(ALIGN);
        match direct.read_at(&mut pages.as_mut_slice()[..span], at) {
            // The file ends there, which others find out.
            Ok(n) if n < ALIGN => break,
            Ok(n) => at += (n - n % ALIGN) as u64,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) if says_nothing(&e) => return None,
            Err(e) => return Some(Err((at.max(offset), e))),
        }
    }
    Some(Ok(()))
}

/// Fills a buffer from a file that the page cache could not give. `None` where the file system has no direct reads.
pub(crate) fn fill(file: &File, offset: u64, buf: &mut [u8]) -> Option<Result<(), Stopped>> {
    let direct = open_direct(file).ok()?;
    let mut pages = Pages::default();
    pages.grow(AT_ONCE);
    let (mut done, mut most) = (0, AT_ONCE);
    while done < buf.len() {
        let at = offset + done as u64;
        let skip = (at % ALIGN as u64) as usize;
        let span = (skip + buf.len() - done).next_multiple_of(ALIGN).min(most);
        match direct.read_at(&mut pages.as_mut_slice()[..span], at - skip as u64) {
            Ok(n) if n > skip => {
                let part = (n - skip).min(buf.len() - done);
                buf[done..done + part].copy_from_slice(&pages.as_slice()[skip..skip + part]);
                done += part;
            }
            Ok(_) => return Some(Err(Stopped { done, cause: None })),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // Those before the bad one can be had.
            Err(_) if span > ALIGN => most = ALIGN,
            Err(e) if says_nothing(&e) => return None,
            Err(e) => return Some(Err(Stopped { done, cause: Some(e) })),
        }
    }
    Some(Ok(()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_past_the_page_cache() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..300_001u32).map(|i| (i * 7 / 5) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        for (from, len) in [(0, 300_001), (5, 1), (4095, 2), (8192, 4096), (70_000, 200_000)] {
            let mut got = vec![0; len];
            match fill(&file, from as u64, &mut got) {
                Some(read) => read.unwrap(),
                None => return eprintln!("NOT TESTED HERE: the file system has no direct reads"),
            }
            assert!(got == bytes[from..from + len], "{len} from {from}");
        }
        for (from, len) in [(0, 300_001), (5, 1), (299_999, 2), (0, 0), (299_000, 2000)] {
            look(&file, from, len).unwrap().unwrap();
        }
        let stopped = fill(&file, 299_000, &mut [0; 2000]).unwrap().unwrap_err();
        assert_eq!((stopped.done, stopped.cause.is_none()), (1001, true));
        assert!(
            fill(&File::open("/dev/null").unwrap(), 0, &mut [0; 10]).is_none_or(|r| r.is_err())
        );
    }
}
