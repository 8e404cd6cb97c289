//! Whatever goes wrong: a typed error or a right answer, and nothing hangs.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, clippy::panic)]

use std::future::Future;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;
use stead_core::{Kind, Result};
use stead_read::{Options, Read, Session, answers_here, open, open_source};
use stead_store::faulty::{Faults, FaultySource};
use stead_store::{Engine, IoOptions, MemorySource, Source};

fn bytes(n: usize) -> Vec<u8> {
    (0..n).map(|i| (i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()[0]).collect()
}

fn blocks(block: usize, memory: u64) -> Options {
    Options { block: Some(block), memory, readers: Some(2), ..Options::default() }
}

fn patience() -> Duration {
    Duration::from_secs(60)
}

#[test]
fn a_slice_may_be_longer_than_two_gib() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let len = (2u64 << 30) + 9000;
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(len).unwrap();
    file.write_all_at(b"beginning", 0).unwrap();
    file.write_all_at(b"end", len - 3).unwrap();
    let file = open(&path, &Options::default()).unwrap();
    let session = file.session(..).unwrap();
    let view = session.read(0, len as usize).wait().unwrap();
    assert_eq!((view.len() as u64, &view[..9]), (len, &b"beginning"[..]));
    assert_eq!(&view[view.len() - 3..], b"end");
    view.check().unwrap();
    let end = session.read_into(len - 6000, vec![1; 6000]).wait().unwrap();
    assert!(end[..5997].iter().all(|b| *b == 0) && &end[5997..] == b"end");
}

#[test]
fn there_may_be_more_tasks_than_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let data = bytes(1000);
    std::fs::write(&path, &data).unwrap();
    for engine in [Engine::Auto, Engine::Pread] {
        let io = IoOptions { engine, ..IoOptions::default() };
        let file = open(&path, &Options { io, ..Options::default() }).unwrap();
        let session = file.session(..).unwrap();
        let reads: Vec<_> = (0..65_536u64)
            .map(|i| (i.min(1000), usize::from(i < 1000)))
            .map(|(at, n)| (at as usize, n, session.read(at, n)))
            .collect();
        for (at, n, read) in reads {
            assert_eq!(read.wait().unwrap()[..], data[at..at + n]);
        }
    }
}

#[test]
fn very_many_requests_wait_are_answered_and_are_cancelled() {
    let data = bytes(1 << 20);
    let faults = Faults { slow: Some((100, Duration::from_millis(1))), ..Faults::default() };
    let source = FaultySource::new(Arc::new(MemorySource::new("m", data.clone())), faults);
    let options = Options { ahead: false, ..blocks(16_384, 65_536) };
    let file = open_source(Arc::new(source), &options).unwrap();
    let session = file.session(..).unwrap();
    // All at once, far more than there is room for; every third is not wanted after all.
    let reads: Vec<_> = (0..65_536usize).map(|i| session.read(i as u64 * 16, 16)).collect();
    let mut kept = Vec::new();
    for (i, read) in reads.into_iter().enumerate() {
        if i % 3 == 0 { read.cancel() } else { kept.push((i, read)) }
    }
    for (i, read) in kept.into_iter().rev() {
        assert_eq!(read.wait().unwrap()[..], data[i * 16..][..16]);
    }
}

#[test]
fn a_file_is_opened_for_reading_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, bytes(100_000)).unwrap();
    let mut permissions = std::fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&path, permissions).unwrap();
    let file = open(&path, &Options::default()).unwrap();
    let session = file.session(..).unwrap();
    assert_eq!(session.read(0, 100_000).wait().unwrap().len(), 100_000);
    let mut found = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap().flatten() {
        if std::fs::read_link(entry.path()).is_ok_and(|target| target == path) {
            let info = Path::new("/proc/self/fdinfo").join(entry.file_name());
            let info = std::fs::read_to_string(info).unwrap();
            let flags = info.lines().find_map(|l| l.strip_prefix("flags:")).unwrap().trim();
            assert_eq!(u32::from_str_radix(flags, 8).unwrap() & 3, 0, "{flags}");
            found += 1;
        }
    }
    assert!(found > 0);
}

#[test]
fn users_may_panic() {
    let source = Arc::new(Fragile::default());
    let options = Options { ahead: false, readers: Some(1), ..blocks(4096, 65_536) };
    let file = open_source(source.clone(), &options).unwrap();
    let session = file.session(..).unwrap();
    session.read(0, 10).then(|_| panic!("a function of a user"));
    struct Odd(Vec<u8>, u32);
    impl AsMut<[u8]> for Odd {
        fn as_mut(&mut self) -> &mut [u8] {
            self.1 += 1;
            assert!(self.1 < 2, "a buffer of a user");
            &mut self.0
        }
    }
    let odd = session.read_into(50_000, Odd(vec![0; 10], 0));
    // Before that nothing comes: the function is not called in this thread.
    source.all_is_asked();
    assert_eq!(odd.wait().err().unwrap().kind(), Kind::Usage);
    assert_eq!(session.read(90_000, 10).wait().unwrap()[..], [7; 10]);
}

/// A device whose driver is broken.
#[derive(Debug)]
struct Broken(AtomicU64);

impl Source for Broken {
    fn path(&self) -> &Path {
        Path::new("broken")
    }

    fn len(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, _offset: u64, buf: &mut [u8]) -> Result<()> {
        assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "the first read");
        buf.fill(7);
        Ok(())
    }
}

#[test]
fn a_source_that_panics_fails_those_who_wait_and_no_others() {
    let options = Options { ahead: false, readers: Some(1), ..blocks(4096, 65_536) };
    let file = open_source(Arc::new(Broken(AtomicU64::new(0))), &options).unwrap();
    let session = file.session(..).unwrap();
    let mut first = session.read(0, 10);
    let answer = first.wait_for(patience()).unwrap();
    assert_eq!(answer.err().unwrap().kind(), Kind::Internal);
    assert!(session.read(5000, 10).wait().unwrap().iter().all(|b| *b == 7));
}

#[test]
fn consumers_may_vanish() {
    let data = bytes(200_000);
    let faults = Faults { slow: Some((100, Duration::from_millis(2))), ..Faults::default() };
    let source = FaultySource::new(Arc::new(MemorySource::new("m", data.clone())), faults);
    let file = open_source(Arc::new(source), &blocks(4096, 16_384)).unwrap();
    let session = file.session(..).unwrap();
    let (send, receive) = mpsc::channel();
    for at in (0..200_000).step_by(5000) {
        let send = send.clone();
        drop(session.read(at, 5000));
        session.read(at, 5000).then(move |answer| drop(send.send(answer.map(|v| v.to_vec()))));
    }
    drop(receive);
    let patient = session.read(150_000, 100);
    drop((session, file));
    assert_eq!(patient.wait().unwrap()[..], data[150_000..150_100]);
}

#[test]
fn bad_sectors_are_found_in_every_way_of_asking() {
    let data = bytes(100_000);
    let faults = Faults { bad_byte: Some(40_000), short_percent: 50, ..Faults::default() };
    let source = FaultySource::new(Arc::new(MemorySource::new("m", data.clone())), faults);
    let file = open_source(Arc::new(source), &blocks(16_384, 1 << 20)).unwrap();
    let session = file.session(..).unwrap();
    let bad = |e: stead_core::Error| {
        assert_eq!((e.kind(), e.place().offset), (Kind::Io, Some(40_000)), "{e}")
    };
    bad(session.read(30_000, 20_000).wait().unwrap_err());
    bad(session.read_into(0, vec![0; 100_000]).wait().err().unwrap());
    bad(session.read_strided(39_000, 100, 500, 4).wait().err().unwrap());
    let (send, receive) = mpsc::channel();
    session.read(39_999, 2).then(move |answer| send.send(answer.unwrap_err()).unwrap());
    bad(receive.recv_timeout(patience()).unwrap());
    let many = session.read_many(&[(0, 100), (39_990, 100), (50_000, 100)]);
    let answers: Vec<bool> = many.into_iter().map(|r| r.wait().is_ok()).collect();
    assert_eq!(answers, [true, false, true]);
}

#[test]
fn waiting_where_answers_are_given_is_an_error() {
    let source = Arc::new(Fragile::default());
    let options = Options { ahead: false, readers: Some(1), ..blocks(4096, 65_536) };
    let file = open_source(source.clone(), &options).unwrap();
    let session = Arc::new(file.session(..).unwrap());
    let (send, receive) = mpsc::channel();
    let again = session.clone();
    session.read(0, 10).then(move |_| send.send(again.read(50_000, 10).wait()).unwrap());
    source.all_is_asked();
    let answer = receive.recv_timeout(patience()).unwrap();
    assert_eq!(answer.unwrap_err().kind(), Kind::Usage);
}

/// A file that is read through a session over another one.
struct Through(Mutex<Session>);

impl std::fmt::Debug for Through {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Through")
    }
}

impl Source for Through {
    fn path(&self) -> &Path {
        Path::new("through")
    }

    fn len(&self) -> u64 {
        100_000
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let session = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        buf.copy_from_slice(&session.read(offset, buf.len()).wait()?);
        Ok(())
    }
}

#[test]
fn a_source_may_be_read_through_a_session() {
    let data = bytes(100_000);
    let source = Arc::new(MemorySource::new("m", data.clone()));
    let under = open_source(source, &Options { ahead: false, ..blocks(4096, 65_536) }).unwrap();
    let through = Through(Mutex::new(under.session(..).unwrap()));
    let file = open_source(Arc::new(through), &blocks(8192, 65_536)).unwrap();
    let session = file.session(..).unwrap();
    assert!(session.read(10, 99_990).wait().unwrap()[..] == data[10..]);
}

/// Each read waits until two are under way at once.
#[derive(Debug, Default)]
struct InPairs(Mutex<(usize, usize)>, Condvar);

impl Source for InPairs {
    fn path(&self) -> &Path {
        Path::new("pairs")
    }

    fn len(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        buf.fill(7);
        if offset == 0 {
            return Ok(());
        }
        let mut now = self.0.lock().unwrap();
        now.0 += 1;
        now.1 = now.1.max(now.0);
        self.1.notify_all();
        let mut now = self.1.wait_timeout_while(now, patience(), |now| now.1 < 2).unwrap().0;
        now.0 -= 1;
        Ok(())
    }
}

#[test]
fn readers_are_called_as_many_as_there_is_work_for() {
    let source = Arc::new(InPairs::default());
    let options = Options { ahead: false, depth: Some(1), ..blocks(4096, 65_536) };
    let file = open_source(source.clone(), &options).unwrap();
    let session = file.session(..).unwrap();
    // One reader sleeps now, and both are asked for before it wakes.
    drop(session.read(0, 10).wait().unwrap());
    let both = session.read_many(&[(8192, 10), (16_384, 10)]);
    for read in both {
        assert_eq!(read.wait().unwrap()[..], [7; 10]);
    }
    assert_eq!(source.0.lock().unwrap().1, 2);
}

#[test]
fn an_answer_that_nobody_takes_does_not_bar_others() {
    let data = bytes(1 << 20);
    let source = MemorySource::new("m", data.clone());
    let file = open_source(Arc::new(source), &blocks(4096, 65_536)).unwrap();
    let session = file.session(..).unwrap();
    // Each is more than half of the memory.
    let mut first = session.read(1, 50_000);
    let mut second = session.read(100_001, 50_000);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(&mut second).poll(&mut cx).is_pending() || second.is_ready());
    let _ = Pin::new(&mut first).poll(&mut cx);
    let (send, receive) = mpsc::channel();
    session.read(200_001, 50_000).then(move |answer| send.send(answer.unwrap().len()).unwrap());
    assert_eq!(receive.recv_timeout(patience()).unwrap(), 50_000);
    drop((first, second));
}

#[test]
fn a_request_without_memory_throws_nothing_away() {
    let source: Arc<dyn Source> = Arc::new(MemorySource::new("m", bytes(64 * 65_536)));
    let source = Arc::new(FaultySource::new(source, Faults::default()));
    let options = Options { readers: Some(1), ..blocks(4096, 65_536) };
    let file = open_source(source.clone(), &options).unwrap();
    let session = file.session(..).unwrap();
    // Of 16 blocks 13 are held, and for five more there is no room.
    let held: Vec<_> = (0..13).map(|i| session.read(i * 4096, 4096).wait().unwrap()).collect();
    let late = session.read(100 * 4096 + 1, 4 * 4096);
    std::thread::sleep(Duration::from_millis(300));
    assert!(source.reads() <= 13 + 2 * 16, "{}", source.reads());
    drop(held);
    assert_eq!(late.wait().unwrap().len(), 4 * 4096);
}

/// A device one block of which ends the driver, once all is asked for.
#[derive(Debug, Default)]
struct Fragile(Mutex<bool>, Condvar);

impl Fragile {
    fn all_is_asked(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }
}

impl Source for Fragile {
    fn path(&self) -> &Path {
        Path::new("fragile")
    }

    fn len(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = self.1.wait_timeout_while(asked, patience(), |asked| !*asked);
        drop(all.unwrap_or_else(PoisonError::into_inner));
        assert_ne!(offset, 5 * 4096, "block 5");
        buf.fill(7);
        Ok(())
    }
}

#[test]
fn a_source_that_panics_fails_those_whose_bytes_it_was_reading() {
    for readers in [1, 2] {
        let source = Arc::new(Fragile::default());
        let options = Options {
            ahead: false,
            depth: Some(1),
            readers: Some(readers),
            ..blocks(4096, 1 << 20)
        };
        let file = open_source(source.clone(), &options).unwrap();
        let session = file.session(..).unwrap();
        let reads: Vec<_> = (0..20u64).map(|i| session.read(i * 4096, 4096)).collect();
        source.all_is_asked();
        for (i, mut read) in reads.into_iter().enumerate() {
            let answer = read.wait_for(patience()).unwrap();
            match answer {
                Ok(view) => assert!(i != 5 && view.iter().all(|b| *b == 7), "{i}"),
                Err(e) => {
                    assert_eq!((i, e.kind(), e.place().offset), (5, Kind::Internal, Some(5 * 4096)))
                }
            }
        }
        // Across blocks, and again.
        assert_eq!(session.read(4 * 4096, 8000).wait().unwrap_err().kind(), Kind::Internal);
        assert_eq!(session.read(6 * 4096, 8000).wait().unwrap().len(), 8000);
    }
}

/// A buffer that says which thread gave it back.
struct Told(Vec<u8>, mpsc::Sender<std::thread::ThreadId>);

impl AsMut<[u8]> for Told {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.1.send(std::thread::current().id());
    }
}

#[test]
fn the_buffer_of_a_read_that_failed_is_free_when_that_is_told() {
    let faults = Faults { bad_byte: Some(70_000), ..Faults::default() };
    let source = FaultySource::new(Arc::new(MemorySource::new("m", bytes(100_000))), faults);
    let file = open_source(Arc::new(source), &blocks(4096, 65_536)).unwrap();
    let session = file.session(..).unwrap();
    let (send, receive) = mpsc::channel();
    for _ in 0..100 {
        let read = session.read_into(69_990, Told(vec![0; 20], send.clone()));
        assert_eq!(read.wait().err().unwrap().kind(), Kind::Io);
        assert_eq!(receive.try_recv(), Ok(std::thread::current().id()));
    }
}

#[test]
fn direct_reads_that_are_not_to_be_had_are_one_error_when_it_is_opened() {
    // The file system of the kernel's own variables has none.
    let path = Path::new("/sys/kernel/mm/transparent_hugepage/enabled");
    let io = IoOptions { direct: true, ..IoOptions::default() };
    let error = open(path, &Options { io, ..Options::default() }).err().unwrap();
    assert_eq!((error.kind(), error.place().path.as_deref()), (Kind::Usage, Some(path)), "{error}");
    assert!(error.message().contains("O_DIRECT") && error.hint().is_some(), "{error}");
    open(path, &Options::default()).unwrap();
}

#[test]
fn answers_are_known_to_be_given_where_they_are() {
    let source = Arc::new(Fragile::default());
    let options = Options { ahead: false, readers: Some(1), ..blocks(4096, 65_536) };
    let file = open_source(source.clone(), &options).unwrap();
    let session = file.session(..).unwrap();
    let (send, receive) = mpsc::channel();
    session.read(0, 10).then(move |_| send.send(answers_here()).unwrap());
    source.all_is_asked();
    assert!(receive.recv_timeout(patience()).unwrap() && !answers_here());
}

#[test]
fn who_watches_a_read_is_not_taken_to_wait_for_it() {
    let data = bytes(1 << 20);
    let source = MemorySource::new("m", data.clone());
    let options = Options { ahead: false, readers: Some(1), ..blocks(4096, 16 * 4096) };
    let file = open_source(Arc::new(source), &options).unwrap();
    let session = file.session(..).unwrap();
    // Nobody takes them: they fill the memory.
    let mut reads: Vec<_> = (0..200).map(|i| session.read(i * 4096, 4096)).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let there = |reads: &mut Vec<Read>| {
        let mut cx = Context::from_waker(Waker::noop());
        reads.iter_mut().filter_map(|read| read.watch(&mut cx).then_some(())).count()
    };
    std::thread::sleep(Duration::from_millis(1200));
    assert!(there(&mut reads) <= 16, "{}", there(&mut reads));
    // Somebody waits for the last one.
    struct Tell(mpsc::Sender<()>);
    impl std::task::Wake for Tell {
        fn wake(self: Arc<Self>) {
            let _ = self.0.send(());
        }
    }
    let (send, receive) = mpsc::channel();
    let waker = Waker::from(Arc::new(Tell(send)));
    let last = reads.last_mut().unwrap();
    assert!(!last.watch(&mut Context::from_waker(&waker)));
    last.urge();
    receive.recv_timeout(patience()).unwrap();
    assert!(last.watch(&mut cx));
    for (i, read) in reads.into_iter().enumerate() {
        assert!(read.wait().unwrap()[..] == data[i * 4096..][..4096]);
    }
}
