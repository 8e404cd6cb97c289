//! What ranks say to each other while a file is open.

use stead_core::{Error, Kind, Result};
use stead_fabric::kinds;

/// A message. `id` is the asker's name for a request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Message<'a> {
    /// Wants bytes of the file.
    Ask { id: u64, offset: u64, len: u64 },
    /// Here they are.
    Bytes { id: u64, bytes: &'a [u8] },
    /// They cannot be had.
    Fail { id: u64, kind: Kind, text: &'a str },
    /// Wants nothing more.
    Done,
}

/// Bytes before those of the file in [`Message::Bytes`].
pub(crate) const BEFORE: usize = 9;

impl Message<'_> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (sort, id) = match self {
            Message::Ask { id, .. } => (0, *id),
            Message::Bytes { id, .. } => (1, *id),
            Message::Fail { id, .. } => (2, *id),
            Message::Done => (3, 0),
        };
        let mut out = Vec::with_capacity(match self {
            Message::Bytes { bytes, .. } => BEFORE + bytes.len(),
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
            Message::Done => {}
        }
        out
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
        0 => {
            let (offset, rest) = rest.split_first_chunk()?;
            let len = <[u8; 8]>::try_from(rest).ok()?;
            Message::Ask { id, offset: u64::from_le_bytes(*offset), len: u64::from_le_bytes(len) }
        }
        1 => Message::Bytes { id, bytes: rest },
        2 => {
            let (number, text) = rest.split_first()?;
            Message::Fail { id, kind: kinds::kind(*number), text: std::str::from_utf8(text).ok()? }
        }
        3 => Message::Done,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_are_read_as_they_were_written() {
        let messages = [
            Message::Ask { id: 7, offset: u64::MAX, len: 5 },
            Message::Bytes { id: 8, bytes: b"abc" },
            Message::Fail { id: 9, kind: Kind::Changed, text: "so" },
            Message::Done,
        ];
        for m in messages {
            assert_eq!(Message::decode(&m.encode()).unwrap(), m);
        }
        assert_eq!(Message::Bytes { id: 1, bytes: &[] }.encode().len(), BEFORE);
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
