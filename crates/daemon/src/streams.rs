//! Streams of other nodes of the pool, as a program reads them, and as a flow of a worker does.

use crate::client::Client;
use crate::frame;
use crate::protocol::{Ask, StreamWay};
use crate::reach::led;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_core::{Error, Kind, Result};
use stead_stream::{Names, Nodes, Patience, Way};

/// The other nodes of the pool that the daemon of this node is in. Without a daemon, or a pool, there are none.
#[derive(Debug, Default)]
pub struct StreamNodes {
    path: Option<PathBuf>,
    only: Option<Vec<String>>,
}

impl StreamNodes {
    /// By the daemon that listens on this socket, or else as [`Client::connect`] finds it.
    pub fn new(path: Option<&Path>) -> StreamNodes {
        StreamNodes { path: path.map(Path::to_owned), only: None }
    }

    /// As readers have them unless they are told others.
    pub fn usual() -> Option<Arc<dyn Nodes>> {
        Some(Arc::new(StreamNodes::default()))
    }

    /// No others than these: where writers are known, no other node is asked.
    #[must_use]
    pub fn only(self, names: Vec<String>) -> StreamNodes {
        StreamNodes { only: Some(names), ..self }
    }
}

impl Nodes for StreamNodes {
    fn names(&self, patience: &Patience) -> Result<Names> {
        let client = Client::connect_within(self.path.as_deref(), patience)?;
        let (all, here) = match client {
            Some(mut client) => (client.nodes()?, Some(client.hello().node.clone())),
            None => (Vec::new(), None),
        };
        wanted(all, here, self.only.as_deref())
    }

    fn are_named(&self) -> bool {
        self.only.is_some()
    }

    fn connect(
        &self,
        node: &str,
        number: u64,
        way: Way,
        first: &[u8],
        patience: &Patience,
    ) -> Result<UnixStream> {
        let none = || Error::new(Kind::Peer, "the daemon of this node has ended");
        let (path, asked) = (self.path.as_deref(), asked(number, way));
        Client::stream_on(path, node, &asked, first, patience)?.ok_or_else(none)
    }

    fn among(&self, names: Vec<String>) -> Arc<dyn Nodes> {
        Arc::new(StreamNodes::new(self.path.as_deref()).only(names))
    }
}

/// The same for a worker, which has the broker make its connections.
#[derive(Debug)]
pub(crate) struct ByWorker {
    control: Arc<OwnedFd>,
    here: String,
    all: Arc<[String]>,
    only: Option<Vec<String>>,
}

impl ByWorker {
    pub(crate) fn new(control: Arc<OwnedFd>, here: String, all: Arc<[String]>) -> ByWorker {
        ByWorker { control, here, all, only: None }
    }
}

impl Nodes for ByWorker {
    fn names(&self, _: &Patience) -> Result<Names> {
        wanted(self.all.to_vec(), Some(self.here.clone()), self.only.as_deref())
    }

    fn are_named(&self) -> bool {
        self.only.is_some()
    }

    fn connect(
        &self,
        node: &str,
        number: u64,
        way: Way,
        first: &[u8],
        patience: &Patience,
    ) -> Result<UnixStream> {
        let mut said = Vec::new();
        frame::write_all(&mut said, &[&asked(number, way)], first)?;
        led(&self.control, node, &said, Some(patience))?.has_stream()
    }

    fn among(&self, names: Vec<String>) -> Arc<dyn Nodes> {
        let (control, here, all) = (self.control.clone(), self.here.clone(), self.all.clone());
        Arc::new(ByWorker { control, here, all, only: Some(names) })
    }
}

/// Of all nodes those that are asked.
fn wanted(all: Vec<String>, here: Option<String>, only: Option<&[String]>) -> Result<Names> {
    let mut others: Vec<String> = match only {
        None => all,
        Some(only) => {
            if let Some(name) = only.iter().find(|name| !all.contains(name)) {
                let (kind, message) = match all.is_empty() {
                    true => {
                        (Kind::Peer, format!("node '{name}' is not reached: no daemon runs here"))
                    }
                    false => (Kind::NotFound, format!("there is no node '{name}' in the pool")),
                };
                return Err(Error::new(kind, message).with_hint(
                    "daemons that are a pool reach each other: mpirun stead daemon --pool",
                ));
            }
            only.to_vec()
        }
    };
    others.retain(|name| Some(name) != here.as_ref());
    others.sort_unstable();
    others.dedup();
    Ok(Names { here, others })
}

/// What a connection about streams is asked for by.
fn asked(number: u64, way: Way) -> Ask {
    let way = match way {
        Way::Errands => StreamWay::Errands,
        Way::Asks => StreamWay::Asks,
    };
    Ask::Stream { number, way }
}
