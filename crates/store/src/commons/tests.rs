use super::*;
use crate::{FileSource, IoOptions, ReadQueue, Source};
use rustix::fs::{MemfdFlags, SealFlags};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

const BLOCK: usize = 8192;

fn folder(dir: &tempfile::TempDir) -> OwnedFd {
    seats::folder_at(&dir.path().join("own")).unwrap()
}

fn identity(len: u64) -> Identity {
    let (mtime, ctime) = ((100, 5), (-100, 6));
    Identity { dev: 1, inode: 2, len, mtime, ctime, device: false }
}

fn join(dir: &tempfile::TempDir, blocks: u64) -> Arc<Commons> {
    let file = identity(100 * BLOCK as u64);
    Commons::join_in(folder(dir), &file, BLOCK as u64, blocks * BLOCK as u64).unwrap()
}

fn at(block: u64) -> u64 {
    block * BLOCK as u64
}

fn read(commons: &Arc<Commons>, block: u64) -> Berth {
    let Asked::Read(mut berth) = commons.ask(at(block), BLOCK) else { panic!("block {block}") };
    berth.as_mut_slice().fill(block as u8);
    berth.publish();
    berth
}

fn seats_of(commons: &Commons) -> Vec<Seat> {
    Seats::lock(&commons.folder, &commons.key).unwrap().read()
}

#[test]
fn what_one_has_read_others_look_at() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (join(&dir, 4), join(&dir, 4));
    assert_eq!((a.processes(), b.processes(), seats_of(&a).len()), (2, 2, 2));
    let Asked::Read(mut berth) = a.ask(at(3), BLOCK) else { panic!() };
    assert!(berth.is_claimed() && berth.as_slice().iter().all(|byte| *byte == 0));
    assert!(matches!(b.ask(at(3), BLOCK), Asked::Awaited));
    berth.as_mut_slice().fill(7);
    let waiting = std::thread::spawn({
        let b = b.clone();
        move || b.wait(at(3), BLOCK)
    });
    berth.publish();
    assert!(!berth.is_others() && berth.as_mut_slice().is_empty());
    let Asked::Ready(there) = waiting.join().unwrap() else { panic!() };
    assert!(there.is_others() && there.as_slice() == [7; BLOCK]);
    // It stays when who has read it goes.
    drop((berth, a));
    assert_eq!((b.processes(), seats_of(&b).len()), (1, 1));
    assert!(there.as_slice() == [7; BLOCK]);
    // Parts of blocks and what is outside the file are nobody's.
    for (offset, len) in [(1, BLOCK), (at(1), BLOCK - 1), (at(100), BLOCK), (u64::MAX, 1), (0, 0)] {
        assert!(matches!(b.ask(offset, len), Asked::Alone), "{offset} {len}");
    }
    let name = std::fs::read_dir(dir.path().join("own")).unwrap().count();
    assert_eq!(name, 1);
    drop((there, b));
    assert_eq!(std::fs::read_dir(dir.path().join("own")).unwrap().count(), 0);
}

#[test]
fn blocks_go_when_nobody_looks_at_them_and_others_need_room() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (join(&dir, 2), join(&dir, 2));
    let (first, second) = (read(&a, 0), read(&b, 1));
    let Asked::Ready(other) = b.ask(at(0), BLOCK) else { panic!() };
    assert!(matches!(a.ask(at(2), BLOCK), Asked::Alone));
    drop(first);
    assert!(matches!(a.ask(at(2), BLOCK), Asked::Alone));
    assert_eq!(other.as_slice()[0], 0);
    drop(second);
    let third = read(&a, 2);
    assert!(matches!(b.ask(at(1), BLOCK), Asked::Alone));
    drop((other, third));
    // The oldest first.
    drop(read(&b, 1));
    assert!(matches!(a.ask(at(2), BLOCK), Asked::Ready(_)));
    // All say that one is enough.
    let used = || {
        rustix::fs::fstat(File::open(format!("/proc/self/fd/{}", a.memory.descriptor())).unwrap())
            .unwrap()
            .st_blocks
    };
    let before = used();
    a.set_limit(1);
    assert_eq!(used(), before);
    b.set_limit(1);
    assert_eq!(used(), before - BLOCK as i64 / 512);
    let only = read(&a, 5);
    assert!(matches!(a.ask(at(6), BLOCK), Asked::Alone));
    drop(only);
}

#[test]
fn what_could_not_be_read_is_read_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (join(&dir, 4), join(&dir, 4));
    let Asked::Read(berth) = a.ask(0, BLOCK) else { panic!() };
    let waiting = std::thread::spawn({
        let b = b.clone();
        move || matches!(b.wait(0, BLOCK), Asked::Read(_))
    });
    drop(berth);
    assert!(waiting.join().unwrap());
}

/// Another process that has a place: this program again, which runs `another_process`.
struct Other {
    child: std::process::Child,
    out: BufReader<std::process::ChildStdout>,
    place: usize,
}

impl Other {
    fn join(dir: &tempfile::TempDir) -> Other {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "commons::tests::another_process", "--nocapture", "--test-threads=1"])
            .env(CHILD, dir.path())
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let mut other = Other { child, out, place: 0 };
        other.place = other.says();
        other
    }

    /// The number that it says next.
    fn says(&mut self) -> usize {
        let said = (&mut self.out).lines().map(Result::unwrap);
        said.filter_map(|l| Some(l.split_once("place ")?.1.parse().unwrap())).next().unwrap()
    }

    /// It runs this program anew, or another one.
    fn exec(&mut self, what: &str) {
        let mut input = self.child.stdin.as_ref().unwrap();
        input.write_all(format!("{what}\n").as_bytes()).unwrap();
    }

    /// What it was at the system: its number and when it began.
    fn kill(mut self) -> (u64, u64) {
        let begun = (u64::from(self.child.id()), began(self.child.id()));
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        begun
    }
}

fn began(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().parse().unwrap()
}

const CHILD: &str = "STEAD_TEST_COMMONS";

#[test]
fn another_process() {
    let Some(path) = std::env::var_os(CHILD) else { return };
    let file = identity(100 * BLOCK as u64);
    let own = seats::folder_at(&Path::new(&path).join("own")).unwrap();
    let commons = Commons::join_in(own, &file, BLOCK as u64, 2 * BLOCK as u64).unwrap();
    println!("place {}", commons.me);
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    let error = match line.trim_end() {
        "" => return,
        "again" => {
            let arguments = std::env::args_os().skip(1);
            std::process::Command::new("/proc/self/exe").args(arguments).exec()
        }
        other => std::process::Command::new(other).exec(),
    };
    panic!("{error}");
}

/// A block that a process claims, and perhaps reads.
fn claims(table: &Table<'_>, place: usize, block: u64) -> usize {
    let guard = table.lock(place, &is_alive).unwrap();
    let found = table.ask(&guard, place, block, |slot| table.refer(slot, place));
    let Found::Claimed(slot) = found else { panic!("{found:?}") };
    slot
}

#[test]
fn who_is_killed_is_found_out() {
    let dir = tempfile::tempdir().unwrap();
    let a = join(&dir, 2);
    let other = Other::join(&dir);
    let number = u64::from(other.child.id());
    let start = began(other.child.id());
    assert!(is_alive(number, start) && !is_alive(number, start + 1) && !is_alive(0, start));
    // It has one block and reads another one.
    let table = a.table().unwrap();
    table.set_limit(other.place, 2);
    table.publish(claims(&table, other.place, 0), other.place);
    claims(&table, other.place, 1);
    assert!(matches!(a.ask(at(1), BLOCK), Asked::Awaited));
    assert!(matches!(a.ask(at(2), BLOCK), Asked::Alone));
    assert_eq!(a.processes(), 2);
    let waiting = std::thread::spawn({
        let a = a.clone();
        move || {
            let Asked::Read(mut berth) = a.wait(at(1), BLOCK) else { panic!() };
            berth.publish();
        }
    });
    other.kill();
    waiting.join().unwrap();
    assert_eq!(a.processes(), 1);
    assert!(matches!(a.ask(at(0), BLOCK), Asked::Ready(_)));
    drop((read(&a, 3), read(&a, 4)));
    assert!(!is_alive(number, start));

    // One that keeps the table locked.
    let other = Other::join(&dir);
    std::mem::forget(table.lock(other.place, &is_alive).unwrap());
    assert!(matches!(a.ask(at(7), BLOCK), Asked::Alone));
    other.kill();
    a.left_alone.store(0, Ordering::Relaxed);
    drop(read(&a, 7));
    assert_eq!(a.processes(), 1);
}

#[test]
fn without_room_it_is_not_looked_for_processes_at_each_block() {
    let dir = tempfile::tempdir().unwrap();
    let a = join(&dir, 2);
    let other = Other::join(&dir);
    let table = a.table().unwrap();
    table.set_limit(other.place, 2);
    for block in [0, 1] {
        table.publish(claims(&table, other.place, block), other.place);
    }
    let reads = |block| matches!(a.ask(at(block), BLOCK), Asked::Read(_));
    assert!(!reads(2));
    other.kill();
    // What it has looked at is in the way until somebody looks again.
    let in_vain = (0..100).take_while(|_| !reads(2)).count();
    assert_eq!(in_vain, LOOK_FOR_ROOM as usize - 1);
}

#[test]
fn who_runs_another_program_takes_part_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let a = join(&dir, 2);
    let table = a.table().unwrap();
    for (what, first) in [("cat", 0), ("again", 10)] {
        let mut other = Other::join(&dir);
        let before = other.place;
        table.set_limit(before, 2);
        // It looks at a block and reads another one.
        table.publish(claims(&table, before, first), before);
        claims(&table, before, first + 1);
        assert_eq!(a.processes(), 2);
        other.exec(what);
        if what == "again" {
            // The same process, which has joined anew.
            other.says();
            assert_eq!(a.processes(), 2);
        } else {
            let ends = |_| {
                seats::pause();
                a.processes() == 1
            };
            assert!((0..2000).any(ends));
        }
        drop((read(&a, first + 2), read(&a, first + 1)));
        other.kill();
    }
}

/// Gives some bytes and then fails at each read, as what the system tells of a process that is gone by now.
struct Gone(&'static [u8]);

impl std::io::Read for Gone {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match std::io::Read::read(&mut self.0, buf)? {
            0 => Err(rustix::io::Errno::SRCH.into()),
            n => Ok(n),
        }
    }
}

#[test]
fn who_goes_while_it_is_looked_for_memory_is_not_looked_at_for_ever() {
    let map: &[u8] = b"7f00-7f01 rw-s 00000000 00:01 77   /memfd:stead-commons (deleted)\n";
    let others: &[u8] = b"7f00-7f01 r--p 00000000 08:01 77 /lib/\xff\n7f01-7f02 rw-p 0 00:00 0\n";
    for given in [&others[..0], others, &others[..50]] {
        assert!(memory::has_map(BufReader::new(Gone(given)), 77));
    }
    // To its end.
    assert!(memory::has_map(map, 77) && memory::has_map(&[others, map].concat()[..], 77));
    assert!(!memory::has_map(map, 7) && !memory::has_map(others, 77));
    assert!(memory::has_map(&others[..0], 77));
}

#[test]
fn what_a_joiner_that_is_killed_had_claimed_can_be_had() {
    let dir = tempfile::tempdir().unwrap();
    let a = join(&dir, 2);
    let begun = Other::join(&dir).kill();
    let table = a.table().unwrap();
    table.enter(JOINER, begun);
    claims(&table, JOINER, 1);
    assert!(matches!(a.ask(at(1), BLOCK), Asked::Awaited));
    assert!(matches!(a.wait(at(1), BLOCK), Asked::Read(_)));
}

#[test]
fn who_was_slow_is_waited_for_again_after_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (join(&dir, 2), join(&dir, 2));
    let Asked::Read(_berth) = b.ask(0, BLOCK) else { panic!() };
    a.slow.store(table::bit(b.me), Ordering::Relaxed);
    assert!(matches!(a.ask(0, BLOCK), Asked::Alone));
    assert!((0..LOOK).any(|_| matches!(a.ask(0, BLOCK), Asked::Awaited)));
}

#[test]
fn other_bytes_have_other_memory() {
    let dir = tempfile::tempdir().unwrap();
    let a = join(&dir, 4);
    let other = |file: Identity, block, memory| {
        let b = Commons::join_in(folder(&dir), &file, block, memory).unwrap();
        assert_eq!((a.processes(), b.processes()), (1, 1));
    };
    let (file, block, memory) = (identity(at(100)), at(1), at(4));
    other(Identity { mtime: (101, 5), ..file }, block, memory);
    other(Identity { ctime: (-100, 7), ..file }, block, memory);
    other(Identity { inode: 3, ..file }, block, memory);
    other(Identity { len: 1, ..file }, block, memory);
    other(file, 2 * block, memory);
    other(file, block, 2 * memory);
}

#[test]
fn what_is_no_commons_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (key, layout) = {
        let a = join(&dir, 4);
        (a.key, a.memory.layout())
    };
    let memfd = |name: &str, len: u64, seals| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(name, flags).unwrap();
        rustix::fs::ftruncate(&file, len).unwrap();
        rustix::fs::fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let good = Memory::new(layout, &key).unwrap();
    let whole =
        rustix::fs::fstat(File::open(format!("/proc/self/fd/{}", good.descriptor())).unwrap());
    let whole = u64::try_from(whole.unwrap().st_size).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    let fakes = [
        memfd("stead-commons", whole, seals),
        memfd("stead-commons", whole, SealFlags::GROW | SealFlags::SEAL),
        memfd("stead-commons", 4096, seals),
        memfd("another", whole, seals),
        File::open("/dev/null").unwrap().into(),
    ];
    let mut other = key;
    other[1] += 1;
    let other = Memory::new(layout, &other).unwrap();
    let (process, start) = process::me().unwrap();
    let numbers = fakes.iter().map(|f| f.as_raw_fd().unsigned_abs());
    let numbers = numbers.chain([other.descriptor(), u32::MAX]);
    for descriptor in numbers {
        assert!(Memory::open(process, descriptor, layout, &key).is_err(), "{descriptor}");
        let seats = Seats::lock(&folder(&dir), &key).unwrap();
        seats.write(&[Seat { process, start, descriptor }]).unwrap();
        drop(seats);
        let a = join(&dir, 4);
        assert_eq!(seats_of(&a), [a.seat]);
        drop(read(&a, 1));
    }
    assert!(Memory::open(process, good.descriptor(), layout, &key).is_ok());
    assert!(Memory::open(1 << 30, good.descriptor(), layout, &key).is_err());
    // A list with anything in it.
    let a = join(&dir, 4);
    let name = std::fs::read_dir(dir.path().join("own")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(&name, "1\n-1 x\n\0\u{fffd}  9 9\n99999999999999999999 1 1\n1 99999999999 1\n")
        .unwrap();
    assert!(seats_of(&a).is_empty());
    let b = join(&dir, 4);
    assert_eq!((a.processes(), b.processes()), (1, 1));
}

#[test]
fn folders_of_others_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("open");
    std::fs::create_dir(&path).unwrap();
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    assert!(seats::folder_at(&path).unwrap_err().contains("not this user's alone"));
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
    assert!(seats::folder_at(&path).is_ok());
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    assert!(seats::folder_at(&link).is_err());
    assert!(seats::folder_at(Path::new("/proc/nothing")).is_err());
    // A list that is kept locked, one that is a link, and one that is left over.
    let folder = seats::folder_at(&path).unwrap();
    let seats = Seats::lock(&folder, &[1, 5]).unwrap();
    assert!(Seats::lock(&folder, &[1, 5]).is_err());
    let (process, start) = process::me().unwrap();
    seats.write(&[Seat { process, start: start + 1, descriptor: 1 }]).unwrap();
    drop(seats);
    assert!(Seats::lock(&folder, &[1, 5]).unwrap().read().is_empty());
    std::os::unix::fs::symlink("/dev/null", path.join("commons-1-2-5")).unwrap();
    assert!(Seats::lock(&folder, &[2, 5]).is_err());
    let seats = Seats::lock(&folder, &[3, 5]).unwrap();
    seats.sweep();
    assert!(!path.join("commons-1-1-5").exists() && path.join("commons-1-3-5").exists());
}

#[test]
fn queues_read_each_block_once_in_any_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let bytes: Vec<u8> = (0..10 * BLOCK + 77).map(|i| (i / 7 % 251) as u8).collect();
    std::fs::write(&path, &bytes).unwrap();
    let source = FileSource::open(&path).unwrap();
    let file = source.identity();
    let source: Arc<dyn Source> = Arc::new(source);
    for (engine, direct) in [
        (crate::Engine::Pread, false),
        (crate::Engine::Auto, false),
        (crate::Engine::Pread, true),
        (crate::Engine::Auto, true),
    ] {
        let blocks: Vec<u64> = (0..11).collect();
        let orders = [blocks.clone(), blocks.iter().rev().copied().collect()];
        let commons = orders.each_ref().map(|_| {
            Commons::join_in(folder(&dir), &file, BLOCK as u64, 100 * BLOCK as u64).unwrap()
        });
        let read = std::thread::scope(|scope| {
            let threads = orders.each_ref().map(|order| {
                let commons = commons[usize::from(order[0] != 0)].clone();
                let (source, bytes) = (&source, &bytes);
                scope.spawn(move || {
                    let io = IoOptions { engine, direct, depth: 8 };
                    let mut queue = ReadQueue::new(&io).unwrap();
                    queue.share(Some(commons));
                    let mut own = 0;
                    for part in order.chunks(8) {
                        for block in part {
                            let from = at(*block) as usize;
                            let len = BLOCK.min(bytes.len() - from);
                            queue.submit(*block, source, at(*block), len).unwrap();
                        }
                        while let Some(done) = queue.next().unwrap() {
                            let from = at(done.tag) as usize;
                            assert!(done.buffer[..] == bytes[from..from + done.buffer.len()]);
                            own += usize::from(!done.buffer.is_others());
                            queue.recycle(done.buffer).unwrap();
                        }
                    }
                    own
                })
            });
            threads.map(|t| t.join().unwrap()).iter().sum::<usize>()
        });
        assert_eq!(read, 11, "{engine:?} {direct}");
    }
}

#[test]
fn errors_are_those_of_who_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![1; 2 * BLOCK]).unwrap();
    let source = FileSource::open(&path).unwrap();
    let file = source.identity();
    let source: Arc<dyn Source> = Arc::new(source);
    std::fs::write(&path, vec![1; BLOCK]).unwrap();
    for _ in 0..2 {
        let commons = Commons::join_in(folder(&dir), &file, at(1), at(10)).unwrap();
        let mut queue = ReadQueue::new(&IoOptions::default()).unwrap();
        queue.share(Some(commons));
        queue.submit(1, &source, at(1), BLOCK).unwrap();
        queue.submit(0, &source, 0, BLOCK).unwrap();
        assert_eq!(queue.next().unwrap_err().kind(), stead_core::Kind::Changed);
        assert!(queue.next().unwrap().unwrap().buffer[..] == [1; BLOCK]);
    }
}

#[test]
fn what_is_looked_at_at_a_fork_stays() {
    let dir = tempfile::tempdir().unwrap();
    let commons = join(&dir, 2);
    let first = read(&commons, 0);
    first.add_view();
    fork::stay(std::slice::from_ref(&commons));
    fork::after();
    drop((first, read(&commons, 1)));
    // There is one slot left.
    drop(read(&commons, 2));
    drop(read(&commons, 3));
    let Asked::Ready(there) = commons.ask(at(0), BLOCK) else { panic!() };
    assert!(there.as_slice() == [0; BLOCK]);
}

#[test]
fn what_nobody_has_a_view_of_at_a_fork_does_not_stay() {
    let dir = tempfile::tempdir().unwrap();
    let commons = join(&dir, 3);
    let [kept, seen, seen_before] = [0, 1, 2].map(|block| read(&commons, block));
    seen_before.add_view();
    seen_before.remove_view();
    fork::stay(std::slice::from_ref(&commons));
    // Another thread comes in between, and the child may have got its view.
    seen.add_view();
    seen.remove_view();
    // Until it is there all stays.
    drop((kept, seen, seen_before));
    assert!(matches!(commons.ask(at(3), BLOCK), Asked::Alone));
    fork::after();
    (3..9).for_each(|block| drop(read(&commons, block)));
    let there = |block| matches!(commons.ask(at(block), BLOCK), Asked::Ready(_));
    assert_eq!([0, 1, 2].map(there), [false, true, false]);
}

#[test]
fn what_stayed_for_a_child_goes_once_its_parent_has_closed_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (join(&dir, 2), join(&dir, 2));
    let views = [read(&a, 0), read(&a, 1)];
    views.iter().for_each(Berth::add_view);
    a.forked(&a.stay());
    drop(views);
    assert!(matches!(b.ask(at(2), BLOCK), Asked::Alone));
    drop(a);
    assert!(matches!(b.ask(at(2), BLOCK), Asked::Read(_)));
}

#[test]
fn who_wants_no_blocks_keeps_none_and_is_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (join(&dir, 4), join(&dir, 4));
    let view = read(&a, 0);
    (1..4).for_each(|block| drop(read(&a, block)));
    let seen = b.news();
    a.set_limit(0);
    assert_ne!(b.news(), seen);
    assert_eq!(b.processes(), 1);
    b.set_limit(1);
    let there = (0..4).filter(|n| matches!(b.ask(at(*n), BLOCK), Asked::Ready(_))).count();
    assert_eq!(there, 1);
    a.set_limit(4);
    assert_eq!(b.processes(), 2);
    assert!(view.as_slice() == [0; BLOCK]);
}

#[test]
fn a_list_is_unlocked_though_its_descriptor_was_inherited() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let seats = Seats::lock(&folder, &[1; KEY]).unwrap();
    // As a child has it.
    let _copy = seats.copy();
    drop(seats);
    assert!(Seats::lock(&folder, &[1; KEY]).is_ok());
}

#[test]
fn lists_of_other_namespaces_are_let_alone() {
    let dir = tempfile::tempdir().unwrap();
    let folder = folder(&dir);
    let mut key = [1; KEY];
    let dead = Seat { process: u32::MAX, start: 1, descriptor: 3 };
    let lists = [7, 8].map(|space| {
        key[KEY - 1] = space;
        Seats::lock(&folder, &key).unwrap().write(&[dead]).unwrap();
        key
    });
    key = [2; KEY];
    key[KEY - 1] = 7;
    Seats::lock(&folder, &key).unwrap().sweep();
    let names: Vec<String> = std::fs::read_dir(dir.path().join("own"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    let there =
        |key: &[u64; KEY]| names.iter().any(|n| n.ends_with(&format!("1-{:x}", key[KEY - 1])));
    assert!(!there(&lists[0]) && there(&lists[1]), "{names:?}");
}
