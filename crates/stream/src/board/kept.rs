//! Whom writers wait for, and what stays for readers: steps that they have not had, and as many as their groups keep of those that they have.
//!
//! What a group that is waited for keeps stays as what the stream keeps does: writers wait for memory rather than that it goes. What one keeps
//! that reads from files may go there. What one keeps that may miss steps goes where there is no room for others, since nobody waits for it.

use super::counts::process;
use super::groups::{G_FIRST, G_STATE, Policy};
use super::seats::{HERE, R_GROUP, R_POSITION, R_RANK, R_STATE, R_WHO};
use super::steps::S_AGREED;
use super::{Board, COMPLETE, Elsewhere, GROUPS, Guard, QUEUE, Reader, Rule, SPARE};
use crate::words::{Who, Words};

/// Whom writers wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needed {
    /// The first step that is to stay.
    pub(crate) step: u64,
    pub(super) group: usize,
    pub(crate) rank: u64,
    /// `None` if that rank has not come yet.
    pub(crate) who: Option<Who>,
    /// Where it is, if that is another node: `who` is an agent then.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// It is done with that step, which its group keeps.
    pub(crate) is_kept: bool,
}

impl Needed {
    /// True of the same rank of a group, whatever step it needs.
    pub(crate) fn is_of(&self, other: &Needed) -> bool {
        (self.group, self.rank) == (other.group, other.rank)
    }
}

/// What a rank of a group that misses no step needs.
struct Needs {
    policy: Policy,
    /// The first step that it is not done with.
    next: u64,
    /// The first one that is to stay for it, with those that its group keeps.
    kept: u64,
}

impl<W: Words> Board<W> {
    /// The first step that is to stay for somebody who is not to be left behind, and who that is. Who says how many steps it has in
    /// memory finds what is older in files.
    pub(crate) fn needed(&self) -> Option<Needed> {
        let complete = self.get(COMPLETE);
        self.least(|needs| match (needs.policy.rule, needs.policy.queue) {
            (Rule::Spill, Some(queue)) => {
                let newest = queue.saturating_add(needs.policy.keep);
                let recorded = self.unrecorded_from(needs.kept).unwrap_or(u64::MAX);
                Some(needs.kept.max(complete.saturating_sub(newest).min(recorded)))
            }
            _ => Some(needs.kept),
        })
    }

    /// Who is behind by as much as it may be before this step begins, and is waited for.
    pub(crate) fn waited_for(&self, step: u64) -> Option<Needed> {
        self.least(|needs| {
            let queue = needs.policy.queue.unwrap_or_else(|| self.get(QUEUE));
            let waits =
                needs.policy.rule == Rule::Block && step.saturating_sub(needs.next) >= queue;
            waits.then_some(needs.next)
        })
    }

    /// As [`Board::needed`], of what is to stay in memory where there is no room: it is in no file yet.
    pub(crate) fn needed_in_memory(&self) -> Option<Needed> {
        self.least(|needs| match needs.policy.rule {
            Rule::Spill => self.unrecorded_from(needs.kept),
            _ => Some(needs.kept),
        })
    }

    /// The name of the group of somebody who is waited for.
    pub(crate) fn group_of(&self, needed: &Needed) -> String {
        self.name_of(needed.group)
    }

    /// Who is waited for, and what has to be done with, for messages.
    pub(crate) fn who_is(&self, needed: &Needed) -> String {
        let Needed { step, rank, who, elsewhere, is_kept, .. } = *needed;
        let who = match who {
            Some(who) if is_kept => {
                let keep = self.policy_of(needed.group).keep;
                let who = process(who, elsewhere);
                format!(
                    "({who}) keeps {keep} steps that it has had (keep of the group), from step {step} on"
                )
            }
            Some(who) => format!("({}) is not done with step {step}", process(who, elsewhere)),
            None => "has not come".to_owned(),
        };
        format!("rank {rank} of the readers '{}' {who}", self.group_of(needed))
    }

    /// True of who reads from files what it is behind by.
    pub(crate) fn is_spilled(&self, needed: &Needed) -> bool {
        self.rule_of(needed.group) == Rule::Spill
    }

    /// The first step that stays in files for somebody who reads from them what it is behind by; `None` if there is nobody.
    pub(crate) fn spilled(&self) -> Option<u64> {
        let spills = |needs: &Needs| needs.policy.rule == Rule::Spill;
        Some(self.least(|needs| spills(needs).then_some(needs.kept))?.step)
    }

    /// The oldest step that nobody who reads from files what it is behind by is done with, or that is in memory.
    pub(super) fn oldest_kept(&self) -> u64 {
        let spills = |needs: &Needs| needs.policy.rule == Rule::Spill;
        let spilled = self.least(|needs| spills(needs).then_some(needs.next));
        self.oldest().min(spilled.map_or(u64::MAX, |needed| needed.step))
    }

    /// True of a step that a writer which has ended so many is to record now: there is no room, little is left, or a group that reads from
    /// files has as many newer ones in memory as it may have.
    pub(crate) fn is_due(&self, step: u64, ended: u64) -> bool {
        let slack = self.get(QUEUE).saturating_add(SPARE / 4);
        let own = (0..GROUPS).filter(|g| self.get(self.group_at(*g) + G_STATE) == HERE);
        let own = own.map(|group| self.policy_of(group)).filter(|of| of.rule == Rule::Spill);
        let own = own.filter_map(|of| Some(of.queue?.saturating_add(of.keep))).min();
        let slack = own.map_or(slack, |own| own.min(slack));
        self.is_hurried(step) || step.saturating_add(slack) < ended
    }

    /// With the step that is to stay for each, if one is.
    fn least(&self, stays: impl Fn(&Needs) -> Option<u64>) -> Option<Needed> {
        let mut least: Option<Needed> = None;
        let mut note = |next: u64, needed: Needed| {
            let policy = self.policy_of(needed.group);
            let first = self.get(self.group_at(needed.group) + G_FIRST).min(next);
            // What came before the group did it has not had.
            let kept = next.saturating_sub(policy.keep).max(first);
            let Some(step) = stays(&Needs { policy, next, kept }) else { return };
            if least.is_none_or(|least| step < least.step) {
                least = Some(Needed { step, is_kept: step < next, ..needed });
            }
        };
        let waits = |g: &usize| {
            self.get(self.group_at(*g) + G_STATE) == HERE && self.rule_of(*g) != Rule::Drop
        };
        let (step, is_kept) = (0, false);
        for group in (0..GROUPS).filter(waits) {
            // Those who have not come yet are to find what the first one has found.
            if let Some(rank) = self.first_awaited(group) {
                let next = self.get(self.group_at(group) + G_FIRST);
                note(next, Needed { step, group, rank, who: None, elsewhere: None, is_kept });
            }
        }
        for at in (0..self.seats()).map(|r| self.reader_at(r)) {
            let group = usize::try_from(self.get(at + R_GROUP)).unwrap_or(GROUPS);
            if self.get(at + R_STATE) == HERE && group < GROUPS && waits(&group) {
                let (next, rank) = (self.get(at + R_POSITION), self.get(at + R_RANK));
                let who = Some(Who::of(self.get(at + R_WHO)));
                let elsewhere = self.elsewhere(at);
                note(next, Needed { step, group, rank, who, elsewhere, is_kept });
            }
        }
        least
    }

    /// True if somebody whom nobody waits for has not had all that is complete.
    pub(super) fn has_late(&self) -> bool {
        let complete = self.get(COMPLETE);
        let here = (0..self.seats()).map(|r| self.reader_at(r)).any(|at| {
            let group = usize::try_from(self.get(at + R_GROUP)).unwrap_or(GROUPS);
            self.get(at + R_STATE) == HERE
                && self.get(at + R_POSITION) < complete
                && group < GROUPS
                && self.rule_of(group) == Rule::Drop
        });
        here || (0..GROUPS).any(|group| {
            let at = self.group_at(group);
            self.get(at + G_STATE) == HERE
                && self.rule_of(group) == Rule::Drop
                && self.get(at + G_FIRST) < complete
                && self.first_awaited(group).is_some()
        })
    }

    /// The first step from this one on that a group may be given which may miss some: none that it is further behind by than it says.
    pub(super) fn not_passed_over(&self, group: usize, from: u64) -> u64 {
        let Policy { rule, queue, .. } = self.policy_of(group);
        let queue = queue.filter(|_| rule == Rule::Drop);
        from.max(queue.map_or(0, |queue| self.get(COMPLETE).saturating_sub(queue)))
    }

    /// The group of a reader, if what it keeps is known by what it was [given](Board::note_had): it may miss steps, and does not
    /// [agree](Board::agree) on them.
    fn notes(&self, reader: Reader) -> Option<usize> {
        let group = self.get(self.reader_at(reader.0) + R_GROUP);
        let group = usize::try_from(group).ok().filter(|group| *group < GROUPS)?;
        let Policy { rule, keep, .. } = self.policy_of(group);
        (rule == Rule::Drop && keep > 0 && !self.agrees(group)).then_some(group)
    }

    /// True of a reader of which it is to be noted what it was given.
    pub(crate) fn notes_had(&self, reader: Reader) -> bool {
        self.notes(reader).is_some()
    }

    /// A reader has had a step, which it looks at. What a board has handed out may have been let go instead, where others were further.
    pub(crate) fn note_had(&self, _: &Guard<'_, W>, reader: Reader, step: u64) {
        if let (Some(group), Some(slot)) = (self.notes(reader), self.complete_slot_of(step)) {
            let at = self.slot_at(slot) + S_AGREED;
            self.put(at, self.get(at) | super::alike::bit(group));
        }
    }

    /// Steps that stay as long as there is room: those that groups which may miss some keep of what they have had, and what they were
    /// given last.
    pub(super) fn kept_with_room(&self) -> Vec<u64> {
        let mut kept = Vec::new();
        for group in (0..GROUPS).filter(|g| self.get(self.group_at(*g) + G_STATE) == HERE) {
            let Policy { rule, keep, .. } = self.policy_of(group);
            if rule != Rule::Drop || keep == 0 {
                continue;
            }
            let mut had: Vec<u64> = self.agreed_from(group, 0).collect();
            had.sort_unstable();
            let least = self.least_of(group);
            let done = had.partition_point(|step| *step < least);
            let from = done.saturating_sub(usize::try_from(keep).unwrap_or(usize::MAX));
            kept.extend(had.drain(from..));
        }
        kept
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::super::tests::{ALL, agreed, attach, found, group, heap, join_all, put, who};
    use super::super::*;
    use crate::words::Words;
    use proptest::prelude::*;

    fn own(rule: Rule, queue: Option<u64>, keep: u64) -> Group<'static> {
        let policy = Policy { rule, queue, keep };
        Group { policy, ..group("own", 1, rule, From::Oldest) }
    }

    /// The next step of a reader, which is done with those before; as far as it is there. It looks at it no longer.
    fn next<W: Words>(board: &Board<W>, reader: Reader, from: u64) -> Option<u64> {
        let guard = board.lock(who(9), ALL).unwrap();
        board.advance(&guard, reader, from);
        let Next::Step { step, .. } = board.next(&guard, reader, from, true) else { return None };
        board.note_had(&guard, reader, step);
        board.let_go(&guard, reader, step);
        Some(step)
    }

    #[test]
    fn writers_wait_for_each_group_by_its_own_number() {
        let agreed = agreed(1, 0, 4);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let few = Group { name: "few", ..own(Rule::Block, Some(1), 0) };
        let few = attach(&board, few, 0, 8).unwrap();
        let many = Group { name: "many", ..own(Rule::Block, Some(6), 0) };
        let many = attach(&board, many, 0, 9).unwrap();
        assert_eq!(put(&board, 0, 0), Begun::Yes);
        let Begun::Full(Full::Needed(needed)) = put(&board, 0, 1) else { panic!() };
        assert_eq!(
            board.who_is(&needed),
            "rank 0 of the readers 'few' (process 8) is not done with step 0"
        );
        for step in 1..6 {
            board.advance(&board.lock(who(1), ALL).unwrap(), few, step);
            assert_eq!(put(&board, 0, step), Begun::Yes);
        }
        // More than the stream has queued: the other one is behind by as much as it may be.
        board.advance(&board.lock(who(1), ALL).unwrap(), few, 6);
        let Begun::Full(Full::Needed(needed)) = put(&board, 0, 6) else { panic!() };
        assert_eq!((board.group_of(&needed), needed.step), ("many".to_owned(), 0));
        assert_eq!(board.steps(), [0, 1, 2, 3, 4, 5]);
        board.advance(&board.lock(who(1), ALL).unwrap(), many, 1);
        assert_eq!(put(&board, 0, 6), Begun::Yes);
    }

    #[test]
    fn what_a_group_keeps_stays_beside_what_the_stream_keeps() {
        let agreed = agreed(1, 1, 2);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        // What came before the group it has not had.
        (0..4).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        let reader = attach(&board, own(Rule::Block, None, 3), 0, 9).unwrap();
        let other = attach(&board, group("other", 1, Rule::Block, From::Next), 0, 8).unwrap();
        for step in 3..9 {
            assert_eq!(next(&board, reader, step), Some(step));
            let guard = board.lock(who(1), ALL).unwrap();
            board.advance(&guard, reader, step + 1);
            board.advance(&guard, other, step + 1);
            drop(guard);
            let from = (step + 1).saturating_sub(3).max(3);
            assert_eq!(board.steps(), (from..=step).collect::<Vec<_>>());
            assert_eq!(put(&board, 0, step + 1), Begun::Yes);
        }
        // It does not go where there is no room, and who waits for that is told.
        let guard = board.lock(who(1), ALL).unwrap();
        assert!(!board.sweep_for_room(&guard));
        let needed = board.needed_in_memory().unwrap();
        assert!(needed.is_kept && needed.step == 6);
        assert_eq!(
            board.who_is(&needed),
            "rank 0 of the readers 'own' (process 9) keeps 3 steps that it has had (keep of the group), from step 6 on"
        );
        board.detach(&guard, reader);
        assert_eq!(board.steps(), [9]);
    }

    #[test]
    fn who_may_miss_steps_is_given_none_that_it_is_further_behind_by() {
        let agreed = agreed(1, 8, 2);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let live = attach(&board, own(Rule::Drop, Some(1), 0), 0, 9).unwrap();
        let three = Group { name: "three", ..own(Rule::Drop, Some(3), 0) };
        let three = attach(&board, three, 0, 8).unwrap();
        let all = attach(&board, group("all", 1, Rule::Drop, From::Oldest), 0, 7).unwrap();
        (0..6).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        assert_eq!((next(&board, live, 0), next(&board, live, 6)), (Some(5), None));
        assert_eq!((next(&board, three, 0), next(&board, all, 0)), (Some(3), Some(0)));
        // Who wants a very step has it, as long as it is there.
        let again = Group { name: "again", ..own(Rule::Drop, Some(1), 0) };
        let again = attach(&board, again, 0, 6).unwrap();
        let guard = board.lock(who(6), ALL).unwrap();
        assert_eq!(board.next(&guard, again, 2, false), Next::Step { step: 2, dropped: 0 });
        assert_eq!(board.next(&guard, again, 2, true), Next::Step { step: 5, dropped: 3 });
    }

    #[test]
    fn ranks_that_pass_over_steps_are_given_the_same_ones_and_none_is_ahead() {
        let agreed = agreed(1, 8, 4);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let of = Group { size: 2, ..own(Rule::Drop, Some(1), 0) };
        let ranks = [0, 1].map(|rank| attach(&board, of, rank, 8 + rank as u32).unwrap());
        (0..4).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        assert_eq!(next(&board, ranks[0], 0), Some(3));
        (4..7).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
        // It waits for the other one, which is given what was agreed on, though newer ones are there.
        assert_eq!((next(&board, ranks[0], 4), next(&board, ranks[1], 0)), (None, Some(3)));
        assert_eq!((next(&board, ranks[1], 4), next(&board, ranks[0], 4)), (Some(6), Some(6)));
    }

    #[test]
    fn what_is_kept_for_who_may_miss_steps_goes_where_there_is_no_room() {
        for ranks in [1, 2] {
            let agreed = agreed(1, 0, 2);
            let heap = heap(&agreed);
            let board = found(&heap, &agreed);
            join_all(&board);
            let of = Group { size: ranks, ..own(Rule::Drop, Some(1), 2) };
            let all: Vec<Reader> =
                (0..ranks).map(|rank| attach(&board, of, rank, 8).unwrap()).collect();
            let mut from = 0;
            for newest in [3, 6, 9, 12] {
                (from..=newest).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
                let guard = board.lock(who(1), ALL).unwrap();
                all.iter().for_each(|reader| board.advance(&guard, *reader, from));
                drop(guard);
                for reader in &all {
                    assert_eq!(next(&board, *reader, from), Some(newest));
                }
                from = newest + 1;
            }
            // Those that it has had, whatever lay between, and the one that it is at.
            assert_eq!(board.steps(), [6, 9, 12]);
            let guard = board.lock(who(1), ALL).unwrap();
            all.iter().for_each(|reader| board.advance(&guard, *reader, 13));
            assert_eq!(board.steps(), [9, 12]);
            assert!(board.hold(&guard, all[0], 9));
            assert!(board.sweep_for_room(&guard));
            assert_eq!(board.steps(), [9]);
            all.iter().for_each(|reader| board.detach(&guard, *reader));
            assert!(board.steps().is_empty());
        }
    }

    #[test]
    fn who_reads_from_files_has_no_more_in_memory_than_it_says() {
        let agreed = Agreed { record: 1, spills: true, ..agreed(1, 0, 4) };
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let reader = attach(&board, own(Rule::Spill, Some(2), 1), 0, 9).unwrap();
        let lock = || board.lock(who(1), ALL).unwrap();
        for step in 0..6 {
            assert_eq!(put(&board, 0, step), Begun::Yes);
        }
        // What is in no file stays, and is recorded though there is room.
        assert_eq!(board.steps(), [0, 1, 2, 3, 4, 5]);
        assert!(board.is_due(0, 6) && board.is_due(2, 6) && !board.is_due(3, 6));
        for step in 0..3 {
            board.recorded(&lock(), 0, step);
        }
        assert_eq!(board.steps(), [3, 4, 5]);
        assert_eq!(board.next_exactly(&lock(), reader, 0), None);
        // What it has had stays, in memory or in files.
        board.advance(&lock(), reader, 2);
        assert_eq!((board.spilled(), board.steps()), (Some(1), vec![3, 4, 5]));
        board.advance(&lock(), reader, 6);
        assert_eq!((board.spilled(), board.steps()), (Some(5), vec![5]));
        assert!(!board.sweep_for_room(&lock()));
        let needed = board.needed_in_memory().unwrap();
        assert!(needed.is_kept && board.is_spilled(&needed));
        board.recorded(&lock(), 0, 5);
        assert!(board.sweep_for_room(&lock()) && board.steps().is_empty());
        // A rank that comes again begins with what nobody is done with, and not with what is kept.
        assert_eq!(board.spilled(), Some(5));
    }

    #[test]
    fn numbers_that_there_are_no_slots_for_are_refused() {
        let agreed = agreed(1, 3, 5);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        assert_eq!(board.most_of_group(), OWN);
        for (queue, keep) in [(Some(OWN), 0), (Some(1), OWN - 1), (None, OWN - 5)] {
            let reader = attach(&board, own(Rule::Block, queue, keep), 0, 9).unwrap();
            board.detach(&board.lock(who(9), ALL).unwrap(), reader);
        }
        let few = [(Some(OWN + 1), 0), (Some(2), OWN - 1), (None, OWN - 4), (Some(0), 0)];
        for (queue, keep) in
            few.into_iter().chain([(Some(u64::MAX), u64::MAX), (Some(1), u64::MAX)])
        {
            for rule in [Rule::Block, Rule::Drop, Rule::Spill] {
                let refused = attach(&board, own(rule, queue, keep), 0, 9);
                assert_eq!(refused, Err(Taken::Unfit(OWN)), "{queue:?} {keep}");
            }
        }
        // Others say the same.
        let of = Group { size: 2, ..own(Rule::Block, Some(3), 1) };
        attach(&board, of, 0, 8).unwrap();
        for (queue, keep) in [(Some(3), 0), (None, 1), (Some(4), 1)] {
            let policy = Policy { rule: Rule::Block, queue, keep };
            let other = attach(&board, Group { policy, ..of }, 1, 9);
            assert_eq!(other, Err(Taken::Other(2, of.policy)));
        }
        attach(&board, of, 1, 9).unwrap();
        // Where many writers have entries in each slot there are as many as the stream itself needs.
        let wide = Agreed { writers: 4096, all: 4096, ..agreed };
        assert_eq!(wide.slots(), Some((3 + 5 + SPARE) as usize));
        let own = Agreed { keep: 100, queue: 50, ..agreed };
        assert_eq!(own.slots(), Some((150 + SPARE) as usize));
    }

    proptest! {
        /// Whatever groups say, writers and readers that do what they can come to the end, and the rules hold at each step.
        #[test]
        fn nobody_waits_for_ever_and_what_is_kept_is_there(
            (keep, queue) in (0u64..3, 1u64..4),
            groups in prop::collection::vec((0usize..2, prop::option::of(1u64..6), 0u64..5), 1..4),
            turns in prop::collection::vec(0usize..4, 0..60),
        ) {
            let agreed = agreed(1, keep, queue);
            let heap = heap(&agreed);
            let board = found(&heap, &agreed);
            join_all(&board);
            let names = ["a", "b", "c"];
            let all: Vec<(Group<'_>, Reader)> = groups.iter().zip(names).map(|(of, name)| {
                let rule = [Rule::Block, Rule::Drop][of.0];
                let of = Group { name, ..own(rule, of.1, of.2) };
                (of, attach(&board, of, 0, 9).unwrap())
            }).collect();
            let (mut step, mut had) = (0, vec![Vec::new(); all.len()]);
            // Then all in turn, until all is had.
            let last = (0..40).flat_map(|_| 0..4);
            for turn in turns.into_iter().chain(last) {
                let Some((of, reader)) = all.get(turn) else {
                    if put(&board, 0, step) == Begun::Yes {
                        step += 1;
                    }
                    continue;
                };
                let from = had[turn].last().map_or(0, |last| last + 1);
                if let Some(next) = next(&board, *reader, from) {
                    let queue = of.policy.queue.unwrap_or(queue);
                    match of.policy.rule {
                        Rule::Block => prop_assert!(next == from && step - next <= queue),
                        _ if of.policy.queue.is_some() => prop_assert!(step - next <= queue),
                        _ => {}
                    }
                    had[turn].push(next);
                }
                let done = had[turn].iter().rev().take(of.policy.keep as usize);
                let there = board.steps();
                for kept in done {
                    prop_assert!(there.contains(kept), "{kept} of {there:?}");
                }
            }
            prop_assert!(step >= 15);
        }
    }
}
