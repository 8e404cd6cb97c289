//! Transfers to buckets, from them and between them, over stores in memory.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};
use stead_core::layout::Spaces;
use stead_core::{BucketUrl, Cancel, Error, Kind, Location, Result};
use stead_stage::{
    Action, Exists, Means, Options, Progress, Request, Stager, State, Status, Watcher,
};
use stead_store::Bucket;
use tempfile::TempDir;

/// A folder, and the bucket of a test.
struct Lab {
    dir: TempDir,
    name: String,
    stager: Stager,
}

fn lab(name: &str) -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let mut spaces = Spaces::default();
    spaces.give(&format!("archive=memory://{name}/old"), &|_| None).unwrap();
    let stager =
        Stager::open(&dir.path().join("state"), Means { spaces, threads: 3, ..Means::default() })
            .unwrap();
    Lab { dir, name: name.to_owned(), stager }
}

impl Lab {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Names that begin with `@` are in the bucket, others without `://` in the folder.
    fn location(&self, text: &str) -> Location {
        let text = match text.strip_prefix('@') {
            Some(key) => format!("memory://{}/{key}", self.name),
            None if text.contains("://") => text.to_owned(),
            None => format!("{}/{text}", self.dir.path().display()),
        };
        Location::parse(&text, &|_| None).unwrap()
    }

    fn request(&self, action: Action, sources: &[&str], target: Option<&str>) -> Request {
        Request {
            action,
            sources: sources.iter().map(|s| self.location(s)).collect(),
            target: target.map(|t| self.location(t)),
            options: Options { retries: 0, ..Options::default() },
        }
    }

    fn run(&self, request: &Request) -> Result<Status> {
        let id = self.stager.submit(request)?;
        let status = self.stager.run(id, &Cancel::new(), None)?;
        assert!(status.failures.is_empty(), "{:?}", status.failures);
        assert_eq!(status.state, State::Finished);
        Ok(status)
    }

    fn stage(&self, action: Action, source: &str, target: &str) -> Result<Status> {
        self.run(&self.request(action, &[source], Some(target)))
    }

    fn bucket(&self) -> Bucket {
        Bucket::open(&BucketUrl::parse(&format!("memory://{}", self.name)).unwrap()).unwrap()
    }

    /// All objects below a prefix, by their keys behind it.
    fn objects(&self, prefix: &str) -> BTreeMap<String, Vec<u8>> {
        let bucket = self.bucket();
        let mut left = vec![prefix.to_owned()];
        let mut found = BTreeMap::new();
        while let Some(at) = left.pop() {
            for entry in bucket.page(&at, None, 100).unwrap().entries {
                let key = if at.is_empty() { entry.name } else { format!("{at}/{}", entry.name) };
                match entry.object {
                    None => left.push(key),
                    Some(object) => {
                        let bytes = bucket.get(&key, 0..object.size, None).unwrap().0;
                        let name = key.strip_prefix(prefix).unwrap().trim_start_matches('/');
                        found.insert(name.to_owned(), bytes);
                    }
                }
            }
        }
        found
    }
}

fn files(at: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut left, mut found) = (vec![at.to_owned()], BTreeMap::new());
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap()) {
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            if kind.is_dir() {
                left.push(path);
            } else if kind.is_file() {
                let name = path.strip_prefix(at).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
        }
    }
    found
}

fn write(path: &Path, bytes: &[u8], seconds: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
    let time = UNIX_EPOCH + Duration::from_nanos(seconds * 1_000_000_000 + 123);
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

fn modified(path: &Path) -> Duration {
    fs::metadata(path).unwrap().modified().unwrap().duration_since(UNIX_EPOCH).unwrap()
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 1000 + seed) as u8).collect()
}

/// Files of several sizes: nothing, a few bytes, a part, and several parts, the last of one byte.
fn tree(at: &Path) {
    for (i, size) in [0, 1, 70_000, 8 << 20, (16 << 20) + 1].into_iter().enumerate() {
        write(&at.join(format!("d{}/f {i}%", i % 2)), &bytes(size, i), 1_000_000 + i as u64);
    }
    fs::create_dir_all(at.join("d1/empty")).unwrap();
    std::os::unix::fs::symlink("f 1%", at.join("d1/link")).unwrap();
}

#[test]
fn trees_go_into_a_bucket_and_come_back() {
    let l = lab("trees");
    tree(&l.path("from"));
    let there = files(&l.path("from"));
    let mut request = l.request(Action::Copy, &["from/"], Some("@run/7/"));
    request.options.verify = true;
    let preview = l.stager.preview(&request, &Cancel::new()).unwrap();
    assert_eq!((preview.files, preview.free, preview.skipped), (5, None, 2));
    let status = l.run(&request).unwrap();
    // The link and the empty folder are none of them.
    assert_eq!((status.files_done, status.skipped), (5, 2));
    assert_eq!(l.objects("run/7"), there);
    request = l.request(Action::Copy, &["@run/7"], Some("back"));
    request.options.verify = true;
    l.run(&request).unwrap();
    assert_eq!(files(&l.path("back")), there);
    let name = "d0/f 4%";
    assert_eq!(modified(&l.path("back").join(name)), modified(&l.path("from").join(name)));
    // One by its name, and some by a pattern, in a dataspace too.
    l.stage(Action::Copy, "@run/7/d0/f 2%", "one").unwrap();
    assert_eq!(fs::read(l.path("one")).unwrap(), there["d0/f 2%"]);
    l.stage(Action::Copy, "@run/*/d0/*", "archive://some").unwrap();
    assert_eq!(l.objects("old/some").keys().collect::<Vec<_>>(), ["f 0%", "f 2%", "f 4%"]);
    l.stage(Action::Copy, "archive://some/*[02]%", "two").unwrap();
    assert_eq!(files(&l.path("two")).len(), 2);
    let none = l.stage(Action::Copy, "archive://none/*", "three").unwrap_err();
    assert_eq!(none.kind(), Kind::NotFound);
    assert_eq!(l.stage(Action::Copy, "@none", "three").unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn syncs_copy_what_differs() {
    let l = lab("syncs");
    tree(&l.path("from"));
    l.stage(Action::Sync, "from", "archive://run").unwrap();
    assert_eq!(l.objects("old/run"), files(&l.path("from")));
    let again = l.stage(Action::Sync, "from", "archive://run").unwrap();
    assert_eq!((again.files_done, again.skipped), (0, 7));
    write(&l.path("from/d0/f 2%"), &bytes(70_000, 9), 2_000_000);
    write(&l.path("from/new"), b"new", 2_000_001);
    fs::remove_file(l.path("from/d1/f 1%")).unwrap();
    let mut request = l.request(Action::Sync, &["from"], Some("archive://run"));
    request.options.delete = true;
    let status = l.run(&request).unwrap();
    assert_eq!(status.files_done, 3);
    assert_eq!(l.objects("old/run"), files(&l.path("from")));
    // And the other way round.
    l.stage(Action::Sync, "archive://run", "back").unwrap();
    assert_eq!(files(&l.path("back")), files(&l.path("from")));
    assert_eq!(l.stage(Action::Sync, "archive://run", "back").unwrap().files_done, 0);
    l.stage(Action::Sync, "back", "archive://run").unwrap();
    assert_eq!(l.stage(Action::Sync, "@old/run", "@mirror").unwrap().files_done, 5);
    assert_eq!(l.stage(Action::Sync, "@old/run", "@mirror").unwrap().files_done, 0);
    assert_eq!(l.objects("mirror"), l.objects("old/run"));
}

#[test]
fn moves_leave_nothing() {
    let l = lab("moves");
    tree(&l.path("from"));
    fs::remove_file(l.path("from/d1/link")).unwrap();
    let there = files(&l.path("from"));
    l.stage(Action::Move, "from", "@a").unwrap();
    assert!(!l.path("from").exists());
    l.stage(Action::Move, "@a", "@b/c").unwrap();
    assert!(l.objects("a").is_empty());
    // To another bucket, through this process.
    let other = lab("moves-other");
    l.stage(Action::Move, "@b/", "memory://moves-other/d/").unwrap();
    assert!(l.objects("").is_empty());
    assert_eq!(other.objects("d/c"), there);
    l.stage(Action::Move, "memory://moves-other/d", "back").unwrap();
    assert!(other.objects("").is_empty());
    assert_eq!(files(&l.path("back/c")), there);
}

#[test]
fn what_is_there_is_dealt_with_as_is_wanted() {
    let l = lab("exists");
    write(&l.path("f"), b"new", 5);
    l.bucket().put("f", b"old!".to_vec(), &Default::default(), false).unwrap();
    let held = |l: &Lab| l.objects("")["f"].clone();
    let e = l.stage(Action::Copy, "f", "@f").unwrap_err();
    assert!(e.kind() == Kind::Usage && e.to_string().contains("memory://exists/f"), "{e}");
    let with = |exists| {
        let mut request = l.request(Action::Copy, &["f"], Some("@f"));
        request.options.exists = exists;
        l.run(&request).unwrap().skipped
    };
    assert_eq!((with(Exists::Skip), held(&l)), (1, b"old!".to_vec()));
    assert_eq!((with(Exists::Newer), held(&l)), (0, b"new".to_vec()));
    assert_eq!(with(Exists::Newer), 1);
    assert_eq!(with(Exists::Replace), 0);
    // A folder of the bucket is one by what lies in it.
    l.bucket().put("d/x", b"x".to_vec(), &Default::default(), false).unwrap();
    l.stage(Action::Copy, "f", "@d").unwrap();
    assert_eq!(l.objects("d").keys().collect::<Vec<_>>(), ["f", "x"]);
    l.bucket().put("d", b"both".to_vec(), &Default::default(), false).unwrap();
    let both = l.stage(Action::Copy, "@", "all").unwrap_err();
    assert!(both.to_string().contains("others lie below it"), "{both}");
    assert_eq!(l.stage(Action::Copy, "@f/", "all").unwrap_err().kind(), Kind::Usage);
    assert_eq!(l.stage(Action::Copy, "@d/", "@d/e").unwrap_err().kind(), Kind::Usage);
    for name in ["a\nb", "c\u{7f}"] {
        write(&l.path("odd").join(name), b"x", 1);
        let e = l.stage(Action::Copy, "odd", "@odd").unwrap_err();
        assert!(e.kind() == Kind::Usage && e.to_string().contains("no such names"), "{e}");
        fs::remove_dir_all(l.path("odd")).unwrap();
    }
}

#[test]
fn objects_are_removed() {
    let l = lab("removes");
    tree(&l.path("from"));
    l.stage(Action::Copy, "from", "@run").unwrap();
    l.run(&l.request(Action::Remove, &["@run/d1/*1%"], None)).unwrap();
    assert_eq!(l.objects("run").len(), 4);
    let status = l.run(&l.request(Action::Remove, &["@run"], None)).unwrap();
    assert_eq!((status.files_done, l.objects("").len()), (4, 0));
    let gone = l.run(&l.request(Action::Remove, &["@run"], None)).unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound);
    for whole in ["@", "archive://"] {
        let e = l.run(&l.request(Action::Remove, &[whole], None)).unwrap_err();
        assert_eq!(e.kind(), Kind::Usage, "{whole}");
    }
}

/// Stops a transfer when something has moved.
struct Stop(Cancel);

impl Watcher for Stop {
    fn progress(&self, p: &Progress) {
        if p.bytes_done > 0 {
            self.0.cancel();
        }
    }

    fn retry(&self, _: &Error) {}
}

#[test]
fn uploads_go_on_or_are_given_up() {
    let l = lab("resumed");
    write(&l.path("big"), &bytes(40 << 20, 1), 7);
    let mut request = l.request(Action::Copy, &["big"], Some("@big"));
    request.options.limit = Some(40 << 20);
    let stop = |id| {
        let stop = Stop(Cancel::new());
        let e = l.stager.run(id, &stop.0, Some(&stop)).unwrap_err();
        assert_eq!(e.kind(), Kind::Cancelled);
    };
    let id = l.stager.submit(&request).unwrap();
    stop(id);
    assert!(l.objects("").is_empty());
    let status = l.stager.run(id, &Cancel::new(), None).unwrap();
    assert_eq!((status.state, status.bytes_done), (State::Finished, 40 << 20));
    assert_eq!(l.objects("")["big"], fs::read(l.path("big")).unwrap());
    // What has changed meanwhile is begun anew.
    l.run(&l.request(Action::Remove, &["@big"], None)).unwrap();
    let id = l.stager.submit(&request).unwrap();
    stop(id);
    write(&l.path("big"), &bytes(40 << 20, 2), 8);
    assert_eq!(l.stager.run(id, &Cancel::new(), None).unwrap().state, State::Finished);
    assert_eq!(l.objects("")["big"], fs::read(l.path("big")).unwrap());
    l.run(&l.request(Action::Remove, &["@big"], None)).unwrap();
    let id = l.stager.submit(&request).unwrap();
    stop(id);
    assert_eq!(l.stager.cancel(id).unwrap().state, State::Cancelled);
    assert!(l.objects("").is_empty());
}

#[test]
fn secrets_are_refused_and_not_kept() {
    let l = lab("secrets");
    write(&l.path("f"), b"x", 1);
    let e = l.stage(Action::Copy, "f", "s3://me:secret@bucket/f").unwrap_err();
    assert!(e.kind() == Kind::Usage && !e.to_string().contains("secret"), "{e}");
}

#[test]
fn what_says_that_it_is_empty_and_is_not_does_not_go_into_a_bucket() {
    let lab = lab("hidden");
    let request = Request {
        sources: vec![Location::parse("/proc/version", &|_| None).unwrap()],
        ..lab.request(Action::Copy, &[], Some("@v"))
    };
    let id = lab.stager.submit(&request).unwrap();
    let status = lab.stager.run(id, &Cancel::new(), None).unwrap();
    assert_eq!(status.state, State::Failed, "{status:?}");
    assert!(status.failures[0].error.contains("says that it is empty"), "{status:?}");
    assert!(lab.objects("").is_empty());
    write(&lab.path("empty"), b"", 5);
    lab.stage(Action::Copy, "empty", "@empty").unwrap();
    assert_eq!(lab.objects("").len(), 1);
}
