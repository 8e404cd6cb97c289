//! What every [`Fabric`] must pass.

use crate::{Fabric, FabricExt};

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

fn suite(f: &dyn Fabric) {
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
}
