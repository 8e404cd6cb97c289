//! The protocol under a scheduler that tries many interleavings of processes. A lost wake-up or a deadlock is a failure, and so is a
//! step that is not whole; the schedule is printed.
//!
//! Without kills no wait comes to an end by itself. With them all do, as time passes, and a process that is killed goes on as a ghost: what
//! it does to the memory from then on is not done.

use super::*;
use crate::words::Who;
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use shuttle::sync::{Arc, Condvar, Mutex};
use shuttle::{Config, Runner, thread};
use std::time::Duration;

const STEPS: u64 = 3;
/// Stores that a process may make before it is killed.
const NEVER: usize = usize::MAX;

struct Memory {
    words: Vec<AtomicU64>,
    sleepers: Mutex<()>,
    awake: Condvar,
    /// Whether processes live, by their numbers.
    lives: Vec<AtomicBool>,
    kills: bool,
}

/// The memory, as a process has it.
struct Process {
    memory: Arc<Memory>,
    number: u32,
    /// Stores until it is killed.
    left: AtomicUsize,
}

impl Process {
    fn is_ghost(&self) -> bool {
        !self.memory.lives[self.number as usize].load(Ordering::SeqCst)
    }

    /// False of what is not done any more.
    fn acts(&self) -> bool {
        if self.is_ghost() {
            return false;
        }
        let left = self.left.load(Ordering::SeqCst);
        if left == 0 {
            self.memory.lives[self.number as usize].store(false, Ordering::SeqCst);
        } else if left != NEVER {
            self.left.store(left - 1, Ordering::SeqCst);
        }
        left > 0
    }
}

impl Words for &Process {
    fn len(&self) -> usize {
        self.memory.words.len()
    }

    fn get(&self, i: usize) -> u64 {
        self.memory.words[i].load(Ordering::SeqCst)
    }

    fn put(&self, i: usize, value: u64) {
        if self.acts() {
            self.memory.words[i].store(value, Ordering::SeqCst);
        }
    }

    fn swap_if(&self, i: usize, old: u64, new: u64) -> bool {
        let word = &self.memory.words[i];
        !self.acts() || word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    fn sleep(&self, i: usize, seen: u32, _: Duration) {
        if self.is_ghost() || self.memory.kills {
            thread::yield_now();
            return;
        }
        let guard = self.memory.sleepers.lock().unwrap();
        if self.get(i) as u32 == seen {
            drop(self.memory.awake.wait(guard).unwrap());
        }
    }

    fn wake(&self, _: usize) {
        if !self.is_ghost() {
            let _guard = self.memory.sleepers.lock().unwrap();
            self.memory.awake.notify_all();
        }
    }
}

impl Process {
    fn who(&self) -> Who {
        Who { number: self.number, start: 1 }
    }

    fn alive(&self, who: Who) -> bool {
        self.memory.lives[who.number as usize].load(Ordering::SeqCst)
    }

    fn lock<'b>(&'b self, board: &'b Board<&'b Process>) -> Guard<'b, &'b Process> {
        loop {
            // Who keeps it goes on some time.
            if let Ok(guard) = board.lock(self.who(), &|who| self.alive(who)) {
                return guard;
            }
        }
    }

    /// Now and then it is looked who has ended.
    fn look(&self, board: &Board<&Process>, guard: &Guard<'_, &Process>) {
        if self.memory.kills {
            board.reap(guard, &|who| self.alive(who));
        }
    }
}

fn write(process: &Process, writer: usize) {
    let board = Board::open(process).unwrap();
    for step in 0..STEPS {
        loop {
            let seen = board.seen_by_writers();
            let guard = process.lock(&board);
            process.look(&board, &guard);
            let begun = board.begin(&guard, step);
            drop(guard);
            match begun {
                _ if process.is_ghost() => return,
                Begun::Yes => break,
                Begun::Full(_) => board.sleep_as_writer(seen, Duration::from_secs(1)),
                Begun::Over(state) => {
                    assert!(process.memory.kills, "{state:?}");
                    return;
                }
            }
        }
        let guard = process.lock(&board);
        let entry = Entry { segment: writer as u64, offset: step, len: 8 };
        board.end(&guard, writer, step, entry, 8);
    }
    let guard = process.lock(&board);
    board.close(&guard, writer, false);
}

fn read(process: &Process, policy: Policy) {
    let name = format!("{}", process.number);
    let group = Group { name: &name, size: 1, policy, from: From::Oldest, until: u64::MAX };
    if let Some(reader) = come(process, group, 0) {
        read_on(process, reader, policy);
    }
}

/// Takes the place of a rank of a group; nothing if it is killed meanwhile.
fn come(process: &Process, group: Group<'_>, rank: u64) -> Option<Reader> {
    let board = Board::open(process).unwrap();
    let guard = process.lock(&board);
    let came = board.attach(&guard, group, rank, process.who(), &|who| process.alive(who));
    assert!(came.is_ok() || process.is_ghost());
    came.ok()
}

/// Reads to the end, or until it is killed: the steps that it was given.
fn read_on(process: &Process, reader: Reader, policy: Policy) -> Vec<u64> {
    let board = Board::open(process).unwrap();
    let mut next = board.position(reader);
    let mut had = Vec::new();
    loop {
        let seen = board.seen_by_readers();
        let guard = process.lock(&board);
        process.look(&board, &guard);
        board.advance(&guard, reader, next);
        let found = board.next(&guard, reader, next, true);
        if policy.rule == Rule::Block && policy.keep > 0 && !had.is_empty() {
            assert!(board.is_there(next - 1) || process.is_ghost(), "step {} is kept", next - 1);
        }
        drop(guard);
        match found {
            _ if process.is_ghost() => return had,
            Next::Step { step, dropped } => {
                assert!(step == next + dropped && (policy.rule == Rule::Drop || dropped == 0));
                had.push(step);
                // It stays as it is while it is looked at.
                for _ in 0..2 {
                    for writer in 0..board.writers() {
                        let entry = Entry { segment: writer as u64, offset: step, len: 8 };
                        let there = board.entry(step, writer);
                        assert!(there == Some(entry) || process.is_ghost(), "{there:?}");
                    }
                    thread::yield_now();
                }
                let guard = process.lock(&board);
                board.let_go(&guard, reader, step);
                next = step + 1;
            }
            Next::Wait => board.sleep_as_reader(seen, Duration::from_secs(1)),
            Next::Over(state) => {
                assert!(
                    state == State::Ended && next == STEPS || process.memory.kills,
                    "{state:?} {next}"
                );
                break;
            }
        }
    }
    let guard = process.lock(&board);
    board.detach(&guard, reader);
    had
}

/// The memory of a board that two writers are about to join.
fn memory(keep: u64, expect: u64, record: u64, kills: bool) -> (Agreed, Arc<Memory>) {
    let (queue, run) = (1, 0);
    let (memory, spills) = (1 << 20, record != 0);
    let agreed = Agreed { writers: 2, keep, queue, memory, expect, all: 2, run, record, spills };
    let words = agreed.words().unwrap();
    let memory = Memory {
        words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        sleepers: Mutex::new(()),
        awake: Condvar::new(),
        lives: (0..6).map(|_| AtomicBool::new(true)).collect(),
        kills,
    };
    (agreed, Arc::new(memory))
}

/// One that is killed after some stores if it is the victim.
fn process(memory: &Arc<Memory>, number: u32, victim: u32) -> Process {
    let stores = match number == victim {
        true => shuttle::rand::thread_rng().gen_range(0usize..150),
        false => NEVER,
    };
    Process { memory: memory.clone(), number, left: AtomicUsize::new(stores) }
}

/// The board, with its writers.
fn joined<'p>(first: &'p Process, agreed: &Agreed) -> Board<&'p Process> {
    let board = Board::found(first, agreed, (1, 1), 1).unwrap();
    for writer in 0..2 {
        let guard = first.lock(&board);
        let who = Who { number: writer + 1, start: 1 };
        board.join(&guard, writer as usize, who, &|who| first.alive(who)).unwrap();
    }
    board
}

/// Two writers and two readers, of whom one may be left behind; one of all of them is killed, perhaps.
fn run(kills: bool, policies: [Policy; 2]) {
    let (agreed, memory) = memory(1, 0, 0, kills);
    let first = process(&memory, 5, 0);
    let board = joined(&first, &agreed);
    let victim = if kills { shuttle::rand::thread_rng().gen_range(1u32..5) } else { 0 };
    let all: Vec<_> = (1..5)
        .map(|number| {
            let process = process(&memory, number, victim);
            thread::spawn(move || match number {
                1 | 2 => write(&process, number as usize - 1),
                3 => read(&process, policies[0]),
                _ => read(&process, policies[1]),
            })
        })
        .collect();
    all.into_iter().for_each(|thread| thread.join().unwrap());
    let guard = first.lock(&board);
    board.reap(&guard, &|who| first.alive(who));
    // Nobody is left, and nothing is held.
    assert_eq!(board.groups(), 0);
    board.steps().iter().for_each(|step| assert!(board.holders(*step).is_empty()));
    if !kills {
        assert_eq!((board.complete(), board.state()), (STEPS, State::Ended));
        assert_eq!(board.steps(), [STEPS - 1]);
    }
}

/// Two writers, and two ranks of a group, of which each may have gone before the other one comes. One of the writers is killed, perhaps.
fn late(kills: bool) {
    let (agreed, memory) = memory(0, 1, 0, kills);
    let first = process(&memory, 5, 0);
    let board = joined(&first, &agreed);
    let victim = if kills { shuttle::rand::thread_rng().gen_range(1u32..3) } else { 0 };
    let writers: Vec<_> = (1..3)
        .map(|number| {
            let process = process(&memory, number, victim);
            thread::spawn(move || write(&process, number as usize - 1))
        })
        .collect();
    let readers: Vec<_> = (3..5)
        .map(|number| {
            let process = process(&memory, number, 0);
            let group = Group {
                name: "a",
                size: 2,
                policy: Policy::of(Rule::Block),
                from: From::Oldest,
                until: u64::MAX,
            };
            thread::spawn(move || {
                let reader = come(&process, group, u64::from(number) - 3).unwrap();
                let first = Board::open(&process).unwrap().position(reader);
                read_on(&process, reader, group.policy);
                first
            })
        })
        .collect();
    writers.into_iter().for_each(|thread| thread.join().unwrap());
    let begun: Vec<u64> = readers.into_iter().map(|thread| thread.join().unwrap()).collect();
    // No step began before the group was there.
    assert_eq!(begun, [0, 0]);
    assert_eq!(board.groups(), 0);
    assert!(kills || (board.complete(), board.state()) == (STEPS, State::Ended));
    let guard = first.lock(&board);
    board.reap(&guard, &|who| first.alive(who));
    assert!(board.steps().is_empty());
}

/// Two writers, and two ranks of a group that may miss steps: both are given the same ones. One of all of them is killed, perhaps, but no
/// rank before both have come: it would be waited for until the time is over.
fn alike(kills: bool, policy: Policy) {
    let (agreed, memory) = memory(1, 0, 0, kills);
    let first = process(&memory, 5, 0);
    let board = joined(&first, &agreed);
    let victim = if kills { shuttle::rand::thread_rng().gen_range(1u32..5) } else { 0 };
    let writers: Vec<_> = (1..3)
        .map(|number| {
            let process = process(&memory, number, victim);
            thread::spawn(move || write(&process, number as usize - 1))
        })
        .collect();
    let (from, until) = (From::Oldest, u64::MAX);
    let group = Group { name: "a", size: 2, policy, from, until };
    let came: Vec<(Process, Reader)> = (3..5)
        .map(|number| {
            let process = process(&memory, number, 0);
            let reader = come(&process, group, u64::from(number) - 3).unwrap();
            (process, reader)
        })
        .collect();
    let readers: Vec<_> = came
        .into_iter()
        .map(|(process, reader)| {
            if process.number == victim {
                let stores = shuttle::rand::thread_rng().gen_range(0usize..80);
                process.left.store(stores, Ordering::SeqCst);
            }
            thread::spawn(move || read_on(&process, reader, policy))
        })
        .collect();
    writers.into_iter().for_each(|thread| thread.join().unwrap());
    let had: Vec<Vec<u64>> = readers.into_iter().map(|thread| thread.join().unwrap()).collect();
    // Who was killed has had the first ones.
    match victim {
        3 => assert!(had[1].starts_with(&had[0]), "{had:?}"),
        4 => assert!(had[0].starts_with(&had[1]), "{had:?}"),
        _ => assert_eq!(had[0], had[1]),
    }
    let guard = first.lock(&board);
    board.reap(&guard, &|who| first.alive(who));
    assert_eq!(board.groups(), 0);
    assert!(kills || board.steps() == [STEPS - 1]);
}

/// What a writer has in files, a bit for each step, and what its recorder is still to look at.
#[derive(Default)]
struct Disk {
    files: AtomicU64,
    pending: Mutex<Vec<u64>>,
    is_closed: AtomicBool,
}

/// Steps for which there is memory.
const ROOM: usize = 2;

/// As [`write`], with room for few steps only: what is in no file and somebody needs is to be recorded before the next one begins.
fn write_with_little_room(process: &Process, writer: usize, disk: &Disk) {
    let board = Board::open(process).unwrap();
    for step in 0..=STEPS {
        loop {
            let seen = board.seen_by_writers();
            let guard = process.lock(&board);
            process.look(&board, &guard);
            if process.is_ghost() {
                return;
            }
            if board.state() == State::Live
                && board.steps().len() >= ROOM
                && !board.sweep_for_room(&guard)
            {
                board.hurry(&guard);
                drop(guard);
                board.sleep_as_writer(seen, Duration::from_secs(1));
                continue;
            }
            match board.begin(&guard, step) {
                Begun::Yes => break,
                Begun::Full(_) => {
                    drop(guard);
                    board.sleep_as_writer(seen, Duration::from_secs(1));
                }
                Begun::Over(state) => {
                    assert!(process.memory.kills, "{state:?}");
                    disk.is_closed.store(true, Ordering::SeqCst);
                    board.close(&guard, writer, false);
                    board.ring(&guard, writer);
                    return;
                }
            }
        }
        let guard = process.lock(&board);
        let entry = Entry { segment: writer as u64, offset: step, len: 8 };
        if board.end(&guard, writer, step, entry, 8) {
            disk.pending.lock().unwrap().push(step);
            board.ring(&guard, writer);
        }
    }
    disk.is_closed.store(true, Ordering::SeqCst);
    let guard = process.lock(&board);
    board.close(&guard, writer, false);
    board.ring(&guard, writer);
}

/// The recorder of a writer: a thread of its process.
fn record(process: &Process, writer: usize, disk: &Disk) {
    let board = Board::open(process).unwrap();
    loop {
        let seen = board.seen_by_recorder(writer);
        let guard = process.lock(&board);
        let (ended, spilled) = (board.writer(writer).step, board.spilled());
        let mut pending = disk.pending.lock().unwrap();
        let wanted = |step: &u64| {
            spilled.is_some_and(|from| from <= *step)
                && board.is_there(*step)
                && board.is_due(*step, ended)
        };
        let next = pending.iter().position(wanted).map(|at| pending.remove(at));
        drop(pending);
        drop(guard);
        if process.is_ghost() || disk.is_closed.load(Ordering::SeqCst) {
            return;
        }
        match next {
            Some(step) => {
                disk.files.fetch_or(1 << step, Ordering::SeqCst);
                let guard = process.lock(&board);
                board.recorded(&guard, writer, step);
            }
            None => board.sleep_as_recorder(writer, seen, Duration::from_secs(1)),
        }
    }
}

/// Reads each step from memory or from files, and goes on after the first one only when the stream is over: nobody waits for it.
fn read_what_was_left(process: &Process, disks: &[Arc<Disk>; 2], policy: Policy) {
    let board = Board::open(process).unwrap();
    let guard = process.lock(&board);
    let from = From::Oldest;
    let group = Group { name: "late", size: 1, policy, from, until: u64::MAX };
    let Ok(reader) = board.attach(&guard, group, 0, process.who(), &|who| process.alive(who))
    else {
        assert!(process.is_ghost());
        return;
    };
    drop(guard);
    let first = board.position(reader);
    let mut next = first;
    loop {
        let seen = board.seen_by_readers();
        let guard = process.lock(&board);
        process.look(&board, &guard);
        board.advance(&guard, reader, next);
        if policy.keep > 0 && next > first {
            let has = |disk: &Arc<Disk>| disk.files.load(Ordering::SeqCst) & (1 << (next - 1)) != 0;
            let is_kept = board.is_there(next - 1) || disks.iter().all(has);
            assert!(is_kept || process.is_ghost(), "step {} is neither", next - 1);
        }
        let found = if next == 0 || board.state() != State::Live {
            board.next_exactly(&guard, reader, next)
        } else {
            Some(Next::Wait)
        };
        drop(guard);
        match found {
            _ if process.is_ghost() => return,
            Some(Next::Step { step, dropped }) => {
                assert_eq!((step, dropped), (next, 0));
                assert!(board.entry(step, 0).is_some() || process.is_ghost());
                let guard = process.lock(&board);
                board.let_go(&guard, reader, step);
                next += 1;
            }
            None => {
                let has = |disk: &Arc<Disk>| disk.files.load(Ordering::SeqCst) & (1 << next) != 0;
                assert!(disks.iter().all(has), "step {next} is neither in memory nor in files");
                next += 1;
            }
            Some(Next::Wait) => board.sleep_as_reader(seen, Duration::from_secs(1)),
            Some(Next::Over(state)) => {
                let all = state == State::Ended && next == STEPS + 1;
                assert!(all || process.memory.kills, "{state:?} {next}");
                break;
            }
        }
    }
    let guard = process.lock(&board);
    board.detach(&guard, reader);
}

/// Two writers with their recorders, and a reader that is behind.
fn spill(kills: bool, policy: Policy) {
    // Who is killed before it has come is waited for until the time is over.
    let (agreed, memory) = memory(0, u64::from(!kills), 7, kills);
    let first = process(&memory, 5, 0);
    let board = joined(&first, &agreed);
    let disks = [Arc::new(Disk::default()), Arc::new(Disk::default())];
    let victim = if kills { shuttle::rand::thread_rng().gen_range(1u32..4) } else { 0 };
    let mut all = Vec::new();
    for number in 1..4 {
        let process = Arc::new(process(&memory, number, victim));
        let (disks, same) = (disks.clone(), process.clone());
        if number == 3 {
            all.push(thread::spawn(move || read_what_was_left(&process, &disks, policy)));
            continue;
        }
        let writer = number as usize - 1;
        let (one, other) = (disks[writer].clone(), disks[writer].clone());
        all.push(thread::spawn(move || write_with_little_room(&process, writer, &one)));
        all.push(thread::spawn(move || record(&same, writer, &other)));
    }
    all.into_iter().for_each(|thread| thread.join().unwrap());
    if !kills {
        assert_eq!((board.complete(), board.state()), (STEPS + 1, State::Ended));
    }
}

fn check(times: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    let config = || {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        config.max_steps = shuttle::MaxSteps::FailAfter(10_000_000);
        config
    };
    let times = std::env::var("STEAD_MODELS").ok().and_then(|t| t.parse().ok()).unwrap_or(times);
    Runner::new(RandomScheduler::new(times), config()).run(model.clone());
    Runner::new(PctScheduler::new(3, times / 2), config()).run(model);
}

#[test]
fn model_nobody_sleeps_for_ever_and_steps_are_whole() {
    check(60, || run(false, [Policy::of(Rule::Block), Policy::of(Rule::Drop)]));
}

#[test]
fn model_whoever_is_killed_the_others_go_on() {
    check(60, || run(true, [Policy::of(Rule::Block), Policy::of(Rule::Drop)]));
}

#[test]
fn model_nobody_waits_for_who_reads_from_files_and_no_step_is_lost() {
    check(60, || spill(false, Policy::of(Rule::Spill)));
}

#[test]
fn model_what_was_recorded_is_found_whoever_is_killed() {
    check(60, || spill(true, Policy::of(Rule::Spill)));
}

#[test]
fn model_ranks_that_may_miss_steps_are_given_the_same_ones() {
    check(60, || alike(false, Policy::of(Rule::Drop)));
}

#[test]
fn model_ranks_that_may_miss_steps_are_given_the_same_ones_whoever_is_killed() {
    check(60, || alike(true, Policy::of(Rule::Drop)));
}

#[test]
fn model_a_rank_that_comes_late_has_all_that_the_first_one_had() {
    check(60, || late(false));
}

#[test]
fn model_a_rank_that_comes_late_is_waited_for_whichever_writer_is_killed() {
    check(60, || late(true));
}

/// A group with numbers of its own.
fn own(rule: Rule, queue: u64, keep: u64) -> Policy {
    Policy { rule, queue: Some(queue), keep }
}

#[test]
fn model_groups_with_numbers_of_their_own_are_waited_for_by_these() {
    for kills in [false, true] {
        check(30, move || run(kills, [own(Rule::Block, 2, 1), own(Rule::Drop, 1, 2)]));
    }
}

#[test]
fn model_ranks_that_pass_over_steps_pass_over_the_same_ones() {
    for kills in [false, true] {
        check(30, move || alike(kills, own(Rule::Drop, 1, 1)));
    }
}

#[test]
fn model_what_is_kept_is_in_memory_or_in_files() {
    for kills in [false, true] {
        check(30, move || spill(kills, own(Rule::Spill, 1, 1)));
    }
}
