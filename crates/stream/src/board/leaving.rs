//! Who leaves while somebody keeps the lock, and who comes again.

#![allow(clippy::unwrap_used)]

use super::tests::{ALL, agreed, attach, found, group, heap, join_all, put, who};
use super::*;

#[test]
fn a_reader_that_left_while_the_board_was_locked_is_found_to_have() {
    let agreed = agreed(1, 1, 2);
    let heap = heap(&agreed);
    let board = found(&heap, &agreed);
    join_all(&board);
    for is_lost in [false, true] {
        let reader = attach(&board, group("a", 2, Rule::Block, From::Next), 0, 9).unwrap();
        let step = board.complete();
        assert_eq!(put(&board, 0, step), Begun::Yes);
        assert!(board.hold(&board.lock(who(9), ALL).unwrap(), reader, step));
        let guard = board.lock(who(1), ALL).unwrap();
        board.leave_unheard_as_reader(reader, is_lost);
        // What it looked at is not yet known to be free, and so its place is not either.
        assert_eq!(board.holders(step).len(), 1);
        let other = group(if is_lost { "b" } else { "c" }, 1, Rule::Drop, From::Next);
        let next = board.attach(&guard, other, 0, who(8), ALL).unwrap();
        assert_ne!(next.place(), reader.place());
        board.detach(&guard, next);
        let seen = board.seen_by_writers();
        assert!(board.reap(&guard, ALL));
        assert_ne!(board.seen_by_writers(), seen);
        assert!(board.holders(step).is_empty());
        // Of a group of which one is lost nobody is awaited.
        assert_eq!(board.needed().is_some(), !is_lost);
        let standing =
            board.readers().iter().find(|seat| seat.place == reader.place()).unwrap().standing;
        assert_eq!(standing, if is_lost { Standing::Died } else { Standing::Left });
        assert!(!board.reap(&guard, ALL));
    }
}

#[test]
fn a_rank_that_comes_again_begins_with_what_is_kept_for_it() {
    for (spills, begins) in [(true, 5), (false, 0)] {
        let agreed = Agreed { record: 1, spills, ..agreed(1, 1, 2) };
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        let readers = || group("a", 2, Rule::Spill, From::Next);
        let mut ranks =
            [0, 1].map(|rank| attach(&board, readers(), rank, 7 + rank as u32).unwrap());
        let lock = || board.lock(who(1), ALL).unwrap();
        for step in 0..8 {
            assert_eq!(put(&board, 0, step), Begun::Yes);
            board.recorded(&lock(), 0, step);
            ranks.iter().for_each(|rank| board.advance(&lock(), *rank, step.min(5)));
        }
        board.sweep_for_room(&lock());
        board.detach(&lock(), ranks[1]);
        ranks[1] = attach(&board, readers(), 1, 9).unwrap();
        assert_eq!(board.position(ranks[1]), begins);
        // And where nobody else is behind, with what is in memory.
        board.advance(&lock(), ranks[0], 8);
        board.detach(&lock(), ranks[1]);
        board.sweep_for_room(&lock());
        ranks[1] = attach(&board, readers(), 1, 9).unwrap();
        assert_eq!(board.position(ranks[1]), if spills { 7 } else { 0 });
    }
}

#[test]
fn a_writer_that_left_while_the_board_was_locked_is_found_to_have() {
    for (is_within, state) in [(false, State::Ended), (true, State::Failed(0))] {
        let agreed = agreed(2, 2, 2);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        join_all(&board);
        (0..2).for_each(|writer| assert_eq!(put(&board, writer, 0), Begun::Yes));
        let guard = board.lock(who(9), ALL).unwrap();
        board.leave_unheard(0, is_within);
        assert_eq!(board.state(), State::Live);
        let seen = board.seen_by_readers();
        assert!(board.reap(&guard, ALL));
        assert_ne!(board.seen_by_readers(), seen);
        board.close(&guard, 1, false);
        assert_eq!(board.state(), state);
        assert!(!board.reap(&guard, ALL));
    }
}
