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
use std::sync::{Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Result};

/// A thread has so many names to give at least.
const NAMES_EACH: usize = 64;

/// Files of a batch that have their names, of which nobody knows yet whether they are durable: the next batch makes them so with its own files,
/// by one and the same question to the system.
pub(super) struct Unsettled {
    copies: Carries,
    /// Which of them have their names.
    named: Vec<usize>,
    touched: Touched,
}

impl Unsettled {
    fn named(&self) -> Vec<&dyn Carry> {
        some_of(&self.copies, &self.named)
    }
}

fn some_of<'c>(copies: &'c Carries, which: &[usize]) -> Vec<&'c dyn Carry> {
    which.iter().filter_map(|i| copies.get(*i)).map(|copy| &**copy).collect()
}

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

    /// Makes files of copies: all are durable before the first one gets its name. That those are so is seen to by the next batch, or by
    /// [`Way::settle_rest`].
    pub(super) fn commit(
        &self,
        copies: Carries,
        synced: bool,
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<()> {
        let mut whole = Vec::with_capacity(copies.len());
        let mut stopped = None;
        for (i, copy) in copies.iter().enumerate() {
            let Some(e) = copy.track().take_error() else {
                whole.push(i);
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
        let named = match self.name(&copies, &whole, synced, again) {
            Ok((named, touched, not)) => {
                let unsettled = Unsettled { copies, named, touched };
                let settled = match self.waits_for_next(&unsettled, synced) {
                    true => {
                        *self.unsettled() = Some(unsettled);
                        Ok(())
                    }
                    false => self.settle_alone(unsettled, again),
                };
                settled.and(not.map_or(Ok(()), Err))
            }
            Err(e) => {
                // Those that have their names have no other one any more.
                some_of(&copies, &whole).into_iter().for_each(|copy| self.abandon(copy));
                Err(e)
            }
        };
        named.and(stopped.map_or(Ok(()), Err))
    }

    fn unsettled(&self) -> MutexGuard<'_, Option<Unsettled>> {
        self.unsettled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if names of a batch are made durable with what comes next: those that would be with their whole file system in any case. Of few
    /// folders each is, which means more on file systems whose server keeps the names.
    fn waits_for_next(&self, unsettled: &Unsettled, synced: bool) -> bool {
        let whole = unsettled.touched.are_many();
        self.is_durable() && whole && !synced && !self.each.load(Ordering::Relaxed)
    }

    /// Makes names durable that no other batch has made so.
    ///
    /// # Errors
    /// As [`Way::finish_named`]; those of the system.
    pub(super) fn settle_rest(&self, again: &Mutex<Vec<(Item, Error)>>) -> Result<()> {
        let rest = self.unsettled().take();
        rest.map_or(Ok(()), |rest| self.settle_alone(rest, again))
    }

    fn settle_alone(
        &self,
        mut unsettled: Unsettled,
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<()> {
        let are_many = unsettled.touched.are_many();
        if self.is_durable()
            && let Err(e) = unsettled.touched.sync()
        {
            // A folder is not asked twice: the system tells it once.
            if !are_many || !copy::may_pass(&e) {
                return Err(e);
            }
            self.sync_folders(&unsettled.named())?;
        }
        self.finish_named(&unsettled.named(), again)
    }

    /// Their names are durable: in a move their sources go, and that they are done is written down.
    fn finish_named(&self, named: &[&dyn Carry], again: &Mutex<Vec<(Item, Error)>>) -> Result<()> {
        let mut left = Vec::new();
        if self.d.known.request.action == Action::Move {
            for (copy, gone) in named.iter().zip(self.of_each(named, |copy| copy.leave())) {
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
            left.extend_from_slice(named);
        }
        let items: Vec<&Item> = left.iter().map(|copy| copy.track().item()).collect();
        self.d.journal.done(self.d.id, &items, &[])
    }

    /// Gives them their names. Which have theirs, the folders of these, and what stops all that comes after.
    fn name(
        &self,
        copies: &Carries,
        which: &[usize],
        synced: bool,
        again: &Mutex<Vec<(Item, Error)>>,
    ) -> Result<(Vec<usize>, Touched, Option<Error>)> {
        let (durable, whole) = (self.is_durable(), some_of(copies, which));
        let before = self.unsettled().take();
        if durable && !synced && !whole.is_empty() {
            let together = self.sync_together(&whole, before.as_ref());
            if let Some(before) = before {
                if together.is_err() {
                    self.sync_folders(&before.named())?;
                }
                self.finish_named(&before.named(), again)?;
            }
            if let Err(e) = together {
                if !copy::may_pass(&e) {
                    return Err(e);
                }
                self.lost(&whole, &e, again)?;
                return Ok((Vec::new(), Touched::default(), None));
            }
        } else if let Some(before) = before {
            self.settle_alone(before, again)?;
        }
        self.note_made(&whole)?;
        let mut touched = Touched::default();
        let mut stopped = None;
        let mut done = Vec::with_capacity(whole.len());
        let named = self.of_each(&whole, |copy| copy.name());
        for ((i, copy), named) in which.iter().zip(&whole).zip(named) {
            match named {
                Ok(()) => {
                    match copy.folder() {
                        // To ask for all of a file system would be to hear again of the file that was lost.
                        Some(folder) if durable && self.each.load(Ordering::Relaxed) => {
                            commit::sync_names(folder)?;
                        }
                        folder => folder.map_or(Ok(()), |folder| touched.note(folder))?,
                    }
                    done.push(*i);
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
        Ok((done, touched, stopped))
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

    /// Makes files durable that nobody has made so by themselves, and with them the names that were given before.
    fn sync_together(&self, whole: &[&dyn Carry], before: Option<&Unsettled>) -> Result<()> {
        // The system tells of what it could not write once: whoever asked then, for another batch, has had the answer for this one, too.
        if self.each.load(Ordering::Relaxed) {
            let lost = std::io::Error::from(rustix::io::Errno::IO);
            return Err(Error::io("sync", self.target_shown(), lost));
        }
        let mut folders = Touched::default();
        let before = before.map(Unsettled::named).unwrap_or_default();
        let all = whole.iter().chain(&before).filter_map(|copy| copy.folder());
        all.into_iter().try_for_each(|folder| folders.note(folder))?;
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
