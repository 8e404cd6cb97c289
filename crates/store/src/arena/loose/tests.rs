use super::*;
use crate::arena::tests::{alone, folder, is_all, names, options, pages};
use crate::arena::{Arena, Neighbours, Options};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const LEN: usize = 300_000;

fn made(folder: &Folder, byte: u8) -> Loose {
    let mut loose = Loose::new(folder, LEN).unwrap();
    loose.as_mut_slice().unwrap().fill(byte);
    loose
}

fn at(folder: &Folder) -> (u64, u64) {
    let meta = folder.own_meta().unwrap();
    (meta.dev, meta.ino)
}

/// A folder of streams, and one of a stream within it.
fn folders() -> (tempfile::TempDir, Folder, Folder) {
    let (dir, home) = folder();
    let (stream, _) = home.make(OsStr::new("sim"), true).unwrap();
    (dir, home, stream)
}

/// Files of a folder that this process has open.
fn open_files(dir: &Path) -> usize {
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let lead = all.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    lead.filter(|to| to.starts_with(dir) && to.to_str().unwrap().contains("deleted")).count()
}

#[test]
fn what_was_filled_before_is_looked_at_where_it_lies() {
    let (dir, home, stream) = folders();
    let mut loose = made(&home, 7);
    assert!(loose.len() == LEN && !loose.is_empty() && loose.may_be_adopted());
    assert!(loose.as_slice().as_ptr().addr().is_multiple_of(4096));
    assert_eq!(names(dir.path()), ["sim"], "no file has a name");
    let arena = Arena::new(&stream, "w", options(1 << 20, u64::MAX)).unwrap();
    let first = arena.adopt(&loose, LEN).unwrap().unwrap();
    assert_eq!((first.len(), first.as_slice().as_ptr()), (LEN, loose.as_slice().as_ptr()));
    assert_eq!(
        (arena.used(), names(&dir.path().join("sim"))),
        (LEN as u64, vec!["w-0".to_owned()])
    );
    let neighbours = Neighbours::new(&stream);
    assert!(is_all(&neighbours.look("w", &first.place()).unwrap(), 7));
    // Nobody writes to it meanwhile, and what the arena lends has other segments.
    let part = LEN - LEN / 16;
    assert!(arena.adopt(&loose, LEN / 2).unwrap().is_none(), "the rest would count for nobody");
    let mut second = arena.adopt(&loose, part).unwrap().unwrap();
    assert_eq!((second.place().segment, second.len()), (first.place().segment, part));
    assert!(second.as_mut_slice().is_empty() && loose.as_mut_slice().is_none());
    let mut own = arena.take(LEN).unwrap();
    own.as_mut_slice().fill(1);
    assert_ne!(own.place().segment, first.place().segment);
    assert_eq!(arena.used(), (2 * LEN + part) as u64);
    drop(first);
    assert!(loose.as_mut_slice().is_none() && arena.used() == (LEN + part) as u64);
    drop((own, second));
    // And then again: those who have it mapped see what is written next.
    loose.as_mut_slice().unwrap().fill(8);
    let again = arena.adopt(&loose, LEN).unwrap().unwrap();
    assert_eq!(again.place().segment, 0);
    assert!(is_all(&neighbours.look("w", &again.place()).unwrap(), 8));
    assert_eq!(arena.adopt(&loose, LEN + 1).unwrap_err().kind(), Kind::Usage);
    arena.remove().unwrap();
    assert_eq!(arena.adopt(&loose, LEN).unwrap_err().kind(), Kind::Usage);
    assert!(names(&dir.path().join("sim")).is_empty() && is_all(loose.as_slice(), 8));
}

#[test]
fn who_makes_one_for_each_step_has_no_new_pages() {
    let _alone = alone();
    let (dir, home, stream) = folders();
    let at_home = dir.path().join("sim");
    let arena = Arena::new(&stream, "w", options(1 << 20, u64::MAX)).unwrap();
    let mut steps = std::collections::VecDeque::new();
    let mut known = std::collections::BTreeSet::new();
    for n in 0..40u8 {
        let loose = made(&home, n);
        let piece = arena.adopt(&loose, LEN).unwrap().unwrap();
        known.insert(piece.place().segment);
        steps.push_back((piece, n));
        // The program has dropped it, and some steps are still there.
        drop(loose);
        if steps.len() > 3 {
            drop(steps.pop_front());
        }
        for (piece, n) in &steps {
            assert!(is_all(piece.as_slice(), *n));
        }
    }
    assert_eq!((known.len(), names(&at_home).len()), (4, 4));
    let room = whole_pages(LEN as u64).unwrap();
    assert_eq!((pages(&at_home), arena.spare(), kept::bytes(at(&home))), (4 * room, room, room));
    drop(steps);
    assert_eq!((arena.used(), arena.spare()), (0, 4 * room));
    // They are among the pages that it keeps.
    arena.trim(2 * room + 5);
    assert_eq!((arena.spare(), names(&at_home).len(), pages(&at_home)), (2 * room, 2, 2 * room));
    // Another length is served by one that is a bit longer, and a shorter one is made anew.
    let fits = Loose::new(&home, LEN - 20_000).unwrap();
    assert_eq!((arena.spare(), fits.len()), (room, LEN - 20_000));
    let short = Loose::new(&home, LEN / 2).unwrap();
    assert_eq!(arena.spare(), room);
    arena.set_keep_free(0);
    assert_eq!((arena.spare(), kept::bytes(at(&home))), (0, 0));
    drop((fits, short));
    assert_eq!((arena.spare(), open_files(dir.path())), (0, 1), "one was never adopted");
    drop(arena);
    assert!(names(&at_home).is_empty());
    kept::clear();
    assert_eq!((open_files(dir.path()), kept::bytes(at(&home))), (0, 0));
}

#[test]
fn what_an_arena_leaves_stays_as_it_is() {
    let _alone = alone();
    let (dir, home, stream) = folders();
    let arena = Arena::new(&stream, "w", options(1 << 20, u64::MAX)).unwrap();
    let (mut looked, mut free) = (made(&home, 1), made(&home, 2));
    let kept_ones = made(&home, 3);
    let piece = arena.adopt(&looked, LEN).unwrap().unwrap();
    for loose in [&free, &kept_ones] {
        drop(arena.adopt(loose, LEN).unwrap().unwrap());
    }
    drop(kept_ones);
    let place = piece.place();
    arena.leave();
    assert_eq!(names(&dir.path().join("sim")), ["w-0"]);
    assert_eq!(kept::bytes(at(&home)), 0);
    drop(piece);
    // Somebody may look at it for good, so that it is never lent again; the other one is the program's, and has no name to get another by.
    assert!(looked.as_mut_slice().is_none() && free.as_mut_slice().is_some());
    assert!(looked.may_be_adopted() && !free.may_be_adopted());
    drop((looked, free, arena));
    assert_eq!(kept::bytes(at(&home)), 0);
    let other = made(&home, 4);
    assert!(is_all(&Neighbours::new(&stream).look("w", &place).unwrap(), 1));
    drop(other);
}

#[test]
fn several_arenas_adopt_the_same_memory() {
    let _alone = alone();
    let (dir, home, stream) = folders();
    let (other, _) = home.make(OsStr::new("other"), true).unwrap();
    let open = |at: &Folder| Arena::new(at, "w", options(1 << 20, u64::MAX)).unwrap();
    let (one, two) = (open(&stream), open(&other));
    let mut loose = made(&home, 5);
    let (first, second) =
        (one.adopt(&loose, LEN).unwrap().unwrap(), two.adopt(&loose, LEN).unwrap().unwrap());
    let meta = |at: &str| Meta::of_file(File::open(dir.path().join(at)).unwrap()).unwrap();
    assert_eq!((meta("sim/w-0").ino, meta("other/w-0").links), (meta("other/w-0").ino, 2));
    drop(first);
    assert!(loose.as_mut_slice().is_none());
    drop(second);
    assert!(loose.as_mut_slice().is_some());
    // It counts once, for the one that took it in last, and goes from both when that does not keep it.
    drop(one.adopt(&loose, LEN).unwrap());
    drop(loose);
    assert_eq!((one.spare() > 0, two.spare()), (true, 0));
    one.trim(0);
    assert!(
        names(&dir.path().join("sim")).is_empty() && names(&dir.path().join("other")).is_empty()
    );
    // One that is left while the other looks.
    let loose = made(&home, 6);
    let first = one.adopt(&loose, LEN).unwrap().unwrap();
    let second = two.adopt(&loose, LEN).unwrap().unwrap();
    let at_two = second.place();
    two.leave();
    drop((first, second, loose));
    assert_eq!((one.spare(), names(&dir.path().join("sim"))), (0, vec![]));
    assert!(is_all(&Neighbours::new(&other).look("w", &at_two).unwrap(), 6));
}

#[test]
fn what_can_have_no_name_is_not_adopted() {
    let _alone = alone();
    let (dir, home, stream) = folders();
    let arena = Arena::new(&stream, "w", options(1 << 20, u64::MAX)).unwrap();
    // What is small.
    for len in [0, 1, limits::LOOSE_LEAST - 1] {
        let mut small = Loose::new(&home, len).unwrap();
        small.as_mut_slice().unwrap().fill(1);
        assert!(small.as_slice().as_ptr().addr().is_multiple_of(64) && !small.may_be_adopted());
        assert!(small.len() == len && is_all(small.as_slice(), 1));
        assert!(arena.adopt(&small, len).unwrap().is_none());
    }
    // Of another file system.
    let elsewhere = tempfile::tempdir().unwrap();
    let away = Folder::open(elsewhere.path()).unwrap();
    if at(&away).0 == at(&home).0 {
        println!("SKIPPED: another file system");
    } else {
        let mut loose = made(&away, 2);
        assert!(arena.adopt(&loose, LEN).unwrap().is_none());
        loose.as_mut_slice().unwrap().fill(3);
    }
    // Whose stream was removed: it is not lent again either, but another one.
    let loose = made(&home, 4);
    drop(arena.adopt(&loose, LEN).unwrap().unwrap());
    std::fs::remove_dir_all(dir.path().join("sim")).unwrap();
    let (next, _) = home.make(OsStr::new("next"), true).unwrap();
    let next = Arena::new(&next, "w", options(1 << 20, u64::MAX)).unwrap();
    assert!(next.adopt(&loose, LEN).unwrap().is_none() && !loose.may_be_adopted());
    drop(loose);
    let loose = made(&home, 5);
    assert!(next.adopt(&loose, LEN).unwrap().is_some());
    assert_eq!((arena.used(), arena.spare(), names(&dir.path().join("next")).len()), (0, 0, 1));
    // More than there can be.
    for len in [usize::MAX, isize::MAX.unsigned_abs() + 1] {
        assert_eq!(Loose::new(&home, len).unwrap_err().kind(), Kind::Limit, "{len}");
    }
    let e = Loose::new(&home, 1 << 45).unwrap_err();
    assert_eq!((e.kind(), e.place().path.as_deref()), (Kind::NoSpace, Some(dir.path())), "{e}");
}

#[test]
fn threads_make_and_drop_it_at_the_same_time() {
    let _alone = alone();
    let (dir, home, stream) = folders();
    let arena = Arena::new(&stream, "w", options(1 << 20, 2 << 20)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (arena, home, neighbours) = (&arena, &home, Neighbours::new(&stream));
            scope.spawn(move || {
                let mut mine = Vec::new();
                for turn in 0..200usize {
                    let len = [70_000, 300_000, 310_000, 500_000][(turn * 3 + thread) % 4];
                    let byte = (turn * 4 + thread) as u8;
                    let mut loose = Loose::new(home, len).unwrap();
                    loose.as_mut_slice().unwrap().fill(byte);
                    let piece = arena.adopt(&loose, len).unwrap().unwrap();
                    mine.push((piece, byte, Some(loose).filter(|_| turn % 3 > 0)));
                    if mine.len() > 4 {
                        let (piece, byte, _) = mine.swap_remove(turn % 4);
                        let view = neighbours.look("w", &piece.place()).unwrap();
                        assert!(is_all(&view, byte) && is_all(piece.as_slice(), byte));
                    }
                }
            });
        }
    });
    assert!(arena.used() == 0 && arena.spare() <= 2 << 20 && arena.spare() > 0);
    assert_eq!(pages(&dir.path().join("sim")), arena.spare());
    arena.leave();
    assert!(names(&dir.path().join("sim")).is_empty());
}

#[test]
fn a_process_that_was_forked_takes_nothing_away() {
    let _alone = alone();
    let (dir, home, stream) = folders();
    let arena = Arena::new(&stream, "w", options(1 << 20, u64::MAX)).unwrap();
    let (mut loose, looked) = (made(&home, 5), made(&home, 6));
    let piece = arena.adopt(&looked, LEN).unwrap().unwrap();
    drop(arena.adopt(&made(&home, 9), LEN));
    let before = (arena.spare(), names(&dir.path().join("sim")), pages(&dir.path().join("sim")));
    assert!(before.0 > 0);
    // SAFETY: the child ends by `_exit` and takes no lock that another thread may have.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut code = 0;
        code |= i32::from(!arena.adopt(&loose, LEN).is_err_and(|e| e.kind() == Kind::Usage));
        // It may have an arena of its own, which has no use for what its parent may lend to others.
        let own = Arena::new(&stream, "v", options(1 << 20, 0)).unwrap();
        code |= i32::from(!own.adopt(&loose, LEN).is_ok_and(|piece| piece.is_none())) << 1;
        let mine = made(&home, 1);
        code |= i32::from(!own.adopt(&mine, LEN).is_ok_and(|piece| piece.is_some())) << 2;
        drop((own, mine));
        code |= i32::from(!is_all(looked.as_slice(), 6)) << 3;
        if let Some(bytes) = loose.as_mut_slice() {
            bytes.fill(7);
        }
        drop((piece, looked, loose, arena));
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    // SAFETY: waits for the child, whose status is told in an integer of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(is_all(loose.as_slice(), 7) && is_all(piece.as_slice(), 6));
    let after = (arena.spare(), names(&dir.path().join("sim")), pages(&dir.path().join("sim")));
    assert_eq!(after, before);
}

const MAKES: &str = "STEAD_TEST_LOOSE";

/// What other processes do in the tests below.
#[test]
fn another_process_makes() {
    let Some(told) = std::env::var_os(MAKES) else { return };
    let path = told.to_str().unwrap();
    let (what, path) = path.split_once(' ').unwrap();
    let home = Folder::open(Path::new(path)).unwrap();
    if what == "killed" {
        let (_a, b) = (made(&home, 1), made(&home, 2));
        drop(b);
        println!("made it");
        loop {
            std::thread::park();
        }
    }
    let (stream, _) = home.make(OsStr::new("sim"), true).unwrap();
    let arena = Arena::new(&stream, "w", Options::default()).unwrap();
    let few = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).unwrap();
    // A quarter of the files at most, and others are copied.
    let all: Vec<Loose> = (0..30).map(|n| made(&home, n)).collect();
    assert_eq!(all.iter().filter(|loose| loose.may_be_adopted()).count(), 16);
    let adopted = |loose: &Loose| arena.adopt(loose, LEN).unwrap().is_some();
    assert_eq!(all.iter().filter(|loose| adopted(loose)).count(), 16);
    drop(all);
    // What is kept has a file, too, and is no reason that there is none.
    arena.trim(0);
    kept::clear();
    let files: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).take(1000).collect();
    let e = Loose::new(&home, LEN).unwrap_err();
    assert!(e.kind() == Kind::Limit && e.hint().unwrap().contains("ulimit -n"), "{e}");
    drop(files);
    assert!(Loose::new(&home, LEN).unwrap().may_be_adopted());
    println!("all was tried");
}

fn another(what: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "arena::loose::tests::another_process_makes", "--nocapture"])
        .env(MAKES, format!("{what} {}", dir.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn says(child: &mut Child, what: &str) -> bool {
    let out = BufReader::new(child.stdout.as_mut().unwrap());
    out.lines().map_while(std::io::Result::ok).any(|line| line.ends_with(what))
}

#[test]
fn a_process_that_is_killed_leaves_nothing() {
    let (dir, _) = folder();
    let mut child = another("killed", dir.path());
    assert!(says(&mut child, "made it"));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(names(dir.path()).is_empty());
}

#[test]
fn who_may_have_few_files_open_is_told() {
    let (dir, _) = folder();
    let mut child = another("few", dir.path());
    assert!(says(&mut child, "all was tried"));
    assert!(child.wait().unwrap().success());
}
