use super::*;
use crate::Meta;
use proptest::prelude::*;
use std::path::Path;
use std::process::Command;

const PAGE: usize = 4096;

pub(super) fn folder() -> (tempfile::TempDir, Folder) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let folder = Folder::open(dir.path()).unwrap();
    (dir, folder)
}

/// Tests in which something is kept, and those in which there is no room, so that it goes, come one after the other.
pub(super) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn options(segment: u64, keep_free: u64) -> Options {
    Options { segment, keep_free, ..Options::default() }
}

pub(super) fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> =
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Bytes of memory that all files in a folder have.
pub(super) fn pages(dir: &Path) -> u64 {
    let room = |name: &String| Meta::of_file(File::open(dir.join(name)).unwrap()).unwrap().room;
    names(dir).iter().map(room).sum()
}

pub(super) fn is_all(bytes: &[u8], byte: u8) -> bool {
    bytes.iter().all(|b| *b == byte)
}

#[test]
fn what_one_writes_others_look_at() {
    let (dir, folder) = folder();
    let arena = Arena::new(&folder, "w3", Options::default()).unwrap();
    assert_eq!((arena.prefix(), arena.used(), arena.held()), ("w3", 0, 0));
    let (mut large, mut small) = (arena.take(100_000).unwrap(), arena.take(5).unwrap());
    assert!(large.as_slice().as_ptr().addr().is_multiple_of(PAGE));
    assert!(small.as_slice().as_ptr().addr().is_multiple_of(64));
    assert_eq!((large.len(), small.len(), arena.used()), (100_000, 5, 100_005));
    large.as_mut_slice().fill(7);
    small.as_mut_slice().copy_from_slice(b"hello");
    let neighbours = Neighbours::new(&folder);
    let view = neighbours.look("w3", &large.place()).unwrap();
    assert!(view.len() == 100_000 && is_all(&view, 7));
    assert_eq!(&*neighbours.look("w3", &small.place()).unwrap(), b"hello");
    assert_eq!(neighbours.mapped(), 1);
    // It is this user's alone, and takes memory for what is used only.
    let meta = folder.meta(OsStr::new("w3-0")).unwrap().unwrap();
    assert_eq!((meta.mode, meta.size), (0o600, limits::ARENA_SEGMENT));
    assert_eq!((pages(dir.path()), arena.held()), (meta.room, meta.room));
    assert!(meta.room < 100_000 + BLOCK as u64 + PAGE as u64);
    // Another piece does not touch it, and none at all is one, too.
    let (mut other, empty) = (arena.take(64).unwrap(), arena.take(0).unwrap());
    other.as_mut_slice().fill(9);
    assert_eq!(&*neighbours.look("w3", &small.place()).unwrap(), b"hello");
    assert!(empty.is_empty() && neighbours.look("w3", &empty.place()).unwrap().is_empty());
    drop((large, small, other, empty));
    assert_eq!(arena.used(), 0);
}

#[test]
fn what_is_given_back_is_used_first() {
    let (dir, folder) = folder();
    let arena = Arena::new(&folder, "w", options(8 << 20, u64::MAX)).unwrap();
    let sizes = [100, 3 << 20, 50_000, 16 << 10, 5 << 20, 1, 9 << 20, 15_000, 800_000];
    let step = || -> Vec<Piece> { sizes.iter().map(|len| arena.take(*len).unwrap()).collect() };
    let first = step();
    let (held, there) = (arena.held(), pages(dir.path()));
    assert_eq!(held, there);
    drop(first);
    for _ in 0..5 {
        // What comes next is written while the one before is still looked at by nobody.
        drop(step());
        assert_eq!((arena.held(), pages(dir.path()), arena.used()), (held, there, 0));
    }
    // Of small pieces, too, however many there are.
    let many = || (0..20_000).map(|i| arena.take(i % 300 + 1).unwrap()).collect::<Vec<Piece>>();
    drop(many());
    let held = arena.held();
    drop(many());
    assert_eq!(arena.held(), held);
    // Until they are not wanted any more: then one file is left, without them.
    arena.set_keep_free(1 << 20);
    assert!(arena.held() <= (1 << 20) + BLOCK as u64);
    arena.set_keep_free(0);
    assert_eq!((arena.held(), pages(dir.path())), (BLOCK as u64, BLOCK as u64));
    assert_eq!(names(dir.path()).len(), 1);
}

#[derive(Debug, Clone)]
enum Step {
    Take(usize),
    Drop(prop::sample::Index),
    Keep(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![0usize..300, 10_000usize..20_000, 20_000usize..700_000];
    let step = prop_oneof![
        5 => len.prop_map(Step::Take),
        4 => any::<prop::sample::Index>().prop_map(Step::Drop),
        1 => (0u64..2 << 20).prop_map(Step::Keep),
    ];
    prop::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Whatever is taken and given back, bytes stay as they were written, for others too, and memory is bounded.
    #[test]
    fn pieces_never_overlap(steps in steps(), keep in 0u64..2 << 20) {
        let (dir, folder) = folder();
        let arena = Arena::new(&folder, "w", options(1 << 20, keep)).unwrap();
        let neighbours = Neighbours::with(&folder, 2);
        let (mut all, mut keep, mut byte) = (Vec::<(Piece, u8)>::new(), keep, 0u8);
        for step in steps {
            match step {
                Step::Take(len) => {
                    byte = byte.wrapping_add(1);
                    let mut piece = arena.take(len).unwrap();
                    piece.as_mut_slice().fill(byte);
                    all.push((piece, byte));
                }
                Step::Drop(which) if !all.is_empty() => {
                    let (piece, byte) = all.swap_remove(which.index(all.len()));
                    prop_assert!(is_all(piece.as_slice(), byte));
                }
                Step::Drop(_) => {}
                Step::Keep(bytes) => {
                    keep = bytes;
                    arena.set_keep_free(keep);
                }
            }
            for (piece, byte) in &all {
                prop_assert!(is_all(piece.as_slice(), *byte));
            }
            prop_assert_eq!(arena.used(), all.iter().map(|(p, _)| p.len() as u64).sum::<u64>());
            prop_assert_eq!(arena.held(), pages(dir.path()));
            // A small piece may be the only one of its block, and a large one ends within a page.
            let rounded = |len: usize| if len < SMALL { BLOCK } else { len.next_multiple_of(PAGE) };
            let most: usize = all.iter().map(|(piece, _)| rounded(piece.len())).sum();
            prop_assert!(arena.held() <= most as u64 + keep + BLOCK as u64);
        }
        for (piece, byte) in &all {
            let view = neighbours.look("w", &piece.place()).unwrap();
            prop_assert!(view.len() == piece.len() && is_all(&view, *byte));
        }
        prop_assert!(neighbours.mapped() <= 2);
        drop(all);
        prop_assert_eq!(arena.used(), 0);
        prop_assert!(arena.held() <= keep + BLOCK as u64);
        arena.remove().unwrap();
        prop_assert!(names(dir.path()).is_empty());
    }
}

#[test]
fn threads_take_and_give_back_at_the_same_time() {
    let (dir, folder) = folder();
    let arena = Arena::new(&folder, "w", options(1 << 20, 300_000)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4usize {
            let (arena, neighbours) = (&arena, Neighbours::new(&folder));
            scope.spawn(move || {
                let mut mine: Vec<(Piece, u8)> = Vec::new();
                for turn in 0..600usize {
                    let len = [10, 200, 15_000, 30_000, 400_000][(turn * 7 + thread * 3) % 5];
                    let mut piece = arena.take(len).unwrap();
                    let byte = (turn * 4 + thread) as u8;
                    piece.as_mut_slice().fill(byte);
                    mine.push((piece, byte));
                    if mine.len() > 8 {
                        let (piece, byte) = mine.swap_remove(turn % 8);
                        let view = neighbours.look("w", &piece.place()).unwrap();
                        assert!(is_all(&view, byte) && is_all(piece.as_slice(), byte));
                    }
                }
            });
        }
    });
    assert_eq!((arena.used(), arena.held()), (0, pages(dir.path())));
    assert!(arena.held() <= 300_000 + BLOCK as u64);
}

#[test]
fn what_is_left_stays_as_it_is() {
    let (dir, folder) = folder();
    let arena = Arena::new(&folder, "w", options(1 << 20, 0)).unwrap();
    let (mut large, mut small) = (arena.take(3 << 20).unwrap(), arena.take(10).unwrap());
    large.as_mut_slice().fill(1);
    small.as_mut_slice().fill(2);
    let (at, small_at) = (large.place(), small.place());
    drop(arena);
    drop((large, small));
    let neighbours = Neighbours::new(&folder);
    assert!(is_all(&neighbours.look("w", &at).unwrap(), 1));
    assert!(is_all(&neighbours.look("w", &small_at).unwrap(), 2));
    // Who comes after does not take the names of files that are there.
    let before = names(dir.path());
    let next = Arena::new(&folder, "w", options(1 << 20, 0)).unwrap();
    let piece = next.take(100_000).unwrap();
    assert!(!before.contains(&format!("w-{}", piece.place().segment)));
    next.remove().unwrap();
    assert_eq!(names(dir.path()), before);
    // A writer that has ended cannot remove its files, so that others do: those alone.
    for other in ["w-", "w-x", "w-01", "w-1-0", "ww-0", "w"] {
        File::create(dir.path().join(other)).unwrap();
    }
    assert_eq!(Arena::remove_left(&folder, "w").unwrap(), before.len() as u64);
    assert_eq!(names(dir.path()), ["w", "w-", "w-01", "w-1-0", "w-x", "ww-0"]);
    assert_eq!(Arena::remove_left(&folder, "w").unwrap(), 0);
    // Nothing more is to be had of it, and what was had can be used.
    assert_eq!(next.take(1).unwrap_err().kind(), Kind::Usage);
    assert_eq!(piece.as_slice().len(), 100_000);
    assert_eq!(neighbours.look("w", &piece.place()).unwrap_err().kind(), Kind::NotFound);
    // Numbers begin where one says.
    let first = 5 << 32;
    let other = Arena::new(&folder, "v", Options { first, ..options(1, 0) }).unwrap();
    assert_eq!(other.take(1).unwrap().place().segment, first);
    let last = Options { first: u64::MAX, ..options(1, 0) };
    assert_eq!(Arena::new(&folder, "x", last).unwrap().take(1).unwrap_err().kind(), Kind::Limit);
}

#[test]
fn what_goes_has_no_pages_though_others_have_it_mapped() {
    let (dir, folder) = folder();
    let arena = Arena::new(&folder, "w", options(1 << 20, u64::MAX)).unwrap();
    let pieces = [arena.take(1 << 20).unwrap(), arena.take(1 << 20).unwrap()];
    let neighbours = Neighbours::new(&folder);
    for piece in &pieces {
        assert_eq!(neighbours.look("w", &piece.place()).unwrap().len(), 1 << 20);
    }
    let files = names(dir.path()).into_iter().map(|name| File::open(dir.path().join(name)));
    let files: Vec<File> = files.map(std::result::Result::unwrap).collect();
    let pages = || files.iter().map(|file| Meta::of_file(file).unwrap().room).sum::<u64>();
    assert_eq!((files.len(), pages()), (2, 2 << 20));
    drop(pieces);
    arena.trim(0);
    assert_eq!((names(dir.path()).len(), neighbours.mapped(), pages()), (1, 2, 0));
    // What is left to others who look at it keeps its own.
    let piece = arena.take(3 << 20).unwrap();
    let view = neighbours.look("w", &piece.place()).unwrap();
    let file = File::open(dir.path().join(format!("w-{}", piece.place().segment))).unwrap();
    arena.remove().unwrap();
    drop((piece, arena));
    assert_eq!((view.len() as u64, Meta::of_file(&file).unwrap().room), (3 << 20, 3 << 20));
}

#[test]
fn a_process_that_was_forked_gives_nothing_back() {
    let (dir, folder) = folder();
    let arena = Arena::new(&folder, "w", options(1 << 20, 0)).unwrap();
    let (mut large, mut small) = (arena.take(300_000).unwrap(), arena.take(10).unwrap());
    large.as_mut_slice().fill(5);
    small.as_mut_slice().fill(6);
    let before = (arena.held(), pages(dir.path()), names(dir.path()));
    // SAFETY: the child ends by `_exit` and takes no lock that another thread may have.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let mut code = 0;
        code |= i32::from(!arena.take(1).is_err_and(|e| e.kind() == Kind::Usage));
        code |= i32::from(!arena.take(1 << 20).is_err_and(|e| e.kind() == Kind::Usage)) << 1;
        // It sees what is there, and may write it.
        code |= i32::from(!is_all(large.as_slice(), 5)) << 2;
        small.as_mut_slice().fill(7);
        code |= i32::from(arena.remove().is_err()) << 3;
        drop((large, small));
        arena.set_keep_free(0);
        drop(arena);
        // SAFETY: ends the child and nothing else.
        unsafe { libc::_exit(code) };
    }
    let mut status = -1;
    // SAFETY: waits for the child, whose status is told in an integer of ours.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(is_all(large.as_slice(), 5) && is_all(small.as_slice(), 7));
    assert_eq!((arena.held(), pages(dir.path()), names(dir.path())), before);
    drop((large, small));
    assert_eq!(arena.held(), BLOCK as u64);
}

#[test]
fn what_cannot_be_lent_is_told() {
    let _alone = alone();
    let (dir, folder) = folder();
    for prefix in ["", ".", ".w", "a/b", "/", "a\0", &"x".repeat(201)] {
        let e = Arena::new(&folder, prefix, Options::default()).unwrap_err();
        assert_eq!(e.kind(), Kind::Usage, "{prefix}");
    }
    let arena = Arena::new(&folder, "w", options(1 << 20, u64::MAX)).unwrap();
    let piece = arena.take(200_000).unwrap();
    let used = (arena.used(), names(dir.path()));
    let e = arena.take(1 << 50).unwrap_err();
    assert_eq!((e.kind(), e.place().path.as_deref()), (Kind::NoSpace, Some(dir.path())), "{e}");
    assert!(e.hint().unwrap().contains("[dataspace.memory]") && e.message().contains("free"));
    for len in [usize::MAX, usize::MAX - PAGE, isize::MAX.unsigned_abs() + 1] {
        assert_eq!(arena.take(len).unwrap_err().kind(), Kind::Limit, "{len}");
    }
    assert_eq!((arena.used(), names(dir.path())), used);
    drop(piece);
    arena.take(200_000).unwrap();
}

const FULL: &str = "STEAD_TEST_ARENA_FULL";

/// What is done in a file system of 8 MiB, in the test below.
#[test]
fn in_a_small_file_system() {
    let Some(path) = std::env::var_os(FULL) else { return };
    let dir = Path::new(&path);
    let folder = Folder::open(dir).unwrap();
    let arena = Arena::new(&folder, "w", options(1 << 20, u64::MAX)).unwrap();
    // Before it is tried, and in the middle of it; the one before leaves nothing.
    let e = arena.take(9 << 20).unwrap_err();
    assert_eq!((e.kind(), arena.held(), pages(dir)), (Kind::NoSpace, 0, 0), "{e}");
    for len in [700_000, 100_000, 1000] {
        let mut all = Vec::new();
        let e = loop {
            match arena.take(len) {
                Ok(mut piece) => {
                    // No signal comes of it.
                    piece.as_mut_slice().fill(3);
                    all.push(piece);
                }
                Err(e) => break e,
            }
        };
        assert_eq!(e.kind(), Kind::NoSpace, "{e}");
        let had: usize = all.iter().map(Piece::len).sum();
        assert!(had > 5 << 20, "{had} bytes of {len} each");
        assert!(all.iter().all(|piece| is_all(piece.as_slice(), 3)));
        assert_eq!(arena.held(), pages(dir));
        drop(all);
    }
    // Pages that are kept are no reason that there is no room.
    let mut piece = arena.take(6 << 20).unwrap();
    piece.as_mut_slice().fill(4);
    assert_eq!(arena.held(), pages(dir));
    drop(piece);
    // Nor are those of what is of no arena any more, or of none yet.
    arena.trim(0);
    let loose = Loose::new(&folder, 6 << 20).unwrap();
    let e = Loose::new(&folder, 3 << 20).unwrap_err();
    assert_eq!((e.kind(), e.place().path.as_deref()), (Kind::NoSpace, Some(dir)), "{e}");
    drop(arena.adopt(&loose, 6 << 20).unwrap().unwrap());
    drop(loose);
    assert_eq!(arena.spare(), 6 << 20);
    let mut piece = arena.take(7 << 20).unwrap();
    piece.as_mut_slice().fill(5);
    drop(piece);
    arena.trim(0);
    let mut loose = Loose::new(&folder, 7 << 20).unwrap();
    loose.as_mut_slice().unwrap().fill(6);
    drop(loose);
    assert!(Loose::new(&folder, 6 << 20).is_ok());
    println!("all was tried");
}

#[test]
fn a_full_file_system_is_an_error_and_no_signal() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=8m none \"$0\" && exec \"$@\"";
    let done = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "sh", "-c", script])
        .arg(dir.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "arena::tests::in_a_small_file_system", "--nocapture"])
        .env(FULL, dir.path())
        .output();
    let done = match done {
        Ok(done) => done,
        Err(e) => {
            println!("SKIPPED: no unshare: {e}");
            return;
        }
    };
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    if !out.contains("running 1 test") {
        println!("SKIPPED: no file system of one's own: {err}");
        return;
    }
    assert!(done.status.success() && out.contains("all was tried"), "{out}\n{err}");
}

const LOOKS: &str = "STEAD_TEST_ARENA_LOOKS";

/// What the other process does in the test below.
#[test]
fn another_process_looks() {
    let Some(path) = std::env::var_os(LOOKS) else { return };
    let neighbours = Neighbours::new(&Folder::open(Path::new(&path)).unwrap());
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        let [segment, offset, len, byte] = numbers[..] else { panic!("{line}") };
        let view = neighbours.look("w", &Place { segment, offset, len }).unwrap();
        assert!(view.len() as u64 == len && is_all(&view, byte as u8), "{line}");
    }
}

#[test]
fn another_process_sees_what_is_written() {
    use std::io::Write;
    let (dir, folder) = folder();
    let arena = Arena::new(&folder, "w", options(1 << 20, 0)).unwrap();
    let mut all: Vec<Piece> = [10, 70_000, 3 << 20, 500, 1 << 20, 0]
        .iter()
        .map(|len| arena.take(*len).unwrap())
        .collect();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "arena::tests::another_process_looks", "--nocapture"])
        .stdout(std::process::Stdio::null())
        .env(LOOKS, dir.path())
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    for (i, piece) in all.iter_mut().enumerate() {
        piece.as_mut_slice().fill(i as u8 + 1);
        let Place { segment, offset, len } = piece.place();
        writeln!(input, "{segment} {offset} {len} {}", i + 1).unwrap();
    }
    drop(input);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_is_no_memory_of_a_writer_is_refused() {
    let (dir, folder) = folder();
    let neighbours = Neighbours::new(&folder);
    let place = |segment, offset, len| Place { segment, offset, len };
    let look = |segment, offset, len| neighbours.look("w", &place(segment, offset, len));
    let kind = |segment, offset, len| look(segment, offset, len).unwrap_err().kind();
    assert_eq!(kind(0, 0, 1), Kind::NotFound);
    let file = |segment: u64| File::create(dir.path().join(format!("w-{segment}"))).unwrap();
    let first = file(0);
    assert_eq!(kind(0, 0, 1), Kind::Data, "an empty one");
    first.set_len(10_000).unwrap();
    for (offset, len) in
        [(10_000, 1), (0, 10_001), (9_999, 2), (u64::MAX, 1), (1, u64::MAX), (1 << 62, 1 << 62)]
    {
        assert_eq!(kind(0, offset, len), Kind::Data, "{offset} {len}");
    }
    assert!(is_all(&look(0, 0, 10_000).unwrap(), 0) && look(0, 9_999, 1).unwrap().len() == 1);
    // One that becomes longer is mapped anew, and what was looked at stays.
    let before = look(0, 0, 4).unwrap();
    first.set_len(20_000).unwrap();
    rustix::io::pwrite(&first, b"more", 15_000).unwrap();
    assert_eq!(&*look(0, 15_000, 4).unwrap(), b"more");
    assert!(is_all(&before, 0) && neighbours.mapped() == 1);
    std::os::unix::fs::symlink("w-0", dir.path().join("w-1")).unwrap();
    std::fs::create_dir(dir.path().join("w-2")).unwrap();
    let pipe = rustix::fs::FileType::Fifo;
    let at = dir.path().join("w-3");
    rustix::fs::mknodat(rustix::fs::CWD, at, pipe, rustix::fs::Mode::RWXU, 0).unwrap();
    assert_eq!((kind(1, 0, 1), kind(2, 0, 1)), (Kind::Permission, Kind::Data));
    assert_eq!(kind(3, 0, 1), Kind::Data);
    // Only who may do so can give a file to another user.
    if std::os::unix::fs::fchown(file(4), Some(65_534), None).is_ok() {
        file(4).set_len(10).unwrap();
        assert_eq!(kind(4, 0, 1), Kind::Permission);
    } else {
        println!("SKIPPED: a file of another user");
    }
    for prefix in ["../w", "/w", ".w", "a/w"] {
        let e = neighbours.look(prefix, &place(0, 0, 1)).unwrap_err();
        assert_eq!(e.kind(), Kind::Data, "{prefix}");
    }
}

#[test]
fn few_files_of_others_are_mapped() {
    let (dir, folder) = folder();
    let neighbours = Neighbours::with(&folder, 3);
    for segment in 0..10u8 {
        let name = dir.path().join(format!("w-{segment}"));
        std::fs::write(name, [segment; 100]).unwrap();
    }
    let place = |segment| Place { segment, offset: 0, len: 100 };
    let views: Vec<View> = (0..10).map(|n| neighbours.look("w", &place(n)).unwrap()).collect();
    assert_eq!(neighbours.mapped(), 3);
    for (i, view) in views.iter().enumerate() {
        assert!(is_all(view, i as u8));
    }
    // Those that were looked at last are known, though their names are gone.
    neighbours.look("w", &place(7)).unwrap();
    neighbours.look("w", &place(0)).unwrap();
    (0..10).for_each(|n| std::fs::remove_file(dir.path().join(format!("w-{n}"))).unwrap());
    let known = |n| neighbours.look("w", &place(n)).is_ok();
    assert_eq!((0..10).filter(|n| known(*n)).collect::<Vec<u64>>(), [0, 7, 9]);
    neighbours.forget("w", 7);
    neighbours.forget("w", 8);
    assert!(!known(7) && neighbours.mapped() == 2);
    neighbours.forget_all("w");
    neighbours.forget_all("none");
    assert!(!known(0) && neighbours.mapped() == 0);
    assert!(views.iter().enumerate().all(|(i, view)| is_all(view, i as u8)));
}
