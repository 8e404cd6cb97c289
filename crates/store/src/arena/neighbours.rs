//! Looking at the memory of others.

use super::{Place, name_of};
use crate::segment::Map;
use crate::{Folder, shared};
use rustix::mm::ProtFlags;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Kind, Result, limits};

/// What others have laid out in a folder, to be looked at. Each of their files is mapped once, when it is looked at first, to be read only;
/// when there are many, those that were not looked at for the longest time are let go.
///
/// That bytes stay as they are while somebody looks at them is agreed upon elsewhere. That a file does not become shorter is trusted: who
/// looked at the bytes that are gone would get a signal. See [`crate::arena`].
pub struct Neighbours {
    folder: Folder,
    /// Files that stay mapped when nobody looks at them, at most.
    most: usize,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// By prefix and number.
    maps: BTreeMap<String, BTreeMap<u64, Mapped>>,
    /// How many there are.
    count: usize,
    /// Counts looks.
    clock: u64,
}

struct Mapped {
    map: Arc<Map>,
    /// When it was looked at last.
    looked: u64,
}

impl std::fmt::Debug for Neighbours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Neighbours({}, {} mapped)", self.folder.shown().display(), self.mapped())
    }
}

/// Bytes of another process, which stay mapped as long as this lives. They may change as those of a mapped file may.
#[derive(Clone)]
pub struct View {
    /// None if there are no bytes.
    map: Option<Arc<Map>>,
    at: usize,
    len: usize,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({} bytes)", self.len)
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let bytes = self.map.as_ref().map_or(&[][..], |map| map.bytes());
        self.at.checked_add(self.len).and_then(|end| bytes.get(self.at..end)).unwrap_or(&[])
    }
}

impl Neighbours {
    /// Those in this folder, which is this user's alone.
    pub fn new(folder: &Folder) -> Neighbours {
        Neighbours::with(folder, limits::MAX_NEIGHBOUR_MAPS)
    }

    /// As [`Neighbours::new`], with so many files at most that stay mapped when nobody looks at them.
    pub fn with(folder: &Folder, most: usize) -> Neighbours {
        Neighbours { folder: folder.clone(), most, known: Mutex::default() }
    }

    /// The bytes at a place in the memory of the writer with this prefix.
    ///
    /// # Errors
    /// `NotFound` if that memory is gone; `Data` if it is no such file or is shorter; `Permission` if it is another user's, or the name is
    /// a link; system errors.
    pub fn look(&self, prefix: &str, place: &Place) -> Result<View> {
        let odd = || {
            let Place { offset, len, .. } = place;
            let e =
                Error::data(format!("{len} bytes from byte {offset} on are not in this memory"));
            let name = name_of(prefix, place.segment);
            e.at_path(self.folder.at(OsStr::new(&name)))
        };
        let (at, len) = usize::try_from(place.offset)
            .ok()
            .zip(usize::try_from(place.len).ok())
            .ok_or_else(odd)?;
        let end = at.checked_add(len).ok_or_else(odd)?;
        if len == 0 {
            return Ok(View { map: None, at: 0, len: 0 });
        }
        let known = self.lock().find(prefix, place.segment);
        let map = match known.filter(|map| end <= map.len()) {
            Some(map) => map,
            // One that has become longer is mapped anew.
            None => {
                let map = Arc::new(self.map(prefix, place.segment)?);
                let gone = self.lock().note(prefix, place.segment, map.clone(), self.most);
                // It takes its time to let go, so without the lock.
                drop(gone);
                map
            }
        };
        if end > map.len() {
            return Err(odd());
        }
        Ok(View { map: Some(map), at, len })
    }

    fn map(&self, prefix: &str, segment: u64) -> Result<Map> {
        let name = name_of(prefix, segment);
        let name = OsStr::new(&name);
        let path = || self.folder.at(name);
        if prefix.starts_with('.') || prefix.contains(['/', '\0']) {
            return Err(
                Error::data("this is no name for memory that others look at").at_path(path())
            );
        }
        let file = self.folder.open_file(name).map_err(|e| match e.kind() {
            Kind::NotFound => Error::new(Kind::NotFound, "this memory is gone").at_path(path()),
            _ => e,
        })?;
        let meta = shared::look_at(&self.folder, name, &file)?;
        let len = usize::try_from(meta.size).ok().filter(|len| *len > 0);
        let len = len.ok_or_else(|| {
            Error::data(format!("{} bytes are no memory", meta.size)).at_path(path())
        })?;
        Map::new(&file, len, ProtFlags::READ).map_err(|e| Error::io("map", path(), e))
    }

    /// Lets go of one file. What is looked at stays mapped for as long as it is.
    pub fn forget(&self, prefix: &str, segment: u64) {
        let gone = self.lock().remove(prefix, segment);
        drop(gone);
    }

    /// As [`Neighbours::forget`], of all files of a writer.
    pub fn forget_all(&self, prefix: &str) {
        let mut known = self.lock();
        let gone = known.maps.remove(prefix);
        known.count -= gone.as_ref().map_or(0, BTreeMap::len);
        drop(known);
        drop(gone);
    }

    /// Files that are mapped, beside those that were let go of while somebody looks at them.
    pub fn mapped(&self) -> usize {
        self.lock().count
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn find(&mut self, prefix: &str, segment: u64) -> Option<Arc<Map>> {
        self.clock += 1;
        let mapped = self.maps.get_mut(prefix)?.get_mut(&segment)?;
        mapped.looked = self.clock;
        Some(mapped.map.clone())
    }

    /// Adds one, in place of what was known of it; what makes room for it, and is to be dropped without the lock.
    fn note(&mut self, prefix: &str, segment: u64, map: Arc<Map>, most: usize) -> Vec<Arc<Map>> {
        let mut gone = Vec::from_iter(self.remove(prefix, segment));
        while self.count >= most.max(1) {
            let all = self.maps.iter().flat_map(|(prefix, maps)| {
                maps.iter().map(move |(segment, mapped)| (mapped.looked, prefix, *segment))
            });
            let Some((prefix, segment)) = all.min().map(|(_, p, s)| (p.clone(), s)) else { break };
            gone.extend(self.remove(&prefix, segment));
        }
        let mapped = Mapped { map, looked: self.clock };
        self.maps.entry(prefix.to_owned()).or_default().insert(segment, mapped);
        self.count += 1;
        gone
    }

    fn remove(&mut self, prefix: &str, segment: u64) -> Option<Arc<Map>> {
        let maps = self.maps.get_mut(prefix)?;
        let gone = maps.remove(&segment)?;
        if maps.is_empty() {
            self.maps.remove(prefix);
        }
        self.count -= 1;
        Some(gone.map)
    }
}
