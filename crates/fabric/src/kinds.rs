//! Kinds of errors as numbers, for messages between ranks and for functions of C. They do not change.

use stead_core::Kind;

const KINDS: [(Kind, u8); 13] = [
    (Kind::Usage, 1),
    (Kind::NotFound, 2),
    (Kind::Permission, 3),
    (Kind::Format, 4),
    (Kind::Data, 5),
    (Kind::Changed, 6),
    (Kind::Limit, 7),
    (Kind::NoSpace, 8),
    (Kind::Io, 9),
    (Kind::Cancelled, 10),
    (Kind::Peer, 11),
    (Kind::Internal, 12),
    (Kind::Timeout, 13),
];

/// The number of a kind, from 1.
pub fn number(kind: Kind) -> u8 {
    KINDS.iter().find(|(k, _)| *k == kind).map_or(12, |(_, n)| *n)
}

/// The kind of a number; `Internal` if it has none.
pub fn kind(number: u8) -> Kind {
    KINDS.iter().find(|(_, n)| *n == number).map_or(Kind::Internal, |(k, _)| *k)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_name_kinds() {
        for (k, n) in KINDS {
            assert_eq!((number(k), kind(n)), (n, k));
        }
        assert_eq!(kind(0), Kind::Internal);
    }
}
