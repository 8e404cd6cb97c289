//! A program's connection to the daemon of its node, or by way of it to that of another one.

mod led;

use crate::clock;
use crate::flows::{self, FlowAsk, FlowOptions, FlowStanding};
use crate::frame;
use crate::protocol::{AdminAnswer, AdminAsk, Answer, Ask, Hello, PROTOCOL, PersistAsk};
use crate::socket;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_core::{BucketUrl, Error, Kind, Result};
use stead_flow::Graph;
use stead_model::transfer::Remaining;
use stead_stage::remote::{Part, Question, Reply};
use stead_stage::{Checked, Persisted, Preview, Request, Standing, Status, Usage, fixed};
use stead_stream::{Patience, Stop};

/// How long the daemon may think about an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(90);
/// Who is sent away without a word comes again so often, after a pause that grows.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);
/// How long one question waits for a transfer; longer waits are several.
const WAITS: Duration = Duration::from_secs(600);
/// How long it may read what is in files, where that is asked: it stops when nobody waits any more.
const READS_WITHIN: Duration = Duration::from_secs(24 * 3600);

/// A connection to a daemon. One question at a time; who wants to wait in one thread and ask in another has two.
pub struct Client {
    stream: UnixStream,
    path: PathBuf,
    hello: Hello,
    /// The node of this process, where the daemon is one of another node.
    here: Option<String>,
    /// That other node, for errors.
    far: Option<String>,
    /// A question was asked whose answer has not come.
    open: bool,
    /// The process that has connected: one that was forked from it has the same connection, and would get its answers.
    process: u32,
    /// Of one that has less time than questions have otherwise.
    patience: Option<Patience>,
    /// What ends questions that may take longer.
    stop: Stop,
}

/// That there is no daemon, for who needs one: of a socket that the environment names, with that.
pub fn nobody() -> Error {
    let named = stead_store::space::variable("STEAD_SOCKET").filter(|path| path != "none");
    let where_to = named.map_or_else(String::new, |path| {
        format!(": none listens at '{path}', which STEAD_SOCKET names")
    });
    Error::new(Kind::NotFound, format!("no daemon runs on this node{where_to}"))
}

impl Client {
    /// Connects to the daemon of this node: the user's own one (`$STEAD_SOCKET`, or `$XDG_RUNTIME_DIR/stead/steadd.sock`), or that
    /// of the system. None if there is none; nor if `STEAD_SOCKET` is set to `none`.
    ///
    /// # Errors
    /// `Permission` if somebody else listens there; `Timeout`; what the daemon refuses with.
    pub fn connect() -> Result<Option<Client>> {
        Client::find(None)
    }

    /// Connects to all daemons of this node that look after what this user has: the user's own one, and that of the system. Who names
    /// one by `STEAD_SOCKET` means no other.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub(crate) fn all() -> Result<Vec<Client>> {
        let Some(first) = Client::connect()? else { return Ok(Vec::new()) };
        let named = stead_store::space::variable("STEAD_SOCKET").is_some();
        let system = Path::new(socket::SYSTEM);
        if named || first.path == system {
            return Ok(vec![first]);
        }
        let second = match Client::connect_to(system) {
            // It serves somebody else alone.
            Err(e) if e.kind() == Kind::Permission => None,
            second => second?,
        };
        Ok(std::iter::once(first).chain(second).collect())
    }

    /// True if it is the daemon of the system.
    pub(crate) fn is_of_system(&self) -> bool {
        self.path == Path::new(socket::SYSTEM)
    }

    fn find(patience: Option<&Patience>) -> Result<Option<Client>> {
        if stead_store::space::variable("STEAD_SOCKET").is_some_and(|path| path == "none") {
            return Ok(None);
        }
        if let Some(own) = socket::own()? {
            let client = Client::to(&own, patience)?;
            // Who names a socket means no other daemon, also if none listens there.
            if client.is_some() || stead_store::space::variable("STEAD_SOCKET").is_some() {
                return Ok(client);
            }
        }
        Client::to(Path::new(socket::SYSTEM), patience)
    }

    /// Connects to the daemon that listens on this socket, if one does.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_to(path: &Path) -> Result<Option<Client>> {
        Client::to(path, None)
    }

    fn to(path: &Path, patience: Option<&Patience>) -> Result<Option<Client>> {
        Client::patiently(|| Client::once(path, patience))
    }

    /// As [`Client::connect_to`], or without a socket as [`Client::connect`]: what it is asked by then it answers within this patience, or
    /// not at all.
    ///
    /// # Errors
    /// Those; that of what ends the wait.
    pub(crate) fn connect_within(
        path: Option<&Path>,
        patience: &Patience,
    ) -> Result<Option<Client>> {
        Client::patiently(|| Client::found(path, patience))
    }

    fn found(path: Option<&Path>, patience: &Patience) -> Result<Option<Client>> {
        match path {
            Some(path) => Client::to(path, Some(patience)),
            None => Client::find(Some(patience)),
        }
    }

    fn patiently<T>(connect: impl Fn() -> Result<Option<T>>) -> Result<Option<T>> {
        let mut tries = 0;
        loop {
            match connect() {
                // The worker that it was handed to was about to end; nothing was asked yet.
                Err(e) if e.kind() == Kind::Peer && tries < TRIES => {
                    tries += 1;
                    clock::pause(PAUSE * tries);
                }
                done => return done,
            }
        }
    }

    fn once(path: &Path, patience: Option<&Patience>) -> Result<Option<Client>> {
        let most = patience.map_or(ANSWERS_WITHIN, |patience| patience.left().min(ANSWERS_WITHIN));
        let Some(stream) = socket::connect(path, most)? else { return Ok(None) };
        Client::begin(stream, path, None, patience).map(Some)
    }

    /// One whose other end speaks next, within this patience.
    pub(crate) fn begin(
        mut stream: UnixStream,
        path: &Path,
        far: Option<String>,
        patience: Option<&Patience>,
    ) -> Result<Client> {
        let failed = |e: std::io::Error| Error::io("set up the connection to", path, e);
        stream.set_read_timeout(Some(ANSWERS_WITHIN)).map_err(failed)?;
        stream.set_write_timeout(Some(ANSWERS_WITHIN)).map_err(failed)?;
        let most = patience.map(|patience| patience.at_most(ANSWERS_WITHIN));
        let first: serde_json::Value = read(&mut stream, path, far.as_deref(), most.as_ref())?;
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
        let (path, process) = (path.to_owned(), std::process::id());
        let (patience, stop) = (patience.cloned(), Stop::default());
        Ok(Client { stream, path, hello, here: None, far, open: false, process, patience, stop })
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
        self.open || self.process != std::process::id() || socket::is_gone(&self.stream)
    }

    fn ask(&mut self, ask: &Ask) -> Result<Answer> {
        self.say(ask)?;
        self.answer()
    }

    /// Asks for what may take longer.
    fn ask_within(&mut self, ask: &Ask, most: Duration) -> Result<Answer> {
        let patience = match &self.patience {
            Some(patience) => patience.at_most(most),
            None => Patience::new(most, self.stop.clone()),
        };
        self.say(ask)?;
        self.answer_by(Some(&patience))
    }

    /// Does this while questions that may take hours end with the error that `stop` has: then the daemon stops, too, and the connection is of no
    /// more use.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn until<T>(
        &mut self,
        stop: Stop,
        work: impl FnOnce(&mut Client) -> Result<T>,
    ) -> Result<T> {
        let before = std::mem::replace(&mut self.stop, stop);
        let done = work(self);
        self.stop = before;
        done
    }

    fn say(&mut self, ask: &Ask) -> Result<()> {
        self.put(&[ask], &[])
    }

    /// Says all of these, and then these bytes, at once.
    fn put(&mut self, asks: &[&Ask], bytes: &[u8]) -> Result<()> {
        if self.process != std::process::id() {
            let message =
                "this connection to the daemon is of the process that this one was forked from";
            return Err(Error::usage(message).with_hint("connect in each process"));
        }
        self.open = true;
        frame::write_all(&mut self.stream, asks, bytes)
    }

    fn answer(&mut self) -> Result<Answer> {
        let patience = self.patience.as_ref().map(|patience| patience.at_most(ANSWERS_WITHIN));
        self.answer_by(patience.as_ref())
    }

    fn answer_by(&mut self, patience: Option<&Patience>) -> Result<Answer> {
        let answer = read(&mut self.stream, &self.path, self.far.as_deref(), patience)?;
        self.open = false;
        match answer {
            Answer::Failed(failed) => Err(failed.into()),
            answer => Ok(answer),
        }
    }

    fn odd<T>(&self) -> Result<T> {
        Err(odd(&self.path, "something else than it was asked for"))
    }

    /// A request as the daemon has to have it: paths from the root on, and names that are of no node are of that of this process.
    fn meant(&self, request: &Request) -> Result<Request> {
        let mut request = fixed(request)?;
        for location in request.sources.iter_mut().chain(&mut request.target) {
            let is_of_all = location.space.as_deref().is_some_and(BucketUrl::is_of_all_nodes);
            if location.node.is_none() && !is_of_all {
                location.node.clone_from(&self.here);
            }
            location.node.take_if(|node| *node == self.hello.node);
        }
        Ok(request)
    }

    /// Gives the daemon a transfer, to be done once those of `after` are finished. It is in its journal when this returns.
    ///
    /// # Errors
    /// What the daemon refuses it with; `Timeout`.
    pub fn submit(&mut self, request: &Request, after: &[i64]) -> Result<i64> {
        match self.ask(&Ask::Submit { request: self.meant(request)?, after: after.to_vec() })? {
            Answer::Taken(id) => Ok(id),
            _ => self.odd(),
        }
    }

    /// What a request would do.
    ///
    /// # Errors
    /// Those that it would fail with before it starts; `Timeout` for what takes long to look through.
    pub fn preview(&mut self, request: &Request) -> Result<Preview> {
        let most = if request.options.checksum { READS_WITHIN } else { ANSWERS_WITHIN };
        match self.ask_within(&Ask::Preview { request: self.meant(request)? }, most)? {
            Answer::Preview(preview) => Ok(preview),
            _ => self.odd(),
        }
    }

    /// How the target of a sync differs: see [`stead_stage::Stager::check`].
    ///
    /// # Errors
    /// Those of that; `Timeout` for what takes longer than a day to read; `Format` if the daemon is older than this question.
    pub fn check(&mut self, request: &Request) -> Result<Checked> {
        match self.ask_within(&Ask::Check { request: self.meant(request)? }, READS_WITHIN)? {
            Answer::Checked(checked) => Ok(checked),
            _ => self.odd(),
        }
    }

    /// Waits until nothing more happens with a transfer, for no longer than this, and says how far it is.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; `Timeout`.
    pub fn wait(&mut self, transfer: i64, most: Duration) -> Result<Standing> {
        let most = most.min(WAITS);
        let ask = Ask::Wait { transfer, seconds: most.as_secs_f64() };
        match self.ask_within(&ask, ANSWERS_WITHIN + most)? {
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

    /// The dataspaces, as far as their configuration tells: nothing is asked of what lies there.
    ///
    /// # Errors
    /// `Timeout`; `Format` if the daemon is older than this question.
    pub fn configured(&mut self) -> Result<Vec<Usage>> {
        match self.ask(&Ask::Dataspaces {})? {
            Answer::Spaces(list) => Ok(list),
            _ => self.odd(),
        }
    }

    /// Keeps something, shares it, or says what is, which is what this gives.
    ///
    /// # Errors
    /// As [`crate::persist`]; `Timeout`.
    pub fn persist(&mut self, ask: PersistAsk) -> Result<Vec<Persisted>> {
        match self.ask(&Ask::Persist(ask.fixed()?))? {
            Answer::Persisted(list) => Ok(list),
            _ => self.odd(),
        }
    }

    /// Has the daemon run a flow, with the rights of this user, whether or not the program goes on: it reads streams that are written on any node
    /// of the pool, and writes them on the node of the daemon. Recorded streams lie in folders of that node. It ends with its daemon, and with
    /// the job of this program, if that is of one on that node.
    ///
    /// # Errors
    /// Those of [`stead_flow::check`]; `Usage` for flows with functions; `Permission` for dataspaces of jobs; `Limit` if too many run, or
    /// the node is drained; `Format` if the daemon is older than this question.
    pub fn begin_flow(&mut self, graph: &Graph, options: &FlowOptions) -> Result<FlowStanding> {
        let begin = FlowAsk::Begin { graph: flows::fixed(graph)?, options: options.clone() };
        self.flow(begin, ANSWERS_WITHIN)
    }

    /// Waits until a flow is over, for no longer than this, and says how far it is.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; `Timeout` if the daemon does not answer.
    pub fn wait_flow(&mut self, flow: i64, most: Duration) -> Result<FlowStanding> {
        let most = most.min(WAITS);
        self.flow(FlowAsk::Wait { flow, seconds: most.as_secs_f64() }, ANSWERS_WITHIN + most)
    }

    /// Gives a flow up: readers of what it writes are told.
    ///
    /// # Errors
    /// `Usage` if there is none of this number, or it is over; `Timeout` if a step of it takes long, after which it ends.
    pub fn cancel_flow(&mut self, flow: i64) -> Result<FlowStanding> {
        self.flow(FlowAsk::Cancel { flow }, ANSWERS_WITHIN)
    }

    fn flow(&mut self, ask: FlowAsk, most: Duration) -> Result<FlowStanding> {
        match self.ask_within(&Ask::Flow(ask), most)? {
            Answer::Flow(standing) => Ok(*standing),
            _ => self.odd(),
        }
    }

    /// Flows of this user, the latest first; those that are over only if `all`: 64 of them, for an hour.
    ///
    /// # Errors
    /// `Timeout`.
    pub fn flows(&mut self, all: bool) -> Result<Vec<FlowStanding>> {
        match self.ask(&Ask::Flow(FlowAsk::List { all }))? {
            Answer::Flows(list) => Ok(list),
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

    /// The names of all nodes of the pool; without one that of this node.
    ///
    /// # Errors
    /// `Timeout`; `Peer` if the daemon has ended.
    pub fn nodes(&mut self) -> Result<Vec<String>> {
        match self.ask(&Ask::Nodes {})? {
            Answer::Nodes(list) => Ok(list),
            _ => self.odd(),
        }
    }

    pub(crate) fn source(&mut self, question: &Question) -> Result<Reply> {
        match self.ask(&Ask::Source(question.clone()))? {
            Answer::Source(reply) => Ok(reply),
            _ => self.odd(),
        }
    }

    /// The same, with bytes before the answer.
    pub(crate) fn source_parts(
        &mut self,
        question: &Question,
        room: &mut Vec<u8>,
        each: &mut dyn FnMut(Part<'_>) -> Result<()>,
    ) -> Result<Reply> {
        self.say(&Ask::Source(question.clone()))?;
        frame::read_parts(&mut self.stream, room, each)?;
        match self.answer()? {
            Answer::Source(reply) => Ok(reply),
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

fn read<T: serde::de::DeserializeOwned>(
    stream: &mut UnixStream,
    path: &Path,
    far: Option<&str>,
    patience: Option<&Patience>,
) -> Result<T> {
    let hint = "look whether it is well: systemctl status steadd";
    match patience
        .map_or(Ok(()), |patience| await_by(stream, patience))
        .and_then(|()| frame::read(stream))
    {
        Ok(Some(value)) => Ok(value),
        Ok(None) => Err(match far {
            Some(node) => ended_on(node),
            None => ended(path),
        }),
        Err(e) if e.kind() == Kind::Timeout => {
            let message = match far {
                Some(node) => format!("the daemon of node '{node}' does not answer"),
                None => "the daemon does not answer".to_owned(),
            };
            Err(Error::new(Kind::Timeout, message).at_path(path).with_hint(hint))
        }
        Err(e) => Err(e),
    }
}

/// Waits until something comes, as long as that may last.
///
/// # Errors
/// `Timeout` when the patience is over; that of what ends it.
fn await_by(stream: &UnixStream, patience: &Patience) -> Result<()> {
    while !socket::is_readable(stream, Some(patience.share()))? {
        patience.check()?;
        if patience.left().is_zero() {
            return Err(Error::new(Kind::Timeout, "nothing has come in time"));
        }
    }
    Ok(())
}

pub(crate) fn ended(path: &Path) -> Error {
    Error::new(Kind::Peer, "the daemon has ended the connection").at_path(path).with_hint(
        "it may have been ended; what it has taken it goes on with when it is there again",
    )
}

fn ended_on(node: &str) -> Error {
    Error::new(Kind::Peer, format!("the daemon of node '{node}' has ended the connection"))
        .with_hint("what it has taken it goes on with when it is there again")
}

fn odd(path: &Path, what: &str) -> Error {
    Error::format(format!("the daemon says {what} in a way that is not understood")).at_path(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::StreamWay;
    use stead_core::Location;
    use stead_stage::{Action, Options};

    #[test]
    fn a_process_that_was_forked_does_not_ask() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let hello = serde_json::json!({
            "protocol": PROTOCOL, "version": "0", "node": "n", "user": 0, "drained": false, "job": null
        });
        frame::write(&mut far, &hello).unwrap();
        let mut client = Client::begin(near, Path::new("/s"), None, None).unwrap();
        assert!(!client.is_gone());
        // As it is after a fork: another process.
        client.process = client.process.wrapping_add(1);
        let e = client.nodes().unwrap_err();
        assert!(e.kind() == Kind::Usage && e.to_string().contains("forked"), "{e}");
        assert!(client.is_gone());
        // Nothing was said: what comes would be taken for an answer by the process that has asked.
        assert!(!socket::is_readable(&far, Some(Duration::ZERO)).unwrap());
    }

    #[test]
    fn what_takes_hours_is_given_up_when_that_is_asked() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let hello = serde_json::json!({
            "protocol": PROTOCOL, "version": "0", "node": "n", "user": 0, "drained": false, "job": null
        });
        frame::write(&mut far, &hello).unwrap();
        let mut client = Client::begin(near, Path::new("/s"), None, None).unwrap();
        let at = |text: &str| Location::parse(text, &|_| None).unwrap();
        let request = Request {
            action: Action::Sync,
            sources: vec![at("/a/")],
            target: Some(at("/b")),
            options: Options::default(),
        };
        let stop = stead_core::Cancel::new();
        stop.cancel();
        let checked = client.until(stop.into(), |client| client.check(&request));
        assert_eq!(checked.unwrap_err().kind(), Kind::Cancelled);
        // The answer may come still: nobody asks anything else by it.
        assert!(client.is_gone());
    }

    #[test]
    fn what_is_of_no_node_is_of_that_of_the_process() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let hello = serde_json::json!({
            "protocol": PROTOCOL, "version": "0", "node": "n2", "user": 0, "drained": false, "job": null
        });
        frame::write(&mut far, &hello).unwrap();
        let client = Client::begin(near, Path::new("/s"), Some("n2".into()), None).unwrap();
        let client = Client { here: Some("n1".into()), ..client };
        let at = |text: &str| Location::parse(text, &|_| None).unwrap();
        let sources = ["/a", "x://a", "memory://a", "s3://b/a", "n2:memory://a", "n3:/a"];
        let request = Request {
            action: Action::Copy,
            sources: sources.into_iter().map(at).collect(),
            target: Some(at("n2:/b")),
            options: Options::default(),
        };
        let meant = client.meant(&request).unwrap();
        let names: Vec<String> = meant.sources.iter().map(ToString::to_string).collect();
        assert_eq!(
            names,
            ["n1:/a", "n1:x://a", "n1:memory://a", "s3://b/a", "memory://a", "n3:/a"]
        );
        assert_eq!(meant.target, Some(at("/b")));
    }

    #[test]
    fn who_has_little_time_waits_no_longer_for_a_daemon_that_does_not_answer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        // Another one than that of a daemon, which is far longer.
        let asked = Ask::Stream { number: 0, way: StreamWay::Asks };
        let within = |patience: &Patience| {
            Client::stream_on(Some(&path), "n1", &asked, &[], patience).err().map(|e| e.kind())
        };
        let soon = Patience::new(Duration::from_millis(200), stead_stream::Stop::default());
        assert_eq!(within(&soon), Some(Kind::Timeout));
        let stop = stead_core::Cancel::new();
        stop.cancel();
        let stopped = Patience::new(Duration::from_secs(3600), stop.into());
        assert_eq!(within(&stopped), Some(Kind::Cancelled));
        // It says who it is, and nothing of another node.
        let hello = serde_json::json!({
            "protocol": PROTOCOL, "version": env!("CARGO_PKG_VERSION"), "node": "n0", "user": 0, "drained": false, "job": null
        });
        let says = std::thread::spawn(move || {
            let mut all = Vec::new();
            for stream in listener.incoming().take(3) {
                let mut stream = stream.unwrap();
                let _ = frame::write(&mut stream, &hello);
                all.push(stream);
            }
            all
        });
        let soon = Patience::new(Duration::from_secs(1), stead_stream::Stop::default());
        assert_eq!(within(&soon), Some(Kind::Timeout));
        drop(says.join().unwrap());
    }
}
