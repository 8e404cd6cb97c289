//! How a target differs from a source: what a sync that compares files by their bytes would do, of which nothing is done.

use crate::changes::{Changes, Does};
use crate::job::Item;
use crate::manager::{How, Stager};
use crate::plan::Planned;
use crate::remote;
use crate::request::{Action, Options, Request};
use crate::status::Watcher;
use serde::{Deserialize, Serialize};
use stead_core::{Cancel, Error, Result};

/// How a name of the target differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Is {
    /// Both sides have it, with other bytes, or a link with another text.
    Differ,
    /// The target has it not.
    Missing,
    /// Only the target has it.
    Only,
}

/// One name that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// How.
    pub is: Is,
    /// The name, on the target.
    pub path: String,
}

/// How a target differs from a source.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    /// Files and links that are the same on both sides.
    pub same: u64,
    /// Names that both sides have and that lead to something else.
    pub differ: u64,
    /// Names that the target has not.
    pub missing: u64,
    /// Names that only the target has.
    pub only: u64,
    /// The first ones of those that differ in any way: up to 500 of a kind, as files or folders that are missing.
    pub names: Vec<Difference>,
}

impl Checked {
    /// True if nothing differs.
    pub fn is_same(&self) -> bool {
        self.differ == 0 && self.missing == 0 && self.only == 0
    }

    fn of(changes: Changes, planned: &Planned) -> Checked {
        // What a folder or a file has besides its names and bytes is no difference here.
        let is = |does: Does| match does {
            Does::Replace => Some(Is::Differ),
            Does::Copy | Does::Link | Does::Folder => Some(Is::Missing),
            Does::Remove => Some(Is::Only),
            // Who compares looks at all of it.
            Does::Attributes | Does::Rename | Does::Unread => None,
        };
        let all = [Does::Replace, Does::Copy, Does::Link, Does::Folder, Does::Remove];
        let count = |wanted: Is| -> u64 {
            let those = all.into_iter().filter(|does| is(*does) == Some(wanted));
            those.map(|does| changes.count(does)).sum()
        };
        let (differ, missing, only) = (count(Is::Differ), count(Is::Missing), count(Is::Only));
        let told = changes.told(planned).into_iter();
        let names = told.filter_map(|c| Some(Difference { is: is(c.does)?, path: c.path }));
        Checked { same: planned.sums.same, differ, missing, only, names: names.collect() }
    }
}

impl Stager {
    /// How the target of a sync differs from what it would be made equal to. Files of the same size are compared by their bytes, whatever the
    /// request says of that; the target is looked through as a whole, but where names are listed. Nothing is changed.
    ///
    /// # Errors
    /// `Usage` for anything but a sync; those that a sync would fail with before it starts, but for room; `Permission` and `Io` for files that
    /// cannot be read.
    pub fn check(
        &self,
        request: &Request,
        cancel: &Cancel,
        watcher: Option<&dyn Watcher>,
    ) -> Result<Checked> {
        self.check_of(request, None, cancel, watcher)
    }

    /// As [`Stager::check`], for a process of a job.
    ///
    /// # Errors
    /// As there.
    pub fn check_of(
        &self,
        request: &Request,
        job: Option<&str>,
        cancel: &Cancel,
        watcher: Option<&dyn Watcher>,
    ) -> Result<Checked> {
        if request.action != Action::Sync {
            return Err(Error::usage("what is checked is a sync, which makes a target equal"));
        }
        request.check()?;
        remote::check(request, self.nodes().is_some())?;
        let options = Options {
            checksum: true,
            delete: request.options.files.is_empty(),
            max_delete: None,
            ..request.options.clone()
        };
        let sync = Request { options, ..request.clone() };
        let mut changes = Changes::default();
        let mut note = |item: Item| {
            changes.note(&item);
            Ok(())
        };
        let how = How { strict: true, ..How::looks(job, cancel) };
        let planned = self.plan(&sync, &how, watcher, &mut note)?;
        Ok(Checked::of(changes, &planned))
    }
}
