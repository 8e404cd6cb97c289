//! Sessions over real files and over sources with faults: the same bytes, or one clear error.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use proptest::prelude::*;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use stead_core::Kind;
use stead_read::{File, Options, Read, open, open_source};
use stead_store::faulty::{Faults, FaultySource};
use stead_store::{Engine, FileSource, IoOptions, MemorySource, Source};

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0]).collect()
}

fn temporary(data: &[u8]) -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, data).unwrap();
    (dir, path)
}

fn small(block: usize, memory: u64) -> Options {
    Options { block: Some(block), memory, readers: Some(2), ..Options::default() }
}

fn pread(options: Options) -> Options {
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    Options { io, ..options }
}

/// Every way to hold blocks: mapped, in memory, direct where the file system has it.
fn ways(path: &std::path::Path, options: Options) -> Vec<File> {
    let direct = IoOptions { direct: true, ..IoOptions::default() };
    [options.clone(), pread(options.clone()), Options { io: direct, ..options }]
        .iter()
        .filter_map(|o| open(path, o).ok())
        .collect()
}

#[test]
fn tasks_get_their_bytes_in_any_order() {
    let data = bytes(1_000_003);
    let (_dir, path) = temporary(&data);
    for file in ways(&path, small(8192, 65_536)) {
        for tasks in [1usize, 2, 7, 64, 5000] {
            let session = file.session(..).unwrap();
            let share = data.len().div_ceil(tasks);
            let mut order: Vec<usize> = (0..tasks).collect();
            order.sort_by_key(|i| (*i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            std::thread::scope(|s| {
                for part in order.chunks(tasks.div_ceil(4)) {
                    let (session, data) = (&session, &data);
                    s.spawn(move || {
                        for task in part {
                            let from = (task * share).min(data.len());
                            let to = (from + share).min(data.len());
                            let view = session.read(from as u64, to - from).wait().unwrap();
                            assert!(view[..] == data[from..to], "{tasks} {task}");
                            let own =
                                session.read_into(from as u64, vec![0; to - from]).wait().unwrap();
                            assert!(own == data[from..to], "{tasks} {task}");
                        }
                    });
                }
            });
            session.close().unwrap();
        }
    }
}

#[test]
fn bytes_are_read_once_however_many_ask() {
    let data = bytes(1 << 20);
    let source = Arc::new(FaultySource::new(
        Arc::new(MemorySource::new("m", data.clone())),
        Faults { slow: Some((100, Duration::from_millis(2))), ..Faults::default() },
    ));
    let file = open_source(source.clone(), &small(65_536, 4 << 20)).unwrap();
    let a = file.session(..).unwrap();
    let b = file.session(100_000..900_000).unwrap();
    std::thread::scope(|s| {
        for t in 0..8u64 {
            let (a, b, data) = (&a, &b, &data);
            s.spawn(move || {
                for i in 0..200 {
                    let at = (i * 4001 + t * 977) % 900_000;
                    let view = a.read(at, 5000).wait().unwrap();
                    assert!(view[..] == data[at as usize..at as usize + 5000]);
                    let at = 100_000 + (i * 3001 + t * 877) % 700_000;
                    let view = b.read(at, 5000).wait().unwrap();
                    assert!(view[..] == data[at as usize..at as usize + 5000]);
                }
                let end = a.read(900_000, data.len() - 900_000).wait().unwrap();
                assert!(end[..] == data[900_000..]);
            });
        }
    });
    assert_eq!(source.reads(), 16);
}

#[test]
fn a_file_larger_than_the_memory_slides_by() {
    let data = bytes(3_000_000);
    let (_dir, path) = temporary(&data);
    for file in ways(&path, small(4096, 16_384)) {
        let session = file.session(..).unwrap();
        for (i, part) in data.chunks(1000).enumerate() {
            assert!(session.read(i as u64 * 1000, part.len()).wait().unwrap()[..] == *part);
        }
        // More than all of it at once.
        assert!(session.read(5, data.len() - 5).wait().unwrap()[..] == data[5..]);
        let all = session.read_into(0, vec![0; data.len()]).wait().unwrap();
        assert!(all == data);
    }
}

#[test]
fn views_that_are_held_make_others_wait_and_not_for_ever() {
    let data = bytes(100_000);
    let (_dir, path) = temporary(&data);
    let file = open(&path, &pread(small(4096, 16_384))).unwrap();
    let session = file.session(..).unwrap();
    let held: Vec<_> = (0..4).map(|i| session.read(i * 4096, 10).wait().unwrap()).collect();
    let late = session.within(Duration::from_millis(100)).read(50_000, 10);
    let e = late.wait().unwrap_err();
    assert_eq!(e.kind(), Kind::Timeout, "{e}");
    assert!(e.hint().unwrap().contains("views hold all"), "{e} {:?}", e.hint());
    let waiting = session.read(50_000, 10);
    assert!(!waiting.is_ready());
    drop(held);
    assert_eq!(waiting.wait().unwrap()[..], data[50_000..50_010]);
}

/// A device that gives nothing before it lets go.
#[derive(Debug, Default)]
struct Stuck {
    let_go: (Mutex<bool>, Condvar),
    reads: AtomicUsize,
}

impl Source for Stuck {
    fn path(&self) -> &Path {
        Path::new("stuck")
    }

    fn len(&self) -> u64 {
        100_000
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> stead_core::Result<()> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        let guard = self.let_go.0.lock().unwrap();
        drop(self.let_go.1.wait_while(guard, |let_go| !*let_go).unwrap());
        buf.fill(7);
        Ok(())
    }
}

impl Stuck {
    fn let_go(&self) {
        *self.let_go.0.lock().unwrap() = true;
        self.let_go.1.notify_all();
    }
}

#[test]
fn a_read_can_be_cancelled_and_have_a_deadline() {
    let source = Arc::new(Stuck::default());
    let options =
        Options { ahead: false, depth: Some(1), readers: Some(1), ..small(4096, 1 << 20) };
    let file = open_source(source.clone(), &options).unwrap();
    let session = file.session(..).unwrap();
    let first = session.read(0, 10);
    let others = (1..24).filter(|block| *block != 50_000 / 4096);
    let dropped: Vec<_> = others.map(|block| session.read(block * 4096, 10)).collect();
    let late = session.within(Duration::from_millis(50)).read(50_000, 10);
    dropped.into_iter().for_each(Read::cancel);
    let e = late.wait().unwrap_err();
    assert_eq!((e.kind(), e.place().offset), (Kind::Timeout, Some(50_000)));
    source.let_go();
    assert_eq!(first.wait().unwrap().len(), 10);
    drop((session, file));
    std::thread::sleep(Duration::from_millis(50));
    // What nobody waited for any more was not read: only some of it is where this thread was away before, as others read then beside one
    // that the device keeps.
    assert!(source.reads.load(Ordering::SeqCst) < 12);
}

#[test]
fn requests_of_any_kind_have_a_deadline_of_their_own() {
    let source = Arc::new(Stuck::default());
    let options = Options { ahead: false, ..small(4096, 1 << 20) };
    let file = open_source(source.clone(), &options).unwrap();
    let session = file.session(..).unwrap();
    let soon = session.within(Duration::from_millis(30));
    let many = soon.read_many(&[(50_000, 10), (60_000, 10)]);
    let (view, into) = (soon.read(50_000, 20_000), soon.read_into(50_000, vec![0; 10]));
    let (pieces, of_the_session) =
        (soon.read_strided(50_000, 10, 5000, 3), session.read_into(50_000, vec![0; 10]));
    let refused = soon.read_strided(0, 10, 5, 2).wait().unwrap_err();
    assert_eq!(refused.kind(), Kind::Usage);
    let others =
        [view.wait().map(drop), into.wait().map(drop), pieces.wait().map(drop)].into_iter();
    let all = others.chain(many.into_iter().map(|r| r.wait().map(drop)));
    let kinds: Vec<_> = all.map(|answer| answer.err().map(|e| e.kind())).collect();
    assert_eq!(kinds, [Some(Kind::Timeout); 5]);
    source.let_go();
    assert_eq!(of_the_session.wait().unwrap(), [7; 10]);
}

#[test]
fn only_who_asked_for_bad_bytes_gets_an_error() {
    let data = bytes(100_000);
    let faults = Faults { bad_byte: Some(70_000), ..Faults::default() };
    let source =
        Arc::new(FaultySource::new(Arc::new(MemorySource::new("m", data.clone())), faults));
    let file = open_source(source, &small(65_536, 1 << 20)).unwrap();
    let session = file.session(..).unwrap();
    let e = session.read(69_990, 20).wait().unwrap_err();
    assert_eq!((e.kind(), e.place().offset), (Kind::Io, Some(70_000)), "{e}");
    assert!(session.read(65_000, 5000).wait().unwrap()[..] == data[65_000..70_000]);
    assert!(session.read_into(70_001, vec![0; 29_999]).wait().unwrap() == data[70_001..]);
    assert_eq!(session.read_into(0, vec![0; 100_000]).wait().unwrap_err().kind(), Kind::Io);
}

#[test]
fn a_file_that_shrinks_is_an_error_of_those_who_ask_beyond() {
    let data = bytes(1_000_000);
    for way in 0..3 {
        let (_dir, path) = temporary(&data);
        let Some(file) = ways(&path, small(65_536, 1 << 20)).into_iter().nth(way) else { continue };
        let session = file.session(..).unwrap();
        let view = session.read(0, 1000).wait().unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(300_000).unwrap();
        let mut failed = 0;
        for at in (0..1_000_000u64).step_by(50_000) {
            match session.read_into(at, vec![0; 50_000]).wait() {
                Ok(got) => assert!(got == data[at as usize..][..50_000], "{way} {at}"),
                Err(e) => {
                    assert_eq!(e.kind(), Kind::Changed, "{way} {at} {e}");
                    failed += 1;
                }
            }
        }
        assert!(failed > 0 || way > 0, "{way}");
        assert!(view[..] == data[..1000]);
        assert_eq!(session.close().unwrap_err().kind(), Kind::Changed);
    }
}

#[test]
fn bad_requests_are_refused() {
    let (dir, path) = temporary(&bytes(1000));
    let file = open(&path, &Options::default()).unwrap();
    assert_eq!(file.session(0..1001).err().unwrap().kind(), Kind::Usage);
    #[allow(clippy::reversed_empty_ranges)]
    let backwards = 10..5;
    let e = file.session(backwards).err().unwrap();
    assert!(e.kind() == Kind::Usage && e.message().contains("ends before it begins"), "{e}");
    let session = file.session(100..200).unwrap();
    for (offset, len) in [(99, 1), (100, 101), (200, 1), (u64::MAX, 1), (150, usize::MAX)] {
        let e = session.read(offset, len).wait().unwrap_err();
        assert_eq!(e.kind(), Kind::Usage, "{e}");
        assert_eq!(e.place().path.as_deref(), Some(&*path));
        assert!(e.hint().is_some_and(|hint| hint.contains("those of the file")), "{e}");
    }
    assert!(session.read(200, 0).wait().unwrap().is_empty());
    assert_eq!(session.read_strided(100, 10, 5, 3).wait().unwrap_err().kind(), Kind::Usage);
    assert_eq!(
        session.read_strided(100, 10, usize::MAX, 3).wait().unwrap_err().kind(),
        Kind::Usage
    );
    assert_eq!(open(dir.path(), &Options::default()).err().unwrap().kind(), Kind::Usage);
    let missing = dir.path().join("no");
    assert_eq!(open(&missing, &Options::default()).err().unwrap().kind(), Kind::NotFound);
    assert!(!missing.exists());
    // An empty file and an empty session.
    let (_dir, path) = temporary(b"");
    let file = open(&path, &Options::default()).unwrap();
    let session = file.session(..).unwrap();
    assert!(file.is_empty() && session.read(0, 0).wait().unwrap().is_empty());
    assert_eq!(session.read(0, 1).wait().unwrap_err().kind(), Kind::Usage);
}

#[test]
fn answers_come_by_function_and_by_future() {
    let data = bytes(200_000);
    let source = Arc::new(FaultySource::new(
        Arc::new(MemorySource::new("m", data.clone())),
        Faults { slow: Some((50, Duration::from_millis(1))), ..Faults::default() },
    ));
    let file = open_source(source, &small(4096, 1 << 20)).unwrap();
    let session = file.session(..).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    for at in (0..200_000u64).step_by(1000) {
        let send = send.clone();
        session.read(at, 1000).then(move |view| send.send((at as usize, view.unwrap())).unwrap());
    }
    drop(send);
    let mut count = 0;
    for (at, view) in receive {
        assert!(view[..] == data[at..at + 1000]);
        count += 1;
    }
    assert_eq!(count, 200);

    struct Unpark(std::thread::Thread, AtomicUsize);
    impl std::task::Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.1.fetch_add(1, Ordering::SeqCst);
            self.0.unpark();
        }
    }
    let file = open_source(
        Arc::new(FaultySource::new(
            Arc::new(MemorySource::new("m", data.clone())),
            Faults { slow: Some((100, Duration::from_millis(5))), ..Faults::default() },
        )),
        &small(4096, 1 << 20),
    )
    .unwrap();
    let session = file.session(..).unwrap();
    let mut read = std::pin::pin!(session.read(190_000, 5000));
    let woken = Arc::new(Unpark(std::thread::current(), AtomicUsize::new(0)));
    let waker = std::task::Waker::from(woken.clone());
    let mut cx = std::task::Context::from_waker(&waker);
    // Who was away for as long as that takes does not have to wait.
    let mut waited = false;
    let view = loop {
        match read.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(view) => break view.unwrap(),
            std::task::Poll::Pending => waited = true,
        }
        std::thread::park();
    };
    assert!(view[..] == data[190_000..195_000]);
    assert_eq!(woken.1.load(Ordering::SeqCst), usize::from(waited));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_requests_any_blocks(
        len in 0..200_000usize,
        block in 1..40_000usize,
        memory in 8192..300_000u64,
        ahead in any::<bool>(),
        seed in any::<u64>(),
        asks in prop::collection::vec((any::<u32>(), any::<u32>(), 1..5usize, 0..3usize), 1..40),
    ) {
        let data = bytes(len);
        let inner = Arc::new(MemorySource::new("m", data.clone()));
        let faults = Faults { seed, short_percent: 30, slow: Some((10, Duration::from_micros(200))), ..Faults::default() };
        let source: Arc<dyn Source> = Arc::new(FaultySource::new(inner, faults));
        let options = Options { ahead, readers: Some(3), ..small(block, memory) };
        let file = open_source(source, &options).unwrap();
        let session = file.session(..).unwrap();
        let mut views = Vec::new();
        for (a, b, count, way) in asks {
            let from = a as usize % (len + 1);
            let n = b as usize % (len - from + 1);
            match way {
                0 => views.push((from, n, session.read(from as u64, n))),
                1 => {
                    let got = session.read_into(from as u64, vec![0; n]).wait().unwrap();
                    prop_assert!(got == data[from..from + n]);
                }
                _ => {
                    let stride = n / count;
                    let piece = stride / 2;
                    let got = session.read_strided(from as u64, piece, stride, count).wait().unwrap();
                    let due: Vec<u8> = (0..count)
                        .flat_map(|i| data[from + i * stride..][..piece].to_vec())
                        .collect();
                    prop_assert!(got == due);
                }
            }
        }
        for (from, n, read) in views {
            prop_assert!(read.wait().unwrap()[..] == data[from..from + n]);
        }
        session.close().unwrap();
    }
}

#[test]
fn the_source_may_be_a_file() {
    let data = bytes(300_000);
    let (_dir, path) = temporary(&data);
    let file =
        open_source(Arc::new(FileSource::open(&path).unwrap()), &Options::default()).unwrap();
    let session = file.session(1000..).unwrap();
    assert_eq!(session.range(), 1000..300_000);
    assert!(
        session.explain().iter().any(|(name, text)| *name == "readers" && text.starts_with("1: "))
    );
    assert!(session.read(1000, 299_000).wait().unwrap()[..] == data[1000..]);
}

#[test]
fn one_piece_has_no_distance() {
    let data = bytes(100_000);
    let (_dir, path) = temporary(&data);
    for file in ways(&path, small(4096, 1 << 20)) {
        let session = file.session(..).unwrap();
        for stride in [0, 1, 5000] {
            let got = session.read_strided(1000, 50_000, stride, 1).wait().unwrap();
            assert!(got == data[1000..51_000], "stride {stride}");
        }
    }
}

#[test]
fn a_trial_takes_no_more_threads_than_it_has_tasks() {
    use stead_read::trial::{Trial, try_out};
    let (_dir, path) = temporary(&bytes(100_000));
    let file = open(&path, &Options::default()).unwrap();
    let trial = Trial { tasks: 3, threads: usize::MAX, ..Trial::default() };
    assert_eq!(try_out(&file, 0..100_000, &trial, &|_| {}).unwrap().bytes, 100_000);
}
