//! Flows that the daemon of a node runs, for programs that do not wait for them.

use crate::daemon::{ask, clients, stead_daemon, tell};
use crate::error::{stead_error, stead_status};
use crate::flow::{self, stead_flow, stead_flow_options};
use crate::guard::call;
use crate::pending::time;
use crate::text;
use std::ffi::c_char;
use stead::daemon::FlowState;
use stead::{Error, Kind};

/// Has the daemon run a flow, with the rights of this user, whether or not the program goes on; `number` is what it is asked for by. It reads
/// streams that are written on any node of the pool, and writes them on the node of the daemon, in whose folders recorded steps are. It ends
/// with the daemon, and with the job of this program, if that is of one on that node. `options` may be NULL; of them threads, memory, steps and timeout_ms
/// are those of a flow in a daemon.
///
/// Errors: STEAD_USAGE for a flow that makes no sense or has functions, and for other options; STEAD_PERMISSION for dataspaces of jobs;
/// STEAD_LIMIT if 16 flows of this user run, or the node is drained; STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_flow_begin(
    daemon: *mut stead_daemon,
    flow: *const stead_flow,
    options: *const stead_flow_options,
    number: *mut i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(number, "place for the number")?;
        let graph = flow::graph(flow)?;
        let options = flow::handed(c, options)?;
        out.put(ask(daemon, |d| d.begin_flow(&graph, &options))?.flow);
        Ok(())
    })
}

/// Waits until a flow is over that the daemon runs, for `timeout_ms` milliseconds: not at all if that is 0, without an end if it is negative.
/// STEAD_OK if it has finished. `json` may be NULL: there goes what it has done, as stead_flow_run says it. The text is the caller's, to be freed
/// with stead_text_free.
///
/// Errors: STEAD_TIMEOUT if it is not over by then: it goes on; STEAD_CANCELLED if it was given up; what it has failed with; STEAD_USAGE if there
/// is none of this number; STEAD_PEER if the daemon has ended, and its flows with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_flow_wait(
    daemon: *const stead_daemon,
    number: i64,
    timeout_ms: i64,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = (!json.is_null()).then(|| c.out_handle(json, "place for the text"));
        let out = out.transpose()?;
        let daemon = clients(daemon)?;
        let standing = daemon.wait_flow(number, time(timeout_ms), &mut |_| Ok(()))?;
        if standing.state == FlowState::Running {
            let message = format!("flow {number} is not over within {timeout_ms} ms");
            return Err(Error::new(Kind::Timeout, message).with_hint("it goes on; wait again"));
        }
        let report = standing.outcome()?;
        if let Some(out) = out {
            text::give(out, &text::json(report)?);
        }
        Ok(())
    })
}

/// Gives up a flow that the daemon runs: readers of what it writes are told.
///
/// Errors: STEAD_USAGE if there is none of this number, or it is over; STEAD_TIMEOUT if a step of it takes long, after which it ends; STEAD_PEER
/// if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_flow_cancel(
    daemon: *mut stead_daemon,
    number: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| ask(daemon, |d| d.cancel_flow(number)).map(|_| ()))
}

/// The flows that the daemon runs for this user, the latest first, as a JSON list: of each its number `flow`, its `name`, the streams that it
/// `reads` and `writes`, its `state` ("running", "finished", "failed" or "cancelled"), its `job` or null, when it was `begun` in seconds since 1970, the
/// `seconds` that it has run, the `steps` that it has had, and its `report` or `error`, or null. Those that are over only if `all`: 64 of them, for
/// an hour. The text is the caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_PEER if the daemon has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_daemon_flows(
    daemon: *const stead_daemon,
    all: bool,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| tell(c, json, daemon, |d| d.flows(all)))
}
