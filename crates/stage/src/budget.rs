//! Processor time of transfers that give way: what they like where some of it is left over, and a small part of each processor where others
//! want all of it.
//!
//! Others want all where no processor is idle, and not because of this process. The lowest priorities are no way out there: a thread of
//! the idle class of Linux waits for so long each time that a device has done with it that next to nothing is moved, and among control
//! groups priorities say nothing. So threads run as others do, and rest: of each processor no more than [`SHARE`] is taken. They go to all
//! processors in turn, as programs of many ranks are as slow as the slowest one.
//!
//! Where processors are left to the system and its daemons, as batch systems do that give a job all but one of a node, threads run there alone,
//! and need no rest.

use crate::clock;
use crate::gentle::{self, Where};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What is taken of each processor that others want.
const SHARE: f64 = 0.02;
/// Processors are left over where they are idle for so much of the time.
const IDLE: f64 = 0.1;
/// Others want them who have so much of the time.
const OTHERS: f64 = 0.1;
/// One that is idle for so much of the time is nobody's.
const FREE: f64 = 0.9;
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

/// Seconds of a processor, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Time {
    idle: f64,
    all: f64,
}

impl Time {
    /// The part of it that it was idle.
    fn idle(self) -> f64 {
        self.idle / self.all.max(TICK_S)
    }
}

/// Seconds of processors.
#[derive(Debug, Clone, Default, PartialEq)]
struct Spent {
    each: BTreeMap<usize, Time>,
    /// Of this process.
    ours: f64,
}

impl Spent {
    /// Since the system began, and the process. None if it does not tell.
    fn now(processors: &BTreeSet<usize>) -> Option<Spent> {
        let spent = Spent::of(&std::fs::read_to_string("/proc/stat").ok()?, processors);
        Some(Spent { ours: clock::process(), ..spent })
            .filter(|spent| spent.sum(|_| true).all > 0.0)
    }

    /// Of these processors, by the words of `/proc/stat` (proc_stat(5)).
    fn of(text: &str, processors: &BTreeSet<usize>) -> Spent {
        let mut spent = Spent::default();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let number = words.next().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            let Some(number) = number.filter(|number| processors.contains(number)) else {
                continue;
            };
            let time = spent.each.entry(number).or_default();
            // User, nice, system, idle, waiting for devices, interrupts twice, stolen; what guests have is in the first two.
            let ticks = words.take(8).map(|word| word.parse::<u64>().unwrap_or(0) as f64);
            for (i, ticks) in ticks.enumerate() {
                time.all += ticks * TICK_S;
                if matches!(i, 3 | 4) {
                    time.idle += ticks * TICK_S;
                }
            }
        }
        spent
    }

    fn since(self, before: &Spent) -> Spent {
        let of = |(number, now): (usize, Time)| {
            let then = before.each.get(&number).copied().unwrap_or_default();
            (number, Time { idle: now.idle - then.idle, all: now.all - then.all })
        };
        Spent { each: self.each.into_iter().map(of).collect(), ours: self.ours - before.ours }
    }

    /// Of some of them together.
    fn sum(&self, which: impl Fn(usize) -> bool) -> Time {
        let some = self.each.iter().filter(|(number, _)| which(**number));
        some.fold(Time::default(), |sum, (_, time)| Time {
            idle: sum.idle + time.idle,
            all: sum.all + time.all,
        })
    }
}

/// What others leave of the processors.
#[derive(Debug, Clone, PartialEq)]
enum Left {
    /// They do not want all of them.
    Plenty,
    /// These are nobody's.
    Some(BTreeSet<usize>),
    Nothing,
}

/// What threads have run, and what they may.
#[derive(Debug)]
pub(crate) struct Budget {
    processors: BTreeSet<usize>,
    seen: Spent,
    seen_at: f64,
    left: Left,
    /// Nobody begins before.
    rests_until: f64,
}

impl Budget {
    pub(crate) fn new(processors: BTreeSet<usize>) -> Budget {
        let seen = Spent::now(&processors).unwrap_or_default();
        Budget { processors, seen, seen_at: f64::MIN, left: Left::Plenty, rests_until: 0.0 }
    }

    /// At `at`: what a thread has run since it said so last.
    pub(crate) fn used(&mut self, at: f64, ran: Duration) {
        if at - self.seen_at > EVERY_S {
            if let Some(now) = Spent::now(&self.processors) {
                self.look(&now.clone().since(&self.seen));
                self.seen = now;
            }
            self.seen_at = at;
        }
        if self.left == Left::Nothing {
            let since = self.rests_until.max(at - KEPT_S);
            let each = SHARE * self.processors.len().max(1) as f64;
            self.rests_until = since + ran.as_secs_f64() / each;
        }
    }

    fn look(&mut self, spent: &Spent) {
        let all = spent.sum(|_| true);
        if all.all <= 0.0 {
            return;
        }
        // What this process has of those that are nobody's says nothing of others.
        if let Left::Some(free) = &self.left {
            let (here, there) =
                (spent.sum(|i| free.contains(&i)), spent.sum(|i| !free.contains(&i)));
            let others = here.all - here.idle - spent.ours;
            if others <= OTHERS * here.all && there.idle() < IDLE {
                return;
            }
        }
        let others = all.all - all.idle - spent.ours;
        if all.idle() >= IDLE || others <= OTHERS * all.all {
            self.left = Left::Plenty;
            return;
        }
        let free = spent.each.iter().filter(|(_, time)| time.idle() >= FREE);
        let free: BTreeSet<usize> = free.map(|(number, _)| *number).collect();
        self.left = if free.is_empty() { Left::Nothing } else { Left::Some(free) };
    }

    /// How long nobody is to begin, from `at` on.
    pub(crate) fn rests(&self, at: f64) -> f64 {
        if self.left == Left::Nothing { self.rests_until - at } else { 0.0 }
    }

    /// Where a thread that begins is to run: on each processor in turn, if all are wanted.
    pub(crate) fn place(&self) -> Where {
        match &self.left {
            Left::Plenty => Where::Anywhere,
            Left::Some(free) => Where::On(free.iter().copied().collect()),
            Left::Nothing => Where::InTurn,
        }
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

    /// Of processors that are idle for so much of a second each.
    fn spent(idle: &[f64], ours: f64) -> Spent {
        let each = idle.iter().map(|idle| Time { idle: *idle, all: 1.0 }).enumerate();
        Spent { each: each.collect(), ours }
    }

    #[test]
    fn where_others_want_processors_a_part_of_each_is_taken() {
        let mut budget = budget(4);
        let mut at = 10.0;
        for _ in 0..100 {
            budget.used(at, RAN);
            assert_eq!((budget.rests(at), budget.place()), (0.0, Where::Anywhere));
        }
        budget.look(&spent(&[0.0; 4], 0.5));
        let (began, mut ran) = (at, 0.0);
        for _ in 0..1000 {
            at += budget.rests(at).max(0.0) + RAN.as_secs_f64();
            budget.used(at, RAN);
            ran += RAN.as_secs_f64();
        }
        let share = ran / (at - began) / 4.0;
        assert!((0.9 * SHARE..1.1 * SHARE).contains(&share), "{share}");
        assert_eq!(budget.place(), Where::InTurn);
        budget.look(&spent(&[0.5; 4], 0.1));
        assert_eq!((budget.rests(at), budget.place()), (0.0, Where::Anywhere));
    }

    #[test]
    fn who_has_all_of_it_alone_does_not_rest() {
        let mut budget = budget(2);
        for (spent, left) in [
            (spent(&[0.0, 0.0], 1.95), Left::Plenty),
            // Nobody asks others to stand in line, and they have theirs.
            (spent(&[0.01, 0.01], 1.3), Left::Nothing),
            (spent(&[0.0, 0.0], 0.0), Left::Nothing),
            (Spent::default(), Left::Nothing),
            (spent(&[0.5, 0.5], 0.1), Left::Plenty),
        ] {
            budget.look(&spent);
            assert_eq!(budget.left, left, "{spent:?}");
        }
    }

    #[test]
    fn what_is_left_over_is_used_alone_and_as_long_as_it_is() {
        let mut budget = budget(16);
        let busy = |last: f64| {
            let mut idle = [0.0; 16];
            idle[15] = last;
            idle
        };
        let only = Left::Some(BTreeSet::from([15]));
        for (spent, left) in [
            // One of many is no tenth of them, and is one.
            (spent(&busy(0.97), 0.1), only.clone()),
            (spent(&busy(0.05), 0.95), only.clone()),
            (spent(&busy(0.0), 0.97), only.clone()),
            // Somebody else is there.
            (spent(&busy(0.0), 0.4), Left::Nothing),
            (spent(&busy(0.98), 0.3), only.clone()),
            // The others have ended.
            (spent(&[0.95; 16], 0.9), Left::Plenty),
            (spent(&busy(0.95), 0.3), only),
        ] {
            budget.look(&spent);
            assert_eq!(budget.left, left, "{spent:?}");
            let alone = matches!(left, Left::Some(_));
            assert_eq!(budget.place() == Where::On(vec![15]), alone);
            assert!(budget.rests(10.0) == 0.0 || left == Left::Nothing);
        }
    }

    #[test]
    fn the_words_of_the_system_are_of_the_processors_that_are_meant() {
        const TEXT: &str = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 0 50 800 50 0 0 0 7 7\n\
            cpu1 1 2 3 4 5 6 7 8 9 10\ncpu11 1 1 1 100 1 1 1 1 1 1\nintr 5 5\ncpufreq x\n";
        let near = |spent: Spent, idle: f64, all: f64| {
            let sum = spent.sum(|_| true);
            assert!((sum.idle - idle).abs() < 1e-9 && (sum.all - all).abs() < 1e-9, "{spent:?}");
        };
        near(Spent::of(TEXT, &BTreeSet::from([0])), 8.5, 10.0);
        near(Spent::of(TEXT, &BTreeSet::from([0, 1])), 8.59, 10.36);
        near(Spent::of("", &BTreeSet::from([0])), 0.0, 0.0);
        let here = gentle::processors();
        if let Some(now) = Spent::now(&here) {
            let sum = now.sum(|_| true);
            assert!(!here.is_empty() && sum.idle <= sum.all && now.ours < sum.all);
        }
    }

    proptest! {
        #[test]
        fn rests_end(
            processors in 0usize..1000,
            turns in proptest::collection::vec((0.0f64..1.0, 0u64..100_000), 1..100),
        ) {
            let mut budget = budget(processors);
            budget.left = Left::Nothing;
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
            let sum = spent.sum(|_| true);
            prop_assert!(sum.idle >= 0.0 && sum.idle <= sum.all);
        }
    }
}
