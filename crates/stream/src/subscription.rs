//! Steps that come to a function by themselves.

use crate::reader::Reader;
use crate::step::Step;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use stead_core::{Error, Result};

/// How often it is looked whether it was ended.
const LOOK: Duration = Duration::from_millis(200);

/// Calls a function with each step of a stream, until that has ended or this is dropped.
#[derive(Debug)]
pub struct Subscription {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Subscription {
    /// Has a thread of its own call the function with each step that comes, one after the other; at last with `None` if the stream has
    /// ended, or with the error that ends it. Steps wait for the function as for any reader.
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
            while !told.load(Ordering::Acquire) {
                match reader.next_within(LOOK) {
                    Ok(Some(step)) => call(Ok(Some(step))),
                    Ok(None) if !reader.is_over() => {}
                    over => return call(over),
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

    /// Waits until the stream has ended, and the function was called for the last time.
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
