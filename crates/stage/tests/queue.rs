//! The queue of a journal: turns, what comes before what, and who goes on.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Kind, Location};
use stead_stage::{Action, Means, Options, Queue, Request, Share, Stager, State};
use tempfile::TempDir;

const LONG: Duration = Duration::from_secs(60);

struct Place {
    dir: TempDir,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("f"), b"bytes").unwrap();
        Place { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn queue(&self) -> Queue {
        self.queue_of(Means::default())
    }

    fn queue_of(&self, means: Means) -> Queue {
        let stager = Stager::open(&self.path("state"), means).unwrap();
        Queue::open(Arc::new(stager), || {}).unwrap()
    }

    /// A dataspace with one transfer at a time.
    fn tier(&self) -> Means {
        fs::create_dir(self.path("tier")).unwrap();
        let path = self.path("tier");
        let text = format!("[dataspace.tier]\npath = \"{}\"\ntransfers = 1\n", path.display());
        Means { spaces: Spaces::parse(&text, &|_| None).unwrap(), ..Means::default() }
    }

    fn copy(&self, target: &str, priority: i32) -> Request {
        let location =
            |name| Location::parse(self.path(name).to_str().unwrap(), &|_| None).unwrap();
        Request {
            action: Action::Copy,
            sources: vec![location("f")],
            target: Some(location(target)),
            options: Options { priority, ..Options::default() },
        }
    }
}

/// The order in which they began.
fn began(queue: &Queue, ids: &[i64]) -> Vec<i64> {
    let mut all: Vec<(f64, i64)> = (ids.iter())
        .map(|id| {
            let standing = queue.wait(*id, LONG).unwrap();
            assert_eq!(standing.status.state, State::Finished, "{:?}", standing.status);
            (standing.status.started.unwrap(), *id)
        })
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.into_iter().map(|(_, id)| id).collect()
}

#[test]
fn who_is_more_urgent_goes_first_and_nobody_before_what_comes_before() {
    let p = Place::new();
    let queue = p.queue();
    let low = queue.submit(&p.copy("low", -3), &[]).unwrap();
    let held = queue.submit(&p.copy("held", 100), &[low]).unwrap();
    let first = queue.submit(&p.copy("first", 0), &[]).unwrap();
    let second = queue.submit(&p.copy("second", 0), &[]).unwrap();
    let high = queue.submit(&p.copy("high", 7), &[]).unwrap();
    assert_eq!(queue.load(100).unwrap().ready, 4);
    assert_eq!((queue.waiting().unwrap(), queue.load(2).unwrap().ready), (5, 2));
    assert_eq!(queue.standing(high).unwrap().status.state, State::Pending);
    for id in [low, held, high] {
        let left = queue.left(id).unwrap();
        assert!(left.low <= left.seconds && left.seconds <= left.high && left.high.is_finite());
    }
    // Nobody has seen one of the three that are ahead of what it waits for: a second each.
    assert!(queue.left(held).unwrap().seconds >= 3.0, "{:?}", queue.left(held).unwrap());
    assert!(queue.left(high).unwrap().seconds < 1.0);
    queue.set_slots(1);
    assert_eq!(began(&queue, &[low, held, first, second, high]), [high, first, second, low, held]);
    assert_eq!(queue.left(high).unwrap().high, 0.0);
    let totals = queue.totals().unwrap();
    let finished = totals.iter().find(|t| t.state == State::Finished).unwrap();
    assert_eq!((finished.transfers, finished.files_done, finished.bytes_done), (5, 5, 25));
    assert_eq!(totals.iter().map(|t| t.transfers).sum::<u64>(), 5);
}

#[test]
fn what_is_not_there_yet_takes_as_long_as_what_makes_it() {
    let p = Place::new();
    // A hole, which nobody moves here.
    fs::File::create(p.path("big")).unwrap().set_len(8 << 30).unwrap();
    let queue = p.queue();
    let copy = |from: &str, to: &str, after: &[i64]| {
        let from = Location::parse(p.path(from).to_str().unwrap(), &|_| None).unwrap();
        queue.submit(&Request { sources: vec![from], ..p.copy(to, 0) }, after).unwrap()
    };
    let first = copy("big", "made", &[]);
    let second = copy("made", "copied", &[first]);
    let third = copy("copied", "last", &[second]);
    // Of this one nobody knows how much it will be.
    let odd = copy("elsewhere", "odd", &[first]);
    let left = |id| queue.left(id).unwrap();
    let one = left(first).seconds;
    assert!(one > 10.0, "{:?}", left(first));
    for (id, times) in [(second, 2.0), (third, 3.0), (odd, 1.1)] {
        let left = left(id);
        assert!(left.seconds >= 0.99 * times * one, "{left:?} {one}");
        assert!(left.low <= left.seconds && left.seconds <= left.high && left.high.is_finite());
    }
}

#[test]
fn what_comes_after_something_that_fails_is_cancelled() {
    let p = Place::new();
    let queue = p.queue();
    let mut bad = p.copy("to", 0);
    bad.sources = vec![Location::parse("/no/such/file", &|_| None).unwrap()];
    let bad = queue.submit(&bad, &[]).unwrap();
    let next = queue.submit(&p.copy("a", 0), &[bad]).unwrap();
    let last = queue.submit(&p.copy("b", 0), &[next, bad]).unwrap();
    let other = queue.submit(&p.copy("c", 0), &[]).unwrap();
    queue.set_slots(2);
    assert_eq!(queue.wait(bad, LONG).unwrap().status.state, State::Failed);
    for id in [next, last] {
        let status = queue.wait(id, LONG).unwrap().status;
        assert_eq!(status.state, State::Cancelled);
        assert!(status.error.unwrap().contains("was not finished"));
    }
    assert_eq!(queue.wait(other, LONG).unwrap().status.state, State::Finished);
    let e = queue.submit(&p.copy("d", 0), &[bad]).unwrap_err();
    assert!(
        e.kind() == Kind::Usage && e.to_string().contains("never") || e.hint().is_some(),
        "{e}"
    );
    assert_eq!(queue.submit(&p.copy("d", 0), &[999]).unwrap_err().kind(), Kind::Usage);
    // What could not be taken is not done.
    assert_eq!(queue.waiting().unwrap(), 0);
    // It is finished already: nothing is waited for.
    let after = queue.submit(&p.copy("d", 0), &[other]).unwrap();
    assert_eq!(queue.wait(after, LONG).unwrap().status.state, State::Finished);
    assert!(!p.path("a").exists() && !p.path("b").exists() && p.path("d").exists());
}

#[test]
fn what_waits_is_cancelled_and_what_failed_is_done_again() {
    let p = Place::new();
    let queue = p.queue();
    let one = queue.submit(&p.copy("one", 0), &[]).unwrap();
    let two = queue.submit(&p.copy("two", 0), &[]).unwrap();
    assert_eq!(queue.cancel(one).unwrap().state, State::Cancelled);
    assert_eq!(queue.cancel(one).unwrap_err().kind(), Kind::Usage);
    assert_eq!(queue.resume(one).unwrap_err().kind(), Kind::Usage);
    fs::remove_file(p.path("f")).unwrap();
    queue.set_slots(1);
    assert_eq!(queue.wait(two, LONG).unwrap().status.state, State::Failed);
    fs::write(p.path("f"), b"again").unwrap();
    queue.resume(two).unwrap();
    // It waits, is under way or has ended by now: not as before in any case.
    let mut state = queue.wait(two, LONG).unwrap().status.state;
    while state == State::Interrupted {
        state = queue.wait(two, LONG).unwrap().status.state;
    }
    assert_eq!((state, fs::read(p.path("two")).unwrap()), (State::Finished, b"again".to_vec()));
    assert_eq!(queue.standing(999).unwrap_err().kind(), Kind::Usage);
    assert!(!p.path("one").exists());
}

#[test]
fn what_has_failed_just_now_is_done_again() {
    let p = Place::new();
    let queue = p.queue();
    queue.set_slots(1);
    for i in 0..200 {
        fs::remove_file(p.path("f")).unwrap();
        let id = queue.submit(&p.copy(&format!("t{i}"), 0), &[]).unwrap();
        while queue.standing(id).unwrap().status.state != State::Failed {
            std::thread::yield_now();
        }
        fs::write(p.path("f"), b"again").unwrap();
        queue.resume(id).unwrap();
        assert_eq!(queue.wait(id, LONG).unwrap().status.state, State::Finished, "{i}");
    }
}

#[test]
fn whoever_opens_the_journal_goes_on() {
    let p = Place::new();
    let ids: Vec<i64> = {
        let queue = p.queue();
        // A few are done, and one is under way or not when it ends.
        let ids = (0..200).map(|i| queue.submit(&p.copy(&format!("t{i}"), 0), &[]).unwrap());
        let ids: Vec<i64> = ids.collect();
        queue.set_slots(3);
        queue.wait(ids[4], LONG).unwrap();
        ids
    };
    let queue = p.queue();
    queue.set_slots(8);
    let done: BTreeSet<i64> = began(&queue, &ids).into_iter().collect();
    assert_eq!(done.len(), 200);
    let there = fs::read_dir(p.dir.path()).unwrap().flatten();
    let names = there.map(|e| e.file_name().into_string().unwrap());
    assert_eq!(names.filter(|n| n.starts_with('t') || n.starts_with('.')).count(), 200);
}

/// Waits until one waits for something.
fn waits(queue: &Queue, id: i64, what: &str) {
    let does = || {
        let status = queue.wait(id, Duration::from_millis(10)).unwrap().status;
        status.state == State::Pending && status.waits.as_deref().unwrap().contains(what)
    };
    assert!((0..6000).any(|_| does()), "{:?}", queue.standing(id));
}

#[test]
fn a_dataspace_without_a_seat_holds_up_only_those_who_touch_it() {
    let p = Place::new();
    fs::write(p.path("f"), vec![1; 4 << 20]).unwrap();
    let queue = p.queue_of(p.tier());
    std::os::unix::fs::symlink(p.path("tier"), p.path("link")).unwrap();
    let mut slow = p.copy("tier/slow", 9);
    slow.options.limit = Some(1000);
    let slow = queue.submit(&slow, &[]).unwrap();
    let urgent = queue.submit(&p.copy("tier/urgent", 8), &[]).unwrap();
    let second = queue.submit(&p.copy("tier/second", 1), &[]).unwrap();
    // What it touches is found when it is begun.
    let linked = queue.submit(&p.copy("link/linked", 2), &[]).unwrap();
    let beside = queue.submit(&p.copy("beside", 0), &[]).unwrap();
    queue.set_slots(3);
    assert_eq!(queue.wait(beside, LONG).unwrap().status.state, State::Finished);
    for id in [urgent, second, linked] {
        waits(&queue, id, "dataspace 'tier' has one transfer at a time");
    }
    assert_eq!(queue.standing(slow).unwrap().status.state, State::Running);
    assert!(queue.left(second).unwrap().seconds >= queue.left(urgent).unwrap().seconds);
    let after = queue.submit(&p.copy("after", 0), &[second]).unwrap();
    waits(&queue, after, &format!("transfer {second} comes before it"));
    queue.cancel(slow).unwrap();
    assert_eq!(began(&queue, &[urgent, second, linked]), [urgent, linked, second]);
    assert_eq!(queue.wait(after, LONG).unwrap().status.state, State::Finished);
    assert!(p.path("tier/linked").exists() && !p.path("tier/slow").exists());
}

#[test]
fn a_share_says_what_may_begin_and_is_told_of() {
    let p = Place::new();
    fs::write(p.path("f"), vec![1; 4 << 20]).unwrap();
    let tier = p.tier();
    let queue = p.queue_of(Means { common: Some(tier.spaces.clone()), ..tier });
    let (kind, none) = (vec!["tier".to_owned()], Vec::new());
    let mut slow = p.copy("tier/slow", 0);
    slow.options.limit = Some(1000);
    let slow = queue.submit(&slow, &[]).unwrap();
    let second = queue.submit(&p.copy("tier/second", 0), &[]).unwrap();
    let beside = queue.submit(&p.copy("beside", 5), &[]).unwrap();
    let load = queue.load(10).unwrap();
    let kinds: Vec<_> = load.kinds.iter().map(|k| (&k.touches, k.running, k.ready)).collect();
    assert_eq!(kinds, [(&none, 0, 1), (&kind, 0, 2)]);
    assert_eq!((load.seen, load.next), (0, vec![0, 1, 1]));
    let share = |number, kinds: &[(&Vec<String>, usize)], full: &[&str]| Share {
        number,
        kinds: kinds.iter().map(|(kind, n)| ((*kind).clone(), *n)).collect(),
        full: full.iter().map(|name| (*name).to_owned()).collect(),
        ..Share::default()
    };
    // One of these, and none that touches nothing.
    queue.set_share(share(7, &[(&kind, 1)], &["tier"]));
    // It is begun a moment before that is written down.
    let load = loop {
        let load = queue.load(10).unwrap();
        if (load.running, load.ready) == (1, 2) {
            break load;
        }
        std::thread::yield_now();
    };
    assert_eq!(load.seen, 7);
    assert_eq!(load.kinds[0].touches, kind);
    waits(&queue, second, "dataspace 'tier'");
    waits(&queue, beside, "its turn");
    // Nobody is stopped where less may be done.
    queue.set_share(share(8, &[(&none, 1)], &["tier"]));
    assert_eq!(queue.wait(beside, LONG).unwrap().status.state, State::Finished);
    assert_eq!(queue.standing(slow).unwrap().status.state, State::Running);
    queue.cancel(slow).unwrap();
    waits(&queue, second, "dataspace 'tier'");
    queue.set_share(share(9, &[(&kind, 1)], &[]));
    assert_eq!(queue.wait(second, LONG).unwrap().status.state, State::Finished);
}

#[test]
fn what_touches_something_else_is_told_of_while_all_slots_are_taken() {
    let p = Place::new();
    fs::write(p.path("f"), vec![1; 4 << 20]).unwrap();
    let tier = p.tier();
    let means = Means { common: Some(tier.spaces.clone()), ..tier };
    let stager = Arc::new(Stager::open(&p.path("state"), means).unwrap());
    let (tells, told) = std::sync::mpsc::channel();
    let queue = Queue::open(stager, move || {
        let _ = tells.send(());
    })
    .unwrap();
    let mut slow = p.copy("tier/slow", 0);
    slow.options.limit = Some(1000);
    let slow = queue.submit(&slow, &[]).unwrap();
    let kinds = [(vec!["tier".to_owned()], 1)].into_iter().collect();
    queue.set_share(Share { number: 1, kinds, ..Share::default() });
    while queue.load(10).unwrap().running == 0 {
        std::thread::yield_now();
    }
    // Also where its thread is kept from a processor for a while.
    let quiet = || while told.recv_timeout(Duration::from_secs(3)).is_ok() {};
    quiet();
    // Much earlier than the queue looks by itself.
    let soon = Duration::from_secs(30);
    queue.submit(&p.copy("tier/second", 0), &[]).unwrap();
    told.recv_timeout(soon).unwrap();
    quiet();
    // Another one of the same kind is nothing new; one that touches nothing is.
    queue.submit(&p.copy("tier/third", 0), &[]).unwrap();
    assert!(told.recv_timeout(Duration::from_millis(500)).is_err());
    let beside = queue.submit(&p.copy("beside", 0), &[]).unwrap();
    told.recv_timeout(soon).unwrap();
    let kinds = [(Vec::new(), 1)].into_iter().collect();
    queue.set_share(Share { number: 2, kinds, ..Share::default() });
    assert_eq!(queue.wait(beside, LONG).unwrap().status.state, State::Finished);
    queue.cancel(slow).unwrap();
}
