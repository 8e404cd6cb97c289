//! How long the progress thread sleeps, and how long it is waited for when MPI ends.

use std::time::Duration;
use stead_core::limits;

/// How long MPI_Finalize waits for a call of MPI that does not return.
const END: Duration = Duration::from_secs(limits::PEER_DEADLINE_S);

/// While bytes move, the thread does not sleep before nothing has moved for so long.
const EAGER: Duration = Duration::from_micros(200);
/// After so long without any byte of those that are on their way, their rank may be stopped.
const STUCK: Duration = Duration::from_millis(10);
/// After so long without anything, messages may take longer to be seen.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// And after so long, still longer.
const ASLEEP: Duration = Duration::from_secs(60);

/// Who is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    Nobody,
    /// Whoever says something first: that may be soon, or never.
    Anybody,
    /// A rank that has something to say.
    Somebody,
}

/// How long to sleep when nothing has moved for `idle`, while bytes are on their way (`moving`) or somebody is waited for.
pub(crate) fn pause(idle: Duration, moving: bool, awaited: Awaited) -> Duration {
    if moving && idle < EAGER {
        return Duration::ZERO;
    }
    // A quarter of the time that nothing has moved, so that waiting costs little and delays little.
    let most = match (moving, awaited) {
        (true, _) if idle < STUCK => Duration::from_micros(200),
        (true, _) => Duration::from_millis(10),
        (false, Awaited::Somebody | Awaited::Anybody) if idle < QUIET => Duration::from_millis(2),
        // A hundredth, from then on.
        (false, Awaited::Somebody) => Duration::from_millis(10),
        (false, Awaited::Anybody) if idle < ASLEEP => Duration::from_millis(10),
        (false, Awaited::Nobody) if idle < QUIET => Duration::from_millis(10),
        (false, Awaited::Anybody | Awaited::Nobody) => Duration::from_millis(50),
    };
    (idle / 4).clamp(Duration::from_micros(20), most)
}

/// Whether a thread that was told to end is to be waited for. While it makes its rounds it answers ranks that live, for as
/// long as they read, and finds out those that are gone; so the time counts only while it makes none.
pub(crate) struct Patience {
    rounds: u64,
    still: Duration,
}

impl Patience {
    /// With a thread that has made so many rounds.
    pub(crate) fn new(rounds: u64) -> Patience {
        Patience { rounds, still: Duration::ZERO }
    }

    /// After some time, and with so many rounds: false if it is not to be waited for any longer.
    pub(crate) fn lasts(&mut self, after: Duration, rounds: u64) -> bool {
        self.still = if rounds == self.rounds { self.still + after } else { Duration::ZERO };
        self.rounds = rounds;
        self.still < END
    }
}

#[cfg(test)]
mod tests {
    use super::Awaited::{Anybody, Nobody, Somebody};
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_message_that_is_stuck_does_not_keep_the_thread_awake() {
        let (soon, late) = (Duration::from_micros(100), Duration::from_millis(1));
        assert_eq!(pause(soon, true, Nobody), Duration::ZERO);
        assert_eq!(pause(late, true, Somebody), Duration::from_micros(200));
        // Not for ever: its receiver may be stopped.
        for awaited in [Nobody, Anybody, Somebody] {
            assert_eq!(pause(HOUR, true, awaited), Duration::from_millis(10));
        }
    }

    #[test]
    fn waiting_costs_little_and_delays_little() {
        assert_eq!(pause(HOUR, false, Nobody), Duration::from_millis(50));
        assert_eq!(pause(Duration::from_millis(400), false, Somebody), Duration::from_millis(2));
        assert_eq!(pause(HOUR, false, Somebody), Duration::from_millis(10));
        assert_eq!(pause(Duration::from_millis(400), false, Nobody), Duration::from_millis(10));
        assert_eq!(pause(Duration::from_millis(2), false, Nobody), Duration::from_micros(500));
        assert_eq!(pause(Duration::ZERO, false, Somebody), Duration::from_micros(20));
        // Who listens hears soon what is said soon, and does not look often for what may never come.
        assert_eq!(pause(Duration::from_millis(400), false, Anybody), Duration::from_millis(2));
        assert_eq!(pause(Duration::from_secs(50), false, Anybody), Duration::from_millis(10));
        assert_eq!(pause(HOUR, false, Anybody), Duration::from_millis(50));
    }

    #[test]
    fn a_thread_that_answers_others_is_waited_for_as_long_as_they_read() {
        let mut patience = Patience::new(7);
        // Others read for hours, of a rank that is through.
        assert!((8..10_000).all(|rounds| patience.lasts(Duration::from_secs(10), rounds)));
        // One of its calls does not return.
        let mut looks = std::iter::repeat_n(9999, 60);
        assert!(looks.by_ref().take(59).all(|rounds| patience.lasts(END / 60, rounds)));
        assert!(looks.all(|rounds| !patience.lasts(END / 60, rounds)));
    }
}
