//! What those who take part count for others to see, and who they are where that is not all that their places tell. Nothing of it
//! decides who waits for whom.

use super::groups::{G_SIZE, G_STATE, RANKS};
use super::seats::{
    HERE, R_COPYING, R_JOB, R_NODE, R_NUMBER, R_PROCESS, R_STATE, R_WAITED, Seat, Standing,
    W_COPYING, W_SPARE, W_WAITED,
};
use super::{Board, GROUPS, Guard, PEAK, Policy, READERS, Reader};
use crate::words::{Who, Words};

/// Who reads on another node, where an agent of this one is among the readers for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Elsewhere {
    /// Nodes of a job are numbered; `None` where it is of none.
    pub(crate) node: Option<u64>,
    /// Its rank in the job.
    pub(crate) rank: Option<u64>,
    /// Its process there.
    pub(crate) process: u32,
}

/// A reader's process, for messages: not that of an agent, where it has one.
pub(crate) fn process(who: Who, elsewhere: Option<Elsewhere>) -> String {
    match elsewhere {
        Some(Elsewhere { node: Some(node), process, .. }) => {
            format!("process {process} on node {node}")
        }
        Some(Elsewhere { process, .. }) => format!("process {process} on another node"),
        None => format!("process {}", who.number),
    }
}

/// Ranks of a group that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) name: String,
    pub(crate) size: u64,
    pub(crate) policy: Policy,
    /// Those that have not come yet, as far as there is a bit for each.
    pub(crate) awaited: Vec<u64>,
}

impl<W: Words> Board<W> {
    /// Notes that arrays take so many bytes now, if it is more than ever before. Without the lock.
    pub(crate) fn note_peak(&self, bytes: u64) {
        let mut most = self.get(PEAK);
        while most < bytes && !self.words.swap_if(PEAK, most, bytes) {
            most = self.get(PEAK);
        }
    }

    /// The most bytes that arrays have taken at a time.
    pub(crate) fn peak(&self) -> u64 {
        self.get(PEAK)
    }

    /// A writer keeps so many bytes of pages, which no array has, for what it puts next. Its own word: without the lock.
    pub(crate) fn set_spare(&self, writer: usize, bytes: u64) {
        if writer < self.writers {
            self.put(self.writer_at(writer) + W_SPARE, bytes);
        }
    }

    /// Bytes of pages that all writers keep for what they put next, but for this one.
    pub(crate) fn spare_beside(&self, writer: usize) -> u64 {
        let spare = |w| self.get(self.writer_at(w) + W_SPARE);
        (0..self.writers).filter(|w| *w != writer).map(spare).fold(0, u64::saturating_add)
    }

    /// The same, of all of them.
    pub(crate) fn spare(&self) -> u64 {
        self.spare_beside(usize::MAX)
    }

    /// Nanoseconds that a writer has waited for others so far, and those of processors that its copies have taken. Its own words: without
    /// the lock.
    pub(crate) fn set_times(&self, writer: usize, waited: u64, copying: u64) {
        if writer < self.writers {
            let at = self.writer_at(writer);
            self.put(at + W_WAITED, waited);
            self.put(at + W_COPYING, copying);
        }
    }

    /// A reader has waited for steps for so many nanoseconds more, and its copies have taken so many of processors. Its own words: without
    /// the lock.
    pub(crate) fn count_times(&self, reader: Reader, waited: u64, copying: u64) {
        let at = self.reader_at(reader.0);
        for (word, more) in [(R_WAITED, waited), (R_COPYING, copying)] {
            if more > 0 {
                self.put(at + word, self.get(at + word).saturating_add(more));
            }
        }
    }

    /// A reader is one of another node.
    pub(crate) fn set_elsewhere(&self, _: &Guard<'_, W>, reader: Reader, elsewhere: Elsewhere) {
        let at = self.reader_at(reader.0);
        self.put(at + R_JOB, elsewhere.rank.unwrap_or(0));
        self.put(at + R_PROCESS, elsewhere.process.into());
        self.put(at + R_NODE, elsewhere.node.map_or(1, |node| node.saturating_add(2)));
    }

    pub(super) fn elsewhere(&self, at: usize) -> Option<Elsewhere> {
        let node = self.get(at + R_NODE).checked_sub(1)?.checked_sub(1);
        let rank = node.map(|_| self.get(at + R_JOB));
        let process = u32::try_from(self.get(at + R_PROCESS)).unwrap_or(0);
        Some(Elsewhere { node, rank, process })
    }

    /// Who on another node has the place of a rank of a group.
    pub(crate) fn whose(&self, group: &str, rank: u64) -> Option<Elsewhere> {
        let is_it = |seat: &Seat| {
            let is_here = seat.standing == Standing::Here;
            is_here && seat.group.as_deref() == Some(group) && seat.rank == rank
        };
        self.readers().into_iter().find(is_it)?.elsewhere
    }

    /// True of a place of a reader that somebody has now.
    pub(crate) fn is_at(&self, place: usize) -> bool {
        place < READERS && self.get(self.reader_at(place) + R_STATE) == HERE
    }

    /// Which of all readers that have come this one is.
    pub(crate) fn number(&self, reader: Reader) -> u64 {
        self.get(self.reader_at(reader.0) + R_NUMBER)
    }

    /// Groups that are there, in the order of their places.
    pub(crate) fn members(&self) -> Vec<Members> {
        let there = (0..GROUPS).filter(|g| self.get(self.group_at(*g) + G_STATE) == HERE);
        let members = there.map(|group| {
            let at = self.group_at(group);
            let size = self.get(at + G_SIZE).min(RANKS);
            Members {
                name: self.name_of(group),
                size,
                policy: self.policy_of(group),
                awaited: (0..size).filter(|rank| !self.came(group, *rank)).collect(),
            }
        });
        members.collect()
    }
}
