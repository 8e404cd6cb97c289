//! A fabric for ranks that work for as long as they need.

use crate::news::{Follow, News};
use crate::pass::Observer;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Result};
use stead_fabric::{Fabric, Rounds, Subset};

/// How often who waits looks whether the other one lives and nobody has stopped the run.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for a message as long as its sender lives: a share of a scan may take hours. Counts what it sends.
pub struct Patient<'a> {
    whole: &'a dyn Fabric,
    /// Those of the ranks that are meant, if not all are.
    some: Option<Subset<&'a dyn Fabric>>,
    cancel: Cancel,
    observer: Option<&'a dyn Observer>,
    sent: AtomicU64,
    /// What this rank has contributed is answered with this tag.
    answers: u32,
    /// To tell others that this rank is stopped while it waits for them; told once.
    news: Mutex<Option<Arc<News<'a>>>>,
    /// What the observer is shown while this rank waits for others that scan.
    follow: Mutex<Option<Follow<'a>>>,
    /// The run has its outcome: a wish to stop comes too late.
    decided: AtomicBool,
}

impl<'a> Patient<'a> {
    pub fn new(
        whole: &'a dyn Fabric,
        cancel: &Cancel,
        observer: Option<&'a dyn Observer>,
        answers: u32,
    ) -> Patient<'a> {
        Patient {
            whole,
            some: None,
            cancel: cancel.clone(),
            observer,
            sent: AtomicU64::new(0),
            answers,
            news: Mutex::default(),
            follow: Mutex::default(),
            decided: AtomicBool::new(false),
        }
    }

    /// Some of the ranks, this one among them, with rounds that are counted from a number on.
    pub fn among(&self, ranks: Vec<usize>, rounds: u64, answers: u32) -> Result<Patient<'a>> {
        let some = Some(Subset::for_a_while(self.whole, ranks, rounds)?);
        Ok(Patient { some, ..Patient::new(self.whole, &self.cancel, self.observer, answers) })
    }

    pub fn inner(&self) -> &dyn Fabric {
        match &self.some {
            Some(some) => some,
            None => self.whole,
        }
    }

    /// Who is stopped from now on while it waits, tells it by these news.
    pub fn tell_by(&self, news: Arc<News<'a>>) {
        *self.news.lock().unwrap_or_else(PoisonError::into_inner) = Some(news);
    }

    /// Shows the observer from now on, while this rank waits, how far others are.
    pub fn follow(&self, follow: Follow<'a>) {
        *self.follow.lock().unwrap_or_else(PoisonError::into_inner) = Some(follow);
    }

    /// Those that this rank followed have come to the end.
    pub fn followed(&self) {
        let follow = self.follow.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(follow), Some(observer)) = (follow, self.observer) {
            follow.end(observer);
        }
    }

    /// From now on nobody who waits looks whether the run is to stop.
    pub fn decided(&self) {
        self.decided.store(true, Ordering::Relaxed);
    }

    /// The fabric of all ranks as it is, for what is not waited for in this way.
    pub fn whole(&self) -> &'a dyn Fabric {
        self.whole
    }

    /// Bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Fabric for Patient<'_> {
    fn rank(&self) -> usize {
        self.inner().rank()
    }

    fn size(&self) -> usize {
        self.inner().size()
    }

    fn node_of(&self, rank: usize) -> usize {
        self.inner().node_of(rank)
    }

    fn deadline(&self) -> Duration {
        self.inner().deadline()
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.inner().send(to, tag, bytes)
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.inner().recv_within(from, tag, within)
    }

    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.inner().recv_any(tag, within)
    }

    fn alive(&self, rank: usize) -> Result<()> {
        self.inner().alive(rank)
    }

    fn ends(&self, rank: usize) -> bool {
        self.inner().ends(rank)
    }

    fn rounds(&self) -> &Rounds {
        self.inner().rounds()
    }

    fn forget(&self, tags: Range<u32>) {
        self.inner().forget(tags);
    }

    fn recv(&self, from: usize, tag: u32) -> Result<Vec<u8>> {
        let mut ended = false;
        loop {
            let within = if ended { Duration::ZERO } else { LOOK };
            if let Some(bytes) = self.inner().recv_within(from, tag, within)? {
                return Ok(bytes);
            }
            if ended {
                return Err(at_end(from).with_hint("all ranks must make the same calls"));
            }
            if let Some(observer) = self.observer {
                let mut follow = self.follow.lock().unwrap_or_else(PoisonError::into_inner);
                follow.iter_mut().for_each(|follow| follow.look(observer));
                drop(follow);
                observer.waits();
            }
            if self.cancel.is_cancelled() && !self.decided.load(Ordering::Relaxed) {
                let news = self.news.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(news) = news {
                    news.failed(&Error::cancelled());
                }
                // Who has contributed stays until it is told what came of it: the others count on it, and would wait for it
                // at the next step. There it contributes that it is stopped.
                if tag != self.answers {
                    return Err(Error::cancelled());
                }
            }
            self.inner().alive(from)?;
            // What it has sent before is here then.
            ended = self.inner().ends(from);
        }
    }
}

/// Why a rank is not waited for that is still there.
pub fn at_end(rank: usize) -> Error {
    Error::new(Kind::Peer, "the rank's program has come to its end").at_rank(rank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_fabric::Local;

    #[test]
    fn who_is_stopped_waits_for_answers_and_for_all_once_the_outcome_is_decided() {
        const ANSWERS: u32 = 8;
        let (group, cancel) = (Local::group(2), Cancel::new());
        let patient = Patient::new(&group[0], &cancel, None, ANSWERS);
        cancel.cancel();
        assert_eq!(patient.recv(1, 7).unwrap_err().kind(), Kind::Cancelled);
        std::thread::scope(|scope| {
            let late = |tag| {
                std::thread::sleep(3 * LOOK);
                group[1].send(0, tag, vec![1]).unwrap();
            };
            scope.spawn(move || late(ANSWERS));
            assert_eq!(patient.recv(1, ANSWERS).unwrap(), [1]);
            patient.decided();
            scope.spawn(move || late(7));
            assert_eq!(patient.recv(1, 7).unwrap(), [1]);
        });
    }
}
