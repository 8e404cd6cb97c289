//! Memory in which one process lays out bytes for others of the same user to look at, without a copy.
//!
//! An [`Arena`] is the memory of one writer: files `PREFIX-0`, `PREFIX-1`, … in a private folder in memory (its segments), mapped as they
//! are needed. [`Arena::take`] lends a [`Piece`] of it, which is written as any slice is; its [`Place`] is told to others by whatever
//! way, and they look at it through [`Neighbours`]. Dropped, the piece is given back: that nobody looks at it any more is up to who drops
//! it. What is given back is lent again first, since a fresh page has to be cleared by the system, which takes as long as a copy.
//!
//! Writing to a piece raises no signal: it has its pages before it is lent, or taking it is an error of kind `NoSpace`. Looking at one
//! would if somebody made its file shorter. Nothing in stead does, and the folder is open to one user only, whose processes trust each
//! other in this.
//!
//! Memory that was filled before there was an arena, a [`Loose`], is [adopted](Arena::adopt) as it is.
//!
//! Bytes outlive the process: files stay when it is killed, or when an arena is dropped, until somebody removes them
//! ([`Arena::remove`], [`Arena::remove_left`]). A process that was forked shares the memory of its parent and may look at what it got; it lends nothing of it and
//! gives nothing back.

mod kept;
mod loose;
mod neighbours;
mod piece;
mod pool;
#[cfg(test)]
mod tests;

pub use loose::Loose;
pub use neighbours::{Neighbours, View};
pub use piece::Piece;

use crate::segment::Map;
use crate::{Folder, shared};
use piece::{Adopted, Block, Small};
use pool::{Pool, Range, Surplus};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::units::format_size;
use stead_core::{Error, Kind, Result, limits};

/// Pieces of fewer bytes lie together, several in a block.
const SMALL: usize = 16 << 10;
/// Bytes of a block for small pieces.
const BLOCK: usize = 128 << 10;
/// What needs no more new pages is not asked for beforehand whether they are there.
const ASK: u64 = 1 << 20;
/// Names that are taken already are passed over, so many at most.
const PASSED: u64 = 1 << 16;
/// Names of a folder that are listed at a time.
const NAMES: usize = 1 << 12;
/// So much longer, as a part of it, memory may be of which a beginning is adopted.
const LEAST_PART: usize = 8;
/// A new segment has this part of what is lent, at least, so that there are never many.
const PART: u64 = 4;

/// Bytes of a segment, for those who look for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    /// The number of the segment: the part of its name after the prefix.
    pub segment: u64,
    /// Where in it they begin.
    pub offset: u64,
    /// How many they are.
    pub len: u64,
}

/// How an [`Arena`] goes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Options {
    /// Bytes of a segment, at least. Only what is lent takes memory.
    pub segment: u64,
    /// The number of the first segment. They count up, and none is used twice: who remembers a place never finds other bytes there if a
    /// writer that takes over a prefix begins with numbers that the one before had not.
    pub first: u64,
    /// Bytes that keep their pages when nobody has them, at most.
    pub keep_free: u64,
}

impl Default for Options {
    fn default() -> Self {
        Options { segment: limits::ARENA_SEGMENT, first: 0, keep_free: limits::ARENA_KEEP_FREE }
    }
}

/// One file, mapped.
struct Segment {
    map: Map,
    file: File,
}

/// The name of a segment in its folder.
fn name_of(prefix: &str, segment: u64) -> String {
    format!("{prefix}-{segment}")
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Arena(Arc<Inner>);

struct Inner {
    folder: Folder,
    prefix: String,
    /// Bytes of a segment, at least; whole pages.
    segment: u64,
    keep_free: AtomicU64,
    /// Who made it: a process that was forked must not give away what its parent uses.
    process: u32,
    /// The same, to be seen at little cost.
    generation: Option<u32>,
    /// Pieces that are dropped from now on stay as they are, and there are no more new ones.
    closed: AtomicBool,
    /// Bytes of all pieces.
    used: AtomicU64,
    state: Mutex<State>,
    /// How many pieces there are of each segment that was adopted and has its name. Nothing else is locked under it.
    adopted: Mutex<BTreeMap<u64, usize>>,
    /// Bytes of loose memory that count among the pages which nobody uses here.
    loose_spare: AtomicU64,
    /// Where the next small pieces go. Locked before `state`, never after.
    small: Mutex<Option<Small>>,
}

struct State {
    pool: Pool,
    segments: BTreeMap<u64, Arc<Segment>>,
    /// The number of the next one.
    next: u64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}, {} bytes", self.folder.at(OsStr::new(&self.prefix)).display(), self.used())
    }
}

impl Arena {
    /// The memory of one writer, none so far. There is one of a prefix in a folder at a time, and it is this user's alone.
    ///
    /// # Errors
    /// `Usage` for a prefix that begins no name of a file.
    pub fn new(folder: &Folder, prefix: &str, options: Options) -> Result<Arena> {
        let odd = prefix.is_empty() || prefix.starts_with('.') || prefix.contains(['/', '\0']);
        // With a number after it.
        if odd || prefix.len() > 200 {
            let what = "this is no name for memory that others look at";
            return Err(Error::usage(what).at_path(folder.at(OsStr::new(prefix))));
        }
        let least = options.segment.max(BLOCK as u64).min(shared::longest());
        let segment = whole_pages(least).unwrap_or(BLOCK as u64);
        let state = State { pool: Pool::default(), segments: BTreeMap::new(), next: options.first };
        Ok(Arena(Arc::new(Inner {
            folder: folder.clone(),
            prefix: prefix.to_owned(),
            segment,
            keep_free: AtomicU64::new(options.keep_free),
            process: std::process::id(),
            generation: shared::generation(),
            closed: AtomicBool::new(false),
            used: AtomicU64::new(0),
            state: Mutex::new(state),
            adopted: Mutex::default(),
            loose_spare: AtomicU64::new(0),
            small: Mutex::new(None),
        })))
    }

    /// Memory of `len` bytes, with its pages: from a page on, or from a line of the caches on if it is small. What is in it is
    /// whatever was there before.
    ///
    /// # Errors
    /// `NoSpace` if there is not as much memory; `Limit` if a process may have no such file; `Usage` in a process that was forked since,
    /// and after [`Arena::leave`] or [`Arena::remove`]; system errors.
    pub fn take(&self, len: usize) -> Result<Piece> {
        self.0.check()?;
        if len < SMALL {
            return self.0.small(len);
        }
        let short = || Error::internal("a block of shared memory is shorter than was asked for");
        Piece::whole(self.0.block(len)?, len).ok_or_else(short)
    }

    /// A piece that is the first `len` bytes of memory which was filled before, where it lies: its file gets a name here, if it has none.
    /// There may be several pieces of it, each of which counts as a piece. `None` if it can have no name here, and is to be copied: see
    /// [`Loose::new`]. It may lie on another file system, have had all of its names taken away, with a stream or by [`Arena::leave`], or be
    /// longer than what is wanted by more than an eighth.
    ///
    /// # Errors
    /// As [`Arena::take`]; `Usage` if it is shorter.
    pub fn adopt(&self, loose: &Loose, len: usize) -> Result<Option<Piece>> {
        self.0.check()?;
        if len > loose.len() {
            let message = format!("{len} bytes of memory that has {} cannot be had", loose.len());
            return Err(Error::usage(message));
        }
        // All of it stays as long as a part does, and only the part counts.
        if len < loose.len() - loose.len() / LEAST_PART {
            return Ok(None);
        }
        let Some(segment) = loose.name(&self.0)? else { return Ok(None) };
        if !self.0.take_in(segment) {
            return self.0.check().map(|()| None);
        }
        let of = Adopted { arena: self.0.clone(), segment, lent: loose.lent() };
        Ok(Piece::adopted(of, len))
    }

    /// Bytes of all pieces that are there.
    pub fn used(&self) -> u64 {
        self.0.used()
    }

    /// Bytes of memory that it takes: those of pieces, and pages that nobody uses now; without what was adopted.
    pub fn held(&self) -> u64 {
        self.0.state().pool.held()
    }

    /// Bytes of pages that nobody uses now: they are kept for what is taken next, those that were adopted for the next [`Loose`].
    pub fn spare(&self) -> u64 {
        let state = self.0.state();
        let own = state.pool.held().saturating_sub(state.pool.lent());
        own.saturating_add(self.0.loose_spare.load(Ordering::Relaxed))
    }

    /// Gives pages that nobody uses to the system now, but for so many bytes. What is given back later is kept as before.
    pub fn trim(&self, keep: u64) {
        if self.0.check().is_ok() {
            self.0.trim(keep);
        }
    }

    /// What segments are called, before their numbers.
    pub fn prefix(&self) -> &str {
        &self.0.prefix
    }

    /// So many bytes keep their pages when nobody has them, at most; what is more is given to the system now.
    pub fn set_keep_free(&self, bytes: u64) {
        self.0.keep_free.store(bytes, Ordering::Relaxed);
        if self.0.check().is_ok() {
            self.0.trim(bytes);
        }
    }

    /// Pieces that are dropped from now on stay as they are, for those who still look at them, and nothing is lent any more. As dropping
    /// the arena, which is to come before dropping its pieces if these are to stay. What was adopted and has no piece loses its name here.
    pub fn leave(&self) {
        if self.0.is_forked() {
            self.0.closed.store(true, Ordering::Release);
        } else {
            self.0.leave();
        }
    }

    /// Removes the files of a writer that has ended, and that there is no arena of: how many they were. As [`Arena::remove`].
    ///
    /// # Errors
    /// System errors.
    pub fn remove_left(folder: &Folder, prefix: &str) -> Result<u64> {
        let mut removed = 0;
        for names in folder.names(NAMES)? {
            for name in names? {
                let number =
                    name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_prefix('-'));
                let number = number.and_then(|number| number.parse().ok());
                // A number can be written in other ways, which none of ours is.
                if number.is_some_and(|number| *name == *name_of(prefix, number)) {
                    removed += u64::from(folder.remove_file(&name)?);
                }
            }
        }
        Ok(removed)
    }

    /// Removes its files. Who has them mapped can look on; others find them no more. Nothing is lent any more.
    ///
    /// # Errors
    /// Those of the first file that could not be removed; all are tried.
    pub fn remove(&self) -> Result<()> {
        if self.0.is_forked() {
            return Ok(());
        }
        self.leave();
        let mut numbers: Vec<u64> = self.0.state().segments.keys().copied().collect();
        numbers.extend(self.0.adopted().keys());
        let mut done = Ok(());
        for number in numbers {
            let name = name_of(&self.0.prefix, number);
            let removed = self.0.folder.remove_file(OsStr::new(&name)).map(|_| ());
            done = done.and(removed);
        }
        done
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        self.leave();
        // It refers to the arena as pieces do. The lock may have been another thread's when a process was forked.
        if !self.0.is_forked() {
            let small = self.0.lock_small().take();
            drop(small);
        }
    }
}

fn whole_pages(len: u64) -> Option<u64> {
    len.max(1).checked_next_multiple_of(shared::page() as u64)
}

fn is_full(e: Errno) -> bool {
    matches!(e, Errno::NOSPC | Errno::DQUOT | Errno::NOMEM)
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_small(&self) -> MutexGuard<'_, Option<Small>> {
        self.small.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    fn adopted(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.adopted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more piece of a segment that was adopted. False if nothing is lent any more: it has no name then.
    fn take_in(&self, segment: u64) -> bool {
        let mut adopted = self.adopted();
        // Who leaves looks at what is here after it has said so.
        if !self.is_closed() {
            *adopted.entry(segment).or_default() += 1;
            return true;
        }
        let has_pieces = adopted.contains_key(&segment);
        drop(adopted);
        if !has_pieces {
            self.remove_name(segment);
        }
        false
    }

    /// One piece less of such a segment. False if it is to stay as it is.
    fn give_up(&self, segment: u64) -> bool {
        if self.is_forked() {
            return true;
        }
        let mut adopted = self.adopted();
        if let Some(pieces) = adopted.get_mut(&segment) {
            *pieces = pieces.saturating_sub(1);
        }
        !self.is_closed()
    }

    /// Nobody has such a segment any more: it goes, unless others may look at it.
    fn unname(&self, segment: u64) {
        if !self.is_forked() && !self.is_closed() && self.adopted().remove(&segment).is_some() {
            self.remove_name(segment);
        }
    }

    fn remove_name(&self, segment: u64) {
        let _ = self.folder.remove_file(OsStr::new(&name_of(&self.prefix, segment)));
    }

    fn leave(self: &Arc<Self>) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut adopted = self.adopted();
        let unused: Vec<u64> = adopted.iter().filter(|(_, n)| **n == 0).map(|(s, _)| *s).collect();
        adopted.retain(|_, pieces| *pieces > 0);
        drop(adopted);
        // Those that are kept can be found no more, and go.
        unused.into_iter().for_each(|segment| self.remove_name(segment));
        kept::let_go_of(self, 0);
    }

    fn at(&self, e: Error) -> Error {
        e.at_path(self.folder.at(OsStr::new(&self.prefix)))
    }

    /// Fails where nothing may be lent. Small pieces are many, so it asks the system only where there was a fork.
    fn check(&self) -> Result<()> {
        if !shared::is_generation(self.generation) {
            self.check_process()?;
        }
        if self.is_closed() {
            return Err(self.at(Error::usage("this memory was left to others already")));
        }
        Ok(())
    }

    fn check_process(&self) -> Result<()> {
        if !self.is_forked() {
            return Ok(());
        }
        let e = Error::usage("this memory is that of the process from which this one was forked");
        Err(self.at(e).with_hint("make memory of your own after the fork"))
    }

    fn small(self: &Arc<Self>, len: usize) -> Result<Piece> {
        let mut fresh = None;
        loop {
            let mut small = self.lock_small();
            if let Some(piece) = small.as_mut().and_then(|small| small.take(len)) {
                drop(small);
                // Another thread was first: its block serves both, and this one goes back when no lock is held.
                drop(fresh);
                return Ok(piece);
            }
            let Some(block) = fresh.take() else {
                drop(small);
                fresh = Some(self.block(BLOCK)?);
                continue;
            };
            let before = small.replace(Small::new(block));
            drop(small);
            // It is given back now if it is nobody's, which locks.
            drop(before);
        }
    }

    /// Whole pages, with memory.
    fn block(self: &Arc<Self>, len: usize) -> Result<Block> {
        self.check_process()?;
        let len = whole_pages(len as u64).filter(|len| *len <= shared::longest());
        let len = len.ok_or_else(|| {
            let e = Error::limit("this is more memory than a file may have");
            self.at(e).with_hint("see ulimit -f")
        })?;
        let (range, cold, segment) = self.range(len)?;
        match self.fill(&segment, range, cold) {
            // From here on it is given back when it is dropped.
            Ok(()) => Ok(Block { arena: self.clone(), segment, range }),
            Err(e) => {
                self.take_back(&segment, range);
                Err(e)
            }
        }
    }

    /// Bytes that nobody else gets, and how many of them have no pages.
    fn range(&self, len: u64) -> Result<(Range, u64, Arc<Segment>)> {
        let mut state = self.state();
        let taken = match state.pool.take(len) {
            Some(taken) => taken,
            None => {
                if shared::free_in(&self.folder).is_some_and(|free| free < len) {
                    // Pages that lie where this does not fit are room for it.
                    drop(state);
                    self.make_room();
                    self.room_for(len)?;
                    state = self.state();
                }
                self.grow(&mut state, len)?;
                let taken = state.pool.take(len);
                taken.ok_or_else(|| Error::internal("new shared memory is too short"))?
            }
        };
        let (range, cold) = taken;
        let segment = state.segments.get(&range.segment).cloned();
        let segment = segment.ok_or_else(|| Error::internal("shared memory is lost"))?;
        Ok((range, cold, segment))
    }

    fn room_for(&self, len: u64) -> Result<()> {
        match shared::free_in(&self.folder) {
            Some(free) if free < len => Err(shared::no_room(&self.folder, len)),
            _ => Ok(()),
        }
    }

    /// One more segment, for this and more.
    fn grow(&self, state: &mut State, len: u64) -> Result<()> {
        let part = whole_pages(state.pool.lent() / PART).unwrap_or(0);
        let size = len.max(self.segment).max(part.min(shared::longest()));
        for _ in 0..PASSED {
            let number = self.count(state)?;
            let name = name_of(&self.prefix, number);
            let file = match self.folder.create_file(OsStr::new(&name), 0o600) {
                Ok(file) => file,
                // What somebody left who had the prefix before; others may still look at it.
                Err(e) if e.kind() == Kind::Usage => continue,
                Err(e) => return Err(e),
            };
            match self.map(&file, size) {
                Ok(map) => {
                    shared::prefer_huge(&map);
                    state.pool.grow(number, size);
                    state.segments.insert(number, Arc::new(Segment { map, file }));
                    return Ok(());
                }
                Err(e) => {
                    let _ = self.folder.remove_file(OsStr::new(&name));
                    return Err(e);
                }
            }
        }
        Err(self.at(Error::limit(format!("there are {PASSED} files of this name already"))))
    }

    fn count(&self, state: &mut State) -> Result<u64> {
        let number = state.next;
        state.next = number.checked_add(1).ok_or_else(|| {
            self.at(Error::limit("the numbers of files of shared memory are used up"))
        })?;
        Ok(number)
    }

    /// The number of a segment that is to come.
    fn next_number(&self) -> Result<u64> {
        self.count(&mut self.state())
    }

    fn map(&self, file: &File, size: u64) -> Result<Map> {
        let failed = |e| {
            let doing = format!("share {} of memory in", format_size(size));
            Error::io(&doing, self.folder.shown(), e)
        };
        file.set_len(size).map_err(failed)?;
        let len = usize::try_from(size).map_err(|_| Errno::NOMEM.into()).map_err(failed)?;
        Map::new(file, len, ProtFlags::READ | ProtFlags::WRITE).map_err(failed)
    }

    /// Gives bytes their pages, of which so many are not there yet.
    fn fill(&self, segment: &Segment, range: Range, cold: u64) -> Result<()> {
        if cold == 0 {
            return Ok(());
        }
        let sizes = usize::try_from(range.at).ok().zip(usize::try_from(range.len).ok());
        let (at, len) =
            sizes.ok_or_else(|| Error::internal("shared memory is longer than memory"))?;
        let Segment { map, file } = segment;
        let fill = || match shared::free_in(&self.folder) {
            // Before others find none because of what is of no use here.
            Some(free) if cold > ASK && free < cold => Err(Errno::NOSPC),
            _ => shared::fill(map, file, at, len),
        };
        let mut filled = fill();
        if filled.is_err_and(is_full) {
            self.make_room();
            filled = fill();
        }
        filled.map_err(|e| match e {
            e if is_full(e) => shared::no_room(&self.folder, range.len),
            e => Error::io("take memory in", self.folder.shown(), e.into()),
        })
    }

    /// Bytes that did not get all their pages have none from now on.
    fn take_back(&self, segment: &Segment, range: Range) {
        let punched = shared::punch(&segment.file, range.at, range.len).is_ok();
        let surplus = {
            let mut state = self.state();
            state.pool.unlend(range.len);
            state.pool.settle(range, !punched)
        };
        self.let_go(surplus);
    }

    /// Bytes of a block that nobody has any more.
    fn give_back(self: &Arc<Self>, range: Range) {
        if self.is_forked() || self.is_closed() {
            return;
        }
        self.state().pool.give_back(range);
        self.trim(self.keep_free.load(Ordering::Relaxed));
    }

    /// Gives pages that nobody uses to the system, but for so many bytes.
    fn trim(self: &Arc<Self>, keep: u64) {
        self.trim_own(keep);
        if self.loose_spare.load(Ordering::Relaxed) > 0 {
            let own = {
                let pool = &self.state().pool;
                pool.held().saturating_sub(pool.lent())
            };
            kept::let_go_of(self, keep.saturating_sub(own));
        }
    }

    /// Gives all pages that nobody uses to the system, those of others in this process that were adopted, too.
    fn make_room(&self) {
        self.trim_own(0);
        kept::clear();
    }

    fn trim_own(&self, keep: u64) {
        // Part of a page is not given up, nor kept.
        let keep = keep - keep % shared::page() as u64;
        loop {
            let mut state = self.state();
            let Some(surplus) = state.pool.surplus(keep) else { break };
            let Surplus::Pages(range) = surplus else {
                drop(state);
                self.let_go(Some(surplus));
                continue;
            };
            let segment = state.segments.get(&range.segment).cloned();
            drop(state);
            // It takes its time, and nobody gets these bytes meanwhile.
            let punched =
                segment.is_some_and(|s| shared::punch(&s.file, range.at, range.len).is_ok());
            let surplus = self.state().pool.settle(range, !punched);
            self.let_go(surplus);
            if !punched {
                break;
            }
        }
    }

    /// Removes a segment that is no longer part of the pool: all of it was free.
    fn let_go(&self, surplus: Option<Surplus>) {
        let Some(Surplus::Segment(number)) = surplus else { return };
        let segment = self.state().segments.remove(&number);
        let _ = self.folder.remove_file(OsStr::new(&name_of(&self.prefix, number)));
        // Others may still have it mapped, who look at it no more: it would keep its pages.
        if let Some(segment) = segment {
            let _ = shared::punch(&segment.file, 0, segment.map.len() as u64);
        }
    }
}
