//! How large reads are answered of which some blocks could not be had.

use super::*;
use crate::options::Options;
use crate::registry;
use crate::request::ReadInto;
use std::fs::File;
use std::path::Path;
use std::sync::Mutex;
use stead_store::{FileSource, Source};

const BLOCK: usize = 256 << 10;
const LEN: usize = 10 << 20;

/// A file, and which bytes were read as those of any file are.
#[derive(Debug)]
struct Counted {
    file: FileSource,
    reads: Mutex<Vec<Range<u64>>>,
}

impl Source for Counted {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.reads.lock().unwrap().push(offset..offset + buf.len() as u64);
        self.file.read_at(offset, buf)
    }

    fn file(&self) -> Option<&File> {
        self.file.file()
    }
}

#[test]
fn only_what_lies_around_a_broken_block_is_read_past_the_page_cache() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let bytes: Vec<u8> = (0..LEN).map(|i| (i / BLOCK * 7 + i % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let file = FileSource::open(&path).unwrap();
    let source = Arc::new(Counted { file, reads: Mutex::default() });
    let options = Options { block: Some(BLOCK), ahead: false, ..Options::default() };
    let shared = registry::open_source(source.clone(), &options).unwrap();
    assert!(shared.maps(), "temporary files are expected on a local file system");
    // In the second and the fourth of five pieces.
    for block in [30, 9] {
        shared.failed(block);
    }
    let took = |mut reads: Vec<Range<u64>>| {
        // Where the file system has no direct reads, what lies around is read so, too.
        reads.retain(|r| r.end - r.start != AROUND || (r.start / AROUND).is_multiple_of(2));
        reads
    };
    let around = |piece: u64| piece * AROUND..(piece + 1) * AROUND;
    source.reads.lock().unwrap().clear();
    let into = Into::new(0, LEN, vec![0; LEN]);
    let read = ReadInto(shared.ask(0, LEN, None, into)).wait().unwrap();
    assert!(read == bytes);
    let reads = took(std::mem::take(&mut source.reads.lock().unwrap()));
    let whole = [0, 2, 4].map(around);
    assert!(whole.iter().all(|piece| reads.contains(piece)), "{reads:?}");
    // A view is a copy then.
    let (from, len) = (5000, LEN - 10_000);
    let view = AsView::new(from, len);
    let view = crate::request::Read(shared.ask(from, len, None, view)).wait().unwrap();
    assert!(view[..] == bytes[5000..LEN - 5000]);
    let reads = took(std::mem::take(&mut source.reads.lock().unwrap()));
    let end = LEN as u64 - 5000;
    let whole = [5000..AROUND, around(2), 4 * AROUND..end];
    assert!(whole.iter().all(|piece| reads.contains(piece)), "{reads:?}");
    registry::close(&shared);
}

#[test]
fn parts_that_lie_beside_each_other_in_any_order_are_read_once() {
    let mut beside = Beside::default();
    for at in [7 << 20, 1 << 20, 3 << 20, (3 << 20) + 5, 100] {
        beside.note(at, &Piece::Bytes(&[0; 10]));
    }
    beside.note(5 << 20, &Piece::Cached);
    let source = Arc::new(stead_store::MemorySource::new("m", vec![7; LEN]));
    let shared = registry::open_source(source, &Options::default()).unwrap();
    for (offset, len) in [(0, LEN), (0, 0), (100, 10), (3 << 20, 5 << 20), (LEN as u64, 0)] {
        let mut to = vec![0; len];
        beside.read(&shared, offset, &mut to).unwrap();
        assert!(to.iter().all(|b| *b == 7), "{offset} {len}");
    }
    assert!(beside.0.is_sorted_by_key(|range| range.start));
    registry::close(&shared);
}
