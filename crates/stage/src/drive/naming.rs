//! From copies of a batch to files: durable, named, written down; and what becomes of those that are not whole.

use super::Way;
use crate::commit::{self, Touched};
use crate::copy;
use crate::job::{Item, Made};
use crate::request::Action;
use crate::work::{self, Carries, Carry, stops_all};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use stead_core::{Error, Result};

/// A thread has so many names to give at least.
const NAMES_EACH: usize = 64;

impl Way<'_> {
    fn mark(&self, copy: &dyn Carry) -> Result<()> {
        match copy.mark()? {
            Some(mark) => self.d.journal.set_mark(self.d.id, copy.track().item().n, Some(&mark)),
            None => Ok(()),
        }
    }

    /// Removes what there is of a copy.
    pub(super) fn abandon(&self, copy: &dyn Carry) {
        // What cannot be removed now is found by its name, or its mark, later.
        if copy.abandon().is_ok() && copy.is_marked() {
            let _ = self.d.journal.set_mark(self.d.id, copy.track().item().n, None);
        }
    }

    /// What failed is tried again later, or has failed for good.
    pub(super) fn put_off(
        &self,
        item: &Item,
        e: Error,
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<()> {
        if copy::may_pass(&e) {
            again.lock().unwrap_or_else(PoisonError::into_inner).push((item.clone(), e));
            return Ok(());
        }
        self.d.journal.done(self.d.id, &[], &[(item, &e)])
    }

    /// Makes files of copies: all are durable before the first one gets its name.
    pub(super) fn commit(
        &self,
        copies: &Carries,
        synced: bool,
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<()> {
        let mut whole = Vec::with_capacity(copies.len());
        let mut stopped = None;
        for copy in copies {
            let Some(e) = copy.track().take_error() else {
                whole.push(&**copy);
                continue;
            };
            copy.track().take_back(&self.bytes, &self.kept);
            // A large file goes on where it is when the transfer does, unless there is something wrong with it.
            if !(copy.keeps(&e) && self.mark(&**copy).is_ok()) {
                self.abandon(&**copy);
            }
            if stops_all(&e) {
                stopped.get_or_insert(e);
            } else {
                self.put_off(copy.track().item(), e, again)?;
            }
        }
        let named = self.name(&whole, synced, again);
        if named.is_err() {
            // Those that have their names have no other one any more.
            whole.iter().for_each(|copy| self.abandon(*copy));
        }
        named.and(stopped.map_or(Ok(()), Err))
    }

    fn name(
        &self,
        whole: &[&dyn Carry],
        synced: bool,
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<()> {
        let durable = self.is_durable();
        if durable
            && !synced
            && !whole.is_empty()
            && let Err(e) = self.sync_together(whole)
        {
            if !copy::may_pass(&e) {
                return Err(e);
            }
            return self.lost(whole, &e, again);
        }
        self.note_made(whole)?;
        let mut touched = Touched::default();
        let mut stopped = None;
        let mut done = Vec::with_capacity(whole.len());
        for (copy, named) in whole.iter().zip(self.of_each(whole, |copy| copy.name())) {
            match named {
                Ok(()) => {
                    match copy.folder() {
                        // To ask for all of a file system would be to hear again of the file that was lost.
                        Some(folder) if durable && self.each.load(Ordering::Relaxed) => {
                            commit::sync_names(folder)?;
                        }
                        folder => folder.map_or(Ok(()), |folder| touched.note(folder))?,
                    }
                    done.push(*copy);
                }
                Err(e) => {
                    if !copy.keeps(&e) {
                        self.abandon(*copy);
                    }
                    copy.track().take_back(&self.bytes, &self.kept);
                    self.files.fetch_sub(1, Ordering::Relaxed);
                    if stops_all(&e) {
                        stopped.get_or_insert(e);
                    } else {
                        self.put_off(copy.track().item(), e, again)?;
                    }
                }
            }
        }
        let are_many = touched.are_many();
        if durable && let Err(e) = touched.sync() {
            // A folder is not asked twice: the system tells it once.
            if !are_many || !copy::may_pass(&e) {
                return Err(e);
            }
            self.sync_folders(&done)?;
        }
        let mut left = Vec::new();
        if self.d.known.request.action == Action::Move {
            for (copy, gone) in done.iter().zip(self.of_each(&done, |copy| copy.leave())) {
                match gone {
                    Ok(()) => left.push(*copy),
                    Err(e) => {
                        let item = copy.track().item();
                        self.d.journal.set_replaces(self.d.id, item.n)?;
                        copy.track().take_back(&self.bytes, &self.kept);
                        self.files.fetch_sub(1, Ordering::Relaxed);
                        self.put_off(&replacing(item), e, again)?;
                    }
                }
            }
        } else {
            left = done;
        }
        let items: Vec<&Item> = left.iter().map(|copy| copy.track().item()).collect();
        self.d.journal.done(self.d.id, &items, &[])?;
        stopped.map_or(Ok(()), Err)
    }

    /// Does something with the names of these, of many by several threads: folders take in names by themselves.
    fn of_each(
        &self,
        copies: &[&dyn Carry],
        work: impl Fn(&dyn Carry) -> Result<()> + Sync,
    ) -> Vec<Result<()>> {
        let near = !self.gentle && !self.is_remote();
        let threads = if near { self.d.threads.min(copies.len() / NAMES_EACH) } else { 1 };
        let folder = |i: usize| copies.get(i).map_or(Path::new(""), |c| c.track().item().folder());
        let one = |i: usize| copies.get(i).map_or(Ok(()), |copy| work(*copy));
        work::of_each(copies.len(), threads, folder, &one)
    }

    /// Makes the names of these durable, folder by folder: the system tells of whatever it could not write there to who asks it for all,
    /// and that may be a file of the next batch, which is told of when that is made durable.
    fn sync_folders(&self, copies: &[&dyn Carry]) -> Result<()> {
        self.each.store(true, Ordering::Relaxed);
        self.forget_side();
        let mut synced: HashSet<&Path> = HashSet::new();
        let folders = copies.iter().filter_map(|copy| copy.folder());
        folders.filter(|folder| synced.insert(folder.shown())).try_for_each(commit::sync_names)
    }

    /// Makes files durable that nobody has made so by themselves.
    fn sync_together(&self, whole: &[&dyn Carry]) -> Result<()> {
        // The system tells of what it could not write once: whoever asked then, for another batch, has had the answer for this one, too.
        if self.each.load(Ordering::Relaxed) {
            let lost = std::io::Error::from(rustix::io::Errno::IO);
            return Err(Error::io("sync", self.target_shown(), lost));
        }
        let mut folders = Touched::default();
        whole.iter().filter_map(|copy| copy.folder()).try_for_each(|f| folders.note(f))?;
        // And only to who had it open before: this was, before any file of it was written.
        folders.sync_files(self.target.as_ref().and_then(|side| side.base.folder().ok()))
    }

    /// A folder that was open before would be told once more of what could not be written.
    fn forget_side(&self) {
        if let Some(side) = &self.target {
            *side.last.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }

    fn target_shown(&self) -> PathBuf {
        self.target.as_ref().map(|side| side.base.shown()).unwrap_or_default()
    }

    /// Some of these were not written, and nobody knows which: all of them are brought anew, each made durable by itself. To ask the system once more
    /// would not do, as it takes for written what it has failed to write.
    fn lost(
        &self,
        whole: &[&dyn Carry],
        e: &Error,
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<()> {
        self.each.store(true, Ordering::Relaxed);
        self.forget_side();
        for copy in whole {
            let item = copy.track().item();
            self.abandon(*copy);
            copy.track().take_back(&self.bytes, &self.kept);
            self.files.fetch_sub(1, Ordering::Relaxed);
            let code = e.os_code().unwrap_or_else(|| rustix::io::Errno::IO.raw_os_error());
            let path = self.target_shown().join(&item.target);
            let error = Error::io("sync", path, std::io::Error::from_raw_os_error(code));
            self.put_off(item, error, again)?;
        }
        Ok(())
    }

    /// Notes the files that are about to get names which nothing has: whoever goes on may find these names taken, and that is by them.
    /// In a move all of them: whoever goes on may find no source, and a target that is not as the plan says. Where names are to be there
    /// after a loss of power, so is this.
    fn note_made(&self, whole: &[&dyn Carry]) -> Result<()> {
        let (mut made, is_move) = (Vec::new(), self.d.known.request.action == Action::Move);
        for copy in whole.iter().filter(|copy| is_move || !copy.track().item().replace) {
            let item = copy.track().item();
            let Some(folder) = copy.folder() else { continue };
            let there = || folder.meta(&self.temporary(item)).ok().flatten();
            // What cannot be looked at cannot be named, which is told then.
            let Some(meta) = copy.made().or_else(there) else { continue };
            let mark = match copy.is_marked() {
                true => self.d.journal.mark(self.d.id, item.n)?,
                false => None,
            };
            made.push((item.n, Made::of(&meta).text(mark.as_deref())));
        }
        self.d.journal.set_marks(self.d.id, &made, self.is_durable())
    }
}

/// The same, of which there is something that it replaces: itself.
pub(super) fn replacing(item: &Item) -> Item {
    Item { replace: true, ..item.clone() }
}
