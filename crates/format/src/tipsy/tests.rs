use super::*;
use crate::api::{Held, Share};
use crate::{Dataset, FormatType, OpenOptions};
use proptest::prelude::*;
use std::sync::Mutex;
use stead_core::{DType, Kind, MISSING, Needs, is_missing};
use stead_store::{MemorySource, Source};

/// One number of a test file: every field of every particle has its own, exact in `f32`.
fn value(species: Species, row: u64, field: usize) -> f64 {
    let n = (species.index() as u64 * 1_000_003 + row * 31 + field as u64) % (1 << 22);
    n as f64 * 0.25 - 1000.0
}

/// A file with that header.
fn file(h: &Header) -> Vec<u8> {
    let mut out = h.encode();
    for k in Species::ALL {
        let fields = h.fields(k);
        for row in 0..h.count(k) {
            for (i, f) in fields.iter().enumerate() {
                let x = value(k, row, i);
                let mut bytes = match f.dtype {
                    DType::F64 => x.to_le_bytes().to_vec(),
                    _ => (x as f32).to_le_bytes().to_vec(),
                };
                if h.byte_order == ByteOrder::Big {
                    bytes.reverse();
                }
                out.extend(bytes);
            }
        }
    }
    out
}

const WIDTHS: [(DType, DType); 3] =
    [(DType::F32, DType::F32), (DType::F64, DType::F32), (DType::F64, DType::F64)];

/// Every variant of a header with these numbers.
fn variants(counts: [u64; 3]) -> Vec<Header> {
    let mut all = Vec::new();
    for order in [ByteOrder::Big, ByteOrder::Little] {
        for (positions, velocities) in WIDTHS {
            let h = Header::new(0.5, counts, order, positions, velocities).unwrap();
            all.push(h.clone());
            all.push(Header { bytes: 28, ..h });
        }
    }
    all
}

fn memory(bytes: Vec<u8>) -> Arc<dyn Source> {
    Arc::new(MemorySource::new("f", bytes))
}

fn open(bytes: Vec<u8>, options: &OpenOptions) -> Result<Dataset> {
    Dataset::from_sources(vec![memory(bytes)], options)
}

/// What a scan hands out.
#[derive(Debug, Default, Clone, PartialEq)]
struct Seen {
    text: Vec<u8>,
    records: Vec<Vec<u8>>,
    places: Vec<u64>,
    numbers: Vec<Vec<u64>>,
    species: Vec<Vec<u8>>,
    rows: u64,
    lasts: u64,
}

fn scan(data: &Dataset, needs: &Needs, chunk: usize, workers: usize, ranks: usize) -> Seen {
    let even = (0..ranks).map(|rank| Share::Even { rank, size: ranks }).collect();
    let seen = scan_shares(data, needs, chunk, workers, even);
    // What ranks hold in stripes of any size, too.
    let stripe = (chunk * ranks + workers) as u64;
    let share = |rank: u64| {
        let of = |(i, s): (usize, &Arc<dyn Source>)| {
            let len = s.len();
            let mine = (0..len.div_ceil(stripe)).filter(move |n| n % ranks as u64 == rank);
            mine.map(move |n| Held {
                source: i as u32,
                bytes: n * stripe..((n + 1) * stripe).min(len),
            })
        };
        Share::held(data.sources().iter().enumerate().flat_map(of)).unwrap()
    };
    let held = scan_shares(data, needs, chunk, workers, (0..ranks as u64).map(share).collect());
    // Whether a block is the last one is said of blocks with particles only.
    assert_eq!(held, Seen { lasts: held.lasts, ..seen.clone() });
    assert!(held.lasts <= seen.lasts);
    seen
}

fn scan_shares(
    data: &Dataset,
    needs: &Needs,
    chunk: usize,
    workers: usize,
    shares: Vec<Share>,
) -> Seen {
    let pieces: Mutex<Vec<(u64, Seen)>> = Mutex::default();
    let (mut bytes, mut total) = (0, 0);
    let dense = matches!(shares[0], Share::Even { .. });
    for share in shares {
        let mut options = ScanOptions::new(needs.clone());
        options.chunk = chunk;
        options.share = share;
        let scan = data.scan(&options).unwrap();
        std::thread::scope(|s| {
            for _ in 0..workers {
                s.spawn(|| {
                    let mut worker = scan.worker().unwrap();
                    while let Some(b) = worker.next().unwrap() {
                        let column = |id: &usize| b.numbers(*id).iter().map(|x| x.to_bits());
                        let seen = Seen {
                            text: b.text.to_vec(),
                            records: match needs.bytes {
                                true => {
                                    (0..b.records.len()).map(|i| b.record(i).to_vec()).collect()
                                }
                                false => Vec::new(),
                            },
                            places: b
                                .records
                                .iter()
                                .map(|r| b.offset + u64::from(r.start))
                                .collect(),
                            numbers: needs.numbers.iter().map(|id| column(id).collect()).collect(),
                            species: needs.texts.first().map_or(Vec::new(), |id| {
                                let texts = b.texts(*id).unwrap();
                                (0..b.rows).map(|i| texts.get(i).unwrap().to_vec()).collect()
                            }),
                            rows: b.rows as u64,
                            lasts: u64::from(b.last),
                        };
                        pieces.lock().unwrap().push((b.seq, seen));
                    }
                });
            }
        });
        bytes += scan.progress().bytes.load(std::sync::atomic::Ordering::Relaxed);
        total += scan.total_bytes();
    }
    assert_eq!(bytes, total);
    let mut pieces = pieces.into_inner().unwrap();
    pieces.sort_by_key(|p| p.0);
    let mut all = Seen { numbers: vec![Vec::new(); needs.numbers.len()], ..Seen::default() };
    let mut before = None;
    for (i, (seq, seen)) in pieces.into_iter().enumerate() {
        assert!(seq == i as u64 || !dense && before.is_none_or(|b| b < seq), "every block once");
        before = Some(seq);
        all.text.extend(seen.text);
        all.records.extend(seen.records);
        all.places.extend(seen.places);
        all.numbers.iter_mut().zip(seen.numbers).for_each(|(a, b)| a.extend(b));
        all.species.extend(seen.species);
        all.rows += seen.rows;
        all.lasts += seen.lasts;
    }
    all
}

/// All columns.
fn everything(data: &Dataset) -> Needs {
    let schema = data.schema();
    let texts = (0..schema.columns.len()).filter(|c| !schema.columns[*c].kind.is_number());
    Needs {
        bytes: true,
        records: true,
        numbers: schema.numbers(),
        texts: texts.collect(),
        ..Needs::default()
    }
}

/// The value that a column must have.
fn wanted(h: &Header, column: &str, k: Species, row: u64) -> f64 {
    let field = match column.split_once('.') {
        Some((species, field)) if species == k.name() => field,
        Some(_) => return MISSING,
        None => column,
    };
    match h.fields(k).iter().position(|f| f.name == field) {
        Some(i) => value(k, row, i),
        None => MISSING,
    }
}

#[test]
fn every_variant_is_told_by_its_length() {
    for counts in [[5, 7, 3], [0, 2, 0], [1, 0, 0], [0, 0, 4]] {
        for h in variants(counts) {
            let bytes = file(&h);
            assert_eq!(h.file_bytes(), Some(bytes.len() as u64));
            assert_eq!(Header::parse(&bytes, bytes.len() as u64).unwrap(), h);
            assert!(Header::detect(&bytes, bytes.len() as u64));
            // The last bytes of the header may be anything where they do not count.
            if h.bytes == 32 {
                let mut odd = bytes.clone();
                odd[28..32].copy_from_slice(b"\x07junk"[..4].try_into().unwrap());
                assert_eq!(Header::parse(&odd, odd.len() as u64).unwrap(), h);
            }
            for wrong in [bytes.len() - 1, bytes.len() + 1, bytes.len() + 2] {
                assert!(Header::parse(&bytes, wrong as u64).is_err());
            }
        }
    }
}

#[test]
fn more_particles_than_32_bits_count() {
    const G: u64 = 1 << 32;
    for counts in [[G + 5, 3 * G, 7], [0, 200 * G + 1, 0], [G - 1, G - 1, 2 * G + 2]] {
        for h in variants(counts).into_iter().filter(|h| h.bytes == 32) {
            let len = h.file_bytes().unwrap();
            let start = h.encode();
            assert_eq!(Header::parse(&start, len).unwrap(), h);
            assert!(Header::parse(&start, len - 36).is_err());
            // The four bytes one after the other, in big-endian files too.
            let mut as_bytes = start.clone();
            let high = [counts.iter().sum(), counts[0], counts[1], counts[2]];
            as_bytes[28..].copy_from_slice(&high.map(|n: u64| (n >> 32) as u8));
            assert_eq!(Header::parse(&as_bytes, len).unwrap(), h);
        }
    }
    assert!(Header::new(0.0, [1 << 40, 0, 0], ByteOrder::Big, DType::F32, DType::F32).is_err());
    assert!(Header::new(0.0, [1, 0, 0], ByteOrder::Big, DType::F32, DType::F64).is_err());
}

#[test]
fn bad_headers_say_what_is_wrong() {
    let h = Header::new(0.0, [2, 3, 4], ByteOrder::Big, DType::F32, DType::F32).unwrap();
    let good = file(&h);
    let with = |at: usize, bytes: &[u8]| {
        let mut odd = good.clone();
        odd[at..at + bytes.len()].copy_from_slice(bytes);
        odd
    };
    for (bytes, words) in [
        (good[..20].to_vec(), "ends in its header"),
        (Vec::new(), "ends in its header"),
        (with(12, &[0, 0, 0, 2]), "dimensions"),
        (with(8, &[9, 9, 9, 9]), "counts"),
        (with(16, &[0xFF; 4]), "counts"),
        (good[..good.len() - 44].to_vec(), "truncated"),
        ([good.clone(), vec![0; 44]].concat(), "odd Tipsy file"),
    ] {
        let options = OpenOptions { format: Some(FormatType::Tipsy), ..OpenOptions::default() };
        let e = open(bytes, &options).err().unwrap();
        assert_eq!(e.kind(), Kind::Format, "{e}");
        assert!(e.message().contains(words) || e.message().contains("empty"), "{e} / {words}");
        assert!(e.hint().is_some() && e.place().path.is_some(), "{e}");
    }
    // 64-bit sums of what a hostile header says do not overflow.
    let mut hostile = good.clone();
    hostile[8..12].fill(0xFF);
    hostile[16..32].fill(0xFF);
    for n in [0, 1, u64::MAX] {
        assert!(Header::parse(&hostile, n).is_err());
    }
}

#[test]
fn other_files_are_no_snapshots() {
    for text in ["x,y\n1,2\n3,4\n", "a log line that is longer than 32 bytes, to be sure\n"] {
        assert_ne!(open(text.into(), &OpenOptions::default()).unwrap().format_name(), "tipsy");
    }
    let numbers: Vec<u8> = (0..1000u32).flat_map(|i| (i % 4).to_le_bytes()).collect();
    assert_eq!(open(numbers, &OpenOptions::default()).unwrap().format_name(), "raw");
    assert_eq!(open(vec![3; 4000], &OpenOptions::default()).unwrap().format_name(), "raw");
    // Without particles only the name tells.
    let none = Header::new(0.0, [0; 3], ByteOrder::Big, DType::F32, DType::F32).unwrap();
    let source = |name| Arc::new(MemorySource::new(name, none.encode())) as Arc<dyn Source>;
    let name = |source| {
        let data = Dataset::from_sources(vec![source], &OpenOptions::default()).unwrap();
        data.format_name()
    };
    assert_eq!((name(source("f")), name(source("f.std"))), ("raw", "tipsy"));
}

#[test]
fn columns_are_those_of_the_species() {
    for h in variants([3, 5, 2]) {
        let data = open(file(&h), &OpenOptions::default()).unwrap();
        assert_eq!((data.format_name(), data.schema().columns.len()), ("tipsy", 47));
        let needs = everything(&data);
        let seen = scan(&data, &needs, 1 << 20, 1, 1);
        assert_eq!((seen.rows, seen.lasts), (10, 1));
        assert_eq!(seen.text, file(&h), "every byte once, the header too");
        let rows: Vec<(Species, u64)> = Species::ALL
            .into_iter()
            .flat_map(|k| (0..h.count(k)).map(move |row| (k, row)))
            .collect();
        for (column, id) in seen.numbers.iter().zip(&needs.numbers) {
            let name = &data.schema().columns[*id].name;
            for ((k, row), x) in rows.iter().zip(column) {
                assert_eq!(*x, wanted(&h, name, *k, *row).to_bits(), "{name} of {k} {row}");
            }
        }
        for ((k, row), text) in rows.iter().zip(&seen.species) {
            assert_eq!(text, k.name().as_bytes(), "{row}");
        }
        // One species alone.
        for k in Species::ALL {
            let options = OpenOptions { species: Some(k), ..OpenOptions::default() };
            let data = open(file(&h), &options).unwrap();
            let needs = everything(&data);
            let seen = scan(&data, &needs, 1 << 20, 1, 1);
            let whole = h.part(k, 0, 1).unwrap();
            let records = &file(&h)[whole.offset as usize..][..whole.bytes as usize];
            assert_eq!((seen.rows, seen.lasts, &seen.text[..]), (h.count(k), 1, records));
            assert_eq!(needs.numbers.len(), h.fields(k).len());
            for (i, column) in seen.numbers.iter().enumerate() {
                for (row, x) in column.iter().enumerate() {
                    assert_eq!(*x, value(k, row as u64, i).to_bits());
                }
            }
        }
    }
}

#[test]
fn species_that_nobody_asks_for_are_not_read() {
    let h = Header::new(0.0, [1000, 1000, 1000], ByteOrder::Big, DType::F32, DType::F32).unwrap();
    let data = open(file(&h), &OpenOptions::default()).unwrap();
    let column = |name: &str| data.schema().column(name).unwrap();
    let total = |needs| data.scan(&ScanOptions::new(needs)).unwrap().total_bytes();
    let numbers = |names: &[&str]| {
        let mut numbers: Vec<usize> = names.iter().map(|n| column(n)).collect();
        numbers.sort_unstable();
        Needs { numbers, rows: true, ..Needs::default() }
    };
    assert_eq!(total(numbers(&["dark.mass"])), 36_000);
    assert_eq!(total(numbers(&["eps"])), 80_000);
    assert_eq!(total(numbers(&["mass", "dark.mass"])), 128_000);
    assert_eq!(total(Needs { rows: true, ..Needs::default() }), 0);
    assert_eq!(total(Needs { bytes: true, ..Needs::default() }), 128_032);
    assert_eq!(total(Needs { texts: vec![column("species")], ..Needs::default() }), 0);
    let odd = Needs { texts: vec![column("mass")], ..Needs::default() };
    assert!(data.scan(&ScanOptions::new(odd)).is_err());
    let odd = Needs { brick: Some(0), ..Needs::default() };
    assert!(data.scan(&ScanOptions::new(odd)).is_err());
}

#[test]
fn files_of_several_kinds_are_one_dataset() {
    let (mut sources, mut rows) = (Vec::new(), 0);
    for (i, h) in variants([2, 3, 1]).into_iter().chain(variants([0, 4, 0])).enumerate() {
        sources.push(Arc::new(MemorySource::new(format!("{i}"), file(&h))) as Arc<dyn Source>);
        rows += h.particles();
    }
    let data = Dataset::from_sources(sources, &OpenOptions::default()).unwrap();
    let seen = scan(&data, &everything(&data), 64, 3, 2);
    assert_eq!((seen.rows, seen.lasts), (rows, 24));
}

#[test]
fn a_description_shows_rows() {
    let h = Header::new(0.25, [1, 1, 0], ByteOrder::Big, DType::F32, DType::F32).unwrap();
    let d = open(file(&h), &OpenOptions::default()).unwrap().describe(5).unwrap();
    assert_eq!(d.rows.len(), 2);
    assert!(d.rows.iter().all(|r| r.len() == 47));
    assert_eq!((d.rows[0][0].as_str(), d.rows[1][0].as_str()), ("gas", "dark"));
    assert_eq!(
        (d.rows[1][1].clone(), d.rows[1][14].as_str()),
        (format!("{:?}", value(Species::Dark, 0, 0)), "NA")
    );
    assert!(d.details.contains(&("gas".into(), Value::Int(1))));
}

#[test]
fn particles_are_arrays() {
    for h in variants([70, 300, 11]) {
        let bytes = file(&h);
        for k in Species::ALL {
            for tasks in [1, 3, 400] {
                let mut all = Particles::new(&h, k, 0, &[]).unwrap();
                let mut at = 0;
                for task in 0..tasks {
                    let part = h.part(k, task, tasks).unwrap();
                    assert_eq!(part.first, at);
                    at += part.count;
                    all.add(&bytes[part.offset as usize..][..part.bytes as usize]).unwrap();
                }
                assert_eq!((all.len() as u64, at), (h.count(k), h.count(k)));
                for (i, (name, values)) in all.columns.iter().enumerate() {
                    assert_eq!(*name, h.fields(k)[i].name);
                    for row in 0..all.len() {
                        assert_eq!(values.get(row), Some(value(k, row as u64, i)));
                    }
                }
            }
        }
        let mut some = Particles::new(&h, Species::Star, 0, &["phi", "x"]).unwrap();
        assert_eq!(some.columns.iter().map(|c| c.0).collect::<Vec<_>>(), ["x", "phi"]);
        assert!(some.add(&[0; 7]).is_err() && some.is_empty());
        assert!(Particles::new(&h, Species::Dark, 0, &["rho"]).is_err());
        assert!(h.part(Species::Gas, 3, 3).is_err() && h.part(Species::Gas, 0, 0).is_err());
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same(
        counts in [0u64..300, 0u64..300, 0u64..300],
        which in 0usize..12,
        chunk in 1usize..5000,
        workers in 1usize..4,
        ranks in 1usize..4,
        pick in any::<u64>(),
        bytes in any::<bool>(),
        records in any::<bool>(),
    ) {
        let h = &variants(counts)[which];
        let options = OpenOptions { format: Some(FormatType::Tipsy), ..OpenOptions::default() };
        let data = open(file(h), &options).unwrap();
        let all = everything(&data);
        let numbers = all.numbers.iter().copied().filter(|c| pick >> c & 1 == 1).collect();
        let needs = Needs { bytes, records, numbers, rows: true, ..all };
        let whole = scan(&data, &needs, 1 << 24, 1, 1);
        prop_assert_eq!(whole.rows, h.particles());
        prop_assert_eq!(&scan(&data, &needs, chunk, workers, ranks), &whole);
    }

    #[test]
    fn no_header_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..40), len in any::<u64>(), at in 0usize..2) {
        let _ = Header::parse(&bytes, len);
        let mut near = bytes.clone();
        if near.len() > 16 {
            near[12..16].copy_from_slice(&[[0, 0, 0, 3], [3, 0, 0, 0]][at]);
        }
        if let Ok(h) = Header::parse(&near, len) {
            prop_assert_eq!(h.file_bytes(), Some(len));
        }
        let _ = is_missing(0.0);
    }
}
