//! The way to a folder that somebody else has named: who could have led it elsewhere.
//!
//! Paths of dataspaces come from administrators, and what lies on them may be anybody's: in a folder that all may write to, whoever is first makes
//! the next folder, or a link to wherever he likes. So folders and links on the way are looked at one by one, and what they lead to is what was
//! looked at.

use crate::folder::{Folder, Meta, What};
use nix::unistd::User;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use stead_core::{Error, Kind, Result};

/// Links that are followed on a way.
const MOST_LINKS: usize = 40;
/// The bits of a mode that let others than its owner make names in a folder, and the one that keeps them from renaming what is not theirs.
const OPEN: u32 = 0o022;
const OPEN_TO_ALL: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// Whom the way to a folder may belong to, beside root and this user.
#[derive(Debug, Clone, Copy)]
pub enum Trust<'o> {
    /// Also others, where only root, this user or they themselves could have put what is theirs there. The owner that the folder is said to have.
    Settled(Option<&'o str>),
    /// Only the owner that the folder is said to have: for who removes what lies there.
    Nobody(Option<&'o str>),
}

/// Opens a folder whose way is to be trusted.
///
/// # Errors
/// `NotFound` without it; `Permission` if somebody else could have led the way here; system errors otherwise.
pub fn open(path: &Path, trust: Trust<'_>) -> Result<Folder> {
    let walked = Walk { path, trust, said: None }.go();
    let fd = walked.map_err(|stop| match stop {
        Stop::Error(e) => e,
        Stop::System(Errno::NOENT) => {
            Error::new(Kind::NotFound, "this folder is not there").at_path(path)
        }
        Stop::System(e) => Error::io("open", path, e.into()),
    })?;
    Ok(Folder::new(Arc::new(fd), path.to_owned()))
}

enum Stop {
    System(Errno),
    Error(Error),
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Stop {
        Stop::System(e)
    }
}

struct Walk<'p> {
    path: &'p Path,
    trust: Trust<'p>,
    /// The owner that the folder is said to have, once it was looked up.
    said: Option<Option<u32>>,
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl Walk<'_> {
    fn go(mut self) -> std::result::Result<OwnedFd, Stop> {
        let mut left: VecDeque<OsString> = VecDeque::new();
        ahead(&mut left, self.path);
        let mut here = place(CWD, OsStr::new("."))?;
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            let next = place(&here, &name)?;
            // Nobody has put the root anywhere, nor what is above a folder.
            if name == "/" || name == ".." {
                here = next;
                continue;
            }
            let (above, meta) = (look(&here)?, look(&next)?);
            self.check(&name, &meta, &above)?;
            if meta.what != What::Link {
                here = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(Stop::System(Errno::LOOP));
            }
            let to = rustix::fs::readlinkat(&next, "", Vec::new())?;
            ahead(&mut left, &PathBuf::from(OsString::from_vec(to.into_bytes())));
        }
        Ok(rustix::fs::openat(&here, ".", FOLDER, Mode::empty())?)
    }

    /// Whether it is to be trusted that this leads where it is to lead.
    fn check(&mut self, name: &OsStr, meta: &Meta, above: &Meta) -> std::result::Result<(), Stop> {
        let known = [0, rustix::process::geteuid().as_raw()].contains(&meta.uid);
        let trust = self.trust;
        let why = match trust {
            Trust::Settled(_) if above.mode & OPEN == 0 => return Ok(()),
            Trust::Nobody(_) if above.mode & OPEN_TO_ALL != 0 && above.mode & STICKY == 0 => {
                "anybody may put another one there"
            }
            _ if known || self.said() == Some(meta.uid) => return Ok(()),
            Trust::Settled(_) => "anybody may have made it",
            Trust::Nobody(_) => "that user may put another one there",
        };
        let message = format!(
            "'{}' on the way to this folder is user {}'s, and {why}",
            name.to_string_lossy().escape_debug(),
            meta.uid
        );
        let error = Error::new(Kind::Permission, message).at_path(self.path);
        Err(Stop::Error(error.with_hint("have root make it, or say whose it is: owner = \"USER\"")))
    }

    fn said(&mut self) -> Option<u32> {
        let (Trust::Settled(owner) | Trust::Nobody(owner)) = self.trust;
        *self.said.get_or_insert_with(|| owner.and_then(user))
    }
}

/// The number of a user, by name or number, if the system knows it.
fn user(name: &str) -> Option<u32> {
    let found = || User::from_name(name).ok().flatten().map(|user| user.uid.as_raw());
    name.parse().ok().or_else(found)
}

/// Goes by this path before what is left.
fn ahead(left: &mut VecDeque<OsString>, path: &Path) {
    for part in path.components().rev() {
        match part {
            Component::CurDir | Component::Prefix(_) => {}
            part => left.push_front(part.as_os_str().to_owned()),
        }
    }
}

fn place(folder: impl std::os::fd::AsFd, name: &OsStr) -> rustix::io::Result<OwnedFd> {
    rustix::fs::openat(folder, name, PLACE, Mode::empty())
}

fn look(place: &OwnedFd) -> std::result::Result<Meta, Stop> {
    let failed = |e: std::io::Error| Errno::from_io_error(&e).unwrap_or(Errno::IO);
    Ok(Meta::of_file(place).map_err(failed)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    fn mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_way_of_ones_own_is_gone_with_its_links() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(base.join("a/b")).unwrap();
        symlink("../a/./b", base.join("a/down")).unwrap();
        symlink(&base, base.join("a/up")).unwrap();
        symlink("loop", base.join("loop")).unwrap();
        std::fs::write(base.join("file"), b"x").unwrap();
        let ino = |path: &str| {
            std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(base.join(path)).unwrap())
        };
        for trust in [Trust::Settled(None), Trust::Nobody(None)] {
            for (path, to) in
                [("a/b", "a/b"), ("a/down", "a/b"), ("a/up/a/../a/b/.", "a/b"), ("a/up", ".")]
            {
                let folder = open(&base.join(path), trust).unwrap();
                assert_eq!(folder.own_meta().unwrap().ino, ino(to), "{path}");
            }
            assert_eq!(open(&base.join("a/none"), trust).unwrap_err().kind(), Kind::NotFound);
            assert!(open(&base.join("loop"), trust).is_err());
            assert!(open(&base.join("file"), trust).is_err());
        }
    }

    #[test]
    fn what_others_may_have_led_elsewhere_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let (scratch, victim) = (base.join("scratch"), base.join("victim"));
        let theirs = scratch.join("root");
        std::fs::create_dir_all(&theirs).unwrap();
        std::fs::create_dir(&victim).unwrap();
        symlink(&victim, theirs.join("link")).unwrap();
        std::fs::create_dir(theirs.join("folder")).unwrap();
        mode(&scratch, 0o1777);
        // Only root gives folders away.
        if lchown(&theirs, Some(4711), None).is_err() {
            return;
        }
        for name in ["link", "folder", "."] {
            let path = theirs.join(name);
            for trust in [
                Trust::Settled(None),
                Trust::Nobody(None),
                Trust::Nobody(Some("4712")),
                Trust::Settled(Some("no such user")),
            ] {
                let e = open(&path, trust).unwrap_err();
                assert!(
                    e.kind() == Kind::Permission && e.to_string().contains("4711"),
                    "{trust:?}: {e}"
                );
            }
            open(&path, Trust::Settled(Some("4711"))).unwrap();
            open(&path, Trust::Nobody(Some("4711"))).unwrap();
        }
        // Where only root makes names, root has put theirs there; they may still lead it elsewhere.
        mode(&scratch, 0o755);
        open(&theirs.join("folder"), Trust::Settled(None)).unwrap();
        assert!(open(&theirs.join("folder"), Trust::Nobody(None)).is_err());
        // A link of somebody else, to what is root's.
        lchown(&theirs, Some(0), None).unwrap();
        lchown(theirs.join("link"), Some(4711), None).unwrap();
        assert!(open(&theirs.join("link"), Trust::Nobody(None)).is_err());
        // Whoever may rename what is not his may put something there.
        mode(&scratch, 0o777);
        assert!(open(&theirs.join("folder"), Trust::Nobody(None)).is_err());
    }
}
