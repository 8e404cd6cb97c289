//! Staging: transfers that threads of the program do, and what the journal knows of all.

use crate::cancel::{self, stead_cancel};
use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, look};
use crate::pending::time;
use crate::stage_request::{self, stead_stage_request};
use crate::table::{self, Object};
use crate::text;
use crate::versions::grows;
use std::ffi::c_char;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use stead::daemon::learn;
use stead::stage::{
    Means, Moving, Progress, Remaining, Stager, Status, dataspaces, ended_with, state_folder, usage,
};
use stead::{Cancel, Error, Kind, Result};

/// A journal of transfers, and what they are done with. Made by stead_stager_open, ended with stead_stager_close. Several threads
/// may use it.
pub struct stead_stager {
    _opaque: [u8; 0],
}

/// A transfer that was begun: somebody may wait for its end, ask how far it is, stop it. Made by stead_stage_submit and
/// stead_stage_resume, freed with stead_stage_free. Several threads may use it.
pub struct stead_transfer {
    _opaque: [u8; 0],
}

/// How far a transfer is. Members may be added at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_stage_progress {
    /// Bytes of files that are moved. While a sync with the option "checksum" is being planned: bytes that were compared, and so are
    /// the three numbers that follow.
    pub bytes_done: u64,
    /// Of so many; 0 before it is planned.
    pub bytes: u64,
    /// Files, links and folders that are done.
    pub files_done: u64,
    /// Of so many; 0 before it is planned.
    pub files: u64,
    /// Seconds since it began, or went on.
    pub seconds: f64,
    /// Seconds that it still needs, most likely: never NaN or infinite, 0 before it is planned and once all is done.
    pub left: f64,
    /// It takes hardly less.
    pub left_low: f64,
    /// It takes hardly more.
    pub left_high: f64,
    /// False while it waits or is being planned, when the numbers above say little.
    pub planned: bool,
    /// True once it has ended, in whatever way.
    pub ended: bool,
}

grows!(stead_stage_progress, ended: bool);

/// Transfers that a stager does at the same time. Each has threads of its own.
const MOST_AT_ONCE: usize = 64;
/// Transfers of a list.
const MOST_LISTED: usize = 10_000;
/// How long a transfer may take to stop: one whose device hangs may never.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the table has of a stager.
struct StagerFace {
    stager: Arc<Stager>,
    /// Transfers that were begun. `None` once it was closed.
    begun: Mutex<Option<Vec<Weak<Moving>>>>,
}

impl Object for StagerFace {
    type Handle = stead_stager;
    const NAME: &'static str = "stager";
}

/// What the table has of a transfer.
struct TransferFace(Arc<Moving>);

impl Object for TransferFace {
    type Handle = stead_transfer;
    const NAME: &'static str = "transfer";
}

impl StagerFace {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<Weak<Moving>>>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins what `take` takes of the journal, if it is not under way here. It is told which are.
    fn begin(&self, take: impl FnOnce(&[i64]) -> Result<i64>) -> Result<Arc<Moving>> {
        // Held meanwhile, so that nobody begins the same one.
        let mut begun = self.lock();
        let begun = begun.as_mut().ok_or_else(closed)?;
        begun.retain(|moving| moving.upgrade().is_some_and(|m| !m.has_ended()));
        if begun.len() >= MOST_AT_ONCE {
            return Err(Error::limit(format!(
                "{MOST_AT_ONCE} transfers of a stager are under way"
            ))
            .with_hint("wait for one of them, or name several sources in one request"));
        }
        let ids: Vec<i64> = begun.iter().filter_map(|m| Some(m.upgrade()?.id())).collect();
        let moving = Arc::new(Moving::begin(&self.stager, take(&ids)?)?);
        begun.push(Arc::downgrade(&moving));
        Ok(moving)
    }

    /// Stops all that is under way, and waits for that.
    fn end(&self) -> Result<()> {
        let all: Vec<Arc<Moving>> =
            self.lock().take().iter().flatten().filter_map(Weak::upgrade).collect();
        all.iter().for_each(|moving| moving.stop());
        let (mut patience, mut late) = (PATIENCE, Ok(()));
        for moving in all {
            if !moving.stopped_in(patience) {
                late = Err(hangs(moving.id()));
                // Nobody waits for its thread, which may never end.
                std::mem::forget(moving);
                patience = Duration::ZERO;
            }
        }
        late
    }
}

/// What is asked of a transfer that was told to stop.
trait Stopping {
    /// True if it has ended by then.
    fn stopped_in(&self, patience: Duration) -> bool;
}

impl Stopping for Moving {
    fn stopped_in(&self, patience: Duration) -> bool {
        // How it ended is for others to ask.
        !matches!(self.wait(Some(patience)), Ok(None))
    }
}

/// The stager of a handle.
pub(crate) fn of(stager: *const stead_stager) -> Result<Arc<Stager>> {
    Ok(table::get::<StagerFace>(stager)?.stager.clone())
}

fn closed() -> Error {
    Error::usage("the stager was closed")
}

fn hangs(id: i64) -> Error {
    let seconds = PATIENCE.as_secs();
    let message = format!("transfer {id} has not stopped within {seconds} s of being told to");
    Error::new(Kind::Timeout, message)
        .with_hint("its device may hang; it stops as soon as that answers")
}

fn free_of(here: &[i64], id: i64) -> Result<()> {
    if !here.contains(&id) {
        return Ok(());
    }
    Err(Error::usage(format!("transfer {id} is under way in this process"))
        .with_hint("stop it with stead_stage_cancel, and wait for its end"))
}

/// What came of a transfer that has ended. `tells` names the function that says which names failed.
pub(crate) fn whole(status: &Status, tells: &str) -> Result<()> {
    let hint = || format!("{tells} tells which; mend what is wrong, and resume it");
    let told =
        status.outcome().map_err(|e| if status.failed > 0 { e.with_hint(hint()) } else { e });
    // STEAD_TIMEOUT says that it goes on.
    told.map_err(ended_with)
}

/// A number of seconds for C.
fn finite(seconds: f64) -> f64 {
    if seconds.is_finite() { seconds.max(0.0) } else { 0.0 }
}

/// How far a transfer is, by what it says of itself, and by what is known of it once it has ended.
pub(crate) fn progress_of(now: Option<Progress>, ended: Option<&Status>) -> stead_stage_progress {
    let mut to = stead_stage_progress {
        bytes_done: now.map_or(0, |p| p.bytes_done),
        bytes: now.map_or(0, |p| p.bytes),
        files_done: now.map_or(0, |p| p.files_done),
        files: now.map_or(0, |p| p.files),
        seconds: now.map_or(0.0, |p| finite(p.seconds)),
        left: 0.0,
        left_low: 0.0,
        left_high: 0.0,
        planned: now.is_some_and(|p| p.planned),
        ended: ended.is_some(),
    };
    if let Some(now) = now {
        to.take_left(&now.left);
    }
    if let Some(status) = ended {
        (to.bytes_done, to.bytes) = (status.bytes_done, status.bytes);
        (to.files_done, to.files) = (status.files_done, status.files);
        to.take_left(&Remaining::default());
        to.planned = true;
    }
    to
}

impl stead_stage_progress {
    /// With these seconds left.
    pub(crate) fn take_left(&mut self, left: &Remaining) {
        self.left = finite(left.seconds);
        self.left_low = finite(left.low);
        self.left_high = finite(left.high);
    }
}

fn progress(moving: &Moving) -> stead_stage_progress {
    let ended = moving.has_ended();
    let status = if ended { moving.wait(Some(Duration::ZERO)).ok().flatten() } else { None };
    stead_stage_progress { ended, ..progress_of(moving.progress(), status.as_ref()) }
}

fn give(moving: Arc<Moving>) -> *mut stead_transfer {
    table::insert(TransferFace(moving))
}

fn transfer(handle: *const stead_transfer) -> Result<Arc<Moving>> {
    Ok(table::get::<TransferFace>(handle)?.0.clone())
}

/// Writes what is asked of a stager as JSON.
fn tell<T: serde::Serialize>(
    c: &Caller,
    json: *mut *mut c_char,
    stager: *const stead_stager,
    ask: impl FnOnce(&StagerFace) -> Result<T>,
) -> Result<()> {
    let out = c.out_handle(json, "place for the text")?;
    let answer = ask(&*table::get::<StagerFace>(stager)?)?;
    text::give(out, &text::json(&answer)?);
    Ok(())
}

/// Opens the journal of transfers in the folder `state`, which is made if it is not there; NULL is that of this user on this host,
/// which `stead stage` has, too. `dataspaces` are folders such as "nvme0=/mnt/nvme/me", or buckets such as "old=s3://bucket", before those that are configured; each
/// transfer copies with so many threads, 0 being as many as devices and processors here are likely to want. Names of dataspaces that none of these
/// has are asked of the daemon of the node when they are needed, if one runs: administrators may have set them.
///
/// Errors: STEAD_USAGE for dataspaces that are none; STEAD_FORMAT for a file that is no journal; STEAD_PERMISSION, STEAD_IO.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stager_open(
    state: *const c_char,
    dataspaces: *const *const c_char,
    dataspaces_count: usize,
    threads: usize,
    stager: *mut *mut stead_stager,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(stager, "place for the stager")?;
        let mut spaces = self::dataspaces()?;
        for one in c.texts(dataspaces, dataspaces_count, "dataspaces")? {
            spaces.give(&one, &|name| std::env::var(name).ok())?;
        }
        let state = match c.optional_text(state, "state folder")? {
            Some("") => return Err(Error::usage("'' names no folder for the state")),
            Some(state) => PathBuf::from(state),
            None => state_folder()?,
        };
        let opened = Stager::open(&state, Means { spaces, threads, ..Means::default() })?;
        let begun = Mutex::new(Some(Vec::new()));
        out.put(table::insert(StagerFace { stager: Arc::new(opened), begun }));
        Ok(())
    })
}

/// Ends a stager. Its transfers that are under way are stopped, such that they can be resumed, and have ended when this returns;
/// their handles are still to be freed. NULL is nothing to do.
///
/// Errors: STEAD_USAGE for a handle that is no stager; STEAD_TIMEOUT if a transfer does not stop within a minute, as its device
/// hangs: the stager is closed then, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stager_close(
    stager: *mut stead_stager,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        if stager.is_null() {
            return Ok(());
        }
        let face = table::get::<StagerFace>(stager)?;
        table::remove::<StagerFace>(stager)?;
        face.end()
    })
}

/// Takes a request into the journal and has threads of this process begin it; or go on with a transfer of the journal that would
/// do the same, has not come to its end, and that nobody does. The transfer is a new handle, to be freed with stead_stage_free.
///
/// Errors: STEAD_USAGE for a request that makes no sense; STEAD_LIMIT if 64 transfers of the stager are under way; those of the
/// journal. What is wrong with the files comes with the end: see stead_stage_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_submit(
    stager: *mut stead_stager,
    request: *const stead_stage_request,
    transfer: *mut *mut stead_transfer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(transfer, "place for the transfer")?;
        let (face, request) = (table::get::<StagerFace>(stager)?, stage_request::of(request)?);
        request.check()?;
        learn(&face.stager, &request)?;
        out.put(give(face.begin(|here| match face.stager.same(&request)? {
            Some(id) if !here.contains(&id) => Ok(id),
            _ => face.stager.submit(&request),
        })?));
        Ok(())
    })
}

/// Goes on with a transfer of the journal that was stopped or interrupted, or of which something failed.
///
/// Errors: STEAD_USAGE if there is none of this number, it is finished or cancelled, or under way in this process; STEAD_LIMIT as
/// stead_stage_submit. That it is under way in another process comes with the end, as STEAD_USAGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_resume(
    stager: *mut stead_stager,
    id: i64,
    transfer: *mut *mut stead_transfer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(transfer, "place for the transfer")?;
        let face = table::get::<StagerFace>(stager)?;
        learn(&face.stager, &face.stager.status(id)?.request)?;
        out.put(give(face.begin(|here| {
            free_of(here, id)?;
            Ok(face.stager.resumable(id)?.id)
        })?));
        Ok(())
    })
}

/// The number of a transfer in the journal; 0 if the handle is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_id(transfer: *const stead_transfer) -> i64 {
    look!(0, |_c| Ok(self::transfer(transfer)?.id()))
}

/// True once a transfer has ended, in whatever way: stead_stage_wait says at once in which. False for what is no transfer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_test(transfer: *const stead_transfer) -> bool {
    look!(false, |_c| Ok(self::transfer(transfer)?.has_ended()))
}

/// Waits until a transfer has ended, for `timeout_ms` milliseconds: not at all if that is 0, without an end if it is negative.
/// STEAD_OK if all of it was done. Every call says the same once it has ended.
///
/// Errors: STEAD_TIMEOUT if it has not ended by then: it goes on. Otherwise what it ended with, which is never STEAD_TIMEOUT: STEAD_USAGE
/// for what the target has already, STEAD_NOT_FOUND for sources that are not there; STEAD_NO_SPACE; STEAD_CANCELLED if it was stopped, or
/// given up by somebody; STEAD_IO if some names could not be done, which stead_stage_status tells, and all others were, and if a store has
/// not answered; STEAD_PERMISSION and its like.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_wait(
    transfer: *const stead_transfer,
    timeout_ms: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let moving = self::transfer(transfer)?;
        match moving.wait(time(timeout_ms)).map_err(ended_with)? {
            Some(status) => whole(&status, "stead_stage_status"),
            None => {
                let message =
                    format!("transfer {} has not ended within {timeout_ms} ms", moving.id());
                Err(Error::new(Kind::Timeout, message).with_hint("it goes on; wait again"))
            }
        }
    })
}

/// Copies how far a transfer is to `progress`, which has `size` bytes: sizeof(stead_stage_progress) of the header that the caller
/// was compiled with. What only a later one has is 0. It changes about ten times a second.
///
/// Errors: STEAD_USAGE for what is no transfer, and for a size that no version has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_eta(
    transfer: *const stead_transfer,
    progress: *mut stead_stage_progress,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(progress, size, "place for the progress")?;
        out.put(self::progress(&*self::transfer(transfer)?));
        Ok(())
    })
}

/// Asks a transfer to stop, such that it can be resumed (stead_stage_resume, `stead stage --resume`). It has stopped when it has
/// ended. One that has ended is left as it is.
///
/// Errors: STEAD_USAGE for what is no transfer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_cancel(
    transfer: *mut stead_transfer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        self::transfer(transfer)?.stop();
        Ok(())
    })
}

/// Frees a transfer. One that is under way is stopped, such that it can be resumed, and has ended when this returns, unless its
/// device hangs for more than a minute. NULL is nothing to do; a handle that is no transfer any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_free(transfer: *mut stead_transfer) {
    look!((), |_c| {
        if transfer.is_null() {
            return Ok(());
        }
        let moving = self::transfer(transfer)?;
        table::remove::<TransferFace>(transfer)?;
        moving.stop();
        if moving.stopped_in(PATIENCE) {
            return Ok(());
        }
        let late = hangs(moving.id());
        // Nobody waits for its thread, which may never end.
        std::mem::forget(moving);
        Err(late)
    })
}

/// Gives a transfer of the journal up: what is whole stays, and everything else of it is removed. One that is under way, in this process or
/// another one, is stopped there first, and its stead_stage_wait says STEAD_CANCELLED; of one whose process was killed this call removes what there is.
///
/// Errors: STEAD_USAGE if there is none of this number, it is over, or is so before it can be stopped; STEAD_TIMEOUT if it does not
/// stop within a minute, as its device hangs: it is given up once that answers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_give_up(
    stager: *mut stead_stager,
    id: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let face = table::get::<StagerFace>(stager)?;
        // What there is of it is to be found; where that cannot be, it says so itself.
        let _ = face.stager.status(id).and_then(|status| learn(&face.stager, &status.request));
        face.stager.cancel(id).map(|_| ())
    })
}

/// Waits until nothing more happens with a transfer of the journal, whichever process does it, for `timeout_ms` milliseconds: not at
/// all if that is 0, without an end if it is negative. STEAD_OK if all of it was done.
///
/// Errors: STEAD_TIMEOUT if it goes on, or somebody keeps the journal locked; STEAD_USAGE if there is none of this number, or it waits and
/// no process does it; STEAD_CANCELLED if it was given up; STEAD_IO if it was interrupted, as its process has ended, or if some names could
/// not be done, which stead_stage_status tells; otherwise what it ended with, as stead_stage_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_wait_for(
    stager: *const stead_stager,
    id: i64,
    timeout_ms: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let face = table::get::<StagerFace>(stager)?;
        let status = face.stager.wait(id, time(timeout_ms), &mut |_| Ok(()))?;
        if status.state.rests() {
            return whole(&status, "stead_stage_status");
        }
        let message = format!("transfer {id} has not ended within {timeout_ms} ms");
        Err(Error::new(Kind::Timeout, message).with_hint("it goes on; wait again"))
    })
}

/// What the journal knows of a transfer, as the JSON document of `stead stage --format json`. The text is the caller's, to be freed
/// with stead_text_free.
///
/// Errors: STEAD_USAGE if there is none of this number; those of the journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_status(
    stager: *const stead_stager,
    id: i64,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, stager, |face| face.stager.status(id)))
}

/// The transfers of the journal, the latest first, as a JSON list of what stead_stage_status says: those that are over only if
/// `all`; 10000 at most. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: those of the journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_list(
    stager: *const stead_stager,
    all: bool,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, stager, |face| face.stager.statuses(all, MOST_LISTED)))
}

/// What a request would do and how long it would take, as the JSON document of `stead stage --dry-run --format json`; nothing is
/// done. `cancel` may be NULL; else it stops looking through the sources. The text is the caller's, to be freed with
/// stead_text_free.
///
/// Errors: those with which the request would fail before it starts, as in stead_stage_submit and stead_stage_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_preview(
    stager: *const stead_stager,
    request: *const stead_stage_request,
    cancel: *mut stead_cancel,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, stager, |face| {
        let request = stage_request::of(request)?;
        learn(&face.stager, &request)?;
        let cancel = cancel::optional(cancel)?;
        face.stager.preview(&request, &cancel)
    }))
}

/// How the target of a request "sync" differs from its source, as the JSON document of `stead stage --check --format json`; nothing is
/// changed. Files of the same size are compared by their bytes, which are read. `cancel` may be NULL; else it stops that. The text is the
/// caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_USAGE for another action; those with which the sync would fail before it starts, but for room; STEAD_PERMISSION and
/// STEAD_IO for files that cannot be read. That something differs is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_check(
    stager: *const stead_stager,
    request: *const stead_stage_request,
    cancel: *mut stead_cancel,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, stager, |face| {
        let request = stage_request::of(request)?;
        learn(&face.stager, &request)?;
        let cancel = cancel::optional(cancel)?;
        face.stager.check(&request, &cancel, None)
    }))
}

/// The dataspaces of a stager as the JSON list of `stead df --format json`: their room, and how fast transfers were. One that is not
/// to be had says why. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: those of the journal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_df(
    stager: *const stead_stager,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, stager, |face| usage(&face.stager, &Cancel::new())))
}
