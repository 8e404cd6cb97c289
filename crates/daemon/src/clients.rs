//! A daemon as programs with several threads have it: as many connections as questions are asked at a time.

use crate::client::{Client, ended};
use crate::clock;
use crate::flows::{FlowStanding, FlowState};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Kind, Result};
use stead_stage::{Standing, State};

/// How often it is asked how far a transfer is, as long as somebody waits for it.
const LOOK: Duration = Duration::from_millis(100);
/// How long it is waited for a daemon that was ended, and started again.
const COMES_BACK: Duration = Duration::from_secs(20);
/// What a daemon that was started again has not yet taken up is said to be interrupted for no longer than this.
const TAKES_UP: Duration = Duration::from_secs(3);
/// Connections that are kept for the next question.
const MOST_IDLE: usize = 8;

/// Connections to one daemon. Several threads may ask; one that waits keeps nobody waiting.
pub struct Clients {
    path: PathBuf,
    /// Of another node than this one.
    node: Option<String>,
    /// Of an administrator who looks after the transfers of this user.
    user: Option<u32>,
    /// And the process that has connected: one that was forked connects anew, as both would read each other's answers.
    idle: Mutex<(u32, Vec<Client>)>,
}

impl Clients {
    /// Connects to the daemon that listens on this socket, or else to that of this node ([`Client::connect`]). None if there is none.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub fn open(path: Option<&Path>) -> Result<Option<Clients>> {
        Clients::open_on(path, None)
    }

    /// The same, to the daemon of another node of the pool.
    ///
    /// # Errors
    /// Those of [`Client::connect_on`].
    pub fn open_on(path: Option<&Path>, node: Option<&str>) -> Result<Option<Clients>> {
        let client = Client::led(path, node, None)?;
        Ok(client.map(|client| Clients::over(client, node.map(str::to_owned), None)))
    }

    /// The same daemon, as one of its administrators has it for the transfers of another user, see [`Client::manage`].
    ///
    /// # Errors
    /// Those of [`Client::manage`]; `Peer` if there is no daemon any more.
    pub fn manage(&self, user: u32) -> Result<Clients> {
        let node = self.node.clone();
        let client = Client::led(Some(&self.path), node.as_deref(), Some(user))?;
        let client = client.ok_or_else(|| ended(&self.path))?;
        Ok(Clients::over(client, node, Some(user)))
    }

    fn over(client: Client, node: Option<String>, user: Option<u32>) -> Clients {
        let path = client.path().to_owned();
        let idle = Mutex::new((std::process::id(), vec![client]));
        Clients { path, node, user, idle }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The node that it is of, if that was named.
    pub fn node(&self) -> Option<&str> {
        self.node.as_deref()
    }

    fn idle(&self) -> MutexGuard<'_, (u32, Vec<Client>)> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let process = std::process::id();
        if idle.0 != process {
            *idle = (process, Vec::new());
        }
        idle
    }

    /// Asks the daemon.
    ///
    /// # Errors
    /// Those of `question`; `Peer` if there is no daemon any more.
    pub fn ask<T>(&self, question: impl FnOnce(&mut Client) -> Result<T>) -> Result<T> {
        // A daemon that was replaced has ended those of before.
        let kept = std::iter::from_fn(|| self.idle().1.pop()).find(|client| !client.is_gone());
        let mut client = match kept {
            Some(client) => client,
            None => Client::led(Some(&self.path), self.node.as_deref(), self.user)?
                .ok_or_else(|| ended(&self.path))?,
        };
        let answer = question(&mut client);
        // The daemon goes on with what nobody waits for any more as long as there is the connection.
        if !client.is_gone() {
            let mut idle = self.idle();
            if idle.1.len() < MOST_IDLE {
                idle.1.push(client);
            }
        }
        answer
    }

    /// Waits until a flow is over, or so long if that is said, and says how far it is. `look` is told so about ten times a second; its error ends
    /// the wait.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; `Peer` if the daemon has ended, and its flows with it; that of `look`.
    pub fn wait_flow(
        &self,
        flow: i64,
        most: Option<Duration>,
        look: &mut dyn FnMut(&FlowStanding) -> Result<()>,
    ) -> Result<FlowStanding> {
        let until = most.and_then(|most| clock::now().checked_add(most));
        let left = || until.map_or(LOOK, |at| at.saturating_duration_since(clock::now()).min(LOOK));
        loop {
            let standing = self.ask(|client| client.wait_flow(flow, left()));
            let standing = standing.map_err(|e| match e.kind() {
                Kind::Peer => e.with_hint("flows end with their daemon: begin it anew"),
                _ => e,
            })?;
            if standing.state != FlowState::Running || left().is_zero() {
                return Ok(standing);
            }
            look(&standing)?;
        }
    }

    /// Waits until nothing more happens with a transfer, or so long if that is said, over the end of a daemon that is started again,
    /// and says how far it is. `look` is told so about ten times a second, or nothing while there is no daemon; its error ends the
    /// wait.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; `Peer` if the daemon has ended; `Timeout`; that of `look`.
    pub fn wait(
        &self,
        transfer: i64,
        most: Option<Duration>,
        look: &mut dyn FnMut(Option<&Standing>) -> Result<()>,
    ) -> Result<Standing> {
        let until = most.and_then(|most| clock::now().checked_add(most));
        let left = || until.map_or(LOOK, |at| at.saturating_duration_since(clock::now()).min(LOOK));
        let (mut gone, mut stopped) = (None::<Instant>, None::<Instant>);
        let lasts = |since: &mut Option<Instant>, most| {
            since.get_or_insert_with(clock::now).elapsed() < most
        };
        loop {
            match self.ask(|client| client.wait(transfer, left())) {
                Ok(standing) => {
                    gone = None;
                    let state = standing.status.state;
                    let taken_up = state == State::Interrupted && lasts(&mut stopped, TAKES_UP);
                    if (state.rests() && !taken_up) || left().is_zero() {
                        return Ok(standing);
                    }
                    look(Some(&standing))?;
                    match taken_up {
                        true => clock::pause(left()),
                        false => stopped = None,
                    }
                }
                Err(e) if e.kind() == Kind::Peer => {
                    if left().is_zero() || !lasts(&mut gone, COMES_BACK) {
                        return Err(e);
                    }
                    look(None)?;
                    clock::pause(left());
                }
                Err(e) => return Err(e),
            }
        }
    }
}
