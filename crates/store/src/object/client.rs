//! The client: the only place that knows a runtime. How its connections are made `http.rs` says.
//!
//! Two threads of it move what all calls of this process ask for; a call waits for its answer outside of it, so that who calls
//! may be a thread of any other runtime.

mod made;
mod profile;
mod uploads;

use super::http::{BESIDES, Besides};
use super::told::told;
use super::{Entry, Label, Object, Page, time_of, time_text};
use crate::{FileTime, shared};
use futures_util::{StreamExt, stream};
use object_store::azure::MicrosoftAzure;
use object_store::client::HttpClient;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::signer::{HeaderName, HeaderValue, Signer};
use object_store::{
    Attribute, Attributes, CopyOptions, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions,
};
use std::future::Future;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;
use stead_core::{BucketUrl, Cancel, Error, Kind, Result};
use tokio::runtime::Runtime;

/// So often a call looks whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);
const THREADS: usize = 2;
/// Processes that were forked one by the other, at most.
const DEEPEST: usize = 64;

type Outcome<T> = std::result::Result<T, object_store::Error>;

struct Inner {
    url: String,
    store: Arc<dyn ObjectStore>,
    /// Uploads in parts; none where there are no uploads.
    parts: Option<Arc<dyn MultipartStore>>,
    /// Lists page by page.
    pages: Option<Arc<dyn PaginatedListStore>>,
    /// A store that is told of an object when its parts are completed, and not when they are begun.
    azure: Option<Arc<MicrosoftAzure>>,
    /// What signs requests that the library does not know, and who sends them.
    signer: Option<(Arc<dyn Signer>, HttpClient)>,
}

/// A bucket of an object store. Keys have no `/` at either end.
#[derive(Clone)]
pub struct Bucket {
    inner: Arc<Inner>,
    /// Who made it: a process that was forked since has none of the threads that it needs.
    generation: usize,
    cancel: Cancel,
}

impl std::fmt::Debug for Bucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A client knows credentials.
        write!(f, "Bucket({})", self.inner.url)
    }
}

/// How often this process was forked since there were buckets first: it has what was made as often, and nothing of before, where threads are
/// gone and locks may be theirs.
fn generation() -> usize {
    shared::generation().map_or(0, |forks| forks as usize)
}

fn too_deep() -> Error {
    Error::limit(format!(
        "buckets are used in more than {DEEPEST} processes that were forked one by the other"
    ))
    .with_hint("begin the process anew, as multiprocessing does with 'spawn'")
}

fn runtime() -> Result<&'static Runtime> {
    static RUNTIMES: [OnceLock<Runtime>; DEEPEST] = [const { OnceLock::new() }; DEEPEST];
    let own = RUNTIMES.get(generation()).ok_or_else(too_deep)?;
    if let Some(runtime) = own.get() {
        return Ok(runtime);
    }
    // Where TLS is asked for, and nobody has chosen before.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let made = builder.worker_threads(THREADS).thread_name("stead-object").enable_all().build();
    let made = made.map_err(|e| Error::io("begin threads for", "object stores", e))?;
    Ok(own.get_or_init(|| made))
}

/// Does this on the runtime, and waits for it.
fn wait<T: Send + 'static>(
    cancel: &Cancel,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let (done, answer) = sync_channel(1);
    let task = runtime()?.spawn(async move {
        let _ = done.send(work.await);
    });
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Timeout) => {
                if let Err(e) = cancel.check() {
                    task.abort();
                    return Err(e);
                }
            }
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::internal("a request to an object store panicked"));
            }
        }
    }
}

type Open = Vec<(String, Weak<Inner>)>;

/// Those that are open: a client has connections that others can use.
fn of(url: &BucketUrl) -> Result<Arc<Inner>> {
    static OPEN: [Mutex<Open>; DEEPEST] = [const { Mutex::new(Vec::new()) }; DEEPEST];
    let name = BucketUrl { prefix: String::new(), ..url.clone() }.to_string();
    let open = OPEN.get(generation()).ok_or_else(too_deep)?;
    let mut open = open.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|(_, inner)| inner.strong_count() > 0);
    if let Some(inner) = open.iter().find(|(n, _)| *n == name).and_then(|(_, i)| i.upgrade()) {
        return Ok(inner);
    }
    let inner = Arc::new(made::made(url, &name)?);
    open.push((name, Arc::downgrade(&inner)));
    Ok(inner)
}

fn time(t: &ObjectMeta) -> FileTime {
    let at = t.last_modified;
    FileTime { seconds: at.timestamp(), nanos: at.timestamp_subsec_nanos().min(999_999_999) }
}

fn listed(meta: &ObjectMeta) -> Object {
    // A store may say anything: no file is larger than this, and what is computed with it goes on to be right.
    let size = meta.size.min(i64::MAX as u64);
    let (modified, tag) = (time(meta), meta.e_tag.clone());
    Object { size, modified, mtime: None, mark: None, tag }
}

/// The bytes of an answer, of which there are to be so many.
async fn bytes_of(got: GetResult, wanted: u64) -> Outcome<Vec<u8>> {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let mut stream = got.into_stream();
    let mut bytes = Vec::new();
    while let Some(some) = stream.next().await {
        let some = some?;
        if some.len() > wanted - bytes.len() {
            let source = format!("more than the {wanted} bytes came that were asked for").into();
            return Err(object_store::Error::Generic { store: "HTTP", source });
        }
        if bytes.is_empty() {
            bytes.reserve_exact(wanted);
        }
        bytes.extend_from_slice(&some);
    }
    Ok(bytes)
}

const MTIME: &str = "mtime";
const MARK: &str = "stead";

fn known(meta: &ObjectMeta, attributes: &Attributes) -> Object {
    let of = |name: &'static str| attributes.get(&Attribute::Metadata(name.into()));
    Object {
        mtime: of(MTIME).and_then(|text| time_of(text)),
        mark: of(MARK).map(|text| text.to_string()),
        ..listed(meta)
    }
}

fn attributes(label: &Label) -> Attributes {
    let mut all = Attributes::new();
    all.insert(Attribute::Metadata(MTIME.into()), time_text(label.mtime).into());
    all.insert(Attribute::Metadata(MARK.into()), label.mark.clone().into());
    all
}

/// What a store is told of an object in the end.
async fn besides(azure: &MicrosoftAzure, upload: &str) -> Outcome<Besides> {
    let (mtime, mark) = upload.split_once(' ').unwrap_or_default();
    let mut headers = Vec::new();
    for (name, value) in [("x-ms-meta-mtime", mtime), ("x-ms-meta-stead", mark)] {
        let value = HeaderValue::from_str(value);
        let value =
            value.map_err(|e| object_store::Error::Generic { store: "Azure", source: e.into() })?;
        headers.push((HeaderName::from_static(name), value));
    }
    Ok(Besides { headers, credential: azure.credentials().get_credential().await? })
}

impl Bucket {
    /// Opens the bucket of a URL, as a whole: nothing is asked of it yet.
    ///
    /// # Errors
    /// `Usage` for protocols that are not known and settings that make no sense; `Permission` where the environment is not to be
    /// believed.
    pub fn open(url: &BucketUrl) -> Result<Bucket> {
        Ok(Bucket { inner: of(url)?, generation: generation(), cancel: Cancel::new() })
    }

    /// The same, whose calls stop when this does.
    #[must_use]
    pub fn stopped_by(self, cancel: &Cancel) -> Bucket {
        Bucket { cancel: cancel.clone(), ..self }
    }

    /// True if both are the same one.
    pub fn is(&self, other: &Bucket) -> bool {
        self.inner.url == other.inner.url
    }

    /// Its URL, in which there are no credentials.
    pub fn name(&self) -> &str {
        &self.inner.url
    }

    /// The URL of a key, for people.
    pub fn shown(&self, key: &str) -> PathBuf {
        match key {
            "" => PathBuf::from(&self.inner.url),
            key => PathBuf::from(format!("{}/{key}", self.inner.url)),
        }
    }

    fn path(&self, key: &str) -> Result<Path> {
        Path::parse(key).map_err(|e| told("use this name", self.shown(key), &e.into()))
    }

    fn ask<T: Send + 'static, F: Future<Output = Outcome<T>> + Send + 'static>(
        &self,
        doing: &str,
        key: &str,
        work: impl FnOnce(Arc<Inner>) -> F,
    ) -> Result<T> {
        self.cancel.check()?;
        if self.generation != generation() {
            let e = Error::usage("a bucket was opened in another process, before a fork");
            return Err(e.at_path(self.shown(key)).with_hint("open it in each process"));
        }
        wait(&self.cancel, work(self.inner.clone()))?.map_err(|e| told(doing, self.shown(key), &e))
    }

    /// What there is of a key; none if there is no such object.
    ///
    /// # Errors
    /// Those of the store.
    pub fn head(&self, key: &str) -> Result<Option<Object>> {
        let path = self.path(key)?;
        let found = self.ask("look at", key, |inner| async move {
            let options = GetOptions { head: true, ..GetOptions::default() };
            inner.store.get_opts(&path, options).await
        });
        match found {
            Ok(found) => Ok(Some(known(&found.meta, &found.attributes))),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Names directly below a prefix, which has no `/` at its end: about `most` of them, or fewer, at a time. An object that
    /// has the name of the prefix with a `/`, as some tools make for folders, is none of them.
    ///
    /// # Errors
    /// Those of the store.
    pub fn page(&self, prefix: &str, from: Option<String>, most: usize) -> Result<Page> {
        let path = self.path(prefix)?;
        let below = match path.as_ref() {
            "" => String::new(),
            path => format!("{path}/"),
        };
        let (result, next) = self.ask("list", prefix, |inner| {
            let (below, path) = (below.clone(), path.clone());
            async move {
                let Some(pages) = &inner.pages else {
                    let all = inner.store.list_with_delimiter(Some(&path)).await?;
                    return Ok((all, None));
                };
                let options = PaginatedListOptions {
                    delimiter: Some("/".into()),
                    max_keys: Some(most.clamp(1, 1000)),
                    page_token: from,
                    ..PaginatedListOptions::default()
                };
                let prefix = Some(&*below).filter(|below| !below.is_empty());
                let page = pages.list_paginated(prefix, options).await?;
                Ok((page.result, page.page_token))
            }
        })?;
        let odd = |what: &str| {
            Error::usage(format!("{what}: no file can have such a name"))
                .at_path(self.shown(prefix))
                .with_hint("stage what lies below other prefixes; such objects take the tools of the store")
        };
        // The library leaves out what begins and ends a key: what it names then is something else.
        if below.is_empty() && result.common_prefixes.iter().any(|path| path.as_ref().is_empty()) {
            return Err(odd("there are keys here that begin with '/'"));
        }
        let marks = |meta: &&ObjectMeta| meta.location == path;
        if !below.is_empty() && result.objects.iter().filter(marks).any(|meta| meta.size > 0) {
            return Err(odd("there is an object whose key ends with '/', and it is not empty"));
        }
        let name = |path: &Path| path.as_ref().strip_prefix(&*below).map(str::to_owned);
        let plain = |name: &String| !name.is_empty() && !name.contains('/');
        let folders = result.common_prefixes.iter().filter_map(name).filter(plain);
        let mut entries: Vec<Entry> = folders.map(|name| Entry { name, object: None }).collect();
        for meta in &result.objects {
            if let Some(name) = name(&meta.location).filter(plain) {
                entries.push(Entry { name, object: Some(listed(meta)) });
            }
        }
        Ok(Page { entries, next })
    }

    /// Bytes of an object, all of those that are asked for, and what it is; of `of`, if that is given.
    ///
    /// # Errors
    /// `Changed` if it is not `of` any more; `NotFound`; those of the store.
    pub fn get(
        &self,
        key: &str,
        range: Range<u64>,
        of: Option<&Object>,
    ) -> Result<(Vec<u8>, Object)> {
        let path = self.path(key)?;
        // Servers have no words for a range without bytes, and plain ones of files none for ranges.
        let plain = self.inner.parts.is_none() && range.start == 0 && of.is_none();
        let asks = !range.is_empty() && !plain;
        let options = GetOptions {
            range: asks.then(|| GetRange::Bounded(range.clone())),
            if_match: of.and_then(|of| of.tag.clone()),
            ..GetOptions::default()
        };
        let wanted = range.clone();
        let (bytes, object) = self.ask("read", key, |inner| async move {
            let got: GetResult = inner.store.get_opts(&path, options).await?;
            let object = known(&got.meta, &got.attributes);
            // Of an object that has become long since, no byte is wanted.
            let other = plain && object.size != wanted.end;
            let bytes = match wanted.is_empty() || other {
                true => Vec::new(),
                false => bytes_of(got, wanted.end - wanted.start).await?,
            };
            Ok((bytes, object))
        })?;
        let changed = || {
            Error::new(Kind::Changed, "the object changed while it was copied")
                .at_path(self.shown(key))
                .with_hint("stage it again when nobody writes to it")
        };
        if of.is_some_and(|of| !of.same(&object)) {
            return Err(changed());
        }
        if of.is_none() && plain && object.size != range.end {
            return Err(changed());
        }
        if bytes.len() as u64 != range.end - range.start {
            // The object is what it was: the answer is not.
            let of = format!("{} of {} bytes came", bytes.len(), range.end - range.start);
            return Err(Error::new(Kind::Timeout, of)
                .at_path(self.shown(key))
                .at_offset(range.start));
        }
        Ok((bytes, object))
    }

    /// Puts an object, which is there as a whole or not at all.
    ///
    /// # Errors
    /// `Usage` if there is one and it is not to be replaced; those of the store.
    pub fn put(&self, key: &str, bytes: Vec<u8>, label: &Label, replace: bool) -> Result<()> {
        let path = self.path(key)?;
        let mode = if replace { PutMode::Overwrite } else { PutMode::Create };
        let options = PutOptions { mode, attributes: attributes(label), ..PutOptions::default() };
        self.ask("write", key, |inner| async move {
            inner.store.put_opts(&path, bytes.into(), options).await.map(|_| ())
        })
    }

    fn parts(inner: &Inner) -> Outcome<&Arc<dyn MultipartStore>> {
        inner
            .parts
            .as_ref()
            .ok_or_else(|| object_store::Error::NotSupported { source: "uploads in parts".into() })
    }

    /// Begins an upload in parts, and gives its number: the store keeps its parts until it is completed or aborted.
    ///
    /// # Errors
    /// Those of the store.
    pub fn begin(&self, key: &str, label: &Label) -> Result<String> {
        let path = self.path(key)?;
        if self.inner.azure.is_some() {
            // Its uploads have no number, and are told what they are of in the end: that is kept in place of it.
            return Ok(format!("{} {}", time_text(label.mtime), label.mark));
        }
        let options = PutMultipartOptions { attributes: attributes(label), ..Default::default() };
        self.ask("write", key, |inner| async move {
            Self::parts(&inner)?.create_multipart_opts(&path, options).await
        })
    }

    /// Uploads part number `n`, from 0 on, and gives what it is called from then on. All but the last have one size.
    ///
    /// # Errors
    /// `NotFound` if there is no such upload any more; those of the store.
    pub fn part(&self, key: &str, upload: &str, n: usize, bytes: Vec<u8>) -> Result<String> {
        let (path, id) = (self.path(key)?, upload.to_owned());
        self.ask("write", key, |inner| async move {
            let put = Self::parts(&inner)?.put_part(&path, &id, n, bytes.into());
            put.await.map(|part| part.content_id)
        })
    }

    /// Makes an object of all parts, in order.
    ///
    /// # Errors
    /// As [`Bucket::part`].
    pub fn complete(&self, key: &str, upload: &str, parts: Vec<String>) -> Result<()> {
        let (path, id) = (self.path(key)?, upload.to_owned());
        let parts = parts.into_iter().map(|content_id| PartId { content_id }).collect();
        self.ask("write", key, |inner| async move {
            let done = Self::parts(&inner)?.complete_multipart(&path, &id, parts);
            match &inner.azure {
                Some(azure) => BESIDES.scope(besides(azure, &id).await?, done).await,
                None => done.await,
            }
            .map(|_| ())
        })
    }

    /// Gives up an upload: its parts go. That there is none is no error. It is done after the call is to stop, too.
    ///
    /// # Errors
    /// Those of the store.
    pub fn abort(&self, key: &str, upload: &str) -> Result<()> {
        let (path, id) = (self.path(key)?, upload.to_owned());
        let unstopped = Bucket { cancel: Cancel::new(), ..self.clone() };
        let done = unstopped.ask("give up the upload of", key, |inner| async move {
            Self::parts(&inner)?.abort_multipart(&path, &id).await
        });
        match done {
            Err(e) if e.kind() == Kind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Removes objects, as many at a time as the store takes, and gives those that it could not, by their places. That one is
    /// not there is no error.
    ///
    /// # Errors
    /// For names that are none; `Cancelled`.
    pub fn delete(&self, keys: &[String]) -> Result<Vec<(usize, Error)>> {
        let paths = keys.iter().map(|key| self.path(key)).collect::<Result<Vec<Path>>>()?;
        let asked = paths.clone();
        let answers: Vec<Outcome<Path>> = self.ask("remove", "", |inner| async move {
            let asked = stream::iter(asked.into_iter().map(Ok)).boxed();
            Ok(inner.store.delete_stream(asked).collect::<Vec<_>>().await)
        })?;
        let (mut gone, mut failed) = (std::collections::HashSet::new(), Vec::new());
        for answer in answers {
            match answer {
                Ok(path) => drop(gone.insert(path)),
                Err(object_store::Error::NotFound { path, .. }) => {
                    drop(Path::parse(path).map(|path| gone.insert(path)));
                }
                Err(e) => failed.push(e),
            }
        }
        // Which one it was is not always told: those that are not said to be gone have failed, with the reason that there is.
        let mut left = Vec::new();
        for (at, (path, key)) in paths.iter().zip(keys).enumerate() {
            if gone.contains(path) {
                continue;
            }
            match failed.get(left.len()).or(failed.last()) {
                Some(e) => left.push((at, told("remove", self.shown(key), e))),
                None if self.head(key)?.is_none() => {}
                None => left.push((
                    at,
                    Error::new(Kind::Io, "the store has not removed this").at_path(self.shown(key)),
                )),
            }
        }
        Ok(left)
    }

    /// Copies an object within the bucket, by the store itself. What is kept with it comes with it.
    ///
    /// # Errors
    /// `NotFound`; `Usage` where the store does not do that; those of the store.
    pub fn copy(&self, from: &str, to: &str) -> Result<()> {
        let (source, target) = (self.path(from)?, self.path(to)?);
        self.ask("copy", from, |inner| async move {
            inner.store.copy_opts(&source, &target, CopyOptions::default()).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bucket(name: &str) -> Bucket {
        Bucket::open(&BucketUrl::parse(&format!("memory://{name}")).unwrap()).unwrap()
    }

    fn label(seconds: i64) -> Label {
        Label { mtime: FileTime { seconds, nanos: 5 }, mark: "m-1".into() }
    }

    #[test]
    fn objects_are_put_listed_read_and_removed() {
        let b = bucket("objects");
        assert_eq!(b.head("a").unwrap(), None);
        b.put("a", b"hello".to_vec(), &label(7), false).unwrap();
        b.put("d/x y", b"12".to_vec(), &label(8), false).unwrap();
        assert_eq!(b.put("a", vec![], &label(7), false).unwrap_err().kind(), Kind::Usage);
        b.put("a", b"hallo!".to_vec(), &label(9), true).unwrap();
        let found = b.head("a").unwrap().unwrap();
        assert_eq!((found.size, found.changed()), (6, FileTime { seconds: 9, nanos: 5 }));
        assert_eq!(found.mark.as_deref(), Some("m-1"));
        let page = b.page("", None, 10).unwrap();
        let names: Vec<_> = page.entries.iter().map(|e| (&*e.name, e.object.is_some())).collect();
        assert_eq!(names, [("d", false), ("a", true)]);
        assert_eq!(b.page("d", None, 10).unwrap().entries[0].name, "x y");
        assert!(b.page("none", None, 10).unwrap().entries.is_empty());
        assert_eq!(b.get("a", 1..4, Some(&found)).unwrap().0, b"all");
        assert_eq!(b.get("a", 0..0, None).unwrap(), (vec![], found.clone()));
        assert_eq!(b.get("a", 4..9, None).unwrap_err().kind(), Kind::Timeout);
        b.put("a", b"hallo?".to_vec(), &label(9), true).unwrap();
        assert_eq!(b.get("a", 1..4, Some(&found)).unwrap_err().kind(), Kind::Changed);
        b.copy("a", "c").unwrap();
        assert_eq!(b.get("c", 0..6, None).unwrap().0, b"hallo?");
        let gone = ["a".to_owned(), "none".to_owned(), "d/x y".to_owned(), "c".to_owned()];
        assert!(b.delete(&gone).unwrap().is_empty());
        assert!(b.page("", None, 10).unwrap().entries.is_empty());
        assert_eq!(b.get("a", 0..1, None).unwrap_err().kind(), Kind::NotFound);
        for bad in ["a//b", "a/../b", "a\n"] {
            assert_eq!(b.head(bad).unwrap_err().kind(), Kind::Usage, "{bad:?}");
        }
    }

    #[test]
    fn uploads_in_parts_are_completed_or_given_up() {
        let b = bucket("parts");
        let id = b.begin("big", &label(1)).unwrap();
        let second = b.part("big", &id, 1, b"world".to_vec()).unwrap();
        let first = b.part("big", &id, 0, b"hello ".to_vec()).unwrap();
        assert_eq!(b.head("big").unwrap(), None);
        b.complete("big", &id, vec![first, second]).unwrap();
        assert_eq!(b.get("big", 0..11, None).unwrap().0, b"hello world");
        let id = b.begin("big", &label(1)).unwrap();
        b.part("big", &id, 0, b"x".to_vec()).unwrap();
        b.abort("big", &id).unwrap();
        assert!(b.part("big", &id, 1, b"x".to_vec()).is_err());
    }

    #[test]
    fn who_is_to_stop_asks_nothing() {
        let cancel = Cancel::new();
        let b = bucket("stop").stopped_by(&cancel);
        cancel.cancel();
        assert_eq!(b.head("a").unwrap_err().kind(), Kind::Cancelled);
        let never = wait(&cancel, std::future::pending::<()>());
        assert_eq!(never.unwrap_err().kind(), Kind::Cancelled);
    }

    #[test]
    fn what_is_no_store_is_told() {
        let open = |url: &str| Bucket::open(&BucketUrl::parse(url).unwrap());
        let url = BucketUrl { scheme: "x".into(), bucket: "b".into(), prefix: String::new() };
        assert_eq!(Bucket::open(&url).unwrap_err().kind(), Kind::Usage);
        // TLS has its cryptography.
        open("https://127.0.0.1:1/x").unwrap();
        assert!(open("s3://b").unwrap().is(&open("s3://b").unwrap()));
        let read = open("http://127.0.0.1:1/x").unwrap().put("a", vec![], &label(0), true);
        read.unwrap_err();
    }
}
