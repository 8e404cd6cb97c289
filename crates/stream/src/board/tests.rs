//! The protocol with processes that are killed at each of its steps.

use super::*;
use crate::words::{Alive, Who};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

thread_local! {
    /// Stores until this thread is killed.
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Before each store: perhaps the process does not come to it.
pub(super) fn step() {
    match LEFT.get() {
        Some(0) => {
            LEFT.set(None);
            resume_unwind(Box::new("killed"));
        }
        Some(n) => LEFT.set(Some(n - 1)),
        None => {}
    }
}

/// Does something that is killed after so many stores. How many were left when it came to its end; `None` if it did not.
fn killed_after(stores: usize, work: impl FnOnce()) -> Option<usize> {
    LEFT.set(Some(stores));
    let done = catch_unwind(AssertUnwindSafe(work));
    let left = LEFT.take();
    match done {
        Ok(()) => left,
        Err(why) if why.downcast_ref() == Some(&"killed") => None,
        Err(why) => resume_unwind(why),
    }
}

/// Memory of this process.
pub(crate) struct Heap {
    words: Vec<AtomicU64>,
    sleepers: (Mutex<()>, Condvar),
}

impl Heap {
    pub(crate) fn new(words: usize) -> Heap {
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Heap { words, sleepers: Default::default() }
    }
}

impl Words for &Heap {
    fn len(&self) -> usize {
        self.words.len()
    }

    fn get(&self, i: usize) -> u64 {
        self.words[i].load(Ordering::Acquire)
    }

    fn put(&self, i: usize, value: u64) {
        self.words[i].store(value, Ordering::Release);
    }

    fn swap_if(&self, i: usize, old: u64, new: u64) -> bool {
        self.words[i].compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn sleep(&self, i: usize, seen: u32, time: Duration) {
        let guard = self.sleepers.0.lock().unwrap();
        if self.get(i) as u32 == seen {
            drop(self.sleepers.1.wait_timeout(guard, time).unwrap());
        }
    }

    fn wake(&self, _: usize) {
        let _guard = self.sleepers.0.lock().unwrap();
        self.sleepers.1.notify_all();
    }
}

pub(super) fn agreed(writers: u64, keep: u64, queue: u64) -> Agreed {
    let (all, memory) = (writers, 1 << 30);
    Agreed { writers, keep, queue, memory, expect: 0, all, run: 0, record: 0, spills: false }
}

pub(super) fn who(number: u32) -> Who {
    Who { number, start: 7 }
}

pub(super) const ALL: Alive<'static> = &|_| true;

pub(super) fn found<'a>(heap: &'a Heap, agreed: &Agreed) -> Board<&'a Heap> {
    Board::found(heap, agreed, (5, 1), 1).unwrap()
}

pub(super) fn heap(agreed: &Agreed) -> Heap {
    Heap::new(agreed.words().unwrap())
}

/// Memory of a board of so many writers, and a reader of one, for tests of its own.
pub(super) fn heap_of(writers: u64) -> Heap {
    heap(&agreed(writers, 1, 2))
}

pub(super) fn reader_of(heap: &Heap) -> (Board<&Heap>, Reader) {
    let board = found(heap, &agreed(1, 1, 2));
    let reader = attach(&board, group("a", 1, Rule::Drop, From::Next), 0, 9).unwrap();
    (board, reader)
}

/// Writer number n is process n + 1.
pub(super) fn join_all(board: &Board<&Heap>) {
    for writer in 0..board.writers() {
        let me = who(writer as u32 + 1);
        let guard = board.lock(me, ALL).unwrap();
        board.join(&guard, writer, me, ALL).unwrap();
    }
}

pub(super) fn group(name: &str, size: u64, rule: Rule, from: From) -> Group<'_> {
    Group { name, size, policy: Policy::of(rule), from, until: u64::MAX }
}

pub(super) fn attach(
    board: &Board<&Heap>,
    group: Group<'_>,
    rank: u64,
    number: u32,
) -> Result<Reader, Taken> {
    let guard = board.lock(who(number), ALL).unwrap();
    board.attach(&guard, group, rank, who(number), ALL)
}

pub(super) fn put(board: &Board<&Heap>, writer: usize, step: u64) -> Begun {
    let guard = board.lock(who(1), ALL).unwrap();
    let begun = board.begin(&guard, step);
    if begun == Begun::Yes {
        let entry = Entry { segment: writer as u64, offset: step, len: 3 };
        assert!(board.end(&guard, writer, step, entry, 10));
    }
    begun
}

fn next(board: &Board<&Heap>, reader: Reader) -> Next {
    let guard = board.lock(who(9), ALL).unwrap();
    board.next(&guard, reader, board.position(reader), true)
}

fn done(board: &Board<&Heap>, reader: Reader, step: u64) {
    let guard = board.lock(who(9), ALL).unwrap();
    board.let_go(&guard, reader, step);
    board.advance(&guard, reader, step + 1);
}

#[test]
fn a_step_is_seen_when_all_writers_have_ended_it() {
    let agreed = agreed(3, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let reader = attach(&board, group("a", 1, Rule::Block, From::Next), 0, 9).unwrap();
    for writer in [2, 0] {
        assert_eq!(put(&board, writer, 0), Begun::Yes);
        assert_eq!((next(&board, reader), board.steps()), (Next::Wait, vec![]));
    }
    assert_eq!(put(&board, 1, 0), Begun::Yes);
    assert_eq!(next(&board, reader), Next::Step { step: 0, dropped: 0 });
    assert_eq!(board.entry(0, 2), Some(Entry { segment: 2, offset: 0, len: 3 }));
    assert_eq!(board.facts(0).unwrap().1, 30);
    assert_eq!((board.entry(0, 3), board.entry(1, 0)), (None, None));
    // Nobody ends a step twice.
    let guard = board.lock(who(1), ALL).unwrap();
    assert!(!board.end(&guard, 1, 0, Entry::default(), 1));
}

#[test]
fn writers_wait_for_those_who_are_behind_and_no_longer_when_they_have_gone() {
    let agreed = agreed(1, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let first = attach(&board, group("a", 2, Rule::Block, From::Next), 0, 8).unwrap();
    assert_eq!((put(&board, 0, 0), put(&board, 0, 1)), (Begun::Yes, Begun::Yes));
    done(&board, first, 0);
    // The other one has not come yet.
    let Begun::Full(Full::Needed(needed)) = put(&board, 0, 2) else { panic!() };
    assert_eq!((needed.step, needed.rank, needed.who), (0, 1, None));
    assert_eq!(board.group_of(&needed), "a");
    let second = attach(&board, group("a", 2, Rule::Block, From::Next), 1, 9).unwrap();
    assert_eq!(next(&board, second), Next::Step { step: 0, dropped: 0 });
    done(&board, second, 0);
    assert_eq!(put(&board, 0, 2), Begun::Yes);
    // One of them ends without a word, and the other one goes.
    let Begun::Full(Full::Needed(needed)) = put(&board, 0, 3) else { panic!() };
    assert_eq!((needed.step, needed.who), (1, Some(who(8))));
    let guard = board.lock(who(1), ALL).unwrap();
    assert!(board.reap(&guard, &|w| w.number != 8));
    assert!(!board.reap(&guard, &|w| w.number != 8));
    board.detach(&guard, second);
    drop(guard);
    assert_eq!(board.groups(), 0);
    assert_eq!((put(&board, 0, 3), put(&board, 0, 4)), (Begun::Yes, Begun::Yes));
    let seats: Vec<(u64, Standing)> =
        board.readers().iter().map(|s| (s.rank, s.standing)).collect();
    assert_eq!(seats, [(0, Standing::Died), (1, Standing::Left)]);
    // The last one is kept, for who comes late.
    assert_eq!(board.steps(), [4]);
}

#[test]
fn a_group_is_there_until_all_of_it_have_come_and_gone() {
    let agreed = agreed(1, 1, 4);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let leave = |reader| board.detach(&board.lock(who(9), ALL).unwrap(), reader);
    let of = group("a", 3, Rule::Block, From::Next);
    let first = attach(&board, of, 0, 8).unwrap();
    for step in 0..4 {
        assert_eq!(put(&board, 0, step), Begun::Yes);
        done(&board, first, step);
    }
    leave(first);
    // It is waited for, and what it has not had stays.
    assert_eq!((board.groups(), board.steps()), (1, vec![0, 1, 2, 3]));
    let Begun::Full(Full::Needed(needed)) = put(&board, 0, 4) else { panic!() };
    assert_eq!((needed.step, needed.rank, needed.who), (0, 1, None));
    assert!(board.awaits("a", 3, 1) && board.awaits("a", 3, 2));
    assert!(!board.awaits("a", 3, 0) && !board.awaits("a", 2, 1) && !board.awaits("b", 3, 1));
    assert!(!board.awaits("a", 3, 3) && !board.reap(&board.lock(who(1), ALL).unwrap(), ALL));
    for rank in [2, 1] {
        let late = attach(&board, of, rank, 9).unwrap();
        assert_eq!(next(&board, late), Next::Step { step: 0, dropped: 0 });
        assert!(!board.awaits("a", 3, rank));
        leave(late);
    }
    assert_eq!((board.groups(), board.steps()), (0, vec![3]));
    assert_eq!(put(&board, 0, 4), Begun::Yes);
    // Of who may be left behind the last step stays.
    let agreed = self::agreed(1, 0, 4);
    let heap = self::heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let of = group("a", 2, Rule::Drop, From::Next);
    let first = attach(&board, of, 0, 8).unwrap();
    (0..3).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
    board.detach(&board.lock(who(9), ALL).unwrap(), first);
    assert_eq!((board.groups(), board.steps()), (1, vec![2]));
}

#[test]
fn who_has_not_come_is_not_waited_for_for_ever() {
    let agreed = agreed(1, 1, 4);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let lock = || board.lock(who(9), ALL).unwrap();
    let of = |size, until| Group { until, ..group("a", size, Rule::Block, From::Oldest) };
    // The time was over when the first one went.
    let first = attach(&board, of(2, 1), 0, 8).unwrap();
    board.detach(&lock(), first);
    assert_eq!(board.groups(), 0);
    // It is over while nobody is there.
    let first = attach(&board, of(2, u64::MAX), 0, 8).unwrap();
    board.detach(&lock(), first);
    assert_eq!(board.groups(), 1);
    let at = (0..GROUPS).map(|g| board.group_at(g)).find(|at| board.get(*at) == seats::HERE);
    board.put(at.unwrap() + groups::G_UNTIL, 1);
    let seen = board.seen_by_writers();
    assert!(board.reap(&lock(), ALL) && board.seen_by_writers() != seen);
    assert_eq!(board.groups(), 0);
    // One of it was killed, before the others went or after that.
    for last in [8, 9] {
        let first = attach(&board, of(3, u64::MAX), 0, 8).unwrap();
        let second = attach(&board, of(3, u64::MAX), 1, 9).unwrap();
        if last == 8 {
            board.detach(&lock(), second);
            assert!(board.reap(&lock(), &|w| w.number != 8));
        } else {
            assert!(board.reap(&lock(), &|w| w.number != 8));
            assert_eq!(board.groups(), 1);
            board.detach(&lock(), second);
        }
        assert_eq!(board.groups(), 0, "{last}");
        let lost = attach(&board, of(2, u64::MAX), 0, 8).unwrap();
        board.lose(&lock(), lost);
        assert_eq!((board.groups(), first == second), (0, false));
    }
    // Another one of the name takes its place, and the same one goes on.
    let first = attach(&board, of(3, u64::MAX), 0, 8).unwrap();
    assert_eq!(
        attach(&board, of(2, u64::MAX), 1, 9),
        Err(Taken::Other(3, Policy::of(Rule::Block)))
    );
    board.detach(&lock(), first);
    attach(&board, of(3, u64::MAX), 0, 8).unwrap();
    assert_eq!(board.groups(), 1);
    assert!(board.reap(&lock(), &|w| w.number != 8) && board.groups() == 0);
    let first = attach(&board, of(3, u64::MAX), 0, 8).unwrap();
    board.detach(&lock(), first);
    attach(&board, of(2, u64::MAX), 1, 9).unwrap();
    assert!(board.groups() == 1 && board.awaits("a", 2, 0) && !board.awaits("a", 3, 1));
}

#[test]
fn whoever_of_a_group_is_killed_wherever_it_is_not_there_for_ever() {
    let mut awaited = 0;
    let died = (0..).take_while(|after| {
        let agreed = agreed(1, 1, 4);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let of = group("a", 2, Rule::Block, From::Next);
        let end = killed_after(*after, || {
            let guard = board.lock(who(8), ALL).unwrap();
            let first = board.attach(&guard, of, 0, who(8), ALL).unwrap();
            board.detach(&guard, first);
        });
        let alive = |w: Who| end.is_some() || w.number != 8;
        let guard = board.lock(who(1), &alive).unwrap();
        board.reap(&guard, &alive);
        // It went in order, as far as can be seen, or is gone without a word.
        if board.groups() == 1 {
            awaited += 1;
            assert!(board.readers()[0].standing == Standing::Left && board.awaits("a", 2, 1));
            let late = board.attach(&guard, of, 1, who(9), &alive).unwrap();
            board.detach(&guard, late);
        }
        assert_eq!(board.groups(), 0, "{after}");
        end.is_none()
    });
    assert!(died.count() > 20);
    assert!(awaited >= 1);
}

#[test]
fn a_writer_that_died_ends_its_stream_wherever_who_sees_it_is_killed() {
    let died = (0..).take_while(|after| {
        let agreed = agreed(2, 2, 1);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let end = killed_after(*after, || {
            let alive = |w: Who| w.number != 2;
            let guard = board.lock(who(9), &alive).unwrap();
            board.reap(&guard, &alive);
        });
        let alive = |w: Who| ![2, 9].contains(&w.number);
        let guard = board.lock(who(1), &alive).unwrap();
        board.reap(&guard, &alive);
        assert!(matches!(board.state(), State::Failed(1)), "{after}");
        end.is_none()
    });
    assert!(died.count() > 3);
}

#[test]
fn who_may_be_left_behind_is_told_what_went() {
    let agreed = agreed(1, 2, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let reader = attach(&board, group("a", 1, Rule::Drop, From::Next), 0, 9).unwrap();
    (0..3).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
    // What somebody looks at stays, whatever is newer.
    assert_eq!(next(&board, reader), Next::Step { step: 1, dropped: 1 });
    (3..9).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
    assert_eq!(board.steps(), [1, 7, 8]);
    assert_eq!(board.holders(1), [("process 9".to_owned(), "a".to_owned(), 0)]);
    // Who comes late and is waited for misses none in between.
    let late = attach(&board, group("late", 1, Rule::Block, From::Oldest), 0, 8).unwrap();
    assert_eq!(board.position(late), 7);
    let guard = board.lock(who(8), ALL).unwrap();
    board.detach(&guard, late);
    drop(guard);
    done(&board, reader, 1);
    assert_eq!(board.steps(), [7, 8]);
    assert_eq!(next(&board, reader), Next::Step { step: 7, dropped: 5 });
    // What it is given counts, and not what it only looks at.
    let counted = || (board.readers()[0].had, board.readers()[0].dropped);
    assert_eq!(counted(), (0, 0));
    board.count_given(reader, 7, 5);
    assert_eq!(counted(), (1, 5));
    assert_eq!(board.readers()[0].ranges, [(7, 7)]);
    // More than there is room for cannot be looked at: writers wait then.
    let guard = board.lock(who(9), ALL).unwrap();
    assert!(board.hold(&guard, reader, 8) && !board.hold(&guard, reader, 6));
}

#[test]
fn who_may_be_left_behind_has_the_last_step_also_if_none_is_kept() {
    let agreed = agreed(1, 0, 1);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let reader = attach(&board, group("a", 1, Rule::Drop, From::Next), 0, 9).unwrap();
    (0..5).for_each(|step| assert_eq!(put(&board, 0, step), Begun::Yes));
    assert_eq!(board.steps(), [4]);
    let guard = board.lock(who(1), ALL).unwrap();
    board.close(&guard, 0, false);
    drop(guard);
    assert_eq!(next(&board, reader), Next::Step { step: 4, dropped: 4 });
    done(&board, reader, 4);
    assert_eq!((next(&board, reader), board.steps()), (Next::Over(State::Ended), vec![]));
}

#[test]
fn where_there_is_no_room_what_nobody_waits_for_goes() {
    let agreed = agreed(1, 0, 1);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    attach(&board, group("a", 1, Rule::Drop, From::Next), 0, 9).unwrap();
    assert_eq!(put(&board, 0, 0), Begun::Yes);
    let guard = board.lock(who(1), ALL).unwrap();
    assert!(board.sweep_for_room(&guard) && !board.sweep_for_room(&guard));
    assert!(board.steps().is_empty());
}

#[test]
fn no_writer_is_further_ahead_of_the_others_than_readers_may_be_behind() {
    let agreed = agreed(2, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    assert_eq!((put(&board, 0, 0), put(&board, 0, 1)), (Begun::Yes, Begun::Yes));
    assert_eq!(put(&board, 0, 2), Begun::Full(Full::Behind(0)));
    let seen = board.seen_by_writers();
    assert_eq!(put(&board, 1, 0), Begun::Yes);
    // It is told.
    assert_ne!(board.seen_by_writers(), seen);
    assert_eq!(put(&board, 0, 2), Begun::Yes);
}

#[test]
fn who_looks_at_steps_for_ever_is_named() {
    let agreed = agreed(1, 1, 1);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let reader = attach(&board, group("a", 1, Rule::Drop, From::Next), 0, 9).unwrap();
    let mut step = 0;
    let full = loop {
        match put(&board, 0, step) {
            Begun::Yes => {}
            other => break other,
        }
        let guard = board.lock(who(9), ALL).unwrap();
        assert!(board.hold(&guard, reader, step));
        step += 1;
    };
    assert_eq!(full, Begun::Full(Full::Held(0)));
    assert_eq!(step, OWN + SPARE);
    done(&board, reader, 0);
    assert_eq!(put(&board, 0, step), Begun::Yes);
}

#[test]
fn no_step_becomes_complete_when_readers_were_told_which_is_the_last() {
    let agreed = agreed(2, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let reader = attach(&board, group("a", 1, Rule::Block, From::Next), 0, 9).unwrap();
    let guard = board.lock(who(1), ALL).unwrap();
    assert_eq!(board.begin(&guard, 0), Begun::Yes);
    drop(guard);
    assert_eq!(put(&board, 1, 0), Begun::Yes);
    let guard = board.lock(who(9), ALL).unwrap();
    assert!(board.reap(&guard, &|w| w.number != 2));
    drop(guard);
    assert_eq!(next(&board, reader), Next::Over(State::Failed(1)));
    let guard = board.lock(who(1), ALL).unwrap();
    assert!(!board.end(&guard, 0, 0, Entry::default(), 1));
    drop(guard);
    assert_eq!((board.complete(), board.steps()), (0, vec![]));
}

#[test]
fn a_writer_that_ends_early_ends_the_stream_and_what_is_complete_stays() {
    for how in 0..3 {
        let agreed = agreed(2, 1, 2);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let reader = attach(&board, group("a", 1, Rule::Block, From::Next), 0, 9).unwrap();
        assert_eq!((put(&board, 0, 0), put(&board, 1, 0)), (Begun::Yes, Begun::Yes));
        assert_eq!(put(&board, 0, 1), Begun::Yes);
        let guard = board.lock(who(1), ALL).unwrap();
        match how {
            0 => assert!(board.reap(&guard, &|w| w.number != 2)),
            1 => board.close(&guard, 1, false),
            _ => {
                board.close(&guard, 0, false);
                assert_eq!(board.state(), State::Live);
                board.close(&guard, 1, true);
            }
        }
        drop(guard);
        assert_eq!(board.state(), State::Failed(1), "{how}");
        assert!(board.ended_at() > 0);
        assert_eq!(put(&board, 0, 2), Begun::Over(State::Failed(1)));
        assert_eq!(next(&board, reader), Next::Step { step: 0, dropped: 0 });
        done(&board, reader, 0);
        assert_eq!(next(&board, reader), Next::Over(State::Failed(1)));
    }
}

#[test]
fn a_stream_ends_when_all_have_closed_it() {
    let agreed = agreed(2, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    put(&board, 0, 0);
    put(&board, 1, 0);
    let guard = board.lock(who(1), ALL).unwrap();
    board.close(&guard, 1, false);
    assert_eq!(board.state(), State::Live);
    board.close(&guard, 0, false);
    assert_eq!(board.state(), State::Ended);
    drop(guard);
    // Who comes late finds what was kept.
    let late = attach(&board, group("late", 1, Rule::Block, From::Oldest), 0, 9).unwrap();
    assert_eq!(next(&board, late), Next::Step { step: 0, dropped: 0 });
    let guard = board.lock(who(1), ALL).unwrap();
    assert_eq!(board.join(&guard, 0, who(1), ALL), Err(Taken::Over(State::Ended)));
}

#[test]
fn places_are_had_once() {
    let agreed = agreed(2, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let guard = board.lock(who(5), ALL).unwrap();
    assert_eq!(board.join(&guard, 0, who(5), ALL), Err(Taken::By(who(1))));
    assert_eq!(board.join(&guard, 2, who(5), ALL), Err(Taken::None));
    let died = board.join(&guard, 0, who(5), &|_| false);
    assert_eq!(died, Err(Taken::Was(Standing::Died)));
    drop(guard);
    let of = |size, rule| group("a", size, rule, From::Next);
    let first = attach(&board, of(2, Rule::Block), 0, 8).unwrap();
    assert_eq!(attach(&board, of(2, Rule::Block), 0, 9), Err(Taken::By(who(8))));
    assert_eq!(
        attach(&board, of(3, Rule::Block), 1, 9),
        Err(Taken::Other(2, Policy::of(Rule::Block)))
    );
    assert_eq!(
        attach(&board, of(2, Rule::Drop), 1, 9),
        Err(Taken::Other(2, Policy::of(Rule::Block)))
    );
    assert_eq!(attach(&board, of(2, Rule::Block), 2, 9), Err(Taken::None));
    assert_eq!(
        attach(&board, of(2000, Rule::Block), 2, 9),
        Err(Taken::Other(2, Policy::of(Rule::Block)))
    );
    let huge = group("huge", 1 << 20, Rule::Block, From::Next);
    assert_eq!(attach(&board, huge, 2, 9), Err(Taken::Full));
    // A place of who has ended is free.
    let guard = board.lock(who(9), ALL).unwrap();
    let alive = |w: Who| w.number != 8;
    let again = board.attach(&guard, of(2, Rule::Block), 0, who(9), &alive).unwrap();
    drop(guard);
    assert_ne!(first, again);
    // Places come again, and names of groups do.
    for round in 0..3 * READERS as u64 {
        let name = format!("group {round}");
        let reader = attach(&board, group(&name, 1, Rule::Block, From::Next), 0, 7).unwrap();
        let guard = board.lock(who(7), ALL).unwrap();
        board.detach(&guard, reader);
    }
    assert_eq!(board.groups(), 1);
    // Who has gone is told of until the place of the group is another one's.
    assert_eq!(board.readers().len(), GROUPS);
    // The others are not to be found any more; there are so many at a time.
    for rank in 0..READERS as u64 - 1 {
        attach(
            &board,
            group("many", 1000, Rule::Drop, From::Next),
            rank.min(999),
            rank as u32 + 50,
        )
        .map_or_else(|e| assert_eq!((rank > 999, e), (true, Taken::By(who(1049)))), |_| {});
    }
    let groups =
        (0..).map(|i| attach(&board, group(&format!("g{i}"), 1, Rule::Drop, From::Next), 0, 7));
    let full = groups.take(100).find_map(std::result::Result::err);
    assert_eq!(full, Some(Taken::Full));
}

#[test]
fn what_is_no_board_is_none() {
    let agreed = agreed(2, 1, 2);
    let of = heap(&agreed);
    assert!(Board::open(&of).is_none());
    found(&of, &agreed);
    assert_eq!(Board::open(&of).unwrap().agreed(), agreed);
    for (word, value) in
        [(0, 1), (1, 8), (WRITERS, 1 << 40), (WRITERS, 0), (QUEUE, 0), (KEEP, u64::MAX), (SLOTS, 3)]
    {
        let bad = heap(&agreed);
        found(&bad, &agreed);
        (&bad).put(word, value);
        assert!(Board::open(&bad).is_none(), "{word} {value}");
    }
    let small = Heap::new(agreed.words().unwrap() - 1);
    assert!(Board::found(&small, &agreed, (1, 1), 1).is_none());
}

/// All that two writers and a reader do, killed after so many stores; the others go on. False if it was not killed.
fn with_a_kill(victim: u32, after: usize) -> bool {
    let agreed = agreed(2, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    let (mut died, mut reader, mut left) = (false, None, after);
    let of = group("a", 1, Rule::Block, From::Next);
    // Each is a process that does something, in turn.
    let mut run = |number: u32, died: &mut bool, work: &mut dyn FnMut(Alive<'_>)| {
        let gone = *died;
        let alive = |w: Who| !(gone && w.number == victim);
        if number != victim {
            work(&alive);
        } else if !gone {
            match killed_after(left, || work(&alive)) {
                Some(stores) => left = stores,
                None => *died = true,
            }
        }
    };
    for writer in 0..2u32 {
        run(writer + 1, &mut died, &mut |alive| {
            let guard = board.lock(who(writer + 1), alive).unwrap();
            let _ = board.join(&guard, writer as usize, who(writer + 1), alive);
        });
    }
    run(3, &mut died, &mut |alive| {
        let guard = board.lock(who(3), alive).unwrap();
        reader = board.attach(&guard, of, 0, who(3), alive).ok();
    });
    for step in 0..4 {
        for writer in 0..2u32 {
            run(writer + 1, &mut died, &mut |alive| {
                let guard = board.lock(who(writer + 1), alive).unwrap();
                board.reap(&guard, alive);
                let begun = board.begin(&guard, step);
                // All wait for a writer that was killed before it had come.
                let awaited = (0..2).any(|w| board.writer(w).standing == Standing::Awaited);
                assert!(awaited || !matches!(begun, Begun::Full(_)), "{begun:?}");
                if begun == Begun::Yes {
                    let entry = Entry { segment: u64::from(writer), offset: step, len: 9 };
                    board.end(&guard, writer as usize, step, entry, 1);
                }
            });
        }
        run(3, &mut died, &mut |alive| {
            let guard = board.lock(who(3), alive).unwrap();
            board.reap(&guard, alive);
            let Some(reader) = reader else { return };
            match board.next(&guard, reader, board.position(reader), true) {
                Next::Step { step, dropped } => {
                    // Whole, whoever was killed.
                    for writer in 0..2 {
                        let entry = Entry { segment: writer as u64, offset: step, len: 9 };
                        assert_eq!((board.entry(step, writer), dropped), (Some(entry), 0));
                    }
                    board.let_go(&guard, reader, step);
                    board.advance(&guard, reader, step + 1);
                }
                Next::Wait => assert_eq!(board.state(), State::Live),
                Next::Over(state) => assert_eq!(state, State::Failed(victim as usize - 1)),
            }
        });
    }
    let guard = board.lock(who(50), &|w| !(died && w.number == victim)).unwrap();
    board.reap(&guard, &|w| !(died && w.number == victim));
    match victim {
        3 => {
            // Writers went on to the end, and nobody looks at what they have put.
            assert_eq!(board.complete(), 4);
            assert_eq!(board.steps(), [3]);
            assert_eq!(board.holders(3), []);
            assert!(!died || board.groups() == 0);
        }
        _ if died && board.writer(victim as usize - 1).standing != Standing::Awaited => {
            assert_eq!(board.state(), State::Failed(victim as usize - 1));
        }
        _ => {}
    }
    died
}

#[test]
fn whoever_is_killed_wherever_the_others_go_on() {
    for victim in 1..=3 {
        let kills = (0..).take_while(|after| with_a_kill(victim, *after)).count();
        assert!(kills > 20, "{victim}: {kills}");
    }
}

#[test]
fn what_is_recorded_goes_from_memory_when_there_is_no_room() {
    let agreed = agreed(2, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    let reader = attach(&board, group("a", 1, Rule::Spill, From::Next), 0, 9).unwrap();
    assert_eq!(board.spilled(), Some(0));
    let lock = || board.lock(who(1), ALL).unwrap();
    // Nobody waits for it, and nothing goes that it has not had.
    for step in 0..6 {
        assert_eq!((put(&board, 0, step), put(&board, 1, step)), (Begun::Yes, Begun::Yes));
    }
    assert!(!board.sweep_for_room(&lock()));
    assert_eq!(board.steps(), [0, 1, 2, 3, 4, 5]);
    // Only when all writers have recorded it.
    board.recorded(&lock(), 0, 0);
    board.recorded(&lock(), 0, 1);
    assert!(!board.sweep_for_room(&lock()));
    board.recorded(&lock(), 1, 0);
    assert_eq!(board.needed_in_memory().map(|needed| needed.step), Some(1));
    // As long as there is room it stays.
    assert_eq!(put(&board, 0, 6), Begun::Yes);
    assert_eq!(board.first_in_memory(), 0);
    assert!(board.sweep_for_room(&lock()));
    assert_eq!((board.first_in_memory(), board.spilled()), (1, Some(0)));
    assert_eq!(board.next_exactly(&lock(), reader, 0), None);
    assert_eq!(board.next_exactly(&lock(), reader, 1), Some(Next::Step { step: 1, dropped: 0 }));
    board.recorded(&lock(), 1, 1);
    assert!(!board.sweep_for_room(&lock()), "it is looked at");
    board.let_go(&lock(), reader, 1);
    assert!(board.sweep_for_room(&lock()));
    // What is due: where there is little room, or none.
    assert!(!board.is_due(2, 6) && board.is_due(2, 9));
    let seen = board.seen_by_recorder(1);
    board.hurry(&lock());
    assert!(board.is_due(2, 6) && board.is_due(7, 6) && !board.is_due(8, 6));
    assert_ne!(board.seen_by_recorder(1), seen);
    // Others that are waited for keep it in memory.
    let other = attach(&board, group("b", 1, Rule::Block, From::Oldest), 0, 8).unwrap();
    (2..6).for_each(|step| (0..2).for_each(|writer| board.recorded(&lock(), writer, step)));
    assert!(!board.sweep_for_room(&lock()));
    board.advance(&lock(), other, 4);
    assert!(board.sweep_for_room(&lock()));
    assert_eq!(board.steps(), [4, 5]);
    board.detach(&lock(), reader);
    assert_eq!(board.spilled(), None);
}
