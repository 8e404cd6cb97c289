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

fn read(process: &Process, rule: Rule) {
    let board = Board::open(process).unwrap();
    let guard = process.lock(&board);
    let name = format!("{}", process.number);
    let group = Group { name: &name, size: 1, rule, from: From::Oldest };
    let Ok(reader) = board.attach(&guard, group, 0, process.who(), &|who| process.alive(who))
    else {
        assert!(process.is_ghost());
        return;
    };
    drop(guard);
    let mut next = board.position(reader);
    loop {
        let seen = board.seen_by_readers();
        let guard = process.lock(&board);
        process.look(&board, &guard);
        board.advance(&guard, reader, next);
        let found = board.next(&guard, reader, next);
        drop(guard);
        match found {
            _ if process.is_ghost() => return,
            Next::Step { step, dropped } => {
                assert!(step == next + dropped && (rule == Rule::Drop || dropped == 0));
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
}

/// Two writers and two readers, of whom one may be left behind; one of all of them is killed, perhaps.
fn run(kills: bool) {
    let agreed =
        Agreed { writers: 2, keep: 1, queue: 1, memory: 1 << 20, expect: 0, all: 2, run: 0 };
    let words = agreed.words().unwrap();
    let memory = Arc::new(Memory {
        words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        sleepers: Mutex::new(()),
        awake: Condvar::new(),
        lives: (0..6).map(|_| AtomicBool::new(true)).collect(),
        kills,
    });
    let process =
        |number| Process { memory: memory.clone(), number, left: AtomicUsize::new(NEVER) };
    let first = process(5);
    let board = Board::found(&first, &agreed, 1, 1).unwrap();
    for writer in 0..2 {
        let guard = first.lock(&board);
        let who = Who { number: writer + 1, start: 1 };
        board.join(&guard, writer as usize, who, &|who| first.alive(who)).unwrap();
    }
    let victim = if kills { shuttle::rand::thread_rng().gen_range(1u32..5) } else { 0 };
    let all: Vec<_> = (1..5)
        .map(|number| {
            let process = process(number);
            if number == victim {
                let stores = shuttle::rand::thread_rng().gen_range(0usize..120);
                process.left.store(stores, Ordering::SeqCst);
            }
            thread::spawn(move || match number {
                1 | 2 => write(&process, number as usize - 1),
                3 => read(&process, Rule::Block),
                _ => read(&process, Rule::Drop),
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
    check(60, || run(false));
}

#[test]
fn model_whoever_is_killed_the_others_go_on() {
    check(60, || run(true));
}
