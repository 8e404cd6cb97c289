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

    /// Ranks that take any time for a chunk, and some that never end one: each byte counts once.
    #[test]
    fn each_byte_counts_once(
        lens in prop::collection::vec(1u64..100_000, 1..3), hosts in 1usize..3, slow in prop::option::of(0usize..4),
    ) {
        let told = lens.iter().map(|len| vec![(0, 0, *len)]).chain((0..hosts).map(|_| Vec::new()));
        let storage: Vec<bool> = (0..lens.len() + hosts).map(|r| r < lens.len()).collect();
        let split = Split {
            holdings: Holdings::new(told.collect(), &[u64::MAX]).expect("holdings"),
            storage,
            asked_share: 0.5,
            seconds: 1e-3,
        };
        let (ranks, head) = (split.storage.len(), split.keeper());
        let slow = slow.filter(|s| *s < ranks && ranks > 1);
        let group = Local::group(ranks);
        let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
        let sums: Vec<Vec<(u32, u64, u64)>> = std::thread::scope(|scope| {
            let keeper = Keeper::new(&group[head], &split, (1, 1));
            scope.spawn(|| keeper.keep(&stop, &counted).expect("kept"));
            let one = |(rank, worker): (usize, u8)| {
                let (fabric, answers) = (&group[rank], ANSWERS + u32::from(worker));
                let say = |s: &Say| fabric.send(head, ASKS, encode((1, 1), s)).expect("said");
                let hear = || loop {
                    let word = fabric.recv(head, answers).expect("heard");
                    if let Some(told) = decode::<Tell>((1, 1), &word) {
                        return told;
                    }
                };
                let mut mine = Vec::new();
                loop {
                    say(&Say::Ask(worker));
                    let (id, of, start, end) = loop {
                        match hear() {
                            Tell::Chunk { id, rank, start, end } => break (id, rank, start, end),
                            Tell::Finished => return mine,
                            _ => {}
                        }
                    };
                    if slow == Some(rank) && start > 0 {
                        // Until somebody else has done it.
                        while hear() != (Tell::Drop { id }) {}
                    }
                    say(&Say::Done(id));
                    loop {
                        match hear() {
                            Tell::Counts { id: of_id, counts } if of_id == id => {
                                mine.extend(counts.then_some((of, start, end)));
                                break;
                            }
                            Tell::Finished => break,
                            _ => {}
                        }
                    }
                }
            };
            let workers = |rank| (0..WORKERS).map(move |worker| (rank, worker));
            let all: Vec<_> =
                (0..ranks).flat_map(workers).map(|to| scope.spawn(move || one(to))).collect();
            all.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        let mut all: Vec<(u32, u64, u64)> = sums.into_iter().flatten().collect();
        all.sort_unstable();
        for (rank, len) in lens.iter().enumerate() {
            let mut next = 0;
            for (_, start, end) in all.iter().filter(|(of, ..)| *of as usize == rank) {
                prop_assert_eq!(*start, next);
                next = *end;
            }
            prop_assert_eq!(next, *len);
        }
        prop_assert_eq!(counted.load(Ordering::Relaxed), lens.iter().sum::<u64>());
    }
}
