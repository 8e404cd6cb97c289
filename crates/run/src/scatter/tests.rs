//! Outputs over nodes that are folders of one host: what they replace, and what is left when something fails.

use crate::naming::{self, NewLayout};
use crate::outputs::Outputs;
use crate::spread::{Here, open_as};
use crate::{Observer, Report, Request, Snapshot, run_on};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stead_core::layout::{Layout, Part};
use stead_core::{Cancel, Error, Kind, Result};
use stead_fabric::testing::{Between, Meddle};
use stead_fabric::{Fabric, Local};
use stead_format::OpenOptions;
use stead_store::AtomicFile;
use tempfile::TempDir;

/// The hosts of ranks.
const FEW: &[&str] = &["a", "b", "b"];
/// Of more: the last but one has rank 2 between itself and rank 0.
const MORE: &[&str] = &["a", "b", "b", "a", "b"];

/// A folder for each node and one that all see, which has a layout `t.csv` of data on both nodes.
struct Lab {
    dir: TempDir,
    hosts: &'static [&'static str],
}

/// A rank dies when it is about to send one message more than these.
struct Dies(AtomicU64);

impl Meddle for Dies {
    fn check(&self) -> Result<()> {
        match self.0.load(Ordering::Relaxed) {
            0 => Err(Error::new(Kind::Peer, "this rank is dead")),
            _ => Ok(()),
        }
    }

    fn send(&self, _to: usize, _tag: u32, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        // The last one does not go; bytes for others may be sent by several threads.
        let left = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        match left {
            Ok(0 | 1) | Err(_) => Vec::new(),
            Ok(_) => vec![bytes],
        }
    }
}

/// Does something once, while rank 0 scans.
struct Once<F: Fn() + Sync>(AtomicBool, F);

impl<F: Fn() + Sync> Observer for Once<F> {
    fn progress(&self, _: &Snapshot) {
        if !self.0.swap(true, Ordering::Relaxed) {
            (self.1)();
        }
    }
}

impl Lab {
    fn new(space: &str) -> Lab {
        Lab::of(FEW, space)
    }

    fn of(hosts: &'static [&'static str], space: &str) -> Lab {
        let lab = Lab { dir: tempfile::tempdir().unwrap(), hosts };
        for folder in ["shared", "s-a", "s-b", "t-a", "t-b"] {
            std::fs::create_dir(lab.path(folder)).unwrap();
        }
        lab.data(space);
        lab
    }

    /// Data in this dataspace, in place of what was there.
    fn data(&self, space: &str) {
        let bytes: String = std::iter::once("x\n".into())
            .chain((0..300).map(|i| format!("{}\n", i % 17)))
            .collect();
        let parts = ["a", "b"].map(|n| Part::new(n, "t.csv.parts/0").within(space));
        let layout = Layout::even("t.csv", bytes.len() as u64, 50, parts.to_vec()).unwrap();
        let mut files = vec![Vec::new(); 2];
        for p in layout.pieces(0..layout.length()) {
            let of_file = &bytes.as_bytes()[p.offset as usize..(p.offset + p.len) as usize];
            files[p.part].extend_from_slice(of_file);
        }
        for (node, file) in ["a", "b"].iter().zip(files) {
            let folder = self.path(&format!("{space}-{node}/t.csv.parts"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("0"), file).unwrap();
        }
        std::fs::write(self.path("shared/t.csv.stead-layout.toml"), layout.to_string()).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn layout(&self) -> PathBuf {
        self.path("shared/o.csv.stead-layout.toml")
    }

    /// All ranks write `o.csv`, unless one of them dies; true if it did not come to that.
    fn runs(
        &self,
        dying: Option<(usize, u64)>,
        observer: Option<&dyn Observer>,
    ) -> (bool, Vec<Result<Report>>) {
        let nodes: Vec<usize> = self.hosts.iter().map(|host| usize::from(*host == "b")).collect();
        let group = Local::over_nodes(&nodes, Duration::from_secs(60));
        let hosts = self.hosts;
        let out = self.path("shared/o.csv");
        let ask = Request {
            kernels: vec![format!("normalize:x,zscore,out={}", out.display())],
            threads: 1,
            chunk: 100,
            ..Request::default()
        };
        let work = |rank: usize, fabric: &Arc<dyn Fabric>| {
            let here = Here { host: hosts[rank].into(), folder: None };
            let folder = |space: &str| {
                format!("{space}={}", self.path(&format!("{space}-{}", hosts[rank])).display())
            };
            let dataspaces = vec![folder("s"), folder("t")];
            let options = OpenOptions { dataspaces, ..OpenOptions::default() };
            let data = [self.path("shared/t.csv").display().to_string()];
            let data = open_as(&here, fabric, &data, &options, &Cancel::new())?;
            run_on(&**fabric, &data, &ask, observer.filter(|_| rank == 0))
        };
        std::thread::scope(|scope| {
            let ranks = group.into_iter().enumerate().map(|(rank, fabric)| {
                let work = &work;
                scope.spawn(move || {
                    let sends = dying.filter(|(r, _)| *r == rank).map_or(u64::MAX, |(_, n)| n);
                    let between = Between::new(Arc::new(fabric), Dies(AtomicU64::new(sends)));
                    let between = Arc::new(between);
                    let fabric: Arc<dyn Fabric> = between.clone();
                    let done = work(rank, &fabric);
                    // The dead are gone; who lives stays until all are done.
                    let lives = between.meddle.check().is_ok();
                    (done, lives.then_some((between, fabric)))
                })
            });
            let ranks: Vec<_> = ranks.collect();
            let all: Vec<_> = ranks.into_iter().map(|t| t.join().unwrap()).collect();
            let lived = all.iter().all(|(_, fabric)| fabric.is_some());
            (lived, all.into_iter().map(|(done, _)| done).collect())
        })
    }

    fn succeeds(&self) {
        self.runs(None, None).1.into_iter().for_each(|r| drop(r.unwrap()));
    }

    /// The one error of all ranks.
    fn fails(&self, observer: Option<&dyn Observer>) -> Error {
        let all = self.runs(None, observer).1.into_iter().map(|r| r.map(drop).unwrap_err());
        let all: Vec<Error> = all.collect();
        assert!(all.iter().all(|e| e.to_string() == all[0].to_string()), "{all:?}");
        all.into_iter().next().unwrap()
    }

    /// All files, but the data.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        walk(self.dir.path(), &mut found);
        let name = |p: &Path| p.strip_prefix(self.dir.path()).unwrap().display().to_string();
        let files = found.iter().map(|p| (name(p), std::fs::read(p).unwrap()));
        files.filter(|(name, _)| !name.contains("t.csv")).collect()
    }

    /// The output, by its layout.
    fn output(&self) -> Vec<u8> {
        let layout = stead_store::space::read_layout(&self.layout()).unwrap();
        let mut bytes = Vec::new();
        for p in layout.pieces(0..layout.length()) {
            let part = &layout.parts()[p.part];
            let space = part.space.as_deref().unwrap();
            let file = self.path(&format!("{space}-{}/{}", part.node, part.path));
            let file = std::fs::read(file).unwrap();
            bytes.extend_from_slice(&file[p.at as usize..(p.at + p.len) as usize]);
        }
        bytes
    }
}

#[test]
fn a_file_that_would_hide_the_output_is_told() {
    let lab = Lab::new("s");
    std::fs::write(lab.path("shared/o.csv"), "x\n1\n").unwrap();
    let before = lab.files();
    let e = lab.fails(None);
    assert!(e.kind() == Kind::Usage && e.message().contains("a file of this name"), "{e}");
    assert_eq!(e.place().path.as_deref(), Some(&*lab.path("shared/o.csv")));
    assert_eq!(lab.files(), before);
}

#[test]
fn a_file_that_was_put_is_no_output_to_replace() {
    let lab = Lab::new("s");
    let parts = ["a", "b"].map(|n| {
        let path = "o.csv.parts/0123456789abcdef0123456789abcdef.0";
        let file = lab.path(&format!("s-{n}/{path}"));
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "only\n").unwrap();
        Part::new(n, path).within("s")
    });
    let layout = Layout::even("o.csv", 10, 5, parts.to_vec()).unwrap();
    for text in [layout.to_string(), "no layout".into()] {
        std::fs::write(lab.layout(), text).unwrap();
        let before = lab.files();
        let e = lab.fails(None);
        assert!(e.kind() == Kind::Usage && e.message().contains("a layout already"), "{e}");
        assert_eq!(lab.files(), before);
    }
}

#[test]
fn old_parts_go_wherever_on_these_nodes_they_are() {
    let lab = Lab::new("s");
    lab.succeeds();
    let (first, want) = (lab.files(), lab.output());
    assert_eq!(first.keys().filter(|f| f.starts_with("s-")).count(), 3);
    // The data have moved to another dataspace since.
    lab.data("t");
    lab.succeeds();
    let second = lab.files();
    let parts: Vec<_> = second.keys().filter(|f| !f.starts_with("shared/")).collect();
    assert!(parts.len() == 3 && parts.iter().all(|f| f.starts_with("t-")), "{parts:?}");
    assert!(lab.output() == want);
}

#[test]
fn what_comes_to_be_there_meanwhile_is_not_replaced() {
    for first in [false, true] {
        let lab = Lab::new("s");
        if first {
            lab.succeeds();
        }
        let before = lab.files();
        let theirs =
            Layout::even("o.csv", 0, 1, vec![Part::new("a", "/theirs")]).unwrap().to_string();
        let write = || {
            // As another run does it: a new file.
            let mut file = AtomicFile::create(lab.layout()).unwrap();
            file.write_all(theirs.as_bytes()).unwrap();
            file.commit().unwrap();
        };
        let e = lab.fails(Some(&Once(AtomicBool::new(false), write)));
        assert_eq!(e.kind(), if first { Kind::Changed } else { Kind::Usage }, "{e}");
        let mut want = before;
        want.insert("shared/o.csv.stead-layout.toml".into(), theirs.clone().into_bytes());
        assert_eq!(lab.files(), want);
    }
}

#[test]
fn whenever_a_rank_dies_the_output_is_whole_or_not_there() {
    let whole = Lab::of(MORE, "s");
    whole.succeeds();
    let (mut stayed, mut died) = (0, 0);
    // The first, one between others, and the last of these.
    for dying in [0, 2, 3] {
        // Of those before the run, and while bytes are asked for, some are enough.
        for sends in (1..20).chain((20..).step_by(3)) {
            let lab = Lab::of(MORE, "s");
            let (lived, all) = lab.runs(Some((dying, sends)), None);
            for done in &all {
                assert!(done.as_ref().err().is_none_or(|e| e.kind() == Kind::Peer), "{done:?}");
            }
            let files = lab.files();
            assert!(!files.keys().any(|f| f.ends_with(".tmp")), "{files:?}");
            if lab.layout().exists() {
                assert!(lab.output() == whole.output(), "{dying} {sends}");
            } else {
                assert!(all.iter().all(Result::is_err), "{dying} {sends}");
                stayed += usize::from(!files.is_empty());
            }
            died += usize::from(!lived);
            if lived {
                assert!(all.iter().all(Result::is_ok));
                break;
            }
        }
    }
    // Named parts without a layout are left only if it came to the very end.
    assert!(died > 20 && stayed < died / 2, "{stayed} of {died}");
}

/// Names two layouts, the second of which cannot get its name: the errors of ranks, and whether they remove their parts. `spoil`
/// is done before.
fn named_in_vain(dir: &Path, old: Option<&[u8]>, spoil: impl Fn() + Sync) -> Vec<(Error, bool)> {
    let path = |name: &str| dir.join(name).with_extension("stead-layout.toml");
    let layout = Layout::even("l", 0, 1, vec![Part::new("a", "/p")]).unwrap();
    let work = |fabric: &dyn Fabric| {
        let crew = crate::exchange::Crew::new(fabric, &Cancel::new(), None);
        let write = || {
            let first = AtomicFile::create(path("first"))?;
            let first = if old.is_none() { first.only_new() } else { first };
            let second = AtomicFile::create(path("second"))?.only_new();
            let both = vec![
                NewLayout::write(first, &layout, old)?,
                NewLayout::write(second, &layout, None)?,
            ];
            std::fs::write(path("second"), "theirs").unwrap();
            spoil();
            let mut picture = AtomicFile::create(dir.join("picture"))?;
            picture.write_all(b"new")?;
            let mut outputs = Outputs::default();
            outputs.keep(picture);
            Ok((both, outputs))
        };
        let mut removed = false;
        let e = naming::name(&crew, Vec::new(), write, || removed = true).unwrap_err();
        (e, removed)
    };
    std::thread::scope(|scope| {
        let ranks = Local::group(3).into_iter().map(|f| scope.spawn(|| (work(&f), f)));
        let ranks: Vec<_> = ranks.collect();
        let all: Vec<_> = ranks.into_iter().map(|t| t.join().unwrap()).collect();
        all.into_iter().map(|(done, _)| done).collect()
    })
}

#[test]
fn a_layout_that_cannot_be_taken_back_keeps_its_parts() {
    let there = |dir: &Path| std::fs::read(dir.join("first.stead-layout.toml")).ok();
    for old in [None, Some(&b"what was there"[..]), Some(b"\xff is no text")] {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("picture"), "old").unwrap();
        if let Some(old) = old {
            std::fs::write(dir.path().join("first.stead-layout.toml"), old).unwrap();
        }
        for (e, removed) in named_in_vain(dir.path(), old, || ()) {
            assert!(removed && e.to_string().contains("second.stead-layout.toml"), "{e}");
        }
        assert_eq!(there(dir.path()).as_deref(), old);
        // Nor is what has nothing to do with the layouts replaced.
        assert_eq!(std::fs::read(dir.path().join("picture")).unwrap(), b"old");
        // And what was in the way of the second.
        let left = 2 + usize::from(old.is_some());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), left);
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("first.stead-layout.toml"), "what was there").unwrap();
    let lost = || {
        for entry in std::fs::read_dir(dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let hidden = path.extension().is_some_and(|e| e == "tmp");
            if hidden && std::fs::read(&path).unwrap() == b"what was there" {
                std::fs::remove_file(path).unwrap();
            }
        }
    };
    for (e, removed) in named_in_vain(dir.path(), Some(b"what was there"), lost) {
        assert!(!removed && e.to_string().contains("second.stead-layout.toml"), "{e}");
        assert!(e.hint().is_some_and(|h| h.contains("could not be taken back")), "{:?}", e.hint());
    }
    assert!(
        there(dir.path())
            .is_some_and(|text| Layout::parse(std::str::from_utf8(&text).unwrap()).is_ok())
    );
}

#[test]
fn an_error_of_another_rank_says_nothing_of_the_layout() {
    for named in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("l.stead-layout.toml");
        let layout = Layout::even("l", 0, 1, vec![Part::new("a", "/p")]).unwrap();
        let work = |fabric: &dyn Fabric| {
            let crew = crate::exchange::Crew::new(fabric, &Cancel::new(), None);
            if crew.rank() == 1 {
                // Its own parts have their names; then it cannot make sense of what it hears.
                crew.settle(Ok(vec![])).unwrap();
                crew.settle(Err(Error::format("malformed"))).unwrap_err();
                return false;
            }
            let write = || {
                let file = AtomicFile::create(&path)?.only_new();
                let new = NewLayout::write(file, &layout, None)?;
                if !named {
                    std::fs::write(&path, "theirs").unwrap();
                }
                Ok((vec![new], Outputs::default()))
            };
            let mut removed = false;
            naming::name(&crew, Vec::new(), write, || removed = true).unwrap_err();
            removed
        };
        let removed: Vec<bool> = std::thread::scope(|scope| {
            let ranks = Local::group(3).into_iter().map(|f| scope.spawn(|| (work(&f), f)));
            let ranks: Vec<_> = ranks.collect();
            let all: Vec<_> = ranks.into_iter().map(|t| t.join().unwrap()).collect();
            all.into_iter().map(|(removed, _)| removed).collect()
        });
        // Rank 0 alone knows, and only what it has not named goes.
        assert_eq!(removed, [!named, false, false]);
        assert_eq!(std::fs::read(&path).unwrap() == layout.to_string().as_bytes(), named);
    }
}

/// An output of three ranks, of which rank 1 has no data.
fn scatter() -> super::Scatter {
    let part = |node: &str| Some(Part::new(node, format!("/disk/{node}")));
    super::Scatter {
        path: "o".into(),
        layout: "o.stead-layout.toml".into(),
        name: "o".into(),
        parts: vec![part("a"), None, part("c")],
        first: 0,
        mine: None,
        old: None,
        whole: None,
    }
}

#[test]
fn pieces_that_make_no_sense_are_errors() {
    let none = (0, vec![]);
    let told = |a: &super::Pieces, b: &super::Pieces, c: &super::Pieces| {
        scatter().layout(&[a, b, c]).map(|(layout, ranks)| {
            let stripes = (0..layout.stripes()).map(|i| layout.stripe(i));
            (stripes.map(|s| s.end - s.start).collect::<Vec<_>>(), ranks)
        })
    };
    // In the order of their numbers, neighbours of one part as one; the header comes first.
    let (a, c) = ((3, vec![(0, 5), (20, 1)]), (0, vec![(10, 7), (15, 2)]));
    assert_eq!(told(&a, &none, &c).unwrap(), (vec![8, 9, 1], vec![0, 2]));
    assert_eq!(told(&none, &none, &c).unwrap(), (vec![9], vec![2]));
    assert_eq!(told(&none, &none, &none).unwrap().1, [0]);
    let wrong = |e: Result<_>| {
        let e: Error = e.map(drop::<(Vec<u64>, Vec<usize>)>).unwrap_err();
        assert!(matches!(e.kind(), Kind::Format | Kind::Limit), "{e}");
    };
    // A number twice, on two ranks and on one; pieces of a rank that has no part; more bytes than there can be.
    wrong(told(&a, &none, &(0, vec![(20, 1)])));
    wrong(told(&none, &none, &(0, vec![(20, 1), (20, 1)])));
    wrong(told(&none, &(0, vec![(7, 1)]), &none));
    wrong(told(&a, &none, &(0, vec![(1, u64::MAX)])));
    wrong(told(&(u64::MAX, vec![(1, u64::MAX)]), &none, &(0, vec![(0, u64::MAX)])));
}
