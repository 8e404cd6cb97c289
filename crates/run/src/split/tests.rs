use super::*;
use proptest::prelude::*;
use stead_fabric::Local;

fn holdings() -> impl Strategy<Value = Holdings> {
    let run = (1u64..2000, 0u64..50);
    prop::collection::vec(prop::collection::vec(run, 0..6), 1..4).prop_map(|ranks| {
        let told = |runs: Vec<(u64, u64)>| {
            let mut at = 0;
            let one = |(len, gap): (u64, u64)| {
                let start = at + gap;
                at = start + len;
                (3, start, at)
            };
            runs.into_iter().map(one).collect()
        };
        Holdings::new(ranks.into_iter().map(told).collect(), &[0, 0, 0, u64::MAX])
            .expect("holdings")
    })
}

/// Those that follow each other as one.
fn joined(pieces: &[Held]) -> Vec<Held> {
    let Ok(Share::Held(all)) = Share::held(pieces.to_vec()) else { panic!("not in order") };
    all.to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn granules_are_all_that_is_held(holdings in holdings()) {
        for rank in 0..holdings.of.len() {
            let Share::Held(pieces) = holdings.cut(rank) else { panic!("even") };
            prop_assert_eq!(joined(&pieces), joined(&holdings.of[rank]));
            let (len, granule) = (holdings.len(rank), holdings.granule(rank));
            prop_assert!(len.div_ceil(granule) <= MOST_GRANULES);
            // Every chunk begins where a piece does.
            for i in 0..len / granule {
                let chunk = holdings.pieces(rank, &(i * granule..len));
                let first = chunk.first().expect("a piece");
                prop_assert!(pieces.iter().any(|p| (p.source, p.bytes.start) == (first.source, first.bytes.start)));
            }
        }
    }

    /// Ranks that take any time for a chunk, and some that never end one: each byte counts once, in each pass.
    #[test]
    fn each_byte_counts_once(
        lens in prop::collection::vec(1u64..100_000, 1..3), hosts in 1usize..3, slow in prop::option::of(0usize..4),
        keeps in any::<bool>(),
    ) {
        let split = of(&lens, hosts);
        let slow = slow.filter(|s| *s < split.storage.len() && split.storage.len() > 1);
        for pass in 1..4 {
            let never = |rank: usize, start: u64| slow == Some(rank) && start > 0;
            let mut all = work(&split, pass, keeps, &never);
            all.sort_unstable_by_key(|one| (one.of, one.start));
            for (rank, len) in lens.iter().enumerate() {
                let mut next = 0;
                for one in all.iter().filter(|one| one.of as usize == rank) {
                    prop_assert_eq!(one.start, next);
                    next = one.end;
                }
                prop_assert_eq!(next, *len);
            }
        }
    }
}

/// A split of what storage ranks hold, the first ones, with so many that ask.
fn of(lens: &[u64], hosts: usize) -> Split {
    let told = lens.iter().map(|len| vec![(0, 0, *len)]).chain((0..hosts).map(|_| Vec::new()));
    Split {
        holdings: Holdings::new(told.collect(), &[u64::MAX]).expect("holdings"),
        storage: (0..lens.len() + hosts).map(|r| r < lens.len()).collect(),
        asked_share: 0.5,
        seconds: 1e-3,
        ..Split::default()
    }
}

/// A chunk that counted, and the rank that has done it.
#[derive(Debug)]
struct One {
    of: u32,
    start: u64,
    end: u64,
    by: usize,
}

/// A pass with workers that do nothing, and `never` end some chunks before somebody else has done them.
fn work(
    split: &Split,
    pass: u64,
    keeps: bool,
    never: &(dyn Fn(usize, u64) -> bool + Sync),
) -> Vec<One> {
    let (ranks, head, turn) = (split.storage.len(), split.keeper(), (1, pass));
    let group = Local::group(ranks);
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    let all = std::thread::scope(|scope| {
        let (group, stop, counted) = (&group, &stop, &counted);
        let keep = move || Keeper::new(&group[head], split, turn).keep(stop, counted);
        scope.spawn(move || keep().expect("kept"));
        let one = |(rank, worker): (usize, u8)| {
            let (fabric, answers) = (&group[rank], ANSWERS + u32::from(worker));
            let say = |s: &Say| fabric.send(head, ASKS, encode(turn, s)).expect("said");
            let hear = || loop {
                let word = fabric.recv(head, answers).expect("heard");
                if let Some(told) = decode::<Tell>(turn, &word) {
                    return told;
                }
            };
            let mut mine = Vec::new();
            say(&Say::Ask(worker));
            loop {
                let (id, of, start, end, keep) = loop {
                    match hear() {
                        Tell::Chunk { id, rank, start, end, keep } => {
                            break (id, rank, start, end, keep);
                        }
                        Tell::Finished => return mine,
                        _ => {}
                    }
                };
                if never(rank, start) {
                    while hear() != (Tell::Drop { id }) {}
                }
                say(&Say::Done { id, kept: keeps && keep });
                loop {
                    match hear() {
                        Tell::Counts { id: of_id, counts } if of_id == id => {
                            mine.extend(counts.then_some(One { of, start, end, by: rank }));
                            break;
                        }
                        Tell::Finished => return mine,
                        _ => {}
                    }
                }
            }
        };
        let workers = |rank| (0..WORKERS).map(move |worker| (rank, worker));
        let all: Vec<_> =
            (0..ranks).flat_map(workers).map(|to| scope.spawn(move || one(to))).collect();
        all.into_iter().flat_map(|t| t.join().expect("no panic")).collect::<Vec<One>>()
    });
    let total: u64 = all.iter().map(|one| one.end - one.start).sum();
    assert_eq!(counted.load(Ordering::Relaxed), total);
    all
}

/// The side with the data becomes slow in the second pass: it ends nothing there that anybody else has not done.
#[test]
fn what_a_side_has_that_became_slow_is_taken_over_in_a_later_pass() {
    let split = of(&[64_000], 2);
    let bytes = |all: &[One], storage: bool| -> u64 {
        all.iter().filter(|o| (o.by == 0) == storage).map(|o| o.end - o.start).sum()
    };
    // So that it has something: those that ask end nothing but what is at the end.
    let first = work(&split, 1, true, &|rank, start| rank > 0 && start < 48_000);
    assert!(bytes(&first, true) >= 48_000 - 2 * 1000);
    let second = work(&split, 2, true, &|rank, _| rank == 0);
    assert_eq!(bytes(&second, false), 64_000, "the others have taken all of it over");
    // Chunks are those of the first pass, or several of them.
    let starts: Vec<u64> = first.iter().map(|o| o.start).collect();
    assert!(second.iter().all(|o| starts.contains(&o.start)));
    // They have it in memory now, as the storage has: nobody has to wait for anybody.
    let third = work(&split, 3, true, &|_, _| false);
    assert_eq!(third.iter().map(|o| o.end - o.start).sum::<u64>(), 64_000);
}

#[test]
fn what_is_kept_is_found_again_piece_by_piece() {
    let needs = Needs { numbers: vec![3], ..Needs::default() };
    let kept = Kept::default();
    let given = |rank, part| Given { rank, part, keep: true };
    for (rank, part) in [(0, 0..10), (0, 10..20), (0, 30..40), (1, 0..10)] {
        let kepts = kept.room(&needs, 1000).and_then(Cache::ready).expect("room");
        kept.put(&given(rank, part), kepts);
    }
    for (rank, part, pieces) in
        [(0, 0..10, 1), (0, 0..20, 2), (0, 10..20, 1), (1, 0..10, 1), (0, 30..40, 1)]
    {
        assert!(kept.has(rank, &part));
        assert_eq!(kept.get(&given(rank, part), &needs).map(|p| p.len()), Some(pieces));
    }
    for (rank, part) in [(0, 0..30), (0, 5..10), (0, 0..15), (0, 20..30), (1, 10..20), (2, 0..10)] {
        assert!(!kept.has(rank, &part), "{rank} {part:?}");
    }
    let more = Needs { numbers: vec![4], ..Needs::default() };
    assert!(kept.get(&given(0, 0..10), &more).is_none());
}
