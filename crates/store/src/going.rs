//! Whether a file system still takes what it is told.

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Fails where the file system of a folder has stopped writing, as one does whose device has failed: to be asked once names in it are said to be
/// durable. ext4 says so with no error if somebody else has asked for the same before, and had the answer that its journal cannot be written
/// (`jbd2_complete_transaction`). It looks whether it has stopped when something is about to be changed: the time of the last access is, which
/// no copy keeps.
///
/// # Errors
/// What the system says of it.
pub(crate) fn check(folder: impl AsFd) -> Result<(), Errno> {
    let time = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let set = |modified| {
        let times = Timestamps { last_access: time(UTIME_NOW), last_modification: time(modified) };
        futimens(&folder, &times)
    };
    // The first time it finds out, and says so from then on.
    for _ in 0..2 {
        let looked = match set(UTIME_OMIT) {
            // Who does not own it may set both times to now alone: a name has come or gone just now, which has changed the other one, too.
            Err(Errno::PERM) => set(UTIME_NOW),
            done => done,
        };
        if let Err(e @ (Errno::ROFS | Errno::IO)) = looked {
            return Err(e);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_folder_that_is_looked_at_keeps_its_time() {
        let dir = tempfile::tempdir().unwrap();
        let folder = File::open(dir.path()).unwrap();
        let then = SystemTime::UNIX_EPOCH + Duration::new(1_500_000_000, 123_456_789);
        folder.set_times(FileTimes::new().set_modified(then)).unwrap();
        check(&folder).unwrap();
        assert_eq!(folder.metadata().unwrap().modified().unwrap(), then);
    }
}
