//! What an open file is read into by the sessions of this program: a set of buffers ([`Shared`]) for all of them, or, where
//! blocks are in memory and ranges are of very different sizes, a few sets with blocks of different sizes.
//!
//! The first session has one made. Later ones join those that serve them ([`There::serve`]).
//!
//! [`There::serve`]: crate::options::There::serve

use crate::engine::{Counts, Shared};
use crate::opened::Opened;
use crate::options::{Chosen, Options};
use crate::process::inherited;
use crate::registry::{self, MaybeKey};
use crate::sync::{self, Mutex};
use std::ops::Range;
use std::sync::{Arc, Weak};
use stead_core::Result;

pub(crate) struct Buffers {
    opened: Opened,
    options: Options,
    /// By which other files of the process find them; why they do not if they might.
    key: MaybeKey,
    /// The process that has opened it. One that was forked may have inherited a lock that is taken for good.
    process: u32,
    sets: Mutex<Sets>,
}

#[derive(Default)]
struct Sets {
    /// Those with the smallest blocks first. This file has each of them open.
    all: Vec<Arc<Shared>>,
    /// Those that were let go, with what was done by them until then: others may have them still.
    before: Vec<(Weak<Shared>, Counts)>,
    /// What was done by those of them that nobody has.
    past: Counts,
}

impl Sets {
    fn add(&mut self, set: Arc<Shared>) {
        let same = |(before, _): &(Weak<Shared>, Counts)| std::ptr::eq(before.as_ptr(), &*set);
        // It counts itself.
        self.before.retain(|b| !same(b));
        self.all.push(set);
        self.all.sort_by_key(|s| s.choice().block);
    }

    /// Takes out what no session uses, if there are larger blocks.
    fn spare(&mut self) -> Vec<Arc<Shared>> {
        let Some(largest) = self.all.last().map(|s| s.choice().block) else { return Vec::new() };
        let goes = |s: &mut Arc<Shared>| s.choice().block < largest && !s.is_busy();
        let gone: Vec<_> = self.all.extract_if(.., goes).collect();
        let past = &mut self.past;
        self.before.retain(|(set, counts)| {
            let there = set.strong_count() > 0;
            *past = if there { *past } else { past.and(counts) };
            there
        });
        for set in &gone {
            let counts = Counts { held: 0, ..set.counts() };
            self.before.push((Arc::downgrade(set), counts));
        }
        gone
    }
}

impl Buffers {
    pub(crate) fn new(opened: Opened, options: &Options, key: MaybeKey) -> Buffers {
        let process = std::process::id();
        Buffers { opened, options: options.clone(), key, process, sets: Mutex::default() }
    }

    fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Begins a session. Gives what it reads by, and its number there.
    pub(crate) fn begin(&self, range: &Range<u64>) -> Result<(Arc<Shared>, u64)> {
        if self.is_inherited() {
            return Err(inherited(self.opened.source().path()));
        }
        let mut sets = sync::lock(&self.sets);
        let set = match sets.all.first().filter(|first| first.maps()) {
            // There is one way to read the page cache, and nothing to be chosen.
            Some(first) => first.clone(),
            None => {
                let (bytes, own) = (range.end - range.start, sets.all.len());
                let chosen = self.opened.choose(&self.options, bytes, own);
                match Shared::best(&sets.all, &chosen, range) {
                    Some(set) => set,
                    None => self.find(&mut sets, chosen, range),
                }
            }
        };
        // Before others can find that nobody uses it.
        let begun = set.begin(range.clone());
        let gone = sets.spare();
        drop(sets);
        gone.iter().for_each(registry::close);
        begun.map(|id| (set, id))
    }

    /// What others have for this session, or a new set.
    fn find(&self, sets: &mut Sets, chosen: Chosen, range: &Range<u64>) -> Arc<Shared> {
        let set = registry::buffers(&self.key, &self.opened, &self.options, chosen, range);
        if sets.all.iter().any(|s| Arc::ptr_eq(s, &set)) {
            // It has them open already, and once is enough.
            set.leave();
        } else {
            sets.add(set.clone());
        }
        set
    }

    /// Ends a session.
    pub(crate) fn end(&self, set: &Arc<Shared>, id: u64) {
        if self.is_inherited() {
            return;
        }
        set.end(id);
        if set.maps() {
            return;
        }
        let gone = sync::lock(&self.sets).spare();
        gone.iter().for_each(registry::close);
    }

    /// What was done for all sessions.
    pub(crate) fn counts(&self) -> Counts {
        if self.is_inherited() {
            return Counts::default();
        }
        let sets = sync::lock(&self.sets);
        let before = sets.before.iter().fold(sets.past, |sum, (_, counts)| sum.and(counts));
        sets.all.iter().fold(before, |sum, set| sum.and(&set.counts()))
    }

    #[cfg(test)]
    pub(crate) fn sets(&self) -> Vec<Arc<Shared>> {
        sync::lock(&self.sets).all.clone()
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.is_inherited() {
            // They are the other process's.
            if let Ok(sets) = self.sets.get_mut() {
                std::mem::take(sets).all.into_iter().for_each(std::mem::forget);
            }
            return;
        }
        // The last one may be kept for whoever opens the file again: that with the largest blocks.
        let all = std::mem::take(&mut sync::lock(&self.sets).all);
        all.iter().for_each(registry::close);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::Kind;
    use stead_store::MemorySource;

    #[test]
    fn what_a_fork_inherited_is_refused_and_waits_for_nobody() {
        let options = Options::default();
        let source = Arc::new(MemorySource::new("m", [7; 100]));
        let opened = Opened::look(source, &options).unwrap();
        let mut buffers = Buffers::new(opened, &options, Err(None));
        let (set, id) = buffers.begin(&(0..10)).unwrap();
        buffers.process ^= 1;
        // As if a thread of the other process had the lock.
        buffers.end(&set, id);
        assert!(set.is_busy());
        let error = buffers.begin(&(0..10)).err().unwrap();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains("before a fork"), "{error}");
        assert_eq!(buffers.counts(), Counts::default());
        drop(buffers);
        assert!(!set.is_closed());
    }
}
