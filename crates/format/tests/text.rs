//! Text in any split is the same text: against a straightforward reading of whole files.

#![allow(clippy::expect_used, clippy::panic)] // helpers of tests

use proptest::prelude::*;
use std::io::Write;
use std::sync::Arc;
use stead_core::{Block, Error, Kind, MISSING, Needs, Result, is_missing};
use stead_format::{
    Before, Dataset, FormatType, Header, Held, OpenOptions, Progress, Quote, Quotes, ScanOptions,
    Share,
};
use stead_store::{FileSource, MemorySource, Source};

/// A block, kept.
#[derive(Debug, Clone, PartialEq)]
struct Kept {
    source: u32,
    seq: u64,
    offset: u64,
    last: bool,
    rows: usize,
    text: Vec<u8>,
    mark: usize,
    records: Vec<Vec<u8>>,
    numbers: Vec<Vec<u64>>,
    texts: Vec<Vec<Option<Vec<u8>>>>,
}

fn keep(b: &Block<'_>, needs: &Needs) -> Kept {
    Kept {
        source: b.source,
        seq: b.seq,
        offset: b.offset,
        last: b.last,
        rows: b.rows,
        text: b.text.to_vec(),
        mark: b.mark,
        records: (0..b.records.len()).map(|i| b.record(i).to_vec()).collect(),
        numbers: needs
            .numbers
            .iter()
            .map(|c| b.numbers(*c).iter().map(|v| v.to_bits()).collect())
            .collect(),
        texts: needs
            .texts
            .iter()
            .map(|c| {
                let t = b.texts(*c).expect("asked for");
                (0..b.rows).map(|i| t.get(i).map(<[u8]>::to_vec)).collect()
            })
            .collect(),
    }
}

/// The shares of ranks: even ones, or what each holds of files in stripes of so many bytes.
fn shares(d: &Dataset, ranks: usize, stripe: Option<u64>) -> Vec<Share> {
    let Some(stripe) = stripe else {
        return (0..ranks).map(|rank| Share::Even { rank, size: ranks }).collect();
    };
    let share = |rank: usize| {
        let mut held = Vec::new();
        for (source, s) in d.sources().iter().enumerate() {
            // The first stripes of files are on different ranks, and the last rank but one has only half as many.
            let whose = |i: u64| match (i as usize + source) % ranks {
                r if r + 2 == ranks && i % 8 > 3 => 0,
                r => r,
            };
            for i in (0..s.len().div_ceil(stripe)).filter(|i| whose(*i) == rank) {
                let bytes = i * stripe..((i + 1) * stripe).min(s.len());
                held.push(Held { source: source as u32, bytes });
            }
        }
        Share::held(held).expect("in order")
    };
    (0..ranks).map(share).collect()
}

/// Where quotes are open at the start of each rank's share, if the ranks tell each other: some tests leave that out, and each
/// rank looks at what lies before its share.
fn told(
    d: &Dataset,
    o: &ScanOptions,
    workers: usize,
    shares: &[Share],
) -> Result<Vec<Option<Before>>> {
    let held = matches!(shares[0], Share::Held(_));
    if !d.is_chained(o) || (!held && (shares.len() == 1 || workers == 2)) {
        return Ok(vec![None; shares.len()]);
    }
    let mut all = Vec::new();
    for share in shares {
        let o = ScanOptions { share: share.clone(), ..o.clone() };
        let (quotes, bytes) = d.quotes(&o, workers)?;
        assert!(bytes <= d.total_bytes());
        assert_eq!(Quotes::from_bytes(&quotes.bytes())?, quotes);
        all.push(quotes);
    }
    (0..shares.len()).map(|rank| Quotes::before(&all, rank).map(Some)).collect()
}

/// Scans with `workers` threads on each of `ranks` ranks; blocks in file order, and skipped records.
fn scan(d: &Dataset, o: &ScanOptions, workers: usize, ranks: usize) -> Result<(Vec<Kept>, u64)> {
    scan_shares(d, o, workers, &shares(d, ranks, None))
}

fn scan_shares(
    d: &Dataset,
    o: &ScanOptions,
    workers: usize,
    shares: &[Share],
) -> Result<(Vec<Kept>, u64)> {
    let mut all: Vec<Kept> = Vec::new();
    let mut skipped = 0;
    let even = matches!(shares[0], Share::Even { .. });
    for (share, before) in shares.iter().zip(told(d, o, workers, shares)?) {
        let o = ScanOptions { share: share.clone(), before, ..o.clone() };
        let scan = d.scan(&o)?;
        let one = || -> Result<Vec<Kept>> {
            let mut worker = scan.worker()?;
            let mut blocks: Vec<Kept> = Vec::new();
            while let Some(b) = worker.next()? {
                assert!(blocks.last().is_none_or(|p| p.seq < b.seq), "a worker went back");
                blocks.push(keep(&b, &o.needs));
            }
            Ok(blocks)
        };
        let results: Vec<Result<Vec<Kept>>> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..workers).map(|_| s.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().expect("no panic")).collect()
        });
        let mut mine = Vec::new();
        let mut failed: Option<Error> = None;
        for r in results {
            match r {
                Ok(b) => mine.extend(b),
                Err(e) => {
                    // A cause before the stop that it led to, then the earliest.
                    let rank = |e: &Error| (e.kind() == Kind::Cancelled, e.place().offset);
                    if failed.as_ref().is_none_or(|f| rank(&e) < rank(f)) {
                        failed = Some(e);
                    }
                }
            }
        }
        if let Some(e) = failed {
            return Err(d.locate(e));
        }
        mine.sort_by_key(|b| b.seq);
        assert!(mine.windows(2).all(|w| w[0].seq < w[1].seq));
        assert!(!even || all.last().zip(mine.first()).is_none_or(|(a, b)| a.seq < b.seq));
        let Progress { rows, skipped: s, .. } = scan.progress();
        let ordering = std::sync::atomic::Ordering::Relaxed;
        assert_eq!(rows.load(ordering), mine.iter().map(|b| b.rows as u64).sum::<u64>());
        skipped += s.load(ordering);
        all.extend(mine);
    }
    // What ranks hold lies between what others do.
    all.sort_by_key(|b| b.seq);
    assert!(all.windows(2).all(|w| w[0].seq < w[1].seq));
    Ok((all, skipped))
}

fn stripes() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![2 => Just(None), 3 => (1..50u64).prop_map(Some), 1 => Just(Some(1000))]
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    e.write_all(data).expect("memory");
    e.finish().expect("memory")
}

fn dataset(files: &[Vec<u8>], packed: &[u8], options: &OpenOptions) -> Result<Dataset> {
    let sources = files.iter().enumerate().map(|(i, f)| {
        let data = match packed[i % packed.len()] {
            1 => gzip(f),
            2 => zstd::encode_all(&f[..], 1).expect("memory"),
            _ => f.clone(),
        };
        Arc::new(MemorySource::new(format!("f{i}"), data)) as Arc<dyn Source>
    });
    Dataset::from_sources(sources.collect(), options)
}

/// Every byte of every file exactly once and in place, those of a byte order mark as such; `last` on the last block of each.
fn check_text(blocks: &[Kept], files: &[Vec<u8>]) {
    for (i, file) in files.iter().enumerate() {
        let mine: Vec<&Kept> = blocks.iter().filter(|b| b.source == i as u32).collect();
        let mut at = 0;
        let mark = if file.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
        for b in &mine {
            assert_eq!(b.offset as usize, at);
            let end = at + b.text.len();
            assert_eq!(b.mark, end.min(mark) - at.min(mark));
            at = end;
        }
        let whole: Vec<u8> = mine.iter().flat_map(|b| b.text.clone()).collect();
        assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(file));
        for (k, b) in mine.iter().enumerate() {
            assert_eq!(b.last, k + 1 == mine.len());
        }
    }
}

fn only_bytes() -> Needs {
    Needs { bytes: true, ..Needs::default() }
}

/// As [`check_text`], and blocks are whole lines.
fn check_lines(blocks: &[Kept], files: &[Vec<u8>]) {
    check_text(blocks, files);
    for b in blocks {
        assert!(b.rows == 0 && !b.text.is_empty() && (b.last || b.text.ends_with(b"\n")));
    }
}

/// The fields of all records but the header, by the crate `csv`.
fn reference(files: &[Vec<u8>], header: bool) -> Vec<Vec<Vec<u8>>> {
    let mut rows = Vec::new();
    for f in files {
        let mut r =
            csv::ReaderBuilder::new().has_headers(header).flexible(true).from_reader(&f[..]);
        for record in r.byte_records() {
            rows.push(record.expect("csv").iter().map(<[u8]>::to_vec).collect());
        }
    }
    rows
}

fn field() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z ]{0,6}",
        1 => Just("NA".to_string()),
        2 => "[a-z,\n\"\r]{0,8}".prop_map(|s| format!("\"{}\"", s.replace('"', "\"\""))),
        1 => "[a-z][a-z\"]{0,4}",
        1 => "[a-z\n]{0,3}".prop_map(|s| format!("\"{s}\"x")),
    ]
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => "-?[0-9]{1,6}",
        4 => "-?[0-9]{1,9}\\.[0-9]{1,9}",
        1 => any::<f64>().prop_filter("nan", |v| !v.is_nan()).prop_map(|v| format!("{v:e}")),
        1 => Just(String::new()),
        1 => Just("NA".to_string()),
        1 => "[0-9]{1,3}".prop_map(|s| format!("\"{s}\"")),
        1 => "[0-9]{1,3}".prop_map(|s| format!(" {s} ")),
        1 => prop_oneof![
            Just(" NA "), Just(" nan "), Just("nan "), Just(" NaN"), Just("\" nan\""),
        ]
        .prop_map(String::from),
    ]
}

#[derive(Debug, Clone)]
struct Table {
    file: Vec<u8>,
}

/// One file of four columns: number, text, text, number.
fn table() -> impl Strategy<Value = Table> {
    let row = (number(), field(), field(), number(), 0..8usize);
    (proptest::collection::vec(row, 0..24), any::<[bool; 4]>()).prop_map(
        |(rows, [crlf, bom, open, empty])| {
            if empty && rows.len() % 3 == 0 {
                return Table { file: Vec::new() };
            }
            let end = if crlf { "\r\n" } else { "\n" };
            let mut s = String::from(if bom { "\u{feff}" } else { "" });
            s += &format!("a,\"b\"\"\n,\",c,d{end}");
            for (a, b, c, d, blank) in rows {
                s += &format!("{a},{b},{c},{d}{end}");
                if blank == 0 {
                    s += end;
                }
            }
            if open {
                s.truncate(s.len() - end.len());
            }
            Table { file: s.into_bytes() }
        },
    )
}

fn missing(f: &[u8]) -> bool {
    stead_format::options::DEFAULT_MISSING.iter().any(|t| t.as_bytes() == f)
}

fn value(f: &[u8]) -> u64 {
    let s = std::str::from_utf8(f).expect("ascii").trim();
    if missing(f) || missing(s.as_bytes()) {
        return MISSING.to_bits();
    }
    s.parse::<f64>().expect("number").to_bits()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn delimited_text_in_any_split(
        tables in proptest::collection::vec(table(), 1..4),
        chunk in prop_oneof![1..40usize, 40..400usize, Just(1usize << 20)],
        workers in 1..5usize,
        ranks in 1..5usize,
        stripe in stripes(),
        depth in 1..4usize,
        packed in proptest::collection::vec(0..3u8, 1..3),
        numbers in any::<[bool; 2]>(),
        texts in any::<[bool; 2]>(),
        records: bool,
    ) {
        let files: Vec<Vec<u8>> = tables.into_iter().map(|t| t.file).collect();
        prop_assume!(files.iter().any(|f| !f.is_empty()));
        let options = OpenOptions {
            format: Some(FormatType::Csv),
            header: Header::Yes,
            delimiter: Some(b','),
            column_types: [0, 3]
                .iter()
                .map(|i: &usize| (i.to_string(), stead_format::ColumnType::Number))
                .collect(),
            ..Default::default()
        };
        let d = dataset(&files, &packed, &options).expect("open");
        let shares = shares(&d, ranks, stripe);
        let mut needs = Needs { bytes: true, rows: true, records, ..Needs::default() };
        needs.numbers.extend([0, 3].iter().zip(numbers).filter(|(_, n)| *n).map(|(i, _)| *i));
        needs.texts.extend([1, 2].iter().zip(texts).filter(|(_, n)| *n).map(|(i, _)| *i));
        let mut o = ScanOptions::new(needs.clone());
        o.chunk = chunk;
        o.io.depth = depth;
        let (blocks, skipped) = scan_shares(&d, &o, workers, &shares).expect("scan");
        prop_assert_eq!(skipped, 0);
        check_text(&blocks, &files);
        let bytes = ScanOptions { needs: only_bytes(), ..o.clone() };
        check_lines(&scan_shares(&d, &bytes, workers, &shares).expect("bytes").0, &files);
        let expected = reference(&files, true);
        prop_assert_eq!(blocks.iter().map(|b| b.rows).sum::<usize>(), expected.len());
        if records {
            let all: Vec<&Vec<u8>> = blocks.iter().flat_map(|b| &b.records).collect();
            prop_assert_eq!(all.len(), expected.len());
            for (r, e) in all.iter().zip(&expected) {
                prop_assert_eq!(&reference(&[(*r).clone()], false), &vec![e.clone()]);
            }
        }
        for (i, c) in needs.numbers.iter().enumerate() {
            let mine: Vec<u64> = blocks.iter().flat_map(|b| b.numbers[i].clone()).collect();
            let theirs: Vec<u64> = expected.iter().map(|r| value(&r[*c])).collect();
            prop_assert_eq!(mine, theirs);
        }
        for (i, c) in needs.texts.iter().enumerate() {
            let mine: Vec<Option<Vec<u8>>> =
                blocks.iter().flat_map(|b| b.texts[i].clone()).collect();
            let theirs: Vec<Option<Vec<u8>>> = expected
                .iter()
                .map(|r| Some(r[*c].clone()).filter(|f| !missing(f)))
                .collect();
            prop_assert_eq!(mine, theirs);
        }
    }

    #[test]
    fn lines_in_any_split(
        files in proptest::collection::vec("[a\"\n\r]{0,60}", 1..4),
        chunk in 1..50usize,
        workers in 1..5usize,
        ranks in 1..5usize,
        stripe in stripes(),
        packed in proptest::collection::vec(0..3u8, 1..3),
        bom: bool,
    ) {
        let files: Vec<Vec<u8>> = files
            .into_iter()
            .map(|f| if bom { format!("\u{feff}{f}") } else { f }.into_bytes())
            .collect();
        let options = OpenOptions { format: Some(FormatType::Lines), ..Default::default() };
        let d = dataset(&files, &packed, &options).expect("open");
        let shares = shares(&d, ranks, stripe);
        let mut o = ScanOptions::new(Needs { bytes: true, records: true, ..Needs::default() });
        o.chunk = chunk;
        let (blocks, _) = scan_shares(&d, &o, workers, &shares).expect("scan");
        check_text(&blocks, &files);
        let bytes = ScanOptions { needs: only_bytes(), ..o.clone() };
        check_lines(&scan_shares(&d, &bytes, workers, &shares).expect("bytes").0, &files);
        let expected: Vec<Vec<u8>> = files
            .iter()
            .flat_map(|f| {
                let f = f.strip_prefix("\u{feff}".as_bytes()).unwrap_or(f);
                f.split_inclusive(|b| *b == b'\n').map(<[u8]>::to_vec).collect::<Vec<_>>()
            })
            .collect();
        let mine: Vec<Vec<u8>> = blocks.iter().flat_map(|b| b.records.clone()).collect();
        prop_assert_eq!(mine.len(), expected.len());
        prop_assert_eq!(mine, expected);
        let counted = ScanOptions { needs: Needs { rows: true, ..Needs::default() }, ..o };
        let (counted, _) = scan_shares(&d, &counted, workers, &shares).expect("rows");
        let rows: Vec<usize> = counted.iter().map(|b| b.rows).collect();
        prop_assert_eq!(rows, blocks.iter().map(|b| b.rows).collect::<Vec<_>>());
    }

    #[test]
    fn no_bytes_make_it_panic(
        data in proptest::collection::vec(prop_oneof![
            Just(b'"'), Just(b','), Just(b'\n'), Just(b'\r'), Just(b'1'), any::<u8>()
        ], 0..120),
        chunk in 1..40usize,
        lenient: bool,
        auto: bool,
    ) {
        let format = (!auto).then_some(FormatType::Csv);
        let options = OpenOptions { format, ..Default::default() };
        let Ok(d) = dataset(std::slice::from_ref(&data), &[0], &options) else { return Ok(()) };
        let _ = d.describe(3);
        let needs = Needs {
            records: true,
            numbers: d.schema().numbers(),
            ..Needs::default()
        };
        let mut o = ScanOptions::new(needs);
        o.chunk = chunk;
        o.lenient = lenient;
        let one = scan(&d, &o, 1, 1).map(|(b, s)| (b.iter().map(|b| b.rows).sum::<usize>(), s));
        o.chunk = 1 << 16;
        let two = scan(&d, &o, 2, 2).map(|(b, s)| (b.iter().map(|b| b.rows).sum::<usize>(), s));
        let held = scan_shares(&d, &o, 2, &shares(&d, 3, Some(chunk as u64)));
        let held = held.map(|(b, s)| (b.iter().map(|b| b.rows).sum::<usize>(), s));
        prop_assert_eq!(two.as_ref().ok(), held.as_ref().ok());
        match (one, two) {
            (Ok(a), Ok(b)) => prop_assert_eq!(a, b),
            (a, b) => prop_assert_eq!(a.is_err(), b.is_err()),
        }
    }
}

fn open(text: &str, options: &OpenOptions) -> Dataset {
    dataset(&[text.as_bytes().to_vec()], &[0], options).expect("open")
}

fn fails(d: &Dataset, needs: Needs, chunk: usize) -> Error {
    let mut o = ScanOptions::new(needs);
    o.chunk = chunk;
    scan(d, &o, 2, 1).expect_err("must fail")
}

fn numbers(ids: &[usize]) -> Needs {
    Needs { numbers: ids.to_vec(), ..Needs::default() }
}

#[test]
fn bad_records_say_where_they_are() {
    let csv = OpenOptions { format: Some(FormatType::Csv), ..Default::default() };
    let text = "a,b\n1,2\n\"x\ny\",3\n4\n5,6\n";
    for packed in [0, 1, 2] {
        let d = dataset(&[text.as_bytes().to_vec()], &[packed], &csv).expect("open");
        for chunk in [1, 5, 1000] {
            let e = fails(&d, numbers(&[1]), chunk);
            assert_eq!(e.to_string(), "f0:5: this record has 1 field, expected 2");
            assert_eq!(e.kind(), Kind::Data);
        }
    }
    let column_types = vec![("a".to_string(), stead_format::ColumnType::Number)];
    let d = open(text, &OpenOptions { column_types, ..csv.clone() });
    let e = fails(&d, numbers(&[0]), 4);
    assert_eq!(e.to_string(), "f0:3: column 'a': found 'x\\ny', expected a number");
    assert!(e.hint().is_some_and(|h| h.contains("--lenient")));
    let mut o = ScanOptions::new(numbers(&[0, 1]));
    o.lenient = true;
    let (blocks, skipped) = scan(&d, &o, 1, 1).expect("lenient");
    assert_eq!((blocks[0].rows, skipped), (2, 2));
    assert_eq!(blocks[0].numbers[1], [2f64.to_bits(), 6f64.to_bits()]);
    let d = open("a,b\n1,2\n3,\"4\n", &csv);
    let e = fails(&d, numbers(&[0]), 4);
    assert_eq!(e.to_string(), "f0:3: a quote is opened in this record and never closed");
}

#[test]
fn missing_tokens_can_be_numbers() {
    let options =
        OpenOptions { missing: Some(vec!["-999".into(), "x".into()]), ..Default::default() };
    let d = open("a,b\n-999,1\n2,x\n-9990,\"-999\"\n -999,\"-999 \"\n", &options);
    let (blocks, _) = scan(&d, &ScanOptions::new(numbers(&[0, 1])), 1, 1).expect("scan");
    let b = &blocks[0].numbers;
    let is: Vec<bool> = b.iter().flatten().map(|v| is_missing(f64::from_bits(*v))).collect();
    assert_eq!(is, [true, false, false, true, false, true, true, true]);
}

#[test]
fn missing_tokens_may_have_blanks_around_them_in_columns_of_numbers() {
    let options = OpenOptions {
        missing: Some(vec!["-999".into(), "nan".into()]),
        column_types: vec![("t".into(), stead_format::ColumnType::Text)],
        ..Default::default()
    };
    let text = "a,b,t\n1, -999,-999\n\"-999 \",2, -999\n nan,\t-999 ,nan\n\
                -9990,NaN,nan \n 5 , 6,7\n";
    let d = open(text, &options);
    let needs = Needs { numbers: vec![0, 1], texts: vec![2], ..Needs::default() };
    // By runs of records, and record by record.
    for chunk in [3, 1000] {
        let mut o = ScanOptions::new(needs.clone());
        o.chunk = chunk;
        let (blocks, _) = scan(&d, &o, 1, 1).expect("scan");
        let column = |i: usize| -> Vec<f64> {
            blocks.iter().flat_map(|b| &b.numbers[i]).map(|v| f64::from_bits(*v)).collect()
        };
        let missing = |i: usize| -> Vec<bool> { column(i).into_iter().map(is_missing).collect() };
        assert_eq!(missing(0), [false, true, true, false, false]);
        assert_eq!(missing(1), [true, false, true, false, false]);
        // A NaN that is no token is a value.
        assert!(column(1)[3].is_nan());
        let texts: Vec<Option<Vec<u8>>> = blocks.iter().flat_map(|b| b.texts[0].clone()).collect();
        let stands = |t: &str| Some(t.as_bytes().to_vec());
        assert_eq!(texts, [None, stands(" -999"), None, stands("nan "), stands("7")]);
    }
}

#[test]
fn comments_and_other_quotes() {
    let options = OpenOptions {
        comment: Some(b'#'),
        quote: Quote::Byte(b'\''),
        delimiter: Some(b';'),
        ..Default::default()
    };
    let d = open("# it's\na;b\n'1;\n#';2\n# ''' \n3;4", &options);
    for chunk in [1, 2, 3, 100] {
        let mut o =
            ScanOptions::new(Needs { texts: vec![0], numbers: vec![1], ..Needs::default() });
        o.chunk = chunk;
        let (blocks, _) = scan(&d, &o, 2, 2).expect("scan");
        let t: Vec<_> = blocks.iter().flat_map(|b| b.texts[0].clone()).flatten().collect();
        assert_eq!(t, [&b"1;\n#"[..], b"3"]);
    }
}

#[test]
fn quotes_after_a_byte_order_mark_are_quotes_in_compressed_files_too() {
    // A quote after the delimiter in the first field would open quotes if the first one were no quote.
    let mut text = "\u{feff}\"a,\",b\n".as_bytes().to_vec();
    text.extend(b"1,2\n3,4\n".repeat(3 << 17));
    // The first part of it that is decoded by itself ends within the mark.
    let apart = [zstd::bulk::compress(&text[..1], 1), zstd::encode_all(&text[1..], 1)];
    let apart: Vec<u8> = apart.into_iter().flat_map(|f| f.expect("memory")).collect();
    let options = OpenOptions {
        format: Some(FormatType::Csv),
        header: Header::Yes,
        delimiter: Some(b','),
        ..Default::default()
    };
    let mut o = ScanOptions::new(numbers(&[0, 1]));
    o.max_record = 1 << 16;
    let read = |file: &Vec<u8>, packed: u8, workers: usize| {
        let d = dataset(std::slice::from_ref(file), &[packed], &options).expect("open");
        assert_eq!(d.schema().columns[0].name, "a,");
        let (blocks, _) = scan(&d, &o, workers, 1).expect("scan");
        check_text(&blocks, std::slice::from_ref(&text));
        let column = |i: usize| blocks.iter().flat_map(move |b| &b.numbers[i]);
        column(0).chain(column(1)).copied().collect::<Vec<u64>>()
    };
    let plain = read(&text, 0, 1);
    assert_eq!(plain.len(), 2 * (3 << 18));
    for (file, packed) in [(&text, 1), (&text, 2), (&apart, 0)] {
        for workers in [1, 3] {
            assert!(read(file, packed, workers) == plain, "{packed} {workers}");
        }
    }
}

#[test]
fn a_delimiter_may_be_a_byte_of_numbers() {
    let number = |name: &str| (name.to_string(), stead_format::ColumnType::Number);
    let of = |delimiter: u8| OpenOptions {
        format: Some(FormatType::Csv),
        header: Header::Yes,
        delimiter: Some(delimiter),
        column_types: vec![number("a"), number("b")],
        ..Default::default()
    };
    // A value that is none has the records around it taken one by one.
    for (text, delimiter) in [("a.b\n1.2\nx.3\n4.5\n", b'.'), ("a-b\n1-2\nx-3\n-5\n", b'-')] {
        let d = open(text, &of(delimiter));
        let mut o = ScanOptions::new(numbers(&[0, 1]));
        o.lenient = true;
        let (blocks, skipped) = scan(&d, &o, 1, 1).expect("scan");
        assert_eq!((blocks[0].rows, skipped), (2, 1), "{text}");
        let first = if delimiter == b'.' { 4.0 } else { MISSING };
        assert_eq!(blocks[0].numbers[0], [1.0, first].map(f64::to_bits), "{text}");
        assert_eq!(blocks[0].numbers[1], [2f64, 5.0].map(f64::to_bits), "{text}");
    }
}

#[test]
fn a_giant_record_is_read_or_refused() {
    let mut text = vec![b'x'; 3 << 20];
    text.push(b'\n');
    text.extend_from_slice(b"y\n");
    let options = OpenOptions { format: Some(FormatType::Lines), ..Default::default() };
    for packed in [0, 1] {
        let d = dataset(&[[b"a\n".to_vec(), text.clone()].concat()], &[packed], &options)
            .expect("open");
        let mut o = ScanOptions::new(Needs { records: true, ..Needs::default() });
        o.chunk = 4096;
        let (blocks, _) = scan(&d, &o, 3, 1).expect("scan");
        let lens: Vec<usize> = blocks.iter().flat_map(|b| &b.records).map(Vec::len).collect();
        assert_eq!(lens, [2, (3 << 20) + 1, 2]);
        o.max_record = 1 << 20;
        let e = scan(&d, &o, 2, 1).expect_err("too long");
        assert_eq!(e.kind(), Kind::Limit);
        assert_eq!((e.place().offset, e.place().line), (Some(2), Some(2)));
    }
}

#[test]
fn a_file_that_shrinks_is_an_error() {
    let dir = tempfile::tempdir().expect("dir");
    let path = dir.path().join("f.csv");
    std::fs::write(&path, "a,b\n".to_string() + &"1,2\n".repeat(1000)).expect("write");
    let source: Arc<dyn Source> = Arc::new(FileSource::open(&path).expect("open"));
    let d = Dataset::from_sources(vec![source], &OpenOptions::default()).expect("open");
    let scanned = d.scan(&ScanOptions { chunk: 512, ..ScanOptions::new(numbers(&[0])) });
    let scanned = scanned.expect("plan");
    std::fs::OpenOptions::new().write(true).open(&path).and_then(|f| f.set_len(100)).expect("cut");
    let mut worker = scanned.worker().expect("worker");
    let e = loop {
        match worker.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("the scan went through"),
            Err(e) => break e,
        }
    };
    assert_eq!(e.kind(), Kind::Changed);
}

#[test]
fn files_must_belong_together() {
    let file = |s: &str| s.as_bytes().to_vec();
    let e = dataset(&[file("a,b\n1,2\n"), file(""), file("a,c\n1,2\n")], &[0], &Default::default())
        .err()
        .expect("another header");
    let s = e.to_string();
    assert!(s.contains("f2") && s.contains("f0") && s.contains("'c'"), "{s}");
    assert_eq!(e.kind(), Kind::Format);
}

#[test]
fn empty_files() {
    let csv = OpenOptions { format: Some(FormatType::Csv), ..Default::default() };
    let e = dataset(&[Vec::new()], &[0], &csv).err().expect("empty");
    assert_eq!((e.kind(), e.to_string().as_str()), (Kind::Format, "f0: empty file"));
    for packed in [0, 1, 2] {
        assert!(dataset(&[Vec::new()], &[packed.max(1)], &csv).is_err());
        let lines = OpenOptions { format: Some(FormatType::Lines), ..Default::default() };
        let d = dataset(&[Vec::new(), Vec::new()], &[packed], &lines).expect("lines");
        let o = ScanOptions::new(Needs { bytes: true, ..Needs::default() });
        assert!(scan(&d, &o, 2, 2).expect("scan").0.is_empty());
        assert!(d.describe(3).expect("describe").rows.is_empty());
    }
}

#[test]
fn a_description_looks_into_no_huge_record() {
    let length = 17 << 20;
    let records = OpenOptions {
        format: Some(FormatType::Records),
        record_length: Some(length as u64),
        ..Default::default()
    };
    let lines = OpenOptions { format: Some(FormatType::Lines), ..Default::default() };
    for options in [records, lines] {
        let d = dataset(&[vec![b'x'; length]], &[0], &options).expect("dataset");
        let rows = d.describe(3).expect("described").rows;
        assert_eq!(rows, [["(a record of more than 16.0 MiB)"]]);
    }
}

#[test]
fn a_cancelled_scan_stops() {
    let d = open("a,b\n1,2\n3,4\n", &OpenOptions::default());
    let o = ScanOptions::new(numbers(&[0]));
    o.cancel.cancel();
    assert_eq!(scan(&d, &o, 2, 1).expect_err("cancelled").kind(), Kind::Cancelled);
}
