//! What administrators say to the daemon of the node.

use crate::daemon::{ask, manage, stead_daemon};
use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call};
use crate::text;
use std::collections::BTreeMap;
use std::ffi::c_char;
use stead::daemon::{AdminAnswer, AdminAsk};
use stead::{Error, Result};

fn say(daemon: *const stead_daemon, what: AdminAsk) -> Result<()> {
    ask(daemon, |d| d.admin(what)).map(|_| ())
}

/// Settings as they are given: `key=value`.
fn settings(
    c: &Caller,
    list: *const *const c_char,
    count: usize,
) -> Result<BTreeMap<String, String>> {
    let pair = |text: String| match text.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(Error::usage(format!("'{}' is no setting", text.escape_debug()))
            .with_hint("write key=value, such as quota=1TB")),
    };
    c.texts(list, count, "settings")?.into_iter().map(pair).collect()
}

/// Writes what is asked as JSON.
fn tell(
    c: &Caller,
    json: *mut *mut c_char,
    daemon: *const stead_daemon,
    what: AdminAsk,
) -> Result<()> {
    let out = c.out_handle(json, "place for the text")?;
    let text = match ask(daemon, |d| d.admin(what))? {
        AdminAnswer::Dataspaces(list) => text::json(&list)?,
        AdminAnswer::Jobs(list) => text::json(&list)?,
        AdminAnswer::Stats(stats) => text::json(&stats)?,
        AdminAnswer::Done {} => return Err(Error::format("the daemon answers something else")),
    };
    text::give(out, &text);
    Ok(())
}

/// Adds a dataspace for all users. `settings` are `count` texts such as "path=/mnt/nvme" and "quota=1TB": keys of stead.toml and their
/// values, of which one is the path.
///
/// Errors: STEAD_USAGE if there is one of this name, and for settings that make no sense; STEAD_PERMISSION if this user is no
/// administrator; STEAD_PEER if the daemon has ended; STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_dataspace_add(
    daemon: *mut stead_daemon,
    name: *const c_char,
    settings: *const *const c_char,
    count: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let name = c.text(name, "name of the dataspace")?.to_owned();
        let set = self::settings(c, settings, count)?;
        say(daemon, AdminAsk::Add { name, set })
    })
}

/// Changes a dataspace for all users, also one of /etc/stead/stead.toml: `settings` as for stead_admin_dataspace_add, of which those
/// without a value, such as "limit=", are taken away. Transfers that have begun go on as they were.
///
/// Errors: STEAD_USAGE if there is none of this name; otherwise as stead_admin_dataspace_add.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_dataspace_update(
    daemon: *mut stead_daemon,
    name: *const c_char,
    settings: *const *const c_char,
    count: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let name = c.text(name, "name of the dataspace")?.to_owned();
        let set = self::settings(c, settings, count)?;
        say(daemon, AdminAsk::Update { name, set })
    })
}

/// Takes a dataspace away, also one of /etc/stead/stead.toml, as long as nobody adds or resets it. What lies in it stays.
///
/// Errors: STEAD_USAGE if there is none of this name; STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_dataspace_remove(
    daemon: *mut stead_daemon,
    name: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let name = c.text(name, "name of the dataspace")?.to_owned();
        say(daemon, AdminAsk::Remove { name })
    })
}

/// Forgets what administrators have set of a dataspace: it is as /etc/stead/stead.toml says, or none.
///
/// Errors: STEAD_USAGE if nothing was set of it; STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_dataspace_reset(
    daemon: *mut stead_daemon,
    name: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let name = c.text(name, "name of the dataspace")?.to_owned();
        say(daemon, AdminAsk::Reset { name })
    })
}

/// The dataspaces of all users as a JSON list: `name`, and `set` with the keys of stead.toml and their values. The text is the
/// caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_dataspaces(
    daemon: *const stead_daemon,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, daemon, AdminAsk::Dataspaces {}))
}

/// Adds a job of a user, by name or number, whose processes may use these `count` dataspaces, or gives it others.
///
/// Errors: STEAD_USAGE if one of these is not there, or if it is another user's job; STEAD_LIMIT if there are too many;
/// STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_job_add(
    daemon: *mut stead_daemon,
    job: *const c_char,
    user: *const c_char,
    dataspaces: *const *const c_char,
    count: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let job = c.text(job, "name of the job")?.to_owned();
        let user = c.text(user, "user")?.to_owned();
        let dataspaces = c.texts(dataspaces, count, "dataspaces")?;
        say(daemon, AdminAsk::Job { job, user, dataspaces })
    })
}

/// Says that a job is over: its transfers are cancelled, and what its user has left in its dataspaces of jobs is removed, but for what
/// is kept and what another job of the user may use. This is done after the return.
///
/// Errors: STEAD_USAGE if there is none of this name; STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_job_remove(
    daemon: *mut stead_daemon,
    job: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let job = c.text(job, "name of the job")?.to_owned();
        say(daemon, AdminAsk::Unjob { job })
    })
}

/// The jobs as a JSON list: `job`, `user` (a number), `dataspaces`, `processes`. The text is the caller's, to be freed with
/// stead_text_free.
///
/// Errors: STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_jobs(
    daemon: *const stead_daemon,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, daemon, AdminAsk::Jobs {}))
}

/// Says that a process of this node, and those that it begins, are of a job.
///
/// Errors: STEAD_USAGE if there is no such job; STEAD_NOT_FOUND if there is no such process; STEAD_LIMIT if there are too many;
/// STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_process_add(
    daemon: *mut stead_daemon,
    job: *const c_char,
    pid: u32,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let job = c.text(job, "name of the job")?.to_owned();
        say(daemon, AdminAsk::Process { job, pid })
    })
}

/// Says that a process is of no job any more.
///
/// Errors: STEAD_USAGE if it was not named for one; STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_process_remove(
    daemon: *mut stead_daemon,
    pid: u32,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| say(daemon, AdminAsk::Unprocess { pid }))
}

/// Has the daemon take no transfers and begin none; what is under way ends, what waits stays. stead_admin_stats says how much is
/// under way.
///
/// Errors: STEAD_PERMISSION if this user is no administrator; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_drain(
    daemon: *mut stead_daemon,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| say(daemon, AdminAsk::Drain {}))
}

/// Has a daemon that was drained take transfers again, and go on with those that wait.
///
/// Errors: as stead_admin_drain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_open(
    daemon: *mut stead_daemon,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| say(daemon, AdminAsk::Open {}))
}

/// What the daemon does, as JSON: `drained`, and `users` with `user` (a number), `connections`, `running`, `waiting`, `finished`, `failed`,
/// `bytes` (moved) and `rate` (bytes a second). The text is the caller's, to be freed with stead_text_free.
///
/// Errors: as stead_admin_drain.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_stats(
    daemon: *const stead_daemon,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, daemon, AdminAsk::Stats {}))
}

/// Gives the daemon as it is for the transfers of another user, by name or number, whom the caller looks after as an administrator. With
/// `managed` go stead_daemon_list, stead_daemon_status, stead_daemon_wait, stead_daemon_eta, stead_daemon_cancel, stead_daemon_resume and
/// stead_daemon_metrics; anything else is STEAD_PERMISSION. It is freed with stead_daemon_free, and does not need `daemon` any more.
///
/// Errors: STEAD_PERMISSION if this user is no administrator; STEAD_NOT_FOUND if the other one has no transfers here, or no user has this
/// number; STEAD_USAGE if there is no user of this name, and if the daemon serves one user alone, who is another one; STEAD_LIMIT if there
/// are too many such connections; STEAD_PEER, STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_admin_manage(
    daemon: *const stead_daemon,
    user: *const c_char,
    managed: *mut *mut stead_daemon,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(managed, "place for the daemon")?;
        let user = c.text(user, "user")?;
        out.put(manage(daemon, user)?);
        Ok(())
    })
}
