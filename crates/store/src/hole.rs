//! Bytes of a file that nobody needs any more, given back to the file system.

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::ops::Range;
use std::os::fd::AsFd;

/// Frees the room of some bytes, which are zero from then on; the file stays as long as it is. False on file systems that cannot.
///
/// # Errors
/// System errors.
pub fn free(file: impl AsFd, range: Range<u64>) -> std::io::Result<bool> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let len = range.end.saturating_sub(range.start);
    if len == 0 {
        return Ok(true);
    }
    loop {
        match rustix::fs::fallocate(&file, flags, range.start, len) {
            Ok(()) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(false),
            Err(e) => return Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Meta;
    use std::os::unix::fs::FileExt;

    #[test]
    fn what_is_freed_takes_no_room_and_the_rest_stays() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all_at(&vec![7; 1 << 20], 0).unwrap();
        let before = Meta::of_file(&file).unwrap();
        assert!(free(&file, 4096..(1 << 20) - 4096).unwrap() && free(&file, 5..5).unwrap());
        let after = Meta::of_file(&file).unwrap();
        assert_eq!((before.size, after.size), (1 << 20, 1 << 20));
        assert!(after.room < before.room / 8, "{} of {}", after.room, before.room);
        let mut bytes = [1; 4098];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..4096] == [7; 4096] && bytes[4096..] == [0; 2]);
    }
}
