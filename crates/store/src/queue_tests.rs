use super::*;
use crate::{FileSource, MemorySource};
use proptest::prelude::*;
use std::path::Path;
use std::sync::OnceLock;
use stead_core::Kind;

fn bytes(n: usize) -> Vec<u8> {
    (0..n as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

/// What this machine can do: a container may forbid io_uring, an old tmpfs has no O_DIRECT.
fn offered(options: &IoOptions) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let source = file(dir.path(), b"x");
    match ReadQueue::new(options).and_then(|mut q| q.submit(0, &source, 0, 1)) {
        Ok(()) => true,
        Err(e) => {
            eprintln!("NOT TESTED HERE: {options:?}: {e}");
            assert_eq!(e.kind(), Kind::Usage);
            false
        }
    }
}

fn every_option() -> Vec<IoOptions> {
    static OFFERED: OnceLock<Vec<IoOptions>> = OnceLock::new();
    OFFERED.get_or_init(find_options).clone()
}

fn find_options() -> Vec<IoOptions> {
    let mut v = Vec::new();
    for engine in [Engine::Auto, Engine::Uring, Engine::Pread] {
        for depth in [1, 2, 5] {
            for direct in [false, true] {
                v.push(IoOptions { engine, depth, direct });
            }
        }
    }
    v.retain(offered);
    v
}

fn file(dir: &Path, data: &[u8]) -> Arc<dyn Source> {
    let path = dir.join("data");
    std::fs::write(&path, data).unwrap();
    Arc::new(FileSource::open(path).unwrap())
}

/// Takes everything and compares; returns the number of extents.
fn check(options: &IoOptions, source: &Arc<dyn Source>, data: &[u8], extents: &[(u64, usize)]) {
    let mut queue = ReadQueue::new(options).unwrap();
    let (mut submitted, mut taken) = (0, 0);
    loop {
        while submitted < extents.len() && !queue.is_full() {
            let (offset, len) = extents[submitted];
            queue.submit(submitted as u64, source, offset, len).unwrap();
            submitted += 1;
        }
        let Some(done) = queue.next().unwrap() else { break };
        assert_eq!(done.tag, taken as u64, "{options:?}");
        let (offset, len) = extents[taken];
        assert!(done.buffer[..] == data[offset as usize..][..len], "{options:?} {offset} {len}");
        queue.recycle(done.buffer).unwrap();
        taken += 1;
    }
    assert_eq!(taken, extents.len());
}

#[test]
fn every_engine_reads_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let data = bytes(300_001);
    let source = file(dir.path(), &data);
    let memory: Arc<dyn Source> = Arc::new(MemorySource::new("m", data.clone()));
    let extents = [
        (0, 300_001),
        (0, 0),
        (300_001, 0),
        (300_000, 1),
        (4095, 2),
        (4096, 4096),
        (1, 100_000),
        (299_999, 2),
        (0, 65_536),
    ];
    for options in every_option() {
        check(&options, &source, &data, &extents);
        check(&options, &memory, &data, &extents);
    }
}

#[test]
fn memory_is_lent_and_not_copied() {
    let data: Arc<[u8]> = bytes(100).into();
    let source: Arc<dyn Source> = Arc::new(MemorySource::new("m", data.clone()));
    let mut queue = ReadQueue::new(&IoOptions::default()).unwrap();
    queue.submit(0, &source, 10, 20).unwrap();
    let done = queue.next().unwrap().unwrap();
    assert_eq!(done.buffer.as_ptr(), data[10..].as_ptr());
}

#[test]
fn extents_outside_the_source_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = file(dir.path(), &bytes(10));
    let mut queue = ReadQueue::new(&IoOptions::default()).unwrap();
    assert_eq!(queue.submit(0, &source, 5, 6).unwrap_err().kind(), Kind::Internal);
    assert_eq!(queue.submit(0, &source, u64::MAX, 2).unwrap_err().kind(), Kind::Internal);
    assert!(queue.next().unwrap().is_none());
}

#[test]
fn a_file_that_shrinks_is_an_error_and_the_queue_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let data = bytes(200_000);
    for options in every_option() {
        let source = file(dir.path(), &data);
        File::options().write(true).open(dir.path().join("data")).unwrap().set_len(70_001).unwrap();
        let mut queue = ReadQueue::new(&options).unwrap();
        for (tag, offset) in [0, 65_536, 131_072].into_iter().enumerate() {
            queue.submit(tag as u64, &source, offset, 65_536).unwrap();
        }
        assert_eq!(queue.next().unwrap().unwrap().tag, 0, "{options:?}");
        let e = queue.next().unwrap_err();
        assert_eq!((e.kind(), e.place().offset), (Kind::Changed, Some(70_001)), "{options:?}");
        assert_eq!(queue.next().unwrap_err().kind(), Kind::Changed, "{options:?}");
        assert!(queue.next().unwrap().is_none());
    }
}

#[test]
fn what_has_landed_is_taken_whatever_was_before_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = bytes(200_000);
    for options in every_option() {
        let source = file(dir.path(), &data);
        let mut queue = ReadQueue::new(&options).unwrap();
        let (mut taken, mut next) = (Vec::new(), 0u64);
        while taken.len() < 40 {
            while next < 40 && queue.len() < 7 {
                queue.submit(next, &source, next * 4999, 5000).unwrap();
                next += 1;
            }
            let (tag, buffer) = queue.next_landed().unwrap().unwrap();
            assert!(
                buffer.unwrap()[..] == data[tag as usize * 4999..][..5000],
                "{options:?} {tag}"
            );
            taken.push(tag);
        }
        assert!(queue.next_landed().unwrap().is_none() && queue.is_empty(), "{options:?}");
        taken.sort_unstable();
        assert!(taken.into_iter().eq(0..40), "{options:?}");
        // What goes wrong says with which, and the others can be had.
        File::options().write(true).open(dir.path().join("data")).unwrap().set_len(70_001).unwrap();
        let offsets = [0, 65_536, 5000, 131_072, 9000];
        for (tag, offset) in offsets.into_iter().enumerate() {
            queue.submit(tag as u64, &source, offset, 10_000).unwrap();
        }
        for _ in offsets {
            let (tag, buffer) = queue.next_landed().unwrap().unwrap();
            let offset = offsets[tag as usize] as usize;
            match buffer {
                Ok(buffer) => assert!(buffer[..] == data[offset..][..10_000], "{options:?}"),
                Err(e) => assert_eq!((e.kind(), tag % 2), (Kind::Changed, 1), "{options:?}"),
            }
        }
        assert!(queue.next().unwrap().is_none());
    }
}

#[test]
fn what_is_cached_is_not_copied_and_may_shrink() {
    let dir = tempfile::tempdir().unwrap();
    let data = bytes(1 << 20);
    let source = file(dir.path(), &data);
    let mut queue = ReadQueue::new(&IoOptions::default()).unwrap();
    for i in 0..3 {
        queue.submit(i, &source, 1000 + i * 300_000, 300_000).unwrap();
    }
    let first = queue.next().unwrap().unwrap().buffer;
    assert!(matches!(first.0, Repr::Mapped(_)));
    assert!(first[..] == data[1000..301_000]);
    queue.recycle(first).unwrap();
    let second = queue.next().unwrap().unwrap().buffer;
    File::options().write(true).open(dir.path().join("data")).unwrap().set_len(400_000).unwrap();
    assert!(second[..98_000] == data[301_000..399_000]);
    assert_eq!(second[290_000..], [0; 10_000]);
    let e = queue.recycle(second).unwrap_err();
    assert_eq!((e.kind(), e.place().offset), (Kind::Changed, Some(400_000)));
    // From now on it is read, which fails.
    assert_eq!(queue.next().unwrap_err().kind(), Kind::Changed);
    assert!(queue.next().unwrap().is_none());
}

#[test]
fn a_lock_that_a_fork_has_left_taken_keeps_nobody_from_reading() {
    let dir = tempfile::tempdir().unwrap();
    let data = bytes(1 << 20);
    let source = file(dir.path(), &data);
    let taken = reads::MAPPED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let (done, waits) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        check(&IoOptions::default(), &source, &data, &[(0, 1 << 20), (1000, 300_000)]);
        done.send(())
    });
    let came = waits.recv_timeout(std::time::Duration::from_secs(60));
    drop(taken);
    came.expect("it waits for the lock");
}

/// Bytes of the mapping around an address that are resident.
fn resident(address: usize) -> usize {
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut ours = false;
    let line = maps.lines().find(|line| {
        let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
        let number = |s| usize::from_str_radix(s, 16).ok();
        if let Some((Some(start), Some(end))) = range.map(|(s, e)| (number(s), number(e))) {
            ours = (start..end).contains(&address);
        }
        ours && line.starts_with("Rss:")
    });
    line.unwrap().split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn queues_that_take_turns_leave_little_resident() {
    let (dir, len) = (tempfile::tempdir().unwrap(), 1 << 20);
    let source = file(dir.path(), &vec![7; 96 << 20]);
    for turns in [1, 2, 3, 8] {
        let options = IoOptions { engine: Engine::Auto, depth: 4, direct: false };
        let mut queues: Vec<_> = (0..turns).map(|_| ReadQueue::new(&options).unwrap()).collect();
        let mut most = 0;
        for i in 0..96 {
            let queue = &mut queues[i % turns];
            queue.submit(0, &source, (i * len) as u64, len).unwrap();
            let done = queue.next().unwrap().unwrap();
            let mapped = matches!(done.buffer.0, Repr::Mapped(_));
            assert!(mapped, "temporary files are expected on a local file system");
            assert!(done.buffer.iter().all(|b| *b == 7));
            most = most.max(resident(done.buffer.as_ptr() as usize));
            queue.recycle(done.buffer).unwrap();
        }
        // What is looked at and the rest of the huge page that it may lie in come on top.
        assert!(most <= crate::MOST_PASSED as usize + (4 << 20), "{turns}: {most}");
    }
}

#[test]
fn a_queue_can_be_dropped_at_any_time() {
    let dir = tempfile::tempdir().unwrap();
    let source = file(dir.path(), &bytes(1 << 20));
    for options in every_option() {
        for taken in 0..3 {
            let mut queue = ReadQueue::new(&options).unwrap();
            for i in 0..4 {
                queue.submit(i, &source, i * 1000, 500_000).unwrap();
            }
            for _ in 0..taken {
                queue.next().unwrap().unwrap();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_extents_in_any_order(
        len in 1usize..50_000,
        raw in prop::collection::vec((any::<u64>(), any::<u64>()), 0..20),
        which in 0usize..18,
    ) {
        let dir = tempfile::tempdir().unwrap();
        let data = bytes(len);
        let source = file(dir.path(), &data);
        let extents: Vec<(u64, usize)> = raw
            .iter()
            .map(|(a, b)| {
                let offset = a % (len as u64 + 1);
                (offset, (b % (len as u64 - offset + 1)) as usize)
            })
            .collect();
        let options = every_option();
        check(&options[which % options.len()], &source, &data, &extents);
    }
}
