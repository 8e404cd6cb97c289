//! Who takes part in a stream and which steps there are: words in memory that all of them map.
//!
//! All changes are made under one lock, whose owner may be killed at any instruction. Each store leaves a state from which others can
//! go on: what a change consists of comes first, and the word that makes it true last. Who takes over the lock of a process that has
//! ended [mends](Board::mend) what can be seen to be unfinished. Numbers that come from the memory are used within bounds only.
//!
//! A *slot* is a step that has been begun. It has an entry for each writer, that says where in its memory is what it has put, and a
//! bit for each reader that looks at it. A step is *complete* when each writer has ended it; all see it then. It goes when no bit is
//! set, all groups that are waited for have had it, and so many newer ones are complete as are to be kept. A group that reads what it is
//! behind by from files is waited for until a step is recorded by all writers, where there is no room for more of them.
//!
//! A *group* is there while one of its ranks is, and until all of them have come and gone: a rank that comes late finds what the first one
//! has found, also of a stream that is over. Those who have not come are waited for no longer, when all who have are gone, if one of these has
//! ended without a word, or the time is over that the first one has given. Ranks of a group that may miss steps are given the
//! [same ones](alike). A group may say how many steps it is behind at most, and how many that it has had [stay](kept) for it.

mod alike;
mod counts;
mod groups;
mod had;
mod kept;
#[cfg(test)]
mod leaving;
mod lock;
#[cfg(all(test, feature = "shuttle"))]
mod model;
mod room;
mod seats;
mod steps;
#[cfg(test)]
mod tests;

use crate::words::Words;
use had::READER;
use stead_core::limits;

pub(crate) use counts::{Elsewhere, Members};
pub(crate) use groups::{From, Group, Policy, Rule};
pub(crate) use kept::Needed;
pub(crate) use lock::Guard;
pub(crate) use room::Look;
pub(crate) use seats::{Reader, Seat, Standing, Taken};
pub(crate) use steps::{Begun, Entry, Full, Next};

const MAGIC: u64 = u64::from_le_bytes(*b"stead\0st");
const VERSION: u64 = 9;

/// Words of the head.
const HEAD: usize = 32;
const TOKEN: usize = 2;
const WRITERS: usize = 3;
const SLOTS: usize = 4;
const KEEP: usize = 5;
const QUEUE: usize = 6;
const MEMORY: usize = 7;
const EXPECT: usize = 8;
const CREATED: usize = 9;
const LOCK: usize = 10;
/// Changes with all that readers wait for.
const FOR_READERS: usize = 11;
/// Changes with all that writers wait for.
const FOR_WRITERS: usize = 12;
const STATE: usize = 13;
/// Steps that are complete, from the first one on: each writer ends one after the other.
const COMPLETE: usize = 14;
/// Readers that have come so far.
const CAME: usize = 15;
/// When it ended, in nanoseconds since 1970.
const ENDED_AT: usize = 16;
/// Places of readers that somebody has had: all before this one.
const SEATS: usize = 17;
const ALL: usize = 18;
const RUN: usize = 19;
const RECORD: usize = 20;
/// Steps before this one are to be recorded now, if they are to be at all.
const HURRY: usize = 21;
/// The most bytes that arrays have taken at a time.
const PEAK: usize = 22;
/// The namespace of the numbers of processes that are named here.
const NAMESPACE: usize = 23;
/// When somebody last looked who has ended, in nanoseconds since 1970.
const LOOKED_AT: usize = 24;
/// What is recorded is not kept.
const SPILLS: usize = 25;
/// Bytes that quotas left for files when somebody last looked, and one; what files had then; and when to look again, in nanoseconds since 1970.
const ROOM: usize = 26;
const ROOM_FILES: usize = 27;
const ROOM_NEXT: usize = 28;
/// Slots that steps have had: all before this one.
const USED: usize = 29;

const LIVE: u64 = 0;
const ENDED: u64 = 1;
const FAILED: u64 = 2;
const REMOVED: u64 = 3;

/// Words of a writer, of a group, and of a slot before its bits.
const WRITER: usize = 16;
const GROUP: usize = 56;
const SLOT: usize = 8;
/// Words of what a writer has in a slot.
const ENTRY: usize = 4;

/// Groups of readers at a time.
pub(crate) const GROUPS: usize = 64;
/// Readers at a time.
pub(crate) const READERS: usize = 1024;
/// Words with a bit for each reader.
const BITS: usize = READERS / 64;
/// Bytes of the name of a group.
pub(crate) const NAME: usize = 64;
/// Steps that may be looked at beside those that are kept and waited for.
const SPARE: u64 = 16;
/// Slots at most.
const MOST_SLOTS: u64 = 1 << 16;
/// Steps that groups may have kept and queued on any board whose slots are of no more words than [`OWN_WORDS`]: those that are never used
/// cost nothing but memory.
const OWN: u64 = 64;
const OWN_WORDS: usize = 1 << 18;

/// What is agreed about a stream on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Writers of this node, each of which is to end a step.
    pub(crate) writers: u64,
    /// Steps that stay when all have had them.
    pub(crate) keep: u64,
    /// Steps that a group that is waited for may be behind.
    pub(crate) queue: u64,
    /// Bytes of the arrays of all writers on this node.
    pub(crate) memory: u64,
    /// Groups that are to be there before the first step begins.
    pub(crate) expect: u64,
    /// Writers on all nodes.
    pub(crate) all: u64,
    /// What writers on several nodes know each other by; nothing where there is one node.
    pub(crate) run: u64,
    /// Where steps are recorded, as a number that is another one for another place; nothing where they are not.
    pub(crate) record: u64,
    /// What is recorded goes when readers are done with it.
    pub(crate) spills: bool,
}

impl Agreed {
    /// Enough for the stream's own numbers, and, where few writers have entries in each, for larger ones of groups.
    fn slots(&self) -> Option<usize> {
        let own = self.keep.checked_add(self.queue)?;
        let each = SLOT + BITS + self.count()? * ENTRY;
        let most = ((OWN_WORDS / each) as u64).saturating_sub(SPARE);
        let slots = own.max(OWN.min(most)).checked_add(SPARE)?;
        (self.queue > 0 && slots <= MOST_SLOTS).then_some(slots as usize)
    }

    fn count(&self) -> Option<usize> {
        let count = usize::try_from(self.writers).ok()?;
        ((1..=limits::MAX_WRITERS).contains(&count) && self.writers <= self.all).then_some(count)
    }

    /// Words that a board of it has; `None` if it is too large.
    pub(crate) fn words(&self) -> Option<usize> {
        let (writers, slots) = (self.count()?, self.slots()?);
        let fixed = HEAD + writers * WRITER + GROUPS * GROUP + READERS * READER;
        let words = slots.checked_mul(SLOT + BITS + writers * ENTRY)?.checked_add(fixed)?;
        (words <= limits::MAX_BOARD_WORDS).then_some(words)
    }
}

/// Whether a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Live,
    /// All writers have closed it.
    Ended,
    /// The writer at this place has ended in the middle, or closed it before others did; from the number of places on it is one of another
    /// node: so much more than that is its rank among all.
    Failed(usize),
    /// Somebody has removed it.
    Removed,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Board<W> {
    words: W,
    writers: usize,
    slots: usize,
}

impl<W: Words> Board<W> {
    /// In new memory, all zero, that nobody else has yet, for processes of a namespace. `None` if it is too small.
    pub(crate) fn found(
        words: W,
        agreed: &Agreed,
        (token, namespace): (u64, u64),
        now: u64,
    ) -> Option<Board<W>> {
        let (writers, slots) = (agreed.count()?, agreed.slots()?);
        let board = (agreed.words()? <= words.len()).then_some(Board { words, writers, slots })?;
        let head = [
            (1, VERSION),
            (TOKEN, token),
            (WRITERS, agreed.writers),
            (SLOTS, slots as u64),
            (KEEP, agreed.keep),
            (QUEUE, agreed.queue),
            (MEMORY, agreed.memory),
            (EXPECT, agreed.expect),
            (ALL, agreed.all),
            (RUN, agreed.run),
            (RECORD, agreed.record),
            (SPILLS, u64::from(agreed.spills)),
            (CREATED, now),
            (NAMESPACE, namespace),
            (0, MAGIC),
        ];
        head.into_iter().for_each(|(i, value)| board.put(i, value));
        Some(board)
    }

    /// What somebody has founded. `None` if this is nothing of the kind, or of another version.
    pub(crate) fn open(words: W) -> Option<Board<W>> {
        if words.get(0) != MAGIC || words.get(1) != VERSION {
            return None;
        }
        let mut board = Board { words, writers: 0, slots: 0 };
        let agreed = board.agreed();
        (board.writers, board.slots) = (agreed.count()?, agreed.slots()?);
        let fits = agreed.words()? <= board.words.len() && board.get(SLOTS) == board.slots as u64;
        fits.then_some(board)
    }

    pub(crate) fn agreed(&self) -> Agreed {
        Agreed {
            writers: self.get(WRITERS),
            keep: self.get(KEEP),
            queue: self.get(QUEUE),
            memory: self.get(MEMORY),
            expect: self.get(EXPECT),
            all: self.get(ALL),
            run: self.get(RUN),
            record: self.get(RECORD),
            spills: self.spills(),
        }
    }

    fn spills(&self) -> bool {
        self.get(SPILLS) != 0
    }

    /// Names this run of the stream.
    pub(crate) fn token(&self) -> u64 {
        self.get(TOKEN)
    }

    /// Where the numbers of its processes are known: others cannot tell who of them lives.
    pub(crate) fn namespace(&self) -> u64 {
        self.get(NAMESPACE)
    }

    /// When it was founded, in nanoseconds since 1970.
    pub(crate) fn created(&self) -> u64 {
        self.get(CREATED)
    }

    pub(crate) fn state(&self) -> State {
        let word = self.get(STATE);
        match word & 0xFF {
            LIVE => State::Live,
            ENDED => State::Ended,
            REMOVED => State::Removed,
            _ => State::Failed(usize::try_from(word >> 8).unwrap_or(usize::MAX)),
        }
    }

    /// When it ended, or when a writer has closed it last while others go on, in nanoseconds since 1970; 0 before that.
    pub(crate) fn ended_at(&self) -> u64 {
        self.get(ENDED_AT)
    }

    /// Steps that are complete.
    pub(crate) fn complete(&self) -> u64 {
        self.get(COMPLETE)
    }

    /// Writers.
    pub(crate) fn writers(&self) -> usize {
        self.writers
    }

    /// Steps that may be kept and queued for a group.
    pub(crate) fn most_of_group(&self) -> u64 {
        (self.slots as u64).saturating_sub(SPARE)
    }

    /// Slots that steps have had, or have.
    fn used_slots(&self) -> usize {
        usize::try_from(self.get(USED)).unwrap_or(self.slots).min(self.slots)
    }

    /// What is to change before readers look again.
    pub(crate) fn seen_by_readers(&self) -> u32 {
        self.get(FOR_READERS) as u32
    }

    /// What is to change before writers look again.
    pub(crate) fn seen_by_writers(&self) -> u32 {
        self.get(FOR_WRITERS) as u32
    }

    /// Sleeps until there is something new for readers since that was seen, or the time is over; or for less.
    pub(crate) fn sleep_as_reader(&self, seen: u32, time: std::time::Duration) {
        self.words.sleep(FOR_READERS, seen, time);
    }

    /// The same for writers.
    pub(crate) fn sleep_as_writer(&self, seen: u32, time: std::time::Duration) {
        self.words.sleep(FOR_WRITERS, seen, time);
    }

    /// What is to change before the recorder of a writer looks again.
    pub(crate) fn seen_by_recorder(&self, writer: usize) -> u32 {
        self.get(self.bell_of(writer)) as u32
    }

    /// Sleeps until there is something to record since that was seen, or the time is over; or for less.
    pub(crate) fn sleep_as_recorder(&self, writer: usize, seen: u32, time: std::time::Duration) {
        self.words.sleep(self.bell_of(writer), seen, time);
    }

    /// True unless somebody has looked within this time who has ended. A clock that was set back makes a look due.
    pub(crate) fn is_look_due(&self, now: u64, within: std::time::Duration) -> bool {
        let since = now.checked_sub(self.get(LOOKED_AT));
        since.is_none_or(|since| u128::from(since) >= within.as_nanos() / 2)
    }

    /// Somebody looks now.
    pub(crate) fn looks(&self, _: &Guard<'_, W>, now: u64) {
        self.put(LOOKED_AT, now);
    }

    /// There is something to record for a writer.
    pub(crate) fn ring(&self, _: &Guard<'_, W>, writer: usize) {
        self.tell(self.bell_of(writer));
    }

    /// Memory may have become free.
    pub(crate) fn tell_writers(&self, _: &Guard<'_, W>) {
        self.tell(FOR_WRITERS);
    }

    fn tell(&self, which: usize) {
        // Under the lock: nobody else adds to it.
        self.put(which, self.get(which).wrapping_add(1));
        self.words.wake(which);
    }

    fn get(&self, i: usize) -> u64 {
        self.words.get(i)
    }

    fn put(&self, i: usize, value: u64) {
        #[cfg(test)]
        tests::step();
        self.words.put(i, value);
    }

    fn writer_at(&self, writer: usize) -> usize {
        HEAD + writer.min(self.writers) * WRITER
    }

    fn group_at(&self, group: usize) -> usize {
        HEAD + self.writers * WRITER + group.min(GROUPS) * GROUP
    }

    fn reader_at(&self, reader: usize) -> usize {
        self.group_at(GROUPS) + reader.min(READERS) * READER
    }

    fn slot_at(&self, slot: usize) -> usize {
        self.reader_at(READERS) + slot * (SLOT + BITS + self.writers * ENTRY)
    }
}
