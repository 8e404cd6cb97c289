//! How many cores a host gives: fewer than it has where a container may use a part of them, or where others are at work.

use crate::clock::{Watch, thread_seconds};
use stead_core::{Cancel, Error, Result};

/// Seconds that are enough, over which parts of cores are given many times.
const MOST_SECONDS: f64 = 1.0;
/// What is nearly all is all.
const ALL: f64 = 0.95;
/// Steps between looks at the time.
const STEPS: u32 = 10_000;

/// How much of the time that as many threads as there are processors want for so many seconds they get, above 0 to 1.
///
/// # Errors
/// `Cancelled`, `Io` where no threads can be started.
pub fn share(threads: usize, seconds: f64, cancel: &Cancel) -> Result<f64> {
    let seconds = seconds.min(MOST_SECONDS);
    let work = || {
        let (watch, begun) = (Watch::start(), thread_seconds());
        let mut number = 1u64;
        while watch.seconds() < seconds && cancel.check().is_ok() {
            number = (0..STEPS).fold(number, |n, i| n.rotate_left(5) ^ u64::from(i));
            std::hint::black_box(number);
        }
        (thread_seconds() - begun) / watch.seconds().max(1e-9)
    };
    let got = std::thread::scope(|scope| -> Result<f64> {
        let others = (1..threads)
            .map(|_| {
                let thread = std::thread::Builder::new().name("stead-cores".into());
                thread
                    .spawn_scoped(scope, work)
                    .map_err(|e| Error::io("start a thread", "cores", e))
            })
            .collect::<Result<Vec<_>>>()?;
        let mine = work();
        let died = |_| Error::internal("a thread that measures cores has died");
        others.into_iter().try_fold(mine, |sum, t| Ok(sum + t.join().map_err(died)?))
    })?;
    cancel.check()?;
    let share = got / threads.max(1) as f64;
    Ok(if share >= ALL { 1.0 } else { share.max(1e-3) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_cores_is_had() {
        let share = share(2, 0.05, &Cancel::new()).expect("a share");
        assert!(share > 0.0 && share <= 1.0);
        let stopped = Cancel::new();
        stopped.cancel();
        assert!(super::share(1, 60.0, &stopped).is_err());
    }
}
