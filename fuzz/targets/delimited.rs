//! Delimited text with any delimiter, quote and header.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_format::{ColumnType, FormatType, Header, OpenOptions, Quote};
use stead_fuzz::{choices, same_on_any_split};

fuzz_target!(|data: &[u8]| {
    let Some(([how, chunk], data)) = choices::<2>(data) else { return };
    let options = OpenOptions {
        format: Some(FormatType::Csv),
        delimiter: [None, Some(b','), Some(b';'), Some(b'|')][usize::from(how & 3)],
        quote: [Quote::Auto, Quote::None, Quote::Byte(b'\''), Quote::Auto]
            [usize::from(how >> 2 & 3)],
        header: [Header::Auto, Header::Yes, Header::No, Header::Auto][usize::from(how >> 4 & 3)],
        comment: (how & 64 != 0).then_some(b'#'),
        column_types: if how & 128 == 0 {
            Vec::new()
        } else {
            vec![("0".into(), ColumnType::Number)]
        },
        ..OpenOptions::default()
    };
    same_on_any_split(&[data], &options, chunk.into());
});
