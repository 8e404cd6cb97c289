//! The rights of a user: a worker takes them before it reads anything, and cannot get others again.

use nix::unistd::{Group, Uid as NixUid, User, getgrouplist};
use rustix::process::{Gid, Uid, geteuid, getuid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
    set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid,
};
use std::ffi::CString;
use std::os::fd::RawFd;
use stead_core::{Error, Kind, Result};

/// Who is in this group may administrate a node.
const ADMINS: &str = "stead";

/// True if this process may take the rights of other users: it is root, or was given that.
pub(crate) fn may_take() -> bool {
    let needed = CapabilitySet::SETUID | CapabilitySet::SETGID;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// What the system knows of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: String,
    pub(crate) home: String,
    pub(crate) group: u32,
}

/// What the system knows of this user.
///
/// # Errors
/// `Permission` if there is no such one: ids that a user may give to processes at will (`newuidmap`) are not users. System errors.
pub(crate) fn known(user: u32) -> Result<Known> {
    let found = User::from_uid(NixUid::from_raw(user))
        .map_err(|e| Error::io("look up", format!("user {user}"), e.into()))?;
    let none = || {
        Error::new(Kind::Permission, format!("this node knows no user {user}")).with_hint(
            "in a container with ids of its own a daemon of its own can run: stead daemon",
        )
    };
    let user = found.ok_or_else(none)?;
    let home = user.dir.to_str().unwrap_or("/").to_owned();
    Ok(Known { name: user.name, home, group: user.gid.as_raw() })
}

/// The number of a user, by name or number.
///
/// # Errors
/// `Usage` if there is none; system errors.
pub(crate) fn user(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return known(number).map(|_| number);
    }
    let found = User::from_name(name).map_err(|e| Error::io("look up user", name, e.into()))?;
    let none = || Error::usage(format!("this node knows no user '{}'", name.escape_debug()));
    found.map(|user| user.uid.as_raw()).ok_or_else(none)
}

/// The number of a user, by name or number. Whether there is a user of a number is not asked.
///
/// # Errors
/// `Usage` if there is none of this name; system errors.
pub fn user_number(name: &str) -> Result<u32> {
    name.parse::<u32>().or_else(|_| user(name))
}

/// The number of a group, by name or number.
///
/// # Errors
/// As [`user`].
pub(crate) fn group(name: &str) -> Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let found = Group::from_name(name).map_err(|e| Error::io("look up group", name, e.into()))?;
    let none = || Error::usage(format!("this node knows no group '{}'", name.escape_debug()));
    found.map(|group| group.gid.as_raw()).ok_or_else(none)
}

/// True of root and of those whom the system has in the group of administrators.
pub(crate) fn is_admin(user: u32, group: u32) -> bool {
    let admins = || Group::from_name(ADMINS).ok().flatten().map(|found| found.gid.as_raw());
    let is_in = |gid| groups(user, group).is_ok_and(|all| all.contains(&Gid::from_raw(gid)));
    user == 0 || admins().is_some_and(is_in)
}

/// The groups of a user, and its own one.
///
/// # Errors
/// As [`known`].
fn groups(user: u32, group: u32) -> Result<Vec<Gid>> {
    let failed =
        |e: nix::Error| Error::io("look up the groups of", format!("user {user}"), e.into());
    let name = CString::new(known(user)?.name).map_err(|_| failed(nix::Error::EINVAL))?;
    let list = getgrouplist(&name, nix::unistd::Gid::from_raw(group)).map_err(failed)?;
    Ok(list.iter().map(|gid| Gid::from_raw(gid.as_raw())).collect())
}

/// Closes all that this process was started with, but for input, output and these. Nothing else of it is open.
///
/// # Errors
/// System errors.
fn close_others(keep: &[RawFd]) -> Result<()> {
    const OPEN: &str = "/proc/self/fd";
    let failed = |e| Error::io("look at", OPEN, e);
    let mut list = Vec::new();
    for entry in std::fs::read_dir(OPEN).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        list.extend(name.to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    for fd in list.into_iter().filter(|fd| *fd > 2 && !keep.contains(fd)) {
        // The list itself is closed by now.
        let _ = nix::unistd::close(fd);
    }
    Ok(())
}

fn check_alone() -> Result<()> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let threads = status.lines().find_map(|line| line.strip_prefix("Threads:"));
    match threads.is_some_and(|n| n.trim() == "1") {
        true => Ok(()),
        false => Err(Error::internal("rights are taken by a process with several threads")),
    }
}

/// Takes the rights of a user for good. There is one thread, the one that calls this, and nothing is open afterwards but input, output and `keep`.
///
/// # Errors
/// `Permission` if this process may not, and those of [`known`]; `Internal` if there are more threads, which would keep the rights that there
/// were.
pub(crate) fn take(user: u32, group: u32, keep: &[RawFd]) -> Result<()> {
    let failed = |doing: &str, e: rustix::io::Errno| {
        Error::new(Kind::Permission, format!("cannot {doing} of user {user}: {e}"))
            .with_hint("a daemon for all users runs as root, or with CAP_SETUID and CAP_SETGID")
    };
    check_alone()?;
    // What the system asks for this, such as a directory service, may leave connections and threads behind.
    let groups = groups(user, group)?;
    close_others(keep)?;
    check_alone()?;
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(group));
    set_thread_groups(&groups).map_err(|e| failed("take the groups", e))?;
    set_thread_res_gid(gid, gid, gid).map_err(|e| failed("take the group", e))?;
    set_thread_res_uid(uid, uid, uid).map_err(|e| failed("take the rights", e))?;
    if !uid.is_root() {
        // A daemon that is not root keeps what it was given, unless it is told to drop it.
        let none = CapabilitySet::empty();
        let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
        clear_ambient_capability_set().map_err(|e| failed("keep to the rights", e))?;
        set_capabilities(None, sets).map_err(|e| failed("keep to the rights", e))?;
        let back = set_thread_uid(Uid::ROOT);
        if back.is_ok() || getuid() != uid || geteuid() != uid {
            return Err(Error::internal("the rights that were given up are still there"));
        }
    }
    set_no_new_privs(true).map_err(|e| failed("keep to the rights", e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_known_by_number() {
        let root = known(0).unwrap();
        assert_eq!((root.name.as_str(), root.group), ("root", 0));
        assert!(groups(0, 0).unwrap().contains(&Gid::ROOT));
        assert_eq!(known(4_000_000_001).err().unwrap().kind(), Kind::Permission);
        assert_eq!(groups(4_000_000_001, 7).err().unwrap().kind(), Kind::Permission);
        assert!(
            user("root").unwrap() == 0 && group("root").unwrap() == 0 && user("0").unwrap() == 0
        );
        assert!(user("no such user").is_err() && group("no such group").is_err());
        assert_eq!(user_number("root").unwrap(), 0);
        assert_eq!(user_number("4000000001").unwrap(), 4_000_000_001);
        assert_eq!(user_number("no such user").err().unwrap().kind(), Kind::Usage);
        assert!(is_admin(0, 0) && !is_admin(4_000_000_001, 7));
    }

    #[test]
    fn rights_are_taken_by_one_thread_only() {
        // Tests have several.
        assert_eq!(take(1, 1, &[]).unwrap_err().kind(), Kind::Internal);
    }
}
