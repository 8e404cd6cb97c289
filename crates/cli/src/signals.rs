//! Ctrl-C and SIGTERM: the first asks the work to stop and clean up, the second does not wait. Nor does the
//! first once the work is done and only the printing is left.

use crate::keys;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use stead::{Cancel, Error, Result};

/// Lets signals cancel the work. Who has done it says so by the token that is returned.
///
/// `hurried`: a launcher kills its ranks soon after the first signal, so that what is unfinished is removed at once.
pub fn watch(cancel: &Cancel, hurried: bool) -> Result<Cancel> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Error::io("watch signals", "this process", e))?;
    let cancel = cancel.clone();
    let done = Cancel::new();
    let is_done = done.clone();
    std::thread::Builder::new()
        .name("stead-signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if cancel.is_cancelled() || is_done.is_cancelled() {
                    stead::remove_unfinished();
                    let _given_back = keys::give_back();
                    std::process::exit(130);
                }
                cancel.cancel();
                if hurried {
                    stead::remove_unfinished();
                }
            }
        })
        .map_err(|e| Error::io("start a thread", "this process", e))?;
    Ok(done)
}

/// Has the terminal be what it was before a signal ends this process that [`watch`] does not see.
pub fn give_back() -> Result<()> {
    let mut signals = Signals::new([SIGHUP, SIGQUIT])
        .map_err(|e| Error::io("watch signals", "this process", e))?;
    std::thread::Builder::new()
        .name("stead-terminal".into())
        .spawn(move || {
            for signal in signals.forever() {
                let _given_back = keys::give_back();
                // It does not return.
                let _ = emulate_default_handler(signal);
            }
        })
        .map_err(|e| Error::io("start a thread", "this process", e))?;
    Ok(())
}
