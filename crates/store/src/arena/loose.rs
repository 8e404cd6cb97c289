//! Memory that is filled before there is an arena to lend it, and that arenas take in as it is.
//!
//! It is a file without a name, which is gone when its process is. [`Arena::adopt`] gives it one, as a segment of the arena, so that
//! others find it as they find any other. The system gives no name to a file that has lost its last one, so that names stay while the
//! memory may be put again: until nobody has it and its pages are not [kept](super::kept) any more, or the arena is left.
//!
//! [`Arena::adopt`]: super::Arena::adopt

#[cfg(test)]
mod tests;

use super::{Inner, is_full, kept, name_of, whole_pages};
use crate::aligned::Aligned;
use crate::segment::Map;
use crate::{Folder, Meta, shared};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use stead_core::units::format_size;
use stead_core::{Error, Kind, Result, limits};

/// Names that are taken already are passed over, so many at most.
const PASSED: u64 = 1 << 16;

/// Files of all such memory of this process.
static FILES: AtomicUsize = AtomicUsize::new(0);

/// Memory of no arena, with its pages, and later of any number of them: see the module's documentation. It may be sent to other threads.
///
/// A process that was forked shares it with its parent, and arenas there do not adopt it.
pub struct Loose(Arc<Lent>);

impl std::fmt::Debug for Loose {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Loose({} bytes)", self.len())
    }
}

/// What a program has, and pieces of arenas. When nobody does, it is kept.
pub(super) struct Lent {
    /// `None` only while it is dropped.
    memory: Option<Memory>,
    len: usize,
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            kept::keep(memory);
        }
    }
}

impl Lent {
    pub(super) fn bytes(&self) -> &[u8] {
        let bytes = match self.memory.as_ref().map(|memory| &memory.lies) {
            Some(Lies::File(of)) => of.map.bytes(),
            Some(Lies::Plain(own)) => own,
            None => &[],
        };
        bytes.get(..self.len).unwrap_or(&[])
    }

    /// Somebody looks at it of whom nothing will be heard any more: it stays as it is.
    pub(super) fn leave(&self) {
        if let Some(memory) = &self.memory {
            memory.is_left.store(true, Ordering::Release);
        }
    }
}

/// Memory that is lent as a whole.
pub(super) struct Memory {
    lies: Lies,
    /// Who made it: a process that was forked takes no names away, and keeps nothing.
    process: u32,
    /// Somebody may look at it for good.
    is_left: AtomicBool,
    /// Where it has names; the last one that took it in comes last.
    links: Mutex<Vec<Link>>,
}

enum Lies {
    File(OfFile),
    /// Of this process alone.
    Plain(Aligned),
}

struct OfFile {
    map: Map,
    file: File,
    /// Device and number of the folder that it was made in.
    at: (u64, u64),
    /// It has, or had, a name.
    is_named: AtomicBool,
}

/// A name in an arena.
struct Link {
    arena: Weak<Inner>,
    segment: u64,
}

impl Drop for OfFile {
    fn drop(&mut self) {
        FILES.fetch_sub(1, Ordering::Relaxed);
    }
}

/// True if this process may have one more such file.
fn may_have_more() -> bool {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let part = usize::try_from(most.unwrap_or(u64::MAX) / 4).unwrap_or(usize::MAX);
    FILES.load(Ordering::Relaxed) < part.min(limits::MAX_LOOSE)
}

impl OfFile {
    /// `None` if the file system has no files without a name.
    fn new(folder: &Folder, at: (u64, u64), len: u64) -> Result<Option<OfFile>> {
        let lacks = || shared::free_in(folder).is_some_and(|free| free < len);
        if lacks() {
            // Pages that nobody has are room for it.
            kept::clear();
        }
        if lacks() {
            return Err(shared::no_room(folder, len));
        }
        let file = match folder.unnamed_file(0o600) {
            // Files of memory that nobody has are some of those that are open.
            Err(e) if e.os_code() == Some(Errno::MFILE.raw_os_error()) => {
                kept::clear();
                folder.unnamed_file(0o600)
            }
            made => made,
        };
        let Some(file) = file.map_err(Error::of_open_files)? else { return Ok(None) };
        let failed = |e: std::io::Error| {
            let doing = format!("take {} of memory in", format_size(len));
            let no_more = e.raw_os_error() == Some(Errno::NOMEM.raw_os_error());
            let e = Error::io(&doing, folder.shown(), e);
            // Which is told also where there are too many mappings.
            if no_more { e.of_kind(Kind::Limit) } else { e }
        };
        file.set_len(len).map_err(failed)?;
        let size = usize::try_from(len).map_err(|_| failed(Errno::NOMEM.into()))?;
        let map = Map::new(&file, size, ProtFlags::READ | ProtFlags::WRITE).map_err(failed)?;
        FILES.fetch_add(1, Ordering::Relaxed);
        // From here on it is counted.
        let of = OfFile { map, file, at, is_named: AtomicBool::new(false) };
        shared::prefer_huge(&of.map);
        let fill = || shared::fill(&of.map, &of.file, 0, size);
        let mut filled = fill();
        if filled.is_err_and(is_full) {
            kept::clear();
            filled = fill();
        }
        match filled {
            Ok(()) => Ok(Some(of)),
            Err(e) if is_full(e) => Err(shared::no_room(folder, len)),
            Err(e) => Err(failed(e.into())),
        }
    }

    /// True if it can be given one more name.
    fn can_be_named(&self) -> bool {
        let has_name = || Meta::of_file(&self.file).is_ok_and(|meta| meta.links > 0);
        !self.is_named.load(Ordering::Relaxed) || has_name()
    }
}

impl Memory {
    fn new(lies: Lies) -> Memory {
        Memory {
            lies,
            process: std::process::id(),
            is_left: AtomicBool::new(false),
            links: Mutex::default(),
        }
    }

    fn links(&self) -> MutexGuard<'_, Vec<Link>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// Bytes of its pages.
    pub(super) fn len(&self) -> u64 {
        match &self.lies {
            Lies::File(of) => of.map.len() as u64,
            Lies::Plain(own) => own.len() as u64,
        }
    }

    /// Device and number of the folder that it lies in.
    pub(super) fn at(&self) -> Option<(u64, u64)> {
        match &self.lies {
            Lies::File(of) => Some(of.at),
            Lies::Plain(_) => None,
        }
    }

    /// True if it is of use to who wants memory that an arena adopts.
    pub(super) fn is_of_use(&self) -> bool {
        let Lies::File(of) = &self.lies else { return false };
        !self.is_forked() && !self.is_left.load(Ordering::Acquire) && of.can_be_named()
    }

    /// The arena that has taken it in last, if that still lends.
    pub(super) fn adopter(&mut self) -> Option<Arc<Inner>> {
        let links = self.links.get_mut().unwrap_or_else(PoisonError::into_inner);
        links.iter().rev().filter_map(|link| link.arena.upgrade()).find(|arena| !arena.is_closed())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let Lies::File(of) = &self.lies else { return };
        if self.is_forked() {
            return;
        }
        let links = self.links.get_mut().unwrap_or_else(PoisonError::into_inner);
        for link in links.drain(..) {
            if let Some(arena) = link.arena.upgrade() {
                arena.unname(link.segment);
            }
        }
        // Others may still have it mapped, who look at it no more.
        if !self.is_left.load(Ordering::Acquire) && of.is_named.load(Ordering::Relaxed) {
            let _ = shared::punch(&of.file, 0, of.map.len() as u64);
        }
    }
}

impl Loose {
    /// `len` bytes, aligned to a line of the caches at least, whatever is in them: in a folder of the file system where arenas are to adopt
    /// them. Memory that was given back is lent again first. Costs the pages, where there is none.
    ///
    /// Those of fewer bytes than [`limits::LOOSE_LEAST`] are plain memory, which no arena adopts, as are those for which the process has not
    /// enough files or the file system no files without a name.
    ///
    /// # Errors
    /// `NoSpace` if there is not as much memory; `Limit` if the process may have no such file, or no more; system errors.
    pub fn new(folder: &Folder, len: usize) -> Result<Loose> {
        let room = whole_pages(len as u64).filter(|room| *room <= shared::longest());
        let room = room.ok_or_else(|| {
            let e = Error::limit("this is more memory than a file may have");
            e.at_path(folder.shown()).with_hint("see ulimit -f")
        })?;
        let memory = match len >= limits::LOOSE_LEAST {
            true => Loose::of_file(folder, room)?,
            false => None,
        };
        let memory = match memory {
            Some(memory) => memory,
            None => {
                let small = len < limits::LOOSE_LEAST;
                let own = if small { Some(Aligned::new(len)) } else { Aligned::mapped(len) };
                let none = || {
                    let what = format!("there are no {} of memory", format_size(len as u64));
                    Error::new(Kind::NoSpace, what)
                };
                Memory::new(Lies::Plain(own.ok_or_else(none)?))
            }
        };
        Ok(Loose(Arc::new(Lent { memory: Some(memory), len })))
    }

    fn of_file(folder: &Folder, room: u64) -> Result<Option<Memory>> {
        let meta = folder.own_meta()?;
        let at = (meta.dev, meta.ino);
        if let Some(memory) = kept::take(at, room) {
            return Ok(Some(memory));
        }
        if !may_have_more() {
            kept::clear();
        }
        if !may_have_more() {
            return Ok(None);
        }
        Ok(OfFile::new(folder, at, room)?.map(|of| Memory::new(Lies::File(of))))
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its bytes: at first whatever was there before.
    pub fn as_slice(&self) -> &[u8] {
        self.0.bytes()
    }

    /// The same, to be written; `None` while there is a piece of it, and for good when an arena was left that had one.
    pub fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        let Lent { memory, len } = Arc::get_mut(&mut self.0)?;
        let memory = memory.as_mut().filter(|memory| !memory.is_left.load(Ordering::Acquire))?;
        match &mut memory.lies {
            Lies::File(of) => of.map.bytes_mut().get_mut(..*len),
            Lies::Plain(own) => own.get_mut(..*len),
        }
    }

    /// True if an arena may adopt it.
    pub fn may_be_adopted(&self) -> bool {
        let memory = self.0.memory.as_ref();
        let can = |memory: &Memory| match &memory.lies {
            Lies::File(of) => !memory.is_forked() && of.can_be_named(),
            Lies::Plain(_) => false,
        };
        memory.is_some_and(can)
    }

    /// Gives it a name in an arena, unless it has one there: the number of its segment. `None` if it can have none.
    pub(super) fn name(&self, arena: &Arc<Inner>) -> Result<Option<u64>> {
        let Some(memory) = self.0.memory.as_ref().filter(|memory| !memory.is_forked()) else {
            return Ok(None);
        };
        let Lies::File(of) = &memory.lies else { return Ok(None) };
        let mut links = memory.links();
        links.retain(|link| link.arena.upgrade().is_some_and(|arena| !arena.is_closed()));
        let own = |link: &Link| std::ptr::eq(link.arena.as_ptr(), Arc::as_ptr(arena));
        let segment = match links.iter().position(own) {
            Some(there) => links.remove(there).segment,
            None => match name_in(of, arena)? {
                Some(segment) => segment,
                None => return Ok(None),
            },
        };
        links.push(Link { arena: Arc::downgrade(arena), segment });
        Ok(Some(segment))
    }

    pub(super) fn lent(&self) -> Arc<Lent> {
        self.0.clone()
    }
}

fn name_in(of: &OfFile, arena: &Inner) -> Result<Option<u64>> {
    for _ in 0..PASSED {
        let segment = arena.next_number()?;
        let name = name_of(&arena.prefix, segment);
        match arena.folder.name_file(&of.file, OsStr::new(&name)) {
            Ok(()) => {
                of.is_named.store(true, Ordering::Relaxed);
                return Ok(Some(segment));
            }
            // What somebody left who had the prefix before.
            Err(e) if e.kind() == Kind::Usage => {}
            // Whatever it is, a copy is as good; and fails for the same reason if that is one.
            Err(_) => return Ok(None),
        }
    }
    Ok(None)
}
