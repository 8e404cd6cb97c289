//! How long the progress thread sleeps.

use std::time::Duration;

/// While bytes move, the thread does not sleep before nothing has moved for so long.
const EAGER: Duration = Duration::from_micros(200);
/// After so long without any byte of those that are on their way, their rank may be stopped.
const STUCK: Duration = Duration::from_millis(10);
/// After so long without anything, messages may take longer to be seen.
const QUIET: Duration = Duration::from_secs(1);

/// How long to sleep when nothing has moved for `idle`: while bytes are on their way (`moving`), somebody is waited for
/// (`watched`), or neither.
pub(crate) fn pause(idle: Duration, moving: bool, watched: bool) -> Duration {
    if moving && idle < EAGER {
        return Duration::ZERO;
    }
    // A quarter of the time that nothing has moved, so that waiting costs little and delays little.
    let most = match (moving, watched) {
        (true, _) if idle < STUCK => Duration::from_micros(200),
        (true, _) => Duration::from_millis(10),
        (false, true) => Duration::from_millis(2),
        (false, false) if idle < QUIET => Duration::from_millis(10),
        (false, false) => Duration::from_millis(50),
    };
    (idle / 4).clamp(Duration::from_micros(20), most)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_message_that_is_stuck_does_not_keep_the_thread_awake() {
        let (soon, late) = (Duration::from_micros(100), Duration::from_millis(1));
        assert_eq!(pause(soon, true, false), Duration::ZERO);
        assert_eq!(pause(late, true, true), Duration::from_micros(200));
        // Not for ever: its receiver may be stopped.
        for watched in [false, true] {
            assert_eq!(pause(HOUR, true, watched), Duration::from_millis(10));
        }
    }

    #[test]
    fn waiting_costs_little_and_delays_little() {
        assert_eq!(pause(HOUR, false, false), Duration::from_millis(50));
        assert_eq!(pause(HOUR, false, true), Duration::from_millis(2));
        assert_eq!(pause(Duration::from_millis(400), false, false), Duration::from_millis(10));
        assert_eq!(pause(Duration::from_millis(2), false, false), Duration::from_micros(500));
        assert_eq!(pause(Duration::ZERO, false, true), Duration::from_micros(20));
    }
}
