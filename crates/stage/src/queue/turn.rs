//! When it will be the turn of what waits, and what it waits for.

use super::{Queue, Running, Standing};
use crate::manager::why;
use crate::status::Status;
use crate::touch::{Bounds, Touched};
use std::sync::atomic::Ordering;
use std::time::Duration;
use stead_core::{Cancel, Result};
use stead_model::transfer::Remaining;

/// How long the sources of a transfer that waits are looked at to say how long it will take.
const LOOKS_FOR: Duration = Duration::from_secs(2);
/// Of what is to come before a transfer, so many are counted.
const MOST_BEFORE: usize = 1000;
/// So many of these look at a time.
const MOST_LOOKING: usize = 4;

impl Queue {
    /// Seconds until a transfer has ended: those before it, its turn, and itself.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn left(&self, id: i64) -> Result<Remaining> {
        let Standing { status, progress } = self.standing(id)?;
        if let Some(progress) = progress {
            return Ok(progress.left);
        }
        if status.state.is_over() {
            return Ok(Remaining::default());
        }
        let journal = self.shared.stager.journal();
        let mean = journal.mean_seconds()?;
        let needs = journal.before(id, MOST_BEFORE)?;
        let before = match needs.first() {
            None => self.turn_of(id, mean)?,
            // One after the other: what is to come first has its turn, too.
            Some(_) => {
                let first = needs.last().copied().unwrap_or(id);
                let mut before = self.turn_of(first, mean)?;
                for other in &needs {
                    let running = self.shared.now().running.get(other).cloned();
                    let left = running.and_then(|one| one.moving.progress()).map(|p| p.left);
                    before = sum(before, left.unwrap_or_else(|| guess(1.0, mean)));
                }
                before
            }
        };
        Ok(sum(before, self.itself(&status, mean)))
    }

    /// Seconds until it is the turn of one that waits for nothing else: the longest of what its queue takes, and each dataspace that it
    /// touches and that has a number of transfers at a time.
    fn turn_of(&self, id: i64, mean: Option<f64>) -> Result<Remaining> {
        let journal = self.shared.stager.journal();
        let (touched, ahead) = (journal.touched(id)?, journal.ahead_of(id)?);
        let bounds = Bounds::of(&self.shared.stager.means());
        let seats = bounds.seats(&touched);
        let (slots, running, full) = {
            let now = self.shared.now();
            let full = now.full(seats.clone(), &bounds);
            (now.slots().max(1), now.running.clone(), full)
        };
        if running.contains_key(&id) {
            return Ok(Remaining::default());
        }
        let wait = |by: usize, counts: &dyn Fn(&Touched) -> bool, others: f64| {
            let before: Vec<&Running> =
                running.values().filter(|one| counts(&one.touched)).collect();
            let ahead: u64 = ahead.iter().filter(|(t, _)| counts(t)).map(|(_, n)| n).sum();
            if before.len() < by && ahead == 0 && others == 0.0 {
                return Remaining::default();
            }
            let left = before.iter().filter_map(|one| one.moving.progress()).map(|p| p.left);
            let all = left.fold(guess(ahead as f64 + others, mean), sum);
            let by = by as f64;
            Remaining { seconds: all.seconds / by, low: all.low / by, high: all.high }
        };
        let mut longest = wait(slots, &|_| true, 0.0);
        for (key, most) in seats {
            let here = running.values().filter(|one| one.touched.has(&key)).count();
            // Those of others who have the seats: nobody here knows how far they are.
            let others = match full.iter().any(|(full, _)| *full == key) {
                true => most.saturating_sub(here) as f64,
                false => 0.0,
            };
            let there = wait(most, &|touched| touched.has(&key), others);
            if there.seconds > longest.seconds {
                longest = there;
            }
        }
        Ok(longest)
    }

    /// What a transfer waits for; none if no queue does it.
    ///
    /// # Errors
    /// Those of the journal.
    pub(super) fn waits(&self, id: i64) -> Result<Option<String>> {
        let journal = self.shared.stager.journal();
        if !journal.is_queued(id)? {
            return Ok(None);
        }
        if let Some(first) = journal.before(id, 1)?.first() {
            return Ok(Some(format!("transfer {first} comes before it")));
        }
        let bounds = Bounds::of(&self.shared.stager.means());
        let full = {
            let seats = bounds.seats(&journal.touched(id)?);
            self.shared.now().full(seats, &bounds)
        };
        Ok(Some(match full.is_empty() {
            true => "its turn".to_owned(),
            false => why(&full),
        }))
    }

    /// What a transfer that waits will take, from a look at its sources that is no longer than some seconds.
    fn itself(&self, status: &Status, mean: Option<f64>) -> Remaining {
        let (stager, cancel) = (self.shared.stager.clone(), Cancel::new());
        let (request, token) = (status.request.clone(), cancel.clone());
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let looking = self.shared.looking.clone();
        let thread = std::thread::Builder::new().name("stead-preview".into());
        // A device that does not answer keeps them.
        let looks = match looking.fetch_add(1, Ordering::Relaxed) < MOST_LOOKING {
            true => thread.spawn(move || {
                // Nobody may wait for it any more.
                let _ = send.send(stager.preview(&request, &token));
                looking.fetch_sub(1, Ordering::Relaxed);
            }),
            false => {
                looking.fetch_sub(1, Ordering::Relaxed);
                Err(std::io::ErrorKind::WouldBlock.into())
            }
        };
        let preview = looks.ok().and_then(|_| receive.recv_timeout(LOOKS_FOR).ok());
        cancel.cancel();
        match preview {
            Some(Ok(preview)) => preview.takes,
            // More than can be looked at in so short a time, or something that it will fail with.
            Some(Err(_)) => Remaining::default(),
            None => {
                let mean = mean.unwrap_or(60.0);
                Remaining { seconds: mean, low: 0.0, high: mean * 10.0 }
            }
        }
    }
}

/// So many that nobody has looked at: taken to be as those before.
fn guess(transfers: f64, mean: Option<f64>) -> Remaining {
    match mean {
        Some(mean) => Remaining {
            seconds: transfers * mean,
            low: transfers * mean / 4.0,
            high: transfers * mean * 4.0,
        },
        None => Remaining { seconds: transfers, low: 0.0, high: transfers * 60.0 },
    }
}

fn sum(a: Remaining, b: Remaining) -> Remaining {
    Remaining { seconds: a.seconds + b.seconds, low: a.low + b.low, high: a.high + b.high }
}
