//! Requests: what is asked for, who gets what has come, and what becomes of those that nobody answers.

use super::{Inner, Kept, Shared, Waiting};
use crate::clock;
use crate::deadline;
use crate::process::inherited;
use crate::request::{Deliver, Finish, LATE, Pending, Piece, Request, Wait};
use crate::room::Room;
use crate::sync::MutexGuard;
use crate::window::Ticket;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};

impl Shared {
    /// Asks for bytes that lie within the file. `finish` makes the answer when they are there.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        deadline: Option<Duration>,
        mut finish: impl Finish<T> + 'static,
    ) -> Pending<T> {
        let blocks = self.blocks(offset, len);
        if len == 0 || self.find(&blocks, |block| finish.wants(&self.overlap(block, offset, len))) {
            self.cached_ones.count();
            return Pending::there(self, finish);
        }
        self.others.fetch_add(1, Ordering::Relaxed);
        if self.is_inherited() {
            return Pending::Ready(Some(Err(inherited(self.source.path()))));
        }
        let mut inner = self.lock();
        inner.tickets += 1;
        let ticket = inner.tickets;
        let (mut there, mut gone) = (Vec::new(), Vec::new());
        let mut missing = 0;
        let count = blocks.end - blocks.start;
        let late = self.claim_for(&mut inner, &mut finish, (count, len), &mut gone).is_err();
        for block in blocks.filter(|b| !late && !self.was_cached(*b)) {
            let part = self.overlap(block, offset, len);
            if !finish.wants(&part) {
                continue;
            }
            match inner.window.ask(ticket, block, part.end - part.start) {
                Some(Kept::Cached(_)) => {}
                Some(Kept::Block(bytes)) => there.push((block, bytes.clone())),
                None => missing += 1,
            }
        }
        if late {
            missing = LATE;
            inner.untaken.be_late(ticket);
        }
        self.at_once.fetch_add(u64::from(missing == 0), Ordering::Relaxed);
        if missing == 0 && there.is_empty() {
            // What was consumed may have made room for more to be read ahead.
            if inner.window.has_work() {
                // This one needs nobody.
                let _ = self.call_readers(inner);
            }
            return Pending::there(self, finish);
        }
        let claims = finish.claims();
        let request = Arc::new(Request::new(offset, len, missing + there.len(), Box::new(finish)));
        if self.holds_blocks() {
            let weak: Weak<Request<T>> = Arc::downgrade(&request);
            inner.untaken.insert(ticket, weak);
            if let ([(block, _)], true) = (&*there, missing == 0 && claims) {
                inner.untaken.pin(ticket, *block, len as u64);
            }
        }
        let mut watched = Ok(());
        if missing > 0 {
            let until = clock::after(deadline.unwrap_or(self.deadline));
            inner.until.insert((until, ticket));
            inner.waiting.insert(
                ticket,
                Waiting { request: request.clone(), until, urged: None, looked: None },
            );
            watched = self.look_after(&mut inner, until);
        }
        // Nobody is to read for a request that nobody would end at its deadline. The lock is given up either way.
        if let Err(error) = watched.and_then(|()| self.call_readers(inner)) {
            self.cancel(ticket);
            request.fail(self, error);
        }
        drop(gone);
        for (block, bytes) in there {
            let answered = self.give(&*request, block, &Kept::Block(bytes));
            self.let_go();
            if answered && missing > 0 {
                self.answered(ticket, &*request);
            }
        }
        Pending::Waiting(Wait { shared: self.clone(), request, ticket })
    }

    /// True after a fork: the readers are threads of the other process, and so may be whoever has the lock.
    pub(crate) fn is_inherited(&self) -> bool {
        self.process != std::process::id()
    }

    /// Has a thread look after a deadline, unless it looks sooner anyway.
    ///
    /// # Errors
    /// `Io` if there can be no such thread.
    pub(super) fn look_after(self: &Arc<Self>, inner: &mut Inner, until: Instant) -> Result<()> {
        if inner.watched.is_none_or(|at| until < at) {
            deadline::watch(self, until, inner.watched).map_err(|e| {
                Error::io("start a thread for the deadlines of", self.source.path(), e)
            })?;
            inner.watched = Some(until);
        }
        Ok(())
    }

    /// True if all these blocks are in the page cache. Looks at those that nothing is known about.
    fn find(&self, blocks: &Range<u64>, wanted: impl Fn(u64) -> bool) -> bool {
        if !self.maps() {
            return false;
        }
        let mut unknown: Vec<u64> =
            blocks.clone().filter(|b| !self.was_cached(*b) && wanted(*b)).collect();
        if unknown.is_empty() {
            return true;
        }
        if self.is_inherited() {
            return false;
        }
        let all = unknown.len();
        let inner = self.lock();
        unknown.retain(|b| inner.window.unknown(*b));
        drop(inner);
        let found = unknown.iter().filter(|b| self.is_cached(**b)).count();
        found == all
    }

    /// Gives a block to a request. True if the request is answered.
    pub(super) fn give(self: &Arc<Self>, request: &dyn Deliver, block: u64, kept: &Kept) -> bool {
        let (offset, len) = request.range();
        let part = self.overlap(block, offset, len);
        match kept {
            Kept::Cached(_) => request.deliver(self, part.start, Piece::Cached),
            Kept::Block(bytes) => {
                let start = (part.start - block * self.choice.block) as usize;
                let len = (part.end - part.start) as usize;
                request.deliver(self, part.start, Piece::Block(bytes, start, len))
            }
        }
    }

    /// The requests of tickets; those that wait for more blocks stay.
    fn requests(inner: &Inner, tickets: &[Ticket]) -> Vec<(Ticket, Arc<dyn Deliver>)> {
        let request = |t: &Ticket| inner.waiting.get(t).map(|w| (*t, w.request.clone()));
        tickets.iter().filter_map(request).collect()
    }

    /// Readers have fetched a block: so many bytes, or none if another process did.
    pub(crate) fn arrived(self: &Arc<Self>, block: u64, kept: &Kept, bytes: usize) {
        self.set_broken(block, false);
        let mut inner = self.lock();
        inner.blocks += u64::from(bytes > 0);
        inner.bytes += bytes as u64;
        let tickets = inner.window.arrived(block, kept.clone());
        let requests = Self::requests(&inner, &tickets);
        drop(inner);
        self.answer(requests, |request| self.give(request, block, kept));
    }

    /// Those who wait with these tickets get an error.
    pub(super) fn fail(
        self: &Arc<Self>,
        mut inner: MutexGuard<'_, Inner>,
        tickets: &[Ticket],
        error: &Error,
    ) {
        let requests = Self::requests(&inner, tickets);
        for (ticket, _) in &requests {
            self.drop_ticket(&mut inner, *ticket);
        }
        drop(inner);
        for (_, request) in requests {
            let error = Error::new(error.kind(), error.message().to_owned());
            request.fail(self, error.at_path(self.source.path()).at_offset(request.range().0));
        }
    }

    /// Reads what could not be had as a block from the source, which may be somebody else's and panic.
    pub(crate) fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let read = AssertUnwindSafe(|| match &self.lender {
            // The page cache has failed to give them, or others beside them.
            Some(lender) => lender.read_beside(offset, bytes),
            None => self.source.read_at(offset, bytes),
        });
        catch_unwind(read).unwrap_or_else(|_| {
            let error = Error::internal("the source of these bytes ended by a defect");
            Err(error.at_path(self.source.path()).at_offset(offset))
        })
    }

    /// A block is in the page cache without having been read.
    pub(crate) fn found(self: &Arc<Self>, block: u64) {
        let mut inner = self.lock();
        let tickets = inner.window.done_with(block);
        let requests = Self::requests(&inner, &tickets);
        drop(inner);
        self.answer(requests, |request| self.give(request, block, &Kept::Cached(block)));
    }

    /// A block could not be read as a whole: each request gets its own bytes, or its own error.
    pub(crate) fn failed(self: &Arc<Self>, block: u64) {
        self.set_broken(block, true);
        self.answer_alone(block);
    }

    /// Each request for a block gets its own bytes, or its own error.
    pub(super) fn answer_alone(self: &Arc<Self>, block: u64) {
        let mut inner = self.lock();
        let tickets = inner.window.done_with(block);
        let requests = Self::requests(&inner, &tickets);
        drop(inner);
        self.answer(requests, |request| self.read_for(request, block));
    }

    /// Reads for one request its bytes of a block. True if the request is answered.
    pub(crate) fn read_for(self: &Arc<Self>, request: &dyn Deliver, block: u64) -> bool {
        let (offset, len) = request.range();
        let part = self.overlap(block, offset, len);
        let bytes = Room::new((part.end - part.start) as usize).and_then(|mut bytes| {
            match self.read_at(part.start, &mut bytes) {
                // Some of them may not be needed.
                Err(error) if error.kind() == Kind::Io => {
                    self.read_needed(request, &part, &mut bytes, error)?;
                }
                read => read?,
            }
            Ok(bytes)
        });
        match bytes {
            Ok(bytes) => request.deliver(self, part.start, Piece::Bytes(&bytes)),
            Err(error) => {
                request.fail(self, error);
                true
            }
        }
    }

    /// Reads those bytes of a part that a request needs, if these are not all of them.
    fn read_needed(
        &self,
        request: &dyn Deliver,
        part: &Range<u64>,
        bytes: &mut [u8],
        error: Error,
    ) -> Result<()> {
        let mut left = part.clone();
        while left.start < left.end {
            let needed = request.needs(&left);
            if needed == *part {
                return Err(error);
            }
            let (from, to) = (needed.start - part.start, needed.end - part.start);
            // Within `bytes`, as `part` is.
            if let Some(target) = bytes.get_mut(from as usize..to as usize) {
                self.read_at(needed.start, target)?;
            }
            left.start = needed.end;
        }
        Ok(())
    }

    /// Does something with requests that says which of them are answered, and forgets these.
    fn answer(
        &self,
        requests: Vec<(Ticket, Arc<dyn Deliver>)>,
        mut give: impl FnMut(&dyn Deliver) -> bool,
    ) {
        for (ticket, request) in requests {
            if give(&*request) {
                self.answered(ticket, &*request);
            }
        }
    }

    /// A request is answered, or nobody wants it.
    pub(crate) fn answered(&self, ticket: Ticket, request: &dyn Deliver) {
        let (taken, pins) = (request.taken(), request.pins());
        let (offset, len) = request.range();
        let mut inner = self.lock();
        if taken {
            inner.untaken.remove(ticket);
        } else if pins {
            inner.untaken.pin(ticket, offset / self.choice.block, len as u64);
        }
        self.drop_ticket(&mut inner, ticket);
    }

    fn drop_ticket(&self, inner: &mut Inner, ticket: Ticket) {
        if let Some(waiting) = inner.waiting.remove(&ticket) {
            inner.until.remove(&(waiting.until, ticket));
            inner.untaken.waits_no_more(ticket, waiting.urged);
            let (offset, len) = waiting.request.range();
            for block in self.blocks(offset, len) {
                inner.window.cancel(ticket, block);
            }
        }
    }

    /// A request is not wanted any more, or its answer was taken.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let mut inner = self.lock();
        inner.untaken.remove(ticket);
        self.drop_ticket(&mut inner, ticket);
        drop(inner);
        // It may be the turn of another one.
        self.let_go();
    }

    /// Fails the requests that are over, has more readers if those that there are do not come back, and has somebody look
    /// after the others.
    pub(crate) fn expire(self: &Arc<Self>, now: Instant) {
        let mut inner = self.lock();
        inner.watched = None;
        let answers = inner.untaken.len() > inner.waiting.len();
        let mut over = Vec::new();
        while let Some((until, ticket)) = inner.until.first().copied().filter(|(u, _)| *u <= now) {
            over.extend(inner.waiting.get(&ticket).map(|w| (ticket, w.request.clone())));
            self.drop_ticket(&mut inner, ticket);
            // If it was not known any more.
            inner.until.remove(&(until, ticket));
        }
        if let Some((until, _)) = inner.until.first().copied() {
            // The thread that is here looks at once for what is due next.
            let _ = self.look_after(&mut inner, until);
        }
        let more = self.look_for_readers(&mut inner, now);
        // No reader may have come to it within a short deadline.
        let held = self.starved.load(Ordering::Relaxed) || inner.window.is_lent();
        let lent = inner.window.counted();
        drop(inner);
        self.stand_in(more);
        for (ticket, request) in over {
            let (offset, len) = request.range();
            let message = format!("{len} bytes did not come in time");
            let error =
                Error::new(Kind::Timeout, message).at_path(self.source.path()).at_offset(offset);
            let error = if held && answers {
                error.with_hint(
                    "answers that nobody has taken fill the memory; take or drop some, or allow more",
                )
            } else if held {
                error.with_hint(format!(
                    "views hold all {lent} blocks of the budget; drop some, or allow more memory"
                ))
            } else {
                error.with_hint("the device is slow or gone; a longer deadline may help")
            };
            request.fail(self, error);
            self.answered(ticket, &*request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finish::AsView;
    use crate::options::Options;
    use crate::registry;
    use stead_store::MemorySource;

    #[test]
    fn what_a_fork_inherited_is_refused() {
        let source = Arc::new(MemorySource::new("m", vec![7; 100]));
        let new = crate::engine::New::prepare(source, &Options::default()).unwrap();
        let mut shared = Shared::new(new);
        Arc::get_mut(&mut shared).unwrap().process ^= 1;
        let Pending::Ready(Some(Err(error))) = shared.ask(0, 10, None, AsView::new(0, 10)) else {
            panic!("it was asked")
        };
        assert_eq!(error.kind(), Kind::Usage);
        registry::close(&shared);
    }

    #[test]
    fn a_block_that_cannot_be_had_is_not_taken_to_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7; 3 << 12]).unwrap();
        let source = Arc::new(stead_store::FileSource::open(&path).unwrap());
        let options = Options { block: Some(4096), ahead: false, ..Options::default() };
        let shared = registry::open_source(source, &options).unwrap();
        assert!(shared.maps(), "temporary files are expected on a local file system");
        let ask = || shared.ask(4096, 10, None, AsView::new(4096, 10));
        assert!(matches!(ask(), Pending::Ready(_)) && shared.was_cached(1));
        shared.failed(1);
        assert!(!shared.was_cached(1));
        assert!(matches!(ask(), Pending::Waiting(_)));
        assert_eq!(crate::request::Read(ask()).wait().unwrap()[..], [7; 10]);
        registry::close(&shared);
    }
}
