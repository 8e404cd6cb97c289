//! Files that were begun, and of which somebody has removed what there was, or changed the source.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use stead_core::{Cancel, Error, Kind, Location};
use stead_stage::{Action, Means, Options, Progress, Request, Stager, State, Watcher};

const SIZE: u64 = 300 << 20;
const LIMIT: u64 = 40 << 20;

/// Stops a transfer once so much of it is there, and a temporary file in this folder has its whole length.
struct Stops<'s> {
    cancel: &'s Cancel,
    after: u64,
    folder: &'s Path,
}

impl Watcher for Stops<'_> {
    fn progress(&self, progress: &Progress) {
        if progress.bytes_done >= self.after && temporary(self.folder).is_some() {
            self.cancel.cancel();
        }
    }
}

fn temporary(folder: &Path) -> Option<PathBuf> {
    let mut all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.find(|path| path.metadata().is_ok_and(|meta| meta.len() == SIZE))
}

#[test]
fn a_file_that_is_begun_anew_has_nothing_of_the_one_before() {
    let dir = common::dir_of_copies();
    let at = |name: &str| dir.path().join(name);
    let stager = Stager::open(&at("state"), Means { threads: 3, ..Means::default() }).unwrap();
    // With a hole at its end, so that the copy has its length from its beginning on, whatever file system this is.
    let from = fs::File::create(at("from")).unwrap();
    let bytes: Vec<u8> = (0..1usize << 20).map(|i| (i / 3 + i / 65_536) as u8 | 1).collect();
    for mib in 0..250 {
        from.write_all_at(&bytes, mib << 20).unwrap();
    }
    from.set_len(SIZE).unwrap();
    fs::create_dir(at("to")).unwrap();
    let location = |name: &str| {
        Location::parse(&format!("{}/{name}", dir.path().display()), &|_| None).unwrap()
    };
    let request = Request {
        action: Action::Copy,
        sources: vec![location("from")],
        target: Some(location("to/big")),
        options: Options { limit: Some(LIMIT), durable: false, ..Options::default() },
    };
    let id = stager.submit(&request).unwrap();
    let stop = |after| {
        let cancel = Cancel::new();
        let stops = Stops { cancel: &cancel, after, folder: &at("to") };
        let e = stager.run(id, &cancel, Some(&stops)).unwrap_err();
        assert_eq!(e.kind(), Kind::Cancelled, "{e}");
    };
    stop(100 << 20);
    // Somebody who clears up takes it away. It is begun anew, and stopped before there is anything of it.
    fs::remove_file(temporary(&at("to")).unwrap()).unwrap();
    common::limit_to(&at("state"), LIMIT, 1);
    stop(0);
    common::limit_to(&at("state"), 1, u32::MAX.into());
    let status = stager.run(id, &Cancel::new(), None).unwrap();
    assert_eq!(status.state, State::Finished, "{:?}", status.failures);
    let (a, b) = (fs::read(at("from")).unwrap(), fs::read(at("to/big")).unwrap());
    let wrong = a.chunks(1 << 20).zip(b.chunks(1 << 20)).position(|(a, b)| a != b);
    assert_eq!((a.len(), wrong), (b.len(), None));
}

/// Changes a file once, while it is copied.
struct Changes {
    path: PathBuf,
    is_done: AtomicBool,
    retries: AtomicU32,
}

impl Watcher for Changes {
    fn progress(&self, progress: &Progress) {
        if progress.bytes_done > 0 && !self.is_done.swap(true, Ordering::Relaxed) {
            let file = fs::File::options().write(true).open(&self.path).unwrap();
            file.write_all_at(b"anew", 0).unwrap();
        }
    }

    fn retry(&self, e: &Error) {
        assert_eq!(e.kind(), Kind::Changed);
        self.retries.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_file_that_changes_while_it_is_copied_is_copied_again() {
    const LIMIT: u64 = 8 << 20;
    let dir = common::dir_of_copies();
    let at = |name: &str| dir.path().join(name);
    let stager = Stager::open(&at("state"), Means { threads: 2, ..Means::default() }).unwrap();
    fs::write(at("from"), vec![7; LIMIT as usize]).unwrap();
    let place = |name| Location::parse(at(name).to_str().unwrap(), &|_| None).unwrap();
    let id = stager
        .submit(&Request {
            action: Action::Copy,
            sources: vec![place("from")],
            target: Some(place("to")),
            options: Options { limit: Some(LIMIT / 2), ..Options::default() },
        })
        .unwrap();
    let (is_done, retries) = (AtomicBool::new(false), AtomicU32::new(0));
    let changes = Changes { path: at("from"), is_done, retries };
    let status = stager.run(id, &Cancel::new(), Some(&changes)).unwrap();
    assert_eq!((status.state, status.failed), (State::Finished, 0));
    assert_eq!(changes.retries.load(Ordering::Relaxed), 1);
    assert!(fs::read(at("from")).unwrap().starts_with(b"anew"));
    assert!(fs::read(at("to")).unwrap() == fs::read(at("from")).unwrap());
}

/// Has a file grow once, while it is copied.
struct Grows {
    path: PathBuf,
    to: u64,
    is_done: AtomicBool,
}

impl Watcher for Grows {
    fn progress(&self, progress: &Progress) {
        if progress.bytes_done > 0 && !self.is_done.swap(true, Ordering::Relaxed) {
            let file = fs::File::options().write(true).open(&self.path).unwrap();
            let (more, size) = (vec![8; 1 << 20], file.metadata().unwrap().len());
            (size..self.to).step_by(1 << 20).for_each(|at| file.write_all_at(&more, at).unwrap());
        }
    }
}

#[test]
fn a_file_that_grows_past_a_quota_while_it_is_copied_is_refused() {
    const LIMIT: u64 = 8 << 20;
    let dir = common::dir_of_copies();
    let at = |name: &str| dir.path().join(name);
    for (quota, fits) in [(40 << 20, true), (12 << 20, false)] {
        let space = at(&format!("space-{fits}"));
        fs::create_dir(&space).unwrap();
        let text = format!("[dataspace.s]\npath = \"{}\"\nuser_quota = {quota}\n", space.display());
        let spaces = stead_core::layout::Spaces::parse(&text, &|_| None).unwrap();
        let means = Means { threads: 2, spaces, ..Means::default() };
        let stager = Stager::open(&at(&format!("state-{fits}")), means).unwrap();
        fs::write(at("from"), vec![7; LIMIT as usize]).unwrap();
        let place = |text: &str| Location::parse(text, &|_| None).unwrap();
        let id = stager
            .submit(&Request {
                action: Action::Copy,
                sources: vec![place(at("from").to_str().unwrap())],
                target: Some(place("s://to")),
                options: Options { limit: Some(LIMIT / 2), ..Options::default() },
            })
            .unwrap();
        let grows = Grows { path: at("from"), to: 16 << 20, is_done: AtomicBool::new(false) };
        let told = match stager.run(id, &Cancel::new(), Some(&grows)) {
            Ok(status) => status.failures.first().map(|failure| failure.error.clone()),
            Err(e) => Some(e.to_string()),
        };
        if fits {
            assert_eq!((told, fs::metadata(space.join("to")).unwrap().len()), (None, 16 << 20));
            continue;
        }
        // Also if it is asked for again: it has not been planned anew.
        let again = stager
            .run(id, &Cancel::new(), None)
            .map(|status| status.failures.first().map(|failure| failure.error.clone()));
        for told in [told, again.unwrap()] {
            let told = told.unwrap();
            assert!(told.contains("12.0 MiB for each user"), "{told}");
        }
        let left: u64 =
            fs::read_dir(&space).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum();
        assert!(!space.join("to").exists() && left <= quota, "{left}");
    }
}
