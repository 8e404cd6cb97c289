//! Records what a writer puts: a thread of its process appends each step to files, while the next ones are computed.
//!
//! The memory of a step stays until it is recorded, so that the memory of the stream bounds what waits. An error of the disk is told at the
//! next call of the writer, and nothing is recorded any more: what is complete stays readable.

use super::form::{self, Entry, Head, Opening, Recorded};
use super::quotas::Quotas;
use super::spot::{self, Card};
use crate::board::Board;
use crate::clock;
use crate::home;
use crate::index::{BlockEntry, moved};
use crate::memory::Shared;
use crate::options::Stop;
use crate::stock::{Moment, Pieces, Stock};
use crate::words::Who;
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Cancel, Error, Kind, Result};
use stead_store::arena::Piece;
use stead_store::{Folder, begin_writing, hole, process};

/// Steps that wait at most: small ones take more to remember than their memory.
const WAITING: usize = 256;
/// So often it is looked whether there is something, if nobody says so.
const LOOK: Duration = Duration::from_secs(1);
/// So often it is looked whether who waits for the end is to stop.
const SLICE: Duration = Duration::from_millis(50);
/// Blocks smaller than this are written together, so many bytes at a time.
const SMALL: usize = 256 << 10;
const TOGETHER: usize = 1 << 20;
/// Bytes between two blocks that are written together.
const GAP: u64 = 4096;
/// Bytes of a large block that are summed and written at once, as they stay in the caches in between.
const AT_ONCE: usize = 4 * form::CHUNK as usize;
/// So many bytes are on their way to the device before it is waited for them at the end.
const BEHIND: u64 = 16 << 20;

/// A step to be recorded.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) step: u64,
    pub(crate) bytes: u64,
    /// As bytes, and what these hash to.
    pub(crate) definitions: Arc<Piece>,
    pub(crate) hash: u64,
    /// The first of the pieces are those of the blocks, in their order.
    pub(crate) blocks: Vec<BlockEntry>,
    pub(crate) pieces: Pieces,
}

/// An error that is told more than once.
#[derive(Debug, Clone)]
struct Failure {
    kind: Kind,
    message: String,
    path: Option<PathBuf>,
    hint: Option<String>,
}

impl Failure {
    fn of(e: &Error) -> Failure {
        Failure {
            kind: e.kind(),
            message: e.message().to_owned(),
            path: e.place().path.clone(),
            hint: e.hint().map(str::to_owned),
        }
    }

    fn error(&self, name: &str) -> Error {
        let message = format!("stream '{name}' is recorded no more: {}", self.message);
        let mut error = Error::new(self.kind, message);
        if let Some(path) = &self.path {
            error = error.at_path(path);
        }
        match &self.hint {
            Some(hint) => error.with_hint(hint),
            None => error.with_hint("what was recorded before can be read"),
        }
    }
}

#[derive(Debug, Default)]
struct State {
    jobs: VecDeque<Job>,
    /// One more is being recorded.
    is_busy: bool,
    /// What quotas leave, while that is too little for a step that is to spill.
    lacks: Option<String>,
    /// The writer has come to its end, after so many steps, in the middle of one or not.
    closing: Option<(u64, bool)>,
    failure: Option<Failure>,
    /// All that can be is recorded.
    is_over: bool,
}

impl State {
    /// Takes out steps that have gone.
    fn forget(&mut self, is_there: impl Fn(u64) -> bool) -> VecDeque<Job> {
        let all = std::mem::take(&mut self.jobs);
        let (stay, gone) = all.into_iter().partition(|job| is_there(job.step));
        self.jobs = stay;
        gone
    }
}

/// Where the writer lays down what the thread takes.
#[derive(Debug, Default)]
struct Desk {
    state: Mutex<State>,
    over: Condvar,
}

impl Desk {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Recorder {
    name: String,
    desk: Arc<Desk>,
    /// Only what readers are behind by is recorded, when there is no room for it.
    pub(crate) spills: bool,
    /// Bytes that all files of what spills may take on this node.
    pub(crate) limit: Option<u64>,
    /// Ends a look at what quotas leave.
    looks: Option<Cancel>,
}

/// Of whom steps are recorded.
#[derive(Debug)]
pub(crate) struct Of<'o> {
    pub(crate) name: &'o str,
    pub(crate) card: Card,
    pub(crate) rank: u64,
    /// Its place on the board, which is looked at by the thread alone.
    pub(crate) seat: usize,
    pub(crate) board: Board<Shared>,
    /// The memory of what is recorded.
    pub(crate) stock: Arc<Stock>,
    pub(crate) me: Who,
    /// Bytes that files of what spills may take.
    pub(crate) limit: Option<u64>,
    /// Those of the dataspaces that it is recorded in, if there are some.
    pub(crate) quotas: Option<Quotas>,
}

impl Recorder {
    /// Begins the files of a writer.
    ///
    /// # Errors
    /// `Usage` if there are steps of another stream, or another run of it; `NotFound` if the folder has gone; system errors.
    pub(crate) fn open(folder: &Folder, of: Of<'_>) -> Result<Recorder> {
        spot::found(folder, &of.card)?;
        let files = Files::create(folder, &of)?;
        // Writers of another node, which were the last ones in it, may have taken away what said so before they could see these.
        spot::found(folder, &of.card)?;
        let name = of.name.to_owned();
        let desk = Arc::new(Desk::default());
        let spills = of.card.spills;
        let Of { seat, board, stock, me, limit, quotas, .. } = of;
        let looks = quotas.as_ref().map(Quotas::cancel);
        let mut thread = Thread {
            name: name.clone(),
            desk: desk.clone(),
            files,
            spills,
            seat,
            board,
            stock,
            me,
            limit,
            quotas,
        };
        std::thread::Builder::new()
            .name("stead-recorder".to_owned())
            .spawn(move || thread.run())
            .map_err(|e| Error::io("start a thread for", "the steps of a stream", e))?;
        Ok(Recorder { name, desk, spills, limit, looks })
    }

    /// What has come of it so far.
    ///
    /// # Errors
    /// That of the disk.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.desk.state().failure {
            Some(failure) => Err(failure.error(&self.name)),
            None => Ok(()),
        }
    }

    /// Steps that wait to be recorded.
    pub(crate) fn waiting(&self) -> usize {
        self.desk.state().jobs.len()
    }

    /// What quotas leave, where that is too little for a step that is to spill.
    pub(crate) fn lacks(&self) -> Option<String> {
        self.desk.state().lacks.clone()
    }

    /// True while memory is taken by steps that are to be recorded.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.desk.state();
        state.is_busy || !(self.spills || state.jobs.is_empty())
    }

    /// Forgets steps that need not be recorded any more, and frees their memory.
    pub(crate) fn forget(&self, is_there: impl Fn(u64) -> bool) {
        if !self.spills {
            return;
        }
        let gone = self.desk.state().forget(is_there);
        drop(gone);
    }

    /// False while as many wait as may.
    pub(crate) fn has_room(&self) -> bool {
        self.spills || self.waiting() < WAITING
    }

    /// Has a step recorded. The thread is to be rung for.
    pub(crate) fn put(&self, job: Job) {
        let mut state = self.desk.state();
        if state.failure.is_none() {
            state.jobs.push_back(job);
        }
    }

    /// There are no more steps than so many. The thread is to be rung for.
    pub(crate) fn close(&self, steps: u64, fails: bool) {
        self.desk.state().closing.get_or_insert((steps, fails));
        // What has not spilled does so no more.
        if let Some(looks) = self.looks.as_ref().filter(|_| self.spills) {
            looks.cancel();
        }
    }

    /// Waits until all that was put is recorded for good.
    ///
    /// # Errors
    /// That of the disk; `Timeout`; that of what ends waits.
    pub(crate) fn finish(&self, until: Instant, stop: &Stop) -> Result<()> {
        let mut state = self.desk.state();
        while !state.is_over {
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                let message = format!(
                    "{} steps of stream '{}' are not recorded yet",
                    state.jobs.len(),
                    self.name
                );
                return Err(Error::new(Kind::Timeout, message).with_hint(
                    "is the device slow, or stuck? give it more time, with a longer timeout",
                ));
            }
            let waited = self.desk.over.wait_timeout(state, left.min(SLICE));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
            stop.check()?;
        }
        drop(state);
        self.check()
    }
}

/// What the thread has.
struct Thread {
    name: String,
    desk: Arc<Desk>,
    files: Files,
    spills: bool,
    seat: usize,
    board: Board<Shared>,
    stock: Arc<Stock>,
    me: Who,
    limit: Option<u64>,
    quotas: Option<Quotas>,
}

/// What is known of what is to spill.
struct Due {
    next: Next,
    /// The step before which none is needed in files.
    before: u64,
    /// It is to be looked what quotas leave, for want of room or since others may have used some.
    looks: bool,
}

enum Next {
    Record(Job),
    Close(u64, bool),
    Wait,
}

impl Thread {
    fn run(&mut self) {
        // Who waits for the end is told whatever becomes of this thread.
        let _over = Over(self.desk.clone());
        loop {
            let seen = self.board.seen_by_recorder(self.seat);
            let next = match self.next() {
                Ok(next) => next,
                Err(e) => return self.fail(&e),
            };
            match next {
                Next::Record(job) => {
                    if let Err(e) = self.claim(&job).and_then(|()| self.files.record(&job)) {
                        return self.fail(&e);
                    }
                    let step = job.step;
                    drop(job);
                    self.desk.state().is_busy = false;
                    if let Err(e) = self.note(step) {
                        return self.fail(&e);
                    }
                }
                Next::Close(steps, fails) => {
                    if let Err(e) = self.files.close(steps, fails, !self.spills) {
                        self.fail(&e);
                    }
                    return;
                }
                Next::Wait => {
                    // Others may wait for what the writer would free at its next call.
                    if self.stock.reclaim(&self.board, Moment::Beside) {
                        self.tell();
                    }
                    self.board.sleep_as_recorder(self.seat, seen, LOOK);
                }
            }
        }
    }

    fn next(&mut self) -> Result<Next> {
        if self.spills {
            return self.next_to_spill();
        }
        let mut state = self.desk.state();
        Ok(match (state.jobs.pop_front(), state.closing) {
            (Some(job), _) => {
                state.is_busy = true;
                Next::Record(job)
            }
            (None, Some((steps, fails))) => Next::Close(steps, fails),
            (None, None) => Next::Wait,
        })
    }

    /// Takes room for a step, where quotas say how much there is. What spills has taken it when it was chosen.
    fn claim(&mut self, job: &Job) -> Result<()> {
        match &mut self.quotas {
            Some(quotas) if !self.spills => {
                quotas.claim(&self.board, self.seat, (job.step, job.bytes))
            }
            _ => Ok(()),
        }
    }

    /// The next step that is to be recorded since somebody is behind, and there is no room. What all have had is freed.
    fn next_to_spill(&mut self) -> Result<Next> {
        let Due { next, before, looks } = self.due(true);
        let freed = self.files.release(before);
        if freed {
            self.board.set_files(self.seat, self.files.taken());
            if self.limit.is_some() || self.quotas.is_some() {
                self.ring();
            }
        }
        if let Some(quotas) = self.quotas.as_mut().filter(|_| looks) {
            quotas.look_again(&self.board)?;
        }
        if matches!(next, Next::Wait) && (freed || looks) {
            // Perhaps there was no room for one.
            return Ok(self.due(false).next);
        }
        Ok(next)
    }

    /// There is more room for the files of all.
    fn ring(&self) {
        if let Ok(guard) = home::lock(&self.name, &self.board, self.me) {
            (0..self.board.writers()).for_each(|writer| self.board.ring(&guard, writer));
        }
    }

    /// What is to be recorded next; nothing while it is `first` to be looked what quotas leave.
    fn due(&self, first: bool) -> Due {
        let Ok(guard) = home::lock(&self.name, &self.board, self.me) else {
            return Due { next: Next::Wait, before: 0, looks: false };
        };
        let (ended, spilled) = (self.board.writer(self.seat).step, self.board.spilled());
        // Who comes now begins with what is in memory.
        let before = self.board.first_in_memory().min(spilled.unwrap_or(u64::MAX));
        let mut state = self.desk.state();
        let closing = state.closing;
        let there = self.board.there();
        let is_there = |step: u64| there.binary_search(&step).is_ok();
        let gone = state.forget(is_there);
        let is_wanted = |job: &Job| {
            spilled.is_some_and(|step| step <= job.step)
                && is_there(job.step)
                && self.board.is_due(job.step, ended)
        };
        let taken = self.board.files();
        let fits =
            |job: &Job| self.limit.is_none_or(|limit| taken.saturating_add(job.bytes) <= limit);
        let wanted = state.jobs.iter().position(is_wanted);
        let wanted = wanted.and_then(|at| Some((at, state.jobs.get(at)?)));
        let wanted = wanted.filter(|&(_, job)| fits(job)).map(|(at, job)| (at, job.bytes));
        let quotas = self.quotas.as_ref().zip(wanted);
        let lacks = quotas.filter(|(of, (_, bytes))| !of.has_room(&self.board, &guard, *bytes));
        let is_old = quotas.is_some_and(|(of, _)| of.is_due(&self.board, &guard));
        let looks = lacks.is_some() || (first && is_old);
        state.lacks = lacks.map(|(of, _)| of.said(&self.board, &guard));
        let wanted = wanted.filter(|_| !looks);
        let next = match (closing, wanted) {
            // What is not recorded stays in memory.
            (Some((steps, fails)), _) => Next::Close(steps, fails),
            (None, Some((at, _))) => state.jobs.remove(at).map_or(Next::Wait, Next::Record),
            (None, None) => Next::Wait,
        };
        state.is_busy = matches!(next, Next::Record(_));
        if let Next::Record(job) = &next {
            // Before others look how much room there is.
            self.board.set_claimed(self.seat, job.bytes);
        }
        let looks = looks && closing.is_none();
        drop(state);
        drop(guard);
        drop(gone);
        Due { next, before, looks }
    }

    /// A step is recorded, and its memory free.
    fn note(&self, step: u64) -> Result<()> {
        self.stock.reclaim(&self.board, Moment::Beside);
        let guard = home::lock(&self.name, &self.board, self.me)?;
        self.board.set_files(self.seat, self.files.taken());
        self.board.set_claimed(self.seat, 0);
        self.board.recorded(&guard, self.seat, step);
        Ok(())
    }

    /// There is an error: who waits for memory looks at it.
    fn tell(&self) {
        // Else they look in a while.
        if let Ok(guard) = home::lock(&self.name, &self.board, self.me) {
            self.board.tell_writers(&guard);
        }
    }

    fn fail(&mut self, e: &Error) {
        let jobs = {
            let mut state = self.desk.state();
            state.failure = Some(Failure::of(e));
            state.is_busy = false;
            std::mem::take(&mut state.jobs)
        };
        drop(jobs);
        self.board.set_claimed(self.seat, 0);
        // Readers are told so, if the disk still takes as much.
        let _ = self.files.give_up();
        self.tell();
    }
}

struct Over(Arc<Desk>);

impl Drop for Over {
    fn drop(&mut self) {
        let mut state = self.0.state();
        if std::thread::panicking() && state.failure.is_none() {
            state.failure = Some(Failure::of(&Error::internal("the thread that records panicked")));
        }
        state.is_over = true;
        drop(state);
        self.0.over.notify_all();
    }
}

/// The files of a writer.
struct Files {
    folder: Folder,
    run: u64,
    index: File,
    index_path: PathBuf,
    data: File,
    data_path: PathBuf,
    /// Entries of the index, with its opening.
    entries: u64,
    /// Steps that they are.
    steps: u64,
    /// Where the next block begins at the earliest.
    end: u64,
    /// What comes before this is on its way to the device, if it is to stay.
    sent: u64,
    /// Definitions that were written last, and where they lie.
    known: Option<(u64, (u64, u64))>,
    /// What is written together, and where it begins.
    together: Vec<u8>,
    from: u64,
    /// Steps whose room is to be freed when all have had them, with what they take; none where all stay.
    freed: Option<Vec<(u64, Range<u64>)>>,
    /// Bytes that could not be freed.
    stuck: u64,
}

impl Files {
    fn create(folder: &Folder, of: &Of<'_>) -> Result<Files> {
        let (index, data) = (spot::index(of.rank), spot::data(of.rank));
        let create = |name| {
            folder.create_file(name, 0o666).map_err(|e| match e.kind() {
                Kind::Usage => e.with_hint("is it of a run that was not ended? remove it"),
                _ => e,
            })
        };
        let data_file = create(&data)?;
        let mut files = Files {
            folder: folder.clone(),
            run: of.card.run(),
            index: create(&index)?,
            index_path: folder.at(&index),
            data: data_file,
            data_path: folder.at(&data),
            entries: 0,
            steps: 0,
            end: 0,
            sent: 0,
            known: None,
            together: Vec::new(),
            from: 0,
            freed: of.card.spills.then(Vec::new),
            stuck: 0,
        };
        let opening = Opening {
            run: files.run,
            rank: of.rank,
            writers: of.card.writers,
            host: process::host().unwrap_or(0),
            who: of.me.word(),
        };
        files.enter(&opening.encode())?;
        Ok(files)
    }

    /// Appends to the index.
    fn enter(&mut self, bytes: &[u8]) -> Result<()> {
        let at = self.entries * form::ENTRY as u64;
        may_have(at.saturating_add(bytes.len() as u64), &self.index_path)?;
        self.index.write_all_at(bytes, at).map_err(|e| Error::io("write", &self.index_path, e))?;
        self.entries += 1;
        Ok(())
    }

    fn write_at(&mut self, at: u64, bytes: &[u8]) -> Result<()> {
        self.data.write_all_at(bytes, at).map_err(|e| Error::io("write", &self.data_path, e))?;
        let end = at.saturating_add(bytes.len() as u64);
        if self.freed.is_none() && end - self.sent.min(end) >= BEHIND {
            begin_writing(&self.data, self.sent, end - self.sent);
            self.sent = end;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let together = std::mem::take(&mut self.together);
        let done = self.write_at(self.from, &together);
        self.together = together;
        self.together.clear();
        done
    }

    /// Lays the bytes of a block down, and tells where; appends their checksums.
    fn lay_block(&mut self, bytes: &[u8], sums: &mut Vec<u64>) -> Result<u64> {
        if bytes.len() < SMALL {
            sums.extend(form::sums(bytes));
            return self.lay(bytes);
        }
        let begins = self.room(bytes.len() as u64)?;
        self.flush()?;
        let mut at = begins;
        for some in bytes.chunks(AT_ONCE) {
            sums.extend(form::sums(some));
            self.write_at(at, some)?;
            at += some.len() as u64;
        }
        Ok(begins)
    }

    /// Takes so many bytes behind all others, and tells where.
    fn room(&mut self, len: u64) -> Result<u64> {
        let at = form::aligned(self.end, len).filter(|at| at.checked_add(len).is_some());
        let at = at.ok_or_else(|| Error::limit("a file has as many bytes as it can"))?;
        may_have(at + len, &self.data_path)?;
        self.end = at + len;
        Ok(at)
    }

    /// Lays bytes down behind all others, and tells where.
    fn lay(&mut self, bytes: &[u8]) -> Result<u64> {
        let at = self.room(bytes.len() as u64)?;
        let behind = self.from + self.together.len() as u64;
        if !self.together.is_empty() && at - behind > GAP {
            self.flush()?;
        }
        if bytes.len() >= SMALL {
            self.flush()?;
            self.write_at(at, bytes)?;
            return Ok(at);
        }
        if self.together.is_empty() {
            self.from = at;
        } else {
            let fill = self.together.len() + (at - behind) as usize;
            self.together.resize(fill, 0);
        }
        self.together.extend_from_slice(bytes);
        if self.together.len() >= TOGETHER {
            self.flush()?;
        }
        Ok(at)
    }

    fn record(&mut self, job: &Job) -> Result<()> {
        let mut blocks = Vec::with_capacity(job.blocks.len());
        let mut sums = Vec::new();
        let begins = self.end;
        if self.freed.is_some() {
            // They would go with another step.
            self.known = None;
        }
        for (BlockEntry { variable, bounds, .. }, piece) in job.blocks.iter().zip(job.pieces.iter())
        {
            let bytes = piece.as_slice();
            let place = form::place(self.lay_block(bytes, &mut sums)?, bytes.len() as u64);
            blocks.push(BlockEntry { variable: *variable, bounds: bounds.clone(), place });
        }
        let definitions = match self.known {
            Some((hash, place)) if hash == job.hash => place,
            _ => {
                let bytes = job.definitions.as_slice();
                let place = (self.lay(bytes)?, bytes.len() as u64);
                self.known = Some((job.hash, place));
                place
            }
        };
        let (head, sum) = Head::encode(definitions, job.hash, &moved(&blocks), &sums);
        let offset = self.lay(&head)?;
        // All of it is there before anybody is told where.
        self.flush()?;
        let (step, bytes, at) = (job.step, job.bytes, clock::since_1970());
        let len = head.len() as u64;
        let entry = Entry::Step(Recorded { step, offset, len, bytes, at, sum });
        self.enter(&entry.encode(self.run))?;
        self.steps = step + 1;
        if let Some(freed) = &mut self.freed {
            freed.push((step, begins..self.end));
        }
        Ok(())
    }

    /// Frees the room of steps before this one. What cannot be freed stays until the stream has gone. True if there was something.
    fn release(&mut self, before: u64) -> bool {
        let (data, stuck) = (&self.data, &mut self.stuck);
        let Some(freed) = &mut self.freed else { return false };
        let there = freed.len();
        freed.retain(|(step, range)| {
            let goes = *step < before;
            if goes && !matches!(hole::free(data, range.clone()), Ok(true)) {
                *stuck = stuck.saturating_add(range.end - range.start);
            }
            !goes
        });
        freed.len() < there
    }

    /// Bytes that steps take; of those which spill without what was freed.
    fn taken(&self) -> u64 {
        let Some(freed) = &self.freed else { return self.end };
        let lens = freed.iter().map(|(_, range)| range.end - range.start);
        lens.fold(self.stuck, u64::saturating_add)
    }

    /// The last entry, when all before it is on the device, if it is to stay there.
    fn close(&mut self, steps: u64, fails: bool, stays: bool) -> Result<()> {
        if !stays {
            return self.enter(&Entry::Closed { steps, fails }.encode(self.run));
        }
        let sync =
            |file: &File, path: &PathBuf| file.sync_data().map_err(|e| Error::io("sync", path, e));
        sync(&self.data, &self.data_path)?;
        sync(&self.index, &self.index_path)?;
        self.enter(&Entry::Closed { steps, fails }.encode(self.run))?;
        sync(&self.index, &self.index_path)?;
        self.folder.sync()
    }

    fn give_up(&mut self) -> Result<()> {
        self.enter(&Entry::Closed { steps: self.steps, fails: true }.encode(self.run))
    }
}

/// Refuses a length that the system would end this process for, by a signal.
fn may_have(bytes: u64, path: &std::path::Path) -> Result<()> {
    if bytes <= stead_store::longest_file() {
        return Ok(());
    }
    let message = format!("this process may have no file of {bytes} bytes");
    Err(Error::limit(message).at_path(path).with_hint("see: ulimit -f"))
}
