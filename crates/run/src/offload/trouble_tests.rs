//! Ranks that stop, leave, die, or say what makes no sense: whoever waits for them hears of it, and the others go on.

use super::tests::{Cluster, End, job, table, write};
use super::wire::{ANSWERS, ASKS, Answer, Ask, ORDERS, OVER, Order, frame, open};
use super::*;
use crate::spread::Here;
use crate::told::Told;
use crate::{Observer, Report, Snapshot};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::{Block, Error, Kind, Needs, Value};
use stead_fabric::testing::{Between, Meddle};
use stead_fabric::{Fabric, Local};
use stead_kernel::{Kernel, Step};

const LONG: Duration = Duration::from_secs(60);

/// A kernel that always wants another pass.
struct Endless;

impl Kernel for Endless {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { rows: true, ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, _: &mut u64, _: &Block<'_>) -> Result<()> {
        Ok(())
    }

    fn merge(&self, _: &mut u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn finish(&self, _: u64) -> Result<Step> {
        Ok(Step::Next(Arc::new(Endless)))
    }
}

fn endless() -> Serving {
    let make = |name: &str| Ok(Own::new(name, |_| Ok(Endless)));
    Serving { operations: Some(Arc::new(make)), ..Serving::default() }
}

/// What never ends by itself, and what does.
fn jobs(path: &Path) -> (Job, Job) {
    let never = Job { operations: vec!["endless".into()], ..job(path, &[]) };
    (never, job(path, &["rows"]))
}

fn data() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t.csv", table(50));
    (dir, path)
}

fn rows(r: Result<Report>) {
    assert_eq!(r.unwrap().result("rows"), Some(&Value::Int(50)));
}

/// Stops a run as soon as it is told how far it is.
#[derive(Default)]
struct Stops {
    cancel: Cancel,
    told: AtomicU64,
}

impl Observer for Stops {
    fn progress(&self, s: &Snapshot) {
        assert!(s.bytes <= s.total_bytes && s.pass > 0);
        self.told.fetch_add(1, Ordering::Relaxed);
        self.cancel.cancel();
    }
}

#[test]
fn who_has_asked_can_stop_it_and_others_go_on() {
    let (_dir, path) = data();
    for few in [0, 1 << 30] {
        let path = path.clone();
        let cluster = Cluster { few, how: endless(), ..Cluster::of(&["c", "s1", "c", "s2"]) };
        let all = cluster.ask(move |c| {
            let (never, soon) = jobs(&path);
            for _ in 0..3 {
                let watch = Stops::default();
                let e = c.run(&never, &watch.cancel, Some(&watch)).unwrap_err();
                assert_eq!(e.kind(), Kind::Cancelled, "{e}");
                assert!(watch.told.load(Ordering::Relaxed) > 0);
                rows(c.run(&soon, &Cancel::new(), None));
            }
            // While it waits for its turn.
            let first = Stops::default();
            std::thread::scope(|scope| {
                let under_way = scope.spawn(|| c.run(&never, &first.cancel, None));
                let second = Cancel::new();
                second.cancel();
                let e = c.run(&never, &second, None).unwrap_err();
                assert_eq!(e.kind(), Kind::Cancelled);
                first.cancel.cancel();
                assert_eq!(under_way.join().unwrap().unwrap_err().kind(), Kind::Cancelled);
            });
            rows(c.run(&soon, &Cancel::new(), None));
        });
        for end in all {
            if let End::Served(served) = end {
                served.unwrap();
            }
        }
    }
}

#[test]
fn who_closes_is_waited_for_no_longer() {
    let (_dir, path) = data();
    for few in [0, 1 << 30] {
        let path = path.clone();
        let cluster = Cluster { few, how: endless(), ..Cluster::of(&["c", "s1", "c", "s2"]) };
        let all = cluster.ask(move |c| {
            let (never, soon) = jobs(&path);
            let watch = Stops::default();
            std::thread::scope(|scope| {
                let under_way = scope.spawn(|| c.run(&never, &Cancel::new(), Some(&watch)));
                while watch.told.load(Ordering::Relaxed) == 0 && !under_way.is_finished() {
                    std::thread::yield_now();
                }
                c.close();
                // Whichever comes first.
                let e = under_way.join().unwrap().unwrap_err();
                assert!(e.message().contains("was closed") || e.kind() == Kind::Cancelled, "{e}");
            });
            let e = c.run(&soon, &Cancel::new(), None).unwrap_err();
            assert!(e.kind() == Kind::Usage && e.message().contains("was closed"), "{e}");
            c.close();
        });
        assert_eq!(all.iter().filter(|e| matches!(e, End::Served(Ok(_)))).count(), 2);
    }
}

#[test]
fn nobody_need_ask() {
    for hosts in [&["s", "c"][..], &["c", "s1", "s2", "c"]] {
        for end in Cluster::of(hosts).ask(|_| ()) {
            assert!(matches!(end, End::Asked(()) | End::Served(Ok(Served { runs: 0, .. }))));
        }
    }
}

#[test]
fn a_compute_rank_that_dies_is_waited_for_no_longer() {
    let (_dir, path) = data();
    for few in [0, 1 << 30] {
        let (path, how) = (path.clone(), endless());
        let cluster = Cluster { few, leave: &[0], ..Cluster::of(&["c", "s1", "c", "s2"]) };
        cluster.each(move |fabric, roles, here| match (fabric.rank(), roles.of(fabric.rank())) {
            (_, Role::Storage) => {
                serve::serve_by(fabric, &roles, &here, &how, few).unwrap();
            }
            // Two of its asks are under way when it dies.
            (0, _) => {
                for number in 0..2 {
                    let ask = Ask::Run { slot: number as u8, number, watched: false };
                    let ask = frame(&ask, &jobs(&path).0.encode().unwrap()).unwrap();
                    fabric.send(roles.storage()[0], ASKS, ask).unwrap();
                }
                // Until the other one has asked.
                fabric.recv(2, 7).unwrap();
            }
            _ => {
                let client = Client::new(fabric.clone(), roles).unwrap();
                fabric.send(0, 7, vec![]).unwrap();
                rows(client.run(&jobs(&path).1, &Cancel::new(), None));
            }
        });
    }
}

/// What each compute rank gets for two asks if the storage ranks of a cluster do this.
fn two_asks(
    cluster: &Cluster,
    path: &Path,
    first: fn(&Path) -> Job,
    storage: impl Fn(Arc<dyn Fabric>, &Roles, &Here) + Send + Sync + 'static,
) -> Vec<Error> {
    let path = path.to_path_buf();
    let all = cluster.each(move |fabric, roles, here| match roles.of(fabric.rank()) {
        Role::Storage => {
            storage(fabric, &roles, &here);
            Vec::new()
        }
        Role::Compute => {
            let client = Client::new(fabric, roles).unwrap();
            let first = client.run(&first(&path), &Cancel::new(), None).unwrap_err();
            vec![first, client.run(&jobs(&path).1, &Cancel::new(), None).unwrap_err()]
        }
    });
    all.into_iter().flatten().collect()
}

fn is_gone(e: &Error, rank: usize, host: &str) {
    let told = (e.kind(), e.place().rank, e.place().host.as_deref());
    assert_eq!(told, (Kind::Peer, Some(rank), Some(host)), "{e}");
}

#[test]
fn a_storage_rank_that_is_gone_is_named_to_all_who_ask() {
    let (_dir, path) = data();
    let cluster = Cluster { leave: &[3], ..Cluster::of(&["c", "s1", "c", "s2", "s3"]) };
    let errors = two_asks(
        &cluster,
        &path,
        |p| jobs(p).1,
        |fabric, roles, here| {
            if fabric.rank() != 3 {
                serve::serve_by(fabric, roles, here, &Serving::default(), 0).unwrap();
            }
        },
    );
    assert_eq!(errors.len(), 4);
    errors.iter().for_each(|e| is_gone(e, 3, "s2"));
}

#[test]
fn who_asks_for_a_little_hears_of_a_storage_rank_that_is_gone_too() {
    let (_dir, path) = data();
    let cluster = Cluster { leave: &[3], ..Cluster::of(&["c", "s1", "c", "s2"]) };
    let errors = cluster.each(move |fabric, roles, here| match roles.of(fabric.rank()) {
        Role::Storage if fabric.rank() == 3 => Vec::new(),
        Role::Storage => {
            let served = serve::serve_by(fabric, &roles, &here, &Serving::default(), 1 << 30);
            assert_eq!(served.unwrap().failed, 0);
            Vec::new()
        }
        Role::Compute => {
            let client = Client::new(fabric, roles).unwrap();
            let ask = || client.run(&jobs(&path).1, &Cancel::new(), None);
            // The head, which could do it alone, looks from time to time.
            let first = std::iter::repeat_with(ask).find_map(Result::err).unwrap();
            vec![first, ask().unwrap_err()]
        }
    });
    let errors: Vec<Error> = errors.into_iter().flatten().collect();
    assert_eq!(errors.len(), 4);
    errors.iter().for_each(|e| is_gone(e, 3, "s2"));
}

#[test]
fn a_storage_rank_that_panics_stops_all() {
    let (_dir, path) = data();
    let cluster = Cluster::of(&["c", "s1", "c", "s2"]);
    let ends = cluster.each(move |fabric, roles, here| {
        let rank = fabric.rank();
        if roles.of(rank) == Role::Compute {
            let client = Client::new(fabric, roles).unwrap();
            let (never, soon) = jobs(&path);
            let first = client.run(&never, &Cancel::new(), None).unwrap_err();
            assert_eq!(first.kind(), Kind::Cancelled, "{first}");
            return client.run(&soon, &Cancel::new(), None).unwrap_err();
        }
        let panics = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let now = panics.clone();
        let make = move |name: &str| {
            now.store(rank == 3, Ordering::Relaxed);
            Ok(Own::new(name, |_| Ok(Endless)))
        };
        let look = move || assert!(!panics.swap(false, Ordering::Relaxed), "as it was told to");
        let how = Serving {
            operations: Some(Arc::new(make)),
            look: Some(Arc::new(look)),
            ..Serving::default()
        };
        serve::serve_by(fabric, &roles, &here, &how, 0).unwrap_err()
    });
    let kinds: Vec<Kind> = ends.iter().map(Error::kind).collect();
    assert_eq!(kinds, [Kind::Cancelled, Kind::Cancelled, Kind::Cancelled, Kind::Internal]);
}

/// A rank that dies when somebody says so.
struct Dies(Cancel);

impl Meddle for Dies {
    fn check(&self) -> Result<()> {
        if self.0.is_cancelled() {
            Err(Error::new(Kind::Peer, "this rank has died"))
        } else {
            Ok(())
        }
    }
}

#[test]
fn a_storage_rank_that_dies_in_a_run_is_named_to_all_who_ask() {
    let (_dir, path) = data();
    let dies = Cancel::new();
    // As soon as the run goes.
    let made = (dies.clone(), AtomicU64::new(0));
    let make = move |name: &str| {
        if made.1.fetch_add(1, Ordering::Relaxed) == 2 {
            made.0.cancel();
        }
        Ok(Own::new(name, |_| Ok(Endless)))
    };
    let how = Serving { operations: Some(Arc::new(make)), ..Serving::default() };
    let cluster = Cluster { leave: &[3], ..Cluster::of(&["c", "s1", "c", "s2", "s3"]) };
    let errors = two_asks(
        &cluster,
        &path,
        |p| jobs(p).0,
        move |fabric, roles, here| {
            if fabric.rank() == 3 {
                let between: Arc<dyn Fabric> = Arc::new(Between::new(fabric, Dies(dies.clone())));
                let e = serve::serve_by(between, roles, here, &how, 0).unwrap_err();
                assert_eq!(e.message(), "this rank has died");
            } else {
                serve::serve_by(fabric, roles, here, &how, 0).unwrap();
            }
        },
    );
    errors.iter().for_each(|e| is_gone(e, 3, "s2"));
}

#[test]
fn a_head_that_is_gone_is_named_to_all() {
    let (_dir, path) = data();
    for hears in [false, true] {
        let cluster = Cluster { leave: &[1], ..Cluster::of(&["c", "s1", "c", "s2"]) };
        let errors = two_asks(
            &cluster,
            &path,
            |p| jobs(p).1,
            move |fabric, roles, here| {
                if fabric.rank() == 3 {
                    let e = serve(fabric, roles, here, &Serving::default()).unwrap_err();
                    is_gone(&e, 1, "s1");
                } else if hears {
                    // It dies when it has something to do.
                    fabric.recv_any(ASKS, LONG).unwrap().unwrap();
                }
            },
        );
        assert_eq!(errors.len(), 4);
        errors.iter().for_each(|e| is_gone(e, 1, "s1"));
    }
}

#[test]
fn storage_ranks_that_are_stopped_tell_it_to_all() {
    let (_dir, path) = data();
    for (who, few) in [(1, 0), (1, 1 << 30), (3, 0), (3, 1 << 30)] {
        let (path, stop) = (path.clone(), Cancel::new());
        let cluster = Cluster::of(&["c", "s1", "c", "s2"]);
        cluster.each(move |fabric, roles, here| {
            let rank = fabric.rank();
            if roles.of(rank) == Role::Storage {
                let cancel = if rank == who { stop.clone() } else { Cancel::new() };
                let how = Serving { cancel, ..endless() };
                let e = serve::serve_by(fabric, &roles, &here, &how, few);
                // Only those who were to stop, and who has heard of it first.
                assert!(rank == 3 && who == 1 || e.is_err(), "{rank}");
                if let Err(e) = e {
                    assert_eq!(e.kind(), Kind::Cancelled, "{e}");
                }
                return;
            }
            let client = Client::new(fabric, roles).unwrap();
            let watch = Stops::default();
            let stops = StopsOther(&watch, &stop);
            let e = client.run(&jobs(&path).0, &Cancel::new(), Some(&stops)).unwrap_err();
            assert_eq!(e.kind(), Kind::Cancelled, "{e}");
            // From then on, at once.
            while client.run(&jobs(&path).1, &Cancel::new(), None).is_ok() {}
            let e = client.run(&jobs(&path).1, &Cancel::new(), None).unwrap_err();
            assert_eq!(e.kind(), Kind::Cancelled, "{e}");
        });
    }
}

/// Stops something else when it is told how far a run is, or that it waits for its turn.
struct StopsOther<'s>(&'s Stops, &'s Cancel);

impl Observer for StopsOther<'_> {
    fn progress(&self, s: &Snapshot) {
        self.0.progress(s);
        self.1.cancel();
    }
}

#[test]
fn what_makes_no_sense_ends_who_says_it_alone() {
    let (_dir, path) = data();
    let run = |slot, number| {
        let ask = Ask::Run { slot, number, watched: false };
        frame(&ask, &jobs(&path).1.encode().unwrap()).unwrap()
    };
    let mut version = run(0, 0);
    version[1] = b'S';
    let said = [
        (version, "different versions of stead"),
        (vec![], "malformed"),
        (vec![0; 100], "malformed"),
        (run(200, 0), "malformed"),
        (run(0, 0)[..crate::meeting::NAME.len() + 3].to_vec(), "malformed"),
        // For what is large nobody has room that did not ask for it, and for what is too large there is none.
        (
            frame(&Ask::Run { slot: 0, number: 0, watched: false }, &[0; 20 << 10]).unwrap(),
            "malformed",
        ),
        (frame(&Ask::Room { slot: 0, number: 0, bytes: u64::MAX }, &[]).unwrap(), "malformed"),
    ];
    for (said, says) in said {
        let path = path.clone();
        let cluster = Cluster::of(&["c", "s1", "c", "s2"]);
        cluster.each(move |fabric, roles, here| match (fabric.rank(), roles.of(fabric.rank())) {
            (_, Role::Storage) => {
                serve(fabric, &roles, &here, &Serving::default()).unwrap();
            }
            (0, _) => {
                fabric.send(1, ASKS, said.clone()).unwrap();
                let heard = fabric.recv(1, OVER).unwrap();
                let (told, _) = open::<Told>(&heard).unwrap();
                let e = told.plain();
                assert!(e.message().contains(says), "{e}");
                // Nothing more is taken from it.
                let ask = Ask::Run { slot: 0, number: 1, watched: false };
                let ask = frame(&ask, &jobs(&path).1.encode().unwrap()).unwrap();
                fabric.send(1, ASKS, ask).unwrap();
                fabric.send(2, 7, vec![]).unwrap();
            }
            _ => {
                fabric.recv(0, 7).unwrap();
                let client = Client::new(fabric, roles).unwrap();
                rows(client.run(&jobs(&path).1, &Cancel::new(), None));
            }
        });
    }
}

#[test]
fn a_job_that_is_none_fails_alone() {
    let (_dir, path) = data();
    let cluster = Cluster::of(&["c", "s1", "s2"]);
    cluster.each(move |fabric, roles, here| {
        if roles.of(fabric.rank()) == Role::Storage {
            serve(fabric, &roles, &here, &Serving::default()).unwrap();
            return;
        }
        let ask = Ask::Run { slot: 3, number: 9, watched: false };
        fabric.send(1, ASKS, frame(&ask, b"\xff\xff\xff\xff no job").unwrap()).unwrap();
        let heard = fabric.recv(1, ANSWERS + 3).unwrap();
        match open::<Answer>(&heard).unwrap().0 {
            Answer::Failed { number: 9, why } => {
                assert_eq!(why.plain().kind(), Kind::Format);
            }
            other => panic!("{other:?}"),
        }
        let client = Client::new(fabric, roles).unwrap();
        rows(client.run(&jobs(&path).1, &Cancel::new(), None));
    });
}

#[test]
fn answers_and_orders_that_make_no_sense_are_errors() {
    let (_dir, path) = data();
    for (bad, says) in [
        (b"\x07stead 9 and what it says".to_vec(), "different versions"),
        (vec![1, 2, 3], "malformed"),
        (frame(&Answer::Done { number: 0 }, b"no report").unwrap(), "malformed"),
    ] {
        let path = path.clone();
        let cluster = Cluster { leave: &[1], ..Cluster::of(&["c", "s1", "s2"]) };
        cluster.each(move |fabric, roles, here| match fabric.rank() {
            // The head says this.
            1 => {
                fabric.recv(0, ASKS).unwrap();
                // What is left of asks before is passed over.
                let old = frame(&Answer::Done { number: 77 }, &[]).unwrap();
                fabric.send(0, ANSWERS, old).unwrap();
                fabric.send(0, ANSWERS, bad.clone()).unwrap();
                let order = if says == "malformed" { vec![9] } else { bad.clone() };
                fabric.send(2, ORDERS, order).unwrap();
                // The other storage rank says that it cannot go on.
                let bye = fabric.recv(2, ASKS).unwrap();
                assert_eq!(open::<Ask>(&bye).unwrap().0, Ask::Bye);
            }
            2 => {
                let e = serve(fabric, &roles, &here, &Serving::default()).unwrap_err();
                assert!([Kind::Usage, Kind::Format].contains(&e.kind()), "{e}");
            }
            _ => {
                let client = Client::new(fabric, roles).unwrap();
                let e = client.run(&jobs(&path).1, &Cancel::new(), None).unwrap_err();
                assert!(e.message().contains(says), "{e}");
                assert_eq!(e.place().rank, Some(1));
            }
        });
    }
    // It is no order, but for the version.
    assert!(open::<Order>(&frame(&Order::End, &[]).unwrap()).is_ok());
}

#[test]
fn files_that_nobody_has_asked_for_are_not_written() {
    let (dir, path) = data();
    let (there, path) = (dir.path().join("not.png"), path);
    let out = there.clone();
    let cluster = Cluster { leave: &[1], ..Cluster::of(&["c", "s"]) };
    cluster.each(move |fabric, roles, _| match fabric.rank() {
        1 => {
            fabric.recv(0, ASKS).unwrap();
            let report = Report {
                results: vec![],
                plan: crate::Plan::default(),
                metrics: crate::Metrics::default(),
            };
            let report = wire::encode_report(report, vec![(out.clone(), vec![1])]).unwrap();
            let done = frame(&Answer::Done { number: 0 }, &report).unwrap();
            fabric.send(0, ANSWERS, done).unwrap();
        }
        _ => {
            let client = Client::new(fabric, roles).unwrap();
            let e = client.run(&jobs(&path).1, &Cancel::new(), None).unwrap_err();
            assert!(e.message().contains("a file that was not asked for"), "{e}");
        }
    });
    assert!(!there.exists());
}

#[test]
fn ranks_that_are_for_something_else_are_refused() {
    let agree = |mine: Role| {
        let fabric: Arc<dyn Fabric> = Arc::new(Local::single());
        let roles = Roles::agree(&*fabric, &Here::default(), Ok(mine));
        (fabric, roles)
    };
    let (fabric, roles) = agree(Role::Storage);
    let roles = roles.unwrap();
    let e = Client::new(fabric.clone(), roles.clone()).map(drop).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("is a storage rank"), "{e}");
    let e = serve(fabric, &roles, &Here::default(), &Serving::default()).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("all ranks are storage ranks"), "{e}");
    assert!(agree(Role::Compute).1.is_err());
    let looks = Arc::new(AtomicU64::new(0));
    Cluster::of(&["c", "s"]).each(move |fabric, roles, here| {
        if roles.of(fabric.rank()) == Role::Compute {
            let e = serve(fabric.clone(), &roles, &here, &Serving::default()).unwrap_err();
            assert!(e.kind() == Kind::Usage && e.message().contains("compute rank"), "{e}");
            let other: Arc<dyn Fabric> = Arc::new(Local::single());
            let e = Client::new(other, roles.clone()).map(drop).unwrap_err();
            assert_eq!(e.kind(), Kind::Usage);
            // Until the other one has looked for signals.
            while looks.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            drop(Client::new(fabric, roles));
        } else {
            let seen = looks.clone();
            let look = move || {
                seen.fetch_add(1, Ordering::Relaxed);
            };
            let how = Serving { look: Some(Arc::new(look)), ..Serving::default() };
            serve(fabric, &roles, &here, &how).unwrap();
        }
    });
}
