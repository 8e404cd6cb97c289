//! Folders that are looked at by other threads before those who plan come to them: of names that the device has to be asked for many are asked
//! for at a time.
//!
//! What was found is what a plan goes by, as if it had looked itself, somewhat earlier. What could not be looked at it looks at itself, and tells why.

use super::Planner;
use super::walk::Step;
use crate::ends::End;
use crate::place::Place;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Result};
use stead_store::Meta;

/// Folders that wait to be looked at; of more, those that came first are left to the plan.
const WAITING: usize = 1 << 12;
/// Names that were found and that nobody has come to, about.
const NAMES: usize = 1 << 17;
/// A folder of more names is left to the plan.
const MOST: usize = 1 << 14;
/// Names that are looked at before it is looked whether all is over.
const TOGETHER: usize = 256;
/// Threads are begun for so many folders.
const ENOUGH: usize = 4;
/// Threads at most: so many questions keep devices busy.
const THREADS: usize = 8;
/// A wait at most before it is looked whether all of it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// A name of the source: what it is, and, where the target has the folder, what has the name there.
pub(super) struct Seen {
    pub(super) name: OsString,
    pub(super) meta: Meta,
    pub(super) there: Option<Option<Meta>>,
}

/// Whom a plan tells of what it will come to, and asks for that.
pub(super) trait Look {
    /// This folder will be asked for, before all that were named so far.
    fn want(&mut self, step: &Step);

    /// What lies in a folder; none if nobody has looked, and it is up to who asks.
    ///
    /// # Errors
    /// `Cancelled`.
    fn take(&mut self, source: &Path, cancel: &Cancel) -> Result<Option<Vec<Seen>>>;
}

/// Nobody looks.
struct Nobody;

impl Look for Nobody {
    fn want(&mut self, _: &Step) {}

    fn take(&mut self, _: &Path, _: &Cancel) -> Result<Option<Vec<Seen>>> {
        Ok(None)
    }
}

/// Threads, which are begun when there is enough for them.
struct Threads<'a, 'p, F> {
    ahead: &'a Ahead<'p>,
    begin: F,
    wanted: usize,
}

impl<F: FnMut()> Look for Threads<'_, '_, F> {
    fn want(&mut self, step: &Step) {
        let there = step.there && matches!(self.ahead.target, Place::Folder(_));
        self.ahead.want(&step.source, there.then_some(step.target.as_path()));
        self.wanted += 1;
        if self.wanted == ENOUGH {
            (self.begin)();
        }
    }

    fn take(&mut self, source: &Path, cancel: &Cancel) -> Result<Option<Vec<Seen>>> {
        self.ahead.take(source, cancel)
    }
}

impl Planner<'_> {
    /// Plans for all that lies in a folder.
    pub(super) fn walk(
        &mut self,
        from: i64,
        base: &Place,
        target: &End,
        first: Step,
    ) -> Result<()> {
        // Who gives way asks no device for much at a time, and stores and nodes tell of many names at once.
        let near = matches!(base, Place::Folder(_)) && !self.gentle;
        if !near || self.state.filter.is_list() {
            return self.walk_by(from, base, target, first, &mut Nobody);
        }
        let ahead = Ahead::new(base, &target.folder);
        std::thread::scope(|scope| {
            let _ending = Ending(&ahead);
            // Where there can be no threads, nobody looks.
            let look = || std::thread::Builder::new().spawn_scoped(scope, || ahead.look());
            let begin = || (0..threads()).for_each(|_| drop(look()));
            let mut looks = Threads { ahead: &ahead, begin, wanted: 0 };
            self.walk_by(from, base, target, first, &mut looks)
        })
    }
}

/// How many are to look: cold, they wait for devices more than they compute.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).saturating_mul(2).clamp(4, THREADS)
}

/// See the module's documentation.
struct Ahead<'p> {
    source: &'p Place,
    target: &'p Place,
    state: Mutex<State>,
    /// There is more to look at, or room for it; or nothing more to do.
    more: Condvar,
    /// Something was looked at.
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// By their ways on the source and, if the target has it, there. Those that came last are next.
    waiting: VecDeque<(PathBuf, Option<PathBuf>)>,
    busy: HashSet<PathBuf>,
    found: HashMap<PathBuf, Option<Vec<Seen>>>,
    /// Names of all that was found.
    names: usize,
    is_over: bool,
}

/// A folder that is looked at: what was found is there when this goes, however that ended.
struct Looked<'a, 'p> {
    ahead: &'a Ahead<'p>,
    source: PathBuf,
    found: Option<Vec<Seen>>,
}

impl Drop for Looked<'_, '_> {
    fn drop(&mut self) {
        let (source, found) = (std::mem::take(&mut self.source), self.found.take());
        let mut state = self.ahead.state();
        state.busy.remove(&source);
        state.names = state.names.saturating_add(found.as_ref().map_or(0, Vec::len));
        state.found.insert(source, found);
        self.ahead.done.notify_all();
    }
}

/// Ends those who look when it goes.
struct Ending<'a, 'p>(&'a Ahead<'p>);

impl Drop for Ending<'_, '_> {
    fn drop(&mut self) {
        self.0.state().is_over = true;
        self.0.more.notify_all();
    }
}

impl<'p> Ahead<'p> {
    fn new(source: &'p Place, target: &'p Place) -> Ahead<'p> {
        let (more, done) = (Condvar::new(), Condvar::new());
        Ahead { source, target, state: Mutex::default(), more, done }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn want(&self, source: &Path, target: Option<&Path>) {
        let mut state = self.state();
        state.waiting.push_back((source.to_owned(), target.map(Path::to_owned)));
        if state.waiting.len() > WAITING {
            state.waiting.pop_front();
        }
        self.more.notify_one();
    }

    fn take(&self, source: &Path, cancel: &Cancel) -> Result<Option<Vec<Seen>>> {
        let mut state = self.state();
        loop {
            if let Some(found) = state.found.remove(source) {
                state.names = state.names.saturating_sub(found.as_ref().map_or(0, Vec::len));
                self.more.notify_all();
                return Ok(found);
            }
            if !state.busy.contains(source) {
                if let Some(at) = state.waiting.iter().rposition(|(waiting, _)| waiting == source) {
                    state.waiting.remove(at);
                }
                return Ok(None);
            }
            cancel.check()?;
            let waited = self.done.wait_timeout(state, LOOK);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Looks at what is wanted until all is over.
    fn look(&self) {
        let mut state = self.state();
        loop {
            if state.is_over {
                return;
            }
            let next = if state.names < NAMES { state.waiting.pop_back() } else { None };
            let Some((source, target)) = next else {
                let waited = self.more.wait_timeout(state, LOOK);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            state.busy.insert(source.clone());
            drop(state);
            let mut looked = Looked { ahead: self, source, found: None };
            looked.found = self.names_of(&looked.source, target.as_deref());
            drop(looked);
            state = self.state();
        }
    }

    /// None if something is wrong with it, or there are too many.
    fn names_of(&self, source: &Path, target: Option<&Path>) -> Option<Vec<Seen>> {
        let folder = self.source.below(source).ok()?;
        let to = match target {
            Some(target) => Some(self.target.below(target).ok()?),
            None => None,
        };
        let mut lists = folder.names(MOST).ok()?;
        let names = lists.next().unwrap_or(Ok(Vec::new())).ok()?;
        if lists.next().is_some() {
            return None;
        }
        let mut found = Vec::with_capacity(names.len());
        for (at, name) in names.into_iter().enumerate() {
            if at % TOGETHER == 0 && self.state().is_over {
                return None;
            }
            // What has gone meanwhile is no name of it.
            let Some(meta) = folder.meta(&name).ok()? else { continue };
            let there = match &to {
                Some(to) => Some(to.meta(&name).ok()?),
                None => None,
            };
            found.push(Seen { name, meta, there });
        }
        Some(found)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use stead_store::Folder;

    fn place(path: &Path) -> Place {
        Place::Folder(Folder::open(path).unwrap())
    }

    #[test]
    fn what_was_wanted_is_there_once_and_what_was_not_is_left_to_who_asks() {
        let dir = tempfile::tempdir().unwrap();
        for n in 0..50 {
            let inner = dir.path().join(format!("{n}"));
            std::fs::create_dir(&inner).unwrap();
            (0..n).for_each(|i| std::fs::write(inner.join(format!("{i}")), "x").unwrap());
        }
        let (source, cancel) = (place(dir.path()), Cancel::new());
        let ahead = Ahead::new(&source, &source);
        let way = |n: usize| PathBuf::from(n.to_string());
        std::thread::scope(|scope| {
            let _ending = Ending(&ahead);
            (0..3).for_each(|_| drop(scope.spawn(|| ahead.look())));
            (0..50).for_each(|n| ahead.want(&way(n), (n % 2 == 0).then(|| way(49)).as_deref()));
            ahead.want(Path::new("none"), None);
            for n in (0..50).rev() {
                // Nobody may have come to it yet.
                if let Some(found) = ahead.take(&way(n), &cancel).unwrap() {
                    assert_eq!(found.len(), n);
                    // The last one has names up to 48.
                    let there = |seen: &Seen| seen.there.map(|there| there.is_some());
                    assert!(found.iter().all(|seen| there(seen) == (n % 2 == 0).then_some(true)));
                }
                assert!(ahead.take(&way(n), &cancel).unwrap().is_none());
            }
            assert!(ahead.take(Path::new("none"), &cancel).unwrap().is_none());
        });
        assert_eq!(ahead.state().names, 0);
    }

    #[test]
    fn of_too_many_folders_the_first_ones_are_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let source = place(dir.path());
        let ahead = Ahead::new(&source, &source);
        (0..WAITING + 5).for_each(|n| ahead.want(Path::new(&n.to_string()), None));
        assert_eq!(ahead.state().waiting.len(), WAITING);
        assert_eq!(ahead.state().waiting.front().unwrap().0, Path::new("5"));
    }
}
