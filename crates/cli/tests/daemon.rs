//! The daemon of a node as programs in Rust ask it: that of the command which is built beside this.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;
use stead::daemon::{AdminAnswer, AdminAsk, Client, Clients, PersistAsk};
use stead::stage::{Action, Location, Options, Request, Standing, State, location};
use stead::{Error, Kind, Result};

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(120);
const LARGE: usize = 8 << 20;
/// Of a transfer that is not done before it is stopped.
const SLOW: u64 = 64 << 10;

/// A folder with a daemon, which is ended with it.
struct Daemon {
    dir: tempfile::TempDir,
    /// With the file `large`, elsewhere: within a file system that shares blocks no copy takes its time.
    memory: tempfile::TempDir,
    process: Child,
}

impl Daemon {
    /// With the folder `from`, of two files and 4101 bytes.
    fn begin() -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        std::fs::write(memory.path().join("large"), vec![3u8; LARGE]).unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("from/deep")).unwrap();
        std::fs::write(at("from/a"), [1u8; 5]).unwrap();
        std::fs::write(at("from/deep/b"), [2u8; 4096]).unwrap();
        // It says when programs can connect.
        let manager = UnixDatagram::bind(at("notify")).unwrap();
        manager.set_read_timeout(Some(LONG)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_stead"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("STEAD_") || text.starts_with("XDG_") {
                command.env_remove(&name);
            }
        }
        command.args(["daemon", "--transfers", "2", "--socket"]).arg(at("s"));
        command.arg("--state").arg(at("state"));
        command.env("HOME", dir.path()).env("NOTIFY_SOCKET", at("notify"));
        let log = std::fs::File::create(at("log")).unwrap();
        let process = command.stdin(Stdio::null()).stderr(log).spawn().unwrap();
        let daemon = Daemon { dir, memory, process };
        let mut said = [0; 64];
        let n = manager.recv(&mut said).expect("the daemon begins");
        assert_eq!(&said[..n], b"READY=1");
        daemon
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn named(&self, name: &str) -> Location {
        location(self.at(name).to_str().unwrap()).unwrap()
    }

    fn slow(&self, target: &str) -> Request {
        let large = self.memory.path().join("large");
        let mut request = self.copy("large", target);
        request.sources = vec![location(large.to_str().unwrap()).unwrap()];
        request.options.limit = Some(SLOW);
        request
    }

    fn client(&self) -> Client {
        Client::connect_to(&self.at("s")).unwrap().expect("a daemon")
    }

    fn copy(&self, source: &str, target: &str) -> Request {
        Request {
            action: Action::Copy,
            sources: vec![self.named(source)],
            target: Some(self.named(target)),
            options: Options::default(),
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let _ = self.process.wait();
    }
}

fn kind<T>(done: Result<T>) -> Option<Kind> {
    done.err().map(|e| e.kind())
}

#[test]
fn without_a_daemon_there_is_none() {
    let dir = tempfile::tempdir().unwrap();
    assert!(Client::connect_to(&dir.path().join("s")).unwrap().is_none());
    assert!(Clients::open(Some(&dir.path().join("s"))).unwrap().is_none());
}

#[test]
fn transfers_are_handed_over_waited_for_and_given_up() {
    let node = Daemon::begin();
    let mut daemon = node.client();
    let hello = daemon.hello().clone();
    assert!(!hello.node.is_empty() && !hello.drained && hello.job.is_none());
    assert_eq!(daemon.path(), node.at("s"));
    let request = node.copy("from", "to");
    let preview = daemon.preview(&request).unwrap();
    assert_eq!((preview.files, preview.bytes), (2, 4101));
    assert!(preview.takes.high.is_finite() && !node.at("to").exists());
    let check = Request { action: Action::Sync, ..node.copy("from/", "to") };
    assert_eq!(kind(daemon.check(&request)), Some(Kind::Usage));
    let found = daemon.check(&check).unwrap();
    assert!(!found.is_same() && found.same == 0 && !node.at("to").exists());
    let first = daemon.submit(&request, &[]).unwrap();
    let done = daemon.wait(first, LONG).unwrap();
    assert_eq!((done.status.state, done.status.bytes_done), (State::Finished, 4101));
    done.status.outcome().unwrap();
    assert_eq!(std::fs::read(node.at("to/deep/b")).unwrap(), [2u8; 4096]);
    assert_eq!(daemon.eta(first).unwrap().seconds, 0.0);
    assert_eq!(kind(daemon.cancel(first)), Some(Kind::Usage));
    assert_eq!(kind(daemon.resume(Some(first))), Some(Kind::Usage));

    // A slow one, and another that waits for it.
    let slow = daemon.submit(&node.slow("slow"), &[]).unwrap();
    let after = daemon.submit(&node.copy("from", "after"), &[first, slow]).unwrap();
    let standing = daemon.wait(after, Duration::from_millis(10)).unwrap();
    assert_eq!(standing.status.state, State::Pending);
    assert!(standing.status.waits.is_some());
    for id in [slow, after] {
        let left = daemon.eta(id).unwrap();
        assert!(left.low <= left.high && left.low >= 0.0 && left.high.is_finite(), "{left:?}");
    }
    let ids = |list: Vec<Standing>| -> Vec<i64> { list.iter().map(|one| one.status.id).collect() };
    assert_eq!(ids(daemon.list(false, 10).unwrap()), [after, slow]);
    assert_eq!(ids(daemon.list(true, 10).unwrap()), [after, slow, first]);
    assert_eq!(ids(daemon.list(true, 1).unwrap()), [after]);
    assert_eq!(daemon.cancel(slow).unwrap().state, State::Cancelled);
    // Nor does what was to come after it.
    let standing = daemon.wait(after, LONG).unwrap();
    assert_eq!(kind(standing.status.outcome()), Some(Kind::Cancelled));
    assert!(!node.at("slow").exists() && !node.at("after").exists());
    assert!(daemon.list(false, 10).unwrap().is_empty());

    let e = daemon.wait(99, Duration::ZERO).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.to_string().contains("no transfer 99"), "{e}");
    // What fails is told with its kind.
    let lost = daemon.submit(&node.copy("none", "x"), &[]).unwrap();
    let lost = daemon.wait(lost, LONG).unwrap().status;
    assert_eq!((lost.state, kind(lost.outcome())), (State::Failed, Some(Kind::NotFound)));
    assert_eq!(daemon.resume(Some(lost.id)).unwrap(), [lost.id]);
    assert_eq!(daemon.wait(lost.id, LONG).unwrap().status.state, State::Failed);
    assert_eq!(daemon.nodes().unwrap(), [hello.node]);
    let metrics = daemon.metrics().unwrap();
    assert!(metrics.contains("stead_transfers{state=\"finished\"} 1"), "{metrics}");
}

#[test]
fn a_large_question_that_lasts_keeps_no_other_one_waiting() {
    let node = Daemon::begin();
    for (name, folder) in [("one", "a"), ("another", "a"), ("one", "b"), ("another", "b")] {
        std::fs::create_dir_all(node.at(folder)).unwrap();
        std::fs::write(node.at(folder).join(name), vec![3u8; LARGE]).unwrap();
    }
    std::fs::create_dir(node.at("sources")).unwrap();
    let names = (0..400).map(|n| node.at(&format!("sources/{n}-{}", "x".repeat(200))));
    let many: Vec<PathBuf> = names.inspect(|path| std::fs::write(path, b"x").unwrap()).collect();
    let here = |path: &PathBuf| location(path.to_str().unwrap()).unwrap();
    // Minutes, and a frame of more than 64 KiB.
    let mut check = node.copy("a/", "b");
    check.action = Action::Sync;
    check.options.limit = Some(SLOW);
    check.options.checksum = true;
    check.options.exclude = (0..400).map(|n| format!("{n}-{}", "y".repeat(200))).collect();
    let mut quick = check.clone();
    quick.options.checksum = false;
    let stop = stead::Cancel::new();
    std::thread::scope(|threads| {
        let first = threads.spawn(|| node.client().until(stop.clone().into(), |c| c.check(&check)));
        // Once that is asked a second one that may last is told so; before, this one is answered at once.
        let second = (0..600).find_map(|_| {
            std::thread::sleep(Duration::from_millis(100));
            node.client().preview(&quick).err()
        });
        let e = second.expect("a second one is told");
        assert!(e.kind() == Kind::Limit && e.to_string().contains("one at a time"), "{e}");
        let mut all = node.copy("from", "many/");
        all.sources = many.iter().map(here).collect();
        let mut client = node.client();
        let id = client.submit(&all, &[]).unwrap();
        assert_eq!(client.wait(id, LONG).unwrap().status.files_done, 400);
        assert!(!first.is_finished());
        stop.cancel();
        assert_eq!(kind(first.join().unwrap()), Some(Kind::Cancelled));
    });
}

#[test]
fn several_threads_have_as_many_connections_as_they_need() {
    let node = Daemon::begin();
    let daemon = Clients::open(Some(&node.at("s"))).unwrap().expect("a daemon");
    let slow = daemon.ask(|client| client.submit(&node.slow("slow"), &[])).unwrap();
    let (tells, told) = channel();
    std::thread::scope(|threads| {
        for name in ["one", "another"] {
            let (tells, daemon) = (tells.clone(), &daemon);
            threads.spawn(move || {
                let mut look = |standing: Option<&Standing>| -> Result<()> {
                    // Nobody listens any more once both have been heard.
                    let _ = tells.send((name, standing.map(|one| one.status.id)));
                    Ok(())
                };
                let done = daemon.wait(slow, Some(LONG), &mut look).unwrap();
                assert_eq!(done.status.state, State::Cancelled);
            });
        }
        // Who waits keeps nobody waiting: this one is begun and done meanwhile.
        let small = daemon.ask(|client| client.submit(&node.copy("from", "to"), &[])).unwrap();
        let done = daemon.wait(small, Some(LONG), &mut |_| Ok(())).unwrap();
        assert_eq!(done.status.state, State::Finished);
        let mut heard = BTreeSet::new();
        while heard.len() < 2 {
            let (name, id) = told.recv_timeout(LONG).unwrap();
            assert_eq!(id, Some(slow));
            heard.insert(name);
        }
        // A look that has had enough ends a wait, and not the transfer.
        let stopped = daemon.wait(slow, Some(LONG), &mut |_| Err(Error::cancelled()));
        assert_eq!(kind(stopped), Some(Kind::Cancelled));
        let standing = daemon.ask(|client| client.wait(slow, Duration::ZERO)).unwrap();
        assert_eq!(standing.status.state, State::Running);
        daemon.ask(|client| client.cancel(slow)).unwrap();
    });
}

#[test]
fn administrators_are_heard_and_things_are_kept() {
    let node = Daemon::begin();
    let mut daemon = node.client();
    std::fs::create_dir(node.at("space")).unwrap();
    let path = node.at("space").display().to_string();
    let set: BTreeMap<String, String> =
        BTreeMap::from([("path".into(), path.clone()), ("quota".into(), "1MB".into())]);
    let add = || AdminAsk::Add { name: "fast".into(), set: set.clone() };
    assert_eq!(daemon.admin(add()).unwrap(), AdminAnswer::Done {});
    assert_eq!(kind(daemon.admin(add())), Some(Kind::Usage));
    let spaces = daemon.spaces().unwrap();
    let fast = spaces.iter().find(|space| space.name == "fast").unwrap();
    assert_eq!((fast.path.as_deref(), fast.quota), (Some(path.as_str()), Some(1_000_000)));
    let configured = daemon.configured().unwrap();
    assert!(configured.iter().any(|space| space.name == "fast" && space.free.is_none()));
    let AdminAnswer::Dataspaces(list) = daemon.admin(AdminAsk::Dataspaces {}).unwrap() else {
        panic!("something else than dataspaces")
    };
    assert_eq!((list.len(), &list[0].name, &list[0].set), (1, &"fast".to_owned(), &set));

    let mut request = node.copy("from", "x");
    request.target = Some(location("fast://in/").unwrap());
    let id = daemon.submit(&request, &[]).unwrap();
    assert_eq!(daemon.wait(id, LONG).unwrap().status.state, State::Finished);
    assert!(node.at("space/in/from/a").is_file());
    // More than the quota leaves.
    request.sources = node.slow("x").sources;
    assert_eq!(kind(daemon.preview(&request)), Some(Kind::NoSpace));

    daemon.admin(AdminAsk::Drain {}).unwrap();
    assert_eq!(kind(daemon.submit(&request, &[])), Some(Kind::Limit));
    assert!(node.client().hello().drained);
    let AdminAnswer::Stats(stats) = daemon.admin(AdminAsk::Stats {}).unwrap() else {
        panic!("something else than what it does")
    };
    assert!(stats.drained && stats.users.iter().all(|one| one.user == daemon.hello().user));
    daemon.admin(AdminAsk::Open {}).unwrap();

    let kept = location("fast://in").unwrap();
    let store = PersistAsk::Store { location: kept.clone(), seconds: Some(3600) };
    assert_eq!(daemon.persist(store).unwrap(), []);
    let list = daemon.persist(PersistAsk::List {}).unwrap();
    assert_eq!((list.len(), list[0].location.as_str(), list[0].kept), (1, "fast://in", true));
    assert!(list[0].left.is_some_and(|left| left > 3000.0 && left <= 3600.0), "{list:?}");
    daemon.persist(PersistAsk::Delete { location: kept.clone() }).unwrap();
    assert_eq!(
        kind(daemon.persist(PersistAsk::Delete { location: kept.clone() })),
        Some(Kind::Usage)
    );
    let nobody = PersistAsk::Share { location: kept, user: "no such user".into() };
    assert_eq!(kind(daemon.persist(nobody)), Some(Kind::Usage));

    daemon.admin(AdminAsk::Remove { name: "fast".into() }).unwrap();
    daemon.admin(AdminAsk::Reset { name: "fast".into() }).unwrap();
    assert_eq!(kind(daemon.admin(AdminAsk::Reset { name: "fast".into() })), Some(Kind::Usage));
}
