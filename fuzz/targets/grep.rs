//! The search for patterns in many records at once finds what a search in each record alone finds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::{Block, RecordKind, Schema, Span, Value};
use stead_fuzz::choices;
use stead_kernel::{AnyKernel, Context, Spec, Step, registry};

fn spans(text: &[u8], records: &RecordKind) -> Vec<Span> {
    let (mut spans, mut start) = (Vec::new(), 0);
    while start < text.len() {
        let len = match records {
            RecordKind::Fixed(n) => (*n as usize).min(text.len() - start),
            _ => {
                text[start..].iter().position(|b| *b == b'\n').map_or(text.len() - start, |n| n + 1)
            }
        };
        spans.push(Span { start: start as u32, len: len as u32 });
        start += len;
    }
    spans
}

fn answer(kernel: &dyn AnyKernel, blocks: &[Block<'_>]) -> (String, Vec<u8>) {
    let (mut state, mut out) = (kernel.init(), Vec::new());
    for b in blocks {
        kernel.update(&mut state, b).expect("update");
        kernel.map(b, &mut out).expect("map");
    }
    match kernel.finish(state) {
        Ok(Step::Done(v)) => (format!("{v:?}"), out),
        _ => panic!("grep ends after one pass"),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([flags, length, split], data)) = choices::<3>(data) else { return };
    let (pattern, text) = data.split_at(usize::from(split).min(data.len()).min(64));
    let Ok(pattern) = std::str::from_utf8(pattern) else { return };
    let records = match flags & 3 {
        0 | 1 => RecordKind::Lines,
        2 => RecordKind::Delimited,
        _ => RecordKind::Fixed(u64::from(length % 9) + 1),
    };
    let schema = Schema { records, columns: Vec::new(), shape: None };
    let mut spec = format!("grep:'{}'", pattern.replace('\'', "''"));
    for (i, flag) in
        [",fixed", ",ignore_case", ",invert", ",lines", ",lines,max=2"].iter().enumerate()
    {
        if flags >> (i + 2) & 1 == 1 && !(i == 4 && flags & 32 != 0) {
            spec.push_str(flag);
        }
    }
    let Ok(parsed) = Spec::parse(&spec) else { panic!("{spec} is quoted") };
    let context = Context { schema: &schema, path: None, grouped: false };
    let Ok(built) = registry::build(&parsed, &context) else { return };
    let kernel = built.kernel.as_ref();
    let spans = spans(text, &schema.records);
    let whole = Block { rows: spans.len(), text, records: &spans, last: true, ..Block::empty() };
    let ones: Vec<Span> = spans.iter().map(|s| Span { start: 0, len: s.len }).collect();
    let alone: Vec<Block<'_>> = spans
        .iter()
        .zip(&ones)
        .map(|(s, one)| Block {
            rows: 1,
            offset: s.start.into(),
            text: s.of(text),
            records: std::slice::from_ref(one),
            ..Block::empty()
        })
        .collect();
    let found = answer(kernel, &[whole]);
    assert_eq!(found, answer(kernel, &alone), "{spec} in one piece and record by record");
    // The same records, left by a filter.
    let every: Vec<u32> = (0..spans.len() as u32).collect();
    let mut scratch = stead_core::Selection::default();
    let selected = whole.select(&every, &mut scratch);
    assert_eq!(found, answer(kernel, &[selected]), "{spec} after a filter that keeps all");
    if flags & 4 != 0 && flags & (8 | 16) == 0 && !pattern.is_empty() {
        // What a search for a string is, in one line.
        let holds = |s: &&Span| {
            let record = s.of(text);
            let line = match schema.records {
                RecordKind::Fixed(_) => record,
                _ => record.strip_suffix(b"\n").unwrap_or(record),
            };
            line.windows(pattern.len()).any(|w| w == pattern.as_bytes())
        };
        let n = spans.iter().filter(holds).count() as u64;
        let shown = format!("{:?}", Value::Int(n));
        assert!(found.0.contains(&shown), "{spec}: {} and not {shown}", found.0);
    }
});
