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
    let names = ["0", "1"].map(|p| Part::new("b", p));
    let layout = Layout::even("f", bytes.len() as u64, 4, names.to_vec()).unwrap();
    let of_rank = |rank: usize| {
        let parts = parts.iter().map(|p| (rank == 1).then(|| p.clone())).collect();
        let (path, described, layout) = (PathBuf::from("f"), None, layout.clone());
        Arc::new(Whole { path, described, layout, parts, homes: vec![0, 0] })
    };
    let group = Local::over_nodes(&[0, 1], Duration::from_secs(20));
    let mut spreads = group.into_iter().enumerate().map(|(rank, fabric)| {
        let (fabric, whole): (Arc<dyn Fabric>, _) = (Arc::new(fabric), of_rank(rank));
        let (hosts, groups) = (vec!["a".into(), "b".into()], vec![vec![1]]);
        let (files, traffic) = (vec![whole.clone()], Arc::new(Traffic::default()));
        let link = Link::start(fabric, 7, hosts, groups, files, &Cancel::new(), traffic).unwrap();
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
    let ranks = two_ranks(file, [part(0), part(1)]);
    for from in 0..file.len() {
        for to in from..=file.len() + 2 {
            let want = file[from..to.min(file.len())].iter().filter(|c| **c == b'\n').count();
            for rank in &ranks {
                let found = rank.newlines(from as u64..to as u64).unwrap();
                assert_eq!(found.unwrap(), want as u64, "{from}..{to}");
            }
        }
    }
}
