//! The protocol with processes that are killed at each of its steps, and with many at once.

use super::*;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Steps until this thread is killed.
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

/// Does something that is killed after so many steps. True if it came to its end.
fn killed_after(steps: usize, work: impl FnOnce()) -> bool {
    LEFT.set(Some(steps));
    let done = catch_unwind(AssertUnwindSafe(work));
    LEFT.set(None);
    match done {
        Ok(()) => true,
        Err(why) if why.downcast_ref() == Some(&"killed") => false,
        Err(why) => resume_unwind(why),
    }
}

struct Heap {
    words: Vec<AtomicU64>,
    flags: Vec<AtomicU32>,
    slots: usize,
}

impl Heap {
    fn new(slots: usize) -> Heap {
        let (words, flags) = sizes(slots).unwrap();
        let words = (0..words).map(|_| AtomicU64::new(0)).collect();
        Heap { words, flags: (0..flags).map(|_| AtomicU32::new(0)).collect(), slots }
    }

    fn table(&self) -> Table<'_> {
        Table::new(&self.words, &self.flags, self.slots).unwrap()
    }
}

/// Processes with the numbers 1, 2, ... at the places 0, 1, ...
fn with_processes(heap: &Heap, count: u64) -> Table<'_> {
    let table = heap.table();
    for number in 1..=count {
        table.enter(JOINER, (number, number));
        let guard = table.lock(JOINER, &|_, _| true).unwrap();
        let place = table.join(&guard, (number, number)).unwrap();
        table.set_limit(place, u64::MAX);
    }
    table
}

fn ask(table: &Table<'_>, me: usize, block: u64, alive: Alive<'_>) -> Found {
    let mut guard = table.lock(me, alive).unwrap();
    if let Some(ended) = guard.ended.take() {
        for slot in table.reap(&guard, ended, me) {
            table.abandon(slot, me);
        }
    }
    table.ask(&guard, me, block, |slot| table.refer(slot, me))
}

fn refs(table: &Table<'_>) -> Vec<u64> {
    (0..table.slots).map(|s| table.refs(s).unwrap().load(Ordering::Relaxed)).collect()
}

/// Takes out of the table who has ended.
fn tidy(table: &Table<'_>, me: usize, alive: Alive<'_>) {
    for place in table.ended(alive) {
        let guard = table.lock(me, alive).unwrap();
        let mut broken = table.reap(&guard, place, me);
        if let Some(other) = guard.ended {
            broken.extend(table.reap(&guard, other, me));
        }
        drop(guard);
        broken.into_iter().for_each(|slot| table.abandon(slot, me));
    }
}

/// What a process does: claims, reads, looks at what others have read, gives back, evicts, fails.
fn work(table: &Table<'_>, me: usize, alive: Alive<'_>) {
    let Found::Claimed(a) = ask(table, me, 11, alive) else { panic!() };
    table.publish(a, me);
    let Found::Claimed(b) = ask(table, me, 12, alive) else { panic!() };
    assert_eq!(ask(table, me, 13, alive), Found::Full);
    assert!(matches!(ask(table, me, 10, alive), Found::Ready(_)));
    table.unrefer(a, me);
    assert_eq!(ask(table, me, 13, alive), Found::Claimed(a));
    table.abandon(a, me);
    table.unrefer(a, me);
    table.publish(b, me);
    table.set_limit(me, 1);
    table.unrefer(b, me);
    let guard = table.lock(me, alive).unwrap();
    let _ = table.surplus(&guard, me).map(|slot| table.abandon(slot, me));
}

#[test]
fn a_process_that_is_killed_at_any_step_leaves_what_others_go_on_with() {
    let mut steps = 0;
    loop {
        let mut seconds = 0;
        loop {
            let heap = Heap::new(3);
            let table = with_processes(&heap, 3);
            let dead = RefCell::new(HashSet::new());
            let alive = |number: u64, _: u64| !dead.borrow().contains(&number);
            let Found::Claimed(own) = ask(&table, 1, 10, &alive) else { panic!() };
            table.publish(own, 1);
            killed_after(steps, || work(&table, 0, &alive));
            dead.borrow_mut().insert(1);
            // Who tidies up after it is killed, too.
            let second = killed_after(seconds, || {
                assert!(!matches!(ask(&table, 2, 77, &alive), Found::Ready(_)));
                tidy(&table, 2, &alive);
            });
            dead.borrow_mut().insert(3);
            tidy(&table, 1, &alive);
            let what = (steps, seconds);
            assert_eq!(table.processes(), 1, "{what:?}");
            let mut expected = vec![0; 3];
            expected[own] = bit(1);
            assert_eq!(refs(&table), expected, "{what:?}");
            assert_eq!(ask(&table, 1, 10, &alive), Found::Ready(own), "{what:?}");
            // The other two can be had, and no third.
            let mut got = HashSet::from([own]);
            for block in [20, 21] {
                let Found::Claimed(slot) = ask(&table, 1, block, &alive) else {
                    panic!("{what:?}: {block} {:?}", ask(&table, 1, block, &alive))
                };
                assert!(got.insert(slot), "{what:?}");
            }
            assert_eq!(ask(&table, 1, 22, &alive), Found::Full, "{what:?}");
            if second {
                break;
            }
            seconds += 1;
            assert!(seconds < 1000, "{what:?}");
        }
        let heap = Heap::new(3);
        let table = with_processes(&heap, 3);
        let Found::Claimed(own) = ask(&table, 1, 10, &|_, _| true) else { panic!() };
        table.publish(own, 1);
        if killed_after(steps, || work(&table, 0, &|_, _| true)) {
            break;
        }
        steps += 1;
        assert!(steps < 1000);
    }
    assert!(steps > 30, "{steps}");
}

#[test]
fn what_somebody_refers_to_stays_and_is_read_once() {
    const THREADS: usize = 4;
    let heap = Heap::new(8);
    let table = with_processes(&heap, THREADS as u64);
    let contents: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
    let reading: Vec<AtomicU32> = (0..40).map(|_| AtomicU32::new(0)).collect();
    std::thread::scope(|scope| {
        for me in 0..THREADS {
            let (contents, reading) = (&contents, &reading);
            scope.spawn(move || {
                let mut random = me as u64 + 1;
                for _ in 0..4000 {
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let block = (random >> 33) % 20;
                    match ask(&table, me, block, &|_, _| true) {
                        Found::Ready(slot) => {
                            for _ in 0..20 {
                                assert_eq!(contents[slot].load(Ordering::Relaxed), block + 1);
                            }
                            table.unrefer(slot, me);
                        }
                        Found::Claimed(slot) => {
                            // Nobody else reads it.
                            let before = reading[block as usize].fetch_add(1, Ordering::SeqCst);
                            assert_eq!(before, 0);
                            contents[slot].store(block + 1, Ordering::Relaxed);
                            reading[block as usize].fetch_sub(1, Ordering::SeqCst);
                            if random & 1 << 60 == 0 {
                                table.publish(slot, me);
                                assert_eq!(contents[slot].load(Ordering::Relaxed), block + 1);
                                table.unrefer(slot, me);
                            } else {
                                table.unrefer(slot, me);
                                table.abandon(slot, me);
                            }
                        }
                        Found::Awaited(_) => {
                            if let Some((slot, state)) = table.awaited(block) {
                                table.wait(slot, state, &|_, _| true);
                            }
                        }
                        Found::Full => {}
                    }
                }
            });
        }
    });
    assert!(refs(&table).iter().all(|r| *r == 0));
}

#[test]
fn a_table_with_anything_in_it_is_no_danger() {
    let heap = Heap::new(5);
    let table = heap.table();
    let mut random = 7u64;
    for _ in 0..300 {
        for word in &heap.words {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            word.store(random, Ordering::Relaxed);
        }
        for flag in &heap.flags[BEFORE..] {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            flag.store((random >> 32) as u32, Ordering::Relaxed);
        }
        // Whoever has the lock there has ended.
        heap.flags[0].store((random >> 32) as u32, Ordering::Relaxed);
        let guard = table.lock(3, &|_, _| false).unwrap();
        table.reap(&guard, 99, 3);
        let found = table.ask(&guard, 3, random >> 20, |slot| assert!(slot < 5));
        if let Found::Ready(slot) | Found::Claimed(slot) = found {
            assert!(slot < 5);
        }
        drop(guard);
        assert!(table.processes() <= PROCESSES);
        assert!(!table.is(4096, &[0; KEY]));
    }
}

#[test]
fn the_lock_of_one_who_lives_is_not_taken() {
    let heap = Heap::new(1);
    let table = with_processes(&heap, 2);
    let guard = table.lock(0, &|_, _| true).unwrap();
    assert!(table.lock(1, &|_, _| true).is_none());
    drop(guard);
    let guard = table.lock(1, &|_, _| true).unwrap();
    assert!(guard.ended.is_none());
    // One that has ended gives it up.
    let other = table.lock(0, &|number, _| number != 2).unwrap();
    assert_eq!(other.ended, Some(1));
    std::mem::forget(guard);
}
