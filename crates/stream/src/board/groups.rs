//! Groups of readers: there while one of their ranks is, and until all have come and gone.

use super::seats::{FREE, HERE, LEFT, R_GROUP, R_STATE, is_taken};
use super::{Board, COMPLETE, EXPECT, GROUPS, NAME, QUEUE};
use crate::clock;
use crate::words::Words;

/// Words of a group.
pub(super) const G_STATE: usize = 0;
pub(super) const G_SIZE: usize = 1;
pub(super) const G_RULE: usize = 2;
/// The first step that is for it.
pub(super) const G_FIRST: usize = 3;
const G_LEN: usize = 4;
/// Until then, in nanoseconds since 1970, those who have not come are waited for, also when all who have are gone again.
pub(super) const G_UNTIL: usize = 5;
/// Of one whose ranks agree on steps: the first one that they have not agreed on.
pub(super) const G_AGREED: usize = 6;
/// Steps that it may be behind; 0 of one that says nothing of it.
const G_QUEUE: usize = 7;
const G_NAME: usize = 8;
/// Steps that it has had which stay for it.
const G_KEEP: usize = 16;
/// A bit for each rank that has come.
pub(super) const G_CAME: usize = 24;

/// Ranks of a group at most.
pub(super) const RANKS: u64 = 64 * (super::GROUP - G_CAME) as u64;

/// What writers do when a group is behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// They wait for it.
    Block,
    /// They go on, and steps go that it has not had. If it has several ranks, they [agree](Board::agree) on those that it has.
    Drop,
    /// They go on, and steps go that it has not had and that it finds in files.
    Spill,
}

/// What all ranks of a group say of it, beside how many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) rule: Rule,
    /// Steps that it may be behind; those that the stream has queued where nothing is said.
    pub(crate) queue: Option<u64>,
    /// Steps that it has had which stay for it, beside those that the stream keeps.
    pub(crate) keep: u64,
}

impl Policy {
    /// Of a group that has no numbers of its own.
    #[cfg(test)]
    pub(crate) fn of(rule: Rule) -> Policy {
        Policy { rule, queue: None, keep: 0 }
    }
}

/// Where a group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    /// With the next step that is complete.
    Next,
    /// With the oldest one that is there.
    Oldest,
}

/// A group of readers, each of which has all steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group<'a> {
    pub(crate) name: &'a str,
    pub(crate) size: u64,
    pub(crate) policy: Policy,
    pub(crate) from: From,
    /// Who has not come until then, in nanoseconds since 1970, is not waited for when those who have are gone.
    pub(crate) until: u64,
}

impl<W: Words> Board<W> {
    pub(super) fn begin_group(&self, group: Group<'_>) -> Option<usize> {
        let is = |state| (0..GROUPS).find(|g| self.get(self.group_at(*g) + G_STATE) == state);
        // The name of one that has gone is told with those who were of it, until its place is needed.
        let number = is(FREE).or_else(|| is(LEFT))?;
        for at in (0..self.seats()).map(|r| self.reader_at(r)) {
            if !is_taken(self.get(at + R_STATE)) && self.get(at + R_GROUP) == number as u64 {
                self.put(at + R_STATE, FREE);
            }
        }
        self.forget_agreed(number);
        let at = self.group_at(number);
        let first = match group.from {
            From::Next => self.get(COMPLETE),
            From::Oldest => self.oldest(),
        };
        let rule = match group.policy.rule {
            Rule::Block => 0,
            Rule::Drop => 1,
            Rule::Spill => 2,
        };
        for (i, eight) in group.name.as_bytes().chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(eight).for_each(|(to, from)| *to = *from);
            self.put(at + G_NAME + i, u64::from_le_bytes(bytes));
        }
        (0..super::GROUP - G_CAME).for_each(|i| self.put(at + G_CAME + i, 0));
        let entry = [
            (G_LEN, group.name.len() as u64),
            (G_SIZE, group.size),
            (G_RULE, rule),
            (G_FIRST, first),
            (G_UNTIL, group.until),
            (G_AGREED, 0),
            (G_QUEUE, group.policy.queue.unwrap_or(0)),
            (G_KEEP, group.policy.keep),
            (G_STATE, HERE),
        ];
        entry.into_iter().for_each(|(i, value)| self.put(at + i, value));
        Some(number)
    }

    pub(super) fn name_of(&self, group: usize) -> String {
        let at = self.group_at(group);
        let len = usize::try_from(self.get(at + G_LEN)).unwrap_or(0).min(NAME);
        let mut bytes: Vec<u8> =
            (0..NAME / 8).flat_map(|i| self.get(at + G_NAME + i).to_le_bytes()).collect();
        bytes.truncate(len);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub(super) fn rule_of(&self, group: usize) -> Rule {
        match self.get(self.group_at(group) + G_RULE) {
            0 => Rule::Block,
            2 => Rule::Spill,
            _ => Rule::Drop,
        }
    }

    pub(super) fn policy_of(&self, group: usize) -> Policy {
        let at = self.group_at(group);
        let queue = Some(self.get(at + G_QUEUE)).filter(|queue| *queue > 0);
        Policy { rule: self.rule_of(group), queue, keep: self.get(at + G_KEEP) }
    }

    /// Steps that a group may be behind.
    pub(super) fn queue_of(&self, group: usize) -> u64 {
        self.policy_of(group).queue.unwrap_or_else(|| self.get(QUEUE))
    }

    /// True of numbers that there are slots for.
    pub(super) fn has_slots_for(&self, policy: Policy) -> bool {
        let all = policy.queue.unwrap_or_else(|| self.get(QUEUE)).checked_add(policy.keep);
        policy.queue != Some(0) && all.is_some_and(|all| all <= self.most_of_group())
    }

    /// True of a group of which somebody is there.
    pub(super) fn is_peopled(&self, group: usize) -> bool {
        (0..self.seats())
            .map(|r| self.reader_at(r))
            .any(|at| is_taken(self.get(at + R_STATE)) && self.get(at + R_GROUP) == group as u64)
    }

    /// True of a group of which some have come, and others still may.
    pub(super) fn is_awaited(&self, group: usize) -> bool {
        let at = self.group_at(group);
        let bits = (0..super::GROUP - G_CAME).map(|i| self.get(at + G_CAME + i).count_ones());
        let came = u64::from(bits.sum::<u32>());
        (1..self.get(at + G_SIZE)).contains(&came) && clock::since_1970() < self.get(at + G_UNTIL)
    }

    /// True if a group waits for this rank, which has not come: it has its steps although the stream is over.
    pub(crate) fn awaits(&self, group: &str, size: u64, rank: u64) -> bool {
        let is_it = |g: &usize| {
            let at = self.group_at(*g);
            (self.get(at + G_STATE), self.get(at + G_SIZE)) == (HERE, size)
                && self.name_of(*g) == group
        };
        rank < size.min(RANKS) && (0..GROUPS).find(is_it).is_some_and(|g| !self.came(g, rank))
    }

    /// Groups of which nobody is there, nor will be, are there no more. True if there was one.
    pub(super) fn end_groups(&self) -> bool {
        let mut peopled = [false; GROUPS];
        for at in (0..self.seats()).map(|r| self.reader_at(r)) {
            let group = usize::try_from(self.get(at + R_GROUP)).unwrap_or(GROUPS);
            if is_taken(self.get(at + R_STATE))
                && let Some(peopled) = peopled.get_mut(group)
            {
                *peopled = true;
            }
        }
        let mut any = false;
        for (group, peopled) in peopled.into_iter().enumerate() {
            let at = self.group_at(group) + G_STATE;
            if !peopled && self.get(at) == HERE && !self.is_awaited(group) {
                self.put(at, LEFT);
                any = true;
            }
        }
        any
    }

    /// Groups that are there.
    pub(crate) fn groups(&self) -> usize {
        (0..GROUPS).filter(|g| self.get(self.group_at(*g) + G_STATE) == HERE).count()
    }

    /// True until as many groups have come as the first step waits for.
    pub(super) fn lacks_groups(&self) -> bool {
        (self.groups() as u64) < self.get(EXPECT) && self.get(COMPLETE) == 0
    }

    /// True of a rank of a group that has come, whether it is there now or not.
    pub(super) fn came(&self, group: usize, rank: u64) -> bool {
        let at = self.group_at(group) + G_CAME + (rank / 64) as usize;
        self.get(at) & (1 << (rank % 64)) != 0
    }

    /// The first rank of a group that has not come.
    pub(super) fn first_awaited(&self, group: usize) -> Option<u64> {
        let size = self.get(self.group_at(group) + G_SIZE).min(RANKS);
        (0..size).find(|rank| !self.came(group, *rank))
    }

    pub(super) fn has_come(&self, group: usize, rank: u64) {
        if rank < RANKS {
            let at = self.group_at(group) + G_CAME + (rank / 64) as usize;
            self.put(at, self.get(at) | 1 << (rank % 64));
        }
    }
}
