//! Who is there: small files in a folder of the user, one for each commons, with a line for each process.
//!
//! A newcomer reads it under a lock of the system and finds the memory through a process that lives. Nothing in such a file
//! is believed; what is found through it is looked at. A file whose processes have all ended is removed by whoever comes
//! upon it.

use crate::process::is_alive;
use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// One wait for a file that somebody else has locked, and how many of them are made.
const SLICE_NS: i64 = 5_000_000;
const SLICES: usize = 40;
/// A list is not longer.
const LONGEST: usize = 16 << 10;
/// Files that are looked at for being left over.
const SWEPT: usize = 64;
const PREFIX: &str = "commons-1-";

/// A process that shares blocks: its number, when it began, and its descriptor of the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seat {
    pub(super) process: u32,
    pub(super) start: u64,
    pub(super) descriptor: u32,
}

/// The processes of one commons, locked for others.
pub(super) struct Seats {
    folder: OwnedFd,
    name: String,
    file: OwnedFd,
}

/// The folder, made if there is none, of this user alone.
pub(super) fn folder() -> Result<OwnedFd, String> {
    let user = rustix::process::geteuid().as_raw();
    let own = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let believed = !crate::space::has_rights_of_others();
    let own = own.filter(|p| believed && p.is_absolute()).map(|p| p.join("stead"));
    let candidates = own.into_iter().chain([PathBuf::from(format!("/tmp/stead-{user}"))]);
    let mut why = String::new();
    for path in candidates {
        match folder_at(&path) {
            Ok(folder) => return Ok(folder),
            Err(e) => why = e,
        }
    }
    Err(why)
}

/// As above, of this name.
pub(super) fn folder_at(path: &Path) -> Result<OwnedFd, String> {
    let failed = |e: Errno| format!("{}: {e}", path.display());
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(failed(e)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
    let stat = rustix::fs::fstat(&folder).map_err(failed)?;
    if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
        return Err(format!("{} is not this user's alone", path.display()));
    }
    Ok(folder)
}

/// Sleeps for one slice.
pub(super) fn pause() {
    let time = rustix::event::Timespec { tv_sec: 0, tv_nsec: SLICE_NS };
    let _ = rustix::event::poll(&mut [], Some(&time));
}

impl Drop for Seats {
    fn drop(&mut self) {
        // A child that was forked meanwhile has the descriptor too, and would keep the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
    }
}

impl Seats {
    #[cfg(test)]
    pub(super) fn copy(&self) -> OwnedFd {
        rustix::io::fcntl_dupfd_cloexec(&self.file, 0).unwrap()
    }

    /// Opens and locks the list of a name, which is made if there is none.
    pub(super) fn lock(folder: &OwnedFd, key: &[u64]) -> Result<Seats, String> {
        let folder = rustix::io::fcntl_dupfd_cloexec(folder, 0).map_err(|e| e.to_string())?;
        let key: Vec<String> = key.iter().map(|n| format!("{n:x}")).collect();
        let name = format!("{PREFIX}{}", key.join("-"));
        for _ in 0..SLICES {
            let file = open(&folder, &name, OFlags::CREATE).map_err(|e| format!("{name}: {e}"))?;
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            let stat = rustix::fs::fstat(&file).map_err(|e| e.to_string())?;
            let user = rustix::process::geteuid().as_raw();
            let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            if !regular || stat.st_uid != user {
                return Err(format!("{name} is no list of this user"));
            }
            // Somebody may have removed it before it was locked.
            match locked {
                Ok(()) if stat.st_nlink > 0 => return Ok(Seats { folder, name, file }),
                Ok(()) => {}
                Err(Errno::WOULDBLOCK | Errno::INTR) => pause(),
                Err(e) => return Err(format!("{name}: {e}")),
            }
        }
        Err(format!("{name} is kept locked by another process"))
    }

    /// Those who live.
    pub(super) fn read(&self) -> Vec<Seat> {
        let mut text = vec![0; LONGEST];
        let n = rustix::io::pread(&self.file, &mut text, 0).unwrap_or(0);
        text.truncate(n);
        let text = String::from_utf8_lossy(&text);
        let seat = |line: &str| {
            let mut numbers = line.split(' ');
            let process = numbers.next()?.parse().ok()?;
            let start = numbers.next()?.parse().ok()?;
            let descriptor = numbers.next()?.parse().ok()?;
            let seat = Seat { process, start, descriptor };
            is_alive(u64::from(process), start).then_some(seat)
        };
        text.lines().filter_map(seat).collect()
    }

    /// Writes the list anew; one of nobody is removed.
    pub(super) fn write(&self, seats: &[Seat]) -> Result<(), String> {
        if seats.is_empty() {
            return rustix::fs::unlinkat(&self.folder, &*self.name, AtFlags::empty())
                .map_err(|e| e.to_string());
        }
        let line = |s: &Seat| format!("{} {} {}\n", s.process, s.start, s.descriptor);
        let text: String = seats.iter().map(line).collect();
        let text = text.as_bytes();
        let written = rustix::fs::ftruncate(&self.file, 0)
            .and_then(|()| rustix::io::pwrite(&self.file, text, 0));
        match written {
            Ok(n) if n == text.len() => Ok(()),
            Ok(_) => Err(format!("{}: no room", self.name)),
            Err(e) => Err(format!("{}: {e}", self.name)),
        }
    }

    /// Removes some of the lists whose processes, of this namespace, have all ended.
    pub(super) fn sweep(&self) {
        let Ok(entries) = Dir::read_from(&self.folder) else { return };
        // Of the processes of other namespaces it cannot be told whether they live.
        let Some((_, space)) = self.name.rsplit_once('-') else { return };
        let space = format!("-{space}");
        for entry in entries.filter_map(Result::ok).take(SWEPT) {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !name.starts_with(PREFIX) || !name.ends_with(&space) || name == self.name {
                continue;
            }
            let Ok(file) = open(&self.folder, &name, OFlags::empty()) else { continue };
            let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
            let Ok(folder) = rustix::io::fcntl_dupfd_cloexec(&self.folder, 0) else { return };
            let other = Seats { folder, name, file };
            let there = rustix::fs::fstat(&other.file).is_ok_and(|s| s.st_nlink > 0);
            if locked.is_ok() && there && other.read().is_empty() {
                let _ = other.write(&[]);
            }
        }
    }
}

fn open(folder: &OwnedFd, name: &str, more: OFlags) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | more;
    rustix::fs::openat(folder, name, flags, Mode::RUSR | Mode::WUSR)
}
