//! Files as sources.

use crate::Source;
use crate::beside::{self, Stopped};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{ErrorKind, Seek, SeekFrom};
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use stead_core::{Error, Kind, Result};

/// What a file was when it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// Device number.
    pub dev: u64,
    /// Inode number.
    pub inode: u64,
    /// Length in bytes.
    pub len: u64,
    /// Time of the last change of its bytes: seconds and nanoseconds since 1970.
    pub mtime: (i64, i64),
    /// Time of the last change of any kind; unlike the other one, no program sets it.
    pub ctime: (i64, i64),
    /// It is a device, whose bytes change without any of these.
    pub device: bool,
}

/// A regular file (or block device), opened for reading.
///
/// Reads are `pread` on one descriptor, so any number of threads may read at the same time. The file is
/// never mapped: a file that shrinks gives an error and not a signal.
///
/// A dataset may have more files than a process may have open: beyond half of what the system allows,
/// a file is closed again and opened for each read, which fails if its name leads to another file by then.
#[derive(Debug)]
pub struct FileSource {
    /// As the user named it; errors carry it.
    path: PathBuf,
    /// `None` if the file is opened for each read.
    file: Option<Kept>,
    /// Taken when the file was opened; `identity.len` is the length for the whole life of the source.
    identity: Identity,
}

/// Descriptors held by sources.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// An open file that is counted in [`KEPT`].
#[derive(Debug)]
struct Kept(File);

impl Kept {
    /// Keeps `file` open, or closes it if `most` are open already.
    fn new(file: File, most: usize) -> Option<Kept> {
        let room = |n: usize| (n < most).then_some(n + 1);
        KEPT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok().map(|_| Kept(file))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        KEPT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Half of the descriptors that this process may have; the rest is for outputs, rings and the program.
fn most_kept() -> usize {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.map_or(usize::MAX, |n| usize::try_from(n / 2).unwrap_or(usize::MAX))
}

impl FileSource {
    /// Opens `path`.
    ///
    /// # Errors
    /// `NotFound`, `Permission` or `Io` from the system; `Usage` if `path` is a directory, a pipe, a
    /// socket or a character device, which cannot be read at any offset.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        Self::open_keeping(path.into(), most_kept())
    }

    /// A file that was opened already, by whoever knows how to get there. `path` is its name.
    ///
    /// # Errors
    /// As [`FileSource::open`].
    pub fn of(file: File, path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let (file, identity) = identify(file.into(), &path)?;
        Ok(FileSource { path, file: Kept::new(file, most_kept()), identity })
    }

    /// As [`FileSource::open`]; the file stays open unless `most` are already.
    fn open_keeping(path: PathBuf, most: usize) -> Result<Self> {
        let (file, identity) = open(&path)?;
        Ok(FileSource { path, file: Kept::new(file, most), identity })
    }

    /// What the file was when it was opened.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    fn metadata(&self) -> Result<Metadata> {
        match &self.file {
            Some(kept) => kept.0.metadata(),
            None => std::fs::metadata(&self.path),
        }
        .map_err(|e| Error::io("look at", &self.path, e))
    }

    /// Opens the file again if its name still leads to it.
    fn reopen(&self) -> Result<File> {
        let (file, now) = open(&self.path)?;
        if (now.dev, now.inode) != (self.identity.dev, self.identity.inode) {
            return Err(self.replaced());
        }
        Ok(file)
    }

    fn replaced(&self) -> Error {
        Error::new(Kind::Changed, "another file has this name now")
            .at_path(&self.path)
            .with_hint("run again when nobody writes to the directory")
    }

    /// Fills a buffer from the file, whatever pieces come.
    fn fill(&self, file: &File, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match file.read_at(&mut buf[done..], at) {
                Ok(0) => return Err(self.shrank(at)),
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return self.fill_beside(file, at, &mut buf[done..], e),
            }
        }
        Ok(())
    }

    /// Fills a buffer that the page cache has failed to, or says which byte cannot be had.
    fn fill_beside(
        &self,
        file: &File,
        offset: u64,
        buf: &mut [u8],
        cause: std::io::Error,
    ) -> Result<()> {
        let bad = cause.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error());
        match bad.then(|| beside::fill(file, offset, buf)).flatten() {
            Some(Ok(())) => Ok(()),
            Some(Err(Stopped { done, cause })) => {
                let at = offset + done as u64;
                Err(cause.map_or_else(
                    || self.shrank(at),
                    |cause| Error::io("read", &self.path, cause).at_offset(at),
                ))
            }
            None => Err(Error::io("read", &self.path, cause).at_offset(offset)),
        }
    }

    /// The error for a file that ends at or before `offset` although it was longer.
    fn shrank(&self, offset: u64) -> Error {
        let now = match self.metadata() {
            // Files that the kernel makes while they are read.
            Ok(m) if m.len() == self.identity.len => {
                let message = format!("the file has fewer bytes than its length, {}", m.len());
                return Error::new(Kind::Changed, message)
                    .at_path(&self.path)
                    .at_offset(offset)
                    .with_hint("the system does not know its length; read a copy of it");
            }
            Ok(m) => format!("now {} bytes, was {}", m.len(), self.identity.len),
            Err(_) => format!("it had {} bytes", self.identity.len),
        };
        Error::new(Kind::Changed, format!("the file shrank while it was read ({now})"))
            .at_path(&self.path)
            .at_offset(offset)
            .with_hint("run again when nobody writes to the file")
    }
}

/// Opens a regular file or a block device, and says what it is.
fn open(path: &Path) -> Result<(File, Identity)> {
    if path.as_os_str().is_empty() {
        return Err(Error::new(Kind::NotFound, "the name of the file is empty"));
    }
    // Without NONBLOCK the open of a pipe waits for a writer, perhaps for ever.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|e| {
        let failed = |e: rustix::io::Errno| Error::io("open", path, e.into());
        match (e, missing_directory(path)) {
            (Errno::NXIO, _) => unsuitable(path, "a socket or a device without a driver"),
            (Errno::NOENT, Some(dir)) => {
                failed(e).with_hint(format!("there is no directory '{}'", dir.display()))
            }
            (Errno::NOENT, None) => failed(e).with_hint("check the name"),
            // No file has such a name.
            (Errno::INVAL, _) if path.as_os_str().as_encoded_bytes().contains(&0) => {
                Error::usage("this name has a zero byte in it, and no file has").at_path(path)
            }
            _ => failed(e),
        }
    })?;
    identify(fd, path)
}

/// What an open file is, if it is one that can be read at any offset.
fn identify(fd: OwnedFd, path: &Path) -> Result<(File, Identity)> {
    let stat = rustix::fs::fstat(&fd).map_err(|e| Error::io("look at", path, e.into()))?;
    let block_device = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => false,
        FileType::BlockDevice => true,
        FileType::Directory => return Err(unsuitable(path, "a directory")),
        FileType::Fifo => return Err(unsuitable(path, "a pipe")),
        FileType::Socket => return Err(unsuitable(path, "a socket")),
        FileType::CharacterDevice => return Err(unsuitable(path, "a character device")),
        _ => return Err(unsuitable(path, "not a regular file")),
    };
    rustix::fs::fcntl_setfl(&fd, OFlags::empty()).map_err(|e| Error::io("open", path, e.into()))?;
    let mut file = File::from(fd);
    let meta = file.metadata().map_err(|e| Error::io("look at", path, e))?;
    let len = if block_device {
        file.seek(SeekFrom::End(0)).map_err(|e| Error::io("seek in", path, e))?
    } else {
        meta.len()
    };
    let identity = Identity {
        dev: meta.dev(),
        inode: meta.ino(),
        len,
        mtime: (meta.mtime(), meta.mtime_nsec()),
        ctime: (meta.ctime(), meta.ctime_nsec()),
        device: block_device,
    };
    Ok((file, identity))
}

/// The directory that a name is in, if there is none.
pub(crate) fn missing_directory(path: &Path) -> Option<&Path> {
    path.parent().filter(|dir| !dir.as_os_str().is_empty() && !dir.exists())
}

fn unsuitable(path: &Path, what: &str) -> Error {
    let e =
        Error::usage(format!("this is {what}, and only regular files can be read")).at_path(path);
    match what {
        "a directory" => e.with_hint("name a file in it"),
        _ => e.with_hint("stead reads at any offset; write the data to a file first"),
    }
}

/// An error unless `offset..offset + n` lies within `len` bytes: a defect of the caller.
pub(crate) fn check_range(path: &Path, offset: u64, n: usize, len: u64) -> Result<()> {
    match offset.checked_add(n as u64) {
        Some(end) if end <= len => Ok(()),
        _ => Err(Error::internal(format!("a read of {n} bytes goes past the end at {len}"))
            .at_path(path)
            .at_offset(offset)),
    }
}

impl Source for FileSource {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.identity.len
    }

    /// A buffer that lies a few bytes further within a page than its bytes do in the file is filled by way of another one:
    /// processors that copy strings by microcode take five times as long otherwise (AMD Zen 3), and memory from `malloc`
    /// begins 16 bytes after a page.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(&self.path, offset, buf.len(), self.identity.len)?;
        let again;
        let file = match &self.file {
            Some(kept) => &kept.0,
            None => {
                again = self.reopen()?;
                &again
            }
        };
        if !is_slow(offset, buf) {
            return self.fill(file, offset, buf);
        }
        let mut beside = vec![0; BESIDE.min(buf.len()) + PAGE];
        // Half a page away from the place within a page that the bytes have in the file, so that neither copy is slow.
        let place = (offset % PAGE as u64) as usize + PAGE / 2;
        let pad = place.wrapping_sub(beside.as_ptr().addr()) % PAGE;
        let mut at = offset;
        for piece in buf.chunks_mut(BESIDE) {
            let beside = &mut beside[pad..pad + piece.len()];
            self.fill(file, at, beside)?;
            piece.copy_from_slice(beside);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn check(&self) -> Result<()> {
        let m = self.metadata()?;
        if self.file.is_none() && (m.dev(), m.ino()) != (self.identity.dev, self.identity.inode) {
            return Err(self.replaced());
        }
        if FileType::from_raw_mode(m.mode()) != FileType::RegularFile {
            return Ok(());
        }
        if m.len() < self.identity.len {
            return Err(self.shrank(m.len()));
        }
        // A file that only grew (a log) still holds what was read.
        if m.len() == self.identity.len && (m.mtime(), m.mtime_nsec()) != self.identity.mtime {
            return Err(Error::new(Kind::Changed, "the file was written to while it was read")
                .at_path(&self.path)
                .with_hint("run again when nobody writes to the file"));
        }
        Ok(())
    }

    fn file(&self) -> Option<&File> {
        self.file.as_ref().map(|kept| &kept.0)
    }
}

const PAGE: usize = 4096;
/// Bytes that are read beside, at once: they stay in the second-level cache.
const BESIDE: usize = 128 << 10;
/// Less is not worth a second buffer.
const WORTH_BESIDE: usize = 16 << 10;
/// Distances within a page, from the byte in the file to that in memory, over which such a copy is slow.
const SLOW: Range<u64> = 1..32;

fn is_slow(offset: u64, buf: &[u8]) -> bool {
    let distance = (buf.as_ptr().addr() as u64).wrapping_sub(offset) % PAGE as u64;
    buf.len() >= WORTH_BESIDE && SLOW.contains(&distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_at_any_offset_and_not_past_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"0123456789").unwrap();
        let s = FileSource::open(&path).unwrap();
        assert_eq!(s.len(), 10);
        let mut b = [0; 4];
        s.read_at(6, &mut b).unwrap();
        assert_eq!(&b, b"6789");
        s.read_at(10, &mut []).unwrap();
        assert_eq!(s.read_at(7, &mut b).unwrap_err().kind(), Kind::Internal);
        assert_eq!(s.read_at(u64::MAX, &mut b).unwrap_err().kind(), Kind::Internal);
    }

    #[test]
    fn a_file_that_shrinks_is_an_error_with_the_offset() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![1; 100]).unwrap();
        let s = FileSource::open(&path).unwrap();
        s.check().unwrap();
        File::options().write(true).open(&path).unwrap().set_len(40).unwrap();
        let e = s.read_at(0, &mut [0; 100]).unwrap_err();
        assert_eq!(e.kind(), Kind::Changed);
        assert_eq!(e.place().offset, Some(40));
        assert!(e.message().contains("now 40 bytes, was 100"), "{e}");
        assert_eq!(s.check().unwrap_err().kind(), Kind::Changed);
    }

    #[test]
    fn a_file_of_fewer_bytes_than_it_says_is_told_from_one_that_shrank() {
        // The kernel's own variables are a page each, whatever is in them.
        let s = FileSource::open("/sys/kernel/mm/transparent_hugepage/enabled").unwrap();
        let e = s.read_at(0, &mut [0; 4096]).unwrap_err();
        assert_eq!((s.len(), e.kind()), (4096, Kind::Changed));
        assert!(e.message().contains("fewer bytes than its length"), "{e}");
    }

    #[test]
    fn a_file_that_is_not_kept_open_is_read_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, b"0123456789").unwrap();
        let s = FileSource::open_keeping(path.clone(), 0).unwrap();
        assert!(s.file().is_none());
        let mut b = [0; 4];
        s.read_at(6, &mut b).unwrap();
        assert_eq!(&b, b"6789");
        s.check().unwrap();
        // Another file of the same length takes its name.
        std::fs::write(dir.path().join("g"), b"abcdefghij").unwrap();
        std::fs::rename(dir.path().join("g"), &path).unwrap();
        assert_eq!(s.read_at(6, &mut b).unwrap_err().kind(), Kind::Changed);
        assert_eq!(s.check().unwrap_err().kind(), Kind::Changed);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(s.read_at(6, &mut b).unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn buffers_at_any_place_within_a_page_are_filled() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..3 * BESIDE as u32).map(|i| (i * 7 / 5) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let s = FileSource::open(&path).unwrap();
        let mut memory = vec![0; bytes.len() + 2 * PAGE];
        let page = memory.as_ptr().addr().wrapping_neg() % PAGE;
        for len in [1, WORTH_BESIDE - 1, WORTH_BESIDE, BESIDE, BESIDE + 1, 2 * BESIDE + 77] {
            for (from, place) in
                [(0, 16), (0, 0), (5, 4), (5, 6), (4090, 4095), (4090, 4), (9, 2048)]
            {
                let target = &mut memory[page + place..][..len];
                target.fill(99);
                s.read_at(from as u64, target).unwrap();
                assert!(target == &bytes[from..from + len], "{len} from {from} to {place}");
            }
        }
        assert!(is_slow(0, &memory[page + 16..][..BESIDE]));
        assert!(!is_slow(16, &memory[page + 16..][..BESIDE]));
    }

    #[test]
    fn what_cannot_be_read_at_offsets_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(FileSource::open(dir.path()).unwrap_err().kind(), Kind::Usage);
        let sock = dir.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&sock).unwrap();
        assert_eq!(FileSource::open(&sock).unwrap_err().kind(), Kind::Usage);
        let pipe = dir.path().join("p");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::RUSR, 0).unwrap();
        let e = FileSource::open(&pipe).unwrap_err();
        assert!(e.message().contains("a pipe"), "{e}");
        assert_eq!(FileSource::open("/dev/null").unwrap_err().kind(), Kind::Usage);
        let e = FileSource::open(dir.path().join("no")).unwrap_err();
        assert_eq!((e.kind(), e.hint()), (Kind::NotFound, Some("check the name")));
        let e = FileSource::open(dir.path().join("no/such")).unwrap_err();
        assert!(e.hint().is_some_and(|hint| hint.contains("no directory")), "{e}");
        assert!(FileSource::open("").unwrap_err().message().contains("name of the file is empty"));
        let e = FileSource::open(dir.path().join("a\0b")).unwrap_err();
        assert_eq!(e.kind(), Kind::Usage);
        assert!(e.message().contains("zero byte"), "{e}");
    }
}
