//! What ranks say to each other while a file is open.

use stead_core::{Error, Kind, Result};
use stead_fabric::kinds;

/// A message. `id` is the asker's name for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// Wants bytes of the file, and can look at the memory of the rank that has them if `lend` is set.
    Ask { id: u64, offset: u64, len: u64, lend: bool },
    /// Here they are.
    Bytes { id: u64, bytes: &'a [u8] },
    /// They cannot be had.
    Fail { id: u64, kind: Kind, text: &'a str },
    /// Wants nothing more.
    Done,
    /// They lie there in the segment of the sender, and stay until this loan is given back.
    Lend { id: u64, number: u64, at: u64, len: u64 },
    /// Gives loans back.
    Return { numbers: Numbers<'a> },
    /// Wants back what is only kept and not looked at.
    Press,
}

/// Numbers of loans, as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbers<'a>(&'a [[u8; 8]]);

impl Numbers<'_> {
    pub(crate) fn iter(self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|n| u64::from_le_bytes(*n))
    }
}

/// Bytes before those of the file in [`Message::Bytes`].
pub(crate) const BEFORE: usize = 9;

impl Message<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (sort, id) = match self {
            Message::Ask { id, lend: false, .. } => (0, *id),
            Message::Bytes { id, .. } => (1, *id),
            Message::Fail { id, .. } => (2, *id),
            Message::Done => (3, 0),
            Message::Ask { id, lend: true, .. } => (4, *id),
            Message::Lend { id, .. } => (5, *id),
            Message::Return { .. } => (6, 0),
            Message::Press => (7, 0),
        };
        let mut out = Vec::with_capacity(match self {
            Message::Bytes { bytes, .. } => BEFORE + bytes.len(),
            Message::Return { numbers } => BEFORE + size_of_val(numbers.0),
            _ => 64,
        });
        out.push(sort);
        out.extend_from_slice(&id.to_le_bytes());
        match self {
            Message::Ask { offset, len, .. } => {
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&len.to_le_bytes());
            }
            Message::Bytes { bytes, .. } => out.extend_from_slice(bytes),
            Message::Fail { kind, text, .. } => {
                out.push(kinds::number(*kind));
                out.extend_from_slice(text.as_bytes());
            }
            Message::Lend { number, at, len, .. } => {
                for n in [number, at, len] {
                    out.extend_from_slice(&n.to_le_bytes());
                }
            }
            Message::Return { numbers } => out.extend_from_slice(numbers.0.as_flattened()),
            Message::Done | Message::Press => {}
        }
        out
    }

    /// A message that gives loans back.
    pub(crate) fn give_back(numbers: &[u64]) -> Vec<u8> {
        let numbers: Vec<[u8; 8]> = numbers.iter().map(|n| n.to_le_bytes()).collect();
        Message::Return { numbers: Numbers(&numbers) }.encode()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Message<'_>> {
        parse(bytes).ok_or_else(|| Error::format("a message from another rank is malformed"))
    }
}

fn parse(bytes: &[u8]) -> Option<Message<'_>> {
    let (sort, rest) = bytes.split_first()?;
    let (id, rest) = rest.split_first_chunk()?;
    let id = u64::from_le_bytes(*id);
    Some(match sort {
        0 | 4 => {
            let [offset, len] = numbers(rest)?;
            Message::Ask { id, offset, len, lend: *sort == 4 }
        }
        1 => Message::Bytes { id, bytes: rest },
        2 => {
            let (number, text) = rest.split_first()?;
            Message::Fail { id, kind: kinds::kind(*number), text: std::str::from_utf8(text).ok()? }
        }
        3 => Message::Done,
        5 => {
            let [number, at, len] = numbers(rest)?;
            Message::Lend { id, number, at, len }
        }
        6 => match rest.as_chunks() {
            (numbers, []) => Message::Return { numbers: Numbers(numbers) },
            _ => return None,
        },
        7 => Message::Press,
        _ => return None,
    })
}

/// So many numbers, and nothing else.
fn numbers<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (numbers, rest) = bytes.as_chunks();
    let numbers = <[[u8; 8]; N]>::try_from(numbers).ok()?;
    rest.is_empty().then_some(numbers.map(u64::from_le_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let messages = [
            Message::Ask { id: 7, offset: u64::MAX, len: 5, lend: false },
            Message::Ask { id: 7, offset: 0, len: u64::MAX, lend: true },
            Message::Lend { id: 1, number: 2, at: u64::MAX, len: 3 },
            Message::Return { numbers: Numbers(&[[1; 8], [2; 8]]) },
            Message::Press,
            Message::Bytes { id: 8, bytes: b"abc" },
            Message::Fail { id: 9, kind: Kind::Changed, text: "so" },
            Message::Done,
        ];
        for m in messages {
            assert_eq!(Message::decode(&m.encode()).unwrap(), m);
        }
        assert_eq!(Message::Bytes { id: 1, bytes: &[] }.encode().len(), BEFORE);
        let back = Message::give_back(&[7, u64::MAX]);
        let Message::Return { numbers } = Message::decode(&back).unwrap() else { panic!() };
        assert_eq!(numbers.iter().collect::<Vec<_>>(), [7, u64::MAX]);
    }

    proptest! {
        #[test]
        fn bytes_of_any_kind_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(m) = Message::decode(&bytes) {
                let again = m.encode();
                prop_assert_eq!(Message::decode(&again).unwrap(), m);
            }
        }
    }
}
