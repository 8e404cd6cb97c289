//! Room for asks that are large, as those with long views are: how much of what compute ranks ask for lies with the head is bounded
//! for all of them together. Who has a large one says how large it is, and sends it when there is room.

use std::collections::{BTreeMap, VecDeque};

/// An ask that wants room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub client: usize,
    pub slot: u8,
    pub number: u64,
    pub bytes: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Rooms {
    /// Bytes that are given at a time, but for one ask that has more.
    most: u64,
    given: u64,
    /// Who has room for which ask: until that has been run, or nobody wants it any more.
    has: BTreeMap<(usize, u64), Wanted>,
    /// In the order of their coming, so that large ones are not passed over for ever.
    waiting: VecDeque<Wanted>,
}

impl Rooms {
    pub fn of(most: u64) -> Rooms {
        Rooms { most, given: 0, has: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// An ask wants room. False if its rank has so many that wait or have some, or one of that number.
    pub fn want(&mut self, wanted: Wanted, most: usize) -> bool {
        let Wanted { client, number, .. } = wanted;
        let waits = self.waiting.iter().filter(|w| w.client == client);
        let count =
            waits.clone().count() + self.has.range((client, 0)..=(client, u64::MAX)).count();
        if count >= most
            || self.has(client, number).is_some()
            || waits.clone().any(|w| w.number == number)
        {
            return false;
        }
        self.waiting.push_back(wanted);
        true
    }

    /// Who gets room now.
    pub fn give(&mut self) -> Vec<Wanted> {
        let mut now = Vec::new();
        while let Some(next) = self.waiting.front().copied()
            && (self.given == 0 || self.given.saturating_add(next.bytes) <= self.most)
        {
            self.waiting.pop_front();
            self.given = self.given.saturating_add(next.bytes);
            self.has.insert((next.client, next.number), next);
            now.push(next);
        }
        now
    }

    /// The bytes that an ask has room for.
    pub fn has(&self, client: usize, number: u64) -> Option<u64> {
        self.has.get(&(client, number)).map(|w| w.bytes)
    }

    /// An ask needs no room any more, or does not want it: what there was of it.
    pub fn back(&mut self, client: usize, number: u64) -> Option<Wanted> {
        if let Some(had) = self.has.remove(&(client, number)) {
            self.given -= had.bytes;
            return Some(had);
        }
        let at = self.waiting.iter().position(|w| (w.client, w.number) == (client, number))?;
        self.waiting.remove(at)
    }

    /// A rank asks for nothing any more; what is run for it keeps its room until it ends.
    pub fn leaves(&mut self, client: usize, but: Option<u64>) {
        self.waiting.retain(|w| w.client != client);
        let its = self.has.range((client, 0)..=(client, u64::MAX));
        let its: Vec<u64> =
            its.map(|((_, number), _)| *number).filter(|n| Some(*n) != but).collect();
        for number in its {
            self.back(client, number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(client: usize, number: u64, bytes: u64) -> Wanted {
        Wanted { client, slot: (number % 16) as u8, number, bytes }
    }

    #[test]
    fn who_comes_first_gets_room_first_and_large_ones_get_it_too() {
        let mut rooms = Rooms::of(100);
        let all = [wanted(1, 0, 60), wanted(2, 0, 50), wanted(1, 1, 10), wanted(3, 7, 300)];
        assert!(all.iter().all(|w| rooms.want(*w, 2)));
        // No more of one rank, and each once.
        assert!(!rooms.want(wanted(1, 2, 1), 2) && !rooms.want(wanted(2, 0, 1), 2));
        assert_eq!(rooms.give(), all[..1]);
        assert_eq!((rooms.has(1, 0), rooms.has(2, 0)), (Some(60), None));
        assert_eq!(rooms.give(), []);
        assert_eq!(rooms.back(1, 0), Some(all[0]));
        assert_eq!(rooms.give(), all[1..3]);
        // One that is larger than all of it comes alone.
        rooms.back(2, 0);
        assert_eq!(rooms.give(), []);
        rooms.back(1, 1);
        assert_eq!(rooms.give(), all[3..]);
        assert_eq!(rooms.back(1, 1), None);
    }

    #[test]
    fn who_leaves_keeps_no_room_but_for_what_is_run() {
        let mut rooms = Rooms::of(100);
        let all = [wanted(1, 0, 60), wanted(1, 1, 40), wanted(1, 2, 1), wanted(2, 0, 50)];
        assert!(all.iter().all(|w| rooms.want(*w, 16)));
        assert_eq!(rooms.give(), all[..2]);
        rooms.leaves(1, Some(0));
        assert_eq!((rooms.give(), rooms.has(1, 0)), (vec![], Some(60)));
        rooms.back(1, 0);
        assert_eq!(rooms.give(), all[3..]);
    }

    proptest! {
        #[test]
        fn no_more_is_given_than_there_is_and_everybody_gets_it(
            steps in prop::collection::vec((0..4usize, 0..9u64, 0..150u64, 0..4u8), 0..80),
        ) {
            let mut rooms = Rooms::of(100);
            let mut has: Vec<Wanted> = Vec::new();
            let mut waits = 0;
            for (client, number, bytes, what) in steps {
                match what {
                    0 | 1 => waits += usize::from(rooms.want(wanted(client, number, bytes), 5)),
                    2 => if let Some(w) = rooms.back(client, number) {
                        let before = has.len();
                        has.retain(|h| *h != w);
                        waits -= usize::from(before == has.len());
                    }
                    _ => {
                        let now = rooms.give();
                        waits -= now.len();
                        has.extend(now);
                    }
                }
                let sum: u64 = has.iter().map(|w| w.bytes).sum();
                prop_assert!(sum <= 100 || has.iter().filter(|w| w.bytes > 0).count() == 1);
            }
            while waits > 0 || !has.is_empty() {
                for w in has.drain(..) {
                    prop_assert_eq!(rooms.back(w.client, w.number), Some(w));
                }
                has = rooms.give();
                prop_assert!(waits == 0 || !has.is_empty());
                waits -= has.len();
            }
        }
    }
}
