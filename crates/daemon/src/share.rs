//! How many transfers each user has under way at a time.
//!
//! Each user gets an equal part of those that the node does, and what some do not need goes to the others. Nobody is stopped:
//! where a user has more under way than that, others get theirs as these end. But nobody has to wait for others altogether, who may
//! need days or mean no good: who has none under way may have one, above those that the node does.

/// What a user has and wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Transfers under way.
    pub(crate) running: usize,
    /// Transfers that could begin.
    pub(crate) ready: usize,
    /// Who was given one longer ago comes first: a number that grows with each.
    pub(crate) turn: u64,
}

/// So many at a time for each, of `total`.
pub(crate) fn shares(total: usize, wishes: &[Wish]) -> Vec<usize> {
    let demand = |w: &Wish| w.running + w.ready;
    // Equal parts of what is left, by rounds of one: those who have waited longest first.
    let mut fair = vec![0usize; wishes.len()];
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by_key(|i| wishes.get(*i).map(|w| w.turn));
    let mut left = total;
    loop {
        let before = left;
        for &i in &order {
            let (Some(wish), Some(has)) = (wishes.get(i), fair.get_mut(i)) else { continue };
            if left > 0 && *has < demand(wish) {
                *has += 1;
                left -= 1;
            }
        }
        if left == before {
            break;
        }
    }
    // Nobody begins one before there is room for it.
    let running: usize = wishes.iter().map(|w| w.running).sum();
    let mut free = total.saturating_sub(running);
    for &i in &order {
        let (Some(wish), Some(has)) = (wishes.get(i), fair.get_mut(i)) else { continue };
        let more = has.saturating_sub(wish.running).min(free);
        free -= more;
        *has = (*has).min(wish.running + more);
    }
    for (wish, has) in wishes.iter().zip(&mut fair) {
        if total > 0 && wish.running == 0 && wish.ready > 0 {
            *has = (*has).max(1);
        }
    }
    fair
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wish(running: usize, ready: usize, turn: u64) -> Wish {
        Wish { running, ready, turn }
    }

    #[test]
    fn each_gets_an_equal_part() {
        assert_eq!(shares(4, &[wish(0, 9, 0)]), [4]);
        assert_eq!(shares(4, &[wish(0, 9, 0), wish(0, 9, 1)]), [2, 2]);
        assert_eq!(shares(4, &[wish(0, 9, 0), wish(0, 1, 1)]), [3, 1]);
        // Who has all of it gives some back as they end; the other one has one at once.
        assert_eq!(shares(4, &[wish(4, 9, 0), wish(0, 9, 1)]), [2, 1]);
        assert_eq!(shares(4, &[wish(4, 9, 0), wish(1, 9, 1)]), [2, 1]);
        assert_eq!(shares(4, &[wish(3, 9, 0), wish(0, 9, 1)]), [2, 1]);
        // More users than transfers: one for each.
        assert_eq!(shares(1, &[wish(0, 9, 5), wish(0, 9, 3)]), [1, 1]);
        assert_eq!(shares(0, &[wish(0, 9, 5)]), [0]);
        assert_eq!(shares(4, &[]), [0usize; 0]);
    }

    proptest! {
        #[test]
        fn no_more_begin_than_there_is_room_for(
            total in 0usize..20,
            all in proptest::collection::vec((0usize..6, 0usize..6, 0u64..9), 0..10),
        ) {
            let wishes: Vec<Wish> = all.iter().map(|(r, n, t)| wish(*r, *n, *t)).collect();
            let given = shares(total, &wishes);
            let running: usize = wishes.iter().map(|w| w.running).sum();
            let most: usize = wishes.iter().zip(&given).map(|(w, g)| w.running.max(*g)).sum();
            let without = wishes.iter().filter(|w| w.running == 0 && w.ready > 0).count();
            prop_assert!(most <= total.max(running) + without);
            // Everybody who has something to do does something.
            let starved = wishes.iter().zip(&given).any(|(w, g)| w.ready > 0 && w.running + g == 0);
            prop_assert!(total == 0 || !starved);
            // Nothing is idle while somebody could begin.
            let wanted: usize = wishes.iter().map(|w| w.running + w.ready).sum();
            prop_assert!(running >= total || most == total.min(wanted) || most >= total.min(wanted));
        }
    }
}
