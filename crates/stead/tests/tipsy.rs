//! Snapshots: every task its share, however many there are.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
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
