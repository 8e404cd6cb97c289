//! Ranks as threads of one process.

use crate::{Fabric, Mailbox, Rounds};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use stead_core::{Error, Result, limits};

/// One rank of a group of threads. Dropping it tells the others that it is gone.
pub struct Local {
    rank: usize,
    group: Arc<Group>,
    deadline: Duration,
    rounds: Rounds,
}

struct Group {
    boxes: Vec<Mailbox>,
    nodes: Vec<usize>,
}

impl Local {
    /// A fabric of one rank.
    pub fn single() -> Local {
        let group = Arc::new(Group { boxes: vec![Mailbox::default()], nodes: vec![0] });
        let deadline = Duration::from_secs(limits::PEER_DEADLINE_S);
        Local { rank: 0, group, deadline, rounds: Rounds::default() }
    }

    /// `size` ranks, at least one, to be given to one thread each.
    pub fn group(size: usize) -> Vec<Local> {
        Self::group_with_deadline(size, Duration::from_secs(limits::PEER_DEADLINE_S))
    }

    /// As [`Local::group`]; a rank that waits longer than `deadline` for a message gets an error.
    pub fn group_with_deadline(size: usize, deadline: Duration) -> Vec<Local> {
        Self::over_nodes(&vec![0; size.max(1)], deadline)
    }

    /// One rank for each entry, which says on what node it is to seem to be: for tests of what depends on nodes.
    pub fn over_nodes(nodes: &[usize], deadline: Duration) -> Vec<Local> {
        let boxes = nodes.iter().map(|_| Mailbox::default()).collect();
        let group = Arc::new(Group { boxes, nodes: nodes.to_vec() });
        let rank = |rank| Local { rank, group: group.clone(), deadline, rounds: Rounds::default() };
        (0..nodes.len()).map(rank).collect()
    }

    /// Number of messages that came for this rank and that nobody has taken.
    pub fn lying(&self) -> usize {
        self.mailbox(self.rank).map_or(0, Mailbox::lying)
    }

    #[cfg(test)]
    pub(crate) fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    fn mailbox(&self, rank: usize) -> Result<&Mailbox> {
        let unknown = || Error::internal(format!("there is no rank {rank}"));
        self.group.boxes.get(rank).ok_or_else(unknown)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        for b in &self.group.boxes {
            b.gone(self.rank, "the rank has ended early");
        }
    }
}

impl Fabric for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.boxes.len()
    }

    fn node_of(&self, rank: usize) -> usize {
        self.group.nodes.get(rank).copied().unwrap_or(0)
    }

    fn deadline(&self) -> Duration {
        self.deadline
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        let theirs = self.mailbox(to)?;
        self.alive(to)?;
        theirs.put(self.rank, tag, bytes);
        Ok(())
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.mailbox(from)?;
        let taken = self.mailbox(self.rank)?.take(Some(from), tag, within)?;
        Ok(taken.map(|(_, bytes)| bytes))
    }

    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.mailbox(self.rank)?.take(None, tag, within)
    }

    fn alive(&self, rank: usize) -> Result<()> {
        self.mailbox(self.rank)?.alive(rank)
    }

    fn ends(&self, rank: usize) -> bool {
        self.alive(rank).is_err()
    }

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn forget(&self, tags: Range<u32>) {
        self.rounds.forget(&tags);
        if let Ok(mine) = self.mailbox(self.rank) {
            mine.forget(tags);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::Kind;

    #[test]
    fn local_conforms() {
        for size in [1, 2, 3, 4, 7, 8] {
            crate::conformance::check(Local::group(size));
        }
        crate::conformance::check(Local::over_nodes(&[0, 1, 1, 0], Duration::from_secs(60)));
    }

    #[test]
    fn a_rank_that_ends_is_an_error_not_a_hang() {
        let mut ranks = Local::group(2);
        drop(ranks.pop());
        let e = ranks[0].recv(1, 7).expect_err("gone");
        assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(1)));
        assert!(ranks[0].send(1, 7, vec![]).is_err());
        assert!(ranks[0].alive(1).is_err());
    }

    #[test]
    fn a_silent_rank_is_an_error_after_the_deadline() {
        let ranks = Local::group_with_deadline(2, Duration::from_millis(20));
        assert_eq!(ranks[0].recv(1, 0).expect_err("silent").kind(), Kind::Peer);
    }
}
