//! What each worker was told that it may do, of transfers at a time and bytes a second, so that all of them together never do more than
//! is agreed: what was said counts until the worker has said that it goes by something newer.

use crate::clock;
use crate::control::Order;
use crate::share::{Of, Wish, rates, shares};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};
use stead_stage::Kind;

/// Kinds that a worker tells of, dataspaces of each, and transfers that are next.
const MOST_KINDS: usize = 32;
const MOST_TOUCHED: usize = 8;
const MOST_NEXT: usize = 512;
/// A worker goes by what it is told within this. Of one that does not, as its user may have stopped it, what it has under way counts
/// from then on, and no more what it may begin: nobody has others wait for ever.
const OBEYS_WITHIN: Duration = Duration::from_secs(5);
/// Said, and not known to be heard: who has so many is told nothing until then.
const MOST_UNHEARD: usize = 64;

/// What is agreed about the dataspaces of the node.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Tiers {
    /// Transfers at a time.
    pub(super) transfers: BTreeMap<String, usize>,
    /// Bytes a second.
    pub(super) limits: BTreeMap<String, u64>,
    /// Where there is a quota of all users together: bytes that one user may have there.
    pub(super) quotas: BTreeMap<String, u64>,
}

/// Something that a worker was told.
#[derive(Debug, Clone, Default, PartialEq)]
struct Said {
    kinds: BTreeMap<Vec<String>, usize>,
    rates: BTreeMap<String, Option<f64>>,
    full: BTreeSet<String>,
}

/// What a worker has and was told.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Under way, by kinds.
    running: BTreeMap<Vec<String>, usize>,
    /// Those that are next.
    next: Vec<Vec<String>>,
    said: Said,
    number: u64,
    /// What was said before, until it is known that something newer was heard: of this number.
    before: Vec<(u64, Instant, Said)>,
    /// When each kind was given one more, as a number that grows.
    turns: BTreeMap<Vec<String>, u64>,
}

impl Part {
    /// Transfers under way.
    pub(crate) fn running(&self) -> usize {
        self.running.values().sum()
    }

    /// The same by the dataspaces that they touch.
    pub(super) fn running_in(&self) -> impl Iterator<Item = (&str, usize)> {
        self.running.iter().flat_map(|(kind, n)| kind.iter().map(move |name| (name.as_str(), *n)))
    }

    /// As many of a kind may be under way.
    fn held(&self, kind: &Vec<String>) -> usize {
        let said = self.before.iter().map(|(_, _, said)| said).chain([&self.said]);
        let most = said.map(|said| said.kinds.get(kind).copied().unwrap_or(0)).max().unwrap_or(0);
        most.max(self.running.get(kind).copied().unwrap_or(0))
    }

    /// All kinds of which some may be under way.
    fn kinds(&self) -> BTreeSet<&Vec<String>> {
        let said = self.before.iter().map(|(_, _, said)| said).chain([&self.said]);
        said.flat_map(|said| said.kinds.keys()).chain(self.running.keys()).collect()
    }

    /// As many may be under way that touch a dataspace.
    fn touching(&self, name: &str) -> usize {
        let kinds = self.kinds().into_iter().filter(|kind| kind.iter().any(|one| one == name));
        kinds.map(|kind| self.held(kind)).sum()
    }

    fn rate(&self, name: &str) -> f64 {
        let said = self.before.iter().map(|(_, _, said)| said).chain([&self.said]);
        said.filter_map(|said| said.rates.get(name).copied().flatten()).fold(0.0, f64::max)
    }

    /// The worker says what it has, having heard what was said up to a number. It is believed that it has less than before, and not
    /// that it has more than it was told.
    pub(crate) fn hear(&mut self, seen: u64, kinds: Vec<Kind>, next: &[usize]) {
        let names = |kind: &Kind| -> Vec<String> {
            let mut names: Vec<String> = kind.touches.iter().take(MOST_TOUCHED).cloned().collect();
            names.sort_unstable();
            names.dedup();
            names
        };
        let all: Vec<Vec<String>> = kinds.iter().take(MOST_KINDS).map(names).collect();
        let mut most: usize = self.kinds().into_iter().map(|kind| self.held(kind)).sum();
        let mut running: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for (kind, names) in kinds.iter().zip(&all) {
            let n = kind.running.min(most);
            most -= n;
            if n > 0 {
                *running.entry(names.clone()).or_default() += n;
            }
        }
        self.running = running;
        self.before.retain(|(newer, _, _)| *newer > seen.min(self.number));
        let known = next.iter().take(MOST_NEXT).filter_map(|place| all.get(*place).cloned());
        self.next = known.collect();
        self.turns.retain(|kind, _| all.contains(kind));
    }

    /// What was said long ago was heard.
    fn forget(&mut self) {
        self.before.retain(|(_, at, _)| at.elapsed() < OBEYS_WITHIN);
    }

    fn wish(&self) -> (Vec<Vec<String>>, Wish) {
        let mut all: Vec<Vec<String>> = self.kinds().into_iter().cloned().collect();
        for kind in &self.next {
            if !all.contains(kind) {
                all.push(kind.clone());
            }
        }
        let of = |kind: &Vec<String>| Of {
            touches: kind.clone(),
            running: self.running.get(kind).copied().unwrap_or(0),
            held: self.held(kind),
            turn: self.turns.get(kind).copied().unwrap_or(0),
        };
        let kinds = all.iter().map(of).collect();
        let place = |kind: &Vec<String>| all.iter().position(|one| one == kind);
        let next = self.next.iter().filter_map(place).collect();
        (all, Wish { kinds, next })
    }

    /// What is to be said next, if that is something new.
    fn order(&self, new: &Said) -> Option<Order> {
        (*new != self.said && self.before.len() < MOST_UNHEARD).then(|| Order::Share {
            number: self.number + 1,
            kinds: new.kinds.clone().into_iter().collect(),
            rates: new.rates.clone(),
            full: new.full.clone(),
        })
    }

    /// It was said.
    fn has_said(&mut self, new: Said, turns: &mut u64) {
        for (kind, n) in &new.kinds {
            if *n > self.said.kinds.get(kind).copied().unwrap_or(0) {
                *turns += 1;
                self.turns.insert(kind.clone(), *turns);
            }
        }
        self.number += 1;
        let before = std::mem::replace(&mut self.said, new);
        self.before.push((self.number, clock::now(), before));
    }
}

/// Says to each worker what it may do: `total` transfers at a time of all. Those that are `leaving` have what they had until they are
/// gone. `send` is false if one cannot hear it now.
pub(super) fn divide(
    total: usize,
    tiers: &Tiers,
    parts: &mut [&mut Part],
    leaving: &[&Part],
    turns: &mut u64,
    mut send: impl FnMut(usize, &Order) -> bool,
) {
    parts.iter_mut().for_each(|part| part.forget());
    let mut caps = tiers.transfers.clone();
    for (name, cap) in &mut caps {
        let gone: usize = leaving.iter().map(|part| part.touching(name)).sum();
        *cap = cap.saturating_sub(gone);
    }
    let (kinds, wishes): (Vec<_>, Vec<_>) = parts.iter().map(|part| part.wish()).unzip();
    let given = shares(total, &caps, &wishes);
    let mut new: Vec<Said> = Vec::with_capacity(parts.len());
    for (kinds, given) in kinds.iter().zip(&given) {
        let some = kinds.iter().cloned().zip(given.iter().copied()).filter(|(_, n)| *n > 0);
        new.push(Said { kinds: some.collect(), ..Said::default() });
    }
    // As many as may be under way by what was said, and by what is said now.
    let touching = |name: &str, i: usize| -> usize {
        let (Some(part), Some(new)) = (parts.get(i), new.get(i)) else { return 0 };
        let mut all = part.kinds();
        all.extend(new.kinds.keys());
        let those = all.into_iter().filter(|kind| kind.iter().any(|one| one == name));
        those.map(|kind| part.held(kind).max(new.kinds.get(kind).copied().unwrap_or(0))).sum()
    };
    let named: BTreeSet<String> = kinds.iter().flatten().flatten().cloned().collect();
    let mut told: Vec<(usize, String, Option<f64>)> = Vec::new();
    let mut full: BTreeSet<String> = BTreeSet::new();
    for name in named {
        let counts: Vec<usize> = (0..parts.len()).map(|i| touching(&name, i)).collect();
        if caps.get(&name).is_some_and(|cap| counts.iter().sum::<usize>() >= *cap) {
            full.insert(name.clone());
        }
        let Some(limit) = tiers.limits.get(&name) else {
            told.extend((0..parts.len()).map(|i| (i, name.clone(), None)));
            continue;
        };
        let gone: f64 = leaving.iter().map(|part| part.rate(&name)).sum();
        let users: Vec<(usize, f64)> =
            counts.iter().zip(parts.iter()).map(|(n, part)| (*n, part.rate(&name))).collect();
        let parts = rates((*limit as f64 - gone).max(0.0), &users);
        told.extend(parts.into_iter().enumerate().map(|(i, rate)| (i, name.clone(), Some(rate))));
    }
    for (i, name, rate) in told {
        let mentions =
            kinds.get(i).is_some_and(|kinds| kinds.iter().flatten().any(|one| *one == name));
        if let (true, Some(new)) = (mentions, new.get_mut(i)) {
            if full.contains(&name) {
                new.full.insert(name.clone());
            }
            new.rates.insert(name, rate);
        }
    }
    for (i, (part, new)) in parts.iter_mut().zip(new).enumerate() {
        if let Some(order) = part.order(&new)
            && send(i, &order)
        {
            part.has_said(new, turns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(touches: &[&str], running: usize, ready: usize) -> Kind {
        Kind { touches: touches.iter().map(|name| (*name).to_owned()).collect(), running, ready }
    }

    fn tiers() -> Tiers {
        Tiers {
            transfers: BTreeMap::from([("x".to_owned(), 2)]),
            limits: BTreeMap::from([("x".to_owned(), 100)]),
            ..Tiers::default()
        }
    }

    /// What two workers are told; each hears it at once.
    fn say(parts: &mut [Part; 2], leaving: &[&Part]) -> [Option<Order>; 2] {
        let mut said = [None, None];
        let mut both: Vec<&mut Part> = parts.iter_mut().collect();
        divide(8, &tiers(), &mut both, leaving, &mut 0, |i, order| {
            said[i] = Some(order.clone());
            true
        });
        said
    }

    fn has(order: &Option<Order>) -> (u64, usize, f64) {
        let Some(Order::Share { number, kinds, rates, .. }) = order else { panic!("{order:?}") };
        (*number, kinds.iter().map(|(_, n)| n).sum(), rates["x"].unwrap())
    }

    #[test]
    fn nobody_has_more_before_others_have_less() {
        let mut parts = [Part::default(), Part::default()];
        parts[0].hear(0, vec![kind(&["x"], 0, 5)], &[0, 0, 0, 0, 0]);
        let [first, second] = say(&mut parts, &[]);
        assert_eq!((has(&first), second), ((1, 2, 100.0), None));
        parts[0].hear(1, vec![kind(&["x"], 2, 3)], &[0, 0, 0]);
        parts[1].hear(0, vec![kind(&["x"], 0, 1)], &[0]);
        // The first one is to have less, and has not said that it has.
        let [first, second] = say(&mut parts, &[]);
        assert_eq!((has(&first).1, has(&second)), (1, (1, 0, 0.0)));
        let Some(Order::Share { full, .. }) = &second else { panic!() };
        assert!(full.contains("x"));
        // One has ended, and another was begun before it heard of it.
        parts[0].hear(1, vec![kind(&["x"], 2, 2)], &[0, 0]);
        assert_eq!(say(&mut parts, &[]), [None, None]);
        parts[0].hear(2, vec![kind(&["x"], 1, 2)], &[0, 0]);
        let [first, second] = say(&mut parts, &[]);
        // Both have one; of the rate the second one has its part once the first has heard of it.
        assert_eq!((has(&first).2, has(&second)), (50.0, (2, 1, 0.0)));
        parts[0].hear(3, vec![kind(&["x"], 1, 2)], &[0, 0]);
        let [first, second] = say(&mut parts, &[]);
        assert_eq!((first, has(&second)), (None, (3, 1, 50.0)));
    }

    #[test]
    fn a_worker_that_means_no_good_has_what_it_was_given() {
        let mut parts = [Part::default(), Part::default()];
        let many = (0..1000).map(|i| kind(&[&format!("k{i}")], 9, 9)).collect();
        parts[0].hear(99, many, &[usize::MAX, 40, 0]);
        assert_eq!((parts[0].running(), parts[0].next.len()), (0, 1));
        parts[0].hear(99, vec![kind(&["x"], 1 << 19, 5)], &[0; 5000]);
        say(&mut parts, &[]);
        // It says that it has all of them.
        parts[0].hear(1, vec![kind(&["x"], 1 << 19, 5)], &[0]);
        assert_eq!(parts[0].running(), 2);
        // One that hears nothing, and says something else all the time, is not told for ever.
        for i in 0..10 * MOST_UNHEARD {
            parts[0].hear(1, vec![kind(&[&format!("k{i}")], 0, 1)], &[0]);
            say(&mut parts, &[]);
        }
        assert_eq!(parts[0].before.len(), MOST_UNHEARD);
    }

    #[test]
    fn who_leaves_has_its_part_until_it_is_gone() {
        let mut parts = [Part::default(), Part::default()];
        parts[0].hear(0, vec![kind(&["x"], 0, 2)], &[0, 0]);
        say(&mut parts, &[]);
        let [gone, other] = parts;
        let mut parts = [Part::default(), other];
        parts[1].hear(0, vec![kind(&["x"], 0, 2)], &[0, 0]);
        let [_, none] = say(&mut parts, &[&gone]);
        assert_eq!((has(&none).1, has(&none).2), (0, 0.0));
        let [_, all] = say(&mut parts, &[]);
        assert_eq!((has(&all).1, has(&all).2), (2, 100.0));
    }
}
