//! Sources on other nodes: what is asked of the node that has them, and a folder there as those see it who plan and copy.
//!
//! The other node answers with the rights of the same user (`answering`). Nothing is changed there but what a move removes.

mod answering;
mod words;

pub use answering::Answering;
pub use words::{Attributes, Part, Question, Raw, Reply, Told};

use crate::clock::Watch;
use crate::ends::{Base, End};
use crate::place::number;
use crate::request::{Action, Request};
use crate::sum::Sum;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use stead_core::{Error, Kind, Location, Result};
use stead_store::Meta;

/// Connections that are kept for the next question, of one node.
const MOST_IDLE: usize = 32;
/// Where there are as many as there may be, it is waited so long for one, and looked so often whether there may be one more.
const FREE_WITHIN_S: f64 = 10.0;
const AGAIN: Duration = Duration::from_millis(100);

/// Ways to other nodes, as a daemon of a pool has them.
pub trait Reach: Send + Sync + fmt::Debug {
    /// A connection to the worker of the same user on a node.
    ///
    /// # Errors
    /// `NotFound` if there is no such node; `Peer` if it is gone; what it refuses with.
    fn line(&self, node: &str) -> Result<Box<dyn Line>>;
}

/// A connection to another node. One question at a time; after an error of the connection it is of no more use.
pub trait Line: Send {
    /// Asks.
    ///
    /// # Errors
    /// What the other node answers with; `Peer`, `Timeout` and `Format` of the connection.
    fn ask(&mut self, question: &Question) -> Result<Reply>;

    /// Asks for bytes, which `each` gets before the answer is here, in order.
    ///
    /// # Errors
    /// As [`Line::ask`]; those of `each`.
    fn read(
        &mut self,
        question: &Question,
        each: &mut dyn FnMut(Part<'_>) -> Result<()>,
    ) -> Result<Reply>;
}

fn locked<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The nodes that can be reached.
#[derive(Debug)]
pub(crate) struct Nodes {
    reach: Arc<dyn Reach>,
    by_name: Mutex<HashMap<String, Weak<Lines>>>,
}

/// Connections to a node, as many as are asked by at a time, or as there may be.
pub(crate) struct Lines {
    reach: Arc<dyn Reach>,
    node: String,
    idle: Mutex<Idle>,
    /// A connection is idle.
    free: Condvar,
}

/// Connections that nobody asks by now.
#[derive(Default)]
struct Idle {
    plain: Vec<Box<dyn Line>>,
    /// Those at whose other end somebody gives way to others, and does so for good.
    gentle: Vec<Box<dyn Line>>,
}

impl Idle {
    fn of(&mut self, gentle: bool) -> &mut Vec<Box<dyn Line>> {
        if gentle { &mut self.gentle } else { &mut self.plain }
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lines").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Nodes {
    pub(crate) fn new(reach: Arc<dyn Reach>) -> Nodes {
        Nodes { reach, by_name: Mutex::default() }
    }

    fn lines(&self, node: &str) -> Arc<Lines> {
        let mut by_name = locked(&self.by_name);
        if let Some(lines) = by_name.get(node).and_then(Weak::upgrade) {
            return lines;
        }
        by_name.retain(|_, lines| lines.strong_count() > 0);
        let (reach, node) = (self.reach.clone(), node.to_owned());
        let (idle, free) = (Mutex::default(), Condvar::new());
        let lines = Arc::new(Lines { reach, node: node.clone(), idle, free });
        by_name.insert(node, Arc::downgrade(&lines));
        lines
    }
}

/// Refuses a request whose nodes nobody here can do it with.
///
/// # Errors
/// `Usage`.
pub(crate) fn check(request: &Request, reaches: bool) -> Result<()> {
    if let Some((target, node)) = request.target.as_ref().and_then(|t| Some((t, t.node.as_ref()?)))
    {
        return Err(Error::usage(format!("'{target}' is on another node than who is to do this"))
            .with_hint(format!(
                "ask the daemon of node '{node}': a target is where the work is done"
            )));
    }
    let Some(far) = request.sources.iter().find(|s| s.node.is_some()) else { return Ok(()) };
    if request.action == Action::Remove {
        let node = far.node.as_deref().unwrap_or_default();
        return Err(Error::usage(format!("'{far}' is on another node than who is to remove it"))
            .with_hint(format!("ask the daemon of node '{node}'")));
    }
    if !reaches {
        return Err(Error::usage(format!("'{far}' is on another node")).with_hint(
            "daemons that are a pool bring it: mpirun stead daemon --pool; a file of this name here is ./NAME",
        ));
    }
    Ok(())
}

/// What is told of a connection that has ended where there is no other one, for this reason: that there are too many passes by itself, and else the
/// node is gone.
fn ended(e: Error, other: Error) -> Error {
    if other.kind() == Kind::Timeout { other } else { e }
}

impl Lines {
    /// A connection, and whether it is a new one, as it has to be if `new`. Where there may be no more, it is waited for one that is idle.
    ///
    /// # Errors
    /// Those of [`Reach::line`]; `Timeout` if there are too many for long: that passes.
    fn line(&self, gentle: bool, new: bool) -> Result<(Box<dyn Line>, bool)> {
        let watch = Watch::start();
        loop {
            if let Some(line) = locked(&self.idle).of(gentle).pop_if(|_| !new) {
                return Ok((line, false));
            }
            let e = match self.reach.line(&self.node) {
                Ok(line) => return Ok((line, true)),
                Err(e) if e.kind() == Kind::Limit => e,
                Err(e) => return Err(e),
            };
            if watch.seconds() > FREE_WITHIN_S {
                let hint = "other transfers have them; it is tried again";
                return Err(Error::new(Kind::Timeout, e.to_string()).with_hint(hint));
            }
            // In place of one that nobody needs, and that is of no use here, there may be another.
            let spare = {
                let mut idle = locked(&self.idle);
                idle.of(!gentle).pop().or_else(|| idle.of(gentle).pop_if(|_| new))
            };
            // Closed without the lock; the other end takes a moment.
            drop(spare);
            let none = |idle: &mut Idle| new || idle.of(gentle).is_empty();
            drop(self.free.wait_timeout_while(locked(&self.idle), AGAIN, none));
        }
    }

    fn with<T>(&self, mut work: impl FnMut(&mut dyn Line) -> Result<T>) -> Result<T> {
        let (mut line, fresh) = self.line(false, false)?;
        match work(&mut *line) {
            // One that was kept may have ended since.
            Err(e) if e.kind() == Kind::Peer && !fresh => {
                locked(&self.idle).plain.clear();
                let mut line = self.line(false, true).map_err(|other| ended(e, other))?.0;
                let done = work(&mut *line)?;
                self.keep(line);
                Ok(done)
            }
            // It may be in the middle of something.
            Err(e) if matches!(e.kind(), Kind::Peer | Kind::Timeout | Kind::Format) => Err(e),
            Err(e) => {
                self.keep_if_well(line, &e);
                Err(e)
            }
            Ok(done) => {
                self.keep(line);
                Ok(done)
            }
        }
    }

    fn keep(&self, line: Box<dyn Line>) {
        self.keep_as(false, line);
    }

    fn keep_as(&self, gentle: bool, line: Box<dyn Line>) {
        let mut idle = locked(&self.idle);
        let kept = idle.of(gentle);
        if kept.len() < MOST_IDLE {
            kept.push(line);
            drop(idle);
            // All look: some may want one of the other sort.
            self.free.notify_all();
        }
    }

    /// After an error that the other node has answered with, the line is at its next question.
    fn keep_if_well(&self, line: Box<dyn Line>, e: &Error) {
        if e.place().path.is_none() && e.os_code().is_none() {
            self.keep(line);
        }
    }

    fn ask(&self, question: &Question) -> Result<Reply> {
        self.with(|line| line.ask(question)).map_err(|e| self.named(e))
    }

    /// Asks for bytes. Whoever writes them down may fail in the middle: that is no matter of the other node.
    fn read(
        &self,
        question: &Question,
        each: &mut dyn FnMut(Part<'_>) -> Result<()>,
    ) -> Result<Told> {
        let gentle = matches!(question, Question::Read { gentle: true, .. });
        let one = |new| self.line(gentle, new).map_err(|e| self.named(e));
        let (mut line, fresh) = one(false)?;
        let (own, begun) = (Cell::new(false), Cell::new(false));
        let mut each = |part: Part<'_>| {
            begun.set(true);
            each(part).inspect_err(|_| own.set(true))
        };
        let mut done = line.read(question, &mut each);
        // One that was kept may have ended since.
        if !fresh && done.as_ref().is_err_and(|e| e.kind() == Kind::Peer) {
            locked(&self.idle).of(gentle).clear();
            if !begun.get() {
                line = match (self.line(gentle, true), done) {
                    (Ok((line, _)), _) => line,
                    (Err(other), Err(e)) => return Err(self.named(ended(e, other))),
                    (Err(other), Ok(_)) => return Err(self.named(other)),
                };
                done = line.read(question, &mut each);
            }
        }
        match done {
            Ok(Reply::Whole(told)) => {
                self.keep_as(gentle, line);
                Ok(*told)
            }
            Ok(_) => Err(odd(&self.node)),
            Err(e) if own.get() => Err(e),
            Err(e) => Err(self.named(e)),
        }
    }

    /// With the node, of what it does not say itself.
    fn named(&self, e: Error) -> Error {
        let (kind, hint, text) = (e.kind(), e.hint().map(str::to_owned), e.to_string());
        let text = match text.contains(&format!("'{}'", self.node)) {
            true => text,
            false => format!("node '{}': {text}", self.node),
        };
        let e = Error::new(kind, text);
        match hint {
            Some(hint) => e.with_hint(hint),
            None => e,
        }
    }
}

fn odd(node: &str) -> Error {
    Error::format(format!("node '{node}' answers something else than it was asked for"))
}

/// Bytes of a file that are asked for.
pub(crate) struct Wanted<'a> {
    pub(crate) range: Range<u64>,
    /// The file as it was told of: it is an error if it is another one by now.
    pub(crate) seen: Option<&'a Told>,
    /// Wait until a later change would show.
    pub(crate) careful: bool,
    /// With extended attributes in what is told.
    pub(crate) attributes: bool,
    /// The transfer gives way to others.
    pub(crate) gentle: bool,
}

/// A folder of another node.
#[derive(Debug, Clone)]
pub(crate) struct Far {
    lines: Arc<Lines>,
    /// As the other node has it.
    base: Base,
    /// What the base is called there.
    shown: PathBuf,
    tier: Option<String>,
    limit: Option<u64>,
    gentle: bool,
    /// Below the base.
    path: PathBuf,
    known: Arc<Mutex<HashMap<OsString, Meta>>>,
}

impl Far {
    /// Opens what a journal has.
    ///
    /// # Errors
    /// `Usage` without a way to other nodes; those of the node.
    pub(crate) fn open(nodes: Option<&Nodes>, node: &str, base: &Base) -> Result<Far> {
        let lines = nodes.ok_or_else(|| no_way(node))?.lines(node);
        match lines.ask(&Question::Open { base: base.clone() })? {
            Reply::Opened { shown, tier, limit, gentle } => {
                let far = Far::of(lines, base.clone(), &shown, tier);
                Ok(Far { limit, gentle, ..far })
            }
            _ => Err(odd(node)),
        }
    }

    /// What a name leads to there.
    ///
    /// # Errors
    /// As [`Far::open`].
    pub(crate) fn find(
        nodes: Option<&Nodes>,
        node: &str,
        location: &Location,
        follow: bool,
    ) -> Result<End> {
        let lines = nodes.ok_or_else(|| no_way(node))?.lines(node);
        let location = Location { node: None, ..location.clone() };
        match lines.ask(&Question::Find { location, follow })? {
            Reply::Found { base, path, shown, tier, limit, gentle } => {
                let far = Far::of(lines, base.clone(), &shown, tier);
                let far = Far { limit, gentle, ..far };
                Ok(End {
                    base: Base::Far(node.to_owned(), Box::new(base)),
                    folder: crate::place::Place::Far(far),
                    path: path.path(),
                })
            }
            _ => Err(odd(node)),
        }
    }

    fn of(lines: Arc<Lines>, base: Base, shown: &Raw, tier: Option<String>) -> Far {
        let mut name = OsString::from(format!("{}:", lines.node));
        name.push(shown.path());
        let shown = PathBuf::from(name);
        let (path, known) = (PathBuf::new(), Arc::default());
        Far { lines, base, shown, tier, limit: None, gentle: false, path, known }
    }

    pub(crate) fn shown(&self) -> PathBuf {
        match self.path.as_os_str().is_empty() {
            true => self.shown.clone(),
            false => self.shown.join(&self.path),
        }
    }

    pub(crate) fn tier(&self) -> Option<String> {
        self.tier.as_ref().map(|tier| format!("{}:{tier}", self.lines.node))
    }

    /// Bytes a second that are agreed there.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.limit
    }

    /// True if transfers that read there are to give way to others.
    pub(crate) fn is_gentle(&self) -> bool {
        self.gentle
    }

    /// As the other node has it, and the path of a name below it.
    pub(crate) fn place_of(&self, name: &OsStr) -> (Base, Raw) {
        (self.base.clone(), Raw::of(self.path.join(name).as_os_str()))
    }

    pub(crate) fn below(&self, path: &Path) -> Far {
        if path.as_os_str().is_empty() {
            return self.clone();
        }
        Far { path: self.path.join(path), known: Arc::default(), ..self.clone() }
    }

    /// What was told, with a device that no other node has.
    pub(crate) fn meta_of(&self, told: &Told) -> Option<Meta> {
        let meta = told.meta()?;
        Some(Meta { dev: number(&format!("{}:{}", self.lines.node, meta.dev)), ..meta })
    }

    fn look(&self, path: &Path) -> Result<Option<(Meta, Told)>> {
        let (base, path) = (self.base.clone(), Raw::of(path.as_os_str()));
        match self.lines.ask(&Question::Meta { base, path })? {
            Reply::Meta(None) => Ok(None),
            Reply::Meta(Some(told)) => match self.meta_of(&told) {
                Some(meta) => Ok(Some((meta, told))),
                None => Err(odd(&self.lines.node)),
            },
            _ => Err(odd(&self.lines.node)),
        }
    }

    /// A file that is to be there, asked for anew, and as the other node tells it.
    pub(crate) fn looked_at(&self, name: &OsStr) -> Result<(Meta, Told)> {
        let gone = || Error::new(Kind::NotFound, "no such file").at_path(self.shown().join(name));
        self.look(&self.path.join(name))?.ok_or_else(gone)
    }

    pub(crate) fn own_meta(&self) -> Result<Meta> {
        let gone = || Error::new(Kind::NotFound, "no such folder").at_path(self.shown());
        self.look(&self.path)?.map(|(meta, _)| meta).ok_or_else(gone)
    }

    pub(crate) fn meta(&self, name: &OsStr) -> Result<Option<Meta>> {
        if let Some(meta) = locked(&self.known).get(name) {
            return Ok(Some(*meta));
        }
        Ok(self.look(&self.path.join(name))?.map(|(meta, _)| meta))
    }

    /// Asks for bytes of a file, or, if `silent`, for their checksum alone.
    fn asks(&self, name: &OsStr, of: &Wanted<'_>, silent: bool) -> Question {
        let (base, path) = self.place_of(name);
        Question::Read {
            base,
            path,
            at: of.range.start,
            len: of.range.end - of.range.start,
            seen: of.seen.cloned(),
            careful: of.careful,
            attributes: of.attributes,
            gentle: of.gentle,
            silent,
        }
    }

    /// The checksum of bytes of a file, which the other node reads: none of them comes. Of a file that is shorter it is that of fewer bytes.
    pub(crate) fn sum(&self, name: &OsStr, of: &Wanted<'_>) -> Result<(u64, Told)> {
        let mut told = self.lines.read(&self.asks(name, of, true), &mut |_| {
            Err(Error::format("the other node sends bytes that nobody has asked for"))
        })?;
        let sum = told.sum.take().ok_or_else(|| odd(&self.lines.node))?;
        Ok((sum, told))
    }

    /// Bytes of a file, in order, each with its place: all of these, no others and none of another file, or an error.
    pub(crate) fn read(
        &self,
        name: &OsStr,
        of: Wanted<'_>,
        each: &mut dyn FnMut(u64, Part<'_>) -> Result<()>,
    ) -> Result<Told> {
        let question = self.asks(name, &of, false);
        let (mut sum, mut at) = (Sum::new(), of.range.start);
        let mut told = self.lines.read(&question, &mut |part| {
            let len = match part {
                Part::Bytes(bytes) => bytes.len() as u64,
                Part::Hole(len) => len,
            };
            if len > of.range.end - at {
                return Err(Error::format("the other node sends more than it was asked for")
                    .at_path(self.shown().join(name)));
            }
            match part {
                Part::Bytes(bytes) => sum.bytes(bytes),
                Part::Hole(len) => sum.hole(len),
            }
            each(at, part)?;
            at += len;
            Ok(())
        })?;
        if at < of.range.end {
            return Err(self.changed(name));
        }
        if told.sum.take().is_none_or(|read| read != sum.finish()) {
            return Err(Error::new(Kind::Io, "what has come is not what the other node has read")
                .at_path(self.shown().join(name))
                .at_offset(of.range.start)
                .with_hint("the memory of a node or the way between both may be failing; the file was not given its name"));
        }
        Ok(told)
    }

    /// What is said of a file that is not what it was.
    pub(crate) fn changed(&self, name: &OsStr) -> Error {
        Error::new(Kind::Changed, "the file changed while it was copied")
            .at_path(self.shown().join(name))
            .with_hint("stage it again when nobody writes to it")
    }

    pub(crate) fn read_link(&self, name: &OsStr) -> Result<OsString> {
        let (base, path) = self.place_of(name);
        match self.lines.ask(&Question::Link { base, path })? {
            Reply::Link(text) => Ok(text.os()),
            _ => Err(odd(&self.lines.node)),
        }
    }

    /// Rights, times and extended attributes of a name, or of the folder itself by the empty name.
    pub(crate) fn attributes(&self, name: &OsStr) -> Result<(Meta, Attributes)> {
        let (base, path) = match name.is_empty() {
            true => (self.base.clone(), Raw::of(self.path.as_os_str())),
            false => self.place_of(name),
        };
        match self.lines.ask(&Question::Attributes { base, path })? {
            Reply::Whole(told) => {
                let meta = self.meta_of(&told).ok_or_else(|| odd(&self.lines.node))?;
                Ok((meta, told.attributes.unwrap_or_default()))
            }
            _ => Err(odd(&self.lines.node)),
        }
    }

    /// Removes a name: if it is a file that was seen so, or was changed last at this time.
    pub(crate) fn remove(
        &self,
        name: &OsStr,
        question: impl FnOnce(Base, Raw) -> Question,
    ) -> Result<()> {
        let (base, path) = self.place_of(name);
        match self.lines.ask(&question(base, path))? {
            Reply::Removed(_) => Ok(()),
            _ => Err(odd(&self.lines.node)),
        }
    }

    pub(crate) fn names(&self) -> Result<FarNames> {
        let line = self.lines.line(false, true).map_err(|e| self.lines.named(e))?.0;
        Ok(FarNames { of: self.clone(), line: Some(line), begun: false })
    }
}

/// Names of a folder of another node, a page at a time.
pub(crate) struct FarNames {
    of: Far,
    /// None once there are no more.
    line: Option<Box<dyn Line>>,
    begun: bool,
}

impl FarNames {
    fn page(&mut self) -> Result<Option<Vec<OsString>>> {
        let Some(line) = &mut self.line else { return Ok(None) };
        let node = &self.of.lines.node;
        let question = match std::mem::replace(&mut self.begun, true) {
            true => Question::More {},
            false => {
                let (base, path) = (self.of.base.clone(), Raw::of(self.of.path.as_os_str()));
                Question::List { base, path }
            }
        };
        let Reply::Names { names, more } =
            line.ask(&question).map_err(|e| self.of.lines.named(e))?
        else {
            return Err(odd(node));
        };
        let mut known = HashMap::with_capacity(names.len());
        let mut list = Vec::with_capacity(names.len());
        for (name, told) in names {
            let name = name.os();
            let plain = !name.is_empty() && Path::new(&name).file_name() == Some(&*name);
            let meta = self.of.meta_of(&told).filter(|_| plain).ok_or_else(|| odd(node))?;
            known.insert(name.clone(), meta);
            list.push(name);
        }
        *locked(&self.of.known) = known;
        if !more && let Some(line) = self.line.take() {
            self.of.lines.keep(line);
        }
        Ok((more || !list.is_empty()).then_some(list))
    }
}

impl Iterator for FarNames {
    type Item = Result<Vec<OsString>>;

    fn next(&mut self) -> Option<Self::Item> {
        let page = self.page();
        if page.is_err() {
            self.line = None;
        }
        page.transpose()
    }
}

fn no_way(node: &str) -> Error {
    Error::usage(format!("node '{node}' is not reached from here"))
        .with_hint("daemons that are a pool reach each other: mpirun stead daemon --pool")
}

/// What is kept of an iterator of names, on the side that answers.
type Queue = VecDeque<(Raw, Told)>;

#[cfg(test)]
mod tests;
