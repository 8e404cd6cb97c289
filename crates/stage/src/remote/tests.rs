//! Another node that is a folder of this one, asked as one is.

use super::{Answering, Line, Part, Question, Reach, Reply};
use crate::copy::LEAST_MARKED;
use crate::manager::{Means, Stager};
use crate::request::{Action, Exists, Options, Request};
use crate::status::State;
use crate::sum::PIECE;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Kind, Location, Result};

/// A node of which lines end after so many answers.
#[derive(Debug)]
struct There {
    spaces: Spaces,
    left: Arc<AtomicUsize>,
    per_line: usize,
    /// Whoever asks for a line to a node that is gone hears of something else.
    odd: Arc<AtomicBool>,
    spoils: Arc<AtomicBool>,
    /// Lines that there may be at a time, in place of those that there are.
    lines: Arc<AtomicUsize>,
    /// Reads, and those of them that are to give way.
    reads: Arc<[AtomicUsize; 2]>,
}

struct Wire {
    spoils: Arc<AtomicBool>,
    spaces: Spaces,
    answering: Answering,
    all: Arc<AtomicUsize>,
    left: usize,
    lines: Arc<AtomicUsize>,
    reads: Arc<[AtomicUsize; 2]>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.lines.fetch_add(1, Ordering::Relaxed);
    }
}

fn one_less(n: usize) -> Option<usize> {
    n.checked_sub(1)
}

impl Reach for There {
    fn line(&self, node: &str) -> Result<Box<dyn Line>> {
        if node != "far" {
            return Err(Error::new(Kind::NotFound, "no such node"));
        }
        if self.odd.load(Ordering::Relaxed) && self.left.load(Ordering::Relaxed) == 0 {
            return Err(Error::new(Kind::Io, "cannot ask for a line"));
        }
        let many = |_| Error::limit("so many lines are there already");
        self.lines.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).map_err(many)?;
        Ok(Box::new(Wire {
            spaces: self.spaces.clone(),
            answering: Answering::default(),
            all: self.left.clone(),
            left: self.per_line,
            spoils: self.spoils.clone(),
            lines: self.lines.clone(),
            reads: self.reads.clone(),
        }))
    }
}

impl Line for Wire {
    fn ask(&mut self, question: &Question) -> Result<Reply> {
        self.read(question, &mut |_| Err(Error::internal("bytes that nobody asked for")))
    }

    fn read(
        &mut self,
        question: &Question,
        each: &mut dyn FnMut(Part<'_>) -> Result<()>,
    ) -> Result<Reply> {
        let gone = || Error::new(Kind::Peer, "the line has ended");
        self.left = self.left.checked_sub(1).ok_or_else(gone)?;
        self.all
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .map_err(|_| gone())?;
        // As they travel.
        let text = serde_json::to_string(question).unwrap();
        let question: Question = serde_json::from_str(&text).unwrap();
        if let Question::Read { gentle, .. } = question {
            self.reads[0].fetch_add(1, Ordering::Relaxed);
            self.reads[1].fetch_add(usize::from(gentle), Ordering::Relaxed);
        }
        let mut each = |part: Part<'_>| match part {
            Part::Bytes(bytes) if self.spoils.swap(false, Ordering::Relaxed) => {
                let mut bytes = bytes.to_vec();
                if let Some(last) = bytes.last_mut() {
                    *last ^= 1;
                }
                each(Part::Bytes(&bytes))
            }
            part => each(part),
        };
        let told = self.answering.answer(&question, &self.spaces, &Cancel::new(), &mut each);
        // Errors come without their places.
        let told = told.map_err(|e| Error::new(e.kind(), e.to_string()))?;
        Ok(serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap())
    }
}

struct Pair {
    dir: tempfile::TempDir,
    stager: Stager,
    left: Arc<AtomicUsize>,
    odd: Arc<AtomicBool>,
    /// A bit of the next bytes that come is another one.
    spoils: Arc<AtomicBool>,
    lines: Arc<AtomicUsize>,
    reads: Arc<[AtomicUsize; 2]>,
}

fn pair(per_line: usize) -> Pair {
    pair_with(per_line, "")
}

/// With what the other node says of its dataspace.
fn pair_with(per_line: usize, terms: &str) -> Pair {
    let dir = tempfile::tempdir().unwrap();
    for name in ["far", "near"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
    }
    let config = format!("[dataspace.s]\npath = '{}/far'\n{terms}\n", dir.path().display());
    let spaces = Spaces::parse(&config, &|_| None).unwrap();
    let (left, spoils) = (Arc::new(AtomicUsize::new(usize::MAX)), Arc::<AtomicBool>::default());
    let lines = Arc::new(AtomicUsize::new(1 << 20));
    let reads = Arc::<[AtomicUsize; 2]>::default();
    let odd = Arc::<AtomicBool>::default();
    let reach = There {
        spaces,
        left: left.clone(),
        per_line,
        odd: odd.clone(),
        spoils: spoils.clone(),
        lines: lines.clone(),
        reads: reads.clone(),
    };
    let reach = Arc::new(reach);
    let mut own = Spaces::default();
    // A bucket of its own: its name is that of the folder.
    let name = dir.path().file_name().unwrap().to_str().unwrap().replace('.', "");
    own.give(&format!("b=memory://{name}/below"), &|_| None).unwrap();
    let means = Means { spaces: own, threads: 3, ..Means::default() };
    let stager = Stager::open(&dir.path().join("state"), means).unwrap().reaching(reach);
    Pair { dir, stager, left, odd, spoils, lines, reads }
}

impl Pair {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn request(&self, action: Action, source: &str, target: &str) -> Request {
        let at = |name: &str| format!("{}/{name}", self.dir.path().display());
        let of = |text: String| Location::parse(&text, &|_| None).unwrap();
        let source = match source.split_once("://") {
            // The bucket is no other node's.
            Some(("b", _)) => source.to_owned(),
            Some(_) => format!("far:{source}"),
            None => format!("far:{}", at(source)),
        };
        let target = if target.contains("://") { target.to_owned() } else { at(target) };
        Request {
            action,
            sources: vec![of(source)],
            target: Some(of(target)),
            options: Options { durable: false, ..Options::default() },
        }
    }

    fn run(&self, request: &Request) -> Result<crate::status::Status> {
        let id = self.stager.submit(request)?;
        self.stager.run(id, &Cancel::new(), None)
    }
}

/// What a tree has: paths, kinds, rights, times, bytes, links, attributes.
fn tree(root: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut left = vec![root.to_owned()];
    while let Some(dir) = left.pop() {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            let meta = std::fs::symlink_metadata(&path).unwrap();
            let name = path.strip_prefix(root).unwrap();
            let what = if meta.is_symlink() {
                format!("{:?}", std::fs::read_link(&path).unwrap())
            } else if meta.is_dir() {
                left.push(path.clone());
                String::new()
            } else {
                let sum = crc_fast::checksum(
                    crc_fast::CrcAlgorithm::Crc64Nvme,
                    &std::fs::read(&path).unwrap(),
                );
                let mut note = [0; 64];
                let len = rustix::fs::getxattr(&path, "user.note", &mut note[..]).unwrap_or(0);
                format!("{sum:x} {} {:?}", meta.len(), &note[..len])
            };
            let links = if meta.is_dir() { 0 } else { meta.nlink() };
            let time = (meta.mtime(), meta.mtime_nsec());
            all.push(format!("{name:?} {:o} {time:?} {links} {what}", meta.mode()));
        }
    }
    all.sort();
    all
}

fn plant(root: &Path) {
    std::fs::create_dir_all(root.join("a/deep/empty")).unwrap();
    std::fs::write(root.join("a/small"), b"hello").unwrap();
    std::fs::write(root.join("a/none"), b"").unwrap();
    let large: Vec<u8> =
        (0..20_000_003u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(root.join("a/deep/large"), large).unwrap();
    let sparse = std::fs::File::create(root.join("a/sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"end", 30_000_000).unwrap();
    sparse.set_len(40_000_000).unwrap();
    symlink("../nowhere", root.join("a/link")).unwrap();
    std::fs::hard_link(root.join("a/small"), root.join("a/deep/second")).unwrap();
    let mode = |name: &str, mode| {
        std::fs::set_permissions(root.join(name), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    mode("a/small", 0o640);
    mode("a/deep", 0o751);
    let odd = std::os::unix::ffi::OsStrExt::from_bytes(b"no\xfftext");
    std::fs::write(root.join("a").join::<&std::ffi::OsStr>(odd), b"odd").unwrap();
    let _ = rustix::fs::setxattr(
        root.join("a/small"),
        "user.note",
        b"a\0b",
        rustix::fs::XattrFlags::empty(),
    );
    for name in ["a/small", "a/deep/large", "a/deep", "a"] {
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_500_000_000, 123_456_789);
        std::fs::File::open(root.join(name)).unwrap().set_modified(time).unwrap();
    }
}

#[test]
fn a_tree_of_another_node_comes_whole() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let mut request = p.request(Action::Copy, "far/a", "near/b");
    request.options.verify = true;
    let status = p.run(&request).unwrap();
    assert_eq!((status.state, status.failed), (State::Finished, 0), "{:?}", status.failures);
    assert_eq!(tree(&p.path("near/b")), tree(&p.path("far/a")));
    let room = |name: &str| std::fs::metadata(p.path(name)).unwrap().blocks();
    assert!(room("near/b/sparse") <= room("far/a/sparse") + 64, "holes are kept");
    // A sync finds nothing to do, then what differs, and what is too much.
    let mut sync = p.request(Action::Sync, "far/a/", "near/b");
    sync.options.delete = true;
    assert_eq!(p.run(&sync).unwrap().bytes_done, 0);
    std::fs::write(p.path("far/a/small"), b"other").unwrap();
    std::fs::write(p.path("near/b/more"), b"").unwrap();
    p.run(&sync).unwrap();
    assert_eq!(tree(&p.path("near/b")), tree(&p.path("far/a")));
    // By a pattern, from a dataspace.
    std::fs::create_dir(p.path("near/c")).unwrap();
    p.run(&p.request(Action::Copy, "s://a/*/l*", "near/c/")).unwrap();
    assert_eq!(std::fs::metadata(p.path("near/c/large")).unwrap().len(), 20_000_003);
}

#[test]
fn what_lies_on_another_node_is_compared_there() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    p.run(&p.request(Action::Copy, "far/a", "near/b")).unwrap();
    // Other bytes, of the same size and time.
    let large = p.path("near/b/deep/large");
    let time = std::fs::metadata(&large).unwrap().modified().unwrap();
    let file = std::fs::File::options().write(true).open(&large).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"other", 15_000_000).unwrap();
    file.set_modified(time).unwrap();
    let mut sync = p.request(Action::Sync, "far/a/", "near/b");
    assert_eq!(p.run(&sync).unwrap().bytes_done, 0);
    sync.options.checksum = true;
    // The first bytes that come would be spoilt: none does.
    p.spoils.store(true, Ordering::Relaxed);
    let preview = p.stager.preview(&sync, &Cancel::new()).unwrap();
    assert!(p.spoils.swap(false, Ordering::Relaxed) && p.reads[0].load(Ordering::Relaxed) > 3);
    assert_eq!((preview.files, preview.bytes), (1, 20_000_003));
    assert_eq!(p.run(&sync).unwrap().bytes_done, 20_000_003);
    assert_eq!(tree(&p.path("near/b")), tree(&p.path("far/a")));
    assert_eq!(p.stager.preview(&sync, &Cancel::new()).unwrap().files, 0);
    let found = p.stager.check(&sync, &Cancel::new(), None).unwrap();
    // A link and an empty file among them.
    assert!(found.is_same() && found.same == 7, "{found:?}");
    // Who gives way does so on both nodes.
    let gentle = p.reads[1].load(Ordering::Relaxed);
    sync.options.gentle = true;
    assert_eq!(p.stager.preview(&sync, &Cancel::new()).unwrap().files, 0);
    assert!(p.reads[1].load(Ordering::Relaxed) > gentle);
    // A node that is gone is no other file.
    p.left.store(6, Ordering::Relaxed);
    let e = p.stager.preview(&sync, &Cancel::new()).unwrap_err();
    assert_eq!(e.kind(), Kind::Peer, "{e}");
}

#[test]
fn objects_are_as_old_as_the_files_that_they_are_copies_of() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let mut old = p.request(Action::Copy, "far/a", "b://run");
    // Those to which a time of years ago was given.
    old.options.min_age = Some(365 * 86_400);
    assert_eq!(p.run(&old).unwrap().bytes_done, 20_000_003 + 10);
    let mut back = p.request(Action::Copy, "b://run", "near/new");
    back.options.max_age = Some(365 * 86_400);
    assert_eq!(p.run(&back).unwrap().files, 0);
    let mut back = p.request(Action::Copy, "b://run", "near/old");
    back.options.min_age = Some(365 * 86_400);
    back.options.max_size = Some(5);
    p.run(&back).unwrap();
    let names = files(&p.path("near/old"));
    assert!(names.len() == 2 && names.iter().all(|name| name.ends_with(" 5")), "{names:?}");
}

#[test]
fn what_lies_in_a_bucket_is_read_to_be_compared() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"no\xfftext");
    std::fs::remove_file(p.path("far/a").join(name)).unwrap();
    p.run(&p.request(Action::Copy, "far/a", "b://run")).unwrap();
    let small = p.path("far/a/small");
    let time = std::fs::metadata(&small).unwrap().modified().unwrap();
    std::fs::write(&small, b"HELLO").unwrap();
    std::fs::File::options().write(true).open(&small).unwrap().set_modified(time).unwrap();
    let mut sync = p.request(Action::Sync, "far/a/", "b://run");
    assert_eq!(p.run(&sync).unwrap().bytes_done, 0);
    sync.options.checksum = true;
    assert_eq!(p.run(&sync).unwrap().bytes_done, 10, "a file of two names is two objects");
    assert_eq!(p.run(&sync).unwrap().bytes_done, 0);
    // And the other way round.
    p.run(&p.request(Action::Copy, "b://run", "near/back")).unwrap();
    let mut back = p.request(Action::Sync, "b://run", "near/back");
    back.options.checksum = true;
    assert_eq!(p.run(&back).unwrap().bytes_done, 0);
    std::fs::write(p.path("near/back/small"), b"Hello").unwrap();
    assert_eq!(p.run(&back).unwrap().bytes_done, 5);
    assert_eq!(std::fs::read(p.path("near/back/small")).unwrap(), b"HELLO");
}

/// Names, times and bytes of the files of a tree: what objects have of them.
fn files(root: &Path) -> Vec<String> {
    let is_file = |line: &&String| line.split(' ').nth(1).is_some_and(|m| m.starts_with("100"));
    let known = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        // Without rights, numbers of names and attributes.
        format!("{} {} {} {} {}", words[0], words[2], words[3], words[5], words[6])
    };
    tree(root).iter().filter(is_file).map(known).collect()
}

#[test]
fn a_tree_of_another_node_goes_into_a_bucket() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let mut copy = p.request(Action::Copy, "far/a", "b://run");
    copy.options.verify = true;
    // A name that no object has.
    let odd = p.run(&copy).unwrap_err();
    assert!(odd.kind() == Kind::Usage && odd.to_string().contains("far:"), "{odd}");
    let name: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"no\xfftext");
    std::fs::remove_file(p.path("far/a").join(name)).unwrap();
    let status = p.run(&copy).unwrap();
    assert_eq!((status.state, status.failed), (State::Finished, 0), "{:?}", status.failures);
    // The link and the empty folder are left out.
    assert_eq!(status.skipped, 2);
    assert_eq!(p.run(&p.request(Action::Sync, "far/a/", "b://run")).unwrap().bytes_done, 0);
    p.run(&p.request(Action::Copy, "b://run", "near/back")).unwrap();
    assert_eq!(files(&p.path("near/back")), files(&p.path("far/a")));
    // What differs, and what is too much.
    std::fs::write(p.path("far/a/small"), b"other").unwrap();
    std::fs::remove_file(p.path("far/a/sparse")).unwrap();
    let mut sync = p.request(Action::Sync, "far/a/", "b://run");
    sync.options.delete = true;
    assert_eq!(p.run(&sync).unwrap().bytes_done, 10, "a file of two names is two objects");
    std::fs::remove_dir_all(p.path("near/back")).unwrap();
    p.run(&p.request(Action::Copy, "b://run", "near/back")).unwrap();
    assert_eq!(files(&p.path("near/back")), files(&p.path("far/a")));
    // A move leaves what has no copy.
    let moved = p.run(&p.request(Action::Move, "far/a", "b://moved")).unwrap();
    assert_eq!(moved.state, State::Finished, "{:?}", moved.failures);
    assert_eq!(files(&p.path("far/a")), [""; 0]);
    assert!(p.path("far/a/link").is_symlink());
}

#[test]
fn a_node_that_is_gone_interrupts_an_upload_that_goes_on_when_it_is_back() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let mut request = p.request(Action::Copy, "far/a/deep/large", "b://large");
    request.options.retries = 0;
    for n in 1..9 {
        p.left.store(n, Ordering::Relaxed);
        let id = p.stager.submit(&request).unwrap();
        let ended = p.stager.run(id, &Cancel::new(), None);
        p.left.store(usize::MAX, Ordering::Relaxed);
        match ended {
            // So many questions are enough: looked at when it is planned and when it begins, and three parts.
            Ok(status) => {
                assert!(status.state == State::Finished && n > 4, "{n}: {status:?}");
                p.run(&p.request(Action::Copy, "b://large", "near/back")).unwrap();
                let same = std::fs::read(p.path("near/back")).unwrap();
                assert!(same == std::fs::read(p.path("far/a/deep/large")).unwrap());
                return;
            }
            Err(e) => assert!(e.kind() == Kind::Peer && e.to_string().contains("far"), "{n}: {e}"),
        }
    }
    panic!("it never ended");
}

#[test]
fn a_source_that_changes_on_its_way_into_a_bucket_is_told() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let mut request = p.request(Action::Copy, "far/a/deep/large", "b://large");
    request.options.retries = 0;
    let id = p.stager.submit(&request).unwrap();
    // In the middle of it: the next question is answered by another file.
    p.left.store(5, Ordering::Relaxed);
    assert_eq!(p.stager.run(id, &Cancel::new(), None).unwrap_err().kind(), Kind::Peer);
    std::fs::write(p.path("far/a/deep/large"), vec![9; 20_000_003]).unwrap();
    p.left.store(usize::MAX, Ordering::Relaxed);
    assert_eq!(p.stager.run(id, &Cancel::new(), None).unwrap().state, State::Finished);
    p.run(&p.request(Action::Copy, "b://large", "near/back")).unwrap();
    assert!(std::fs::read(p.path("near/back")).unwrap() == vec![9; 20_000_003]);
}

#[test]
fn a_move_leaves_nothing_but_what_was_changed() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let before = tree(&p.path("far/a"));
    let status = p.run(&p.request(Action::Move, "far/a", "near/b")).unwrap();
    assert_eq!(status.state, State::Finished, "{:?}", status.failures);
    assert_eq!(tree(&p.path("near/b")), before);
    assert!(!p.path("far/a").exists());
}

#[test]
fn lines_that_end_are_made_anew_and_a_node_that_is_gone_interrupts() {
    let p = pair(3);
    plant(&p.path("far"));
    let mut request = p.request(Action::Copy, "far/a", "near/b");
    let status = p.run(&request).unwrap();
    assert_eq!(status.state, State::Finished, "{:?}", status.failures);
    assert_eq!(tree(&p.path("near/b")), tree(&p.path("far/a")));
    // It ends in the middle of all; what is left is done when it is back.
    request.target = p.request(Action::Copy, "x", "near/c").target;
    request.options.retries = 0;
    for n in [0, 5, 12] {
        p.left.store(n, Ordering::Relaxed);
        let id = p.stager.submit(&request).unwrap();
        let e = p.stager.run(id, &Cancel::new(), None).unwrap_err();
        assert_eq!(e.kind(), Kind::Peer, "{n}: {e}");
        assert!(e.to_string().contains("far"), "{e}");
        assert_eq!(p.stager.status(id).unwrap().state, State::Interrupted);
        p.left.store(usize::MAX, Ordering::Relaxed);
        assert_eq!(p.stager.run(id, &Cancel::new(), None).unwrap().state, State::Finished);
        assert_eq!(tree(&p.path("near/c")), tree(&p.path("far/a")));
        std::fs::remove_dir_all(p.path("near/c")).unwrap();
    }
}

#[test]
fn a_file_of_a_node_that_is_gone_has_not_failed() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let mut request = p.request(Action::Copy, "far/a/small", "near/b");
    request.options.retries = 1;
    p.odd.store(true, Ordering::Relaxed);
    let mut interrupted = 0;
    for n in 1..20 {
        request.target = p.request(Action::Copy, "x", &format!("near/{n}")).target;
        p.left.store(n, Ordering::Relaxed);
        let id = p.stager.submit(&request).unwrap();
        let ended = p.stager.run(id, &Cancel::new(), None);
        p.left.store(usize::MAX, Ordering::Relaxed);
        match ended {
            Ok(status) => assert_eq!(status.state, State::Finished, "{n}: {:?}", status.failures),
            // Before there is a file it is no error of one.
            Err(e) if e.kind() == Kind::Io => {
                p.stager.run(id, &Cancel::new(), None).unwrap();
            }
            Err(e) => {
                assert_eq!(e.kind(), Kind::Peer, "{n}: {e}");
                interrupted += 1;
                assert_eq!(p.stager.status(id).unwrap().state, State::Interrupted);
                let status = p.stager.run(id, &Cancel::new(), None).unwrap();
                assert_eq!(status.state, State::Finished, "{n}: {:?}", status.failures);
            }
        }
        let there = std::fs::read(p.path(&format!("near/{n}"))).unwrap();
        assert!(there == std::fs::read(p.path("far/a/small")).unwrap());
    }
    assert!(interrupted > 0);
}

#[test]
fn a_large_file_of_a_node_that_is_gone_goes_on_in_the_middle() {
    let p = pair(usize::MAX);
    std::fs::create_dir(p.path("far/a")).unwrap();
    let pieces = usize::try_from(LEAST_MARKED / PIECE).unwrap();
    let bytes: Vec<u8> = (0..LEAST_MARKED).map(|i| (i / 4099) as u8).collect();
    std::fs::write(p.path("far/a/large"), &bytes).unwrap();
    let mut request = p.request(Action::Copy, "far/a/large", "near/b");
    for retries in [0, 1] {
        (request.options.retries, request.options.exists) = (retries, Exists::Replace);
        let reads = || p.reads[0].swap(0, Ordering::Relaxed);
        p.left.store(pieces * 3 / 4, Ordering::Relaxed);
        let id = p.stager.submit(&request).unwrap();
        assert_eq!(p.stager.run(id, &Cancel::new(), None).unwrap_err().kind(), Kind::Peer);
        assert!(reads() > pieces / 2);
        p.left.store(usize::MAX, Ordering::Relaxed);
        let status = p.stager.run(id, &Cancel::new(), None).unwrap();
        assert_eq!((status.state, status.bytes_done), (State::Finished, LEAST_MARKED));
        let again = reads();
        assert!(again < pieces / 2, "{again} of {pieces} pieces once more");
        assert!(std::fs::read(p.path("near/b")).unwrap() == bytes);
        assert_eq!(std::fs::read_dir(p.path("near")).unwrap().count(), 1);
    }
}

#[test]
fn where_there_may_be_few_lines_they_are_waited_for() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    p.lines.store(2, Ordering::Relaxed);
    // Those at whose other end somebody gives way are of a sort of their own.
    for (gentle, to) in [(false, "near/b"), (true, "near/c"), (false, "near/d")] {
        let mut request = p.request(Action::Copy, "far/a", to);
        (request.options.retries, request.options.gentle) = (0, gentle);
        let status = p.run(&request).unwrap();
        assert_eq!((status.state, status.failed), (State::Finished, 0), "{:?}", status.failures);
        assert_eq!(tree(&p.path(to)), tree(&p.path("far/a")));
    }
}

#[test]
fn who_reads_where_the_other_node_wants_it_gives_way_at_both_ends() {
    for (terms, gentle) in [("", false), ("gentle = true", true), ("limit = '2GiB'", false)] {
        let p = pair_with(usize::MAX, terms);
        plant(&p.path("far"));
        // Also if it goes on, when the base is opened anew.
        let mut request = p.request(Action::Copy, "far/a", "near/b");
        request.options.retries = 0;
        let id = p.stager.submit(&request).unwrap();
        let ends = |n: usize| {
            p.left.store(1 << n, Ordering::Relaxed);
            p.stager.run(id, &Cancel::new(), None).is_ok()
        };
        assert!((3..20).any(ends));
        assert_eq!(tree(&p.path("near/b")), tree(&p.path("far/a")));
        let [all, gave_way] = [0, 1].map(|i| p.reads[i].load(Ordering::Relaxed));
        assert!(all > 0);
        assert_eq!(gave_way, if gentle { all } else { 0 }, "{terms}");
    }
}

#[test]
fn what_no_system_tells_is_no_file() {
    let told = |size: u64, nanos: u32| {
        let text = format!(
            r#"{{"what": "file", "size": {size}, "room": 0, "mode": 420, "owner": [0, 0], "id": [1, 2, 1],
               "mtime": [5, {nanos}], "ctime": [5, 6]}}"#
        );
        serde_json::from_str::<super::Told>(&text).unwrap().meta().is_some()
    };
    assert!(told(i64::MAX as u64, 999_999_999));
    assert!(!told(1 << 63, 0) && !told(1, 1_000_000_000));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let mut away = p.request(Action::Copy, "far/a", "near/b");
    away.target = away.sources.first().cloned();
    assert_eq!(p.stager.submit(&away).unwrap_err().kind(), Kind::Usage);
    let mut remove = p.request(Action::Remove, "far/a", "near/b");
    remove.target = None;
    assert_eq!(p.stager.submit(&remove).unwrap_err().kind(), Kind::Usage);
    let none = p.run(&p.request(Action::Copy, "far/none", "near/b")).unwrap_err();
    assert_eq!(none.kind(), Kind::NotFound, "{none}");
    // Into a folder that both nodes have: the folder itself, and what would clear it.
    let own = p.run(&p.request(Action::Copy, "far/a", "far/a/deep")).unwrap_err();
    assert!(own.kind() == Kind::Usage && own.to_string().contains("into itself"), "{own}");
    let mut request = p.request(Action::Copy, "far/a/small", "far/a/small");
    request.options.exists = Exists::Replace;
    let same = p.run(&request).unwrap_err();
    assert!(same.to_string().contains("are the same"), "{same}");
    let mut sync = p.request(Action::Sync, "far/a/deep/", "far/a");
    sync.options.delete = true;
    let cleared = p.run(&sync).unwrap_err();
    assert!(cleared.to_string().contains("would be removed"), "{cleared}");
    // Where there is no way to others.
    let means = Means { threads: 1, ..Means::default() };
    let alone = Stager::open(&p.path("other"), means).unwrap();
    let e = alone.submit(&p.request(Action::Copy, "far/a", "near/b")).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.hint().is_some_and(|h| h.contains("--pool")), "{e}");
}

#[test]
fn nobody_leads_a_node_out_of_its_folders() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    symlink("/etc", p.path("far/out")).unwrap();
    let mut spaces = Spaces::default();
    spaces.give(&format!("s={}/far", p.dir.path().display()), &|_| None).unwrap();
    let mut answering = Answering::default();
    let mut ask = |text: &str| {
        let question: Question = serde_json::from_str(text).unwrap();
        answering.answer(&question, &spaces, &Cancel::new(), &mut |_| Ok(()))
    };
    let base = format!(r#""base": {{"Space": ["s", "{}/far"]}}"#, p.dir.path().display());
    for path in [r#""../near""#, r#""a/../..""#, r#""/etc""#, r#""a\u0000b""#] {
        for what in ["meta", "list", "link", "attributes"] {
            let e = ask(&format!(r#"{{"{what}": {{{base}, "path": {path}}}}}"#)).unwrap_err();
            assert_eq!(e.kind(), Kind::Format, "{what} {path}: {e}");
        }
    }
    let e = ask(&format!(r#"{{"meta": {{{base}, "path": "out/passwd"}}}}"#)).unwrap_err();
    assert_eq!(e.kind(), Kind::Permission, "{e}");
    let e = ask(r#"{"more": {}}"#).unwrap_err();
    assert_eq!(e.kind(), Kind::Format, "{e}");
    let far = r#"{"open": {"base": {"Far": ["x", {"Path": "/"}]}}}"#;
    assert_eq!(ask(far).unwrap_err().kind(), Kind::Format);
    let many = format!(
        r#"{{"read": {{{base}, "path": "a/small", "at": 0, "len": 99999999999, "seen": null, "careful": false, "attributes": false}}}}"#
    );
    assert_eq!(ask(&many).unwrap_err().kind(), Kind::Format);
}

#[test]
fn neither_node_has_the_bytes_in_memory_after() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    let large = std::fs::File::open(p.path("far/a/deep/large")).unwrap();
    let there = |name: &str| {
        let file = std::fs::File::open(p.path(name)).unwrap();
        stead_store::resident_share(&file, 20_000_003, 64)
    };
    large.sync_all().unwrap();
    if stead_store::tier::is_memory(&large) || there("far/a/deep/large") == 0.0 {
        // A file system of memory, or a system that does not tell.
        return;
    }
    stead_store::evict(&large);
    for (name, gentle, verify) in
        [("near/b", false, false), ("near/c", true, false), ("near/d", false, true)]
    {
        let mut request = p.request(Action::Copy, "far/a", name);
        (request.options.gentle, request.options.verify) = (gentle, verify);
        assert_eq!(p.run(&request).unwrap().failed, 0);
        let to = there(&format!("{name}/deep/large"));
        assert!(there("far/a/deep/large") < 0.1, "{name}: {}", there("far/a/deep/large"));
        assert!(to < 0.1, "{name}: {to}");
        assert_eq!(tree(&p.path(name)), tree(&p.path("far/a")));
        stead_store::evict(&large);
    }
}

#[test]
fn limits_of_the_other_node_are_kept_to() {
    // What somebody limits is no speed of a pair of tiers, and is not remembered as one.
    for (terms, limited) in [("", false), ("limit = '2GiB'", true)] {
        let p = pair_with(usize::MAX, terms);
        plant(&p.path("far"));
        p.run(&p.request(Action::Copy, "s://a", "near/b")).unwrap();
        let journal = crate::Journal::open(&p.path("state/transfers.db")).unwrap();
        assert_eq!(journal.all_seen().unwrap().is_empty(), limited, "{terms}");
        // By a path into it, too.
        p.run(&p.request(Action::Copy, "far/a", "near/c")).unwrap();
        assert_eq!(journal.all_seen().unwrap().is_empty(), limited, "{terms}");
    }
}

#[test]
fn what_changes_on_its_way_is_noticed() {
    let p = pair(usize::MAX);
    plant(&p.path("far"));
    p.spoils.store(true, Ordering::Relaxed);
    let id = p.stager.submit(&p.request(Action::Copy, "far/a/deep/large", "near/large")).unwrap();
    let status = p.stager.run(id, &Cancel::new(), None).unwrap();
    assert!(!p.spoils.load(Ordering::Relaxed) && !p.path("near/large").exists());
    assert_eq!((status.state, status.failed), (State::Failed, 1));
    let why = format!("{:?}", status.failures);
    assert!(why.contains("not what the other node has read"), "{why}");
    assert_eq!(std::fs::read_dir(p.path("near")).unwrap().count(), 0);
}
