//! A program's connection to the daemon of its node.

use crate::clock;
use crate::frame;
use crate::protocol::{AdminAnswer, AdminAsk, Answer, Ask, Hello, PROTOCOL};
use crate::socket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_model::transfer::Remaining;
use stead_stage::{Preview, Request, Standing, Status, Usage, fixed};

/// How long the daemon may think about an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(90);
/// Who is sent away without a word comes again so often, after a pause that grows.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);
/// How long one question waits for a transfer; longer waits are several.
const WAITS: Duration = Duration::from_secs(600);

/// A connection to a daemon. One question at a time; who wants to wait in one thread and ask in another has two.
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    hello: Hello,
    /// A question was asked whose answer has not come.
    open: bool,
}

impl Client {
    /// Connects to the daemon of this node: the user's own one (`$STEAD_SOCKET`, or `$XDG_RUNTIME_DIR/stead/steadd.sock`), or that
    /// of the system. None if there is none; nor if `STEAD_SOCKET` is set to `none`.
    ///
    /// # Errors
    /// `Permission` if somebody else listens there; `Timeout`; what the daemon refuses with.
    pub fn connect() -> Result<Option<Client>> {
        if stead_store::space::variable("STEAD_SOCKET").is_some_and(|path| path == "none") {
            return Ok(None);
        }
        if let Some(own) = socket::own()?
            && let Some(client) = Client::connect_to(&own)?
        {
            return Ok(Some(client));
        }
        Client::connect_to(Path::new(socket::SYSTEM))
    }

    /// Connects to the daemon that listens on this socket, if one does.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_to(path: &Path) -> Result<Option<Client>> {
        let mut tries = 0;
        loop {
            match Client::once(path) {
                // The worker that it was handed to was about to end; nothing was asked yet.
                Err(e) if e.kind() == Kind::Peer && tries < TRIES => {
                    tries += 1;
                    clock::pause(PAUSE * tries);
                }
                done => return done,
            }
        }
    }

    fn once(path: &Path) -> Result<Option<Client>> {
        let Some(mut stream) = socket::connect(path)? else { return Ok(None) };
        let failed = |e: std::io::Error| Error::io("set up the connection to", path, e);
        stream.set_read_timeout(Some(ANSWERS_WITHIN)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWERS_WITHIN)).map_err(failed)?;
        let first: serde_json::Value = read(&mut stream, path)?;
        if let Some(failed) = first.get("failed") {
            let failed = serde_json::from_value::<crate::protocol::Failed>(failed.clone());
            return Err(failed.map_or_else(|_| odd(path, "an error"), Error::from));
        }
        let hello: Hello = serde_json::from_value(first).map_err(|_| odd(path, "its name"))?;
        if hello.protocol != PROTOCOL {
            return Err(Error::format(format!(
                "the daemon speaks protocol {}, this stead protocol {PROTOCOL}",
                hello.protocol
            ))
            .at_path(path)
            .with_hint("both should be of one version; STEAD_SOCKET=none does without it"));
        }
        Ok(Some(Client { stream, path: path.to_owned(), hello, open: false }))
    }

    /// What the daemon says of itself.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True once it is of no use: the daemon has ended it, or an answer may still come that would be taken for that to another
    /// question.
    pub(crate) fn is_gone(&self) -> bool {
        self.open || socket::is_gone(&self.stream)
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answer> {
        self.open = true;
        frame::write(&mut self.stream, ask)?;
        let answer = read(&mut self.stream, &self.path)?;
        self.open = false;
        match answer {
            Answer::Failed(failed) => Err(failed.into()),
            answer => Ok(answer),
        }
    }

    fn odd<T>(&self) -> Result<T> {
        Err(odd(&self.path, "something else than it was asked for"))
    }

    /// Gives the daemon a transfer, to be done once those of `after` are finished. It is in its journal when this returns.
    ///
    /// # Errors
    /// What the daemon refuses it with; `Timeout`.
    pub fn submit(&mut self, request: &Request, after: &[i64]) -> Result<i64> {
        match self.ask(&Ask::Submit { request: fixed(request)?, after: after.to_vec() })? {
            Answer::Taken(id) => Ok(id),
            _ => self.odd(),
        }
    }

    /// What a request would do.
    ///
    /// # Errors
    /// Those that it would fail with before it starts; `Timeout` for what takes long to look through.
    pub fn preview(&mut self, request: &Request) -> Result<Preview> {
        match self.ask(&Ask::Preview { request: fixed(request)? })? {
            Answer::Preview(preview) => Ok(preview),
            _ => self.odd(),
        }
    }

    /// Waits until nothing more happens with a transfer, for no longer than this, and says how far it is.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; `Timeout`.
    pub fn wait(&mut self, transfer: i64, most: Duration) -> Result<Standing> {
        let most = most.min(WAITS);
        let failed = |e: std::io::Error| Error::io("set up", "the connection", e);
        self.stream.set_read_timeout(Some(ANSWERS_WITHIN + most)).map_err(failed)?;
        let answer = self.ask(&Ask::Wait { transfer, seconds: most.as_secs_f64() });
        self.stream.set_read_timeout(Some(ANSWERS_WITHIN)).map_err(failed)?;
        match answer? {
            Answer::Standing(standing) => Ok(*standing),
            _ => self.odd(),
        }
    }

    /// Seconds until a transfer has ended, those before it counted.
    ///
    /// # Errors
    /// As [`Client::wait`].
    pub fn eta(&mut self, transfer: i64) -> Result<Remaining> {
        match self.ask(&Ask::Eta { transfer })? {
            Answer::Eta(left) => Ok(left),
            _ => self.odd(),
        }
    }

    /// Stops a transfer and gives it up. What is whole stays.
    ///
    /// # Errors
    /// `Usage` if there is none of this number, or if it is over.
    pub fn cancel(&mut self, transfer: i64) -> Result<Status> {
        match self.ask(&Ask::Cancel { transfer })? {
            Answer::Standing(standing) => Ok(standing.status),
            _ => self.odd(),
        }
    }

    /// Has a transfer done again that was interrupted or has failed; without a number all that were interrupted.
    ///
    /// # Errors
    /// `Usage` if there is none of this number, or if it is finished or cancelled.
    pub fn resume(&mut self, transfer: Option<i64>) -> Result<Vec<i64>> {
        match self.ask(&Ask::Resume { transfer })? {
            Answer::Resumed(ids) => Ok(ids),
            _ => self.odd(),
        }
    }

    /// Transfers of this user, the latest first; those that are over only if `all`. Of requests with many sources the first ones.
    ///
    /// # Errors
    /// Those of the daemon's journal; `Timeout`.
    pub fn list(&mut self, all: bool, most: usize) -> Result<Vec<Standing>> {
        match self.ask(&Ask::List { all, most: Some(most) })? {
            Answer::List(list) => Ok(list),
            _ => self.odd(),
        }
    }

    /// What there is of dataspaces.
    ///
    /// # Errors
    /// Those of the daemon; `Timeout`.
    pub fn spaces(&mut self) -> Result<Vec<Usage>> {
        match self.ask(&Ask::Spaces {})? {
            Answer::Spaces(list) => Ok(list),
            _ => self.odd(),
        }
    }

    /// Asks as an administrator.
    ///
    /// # Errors
    /// `Permission` if this user is none; those of what is asked; `Timeout`.
    pub fn admin(&mut self, ask: AdminAsk) -> Result<AdminAnswer> {
        match self.ask(&Ask::Admin(ask))? {
            Answer::Admin(answer) => Ok(answer),
            _ => self.odd(),
        }
    }

    /// Numbers about this user's transfers in the text form of Prometheus.
    ///
    /// # Errors
    /// Those of the daemon; `Timeout`.
    pub fn metrics(&mut self) -> Result<String> {
        match self.ask(&Ask::Metrics {})? {
            Answer::Metrics(text) => Ok(text),
            _ => self.odd(),
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(stream: &mut UnixStream, path: &Path) -> Result<T> {
    let hint = "look whether it is well: systemctl status steadd";
    match frame::read(stream) {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(ended(path)),
        Err(e) if e.kind() == Kind::Timeout => {
            Err(Error::new(Kind::Timeout, "the daemon does not answer")
                .at_path(path)
                .with_hint(hint))
        }
        Err(e) => Err(e),
    }
}

pub(crate) fn ended(path: &Path) -> Error {
    Error::new(Kind::Peer, "the daemon has ended the connection").at_path(path).with_hint(
        "it may have been ended; what it has taken it goes on with when it is there again",
    )
}

fn odd(path: &Path, what: &str) -> Error {
    Error::format(format!("the daemon says {what} in a way that is not understood")).at_path(path)
}
