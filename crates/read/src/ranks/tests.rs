use super::*;
use crate::{File, Options};
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_fabric::testing::{Between, Meddle};
use stead_fabric::{Fabric, Local};
use stead_store::{Engine, FileSource, IoOptions, Source};

const SOON: Duration = Duration::from_secs(60);

pub(super) fn contents(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// A file of so many bytes, in a folder that lives as long.
pub(super) fn file(len: usize) -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let bytes = contents(len);
    std::fs::write(&path, &bytes).unwrap();
    (dir, path, bytes)
}

/// Runs one function for each rank, which is on the node that `nodes` says, and returns what they return.
pub(super) fn on_ranks<T: Send>(
    nodes: &[usize],
    rank: impl Fn(Arc<dyn Fabric>) -> T + Sync,
) -> Vec<T> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = Local::over_nodes(nodes, SOON)
            .into_iter()
            .map(|fabric| {
                let rank = &rank;
                scope.spawn(move || rank(Arc::new(fabric)))
            })
            .collect();
        threads.into_iter().map(|t| t.join().expect("a rank failed")).collect()
    })
}

pub(super) fn small(engine: Engine) -> Options {
    Options {
        block: Some(4096),
        memory: 1 << 20,
        deadline: SOON,
        io: IoOptions { engine, ..IoOptions::default() },
        ..Options::default()
    }
}

fn read(file: &File, offset: u64, len: usize) -> Result<Vec<u8>> {
    let session = file.session(..)?;
    session.read(offset, len).wait().map(|view| view.to_vec())
}

/// Opens a file on all ranks, of which only some have it.
fn open_where(
    has: bool,
    fabric: Arc<dyn Fabric>,
    path: &std::path::Path,
    options: &Options,
) -> Result<File> {
    let source = match has {
        true => FileSource::open(path).map(|s| Arc::new(s) as Arc<dyn Source>),
        false => Err(Error::new(Kind::NotFound, "not here")),
    };
    open_source(fabric, path, source, options)
}

/// Waits until all ranks are there.
pub(super) fn meet(fabric: &dyn Fabric) {
    use stead_fabric::FabricExt;
    fabric.all_gather(1, vec![]).unwrap();
}

#[test]
fn every_rank_gets_what_lies_in_the_file() {
    let (_dir, path, bytes) = file(300_001);
    // With the page cache, and with blocks in memory.
    for engine in [Engine::Auto, Engine::Pread] {
        for nodes in [&[0][..], &[0, 0, 0], &[0, 1], &[0, 1, 2, 0, 1], &[0, 0, 0, 0, 0, 0, 1]] {
            on_ranks(nodes, |fabric| {
                let rank = fabric.rank();
                let file = open(fabric, &path, &small(engine)).unwrap();
                let session = file.session(..).unwrap();
                let mut reads = Vec::new();
                for i in 0..200u64 {
                    let offset = (i * 7919 + rank as u64 * 104_729) % 300_000;
                    let len = ((i * 31 % 9000) as usize).min(300_001 - offset as usize);
                    reads.push((offset as usize, len, session.read(offset, len)));
                }
                for (offset, len, read) in reads {
                    let view = read.wait().unwrap();
                    assert!(view[..] == bytes[offset..offset + len], "{offset} {len}");
                }
                let mut whole = vec![0; bytes.len()];
                whole = session.read_into(0, whole).wait().unwrap();
                assert!(whole == bytes);
                session.close().unwrap();
            });
        }
    }
}

#[test]
fn each_byte_is_read_once_whoever_asks() {
    let (_dir, path, bytes) = file(1 << 20);
    let options = Options { memory: 64 << 20, ..small(Engine::Pread) };
    let read: Vec<u64> = on_ranks(&[0, 0, 1, 1], |fabric| {
        let file = open(fabric.clone(), &path, &options).unwrap();
        let session = file.session(..).unwrap();
        for offset in (0..bytes.len()).step_by(10_000) {
            let len = 10_000.min(bytes.len() - offset);
            let view = session.read(offset as u64, len).wait().unwrap();
            assert!(view[..] == bytes[offset..offset + len]);
        }
        meet(&*fabric);
        file.counts().bytes
    });
    assert_eq!(read.iter().sum::<u64>(), 1 << 20);
    assert!(read.iter().all(|n| *n == 1 << 18), "{read:?}");
}

#[test]
fn a_rank_without_the_file_gets_its_bytes_from_others() {
    let (_dir, path, bytes) = file(100_000);
    on_ranks(&[0, 1, 2], |fabric| {
        let file = open_where(fabric.rank() == 1, fabric, &path, &small(Engine::Auto)).unwrap();
        assert_eq!(file.len(), 100_000);
        assert!(read(&file, 0, 100_000).unwrap() == bytes);
    });
}

#[test]
fn a_rank_without_the_file_reads_alone_what_a_session_covers() {
    let (_dir, path, bytes) = file(100_000);
    on_ranks(&[0, 1], |fabric| {
        let has = fabric.rank() == 1;
        let file = open_where(has, fabric.clone(), &path, &small(Engine::Auto)).unwrap();
        let session = file.session(..50_000).unwrap();
        let mut buffer = [0; 5000];
        file.read_alone(44_000, &mut buffer).unwrap();
        assert!(buffer[..] == bytes[44_000..49_000]);
        let beyond = file.read_alone(90_000, &mut buffer);
        assert_eq!(beyond.err().map(|e| e.kind()), (!has).then_some(Kind::Usage));
        drop(session);
        meet(&*fabric);
    });
}

#[test]
fn what_no_rank_can_open_is_an_error_on_all() {
    let kinds = on_ranks(&[0, 1, 1], |fabric| {
        let file = open(fabric, "/nowhere", &Options::default());
        file.err().map(|e| e.kind())
    });
    assert_eq!(kinds, [Some(Kind::NotFound); 3]);
}

#[test]
fn ranks_that_see_different_files_are_told() {
    // Folders of hosts of their own, each with a file of that name.
    let kinds = on_ranks(&[0, 1, 2], |fabric| {
        let (_dir, path, _) = file(if fabric.rank() == 2 { 999 } else { 1000 });
        let source = FileSource::open(&path).map(|s| Arc::new(s) as Arc<dyn Source>);
        open_source(fabric, "f", source, &Options::default()).err().map(|e| e.kind())
    });
    assert_eq!(kinds, [Some(Kind::Changed); 3]);
}

#[test]
fn ranks_that_begin_different_sessions_are_told_and_may_go_on() {
    let (_dir, path, bytes) = file(10_000);
    on_ranks(&[0, 1], |fabric| {
        let rank = fabric.rank() as u64;
        let file = open(fabric, &path, &small(Engine::Auto)).unwrap();
        let e = file.session(rank..).err().expect("ranges differ");
        assert_eq!(e.kind(), Kind::Usage);
        // One asks beyond the end; the other one hears of it.
        let e = file.session(..10_000 + rank).err().expect("ranges differ");
        assert_eq!(e.kind(), Kind::Usage);
        assert!(read(&file, 0, 10_000).unwrap() == bytes);
    });
}

#[test]
fn sessions_cover_what_earlier_ones_did_not() {
    let (_dir, path, bytes) = file(200_000);
    on_ranks(&[0, 1, 0], |fabric| {
        let file = open(fabric, &path, &small(Engine::Auto)).unwrap();
        for range in [5..6, 1000..90_000, 150_000..150_000, 3..150_001, 199_999..200_000] {
            let session = file.session(range.clone()).unwrap();
            let len = (range.end - range.start) as usize;
            let view = session.read(range.start, len).wait().unwrap();
            assert!(view[..] == bytes[range.start as usize..range.end as usize]);
            assert_eq!(session.read(range.start, len + 1).wait().unwrap_err().kind(), Kind::Usage);
        }
    });
}

#[test]
fn who_waits_for_a_rank_that_is_gone_gets_an_error() {
    let (_dir, path, _) = file(100_000);
    // Rank 1 alone has the file, and ends without closing anything, in the way of a process that is killed.
    on_ranks(&[0, 1], |fabric| {
        let dies = fabric.rank() == 1;
        let mortal = mortal(fabric);
        let file = open_where(dies, mortal.clone(), &path, &small(Engine::Auto)).unwrap();
        let session = file.session(..).unwrap();
        if dies {
            mortal.meddle.die();
            drop((session, file));
            // The fabric goes with the last of its threads.
        } else {
            let e = session.read(0, 100_000).wait().expect_err("the rank is gone");
            assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(1)), "{e}");
        }
    });
}

/// A fabric that may die: from then on nothing leaves it and nothing comes.
#[derive(Default)]
pub(super) struct Dead(AtomicBool);

pub(super) type Mortal = Between<Dead>;

impl Meddle for Dead {
    fn check(&self) -> Result<()> {
        if self.0.load(Ordering::SeqCst) { Err(Error::new(Kind::Peer, "dead")) } else { Ok(()) }
    }
}

pub(super) fn mortal(inner: Arc<dyn Fabric>) -> Arc<Mortal> {
    Arc::new(Between::new(inner, Dead::default()))
}

impl Dead {
    pub(super) fn die(&self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Bytes that cannot be read from `bad` on, and that come slowly before.
#[derive(Debug)]
struct Broken {
    bytes: Vec<u8>,
    bad: u64,
}

impl Source for Broken {
    fn path(&self) -> &std::path::Path {
        std::path::Path::new("broken")
    }
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let end = offset + buf.len() as u64;
        if end > self.bad {
            let cause = std::io::Error::from_raw_os_error(5);
            return Err(Error::io("read", "broken", cause).at_offset(self.bad.max(offset)));
        }
        buf.copy_from_slice(&self.bytes[offset as usize..end as usize]);
        Ok(())
    }
}

#[test]
fn errors_of_the_reader_come_to_who_asked_with_their_kind() {
    on_ranks(&[0, 1], |fabric| {
        let source = Arc::new(Broken { bytes: contents(100_000), bad: 90_000 });
        let file = open_source(fabric, "broken", Ok(source), &small(Engine::Auto)).unwrap();
        let session = file.session(..).unwrap();
        let view = session.read(49_000, 9000).wait().unwrap();
        assert!(view[..] == contents(100_000)[49_000..58_000]);
        assert_eq!(session.read(89_000, 2000).wait().unwrap_err().kind(), Kind::Io);
        let view = session.read(89_000, 1000).wait().unwrap();
        assert!(view[..] == contents(100_000)[89_000..90_000]);
    });
}

#[test]
fn threads_of_ranks_open_files_at_the_same_time() {
    let (_dir, one, a) = file(50_000);
    let (_dir2, two, _) = file(50_000);
    let b: Vec<u8> = a.iter().map(|x| !x).collect();
    std::fs::write(&two, &b).unwrap();
    // As ranks are free to do it in another order, which is an error on all, each does it until it works for both.
    let tried: Vec<[usize; 2]> = on_ranks(&[0, 1, 1, 0], |fabric| {
        let (fabric, both) = (&fabric, [(&one, &a), (&two, &b)]);
        std::thread::scope(|scope| {
            let threads = both.map(|(path, bytes)| {
                scope.spawn(move || {
                    let mut opened = 0;
                    for _ in 0..40 {
                        match open(fabric.clone(), path, &small(Engine::Auto)) {
                            Ok(file) => {
                                opened += 1;
                                assert!(read(&file, 0, 50_000).unwrap() == *bytes);
                            }
                            Err(e) => {
                                assert_eq!(e.kind(), Kind::Usage, "{e}");
                                assert!(e.message().starts_with("ranks open different"), "{e}");
                            }
                        }
                    }
                    opened
                })
            });
            threads.map(|t| t.join().unwrap())
        })
    });
    // What works on one rank works on all.
    assert!(tried.iter().all(|t| *t == tried[0]), "{tried:?}");
}

#[test]
fn ranks_that_open_different_files_are_told_and_may_go_on() {
    let (_dir, one, a) = file(50_000);
    let (_dir2, two, _) = file(50_000);
    on_ranks(&[0, 1, 1], |fabric| {
        let path = if fabric.rank() == 1 { &two } else { &one };
        let e = open(fabric.clone(), path, &small(Engine::Auto)).err().expect("they differ");
        assert_eq!(e.kind(), Kind::Usage);
        assert_eq!(e.place().rank, Some(usize::from(fabric.rank() != 1)));
        let file = open(fabric, &one, &small(Engine::Auto)).unwrap();
        assert!(read(&file, 0, 50_000).unwrap() == a);
    });
}

#[test]
fn what_no_rank_says_when_it_opens_a_file_is_refused() {
    use super::opening::{FILES, NAME, OPEN, TAGS};
    use stead_fabric::FabricExt;
    let (_dir, path, _) = file(50_000);
    let name = path.to_str().unwrap().as_bytes();
    let hello = |tag: u32, maps: u8, name_len: u64, rest: &[u8]| {
        let build = [&[NAME.len() as u8], NAME.as_bytes()].concat();
        [&build, &tag.to_le_bytes()[..], &[maps], &name_len.to_le_bytes(), name, rest].concat()
    };
    let (here, opened) = (name.len() as u64, [&[255][..], &50_000u64.to_le_bytes()].concat());
    let right = hello(FILES + TAGS, 0, here, &opened);
    let wrong = [
        hello(FILES - TAGS, 0, here, &opened),
        hello(FILES + 1, 0, here, &opened),
        hello(u32::MAX, 0, here, &opened),
        hello(FILES, 2, here, &opened),
        hello(FILES, 0, u64::MAX, &opened),
        hello(FILES, 0, here + 10, &opened),
        hello(FILES, 0, here, &opened[..8]),
        hello(FILES, 0, here, &[]),
        right[..NAME.len() + 12].to_vec(),
        vec![],
    ];
    // Another build of the same version, whatever it says then.
    let mut other = right.clone();
    other[NAME.len() - 2] ^= 1;
    let said = wrong.iter().map(|said| (said, Kind::Format)).chain([(&other, Kind::Usage)]);
    for (said, kind) in said {
        let kinds = on_ranks(&[0, 1], |fabric| match fabric.rank() {
            0 => fabric.all_gather(OPEN, said.clone()).err().map(|e| e.kind()),
            _ => open(fabric, &path, &small(Engine::Auto)).err().map(|e| e.kind()),
        });
        assert_eq!(kinds, [None, Some(kind)], "{said:?}");
    }
    // What a session needs does not come, of a rank that is gone then.
    let kinds = on_ranks(&[0, 1], |fabric| match fabric.rank() {
        0 => fabric.all_gather(OPEN, right.clone()).err().map(|e| e.kind()),
        _ => {
            let file = open(fabric, &path, &small(Engine::Auto)).unwrap();
            file.session(..).err().map(|e| e.kind())
        }
    });
    assert_eq!(kinds, [None, Some(Kind::Peer)]);
}

#[test]
fn what_one_rank_refuses_of_a_session_all_hear_of() {
    let (_dir, path, bytes) = file(10_000);
    on_ranks(&[0, 1, 0], |fabric| {
        let rank = fabric.rank();
        let file = open(fabric, &path, &small(Engine::Auto)).unwrap();
        if rank == 1 {
            let e = file.refuse_session(Error::usage("no place for it"));
            assert_eq!((e.kind(), e.message()), (Kind::Usage, "no place for it"));
        } else {
            assert_eq!(file.session(..).err().unwrap().kind(), Kind::Usage);
        }
        assert!(read(&file, 0, 10_000).unwrap() == bytes);
    });
    // Of one process alone there is nobody to tell.
    let file = crate::open(&path, &small(Engine::Auto)).unwrap();
    assert_eq!(file.refuse_session(Error::usage("no place")).message(), "no place");
}

#[test]
fn many_files_at_once_do_not_mix() {
    let (_dir, one, a) = file(50_000);
    let (_dir2, two, _) = file(50_000);
    let b: Vec<u8> = a.iter().map(|x| !x).collect();
    std::fs::write(&two, &b).unwrap();
    on_ranks(&[0, 1], |fabric| {
        for _ in 0..20 {
            let f = open(fabric.clone(), &one, &small(Engine::Auto)).unwrap();
            let g = open(fabric.clone(), &two, &small(Engine::Auto)).unwrap();
            assert!(read(&f, 0, 50_000).unwrap() == a && read(&g, 0, 50_000).unwrap() == b);
        }
    });
}

/// Many GiB that are nowhere, and how many bytes of them all ranks have read.
#[derive(Debug, Default)]
struct Endless(std::sync::atomic::AtomicU64);

const ENDLESS: u64 = 4 << 30;

fn endless(at: u64) -> u8 {
    (at ^ (at >> 12)) as u8
}

impl Source for Endless {
    fn path(&self) -> &std::path::Path {
        std::path::Path::new("endless")
    }
    fn len(&self) -> u64 {
        ENDLESS
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.fetch_add(buf.len() as u64, std::sync::atomic::Ordering::SeqCst);
        buf.iter_mut().zip(offset..).for_each(|(b, at)| *b = endless(at));
        Ok(())
    }
}

fn reads_right(session: &crate::Session, from: u64, len: usize) {
    let view = session.read(from, len).wait().unwrap();
    assert!(view.iter().zip(from..).all(|(b, at)| *b == endless(at)), "{len} at {from}");
}

fn told(session: &crate::Session, name: &str) -> String {
    session.plan().into_iter().find(|d| d.name == name).unwrap().value
}

/// What is chosen, as far as the user leaves it open.
fn open_choice() -> Options {
    // Whatever other tests have open beside.
    Options { memory: 4 << 30, deadline: SOON, ..Options::default() }
}

#[test]
fn readers_and_blocks_come_from_the_range() {
    const MIB: u64 = 1 << 20;
    for (range, readers, block) in [
        (0..0, "0", "64.0 KiB"),
        (5..1000, "1", "64.0 KiB"),
        (7 * MIB..8 * MIB, "2", "64.0 KiB"),
        (0..32 * MIB, "4", "512.0 KiB"),
        (1000..ENDLESS, "4", "2.0 MiB"),
    ] {
        let source = Arc::new(Endless::default());
        on_ranks(&[0, 0, 1, 1], |fabric| {
            // One rank has no file, and reads all the same.
            let source: Result<Arc<dyn Source>> = match fabric.rank() {
                3 => Err(Error::new(Kind::NotFound, "not here")),
                _ => Ok(source.clone()),
            };
            let ahead = range.end - range.start < 64 * MIB;
            let options = Options { ahead, ..open_choice() };
            let file = open_source(fabric.clone(), "endless", source, &options).unwrap();
            let session = file.session(range.clone()).unwrap();
            assert_eq!(told(&session, "block"), block, "{range:?}");
            let readers = if readers == "4" { "3" } else { readers };
            assert_eq!(told(&session, "ranks that read"), readers, "{range:?}");
            let len = (range.end - range.start).min(300_000) as usize;
            reads_right(&session, range.start, len);
            reads_right(&session, range.end - len as u64, len);
            meet(&*fabric);
        });
        if range.end - range.start <= MIB {
            let read = source.0.load(std::sync::atomic::Ordering::SeqCst);
            let most = (range.end - range.start) + 2 * 65_536;
            assert!(read <= most, "{range:?}: {read}");
        }
    }
}

#[test]
fn a_header_does_not_spoil_what_all_ranks_read_then() {
    for goes_on in [false, true] {
        let source = Arc::new(Endless::default());
        on_ranks(&[0, 0, 1], |fabric| {
            let options = Options { ahead: false, ..open_choice() };
            let file =
                open_source(fabric.clone(), "endless", Ok(source.clone()), &options).unwrap();
            let mut header = Some(file.session(..1000).unwrap());
            reads_right(header.as_ref().unwrap(), 3, 900);
            assert_eq!(told(header.as_ref().unwrap(), "ranks that read"), "1");
            // On one of the ranks it may go on: then it does for all.
            if !goes_on || fabric.rank() != 1 {
                header = None;
            }
            meet(&*fabric);
            let body = file.session(1000..).unwrap();
            assert_eq!(file.sets().len(), if goes_on { 2 } else { 1 });
            assert_eq!(told(&body, "ranks that read"), "3");
            assert_eq!(told(&body, "block"), "2.0 MiB");
            for part in 0..8 {
                reads_right(&body, 1000 + part * (ENDLESS / 8), 10_000);
            }
            if let Some(header) = &header {
                reads_right(header, 0, 1000);
            }
            drop(header);
            meet(&*fabric);
            // A part of what was read, and the header again, are read by what there is.
            let part = file.session(5 << 20..6 << 20).unwrap();
            assert_eq!((told(&part, "block"), file.sets().len()), ("2.0 MiB".to_owned(), 1));
            reads_right(&part, 5 << 20, 1 << 20);
            assert!(file.counts().requests >= 10, "{:?}", file.counts());
            meet(&*fabric);
        });
    }
}

#[test]
fn a_file_that_is_closed_without_a_session_leaves_nothing() {
    let (_dir, path, bytes) = file(10_000);
    for engine in [Engine::Auto, Engine::Pread] {
        on_ranks(&[0, 1, 1], |fabric| {
            let source = match fabric.rank() {
                1 => Err(Error::new(Kind::NotFound, "not here")),
                _ => stead_store::FileSource::open(&path).map(|s| Arc::new(s) as Arc<dyn Source>),
            };
            let file = open_source(fabric.clone(), &path, source, &small(engine)).unwrap();
            assert_eq!((file.len(), file.counts()), (10_000, crate::Counts::default()));
            let mut alone = [0; 100];
            let read = file.read_alone(50, &mut alone);
            match fabric.rank() {
                1 => assert_eq!(read.unwrap_err().kind(), Kind::Usage),
                _ => assert!(read.is_ok() && alone == bytes[50..150]),
            }
            // A session that fails to begin makes nothing.
            let e = file.session(5..10_001 + fabric.rank() as u64).err().unwrap();
            assert_eq!(e.kind(), Kind::Usage);
            assert!(file.sets().is_empty());
            drop(file);
            // Nobody else has it, so that no thread has.
            assert_eq!(Arc::strong_count(&fabric), 1);
        });
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Ranks on any nodes, any blocks, memory and engine, any requests from several threads: what lies in the file.
    #[test]
    fn any_ranks_and_any_requests(
        len in 1..200_000usize,
        nodes in prop::collection::vec(0..3usize, 1..6),
        block in 1..40usize,
        memory in 1..100u64,
        cached in any::<bool>(),
        missing in prop::option::of(0..6usize),
        requests in prop::collection::vec((any::<u32>(), 0..30_000usize), 1..40),
    ) {
        let (_dir, path, bytes) = file(len);
        let engine = if cached { Engine::Auto } else { Engine::Pread };
        let options =
            Options { block: Some(block * 1000), memory: memory << 13, ..small(engine) };
        let missing = missing.filter(|_| nodes.len() > 1);
        on_ranks(&nodes, |fabric| {
            let rank = fabric.rank();
            let file = open_where(missing != Some(rank), fabric, &path, &options).unwrap();
            let session = file.session(..).unwrap();
            std::thread::scope(|scope| {
                for thread in 0..3 {
                    let (session, bytes, requests) = (&session, &bytes, &requests);
                    scope.spawn(move || {
                        for (i, (offset, n)) in requests.iter().enumerate() {
                            if i % 3 != thread {
                                continue;
                            }
                            let offset = (*offset as usize + rank * 1000) % len;
                            let n = (*n).min(len - offset);
                            let view = session.read(offset as u64, n).wait().unwrap();
                            assert!(view[..] == bytes[offset..offset + n]);
                        }
                    });
                }
            });
        });
    }
}
