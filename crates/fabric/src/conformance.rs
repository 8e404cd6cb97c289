//! What every [`Fabric`] must pass.

use crate::{Fabric, FabricExt};
use std::time::Duration;

/// Runs the suite over a group of ranks, one thread each.
pub fn check<F: Fabric + 'static>(ranks: Vec<F>) {
    let size = ranks.len();
    let threads: Vec<_> = ranks
        .into_iter()
        .enumerate()
        .map(|(i, f)| {
            std::thread::spawn(move || {
                assert_eq!((f.rank(), f.size()), (i, size));
                suite(&f);
            })
        })
        .collect();
    for t in threads {
        t.join().expect("a rank failed");
    }
}

/// What one rank does, in a thread or a process of its own. Panics if something is not as it must be.
pub fn suite(f: &dyn Fabric) {
    let (rank, size) = (f.rank(), f.size());
    // Messages of one tag keep their order; tags do not mix; empty messages arrive.
    let next = (rank + 1) % size;
    let last = (rank + size - 1) % size;
    for i in 0..10u8 {
        f.send(next, 1, vec![i; usize::from(i) * 1000]).expect("send");
        f.send(next, 2, vec![100 + i]).expect("send");
    }
    for i in 0..10u8 {
        assert_eq!(f.recv(last, 2).expect("recv"), vec![100 + i]);
    }
    for i in 0..10u8 {
        assert_eq!(f.recv(last, 1).expect("recv"), vec![i; usize::from(i) * 1000]);
    }
    // Collectives.
    let mine = if rank == 0 { vec![7; 100_000] } else { vec![] };
    assert_eq!(f.broadcast(3, mine).expect("broadcast"), vec![7; 100_000]);
    let mut join = |mut a: Vec<u8>, b: Vec<u8>| {
        a.extend(b);
        Ok(a)
    };
    let all: Vec<u8> = (0..size).map(|r| r as u8).collect();
    let up = f.reduce(4, vec![rank as u8], &mut join).expect("reduce");
    assert_eq!(up, (rank == 0).then(|| all.clone()));
    assert_eq!(f.all_reduce(5, vec![rank as u8], &mut join).expect("all_reduce"), all);
    let parts = f.all_gather(8, vec![rank as u8; rank]).expect("all_gather");
    assert_eq!(parts, (0..size).map(|r| vec![r as u8; r]).collect::<Vec<_>>());
    assert!(f.recv(size, 0).is_err());
    assert!(f.send(size, 0, vec![]).is_err());
    sorts(f);
    sizes(f);
    crowd(f);
    // Nobody leaves before all have what they want.
    f.all_gather(90, vec![]).expect("all_gather");
}

/// Messages from anybody, and none.
fn sorts(f: &dyn Fabric) {
    let (rank, size) = (f.rank(), f.size());
    let never = Duration::from_millis(5);
    assert_eq!(f.recv_any(40, never).expect("recv_any"), None);
    assert_eq!(f.recv_within(0, 40, never).expect("recv_within"), None);
    for to in 0..size {
        f.send(to, 41, vec![rank as u8; rank + 1]).expect("send");
    }
    let mut seen = vec![false; size];
    for _ in 0..size {
        let (from, bytes) = f.recv_any(41, f.deadline()).expect("recv_any").expect("a message");
        assert_eq!(bytes, vec![from as u8; from + 1]);
        assert!(!std::mem::replace(&mut seen[from], true), "rank {from} came twice");
    }
    for r in 0..size {
        f.alive(r).expect("alive");
        assert!(!f.ends(r), "rank {r} goes on");
    }
    // All agree on who is where.
    let mine: Vec<u8> = (0..size).map(|r| f.node_of(r) as u8).collect();
    let all = f.all_gather(42, mine.clone()).expect("all_gather");
    assert!(all.iter().all(|theirs| *theirs == mine));
}

/// Sizes around those at which implementations change their ways; both directions at once.
fn sizes(f: &dyn Fabric) {
    let (rank, size) = (f.rank(), f.size());
    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    let lengths =
        [0, 1, 3048, 3049, 4095, 4096, 65_519, 65_520, 65_521, 65_536, 1_000_003, 3_000_000];
    let bytes =
        |from: usize, n: usize| -> Vec<u8> { (0..n).map(|i| (i / 3 + from) as u8).collect() };
    for n in lengths {
        f.send(next, 50, bytes(rank, n)).expect("send");
        f.send(last, 51, bytes(rank, n)).expect("send");
    }
    for n in lengths {
        assert!(f.recv(last, 50).expect("recv") == bytes(last, n), "{n} bytes");
        assert!(f.recv(next, 51).expect("recv") == bytes(next, n), "{n} bytes");
    }
}

/// Many threads of each rank at once.
fn crowd(f: &dyn Fabric) {
    let (rank, size) = (f.rank(), f.size());
    std::thread::scope(|scope| {
        for t in 0..4u32 {
            scope.spawn(move || {
                for i in 0..50u8 {
                    let to = (rank + usize::from(i)) % size;
                    f.send(to, 60 + t, vec![i; 1000 * usize::from(i)]).expect("send");
                }
                for i in 0..50u8 {
                    let from = (rank + size - usize::from(i) % size) % size;
                    let bytes = f.recv(from, 60 + t).expect("recv");
                    assert_eq!(bytes, vec![i; 1000 * usize::from(i)]);
                }
            });
        }
    });
}
