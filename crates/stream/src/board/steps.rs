//! Steps: begun by writers, seen by readers when all have ended them, and gone when nobody needs them.

use super::alike::Common;
use super::seats::R_GROUP;
use super::{
    BITS, Board, COMPLETE, ENTRY, FOR_READERS, FOR_WRITERS, GROUPS, Guard, HURRY, KEEP, Needed,
    QUEUE, Reader, SLOT, State, USED,
};
use crate::clock;
use crate::words::Words;

/// Words of a slot: the number of its step and one, or nothing.
const S_STEP: usize = 0;
const S_COMPLETE: usize = 1;
/// When it was complete, in nanoseconds since 1970.
const S_AT: usize = 2;
/// Bytes of the arrays of all writers.
const S_BYTES: usize = 3;
/// All writers have recorded it.
const S_RECORDED: usize = 4;
/// A bit for each group whose ranks have agreed on it.
pub(super) const S_AGREED: usize = 5;

/// Words of an entry.
/// Not 0 if the writer has ended the step, and 2 if it has recorded it, too.
const E_ENDED: usize = 0;
const E_SEGMENT: usize = 1;
const E_OFFSET: usize = 2;
const E_LEN: usize = 3;

/// Where in the memory of a writer lies what it says of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Entry {
    pub(crate) segment: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// What came of beginning a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begun {
    Yes,
    /// There is no room yet.
    Full(Full),
    /// There are no more steps.
    Over(State),
}

/// What there has to be before a step begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// Readers.
    Groups,
    /// Somebody is to have had an earlier step.
    Needed(Needed),
    /// Somebody is to look no longer at this one.
    Held(u64),
    /// Other writers are to end this one.
    Behind(u64),
}

/// What comes next for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// This step; so many have gone before it that the reader has not had.
    Step { step: u64, dropped: u64 },
    /// Nothing yet.
    Wait,
    /// Nothing any more.
    Over(State),
}

impl<W: Words> Board<W> {
    fn step_in(&self, slot: usize) -> Option<u64> {
        self.get(self.slot_at(slot) + S_STEP).checked_sub(1)
    }

    fn is_complete(&self, slot: usize) -> bool {
        self.get(self.slot_at(slot) + S_COMPLETE) != 0
    }

    fn slot_of(&self, step: u64) -> Option<usize> {
        (0..self.used_slots()).find(|slot| self.step_in(*slot) == Some(step))
    }

    pub(super) fn complete_slot_of(&self, step: u64) -> Option<usize> {
        self.slot_of(step).filter(|slot| self.is_complete(*slot))
    }

    pub(super) fn complete_steps(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let complete = |slot: &usize| self.is_complete(*slot);
        (0..self.used_slots()).filter(complete).filter_map(|slot| Some((slot, self.step_in(slot)?)))
    }

    fn bits_at(&self, slot: usize) -> std::ops::Range<usize> {
        let at = self.slot_at(slot) + SLOT;
        at..at + BITS
    }

    fn entry_at(&self, slot: usize, writer: usize) -> usize {
        self.slot_at(slot) + SLOT + BITS + writer * ENTRY
    }

    /// A writer wants to put something into a step.
    pub(crate) fn begin(&self, guard: &Guard<'_, W>, step: u64) -> Begun {
        if self.state() != State::Live {
            return Begun::Over(self.state());
        }
        if self.slot_of(step).is_some() {
            return Begun::Yes;
        }
        if self.lacks_groups() {
            return Begun::Full(Full::Groups);
        }
        if let Some(needed) = self.waited_for(step) {
            return Begun::Full(Full::Needed(needed));
        }
        // Else a writer that nobody waits for would fill the memory with steps that the others cannot end.
        let complete = self.get(COMPLETE);
        if step.saturating_sub(complete) >= self.get(QUEUE) {
            return Begun::Full(Full::Behind(complete));
        }
        let free = |board: &Self| (0..board.slots).find(|slot| board.step_in(*slot).is_none());
        let slot = free(self).or_else(|| {
            self.sweep_for_room(guard);
            free(self)
        });
        let Some(slot) = slot else {
            let there = (0..self.used_slots()).filter_map(|slot| Some((self.step_in(slot)?, slot)));
            let (oldest, slot) = there.min().unwrap_or_default();
            if let Some(needed) = self.needed_in_memory().filter(|needed| needed.step <= oldest) {
                return Begun::Full(Full::Needed(needed));
            }
            let is_held = self.bits_at(slot).any(|i| self.get(i) != 0);
            if let Some(needed) = self.kept_alike_for(oldest).filter(|_| !is_held) {
                return Begun::Full(Full::Needed(needed));
            }
            return Begun::Full(match self.is_complete(slot) {
                true => Full::Held(oldest),
                false => Full::Behind(oldest),
            });
        };
        let at = self.slot_at(slot);
        (at + S_COMPLETE..at + SLOT).for_each(|i| self.put(i, 0));
        self.bits_at(slot).for_each(|i| self.put(i, 0));
        (0..self.writers).for_each(|writer| self.put(self.entry_at(slot, writer) + E_ENDED, 0));
        if slot >= self.used_slots() {
            self.put(USED, slot as u64 + 1);
        }
        self.put(at + S_STEP, step + 1);
        Begun::Yes
    }

    /// A writer has put all that it wants to into a step, which it has begun. False if there is no such step, or it has ended it, or the
    /// stream is over: readers were told what the last step is.
    pub(crate) fn end(
        &self,
        guard: &Guard<'_, W>,
        writer: usize,
        step: u64,
        entry: Entry,
        bytes: u64,
    ) -> bool {
        let Some(slot) = self.slot_of(step).filter(|_| writer < self.writers) else { return false };
        let at = self.entry_at(slot, writer);
        if self.get(at + E_ENDED) != 0 || self.state() != State::Live {
            return false;
        }
        self.put(at + E_SEGMENT, entry.segment);
        self.put(at + E_OFFSET, entry.offset);
        self.put(at + E_LEN, entry.len);
        let sum = self.slot_at(slot) + S_BYTES;
        self.put(sum, self.get(sum).saturating_add(bytes));
        self.count_step(writer, step + 1, bytes);
        self.put(at + E_ENDED, 1);
        self.settle(guard);
        if self.finish(slot, step) {
            self.sweep(guard);
            self.tell(FOR_READERS);
            if self.writers > 1 {
                // Those who are ahead wait for it.
                self.tell(FOR_WRITERS);
            }
        }
        true
    }

    /// Makes a step complete if all have ended it. False if they have not.
    fn finish(&self, slot: usize, step: u64) -> bool {
        let ended = |writer| self.get(self.entry_at(slot, writer) + E_ENDED) != 0;
        if !(0..self.writers).all(ended) {
            return false;
        }
        self.put(self.slot_at(slot) + S_AT, clock::since_1970());
        self.put(self.slot_at(slot) + S_COMPLETE, 1);
        self.put(COMPLETE, self.get(COMPLETE).max(step + 1));
        true
    }

    /// A writer has recorded a step, which is complete or will be.
    pub(crate) fn recorded(&self, guard: &Guard<'_, W>, writer: usize, step: u64) {
        if let Some(slot) = self.slot_of(step).filter(|_| writer < self.writers) {
            self.put(self.entry_at(slot, writer) + E_ENDED, 2);
            self.note_recorded(slot);
            // Who says how much it has in memory may need it there no more.
            self.sweep(guard);
        }
        // Memory is free, whether the step has gone or may go now.
        self.tell(FOR_WRITERS);
    }

    /// Notes that all writers have recorded a step, if they have.
    fn note_recorded(&self, slot: usize) {
        let recorded = |writer| self.get(self.entry_at(slot, writer) + E_ENDED) == 2;
        if self.is_complete(slot) && (0..self.writers).all(recorded) {
            self.put(self.slot_at(slot) + S_RECORDED, 1);
        }
    }

    /// The first complete step from this one on that is in memory and in no file.
    pub(super) fn unrecorded_from(&self, step: u64) -> Option<u64> {
        let steps = self.complete_steps().filter(|(_, there)| *there >= step);
        let only = |slot: usize| self.get(self.slot_at(slot) + S_RECORDED) == 0;
        steps.filter(|(slot, _)| only(*slot)).map(|(_, step)| step).min()
    }

    /// The oldest step that is in memory, complete or not; the next one if there is none.
    pub(crate) fn first_in_memory(&self) -> u64 {
        let there = (0..self.used_slots()).filter_map(|slot| self.step_in(slot)).min();
        there.unwrap_or_else(|| self.get(COMPLETE))
    }

    /// There is no room: what is complete, and some that follow, are to be recorded as soon as can be.
    pub(crate) fn hurry(&self, guard: &Guard<'_, W>) {
        let until = self.get(COMPLETE).saturating_add(self.get(QUEUE));
        self.put(HURRY, self.get(HURRY).max(until));
        (0..self.writers).for_each(|writer| self.ring(guard, writer));
    }

    /// True of a step that is to be recorded as soon as can be.
    pub(super) fn is_hurried(&self, step: u64) -> bool {
        step < self.get(HURRY)
    }

    /// The oldest step from which on all that are complete are there: one that somebody looks at may stay when those after it have gone.
    pub(crate) fn oldest(&self) -> u64 {
        let mut oldest = self.get(COMPLETE);
        for step in self.steps().into_iter().rev() {
            if step + 1 < oldest {
                break;
            }
            oldest = oldest.min(step);
        }
        oldest
    }

    /// Steps that are there and complete, in order.
    pub(crate) fn steps(&self) -> Vec<u64> {
        let mut steps: Vec<u64> = self.complete_steps().map(|(_, step)| step).collect();
        steps.sort_unstable();
        steps
    }

    /// All steps that have not gone yet, complete or not, in order: for who asks of many.
    pub(crate) fn there(&self) -> Vec<u64> {
        let mut steps: Vec<u64> =
            (0..self.used_slots()).filter_map(|slot| self.step_in(slot)).collect();
        steps.sort_unstable();
        steps
    }

    /// True of a step that has not gone yet, complete or not.
    #[cfg(all(test, feature = "shuttle"))]
    pub(crate) fn is_there(&self, step: u64) -> bool {
        self.slot_of(step).is_some()
    }

    /// The next step for a reader, at which it looks from now on. With `passes` older ones are passed over than so many as its group says, if
    /// that may miss steps; without it is the first one that is there, as for who wants this very step.
    pub(crate) fn next(
        &self,
        guard: &Guard<'_, W>,
        reader: Reader,
        from: u64,
        passes: bool,
    ) -> Next {
        let step = match self.alike(reader) {
            Some(group) => {
                match self.agree(guard, group, from.max(self.position(reader)), passes) {
                    Common::Step(step) => Some(step),
                    Common::Ahead => return Next::Wait,
                    Common::Nothing => None,
                }
            }
            None => {
                let group = usize::try_from(self.get(self.reader_at(reader.0) + R_GROUP));
                let group = group.ok().filter(|group| passes && *group < GROUPS);
                let from = group.map_or(from, |group| self.not_passed_over(group, from));
                self.complete_steps().map(|(_, step)| step).filter(|step| *step >= from).min()
            }
        };
        match step {
            Some(step) => {
                self.give(guard, reader, step);
                Next::Step { step, dropped: step - from }
            }
            None if self.state() == State::Live => Next::Wait,
            None => Next::Over(self.state()),
        }
    }

    /// The same, of this very step; `None` if it has gone from memory.
    pub(crate) fn next_exactly(
        &self,
        guard: &Guard<'_, W>,
        reader: Reader,
        step: u64,
    ) -> Option<Next> {
        if step >= self.get(COMPLETE) {
            return Some(self.next(guard, reader, step, false));
        }
        let is_there = self.give(guard, reader, step);
        is_there.then_some(Next::Step { step, dropped: 0 })
    }

    /// A reader is given a step, at which it looks from now on. False if it is not there.
    fn give(&self, guard: &Guard<'_, W>, reader: Reader, step: u64) -> bool {
        self.hold(guard, reader, step)
    }

    /// A reader looks at a step from now on. False if it is not there.
    pub(crate) fn hold(&self, _: &Guard<'_, W>, reader: Reader, step: u64) -> bool {
        let Some(slot) = self.complete_slot_of(step) else { return false };
        let at = self.bits_at(slot).start + reader.0 / 64;
        self.put(at, self.get(at) | 1 << (reader.0 % 64));
        true
    }

    /// A reader looks at a step no longer.
    pub(crate) fn let_go(&self, guard: &Guard<'_, W>, reader: Reader, step: u64) {
        if let Some(slot) = self.slot_of(step) {
            self.let_slot_go(slot, reader);
            self.sweep(guard);
        }
    }

    fn let_slot_go(&self, slot: usize, reader: Reader) {
        let at = self.bits_at(slot).start + reader.0 / 64;
        let (before, bit) = (self.get(at), 1 << (reader.0 % 64));
        if before & bit != 0 {
            self.put(at, before & !bit);
        }
    }

    /// A reader looks at nothing any more.
    pub(super) fn let_all_go(&self, reader: Reader) {
        (0..self.used_slots()).for_each(|slot| self.let_slot_go(slot, reader));
    }

    /// Where a writer's part of a step is, for who looks at it. `None` if it is not there.
    pub(crate) fn entry(&self, step: u64, writer: usize) -> Option<Entry> {
        let slot = self.complete_slot_of(step).filter(|_| writer < self.writers)?;
        let at = self.entry_at(slot, writer);
        Some(Entry {
            segment: self.get(at + E_SEGMENT),
            offset: self.get(at + E_OFFSET),
            len: self.get(at + E_LEN),
        })
    }

    /// When a step was complete, in nanoseconds since 1970, and the bytes of its arrays.
    pub(crate) fn facts(&self, step: u64) -> Option<(u64, u64)> {
        let at = self.slot_at(self.complete_slot_of(step)?);
        Some((self.get(at + S_AT), self.get(at + S_BYTES)))
    }

    /// Bytes that writers have put into the steps from this one on, of those that they have ended.
    pub(super) fn bytes_from(&self, step: u64) -> u64 {
        let there =
            (0..self.used_slots()).filter(|slot| self.step_in(*slot).is_some_and(|s| s >= step));
        there.map(|slot| self.get(self.slot_at(slot) + S_BYTES)).fold(0, u64::saturating_add)
    }

    /// Who looks at a step: process, group and rank.
    pub(crate) fn holders(&self, step: u64) -> Vec<(String, String, u64)> {
        let Some(slot) = self.slot_of(step) else { return Vec::new() };
        let bits = self.bits_at(slot).start;
        let holds = |r: &usize| self.get(bits + r / 64) & (1 << (r % 64)) != 0;
        (0..self.seats()).filter(holds).map(|reader| self.reader(reader)).collect()
    }

    /// Lets steps go that nobody needs. Who may be left behind finds the newest one, and is told of those before it; what ranks of a group
    /// have agreed on stays for all of them.
    pub(super) fn sweep(&self, guard: &Guard<'_, W>) {
        let newest = u64::from(self.has_late());
        let kept = self.kept_with_room();
        self.sweep_but(guard, self.get(KEEP).max(newest), self.needed(), &kept);
    }

    /// The same where there is no room for another step: what only those would find, or keep, who may be left behind goes, too, and what
    /// those who are behind find in files. True if there was something.
    pub(crate) fn sweep_for_room(&self, guard: &Guard<'_, W>) -> bool {
        self.sweep_but(guard, self.get(KEEP), self.needed_in_memory(), &[])
    }

    fn sweep_but(
        &self,
        _: &Guard<'_, W>,
        keep: u64,
        needed: Option<Needed>,
        others: &[u64],
    ) -> bool {
        let needed = needed.map_or(u64::MAX, |needed| needed.step);
        let kept = self.get(COMPLETE).saturating_sub(keep);
        let alike = self.kept_alike();
        let is_free = |slot, step| {
            step < needed
                && step < kept
                && !others.contains(&step)
                && !self.is_kept_alike(slot, step, &alike)
        };
        let mut any = false;
        for slot in 0..self.used_slots() {
            let goes = self.is_complete(slot)
                && self.step_in(slot).is_some_and(|step| is_free(slot, step))
                && self.bits_at(slot).all(|i| self.get(i) == 0);
            if goes {
                self.put(self.slot_at(slot) + S_STEP, 0);
                self.put(self.slot_at(slot) + S_COMPLETE, 0);
                any = true;
            }
        }
        if any {
            self.tell(FOR_WRITERS);
        }
        any
    }

    /// Finishes what somebody has begun who was killed in the middle of it.
    pub(super) fn mend(&self, guard: &Guard<'_, W>) {
        for slot in 0..self.used_slots() {
            match self.step_in(slot) {
                Some(step) if !self.is_complete(slot) => {
                    self.finish(slot, step);
                }
                Some(step) => {
                    self.put(COMPLETE, self.get(COMPLETE).max(step + 1));
                    self.note_recorded(slot);
                }
                None => self.put(self.slot_at(slot) + S_COMPLETE, 0),
            }
        }
        self.mend_seats(guard);
        self.sweep(guard);
        self.tell(FOR_READERS);
        self.tell(FOR_WRITERS);
    }
}
