//! Steps that come to a function by themselves.

use crate::clock;
use crate::reader::Reader;
use crate::step::Step;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use stead_core::{Error, Result};

/// How often it is looked whether it was ended.
const LOOK: Duration = Duration::from_millis(200);

/// Calls a function with each step of a stream, until that has ended, no step comes within the time that the reader waits for one, or this
/// is dropped.
#[derive(Debug)]
pub struct Subscription {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Subscription {
    /// Has a thread of its own call the function with each step that comes, one after the other; at last with `None` if the stream has
    /// ended, or with the error that [`Reader::next_step`] ends with: `Timeout` where no step comes within [`Read::timeout`](crate::Read),
    /// with who is waited for. Steps wait for the function as for any reader.
    ///
    /// # Errors
    /// System errors: no thread can be begun.
    pub fn new(
        reader: Reader,
        mut call: impl FnMut(Result<Option<Step>>) + Send + 'static,
    ) -> Result<Subscription> {
        let is_ended = Arc::new(AtomicBool::new(false));
        let told = is_ended.clone();
        let run = move || {
            let mut until = clock::after(reader.timeout());
            while !told.load(Ordering::Acquire) {
                let left = until.saturating_duration_since(clock::now());
                let next = match left > LOOK {
                    true => reader.next_part(LOOK),
                    false => reader.next_within(left),
                };
                match next {
                    Ok(Some(step)) => {
                        call(Ok(Some(step)));
                        until = clock::after(reader.timeout());
                    }
                    Ok(None) if reader.is_over() => return call(Ok(None)),
                    Ok(None) if left.is_zero() => return call(Err(reader.late())),
                    Ok(None) => {}
                    Err(e) => return call(Err(e)),
                }
            }
        };
        let thread = std::thread::Builder::new().name("stead-steps".to_owned());
        let thread = thread.spawn(run).map_err(|e| Error::io("start a thread for", "steps", e))?;
        Ok(Subscription { is_ended, thread: Some(thread) })
    }

    /// True once the function was called for the last time.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the function was called for the last time: the stream has ended or failed, or no step came in time.
    pub fn join(mut self) {
        self.wait();
    }

    fn wait(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            // What the function panics with has been printed by its thread.
            let _ = thread.join();
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.is_ended.store(true, Ordering::Release);
        self.wait();
    }
}
