//! What is seen of a source through a [`View`].

use crate::Source;
use crate::file::check_range;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use stead_core::view::Seen;
use stead_core::{Error, Result, View};

/// Bytes that are read at a time where only some of them are seen.
const WINDOW: usize = 1 << 20;
/// What is not seen between two pieces is read with them if it is no more: to copy it takes less time than another read.
const GAP: u64 = 16 << 10;
/// Larger pieces are read where they are to be.
const PICKED: u64 = 64 << 10;
/// Windows that are kept to be used again.
const SPARE: usize = 8;

/// The bytes that a view shows of another source, one after the other.
///
/// A range that lies in one piece is a piece of that source, and read as if it were asked for there. Of small pieces that lie
/// close to each other whole stretches are read, of a MiB at most, and what is seen is picked from them.
#[derive(Debug)]
pub struct Viewed {
    inner: Arc<dyn Source>,
    view: View,
    windows: Mutex<Vec<Vec<u8>>>,
}

impl Viewed {
    /// What `view` shows of `inner`.
    ///
    /// # Errors
    /// `Usage` if that has fewer bytes.
    pub fn new(inner: Arc<dyn Source>, view: View) -> Result<Viewed> {
        if view.end() > inner.len() {
            return Err(Error::usage(format!(
                "a view reaches to byte {}, and the file has {}",
                view.end(),
                inner.len()
            ))
            .at_path(inner.path())
            .with_hint("ask for fewer bytes: what lies before the end of the file"));
        }
        Ok(Viewed { inner, view, windows: Mutex::default() })
    }

    /// The pieces of a range of the view by what is read at once, up to the first error.
    fn together(
        &self,
        range: Range<u64>,
        each: &mut dyn FnMut(&[Seen]) -> Result<()>,
    ) -> Result<()> {
        let mut together: Vec<Seen> = Vec::new();
        for p in self.view.pieces(range) {
            let joins = together.first().zip(together.last()).is_some_and(|(first, last)| {
                p.len <= PICKED
                    && p.at - (last.at + last.len) <= GAP
                    && p.at + p.len - first.at <= WINDOW as u64
            });
            if !joins {
                each(&together)?;
                together.clear();
            }
            together.push(p);
        }
        each(&together)
    }

    /// Reads pieces that lie within one window, of which `start` is the beginning.
    fn pick(&self, pieces: &[Seen], offset: u64, buf: &mut [u8]) -> Result<()> {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return Ok(()) };
        // A place in the buffer, which is as long as what is asked for.
        let place = |p: &Seen| {
            let at = (p.offset - offset) as usize;
            at..at + p.len as usize
        };
        let room = || Error::internal("a piece of a view lies beyond what is asked for");
        if pieces.len() == 1 {
            return self.inner.read_at(first.at, buf.get_mut(place(first)).ok_or_else(room)?);
        }
        // No longer than a window.
        let len = (last.at + last.len - first.at) as usize;
        let spare = || self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = spare().pop();
        let mut window = kept.unwrap_or_default();
        if window.len() < len {
            window.resize(len, 0);
        }
        let read = window.get_mut(..len).ok_or_else(room).and_then(|w| {
            self.inner.read_at(first.at, w)?;
            for p in pieces {
                let from = (p.at - first.at) as usize;
                let from = w.get(from..from + p.len as usize).ok_or_else(room)?;
                buf.get_mut(place(p)).ok_or_else(room)?.copy_from_slice(from);
            }
            Ok(())
        });
        let mut windows = spare();
        if windows.len() < SPARE {
            windows.push(window);
        }
        read
    }
}

impl Source for Viewed {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> u64 {
        self.view.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self.path(), offset, buf.len(), self.len())?;
        let range = offset..offset + buf.len() as u64;
        self.together(range, &mut |pieces| self.pick(pieces, offset, buf))
    }

    fn ahead(&self, offset: u64, len: usize) {
        let range = offset..offset.saturating_add(len as u64);
        let ask = &mut |pieces: &[Seen]| {
            if let (Some(first), Some(last)) = (pieces.first(), pieces.last()) {
                // Not longer than the range, or than a window.
                self.inner.ahead(first.at, (last.at + last.len - first.at) as usize);
            }
            Ok(())
        };
        // It fails for nothing.
        let _ = self.together(range, ask);
    }

    fn origin(&self) -> Option<&Arc<dyn Source>> {
        Some(&self.inner)
    }

    fn check(&self) -> Result<()> {
        self.inner.check()
    }

    fn piece(&self, offset: u64, len: u64) -> Option<(&Arc<dyn Source>, u64)> {
        let end = offset.checked_add(len)?;
        let seen = self.view.pieces(offset..end).next().filter(|p| p.len == len)?;
        self.inner.piece(seen.at, len).or(Some((&self.inner, seen.at)))
    }

    fn files(&self) -> Vec<PathBuf> {
        self.inner.files()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileSource, MemorySource, conformance};
    use proptest::prelude::*;
    use stead_core::Kind;

    fn bytes(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i * 31 % 251) as u8).collect()
    }

    /// Byte by byte.
    fn seen(view: &View, data: &[u8]) -> Vec<u8> {
        let all = view.pieces(0..view.len());
        all.flat_map(|p| data[p.at as usize..(p.at + p.len) as usize].to_vec()).collect()
    }

    #[test]
    fn views_of_files_and_memory_conform() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let data = bytes(3_000_000);
        std::fs::write(&path, &data).unwrap();
        let file: Arc<dyn Source> = Arc::new(FileSource::open(&path).unwrap());
        let memory: Arc<dyn Source> = Arc::new(MemorySource::new("m", data.clone()));
        for (displacement, extent, runs, skip, bytes) in [
            (0, 1, vec![(0, 1)], 0, 3_000_000),
            (17, 1, vec![(0, 1)], 5, 1_000_000),
            (3, 64, vec![(8, 8)], 80, 300_000),
            (0, 64, vec![(0, 3), (5, 7), (60, 4)], 1, 500_000),
            // Apart from each other, and large ones among small ones.
            (1, 100_000, vec![(0, 10), (50_000, 20), (99_990, 10)], 3, 1000),
            (
                0,
                600_000,
                vec![(0, 10), (100, 200_000), (200_200, 1), (300_000, 250_000)],
                0,
                2_000_000,
            ),
            (9, 4, vec![], 0, 0),
        ] {
            let view = View::new(displacement, extent, runs, skip, bytes).unwrap();
            let want = seen(&view, &data);
            for inner in [&file, &memory] {
                let viewed = Viewed::new(inner.clone(), view.clone()).unwrap();
                conformance::check(Arc::new(viewed), &want);
            }
        }
    }

    /// Notes what it is asked for.
    #[derive(Debug)]
    struct Noted {
        inner: MemorySource,
        ahead: Mutex<Vec<(u64, usize)>>,
        read: Mutex<Vec<(u64, usize)>>,
    }

    impl Source for Noted {
        fn path(&self) -> &Path {
            self.inner.path()
        }

        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            self.read.lock().unwrap().push((offset, buf.len()));
            self.inner.read_at(offset, buf)
        }

        fn ahead(&self, offset: u64, len: usize) {
            self.ahead.lock().unwrap().push((offset, len));
        }
    }

    #[test]
    fn what_is_going_to_be_read_is_said_just_so() {
        let inner = MemorySource::new("m", bytes(3_000_000));
        let noted = Arc::new(Noted { inner, ahead: Mutex::default(), read: Mutex::default() });
        let runs = vec![(0, 10), (100, 200_000), (200_200, 1), (300_000, 250_000)];
        let view = View::new(0, 600_000, runs, 0, 2_000_000).unwrap();
        let viewed = Viewed::new(noted.clone(), view).unwrap();
        for (offset, len) in [(0, 1_000_000), (5, 10), (450_000, 1_550_000)] {
            viewed.ahead(offset, len);
            viewed.read_at(offset, &mut vec![0; len]).unwrap();
            let ahead = std::mem::take(&mut *noted.ahead.lock().unwrap());
            assert!(!ahead.is_empty());
            assert_eq!(std::mem::take(&mut *noted.read.lock().unwrap()), ahead);
        }
    }

    #[test]
    fn what_lies_in_one_piece_is_one_of_the_file() {
        let memory: Arc<dyn Source> = Arc::new(MemorySource::new("m", bytes(1000)));
        let view = View::new(10, 100, vec![(0, 30), (50, 10)], 0, 120).unwrap();
        let viewed = Viewed::new(memory.clone(), view.clone()).unwrap();
        let at = |offset, len| viewed.piece(offset, len).map(|(_, at)| at);
        assert_eq!((at(0, 30), at(30, 10), at(45, 5)), (Some(10), Some(60), Some(115)));
        assert_eq!((at(29, 2), at(0, 31), at(119, 2), at(u64::MAX, 2)), (None, None, None, None));
        // A view of a view is one of the file.
        let twice = Viewed::new(Arc::new(viewed), View::stretch(25, 20).unwrap()).unwrap();
        let (source, at) = twice.piece(5, 10).unwrap();
        assert!(Arc::ptr_eq(source, &memory) && at == 60);
        let e = Viewed::new(memory, View::stretch(990, 11).unwrap()).unwrap_err();
        assert_eq!((e.kind(), e.place().path.clone()), (Kind::Usage, Some("m".into())));
    }

    proptest! {
        #[test]
        fn any_range_is_what_the_pieces_are(
            extent in 1u64..90_000, cuts in prop::collection::vec(0.0..1.0f64, 2..9), skip in 0u64..1000, from in 0.0..1.0f64,
            part in 0.0..1.0f64,
        ) {
            let mut cuts: Vec<u64> = cuts.iter().map(|c| (c * extent as f64) as u64).collect();
            cuts.sort_unstable();
            let runs: Vec<(u64, u64)> = cuts.chunks_exact(2).map(|c| (c[0], c[1] - c[0])).collect();
            prop_assume!(runs.iter().any(|(_, len)| *len > 0));
            let data = bytes(400_000);
            let all = View::new(7, extent, runs, skip, 400_000).unwrap().within(400_000);
            let want = seen(&all, &data);
            let viewed = Viewed::new(Arc::new(MemorySource::new("m", data)), all).unwrap();
            let from = (from * want.len() as f64) as usize;
            let len = (part * (want.len() - from) as f64) as usize;
            let mut buf = vec![0; len];
            viewed.read_at(from as u64, &mut buf).unwrap();
            prop_assert!(buf == want[from..from + len]);
        }
    }
}
