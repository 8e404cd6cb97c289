//! One connection of a program: questions, one after the other, and their answers.

use crate::administer::Desk;
use crate::calendar::Calendar;
use crate::clock;
use crate::coming::Coming;
use crate::control::{self, Report};
use crate::counts::Counts;
use crate::flows::{Begun, FlowAsk, FlowState, Flows};
use crate::frame;
use crate::job;
use crate::metrics;
use crate::persist;
use crate::protocol::{Answer, Ask, Failed, Hello, PROTOCOL, StreamWay};
use crate::socket::{is_gone, is_readable};
use crate::streams::ByWorker;
use crate::turn::Turn;
use rustix::net::sockopt::socket_peercred;
use serde::Serialize;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Location, Result, is_node};
use stead_stage::remote::{Answering, Question};
use stead_stage::{Jobs, Queue, Request, Standing, configured, usage};
use stead_stream::{Nodes, Switchboard};

/// What has begun to come is to be there soon.
const FRAME_WITHIN: Duration = Duration::from_secs(10);
/// Bytes of files are taken within this.
const BYTES_WITHIN: Duration = Duration::from_secs(120);
/// Who waits is looked at so often whether it is still there.
const LOOK: Duration = Duration::from_secs(1);
/// No wait is longer.
const LONGEST_S: f64 = 3600.0;
/// So long a large frame waits for another one: who has sent it waits somewhat longer for the answer.
const LARGE_WITHIN: Duration = Duration::from_secs(60);
/// Frames of more bytes are large.
const LARGE: usize = 64 << 10;
/// Transfers that are listed at most.
const MOST_LISTED: usize = 1000;
/// Sources of each that is told of, and names that it lists.
const MOST_NAMES: usize = 16;
/// A list is no longer than this.
const MOST_LIST_BYTES: usize = frame::MOST / 2;
/// They are counted once for so many that are taken, and each time when there are too many.
const COUNT_EVERY: usize = 64;
/// Transfers that a user may have waiting.
pub(crate) const MOST_WAITING: u64 = 1_000_000;

/// What all connections of a user have together.
pub(crate) struct Office {
    pub(crate) queue: Queue,
    pub(crate) connections: AtomicUsize,
    /// Those of administrators who look after the transfers of this user.
    pub(crate) managed: AtomicUsize,
    /// Transfers taken since they were counted.
    pub(crate) taken: AtomicUsize,
    /// Of who has a large frame read and answered.
    pub(crate) large: Turn,
    /// Of who has one that may take hours to answer.
    pub(crate) lasting: Turn,
    pub(crate) ending: Cancel,
    pub(crate) desk: Desk,
    /// Bytes that are to come in dataspaces with a quota.
    pub(crate) coming: Arc<Coming>,
    /// Of the transfers of all users.
    pub(crate) counts: Counts,
    /// It was cleared up since the worker began.
    pub(crate) tidy: AtomicBool,
    /// By which things expire.
    pub(crate) calendar: Calendar,
    /// Of readers on other nodes.
    pub(crate) streams: Switchboard,
    pub(crate) flows: Arc<Flows>,
    pub(crate) here: Here,
}

impl Office {
    /// The jobs of this user, as administrators have said last.
    pub(crate) fn jobs(&self) -> Jobs {
        self.desk.kept().jobs_of(rustix::process::geteuid().as_raw())
    }
}

/// Where a worker is.
pub(crate) struct Here {
    /// The name of its node.
    pub(crate) node: String,
    /// Those of all nodes of the pool.
    pub(crate) nodes: Arc<[String]>,
    /// Its connection to the broker.
    pub(crate) control: Arc<OwnedFd>,
}

impl Here {
    /// The other nodes of the pool, for flows that read streams which are written there.
    fn reached(&self) -> Arc<dyn Nodes> {
        Arc::new(ByWorker::new(self.control.clone(), self.node.clone(), self.nodes.clone()))
    }
}

/// Says who is there, and answers until the program has gone. If it is `managed`, that is one of an administrator, who acts with the rights
/// of this user by nothing else than what this user has asked for.
///
/// # Errors
/// Those of the connection, and of frames that are not understood: after these it is closed.
pub(crate) fn serve(mut stream: UnixStream, office: &Office, managed: bool) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("set up", "a connection", e);
    // What is accepted by one that does not wait does not wait, either.
    stream.set_nonblocking(false).map_err(failed)?;
    stream.set_read_timeout(Some(FRAME_WITHIN)).map_err(failed)?;
    stream.set_write_timeout(Some(FRAME_WITHIN)).map_err(failed)?;
    let job = if managed { None } else { job_of(&stream, office) };
    frame::write(&mut stream, &hello(office, job.clone()))?;
    let mut sources = Answering::default();
    loop {
        while !is_readable(&stream, Some(LOOK))? {
            if office.ending.is_cancelled() {
                return Ok(());
            }
        }
        if office.ending.is_cancelled() {
            return Ok(());
        }
        // What is large takes much memory once it is understood: one such frame of a user at a time, and beside it one that lasts. An
        // administrator has no use for one, and is not to be waited for by the user.
        let room = |len| match len > LARGE {
            false => Ok(None),
            true if managed => Err(refused()),
            true => office.large.take(LARGE_WITHIN).map(Some).ok_or_else(busy),
        };
        let (ask, mut room) = match frame::read_by::<Ask, _>(&mut stream, room) {
            Ok(Some(ask)) => ask,
            Ok(None) => return Ok(()),
            Err(e) => {
                // What comes behind it cannot be told from it.
                let _ = frame::write(&mut stream, &Answer::Failed(Failed::from(&e)));
                return Err(e);
            }
        };
        let lasts = matches!(ask, Ask::Check { .. } | Ask::Preview { .. });
        if room.is_some() && lasts {
            room = office.lasting.take(FRAME_WITHIN);
            if room.is_none() {
                frame::write(&mut stream, &Answer::Failed(Failed::from(&busy())))?;
                continue;
            }
        }
        let answer = match ask {
            ask if managed && !is_of_taken(&ask) => Err(refused()),
            // What comes from now on is for the worker there.
            Ask::Reach { node } => return reach(&office.here, node, &stream),
            Ask::Manage { user } => return lead(&office.here, &Report::Manage { user }, &stream),
            Ask::Source(question) => source(&question, office, &mut sources, &stream)?,
            Ask::Stream { number, way: StreamWay::Asks } => {
                frame::write(&mut stream, &Answer::Stream {})?;
                let means = office.queue.stager().means();
                return office.streams.serve(stream, number, &means.spaces);
            }
            Ask::Stream { number, way: StreamWay::Errands } => {
                match keep_errands(office, &stream, number) {
                    Ok(()) => return frame::write(&mut stream, &Answer::Stream {}),
                    Err(e) => Err(e),
                }
            }
            ask => answer(ask, office, &stream, job.as_deref()),
        };
        let answer = answer.unwrap_or_else(|e| Answer::Failed(Failed::from(&e)));
        match frame::write(&mut stream, &answer) {
            Err(e) if e.kind() == Kind::Limit => {
                frame::write(&mut stream, &Answer::Failed(Failed::from(&e)))?;
            }
            written => written?,
        }
    }
}

/// The job of the process that has connected.
fn job_of(stream: &UnixStream, office: &Office) -> Option<String> {
    let pid = socket_peercred(stream).ok()?.pid.as_raw_pid();
    let user = rustix::process::geteuid().as_raw();
    job::of_process(&office.desk.kept(), u32::try_from(pid).ok()?, user)
}

/// True of what is about transfers and flows that the user has given, which administrators may ask, too.
fn is_of_taken(ask: &Ask) -> bool {
    match ask {
        Ask::Wait { .. }
        | Ask::Eta { .. }
        | Ask::Cancel { .. }
        | Ask::Resume { .. }
        | Ask::List { .. }
        | Ask::Flow(FlowAsk::Wait { .. } | FlowAsk::Cancel { .. } | FlowAsk::List { .. })
        | Ask::Metrics {} => true,
        Ask::Submit { .. }
        | Ask::Preview { .. }
        | Ask::Check { .. }
        | Ask::Spaces {}
        | Ask::Dataspaces {}
        | Ask::Persist(_)
        | Ask::Flow(FlowAsk::Begin { .. })
        | Ask::Admin(_)
        | Ask::Nodes {}
        | Ask::Reach { .. }
        | Ask::Manage { .. }
        | Ask::Source(_)
        | Ask::Stream { .. } => false,
    }
}

/// Says to an administrator that something else is none of theirs.
fn refused() -> Error {
    let message = "an administrator may list transfers and flows of others, wait for them, cancel and resume them, and nothing else";
    Error::new(Kind::Permission, message).with_hint("ask by a connection of one's own")
}

/// Says that others of the same user are before this one.
fn busy() -> Error {
    Error::limit("a question about many files is answered already, and one at a time is")
        .with_hint("ask again once that is; name a folder or a pattern in place of its files")
}

fn hello(office: &Office, job: Option<String>) -> Hello {
    Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: office.here.node.clone(),
        user: rustix::process::geteuid().as_raw(),
        drained: office.desk.kept().drained,
        job,
    }
}

fn answer(ask: Ask, office: &Office, stream: &UnixStream, job: Option<&str>) -> Result<Answer> {
    let queue = &office.queue;
    Ok(match ask {
        Ask::Submit { request, after } => {
            let request = checked(request, &office.here.node)?;
            office.desk.is_open()?;
            // To count them takes long where there are many.
            let taken = office.taken.fetch_add(1, Ordering::Relaxed);
            if taken.is_multiple_of(COUNT_EVERY) && queue.waiting()? >= MOST_WAITING {
                office.taken.store(0, Ordering::Relaxed);
                let message = format!("{MOST_WAITING} transfers wait already");
                return Err(Error::limit(message).with_hint("wait until some have ended"));
            }
            Answer::Taken(queue.submit_of(&request, &after, job)?)
        }
        Ask::Preview { request } => {
            let request = checked(request, &office.here.node)?;
            let preview = |cancel: &Cancel| queue.stager().preview_of(&request, job, cancel);
            Answer::Preview(as_long_as(stream, &office.ending, preview)?)
        }
        Ask::Check { request } => {
            let request = checked(request, &office.here.node)?;
            let check = |cancel: &Cancel| queue.stager().check_of(&request, job, cancel, None);
            Answer::Checked(as_long_as(stream, &office.ending, check)?)
        }
        Ask::Wait { transfer, seconds } => {
            let standing = wait(transfer, seconds, office, stream)?;
            Answer::Standing(Box::new(brief(standing, office)))
        }
        Ask::Eta { transfer } => Answer::Eta(queue.left(transfer)?),
        Ask::Cancel { transfer } => {
            let status = queue.cancel(transfer)?;
            let standing = Standing { status, progress: None };
            Answer::Standing(Box::new(brief(standing, office)))
        }
        Ask::Resume { transfer: Some(transfer) } => {
            queue.resume(transfer)?;
            Answer::Resumed(vec![transfer])
        }
        Ask::Resume { transfer: None } => {
            // One that somebody else has resumed or given up meanwhile is none any more.
            let ids = queue.interrupted()?.into_iter();
            Answer::Resumed(ids.filter(|id| queue.resume(*id).is_ok()).collect())
        }
        Ask::List { all, most } => Answer::List(list(all, most, office)?),
        Ask::Spaces {} => {
            let usage = |cancel: &Cancel| usage(queue.stager(), cancel);
            let mut list = as_long_as(stream, &office.ending, usage)?;
            office.counts.tell_of_all(&queue.stager().means(), &mut list);
            Answer::Spaces(list)
        }
        Ask::Dataspaces {} => Answer::Spaces(configured(&queue.stager().means().spaces)),
        Ask::Nodes {} => Answer::Nodes(office.here.nodes.to_vec()),
        Ask::Reach { .. } | Ask::Manage { .. } | Ask::Source(_) | Ask::Stream { .. } => {
            return Err(Error::internal("a question that is answered elsewhere"));
        }
        Ask::Metrics {} => {
            let connections = office.connections.load(Ordering::Relaxed);
            let drained = office.desk.kept().drained;
            let nodes = office.here.nodes.len();
            let flows = office.flows.running();
            Answer::Metrics(metrics::text(queue, connections, drained, nodes, flows)?)
        }
        Ask::Persist(ask) => {
            if let Some(location) = ask.location() {
                from_root(location)?;
            }
            Answer::Persisted(persist::by(queue.stager(), ask)?)
        }
        Ask::Flow(ask) => flow(ask, office, stream, job)?,
        Ask::Admin(ask) => Answer::Admin(office.desk.answer(ask)?),
    })
}

fn flow(ask: FlowAsk, office: &Office, stream: &UnixStream, job: Option<&str>) -> Result<Answer> {
    let one = match ask {
        FlowAsk::List { all } => return Ok(Answer::Flows(that_fit(office.flows.list(all)))),
        FlowAsk::Cancel { flow } => office.flows.cancel(flow)?,
        FlowAsk::Wait { flow, seconds } => awaited(seconds, office, stream, |left| {
            let standing = office.flows.wait(flow, left)?;
            Ok((standing.state != FlowState::Running, standing))
        })?,
        FlowAsk::Begin { graph, options } => {
            if office.desk.kept().drained {
                let e = Error::limit("this node is drained: it begins no flows");
                return Err(e.with_hint(
                    "run it in a process of its own: stead flow run, without --background",
                ));
            }
            let (means, nodes) = (office.queue.stager().means(), office.here.reached());
            let begun = Begun { graph, options, job, means: &means, nodes };
            let standing = office.flows.begin(begun)?;
            // Whoever clears up after a job that has ended meanwhile may not have seen it.
            office.flows.keep_to(&office.jobs());
            standing
        }
    };
    Ok(Answer::Flow(Box::new(one)))
}

/// Does what may take long, as long as somebody waits for it: it is cancelled once the program has gone, or the worker ends.
fn as_long_as<T>(
    stream: &UnixStream,
    ending: &Cancel,
    work: impl FnOnce(&Cancel) -> Result<T>,
) -> Result<T> {
    let (cancel, done, ended) = (Cancel::new(), Mutex::new(false), Condvar::new());
    let watch = || {
        let mut over = done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*over {
            if ending.is_cancelled() || is_gone(stream) {
                return cancel.cancel();
            }
            over = ended.wait_timeout(over, LOOK).unwrap_or_else(PoisonError::into_inner).0;
        }
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("stead-looks".into()).stack_size(256 << 10);
        thread
            .spawn_scoped(scope, watch)
            .map_err(|e| Error::new(Kind::Limit, format!("no thread for a question: {e}")))?;
        // Also if it panics: nobody would wake the other one.
        let _over = Over(&done, &ended);
        work(&cancel)
    })
}

/// Says that it is over when it is dropped.
struct Over<'a>(&'a Mutex<bool>, &'a Condvar);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }
}

/// The request as this node has it. Refuses paths that mean something else here than there.
fn checked(mut request: Request, node: &str) -> Result<Request> {
    for location in request.sources.iter_mut().chain(&mut request.target) {
        location.node.take_if(|of| of == node);
        from_root(location)?;
    }
    request.check()?;
    Ok(request)
}

/// Has the broker make a connection to another node of this one.
fn reach(here: &Here, node: String, stream: &UnixStream) -> Result<()> {
    let refused = match here.nodes.len() {
        0 | 1 => Some(no_pool()),
        _ if !is_node(&node) => Some(Error::usage("this is no name of a node")),
        _ => None,
    };
    match refused {
        Some(e) => {
            crate::refuse::refuse(stream, &e);
            Ok(())
        }
        None => lead(here, &Report::Reach { node }, stream),
    }
}

/// Has the broker lead a connection on, and leaves it.
fn lead(here: &Here, to: &Report, stream: &UnixStream) -> Result<()> {
    control::send(&here.control, to, Some(stream.as_fd()), true).map(drop)
}

/// Keeps a connection for errands, for the one by which a place is asked for.
fn keep_errands(office: &Office, stream: &UnixStream, number: u64) -> Result<()> {
    let errands = stream.try_clone().map_err(|e| Error::io("set up", "a connection", e))?;
    office.streams.keep(number, errands)
}

/// This daemon is alone.
pub(crate) fn no_pool() -> Error {
    Error::usage("the daemon of this node is in no pool, and reaches no other node")
        .with_hint("a launcher starts one daemon a node: mpirun stead daemon --pool")
}

/// Answers about files; bytes of them go before the answer.
///
/// # Errors
/// Those of the connection.
fn source(
    question: &Question,
    office: &Office,
    sources: &mut Answering,
    stream: &UnixStream,
) -> Result<Result<Answer>> {
    let mut broken = None;
    let waits = |time| {
        stream.set_write_timeout(Some(time)).map_err(|e| Error::io("set up", "a connection", e))
    };
    // Whoever gets them may have to wait for its device.
    waits(BYTES_WITHIN)?;
    let means = office.queue.stager().means();
    let reply = sources.answer(question, &means.spaces, &office.ending, &mut |part| {
        frame::write_part(&mut &*stream, part)
            .inspect_err(|e| broken = Some(Error::new(e.kind(), e.message())))
    });
    if let Some(e) = broken {
        return Err(e);
    }
    if matches!(question, Question::Read { .. }) {
        frame::end_parts(&mut &*stream)?;
    }
    waits(FRAME_WITHIN)?;
    Ok(reply.map(Answer::Source))
}

pub(crate) fn from_root(location: &Location) -> Result<()> {
    if location.space.is_none() && !location.path.starts_with('/') {
        return Err(Error::usage(format!("'{location}' is not a path from the root on"))
            .with_hint("the daemon does not know where its clients are"));
    }
    Ok(())
}

fn wait(transfer: i64, seconds: f64, office: &Office, stream: &UnixStream) -> Result<Standing> {
    awaited(seconds, office, stream, |left| {
        let standing = office.queue.wait(transfer, left)?;
        Ok((standing.status.state.rests(), standing))
    })
}

/// Looks again and again until what is looked at is over, the time is, or nobody waits for it any more.
fn awaited<T>(
    seconds: f64,
    office: &Office,
    stream: &UnixStream,
    look: impl Fn(Duration) -> Result<(bool, T)>,
) -> Result<T> {
    if !(0.0..=LONGEST_S).contains(&seconds) {
        return Err(Error::usage(format!(
            "a wait of {seconds} seconds; 0 to {LONGEST_S} are possible"
        )));
    }
    let until = clock::now() + Duration::from_secs_f64(seconds);
    loop {
        let left = until.saturating_duration_since(clock::now());
        let (is_over, standing) = look(left.min(LOOK))?;
        if office.ending.is_cancelled() {
            // What is stopped now goes on soon: that is not its end.
            return Err(Error::new(Kind::Peer, "the daemon ends"));
        }
        if is_over || left <= LOOK {
            return Ok(standing);
        }
        if is_gone(stream) {
            return Err(Error::cancelled());
        }
    }
}

/// Without most of its sources and its listed names, of which there may be many.
fn brief(mut standing: Standing, office: &Office) -> Standing {
    standing.status.request.sources.truncate(MOST_NAMES);
    standing.status.request.options.files.truncate(MOST_NAMES);
    if let Some(waits) = &mut standing.status.waits
        && office.desk.kept().drained
    {
        *waits = "the node is drained: it begins no transfers".to_owned();
    }
    standing
}

fn list(all: bool, most: Option<usize>, office: &Office) -> Result<Vec<Standing>> {
    let most = most.unwrap_or(MOST_LISTED).min(MOST_LISTED);
    let all = office.queue.statuses(all, most)?.into_iter();
    Ok(that_fit(all.map(|standing| brief(standing, office)).collect()))
}

/// The first ones, as many as an answer has room for.
fn that_fit<T: Serialize>(mut list: Vec<T>) -> Vec<T> {
    let mut bytes = 0;
    let fits = list.iter().take_while(|one| {
        bytes += serde_json::to_vec(one).map_or(0, |text| text.len());
        bytes <= MOST_LIST_BYTES
    });
    let fits = fits.count();
    list.truncate(fits);
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Works until it is stopped, which is to be soon.
    fn works(cancel: &Cancel) -> Result<()> {
        let until = clock::now() + Duration::from_secs(60);
        while clock::now() < until {
            cancel.check()?;
            clock::pause(Duration::from_millis(5));
        }
        Ok(())
    }

    #[test]
    fn administrators_act_with_no_rights_of_others() {
        let is_answered = |text: &str| is_of_taken(&serde_json::from_str::<Ask>(text).unwrap());
        for text in [
            r#"{"wait": {"transfer": 1, "seconds": 0}}"#,
            r#"{"eta": {"transfer": 1}}"#,
            r#"{"cancel": {"transfer": 1}}"#,
            r#"{"resume": {"transfer": null}}"#,
            r#"{"list": {"all": true}}"#,
            r#"{"metrics": {}}"#,
            r#"{"flow": {"list": {"all": true}}}"#,
            r#"{"flow": {"wait": {"flow": 1, "seconds": 0}}}"#,
            r#"{"flow": {"cancel": {"flow": 1}}}"#,
        ] {
            assert!(is_answered(text), "{text}");
        }
        let request = r#"{"request": {"action": "copy", "sources": ["/a"], "target": "/b"}}"#;
        let of_request =
            ["submit", "preview", "check"].map(|what| format!(r#"{{"{what}": {request}}}"#));
        let others = [
            r#"{"spaces": {}}"#,
            r#"{"dataspaces": {}}"#,
            r#"{"nodes": {}}"#,
            r#"{"persist": {"list": {}}}"#,
            r#"{"flow": {"begin": {"graph": {}}}}"#,
            r#"{"admin": {"stats": {}}}"#,
            r#"{"reach": {"node": "n"}}"#,
            r#"{"manage": {"user": 0}}"#,
            r#"{"source": {"find": {"location": "/a", "follow": true}}}"#,
            r#"{"stream": {"number": 1, "way": "errands"}}"#,
        ];
        for text in others.into_iter().chain(of_request.iter().map(String::as_str)) {
            assert!(!is_answered(text), "{text}");
        }
        assert_eq!(refused().kind(), Kind::Permission);
    }

    #[test]
    fn nothing_is_done_for_who_has_gone() {
        let (near, far) = UnixStream::pair().unwrap();
        let ending = Cancel::new();
        assert_eq!(as_long_as(&near, &ending, |_| Ok(7)).unwrap(), 7);
        let e = as_long_as(&near, &ending, |_| Err::<(), _>(Error::usage("no"))).unwrap_err();
        assert_eq!(e.kind(), Kind::Usage);
        let goes = std::thread::spawn(move || drop(far));
        let e = as_long_as(&near, &ending, works).unwrap_err();
        assert_eq!((e.kind(), ending.is_cancelled()), (Kind::Cancelled, false));
        goes.join().unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        ending.cancel();
        assert_eq!(as_long_as(&near, &ending, works).unwrap_err().kind(), Kind::Cancelled);
    }
}
