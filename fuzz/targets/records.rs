//! Records of one length.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_format::{FormatType, OpenOptions};
use stead_fuzz::{choices, same_on_any_split};

fuzz_target!(|data: &[u8]| {
    let Some(([length, skip, chunk], data)) = choices::<3>(data) else { return };
    let options = OpenOptions {
        format: Some(FormatType::Records),
        record_length: Some(length.into()),
        skip: Some(skip.into()),
        ..OpenOptions::default()
    };
    same_on_any_split(&[data], &options, chunk.into());
});
