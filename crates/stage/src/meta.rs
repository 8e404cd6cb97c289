//! What a copy has of its source besides bytes: rights, owner, times, extended attributes.

use crate::remote::Attributes;
use rustix::fs::{Gid, Mode, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::AsFd;
use std::path::Path;
use stead_core::{Error, Result};
use stead_store::{FileTime, Folder, Meta};

/// Gives a file or a folder that is open the attributes of another one. Its owner comes first, since a new one takes capabilities and
/// the bits that lend rights, and its times come last, since all else changes them.
///
/// The owner is given where the system lets this process do so; without it the bits that lend the owner's rights go. Extended
/// attributes that the target cannot have, or that this process may not set, are left out: those of namespaces other than
/// `user` most of all.
///
/// # Errors
/// System errors, with this path.
pub(crate) fn give(from: impl AsFd, meta: &Meta, to: impl AsFd, shown: &Path) -> Result<()> {
    let failed = |e: Errno| Error::io("copy the attributes of", shown, e.into());
    let mut rights = give_owner(meta, &to, shown)?;
    for (name, value) in attributes_of(from).map_err(failed)? {
        set(&to, &name, &value).map_err(failed)?;
        rights.has = None;
    }
    give_mode_and_times(meta, rights, to, shown)
}

/// The same, of a file of another node, with the attributes that this has told.
///
/// # Errors
/// As [`give`].
pub(crate) fn give_told(
    attributes: &Attributes,
    meta: &Meta,
    to: impl AsFd,
    shown: &Path,
) -> Result<()> {
    let mut rights = give_owner(meta, &to, shown)?;
    for (name, value) in attributes {
        let name = CString::new(name.clone().os().into_encoded_bytes());
        let name = name.map_err(|_| Error::format("an attribute with a zero in its name"))?;
        set(&to, &name, &value.0)
            .map_err(|e| Error::io("copy the attributes of", shown, e.into()))?;
        rights.has = None;
    }
    give_mode_and_times(meta, rights, to, shown)
}

/// Modes of a file that is given one.
struct Rights {
    /// That it is to have.
    wanted: u32,
    /// That it has; none where it may have changed: a new owner takes bits of it, and an attribute may set it.
    has: Option<u32>,
}

/// Gives it the owner and the group, as far as the system lets this process do so; the mode that it may have then.
fn give_owner(meta: &Meta, to: impl AsFd, shown: &Path) -> Result<Rights> {
    let failed = |doing: &str, e: Errno| Error::io(doing, shown, e.into());
    let mut mode = meta.mode;
    let own = Meta::of_file(&to).map_err(|e| Error::io("look at", shown, e))?;
    let is_theirs = (own.uid, own.gid) == (meta.uid, meta.gid);
    if !is_theirs {
        let ids = (Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)));
        match rustix::fs::fchown(&to, ids.0, ids.1) {
            Ok(()) => {}
            Err(Errno::PERM | Errno::INVAL | Errno::NOTSUP) => {
                // The group alone, which the owner may do among its own ones.
                let group = rustix::fs::fchown(&to, None, ids.1).is_ok();
                mode &= if group { !0o4000 } else { !0o6000 };
            }
            Err(e) => return Err(failed("give an owner to", e)),
        }
    }
    Ok(Rights { wanted: mode, has: is_theirs.then_some(own.mode) })
}

fn give_mode_and_times(meta: &Meta, rights: Rights, to: impl AsFd, shown: &Path) -> Result<()> {
    let failed = |doing: &str, e: Errno| Error::io(doing, shown, e.into());
    let mode = rights.wanted;
    let has = match rights.has {
        Some(has) => has,
        None => Meta::of_file(&to).map_err(|e| Error::io("look at", shown, e))?.mode,
    };
    let given = match has == mode {
        true => Ok(()),
        false => rustix::fs::fchmod(&to, Mode::from_raw_mode(mode)),
    };
    match given {
        Ok(()) | Err(Errno::NOTSUP) => {}
        // The bit of a group that we are not in, or a file system without rights.
        Err(Errno::PERM) => {
            // Without rights of its own it stays its owner's alone.
            let _ = rustix::fs::fchmod(&to, Mode::from_raw_mode(mode & 0o1777));
        }
        Err(e) => return Err(failed("set the permissions of", e)),
    }
    rustix::fs::futimens(&to, &times(meta.mtime)).map_err(|e| failed("set the times of", e))
}

/// The mode that a copy is made with in a folder: that of its source, unless others get it who may not read it before.
pub(crate) fn begins_as(meta: &Meta, folder: &Folder) -> u32 {
    let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
    // Its owner may have to open it again to go on with it.
    let opens = meta.mode & 0o600 == 0o600;
    let ours = (meta.uid, meta.gid) == (user.as_raw(), group.as_raw());
    // A folder may give its own group to what is made in it. Where a group may no more than everybody, it does not matter which one.
    let more = (meta.mode >> 3) & 0o7 & !meta.mode;
    let near = || folder.own_meta().is_ok_and(|folder| folder.gid == group.as_raw());
    match opens && ours && (more == 0 || near()) {
        true => meta.mode & 0o777,
        false => 0o600,
    }
}

/// What new files and folders of this process do not get.
pub(crate) fn mask() -> u32 {
    // As the system tells it: to ask by setting it would change it for other threads.
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    umask.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}

/// Gives a file that is open what a new one has, and a time.
///
/// # Errors
/// System errors, with this path.
pub(crate) fn give_new(to: impl AsFd, mtime: FileTime, shown: &Path) -> Result<()> {
    let failed = |doing: &str, e: Errno| Error::io(doing, shown, e.into());
    match rustix::fs::fchmod(&to, Mode::from_raw_mode(0o666 & !mask())) {
        Ok(()) | Err(Errno::NOTSUP | Errno::PERM) => {}
        Err(e) => return Err(failed("set the permissions of", e)),
    }
    rustix::fs::futimens(&to, &times(mtime)).map_err(|e| failed("set the times of", e))
}

/// Gives a folder that is open these rights, as far as this process gives them to new ones.
pub(crate) fn give_rights(to: impl AsFd, mode: u32) {
    let _ = rustix::fs::fchmod(&to, Mode::from_raw_mode(mode & 0o777 & !mask()));
}

/// Gives a folder that is open the rights of a new one.
pub(crate) fn give_new_folder(to: impl AsFd) {
    give_rights(to, 0o777);
}

fn times(mtime: FileTime) -> Timestamps {
    #[allow(clippy::unnecessary_cast)] // The types of these fields are other ones on other systems.
    let mtime = Timespec { tv_sec: mtime.seconds as _, tv_nsec: mtime.nanos as _ };
    // When it was read last is a thing of the copy.
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT as _ };
    Timestamps { last_access: omit, last_modification: mtime }
}

/// Gives a link the owner and the time of another one, where the system can.
pub(crate) fn give_link(meta: &Meta, to: &Folder, name: &OsStr) {
    use rustix::fs::AtFlags;
    let how = AtFlags::SYMLINK_NOFOLLOW;
    // All of it is for people: a link is its text.
    let ids = (Some(Uid::from_raw(meta.uid)), Some(Gid::from_raw(meta.gid)));
    let _ = rustix::fs::chownat(to, name, ids.0, ids.1, how);
    let _ = rustix::fs::utimensat(to, name, &times(meta.mtime), how);
}

/// The names of all attributes of a file have no more bytes, and no value has: a bound of Linux.
const MOST: usize = 64 << 10;

/// All attributes that may be read.
///
/// # Errors
/// System errors.
pub(crate) fn attributes_of(
    from: impl AsFd,
) -> std::result::Result<Vec<(CString, Vec<u8>)>, Errno> {
    // Most files have none.
    let len = match rustix::fs::flistxattr_query(&from) {
        Ok(0) | Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(Vec::new()),
        Ok(len) => len.min(MOST),
        Err(e) => return Err(e),
    };
    let mut names = vec![0u8; len];
    let len = match rustix::fs::flistxattr(&from, &mut names[..]) {
        Ok(len) => len,
        // More came meanwhile: the copy is of a file that changed, which is seen elsewhere.
        Err(Errno::RANGE) => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    names.truncate(len);
    let (mut value, mut all) = (Vec::new(), Vec::new());
    for name in names.split_inclusive(|b| *b == 0) {
        let Ok(name) = CStr::from_bytes_with_nul(name) else { continue };
        if value.is_empty() {
            value.resize(MOST, 0);
        }
        let len = match rustix::fs::fgetxattr(&from, name, &mut value[..]) {
            Ok(len) => len,
            // Gone meanwhile, or not for us to read.
            Err(_) => continue,
        };
        all.push((name.to_owned(), value.get(..len).unwrap_or_default().to_vec()));
    }
    Ok(all)
}

fn set(to: impl AsFd, name: &CStr, value: &[u8]) -> std::result::Result<(), Errno> {
    match rustix::fs::fsetxattr(&to, name, value, XattrFlags::empty()) {
        // Some file systems have a block for all attributes of a file, and say so when that is full.
        Err(Errno::NOSPC) if has_room(&to) => Ok(()),
        // Those of the device's room are about the data; all else is that the target has no such attributes.
        Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => Err(e),
        _ => Ok(()),
    }
}

/// True if a file system has room for all attributes that a file can have.
fn has_room(to: impl AsFd) -> bool {
    let room = |s: rustix::fs::StatVfs| s.f_bavail.saturating_mul(s.f_frsize) > 1 << 20;
    rustix::fs::fstatvfs(to).is_ok_and(room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_copy_has_rights_times_and_attributes() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        let (from, to) = (File::create(&a).unwrap(), File::create(&b).unwrap());
        rustix::fs::fchmod(&from, Mode::from_raw_mode(0o2751)).unwrap();
        let marked =
            rustix::fs::fsetxattr(&from, "user.note", b"hello", XattrFlags::empty()).is_ok();
        rustix::fs::futimens(&from, &times(FileTime { seconds: -5, nanos: 7 })).unwrap();
        let meta = Meta::of_file(&from).unwrap();
        give(&from, &meta, &to, &b).unwrap();
        let got = Meta::of_file(&to).unwrap();
        assert_eq!((got.mode, got.mtime), (0o2751, FileTime { seconds: -5, nanos: 7 }));
        if marked {
            let mut value = [0; 10];
            let len = rustix::fs::fgetxattr(&to, "user.note", &mut value[..]).unwrap();
            assert_eq!(&value[..len], b"hello");
        }
    }

    #[test]
    fn a_copy_begins_closed_where_a_folder_gives_it_another_group() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let dir = tempfile::tempdir().unwrap();
        let (file, to) = (dir.path().join("f"), dir.path().join("to"));
        std::fs::write(&file, b"x").unwrap();
        std::fs::create_dir(&to).unwrap();
        let folder = Folder::open(&to).unwrap();
        let begins = |mode| {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            begins_as(&Meta::of_file(File::open(&file).unwrap()).unwrap(), &folder)
        };
        assert_eq!([0o640, 0o644, 0o600].map(begins), [0o640, 0o644, 0o600]);
        // Only root gives folders to any group.
        if chown(&to, None, Some(4711)).is_ok() {
            std::fs::set_permissions(&to, PermissionsExt::from_mode(0o2770)).unwrap();
            assert_eq!([0o640, 0o664, 0o644, 0o755].map(begins), [0o600, 0o600, 0o644, 0o755]);
        }
    }

    #[test]
    fn attributes_that_a_file_system_has_no_room_for_are_left_out() {
        let far = tempfile::tempfile_in("/dev/shm").unwrap();
        let value = vec![7u8; 8 << 10];
        if rustix::fs::fsetxattr(&far, c"user.large", &value, XattrFlags::empty()).is_err() {
            return;
        }
        // Whether this one has room for it or not: the file is copied.
        let near = tempfile::tempfile().unwrap();
        set(&near, c"user.large", &value).unwrap();
        set(&near, c"user.small", b"x").unwrap();
    }
}
