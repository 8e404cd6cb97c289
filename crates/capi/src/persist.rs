//! What stays on the node, and who else may read it.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call};
use crate::text;
use std::ffi::c_char;
use stead::Result;
use stead::daemon::{PersistAsk, persist};
use stead::stage::{Location, location};

fn named(c: &Caller, at: *const c_char) -> Result<Location> {
    location(c.text(at, "location")?)
}

/// Keeps a file or a folder of this node with all that lies in it, for `seconds` from now on or, if that is negative, for ever: neither
/// the end of a job nor that of its time removes it. `location` is a path, or a name in a dataspace. This and its kin are done by the
/// daemon of the node, or by this process if there is none.
///
/// Errors: STEAD_NOT_FOUND; STEAD_USAGE for what lies in a bucket; STEAD_LIMIT if too much is kept; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_persist_store(
    location: *const c_char,
    seconds: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let (location, seconds) = (named(c, location)?, u64::try_from(seconds).ok());
        persist(PersistAsk::Store { location, seconds }).map(|_| ())
    })
}

/// Keeps something no longer: it stays until its time or that of its job is over.
///
/// Errors: STEAD_USAGE if it is not kept; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_persist_delete(
    location: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let location = named(c, location)?;
        persist(PersistAsk::Delete { location }).map(|_| ())
    })
}

/// Lets another user, by name or number, read something with all that lies in it and will, by access lists of the file system.
///
/// Errors: STEAD_NOT_FOUND; STEAD_PERMISSION if it is another user's; STEAD_USAGE for users that there are not and file systems without
/// access lists; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_persist_share(
    location: *const c_char,
    user: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let (location, user) = (named(c, location)?, c.text(user, "user")?.to_owned());
        persist(PersistAsk::Share { location, user }).map(|_| ())
    })
}

/// Lets that user read it no longer.
///
/// Errors: STEAD_USAGE if it is not shared with that user; otherwise as stead_persist_share.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_persist_unshare(
    location: *const c_char,
    user: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let (location, user) = (named(c, location)?, c.text(user, "user")?.to_owned());
        persist(PersistAsk::Unshare { location, user }).map(|_| ())
    })
}

/// What is kept and shared, as a JSON list: `location`, `path`, `kept`, `until` (seconds since 1970, or null), `left` (seconds, or null), `shared` (numbers of users). The text
/// is the caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_persist_list(
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        text::give(out, &text::json(&persist(PersistAsk::List {})?)?);
        Ok(())
    })
}
