//! Connections that are not served.

use crate::frame;
use crate::protocol::{Answer, Failed};
use std::os::unix::net::UnixStream;
use stead_core::Error;

/// Ends a connection with an error. Who does not read it is not waited for.
pub(crate) fn refuse(mut stream: &UnixStream, e: &Error) {
    if stream.set_nonblocking(true).is_ok() {
        let _ = frame::write(&mut stream, &Answer::Failed(Failed::from(e)));
    }
}
