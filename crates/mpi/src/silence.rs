//! Who of the ranks that are waited for gives no sign of life: who is to be asked for one, and who is gone.

use std::time::{Duration, Instant};

/// How often a rank that is waited for is asked whether it answers.
const ASK: Duration = Duration::from_secs(1);
/// Time between two looks in which this process did nothing at all.
const AWAY: Duration = Duration::from_secs(2);

/// See the module's documentation.
pub(crate) struct Silence {
    /// After so long without an answer a rank is gone.
    limit: Duration,
    /// When it was last looked.
    looked: Instant,
    ranks: Vec<Signs>,
}

#[derive(Clone, Copy)]
struct Signs {
    heard: Instant,
    asked: Option<Instant>,
}

/// What is to be done about a rank.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Ask whether it answers.
    Ask(usize),
    /// Give it up.
    Gone(usize),
}

impl Silence {
    pub(crate) fn new(ranks: usize, limit: Duration, now: Instant) -> Silence {
        Silence { limit, looked: now, ranks: vec![Signs { heard: now, asked: None }; ranks] }
    }

    /// The time without an answer after which a rank is gone.
    pub(crate) fn limit(&self) -> Duration {
        self.limit
    }

    /// Something came of a rank.
    pub(crate) fn heard(&mut self, rank: usize, now: Instant) {
        if let Some(signs) = self.ranks.get_mut(rank) {
            *signs = Signs { heard: now, asked: None };
        }
    }

    /// What is to be done about ranks that are waited for. It is called often, also if nobody is.
    pub(crate) fn look(
        &mut self,
        waited_for: impl Iterator<Item = usize>,
        now: Instant,
    ) -> Vec<Verdict> {
        // Where this process was stopped, as a job is that is suspended, the others were as well.
        let away = now.saturating_duration_since(self.looked);
        self.looked = now;
        if away > AWAY {
            for asked in self.ranks.iter_mut().filter_map(|signs| signs.asked.as_mut()) {
                *asked += away;
            }
        }
        let mut verdicts = Vec::new();
        for rank in waited_for {
            let Some(signs) = self.ranks.get_mut(rank) else { continue };
            match signs.asked {
                Some(at) if now.saturating_duration_since(at) >= self.limit => {
                    verdicts.push(Verdict::Gone(rank));
                }
                Some(_) => {}
                None if now.saturating_duration_since(signs.heard) >= ASK => {
                    signs.asked = Some(now);
                    verdicts.push(Verdict::Ask(rank));
                }
                None => {}
            }
        }
        verdicts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks each second from one to another.
    fn looks(
        silence: &mut Silence,
        begun: Instant,
        seconds: std::ops::Range<u64>,
    ) -> Vec<(u64, Verdict)> {
        let mut all = Vec::new();
        for s in seconds {
            let told = silence.look([1, 2].into_iter(), begun + Duration::from_secs(s));
            all.extend(told.into_iter().map(|verdict| (s, verdict)));
        }
        all
    }

    #[allow(clippy::disallowed_methods)]
    fn begin() -> (Silence, Instant) {
        let begun = Instant::now();
        (Silence::new(3, Duration::from_secs(30), begun), begun)
    }

    #[test]
    fn who_is_waited_for_and_does_not_answer_is_gone() {
        let (mut silence, begun) = begin();
        assert_eq!(silence.look([1].into_iter(), begun), []);
        let asked = looks(&mut silence, begun, 1..3);
        assert_eq!(asked, [(1, Verdict::Ask(1)), (1, Verdict::Ask(2))]);
        silence.heard(2, begun + Duration::from_secs(3));
        // The one that has answered is asked again.
        let told = looks(&mut silence, begun, 3..34);
        assert_eq!(told[..2], [(4, Verdict::Ask(2)), (31, Verdict::Gone(1))]);
        assert!(!told.contains(&(33, Verdict::Gone(2))));
    }

    #[test]
    fn ranks_of_a_job_that_was_suspended_are_not_gone() {
        let (mut silence, begun) = begin();
        assert_eq!(looks(&mut silence, begun, 0..5).len(), 2);
        // For an hour, right after they were asked. Then they have their time to answer.
        assert_eq!(looks(&mut silence, begun, 3600..3620), []);
        silence.heard(1, begun + Duration::from_secs(3620));
        let told = looks(&mut silence, begun, 3620..3640);
        let gone: Vec<_> = told.iter().filter(|(_, v)| matches!(v, Verdict::Gone(_))).collect();
        assert!(gone.first().is_some_and(|(s, v)| *s > 3620 && *v == Verdict::Gone(2)), "{told:?}");
        assert!(gone.iter().all(|(_, v)| *v == Verdict::Gone(2)));
    }
}
