//! Blocks on their way to another rank: the columns that somebody asked for, as bytes, without the text that they were parsed
//! out of.
//!
//! A vector is a head, and then, each as far as it was asked for: where the records lie (start and length, 32 bits each),
//! columns of numbers (64 bits each, the bits that they have in the block, missing ones too), for columns of text the length
//! of each value (32 bits, [`Span::MISSING`] has its own) and behind all of these their bytes. All little-endian. Which columns
//! there are, and whether records are, follows from the [`Needs`] that both sides know.

use std::ops::Range;
use stead_core::{Block, Columns, Error, Needs, Result, Span};

/// Bytes before the columns: source, flags, number of the block, offset, rows, bytes of texts.
const HEAD: usize = 4 + 1 + 8 + 8 + 4 + 8;
const LAST: u8 = 1;
const WHOLE: u8 = 2;
const NUMBER: usize = size_of::<f64>();
const PLACE: usize = 2 * size_of::<u32>();
const LENGTH: usize = size_of::<u32>();

/// Why blocks that satisfy these needs cannot be sent as vectors; `None` if they can.
pub fn refusal(needs: &Needs) -> Option<&'static str> {
    if needs.bytes {
        return Some("the kernels look at the bytes of the data, and not at columns alone");
    }
    if needs.brick.is_some() {
        return Some("the kernels look at bricks of an array, and not at columns");
    }
    if needs.matrix {
        return Some("the kernels look at whole rows of an array, and not at columns");
    }
    let none = needs.numbers.is_empty() && needs.texts.is_empty();
    none.then_some("the kernels look at no columns")
}

/// Bytes of a row, but for those of its texts.
fn row_bytes(needs: &Needs) -> usize {
    needs.numbers.len() * NUMBER + usize::from(needs.records) * PLACE + needs.texts.len() * LENGTH
}

/// Bytes of the texts of a row.
fn text_bytes(block: &Block<'_>, row: usize, needs: &Needs) -> usize {
    let len = |id: &usize| block.texts(*id).and_then(|t| t.get(row)).map_or(0, <[u8]>::len);
    needs.texts.iter().map(len).sum()
}

/// Cuts the rows of a block, which satisfies `needs`, so that each part is a vector of at most `most` bytes, or of one row.
pub fn cut(block: &Block<'_>, needs: &Needs, most: usize) -> Vec<Range<usize>> {
    let (each, room) = (row_bytes(needs).max(1), most.saturating_sub(HEAD));
    let mut parts = Vec::new();
    let mut start = 0;
    if needs.texts.is_empty() {
        let step = (room / each).max(1);
        while start < block.rows {
            let end = block.rows.min(start + step);
            parts.push(start..end);
            start = end;
        }
        return parts;
    }
    let mut bytes = 0;
    for row in 0..block.rows {
        let more = each + text_bytes(block, row, needs);
        if row > start && bytes + more > room {
            parts.push(start..row);
            (start, bytes) = (row, 0);
        }
        bytes += more;
    }
    if start < block.rows {
        parts.push(start..block.rows);
    }
    parts
}

/// Appends some rows of a block, which satisfies `needs`, as a vector.
///
/// # Errors
/// `Limit` for more than 2^32 rows or bytes of text.
pub fn encode(
    block: &Block<'_>,
    rows: Range<usize>,
    needs: &Needs,
    out: &mut Vec<u8>,
) -> Result<()> {
    let large = |_| Error::limit("a block has more than 32 bits can count");
    let texts: usize = match needs.texts.is_empty() {
        true => 0,
        false => rows.clone().map(|row| text_bytes(block, row, needs)).sum(),
    };
    let count = u32::try_from(rows.len()).map_err(large)?;
    u32::try_from(texts).map_err(large)?;
    let last = block.last && rows.end == block.rows;
    let flags = if last { LAST } else { 0 } | if block.whole { WHOLE } else { 0 };
    out.reserve(HEAD + rows.len() * row_bytes(needs) + texts);
    out.extend_from_slice(&block.source.to_le_bytes());
    out.push(flags);
    out.extend_from_slice(&block.seq.to_le_bytes());
    out.extend_from_slice(&block.offset.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(texts as u64).to_le_bytes());
    let lacks = || Error::internal("a block lacks what was asked for");
    if needs.records {
        for span in block.records.get(rows.clone()).ok_or_else(lacks)? {
            out.extend_from_slice(&span.start.to_le_bytes());
            out.extend_from_slice(&span.len.to_le_bytes());
        }
    }
    for id in &needs.numbers {
        let numbers = block.numbers(*id).get(rows.clone()).ok_or_else(lacks)?;
        numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    }
    for id in &needs.texts {
        let spans = block.texts(*id).and_then(|t| t.spans.get(rows.clone())).ok_or_else(lacks)?;
        spans.iter().for_each(|s| out.extend_from_slice(&s.len.to_le_bytes()));
    }
    for id in &needs.texts {
        let column = block.texts(*id).ok_or_else(lacks)?;
        rows.clone().filter_map(|row| column.get(row)).for_each(|text| out.extend_from_slice(text));
    }
    Ok(())
}

/// Bytes that a block, which satisfies `needs`, takes on its way, but for heads.
pub fn size(block: &Block<'_>, needs: &Needs) -> u64 {
    let texts: usize = match needs.texts.is_empty() {
        true => 0,
        false => (0..block.rows).map(|row| text_bytes(block, row, needs)).sum(),
    };
    (block.rows * row_bytes(needs) + texts) as u64
}

/// Takes numbers off the front of a frame.
struct Front<'f>(&'f [u8]);

impl<'f> Front<'f> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (number, rest) = self.0.split_first_chunk().ok_or_else(malformed)?;
        self.0 = rest;
        Ok(*number)
    }

    /// So many elements of so many bytes each.
    fn array(&mut self, count: usize, size: usize) -> Result<&'f [u8]> {
        let len = count.checked_mul(size).ok_or_else(malformed)?;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or_else(malformed)?;
        self.0 = rest;
        Ok(bytes)
    }
}

fn malformed() -> Error {
    Error::format("columns that another rank has sent are malformed")
}

/// A vector that has come. Its memory serves the next one, too.
#[derive(Debug, Default)]
pub struct Vector {
    source: u32,
    seq: u64,
    offset: u64,
    flags: u8,
    rows: usize,
    records: Vec<Span>,
    numbers: Vec<f64>,
    spans: Vec<Span>,
    text: Vec<u8>,
}

fn number<const N: usize>(bytes: &[u8]) -> [u8; N] {
    bytes.first_chunk().copied().unwrap_or([0; N])
}

impl Vector {
    /// Reads what [`encode`] has made for the same needs. Takes no more memory than `bytes` account for.
    ///
    /// # Errors
    /// `Format` for anything else.
    pub fn decode(&mut self, bytes: &[u8], needs: &Needs) -> Result<()> {
        let mut front = Front(bytes);
        let source = u32::from_le_bytes(front.take()?);
        let [flags] = front.take()?;
        let (seq, offset) = (u64::from_le_bytes(front.take()?), u64::from_le_bytes(front.take()?));
        let rows = usize::try_from(u32::from_le_bytes(front.take()?)).map_err(|_| malformed())?;
        let texts = usize::try_from(u64::from_le_bytes(front.take()?)).map_err(|_| malformed())?;
        // Who looks where records lie adds it up.
        let far = offset.checked_add(u64::from(u32::MAX)).is_none();
        if flags & !(LAST | WHOLE) != 0 || far || refusal(needs).is_some() {
            return Err(malformed());
        }
        let places = front.array(if needs.records { rows } else { 0 }, PLACE)?;
        let count = |columns: usize| rows.checked_mul(columns).ok_or_else(malformed);
        let numbers = front.array(count(needs.numbers.len())?, NUMBER)?;
        let lengths = front.array(count(needs.texts.len())?, LENGTH)?;
        if front.0.len() != texts {
            return Err(malformed());
        }
        self.records.clear();
        self.numbers.clear();
        self.spans.clear();
        self.text.clear();
        (self.source, self.flags, self.seq, self.offset, self.rows) =
            (source, flags, seq, offset, rows);
        self.records.extend(places.chunks_exact(PLACE).map(|p| Span {
            start: u32::from_le_bytes(number(p)),
            len: u32::from_le_bytes(number(&p[LENGTH..])),
        }));
        self.numbers.extend(numbers.chunks_exact(NUMBER).map(|n| f64::from_le_bytes(number(n))));
        let mut start = 0u32;
        for len in lengths.chunks_exact(LENGTH).map(|n| u32::from_le_bytes(number(n))) {
            if len == Span::MISSING.len {
                self.spans.push(Span::MISSING);
                continue;
            }
            self.spans.push(Span { start, len });
            start = start.checked_add(len).ok_or_else(malformed)?;
        }
        if start as usize != texts {
            self.rows = 0;
            return Err(malformed());
        }
        self.text.extend_from_slice(front.0);
        Ok(())
    }

    /// Index of its file in the dataset, which may be one that there is not.
    pub fn source(&self) -> u32 {
        self.source
    }

    /// The block, for the needs that it was decoded for. Its records are places: there are no bytes.
    pub fn block<'b>(&'b self, needs: &'b Needs) -> Block<'b> {
        Block {
            source: self.source,
            seq: self.seq,
            offset: self.offset,
            last: self.flags & LAST != 0,
            whole: self.flags & WHOLE != 0,
            rows: self.rows,
            records: &self.records,
            columns: Columns {
                number_ids: &needs.numbers,
                numbers: &self.numbers,
                text_ids: &needs.texts,
                spans: &self.spans,
                text_data: &self.text,
                stride: self.rows,
            },
            ..Block::empty()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::{Kind, MISSING};

    fn needs(numbers: usize, texts: usize, records: bool) -> Needs {
        let texts = (0..texts).map(|i| 2 * i + 1).collect();
        Needs { records, numbers: (0..numbers).map(|i| 2 * i).collect(), texts, ..Needs::default() }
    }

    /// What a block is made of.
    #[derive(Debug, Clone)]
    struct Made {
        numbers: Vec<f64>,
        spans: Vec<Span>,
        text: Vec<u8>,
        records: Vec<Span>,
        needs: Needs,
        rows: usize,
    }

    impl Made {
        fn block(&self) -> Block<'_> {
            Block {
                source: 3,
                seq: 1 << 40,
                offset: 77,
                last: true,
                whole: false,
                rows: self.rows,
                records: &self.records,
                columns: Columns {
                    number_ids: &self.needs.numbers,
                    numbers: &self.numbers,
                    text_ids: &self.needs.texts,
                    spans: &self.spans,
                    text_data: &self.text,
                    stride: self.rows,
                },
                ..Block::empty()
            }
        }
    }

    fn made() -> impl Strategy<Value = Made> {
        let number = prop_oneof![
            any::<u64>().prop_map(f64::from_bits),
            Just(MISSING),
            Just(-0.0),
            Just(f64::INFINITY)
        ];
        let value = prop::option::of(prop::collection::vec(any::<u8>(), 0..5));
        (0usize..20, 0usize..4, 0usize..3, any::<bool>()).prop_flat_map(
            move |(rows, n, t, records)| {
                let t = t.max(usize::from(n == 0));
                let numbers = prop::collection::vec(number.clone(), rows * n);
                let texts = prop::collection::vec(value.clone(), rows * t);
                let places = prop::collection::vec(any::<(u32, u32)>(), rows);
                (numbers, texts, places).prop_map(move |(numbers, texts, places)| {
                    let mut text = b"before".to_vec();
                    let span = |value: Option<Vec<u8>>| {
                        let Some(value) = value else { return Span::MISSING };
                        let start = text.len() as u32;
                        text.extend_from_slice(&value);
                        Span { start, len: value.len() as u32 }
                    };
                    let spans = texts.into_iter().map(span).collect();
                    let records = places.iter().filter(|_| records);
                    let records =
                        records.map(|(start, len)| Span { start: *start, len: *len }).collect();
                    let needs = needs(n, t, !Vec::is_empty(&records));
                    Made { numbers, spans, text, records, needs, rows }
                })
            },
        )
    }

    type Row = (Vec<u64>, Vec<Option<Vec<u8>>>, Option<Span>);

    fn rows(block: &Block<'_>, needs: &Needs) -> Vec<Row> {
        let text = |id: &usize, row| block.texts(*id).and_then(|t| t.get(row)).map(<[u8]>::to_vec);
        let row = |row: usize| {
            (
                needs.numbers.iter().map(|id| block.numbers(*id)[row].to_bits()).collect(),
                needs.texts.iter().map(|id| text(id, row)).collect(),
                block.records.get(row).copied(),
            )
        };
        (0..block.rows).map(row).collect()
    }

    proptest! {
        #[test]
        fn blocks_come_as_they_went(made in made(), most in 0usize..400) {
            let block = made.block();
            let mut vector = Vector::default();
            let (mut came, mut bytes, mut lasts) = (Vec::new(), 0, 0);
            for part in cut(&block, &made.needs, most) {
                prop_assert!(!part.is_empty());
                let mut frame = Vec::new();
                encode(&block, part.clone(), &made.needs, &mut frame).expect("encode");
                prop_assert!(frame.len() <= most || part.len() == 1);
                bytes += frame.len() - HEAD;
                vector.decode(&frame, &made.needs).expect("decode");
                let got = vector.block(&made.needs);
                prop_assert_eq!((vector.source(), got.seq, got.offset, got.whole), (3, 1 << 40, 77, false));
                lasts += usize::from(got.last);
                came.extend(rows(&got, &made.needs));
            }
            prop_assert_eq!(came, rows(&block, &made.needs));
            prop_assert_eq!((bytes as u64, lasts), (size(&block, &made.needs), made.rows.min(1)));
        }

        #[test]
        fn what_is_malformed_is_an_error(
            made in made(), edits in prop::collection::vec((any::<u8>(), any::<prop::sample::Index>(), any::<u8>()), 1..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let block = made.block();
            let mut frame = Vec::new();
            encode(&block, 0..block.rows, &made.needs, &mut frame).expect("encode");
            let mut vector = Vector::default();
            let short = &frame[..cut.index(frame.len())];
            prop_assert_eq!(vector.decode(short, &made.needs).expect_err("short").kind(), Kind::Format);
            for (how, at, byte) in edits {
                let at = at.index(frame.len());
                match how % 3 {
                    0 => frame.insert(at, byte),
                    1 if frame.len() > 1 => drop(frame.remove(at)),
                    _ => frame[at] = byte,
                }
            }
            // Whatever it is, all that it has can be looked at.
            match vector.decode(&frame, &made.needs) {
                Ok(()) => drop(rows(&vector.block(&made.needs), &made.needs)),
                Err(e) => prop_assert_eq!(e.kind(), Kind::Format),
            }
        }
    }

    #[test]
    fn what_takes_more_than_there_is_takes_no_memory() {
        let needs = needs(2, 1, true);
        let mut head = vec![0u8; HEAD];
        head[21..25].copy_from_slice(&u32::MAX.to_le_bytes());
        let e = Vector::default().decode(&head, &needs).expect_err("no rows");
        assert_eq!(e.kind(), Kind::Format);
        head[25..].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(Vector::default().decode(&head, &needs).is_err());
        // Nobody asked.
        assert!(Vector::default().decode(&[0; HEAD], &Needs::default()).is_err());
    }

    #[test]
    fn only_columns_go() {
        let numbers = needs(1, 0, false);
        assert_eq!(refusal(&numbers), None);
        assert_eq!(refusal(&needs(0, 1, true)), None);
        for (bad, says) in [
            (Needs { bytes: true, ..numbers.clone() }, "bytes"),
            (Needs { brick: Some(1), ..numbers.clone() }, "bricks"),
            (Needs { matrix: true, ..numbers }, "whole rows"),
            (Needs { rows: true, ..Needs::default() }, "no columns"),
        ] {
            assert!(refusal(&bad).is_some_and(|why| why.contains(says)));
        }
    }
}
