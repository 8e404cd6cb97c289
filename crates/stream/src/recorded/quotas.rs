//! Room for the files of a stream, where quotas of dataspaces say how much there may be.
//!
//! What lies in a dataspace is looked at once for all writers of a node, by the first one that has to know, and from then on what they write is
//! counted. It is looked anew when the count leaves too little, and when half of what was left is gone, since others may write there, too; never
//! for each step: all of a dataspace may have to be walked through.

use crate::board::{Board, Guard, Look};
use crate::clock;
use crate::home::{self, BOARD};
use crate::memory::Shared;
use crate::words::Who;
use std::ffi::OsStr;
use std::time::{Duration, Instant};
use stead_core::layout::Spaces;
use stead_core::units::format_size;
use stead_core::{Cancel, Error, Kind, Result};
use stead_store::Folder;
use stead_store::quota::{self, Left, Rule};

/// The time between two looks, but of who would be refused: this at least, and so many times what a look takes, up to the longest.
const SOON: Duration = Duration::from_secs(5);
const TIMES: u32 = 10;
const LATE: Duration = Duration::from_secs(600);
/// Others may write while it is looked: so often it is looked before somebody is refused.
const TRIES: u32 = 3;
/// So often who waits for others looks whether they are done.
const SLICE: Duration = Duration::from_millis(50);
/// Others who look, or write, are waited for no longer: they may be stuck, or have ended.
const PATIENCE: Duration = Duration::from_secs(60);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Quotas {
    name: String,
    me: Who,
    rules: Vec<Rule>,
    /// Where the stream lies: who looks has the file of its board locked, which nobody else has.
    memory: Folder,
    /// Nobody needs to know any more.
    cancel: Cancel,
    /// Since when somebody else looks.
    busy: Option<Instant>,
}

/// What somebody has found who looked.
#[derive(Debug, Clone, Copy)]
struct Found {
    /// The quota that leaves the least, and of which dataspace it is.
    least: Option<(usize, Left)>,
    /// No writer of the stream has written meanwhile.
    is_exact: bool,
}

impl Found {
    fn bytes(&self) -> u64 {
        self.least.map_or(u64::MAX, |(_, left)| left.bytes())
    }
}

impl Quotas {
    /// Those of the dataspaces that a folder lies in; `None` where there are none. `memory` is the folder of the stream.
    pub(crate) fn of(
        spaces: &Spaces,
        at: &Folder,
        (name, me): (&str, Who),
        memory: &Folder,
    ) -> Option<Quotas> {
        let rules = quota::of(spaces, at);
        let (name, memory) = (name.to_owned(), memory.clone());
        let quotas = Quotas { name, me, rules, memory, cancel: Cancel::new(), busy: None };
        (!quotas.rules.is_empty()).then_some(quotas)
    }

    /// Ends a look that is under way when nobody needs it any more.
    pub(crate) fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }

    fn lock<'b>(&self, board: &'b Board<Shared>) -> Result<Guard<'b, Shared>> {
        home::lock(&self.name, board, self.me)
    }

    /// True if there is room for so many bytes more, as far as is known.
    pub(crate) fn has_room(
        &self,
        board: &Board<Shared>,
        guard: &Guard<'_, Shared>,
        bytes: u64,
    ) -> bool {
        board.room(guard).is_some_and(|left| bytes <= left)
    }

    /// True if it is time to look again, though there is room: half of what there was is gone.
    pub(crate) fn is_due(&self, board: &Board<Shared>, guard: &Guard<'_, Shared>) -> bool {
        let left = board.room(guard).unwrap_or(0);
        board.last_look(guard).is_none_or(|look| left < look.left / 2 && is_time(&look))
    }

    /// Says what is left, for who waits for it.
    pub(crate) fn said(&self, board: &Board<Shared>, guard: &Guard<'_, Shared>) -> String {
        let each = self.rules.iter().map(|rule| {
            let most = rule.terms.quota.into_iter().chain(rule.terms.user_quota).min();
            format!("'{}' ({})", rule.name, format_size(most.unwrap_or(u64::MAX)))
        });
        let left = format_size(board.room(guard).unwrap_or(0));
        format!("quotas leave {left} in dataspace {}", each.collect::<Vec<_>>().join(" and "))
    }

    /// Looks what is left, for all writers of the node. `None` while another one does so.
    fn look(&mut self, board: &Board<Shared>) -> Result<Option<Found>> {
        let locked = match self.memory.lock_if_free(OsStr::new(BOARD)) {
            Ok(None) => {
                let now = clock::now();
                let busy = *self.busy.get_or_insert(now);
                if now.saturating_duration_since(busy) < PATIENCE {
                    return Ok(None);
                }
                None
            }
            // Where it cannot be locked, several may look at the same time.
            locked => locked.ok().flatten(),
        };
        self.busy = None;
        let (began, written) = (clock::now(), board.written());
        let mut least: Option<(usize, Left)> = None;
        for (at, rule) in self.rules.iter().enumerate() {
            for left in quota::left(rule, &|_| false, &|| self.cancel.check())? {
                if least.is_none_or(|(_, least)| left.bytes() < least.bytes()) {
                    least = Some((at, left));
                }
            }
        }
        let took = clock::now().saturating_duration_since(began);
        let pause = nanoseconds(took.saturating_mul(TIMES).clamp(SOON, LATE));
        let next = clock::since_1970().saturating_add(pause);
        let guard = self.lock(board)?;
        let found = Found { least, is_exact: board.written() == written };
        board.note_look(&guard, Look { left: found.bytes(), written, next });
        drop(locked);
        // Others may have waited for it.
        (0..board.writers()).for_each(|writer| board.ring(&guard, writer));
        Ok(Some(found))
    }

    /// Looks for who waits for room, or may have less than is known, if it is time and nobody else does so.
    ///
    /// # Errors
    /// Those of looking.
    pub(crate) fn look_again(&mut self, board: &Board<Shared>) -> Result<()> {
        let is_due =
            |guard: Guard<'_, Shared>| board.last_look(&guard).is_none_or(|look| is_time(&look));
        if !self.lock(board).is_ok_and(is_due) {
            return Ok(());
        }
        match self.look(board) {
            // There is nothing to be recorded any more; somebody keeps the stream locked, for now.
            Err(e) if matches!(e.kind(), Kind::Cancelled | Kind::Timeout) => Ok(()),
            looked => looked.map(|_| ()),
        }
    }

    /// Takes room for a step of a writer, as soon as it is known that there is some.
    ///
    /// # Errors
    /// `NoSpace` if there is none, after a look at what is there now; those of looking; `Timeout` if somebody keeps the stream locked.
    pub(crate) fn claim(
        &mut self,
        board: &Board<Shared>,
        seat: usize,
        (step, bytes): (u64, u64),
    ) -> Result<()> {
        let until = clock::after(PATIENCE);
        let mut looks = 0;
        loop {
            let seen = board.seen_by_recorder(seat);
            let guard = self.lock(board)?;
            let fits = self.has_room(board, &guard, bytes);
            if fits && (looks > 0 || !self.is_due(board, &guard)) {
                board.set_claimed(seat, bytes);
                return Ok(());
            }
            drop(guard);
            let is_late = clock::now() >= until;
            if looks > 0 && board.files() > board.written() && !is_late {
                // When these have written it can be told what is left.
                board.sleep_as_recorder(seat, seen, SLICE);
                continue;
            }
            let Some(found) = self.look(board)? else {
                // What is known is enough, or is not known yet.
                looks += u32::from(fits);
                if !fits {
                    board.sleep_as_recorder(seat, seen, SLICE);
                }
                continue;
            };
            looks += 1;
            if found.bytes() >= bytes {
                if is_late {
                    // Who has claimed it has ended.
                    board.set_claimed(seat, bytes);
                    return Ok(());
                }
            } else if let Some((at, left)) = found.least
                && (found.is_exact || looks >= TRIES || is_late)
            {
                let name = self.rules.get(at).map_or("", |rule| rule.name.as_str());
                let message = format!("step {step}: {}", left.shortage(name, bytes));
                return Err(Error::new(Kind::NoSpace, message).with_hint(
                    "what was recorded before can be read; remove something there, or name another place",
                ));
            }
        }
    }
}

/// True if another look is due by the clock. One that was set back makes it so.
fn is_time(look: &Look) -> bool {
    let left = look.next.checked_sub(clock::since_1970());
    left.is_none_or(|left| left > nanoseconds(LATE))
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
