//! What the broker and a worker say to each other: whole packets, some with a connection.
//!
//! A worker has the rights of a user: the broker believes nothing of what it says but how much it has to do, and what one of an
//! administrator says only after it has checked it.

use crate::admin::{Change, Numbers};
use crate::protocol::Failed;
use rustix::io::Errno;
use rustix::net::sockopt::{socket_domain, socket_type};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{IoSlice, IoSliceMut};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use stead_core::{Error, Result};
use stead_stage::Kind;

/// Bytes of a packet.
const MOST: usize = 32 << 10;

/// From the broker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    /// The first one: where the journal is, threads of a transfer, and whose rights are taken, if any.
    /// In a pool with a file that has the names of all nodes, as a list in JSON.
    Begin {
        state: String,
        threads: usize,
        /// Bytes of the journal.
        journal: u64,
        rights: Option<Owner>,
        /// Where that is kept which administrators say.
        kept: String,
        /// The user is one of them.
        admin: bool,
        /// The name of the node.
        node: String,
    },
    /// With a connection: of the user, or, if it is `managed`, of an administrator who looks after the user's transfers.
    Serve { managed: bool },
    /// What may be done from now on, under a number that grows: transfers at a time by the dataspaces that they touch, bytes a second in
    /// these, and those of them in which no more transfers may begin.
    Share {
        number: u64,
        kinds: Vec<(Vec<String>, usize)>,
        rates: BTreeMap<String, Option<f64>>,
        full: BTreeSet<String>,
    },
    /// Administrators have said something.
    Renew,
    /// What came of what was asked under this number.
    Told { ticket: u64, failed: Option<Failed>, users: Vec<Numbers> },
    /// Bytes that are still to come of all others, in the dataspace that was asked of under this number.
    Others { ticket: u64, bytes: u64 },
    /// Transfers under way of all users, by the dataspaces in which they share something, as was asked under this number.
    Counted { ticket: u64, running: BTreeMap<String, u64> },
    /// Nobody is sent any more: end.
    End,
}

/// Whose rights a worker takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) name: String,
    pub(crate) home: String,
}

impl Owner {
    /// A variable of the environment, as after a login.
    pub(crate) fn variable(&self, name: &str) -> Option<String> {
        match name {
            "HOME" => Some(self.home.clone()),
            "USER" | "LOGNAME" => Some(self.name.clone()),
            _ => None,
        }
    }
}

/// From a worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Report {
    /// How much there is to do, and the number of what was heard last: nothing is begun by anything older.
    Load { seen: u64, kinds: Vec<Kind>, next: Vec<usize> },
    /// There has been nothing to do for a while, after so many connections.
    Idle { served: u64 },
    /// How much was done, for administrators.
    Numbers(Numbers),
    /// An administrator says something.
    Admin { ticket: u64, change: Change },
    /// So many bytes are still to come in a dataspace with a quota, wanted ones among them. With a number other than 0 it is asked how many
    /// there are of others.
    Coming { ticket: u64, name: String, bytes: u64 },
    /// It is asked how many transfers of all users are under way in each dataspace.
    Count { ticket: u64 },
    /// What jobs that are over have left was removed.
    Cleared { dataspaces: BTreeSet<String> },
    /// With a connection, which is to lead to the worker of this user on another node.
    Reach { node: String },
    /// With a connection of an administrator, which is to lead to the worker of another user.
    Manage { user: u32 },
}

/// Both ends, for the broker and for a worker.
///
/// # Errors
/// System errors.
pub(crate) fn pair() -> Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|e| failed("make", e))
}

/// Sends a packet. False if there is no room for it and it was not to `wait`.
///
/// # Errors
/// System errors; those of the other end being gone.
pub(crate) fn send(
    to: &OwnedFd,
    value: &impl Serialize,
    with: Option<BorrowedFd<'_>>,
    wait: bool,
) -> Result<bool> {
    let bytes = serde_json::to_vec(value)
        .map_err(|e| Error::internal(format!("no text of a packet: {e}")))?;
    if bytes.len() > MOST {
        // The other end would take a part of it.
        return Err(Error::limit(format!(
            "{} bytes are too much for a packet of {MOST}",
            bytes.len()
        )));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut more = SendAncillaryBuffer::new(&mut space);
    let fds = with.map(|fd| [fd]);
    if let Some(fds) = &fds {
        more.push(SendAncillaryMessage::ScmRights(fds));
    }
    let flags = if wait { SendFlags::NOSIGNAL } else { SendFlags::NOSIGNAL | SendFlags::DONTWAIT };
    loop {
        match sendmsg(to, &[IoSlice::new(&bytes)], &mut more, flags) {
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(false),
            Err(e) => return Err(failed("write to", e)),
        }
    }
}

/// A descriptor that came with a packet. A worker may have sent anything, and to close a file takes as long as those like who have
/// its file system: what is no socket of this system a thread closes.
#[derive(Debug)]
pub(crate) struct Handed(Option<OwnedFd>);

/// Descriptors that are being closed at a time. Others are left open.
const MOST_CLOSING: usize = 64;
static CLOSING: AtomicUsize = AtomicUsize::new(0);

impl Handed {
    /// A connection, if it is one.
    pub(crate) fn stream(mut self) -> Option<UnixStream> {
        let fd = self.0.take_if(|fd| {
            socket_domain(&*fd).is_ok_and(|domain| domain == AddressFamily::UNIX)
                && socket_type(&*fd).is_ok_and(|kind| kind == SocketType::STREAM)
        });
        fd.map(UnixStream::from)
    }

    /// Whatever it is, of somebody who is believed.
    pub(crate) fn any(mut self) -> Option<OwnedFd> {
        self.0.take()
    }
}

impl Drop for Handed {
    fn drop(&mut self) {
        let Some(fd) = self.0.take() else { return };
        if socket_domain(&fd).is_ok_and(|domain| domain == AddressFamily::UNIX) {
            return;
        }
        // Where there is no thread for it, it stays open.
        let fd = ManuallyDrop::new(fd);
        if CLOSING.fetch_add(1, Ordering::Relaxed) < MOST_CLOSING {
            let thread = std::thread::Builder::new().name("stead-close".into());
            let begun = thread.stack_size(64 << 10).spawn(move || {
                drop(ManuallyDrop::into_inner(fd));
                CLOSING.fetch_sub(1, Ordering::Relaxed);
            });
            if begun.is_ok() {
                return;
            }
        }
        CLOSING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes a packet of a worker, and the connection that came with it if it is to have one.
///
/// # Errors
/// `Format` for what no worker sends; system errors.
pub(crate) fn report(from: &impl AsFd) -> Result<Option<(Report, Option<UnixStream>)>> {
    let Some((report, handed)) = receive::<Report>(from)? else { return Ok(None) };
    let odd = || Error::format("a worker sends something else than a connection");
    let stream = match (&report, handed) {
        (_, None) => None,
        (Report::Reach { .. } | Report::Manage { .. }, Some(handed)) => {
            Some(handed.stream().ok_or_else(odd)?)
        }
        (_, Some(_)) => return Err(odd()),
    };
    Ok(Some((report, stream)))
}

/// Takes a packet, with what came with it; none if the other end is gone. Waits for it.
///
/// # Errors
/// `Format` for what is not understood; system errors.
pub(crate) fn receive<T: DeserializeOwned>(
    from: &impl AsFd,
) -> Result<Option<(T, Option<Handed>)>> {
    let mut bytes = [0u8; MOST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut more = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        let flags = RecvFlags::CMSG_CLOEXEC;
        match recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut more, flags) {
            Ok(got) => break got,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            Err(e) => return Err(failed("read from", e)),
        }
    };
    let mut fd = None;
    for message in more.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            // More than one nobody has asked for; they are closed.
            fds.for_each(|one| fd = Some(Handed(Some(one))));
        }
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    let bad = |e: serde_json::Error| {
        Error::format(format!("a packet between daemon and worker is not understood: {e}"))
    };
    let bytes = bytes.get(..got.bytes).unwrap_or_default();
    serde_json::from_slice(bytes).map(|value| Some((value, fd))).map_err(bad)
}

fn failed(doing: &str, e: Errno) -> Error {
    Error::io(doing, "the socket between daemon and worker", e.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use stead_core::Kind;

    /// What may be done, of so many kinds.
    fn share(n: usize) -> Order {
        let kind =
            |i: usize| -> Vec<String> { (0..8).map(|j| format!("{:0>64}", i * 8 + j)).collect() };
        let kinds: Vec<(Vec<String>, usize)> = (0..n).map(|i| (kind(i), 65_535)).collect();
        Order::Share { number: 1, kinds, rates: BTreeMap::new(), full: BTreeSet::new() }
    }

    #[test]
    fn all_that_may_be_told_of_fits() {
        let (a, b) = pair().unwrap();
        assert!(send(&a, &share(32), None, false).unwrap());
        assert_eq!(receive::<Order>(&b).unwrap().unwrap().0, share(32));
        let Order::Share { kinds, .. } = share(32) else { panic!() };
        let all = kinds.into_iter().map(|(touches, _)| stead_stage::Kind {
            touches,
            running: 1 << 20,
            ready: 1 << 20,
        });
        let load = Report::Load { seen: u64::MAX, kinds: all.collect(), next: vec![31; 512] };
        assert!(send(&b, &load, None, false).unwrap());
        assert_eq!(receive::<Report>(&a).unwrap().unwrap().0, load);
    }

    #[test]
    fn packets_carry_connections() {
        let (a, b) = pair().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        let serve = Order::Serve { managed: true };
        assert!(send(&a, &serve, Some(far.as_fd()), false).unwrap());
        assert!(send(&a, &share(3), None, true).unwrap());
        drop(far);
        let (order, fd) = receive::<Order>(&b).unwrap().unwrap();
        assert_eq!(order, serve);
        fd.unwrap().stream().unwrap().write_all(b"x").unwrap();
        let mut all = Vec::new();
        near.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"x");
        let (order, fd) = receive::<Order>(&b).unwrap().unwrap();
        assert!(order == share(3) && fd.is_none());
        // What a worker says that is none of this is an error.
        assert!(send(&b, &"nonsense", None, true).unwrap());
        assert_eq!(receive::<Report>(&a).unwrap_err().kind(), Kind::Format);
        drop(a);
        assert!(receive::<Order>(&b).unwrap().is_none());
        assert!(send(&b, &Report::Idle { served: 1 }, None, true).is_err());
    }

    #[test]
    fn workers_hand_over_connections_and_nothing_else() {
        let (a, b) = pair().unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        // What blocks whoever reads it, writes to it or closes it.
        let (read, write) = rustix::pipe::pipe().unwrap();
        let (packet, _other) = pair().unwrap();
        for leads in [Report::Reach { node: "n".into() }, Report::Manage { user: 7 }] {
            assert!(send(&b, &leads, Some(far.as_fd()), true).unwrap());
            let (got, stream) = report(&a).unwrap().unwrap();
            assert!(got == leads && stream.is_some());
            assert!(send(&b, &leads, None, true).unwrap());
            assert!(report(&a).unwrap().unwrap().1.is_none());
            for odd in [read.as_fd(), packet.as_fd()] {
                assert!(send(&b, &leads, Some(odd), true).unwrap());
                assert_eq!(report(&a).unwrap_err().kind(), Kind::Format);
            }
        }
        assert!(send(&b, &Report::Idle { served: 1 }, Some(near.as_fd()), true).unwrap());
        assert_eq!(report(&a).unwrap_err().kind(), Kind::Format);
        // Nobody keeps it.
        drop(read);
        let until = crate::clock::now() + std::time::Duration::from_secs(60);
        while rustix::io::write(&write, b"x").is_ok() {
            assert!(crate::clock::now() < until, "it is still open");
            crate::clock::pause(std::time::Duration::from_millis(5));
        }
    }

    #[test]
    fn what_is_too_long_is_not_sent() {
        let (a, b) = pair().unwrap();
        let dataspaces = (0..200).map(|i| format!("{i}{}", "x".repeat(200))).collect();
        let change = Change::Job { job: "1".into(), user: 1, dataspaces };
        let report = Report::Admin { ticket: 1, change };
        assert_eq!(send(&b, &report, None, true).unwrap_err().kind(), Kind::Limit);
        assert!(send(&b, &Report::Idle { served: 2 }, None, true).unwrap());
        assert_eq!(receive::<Report>(&a).unwrap().unwrap().0, Report::Idle { served: 2 });
    }

    #[test]
    fn who_does_not_listen_is_not_waited_for() {
        let (a, _b) = pair().unwrap();
        let sent = (0..100_000).take_while(|_| send(&a, &Order::Renew, None, false).unwrap());
        assert!(sent.count() < 100_000);
    }
}
