//! Copies past the caches.

use crate::Vectors;

/// What caches keep together.
pub(crate) const LINE: usize = 64;
/// Bytes that are copied in one turn.
pub(crate) const TURN: usize = 4 * LINE;
/// Turns between those that are copied and those that memory is asked for.
#[cfg(target_arch = "x86_64")]
pub(crate) const AHEAD: usize = 8;

/// Copies bytes into as many others, which lie in no cache afterwards, where the processor can do so: for arrays that are larger than
/// the caches. A target that is written past them is not read before, so that two thirds of the traffic of memory are left. What fits
/// into a cache and is wanted soon is better copied as usual.
///
/// If one is shorter than the other, as many are copied as it has. The first bytes of `then` are asked for on the way: those that are copied next,
/// where that is one of many short runs; else there are none.
pub fn copy_past_caches(from: &[u8], to: &mut [u8], then: &[u8]) {
    copy_with(Vectors::chosen(), from, to, then);
}

fn copy_with(vectors: Vectors, from: &[u8], to: &mut [u8], then: &[u8]) {
    let len = from.len().min(to.len());
    let (Some(from), Some(to)) = (from.get(..len), to.get_mut(..len)) else { return };
    // Whole lines of the target: the processor writes only those without reading them.
    let head = to.as_ptr().align_offset(LINE).min(len);
    let (first, rest) = from.split_at(head);
    let (to_first, to) = to.split_at_mut(head);
    to_first.copy_from_slice(first);
    let whole = rest.len() - rest.len() % TURN;
    let (turns, last) = rest.split_at(whole);
    let (to_turns, to_last) = to.split_at_mut(whole);
    match vectors {
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx2(v) => v.copy_past_caches(turns, to_turns, then),
        #[cfg(target_arch = "x86_64")]
        Vectors::Avx512(v) => v.copy_past_caches(turns, to_turns, then),
        _ => to_turns.copy_from_slice(turns),
    }
    to_last.copy_from_slice(last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_bytes_are_copied_wherever_they_lie(
            from in proptest::collection::vec(any::<u8>(), 0..3000),
            at in 0usize..200,
            begins in 0usize..200,
            longer in 0usize..100,
        ) {
            let from = from.get(at..).unwrap_or_default();
            for vectors in Vectors::all() {
                let mut room = vec![0xA5; begins + from.len() + longer + 100];
                let then = from.get(..longer).unwrap_or_default();
                copy_with(vectors, from, &mut room[begins..begins + from.len() + longer], then);
                let (before, rest) = room.split_at(begins);
                let (copied, after) = rest.split_at(from.len());
                prop_assert!(copied == from, "{vectors:?}");
                prop_assert!(before.iter().chain(after).all(|b| *b == 0xA5), "{vectors:?}");
                // Of a longer one as many as there is room for.
                let mut short = vec![0; from.len() / 2];
                copy_with(vectors, from, &mut short, &[]);
                prop_assert!(short == from[..from.len() / 2], "{vectors:?}");
            }
        }
    }
}
