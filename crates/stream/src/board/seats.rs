//! Who has come, who goes, and who has ended without a word.

use super::counts::{Elsewhere, process};
use super::groups::{G_FIRST, G_SIZE, G_STATE, G_UNTIL, Group, Policy, RANKS, Rule};
use super::had::R_RANGES;
use super::{
    Board, CAME, ENDED, ENDED_AT, FAILED, FOR_READERS, FOR_WRITERS, GROUPS, Guard, KEEP, LIVE,
    NAME, READERS, REMOVED, SEATS, STATE, State,
};
use crate::clock;
use crate::words::{Alive, Who, Words};

/// Words of a writer.
const W_WHO: usize = 0;
const W_STATE: usize = 1;
/// Steps that it has ended.
const W_STEPS: usize = 2;
/// Bytes of memory that its arrays take.
const W_USED: usize = 3;
/// Bytes that it has put.
const W_BYTES: usize = 4;
/// Which of all writers it is, and one; 0 where each has its place's number.
const W_RANK: usize = 5;
/// Changes with what there is to record.
const W_BELL: usize = 6;
/// Nanoseconds that it has waited for others, and those of processors that its copies have taken.
pub(super) const W_WAITED: usize = 7;
pub(super) const W_COPYING: usize = 8;
/// While it waits for memory: bytes that it has for steps which it has not ended, and one.
const W_WAITS: usize = 9;
/// Bytes of files that it has.
pub(super) const W_FILES: usize = 10;
/// Bytes of pages that it keeps for what it puts next.
pub(super) const W_SPARE: usize = 11;
/// Bytes that it is about to write to files.
pub(super) const W_CLAIMED: usize = 12;

/// Words of a reader.
pub(super) const R_WHO: usize = 0;
pub(super) const R_STATE: usize = 1;
pub(super) const R_GROUP: usize = 2;
pub(super) const R_RANK: usize = 3;
/// It is done with the steps before this one.
pub(super) const R_POSITION: usize = 4;
/// Steps that went before it came to them.
const R_DROPPED: usize = 5;
/// Steps that it was given.
const R_HAD: usize = 6;
/// Bytes that it has copied, and those that it has looked at where they lie.
const R_COPIED: usize = 7;
const R_LOOKED: usize = 8;
/// Which of all readers that have come it is.
pub(super) const R_NUMBER: usize = 9;
/// Nanoseconds that it has waited for steps, and those of processors that its copies have taken.
pub(super) const R_WAITED: usize = 10;
pub(super) const R_COPYING: usize = 11;
/// Of one on another node, for which an agent is here: 1, or that node and two, if nodes
/// have numbers; its rank in the job; its process there.
pub(super) const R_NODE: usize = 12;
pub(super) const R_JOB: usize = 13;
pub(super) const R_PROCESS: usize = 14;

pub(super) const FREE: u64 = 0;
pub(super) const HERE: u64 = 1;
pub(super) const LEFT: u64 = 2;
const DIED: u64 = 3;
/// Somebody has left, in order or not, and could not make that known.
const LEAVES: u64 = 4;
const FAILS: u64 = 5;

/// Where a reader sits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reader(pub(super) usize);

impl Reader {
    /// Which of the places of readers that is.
    pub(crate) fn place(self) -> usize {
        self.0
    }
}

/// Why somebody cannot take part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Another process is this writer, or this rank of the group.
    By(Who),
    /// There was one, and the stream goes on without it.
    Was(Standing),
    /// The group has another number of ranks, or another policy.
    Other(u64, Policy),
    /// The group would keep and queue more steps than this, or queue none.
    Unfit(u64),
    /// There are too many groups or readers, or the group is of too many ranks.
    Full,
    /// There is no such writer or rank.
    None,
    /// The stream has ended.
    Over(State),
}

/// Whether somebody is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// He has not come yet.
    Awaited,
    Here,
    /// He has closed it.
    Left,
    /// His process has ended without a word.
    Died,
}

/// True of a place of a reader that is there, or of whose leaving nobody has heard yet.
pub(super) fn is_taken(word: u64) -> bool {
    matches!(word, HERE | LEAVES | FAILS)
}

fn standing(word: u64) -> Standing {
    match word {
        HERE => Standing::Here,
        LEFT | LEAVES | FAILS => Standing::Left,
        DIED => Standing::Died,
        _ => Standing::Awaited,
    }
}

/// Somebody who takes part, as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) who: Who,
    pub(crate) standing: Standing,
    /// The group; none of a writer.
    pub(crate) group: Option<String>,
    pub(crate) rank: u64,
    /// Steps that a writer has ended; the step that comes next for a reader.
    pub(crate) step: u64,
    /// Steps that a reader was given, and the newest of them by ranges.
    pub(crate) had: u64,
    pub(crate) ranges: Vec<(u64, u64)>,
    /// Steps that went before a reader came to them.
    pub(crate) dropped: u64,
    /// Bytes that a writer has put, or a reader has copied.
    pub(crate) bytes: u64,
    /// Bytes of memory of a writer now; those that a reader has looked at where they lie.
    pub(crate) memory: u64,
    /// Which of all readers that have come it is.
    pub(crate) number: u64,
    /// Which of the places of readers it has.
    pub(crate) place: usize,
    /// Nanoseconds that it has waited for others, and those of processors that its copies have taken.
    pub(crate) waited: u64,
    pub(crate) copying: u64,
    /// The reader on another node that an agent is here for.
    pub(crate) elsewhere: Option<Elsewhere>,
}

impl<W: Words> Board<W> {
    /// Takes the place of a writer.
    pub(crate) fn join(
        &self,
        _: &Guard<'_, W>,
        writer: usize,
        me: Who,
        alive: Alive<'_>,
    ) -> Result<(), Taken> {
        if writer >= self.writers {
            return Err(Taken::None);
        }
        if self.state() != State::Live {
            return Err(Taken::Over(self.state()));
        }
        let at = self.writer_at(writer);
        match standing(self.get(at + W_STATE)) {
            Standing::Awaited => {}
            Standing::Here if alive(Who::of(self.get(at + W_WHO))) => {
                return Err(Taken::By(Who::of(self.get(at + W_WHO))));
            }
            Standing::Here => return Err(Taken::Was(Standing::Died)),
            was => return Err(Taken::Was(was)),
        }
        self.put(at + W_WHO, me.word());
        self.put(at + W_STATE, HERE);
        self.tell(FOR_READERS);
        Ok(())
    }

    /// A writer puts nothing more. With a step that it has begun and not ended, or before others that go on, the stream has failed.
    pub(crate) fn close(&self, guard: &Guard<'_, W>, writer: usize, is_within: bool) {
        if is_within {
            self.fail(guard, writer);
        }
        self.put(self.writer_at(writer) + W_STATE, LEFT);
        if self.state() == State::Live {
            self.put(ENDED_AT, clock::since_1970());
        }
        self.settle(guard);
        self.tell(FOR_READERS);
        self.tell(FOR_WRITERS);
    }

    /// The same where somebody keeps the lock: made known by who [reaps](Board::reap) next. Its own word: without the lock.
    pub(crate) fn leave_unheard(&self, writer: usize, is_within: bool) {
        if writer < self.writers {
            let how = if is_within { FAILS } else { LEAVES };
            self.put(self.writer_at(writer) + W_STATE, how);
        }
    }

    /// Which of all writers it was, of those of this node, because of which there are no more steps.
    pub(crate) fn failed(&self) -> Option<u64> {
        match self.state() {
            State::Failed(writer) if writer < self.writers => Some(self.rank_of(writer)),
            _ => None,
        }
    }

    /// Of a stream that goes on and that nobody brings on, one of the writers who have never come: those who have come have closed it, and their
    /// processes have ended.
    pub(crate) fn never_came(&self, alive: Alive<'_>) -> Option<usize> {
        let (mut awaited, mut left) = (None, false);
        for writer in 0..self.writers {
            let at = self.writer_at(writer);
            match standing(self.get(at + W_STATE)) {
                Standing::Awaited => awaited = awaited.or(Some(writer)),
                Standing::Left if !alive(Who::of(self.get(at + W_WHO))) => left = true,
                _ => return None,
            }
        }
        awaited.filter(|_| left && self.state() == State::Live)
    }

    /// There will be no more steps when all writers have left, or one has that others have got ahead of.
    pub(super) fn settle(&self, _: &Guard<'_, W>) {
        let (mut most, mut left, mut behind) = (0, 0, None);
        for writer in 0..self.writers {
            most = most.max(self.steps_of(writer));
        }
        for writer in 0..self.writers {
            if self.has_left(writer) {
                left += 1;
                behind = behind.or((self.steps_of(writer) < most).then_some(writer));
            }
        }
        match behind {
            Some(behind) => self.set_state(State::Failed(behind)),
            None if left == self.writers => self.set_state(State::Ended),
            None => {}
        }
    }

    /// There will be no more steps, because of a writer.
    pub(crate) fn fail(&self, _: &Guard<'_, W>, writer: usize) {
        self.set_state(State::Failed(writer));
        self.tell(FOR_READERS);
        self.tell(FOR_WRITERS);
    }

    /// There will be no more steps, because of this one of the writers on other nodes.
    pub(crate) fn fail_elsewhere(&self, guard: &Guard<'_, W>, rank: u64) {
        let rank = usize::try_from(rank).unwrap_or(usize::MAX);
        self.fail(guard, self.writers.saturating_add(rank));
    }

    /// There will be no more steps: somebody removes the stream.
    pub(crate) fn abandon(&self, _: &Guard<'_, W>) {
        self.set_state(State::Removed);
        self.tell(FOR_READERS);
        self.tell(FOR_WRITERS);
    }

    fn set_state(&self, state: State) {
        if self.state() != State::Live {
            return;
        }
        self.put(ENDED_AT, clock::since_1970());
        let word = match state {
            State::Live => LIVE,
            State::Ended => ENDED,
            State::Removed => REMOVED,
            State::Failed(writer) => FAILED | ((writer as u64) << 8),
        };
        self.put(STATE, word);
    }

    /// A writer has ended so many steps, and has put so many bytes in the last one.
    pub(super) fn count_step(&self, writer: usize, steps: u64, bytes: u64) {
        let at = self.writer_at(writer);
        self.put(at + W_BYTES, self.get(at + W_BYTES).saturating_add(bytes));
        self.put(at + W_STEPS, steps);
    }

    /// Steps that a writer has ended.
    pub(super) fn steps_of(&self, writer: usize) -> u64 {
        self.get(self.writer_at(writer) + W_STEPS)
    }

    /// True of a writer that puts nothing more.
    pub(super) fn has_left(&self, writer: usize) -> bool {
        self.get(self.writer_at(writer) + W_STATE) == LEFT
    }

    /// Bytes that the arrays of a writer take from now on. Its own word: without the lock.
    pub(crate) fn set_used(&self, writer: usize, bytes: u64) {
        if writer < self.writers {
            self.put(self.writer_at(writer) + W_USED, bytes);
        }
    }

    /// Bytes that the arrays of all writers take.
    pub(crate) fn used(&self) -> u64 {
        let used = |w| self.get(self.writer_at(w) + W_USED);
        (0..self.writers).map(used).fold(0, u64::saturating_add)
    }

    /// A writer waits for memory from now on, and has so many bytes for steps that it has not ended; or no longer. Its own word: without
    /// the lock.
    pub(crate) fn set_waiting(&self, writer: usize, open: Option<u64>) {
        if writer < self.writers {
            let word = open.map_or(0, |open| open.saturating_add(1));
            self.put(self.writer_at(writer) + W_WAITS, word);
        }
    }

    fn waiting(&self, writer: usize) -> Option<u64> {
        self.get(self.writer_at(writer) + W_WAITS).checked_sub(1)
    }

    /// True if another writer waits for memory, to be told when there is some.
    pub(crate) fn is_memory_wanted(&self, by_others_than: usize) -> bool {
        (0..self.writers).any(|w| w != by_others_than && self.waiting(w).is_some())
    }

    /// Bytes that stay in memory until a writer has ended this step, whatever others do: those of the steps that are kept then and of those
    /// from this one on, and what other writers have for them who wait for memory, too.
    pub(crate) fn stays(&self, _: &Guard<'_, W>, writer: usize, step: u64) -> u64 {
        let from = step.saturating_sub(self.get(KEEP));
        let waits = |w: &usize| *w != writer && self.steps_of(*w) >= from;
        let open = (0..self.writers).filter(waits).filter_map(|w| self.waiting(w));
        open.fold(self.bytes_from(from), u64::saturating_add)
    }

    /// Says which of the writers on all nodes this one is, before anybody else has the board.
    pub(crate) fn set_rank(&self, writer: usize, rank: u64) {
        if writer < self.writers {
            self.put(self.writer_at(writer) + W_RANK, rank.saturating_add(1));
        }
    }

    /// Which of the writers on all nodes this one is.
    pub(crate) fn rank_of(&self, writer: usize) -> u64 {
        self.get(self.writer_at(writer) + W_RANK).checked_sub(1).unwrap_or(writer as u64)
    }

    /// Where the recorder of a writer sleeps.
    pub(super) fn bell_of(&self, writer: usize) -> usize {
        self.writer_at(writer) + W_BELL
    }

    /// A writer, as others see it.
    pub(crate) fn writer(&self, writer: usize) -> Seat {
        let at = self.writer_at(writer);
        Seat {
            who: Who::of(self.get(at + W_WHO)),
            standing: standing(self.get(at + W_STATE)),
            group: None,
            rank: self.rank_of(writer),
            step: self.get(at + W_STEPS),
            had: 0,
            ranges: Vec::new(),
            dropped: 0,
            bytes: self.get(at + W_BYTES),
            memory: self.get(at + W_USED),
            number: 0,
            place: writer,
            waited: self.get(at + W_WAITED),
            copying: self.get(at + W_COPYING),
            elsewhere: None,
        }
    }

    /// Takes the place of a rank of a group, which begins if there is none of the name.
    pub(crate) fn attach(
        &self,
        guard: &Guard<'_, W>,
        group: Group<'_>,
        rank: u64,
        me: Who,
        alive: Alive<'_>,
    ) -> Result<Reader, Taken> {
        if rank >= group.size || group.name.len() > NAME {
            return Err(Taken::None);
        }
        if group.size > RANKS {
            return Err(Taken::Full);
        }
        if !self.has_slots_for(group.policy) {
            return Err(Taken::Unfit(self.most_of_group()));
        }
        let places = || (0..READERS).map(|r| (Reader(r), self.reader_at(r)));
        let there = (0..GROUPS).find(|g| {
            self.get(self.group_at(*g) + G_STATE) == HERE && self.name_of(*g) == group.name
        });
        let is_other = |there: usize| {
            let (size, policy) = (self.get(self.group_at(there) + G_SIZE), self.policy_of(there));
            (size, policy) != (group.size, group.policy)
        };
        let mut comes_again = false;
        // One that only waits for those who have not come makes room for another one of the name.
        let over = there.filter(|there| is_other(*there) && !self.is_peopled(*there));
        if let Some(over) = over {
            self.put(self.group_at(over) + G_STATE, LEFT);
        }
        if let Some(there) = there.filter(|_| over.is_none()) {
            if is_other(there) {
                let size = self.get(self.group_at(there) + G_SIZE);
                return Err(Taken::Other(size, self.policy_of(there)));
            }
            comes_again = self.came(there, rank);
            let same = places().find(|(_, at)| {
                self.get(at + R_STATE) == HERE
                    && self.get(at + R_GROUP) == there as u64
                    && self.get(at + R_RANK) == rank
            });
            if let Some((seat, at)) = same {
                let who = Who::of(self.get(at + R_WHO));
                if alive(who) {
                    return Err(Taken::By(who));
                }
                self.leave(guard, seat, DIED);
            }
        }
        // What others have left may be looked at, and goes last.
        let free = places().find(|(_, at)| self.get(at + R_STATE) == FREE).or_else(|| {
            let is_gone = |at: &usize| !is_taken(self.get(at + R_STATE));
            let gone = places().filter(|(_, at)| is_gone(at));
            gone.min_by_key(|(_, at)| self.get(at + R_NUMBER))
        });
        let Some((seat, at)) = free else { return Err(Taken::Full) };
        let number = match there.filter(|g| self.get(self.group_at(*g) + G_STATE) == HERE) {
            Some(there) => there,
            None => self.begin_group(group).ok_or(Taken::Full)?,
        };
        let first = self.get(self.group_at(number) + G_FIRST);
        // What the one before it was done with may have gone: nobody has told files, either.
        let is_kept = group.policy.rule != Rule::Spill || !self.spills() || !comes_again;
        let first = if is_kept { first } else { first.max(self.oldest_kept()) };
        let first = if comes_again { first.max(self.agreed_before(number)) } else { first };
        self.put(at + R_STATE, FREE);
        let came = self.get(CAME).wrapping_add(1);
        self.put(CAME, came);
        self.put(SEATS, self.get(SEATS).max(seat.0 as u64 + 1));
        let entry = [
            (R_WHO, me.word()),
            (R_GROUP, number as u64),
            (R_RANK, rank),
            (R_POSITION, first),
            (R_DROPPED, 0),
            (R_HAD, 0),
            (R_RANGES, 0),
            (R_COPIED, 0),
            (R_LOOKED, 0),
            (R_WAITED, 0),
            (R_COPYING, 0),
            (R_NODE, 0),
            (R_NUMBER, came),
            (R_STATE, HERE),
        ];
        entry.into_iter().for_each(|(i, value)| self.put(at + i, value));
        self.has_come(number, rank);
        self.tell(FOR_WRITERS);
        if group.policy.rule == Rule::Spill {
            (0..self.writers).for_each(|writer| self.ring(guard, writer));
        }
        Ok(seat)
    }

    /// A reader goes, and looks at nothing any more.
    pub(crate) fn detach(&self, guard: &Guard<'_, W>, reader: Reader) {
        self.leave(guard, reader, LEFT);
    }

    /// The same of one that has ended without a word, as who stood for it has found.
    pub(crate) fn lose(&self, guard: &Guard<'_, W>, reader: Reader) {
        self.leave(guard, reader, DIED);
    }

    /// A reader goes, or is lost, where somebody keeps the lock: made known by who [reaps](Board::reap) next. Its own word: without the lock.
    pub(crate) fn leave_unheard_as_reader(&self, reader: Reader, is_lost: bool) {
        self.put(self.reader_at(reader.0) + R_STATE, if is_lost { FAILS } else { LEAVES });
    }

    fn leave(&self, guard: &Guard<'_, W>, reader: Reader, how: u64) {
        let at = self.reader_at(reader.0);
        let group = usize::try_from(self.get(at + R_GROUP)).unwrap_or(GROUPS);
        if how == DIED && group < GROUPS {
            // So may those have who have not come.
            self.put(self.group_at(group) + G_UNTIL, 0);
        }
        self.put(at + R_STATE, how);
        self.let_all_go(reader);
        if group < GROUPS && !self.is_peopled(group) && !self.is_awaited(group) {
            self.put(self.group_at(group) + G_STATE, LEFT);
        }
        self.sweep(guard);
        self.tell(FOR_WRITERS);
        if self.agrees(group) {
            // Others of it may wait for this one.
            self.tell(FOR_READERS);
        }
    }

    /// A reader is done with the steps before this one.
    pub(crate) fn advance(&self, guard: &Guard<'_, W>, reader: Reader, step: u64) {
        let at = self.reader_at(reader.0) + R_POSITION;
        if self.get(at) < step {
            let keeps_others = self.alike(reader).is_some_and(|group| self.is_ahead(group));
            self.put(at, step);
            self.sweep(guard);
            self.tell(FOR_WRITERS);
            if keeps_others {
                self.tell(FOR_READERS);
            }
        }
    }

    /// The step that comes next for a reader.
    pub(crate) fn position(&self, reader: Reader) -> u64 {
        self.get(self.reader_at(reader.0) + R_POSITION)
    }

    /// A reader was given a step, so many after the one that it waited for. Its own words: without the lock.
    pub(crate) fn count_given(&self, reader: Reader, step: u64, dropped: u64) {
        let at = self.reader_at(reader.0);
        self.note_given(at, step);
        self.put(at + R_HAD, self.get(at + R_HAD).wrapping_add(1));
        self.put(at + R_DROPPED, self.get(at + R_DROPPED).saturating_add(dropped));
    }

    /// A reader has copied so many bytes more, and looked at so many where they lie. Its own words: without the lock.
    pub(crate) fn count_bytes(&self, reader: Reader, copied: u64, looked: u64) {
        let at = self.reader_at(reader.0);
        self.put(at + R_COPIED, self.get(at + R_COPIED).saturating_add(copied));
        self.put(at + R_LOOKED, self.get(at + R_LOOKED).saturating_add(looked));
    }

    /// Readers that have come, and have not been forgotten, in the order in which they came.
    pub(crate) fn readers(&self) -> Vec<Seat> {
        let there = (0..self.seats()).map(|r| (r, self.reader_at(r)));
        let mut seats: Vec<Seat> = there
            .filter(|(_, at)| self.get(at + R_STATE) != FREE)
            .map(|(place, at)| Seat {
                who: Who::of(self.get(at + R_WHO)),
                standing: standing(self.get(at + R_STATE)),
                group: Some(self.name_of(usize::try_from(self.get(at + R_GROUP)).unwrap_or(0))),
                rank: self.get(at + R_RANK),
                step: self.get(at + R_POSITION),
                had: self.get(at + R_HAD),
                ranges: self.ranges(at),
                dropped: self.get(at + R_DROPPED),
                bytes: self.get(at + R_COPIED),
                memory: self.get(at + R_LOOKED),
                number: self.get(at + R_NUMBER),
                place,
                waited: self.get(at + R_WAITED),
                copying: self.get(at + R_COPYING),
                elsewhere: self.elsewhere(at),
            })
            .collect();
        seats.sort_by_key(|seat| seat.number);
        seats
    }

    /// True if a reader has come, whoever is there now.
    pub(crate) fn has_been_read(&self) -> bool {
        self.get(CAME) > 0
    }

    /// Places of readers that somebody has had.
    pub(super) fn seats(&self) -> usize {
        usize::try_from(self.get(SEATS)).unwrap_or(READERS).min(READERS)
    }

    /// Finishes what somebody has begun who was killed in the middle of it.
    pub(super) fn mend_seats(&self, guard: &Guard<'_, W>) {
        for reader in 0..self.seats() {
            let at = self.reader_at(reader);
            if self.get(at + R_STATE) != HERE {
                self.let_all_go(Reader(reader));
                continue;
            }
            let group = usize::try_from(self.get(at + R_GROUP)).unwrap_or(GROUPS);
            if group < GROUPS {
                self.has_come(group, self.get(at + R_RANK));
            }
        }
        self.mend_agreed();
        self.end_groups();
        self.settle(guard);
    }

    /// Takes out those whose processes have ended, and groups that wait for nobody any more. True if there was one.
    pub(crate) fn reap(&self, guard: &Guard<'_, W>, alive: Alive<'_>) -> bool {
        let mut any = false;
        for writer in 0..self.writers {
            let at = self.writer_at(writer);
            let state = self.get(at + W_STATE);
            if state == LEAVES || state == FAILS {
                self.close(guard, writer, state == FAILS);
                any = true;
            }
            if state == HERE && !alive(Who::of(self.get(at + W_WHO))) {
                // Whoever is killed in between has this done once more by the next one.
                self.fail(guard, writer);
                self.put(at + W_STATE, DIED);
                any = true;
            }
        }
        for reader in 0..self.seats() {
            let at = self.reader_at(reader);
            let how = match self.get(at + R_STATE) {
                LEAVES => LEFT,
                FAILS => DIED,
                HERE if !alive(Who::of(self.get(at + R_WHO))) => DIED,
                _ => continue,
            };
            self.leave(guard, Reader(reader), how);
            any = true;
        }
        if self.end_groups() {
            self.sweep(guard);
            self.tell(FOR_WRITERS);
            any = true;
        }
        any
    }

    /// Who is at a place of a reader, and in which group and rank, for messages.
    pub(super) fn reader(&self, reader: usize) -> (String, String, u64) {
        let at = self.reader_at(reader);
        let group = usize::try_from(self.get(at + R_GROUP)).unwrap_or(0);
        let process = process(Who::of(self.get(at + R_WHO)), self.elsewhere(at));
        (process, self.name_of(group), self.get(at + R_RANK))
    }
}
