//! Threads that give way: to whoever else wants the processors or the devices.

use crate::clock;
use rustix::thread::CpuSet;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What a thread that gives way knows of itself.
#[derive(Debug, Default)]
struct Own {
    /// The processors it may run on; none if it does not give way.
    processors: Vec<usize>,
    /// Those of them that it is held to; none if it may run on all.
    held: Vec<usize>,
    /// So many times it was sent on.
    turns: usize,
    /// What it had run when it was asked for last.
    told: Option<Duration>,
}

thread_local! {
    static OWN: RefCell<Own> = RefCell::default();
}

/// Where a thread is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Where {
    Anywhere,
    /// On these processors, as far as it may run there.
    On(Vec<usize>),
    /// On each of the processors it may run on in turn.
    InTurn,
}

/// It stays on one for so many turns: to go to another takes it a while.
const STAYS: usize = 8;
/// Threads begin on different ones.
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// From now on the reads and writes of this thread go when the device has nothing else to do, and it can be told where to run. Only hints:
/// what the system does not take is left out.
pub(crate) fn give_way() {
    idle_device();
    OWN.with_borrow_mut(|own| {
        own.processors = processors().into_iter().collect();
        own.turns = NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(STAYS);
    });
}

/// The processors that this thread may run on.
pub(crate) fn processors() -> BTreeSet<usize> {
    let all = rustix::thread::sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|i| all.is_set(*i)).collect()
}

/// Has a thread that gives way run there from now on; others are left alone. False if it may run where it is not to.
pub(crate) fn run(place: Where) -> bool {
    OWN.with_borrow_mut(|own| {
        if own.processors.is_empty() {
            return true;
        }
        let is_held = matches!(place, Where::On(_));
        let on = match place {
            Where::Anywhere => Vec::new(),
            Where::On(mut these) => {
                these.retain(|i| own.processors.contains(i));
                these
            }
            Where::InTurn => {
                own.turns = own.turns.wrapping_add(1);
                vec![own.processors[own.turns / STAYS % own.processors.len()]]
            }
        };
        let is_there = !on.is_empty() || !is_held;
        if on != own.held {
            let mut set = CpuSet::new();
            let all = if on.is_empty() { &own.processors } else { &on };
            all.iter().for_each(|i| set.set(*i));
            if rustix::thread::sched_setaffinity(None, &set).is_err() {
                return !is_held;
            }
            own.held = on;
        }
        is_there
    })
}

/// What this thread has run since this was asked last, or nothing the first time.
pub(crate) fn used() -> Duration {
    let now = clock::thread();
    let before = OWN.with_borrow_mut(|own| own.told.replace(now)).unwrap_or(now);
    now.saturating_sub(before)
}

/// Seconds that this thread has waited for a processor so far (`Documentation/scheduler/sched-stats.rst` of Linux).
pub(crate) fn queued() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let waited = text.split_ascii_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok());
    waited.unwrap_or(0) as f64 * 1e-9
}

/// The idle class of devices.
fn idle_device() {
    const WHO_PROCESS: libc::c_long = 1;
    const CLASS_IDLE: libc::c_long = 3 << 13;
    // SAFETY: a system call of three numbers, about the calling thread.
    unsafe { libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, CLASS_IDLE) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn may_run_on() -> usize {
        processors().len()
    }

    #[test]
    fn a_thread_that_gives_way_is_sent_around_and_others_are_not() {
        let all = may_run_on();
        run(Where::InTurn);
        assert_eq!(may_run_on(), all);
        let class = || {
            // SAFETY: a system call of numbers.
            unsafe { libc::syscall(libc::SYS_ioprio_get, 1, 0) >> 13 }
        };
        let before = class();
        let inside = std::thread::spawn(move || {
            give_way();
            let before = may_run_on();
            let mut seen = BTreeSet::new();
            for _ in 0..before * STAYS {
                run(Where::InTurn);
                assert_eq!(may_run_on(), 1);
                seen.extend(processors());
            }
            // What it may not run on is left out, and where nothing else is left it runs anywhere, and says so.
            assert!(run(Where::On(vec![CpuSet::MAX_CPU - 1, *seen.first().unwrap()])));
            assert_eq!(may_run_on(), 1);
            assert!(!run(Where::On(vec![CpuSet::MAX_CPU - 1])));
            assert_eq!(may_run_on(), before);
            run(Where::InTurn);
            run(Where::Anywhere);
            (before, seen.len(), may_run_on(), class())
        });
        assert_eq!(inside.join().unwrap(), (all, all, all, 3));
        assert_eq!((may_run_on(), class()), (all, before));
    }

    #[test]
    fn a_thread_is_told_what_it_ran_since() {
        std::thread::spawn(|| {
            assert_eq!(used(), Duration::ZERO);
            let sum = (0..5_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b));
            std::hint::black_box(sum);
            let ran = used();
            assert!(ran > Duration::ZERO && clock::thread() >= ran);
        })
        .join()
        .unwrap();
    }
}
