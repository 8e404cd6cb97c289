//! The socket of a node: where it is, who is at its other end.

use crate::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};
use rustix::process::geteuid;
use std::fs::Permissions;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_store::space;

/// The socket of the daemon that serves all users.
pub(crate) const SYSTEM: &str = "/run/stead/steadd.sock";

/// How long a daemon that begins waits for another one that has its socket.
const LISTENS_WITHIN: Duration = Duration::from_secs(2);

/// That of a user's own daemon: `$STEAD_SOCKET`, or `steadd.sock` in the folder `stead` of `$XDG_RUNTIME_DIR`.
///
/// # Errors
/// `Usage` for a `STEAD_SOCKET` that is no path from the root on: it would be another one in each folder.
pub(crate) fn own() -> Result<Option<PathBuf>> {
    let path = |name: &str| space::variable(name).map(PathBuf::from);
    if let Some(given) = path("STEAD_SOCKET") {
        if given.is_absolute() {
            return Ok(Some(given));
        }
        let message = format!("STEAD_SOCKET is '{}'", given.display());
        return Err(Error::usage(message)
            .with_hint("name the socket from the root on, or say 'none' for no daemon"));
    }
    let folder = path("XDG_RUNTIME_DIR").filter(|folder| folder.is_absolute());
    Ok(folder.map(|folder| folder.join("stead/steadd.sock")))
}

/// Where a daemon of this process listens unless it is told otherwise: that of the system if `all` users are served, else the
/// user's own one.
///
/// # Errors
/// `Usage` if there is no folder for it.
pub fn socket_path(all: bool) -> Result<PathBuf> {
    let none = || {
        Error::usage("there is no folder for the socket: XDG_RUNTIME_DIR is not set")
            .with_hint("name the socket: --socket PATH here, STEAD_SOCKET=PATH for programs")
    };
    match (space::variable("STEAD_SOCKET"), all) {
        (None, true) => Ok(PathBuf::from(SYSTEM)),
        _ => own()?.ok_or_else(none),
    }
}

/// Makes a folder, if it is not there, with this mode: those whom a daemon serves come to it whatever the mask of who started that.
///
/// # Errors
/// System errors.
pub(crate) fn make_folder(folder: &Path, mode: u32) -> Result<()> {
    let is_new = !folder.exists();
    let made = std::fs::DirBuilder::new().recursive(true).mode(mode).create(folder);
    let open = || std::fs::set_permissions(folder, Permissions::from_mode(mode));
    let done = made.and_then(|()| if is_new { open() } else { Ok(()) });
    done.map_err(|e| Error::io("make the folder", folder, e))
}

/// Listens there: for all users, or for the own one.
///
/// # Errors
/// `Usage` if the path is too long for a socket, if somebody listens there already, or something else has the name; system errors.
pub(crate) fn listen(path: &Path, all: bool) -> Result<UnixListener> {
    let failed = |e: std::io::Error| Error::io("listen on", path, e);
    // Nobody could connect to it, however it got its name.
    SocketAddrUnix::new(path).map_err(|_| {
        Error::usage("the path of a socket has no more than 107 bytes")
            .at_path(path)
            .with_hint("name a shorter one by --socket")
    })?;
    if let Some(folder) = path.parent() {
        let mode = if all { 0o755 } else { 0o700 };
        make_folder(folder, mode)?;
    }
    match std::fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(failed(e)),
        Ok(meta) if !meta.file_type().is_socket() => {
            return Err(Error::usage("something that is no socket has this name").at_path(path));
        }
        Ok(_) => {
            // One that takes nobody, as it is stopped, is there as well.
            if !matches!(knock(path, LISTENS_WITHIN), Err(e) if e != Errno::AGAIN) {
                return Err(Error::usage("another daemon listens there").at_path(path).with_hint(
                    "end it first, or name another socket and another folder for the state",
                ));
            }
            // Left by one that was killed.
            std::fs::remove_file(path).map_err(failed)?;
        }
    }
    // Whoever sees the name can connect. The one before is short: names of sockets have 107 bytes at most.
    let early = path.with_file_name(format!(".s{}", std::process::id()));
    let _ = std::fs::remove_file(&early);
    let listener = UnixListener::bind(&early).map_err(failed)?;
    let mode = if all { 0o666 } else { 0o600 };
    let named = std::fs::set_permissions(&early, Permissions::from_mode(mode))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| std::fs::rename(&early, path));
    if let Err(e) = named {
        let _ = std::fs::remove_file(&early);
        return Err(failed(e));
    }
    Ok(listener)
}

/// Connects to a socket, as soon as those have been taken who have come before.
fn knock(path: &Path, within: Duration) -> rustix::io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let until = clock::now() + within;
    loop {
        let socket =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        // No time at all would be no end.
        let left = until.saturating_duration_since(clock::now()).max(Duration::from_millis(1));
        set_socket_timeout(&socket, Timeout::Send, Some(left))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => {
                set_socket_timeout(&socket, Timeout::Send, None)?;
                return Ok(UnixStream::from(socket));
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Connects to a socket, if somebody listens there.
///
/// # Errors
/// `Permission` if it belongs to a user who is neither this one nor root; `Timeout` if nobody takes the connection within this time; system
/// errors.
pub(crate) fn connect(path: &Path, within: Duration) -> Result<Option<UnixStream>> {
    let stream = match knock(path, within) {
        Ok(stream) => stream,
        Err(Errno::NOENT | Errno::CONNREFUSED) => return Ok(None),
        Err(Errno::AGAIN) => {
            return Err(Error::new(Kind::Timeout, "the daemon takes no connections")
                .at_path(path)
                .with_hint("is it stopped? STEAD_SOCKET=none does without it"));
        }
        Err(e) => return Err(Error::io("connect to", path, e.into())),
    };
    let peer =
        socket_peercred(&stream).map_err(|e| Error::io("ask who listens on", path, e.into()))?;
    // A service may have a user of its own: it is known by the folder, which root has given it.
    let owner = path
        .parent()
        .and_then(|folder| std::fs::symlink_metadata(folder).ok())
        .filter(|meta| path == Path::new(SYSTEM) && meta.mode() & 0o022 == 0)
        .map(|meta| meta.uid());
    let known = peer.uid.is_root() || peer.uid == geteuid() || owner == Some(peer.uid.as_raw());
    if !known {
        let message = format!("user {} listens there, who may be anybody", peer.uid.as_raw());
        return Err(Error::new(Kind::Permission, message)
            .at_path(path)
            .with_hint("name another socket by STEAD_SOCKET"));
    }
    Ok(Some(stream))
}

/// What waits for something to happen.
pub(crate) fn until(left: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(left.subsec_nanos()),
    }
}

/// True if there is something to read, or the other end is gone; false if the time was over first.
pub(crate) fn is_readable(fd: &impl AsFd, most: Option<Duration>) -> Result<bool> {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    match poll(&mut fds, most.map(until).as_ref()) {
        Ok(n) => Ok(n > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(e) => Err(Error::io("wait for", "a connection", e.into())),
    }
}

/// True once nobody is at the other end any more.
pub(crate) fn is_gone(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::RDHUP)];
    let gone = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut fds, Some(&until(Duration::ZERO))).is_ok_and(|_| fds[0].revents().intersects(gone))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    #[test]
    fn who_takes_no_connections_is_not_waited_for_without_an_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let stopped =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .unwrap();
        rustix::net::bind(&stopped, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&stopped, 1).unwrap();
        let soon = Duration::from_millis(50);
        let mut came = Vec::new();
        let e = loop {
            match connect(&path, soon) {
                Ok(stream) => came.push(stream.unwrap()),
                Err(e) => break e,
            }
            assert!(came.len() < 100);
        };
        assert!(e.kind() == Kind::Timeout && !came.is_empty(), "{e}");
        // Nor is its place taken.
        assert_eq!(listen(&path, false).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn a_path_that_nobody_could_connect_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s".repeat(110));
        let e = listen(&path, false).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.to_string().contains("107 bytes"), "{e}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn one_daemon_listens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/er/s");
        assert!(connect(&path, SOON).unwrap().is_none());
        let first = listen(&path, false).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(connect(&path, SOON).unwrap().is_some());
        assert_eq!(listen(&path, false).unwrap_err().kind(), Kind::Usage);
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        drop(first);
        // What a daemon has left that was killed is nobody's.
        assert!(connect(&path, SOON).unwrap().is_none());
        listen(&path, true).unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        assert_eq!(listen(&file, true).unwrap_err().kind(), Kind::Usage);
        assert_eq!(std::fs::read(&file).unwrap(), b"x");
    }

    #[test]
    fn it_is_seen_who_is_gone() {
        let (a, b) = UnixStream::pair().unwrap();
        assert!(!is_gone(&a) && !is_readable(&a, Some(Duration::ZERO)).unwrap());
        drop(b);
        assert!(is_gone(&a) && is_readable(&a, None).unwrap());
    }
}
