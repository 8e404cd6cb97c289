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

/// The least time in which both sides together are done, and the share of those who ask. Never more than either alone, which it is
/// where to give out chunks costs more than the other side brings.
///
/// All stores compute for equally long on their own bytes, and the rest is pulled. The longer they do, the longer *push*
/// takes and the shorter *pull* does, so the best is where both take equally long, which is halved in.
fn split(sides: &Sides, splitting: &Splitting, push: Took, pull: Took) -> (Took, f64) {
    let first = 1.0 + f64::from(splitting.again);
    let all = sides.all();
    let bytes = sides.bytes();
    let mut found = if push.seconds <= pull.seconds { (push, 0.0) } else { (pull, 1.0) };
    if bytes == 0.0 {
        return found;
    }
    // Both sides read from one tier, and the storage computes on what it has read last.
    let reading = sides.reading_to_compute() + sides.requested().seconds;
    let longest = all.iter().enumerate().map(|(i, b)| sides.storing(i, *b).seconds);
    let (mut low, mut high) = (0.0, longest.fold(0.0, f64::max));
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        let own: Vec<f64> = (0..all.len()).map(|i| most(sides, i, middle)).collect();
        let rest: Vec<f64> = all.iter().zip(&own).map(|(a, o)| a - o).collect();
        let (pushed, pulled) = (sides.push(&own), sides.moving_first(Way::Bytes, &rest, first));
        let mut took = pushed.beside(&pulled);
        took.seconds = took.seconds.max(reading + sides.answered(&own).seconds);
        took.seconds = took.seconds * (1.0 + splitting.part) + splitting.seconds;
        took.parts.read = took.parts.read.max(sides.reading(&all));
        if took.seconds < found.0.seconds {
            found = (took, rest.iter().sum::<f64>() / bytes);
        }
        if pushed.seconds > pulled.seconds {
            high = middle;
        } else {
            low = middle;
        }
    }
    found
}

/// The most bytes that store `i` computes on in so many seconds.
fn most(sides: &Sides, i: usize, seconds: f64) -> f64 {
    let all = sides.stores[i].bytes;
    let (mut low, mut high) = (0.0, all);
    if sides.storing(i, high).seconds <= seconds {
        return high;
    }
    for _ in 0..HALVINGS {
        let middle = (low + high) / 2.0;
        if sides.storing(i, middle).seconds <= seconds {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}
