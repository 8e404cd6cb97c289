//! The daemon of the node, which does transfers for programs that need not wait for them.

use crate::cancel::{self, stead_cancel};
use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, look};
use crate::pending::time;
use crate::stage::{progress_of, stead_stage_progress, whole};
use crate::stage_request::{self, stead_stage_request};
use crate::table::{self, Object};
use crate::text;
use std::ffi::c_char;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stead::daemon::{Client, Clients, nobody, user_number};
use stead::{Error, Kind, Result};

/// Connections to the daemon of the node. Made by stead_daemon_connect, freed with stead_daemon_free. Several threads may ask; one
/// that waits keeps nobody waiting. A process that was forked connects anew.
pub struct stead_daemon {
    _opaque: [u8; 0],
}

/// What the table has of a daemon.
struct DaemonFace(Arc<Clients>);

impl Object for DaemonFace {
    type Handle = stead_daemon;
    const NAME: &'static str = "daemon";
}

/// Transfers of a list.
const MOST_LISTED: usize = 10_000;

/// The connections themselves, for who waits by them.
pub(crate) fn clients(daemon: *const stead_daemon) -> Result<Arc<Clients>> {
    Ok(table::get::<DaemonFace>(daemon)?.0.clone())
}

pub(crate) fn ask<T>(
    daemon: *const stead_daemon,
    question: impl FnOnce(&mut Client) -> Result<T>,
) -> Result<T> {
    table::get::<DaemonFace>(daemon)?.0.ask(question)
}

/// The daemon as one of its administrators has it for the transfers of a user, by name or number.
pub(crate) fn manage(daemon: *const stead_daemon, user: &str) -> Result<*mut stead_daemon> {
    let face = table::get::<DaemonFace>(daemon)?;
    Ok(table::insert(DaemonFace(Arc::new(face.0.manage(user_number(user)?)?))))
}

/// Writes what is asked of a daemon as JSON.
pub(crate) fn tell<T: serde::Serialize>(
    c: &Caller,
    json: *mut *mut c_char,
    daemon: *const stead_daemon,
    question: impl FnOnce(&mut Client) -> Result<T>,
) -> Result<()> {
    let out = c.out_handle(json, "place for the text")?;
    text::give(out, &text::json(&ask(daemon, question)?)?);
    Ok(())
}

/// The same of what may take long to look through: a flag that is set ends it.
fn looked<T: serde::Serialize>(
    c: &Caller,
    json: *mut *mut c_char,
    daemon: *const stead_daemon,
    cancel: *mut stead_cancel,
    question: impl FnOnce(&mut Client) -> Result<T>,
) -> Result<()> {
    let cancel = cancel::optional(cancel)?;
    cancel.check()?;
    tell(c, json, daemon, |d| d.until(cancel.into(), question))
}

/// Connects to the daemon that listens on the socket `path`; NULL is the user's own one (`$STEAD_SOCKET`, or
/// `$XDG_RUNTIME_DIR/stead/steadd.sock`), or that of the system.
///
/// Errors: STEAD_NOT_FOUND if there is none; STEAD_PERMISSION if another user listens there; STEAD_FORMAT if it is of another version;
/// STEAD_TIMEOUT if it does not answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_connect(
    path: *const c_char,
    daemon: *mut *mut stead_daemon,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(daemon, "place for the daemon")?;
        let path = c.optional_text(path, "socket")?.map(Path::new);
        out.put(table::insert(open(path, None)?));
        Ok(())
    })
}

/// Connects to the daemon of another node of the pool, by way of the one of this node that listens on the socket `path`, or that
/// stead_daemon_connect finds if that is NULL. A transfer is asked of the node where its target is; names without a node are those
/// of this one.
///
/// Errors: as stead_daemon_connect; STEAD_NOT_FOUND if the pool has no such node; STEAD_USAGE if the daemon here is in no pool;
/// STEAD_PEER if the one there is gone; STEAD_PERMISSION if it does not serve this user.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_connect_on(
    path: *const c_char,
    node: *const c_char,
    daemon: *mut *mut stead_daemon,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(daemon, "place for the daemon")?;
        let path = c.optional_text(path, "socket")?.map(Path::new);
        let node = c.text(node, "node")?;
        out.put(table::insert(open(path, Some(node))?));
        Ok(())
    })
}

fn open(path: Option<&Path>, node: Option<&str>) -> Result<DaemonFace> {
    let clients = Clients::open_on(path, node)?.ok_or_else(|| {
        match path {
            Some(path) => Error::new(Kind::NotFound, "no daemon runs on this node").at_path(path),
            None => nobody(),
        }
        .with_hint("start one: stead daemon")
    })?;
    Ok(DaemonFace(Arc::new(clients)))
}

/// Ends the connections. What the daemon was given goes on. NULL is nothing to do; a handle that is no daemon any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_free(daemon: *mut stead_daemon) {
    look!((), |_c| table::remove::<DaemonFace>(daemon))
}

/// Gives the daemon a transfer, to be done once the `after_count` transfers of `after` are finished; if one of them is not, it is
/// cancelled. It is in the journal of the daemon when this returns, and is done whether or not the program waits. `id` is its number.
/// Paths are those of this process; dataspaces are those that the daemon finds configured for this user.
///
/// Errors: STEAD_USAGE for a request that makes no sense, and if one of `after` is not there or will never be finished; STEAD_LIMIT
/// if too many wait already; STEAD_PEER if the daemon has ended, which may have taken it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_submit(
    daemon: *mut stead_daemon,
    request: *const stead_stage_request,
    after: *const i64,
    after_count: usize,
    id: *mut i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(id, "place for the number")?;
        let after = c.slice(after, after_count, "transfers before it")?;
        let request = stage_request::of(request)?;
        request.check()?;
        out.put(ask(daemon, |d| d.submit(&request, after))?);
        Ok(())
    })
}

/// Waits until a transfer has ended, for `timeout_ms` milliseconds: not at all if that is 0, without an end if it is negative; also
/// over the end of a daemon that is started again within 20 seconds. STEAD_OK if all of it was done. Every call says the same once it
/// has ended.
///
/// Errors: STEAD_TIMEOUT if it has not ended by then: it goes on; or if the daemon does not answer. STEAD_CANCELLED if it was given up, or
/// one before it was not finished; what it has failed with, which is never STEAD_TIMEOUT; STEAD_IO if it was interrupted, if some names
/// could not be done, which stead_daemon_status tells, or if a store has not answered; STEAD_USAGE if there is none of this number;
/// STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_wait(
    daemon: *const stead_daemon,
    id: i64,
    timeout_ms: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let face = table::get::<DaemonFace>(daemon)?;
        let status = face.0.wait(id, time(timeout_ms), &mut |_| Ok(()))?.status;
        match status.state.rests() {
            true => whole(&status, "stead_daemon_status"),
            false => {
                let message = format!("transfer {id} has not ended within {timeout_ms} ms");
                Err(Error::new(Kind::Timeout, message).with_hint("it goes on; wait again"))
            }
        }
    })
}

/// Copies how far a transfer is to `progress`, which has `size` bytes, as stead_stage_eta does. Of one that waits for its turn, what
/// is left counts those before it.
///
/// Errors: STEAD_USAGE if there is none of this number, and for a size that no version has; STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_eta(
    daemon: *const stead_daemon,
    id: i64,
    progress: *mut stead_stage_progress,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(progress, size, "place for the progress")?;
        let (standing, left) = ask(daemon, |d| Ok((d.wait(id, Duration::ZERO)?, d.eta(id)?)))?;
        let status = &standing.status;
        let over = status.state.rests().then_some(status);
        let mut to = progress_of(standing.progress, over);
        if standing.progress.is_none() && over.is_none() {
            to.take_left(&left);
        }
        out.put(to);
        Ok(())
    })
}

/// Stops a transfer and gives it up, and what waits for it: what is whole stays, everything else of it is removed.
///
/// Errors: STEAD_USAGE if there is none of this number, or it is over; STEAD_TIMEOUT if it does not stop within a minute, as its
/// device hangs; STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_cancel(
    daemon: *mut stead_daemon,
    id: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| ask(daemon, |d| d.cancel(id)).map(|_| ()))
}

/// Has a transfer done again that was interrupted or has failed.
///
/// Errors: STEAD_USAGE if there is none of this number, or it is finished or cancelled; STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_resume(
    daemon: *mut stead_daemon,
    id: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| ask(daemon, |d| d.resume(Some(id))).map(|_| ()))
}

/// What the daemon knows of a transfer, as JSON: "status" is the document of stead_stage_status, "progress" how far it is while it
/// is under way, or null. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_USAGE if there is none of this number; STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_status(
    daemon: *const stead_daemon,
    id: i64,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, daemon, |d| d.wait(id, Duration::ZERO)))
}

/// The transfers of this user, the latest first, as a JSON list of what stead_daemon_status says, with the first sources of each:
/// those that are over only if `all`; 10000 at most. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_PEER if the daemon has ended; those of its journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_list(
    daemon: *const stead_daemon,
    all: bool,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, daemon, |d| d.list(all, MOST_LISTED)))
}

/// What a request would do and how long it would take, as stead_stage_preview says it. `cancel` may be NULL; else it stops that, in the
/// daemon, too. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: those with which the request would fail before it starts; STEAD_TIMEOUT for what takes long to look through; STEAD_PEER
/// if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_preview(
    daemon: *const stead_daemon,
    request: *const stead_stage_request,
    cancel: *mut stead_cancel,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let request = stage_request::of(request)?;
        looked(c, json, daemon, cancel, |d| d.preview(&request))
    })
}

/// How the target of a request "sync" differs from its source, as stead_stage_check says it. `cancel` may be NULL; else it stops that, in the
/// daemon, too. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: as stead_stage_check; STEAD_TIMEOUT for what takes longer than a day to read; STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_check(
    daemon: *const stead_daemon,
    request: *const stead_stage_request,
    cancel: *mut stead_cancel,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let request = stage_request::of(request)?;
        looked(c, json, daemon, cancel, |d| d.check(&request))
    })
}

/// The dataspaces of the daemon, as stead_df says them. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_PEER if the daemon has ended; those of its journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_spaces(
    daemon: *const stead_daemon,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, daemon, Client::spaces))
}

/// The names of the nodes of the pool that the daemon belongs to, as a JSON list; of its own one if there is no pool. The text is the
/// caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_nodes(
    daemon: *const stead_daemon,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, daemon, Client::nodes))
}

/// Numbers about this user's transfers in the text form of Prometheus. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_PEER if the daemon has ended; those of its journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_metrics(
    daemon: *const stead_daemon,
    text: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(text, "place for the text")?;
        text::give(out, &ask(daemon, Client::metrics)?);
        Ok(())
    })
}
