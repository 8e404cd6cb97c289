//! Lines of text, two files.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_format::{FormatType, OpenOptions};
use stead_fuzz::{choices, same_on_any_split};

fuzz_target!(|data: &[u8]| {
    let Some(([chunk], data)) = choices::<1>(data) else { return };
    let options = OpenOptions { format: Some(FormatType::Lines), ..OpenOptions::default() };
    let (a, b) = data.split_at(data.len() / 2);
    same_on_any_split(&[a, b], &options, chunk.into());
});
