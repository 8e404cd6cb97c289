//! Waiting for names to come into a folder, without looking again and again.

use crate::Folder;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;
use stead_core::{Error, Result};

/// What is read of events at a time: which names they are of is not looked at.
const EVENTS: usize = 4096;
/// Of the thread that ends it.
const STACK: usize = 64 << 10;
/// Where the system does not tell, it is looked again so often.
const LOOK: Duration = Duration::from_millis(50);

/// A folder, watched since this was made: whoever looks after that, and then waits, misses no name.
#[derive(Debug)]
pub struct Watch {
    /// None where the system has no more of them.
    events: Option<OwnedFd>,
}

impl Watch {
    /// Of names that are made in this folder, moved into it or out of it, or removed, and of the folder itself.
    ///
    /// # Errors
    /// System errors.
    pub fn new(folder: &Folder) -> Result<Watch> {
        let failed = |e: Errno| Error::io("watch", folder.shown(), e.into());
        let events = match inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
            Ok(events) => events,
            // So many of a user at a time.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) => return Ok(Watch { events: None }),
            Err(e) => return Err(failed(e)),
        };
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        // By its descriptor: its path may lead elsewhere by now.
        let path = format!("/proc/self/fd/{}", folder.as_fd().as_raw_fd());
        match inotify::add_watch(&events, path, flags) {
            Ok(_) => Ok(Watch { events: Some(events) }),
            Err(Errno::NOSPC | Errno::NOENT | Errno::NOMEM) => Ok(Watch { events: None }),
            Err(e) => Err(failed(e)),
        }
    }

    /// Sleeps until something may have happened, or the time is over.
    pub fn wait(&self, time: Duration) {
        let span = |time: Duration| Timespec {
            tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(time.subsec_nanos()),
        };
        let Some(events) = &self.events else {
            let _ = rustix::event::poll(&mut [], Some(&span(time.min(LOOK))));
            return;
        };
        let _ = rustix::event::poll(&mut [PollFd::new(events, PollFlags::IN)], Some(&span(time)));
        // Those that have come, so that the next wait is for others.
        let mut bytes = [0; EVENTS];
        while rustix::io::read(events, &mut bytes).is_ok_and(|n| n > 0) {}
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let Some(events) = self.events.take() else { return };
        // The system may take ten milliseconds and more to end it, for which whoever has found what was waited for is not to wait. Without a
        // thread it is ended here.
        let thread = std::thread::Builder::new().name("stead-unwatch".into()).stack_size(STACK);
        let _ = thread.spawn(move || drop(events));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    /// Longer than tests may take.
    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_name_that_comes_is_not_missed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let watch = Watch::new(&folder).unwrap();
        assert!(watch.events.is_some());
        for round in 0..3 {
            let name = format!("file {round}");
            let coming = std::thread::spawn({
                let (dir, name) = (dir.path().to_owned(), name.clone());
                move || std::fs::write(dir.join(name), b"").unwrap()
            });
            // It may come before it is waited for.
            if round == 1 {
                while folder.meta(OsStr::new(&name)).unwrap().is_none() {
                    std::thread::yield_now();
                }
            }
            while folder.meta(OsStr::new(&name)).unwrap().is_none() {
                watch.wait(LONG);
            }
            watch.wait(Duration::ZERO);
            coming.join().unwrap();
        }
        // Where there is nothing to wait with, it is looked again soon: this ends.
        Watch { events: None }.wait(LONG);
    }
}
