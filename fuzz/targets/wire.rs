//! What readers and agents of other nodes say to each other of streams: hostile messages are refused, and what is understood is what
//! would be said.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    stead_stream::fuzzing::message(bytes);
});
