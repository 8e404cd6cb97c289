//! Runs of which some ranks make the passes, and the others wait for what comes of them.

use super::Engine;
use crate::exchange::Crew;
use crate::news::{ANY, Follow, News};
use crate::pass::Observer;
use crate::report::Metrics;
use crate::sides::{Outcome, Sides};
use std::sync::Arc;
use std::time::Duration;
use stead_core::{Error, Needs, Result, Value};
use stead_fabric::Fabric;

impl<'a> Engine<'a> {
    /// Parts from those that do not compute, if only these ranks do.
    pub(super) fn part(&mut self, computing: Option<Vec<usize>>) -> Result<()> {
        let Some(computing) = computing else { return Ok(()) };
        // Who looks at quotes for those that compute has to know when: before the first pass, or never.
        let chained = |needs: &Needs| self.dataset.is_chained(&self.options(needs));
        let may_be = chained(&Needs { rows: true, ..Needs::default() });
        if self.looks.is_none() || !may_be || chained(&self.first_needs()) {
            self.sides = Sides::new(&self.crew, computing, self.number)?;
        }
        Ok(())
    }

    /// What the first pass looks at.
    fn first_needs(&self) -> Needs {
        let mut needs = Needs::default();
        self.slots.iter().filter_map(|s| s.kernel.as_ref()).for_each(|k| needs.add(&k.needs()));
        needs
    }

    /// The ranks that make passes together, of which this is one.
    pub(super) fn computing(&self) -> &Crew<'a> {
        self.sides.as_ref().and_then(|sides| sides.crew.as_ref()).unwrap_or(&self.crew)
    }

    /// True if this rank waits for others that compute.
    pub(super) fn waits(&self) -> bool {
        self.sides.as_ref().is_some_and(Sides::waits)
    }

    /// The passes, where not all ranks compute: those that do make them, and tell the others what came of it. An error is
    /// one that this rank tells all others when they are together.
    pub(super) fn apart(
        &mut self,
        metrics: &mut Metrics,
        scan_plan: &mut Vec<(String, Value)>,
        observer: Option<&dyn Observer>,
    ) -> Result<()> {
        let mut passed = Ok(());
        if self.looks.is_some() {
            let needs = self.first_needs();
            passed = self.look_before(&needs, Ok(())).flatten();
        }
        if !self.waits() {
            passed = passed.and_then(|()| self.passes(metrics, scan_plan, observer));
            // What one has failed with since the last step it tells the others at the next one, which is that of another
            // pass if they have not failed.
            passed = passed.and_then(|()| {
                let trouble = self.trouble.take();
                self.computing().agree(trouble.map_or(Ok(()), Err))
            });
        }
        let Some(sides) = &self.sides else { return passed };
        if let Some(crew) = sides.waiting_crew() {
            let news = Arc::new(self.news(ANY));
            crew.fabric.tell_by(news.clone());
            if news.is_watched_here() {
                crew.fabric.follow(Follow::new(news));
            }
        }
        let mine = passed.and_then(|()| match sides.tells() {
            true => self.outcome(metrics).encode(self.slots.iter().map(|s| &s.value), scan_plan),
            false => Ok(Vec::new()),
        });
        let told = sides.told(mine)?;
        let mut made = std::mem::take(&mut self.made);
        if !sides.waits() {
            if !made.is_empty() {
                sides.carry(made.into_iter().map(|(_, bytes)| bytes).collect())?;
            }
            return Ok(());
        }
        sides.waiting_crew().into_iter().for_each(|crew| crew.fabric.followed());
        let (outcome, (values, scan)) = Outcome::decode(&told, self.slots.len())?;
        if !outcome.files.is_empty() {
            let files = sides.carry(Vec::new())?;
            // Of the others nobody gets any.
            let numbers = outcome.files.iter().filter_map(|i| usize::try_from(*i).ok());
            made = numbers.zip(files).collect();
        }
        *scan_plan = scan;
        for ((slot, passes), value) in self.slots.iter_mut().zip(&outcome.of_kernels).zip(values) {
            (slot.kernel, slot.passes, slot.value) = (None, *passes, value);
        }
        metrics.passes = outcome.passes;
        (metrics.rows, metrics.rows_kept) = (outcome.rows, outcome.rows_kept);
        metrics.rows_skipped = outcome.rows_skipped;
        metrics.integers_rounded = outcome.integers_rounded;
        self.asked = outcome.asked;
        if self.crew.rank() == 0 && made.len() != outcome.files.len() {
            return Err(Error::format("other files came than were announced"));
        }
        for (i, bytes) in made {
            let path = self.slots.get(i).and_then(|s| s.output.clone());
            let path = path.ok_or_else(|| Error::format("a file came of a kernel without one"))?;
            self.write(path, bytes)?;
        }
        Ok(())
    }

    /// What those that wait are told.
    fn outcome(&self, metrics: &Metrics) -> Outcome {
        Outcome {
            passes: metrics.passes,
            rows: metrics.rows,
            rows_kept: metrics.rows_kept,
            rows_skipped: metrics.rows_skipped,
            integers_rounded: metrics.integers_rounded,
            asked: self.asked,
            of_kernels: self.slots.iter().map(|s| s.passes).collect(),
            files: self.made.iter().map(|(i, _)| *i as u64).collect(),
            ..Outcome::default()
        }
    }

    /// An error if those that wait for this pass have stopped it, or are gone.
    pub(super) fn wanted(&self, news: &News<'_>) -> Result<()> {
        let Some(sides) = &self.sides else { return Ok(()) };
        if news.hear(Duration::ZERO) && news.stopped() == Some((None, None)) {
            return Err(Error::cancelled());
        }
        let mut waiting = sides.waiting.iter().filter(|_| sides.tells());
        waiting.try_for_each(|rank| self.crew.fabric.alive(*rank))
    }
}
