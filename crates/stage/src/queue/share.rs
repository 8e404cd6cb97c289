//! What may be under way: by a number, or by what whoever serves several queues leaves to each of them.

use super::{Now, Queue};
use crate::journal::Head;
use crate::seats::Free;
use crate::touch::{Bounds, Touched};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use stead_core::Result;

/// Transfers of each kind that are told of, by their turn: more are not begun at once.
const EACH: usize = 16;
/// Kinds that are told of: those that are under way, then those whose turn comes first.
const MOST_KINDS: usize = 32;

/// What may be under way in a queue, as whoever shares it out says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Share {
    /// Grows with each that is said.
    pub number: u64,
    /// Transfers at a time of each kind: by the names of the dataspaces they touch that others share. What is not in there may not begin.
    pub kinds: BTreeMap<Vec<String>, usize>,
    /// Bytes a second in dataspaces that others share; none is all that is agreed.
    pub rates: BTreeMap<String, Option<f64>>,
    /// Dataspaces in which as many transfers are under way, of all queues, as there may be.
    pub full: BTreeSet<String>,
}

/// By what it is said how many may be under way.
#[derive(Debug)]
pub(super) enum Turns {
    /// So many, whatever they touch.
    All(usize),
    /// By kinds.
    Shared(Share),
}

impl Default for Turns {
    fn default() -> Turns {
        Turns::All(0)
    }
}

/// How much there is to do.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// The last share that was heard of: nothing is begun any more by those before it.
    pub seen: u64,
    /// Under way.
    pub running: usize,
    /// Could be begun now, counted up to a number.
    pub ready: usize,
    /// The same by kinds.
    pub kinds: Vec<Kind>,
    /// The first ones that could be begun, by their turn: of which kind each is, as its place in `kinds`.
    pub next: Vec<usize>,
}

/// Transfers that touch the same dataspaces, of those that others share.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    /// The names of these.
    pub touches: Vec<String>,
    /// Under way.
    pub running: usize,
    /// Could be begun.
    pub ready: usize,
}

impl Now {
    /// What is under way or about to be: what each of them touches.
    fn here(&self) -> impl Iterator<Item = &Arc<Touched>> {
        // One that is begun is told of in the same breath as being under way.
        let beginning = self.beginning.as_ref().map(|head| &head.touched);
        self.running.values().map(|one| &one.touched).chain(beginning)
    }

    pub(super) fn is_here(&self, id: i64) -> bool {
        self.running.contains_key(&id) || self.beginning.as_ref().is_some_and(|head| head.id == id)
    }

    /// So many transfers at a time.
    pub(super) fn slots(&self) -> usize {
        match &self.turns {
            Turns::All(slots) => *slots,
            Turns::Shared(share) => share.kinds.values().sum(),
        }
    }

    /// True if nothing may begin, whatever it touches.
    pub(super) fn may_begin_nothing(&self) -> bool {
        let full = match &self.turns {
            Turns::All(slots) => self.here().count() >= *slots,
            Turns::Shared(share) => share.kinds.values().all(|n| *n == 0),
        };
        self.stopped || full
    }

    /// Seats that are free in this queue's own dataspaces, and in shared ones as far as is known here.
    fn free(&self, bounds: &Bounds, heads: &[Head]) -> Free<crate::touch::Key> {
        let mut seats = BTreeMap::new();
        for touched in heads.iter().map(|head| &head.touched) {
            seats.extend(bounds.seats(touched));
        }
        for (key, free) in &mut seats {
            let taken = self.here().filter(|touched| touched.has(key)).count();
            *free = usize::saturating_sub(*free, taken);
        }
        Free::new(seats)
    }

    /// The first one that may begin, which is said to be beginning.
    pub(super) fn choose(&mut self, bounds: &Bounds, heads: Vec<Head>) -> Option<Head> {
        if self.may_begin_nothing() {
            return None;
        }
        let mut free = self.free(bounds, &heads);
        let mut under_way: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        for touched in self.here() {
            *under_way.entry(bounds.kind(touched)).or_default() += 1;
        }
        let may = |kind: &Vec<String>| match &self.turns {
            Turns::All(_) => true,
            Turns::Shared(share) => {
                let here = under_way.get(kind).copied().unwrap_or(0);
                here < share.kinds.get(kind).copied().unwrap_or(0)
            }
        };
        let mut goes = |head: &Head| {
            let seats = bounds.seats(&head.touched);
            may(&bounds.kind(&head.touched)) && free.take(seats.iter().map(|(key, _)| key))
        };
        let chosen = heads.into_iter().find(|head| goes(head));
        self.beginning.clone_from(&chosen);
        chosen
    }

    /// Of these seats, those that are all taken: here, or by others.
    pub(super) fn full(
        &self,
        seats: Vec<(crate::touch::Key, usize)>,
        bounds: &Bounds,
    ) -> Vec<(crate::touch::Key, usize)> {
        let by_others = |name: &String| match &self.turns {
            Turns::All(_) => false,
            Turns::Shared(share) => share.full.contains(name),
        };
        let is_full = |(key, most): &(crate::touch::Key, usize)| {
            self.here().filter(|touched| touched.has(key)).count() >= *most
                || (bounds.is_common(key) && by_others(&key.0))
        };
        seats.into_iter().filter(is_full).collect()
    }
}

impl Queue {
    /// How much there is to do, of what waits no more than `most` of each kind.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn load(&self, most: usize) -> Result<Load> {
        let journal = self.shared.stager.journal();
        let (bounds, heads) = (Bounds::of(&self.shared.stager.means()), journal.heads(EACH)?);
        let mut ready: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        let mut counted: BTreeSet<&Touched> = BTreeSet::new();
        for head in &heads {
            if counted.insert(&head.touched) {
                *ready.entry(bounds.kind(&head.touched)).or_default() +=
                    journal.ready(&head.touched, most)?;
            }
        }
        let mut load = Load::default();
        let mut places: BTreeMap<Vec<String>, usize> = BTreeMap::new();
        let mut kind = |kinds: &mut Vec<Kind>, touches: Vec<String>| {
            if let Some(place) = places.get(&touches) {
                return Some(*place);
            }
            if kinds.len() >= MOST_KINDS {
                return None;
            }
            let ready = ready.get(&touches).copied().unwrap_or(0);
            kinds.push(Kind { touches: touches.clone(), running: 0, ready });
            places.insert(touches, kinds.len() - 1);
            Some(kinds.len() - 1)
        };
        let now = self.shared.now();
        for touched in now.here() {
            load.running += 1;
            let place = kind(&mut load.kinds, bounds.kind(touched));
            if let Some(one) = place.and_then(|place| load.kinds.get_mut(place)) {
                one.running += 1;
            }
        }
        if let Turns::Shared(share) = &now.turns {
            load.seen = share.number;
        }
        // What others have left is about to be ready.
        load.ready = ready.values().sum::<usize>() + now.strays.len();
        drop(now);
        for head in &heads {
            load.next.extend(kind(&mut load.kinds, bounds.kind(&head.touched)));
        }
        Ok(load)
    }

    /// So many transfers at a time.
    pub fn slots(&self) -> usize {
        self.shared.now().slots()
    }
}
