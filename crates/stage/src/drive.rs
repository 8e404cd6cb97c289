//! A transfer that has been planned, from where it is to its end.
//!
//! Each phase does what the journal says is left of it, and may be done again: what is removed, folders, renames, files, links,
//! and in the end what folders get when nothing comes into them any more.

mod files;
mod names;
mod naming;

use crate::clock::Watch;
use crate::commit::{Before, SYNC_EACH};
use crate::copy::{self, Means};
use crate::ends::split;
use crate::enough::data_of;
use crate::job::{Item, Task};
use crate::journal::{Journal, Known};
use crate::limiter::{self, Flow, Limiter};
use crate::pace::Pace;
use crate::place::Place;
use crate::remote::{Far, Nodes};
use crate::request::Action;
use crate::rules::{self, Rule};
use crate::serve::Serve;
use crate::speeds::{Speeds, Under};
use crate::status::{Progress, Watcher};
use crate::strays;
use crate::touch::{self, Bounds};
use crate::unnamed::Unnamed;
use crate::up;
use crate::work::{self, Carries, Carry, stops_all};
use files::Found;
use naming::Unsettled;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Kind, Result};
use stead_model::transfer::{Amount, Seen};
use stead_store::What;
use stead_store::device::Device;

/// Files that are made durable together.
const BATCH_FILES: usize = 2048;
/// Bytes of them; a larger file is a batch of its own.
const BATCH_BYTES: u64 = 256 << 20;
/// So often a large file's beginning is made durable.
const MARK_EVERY_S: f64 = 2.0;
/// Names whose end is written down together.
const TOGETHER: usize = 1024;
/// The first wait before something is tried again; each further one is twice as long.
const BACK_OFF: Duration = Duration::from_millis(200);
/// So often at most somebody waits for a single name.
const MOST_WAITS: u64 = 20;
/// Folders of the files of a batch, which are open all at once.
const BATCH_FOLDERS: usize = 20;
/// Files of so many bytes are small.
const SMALL: u64 = 128 << 10;
/// What was seen of other transfers counts for no more than so many seconds of this one.
const PRIOR_S: f64 = 2.0;

/// What folders get in the end.
const ENDINGS: [Task; 2] = [Task::Folder, Task::LeaveFolder];

fn endings_of(tasks: &HashMap<Task, u64>) -> u64 {
    ENDINGS.iter().filter_map(|task| tasks.get(task)).sum()
}

/// Why a transfer did not come to its end.
pub(crate) enum Stopped {
    /// For this reason; it can be resumed.
    Error(Error),
    /// What was planned as renames is to be copied.
    CannotRename,
    /// It touches dataspaces for which it has not had its turn: these.
    Elsewhere(touch::Touched),
}

impl From<Error> for Stopped {
    fn from(e: Error) -> Stopped {
        Stopped::Error(e)
    }
}

/// Files that are on their way to a store or from it at once: each waits for answers.
pub(crate) const OBJECTS_AT_ONCE: usize = 16;
/// Bytes of parts that are in memory.
const MOST_IN_PARTS: u64 = 512 << 20;

/// The folder of one side, and the one below it that was asked for last.
struct Side {
    base: Place,
    last: Mutex<Option<(PathBuf, Place)>>,
}

impl Side {
    fn new(base: Place) -> Side {
        Side { base, last: Mutex::new(None) }
    }

    fn folder(&self, path: &Path, make: bool) -> Result<Place> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, folder)) = &*last
            && of == path
        {
            return Ok(folder.clone());
        }
        let folder = if make { self.base.make_below(path)? } else { self.base.below(path)? };
        *last = Some((path.to_owned(), folder.clone()));
        Ok(folder)
    }
}

/// What a transfer is driven with.
pub(crate) struct Drive<'a> {
    pub(crate) journal: &'a Journal,
    pub(crate) speeds: &'a Speeds,
    pub(crate) id: i64,
    pub(crate) known: &'a Known,
    pub(crate) spaces: &'a Spaces,
    pub(crate) bounds: &'a Bounds,
    /// Those that it had its turn for.
    pub(crate) held: &'a touch::Touched,
    pub(crate) nodes: Option<&'a Nodes>,
    pub(crate) threads: usize,
    /// As many where files are small.
    pub(crate) threads_of_small: usize,
    /// As many where a side is in a bucket.
    pub(crate) at_once: usize,
    pub(crate) cancel: &'a Cancel,
    pub(crate) watcher: Option<&'a dyn Watcher>,
    /// It was planned by somebody who has come to an end before it did.
    pub(crate) resumed: bool,
}

/// A drive that is under way.
struct Way<'a> {
    d: &'a Drive<'a>,
    sources: Vec<Side>,
    target: Option<Side>,
    limiter: Limiter,
    /// It gives way to others: that was asked for, or agreed for what it reads or writes.
    gentle: bool,
    /// Where it does.
    pace: Option<Pace>,
    bytes: AtomicU64,
    /// Of these, those that nobody has moved.
    kept: AtomicU64,
    files: AtomicU64,
    /// What was left of each task when it began.
    tasks: HashMap<Task, u64>,
    /// Folders that are still to get their times, or to be left: names that count, and take next to no time.
    endings: AtomicU64,
    /// Times that somebody has waited before another try of a single name.
    waits: AtomicU64,
    /// A device has failed to write: each file is made durable by itself, so that it is known which one was lost.
    each: AtomicBool,
    unsettled: Mutex<Option<Unsettled>>,
    clones: AtomicBool,
    unnamed: Unnamed,
    serve: Serve,
    watch: Watch,
    /// None where no bytes move between tiers.
    under: Option<Under<'a>>,
    rates: Mutex<Rates>,
}

/// Files of a batch, before the first one is brought.
struct Ready {
    copies: Carries,
    /// Those that were brought before, by whoever began the transfer.
    there: Vec<(Item, Before)>,
}

/// What was seen of this transfer, for the time that it still needs.
struct Rates {
    seen: Seen,
    at: f64,
    then: Amount,
    /// Seconds that the last batch took to be durable and get its names, as the one does behind which nothing is copied any more.
    names: f64,
}

impl Drive<'_> {
    /// Does what is left.
    ///
    /// # Errors
    /// What stops all of it: no room, the user, the journal. What is wrong with single names is in the journal.
    pub(crate) fn run(&self) -> std::result::Result<(), Stopped> {
        let Some(ends) = &self.known.ends else {
            return Err(Error::internal("a transfer that was not planned").into());
        };
        let open = |base: &crate::ends::Base| {
            base.open(self.spaces, self.nodes, self.cancel).map(Side::new)
        };
        let sources = ends.sources.iter().map(open).collect::<Result<Vec<Side>>>()?;
        let target = ends.target.as_ref().map(open).transpose()?;
        if target.as_ref().is_some_and(|side| side.base.bucket().is_some()) {
            strays::sweep(self.journal, self.cancel);
        }
        let bases = ends.sources.iter().zip(&sources).chain(ends.target.iter().zip(&target));
        let of = |(base, side): (&crate::ends::Base, &Side)| {
            rules::of(self.spaces, base, &side.base, Path::new(""))
        };
        let rules: Vec<rules::Rule> = bases.flat_map(of).collect();
        let pair = pair(sources.first().map(|s| &s.base), target.as_ref().map(|t| &t.base));
        let seen = self.speeds.of(pair.as_deref(), self.journal)?;
        let touched = self.journal.touched(self.id)?.with(&rules);
        let gentle = self.known.request.options.gentle
            || touch::gentle(self.spaces, &touched)
            || sources.iter().any(|side| side.base.far().is_some_and(Far::is_gentle));
        let device = |side: Option<&Side>| {
            side.and_then(|side| side.base.folder().ok()).and_then(Device::of)
        };
        let pace = gentle
            .then(|| Pace::new(device(sources.first()), device(target.as_ref()), self.threads));
        let shared = self.shared(touched)?;
        // Of what is on other nodes these have told: each transfer keeps to it by itself.
        let far = sources.iter().filter_map(|side| side.base.far().and_then(Far::limit));
        let own = far.chain(self.known.request.options.limit).min();
        let tasks = self.journal.tasks_left(self.id)?;
        let way = Way {
            d: self,
            sources,
            target,
            limiter: Limiter::new(own, shared),
            gentle,
            pace,
            bytes: AtomicU64::new(self.known.done.bytes),
            kept: AtomicU64::new(0),
            files: AtomicU64::new(self.known.done.files),
            endings: AtomicU64::new(endings_of(&tasks)),
            tasks,
            waits: AtomicU64::new(0),
            each: AtomicBool::new(false),
            unsettled: Mutex::new(None),
            clones: AtomicBool::new(true),
            unnamed: Unnamed::new(),
            serve: Serve::new(false),
            watch: Watch::start(),
            under: pair.map(|pair| self.speeds.begin(&pair)),
            rates: Mutex::new(Rates {
                seen: seen.as_if(PRIOR_S),
                at: 0.0,
                then: Amount::new(self.known.done.files, self.known.done.bytes),
                names: 0.0,
            }),
        };
        let ended = way.phases();
        way.remember();
        ended
    }

    /// What it shares with others in all that it touches, if it has had its turn there.
    fn shared(&self, touched: touch::Touched) -> std::result::Result<Vec<Arc<Flow>>, Stopped> {
        self.bounds.check(&touched)?;
        if !self.bounds.covers(self.held, &touched) {
            return Err(Stopped::Elsewhere(touched));
        }
        Ok(limiter::flows(self.bounds, &touched, true))
    }
}

/// What a pair of tiers is called, between which bytes move.
pub(crate) fn pair(from: Option<&Place>, to: Option<&Place>) -> Option<String> {
    let name = |place: Option<&Place>| place.and_then(Place::tier);
    Some(format!("{}>{}", name(from)?, name(to)?))
}

impl Way<'_> {
    fn phases(&self) -> std::result::Result<(), Stopped> {
        self.removals()?;
        self.folders()?;
        self.renames()?;
        self.all_files()?;
        self.links()?;
        self.unread()?;
        self.endings()?;
        Ok(())
    }

    fn source(&self, item: &Item) -> Result<Place> {
        self.of_source(item, split(&item.source).0)
    }

    /// A folder of the side that an item comes from.
    fn of_source(&self, item: &Item, path: &Path) -> Result<Place> {
        let side = usize::try_from(item.from).ok().and_then(|i| self.sources.get(i));
        let side = side.ok_or_else(|| Error::internal("a name of no source"))?;
        side.folder(path, false)
    }

    fn target(&self, item: &Item, make: bool) -> Result<Place> {
        let side = self.target.as_ref().ok_or_else(|| Error::internal("no target"))?;
        side.folder(item.folder(), make)
    }

    /// True if a side is in a bucket, or on another node.
    fn is_remote(&self) -> bool {
        let is = |place: &Place| place.bucket().is_some() || place.far().is_some();
        self.sources.iter().chain(&self.target).any(|side| is(&side.base))
    }

    fn temporary(&self, item: &Item) -> std::ffi::OsString {
        item.temporary(self.d.known.tag)
    }

    fn is_durable(&self) -> bool {
        self.d.known.request.options.durable
    }

    /// Does something with each name of these tasks that is left, in order or in reverse, then `settle` with those for which that
    /// went well, which may fail for each of them or take out what is left for later, and writes down what came of it.
    fn each(
        &self,
        tasks: &[Task],
        reverse: bool,
        write: bool,
        mut work: impl FnMut(&Item) -> Result<()>,
        mut settle: impl FnMut(&mut Vec<&Item>) -> Result<Vec<(i64, Error)>>,
    ) -> Result<()> {
        if !tasks.iter().any(|task| self.tasks.contains_key(task)) {
            return Ok(());
        }
        let ends = write && tasks.iter().all(|task| ENDINGS.contains(task));
        let (journal, id) = (self.d.journal, self.d.id);
        let mut from = if reverse { i64::MAX } else { 0 };
        loop {
            let items = journal.left(id, tasks, from, reverse, TOGETHER)?;
            let Some(last) = items.last() else { return Ok(()) };
            from = if reverse { last.n } else { last.n + 1 };
            let (mut done, mut failed) = (Vec::new(), Vec::new());
            let mut stopped = Ok(());
            for item in &items {
                match self.d.cancel.check().and_then(|()| self.again(|| work(item))) {
                    Ok(()) => {
                        done.push(item);
                        if write {
                            self.files.fetch_add(1, Ordering::Relaxed);
                        }
                        if ends {
                            self.endings.fetch_sub(1, Ordering::Relaxed);
                        }
                    }
                    // A node that is gone is gone for all.
                    Err(e) if stops_all(&e) || e.kind() == Kind::Peer => {
                        stopped = Err(e);
                        break;
                    }
                    Err(e) => failed.push((item, e)),
                }
                self.show();
            }
            for (n, e) in settle(&mut done)? {
                if let Some(at) = done.iter().position(|item| item.n == n) {
                    failed.push((done.remove(at), e));
                }
            }
            let failed: Vec<_> = failed.iter().map(|(item, e)| (*item, e)).collect();
            journal.done(id, if write { &done } else { &[] }, &failed)?;
            stopped?;
        }
    }

    /// Tries again what failed for a reason that may pass.
    fn again(&self, mut work: impl FnMut() -> Result<()>) -> Result<()> {
        let mut tries = 0;
        loop {
            match work() {
                // Where many fail, the reason is one that does not pass.
                Err(e)
                    if tries < self.d.known.request.options.retries
                        && e.kind() != Kind::Changed
                        && copy::may_pass(&e)
                        && self.waits.fetch_add(1, Ordering::Relaxed) < MOST_WAITS =>
                {
                    self.back_off(tries, &e)?;
                    tries += 1;
                }
                done => return done,
            }
        }
    }

    fn back_off(&self, tries: u32, e: &Error) -> Result<()> {
        if let Some(watcher) = self.d.watcher {
            watcher.retry(e);
        }
        let until = self.watch.seconds() + (BACK_OFF * 2u32.pow(tries.min(8))).as_secs_f64();
        while self.watch.seconds() < until {
            self.d.cancel.check()?;
            let left = (until - self.watch.seconds()).max(0.0);
            std::thread::sleep(Duration::from_secs_f64(left).min(work::LOOK));
        }
        Ok(())
    }

    /// Files, in batches: while one becomes durable and gets its names, the next one is copied.
    fn all_files(&self) -> Result<()> {
        let again = Mutex::new(Vec::new());
        self.files_of(&mut |from| self.batch(from), &again)?;
        for tries in 0..self.d.known.request.options.retries {
            let list = std::mem::take(&mut *again.lock().unwrap_or_else(PoisonError::into_inner));
            let Some((_, error)) = list.first() else { return Ok(()) };
            self.back_off(tries, error)?;
            let (mut items, mut grown) = (Vec::new(), Vec::new());
            for (item, error) in list {
                match self.now(&item) {
                    Ok(now) if now.size > item.size => grown.push(now),
                    Ok(now) if now != item => items.push(self.resized(now)?),
                    Ok(now) => items.push(now),
                    Err(e) if e.kind() == Kind::Peer => {
                        again.lock().unwrap_or_else(PoisonError::into_inner).push((item, e));
                    }
                    // A node that is gone cannot be asked what there is of it.
                    Err(e) if error.kind() == Kind::Peer && e.kind() != Kind::NotFound => {
                        again.lock().unwrap_or_else(PoisonError::into_inner).push((item, error));
                    }
                    Err(_) => self.d.journal.done(self.d.id, &[], &[(&item, &error)])?,
                }
            }
            match self.still_fits(&items, &grown) {
                Ok(()) => {
                    for now in grown {
                        items.push(self.resized(now)?);
                    }
                }
                // It is asked again when it is resumed: its size stays the one that was planned.
                Err(e) if e.kind() == Kind::NoSpace => {
                    let failed: Vec<_> = grown.iter().map(|item| (item, &e)).collect();
                    self.d.journal.done(self.d.id, &[], &failed)?;
                }
                Err(e) => return Err(e),
            }
            items.sort_by_key(|item| item.n);
            let mut left = items.into_iter().peekable();
            self.files_of(
                &mut |_| {
                    let mut batch: Vec<Item> = Vec::new();
                    let mut bytes = 0;
                    while let Some(item) = left.peek()
                        && (batch.is_empty() || item.size.saturating_add(bytes) <= BATCH_BYTES)
                        && batch.len() < BATCH_FOLDERS
                    {
                        bytes = item.size.saturating_add(bytes);
                        batch.extend(left.next());
                    }
                    Ok(batch)
                },
                &again,
            )?;
        }
        let list = again.into_inner().unwrap_or_else(PoisonError::into_inner);
        let (gone, list): (Vec<_>, Vec<_>) =
            list.into_iter().partition(|(_, e)| e.kind() == Kind::Peer);
        let failed: Vec<_> = list.iter().map(|(item, e)| (item, e)).collect();
        self.d.journal.done(self.d.id, &[], &failed)?;
        // What lies on a node that is gone can go on once it is back.
        gone.into_iter().next().map_or(Ok(()), |(_, e)| Err(e))
    }

    /// Looks whether quotas have room for files that have grown since they were planned, besides those that are tried again as they were.
    fn still_fits(&self, items: &[Item], grown: &[Item]) -> Result<()> {
        let base = self.d.known.ends.as_ref().and_then(|ends| ends.target.as_ref());
        let (false, Some(base), Some(side)) = (grown.is_empty(), base, &self.target) else {
            return Ok(());
        };
        let mut to: Vec<Rule> = Vec::new();
        for item in grown {
            for rule in rules::of(self.d.spaces, base, &side.base, &item.target) {
                if rule.has_quota()
                    && !to
                        .iter()
                        .any(|known| (&known.name, &known.place) == (&rule.name, &rule.place))
                {
                    to.push(rule);
                }
            }
        }
        let mut needed = 0u64;
        for item in items.iter().chain(grown).filter(|_| !to.is_empty()) {
            let (folder, name) = (self.source(item)?, item.source.file_name().unwrap_or_default());
            let room = folder.meta(name)?.map_or(0, |meta| data_of(&folder, name, &meta));
            needed = needed.saturating_add(room);
        }
        rules::still_within_quota(&to, self.d.journal, (self.d.id, needed), self.d.cancel)
    }

    /// A file that failed, as it is now.
    fn now(&self, item: &Item) -> Result<Item> {
        let source = self.source(item)?;
        let name = item.source.file_name().unwrap_or_default();
        let gone = || Error::new(Kind::NotFound, "no such file").at_path(source.at(name));
        let meta = source.meta(name)?.ok_or_else(gone)?;
        if meta.what != What::File {
            return Ok(item.clone());
        }
        Ok(Item { size: meta.size, mtime: meta.mtime, ..item.clone() })
    }

    fn resized(&self, now: Item) -> Result<Item> {
        self.d.journal.resize(self.d.id, now.n, now.size, now.mtime)?;
        Ok(now)
    }

    fn batch(&self, from: i64) -> Result<Vec<Item>> {
        let mut items = self.d.journal.left(self.d.id, &[Task::File], from, false, BATCH_FILES)?;
        let mut bytes = 0;
        let fits = items.iter().take_while(|item| {
            bytes = item.size.saturating_add(bytes);
            bytes <= BATCH_BYTES
        });
        let count = fits.count().max(1);
        items.truncate(count);
        let mut folders = 0;
        let near = items.windows(2).take_while(|two| {
            let other = (two[0].folder(), two[0].source.parent())
                != (two[1].folder(), two[1].source.parent());
            folders += usize::from(other);
            folders < BATCH_FOLDERS
        });
        let count = near.count() + 1;
        items.truncate(count);
        Ok(items)
    }

    fn files_of(
        &self,
        batches: &mut (dyn FnMut(i64) -> Result<Vec<Item>> + Send),
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<()> {
        let batches = Mutex::new(batches);
        let next = |from: i64| {
            let mut batches = batches.lock().unwrap_or_else(PoisonError::into_inner);
            let items = batches(from)?;
            let then = items.last().map_or(from, |item| item.n + 1);
            Ok((self.ready(items, again)?, then))
        };
        let panicked = |_| Err(Error::internal("a thread that gets files ready panicked"));
        std::thread::scope(|scope| {
            let mut committing: Option<ScopedJoinHandle<'_, Result<()>>> = None;
            let mut readying: Option<ScopedJoinHandle<'_, Result<(Ready, i64)>>> = None;
            let mut from = 0;
            let ended = loop {
                let begun = readying.take();
                let ready = begun.map_or_else(|| next(from), |t| t.join().unwrap_or_else(panicked));
                let ready = match ready {
                    Ok((_, then)) if then == from => break Ok(()),
                    Ok((ready, then)) => {
                        from = then;
                        ready
                    }
                    Err(e) => break Err(e),
                };
                // By itself: of one side one folder is open beside those of files.
                if let Err(e) = self.were_brought(&ready.there, again) {
                    break Err(e);
                }
                // An upload is not begun before it is its turn. Without a thread, what comes next is made ready then.
                if !self.is_remote() {
                    let thread = std::thread::Builder::new();
                    readying = thread.spawn_scoped(scope, move || next(from)).ok();
                }
                if !self.is_quick(&ready.copies)
                    && let Some(before) = committing.take()
                {
                    // Those before it are not to wait so long to be done.
                    let settle = move || join(&mut Some(before)).and(self.settle_rest(again));
                    committing = Some(scope.spawn(settle));
                }
                let (copies, sync_each, stopped) = match self.copy(ready.copies) {
                    Ok(copied) => copied,
                    Err(e) => break Err(e),
                };
                let joined = join(&mut committing);
                // Batches of small files may be quicker than those who look around.
                self.show();
                if let Err(e) = joined {
                    copies.iter().for_each(|copy| self.abandon(&**copy));
                    break Err(e);
                }
                committing = Some(scope.spawn(move || {
                    let watch = Watch::start();
                    let named = self.commit(copies, sync_each, again);
                    self.rates().names = watch.seconds();
                    named
                }));
                if let Some(e) = stopped {
                    break Err(e);
                }
            };
            let joined = join(&mut committing);
            // Also of what was stopped: what has its name is done.
            let settled = self.settle_rest(again);
            joined.and(settled).and(ended)
        })
    }

    /// True of a batch that is copied in next to no time.
    fn is_quick(&self, copies: &Carries) -> bool {
        are_small(copies) && !self.gentle && !self.limiter.is_bound() && !self.is_remote()
    }

    /// What brings the files of a batch; nothing of it is brought yet.
    fn ready(&self, items: Vec<Item>, again: &Mutex<Vec<(Item, Error)>>) -> Result<Ready> {
        let mut ready = Ready { copies: Vec::with_capacity(items.len()), there: Vec::new() };
        for item in items {
            self.d.cancel.check()?;
            match self.carry(&item) {
                Ok(Found::Not(copy)) => ready.copies.push(copy),
                Ok(Found::Before(before)) => ready.there.push((item, before)),
                Err(e) if stops_all(&e) => return Err(e),
                Err(e) => self.put_off(&item, e, again)?,
            }
        }
        Ok(ready)
    }

    /// Ends what was brought before, by whoever began the transfer.
    fn were_brought(
        &self,
        there: &[(Item, Before)],
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<()> {
        for (item, before) in there {
            match self.ended_before(item, before) {
                Err(e) if stops_all(&e) => return Err(e),
                Err(e) => self.put_off(item, e, again)?,
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Copies the files of a batch to their temporary names. The error is what stops the transfer behind this batch.
    fn copy(&self, copies: Carries) -> Result<(Carries, bool, Option<Error>)> {
        let options = &self.d.known.request.options;
        let is_move = self.d.known.request.action == Action::Move;
        let begun = |copy: &dyn Carry| Some((copy.track().item().n, copy.is_begun()?.to_owned()));
        let begun: Vec<_> = copies.iter().filter_map(|copy| begun(&**copy)).collect();
        self.d.journal.set_marks(self.d.id, &begun, self.is_durable())?;
        let sync_each =
            self.is_durable() && (copies.len() <= SYNC_EACH || self.each.load(Ordering::Relaxed));
        let means = Means {
            limiter: &self.limiter,
            pace: self.pace.as_ref(),
            cancel: self.d.cancel,
            sync_each,
            verify: options.verify,
            bytes: &self.bytes,
            kept: &self.kept,
            careful: is_move,
            files: &self.files,
            clones: &self.clones,
            serve: &self.serve,
            unnamed: &self.unnamed,
            forget: &|n| self.d.journal.set_mark(self.d.id, n, None),
        };
        let mut marked_at = self.watch.seconds();
        let mut marked = Ok(());
        let part = copies.iter().map(|copy| up::part_of(copy.track().item().size)).max();
        let threads = match self.is_remote() {
            true => (MOST_IN_PARTS / part.unwrap_or(1)).clamp(1, self.d.at_once as u64) as usize,
            // Who gives way looks at how long each of a few takes.
            false if self.gentle => self.d.threads,
            false if are_small(&copies) => self.d.threads_of_small,
            false => self.d.threads,
        };
        work::copy(&copies, threads, self.gentle, &means, &mut || {
            self.show();
            if self.watch.seconds() - marked_at > MARK_EVERY_S {
                for copy in copies.iter().filter(|c| c.is_marked() && c.track().is_well()) {
                    match copy.mark() {
                        Ok(None) => {}
                        Ok(Some(mark)) if marked.is_ok() => {
                            let n = copy.track().item().n;
                            marked = self.d.journal.set_mark(self.d.id, n, Some(&mark));
                        }
                        Ok(Some(_)) => {}
                        // It is begun anew, and no other file with it.
                        Err(e) => copy.track().fail(e),
                    }
                }
                marked_at = self.watch.seconds();
            }
        });
        let stopped = marked.and(self.d.cancel.check()).err();
        Ok((copies, sync_each, stopped))
    }

    /// Tells who watches how far it is.
    fn show(&self) {
        let (files, bytes) =
            (self.files.load(Ordering::Relaxed), self.bytes.load(Ordering::Relaxed));
        let totals = &self.d.known.totals;
        let now = self.watch.seconds();
        let mut rates = self.rates();
        if now - rates.at < work::LOOK.as_secs_f64() {
            return;
        }
        let moved = self.moved();
        let (new, passed) = (moved.less(rates.then), now - rates.at);
        let start = Amount::new(self.d.known.done.files, self.d.known.done.bytes);
        rates.seen.note_within(new, passed, now);
        (rates.at, rates.then) = (now, moved);
        let last = self.endings.load(Ordering::Relaxed);
        let ahead = Amount::new(totals.files.saturating_sub(last), totals.bytes);
        let left = rates.seen.takes(ahead.less(Amount::new(files, bytes))).and(rates.names);
        // What file systems share is no part of what a limit is for.
        let shares = self.clones.load(Ordering::Relaxed) && self.kept.load(Ordering::Relaxed) > 0;
        let to_move = if shares { 0 } else { totals.bytes.saturating_sub(bytes) };
        let left = left.at_least(self.limiter.least(to_move as f64));
        if let Some(under) = self.measured() {
            under.tell(rates.seen);
        }
        drop(rates);
        if let Some(watcher) = self.d.watcher {
            watcher.progress(&Progress {
                action: self.d.known.request.action,
                files_done: files,
                files: totals.files,
                bytes_done: bytes.min(totals.bytes),
                bytes: totals.bytes,
                planned: true,
                seconds: now,
                moved: moved.less(start).bytes as u64,
                left,
            });
        }
    }

    /// What it has moved, and so needed time for.
    fn moved(&self) -> Amount {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let ended = endings_of(&self.tasks).saturating_sub(load(&self.endings));
        let files = load(&self.files).saturating_sub(ended);
        Amount::new(files, load(&self.bytes).saturating_sub(load(&self.kept)))
    }

    fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pair of tiers, if what is seen is how fast it is: what somebody has limited is no speed of a device.
    fn measured(&self) -> Option<&Under<'_>> {
        self.under.as_ref().filter(|_| !self.limiter.is_bound())
    }

    /// Notes what was seen of this pair of tiers, for those who come later.
    fn remember(&self) {
        let Some(pair) = self.measured().map(Under::pair) else { return };
        let now = self.moved();
        let start = Amount::new(self.d.known.done.files, self.d.known.done.bytes);
        // A hint, of which nobody is told that it could not be written.
        if let Ok(mut seen) = self.d.journal.seen(pair) {
            seen.note(now.less(start), self.watch.seconds());
            let _ = self.d.journal.set_seen(pair, &seen);
        }
    }
}

/// Waits for the thread that names the files of a batch.
fn join(committing: &mut Option<ScopedJoinHandle<'_, Result<()>>>) -> Result<()> {
    let panicked = |_| Err(Error::internal("a thread that names files panicked"));
    committing.take().map_or(Ok(()), |thread| thread.join().unwrap_or_else(panicked))
}

/// True if waiting for names and inodes takes longer than the bytes.
pub(crate) fn are_small(copies: &Carries) -> bool {
    let all = copies.iter().fold(0u64, |all, copy| all.saturating_add(copy.track().item().size));
    all / (copies.len().max(1) as u64) <= SMALL
}
