//! Ctrl-C and SIGTERM: the first asks the work to stop and clean up, the second does not wait.

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use stead::{Cancel, Error, Result};

pub fn watch(cancel: &Cancel) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])
        .map_err(|e| Error::io("watch signals", "this process", e))?;
    let cancel = cancel.clone();
    std::thread::Builder::new()
        .name("stead-signals".into())
        .spawn(move || {
            for _ in signals.forever() {
                if cancel.is_cancelled() {
                    stead::remove_unfinished();
                    std::process::exit(130);
                }
                cancel.cancel();
            }
        })
        .map_err(|e| Error::io("start a thread", "this process", e))?;
    Ok(())
}
