//! Blocks of a file that all processes of a user have together, each read once.
//!
//! A [`Commons`] is memory with a descriptor (`memfd_create`), which a newcomer maps through `/proc/PID/fd/N` of a process
//! that is there already; a small file in a folder of the user lists those (`seats.rs`). It has a slot for each block that
//! the budget holds and a table that says what is in them (`table.rs`). Who wants a block that nobody has claims a slot,
//! reads into it and says that it is ready; others wait for it and look at it where it lies. There is no server, and nothing
//! large stays when all are killed.
//!
//! Whoever ends in the middle of something, by whatever signal, is noticed by those who wait for it or want room: its reads
//! are done by others, and its references are no more. Where it does not work, for want of memory, slots or `/proc`, or
//! because another process is stopped, each reads for itself.
//!
//! All processes of a user trust each other, but not to be of the same version or without defects: what is in the table is
//! checked against its bounds.

mod fork;
mod memory;
mod own;
mod seats;
mod table;

use crate::file::Identity;
use crate::process::{self, is_alive};
use memory::{Layout, Memory};
use seats::{Seat, Seats};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use table::{Found, Guard, JOINER, KEY, PROCESSES, Table, Waited};

/// Slots at most: looking for a block looks at all of them.
const SLOTS: u64 = 4096;
/// A table that somebody keeps locked is let alone for so many blocks.
const LEFT_ALONE: u32 = 64;
/// After so many blocks it is looked for processes that have ended.
const LOOK: u32 = 256;
/// And where all room is taken, after so many: a look at each process is system calls and a list of all that it has mapped,
/// which is not given while that process is about to map more.
const LOOK_FOR_ROOM: u32 = 16;
/// A block is looked for again when something has happened to it, so often.
const AGAIN: usize = 8;
/// One more view of a slot.
const VIEW: u64 = (1 << 32) | 1;

/// See the module's documentation.
pub struct Commons {
    memory: Memory,
    /// Where the list of processes is.
    folder: OwnedFd,
    key: [u64; KEY],
    /// Bytes of a block.
    block: u64,
    /// Bytes of the file.
    len: u64,
    /// The place of this process.
    me: usize,
    seat: Seat,
    /// How often this process refers to each slot.
    held: Box<[Mutex<u32>]>,
    /// Views of each slot that others than the readers of this process have: in the low half those that there are, in the high
    /// half all that there were.
    views: Box<[AtomicU64]>,
    left_alone: AtomicU32,
    asked: AtomicU32,
    /// What `asked` was when it was looked for processes for the last time, for want of room.
    looked: AtomicU32,
    /// Processes that did not read in time, a bit each.
    slow: AtomicU64,
}

impl std::fmt::Debug for Commons {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Commons({} blocks of {} bytes)", self.held.len(), self.block)
    }
}

/// What there is of a block.
pub(crate) enum Asked {
    /// It is here.
    Ready(Berth),
    /// It is to be read into this.
    Read(Berth),
    /// Another process reads it.
    Awaited,
    /// It is to be read into memory of one's own.
    Alone,
}

impl Commons {
    /// Joins those who share blocks of a file, or is the first one.
    ///
    /// # Errors
    /// Why there is no sharing, for people.
    pub fn join(file: &Identity, block: u64, memory: u64) -> Result<Arc<Commons>, String> {
        Commons::join_in(seats::folder()?, file, block, memory)
    }

    fn join_in(
        folder: OwnedFd,
        file: &Identity,
        block: u64,
        memory: u64,
    ) -> Result<Arc<Commons>, String> {
        let slots = (memory / block.max(1)).min(file.len.div_ceil(block.max(1))).clamp(1, SLOTS);
        let size = usize::try_from(block).ok();
        let layout = size.zip(usize::try_from(slots).ok()).and_then(|(b, s)| Layout::new(b, s));
        let layout = layout.ok_or("blocks are too large")?;
        let numbers = [file.mtime.0, file.mtime.1, file.ctime.0, file.ctime.1];
        let [m, mn, c, cn] = numbers.map(i64::cast_unsigned);
        let space = process::namespace().map_err(|e| e.to_string())?;
        let key = [file.dev, file.inode, file.len, m, mn, c, cn, block, memory, space];
        let (process, start) = process::me().map_err(|e| e.to_string())?;
        let seats = Seats::lock(&folder, &key)?;
        let mut there = seats.read();
        let begun = (u64::from(process), start);
        for seat in there.clone() {
            let opened = Memory::open(seat.process, seat.descriptor, layout, &key);
            let memory = match opened {
                Ok(memory) => memory,
                // This process lacks something, and others may find it.
                Err(e) if !matches!(e.kind(), ErrorKind::NotFound | ErrorKind::InvalidData) => {
                    continue;
                }
                Err(_) => {
                    there.retain(|s| *s != seat);
                    continue;
                }
            };
            let me = enter(&memory, begun)?;
            let seat = Seat { process, start, descriptor: memory.descriptor() };
            there.push(seat);
            // The others can be found all the same.
            let _ = seats.write(&there);
            return Ok(Commons::with(memory, folder, key, me, seat));
        }
        let memory = Memory::new(layout, &key).map_err(|e| e.to_string())?;
        let me = enter(&memory, begun)?;
        let seat = Seat { process, start, descriptor: memory.descriptor() };
        there.insert(0, seat);
        seats.write(&there)?;
        seats.sweep();
        Ok(Commons::with(memory, folder, key, me, seat))
    }

    fn with(
        memory: Memory,
        folder: OwnedFd,
        key: [u64; KEY],
        me: usize,
        seat: Seat,
    ) -> Arc<Commons> {
        let held = (0..memory.layout().slots).map(|_| Mutex::new(0)).collect();
        let views = (0..memory.layout().slots).map(|_| AtomicU64::new(0)).collect();
        let [_, _, len, _, _, _, _, block, ..] = key;
        let commons = Commons {
            memory,
            folder,
            key,
            block,
            len,
            me,
            seat,
            held,
            views,
            left_alone: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            looked: AtomicU32::new(0u32.wrapping_sub(LOOK_FOR_ROOM)),
            slow: AtomicU64::new(0),
        };
        commons.set_limit(u64::MAX);
        let commons = Arc::new(commons);
        fork::watch(&commons);
        commons
    }

    /// Processes that take part, this one too. Looks whether they live.
    pub fn processes(&self) -> u64 {
        let Some(table) = self.table() else { return 1 };
        self.look(&table);
        table.processes().max(1) as u64
    }

    /// So many blocks are enough, as far as this process is concerned; what all say at most holds. None: it takes no part.
    pub fn set_limit(&self, blocks: u64) {
        let Some(table) = self.table() else { return };
        if table.set_limit(self.me, blocks) {
            table.tell();
        }
        for _ in 0..self.held.len() {
            let surplus = self.locked(&table).and_then(|guard| table.surplus(&guard, self.me));
            let Some(slot) = surplus else { break };
            self.empty(&table, slot);
        }
    }

    /// A number that changes when processes come and go.
    pub fn news(&self) -> u32 {
        self.table().map_or(0, |t| t.news())
    }

    /// Sleeps until that is another number, or a signal comes. False if that cannot be waited for.
    pub fn wait_for_news(&self, seen: u32) -> bool {
        self.table().is_some_and(|table| table.wait_for_news(seen))
    }

    /// Wakes all who sleep so, in every process.
    pub fn tell(&self) {
        if let Some(table) = self.table() {
            table.tell();
        }
    }

    fn table(&self) -> Option<Table<'_>> {
        self.memory.table().ok()
    }

    fn is_alive(&self, process: u64, start: u64) -> bool {
        takes_part(&self.memory, process, start)
    }

    /// The lock of the table. What a process that has ended left is tidied up first.
    fn locked<'a>(&self, table: &Table<'a>) -> Option<Guard<'a>> {
        let alive = |process, start| self.is_alive(process, start);
        let guard = table.lock(self.me, &alive)?;
        let Some(ended) = guard.ended else { return Some(guard) };
        let broken = table.reap(&guard, ended, self.me);
        drop(guard);
        broken.into_iter().for_each(|slot| self.empty(table, slot));
        table.lock(self.me, &alive).filter(|guard| guard.ended.is_none())
    }

    /// A claimed slot is nobody's from now on.
    fn empty(&self, table: &Table<'_>, slot: usize) {
        // Who cannot take its memory away keeps it.
        if self.memory.empty(slot) {
            table.abandon(slot, self.me);
        }
    }

    /// Takes processes that have ended out of the table. True if there were some.
    fn look(&self, table: &Table<'_>) -> bool {
        let alive = |process, start| self.is_alive(process, start);
        let ended = table.ended(&alive);
        for place in &ended {
            let Some(guard) = self.locked(table) else { return false };
            // Another one may have it by now.
            let broken = if table.has_ended(*place, &alive) {
                table.reap(&guard, *place, self.me)
            } else {
                Vec::new()
            };
            drop(guard);
            self.slow.fetch_and(!table::bit(*place), Ordering::Relaxed);
            broken.into_iter().for_each(|slot| self.empty(table, slot));
        }
        !ended.is_empty()
    }

    /// The number of the block that these bytes are, as a whole.
    fn block_of(&self, offset: u64, len: usize) -> Option<u64> {
        let whole = self.len.checked_sub(offset)?.min(self.block);
        (offset.is_multiple_of(self.block) && whole == len as u64 && len > 0)
            .then(|| offset / self.block)
    }

    /// True if these bytes are there, or somebody reads them. They may go at any time.
    pub(crate) fn has(&self, offset: u64, len: usize) -> bool {
        let block = self.block_of(offset, len);
        self.table().zip(block).is_some_and(|(table, block)| table.has(block))
    }

    /// What there is of these bytes. Does not wait for reads.
    pub(crate) fn ask(self: &Arc<Self>, offset: u64, len: usize) -> Asked {
        let skipped = |n: u32| n.checked_sub(1);
        if self.left_alone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, skipped).is_ok() {
            return Asked::Alone;
        }
        let Some((table, block)) = self.table().zip(self.block_of(offset, len)) else {
            return Asked::Alone;
        };
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        if asked % LOOK == LOOK - 1 {
            self.look(&table);
            // They may go on by now.
            self.slow.store(0, Ordering::Relaxed);
        }
        match self.find(&table, block) {
            Found::Full if self.is_to_look(asked) && self.look(&table) => {
                self.came_of(self.find(&table, block))
            }
            found => self.came_of(found),
        }
    }

    /// True if it is time to look for processes that have ended and take room, for who asks for this block.
    fn is_to_look(&self, asked: u32) -> bool {
        let due = |last: u32| (asked.wrapping_sub(last) >= LOOK_FOR_ROOM).then_some(asked);
        self.looked.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }

    fn find(&self, table: &Table<'_>, block: u64) -> Found {
        let Some(guard) = self.locked(table) else {
            self.left_alone.store(LEFT_ALONE, Ordering::Relaxed);
            return Found::Full;
        };
        table.ask(&guard, self.me, block, |slot| self.hold(table, slot))
    }

    fn came_of(self: &Arc<Self>, found: Found) -> Asked {
        let berth =
            |slot, is_read| Berth { commons: self.clone(), slot, is_read, was_read: is_read };
        match found {
            Found::Ready(slot) => {
                self.memory.prepare(slot);
                Asked::Ready(berth(slot, false))
            }
            Found::Claimed(slot) => {
                let berth = berth(slot, true);
                if self.memory.fill_slot(slot) { Asked::Read(berth) } else { Asked::Alone }
            }
            Found::Awaited(state) if self.is_slow(table::owner(state)) => Asked::Alone,
            Found::Awaited(..) => Asked::Awaited,
            Found::Full => Asked::Alone,
        }
    }

    fn is_slow(&self, process: usize) -> bool {
        self.slow.load(Ordering::Relaxed) & table::bit(process) != 0
    }

    /// As [`Commons::ask`], and waits for a process that reads it. Who calls this has nothing claimed that it has not read.
    pub(crate) fn wait(self: &Arc<Self>, offset: u64, len: usize) -> Asked {
        for _ in 0..AGAIN {
            let asked = self.ask(offset, len);
            if !matches!(asked, Asked::Awaited) {
                return asked;
            }
            let Some((table, block)) = self.table().zip(self.block_of(offset, len)) else { break };
            // The state that it has now.
            let Some((slot, state)) = table.awaited(block) else { continue };
            match table.wait(slot, state, &|process, start| self.is_alive(process, start)) {
                Waited::Changed => {
                    self.slow.fetch_and(!table::bit(table::owner(state)), Ordering::Relaxed);
                }
                Waited::Ended(_) => {
                    self.look(&table);
                }
                Waited::Late(process) => {
                    self.slow.fetch_or(table::bit(process), Ordering::Relaxed);
                    break;
                }
            }
        }
        Asked::Alone
    }

    fn held(&self, slot: usize, change: impl FnOnce(&mut u32)) {
        if let Some(held) = self.held.get(slot) {
            change(&mut held.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// This process refers to a slot once more. Under the lock of the table.
    fn hold(&self, table: &Table<'_>, slot: usize) {
        self.held(slot, |count| {
            *count += 1;
            table.refer(slot, self.me);
        });
    }

    fn let_go(&self, table: &Table<'_>, slot: usize) {
        self.held(slot, |count| {
            *count = count.saturating_sub(1);
            if *count == 0 {
                table.unrefer(slot, self.me);
            }
        });
    }

    /// What is referred to now stays as it is as long as this process takes part. Gives the slots of which there is no view, and
    /// what is known of their views, for [`Commons::forked`].
    fn stay(&self) -> Vec<(usize, u64)> {
        let mut unseen = Vec::new();
        for (slot, views) in self.views.iter().enumerate() {
            let mut stays = false;
            self.held(slot, |count| {
                stays = *count > 0;
                *count = count.saturating_add(u32::from(stays));
            });
            let views = views.load(Ordering::SeqCst);
            if stays && views as u32 == 0 {
                unseen.push((slot, views));
            }
        }
        unseen
    }

    /// A child has been forked since [`Commons::stay`]. It has no view of what nobody has got one of until now: that need not stay.
    fn forked(&self, unseen: &[(usize, u64)]) {
        let Some(table) = self.table() else { return };
        for (slot, before) in unseen {
            let now = self.views.get(*slot).map(|views| views.load(Ordering::SeqCst));
            if now == Some(*before) {
                self.let_go(&table, *slot);
            }
        }
    }

    fn is_own(&self) -> bool {
        self.seat.process == std::process::id()
    }
}

/// True unless a process that began then is known to have ended, or to run another program by now.
fn takes_part(memory: &Memory, process: u64, start: u64) -> bool {
    is_alive(process, start) && memory.is_had_by(process)
}

/// Takes a place in the table, for a process that has the list of processes locked.
fn enter(memory: &Memory, begun: (u64, u64)) -> Result<usize, String> {
    let table = memory.table().map_err(|e| e.to_string())?;
    let alive = |process, start| takes_part(memory, process, start);
    // Places of the program that was this process before `execve`.
    let before = own::others(memory.inode(), table.places_of(begun));
    table.enter(JOINER, begun);
    let busy = || "another process keeps the table locked".to_owned();
    // Also what a joiner before it left.
    let ended = [JOINER].into_iter().chain(table.ended(&alive)).chain(before.iter().copied());
    let mut guard = table.lock(JOINER, &alive).ok_or_else(busy)?;
    let broken: Vec<usize> = ended
        .chain(guard.ended.take())
        .flat_map(|place| {
            let gone = place == JOINER || before.contains(&place) || table.has_ended(place, &alive);
            if gone { table.reap(&guard, place, JOINER) } else { Vec::new() }
        })
        .collect();
    let me = table.join(&guard, begun);
    drop(guard);
    if let Some(me) = me
        && !own::add(memory.inode(), me)
    {
        table.leave(me);
        return Err("a thread was forked away that had a lock".to_owned());
    }
    for slot in broken {
        if memory.empty(slot) {
            table.abandon(slot, JOINER);
        }
    }
    me.ok_or_else(|| format!("{PROCESSES} processes share them already"))
}

impl Drop for Commons {
    fn drop(&mut self) {
        if !self.is_own() {
            // What a fork inherited is its parent's.
            return;
        }
        if let Some(table) = self.table() {
            own::remove(self.memory.inode(), self.me, || {
                // Also what has stayed for children: nobody would ever give that back.
                (0..self.held.len()).for_each(|slot| table.unrefer(slot, self.me));
                table.leave(self.me);
            });
            table.tell();
        }
        if let Ok(seats) = Seats::lock(&self.folder, &self.key) {
            let mut there = seats.read();
            there.retain(|seat| *seat != self.seat);
            let _ = seats.write(&there);
        }
    }
}

/// A slot that this process refers to: it has a block, or one is read into it.
pub(crate) struct Berth {
    commons: Arc<Commons>,
    slot: usize,
    /// It is being read into, by the one who has this.
    is_read: bool,
    /// It was.
    was_read: bool,
}

impl Berth {
    /// All bytes of the slot, a multiple of pages.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.commons.memory.bytes(self.slot)
    }

    /// As above, to read into. None once it is ready.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        if !self.is_read {
            return &mut [];
        }
        // SAFETY: claimed slots are given out once, and the borrow is exclusive.
        unsafe { self.commons.memory.bytes_mut(self.slot) }
    }

    /// Its bytes are there: others may look at them, too.
    pub(crate) fn publish(&mut self) {
        if self.is_read
            && let Some(table) = self.commons.table()
        {
            self.is_read = false;
            table.publish(self.slot, self.commons.me);
        }
    }

    /// Somebody has a view of it from now on, which children that are forked have, too.
    pub(crate) fn add_view(&self) {
        if let Some(views) = self.commons.views.get(self.slot) {
            views.fetch_add(VIEW, Ordering::SeqCst);
        }
    }

    /// A view of it is gone.
    pub(crate) fn remove_view(&self) {
        if let Some(views) = self.commons.views.get(self.slot) {
            views.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// True if another one has read it.
    pub(crate) fn is_others(&self) -> bool {
        !self.was_read
    }

    /// True if it is being read.
    pub(crate) fn is_claimed(&self) -> bool {
        self.is_read
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        if !self.commons.is_own() {
            return;
        }
        let Some(table) = self.commons.table() else { return };
        self.commons.let_go(&table, self.slot);
        if self.is_read {
            self.commons.empty(&table, self.slot);
        }
    }
}

#[cfg(test)]
mod tests;
