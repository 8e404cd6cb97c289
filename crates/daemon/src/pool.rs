//! A pool: daemons of several nodes that hand connections of their users to each other, over a fabric.
//!
//! A connection to another node is a tunnel: the daemon of this node passes on its bytes, which it does not read, and the daemon
//! there hands the other end to the worker of the same user as it does with connections of its own socket.

mod tunnel;
pub mod word;

use crate::protocol::{Answer, Failed};
use crate::refuse::refuse;
use crate::{clock, frame};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use stead_core::{Error, Kind, Result, is_node};
use stead_fabric::Fabric;
use tunnel::{Key, Tunnel};
use word::Word;

/// Words about tunnels, and the first ones, by which daemons know each other.
const TAG: u32 = 1;
const HAIL: u32 = 2;
/// What daemons of a pool speak.
const LANGUAGE: u32 = 1;
/// How long daemons wait for the others to come.
const TOGETHER_WITHIN: Duration = Duration::from_secs(120);
/// How often it is looked whether the others are there, and whether this one is to end.
const LOOK: Duration = Duration::from_millis(250);
/// Tunnels of a daemon, and of one user of it.
const MOST: usize = 1024;
const MOST_OF_USER: usize = 128;
/// How long tunnels have to end when the daemon does.
const ENDS_WITHIN: Duration = Duration::from_secs(5);

/// The first word.
#[derive(Debug, Serialize, Deserialize)]
struct Hail {
    language: u32,
    version: String,
    node: String,
}

/// A connection that a user has on another node wants to one of this node.
pub(crate) struct Asked {
    pub(crate) user: u32,
    pub(crate) name: String,
    /// What it comes from.
    pub(crate) node: String,
    pub(crate) stream: UnixStream,
}

/// The daemons of other nodes.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    bell: UnixStream,
    hears: Option<JoinHandle<()>>,
}

struct Shared {
    fabric: Arc<dyn Fabric>,
    /// The names of nodes, by ranks.
    nodes: Vec<String>,
    tunnels: Mutex<HashMap<Key, Arc<Tunnel>>>,
    numbers: AtomicU64,
    asked: Mutex<Vec<Asked>>,
    rings: UnixStream,
    ending: AtomicBool,
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// Waits for the daemons of all nodes. `node` is the name of this one.
    ///
    /// # Errors
    /// `Usage` for two daemons of one name, names that are none, other versions; `Peer` if one does not come.
    pub(crate) fn begin(fabric: Arc<dyn Fabric>, node: &str) -> Result<Pool> {
        let nodes = meet(&*fabric, node)?;
        let failed = |e| Error::io("make", "a pipe", e);
        let (bell, rings) = UnixStream::pair().map_err(failed)?;
        bell.set_nonblocking(true).and_then(|()| rings.set_nonblocking(true)).map_err(failed)?;
        let shared = Arc::new(Shared {
            fabric,
            nodes,
            tunnels: Mutex::default(),
            numbers: AtomicU64::new(0),
            asked: Mutex::default(),
            rings,
            ending: AtomicBool::new(false),
        });
        let hears = {
            let shared = shared.clone();
            std::thread::Builder::new()
                .name("stead-pool".into())
                .spawn(move || shared.hear())
                .map_err(|e| Error::io("start a thread", "this process", e))?
        };
        Ok(Pool { shared, bell, hears: Some(hears) })
    }

    /// The names of all nodes.
    pub(crate) fn nodes(&self) -> &[String] {
        &self.shared.nodes
    }

    /// There is something to read if somebody has asked.
    pub(crate) fn bell(&self) -> &UnixStream {
        &self.bell
    }

    /// Connections that others want to users of this node.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        let mut rung = [0; 64];
        while (&self.bell).read(&mut rung).is_ok_and(|n| n > 0) {}
        std::mem::take(&mut *locked(&self.shared.asked))
    }

    /// Passes what comes from a connection of a user on to the worker of this user on another node, and back.
    pub(crate) fn reach(&self, user: u32, name: &str, node: &str, stream: UnixStream) {
        if let Err((e, stream)) = self.shared.open(user, name, node, stream) {
            refuse(&stream, &e);
        }
    }

    /// Ends all tunnels.
    pub(crate) fn end(&mut self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        if let Some(hears) = self.hears.take() {
            let _ = hears.join();
        }
        self.shared.all().iter().for_each(|tunnel| tunnel.end());
        let until = clock::now() + ENDS_WITHIN;
        while !locked(&self.shared.tunnels).is_empty() && clock::now() < until {
            clock::pause(Duration::from_millis(5));
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.end();
    }
}

/// Exchanges names.
fn meet(fabric: &dyn Fabric, node: &str) -> Result<Vec<String>> {
    let hail = Hail {
        language: LANGUAGE,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: node.to_owned(),
    };
    let text = serde_json::to_vec(&hail)
        .map_err(|e| Error::internal(format!("no text of a first word: {e}")))?;
    let others = (0..fabric.size()).filter(|rank| *rank != fabric.rank());
    for rank in others {
        fabric.send(rank, HAIL, text.clone())?;
    }
    let until = clock::now() + TOGETHER_WITHIN;
    let mut nodes = Vec::with_capacity(fabric.size());
    for rank in 0..fabric.size() {
        if rank == fabric.rank() {
            nodes.push(node.to_owned());
            continue;
        }
        let left = until.saturating_duration_since(clock::now());
        let came = fabric.recv_within(rank, HAIL, left)?.ok_or_else(|| {
            let seconds = TOGETHER_WITHIN.as_secs();
            Error::new(Kind::Peer, format!("its daemon has not come within {seconds} s"))
                .at_rank(rank)
        })?;
        let odd = |what: String| Error::format(what).at_rank(rank);
        let hail: Hail = serde_json::from_slice(&came)
            .map_err(|_| odd("a daemon of the pool says its name in another way".into()))?;
        if (hail.language, &*hail.version) != (LANGUAGE, env!("CARGO_PKG_VERSION")) {
            let message = format!("this daemon is of version {}", hail.version);
            return Err(odd(message).with_hint("a pool has daemons of one version"));
        }
        nodes.push(hail.node);
    }
    for (rank, node) in nodes.iter().enumerate() {
        let error = |what: &str| Error::usage(format!("'{node}' {what}")).at_rank(rank);
        if !is_node(node) {
            return Err(error("is no name of a node").with_hint("give one: --name NODE"));
        }
        if nodes.iter().take(rank).any(|other| other == node) {
            return Err(error("is the name of two daemons").with_hint(
                "one daemon a node is started: mpirun --map-by ppr:1:node, srun --ntasks-per-node=1; or name them: --name 'node%r'",
            ));
        }
    }
    Ok(nodes)
}

impl Shared {
    fn all(&self) -> Vec<Arc<Tunnel>> {
        locked(&self.tunnels).values().cloned().collect()
    }

    fn node(&self, rank: usize) -> &str {
        self.nodes.get(rank).map_or("?", String::as_str)
    }

    fn gone(&self, rank: usize, why: &Error) -> Error {
        Error::new(Kind::Peer, format!("the daemon of node '{}' is gone: {why}", self.node(rank)))
            .with_hint("it is started again with the pool; what was taken goes on then")
    }

    /// Puts a tunnel where it is found, if there may be one more.
    fn add(&self, tunnel: &Arc<Tunnel>) -> Result<()> {
        let mut tunnels = locked(&self.tunnels);
        let of_user = tunnels.values().filter(|other| other.user == tunnel.user).count();
        if tunnels.len() >= MOST || of_user >= MOST_OF_USER {
            let message = match of_user >= MOST_OF_USER {
                true => format!("this user has {MOST_OF_USER} connections to other nodes already"),
                false => format!("{MOST} connections to other nodes are open already"),
            };
            return Err(Error::limit(message).with_hint("try again when others have ended: each reader of a stream has two to every node that writers of it are on, so have fewer of them read what other nodes have, or gather it in one and hand it on"));
        }
        if tunnels.contains_key(&tunnel.key) {
            return Err(Error::format("a tunnel was opened twice").at_rank(tunnel.key.peer));
        }
        tunnels.insert(tunnel.key, tunnel.clone());
        Ok(())
    }

    fn open(
        self: &Arc<Self>,
        user: u32,
        name: &str,
        node: &str,
        stream: UnixStream,
    ) -> std::result::Result<(), (Error, UnixStream)> {
        let none = || {
            let some: Vec<&str> = self.nodes.iter().take(8).map(String::as_str).collect();
            let more = if self.nodes.len() > 8 { ", ..." } else { "" };
            let message = format!("there is no node '{node}' in this pool");
            Error::new(Kind::NotFound, message)
                .with_hint(format!("its nodes are {}{more}", some.join(", ")))
        };
        let Some(peer) = self.nodes.iter().position(|other| other == node) else {
            return Err((none(), stream));
        };
        if peer == self.fabric.rank() {
            let e = Error::usage(format!("node '{node}' is this one"));
            return Err((e.with_hint("name its files without the node"), stream));
        }
        if let Err(e) = self.fabric.alive(peer) {
            return Err((self.gone(peer, &e), stream));
        }
        let Ok(second) = stream.try_clone() else {
            return Err((Error::limit("too many open files of the daemon"), stream));
        };
        // The worker that has led it here had times for its frames: whoever is at the ends may say nothing for hours.
        let waits = second.set_nonblocking(false).and_then(|()| second.set_read_timeout(None));
        if let Err(e) = waits.and_then(|()| second.set_write_timeout(None)) {
            return Err((Error::io("set up", "a connection", e), stream));
        }
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let key = Key { peer, mine: true, number };
        let tunnel = Arc::new(Tunnel::new(key, user, second));
        let first = word::write(true, number, &Word::Open { user, name });
        self.start(tunnel, Some(first)).map_err(|e| (e, stream))
    }

    fn start(self: &Arc<Self>, tunnel: Arc<Tunnel>, first: Option<Vec<u8>>) -> Result<()> {
        self.add(&tunnel)?;
        let (shared, key) = (self.clone(), tunnel.key);
        let begun = tunnel.begin(&self.fabric, first, move || {
            locked(&shared.tunnels).remove(&key);
        });
        begun.inspect_err(|_| drop(locked(&self.tunnels).remove(&key)))
    }

    /// Takes what others say, until this one ends.
    fn hear(self: Arc<Self>) {
        let mut looked = clock::now();
        while !self.ending.load(Ordering::Relaxed) {
            match self.fabric.recv_any(TAG, LOOK) {
                Ok(Some((from, bytes))) => self.take(from, bytes),
                Ok(None) => {}
                Err(e) => {
                    // Nobody can be reached any more.
                    crate::log::log(&format!("the pool has ended: {e}"));
                    self.all()
                        .iter()
                        .for_each(|tunnel| tunnel.lose(&self.gone(tunnel.key.peer, &e)));
                    return;
                }
            }
            if looked.elapsed() >= LOOK {
                looked = clock::now();
                self.look();
            }
        }
    }

    /// Ends tunnels to daemons that are gone.
    fn look(&self) {
        let mut looked = HashMap::new();
        for tunnel in self.all() {
            let peer = tunnel.key.peer;
            let gone = looked.entry(peer).or_insert_with(|| match self.fabric.alive(peer) {
                Err(e) => Some(self.gone(peer, &e)),
                Ok(()) if self.fabric.ends(peer) => {
                    Some(self.gone(peer, &Error::new(Kind::Peer, "it has ended")))
                }
                Ok(()) => None,
            });
            if let Some(e) = gone {
                tunnel.lose(e);
            }
        }
    }

    fn take(self: &Arc<Self>, from: usize, bytes: Vec<u8>) {
        let odd = |e: &Error| crate::log::log(&format!("node '{}': {e}", self.node(from)));
        let (mine, number, word) = match word::read(&bytes) {
            Ok(read) => read,
            Err(e) => return odd(&e),
        };
        // What the sender has opened was not opened here.
        let key = Key { peer: from, mine: !mine, number };
        if let Word::Open { user, name } = word {
            return match mine {
                true => self.let_in(key, user, name),
                false => odd(&Error::format("a tunnel is opened by the other end")),
            };
        }
        // It may have ended here while this was on its way.
        let Some(tunnel) = locked(&self.tunnels).get(&key).cloned() else { return };
        let fits = match word {
            Word::Data(_) => tunnel.put(bytes),
            Word::Credit(more) => tunnel.give_credit(more),
            Word::Close | Word::Open { .. } => {
                tunnel.closed();
                true
            }
        };
        if !fits {
            odd(&Error::format("more was sent than there is room for"));
            tunnel.end();
        }
    }

    /// Somebody on another node wants a connection: whether it gets one whoever has the workers says.
    fn let_in(self: &Arc<Self>, key: Key, user: u32, name: &str) {
        let Ok((inner, outer)) = UnixStream::pair() else {
            return self.send_away(key, Error::limit("too many open files of the daemon"));
        };
        let tunnel = Arc::new(Tunnel::new(key, user, inner));
        match self.start(tunnel, None) {
            Ok(()) => {
                let node = self.node(key.peer).to_owned();
                let asked = Asked { user, name: name.to_owned(), node, stream: outer };
                locked(&self.asked).push(asked);
                // A bell that is full has been rung.
                let _ = (&self.rings).write(&[1]);
            }
            // What is said about a number that is in use would be about the other one, too.
            Err(e) if e.kind() == Kind::Format => {
                crate::log::log(&format!("node '{}': {e}", self.node(key.peer)));
                self.close(key);
            }
            Err(e) => self.send_away(key, e),
        }
    }

    /// Ends what was asked for with an error: the program at the other end hears it from its own daemon.
    fn send_away(&self, key: Key, e: Error) {
        // What one user may have a thousand times a second is not written down each time.
        if e.kind() != Kind::Limit {
            crate::log::log(&format!("node '{}': {e}", self.node(key.peer)));
        }
        let e = e.and(&format!(", on node '{}'", self.node(self.fabric.rank())));
        let mut said = Vec::new();
        if frame::write(&mut said, &Answer::Failed(Failed::from(&e))).is_ok() {
            let word = word::write(key.mine, key.number, &Word::Data(&said));
            let _ = self.fabric.send(key.peer, TAG, word);
        }
        self.close(key);
    }

    /// Tells the other end that there is no such tunnel.
    fn close(&self, key: Key) {
        let _ = self.fabric.send(key.peer, TAG, word::write(key.mine, key.number, &Word::Close));
    }
}

#[cfg(test)]
mod tests;
