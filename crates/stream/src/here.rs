//! The writers of this node, as a reader has them: it looks at their memory where it lies.

use crate::board::{self, Board, Elsewhere, Group, Guard, Next, Standing, State, Taken};
use crate::clock;
use crate::head;
use crate::home::{self, Found, Home};
use crate::index::{BlockEntry, Definitions, Place};
use crate::memory::{self, is_alive, me};
use crate::noted::{self, Got, Notes};
use crate::options::{Read, Start};
use crate::party::{Party, Seen};
use crate::report::MemoryReport;
use crate::source::{Coming, Fetch, Said, Source, Told, Which};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_store::Folder;
use stead_store::arena::{Neighbours, View};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Here {
    party: Party,
    seat: board::Reader,
    neighbours: Neighbours,
    folder: Folder,
    /// Whom it stands for has ended without a word.
    is_lost: AtomicBool,
    /// What it is done with while somebody keeps the lock, which it says when it has that next.
    unheard: Mutex<Vec<Done>>,
    /// What it has got, from its first get on; `None` if there is no room for that.
    notes: OnceLock<Option<Notes>>,
    /// Definitions of each writer, as they were last.
    known: Mutex<HashMap<usize, (u64, Arc<Definitions>)>>,
}

/// What a writer says of a step, in bytes.
pub(crate) struct Raw {
    head: View,
    /// Where its definitions are, and what they hash to.
    place: Place,
    pub(crate) hash: u64,
}

impl Raw {
    /// Its blocks.
    pub(crate) fn blocks(&self) -> &[u8] {
        head::decode(&self.head).map_or(&[], |(_, _, blocks)| blocks)
    }
}

/// A reader is done with something.
#[derive(Debug, Clone, Copy)]
enum Done {
    /// It looks at this step no longer.
    Held(u64),
    /// The steps before this one.
    Before(u64),
}

/// A stream that was found is over, where one was to be found that goes on; or it has gone since.
pub(crate) struct IsOver;

/// So long it is waited, at most, for the farewell of who comes again from another node.
const LEAVES_WITHIN: Duration = Duration::from_secs(10);
/// How often it is looked whether it has gone.
const LOOK: Duration = Duration::from_millis(50);

/// Whether a reader may begin with a stream: one that is over has no next step, but for ranks of a group that waits for them.
pub(crate) fn is_for(board: &Board<memory::Shared>, options: &Read) -> bool {
    options.start != Start::Next
        || board.state() == State::Live
        || board.awaits(&options.group, options.ranks, options.rank)
}

impl Here {
    /// Takes the place of a rank of a group, and waits for the stream if nobody writes it yet.
    pub(crate) fn open(name: &str, options: &Read) -> Result<Here> {
        let home = Home::open(&options.spaces)?;
        let until = clock::after(options.timeout);
        loop {
            let found = home.find(name, |board| is_for(board, options), until, &options.stop)?;
            if let Ok(here) = Here::attach(name, home.clone(), found, options, None)? {
                return Ok(here);
            }
        }
    }

    /// Takes a place in a stream that was found; with `elsewhere` for that reader of another node. One that has just left comes to its old
    /// place when the agent has heard its farewell.
    pub(crate) fn attach(
        name: &str,
        home: Home,
        found: Found,
        options: &Read,
        elsewhere: Option<Elsewhere>,
    ) -> Result<std::result::Result<Here, IsOver>> {
        let (me, board) = (me()?, &found.board);
        // Who asks waits for the answer, too.
        let until = clock::after(LEAVES_WITHIN.min(options.timeout / 2));
        let seat = loop {
            let seen = board.seen_by_writers();
            let guard = home::lock(name, board, me)?;
            board.reap(&guard, &is_alive);
            // Its last reader may have taken it along.
            if !is_for(board, options) || !home.is_called(name, board)? {
                return Ok(Err(IsOver));
            }
            let awaited = u64::try_from(options.timeout.as_nanos()).unwrap_or(u64::MAX);
            let group = Group {
                name: &options.group,
                size: options.ranks,
                policy: options.policy(),
                from: options.from(),
                until: clock::since_1970().saturating_add(awaited),
            };
            let attached = board.attach(&guard, group, options.rank, me, &is_alive);
            let taken = match attached {
                Ok(seat) => {
                    if let Some(elsewhere) = elsewhere {
                        board.set_elsewhere(&guard, seat, elsewhere);
                    }
                    break seat;
                }
                Err(taken) => taken,
            };
            let is_own = matches!(taken, Taken::By(_) | Taken::Other(..))
                && elsewhere.is_some()
                && board.whose(&options.group, options.rank) == elsewhere;
            drop(guard);
            if !is_own || clock::now() >= until {
                return Err(home::no_reader(name, options, &taken));
            }
            board.sleep_as_writer(seen, LOOK);
        };
        let neighbours = Neighbours::new(&found.folder);
        let folder = found.folder.clone();
        let waits = (options.timeout, &options.stop);
        let party = Party::new(name, home, found, me, waits);
        let (notes, known) = (OnceLock::new(), Mutex::default());
        let (is_lost, unheard) = (AtomicBool::new(false), Mutex::default());
        Ok(Ok(Here { party, seat, neighbours, folder, is_lost, unheard, notes, known }))
    }

    /// Steps that all writers of this node have ended.
    pub(crate) fn complete(&self) -> u64 {
        self.party.board.complete()
    }

    /// Writers of this node.
    pub(crate) fn writers(&self) -> usize {
        self.party.board.writers()
    }

    /// Which of the writers on all nodes is at a place.
    pub(crate) fn rank_of(&self, writer: usize) -> u64 {
        self.party.board.rank_of(writer)
    }

    /// Whom it stands for is gone without a word: so is it.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    /// Counts what was got of a step, and notes it. With `continues` it may be one with what was got before.
    pub(crate) fn count_got(&self, step: u64, got: &Got<'_>, copying: u64, continues: bool) {
        let board = &self.party.board;
        board.count_bytes(self.seat, got.copied, got.looked);
        board.count_times(self.seat, 0, copying);
        let is_mine = || self.party.is_mine();
        let notes = match self.notes.get() {
            Some(notes) => notes,
            None if !is_mine() => return,
            // Where they find no room nobody is told what this one gets, and it gets it all the same.
            None => self.notes.get_or_init(|| self.take_notes().ok()),
        };
        if let Some(notes) = notes {
            notes.note(step, got, continues, is_mine);
        }
    }

    fn take_notes(&self) -> Result<Notes> {
        let board = &self.party.board;
        let _guard = self.lock()?;
        noted::sweep(&self.folder, |place| board.is_at(place));
        Notes::open(&self.folder, self.seat.place(), board.number(self.seat))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<usize, (u64, Arc<Definitions>)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> Result<Guard<'_, memory::Shared>> {
        let guard = self.party.lock()?;
        let unheard = std::mem::take(&mut *self.unheard());
        unheard.into_iter().for_each(|done| self.say(&guard, done));
        Ok(guard)
    }

    fn unheard(&self) -> MutexGuard<'_, Vec<Done>> {
        self.unheard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, guard: &Guard<'_, memory::Shared>, done: Done) {
        match done {
            Done::Held(step) => self.party.board.let_go(guard, self.seat, step),
            Done::Before(step) => self.party.board.advance(guard, self.seat, step),
        }
    }

    /// Says what it is done with, or notes it where somebody keeps the lock.
    fn is_done_with(&self, done: &[Done]) {
        if !self.party.is_mine() {
            return;
        }
        match self.lock() {
            Ok(guard) => done.iter().for_each(|done| self.say(&guard, *done)),
            Err(_) => self.unheard().extend(done),
        }
    }

    fn look_at(&self, prefix: &str, writer: usize, place: &Place) -> Result<View> {
        self.neighbours.look(prefix, place).map_err(|e| match e.kind() {
            Kind::NotFound => {
                let (writer, name) = (self.rank_of(writer), &self.party.name);
                let message = format!("the memory of writer {writer} of stream '{name}' is gone");
                Error::new(Kind::Peer, message).with_hint("somebody has removed the stream")
            }
            _ => e.of_open_files(),
        })
    }

    /// What the writer at a place says of a step that is held.
    pub(crate) fn raw(&self, step: u64, writer: usize) -> Result<Raw> {
        let Party { board, name, .. } = &self.party;
        let gone = || {
            Error::internal(format!("step {step} of stream '{name}' is gone while it is looked at"))
        };
        let entry = board.entry(step, writer).ok_or_else(gone)?;
        let place = Place { segment: entry.segment, offset: entry.offset, len: entry.len };
        let head = self.look_at(&head::said(writer), writer, &place)?;
        let (place, hash, _) = head::decode(&head).ok_or_else(|| {
            let writer = self.rank_of(writer);
            Error::format(format!(
                "what writer {writer} says of step {step} of stream '{name}' is damaged"
            ))
            .with_hint("all that take part in a stream must be of the same version of stead")
        })?;
        Ok(Raw { head, place, hash })
    }

    /// The definitions that a writer says in bytes.
    pub(crate) fn raw_definitions(&self, writer: usize, raw: &Raw) -> Result<View> {
        let bytes = self.look_at(&head::said(writer), writer, &raw.place)?;
        if Definitions::hash_of(&bytes) == raw.hash {
            return Ok(bytes);
        }
        let writer = self.rank_of(writer);
        Err(Error::format(format!("what writer {writer} says of its variables is damaged")))
    }

    /// What a writer says of its variables, which it seldom says anew.
    fn definitions(&self, writer: usize, raw: &Raw) -> Result<Arc<Definitions>> {
        let hash = raw.hash;
        let known = self.known().get(&writer).cloned();
        if let Some((_, definitions)) = known.filter(|(known, _)| *known == hash) {
            return Ok(definitions);
        }
        // Ranks of a program often say the same.
        let same = self.known().values().find(|(known, _)| *known == hash).cloned();
        let definitions = match same {
            Some((_, definitions)) => definitions,
            None => {
                let bytes = self.raw_definitions(writer, raw)?;
                Arc::new(Definitions::decode(&bytes).map_err(|e| self.by(writer, e))?)
            }
        };
        self.known().insert(writer, (hash, definitions.clone()));
        Ok(definitions)
    }

    fn by(&self, writer: usize, error: Error) -> Error {
        error.at_rank(usize::try_from(self.rank_of(writer)).unwrap_or(usize::MAX))
    }

    /// As [`Source::next`], of this very step: `None` if it has gone from memory. Those before `done` are done with.
    pub(crate) fn next_exactly(
        &self,
        step: u64,
        until: Instant,
        done: impl Fn(&dyn Fn(u64)),
    ) -> Result<Option<Coming>> {
        let board = &self.party.board;
        loop {
            let seen = Seen::Reader(board.seen_by_readers());
            let guard = self.lock()?;
            done(&|before| board.advance(&guard, self.seat, before));
            match board.next_exactly(&guard, self.seat, step) {
                None => return Ok(None),
                Some(Next::Step { step, .. }) => return Ok(Some(Coming::Step(step))),
                Some(Next::Over(state)) => return Ok(Some(Coming::Over(self.party.over(state)))),
                Some(Next::Wait) => drop(guard),
            }
            if clock::now() >= until {
                return Ok(Some(Coming::Nothing));
            }
            match self.party.wait(seen, until, String::new) {
                Err(e) if e.kind() == Kind::Timeout => return Ok(Some(Coming::Nothing)),
                waited => waited?,
            }
        }
    }

    /// Those before a step are done with.
    pub(crate) fn advance(&self, step: u64) {
        self.is_done_with(&[Done::Before(step)]);
    }

    /// When a step was complete, in nanoseconds since 1970, and the bytes of its arrays.
    pub(crate) fn facts(&self, step: u64) -> (u64, u64) {
        self.party.board.facts(step).unwrap_or_default()
    }

    /// The most memory that arrays of the stream have taken on this node so far.
    pub(crate) fn peak(&self) -> u64 {
        self.party.board.peak()
    }

    /// What a writer says of a step, to be gone by.
    pub(crate) fn blocks(&self, step: u64, writer: usize) -> Result<(Said, Raw)> {
        let raw = self.raw(step, writer)?;
        let definitions = self.definitions(writer, &raw)?;
        let blocks: Vec<BlockEntry> =
            definitions.decode_blocks(raw.blocks()).map_err(|e| self.by(writer, e))?;
        Ok((Said { rank: self.rank_of(writer), definitions, blocks }, raw))
    }
}

impl Source for Here {
    fn position(&self) -> u64 {
        self.party.board.position(self.seat)
    }

    fn expect(&self, _: u64, _: bool, _: Instant) -> Result<()> {
        Ok(())
    }

    fn next(&self, from: u64, passes: bool, until: Instant) -> Result<Coming> {
        let board = &self.party.board;
        loop {
            let seen = Seen::Reader(board.seen_by_readers());
            let guard = self.lock()?;
            // Those before are done with, whether they are still looked at or not.
            board.advance(&guard, self.seat, from);
            match board.next(&guard, self.seat, from, passes) {
                Next::Step { step, .. } => return Ok(Coming::Step(step)),
                Next::Over(state) => return Ok(Coming::Over(self.party.over(state))),
                Next::Wait => {
                    drop(guard);
                    if clock::now() >= until {
                        return Ok(Coming::Nothing);
                    }
                    match self.party.wait(seen, until, String::new) {
                        Err(e) if e.kind() == Kind::Timeout => return Ok(Coming::Nothing),
                        waited => waited?,
                    }
                }
            }
        }
    }

    fn hold(&self, step: u64) -> Result<bool> {
        let guard = self.lock()?;
        Ok(self.party.board.hold(&guard, self.seat, step))
    }

    fn let_go(&self, step: u64, is_done: bool) {
        let all = [Done::Held(step), Done::Before(step.saturating_add(1))];
        self.is_done_with(if is_done { &all } else { &all[..1] });
    }

    fn steps(&self) -> Result<Vec<u64>> {
        let _guard = self.lock()?;
        Ok(self.party.board.steps())
    }

    fn told(&self, step: u64) -> Result<Arc<Told>> {
        let (at, bytes) = self.facts(step);
        let said = (0..self.writers()).map(|writer| Ok(self.blocks(step, writer)?.0));
        Ok(Arc::new(Told { at, bytes, peak: self.peak(), said: said.collect::<Result<_>>()? }))
    }

    fn late(&self, step: u64) -> Vec<String> {
        let board = &self.party.board;
        let behind = (0..self.writers()).map(|w| board.writer(w)).filter(|seat| seat.step <= step);
        let said = behind.take(8).map(|seat| match seat.standing {
            Standing::Awaited => format!("writer {} has not come", seat.rank),
            _ => format!("writer {} (process {}) has not ended it", seat.rank, seat.who.number),
        });
        let said: Vec<String> = said.collect();
        if !said.is_empty() {
            return said;
        }
        let awaited = board.awaited_by(self.seat);
        awaited.map(|needed| board.who_is(&needed)).into_iter().collect()
    }

    fn look(&self, block: Which, place: &Place) -> Result<Option<View>> {
        self.look_at(&head::prefix(block.writer), block.writer, place).map(Some)
    }

    fn fetch(&self) -> Option<Box<dyn Fetch + '_>> {
        None
    }

    fn count(&self, step: u64, got: &Got<'_>, copying: u64) {
        self.count_got(step, got, copying, false);
    }

    fn given(&self, step: u64, dropped: u64, waited: u64) {
        self.party.board.count_given(self.seat, step, dropped);
        if self.party.board.notes_had(self.seat)
            && let Ok(guard) = self.lock()
        {
            self.party.board.note_had(&guard, self.seat, step);
        }
        self.party.board.count_times(self.seat, waited, 0);
    }

    fn memory(&self) -> Option<MemoryReport> {
        Some(MemoryReport::of(&self.party.board))
    }

    fn done(&self) {
        // Steps and arrays may be had for longer: what they look at stays, and nobody waits for this reader.
        self.is_done_with(&[Done::Before(u64::MAX)]);
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        // The last one who looks at anything of it.
        if !self.party.is_mine() {
            return;
        }
        let Party { name, home, board, .. } = &self.party;
        let is_lost = self.is_lost.load(Ordering::Acquire);
        // With its place goes all that it is done with.
        let Ok(guard) = self.party.lock() else {
            return board.leave_unheard_as_reader(self.seat, is_lost);
        };
        if let Some(Some(_)) = self.notes.get() {
            noted::remove(&self.folder, self.seat.place());
        }
        match is_lost {
            true => board.lose(&guard, self.seat),
            false => board.detach(&guard, self.seat),
        }
        home.leave(name, board, &guard);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Reader, Writer, Written};
    use stead_core::layout::Spaces;

    #[test]
    fn nobody_begins_with_a_stream_that_its_last_reader_has_just_taken_along() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut spaces = Spaces::default();
        spaces.imply("memory", dir.path().join("own").to_str().unwrap());
        let written = Written { spaces: spaces.clone(), ..Written::default() };
        let mut writer = Writer::open("sim", &written).unwrap();
        writer.begin().unwrap();
        writer.end().unwrap();
        let read = Read { spaces: spaces.clone(), ..Read::default() };
        let last = Reader::open("sim", &read).unwrap();
        writer.close().unwrap();
        let home = Home::open(&spaces).unwrap();
        let found = home.get("sim").unwrap();
        drop(last);
        assert!(Here::attach("sim", home, found, &read, None).unwrap().is_err());
    }
}
