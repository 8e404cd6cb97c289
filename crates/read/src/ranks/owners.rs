//! Which rank reads which bytes: pure, and the same on all ranks, as all see the same sessions in the same order.
//!
//! What a session is the first to cover is cut into as many runs of bytes as there are readers, in their order; so a rank
//! that asks for its share of the range, as programs mostly do, asks for bytes of its own node. Bytes keep their reader
//! for good: later sessions find them where earlier ones left them.

use std::ops::Range;

/// A run of bytes with one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) bytes: Range<u64>,
    pub(crate) reader: usize,
}

/// All runs so far, in the order of the file.
#[derive(Debug, Clone, Default)]
pub(crate) struct Owners {
    parts: Vec<Part>,
}

impl Owners {
    /// Gives the bytes of a range that have no reader yet to `readers`, cut at multiples of `align`.
    pub(crate) fn assign(&mut self, range: Range<u64>, readers: &[usize], align: u64) {
        let mut gaps = Vec::new();
        let mut from = range.start;
        for part in &self.parts {
            if part.bytes.start >= range.end {
                break;
            }
            if part.bytes.start > from {
                gaps.push(from..part.bytes.start);
            }
            from = from.max(part.bytes.end);
        }
        if from < range.end {
            gaps.push(from..range.end);
        }
        for gap in gaps {
            self.parts.extend(cut(gap, readers, align));
        }
        self.parts.sort_by_key(|p| p.bytes.start);
        self.parts.dedup_by(|next, last| {
            let joins = last.reader == next.reader && last.bytes.end == next.bytes.start;
            if joins {
                last.bytes.end = next.bytes.end;
            }
            joins
        });
    }

    /// The parts of a range, in order. Bytes without a reader are left out.
    pub(crate) fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Part> + '_ {
        let first = self.parts.partition_point(|p| p.bytes.end <= range.start);
        let (start, end) = (range.start, range.end);
        self.parts[first..].iter().take_while(move |p| p.bytes.start < end).map(move |p| Part {
            bytes: p.bytes.start.max(start)..p.bytes.end.min(end),
            reader: p.reader,
        })
    }
}

/// Runs of nearly equal length, one for each reader as far as there are enough bytes.
fn cut(gap: Range<u64>, readers: &[usize], align: u64) -> Vec<Part> {
    let count = readers.len().max(1) as u64;
    let share = (gap.end - gap.start).div_ceil(count).max(1);
    let mut parts = Vec::new();
    let mut from = gap.start;
    for (i, reader) in readers.iter().enumerate() {
        let to = if i + 1 == readers.len() {
            gap.end
        } else {
            let to = gap.start.saturating_add(share.saturating_mul(i as u64 + 1));
            to.checked_next_multiple_of(align).unwrap_or(gap.end).min(gap.end)
        };
        if from < to {
            parts.push(Part { bytes: from..to, reader: *reader });
            from = to;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ranges_are_shared_in_order() {
        let mut o = Owners::default();
        o.assign(0..100, &[0, 2], 10);
        assert_eq!(
            o.parts(45..65).collect::<Vec<_>>(),
            [Part { bytes: 45..50, reader: 0 }, Part { bytes: 50..65, reader: 2 }]
        );
        // What is covered already stays; the rest is cut anew.
        o.assign(90..130, &[0, 2], 10);
        assert_eq!(
            o.parts(90..200).map(|p| (p.bytes, p.reader)).collect::<Vec<_>>(),
            [(90..100, 2), (100..120, 0), (120..130, 2)]
        );
    }

    proptest! {
        #[test]
        fn each_byte_has_one_reader_for_good(
            sessions in prop::collection::vec((0..500u64, 0..500u64), 0..20),
            readers in 1..5usize,
            align in 1..70u64,
        ) {
            let readers: Vec<usize> = (0..readers).map(|r| r * 3).collect();
            let mut o = Owners::default();
            let mut known = [None; 500];
            for (a, b) in sessions {
                let range = a.min(b)..a.max(b);
                o.assign(range.clone(), &readers, align);
                let mut at = range.start;
                for part in o.parts(range.clone()) {
                    prop_assert_eq!(part.bytes.start, at);
                    at = part.bytes.end;
                    prop_assert!(readers.contains(&part.reader));
                    for byte in part.bytes {
                        let k = &mut known[byte as usize];
                        prop_assert!(k.is_none_or(|r| r == part.reader));
                        *k = Some(part.reader);
                    }
                }
                prop_assert_eq!(at, range.end.max(range.start));
            }
        }
    }
}
