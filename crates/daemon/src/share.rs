//! How many transfers each user has under way at a time, and how many bytes a second in each dataspace.
//!
//! Each user gets an equal part of those that the node does, and what some do not need goes to the others. A dataspace may have a number
//! of transfers of its own, of all users; what touches several of these has a seat in each or waits for all. Nobody is stopped:
//! where a user has more under way than that, others get theirs as these end. But nobody has to wait for others altogether, who may
//! need days or mean no good: who has none under way may have one, above those that the node does, if the dataspaces that it touches
//! have a seat.

use std::collections::BTreeMap;

/// What a user has and wants.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// By what is touched.
    pub(crate) kinds: Vec<Of>,
    /// The first ones that could begin, by their turn: places in `kinds`.
    pub(crate) next: Vec<usize>,
}

/// Transfers of a user that touch the same dataspaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Of {
    /// The names of these.
    pub(crate) touches: Vec<String>,
    /// Transfers under way.
    pub(crate) running: usize,
    /// As many may be under way, by what was said before: no fewer than `running`.
    pub(crate) held: usize,
    /// Who was given one longer ago comes first: a number that grows with each.
    pub(crate) turn: u64,
}

/// What is left of seats.
#[derive(Debug, Clone)]
struct Seats<'c> {
    total: usize,
    of: BTreeMap<&'c str, usize>,
}

impl<'c> Seats<'c> {
    fn new(total: usize, caps: &'c BTreeMap<String, usize>) -> Seats<'c> {
        Seats { total, of: caps.iter().map(|(name, n)| (name.as_str(), *n)).collect() }
    }

    /// True if there is one in each of these dataspaces.
    fn there(&self, touches: &[String]) -> bool {
        touches.iter().all(|name| self.of.get(name.as_str()) != Some(&0))
    }

    fn take(&mut self, touches: &[String], n: usize) {
        self.total = self.total.saturating_sub(n);
        for name in touches {
            if let Some(left) = self.of.get_mut(name.as_str()) {
                *left = left.saturating_sub(n);
            }
        }
    }
}

/// The parts that are made of it, with what is not given yet.
struct Parts<'w> {
    wishes: &'w [Wish],
    /// For each user, of each kind.
    given: Vec<Vec<usize>>,
    /// Which of `next` have theirs.
    begun: Vec<Vec<bool>>,
}

impl<'w> Parts<'w> {
    fn none(wishes: &'w [Wish]) -> Parts<'w> {
        Parts {
            wishes,
            given: wishes.iter().map(|w| vec![0; w.kinds.len()]).collect(),
            begun: wishes.iter().map(|w| vec![false; w.next.len()]).collect(),
        }
    }

    fn of(&self, user: usize, kind: usize) -> Option<&'w Of> {
        self.wishes.get(user)?.kinds.get(kind)
    }

    fn given(&self, user: usize, kind: usize) -> usize {
        self.given.get(user).and_then(|all| all.get(kind)).copied().unwrap_or(0)
    }

    fn give(&mut self, user: usize, kind: usize, n: usize) {
        if let Some(given) = self.given.get_mut(user).and_then(|all| all.get_mut(kind)) {
            *given += n;
        }
    }

    /// The first one that could begin and may, as its place in `next` and its kind.
    fn first(&self, user: usize, may: &dyn Fn(usize, &Of) -> bool) -> Option<(usize, usize)> {
        let (wish, begun) = (self.wishes.get(user)?, self.begun.get(user)?);
        let open = wish.next.iter().zip(begun).enumerate().filter(|(_, (_, begun))| !**begun);
        let mut all = open.map(|(at, (kind, _))| (at, *kind));
        all.find(|(_, kind)| self.of(user, *kind).is_some_and(|of| may(*kind, of)))
    }

    fn begin(&mut self, user: usize, at: usize, kind: usize) {
        self.give(user, kind, 1);
        if let Some(begun) = self.begun.get_mut(user).and_then(|all| all.get_mut(at)) {
            *begun = true;
        }
    }

    /// One after the other takes one more, until nobody does: those who have waited longest first.
    fn rounds(
        &mut self,
        mut one: impl FnMut(&mut Self, usize) -> Option<u64>,
        turn: impl Fn(&Self, usize) -> Option<u64>,
    ) {
        loop {
            let mut order: Vec<(u64, usize)> =
                (0..self.wishes.len()).filter_map(|user| Some((turn(self, user)?, user))).collect();
            order.sort_unstable();
            let mut some = false;
            for (_, user) in order {
                some |= one(self, user).is_some();
            }
            if !some {
                return;
            }
        }
    }
}

/// Equal parts of all that there is, as if nothing were under way: what each user should have.
fn fair(total: usize, caps: &BTreeMap<String, usize>, wishes: &[Wish]) -> Vec<Vec<usize>> {
    let seats = std::cell::RefCell::new(Seats::new(total, caps));
    let mut parts = Parts::none(wishes);
    let mut running: Vec<Vec<usize>> =
        wishes.iter().map(|w| w.kinds.iter().map(|of| of.running).collect()).collect();
    // One that is under way, or, if that kind has waited longer, the next one to begin.
    type Pick = (u64, usize, Option<usize>);
    let pick = |parts: &Parts<'_>, running: &[Vec<usize>], user: usize| -> Option<Pick> {
        let seats = seats.borrow();
        if seats.total == 0 {
            return None;
        }
        let has = parts.first(user, &|_, of| seats.there(&of.touches));
        let next = has.and_then(|(at, kind)| Some((parts.of(user, kind)?.turn, kind, Some(at))));
        let left = running.get(user)?.iter().enumerate().filter(|(_, n)| **n > 0);
        let kinds = left.filter_map(|(kind, _)| Some((parts.of(user, kind)?, kind)));
        let fits = kinds.filter(|(of, _)| seats.there(&of.touches));
        let under_way = fits.map(|(of, kind)| (of.turn, kind, None)).min();
        match (under_way, next) {
            (Some(one), Some(other)) => Some(if other.0 < one.0 { other } else { one }),
            (one, other) => one.or(other),
        }
    };
    loop {
        let mut order: Vec<(u64, usize)> = (0..wishes.len())
            .filter_map(|user| Some((pick(&parts, &running, user)?.0, user)))
            .collect();
        if order.is_empty() {
            return parts.given;
        }
        order.sort_unstable();
        for (_, user) in order {
            let Some((_, kind, next)) = pick(&parts, &running, user) else { continue };
            let Some(of) = parts.of(user, kind) else { continue };
            seats.borrow_mut().take(&of.touches, 1);
            match next {
                Some(at) => parts.begin(user, at, kind),
                None => {
                    parts.give(user, kind, 1);
                    if let Some(n) = running.get_mut(user).and_then(|all| all.get_mut(kind)) {
                        *n -= 1;
                    }
                }
            }
        }
    }
}

/// So many at a time for each user, of each kind: `total` of all, and in dataspaces of these names as many as `caps` has.
pub(crate) fn shares(
    total: usize,
    caps: &BTreeMap<String, usize>,
    wishes: &[Wish],
) -> Vec<Vec<usize>> {
    let fair = fair(total, caps, wishes);
    let wanted = |user: usize, kind: usize| {
        fair.get(user).and_then(|all: &Vec<usize>| all.get(kind)).copied().unwrap_or(0)
    };
    // Nobody begins one before there is room for it. What was said before counts until it is known to be taken back.
    let mut free = Seats::new(total, caps);
    // Of this, nothing is kept for those whose turn it is and who cannot begin yet.
    let mut spare = Seats::new(total, caps);
    let mut parts = Parts::none(wishes);
    for (user, wish) in wishes.iter().enumerate() {
        for (kind, of) in wish.kinds.iter().enumerate() {
            let wanted = wanted(user, kind);
            free.take(&of.touches, of.held);
            spare.take(&of.touches, of.held.max(wanted));
            let given = wanted.min(of.held);
            parts.give(user, kind, given);
            // Those of `next` that these stand for.
            for _ in of.running..given {
                if let Some((at, _)) = parts.first(user, &|other, _| other == kind)
                    && let Some(begun) = parts.begun.get_mut(user).and_then(|all| all.get_mut(at))
                {
                    *begun = true;
                }
            }
        }
    }
    let (free, spare) = (std::cell::RefCell::new(free), std::cell::RefCell::new(spare));
    let due = |parts: &Parts<'_>, user: usize| {
        let free = free.borrow();
        let may = |kind: usize, of: &Of| {
            free.total > 0
                && parts.given(user, kind) < wanted(user, kind)
                && free.there(&of.touches)
        };
        parts.first(user, &may)
    };
    let turn_of = |parts: &Parts<'_>, user, kind| parts.of(user, kind).map(|of| of.turn);
    parts.rounds(
        |parts, user| {
            let (at, kind) = due(parts, user)?;
            let of = parts.of(user, kind)?;
            free.borrow_mut().take(&of.touches, 1);
            parts.begin(user, at, kind);
            Some(of.turn)
        },
        |parts, user| turn_of(parts, user, due(parts, user)?.1),
    );
    // What nobody is to have goes to whoever can begin something now.
    let more = |parts: &Parts<'_>, user: usize| {
        let (free, spare) = (free.borrow(), spare.borrow());
        let open = free.total > 0 && total > 0;
        let may = |kind: usize, of: &Of| {
            let begins = parts.given(user, kind) >= wanted(user, kind).max(of.held);
            open && begins && free.there(&of.touches) && spare.there(&of.touches)
        };
        parts.first(user, &may)
    };
    parts.rounds(
        |parts, user| {
            let (at, kind) = more(parts, user)?;
            let of = parts.of(user, kind)?;
            free.borrow_mut().take(&of.touches, 1);
            spare.borrow_mut().take(&of.touches, 1);
            parts.begin(user, at, kind);
            Some(of.turn)
        },
        |parts, user| turn_of(parts, user, more(parts, user)?.1),
    );
    for (user, wish) in wishes.iter().enumerate() {
        let none = wish.kinds.iter().all(|of| of.held == 0)
            && parts.given.get(user).is_some_and(|all| all.iter().all(|n| *n == 0));
        let first = {
            let (free, spare) = (free.borrow(), spare.borrow());
            let may = |_: usize, of: &Of| free.there(&of.touches) && spare.there(&of.touches);
            (total > 0 && none).then(|| parts.first(user, &may)).flatten()
        };
        if let Some((at, kind)) = first
            && let Some(of) = parts.of(user, kind)
        {
            free.borrow_mut().take(&of.touches, 1);
            spare.borrow_mut().take(&of.touches, 1);
            parts.begin(user, at, kind);
        }
    }
    parts.given
}

/// Bytes a second for each of those who share a limit, by how many transfers they have there. What somebody was given before
/// counts, as `held`, until it is known to be taken back: their sum is never more than the limit.
pub(crate) fn rates(limit: f64, users: &[(usize, f64)]) -> Vec<f64> {
    let all: usize = users.iter().map(|(transfers, _)| transfers).sum();
    let mut room = (limit - users.iter().map(|(_, held)| held).sum::<f64>()).max(0.0);
    let part = |(transfers, held): &(usize, f64)| {
        let wanted = match all {
            0 => 0.0,
            all => limit * *transfers as f64 / all as f64,
        };
        if wanted <= *held {
            return wanted;
        }
        // All of it in the end, however sums are rounded.
        let more = (wanted - held).min(room);
        room -= more;
        if more >= (wanted - held) * 0.999 {
            wanted.min(held + more + limit * 1e-9)
        } else {
            held + more
        }
    };
    users.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(touches: &[&str], running: usize, turn: u64) -> Of {
        let touches = touches.iter().map(|name| (*name).to_owned()).collect();
        Of { touches, running, held: running, turn }
    }

    /// One who touches nothing that others share.
    fn wish(running: usize, ready: usize, turn: u64) -> Wish {
        Wish { kinds: vec![of(&[], running, turn)], next: vec![0; ready] }
    }

    fn sums(total: usize, wishes: &[Wish]) -> Vec<usize> {
        shares(total, &BTreeMap::new(), wishes).iter().map(|all| all.iter().sum()).collect()
    }

    fn caps(all: &[(&str, usize)]) -> BTreeMap<String, usize> {
        all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect()
    }

    #[test]
    fn each_gets_an_equal_part() {
        assert_eq!(sums(4, &[wish(0, 9, 0)]), [4]);
        assert_eq!(sums(4, &[wish(0, 9, 0), wish(0, 9, 1)]), [2, 2]);
        assert_eq!(sums(4, &[wish(0, 9, 0), wish(0, 1, 1)]), [3, 1]);
        // Who has all of it gives some back as they end; the other one has one at once.
        assert_eq!(sums(4, &[wish(4, 9, 0), wish(0, 9, 1)]), [2, 1]);
        assert_eq!(sums(4, &[wish(4, 9, 0), wish(1, 9, 1)]), [2, 1]);
        assert_eq!(sums(4, &[wish(3, 9, 0), wish(0, 9, 1)]), [2, 1]);
        // More users than transfers: one for each.
        assert_eq!(sums(1, &[wish(0, 9, 5), wish(0, 9, 3)]), [1, 1]);
        assert_eq!(sums(0, &[wish(0, 9, 5)]), [0]);
        assert_eq!(sums(4, &[]), [0usize; 0]);
    }

    #[test]
    fn dataspaces_have_seats_of_their_own() {
        let x = caps(&[("x", 1)]);
        // Those behind that touch others are not held up, and order is kept.
        let one = Wish { kinds: vec![of(&["x"], 0, 0), of(&[], 0, 0)], next: vec![0, 0, 1, 0, 1] };
        assert_eq!(shares(4, &x, &[one]), [[1, 2]]);
        // All users have one seat together; the other one has it next, as it has waited longer.
        let has = Wish { kinds: vec![of(&["x"], 1, 5)], next: vec![0; 3] };
        let waits = Wish { kinds: vec![of(&["x"], 0, 2)], next: vec![0; 3] };
        assert_eq!(shares(4, &x, &[has.clone(), waits.clone()]), [[0], [0]]);
        let ended = Wish { kinds: vec![of(&["x"], 0, 5)], next: vec![0; 2] };
        assert_eq!(shares(4, &x, &[ended.clone(), waits.clone()]), [[0], [1]]);
        // Also if it does something else meanwhile.
        let busy = Wish { kinds: vec![of(&[], 2, 9), of(&["x"], 0, 2)], next: vec![1] };
        assert_eq!(shares(4, &x, &[ended, busy])[1][1], 1);
        // What was said and is not known to be taken back is not given twice.
        let told = Wish { kinds: vec![Of { held: 1, ..of(&["x"], 0, 5) }], next: Vec::new() };
        assert_eq!(shares(4, &x, &[told, waits]), [[0], [0]]);
    }

    #[test]
    fn what_touches_two_waits_for_both_and_gets_them_one_day() {
        let two = caps(&[("x", 1), ("y", 1)]);
        let both = Wish { kinds: vec![of(&["x", "y"], 0, 0)], next: vec![0] };
        let has_x = Wish { kinds: vec![of(&["x"], 1, 3)], next: vec![0; 9] };
        let wants_y = Wish { kinds: vec![of(&["y"], 0, 4)], next: vec![0; 9] };
        // Nobody takes from it what it waits for.
        assert_eq!(shares(9, &two, &[both.clone(), has_x, wants_y.clone()]), [[0], [0], [0]]);
        let ended = Wish { kinds: vec![of(&["x"], 0, 3)], next: vec![0; 9] };
        assert_eq!(shares(9, &two, &[both, ended, wants_y]), [[1], [0], [0]]);
    }

    fn users() -> impl Strategy<Value = Vec<Wish>> {
        let kinds = [vec![], vec!["x"], vec!["y"], vec!["x", "y"], vec!["z"]];
        let user = (
            proptest::collection::vec((0usize..4, 0usize..3, 0u64..9), 5),
            proptest::collection::vec(0usize..5, 0..12),
        );
        let make = move |(all, next): (Vec<(usize, usize, u64)>, Vec<usize>)| {
            let one = |(touches, (running, more, turn)): (&Vec<&str>, &(usize, usize, u64))| {
                let one = of(touches, *running, *turn);
                Of { held: running + more, ..one }
            };
            Wish { kinds: kinds.iter().zip(&all).map(one).collect(), next }
        };
        proptest::collection::vec(user.prop_map(make), 0..6)
    }

    proptest! {
        #[test]
        fn no_more_begin_than_there_is_room_for(
            total in 0usize..20,
            all in proptest::collection::vec((0usize..6, 0usize..6, 0u64..9), 0..10),
        ) {
            let wishes: Vec<Wish> = all.iter().map(|(r, n, t)| wish(*r, *n, *t)).collect();
            let given = sums(total, &wishes);
            let running: usize = all.iter().map(|w| w.0).sum();
            let most: usize = all.iter().zip(&given).map(|(w, g)| w.0.max(*g)).sum();
            let without = all.iter().filter(|w| w.0 == 0 && w.1 > 0).count();
            prop_assert!(most <= total.max(running) + without);
            // Everybody who has something to do does something.
            let starved = all.iter().zip(&given).any(|(w, g)| w.1 > 0 && w.0 + g == 0);
            prop_assert!(total == 0 || !starved);
            // Nothing is idle while somebody could begin.
            let wanted: usize = all.iter().map(|w| w.0 + w.1).sum();
            prop_assert!(running >= total || most >= total.min(wanted));
        }

        #[test]
        fn no_dataspace_has_more_than_its_seats(
            total in 0usize..12, x in 1usize..4, y in 1usize..4, wishes in users(),
        ) {
            let given = shares(total, &caps(&[("x", x), ("y", y)]), &wishes);
            let sum = |name: Option<&str>, count: &dyn Fn(&Of, usize) -> usize| -> usize {
                let kinds = wishes.iter().zip(&given).flat_map(|(w, g)| w.kinds.iter().zip(g));
                let those = kinds.filter(|(of, _)| name.is_none_or(|n| of.touches.iter().any(|t| t == n)));
                those.map(|(of, g)| count(of, *g)).sum()
            };
            for (name, cap) in [("x", x), ("y", y)] {
                let held = sum(Some(name), &|of, _| of.held);
                prop_assert!(sum(Some(name), &|of, g| of.held.max(g)) <= cap.max(held), "{name}");
            }
            let without = wishes.iter().filter(|w| w.kinds.iter().all(|of| of.held == 0)).count();
            let held = sum(None, &|of, _| of.held);
            prop_assert!(sum(None, &|of, g| of.held.max(g)) <= total.max(held) + without);
            // Who has nothing to wait for does something: others are in nobody's way.
            for (wish, given) in wishes.iter().zip(&given) {
                let idle = wish.kinds.iter().all(|of| of.held == 0) && given.iter().all(|n| *n == 0);
                let free = wish.next.iter().any(|k| wish.kinds[*k].touches.iter().all(|t| t == "z"));
                prop_assert!(total == 0 || !idle || !free);
            }
        }

        #[test]
        fn a_limit_is_never_exceeded_and_used_in_the_end(
            limit in 1.0f64..1e9, users in proptest::collection::vec((0usize..5, 0.0f64..1.0), 0..8),
        ) {
            let sum: f64 = users.iter().map(|(_, held)| held).sum();
            let scale = if sum > 0.0 { limit / sum } else { 0.0 };
            let mut now: Vec<(usize, f64)> = users.iter().map(|(n, held)| (*n, held * scale)).collect();
            // Said, and then known to be heard of.
            for _ in 0..3 {
                let next = rates(limit, &now);
                let most: f64 = now.iter().zip(&next).map(|((_, held), new)| held.max(*new)).sum();
                prop_assert!(most <= limit * 1.000_001, "{most} of {limit}");
                now.iter_mut().zip(&next).for_each(|(one, new)| one.1 = *new);
            }
            let all: usize = now.iter().map(|(n, _)| n).sum();
            for (n, rate) in &now {
                let fair = if all == 0 { 0.0 } else { limit * *n as f64 / all as f64 };
                prop_assert!((rate - fair).abs() <= limit * 1e-6, "{rate} {fair}");
            }
            // Nothing is said again when there is nothing new.
            prop_assert_eq!(rates(limit, &now), now.iter().map(|(_, rate)| *rate).collect::<Vec<f64>>());
        }
    }
}
