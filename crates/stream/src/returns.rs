//! A thread beside a writer whose stream shares the memory of its user with others: it gives back what has gone, and pages that others want,
//! while the writer computes. Where steps are recorded the thread that does so gives them back, too.

use crate::board::Board;
use crate::memory::Shared;
use crate::stock::{Moment, Stock};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stead_core::{Error, Result};

/// So often it is looked whether others want something, if no step goes.
const LOOK: Duration = Duration::from_secs(1);

/// See the module's documentation. Dropped, it ends as soon as it looks.
#[derive(Debug)]
pub(crate) struct Returns(Arc<AtomicBool>);

impl Returns {
    /// Begins it, with a board of its own.
    ///
    /// # Errors
    /// `Io` where there can be no thread.
    pub(crate) fn begin(board: Board<Shared>, stock: Arc<Stock>) -> Result<Returns> {
        let is_over = Arc::new(AtomicBool::new(false));
        let ends = is_over.clone();
        let run = move || {
            while !ends.load(Ordering::Acquire) {
                let seen = board.seen_by_writers();
                stock.reclaim(&board, Moment::Beside);
                board.sleep_as_writer(seen, LOOK);
            }
        };
        std::thread::Builder::new()
            .name("stead-returns".to_owned())
            .spawn(run)
            .map_err(|e| Error::io("start a thread for", "the memory of a stream", e))?;
        Ok(Returns(is_over))
    }
}

impl Drop for Returns {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
