//! Snapshots: every task its share, however many there are.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use stead::fabric::{Fabric, Local};
use stead::tipsy::{self, Header, Species, Values};
use stead::{ByteOrder, DType, Kind, Request};

/// Every field of every particle has its own number, exact in `f32`.
fn value(species: Species, row: u64, field: usize) -> f64 {
    (species as u64 * 1_000_000 + row * 16 + field as u64) as f64
}

fn write(dir: &tempfile::TempDir, h: &Header) -> PathBuf {
    let mut out = h.encode();
    for k in Species::ALL {
        for row in 0..h.count(k) {
            for (i, f) in h.fields(k).iter().enumerate() {
                let x = value(k, row, i);
                let mut bytes = match f.dtype {
                    DType::F64 => x.to_le_bytes().to_vec(),
                    _ => (x as f32).to_le_bytes().to_vec(),
                };
                if h.byte_order == ByteOrder::Big {
                    bytes.reverse();
                }
                out.extend(bytes);
            }
        }
    }
    let path = dir.path().join("run.00042");
    std::fs::write(&path, out).unwrap();
    path
}

#[test]
fn shares_make_the_whole_for_any_number_of_tasks() {
    let dir = tempfile::tempdir().unwrap();
    for (order, doubles) in [(ByteOrder::Big, DType::F32), (ByteOrder::Little, DType::F64)] {
        // More than one piece of records.
        let h = Header::new(0.5, [30_000, 60_001, 7], order, doubles, doubles).unwrap();
        let path = write(&dir, &h);
        let mut options = stead::read::Options::default();
        for cached in [true, false] {
            if !cached {
                options.io.engine = stead::Engine::Pread;
                options.memory = 1 << 20;
            }
            let snapshot = tipsy::open(&path, &options).unwrap();
            assert_eq!(snapshot.header(), &h);
            for k in Species::ALL {
                for tasks in [1, 5, 100] {
                    let parts: Vec<_> = std::thread::scope(|s| {
                        let load = |task| {
                            let snapshot = &snapshot;
                            s.spawn(move || snapshot.load(k, task, tasks, &[]).unwrap())
                        };
                        let threads: Vec<_> = (0..tasks).map(load).collect();
                        threads.into_iter().map(|t| t.join().unwrap()).collect()
                    });
                    let mut row = 0;
                    for part in parts {
                        assert_eq!((part.species, part.first), (k, row));
                        for (i, (_, values)) in part.columns.iter().enumerate() {
                            let want = (0..part.len() as u64).map(|r| value(k, row + r, i));
                            assert!((0..part.len()).map(|r| values.get(r).unwrap()).eq(want));
                        }
                        row += part.len() as u64;
                    }
                    assert_eq!(row, h.count(k));
                }
            }
            snapshot.close().unwrap();
        }
    }
}

#[test]
fn some_columns_of_more_tasks_than_particles() {
    let dir = tempfile::tempdir().unwrap();
    let h = Header::new(1.0, [0, 3, 0], ByteOrder::Big, DType::F64, DType::F32).unwrap();
    let snapshot = tipsy::open(write(&dir, &h), &stead::read::Options::default()).unwrap();
    let all: Vec<_> =
        (0..10).map(|t| snapshot.load(Species::Dark, t, 10, &["z", "vx"]).unwrap()).collect();
    assert_eq!(all.iter().map(|p| p.len()).sum::<usize>(), 3);
    let first = all.iter().find(|p| !p.is_empty()).unwrap();
    assert_eq!(first.column("z"), Some(&Values::F64(vec![value(Species::Dark, 0, 3)])));
    assert_eq!(first.column("vx"), Some(&Values::F32(vec![value(Species::Dark, 0, 4) as f32])));
    assert!(first.column("mass").is_none());
    assert!(snapshot.load(Species::Star, 0, 1, &[]).unwrap().is_empty());
}

/// As many pieces as a large simulation has tree pieces: some have a particle or two, most of the stars' have none.
#[test]
fn sixty_five_thousand_pieces_make_the_whole() {
    const PIECES: usize = 1 << 16;
    let dir = tempfile::tempdir().unwrap();
    let h = Header::new(1.0, [0, 100_003, 999], ByteOrder::Big, DType::F32, DType::F32).unwrap();
    let snapshot = tipsy::open(write(&dir, &h), &stead::read::Options::default()).unwrap();
    for k in [Species::Dark, Species::Star] {
        let next = AtomicUsize::new(0);
        let load = || {
            let mut mine = Vec::new();
            loop {
                let piece = next.fetch_add(1, Ordering::Relaxed);
                if piece >= PIECES {
                    return mine;
                }
                let share = snapshot.load(k, piece, PIECES, &["z"]).unwrap();
                let z = share.column("z").unwrap();
                let values: Vec<f64> = (0..z.len()).map(|i| z.get(i).unwrap()).collect();
                mine.push((piece, share.first, values));
            }
        };
        let mut pieces: Vec<_> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..4).map(|_| s.spawn(load)).collect();
            threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
        });
        pieces.sort_by_key(|p| p.0);
        let mut row = 0;
        for (_, first, values) in &pieces {
            assert!(*first == row && values.len() <= (h.count(k) as usize).div_ceil(PIECES));
            assert!((0..).zip(values).all(|(i, v)| *v == value(k, row + i, 3)));
            row += values.len() as u64;
        }
        assert_eq!((pieces.len(), row), (PIECES, h.count(k)));
    }
    snapshot.close().unwrap();
}

#[test]
fn particles_come_piece_by_piece() {
    let dir = tempfile::tempdir().unwrap();
    let h = Header::new(1.0, [90_000, 3, 0], ByteOrder::Little, DType::F64, DType::F32).unwrap();
    let snapshot = tipsy::open(write(&dir, &h), &stead::read::Options::default()).unwrap();
    let (mut row, mut pieces) = (45_000, 0);
    let mut each = |p: &tipsy::Particles| {
        assert_eq!(p.first, row);
        for i in 0..p.len() {
            assert_eq!(p.columns[0].1.get(i), Some(value(Species::Gas, row, 1)));
            row += 1;
        }
        pieces += 1;
        Ok(())
    };
    snapshot.load_each(Species::Gas, 1, 2, &["x"], &mut each).unwrap();
    assert!(row == 90_000 && pieces > 2);
    // What goes wrong there ends it.
    let mut calls = 0;
    let ended = snapshot.load_each(Species::Gas, 0, 1, &["x"], &mut |_| {
        calls += 1;
        Err(stead::Error::usage("enough"))
    });
    assert_eq!((ended.err().unwrap().message(), calls), ("enough", 1));
}

fn on_ranks<T: Send>(nodes: &[usize], rank: impl Fn(Arc<dyn Fabric>) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = Local::over_nodes(nodes, Duration::from_secs(60))
            .into_iter()
            .map(|fabric| {
                let rank = &rank;
                scope.spawn(move || rank(Arc::new(fabric)))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn ranks_load_their_shares() {
    let dir = tempfile::tempdir().unwrap();
    let h = Header::new(1.0, [20_000, 7, 1], ByteOrder::Big, DType::F64, DType::F64).unwrap();
    let path = write(&dir, &h);
    for engine in [stead::Engine::Auto, stead::Engine::Pread] {
        for nodes in [&[0][..], &[0, 0], &[0, 1, 1]] {
            let mut options = stead::read::Options::default();
            options.io.engine = engine;
            options.block = Some(64 << 10);
            let shares = on_ranks(nodes, |fabric| {
                let (rank, size) = (fabric.rank(), fabric.size());
                let snapshot = tipsy::open_ranks(fabric, &path, &options).unwrap();
                assert_eq!(snapshot.header(), &h);
                Species::ALL.map(|k| snapshot.load(k, rank, size, &[]).unwrap())
            });
            for (at, k) in Species::ALL.into_iter().enumerate() {
                let mut row = 0;
                for share in shares.iter().map(|s| &s[at]) {
                    for (i, (_, values)) in share.columns.iter().enumerate() {
                        let want = (0..share.len() as u64).map(|r| value(k, row + r, i));
                        assert!((0..share.len()).map(|r| values.get(r).unwrap()).eq(want));
                    }
                    row += share.len() as u64;
                }
                assert_eq!(row, h.count(k));
            }
        }
    }
    // No snapshot: all hear of it.
    std::fs::write(&path, [7; 1000]).unwrap();
    let kinds = on_ranks(&[0, 0, 1], |fabric| {
        let opened = tipsy::open_ranks(fabric, &path, &stead::read::Options::default());
        opened.err().unwrap().kind()
    });
    assert_eq!(kinds, [Kind::Format; 3]);
}

#[test]
fn what_is_wrong_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let h = Header::new(1.0, [2, 3, 4], ByteOrder::Big, DType::F32, DType::F32).unwrap();
    let path = write(&dir, &h);
    let options = stead::read::Options::default();
    let kind = |r: stead::Result<tipsy::Snapshot>| r.err().unwrap().kind();
    {
        let snapshot = tipsy::open(&path, &options).unwrap();
        let kind = |r: stead::Result<tipsy::Particles>| r.err().unwrap().kind();
        assert_eq!(kind(snapshot.load(Species::Gas, 4, 4, &[])), Kind::Usage);
        assert_eq!(kind(snapshot.load(Species::Gas, 0, 0, &[])), Kind::Usage);
        assert_eq!(kind(snapshot.load(Species::Gas, 0, 1, &["eps"])), Kind::Usage);
    }
    let bytes = std::fs::read(&path).unwrap();
    for n in [0, 20, 31, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..n]).unwrap();
        assert_eq!(kind(tipsy::open(&path, &options)), Kind::Format, "{n} bytes");
    }
    assert_eq!(kind(tipsy::open(dir.path().join("none"), &options)), Kind::NotFound);
    assert!(!dir.path().join("none").exists());
    assert_eq!(kind(tipsy::open(dir.path(), &options)), Kind::Usage);
}

#[test]
fn kernels_run_on_species() {
    let dir = tempfile::tempdir().unwrap();
    let h = Header::new(1.0, [20, 30, 10], ByteOrder::Big, DType::F32, DType::F32).unwrap();
    let path = write(&dir, &h).to_string_lossy().into_owned();
    let data = stead::open(std::slice::from_ref(&path)).unwrap();
    let kernels = ["rows", "count:dark.mass", "mean:dark.mass", "max:eps", "gram:gas.x,gas.y"];
    let request = Request {
        kernels: kernels.map(String::from).to_vec(),
        filter: Some("species != 'star'".into()),
        ..Request::default()
    };
    let report = stead::run(&data, &request, None).unwrap();
    let float = |s: &str| report.result(s).and_then(stead::Value::as_f64).unwrap();
    assert_eq!((float("rows"), float("count:dark.mass")), (50.0, 30.0));
    assert_eq!(float("mean:dark.mass"), 1_000_000.0 + 14.5 * 16.0);
    assert_eq!(float("max:eps"), value(Species::Dark, 29, 7));
    let by =
        Request { kernels: vec!["rows".into()], by: vec!["species".into()], ..Request::default() };
    let report = stead::run(&data, &by, None).unwrap();
    let want = [("dark", 30), ("gas", 20), ("star", 10)];
    let want = want.map(|(k, n)| (k.to_string(), stead::Value::Int(n)));
    assert_eq!(report.result("rows"), Some(&stead::Value::Map(want.to_vec())));
}
