//! Other processes of the user that read the same file: blocks in memory, and the budget for them, are theirs too.
//!
//! Who has a file open with others looks for them when somebody comes or goes, and takes no larger part of the memory than
//! there are processes. A thread sleeps until then.

use crate::engine::Shared;
use crate::options::Options;
use crate::process::PerProcess;
use crate::registry;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use stead_core::limits;
use stead_store::{Commons, file::Identity};

/// Files of a process that are shared so at a time. Each takes a thread and two descriptors.
const MOST: usize = 16;

static JOINED: PerProcess<AtomicUsize> = PerProcess::new();

fn one_less() {
    // What a fork inherited was counted in its parent.
    let less = |n: usize| n.checked_sub(1);
    let _ = JOINED.get().fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
}

/// What is shared with other processes.
pub(crate) struct Neighbours(Arc<Commons>);

impl Drop for Neighbours {
    fn drop(&mut self) {
        one_less();
        // The thread that looks for others finds that nobody wants to know any more.
        self.0.tell();
    }
}

impl Neighbours {
    /// Joins those who read a file in blocks of this size, unless there is a reason not to, or says why not.
    pub(crate) fn join(
        file: Result<&Identity, &str>,
        block: u64,
        options: &Options,
    ) -> Result<Self, String> {
        if !options.share || cfg!(feature = "shuttle") {
            return Err("as asked for".to_owned());
        }
        if options.memory <= limits::LEAST_SESSION_MEMORY {
            return Err("so little memory is not shared".to_owned());
        }
        let file = file.map_err(str::to_owned)?;
        let more = |n: usize| (n < MOST).then_some(n + 1);
        if JOINED.get().fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            return Err(format!("{MOST} files are shared already"));
        }
        let joined = Commons::join(file, block, options.memory);
        joined.map(Neighbours).inspect_err(|_| one_less())
    }

    pub(crate) fn commons(&self) -> &Arc<Commons> {
        &self.0
    }

    /// Has a thread look for others from now on.
    pub(crate) fn watch(shared: &Arc<Shared>) {
        let Some(commons) = shared.commons().cloned() else { return };
        let shared = Arc::downgrade(shared);
        let thread = std::thread::Builder::new().name("stead-others".to_owned());
        // Without it only those who begin to read take others into account.
        let _ = thread.spawn(move || look(&commons, &shared));
    }
}

fn look(commons: &Commons, shared: &Weak<Shared>) {
    loop {
        let seen = commons.news();
        if shared.strong_count() == 0 {
            return;
        }
        registry::balance();
        if !commons.wait_for_news(seen) {
            return;
        }
    }
}
