//! Packets between the daemon's broker and its workers: hostile ones are refused, what is understood is what was said, and no more is
//! believed of a worker than it was told.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    stead_daemon::fuzzing::packets(bytes);
});
