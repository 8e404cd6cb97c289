//! Groups of several ranks that may miss steps: the ranks agree on each one that they are given, so that all of them are given the same.
//!
//! The first rank that comes for the next step says which one it is: the oldest that is there, as for who reads alone. That step has the bit of
//! the group from then on, and stays until all of its ranks are done with it: those that are there, and those that have not come yet. No
//! rank is further ahead of the others than a group that is waited for may be behind: it waits for them, and writers for nobody. A rank that
//! has gone keeps nothing any more, and begins with what is agreed on next when it comes again.
//!
//! Where writers are on several nodes each has a board, on which a rank has a place, and a rank is given the first step that was agreed on on all of
//! them. It is the same one for each rank: what is agreed on on a board only grows upwards, and whoever was told the next step from some number
//! on knows that there will be no other one before it.

use super::groups::{G_AGREED, G_FIRST, G_SIZE, G_STATE};
use super::seats::{HERE, R_GROUP, R_POSITION, R_RANK, R_STATE, R_WHO};
use super::steps::S_AGREED;
use super::{Board, GROUPS, Guard, Needed, Reader, Rule};
use crate::words::{Who, Words};

/// What comes next for ranks that agree on steps.
pub(super) enum Common {
    Step(u64),
    /// Nothing before others of the group are done with what they were to be given.
    Ahead,
    /// No further step is there.
    Nothing,
}

/// The bit of a group in a word of a slot.
pub(super) fn bit(group: usize) -> u64 {
    1 << (group % GROUPS)
}

impl<W: Words> Board<W> {
    /// True of a group whose ranks agree on steps.
    pub(super) fn agrees(&self, group: usize) -> bool {
        group < GROUPS
            && self.rule_of(group) == Rule::Drop
            && self.get(self.group_at(group) + G_SIZE) > 1
    }

    /// The group of a reader, if its ranks agree on steps.
    pub(super) fn alike(&self, reader: Reader) -> Option<usize> {
        let group = self.get(self.reader_at(reader.0) + R_GROUP);
        usize::try_from(group).ok().filter(|group| self.agrees(*group))
    }

    /// The groups that are there whose ranks do.
    fn all_alike(&self) -> impl Iterator<Item = usize> + '_ {
        let there = (0..GROUPS).filter(|g| self.get(self.group_at(*g) + G_STATE) == HERE);
        there.filter(|g| self.agrees(*g))
    }

    /// Steps that are there and that a group has agreed on, or was given alone if it keeps some, from this one on.
    pub(super) fn agreed_from(&self, group: usize, from: u64) -> impl Iterator<Item = u64> + '_ {
        let steps = self.complete_steps().filter(move |(_, step)| *step >= from);
        let is_agreed =
            move |slot: usize| self.get(self.slot_at(slot) + S_AGREED) & bit(group) != 0;
        steps.filter(move |(slot, _)| is_agreed(*slot)).map(|(_, step)| step)
    }

    /// The place of each rank of a group that is there.
    fn here_of(&self, group: usize) -> impl Iterator<Item = usize> + '_ {
        let is_of = move |at: &usize| {
            self.get(at + R_STATE) == HERE && self.get(at + R_GROUP) == group as u64
        };
        (0..self.seats()).map(|reader| self.reader_at(reader)).filter(is_of)
    }

    /// The first step with which a rank of a group is not done: one that is there, or has not come yet. Past all of them if there is none.
    pub(super) fn least_of(&self, group: usize) -> u64 {
        let here = self.here_of(group).map(|at| self.get(at + R_POSITION)).min();
        let awaited = self.first_awaited(group).map(|_| self.get(self.group_at(group) + G_FIRST));
        here.into_iter().chain(awaited).min().unwrap_or(u64::MAX)
    }

    /// True if as many steps were agreed on that not all ranks of a group are done with as it may be behind.
    pub(super) fn is_ahead(&self, group: usize) -> bool {
        let open = self.agreed_from(group, self.least_of(group)).count();
        open as u64 >= self.queue_of(group)
    }

    /// The next step for a rank of a group from this one on, on which all agree from now on. With `passes` it is none that the group is further
    /// behind by than it says, unless it was agreed on.
    pub(super) fn agree(&self, _: &Guard<'_, W>, group: usize, from: u64, passes: bool) -> Common {
        if let Some(step) = self.agreed_from(group, from).min() {
            return Common::Step(step);
        }
        let agreed = self.group_at(group) + G_AGREED;
        let from = from.max(self.get(agreed));
        let from = if passes { self.not_passed_over(group, from) } else { from };
        let there = self.complete_steps().filter(|(_, step)| *step >= from);
        let Some((slot, step)) = there.min_by_key(|(_, step)| *step) else {
            return Common::Nothing;
        };
        if self.is_ahead(group) {
            return Common::Ahead;
        }
        // Who is killed in between has left what mends the other word.
        let bits = self.slot_at(slot) + S_AGREED;
        self.put(bits, self.get(bits) | bit(group));
        self.put(agreed, step.saturating_add(1));
        Common::Step(step)
    }

    /// The step before which all is agreed on for a group; the first one of all where that is not done.
    pub(super) fn agreed_before(&self, group: usize) -> u64 {
        if self.agrees(group) { self.get(self.group_at(group) + G_AGREED) } else { 0 }
    }

    /// Nothing is agreed on for the group that has this number from now on.
    pub(super) fn forget_agreed(&self, group: usize) {
        for at in (0..self.slots).map(|slot| self.slot_at(slot) + S_AGREED) {
            let bits = self.get(at);
            if bits & bit(group) != 0 {
                self.put(at, bits & !bit(group));
            }
        }
    }

    /// Finishes what somebody has begun who was killed in the middle of it.
    pub(super) fn mend_agreed(&self) {
        for group in self.all_alike() {
            let at = self.group_at(group) + G_AGREED;
            if let Some(last) = self.agreed_from(group, self.get(at)).max() {
                self.put(at, last.saturating_add(1));
            }
        }
    }

    /// Of each group whose ranks agree on steps its bit, and the first step that one of them is not done with.
    pub(super) fn kept_alike(&self) -> Vec<(u64, u64)> {
        self.all_alike().map(|group| (bit(group), self.least_of(group))).collect()
    }

    /// True of a step that such a group has agreed on, and with which not all of its ranks are done.
    pub(super) fn is_kept_alike(&self, slot: usize, step: u64, alike: &[(u64, u64)]) -> bool {
        let bits = self.get(self.slot_at(slot) + S_AGREED);
        alike.iter().any(|(bit, least)| bits & bit != 0 && *least <= step)
    }

    /// For whom a step stays that was agreed on.
    pub(crate) fn kept_alike_for(&self, step: u64) -> Option<Needed> {
        let slot = self.complete_slot_of(step)?;
        let keeps = |g: &usize| self.is_kept_alike(slot, step, &[(bit(*g), self.least_of(*g))]);
        self.all_alike().filter(keeps).find_map(|group| self.last_of(group))
    }

    /// Whom a reader waits for that is as far ahead of the others of its group as it may be.
    pub(crate) fn awaited_by(&self, reader: Reader) -> Option<Needed> {
        let group = self.alike(reader).filter(|group| self.is_ahead(*group))?;
        self.last_of(group)
    }

    /// The rank of a group that is furthest behind, and the step that it is to be given.
    fn last_of(&self, group: usize) -> Option<Needed> {
        let least = self.least_of(group);
        let step = self.agreed_from(group, least).min()?;
        let first = self.get(self.group_at(group) + G_FIRST);
        if let Some(rank) = self.first_awaited(group).filter(|_| first == least) {
            return Some(Needed { step, group, rank, who: None, elsewhere: None, is_kept: false });
        }
        let at = self.here_of(group).find(|at| self.get(at + R_POSITION) == least)?;
        let (rank, who) = (self.get(at + R_RANK), Some(Who::of(self.get(at + R_WHO))));
        Some(Needed { step, group, rank, who, elsewhere: self.elsewhere(at), is_kept: false })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::super::tests::{ALL, Heap, agreed, attach, found, group, heap, join_all, put, who};
    use super::super::*;

    /// The next step of a reader, which says that it is done with those before as readers do.
    fn next<W: Words>(board: &Board<W>, reader: Reader, from: u64) -> Option<u64> {
        let guard = board.lock(who(9), ALL).unwrap();
        board.advance(&guard, reader, from);
        let found = board.next(&guard, reader, from, true);
        if let Next::Step { step, .. } = found {
            board.let_go(&guard, reader, step);
            return Some(step);
        }
        None
    }

    /// A board of one writer, which has ended two steps, and both ranks of a group that may miss some.
    fn pair<'h>(heap: &'h Heap, agreed: &Agreed) -> (Board<&'h Heap>, [Reader; 2]) {
        let board = found(heap, agreed);
        join_all(&board);
        let of = group("a", 2, Rule::Drop, From::Next);
        let ranks = [0, 1].map(|rank| attach(&board, of, rank, 8 + rank as u32).unwrap());
        (0..2).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        (board, ranks)
    }

    #[test]
    fn ranks_of_a_group_that_may_miss_steps_are_given_the_same_ones() {
        let agreed = agreed(1, 1, 2);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let of = group("a", 3, Rule::Drop, From::Next);
        let first = attach(&board, of, 0, 8).unwrap();
        let second = attach(&board, of, 1, 9).unwrap();
        (0..5).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        assert_eq!(next(&board, first, 0), Some(4));
        (5..9).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        // It stays for the second one, and for the one that has not come.
        assert_eq!(board.steps(), [4, 8]);
        assert_eq!(next(&board, first, 5), Some(8));
        (9..12).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        assert_eq!((next(&board, second, 0), board.steps()), (Some(4), vec![4, 8, 11]));
        // The first one is as far ahead of them as it may be, and is told of whom.
        assert_eq!(next(&board, first, 9), None);
        let needed = board.awaited_by(first).unwrap();
        assert_eq!(board.who_is(&needed), "rank 2 of the readers 'a' has not come");
        assert_eq!(board.kept_alike_for(4), Some(needed));
        assert_eq!(next(&board, second, 5), Some(8));
        assert_eq!(next(&board, first, 9), None);
        let third = attach(&board, of, 2, 7).unwrap();
        assert_eq!(board.awaited_by(first).map(|n| (n.rank, n.step)), Some((2, 4)));
        assert_eq!((next(&board, third, 0), next(&board, third, 5)), (Some(4), Some(8)));
        assert_eq!((next(&board, first, 9), board.steps()), (Some(11), vec![8, 11]));
        // Whoever goes keeps nothing, and begins with what comes then when it is there again.
        let seen = board.seen_by_readers();
        let detach = |reader| board.detach(&board.lock(who(1), ALL).unwrap(), reader);
        detach(third);
        assert_ne!(board.seen_by_readers(), seen);
        assert_eq!(next(&board, second, 9), Some(11));
        (12..15).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        let third = attach(&board, of, 2, 7).unwrap();
        assert_eq!(board.position(third), 12);
        for reader in [third, second, first] {
            assert_eq!(next(&board, reader, 12), Some(14));
        }
        [first, second, third].into_iter().for_each(detach);
        assert_eq!((board.groups(), board.steps()), (0, vec![14]));
        // Another group that has its place has agreed on nothing.
        for number in 1..GROUPS {
            let name = format!("g{number}");
            detach(attach(&board, group(&name, 1, Rule::Block, From::Next), 0, 7).unwrap());
        }
        let other = attach(&board, group("b", 2, Rule::Drop, From::Oldest), 0, 8).unwrap();
        assert!(board.awaited_by(other).is_none() && board.kept_alike_for(14).is_none());
        assert_eq!(next(&board, other, 14), Some(14));
    }

    #[test]
    fn who_is_waited_for_by_a_rank_that_is_ahead_wakes_it() {
        let agreed = agreed(1, 1, 1);
        let heap = heap(&agreed);
        let (board, ranks) = pair(&heap, &agreed);
        assert_eq!((next(&board, ranks[0], 0), next(&board, ranks[1], 0)), (Some(1), Some(1)));
        assert_eq!(put(&board, 0, 2), Begun::Yes);
        assert_eq!(next(&board, ranks[0], 2), None);
        let seen = board.seen_by_readers();
        assert_eq!(next(&board, ranks[1], 2), Some(2));
        assert_ne!(board.seen_by_readers(), seen);
        assert_eq!(next(&board, ranks[0], 2), Some(2));
        // So does one that is killed.
        assert_eq!(put(&board, 0, 3), Begun::Yes);
        assert_eq!(next(&board, ranks[0], 3), None);
        let seen = board.seen_by_readers();
        assert!(board.reap(&board.lock(who(1), ALL).unwrap(), &|w| w.number != 9));
        assert_ne!(board.seen_by_readers(), seen);
        assert_eq!(next(&board, ranks[0], 3), Some(3));
    }

    #[test]
    fn writers_are_told_for_whom_what_was_agreed_on_takes_all_places() {
        let agreed = agreed(1, 1, 50);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        // Two groups, which agree on others: more than there are slots.
        let ranks = ["a", "b"]
            .map(|name| attach(&board, group(name, 2, Rule::Drop, From::Next), 0, 8).unwrap());
        let mut step = 0;
        let full = loop {
            match put(&board, 0, step) {
                Begun::Yes => {}
                other => break other,
            }
            next(&board, ranks[usize::from(step % 2 == 1)], step);
            step += 1;
        };
        let Begun::Full(Full::Needed(needed)) = full else { panic!("{full:?}") };
        assert_eq!((needed.step, needed.rank, needed.who), (0, 1, None));
        assert_eq!(board.who_is(&needed), "rank 1 of the readers 'a' has not come");
    }

    #[test]
    fn what_was_agreed_on_by_one_that_was_killed_holds() {
        let agreed = agreed(1, 2, 4);
        let heap = heap(&agreed);
        let (board, ranks) = pair(&heap, &agreed);
        // It was killed when it had said the one thing and not the other.
        let at = board.slot_at(0) + steps::S_AGREED;
        board.put(at, board.get(at) | 1);
        let group = board.group_at(0) + groups::G_AGREED;
        assert_eq!(board.get(group), 0);
        let guard = board.lock(who(1), ALL).unwrap();
        board.mend(&guard);
        drop(guard);
        assert_eq!(board.get(group), 1);
        assert_eq!(next(&board, ranks[1], 0), Some(0));
        assert_eq!(next(&board, ranks[0], 0), Some(0));
    }
}
