//! Whether a file system still takes what it is told.

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, futimens};
use rustix::io::Errno;
use std::os::fd::AsFd;

/// Fails where the file system of a folder has stopped writing, as one does whose device has failed. What was made durable before is to be
/// looked at with this: ext4 says of a folder that it is durable, with no error, if somebody else has asked for the same before and had the
/// answer that its journal cannot be written (`jbd2_complete_transaction`), and keeps nothing of it. It looks whether it has stopped when
/// something is about to be changed: the time of the last access is, which no copy keeps. Who does not own the folder is not told.
///
/// # Errors
/// What the system says of it.
pub(crate) fn is_going(folder: impl AsFd) -> Result<(), Errno> {
    let now = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        last_modification: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
    };
    // The first time it finds out, and says so from then on.
    for _ in 0..2 {
        if let Err(e @ (Errno::ROFS | Errno::IO)) = futimens(&folder, &now) {
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
        is_going(&folder).unwrap();
        assert_eq!(folder.metadata().unwrap().modified().unwrap(), then);
    }
}
