//! Which place takes the least time.

use crate::estimate::{Estimate, Place, Wish};
use crate::sides::Sides;
use crate::stages::{Took, Way};
use crate::{Load, Profile, Request, Splitting};
use stead_core::{Error, Result, units};

/// Halvings when the best split is looked for: to a millionth.
const HALVINGS: usize = 20;

/// What a request would take in each place, and the choice.
#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    alternatives: Vec<Estimate>,
    choice: usize,
}

impl Decision {
    /// All places that there are for the request.
    pub fn alternatives(&self) -> &[Estimate] {
        &self.alternatives
    }

    /// The one that takes the least time; of equal ones the one that moves the fewest bytes.
    pub fn choice(&self) -> &Estimate {
        &self.alternatives[self.choice]
    }

    /// The best one of those that are wished for.
    ///
    /// # Errors
    /// `Usage` if the request cannot be done so.
    pub fn wished(&self, wish: Wish) -> Result<&Estimate> {
        let allowed = self.alternatives.iter().filter(|e| wish.allows(e.place));
        best(allowed).ok_or_else(|| {
            Error::usage(match wish {
                Wish::Vector => {
                    "these kernels take no numbers that could be sent in place of bytes"
                }
                Wish::Split => {
                    "the hosts that have the data ask for it, so there is nothing to split"
                }
                _ => "the request cannot be done so",
            })
            .with_hint("take --place auto")
        })
    }

    /// The one that takes the least time of those that can be had.
    pub fn among(&self, can: impl Fn(Place) -> bool) -> Option<&Estimate> {
        best(self.alternatives.iter().filter(|e| can(e.place)))
    }

    /// Why this one, in a sentence.
    pub fn why(&self) -> String {
        self.about(self.choice(), |_| true)
    }

    /// What one of the alternatives takes, and the best of the others that can be had, in a sentence.
    pub fn about(&self, c: &Estimate, can: impl Fn(Place) -> bool) -> String {
        let seconds = units::format_seconds(c.seconds);
        let moved = units::format_size(c.moved_bytes.max(0.0) as u64);
        let mut why = format!("{} takes {seconds}, bound by {}", c.place, c.binds());
        if c.place == Place::Split {
            why.push_str(&format!(
                ", with {:.0} % of the data at the hosts",
                c.asked_share * 100.0
            ));
        }
        why.push_str(&format!(", and moves {moved}"));
        let others = self.alternatives.iter().filter(|e| e.place != c.place && can(e.place));
        if let Some(next) = best(others) {
            let seconds = units::format_seconds(next.seconds);
            why.push_str(&format!(
                "; {} would take {seconds}, bound by {}",
                next.place,
                next.binds()
            ));
        }
        why
    }
}

/// The fastest; of equal ones the one that moves the fewest bytes, then the first.
fn best<'a>(among: impl Iterator<Item = &'a Estimate>) -> Option<&'a Estimate> {
    among.reduce(|a, b| {
        let less = b.seconds < a.seconds;
        let as_fast = b.seconds == a.seconds && b.moved_bytes < a.moved_bytes;
        if less || as_fast { b } else { a }
    })
}

/// Predicts a request in each place, and chooses. Takes a fraction of a millisecond for a few sites.
///
/// *Vector* is among the alternatives if all kernels take numbers, and *split* if the hosts that have the data are others
/// than those that ask.
///
/// # Errors
/// `Usage` for sites, tiers, links and costs that the profile does not have, and requests without sense; `Format` for
/// a profile without sense.
pub fn decide(profile: &Profile, request: &Request, load: &Load) -> Result<Decision> {
    let sides = Sides::new(profile, request, load)?;
    let all = sides.all();
    let estimate = |place, took: Took, asked_share| Estimate {
        place,
        seconds: took.seconds,
        parts: took.parts,
        moved_bytes: took.moved,
        asked_share,
    };
    let push = sides.push(&all);
    let pull = sides.moving(Way::Bytes, &all);
    let mut alternatives = vec![estimate(Place::Push, push, 0.0), estimate(Place::Pull, pull, 1.0)];
    if sides.has_vectors() {
        alternatives.push(estimate(Place::VectorUp, sides.moving(Way::Numbers, &all), 1.0));
        alternatives.push(estimate(Place::VectorDown, sides.moving(Way::Back, &all), 0.0));
    }
    if !sides.share_hosts() {
        let (took, share) = split(&sides, &request.splitting, push, pull);
        alternatives.push(estimate(Place::Split, took, share));
    }
    let chosen = best(alternatives.iter()).map(|e| e.place);
    let choice = alternatives.iter().position(|e| Some(e.place) == chosen).unwrap_or(0);
    Ok(Decision { alternatives, choice })
}

/// The least time in which both sides together are done, and the share of those who ask, of all passes. Never more than either alone,
/// which it is where to give out chunks costs more than the other side brings.
///
/// A pass ends on both sides at once: it is balanced by what both sides do in it. Those who ask have in memory what they fetched
/// in the passes before, and fetch more in each, so that a slow link is used in all passes, and they do more and more of the work.
fn split(sides: &Sides, splitting: &Splitting, push: Took, pull: Took) -> (Took, f64) {
    let found = if push.seconds <= pull.seconds { (push, 0.0) } else { (pull, 1.0) };
    let (all, bytes, room) = (sides.all(), sides.bytes(), sides.room());
    if bytes == 0.0 {
        return found;
    }
    let (mut took, mut asked) = (Took::default(), vec![0.0; all.len()]);
    let mut has = asked.clone();
    let mut passes = sides.passes;
    for number in 0..MOST_PASSES {
        let mut balance = balanced(sides, &has, number == 0);
        if number == 0 {
            // Both sides read from one tier, and the storage computes on what it has read last.
            balance.took.seconds = balance.took.seconds.max(sides.reading_to_compute());
            balance.took.parts.read = balance.took.parts.read.max(sides.reading(&all));
        }
        let mut now: Vec<f64> = has.iter().zip(&balance.rest).map(|(h, r)| h.max(*r)).collect();
        let fits = (room / now.iter().sum::<f64>().max(1.0)).min(1.0);
        now.iter_mut().for_each(|n| *n *= fits);
        let grown = now.iter().sum::<f64>() - has.iter().sum::<f64>();
        has = now;
        // Passes are alike once nothing more is fetched to be kept.
        let alike = number > 0 && grown.abs() <= bytes * 1e-4 || number + 1 == MOST_PASSES;
        let times = if alike { passes } else { passes.min(1.0) };
        took = took.plus(&balance.took.times(times));
        asked.iter_mut().zip(&balance.rest).for_each(|(a, rest)| *a += rest * times / sides.passes);
        passes -= times;
        if passes <= 0.0 {
            break;
        }
    }
    let share = (asked.iter().sum::<f64>() / bytes).clamp(0.0, 1.0);
    let own: Vec<f64> = all.iter().zip(&asked).map(|(all, a)| (all - a).max(0.0)).collect();
    // The answers of both sides come together as those of one side do, after each pass.
    let (near, far) = (sides.answered(&own), sides.gathered(bytes * share));
    let mut took = took.plus(&near.beside(&far)).plus(&sides.requested());
    // The last chunk of the slower side is waited for.
    let slower = push.seconds.max(pull.seconds);
    took.seconds += splitting.part * slower + splitting.seconds * sides.passes;
    if took.seconds < found.0.seconds { (took, share) } else { found }
}

/// Passes of a split that are looked at one by one.
const MOST_PASSES: usize = 64;

/// A pass in which both sides are done at the same time, and what those who ask compute on in it, of each store.
struct Balanced {
    took: Took,
    rest: Vec<f64>,
}

/// Those who ask have so much of each store in memory.
///
/// All stores compute for equally long on their own bytes, and the others do the rest. The longer they do, the less is left, so
/// the best is where both take equally long, which is halved in.
fn balanced(sides: &Sides, has: &[f64], first: bool) -> Balanced {
    let all = sides.all();
    let longest =
        all.iter().enumerate().map(|(i, b)| sides.storing_once(i, *b, 0.0, first).seconds);
    let (mut low, mut high) = (0.0, longest.fold(0.0, f64::max));
    let mut found: Option<Balanced> = None;
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        let own: Vec<f64> = (0..all.len()).map(|i| most(sides, i, middle, has[i], first)).collect();
        let rest: Vec<f64> = all.iter().zip(&own).map(|(a, o)| a - o).collect();
        let kept: Vec<f64> = rest.iter().zip(has).map(|(r, h)| r.min(*h)).collect();
        let fetched: Vec<f64> = rest.iter().zip(&kept).map(|(r, k)| r - k).collect();
        let far = sides.fetching_once(&fetched, &kept);
        let mut near = Took::default();
        for (i, own) in own.iter().enumerate() {
            near = near.beside(&sides.storing_once(i, *own, fetched[i], first));
        }
        if near.seconds > far.seconds {
            high = middle;
        } else {
            low = middle;
        }
        let took = near.beside(&far).shared(sides.crowded_by(&own, &fetched, &kept, first));
        if found.as_ref().is_none_or(|f| took.seconds < f.took.seconds) {
            found = Some(Balanced { took, rest });
        }
    }
    found.unwrap_or(Balanced { took: Took::default(), rest: all })
}

/// The most bytes that store `i` computes on in so many seconds of a pass, in which it sends what is left and those who ask have
/// not in memory.
fn most(sides: &Sides, i: usize, seconds: f64, has: f64, first: bool) -> f64 {
    let all = sides.stores[i].bytes;
    let sent = |own: f64| (all - own - has).max(0.0);
    let within = |own: f64| sides.storing_once(i, own, sent(own), first).seconds <= seconds;
    let (mut low, mut high) = (0.0, all);
    if within(high) {
        return high;
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if within(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
