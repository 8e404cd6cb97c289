//! States of the quote automaton handed from extent to extent, in file order, between workers.

use crate::delimited::syntax::{State, Transition};
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use stead_core::{Cancel, Error, Result};

/// The chain of a scan. Every extent is published once; memory is that of the extents in flight.
#[derive(Debug, Default)]
pub struct Chain {
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Inner {
    /// All extents below are published.
    known: u64,
    /// The state at the end of extent `known - 1`.
    state: State,
    /// What all extents below `known` do together.
    total: Transition,
    /// The same of each run of them, from an extent whose state was known to the next one.
    each: Vec<Transition>,
    /// Published, but something before them is not.
    pending: BTreeMap<u64, Link>,
    /// States at the start of extents that somebody will ask for.
    starts: BTreeMap<u64, State>,
    /// The lowest extent with which a worker stopped. Those after it are no longer waited for, those before it
    /// are: their errors come first.
    failed: Option<u64>,
}

/// What is known of one extent.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    /// What its bytes do.
    pub transition: Transition,
    /// The state in which it begins, where that does not follow from the extent before it: the first extent of a file does
    /// so, and the first one of bytes that a rank holds.
    pub begins: Option<State>,
    /// True if its start will be asked for.
    pub wanted: bool,
}

impl Chain {
    /// A chain that begins with extent 0.
    #[cfg(test)]
    pub fn new() -> Self {
        Self::default()
    }

    /// A chain whose first extent begins in this state, if it is not the first one of its file.
    pub fn after(state: State) -> Self {
        Chain { inner: Mutex::new(Inner { state, ..Inner::default() }), ..Chain::default() }
    }

    /// What all extents that were published without a gap do together.
    pub fn total(&self) -> Transition {
        self.lock().total
    }

    /// What runs of extents do: each begins with one whose [`Link::begins`] is set, as the first one must be.
    pub fn each(&self) -> Vec<Transition> {
        self.lock().each.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code that can panic runs under the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what extent `i` does.
    pub fn publish(&self, i: u64, link: Link) {
        let mut inner = self.lock();
        inner.pending.insert(i, link);
        let before = inner.known;
        loop {
            let next = inner.known;
            let Some(link) = inner.pending.remove(&next) else { break };
            let start = link.begins.unwrap_or(inner.state);
            if let Some(state) = link.begins {
                inner.total = Transition::to(state);
                inner.each.push(Transition::default());
            }
            inner.total = inner.total.then(&link.transition);
            if let Some(last) = inner.each.last_mut() {
                *last = last.then(&link.transition);
            }
            if link.wanted {
                inner.starts.insert(next, start);
            }
            inner.state = link.transition.apply(start);
            inner.known += 1;
        }
        if inner.known > before {
            self.changed.notify_all();
        }
    }

    /// The state at the start of extent `i`, which is published. Waits for those before it, but `None` as soon
    /// as anything has changed, so that the caller can publish what came in meanwhile, and ask again.
    ///
    /// Nobody waits for ever: of the extents that are not published, the owner of the first one waits for none,
    /// because all before it are published, and workers take extents in ascending order.
    ///
    /// # Errors
    /// `Cancelled` if the scan was, or if another worker has failed.
    pub fn start(&self, i: u64, cancel: &Cancel) -> Result<Option<State>> {
        let mut inner = self.lock();
        for last in [false, true] {
            if let Some(state) = inner.starts.remove(&i) {
                return Ok(Some(state));
            }
            if inner.failed.is_some_and(|f| f <= i) {
                // The worker that failed says why.
                return Err(Error::cancelled());
            }
            cancel.check()?;
            if last {
                break;
            }
            inner = self
                .changed
                .wait_timeout(inner, super::CANCEL_CHECK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        Ok(None)
    }

    /// Lets all who wait for extents after `i`, and all who will, give up.
    pub fn fail(&self, i: u64) {
        let mut inner = self.lock();
        inner.failed = Some(inner.failed.map_or(i, |f| f.min(i)));
        drop(inner);
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delimited::syntax::Syntax;

    const CSV: Syntax = Syntax { delimiter: b',', quote: Some(b'"'), comment: None };

    fn link(text: &[u8], fresh: bool) -> Link {
        let begins = fresh.then_some(State::Record);
        Link { transition: CSV.transition(text), begins, wanted: true }
    }

    fn wait(c: &Chain, i: u64) -> std::result::Result<State, stead_core::Kind> {
        loop {
            if let Some(state) = c.start(i, &Cancel::new()).map_err(|e| e.kind())? {
                return Ok(state);
            }
        }
    }

    #[test]
    fn states_pass_through_extents_published_in_any_order() {
        let c = Chain::new();
        c.publish(2, link(b"\n", false));
        c.publish(3, link(b"x", true));
        c.publish(1, link(b"b", false));
        c.publish(0, link(b"a,\"", true));
        let cancel = Cancel::new();
        let states: Vec<_> = (0..4).map(|i| c.start(i, &cancel).unwrap().unwrap()).collect();
        assert_eq!(states, [State::Record, State::Quoted, State::Quoted, State::Record]);
    }

    #[test]
    fn a_chain_begins_where_another_one_ends() {
        let (first, second) = (Chain::new(), Chain::after(State::Quoted));
        first.publish(0, link(b"a,", true));
        first.publish(1, link(b"\"b\n", false));
        assert_eq!(first.total().apply(State::Plain), State::Quoted);
        second.publish(0, link(b"c\"\n", false));
        assert_eq!(wait(&second, 0), Ok(State::Quoted));
        assert_eq!(second.total().apply(State::Quoted), State::Record);
        assert_eq!(second.total().apply(State::Plain), State::Record);
        second.publish(1, link(b"\"", true));
        assert_eq!(second.total().apply(State::Record), State::Quoted);
        assert_eq!(second.total().apply(State::Quoted), State::Quoted);
    }

    #[test]
    fn runs_that_begin_in_known_states_are_told_apart() {
        let c = Chain::new();
        c.publish(0, link(b"a\n", true));
        c.publish(2, link(b"\"b", false));
        c.publish(1, Link { begins: Some(State::Quoted), ..link(b"x\",", false) });
        assert_eq!((wait(&c, 1), wait(&c, 2)), (Ok(State::Quoted), Ok(State::Field)));
        let each = c.each();
        assert_eq!(each.len(), 2);
        assert_eq!(each[0].apply(State::Quoted), State::Quoted);
        assert_eq!(each[1].apply(State::Quoted), State::Quoted);
        assert_eq!(each[1].apply(State::Plain), c.total().apply(State::Plain));
        assert_eq!(each[0].apply(State::Plain), State::Record);
    }

    #[test]
    fn nobody_waits_for_a_worker_that_failed() {
        let c = Chain::new();
        c.publish(1, link(b"b", false));
        std::thread::scope(|s| {
            let waiting = s.spawn(|| wait(&c, 1));
            c.fail(0);
            assert_eq!(waiting.join().unwrap(), Err(stead_core::Kind::Cancelled));
        });
        let cancel = Cancel::new();
        cancel.cancel();
        assert!(Chain::new().start(0, &cancel).is_err());
    }

    #[test]
    fn extents_before_a_failure_go_on() {
        let c = Chain::new();
        c.fail(2);
        std::thread::scope(|s| {
            let waiting = s.spawn(|| wait(&c, 1));
            c.publish(1, link(b"b", false));
            c.publish(0, link(b"a,\"", true));
            assert_eq!(waiting.join().unwrap(), Ok(State::Quoted));
        });
    }
}
