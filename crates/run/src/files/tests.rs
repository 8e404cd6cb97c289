//! Files over nodes that are folders of one host: each rank has its own.

use super::get::get_by;
use super::put::put_by;
use super::*;
use crate::pass::{Observer, Snapshot};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stead_core::layout::SUFFIX;
use stead_fabric::Local;
use stead_fabric::testing::{Between, Meddle};
use tempfile::TempDir;

/// A shared folder, and one for each node.
struct Lab {
    dir: TempDir,
    /// The node of each rank.
    ranks: Vec<usize>,
}

impl Lab {
    fn new(ranks: &[usize]) -> Lab {
        let dir = tempfile::tempdir().unwrap();
        for node in 0..5 {
            std::fs::create_dir(dir.path().join(format!("n{node}"))).unwrap();
        }
        std::fs::create_dir(dir.path().join("shared")).unwrap();
        Lab { dir, ranks: ranks.to_vec() }
    }

    fn shared(&self, name: &str) -> PathBuf {
        self.dir.path().join("shared").join(name)
    }

    fn file(&self, bytes: &[u8]) -> PathBuf {
        std::fs::write(self.shared("f"), bytes).unwrap();
        self.shared("f")
    }

    fn put(&self, over: &str) -> Put {
        Put { file: self.shared("f"), over: over.into(), threads: 2, ..Put::default() }
    }

    fn back(&self) -> Get {
        let (layout, output) = (self.layout(), Some(self.shared("back")));
        Get { layout, output, threads: 2, ..Get::default() }
    }

    fn layout(&self) -> PathBuf {
        self.shared(&format!("f{SUFFIX}"))
    }

    /// What each rank gets.
    fn each<T: Send>(&self, work: impl Fn(Crew<'_>, String) -> T + Sync) -> Vec<T> {
        let group = Local::over_nodes(&self.ranks, Duration::from_secs(60));
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            let ranks = group.into_iter().zip(&self.ranks).map(|(fabric, node)| {
                let (work, cancel) = (&work, &cancel);
                scope.spawn(move || {
                    let mut crew = Crew::new(&fabric, cancel, None);
                    crew.host = format!("n{node}.lab");
                    let folder = self.dir.path().join(format!("n{node}"));
                    let done = work(crew, format!("s={}", folder.display()));
                    (done, fabric)
                })
            });
            let ranks: Vec<_> = ranks.collect();
            let done: Vec<_> = ranks.into_iter().map(|t| t.join().unwrap()).collect();
            done.into_iter().map(|(done, _)| done).collect()
        })
    }

    fn puts(&self, put: &Put) -> Vec<Result<Copied>> {
        self.each(|crew, space| put_by(crew, &Put { dataspaces: vec![space], ..put.clone() }, None))
    }

    fn gets(&self, get: &Get) -> Vec<Result<Copied>> {
        self.each(|crew, space| get_by(crew, &Get { dataspaces: vec![space], ..get.clone() }, None))
    }

    /// All files but those of the test itself, with their bytes.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    walk(&path, found);
                } else {
                    found.push(path);
                }
            }
        }
        let mut found = Vec::new();
        walk(self.dir.path(), &mut found);
        let name = |p: &Path| p.strip_prefix(self.dir.path()).unwrap().display().to_string();
        let files = found.iter().map(|p| (name(p), std::fs::read(p).unwrap()));
        files.filter(|(name, _)| name != "shared/f").collect()
    }

    /// The folder of node 1 has a part; its path.
    fn part_of_node_1(&self) -> PathBuf {
        let parts: Vec<String> =
            self.files().into_keys().filter(|f| f.starts_with("n1/")).collect();
        self.dir.path().join(&parts[0])
    }
}

/// The one error of all ranks.
fn error(all: Vec<Result<Copied>>) -> Error {
    let errors: Vec<Error> = all.into_iter().map(Result::unwrap_err).collect();
    assert!(errors.iter().all(|e| e.to_string() == errors[0].to_string()), "{errors:?}");
    errors.into_iter().next().unwrap()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]
    #[test]
    fn what_comes_back_is_what_was_put(
        // A page of a host is 64 KiB.
        (length, stripe) in prop_oneof![
            (0usize..3000, 1u64..400),
            (0usize..700_000, 30_000u64..200_000),
            (0usize..700_000, prop_oneof![Just(65_536u64), Just(131_072), Just(4096)]),
        ],
        parts in 1usize..7,
        ranks in prop::collection::vec(0usize..3, 1..5),
        over in 0usize..3,
    ) {
        let lab = Lab::new(&ranks);
        let bytes = bytes(length);
        lab.file(&bytes);
        let mut nodes = ranks.clone();
        nodes.sort_unstable();
        nodes.dedup();
        let listed: Vec<String> = nodes.iter().map(|n| format!("n{n}")).collect();
        let over = ["s".to_owned(), format!("s@{}", listed.join(",")), format!("s@n{}", ranks[0])][over].clone();
        let put = Put { stripe, parts: Some(parts), ..lab.put(&over) };
        for copied in lab.puts(&put) {
            let copied = copied.unwrap();
            prop_assert_eq!((copied.bytes, copied.parts, copied.ranks), (length as u64, parts, ranks.len()));
        }
        let layout = space::read_layout(&lab.layout()).unwrap();
        let (files, held) = (lab.files(), layout.parts().iter().map(|p| p.length).sum::<u64>());
        prop_assert_eq!((files.len(), held), (parts + 1, length as u64));
        for copied in lab.gets(&lab.back()) {
            copied.unwrap();
        }
        prop_assert!(std::fs::read(lab.shared("back")).unwrap() == bytes);
        prop_assert_eq!(lab.files().len(), parts + 2);
    }
}

/// Where records begin, by reading from the beginning.
fn starts(bytes: &[u8], quotes: bool) -> Vec<u64> {
    let (mut starts, mut inside) = (vec![0], false);
    for (i, c) in bytes.iter().enumerate() {
        inside ^= quotes && *c == b'"';
        if *c == b'\n' && !inside {
            starts.push(i as u64 + 1);
        }
    }
    starts
}

#[test]
fn stripes_end_where_records_end() {
    let lab = Lab::new(&[0, 1]);
    let mut csv = String::from("x,note\n");
    for i in 0..4000 {
        csv += &format!("{i},\"{}\"\n", "a\nb,\"\"".repeat(i * 7 % 13));
    }
    let log: String = (0..3000).map(|i| format!("{}\n", "\"x".repeat(i * 5 % 40))).collect();
    let kind = |name: &str| name.parse().ok();
    let records = OpenOptions {
        format: kind("records"),
        record_length: Some(17),
        skip: Some(3),
        ..OpenOptions::default()
    };
    let lines = OpenOptions { format: kind("lines"), ..OpenOptions::default() };
    let rows: Vec<u64> = (0..1000).map(|i| 3 + 17 * i).collect();
    for (data, options, begins) in [
        (csv.clone().into_bytes(), OpenOptions::default(), starts(csv.as_bytes(), true)),
        (log.clone().into_bytes(), lines, starts(log.as_bytes(), false)),
        (bytes(3 + 17 * 1000), records, rows),
    ] {
        for stripe in [64, 1000, 4096, 30_000] {
            lab.file(&data);
            let put =
                Put { stripe, align: true, options: options.clone(), force: true, ..lab.put("s") };
            for copied in lab.puts(&put) {
                copied.unwrap();
            }
            let layout = space::read_layout(&lab.layout()).unwrap();
            let want = stead_core::layout::aligned(data.len() as u64, stripe, |at| {
                Ok(begins.iter().copied().find(|b| *b >= at).unwrap_or(data.len() as u64))
            });
            let cuts: Vec<u64> = (1..layout.stripes()).map(|i| layout.stripe(i).start).collect();
            assert_eq!(cuts, want.unwrap());
            lab.gets(&Get { force: true, ..lab.back() }).into_iter().for_each(|c| drop(c.unwrap()));
            assert!(std::fs::read(lab.shared("back")).unwrap() == data);
        }
    }
}

#[test]
fn what_has_no_records_in_one_piece_is_not_aligned() {
    let lab = Lab::new(&[0]);
    let gzip = [
        &[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3][..],
        &[75, 76, 74, 230, 2, 0][..],
        &[78, 129, 136, 71, 4, 0, 0, 0],
    ]
    .concat();
    lab.file(&gzip);
    let put = Put { stripe: 10, align: true, ..lab.put("s") };
    let e = error(lab.puts(&put));
    assert!(e.kind() == Kind::Usage && e.message().contains("compressed"), "{e}");
    lab.file(&bytes(8 * 60));
    let options = OpenOptions {
        format: "raw".parse().ok(),
        dtype: "f64".parse().ok(),
        shape: Some(vec![30, 2]),
        order: Some(stead_core::Order::Fortran),
        ..OpenOptions::default()
    };
    let e = error(lab.puts(&Put { options, ..put }));
    assert!(e.message().contains("several pieces"), "{e}");
    assert_eq!(lab.files(), BTreeMap::new());
}

#[test]
fn what_cannot_be_put_leaves_nothing() {
    let lab = Lab::new(&[0, 1, 1]);
    lab.file(&bytes(50_000));
    let small = |over: &str| Put { stripe: 1000, ..lab.put(over) };
    for (put, kind, says) in [
        (small("s@n[0-2]"), Kind::Usage, "node 'n2' has no rank: they run on n0.lab,n1.lab"),
        (small("t@n[0-1]"), Kind::Usage, "'t' is not configured"),
        (Put { stripe: 0, ..small("s") }, Kind::Usage, "stripe of 0 bytes"),
        (Put { parts: Some(0), ..small("s") }, Kind::Usage, "no parts"),
        (Put { name: Some("a/../b".into()), ..small("s") }, Kind::Usage, "'..'"),
        (
            Put { layout: Some(lab.shared("x.toml")), ..small("s") },
            Kind::Usage,
            "not the name of a layout",
        ),
        (
            Put { layout: Some(lab.shared("no/x.stead-layout.toml")), ..small("s") },
            Kind::NotFound,
            "cannot create",
        ),
        (Put { file: lab.shared("none"), ..small("s") }, Kind::NotFound, "cannot open"),
        (small("s@"), Kind::Usage, "node"),
    ] {
        let e = error(lab.puts(&put));
        assert!(e.kind() == kind && e.message().contains(says), "{put:?}: {e}");
        assert_eq!(lab.files(), BTreeMap::new(), "{e}");
    }
    // One rank alone.
    std::fs::remove_dir(lab.dir.path().join("n1")).unwrap();
    let e = error(lab.puts(&small("s")));
    let place = e.place();
    assert_eq!(
        (e.kind(), place.rank, place.host.as_deref()),
        (Kind::NotFound, Some(1), Some("n1.lab"))
    );
    assert!(
        e.to_string().contains("n1: rank 1 on n1.lab: the folder of dataspace 's' is not there"),
        "{e}"
    );
    assert_eq!(lab.files(), BTreeMap::new());
    // A file in place of the folder of its parts.
    std::fs::create_dir(lab.dir.path().join("n1")).unwrap();
    std::fs::write(lab.dir.path().join("n1/f.parts"), b"mine").unwrap();
    let e = error(lab.puts(&small("s")));
    assert!(e.place().rank == Some(1) && e.message().contains("'f.parts' is a file"), "{e}");
    assert_eq!(lab.files().into_keys().collect::<Vec<_>>(), ["n1/f.parts"]);
}

#[test]
fn a_dataspace_may_be_the_folder_where_the_file_lies() {
    let lab = Lab::new(&[0, 1]);
    lab.file(&bytes(5000));
    let here = |crew: &Crew<'_>| match crew.rank() {
        0 => lab.dir.path().join("shared"),
        _ => lab.dir.path().join("n1"),
    };
    let spaces = |crew: &Crew<'_>| vec![format!("s={}", here(crew).display())];
    done(lab.each(|crew, _| {
        let dataspaces = spaces(&crew);
        put_by(crew, &Put { stripe: 100, dataspaces, ..lab.put("s") }, None)
    }));
    // The file itself is not needed any more, and comes back to where it was.
    std::fs::remove_file(lab.shared("f")).unwrap();
    done(lab.each(|crew, _| {
        let dataspaces = spaces(&crew);
        get_by(crew, &Get { dataspaces, output: None, ..lab.back() }, None)
    }));
    assert!(std::fs::read(lab.shared("f")).unwrap() == bytes(5000));
}

#[test]
fn a_layout_is_replaced_with_force_alone() {
    let lab = Lab::new(&[0, 1]);
    lab.file(&bytes(9000));
    let put = Put { stripe: 100, ..lab.put("s") };
    lab.puts(&put).into_iter().for_each(|c| drop(c.unwrap()));
    let before = lab.files();
    assert_eq!(before.len(), 3);
    let e = error(lab.puts(&put));
    assert!(e.kind() == Kind::Usage && e.message().contains("there is a layout already"), "{e}");
    assert_eq!(lab.files(), before);
    lab.file(&bytes(777));
    let put = Put { force: true, parts: Some(3), ..put };
    lab.puts(&put).into_iter().for_each(|c| drop(c.unwrap()));
    let after = lab.files();
    assert_eq!(after.len(), 4);
    assert!(after.keys().filter(|k| !before.contains_key(*k)).count() == 3, "{:?}", after.keys());
    // Another name, and the same dataspaces.
    lab.puts(&Put { name: Some("g".into()), ..put }).into_iter().for_each(|c| drop(c.unwrap()));
    assert_eq!(lab.files().len(), 8);
    lab.gets(&lab.back()).into_iter().for_each(|c| drop(c.unwrap()));
    assert!(std::fs::read(lab.shared("back")).unwrap() == bytes(777));
    let e = error(lab.gets(&lab.back()));
    assert!(e.kind() == Kind::Usage && e.message().contains("a file of this name already"), "{e}");
    assert_eq!(lab.files().len(), 9);
}

#[test]
fn what_is_no_layout_is_replaced_only_as_it_was_found() {
    let lab = Lab::new(&[0, 1]);
    lab.file(&bytes(9000));
    let puts = |change: &(dyn Fn() + Sync)| {
        lab.each(|crew, space| {
            let put = Put { stripe: 100, force: true, dataspaces: vec![space], ..lab.put("s") };
            let once = (crew.rank() == 0).then_some(Once(change));
            put_by(crew, &put, once.as_ref().map(|once| once as &dyn Observer))
        })
    };
    for found in [&b"no layout"[..], b"\xff is no text"] {
        std::fs::write(lab.layout(), found).unwrap();
        let before = lab.files();
        let e = error(puts(&|| std::fs::write(lab.layout(), "theirs").unwrap()));
        assert_eq!(e.kind(), Kind::Changed, "{e}");
        assert_eq!(std::fs::read(lab.layout()).unwrap(), b"theirs");
        assert_eq!(lab.files().len(), before.len());
    }
    done(puts(&|| ()));
    done(lab.gets(&lab.back()));
    assert!(std::fs::read(lab.shared("back")).unwrap() == bytes(9000));
}

#[test]
fn parts_that_are_not_what_was_put_are_told_and_no_file_is_made() {
    let lab = Lab::new(&[0, 1, 2]);
    lab.file(&bytes(3_000_000));
    lab.puts(&Put { stripe: 70_001, ..lab.put("s") }).into_iter().for_each(|c| drop(c.unwrap()));
    let part = lab.part_of_node_1();
    let good = std::fs::read(&part).unwrap();
    let mut flipped = good.clone();
    flipped[700_000] ^= 4;
    type Spoil<'a> = &'a dyn Fn();
    let cases: [(Spoil<'_>, Kind, &str); 3] = [
        (
            &|| std::fs::write(&part, &flipped).unwrap(),
            Kind::Format,
            "on s@n1.lab, has the checksum crc32c:",
        ),
        (&|| std::fs::write(&part, &good[..9]).unwrap(), Kind::Format, "has 9 bytes in place of"),
        (&|| std::fs::remove_file(&part).unwrap(), Kind::NotFound, "on s@n1.lab: cannot open"),
    ];
    for (spoil, kind, says) in cases {
        spoil();
        let before = lab.files();
        let e = error(lab.gets(&lab.back()));
        assert!(e.kind() == kind && e.message().contains(says), "{e}");
        assert!(e.to_string().contains(&part.display().to_string()), "{e}");
        assert_eq!(lab.files(), before);
    }
    std::fs::write(&part, &good).unwrap();
    lab.gets(&lab.back()).into_iter().for_each(|c| drop(c.unwrap()));
    // Fewer ranks.
    let few = Lab { dir: lab.dir, ranks: vec![0, 2] };
    let e = error(few.gets(&Get { force: true, ..few.back() }));
    assert!(e.message().contains("node 'n1.lab' has no rank: they run on n0.lab,n2.lab"), "{e}");
    let alone = Lab { dir: few.dir, ranks: vec![0] };
    let e = error(alone.gets(&Get { force: true, ..alone.back() }));
    assert!(e.message().contains("node 'n1.lab' has no rank"), "{e}");
}

#[test]
fn one_process_has_all_parts_whatever_its_host_is_called_now() {
    let lab = Lab::new(&[3]);
    lab.file(&bytes(5000));
    lab.puts(&Put { stripe: 64, parts: Some(4), ..lab.put("s") })
        .into_iter()
        .for_each(|c| drop(c.unwrap()));
    std::fs::rename(lab.dir.path().join("n3"), lab.dir.path().join("n9")).unwrap();
    let lab = Lab { dir: lab.dir, ranks: vec![9] };
    lab.gets(&lab.back()).into_iter().for_each(|c| drop(c.unwrap()));
    assert!(std::fs::read(lab.shared("back")).unwrap() == bytes(5000));
}

/// Does something once, when a copy shows how far it is.
struct Once<F: Fn() + Sync>(F);

impl<F: Fn() + Sync> Observer for Once<F> {
    fn progress(&self, seen: &Snapshot) {
        assert!(seen.bytes <= seen.total_bytes);
        (self.0)();
    }
}

#[test]
fn a_file_that_changes_and_a_stop_end_it() {
    let lab = Lab::new(&[0, 1]);
    let path = lab.file(&bytes(100_000));
    let watched = |change: &(dyn Fn(&Cancel) + Sync)| {
        lab.each(|crew, space| {
            let put = Put { stripe: 1000, dataspaces: vec![space], ..lab.put("s") };
            let first = crew.rank() == 0;
            let once = Once(|| change(&put.cancel));
            put_by(crew, &put, first.then_some(&once as &dyn Observer))
        })
    };
    // The last look comes before the file is looked at again.
    let e = error(watched(&|_| std::fs::write(&path, bytes(100_001)).unwrap()));
    assert!(
        e.kind() == Kind::Changed && e.message().contains("changed while it was copied"),
        "{e}"
    );
    assert_eq!(lab.files(), BTreeMap::new());
    let e = error(watched(&|cancel| cancel.cancel()));
    assert_eq!(e.kind(), Kind::Cancelled);
    assert_eq!(lab.files(), BTreeMap::new());
}

#[test]
fn ranks_that_were_asked_for_different_things_are_told_so() {
    let lab = Lab::new(&[0, 1]);
    lab.file(&bytes(100));
    let e = error(lab.each(|crew, space| {
        let stripe = 10 + crew.rank() as u64;
        put_by(crew, &Put { stripe, dataspaces: vec![space], ..lab.put("s") }, None)
    }));
    assert!(e.kind() == Kind::Usage && e.message().contains("asked for something else"), "{e}");
    assert_eq!(lab.files(), BTreeMap::new());
}

/// All ranks have done it.
fn done(all: Vec<Result<Copied>>) {
    all.into_iter().for_each(|c| drop(c.unwrap()));
}

#[test]
fn what_is_put_or_brought_back_replaces_nothing_that_it_is_made_of() {
    let lab = Lab::new(&[0, 1]);
    lab.file(&bytes(5000));
    done(lab.puts(&Put { stripe: 100, ..lab.put("s") }));
    let (part, first) = (lab.part_of_node_1(), lab.files());
    // A file under the name of the layout that it is a part of: the other part goes, this one stays.
    let of_part = Put {
        file: part.clone(),
        layout: Some(lab.layout()),
        name: Some("f".into()),
        force: true,
        ..lab.put("s")
    };
    done(lab.puts(&Put { stripe: 70, ..of_part.clone() }));
    let was = &first[&part.strip_prefix(lab.dir.path()).unwrap().display().to_string()];
    assert!(std::fs::read(&part).unwrap() == *was);
    let (now, in_folder) = (lab.files(), |n: &str, of: &BTreeMap<String, Vec<u8>>| {
        of.keys().filter(|f| f.starts_with(n)).cloned().collect::<Vec<_>>()
    });
    assert_eq!((in_folder("n0/", &now).len(), in_folder("n1/", &now).len()), (1, 2));
    assert_ne!(in_folder("n0/", &now), in_folder("n0/", &first));
    done(lab.gets(&lab.back()));
    assert!(std::fs::read(lab.shared("back")).unwrap() == *was);
    // A layout in place of the file that it is of.
    let before = lab.files();
    let e = error(lab.puts(&Put { file: lab.layout(), ..of_part }));
    assert!(e.kind() == Kind::Usage && e.message().contains("would replace"), "{e}");
    // And what comes back, in place of what it comes from.
    let its = lab.dir.path().join(&in_folder("n0/", &before)[0]);
    for output in [its, lab.layout()] {
        let e = error(lab.gets(&Get { output: Some(output), force: true, ..lab.back() }));
        assert!(e.kind() == Kind::Usage && e.message().contains("would replace"), "{e}");
    }
    assert_eq!(lab.files(), before);
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
        // The last one does not go.
        match self.0.fetch_sub(1, Ordering::Relaxed) {
            1 => Vec::new(),
            _ => vec![bytes],
        }
    }
}

/// Puts a file while `dying` dies; true if it did not come to that.
fn puts_while_one_dies(lab: &Lab, dying: usize, sends: u64) -> (bool, Vec<Result<Copied>>) {
    let group = Local::over_nodes(&lab.ranks, Duration::from_secs(60));
    let put = Put { stripe: 100, parts: Some(4), ..lab.put("s") };
    std::thread::scope(|scope| {
        let ranks = group.into_iter().enumerate().map(|(rank, fabric)| {
            let put = &put;
            scope.spawn(move || {
                let left = AtomicU64::new(if rank == dying { sends } else { u64::MAX });
                let fabric = Between::new(Arc::new(fabric), Dies(left));
                let mut crew = Crew::new(&fabric, &put.cancel, None);
                crew.host = format!("n{}.lab", lab.ranks[rank]);
                let folder = lab.dir.path().join(format!("n{}", lab.ranks[rank]));
                let dataspaces = vec![format!("s={}", folder.display())];
                let done = put_by(crew, &Put { dataspaces, ..put.clone() }, None);
                // The dead are gone; who lives stays until all are done.
                let lives = fabric.meddle.check().is_ok();
                (done, lives.then_some(fabric))
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let done: Vec<_> = ranks.into_iter().map(|t| t.join().unwrap()).collect();
        let lived = done.iter().all(|(_, fabric)| fabric.is_some());
        (lived, done.into_iter().map(|(done, _)| done).collect())
    })
}

#[test]
fn whenever_a_rank_dies_there_is_no_layout_or_all_of_its_parts() {
    let data = bytes(5000);
    let (mut named, mut died) = (0, 0);
    for dying in 0..3 {
        for sends in 1.. {
            let lab = Lab::new(&[0, 1, 1]);
            lab.file(&data);
            let (lived, all) = puts_while_one_dies(&lab, dying, sends);
            for done in &all {
                assert!(done.as_ref().err().is_none_or(|e| e.kind() == Kind::Peer), "{done:?}");
            }
            let files = lab.files();
            let layout = files.keys().any(|f| f.starts_with("shared/"));
            let parts = files.keys().filter(|f| f.starts_with('n')).count();
            assert!(layout || all.iter().all(Result::is_err), "{dying} {sends}: {all:?}");
            assert!(!files.keys().any(|f| f.ends_with(".tmp")), "{files:?}");
            if layout {
                assert_eq!(parts, 4, "{dying} {sends}");
                done(lab.gets(&lab.back()));
                assert!(std::fs::read(lab.shared("back")).unwrap() == data);
            } else if parts > 0 {
                // It was when names were given.
                named += 1;
            }
            died += usize::from(!lived);
            if lived {
                assert!(layout && all.iter().all(Result::is_ok));
                break;
            }
        }
    }
    assert!(named > 0 && died > named, "{named} of {died}");
}
