//! Reader threads. They begin when there is something to read and end when there has been nothing for a while; they
//! sleep otherwise. Each keeps some blocks in flight, takes the oldest, and gives it to who waits for it. Blocks that are in
//! flight by themselves (io_uring) are its own; others are any reader's until one waits for them.

use crate::engine::{Admitted, Begun, Kept, Shared};
use crate::request::{Deliver, Piece};
use crate::sync::{self, fence};
use crate::window::{Next, Ticket};
use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stead_core::Result;
use stead_store::{Buffer, ReadQueue};

/// How long a reader without work stays.
pub(crate) const LINGER: Duration = Duration::from_millis(500);

pub(crate) struct Reader {
    shared: Arc<Shared>,
    queue: ReadQueue,
    /// In flight, in order, with the bytes that are read.
    flying: VecDeque<Begun>,
    /// Blocks that it is to read and has given to nobody yet.
    begun: Vec<u64>,
    /// A block of which requests get their bytes alone, one after the other.
    spare: Option<(u64, Vec<u8>)>,
    /// Since when it is counted among those that are away.
    away: Option<u64>,
}

/// What there is to do.
enum Todo {
    /// Begin to read these blocks, of which sessions cover these bytes, and use the memory of those.
    Begin(Vec<(u64, Range<u64>)>, Vec<Kept>),
    /// Wait for what is in flight.
    Land,
    /// Give these the memory that they waited for.
    Admit(Vec<Admitted>, Vec<Kept>),
    /// Give this request its bytes of this block, of which others want much if that is true.
    Alone(Ticket, Arc<dyn Deliver>, u64, bool),
    /// End. It is no longer counted among the readers.
    End,
}

impl Reader {
    pub(crate) fn run(shared: Arc<Shared>) {
        let mut reader = match Reader::new(&shared) {
            Ok(reader) => reader,
            Err(error) => return shared.lost(&error),
        };
        loop {
            // A source of somebody else may panic.
            match catch_unwind(AssertUnwindSafe(|| reader.step())) {
                Ok(true) => {}
                Ok(false) => return,
                Err(_) => return shared.fell(&reader.begun, reader.away.unwrap_or(u64::MAX)),
            }
        }
    }

    fn new(shared: &Arc<Shared>) -> Result<Reader> {
        let mut queue = ReadQueue::new_in(shared.io(), shared.segment().cloned())?;
        queue.share(shared.commons().cloned());
        let (flying, begun) = (VecDeque::new(), Vec::new());
        Ok(Reader { shared: shared.clone(), queue, flying, begun, spare: None, away: None })
    }

    /// Does what there is to do. False if that is nothing more.
    fn step(&mut self) -> bool {
        match self.next() {
            Todo::Begin(blocks, gone) => self.begin(blocks, gone),
            Todo::Land => {}
            Todo::Admit(requests, gone) => {
                drop(gone);
                self.shared.admitted(requests);
            }
            Todo::Alone(ticket, request, block, much) => {
                if self.alone(&*request, block, much) {
                    self.shared.answered(ticket, &*request);
                }
            }
            Todo::End => return false,
        }
        self.land();
        true
    }

    /// What to do next. Sleeps while there is nothing.
    fn next(&mut self) -> Todo {
        let shared = self.shared.clone();
        let own = self.reads_by_itself();
        // Dropped after the lock: memory may be others' too.
        let mut gone = Vec::new();
        let mut inner = shared.lock();
        if let Some(round) = self.away.take() {
            inner.returns(round);
        }
        // The time without work is over.
        let mut late = false;
        // It has said that all room is taken, and has looked again since.
        let mut starves = false;
        let todo = loop {
            let mut begun = Vec::new();
            // What it has in flight comes first; others go on with the rest.
            let surplus = shared.too_many(&inner);
            if surplus && self.flying.is_empty() && gone.is_empty() && !starves {
                inner.readers -= 1;
                break Todo::End;
            }
            let admitted = shared.admit(&mut inner, &mut gone);
            if !admitted.is_empty() {
                break Todo::Admit(admitted, std::mem::take(&mut gone));
            }
            let mut full = false;
            let room = if surplus {
                0
            } else if own {
                shared.depth().saturating_sub(self.flying.len())
            } else {
                inner.room_to_begin(shared.depth(), shared.readers())
            };
            while begun.len() < room {
                match shared.take(&mut inner) {
                    Next::Read(block, room) => {
                        begun.push((block, inner.window.covered(block)));
                        gone.extend(room);
                    }
                    Next::Full => {
                        full = true;
                        break;
                    }
                    Next::Idle => break,
                }
            }
            if !begun.is_empty() {
                break Todo::Begin(begun, std::mem::take(&mut gone));
            }
            if !self.flying.is_empty() || !inner.away.begun.is_empty() {
                break Todo::Land;
            }
            if !gone.is_empty() {
                drop(inner);
                gone.clear();
                inner = shared.lock();
                continue;
            }
            // It goes on when answers are taken.
            let waits = full || inner.untaken.is_late();
            if waits && !starves {
                // Before it looks for the last time: whoever drops a view after that wakes it.
                inner.starving += 1;
                starves = true;
                shared.starved.store(true, Ordering::SeqCst);
                drop(inner);
                fence(Ordering::SeqCst);
                if full {
                    shared.relieve();
                }
                inner = shared.lock();
                continue;
            }
            if full && let Some((ticket, request, block, much)) = shared.alone(&mut inner, late) {
                break Todo::Alone(ticket, request, block, much);
            }
            if !full {
                self.spare = None;
            }
            if !waits && (late || (shared.is_closed() && inner.waiting.is_empty())) {
                inner.readers -= 1;
                if shared.is_closed() {
                    // Others may have looked while this one answered the last request.
                    shared.work.notify_all();
                }
                break Todo::End;
            }
            inner.asleep += 1;
            shared.pause();
            (inner, late) = sync::wait_for(&shared.work, &shared.inner, inner, LINGER);
            inner.asleep -= 1;
            inner.called = inner.called.saturating_sub(1).min(inner.asleep);
            if starves {
                starves = false;
                shared.fed(&mut inner);
            }
        };
        if starves {
            shared.fed(&mut inner);
        }
        if matches!(todo, Todo::End) {
            shared.ends(&mut inner);
        } else {
            self.away = Some(shared.leaves(&mut inner));
        }
        todo
    }

    /// True if what it submits is read whether it waits for it or not.
    fn reads_by_itself(&mut self) -> bool {
        !self.shared.maps() && self.queue.reads_by_itself(self.shared.source())
    }

    fn begin(&mut self, blocks: Vec<(u64, Range<u64>)>, gone: Vec<Kept>) {
        self.spare = None;
        self.begun.extend(blocks.iter().map(|(block, _)| *block));
        let mut memory = Vec::new();
        for kept in gone {
            match kept {
                Kept::Block(block) => {
                    memory.extend(Arc::into_inner(block).filter(Buffer::can_be_used_again));
                }
                Kept::Cached(block) => {
                    if let Some(lender) = self.shared.lender() {
                        let (from, len) = self.shared.whole(block);
                        lender.release(from, len);
                    }
                }
            }
        }
        // What nothing is read into goes before anything is.
        memory.truncate(blocks.len());
        let own = self.reads_by_itself();
        let mut others = Vec::new();
        for (block, covered) in blocks {
            let (from, len) = self.shared.whole(block);
            let memory = memory.pop();
            if let Some(lender) = self.shared.lender() {
                if self.shared.is_cached(block) {
                    self.shared.found(block);
                    self.given(block);
                    continue;
                }
                // Blocks in memory are whole, for whoever comes later.
                let end = covered.end.min(from + len as u64);
                let from = covered.start.min(end);
                let len = (end - from) as usize;
                if self.shared.choice().whole {
                    lender.advise(from, len);
                } else {
                    lender.ask(from, len);
                }
                others.push(Begun { block, from, len, memory });
            } else if own {
                self.submit(Begun { block, from, len, memory });
            } else {
                self.queue.advise(self.shared.source(), from, len);
                others.push(Begun { block, from, len, memory });
            }
        }
        others.iter().for_each(|begun| self.given(begun.block));
        let count =
            if own { usize::from(self.flying.len() >= self.shared.depth()) } else { others.len() };
        self.shared.put_begun(others);
        for _ in 0..count {
            self.shared.waits();
        }
    }

    fn submit(&mut self, mut begun: Begun) {
        if let Some(memory) = begun.memory.take() {
            // Memory of its own: there is nothing to check.
            let _ = self.queue.recycle(memory);
        }
        let Begun { block, from, len, .. } = begun;
        match self.queue.submit(block, self.shared.source(), from, len) {
            Ok(()) => self.flying.push_back(begun),
            Err(_) => {
                self.queue.free_spare();
                self.shared.failed(block);
                self.given(block);
            }
        }
    }

    /// A block that it has begun was given to those who waited for it.
    fn given(&mut self, block: u64) {
        self.begun.retain(|b| *b != block);
    }

    /// Gives a request its bytes of a block. True if it is answered.
    fn alone(&mut self, request: &dyn Deliver, block: u64, much: bool) -> bool {
        let (from, len) = self.shared.whole(block);
        if much && self.spare.as_ref().is_none_or(|(there, _)| *there != block) {
            let before = self.spare.take().map(|(_, bytes)| bytes);
            let mut bytes = before.unwrap_or_default();
            let room = len.saturating_sub(bytes.len());
            if bytes.try_reserve_exact(room).is_ok() {
                bytes.resize(len, 0);
                let read = self.shared.read_at(from, &mut bytes);
                self.spare = read.is_ok().then_some((block, bytes));
            }
        }
        match &self.spare {
            Some((there, bytes)) if *there == block => {
                let (offset, len) = request.range();
                let part = self.shared.overlap(block, offset, len);
                let (start, end) = ((part.start - from) as usize, (part.end - from) as usize);
                let piece = Piece::Bytes(bytes.get(start..end).unwrap_or_default());
                request.deliver(&self.shared, part.start, piece)
            }
            _ => self.shared.read_for(request, block),
        }
    }

    /// Waits for one: the oldest, or whichever comes first where reads are in flight by themselves, so that nobody waits for
    /// bytes that somebody else asked for.
    fn land(&mut self) {
        if self.flying.is_empty()
            && let Some(begun) = self.shared.take_begun()
        {
            self.begun.push(begun.block);
            if self.shared.maps() { self.flying.push_back(begun) } else { self.submit(begun) }
        }
        if let Some(lender) = self.shared.lender() {
            let Some(begun) = self.flying.pop_front() else { return };
            self.shared.bring(lender, &begun);
            self.given(begun.block);
            return;
        }
        if self.flying.is_empty() {
            return;
        }
        let (index, done) = loop {
            match self.queue.next_landed() {
                // What is not among these was given up, as the system had failed to say how it went.
                Ok(Some((tag, done))) => {
                    if let Some(index) = self.flying.iter().position(|b| b.block == tag) {
                        break (index, done.ok());
                    }
                }
                Ok(None) | Err(_) => break (0, None),
            }
        };
        let Some(Begun { block, len, .. }) = self.flying.remove(index) else { return };
        // Memory for blocks that are counted as being read, and no more.
        self.queue.free_spare();
        match done {
            Some(buffer) => {
                // What others have read says nothing of the device.
                let fetched = if buffer.is_others() { 0 } else { len };
                if fetched > 0 {
                    self.shared.landed(len);
                }
                let kept = Kept::Block(Arc::new(buffer));
                self.shared.arrived(block, &kept, fetched);
                drop(kept);
            }
            None => self.shared.failed(block),
        }
        self.given(block);
        // There is room now.
        self.shared.let_go();
    }
}

#[cfg(test)]
#[path = "reader_tests.rs"]
mod tests;
