//! What the files of a process share: their buffers and their memory.
//!
//! Whoever reads a file that is open already, with the same options, joins those who have it: the same readers, the
//! same blocks, where these are of a size for the session that begins. Of the file that was closed last its blocks stay for a
//! while, for whoever opens it again. The same file is one with the same device, inode, length and time of change, and one
//! that was not changed a moment ago: time stamps are too coarse to tell two changes in a row.
//!
//! Blocks in memory have one budget, however many files are open: each gets an equal part.

use crate::clock;
use crate::deadline;
use crate::engine::{New, Shared};
use crate::neighbours::Neighbours;
use crate::opened::Opened;
use crate::options::{Chosen, Options};
use crate::process::PerProcess;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use stead_core::limits;
use stead_store::{Engine, FileSource, IoOptions, file::Identity};

/// How long blocks of a closed file stay.
const KEEP: Duration = Duration::from_secs(10);

/// Files and options that may have one set of buffers.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    file: (u64, u64, u64, (i64, i64), (i64, i64)),
    pinned: (Option<usize>, Option<usize>, Option<usize>),
    io: (u8, bool),
    deadline: Duration,
    ahead: bool,
    share: bool,
    memory: u64,
}

/// That of a file, or why it has none; `None` of what is no file.
pub(crate) type MaybeKey = std::result::Result<Key, Option<&'static str>>;

#[derive(Default)]
struct Registry {
    /// Mostly one for each; some with blocks of different sizes.
    files: HashMap<Key, Vec<Weak<Shared>>>,
    /// Those with blocks in memory, by number, and what each may have in all.
    holders: HashMap<u64, (Weak<Shared>, u64)>,
    /// Closed, with its blocks, and when these are given up.
    kept: Option<(Arc<Shared>, Instant)>,
}

impl Registry {
    /// True if both are buffers of one file, with the same options.
    fn of_one_file(&self, one: &Arc<Shared>, other: &Arc<Shared>) -> bool {
        let has = |sets: &[Weak<Shared>], set| sets.iter().any(|s| s.as_ptr() == Arc::as_ptr(set));
        self.files.values().any(|sets| has(sets, one) && has(sets, other))
    }

    /// What each of some buffers may have: an equal part of the budget. Who has little memory has it for itself: one file,
    /// whatever sets of buffers it has.
    fn shares(&self, all: &[Arc<Shared>]) -> Vec<u64> {
        let budget = self.holders.values().map(|(_, memory)| *memory).max().unwrap_or(0);
        let share = budget / all.len().max(1) as u64;
        let little = |set: &Arc<Shared>| set.memory() <= limits::LEAST_SESSION_MEMORY;
        if !all.iter().any(little) {
            return vec![share; all.len()];
        }
        // Files by the first set that each has; those that nobody else may have by their source.
        let mut firsts = HashMap::new();
        for sets in self.files.values() {
            let first = sets.first().map(|first| first.as_ptr().cast::<()>());
            firsts.extend(sets.iter().filter_map(|set| Some((set.as_ptr(), first?))));
        }
        let file = |set: &Arc<Shared>| {
            let own = Arc::as_ptr(set.source()).cast::<()>();
            firsts.get(&Arc::as_ptr(set)).copied().unwrap_or(own)
        };
        let mut counts: HashMap<*const (), u64> = HashMap::new();
        all.iter().for_each(|set| *counts.entry(file(set)).or_default() += 1);
        let part = |set: &Arc<Shared>| set.memory() / counts.get(&file(set)).copied().unwrap_or(1);
        all.iter().map(|set| if little(set) { part(set) } else { share }).collect()
    }
}

static REGISTRY: PerProcess<Mutex<Registry>> = PerProcess::new();

/// The lock of no file is taken under this one.
fn with<T>(work: impl FnOnce(&mut Registry) -> T) -> T {
    work(&mut REGISTRY.get().lock().unwrap_or_else(PoisonError::into_inner))
}

/// By which others find the buffers of a file if they may have the same; else why not, for people.
pub(crate) fn key(source: &FileSource, options: &Options) -> MaybeKey {
    let identity = source.identity();
    if identity.device {
        return Err(Some("it is a device"));
    }
    if clock::just_changed(identity.mtime.0) {
        return Err(Some("the file changed a moment ago"));
    }
    Ok(Key::new(&identity, options))
}

/// Buffers for a session that begins: some of those that there are for this file, or new ones. Whoever gets them closes them
/// once.
pub(crate) fn buffers(
    key: &MaybeKey,
    opened: &Opened,
    options: &Options,
    chosen: Chosen,
    range: &Range<u64>,
) -> Arc<Shared> {
    let key = match key {
        Ok(key) => key,
        Err(why) => {
            let new = opened.buffers(options, chosen);
            return hold(Shared::new(match why {
                Some(why) => new.with_neighbours(Err(why)),
                None => new,
            }));
        }
    };
    let of_file = |r: &Registry| -> Vec<Arc<Shared>> {
        r.files.get(key).into_iter().flatten().filter_map(Weak::upgrade).collect()
    };
    let there = with(|r| of_file(r));
    if let Some(set) = Shared::best(&there, &chosen, range) {
        set.join();
        drop(opened.take_lender());
        return hold(set);
    }
    let block = chosen.choice.block;
    let new = opened.buffers(options, chosen).with_neighbours(Ok(&key.identity()));
    // Dropped without the lock, as what is not needed of these.
    let mut others = Vec::new();
    let (set, unused) = with(|r| {
        // Somebody may have been faster.
        others = of_file(r);
        let same = others.iter().find(|s| s.maps() || s.choice().block == block);
        if let Some(same) = same {
            same.join();
            return (same.clone(), Some(new));
        }
        r.files.retain(|_, sets| {
            sets.retain(|s| s.strong_count() > 0);
            !sets.is_empty()
        });
        let set = Shared::new(new);
        r.files.entry(key.clone()).or_default().push(Arc::downgrade(&set));
        (set, None)
    });
    let set = hold(set);
    if unused.is_none() {
        Neighbours::watch(&set);
    }
    set
}

/// The buffers of a source that nobody else has.
#[cfg(test)]
pub(crate) fn open_source(
    source: Arc<dyn stead_store::Source>,
    options: &Options,
) -> stead_core::Result<Arc<Shared>> {
    Ok(open_new(New::prepare(source, options)?))
}

/// Buffers that nobody else has.
pub(crate) fn open_new(new: New) -> Arc<Shared> {
    hold(Shared::new(new))
}

/// Somebody closes a file.
pub(crate) fn close(shared: &Arc<Shared>) {
    let until = clock::after(KEEP);
    let shares = shared.holds_blocks();
    let last = with(|r| {
        let last = shared.leave();
        let named =
            || r.files.values().flatten().any(|s| std::ptr::eq(s.as_ptr(), Arc::as_ptr(shared)));
        if last && shares && r.holders.len() == 1 && named() {
            r.kept = Some((shared.clone(), until));
        }
        last
    });
    if !last {
        return;
    }
    shared.close();
    shared.remember();
    let kept = with(|r| r.kept.as_ref().is_some_and(|(k, _)| Arc::ptr_eq(k, shared)));
    if !kept {
        forget(shared);
    } else if !deadline::watch_kept(until) {
        give_up(until);
    }
}

/// Gives up what was kept until now.
pub(crate) fn give_up(now: Instant) {
    let gone = with(|r| match &r.kept {
        Some((_, until)) if *until <= now => r.kept.take(),
        _ => None,
    });
    if let Some((gone, _)) = gone {
        forget(&gone);
    }
}

/// A file takes part in the budget from now on.
fn hold(shared: Arc<Shared>) -> Arc<Shared> {
    if shared.holds_blocks() {
        // It is open again, or makes place for another file: a session over its header does not cost what is kept of it.
        let kept = with(|r| match &r.kept {
            Some((kept, _)) if !Arc::ptr_eq(kept, &shared) && r.of_one_file(kept, &shared) => None,
            _ => r.kept.take(),
        });
        if let Some((kept, _)) = kept
            && !Arc::ptr_eq(&kept, &shared)
        {
            forget(&kept);
        }
        with(|r| r.holders.insert(shared.id(), (Arc::downgrade(&shared), shared.memory())));
        balance();
    }
    shared
}

/// A file no longer takes part in the budget.
fn forget(shared: &Arc<Shared>) {
    // Somebody may have opened it meanwhile.
    let gone = with(|r| shared.is_closed() && r.holders.remove(&shared.id()).is_some());
    if gone {
        shared.clear();
        balance();
    }
}

/// Files that share the budget.
pub(crate) fn holders() -> u64 {
    with(|r| r.holders.values().filter(|(file, _)| file.strong_count() > 0).count() as u64)
}

/// Tells all files what each may have.
pub(crate) fn balance() {
    if cfg!(feature = "shuttle") {
        // Its threads are not those of the process.
        return;
    }
    static ONE_AT_A_TIME: PerProcess<Mutex<()>> = PerProcess::new();
    let guard = ONE_AT_A_TIME.get().lock().unwrap_or_else(PoisonError::into_inner);
    let (files, shares) = with(|r| {
        r.holders.retain(|_, (s, _)| s.strong_count() > 0);
        let all: Vec<_> = r.holders.values().filter_map(|(s, _)| s.upgrade()).collect();
        let shares = r.shares(&all);
        (all, shares)
    });
    for (file, share) in files.iter().zip(shares) {
        file.set_share(share);
    }
    drop(guard);
    // Perhaps the last who have them, so that they come here again.
    drop(files);
}

impl Key {
    fn new(file: &Identity, options: &Options) -> Key {
        let IoOptions { engine, direct, .. } = options.io;
        let engine = match engine {
            Engine::Auto => 0,
            Engine::Uring => 1,
            Engine::Pread => 2,
        };
        Key {
            file: (file.dev, file.inode, file.len, file.mtime, file.ctime),
            pinned: (options.readers, options.block, options.depth),
            io: (engine, direct),
            deadline: options.deadline,
            ahead: options.ahead,
            share: options.share,
            memory: options.memory,
        }
    }

    /// What the file is.
    fn identity(&self) -> Identity {
        let (dev, inode, len, mtime, ctime) = self.file;
        Identity { dev, inode, len, mtime, ctime, device: false }
    }
}

#[cfg(test)]
#[path = "registry_tests.rs"]
mod tests;
