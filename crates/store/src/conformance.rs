//! What every source must do, as a check for tests (feature `conformance`).
#![allow(clippy::expect_used)]

use crate::{Engine, IoOptions, ReadQueue, Source};
use std::sync::Arc;
use stead_core::Kind;

/// Checks that `source` holds exactly `data` and keeps the contract of [`Source`], read alone, by many
/// threads and through a [`ReadQueue`].
///
/// # Panics
/// With what is wrong.
pub fn check(source: Arc<dyn Source>, data: &[u8]) {
    let len = data.len();
    assert_eq!(source.len(), len as u64, "len");
    assert_eq!(source.is_empty(), data.is_empty(), "is_empty");
    assert!(!source.path().as_os_str().is_empty(), "path");
    if let Some(bytes) = source.bytes() {
        assert!(bytes == data, "bytes");
    }
    let ranges = ranges(len);
    for (offset, n) in &ranges {
        read(source.as_ref(), data, *offset, *n);
    }
    for (offset, n) in [(len as u64, 1), (0, len + 1), (len as u64 + 1, 0), (u64::MAX, 1)] {
        let e = source.read_at(offset, &mut vec![0; n]).expect_err("a read past the end");
        assert_eq!(e.kind(), Kind::Internal, "{offset} {n}");
        assert_eq!(e.place().path.as_deref(), Some(source.path()));
        assert_eq!(e.place().offset, Some(offset));
    }
    std::thread::scope(|s| {
        for _ in 0..4 {
            s.spawn(|| ranges.iter().for_each(|(o, n)| read(source.as_ref(), data, *o, *n)));
        }
    });
    for engine in [Engine::Auto, Engine::Pread] {
        let options = IoOptions { engine, depth: 3, ..IoOptions::default() };
        let mut queue = ReadQueue::new(&options).expect("queue");
        for (tag, (offset, n)) in ranges.iter().enumerate() {
            queue.submit(tag as u64, &source, *offset, *n).expect("submit");
        }
        for (tag, (offset, n)) in ranges.iter().enumerate() {
            let done = queue.next().expect("read").expect("as many as were submitted");
            assert_eq!(done.tag, tag as u64);
            // The range lies within the data.
            assert!(done.buffer[..] == data[*offset as usize..][..*n], "queue {offset} {n}");
            queue.recycle(done.buffer).expect("unchanged");
        }
        assert!(queue.next().expect("empty").is_none());
    }
    source.check().expect("unchanged");
}

fn ranges(len: usize) -> Vec<(u64, usize)> {
    let mut out = vec![(0, 0), (len as u64, 0), (0, len), (len as u64 / 2, len - len / 2)];
    for step in [1, 7, 4096, 65_537] {
        for i in 0..8 {
            let offset = (i * step * 3).min(len);
            out.push((offset as u64, step.min(len - offset)));
        }
    }
    out
}

fn read(source: &dyn Source, data: &[u8], offset: u64, n: usize) {
    let mut buf = vec![0xA5; n];
    source.read_at(offset, &mut buf).expect("a read within the source");
    assert!(buf == data[offset as usize..][..n], "bytes {offset}..+{n}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileSource, MemorySource};

    #[test]
    fn files_and_memory_conform() {
        let dir = tempfile::tempdir().expect("directory");
        for len in [0, 1, 4095, 4096, 300_000] {
            let data: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
            let path = dir.path().join("f");
            std::fs::write(&path, &data).expect("write");
            check(Arc::new(FileSource::open(path).expect("open")), &data);
            check(Arc::new(MemorySource::new("m", data.clone())), &data);
        }
    }
}
