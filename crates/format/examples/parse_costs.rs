//! What parsing delimited text costs on one core, with the text in memory: nanoseconds a value and
//! gigabytes a second, for some choices of columns.
//!
//! `cargo run --release -p stead-format --example parse_costs -- FILE.csv [COLUMN,COLUMN...]`
//!
//! Each line is the best of several passes over the first 32 MiB of the file in pieces of 1 MiB.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::expect_used)] // It measures and prints.

use std::io::Read;
use std::time::Instant;
use stead_core::{ColumnInfo, ColumnKind, Needs, RecordKind, Schema};
use stead_format::delimited::parse::{Missing, Parser, Piece};
use stead_format::delimited::rows::Rows;
use stead_format::delimited::syntax::Syntax;

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a file");
    let chosen = args.next();
    let mut text = Vec::new();
    let file = std::fs::File::open(path).expect("file");
    file.take(32 << 20).read_to_end(&mut text).expect("text");
    let header = text.iter().position(|b| *b == b'\n').expect("a line");
    let names: Vec<String> =
        String::from_utf8_lossy(&text[..header]).split(',').map(String::from).collect();
    let text = &text[header + 1..];
    let text = &text[..text.iter().rposition(|b| *b == b'\n').expect("a line") + 1];
    let columns = names.iter().map(|n| ColumnInfo { name: n.clone(), kind: ColumnKind::Number });
    let schema = Schema { records: RecordKind::Delimited, columns: columns.collect(), shape: None };
    let missing = Missing::new(vec![Vec::new(), b"NA".to_vec()]);
    let syntax = Syntax { delimiter: b',', quote: Some(b'"'), comment: None };
    // Columns whose first value is a number.
    let first = text.split(|b| *b == b'\n').next().expect("a record");
    let numeric: Vec<usize> = first
        .split(|b| *b == b',')
        .enumerate()
        .filter(|(_, f)| std::str::from_utf8(f).is_ok_and(|s| s.parse::<f64>().is_ok()))
        .map(|(i, _)| i)
        .collect();
    let mut sets: Vec<(String, Vec<usize>)> = vec![("all numeric".into(), numeric.clone())];
    sets.extend(numeric.iter().map(|i| (names[*i].clone(), vec![*i])));
    if let Some(c) = chosen {
        let ids = c.split(',').filter_map(|c| names.iter().position(|n| n == c)).collect();
        sets = vec![(c, ids)];
    }
    println!("{:<16} {:>8} {:>10} {:>8}", "columns", "GB/s", "ns a value", "ns a row");
    for (name, ids) in sets {
        let needs = Needs { rows: true, numbers: ids.clone(), ..Needs::default() };
        let parser = Parser::new(syntax, &missing, &schema, &needs, false).expect("parser");
        let mut rows = Rows::default();
        let mut best = f64::INFINITY;
        let mut count = 0;
        for _ in 0..7 {
            let start = Instant::now();
            count = 0;
            let mut at = 0;
            while at < text.len() {
                let end = (at + (1 << 20)).min(text.len());
                let piece = Piece { text: &text[at..], skip: 0, bom: 0, stop: end - at, eof: true };
                parser.begin(&mut rows);
                at += parser.parse(&piece, 0, &mut rows).expect("parse").next;
                count += rows.rows;
            }
            best = best.min(start.elapsed().as_secs_f64());
        }
        let per_row = best * 1e9 / count as f64;
        println!(
            "{name:<16} {:>8.3} {:>10.2} {per_row:>8.1}",
            text.len() as f64 / best / 1e9,
            per_row / ids.len() as f64
        );
    }
}
