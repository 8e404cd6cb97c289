//! A transfer that a thread of this process does, for programs that have other things to do meanwhile.

use crate::clock::Watch;
use crate::manager::Stager;
use crate::status::{Progress, Status, Watcher};
use crate::touch::Touched;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Result};
use stead_model::transfer::Remaining;

/// Whoever has said nothing for so long is kept from it: how much time it needs is not known any better then.
const OLD_S: f64 = 0.5;

/// A transfer that is under way, or has ended. Dropped, it is stopped, such that it can be resumed.
pub struct Moving {
    id: i64,
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    cancel: Cancel,
    state: Mutex<Now>,
    ended: Condvar,
}

#[derive(Default)]
struct Now {
    /// What was said last, and when.
    progress: Option<(Progress, Watch)>,
    outcome: Option<std::result::Result<Status, Failed>>,
    /// Called once it has ended.
    then: Vec<Box<dyn FnOnce() + Send>>,
}

/// An error that several may ask for.
#[derive(Clone)]
struct Failed {
    kind: Kind,
    message: String,
    hint: Option<String>,
}

impl Failed {
    fn of(e: &Error) -> Failed {
        Failed { kind: e.kind(), message: e.to_string(), hint: e.hint().map(str::to_owned) }
    }

    fn again(&self) -> Error {
        let e = Error::new(self.kind, self.message.clone());
        match &self.hint {
            Some(hint) => e.with_hint(hint.clone()),
            None => e,
        }
    }
}

impl Shared {
    fn progress(&self) -> Option<Progress> {
        let (said, when) = self.now().progress?;
        Some(Progress { left: said.left.after(when.seconds().min(OLD_S)), ..said })
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, outcome: std::result::Result<Status, Failed>) {
        let then = {
            let mut now = self.now();
            if now.outcome.is_none() {
                now.outcome = Some(outcome);
            }
            std::mem::take(&mut now.then)
        };
        self.ended.notify_all();
        then.into_iter().for_each(|f| f());
    }
}

impl Watcher for Shared {
    fn progress(&self, progress: &Progress) {
        self.now().progress = Some((*progress, Watch::start()));
    }
}

/// Says that it has ended, however it did.
struct Ending(Arc<Shared>);

impl Drop for Ending {
    fn drop(&mut self) {
        if self.0.now().outcome.is_none() {
            self.0.end(Err(Failed::of(&Error::internal("the thread of a transfer panicked"))));
        }
    }
}

impl Moving {
    /// Begins, or resumes, a transfer that was taken.
    ///
    /// # Errors
    /// System errors, of beginning a thread. Those of the transfer come with its end.
    pub fn begin(stager: &Arc<Stager>, id: i64) -> Result<Moving> {
        Moving::of(stager, id, None)
    }

    /// The same, of one that has had its turn for these dataspaces.
    pub(crate) fn begin_held(stager: &Arc<Stager>, id: i64, held: Arc<Touched>) -> Result<Moving> {
        Moving::of(stager, id, Some(held))
    }

    fn of(stager: &Arc<Stager>, id: i64, held: Option<Arc<Touched>>) -> Result<Moving> {
        let (shared, stager) = (Arc::new(Shared::default()), stager.clone());
        let its = shared.clone();
        let thread = std::thread::Builder::new()
            .name(format!("stead-stage-{id}"))
            .spawn(move || {
                let ending = Ending(its);
                let shared = &ending.0;
                let (cancel, watcher) = (&shared.cancel, Some(&**shared as &dyn Watcher));
                let done = match &held {
                    Some(held) => stager.run_held(id, cancel, watcher, held),
                    None => stager.run(id, cancel, watcher),
                };
                shared.end(done.map_err(|e| Failed::of(&e)));
            })
            .map_err(|e| Error::io("start a thread", "this process", e))?;
        Ok(Moving { id, shared, thread: Mutex::new(Some(thread)) })
    }

    /// Its number in the journal.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// How far it is; none before it has said so for the first time. It says so now and then, and needs less time by what has passed since.
    pub fn progress(&self) -> Option<Progress> {
        self.shared.progress()
    }

    /// How long it still needs; none before that is known.
    pub(crate) fn left(&self) -> Option<Remaining> {
        self.progress().filter(|progress| progress.planned).map(|progress| progress.left)
    }

    /// True once it has ended, in whatever way.
    pub fn has_ended(&self) -> bool {
        self.shared.now().outcome.is_some()
    }

    /// Waits until it has ended, for no longer than this. Gives what came of it, each time that it is asked; none if it goes on.
    ///
    /// # Errors
    /// Those of [`Stager::run`].
    pub fn wait(&self, most: Option<Duration>) -> Result<Option<Status>> {
        let now = self.shared.now();
        let goes_on = |now: &mut Now| now.outcome.is_none();
        let now = match most {
            Some(most) => {
                let waited = self.shared.ended.wait_timeout_while(now, most, goes_on);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
            None => {
                let waited = self.shared.ended.wait_while(now, goes_on);
                waited.unwrap_or_else(PoisonError::into_inner)
            }
        };
        match &now.outcome {
            None => Ok(None),
            Some(Ok(status)) => Ok(Some(status.clone())),
            Some(Err(failed)) => Err(failed.again()),
        }
    }

    /// Asks it to stop, such that it can be resumed. It has stopped when it has ended.
    pub fn stop(&self) {
        self.shared.cancel.cancel();
    }

    /// Has this called once it has ended, at once if it has: by its thread, which is not to be kept waiting.
    pub fn then(&self, work: impl FnOnce() + Send + 'static) {
        let mut now = self.shared.now();
        if now.outcome.is_some() {
            drop(now);
            return work();
        }
        now.then.push(Box::new(work));
    }
}

impl Drop for Moving {
    fn drop(&mut self) {
        self.stop();
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // It has told how it ended.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Action;

    #[test]
    fn what_was_said_some_time_ago_needs_less_now() {
        let shared = Shared::default();
        assert_eq!(Shared::progress(&shared), None);
        let left = Remaining { seconds: 10.0, low: 9.0, high: 11.0 };
        let said = Progress {
            action: Action::Copy,
            files_done: 1,
            files: 2,
            bytes_done: 3,
            bytes: 4,
            planned: true,
            seconds: 5.0,
            moved: 3,
            left,
        };
        Watcher::progress(&shared, &said);
        std::thread::sleep(Duration::from_millis(20));
        let now = Shared::progress(&shared).unwrap();
        assert!(now.left.seconds <= 9.98 && now.left.seconds >= 10.0 - OLD_S, "{now:?}");
        assert_eq!(Progress { left, ..now }, said);
    }
}
