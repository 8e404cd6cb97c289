//! Filters: any text; what compiles also runs, keeps ascending rows, and its shown form means the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::{Block, Columns, MISSING, Span};
use stead_kernel::expr::{Filter, Scratch};

const ROWS: usize = 6;
const TEXT: &[u8] = b"UA caf\xe9 N14228 ";

fuzz_target!(|text: &str| {
    let schema = stead_fuzz::schema();
    let Ok(filter) = Filter::parse(text, &schema) else { return };
    let numbers = [
        [0.0, -0.0, 1.5, f64::NAN, MISSING, f64::INFINITY],
        [3.0, -7.5, 0.0, MISSING, 1e300, f64::NEG_INFINITY],
    ];
    let spans = [[(0, 2), (3, 4), (8, 6), (0, 0), (u32::MAX, 0), (14, 1)], [(0, 1); ROWS]];
    let span = |&(start, len): &(u32, u32)| {
        if start == u32::MAX { Span::MISSING } else { Span { start, len } }
    };
    let spans: Vec<Span> = spans.iter().flatten().map(span).collect();
    let block = Block {
        rows: ROWS,
        text: TEXT,
        columns: Columns {
            number_ids: &[0, 1],
            numbers: numbers.as_flattened(),
            text_ids: &[2, 3],
            spans: &spans,
            text_data: TEXT,
            stride: ROWS,
        },
        ..Block::empty()
    };
    let mut scratch = Scratch::default();
    let mut keep = Vec::new();
    filter.eval(&block, &mut scratch, &mut keep).expect("the block has all columns");
    assert!(keep.is_sorted() && keep.iter().all(|r| (*r as usize) < ROWS));
    // Deep nesting may grow beyond the limit when it is written with all its parentheses.
    if let Ok(again) = Filter::parse(&filter.to_string(), &schema) {
        let mut kept = Vec::new();
        again.eval(&block, &mut scratch, &mut kept).expect("the block has all columns");
        assert_eq!(keep, kept, "{text:?} is shown as {filter}");
    }
});
