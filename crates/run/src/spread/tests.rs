//! Ranks that ask each other, with devices that do as they are told.

use super::service::Link;
use super::*;
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use stead_core::layout::Part;
use stead_fabric::{Fabric, Local};
use stead_format::Traffic;
use stead_store::MemorySource;

/// A part that gives nothing before it is told to.
#[derive(Debug)]
struct Slow {
    inner: MemorySource,
    goes: Mutex<bool>,
    told: Condvar,
}

impl Slow {
    fn go(&self) {
        *self.goes.lock().unwrap() = true;
        self.told.notify_all();
    }
}

impl Source for Slow {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let goes = self.goes.lock().unwrap();
        drop(self.told.wait_while(goes, |goes| !*goes).unwrap());
        self.inner.read_at(offset, buf)
    }
}

/// A file in stripes of four bytes on these parts, all of which rank 1 has, as two ranks see it.
fn two_ranks(bytes: &[u8], parts: [Arc<dyn Source>; 2]) -> [Spread; 2] {
    two_ranks_with(bytes, parts, [vec![1], vec![1]], &Stops::default())
}

/// As `two_ranks`, with the rank that has each part, and what stops them.
fn two_ranks_with(
    bytes: &[u8],
    parts: [Arc<dyn Source>; 2],
    has: [Vec<usize>; 2],
    stops: &Stops,
) -> [Spread; 2] {
    let names = ["0", "1"].map(|p| Part::new("b", p));
    let layout = Layout::even("f", bytes.len() as u64, 4, names.to_vec()).unwrap();
    let of_rank = |rank: usize| {
        let its =
            |(p, has): (&Arc<dyn Source>, &Vec<usize>)| has.contains(&rank).then(|| p.clone());
        let parts = parts.iter().zip(&has).map(its).collect();
        let (path, described, layout) = (PathBuf::from("f"), None, layout.clone());
        Arc::new(Whole { path, described, layout, parts, homes: vec![0, 1] })
    };
    let group = Local::over_nodes(&[0, 1], Duration::from_secs(60));
    let mut spreads = group.into_iter().enumerate().map(|(rank, fabric)| {
        let (fabric, whole): (Arc<dyn Fabric>, _) = (Arc::new(fabric), of_rank(rank));
        let (hosts, groups) = (vec!["a".into(), "b".into()], has.to_vec());
        let (files, traffic) = (vec![whole.clone()], Arc::new(Traffic::default()));
        let link = Link::start(fabric, 7, hosts, groups, files, stops.clone(), traffic).unwrap();
        Spread { whole, index: 0, link: Some(Arc::new(link)) }
    });
    [spreads.next().unwrap(), spreads.next().unwrap()]
}

fn memory(bytes: &[u8]) -> MemorySource {
    MemorySource::new("part", bytes.to_vec())
}

#[test]
fn a_slow_part_keeps_no_other_one_waiting() {
    let inner = memory(b"0000");
    let slow = Arc::new(Slow { inner, goes: Mutex::new(false), told: Condvar::new() });
    let ranks = two_ranks(b"00001111", [slow.clone(), Arc::new(memory(b"1111"))]);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut buf = [0; 4];
            ranks[0].read_at(0, &mut buf).map(|()| buf)
        });
        // However often, and whoever is first.
        let others = (0..20).try_for_each(|_| {
            let mut buf = [0; 4];
            ranks[0].read_at(4, &mut buf)?;
            assert_eq!(&buf, b"1111");
            Ok::<(), Error>(())
        });
        slow.go();
        others.unwrap();
        assert_eq!(&waits.join().unwrap().unwrap(), b"0000");
    });
}

#[test]
fn newlines_are_counted_where_they_lie() {
    let file = b"a\nb\n\n\ncd\ne\n\n";
    let part = |k: usize| {
        let mine = file.chunks(4).skip(k).step_by(2);
        Arc::new(memory(&mine.collect::<Vec<_>>().concat())) as Arc<dyn Source>
    };
    // Both parts elsewhere, one of them, and each rank one.
    for has in [[vec![1], vec![1]], [vec![0, 1], vec![1]], [vec![0], vec![1]], [vec![1], vec![0]]] {
        let ranks = two_ranks_with(file, [part(0), part(1)], has.clone(), &Stops::default());
        for from in 0..file.len() {
            for to in from..=file.len() + 2 {
                let want = file[from..to.min(file.len())].iter().filter(|c| **c == b'\n').count();
                for rank in &ranks {
                    let found = rank.newlines(from as u64..to as u64).unwrap();
                    assert_eq!(found.unwrap(), want as u64, "{has:?} {from}..{to}");
                }
            }
        }
    }
}

#[test]
fn a_request_that_is_stopped_waits_for_no_slow_part() {
    let inner = memory(b"0000");
    let slow = Arc::new(Slow { inner, goes: Mutex::new(false), told: Condvar::new() });
    let stops = Stops::default();
    let parts: [Arc<dyn Source>; 2] = [slow.clone(), Arc::new(memory(b"1111"))];
    let ranks = two_ranks_with(b"00001111", parts, [vec![1], vec![1]], &stops);
    let request = stead_core::Cancel::new();
    let during = stops.during(&request);
    std::thread::scope(|scope| {
        // More than may be asked for at a time: some wait for room, the others for bytes.
        let read = || ranks[0].read_at(0, &mut [0; 4]).map_err(|e| e.kind());
        let waiting: Vec<_> = (0..40).map(|_| scope.spawn(read)).collect();
        request.cancel();
        // In place of what comes when the device has answered too late.
        for waits in waiting {
            assert_eq!(waits.join().unwrap(), Err(stead_core::Kind::Cancelled));
        }
        slow.go();
    });
    // The next request is not stopped.
    drop(during);
    let mut buf = [0; 4];
    ranks[0].read_at(4, &mut buf).unwrap();
    assert_eq!(&buf, b"1111");
}

/// A part of which nothing can be read from its sixth byte on.
#[derive(Debug)]
struct Bad(MemorySource);

impl Source for Bad {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if offset + buf.len() as u64 > 6 {
            let broken = std::io::Error::other("broken");
            return Err(Error::io("read", "/disk/part", broken).at_offset(6));
        }
        self.0.read_at(offset, buf)
    }
}

#[test]
fn an_error_of_another_rank_keeps_its_place() {
    let bad: Arc<dyn Source> = Arc::new(Bad(memory(b"00002222")));
    let ranks = two_ranks(b"0000111122221111", [bad, Arc::new(memory(b"11111111"))]);
    let e = ranks[0].read_at(8, &mut [0; 4]).unwrap_err();
    let place = e.place();
    assert_eq!((place.rank, place.host.as_deref(), place.offset), (Some(1), Some("b"), Some(6)));
    assert_eq!(place.path.as_deref(), Some(Path::new("/disk/part")));
}

#[test]
fn what_one_rank_answers_is_lent() {
    let ranks = two_ranks(b"00001111", [Arc::new(memory(b"0000")), Arc::new(memory(b"1111"))]);
    let lent = |rank: usize, at, len| ranks[rank].lend(at, len).map(|b| b.unwrap().to_vec());
    assert_eq!(lent(0, 4, 4).as_deref(), Some(&b"1111"[..]));
    assert_eq!(lent(0, 5, 2).as_deref(), Some(&b"11"[..]));
    // What was asked for before, too.
    ranks[0].ahead(0, 3);
    assert_eq!(lent(0, 0, 3).as_deref(), Some(&b"000"[..]));
    // Of two groups, past the end, too long, nothing, and here.
    for (rank, at, len) in
        [(0, 2, 4), (0, 6, 4), (0, u64::MAX, 4), (0, 0, 2 << 20), (0, 4, 0), (1, 4, 4)]
    {
        assert_eq!(lent(rank, at, len), None, "{rank} {at} {len}");
    }
    let bad: Arc<dyn Source> = Arc::new(Bad(memory(b"00002222")));
    let ranks = two_ranks(b"0000111122221111", [bad, Arc::new(memory(b"11111111"))]);
    let e = ranks[0].lend(8, 4).unwrap().unwrap_err();
    assert_eq!((e.place().rank, e.place().offset), (Some(1), Some(6)));
}
