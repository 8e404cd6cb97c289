//! Threads that copy the files of a batch.

use crate::bytes::Room;
use crate::commit;
use crate::copy::{Means, lock};
use crate::gentle;
use crate::job::Item;
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_store::{Folder, Meta};

/// Small files of a folder that a thread takes together, at most.
const MOST_TOGETHER: usize = 32;
/// Of so many of them the device is asked at a time for what will be read: a thread holds no more of them open.
const ASKED_TOGETHER: usize = 8;
/// So many turns a thread has at least.
const TURNS: usize = 4;
/// A file of more pieces is large: nothing is closed before all of it is over.
const MANY: u64 = 1 << 14;
/// So often those who wait look around.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// What is known of a file on its way, by all threads that have pieces of it.
pub(crate) struct Track {
    item: Item,
    pieces: u64,
    /// Pieces that nobody has done yet.
    left: AtomicU64,
    failed: Mutex<Option<Error>>,
    /// Bytes of it that were counted, and those of them that nobody has moved.
    counted: AtomicU64,
    kept: AtomicU64,
}

impl Track {
    pub(crate) fn new(item: Item, pieces: u64) -> Track {
        let left = AtomicU64::new(pieces);
        let (failed, counted, kept) = Default::default();
        Track { item, pieces, left, failed, counted, kept }
    }

    pub(crate) fn item(&self) -> &Item {
        &self.item
    }

    pub(crate) fn pieces(&self) -> u64 {
        self.pieces
    }

    /// So many bytes are there; `kept` if nobody has moved them.
    pub(crate) fn count(&self, bytes: u64, kept: bool, means: &Means<'_>) {
        self.counted.fetch_add(bytes, Ordering::Relaxed);
        means.bytes.fetch_add(bytes, Ordering::Relaxed);
        if kept {
            self.kept.fetch_add(bytes, Ordering::Relaxed);
            means.kept.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts it no longer, of all that are there and of those that nobody has moved.
    pub(crate) fn take_back(&self, bytes: &AtomicU64, kept: &AtomicU64) {
        bytes.fetch_sub(self.counted.load(Ordering::Relaxed), Ordering::Relaxed);
        kept.fetch_sub(self.kept.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Creates its temporary file. What was `marked` of another one is forgotten before: this one may soon be as long, with nothing in it.
    ///
    /// # Errors
    /// Those of the journal, and of [`commit::create`].
    pub(crate) fn create(
        &self,
        target: &Folder,
        temporary: &OsStr,
        mode: u32,
        marked: bool,
        means: &Means<'_>,
    ) -> Result<File> {
        if marked {
            (means.forget)(self.item.n)?;
        }
        commit::create(target, temporary, mode)
    }

    /// It is not whole, for this reason if there is none yet.
    pub(crate) fn fail(&self, error: Error) {
        lock(&self.failed).get_or_insert(error);
    }

    /// What went wrong, once all pieces are done.
    pub(crate) fn take_error(&self) -> Option<Error> {
        lock(&self.failed).take()
    }

    pub(crate) fn is_well(&self) -> bool {
        lock(&self.failed).is_none()
    }
}

/// A file that is brought from one place to another, piece by piece, and gets its name when all of it is there.
pub(crate) trait Carry: Send + Sync {
    fn track(&self) -> &Track;

    /// Has the device asked for what will be read of it soon, without waiting. What goes wrong is found when it is brought.
    fn ask_ahead(&self) {}

    /// Brings one piece.
    ///
    /// # Errors
    /// The file is not brought, then.
    fn try_piece(&self, number: u64, room: &mut Room, means: &Means<'_>) -> Result<()>;

    /// Makes of the pieces a file: its length, attributes, and, if wanted, durable and read again.
    ///
    /// # Errors
    /// As [`Carry::try_piece`].
    fn finish(&self, room: &mut Room, means: &Means<'_>) -> Result<()>;

    /// No piece of it is left.
    fn close(&self, _whole: bool) {}

    /// True if whoever comes later can go on with it in the middle, by its mark.
    fn is_marked(&self) -> bool {
        false
    }

    /// True if what is there of it is to stay after this error.
    fn keeps(&self, e: &Error) -> bool {
        self.is_marked() && stops_all(e)
    }

    /// For the journal, how far it is, if that is further than it was known to be; durable when this returns.
    ///
    /// # Errors
    /// System errors.
    fn mark(&self) -> Result<Option<String>> {
        Ok(None)
    }

    /// For the journal, before it is begun: that it may be there, whole, from then on.
    fn is_begun(&self) -> Option<&'static str> {
        None
    }

    /// The folder in which it gets its name, if it is one.
    fn folder(&self) -> Option<&Folder>;

    /// What it is, whole and without its name, if somebody has looked.
    fn made(&self) -> Option<Meta> {
        None
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// `Usage` if something has the name that was not to be replaced; those of the target.
    fn name(&self) -> Result<()>;

    /// Removes the source, if it is still what was brought.
    ///
    /// # Errors
    /// `Changed` if it is not; those of the source.
    fn leave(&self) -> Result<()>;

    /// Removes what is there of it, if it has no name yet.
    ///
    /// # Errors
    /// Those of the target; what cannot be removed now is found again later.
    fn abandon(&self) -> Result<()>;
}

/// Files that are brought together.
pub(crate) type Carries = Vec<Box<dyn Carry>>;

/// An error after which nothing else is tried.
pub(crate) fn stops_all(e: &Error) -> bool {
    // A file that is too large for a file system is no matter of the others.
    let too_large = e.os_code() == Some(rustix::io::Errno::FBIG.raw_os_error());
    matches!(e.kind(), Kind::NoSpace | Kind::Cancelled | Kind::Internal) && !too_large
}

/// Does one piece; the last one makes the file whole. What goes wrong is kept, and the other pieces are left out then.
fn piece(carry: &dyn Carry, number: u64, room: &mut Room, means: &Means<'_>) {
    let track = carry.track();
    if track.is_well()
        && let Err(e) = carry.try_piece(number, room, means)
    {
        track.fail(e);
    }
    if track.left.fetch_sub(1, Ordering::AcqRel) > 1 {
        return;
    }
    if track.is_well()
        && let Err(e) = carry.finish(room, means)
    {
        track.fail(e);
    }
    carry.close(track.is_well());
}

/// Files of one piece each, which a thread does one after the other; or one file, of whose pieces each is a turn of some thread.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Run {
    files: Range<usize>,
    /// So many turns.
    turns: u64,
}

/// Turns that threads take, in order: however many pieces a file has, it is one entry.
struct Turns {
    /// With the number of the first turn of each.
    runs: Vec<(u64, Run)>,
    all: u64,
}

impl Turns {
    fn new(runs: Vec<Run>) -> Turns {
        let mut all = 0u64;
        let mut first = |run: Run| {
            let at = all;
            all = all.saturating_add(run.turns);
            (at, run)
        };
        let runs = runs.into_iter().map(&mut first).collect();
        Turns { runs, all }
    }

    /// Files of a turn, the piece of each, and the first turn of other files.
    fn get(&self, turn: u64) -> Option<(Range<usize>, u64, u64)> {
        let at = self.runs.partition_point(|(first, _)| *first <= turn).checked_sub(1)?;
        let (first, run) = self.runs.get(at).filter(|_| turn < self.all)?;
        Some((run.files.clone(), turn - first, first.saturating_add(run.turns)))
    }
}

/// Small files go by folders, since a folder takes in one name at a time, and whoever else wants it waits: a thread has some of one,
/// and the next thread some of another. `most` files are together. Pieces of a large file stay in order.
fn runs<'f>(pieces: &[u64], folder: impl Fn(usize) -> &'f Path, most: usize) -> Vec<Run> {
    let mut runs: Vec<(usize, Run)> = Vec::new();
    // How many runs the folder has had.
    let (mut turn, mut last): (usize, Option<&Path>) = (0, None);
    for (i, pieces) in pieces.iter().enumerate() {
        if *pieces > 1 {
            runs.push((0, Run { files: i..i + 1, turns: *pieces }));
            last = None;
            continue;
        }
        let here = folder(i);
        let same = last.replace(here) == Some(here);
        turn = if same { turn } else { 0 };
        match runs.last_mut() {
            Some((_, run)) if same && run.files.len() < most => run.files.end = i + 1,
            _ => {
                runs.push((turn, Run { files: i..i + 1, turns: 1 }));
                turn += 1;
            }
        }
    }
    runs.sort_by_key(|(turn, _)| *turn);
    runs.into_iter().map(|(_, run)| run).collect()
}

/// Copies all of these by so many threads, while `look` is called now and then. What goes wrong is kept by the copies.
pub(crate) fn copy(
    copies: &Carries,
    threads: usize,
    gently: bool,
    means: &Means<'_>,
    look: &mut dyn FnMut(),
) {
    let pieces: Vec<u64> = copies.iter().map(|copy| copy.track().pieces()).collect();
    let all = pieces.iter().fold(0u64, |all, pieces| all.saturating_add(*pieces));
    let threads = threads.clamp(1, usize::try_from(all.max(1)).unwrap_or(usize::MAX));
    // Each thread has several turns, so that they end together.
    let most = (pieces.len() / (threads * TURNS)).clamp(1, MOST_TOGETHER);
    let runs =
        runs(&pieces, |i| copies.get(i).map_or(Path::new(""), |c| c.track().item().folder()), most);
    let (turns, next) = (Turns::new(runs), AtomicU64::new(0));
    let (running, ended) = (Mutex::new(threads), Condvar::new());
    // Who gives way, or keeps to a limit, reads when it is time to.
    let ahead = !gently && means.pace.is_none() && !means.limiter.is_bound();
    let one = || {
        let _leaving = Leaving(&running, &ended);
        if gently {
            gentle::give_way();
        }
        let mut room = Room::new();
        while let Some((files, number, then)) = turns.get(next.fetch_add(1, Ordering::Relaxed)) {
            for some in copies.get(files).unwrap_or_default().chunks(ASKED_TOGETHER) {
                if ahead && some.len() > 1 {
                    some.iter().for_each(|copy| copy.ask_ahead());
                }
                for copy in some {
                    piece(&**copy, number, &mut room, means);
                    // Of one that has failed, the other pieces would be left out one by one.
                    if copy.track().pieces() > MANY && !copy.track().is_well() {
                        next.fetch_max(then, Ordering::Relaxed);
                    }
                }
            }
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        loop {
            let left = running.lock().unwrap_or_else(PoisonError::into_inner);
            let (left, _) = ended
                .wait_timeout_while(left, LOOK, |left| *left > 0)
                .unwrap_or_else(PoisonError::into_inner);
            if *left == 0 {
                break;
            }
            drop(left);
            look();
        }
        let panicked = workers.into_iter().filter_map(|w| w.join().err()).count() > 0;
        if panicked {
            // Whose piece it was nobody knows: none of them is whole for sure.
            let panicked = || Error::internal("a thread that copies panicked");
            copies.iter().for_each(|c| c.track().fail(panicked()));
        }
    });
}

/// Does something with each of these files, by so many threads, of which each has some of a folder at a time; what comes of each, in order.
pub(crate) fn of_each<'f>(
    files: usize,
    threads: usize,
    folder: impl Fn(usize) -> &'f Path,
    work: &(impl Fn(usize) -> Result<()> + Sync),
) -> Vec<Result<()>> {
    if threads < 2 {
        return (0..files).map(work).collect();
    }
    let most = (files / (threads * TURNS)).clamp(1, MOST_TOGETHER);
    let (runs, next) = (runs(&vec![1; files], folder, most), AtomicUsize::new(0));
    let one = || {
        let mut came = Vec::new();
        while let Some(run) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            came.extend(run.files.clone().map(|file| (file, work(file))));
        }
        came
    };
    let mut all: Vec<Option<Result<()>>> = (0..files).map(|_| None).collect();
    std::thread::scope(|scope| {
        let more = |_| std::thread::Builder::new().spawn_scoped(scope, one).ok();
        // One of them is this thread, whether there can be others or not.
        let workers: Vec<_> = (1..threads).filter_map(more).collect();
        let mine = std::panic::catch_unwind(std::panic::AssertUnwindSafe(one));
        let others = workers.into_iter().map(ScopedJoinHandle::join);
        // Of one that panicked nobody knows what it has done.
        for (file, came) in others.chain([mine]).filter_map(|came| came.ok()).flatten() {
            if let Some(place) = all.get_mut(file) {
                *place = Some(came);
            }
        }
    });
    let panicked = || Err(Error::internal("a thread that names files panicked"));
    all.into_iter().map(|came| came.unwrap_or_else(panicked)).collect()
}

/// A thread that is no longer running, however it ended.
struct Leaving<'a>(&'a Mutex<usize>, &'a Condvar);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(runs: Vec<Run>) -> Vec<(Range<usize>, u64)> {
        let turns = Turns::new(runs);
        (0..).map_while(|turn| turns.get(turn)).map(|(files, piece, _)| (files, piece)).collect()
    }

    #[test]
    fn what_comes_of_each_file_comes_in_order_by_however_many_threads() {
        let folders = ["a", "b", "c"].map(Path::new);
        let odd = |file: usize| match file % 7 {
            3 => Err(Error::usage(format!("file {file}"))),
            _ => Ok(()),
        };
        for threads in [1, 2, 5, 64] {
            for files in [0, 1, 2, 300] {
                let came = of_each(files, threads, |file| folders[file / 50 % 3], &odd);
                let told = came.iter().enumerate().all(|(file, came)| match came {
                    Ok(()) => file % 7 != 3,
                    Err(e) => file % 7 == 3 && e.to_string().contains(&format!("file {file}")),
                });
                assert!(told && came.len() == files, "{files} by {threads}");
            }
        }
        let panics = |file: usize| if file == 5 { panic!("on purpose") } else { Ok(()) };
        let came = of_each(9, 3, |_| Path::new(""), &panics);
        assert!(came.len() == 9 && came[5].as_ref().is_err_and(|e| e.kind() == Kind::Internal));
    }

    #[test]
    fn threads_begin_in_different_folders() {
        let folders = ["a", "a", "a", "a", "b", "b", "b", "c"];
        let made = of(runs(&[1; 8], |i| Path::new(folders[i]), 2));
        assert_eq!(made, [(0..2, 0), (4..6, 0), (7..8, 0), (2..4, 0), (6..7, 0)]);
        let made = of(runs(&[1, 3, 1], |_| Path::new("a"), 8));
        assert_eq!(made, [(0..1, 0), (1..2, 0), (1..2, 1), (1..2, 2), (2..3, 0)]);
        // One of exabytes is no more than one of two pieces.
        let made = Turns::new(runs(&[1, 1 << 40, 1], |_| Path::new("a"), 8));
        assert_eq!((made.runs.len(), made.all), (3, (1 << 40) + 2));
        assert_eq!(made.get((1 << 40) - 5), Some((1..2, (1 << 40) - 6, (1 << 40) + 1)));
        assert_eq!((made.get(made.all - 1), made.get(made.all)), (Some((2..3, 0, made.all)), None));
        assert_eq!(Turns::new(Vec::new()).get(0), None);
    }

    proptest! {
        #[test]
        fn each_piece_is_done_once(
            files in proptest::collection::vec((1u64..4, 0usize..4), 0..60), most in 1usize..10,
        ) {
            const NAMES: [&str; 4] = ["a", "b", "c/d", ""];
            let pieces: Vec<u64> = files.iter().map(|f| f.0).collect();
            let mut done = std::collections::BTreeSet::new();
            for (files, piece) in of(runs(&pieces, |i| Path::new(NAMES[files[i].1]), most)) {
                prop_assert!(files.len() <= most);
                for file in files {
                    prop_assert!(done.insert((file, piece)) && piece < pieces[file]);
                }
            }
            prop_assert_eq!(done.len() as u64, pieces.iter().sum::<u64>());
        }
    }
}
