//! What a service manager (systemd) is told that has started the daemon and waits for it: that programs can connect, and that it ends.

use crate::log::log;
use std::ffi::OsStr;
use std::io::Result;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The variable that names the socket of a manager which wants to be told. Workers are none of its services.
pub(crate) const SOCKET: &str = "NOTIFY_SOCKET";
/// Programs can connect.
pub(crate) const READY: &str = "READY=1";
/// No program can any more.
pub(crate) const STOPPING: &str = "STOPPING=1";
/// How long the manager has to take it.
const TAKES_WITHIN: Duration = Duration::from_secs(5);

/// Tells it, if there is a manager that wants to be told.
pub(crate) fn tell(what: &str) {
    let Some(socket) = std::env::var_os(SOCKET).filter(|socket| !socket.is_empty()) else { return };
    if let Err(e) = send(&socket, what) {
        // Programs are served none the less; a manager that waits in vain says so itself.
        log(&format!("cannot say {what} to '{}': {e}", socket.display()));
    }
}

fn send(socket: &OsStr, what: &str) -> Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        // A name that is none of a file.
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let teller = UnixDatagram::unbound()?;
    teller.set_write_timeout(Some(TAKES_WITHIN))?;
    teller.send_to_addr(what.as_bytes(), &address).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(manager: &UnixDatagram) -> Vec<u8> {
        manager.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut words = [0; 64];
        let len = manager.recv(&mut words).unwrap();
        words[..len].to_vec()
    }

    #[test]
    fn a_manager_is_told_by_a_file_or_by_a_name_that_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notify");
        assert!(send(path.as_os_str(), READY).is_err());
        let manager = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str(), READY).unwrap();
        send(path.as_os_str(), STOPPING).unwrap();
        assert_eq!(heard(&manager), b"READY=1");
        assert_eq!(heard(&manager), b"STOPPING=1");
        // As containers have it.
        let name = format!("stead-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        send(OsStr::new(&format!("@{name}")), READY).unwrap();
        assert_eq!(heard(&manager), b"READY=1");
    }
}
