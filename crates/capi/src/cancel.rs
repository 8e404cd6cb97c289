//! Stopping a run from a signal handler or another thread.
//!
//! A signal handler may take no lock, so these handles are not in the table: they number slots that are never
//! freed, with the count of their uses, and are looked up with atomic loads alone.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, look};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use stead::{Cancel, Error, Result};

/// A flag that stops the runs whose requests hold it. All its functions may be called from any thread;
/// stead_cancel_request and stead_cancel_is_requested may be called from a signal handler too.
pub struct stead_cancel {
    _opaque: [u8; 0],
}

struct Slot {
    /// Odd while a handle is alive.
    uses: AtomicU32,
    flag: OnceLock<Cancel>,
}

const SLOTS: usize = 1024;
/// The low bits of these handles, which those of the table have not.
const MARK: usize = 0xC;

static TABLE: [Slot; SLOTS] =
    [const { Slot { uses: AtomicU32::new(0), flag: OnceLock::new() } }; SLOTS];
static MAKING: Mutex<()> = Mutex::new(());

fn handle(index: usize, uses: u32) -> *mut stead_cancel {
    std::ptr::without_provenance_mut(((uses as usize) << 20) | (index << 4) | MARK)
}

/// The slot of a handle and its uses, if it is alive. Safe in a signal handler.
fn slot(handle: *const stead_cancel) -> Option<(&'static Slot, u32)> {
    let id = handle.addr();
    let uses = u32::try_from(id >> 20).ok()?;
    let slot = TABLE.get((id >> 4) & 0xFFFF).filter(|_| id & 0xF == MARK)?;
    (uses % 2 == 1 && slot.uses.load(Ordering::Acquire) == uses).then_some((slot, uses))
}

/// The flag of a handle.
pub fn flag(handle: *const stead_cancel) -> Result<&'static Cancel> {
    slot(handle).and_then(|(s, _)| s.flag.get()).ok_or_else(|| {
        let state = if handle.is_null() { "NULL" } else { "no handle, or was freed" };
        Error::usage(format!("the cancel flag is {state}"))
    })
}

/// The same, or one that nobody sets for NULL.
pub fn optional(handle: *const stead_cancel) -> Result<Cancel> {
    match handle.is_null() {
        true => Ok(Cancel::new()),
        false => flag(handle).cloned(),
    }
}

/// Makes a flag that is not set, to be freed with stead_cancel_free. At most 1024 exist at a time.
///
/// Errors: STEAD_LIMIT if there are too many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_cancel_new(
    cancel: *mut *mut stead_cancel,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(cancel, "place for the cancel flag")?;
        let _making = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, slot) in TABLE.iter().enumerate() {
            let uses = slot.uses.load(Ordering::Acquire);
            let flag = slot.flag.get_or_init(Cancel::new);
            // A run may still look at the flag of a freed handle: then the slot waits for it. One is ours, one
            // is the slot's.
            if uses % 2 == 1 || Arc::strong_count(&flag.flag()) > 2 {
                continue;
            }
            flag.flag().store(false, Ordering::Relaxed);
            slot.uses.store(uses.wrapping_add(1), Ordering::Release);
            out.put(handle(i, uses.wrapping_add(1)));
            return Ok(());
        }
        Err(Error::limit(format!("more than {SLOTS} cancel flags"))
            .with_hint("free those not in use"))
    })
}

/// Sets the flag: runs that hold it end soon with STEAD_CANCELLED, and runs that begin with it end at once.
/// What is no handle, or was freed, is left alone. Safe in a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn stead_cancel_request(cancel: *mut stead_cancel) {
    if let Some(flag) = slot(cancel).and_then(|(s, _)| s.flag.get()) {
        flag.cancel();
    }
}

/// True if the flag is set; false for what is no handle. Safe in a signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn stead_cancel_is_requested(cancel: *const stead_cancel) -> bool {
    slot(cancel).and_then(|(s, _)| s.flag.get()).is_some_and(Cancel::is_cancelled)
}

/// Takes the flag back, for the next run. Not while a run holds it: that one may or may not have seen it.
#[unsafe(no_mangle)]
pub extern "C" fn stead_cancel_reset(cancel: *mut stead_cancel) {
    if let Some(flag) = slot(cancel).and_then(|(s, _)| s.flag.get()) {
        flag.flag().store(false, Ordering::Relaxed);
    }
}

/// Frees a flag. Requests and runs that hold it go on, and cannot be stopped by it any more. NULL is nothing to
/// do.
#[unsafe(no_mangle)]
pub extern "C" fn stead_cancel_free(cancel: *mut stead_cancel) {
    look!((), |_c| {
        if cancel.is_null() {
            return Ok(());
        }
        flag(cancel)?;
        if let Some((slot, uses)) = slot(cancel) {
            // Who comes second finds another number.
            let _ = slot.uses.compare_exchange(
                uses,
                uses.wrapping_add(1),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new() -> *mut stead_cancel {
        let mut h = std::ptr::null_mut();
        // SAFETY: `h` can be written to, and the error may be NULL.
        assert_eq!(unsafe { stead_cancel_new(&mut h, std::ptr::null_mut()) }, 0);
        h
    }

    #[test]
    fn a_freed_flag_is_nobodys() {
        let a = new();
        let held = flag(a).expect("alive").clone();
        stead_cancel_request(a);
        assert!(stead_cancel_is_requested(a) && held.is_cancelled());
        stead_cancel_free(a);
        assert!(!stead_cancel_is_requested(a) && flag(a).is_err());
        // What a run still holds is not given to somebody else.
        let b = new();
        assert!(!stead_cancel_is_requested(b) && held.is_cancelled());
        stead_cancel_request(a);
        stead_cancel_free(a);
        assert!(!stead_cancel_is_requested(b));
        stead_cancel_request(b);
        stead_cancel_reset(b);
        assert!(!stead_cancel_is_requested(b));
        stead_cancel_free(b);
        for stray in [0, 1, MARK, usize::MAX] {
            stead_cancel_request(std::ptr::without_provenance_mut(stray));
        }
    }
}
