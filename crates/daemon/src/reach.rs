//! The workers of one user on other nodes, as a worker asks them, and as a program does.

use crate::client::Client;
use crate::control::{self, Report};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_core::{Error, Kind, Result};
use stead_stage::remote::{Line, Part, Question, Reach, Reply};
use stead_stream::Patience;

/// Connections that the broker makes.
#[derive(Debug)]
pub(crate) struct ByBroker {
    control: Arc<OwnedFd>,
}

impl ByBroker {
    pub(crate) fn new(control: Arc<OwnedFd>) -> ByBroker {
        ByBroker { control }
    }
}

/// Has the broker make a connection to another node, whose hello comes within this patience. What is `first` goes there at once.
///
/// # Errors
/// `Peer` if the daemon of either node is gone; `Timeout`, and that of what ends the wait.
pub(crate) fn led(
    control: &OwnedFd,
    node: &str,
    first: &[u8],
    patience: Option<&Patience>,
) -> Result<Client> {
    let failed = |e| Error::io("make", "a connection", e);
    let (mut ours, theirs) = UnixStream::pair().map_err(failed)?;
    // Nobody reads it yet: there is room for the little that is said first, or nobody waits for it.
    ours.set_nonblocking(true).and_then(|()| ours.write_all(first)).map_err(failed)?;
    ours.set_nonblocking(false).map_err(failed)?;
    let report = Report::Reach { node: node.to_owned() };
    control::send(control, &report, Some(theirs.as_fd()), true).map_err(|e| {
        let message = format!("the daemon of this node has ended: {e}");
        Error::new(Kind::Peer, message)
    })?;
    drop(theirs);
    Client::begin(ours, Path::new(node), Some(node.to_owned()), patience)
}

impl Reach for ByBroker {
    fn line(&self, node: &str) -> Result<Box<dyn Line>> {
        let client = led(&self.control, node, &[], None)?;
        Ok(Box::new(Far { client, room: Vec::new() }))
    }
}

/// Connections that a program makes, by way of the daemon of its own node.
#[derive(Debug, Default)]
pub struct ByDaemon {
    path: Option<PathBuf>,
}

impl ByDaemon {
    /// By the daemon that listens on this socket, or else as [`Client::connect`] finds it.
    pub fn new(path: Option<&Path>) -> ByDaemon {
        ByDaemon { path: path.map(Path::to_owned) }
    }
}

impl Reach for ByDaemon {
    fn line(&self, node: &str) -> Result<Box<dyn Line>> {
        let none = || {
            Error::usage(format!("node '{node}' is not reached: no daemon runs here")).with_hint(
                "daemons that are a pool reach each other: mpirun stead daemon --pool; a file of such a name here is ./NAME",
            )
        };
        let client = Client::connect_on(self.path.as_deref(), node)?.ok_or_else(none)?;
        Ok(Box::new(Far { client, room: Vec::new() }))
    }
}

/// A connection to the worker of another node.
struct Far {
    client: Client,
    /// What bytes come by.
    room: Vec<u8>,
}

impl Line for Far {
    fn ask(&mut self, question: &Question) -> Result<Reply> {
        self.client.source(question)
    }

    fn read(
        &mut self,
        question: &Question,
        each: &mut dyn FnMut(Part<'_>) -> Result<()>,
    ) -> Result<Reply> {
        self.client.source_parts(question, &mut self.room, each).map_err(|e| match e.kind() {
            // Cut off in the middle: the other end is gone.
            Kind::Format if self.client.is_gone() => {
                Error::new(Kind::Peer, e.message()).with_hint("it is tried again")
            }
            _ => e,
        })
    }
}
