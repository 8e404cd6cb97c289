//! `.npy` headers that may lie about everything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_format::{FormatType, OpenOptions};
use stead_fuzz::same_on_any_split;

fuzz_target!(|data: &[u8]| {
    let options = OpenOptions { format: Some(FormatType::Npy), ..OpenOptions::default() };
    same_on_any_split(&[data], &options, 13);
});
