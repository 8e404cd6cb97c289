//! The groups of rows with the same values in some columns: their keys, and the table of their states.

mod index;

pub use index::Index;

use crate::{AnyKernel, AnyState};
use ahash::RandomState;
use memchr::memchr;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::Hash;
use stead_core::{Block, Error, Result, is_missing};

/// A grouping column, by its schema index.
#[derive(Clone, Copy)]
pub enum Column {
    Number(usize),
    Text(usize),
}

/// The values of a group in the grouping columns. Keys sort as groups are shown.
pub type Key = Vec<Part>;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// The bits of a double, rearranged so that they sort as the numbers do.
    Number(u64),
    Text(Vec<u8>),
    Missing,
}

const NUMBER: u8 = 0;
const TEXT: u8 = 1;
const MISSING_PART: u8 = 2;

/// State of rounds after the first, where each group has a kernel of its own: one of that for each group.
pub struct Groups {
    /// Keys as bytes ([`write_key`]), with the index of their states. Keyed at random, so that data cannot be
    /// made to collide; no answer depends on it.
    index: HashMap<Box<[u8]>, u32, RandomState>,
    states: Vec<AnyState>,
    /// What keys and states take.
    bytes: usize,
}

impl Default for Groups {
    fn default() -> Self {
        Groups { index: HashMap::default(), states: Vec::new(), bytes: size_of::<Groups>() }
    }
}

/// Share of the table, of the boxes around key and state and of what the allocator adds.
const ENTRY_BYTES: usize = 96;

impl Groups {
    /// Number of groups.
    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Bytes that they take.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of the group with this key.
    pub fn find(&self, key: &[u8]) -> Option<usize> {
        self.index.get(key).map(|i| *i as usize)
    }

    /// Adds a group that is not there yet, whose state takes so many bytes; gives its number.
    pub fn insert(&mut self, key: &[u8], state: AnyState, bytes: usize) -> usize {
        let i = self.states.len();
        // There are at most `limits::MAX_GROUPS`.
        self.index.insert(key.into(), i as u32);
        self.states.push(state);
        self.bytes += ENTRY_BYTES + key.len() + bytes;
        i
    }

    /// Changes the state of group `i`, which is one of `kernel`.
    pub fn change(
        &mut self,
        i: usize,
        kernel: &dyn AnyKernel,
        change: impl FnOnce(&mut AnyState) -> Result<()>,
    ) -> Result<()> {
        let Some(state) = self.states.get_mut(i) else {
            return Err(Error::internal("a group has no state"));
        };
        let before = kernel.state_bytes(state);
        change(state)?;
        self.bytes = (self.bytes + kernel.state_bytes(state)).saturating_sub(before);
        Ok(())
    }

    /// Keys and states, in no particular order.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &AnyState)> {
        self.index.iter().filter_map(|(k, i)| Some((&**k, self.states.get(*i as usize)?)))
    }

    /// Keys and states, in no particular order.
    pub fn into_entries(self) -> impl Iterator<Item = (Box<[u8]>, AnyState)> {
        let mut states: Vec<Option<AnyState>> = self.states.into_iter().map(Some).collect();
        let take = move |(k, i): (Box<[u8]>, u32)| Some((k, states.get_mut(i as usize)?.take()?));
        self.index.into_iter().filter_map(take)
    }
}

/// Appends the key of a row, as bytes.
pub fn write_key(by: &[Column], block: &Block<'_>, row: usize, key: &mut Vec<u8>) -> Result<()> {
    for column in by {
        match *column {
            Column::Number(i) => {
                let x = *block.numbers(i).get(row).ok_or_else(not_there)?;
                write_part(
                    &if is_missing(x) { Part::Missing } else { Part::Number(sortable(x)) },
                    key,
                );
            }
            Column::Text(i) => match group_text(block, i, row)? {
                None => key.push(MISSING_PART),
                Some(text) => write_text(text, key),
            },
        }
    }
    Ok(())
}

/// The text by which a row is grouped; `None` if it is missing.
fn group_text<'a>(block: &Block<'a>, column: usize, row: usize) -> Result<Option<&'a [u8]>> {
    let texts = block.texts(column).ok_or_else(not_there)?;
    if row >= texts.spans.len() {
        return Err(not_there());
    }
    Ok(texts.get(row).filter(|s| *s != b"NA"))
}

/// A zero is followed by 0xFF, the end is two zeros: so keys sort as their texts do.
fn write_text(text: &[u8], key: &mut Vec<u8>) {
    key.push(TEXT);
    let mut rest = text;
    while let Some(n) = memchr(0, rest) {
        key.extend_from_slice(&rest[..=n]);
        key.push(0xFF);
        rest = &rest[n + 1..];
    }
    key.extend_from_slice(rest);
    key.extend_from_slice(&[0, 0]);
}

fn write_part(part: &Part, key: &mut Vec<u8>) {
    match part {
        Part::Missing => key.push(MISSING_PART),
        Part::Number(n) => {
            key.push(NUMBER);
            key.extend_from_slice(&n.to_be_bytes());
        }
        Part::Text(text) => write_text(text, key),
    }
}

/// A key as bytes, which sort as the keys do.
pub fn key_of(parts: &Key) -> Vec<u8> {
    let mut key = Vec::new();
    parts.iter().for_each(|p| write_part(p, &mut key));
    key
}

/// The parts of a key of bytes.
pub fn parts(mut key: &[u8]) -> Result<Key> {
    let mut parts = Key::new();
    let torn = || Error::internal("a group has no proper key");
    while let Some((kind, rest)) = key.split_first() {
        key = match *kind {
            NUMBER => {
                let (n, rest) = rest.split_first_chunk().ok_or_else(torn)?;
                parts.push(Part::Number(u64::from_be_bytes(*n)));
                rest
            }
            TEXT => {
                let mut text = Vec::new();
                let mut rest = rest;
                loop {
                    let n = memchr(0, rest).ok_or_else(torn)?;
                    text.extend_from_slice(&rest[..n]);
                    let more = *rest.get(n + 1).ok_or_else(torn)? != 0;
                    rest = &rest[n + 2..];
                    if !more {
                        break;
                    }
                    text.push(0);
                }
                parts.push(Part::Text(text));
                rest
            }
            _ => {
                parts.push(Part::Missing);
                rest
            }
        };
    }
    Ok(parts)
}

/// Numbers the groups of a block in order of appearance: the group of each row, and the first row of each.
pub fn partition(by: &[Column], block: &Block<'_>) -> Result<(Vec<u32>, Vec<usize>)> {
    let mut groups: Option<(Vec<u32>, Vec<usize>)> = None;
    for column in by {
        let (values, firsts) = match *column {
            Column::Number(i) => distinct(block.numbers(i).iter().map(|x| sortable(*x))),
            Column::Text(i) => {
                let Some(t) = block.texts(i) else { return Err(not_there()) };
                distinct((0..block.rows).map(|row| t.get(row).filter(|s| *s != b"NA")))
            }
        };
        if values.len() != block.rows {
            return Err(not_there());
        }
        groups = Some(match groups {
            None => (values, firsts),
            // Groups so far, split by the values of this column.
            Some((ids, _)) => distinct(ids.iter().copied().zip(values.iter().copied())),
        });
    }
    Ok(groups.unwrap_or_default())
}

fn not_there() -> Error {
    Error::internal("a block came without the columns to group by")
}

/// Numbers distinct values in order of appearance: the number of each, and where each came first.
fn distinct<T: Copy + Eq + Hash>(values: impl Iterator<Item = T>) -> (Vec<u32>, Vec<usize>) {
    let mut seen: HashMap<T, u32, RandomState> = HashMap::default();
    let mut firsts = Vec::new();
    let mut last = None;
    let mut ids = Vec::with_capacity(values.size_hint().0);
    for (row, v) in values.enumerate() {
        // Sorted and nearly sorted data mostly repeat the value before.
        let id = match last {
            Some((l, id)) if l == v => id,
            _ => *seen.entry(v).or_insert_with(|| {
                firsts.push(row);
                // A block has fewer than 2^32 rows.
                (firsts.len() - 1) as u32
            }),
        };
        last = Some((v, id));
        ids.push(id);
    }
    (ids, firsts)
}

/// Row numbers sorted by group, stable, and where each of the `n` groups starts.
pub fn sort_by_id(ids: &[u32], n: usize) -> (Vec<u32>, Vec<usize>) {
    let mut starts = vec![0usize; n + 1];
    ids.iter().for_each(|id| starts[*id as usize + 1] += 1);
    for i in 0..n {
        starts[i + 1] += starts[i];
    }
    let mut next = starts.clone();
    let mut order = vec![0u32; ids.len()];
    for (row, id) in ids.iter().enumerate() {
        let at = &mut next[*id as usize];
        order[*at] = row as u32;
        *at += 1;
    }
    (order, starts)
}

/// Bits that are equal for equal numbers (0 and -0, all NaN, all missing) and sort as the numbers do.
pub fn sortable(x: f64) -> u64 {
    let x = match x {
        x if is_missing(x) => return u64::MAX,
        x if x.is_nan() => f64::NAN,
        // -0.0 becomes 0.0.
        x => x + 0.0,
    };
    let bits = x.to_bits();
    if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
}

/// The number of [`sortable`] bits.
pub fn number(sortable: u64) -> f64 {
    f64::from_bits(if sortable >> 63 == 1 { sortable & !(1 << 63) } else { !sortable })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![
            any::<u64>().prop_map(Part::Number),
            prop::collection::vec(prop_oneof![any::<u8>(), 0..2u8], 0..9).prop_map(Part::Text),
            Just(Part::Missing),
        ]
    }

    proptest! {
        #[test]
        fn keys_come_back_from_their_bytes_and_sort_as_they_do(
            a in prop::collection::vec(part(), 0..4),
            b in prop::collection::vec(part(), 0..4),
        ) {
            let (bytes, other) = (key_of(&a), key_of(&b));
            prop_assert_eq!(parts(&bytes)?, a.clone());
            prop_assert_eq!(bytes.cmp(&other), a.cmp(&b));
            for n in 0..bytes.len() {
                // A cut key is refused or another key; it does not panic.
                if let Ok(cut) = parts(&bytes[..n]) {
                    prop_assert!(cut.len() < a.len());
                }
            }
        }
    }

    #[test]
    fn bytes_of_states_are_counted_as_they_change() {
        let mut groups = Groups::default();
        let empty = groups.bytes();
        let a = groups.insert(b"a", Box::new(1u64), 8);
        assert_eq!((a, groups.find(b"a"), groups.find(b"b"), groups.len()), (0, Some(0), None, 1));
        assert!(groups.bytes() >= empty + 9);
        let all: Vec<_> = groups.into_entries().map(|(k, _)| k).collect();
        assert_eq!(all, [b"a"[..].into()]);
    }
}
