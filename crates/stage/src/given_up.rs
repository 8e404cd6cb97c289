//! Transfers that are given up, and what becomes of those that other processes do.

use crate::clock::{self, Watch};
use crate::job::{Item, Task};
use crate::journal::Known;
use crate::manager::Stager;
use crate::meta;
use crate::place::{Place, Prefix};
use crate::status::{State, Status};
use crate::turns::Turn;
use crate::up::Upload;
use std::path::PathBuf;
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Result};
use stead_store::Folder;

/// Names that are looked up together.
const TOGETHER: usize = 4096;
/// How long whoever does a transfer has for what it is in the middle of.
pub(crate) const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// So often it is looked at first what another process does, and later on.
const LOOKS_EVERY: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(100)];
/// Whoever takes a request begins it within this, unless it was killed in between.
const BEGINS_WITHIN_S: f64 = 2.0;

/// Pauses between looks at what another process does.
struct Pauses(Duration);

impl Pauses {
    fn new() -> Pauses {
        Pauses(LOOKS_EVERY[0])
    }

    fn pause(&mut self, most: Duration) {
        std::thread::sleep(self.0.min(most));
        self.0 = (self.0 * 2).min(LOOKS_EVERY[1]);
    }
}

/// For who does a transfer that somebody else has given up.
pub(crate) fn was_cancelled(id: i64) -> Error {
    Error::new(Kind::Cancelled, format!("transfer {id} was cancelled")).with_hint(
        "somebody has given it up: what is whole stays, everything else of it is removed",
    )
}

/// For who wants something of a transfer with which nothing happens any more.
pub(crate) fn is_over(id: i64, state: State) -> Error {
    Error::usage(format!("transfer {id} is {} already", state.as_str()))
}

impl Stager {
    /// How far a transfer is with which somebody wants to go on.
    ///
    /// # Errors
    /// `Usage` if there is none of this number, or it is finished or cancelled; those of the journal.
    pub fn resumable(&self, id: i64) -> Result<Status> {
        let status = self.status(id)?;
        match status.state {
            State::Finished | State::Cancelled => Err(is_over(id, status.state)),
            _ => Ok(status),
        }
    }

    /// Gives up a transfer, and removes what there is of files that are not whole. What is whole stays. One that another process does, or
    /// another thread, is stopped there; what a process has left that has ended without a word is removed here.
    ///
    /// # Errors
    /// `Usage` if it is over, or ends by itself before it can be stopped; `Timeout` if it does not stop, as its device hangs: it is
    /// given up as soon as that answers.
    pub fn cancel(&self, id: i64) -> Result<Status> {
        self.cancel_within(id, STOPS_WITHIN, &mut || Ok(()))
    }

    /// As [`Stager::cancel`], with so much time for whoever does it. Meanwhile `look` is called now and then, and may end the wait: it
    /// was asked to stop all the same.
    ///
    /// # Errors
    /// As there; those of `look`.
    pub fn cancel_within(
        &self,
        id: i64,
        most: Duration,
        look: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Status> {
        let (watch, mut pauses, mut asked) = (Watch::start(), Pauses::new(), false);
        loop {
            if let Some(turn) = self.turn_or_ask(id)? {
                return self.give_up(id, &turn, asked);
            }
            asked = true;
            let left = most.saturating_sub(Duration::from_secs_f64(watch.seconds()));
            if left.is_zero() {
                let message = format!(
                    "transfer {id} was asked to stop, and has not within {} s",
                    most.as_secs()
                );
                return Err(Error::new(Kind::Timeout, message).with_hint(
                    "a device may not answer, and it is given up once that does; or its process is stopped, or of a stead that is older: end it, and cancel it again",
                ));
            }
            look()?;
            pauses.pause(left);
        }
    }

    /// As [`Stager::cancel`], of one that nobody does.
    ///
    /// # Errors
    /// `Usage` if somebody does it, or if it is over.
    pub(crate) fn cancel_idle(&self, id: i64) -> Result<Status> {
        let turn = self.turn(id)?;
        self.give_up(id, &turn, false)
    }

    fn give_up(&self, id: i64, _turn: &Turn, asked: bool) -> Result<Status> {
        let known = self.journal().known(id)?;
        match known.state {
            // Who did it has done that, too.
            State::Cancelled if asked => return self.journal().status(id),
            State::Finished if asked => {
                return Err(Error::usage(format!(
                    "transfer {id} was finished before it could be stopped"
                )));
            }
            State::Finished | State::Cancelled => {
                return Err(is_over(id, known.state));
            }
            _ => {}
        }
        self.sweep(id, &known)?;
        self.journal().set_state(id, State::Cancelled, None, clock::unix())?;
        self.journal().status(id)
    }

    /// What a transfer ends with that somebody has asked to give up while it was under way here: it is given up, or can be resumed if
    /// that fails.
    pub(crate) fn given_up(&self, id: i64, known: &Known, now: f64) -> Error {
        let done = match self.sweep(id, known) {
            Ok(()) => self.journal().set_state(id, State::Cancelled, None, now),
            Err(e) => {
                // Who has asked tries it once more, and tells.
                let set = self.journal().set_state(id, State::Interrupted, Some(&e), now);
                set.and(Err(e))
            }
        };
        match done {
            Ok(()) => was_cancelled(id),
            Err(e) => e,
        }
    }

    /// Waits until nothing more happens with a transfer, whichever process does it, for no longer than `most`, and says how far it is. `look` is told
    /// that now and then, and may end it.
    ///
    /// # Errors
    /// `Usage` if there is none of this number, or it waits and nobody does it; those of `look` and of the journal.
    pub fn wait(
        &self,
        id: i64,
        most: Option<Duration>,
        look: &mut dyn FnMut(&Status) -> Result<()>,
    ) -> Result<Status> {
        let (watch, mut pauses, mut idle) = (Watch::start(), Pauses::new(), None);
        loop {
            let status = self.status(id)?;
            let now = watch.seconds();
            let left = most.map(|most| most.saturating_sub(Duration::from_secs_f64(now)));
            if status.state.rests() || left.is_some_and(|left| left.is_zero()) {
                return Ok(status);
            }
            look(&status)?;
            if status.state != State::Pending || !self.is_free(id)? {
                idle = None;
            } else if now - *idle.get_or_insert(now) > BEGINS_WITHIN_S {
                return Err(self.nobody_does(id)?);
            }
            pauses.pause(left.unwrap_or(Duration::MAX));
        }
    }

    fn nobody_does(&self, id: i64) -> Result<Error> {
        let (whose, what) = match self.journal().is_queued(id)? {
            true => (
                " in the queue of a daemon, which no process here has",
                "start it: stead daemon, or ",
            ),
            false => (", and no process does it", ""),
        };
        Ok(Error::usage(format!("transfer {id} waits{whose}"))
            .with_hint(format!("{what}do it here: stead stage --here --resume {id}")))
    }

    /// Who says that it is running may have ended without a word.
    pub(crate) fn true_state(&self, mut status: Status) -> Result<Status> {
        if status.state == State::Running && self.try_turn(status.id)?.is_some() {
            // It may have ended between both.
            let now = self.journal().status(status.id)?;
            status = match now.state {
                State::Running => Status { state: State::Interrupted, ..now },
                _ => now,
            };
        }
        Ok(status)
    }

    /// Removes temporary files of a transfer.
    pub(crate) fn sweep(&self, id: i64, known: &Known) -> Result<()> {
        let Some(base) = known.ends.as_ref().and_then(|ends| ends.target.as_ref()) else {
            return Ok(());
        };
        let base = match base.open(&self.means().spaces, None, &Cancel::new()) {
            // It is gone with all that lay in it.
            Err(e) if e.kind() == Kind::NotFound => return Ok(()),
            base => base?,
        };
        let mut from = 0;
        loop {
            let tasks = [Task::File, Task::Link, Task::Hard, Task::Folder];
            let items = self.journal().not_whole(id, &tasks, from, TOGETHER)?;
            let Some(last) = items.last() else { return Ok(()) };
            from = last.n + 1;
            if let Place::Bucket(to) = &base {
                self.forget_uploads(id, to, &items)?;
                continue;
            }
            let base = base.folder()?;
            let mut here: Option<(PathBuf, Option<Folder>)> = None;
            for item in &items {
                if here.as_ref().is_none_or(|(path, _)| path != item.folder()) {
                    here = Some((item.folder().to_owned(), base.below(item.folder()).ok()));
                }
                let Some((_, Some(folder))) = &here else { continue };
                if item.task != Task::Folder {
                    folder.remove_file(&item.temporary(known.tag))?;
                } else if !item.replace
                    && let Ok(made) = folder.enter(item.name())
                    && made.own_meta()?.mode == 0o700
                {
                    // It was to get its rights in the end. Whose source is not there to say which stays closed to others.
                    meta::give_rights(&made, self.rights_of(known, item).unwrap_or(0o700));
                }
            }
        }
    }

    /// The rights of the folder that one was to be a copy of.
    fn rights_of(&self, known: &Known, item: &Item) -> Option<u32> {
        let from = known.ends.as_ref()?.sources.get(usize::try_from(item.from).ok()?)?;
        match from.open(&self.means().spaces, None, &Cancel::new()).ok()? {
            // A bucket has none.
            Place::Bucket(_) => Some(0o777),
            Place::Far(_) => None,
            Place::Folder(base) => match base.below(&item.source).ok()?.own_meta() {
                Ok(meta) => Some(meta.mode),
                Err(_) => None,
            },
        }
    }

    /// Has the store forget the parts of files that are not whole.
    fn forget_uploads(&self, id: i64, to: &Prefix, items: &[Item]) -> Result<()> {
        for item in items.iter().filter(|item| item.task == Task::File) {
            let mark = self.journal().mark(id, item.n)?;
            if let Some(begun) = mark.as_deref().and_then(Upload::of_text) {
                to.bucket().abort(&to.key(&item.target)?, &begun.upload)?;
                self.journal().set_mark(id, item.n, None)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::Means;
    use crate::request::{Action, Options, Request};
    use crate::turns::Ear;
    use stead_core::Location;

    fn taken(dir: &std::path::Path) -> (Stager, i64) {
        std::fs::write(dir.join("a"), b"a").unwrap();
        let stager = Stager::open(&dir.join("state"), Means::default()).unwrap();
        let at =
            |name: &str| Location::parse(&format!("{}/{name}", dir.display()), &|_| None).unwrap();
        let (action, options) = (Action::Copy, Options::default());
        let request = Request { action, sources: vec![at("a")], target: Some(at("b")), options };
        let id = stager.submit(&request).unwrap();
        (stager, id)
    }

    #[test]
    fn who_does_not_listen_is_told_of() {
        let dir = tempfile::tempdir().unwrap();
        let (stager, id) = taken(dir.path());
        let turn = stager.turn(id).unwrap();
        let mut looks = 0;
        let e = stager
            .cancel_within(id, Duration::from_millis(50), &mut || {
                looks += 1;
                Ok(())
            })
            .unwrap_err();
        assert!(e.kind() == Kind::Timeout && e.message().contains("asked to stop"), "{e}");
        assert!(looks > 0);
        let ended = |_: &Status| Err(Error::cancelled());
        assert_eq!(stager.wait(id, None, &mut { ended }).unwrap_err().kind(), Kind::Cancelled);
        // What was asked is heard by who begins to listen, and by nobody who comes later.
        let cancel = Cancel::new();
        let ear = Ear::listen(&turn, &cancel).unwrap();
        while !ear.cancel().is_cancelled() {
            std::thread::yield_now();
        }
        assert!(ear.is_asked() && !cancel.is_cancelled());
        drop(ear);
        turn.forget_asked().unwrap();
        let ear = Ear::listen(&turn, &cancel).unwrap();
        assert!(!ear.is_asked());
        cancel.cancel();
        assert!(ear.cancel().is_cancelled() && !ear.is_asked());
        drop((ear, turn));
        assert_eq!(stager.cancel(id).unwrap().state, State::Cancelled);
    }

    #[test]
    fn what_nobody_does_is_not_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        let (stager, id) = taken(dir.path());
        let e = stager.wait(id, None, &mut |_| Ok(())).unwrap_err();
        assert!(e.message().contains("no process does it"), "{e}");
        assert!(e.hint().unwrap().contains("--resume"), "{e}");
        assert_eq!(
            stager.wait(id, Some(Duration::ZERO), &mut |_| Ok(())).unwrap().state,
            State::Pending
        );
        stager.run(id, &Cancel::new(), None).unwrap();
        assert_eq!(stager.wait(id, None, &mut |_| Ok(())).unwrap().state, State::Finished);
        assert_eq!(stager.wait(9, None, &mut |_| Ok(())).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn what_a_process_has_left_is_removed_by_who_gives_it_up() {
        let dir = tempfile::tempdir().unwrap();
        let (stager, id) = taken(dir.path());
        // As if it had been killed after somebody had asked.
        let path = dir.path().join("state/transfers").join(id.to_string());
        std::fs::write(path, b"1").unwrap();
        stager.journal().set_state(id, State::Running, None, 1.0).unwrap();
        assert_eq!(stager.status(id).unwrap().state, State::Interrupted);
        assert_eq!(stager.cancel(id).unwrap().state, State::Cancelled);
        assert!(!dir.path().join("b").exists());
    }
}
