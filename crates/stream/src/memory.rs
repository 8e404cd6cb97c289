//! Where a board lies: words of `store`, and the processes of this machine.

use crate::words::{Who, Words};
use std::borrow::Borrow;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;
use stead_core::Result;
use stead_store::process;

/// Words that processes share.
#[derive(Debug)]
pub(crate) struct Shared<T = stead_store::Words>(pub(crate) T);

impl<T: Borrow<stead_store::Words> + Sync> Words for Shared<T> {
    fn len(&self) -> usize {
        self.0.borrow().len()
    }

    fn get(&self, i: usize) -> u64 {
        self.0.borrow().get(i).map_or(0, |word| word.load(Ordering::Acquire))
    }

    fn put(&self, i: usize, value: u64) {
        if let Some(word) = self.0.borrow().get(i) {
            word.store(value, Ordering::Release);
        }
    }

    fn swap_if(&self, i: usize, old: u64, new: u64) -> bool {
        self.0.borrow().get(i).is_some_and(|word| {
            word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
        })
    }

    fn sleep(&self, i: usize, seen: u32, time: Duration) {
        self.0.borrow().wait(i, seen, time);
    }

    fn wake(&self, i: usize) {
        self.0.borrow().wake(i, i32::MAX.unsigned_abs());
    }
}

/// This process.
pub(crate) fn me() -> Result<Who> {
    let (number, start) = process::me()?;
    Ok(Who { number, start: start as u32 })
}

/// When this process began, in nanoseconds since 1970, and no later.
pub(crate) fn began() -> Result<u64> {
    let age = u64::try_from(process::age()?.as_nanos()).unwrap_or(u64::MAX);
    Ok(crate::clock::since_1970().saturating_sub(age))
}

/// True of a process that is not known to have ended.
pub(crate) fn is_alive(who: Who) -> bool {
    process::is_alive_low(who.number, who.start)
}

/// Where the numbers of processes are known that this process can ask for.
pub(crate) fn namespace() -> Result<u64> {
    static OWN: OnceLock<u64> = OnceLock::new();
    if let Some(own) = OWN.get() {
        return Ok(*own);
    }
    Ok(*OWN.get_or_init({
        let own = process::namespace()?;
        move || own
    }))
}

pub(crate) use stead_store::process::token;
