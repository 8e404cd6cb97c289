//! Detection: any bytes, as one or two files; whatever they are taken for, every split shows the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_format::OpenOptions;
use stead_fuzz::{choices, same_on_any_split};

fuzz_target!(|data: &[u8]| {
    let Some(([chunk, cut], data)) = choices::<2>(data) else { return };
    let options = OpenOptions::default();
    let cut = usize::from(cut) * data.len() / 255;
    if cut == 0 || cut == data.len() {
        same_on_any_split(&[data], &options, chunk.into());
    } else {
        same_on_any_split(&[&data[..cut], &data[cut..]], &options, chunk.into());
    }
});
