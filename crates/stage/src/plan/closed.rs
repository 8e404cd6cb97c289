//! Folders of the source that may not be looked into: the rest is brought, and of each of them it is told that it was not.

use super::Planner;
use super::walk::Step;
use crate::job::{Item, Task};
use crate::place::is_too_long;
use std::path::Path;
use stead_core::{Error, Kind, Result};
use stead_store::FileTime;

impl Planner<'_> {
    /// Notes a folder that may not be looked into, by its way from the root of its tree. Nothing is removed from its target, as nobody knows what
    /// it has.
    ///
    /// # Errors
    /// The one that is given: of the root, of a folder in which names are listed and that is not there, for whom names are compared and nothing is
    /// done, and those that may pass or are of more than this folder.
    pub(super) fn closed(&mut self, e: Error, from: i64, step: &Step, way: &Path) -> Result<()> {
        if way.as_os_str().is_empty() {
            return Err(e);
        }
        match e.kind() {
            // Gone meanwhile, as names go; if it is to be made, its item tells that.
            Kind::NotFound if self.state.filter.listed_in(way).is_none() => Ok(()),
            Kind::Permission if self.strict => Err(left_out(e, way)),
            Kind::Permission => self.unread(from, &step.source, &step.target),
            // Nobody gets there by a path.
            _ if !self.strict && is_too_long(&e) => self.unread(from, &step.source, &step.target),
            _ => Err(e),
        }
    }

    /// Notes a name that may not be looked at.
    pub(super) fn unread(&mut self, from: i64, source: &Path, target: &Path) -> Result<()> {
        self.put(Item {
            n: 0,
            task: Task::Unread,
            from,
            source: source.to_owned(),
            target: target.to_owned(),
            size: 0,
            mtime: FileTime::default(),
            first: -1,
            replace: false,
        })
    }
}

/// With the pattern that leaves it out.
fn left_out(e: Error, way: &Path) -> Error {
    if e.hint().is_some() {
        return e;
    }
    let pattern = glob::Pattern::escape(&way.to_string_lossy());
    e.with_hint(format!("have it made readable, or leave it out: --exclude '/{pattern}'"))
}
