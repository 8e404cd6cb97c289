//! What daemons of a pool say to each other: ten bytes that name a tunnel, and what is said about it.

use stead_core::{Error, Result, limits};

/// Bytes before what is said.
pub const HEAD: usize = 10;
/// Bytes of one word: what programs say is cut into such pieces.
pub const CHUNK: usize = 256 << 10;
/// Bytes of the name of a user.
const MOST_NAME: usize = limits::MAX_NODE_BYTES;

/// How words begin.
const OPEN: u8 = 1;
const DATA: u8 = 2;
const CREDIT: u8 = 3;
const CLOSE: u8 = 4;

/// What is said about a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Word<'a> {
    /// A connection to the worker of this user is wanted: the number and the name, which are to belong together on both nodes.
    Open {
        /// The number.
        user: u32,
        /// The name; empty if the system has none.
        name: &'a str,
    },
    /// Bytes.
    Data(&'a [u8]),
    /// So many bytes have been passed on: so many more may come.
    Credit(u32),
    /// Nothing more comes, and nothing is taken any more.
    Close,
}

/// A word about the tunnel of this number, which is one of whoever opened it: of the sender if `mine`.
pub fn write(mine: bool, number: u64, word: &Word<'_>) -> Vec<u8> {
    let of = |kind| head(kind, mine, number);
    match word {
        Word::Open { user, name } => [&of(OPEN), &user.to_le_bytes()[..], name.as_bytes()].concat(),
        Word::Data(data) => [&of(DATA), *data].concat(),
        Word::Credit(more) => [&of(CREDIT), &more.to_le_bytes()[..]].concat(),
        Word::Close => of(CLOSE).to_vec(),
    }
}

/// Makes the first [`HEAD`] bytes those of a word whose bytes the others are.
pub fn head_of_data(bytes: &mut [u8], mine: bool, number: u64) {
    if let Some(first) = bytes.first_chunk_mut() {
        *first = head(DATA, mine, number);
    }
}

fn head(kind: u8, mine: bool, number: u64) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    let [first, second, rest @ ..] = &mut head;
    (*first, *second, *rest) = (kind, u8::from(mine), number.to_le_bytes());
    head
}

/// Reads one: whether the sender has opened the tunnel, its number, and what is said.
///
/// # Errors
/// `Format`.
pub fn read(bytes: &[u8]) -> Result<(bool, u64, Word<'_>)> {
    let odd = || Error::format("a daemon of the pool says what is not understood");
    let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or_else(odd)?;
    let [kind, mine, number @ ..] = *head;
    let mine = match mine {
        0 => false,
        1 => true,
        _ => return Err(odd()),
    };
    let number = u64::from_le_bytes(number);
    let word = match kind {
        OPEN => {
            let (user, name) = rest.split_first_chunk::<4>().ok_or_else(odd)?;
            let name = std::str::from_utf8(name).map_err(|_| odd())?;
            if name.len() > MOST_NAME {
                return Err(odd());
            }
            Word::Open { user: u32::from_le_bytes(*user), name }
        }
        DATA if (1..=CHUNK).contains(&rest.len()) => Word::Data(rest),
        CREDIT => Word::Credit(u32::from_le_bytes(rest.try_into().map_err(|_| odd())?)),
        CLOSE if rest.is_empty() => Word::Close,
        _ => return Err(odd()),
    };
    Ok((mine, number, word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn words_are_read_as_they_were_written(
            mine in any::<bool>(), number in any::<u64>(), user in any::<u32>(), name in "[a-z]{0,20}",
            data in proptest::collection::vec(any::<u8>(), 1..100),
        ) {
            let words = [Word::Open { user, name: &name }, Word::Data(&data), Word::Credit(user), Word::Close];
            for word in words {
                let bytes = write(mine, number, &word);
                prop_assert_eq!(read(&bytes).unwrap(), (mine, number, word.clone()));
                if let Word::Data(data) = word {
                    let mut made = [&[7; HEAD][..], data].concat();
                    head_of_data(&mut made, mine, number);
                    prop_assert_eq!(&made, &bytes);
                }
                // What is cut off within its numbers is none.
                let cut = read(&bytes[..bytes.len().min(HEAD + 3) - 1]);
                prop_assert!(matches!(word, Word::Data(_)) || cut.is_err());
            }
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok((mine, number, word)) = read(&bytes) {
                prop_assert_eq!(write(mine, number, &word), bytes);
            }
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        assert!(read(&write(true, 1, &Word::Data(&vec![0; CHUNK + 1]))).is_err());
        assert!(read(&write(true, 1, &Word::Open { user: 1, name: &"x".repeat(300) })).is_err());
        assert!(read(&write(true, 1, &Word::Data(&[]))).is_err());
    }
}
