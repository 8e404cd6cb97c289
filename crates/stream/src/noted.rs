//! What a reader has got of its last steps, for those who ask what it will get of the next one: boxes of variables, as many as there is
//! room for, in words of its own beside the board, which it alone changes.
//!
//! There is a page for each of its last two steps, since of the last one it may not have got all yet. Who reads a page believes it if it
//! is of the same step before and after; what is in it is used within bounds only.

use std::ffi::OsStr;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, TryLockError};
use stead_core::{Bounds, Kind, Result, limits};
use stead_store::{Folder, Words};

const MAGIC: u64 = u64::from_le_bytes(*b"stead\0n1");

/// Words before the pages: what this is, and which of all readers that have come has written it.
const HEAD: usize = 16;
const OWNER: usize = 1;
/// Words of a page.
const PAGE: usize = 1016;
/// The number of its step and one; 0 while it is begun.
const STEP: usize = 0;
/// Words of boxes that it has.
const USED: usize = 1;
/// Gets that there was no room for.
const MORE: usize = 2;
/// Bytes that were copied of its step, and those that were looked at.
const COPIED: usize = 3;
const LOOKED: usize = 4;
const FIRST: usize = 8;
const WORDS: usize = HEAD + 2 * PAGE;

/// Of the word after the name of a box: the caller had memory for it, though it lies in one block.
const FIXED: u64 = 1 << 8;

/// How the words of a reader are called.
fn name_of(place: usize) -> String {
    format!("got-{place}")
}

/// Removes the words of the reader at a place, who goes.
pub(crate) fn remove(folder: &Folder, place: usize) {
    // Who comes there next begins them anew.
    let _ = folder.remove_file(OsStr::new(&name_of(place)));
}

/// Removes those of readers who have ended without a word. No reader comes or goes meanwhile: the board is locked.
pub(crate) fn sweep(folder: &Folder, is_here: impl Fn(usize) -> bool) {
    let Ok(names) = folder.names(1 << 12) else { return };
    for name in names.filter_map(Result::ok).flatten() {
        let number = name.to_str().and_then(|name| name.strip_prefix("got-")?.parse().ok());
        if let Some(place) = number.filter(|place| !is_here(*place)) {
            remove(folder, place);
        }
    }
}

/// What stands for the name of a variable.
pub(crate) fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Something that a reader has got.
#[derive(Debug)]
pub(crate) struct Got<'a> {
    pub(crate) name: &'a str,
    pub(crate) bounds: &'a Bounds,
    /// Into memory of the caller, though it lies in one block: it would be copied in any case.
    pub(crate) is_fixed: bool,
    pub(crate) copied: u64,
    pub(crate) looked: u64,
}

/// The words of a reader, as it writes them.
#[derive(Debug)]
pub(crate) struct Notes {
    words: Words,
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// The number of the step of each, and one.
    steps: [u64; 2],
    /// The page that the last box is in, its place, name and box, for one that continues it.
    last: Option<(usize, usize, u64, Bounds)>,
}

impl Notes {
    /// Those of the reader at a place, in the folder of its stream.
    pub(crate) fn open(folder: &Folder, place: usize, number: u64) -> Result<Notes> {
        let name = name_of(place);
        let words = match Words::open(folder, &name, WORDS) {
            // Of one that was there before.
            Ok(words) if words.len() == WORDS => words,
            Err(e) if e.kind() != Kind::NotFound && e.kind() != Kind::Data => return Err(e),
            other => {
                if other.is_ok() || other.is_err_and(|e| e.kind() == Kind::Data) {
                    folder.remove_file(OsStr::new(&name))?;
                }
                match Words::create(folder, &name, WORDS)?.publish()? {
                    Some(words) => words,
                    None => Words::open(folder, &name, WORDS)?,
                }
            }
        };
        let notes = Notes { words, pages: Mutex::default() };
        notes.put(0, 0);
        notes.put(HEAD + STEP, 0);
        notes.put(HEAD + PAGE + STEP, 0);
        notes.put(OWNER, number);
        notes.put(0, MAGIC);
        Ok(notes)
    }

    fn put(&self, i: usize, value: u64) {
        if let Some(word) = self.words.get(i) {
            word.store(value, Ordering::Release);
        }
    }

    fn add(&self, i: usize, more: u64) {
        if let Some(word) = self.words.get(i) {
            // Nobody else writes.
            word.store(word.load(Ordering::Relaxed).saturating_add(more), Ordering::Release);
        }
    }

    /// Notes something of a step. With `continues`, boxes that are one together with the last one become so. `is_mine` tells whether the
    /// process is the one that takes part: in one that was forked nobody may ever give the lock back.
    pub(crate) fn note(
        &self,
        step: u64,
        got: &Got<'_>,
        continues: bool,
        is_mine: impl Fn() -> bool,
    ) {
        let mut pages = match self.pages.try_lock() {
            Ok(pages) => pages,
            Err(TryLockError::Poisoned(pages)) => pages.into_inner(),
            Err(TryLockError::WouldBlock) if is_mine() => {
                self.pages.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
            }
            Err(TryLockError::WouldBlock) => return,
        };
        let is_known = pages.steps.iter().position(|known| *known == step.wrapping_add(1));
        let page = match is_known {
            Some(page) => page,
            None => {
                let [a, b] = pages.steps;
                let older = usize::from(a > b);
                if step < a.min(b) {
                    // Of an older one than both.
                    return;
                }
                let at = HEAD + older * PAGE;
                (STEP..FIRST).for_each(|i| self.put(at + i, 0));
                self.put(at + STEP, step.wrapping_add(1));
                if let Some(known) = pages.steps.get_mut(older) {
                    *known = step.wrapping_add(1);
                }
                pages.last = None;
                older
            }
        };
        let at = HEAD + page * PAGE;
        self.add(at + COPIED, got.copied);
        self.add(at + LOOKED, got.looked);
        let hash = hash(got.name);
        if continues
            && let Some((of, place, before, bounds)) = &pages.last
            && (*of, *before) == (page, hash)
            && let Some(both) = together(bounds, got.bounds)
        {
            let place = *place;
            self.write(place, &both);
            pages.last = Some((page, place, hash, both));
            return;
        }
        let used = self.words.get(at + USED).map_or(0, |word| word.load(Ordering::Relaxed));
        let (used, ndim) = (usize::try_from(used).unwrap_or(PAGE), got.bounds.ndim());
        let place = at + FIRST + used;
        let words = 2 + 2 * ndim;
        if FIRST + used + words > PAGE {
            self.add(at + MORE, 1);
            return;
        }
        self.put(place, hash);
        self.put(place + 1, ndim as u64 | if got.is_fixed { FIXED } else { 0 });
        self.write(place, got.bounds);
        self.put(at + USED, (used + words) as u64);
        pages.last = continues.then(|| (page, place, hash, got.bounds.clone()));
    }

    fn write(&self, place: usize, bounds: &Bounds) {
        let numbers = bounds.start().iter().chain(bounds.count());
        for (i, number) in (place + 2..).zip(numbers) {
            self.put(i, *number);
        }
    }
}

/// The box that two are together, if they are one.
fn together(a: &Bounds, b: &Bounds) -> Option<Bounds> {
    if a.ndim() != b.ndim() {
        return None;
    }
    let (mut start, mut count, mut along) = (a.start().to_vec(), a.count().to_vec(), 0);
    for (d, (first, second)) in a.sides().zip(b.sides()).enumerate() {
        if first == second {
            continue;
        }
        let (low, high) =
            if first.start < second.start { (first, second) } else { (second, first) };
        if low.end != high.start {
            return None;
        }
        along += 1;
        *start.get_mut(d)? = low.start;
        *count.get_mut(d)? = high.end - low.start;
    }
    (along == 1).then(|| Bounds::new(start, count).ok()).flatten()
}

/// What was got of a step, as others read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page {
    pub(crate) step: u64,
    /// Gets that there was no room for.
    pub(crate) more: u64,
    pub(crate) copied: u64,
    pub(crate) looked: u64,
    pub(crate) boxes: Vec<Noted>,
}

/// A box of a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Noted {
    /// The [`hash`] of its name.
    pub(crate) name: u64,
    pub(crate) bounds: Bounds,
    pub(crate) is_fixed: bool,
}

/// The pages of the reader at a place, the older one first; none if it has got nothing.
pub(crate) fn read(folder: &Folder, place: usize, number: u64) -> Vec<Page> {
    let Ok(words) = Words::open(folder, &name_of(place), WORDS) else { return Vec::new() };
    let get = |i: usize| words.get(i).map_or(0, |word| word.load(Ordering::Acquire));
    if words.len() != WORDS || get(0) != MAGIC || get(OWNER) != number {
        return Vec::new();
    }
    let mut pages: Vec<Page> =
        [HEAD, HEAD + PAGE].into_iter().filter_map(|at| page(at, &get)).collect();
    pages.sort_by_key(|page| page.step);
    pages
}

fn page(at: usize, get: &impl Fn(usize) -> u64) -> Option<Page> {
    let number = get(at + STEP);
    let step = number.checked_sub(1)?;
    let used = usize::try_from(get(at + USED)).ok().filter(|used| *used <= PAGE - FIRST)?;
    let (more, copied, looked) = (get(at + MORE), get(at + COPIED), get(at + LOOKED));
    let (mut i, end) = (at + FIRST, at + FIRST + used);
    let mut boxes = Vec::new();
    while i + 2 <= end {
        let (name, what) = (get(i), get(i + 1));
        let ndim = usize::try_from(what & 0xFF).ok().filter(|n| *n <= limits::MAX_DIMS)?;
        if i + 2 + 2 * ndim > end {
            return None;
        }
        let numbers: Vec<u64> = (i + 2..i + 2 + 2 * ndim).map(get).collect();
        let (start, count) = numbers.split_at(ndim);
        boxes.push(Noted {
            name,
            bounds: Bounds::new(start, count).ok()?,
            is_fixed: what & FIXED != 0,
        });
        i += 2 + 2 * ndim;
    }
    // Else it has become that of another step meanwhile.
    (get(at + STEP) == number).then_some(Page { step, more, copied, looked, boxes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        (dir, folder)
    }

    fn bounds(start: &[u64], count: &[u64]) -> Bounds {
        Bounds::new(start, count).unwrap()
    }

    fn got<'a>(name: &'a str, bounds: &'a Bounds) -> Got<'a> {
        Got { name, bounds, is_fixed: false, copied: 5, looked: 7 }
    }

    #[test]
    fn the_last_two_steps_are_told_and_no_other() {
        let (_dir, folder) = folder();
        let place = 3;
        assert_eq!(read(&folder, place, 1), []);
        let notes = Notes::open(&folder, place, 1).unwrap();
        let (a, b) = (bounds(&[0, 2], &[4, 5]), bounds(&[], &[]));
        for step in [0, 1, 4, 3, 1] {
            notes.note(step, &got("T", &a), false, || true);
            notes.note(step, &Got { is_fixed: true, ..got("n", &b) }, false, || true);
        }
        let of = |step, times: u64| Page {
            step,
            more: 0,
            copied: 10 * times,
            looked: 14 * times,
            boxes: (0..times)
                .flat_map(|_| {
                    [("T", &a, false), ("n", &b, true)].map(|(name, bounds, is_fixed)| Noted {
                        name: hash(name),
                        bounds: bounds.clone(),
                        is_fixed,
                    })
                })
                .collect(),
        };
        // 3 took the page of 1, which came too late then.
        assert_eq!(read(&folder, place, 1), [of(3, 1), of(4, 1)]);
        // Of another one they are not believed, and one that comes there begins anew.
        assert_eq!(read(&folder, place, 2), []);
        let next = Notes::open(&folder, place, 2).unwrap();
        assert_eq!(read(&folder, place, 2), []);
        next.note(0, &got("T", &a), false, || true);
        assert_eq!(read(&folder, place, 2).len(), 1);
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (_dir, folder) = folder();
        let notes = Notes::open(&folder, 0, 9).unwrap();
        let one = bounds(&[1, 2, 3], &[4, 5, 6]);
        for _ in 0..500 {
            notes.note(0, &got("T", &one), false, || true);
        }
        let pages = read(&folder, 0, 9);
        let [page] = &pages[..] else { panic!("{pages:?}") };
        assert_eq!((page.boxes.len(), page.more), (126, 374));
        assert_eq!((page.copied, page.looked), (2500, 3500));
        // The other page is not touched.
        notes.note(1, &got("T", &one), false, || true);
        assert_eq!(read(&folder, 0, 9)[0], *page);
    }

    #[test]
    fn parts_that_continue_each_other_are_one() {
        let (_dir, folder) = folder();
        let notes = Notes::open(&folder, 0, 9).unwrap();
        for row in 0..4 {
            notes.note(0, &got("T", &bounds(&[row, 5], &[1, 7])), true, || true);
        }
        notes.note(0, &got("U", &bounds(&[4, 5], &[1, 7])), true, || true);
        notes.note(0, &got("U", &bounds(&[5, 4], &[1, 7])), true, || true);
        let boxes: Vec<Bounds> =
            read(&folder, 0, 9)[0].boxes.iter().map(|b| b.bounds.clone()).collect();
        let want = [bounds(&[0, 5], &[4, 7]), bounds(&[4, 5], &[1, 7]), bounds(&[5, 4], &[1, 7])];
        assert_eq!(boxes, want);
        assert_eq!(together(&bounds(&[0], &[3]), &bounds(&[0], &[3])), None);
        assert_eq!(together(&bounds(&[4], &[3]), &bounds(&[0], &[4])), Some(bounds(&[0], &[7])));
    }

    #[test]
    fn damaged_words_are_not_believed() {
        let (_dir, folder) = folder();
        let notes = Notes::open(&folder, 0, 9).unwrap();
        notes.note(0, &got("T", &bounds(&[0], &[4])), false, || true);
        let whole = read(&folder, 0, 9);
        assert_eq!(whole.len(), 1);
        for i in HEAD..HEAD + FIRST + 4 {
            let before = notes.words.get(i).unwrap().load(Ordering::Relaxed);
            for wrong in [u64::MAX, 33, 0xFF] {
                notes.put(i, wrong);
                for page in read(&folder, 0, 9) {
                    assert!(page.boxes.iter().all(|b| b.bounds.ndim() <= limits::MAX_DIMS));
                }
            }
            notes.put(i, before);
        }
        assert_eq!(read(&folder, 0, 9), whole);
    }
}
