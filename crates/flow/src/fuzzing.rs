//! What a fuzzer feeds with any bytes, of what is not public.

use crate::ranks;

/// Bytes that another rank of a flow may say: what is understood can be merged and comes to numbers.
pub fn said(bytes: &[u8]) {
    let _ = ranks::lengths(bytes);
    let Some((_, _, shares)) = ranks::read(bytes) else { return };
    for (_, share) in shares {
        let mut all = share.clone();
        assert!(all.merge(share).is_ok(), "states of one sort");
        all.come_to_numbers();
    }
}
