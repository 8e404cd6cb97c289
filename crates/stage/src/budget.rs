//! Processor time of transfers that give way: what they like where some of it is left over, and a small part of each processor where others
//! want all of it.
//!
//! Others want all where no processor is idle, and not because of this process. The lowest priorities are no way out there: a thread of
//! the idle class of Linux waits for so long each time that a device has done with it that next to nothing is moved, and among control
//! groups priorities say nothing. So threads run as others do, and rest: of each processor no more than [`SHARE`] is taken. They go to all
//! processors in turn, as programs of many ranks are as slow as the slowest one.

use crate::clock;
use crate::gentle::{self, Where};
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What is taken of each processor that others want.
const SHARE: f64 = 0.02;
/// Processors are left over where they are idle for so much of the time.
const IDLE: f64 = 0.1;
/// Others want them who have so much of the time.
const OTHERS: f64 = 0.1;
/// It is looked so often: the kernel counts in hundredths of a second, and to ask takes it some time where there are many processors.
const EVERY_S: f64 = 0.25;
/// What was not taken is kept for so long.
const KEPT_S: f64 = 0.05;
/// Of the kernel's counts (`USER_HZ`).
const TICK_S: f64 = 0.01;

/// Of this process: transfers share it.
static ALL: Mutex<Option<Budget>> = Mutex::new(None);

/// What is done with the budget of this process.
pub(crate) fn with<T>(work: impl FnOnce(&mut Budget) -> T) -> T {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    work(all.get_or_insert_with(|| Budget::new(gentle::processors())))
}

/// Seconds of processors, all together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Spent {
    idle: f64,
    all: f64,
    /// Of this process.
    ours: f64,
}

impl Spent {
    /// Since the system began, and the process. None if it does not tell.
    fn now(processors: &BTreeSet<usize>) -> Option<Spent> {
        let spent = Spent::of(&std::fs::read_to_string("/proc/stat").ok()?, processors);
        Some(Spent { ours: clock::process(), ..spent }).filter(|spent| spent.all > 0.0)
    }

    /// Of these processors, by the words of `/proc/stat` (proc_stat(5)).
    fn of(text: &str, processors: &BTreeSet<usize>) -> Spent {
        let mut spent = Spent::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if !number.is_some_and(|number: usize| processors.contains(&number)) {
                continue;
            }
            // User, nice, system, idle, waiting for devices, interrupts twice, stolen; what guests have is in the first two.
            let ticks = words.take(8).map(|word| word.parse::<u64>().unwrap_or(0) as f64);
            for (i, ticks) in ticks.enumerate() {
                spent.all += ticks * TICK_S;
                if matches!(i, 3 | 4) {
                    spent.idle += ticks * TICK_S;
                }
            }
        }
        spent
    }

    fn since(self, before: Spent) -> Spent {
        Spent {
            idle: self.idle - before.idle,
            all: self.all - before.all,
            ours: self.ours - before.ours,
        }
    }
}

/// What threads have run, and what they may.
#[derive(Debug)]
pub(crate) struct Budget {
    processors: BTreeSet<usize>,
    seen: Spent,
    seen_at: f64,
    wanted: bool,
    /// Nobody begins before.
    rests_until: f64,
}

impl Budget {
    pub(crate) fn new(processors: BTreeSet<usize>) -> Budget {
        let seen = Spent::now(&processors).unwrap_or_default();
        Budget { processors, seen, seen_at: f64::MIN, wanted: false, rests_until: 0.0 }
    }

    /// At `at`: what a thread has run since it said so last.
    pub(crate) fn used(&mut self, at: f64, ran: Duration) {
        if at - self.seen_at > EVERY_S {
            if let Some(now) = Spent::now(&self.processors) {
                self.look(now.since(self.seen));
                self.seen = now;
            }
            self.seen_at = at;
        }
        if self.wanted {
            let since = self.rests_until.max(at - KEPT_S);
            let each = SHARE * self.processors.len().max(1) as f64;
            self.rests_until = since + ran.as_secs_f64() / each;
        }
    }

    fn look(&mut self, spent: Spent) {
        if spent.all > 0.0 {
            let idle = spent.idle / spent.all;
            let others = 1.0 - idle - spent.ours / spent.all;
            self.wanted = idle < IDLE && others > OTHERS;
        }
    }

    /// How long nobody is to begin, from `at` on.
    pub(crate) fn rests(&self, at: f64) -> f64 {
        if self.wanted { self.rests_until - at } else { 0.0 }
    }

    /// Where a thread that begins is to run: on each processor in turn, if they are wanted.
    pub(crate) fn place(&self) -> Where {
        if self.wanted { Where::InTurn } else { Where::Anywhere }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RAN: Duration = Duration::from_millis(1);

    fn budget(processors: usize) -> Budget {
        // The clock of this test is its own, and the system is not asked.
        Budget { seen_at: f64::MAX, ..Budget::new((0..processors).collect()) }
    }

    #[test]
    fn where_others_want_processors_a_part_of_each_is_taken() {
        let mut budget = budget(4);
        let mut at = 10.0;
        for _ in 0..100 {
            budget.used(at, RAN);
            assert_eq!((budget.rests(at), budget.place()), (0.0, Where::Anywhere));
        }
        budget.look(Spent { idle: 0.0, all: 1.0, ours: 0.5 });
        let (began, mut ran) = (at, 0.0);
        for _ in 0..1000 {
            at += budget.rests(at).max(0.0) + RAN.as_secs_f64();
            budget.used(at, RAN);
            ran += RAN.as_secs_f64();
        }
        let share = ran / (at - began) / 4.0;
        assert!((0.9 * SHARE..1.1 * SHARE).contains(&share), "{share}");
        assert_eq!(budget.place(), Where::InTurn);
        budget.look(Spent { idle: 0.5, all: 1.0, ours: 0.1 });
        assert_eq!((budget.rests(at), budget.place()), (0.0, Where::Anywhere));
    }

    #[test]
    fn who_has_all_of_it_alone_does_not_rest() {
        let mut budget = budget(2);
        for (spent, wanted) in [
            (Spent { idle: 0.0, all: 2.0, ours: 1.95 }, false),
            // Nobody asks others to stand in line, and they have theirs.
            (Spent { idle: 0.02, all: 2.0, ours: 1.3 }, true),
            (Spent { idle: 0.0, all: 2.0, ours: 0.0 }, true),
            (Spent { idle: 0.0, all: 0.0, ours: 0.0 }, true),
            (Spent { idle: 1.0, all: 2.0, ours: 0.1 }, false),
        ] {
            budget.look(spent);
            assert_eq!(budget.wanted, wanted, "{spent:?}");
        }
    }

    #[test]
    fn the_words_of_the_system_are_of_the_processors_that_are_meant() {
        const TEXT: &str = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 800 50 0 0 0 7 7\n\
            cpu1 1 2 3 4 5 6 7 8 9 10\ncpu11 1 1 1 100 1 1 1 1 1 1\nintr 5 5\ncpufreq x\n";
        let near = |spent: Spent, idle: f64, all: f64| {
            assert!(
                (spent.idle - idle).abs() < 1e-9 && (spent.all - all).abs() < 1e-9,
                "{spent:?}"
            );
        };
        near(Spent::of(TEXT, &BTreeSet::from([0])), 8.5, 10.0);
        near(Spent::of(TEXT, &BTreeSet::from([0, 1])), 8.59, 10.36);
        near(Spent::of("", &BTreeSet::from([0])), 0.0, 0.0);
        let here = gentle::processors();
        if let Some(now) = Spent::now(&here) {
            assert!(!here.is_empty() && now.idle <= now.all && now.ours < now.all);
        }
    }

    proptest! {
        #[test]
        fn rests_end(
            processors in 0usize..1000,
            turns in proptest::collection::vec((0.0f64..1.0, 0u64..100_000), 1..100),
        ) {
            let mut budget = budget(processors);
            budget.wanted = true;
            let (mut at, mut all) = (0.0, 0.0);
            for (passed, ran) in turns {
                at += passed;
                let ran = Duration::from_micros(ran);
                all += ran.as_secs_f64();
                budget.used(at, ran);
                let most = all / (SHARE * processors.max(1) as f64);
                prop_assert!(budget.rests(at).is_finite() && budget.rests(at) <= most + 1e-9);
            }
        }

        #[test]
        fn whatever_the_system_says_is_read(text in ".{0,200}") {
            let spent = Spent::of(&format!("cpu0 {text}\ncpu{text}"), &BTreeSet::from([0]));
            prop_assert!(spent.idle >= 0.0 && spent.idle <= spent.all);
        }
    }
}
