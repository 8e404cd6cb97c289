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
/// No core has more threads.
const MOST_SIBLINGS: usize = 1 << 10;
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
    /// Those that have parts in common with each of them, as threads of one core do.
    siblings: BTreeMap<usize, BTreeSet<usize>>,
    seen: Spent,
    seen_at: f64,
    /// Seconds that threads which give way have run since.
    ran: f64,
    left: Left,
    /// Nobody begins before.
    rests_until: f64,
}

impl Budget {
    pub(crate) fn new(processors: BTreeSet<usize>) -> Budget {
        let seen = Spent::now(&processors).unwrap_or_default();
        let siblings = processors.iter().map(|i| (*i, siblings_of(*i))).collect();
        let (left, rests_until, ran) = (Left::Plenty, 0.0, 0.0);
        Budget { processors, siblings, seen, seen_at: f64::MIN, ran, left, rests_until }
    }

    /// At `at`: what a thread has run since it said so last.
    pub(crate) fn used(&mut self, at: f64, ran: Duration) {
        self.ran += ran.as_secs_f64();
        if at - self.seen_at > EVERY_S {
            if let Some(now) = Spent::now(&self.processors) {
                self.look(&now.clone().since(&self.seen), self.ran);
                self.seen = now;
            }
            (self.seen_at, self.ran) = (at, 0.0);
        }
        if self.left == Left::Nothing {
            let since = self.rests_until.max(at - KEPT_S);
            let each = SHARE * self.processors.len().max(1) as f64;
            self.rests_until = since + ran.as_secs_f64() / each;
        }
    }

    /// What was spent since the last look, and the seconds of it that threads which give way have run.
    fn look(&mut self, spent: &Spent, ran: f64) {
        let all = spent.sum(|_| true);
        if all.all <= 0.0 {
            return;
        }
        // What this process has of those that are nobody's says nothing of others.
        if let Left::Some(free) = &self.left {
            let (here, there) =
                (spent.sum(|i| free.contains(&i)), spent.sum(|i| !free.contains(&i)));
            let (used, slack) = (here.all - here.idle, OTHERS * here.all);
            // Who has run for longer than they were busy was not on them: they are gone, or out of bounds.
            let alone = (used - ran).abs() <= slack && here.all > 0.0;
            if alone && there.idle() < IDLE {
                return;
            }
        }
        let others = all.all - all.idle - spent.ours;
        if all.idle() >= IDLE || others <= OTHERS * all.all {
            self.left = Left::Plenty;
            return;
        }
        let is_idle = |i: &usize| spent.each.get(i).is_some_and(|time| time.idle() >= FREE);
        // One whose sibling somebody uses is a part of that one's.
        let is_whole = |i: &usize| self.siblings.get(i).is_none_or(|of| of.iter().all(is_idle));
        let free = spent.each.keys().copied();
        let free: BTreeSet<usize> = free.filter(|i| is_idle(i) && is_whole(i)).collect();
        self.left = if free.is_empty() { Left::Nothing } else { Left::Some(free) };
    }

    /// A thread could not be held to where it was told to run: it may take no more than a part.
    pub(crate) fn is_elsewhere(&mut self) {
        if matches!(self.left, Left::Some(_)) {
            self.left = Left::Nothing;
        }
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

/// Processors of the core that this one is of, itself among them (`Documentation/admin-guide/cputopology.rst` of Linux); only itself where
/// nobody tells.
fn siblings_of(processor: usize) -> BTreeSet<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    numbers(text.trim()).chain([processor]).collect()
}

/// The numbers of a list such as `0-3,8`.
fn numbers(list: &str) -> impl Iterator<Item = usize> {
    let of = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        Some(first..=last.min(first.saturating_add(MOST_SIBLINGS)))
    };
    list.split(',').filter_map(of).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RAN: Duration = Duration::from_millis(1);

    fn budget(processors: usize) -> Budget {
        // The clock of this test is its own, and the system is not asked.
        let siblings = BTreeMap::new();
        Budget { seen_at: f64::MAX, siblings, ..Budget::new((0..processors).collect()) }
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
        budget.look(&spent(&[0.0; 4], 0.5), 0.5);
        let (began, mut ran) = (at, 0.0);
        for _ in 0..1000 {
            at += budget.rests(at).max(0.0) + RAN.as_secs_f64();
            budget.used(at, RAN);
            ran += RAN.as_secs_f64();
        }
        let share = ran / (at - began) / 4.0;
        assert!((0.9 * SHARE..1.1 * SHARE).contains(&share), "{share}");
        assert_eq!(budget.place(), Where::InTurn);
        budget.look(&spent(&[0.5; 4], 0.1), 0.1);
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
            budget.look(&spent, spent.ours);
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
            (spent(&busy(0.95), 0.3), only.clone()),
        ] {
            budget.look(&spent, spent.ours);
            assert_eq!(budget.left, left, "{spent:?}");
            let alone = matches!(left, Left::Some(_));
            assert_eq!(budget.place() == Where::On(vec![15]), alone);
            assert!(budget.rests(10.0) == 0.0 || left == Left::Nothing);
        }
        // What this process does besides says nothing of who is there.
        budget.look(&spent(&busy(0.0), 5.0), 0.3);
        assert_eq!(budget.left, Left::Nothing);
        // Threads ran, and not there: it is idle, or gone.
        for idle in [busy(0.99).to_vec(), vec![0.0; 15]] {
            budget.left = only.clone();
            budget.look(&spent(&idle, 0.5), 0.5);
            assert_eq!(budget.left == only, idle.len() == 16);
            budget.left = only.clone();
            budget.is_elsewhere();
            assert_eq!(budget.left, Left::Nothing);
        }
    }

    #[test]
    fn a_part_of_a_core_that_somebody_uses_is_not_left_over() {
        let mut budget = budget(16);
        let pair = |i: usize| (i, BTreeSet::from([i % 8, i % 8 + 8]));
        budget.siblings = (0..16).map(pair).collect();
        let mut idle = [0.0; 16];
        idle[15] = 0.97;
        budget.look(&spent(&idle, 0.1), 0.1);
        assert_eq!(budget.left, Left::Nothing);
        (idle[7], idle[3]) = (0.98, 0.06);
        // An eighth is left of eight cores, which counts as plenty; of more it would not.
        idle[15] = 0.5;
        budget.look(&spent(&idle, 0.1), 0.1);
        assert_eq!(budget.left, Left::Nothing);
        let list = |text: &str| numbers(text).collect::<Vec<_>>();
        assert_eq!(list("0-2,8"), [0, 1, 2, 8]);
        assert_eq!((list(""), list("x,3-y,5")), (vec![], vec![5]));
        assert!(list("0-18446744073709551615").len() <= MOST_SIBLINGS + 1);
        assert!(siblings_of(0).contains(&0));
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
