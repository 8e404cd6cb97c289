//! What all streams of a user may have of a node's memory together, where something is agreed of the dataspace `memory`.
//!
//! Each board has what the arrays of its writers take, and the pages that these keep for what they put next. A writer that takes memory says so on its own
//! board, and adds up what all boards of its user have: it looks at their words each time, at which boards there are now and then, and
//! always before there is no room. So what is had beyond the budget is what a stream took in the time between two such looks, beside others
//! that had begun before it.
//!
//! Pages that are kept count, too. Where there are several streams, all writers of all of them keep an eighth of the budget at most between
//! steps, and nothing where little is left: who waits for pages can have them only from who keeps them.

use crate::board::Board;
use crate::clock;
use crate::home::Home;
use crate::memory::Shared;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::Result;
use stead_core::units::format_size;

/// So often it is looked which boards there are.
const LOOK: Duration = Duration::from_millis(250);
/// So often who waits for room looks whether streams are left that nobody wants.
const SWEEP: Duration = Duration::from_secs(2);
/// This part of the budget may be pages that are kept between steps.
const SPARE: u64 = 8;
/// No pages are kept beside other streams while less than this part of it is left.
const TIGHT: u64 = 4;
/// Streams that a message names.
const NAMED: usize = 8;

/// What all streams of a user on a node may take of memory, and take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Bytes that they may take: the least of `size`, `quota` and `user_quota` of the dataspace `memory`.
    pub most: u64,
    /// Bytes that their arrays take now, with the pages that writers keep for their next step.
    pub used: u64,
}

impl Budget {
    pub(crate) fn of(home: &Home) -> Result<Option<Budget>> {
        let Some(most) = home.budget() else { return Ok(None) };
        let used = home.boards()?.into_iter().map(|(_, board)| taken(&board));
        Ok(Some(Budget { most, used: used.fold(0, u64::saturating_add) }))
    }
}

/// Bytes of memory that a stream has.
fn taken(board: &Board<Shared>) -> u64 {
    board.used().saturating_add(board.spare())
}

/// What a writer goes by.
#[derive(Debug)]
pub(crate) struct Shares {
    home: Home,
    most: u64,
    /// Its own stream.
    token: u64,
    others: Mutex<Others>,
}

#[derive(Debug, Default)]
struct Others {
    boards: Vec<(String, Board<Shared>)>,
    listed: Option<Instant>,
    swept: Option<Instant>,
}

impl Shares {
    /// `None` where nothing is agreed.
    pub(crate) fn of(home: &Home, token: u64) -> Option<Shares> {
        let most = home.budget()?;
        Some(Shares { home: home.clone(), most, token, others: Mutex::default() })
    }

    /// Bytes that all streams may have.
    pub(crate) fn most(&self) -> u64 {
        self.most
    }

    fn others(&self, anew: bool) -> MutexGuard<'_, Others> {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if anew || others.listed.is_none_or(|at| at.elapsed() >= LOOK) {
            others.listed = Some(clock::now());
            // What cannot be listed now is as it was.
            if let Ok(boards) = self.home.boards() {
                let other = |(_, board): &(String, Board<Shared>)| board.token() != self.token;
                others.boards = boards.into_iter().filter(other).collect();
            }
        }
        others
    }

    /// Bytes that are left to a writer's stream beside what its arrays take and its other writers keep; `None` if there are fewer than none.
    pub(crate) fn room(&self, board: &Board<Shared>, seat: usize) -> Option<u64> {
        let own = board.used().saturating_add(board.spare_beside(seat));
        let left = |anew| {
            let boards = &self.others(anew).boards;
            let all = boards.iter().map(|(_, board)| taken(board)).fold(own, u64::saturating_add);
            self.most.checked_sub(all)
        };
        left(false).or_else(|| left(true))
    }

    /// Bytes of pages that a writer may keep: within a step, which it takes them for, or between two of them.
    pub(crate) fn keeps(&self, board: &Board<Shared>, seat: usize, is_within: bool) -> u64 {
        let others = self.others(false);
        let boards = || others.boards.iter().map(|(_, board)| board);
        let used = boards().map(Board::used).fold(board.used(), u64::saturating_add);
        let spare = boards().map(Board::spare).fold(board.spare_beside(seat), u64::saturating_add);
        let left = self.most.saturating_sub(used.saturating_add(spare));
        match () {
            () if others.boards.is_empty() => left,
            () if left < self.most / TIGHT => 0,
            () if is_within => left,
            () => (self.most / SPARE).saturating_sub(spare).min(left),
        }
    }

    /// Removes streams that nobody wants any more, for who waits for their memory; not each time.
    pub(crate) fn sweep(&self) {
        let mut others = self.others(false);
        if others.swept.is_none_or(|at| at.elapsed() >= SWEEP) {
            others.swept = Some(clock::now());
            drop(others);
            self.home.sweep_over();
        }
    }

    /// Which streams have the memory, for messages.
    pub(crate) fn who(&self, own: &str, board: &Board<Shared>) -> String {
        let others = self.others(true);
        let mut all: Vec<(u64, &str)> =
            others.boards.iter().map(|(name, board)| (taken(board), name.as_str())).collect();
        all.push((taken(board), own));
        all.retain(|(bytes, _)| *bytes > 0);
        all.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
        let used = all.iter().map(|(bytes, _)| *bytes).fold(0, u64::saturating_add);
        let mut said: Vec<String> = all
            .iter()
            .take(NAMED)
            .map(|(bytes, name)| format!("'{name}' {}", format_size(*bytes)))
            .collect();
        if let Some(more) = all.get(NAMED..).filter(|more| !more.is_empty()) {
            let bytes = more.iter().map(|(bytes, _)| *bytes).fold(0, u64::saturating_add);
            said.push(format!("{} more {}", more.len(), format_size(bytes)));
        }
        let (used, most) = (format_size(used), format_size(self.most));
        let said = if said.is_empty() { "none has any".to_owned() } else { said.join(", ") };
        format!(
            "the streams of this user have {used} of the {most} of dataspace 'memory' on this node: {said}"
        )
    }
}

/// What helps where there is no room.
pub(crate) const HINT: &str = "let readers of these streams go on, remove those that nobody wants (`stead stream rm`), give streams less `memory`, or raise size, quota or user_quota of [dataspace.memory] in stead.toml";
