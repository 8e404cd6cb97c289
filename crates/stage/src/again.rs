//! The same request once more: to go on with what it began, in place of beginning anew.

use crate::clock;
use crate::ends::Base;
use crate::journal::Known;
use crate::manager::{Stager, fixed};
use crate::request::{Action, Request};
use crate::status::State;
use stead_core::{Cancel, Location, Result};

/// A sync, and what patterns stand for, is planned anew.
fn is_planned_anew(request: &Request) -> bool {
    request.action == Action::Sync || request.sources.iter().any(Location::is_pattern)
}

impl Stager {
    /// True if all that it had begun with is still what it was.
    fn is_here(&self, known: &Known) -> bool {
        let means = self.means();
        let open = |base: &Base| base.open(&means.spaces, self.nodes(), &Cancel::new()).is_ok();
        known.ends.as_ref().is_none_or(|ends| ends.sources.iter().chain(&ends.target).all(open))
    }

    /// A transfer that would do the same, has not come to its end, and that nobody does: to go on with it in place of beginning anew.
    /// A sync, and what patterns stand for, is planned anew: one that was interrupted is given up here.
    ///
    /// # Errors
    /// Those of the journal, and of giving one up.
    pub fn same(&self, request: &Request) -> Result<Option<i64>> {
        if request.action == Action::Remove {
            return Ok(None);
        }
        let (fixed, anew) = (fixed(request)?, is_planned_anew(request));
        for id in self.waiting()? {
            let known = self.journal().known(id)?;
            if known.request != fixed || !self.is_here(&known) {
                continue;
            }
            if anew {
                // Somebody may have begun to go on with it.
                self.cancel_idle(id)?;
            } else {
                self.journal().begins_anew(id)?;
                return Ok(Some(id));
            }
        }
        Ok(None)
    }

    /// Takes note of the end of one that says that it is under way, is in no queue, and that nobody does: its process has ended without
    /// a word.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn note_end(&self, id: i64) -> Result<()> {
        let journal = self.journal();
        if journal.status(id)?.state != State::Running || journal.is_queued(id)? {
            return Ok(());
        }
        let Some(_turn) = self.try_turn(id)? else { return Ok(()) };
        match journal.known(id)?.state {
            State::Running => journal.set_state(id, State::Interrupted, None, clock::unix()),
            _ => Ok(()),
        }
    }

    /// As [`Stager::same`], for the queue of this journal: one that was interrupted is in the queue again, behind these. What is planned
    /// anew keeps its number, and with it those that wait for it.
    ///
    /// # Errors
    /// Those of the journal, and of removing what there is of files that are not whole.
    pub(crate) fn requeue_same(
        &self,
        request: &Request,
        after: &[i64],
        job: Option<&str>,
    ) -> Result<Option<i64>> {
        if request.action == Action::Remove {
            return Ok(None);
        }
        let (fixed, journal) = (fixed(request)?, self.journal());
        for id in journal.stopped(&fixed)? {
            // Somebody may have it, or have ended it meanwhile.
            let Some(_turn) = self.try_turn(id)? else { continue };
            let known = journal.known(id)?;
            let stopped = matches!(known.state, State::Running | State::Interrupted);
            let same = known.request == fixed && journal.job(id)?.as_deref() == job;
            if !stopped || !same || !self.is_here(&known) {
                continue;
            }
            if is_planned_anew(&fixed) && known.ends.is_some() {
                self.sweep(id, &known)?;
                journal.plan_begin(id)?;
            }
            if known.state == State::Running {
                journal.set_state(id, State::Interrupted, None, clock::unix())?;
            }
            journal.begins_anew(id)?;
            if journal.go_on(id, after)? {
                return Ok(Some(id));
            }
        }
        Ok(None)
    }
}
