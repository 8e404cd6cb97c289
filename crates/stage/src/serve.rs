//! Copies that a file system makes by itself: a server of files copies what lies on it, and no byte of it comes here and goes back.
//!
//! Nobody here sees the bytes then, so no checksum is made while they are copied: whoever wants to know reads both files (`verify`),
//! and a large file that was not whole is begun anew.

use rustix::io::Errno;
use std::fs::File;
use std::sync::atomic::{AtomicBool, Ordering};
use stead_store::tier;

/// Bytes that are asked for at a time.
pub(crate) const SERVED: usize = 16 << 20;

/// File systems of servers that copy by themselves: NFS 4.2, SMB 3, Ceph, Lustre.
const SERVERS: [&str; 4] = ["nfs", "smb", "ceph", "lustre"];
/// File systems that share blocks also where a clone across parts of them is refused.
const PARTED: [&str; 2] = ["btrfs", "xfs"];

/// True if a file system that both files lie on can be asked to copy between them: by their tiers, as `nfs-0:45`, and whether a
/// clone was refused since they lie on different parts of it.
fn serves(from: &str, to: &str, parted: bool) -> bool {
    let kind =
        |tier: &str| tier.split_once('-').map(|(kind, _)| kind.to_owned()).unwrap_or_default();
    let (a, b) = (kind(from), kind(to));
    (from == to && SERVERS.contains(&a.as_str()))
        || (parted && a == b && PARTED.contains(&a.as_str()))
}

/// Whether file systems are asked to copy, in a transfer.
pub(crate) struct Serve {
    /// Whatever they are: to test it where there is no server.
    always: bool,
    refused: AtomicBool,
    /// A clone was refused since both lie on different parts of a file system.
    parted: AtomicBool,
}

impl Serve {
    pub(crate) fn new(always: bool) -> Serve {
        Serve { always, refused: AtomicBool::new(false), parted: AtomicBool::new(false) }
    }

    /// A clone was refused, for this reason.
    pub(crate) fn no_clone(&self, why: Errno) {
        self.parted.store(why == Errno::XDEV, Ordering::Relaxed);
    }

    /// True if a copy between these is to be asked for.
    pub(crate) fn wants(&self, from: &File, to: &File) -> bool {
        if self.refused.load(Ordering::Relaxed) {
            return false;
        }
        let name = |file: &File| tier::name_of(file).unwrap_or_default();
        self.always || serves(&name(from), &name(to), self.parted.load(Ordering::Relaxed))
    }

    /// Has the file system copy from a place on: how many bytes it has copied; none if it does not do so, or no more.
    ///
    /// # Errors
    /// System errors, of the source or of the target.
    pub(crate) fn copy(&self, from: &File, to: &File, at: u64, len: usize) -> Result<usize, Errno> {
        let (mut a, mut b) = (at, at);
        loop {
            match rustix::fs::copy_file_range(from, Some(&mut a), to, Some(&mut b), len) {
                Ok(n) => return Ok(n),
                Err(Errno::INTR) => {}
                Err(Errno::XDEV | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    // So it is with the next file.
                    self.refused.store(true, Ordering::Relaxed);
                    return Ok(0);
                }
                Err(Errno::INVAL | Errno::BADF | Errno::PERM | Errno::TXTBSY) => return Ok(0),
                Err(e) => return Err(e),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_asked_for_what_lies_on_one_of_them() {
        for kind in SERVERS {
            let (a, b) = (format!("{kind}-0:45"), format!("{kind}-0:46"));
            assert!(serves(&a, &a, false) && !serves(&a, &b, false) && !serves(&a, &b, true));
        }
        for kind in PARTED {
            // Subvolumes have devices of their own.
            let (a, b) = (format!("{kind}-0:45"), format!("{kind}-0:46"));
            assert!(serves(&a, &b, true) && !serves(&a, &b, false) && !serves(&a, &a, false));
        }
        for (a, b) in [
            ("ext4-8:1", "ext4-8:1"),
            ("tmpfs-0:30", "tmpfs-0:30"),
            ("nfs-0:45", "ext4-8:1"),
            ("", ""),
        ] {
            assert!(!serves(a, b, true), "{a} {b}");
        }
    }
}
