//! Frames of the daemon, and words of daemons of a pool: hostile ones are refused, and what is understood is what was written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_daemon::protocol::{Answer, Ask, Hello};
use stead_daemon::fuzzing::alike;
use stead_daemon::pool::word;
use stead_daemon::{read_frame, write_frame};

fuzz_target!(|bytes: &[u8]| {
    let mut from = bytes;
    while let Ok(Some(ask)) = read_frame::<Ask>(&mut from) {
        let mut again = Vec::new();
        write_frame(&mut again, &ask).expect("what was read can be written");
        let back: Option<Ask> = read_frame(&mut again.as_slice()).expect("what was written is read");
        let value = |ask: Option<&Ask>| serde_json::to_value(ask).expect("what was read can be written");
        assert!(alike(&value(back.as_ref()), &value(Some(&ask))), "{back:?} is not {ask:?}");
    }
    // What a program reads of somebody who is no daemon.
    let _ = read_frame::<Answer>(&mut &*bytes);
    let _ = read_frame::<Hello>(&mut &*bytes);
    // Of another node.
    if let Ok((mine, number, said)) = word::read(bytes) {
        assert_eq!(word::write(mine, number, &said), bytes);
    }
});
