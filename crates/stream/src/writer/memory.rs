//! Memory for what a writer puts: taken where there is some, and waited for where there will be.

use super::{Writer, cause};
use crate::board::Full;
use crate::budget::{self, Shares};
use crate::buffer::Buffer;
use crate::clock;
use crate::party::{Party, Seen};
use crate::recorded::Recorder;
use crate::report::Cause;
use crate::stock::{self, Moment};
use std::time::{Duration, Instant};
use stead_core::units::format_size;
use stead_core::{Error, Kind, Result};
use stead_store::arena::Piece;

/// For what a writer waits that has no memory.
#[derive(Debug, Clone, Copy)]
enum Lacks {
    /// For what keeps a step from beginning, too.
    Full(Full),
    /// Steps are to be recorded.
    Recorder,
    /// Other writers have what is of steps that have gone.
    Writers,
}

impl Writer {
    /// Memory, within that of the stream.
    pub(super) fn take(&mut self, bytes: u64) -> Result<Piece> {
        let none = || Error::internal("there is memory, and none of it");
        self.take_of(None, bytes)?.ok_or_else(none)
    }

    /// The same, of what was made before, as it is; `None` if that is to be copied.
    pub(super) fn take_in(&mut self, made: &Buffer, bytes: u64) -> Result<Option<Piece>> {
        self.take_of(Some(made), bytes)
    }

    fn take_of(&mut self, made: Option<&Buffer>, bytes: u64) -> Result<Option<Piece>> {
        if !self.party.is_mine() {
            // What a thread of its parent had locked stays so.
            self.party.lock()?;
        }
        let until = self.party.deadline();
        loop {
            let seen = Seen::Writer(self.party.board.seen_by_writers());
            let full = match self.stock.take(&self.party.board, bytes, made) {
                Ok(Ok(piece)) => return Ok(piece),
                Ok(Err(full)) => full,
                Err(e) => return Err(self.gone(e)),
            };
            if !self.reclaim(Moment::Within) {
                self.wait_for_memory(seen, until, bytes, full)?;
                self.check()?;
            }
        }
    }

    /// Waits for what others give back, unless it can never be enough.
    fn wait_for_memory(
        &mut self,
        seen: Seen,
        until: Instant,
        bytes: u64,
        full: stock::Full,
    ) -> Result<()> {
        let Writer { party, stock, seat, step, .. } = &*self;
        let (board, step) = (&party.board, *step);
        let guard = party.lock()?;
        if board.sweep_for_room(&guard) {
            return Ok(());
        }
        if self.recorder.is_some() {
            board.hurry(&guard);
        }
        let open = stock.open();
        let stays = board.stays(&guard, *seat, step).saturating_add(open).saturating_add(bytes);
        let state = board.state();
        let lacks = self.what_is_lacking(step);
        let (memory, budget) = (board.agreed().memory, stock.shares().map(Shares::most));
        let most = budget.unwrap_or(memory).min(memory);
        // Whoever needs as much at the same time is told, and told when there is some.
        board.set_waiting(*seat, (stays <= most).then_some(open));
        drop(guard);
        if let Some(error) = party.over(state) {
            board.set_waiting(*seat, None);
            return Err(error);
        }
        if stays > most {
            return Err(self.never_fits(stays - most, most));
        }
        let begun = clock::now();
        let why = || match lacks {
            Lacks::Full(full) => self.who_is_waited_for(full),
            Lacks::Recorder => self.what_is_recorded(),
            Lacks::Writers => self.who_has_memory(),
        };
        let slept = match (full, stock.shares()) {
            (stock::Full::User, Some(shares)) => {
                shares.sweep();
                wait_for_others(party, seen, until, || {
                    let own = match lacks {
                        Lacks::Full(_) => format!("; {}", why()),
                        _ => String::new(),
                    };
                    format!(
                        "writer {} of stream '{}' has no room for {} in step {step}: {}{own}",
                        board.rank_of(*seat),
                        party.name,
                        format_size(bytes),
                        shares.who(&party.name, board)
                    )
                })
            }
            _ => party.wait(seen, until, || {
                format!("{}, and {} of memory are taken", why(), format_size(memory))
            }),
        };
        board.set_waiting(*seat, None);
        let cause = match (full, lacks) {
            (stock::Full::User, Lacks::Writers) => Cause::Others,
            (_, Lacks::Full(full)) => cause(full),
            (_, Lacks::Recorder) => Cause::Recorder,
            (_, Lacks::Writers) => Cause::Writers,
        };
        self.puts.waited(cause, begun.elapsed());
        slept
    }

    /// A step has so much more than there will ever be room for.
    fn never_fits(&self, more: u64, most: u64) -> Error {
        let (name, step, keep) = (&self.party.name, self.step, self.party.board.agreed().keep);
        let (whose, hint) = match self.stock.shares().map(Shares::most) {
            Some(budget) if budget == most => (
                "of dataspace 'memory' that the streams of this user may have on this node",
                "raise size, quota or user_quota of [dataspace.memory] in stead.toml, or keep fewer steps",
            ),
            _ => ("of memory that it has", "give the stream more memory, or keep fewer steps"),
        };
        let message = format!(
            "step {step} of stream '{name}' does not fit: {} more than the {} {whose}, of which {keep} kept steps have a part",
            format_size(more),
            format_size(most),
        );
        Error::limit(message).with_hint(hint)
    }

    /// For what memory is waited, under the lock.
    fn what_is_lacking(&self, step: u64) -> Lacks {
        let board = &self.party.board;
        let (needed, steps) = (board.needed_in_memory(), board.steps());
        let oldest = steps.first().copied();
        if let Some(needed) = needed.filter(|n| oldest.is_some_and(|oldest| n.step <= oldest)) {
            return Lacks::Full(Full::Needed(needed));
        }
        let complete = board.complete();
        let kept = complete.saturating_sub(board.agreed().keep);
        let held = |step: &u64| *step < kept && !board.holders(*step).is_empty();
        if let Some(held) = steps.iter().copied().find(held) {
            return Lacks::Full(Full::Held(held));
        }
        let mut others = steps.into_iter().filter(|step| *step < kept);
        if let Some(needed) = others.find_map(|step| board.kept_alike_for(step)) {
            return Lacks::Full(Full::Needed(needed));
        }
        if self.recorder.as_ref().is_some_and(Recorder::is_busy) {
            return Lacks::Recorder;
        }
        if complete < step {
            return Lacks::Full(Full::Behind(complete));
        }
        Lacks::Writers
    }

    /// Writers that have memory which they give back with what they do next.
    fn who_has_memory(&self) -> String {
        let Writer { party, seat, step, .. } = self;
        let board = &party.board;
        let others = (0..board.writers()).filter(|w| w != seat).map(|w| board.writer(w));
        let said: Vec<String> = others
            .filter(|other| other.memory > 0)
            .take(8)
            .map(|other| {
                let (rank, process) = (other.rank, other.who.number);
                format!("writer {rank} (process {process}) has {}", format_size(other.memory))
            })
            .collect();
        let said = if said.is_empty() { "nobody else has any".to_owned() } else { said.join(", ") };
        format!(
            "writer {} of stream '{}' has no room in step {step}: what others have of steps that have gone is given back with what they do next; {said}",
            board.rank_of(*seat),
            party.name
        )
    }
}

/// Waits for what all streams of the user give back, of which others than those of this stream tell nobody here.
fn wait_for_others(
    party: &Party,
    seen: Seen,
    until: Instant,
    why: impl FnOnce() -> String,
) -> Result<()> {
    if clock::now() < until {
        // It sleeps for less, and looks again before it is over.
        return party.wait(seen, clock::after(Duration::from_secs(1)), String::new);
    }
    Err(Error::new(Kind::Timeout, why()).with_hint(budget::HINT))
}
