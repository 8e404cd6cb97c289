//! When it will be the turn of what waits, and what it waits for.

use super::{Queue, Running, Standing};
use crate::clock::Watch;
use crate::manager::{Stager, why};
use crate::request::Request;
use crate::status::Status;
use crate::touch::{Bounds, Touched};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use stead_core::{Cancel, Location, Result};
use stead_model::transfer::{Amount, Remaining, Seen};

/// How long the sources of a transfer that waits, and of those that come before it, are looked at to say how long it will take.
const LOOKS_FOR: Duration = Duration::from_secs(2);
/// Of what is to come before a transfer, so many are counted.
const MOST_BEFORE: usize = 1000;
/// So many threads look at a time.
const MOST_LOOKING: usize = 4;
/// Seconds that one takes which nobody could look at, where none has ended before.
const UNSEEN_S: f64 = 60.0;

/// Counts a thread that looks as long as it does: a device that does not answer keeps it.
struct Looking(Arc<AtomicUsize>);

impl Looking {
    fn begin(all: &Arc<AtomicUsize>) -> Option<Looking> {
        let one = Looking(all.clone());
        (all.fetch_add(1, Ordering::Relaxed) < MOST_LOOKING).then_some(one)
    }
}

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Queue {
    /// Seconds until a transfer has ended: those before it, its turn, and itself.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn left(&self, id: i64) -> Result<Remaining> {
        let Standing { status, progress } = self.standing(id)?;
        // While files are compared nobody knows what will be left.
        if let Some(progress) = progress.filter(|p| p.planned) {
            return Ok(progress.left);
        }
        if status.state.is_over() {
            return Ok(Remaining::default());
        }
        let journal = self.shared.stager.journal();
        let mean = journal.mean_seconds()?;
        let needs = journal.before(id, MOST_BEFORE)?;
        // One after the other: what is to come first has its turn, too.
        let mut left = self.turn_of(needs.last().copied().unwrap_or(id), mean)?;
        let told = self.looked(id, &needs);
        for other in &needs {
            let running = self.shared.now().running.get(other).cloned();
            let its = running.and_then(|one| one.moving.left());
            let its = its.or_else(|| told.get(other).copied());
            left = sum(left, its.unwrap_or_else(|| guess(1.0, mean)));
        }
        let queued = usize::try_from(journal.count_queued()?).unwrap_or(usize::MAX);
        let others = {
            let now = self.shared.now();
            let running = now.running.len();
            let all = running.saturating_add(queued.saturating_sub(1));
            now.slots().saturating_sub(1).max(running).min(all)
        };
        // More than can be looked at in so short a time, or something that is not there yet, and that nobody knows of.
        let own = told.get(&id).copied().unwrap_or_else(|| unseen(mean));
        Ok(sum(left, beside(own, others)))
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
            let left = before.iter().filter_map(|one| one.moving.left());
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

    /// What a transfer that waits and those before it will take, as far as a look at their sources tells that is no longer than some
    /// seconds.
    fn looked(&self, id: i64, needs: &[i64]) -> BTreeMap<i64, Remaining> {
        let mut told = BTreeMap::new();
        let Some(one) = Looking::begin(&self.shared.looking) else { return told };
        let (stager, needs, cancel) = (self.shared.stager.clone(), needs.to_vec(), Cancel::new());
        let (token, (send, receive)) = (cancel.clone(), mpsc::channel());
        let thread = std::thread::Builder::new().name("stead-preview".into());
        let begun = thread.spawn(move || {
            let _one = one;
            look(&stager, id, &needs, &token, &send);
        });
        if begun.is_err() {
            return told;
        }
        let watch = Watch::start();
        while let Some(most) = LOOKS_FOR.checked_sub(Duration::from_secs_f64(watch.seconds()))
            && let Ok((id, takes)) = receive.recv_timeout(most)
        {
            told.insert(id, takes);
        }
        cancel.cancel();
        told
    }
}

/// Looks at a transfer that waits, and then at those that come before it, and tells what each will take. What is not there yet is as much as
/// those bring that make it.
fn look(stager: &Stager, id: i64, needs: &[i64], cancel: &Cancel, tell: &Sender<(i64, Remaining)>) {
    let journal = stager.journal();
    let preview = |id: i64, request: &Request| {
        let job = journal.job(id)?;
        // Nothing is read for an estimate: times of change tell about as much as what is in files.
        let mut request = request.clone();
        request.options.checksum = false;
        stager.preview_of(&request, job.as_deref(), cancel)
    };
    let Ok(own) = journal.status(id) else { return };
    let itself = preview(id, &own.request).ok();
    // Nobody may wait for it any more.
    if let Some(preview) = &itself {
        let _ = tell.send((id, preview.takes));
    }
    let mut brought: Vec<(Location, Amount)> = Vec::new();
    // Those that come first may make what the others need.
    for other in needs.iter().rev() {
        if cancel.is_cancelled() {
            return;
        }
        let Ok(status) = journal.status(*other) else { continue };
        let (amount, takes) = if let Some((all, left)) = planned(&status) {
            (all, Seen::default().takes(left))
        } else if let Ok(preview) = preview(*other, &status.request) {
            (Amount::new(preview.files, preview.bytes), preview.takes)
        } else if let Some(amount) = made_by(&brought, &status.request) {
            (amount, Seen::default().takes(amount))
        } else {
            continue;
        };
        let _ = tell.send((*other, takes));
        brought.extend(status.request.target.map(|target| (target, amount)));
    }
    let amount = planned(&own).map(|(_, left)| left).or_else(|| made_by(&brought, &own.request));
    if let Some(amount) = amount.filter(|_| itself.is_none()) {
        let _ = tell.send((id, Seen::default().takes(amount)));
    }
}

/// How much one is that was planned before, as the journal has it, and what is left of it.
fn planned(status: &Status) -> Option<(Amount, Amount)> {
    let all = Amount::new(status.files, status.bytes);
    let done = Amount::new(status.files_done, status.bytes_done);
    (status.files > 0).then(|| (all, all.less(done)))
}

/// How much those bring that make the sources of a request; none if none of them does.
fn made_by(brought: &[(Location, Amount)], request: &Request) -> Option<Amount> {
    let makes = |target: &Location| request.sources.iter().any(|source| may_be_in(source, target));
    let all = brought.iter().filter(|(target, _)| makes(target)).map(|(_, amount)| *amount);
    all.reduce(|a, b| Amount { files: a.files + b.files, bytes: a.bytes + b.bytes })
}

/// True if one may lie in the other, as far as their names tell.
fn may_be_in(source: &Location, target: &Location) -> bool {
    fn steps(at: &Location) -> impl Iterator<Item = &str> {
        at.path
            .split('/')
            .filter(|step| !step.is_empty())
            .take_while(|step| !Location::is_wild(step))
    }
    (&source.node, &source.space) == (&target.node, &target.space)
        && steps(source).zip(steps(target)).all(|(a, b)| a == b)
}

/// One that nobody could look at.
fn unseen(mean: Option<f64>) -> Remaining {
    let mean = mean.unwrap_or(UNSEEN_S);
    Remaining { seconds: mean, low: 0.0, high: mean * 10.0 }
}

/// The same, beside so many others: what was seen of a device may be what one transfer had of it that was alone.
fn beside(takes: Remaining, others: usize) -> Remaining {
    Remaining { high: takes.high * (others as f64 + 1.0), ..takes }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::request::{Action, Options};

    #[test]
    fn what_is_made_before_is_known_by_its_names() {
        let at = |text: &str| Location::parse(text, &|_| None).unwrap();
        let brought = [
            (at("/scratch/run1"), Amount::new(2, 20)),
            (at("nvme0://"), Amount::new(3, 30)),
            (at("/scratch/run10"), Amount::new(5, 50)),
        ];
        let made = |sources: &[&str]| {
            let request = Request {
                action: Action::Copy,
                sources: sources.iter().map(|text| at(text)).collect(),
                target: Some(at("/project")),
                options: Options::default(),
            };
            made_by(&brought, &request).map(|amount| (amount.files, amount.bytes))
        };
        assert_eq!(made(&["/scratch/run1/"]), Some((2.0, 20.0)));
        assert_eq!(made(&["/scratch/run1/deep/a.h5"]), Some((2.0, 20.0)));
        assert_eq!(made(&["/scratch/run1/*.h5"]), Some((2.0, 20.0)));
        // Any of both may be in it.
        assert_eq!(made(&["/scratch/run*"]), Some((7.0, 70.0)));
        assert_eq!(made(&["nvme0://run1", "/scratch/run10"]), Some((8.0, 80.0)));
        for none in ["/scratch/run", "/other", "nvme1://run1", "n2:/scratch/run1"] {
            assert_eq!(made(&[none]), None, "{none}");
        }
    }

    #[test]
    fn beside_others_it_may_take_longer() {
        let alone = Remaining { seconds: 10.0, low: 8.0, high: 12.0 };
        assert_eq!(beside(alone, 0), alone);
        assert_eq!(beside(alone, 2), Remaining { high: 36.0, ..alone });
    }
}
