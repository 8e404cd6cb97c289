//! Runs in which some ranks compute and the others wait: what goes to whom, and what becomes of ranks that stop or die.

use crate::roles::Roles;
use crate::spread::{Here, open_apart};
use crate::{Observer, Report, Request, Snapshot, run_on};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stead_core::{Block, Cancel, Error, Kind, Needs, Result, Value};
use stead_fabric::testing::{Between, Meddle};
use stead_fabric::{Fabric, Local};
use stead_format::OpenOptions;
use stead_kernel::{Kernel, Own, Step};
use stead_model::Wish;

const LONG: Duration = Duration::from_secs(60);

/// What ranks on these hosts get, of which those on hosts that begin with `s` have the data. `between` is put before the fabric
/// of a rank, which then ends before the others do.
fn each(
    hosts: &[&str],
    path: &Path,
    between: impl Fn(usize, Arc<dyn Fabric>) -> Option<Arc<dyn Fabric>> + Sync,
    request: impl Fn(usize) -> Request + Sync,
    observer: Option<&dyn Observer>,
) -> Vec<Result<Report>> {
    let nodes: Vec<usize> = (0..hosts.len()).collect();
    let mut names: Vec<&str> = hosts.iter().copied().filter(|h| h.starts_with('s')).collect();
    names.sort_unstable();
    names.dedup();
    let (storage, inputs) = (names.join(","), [path.display().to_string()]);
    let one = |fabric: &Arc<dyn Fabric>, host: &str| {
        let here = Here { host: host.to_owned(), folder: None };
        let roles = Roles::by_hosts(&**fabric, &here, &storage)?;
        let (options, cancel) = (OpenOptions::default(), Cancel::new());
        let data = open_apart(&here, fabric, &roles, &inputs, &options, &cancel)?;
        run_on(&**fabric, &data, &request(fabric.rank()), observer)
    };
    std::thread::scope(|scope| {
        let (one, between) = (&one, &between);
        let rank = |(fabric, host): (Local, &&str)| {
            let host = host.to_string();
            scope.spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                match between(fabric.rank(), fabric.clone()) {
                    Some(between) => {
                        drop(fabric);
                        (one(&between, &host), None)
                    }
                    // It lives until all are through.
                    None => (one(&fabric, &host), Some(fabric)),
                }
            })
        };
        let all: Vec<_> =
            Local::over_nodes(&nodes, LONG).into_iter().zip(hosts).map(rank).collect();
        let all: Vec<_> = all.into_iter().map(|t| t.join().unwrap()).collect();
        all.into_iter().map(|(report, _)| report).collect()
    })
}

fn nothing(_: usize, _: Arc<dyn Fabric>) -> Option<Arc<dyn Fabric>> {
    None
}

fn request(kernels: &[&str], place: Wish) -> Request {
    let kernels = kernels.iter().map(|k| k.to_string()).collect();
    Request { kernels, threads: 1, chunk: 2000, place, ..Request::default() }
}

/// Lines with quotes, so that all that compute have to know what lies before their part.
fn data() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    let rows = (0..2000).map(|i| format!("{i},{},\"a\nb {i}\"\n", i * 37 % 1009));
    std::fs::write(&path, ["x,y,z\n".to_owned()].into_iter().chain(rows).collect::<String>())
        .unwrap();
    (dir, path)
}

#[test]
fn states_go_to_ranks_that_compute_alone() {
    let (_dir, path) = data();
    // States of some 4 KB in each of 12 passes, and an answer of as much.
    let kernels = ["kmeans:x,y,k=300,init=first,tol=0,rounds=12"];
    let alone = Request { place: Wish::Auto, ..request(&kernels, Wish::Auto) };
    let dataset =
        stead_format::Dataset::open(&[path.display().to_string()], &OpenOptions::default());
    let alone = crate::run(&dataset.unwrap(), &alone, None).unwrap();
    for place in [Wish::Push, Wish::Pull] {
        let sent = |hosts: &[&str]| {
            let all = each(hosts, &path, nothing, |_| request(&kernels, place), None);
            let all: Vec<Report> = all.into_iter().map(Result::unwrap).collect();
            for report in &all {
                assert_eq!(format!("{:?}", report.results), format!("{:?}", alone.results));
                assert_eq!(report.metrics.passes, alone.metrics.passes);
                assert_eq!(report.metrics.rows, alone.metrics.rows);
                assert_eq!(report.plan.kernels[0].passes, alone.plan.kernels[0].passes);
                assert!(!report.plan.scan.is_empty());
                assert_eq!(report.metrics.bytes_read, all[0].metrics.bytes_read);
                assert_eq!(report.metrics.ranks, all[0].metrics.ranks);
            }
            let waits = if place == Wish::Push { 'h' } else { 's' };
            for (rank, host) in all[0].metrics.ranks.iter().zip(hosts) {
                if host.starts_with(waits) {
                    // To meet the others, and at the end.
                    assert!(rank.bytes_sent < 60_000, "{place:?} {hosts:?} {host} {rank:?}");
                }
            }
            all[0].metrics.bytes_sent
        };
        let (few, many) = match place {
            Wish::Push => (["s1", "s2", "h1"], ["s1", "h1", "h2", "h3", "s2", "h4"]),
            _ => (["h1", "s1", "h2"], ["h1", "s1", "s2", "s3", "s4", "h2"]),
        };
        let (few, many) = (sent(&few), sent(&many));
        // One that computes has sent its states up, and the other one the sum back.
        assert!(few > 2 * 12 * 2000, "{few}");
        // Three that wait more have cost three reports, and their part of meeting.
        assert!(many - few < 200_000, "{place:?}: {few} {many}");
    }
}

/// A kernel that always wants another pass, and does something at the end of each.
struct Endless(Arc<dyn Fn(u64) -> Result<()> + Send + Sync>, u64);

impl Kernel for Endless {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { rows: true, ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, rows: &mut u64, block: &Block<'_>) -> Result<()> {
        *rows += block.rows as u64;
        Ok(())
    }

    fn merge(&self, rows: &mut u64, other: u64) -> Result<()> {
        *rows += other;
        Ok(())
    }

    fn finish(&self, _: u64) -> Result<Step> {
        self.0(self.1)?;
        Ok(Step::Next(Arc::new(Endless(self.0.clone(), self.1 + 1))))
    }
}

fn endless(place: Wish, at_end: impl Fn(u64) -> Result<()> + Send + Sync + 'static) -> Request {
    let at_end: Arc<dyn Fn(u64) -> Result<()> + Send + Sync> = Arc::new(at_end);
    let own = vec![Own::new("endless", move |_| Ok(Endless(at_end.clone(), 1)))];
    Request { own, ..request(&[], place) }
}

const HOSTS: [&str; 5] = ["h1", "s1", "h2", "s2", "s3"];

/// Stops a rank when the first one has seen some passes.
struct Stops(Cancel, AtomicU64);

impl Observer for Stops {
    fn progress(&self, s: &Snapshot) {
        assert!(s.pass > 0 && s.bytes <= s.total_bytes, "{s:?}");
        self.1.fetch_max(s.pass, Ordering::Relaxed);
        if s.pass > 2 {
            self.0.cancel();
        }
    }
}

#[test]
fn who_waits_sees_how_far_others_are_and_can_stop_them() {
    let (_dir, path) = data();
    for place in [Wish::Push, Wish::Pull] {
        for stopped in 0..HOSTS.len() {
            let watch = Stops(Cancel::new(), AtomicU64::new(0));
            let of = |rank: usize| {
                let request = endless(place, |_| Ok(()));
                match rank == stopped {
                    true => Request { cancel: watch.0.clone(), ..request },
                    false => request,
                }
            };
            for r in each(&HOSTS, &path, nothing, of, Some(&watch)) {
                let e = r.unwrap_err();
                assert_eq!(e.kind(), Kind::Cancelled, "{place:?} {stopped}: {e}");
            }
            assert!(watch.1.load(Ordering::Relaxed) > 2);
        }
    }
}

/// A rank that dies when somebody says so.
struct Dies(Cancel);

impl Meddle for Dies {
    fn check(&self) -> Result<()> {
        match self.0.is_cancelled() {
            true => Err(Error::new(Kind::Peer, "this rank has died")),
            false => Ok(()),
        }
    }
}

#[test]
fn a_rank_that_dies_while_others_compute_is_named_by_all() {
    let (_dir, path) = data();
    for place in [Wish::Push, Wish::Pull] {
        for dead in 0..HOSTS.len() {
            let now = Cancel::new();
            let between = |rank, fabric| {
                let dies = || Arc::new(Between::new(fabric, Dies(now.clone()))) as Arc<dyn Fabric>;
                (rank == dead).then(dies)
            };
            let of = |_| {
                let now = now.clone();
                endless(place, move |pass| {
                    if pass == 5 {
                        now.cancel();
                    }
                    Ok(())
                })
            };
            let all = each(&HOSTS, &path, between, of, None);
            for (rank, r) in all.into_iter().enumerate() {
                let e = r.unwrap_err();
                let told = (e.kind(), e.place().rank);
                if rank != dead {
                    assert_eq!(told, (Kind::Peer, Some(dead)), "{place:?} {rank}: {e}");
                }
            }
        }
    }
}

#[test]
fn what_some_of_those_that_compute_fail_with_is_told_by_all() {
    let (_dir, path) = data();
    for place in [Wish::Push, Wish::Pull] {
        // All that compute, or one of them.
        for one in [false, true] {
            let of = |rank: usize| {
                endless(place, move |pass| match pass {
                    3 if !one || rank == 2 || rank == 3 => Err(Error::data("odd").at_column("c")),
                    _ => Ok(()),
                })
            };
            for r in each(&HOSTS, &path, nothing, of, None) {
                let e = r.unwrap_err();
                assert_eq!(e.to_string(), "column 'c': odd", "{place:?}");
            }
            let of = |rank: usize| {
                endless(place, move |pass| match pass {
                    3 if !one || rank == 2 || rank == 3 => {
                        Err(Error::io("read", "f", std::io::Error::other("broken")))
                    }
                    _ => Ok(()),
                })
            };
            let first = match (one, place) {
                (true, Wish::Push) => 3,
                (true, _) => 2,
                (false, Wish::Push) => 1,
                (false, _) => 0,
            };
            for r in each(&HOSTS, &path, nothing, of, None) {
                let e = r.unwrap_err();
                assert_eq!((e.kind(), e.place().rank), (Kind::Io, Some(first)), "{place:?}: {e}");
                assert!(e.to_string().contains("broken"), "{e}");
            }
        }
    }
}

#[test]
fn runs_follow_each_other_whoever_has_failed() {
    let (_dir, path) = data();
    let inputs = [path.display().to_string()];
    std::thread::scope(|scope| {
        let inputs = &inputs;
        for (fabric, host) in Local::over_nodes(&[0, 1, 2, 3], LONG).into_iter().zip(HOSTS) {
            scope.spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                let here = Here { host: host.to_owned(), folder: None };
                let roles = Roles::by_hosts(&*fabric, &here, "s1,s2").unwrap();
                let (options, cancel) = (OpenOptions::default(), Cancel::new());
                let data = open_apart(&here, &fabric, &roles, inputs, &options, &cancel).unwrap();
                for i in 0..12 {
                    let place = [Wish::Push, Wish::Pull, Wish::Split][i % 3];
                    let odd = endless(place, |pass| match pass {
                        2 => Err(Error::data("odd")),
                        _ => Ok(()),
                    });
                    assert!(run_on(&*fabric, &data, &odd, None).is_err());
                    let well = run_on(&*fabric, &data, &request(&["rows", "std:y"], place), None);
                    assert_eq!(well.unwrap().result("rows"), Some(&Value::Int(2000)));
                }
                crate::agree(&*fabric, Ok(())).unwrap();
            });
        }
    });
}

/// A volume as NumPy saves it.
fn volume(path: &Path) {
    let text = "{'descr': '<f4', 'fortran_order': False, 'shape': (70, 40, 50), }";
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&118u16.to_le_bytes());
    bytes.extend_from_slice(format!("{text:<117}\n").as_bytes());
    let value = |i: u32| {
        let wave = (i % 50) as f32 * 0.2;
        wave.sin() * ((i / 50 % 40) as f32 * 0.3).cos() + (i / 2000) as f32 * 0.01
    };
    bytes.extend((0..70 * 40 * 50).flat_map(|i| value(i).to_le_bytes()));
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn pictures_have_the_same_bits_and_the_first_rank_writes_them() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.npy");
    volume(&path);
    let inputs = [path.display().to_string()];
    let alone = stead_format::Dataset::open(&inputs, &OpenOptions::default()).unwrap();
    for how in ["shading=none,min=-1,max=2", "projection=perspective,background=#203040"] {
        let named = |name: &str| dir.path().join(name);
        let kernel =
            |out: &str| format!("render:width=60,height=50,{how},out={}", named(out).display());
        crate::run(&alone, &request(&[&kernel("one.png")], Wish::Auto), None).unwrap();
        let wanted = std::fs::read(named("one.png")).unwrap();
        let (kernel, out) = (kernel("many.png"), named("many.png"));
        for hosts in [&["s1", "h1"][..], &["h1", "s1"], &["h1", "s1", "s2"], &HOSTS] {
            for place in [Wish::Push, Wish::Pull, Wish::Split] {
                let all = each(hosts, &path, nothing, |_| request(&[&kernel], place), None);
                let all: Vec<Report> = all.into_iter().map(Result::unwrap).collect();
                let found = |r: &Report| format!("{:?}", r.results);
                assert!(all.iter().all(|r| found(r) == found(&all[0])));
                assert!(std::fs::read(&out).unwrap() == wanted, "{hosts:?} {place:?} {how}");
                std::fs::remove_file(&out).unwrap();
            }
        }
    }
}

#[test]
fn pictures_cannot_be_filtered() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("v.npy");
    volume(&path);
    let inputs = [path.display().to_string()];
    let data = stead_format::Dataset::open(&inputs, &OpenOptions::default()).unwrap();
    let out = dir.path().join("v.png");
    let picture = format!("render:width=8,height=8,out={}", out.display());
    let picture = picture.as_str();
    for kernels in [&[picture][..], &["rows", picture]] {
        let filter = Some("value > 0".to_owned());
        let asked = Request { filter, ..request(kernels, Wish::Auto) };
        let error = crate::run(&data, &asked, None).err().unwrap();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains("cannot be filtered"), "{error}");
        assert!(error.hint().is_some_and(|h| h.contains("--where")));
        // Nothing was drawn, and no name taken.
        assert!(!out.exists());
    }
    // What is asked beside it may be.
    let filter = Some("value > 0".to_owned());
    let asked = Request { filter, ..request(&["rows"], Wish::Auto) };
    crate::run(&data, &asked, None).unwrap();
}
