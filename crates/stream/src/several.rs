//! Several nodes that are asked at the same time, as many as a few threads can.

use crate::options::Patience;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use stead_core::{Cancel, Error, Result};

/// Nodes that are asked at the same time.
pub(crate) const AT_ONCE: usize = 16;

/// What becomes of questions.
struct Done<T> {
    left: usize,
    answers: Vec<Option<Result<T>>>,
}

fn locked<T>(done: &Mutex<Done<T>>) -> MutexGuard<'_, Done<T>> {
    done.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends questions that nobody waits for any more.
struct Over<'c>(&'c Cancel);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Asks so many, some at the same time, and does something else `meanwhile`. Who has not answered in time has none.
pub(crate) fn each<T: Send, R>(
    count: usize,
    patience: &Patience,
    ask: impl Fn(usize, &Patience) -> Result<T> + Sync,
    meanwhile: impl FnOnce() -> R,
) -> Result<(R, Vec<Option<Result<T>>>)> {
    let (next, ending) = (AtomicUsize::new(0), Cancel::new());
    let theirs = Patience::until(patience.end(), &ending.clone().into());
    let answers = (0..count).map(|_| None).collect();
    let (done, changed) = (Mutex::new(Done { left: count, answers }), Condvar::new());
    let work = || {
        // Who was not asked in time has not answered: nobody takes a connection for that.
        while !ending.is_cancelled() && !theirs.left().is_zero() {
            let which = next.fetch_add(1, Ordering::Relaxed);
            if which >= count {
                break;
            }
            let answer = ask(which, &theirs);
            let mut done = locked(&done);
            if let Some(place) = done.answers.get_mut(which) {
                *place = Some(answer);
            }
            done.left = done.left.saturating_sub(1);
            changed.notify_all();
        }
    };
    std::thread::scope(|scope| {
        let _over = Over(&ending);
        for _ in 0..count.min(AT_ONCE) {
            let thread = std::thread::Builder::new().name("stead-looks".to_owned());
            let begun = thread.spawn_scoped(scope, work);
            begun.map_err(|e| Error::io("start a thread for", "streams of other nodes", e))?;
        }
        let mine = meanwhile();
        let mut done = locked(&done);
        while done.left > 0 && !patience.left().is_zero() {
            patience.check()?;
            let waited = changed.wait_timeout(done, patience.share());
            done = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok((mine, std::mem::take(&mut done.answers)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Stop;
    use std::time::Duration;
    use stead_core::Kind;

    #[test]
    fn who_does_not_answer_in_time_keeps_nobody_from_the_others() {
        let ask = |which: usize, patience: &Patience| -> Result<usize> {
            if which % 7 == 3 {
                loop {
                    patience.check()?;
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            if which % 7 == 2 { Err(Error::limit("no")) } else { Ok(which) }
        };
        let mut time = Duration::from_millis(100);
        let answers = loop {
            let patience = Patience::new(time, Stop::default());
            let (mine, answers) = each(14, &patience, ask, || "mine").unwrap();
            assert_eq!((mine, answers.len()), ("mine", 14));
            // The others have time enough.
            if answers.iter().flatten().count() == 12 {
                break answers;
            }
            assert!(time < Duration::from_secs(100), "{answers:?}");
            time *= 2;
        };
        for (which, answer) in answers.iter().enumerate() {
            match which % 7 {
                2 => assert!(matches!(answer, Some(Err(e)) if e.kind() == Kind::Limit)),
                3 => assert!(answer.is_none()),
                _ => assert!(matches!(answer, Some(Ok(said)) if *said == which), "{which}"),
            }
        }
        // Whoever is told to stop does so.
        let stop = Cancel::new();
        stop.cancel();
        let patience = Patience::new(Duration::from_secs(3600), stop.into());
        let ask = |_: usize, patience: &Patience| -> Result<()> {
            loop {
                patience.check()?;
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        assert_eq!(each(2, &patience, ask, || ()).unwrap_err().kind(), Kind::Cancelled);
    }
}
