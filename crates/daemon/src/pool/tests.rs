//! Pools of threads: tunnels in order, of bounded size, to nobody else, and ended with the daemons at their ends.

use super::word::{self, CHUNK, Word};
use super::{HAIL, Pool, TAG, tunnel::WINDOW};
use crate::clock;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use stead_core::Kind;
use stead_fabric::{Fabric, Local};

const WITHIN: Duration = Duration::from_secs(120);

/// Pools of so many nodes, `n0` and on.
fn pools(n: usize) -> Vec<Pool> {
    let begin = |(rank, fabric): (usize, Local)| {
        std::thread::spawn(move || Pool::begin(Arc::new(fabric), &format!("n{rank}")).unwrap())
    };
    let all: Vec<_> = Local::group(n).into_iter().enumerate().map(begin).collect();
    all.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// A connection to a node, and what comes out there.
fn through(from: &Pool, to: &Pool, node: &str) -> (UnixStream, UnixStream) {
    let (near, given) = UnixStream::pair().unwrap();
    from.reach(7, "ada", node, given);
    let asked = come(to);
    assert_eq!((asked.user, &*asked.name), (7, "ada"));
    for stream in [&near, &asked.stream] {
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        stream.set_write_timeout(Some(WITHIN)).unwrap();
    }
    (near, asked.stream)
}

fn come(pool: &Pool) -> super::Asked {
    assert!(crate::socket::is_readable(pool.bell(), Some(WITHIN)).unwrap(), "nobody has come");
    pool.asked().pop().unwrap()
}

/// What a program is told that is sent away.
fn told(mut stream: UnixStream) -> stead_core::Error {
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    let answer = crate::frame::read::<crate::protocol::Answer>(&mut stream).unwrap().unwrap();
    let crate::protocol::Answer::Failed(failed) = answer else { panic!("{answer:?}") };
    assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the connection is closed");
    failed.into()
}

fn refused(pool: &Pool, node: &str) -> stead_core::Error {
    let (near, given) = UnixStream::pair().unwrap();
    pool.reach(7, "ada", node, given);
    told(near)
}

#[test]
fn bytes_come_out_in_order_both_ways() {
    let pools = pools(3);
    let (a, b) = through(&pools[0], &pools[2], "n2");
    let (c, d) = through(&pools[2], &pools[0], "n0");
    let bytes: Vec<u8> =
        (0..9_000_001u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::thread::scope(|scope| {
        for (mut from, mut to) in [(&a, &b), (&b, &a), (&c, &d)] {
            let bytes = &bytes;
            scope.spawn(move || from.write_all(bytes).unwrap());
            scope.spawn(move || {
                let mut got = vec![0; bytes.len()];
                to.read_exact(&mut got).unwrap();
                assert!(got == *bytes, "other bytes came");
            });
        }
    });
    // What was said before the end comes, and then the end.
    (&b).write_all(b"last").unwrap();
    drop(b);
    let mut last = Vec::new();
    (&a).read_to_end(&mut last).unwrap();
    assert_eq!(last, b"last");
    drop(c);
    assert_eq!((&d).read(&mut [0; 8]).unwrap(), 0);
}

#[test]
fn a_connection_on_which_nobody_says_anything_for_long_stays() {
    let pools = pools(2);
    let (near, given) = UnixStream::pair().unwrap();
    // As a worker leads it here, which waits for so long for frames.
    let short = Some(Duration::from_millis(20));
    given.set_read_timeout(short).unwrap();
    given.set_write_timeout(short).unwrap();
    pools[0].reach(7, "ada", "n1", given);
    let far = come(&pools[1]).stream;
    std::thread::sleep(Duration::from_millis(200));
    near.set_read_timeout(Some(WITHIN)).unwrap();
    far.set_read_timeout(Some(WITHIN)).unwrap();
    for (mut from, mut to) in [(&near, &far), (&far, &near)] {
        from.write_all(b"still").unwrap();
        let mut got = [0; 5];
        to.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"still");
    }
    // Nor is it closed when its program takes nothing for as long.
    let sent = std::thread::spawn(move || (&far).write_all(&vec![7; 4 << 20]));
    std::thread::sleep(Duration::from_millis(200));
    let mut got = vec![0; 4 << 20];
    (&near).read_exact(&mut got).unwrap();
    sent.join().unwrap().unwrap();
}

#[test]
fn who_does_not_read_keeps_nobody_else_waiting() {
    let pools = pools(2);
    let (slow, unread) = through(&pools[0], &pools[1], "n1");
    let sent = std::thread::spawn({
        let mut slow = slow.try_clone().unwrap();
        move || slow.write_all(&vec![7; 4 * WINDOW])
    });
    for _ in 0..20 {
        let (mut a, mut b) = through(&pools[0], &pools[1], "n1");
        a.write_all(b"quick").unwrap();
        let mut got = [0; 5];
        b.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"quick");
    }
    assert!(!sent.is_finished(), "more was taken than there is room for");
    // It goes on once somebody reads.
    let mut got = vec![0; 4 * WINDOW];
    (&unread).read_exact(&mut got).unwrap();
    sent.join().unwrap().unwrap();
    assert!(got.iter().all(|b| *b == 7));
}

/// Writes at both ends, until nothing has been taken for a while: how much was at each.
fn fill(ends: [&UnixStream; 2]) -> [usize; 2] {
    ends.iter().for_each(|end| end.set_nonblocking(true).unwrap());
    let bytes = vec![7; 64 << 10];
    let (mut written, mut still) = ([0; 2], 0);
    while still < 100 {
        still += 1;
        for (mut end, written) in ends.into_iter().zip(&mut written) {
            while let Ok(n) = end.write(&bytes) {
                *written += n;
                still = 0;
            }
        }
        clock::pause(Duration::from_millis(2));
    }
    written
}

#[test]
fn what_is_full_both_ways_ends_with_its_programs() {
    let pools = pools(2);
    let (near, far) = through(&pools[0], &pools[1], "n1");
    let written = fill([&near, &far]);
    assert!(written.iter().all(|n| *n > WINDOW), "{written:?}");
    drop(near);
    drop(far);
    // Each end waits for the other one to pass on what nobody will read.
    let until = clock::now() + WITHIN;
    for pool in &pools {
        while !pool.shared.all().is_empty() {
            assert!(clock::now() < until, "a tunnel is left");
            clock::pause(Duration::from_millis(2));
        }
    }
}

#[test]
fn what_a_program_has_said_last_comes_though_it_has_not_read_all() {
    let pools = pools(2);
    let (near, far) = through(&pools[0], &pools[1], "n1");
    let [written, _] = fill([&near, &far]);
    drop(near);
    far.set_nonblocking(false).unwrap();
    let mut got = Vec::new();
    (&far).read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), written);
}

#[test]
fn nodes_that_are_not_there_are_told() {
    let mut pools = pools(3);
    let none = refused(&pools[0], "elsewhere");
    assert!(none.kind() == Kind::NotFound && none.to_string().contains("'elsewhere'"), "{none}");
    assert!(none.hint().is_some_and(|hint| hint.contains("n0, n1, n2")));
    assert_eq!(refused(&pools[0], "n0").kind(), Kind::Usage);
    let (a, _b) = through(&pools[0], &pools[2], "n2");
    drop(pools.pop());
    // One that has heard nothing yet is told why, and so is a new one.
    let gone = told(a);
    assert!(gone.kind() == Kind::Peer && gone.to_string().contains("'n2'"), "{gone}");
    let gone = refused(&pools[0], "n2");
    assert!(gone.kind() == Kind::Peer && gone.to_string().contains("'n2'"), "{gone}");
    // Others go on.
    let (mut c, mut d) = through(&pools[0], &pools[1], "n1");
    c.write_all(b"x").unwrap();
    d.read_exact(&mut [0]).unwrap();
}

#[test]
fn a_user_has_so_many() {
    let pools = pools(3);
    let all: Vec<_> =
        (0..super::MOST_OF_USER).map(|_| through(&pools[0], &pools[1], "n1")).collect();
    assert_eq!(refused(&pools[0], "n1").kind(), Kind::Limit);
    // The one at the other end has as many, too: that is told as by this one.
    let far = refused(&pools[2], "n1");
    assert!(far.kind() == Kind::Limit && far.to_string().contains("on node 'n1'"), "{far}");
    assert!(far.hint().is_some_and(|hint| hint.starts_with("try again")));
    drop(all);
    // Another user is none of them.
    let (_near, given) = UnixStream::pair().unwrap();
    pools[0].reach(8, "bob", "n1", given);
    assert_eq!(come(&pools[1]).name, "bob");
}

#[test]
fn a_daemon_that_floods_loses_its_tunnel_alone() {
    let mut ranks = Local::group(2);
    let other = ranks.pop().unwrap();
    let hail =
        format!(r#"{{"language": 1, "version": "{}", "node": "odd"}}"#, env!("CARGO_PKG_VERSION"));
    other.send(0, HAIL, hail.into_bytes()).unwrap();
    let pool = Pool::begin(Arc::new(ranks.pop().unwrap()), "n0").unwrap();
    let say = |number, word: &Word<'_>| {
        other.send(0, TAG, word::write(true, number, word)).unwrap();
    };
    // Words that are none, about tunnels that are none, and one that opens what is open.
    other.send(0, TAG, vec![9; 3]).unwrap();
    say(5, &Word::Data(b"x"));
    say(5, &Word::Credit(1));
    say(1, &Word::Open { user: 7, name: "ada" });
    let unread = come(&pool).stream;
    say(1, &Word::Open { user: 7, name: "ada" });
    say(2, &Word::Open { user: 7, name: "ada" });
    let mut well = come(&pool).stream;
    for _ in 0..2 * WINDOW / CHUNK {
        say(1, &Word::Data(&vec![1; CHUNK]));
    }
    say(2, &Word::Data(b"fine"));
    let mut got = [0; 4];
    well.set_read_timeout(Some(WITHIN)).unwrap();
    well.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"fine");
    // It has ended, with some of the bytes or none.
    let mut rest = Vec::new();
    unread.set_read_timeout(Some(WITHIN)).unwrap();
    let _ = (&unread).read_to_end(&mut rest);
    assert!(rest.len() < 2 * WINDOW);
}

#[test]
fn what_is_said_after_the_end_goes_nowhere() {
    let mut ranks = Local::group(2);
    let other = ranks.pop().unwrap();
    let hail =
        format!(r#"{{"language": 1, "version": "{}", "node": "odd"}}"#, env!("CARGO_PKG_VERSION"));
    other.send(0, HAIL, hail.into_bytes()).unwrap();
    let pool = Pool::begin(Arc::new(ranks.pop().unwrap()), "n0").unwrap();
    let (near, given) = UnixStream::pair().unwrap();
    pool.reach(7, "ada", "odd", given);
    let opened = other.recv_within(0, TAG, WITHIN).unwrap().unwrap();
    let (_, number, _) = word::read(&opened).unwrap();
    // More than the program takes: it goes out later than the end is heard of.
    for _ in 0..WINDOW / CHUNK {
        let data = Word::Data(&[1; CHUNK]);
        other.send(0, TAG, word::write(false, number, &data)).unwrap();
    }
    other.send(0, TAG, word::write(false, number, &Word::Close)).unwrap();
    // Words are heard in order.
    other.send(0, TAG, word::write(true, 1, &Word::Open { user: 7, name: "ada" })).unwrap();
    let _after = come(&pool);
    near.set_write_timeout(Some(WITHIN)).unwrap();
    (&near).write_all(&vec![7; 1 << 20]).unwrap();
    // All that the other end has said comes; of what was said to it, no word has a byte.
    let mut got = Vec::new();
    near.set_read_timeout(Some(WITHIN)).unwrap();
    (&near).read_to_end(&mut got).unwrap();
    assert_eq!(got.len(), WINDOW);
    drop(pool);
    let mut words = 0;
    while let Ok(Some(bytes)) = other.recv_within(0, TAG, Duration::ZERO) {
        words += usize::from(matches!(word::read(&bytes), Ok((_, _, Word::Data(_)))));
    }
    assert!(words < 100, "{words} words");
}

#[test]
fn daemons_of_one_name_are_refused_by_all() {
    let begin = |fabric: Local| {
        std::thread::spawn(move || Pool::begin(Arc::new(fabric), "same").err().unwrap())
    };
    let all: Vec<_> = Local::group(2).into_iter().map(begin).collect();
    for thread in all {
        let e = thread.join().unwrap();
        assert!(e.kind() == Kind::Usage && e.to_string().contains("'same'"), "{e}");
    }
}
