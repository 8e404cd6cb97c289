//! The numbers of groups by their keys.

use super::{Column, Key, Part, key_of, partition, parts, sortable, write_key};
use ahash::RandomState;
use stead_core::{Block, Error, Result, limits};

/// Numbers keys from 0 in the order in which they come.
///
/// A table of slots with linear probing. One column of numbers, where groups are many most often, has its key in the
/// slot. Hashes are keyed at random, so that data cannot be made to collide; no answer depends on it.
pub struct Index {
    hasher: RandomState,
    /// A power of two of them, at most three quarters taken.
    slots: Vec<Slot>,
    keys: Keys,
    /// Keys of the rows of a block, and the numbers of a block's own groups.
    scratch: Vec<u64>,
}

#[derive(Clone, Copy)]
struct Slot {
    /// The key itself, or the hash of its bytes.
    tag: u64,
    /// Number of the group, or `FREE`.
    id: u32,
}

const FREE: u32 = u32::MAX;

enum Keys {
    /// [`sortable`] bits of one column.
    Numbers(Vec<u64>),
    /// Keys as bytes ([`write_key`]) and where each ends.
    Bytes { data: Vec<u8>, ends: Vec<usize> },
}

/// Rows whose slots are looked at together, so that their cache misses overlap.
const TOGETHER: usize = 32;
/// Slots of an empty table.
const FIRST: usize = 64;

impl Index {
    /// No groups so far, by these columns.
    pub fn new(by: &[Column]) -> Index {
        let keys = match by {
            [Column::Number(_)] => Keys::Numbers(Vec::new()),
            _ => Keys::Bytes { data: Vec::new(), ends: Vec::new() },
        };
        let slots = vec![Slot { tag: 0, id: FREE }; FIRST];
        Index { hasher: RandomState::new(), slots, keys, scratch: Vec::new() }
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        match &self.keys {
            Keys::Numbers(k) => k.len(),
            Keys::Bytes { ends, .. } => ends.len(),
        }
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        let keys = match &self.keys {
            Keys::Numbers(k) => k.capacity() * size_of::<u64>(),
            Keys::Bytes { data, ends } => data.capacity() + ends.capacity() * size_of::<usize>(),
        };
        size_of::<Index>() + self.slots.capacity() * size_of::<Slot>() + keys
    }

    /// The group of each row of a block.
    pub fn rows(&mut self, by: &[Column], block: &Block<'_>, ids: &mut Vec<u32>) -> Result<()> {
        ids.clear();
        if let ([Column::Number(i)], Keys::Numbers(_)) = (by, &self.keys) {
            let mut keys = std::mem::take(&mut self.scratch);
            keys.clear();
            keys.extend(block.numbers(*i).iter().map(|x| sortable(*x)));
            let done = self.numbers(&keys, ids);
            self.scratch = keys;
            return done;
        }
        // Text repeats itself within a block as a rule.
        let (local, firsts) = partition(by, block)?;
        let mut key = Vec::new();
        let mut known = Vec::with_capacity(firsts.len());
        for row in firsts {
            key.clear();
            write_key(by, block, row, &mut key)?;
            known.push(self.text(&key)?);
        }
        ids.extend(local.iter().filter_map(|l| known.get(*l as usize)));
        Ok(())
    }

    /// The group with this key, and whether it is a new one.
    pub fn insert(&mut self, key: &Key) -> Result<(u32, bool)> {
        let before = self.len();
        let id = match (&self.keys, key.as_slice()) {
            (Keys::Numbers(_), [Part::Number(n)]) => self.number(*n)?,
            (Keys::Numbers(_), [Part::Missing]) => self.number(u64::MAX)?,
            (Keys::Numbers(_), _) => {
                return Err(Error::format("a group of a column of numbers is no number"));
            }
            (Keys::Bytes { .. }, _) => self.text(&key_of(key))?,
        };
        Ok((id, self.len() > before))
    }

    /// Adds the groups of another one: the number here of each group there.
    pub fn absorb(&mut self, other: &Index) -> Result<Vec<u32>> {
        let mut to = Vec::with_capacity(other.len());
        match &other.keys {
            Keys::Numbers(keys) => self.numbers(keys, &mut to)?,
            Keys::Bytes { .. } => {
                for i in 0..other.len() {
                    to.push(self.text(other.bytes_of(i))?);
                }
            }
        }
        Ok(to)
    }

    /// The groups in the order of their keys.
    pub fn sorted(&self) -> Vec<u32> {
        // There are at most `limits::MAX_GROUPS`.
        let ids = 0..self.len() as u32;
        match &self.keys {
            Keys::Numbers(keys) => {
                let mut pairs: Vec<(u64, u32)> = keys.iter().copied().zip(ids).collect();
                pairs.sort_unstable();
                pairs.into_iter().map(|p| p.1).collect()
            }
            Keys::Bytes { .. } => {
                let mut ids: Vec<u32> = ids.collect();
                ids.sort_unstable_by_key(|i| self.bytes_of(*i as usize));
                ids
            }
        }
    }

    /// The values of a group.
    pub fn key(&self, i: usize) -> Result<Key> {
        match &self.keys {
            Keys::Numbers(keys) => match keys.get(i) {
                Some(&u64::MAX) => Ok(vec![Part::Missing]),
                Some(n) => Ok(vec![Part::Number(*n)]),
                None => Err(Error::internal("a group has no key")),
            },
            Keys::Bytes { .. } => parts(self.bytes_of(i)),
        }
    }

    fn bytes_of(&self, i: usize) -> &[u8] {
        match &self.keys {
            Keys::Bytes { data, ends } => {
                let from = i.checked_sub(1).and_then(|i| ends.get(i)).copied().unwrap_or(0);
                ends.get(i).and_then(|to| data.get(from..*to)).unwrap_or_default()
            }
            Keys::Numbers(_) => &[],
        }
    }

    /// Appends the group of each key of one column of numbers.
    fn numbers(&mut self, keys: &[u64], ids: &mut Vec<u32>) -> Result<()> {
        ids.reserve(keys.len());
        for keys in keys.chunks(TOGETHER) {
            let mask = self.slots.len() - 1;
            let mut likely = [Slot { tag: 0, id: FREE }; TOGETHER];
            for (slot, key) in likely.iter_mut().zip(keys) {
                *slot = self.slots[self.hasher.hash_one(*key) as usize & mask];
            }
            for (slot, key) in likely.iter().zip(keys) {
                // Numbers never change, so what was found is right even if the table has grown since.
                ids.push(match slot.tag == *key && slot.id != FREE {
                    true => slot.id,
                    false => self.number(*key)?,
                });
            }
        }
        Ok(())
    }

    fn number(&mut self, key: u64) -> Result<u32> {
        let mut at = self.hasher.hash_one(key) as usize;
        loop {
            at &= self.slots.len() - 1;
            let slot = self.slots[at];
            if slot.id == FREE {
                break;
            }
            if slot.tag == key {
                return Ok(slot.id);
            }
            at += 1;
        }
        let id = self.next()?;
        if let Keys::Numbers(keys) = &mut self.keys {
            keys.push(key);
        }
        self.take(at, Slot { tag: key, id });
        Ok(id)
    }

    fn text(&mut self, key: &[u8]) -> Result<u32> {
        let tag = self.hasher.hash_one(key);
        let mut at = tag as usize;
        loop {
            at &= self.slots.len() - 1;
            let slot = self.slots[at];
            if slot.id == FREE {
                break;
            }
            if slot.tag == tag && self.bytes_of(slot.id as usize) == key {
                return Ok(slot.id);
            }
            at += 1;
        }
        let id = self.next()?;
        if let Keys::Bytes { data, ends } = &mut self.keys {
            data.extend_from_slice(key);
            ends.push(data.len());
        }
        self.take(at, Slot { tag, id });
        Ok(id)
    }

    /// The number of a new group.
    fn next(&self) -> Result<u32> {
        match u32::try_from(self.len()) {
            Ok(id) if self.len() < limits::MAX_GROUPS => Ok(id),
            _ => Err(Error::limit(format!("more than {} groups", limits::MAX_GROUPS))
                .with_hint("group by a column with fewer values, or keep fewer rows with --where")),
        }
    }

    /// Takes a free slot, and doubles the table if it gets full.
    fn take(&mut self, at: usize, slot: Slot) {
        self.slots[at] = slot;
        if self.len() * 4 < self.slots.len() * 3 {
            return;
        }
        let larger = vec![Slot { tag: 0, id: FREE }; self.slots.len() * 2];
        let mask = larger.len() - 1;
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.id != FREE {
                let hash = match &self.keys {
                    Keys::Numbers(_) => self.hasher.hash_one(slot.tag),
                    Keys::Bytes { .. } => slot.tag,
                };
                let mut at = hash as usize & mask;
                while self.slots[at].id != FREE {
                    at = (at + 1) & mask;
                }
                self.slots[at] = slot;
            }
        }
    }
}
