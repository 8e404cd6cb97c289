//! The balance of a split in a simulation: workers that are as fast as the test says, whatever was predicted.

use crate::{Balance, BalanceOptions, Chunk, Next, Side, Verdict};
use proptest::prelude::*;

const TOTAL: u64 = 1 << 30;

/// What a side really does: bytes in a second, from each time on; all its workers together.
#[derive(Debug, Clone)]
struct Truth {
    workers: usize,
    rates: Vec<(f64, f64)>,
}

impl Truth {
    fn steady(workers: usize, rate: f64) -> Truth {
        Truth { workers, rates: vec![(0.0, rate)] }
    }

    fn then(mut self, from: f64, rate: f64) -> Truth {
        self.rates.push((from, rate));
        self
    }

    /// Bytes that the whole side does between two times.
    fn work(&self, from: f64, to: f64) -> f64 {
        let ends = self.rates.iter().skip(1).map(|r| r.0).chain([f64::INFINITY]);
        let spans = self.rates.iter().zip(ends);
        spans.map(|((a, rate), b)| rate * (b.min(to) - a.max(from)).max(0.0)).sum()
    }

    /// When a worker that begins now has done so much; infinity if never.
    fn end(&self, now: f64, bytes: u64) -> f64 {
        let mut left = bytes as f64 * self.workers as f64;
        let mut at = now;
        for (i, (_, rate)) in self.rates.iter().enumerate() {
            let until = self.rates.get(i + 1).map_or(f64::INFINITY, |r| r.0);
            if until <= at {
                continue;
            }
            if *rate > 0.0 {
                let need = left / rate;
                if at + need <= until {
                    return at + need;
                }
                left -= rate * (until - at);
            }
            at = until;
        }
        f64::INFINITY
    }
}

/// The least time for both together.
fn ideal(truth: &[Truth; 2], total: u64) -> f64 {
    let (mut low, mut high) = (0.0, 1e9);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        let done: f64 = truth.iter().map(|t| t.work(0.0, middle)).sum();
        if done >= total as f64 { high = middle } else { low = middle }
    }
    high
}

#[derive(Debug, Clone, Copy)]
enum Worker {
    /// Asks at this time.
    Free(f64),
    /// Ends its chunk at this time.
    Busy(Chunk, f64),
    Ended,
}

struct Outcome {
    seconds: f64,
    by: [u64; 2],
    /// Longest time that a chunk that counts took.
    longest: f64,
    chunks: usize,
    dropped: usize,
}

/// Runs both sides to the end. A side that is `lost` is so from that time on.
fn simulate(
    truth: &[Truth; 2],
    options: BalanceOptions,
    total: u64,
    lost: Option<(Side, f64, bool)>,
) -> Outcome {
    let mut balance = Balance::new(total, options);
    let mut workers: Vec<(Side, Worker)> = Vec::new();
    for side in Side::BOTH {
        workers.extend((0..truth[side as usize].workers).map(|_| (side, Worker::Free(0.0))));
    }
    let mut counted: Vec<(Side, Chunk)> = Vec::new();
    let mut out = Outcome { seconds: 0.0, by: [0; 2], longest: 0.0, chunks: 0, dropped: 0 };
    let mut given: Vec<(Chunk, f64)> = Vec::new();
    let mut losing = lost;
    let mut steps = 0;
    while !balance.is_finished() {
        steps += 1;
        assert!(steps < 1_000_000, "it does not end");
        let time = |w: &Worker| match w {
            Worker::Free(t) | Worker::Busy(_, t) => *t,
            Worker::Ended => f64::INFINITY,
        };
        let next =
            (0..workers.len()).min_by(|a, b| time(&workers[*a].1).total_cmp(&time(&workers[*b].1)));
        let i = next.unwrap();
        let now = time(&workers[i].1);
        assert!(!balance.is_stuck());
        if let Some((side, at, results)) = losing.filter(|l| l.1 <= now) {
            losing = None;
            if results {
                balance.lost_with_results(side);
                counted.retain(|(s, _)| *s != side);
            } else {
                balance.lost(side);
            }
            for (s, w) in &mut workers {
                match w {
                    _ if *s == side => *w = Worker::Ended,
                    Worker::Free(_) => *w = Worker::Free(at),
                    Worker::Ended => *w = Worker::Free(at),
                    Worker::Busy(..) => {}
                }
            }
            continue;
        }
        assert!(now.is_finite(), "nobody works on it any more");
        let side = workers[i].0;
        if let Worker::Busy(chunk, _) = workers[i].1 {
            let verdict = balance.done(side, chunk, now);
            // Twice the same is nothing.
            assert_eq!(balance.done(side, chunk, now), Verdict::Drop);
            if verdict == Verdict::Count {
                counted.push((side, chunk));
                let since = given.iter().find(|g| g.0 == chunk).unwrap().1;
                out.longest = out.longest.max(now - since);
                out.seconds = now;
            } else {
                out.dropped += 1;
            }
            workers[i].1 = Worker::Free(now);
            for (_, w) in &mut workers {
                if let Worker::Free(t) = w {
                    *t = t.min(now);
                }
            }
            continue;
        }
        workers[i].1 = match balance.next(side, now) {
            Next::Chunk(chunk) => {
                assert!(chunk.len() > 0 && chunk.end <= total);
                given.push((chunk, now));
                Worker::Busy(chunk, truth[side as usize].end(now, chunk.len()))
            }
            Next::Wait { until } => {
                assert!(until > now, "{until} after {now}");
                Worker::Free(until)
            }
            Next::Finished => Worker::Ended,
        };
    }
    // Each byte once.
    counted.sort_by_key(|(_, c)| c.start);
    let mut at = 0;
    for (side, c) in &counted {
        assert_eq!(c.start, at);
        at = c.end;
        out.by[*side as usize] += c.len();
    }
    assert_eq!(at, total);
    assert_eq!(out.by, Side::BOTH.map(|s| balance.counted(s)));
    out.chunks = given.len();
    out
}

fn options(host_share: f64, seconds: f64) -> BalanceOptions {
    BalanceOptions { host_share, seconds, ..BalanceOptions::default() }
}

fn rate() -> impl Strategy<Value = f64> {
    // From a slow device to memory.
    (7.0..9.5f64).prop_map(|e| 10f64.powf(e))
}

proptest! {
    /// Rates that stay, whatever was predicted.
    #[test]
    fn both_end_at_the_same_time(
        a in rate(), b in rate(), wa in 1..5usize, wb in 1..5usize, share in 0.03..0.97f64, wrong in 0.1..10.0f64,
    ) {
        let truth = [Truth::steady(wa, a), Truth::steady(wb, b)];
        let best = ideal(&truth, TOTAL);
        let out = simulate(&truth, options(share, best * wrong), TOTAL, None);
        // What workers of the slower side hold at the end, when the last chunk is as small as it may be.
        let tail = (1u64 << 20) as f64 * (wa + wb) as f64 / (a + b) * 2.0;
        prop_assert!(out.seconds <= best * 1.05 + tail, "{} for {best}, tail {tail}", out.seconds);
    }

    /// Of a side of which less is expected nothing is tried before the other one is late. So what was predicted matters, and both are
    /// done by then, or as soon as both can be from then on.
    #[test]
    fn little_is_tried_when_the_other_side_is_late(
        a in rate(), b in rate(), wa in 1..5usize, wb in 1..5usize, share in 0.0..0.03f64, hosts in any::<bool>(), wrong in 0.1..10.0f64,
    ) {
        let truth = [Truth::steady(wa, a), Truth::steady(wb, b)];
        let best = ideal(&truth, TOTAL);
        let share = if hosts { share } else { 1.0 - share };
        let given = options(share, best * wrong);
        let out = simulate(&truth, given, TOTAL, None);
        let bound = (best.max(best * wrong) + given.patience_s) * 1.05 + out.longest;
        prop_assert!(out.seconds <= bound, "{} for {best}, at most {bound}", out.seconds);
    }

    /// One side changes in the middle.
    #[test]
    fn a_change_is_followed(
        a in rate(), b in rate(), wa in 1..5usize, wb in 1..5usize, share in 0.03..0.97f64, when in 0.0..1.0f64,
        change in -1.3..1.3f64,
    ) {
        let when = when * ideal(&[Truth::steady(wa, a), Truth::steady(wb, b)], TOTAL);
        let truth = [Truth::steady(wa, a).then(when, a * 10f64.powf(change)), Truth::steady(wb, b)];
        let best = ideal(&truth, TOTAL);
        let out = simulate(&truth, options(share, best), TOTAL, None);
        prop_assert!(out.seconds <= best * 1.05 + out.longest, "{} for {best}, {}", out.seconds, out.longest);
    }

    /// One side stops for good, and nobody says so.
    #[test]
    fn a_side_that_stops_is_done_without(
        a in rate(), b in rate(), wa in 1..5usize, wb in 1..5usize, share in 0.03..0.97f64, when in 0.0..1.1f64,
        hosts in any::<bool>(),
    ) {
        let when = when * ideal(&[Truth::steady(wa, a), Truth::steady(wb, b)], TOTAL);
        let mut truth = [Truth::steady(wa, a).then(when, 0.0), Truth::steady(wb, b)];
        if hosts {
            truth.reverse();
        }
        let best = ideal(&truth, TOTAL);
        let out = simulate(&truth, options(share, best), TOTAL, None);
        // What it had under way is done again, a chunk for each worker.
        let again = TOTAL as f64 / 64.0 * wa as f64 / b;
        let bound = best * 1.05 + options(0.5, 1.0).patience_s + again + out.longest;
        prop_assert!(out.seconds <= bound, "{} for {best}, at most {bound}", out.seconds);
    }

    /// One side is said to be lost, with what it has done or without.
    #[test]
    fn a_side_that_is_lost_is_done_without(
        a in rate(), b in rate(), wa in 1..4usize, wb in 1..4usize, when in 0.0..1.0f64, results in any::<bool>(),
        hosts in any::<bool>(),
    ) {
        let mut truth = [Truth::steady(wa, a), Truth::steady(wb, b)];
        let when = when * ideal(&truth, TOTAL);
        let side = if hosts { Side::Host } else { Side::Storage };
        if hosts {
            truth.reverse();
        }
        let out = simulate(&truth, options(0.5, 1.0), TOTAL, Some((side, when, results)));
        // The other one never stood still; what the lost one has done counts if it is not lost with it.
        let alone = TOTAL as f64 / b;
        let done = if results { 0.0 } else { a * when };
        let under_way = TOTAL as f64 / 64.0 * wa as f64;
        let best = (TOTAL as f64 - done + under_way).max(0.0) / b;
        prop_assert!(out.seconds <= (best.min(alone) * 1.05).max(when) + out.longest + 0.25, "{}, {best}", out.seconds);
        if results && out.seconds > when {
            prop_assert_eq!(out.by[side as usize], 0);
        }
    }

    /// Small ranges, odd chunks: each byte once, and chunks begin where they may.
    #[test]
    fn chunks_are_cut_where_they_may(
        total in 0..3000u64, align in 1..9u64, least in 0..40u64, most in 0..200u64, share in -1.0..2.0f64,
        wa in 1..4usize, wb in 1..4usize,
    ) {
        let odd = BalanceOptions { host_share: share, seconds: f64::NAN, align, least, most, patience_s: -1.0 };
        simulate(&[Truth::steady(wa, 1e3), Truth::steady(wb, 2e3)], odd, total, None);
        let mut balance = Balance::new(total, odd);
        let mut now = 0.0;
        while !balance.is_finished() {
            for side in Side::BOTH {
                if let Next::Chunk(c) = balance.next(side, now) {
                    prop_assert!(c.start % align == 0 && (c.end % align == 0 || c.end == total));
                    now += 1e-3;
                    prop_assert_eq!(balance.done(side, c, now), Verdict::Count);
                }
                now += 1e-3;
            }
        }
        prop_assert_eq!(balance.left_s(now), 0.0);
        prop_assert_eq!(balance.next(Side::Host, now), Next::Finished);
    }
}

#[test]
fn a_side_that_never_comes_is_not_waited_for() {
    for truth in [
        [Truth::steady(0, 1e9), Truth::steady(2, 1e8)],
        [Truth::steady(3, 1e8), Truth::steady(0, 1e9)],
    ] {
        let out = simulate(&truth, options(0.5, 1.0), TOTAL, None);
        let alone = TOTAL as f64 / 1e8;
        assert!(out.seconds <= alone * 1.01 + 0.25, "{} for {alone}", out.seconds);
        assert!(out.by.contains(&TOTAL));
    }
}

#[test]
fn predictions_matter_little() {
    let truth = [Truth::steady(4, 3e8), Truth::steady(4, 7e8)];
    let best = ideal(&truth, TOTAL);
    for share in [0.03, 0.3, 0.7, 0.97] {
        for wrong in [0.01, 1.0, 100.0] {
            let out = simulate(&truth, options(share, best * wrong), TOTAL, None);
            assert!(out.seconds <= best * 1.03, "{} for {best}: {share}, {wrong}", out.seconds);
            assert!(out.chunks < 600, "{} chunks", out.chunks);
        }
    }
}

fn chunk(next: Next) -> Chunk {
    match next {
        Next::Chunk(c) => c,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_late_chunk_counts_if_nobody_has_begun_with_it() {
    let options = BalanceOptions { least: 100, patience_s: 0.1, ..options(0.5, 1.0) };
    let mut balance = Balance::new(100, options);
    let first = chunk(balance.next(Side::Storage, 0.0));
    assert_eq!(first.range(), 0..100);
    // Somebody looks at it long after, and is at it, too: who is done first counts.
    let second = chunk(balance.next(Side::Host, 1e4));
    assert_eq!(second.range(), 0..100);
    assert!(matches!(balance.next(Side::Host, 1e4), Next::Wait { .. }));
    assert_eq!(balance.done(Side::Storage, first, 1e4 + 1.0), Verdict::Drop);
    // Another side's chunk, and one that was never given, are nothing.
    assert_eq!(balance.done(Side::Storage, second, 1e4 + 1.0), Verdict::Drop);
    assert_eq!(balance.done(Side::Host, second, 1e4 + 2.0), Verdict::Count);
    assert!(balance.is_finished() && balance.counted(Side::Host) == 100);

    let mut balance = Balance::new(100, options);
    let first = chunk(balance.next(Side::Storage, 0.0));
    balance.lost(Side::Host);
    assert_eq!(balance.next(Side::Host, 1e4), Next::Finished);
    assert_eq!(balance.done(Side::Storage, first, 2e4), Verdict::Count);
    assert!(balance.is_finished());
}

#[test]
fn who_is_done_first_counts() {
    let options = BalanceOptions { least: 100, ..options(0.9, 1.0) };
    for first in Side::BOTH {
        let mut balance = Balance::new(100, options);
        let slow = chunk(balance.next(Side::Storage, 0.0));
        // Longer than expected, not yet late.
        let again = chunk(balance.next(Side::Host, 2.1));
        assert_eq!(again.range(), slow.range());
        let ends = [(Side::Storage, slow), (Side::Host, again)];
        let (winner, loser) = if first == Side::Storage { (0, 1) } else { (1, 0) };
        assert_eq!(balance.done(ends[winner].0, ends[winner].1, 2.2), Verdict::Count);
        assert_eq!(balance.done(ends[loser].0, ends[loser].1, 2.3), Verdict::Drop);
        assert_eq!(balance.counted(first), 100);
    }
}

#[test]
fn when_both_are_lost_it_says_so() {
    let mut balance = Balance::new(1 << 30, BalanceOptions::default());
    let a = chunk(balance.next(Side::Storage, 0.0));
    balance.lost(Side::Storage);
    assert!(!balance.is_stuck());
    balance.lost_with_results(Side::Host);
    assert!(balance.is_stuck());
    assert_eq!(balance.done(Side::Storage, a, 1.0), Verdict::Drop);
    assert_eq!(balance.next(Side::Storage, 1.0), Next::Finished);
}

/// Several passes with one worker a side, which takes another time for what it has to get than for what it has in memory.
/// Returns the seconds of each pass, and what the hosts did in it.
fn passes(
    rates: &dyn Fn(usize, Side, bool) -> f64,
    number: usize,
    options: BalanceOptions,
    total: u64,
) -> Vec<(f64, u64)> {
    let mut balance = Balance::new(total, options);
    let mut memory: [Vec<Chunk>; 2] = Default::default();
    let mut took = Vec::new();
    for pass in 0..number {
        if pass > 0 {
            balance.again();
        }
        // What each side is at, and when it asks or ends it.
        let mut at: [(Option<Chunk>, f64); 2] = [(None, 0.0), (None, 0.0)];
        let mut end = 0.0;
        let mut steps = 0;
        while !balance.is_finished() {
            steps += 1;
            assert!(steps < 100_000, "it does not end");
            let side = if at[0].1 <= at[1].1 { Side::Storage } else { Side::Host };
            let (under_way, now) = at[side as usize];
            if let Some(chunk) = under_way {
                if balance.done(side, chunk, now) == Verdict::Count {
                    if balance.is_piece(chunk) {
                        balance.keep(side, 0, chunk);
                        memory[side as usize].push(chunk);
                    }
                    end = now;
                }
                at[side as usize].0 = None;
                at.iter_mut().filter(|a| a.0.is_none()).for_each(|a| a.1 = a.1.min(now));
                continue;
            }
            match balance.next(side, now) {
                Next::Chunk(c) => {
                    let has: u64 = memory[side as usize]
                        .iter()
                        .filter(|m| c.start <= m.start && m.end <= c.end)
                        .map(Chunk::len)
                        .sum();
                    let rate = rates(pass, side, has >= c.len());
                    at[side as usize] = (Some(c), now + c.len() as f64 / rate);
                }
                Next::Wait { until } => at[side as usize].1 = until,
                Next::Finished => at[side as usize].1 = f64::INFINITY,
            }
        }
        took.push((end, balance.counted(Side::Host)));
    }
    took
}

proptest! {
    /// The side that has to fetch gets more in each pass, until both are as fast.
    #[test]
    fn later_passes_begin_with_what_is_in_memory(
        link in 7.5..9.0f64, storage in 8.0..9.5f64, times in 0.3..1.5f64, share in 0.03..0.97f64,
    ) {
        let (link, storage) = (10f64.powf(link), 10f64.powf(storage));
        let memory = storage * 10f64.powf(times);
        let rates = |_: usize, side, has| match (side, has) {
            (Side::Storage, _) => storage,
            (Side::Host, true) => memory,
            (Side::Host, false) => link.min(memory),
        };
        let once = TOTAL as f64 / (storage + link.min(memory));
        let took = passes(&rates, 12, options(share, once), TOTAL);
        let tail = TOTAL as f64 / 64.0 / link.min(storage);
        // What would be best if chunks were small: both are at work all the time.
        let (mut has, mut best) = (0.0, 0.0);
        for _ in 0..12 {
            let all = TOTAL as f64;
            // The hosts have so much, and the rest goes to both.
            let alone = has / memory;
            let rest = all - has - alone * storage;
            let seconds = if rest > 0.0 { alone + rest / (storage + link.min(memory)) } else { all / (storage + memory) };
            has += (seconds - alone).max(0.0) * link.min(memory);
            best += seconds;
        }
        let all: f64 = took.iter().map(|t| t.0).sum();
        prop_assert!(all <= best * 1.15 + 12.0 * tail, "{all} for {best}, tail {tail}: {took:?}");
        // Hosts that are slower than their link do not get more.
        let shares: Vec<u64> = took.iter().map(|t| t.1).collect();
        prop_assert!(shares[11] + TOTAL / 20 >= shares[0], "{shares:?}");
    }
}

#[test]
fn a_side_that_becomes_slow_gives_chunks_away_and_gets_them_back() {
    let rates = |pass: usize, side, has| match (side, has) {
        (Side::Storage, _) if (2..5).contains(&pass) => 1e8,
        (Side::Storage, _) => 1e9,
        (Side::Host, true) => 2e9,
        (Side::Host, false) => 3e8,
    };
    let took = passes(&rates, 8, options(0.3, 1.0), TOTAL);
    let part = |pass: usize| took[pass].1 as f64 / TOTAL as f64;
    assert!((0.15..0.4).contains(&part(0)), "{took:?}");
    assert!(part(2) > part(1) && part(4) > 0.8, "{took:?}");
    assert!(part(7) < part(4) && part(7) > 0.5, "{took:?}");
    // In the end all is in memory, and both are as fast as they can be.
    assert!(took[7].0 < 1.1 * TOTAL as f64 / 3e9, "{took:?}");
}

#[test]
fn a_side_of_which_little_is_expected_gets_nothing_until_it_is_missed() {
    for (share, idle) in [(0.0, Side::Host), (0.02, Side::Host), (1.0, Side::Storage)] {
        let fast = if idle == Side::Host { [1e9, 1e7] } else { [1e7, 1e9] };
        let seconds = TOTAL as f64 / 1e9;
        let as_expected = [Truth::steady(2, fast[0]), Truth::steady(2, fast[1])];
        let out = simulate(&as_expected, options(share, seconds), TOTAL, None);
        assert_eq!(out.by[idle as usize], 0, "{share}");
        assert!(out.seconds <= 1.01 * seconds);
        // What was expected to take a second takes ten.
        let both = [Truth::steady(2, 1e8), Truth::steady(2, 1e8)];
        let out = simulate(&both, options(share, seconds), TOTAL, None);
        assert!(out.seconds <= 1.1 * TOTAL as f64 / 2e8, "{share}: {}", out.seconds);
    }
}
