//! Streams of other nodes that daemons reach: each node has a memory of its own, and threads that answer connections.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;
#[path = "pool/job.rs"]
mod job;
#[path = "pool/survey.rs"]
mod survey;

use common::{Barrier, LONG, bounds, memory, written};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use stead_core::layout::Spaces;
use stead_core::{Bounds, Cancel, DType, Error, Kind, Result};
use stead_fabric::{Fabric, Local};
use stead_stream::{
    Behind, Coupling, Definition, Home, Names, Nodes, Patience, Presence, Read, Reader, Start,
    Switchboard, Way, Writer, Written,
};

/// Nodes whose daemons reach each other.
#[derive(Debug)]
struct Pool {
    boards: BTreeMap<String, (Arc<Switchboard>, Spaces, Cancel)>,
    asked: AtomicUsize,
    gone: Mutex<Vec<String>>,
    /// Nodes that take connections and answer nothing.
    hung: Mutex<Vec<String>>,
    /// Connections that were made.
    made: AtomicUsize,
    /// Connections at a time, and how many there may be.
    open: Arc<AtomicUsize>,
    most: AtomicUsize,
    /// Those for errands, which end with their conversation.
    errands: Arc<Mutex<HashMap<u64, Open>>>,
    /// Connections that readers have made, where they are kept.
    keeps: AtomicBool,
    lines: Mutex<Vec<UnixStream>>,
    /// So often it is asked for nodes before there are any.
    late: AtomicUsize,
}

fn spaces(dir: &Path, node: &str) -> Spaces {
    memory(&dir.join(node))
}

impl Pool {
    fn new(dir: &Path, names: &[&str]) -> Arc<Pool> {
        let node = |name: &&str| {
            let ending = Cancel::new();
            let board = Arc::new(Switchboard::new(ending.clone()));
            ((*name).to_owned(), (board, spaces(dir, name), ending))
        };
        let boards = names.iter().map(node).collect();
        Arc::new(Pool {
            boards,
            asked: AtomicUsize::new(0),
            gone: Mutex::default(),
            hung: Mutex::default(),
            made: AtomicUsize::new(0),
            open: Arc::default(),
            most: AtomicUsize::new(usize::MAX),
            errands: Arc::default(),
            keeps: AtomicBool::new(false),
            lines: Mutex::default(),
            late: AtomicUsize::new(0),
        })
    }
}

/// The others, as a program of one of the nodes has them.
#[derive(Debug)]
struct From {
    pool: Arc<Pool>,
    node: String,
}

impl Nodes for From {
    fn names(&self, _: &Patience) -> Result<Names> {
        let asked = self.pool.asked.fetch_add(1, Ordering::Relaxed);
        if asked < self.pool.late.load(Ordering::Relaxed) {
            // There is none, or it begins or ends just now.
            return match asked % 2 {
                0 => Ok(Names::default()),
                _ => Err(Error::new(Kind::Peer, "the daemon has ended")),
            };
        }
        let others = self.pool.boards.keys().filter(|name| **name != self.node);
        Ok(Names { here: Some(self.node.clone()), others: others.cloned().collect() })
    }

    fn are_named(&self) -> bool {
        false
    }

    fn connect(
        &self,
        node: &str,
        number: u64,
        way: Way,
        first: &[u8],
        patience: &Patience,
    ) -> Result<UnixStream> {
        let mut stream = self.pool.connect(node, number, way, patience)?;
        stream.write_all(first).unwrap();
        Ok(stream)
    }

    fn among(&self, _: Vec<String>) -> Arc<dyn Nodes> {
        panic!("nobody asks for fewer nodes here")
    }
}

impl Pool {
    fn connect(
        &self,
        node: &str,
        number: u64,
        way: Way,
        patience: &Patience,
    ) -> Result<UnixStream> {
        if self.gone.lock().unwrap().iter().any(|gone| gone == node) {
            return Err(Error::new(Kind::Peer, format!("the daemon of node '{node}' is gone")));
        }
        if self.hung.lock().unwrap().iter().any(|hung| hung == node) {
            while !patience.left().is_zero() {
                patience.check()?;
                thread::sleep(Duration::from_millis(1));
            }
            return Err(Error::new(Kind::Timeout, format!("node '{node}' does not answer")));
        }
        let (board, spaces, _) = self.boards[node].clone();
        let line = Open(self.open.clone());
        if line.0.fetch_add(1, Ordering::Relaxed) >= self.most.load(Ordering::Relaxed) {
            return Err(Error::limit("too many connections").with_hint("have fewer readers"));
        }
        self.made.fetch_add(1, Ordering::Relaxed);
        let (ours, theirs) = UnixStream::pair().unwrap();
        match way {
            Way::Errands => {
                board.keep(number, theirs)?;
                self.errands.lock().unwrap().insert(number, line);
            }
            Way::Asks => {
                let errands = self.errands.clone();
                thread::spawn(move || {
                    let _line = line;
                    board.serve(theirs, number, &spaces).unwrap();
                    errands.lock().unwrap().remove(&number);
                });
            }
        }
        // Else they end with who has them.
        if self.keeps.load(Ordering::Relaxed) {
            self.lines.lock().unwrap().push(ours.try_clone().unwrap());
        }
        Ok(ours)
    }

    /// Waits until so many connections are open.
    fn until_open(&self, lines: usize) {
        for _ in 0..6000 {
            if self.open.load(Ordering::Relaxed) == lines {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("{} connections are open", self.open.load(Ordering::Relaxed));
    }
}

/// A connection that is open.
#[derive(Debug)]
struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn from(node: &str, pool: &Arc<Pool>) -> Arc<dyn Nodes> {
    Arc::new(From { pool: pool.clone(), node: node.to_owned() })
}

fn read(dir: &Path, node: &str, pool: &Arc<Pool>) -> Read {
    Read { nodes: Some(from(node, pool)), ..common::read(&spaces(dir, node)) }
}

/// The error of a reader that gives up, and was given time enough to hear all this: more and more of it, as nodes answer in their own time.
fn given_up(name: &str, options: &Read, says: &[&str]) -> Error {
    let mut timeout = Duration::from_millis(500);
    loop {
        let e = Reader::open(name, &Read { timeout, ..options.clone() }).unwrap_err();
        assert_eq!(e.kind(), Kind::Timeout, "{e}");
        if says.iter().all(|what| e.message().contains(what)) {
            return e;
        }
        assert!(timeout < Duration::from_secs(100), "{e}");
        timeout *= 2;
    }
}

const SHAPE: [u64; 2] = [300, 7000];

fn values(step: u64, of: &Bounds) -> Vec<u8> {
    let ys = of.start()[0]..of.end(0);
    let at = |y: u64| (of.start()[1]..of.end(1)).map(move |x| step * 100_000_000 + y * 10_000 + x);
    ys.flat_map(at).flat_map(u64::to_le_bytes).collect()
}

fn write(writer: &mut Writer, part: &Bounds) {
    let variable = writer.define(Definition::new("T", DType::U64, SHAPE)).unwrap();
    let step = writer.begin().unwrap();
    writer.put(variable, part, &values(step, part)).unwrap();
    writer.end().unwrap();
}

#[test]
fn a_reader_has_what_programs_of_another_node_write() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c"]);
    let whole = bounds(&[0, 0], &SHAPE);
    thread::scope(|scope| {
        scope.spawn(|| {
            let options = Written { readers: 1, ..written(&spaces(dir.path(), "a")) };
            let mut writer = Writer::open("sim", &options).unwrap();
            (0..5).for_each(|_| write(&mut writer, &whole));
            writer.close().unwrap();
        });
        // It comes before or after the writer.
        let mut reader = Reader::open("sim", &read(dir.path(), "b", &pool)).unwrap();
        let columns = bounds(&[10, 3000], &[200, 1234]);
        for n in 0..5 {
            let step = reader.next_step().unwrap().unwrap();
            assert_eq!(step.number(), n);
            for part in [&whole, &columns] {
                assert!(step.get("T", part).unwrap().bytes() == values(n, part));
            }
        }
        assert!(reader.next_step().unwrap().is_none());
    });
}

#[test]
fn a_pool_that_begins_after_a_reader_is_found() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = Pool::new(dir.path(), &["a", "b"]);
    pool.late.store(4, Ordering::Relaxed);
    let whole = bounds(&[0, 0], &SHAPE);
    let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "a"))).unwrap();
    write(&mut writer, &whole);
    let mut reader = Reader::open("sim", &read(dir.path(), "b", &pool)).unwrap();
    assert_eq!(pool.asked.load(Ordering::Relaxed), 5);
    let step = reader.next_step().unwrap().unwrap();
    assert!(step.get("T", &whole).unwrap().bytes() == values(0, &whole));
}

#[test]
fn where_there_is_no_pool_a_stream_of_this_node_is_waited_for() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = Pool::new(dir.path(), &["a"]);
    let options = Read { timeout: Duration::from_millis(50), ..read(dir.path(), "a", &pool) };
    let error = Reader::open("sim", &options).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.to_string().contains("nobody writes a stream 'sim'"), "{error}");
    let whole = bounds(&[0, 0], &SHAPE);
    thread::scope(|scope| {
        let reader = scope.spawn(|| Reader::open("sim", &read(dir.path(), "a", &pool)));
        // It has been asked for a pool by both, and waits.
        let before = pool.asked.load(Ordering::Relaxed);
        while pool.asked.load(Ordering::Relaxed) < before + 2 && !reader.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
        let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "a"))).unwrap();
        write(&mut writer, &whole);
        let mut reader = reader.join().unwrap().unwrap();
        assert_eq!(reader.next_step().unwrap().unwrap().number(), 0);
        drop(writer);
    });
}

#[test]
fn writers_of_several_nodes_are_one_stream() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c"]);
    // Before there is a pool, a part of the stream is not taken for all of it.
    pool.late.store(10, Ordering::Relaxed);
    thread::scope(|scope| {
        for (fabric, node) in Local::over_nodes(&[0, 0, 1], LONG).into_iter().zip(["a", "a", "c"]) {
            let spaces = spaces(dir.path(), node);
            scope.spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                let coupling = Coupling::new(fabric, "simulation", &spaces, LONG).unwrap();
                let (rank, writers) = (coupling.rank(), coupling.ranks());
                let options = Written {
                    rank,
                    writers,
                    readers: 1,
                    coupling: Some(coupling),
                    ..written(&spaces)
                };
                let mut writer = Writer::open("sim", &options).unwrap();
                let part = bounds(&[rank * 100, 0], &[100, SHAPE[1]]);
                (0..3).for_each(|_| write(&mut writer, &part));
                writer.close().unwrap();
            });
        }
        // One of two readers is where a part of it is written.
        for (rank, node) in ["b", "c"].into_iter().enumerate() {
            let options = Read { rank: rank as u64, ranks: 2, ..read(dir.path(), node, &pool) };
            scope.spawn(move || {
                let mut reader = Reader::open("sim", &options).unwrap();
                let part = bounds(&[50, 10], &[200, 20]);
                for n in 0..3 {
                    let step = reader.next_step().unwrap().unwrap();
                    assert!(step.get("T", &part).unwrap().bytes() == values(n, &part));
                }
                assert!(reader.next_step().unwrap().is_none());
            });
        }
    });
}

#[test]
fn steps_that_have_gone_from_memory_come_from_files_of_the_node() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b"]);
    let part = bounds(&[10, 3000], &[200, 12]);
    let persist = Some(dir.path().join("disk").to_str().unwrap().to_owned());
    let options = Written { persist, ..written(&spaces(dir.path(), "a")) };
    let mut writer = Writer::open("sim", &options).unwrap();
    (0..6).for_each(|_| write(&mut writer, &part));
    // On another node, and on the same one.
    for node in ["b", "a"] {
        let first = Read {
            start: Start::First,
            behind: Behind::Spill,
            group: node.to_owned(),
            ..read(dir.path(), node, &pool)
        };
        let mut reader = Reader::open("sim", &first).unwrap();
        for n in 0..6 {
            let step = reader.next_step().unwrap().unwrap();
            assert_eq!((step.number(), step.dropped()), (n, 0));
            assert!(step.get("T", &part).unwrap().bytes() == values(n, &part));
        }
        write(&mut writer, &part);
        assert_eq!(reader.next_step().unwrap().unwrap().number(), 6);
        assert_eq!(reader.at(2).unwrap().get("T", &part).unwrap().bytes(), values(2, &part));
        if node == "a" {
            assert_eq!(reader.next_step().unwrap().unwrap().number(), 7);
        }
    }
}

#[test]
fn what_is_written_here_is_not_looked_for_elsewhere() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b"]);
    let whole = bounds(&[0, 0], &SHAPE);
    let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "b"))).unwrap();
    write(&mut writer, &whole);
    let mut reader = Reader::open("sim", &read(dir.path(), "b", &pool)).unwrap();
    assert_eq!(pool.asked.load(Ordering::Relaxed), 0);
    assert_eq!(reader.next_step().unwrap().unwrap().number(), 0);
}

#[test]
fn nodes_that_are_gone_are_left_out_and_told() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c"]);
    pool.gone.lock().unwrap().push("b".to_owned());
    let options = Read { start: Start::Next, ..read(dir.path(), "d", &pool) };
    given_up("sim", &options, &["any of 4 nodes", "node 'b' is gone"]);
    // It is elsewhere.
    let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "c"))).unwrap();
    let mut reader = Reader::open("sim", &options).unwrap();
    let whole = bounds(&[0, 0], &SHAPE);
    write(&mut writer, &whole);
    let step = reader.next_step().unwrap().unwrap();
    // A daemon that ends takes its readers' connections with it; what was got stays.
    let array = step.get("T", &whole).unwrap();
    pool.boards["c"].2.cancel();
    let e = loop {
        match reader.next_step() {
            Err(e) if e.kind() == Kind::Timeout => {}
            other => break other.unwrap_err(),
        }
    };
    assert_eq!(e.kind(), Kind::Peer);
    assert!(e.to_string().contains("node 'c'"), "{e}");
    assert!(array.bytes() == values(0, &whole));
    // Nobody is waited for.
    (0..8).for_each(|_| write(&mut writer, &whole));
}

#[test]
fn nodes_without_writers_are_asked_by_few_connections_and_keep_none() {
    let dir = common::dir();
    let names: Vec<String> = (0..70).map(|n| format!("n{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let pool = Pool::new(dir.path(), &names);
    // Fewer than there are nodes, or looks at a time.
    pool.most.store(8, Ordering::Relaxed);
    let whole = bounds(&[0, 0], &SHAPE);
    // All have counted them before one goes.
    let counted = Barrier::new(3);
    thread::scope(|scope| {
        for rank in 0..2 {
            let options = Read { rank, ranks: 2, ..read(dir.path(), "n3", &pool) };
            let (pool, whole, counted) = (&pool, &whole, &counted);
            scope.spawn(move || {
                let mut reader = Reader::open("sim", &options).unwrap();
                let step = reader.next_step().unwrap().unwrap();
                // Two connections of each reader stay, to the node that has the stream.
                pool.until_open(4);
                counted.wait();
                assert!(step.get("T", whole).unwrap().bytes() == values(0, whole));
                assert!(reader.next_step().unwrap().is_none());
            });
        }
        let options = Written { readers: 1, ..written(&spaces(dir.path(), "n66")) };
        let mut writer = Writer::open("sim", &options).unwrap();
        write(&mut writer, &whole);
        pool.until_open(4);
        counted.wait();
        writer.close().unwrap();
    });
}

#[test]
fn a_few_nodes_are_asked_again_by_the_same_connections_at_first() {
    let dir = common::dir();
    // They are kept for a second, which a machine that has much to do may let pass.
    for n in 0..50 {
        let pool = Pool::new(dir.path(), &["a", "b"]);
        #[allow(clippy::disallowed_methods)]
        let (name, begun) = (format!("sim{n}"), Instant::now());
        let (options, its) = (read(dir.path(), "c", &pool), name.clone());
        let reading = thread::spawn(move || Reader::open(&its, &options).unwrap());
        while pool.made.load(Ordering::Relaxed) < 2 {
            thread::sleep(Duration::from_millis(1));
        }
        // Time for some more looks.
        thread::sleep(Duration::from_millis(50));
        let mut writer = Writer::open(&name, &written(&spaces(dir.path(), "a"))).unwrap();
        let mut reader = reading.join().unwrap();
        if begun.elapsed() < Duration::from_millis(900) {
            // One to each of them, and one more to the node that has the stream; the other one has none any more.
            assert_eq!(pool.made.load(Ordering::Relaxed), 3);
            pool.until_open(2);
            write(&mut writer, &bounds(&[0, 0], &SHAPE));
            assert_eq!(reader.next_step().unwrap().unwrap().number(), 0);
            return;
        }
    }
    panic!("a look takes longer than a second each time");
}

#[test]
fn a_connection_that_has_ended_since_it_was_asked_by_is_made_anew() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b"]);
    pool.keeps.store(true, Ordering::Relaxed);
    let options = read(dir.path(), "c", &pool);
    let reading = thread::spawn(move || Reader::open("sim", &options).unwrap());
    while pool.made.load(Ordering::Relaxed) < 2 {
        thread::sleep(Duration::from_millis(1));
    }
    let shut = |line: UnixStream| line.shutdown(std::net::Shutdown::Both).unwrap();
    pool.lines.lock().unwrap().drain(..).for_each(shut);
    let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "a"))).unwrap();
    let mut reader = reading.join().unwrap();
    write(&mut writer, &bounds(&[0, 0], &SHAPE));
    assert_eq!(reader.next_step().unwrap().unwrap().number(), 0);
}

#[test]
fn a_reader_that_finds_too_many_connections_is_told_so_and_what_to_do() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a"]);
    let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "a"))).unwrap();
    write(&mut writer, &bounds(&[0, 0], &SHAPE));
    // A look is all that there may be, and a reader has two.
    pool.most.store(1, Ordering::Relaxed);
    let said = "and not all were reached: too many connections";
    let e = given_up("sim", &read(dir.path(), "b", &pool), &[said]);
    assert_eq!(e.hint(), Some("have fewer readers"));
    assert!(e.message().contains("stream 'sim'") && e.message().ends_with(said), "{e}");
    pool.most.store(2, Ordering::Relaxed);
    let mut reader = Reader::open("sim", &read(dir.path(), "b", &pool)).unwrap();
    assert_eq!(reader.next_step().unwrap().unwrap().number(), 0);
}

#[test]
fn a_node_that_does_not_answer_keeps_nobody_from_the_others() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c", "d"]);
    pool.hung.lock().unwrap().extend(["a".to_owned(), "c".to_owned()]);
    let whole = bounds(&[0, 0], &SHAPE);
    let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "b"))).unwrap();
    write(&mut writer, &whole);
    // Far longer than a test may take.
    let long = Read { timeout: Duration::from_secs(36_000), ..read(dir.path(), "d", &pool) };
    let mut reader = Reader::open("sim", &long).unwrap();
    assert_eq!(reader.next_step().unwrap().unwrap().number(), 0);
    // Who is told to stop does so, and a time is one for all of them.
    let stop = Cancel::new();
    let options = Read { stop: stop.clone().into(), ..long.clone() };
    let stopped = thread::spawn(move || Reader::open("other", &options).unwrap_err());
    stop.cancel();
    assert_eq!(stopped.join().unwrap().kind(), Kind::Cancelled);
    given_up("other", &long, &["any of 4 nodes", "node 'a'"]);
}

#[test]
fn who_is_gone_without_a_farewell_has_died_and_nobody_waits_for_its_group() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b"]);
    pool.keeps.store(true, Ordering::Relaxed);
    let part = bounds(&[0, 0], &[1, 10]);
    let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "a"))).unwrap();
    let read = Read { ranks: 2, ..read(dir.path(), "b", &pool) };
    let mut reader = Reader::open("sim", &read).unwrap();
    write(&mut writer, &part);
    assert_eq!(reader.next_step().unwrap().unwrap().number(), 0);
    for line in pool.lines.lock().unwrap().drain(..) {
        line.shutdown(std::net::Shutdown::Both).unwrap();
    }
    (0..8).for_each(|_| write(&mut writer, &part));
    let home = Home::open(&spaces(dir.path(), "a")).unwrap();
    assert_eq!(home.describe("sim").unwrap().readers[0].presence, Presence::Died);
}
